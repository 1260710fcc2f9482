// Backward over pieces, last to first. d_state_ holds the cotangent of the state after a piece and then before it;
// the piece itself is computed again from the state before it.
#include <algorithm>
#include <cmath>

#include "families/neural_head.h"

namespace ttr::families::neural {

/// Cotangents that a piece adds to.
template <class T>
void Head<T>::clear(Size keys, Size tokens) {
  const NeuralLayout& layout = net_.layout();
  for (int j = 0; j < layout.matrices; ++j) {
    const NeuralLayout::Part& w = layout.part[layout.matrix(j)];
    std::fill_n(cot_.update[j], keys * w.out, T(0));
    if (j < m.depth) std::fill_n(cot_.x[j], keys * w.in, T(0));
  }
  if (m.norm == Norm::learned) std::fill_n(cot_.scale_update, keys * m.value_dim, T(0));
  std::fill_n(d_v_, keys * m.value_dim, T(0)), std::fill_n(d_threshold_, keys, T(0));
  std::fill_n(d_rates_, keys * m.rates, T(0));
  std::fill_n(d_gates_.momentum, tokens, T(0)), std::fill_n(d_gates_.decay, tokens, T(0));
  std::fill_n(d_gates_.gain, tokens, T(0));
  d_gates_.sums[0] = d_gates_.sums[1] = 0;
  std::fill_n(net_.d_norm_weight, m.value_dim, T(0)), std::fill_n(net_.d_norm_bias, m.value_dim, T(0));
}

template <class T>
std::ptrdiff_t Head<T>::dual_back(const Span& x, bool answers, const Place<const T>& old, const Place<const T>& now) {
  const Size n = x.tokens;
  const bool is_fresh = fresh(x);
  const Place<T> D(m, size_, d_state_);
  clear(n, n);
  load_keys(x), load_gates(x);
  const T* const point = is_fresh || !old.A ? old.W : old.A;
  net_.learn(n, keys_, point, v_, threshold_);
  net_.weigh(n, keys_, rates_, m.rates);
  if (old.sums) std::copy_n(old.sums, 2, gates_.sums);
  schedule_.run(n, x.count, gates_);
  schedule_.clear(n);

  // From the state after the piece.
  if (m.block) {
    d_gates_.gain[n - 1] += s.dot(size_, now.Z, D.W);
    s.axpy(size_, gates_.gain[n - 1], D.W, D.Z);
    s.axpy(size_, T(1), D.W, D.A);
    std::fill_n(D.W, size_, T(0));
    net_.gather_back(n, keys_, nullptr, D.Z, cot_, nullptr);
  } else {
    const Size ld = schedule_.ld;
    const T *const w = schedule_.last, *const z = w + ld, *const p = z + ld;
    T *const d_w = schedule_.d_last, *const d_z = d_w + ld, *const d_p = d_z + ld;
    const bool plain = !D.Z && !D.P && m.decay == Decay::none;
    net_.gather_back(n, keys_, plain ? nullptr : w + 3, D.W, cot_, plain ? nullptr : d_w + 3);
    if (!plain) d_w[0] += s.dot(size_, old.W, D.W);
    if (D.Z) {
      net_.gather_back(n, keys_, z + 3, D.Z, cot_, d_z + 3);
      d_w[1] += s.dot(size_, old.Z, D.W), d_z[1] += s.dot(size_, old.Z, D.Z);
    }
    if (D.P) {
      net_.gather_back(n, keys_, p + 3, D.P, cot_, d_p + 3);
      d_w[2] += s.dot(size_, old.P, D.W), d_p[2] += s.dot(size_, old.P, D.P);
      if (D.Z) d_z[2] += s.dot(size_, old.P, D.Z);
      s.scale(size_, p[2], D.P, D.P);
      s.axpy(size_, w[2], D.W, D.P);
      if (D.Z) s.axpy(size_, z[2], D.Z, D.P);
    }
    if (D.Z) s.scale(size_, z[1], D.Z, D.Z), s.axpy(size_, w[1], D.W, D.Z);
    if (!plain) s.scale(size_, w[0], D.W, D.W);
  }
  // Where the piece starts a block, A is W.
  if (D.A && is_fresh) s.axpy(size_, T(1), D.A, D.W), std::fill_n(D.A, size_, T(0));
  T* const d_point = D.A && !is_fresh ? D.A : D.W;

  if (answers) {
    load_queries(x);
    const Mix<T> mix = mix_of(old, point, is_fresh);
    MixCotangent<T> d;
    d.W = m.block ? d_point : D.W;
    if (mix.a) d.a = schedule_.d_a;
    if (mix.Z) d.Z = D.Z, d.b = schedule_.d_b;
    if (mix.P) d.P = D.P, d.c = schedule_.d_c;
    d.gamma = schedule_.d_gamma(), d.ld = schedule_.ld, d.keys = &cot_;
    net_.read(n, read_, mix, o_);
    net_.read_back(n, read_, mix, d, d_o_, d_q_);
  }
  if (m.block && is_fresh) std::fill_n(D.Z, size_, T(0));

  net_.weigh_back(n, keys_, rates_, m.rates, cot_, d_rates_);
  net_.learn_back(n, keys_, point, threshold_, cot_, d_point, d_v_, d_threshold_);
  if (D.sums) std::copy_n(D.sums, 2, d_gates_.sums);
  schedule_.back(n, x.count, d_gates_);
  if (D.sums) std::copy_n(d_gates_.sums, 2, D.sums);
  return n;
}

template <class T>
void Head<T>::read_rows_back(Size from, Size to, const T* W, T* d_W) {
  if (from == to) return;
  Rows<T> rows = read_;
  rows.x[0] += from * m.key_dim;
  Mix<T> mix;
  MixCotangent<T> d;
  mix.W = steps_.in_use(W, used_);
  d.W = m.q_norm != 0 ? d_used_ : d_W;
  if (m.q_norm != 0) std::fill_n(d_used_, size_, T(0));
  net_.read(to - from, rows, mix, o_ + from * m.value_dim);
  net_.read_back(to - from, rows, mix, d, d_o_ + from * m.value_dim, d_q_ + from * m.key_dim);
  if (m.q_norm != 0) steps_.in_use_back(W, d_used_, d_W);
}

template <class T>
std::ptrdiff_t Head<T>::moving_back(const Span& x, bool answers, const Place<const T>& before,
                                    const Place<const T>& after) {
  const bool is_fresh = fresh(x), is_due = due(x), done = complete(x);
  const Place<T> D(m, size_, d_state_), held(m, size_, held_);
  load_gates(x);
  // The state once a lazy step is taken and a new block has begun.
  std::copy_n(before.W, state_size_, held_);
  const Step late = is_due ? step_of(before.sums) : Step{1, 0};
  if (is_due) {
    steps_.chain({held.W, held.Z, held.P}, late.a, late.m);
    std::fill_n(held.P, size_, T(0)), std::fill_n(held.sums, 2, T(0));
  }
  start_block(x, held);
  const Size keys = load_keys(x), first = early(x);
  clear(keys, x.tokens);
  const T* const plain_point = held.A ? held.A : held.W;
  const T* const point = gradient_point(Place<const T>(m, size_, held_), is_fresh);
  net_.learn(keys, keys_, point, v_, threshold_);
  net_.weigh(keys, keys_, rates_, m.rates);
  if (held.P) std::copy_n(held.P, size_, move_);
  net_.gather(keys, keys_, nullptr, held.P ? T(1) : T(0), move_);

  if (answers) load_queries(x), read_rows_back(first, x.tokens, after.W, D.W);
  T* const d_P = D.P ? D.P : d_move_;
  if (D.sums) std::copy_n(D.sums, 2, d_gates_.sums);
  if (done && m.block) {
    steps_.block_back({held.W, held.Z, move_}, gates_.gain[0], {D.W, D.Z, d_P}, D.A, d_gates_.gain);
  } else if (done) {
    T sums[2] = {held.sums ? held.sums[0] : T(0), held.sums ? held.sums[1] : T(0)}, d_a = 0, d_m = 0;
    for (Size i = 0; i < x.tokens; ++i) sums[0] += gates_.momentum[i], sums[1] += gates_.decay[i];
    const Step step = step_of(sums);
    steps_.chain_back({held.W, held.Z, move_}, step.a, step.m, {D.W, D.Z, d_P}, &d_a, &d_m);
    d_gates_.sums[0] = m.momentum ? d_m / static_cast<T>(m.step_every) : T(0);
    d_gates_.sums[1] = d_a * decay_slope(m.decay, step.a) / static_cast<T>(m.step_every);
  }
  for (Size i = 0; i < x.tokens; ++i) d_gates_.momentum[i] += d_gates_.sums[0], d_gates_.decay[i] += d_gates_.sums[1];
  if (answers) read_rows_back(0, first, held.W, D.W);

  net_.gather_back(keys, keys_, nullptr, d_P, cot_, nullptr);
  net_.weigh_back(keys, keys_, rates_, m.rates, cot_, d_rates_);
  T* const d_plain = D.A ? D.A : D.W;
  if (m.q_norm == 0 && !m.decayed_point) {
    net_.learn_back(keys, keys_, point, threshold_, cot_, d_plain, d_v_, d_threshold_);
  } else {
    T *const d_point = d_used_, *const d_decayed = d_used_ + size_;
    std::fill_n(d_used_, 2 * size_, T(0));
    net_.learn_back(keys, keys_, point, threshold_, cot_, d_point, d_v_, d_threshold_);
    const T* d = d_point;
    if (m.q_norm != 0)
      steps_.in_use_back(m.decayed_point ? used_point_ : plain_point, d_point, d_decayed), d = d_decayed;
    T factor = 1;
    if (m.decayed_point) {
      factor = decay_factor(m.decay, gates_.decay[0]);
      d_gates_.decay[0] += s.dot(size_, d, plain_point) * decay_slope(m.decay, factor);
    }
    s.axpy(size_, factor, d, d_plain);
  }
  if (D.A && is_fresh) s.axpy(size_, T(1), D.A, D.W), std::fill_n(D.A, size_, T(0));
  if (m.block && is_fresh) std::fill_n(D.Z, size_, T(0));
  if (is_due) {
    T d_a = 0, d_m = 0;
    steps_.chain_back({before.W, before.Z, before.P}, late.a, late.m, {D.W, D.Z, D.P}, &d_a, &d_m);
    d_gates_.sums[0] = m.momentum ? d_m / static_cast<T>(m.step_every) : T(0);
    d_gates_.sums[1] = d_a * decay_slope(m.decay, late.a) / static_cast<T>(m.step_every);
  }
  if (D.sums) std::copy_n(d_gates_.sums, 2, D.sums);
  return keys;
}

template <class T>
void Head<T>::add_gradients(const Span& x, const NeuralGradient<T>& d, Size keys, bool answers) {
  const NeuralProblem<T>& p = x.p;
  const int K = m.key_dim, V = m.value_dim, shared = x.head / (p.heads / p.key_heads);
  if (answers && d.d_q) add_rows(s, p.scale, d_q_, x.row, x.begin, x.tokens, shared, K, d.d_q);
  const Size past = std::max<Size>(0, p.sequences[x.n].begin - key_token(x, keys, 0));
  const Size first = key_token(x, keys, past), left = keys - past;
  if (d.d_k) add_rows(s, T(1), cot_.x[0] + past * K, x.row, first, left, shared, K, d.d_k);
  if (d.d_v) add_rows(s, T(1), d_v_ + past * V, x.row, first, left, x.head, V, d.d_v);
  for (Size i = 0; i < keys; ++i) {
    const Size slot =
        static_cast<Size>(x.n) * (m.window - 1) + (i < past ? history_slot(x, key_token(x, keys, i)) : 0);
    if (i < past && d.d_initial.history_k)
      s.axpy(K, T(1), cot_.x[0] + i * K, d.d_initial.history_k + (slot * p.key_heads + shared) * K);
    if (i < past && d.d_initial.history_v)
      s.axpy(V, T(1), d_v_ + i * V, d.d_initial.history_v + (slot * p.heads + x.head) * V);
    T d_weight = 0;
    for (int r = 0; r < m.rates; ++r) {
      const T e = d_rates_[i * m.rates + r];
      if (m.window > 1) d_weight += token_rates_[r] * e;
      if (d.d_rate)
        d.d_rate(x.row, m.window > 1 ? x.begin : x.begin + i, x.head, r) += m.window > 1 ? weights_[i] * e : e;
    }
    if (m.window == 1) continue;
    if (i >= past && d.d_weight) d.d_weight(x.row, key_token(x, keys, i), x.head) += d_weight;
    if (i < past && d.d_initial.history_weight) d.d_initial.history_weight[slot * p.heads + x.head] += d_weight;
  }
  for (Size i = 0; i < x.tokens; ++i) {
    const Size t = x.begin + i;
    if (d.d_threshold) d.d_threshold(x.row, t, x.head) += d_threshold_[i];
    if (d.d_momentum) d.d_momentum(x.row, t, x.head) += d_gates_.momentum[i];
    if (d.d_decay) d.d_decay(x.row, t, x.head) += d_gates_.decay[i];
    if (!m.block) continue;
    const Size place = (x.count + i) % m.batch;
    if (d.d_gain)
      d.d_gain(x.row, t, x.head) += d_gates_.gain[i] * (p.position_gain ? p.position_gain(x.head, place) : T(1));
    if (d.d_position_gain) d.d_position_gain(x.head, place) += d_gates_.gain[i] * own_gain_[i];
  }
  for (int j = 0; j < V; ++j) {
    if (d.d_norm_weight) d.d_norm_weight(x.head, j) += net_.d_norm_weight[j];
    if (d.d_norm_bias) d.d_norm_bias(x.head, j) += net_.d_norm_bias[j];
  }
}

template <class T>
void Head<T>::piece_back(const Span& x, const NeuralGradient<T>& d, const T* before, const T* after) {
  const bool answers = static_cast<bool>(d.d_o);
  const Place<const T> old(m, size_, before), now(m, size_, after);
  if (answers) pack(s, d.d_o, x.row, x.begin, x.tokens, x.head, m.value_dim, T(1), d_o_);
  const Size keys = cut_.dual ? dual_back(x, answers, old, now) : moving_back(x, answers, old, now);
  add_gradients(x, d, keys, answers);
}

/// What the history at the end was copied from.
template <class T>
void Head<T>::add_history(const NeuralProblem<T>& p, const NeuralGradient<T>& d, std::size_t n, int head) {
  const Sequence& q = p.sequences[n];
  const int K = m.key_dim, V = m.value_dim, group = p.heads / p.key_heads;
  for (Size j = 0; j + 1 < m.window; ++j) {
    const Size all = static_cast<Size>(n) * (m.window - 1), slot = all + j, t = q.end - (m.window - 1) + j;
    const Size from = all + j + (q.end - q.begin);
    const bool token = t >= q.begin;
    if (d.d_final.history_k && head % group == 0) {
      const T* const e = d.d_final.history_k + (slot * p.key_heads + head / group) * K;
      if (token && d.d_k) add_rows(s, T(1), e, q.row, t, 1, head / group, K, d.d_k);
      if (!token && d.d_initial.history_k)
        s.axpy(K, T(1), e, d.d_initial.history_k + (from * p.key_heads + head / group) * K);
    }
    if (d.d_final.history_v) {
      const T* const e = d.d_final.history_v + (slot * p.heads + head) * V;
      if (token && d.d_v) add_rows(s, T(1), e, q.row, t, 1, head, V, d.d_v);
      if (!token && d.d_initial.history_v) s.axpy(V, T(1), e, d.d_initial.history_v + (from * p.heads + head) * V);
    }
    if (d.d_final.history_weight) {
      const T e = d.d_final.history_weight[slot * p.heads + head];
      if (token && d.d_weight) d.d_weight(q.row, t, head) += e;
      if (!token && d.d_initial.history_weight) d.d_initial.history_weight[from * p.heads + head] += e;
    }
  }
}

template <class T>
void Head<T>::backward(const NeuralProblem<T>& p, const NeuralGradient<T>& d, std::size_t n, int head,
                       Replay<T, 1>& replay) {
  const Sequence& sequence = p.sequences[n];
  const Size lane = static_cast<Size>(n) * p.heads + head;
  const NeuralLayout& layout = net_.layout();
  enter(p, n, head);
  for (int j = 0; j < layout.matrices && m.row_norm; ++j) {
    const int part = layout.matrix(j);
    steps_.d_norms[j] = d.d_norms[part] ? d.d_norms[part] + lane * layout.part[part].out : nullptr;
  }
  each_part(layout, Place<T>(m, size_, state_), p.state, lane,
            [](Size count, T* x, const T* from) { std::copy_n(from, count, x); });
  const Place<T> D(m, size_, d_state_);
  each_part(layout, D, d.d_final, lane, [](Size count, T* x, const T* from) { copy_or_clear(from, count, x); });

  Size pieces = 0;
  for (Size t = sequence.begin; t < sequence.end; ++pieces)
    begins_[pieces] = t, t += cut_.next(m, p.count[n] + t - sequence.begin, sequence.end - t);
  begins_[pieces] = sequence.end;
  const auto at = [&](Size i) { return span(p, n, head, begins_[i], begins_[i + 1] - begins_[i]); };
  replay.run(
      pieces, {state_}, [&](Size i, const Parts<T, 1>& S) { piece(at(i), S[0], false); },
      [&](Size i, const Parts<const T, 1>& before, const Parts<const T, 1>& after) {
        piece_back(at(i), d, before[0], after[0]);
      });
  if (m.window > 1) add_history(p, d, n, head);
  each_part(layout, D, d.d_initial, lane, [&](Size count, const T* x, T* to) {
    if (to) s.axpy(count, T(1), x, to);
  });
}

template class Head<float>;
template class Head<double>;

}  // namespace ttr::families::neural
