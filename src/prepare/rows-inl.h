// Per-token operations that take a row together: norms, and step sizes from the length of a key (included by
// rows_f32.cc, rows_f64.cc by way of pairs-inl.h): RowFormula<T, op> has forward and backward of every operation of kind
// `row`, by the name it has in operations.def. The table is made from that list; a formula that is missing does not
// compile. Of job.x and job.result only those have data backwards that operations.def says the gradient reads.
//
// For y = f u w with f = (sum u^2/c + eps)^-1/2, c = 1 or the width:
//   du = f (g - n (n . g)/c),  n = f u, g = dy w.   Written with n instead of f^3 u, which overflows for short rows;
//   n . g = f (u . g), so one pass over the row gives both sums.
// What is one number per row is computed in scalars: a division of a whole vector would cost as much as the row.
#if defined(TTR_PREPARE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_PREPARE_ROWS_INL_H_
#undef TTR_PREPARE_ROWS_INL_H_
#else
#define TTR_PREPARE_ROWS_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "prepare/activations-inl.h"
#include "prepare/lines-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

template <class T, prepare::Op op>
struct RowFormula;  // defined for every operation of kind `row`

/// The sum over a row of what f(i, lanes) gives.
template <class T, class F>
HWY_INLINE T SumOfRow(Size n, bool close, const F& f) {
  Num<T> sum;
  ForLanes<T>(n, close, [&](Size i, auto lanes) HWY_ATTR { sum = sum + Inside(f(i, lanes), lanes); });
  return SumUp(sum);
}
template <class T>
HWY_INLINE T SquareSum(Size n, const Line<const T>& x) {
  return SumOfRow<T>(n, Close(x), [&](Size i, auto lanes) HWY_ATTR {
    const Num<T> v = x.at(i, lanes);
    return v * v;
  });
}

template <class T>
HWY_INLINE T Total(const Job<T>& job, const Line<const T>& x) {
  return SumOfRow<T>(job.width, Close(x), [&](Size i, auto lanes) HWY_ATTR { return x.at(i, lanes); });
}

/// Adds to a gradient, or to the sum of one that is a single number for the row.
template <class T, class Lanes>
HWY_INLINE void AddTo(const Line<T>& to, Num<T>& sum, Num<T> v, Size i, Lanes lanes) {
  if (to.step == 0) sum = sum + Inside(v, lanes);
  else to.add(v, i, lanes);
}
template <class T>
HWY_INLINE void Finish(const Line<T>& to, Num<T> sum) {
  if (to && to.step == 0) *to.data += SumUp(sum);
}

// Of a row of zeros: zero, so that it stays zero.
template <class T>
HWY_INLINE T InverseRoot(T square) {
  return square == 0 ? T(0) : 1 / std::sqrt(square);
}

struct NoGate {
  template <class T>
  static HWY_INLINE Num<T> value(Num<T>) {
    return T(1);
  }
  template <class T>
  static HWY_INLINE ValueAndSlope<T> both(Num<T>) {
    return {T(1), T(0)};
  }
};
struct SiluGate {
  template <class T>
  static HWY_INLINE Num<T> value(Num<T> z) {
    return silu(z);
  }
  template <class T>
  static HWY_INLINE ValueAndSlope<T> both(Num<T> z) {
    return silu_and_slope(z);
  }
};
struct SigmoidGate {
  template <class T>
  static HWY_INLINE Num<T> value(Num<T> z) {
    return sigmoid(z);
  }
  template <class T>
  static HWY_INLINE ValueAndSlope<T> both(Num<T> z) {
    const auto [up, down] = both_sigmoids(z);
    return {up, up * down};
  }
};

// x, w; with a gate x, z, w. Norm first: n = f x, y = n w act(z).  Gate first: u = x act(z), y = f u w.
template <class T, class Gate, bool mean, bool gate_first>
struct LengthNorm {
  static constexpr bool gated = !std::is_same_v<Gate, NoGate>;
  static constexpr int weight = gated ? 2 : 1;

