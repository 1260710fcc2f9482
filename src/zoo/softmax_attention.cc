// Softmax attention = Nadaraya-Watson: pairs weighted by their nearness to the query, the best constant.
//
//   p_i = softmax_i(c q_t.k_i) , i <= t ;   o_t = sum_i p_i v_i ,  c = 1/sqrt(K)
//
// q [B,T,H,K], k, v with G key heads (query head h reads key head h/(H/G)). The state is the list of pairs. With q
// and k of equal length the weights are a function of |k - q|; otherwise the regression reading is formal. Source:
// Vaswani et al. 2017; Nadaraya 1964; Watson 1964.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration softmax_attention() {
  Declaration d;
  d.info.name = "softmax-attention";
  d.info.recipe = "near(exp) / constant / exact";
  d.info.title = "Softmax attention";
  d.info.paper = "Vaswani et al. 2017, arXiv 1706.03762; Nadaraya 1964; Watson 1964";
  d.info.equation = "p_i = softmax_i(c q_t.k_i), i <= t ;  o_t = sum_i p_i v_i";
  d.info.scale = "c = 1/sqrt(K) in the kernel";
  d.info.traps = {"No state of fixed size: the pairs themselves are the state and it grows with every token.",
                  "Unit-length and RMS key norms are different layers: logits within +-1/sqrt(K) or +-sqrt(K)."};
  d.info.inputs = {{"q", "B T H K", "query", Range::normal},
                   {"k", "B T G K", "key", Range::normal},
                   {"v", "B T G V", "value", Range::normal},
                   {"q_w", "K", "weight of the norm of q (with qk_norm=rms)", Range::normal},
                   {"k_w", "K", "weight of the norm of k (with qk_norm=rms)", Range::normal},
                   {"sink", "H", "log weight of a pair with value zero (with sink=input)", Range::normal},
                   {"bandwidth", "H", "bandwidth of the Gaussian kernel (with bandwidth=input)", Range::positive}};
  d.info.outputs = {output()};
  d.info.variants = {{"sink=input"},
                     {"window=5"},
                     {"keys=unit"},
                     {"qk_norm=rms"},
                     {"kernel=gauss,bandwidth=input"},
                     {"causal=no"},
                     {"causal=no,sink=input,qk_norm=rms"}};
  d.info.settings = {
      {"keys", "raw, unit or rms: norm of q and k", "rms"},
      {"qk_norm", "rms: x / sqrt(mean x^2 + 1e-6) with weights q_w and k_w, shared by heads", "", true},
      {"window", "only the newest n pairs", ""},
      {"kernel", "exp or gauss", ""},
      {"bandwidth", "of the Gaussian kernel: a number, or input = a tensor [H]", ""},
      {"sink", "input: a learned log weight in the denominator", ""},
      causal_setting()};
  d.info.golden = {{"attn", {}, {{"sink", "?sink"}, {"window", "@window"}}},
                   {"softmax_noncausal", {}, {{"causal", "no"}}},
                   {"softmax_qknorm_unit", {}, {{"keys", "unit"}}},
                   {"softmax_qknorm_rms", {}, {{"qk_norm", "rms"}}},
                   {"local_constant_gauss", {}, {{"kernel", "gauss"}, {"bandwidth", "input"}}}};
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape&) {
    using prepare::Op;
    apply_causal_setting(layer, settings);
    if (word_setting(layer, settings, "qk_norm", {"none", "rms"}) == "rms")
      layer.prepare = {{Op::rms_norm_weighted, {"q", "q_w"}, "q", 1e-6},
                       {Op::rms_norm_weighted, {"k", "k_w"}, "k", 1e-6}};
  };
  return d;
}

}  // namespace ttr::zoo
