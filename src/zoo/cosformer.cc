// cosFormer: linear attention whose weights fade with the cosine of the distance.
//
//   w_ts = relu(q_t).relu(k_s) cos(pi (t - s) / (2 L)) ;   o_t = sum_s w_ts v_s / (sum_s w_ts + eps)
//
// By cos(a - b) = cos a cos b + sin a sin b this is a feature map of twice the width that knows the position, which
// is part of the state. Source: Qin et al. 2022.
#include "families/elementwise/carry/carry.h"
#include "zoo/feature_attention.h"

namespace ttr::zoo {

Declaration cosformer() {
  Declaration d = feature_attention(prepare::Op::cosformer, {}, "B T G F");
  d.info.name = "cosformer";
  d.info.title = "cosFormer";
  d.info.paper = "Qin et al. 2022, arXiv 2202.08791";
  d.info.equation = "w_ts = relu(q_t).relu(k_s) cos(pi (t - s)/(2 L)) ;  o_t = sum_s w_ts v_s / (sum_s w_ts + eps)";
  d.info.traps = {"L is fixed: beyond L tokens the cosine turns negative and the weights are no weights any more.",
                  "ReLU leaves queries that see nothing; their output is 0."};
  d.info.inputs[0].range = d.info.inputs[1].range = Range::positive;
  d.info.settings.push_back({"length", "L, the longest sequence", "", true});
  for (Stage& stage : d.prepare) stage.from.push_back("n");
  d.prepare.push_back({.to = "n",
                       .shape = "B T 1",
                       .family = &families::carry_family,
                       .option = static_cast<int>(families::Carry::position),
                       .state = {"position", "B 1", "tokens seen", Range::positive, false}});
  d.adapt = [](Declaration& layer, const std::map<std::string, std::string>& settings, const Shape& shape) {
    layer.prepare[0].number = layer.prepare[1].number = whole_setting(layer, settings, "length", 4096);
    set_features(layer, settings, shape);
  };
  return d;
}

}  // namespace ttr::zoo
