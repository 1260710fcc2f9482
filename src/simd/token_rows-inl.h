// Per-token operations that take a row together: norms, and step sizes from the length of a key (included by
// token_f32.cc, token_f64.cc). The formulas are listed in prepare/operations.h.
//
// For y = f u w with f = (sum u^2/c + eps)^-1/2, c = 1 or the width:
//   du = f (g - n (n . g)/c),  n = f u, g = dy w.   Written with n instead of f^3 u, which overflows for short rows;
//   n . g = f (u . g), so one pass over the row gives both sums.
// What is one number per row is computed in scalars: a division of a whole vector would cost as much as the row.
#if defined(TTR_SIMD_TOKEN_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_TOKEN_ROWS_INL_H_
#undef TTR_SIMD_TOKEN_ROWS_INL_H_
#else
#define TTR_SIMD_TOKEN_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "simd/token_elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

/// A row of an operand, of the result or of a gradient.
template <class N>
struct Line {
  using T = std::remove_const_t<N>;
  N* data = nullptr;
  Size step = 0;
  explicit operator bool() const { return data != nullptr; }
  template <bool kPart>
  HWY_INLINE Num<T> at(Size i, Size lanes) const {
    return Take<kPart, T>(data, step, i, lanes);
  }
  template <bool kPart>
  HWY_INLINE Num<T> at(Size i, Size lanes, T absent) const {
    return data ? at<kPart>(i, lanes) : Num<T>(absent);
  }
  template <bool kPart>
  HWY_INLINE void set(Num<T> v, Size i, Size lanes) const {
    Put<kPart>(v, data, step, i, lanes);
  }
  template <bool kPart>
  HWY_INLINE void add(Num<T> v, Size i, Size lanes) const {
    set<kPart>(at<kPart>(i, lanes) + v, i, lanes);
  }
};
template <class N>
HWY_INLINE Line<N> RowOf(const typename TokenJob<std::remove_const_t<N>>::template Side<N>& side, Size r) {
  return {side.data ? side.data + r * side.row : nullptr, side.step};
}

template <class T>
HWY_INLINE T SumUp(Num<T> v) {
  return hn::GetLane(hn::SumOfLanes(Tag<T>(), v.v));
}
/// The sum over a row of what f(i, lanes, part) gives.
template <class T, class F>
HWY_INLINE T SumOfRow(Size n, const F& f) {
  Num<T> sum;
  ForVectors<T>(
      n, [&](Size i, Size lanes, auto p) HWY_ATTR { sum = sum + Inside<decltype(p)::part>(f(i, lanes, p), lanes); });
  return SumUp(sum);
}
template <class T>
HWY_INLINE T SquareSum(Size n, const Line<const T>& x) {
  return SumOfRow<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    const Num<T> v = x.template at<decltype(p)::part>(i, lanes);
    return v * v;
  });
}

