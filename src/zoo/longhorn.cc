// Longhorn as derived: the implicit (proximal) step of the delta rule.
//
//   beta_t = delta_t / (1 + delta_t |k_t|^2) ;   S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}' k_t)' ;   o_t = S_t' q_t
//
// This is argmin_X 1/2 |X - S|^2 + delta/2 |v - X'k|^2. Source: Liu et al. 2024; test-time regression Eq. 31. Slides
// that print the step as 1/(1 + delta |k|^2) are not the argmin.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration longhorn() {
  Declaration d;
  d.info.name = "longhorn";
  d.info.recipe = "equal / linear / sgd(longhorn)";
  d.info.title = "Longhorn (as derived)";
  d.info.paper =
      "Liu, Wang, Wu, Feng, Stone, Liu 2024, arXiv 2407.14207; Wang, Shi, Fox 2025, arXiv 2501.12352, Eq. 31";
  d.info.equation =
      "beta_t = delta_t/(1 + delta_t |k_t|^2) ;  S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}' k_t)' ;  o_t = S_t' q_t";
  d.info.scale = "none";
  d.info.departure = "none here; the released model replaces the step by its diagonal, which is another layer";
  d.info.traps = {"delta to infinity gives NLMS with mu = 1.",
                  "The step never overshoots, whatever the key's length."};
  d.info.inputs = {
      query(), key(), value(), {"delta", "B T H", "weight of the new pair against the old state", Range::sigmoid}};
  d.info.outputs = {output()};
  d.info.settings = {{"delta", "a constant weight of the new pair", "1"}};
  d.info.golden = {{"longhorn_derived", {{"h0", "state.S"}, {"ht", "state.S"}}, {}}};
  return d;
}

}  // namespace ttr::zoo
