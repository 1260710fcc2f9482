// Forward. A piece never crosses the start of a block, so its gradients are taken at one point; a moving piece never
// crosses a step either. `count` says where in its block and its step a piece begins.
#include "families/network/neural/head.h"

#include <algorithm>
#include <cmath>

namespace ttr::families::neural {

/// Weights of heads that go side by side: 256 KB.
template <class T>
constexpr std::ptrdiff_t side_by_side = (1 << 18) / sizeof(T);

Cutting::Cutting(const NeuralModel& m, Form form, int chunk) {
  if (form == Form::step || form == Form::recurrent) return;
  largest = chunk > 0 ? chunk : 64;
  dual = m.orthogonalise == Orthogonalise::none && !m.row_norm && !m.maps() && !m.lazy && !m.decayed_point &&
         m.window == 1;
}

std::ptrdiff_t Cutting::next(const NeuralModel& m, std::int64_t count, std::ptrdiff_t left) const {
  std::ptrdiff_t c = std::min(largest, left);
  if (m.batch > 0) c = std::min<std::ptrdiff_t>(c, m.batch - count % m.batch);
  if (!dual) c = std::min<std::ptrdiff_t>(c, m.step_every - count % m.step_every);
  return c;
}

std::ptrdiff_t Cutting::next_unit(const NeuralModel& m, std::int64_t count, std::ptrdiff_t left) const {
  return dual ? next(m, count, left) : std::min<std::ptrdiff_t>(left, m.step_every - count % m.step_every);
}

std::ptrdiff_t Cutting::units(const NeuralModel& m, std::ptrdiff_t longest) const {
  if (!dual) return std::min(longest, longest / m.step_every + 2);  // a step never crosses a batch
  if (m.batch == 0) return (longest + largest - 1) / largest;
  return std::min(longest, (longest / m.batch + 2) * ((m.batch + largest - 1) / largest));
}

bool Cutting::fresh_units(const NeuralModel& m) const {
  return dual ? m.batch > 0 && m.batch <= largest : m.batch == m.step_every;
}

std::ptrdiff_t Cutting::rows(const NeuralModel& m, std::ptrdiff_t longest) const {
  std::ptrdiff_t c = std::min(largest, longest);
  if (m.batch > 0) c = std::min<std::ptrdiff_t>(c, m.batch);
  if (!dual) c = std::min<std::ptrdiff_t>(c, m.step_every);
  return std::max<std::ptrdiff_t>({c, m.window, 1});
}

template <class T>
Head<T>::Head(const Simd<T>& simd, const NeuralModel& model, const Cutting& cut, Size longest, bool backward,
              Arena& arena)
    : s(simd),
      m(model),
      cut_(cut),
      rows_(cut.rows(model, longest)),
      net_(simd, model, rows_, backward, arena),
      schedule_(simd, model, cut.dual ? rows_ : 0, backward, arena),
      steps_(simd, model, net_.layout(), backward, arena),
      keys_(net_.take_keys(arena)),
      read_(net_.take_rows(arena)),
      size_(net_.layout().size),
      state_size_(Place<T>::numbers(model, size_)),
      together_(backward || rows_ < 8 ? 1 : static_cast<int>(std::clamp<Size>(side_by_side<T> / size_, 1, 8))) {
  if (simd.name) rows_simd_ = &neural_simd(simd);
  const int V = m.value_dim;
  v_ = arena.take<T>(rows_ * V), o_ = arena.take<T>(rows_ * V);
  rates_ = arena.take<T>(rows_ * m.rates), token_rates_ = arena.take<T>(m.rates), weights_ = arena.take<T>(rows_);
  threshold_ = arena.take<T>(rows_), own_gain_ = arena.take<T>(rows_), move_ = arena.take<T>(size_);
  gates_ = {arena.take<T>(rows_), arena.take<T>(rows_), arena.take<T>(rows_), {}};
  state_ = arena.take<T>(together_ * state_stride()), norms_ = arena.take<T>(2 * V * together_);
  used_ = arena.take<T>(m.maps() ? size_ : 0);
  used_point_ = arena.take<T>(m.maps() || m.decayed_point ? 2 * size_ : 0);
  if (!backward) return;
  cot_ = net_.take_cotangents(arena);
  d_gates_ = {arena.take<T>(rows_), arena.take<T>(rows_), arena.take<T>(rows_), {}};
  d_q_ = arena.take<T>(rows_ * m.key_dim), d_v_ = arena.take<T>(rows_ * V), d_o_ = arena.take<T>(rows_ * V);
  d_rates_ = arena.take<T>(rows_ * m.rates), d_threshold_ = arena.take<T>(rows_);
  d_state_ = arena.take<T>(state_size_), d_move_ = arena.take<T>(size_), held_ = arena.take<T>(state_size_);
  work_ = arena.take<T>(state_size_);
  d_used_ = arena.take<T>(m.maps() || m.decayed_point ? 2 * size_ : 0);
  begins_ = arena.take<Size>(cut.units(model, longest) + 1);
}

template <class T>
typename Head<T>::Span Head<T>::span(const NeuralProblem<T>& p, std::size_t n, int head, Size begin,
                                     Size tokens) const {
  const Sequence& sequence = p.sequences[n];
  return {p, n, head, sequence.row, begin, tokens, p.count[n] + begin - sequence.begin};
}

template <class T>
typename Head<T>::Step Head<T>::step_of(const T* sums) const {
  const T every = static_cast<T>(m.step_every);
  return {decay_factor(m.decay, sums[1] / every), sums[0] / every};
}

template <class T>
void Head<T>::load_norms(const NeuralProblem<T>& p, int head, int slot) {
  const int V = m.value_dim;
  T *const w = norms_ + 2 * V * slot, *const c = w + V;
  for (int j = 0; j < V; ++j) {
    w[j] = p.norm_weight ? p.norm_weight(head, j) : T(1);
    c[j] = p.norm_bias ? p.norm_bias(head, j) : T(0);
  }
}

template <class T>
void Head<T>::enter(const NeuralProblem<T>& p, std::size_t n, int head, int slot) {
  net_.norm_weight = norms_ + 2 * m.value_dim * slot, net_.norm_bias = net_.norm_weight + m.value_dim;
  const Size seq_head = static_cast<Size>(n) * p.heads + head;
  const NeuralLayout& layout = net_.layout();
  for (int j = 0; j < layout.matrices && m.row_norm; ++j) {
    const int part = layout.matrix(j);
    steps_.norms[j] = p.norms[part] + seq_head * layout.part[part].out;
  }
}

template <class T>
std::ptrdiff_t Head<T>::history_slot(const Span& x, Size token) const {
  return m.window - 1 - (x.p.sequences[x.n].begin - token);
}

template <class T>
std::ptrdiff_t Head<T>::load_keys(const Span& x) {
  const NeuralProblem<T>& p = x.p;
  const int K = m.key_dim, V = m.value_dim, shared = x.head / (p.heads / p.key_heads);
  const Size keys = m.window > 1 ? std::min<Size>(m.window, x.count + 1) : x.tokens;
  const Size past = std::max<Size>(0, p.sequences[x.n].begin - key_token(x, keys, 0));  // rows of the history
  for (Size i = 0; i < past; ++i) {
    const Size slot = static_cast<Size>(x.n) * (m.window - 1) + history_slot(x, key_token(x, keys, i));
    std::copy_n(p.state.history_k + (slot * p.key_heads + shared) * K, K, keys_.x[0] + i * K);
    std::copy_n(p.state.history_v + (slot * p.heads + x.head) * V, V, v_ + i * V);
    weights_[i] = p.state.history_weight ? p.state.history_weight[slot * p.heads + x.head] : T(1);
  }
  const Size first = key_token(x, keys, past), left = keys - past;
  pack(s, p.k, x.row, first, left, shared, K, T(1), keys_.x[0] + past * K);
  pack(s, p.v, x.row, first, left, x.head, V, T(1), v_ + past * V);
  const bool huber = m.loss == Loss::huber || m.loss == Loss::huber_coordinate || m.loss == Loss::huber_sign;
  for (Size i = 0; huber && i < keys; ++i) threshold_[i] = p.threshold(x.row, x.begin + i, x.head);
  if (m.window == 1) {
    if (!p.rate) std::fill_n(rates_, keys * m.rates, T(1));
    for (Size i = 0; p.rate && i < keys; ++i)
      for (int r = 0; r < m.rates; ++r) rates_[i * m.rates + r] = p.rate(x.row, x.begin + i, x.head, r);
    return keys;
  }
  for (Size i = 0; i < left; ++i) weights_[past + i] = p.weight ? p.weight(x.row, first + i, x.head) : T(1);
  for (int r = 0; r < m.rates; ++r) {
    token_rates_[r] = p.rate ? p.rate(x.row, x.begin, x.head, r) : T(1);
    for (Size i = 0; i < keys; ++i) rates_[i * m.rates + r] = token_rates_[r] * weights_[i];
  }
  return keys;
}

template <class T>
void Head<T>::load_gates(const Span& x) {
  const NeuralProblem<T>& p = x.p;
  const Size n = x.tokens;
  const auto load = [&](const View<const T, 3>& from, T absent, T* to) {
    if (!from) std::fill_n(to, n, absent);
    for (Size i = 0; from && i < n; ++i) to[i] = from(x.row, x.begin + i, x.head);
  };
  load(m.momentum ? p.momentum : View<const T, 3>{}, T(0), gates_.momentum);
  load(m.decay != Decay::none ? p.decay : View<const T, 3>{}, T(0), gates_.decay);
  if (m.block) {
    load(p.gain, T(1), own_gain_);
    std::copy_n(own_gain_, n, gates_.gain);
    Size place = x.count % m.batch;
    for (Size i = 0; p.position_gain && i < n; ++i, place = place + 1 < m.batch ? place + 1 : 0)
      gates_.gain[i] *= p.position_gain(x.head, place);
  }
  gates_.sums[0] = gates_.sums[1] = 0;
}

/// The tokens after those of a piece, or before it, on their way into the cache while it is worked on: rows of one head
/// lie far apart, and the hardware does not see them coming.
template <class T>
void Head<T>::fetch(const Span& x, bool next, const View<const T, 4>& from, int head, int dim) const {
  const Sequence& sequence = x.p.sequences[x.n];
  const Size n = std::min(x.tokens, next ? sequence.end - x.begin - x.tokens : x.begin - sequence.begin);
  if (n <= 0 || !from || from.stride[3] != 1) return;
  rows_simd_->fetch(n, dim, &from(x.row, next ? x.begin + x.tokens : x.begin - n, head, 0), from.stride[1]);
}

template <class T>
void Head<T>::load_queries(const Span& x) {
  pack(s, x.p.q, x.row, x.begin, x.tokens, x.head / (x.p.heads / x.p.key_heads), m.key_dim, x.p.scale, read_.x[0]);
}

/// A new block starts from the weights as they are.
template <class T>
void Head<T>::start_block(const Span& x, const Place<T>& S) const {
  if (!fresh(x)) return;
  if (S.A) std::copy_n(S.W, size_, S.A);
  if (m.block && !cut_.dual) std::fill_n(S.Z, size_, T(0));  // a dual piece writes it
}

template <class T>
Mix<T> Head<T>::mix_of(const Place<const T>& S, const T* point, bool is_fresh) const {
  Mix<T> mix;
  mix.W = m.block ? point : S.W;
  if (m.decay != Decay::none) mix.a = schedule_.a;
  if (m.momentum || (m.block && !is_fresh)) mix.Z = S.Z, mix.b = schedule_.b;
  if (S.P) mix.P = S.P, mix.c = schedule_.c;
  mix.gamma = schedule_.gamma(), mix.ld = schedule_.ld, mix.keys = &keys_;
  return mix;
}

template <class T>
void Head<T>::dual(const Span& x, const Place<T>& S, bool outputs) {
  const Size n = x.tokens;
  const Place<const T> old(m, size_, S.W);
  load_keys(x);
  load_gates(x);
  if (!whole(x)) start_block(x, S);
  const T* const point = S.A && !whole(x) ? S.A : S.W;
  const int shared = x.head / (x.p.heads / x.p.key_heads);
  fetch(x, true, x.p.k, shared, m.key_dim);
  net_.learn(n, keys_, point, v_, threshold_, rates_);
  fetch(x, true, x.p.v, x.head, m.value_dim);
  if (S.sums) std::copy_n(S.sums, 2, gates_.sums);
  schedule_.run(n, x.count, gates_);
  if (S.sums) std::copy_n(gates_.sums, 2, S.sums);
  if (outputs) {
    load_queries(x);
    fetch(x, true, x.p.q, shared, m.key_dim);
    net_.read(n, read_, mix_of(old, point, fresh(x)), o_);
    unpack(o_, x.row, x.begin, n, x.head, m.value_dim, x.p.o);
    fetch(x, true, x.p.o, x.head, m.value_dim);
  }
  if (whole(x)) return net_.gather(n, keys_, gates_.gain[n - 1], nullptr, T(1), S.W);
  if (m.block) {
    net_.gather(n, keys_, T(1), nullptr, fresh(x) ? T(0) : T(1), S.Z);
    if (!fresh(x)) std::copy_n(S.A, size_, S.W);
    s.axpy(size_, gates_.gain[n - 1], S.Z, S.W);
    return;
  }
  const T *const w = schedule_.last, *const z = w + schedule_.ld, *const p = z + schedule_.ld;
  const bool plain = !S.Z && !S.P && m.decay == Decay::none;
  net_.gather(n, keys_, T(1), plain ? nullptr : w + 3, w[0], S.W);
  if (S.Z) s.axpy(size_, w[1], S.Z, S.W);
  if (S.P) s.axpy(size_, w[2], S.P, S.W);
  if (S.Z) net_.gather(n, keys_, T(1), z + 3, z[1], S.Z);
  if (S.Z && S.P) s.axpy(size_, z[2], S.P, S.Z);
  if (S.P) net_.gather(n, keys_, T(1), p + 3, p[2], S.P);
}

template <class T>
const T* Head<T>::gradient_point(const Place<const T>& S, bool is_fresh) {
  const T* point = is_fresh || !S.A ? S.W : S.A;
  if (m.decayed_point) {
    s.scale(size_, decay_factor(m.decay, gates_.decay[0]), point, used_point_);
    point = used_point_;
  }
  return steps_.in_use(point, used_point_ + size_);
}

/// Rows [from, to) of the piece's queries at the weights W.
template <class T>
void Head<T>::read_rows(Size from, Size to, const T* W) {
  if (from == to) return;
  Rows<T> rows = read_;
  rows.x[0] += from * m.key_dim;
  Mix<T> mix;
  mix.W = steps_.in_use(W, used_);
  net_.read(to - from, rows, mix, o_ + from * m.value_dim);
}

template <class T>
void Head<T>::moving(const Span& x, const Place<T>& S, bool outputs) {
  load_gates(x);
  if (due(x)) {
    const Step step = step_of(S.sums);
    steps_.chain({S.W, S.Z, S.P}, step.a, step.m);
    std::fill_n(S.P, size_, T(0)), std::fill_n(S.sums, 2, T(0));
  }
  start_block(x, S);
  const Size keys = load_keys(x), before = early(x);
  if (outputs) {
    load_queries(x);
    read_rows(0, before, S.W);
  }
  net_.learn(keys, keys_, gradient_point(Place<const T>(m, size_, S.W), fresh(x)), v_, threshold_, rates_);
  T* const P = S.P ? S.P : move_;
  net_.gather(keys, keys_, T(1), nullptr, S.P ? T(1) : T(0), P);
  T own[2] = {0, 0};
  T* const sums = S.sums ? S.sums : own;
  for (Size i = 0; i < x.tokens; ++i) sums[0] += gates_.momentum[i], sums[1] += gates_.decay[i];
  if (complete(x)) {
    const Step step = step_of(sums);
    if (m.block) steps_.block({S.W, S.Z, P}, S.A, gates_.gain[0]);
    else steps_.chain({S.W, S.Z, P}, step.a, step.m);
    if (S.P) std::fill_n(S.P, size_, T(0)), std::fill_n(S.sums, 2, T(0));
  }
  if (!outputs) return;
  read_rows(before, x.tokens, S.W);
  unpack(o_, x.row, x.begin, x.tokens, x.head, m.value_dim, x.p.o);
}

template <class T>
void Head<T>::piece(const Span& x, T* state, bool outputs) {
  const Place<T> S(m, size_, state);
  if (cut_.dual) dual(x, S, outputs);
  else moving(x, S, outputs);
}

template <class T>
void Head<T>::forward(const NeuralProblem<T>& p, std::size_t n, int head, int heads) {
  const Sequence& sequence = p.sequences[n];
  const auto each_head = [&](auto&& f) {
    for (int i = 0; i < heads; ++i) f(i, static_cast<Size>(n) * p.heads + head + i, state_ + i * state_stride());
  };
  each_head([&](int i, Size seq_head, T* state) {
    load_norms(p, head + i, i);
    each_part(net_.layout(), Place<T>(m, size_, state), p.state, seq_head,
              [](Size count, T* x, const T* from) { std::copy_n(from, count, x); });
  });
  for (Size t = sequence.begin; t < sequence.end;) {
    const Size c = cut_.next(m, p.count[n] + t - sequence.begin, sequence.end - t);
    each_head([&](int i, Size, T* state) {
      enter(p, n, head + i, i);
      piece(span(p, n, head + i, t, c), state, static_cast<bool>(p.o));
    });
    t += c;
  }
  each_head([&](int, Size seq_head, T* state) {
    each_part(net_.layout(), Place<T>(m, size_, state), p.state, seq_head,
              [](Size count, const T* x, T* to) { std::copy_n(x, count, to); });
  });
}

template class Head<float>;
template class Head<double>;

}  // namespace ttr::families::neural
