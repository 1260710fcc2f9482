// Leaky LMS: one gradient step on the newest pair plus an l2 penalty on the state.
//
//   S_t = (1 - beta_t lam_t) S_{t-1} + beta_t k_t (v_t - S_{t-1}' k_t)' ;   o_t = S_t' q_t
//
// The residual reads the undecayed state (Gated DeltaNet reads the decayed one). beta, lam [B,T,H]. Source: test-time
// regression Eq. 37; Widrow.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration leaky_lms() {
  Declaration d;
  d.info.name = "leaky-lms";
  d.info.recipe = "equal / linear / sgd(beta, leak)";
  d.info.title = "Leaky LMS";
  d.info.paper = "Widrow, Stearns 1985; Wang, Shi, Fox 2025, arXiv 2501.12352, Eq. 37";
  d.info.equation = "S_t = (1 - beta_t lam_t) S_{t-1} + beta_t k_t (v_t - S_{t-1}' k_t)' ;  o_t = S_t' q_t";
  d.info.scale = "none";
  d.info.traps = {"Equal to Gated DeltaNet with decay a = 1 - beta lam, step beta/a and value a v.",
                  "beta lam above 1 would flip the sign of the memory and is refused."};
  d.info.inputs = {query(Range::unit),
                   key(Range::unit),
                   value(),
                   {"beta", "B T H", "step size", Range::sigmoid},
                   {"lam", "B T H", "weight of the l2 penalty, beta lam <= 1", Range::sigmoid}};
  d.info.outputs = {output()};
  d.info.variants = {{"leak=0.1"}};
  d.info.settings = {{"beta", "a constant step size", "0.5"},
                     {"leak", "a constant penalty", "0.01"},
                     {"keys", "raw, unit or rms: norm of q and k", "unit"}};
  d.info.golden = {{"leaky_lms", {{"h0", "state.S"}, {"ht", "state.S"}}, {}}};
  return d;
}

}  // namespace ttr::zoo
