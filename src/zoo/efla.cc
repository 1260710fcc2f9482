// Exact-flow linear attention: the delta rule followed as a differential equation instead of one step.
//
//   beta' = (1 - e^{-beta |k|^2}) / |k|^2 ;   S_t = S_{t-1} + beta' k_t (v_t - S_{t-1}' k_t)' ;   o_t = S_t' q_t
//
// beta [B,T,H]; keys are not normalised. Source: Lei, Zhang, Poria 2025, arXiv 2512.12602.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration efla() {
  Declaration d;
  d.info.name = "efla";
  d.info.recipe = "equal / linear / sgd(flow)";
  d.info.title = "Exact-flow linear attention";
  d.info.paper = "Lei, Zhang, Poria 2025, arXiv 2512.12602";
  d.info.equation =
      "beta'_t = (1 - exp(-beta_t |k_t|^2))/|k_t|^2 ;  S_t = S_{t-1} + beta'_t k_t (v_t - S_{t-1}' k_t)' ;  o_t = "
      "S_t' q_t";
  d.info.scale = "none";
  d.info.traps = {"The exact solution, after time beta, of dS/ds = k (v - S'k)'; a small beta gives DeltaNet.",
                  "Evaluated with expm1: for short keys the formula is 0/0."};
  d.info.inputs = {query(), key(), value(), {"beta", "B T H", "time of the flow", Range::sigmoid}};
  d.info.outputs = {output()};
  d.info.settings = {{"flow", "a constant time of the flow", "1"}};
  d.info.golden = {{"efla", {{"h0", "state.S"}, {"ht", "state.S"}}, {}}};
  return d;
}

}  // namespace ttr::zoo
