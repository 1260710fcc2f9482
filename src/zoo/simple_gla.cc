// Scalar-gated linear attention (simple GLA, gated retention): pairs fade by a factor that each token chooses.
//
//   S_t = e^{g_t} S_{t-1} + k_t v_t' ;   o_t = S_t' (c q_t) ,  c = 1/sqrt(K)
//
// g [B,T,H]. Source: flash-linear-attention simple_gla; YOCO.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration simple_gla() {
  Declaration d;
  d.info.name = "simple-gla";
  d.info.recipe = "gate / linear / gd(1)";
  d.info.title = "Scalar-gated linear attention";
  d.info.paper = "Yang, Zhang et al., flash-linear-attention; gated retention: Sun et al. 2024, arXiv 2405.05254";
  d.info.equation = "S_t = exp(g_t) S_{t-1} + k_t v_t' ;  o_t = S_t' (c q_t)";
  d.info.scale = "c = 1/sqrt(K) on q";
  d.info.traps = {"g is a natural logarithm, at most 0; the layer computes it as logsigmoid(W x + b)/16."};
  d.info.inputs = {query(), key(), value(), {"g", "B T H", "log of the factor on older pairs", Range::log_gate}};
  d.info.outputs = {output()};
  d.info.settings = {{"decay", "one constant factor on older pairs, in (0, 1]", "0.98"},
                     {"normalise", "none, unit, rms or keysum: what divides the output", ""},
                     {"step", "length of the gradient step; auto = 1 / sum w |k|^2", "auto"}};
  d.info.golden = {{"simple_gla", {{"h0", "state.S"}, {"ht", "state.S"}}, {}}};
  d.scale_by_root_key = true;
  return d;
}

}  // namespace ttr::zoo
