// Rows of a neural memory, compiled once per instruction set (included by neural_simd.cc).
#if defined(TTR_SIMD_NEURAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_NEURAL_INL_H_
#undef TTR_SIMD_NEURAL_INL_H_
#else
#define TTR_SIMD_NEURAL_INL_H_
#endif

#include <cmath>

#include "families/network/neural/neural_simd.h"
#include "families/pairs/attention/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

// log(erfc(z) e^{z^2} / t) for t = 2 / (2 + z), z >= 0, x = 2t - 1: its Chebyshev series in t, cut below the rounding
// of T and written in powers of x.
template <class T>
struct LogErfc {
  static constexpr int terms = 26;
  static constexpr T power[terms] = {
      T(-0.67179408405669214),    T(0.67264322397765588),     T(0.047343306841862442),    T(-0.04689561023107319),
      T(-0.0098726893640452758),  T(0.0088249385534188535),   T(0.0017589335063515032),   T(-0.0023458124399827747),
      T(-0.00014624627690404141), T(0.00067367822919978809),  T(-9.3739009383154645e-05), T(-0.00017429963980296684),
      T(7.1418332630954207e-05),  T(3.1732401196873927e-05),  T(-3.0238393935760888e-05), T(1.715096928922577e-07),
      T(8.6634264965246288e-06),  T(-3.0100535832744413e-06), T(-1.4103901695428078e-06), T(1.3292141796128476e-06),
      T(-4.0836223291762508e-08), T(-3.184010530787873e-07),  T(7.7213172744450276e-08),  T(4.0304016124537156e-08),
      T(-1.2735483778669732e-08), T(-1.6815420167404227e-09)};
};
template <>
struct LogErfc<float> {
  static constexpr int terms = 11;
  static constexpr float power[terms] = {-0.671794092f,    0.672642217f,    0.0473438876f,  -0.0468748882f,
                                         -0.00988001932f,  0.00870381204f,  0.00179406625f, -0.00204873476f,
                                         -0.000227910966f, 0.000333735894f, 8.00073816e-06f};
};

// 1 / x for x in [1, 2], or NaN: in float an estimate and Newton's steps, several times as fast as the division.
template <class T>
HWY_INLINE Vec<T> InverseOfOneToTwo(Vec<T> x) {
  const Tag<T> d;
#if HWY_CAP_GE512
  constexpr int steps = 1;
#else
  constexpr int steps = 2;
#endif
  if constexpr (sizeof(T) == 8) return hn::Div(hn::Set(d, T(1)), x);
  else {
    Vec<T> y = hn::ApproximateReciprocal(x);
    for (int i = 0; i < steps; ++i) y = hn::MulAdd(y, hn::NegMulAdd(x, y, hn::Set(d, T(1))), y);
    return y;
  }
}

// g = 1 / (1 + e^{-z}) and h = g (1 - g) from |z| and the sign of z: neither overflows, h does not cancel.
template <class T>
struct Logistic {
  Vec<T> g, h;
  HWY_INLINE Logistic(Vec<T> magnitude, Vec<T> sign) {
    const Tag<T> d;
    const Vec<T> a = ExpBounded<T>(hn::Neg(magnitude)), r = InverseOfOneToTwo<T>(hn::Add(hn::Set(d, T(1)), a));
    g = hn::IfNegativeThenElse(sign, hn::Mul(a, r), r);
    h = hn::Mul(a, hn::Mul(r, r));
  }
};

