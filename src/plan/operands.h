// One kernel step of one call: its operands, gradients and states as the views a family wants.
#pragma once

#include "families/linear.h"
#include "plan/bind.h"

namespace ttr {

using namespace families;

template <class T>
const Simd<T>& simd_of(const Plan::Body& body) {
  if constexpr (sizeof(T) == 4) return *body.simd_f32;
  else return *body.simd_f64;
}

/// One kernel step of one call: its operands, gradients and states as the views a family wants.
template <class T>
class Operands {
 public:
  Operands(const Plan::Body& body, const Step& step, Binding<T>& b, bool keep = true)
      : body_(body), step_(step), b_(b), time_(b.time * step.pairs), keep_(keep) {}

  int role(std::size_t r) const { return step_.from[r]; }
  const std::string& axes(std::size_t r) const { return value(body_, role(r)).axes; }
  bool has(std::size_t r) const { return role(r) >= 0; }
  int key_dim() const { return width(body_, role(Role::k)); }
  int value_dim() const { return width(body_, role(Role::v)); }

  // [B, T, heads of the operand, its width]
  View<const T, 4> vectors(std::size_t r) const {
    return has(r) ? rows(r, heads_of(body_, role(r)), width(body_, role(r))) : View<const T, 4>{};
  }
  View<T, 4> d_vectors(std::size_t r) const {
    return has(r) ? d_rows(r, heads_of(body_, role(r)), width(body_, role(r))) : View<T, 4>{};
  }
  // A gate may be one number per head: it is then seen as a vector whose channels are the same number.
  View<const T, 4> channels(std::size_t r, int channels) const {
    return has(r) ? rows(r, body_.shape.heads, channels) : View<const T, 4>{};
  }
  View<T, 4> d_channels(std::size_t r, int channels) const {
    return has(r) ? d_rows(r, body_.shape.heads, channels) : View<T, 4>{};
  }
  // [B, T, H]
  View<const T, 3> scalars(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = strides(r);
    return {bound(r).data, {b_.batch, time(r), body_.shape.heads}, {s.batch, s.time, s.head}};
  }
  View<T, 3> d_scalars(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = d_strides(r);
    return {bound(r).gradient, {b_.batch, time(r), body_.shape.heads}, {s.batch, s.time, s.head}};
  }
  // [B, T, V] of one head, for kernels that know no heads
  View<const T, 3> flat(std::size_t r, int head) const {
    if (!has(r)) return {};
    const AxisStrides s = strides(r);
    return {offset(bound(r).data, head * s.head), {b_.batch, time_, dim()}, {s.batch, s.time, s.inner}};
  }
  View<T, 3> d_flat(std::size_t r, int head) const {
    if (!has(r)) return {};
    const AxisStrides s = d_strides(r);
    return {offset(bound(r).gradient, head * s.head), {b_.batch, time_, dim()}, {s.batch, s.time, s.inner}};
  }
  // [H, K, V] of a parameter, its axes in any order
  View<const T, 3> per_entry(std::size_t r) const { return matrix<const T>(r, bound(r).data, bound(r).stride); }
  View<T, 3> d_per_entry(std::size_t r) const { return matrix<T>(r, bound(r).gradient, bound(r).gradient_stride); }
  // [H, K]
  View<const T, 2> per_head(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = strides(r);
    return {bound(r).data, {body_.shape.heads, key_dim()}, {s.head, s.inner}};
  }
  View<T, 2> d_per_head(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = d_strides(r);
    return {bound(r).gradient, {body_.shape.heads, key_dim()}, {s.head, s.inner}};
  }

  // [H, n], or [n] for all heads
  View<const T, 2> per_head_row(std::size_t r, std::ptrdiff_t n) const {
    if (!has(r)) return {};
    const AxisStrides s = strides(r);
    return {bound(r).data, {body_.shape.heads, n}, {s.head, s.inner}};
  }
  View<T, 2> d_per_head_row(std::size_t r, std::ptrdiff_t n) const {
    if (!has(r)) return {};
    const AxisStrides s = d_strides(r);
    return {bound(r).gradient, {body_.shape.heads, n}, {s.head, s.inner}};
  }
  // [H, rows, columns]
  View<const T, 3> per_head_matrix(std::size_t r, std::ptrdiff_t m, std::ptrdiff_t n) const {
    if (!has(r)) return {};
    const AxisStrides s = strides(r);
    return {bound(r).data, {body_.shape.heads, m, n}, {s.head, s.outer, s.inner}};
  }
  View<T, 3> d_per_head_matrix(std::size_t r, std::ptrdiff_t m, std::ptrdiff_t n) const {
    if (!has(r)) return {};
    const AxisStrides s = d_strides(r);
    return {bound(r).gradient, {body_.shape.heads, m, n}, {s.head, s.outer, s.inner}};
  }
  // [rows, heads, columns] of a parameter "M G K"
  View<const T, 3> rows_of_heads(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = strides(r);
    return {bound(r).data,
            {body_.extent(axes(r).front(), 1, 1), heads_of(body_, role(r)), width(body_, role(r))},
            {s.outer, s.head, s.inner}};
  }
  View<T, 3> d_rows_of_heads(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = d_strides(r);
    return {bound(r).gradient,
            {body_.extent(axes(r).front(), 1, 1), heads_of(body_, role(r)), width(body_, role(r))},
            {s.outer, s.head, s.inner}};
  }
  bool given(std::size_t r) const { return bound(r).data != nullptr; }  // an input may be left out

