// Maps with a matrix: the plain projection, and feature maps, learned (T2R Kasai 2021, Hedgehog Zhang 2024) or fixed
// and random (FAVOR+ Choromanski 2021, RFA Peng 2021, DiJiang Chen 2024). z is written to the result first and turned
// into features there: no scratch.
//
// Traps: FAVOR+ has no maximum subtracted, since a maximum over the keys of a sequence is not causal; DiJiang's paper
// writes exp where the released model has softmax, which is meant here; its matrix P is [D, F], the others are [F,
// D].
#include <cmath>

#include "prepare/functions.h"
#include "prepare/rule.h"

namespace ttr::prepare {
namespace {

// Row f of W times x. Four partial sums, so that contiguous rows are not bound by the latency of one.
template <class T>
T dot(const Line<const T>& W, int f, const Line<const T>& x) {
  if (W.inner == 1 && x.inner == 1) {
    const T* w = W.data + f * W.outer;
    T sum[4] = {};
    int d = 0;
    for (; d + 4 <= x.width; d += 4)
      for (int i = 0; i < 4; ++i) sum[i] += w[d + i] * x.data[d + i];
    for (; d < x.width; ++d) sum[0] += w[d] * x.data[d];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
  T sum = 0;
  for (int d = 0; d < x.width; ++d) sum += W(f, d) * x[d];
  return sum;
}

// The gradient of dot: g for its value.
template <class T>
void add_dot(const Backward<T>& a, int f, T g) {
  const int D = a.x[0].width;
  if (a.dx[0])
    for (int d = 0; d < D; ++d) a.dx[0][d] += g * a.x[1](f, d);
  if (a.dx[1])
    for (int d = 0; d < D; ++d) a.dx[1](f, d) += g * a.x[0][d];
}

template <class T>
T affine(const Line<const T>* x, int f) {
  return dot(x[1], f, x[0]) + x[2].each(f, T(0));
}

template <class T>
void add_affine(const Backward<T>& a, int f, T g) {
  add_dot(a, f, g);
  if (a.dx[2]) a.dx[2].each(f) += g;
}

struct Project : Rule {
  template <class T>
  void forward(const Forward<T>& a) {
    for (int f = 0; f < a.y.width; ++f) a.y[f] = dot(a.x[1], f, a.x[0]);
  }
  template <class T>
  void backward(const Backward<T>& a) {
    for (int f = 0; f < a.y.width; ++f) add_dot(a, f, a.dy[f]);
  }
};

struct T2r : Rule {
  template <class T>
  void forward(const Forward<T>& a) {
    for (int f = 0; f < a.y.width; ++f) {
      const T z = affine(a.x, f);
      a.y[f] = z < 0 ? T(0) : z;
    }
  }
  template <class T>
  void backward(const Backward<T>& a) {
    for (int f = 0; f < a.y.width; ++f)
      if (a.y[f] > 0) add_affine(a, f, a.dy[f]);
  }
};

struct HedgehogExp : Rule {
  template <class T>
  void forward(const Forward<T>& a) {
    const int F = a.y.width / 2;
    for (int f = 0; f < F; ++f) {
      const T z = affine(a.x, f);
      a.y[f] = std::exp(z), a.y[F + f] = std::exp(-z);
    }
  }
  template <class T>
  void backward(const Backward<T>& a) {
    const int F = a.y.width / 2;
    for (int f = 0; f < F; ++f) add_affine(a, f, a.dy[f] * a.y[f] - a.dy[F + f] * a.y[F + f]);
  }
};

template <int factor>
struct HedgehogSoftmax : Rule {
  template <class T>
  void forward(const Forward<T>& a) {
    const int F = a.y.width / 2;
    for (int f = 0; f < F; ++f) {
      a.y[f] = factor * affine(a.x, f);
      a.y[F + f] = -a.y[f];
    }
    softmax(a.y);
  }
  template <class T>
  void backward(const Backward<T>& a) {
    const int F = a.y.width / 2;
    const T mean = softmax_mean(a);
    for (int f = 0; f < F; ++f)
      add_affine(a, f, factor * (a.y[f] * (a.dy[f] - mean) - a.y[F + f] * (a.dy[F + f] - mean)));
  }
};

struct Favor : Rule {
  template <class T>
  void forward(const Forward<T>& a) {
    const T quarter = 1 / std::sqrt(std::sqrt(T(a.x[0].width))), root = 1 / std::sqrt(T(a.y.width));
    const T half_square = square_sum(a.x[0]) * quarter * quarter / 2;
    for (int f = 0; f < a.y.width; ++f)
      a.y[f] = root * (std::exp(dot(a.x[1], f, a.x[0]) * quarter - half_square) + T(1e-4));
  }
  // The exponential is computed again: taken from y it would have lost its digits to the 1e-4.
  template <class T>
  void backward(const Backward<T>& a) {
    const T quarter = 1 / std::sqrt(std::sqrt(T(a.x[0].width))), root = 1 / std::sqrt(T(a.y.width));
    const T half_square = square_sum(a.x[0]) * quarter * quarter / 2;
    T total = 0;
    for (int f = 0; f < a.y.width; ++f) {
      const T g = a.dy[f] * root * std::exp(dot(a.x[1], f, a.x[0]) * quarter - half_square);
      add_dot(a, f, g * quarter);
      total += g;
    }
    if (!a.dx[0]) return;
    for (int d = 0; d < a.x[0].width; ++d) a.dx[0][d] -= total * quarter * quarter * a.x[0][d];
  }
};

struct FavorRelu : Rule {
  template <class T>
  void forward(const Forward<T>& a) {
    const T quarter = 1 / std::sqrt(std::sqrt(T(a.x[0].width)));
    for (int f = 0; f < a.y.width; ++f) {
      const T z = dot(a.x[1], f, a.x[0]) * quarter;
      a.y[f] = (z < 0 ? T(0) : z) + T(1e-3);
    }
  }
  template <class T>
  void backward(const Backward<T>& a) {
    const T quarter = 1 / std::sqrt(std::sqrt(T(a.x[0].width)));
    for (int f = 0; f < a.y.width; ++f)
      if (dot(a.x[1], f, a.x[0]) > 0) add_dot(a, f, a.dy[f] * quarter);
  }
};

struct Rfa : Rule {
  template <class T>
  void forward(const Forward<T>& a) {
    const int m = a.y.width / 2;
    const T root = 1 / std::sqrt(T(m));
    for (int f = 0; f < m; ++f) {
      const T z = dot(a.x[1], f, a.x[0]);
      a.y[f] = root * std::sin(z), a.y[m + f] = root * std::cos(z);
    }
  }
  template <class T>
  void backward(const Backward<T>& a) {
    const int m = a.y.width / 2;
    for (int f = 0; f < m; ++f) add_dot(a, f, a.dy[f] * a.y[m + f] - a.dy[m + f] * a.y[f]);
  }
};

struct DiJiang : Rule {
  template <class T>
  void forward(const Forward<T>& a) {
    for (int f = 0; f < a.y.width; ++f) a.y[f] = 0;
    for (int d = 0; d < a.x[0].width; ++d)
      for (int f = 0; f < a.y.width; ++f) a.y[f] += a.x[0][d] * a.x[1](d, f);
    softmax(a.y);
  }
  template <class T>
  void backward(const Backward<T>& a) {
    const T mean = softmax_mean(a);
    for (int d = 0; d < a.x[0].width; ++d)
      for (int f = 0; f < a.y.width; ++f) {
        const T g = a.y[f] * (a.dy[f] - mean);
        if (a.dx[0]) a.dx[0][d] += g * a.x[1](d, f);
        if (a.dx[1]) a.dx[1](d, f) += g * a.x[0][d];
      }
  }
};

}  // namespace

template <class T>
Kernel<T> matrix_features(Op op) {
  switch (op) {
    case Op::project:
      return kernel<T, Op::project, Project>();
    case Op::t2r:
      return kernel<T, Op::t2r, T2r>();
    case Op::hedgehog_exp:
      return kernel<T, Op::hedgehog_exp, HedgehogExp>();
    case Op::hedgehog_softmax:
      return kernel<T, Op::hedgehog_softmax, HedgehogSoftmax<1>>();
    case Op::hedgehog_softmax2:
      return kernel<T, Op::hedgehog_softmax2, HedgehogSoftmax<2>>();
    case Op::favor:
      return kernel<T, Op::favor, Favor>();
    case Op::favor_relu:
      return kernel<T, Op::favor_relu, FavorRelu>();
    case Op::rfa:
      return kernel<T, Op::rfa, Rfa>();
    case Op::dijiang:
      return kernel<T, Op::dijiang, DiJiang>();
    default:
      return {};
  }
}

template Kernel<float> matrix_features<float>(Op);
template Kernel<double> matrix_features<double>(Op);

}  // namespace ttr::prepare
