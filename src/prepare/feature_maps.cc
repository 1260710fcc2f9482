// Feature maps without a matrix that make rows of another width. Sources: DPFP Schlag 2021, Taylor-2 (Based) Arora
// 2024, ReBased Aksenov 2024.
//
// Traps: DPFP needs relu(-x), not -relu(x), or inputs with the same positive part become one; the square of ReBased is
// that of the inner product, so all pairs i < j are there.
#include <algorithm>
#include <cmath>

#include "prepare/functions.h"
#include "prepare/rule.h"
#include "simd/squares.h"

namespace ttr::prepare {
namespace {

template <class T>
T positive(T x) {
  return x < 0 ? T(0) : x;  // NaN stays NaN
}

struct Dpfp : Rule {
  // r = [relu(x); relu(-x)]
  template <class T>
  static T half(const Line<const T>& x, int i) {
    return i < x.width ? positive(x[i]) : positive(-x[i - x.width]);
  }
  template <class T>
  static void add_half(const Line<const T>& x, const Line<T>& dx, int i, T g) {
    const int d = i < x.width ? i : i - x.width;
    const T sign = i < x.width ? T(1) : T(-1);
    if (sign * x[d] > 0) dx[d] += sign * g;
  }
  static int rolled(int i, int by, int width) { return ((i - by) % width + width) % width; }
  template <class T>
  void forward(const Forward<T>& a) {
    const int both = 2 * a.x[0].width;
    for (int f = 0; f < a.y.width; ++f) {
      const int i = f % both;
      a.y[f] = half(a.x[0], i) * half(a.x[0], rolled(i, f / both + 1, both));
    }
  }
  template <class T>
  void backward(const Backward<T>& a) {
    if (!a.dx[0]) return;
    const int both = 2 * a.x[0].width;
    for (int f = 0; f < a.y.width; ++f) {
      const int i = f % both, j = rolled(i, f / both + 1, both);
      add_half(a.x[0], a.dx[0], i, a.dy[f] * half(a.x[0], j));
      add_half(a.x[0], a.dx[0], j, a.dy[f] * half(a.x[0], i));
    }
  }
};

struct Taylor2 : Rule {
  template <class T>
  void forward(const Forward<T>& a) {
    const int D = a.x[0].width;
    const T root = std::sqrt(T(D)), linear = 1 / std::sqrt(root), square = 1 / std::sqrt(T(2 * D)), cross = 1 / root;
    a.y[0] = 1;
    for (int i = 0; i < D; ++i) {
      const T x = a.x[0][i];
      a.y[1 + i] = x * linear, a.y[1 + D + i] = x * x * square;
      for (int j = i + 1; j < D; ++j) a.y[1 + 2 * D + pair_index(i, j, D)] = x * a.x[0][j] * cross;
    }
  }
  template <class T>
  void backward(const Backward<T>& a) {
    if (!a.dx[0]) return;
    const int D = a.x[0].width;
    const T root = std::sqrt(T(D)), linear = 1 / std::sqrt(root), square = 1 / std::sqrt(T(2 * D)), cross = 1 / root;
    for (int i = 0; i < D; ++i) {
      const T x = a.x[0][i];
      T sum = a.dy[1 + i] * linear + 2 * x * square * a.dy[1 + D + i];
      for (int j = i + 1; j < D; ++j) {
        const T g = a.dy[1 + 2 * D + pair_index(i, j, D)] * cross;
        sum += g * a.x[0][j];
        a.dx[0][j] += g * x;
      }
      a.dx[0][i] += sum;
    }
  }
};

struct Quadratic : Rule {
  template <class T>
  void forward(const Forward<T>& a) {
    write_squares<T>(
        a.x[0].width, [&](int i) { return a.x[0][i]; }, a.y);
  }
  template <class T>
  void backward(const Backward<T>& a) {
    if (!a.dx[0]) return;
    const int D = a.x[0].width;
    for (int i = 0; i < D; ++i)
      a.dx[0][i] += d_squares<T>(
          D, i, [&](int j) { return a.x[0][j]; }, a.dy);
  }
};

struct ReBased : Rule {
  static constexpr double eps = 1e-5;
  template <class T>
  static T input(const Standardised<T>& n, const Line<const T>* x, int d) {  // y = gamma LN(x) + beta
    return x[1].each(d) * n(x[0][d]) + x[2].each(d);
  }
  template <class T>
  void forward(const Forward<T>& a) {
    const Standardised<T> n(a.x[0], eps);
    write_squares<T>(
        a.x[0].width, [&](int i) { return input(n, a.x, i); }, a.y);
  }
  template <class T>
  void backward(const Backward<T>& a) {
    const int D = a.x[0].width;
    const Standardised<T> n(a.x[0], eps);
    const auto d_input = [&](int i) {
      return d_squares<T>(
          D, i, [&](int j) { return input(n, a.x, j); }, a.dy);
    };
    if (a.dx[1] || a.dx[2])
      for (int i = 0; i < D; ++i) {
        const T g = d_input(i);
        if (a.dx[1]) a.dx[1].each(i) += g * n(a.x[0][i]);
        if (a.dx[2]) a.dx[2].each(i) += g;
      }
    standardised_backward(n, a.x[0], a.dx[0], [&](int d) { return d_input(d) * a.x[1].each(d); });
  }
};

// The monomials of one degree are x_i times those of the degree below in x_i, x_{i+1}, ...
struct Polynomial : Rule {
  int degrees() const { return static_cast<int>(std::lround(number)); }
  template <class T>
  static void write(const Forward<T>& a, int degree, int first, T product, int& f) {
    if (degree == 0) {
      a.y[f++] = product;
      return;
    }
    for (int i = first; i < a.x[0].width; ++i) write(a, degree - 1, i, product * a.x[0][i], f);
  }
  // Returns the gradient of `product`.
  template <class T>
  static T read(const Backward<T>& a, int degree, int first, T product, int& f) {
    if (degree == 0) return a.dy[f++];
    T sum = 0;
    for (int i = first; i < a.x[0].width; ++i) {
      const T g = read(a, degree - 1, i, product * a.x[0][i], f);
      a.dx[0][i] += product * g;
      sum += a.x[0][i] * g;
    }
    return sum;
  }
  template <class T>
  void forward(const Forward<T>& a) {
    int f = 0;
    for (int degree = 0; degree <= degrees(); ++degree) write(a, degree, 0, T(1), f);
  }
  template <class T>
  void backward(const Backward<T>& a) {
    if (!a.dx[0]) return;
    int f = 0;
    for (int degree = 0; degree <= degrees(); ++degree) read(a, degree, 0, T(1), f);
  }
};

}  // namespace

template <class T>
Kernel<T> feature_maps(Op op) {
  switch (op) {
    case Op::dpfp:
      return kernel<T, Op::dpfp, Dpfp>();
    case Op::taylor2:
      return kernel<T, Op::taylor2, Taylor2>();
    case Op::rebased:
      return kernel<T, Op::rebased, ReBased>();
    case Op::quadratic:
      return kernel<T, Op::quadratic, Quadratic>();
    case Op::polynomial:
      return kernel<T, Op::polynomial, Polynomial>();
    default:
      return {};
  }
}

template Kernel<float> feature_maps<float>(Op);
template Kernel<double> feature_maps<double>(Op);

}  // namespace ttr::prepare
