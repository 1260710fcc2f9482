// LMS with a heavy ball.
//
//   Z_t = momentum_t Z_{t-1} + beta_t k_t (v_t - S_{t-1}' k_t)' ;  S_t = S_{t-1} + Z_t ;  o_t = S_t' q_t
//
// q, k [B,T,G,K], v [B,T,H,V], beta, momentum [B,T,H]. Source: Roy and Shynk 1990, momentum LMS.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration heavy_ball_lms() {
  Declaration d;
  d.info.name = "heavy-ball-lms";
  d.info.recipe = "equal / linear / sgd(beta, momentum)";
  d.info.title = "LMS with a heavy ball";
  d.info.paper = "Roy, Shynk 1990, IEEE Trans. ASSP 38(12)";
  d.info.equation =
      "Z_t = momentum_t Z_{t-1} + beta_t k_t (v_t - S_{t-1}' k_t)' ;  S_t = S_{t-1} + Z_t ;  o_t = S_t' q_t";
  d.info.scale = "none";
  d.info.inputs = {query(Range::unit),
                   key(Range::unit),
                   value(),
                   {"beta", "B T H", "step size", Range::rate},
                   {"momentum", "B T H", "factor on the last update", Range::sigmoid}};
  d.info.outputs = {output()};
  d.info.settings = {{"beta", "a constant step size", "0.1"}, {"momentum", "a constant momentum", "0.5"}};
  return d;
}

}  // namespace ttr::zoo
