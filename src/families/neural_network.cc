// The equations are in neural_network.h. Rows of a block are contiguous; parameters lie as NeuralLayout says.
#include "families/neural_network.h"

#include <algorithm>
#include <cmath>

#include "families/neural_functions.h"

namespace ttr::families {

NeuralLayout::NeuralLayout(const NeuralModel& m) : bias(m.bias) {
  matrices = m.depth + (m.gated ? 1 : 0);
  const auto add = [&](int in, int out, bool matrix) {
    part[static_cast<std::size_t>(count++)] = {in, out, matrix, size};
    size += std::ptrdiff_t{in} * out;
  };
  for (int j = 0; j < matrices; ++j) {
    const int in = j == 0 || j == m.depth ? m.key_dim : m.width;
    const int out = j == m.depth - 1 ? m.value_dim : m.width;
    add(in, out, true);
    if (m.bias) add(1, out, false);
  }
  if (m.norm == neural::Norm::learned) add(1, m.value_dim, false);
}

namespace neural {

template <class T>
Network<T>::Network(const Simd<T>& simd, const NeuralModel& model, Size rows, bool backward, Arena& arena)
    : s(simd),
      m(model),
      layout_(model),
      L(model.depth),
      M(layout_.matrices),
      V(model.value_dim),
      backward_(backward),
      rows_(rows) {
  for (int j = 0; j < M; ++j) {
    const NeuralLayout::Part& w = layout_.part[layout_.matrix(j)];
    shape_[j] = {w.in, w.out, w.offset, w.offset + Size{w.in} * w.out};
    widest_ = std::max<Size>({widest_, w.in, w.out});
  }
  norm_weight = arena.take<T>(V), norm_bias = arena.take<T>(V), ones_ = arena.take<T>(widest_);
  spare_ = arena.take<T>(rows * widest_), scaled_ = arena.take<T>(rows * widest_),
  kt_ = arena.take<T>(rows * widest_);
  pairs_ = arena.take<T>(rows * rows), gated_ = arena.take<T>(rows * rows);
  if (ones_) std::fill_n(ones_, widest_, T(1));
  if (!backward) return;
  d_norm_weight = arena.take<T>(V), d_norm_bias = arena.take<T>(V);
  d_pairs_ = arena.take<T>(rows * rows), ut_ = arena.take<T>(rows * widest_), d_y_ = arena.take<T>(rows * widest_);
  d_in_ = arena.take<T>(rows * widest_), d_scale_ = arena.take<T>(rows * V), d_row_ = arena.take<T>(2 * V);
}

template <class T>
Rows<T> Network<T>::take_rows(Arena& arena) const {
  Rows<T> r;
  r.x[0] = arena.take<T>(rows_ * m.key_dim);
  for (int j = 0; j < M; ++j) r.y[j] = arena.take<T>(rows_ * shape_[j].out);
  for (int l = 0; l + 1 < L; ++l) {
    r.x[l + 1] = arena.take<T>(rows_ * m.width), r.slope[l] = arena.take<T>(rows_ * m.width);
    r.bend[l] = arena.take<T>(rows_ * m.width);
  }
  if (m.gated) r.lift = arena.take<T>(rows_ * m.width);
  if (m.norm != Norm::none) r.normed = arena.take<T>(rows_ * V), r.inverse = arena.take<T>(rows_);
  if (m.norm != Norm::none) r.scale = arena.take<T>(rows_ * V);
  return r;
}

template <class T>
KeyRows<T> Network<T>::take_keys(Arena& arena) const {
  KeyRows<T> r;
  static_cast<Rows<T>&>(r) = take_rows(arena);
  for (int j = 0; j < M; ++j)
    r.delta[j] = arena.take<T>(rows_ * shape_[j].out), r.update[j] = arena.take<T>(rows_ * shape_[j].out);
  for (int l = 0; l + 1 < L; ++l) r.back[l] = arena.take<T>(rows_ * m.width);
  r.residual = arena.take<T>(rows_ * V), r.error = arena.take<T>(rows_ * V);
  if (m.norm == Norm::learned) r.scale_delta = arena.take<T>(rows_ * V), r.scale_update = arena.take<T>(rows_ * V);
  return r;
}

template <class T>
KeyCotangents<T> Network<T>::take_cotangents(Arena& arena) const {
  KeyCotangents<T> c;
  for (int l = 0; l < L; ++l) c.x[l] = arena.take<T>(rows_ * shape_[l].in);
  for (int j = 0; j < M; ++j) {
    c.update[j] = arena.take<T>(rows_ * shape_[j].out), c.y[j] = arena.take<T>(rows_ * shape_[j].out);
    c.delta[j] = arena.take<T>(rows_ * shape_[j].out);
  }
  if (m.norm == Norm::learned) c.scale_update = arena.take<T>(rows_ * V);
  return c;
}

/// to [width] += sum_i factor_i rows_i
template <class T>
void Network<T>::add_columns(Size n, Size width, const T* factor, const T* rows, T* to) const {
  for (Size i = 0; i < n; ++i) s.axpy(width, factor ? factor[i] : T(1), rows + i * width, to);
}

template <class T>
void Network<T>::sums(int j, Size n, const T* X, const Mix<T>& mix, T* Y) {
  const Shape& p = shape_[j];
  const auto add_bias = [&](const T* W, const T* factor) {
    if (!m.bias) return;
    for (Size i = 0; i < n; ++i) s.axpy(p.out, factor ? factor[i] : T(1), W + p.bias, Y + i * p.out);
  };
  const T* in = X;
  if (mix.a) s.scale_rows(n, p.in, mix.a, X, p.in, scaled_, p.in), in = scaled_;
  s.gemm_nn(n, p.out, p.in, T(1), in, p.in, mix.W + p.weight, p.out, T(0), Y, p.out);
  add_bias(mix.W, mix.a);
  for (const auto& [W, factor] : {std::pair{mix.Z, mix.b}, std::pair{mix.P, mix.c}}) {
    if (!W) continue;
    s.scale_rows(n, p.in, factor, X, p.in, scaled_, p.in);
    s.gemm_nn(n, p.out, p.in, T(1), scaled_, p.in, W + p.weight, p.out, T(1), Y, p.out);
    add_bias(W, factor);
  }
  if (!mix.gamma) return;
  s.transpose(n, p.in, mix.keys->x[j < L ? j : 0], p.in, kt_, n);
  s.gemm_lower(n, p.in, T(1), X, p.in, kt_, n, pairs_, n);
  if (m.bias)
    for (Size i = 0; i < n; ++i)
      for (Size r = 0; r <= i; ++r) pairs_[i * n + r] += T(1);
  s.gate_lower(n, false, 0, nullptr, mix.gamma, mix.ld, pairs_, n);
  s.trmm_nn(n, p.out, T(1), pairs_, n, mix.keys->update[j], p.out, T(1), Y, p.out);
}

template <class T>
void Network<T>::part_back(const Shape& p, Size n, const T* X, const T* d_y, const T* W, const T* factor, T* d_W,
                           T* d_factor, bool first, T* d_x) {
  if (!factor) {
    s.gemm_nt(n, p.in, p.out, T(1), d_y, p.out, W + p.weight, p.out, first ? T(0) : T(1), d_x, p.in);
    if (d_W) s.gemm_tn(p.in, p.out, n, T(1), X, p.in, d_y, p.out, T(1), d_W + p.weight, p.out);
    if (d_W && m.bias) add_columns(n, p.out, nullptr, d_y, d_W + p.bias);
    return;
  }
  s.gemm_nt(n, p.in, p.out, T(1), d_y, p.out, W + p.weight, p.out, T(0), scaled_, p.in);
  for (Size i = 0; i < n; ++i) {
    if (d_factor) {
      d_factor[i] += s.dot(p.in, X + i * p.in, scaled_ + i * p.in);
      if (m.bias) d_factor[i] += s.dot(p.out, W + p.bias, d_y + i * p.out);
    }
    if (first) s.scale(p.in, factor[i], scaled_ + i * p.in, d_x + i * p.in);
    else s.axpy(p.in, factor[i], scaled_ + i * p.in, d_x + i * p.in);
  }
  if (!d_W) return;
  s.scale_rows(n, p.in, factor, X, p.in, scaled_, p.in);
  s.gemm_tn(p.in, p.out, n, T(1), scaled_, p.in, d_y, p.out, T(1), d_W + p.weight, p.out);
  if (m.bias) add_columns(n, p.out, factor, d_y, d_W + p.bias);
}

template <class T>
void Network<T>::sums_back(int j, Size n, const T* X, const T* d_y, const Mix<T>& mix, const MixCotangent<T>& d,
                           bool first, T* d_x) {
  const Shape& p = shape_[j];
  part_back(p, n, X, d_y, mix.W, mix.a, d.W, d.a, first, d_x);
  if (mix.Z) part_back(p, n, X, d_y, mix.Z, mix.b, d.Z, d.b, false, d_x);
  if (mix.P) part_back(p, n, X, d_y, mix.P, mix.c, d.P, d.c, false, d_x);
  if (!mix.gamma) return;
  const int stage = j < L ? j : 0;
  const T *const keys = mix.keys->x[stage], *const update = mix.keys->update[j];
  s.transpose(n, p.in, keys, p.in, kt_, n);
  s.gemm_lower(n, p.in, T(1), X, p.in, kt_, n, pairs_, n);
  s.transpose(n, p.out, update, p.out, ut_, n);
  s.gemm_lower(n, p.out, T(1), d_y, p.out, ut_, n, d_pairs_, n);
  for (Size i = 0; i < n; ++i) {
    T* const row = pairs_ + i * n;
    if (m.bias)
      for (Size r = 0; r <= i; ++r) row[r] += T(1);
    s.mul_add(i + 1, d_pairs_ + i * n, row, d.gamma + i * d.ld);
  }
  s.gate_lower(n, false, 0, nullptr, mix.gamma, mix.ld, pairs_, n);
  s.gate_lower(n, false, 0, nullptr, mix.gamma, mix.ld, d_pairs_, n);
  s.trmm_tn(n, p.out, T(1), pairs_, n, d_y, p.out, T(1), d.keys->update[j], p.out);
  s.trmm_nn(n, p.in, T(1), d_pairs_, n, keys, p.in, T(1), d_x, p.in);
  s.trmm_tn(n, p.in, T(1), d_pairs_, n, X, p.in, T(1), d.keys->x[stage], p.in);
}

template <class T>
void Network<T>::hidden(int l, Size n, Rows<T>& r, int derivatives) {
  const Size count = n * m.width;
  T* const to = m.gated ? r.lift : r.x[l + 1];
  activate(s, m.activation, count, r.y[l], to, derivatives > 0 ? r.slope[l] : nullptr,
           derivatives > 1 ? r.bend[l] : nullptr, spare_);
  if (m.gated) s.mul(count, r.lift, r.y[L], r.x[l + 1]);
}

/// normed and inverse of the rows of y[L-1]; out = c, to which normed * w is to be added.
template <class T>
void Network<T>::normalise(Size n, Rows<T>& r, T* out) {
  std::copy_n(r.y[L - 1], n * V, r.normed);
  for (Size i = 0; i < n; ++i) {
    T* const z = r.normed + i * V;
    s.axpy(V, -s.dot(V, z, ones_) / static_cast<T>(V), ones_, z);
    r.inverse[i] = T(1) / std::sqrt(s.dot(V, z, z) / static_cast<T>(V) + static_cast<T>(m.norm_eps));
    s.scale(V, r.inverse[i], z, z);
    std::copy_n(norm_bias, V, out + i * V);
  }
}

/// out = (in - mean(in) - normed mean(in normed)) inverse; `out` may be `in`.
template <class T>
void Network<T>::norm_jacobian(const T* normed, T inverse, const T* in, T* out) const {
  const T mean = s.dot(V, in, ones_) / static_cast<T>(V), along = s.dot(V, in, normed) / static_cast<T>(V);
  s.scale(V, inverse, in, out);
  s.axpy(V, -mean * inverse, ones_, out);
  s.axpy(V, -along * inverse, normed, out);
}

template <class T>
void Network<T>::read(Size n, Rows<T>& r, const Mix<T>& mix, T* out) {
  for (int l = 0; l < L; ++l) {
    sums(l, n, r.x[l], mix, r.y[l]);
    if (l + 1 == L) break;
    if (m.gated) sums(L, n, r.x[0], mix, r.y[L]);
    hidden(l, n, r, backward_ ? 1 : 0);
  }
  const T* const top = r.y[L - 1];
  if (m.norm == Norm::none) {
    std::copy_n(top, n * V, out);
  } else {
    normalise(n, r, out);
    const Size offset = layout_.size - V;  // of gamma
    for (Size i = 0; i < n; ++i) {
      T* const w = r.scale + i * V;
      if (m.norm == Norm::fixed) {
        s.mul_add(V, norm_weight, r.normed + i * V, out + i * V);
        continue;
      }
      const T a = mix.a ? mix.a[i] : T(1);
      for (int j = 0; j < V; ++j) w[j] = T(1) + a * mix.W[offset + j];
      if (mix.Z) s.axpy(V, mix.b[i], mix.Z + offset, w);
      if (mix.P) s.axpy(V, mix.c[i], mix.P + offset, w);
    }
    if (m.norm == Norm::learned) {
      if (mix.gamma) s.trmm_nn(n, V, T(1), mix.gamma, mix.ld, mix.keys->scale_update, V, T(1), r.scale, V);
      s.mul_add(n * V, r.scale, r.normed, out);
    }
  }
  if (m.skip == Skip::input) s.axpy(n * V, T(1), r.x[0], out);
  if (m.skip == Skip::sum) s.axpy(n * V, T(1), top, out);
}

template <class T>
void Network<T>::read_back(Size n, Rows<T>& r, const Mix<T>& mix, const MixCotangent<T>& d, const T* d_out, T* d_x) {
  if (m.norm == Norm::none) {
    std::copy_n(d_out, n * V, d_y_);
  } else {
    const bool learned = m.norm == Norm::learned;
    const Size offset = layout_.size - V;
    for (Size i = 0; i < n; ++i) {
      const T* const e = d_out + i * V;
      const T* const z = r.normed + i * V;
      T* const w = d_scale_ + i * V;
      s.axpy(V, T(1), e, d_norm_bias);
      s.mul(V, e, z, w);
      if (!learned) s.axpy(V, T(1), w, d_norm_weight);
      s.mul(V, e, learned ? r.scale + i * V : norm_weight, d_y_ + i * V);
      norm_jacobian(z, r.inverse[i], d_y_ + i * V, d_y_ + i * V);
      if (!learned) continue;
      const auto part = [&](const T* W, const T* factor, T* d_W, T* d_factor) {
        if (!W) return;
        if (d_W) s.axpy(V, factor ? factor[i] : T(1), w, d_W + offset);
        if (d_factor) d_factor[i] += s.dot(V, W + offset, w);
      };
      part(mix.W, mix.a, d.W, d.a), part(mix.Z, mix.b, d.Z, d.b), part(mix.P, mix.c, d.P, d.c);
    }
    if (learned && mix.gamma) {
      s.trmm_tn(n, V, T(1), mix.gamma, mix.ld, d_scale_, V, T(1), d.keys->scale_update, V);
      s.transpose(n, V, mix.keys->scale_update, V, ut_, n);
      s.gemm_lower(n, V, T(1), d_scale_, V, ut_, n, d_pairs_, n);
      for (Size i = 0; i < n; ++i) s.axpy(i + 1, T(1), d_pairs_ + i * n, d.gamma + i * d.ld);
    }
  }
  if (m.skip == Skip::sum) s.axpy(n * V, T(1), d_out, d_y_);
  for (int l = L - 1; l >= 0; --l) {
    T* const d_in = l == 0 ? d_x : d_in_;
    sums_back(l, n, r.x[l], d_y_, mix, d, true, d_in);
    if (l == 0) break;
    const Size count = n * m.width;
    if (!m.gated) {
      s.mul(count, d_in, r.slope[l - 1], d_y_);
      continue;
    }
    // Both matrices of the first stage: that of the activation through d_y_, the linear one through r.lift.
    s.mul(count, d_in, r.slope[0], d_y_);
    s.mul(count, d_y_, r.y[L], d_y_);
    s.mul(count, d_in, r.lift, r.lift);
    sums_back(0, n, r.x[0], d_y_, mix, d, true, d_x);
    sums_back(L, n, r.x[0], r.lift, mix, d, false, d_x);
    break;
  }
  if (m.skip == Skip::input) s.axpy(n * V, T(1), d_out, d_x);
}

template <class T>
void Network<T>::learn(Size n, KeyRows<T>& r, const T* point, const T* v, const T* threshold) {
  const Mix<T> at{.W = point};
  for (int l = 0; l < L; ++l) {
    sums(l, n, r.x[l], at, r.y[l]);
    if (l + 1 == L) break;
    if (m.gated) sums(L, n, r.x[0], at, r.y[L]);
    hidden(l, n, r, backward_ ? 2 : 1);
  }
  T* const e = r.error;
  T* const top = r.delta[L - 1];
  if (m.norm == Norm::none) {
    std::copy_n(r.y[L - 1], n * V, e);
  } else {
    normalise(n, r, e);
    const T* const gamma = point + layout_.size - V;
    for (int j = 0; j < V; ++j) r.scale[j] = m.norm == Norm::learned ? T(1) + gamma[j] : norm_weight[j];
    for (Size i = 0; i < n; ++i) s.mul_add(V, r.scale, r.normed + i * V, e + i * V);
  }
  if (m.skip != Skip::none) s.axpy(n * V, T(1), r.x[0], e);
  s.axpy(n * V, T(-1), v, e);
  for (Size i = 0; i < n; ++i) {
    loss_slope(s, m, V, v + i * V, threshold[i], r.residual + i * V, e + i * V);
    if (m.norm == Norm::none) continue;
    s.mul(V, e + i * V, r.scale, top + i * V);
    norm_jacobian(r.normed + i * V, r.inverse[i], top + i * V, top + i * V);
  }
  if (m.norm == Norm::none) std::copy_n(e, n * V, top);
  if (m.norm == Norm::learned) s.mul(n * V, e, r.normed, r.scale_delta);
  for (int l = L - 2; l >= 0; --l) {
    const Shape& above = shape_[l + 1];
    const Size count = n * m.width;
    s.gemm_nt(n, above.in, above.out, T(1), r.delta[l + 1], above.out, point + above.weight, above.out, T(0),
              r.back[l], above.in);
    s.mul(count, r.back[l], r.slope[l], r.delta[l]);
    if (!m.gated) continue;
    s.mul(count, r.delta[l], r.y[L], r.delta[l]);
    s.mul(count, r.back[l], r.lift, r.delta[L]);
  }
}

template <class T>
void Network<T>::weigh(Size n, KeyRows<T>& r, const T* rates, int count) const {
  for (int j = 0; j < M; ++j)
    for (Size i = 0; i < n; ++i)
      s.scale(shape_[j].out, -rates[i * count + (count > 1 ? j : 0)], r.delta[j] + i * shape_[j].out,
              r.update[j] + i * shape_[j].out);
  if (m.norm != Norm::learned) return;
  for (Size i = 0; i < n; ++i) s.scale(V, -rates[i * count], r.scale_delta + i * V, r.scale_update + i * V);
}

template <class T>
void Network<T>::weigh_back(Size n, const KeyRows<T>& r, const T* rates, int count, KeyCotangents<T>& c, T* d_rates) {
  for (int j = 0; j < M; ++j)
    for (Size i = 0; i < n; ++i) {
      const Size at = i * count + (count > 1 ? j : 0), row = i * shape_[j].out;
      d_rates[at] -= s.dot(shape_[j].out, c.update[j] + row, r.delta[j] + row);
      s.scale(shape_[j].out, -rates[at], c.update[j] + row, c.delta[j] + row);
    }
  if (m.norm != Norm::learned) return;
  for (Size i = 0; i < n; ++i) {
    d_rates[i * count] -= s.dot(V, c.scale_update + i * V, r.scale_delta + i * V);
    s.scale(V, -rates[i * count], c.scale_update + i * V, c.scale_update + i * V);
  }
}

template <class T>
void Network<T>::gather(Size n, const KeyRows<T>& r, const T* w, T f, T* to) {
  const auto rest = [&](Size width, const T* rows, T* sum) {
    if (f == T(0)) std::fill_n(sum, width, T(0));
    else if (f != T(1)) s.scale(width, f, sum, sum);
    add_columns(n, width, w, rows, sum);
  };
  for (int j = 0; j < M; ++j) {
    const Shape& p = shape_[j];
    const T* X = r.x[j < L ? j : 0];
    if (w) s.scale_rows(n, p.in, w, X, p.in, scaled_, p.in), X = scaled_;
    s.gemm_tn(p.in, p.out, n, T(1), X, p.in, r.update[j], p.out, f, to + p.weight, p.out);
    if (m.bias) rest(p.out, r.update[j], to + p.bias);
  }
  if (m.norm == Norm::learned) rest(V, r.scale_update, to + layout_.size - V);
}

template <class T>
void Network<T>::gather_back(Size n, const KeyRows<T>& r, const T* w, const T* d_to, KeyCotangents<T>& c, T* d_w) {
  const auto rest = [&](Size width, const T* rows, const T* d_sum, T* d_rows) {
    for (Size i = 0; i < n; ++i) {
      s.axpy(width, w ? w[i] : T(1), d_sum, d_rows + i * width);
      if (d_w) d_w[i] += s.dot(width, rows + i * width, d_sum);
    }
  };
  for (int j = 0; j < M; ++j) {
    const Shape& p = shape_[j];
    const int stage = j < L ? j : 0;
    const T* const d_W = d_to + p.weight;
    s.gemm_nn(n, p.out, p.in, T(1), r.x[stage], p.in, d_W, p.out, T(0), scaled_, p.out);
    for (Size i = 0; i < n; ++i) {
      if (d_w) d_w[i] += s.dot(p.out, scaled_ + i * p.out, r.update[j] + i * p.out);
      s.axpy(p.out, w ? w[i] : T(1), scaled_ + i * p.out, c.update[j] + i * p.out);
    }
    const T* U = r.update[j];
    if (w) s.scale_rows(n, p.out, w, U, p.out, scaled_, p.out), U = scaled_;
    s.gemm_nt(n, p.in, p.out, T(1), U, p.out, d_W, p.out, T(1), c.x[stage], p.in);
    if (m.bias) rest(p.out, r.update[j], d_to + p.bias, c.update[j]);
  }
  if (m.norm == Norm::learned) rest(V, r.scale_update, d_to + layout_.size - V, c.scale_update);
}

template <class T>
void Network<T>::learn_back(Size n, const KeyRows<T>& r, const T* point, const T* threshold, KeyCotangents<T>& c,
                            T* d_point, T* d_v, T* d_threshold) {
  const Size count = n * m.width;
  for (int l = 0; l + 1 < L; ++l) {
    const Shape& above = shape_[l + 1];
    T *const y = c.y[l], *const back = d_in_, *const d = c.delta[l];
    if (m.gated) {
      T *const linear = c.y[L], *const d_linear = c.delta[L];
      for (Size i = 0; i < count; ++i) {
        const T u = r.y[L][i], b = r.back[l][i], f1 = r.slope[l][i];
        back[i] = d[i] * f1 * u + d_linear[i] * r.lift[i];
        y[i] = d[i] * b * r.bend[l][i] * u + d_linear[i] * b * f1;
        linear[i] = d[i] * b * f1;
      }
    } else {
      s.mul(count, d, r.slope[l], back);
      s.mul(count, d, r.back[l], y);
      s.mul(count, y, r.bend[l], y);
    }
    s.gemm_nn(n, above.out, above.in, T(1), back, above.in, point + above.weight, above.out, T(1), c.delta[l + 1],
              above.out);
    s.gemm_tn(above.in, above.out, n, T(1), back, above.in, r.delta[l + 1], above.out, T(1), d_point + above.weight,
              above.out);
  }
  T* const top = c.y[L - 1];
  for (Size i = 0; i < n; ++i) {
    const T *const t = c.delta[L - 1] + i * V, *const e = r.error + i * V;
    T* const y = top + i * V;
    if (m.norm == Norm::none) {
      loss_slope_back(s, m, V, r.residual + i * V, threshold[i], t, y, d_v + i * V, d_threshold + i);
      if (m.skip != Skip::none) s.axpy(V, T(1), y, c.x[0] + i * V);
      continue;
    }
    const T *const z = r.normed + i * V, *const w = r.scale, inverse = r.inverse[i];
    T *const d_e = d_row_, *const d_z = d_row_ + V;
    T gz = 0;
    for (int j = 0; j < V; ++j) gz += e[j] * w[j] * z[j];
    const T tz = s.dot(V, t, z), d_sd = -s.dot(V, t, r.delta[L - 1] + i * V) * inverse;
    norm_jacobian(z, inverse, t, d_e);
    for (int j = 0; j < V; ++j) {
      d_z[j] = -(t[j] * gz + e[j] * w[j] * tz) * inverse / static_cast<T>(V);
      if (m.norm == Norm::fixed) d_norm_weight[j] += d_e[j] * e[j];
      else d_point[layout_.size - V + j] += d_e[j] * e[j];
      d_e[j] *= w[j];
      if (m.norm == Norm::learned) {
        d_e[j] += c.scale_update[i * V + j] * z[j];
        d_z[j] += c.scale_update[i * V + j] * e[j];
      }
    }
    loss_slope_back(s, m, V, r.residual + i * V, threshold[i], d_e, y, d_v + i * V, d_threshold + i);
    if (m.skip != Skip::none) s.axpy(V, T(1), y, c.x[0] + i * V);
    s.axpy(V, T(1), y, d_norm_bias);
    T* const d_w = m.norm == Norm::fixed ? d_norm_weight : d_point + layout_.size - V;
    s.mul_add(V, y, z, d_w);
    s.mul_add(V, y, w, d_z);
    norm_jacobian(z, inverse, d_z, y);
    s.axpy(V, d_sd / static_cast<T>(V), z, y);
  }
  for (int l = L - 1; l >= 0; --l) {
    const auto through = [&](int j, int stage) {
      const Shape& p = shape_[j];
      s.gemm_tn(p.in, p.out, n, T(1), r.x[stage], p.in, c.y[j], p.out, T(1), d_point + p.weight, p.out);
      if (m.bias) add_columns(n, p.out, nullptr, c.y[j], d_point + p.bias);
      s.gemm_nt(n, p.in, p.out, T(1), c.y[j], p.out, point + p.weight, p.out, T(1), c.x[stage], p.in);
    };
    through(l, l);
    if (l == 0) {
      if (m.gated) through(L, 0);
      break;
    }
    if (m.gated) {
      for (Size i = 0; i < count; ++i) {
        const T d = c.x[1][i];
        c.y[0][i] += d * r.slope[0][i] * r.y[L][i];
        c.y[L][i] += d * r.lift[i];
      }
    } else {
      s.mul_add(count, c.x[l], r.slope[l - 1], c.y[l - 1]);
    }
  }
}

template class Network<float>;
template class Network<double>;

}  // namespace neural
}  // namespace ttr::families
