// Longhorn as released: the implicit delta rule with its matrix I - delta k k' replaced by its diagonal, so that the
// state is elementwise.
//
//   beta = sigmoid(beta_raw + bias) ;   delta_t[d] = beta_t[d] / (1 + beta_t[d] |k_t|^2)
//   S_t[n,d] = (1 - delta_t[d] k_t[n]^2) S_{t-1}[n,d] + k_t[n] delta_t[d] x_t[d]
//   y_t = (S_t' q_t + D * x_t) silu(z_t)
//
// x, beta_raw, z, y [B,T,H,V], q, k [B,T,G,K], bias and D [H,V]. Published layout [B,T,D], state [B,D,N].
// Source: Liu et al. 2024, models/longhorn.py; `longhorn` is the rule as derived in the paper.
#include "families/elementwise/diagonal/diagonal.h"
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration longhorn_shipped() {
  Declaration d;
  d.info.name = "longhorn-shipped";
  d.info.recipe = "gate(full) / linear / gd(1)";
  d.info.title = "Longhorn as released";
  d.info.paper = "Liu, Wang, Wu, Feng, Stone, Liu 2024, arXiv 2407.14207";
  d.info.equation =
      "b = sigmoid(beta_raw + beta_bias) ;  e = b / (1 + b |k|^2) ;  S_t[n,d] = (1 - e_t[d] k_t[n]^2) S_{t-1}[n,d] + "
      "k_t[n] e_t[d] x_t[d] ;  y_t = (S_t' q_t + D * x_t) * silu(z_t)";
  d.info.scale = "none";
  d.info.departure =
      "gate and write are tied by the step; only the diagonal of I - e k k' is kept, so no pair is erased exactly";
  d.info.traps = {"Not the layer `longhorn`, which keeps the whole matrix: the outputs differ."};
  d.info.inputs = {{"x", "B T H V", "value", Range::normal},
                   {"q", "B T G K", "query", Range::normal},
                   {"k", "B T G K", "key", Range::normal},
                   {"beta_raw", "B T H V", "step before the bias and sigmoid", Range::normal},
                   {"beta_bias", "H V", "added to beta_raw", Range::normal},
                   {"D", "H V", "skip", Range::normal},
                   {"z", "B T H V", "output gate before silu", Range::normal}};
  d.info.outputs = {output("y")};
  d.info.golden = {{"longhorn",
                    {{"x", "x[B T HV]"},
                     {"q", "q[B T K]"},
                     {"k", "k[B T K]"},
                     {"beta_raw", "beta_raw[B T HV]"},
                     {"beta_bias", "beta_bias[HV]"},
                     {"D", "D[HV]"},
                     {"z", "z[B T HV]"},
                     {"y", "y[B T HV]"},
                     {"h0", "state.S[B HV K]"},
                     {"ht", "state.S[B HV K]"}},
                    {}}};
  d.family = &families::selective_family;
  d.options_of<families::SelectiveGate>() = families::SelectiveGate::longhorn;
  d.refuses_stream = every_entry_has_a_gate;
  using prepare::Op;
  d.prepare = {{Op::add, {"beta_raw", "beta_bias"}, "raw"},
               {Op::sigmoid, {"raw"}, "beta"},
               {Op::square_norm, {"k"}, "length", 0, "B T H 1"},
               {Op::implicit_step, {"beta", "length"}, "step"},
               {Op::multiply, {"step", "x"}, "v"},
               {Op::erase_log, {"k", "step"}, "gkv"}};
  d.finish = {{Op::skip, {"o", "x", "D"}, "skipped"}, {Op::silu_gate, {"skipped", "z"}, "y"}};
  return d;
}

}  // namespace ttr::zoo
