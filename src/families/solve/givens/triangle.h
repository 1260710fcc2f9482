// A least-squares problem as a triangle [R Z], R [K, K] upper triangular, Z [K, V]: rows are rotated in, faded, read.
//
// The triangle is in coordinates of the basis B (orthonormal rows, the first `rank` of them in use); rows and columns
// of R, rows of Z and of B from `rank` on are zero. Without a basis (B = null) the coordinates are those of the keys and
// the rank is K: R was regular at the start. Source and thresholds: givens.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "families/common/scratch.h"
#include "families/solve/givens/rotate_simd.h"
#include "simd/simd.h"

namespace ttr::families {

class Triangle {
 public:
  using Size = std::ptrdiff_t;
  /// key_eps: the rounding of the keys, which is not that of double if they were rounded to a narrower type.
  Triangle(const Simd<double>& simd, Size key_dim, Size value_dim, double key_eps, Arena& arena)
      : s(simd),
        rotations(simd.name ? &rotate_simd(simd) : nullptr),
        K(key_dim),
        V(value_dim),
        new_cut(100 * key_eps) {
    for (double** rows : {&x, &queries}) *rows = arena.take<double>(most_together * K);
    for (double** rows : {&y, &answers}) *rows = arena.take<double>(most_together * V);
    for (double** vector : {&h, &c}) *vector = arena.take<double>(K);
    coefficients = arena.take<double>(3 * most_together * K);
  }

  /// The rows of a basis that are in use.
  static Size rank_of(Size K, const double* basis) {
    Size rank = 0;
    while (rank < K && std::any_of(basis + rank * K, basis + (rank + 1) * K, [](double b) { return b != 0; })) ++rank;
    return rank;
  }

  /// Works on these arrays from now on.
  void attach(double* r, double* z, double* basis) {
    R = r, Z = z, B = basis, rank = basis ? rank_of(K, basis) : K;
    weak = basis ? trailing_weak() : 0;
  }
  Size dimension() const { return rank; }
  /// Directions that were there and are not since the last time: faded into the rounding of the others, or so weak that
  /// they never came out of it.
  Size take_lost() { return std::exchange(lost, 0); }

  /// [R Z] <- root [R Z]. Rows do not sink below `smallest` unless root = 0.
  void fade(double root) {
    static const double smallest = 4 * std::sqrt(std::numeric_limits<double>::min());
    if (root == 1) return;
    if (root == 0) return clear();
    for (Size i = 0; i < rank; ++i) {
      const double pivot = std::abs(R[i * K + i]);
      double factor = root;
      if (root < 1 && pivot * root < smallest) factor = pivot > smallest ? smallest / pivot : 1;
      s.scale(rank - i, factor, R + i * K + i, R + i * K + i);
      s.scale(V, factor, Z + i * V, Z + i * V);
    }
  }

  /// One more row: root [k', v']; v = null: zero.
  void add(double root, const double* k, const double* v) {
    if (root == 0) return;
    if (v) s.scale(V, root, v, y);
    else std::fill_n(y, V, 0);
    if (!B) {
      s.scale(K, root, k, x);
      return rotate_in();
    }
    project(root, k);
    s.scale(rank, root, h, x);
    rotate_in();
    double least;
    for (; (least = weakest(rank)) <= old_cut; ++lost) remove();
    weak = trailing_weak();
    if (weak > 0) least = weakest(rank - weak);
    if (weak == rank || !(least <= weak_cut)) return;
    for (; weak < rank && least <= weak_cut; least = weakest(rank - weak)) turn(rank - weak), ++weak;
    weak = trailing_weak();  // as attach() finds them
  }

  /// Without a basis: rows that go in together, and what their queries read after each of them. `together` or one.
  Size together() const { return rotations->tokens; }
  double* row_of(Size token) const { return x + token * K; }          // [K], with its root: in
  double* value_of(Size token) const { return y + token * V; }        // [V]
  double* query_of(Size token) const { return queries + token * K; }  // [K] in, R'^{-1} q out
  const double* answer_of(Size token) const { return answers + token * V; }
  void add_rows(Size tokens, bool asks) {
    if (asks) std::fill_n(answers, tokens * V, 0.0);
    const RotateSimd<double>::Rows rows{
        rank, V, R, Z, K, x, asks ? queries : nullptr, K, y, asks ? answers : nullptr, V, coefficients};
    if (tokens == 1) rotations->one(rows);
    else rotations->several(rows);
  }

  /// The rows root_j e_j at once into a triangle without any: R = diag(root), B = I, in K^2 and not K^3. Rows so small that
  /// their squares would vanish are left out, as add() leaves them out.
  void start(const double* root) {
    const double most = *std::max_element(root, root + K);
    for (Size j = 0; j < K; ++j) {
      if (!(root[j] > old_cut * most)) {
        ++lost;
        continue;
      }
      std::fill_n(B + rank * K, K, 0.0);
      B[rank * K + j] = 1, R[rank * K + rank] = root[j];
      ++rank;
    }
  }

