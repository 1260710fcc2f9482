// The products of a vector with itself, whose inner product is a square:
//
//   phi(x) = [x_i^2 / sqrt(D) ; sqrt(2 / D) x_i x_j, i < j]      D (D + 1) / 2 numbers ;  phi(x).phi(y) = (x.y)^2 / D
//
// In float every product is rounded, and the sum that should cancel to a small square
// keeps these roundings (docs/accuracy.md): who sums over many of them makes them in double.
#pragma once

#include <cmath>

namespace ttr {

constexpr int squares_of(int D) { return D * (D + 1) / 2; }

/// Where x_i x_j, i < j, stands among the products, row by row.
constexpr int pair_index(int i, int j, int D) { return i * (2 * D - i - 1) / 2 + j - i - 1; }

/// phi = the products of x(0) .. x(D - 1).
template <class T, class Row, class Input>
void write_squares(int D, Input&& x, const Row& phi) {
  const T square = 1 / std::sqrt(T(D)), cross = std::sqrt(2 / T(D));
  for (int i = 0; i < D; ++i) {
    const T here = x(i), times = cross * here;
    phi[i] = here * here * square;
    for (int j = i + 1, pair = D + pair_index(i, j, D); j < D; ++j, ++pair) phi[pair] = times * x(j);
  }
}

/// The gradient of x(i), where `d` is that of the products.
template <class T, class Row, class Input>
T d_squares(int D, int i, Input&& x, const Row& d) {
  T sum = 0;
  for (int j = 0; j < i; ++j) sum += d[D + pair_index(j, i, D)] * x(j);
  for (int j = i + 1, pair = D + pair_index(i, j, D); j < D; ++j, ++pair) sum += d[pair] * x(j);
  return 2 / std::sqrt(T(D)) * d[i] * x(i) + std::sqrt(2 / T(D)) * sum;
}

}  // namespace ttr
