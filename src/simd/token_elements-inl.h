// Per-token operations that take every element by itself, with their gradients (included by token_f32.cc,
// token_f64.cc). The formulas are listed in prepare/operations.h.
//
// lower_bound_gate = log(l + (1-l) s(f)) has three exact writings: log1p(-(1-l) s(-f)), good near 0; as it stands, good
// where the first argument comes near -1; and logaddexp(log l, log(1-l) + log s(f)) where s(f) underflows. Each alone
// loses all digits somewhere: the first for l = 0 and a shut gate, the others for an open gate (g near 0).
//
// Sources: precondition arXiv 2604.21100, decay_rate_gate and root_complement Griffin (De 2024), phase_step Mamba-3,
// erase_log Longhorn as released. Traps: Griffin's gate has softplus(-lam), the log of sigmoid(lam), in some texts
// and softplus(lam) in others; the first is meant here. Its released code bounds the slope of the root by 1000, which
// changes the gradient of slow channels; here the slope is exact up to a root of zero. Lanes beyond the end of a row
// hold 0, which is in the domain of every operation.
#if defined(TTR_SIMD_TOKEN_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_TOKEN_ELEMENTS_INL_H_
#undef TTR_SIMD_TOKEN_ELEMENTS_INL_H_
#else
#define TTR_SIMD_TOKEN_ELEMENTS_INL_H_
#endif

#include <limits>
#include <numbers>

#include "simd/numbers-inl.h"
#include "simd/token_simd.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

template <class T>
HWY_NOINLINE Vec<T> LoadStrided(const T* p, Size step, Size lanes) {
  const Tag<T> d;
  HWY_ALIGN T buffer[hn::MaxLanes(d)] = {};
  for (Size i = 0; i < lanes; ++i) buffer[i] = p[i * step];
  return hn::Load(d, buffer);
}
template <class T>
HWY_NOINLINE void StoreStrided(Vec<T> v, T* p, Size step, Size lanes) {
  const Tag<T> d;
  HWY_ALIGN T buffer[hn::MaxLanes(d)];
  hn::Store(v, d, buffer);
  for (Size i = 0; i < lanes; ++i) p[i * step] = buffer[i];
}

/// Elements i, i + 1, ... of a row that starts at p.
template <bool kPart, class T>
HWY_INLINE Num<T> Take(const T* p, Size step, Size i, Size lanes) {
  if (HWY_LIKELY(step == 1)) return LoadMaybe<kPart>(p + i, lanes);
  if (step == 0) return *p;
  return LoadStrided(p + i * step, step, lanes);
}
template <bool kPart, class T>
HWY_INLINE void Put(Num<T> v, T* p, Size step, Size i, Size lanes) {
  if (HWY_LIKELY(step == 1)) StoreMaybe<kPart>(v.v, p + i, lanes);
  else StoreStrided(v.v, p + i * step, step, lanes);
}
/// Zero beyond the end of the row, for sums.
template <bool kPart, class T>
HWY_INLINE Num<T> Inside(Num<T> v, Size lanes) {
  if constexpr (kPart) return hn::IfThenElseZero(hn::FirstN(Tag<T>(), static_cast<size_t>(lanes)), v.v);
  return v;
}

template <int count>
struct Formula {
  static constexpr int operands = count;
  static constexpr bool checked = false;      // has `outside`
  static constexpr bool uses_result = false;  // the gradient reads y
};

template <class T, class F>
bool ElementsForward(const TokenJob<T>& job) {
  const Num<T> number = job.number;
  typename Num<T>::Truth bad = hn::FirstN(Tag<T>(), 0);
  for (Size r = 0; r < job.rows; ++r) {
    const T* from[4];
    for (int k = 0; k < F::operands; ++k) from[k] = job.x[k].data + r * job.x[k].row;
    T* const to = job.y.data + r * job.y.row;
    ForVectors<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      Num<T> x[4];
      TTR_UNROLL for (int k = 0; k < F::operands; ++k) x[k] = Take<part>(from[k], job.x[k].step, i, lanes);
      if constexpr (F::checked) bad = hn::Or(bad, F::outside(x));
      Put<part>(F::template value<T>(x, number), to, job.y.step, i, lanes);
    });
  }
  return hn::AllFalse(Tag<T>(), bad);
}

