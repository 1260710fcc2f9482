// One kernel step of one call as its family sees it: operands, gradients and states as views.
#pragma once

#include "families/common/half_rows.h"
#include "families/common/linear.h"
#include "families/common/team.h"
#include "run/bind.h"
#include "run/shard.h"

namespace ttr {

using families::LinearGradient;
using families::LinearProblem;
using families::Sequence;
using families::Team;

template <class T>
const Simd<T>& simd_of(const Plan::Body& body) {
  if constexpr (sizeof(T) == 4) return *body.simd_f32;
  else return *body.simd_f64;
}

/// The state of a segment, for the heads of one key head: the parts of the step one behind another. Where part `index`
/// begins; one beyond the last: bytes of all.
inline std::size_t segment_place(const Plan::Body& body, std::span<const StatePart> parts, std::size_t index) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < index; ++i)
    at +=
        (numbers(parts[i]) / static_cast<std::size_t>(body.shape.key_heads) * size_of(parts[i].type) + 63) / 64 * 64;
  return at;
}

/// One kernel step of one call, or the shard of it that one task does. A family sees the sequences, heads and columns
/// of the shard alone.
template <class T>
class KernelArgs {
 public:
  KernelArgs(const Plan::Body& body, const Step& step, const Binding<T>& b, bool keep = true, const Shard& share = {},
             const Team& team = {})
      : body_(body),
        step_(step),
        b_(b),
        shard_(share),
        team_(team),
        time_(b.time * step.pairs),
        keep_(keep),
        groups_(share.groups ? share.groups : body.shape.key_heads),
        heads_(share.heads ? share.heads : groups_ * (body.shape.heads / body.shape.key_heads)) {
    if (shard_.segment) segment_ = {shared(all_sequences()).front().row, shard_.begin, shard_.end};
  }
  KernelArgs(const KernelArgs&) = delete;
  KernelArgs& operator=(const KernelArgs&) = delete;

  int value_of(std::size_t r) const { return step_.operands[r]; }
  const Axes& axes(std::size_t r) const { return value(body_, value_of(r)).axes; }
  bool has(std::size_t r) const { return value_of(r) >= 0; }
  int key_dim() const { return width_of(Slot::k); }
  int value_dim() const { return width_of(Slot::v); }
  int heads() const { return heads_; }
  int key_heads() const { return groups_; }
  /// Heads of an operand.
  int heads_of(std::size_t r) const { return heads_of_value(value_of(r)); }

  // [B, T, heads of the operand, its width]
  View<const T, 4> vectors(std::size_t r) const {
    return has(r) ? rows(r, heads_of(r), width_of(r)) : View<const T, 4>{};
  }
  View<T, 4> d_vectors(std::size_t r) const { return has(r) ? d_rows(r, heads_of(r), width_of(r)) : View<T, 4>{}; }
  // A gate may be one number per head: it is then seen as a vector whose channels are the same number.
  View<const T, 4> channels(std::size_t r, int channels) const {
    return has(r) ? rows(r, heads_, channels) : View<const T, 4>{};
  }
  View<T, 4> d_channels(std::size_t r, int channels) const {
    return has(r) ? d_rows(r, heads_, channels) : View<T, 4>{};
  }
  // [B, T, H]
  View<const T, 3> scalars(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = strides(r);
    return {data(r), {b_.batch, time(r), heads_}, {s.batch, s.time, s.head}};
  }
  View<T, 3> d_scalars(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = d_strides(r);
    return {gradient_data(r), {b_.batch, time(r), heads_}, {s.batch, s.time, s.head}};
  }
  // [B, T, V] of one head, for kernels that know no heads
  View<const T, 3> flat(std::size_t r, int head) const {
    if (!has(r)) return {};
    const AxisStrides s = strides(r);
    return {offset(data(r), head * s.head), {b_.batch, time_, dim()}, {s.batch, s.time, s.inner}};
  }
  View<T, 3> d_flat(std::size_t r, int head) const {
    if (!has(r)) return {};
    const AxisStrides s = d_strides(r);
    return {offset(gradient_data(r), head * s.head), {b_.batch, time_, dim()}, {s.batch, s.time, s.inner}};
  }
  // [H, K, V] of a parameter, its axes in any order
  View<const T, 3> per_entry(std::size_t r) const { return matrix<const T>(r, data(r), bound(r).stride); }
  View<T, 3> d_per_entry(std::size_t r) const { return matrix<T>(r, gradient_data(r), bound(r).gradient_stride); }
  // [H, K]
  View<const T, 2> per_head(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = strides(r);
    return {data(r), {heads_, key_dim()}, {s.head, s.inner}};
  }
  View<T, 2> d_per_head(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = d_strides(r);
    return {gradient_data(r), {heads_, key_dim()}, {s.head, s.inner}};
  }

