// Binding: for one call, every value of the pipeline gets an address and strides, and for backward a gradient.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>

#include "families/linear.h"
#include "families/scratch.h"
#include "plan/pipeline.h"

namespace ttr {

inline constexpr int max_values = 64;

using families::Arena;

template <class T>
struct Bound {
  const T* data = nullptr;
  T* writable = nullptr;           // results of steps
  const T* gradient_in = nullptr;  // what backward reads: the caller's d_output or the scratch below
  T* gradient = nullptr;           // what backward adds to; null = not wanted
  std::array<std::ptrdiff_t, max_rank> extent{}, stride{}, gradient_stride{};
};

/// Strides of one value by role. An axis the value does not have has stride zero.
struct AxisStrides {
  std::ptrdiff_t batch = 0, time = 0, head = 0, inner = 0;
};

inline AxisStrides axis_strides(const std::string& axes, const std::array<std::ptrdiff_t, max_rank>& stride) {
  AxisStrides s;
  for (std::size_t i = 0; i < axes.size(); ++i) switch (axes[i]) {
      case 'B': s.batch = stride[i]; break;
      case 'T': s.time = stride[i]; break;
      case 'H':
      case 'G': s.head = stride[i]; break;
      default: s.inner = stride[i];
    }
  return s;
}

template <class T>
struct Binding {
  std::array<Bound<T>, max_values> values;
  std::ptrdiff_t batch = 0, time = 0;  // extents of the tensors: batch is 1 for packed sequences
  std::span<const families::Sequence> sequences;
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

/// Contiguous strides for the axes of a value.
inline void contiguous(const Plan::Body& body, const std::string& axes, std::ptrdiff_t batch, std::ptrdiff_t time,
                       std::array<std::ptrdiff_t, max_rank>& extent, std::array<std::ptrdiff_t, max_rank>& stride) {
  std::ptrdiff_t step = 1;
  for (std::size_t i = axes.size(); i-- > 0;) {
    extent[i] = body.extent(axes[i], batch, time);
    stride[i] = step;
    step *= extent[i];
  }
}

/// Runs the oracle as a step of the pipeline (oracle_step.cc). Arrays are copied to double and back. `final` may be the
/// same buffer as `initial`, or without data if the final state is not wanted.
template <class T>
Status oracle_forward(const Plan::Body&, const Step&, Binding<T>&, ConstState initial, State final) noexcept;
template <class T>
Status oracle_backward(const Plan::Body&, const Step&, Binding<T>&, ConstState initial, ConstState d_final,
                       State d_initial) noexcept;

}  // namespace ttr
