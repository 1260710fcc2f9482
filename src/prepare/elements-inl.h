// Per-token operations that take every element by itself, with their gradients (included by elements_f32.cc,
// elements_f64.cc): value and gradient of every operation of kind `element`, by the name it has in operations.def. The
// table is made from that list; a formula that is missing does not compile.
//
// `x` are the operands, `number` the constant, `y` the result and `dy` its gradient; d[i] is the gradient of operand i.
// In a gradient only those of x and y are there that operations.def says it reads, the others are 0.
//
// lower_bound_gate = log(l + (1-l) s(f)) has three exact writings: log1p(-(1-l) s(-f)), good near 0; as it stands, good
// where the first argument comes near -1; and logaddexp(log l, log(1-l) + log s(f)) where s(f) underflows. Each alone
// loses all digits somewhere: the first for l = 0 and a shut gate, the others for an open gate (g near 0).
//
// Sources: precondition arXiv 2604.21100, decay_rate_gate and root_complement Griffin (De 2024), phase_step Mamba-3,
// erase_log Longhorn as released. Traps: Griffin's gate has softplus(-lam), the log of sigmoid(lam), in some texts
// and softplus(lam) in others; the first is meant here. Its released code bounds the slope of the root by 1000, which
// changes the gradient of slow channels; here the slope is exact up to a root of zero. Lanes beyond the end of a row
// hold 0, which must be in the domain of every operation.
#if defined(TTR_PREPARE_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_PREPARE_ELEMENTS_INL_H_
#undef TTR_PREPARE_ELEMENTS_INL_H_
#else
#define TTR_PREPARE_ELEMENTS_INL_H_
#endif

#include <algorithm>
#include <limits>
#include <numbers>

#include "prepare/activations-inl.h"
#include "prepare/lines-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

template <prepare::Op op>
struct Formula;  // defined for every operation of kind `element`

/// A row of an operand. One number for the whole row is spread over a vector that is loaded again and again.
template <class T>
struct Operand {
  const T* data = nullptr;
  Size step = 0, mask = 0;
  HWY_INLINE void begin(const typename Job<T>::template Side<const T>& side, Size r, T* spread) {
    data = side.data + r * side.row, step = side.step, mask = step == 0 ? 0 : -1;
    if (step != 0) return;
    hn::Store(hn::Set(Tag<T>(), *data), Tag<T>(), spread);
    data = spread;
  }
  template <class Lanes>
  HWY_INLINE Num<T> at(Size i, Lanes lanes) const {
    if constexpr (Lanes::whole) return hn::LoadU(Tag<T>(), data + (i & mask));
    else return LoadLanes(data + i * step, step, lanes.count);
  }
};

/// A row of a gradient that is added to. Where it is not wanted, or is one number for the row, vectors are added to
/// zeros and stored where nobody looks: no branch in the loop.
template <class T>
struct Sink {
  const T* from = nullptr;
  T* to = nullptr;
  Size step = 0, mask = 0;
  HWY_INLINE void begin(const typename Job<T>::template Side<T>& side, Size r, T* zeros, T* nowhere) {
    const bool adds = side.data && side.step != 0;
    to = adds ? side.data + r * side.row : nowhere, from = adds ? to : zeros;
    step = side.step, mask = adds ? -1 : 0;
  }
  template <class Lanes>
  HWY_INLINE void add(Num<T> v, Size i, Lanes lanes) const {
    if constexpr (Lanes::whole)
      hn::StoreU(hn::Add(hn::LoadU(Tag<T>(), from + (i & mask)), v.v), Tag<T>(), to + (i & mask));
    else if (mask != 0) AddLanes<T>(v.v, to + i * step, step, lanes.count);
  }
};

template <class T, prepare::Op op>
struct Elements {
  using F = Formula<op>;
  static constexpr int operands = prepare::facts(op).operands;
  static constexpr int gradients = operands < prepare::facts(op).gradients ? operands : prepare::facts(op).gradients;
  static constexpr bool checked = requires(const Num<T>* x) { F::outside(x); };
  static constexpr Size L = Width<T>();

  // Whether an operand may be read, and a gradient written, vector by vector.
  static bool near(Size step) { return step == 0 || step == 1; }

