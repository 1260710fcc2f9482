// Local linear attention: pairs weighted by nearness to the query, the best affine function, read at the query.
//
//   p = softmax_j(c q.k_j), kb = sum p k, vb = sum p v, c_j = k_j - kb, Scov = sum p c c' + ridge I,
//   r = Scov^-1 (kb - q) ;   o = vb - sum_j p_j (c_j.r) v_j ,  c = 1/sqrt(K)
//
// The ridge acts on the slope only and is relative to the mass of the weights (numerically the right choice: it does
// not change when the logits are shifted); ridge_kind=absolute is the plain sum. Source: Zuo et al. 2025 (arXiv
// 2510.01450).
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration local_linear_attention() {
  Declaration d;
  d.info.name = "local-linear-attention";
  d.info.recipe = "near(exp) / local(1) / exact(ridge, relative)";
  d.info.title = "Local linear attention";
  d.info.paper = "Zuo et al. 2025, arXiv 2510.01450; Wang, Shi, Fox 2025, arXiv 2501.12352, Eq. 48-49";
  d.info.equation =
      "min_{b,W} sum_j w_j |v_j - b - W'(k_j - q)|^2 + ridge (sum w) |W|^2 ,  w_j = exp(c q.k_j) ;  o_t = b";
  d.info.scale = "c = 1/sqrt(K) in the kernel";
  d.info.traps = {
      "ridge to infinity gives softmax attention; a wide kernel and ridge 0 give affine least squares.",
      "The weights on the values sum to one but may be negative: |o| can exceed every |v|.",
      "Before K+1 independent pairs the fit interpolates: keep the ridge positive.",
      "Where logits peak beside a tiny or absolute ridge rounding is all of the answer: such a query gets NaN "
      "and the call returns out_of_domain (docs/accuracy.md)."};
  d.info.inputs = {{"q", "B T H K", "query", Range::normal},
                   {"k", "B T G K", "key", Range::normal},
                   {"v", "B T G V", "value", Range::normal},
                   {"ridge", "H", "ridge on the slope", Range::positive}};
  d.info.outputs = {output()};
  d.info.variants = {{"ridge_kind=absolute,ridge=token"}, {"order=2,kernel=gauss", 4}, {"causal=no"}};
  d.info.settings = {{"ridge", "a constant ridge; token = a tensor [B,T,H]", "0.1"},
                     {"ridge_kind", "relative or absolute", ""},
                     {"order", "degree of the local polynomial", ""},
                     {"kernel", "exp or gauss", ""},
                     {"keys", "raw, unit or rms: norm of q and k", "rms"},
                     {"window", "only the newest n pairs", ""},
                     causal_setting()};
  d.info.golden = {{"local_linear_attn", {{"lamb", "ridge"}}, {{"ridge_kind", "absolute"}}},
                   {"local_linear_abs", {{"lamb", "ridge"}}, {{"ridge_kind", "absolute"}, {"ridge", "token"}}},
                   {"local_linear_rel", {{"lamb", "ridge"}}, {{"ridge", "token"}}},
                   {"local_quadratic", {{"lamb", "ridge"}}, {{"order", "2"}, {"kernel", "gauss"}}}};
  d.info.conditioning = 10;
  d.info.tolerance_reason = "the solve magnifies rounding by the condition of the keys' local covariance";
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape&) {
    apply_causal_setting(layer, settings);
  };
  return d;
}

}  // namespace ttr::zoo
