// GateLoop: a complex gate per key channel; the real part of the state is read.
//
//   S_t = diag(e^{la_t + i theta_t}) S_{t-1} + k_t v_t' ;   o_t = Re(S_t)' q_t
//
// q, k [B,T,G,K], v [B,T,H,V], la and theta [B,T,H,K]. Source: Katsch 2023.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration gateloop() {
  Declaration d;
  d.info.name = "gateloop";
  d.info.recipe = "gate(key, complex) / linear / gd(1)";
  d.info.title = "GateLoop";
  d.info.paper = "Katsch 2023, arXiv 2311.01927";
  d.info.equation = "S_t = diag(exp(la_t + i theta_t)) S_{t-1} + k_t v_t' ;  o_t = Re(S_t)' q_t";
  d.info.scale = "none";
  d.info.traps = {
      "The state is complex: two arrays, and twice the work of GLA.",
      "A chunk form needs complex products of keys; the scan over segments is exact and is what is here."};
  d.info.inputs = {query(),
                   key(),
                   value(),
                   {"la", "B T H K", "log magnitude of the gate", Range::log_gate},
                   {"theta", "B T H K", "phase of the gate, in radians", Range::normal}};
  d.info.outputs = {output()};
  d.info.settings = {{"normalise", "none, unit or rms: what divides the output", ""}};
  d.info.golden = {{"gateloop",
                    {{"h0_re", "state.S"}, {"h0_im", "state.S_im"}, {"ht_re", "state.S"}, {"ht_im", "state.S_im"}},
                    {}}};
  d.feeds = {{"gk", "la"}};
  return d;
}

}  // namespace ttr::zoo