  static bool forward(const Job<T>& job) {
    bool close = job.y.step == 1;
    for (int k = 0; k < operands; ++k) close = close && near(job.x[k].step);
    const Num<T> number = job.number;
    typename Num<T>::Truth bad = hn::FirstN(Tag<T>(), 0);
    HWY_ALIGN T spread[prepare::max_operands][L];
    Operand<T> from[prepare::max_operands];
    for (Size r = 0; r < job.rows; ++r) {
      TTR_UNROLL for (int k = 0; k < operands; ++k) from[k].begin(job.x[k], r, spread[k]);
      const Line<T> to = RowOf<T>(job.y, r);
      ForLanes<T>(job.width, close, [&](Size i, auto lanes) HWY_ATTR {
        Num<T> x[prepare::max_operands];
        TTR_UNROLL for (int k = 0; k < operands; ++k) x[k] = from[k].at(i, lanes);
        if constexpr (checked) bad = hn::Or(bad, F::outside(x));
        to.set(F::template value<T>(x, number), i, lanes);
      });
    }
    return hn::AllFalse(Tag<T>(), bad);
  }

  static void backward(const Job<T>& job) {
    bool close = job.gradient.step == 1 && (!prepare::backward_reads_result(op) || job.result.step == 1);
    bool sums = false;
    for (int k = 0; k < operands; ++k) {
      close = close && near(job.x[k].step) && near(job.dx[k].step);
      sums = sums || (k < gradients && job.dx[k].data && job.dx[k].step == 0);
    }
    const Num<T> number = job.number;
    HWY_ALIGN T spread[prepare::max_operands][L], zeros[L] = {}, nowhere[L];
    Operand<T> from[prepare::max_operands];
    Sink<T> to[prepare::max_operands];
    for (Size r = 0; r < job.rows; ++r) {
      TTR_UNROLL for (int k = 0; k < operands; ++k) {
        if (prepare::backward_reads_operand(op, k)) from[k].begin(job.x[k], r, spread[k]);
        if (k < gradients) to[k].begin(job.dx[k], r, zeros, nowhere);
      }
      const Line<const T> y = RowOf<const T>(job.result, r), dy = RowOf<const T>(job.gradient, r);
      Num<T> sum[prepare::max_operands];
      ForLanes<T>(job.width, close, [&](Size i, auto lanes) HWY_ATTR {
        Num<T> x[prepare::max_operands], d[prepare::max_operands], result;
        TTR_UNROLL for (int k = 0; k < operands; ++k) {
          if (prepare::backward_reads_operand(op, k)) x[k] = from[k].at(i, lanes);
        }
        if constexpr (prepare::backward_reads_result(op)) result = y.at(i, lanes);
        F::template gradient<T>(x, result, dy.at(i, lanes), number, d);
        // One after the other: two operands may be one tensor.
        TTR_UNROLL for (int k = 0; k < gradients; ++k) to[k].add(d[k], i, lanes);
        if (sums) {
          TTR_UNROLL for (int k = 0; k < gradients; ++k) sum[k] = sum[k] + Inside(d[k], lanes);
        }
      });
      for (int k = 0; k < gradients; ++k)
        if (job.dx[k].data && job.dx[k].step == 0) job.dx[k].data[r * job.dx[k].row] += SumUp(sum[k]);
    }
  }
};

#define TTR_VALUE    \
  template <class T> \
  static HWY_INLINE Num<T> value([[maybe_unused]] const Num<T>* x, [[maybe_unused]] Num<T> number)
#define TTR_GRADIENT                                                                           \
  template <class T>                                                                           \
  static HWY_INLINE void gradient([[maybe_unused]] const Num<T>* x, [[maybe_unused]] Num<T> y, \
                                  [[maybe_unused]] Num<T> dy, [[maybe_unused]] Num<T> number,  \
                                  [[maybe_unused]] Num<T>* d)
#define TTR_OUTSIDE  \
  template <class T> \
  static HWY_INLINE typename Num<T>::Truth outside(const Num<T>* x)

template <>
struct Formula<prepare::Op::zero> {
  TTR_VALUE { return T(0); }
  TTR_GRADIENT {}
};
template <>
struct Formula<prepare::Op::copy> {
  TTR_VALUE { return x[0]; }
  TTR_GRADIENT { d[0] = dy; }
};
template <>
struct Formula<prepare::Op::negate> {
  TTR_VALUE { return -x[0]; }
  TTR_GRADIENT { d[0] = -dy; }
};

