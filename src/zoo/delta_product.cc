// DeltaProduct: n delta steps per token, each on its own pair; with and without a decay before the first of them.
//
//   S <- e^{g_t} S_{t-1} ;   for j = 1..n:  S <- S + beta_tj k_tj (v_tj - S'k_tj)' ;   S_t = S ;   o_t = S_t' (c q_t)
//
// k, v, beta have T n rows, row t n + j; q and g have T. beta in (0,2): two reflections (beta = 2) make a rotation.
// c = 1/sqrt(K). Source: Siems et al. 2025.
#include "zoo/zoo.h"

namespace ttr::zoo {
namespace {

Declaration product(bool gated) {
  Declaration d;
  d.info.paper = "Siems, Carstensen, Zela, Hutter, Pontil, Grazzi 2025, arXiv 2502.10297";
  d.info.scale = "c = 1/sqrt(K) on q";
  d.info.inputs = {query(Range::unit),
                   {"k", "B P G K", "keys, n per token (P = T n)", Range::unit},
                   {"v", "B P H V", "values, n per token", Range::normal},
                   {"beta", "B P H", "step sizes, n per token, in (0, 2)", Range::sigmoid}};
  if (gated)
    d.info.inputs.push_back({"g", "B T H", "log of the decay before the token's first step", Range::log_gate});
  d.info.outputs = {output()};
  d.info.variants = {{"n=3"}};
  d.info.settings = {{"n", "pairs per token", ""}, {"keys", "raw, unit or rms: norm of q and k", ""}};
  d.scale_by_root_key = true;
  return d;
}

}  // namespace

Declaration delta_product() {
  Declaration d = product(false);
  d.info.name = "deltaproduct";
  d.info.recipe = "equal / linear / sgd(beta, pairs=2)";
  d.info.title = "DeltaProduct";
  d.info.equation = "for j = 1..n: S <- S + beta_tj k_tj (v_tj - S'k_tj)' ;  o_t = S_t' (c q_t)";
  d.info.traps = {"n = 1 is DeltaNet.", "Slides that multiply the factors from the other side are wrong."};
  d.info.golden = {{"deltaproduct", {{"h0", "state.S"}, {"ht", "state.S"}}, {{"n", "@n"}}}};
  return d;
}

Declaration gated_delta_product() {
  Declaration d = product(true);
  d.info.name = "gated-deltaproduct";
  d.info.recipe = "equal / linear / sgd(beta, pairs=2, decay)";
  d.info.title = "Gated DeltaProduct";
  d.info.equation =
      "S <- exp(g_t) S_{t-1} ;  for j = 1..n: S <- S + beta_tj k_tj (v_tj - S'k_tj)' ;  o_t = S_t' (c q_t)";
  d.info.traps = {"n = 1 is Gated DeltaNet.",
                  "A published naive reference applies no scale, the kernel 1/sqrt(K); here the kernel is followed."};
  d.info.golden = {{"gated_delta_product", {{"h0", "state.S"}, {"ht", "state.S"}}, {{"n", "@num_householder"}}}};
  return d;
}

}  // namespace ttr::zoo
