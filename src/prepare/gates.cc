// Step-size rules and gates.
//
// lower_bound_gate = log(l + (1-l) s(f)) has two exact writings: log1p(-(1-l) s(-f)), good near 0, and
// logaddexp(log l, log(1-l) + log s(f)), good where the first argument comes near -1. Either alone loses all digits
// somewhere: the second for an open gate (g near 0), the first for l = 0 and a shut gate.
#include <cmath>

#include "prepare/functions.h"
#include "prepare/rule.h"

namespace ttr::prepare {
namespace {

// Below this a factor counts as zero; its logarithm is finite in T and exp gives it back.
template <class T>
constexpr T tiny_factor = sizeof(T) == 4 ? T(1e-30) : T(1e-290);

template <class T>
T clamped(T factor) {
  return factor < tiny_factor<T> ? tiny_factor<T> : factor;
}

template <class T>
struct StepSize {
  T value, d_step, d_square;  // and its derivatives with respect to mu|delta|beta and to |k|^2
};

struct Nlms {
  template <class T>
  static StepSize<T> of(T step, T square, T eps) {
    const T denominator = eps + square;
    if (!(denominator > 0)) return {0, 0, 0};
    return {step / denominator, 1 / denominator, -step / (denominator * denominator)};
  }
};

struct Implicit {
  template <class T>
  static StepSize<T> of(T step, T square, T) {
    const T inverse = 1 / (1 + step * square);
    return {step * inverse, inverse * inverse, -step * step * inverse * inverse};
  }
};

// (1 - e^-x)/n with x = step n; the series near zero avoids 0/0.
struct Flow {
  template <class T>
  static StepSize<T> of(T step, T square, T) {
    const T x = step * square, decay = std::exp(-x);
    if (std::abs(x) < T(1e-3)) {
      const T value = step * (1 - x / 2 * (1 - x / 3 * (1 - x / 4)));
      const T slope = step * step * (T(-0.5) + x / 3 - x * x / 8);
      return {value, decay, slope};
    }
    const T value = -std::expm1(-x) / square;
    return {value, decay, (step * decay - value) / square};
  }
};

template <class F>
struct StepRule : Rule<2> {
  template <class T>
  void forward(const Forward<T>& a) {
    a.y[0] = F::of(a.x[0][0], square_sum(a.x[1]), T(number)).value;
  }
  template <class T>
  void backward(const Backward<T>& a) {
    const StepSize<T> size = F::of(a.x[0][0], square_sum(a.x[1]), T(number));
    if (a.dx[0]) a.dx[0][0] += a.dy[0] * size.d_step;
    if (!a.dx[1]) return;
    for (int d = 0; d < a.x[1].width; ++d) a.dx[1][d] += 2 * a.dy[0] * size.d_square * a.x[1][d];
  }
};

struct Leak {
  template <class T>
  static bool valid(T beta, T lam) {
    return !(1 - beta * lam < 0);
  }
  template <class T>
  static T value(T beta, T lam) {
    return std::log(clamped(1 - beta * lam));
  }
  template <class T>
  static T d_x(T beta, T lam) {
    return -lam / clamped(1 - beta * lam);
  }
  template <class T>
  static T d_y(T beta, T lam) {
    return -beta / clamped(1 - beta * lam);
  }
};

struct Shrink : Rule<1> {
  template <class T>
  void forward(const Forward<T>& a) {
    for (int d = 0; d < a.y.width; ++d) {
      const T factor = 1 - a.x[0][d];
      if (factor < 0) a.in_domain = false;
      a.y[d] = std::log(clamped(factor));
    }
  }
  template <class T>
  void backward(const Backward<T>& a) {
    if (!a.dx[0]) return;
    for (int d = 0; d < a.y.width; ++d) a.dx[0][d] -= a.dy[d] / clamped(1 - a.x[0][d]);
  }
};

struct LogSigmoid {
  template <class T>
  static T value(T x, T number) {
    return log_sigmoid(x) / (number == 0 ? T(1) : number);
  }
  template <class T>
  static T slope(T x, T, T number) {
    return sigmoid(-x) / (number == 0 ? T(1) : number);
  }
};

struct Softplus {
  template <class T>
  static T value(T x, T) {
    return -log_sigmoid(-x);
  }
  template <class T>
  static T slope(T x, T, T) {
    return sigmoid(x);
  }
};

struct ExpNegative {
  template <class T>
  static T value(T x, T) {
    return -std::exp(x);
  }
  template <class T>
  static T slope(T, T y, T) {
    return y;
  }
};

struct OneMinusExp {
  template <class T>
  static T value(T x, T) {
    return -std::expm1(x);
  }
  template <class T>
  static T slope(T x, T, T) {
    return -std::exp(x);
  }
};

struct LowerBound {
  template <class T>
  static bool valid(T, T bound) {
    return !(bound < 0 || bound > 1);
  }
  template <class T>
  static T value(T f, T bound) {
    const T shut = (1 - bound) * sigmoid(-f);
    if (shut < T(0.5)) return std::log1p(-shut);
    const T low = std::log(bound), open = std::log1p(-bound) + log_sigmoid(f);
    if (bound <= 0) return open;
    return std::max(low, open) + std::log1p(std::exp(-std::abs(low - open)));
  }
  // e^g' = (1-l) s(f) s(-f), so g' = e^(log(1-l) + log s(f) - g) s(-f): no quotient of two numbers that underflow.
  template <class T>
  static T d_x(T f, T bound) {
    return std::exp(std::log1p(-bound) + log_sigmoid(f) - value(f, bound)) * sigmoid(-f);
  }
  template <class T>
  static T d_y(T f, T bound) {
    return std::exp(log_sigmoid(-f) - value(f, bound));
  }
};

}  // namespace

template <class T>
Kernel<T> gates(Op op) {
  switch (op) {
    case Op::nlms_step:
      return kernel<T, StepRule<Nlms>>();
    case Op::longhorn_step:
      return kernel<T, StepRule<Implicit>>();
    case Op::flow_step:
      return kernel<T, StepRule<Flow>>();
    case Op::leak_gate:
      return kernel<T, Pairwise<Leak>>();
    case Op::shrink_gate:
      return kernel<T, Shrink>();
    case Op::sigmoid:
      return kernel<T, Elementwise<Sigmoid>>();
    case Op::log_sigmoid:
      return kernel<T, Elementwise<LogSigmoid>>();
    case Op::softplus:
      return kernel<T, Elementwise<Softplus>>();
    case Op::exp_negative:
      return kernel<T, Elementwise<ExpNegative>>();
    case Op::one_minus_exp:
      return kernel<T, Elementwise<OneMinusExp>>();
    case Op::lower_bound_gate:
      return kernel<T, Pairwise<LowerBound>>();
    default:
      return {};
  }
}

template Kernel<float> gates<float>(Op);
template Kernel<double> gates<double>(Op);

}  // namespace ttr::prepare
