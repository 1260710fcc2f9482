// Gaussian attention: a sum of values weighted by a Gaussian kernel of query and key, without a denominator.
//
//   o_i = sum_j exp(-|q_i - k_j|^2 / (2 sqrt(K))) v_j                                             exact
//   o_i = kappa(q_i, W) (kappa(W, W) + ridge I)^-1 sum_j kappa(W, k_j) v_j                        by landmarks W
//
// Every query sees all pairs; there may be another number of pairs than of queries. Landmarks of Skyformer are rows of
// q and k, evenly spaced here (the paper draws them at random), those of SOFT, whose keys are its queries, are means
// of stretches of q (its released code also offers a strided convolution). The inverse is exact where the released
// codes iterate. Sources: Chen et al. 2021, arXiv 2111.00035; Lu et al. 2021, arXiv 2110.11945.
#include "zoo/zoo.h"

namespace ttr::zoo {
namespace {

Declaration gaussian(const char* ridge) {
  Declaration d;
  d.whole = true;
  d.info.recipe = "near(gauss) / constant / gd(1)";
  d.info.scale = "bandwidth 2 sqrt(K)";
  d.info.traps = {"No denominator: the output grows with the number of pairs near the query.",
                  "By landmarks the sum is an approximation, another function of the inputs; exact is the default."};
  d.info.outputs = {output()};
  d.info.variants = {{"landmarks=3", 1000, false}};
  d.info.settings = {
      {"landmarks", "approximate through so many landmarks (Nystrom); 0 = exact", "", true},
      {"ridge", "by landmarks: added to the diagonal of their kernel matrix; " + std::string(ridge), "", true}};
  return d;
}

void adapt(Declaration& layer, const std::map<std::string, std::string>& settings, double ridge) {
  const int landmarks = whole_setting(layer, settings, "landmarks", 0, 0);
  layer.kernel_number = number_setting(layer, settings, "ridge", ridge);
  if (!(layer.kernel_number > 0))
    throw Error(layer.info.name + " takes a ridge above 0, not " + settings.at("ridge"), "setting ridge");
  if (landmarks == 0) return;
  layer.family = &families::landmarks_family;
  layer.letters['M'] = landmarks;
}

}  // namespace

Declaration skyformer() {
  Declaration d = gaussian("0.1");
  d.info.name = "skyformer";
  d.info.title = "Skyformer: Gaussian attention";
  d.info.paper = "Chen, Zeng, Ji, Yang 2021, arXiv 2111.00035";
  d.info.equation = "o_i = sum_j exp(-|q_i - k_j|^2 / (2 sqrt(K))) v_j over all pairs";
  d.info.inputs = {{"q", "B T H K", "query", Range::normal},
                   {"k", "B P G K", "key; P pairs, a length of their own", Range::normal},
                   {"v", "B P G V", "value", Range::normal}};
  d.info.golden = {{"skyformer_exact", {}, {}}};
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape&) {
    adapt(layer, settings, 0.1);
  };
  return d;
}

Declaration soft() {
  Declaration d = gaussian("0.01");
  d.info.name = "soft";
  d.info.title = "SOFT: softmax-free attention";
  d.info.paper = "Lu et al. 2021, arXiv 2110.11945";
  d.info.equation = "o_i = sum_j exp(-|q_i - q_j|^2 / (2 sqrt(K))) v_j over all tokens";
  d.info.inputs = {{"q", "B T H K", "query, and the key of its token", Range::normal},
                   {"v", "B T H V", "value", Range::normal}};
  d.info.grouped = false;
  d.feeds = {{"k", "q"}};
  d.info.golden = {{"soft", {}, {}}};
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape&) {
    adapt(layer, settings, 0.01);
  };
  return d;
}

}  // namespace ttr::zoo