template <class T, class F>
void ElementsBackward(const TokenJob<T>& job) {
  const Tag<T> tag;
  const Num<T> number = job.number;
  bool want[4], sums[4];
  for (int k = 0; k < 4; ++k) want[k] = job.dx[k].data, sums[k] = want[k] && job.dx[k].step == 0;
  for (Size r = 0; r < job.rows; ++r) {
    const T* from[4];
    T* to[4];
    Num<T> sum[4];
    for (int k = 0; k < F::operands; ++k)
      from[k] = job.x[k].data + r * job.x[k].row, to[k] = want[k] ? job.dx[k].data + r * job.dx[k].row : nullptr;
    const T* const y = F::uses_result ? job.result.data + r * job.result.row : nullptr;
    const T* const dy = job.gradient.data + r * job.gradient.row;
    ForVectors<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      Num<T> x[4], d[4], result;
      TTR_UNROLL for (int k = 0; k < F::operands; ++k) x[k] = Take<part>(from[k], job.x[k].step, i, lanes);
      if constexpr (F::uses_result) result = Take<part>(y, job.result.step, i, lanes);
      F::template gradient<T>(x, result, Take<part>(dy, job.gradient.step, i, lanes), number, want, d);
      // One after the other: two operands may be one tensor.
      TTR_UNROLL for (int k = 0; k < F::operands; ++k) {
        if (!want[k]) continue;
        if (sums[k]) sum[k] = sum[k] + Inside<part>(d[k], lanes);
        else Put<part>(Take<part>(to[k], job.dx[k].step, i, lanes) + d[k], to[k], job.dx[k].step, i, lanes);
      }
    });
    for (int k = 0; k < F::operands; ++k)
      if (sums[k]) *to[k] += hn::GetLane(hn::SumOfLanes(tag, sum[k].v));
  }
}

#define TTR_VALUE    \
  template <class T> \
  static HWY_INLINE Num<T> value(const Num<T>* x, [[maybe_unused]] Num<T> number)
#define TTR_GRADIENT                                                                                      \
  template <class T>                                                                                      \
  static HWY_INLINE void gradient([[maybe_unused]] const Num<T>* x, [[maybe_unused]] Num<T> y, Num<T> dy, \
                                  [[maybe_unused]] Num<T> number, const bool* want, Num<T>* d)
#define TTR_OUTSIDE                     \
  static constexpr bool checked = true; \
  template <class T>                    \
  static HWY_INLINE typename Num<T>::Truth outside(const Num<T>* x)

struct CopyOf : Formula<1> {
  TTR_VALUE { return x[0]; }
  TTR_GRADIENT {
    if (want[0]) d[0] = dy;
  }
};
struct Negated : Formula<1> {
  TTR_VALUE { return -x[0]; }
  TTR_GRADIENT {
    if (want[0]) d[0] = -dy;
  }
};
struct ZeroOf : Formula<0> {
  template <class T>
  static HWY_INLINE Num<T> value(const Num<T>*, Num<T>) {
    return T(0);
  }
  template <class T>
  static HWY_INLINE void gradient(const Num<T>*, Num<T>, Num<T>, Num<T>, const bool*, Num<T>*) {}
};