// f(x), and with kOrder 1 and 2 its derivatives; those not asked for cost nothing.
template <Curve kind, int kOrder, class T>
HWY_INLINE void CurveAt(Vec<T> x, Vec<T>& y, Vec<T>& slope, Vec<T>& bend) {
  const Tag<T> d;
  const Vec<T> one = hn::Set(d, T(1)), two = hn::Set(d, T(2));
  if constexpr (kind == Curve::relu) {
    y = hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), x);
    slope = hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), one);
    bend = hn::Zero(d);
  } else if constexpr (kind == Curve::silu) {
    const Logistic<T> l(hn::Abs(x), x);
    y = hn::Mul(x, l.g);
    slope = hn::MulAdd(x, l.h, l.g);
    bend = hn::Mul(l.h, hn::MulAdd(x, hn::NegMulAdd(two, l.g, one), two));
  } else if constexpr (kind == Curve::tanh) {
    const Logistic<T> l(hn::Mul(two, hn::Abs(x)), x);
    y = hn::MulSub(two, l.g, one);
    slope = hn::Mul(hn::Set(d, T(4)), l.h);
    bend = hn::Mul(hn::Mul(hn::Set(d, T(-8)), l.h), y);
  } else if constexpr (kind == Curve::gelu_tanh) {
    // x (1 + tanh u) / 2 = x g,  g = 1 / (1 + e^{-2u}) ,  2u = x (c + k x^2)
    constexpr T c = T(1.5957691216057308), k = T(0.071354816272600247);
    const Vec<T> square = hn::Mul(x, x), vc = hn::Set(d, c);
    const Logistic<T> l(hn::Mul(hn::Abs(x), hn::MulAdd(hn::Set(d, k), square, vc)), x);
    const Vec<T> rise = hn::MulAdd(hn::Set(d, 3 * k), square, vc);  // of 2u
    y = hn::Mul(x, l.g);
    slope = hn::MulAdd(hn::Mul(x, l.h), rise, l.g);
    const Vec<T> turn = hn::MulAdd(hn::Set(d, 6 * k), x, hn::Mul(hn::NegMulAdd(two, l.g, one), hn::Mul(rise, rise)));
    bend = hn::Mul(l.h, hn::MulAdd(x, turn, hn::Mul(two, rise)));
  } else {
    const Vec<T> half = hn::Set(d, T(0.5)), square = hn::Mul(x, x);
    const Vec<T> part = hn::Div(two, hn::MulAdd(hn::Set(d, T(0.70710678118654752)), hn::Abs(x), two));
    const Vec<T> at = hn::MulSub(two, part, one);
    Vec<T> series = hn::Set(d, LogErfc<T>::power[LogErfc<T>::terms - 1]);
    for (int i = LogErfc<T>::terms - 2; i >= 0; --i)
      series = hn::MulAdd(at, series, hn::Set(d, LogErfc<T>::power[i]));
    const Vec<T> tail = ExpOf<T>(hn::NegMulAdd(half, square, series));
    // The share below -|x|; 1/2 less what lies between would have no digits of it.
    const Vec<T> beyond = hn::Mul(hn::Mul(half, part), tail);
    const Vec<T> below = hn::IfNegativeThenElse(x, beyond, hn::Sub(one, beyond));
    y = hn::Mul(x, below);
    if constexpr (kOrder > 0) {
      const Vec<T> bell = hn::Mul(hn::Set(d, T(0.39894228040143268)), ExpOf<T>(hn::Neg(hn::Mul(half, square))));
      slope = hn::MulAdd(x, bell, below);
      bend = hn::Mul(bell, hn::Sub(two, square));
    }
  }
}

template <Curve kind, int kOrder, class T>
HWY_NOINLINE void ActivateOf(Size n, const typename NeuralSimd<T>::Activation& a) {
  ForVectors<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    Vec<T> y, slope, bend;
    CurveAt<kind, kOrder, T>(LoadMaybe<part>(a.x + i, lanes), y, slope, bend);
    if (a.y) StoreMaybe<part>(y, a.y + i, lanes);
    if (a.other) StoreMaybe<part>(hn::Mul(y, LoadMaybe<part>(a.other + i, lanes)), a.product + i, lanes);
    if constexpr (kOrder > 0) StoreMaybe<part>(slope, a.slope + i, lanes);
    if constexpr (kOrder > 1) StoreMaybe<part>(bend, a.bend + i, lanes);
  });
}
template <Curve kind, class T>
HWY_INLINE void ActivateKind(Size n, const typename NeuralSimd<T>::Activation& a) {
  if (a.bend) ActivateOf<kind, 2, T>(n, a);
  else if (a.slope) ActivateOf<kind, 1, T>(n, a);
  else ActivateOf<kind, 0, T>(n, a);
}
template <class T>
void Activate(Curve kind, Size n, const typename NeuralSimd<T>::Activation& a) {
  switch (kind) {
    case Curve::gelu:
      return ActivateKind<Curve::gelu, T>(n, a);
    case Curve::gelu_tanh:
      return ActivateKind<Curve::gelu_tanh, T>(n, a);
    case Curve::relu:
      return ActivateKind<Curve::relu, T>(n, a);
    case Curve::silu:
      return ActivateKind<Curve::silu, T>(n, a);
    case Curve::tanh:
      return ActivateKind<Curve::tanh, T>(n, a);
  }
}

// Lanes beyond a row's end as 0: what is computed from loaded zeros need not be 0.
template <bool kPart, class T>
HWY_INLINE Vec<T> InRow(Vec<T> x, Size lanes) {
  if constexpr (kPart) return hn::IfThenElseZero(hn::FirstN(Tag<T>(), static_cast<size_t>(lanes)), x);
  (void)lanes;
  return x;
}