  // Part `index` of the step's states in one of the caller's buffers; null if there is no buffer.
  template <class N, class AnyState>
  N* state(AnyState buffer, int index = 0) const {
    if (!buffer.data) return nullptr;
    using Byte = std::conditional_t<std::is_const_v<N>, const std::byte, std::byte>;
    const std::size_t offset = body_.state_place(buffer.bytes, step_.state + index).offset;
    return reinterpret_cast<N*>(static_cast<Byte*>(buffer.data) + offset);
  }

  LinearProblem<T> problem(State buffer) const {
    LinearProblem<T> p;
    p.sequences = sequences();
    p.heads = body_.shape.heads, p.key_heads = heads_of(body_, role(Role::k));
    p.key_dim = key_dim(), p.value_dim = value_dim();
    p.scale = static_cast<T>(step_.scale);
    p.q = vectors(Role::q), p.k = vectors(Role::k), p.v = vectors(Role::v);
    p.g = scalars(Role::g), p.beta = scalars(Role::beta);
    p.state = state<T>(buffer);
    p.o = output(step_.to);
    return p;
  }

  LinearGradient<T> gradient(const Call& call) const {
    LinearGradient<T> d;
    d.d_o = d_output(step_.to);
    d.d_q = d_vectors(Role::q), d.d_k = d_vectors(Role::k), d.d_v = d_vectors(Role::v);
    d.d_final = state<const T>(call.d_final), d.d_initial = state<T>(call.d_initial);
    return d;
  }

  // Output `index` of pipeline values as the kernel writes it, and its gradient as backward reads it.
  View<T, 4> output(int index) const {
    if (index < 0) return {};
    const Bound<T>& to = b_.values[static_cast<std::size_t>(index)];
    const AxisStrides s = axis_strides(value(body_, index).axes, to.stride);
    return {to.writable,
            {b_.batch, time_, heads_of(body_, index), width(body_, index)},
            {s.batch, s.time, s.head, s.inner}};
  }
  View<const T, 4> d_output(int index) const {
    if (index < 0) return {};
    const Bound<T>& to = b_.values[static_cast<std::size_t>(index)];
    const AxisStrides s = axis_strides(value(body_, index).axes, to.gradient_stride);
    return {to.gradient_in,
            {b_.batch, time_, heads_of(body_, index), width(body_, index)},
            {s.batch, s.time, s.head, s.inner}};
  }
  // Distance of the rows of a matrix operand.
  std::ptrdiff_t outer_stride(std::size_t r) const { return strides(r).outer; }
  std::ptrdiff_t d_outer_stride(std::size_t r) const { return d_strides(r).outer; }
  int dim() const { return body_.shape.value_dim; }
  std::span<const Sequence> sequences() const { return step_.pairs > 1 ? b_.pair_sequences : b_.sequences; }
  // Of the keys and values, which may have a length of their own.
  std::span<const Sequence> pair_sequences() const {
    return axes(Role::k).find('P') == std::string::npos ? b_.sequences : b_.pair_sequences;
  }
  const Plan::Body& body() const { return body_; }
  const Step& step() const { return step_; }
  std::ptrdiff_t time() const { return time_; }
  bool keep() const { return keep_; }  // whether pairs of the call are appended to the state
  // [H] of a parameter that may be a constant
  View<const T, 1> per_head_number(std::size_t r) const {
    if (!has(r)) return {};
    return {bound(r).data, {body_.shape.heads}, {strides(r).head}};
  }
  View<T, 1> d_per_head_number(std::size_t r) const {
    if (!has(r)) return {};
    return {bound(r).gradient, {body_.shape.heads}, {d_strides(r).head}};
  }

 private:
  std::ptrdiff_t time(std::size_t r) const { return axes(r).find('P') == std::string::npos ? time_ : b_.pairs; }
  template <class N>
  static N* offset(N* data, std::ptrdiff_t by) {
    return data ? data + by : nullptr;
  }
  template <class N>
  View<N, 3> matrix(std::size_t r, N* data, const std::array<std::ptrdiff_t, max_rank>& stride) const {
    const std::string& axes = value(body_, role(r)).axes;
    const auto along = [&](char letter) {
      const std::size_t at = axes.find(letter);
      return at == std::string::npos ? std::ptrdiff_t{0} : stride[at];
    };
    return {
        data, {body_.shape.heads, body_.shape.key_dim, body_.shape.value_dim}, {along('H'), along('K'), along('V')}};
  }
  const Bound<T>& bound(std::size_t r) const { return b_.values[static_cast<std::size_t>(role(r))]; }
  AxisStrides strides(std::size_t r) const { return axis_strides(value(body_, role(r)).axes, bound(r).stride); }
  AxisStrides d_strides(std::size_t r) const {
    return axis_strides(value(body_, role(r)).axes, bound(r).gradient_stride);
  }
  View<const T, 4> rows(std::size_t r, int heads, int channels) const {
    const AxisStrides s = strides(r);
    return {bound(r).data, {b_.batch, time(r), heads, channels}, {s.batch, s.time, s.head, s.inner}};
  }
  View<T, 4> d_rows(std::size_t r, int heads, int channels) const {
    const AxisStrides s = d_strides(r);
    return {bound(r).gradient, {b_.batch, time(r), heads, channels}, {s.batch, s.time, s.head, s.inner}};
  }

  const Plan::Body& body_;
  const Step& step_;
  Binding<T>& b_;
  std::ptrdiff_t time_;
  bool keep_;
};

}  // namespace ttr
