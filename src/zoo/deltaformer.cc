// DeltaFormer: softmax attention over values corrected by what was already there.
//
//   u_t = v_t - beta_t sum_{j<t} softmax_{j<t}(c q_t.k_j) u_j ;   o_t = sum_{i<=t} softmax_i(c q_t.k_i) u_i
//
// q [B,T,H,K], k [B,T,G,K], v [B,T,G,V], beta [B,T,H], c = 1/sqrt(K). Source: DeltaFormer, flash-linear-attention.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration deltaformer() {
  Declaration d;
  d.info.name = "deltaformer";
  d.info.recipe = "near(exp) / constant / sgd(beta)";
  d.info.title = "DeltaFormer";
  d.info.paper = "Zhong et al. 2025, arXiv 2505.19488";
  d.info.equation =
      "u_t = v_t - beta_t sum_{j<t} softmax_{j<t}(c q_t.k_j) u_j ;  o_t = sum_{i<=t} softmax_i(c q_t.k_i) u_i";
  d.info.scale = "c = 1/sqrt(K) in the kernel";
  d.info.traps = {"The state holds the corrected values u, one per head, not v.",
                  "The correction of a token sees only tokens before it; the first has none."};
  d.info.inputs = {{"q", "B T H K", "query", Range::normal},
                   {"k", "B T G K", "key", Range::normal},
                   {"v", "B T G V", "value", Range::normal},
                   {"beta", "B T H", "how much of what is there is taken away", Range::sigmoid}};
  d.info.outputs = {output()};
  d.info.settings = {{"beta", "a constant step size", "0.5"}, {"keys", "raw, unit or rms: norm of q and k", "rms"}};
  d.info.golden = {{"deltaformer", {}, {}}};
  return d;
}

}  // namespace ttr::zoo
