// Linear attention: equal weights, linear memory, one batch gradient step from zero.
//
//   S_t = S_{t-1} + k_t v_t' ;   o_t = S_t' (c q_t) ,  c = 1/sqrt(K)
//
// q, k [B,T,G,K], v, o [B,T,H,V], S [B,H,K,V]. Source: Katharopoulos et al. 2020; Schmidhuber's fast weights.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration linear_attention() {
  Declaration d;
  d.info.name = "linear-attention";
  d.info.recipe = "equal / linear / gd(1)";
  d.info.title = "Linear attention";
  d.info.paper = "Katharopoulos, Vyas, Pappas, Fleuret 2020, arXiv 2006.16236";
  d.info.equation = "S_t = S_{t-1} + k_t v_t' ;  o_t = S_t' (c q_t)";
  d.info.scale = "c = 1/sqrt(K) on q";
  d.info.traps = {"The exact least-squares answer is H^-1 F; linear attention replaces H = sum k k' by the identity.",
                  "There is no normaliser here; normalise=keysum needs keys and queries that are not negative.",
                  "Without decay the sum grows with T: outputs have no bounded size."};
  d.info.inputs = {query(), key(), value()};
  d.info.outputs = {output()};
  d.info.variants = {{"step=auto"}, {"normalise=unit"}};
  d.info.settings = {{"normalise", "none, unit, rms or keysum: what divides the output", ""},
                     {"normalise_eps", "added to what divides the output", ""},
                     {"step", "length of the gradient step; auto = 1 / sum |k|^2, which never overshoots", "auto"}};
  d.info.golden = {{"linear_attn", {{"h0", "state.S"}, {"ht", "state.S"}}, {}},
                   {"linear_attn_normalized",
                    {{"h0", "state.S"}, {"ht", "state.S"}, {"z0", "state.z="}, {"zt", "state.z="}},
                    {{"normalise", "keysum"}, {"normalise_eps", "1e-10"}}}};
  d.scale_by_root_key = true;
  return d;
}

}  // namespace ttr::zoo