  static T factor(T square, const Job<T>& job) {
    return InverseRoot(square / (mean ? T(job.width) : T(1)) + job.number);
  }
  static bool forward(const Job<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r), z = RowOf<const T>(job.x[1], r),
                          w = RowOf<const T>(job.x[weight], r);
      const Line<T> y = RowOf<T>(job.y, r);
      const bool close = Close(x, z, w, y);
      const T square = SumOfRow<T>(job.width, close, [&](Size i, auto lanes) HWY_ATTR {
        Num<T> u = x.at(i, lanes);
        if constexpr (gated && gate_first) {
          u = u * Gate::value(z.at(i, lanes));
          y.set(u, i, lanes);  // kept there for the second pass
        }
        return u * u;
      });
      const Num<T> f = factor(square, job);
      ForLanes<T>(job.width, close, [&](Size i, auto lanes) HWY_ATTR {
        Num<T> n;
        if constexpr (gated && gate_first) n = y.at(i, lanes) * f;
        else n = x.at(i, lanes) * f;
        if (w) n = n * w.at(i, lanes);
        if constexpr (gated && !gate_first) n = n * Gate::value(z.at(i, lanes));
        y.set(n, i, lanes);
      });
    }
    return true;
  }
  static void backward(const Job<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r), z = RowOf<const T>(job.x[1], r),
                          w = RowOf<const T>(job.x[weight], r), dy = RowOf<const T>(job.gradient, r);
      const Line<T> dx = RowOf<T>(job.dx[0], r), dz = gated ? RowOf<T>(job.dx[1], r) : Line<T>(),
                    dw = RowOf<T>(job.dx[weight], r);
      const bool close = Close(x, z, w, dy, dx, dz, dw);
      Num<T> squares, along_sum;
      ForLanes<T>(job.width, close, [&](Size i, auto lanes) HWY_ATTR {
        const Num<T> gate = gated ? Gate::value(z.at(i, lanes)) : Num<T>(T(1));
        Num<T> u = x.at(i, lanes), g = dy.at(i, lanes);
        if (w) g = g * w.at(i, lanes);
        if constexpr (gated) (gate_first ? u : g) = (gate_first ? u : g) * gate;
        squares = squares + Inside(u * u, lanes);
        along_sum = along_sum + Inside(u * g, lanes);
      });
      const T one = factor(SumUp(squares), job);
      const T share = SumUp(along_sum) * one / (mean ? T(job.width) : T(1));
      const Num<T> f = one, along = share;
      Num<T> dz_sum, dw_sum;
      ForLanes<T>(job.width, close, [&](Size i, auto lanes) HWY_ATTR {
        const auto [gate, slope] = Gate::both(gated ? z.at(i, lanes) : Num<T>(T(1)));
        const Num<T> at_x = x.at(i, lanes), at_dy = dy.at(i, lanes);
        const Num<T> at_w = w.at(i, lanes, T(1));
        const Num<T> n = (gated && gate_first ? at_x * gate : at_x) * f;
        const Num<T> g = gated && !gate_first ? at_dy * at_w * gate : at_dy * at_w;
        const Num<T> du = f * (g - n * along);
        if (dx) dx.add(gated && gate_first ? du * gate : du, i, lanes);
        if constexpr (gated)
          if (dz) AddTo(dz, dz_sum, slope * (gate_first ? du * at_x : at_dy * n * at_w), i, lanes);
        if (dw) AddTo(dw, dw_sum, gated && !gate_first ? at_dy * n * gate : at_dy * n, i, lanes);
      });
      if constexpr (gated) Finish(dz, dz_sum);
      Finish(dw, dw_sum);
    }
  }
};
template <class T>
struct RowFormula<T, prepare::Op::unit_norm> : LengthNorm<T, NoGate, false, false> {};
template <class T>
struct RowFormula<T, prepare::Op::rms_norm> : LengthNorm<T, NoGate, true, false> {};
template <class T>
struct RowFormula<T, prepare::Op::rms_gate_norm_first_silu> : LengthNorm<T, SiluGate, true, false> {};
template <class T>
struct RowFormula<T, prepare::Op::rms_gate_norm_first_sigmoid> : LengthNorm<T, SigmoidGate, true, false> {};
template <class T>
struct RowFormula<T, prepare::Op::rms_gate_gate_first_silu> : LengthNorm<T, SiluGate, true, true> {};
template <class T>
struct RowFormula<T, prepare::Op::rms_gate_gate_first_sigmoid> : LengthNorm<T, SigmoidGate, true, true> {};

