// Gated slot attention and attention with bounded memory: a fixed number of slots holds keys and values.
//
//   Km_t = Km_{t-1} diag(e^{g_t}) + k_t s_t' ;  p_t = softmax(c Km_t' q_t)
//   Vm_t = diag(e^{g_t}) Vm_{t-1} + s_t v_t' ;  o_t = Vm_t' p_t
//
// q, k [B,T,G,K], v [B,T,H,V], s, g [B,T,H,M]. GSA takes s and g (c = 1). ABC takes the log weights s alone and makes
// z_t = logsumexp_{i<=t} s_i, share e^{s - z}, gate z_{t-1} - z_t (c = 1/sqrt(K)): every slot is a running softmax
// mean. Sources: Zhang et al. 2024 (GSA), Peng et al. 2022 (ABC).
#include "families/elementwise/carry/carry.h"
#include "zoo/zoo.h"

namespace ttr::zoo {
namespace {

Declaration slots() {
  Declaration d;
  d.info.recipe = "gate / slots(64) / gd(1)";
  d.info.outputs = {output()};
  d.info.settings = {{"slots", "M, number of slots", ""}};
  d.info.variants = {{"slots=5"}};
  return d;
}

}  // namespace

Declaration gated_slot_attention() {
  Declaration d = slots();
  d.info.name = "gated-slot-attention";
  d.info.title = "Gated slot attention";
  d.info.paper = "Zhang et al. 2024, arXiv 2409.07146";
  d.info.equation =
      "Km_t = Km_{t-1} diag(exp(g_t)) + k_t s_t' ;  Vm_t = diag(exp(g_t)) Vm_{t-1} + s_t v_t' ;  o_t = Vm_t' "
      "softmax(Km_t' "
      "q_t)";
  d.info.scale = "none (the layer's default; the operator's is 1/sqrt(K))";
  d.info.traps = {"In the layer s = 1 - exp(g): what is forgotten is what is written.",
                  "Two passes of gated linear attention with a softmax between them; there is no single state."};
  d.info.inputs = {query(),
                   key(),
                   value(),
                   {"s", "B T H M", "write strength of each slot", Range::sigmoid},
                   {"g", "B T H M", "log of the factor on each slot", Range::log_gate}};
  d.info.golden = {{"gsa",
                    {{"hk0", "state.Km"}, {"hv0", "state.Vm"}, {"hkt", "state.Km"}, {"hvt", "state.Vm"}},
                    {{"slots", "#s.3"}}}};
  d.feeds = {{"gs", "g"}};
  return d;
}

Declaration bounded_memory() {
  Declaration d = slots();
  d.info.name = "abc";
  d.info.title = "Attention with bounded-memory control";
  d.info.paper = "Peng et al. 2022, arXiv 2110.02488";
  d.info.equation =
      "z_t = logsumexp_{i<=t} s_i ;  Km_t = Km_{t-1} diag(exp(z_{t-1} - z_t)) + k_t exp(s_t - z_t)' ;  Vm_t likewise "
      "with "
      "v_t ;  o_t = Vm_t' softmax(c Km_t' q_t)";
  d.info.scale = "c = 1/sqrt(K) on q";
  d.info.departure = "gate and write strength of a slot are made from one log weight s by a running softmax";
  d.info.traps = {
      "The reference does not keep z between calls: there a sequence cut in two differs from the whole. Here z "
      "is part of the state, and the first token after a fresh z does not fade a given memory.",
      "A slot is a mean, so a token with a small s changes it little for ever."};
  d.info.inputs = {query(), key(), value(), {"s", "B T H M", "log weight of the token in each slot", Range::normal}};
  d.info.golden = {{"abc",
                    {{"hk0", "state.Km"}, {"hv0", "state.Vm"}, {"hkt", "state.Km"}, {"hvt", "state.Vm"}},
                    {{"slots", "#s.3"}}}};
  d.scale_by_root_key = true;
  using prepare::Op;
  d.prepare = {{.from = {"s"},
                .to = "share",
                .shape = "B T H E",
                .family = &families::carry_family,
                .option = static_cast<int>(families::Carry::log_share),
                .state = {"z", "B H E", "log of the sum of weights of each slot; then whether anything was seen"}},
               {Op::first_half, {"share"}, "s", 0, "B T H M"},
               {Op::second_half, {"share"}, "gs", 0, "B T H M"}};
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape&) {
    layer.letters['E'] = 2 * whole_setting(layer, settings, "slots", 64);
  };
  return d;
}

}  // namespace ttr::zoo
