// Mamba-1 (selective scan): every entry of the state has its own gate, made from a step per channel.
//
//   Delta = softplus(delta + bias) ;   S_t[n,d] = e^{Delta_t[d] A[d,n]} S_{t-1}[n,d] + B_t[n] Delta_t[d] u_t[d]
//   y_t = (S_t' C_t + D * u_t) * silu(z_t)
//
// u, delta, z, y [B,T,H,V], A [H,V,K], B, C [B,T,G,K], D and bias [H,V]. The authors' layout is channels first,
// u [B,D,L] with D = H V: tensors have free strides here. Groups of channels that share B and C are heads. The
// [T,K,V] tensor of gates is never stored. Source: Gu and Dao 2023, selective_scan_ref.
//
// With eigenvalues in [-1, 1] the factor is 2 e^{Delta A} - 1, and nothing else changes: a state that can change its sign
// counts modulo two, which positive factors cannot. Source: Grazzi et al. 2024.
#include "families/elementwise/diagonal/diagonal.h"
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration mamba_1() {
  Declaration d;
  d.info.name = "mamba-1";
  d.info.recipe = "gate(full) / linear / gd(1)";
  d.info.title = "Mamba (selective scan)";
  d.info.paper = "Gu, Dao 2023, arXiv 2312.00752";
  d.info.equation =
      "dt = softplus(delta + delta_bias) ;  S_t[n,d] = exp(dt_t[d] A[d,n]) S_{t-1}[n,d] + B_t[n] dt_t[d] u_t[d] ;  "
      "y_t "
      "= (S_t' C_t + D * u_t) * silu(z_t)";
  d.info.scale = "none";
  d.info.departure = "dt sets both the gate and the size of the write; the output has a skip D u and a gate silu(z)";
  d.info.traps = {"A is negative (-exp(A_log)); a positive entry grows.", "The final state is taken before D and z.",
                  "The authors' layout is channels first, [B,D,L]; give the strides."};
  d.info.inputs = {{"u", "B T H V", "value", Range::normal},
                   {"delta", "B T H V", "step before the bias and softplus", Range::normal},
                   {"A", "H V K", "log decay per unit of dt", Range::negative},
                   {"B", "B T G K", "key", Range::normal},
                   {"C", "B T G K", "query", Range::normal},
                   {"D", "H V", "skip", Range::normal},
                   {"z", "B T H V", "output gate before silu", Range::normal},
                   {"delta_bias", "H V", "added to delta", Range::normal}};
  d.info.outputs = {output("y")};
  d.info.settings = {{"skip", "input or none: the skip D u", "", true},
                     {"gate", "input or none: the output gate z", "", true},
                     {"bias", "input or none: the bias of delta", "", true},
                     {"softplus", "yes, or no where delta already is the step", "", true}};
  d.info.variants = {{"skip=none,gate=none,bias=none"}};
  d.info.golden = {{"mamba1_selective_scan",
                    {{"u", "u[B HV T]"},
                     {"delta", "delta[B HV T]"},
                     {"A", "A[HV K]"},
                     {"B", "B[B K T]"},
                     {"B", "B[B G K T]"},
                     {"C", "C[B K T]"},
                     {"C", "C[B G K T]"},
                     {"D", "D[HV]"},
                     {"z", "z[B HV T]"},
                     {"delta_bias", "delta_bias[HV]"},
                     {"y", "y[B HV T]"},
                     {"h0", "state.S[B HV K]"},
                     {"ht", "state.S[B HV K]"}},
                    {{"skip", "!D"}, {"gate", "!z"}, {"bias", "!delta_bias"}}}};
  d.family = &families::selective_family;
  d.refuses_stream = every_entry_has_a_gate;
  d.feeds = {{"q", "C"}, {"k", "B"}};
  using prepare::Op;
  d.prepare = {{Op::add, {"delta", "delta_bias"}, "raw"},
               {Op::softplus, {"raw"}, "step"},
               {Op::multiply, {"step", "u"}, "v"},
               {Op::outer_product, {"step", "A"}, "gkv"}};
  d.finish = {{Op::skip, {"o", "u", "D"}, "skipped"}, {Op::silu_gate, {"skipped", "z"}, "y"}};
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape&) {
    if (word_setting(layer, settings, "bias", {"input", "none"}) == "none") layer.prepare[0].from = {"delta", "0"};
    if (word_setting(layer, settings, "softplus", {"yes", "no"}) == "no")
      layer.prepare[1].op = Op::scale, layer.prepare[1].number = 1;
    if (word_setting(layer, settings, "skip", {"input", "none"}) == "none") layer.finish[0].from = {"o", "u", "0"};
    if (word_setting(layer, settings, "gate", {"input", "none"}) == "none")
      layer.finish[1] = {Op::scale, {"skipped"}, "y", 1};
  };
  return d;
}

Declaration signed_mamba_1() {
  Declaration d = mamba_1();
  d.info.name = "signed-mamba-1";
  d.info.recipe = "gate(full, signed) / linear / gd(1)";
  d.info.title = "Mamba with eigenvalues in [-1, 1]";
  d.info.paper = "Grazzi, Siems, Franke, Zela, Hutter, Pontil 2024, arXiv 2411.12537; Gu, Dao 2023, arXiv 2312.00752";
  d.info.equation =
      "dt = softplus(delta + delta_bias) ;  S_t[n,d] = (2 exp(dt_t[d] A[d,n]) - 1) S_{t-1}[n,d] + B_t[n] dt_t[d] "
      "u_t[d] ;  y_t = (S_t' C_t + D * u_t) * silu(z_t)";
  d.info.traps = {
      "A is negative (-exp(A_log)): dt A from 0 to -inf takes the factor from 1 to -1, through 0 at -log 2.",
      "A large dt flips the sign of the state instead of forgetting it; what forgets is a factor near 0.",
      "The final state is taken before D and z."};
  d.info.golden[0].op = "mamba1_signed";
  d.options_of<families::SelectiveGate>() = families::SelectiveGate::twice;
  using prepare::Op;
  d.prepare.back() = {Op::outer_product, {"step", "A"}, "rate", 0, "B T H K V"};
  d.prepare.push_back({Op::twice_less_one, {"rate"}, "akv"});
  return d;
}

}  // namespace ttr::zoo