// x / max(|x|, eps)
template <class T>
struct RowFormula<T, prepare::Op::unit_norm_clamp> {
  static bool forward(const Job<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r);
      const Line<T> y = RowOf<T>(job.y, r);
      const bool close = Close(x, y);
      const T longest = std::max(std::sqrt(SquareSum(job.width, x)), job.number);
      ForLanes<T>(job.width, close, [&](Size i, auto lanes) HWY_ATTR {
        y.set(longest == 0 ? Num<T>(T(0)) : x.at(i, lanes) / longest, i, lanes);
      });
    }
    return true;
  }
  static void backward(const Job<T>& job) {
    if (!job.dx[0].data) return;
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r), dy = RowOf<const T>(job.gradient, r);
      const Line<T> dx = RowOf<T>(job.dx[0], r);
      const bool close = Close(x, dy, dx);
      const T length = std::sqrt(SquareSum(job.width, x)), longest = std::max(length, job.number);
      if (longest == 0) continue;
      T along = 0;
      if (length >= longest)
        along = SumOfRow<T>(job.width, close,
                            [&](Size i, auto lanes) HWY_ATTR { return x.at(i, lanes) / longest * dy.at(i, lanes); });
      ForLanes<T>(job.width, close, [&](Size i, auto lanes) HWY_ATTR {
        const Num<T> n = x.at(i, lanes) / longest;
        dx.add((dy.at(i, lanes) - n * along) / longest, i, lanes);
      });
    }
  }
};

// x / sum x
template <class T>
struct RowFormula<T, prepare::Op::sum_norm> {
  static bool forward(const Job<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r);
      const Line<T> y = RowOf<T>(job.y, r);
      const bool close = Close(x, y);
      const T sum = Total(job, x);
      ForLanes<T>(job.width, close, [&](Size i, auto lanes) HWY_ATTR {
        y.set(sum == 0 ? Num<T>(T(0)) : x.at(i, lanes) / sum, i, lanes);
      });
    }
    return true;
  }
  static void backward(const Job<T>& job) {
    if (!job.dx[0].data) return;
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r), dy = RowOf<const T>(job.gradient, r);
      const Line<T> dx = RowOf<T>(job.dx[0], r);
      const bool close = Close(x, dy, dx);
      const T sum = Total(job, x);
      if (sum == 0) continue;
      const T along = SumOfRow<T>(
          job.width, close, [&](Size i, auto lanes) HWY_ATTR { return x.at(i, lanes) / sum * dy.at(i, lanes); });
      ForLanes<T>(job.width, close,
                  [&](Size i, auto lanes) HWY_ATTR { dx.add((dy.at(i, lanes) - along) / sum, i, lanes); });
    }
  }
};

