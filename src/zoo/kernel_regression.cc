// Kernel ridge regression: equal weights, a reproducing-kernel memory, the exact minimiser.
//
//   o_t = V' (kappa(K,K) + ridge I)^-1 kappa(K, q_t) ,  kappa(x,y) = exp(x.y/sqrt(K)) or exp(-|x-y|^2/(2 sqrt(K)))
//
// q [B,T,H,K], k, v with G key heads; the state is the list of pairs. Source: test-time regression Eq. 43 with a
// ridge.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration kernel_regression() {
  Declaration d;
  d.info.name = "kernel-regression";
  d.info.recipe = "equal / kernel(exp) / exact(ridge)";
  d.info.title = "Kernel ridge regression";
  d.info.paper = "Wang, Shi, Fox 2025, arXiv 2501.12352, Eq. 43; Saunders, Gammerman, Vovk 1998";
  d.info.equation = "o_t = V_t' (kappa(K_t,K_t) + ridge I)^-1 kappa(K_t, q_t)";
  d.info.scale = "c = 1/sqrt(K) in the kernel";
  d.info.traps = {"No state of fixed size, and each token costs the square of the pairs kept.",
                  "The kernel matrix of near keys is almost singular: keep the ridge positive."};
  d.info.inputs = {{"q", "B T H K", "query", Range::normal},
                   {"k", "B T G K", "key", Range::normal},
                   {"v", "B T G V", "value", Range::normal},
                   {"ridge", "H", "ridge", Range::positive}};
  d.info.outputs = {output()};
  d.info.variants = {{"kernel=gauss"}, {"ridge=0.1,keys=unit"}, {"causal=no"}, {"window=5"}};
  d.info.settings = {{"ridge", "a constant ridge", "0.01"},
                     {"kernel", "exp, gauss, linear or polynomial", ""},
                     {"scale", "factor on x.y in the exponential kernel", ""},
                     {"keys", "raw, unit or rms: norm of q and k", "rms"},
                     {"window", "only the newest n pairs", ""},
                     causal_setting()};
  d.info.golden = {{"kernel_regression_exp", {{"lam", "ridge"}}, {}},
                   {"kernel_regression_gauss", {{"lam", "ridge"}}, {{"kernel", "gauss"}}}};
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape&) {
    apply_causal_setting(layer, settings);
  };
  return d;
}

}  // namespace ttr::zoo
