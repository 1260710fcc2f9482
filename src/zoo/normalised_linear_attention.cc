// Linear attention with a positive feature map and the sum of the keys as normaliser, as in the original paper.
//
//   S_t = S_{t-1} + phi(k_t) v_t' ;   z_t = z_{t-1} + phi(k_t) ;   o_t = S_t' phi(q_t) / (z_t' phi(q_t) + 1e-6)
//
// phi = 1 + elu. q, k [B,T,G,K], v, o [B,T,H,V]; states S [B,H,K,V], z [B,H,K,1]. Source: Katharopoulos et al. 2020.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration normalised_linear_attention() {
  Declaration d;
  d.info.name = "normalised-linear-attention";
  d.info.recipe = "equal / linear(elu1) / gd(1) | normalise(keysum, eps=1e-6)";
  d.info.title = "Linear attention, normalised";
  d.info.paper = "Katharopoulos, Vyas, Pappas, Fleuret 2020, arXiv 2006.16236";
  d.info.equation =
      "S_t = S_{t-1} + phi(k_t) v_t' ;  z_t = z_{t-1} + phi(k_t) ;  o_t = S_t' phi(q_t) / (z_t' phi(q_t) + eps)";
  d.info.scale = "none";
  d.info.departure = "the output is divided by the sum of the keys seen by the query";
  d.info.traps = {"Only for feature maps that are not negative: otherwise the denominator passes through zero.",
                  "eps differs between sources: 1e-6 here, 1e-10 and 1e-5 elsewhere (setting normalise_eps)."};
  d.info.inputs = {query(), key(), value()};
  d.info.outputs = {output()};
  d.info.settings = {{"feature", "elu1, relu or silu: the feature map; identity: none", ""},
                     {"decay", "a factor on older pairs, in (0, 1]", ""},
                     {"normalise_eps", "added to the denominator", ""}};
  d.info.variants = {{"decay=0.9"}};
  d.info.golden = {{"linear_attn_feature_elu1",
                    {{"h0", "state.S"}, {"ht", "state.S"}, {"z0", "state.z="}, {"zt", "state.z="}},
                    {}}};
  return d;
}

}  // namespace ttr::zoo