template <class T>
struct RowFormula<T, prepare::Op::softmax> {
  static bool forward(const Job<T>& job) {
    const Tag<T> d;
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r);
      const Line<T> y = RowOf<T>(job.y, r);
      const bool close = Close(x, y);
      Num<T> largest = -Num<T>(hn::Inf(d));
      ForLanes<T>(job.width, close, [&](Size i, auto lanes) HWY_ATTR {
        Num<T> v = x.at(i, lanes);
        if constexpr (!lanes.whole) v = where(hn::FirstN(d, static_cast<size_t>(lanes.count)), v, largest);
        largest = hn::Max(largest.v, v.v);
      });
      largest = hn::MaxOfLanes(d, largest.v);
      const T sum = SumOfRow<T>(job.width, close, [&](Size i, auto lanes) HWY_ATTR {
        const Num<T> e = exp_of_negative(x.at(i, lanes) - largest);
        y.set(e, i, lanes);
        return e;
      });
      const Num<T> inverse = 1 / sum;
      ForLanes<T>(job.width, close, [&](Size i, auto lanes) HWY_ATTR { y.set(y.at(i, lanes) * inverse, i, lanes); });
    }
    return true;
  }
  static void backward(const Job<T>& job) {
    if (!job.dx[0].data) return;
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> y = RowOf<const T>(job.result, r), dy = RowOf<const T>(job.gradient, r);
      const Line<T> dx = RowOf<T>(job.dx[0], r);
      const bool close = Close(y, dy, dx);
      const T mean = SumOfRow<T>(job.width, close,
                                 [&](Size i, auto lanes) HWY_ATTR { return dy.at(i, lanes) * y.at(i, lanes); });
      ForLanes<T>(job.width, close,
                  [&](Size i, auto lanes) HWY_ATTR { dx.add(y.at(i, lanes) * (dy.at(i, lanes) - mean), i, lanes); });
    }
  }
};

// n = (x - mean) inverse ; y = n w + b
template <class T>
struct RowFormula<T, prepare::Op::layer_norm> {
  struct Moments {
    T mean, inverse;
  };
  static HWY_INLINE Moments moments(const Job<T>& job, const Line<const T>& x) {
    const T mean = Total(job, x) / T(job.width);
    const T square = SumOfRow<T>(job.width, Close(x), [&](Size i, auto lanes) HWY_ATTR {
      const Num<T> v = x.at(i, lanes) - mean;
      return v * v;
    });
    return {mean, InverseRoot(square / T(job.width) + job.number)};
  }
  static bool forward(const Job<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r), w = RowOf<const T>(job.x[1], r),
                          b = RowOf<const T>(job.x[2], r);
      const Line<T> y = RowOf<T>(job.y, r);
      const bool close = Close(x, w, b, y);
      const auto [mean, inverse] = moments(job, x);
      const Num<T> m = mean, f = inverse;
      ForLanes<T>(job.width, close, [&](Size i, auto lanes) HWY_ATTR {
        Num<T> n = (x.at(i, lanes) - m) * f;
        if (w) n = n * w.at(i, lanes);
        if (b) n = n + b.at(i, lanes);
        y.set(n, i, lanes);
      });
    }
    return true;
  }
  static void backward(const Job<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r), w = RowOf<const T>(job.x[1], r),
                          dy = RowOf<const T>(job.gradient, r);
      const Line<T> dx = RowOf<T>(job.dx[0], r), dw = RowOf<T>(job.dx[1], r), db = RowOf<T>(job.dx[2], r);
      const bool close = Close(x, w, dy, dx, dw, db);
      const auto [mean, inverse] = moments(job, x);
      const Num<T> m = mean, f = inverse;
      Num<T> sums, alongs, dw_sum, db_sum;
      ForLanes<T>(job.width, close, [&](Size i, auto lanes) HWY_ATTR {
        const Num<T> at_dy = dy.at(i, lanes), n = (x.at(i, lanes) - m) * f;
        const Num<T> g = at_dy * w.at(i, lanes, T(1));
        sums = sums + Inside(g, lanes);
        alongs = alongs + Inside(g * n, lanes);
        if (dw) AddTo(dw, dw_sum, at_dy * n, i, lanes);
        if (db) AddTo(db, db_sum, at_dy, i, lanes);
      });
      Finish(dw, dw_sum), Finish(db, db_sum);
      if (!dx) continue;
      const Num<T> sum = SumUp(sums) / T(job.width), along = SumUp(alongs) / T(job.width);
      ForLanes<T>(job.width, close, [&](Size i, auto lanes) HWY_ATTR {
        const Num<T> n = (x.at(i, lanes) - m) * f;
        const Num<T> g = dy.at(i, lanes) * w.at(i, lanes, T(1));
        dx.add(f * (g - sum - n * along), i, lanes);
      });
    }
  }
};

