// Exact solves of all tokens of a chunk: A_t x_t = b_t with A_t = H_t + diag(ridge_t), by Cholesky factors of as many
// tokens at a time as a vector has lanes (factor_simd.h). Inside such a group H_t is made of H at the group's start,
// between groups that is moved on by one product.
//
// Traps: a group is counted from the start of its chunk, and how many tokens it has depends on the instruction set.
// Scratch is for the widest.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/common/scratch.h"
#include "families/solve/least_squares/factor_simd.h"
#include "simd/simd.h"

namespace ttr::families::least_squares {

class Factors {
 public:
  using Size = std::ptrdiff_t;
  static constexpr Size most_lanes = 8;

  /// For up to `most` tokens; keep: of all of them for back(). most = 0: none.
  Factors(const Simd<double>& simd, Size key_dim, Size most, bool keep, Arena& arena)
      : s(simd), K(key_dim), packed(K * (K + 1) / 2) {
    if (most == 0) return;
    const Size systems = keep ? (most + most_lanes - 1) / most_lanes * most_lanes : most_lanes;
    keeps = keep;
    factors = arena.take<double>(systems * packed), inverses = arena.take<double>(systems * K);
    H = arena.take<double>(K * K);
    for (double** x : {&keys, &scaled, &diagonal, &side}) *x = arena.take<double>(most_lanes * K);
    for (double** x : {&fade, &good}) *x = arena.take<double>(most_lanes);
    inside = arena.take<double>(most_lanes * most_lanes);
  }

  /// Row t of M: what the pairs up to t weigh in H_t (e_t: the start H_0), D: the fade alone; ld is their distance.
  struct Sums {
    const double *H_0, *e, *D, *M;
    Size ld;
    const double* k;  // [c, K]
  };
  /// Rows X [c, K]. Rows that are idle are not solved: x = 0. False if one has no factor: its x is NaN.
  bool run(const Sums& at, Size c, const double* ridge, const bool* idle, const double* B, double* X) {
    const FactorSimd<double>& f = factor_simd(s);
    const Size L = f.lanes;
    bool fine = true;
    for (Size begin = 0; begin < c; begin += L) {
      const Size count = std::min(L, c - begin);
      double *const A = factors + (keeps ? begin * packed : 0), *const inverse = inverses + (keeps ? begin * K : 0);
      const double* k = at.k + begin * K;
      if (count < L) {  // lanes without a token hold the identity
        std::copy_n(k, count * K, keys), std::fill(keys + count * K, keys + L * K, 0.0);
        k = keys;
      }
      for (Size l = 0; l < L; ++l) {
        const bool solved = l < count && !idle[begin + l];
        const double* const row = at.M + (begin + l) * at.ld + begin;
        fade[l] = l >= count ? 0 : begin == 0 ? at.e[l] : at.D[(begin + l) * at.ld + begin - 1];
        for (Size i = 0; i < L; ++i) inside[i * L + l] = l < count && i <= l ? row[i] : 0;
        for (Size i = 0; i < K; ++i) diagonal[i * L + l] = solved ? ridge[(begin + l) * K + i] : 1;
      }
      f.form(K, begin == 0 ? at.H_0 : H, K, fade, inside, k, K, diagonal, A);
      f.factor(K, A, inverse, good);
      lay(L, count, B + begin * K);
      f.solve(K, A, inverse, side);
      take(L, count, X + begin * K);
      for (Size l = 0; l < count; ++l) {
        if (idle[begin + l]) std::fill_n(X + (begin + l) * K, K, 0.0);
        else fine = fine && good[l] == 1;
      }
      if (begin + L < c) advance(at, begin, L);
    }
    return fine;
  }

  /// Rows X <- A_t^{-1} x_t with the factors of the last run, if it kept them.
  void solve(Size c, const bool* idle, double* X) {
    const FactorSimd<double>& f = factor_simd(s);
    const Size L = f.lanes;
    for (Size begin = 0; begin < c; begin += L) {
      const Size count = std::min(L, c - begin);
      lay(L, count, X + begin * K);
      f.solve(K, factors + begin * packed, inverses + begin * K, side);
      take(L, count, X + begin * K);
      for (Size l = 0; l < count; ++l)
        if (idle[begin + l]) std::fill_n(X + (begin + l) * K, K, 0.0);
    }
  }

 private:
  // Rows of `count` tokens to lanes, and back.
  void lay(Size L, Size count, const double* rows) {
    for (Size l = 0; l < L; ++l)
      for (Size i = 0; i < K; ++i) side[i * L + l] = l < count ? rows[l * K + i] : 0;
  }
  void take(Size L, Size count, double* rows) const {
    for (Size l = 0; l < count; ++l)
      for (Size i = 0; i < K; ++i) rows[l * K + i] = side[i * L + l];
  }
  // H from the start of a whole group to its end.
  void advance(const Sums& at, Size begin, Size L) {
    const Size last = begin + L - 1;
    if (begin == 0) std::copy_n(at.H_0, K * K, H);
    s.scale_rows(L, K, at.M + last * at.ld + begin, at.k + begin * K, K, scaled, K);
    s.gemm_tn(K, K, L, 1.0, scaled, K, at.k + begin * K, K, fade[L - 1], H, K);
  }

  const Simd<double>& s;
  Size K, packed;
  bool keeps = false;
  double *factors = nullptr, *inverses = nullptr, *H = nullptr, *keys = nullptr, *scaled = nullptr,
         *diagonal = nullptr, *side = nullptr, *fade = nullptr, *good = nullptr, *inside = nullptr;
};

}  // namespace ttr::families::least_squares
