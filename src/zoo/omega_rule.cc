// The Omega rule of ATLAS: every token takes a step on the last few pairs together, with momentum and forgetting.
//
//   G_t = sum over the last c pairs of gamma_i k_i (M_{t-1}'k_i - v_i)' ;  Z_t = theta_t Z_{t-1} - eta_t G_t
//   M_t = exp(g_t) M_{t-1} + Z_t (muon: + NS5(Z_t)) ;  o_t = M_t'q_t
//
// q, k [B,T,G,K], v [B,T,H,V], gamma, eta, theta, g [B,T,H]. The last c - 1 pairs are part of the state. Source:
// Behrouz et al. 2025, arXiv 2505.23735.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration omega_rule() {
  using prepare::Op;
  Declaration d;
  d.info.name = "omega-rule";
  d.info.recipe = "window(4) * equal(beta) / linear / descend(1, momentum, shrink)";
  d.info.title = "ATLAS: the Omega rule";
  d.info.paper = "Behrouz et al. 2025, arXiv 2505.23735";
  d.info.equation =
      "Z_t = theta_t Z_{t-1} - eta_t sum_{last c} gamma_i k_i (M_{t-1}'k_i - v_i)' ;  M_t = exp(g_t) M_{t-1} + Z_t";
  d.info.departure = "a step eta besides the importance of a pair";
  d.info.literal = false;
  d.info.scale = "none";
  d.info.traps = {
      "The window is part of the model: its pairs are learned again with every token.",
      "With muon the length of the update does not depend on eta: eta only weighs it against the momentum."};
  d.info.inputs = {query(Range::unit),
                   key(Range::unit),
                   value(),
                   {"gamma", "B T H", "importance of the pair", Range::sigmoid},
                   {"g", "B T H", "log of the factor on the memory", Range::log_gate},
                   {"rate", "B T H", "step", Range::rate},
                   {"theta", "B T H", "factor on the previous update", Range::sigmoid}};
  d.info.outputs = {output()};
  d.feeds = {{"beta", "gamma"}, {"momentum", "theta"}};
  d.prepare = {{Op::one_minus_exp, {"g"}, "lam"}};
  d.info.settings = {{"window", "pairs learned with every token, part of the model", ""},
                     {"depth", "matrices of the memory; 1 = linear", ""},
                     {"step", "a constant step instead of the input `rate`", "0.1"},
                     {"keys", "raw, unit or rms: norm of q and k", "unit"},
                     {"muon", "yes: the update is orthogonalised by five Newton-Schulz steps; no", ""}};
  d.info.variants = {{"window=3"}, {"window=2,muon=yes"}, {"window=2,depth=2"}};
  const std::vector<std::pair<std::string, std::string>> states = {
      {"eta", "rate"},   {"h0", "state.S"}, {"ht", "state.S"}, {"s0", "state.Z"},
      {"st", "state.Z"}, {"k0", "state.k"}, {"v0", "state.v"}, {"gamma0", "state.weight"}};
  d.info.golden = {{"omega_rule", states, {{"window", "@window"}}},
                   {"omega_rule_muon", states, {{"window", "@window"}, {"muon", "yes"}}}};
  return d;
}

}  // namespace ttr::zoo
