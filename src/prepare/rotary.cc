// Rotary embedding (Su 2021): pair i of a row is turned by the angle (t + offset) base^(-2i/D), base = number.
// The gradient is turned back. Angles are computed in double: at token 1e6 a float angle has no correct digit left
// behind the point. Cosines and sines are kept from one row to the next, for the heads of a token share them.
//
// `rotate` turns adjacent pairs by angles that it is given, and so has a gradient for them:
//   dphi = dy . (y turned by a quarter) = dy_1 y_0 - dy_0 y_1.
#include <cmath>
#include <limits>

#include "prepare/rule.h"

namespace ttr::prepare {
namespace {

struct Turn {
  double cosine, sine;
};

template <bool adjacent>
class Rotary : public Rule<2> {
 public:
  template <class T>
  void forward(const Forward<T>& a) {
    place(a.x, a.t);
    const int D = a.y.width;
    for (int i = 0; i < D / 2; ++i) {
      const auto [c, s] = turn(i);
      const T x = a.x[0][first(i)], y = a.x[0][second(i, D)];
      a.y[first(i)] = T(c) * x - T(s) * y, a.y[second(i, D)] = T(s) * x + T(c) * y;
    }
    if (D % 2) a.y[D - 1] = a.x[0][D - 1];
  }
  template <class T>
  void backward(const Backward<T>& a) {
    if (!a.dx[0]) return;
    place(a.x, a.t);
    const int D = a.y.width;
    for (int i = 0; i < D / 2; ++i) {
      const auto [c, s] = turn(i);
      const T x = a.dy[first(i)], y = a.dy[second(i, D)];
      a.dx[0][first(i)] += T(c) * x + T(s) * y, a.dx[0][second(i, D)] += T(c) * y - T(s) * x;
    }
    if (D % 2) a.dx[0][D - 1] += a.dy[D - 1];
  }

 private:
  static constexpr int kept = 128;  // pairs whose turns are kept; those beyond are computed each time
  static int first(int i) { return adjacent ? 2 * i : i; }
  static int second(int i, int D) { return adjacent ? 2 * i + 1 : i + D / 2; }

  template <class T>
  void place(const Line<const T>* x, std::ptrdiff_t t) {
    const double position = static_cast<double>(t) + (x[1] ? static_cast<double>(x[1][0]) : 0);
    if (position == position_ && x[0].width == width_) return;
    position_ = position, width_ = x[0].width;
    for (int i = 0; i < width_ / 2 && i < kept; ++i) turns_[i] = computed(i);
  }
  Turn computed(int i) const {
    const double angle = position_ * std::pow(number, -2.0 * i / width_);
    return {std::cos(angle), std::sin(angle)};
  }
  Turn turn(int i) const { return i < kept ? turns_[i] : computed(i); }

  double position_ = std::numeric_limits<double>::quiet_NaN();
  int width_ = 0;
  Turn turns_[kept];
};

struct Rotate : Rule<2> {
  template <class T>
  void forward(const Forward<T>& a) {
    const int m = a.x[1].width;
    for (int i = 0; i < m; ++i) {
      const T c = std::cos(a.x[1][i]), s = std::sin(a.x[1][i]), x = a.x[0][2 * i], y = a.x[0][2 * i + 1];
      a.y[2 * i] = c * x - s * y, a.y[2 * i + 1] = s * x + c * y;
    }
    for (int d = 2 * m; d < a.y.width; ++d) a.y[d] = a.x[0][d];
  }
  template <class T>
  void backward(const Backward<T>& a) {
    const int m = a.x[1].width;
    for (int i = 0; i < m; ++i) {
      const T g = a.dy[2 * i], h = a.dy[2 * i + 1];
      if (a.dx[1]) a.dx[1][i] += h * a.y[2 * i] - g * a.y[2 * i + 1];
      if (!a.dx[0]) continue;
      const T c = std::cos(a.x[1][i]), s = std::sin(a.x[1][i]);
      a.dx[0][2 * i] += c * g + s * h, a.dx[0][2 * i + 1] += c * h - s * g;
    }
    if (!a.dx[0]) return;
    for (int d = 2 * m; d < a.y.width; ++d) a.dx[0][d] += a.dy[d];
  }
};

}  // namespace

template <class T>
Kernel<T> rotary(Op op) {
  switch (op) {
    case Op::rotary_interleaved:
      return kernel<T, Rotary<true>>();
    case Op::rotary_half:
      return kernel<T, Rotary<false>>();
    case Op::rotate:
      return kernel<T, Rotate>();
    default:
      return {};
  }
}

template Kernel<float> rotary<float>(Op);
template Kernel<double> rotary<double>(Op);

}  // namespace ttr::prepare