// |x|^2; a row of `depth` numbers gives one.
template <class T>
struct RowFormula<T, prepare::Op::square_norm> {
  static bool forward(const Job<T>& job) {
    for (Size r = 0; r < job.rows; ++r) job.y.data[r * job.y.row] = SquareSum(job.depth, RowOf<const T>(job.x[0], r));
    return true;
  }
  static void backward(const Job<T>& job) {
    if (!job.dx[0].data) return;
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r);
      const Line<T> dx = RowOf<T>(job.dx[0], r);
      const bool close = Close(x, dx);
      const Num<T> twice = 2 * job.gradient.data[r * job.gradient.row];
      ForLanes<T>(job.depth, close, [&](Size i, auto lanes) HWY_ATTR { dx.add(twice * x.at(i, lanes), i, lanes); });
    }
  }
};

template <class T>
struct StepSize {
  T value, d_step, d_square;  // and its derivatives with respect to mu|delta|beta and to |k|^2
};
struct Nlms {
  template <class T>
  static HWY_INLINE StepSize<T> of(T step, T square, T eps) {
    const T denominator = eps + square;
    if (!(denominator > 0)) return {0, 0, 0};
    return {step / denominator, 1 / denominator, -step / (denominator * denominator)};
  }
};
struct Implicit {
  template <class T>
  static HWY_INLINE StepSize<T> of(T step, T square, T) {
    const T inverse = 1 / (1 + step * square);
    return {step * inverse, inverse * inverse, -step * step * inverse * inverse};
  }
};
// (1 - e^-x)/n with x = step n; the series near zero avoids 0/0.
struct Flow {
  template <class T>
  static HWY_INLINE StepSize<T> of(T step, T square, T) {
    const T x = step * square, decay = hn::GetLane(exp(Num<T>(-x)).v);
    if (std::abs(x) < T(1e-3)) {
      const T value = step * (1 - x / 2 * (1 - x / 3 * (1 - x / 4)));
      const T slope = step * step * (T(-0.5) + x / 3 - x * x / 8);
      return {value, decay, slope};
    }
    const T value = -hn::GetLane(expm1(Num<T>(-x)).v) / square;
    return {value, decay, (step * decay - value) / square};
  }
};
// step G(r) for G = 1 + r + .. + r^(n-1), r = 1 - step n: (1 - r^n) / |k|^2 without the 0/0 of a short key. By doubling:
// G(2m) = G(m) (1 + r^m), G(m+1) = 1 + r G(m). In double: r^n magnifies the rounding of r n times.
struct Repeated {
  template <class T>
  static HWY_INLINE StepSize<T> of(T step, T square, T times) {
    const double r = 1 - static_cast<double>(step) * static_cast<double>(square);
    const auto n = static_cast<std::uint64_t>(times);
    double sum = 0, power = 1, d_sum = 0,
           d_power = 0;  // G(m), r^m and their derivatives, for m = the leading bits of n
    for (int bit = std::bit_width(n); bit-- > 0;) {
      d_sum = d_sum * (1 + power) + sum * d_power, sum *= 1 + power;
      d_power *= 2 * power, power *= power;
      if (n >> bit & 1) {
        d_sum = sum + r * d_sum, sum = 1 + r * sum;
        d_power = power + r * d_power, power *= r;
      }
    }
    return {static_cast<T>(step * sum), static_cast<T>(d_power),
            static_cast<T>(-static_cast<double>(step) * static_cast<double>(step) * d_sum)};
  }
};
// A step and a key of `depth` numbers.
template <class T, class F>
struct StepRule {
  static bool forward(const Job<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const T square = SquareSum(job.depth, RowOf<const T>(job.x[1], r));
      job.y.data[r * job.y.row] = F::of(job.x[0].data[r * job.x[0].row], square, job.number).value;
    }
    return true;
  }
  static void backward(const Job<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> k = RowOf<const T>(job.x[1], r);
      const Line<T> d_step = RowOf<T>(job.dx[0], r), dk = RowOf<T>(job.dx[1], r);
      const bool close = Close(k, dk);
      const T dy = job.gradient.data[r * job.gradient.row];
      const StepSize<T> size = F::of(job.x[0].data[r * job.x[0].row], SquareSum(job.depth, k), job.number);
      if (d_step) *d_step.data += dy * size.d_step;
      if (!dk) continue;
      const Num<T> factor = 2 * dy * size.d_square;
      ForLanes<T>(job.depth, close, [&](Size i, auto lanes) HWY_ATTR { dk.add(factor * k.at(i, lanes), i, lanes); });
    }
  }
};
template <class T>
struct RowFormula<T, prepare::Op::nlms_step> : StepRule<T, Nlms> {};
template <class T>
struct RowFormula<T, prepare::Op::longhorn_step> : StepRule<T, Implicit> {};
template <class T>
struct RowFormula<T, prepare::Op::flow_step> : StepRule<T, Flow> {};
template <class T>
struct RowFormula<T, prepare::Op::repeated_step> : StepRule<T, Repeated> {};