template <int sign>
struct ProductOf : Formula<2> {
  TTR_VALUE { return sign > 0 ? x[0] * x[1] : -x[0] * x[1]; }
  TTR_GRADIENT {
    const Num<T> g = sign > 0 ? dy : -dy;
    if (want[0]) d[0] = g * x[1];
    if (want[1]) d[1] = g * x[0];
  }
};
template <int sign>
struct SumOf : Formula<2> {
  TTR_VALUE { return sign > 0 ? x[0] + x[1] : x[0] - x[1]; }
  TTR_GRADIENT {
    if (want[0]) d[0] = dy;
    if (want[1]) d[1] = sign > 0 ? dy : -dy;
  }
};
struct QuotientOf : Formula<2> {
  TTR_VALUE { return hn::IfThenZeroElse(x[1] == T(0), (x[0] / x[1]).v); }
  TTR_GRADIENT {
    const auto none = x[1] == T(0);
    if (want[0]) d[0] = dy * Num<T>(hn::IfThenZeroElse(none, (1 / x[1]).v));
    if (want[1]) d[1] = dy * Num<T>(hn::IfThenZeroElse(none, (-x[0] / x[1] / x[1]).v));
  }
};
struct Multiple : Formula<1> {
  TTR_VALUE { return number * x[0]; }
  TTR_GRADIENT {
    if (want[0]) d[0] = dy * number;
  }
};
struct SkipOver : Formula<3> {
  TTR_VALUE { return fma(x[2], x[1], x[0]); }
  TTR_GRADIENT {
    if (want[0]) d[0] = dy;
    if (want[1]) d[1] = dy * x[2];
    if (want[2]) d[2] = dy * x[1];
  }
};
struct BlendOf : Formula<3> {
  TTR_VALUE { return x[0] * fma(x[1] - 1, x[2], Num<T>(T(1))); }
  TTR_GRADIENT {
    const Num<T> y1 = x[1] - 1;
    if (want[0]) d[0] = dy * fma(y1, x[2], Num<T>(T(1)));
    if (want[1]) d[1] = dy * x[0] * x[2];
    if (want[2]) d[2] = dy * x[0] * y1;
  }
};

template <class T>
HWY_INLINE Num<T> silu(Num<T> x) {
  return x * sigmoid(x);
}
template <class T>
struct ValueAndSlope {
  Num<T> value, slope;
};
template <class T>
HWY_INLINE ValueAndSlope<T> silu_and_slope(Num<T> x) {
  const auto [up, down] = both_sigmoids(x);
  return {x * up, up * fma(x, down, Num<T>(T(1)))};
}

struct SiluOf : Formula<1> {
  TTR_VALUE { return silu(x[0]); }
  TTR_GRADIENT {
    if (want[0]) d[0] = dy * silu_and_slope(x[0]).slope;
  }
};
struct SiluGateOf : Formula<2> {
  TTR_VALUE { return x[0] * silu(x[1]); }
  TTR_GRADIENT {
    const auto [gate, slope] = silu_and_slope(x[1]);
    if (want[0]) d[0] = dy * gate;
    if (want[1]) d[1] = dy * x[0] * slope;
  }
};

// Below this a factor counts as zero; its logarithm is finite in T and exp gives it back.
template <class T>
HWY_INLINE Num<T> clamped(Num<T> factor) {
  const Num<T> tiny = T(sizeof(T) == 4 ? 1e-30 : 1e-290);
  return where(factor < tiny, tiny, factor);
}

struct LeakGate : Formula<2> {
  TTR_OUTSIDE { return 1 - x[0] * x[1] < T(0); }
  TTR_VALUE { return log(clamped(1 - x[0] * x[1])); }
  TTR_GRADIENT {
    const Num<T> rest = clamped(1 - x[0] * x[1]);
    if (want[0]) d[0] = dy * (-x[1] / rest);
    if (want[1]) d[1] = dy * (-x[0] / rest);
  }
};
// The log of x, or of its complement 1 - x.
template <bool complement>
struct LogOfFactor : Formula<1> {
  template <class T>
  static HWY_INLINE Num<T> factor(Num<T> x) {
    return complement ? 1 - x : x;
  }
  TTR_OUTSIDE { return factor(x[0]) < T(0); }
  TTR_VALUE { return log(clamped(factor(x[0]))); }
  TTR_GRADIENT {
    if (want[0]) d[0] = (complement ? -dy : dy) / clamped(factor(x[0]));
  }
};
// 1 - k^2 d is a matrix of factors. A product that rounding has put just above one counts as one: the implicit step
// makes k^2 d = 1 to the last bit where its delta is large.
struct EraseLog : Formula<2> {
  TTR_OUTSIDE { return 1 - x[0] * x[0] * x[1] < Num<T>(-8 * std::numeric_limits<T>::epsilon()); }
  TTR_VALUE {
    const Num<T> erased = x[0] * x[0] * x[1], rest = 1 - erased;
    return where(rest < T(0.5), log(clamped(rest)), log1p(-erased));
  }
  TTR_GRADIENT {
    const Num<T> g = dy / clamped(1 - x[0] * x[0] * x[1]);
    if (want[0]) d[0] = -2 * g * x[0] * x[1];
    if (want[1]) d[1] = -g * x[0] * x[0];
  }
};