// R rows together: their sums are folded at once, and their roots taken side by side.
template <int R, class T>
HWY_INLINE void NormaliseRows(const typename NeuralSimd<T>::Norm& x, Size i) {
  const Tag<T> d;
  const Size V = x.V;
  const T* const y = x.y + i * V;
  const T share = T(1) / static_cast<T>(V);
  Vec<T> sum[R], middle[R];
  T means[R], inverse[R];
  for (int r = 0; r < R; ++r) sum[r] = hn::Zero(d);
  ForVectors<T>(V, [&](Size j, Size lanes, auto p) HWY_ATTR {
    TTR_UNROLL for (int r = 0; r < R; ++r) sum[r] =
        hn::Add(sum[r], LoadMaybe<decltype(p)::part>(y + r * V + j, lanes));
  });
  FoldRows<R, T>(sum, Plus(), means);
  for (int r = 0; r < R; ++r) middle[r] = hn::Set(d, share * means[r]), sum[r] = hn::Zero(d);
  ForVectors<T>(V, [&](Size j, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    TTR_UNROLL for (int r = 0; r < R; ++r) {
      const Vec<T> z = InRow<part, T>(hn::Sub(LoadMaybe<part>(y + r * V + j, lanes), middle[r]), lanes);
      sum[r] = hn::MulAdd(z, z, sum[r]);
    }
  });
  FoldRows<R, T>(sum, Plus(), inverse);
  for (int r = 0; r < R; ++r) inverse[r] = T(1) / std::sqrt(share * inverse[r] + x.eps);
  for (int r = 0; r < R && x.inverse; ++r) x.inverse[i + r] = inverse[r];
  for (int r = 0; r < R; ++r) {
    const Vec<T> factor = hn::Set(d, inverse[r]);
    const T* const w = x.w + (i + r) * x.ldw;
    const Size row = (i + r) * V;
    ForVectors<T>(V, [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      const Vec<T> z = hn::Mul(hn::Sub(LoadMaybe<part>(x.y + row + j, lanes), middle[r]), factor);
      if (x.normed) StoreMaybe<part>(z, x.normed + row + j, lanes);
      Vec<T> out = hn::MulAdd(z, LoadMaybe<part>(w + j, lanes), LoadMaybe<part>(x.c + j, lanes));
      if (x.plus) out = hn::Add(out, LoadMaybe<part>(x.plus + row + j, lanes));
      if (x.minus) out = hn::Sub(out, LoadMaybe<part>(x.minus + row + j, lanes));
      StoreMaybe<part>(out, x.out + row + j, lanes);
    });
  }
}
template <class T>
void Normalise(const typename NeuralSimd<T>::Norm& x) {
  Size i = 0;
  for (; i + 4 <= x.n; i += 4) NormaliseRows<4, T>(x, i);
  for (; i < x.n; ++i) NormaliseRows<1, T>(x, i);
}

// mean(g) and mean(g N) of a row, g = f(j, lanes, p)
template <class T, class F>
HWY_INLINE void Means(Size V, const T* normed, const F& f, T& mean, T& along) {
  const Tag<T> d;
  Vec<T> sum = hn::Zero(d), product = hn::Zero(d);
  ForVectors<T>(V, [&](Size j, Size lanes, auto p) HWY_ATTR {
    const Vec<T> g = f(j, lanes, p);
    sum = hn::Add(sum, g);
    product = hn::MulAdd(g, LoadMaybe<decltype(p)::part>(normed + j, lanes), product);
  });
  const T share = T(1) / static_cast<T>(V);
  mean = share * hn::GetLane(hn::SumOfLanes(d, sum)), along = share * hn::GetLane(hn::SumOfLanes(d, product));
}

// (g - mean - N along) inverse
template <class T>
struct NormJacobian {
  Vec<T> mean, along, inverse;
  HWY_INLINE NormJacobian(T m, T a, T i)
      : mean(hn::Set(Tag<T>(), m)), along(hn::Set(Tag<T>(), a)), inverse(hn::Set(Tag<T>(), i)) {}
  HWY_INLINE Vec<T> operator()(Vec<T> g, Vec<T> normed) const {
    return hn::Mul(inverse, hn::NegMulAdd(normed, along, hn::Sub(g, mean)));
  }
};

