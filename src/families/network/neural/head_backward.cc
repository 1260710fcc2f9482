// Backward over units (neural_past.h), last to first. d_state_ holds the cotangent of the state after a unit and then
// before it; the unit itself is computed again from the state before it. A unit of a dual form is a piece. In others it
// ends with a step, or begins with a lazy one, and its pieces have all else in common: the weights that they read, the
// point of their gradients, and the cotangent of the sum of their updates.
#include <algorithm>
#include <cmath>

#include "families/common/replay.h"
#include "families/network/neural/head.h"

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
}

template <class T>
void Head<T>::pack_answers(const Span& x, const NeuralGradient<T>& d) {
  if (d.d_o) pack(s, d.d_o, x.row, x.begin, x.tokens, x.head, m.value_dim, T(1), d_o_), load_queries(x);
}

template <class T>
void Head<T>::dual_back(const Span& x, const NeuralGradient<T>& gradient, const Place<const T>& old) {
  const Size n = x.tokens;
  const bool answers = static_cast<bool>(gradient.d_o);
  const bool is_fresh = fresh(x);
  const Place<T> D(m, size_, d_state_);
  clear(n, n);
  load_keys(x), load_gates(x), pack_answers(x, gradient);
  const T* const point = is_fresh || !old.A ? old.W : old.A;
  const int shared = x.head / (x.p.heads / x.p.key_heads), K = m.key_dim, V = m.value_dim;
  net_.turn(point);
  fetch(x, false, x.p.k, shared, K);
  net_.learn(n, keys_, point, v_, threshold_, rates_);
  if (old.sums) std::copy_n(old.sums, 2, gates_.sums);
  schedule_.run(n, x.count, gates_);
  schedule_.clear(n);
  fetch(x, false, x.p.v, x.head, V);

  // From the state after the piece.
  if (whole(x)) {  // W + gain sum U, and nobody reads the start or Z
    std::fill_n(weights_, n, gates_.gain[n - 1]);
    std::fill_n(schedule_.d_c, n, T(0));
    net_.gather_back(n, keys_, weights_, D.W, cot_, schedule_.d_c);
    for (Size i = 0; i < n; ++i) d_gates_.gain[n - 1] += schedule_.d_c[i];
  } else if (m.block) {
    if (!is_fresh) std::copy_n(old.Z, size_, move_);
    net_.gather(n, keys_, T(1), nullptr, is_fresh ? T(0) : T(1), move_);
    d_gates_.gain[n - 1] += s.dot(size_, move_, D.W);
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
  if (D.A && is_fresh && !whole(x)) s.axpy(size_, T(1), D.A, D.W), std::fill_n(D.A, size_, T(0));
  T* const d_point = D.A && !is_fresh ? D.A : D.W;

  if (answers) {
    const Mix<T> mix = mix_of(old, point, is_fresh);
    MixCotangent<T> d;
    d.W = m.block ? d_point : D.W;
    if (mix.a) d.a = schedule_.d_a;
    if (mix.Z) d.Z = D.Z, d.b = schedule_.d_b;
    if (mix.P) d.P = D.P, d.c = schedule_.d_c;
    d.gamma = schedule_.d_gamma(), d.ld = schedule_.ld, d.keys = &cot_;
    fetch(x, false, x.p.q, shared, K);
    net_.read(n, read_, mix, o_);
    fetch(x, false, gradient.d_o, x.head, V);
    net_.read_back(n, read_, mix, d, d_o_, d_q_);
    fetch(x, false, gradient.d_q, shared, K);
  }
  if (m.block && is_fresh && !whole(x)) std::fill_n(D.Z, size_, T(0));

  net_.weigh_back(n, keys_, rates_, cot_, d_rates_);
  fetch(x, false, gradient.d_k, shared, K);
  net_.learn_back(n, keys_, point, threshold_, cot_, d_point, d_v_, d_threshold_);
  net_.turn(nullptr);
  fetch(x, false, gradient.d_v, x.head, V);
  if (D.sums) std::copy_n(D.sums, 2, d_gates_.sums);
  schedule_.back(n, x.count, d_gates_);
  if (D.sums) std::copy_n(d_gates_.sums, 2, D.sums);
  add_gradients(x, gradient, n, answers);
}

template <class T>
void Head<T>::read_rows_back(Size from, Size to, const T* W, T* d_W) {
  if (from == to) return;
  Rows<T> rows = read_;
  rows.x[0] += from * m.key_dim;
  Mix<T> mix;
  MixCotangent<T> d;
  mix.W = steps_.in_use(W, used_);
  d.W = m.maps() ? d_used_ : d_W;
  if (m.maps()) std::fill_n(d_used_, size_, T(0));
  net_.read(to - from, rows, mix, o_ + from * m.value_dim);
  net_.read_back(to - from, rows, mix, d, d_o_ + from * m.value_dim, d_q_ + from * m.key_dim);
  if (m.maps()) steps_.in_use_back(W, d_used_, d_W);
}

/// Piece i of a unit: units are cut where they are longer than the largest piece, and nowhere else.
template <class T>
typename Head<T>::Span Head<T>::part_of(const Span& unit, Size i) const {
  Span x = unit;
  x.begin += i * cut_.largest, x.count += i * cut_.largest;
  x.tokens = std::min(cut_.largest, unit.tokens - i * cut_.largest);
  return x;
}

/// From the cotangents of the updates to those of keys, values, rates and the point.
template <class T>
void Head<T>::learn_back(const T* point, const T* plain_point, T* d_plain, Size keys) {
  net_.weigh_back(keys, keys_, rates_, cot_, d_rates_);
  if (!m.maps() && !m.decayed_point)
    return net_.learn_back(keys, keys_, point, threshold_, cot_, d_plain, d_v_, d_threshold_);
  T *const d_point = d_used_, *const d_decayed = d_used_ + size_;
  std::fill_n(d_used_, 2 * size_, T(0));
  net_.learn_back(keys, keys_, point, threshold_, cot_, d_point, d_v_, d_threshold_);
  const T* d = d_point;
  if (m.maps()) {
    steps_.in_use_back(m.decayed_point ? used_point_ : plain_point, d_point, d_decayed);
    d = d_decayed;
  }
  T factor = 1;
  if (m.decayed_point) {
    factor = decay_factor(m.decay, gates_.decay[0]);
    d_gates_.decay[0] += s.dot(size_, d, plain_point) * decay_slope(m.decay, factor);
  }
  s.axpy(size_, factor, d, d_plain);
}

template <class T>
void Head<T>::moving_back(const Span& x, const NeuralGradient<T>& gradient, const Place<const T>& before,
                          const Place<const T>* after) {
  const bool is_fresh = fresh(x), is_due = due(x), done = complete(x), answers = static_cast<bool>(gradient.d_o);
  const Size pieces = (x.tokens + cut_.largest - 1) / cut_.largest;
  const Place<T> D(m, size_, d_state_), held(m, size_, held_);
  // The state once a lazy step is taken and a new block has begun; with the unit's own updates only its P moves.
  const Step late = is_due ? step_of(before.sums) : Step{1, 0};
  copy_parts(size_, before, held);
  if (is_due && after) {
    std::copy_n(after->W, size_, held.W);
    if (held.Z) std::copy_n(after->Z, size_, held.Z);
  } else if (is_due) {
    steps_.chain({held.W, held.Z, held.P}, late.a, late.m);
  }
  if (is_due) std::fill_n(held.P, size_, T(0)), std::fill_n(held.sums, 2, T(0));
  start_block(x, held);
  const T* const plain_point = held.A ? held.A : held.W;
  const T* point = nullptr;
  const auto load = [&](const Span& y) {
    load_gates(y);
    const Size keys = load_keys(y);
    if (!point) point = gradient_point(Place<const T>(m, size_, held_), is_fresh), net_.turn(point);
    net_.learn(keys, keys_, point, v_, threshold_, rates_);
    return keys;
  };

  T* const d_P = D.P ? D.P : d_move_;
  T d_sums[2] = {D.sums ? D.sums[0] : T(0), D.sums ? D.sums[1] : T(0)}, d_gain = 0;
  Size loaded = -1, keys = 0;  // the piece whose rows are there
  if (done) {
    T sums[2] = {held.sums ? held.sums[0] : T(0), held.sums ? held.sums[1] : T(0)};
    if (held.P) std::copy_n(held.P, size_, move_);
    for (Size i = 0; i < pieces; ++i) {
      const Span y = part_of(x, i);
      keys = load(y), loaded = i;
      net_.gather(keys, keys_, T(1), nullptr, held.P || i > 0 ? T(1) : T(0), move_);
      for (Size t = 0; t < y.tokens; ++t) sums[0] += gates_.momentum[t], sums[1] += gates_.decay[t];
    }
    const Span last = part_of(x, pieces - 1);
    pack_answers(last, gradient);
    if (answers) read_rows_back(early(last), last.tokens, after ? after->W : nullptr, D.W);
    if (m.block) {
      steps_.block_back({held.W, held.Z, move_}, gates_.gain[0], {D.W, D.Z, d_P}, D.A, &d_gain);
    } else {
      const Step step = step_of(sums);
      T d_a = 0, d_m = 0;
      steps_.chain_back({held.W, held.Z, move_}, step.a, step.m, {D.W, D.Z, d_P}, &d_a, &d_m);
      d_sums[0] = m.momentum ? d_m / static_cast<T>(m.step_every) : T(0);
      d_sums[1] = d_a * decay_slope(m.decay, step.a) / static_cast<T>(m.step_every);
    }
  }
  for (Size i = pieces; i-- > 0;) {
    const Span y = part_of(x, i);
    if (loaded != i) keys = load(y), pack_answers(y, gradient);
    clear(keys, y.tokens);
    for (Size t = 0; t < y.tokens; ++t) d_gates_.momentum[t] = d_sums[0], d_gates_.decay[t] = d_sums[1];
    d_gates_.gain[0] = d_gain;
    if (answers) read_rows_back(0, early(y), held.W, D.W);
    net_.gather_back(keys, keys_, nullptr, d_P, cot_, nullptr);
    learn_back(point, plain_point, D.A ? D.A : D.W, keys);
    add_gradients(y, gradient, keys, answers);
  }
  net_.turn(nullptr);
  if (D.A && is_fresh) s.axpy(size_, T(1), D.A, D.W), std::fill_n(D.A, size_, T(0));
  if (m.block && is_fresh) std::fill_n(D.Z, size_, T(0));
  if (is_due) {
    T d_a = 0, d_m = 0;
    steps_.chain_back({before.W, before.Z, before.P}, late.a, late.m, {D.W, D.Z, D.P}, &d_a, &d_m);
    d_sums[0] = m.momentum ? d_m / static_cast<T>(m.step_every) : T(0);
    d_sums[1] = d_a * decay_slope(m.decay, late.a) / static_cast<T>(m.step_every);
  }
  if (D.sums) std::copy_n(d_sums, 2, D.sums);
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
                       Past<T>& past) {
  const Sequence& sequence = p.sequences[n];
  const Size seq_head = static_cast<Size>(n) * p.heads + head;
  const NeuralLayout& layout = net_.layout();
  load_norms(p, head, 0), enter(p, n, head, 0);
  for (int j = 0; j < layout.matrices && m.row_norm; ++j) {
    const int part = layout.matrix(j);
    steps_.d_norms[j] = d.d_norms[part] ? d.d_norms[part] + seq_head * layout.part[part].out : nullptr;
  }
  each_part(layout, Place<T>(m, size_, state_), p.state, seq_head,
            [](Size count, T* x, const T* from) { std::copy_n(from, count, x); });
  std::fill_n(net_.d_norm_weight, m.value_dim, T(0)), std::fill_n(net_.d_norm_bias, m.value_dim, T(0));
  const Place<T> D(m, size_, d_state_);
  each_part(layout, D, d.d_final, seq_head, [](Size count, T* x, const T* from) { copy_or_clear(from, count, x); });

  Size units = 0;
  for (Size t = sequence.begin; t < sequence.end; ++units)
    begins_[units] = t, t += cut_.next_unit(m, p.count[n] + t - sequence.begin, sequence.end - t);
  begins_[units] = sequence.end;
  const auto at = [&](Size i) { return span(p, n, head, begins_[i], begins_[i + 1] - begins_[i]); };
  const bool alive = cut_.fresh_units(m);
  const Place<T> work(m, size_, work_);
  const auto kept = [&](const T* slot) {
    return slot ? Place<const T>(m, size_, slot, alive) : Place<const T>(m, size_, state_);
  };
  // A step that a read sees at its own token: the state after the unit is wanted.
  const bool ends = !cut_.dual && !m.lazy && !m.read_before;
  past.run(
      units, ends,
      [&](Size i) {
        const Span x = at(i);
        for (Size t = 0; t < x.tokens; t += cut_.largest)
          piece(cut_.dual ? x : part_of(x, t / cut_.largest), work_, false);
      },
      [&](Size, T* slot) { copy_parts(size_, work, Place<T>(m, size_, slot, alive)); },
      [&](Size, const T* slot) { copy_parts(size_, kept(slot), work); },
      [&](Size i, const T* slot, const T* next) {
        if (cut_.dual) return dual_back(at(i), d, kept(slot));
        const Place<const T> end = next ? kept(next) : Place<const T>(m, size_, work_);
        moving_back(at(i), d, kept(slot), ends || next ? &end : nullptr);
      });
  if (m.window > 1) add_history(p, d, n, head);
  for (int j = 0; j < m.value_dim; ++j) {
    if (d.d_norm_weight) d.d_norm_weight(head, j) += net_.d_norm_weight[j];
    if (d.d_norm_bias) d.d_norm_bias(head, j) += net_.d_norm_bias[j];
  }
  each_part(layout, D, d.d_initial, seq_head, [&](Size count, const T* x, T* to) {
    if (to) s.axpy(count, T(1), x, to);
  });
}

template class Head<float>;
template class Head<double>;

}  // namespace ttr::families::neural