  // [H, n], or [n] for all heads
  View<const T, 2> per_head_row(std::size_t r, std::ptrdiff_t n) const {
    if (!has(r)) return {};
    const AxisStrides s = strides(r);
    return {data(r), {heads_, n}, {s.head, s.inner}};
  }
  View<T, 2> d_per_head_row(std::size_t r, std::ptrdiff_t n) const {
    if (!has(r)) return {};
    const AxisStrides s = d_strides(r);
    return {gradient_data(r), {heads_, n}, {s.head, s.inner}};
  }
  // [H, rows, columns]
  View<const T, 3> per_head_matrix(std::size_t r, std::ptrdiff_t m, std::ptrdiff_t n) const {
    if (!has(r)) return {};
    const AxisStrides s = strides(r);
    return {data(r), {heads_, m, n}, {s.head, s.outer, s.inner}};
  }
  View<T, 3> d_per_head_matrix(std::size_t r, std::ptrdiff_t m, std::ptrdiff_t n) const {
    if (!has(r)) return {};
    const AxisStrides s = d_strides(r);
    return {gradient_data(r), {heads_, m, n}, {s.head, s.outer, s.inner}};
  }
  // [rows, heads, columns] of a parameter "M G K"
  View<const T, 3> rows_of_heads(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = strides(r);
    return {data(r), {body_.extent(axes(r).front(), 1, 1), heads_of(r), width_of(r)}, {s.outer, s.head, s.inner}};
  }
  View<T, 3> d_rows_of_heads(std::size_t r) const {
    if (!has(r)) return {};
    const AxisStrides s = d_strides(r);
    return {gradient_data(r),
            {body_.extent(axes(r).front(), 1, 1), heads_of(r), width_of(r)},
            {s.outer, s.head, s.inner}};
  }
  // Whether sequence n has its first token in this call; `count` are the tokens before it.
  bool begins(const std::int64_t* count, std::size_t n) const {
    return count[n] == 0 && sequences()[n].end > sequences()[n].begin;
  }
  bool given(std::size_t r) const { return data(r) != nullptr; }  // an input may be left out

  // Part `index` of the step's states in one of the caller's buffers; null if there is no buffer, or no such part (a plan
  // that is not causal has no state).
  template <class N, class AnyState>
  N* state(AnyState buffer, int index = 0) const {
    if (!buffer.data || step_.state < 0 ||
        static_cast<std::size_t>(step_.state + index) >= body_.pipeline.states.size())
      return nullptr;
    if (shard_.columns || shard_.copied) return static_cast<N*>(shard_.parts[static_cast<std::size_t>(index)]);
    using Byte = std::conditional_t<std::is_const_v<N>, const std::byte, std::byte>;
    if (shard_.segment) {
      const std::span<const StatePart> parts = std::span(body_.pipeline.states).subspan(first_state());
      return reinterpret_cast<N*>(static_cast<Byte*>(buffer.data) +
                                  segment_place(body_, parts, static_cast<std::size_t>(index)));
    }
    const StatePlace place = body_.state_place(buffer, step_.state + index);
    const StatePart& part = body_.pipeline.states[static_cast<std::size_t>(step_.state + index)];
    const std::ptrdiff_t one = static_cast<std::ptrdiff_t>(numbers(part));
    std::ptrdiff_t skip = static_cast<std::ptrdiff_t>(shard_.first_sequence) * one;
    if (part.history) skip *= place.capacity;
    if (shard_.first_group || shard_.first_head) {  // the heads come first: [N, H, ...], or [N, capacity, H, ...]
      const std::ptrdiff_t all = part.extent.front();
      skip += one / all * (shard_.first_group * (all / body_.shape.key_heads) + shard_.first_head);
    }
    return reinterpret_cast<N*>(static_cast<Byte*>(buffer.data) + place.offset) + skip;
  }
  /// The counts of tokens at the start of a state, one per sequence.
  template <class AnyState>
  auto counts(AnyState buffer) const {
    using N = std::conditional_t<std::is_same_v<AnyState, ConstState>, const std::int64_t, std::int64_t>;
    return shard_.counts ? static_cast<N*>(shard_.counts) : body_.counts(buffer) + shard_.first_sequence;
  }
  /// Whether this share holds the first heads: what belongs to a sequence and not to a head is written by it alone.
  bool first_heads() const { return shard_.first_group == 0 && shard_.first_head == 0; }