/// Adds to a gradient, or to the sum of one that is a single number for the row.
template <bool kPart, class T>
HWY_INLINE void AddTo(const Line<T>& to, Num<T>& sum, Num<T> v, Size i, Size lanes) {
  if (to.step == 0) sum = sum + Inside<kPart>(v, lanes);
  else to.template add<kPart>(v, i, lanes);
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

  static T factor(T square, const TokenJob<T>& job) {
    return InverseRoot(square / (mean ? T(job.width) : T(1)) + job.number);
  }
  static bool forward(const TokenJob<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r), z = RowOf<const T>(job.x[1], r),
                          w = RowOf<const T>(job.x[weight], r);
      const Line<T> y = RowOf<T>(job.y, r);
      const T square = SumOfRow<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        Num<T> u = x.template at<part>(i, lanes);
        if constexpr (gated && gate_first) {
          u = u * Gate::value(z.template at<part>(i, lanes));
          y.template set<part>(u, i, lanes);  // kept there for the second pass
        }
        return u * u;
      });
      const Num<T> f = factor(square, job);
      ForVectors<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        Num<T> n;
        if constexpr (gated && gate_first) n = Take<part, T>(y.data, y.step, i, lanes) * f;
        else n = x.template at<part>(i, lanes) * f;
        if (w) n = n * w.template at<part>(i, lanes);
        if constexpr (gated && !gate_first) n = n * Gate::value(z.template at<part>(i, lanes));
        y.template set<part>(n, i, lanes);
      });
    }
    return true;
  }
  static void backward(const TokenJob<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r), z = RowOf<const T>(job.x[1], r),
                          w = RowOf<const T>(job.x[weight], r), dy = RowOf<const T>(job.gradient, r);
      const Line<T> dx = RowOf<T>(job.dx[0], r), dz = gated ? RowOf<T>(job.dx[1], r) : Line<T>(),
                    dw = RowOf<T>(job.dx[weight], r);
      Num<T> squares, along_sum;
      ForVectors<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        const Num<T> gate = gated ? Gate::value(z.template at<part>(i, lanes)) : Num<T>(T(1));
        Num<T> u = x.template at<part>(i, lanes), g = dy.template at<part>(i, lanes);
        if (w) g = g * w.template at<part>(i, lanes);
        if constexpr (gated) (gate_first ? u : g) = (gate_first ? u : g) * gate;
        squares = squares + Inside<part>(u * u, lanes);
        along_sum = along_sum + Inside<part>(u * g, lanes);
      });
      const T one = factor(SumUp(squares), job);
      const T share = SumUp(along_sum) * one / (mean ? T(job.width) : T(1));
      const Num<T> f = one, along = share;
      Num<T> dz_sum, dw_sum;
      ForVectors<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        const auto [gate, slope] = Gate::both(gated ? z.template at<part>(i, lanes) : Num<T>(T(1)));
        const Num<T> at_x = x.template at<part>(i, lanes), at_dy = dy.template at<part>(i, lanes);
        const Num<T> at_w = w.template at<part>(i, lanes, T(1));
        const Num<T> n = (gated && gate_first ? at_x * gate : at_x) * f;
        const Num<T> g = gated && !gate_first ? at_dy * at_w * gate : at_dy * at_w;
        const Num<T> du = f * (g - n * along);
        if (dx) dx.template add<part>(gated && gate_first ? du * gate : du, i, lanes);
        if constexpr (gated)
          if (dz) AddTo<part>(dz, dz_sum, slope * (gate_first ? du * at_x : at_dy * n * at_w), i, lanes);
        if (dw) AddTo<part>(dw, dw_sum, gated && !gate_first ? at_dy * n * gate : at_dy * n, i, lanes);
      });
      if constexpr (gated) Finish(dz, dz_sum);
      Finish(dw, dw_sum);
    }
  }
};

// x / max(|x|, eps)
template <class T>
struct ClampedNorm {
  static bool forward(const TokenJob<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r);
      const Line<T> y = RowOf<T>(job.y, r);
      const T longest = std::max(std::sqrt(SquareSum(job.width, x)), job.number);
      ForVectors<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        y.template set<part>(longest == 0 ? Num<T>(T(0)) : x.template at<part>(i, lanes) / longest, i, lanes);
      });
    }
    return true;
  }
  static void backward(const TokenJob<T>& job) {
    if (!job.dx[0].data) return;
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r), dy = RowOf<const T>(job.gradient, r);
      const Line<T> dx = RowOf<T>(job.dx[0], r);
      const T length = std::sqrt(SquareSum(job.width, x)), longest = std::max(length, job.number);
      if (longest == 0) continue;
      T along = 0;
      if (length >= longest)
        along = SumOfRow<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
          constexpr bool part = decltype(p)::part;
          return x.template at<part>(i, lanes) / longest * dy.template at<part>(i, lanes);
        });
      ForVectors<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        const Num<T> n = x.template at<part>(i, lanes) / longest;
        dx.template add<part>((dy.template at<part>(i, lanes) - n * along) / longest, i, lanes);
      });
    }
  }
};