  /// y [rank] = R'^{-1} B q : the answer is Z' y, and q' pinv(H) q = y' y. A row without a pivot says nothing.
  void read(const double* q, double* out) const {
    if (B) s.mat_vec(rank, K, B, K, q, out), leave_out_rounding(q, out);
    else std::copy_n(q, K, out);
    for (Size i = 0; i < rank; ++i) {
      const double pivot = R[i * K + i];
      out[i] = pivot == 0 ? 0 : out[i] / pivot;
      s.axpy(rank - i - 1, -out[i], R + i * K + i + 1, out + i + 1);
    }
  }
  /// x [K] = pinv(H) q from y = read(q), which is overwritten.
  void solve(double* y_of_q, double* to) const {
    for (Size i = rank; i-- > 0;) {
      const double pivot = R[i * K + i];
      const double sum = y_of_q[i] - s.dot(rank - i - 1, R + i * K + i + 1, y_of_q + i + 1);
      y_of_q[i] = pivot == 0 ? 0 : sum / pivot;
    }
    if (B) s.vec_mat(rank, K, y_of_q, B, K, to);
    else std::copy_n(y_of_q, K, to);
  }
  /// Whether q has a part outside the span of the keys, as a new key would have to have one.
  bool leaves_span(const double* q) const {
    if (rank == K) return false;
    std::copy_n(q, K, c);
    for (int pass = 0; pass < 2; ++pass)  // once more for the rounding of the first time
      for (Size i = 0; i < rank; ++i) s.axpy(K, -s.dot(K, B + i * K, c), B + i * K, c);
    return !(s.dot(K, c, c) <= new_cut * new_cut * s.dot(K, q, q));
  }

 private:
  static double length_of(double a, double b) {
    const double sum = a * a + b * b;
    constexpr double low = std::numeric_limits<double>::min() / std::numeric_limits<double>::epsilon();
    if (sum > low && sum < std::numeric_limits<double>::max()) return std::sqrt(sum);
    return std::hypot(a, b);
  }
  // (a, b) <- (c a + s b, c b - s a)
  static void rotate(Size n, double cosine, double sine, double* __restrict a, double* __restrict b) {
    for (Size i = 0; i < n; ++i) {
      const double up = cosine * a[i] + sine * b[i];
      b[i] = cosine * b[i] - sine * a[i];
      a[i] = up;
    }
  }

  // The row (x, y) into the triangle.
  void rotate_in() { add_rows(1, false); }

  // h = B k, after B has got a row for what is new in k.
  void project(double root, const double* k) {
    double most = 0;
    for (Size i = 0; i < rank; ++i) most = std::max(most, std::abs(R[i * K + i]));
    const double size = std::sqrt(s.dot(K, k, k));
    s.mat_vec(rank, K, B, K, k, h);
    if (rank < K) {
      std::copy_n(k, K, c);
      for (Size i = 0; i < rank; ++i) s.axpy(K, -h[i], B + i * K, c);
      for (Size i = 0; i < rank; ++i) {
        const double rest = s.dot(K, B + i * K, c);
        s.axpy(K, -rest, B + i * K, c);
        h[i] += rest;
      }
    }
    leave_out_rounding(k, h);
    if (rank == K) return;
    const double out = std::sqrt(s.dot(K, c, c));
    if (!(out > new_cut * size)) return;
    if (!(root * out > old_cut * most)) {
      ++lost;
      return;
    }
    s.scale(K, 1 / out, c, B + rank * K);
    h[rank++] = out, weak = 0;
  }

  // Weak directions, of which little is known beside the others, are the last coordinates. A row that reaches into them
  // by no more than the rounding of its numbers says nothing about them; many such rows would, in time, more than what is
  // left of those that did.
  void leave_out_rounding(const double* row, double* coordinates) const {
    double* const last = coordinates + rank - weak;
    if (weak > 0 && s.dot(weak, last, last) <= new_cut * new_cut * s.dot(K, row, row)) std::fill_n(last, weak, 0.0);
  }
  Size trailing_weak() const {
    double most = 0;
    for (Size i = 0; i < rank; ++i) most = std::max(most, std::abs(R[i * K + i]));
    Size count = 0;
    for (Size j = rank; j-- > 0; ++count) {
      double square = 0;
      for (Size i = j + 1; i-- > 0 && square <= weak_cut * weak_cut * most * most;)
        square += R[i * K + j] * R[i * K + j];
      if (!(square <= weak_cut * weak_cut * most * most)) break;
    }
    return count;
  }

