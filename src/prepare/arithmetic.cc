// Products, sums, the skip connection, RWKV-7's key and bonus, halves of a row, and the operations that change the
// number of tokens. Of add, subtract, skip and silu_gate an operand may be left out; its term or factor is then not
// computed, so that a product with an infinite partner cannot turn into NaN.
#include <algorithm>
#include <cmath>

#include "prepare/functions.h"
#include "prepare/rule.h"

namespace ttr::prepare {
namespace {

template <int sign>
struct Product : Everywhere {
  template <class T>
  static T value(T x, T y) {
    return sign * x * y;
  }
  template <class T>
  static T d_x(T, T y) {
    return sign * y;
  }
  template <class T>
  static T d_y(T x, T) {
    return sign * x;
  }
};

template <int sign>
struct Sum : Rule<2> {
  template <class T>
  void forward(const Forward<T>& a) {
    for (int d = 0; d < a.y.width; ++d) a.y[d] = a.x[0].each(d, T(0)) + sign * a.x[1].each(d, T(0));
  }
  template <class T>
  void backward(const Backward<T>& a) {
    for (int d = 0; d < a.y.width; ++d) {
      if (a.dx[0]) a.dx[0].each(d) += a.dy[d];
      if (a.dx[1]) a.dx[1].each(d) += sign * a.dy[d];
    }
  }
};

struct Quotient : Everywhere {
  template <class T>
  static T value(T x, T n) {
    return n == 0 ? T(0) : x / n;
  }
  template <class T>
  static T d_x(T, T n) {
    return n == 0 ? T(0) : 1 / n;
  }
  template <class T>
  static T d_y(T x, T n) {
    return n == 0 ? T(0) : -x / n / n;
  }
};

struct Multiple {
  template <class T>
  static T value(T x, T number) {
    return number * x;
  }
  template <class T>
  static T slope(T, T, T number) {
    return number;
  }
};

struct Skip : Rule<3> {
  template <class T>
  void forward(const Forward<T>& a) {
    const bool skips = a.x[1] && a.x[2];
    for (int d = 0; d < a.y.width; ++d) a.y[d] = a.x[0].each(d, T(0)) + (skips ? a.x[2].each(d) * a.x[1][d] : T(0));
  }
  template <class T>
  void backward(const Backward<T>& a) {
    const bool skips = a.x[1] && a.x[2];
    for (int d = 0; d < a.y.width; ++d) {
      if (a.dx[0]) a.dx[0].each(d) += a.dy[d];
      if (a.dx[1] && skips) a.dx[1][d] += a.dy[d] * a.x[2].each(d);
      if (a.dx[2] && skips) a.dx[2].each(d) += a.dy[d] * a.x[1][d];
    }
  }
};

struct SiluGate : Rule<2> {
  template <class T>
  void forward(const Forward<T>& a) {
    for (int d = 0; d < a.y.width; ++d) a.y[d] = a.x[1] ? a.x[0][d] * Silu::value(a.x[1].each(d)) : a.x[0][d];
  }
  template <class T>
  void backward(const Backward<T>& a) {
    for (int d = 0; d < a.y.width; ++d) {
      if (a.dx[0]) a.dx[0][d] += a.x[1] ? a.dy[d] * Silu::value(a.x[1].each(d)) : a.dy[d];
      if (a.dx[1] && a.x[1]) a.dx[1].each(d) += a.dy[d] * a.x[0][d] * Silu::slope(a.x[1].each(d));
    }
  }
};

struct OuterProduct : Rule<2> {
  template <class T>
  void forward(const Forward<T>& a) {
    for (int f = 0; f < a.y.height; ++f)
      for (int d = 0; d < a.y.width; ++d) a.y(f, d) = a.x[0][d] * a.x[1](f, d);
  }
  template <class T>
  void backward(const Backward<T>& a) {
    for (int f = 0; f < a.y.height; ++f)
      for (int d = 0; d < a.y.width; ++d) {
        if (a.dx[0]) a.dx[0][d] += a.dy(f, d) * a.x[1](f, d);
        if (a.dx[1]) a.dx[1](f, d) += a.dy(f, d) * a.x[0][d];
      }
  }
};

template <bool second>
struct Half : Rule<1> {
  template <class T>
  void forward(const Forward<T>& a) {
    const int first = second ? a.x[0].width / 2 : 0;
    for (int d = 0; d < a.y.width; ++d) a.y[d] = a.x[0][first + d];
  }
  template <class T>
  void backward(const Backward<T>& a) {
    if (!a.dx[0]) return;
    const int first = second ? a.x[0].width / 2 : 0;
    for (int d = 0; d < a.y.width; ++d) a.dx[0][first + d] += a.dy[d];
  }
};

struct BlendProduct : Rule<3> {
  template <class T>
  void forward(const Forward<T>& a) {
    for (int d = 0; d < a.y.width; ++d) a.y[d] = a.x[0][d] * (1 + (a.x[1].each(d) - 1) * a.x[2].each(d));
  }
  template <class T>
  void backward(const Backward<T>& a) {
    for (int d = 0; d < a.y.width; ++d) {
      const T x = a.x[0][d], y = a.x[1].each(d) - 1, z = a.x[2].each(d), g = a.dy[d];
      if (a.dx[0]) a.dx[0][d] += g * (1 + y * z);
      if (a.dx[1]) a.dx[1].each(d) += g * x * z;
      if (a.dx[2]) a.dx[2].each(d) += g * x * y;
    }
  }
};

struct BonusValue : Rule<4> {
  template <class T>
  static T weight(const Line<const T>* x) {
    T sum = 0;
    for (int d = 0; d < x[0].width; ++d) sum += x[0][d] * x[1][d] * x[2][d];
    return sum;
  }
  template <class T>
  void forward(const Forward<T>& a) {
    const T w = weight(a.x);
    for (int d = 0; d < a.y.width; ++d) a.y[d] = w * a.x[3][d];
  }
  template <class T>
  void backward(const Backward<T>& a) {
    const T w = weight(a.x);
    T d_weight = 0;
    for (int d = 0; d < a.y.width; ++d) {
      d_weight += a.dy[d] * a.x[3][d];
      if (a.dx[3]) a.dx[3][d] += a.dy[d] * w;
    }
    for (int d = 0; d < a.x[0].width; ++d) {
      const T r = a.x[0][d], k = a.x[1][d], u = a.x[2][d];
      if (a.dx[0]) a.dx[0][d] += d_weight * k * u;
      if (a.dx[1]) a.dx[1][d] += d_weight * r * u;
      if (a.dx[2]) a.dx[2][d] += d_weight * r * k;
    }
  }
};

struct Copy : Rule<1> {
  std::ptrdiff_t per_token() const { return std::max<std::ptrdiff_t>(1, std::lround(number)); }
  template <class T>
  static void copy(const Forward<T>& a, bool wanted) {
    for (int d = 0; d < a.y.width; ++d) a.y[d] = wanted ? a.x[0][d] : T(0);
  }
  template <class T>
  static void add(const Backward<T>& a, bool wanted) {
    if (!wanted || !a.dx[0]) return;
    for (int d = 0; d < a.y.width; ++d) a.dx[0][d] += a.dy[d];
  }
};

template <bool last>
struct Spread : Copy {
  bool here(std::ptrdiff_t t) const { return t % per_token() == (last ? per_token() - 1 : 0); }
  std::ptrdiff_t source(std::ptrdiff_t t) const { return t / per_token(); }
  template <class T>
  void forward(const Forward<T>& a) {
    copy(a, here(a.t));
  }
  template <class T>
  void backward(const Backward<T>& a) {
    add(a, here(a.t));
  }
};

struct Interleave : Rule<2> {
  std::ptrdiff_t source(std::ptrdiff_t t) const { return t / 2; }
  template <class T>
  void forward(const Forward<T>& a) {
    for (int d = 0; d < a.y.width; ++d) a.y[d] = a.x[a.t % 2][d];
  }
  template <class T>
  void backward(const Backward<T>& a) {
    const Line<T>& dx = a.dx[a.t % 2];
    if (!dx) return;
    for (int d = 0; d < a.y.width; ++d) dx[d] += a.dy[d];
  }
};

struct JoinThree : Rule<3> {
  template <class T>
  void forward(const Forward<T>& a) {
    for (int d = 0; d < 3; ++d) a.y[d] = a.x[d][0];
  }
  template <class T>
  void backward(const Backward<T>& a) {
    for (int d = 0; d < 3; ++d)
      if (a.dx[d]) a.dx[d][0] += a.dy[d];
  }
};

struct TakeLast : Copy {
  std::ptrdiff_t source(std::ptrdiff_t t) const { return t * per_token() + per_token() - 1; }
  template <class T>
  void forward(const Forward<T>& a) {
    copy(a, true);
  }
  template <class T>
  void backward(const Backward<T>& a) {
    add(a, true);
  }
};

}  // namespace

template <class T>
Kernel<T> arithmetic(Op op) {
  switch (op) {
    case Op::multiply:
      return kernel<T, Pairwise<Product<1>>>();
    case Op::negative_product:
      return kernel<T, Pairwise<Product<-1>>>();
    case Op::add:
      return kernel<T, Sum<1>>();
    case Op::subtract:
      return kernel<T, Sum<-1>>();
    case Op::divide:
      return kernel<T, Pairwise<Quotient>>();
    case Op::scale:
      return kernel<T, Elementwise<Multiple>>();
    case Op::skip:
      return kernel<T, Skip>();
    case Op::silu_gate:
      return kernel<T, SiluGate>();
    case Op::outer_product:
      return kernel<T, OuterProduct>();
    case Op::first_half:
      return kernel<T, Half<false>>();
    case Op::second_half:
      return kernel<T, Half<true>>();
    case Op::join_three:
      return kernel<T, JoinThree>();
    case Op::interleave:
      return kernel<T, Interleave>();
    case Op::blend_product:
      return kernel<T, BlendProduct>();
    case Op::bonus_value:
      return kernel<T, BonusValue>();
    case Op::spread_last:
      return kernel<T, Spread<true>>();
    case Op::spread_first:
      return kernel<T, Spread<false>>();
    case Op::take_last:
      return kernel<T, TakeLast>();
    default:
      return {};
  }
}

template Kernel<float> arithmetic<float>(Op);
template Kernel<double> arithmetic<double>(Op);

}  // namespace ttr::prepare