template <int sign>
struct ProductOf {
  TTR_VALUE { return sign > 0 ? x[0] * x[1] : -x[0] * x[1]; }
  TTR_GRADIENT {
    const Num<T> g = sign > 0 ? dy : -dy;
    d[0] = g * x[1];
    d[1] = g * x[0];
  }
};
template <>
struct Formula<prepare::Op::multiply> : ProductOf<1> {};
template <>
struct Formula<prepare::Op::negative_product> : ProductOf<-1> {};
template <int sign>
struct SumOf {
  TTR_VALUE { return sign > 0 ? x[0] + x[1] : x[0] - x[1]; }
  TTR_GRADIENT {
    d[0] = dy;
    d[1] = sign > 0 ? dy : -dy;
  }
};
template <>
struct Formula<prepare::Op::add> : SumOf<1> {};
template <>
struct Formula<prepare::Op::subtract> : SumOf<-1> {};
template <>
struct Formula<prepare::Op::divide> {
  TTR_VALUE { return hn::IfThenZeroElse(x[1] == T(0), (x[0] / x[1]).v); }
  TTR_GRADIENT {
    const auto none = x[1] == T(0);
    d[0] = dy * Num<T>(hn::IfThenZeroElse(none, (1 / x[1]).v));
    d[1] = dy * Num<T>(hn::IfThenZeroElse(none, (-x[0] / x[1] / x[1]).v));
  }
};
template <>
struct Formula<prepare::Op::scale> {
  TTR_VALUE { return number * x[0]; }
  TTR_GRADIENT { d[0] = dy * number; }
};
template <>
struct Formula<prepare::Op::skip> {
  TTR_VALUE { return fma(x[2], x[1], x[0]); }
  TTR_GRADIENT {
    d[0] = dy;
    d[1] = dy * x[2];
    d[2] = dy * x[1];
  }
};
template <>
struct Formula<prepare::Op::blend_product> {
  TTR_VALUE { return x[0] * fma(x[1] - 1, x[2], Num<T>(T(1))); }
  TTR_GRADIENT {
    const Num<T> y1 = x[1] - 1;
    d[0] = dy * fma(y1, x[2], Num<T>(T(1)));
    d[1] = dy * x[0] * x[2];
    d[2] = dy * x[0] * y1;
  }
};

template <>
struct Formula<prepare::Op::silu> {
  TTR_VALUE { return silu(x[0]); }
  TTR_GRADIENT { d[0] = dy * silu_and_slope(x[0]).slope; }
};
template <>
struct Formula<prepare::Op::silu_gate> {
  TTR_VALUE { return x[0] * silu(x[1]); }
  TTR_GRADIENT {
    const auto [gate, slope] = silu_and_slope(x[1]);
    d[0] = dy * gate;
    d[1] = dy * x[0] * slope;
  }
};

// Below this a factor counts as zero; its logarithm is finite in T and exp gives it back.
template <class T>
HWY_INLINE Num<T> clamped(Num<T> factor) {
  const Num<T> tiny = T(sizeof(T) == 4 ? 1e-30 : 1e-290);
  return where(factor < tiny, tiny, factor);
}