struct SigmoidOf : Formula<1> {
  TTR_VALUE { return sigmoid(x[0]); }
  TTR_GRADIENT {
    const auto [up, down] = both_sigmoids(x[0]);
    if (want[0]) d[0] = dy * (up * down);
  }
};
struct LogSigmoidOf : Formula<1> {
  template <class T>
  static HWY_INLINE Num<T> divisor(Num<T> number) {
    return where(number == T(0), Num<T>(T(1)), number);
  }
  TTR_VALUE { return log_sigmoid(x[0]) / divisor(number); }
  TTR_GRADIENT {
    if (want[0]) d[0] = dy * (sigmoid(-x[0]) / divisor(number));
  }
};
struct SoftplusOf : Formula<1> {
  TTR_VALUE { return softplus(x[0]); }
  TTR_GRADIENT {
    if (want[0]) d[0] = dy * sigmoid(x[0]);
  }
};
template <int sign>
struct ExponentialOf : Formula<1> {
  static constexpr bool uses_result = true;
  TTR_VALUE { return sign > 0 ? exp(x[0]) : -exp(x[0]); }
  TTR_GRADIENT {
    if (want[0]) d[0] = dy * y;
  }
};
struct OneMinusExp : Formula<1> {
  TTR_VALUE { return -expm1(x[0]); }
  TTR_GRADIENT {
    if (want[0]) d[0] = dy * -exp(x[0]);
  }
};
struct RootComplement : Formula<1> {
  static constexpr bool uses_result = true;
  TTR_OUTSIDE { return x[0] > T(0); }
  TTR_VALUE { return hn::IfThenZeroElse(x[0] > T(0), sqrt(-expm1(2 * x[0])).v); }
  TTR_GRADIENT {
    const Num<T> smallest =
        T(sizeof(T) == 4 ? 1.0842021724855044e-19 : 1.4916681462400413e-154);  // root of the least
    if (want[0]) d[0] = -(dy * exp(2 * x[0]) / where(y < smallest, smallest, y));
  }
};
struct ImplicitStep : Formula<2> {
  TTR_VALUE { return x[0] * (1 / (1 + x[0] * x[1])); }
  TTR_GRADIENT {
    const Num<T> inverse = 1 / (1 + x[0] * x[1]);
    if (want[0]) d[0] = dy * (inverse * inverse);
    if (want[1]) d[1] = dy * (-x[0] * x[0] * inverse * inverse);
  }
};
struct DecayRate : Formula<2> {
  TTR_VALUE { return 8 * sigmoid(x[0]) * log_sigmoid(x[1]); }
  TTR_GRADIENT {
    const auto [up, down] = both_sigmoids(x[0]);
    if (want[0]) d[0] = dy * (8 * up * down * log_sigmoid(x[1]));
    if (want[1]) d[1] = dy * (8 * up * sigmoid(-x[1]));
  }
};
struct PhaseStep : Formula<2> {
  TTR_VALUE { return std::numbers::pi_v<T> * tanh(x[0]) * x[1]; }
  TTR_GRADIENT {  // tanh' = 4 s(2a) s(-2a): 1 - tanh^2 has no digits left for large a
    const auto [up, down] = both_sigmoids(2 * x[0]);
    if (want[0]) d[0] = dy * (4 * std::numbers::pi_v<T> * up * down * x[1]);
    if (want[1]) d[1] = dy * (std::numbers::pi_v<T> * tanh(x[0]));
  }
};
struct Precondition : Formula<2> {
  template <class T>
  static HWY_INLINE Num<T> above(Num<T> A) {
    return where(A < T(0), Num<T>(T(0)), A) + T(1e-6);
  }
  template <class T>
  static HWY_INLINE Num<T> power(Num<T> r) {  // 1.5^(-r / (1 + |r|))
    return exp(T(-0.40546510810816438) * r / (1 + abs(r)));
  }
  TTR_OUTSIDE { return x[0] < T(0); }
  TTR_VALUE { return power(log(above(x[0])) - x[1]); }
  TTR_GRADIENT {
    const Num<T> A = above(x[0]), r = log(A) - x[1], away = 1 + abs(r);
    const Num<T> slope = T(0.40546510810816438) * power(r) / away / away;
    if (want[0]) d[0] = dy * (-slope / A);
    if (want[1]) d[1] = dy * slope;
  }
};

