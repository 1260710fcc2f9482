// DiJiang: linear attention through a feature map.
//
//   phi = softmax(x P), P [K,M] fixed (a DCT matrix times normal quantiles). Source: Chen et al. 2024.
#include "zoo/feature_attention.h"

namespace ttr::zoo {

Declaration dijiang() {
  Declaration d = feature_attention(prepare::Op::dijiang,
                                    {{"P", "K M", "fixed matrix, shared by heads", Range::normal}}, "B T G F");
  d.info.name = "dijiang";
  d.info.title = "DiJiang";
  d.info.paper = "Chen et al. 2024, arXiv 2403.19928";
  d.info.equation = "phi = softmax(x P) ;  " + d.info.equation;
  d.info.traps = {"Released code takes the softmax where the paper writes exp."};
  return d;
}

}  // namespace ttr::zoo
