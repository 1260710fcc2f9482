// The equations are in neural_network.h. Rows of a block are contiguous; parameters lie as NeuralLayout says.
#include "families/network/neural/network.h"

#include <algorithm>
#include <cmath>

#include "families/network/neural/functions.h"

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
  if (simd.name) r_ = &neural_simd(simd);  // none where bytes are only counted
  scaled_ = arena.take<T>(rows * widest_);
  kt_ = arena.take<T>(rows * widest_), pairs_ = arena.take<T>(rows * rows);
  if (!backward) return;
  d_norm_weight = arena.take<T>(V), d_norm_bias = arena.take<T>(V);
  d_pairs_ = arena.take<T>(rows * rows), ut_ = arena.take<T>(rows * widest_), d_y_ = arena.take<T>(rows * widest_);
  d_in_ = arena.take<T>(rows * widest_), d_scale_ = arena.take<T>(rows * V), d_sd_ = arena.take<T>(rows);
  turned_ = arena.take<T>(layout_.size);
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

template <class T>
void Network<T>::sums(int j, Size n, const T* X, const Mix<T>& mix, T* Y) {
  const Shape& p = shape_[j];
  T beta = 0;
  const auto part = [&](const T* W, const T* factor) {
    if (!W) return;
    const T* in = X;
    if (m.bias) r_->spread(n, p.out, factor, W + p.bias, beta != T(0), Y), beta = 1;
    if (factor) s.scale_rows(n, p.in, factor, X, p.in, scaled_, p.in), in = scaled_;
    s.gemm_nn(n, p.out, p.in, T(1), in, p.in, W + p.weight, p.out, beta, Y, p.out), beta = 1;
  };
  part(mix.W, mix.a), part(mix.Z, mix.b), part(mix.P, mix.c);
  if (!mix.gamma) return;
  s.transpose(n, p.in, mix.keys->x[j < L ? j : 0], p.in, kt_, n);
  s.gemm_lower(n, p.in, T(1), X, p.in, kt_, n, pairs_, n);
  r_->gate_pairs(n, m.bias ? T(1) : T(0), mix.gamma, mix.ld, pairs_, n);
  s.trmm_nn(n, p.out, T(1), pairs_, n, mix.keys->update[j], p.out, T(1), Y, p.out);
}

template <class T>
void Network<T>::turn(const T* W) {
  turned_of_ = W;
  for (int j = 0; W && j < M; ++j)
    turn_over(s, shape_[j].in, shape_[j].out, W + shape_[j].weight, turned_ + shape_[j].weight);
}

template <class T>
void Network<T>::down(int j, Size n, const T* rows, const T* W, T beta, T* to) const {
  const Shape& p = shape_[j];
  if (W == turned_of_) s.gemm_nn(n, p.in, p.out, T(1), rows, p.out, turned_ + p.weight, p.in, beta, to, p.in);
  else s.gemm_nt(n, p.in, p.out, T(1), rows, p.out, W + p.weight, p.out, beta, to, p.in);
}

template <class T>
void Network<T>::hidden(int l, Size n, Rows<T>& r, int derivatives) {
  typename NeuralSimd<T>::Activation a;
  a.x = r.y[l], a.slope = derivatives > 0 ? r.slope[l] : nullptr, a.bend = derivatives > 1 ? r.bend[l] : nullptr;
  if (m.gated) a.y = derivatives > 0 ? r.lift : nullptr, a.other = r.y[L], a.product = r.x[l + 1];
  else a.y = r.x[l + 1];
  r_->activate(curve_of(m.activation), n * m.width, a);
}

template <class T>
void Network<T>::read(Size n, Rows<T>& r, const Mix<T>& mix, T* out) {
  const bool direct = m.norm == Norm::none && m.skip != Skip::sum;
  T* const top = direct ? out : r.y[L - 1];
  for (int l = 0; l < L; ++l) {
    sums(l, n, r.x[l], mix, l + 1 < L ? r.y[l] : top);
    if (l + 1 == L) break;
    if (m.gated) sums(L, n, r.x[0], mix, r.y[L]);
    hidden(l, n, r, backward_ ? 1 : 0);
  }
  const T* const skip = m.skip == Skip::input ? r.x[0] : m.skip == Skip::sum ? top : nullptr;
  if (m.norm == Norm::none) {
    if (!direct) std::copy_n(top, n * V, out);
    if (skip) s.axpy(n * V, T(1), skip, out);
    return;
  }
  const bool learned = m.norm == Norm::learned;
  if (learned) {
    const Size offset = layout_.size - V;  // of gamma
    std::fill_n(r.scale, n * V, T(1));
    r_->spread(n, V, mix.a, mix.W + offset, true, r.scale);
    if (mix.Z) r_->spread(n, V, mix.b, mix.Z + offset, true, r.scale);
    if (mix.P) r_->spread(n, V, mix.c, mix.P + offset, true, r.scale);
    if (mix.gamma) s.trmm_nn(n, V, T(1), mix.gamma, mix.ld, mix.keys->scale_update, V, T(1), r.scale, V);
  }
  r_->normalise({.n = n,
                 .V = V,
                 .y = top,
                 .eps = static_cast<T>(m.norm_eps),
                 .w = learned ? r.scale : norm_weight,
                 .ldw = learned ? V : 0,
                 .c = norm_bias,
                 .plus = skip,
                 .normed = backward_ ? r.normed : nullptr,
                 .inverse = backward_ ? r.inverse : nullptr,
                 .out = out});
}