struct LowerBound : Formula<2> {
  // t = l + (1-l) s(f) = 1 - shut. Where t has underflowed, or nearly so, `t` is of no use.
  template <class T>
  struct Opening {
    Num<T> t, shut, up, down;
    typename Num<T>::Truth lost;
  };
  template <class T>
  static HWY_INLINE Opening<T> opening(const Num<T>* x) {
    const auto [up, down] = both_sigmoids(x[0]);
    const Num<T> rest = 1 - x[1], t = fma(rest, up, x[1]);
    return {t, rest * down, up, down, t < T(sizeof(T) == 4 ? 1e-30 : 1e-290)};
  }
  template <class T>
  static HWY_NOINLINE Num<T> log_sum(Num<T> f, Num<T> bound) {
    const Num<T> low = log(bound), open = log1p(-bound) + log_sigmoid(f);
    const Num<T> larger = where(low > open, low, open) + log1p_of_unit(exp_of_negative(-abs(low - open)));
    return where(bound <= T(0), open, larger);
  }
  TTR_OUTSIDE { return hn::Or(x[1]<T(0), x[1]> T(1)); }
  TTR_VALUE {
    const Opening<T> o = opening(x);
    const auto open = o.shut < T(0.5);
    const Num<T> u = where(open, 1 - o.shut, o.t), missing = (1 - u) - o.shut;
    const Num<T> g = log_and(u, Num<T>(hn::IfThenElseZero(open, (missing / u).v)));
    if (HWY_LIKELY(hn::AllFalse(Tag<T>(), o.lost))) return g;
    return where(o.lost, log_sum(x[0], x[1]), g);
  }
  // e^g' = (1-l) s(f) s(-f) ; where e^g underflows g' = e^(log(1-l) + log s(f) - g) s(-f)
  TTR_GRADIENT {
    const Opening<T> o = opening(x);
    const Num<T> slope = o.down / o.t;
    if (want[0]) d[0] = dy * ((1 - x[1]) * o.up * slope);
    if (want[1]) d[1] = dy * slope;
    if (HWY_LIKELY(hn::AllFalse(Tag<T>(), o.lost))) return;
    const Num<T> g = log_sum(x[0], x[1]);
    const Num<T> of_f = exp(log1p(-x[1]) + log_sigmoid(x[0]) - g) * o.down, of_bound = exp(log_sigmoid(-x[0]) - g);
    if (want[0]) d[0] = where(o.lost, dy * of_f, d[0]);
    if (want[1]) d[1] = where(o.lost, dy * of_bound, d[1]);
  }
};

struct EluPlusOne : Formula<1> {
  static constexpr bool uses_result = true;
  TTR_VALUE { return where(x[0] > T(0), x[0] + 1, exp(x[0])); }
  TTR_GRADIENT {
    if (want[0]) d[0] = dy * where(x[0] > T(0), Num<T>(T(1)), y);
  }
};
struct ReluOf : Formula<1> {
  TTR_VALUE { return hn::IfThenZeroElse(x[0] < T(0), x[0].v); }
  TTR_GRADIENT {
    if (want[0]) d[0] = dy * Num<T>(hn::IfThenElseZero(x[0] > T(0), Num<T>(T(1)).v));
  }
};

