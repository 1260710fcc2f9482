// Gate and layer: the memory over all tokens of a sequence, attention in a window over all of them.
#include "families/network/arrangement/run.h"

namespace ttr::families::arrangement {

template <class T>
Sliding<T>::Sliding(const Simd<T>& simd, const ArrangementModel& a, Size longest, Form form, int chunk, bool backward,
                    Arena& arena)
    : s(simd),
      a_(a),
      form_(form),
      chunk_(chunk),
      H(a.heads),
      K(a.key_dim),
      V(a.memory.value_dim),
      layout_(memory_layout(a)),
      kit_(simd, a, longest, form, chunk, backward, arena) {
  const Size rows = longest * H;
  m_ = arena.take<T>(rows * V), y_ = arena.take<T>(rows * V), lse_ = arena.take<T>(rows);
  if (layer()) q_ = arena.take<T>(rows * K), k_ = arena.take<T>(rows * K), v_ = arena.take<T>(rows * V);
  if (!backward) return;
  const Size state = layout_.template numbers<T>();
  start_ = arena.take<T>(state), moving_ = arena.take<T>(state), d_start_ = arena.take<T>(a.prefix > 0 ? state : 0);
  d_m_ = arena.take<T>(rows * V);
  if (!layer()) d_y_ = arena.take<T>(rows * V);
  else d_q_ = arena.take<T>(rows * K), d_k_ = arena.take<T>(rows * K), d_v_ = arena.take<T>(rows * V);
}

template <class T>
NeuralProblem<T> Sliding<T>::prefix_of(const ArrangementProblem<T>& p, const Sequence& one, std::size_t n) const {
  NeuralProblem<T> m = memory_of(p, layout_, n, one, one);
  m.q = {};
  m.k = with_batch(p.prefix.k), m.v = with_batch(p.prefix.v), m.rate = with_batch(p.prefix.rate);
  m.momentum = with_batch(p.prefix.momentum), m.decay = with_batch(p.prefix.decay);
  m.gain = with_batch(p.prefix.gain), m.threshold = with_batch(p.prefix.threshold);
  m.weight = with_batch(p.prefix.weight);
  return m;
}

template <class T>
Newest Sliding<T>::list_after(const ArrangementProblem<T>& p, std::size_t n, Size tokens) const {
  const Size seen = static_cast<Size>(p.memory.count[n]);
  return {seen > 0 ? seen - a_.prefix : 0, tokens, pair_rows(a_)};
}

template <class T>
void Sliding<T>::map_answers(const ArrangementProblem<T>& p, Size tokens) {
  kit_.map(p.wq, K, tokens, m_, q_), kit_.map(p.wk, K, tokens, m_, k_), kit_.map(p.wv, V, tokens, m_, v_);
}

template <class T>
Lists<T> Sliding<T>::lists(const ArrangementProblem<T>& p, std::size_t n, const Newest& list) {
  const Sequence& at = p.sequences[n];
  const Size G = a_.pair_heads;
  Lists<T> x = lists_of(p);
  x.window = a_.window, x.past = list.live();
  x.past_k = list_of<const T>(row_of(p.pairs.k, n, list.rows, G * K), list.rows, G, K);
  x.past_v = list_of<const T>(row_of(p.pairs.v, n, list.rows, G * V), list.rows, G, V);
  if (layer()) {
    x.q = list_of<const T>(q_, list.tokens, H, K), x.k = list_of<const T>(k_, list.tokens, H, K);
    x.v = list_of<const T>(v_, list.tokens, H, V);
  } else {
    x.q = tokens_of(p.q, at), x.k = tokens_of(p.k, at), x.v = tokens_of(p.v, at);
  }
  return x;
}

template <class T>
Status Sliding<T>::forward(const ArrangementProblem<T>& p, std::size_t n) {
  const Sequence &at = p.sequences[n], one{0, 0, at.end - at.begin};
  const Size tokens = one.end;
  if (tokens == 0) return Status::ok;
  const Newest list = list_after(p, n, tokens);
  if (begins(p, n, tokens)) {
    const Sequence prefix{0, 0, a_.prefix};
    const Status status = neural::forward(prefix_of(p, prefix, n), form_, chunk_, s, kit_.work());
    if (status != Status::ok) return status;
  }
  NeuralProblem<T> memory = memory_of(p, layout_, n, at, one);
  if (p.o || layer()) memory.o = view(m_, Size{1}, tokens, H, V);
  if (const Status status = neural::forward(memory, form_, chunk_, s, kit_.work()); status != Status::ok)
    return status;
  if (layer()) map_answers(p, tokens);
  const Lists<T> x = lists(p, n, list);
  if (p.o) {
    if (const Status status = kit_.attend(x, tokens, y_, lse_); status != Status::ok) return status;
    const View<T, 4> o = tokens_of(p.o, at);
    if (!layer()) kit_.join(p, tokens, y_, m_, o);
    for (Size t = 0; layer() && t < tokens; ++t)
      for (int h = 0; h < H; ++h) unpack(y_ + (t * H + h) * V, 0, t, 1, h, V, o);
  }
  list.append(s, a_.pair_heads, K, x.k, row_of(p.pairs.k, n, list.rows, Size{a_.pair_heads} * K));
  list.append(s, a_.pair_heads, V, x.v, row_of(p.pairs.v, n, list.rows, Size{a_.pair_heads} * V));
  return Status::ok;
}

template <class T>
Status Sliding<T>::backward(const ArrangementProblem<T>& p, const ArrangementGradient<T>& d, std::size_t n) {
  const Sequence &at = p.sequences[n], one{0, 0, at.end - at.begin}, prefix{0, 0, a_.prefix};
  const Size tokens = one.end, G = a_.pair_heads;
  const bool with_prefix = begins(p, n, tokens);
  const Newest list = list_after(p, n, tokens);
  MemoryLayout layout = layout_;
  layout.weighted = p.memory.state.history_weight;

  // The memory after its prefix, and what it answers.
  NeuralProblem<T> memory = memory_of(p, layout, n, at, one);
  const NeuralState<T> first = memory.state;
  std::int64_t start_count = *memory.count, count = start_count;
  layout.save(memory.state, start_);
  if (with_prefix) {
    NeuralProblem<T> learn = prefix_of(p, prefix, n);
    learn.state = layout.at(start_), learn.count = &start_count;
    if (const Status status = neural::forward(learn, form_, chunk_, s, kit_.work()); status != Status::ok)
      return status;
  }
  const bool answers = tokens > 0 && (d.d_o || layer());
  if (answers) {
    layout.save(layout.at(start_), moving_);
    count = start_count;
    memory.state = layout.at(moving_), memory.count = &count, memory.o = view(m_, Size{1}, tokens, H, V);
    if (const Status status = neural::forward(memory, form_, chunk_, s, kit_.work()); status != Status::ok)
      return status;
    if (layer()) map_answers(p, tokens);
    std::fill_n(d_m_, tokens * H * V, T(0));
  }
  memory.o = {};

  ListGradients<T> to = list_gradients_of(d);
  if (layer()) {
    std::fill_n(d_q_, tokens * H * K, T(0)), std::fill_n(d_k_, tokens * H * K, T(0));
    std::fill_n(d_v_, tokens * H * V, T(0));
    to.q = view(d_q_, Size{1}, tokens, H, K), to.k = view(d_k_, Size{1}, tokens, H, K);
    to.v = view(d_v_, Size{1}, tokens, H, V);
  } else {
    to.q = tokens_of(d.d_q, at), to.k = tokens_of(d.d_k, at), to.v = tokens_of(d.d_v, at);
  }
  T *const d_past_k = row_of(d.d_initial.k, n, list.rows, G * K), *const d_past_v =
                                                                      row_of(d.d_initial.v, n, list.rows, G * V);
  to.past_k = list_of(d_past_k, list.rows, G, K), to.past_v = list_of(d_past_v, list.rows, G, V);
  list.back(s, a_.pair_heads, K, row_of(d.d_final.k, n, list.rows, G * K), to.k, d_past_k);
  list.back(s, a_.pair_heads, V, row_of(d.d_final.v, n, list.rows, G * V), to.v, d_past_v);

  if (d.d_o && tokens > 0) {
    const Lists<T> x = lists(p, n, list);
    if (const Status status = kit_.attend(x, tokens, y_, lse_); status != Status::ok) return status;
    View<const T, 4> d_y = tokens_of(d.d_o, at);
    if (!layer()) {
      kit_.join_back(p, d, tokens, y_, m_, d_y, d_y_, d_m_);
      d_y = list_of<const T>(d_y_, tokens, H, V);
    }
    if (const Status status = kit_.attend_back(x, tokens, y_, lse_, d_y, to); status != Status::ok) return status;
  }
  if (layer()) {
    kit_.map_back(p.wq, d.d_wq, K, tokens, m_, d_q_, d_m_), kit_.map_back(p.wk, d.d_wk, K, tokens, m_, d_k_, d_m_);
    kit_.map_back(p.wv, d.d_wv, V, tokens, m_, d_v_, d_m_);
  }

  NeuralGradient<T> g = memory_gradient_of(p, d, layout, n, at);
  const NeuralState<T> d_first = g.d_initial;
  if (answers) g.d_o = list_of<const T>(d_m_, tokens, H, V);
  memory.state = layout.at(start_), memory.count = &start_count;
  if (with_prefix) {
    std::fill_n(d_start_, layout.template numbers<T>(), T(0));
    g.d_initial = layout.at(d_start_);
  }
  if (const Status status = neural::backward(memory, g, form_, chunk_, s, kit_.work());
      status != Status::ok || !with_prefix)
    return status;

  NeuralProblem<T> learn = prefix_of(p, prefix, n);
  learn.state = first;
  g.d_o = {}, g.d_final = constant(layout.at(d_start_)), g.d_initial = d_first;
  g.d_q = {};
  g.d_k = with_batch(d.d_prefix.k), g.d_v = with_batch(d.d_prefix.v), g.d_rate = with_batch(d.d_prefix.rate);
  g.d_momentum = with_batch(d.d_prefix.momentum), g.d_decay = with_batch(d.d_prefix.decay);
  g.d_gain = with_batch(d.d_prefix.gain), g.d_threshold = with_batch(d.d_prefix.threshold);
  g.d_weight = with_batch(d.d_prefix.weight);
  return neural::backward(learn, g, form_, chunk_, s, kit_.work());
}

template class Sliding<float>;
template class Sliding<double>;

}  // namespace ttr::families::arrangement