// x / sum x
template <class T>
struct SumNorm {
  static T total(const TokenJob<T>& job, const Line<const T>& x) {
    return SumOfRow<T>(
        job.width, [&](Size i, Size lanes, auto p) HWY_ATTR { return x.template at<decltype(p)::part>(i, lanes); });
  }
  static bool forward(const TokenJob<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r);
      const Line<T> y = RowOf<T>(job.y, r);
      const T sum = total(job, x);
      ForVectors<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        y.template set<part>(sum == 0 ? Num<T>(T(0)) : x.template at<part>(i, lanes) / sum, i, lanes);
      });
    }
    return true;
  }
  static void backward(const TokenJob<T>& job) {
    if (!job.dx[0].data) return;
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r), dy = RowOf<const T>(job.gradient, r);
      const Line<T> dx = RowOf<T>(job.dx[0], r);
      const T sum = total(job, x);
      if (sum == 0) continue;
      const T along = SumOfRow<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        return x.template at<part>(i, lanes) / sum * dy.template at<part>(i, lanes);
      });
      ForVectors<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        dx.template add<part>((dy.template at<part>(i, lanes) - along) / sum, i, lanes);
      });
    }
  }
};

template <class T>
struct SoftmaxOf {
  static bool forward(const TokenJob<T>& job) {
    const Tag<T> d;
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r);
      const Line<T> y = RowOf<T>(job.y, r);
      Num<T> largest = -Num<T>(hn::Inf(d));
      ForVectors<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        Num<T> v = x.template at<part>(i, lanes);
        if constexpr (part) v = where(hn::FirstN(d, static_cast<size_t>(lanes)), v, largest);
        largest = hn::Max(largest.v, v.v);
      });
      largest = hn::MaxOfLanes(d, largest.v);
      const T sum = SumOfRow<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        const Num<T> e = exp_of_negative(x.template at<part>(i, lanes) - largest);
        y.template set<part>(e, i, lanes);
        return e;
      });
      const Num<T> inverse = 1 / sum;
      ForVectors<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        y.template set<part>(Take<part, T>(y.data, y.step, i, lanes) * inverse, i, lanes);
      });
    }
    return true;
  }
  static void backward(const TokenJob<T>& job) {
    if (!job.dx[0].data) return;
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> y = RowOf<const T>(job.result, r), dy = RowOf<const T>(job.gradient, r);
      const Line<T> dx = RowOf<T>(job.dx[0], r);
      const T mean = SumOfRow<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        return dy.template at<part>(i, lanes) * y.template at<part>(i, lanes);
      });
      ForVectors<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        dx.template add<part>(y.template at<part>(i, lanes) * (dy.template at<part>(i, lanes) - mean), i, lanes);
      });
    }
  }
};

