// Preconditioned DeltaNet and KDA: the write key is scaled by a diagonal that shrinks where keys were large.
//
//   A_t = e^{g_atk} A_{t-1} + beta_atk k_t*k_t ;  r = log(A_t + 1e-6) - c ;  D_t = 1.5^{-r/(1+|r|)}
//   S~ = e^{g_t} S_{t-1} (KDA: diag(e^{g_t}) S_{t-1}) ;  S_t = S~ + (D_t*k_t) (beta_t (v_t - S~' k_t))'
//   o_t = S_t' (s q_t)
//
// q, k [B,T,G,K] (the DeltaNet normalises them itself), v [B,T,H,V], g [B,T,H] or [B,T,H,K], beta, g_atk, beta_atk
// [B,T,H], log_atk_scale c [H], s = 1/sqrt(K). Source: the `atk` operators of flash-linear-attention.
#include "zoo/zoo.h"

namespace ttr::zoo {
namespace {

Declaration preconditioned(bool per_key) {
  Declaration d;
  d.info.scale = "s = 1/sqrt(K) on q";
  d.info.traps = {"The residual is read with k, not with the scaled key.",
                  "A has its own gate and its own share of the newest key."};
  d.info.inputs = {query(per_key ? Range::unit : Range::normal),
                   key(per_key ? Range::unit : Range::normal),
                   value(),
                   {"g", per_key ? "B T H K" : "B T H", "log of the decay of the memory", Range::log_gate},
                   {"g_atk", "B T H", "log of the factor on the sum of squared keys", Range::log_gate},
                   {"beta_atk", "B T H", "share of the squared key in that sum", Range::sigmoid},
                   {"beta", "B T H", "step size", Range::sigmoid},
                   {"log_atk_scale", "H", "log of the sum at which the key is unchanged", Range::normal}};
  d.info.outputs = {output()};
  d.info.settings = {{"beta", "a constant step size", "0.5"}, {"decay", "a constant weight decay", "0.01"}};
  d.info.golden = {{per_key ? "precond_kda" : "precond_gated_delta_rule",
                    {{"h0", "state.S"}, {"ht", "state.S"}, {"A0", "state.A"}, {"At", "state.A"}},
                    {}}};
  d.scale_by_root_key = true;
  if (per_key) d.feeds = {{"gk", "g"}};
  else
    d.prepare = {{prepare::Op::unit_norm_clamp, {"q"}, "q", 1e-12},
                 {prepare::Op::unit_norm_clamp, {"k"}, "k", 1e-12}};
  return d;
}

}  // namespace

Declaration preconditioned_deltanet() {
  Declaration d = preconditioned(false);
  d.info.name = "preconditioned-deltanet";
  d.info.recipe = "equal / linear / sgd(beta, decay, precondition)";
  d.info.title = "Preconditioned gated DeltaNet";
  d.info.paper = "Tumma, Loo, Rus 2026, arXiv 2604.21100";
  d.info.equation =
      "A_t = exp(g_atk) A_{t-1} + beta_atk k*k ;  D = 1.5^(-r/(1+|r|)), r = log(A_t + 1e-6) - c ;  S~ = exp(g_t) "
      "S_{t-1} ; "
      " S_t = S~ + (D*k) (beta_t (v_t - S~' k))' ;  o_t = S_t' (s q_t)";
  d.info.traps.push_back("q and k are normalised inside: x / max(|x|, 1e-12).");
  return d;
}

Declaration preconditioned_kda() {
  Declaration d = preconditioned(true);
  d.info.name = "preconditioned-kda";
  d.info.recipe = "equal / linear / sgd(beta, decay(key), precondition)";
  d.info.title = "Preconditioned Kimi delta attention";
  d.info.paper = "Tumma, Loo, Rus 2026, arXiv 2604.21100";
  d.info.equation =
      "A_t = exp(g_atk) A_{t-1} + beta_atk k*k ;  D = 1.5^(-r/(1+|r|)), r = log(A_t + 1e-6) - c ;  S~ = "
      "diag(exp(g_t)) "
      "S_{t-1} ;  S_t = S~ + (D*k) (beta_t (v_t - S~' k))' ;  o_t = S_t' (s q_t)";
  d.info.traps.push_back("Keys of length one are expected; nothing is normalised inside.");
  return d;
}

}  // namespace ttr::zoo
