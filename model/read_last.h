// Outputs of all tokens from the state of the last one (Config::read_out = last): what the compression task of MAD asks of a
// model (Poli et al. 2024, arXiv 2403.17844).
//
//   x_t = r_last + p_t ;  twice: x = gelu(RMSNorm(x) W + b) ;  r = x
//
// p_t [width] is the sine of t e_i, then its cosine, e_i = 10000^(-i / (width/2 - 1)); an odd last column is 0. `last` is the last
// token of the call.
#pragma once

#include <array>

#include "model/block.h"

namespace ttr::model {

struct ReadLast {
  struct Layer {
    int norm = -1, weight = -1, bias = -1;
  };
  std::array<Layer, 2> layers;
};
ReadLast make_read_last(const Config&, Registry&);

template <class T>
class ReadLastBlock {
 public:
  ReadLastBlock(const ReadLast&, const Config&, Shared<T>&);
  void forward(T* r);
  void backward(T* dr);

 private:
  struct Layer {
    Norm<T> norm;
    Buffer<T> input, normed, before;
  };
  const ReadLast parameters_;
  Shared<T>& shared_;
  Size width_;
  Buffer<T> places_;  // [time, width]
  std::vector<Layer> layers_;
};

}  // namespace ttr::model
