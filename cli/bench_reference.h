// Weighted least squares solved literally, in the widest type of the machine: what the solvers are compared with.
//
//   H_t = gamma H_{t-1} + k k' ;  F_t = gamma F_{t-1} + k v' ;  o = c F_t' (H_t + Lambda)^+ q
//
// H [K, K], F [K, V]. Lambda is a constant ridge, one relative to |H|_F, or nothing; a fading ridge is the H before the
// first token. Without a ridge directions with less than `cut` of the largest eigenvalue are not seen (least norm; keys
// that are float numbers leave any subspace by 1e-15 of it, and that is not data); eigenvalues by Jacobi rotations. A
// window is summed afresh for every answer. Not for speed.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

namespace ttr::cli {

struct LeastSquaresProblem {
  enum class Ridge { none, constant, fading, frobenius } kind = Ridge::none;
  double gamma = 1, ridge = 0;
  std::size_t window = 0;  // 0: all pairs
  double scale = 1;        // c
};

class LeastSquaresReference {
 public:
  using Real = long double;
  static constexpr Real cut = 1e-10L;

  LeastSquaresReference(const LeastSquaresProblem&, std::size_t key_dim, std::size_t value_dim);
  void add(const double* k, const double* v);
  /// o [V]; not finite if the problem has no solution.
  void answer(const double* q, double* o) const;

 private:
  void accumulate(std::vector<Real>& h, std::vector<Real>& f, Real gamma, const double* k, const double* v) const;

  LeastSquaresProblem problem_;
  std::size_t K_, V_;
  std::vector<Real> h_, f_;
  std::deque<std::vector<double>> pairs_;  // of a window: k, then v
};

}  // namespace ttr::cli
