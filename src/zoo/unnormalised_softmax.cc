// Unnormalised softmax attention: one gradient step of a kernel regression, sum of exp(c q.k) v.
//
//   o_t = sum_{i<=t} exp(c q_t.k_i) v_i ,  c = 1/sqrt(K)
//
// Source: Wang, Shi, Fox 2025, Eq. 47.
#include "zoo/zoo.h"

namespace ttr::zoo {

Declaration unnormalised_softmax() {
  Declaration d;
  d.info.name = "unnormalised-softmax";
  d.info.recipe = "near(exp) / constant / gd(1)";
  d.info.title = "Unnormalised softmax attention";
  d.info.paper = "Wang, Shi, Fox 2025, arXiv 2501.12352, Eq. 47";
  d.info.equation = "o_t = sum_{i<=t} exp(c q_t.k_i) v_i";
  d.info.scale = "c = 1/sqrt(K) in the kernel";
  d.info.traps = {"exp is formed as it is: logits above 88 (float) or 709 (double) overflow.",
                  "The sum grows with T; nothing bounds the output."};
  d.info.inputs = {{"q", "B T H K", "query", Range::normal},
                   {"k", "B T G K", "key", Range::normal},
                   {"v", "B T G V", "value", Range::normal}};
  d.info.outputs = {output()};
  d.info.variants = {{"kernel=gauss"}, {"window=5"}, {"causal=no"}};
  d.info.settings = {{"keys", "raw, unit or rms: norm of q and k", "rms"},
                     {"window", "only the newest n pairs", ""},
                     {"kernel", "exp or gauss", ""},
                     causal_setting()};
  d.info.golden = {{"unnormalised_softmax", {}, {}}};
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape&) {
    apply_causal_setting(layer, settings);
  };
  return d;
}

}  // namespace ttr::zoo
