// How the weights of every token of a block follow from the weights before it: coefficients from the gates alone.
//
// Row t of `read` says  W_t = r_t0 W0 + r_t1 Z0 + r_t2 P0 + sum_s r_{t,3+s} u_s  for the weights that token t reads,
// and the rows of `last` say the same of the final W, Z, P (block: with the start A for W0):
//
//   step_every 1  z <- m_t z + e_t (no momentum: e_t) ;  w <- a_t w + z
//   step_every C  p <- p + e_t ;  where a step is complete  z <- m z + p ; w <- a w + z ; p <- 0 , m, a: means
//   block         w_t = (1, gain_t, 0, gain_t .. gain_t); the final states are left to the caller
//
// The reverse takes cotangents of all rows to those of the gates. 3 + n numbers per row: n^2 of work beside the n^2 K
// of the products.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/common/scratch.h"
#include "families/network/neural/neural.h"
#include "simd/simd.h"

namespace ttr::families::neural {

/// Gates of the tokens of a block as given; sums: of the tokens of the unfinished step before it, then after it.
template <class T>
struct Gates {
  T *momentum, *decay, *gain;  // [n]
  T sums[2] = {0, 0};
};

template <class T>
T decay_factor(Decay kind, T x) {
  return kind == Decay::none ? T(1) : kind == Decay::log ? std::exp(x) : T(1) - x;
}
template <class T>
T decay_slope(Decay kind, T factor) {
  return kind == Decay::none ? T(0) : kind == Decay::log ? factor : T(-1);
}

template <class T>
class Schedule {
 public:
  using Size = std::ptrdiff_t;
  Schedule(const Simd<T>& simd, const NeuralModel& model, Size rows, bool backward, Arena& arena)
      : ld(rows + 3), s(simd), m(model) {
    read = arena.take<T>(rows * ld), last = arena.take<T>(3 * ld);
    a = arena.take<T>(rows), b = arena.take<T>(rows), c = arena.take<T>(rows);
    if (!backward) return;
    w_ = arena.take<T>((rows + 1) * ld), z_ = arena.take<T>((rows + 1) * ld), mean_ = arena.take<T>(2 * rows);
    d_read = arena.take<T>(rows * ld), d_last = arena.take<T>(3 * ld), hat_ = arena.take<T>(3 * ld);
    d_a = arena.take<T>(rows), d_b = arena.take<T>(rows), d_c = arena.take<T>(rows);
  }

  Size ld;
  T *read, *last;                          // [n, 3 + n]; last: rows W, Z, P
  T *a, *b, *c;                            // columns 0, 1, 2 of read
  T *d_read = nullptr, *d_last = nullptr;  // cotangents; those of columns 0 .. 2 of read stand in d_a, d_b, d_c
  T *d_a = nullptr, *d_b = nullptr, *d_c = nullptr;
  T* gamma() const { return read + 3; }
  T* d_gamma() const { return d_read + 3; }

  /// `count` tokens seen before. g.sums becomes that after the block.
  void run(Size n, std::int64_t count, Gates<T>& g) {
    if (m.block) {  // z is a row of ones: nothing to propagate
      for (Size t = 0; t < n; ++t) {
        std::fill_n(read + t * ld + 3, t + 1, g.gain[t]);
        a[t] = 1, b[t] = g.gain[t], c[t] = 0;
      }
      return;
    }
    T *const w = last, *const z = last + ld, *const p = last + 2 * ld;
    std::fill_n(last, 3 * ld, T(0));
    w[0] = z[1] = p[2] = 1;
    if (w_) std::copy_n(w, 3 + n, w_), std::copy_n(z, 3 + n, z_);
    for (Size t = 0; t < n; ++t) {
      const Size length = 4 + t;
      if (m.read_before) std::copy_n(w, length, read + t * ld);
      p[3 + t] = 1;
      g.sums[0] += g.momentum[t], g.sums[1] += g.decay[t];
      if ((count + t + 1) % m.step_every == 0) {
        const T mean[2] = {g.sums[0] / static_cast<T>(m.step_every), g.sums[1] / static_cast<T>(m.step_every)};
        if (mean_) mean_[2 * t] = mean[0], mean_[2 * t + 1] = mean[1];
        s.scale(length, m.momentum ? mean[0] : T(0), z, z);
        s.axpy(length, T(1), p, z);
        s.scale(length, decay_factor(m.decay, mean[1]), w, w);
        s.axpy(length, T(1), z, w);
        std::fill_n(p, length, T(0));
        g.sums[0] = g.sums[1] = 0;
      }
      if (!m.read_before) std::copy_n(w, length, read + t * ld);
      if (w_) std::copy_n(w, 3 + n, w_ + (t + 1) * ld), std::copy_n(z, 3 + n, z_ + (t + 1) * ld);
    }
    for (Size t = 0; t < n; ++t) a[t] = read[t * ld], b[t] = read[t * ld + 1], c[t] = read[t * ld + 2];
  }

  void clear(Size n) {
    for (Size t = 0; t < n; ++t) std::fill_n(d_read + t * ld, 3 + n, T(0));
    std::fill_n(d_last, 3 * ld, T(0));
    std::fill_n(d_a, n, T(0)), std::fill_n(d_b, n, T(0)), std::fill_n(d_c, n, T(0));
  }

  /// After run: d holds cotangents of the gates, added to; d.sums comes in for the end and goes out for the start.
  void back(Size n, std::int64_t count, Gates<T>& d) {
    if (m.block) {
      for (Size t = 0; t < n; ++t) {
        d.gain[t] += d_b[t];
        for (Size r = 0; r <= t; ++r) d.gain[t] += d_read[t * ld + 3 + r];
      }
      return;
    }
    T *const w = hat_, *const z = hat_ + ld, *const p = hat_ + 2 * ld;
    std::copy_n(d_last, 3 * ld, hat_);
    for (Size t = n; t-- > 0;) {
      const Size length = 4 + t;
      T* const row = d_read + t * ld;
      row[0] = d_a[t], row[1] = d_b[t], row[2] = d_c[t];
      if (!m.read_before) s.axpy(length, T(1), row, w);
      if ((count + t + 1) % m.step_every == 0) {
        const T factor = decay_factor(m.decay, mean_[2 * t + 1]), momentum = m.momentum ? mean_[2 * t] : T(0);
        const T every = static_cast<T>(m.step_every);
        d.sums[1] = s.dot(length, w, w_ + t * ld) * decay_slope(m.decay, factor) / every;
        s.axpy(length, T(1), w, z);
        s.scale(length, factor, w, w);
        std::copy_n(z, length, p);
        d.sums[0] = m.momentum ? s.dot(length, z, z_ + t * ld) / every : T(0);
        s.scale(length, momentum, z, z);
      }
      d.momentum[t] += d.sums[0], d.decay[t] += d.sums[1];
      if (m.read_before) s.axpy(length - 1, T(1), row, w);
    }
  }

 private:
  const Simd<T>& s;
  NeuralModel m;
  T *w_ = nullptr, *z_ = nullptr, *mean_ = nullptr, *hat_ = nullptr;
};

}  // namespace ttr::families::neural
