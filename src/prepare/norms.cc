// Norms over a row. For y = f u with f = (sum u^2/c + eps)^-1/2, c = 1 or the width:
//   du = f (dn - n (n . dn)/c),  n = f u.   Written with n instead of f^3 u, which overflows for short rows.
#include "prepare/functions.h"
#include "prepare/rule.h"

namespace ttr::prepare {
namespace {

// Of a row of zeros: zero, so that it stays zero.
template <class T>
T inverse_root(T square) {
  return square == 0 ? T(0) : 1 / std::sqrt(square);
}

template <class T>
T weight(const Line<const T>& w, int d) {
  return w.each(d, T(1));
}

// With a second operand, the weight w.
template <bool mean, int count>
struct Length : Rule<count> {
  template <class T>
  T factor(const Line<const T>& x) const {
    return inverse_root(square_sum(x) / (mean ? T(x.width) : T(1)) + T(this->number));
  }
  template <class T>
  static T outside(const Line<const T>* x, int d) {
    if constexpr (count == 2) return weight(x[1], d);
    return 1;
  }
  template <class T>
  void forward(const Forward<T>& a) {
    const T f = factor(a.x[0]);
    for (int d = 0; d < a.y.width; ++d) a.y[d] = a.x[0][d] * f * outside(a.x, d);
  }
  template <class T>
  void backward(const Backward<T>& a) {
    const T f = factor(a.x[0]);
    T along = 0;
    for (int d = 0; d < a.y.width; ++d) {
      const T n = a.x[0][d] * f;
      along += n * a.dy[d] * outside(a.x, d);
      if constexpr (count == 2)
        if (a.dx[1]) a.dx[1].each(d) += a.dy[d] * n;
    }
    if (mean) along /= T(a.y.width);
    if (!a.dx[0]) return;
    for (int d = 0; d < a.y.width; ++d) a.dx[0][d] += f * (a.dy[d] * outside(a.x, d) - a.x[0][d] * f * along);
  }
};

struct ClampedLength : Rule<1> {
  template <class T>
  void forward(const Forward<T>& a) {
    const T longest = std::max(std::sqrt(square_sum(a.x[0])), T(number));
    for (int d = 0; d < a.y.width; ++d) a.y[d] = longest == 0 ? T(0) : a.x[0][d] / longest;
  }
  template <class T>
  void backward(const Backward<T>& a) {
    const T length = std::sqrt(square_sum(a.x[0])), longest = std::max(length, T(number));
    if (!a.dx[0] || longest == 0) return;
    T along = 0;
    if (length >= longest)
      for (int d = 0; d < a.y.width; ++d) along += a.x[0][d] / longest * a.dy[d];
    for (int d = 0; d < a.y.width; ++d) a.dx[0][d] += (a.dy[d] - a.x[0][d] / longest * along) / longest;
  }
};

struct SumNorm : Rule<1> {
  template <class T>
  static T total(const Line<const T>& x) {
    T sum = 0;
    for (int d = 0; d < x.width; ++d) sum += x[d];
    return sum;
  }
  template <class T>
  void forward(const Forward<T>& a) {
    const T sum = total(a.x[0]);
    for (int d = 0; d < a.y.width; ++d) a.y[d] = sum == 0 ? T(0) : a.x[0][d] / sum;
  }
  template <class T>
  void backward(const Backward<T>& a) {
    const T sum = total(a.x[0]);
    if (!a.dx[0] || sum == 0) return;
    T along = 0;
    for (int d = 0; d < a.y.width; ++d) along += a.x[0][d] / sum * a.dy[d];
    for (int d = 0; d < a.y.width; ++d) a.dx[0][d] += (a.dy[d] - along) / sum;
  }
};

struct Softmax : Rule<1> {
  template <class T>
  void forward(const Forward<T>& a) {
    for (int d = 0; d < a.y.width; ++d) a.y[d] = a.x[0][d];
    softmax(a.y);
  }
  template <class T>
  void backward(const Backward<T>& a) {
    if (!a.dx[0]) return;
    const T mean = softmax_mean(a);
    for (int d = 0; d < a.y.width; ++d) a.dx[0][d] += a.y[d] * (a.dy[d] - mean);
  }
};

struct LayerNorm : Rule<3> {
  template <class T>
  void forward(const Forward<T>& a) {
    const Standardised<T> n(a.x[0], number);
    for (int d = 0; d < a.y.width; ++d) a.y[d] = n(a.x[0][d]) * weight(a.x[1], d) + a.x[2].each(d, T(0));
  }
  template <class T>
  void backward(const Backward<T>& a) {
    const Standardised<T> n(a.x[0], number);
    for (int d = 0; d < a.y.width; ++d) {
      if (a.dx[1]) a.dx[1].each(d) += a.dy[d] * n(a.x[0][d]);
      if (a.dx[2]) a.dx[2].each(d) += a.dy[d];
    }
    standardised_backward(n, a.x[0], a.dx[0], [&](int d) { return a.dy[d] * weight(a.x[1], d); });
  }
};

// x, z, w. norm first: n = f x, y = n w act(z).  gate first: u = x act(z), y = f u w.
template <class Act, bool gate_first>
struct GatedRms : Rule<3> {
  template <class T>
  static T inside(const Line<const T>* x, int d) {  // what is normalised
    return gate_first ? x[0][d] * Act::value(x[1][d]) : x[0][d];
  }
  template <class T>
  static T outside(const Line<const T>* x, int d) {  // what multiplies it afterwards
    return weight(x[2], d) * (gate_first ? T(1) : Act::value(x[1][d]));
  }
  template <class T>
  T factor(const Line<const T>* x) const {
    T sum = 0;
    for (int d = 0; d < x[0].width; ++d) sum += inside(x, d) * inside(x, d);
    return inverse_root(sum / T(x[0].width) + T(number));
  }
  template <class T>
  void forward(const Forward<T>& a) {
    const T f = factor(a.x);
    for (int d = 0; d < a.y.width; ++d) a.y[d] = inside(a.x, d) * f * outside(a.x, d);
  }
  template <class T>
  void backward(const Backward<T>& a) {
    const T f = factor(a.x);
    T along = 0;
    for (int d = 0; d < a.y.width; ++d) along += inside(a.x, d) * f * a.dy[d] * outside(a.x, d);
    along /= T(a.y.width);
    for (int d = 0; d < a.y.width; ++d) {
      const T x = a.x[0][d], z = a.x[1][d], w = weight(a.x[2], d), n = inside(a.x, d) * f;
      const T d_inside = f * (a.dy[d] * outside(a.x, d) - n * along);
      if (a.dx[0]) a.dx[0][d] += gate_first ? d_inside * Act::value(z) : d_inside;
      if (a.dx[1]) a.dx[1][d] += Act::slope(z) * (gate_first ? d_inside * x : a.dy[d] * n * w);
      if (a.dx[2]) a.dx[2].each(d) += a.dy[d] * n * (gate_first ? T(1) : Act::value(z));
    }
  }
};

struct SquareNorm : Rule<1> {
  template <class T>
  void forward(const Forward<T>& a) {
    a.y[0] = square_sum(a.x[0]);
  }
  template <class T>
  void backward(const Backward<T>& a) {
    if (!a.dx[0]) return;
    for (int d = 0; d < a.x[0].width; ++d) a.dx[0][d] += 2 * a.dy[0] * a.x[0][d];
  }
};

}  // namespace

template <class T>
Kernel<T> norms(Op op) {
  switch (op) {
    case Op::unit_norm:
      return kernel<T, Length<false, 1>>();
    case Op::rms_norm:
      return kernel<T, Length<true, 1>>();
    case Op::unit_norm_clamp:
      return kernel<T, ClampedLength>();
    case Op::sum_norm:
      return kernel<T, SumNorm>();
    case Op::softmax:
      return kernel<T, Softmax>();
    case Op::layer_norm:
      return kernel<T, LayerNorm>();
    case Op::rms_norm_weighted:
      return kernel<T, Length<true, 2>>();
    case Op::rms_gate_norm_first_silu:
      return kernel<T, GatedRms<Silu, false>>();
    case Op::rms_gate_norm_first_sigmoid:
      return kernel<T, GatedRms<Sigmoid, false>>();
    case Op::rms_gate_gate_first_silu:
      return kernel<T, GatedRms<Silu, true>>();
    case Op::rms_gate_gate_first_sigmoid:
      return kernel<T, GatedRms<Sigmoid, true>>();
    case Op::square_norm:
      return kernel<T, SquareNorm>();
    default:
      return {};
  }
}

template Kernel<float> norms<float>(Op);
template Kernel<double> norms<double>(Op);

}  // namespace ttr::prepare
