// Forgetting attention (FoX): softmax attention whose logits lose the log forget gates between pair and query.
//
//   o_t = sum_{i<=t} softmax_i(c q_t.k_i + g_{i+1} + .. + g_t) v_i ,  c = 1/sqrt(K)
//
// q [B,T,H,K], k [B,T,G,K], v [B,T,G,V], g [B,T,H] natural logs, not scaled. Source: Lin et al. 2025.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration forgetting_attention() {
  Declaration d;
  d.info.name = "forgetting-attention";
  d.info.recipe = "near(exp) * gate / constant / exact";
  d.info.title = "Forgetting attention (FoX)";
  d.info.paper = "Lin, Nikishin, He, Courville 2025, arXiv 2503.02130";
  d.info.equation = "p_i = softmax_i(c q_t.k_i + g_{i+1} + .. + g_t), i <= t ;  o_t = sum_i p_i v_i";
  d.info.scale = "c = 1/sqrt(K) on q.k; the gates are not scaled";
  d.info.traps = {
      "Sums of gates are taken from the pair to the query: differences of sums over the sequence lose all digits.",
      "g = -inf closes a gate: nothing before it is seen."};
  d.info.inputs = {{"q", "B T H K", "query", Range::normal},
                   {"k", "B T G K", "key", Range::normal},
                   {"v", "B T G V", "value", Range::normal},
                   {"g", "B T H", "log of the forget gate", Range::log_gate}};
  d.info.outputs = {output()};
  d.info.variants = {{"window=5"}, {"keys=rms"}};
  d.info.settings = {{"keys", "raw, unit or rms: norm of q and k", "rms"},
                     {"window", "only the newest n pairs", ""},
                     {"decay", "one constant factor instead of the gates, in (0, 1]", "0.98"}};
  d.info.golden = {{"forgetting_attn", {}, {{"window", "@window"}}}};
  return d;
}

}  // namespace ttr::zoo