  LinearProblem<T> problem(State buffer) const {
    LinearProblem<T> p;
    set_problem(buffer, p);
    return p;
  }
  /// The same for a problem that is more, where it lies: it is large, and a step should not copy it.
  void set_problem(State buffer, LinearProblem<T>& p) const {
    p.sequences = sequences();
    p.heads = heads_, p.key_heads = heads_of(Slot::k);
    p.key_dim = key_dim(), p.value_dim = value_dim();
    if (shard_.columns) p.chosen_by = width(body_, value_of(Slot::v));
    p.scale = static_cast<T>(step_.scale);
    p.q = vectors(Slot::q), p.k = vectors(Slot::k), p.v = vectors(Slot::v);
    p.g = scalars(Slot::g), p.beta = scalars(Slot::beta);
    p.state = state<T>(buffer);
    p.o = output(step_.result);
    if (step_.skip >= 0 && !b_.backward) {
      const Step& skip = body_.pipeline.steps[static_cast<std::size_t>(step_.skip)];
      p.o = output(skip.result), p.skip = number_per_head(skip.operands[2]);
    }
    p.team = team_;
  }

  LinearGradient<T> gradient(const Call& call) const {
    LinearGradient<T> d;
    d.d_o = d_output(step_.result);
    d.d_q = d_vectors(Slot::q), d.d_k = d_vectors(Slot::k), d.d_v = d_vectors(Slot::v);
    d.d_final = state<const T>(call.d_final), d.d_initial = state<T>(call.d_initial);
    d.fresh = fresh(Slot::q, d.fresh_q) | fresh(Slot::k, d.fresh_k) | fresh(Slot::v, d.fresh_v);
    return d;
  }

  // [H] of pipeline value `index`
  View<const T, 1> number_per_head(int index) const {
    const Bound<T>& from = b_.values[static_cast<std::size_t>(index)];
    if (!from.data) return {};
    return {at(index, from.half, from.data, from.stride),
            {heads_},
            {axis_strides(value(body_, index).places, from.stride).head}};
  }
  // Output `index` of pipeline values as the kernel writes it, and its gradient as backward reads it.
  View<T, 4> output(int index) const {
    if (index < 0) return {};
    const Bound<T>& to = b_.values[static_cast<std::size_t>(index)];
    const AxisStrides s = axis_strides(value(body_, index).places, to.stride);
    return {at(index, to.half, to.writable, to.stride),
            {b_.batch, time_, heads_of_value(index), width_of_value(index)},
            {s.batch, s.time, s.head, inner_stride(to, s)}};
  }
  View<const T, 4> d_output(int index) const {
    if (index < 0) return {};
    const Bound<T>& to = b_.values[static_cast<std::size_t>(index)];
    const AxisStrides s = axis_strides(value(body_, index).places, to.gradient_stride);
    return {at(index, Type::f32, to.gradient_in, to.gradient_stride),
            {b_.batch, time_, heads_of_value(index), width_of_value(index)},
            {s.batch, s.time, s.head, s.inner}};
  }
  // Distance of the rows of a matrix operand.
  std::ptrdiff_t outer_stride(std::size_t r) const { return strides(r).outer; }
  std::ptrdiff_t d_outer_stride(std::size_t r) const { return d_strides(r).outer; }
  int dim() const { return shard_.columns ? shard_.columns : body_.shape.value_dim; }
  std::span<const Sequence> sequences() const {
    return shard_.segment ? std::span<const Sequence>(&segment_, 1) : shared(all_sequences());
  }
  /// Of a segment: which of its heads are known to have a number outside the domain; null: not known.
  const bool* outside() const { return shard_.outside; }
  // Of the keys and values, which may have a length of their own.
  std::span<const Sequence> pair_sequences() const {
    return shared(places(Slot::k).of_pairs ? b_.pair_sequences : b_.sequences);
  }
  const Plan::Body& body() const { return body_; }
  const Step& step() const { return step_; }
  std::ptrdiff_t time() const { return time_; }
  const Binding<T>& binding() const { return b_; }
  const Shard& share() const { return shard_; }
  /// The bit of a role whose gradient the kernel is to clear (LinearGradient); else 0.
  unsigned fresh(std::size_t r, unsigned role) const { return has(r) && bound(r).fresh ? role : 0; }
  const Team& team() const { return team_; }  // for a kernel that divides time; no other has more than one worker
  bool keep() const { return keep_; }         // whether pairs of the call are appended to the state
  // [H] of a parameter that may be a constant
  View<const T, 1> per_head_number(std::size_t r) const {
    if (!has(r)) return {};
    return {data(r), {heads_}, {strides(r).head}};
  }
  View<T, 1> d_per_head_number(std::size_t r) const {
    if (!has(r)) return {};
    return {gradient_data(r), {heads_}, {d_strides(r).head}};
  }