template <>
struct Formula<prepare::Op::leak_gate> {
  TTR_OUTSIDE { return 1 - x[0] * x[1] < T(0); }
  TTR_VALUE { return log(clamped(1 - x[0] * x[1])); }
  TTR_GRADIENT {
    const Num<T> rest = clamped(1 - x[0] * x[1]);
    d[0] = dy * (-x[1] / rest);
    d[1] = dy * (-x[0] / rest);
  }
};
// The log of x, or of its complement 1 - x.
template <bool complement>
struct LogOfFactor {
  template <class T>
  static HWY_INLINE Num<T> factor(Num<T> x) {
    return complement ? 1 - x : x;
  }
  TTR_OUTSIDE { return factor(x[0]) < T(0); }
  TTR_VALUE { return log(clamped(factor(x[0]))); }
  TTR_GRADIENT { d[0] = (complement ? -dy : dy) / clamped(factor(x[0])); }
};
template <>
struct Formula<prepare::Op::shrink_gate> : LogOfFactor<true> {};
template <>
struct Formula<prepare::Op::log> : LogOfFactor<false> {};
template <>
struct Formula<prepare::Op::log_magnitude> {
  template <class T>
  static HWY_INLINE Num<T> away_from_zero(Num<T> x) {
    const Num<T> least = T(sizeof(T) == 4 ? 0x1p-48 : 0x1p-128);
    return where(x < T(0), where(-least < x, -least, x), where(x < least, least, x));
  }
  TTR_VALUE { return log(abs(away_from_zero(x[0]))); }
  TTR_GRADIENT { d[0] = dy / away_from_zero(x[0]); }
};
template <>
struct Formula<prepare::Op::with_sign> {
  TTR_VALUE { return x[0] * x[1]; }
  TTR_GRADIENT { d[0] = dy * x[1]; }
};
template <>
struct Formula<prepare::Op::twice_less_one> {
  TTR_VALUE { return 1 + 2 * expm1(x[0]); }
  TTR_GRADIENT { d[0] = dy * (y + 1); }
};
// 1 - k^2 d is a matrix of factors. A product that rounding has put just above one counts as one: the implicit step
// makes k^2 d = 1 to the last bit where its delta is large.
template <>
struct Formula<prepare::Op::erase_log> {
  TTR_OUTSIDE { return 1 - x[0] * x[0] * x[1] < Num<T>(-8 * std::numeric_limits<T>::epsilon()); }
  TTR_VALUE {
    const Num<T> erased = x[0] * x[0] * x[1], rest = 1 - erased;
    return where(rest < T(0.5), log(clamped(rest)), log1p(-erased));
  }
  TTR_GRADIENT {
    const Num<T> g = dy / clamped(1 - x[0] * x[0] * x[1]);
    d[0] = -2 * g * x[0] * x[1];
    d[1] = -g * x[0] * x[0];
  }
};

template <>
struct Formula<prepare::Op::sigmoid> {
  TTR_VALUE { return sigmoid(x[0]); }
  TTR_GRADIENT {
    const auto [up, down] = both_sigmoids(x[0]);
    d[0] = dy * (up * down);
  }
};
template <>
struct Formula<prepare::Op::log_sigmoid> {
  template <class T>
  static HWY_INLINE Num<T> divisor(Num<T> number) {
    return where(number == T(0), Num<T>(T(1)), number);
  }
  TTR_VALUE { return log_sigmoid(x[0]) / divisor(number); }
  TTR_GRADIENT { d[0] = dy * (sigmoid(-x[0]) / divisor(number)); }
};
template <>
struct Formula<prepare::Op::softplus> {
  TTR_VALUE { return softplus(x[0]); }
  TTR_GRADIENT { d[0] = dy * sigmoid(x[0]); }
};
template <int sign>
struct ExponentialOf {
  TTR_VALUE { return sign > 0 ? exp(x[0]) : -exp(x[0]); }
  TTR_GRADIENT { d[0] = dy * y; }
};
template <>
struct Formula<prepare::Op::exp> : ExponentialOf<1> {};
template <>
struct Formula<prepare::Op::exp_negative> : ExponentialOf<-1> {};
template <>
struct Formula<prepare::Op::one_minus_exp> {
  TTR_VALUE { return -expm1(x[0]); }
  TTR_GRADIENT { d[0] = dy * -exp(x[0]); }
};
template <>
struct Formula<prepare::Op::root_complement> {
  TTR_OUTSIDE { return x[0] > T(0); }
  TTR_VALUE { return hn::IfThenZeroElse(x[0] > T(0), sqrt(-expm1(2 * x[0])).v); }
  TTR_GRADIENT {
    const Num<T> smallest =
        T(sizeof(T) == 4 ? 1.0842021724855044e-19 : 1.4916681462400413e-154);  // root of the least
    d[0] = -(dy * exp(2 * x[0]) / where(y < smallest, smallest, y));
  }
};
template <>
struct Formula<prepare::Op::implicit_step> {
  TTR_VALUE { return x[0] * (1 / (1 + x[0] * x[1])); }
  TTR_GRADIENT {
    const Num<T> inverse = 1 / (1 + x[0] * x[1]);
    d[0] = dy * (inverse * inverse);
    d[1] = dy * (-x[0] * x[0] * inverse * inverse);
  }
};
template <>
struct Formula<prepare::Op::decay_rate_gate> {
  TTR_VALUE { return 8 * sigmoid(x[0]) * log_sigmoid(x[1]); }
  TTR_GRADIENT {
    const auto [up, down] = both_sigmoids(x[0]);
    d[0] = dy * (8 * up * down * log_sigmoid(x[1]));
    d[1] = dy * (8 * up * sigmoid(-x[1]));
  }
};
template <>
struct Formula<prepare::Op::phase_step> {
  TTR_VALUE { return std::numbers::pi_v<T> * tanh(x[0]) * x[1]; }
  TTR_GRADIENT {  // tanh' = 4 s(2a) s(-2a): 1 - tanh^2 has no digits left for large a
    const auto [up, down] = both_sigmoids(2 * x[0]);
    d[0] = dy * (4 * std::numbers::pi_v<T> * up * down * x[1]);
    d[1] = dy * (std::numbers::pi_v<T> * tanh(x[0]));
  }
};
template <>
struct Formula<prepare::Op::precondition> {
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
    d[0] = dy * (-slope / A);
    d[1] = dy * slope;
  }
};

