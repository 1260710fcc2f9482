// Hedgehog: linear attention through a feature map.
//
//   x~ = W x + b ;  phi = softmax([x~ ; -x~]), map=exp: [exp(x~) ; exp(-x~)], map=softmax2: softmax([2 x~ ; -2 x~]).
//   W [H,M,K], b [H,M] learned per head, shared by q and k. Source: Zhang et al. 2024.
#include "zoo/feature_attention.h"

namespace ttr::zoo {

Declaration hedgehog() {
  Declaration d = feature_attention(
      prepare::Op::hedgehog_softmax,
      {{"W", "H M K", "learned matrix", Range::normal}, {"b", "H M", "learned bias", Range::normal}}, "B T H F");
  d.info.name = "hedgehog";
  d.info.title = "Hedgehog";
  d.info.paper = "Zhang, Bhatia, Kumbong, Re 2024, arXiv 2402.04347";
  d.info.equation = "x~ = W x + b ;  phi = softmax([x~ ; -x~]) ;  " + d.info.equation;
  d.info.settings.push_back({"map", "softmax, exp or softmax2", "", true});
  d.info.variants = {{"map=exp"}, {"map=softmax2"}};
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape& shape) {
    using prepare::Op;
    const std::string map = word_setting(layer, settings, "map", {"softmax", "exp", "softmax2"});
    const Op op = map == "exp" ? Op::hedgehog_exp : map == "softmax2" ? Op::hedgehog_softmax2 : Op::hedgehog_softmax;
    layer.prepare[0].op = layer.prepare[1].op = op;
    set_features(layer, settings, shape);
  };
  d.info.traps = {
      "q and k share the map here; for maps of their own use feature-hedgehog-softmax before linear-attention."};
  return d;
}

}  // namespace ttr::zoo
