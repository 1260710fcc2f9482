// Kalman filter of a linear memory that drifts: mean and covariance, with the variance of every prediction.
//
//   P <- P + process I ;  gain = P k / (noise + k'P k) ;  S <- S + gain (v - S'k)' ;  P <- P - gain (P k)'
//   o_t = S' q_t ;  variance_t = q_t' P q_t + noise
//
// q, k [B,T,G,K], v [B,T,H,V], qvar (process), rvar (noise) [B,T,H]. Fresh: P = I. Source: Kalman 1960.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration kalman() {
  Declaration d;
  d.info.name = "kalman";
  d.info.recipe = "equal / linear / kalman(process, noise)";
  d.info.title = "Kalman filter";
  d.info.paper = "Kalman 1960; Haykin, Adaptive Filter Theory";
  d.info.equation =
      "P <- P + qvar I ;  gain = P k / (rvar + k'P k) ;  S <- S + gain (v - S'k)' ;  P <- P - gain (P k)' ;  o_t = "
      "S' q_t";
  d.info.scale = "none";
  d.info.traps = {"P is kept in double and symmetric; a full update in float loses both within thousands of steps.",
                  "Without process noise the filter stops learning: it is then recursive least squares.",
                  "variance is that of a value at the query, q'P q + rvar, in units of the noise."};
  d.info.inputs = {query(),
                   key(),
                   value(),
                   {"qvar", "B T H", "variance of the drift per token", Range::sigmoid},
                   {"rvar", "B T H", "variance of a value", Range::positive}};
  d.info.outputs = {output(), variance()};
  d.info.settings = {{"process", "a constant variance of the drift", "0.001"},
                     {"noise", "a constant variance of a value", "1"},
                     {"keys", "raw, unit or rms: norm of q and k", ""}};
  d.info.variants = {{"process=0.1,noise=0.5"}};
  d.info.golden = {{"kalman", {{"h0", "state.S"}, {"ht", "state.S"}, {"P0", "state.P~"}, {"Pt", "state.P"}}, {}}};
  d.feeds = {{"process", "qvar"}, {"noise", "rvar"}};
  return d;
}

}  // namespace ttr::zoo