 private:
  const AxisPlaces& places(std::size_t r) const { return value(body_, value_of(r)).places; }
  std::ptrdiff_t time(std::size_t r) const { return places(r).of_pairs ? b_.pairs : time_; }
  template <class N>
  static N* offset(N* data, std::ptrdiff_t by) {
    return data ? data + by : nullptr;
  }
  template <class N>
  View<N, 3> matrix(std::size_t r, N* data, const std::array<std::ptrdiff_t, max_rank>& stride) const {
    const auto along = [&](char letter) {
      const std::size_t at = axes(r).find(letter);
      return at == Axes::npos ? std::ptrdiff_t{0} : stride[at];
    };
    return {data, {heads_, body_.shape.key_dim, dim()}, {along('H'), along('K'), along('V')}};
  }
  std::span<const Sequence> all_sequences() const { return step_.pairs > 1 ? b_.pair_sequences : b_.sequences; }
  std::size_t first_state() const { return static_cast<std::size_t>(step_.state); }
  std::span<const Sequence> shared(std::span<const Sequence> all) const {
    return shard_.sequences ? all.subspan(shard_.first_sequence, shard_.sequences) : all;
  }
  int heads_of_value(int index) const { return value(body_, index).places.grouped ? groups_ : heads_; }
  int width_of_value(int index) const {
    const Axes& letters = value(body_, index).axes;
    return shard_.columns && !letters.empty() && letters.back() == 'V' ? shard_.columns : width(body_, index);
  }
  int width_of(std::size_t r) const { return width_of_value(value_of(r)); }
  // Where the share of a value begins.
  template <class N>
  N* at(int index, Type half, N* whole, const std::array<std::ptrdiff_t, max_rank>& stride) const {
    if (!whole || (shard_.first_group == 0 && shard_.first_head == 0 && shard_.first_column == 0)) return whole;
    const Axes& letters = value(body_, index).axes;
    const std::ptrdiff_t first_head =
        shard_.first_group * (body_.shape.heads / body_.shape.key_heads) + shard_.first_head;
    std::ptrdiff_t skip = 0;
    for (std::size_t i = 0; i < letters.size(); ++i) {
      if (letters[i] == 'G') skip += shard_.first_group * stride[i];
      if (letters[i] == 'H') skip += first_head * stride[i];
      if (letters[i] == 'V') skip += shard_.first_column * stride[i];
    }
    return further(half, whole, skip);
  }
  const T* data(std::size_t r) const { return at(value_of(r), bound(r).half, bound(r).data, bound(r).stride); }
  T* gradient_data(std::size_t r) const {
    return at(value_of(r), Type::f32, bound(r).gradient, bound(r).gradient_stride);
  }
  // Rows of a half type are told by it (half_rows.h).
  static std::ptrdiff_t inner_stride(const Bound<T>& to, const AxisStrides& s) {
    return to.half == Type::f32 ? s.inner : families::stride_of_half(to.half);
  }
  const Bound<T>& bound(std::size_t r) const { return b_.values[static_cast<std::size_t>(value_of(r))]; }
  AxisStrides strides(std::size_t r) const { return axis_strides(value(body_, value_of(r)).places, bound(r).stride); }
  AxisStrides d_strides(std::size_t r) const {
    return axis_strides(value(body_, value_of(r)).places, bound(r).gradient_stride);
  }
  View<const T, 4> rows(std::size_t r, int heads, int channels) const {
    const AxisStrides s = strides(r);
    return {data(r), {b_.batch, time(r), heads, channels}, {s.batch, s.time, s.head, inner_stride(bound(r), s)}};
  }
  View<T, 4> d_rows(std::size_t r, int heads, int channels) const {
    const AxisStrides s = d_strides(r);
    return {gradient_data(r), {b_.batch, time(r), heads, channels}, {s.batch, s.time, s.head, s.inner}};
  }

  const Plan::Body& body_;
  const Step& step_;
  const Binding<T>& b_;
  const Shard shard_;
  const Team team_;
  std::ptrdiff_t time_;
  bool keep_;
  int groups_, heads_;  // of the share
  Sequence segment_{};
};

}  // namespace ttr
