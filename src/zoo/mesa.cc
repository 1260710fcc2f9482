// MesaNet: gated least squares with a ridge per key channel that never fades, solved for every token.
//
//   H_t = e^{g_t} H_{t-1} + beta_t k_t k_t' ;  G_t = e^{g_t} G_{t-1} + beta_t k_t v_t'
//   o_t = G_t' (H_t + diag(lamb))^{-1} q_t
//
// q, k [B,T,G,K] of length one, v [B,T,H,V], g, beta [B,T,H], lamb [H,K] >= 0.25. solver=direct is Cholesky; a number
// of steps is conjugate gradients, as published. Source: von Oswald et al. 2025.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration mesanet() {
  Declaration d;
  d.info.name = "mesanet";
  d.info.recipe = "gate(beta) / linear / exact(ridge(key))";
  d.info.title = "MesaNet";
  d.info.paper = "von Oswald et al. 2025, arXiv 2506.05233; von Oswald et al. 2023, arXiv 2309.05858";
  d.info.equation =
      "H_t = exp(g_t) H_{t-1} + beta_t k_t k_t' ;  G_t likewise with v_t ;  o_t = G_t' (H_t + diag(lamb))^-1 q_t";
  d.info.scale = "none";
  d.info.traps = {
      "The ridge is not gated: without it old directions are forgotten and the system becomes singular.",
      "The reference's conjugate gradients add 1e-5 to two denominators, which bounds its accuracy near 1e-3.",
      "Gradients of a truncated solve are those of the steps taken, not of the exact answer.",
      "variance and known come with the direct solve alone."};
  d.info.inputs = {query(Range::unit),
                   key(Range::unit),
                   value(),
                   {"g", "B T H", "log of the forgetting factor", Range::log_gate},
                   {"lamb", "H K", "ridge of each key channel", Range::positive},
                   {"beta", "B T H", "importance of the pair", Range::sigmoid}};
  d.info.outputs = {output(), variance(), known()};
  d.info.settings = {{"steps", "conjugate gradient steps at most; direct unless given", ""},
                     {"tolerance", "stop where |A x - q| is below so much of |q|; 1e-13 if not given", "", true},
                     {"decay", "forgetting factor in (0, 1]", "0.99"},
                     {"ridge", "a constant ridge", "0.001"}};
  d.info.variants = {{"steps=30"}};
  d.info.golden = {
      {"mesa_exact", {{"hkk0", "state.H"}, {"hkk", "state.H"}, {"hkv0", "state.F"}, {"hkv", "state.F"}}, {}}};
  d.feeds = {{"ridge", "lamb"}};
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape&) {
    if (!settings.contains("tolerance")) return;
    layer.kernel_number = number_setting(layer, settings, "tolerance", 0);
    if (!(layer.kernel_number > 0))
      throw Error("mesanet takes a tolerance above 0, not " + settings.at("tolerance"), "setting tolerance");
    if (!settings.contains("steps"))
      throw Error("mesanet solves directly, without a tolerance; give steps as well", "setting tolerance");
  };
  return d;
}

// Gated KalmaNet: a ridge relative to |H|, and a read that blends the gated sum with the solve.
//
//   H_t = e^{gk_t} H_{t-1} + k_t k_t' ;  G_t = e^{g_t} G_{t-1} + k_t v_t' ;  x = (H_t + 0.02 |H_t|_F I)^{-1} q_t
//   o_t = c G_t' (q_t + alpha_t (x - q_t)) ,  c = 1/sqrt(K)
//
// q, k of length one, g, gk, alpha [B,T,H]. Source: arXiv 2511.21016.
Declaration gated_kalmanet() {
  Declaration d;
  d.info.name = "gated-kalmanet";
  d.info.recipe = "gate / linear / exact(ridge=0.02, frobenius) | blend";
  d.info.title = "Gated KalmaNet";
  d.info.paper = "Peng, Chattopadhyay, Zancato, Nunez, Xia, Soatto 2025, arXiv 2511.21016";
  d.info.equation =
      "H_t = exp(gk_t) H_{t-1} + k_t k_t' ;  G_t = exp(g_t) G_{t-1} + k_t v_t' ;  x = (H_t + 0.02 |H_t|_F I)^-1 q_t "
      ";  o_t "
      "= c G_t' (q_t + alpha_t (x - q_t))";
  d.info.scale = "c = 1/sqrt(K) on the output, the same as on q";
  d.info.departure = "H and G have gates of their own";
  d.info.literal = false;
  d.info.traps = {"Published with 30 Chebyshev steps (setting steps); the direct solve is what they approximate.",
                  "The gradient has a path through |H|_F."};
  d.info.inputs = {query(Range::unit),
                   key(Range::unit),
                   value(),
                   {"g", "B T H", "log of the factor on G", Range::log_gate},
                   {"gk", "B T H", "log of the factor on H", Range::log_gate},
                   {"alpha", "B T H", "share of the solve in the read", Range::sigmoid}};
  d.info.outputs = {output()};
  d.info.settings = {{"steps", "Chebyshev steps; direct unless given", ""}};
  d.info.variants = {{"steps=30"}};
  d.info.golden = {{"gka", {{"hkk0", "state.H~"}, {"hkk", "state.H"}, {"hkv0", "state.F"}, {"hkv", "state.F"}}, {}}};
  d.scale_by_root_key = true;
  d.feeds = {{"blend", "alpha"}, {"gh", "gk"}};
  return d;
}

}  // namespace ttr::zoo
