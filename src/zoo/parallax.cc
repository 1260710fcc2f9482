// Parallax: local linear attention whose slope is learned, not solved for.
//
//   p = softmax_i(c q_t.k_i) ;  s_i = r_t.k_i ;  o_t = E_p[v] (1 + E_p[s]) - E_p[s v] ,  c = 1/sqrt(K) on q.k only
//
// q, r [B,T,H,K], k [B,T,G,K], v [B,T,G,V]. Source: arXiv 2605.29157.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration parallax() {
  Declaration d;
  d.info.name = "parallax";
  d.info.recipe = "near(exp) / local(1) / given";
  d.info.title = "Parallax attention";
  d.info.paper = "Zuo et al. 2026, arXiv 2605.29157";
  d.info.equation = "p = softmax_i(c q_t.k_i) ;  s_i = r_t.k_i ;  o_t = E_p[v] (1 + E_p[s]) - E_p[s v]";
  d.info.scale = "c = 1/sqrt(K) on q.k; r is not scaled";
  d.info.traps = {"r = 0 is softmax attention.", "The weights p (1 + E[s] - s) sum to one and may be negative."};
  d.info.inputs = {{"q", "B T H K", "query", Range::normal},
                   {"r", "B T H K", "slope", Range::small},
                   {"k", "B T G K", "key", Range::normal},
                   {"v", "B T G V", "value", Range::normal}};
  d.info.outputs = {output()};
  d.info.settings = {{"keys", "raw, unit or rms: norm of q and k", ""}, {"window", "only the newest n pairs", ""}};
  d.info.golden = {{"parallax", {}, {{"window", "@window"}}}};
  return d;
}

}  // namespace ttr::zoo