// n = (x - mean) inverse ; y = n w + b
template <class T>
struct LayerNormOf {
  struct Moments {
    T mean, inverse;
  };
  static HWY_INLINE Moments moments(const TokenJob<T>& job, const Line<const T>& x) {
    const T mean = SumNorm<T>::total(job, x) / T(job.width);
    const T square = SumOfRow<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
      const Num<T> v = x.template at<decltype(p)::part>(i, lanes) - mean;
      return v * v;
    });
    return {mean, InverseRoot(square / T(job.width) + job.number)};
  }
  static bool forward(const TokenJob<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r), w = RowOf<const T>(job.x[1], r),
                          b = RowOf<const T>(job.x[2], r);
      const Line<T> y = RowOf<T>(job.y, r);
      const auto [mean, inverse] = moments(job, x);
      const Num<T> m = mean, f = inverse;
      ForVectors<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        Num<T> n = (x.template at<part>(i, lanes) - m) * f;
        if (w) n = n * w.template at<part>(i, lanes);
        if (b) n = n + b.template at<part>(i, lanes);
        y.template set<part>(n, i, lanes);
      });
    }
    return true;
  }
  static void backward(const TokenJob<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r), w = RowOf<const T>(job.x[1], r),
                          dy = RowOf<const T>(job.gradient, r);
      const Line<T> dx = RowOf<T>(job.dx[0], r), dw = RowOf<T>(job.dx[1], r), db = RowOf<T>(job.dx[2], r);
      const auto [mean, inverse] = moments(job, x);
      const Num<T> m = mean, f = inverse;
      Num<T> sums, alongs, dw_sum, db_sum;
      ForVectors<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        const Num<T> at_dy = dy.template at<part>(i, lanes), n = (x.template at<part>(i, lanes) - m) * f;
        const Num<T> g = at_dy * w.template at<part>(i, lanes, T(1));
        sums = sums + Inside<part>(g, lanes);
        alongs = alongs + Inside<part>(g * n, lanes);
        if (dw) AddTo<part>(dw, dw_sum, at_dy * n, i, lanes);
        if (db) AddTo<part>(db, db_sum, at_dy, i, lanes);
      });
      Finish(dw, dw_sum), Finish(db, db_sum);
      if (!dx) continue;
      const Num<T> sum = SumUp(sums) / T(job.width), along = SumUp(alongs) / T(job.width);
      ForVectors<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        const Num<T> n = (x.template at<part>(i, lanes) - m) * f;
        const Num<T> g = dy.template at<part>(i, lanes) * w.template at<part>(i, lanes, T(1));
        dx.template add<part>(f * (g - sum - n * along), i, lanes);
      });
    }
  }
};

// |x|^2; a row of `depth` numbers gives one.
template <class T>
struct SquareOf {
  static bool forward(const TokenJob<T>& job) {
    for (Size r = 0; r < job.rows; ++r) job.y.data[r * job.y.row] = SquareSum(job.depth, RowOf<const T>(job.x[0], r));
    return true;
  }
  static void backward(const TokenJob<T>& job) {
    if (!job.dx[0].data) return;
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> x = RowOf<const T>(job.x[0], r);
      const Line<T> dx = RowOf<T>(job.dx[0], r);
      const Num<T> twice = 2 * job.gradient.data[r * job.gradient.row];
      ForVectors<T>(job.depth, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        dx.template add<part>(twice * x.template at<part>(i, lanes), i, lanes);
      });
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
// A step and a key of `depth` numbers.
template <class T, class F>
struct StepRule {
  static bool forward(const TokenJob<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const T square = SquareSum(job.depth, RowOf<const T>(job.x[1], r));
      job.y.data[r * job.y.row] = F::of(job.x[0].data[r * job.x[0].row], square, job.number).value;
    }
    return true;
  }
  static void backward(const TokenJob<T>& job) {
    for (Size r = 0; r < job.rows; ++r) {
      const Line<const T> k = RowOf<const T>(job.x[1], r);
      const Line<T> d_step = RowOf<T>(job.dx[0], r), dk = RowOf<T>(job.dx[1], r);
      const T dy = job.gradient.data[r * job.gradient.row];
      const StepSize<T> size = F::of(job.x[0].data[r * job.x[0].row], SquareSum(job.depth, k), job.number);
      if (d_step) *d_step.data += dy * size.d_step;
      if (!dk) continue;
      const Num<T> factor = 2 * dy * size.d_square;
      ForVectors<T>(job.depth, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        dk.template add<part>(factor * k.template at<part>(i, lanes), i, lanes);
      });
    }
  }
};