// (r k u) v; r, k and u are `depth` wide.
template <class T>
struct RowFormula<T, prepare::Op::bonus_value> {
  static HWY_INLINE T weight(const Job<T>& job, const Line<const T>* x) {
    return SumOfRow<T>(job.depth, Close(x[0], x[1], x[2]), [&](Size i, auto lanes) HWY_ATTR {
      return x[0].at(i, lanes) * x[1].at(i, lanes) * x[2].at(i, lanes);
    });
  }
  static bool forward(const Job<T>& job) {
    for (Size row = 0; row < job.rows; ++row) {
      Line<const T> x[4];
      for (int k = 0; k < 4; ++k) x[k] = RowOf<const T>(job.x[k], row);
      const Line<T> y = RowOf<T>(job.y, row);
      const bool close = Close(x[3], y);
      const Num<T> w = weight(job, x);
      ForLanes<T>(job.width, close, [&](Size i, auto lanes) HWY_ATTR { y.set(w * x[3].at(i, lanes), i, lanes); });
    }
    return true;
  }
  static void backward(const Job<T>& job) {
    for (Size row = 0; row < job.rows; ++row) {
      Line<const T> x[4];
      Line<T> dx[4];
      for (int k = 0; k < 4; ++k) x[k] = RowOf<const T>(job.x[k], row), dx[k] = RowOf<T>(job.dx[k], row);
      const Line<const T> dy = RowOf<const T>(job.gradient, row);
      const bool close = Close(x[0], x[1], x[2], x[3], dy, dx[0], dx[1], dx[2], dx[3]);
      const Num<T> w = weight(job, x);
      Num<T> dv_sum;
      const Num<T> g = SumOfRow<T>(job.width, close, [&](Size i, auto lanes) HWY_ATTR {
        const Num<T> at_dy = dy.at(i, lanes), v = x[3].at(i, lanes);
        if (dx[3]) AddTo(dx[3], dv_sum, at_dy * w, i, lanes);
        return at_dy * v;
      });
      Finish(dx[3], dv_sum);
      Num<T> sum[3];
      ForLanes<T>(job.depth, close, [&](Size i, auto lanes) HWY_ATTR {
        const Num<T> r = x[0].at(i, lanes), k = x[1].at(i, lanes), u = x[2].at(i, lanes);
        if (dx[0]) AddTo(dx[0], sum[0], g * k * u, i, lanes);
        if (dx[1]) AddTo(dx[1], sum[1], g * r * u, i, lanes);
        if (dx[2]) AddTo(dx[2], sum[2], g * r * k, i, lanes);
      });
      for (int k = 0; k < 3; ++k) Finish(dx[k], sum[k]);
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