  // |R x| / |x| beside the largest pivot for the weakest direction x (in the first n coordinates of the basis); 1 where all
  // are alike. The smallest pivot R_ii is no less than the smallest |R x| / |x|, after a direction has been removed up to
  // thousands of times more, so only where all pivots are alike there is nothing to do. Elsewhere: R n = -R_ii e_i for
  // n = (R_{0..i-1}^{-1} R_{0..i-1,i}, -1, 0), from where two steps of inverse iteration lead to the weakest direction.
  // They are needed for its sake too: n is off by the ratio of the pivots, so that keys would keep reaching out of the
  // basis that is left by as much, and what is known there would be noise. `most` scales x so that nothing overflows
  // when all of R is small.
  double weakest(Size n) {
    double most = 0;
    Size i = 0;
    for (Size r = 0; r < rank; ++r) {
      const double pivot = std::abs(R[r * K + r]);
      most = std::max(most, pivot);
      if (r < n && pivot < std::abs(R[i * K + i])) i = r;
    }
    const double least = n > 0 ? std::abs(R[i * K + i]) : 1;
    if (!(least <= 0.1 * most) || std::isinf(most)) return 1;
    for (Size r = i; r-- > 0;) x[r] = (R[r * K + i] - s.dot(i - r - 1, R + r * K + r + 1, x + r + 1)) / R[r * K + r];
    x[i] = -1;
    std::fill(x + i + 1, x + n, 0);
    if (least == 0) return 0;
    double size = 0;
    for (int pass = 0; pass < 2; ++pass) {
      normalise(n, most);
      for (Size r = 0; r < n; ++r) {
        x[r] /= R[r * K + r];
        s.axpy(n - r - 1, -x[r], R + r * K + r + 1, x + r + 1);
      }
      normalise(n, most);
      for (Size r = n; r-- > 0;) x[r] = (x[r] - s.dot(n - r - 1, R + r * K + r + 1, x + r + 1)) / R[r * K + r];
      size = std::sqrt(s.dot(n, x, x));
    }
    return 1 / size;
  }
  void normalise(Size n, double length) { s.scale(n, length / std::sqrt(s.dot(n, x, x)), x, x); }

  // Rotates rows i and i+1 until R_{i+1,i} = 0.
  void restore(Size i) {
    double *const upper = R + i * K, *const lower = upper + K;
    if (lower[i] == 0) return;
    const double length = length_of(upper[i], lower[i]), cosine = upper[i] / length, sine = lower[i] / length;
    upper[i] = length, lower[i] = 0;
    rotate(rank - i - 1, cosine, sine, upper + i + 1, lower + i + 1);
    rotate(V, cosine, sine, Z + i * V, Z + (i + 1) * V);
  }

  // Turns the first n vectors of the basis until x is the last of them.
  void turn(Size n) {
    for (Size m = 0; m + 1 < n; ++m) {
      if (x[m] == 0) continue;
      const double length = length_of(x[m], x[m + 1]), cosine = x[m + 1] / length, sine = x[m] / length;
      x[m + 1] = length;
      for (Size r = 0; r <= m + 1; ++r) {
        double *const left = R + r * K + m, a = left[0], b = left[1];
        left[0] = cosine * a - sine * b, left[1] = sine * a + cosine * b;
      }
      rotate(K, cosine, sine, B + (m + 1) * K, B + m * K);
      restore(m);
    }
  }
  // Drops the direction x.
  void remove() {
    turn(rank);
    const Size last = rank - 1;
    for (Size r = 0; r < rank; ++r) R[r * K + last] = 0;
    std::fill_n(Z + last * V, V, 0);
    std::fill_n(B + last * K, K, 0);
    rank = last;
  }

  void clear() {
    std::fill_n(R, K * K, 0);
    std::fill_n(Z, K * V, 0);
    std::fill_n(B, K * K, 0);
    rank = weak = 0;
  }

  static constexpr Size most_together = 8;
  // What counts as forgotten, beside the largest pivot: a direction is known as well as the rounding of all the others
  // permits, which is that of double.
  static constexpr double old_cut = 1000 * std::numeric_limits<double>::epsilon();
  static constexpr double weak_cut = 1e-4;  // beside the largest pivot; the rounding of a float is 6e-8
  const Simd<double>& s;
  const RotateSimd<double>* rotations;
  Size K, V;
  double new_cut;  // what counts as no direction of its own, beside the length of a key
  Size rank = 0, weak = 0, lost = 0;
  double *R = nullptr, *Z = nullptr, *B = nullptr;
  double *x, *y, *queries, *answers;  // of the rows that go in
  double *h = nullptr, *c = nullptr, *coefficients = nullptr;
};

}  // namespace ttr::families
