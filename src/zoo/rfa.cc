// Random feature attention: linear attention through a feature map.
//
//   phi(q).phi(k) estimates exp(-|q-k|^2/2) for W of normal rows. q, k of length one. Source: Peng et al. 2021.
#include "zoo/feature_attention.h"

namespace ttr::zoo {

Declaration rfa() {
  Declaration d =
      feature_attention(prepare::Op::rfa, {{"W", "M K", "random matrix, shared by heads", Range::small}}, "B T G F");
  d.info.name = "rfa";
  d.info.title = "Random feature attention";
  d.info.paper = "Peng et al. 2021, arXiv 2103.02143";
  d.info.equation = "phi = M^(-1/2) [sin(W x) ; cos(W x)] ;  " + d.info.equation;
  d.info.inputs[0].range = d.info.inputs[1].range = Range::unit;
  d.info.traps = {"The features are not positive: with few of them the denominator can pass through zero.",
                  "Queries and keys are expected to have length one."};
  return d;
}

// RFA-gate: S_t = e^{g_t} S_{t-1} + (1 - e^{g_t}) phi(k_t) v_t', z likewise; no eps.
Declaration gated_rfa() {
  Declaration d = rfa();
  d.info.name = "gated-rfa";
  d.info.recipe = "gate(beta) / linear / gd(1) | normalise(keysum)";
  d.info.title = "Gated random feature attention";
  d.info.equation =
      "phi = M^(-1/2) [sin(W x) ; cos(W x)] ;  S_t = exp(g_t) S_{t-1} + (1 - exp(g_t)) phi(k_t) v_t' ;  z_t likewise "
      ";  "
      "o_t = S_t' phi(q_t) / (z_t' phi(q_t))";
  d.info.departure = "gate and importance are tied: the share of the new pair is what is forgotten of the old ones";
  d.info.inputs.push_back({"g", "B T H", "log of the sigmoid gate", Range::log_gate});
  d.info.golden = {{"gated_rfa",
                    {{"h0", "state.S"}, {"ht", "state.S"}, {"z0", "state.z="}, {"zt", "state.z="}},
                    {{"features", "#W.0"}}}};
  d.prepare.push_back({prepare::Op::one_minus_exp, {"g"}, "beta"});
  return d;
}

}  // namespace ttr::zoo