template <class T>
void Network<T>::learn(Size n, KeyRows<T>& r, const T* point, const T* v, const T* threshold, const T* rates) {
  const Mix<T> at{.W = point};
  for (int l = 0; l < L; ++l) {
    if (l + 1 == L && flat()) break;
    sums(l, n, r.x[l], at, r.y[l]);
    if (l + 1 == L) break;
    if (m.gated) sums(L, n, r.x[0], at, r.y[L]);
    hidden(l, n, r, backward_ ? 2 : 1);
  }
  const auto rate = [&](int j) { return rates + (m.rates > 1 ? j : 0); };
  T* const e = r.error;
  T* const top = L > 1 || backward_ ? r.delta[L - 1] : nullptr;
  const T* const skip = m.skip != Skip::none ? r.x[0] : nullptr;
  if (m.norm == Norm::none) {
    if (!flat()) {
      std::copy_n(r.y[L - 1], n * V, e);
      if (skip) s.axpy(n * V, T(1), skip, e);
      s.axpy(n * V, T(-1), v, e);
    }
    loss_slopes(s, m, n, v, threshold, r.residual, e);
    r_->deltas(n, V, e, nullptr, nullptr, rate(L - 1), m.rates, top, r.update[L - 1]);
  } else {
    const bool learned = m.norm == Norm::learned;
    std::copy_n(norm_weight, V, r.scale);
    if (learned) std::fill_n(r.scale, V, T(1)), s.axpy(V, T(1), point + layout_.size - V, r.scale);
    r_->normalise({.n = n,
                   .V = V,
                   .y = r.y[L - 1],
                   .eps = static_cast<T>(m.norm_eps),
                   .w = r.scale,
                   .c = norm_bias,
                   .plus = skip,
                   .minus = v,
                   .normed = r.normed,
                   .inverse = r.inverse,
                   .out = e});
    loss_slopes(s, m, n, v, threshold, r.residual, e);
    r_->norm_delta(n, V, r.normed, r.inverse, r.scale, 0, e, rate(L - 1), m.rates, top, r.update[L - 1]);
    if (learned) r_->deltas(n, V, e, r.normed, nullptr, rates, m.rates, r.scale_delta, r.scale_update);
  }
  for (int l = L - 2; l >= 0; --l) {
    down(l + 1, n, r.delta[l + 1], point, T(0), r.back[l]);
    const auto kept = [&](int j) { return l > 0 || backward_ ? r.delta[j] : nullptr; };
    r_->deltas(n, m.width, r.back[l], r.slope[l], m.gated ? r.y[L] : nullptr, rate(l), m.rates, kept(l), r.update[l]);
    if (m.gated) r_->deltas(n, m.width, r.back[l], r.lift, nullptr, rate(L), m.rates, kept(L), r.update[L]);
  }
}

template <class T>
void Network<T>::gather(Size n, const KeyRows<T>& r, T alpha, const T* w, T f, T* to) {
  for (int j = 0; j < M; ++j) {
    const Shape& p = shape_[j];
    const T* X = r.x[j < L ? j : 0];
    if (w) s.scale_rows(n, p.in, w, X, p.in, scaled_, p.in), X = scaled_;
    s.gemm_tn(p.in, p.out, n, alpha, X, p.in, r.update[j], p.out, f, to + p.weight, p.out);
    if (m.bias) r_->collect(n, p.out, alpha, w, nullptr, r.update[j], f, to + p.bias);
  }
  if (m.norm == Norm::learned) r_->collect(n, V, alpha, w, nullptr, r.scale_update, f, to + layout_.size - V);
}

template class Network<float>;
template class Network<double>;

}  // namespace neural
}  // namespace ttr::families
