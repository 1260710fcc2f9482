// Context: segment by segment, because what a segment retrieves depends on what the one before has taught.
//
// Backward computes a segment's rows once, keeps them all, and the states of the memory before the segments as
// neural_past.h does. d_state_ is the cotangent of the memory after a segment and then before it; what was retrieved
// adds to the weights before it.
#include <algorithm>

#include "families/network/arrangement/run.h"

namespace ttr::families::arrangement {

constexpr Size block = 64;  // rows of a retrieval that go together

template <class T>
Retrieval<T>::Retrieval(const Simd<T>& simd, const ArrangementModel& a, Size tokens, bool backward, Arena& arena)
    : s(simd),
      rows_(std::clamp<Size>(tokens, 1, block)),
      net_(simd, a.memory, rows_, backward, arena),
      steps_(simd, a.memory, net_.layout(), backward, arena),
      read_(net_.take_rows(arena)),
      H(a.heads),
      V(a.memory.value_dim),
      maps_(a.memory.maps()) {
  const Size size = net_.layout().size;
  W_ = arena.take<T>(size), used_ = arena.take<T>(maps_ ? size : 0), norms_ = arena.take<T>(2 * Size{V});
  out_ = arena.take<T>(rows_ * V);
  if (!backward) return;
  d_W_ = arena.take<T>(size), d_used_ = maps_ ? arena.take<T>(size) : d_W_;
  d_out_ = arena.take<T>(rows_ * V), d_x_ = arena.take<T>(rows_ * a.memory.key_dim);
}

template <class T>
void Retrieval<T>::enter(const NeuralProblem<T>& p, const NeuralParts<T>& weights, int head) {
  const NeuralLayout& layout = net_.layout();
  for (std::size_t i = 0; i < static_cast<std::size_t>(layout.count); ++i) {
    const Size n = Size{layout.part[i].in} * layout.part[i].out;
    std::copy_n(weights[i] + head * n, n, W_ + layout.part[i].offset);
  }
  for (int j = 0; j < V; ++j) {
    norms_[j] = p.norm_weight ? p.norm_weight(head, j) : T(1);
    norms_[V + j] = p.norm_bias ? p.norm_bias(head, j) : T(0);
  }
  net_.norm_weight = norms_, net_.norm_bias = norms_ + V;
}

template <class T>
void Retrieval<T>::read(const NeuralProblem<T>& p, const NeuralParts<T>& weights, Size n, T* h) {
  const View<T, 4> to = view(h, Size{1}, n, H, V);
  for (int head = 0; head < H; ++head) {
    enter(p, weights, head);
    neural::Mix<T> mix;
    mix.W = steps_.in_use(W_, used_);
    for (Size t = 0; t < n; t += rows_) {
      const Size c = std::min(rows_, n - t);
      pack(s, p.q, 0, t, c, head / (H / p.key_heads), p.model.key_dim, p.scale, read_.x[0]);
      net_.read(c, read_, mix, out_);
      unpack(out_, 0, t, c, head, V, to);
    }
  }
}

template <class T>
void Retrieval<T>::back(const NeuralProblem<T>& p, const NeuralParts<T>& weights, Size n, const T* d_h,
                        const NeuralParts<T>& d_weights, const NeuralGradient<T>& d) {
  const View<const T, 4> from = view(d_h, Size{1}, n, H, V);
  const NeuralLayout& layout = net_.layout();
  for (int head = 0; head < H; ++head) {
    const int shared = head / (H / p.key_heads), K = p.model.key_dim;
    enter(p, weights, head);
    neural::Mix<T> mix;
    mix.W = steps_.in_use(W_, used_);
    neural::MixCotangent<T> to;
    to.W = d_used_;
    std::fill_n(d_W_, layout.size, T(0)), std::fill_n(d_used_, layout.size, T(0));
    std::fill_n(net_.d_norm_weight, V, T(0)), std::fill_n(net_.d_norm_bias, V, T(0));
    for (Size t = 0; t < n; t += rows_) {
      const Size c = std::min(rows_, n - t);
      pack(s, p.q, 0, t, c, shared, K, p.scale, read_.x[0]);
      pack(s, from, 0, t, c, head, V, T(1), d_out_);
      net_.read(c, read_, mix, out_);
      net_.read_back(c, read_, mix, to, d_out_, d_x_);
      if (d.d_q) add_rows(s, p.scale, d_x_, 0, t, c, shared, K, d.d_q);
    }
    steps_.in_use_back(W_, d_used_, d_W_);
    for (std::size_t i = 0; i < static_cast<std::size_t>(layout.count); ++i) {
      const Size size = Size{layout.part[i].in} * layout.part[i].out;
      s.axpy(size, T(1), d_W_ + layout.part[i].offset, d_weights[i] + head * size);
    }
    for (int j = 0; j < V; ++j) {
      if (d.d_norm_weight) d.d_norm_weight(head, j) += net_.d_norm_weight[j];
      if (d.d_norm_bias) d.d_norm_bias(head, j) += net_.d_norm_bias[j];
    }
  }
}

template <class T>
Context<T>::Context(const Simd<T>& simd, const ArrangementModel& a, Size longest, Form form, int chunk, bool backward,
                    Arena& arena)
    : s(simd),
      a_(a),
      form_(form),
      chunk_(chunk),
      H(a.heads),
      G(a.pair_heads),
      K(a.key_dim),
      V(a.memory.value_dim),
      M(a.memory.key_dim),
      C(a.memory.batch),
      rows_(pair_rows(a)),
      layout_(memory_layout(a)),
      kit_(simd, a, std::min(C, longest), form, chunk, backward, arena),
      retrieval_(simd, a, std::min(C, longest), backward, arena),
      x_(take_rows(backward ? longest : std::min(C, longest), arena)),
      past_(backward ? layout_.template numbers<T>() : 0, backward ? segments(C - 1, longest) : 0, arena) {
  if (!backward) return;
  const Size state = layout_.template numbers<T>();
  d_ = take_rows(std::min(C, longest), arena);
  work_ = arena.take<T>(state), d_state_ = arena.take<T>(state), d_before_ = arena.take<T>(state);
  d_k_ = arena.take<T>(rows_ * G * K), d_v_ = arena.take<T>(rows_ * G * V);
  d_retrieved_k_ = arena.take<T>(rows_ * H * K), d_retrieved_v_ = arena.take<T>(rows_ * H * V);
}

template <class T>
typename Context<T>::Rows Context<T>::take_rows(Size tokens, Arena& arena) const {
  const auto take = [&](Size dim) { return arena.take<T>(tokens * H * dim); };
  return {take(V), take(K), take(V), take(V), take(1), take(M), take(M), take(V), take(V)};
}

template <class T>
typename Context<T>::Rows Context<T>::from(Rows x, Size token) const {
  const Size rows = token * H;
  return {x.h + rows * V, x.rk + rows * K, x.rv + rows * V, x.y + rows * V, x.lse + rows,
          x.q + rows * M, x.k + rows * M,  x.v + rows * V,  x.m + rows * V};
}

template <class T>
Size Context<T>::segments(std::int64_t count, Size tokens) const {
  return tokens == 0 ? 0 : (static_cast<Size>(count % C) + tokens + C - 1) / C;
}

template <class T>
typename Context<T>::Segment Context<T>::segment(std::int64_t count, Size tokens, Size i) const {
  const Size early = static_cast<Size>(count % C), begin = std::max<Size>(0, i * C - early);
  return {begin, std::min((i + 1) * C - early, tokens) - begin, i == 0 ? early : 0};
}

template <class T>
Sequence Context<T>::tokens_at(const ArrangementProblem<T>& p, std::size_t n, const Segment& x) const {
  const Sequence& all = p.sequences[n];
  return {all.row, all.begin + x.begin, all.begin + x.begin + x.tokens};
}

template <class T>
Lists<T> Context<T>::lists(const ArrangementProblem<T>& p, std::size_t n, const Segment& x, const Rows& r) const {
  const Sequence at = tokens_at(p, n, x);
  Lists<T> l = lists_of(p);
  l.q = tokens_of(p.q, at), l.k = tokens_of(p.k, at), l.v = tokens_of(p.v, at), l.past = x.place;
  l.retrieved_k = list_of<const T>(r.rk, x.tokens, H, K), l.retrieved_v = list_of<const T>(r.rv, x.tokens, H, V);
  if (x.place == 0) return l;
  const auto past = [&](const T* list, Size heads, Size dim) {
    return list_of(row_of(list, n, rows_, heads * dim), rows_, heads, dim);
  };
  l.past_k = past(p.pairs.k, G, K), l.past_v = past(p.pairs.v, G, V);
  l.past_retrieved_k = past(p.pairs.retrieved_k, H, K), l.past_retrieved_v = past(p.pairs.retrieved_v, H, V);
  return l;
}

template <class T>
NeuralProblem<T> Context<T>::memory(const ArrangementProblem<T>& p, const MemoryLayout& layout, std::size_t n,
                                    const Segment& x, const Rows& r, const Sequence& one) const {
  NeuralProblem<T> m = memory_of(p, layout, n, tokens_at(p, n, x), one);
  m.key_heads = H;
  m.q = list_of<const T>(r.q, x.tokens, H, M), m.k = list_of<const T>(r.k, x.tokens, H, M);
  m.v = list_of<const T>(r.v, x.tokens, H, V);
  return m;
}

template <class T>
Status Context<T>::advance(const ArrangementProblem<T>& p, const MemoryLayout& layout, std::size_t n,
                           const Segment& x, const Rows& r, const NeuralState<T>& state, std::int64_t* count,
                           bool outputs) {
  const Sequence at = tokens_at(p, n, x), one{0, 0, x.tokens};
  retrieval_.read(memory_of(p, layout, n, at, one), before(state, x), x.tokens, r.h);
  kit_.map(p.wk, K, x.tokens, r.h, r.rk), kit_.map(p.wv, V, x.tokens, r.h, r.rv);
  if (const Status status = kit_.attend(lists(p, n, x, r), x.tokens, r.y, r.lse); status != Status::ok) return status;
  kit_.map(p.uk, M, x.tokens, r.y, r.k), kit_.map(p.uv, V, x.tokens, r.y, r.v);
  if (outputs) kit_.map(p.uq, M, x.tokens, r.y, r.q);
  NeuralProblem<T> m = memory(p, layout, n, x, r, one);
  m.state = state, m.count = count;
  if (outputs) m.o = view(r.m, Size{1}, x.tokens, H, V);
  return neural::forward(m, form_, chunk_, s, kit_.work());
}

template <class T>
Status Context<T>::forward(const ArrangementProblem<T>& p, std::size_t n) {
  const Size tokens = p.sequences[n].end - p.sequences[n].begin;
  std::int64_t* const count = p.memory.count + n;
  const std::int64_t first = *count;
  const NeuralState<T> state = layout_.seq_head(p.memory.state, n);
  for (Size i = 0; i < segments(first, tokens); ++i) {
    const Segment x = segment(first, tokens, i);
    if (const Status status = advance(p, layout_, n, x, x_, state, count, static_cast<bool>(p.o));
        status != Status::ok)
      return status;
    const Sequence at = tokens_at(p, n, x);
    if (p.o) kit_.join(p, x.tokens, x_.y, x_.m, tokens_of(p.o, at));
    const Size kept = std::min(x.tokens, rows_ - x.place);
    const auto keep = [&](const View<const T, 4>& from, int heads, int dim, T* list) {
      T* const to = row_of(list, n, rows_, Size{heads} * dim) + x.place * heads * dim;
      for (Size j = 0; j < kept; ++j)
        for (int h = 0; h < heads; ++h) pack(s, from, 0, j, 1, h, dim, T(1), to + (j * heads + h) * dim);
    };
    if (kept <= 0) continue;
    const Lists<T> l = lists(p, n, x, x_);
    keep(l.k, G, K, p.pairs.k), keep(l.v, G, V, p.pairs.v);
    keep(l.retrieved_k, H, K, p.pairs.retrieved_k), keep(l.retrieved_v, H, V, p.pairs.retrieved_v);
  }
  return Status::ok;
}

template <class T>
Status Context<T>::segment_back(const ArrangementProblem<T>& p, const ArrangementGradient<T>& d,
                                const MemoryLayout& layout, std::size_t n, const Segment& x, const T* state,
                                std::int64_t count) {
  const Sequence at = tokens_at(p, n, x), one{0, 0, x.tokens};
  const Rows r = from(x_, x.begin);
  const Size c = x.tokens, rows = c * H;
  for (T* const zero : {d_.rv, d_.y, d_.v, d_.m, d_.h}) std::fill_n(zero, rows * V, T(0));
  for (T* const zero : {d_.q, d_.k}) std::fill_n(zero, rows * M, T(0));
  std::fill_n(d_.rk, rows * K, T(0));
  if (d.d_o) kit_.join_back(p, d, c, r.y, r.m, tokens_of(d.d_o, at), d_.y, d_.m);

  // The memory, and y through what it reads and learns.
  NeuralProblem<T> m = memory(p, layout, n, x, r, one);
  m.state = layout.at(const_cast<T*>(state)), m.count = &count;  // only read
  const NeuralGradient<T> outer = memory_gradient_of(p, d, layout, n, at);
  NeuralGradient<T> g = outer;
  std::fill_n(d_before_, layout.template numbers<T>(), T(0));
  g.d_final = constant(layout.at(d_state_)), g.d_initial = layout.at(d_before_);
  if (d.d_o) g.d_o = list_of<const T>(d_.m, c, H, V);
  g.d_q = list_of(d_.q, c, H, M), g.d_k = list_of(d_.k, c, H, M), g.d_v = list_of(d_.v, c, H, V);
  if (const Status status = neural::backward(m, g, form_, chunk_, s, kit_.work()); status != Status::ok)
    return status;
  std::swap(d_state_, d_before_);
  kit_.map_back(p.uq, d.d_uq, M, c, r.y, d_.q, d_.y), kit_.map_back(p.uk, d.d_uk, M, c, r.y, d_.k, d_.y);
  kit_.map_back(p.uv, d.d_uv, V, c, r.y, d_.v, d_.y);

  // Pairs: those of the lists, then those of the attention.
  ListGradients<T> to = list_gradients_of(d);
  to.q = tokens_of(d.d_q, at), to.k = tokens_of(d.d_k, at), to.v = tokens_of(d.d_v, at);
  to.retrieved_k = list_of(d_.rk, c, H, K), to.retrieved_v = list_of(d_.rv, c, H, V);
  const Size kept = std::min(c, rows_ - x.place);
  const auto take = [&](T* list, int heads, int dim, const View<T, 4>& d_x) {
    T* const row = list + x.place * heads * dim;
    for (Size j = 0; d_x && j < kept; ++j)
      for (int h = 0; h < heads; ++h) add_rows(s, T(1), row + (j * heads + h) * dim, 0, j, 1, h, dim, d_x);
    std::fill_n(row, kept * heads * dim, T(0));
  };
  if (kept > 0) {
    take(d_k_, G, K, to.k), take(d_v_, G, V, to.v);
    take(d_retrieved_k_, H, K, to.retrieved_k), take(d_retrieved_v_, H, V, to.retrieved_v);
  }
  if (x.place > 0) {
    to.past_k = list_of(d_k_, rows_, G, K), to.past_v = list_of(d_v_, rows_, G, V);
    to.past_retrieved_k = list_of(d_retrieved_k_, rows_, H, K);
    to.past_retrieved_v = list_of(d_retrieved_v_, rows_, H, V);
  }
  if (const Status status = kit_.attend_back(lists(p, n, x, r), c, r.y, r.lse, list_of<const T>(d_.y, c, H, V), to);
      status != Status::ok)
    return status;
  kit_.map_back(p.wk, d.d_wk, K, c, r.h, d_.rk, d_.h), kit_.map_back(p.wv, d.d_wv, V, c, r.h, d_.rv, d_.h);
  retrieval_.back(memory_of(p, layout, n, at, one), before(m.state, x), c, d_.h, before(layout.at(d_state_), x),
                  outer);
  return Status::ok;
}

template <class T>
Status Context<T>::backward(const ArrangementProblem<T>& p, const ArrangementGradient<T>& d, std::size_t n) {
  const Size tokens = p.sequences[n].end - p.sequences[n].begin, numbers = layout_.template numbers<T>();
  const std::int64_t first = p.memory.count[n];
  MemoryLayout layout = layout_;
  layout.weighted = p.memory.state.history_weight;
  layout.save(layout.seq_head(d.memory.d_final, n), d_state_);
  const auto load = [&](const T* list, Size width, T* to) {
    list = row_of(list, n, rows_, width);
    if (list) std::copy_n(list, rows_ * width, to);
    else std::fill_n(to, rows_ * width, T(0));
  };
  load(d.d_final.k, Size{G} * K, d_k_), load(d.d_final.v, Size{G} * V, d_v_);
  load(d.d_final.retrieved_k, Size{H} * K, d_retrieved_k_), load(d.d_final.retrieved_v, Size{H} * V, d_retrieved_v_);

  const auto count_at = [&](const Segment& x) { return first + x.begin; };
  Status worst = Status::ok;
  Size done = 0;
  past_.run(
      segments(first, tokens), true,
      [&](Size i) {
        const Segment x = segment(first, tokens, i);
        std::int64_t count = count_at(x);
        Status status = Status::ok;
        if (i >= done) {
          done = i + 1;
          status = advance(p, layout, n, x, from(x_, x.begin), layout.at(work_), &count, static_cast<bool>(d.d_o));
        } else {
          const Sequence one{0, 0, x.tokens};
          NeuralProblem<T> m = memory(p, layout, n, x, from(x_, x.begin), one);
          m.state = layout.at(work_), m.count = &count;
          status = neural::forward(m, form_, chunk_, s, kit_.work());
        }
        if (worst == Status::ok) worst = status;
      },
      [&](Size, T* slot) { std::copy_n(work_, numbers, slot); },
      [&](Size, const T* slot) {
        if (slot) std::copy_n(slot, numbers, work_);
        else layout.save(layout.seq_head(p.memory.state, n), work_);
      },
      [&](Size i, const T* slot, const T*) {
        if (worst != Status::ok) return;
        if (!slot) layout.save(layout.seq_head(p.memory.state, n), work_);
        const Segment x = segment(first, tokens, i);
        worst = segment_back(p, d, layout, n, x, slot ? slot : work_, count_at(x));
      });
  if (worst != Status::ok) return worst;
  layout.add(s, d_state_, layout.seq_head(d.memory.d_initial, n));
  const auto add = [&](const T* x, Size width, T* to) {
    to = row_of(to, n, rows_, width);
    if (to) s.axpy(rows_ * width, T(1), x, to);
  };
  add(d_k_, Size{G} * K, d.d_initial.k), add(d_v_, Size{G} * V, d.d_initial.v);
  add(d_retrieved_k_, Size{H} * K, d.d_initial.retrieved_k);
  add(d_retrieved_v_, Size{H} * V, d.d_initial.retrieved_v);
  return Status::ok;
}

template class Retrieval<float>;
template class Retrieval<double>;
template class Context<float>;
template class Context<double>;

}  // namespace ttr::families::arrangement
