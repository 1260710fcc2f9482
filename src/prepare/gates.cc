// Step-size rules and gates.
//
// lower_bound_gate = log(l + (1-l) s(f)) has two exact writings: log1p(-(1-l) s(-f)), good near 0, and
// logaddexp(log l, log(1-l) + log s(f)), good where the first argument comes near -1. Either alone loses all digits
// somewhere: the second for an open gate (g near 0), the first for l = 0 and a shut gate.
//
// Sources: precondition arXiv 2604.21100, decay_rate_gate and root_complement Griffin (De 2024), phase_step Mamba-3,
// erase_log Longhorn as released. Traps: Griffin's gate has softplus(-lam), the log of sigmoid(lam), in some texts
// and softplus(lam) in others; the first is meant here. Its released code bounds the slope of the root by 1000, which
// changes the gradient of slow channels; here the slope is exact up to a root of zero.
#include <cmath>
#include <limits>
#include <numbers>

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

// The log of x, or of its complement 1 - x.
template <bool complement>
struct LogOfFactor : Rule<1> {
  template <class T>
  static T factor(T x) {
    return complement ? 1 - x : x;
  }
  template <class T>
  void forward(const Forward<T>& a) {
    for (int d = 0; d < a.y.width; ++d) {
      const T f = factor(a.x[0][d]);
      if (f < 0) a.in_domain = false;
      a.y[d] = std::log(clamped(f));
    }
  }
  template <class T>
  void backward(const Backward<T>& a) {
    if (!a.dx[0]) return;
    for (int d = 0; d < a.y.width; ++d) a.dx[0][d] += (complement ? -1 : 1) * a.dy[d] / clamped(factor(a.x[0][d]));
  }
};

// 1 - k^2 d is a matrix of factors. A product that rounding has put just above one counts as one: the implicit step
// makes k^2 d = 1 to the last bit where its delta is large.
struct EraseLog : Rule<2> {
  template <class T>
  static T factor(T k, T d) {
    return 1 - k * k * d;
  }
  template <class T>
  void forward(const Forward<T>& a) {
    for (int f = 0; f < a.y.height; ++f)
      for (int d = 0; d < a.y.width; ++d) {
        const T k = a.x[0][f], step = a.x[1][d], rest = factor(k, step);
        if (rest < -8 * std::numeric_limits<T>::epsilon()) a.in_domain = false;
        a.y(f, d) = rest < T(0.5) ? std::log(clamped(rest)) : std::log1p(-k * k * step);
      }
  }
  template <class T>
  void backward(const Backward<T>& a) {
    for (int f = 0; f < a.y.height; ++f)
      for (int d = 0; d < a.y.width; ++d) {
        const T k = a.x[0][f], step = a.x[1][d], g = a.dy(f, d) / clamped(factor(k, step));
        if (a.dx[0]) a.dx[0][f] -= 2 * g * k * step;
        if (a.dx[1]) a.dx[1][d] -= g * k * k;
      }
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

template <int sign>
struct Exponential {
  template <class T>
  static T value(T x, T) {
    return sign * std::exp(x);
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

struct RootComplement : Rule<1> {
  template <class T>
  void forward(const Forward<T>& a) {
    for (int d = 0; d < a.y.width; ++d) {
      const T x = a.x[0][d];
      if (x > 0) a.in_domain = false;
      a.y[d] = x > 0 ? T(0) : std::sqrt(-std::expm1(2 * x));
    }
  }
  template <class T>
  void backward(const Backward<T>& a) {
    if (!a.dx[0]) return;
    const T smallest = std::sqrt(std::numeric_limits<T>::min());
    for (int d = 0; d < a.y.width; ++d)
      a.dx[0][d] -= a.dy[d] * std::exp(2 * a.x[0][d]) / (a.y[d] < smallest ? smallest : a.y[d]);
  }
};

struct ImplicitStep : Everywhere {
  template <class T>
  static T value(T delta, T square) {
    return Implicit::of(delta, square, T(0)).value;
  }
  template <class T>
  static T d_x(T delta, T square) {
    return Implicit::of(delta, square, T(0)).d_step;
  }
  template <class T>
  static T d_y(T delta, T square) {
    return Implicit::of(delta, square, T(0)).d_square;
  }
};

struct DecayRate : Everywhere {
  template <class T>
  static T value(T r, T lam) {
    return 8 * sigmoid(r) * log_sigmoid(lam);
  }
  template <class T>
  static T d_x(T r, T lam) {
    return 8 * sigmoid(r) * sigmoid(-r) * log_sigmoid(lam);
  }
  template <class T>
  static T d_y(T r, T lam) {
    return 8 * sigmoid(r) * sigmoid(-lam);
  }
};

struct PhaseStep : Everywhere {
  template <class T>
  static T value(T a, T dt) {
    return std::numbers::pi_v<T> * std::tanh(a) * dt;
  }
  template <class T>
  static T d_x(T a, T dt) {  // tanh' = 4 s(2a) s(-2a): 1 - tanh^2 has no digits left for large a
    return 4 * std::numbers::pi_v<T> * sigmoid(2 * a) * sigmoid(-2 * a) * dt;
  }
  template <class T>
  static T d_y(T a, T) {
    return std::numbers::pi_v<T> * std::tanh(a);
  }
};

struct Precondition {
  static constexpr double floor = 1e-6;
  template <class T>
  static bool valid(T A, T) {
    return !(A < 0);
  }
  template <class T>
  static T level(T A, T c) {
    return std::log((A < 0 ? T(0) : A) + T(floor)) - c;
  }
  template <class T>
  static T value(T A, T c) {
    const T r = level(A, c);
    return std::exp(-std::log(T(1.5)) * r / (1 + std::abs(r)));
  }
  template <class T>
  static T d_y(T A, T c) {
    const T away = 1 + std::abs(level(A, c));
    return std::log(T(1.5)) * value(A, c) / away / away;
  }
  template <class T>
  static T d_x(T A, T c) {
    return -d_y(A, c) / ((A < 0 ? T(0) : A) + T(floor));
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
      return kernel<T, LogOfFactor<true>>();
    case Op::log:
      return kernel<T, LogOfFactor<false>>();
    case Op::erase_log:
      return kernel<T, EraseLog>();
    case Op::sigmoid:
      return kernel<T, Elementwise<Sigmoid>>();
    case Op::log_sigmoid:
      return kernel<T, Elementwise<LogSigmoid>>();
    case Op::softplus:
      return kernel<T, Elementwise<Softplus>>();
    case Op::exp_negative:
      return kernel<T, Elementwise<Exponential<-1>>>();
    case Op::exp:
      return kernel<T, Elementwise<Exponential<1>>>();
    case Op::precondition:
      return kernel<T, Pairwise<Precondition>>();
    case Op::decay_rate_gate:
      return kernel<T, Pairwise<DecayRate>>();
    case Op::root_complement:
      return kernel<T, RootComplement>();
    case Op::phase_step:
      return kernel<T, Pairwise<PhaseStep>>();
    case Op::implicit_step:
      return kernel<T, Pairwise<ImplicitStep>>();
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
