// NLMS = Kaczmarz = projection: the delta rule with a step size divided by the energy of the key.
//
//   beta_t = mu_t / (eps + |k_t|^2) ;   S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}' k_t)' ;   o_t = S_t' q_t
//
// mu = 1 and eps = 0 give S_t' k_t = v_t exactly. mu [B,T,H] in (0,2). Source: Nagumo-Noda 1967; test-time regression
// Eq. 33.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration nlms() {
  Declaration d;
  d.info.name = "nlms";
  d.info.recipe = "equal / linear / sgd(nlms)";
  d.info.title = "Normalised LMS (Kaczmarz)";
  d.info.paper = "Nagumo, Noda 1967; Kaczmarz 1937; Wang, Shi, Fox 2025, arXiv 2501.12352, Eq. 33";
  d.info.equation =
      "beta_t = mu_t/(eps + |k_t|^2) ;  S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}' k_t)' ;  o_t = S_t' q_t";
  d.info.scale = "none";
  d.info.traps = {"With keys of length one it cannot be told from DeltaNet: leave the keys as they are.",
                  "A key of zeros writes nothing (the step would be 0/0)."};
  d.info.inputs = {query(), key(), value(), {"mu", "B T H", "relative step size, in (0, 2)", Range::sigmoid}};
  d.info.outputs = {output()};
  d.info.variants = {{"mu=1"}, {"eps=0.01"}};
  d.info.settings = {{"mu", "a constant relative step size", "0.5"}, {"eps", "added to |k|^2", ""}};
  d.info.golden = {{"nlms", {{"h0", "state.S"}, {"ht", "state.S"}}, {{"eps", "@eps"}}}};
  return d;
}

}  // namespace ttr::zoo
