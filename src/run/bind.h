// Binding: for one call, every value of the pipeline gets an address and strides, and for backward a gradient.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "families/common/linear.h"
#include "families/common/scratch.h"
#include "plan/pipeline.h"

namespace ttr {

inline constexpr int max_values = 64;

using families::Arena;

/// Without initialisers: bind() clears those that the plan has, a call of one token should not clear all 64.
template <class T>
struct Bound {
  const T* data;
  T* writable;           // results of steps
  const T* gradient_in;  // what backward reads: the caller's d_output or the scratch below
  T* gradient;           // what backward adds to; null = not wanted
  bool fresh;            // backward: the gradient holds nothing yet, and the one step that adds to it clears it
  Type half;       // bf16 or f16: data and writable are halves, and only kernels that say so see it (half_rows.h)
  bool of_caller;  // an input, or an output the caller has room for: as long as the call
  std::array<std::ptrdiff_t, max_rank> extent, stride, gradient_stride;

  /// Number by number: for a whole that is zero compilers have an instruction that takes as long to start as a small state
  /// to pass.
  void clear() {
    data = nullptr, writable = nullptr, gradient_in = nullptr, gradient = nullptr;
    fresh = false, half = Type::f32, of_caller = false;
    for (std::size_t d = 0; d < max_rank; ++d) extent[d] = stride[d] = gradient_stride[d] = 0;
  }
};

/// A place `by` numbers further on in a value that is of a half type, or (Type::f32) of the type of its pointer.
template <class N>
N* further(Type half, N* data, std::ptrdiff_t by) {
  if (half == Type::f32 || !data) return data ? data + by : nullptr;
  using Half = std::conditional_t<std::is_const_v<N>, const std::uint16_t, std::uint16_t>;
  return reinterpret_cast<N*>(reinterpret_cast<Half*>(data) + by);
}

/// Strides of one value by role. An axis the value does not have has stride zero.
struct AxisStrides {
  std::ptrdiff_t batch = 0, time = 0, head = 0, inner = 0, outer = 0;
};

inline AxisStrides axis_strides(const AxisPlaces& places, const std::array<std::ptrdiff_t, max_rank>& stride) {
  const auto at = [&](signed char place) { return place < 0 ? 0 : stride[static_cast<std::size_t>(place)]; };
  return {at(places.batch), at(places.time), at(places.head), at(places.inner), at(places.outer)};
}

template <class T>
struct Binding {
  std::array<Bound<T>, max_values> values;
  std::ptrdiff_t batch = 0, time = 0, pairs = 0;  // extents of B, T, P: batch is 1 for packed sequences
  std::span<const families::Sequence> sequences;
  std::span<const families::Sequence> pair_sequences;  // the same in the time of pairs
  const std::ptrdiff_t* later = nullptr;  // tokens of each sequence behind this piece of a call; null: none
  /// Tokens of each sequence before this piece that the state does not count as seen yet; null: none.
  const std::ptrdiff_t* earlier = nullptr;
  /// What the forward of this call leaves for its backward (run/saved.h); null: nothing. The sequences of the whole call,
  /// and the tokens of each in front of this piece (null: none).
  std::byte* saved = nullptr;
  std::span<const families::Sequence> whole;
  const std::ptrdiff_t* before = nullptr;
  Form form = Form::best;  // of the call
  bool backward = false;
};

template <class T>
const T* constants(const Plan::Body& body);
template <>
inline const float* constants<float>(const Plan::Body& body) {
  return body.constants_f32.data();
}
template <>
inline const double* constants<double>(const Plan::Body& body) {
  return body.constants_f64.data();
}

inline const Value& value(const Plan::Body& body, int index) {
  return body.pipeline.values[static_cast<std::size_t>(index)];
}

/// Extent of the last axis of a value, if it is one a row runs along; else 1.
inline int width(const Plan::Body& body, int index) {
  const Value& v = value(body, index);
  const bool last = v.places.inner >= 0 && static_cast<std::size_t>(v.places.inner) + 1 == v.axes.size();
  return last && v.axes.back() != 'N' ? static_cast<int>(body.extent(v.axes.back(), 1, 1)) : 1;
}
/// Extent of the last axis but one of a matrix; 1 for rows.
inline int height(const Plan::Body& body, int index) {
  const Axes& axes = value(body, index).axes;
  const std::size_t n = axes.size();
  const bool matrix = n >= 2 && Axes::is_inner(axes[n - 1]) && Axes::is_inner(axes[n - 2]);
  return matrix ? static_cast<int>(body.extent(axes[n - 2], 1, 1)) : 1;
}

/// Heads of a value: H, G, or (constants) those of the plan.
inline int heads_of(const Plan::Body& body, int index) {
  return value(body, index).places.grouped ? body.shape.key_heads : body.shape.heads;
}

/// Contiguous strides for the axes of a value. Returns its numbers.
inline std::ptrdiff_t contiguous(const Plan::Body& body, const Axes& axes, std::ptrdiff_t batch, std::ptrdiff_t time,
                                 std::ptrdiff_t pairs, std::array<std::ptrdiff_t, max_rank>& extent,
                                 std::array<std::ptrdiff_t, max_rank>& stride) {
  std::ptrdiff_t step = 1;
  for (std::size_t i = axes.size(); i-- > 0;) {
    extent[i] = body.extent(axes[i], batch, time, pairs);
    stride[i] = step;
    step *= extent[i];
  }
  return step;
}

}  // namespace ttr
