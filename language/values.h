// Where the values of a graph lie while it runs: a matrix [piece, width] for every result of every node, one buffer for those
// whose lives do not overlap, and the numbers of parameters in the type of the arithmetic.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "language/graph.h"
#include "language/schedule.h"
#include "model/buffer.h"

namespace ttr::model {

template <class T>
class Values {
 public:
  /// The graph must outlive it.
  Values(const Graph&, std::span<const ScheduledStep>, Size piece);

  T* at(const Value& v, Size row) const {
    return places_[static_cast<std::size_t>(v.node)][static_cast<std::size_t>(v.result)] + row * stride(v) + v.offset;
  }
  Size stride(const Value& v) const {
    return graph_.nodes[static_cast<std::size_t>(v.node)].widths[static_cast<std::size_t>(v.result)];
  }
  T* result(std::size_t node, std::size_t which, Size row) const {
    return places_[node][which] + row * graph_.nodes[node].widths[which];
  }
  /// Numbers that are operand `i` of a node, or its bias; null if it has none.
  const T* fixed(std::size_t node, std::size_t i) const { return fixed_[node][i]; }
  const T* bias(std::size_t node) const { return bias_[node]; }
  std::size_t bytes() const;

 private:
  const T* kept(const Numbers&);
  void place(std::span<const ScheduledStep>, Size piece);

  const Graph& graph_;
  std::vector<Buffer<T>> buffers_;
  std::vector<std::vector<T*>> places_;
  std::map<const std::vector<double>*, std::vector<T>> parameters_;
  std::vector<std::vector<const T*>> fixed_;
  std::vector<const T*> bias_;
};

}  // namespace ttr::model