struct ReluTimes : Formula<2> {
  TTR_VALUE { return Num<T>(hn::IfThenZeroElse(x[0] < T(0), x[0].v)) * x[1]; }
  TTR_GRADIENT {  // a cosine or sine of the position has no gradient
    if (want[0]) d[0] = hn::IfThenElseZero(x[0] > T(0), (dy * x[1]).v);
  }
};
// A pair a, b turned by an angle: c a - s b and s a + c b. c and s have no gradient.
template <bool second>
struct TurnOf : Formula<4> {
  TTR_VALUE { return second ? fma(x[3], x[0], x[2] * x[1]) : fma(x[2], x[0], -(x[3] * x[1])); }
  TTR_GRADIENT {
    if (want[0]) d[0] = dy * (second ? x[3] : x[2]);
    if (want[1]) d[1] = dy * (second ? x[2] : -x[3]);
  }
};
template <class T>
void Turns(Size n, double position, const double* frequency, T* cosine, T* sine) {
  HWY_ALIGN double c[hn::MaxLanes(Tag<double>())], s[hn::MaxLanes(Tag<double>())];
  ForVectors<double>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    const Turn<double> both = turn(position * Num<double>(LoadMaybe<decltype(p)::part>(frequency + i, lanes)));
    hn::Store(both.cosine.v, Tag<double>(), c), hn::Store(both.sine.v, Tag<double>(), s);
    for (Size j = 0; j < lanes; ++j) cosine[i + j] = static_cast<T>(c[j]), sine[i + j] = static_cast<T>(s[j]);
  });
}

#undef TTR_VALUE
#undef TTR_GRADIENT
#undef TTR_OUTSIDE

template <class T>
constexpr void AddElements(TokenSimd<T>& table) {
  const auto add = [&]<class F>(TokenOp op, F) {
    table.forward[static_cast<int>(op)] = ElementsForward<T, F>;
    table.backward[static_cast<int>(op)] = ElementsBackward<T, F>;
  };
  add(TokenOp::zero, ZeroOf());
  add(TokenOp::copy, CopyOf());
  add(TokenOp::negate, Negated());
  add(TokenOp::multiply, ProductOf<1>());
  add(TokenOp::negative_product, ProductOf<-1>());
  add(TokenOp::add, SumOf<1>());
  add(TokenOp::subtract, SumOf<-1>());
  add(TokenOp::divide, QuotientOf());
  add(TokenOp::scale, Multiple());
  add(TokenOp::skip, SkipOver());
  add(TokenOp::silu_gate, SiluGateOf());
  add(TokenOp::blend_product, BlendOf());
  add(TokenOp::leak_gate, LeakGate());
  add(TokenOp::shrink_gate, LogOfFactor<true>());
  add(TokenOp::log, LogOfFactor<false>());
  add(TokenOp::erase_log, EraseLog());
  add(TokenOp::sigmoid, SigmoidOf());
  add(TokenOp::log_sigmoid, LogSigmoidOf());
  add(TokenOp::softplus, SoftplusOf());
  add(TokenOp::exp, ExponentialOf<1>());
  add(TokenOp::exp_negative, ExponentialOf<-1>());
  add(TokenOp::one_minus_exp, OneMinusExp());
  add(TokenOp::lower_bound_gate, LowerBound());
  add(TokenOp::decay_rate_gate, DecayRate());
  add(TokenOp::root_complement, RootComplement());
  add(TokenOp::phase_step, PhaseStep());
  add(TokenOp::precondition, Precondition());
  add(TokenOp::implicit_step, ImplicitStep());
  add(TokenOp::elu1, EluPlusOne());
  add(TokenOp::relu, ReluOf());
  add(TokenOp::silu, SiluOf());
  add(TokenOp::relu_times, ReluTimes());
  add(TokenOp::turn_first, TurnOf<false>());
  add(TokenOp::turn_second, TurnOf<true>());
  table.turns = Turns<T>;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
