// Momentum DeltaNet: the delta rule with a heavy ball.
//
//   e_t = v_t - S_{t-1}' p_t ;  Z_t = e^{g_mu,t} Z_{t-1} + eta_t k_t e_t' ;  S_t = e^{g_t} S_{t-1} + beta_t Z_t
//   o_t = S_t' (c q_t) ,  c = 1/sqrt(K)
//
// q, k, p [B,T,G,K], v [B,T,H,V], g, g_mu, beta, eta [B,T,H]. The sources keep M = -Z. Source: arXiv 2605.05838.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration momentum_deltanet() {
  Declaration d;
  d.info.name = "momentum-deltanet";
  d.info.recipe = "equal / linear / sgd(beta, decay, momentum, gain, feedback)";
  d.info.title = "Momentum DeltaNet";
  d.info.paper = "Huang et al. 2026, arXiv 2605.05838";
  d.info.equation =
      "e_t = v_t - S_{t-1}' p_t ;  Z_t = exp(g_mu_t) Z_{t-1} + eta_t k_t e_t' ;  S_t = exp(g_t) S_{t-1} + beta_t Z_t "
      ";  "
      "o_t = S_t' (c q_t)";
  d.info.scale = "c = 1/sqrt(K) on q";
  d.info.traps = {"The residual is read from the undecayed state, with the key p.",
                  "The sources store minus Z, the accumulated gradient.",
                  "Momentum near 1 with a large eta is unstable: the recurrence is second order."};
  d.info.inputs = {query(Range::unit),
                   key(Range::unit),
                   value(),
                   {"p", "B T G K", "key the residual is read with", Range::unit},
                   {"g", "B T H", "log of the decay of the memory", Range::log_gate},
                   {"g_mu", "B T H", "log of the momentum", Range::log_gate},
                   {"beta", "B T H", "how much of Z is added", Range::sigmoid},
                   {"eta", "B T H", "step size", Range::sigmoid}};
  d.info.outputs = {output()};
  d.info.settings = {{"beta", "a constant step size", "0.5"},
                     {"decay", "a constant weight decay", "0.01"},
                     {"momentum", "a constant momentum", "0.5"}};
  d.info.golden = {
      {"momentum_deltanet", {{"h0", "state.S"}, {"ht", "state.S"}, {"m0", "state.Z-"}, {"mt", "state.Z-"}}, {}}};
  d.scale_by_root_key = true;
  d.feeds = {{"beta", "eta"}, {"gain", "beta"}};
  d.prepare = {{prepare::Op::exp, {"g_mu"}, "momentum"}};
  return d;
}

}  // namespace ttr::zoo
