// Reverse of reading, gathering and learning; the equations are in neural_network.h.
#include <algorithm>
#include <cmath>

#include "families/network/neural/functions.h"
#include "families/network/neural/network.h"

namespace ttr::families::neural {

template <class T>
void Network<T>::part_back(int j, Size n, const T* X, const T* d_y, const T* W, const T* factor, T* d_W, T* d_factor,
                           bool first, T* d_x) {
  const Shape& p = shape_[j];
  if (!factor) {
    down(j, n, d_y, W, first ? T(0) : T(1), d_x);
    if (d_W) s.gemm_tn(p.in, p.out, n, T(1), X, p.in, d_y, p.out, T(1), d_W + p.weight, p.out);
    if (d_W && m.bias) r_->collect(n, p.out, T(1), nullptr, nullptr, d_y, T(1), d_W + p.bias);
    return;
  }
  down(j, n, d_y, W, T(0), scaled_);
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
  if (m.bias) r_->collect(n, p.out, T(1), factor, nullptr, d_y, T(1), d_W + p.bias);
}

template <class T>
void Network<T>::sums_back(int j, Size n, const T* X, const T* d_y, const Mix<T>& mix, const MixCotangent<T>& d,
                           bool first, T* d_x) {
  const Shape& p = shape_[j];
  part_back(j, n, X, d_y, mix.W, mix.a, d.W, d.a, first, d_x);
  if (mix.Z) part_back(j, n, X, d_y, mix.Z, mix.b, d.Z, d.b, false, d_x);
  if (mix.P) part_back(j, n, X, d_y, mix.P, mix.c, d.P, d.c, false, d_x);
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
void Network<T>::read_back(Size n, Rows<T>& r, const Mix<T>& mix, const MixCotangent<T>& d, const T* d_out, T* d_x) {
  if (m.norm == Norm::none) {
    std::copy_n(d_out, n * V, d_y_);
  } else {
    const bool learned = m.norm == Norm::learned;
    const Size offset = layout_.size - V;
    r_->collect(n, V, T(1), nullptr, nullptr, d_out, T(1), d_norm_bias);
    if (!learned) r_->collect(n, V, T(1), nullptr, r.normed, d_out, T(1), d_norm_weight);
    r_->norm_delta(n, V, r.normed, r.inverse, learned ? r.scale : norm_weight, learned ? V : 0, d_out, nullptr, 0,
                   d_y_, nullptr);
    if (learned) {
      s.mul(n * V, d_out, r.normed, d_scale_);
      const auto part = [&](const T* W, const T* factor, T* d_W, T* d_factor) {
        if (!W) return;
        if (d_W) r_->collect(n, V, T(1), factor, nullptr, d_scale_, T(1), d_W + offset);
        for (Size i = 0; d_factor && i < n; ++i) d_factor[i] += s.dot(V, W + offset, d_scale_ + i * V);
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
void Network<T>::weigh_back(Size n, const KeyRows<T>& r, const T* rates, KeyCotangents<T>& c, T* d_rates) {
  const int count = m.rates;
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
      r_->gated_back(count, {r.back[l], r.slope[l], r.bend[l], r.lift, r.y[L]}, d, c.delta[L], back, y, c.y[L]);
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
  const T* const t = c.delta[L - 1];
  if (m.norm == Norm::none) {
    loss_slopes_back(s, m, n, r.residual, threshold, t, top, d_v, d_threshold);
    if (m.skip != Skip::none && !flat()) s.axpy(n * V, T(1), top, c.x[0]);
  } else {
    const bool learned = m.norm == Norm::learned;
    T *const d_w = learned ? d_point + layout_.size - V : d_norm_weight, *const d_e = d_scale_, *const d_z = d_in_;
    r_->norm_delta_back(n, V, r.normed, r.inverse, r.scale, r.error, r.delta[L - 1], t, d_w, d_e, d_z, d_sd_);
    if (learned) {
      s.mul_add(n * V, c.scale_update, r.normed, d_e);
      s.mul_add(n * V, c.scale_update, r.error, d_z);
    }
    loss_slopes_back(s, m, n, r.residual, threshold, d_e, top, d_v, d_threshold);
    if (m.skip != Skip::none) s.axpy(n * V, T(1), top, c.x[0]);
    r_->collect(n, V, T(1), nullptr, nullptr, top, T(1), d_norm_bias);
    r_->norm_back(n, V, r.normed, r.inverse, r.scale, d_w, d_z, d_sd_, top);
  }
  for (int l = L - 1; l >= 0; --l) {
    const auto through = [&](int j, int stage) {
      const Shape& p = shape_[j];
      s.gemm_tn(p.in, p.out, n, T(1), r.x[stage], p.in, c.y[j], p.out, T(1), d_point + p.weight, p.out);
      if (m.bias) r_->collect(n, p.out, T(1), nullptr, nullptr, c.y[j], T(1), d_point + p.bias);
      down(j, n, c.y[j], point, T(1), c.x[stage]);
    };
    if (l + 1 < L || !flat()) through(l, l);
    if (l == 0) {
      if (m.gated) through(L, 0);
      break;
    }
    if (m.gated) {
      s.mul(count, c.x[1], r.slope[0], d_in_);
      s.mul_add(count, d_in_, r.y[L], c.y[0]);
      s.mul_add(count, c.x[1], r.lift, c.y[L]);
    } else {
      s.mul_add(count, c.x[l], r.slope[l - 1], c.y[l - 1]);
    }
  }
}

template class Network<float>;
template class Network<double>;

}  // namespace ttr::families::neural