// (r k u) v; r, k and u are `depth` wide.
template <class T>
struct BonusOf {
  static HWY_INLINE T weight(const TokenJob<T>& job, const Line<const T>* x) {
    return SumOfRow<T>(job.depth, [&](Size i, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      return x[0].template at<part>(i, lanes) * x[1].template at<part>(i, lanes) * x[2].template at<part>(i, lanes);
    });
  }
  static bool forward(const TokenJob<T>& job) {
    for (Size row = 0; row < job.rows; ++row) {
      Line<const T> x[4];
      for (int k = 0; k < 4; ++k) x[k] = RowOf<const T>(job.x[k], row);
      const Line<T> y = RowOf<T>(job.y, row);
      const Num<T> w = weight(job, x);
      ForVectors<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        y.template set<part>(w * x[3].template at<part>(i, lanes), i, lanes);
      });
    }
    return true;
  }
  static void backward(const TokenJob<T>& job) {
    for (Size row = 0; row < job.rows; ++row) {
      Line<const T> x[4];
      Line<T> dx[4];
      for (int k = 0; k < 4; ++k) x[k] = RowOf<const T>(job.x[k], row), dx[k] = RowOf<T>(job.dx[k], row);
      const Line<const T> dy = RowOf<const T>(job.gradient, row);
      const Num<T> w = weight(job, x);
      Num<T> dv_sum;
      const Num<T> g = SumOfRow<T>(job.width, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        const Num<T> at_dy = dy.template at<part>(i, lanes), v = x[3].template at<part>(i, lanes);
        if (dx[3]) AddTo<part>(dx[3], dv_sum, at_dy * w, i, lanes);
        return at_dy * v;
      });
      Finish(dx[3], dv_sum);
      Num<T> sum[3];
      ForVectors<T>(job.depth, [&](Size i, Size lanes, auto p) HWY_ATTR {
        constexpr bool part = decltype(p)::part;
        const Num<T> r = x[0].template at<part>(i, lanes), k = x[1].template at<part>(i, lanes),
                     u = x[2].template at<part>(i, lanes);
        if (dx[0]) AddTo<part>(dx[0], sum[0], g * k * u, i, lanes);
        if (dx[1]) AddTo<part>(dx[1], sum[1], g * r * u, i, lanes);
        if (dx[2]) AddTo<part>(dx[2], sum[2], g * r * k, i, lanes);
      });
      for (int k = 0; k < 3; ++k) Finish(dx[k], sum[k]);
    }
  }
};

template <class F, class T>
constexpr void AddRow(TokenSimd<T>& table, TokenOp op) {
  table.forward[static_cast<int>(op)] = F::forward;
  table.backward[static_cast<int>(op)] = F::backward;
}
template <class T>
constexpr void AddRows(TokenSimd<T>& table) {
  AddRow<LengthNorm<T, NoGate, false, false>>(table, TokenOp::unit_norm);
  AddRow<LengthNorm<T, NoGate, true, false>>(table, TokenOp::rms_norm);
  AddRow<ClampedNorm<T>>(table, TokenOp::unit_norm_clamp);
  AddRow<SumNorm<T>>(table, TokenOp::sum_norm);
  AddRow<SoftmaxOf<T>>(table, TokenOp::softmax);
  AddRow<LayerNormOf<T>>(table, TokenOp::layer_norm);
  AddRow<LengthNorm<T, SiluGate, true, false>>(table, TokenOp::gated_silu);
  AddRow<LengthNorm<T, SigmoidGate, true, false>>(table, TokenOp::gated_sigmoid);
  AddRow<LengthNorm<T, SiluGate, true, true>>(table, TokenOp::silu_gated);
  AddRow<LengthNorm<T, SigmoidGate, true, true>>(table, TokenOp::sigmoid_gated);
  AddRow<SquareOf<T>>(table, TokenOp::square_norm);
  AddRow<StepRule<T, Nlms>>(table, TokenOp::nlms_step);
  AddRow<StepRule<T, Implicit>>(table, TokenOp::longhorn_step);
  AddRow<StepRule<T, Flow>>(table, TokenOp::flow_step);
  AddRow<BonusOf<T>>(table, TokenOp::bonus_value);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
