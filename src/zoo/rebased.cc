// ReBased: linear attention through a feature map.
//
//   phi(q).phi(k) = (q.k)^2 / K
//
// The layer norm of q and k (with their own scales and shifts) is done before: layer-norm. Source: Aksenov et al. 2024.
#include "zoo/feature_attention.h"

namespace ttr::zoo {

Declaration rebased() {
  Declaration d = feature_attention(prepare::Op::quadratic, {}, "B T G F");
  d.info.name = "rebased";
  d.info.title = "ReBased";
  d.info.paper = "Aksenov et al. 2024, arXiv 2402.10644";
  d.info.equation = "phi = [x_i^2/sqrt(K) ; sqrt(2/K) x_i x_j, i < j] ;  " + d.info.equation;
  d.info.traps = {"Only the square is left of the Taylor map: a query at right angles to all keys sees nothing.",
                  "Kernel and layer of the source use eps = 1e-5, the naive form 1e-6 (setting normalise_eps)."};
  d.info.golden = {{"rebased", {}, {}}};
  d.family = &families::squares_family;  // makes the features itself, in double
  return d;
}

}  // namespace ttr::zoo
