// Performer (FAVOR+): linear attention through a feature map.
//
//   phi = M^(-1/2) (exp(W u - |u|^2/2) + 1e-4), u = x/K^(1/4); map=relu: relu(W u) + 1e-3. W [M,K] random, orthogonal
//   rows. Source: Choromanski et al. 2020.
#include "zoo/feature_attention.h"

namespace ttr::zoo {

Declaration performer() {
  Declaration d = feature_attention(prepare::Op::favor,
                                    {{"W", "M K", "random matrix, shared by heads", Range::normal}}, "B T G F");
  d.info.name = "performer";
  d.info.title = "Performer (FAVOR+)";
  d.info.paper = "Choromanski et al. 2020, arXiv 2009.14794";
  d.info.equation = "u = x/K^(1/4) ;  phi = M^(-1/2) (exp(W u - |u|^2/2) + 1e-4) ;  " + d.info.equation;
  d.info.settings.push_back({"map", "exp or relu", "", true});
  d.info.variants = {{"map=relu"}, {"features=6"}};
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape& shape) {
    if (word_setting(layer, settings, "map", {"exp", "relu"}) == "relu")
      layer.prepare[0].op = layer.prepare[1].op = prepare::Op::favor_relu;
    set_features(layer, settings, shape);
  };
  d.info.traps = {"There is no running maximum: exp overflows for keys far longer than sqrt(K).",
                  "W is drawn by the caller and stays fixed; its gradient is there for those who learn it."};
  d.info.golden = {{"linear_attn_feature_favor",
                    {{"h0", "state.S"}, {"ht", "state.S"}, {"z0", "state.z="}, {"zt", "state.z="}},
                    {{"features", "#W.0"}}}};
  return d;
}

}  // namespace ttr::zoo