template <class T>
void NormDelta(Size n, Size V, const T* normed, const T* inverse, const T* w, Size ldw, const T* e, const T* rate,
               Size ld, T* out, T* scaled) {
  const Tag<T> d;
  for (Size i = 0; i < n; ++i) {
    const T *const z = normed + i * V, *const scale = w + i * ldw, *const x = e + i * V;
    T mean, along;
    const auto g = [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      return hn::Mul(LoadMaybe<part>(scale + j, lanes), LoadMaybe<part>(x + j, lanes));
    };
    Means<T>(V, z, g, mean, along);
    const NormJacobian<T> jacobian(mean, along, inverse[i]);
    const Vec<T> factor = hn::Set(d, rate ? -rate[i * ld] : T(-1));
    ForVectors<T>(V, [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      const Vec<T> y = jacobian(g(j, lanes, p), LoadMaybe<part>(z + j, lanes));
      if (out) StoreMaybe<part>(y, out + i * V + j, lanes);
      if (scaled) StoreMaybe<part>(hn::Mul(factor, y), scaled + i * V + j, lanes);
    });
  }
}

template <class T>
void NormDeltaBack(Size n, Size V, const T* normed, const T* inverse, const T* w, const T* e, const T* delta,
                   const T* t, T* d_w, T* d_e, T* d_normed, T* d_sd) {
  const Tag<T> d;
  const T share = T(1) / static_cast<T>(V);
  for (Size i = 0; i < n; ++i) {
    const T *const z = normed + i * V, *const x = e + i * V, *const in = t + i * V;
    T mean, along, gz_mean, gz;
    Means<T>(
        V, z, [&](Size j, Size lanes, auto p) HWY_ATTR { return LoadMaybe<decltype(p)::part>(in + j, lanes); }, mean,
        along);
    Means<T>(
        V, z,
        [&](Size j, Size lanes, auto p) HWY_ATTR {
          constexpr bool part = decltype(p)::part;
          return hn::Mul(LoadMaybe<part>(w + j, lanes), LoadMaybe<part>(x + j, lanes));
        },
        gz_mean, gz);
    d_sd[i] = -share * inverse[i] * Dot(V, in, delta + i * V);
    const NormJacobian<T> jacobian(mean, along, inverse[i]);
    const Vec<T> back = hn::Set(d, -gz * inverse[i]), forth = hn::Set(d, -along * inverse[i]);
    ForVectors<T>(V, [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      const Vec<T> scale = LoadMaybe<part>(w + j, lanes), ej = LoadMaybe<part>(x + j, lanes);
      const Vec<T> tj = LoadMaybe<part>(in + j, lanes), y = jacobian(tj, LoadMaybe<part>(z + j, lanes));
      StoreMaybe<part>(hn::MulAdd(ej, y, LoadMaybe<part>(d_w + j, lanes)), d_w + j, lanes);
      StoreMaybe<part>(hn::Mul(scale, y), d_e + i * V + j, lanes);
      StoreMaybe<part>(hn::MulAdd(tj, back, hn::Mul(hn::Mul(scale, ej), forth)), d_normed + i * V + j, lanes);
    });
  }
}

template <class T>
void NormBack(Size n, Size V, const T* normed, const T* inverse, const T* w, T* d_w, const T* d_normed, const T* d_sd,
              T* y) {
  const Tag<T> d;
  for (Size i = 0; i < n; ++i) {
    const T *const z = normed + i * V, *const extra = d_normed + i * V;
    T* const row = y + i * V;
    T mean, along;
    const auto g = [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      return hn::MulAdd(LoadMaybe<part>(w + j, lanes), LoadMaybe<part>(row + j, lanes),
                        LoadMaybe<part>(extra + j, lanes));
    };
    Means<T>(V, z, g, mean, along);
    const NormJacobian<T> jacobian(mean, along, inverse[i]);
    const Vec<T> sd = hn::Set(d, d_sd[i]);
    ForVectors<T>(V, [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      const Vec<T> zj = LoadMaybe<part>(z + j, lanes), out = hn::MulAdd(sd, zj, jacobian(g(j, lanes, p), zj));
      StoreMaybe<part>(hn::MulAdd(zj, LoadMaybe<part>(row + j, lanes), LoadMaybe<part>(d_w + j, lanes)), d_w + j,
                       lanes);
      StoreMaybe<part>(out, row + j, lanes);
    });
  }
}

