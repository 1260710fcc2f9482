// read_last.h
#include "model/read_last.h"

#include <cmath>

namespace ttr::model {

ReadLast make_read_last(const Config& config, Registry& registry) {
  ReadLast made;
  int index = 0;
  for (ReadLast::Layer& layer : made.layers) {
    const std::string prefix = "read_out." + std::to_string(index++) + ".";
    layer.norm = registry.add(prefix + "norm", {config.width}, {Start::Kind::constant, 1, 0});
    layer.weight = registry.add(prefix + "weight", {config.width, config.width},
                                {Start::Kind::normal, 1 / std::sqrt(static_cast<double>(config.width)), 0}, true);
    layer.bias = registry.add(prefix + "bias", {config.width}, {Start::Kind::constant, 0, 0});
  }
  return made;
}

template <class T>
ReadLastBlock<T>::ReadLastBlock(const ReadLast& parameters, const Config& config, Shared<T>& shared)
    : parameters_(parameters), shared_(shared), width_(config.width), places_(shared.time * config.width) {
  const Size rows = shared.most_rows(), half = width_ / 2;
  for (Size t = 0; t < shared.time; ++t)
    for (Size i = 0; i < half; ++i) {
      const double share = static_cast<double>(i) / static_cast<double>(std::max<Size>(1, half - 1));
      const double angle = static_cast<double>(t) * std::pow(10000.0, -share);
      places_.data()[t * width_ + i] = static_cast<T>(std::sin(angle));
      places_.data()[t * width_ + half + i] = static_cast<T>(std::cos(angle));
    }
  for (const ReadLast::Layer& layer : parameters_.layers)
    layers_.push_back({Norm<T>(shared, config.width, layer.norm, config.norm_eps), Buffer<T>(rows * width_),
                       Buffer<T>(rows * width_), Buffer<T>(rows * width_)});
  shared.reserve(Shared<T>::answer_gradient, rows * width_),
      shared.reserve(Shared<T>::normed_gradient, rows * width_);
  shared.reserve_sums(map_scratch(rows, width_));
  shared.gemm.reserve(width_, width_);
}

template <class T>
void ReadLastBlock<T>::forward(T* r) {
  const Size rows = shared_.rows(), time = shared_.now;
  for (Size b = 0; b < shared_.batch; ++b) {
    const T* const last = r + ((b + 1) * time - 1) * width_;
    for (Size t = 0; t < time; ++t)
      for (Size i = 0; i < width_; ++i) r[(b * time + t) * width_ + i] = last[i] + places_.data()[t * width_ + i];
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    const ReadLast::Layer& own = parameters_.layers[i];
    copy_rows(shared_.threads, rows, width_, r, width_, layer.input.data(), width_);
    layer.norm.forward(layer.input.data(), layer.normed.data());
    shared_.gemm.nn(rows, width_, width_, layer.normed.data(), width_, shared_.value(own.weight), width_, 0,
                    layer.before.data(), width_);
    const MapCall<T> add{Map::none, 1, shared_.value(own.bias), nullptr, 1};
    map_forward(shared_.threads, shared_.gemm.simd(), add, rows, width_, layer.before.data(), width_,
                layer.before.data(), width_);
    hidden_forward(shared_.threads, shared_.gemm.simd(), false, rows, width_, layer.before.data(), r);
  }
}

template <class T>
void ReadLastBlock<T>::backward(T* dr) {
  const Size rows = shared_.rows(), time = shared_.now;
  T *const d_before = shared_.scratch(Shared<T>::answer_gradient), *const d_normed =
                                                                       shared_.scratch(Shared<T>::normed_gradient);
  for (std::size_t i = layers_.size(); i-- > 0;) {
    Layer& layer = layers_[i];
    const ReadLast::Layer& own = parameters_.layers[i];
    hidden_backward(shared_.threads, shared_.gemm.simd(), false, rows, width_, layer.before.data(), dr, d_before);
    map_backward<T>(shared_.threads, shared_.gemm.simd(), {}, rows, width_, d_before, width_, d_before, width_,
                    d_before, width_, shared_.gradient(own.bias), nullptr, shared_.sums.data());
    shared_.gemm.tn(width_, width_, rows, layer.normed.data(), width_, d_before, width_, 0,
                    shared_.gradient(own.weight), width_);
    shared_.gemm.nt(rows, width_, width_, d_before, width_, shared_.value(own.weight), width_, 0, d_normed, width_);
    std::fill_n(dr, rows * width_, T(0));
    layer.norm.backward(layer.input.data(), d_normed, dr);
  }
  for (Size b = 0; b < shared_.batch; ++b) {
    T* const last = dr + ((b + 1) * time - 1) * width_;
    for (Size t = 0; t + 1 < time; ++t)
      for (Size i = 0; i < width_; ++i) {
        T& one = dr[(b * time + t) * width_ + i];
        last[i] += one;
        one = 0;
      }
  }
}

template class ReadLastBlock<float>;
template class ReadLastBlock<double>;

}  // namespace ttr::model
