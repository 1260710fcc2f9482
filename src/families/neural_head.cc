// Forward. A piece never crosses the start of a block, so its gradients are taken at one point; a moving piece never
// crosses a step either. `count` says where in its block and its step a piece begins.
#include "families/neural_head.h"

#include <algorithm>
#include <cmath>

namespace ttr::families::neural {

Cutting::Cutting(const NeuralModel& m, Form form, int chunk) {
  if (form == Form::step || form == Form::recurrent) return;
  largest = chunk > 0 ? chunk : 64;
  dual = m.orthogonalise == Orthogonalise::none && !m.row_norm && m.q_norm == 0 && !m.lazy && !m.decayed_point &&
         m.window == 1;
}

std::ptrdiff_t Cutting::next(const NeuralModel& m, std::int64_t count, std::ptrdiff_t left) const {
  std::ptrdiff_t c = std::min(largest, left);
  if (m.batch > 0) c = std::min<std::ptrdiff_t>(c, m.batch - count % m.batch);
  if (!dual) c = std::min<std::ptrdiff_t>(c, m.step_every - count % m.step_every);
  return c;
}

std::ptrdiff_t Cutting::pieces(const NeuralModel& m, std::ptrdiff_t longest) const {
  const std::ptrdiff_t period = dual ? m.batch : m.step_every;  // a step never crosses a batch
  if (period == 0) return (longest + largest - 1) / largest;
  return std::min(longest, (longest / period + 2) * ((period + largest - 1) / largest));
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
      state_size_(Place<T>::numbers(model, size_)) {
  const int V = m.value_dim;
  v_ = arena.take<T>(rows_ * V), o_ = arena.take<T>(rows_ * V);
  rates_ = arena.take<T>(rows_ * m.rates), token_rates_ = arena.take<T>(m.rates), weights_ = arena.take<T>(rows_);
  threshold_ = arena.take<T>(rows_), own_gain_ = arena.take<T>(rows_), move_ = arena.take<T>(size_);
  gates_ = {arena.take<T>(rows_), arena.take<T>(rows_), arena.take<T>(rows_), {}};
  state_ = arena.take<T>(state_size_);
  used_ = arena.take<T>(m.q_norm != 0 ? size_ : 0);
  used_point_ = arena.take<T>(m.q_norm != 0 || m.decayed_point ? 2 * size_ : 0);
  if (!backward) return;
  cot_ = net_.take_cotangents(arena);
  d_gates_ = {arena.take<T>(rows_), arena.take<T>(rows_), arena.take<T>(rows_), {}};
  d_q_ = arena.take<T>(rows_ * m.key_dim), d_v_ = arena.take<T>(rows_ * V), d_o_ = arena.take<T>(rows_ * V);
  d_rates_ = arena.take<T>(rows_ * m.rates), d_threshold_ = arena.take<T>(rows_);
  d_state_ = arena.take<T>(state_size_), d_move_ = arena.take<T>(size_), held_ = arena.take<T>(state_size_);
  d_used_ = arena.take<T>(m.q_norm != 0 || m.decayed_point ? 2 * size_ : 0);
  begins_ = arena.take<Size>(cut.pieces(model, longest) + 1);
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

/// Constants of a head, and where its lengths are.
template <class T>
void Head<T>::enter(const NeuralProblem<T>& p, std::size_t n, int head) {
  for (int j = 0; j < m.value_dim; ++j) {
    net_.norm_weight[j] = p.norm_weight ? p.norm_weight(head, j) : T(1);
    net_.norm_bias[j] = p.norm_bias ? p.norm_bias(head, j) : T(0);
  }
  const Size lane = static_cast<Size>(n) * p.heads + head;
  const NeuralLayout& layout = net_.layout();
  for (int j = 0; j < layout.matrices && m.row_norm; ++j) {
    const int part = layout.matrix(j);
    steps_.norms[j] = p.norms[part] + lane * layout.part[part].out;
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
  for (Size i = 0; i < left; ++i) weights_[past + i] = p.weight ? p.weight(x.row, first + i, x.head) : T(1);
  const bool huber = m.loss == Loss::huber || m.loss == Loss::huber_coordinate || m.loss == Loss::huber_sign;
  for (Size i = 0; i < keys; ++i) threshold_[i] = huber ? p.threshold(x.row, x.begin + i, x.head) : T(0);
  for (Size i = 0; i < keys; ++i)
    for (int r = 0; r < m.rates; ++r) {
      const T rate = p.rate ? p.rate(x.row, m.window > 1 ? x.begin : x.begin + i, x.head, r) : T(1);
      if (m.window > 1) token_rates_[r] = rate;
      rates_[i * m.rates + r] = m.window > 1 ? rate * weights_[i] : rate;
    }
  return keys;
}

template <class T>
void Head<T>::load_gates(const Span& x) {
  const NeuralProblem<T>& p = x.p;
  for (Size i = 0; i < x.tokens; ++i) {
    const Size t = x.begin + i;
    gates_.momentum[i] = m.momentum ? p.momentum(x.row, t, x.head) : T(0);
    gates_.decay[i] = m.decay != Decay::none ? p.decay(x.row, t, x.head) : T(0);
    own_gain_[i] = p.gain && m.block ? p.gain(x.row, t, x.head) : T(1);
    gates_.gain[i] = own_gain_[i];
    if (m.block && p.position_gain) gates_.gain[i] *= p.position_gain(x.head, (x.count + i) % m.batch);
  }
  gates_.sums[0] = gates_.sums[1] = 0;
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
  start_block(x, S);
  const T* const point = S.A ? S.A : S.W;
  net_.learn(n, keys_, point, v_, threshold_);
  net_.weigh(n, keys_, rates_, m.rates);
  if (S.sums) std::copy_n(S.sums, 2, gates_.sums);
  schedule_.run(n, x.count, gates_);
  if (S.sums) std::copy_n(gates_.sums, 2, S.sums);
  if (outputs) {
    load_queries(x);
    net_.read(n, read_, mix_of(old, point, fresh(x)), o_);
    unpack(o_, x.row, x.begin, n, x.head, m.value_dim, x.p.o);
  }
  if (m.block) {
    net_.gather(n, keys_, nullptr, fresh(x) ? T(0) : T(1), S.Z);
    if (!fresh(x)) std::copy_n(S.A, size_, S.W);
    s.axpy(size_, gates_.gain[n - 1], S.Z, S.W);
    return;
  }
  const T *const w = schedule_.last, *const z = w + schedule_.ld, *const p = z + schedule_.ld;
  const bool plain = !S.Z && !S.P && m.decay == Decay::none;
  net_.gather(n, keys_, plain ? nullptr : w + 3, w[0], S.W);
  if (S.Z) s.axpy(size_, w[1], S.Z, S.W);
  if (S.P) s.axpy(size_, w[2], S.P, S.W);
  if (S.Z) net_.gather(n, keys_, z + 3, z[1], S.Z);
  if (S.Z && S.P) s.axpy(size_, z[2], S.P, S.Z);
  if (S.P) net_.gather(n, keys_, p + 3, p[2], S.P);
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
  net_.learn(keys, keys_, gradient_point(Place<const T>(m, size_, S.W), fresh(x)), v_, threshold_);
  net_.weigh(keys, keys_, rates_, m.rates);
  T* const P = S.P ? S.P : move_;
  net_.gather(keys, keys_, nullptr, S.P ? T(1) : T(0), P);
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
void Head<T>::forward(const NeuralProblem<T>& p, std::size_t n, int head) {
  const Sequence& sequence = p.sequences[n];
  const Size lane = static_cast<Size>(n) * p.heads + head;
  const Place<T> S(m, size_, state_);
  enter(p, n, head);
  each_part(net_.layout(), S, p.state, lane, [](Size count, T* x, const T* from) { std::copy_n(from, count, x); });
  for (Size t = sequence.begin; t < sequence.end;) {
    const Size c = cut_.next(m, p.count[n] + t - sequence.begin, sequence.end - t);
    piece(span(p, n, head, t, c), state_, static_cast<bool>(p.o));
    t += c;
  }
  each_part(net_.layout(), S, p.state, lane, [](Size count, const T* x, T* to) { std::copy_n(x, count, to); });
}

template class Head<float>;
template class Head<double>;

}  // namespace ttr::families::neural
