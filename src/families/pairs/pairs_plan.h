// What the planning glue of families that keep their pairs shares: the state is a list, read by the kernel and appended
// to here; without causality a list is the pairs of the call.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "families/common/linear_plan.h"
#include "families/pairs/layout.h"

namespace ttr::families {

inline constexpr std::string_view list_of_pairs = "the state is the list of pairs, which is not composed but read";
inline constexpr Traits keeps_pairs = {
    .keeps_pairs = true, .answers_on_demand = true, .best = BestForm::chunk_of_any_length};
/// The same with a team: for queries, and for pairs in backward.
inline constexpr Traits keeps_pairs_in_team = {.keeps_pairs = true,
                                               .answers_on_demand = true,
                                               .best = BestForm::chunk_of_any_length,
                                               .team = {.forward = blocks_only, .backward = blocks_only}};

/// Takes the weights by similarity to the query, and the norms of keys and answers.
inline void takes_near(Claim& rest) {
  rest.needs(rest.w.near, {Kernel::exponential, Kernel::gaussian});
  rest.w.near_scale = 0, rest.w.bandwidth = {};
  rest.x.keys = {};
  rest.takes_read_norms();
}

inline double near_scale(const Builder& b) {
  const Weights& w = b.design().weights;
  if (w.near_scale != 0) return w.near_scale;
  return b.options().scale.value_or(1 / std::sqrt(static_cast<double>(b.shape().key_dim)));
}

/// The bandwidth of Gaussian weights; -1 for the exponential.
inline int bandwidth_of_weights(Builder& b) {
  const Weights& w = b.design().weights;
  if (w.near != Kernel::gaussian) return -1;
  return w.bandwidth.given() ? b.quantity(w.bandwidth, "bandwidth")
                             : b.constant(2 * std::sqrt(static_cast<double>(b.shape().key_dim)));
}

/// The parts of a state that is a list of pairs. `own`: every head has keys and values of its own. `compact`: the kernel
/// reads keys and values in fewer bytes, if Options::state_type asks for it; the scales of i8 are the last two parts.
inline std::vector<StatePart> pairs_kept(Builder& b, int k, int v, bool gates, bool own = false,
                                         bool compact = false) {
  b.pipeline().history = true;
  const std::ptrdiff_t G = own ? b.shape().heads : b.shape().key_heads;
  const std::string heads = own ? "B N H " : "B N G ";
  std::vector<StatePart> parts = {
      {{"k", heads + b.axes(k).back(), "keys of the pairs kept, oldest first"}, {G, b.width(k)}, b.type()},
      {{"v", heads + "V", "values of the pairs kept"}, {G, b.width(v)}, b.type()}};
  if (gates) parts.push_back({{"g", "B N H", "log gates of the pairs kept"}, {b.shape().heads}, b.type()});
  if (compact && b.options().state_type && b.type() == Type::f32) {
    parts[0].type = parts[1].type = *b.options().state_type;
    for (const char* name : {"k", "v"})
      if (b.options().state_type == Type::i8)
        parts.push_back({{std::string(name) + "_scale", own ? "B N H" : "B N G",
                          std::string("what the numbers of ") + name + " are multiples of"},
                         {G},
                         Type::f32});
  }
  for (StatePart& part : parts) part.history = true;
  return parts;
}

// Part `index` of the step's states, a history: [N, capacity, heads, dim]; no data if there is no buffer.
template <class N, class T, class AnyState>
View<N, 4> history(const KernelArgs<T>& o, AnyState buffer, int index) {
  if (!buffer.data) return {};
  const std::size_t part = static_cast<std::size_t>(o.step().state + index);
  const std::vector<std::ptrdiff_t>& extent = o.body().pipeline.states[part].extent;
  const StatePlace place = o.body().state_place(buffer, o.step().state + index);
  const std::ptrdiff_t heads = extent[0], dim = extent.size() > 1 ? extent[1] : 1;
  return {o.template state<N>(buffer, index),
          {static_cast<std::ptrdiff_t>(o.sequences().size()), place.capacity,
           heads / o.body().shape.key_heads * o.key_heads(), dim},
          {place.capacity * heads * dim, heads * dim, dim, 1}};
}

template <class N>
View<N, 3> without_last(const View<N, 4>& v) {
  return {v.data, {v.extent[0], v.extent[1], v.extent[2]}, {v.stride[0], v.stride[1], v.stride[2]}};
}
template <class N>
View<N, 4> with_last(const View<N, 3>& v) {
  return {v.data, {v.extent[0], v.extent[1], v.extent[2], 1}, {v.stride[0], v.stride[1], v.stride[2], 0}};
}

// The same of a list in fewer bytes; `scales`: the part that has them. No data if the plan keeps its own type.
template <class T, class AnyState>
pairs::CompactRows compact_history(const KernelArgs<T>& o, AnyState buffer, int index, int scales) {
  const std::size_t part = static_cast<std::size_t>(o.step().state + index);
  const StatePart& list = o.body().pipeline.states[part];
  if (!buffer.data || (list.type != Type::bf16 && list.type != Type::f16 && list.type != Type::i8)) return {};
  const StatePlace place = o.body().state_place(buffer, o.step().state + index);
  const std::ptrdiff_t heads = list.extent[0], dim = list.extent[1];
  const bool with_scales = list.type == Type::i8;
  return {list.type,
          with_scales ? static_cast<const void*>(o.template state<const std::int8_t>(ConstState(buffer), index))
                      : static_cast<const void*>(o.template state<const std::uint16_t>(ConstState(buffer), index)),
          with_scales ? o.template state<const float>(ConstState(buffer), scales) : nullptr,
          place.capacity,
          heads,
          dim};
}

// What the list holds after a call: the newest `kept` of `before` old and `tokens` new pairs.
struct Kept {
  std::ptrdiff_t before, tokens, kept;
  std::ptrdiff_t old() const { return std::max<std::ptrdiff_t>(0, kept - tokens); }
  std::ptrdiff_t first() const { return before + tokens - kept; }  // counted from the oldest of all
};
template <class T>
Kept kept_of(const KernelArgs<T>& o, ConstState state, std::size_t n) {
  const Sequence& sequence = o.sequences()[n];
  Kept k{o.counts(state)[n], sequence.end - sequence.begin, 0};
  k.kept = k.before + k.tokens;
  if (const std::ptrdiff_t window = o.body().pipeline.design.weights.window; window > 0)
    k.kept = std::min(k.kept, window);
  return k;
}

template <class T>
bool has_room(const KernelArgs<T>& o, State state) {
  for (std::size_t n = 0; n < o.sequences().size(); ++n)
    if (kept_of(o, state, n).kept > o.body().capacity(state)) return false;
  return true;
}

// Appends the rows of `x` [B, T, heads, dim] to the history of part `index`.
template <class T>
void append(const KernelArgs<T>& o, State state, int index, const View<const T, 4>& x) {
  const View<T, 4> list = history<T>(o, state, index);
  const std::ptrdiff_t row = list.stride[1];
  for (std::size_t n = 0; n < o.sequences().size(); ++n) {
    const Sequence& sequence = o.sequences()[n];
    const Kept k = kept_of(o, state, n);
    T* to = list.data + static_cast<std::ptrdiff_t>(n) * list.stride[0];
    const std::ptrdiff_t own = list.extent[2] * list.extent[3];  // of the row: the heads of this share
    if (const std::ptrdiff_t gone = k.before - k.old(); k.first() > 0 && own == row)
      std::memmove(to, to + gone * row, static_cast<std::size_t>(k.old() * row) * sizeof(T));
    else if (k.first() > 0)
      for (std::ptrdiff_t i = 0; i < k.old(); ++i) std::copy_n(to + (i + gone) * row, own, to + i * row);
    to += k.old() * row;
    const std::ptrdiff_t dim = list.extent[3];
    for (std::ptrdiff_t t = sequence.end - (k.kept - k.old()); t < sequence.end; ++t, to += row - own)
      for (std::ptrdiff_t h = 0; h < list.extent[2]; ++h, to += dim) {
        const T* from = &x(sequence.row, t, h, 0);
        if (x.stride[3] == 1) std::copy_n(from, dim, to);
        else
          for (std::ptrdiff_t d = 0; d < dim; ++d) to[d] = from[d * x.stride[3]];
      }
  }
}
// The same for a list in fewer bytes. `work` has room for a row.
inline void append_compact(const KernelArgs<float>& o, State state, const pairs::CompactRows& list,
                           const View<const float, 4>& x, Workspace work) {
  const HalfSimd& convert = half_simd(simd_of<float>(o.body()));
  const std::ptrdiff_t dim = list.dim, size = list.scales ? 1 : 2, heads = x.extent[2];
  for (std::size_t n = 0; n < o.sequences().size(); ++n) {
    const Sequence& sequence = o.sequences()[n];
    const Kept k = kept_of(o, state, n);
    const std::ptrdiff_t b = static_cast<std::ptrdiff_t>(n), gone = k.before - k.old();
    for (std::ptrdiff_t i = 0; k.first() > 0 && i < k.old(); ++i) {
      const std::ptrdiff_t to = (b * list.capacity + i) * list.heads, from = to + gone * list.heads;
      std::byte* const bytes = static_cast<std::byte*>(const_cast<void*>(list.data));
      std::memmove(bytes + to * dim * size, bytes + from * dim * size, static_cast<std::size_t>(heads * dim * size));
      if (list.scales) std::copy_n(list.scales + from, heads, const_cast<float*>(list.scales) + to);
    }
    const std::ptrdiff_t tokens = k.kept - k.old();
    for (std::ptrdiff_t t = 0; t < tokens; ++t)
      for (std::ptrdiff_t h = 0; h < heads; ++h) {
        const float* from = &x(sequence.row, sequence.end - tokens + t, h, 0);
        if (x.stride[3] != 1) {
          float* const row = Arena(work).take<float>(dim);
          for (std::ptrdiff_t d = 0; d < dim; ++d) row[d] = from[d * x.stride[3]];
          from = row;
        }
        list.narrow(convert, b, k.old() + t, static_cast<int>(h), from);
      }
  }
}
template <class T>
void count_up(const KernelArgs<T>& o, State state) {
  for (std::size_t n = 0; n < o.sequences().size(); ++n) o.counts(state)[n] = kept_of(o, state, n).kept;
}

// The gradient of the final list goes to the pairs that are in it: d_x for new ones, d_past for old ones.
template <class T>
void from_final(const KernelArgs<T>& o, const Call& call, int index, const View<T, 4>& d_x) {
  const View<const T, 4> d_list = history<const T>(o, call.d_final, index);
  if (!d_list) return;
  const View<T, 4> d_past = history<T>(o, call.d_initial, index);
  for (std::size_t n = 0; n < o.sequences().size(); ++n) {
    const Sequence& sequence = o.sequences()[n];
    const Kept k = kept_of(o, call.state, n);
    for (std::ptrdiff_t j = 0; j < std::min(k.kept, d_list.extent[1]); ++j) {
      const std::ptrdiff_t i = k.first() + j, b = static_cast<std::ptrdiff_t>(n);
      for (std::ptrdiff_t h = 0; h < d_list.extent[2]; ++h)
        for (std::ptrdiff_t d = 0; d < d_list.extent[3]; ++d)
          if (i >= k.before) {
            if (d_x) d_x(sequence.row, sequence.begin + i - k.before, h, d) += d_list(b, j, h, d);
          } else if (d_past) {
            d_past(b, i, h, d) += d_list(b, j, h, d);
          }
    }
  }
}

template <class T>
void copy_counts(const KernelArgs<T>& o, const Call& call) {
  if (!call.d_initial.data || !o.first_heads()) return;
  for (std::size_t n = 0; n < o.sequences().size(); ++n)
    o.counts(call.d_initial)[n] = o.counts(ConstState(call.state))[n];
}

// The tokens of one sequence, as a list of pairs.
template <class N>
View<N, 4> list_of(const View<N, 4>& x, const Sequence& s) {
  return {x.data ? x.data + s.row * x.stride[0] + s.begin * x.stride[1] : nullptr,
          {1, s.end - s.begin, x.extent[2], x.extent[3]},
          {0, x.stride[1], x.stride[2], x.stride[3]}};
}

// Not causal: every sequence of queries sees a list of pairs that has its own length, and nothing is kept. run() is
// called for each sequence with the pairs as the past; `d`, if there is one, gets their gradients.
template <class T, class P, class D, class Run>
Status each_whole(const KernelArgs<T>& o, P p, D* d, Run&& run) {
  const View<const T, 4> k = p.k, v = p.v;
  View<T, 4> d_k, d_v;
  if constexpr (!std::is_same_v<D, const void>) d_k = d->d_k, d_v = d->d_v, d->d_k = d->d_v = {};
  p.k = p.v = {};
  Status worst = Status::ok;
  for (std::size_t n = 0; n < o.sequences().size(); ++n) {
    const Sequence& pairs = o.pair_sequences()[n];
    const std::int64_t count = pairs.end - pairs.begin;
    p.sequences = o.sequences().subspan(n, 1);
    p.past_k = list_of(k, pairs), p.past_v = list_of(v, pairs), p.past_count = &count;
    if constexpr (!std::is_same_v<D, const void>)
      d->d_past_k = list_of(d_k, pairs), d->d_past_v = list_of(d_v, pairs);
    if (count == 0) {  // nothing to answer with
      if (!p.o) continue;
      const Sequence& tokens = p.sequences.front();
      for (std::ptrdiff_t t = tokens.begin; t < tokens.end; ++t)
        for (std::ptrdiff_t h = 0; h < p.heads; ++h)
          for (std::ptrdiff_t j = 0; j < p.value_dim; ++j) p.o(tokens.row, t, h, j) = 0;
      continue;
    }
    if (const Status status = run(p); status != Status::ok) worst = status;
    if (worst != Status::ok && worst != Status::out_of_domain) return worst;
  }
  return worst;
}
inline constexpr const void* no_gradient = nullptr;

// What every problem of these families has.
template <class P, class T>
void fill(P& p, const KernelArgs<T>& o, ConstState state) {
  p.sequences = o.sequences();
  p.heads = o.heads(), p.key_heads = o.key_heads();
  p.key_dim = o.key_dim(), p.value_dim = o.value_dim();
  p.q = o.vectors(Slot::q), p.k = o.vectors(Slot::k), p.v = o.vectors(Slot::v);
  p.past_count = o.counts(state);
  p.o = o.output(o.step().result);
  p.team = o.team();
}

template <class P, class T>
void fill_past(P& p, const KernelArgs<T>& o, ConstState state) {
  if (o.body().pipeline.noncausal) return;
  p.past_k = history<const T>(o, state, 0), p.past_v = history<const T>(o, state, 1);
}
template <class D, class T>
void fill_past_gradient(D& d, const KernelArgs<T>& o, const Call& call) {
  if (o.body().pipeline.noncausal) return;
  d.d_past_k = history<T>(o, call.d_initial, 0), d.d_past_v = history<T>(o, call.d_initial, 1);
}

}  // namespace ttr::families