template <>
struct Formula<prepare::Op::lower_bound_gate> {
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
    d[0] = dy * ((1 - x[1]) * o.up * slope);
    d[1] = dy * slope;
    if (HWY_LIKELY(hn::AllFalse(Tag<T>(), o.lost))) return;
    const Num<T> g = log_sum(x[0], x[1]);
    const Num<T> of_f = exp(log1p(-x[1]) + log_sigmoid(x[0]) - g) * o.down, of_bound = exp(log_sigmoid(-x[0]) - g);
    d[0] = where(o.lost, dy * of_f, d[0]);
    d[1] = where(o.lost, dy * of_bound, d[1]);
  }
};

template <>
struct Formula<prepare::Op::elu1> {
  TTR_VALUE { return where(x[0] > T(0), x[0] + 1, exp(x[0])); }
  TTR_GRADIENT { d[0] = dy * where(y > T(1), Num<T>(T(1)), y); }
};
template <>
struct Formula<prepare::Op::relu> {
  TTR_VALUE { return hn::IfThenZeroElse(x[0] < T(0), x[0].v); }
  TTR_GRADIENT { d[0] = dy * Num<T>(hn::IfThenElseZero(x[0] > T(0), Num<T>(T(1)).v)); }
};

template <>
struct Formula<prepare::Op::relu_times> {
  TTR_VALUE { return Num<T>(hn::IfThenZeroElse(x[0] < T(0), x[0].v)) * x[1]; }
  TTR_GRADIENT { d[0] = hn::IfThenElseZero(x[0] > T(0), (dy * x[1]).v); }
};
// A pair a, b turned by an angle: c a - s b and s a + c b. c and s have no gradient.
template <bool second>
struct TurnOf {
  TTR_VALUE { return second ? fma(x[3], x[0], x[2] * x[1]) : fma(x[2], x[0], -(x[3] * x[1])); }
  TTR_GRADIENT {
    d[0] = dy * (second ? x[3] : x[2]);
    d[1] = dy * (second ? x[2] : -x[3]);
  }
};
template <>
struct Formula<prepare::Op::turn_first> : TurnOf<false> {};
template <>
struct Formula<prepare::Op::turn_second> : TurnOf<true> {};
template <class T>
void Turns(Size n, double position, const double* frequency, T* cosine, T* sine) {
  HWY_ALIGN double c[hn::MaxLanes(Tag<double>())], s[hn::MaxLanes(Tag<double>())];
  ForLanes<double>(n, true, [&](Size i, auto lanes) HWY_ATTR {
    const Turn<double> both = turn(position * Line<const double>{frequency, 1}.at(i, lanes));
    hn::Store(both.cosine.v, Tag<double>(), c), hn::Store(both.sine.v, Tag<double>(), s);
    for (Size j = 0; j < std::min(n - i, Width<double>()); ++j)
      cosine[i + j] = static_cast<T>(c[j]), sine[i + j] = static_cast<T>(s[j]);
  });
}

#undef TTR_VALUE
#undef TTR_GRADIENT
#undef TTR_OUTSIDE

template <class T>
const prepare::TokenTable<T>* ElementTable() {
  static constexpr prepare::TokenTable<T> table = [] {
    prepare::TokenTable<T> all = TableOf<T, prepare::Kind::element, Elements>();
    all.turns = Turns<T>;
    return all;
  }();
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
