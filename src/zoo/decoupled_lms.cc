// LMS with decoupled weight decay: the state shrinks by a factor that does not depend on the step size.
//
//   S_t = (1 - lam_t) S_{t-1} + beta_t k_t (v_t - S_{t-1}' k_t)' ;   o_t = S_t' q_t
//
// beta, lam [B,T,H]; the residual reads the undecayed state.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration decoupled_lms() {
  Declaration d;
  d.info.name = "lms-decoupled-decay";
  d.info.recipe = "equal / linear / sgd(beta, shrink)";
  d.info.title = "LMS with decoupled weight decay";
  d.info.paper = "Loshchilov, Hutter 2017, arXiv 1711.05101 (decoupling); Wang, Shi, Fox 2025, arXiv 2501.12352";
  d.info.equation = "S_t = (1 - lam_t) S_{t-1} + beta_t k_t (v_t - S_{t-1}' k_t)' ;  o_t = S_t' q_t";
  d.info.scale = "none";
  d.info.traps = {"The decay does not depend on the step size (leaky LMS: it does).",
                  "The residual reads the undecayed state."};
  d.info.inputs = {query(Range::unit),
                   key(Range::unit),
                   value(),
                   {"beta", "B T H", "step size", Range::sigmoid},
                   {"lam", "B T H", "weight decay, at most 1", Range::sigmoid}};
  d.info.outputs = {output()};
  d.info.settings = {{"beta", "a constant step size", "0.5"},
                     {"shrink", "a constant weight decay", "0.01"},
                     {"keys", "raw, unit or rms: norm of q and k", "unit"}};
  d.info.golden = {{"lms_decoupled_decay", {{"h0", "state.S"}, {"ht", "state.S"}}, {}}};
  return d;
}

}  // namespace ttr::zoo