template <class T>
void Deltas(Size n, Size V, const T* x, const T* y, const T* z, const T* rate, Size ld, T* out, T* scaled) {
  const Tag<T> d;
  for (Size i = 0; i < n; ++i) {
    const Vec<T> factor = hn::Set(d, rate ? -rate[i * ld] : T(-1));
    const Size row = i * V;
    ForVectors<T>(V, [&](Size c, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      const Size j = row + c;
      Vec<T> product = LoadMaybe<part>(x + j, lanes);
      if (y) product = hn::Mul(product, LoadMaybe<part>(y + j, lanes));
      if (z) product = hn::Mul(product, LoadMaybe<part>(z + j, lanes));
      if (out) StoreMaybe<part>(product, out + j, lanes);
      if (scaled) StoreMaybe<part>(hn::Mul(factor, product), scaled + j, lanes);
    });
  }
}

template <class T>
void GatedBack(Size n, const typename NeuralSimd<T>::Gated& x, const T* d, const T* d_other, T* d_back, T* d_x,
               T* d_linear) {
  ForVectors<T>(n, [&](Size i, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    const Vec<T> slope = LoadMaybe<part>(x.slope + i, lanes), other = LoadMaybe<part>(x.other + i, lanes);
    const Vec<T> back = LoadMaybe<part>(x.back + i, lanes), di = LoadMaybe<part>(d + i, lanes);
    const Vec<T> dl = LoadMaybe<part>(d_other + i, lanes), through = hn::Mul(di, other), down = hn::Mul(slope, back);
    StoreMaybe<part>(hn::MulAdd(through, slope, hn::Mul(dl, LoadMaybe<part>(x.y + i, lanes))), d_back + i, lanes);
    const Vec<T> turn = hn::Mul(hn::Mul(through, back), LoadMaybe<part>(x.bend + i, lanes));
    StoreMaybe<part>(hn::MulAdd(dl, down, turn), d_x + i, lanes);
    StoreMaybe<part>(hn::Mul(di, down), d_linear + i, lanes);
  });
}

template <class T>
void Spread(Size n, Size V, const T* factor, const T* x, bool add, T* y) {
  const Tag<T> d;
  for (Size i = 0; i < n; ++i) {
    const Vec<T> f = hn::Set(d, factor ? factor[i] : T(1));
    T* const row = y + i * V;
    ForVectors<T>(V, [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      const Vec<T> xj = LoadMaybe<part>(x + j, lanes);
      StoreMaybe<part>(add ? hn::MulAdd(f, xj, LoadMaybe<part>(row + j, lanes)) : hn::Mul(f, xj), row + j, lanes);
    });
  }
}

template <class T>
void Collect(Size n, Size V, T alpha, const T* factor, const T* x, const T* z, T f, T* y) {
  const Tag<T> d;
  const Vec<T> all = hn::Set(d, alpha), old = hn::Set(d, f);
  ForVectors<T>(V, [&](Size j, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    Vec<T> sum = hn::Zero(d);
    for (Size i = 0; i < n; ++i) {
      Vec<T> term = LoadMaybe<part>(z + i * V + j, lanes);
      if (x) term = hn::Mul(term, LoadMaybe<part>(x + i * V + j, lanes));
      sum = factor ? hn::MulAdd(hn::Set(d, factor[i]), term, sum) : hn::Add(sum, term);
    }
    sum = hn::Mul(all, sum);
    if (f != T(0)) sum = hn::MulAdd(old, LoadMaybe<part>(y + j, lanes), sum);
    StoreMaybe<part>(sum, y + j, lanes);
  });
}

template <class T>
void GatePairs(Size n, T plus, const T* gamma, Size ldg, T* X, Size ldx) {
  const Vec<T> add = hn::Set(Tag<T>(), plus);
  for (Size i = 0; i < n; ++i) {
    T* const row = X + i * ldx;
    ForVectors<T>(i + 1, [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      const Vec<T> gate = LoadMaybe<part>(gamma + i * ldg + j, lanes);
      StoreMaybe<part>(hn::Mul(gate, hn::Add(LoadMaybe<part>(row + j, lanes), add)), row + j, lanes);
    });
  }
}

template <class T>
void Fetch(Size n, Size length, const T* x, Size ld) {
  for (Size i = 0; i < n; ++i) PrefetchRow(x + i * ld, length);
}

template <class T>
const NeuralSimd<T>* NeuralTable() {
  static constexpr NeuralSimd<T> table = {
      .activate = Activate<T>,
      .normalise = Normalise<T>,
      .norm_delta = NormDelta<T>,
      .norm_delta_back = NormDeltaBack<T>,
      .norm_back = NormBack<T>,
      .deltas = Deltas<T>,
      .gated_back = GatedBack<T>,
      .spread = Spread<T>,
      .collect = Collect<T>,
      .gate_pairs = GatePairs<T>,
      .fetch = Fetch<T>,
  };
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
