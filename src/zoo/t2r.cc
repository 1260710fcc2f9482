// T2R: linear attention through a feature map.
//
//   phi = relu(W x + b), W [H,M,K] and b [H,M] learned per head, shared by q and k. Source: Kasai et al. 2021.
#include "zoo/feature_attention.h"

namespace ttr::zoo {

Declaration t2r() {
  Declaration d = feature_attention(prepare::Op::t2r,
                                    {{"W", "H M K", "learned matrix, rows are features", Range::normal},
                                     {"b", "H M", "learned bias", Range::positive}},
                                    "B T H F");
  d.info.name = "t2r";
  d.info.title = "T2R";
  d.info.paper = "Kasai et al. 2021, arXiv 2103.13076";
  d.info.equation = "phi = relu(W x + b) ;  " + d.info.equation;
  d.info.traps = {"q and k share the map here; for maps of their own use feature-t2r before linear-attention."};
  return d;
}

}  // namespace ttr::zoo
