// Reverse of a Newton-Schulz step X' = x X + (y B + z B^2) X, B = X X', for the cotangent E of X':
//
//   C = E X' ;  B^ = y C + z (C B + B C) ;  X^ = x E + (y B + z B^2) E + (B^ + B^') X
//
// The X, B and x + y B + z B^2 of the five steps are kept for it.
//
// of row_norm, with f = norm / (r + 1e-5), r = |w|, e the cotangent of f w:  w^ = f e - (e.w) f / ((r + 1e-5) r) w
// of q_norm, with u = w / max |w|, n = sum |u|^q, f = |w|_q^(2-q):  w^ = f e - (e.u) (q-2) f / n  sign(w) |u|^(q-1)
#include "families/network/neural/step.h"

#include <algorithm>
#include <cmath>

#include "families/network/neural/functions.h"

namespace ttr::families::neural {
namespace {

constexpr double muon[5][3] = {{3.4445, -4.7750, 2.0315},
                               {3.4445, -4.7750, 2.0315},
                               {3.4445, -4.7750, 2.0315},
                               {3.4445, -4.7750, 2.0315},
                               {3.4445, -4.7750, 2.0315}};
constexpr double lact[5][3] = {{4.0848, -6.8946, 2.9270},
                               {3.9505, -6.3029, 2.6377},
                               {3.7418, -5.5913, 2.3037},
                               {2.8769, -3.1427, 1.2046},
                               {2.8366, -3.0525, 1.2012}};

}  // namespace

template <class T>
Steps<T>::Steps(const Simd<T>& simd, const NeuralModel& model, const NeuralLayout& layout, bool backward,
                Arena& arena)
    : s(simd), m(model), layout_(layout) {
  if (simd.name) r_ = &neural_simd(simd);  // none where bytes are only counted
  Size widest = 0;
  for (int i = 0; i < layout_.count; ++i) {
    const NeuralLayout::Part& p = layout_.part[i];
    if (!p.matrix) continue;
    largest_ = std::max(largest_, Size{p.in} * p.out);
    side_ = std::max<Size>(side_, std::min(p.in, p.out));
    widest = std::max<Size>(widest, p.out);
  }
  moves_ = arena.take<T>(largest_);
  if (m.orthogonalise != Orthogonalise::none) {
    const Size kept = backward ? 5 : 1;
    x_ = arena.take<T>(6 * largest_);
    b_ = arena.take<T>(kept * side_ * side_), bb_ = arena.take<T>(kept * side_ * side_);
    if (backward) kept_ = side_ * side_, d_b_ = arena.take<T>(2 * side_ * side_), d_x_ = arena.take<T>(2 * largest_);
  }
  if (backward) z_ = arena.take<T>(2 * layout_.size), columns_ = arena.take<T>(2 * widest);
  if (backward && m.mirror != Mirror::none) mirrored_ = arena.take<T>(layout_.size);
}

/// X = G / (|G| + 1e-7), turned if tall; returns its rows.
template <class T>
std::ptrdiff_t Steps<T>::turn(const NeuralLayout::Part& p, const T* G, T* X) const {
  const Size n = Size{p.in} * p.out;
  const T factor = T(1) / (std::sqrt(s.dot(n, G, G)) + T(1e-7));
  if (p.in > p.out) turn_over(s, p.in, p.out, G, X);
  else std::copy_n(G, n, X);
  s.scale(n, factor, X, X);
  return std::min(p.in, p.out);
}

/// B = X X', BB = c0 + c1 B + c2 B^2
template <class T>
void Steps<T>::squared(Size r, Size columns, const T* X, const double* c, T* B, T* BB) const {
  s.gram(r, columns, X, columns, B, r);
  s.gram(r, r, B, r, BB, r);
  s.scale(r * r, static_cast<T>(c[2]), BB, BB);
  s.axpy(r * r, static_cast<T>(c[1]), B, BB);
  for (Size i = 0; i < r; ++i) BB[i * r + i] += static_cast<T>(c[0]);
}

template <class T>
void Steps<T>::orthogonalise(const NeuralLayout::Part& p, const T* G, T* out) {
  const auto& table = m.orthogonalise == Orthogonalise::fixed ? muon : lact;
  const Size n = Size{p.in} * p.out, r = turn(p, G, x_), columns = n / r;
  for (int i = 0; i < 5; ++i) {
    const T* const X = x_ + i * largest_;
    T* const next = x_ + (i + 1) * largest_;
    squared(r, columns, X, table[i], b_ + i * kept_, bb_ + i * kept_);
    s.gemm_nn(r, columns, r, T(1), bb_ + i * kept_, r, X, columns, T(0), next, columns);
  }
  const T* const last = x_ + 5 * largest_;
  if (p.in > p.out) turn_over(s, r, columns, last, out);
  else std::copy_n(last, n, out);
}

/// d_G = reverse for d_out, after orthogonalise(G). B' = B throughout, but its cotangent is not symmetric.
template <class T>
void Steps<T>::orthogonalise_back(const NeuralLayout::Part& p, const T* G, const T* d_out, T* d_G) {
  const auto& table = m.orthogonalise == Orthogonalise::fixed ? muon : lact;
  const Size n = Size{p.in} * p.out, r = std::min(p.in, p.out), columns = n / r;
  T *d = d_x_, *other = d_x_ + largest_, *const d_b = d_b_, *const d_bb = d_b_ + side_ * side_;
  if (p.in > p.out) turn_over(s, p.in, p.out, d_out, d);
  else std::copy_n(d_out, n, d);
  for (int i = 4; i >= 0; --i) {
    const T *const X = x_ + i * largest_, *const B = b_ + i * kept_, *const BB = bb_ + i * kept_;
    s.gemm_nt(r, r, columns, T(1), d, columns, X, columns, T(0), d_bb, r);
    std::copy_n(d_bb, r * r, d_b);
    s.gemm_nn(r, r, r, static_cast<T>(table[i][2]), d_bb, r, B, r, static_cast<T>(table[i][1]), d_b, r);
    s.gemm_nn(r, r, r, static_cast<T>(table[i][2]), B, r, d_bb, r, T(1), d_b, r);
    turn_over(s, r, r, d_b, d_bb);
    s.axpy(r * r, T(1), d_b, d_bb);
    s.gemm_nn(r, columns, r, T(1), BB, r, d, columns, T(0), other, columns);
    s.gemm_nn(r, columns, r, T(1), d_bb, r, X, columns, T(1), other, columns);
    std::swap(d, other);
  }
  if (p.in > p.out) turn_over(s, r, columns, d, d_G);
  else std::copy_n(d, n, d_G);
  const T length = std::sqrt(s.dot(n, G, G)), factor = T(1) / (length + T(1e-7));
  const T along = length > 0 ? s.dot(n, d_G, G) * factor * factor / length : T(0);
  s.scale(n, factor, d_G, d_G);
  s.axpy(n, -along, G, d_G);
}

template <class T>
void Steps<T>::chain(const Moved<T>& x, T a, T momentum) {
  const Size n = layout_.size;
  const T* source = x.P;
  if (m.momentum) {
    if (momentum != T(1)) s.scale(n, momentum, x.Z, x.Z);
    s.axpy(n, T(1), x.P, x.Z);
    source = x.Z;
  }
  if (a != T(1)) s.scale(n, a, x.W, x.W);
  if (m.orthogonalise == Orthogonalise::none) s.axpy(n, T(1), source, x.W);
  for (int i = 0, j = 0; i < layout_.count; ++i) {
    const NeuralLayout::Part& p = layout_.part[i];
    const Size size = Size{p.in} * p.out;
    T* const W = x.W + p.offset;
    if (m.orthogonalise != Orthogonalise::none) {
      if (p.matrix) orthogonalise(p, source + p.offset, moves_), s.axpy(size, T(1), moves_, W);
      else s.axpy(size, T(1), source + p.offset, W);
    }
    if (m.row_norm && p.matrix) {
      // Lengths of the columns, then factors, in moves_.
      r_->collect(p.in, p.out, T(1), nullptr, W, W, T(0), moves_);
      for (int c = 0; c < p.out; ++c)
        moves_[c] = moves_[c] > 0 ? norms[j][c] / (std::sqrt(moves_[c]) + T(1e-5)) : T(1);
      s.scale_columns(p.in, p.out, moves_, W, p.out, W, p.out);
    }
    j += p.matrix;
  }
}

template <class T>
void Steps<T>::chain_back(const Moved<const T>& x, T a, T momentum, const Moved<T>& d, T* d_a, T* d_m) {
  const Size n = layout_.size;
  T *const Z = z_, *const d_Z = z_ + n;  // the update as it is added, and its cotangent
  std::copy_n(x.P, n, Z);
  if (m.momentum) s.axpy(n, momentum, x.Z, Z);
  for (int i = 0, j = 0; i < layout_.count; ++i) {
    const NeuralLayout::Part& p = layout_.part[i];
    const Size size = Size{p.in} * p.out;
    const bool turned = p.matrix && m.orthogonalise != Orthogonalise::none;
    T* const d_W = d.W + p.offset;
    if (turned) orthogonalise(p, Z + p.offset, moves_);
    if (m.row_norm && p.matrix) {
      // W before the norm; the squares of its columns and what they have of d_W become their shares of W and d_W.
      if (!turned) std::copy_n(Z + p.offset, size, moves_);
      s.axpy(size, a, x.W + p.offset, moves_);
      T *const factor = columns_, *const towards = columns_ + p.out;
      r_->collect(p.in, p.out, T(1), nullptr, moves_, moves_, T(0), factor);
      r_->collect(p.in, p.out, T(1), nullptr, moves_, d_W, T(0), towards);
      for (int c = 0; c < p.out; ++c) {
        const T length = std::sqrt(factor[c]), inverse = T(1) / (length + T(1e-5));
        if (!(length > 0)) {  // a column of zeros stays
          factor[c] = 1, towards[c] = 0;
          continue;
        }
        if (d_norms[j]) d_norms[j][c] += towards[c] * inverse;
        factor[c] = norms[j][c] * inverse;
        towards[c] *= -factor[c] * inverse / length;
      }
      s.scale_columns(p.in, p.out, factor, d_W, p.out, d_W, p.out);
      for (int r = 0; r < p.in; ++r) s.mul_add(p.out, towards, moves_ + Size{r} * p.out, d_W + Size{r} * p.out);
    }
    if (turned) orthogonalise_back(p, Z + p.offset, d_W, d_Z + p.offset);
    else std::copy_n(d_W, size, d_Z + p.offset);
    j += p.matrix;
  }
  *d_a += s.dot(n, x.W, d.W);
  if (a != T(1)) s.scale(n, a, d.W, d.W);
  if (m.momentum) {
    s.axpy(n, T(1), d.Z, d_Z);
    *d_m += s.dot(n, x.Z, d_Z);
    s.scale(n, momentum, d_Z, d.Z);
  }
  std::copy_n(d_Z, n, d.P);
}

template <class T>
void Steps<T>::block(const Moved<T>& x, const T* A, T gain) {
  s.axpy(layout_.size, T(1), x.P, x.Z);
  std::copy_n(A, layout_.size, x.W);
  s.axpy(layout_.size, gain, x.Z, x.W);
}

template <class T>
void Steps<T>::block_back(const Moved<const T>& x, T gain, const Moved<T>& d, T* d_A, T* d_gain) {
  const Size n = layout_.size;
  *d_gain += s.dot(n, x.Z, d.W) + s.dot(n, x.P, d.W);
  s.axpy(n, T(1), d.W, d_A);
  s.axpy(n, gain, d.W, d.Z);
  std::fill_n(d.W, n, T(0));
  std::copy_n(d.Z, n, d.P);
}

namespace {

// |w|_q = most sum^(1/q), with the sum over |w / most|^q: a power of w itself leaves the range of a float where the norm
// does not.
template <class T>
struct QNorm {
  QNorm(std::ptrdiff_t size, const T* w, T q) {
    for (std::ptrdiff_t c = 0; c < size; ++c) most = std::max(most, std::abs(w[c]));
    for (std::ptrdiff_t c = 0; most > 0 && c < size; ++c) sum += std::pow(std::abs(w[c]) / most, q);
    if (most > 0) factor = std::pow(most * std::pow(sum, 1 / q), T(2) - q);
  }
  T most = 0, sum = 0, factor = 1;  // factor: |w|_q^(2-q)
};

}  // namespace

// Of softmax the sum in double: a matrix has thousands of entries.
template <class T>
void Steps<T>::mirrored(const NeuralLayout::Part& p, const T* W, T* to) const {
  const Size size = Size{p.in} * p.out;
  const T *const w = W + p.offset, radius = static_cast<T>(m.radius);
  T* const y = to + p.offset;
  if (!p.matrix) {
    std::copy_n(w, size, y);
  } else if (m.mirror == Mirror::sinh) {
    for (Size c = 0; c < size; ++c) y[c] = radius * std::sinh(w[c]);
  } else {
    const T most = m.mirror == Mirror::softmax ? *std::max_element(w, w + size) : T(0);
    double sum = 0;
    for (Size c = 0; c < size; ++c) y[c] = w[c] - most;
    s.exp(size, y, y);
    for (Size c = 0; c < size; ++c) sum += static_cast<double>(y[c]);
    s.scale(size, m.mirror == Mirror::softmax ? static_cast<T>(m.radius / sum) : radius, y, y);
  }
}

// With y in use:  softmax y (d - y.d / radius) ;  exp y d ;  sinh radius cosh(w) d
template <class T>
void Steps<T>::mirrored_back(const NeuralLayout::Part& p, const T* W, const T* d, T* d_W) const {
  const Size size = Size{p.in} * p.out;
  const T *const w = W + p.offset, *const e = d + p.offset, radius = static_cast<T>(m.radius);
  T* const to = d_W + p.offset;
  if (!p.matrix) return s.axpy(size, T(1), e, to);
  if (m.mirror == Mirror::sinh) {
    for (Size c = 0; c < size; ++c) to[c] += radius * std::cosh(w[c]) * e[c];
    return;
  }
  mirrored(p, W, mirrored_);
  const T* const y = mirrored_ + p.offset;
  const T along = m.mirror == Mirror::softmax ? s.dot(size, y, e) / radius : T(0);
  for (Size c = 0; c < size; ++c) to[c] += y[c] * (e[c] - along);
}

template <class T>
const T* Steps<T>::in_use(const T* W, T* to) const {
  if (!m.maps()) return W;
  for (int i = 0; i < layout_.count; ++i) {
    const NeuralLayout::Part& p = layout_.part[i];
    const Size size = Size{p.in} * p.out;
    if (m.mirror != Mirror::none) {
      mirrored(p, W, to);
      continue;
    }
    const QNorm<T> norm(size, W + p.offset, static_cast<T>(m.q_norm));
    s.scale(size, norm.factor, W + p.offset, to + p.offset);
  }
  return to;
}

template <class T>
void Steps<T>::in_use_back(const T* W, const T* d, T* d_W) const {
  const T q = static_cast<T>(m.q_norm);
  for (int i = 0; m.mirror != Mirror::none && i < layout_.count; ++i) mirrored_back(layout_.part[i], W, d, d_W);
  for (int i = 0; m.q_norm != 0 && i < layout_.count; ++i) {
    const NeuralLayout::Part& p = layout_.part[i];
    const Size size = Size{p.in} * p.out;
    const T *const w = W + p.offset, *const e = d + p.offset;
    const QNorm<T> norm(size, w, q);
    if (!(norm.most > 0)) {
      s.axpy(size, T(1), e, d_W + p.offset);
      continue;
    }
    const T along = s.dot(size, w, e) / norm.most * (q - 2) * norm.factor / norm.sum;
    for (Size c = 0; c < size; ++c)
      d_W[p.offset + c] +=
          norm.factor * e[c] - along * std::copysign(std::pow(std::abs(w[c]) / norm.most, q - 1), w[c]);
  }
}

template class Steps<float>;
template class Steps<double>;

}  // namespace ttr::families::neural
