// The short convolution, compiled once per instruction set (included by convolution_simd.cc).
//
// Widths up to 4 have their taps and their past in registers. Wider ones, and all of the baseline, go tap by tap over a tile
// of sums. Where the tokens of a channel lie side by side they are the lanes instead of channels.
#if defined(TTR_SIMD_CONVOLUTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_CONVOLUTION_INL_H_
#undef TTR_SIMD_CONVOLUTION_INL_H_
#else
#define TTR_SIMD_CONVOLUTION_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "families/elementwise/convolution/convolution_simd.h"
#include "hwy/cache_control.h"
#include "simd/exp2-inl.h"
#include "simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

// Tokens of a tile: few rows at a time where channels are contiguous, whole cache lines of time where tokens are.
template <bool kStep>
constexpr Size kTile = kStep ? 8 : 32;
constexpr Size kWideTile = 32;

// `lanes` numbers a distance apart. Not inlined: their buffers are many and slow to compile under a sanitizer, and
// inlined by g++ 12 for AVX-512 a strided output had its activation in the first lane only (clang++ 14 was right). A
// test compares strided with contiguous outputs.
template <class T>
HWY_NOINLINE Vec<T> LoadStrided(const T* p, Size stride, Size lanes) {
  const Tag<T> d;
  HWY_ALIGN T buffer[hn::MaxLanes(d)] = {};
  for (Size i = 0; i < lanes; ++i) buffer[i] = p[i * stride];
  return hn::Load(d, buffer);
}
template <class T>
HWY_NOINLINE void StoreStrided(Vec<T> v, T* p, Size stride, Size lanes) {
  const Tag<T> d;
  HWY_ALIGN T buffer[hn::MaxLanes(d)];
  hn::Store(v, d, buffer);
  for (Size i = 0; i < lanes; ++i) p[i * stride] = buffer[i];
}
template <class T>
HWY_NOINLINE void AddStrided(Vec<T> v, T* p, Size stride, Size lanes) {
  const Tag<T> d;
  HWY_ALIGN T buffer[hn::MaxLanes(d)];
  hn::Store(v, d, buffer);
  for (Size i = 0; i < lanes; ++i) p[i * stride] += buffer[i];  // one after the other: a stride of zero sums
}

// kStep: the distance is one.
template <bool kStep, bool kPart, class T>
HWY_INLINE Vec<T> LoadLanes(const T* p, Size stride, Size lanes) {
  if constexpr (kStep) return LoadMaybe<kPart>(p, lanes);
  else return LoadStrided<T>(p, stride, lanes);
}
template <bool kStep, bool kPart, class T>
HWY_INLINE void StoreLanes(Vec<T> v, T* p, Size stride, Size lanes) {
  if constexpr (kStep) StoreMaybe<kPart>(v, p, lanes);
  else StoreStrided<T>(v, p, stride, lanes);
}
template <bool kStep, bool kPart, class T>
HWY_INLINE void AddLanes(Vec<T> v, T* p, Size stride, Size lanes) {
  if constexpr (kStep) StoreMaybe<kPart>(hn::Add(LoadMaybe<kPart>(p, lanes), v), p, lanes);
  else AddStrided<T>(v, p, stride, lanes);
}
template <bool kPart, class T>
HWY_INLINE void AddAnywhere(Vec<T> v, T* p, Size stride, Size lanes) {
  if (stride == 1) AddLanes<true, kPart>(v, p, stride, lanes);
  else AddLanes<false, kPart>(v, p, stride, lanes);
}

// silu(z) = z / (1 + e^-z) and its slope s (1 + z (1 - s)) with s = 1 / (1 + e^-z), both from e^-|z|: nothing
// overflows. A NaN comes through z itself, whatever the exponential makes of it.
template <class T>
HWY_INLINE Vec<T> Fading(Vec<T> z) {
  return Exp2<true, T>(hn::Mul(hn::Abs(z), hn::Set(Tag<T>(), -kLog2E<T>)));
}
template <class T>
HWY_INLINE Vec<T> SiluOf(Vec<T> z) {
  const Vec<T> one = hn::Set(Tag<T>(), T(1)), e = Fading<T>(z);
  const Vec<T> top = hn::IfThenElse(hn::Ge(z, hn::Zero(Tag<T>())), z, hn::Mul(z, e));
  return hn::Div(top, hn::Add(one, e));
}
template <class T>
HWY_INLINE Vec<T> SiluSlope(Vec<T> z) {
  const Vec<T> one = hn::Set(Tag<T>(), T(1)), e = Fading<T>(z);
  const Vec<T> large = hn::Div(one, hn::Add(one, e)), small = hn::Mul(e, large);
  const auto up = hn::Ge(z, hn::Zero(Tag<T>()));
  const Vec<T> s = hn::IfThenElse(up, large, small), rest = hn::IfThenElse(up, small, large);
  return hn::Mul(s, hn::MulAdd(z, rest, one));
}

// A tile walks along many rows at once, which the hardware does not foresee: the next lines are asked for by hand.
constexpr std::uintptr_t kAheadBytes = 256;  // may lie beyond the row; no address is wrong
template <bool kStep, class T>
HWY_INLINE void PrefetchAhead(const T* p) {
  if constexpr (kStep) hwy::Prefetch(reinterpret_cast<const T*>(reinterpret_cast<std::uintptr_t>(p) + kAheadBytes));
}

// Where the inputs of token t lie: in x, in the cache, or nowhere (zeros).
template <class T>
struct TokenPlace {
  T* data = nullptr;
  Size stride = 1;
};
template <class T>
HWY_INLINE TokenPlace<const T> Source(const ConvolutionTask<T>& c, Size t) {
  if (t >= 0) return {c.x + t * c.x_row, c.x_stride};
  return {c.cache ? c.cache + (c.W - 1 + t) * c.D : nullptr, 1};
}
template <class T>
HWY_INLINE TokenPlace<T> Target(const ConvolutionTask<T>& c, const ConvolutionGradients<T>& g, Size t) {
  if (t >= 0) return {g.d_x ? g.d_x + t * g.x_row : nullptr, g.x_stride};
  return {g.d_cache ? g.d_cache + (c.W - 1 + t) * c.D : nullptr, 1};
}
template <bool kPart, class T>
HWY_INLINE Vec<T> LoadPlace(const TokenPlace<const T>& p, Size j, Size lanes) {
  if (!p.data) return hn::Zero(Tag<T>());
  if (p.stride == 1) return LoadMaybe<kPart>(p.data + j, lanes);
  return LoadLanes<false, kPart>(p.data + j * p.stride, p.stride, lanes);
}
template <bool kPart, class T>
HWY_INLINE void AddPlace(Vec<T> v, const TokenPlace<T>& p, Size j, Size lanes) {
  if (p.data) AddAnywhere<kPart>(v, p.data + j * p.stride, p.stride, lanes);
}

template <int W, bool kPart, class T>
HWY_INLINE void LoadTaps(const ConvolutionTask<T>& c, Size j, Size lanes, Vec<T> (&w)[W]) {
  const Tag<T> d;
  const T* const from = c.w + j * c.w_channel;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (!kPart && W > 1)
    if (c.w_channel == W && c.w_tap == 1) {
      if constexpr (W == 2) hn::LoadInterleaved2(d, from, w[0], w[1]);
      else if constexpr (W == 3) hn::LoadInterleaved3(d, from, w[0], w[1], w[2]);
      else hn::LoadInterleaved4(d, from, w[0], w[1], w[2], w[3]);
      return;
    }
#endif
  (void)d;
  if (c.w_channel == 1) {
    TTR_UNROLL for (int i = 0; i < W; ++i) w[i] = LoadMaybe<kPart>(from + i * c.w_tap, lanes);
  } else {
    TTR_UNROLL for (int i = 0; i < W; ++i) w[i] = LoadLanes<false, kPart>(from + i * c.w_tap, c.w_channel, lanes);
  }
}
template <int W, bool kPart, class T>
HWY_INLINE void AddTaps(const ConvolutionGradients<T>& g, Size j, Size lanes, const Vec<T> (&d_w)[W]) {
  T* const to = g.d_w + j * g.w_channel;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (!kPart && W > 1)
    if (g.w_channel == W && g.w_tap == 1) {
      const Tag<T> d;
      Vec<T> w[W];
      if constexpr (W == 2) {
        hn::LoadInterleaved2(d, to, w[0], w[1]);
        hn::StoreInterleaved2(hn::Add(w[0], d_w[0]), hn::Add(w[1], d_w[1]), d, to);
      } else if constexpr (W == 3) {
        hn::LoadInterleaved3(d, to, w[0], w[1], w[2]);
        hn::StoreInterleaved3(hn::Add(w[0], d_w[0]), hn::Add(w[1], d_w[1]), hn::Add(w[2], d_w[2]), d, to);
      } else {
        hn::LoadInterleaved4(d, to, w[0], w[1], w[2], w[3]);
        hn::StoreInterleaved4(hn::Add(w[0], d_w[0]), hn::Add(w[1], d_w[1]), hn::Add(w[2], d_w[2]),
                              hn::Add(w[3], d_w[3]), d, to);
      }
      return;
    }
#endif
  TTR_UNROLL for (int i = 0; i < W; ++i) AddAnywhere<kPart>(d_w[i], to + i * g.w_tap, g.w_channel, lanes);
}
template <bool kPart, class T>
HWY_INLINE Vec<T> LoadBias(const ConvolutionTask<T>& c, Size j, Size lanes) {
  if (!c.b) return hn::Zero(Tag<T>());
  if (c.b_stride == 1) return LoadMaybe<kPart>(c.b + j, lanes);
  return LoadLanes<false, kPart>(c.b + j * c.b_stride, c.b_stride, lanes);
}

// W inputs, the youngest last.
template <int W, class T>
HWY_INLINE Vec<T> WeightedSum(Vec<T> bias, const Vec<T> (&w)[W], const Vec<T> (&x)[W]) {
  Vec<T> sum = bias;
  TTR_UNROLL for (int i = 0; i < W; ++i) sum = hn::MulAdd(w[i], x[i], sum);
  return sum;
}
template <int W, class T>
HWY_INLINE void Push(Vec<T> (&x)[W]) {
  TTR_UNROLL for (int i = 0; i + 1 < W; ++i) x[i] = x[i + 1];
}

// Tokens [begin, end) of one vector of channels.
template <int W, bool kStep, bool kPart, class T>
HWY_INLINE void ForwardTile(const ConvolutionTask<T>& c, const TokenPlace<const T> (&past)[W], Size begin, Size end,
                            Size j, Size lanes, T* y, Size y_row, Size y_stride) {
  Vec<T> w[W], x[W];
  LoadTaps<W, kPart>(c, j, lanes, w);
  const Vec<T> bias = LoadBias<kPart>(c, j, lanes);
  TTR_UNROLL for (int i = 0; i + 1 < W; ++i) x[i + 1] = LoadPlace<kPart>(past[i], j, lanes);
  const T* from = c.x + begin * c.x_row + j * c.x_stride;
  T* to = y + begin * y_row + j * y_stride;
  const bool silu = c.silu;
  for (Size t = begin; t < end; ++t, from += c.x_row, to += y_row) {
    PrefetchAhead<kStep>(from);
    PrefetchAhead<kStep>(to);
    Push<W, T>(x);
    x[W - 1] = LoadLanes<kStep, kPart>(from, c.x_stride, lanes);
    const Vec<T> sum = WeightedSum<W, T>(bias, w, x);
    StoreLanes<kStep, kPart>(silu ? SiluOf<T>(sum) : sum, to, y_stride, lanes);
  }
}

template <int W, bool kStep, class T>
HWY_NOINLINE void ForwardNarrow(const ConvolutionTask<T>& c, T* y, Size y_row, Size y_stride) {
  for (Size begin = 0; begin < c.n; begin += kTile<kStep>) {
    const Size end = std::min(begin + kTile<kStep>, c.n);
    TokenPlace<const T> past[W];
    for (int i = 0; i + 1 < W; ++i) past[i] = Source(c, begin - W + 1 + i);
    ForVectors<T>(c.D, [&](Size j, Size lanes, auto p) HWY_ATTR {
      ForwardTile<W, kStep, decltype(p)::part>(c, past, begin, end, j, lanes, y, y_row, y_stride);
    });
  }
}

// Sums before the activation of tokens [begin, end) of one vector of channels, tap by tap.
template <bool kPart, class T>
HWY_NOINLINE void WideSums(const ConvolutionTask<T>& c, Size begin, Size end, Size j, Size lanes, T* sums) {
  constexpr Size L = Width<T>();
  const Tag<T> d;
  const Vec<T> bias = LoadBias<kPart>(c, j, lanes);
  for (Size t = begin; t < end; ++t) hn::Store(bias, d, sums + (t - begin) * L);
  for (Size i = 0; i < c.W; ++i) {
    const Vec<T> tap = LoadLanes<false, kPart>(c.w + j * c.w_channel + i * c.w_tap, c.w_channel, lanes);
    for (Size t = begin; t < end; ++t) {
      T* const at = sums + (t - begin) * L;
      hn::Store(hn::MulAdd(tap, LoadPlace<kPart>(Source(c, t - c.W + 1 + i), j, lanes), hn::Load(d, at)), d, at);
    }
  }
}

template <class T>
HWY_NOINLINE void ForwardWide(const ConvolutionTask<T>& c, T* y, Size y_row, Size y_stride) {
  constexpr Size L = Width<T>();
  const Tag<T> d;
  HWY_ALIGN T sums[kWideTile * L];
  for (Size begin = 0; begin < c.n; begin += kWideTile) {
    const Size end = std::min(begin + kWideTile, c.n);
    ForVectors<T>(c.D, [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      WideSums<part>(c, begin, end, j, lanes, sums);
      for (Size t = begin; t < end; ++t) {
        const Vec<T> sum = hn::Load(d, sums + (t - begin) * L), value = c.silu ? SiluOf<T>(sum) : sum;
        T* const to = y + t * y_row + j * y_stride;
        if (y_stride == 1) StoreMaybe<part>(value, to, lanes);
        else StoreLanes<false, part>(value, to, y_stride, lanes);
      }
    });
  }
}

// Where the tokens of a channel lie side by side (x [B, D, T] seen as [B, T, D]) they are the lanes: the same sums in the
// same order, from W loads that overlap.
constexpr Size kMostAlongTime = 32;  // taps
template <bool kPart, class T>
HWY_INLINE void TokensOfChannel(const ConvolutionTask<T>& c, const T* w, Vec<T> bias, const T* oldest, T* to,
                                Size lanes) {
  Vec<T> sum = bias;
  for (Size i = 0; i < c.W; ++i)
    sum = hn::MulAdd(hn::Set(Tag<T>(), w[i * c.w_tap]), LoadMaybe<kPart>(oldest + i, lanes), sum);
  StoreMaybe<kPart>(c.silu ? SiluOf<T>(sum) : sum, to, lanes);
}
template <class T>
HWY_NOINLINE void ForwardAlongTime(const ConvolutionTask<T>& c, T* y, Size y_stride) {
  constexpr Size L = Width<T>();
  const Size past = c.W - 1, first = std::min(L, c.n);
  HWY_ALIGN T begin[kMostAlongTime - 1 + L];  // what the first tokens read: the cache, then themselves
  for (Size j = 0; j < c.D; ++j) {
    const T *const w = c.w + j * c.w_channel, *const x = c.x + j * c.x_stride;
    T* const to = y + j * y_stride;
    const Vec<T> bias = hn::Set(Tag<T>(), c.b ? c.b[j * c.b_stride] : T(0));
    Size t = 0;
    for (; t < past && t < c.n; t += L) {
      for (Size i = 0; i < past + first; ++i) {
        const Size at = t - past + i;
        begin[i] = at >= c.n ? T(0) : at >= 0 ? x[at] : c.cache ? c.cache[(past + at) * c.D + j] : T(0);
      }
      TokensOfChannel<true>(c, w, bias, begin, to + t, std::min(first, c.n - t));
    }
    for (; t + L <= c.n; t += L) TokensOfChannel<false>(c, w, bias, x + t - past, to + t, L);
    if (t < c.n) TokensOfChannel<true>(c, w, bias, x + t - past, to + t, c.n - t);
  }
}

template <int W, class T>
HWY_INLINE void ForwardOf(const ConvolutionTask<T>& c, T* y, Size y_row, Size y_stride) {
  if (c.x_stride == 1 && y_stride == 1) ForwardNarrow<W, true>(c, y, y_row, y_stride);
  else ForwardNarrow<W, false>(c, y, y_row, y_stride);
}

template <class T>
void ConvolutionForward(const ConvolutionTask<T>& c, T* y, Size y_row, Size y_stride) {
  if constexpr (!kBaseline) {
    if (c.x_row == 1 && y_row == 1 && c.x_stride != 1 && c.n > 1 && c.W <= kMostAlongTime)
      return ForwardAlongTime(c, y, y_stride);
    if (c.W == 1) return ForwardOf<1>(c, y, y_row, y_stride);
    if (c.W == 2) return ForwardOf<2>(c, y, y_row, y_stride);
    if (c.W == 3) return ForwardOf<3>(c, y, y_row, y_stride);
    if (c.W == 4) return ForwardOf<4>(c, y, y_row, y_stride);
  }
  ForwardWide(c, y, y_row, y_stride);
}

// Backward of tokens [begin, end): d_w and d_b add up in registers, what flows into an input waits in `open` until no
// later token of the tile reads it. x = null in `past` is zero, d = null is not wanted.
template <int W, bool kStep, bool kPart, class T>
HWY_INLINE void BackwardTile(const ConvolutionTask<T>& c, const ConvolutionGradients<T>& g,
                             const TokenPlace<const T> (&past)[W], Size begin, Size end, Size j, Size lanes) {
  const Tag<T> d;
  Vec<T> w[W], x[W], open[W], d_w[W], d_b = hn::Zero(d);
  LoadTaps<W, kPart>(c, j, lanes, w);
  const Vec<T> bias = LoadBias<kPart>(c, j, lanes);
  TTR_UNROLL for (int i = 0; i + 1 < W; ++i) x[i + 1] = LoadPlace<kPart>(past[i], j, lanes);
  TTR_UNROLL for (int i = 0; i < W; ++i) d_w[i] = open[i] = hn::Zero(d);
  for (Size t = begin; t < end; ++t) {
    const T *const from = c.x + t * c.x_row + j * c.x_stride, *const above = g.d_y + t * g.y_row + j * g.y_stride;
    PrefetchAhead<kStep>(from);
    PrefetchAhead<kStep>(above);
    Push<W, T>(x);
    x[W - 1] = LoadLanes<kStep, kPart>(from, c.x_stride, lanes);
    Vec<T> slope = LoadLanes<kStep, kPart>(above, g.y_stride, lanes);
    if (c.silu) slope = hn::Mul(slope, SiluSlope<T>(WeightedSum<W, T>(bias, w, x)));
    d_b = hn::Add(d_b, slope);
    TTR_UNROLL for (int i = 0; i < W; ++i) d_w[i] = hn::MulAdd(slope, x[i], d_w[i]);
    TTR_UNROLL for (int i = 0; i < W; ++i) open[i] = hn::MulAdd(slope, w[i], open[i]);
    if (t - W + 1 < 0) AddPlace<kPart>(open[0], Target(c, g, t - W + 1), j, lanes);
    else if (g.d_x) {
      T* const to = g.d_x + (t - W + 1) * g.x_row + j * g.x_stride;
      PrefetchAhead<kStep>(to);
      AddLanes<kStep, kPart>(open[0], to, g.x_stride, lanes);
    }
    Push<W, T>(open);
    open[W - 1] = hn::Zero(d);
  }
  TTR_UNROLL for (int i = 0; i + 1 < W; ++i) AddPlace<kPart>(open[i], Target(c, g, end - W + 1 + i), j, lanes);
  if (g.d_b) AddAnywhere<kPart>(d_b, g.d_b + j * g.b_stride, g.b_stride, lanes);
  if (g.d_w) AddTaps<W, kPart>(g, j, lanes, d_w);
}

template <int W, bool kStep, class T>
HWY_NOINLINE void BackwardNarrow(const ConvolutionTask<T>& c, const ConvolutionGradients<T>& g) {
  for (Size begin = 0; begin < c.n; begin += kTile<kStep>) {
    const Size end = std::min(begin + kTile<kStep>, c.n);
    TokenPlace<const T> past[W];
    for (int i = 0; i + 1 < W; ++i) past[i] = Source(c, begin - W + 1 + i);
    ForVectors<T>(c.D, [&](Size j, Size lanes, auto p)
                           HWY_ATTR { BackwardTile<W, kStep, decltype(p)::part>(c, g, past, begin, end, j, lanes); });
  }
}

// One channel whose tokens lie side by side. Its slopes stand in a buffer, W - 1 older ones before those of a span:
//   d_w[i] = sum_t slope_t x_{t-W+1+i} ;   d_x_s = sum_i w[i] slope_{s+W-1-i}
constexpr Size kSpan = 256;
template <class T>
struct ChannelBackward {
  static constexpr Size L = Width<T>();
  const ConvolutionTask<T>& c;
  const ConvolutionGradients<T>& g;
  Size j, past;
  const T *x, *d_y, *w;
  HWY_ALIGN T slopes[2 * kMostAlongTime + kSpan + L];  // [past + t - begin]; zeros behind the last
  HWY_ALIGN T begin[kMostAlongTime - 1 + L];           // inputs of the first tokens

  T input(Size t) const { return t >= 0 ? x[t] : c.cache ? c.cache[(past + t) * c.D + j] : T(0); }
  template <bool kPart>
  HWY_INLINE Vec<T> SlopeOf(const T* oldest, const T* above, Size lanes) const {
    Vec<T> slope = LoadMaybe<kPart>(above, lanes);
    if (!c.silu) return slope;
    Vec<T> sum = hn::Set(Tag<T>(), c.b ? c.b[j * c.b_stride] : T(0));
    for (Size i = 0; i < c.W; ++i)
      sum = hn::MulAdd(hn::Set(Tag<T>(), w[i * c.w_tap]), LoadMaybe<kPart>(oldest + i, lanes), sum);
    return hn::Mul(slope, SiluSlope<T>(sum));
  }
  HWY_INLINE void MakeSlopes(Size from, Size to) {
    T* const out = slopes + past - from;
    Size t = from;
    for (; t < past && t < to; t += L) {
      const Size lanes = std::min(L, to - t);
      for (Size i = 0; i < past + lanes; ++i) begin[i] = input(t - past + i);
      StoreMaybe<true>(SlopeOf<true>(begin, d_y + t, lanes), out + t, lanes);
    }
    for (; t + L <= to; t += L) StoreMaybe<false>(SlopeOf<false>(x + t - past, d_y + t, L), out + t, L);
    if (t < to) StoreMaybe<true>(SlopeOf<true>(x + t - past, d_y + t, to - t), out + t, to - t);
  }
  HWY_INLINE void AddWeights(Size from, Size to) const {
    const Tag<T> d;
    const T* const slope = slopes + past - from;
    if (g.d_b) {
      Vec<T> sum = hn::Zero(d);
      Size t = from;
      for (; t + L <= to; t += L) sum = hn::Add(sum, hn::LoadU(d, slope + t));
      if (t < to) sum = hn::Add(sum, LoadMaybe<true>(slope + t, to - t));
      g.d_b[j * g.b_stride] += hn::GetLane(hn::SumOfLanes(d, sum));
    }
    for (Size i = 0; g.d_w && i < c.W; ++i) {
      Vec<T> sum = hn::Zero(d);
      T first = 0;
      Size t = from;
      for (; t < past && t < to; ++t) first += slope[t] * input(t - past + i);
      for (; t + L <= to; t += L) sum = hn::MulAdd(hn::LoadU(d, slope + t), hn::LoadU(d, x + t - past + i), sum);
      if (t < to)
        sum = hn::MulAdd(LoadMaybe<true>(slope + t, to - t), LoadMaybe<true>(x + t - past + i, to - t), sum);
      g.d_w[j * g.w_channel + i * g.w_tap] += first + hn::GetLane(hn::SumOfLanes(d, sum));
    }
  }
  // d_x of tokens [from - past, to), from slopes of [from - past, to + past); before the first token it is the cache.
  HWY_INLINE void AddInputs(Size from, Size to) const {
    const Tag<T> d;
    const T* const slope = slopes + past - from;
    Size s = from - past;
    for (; s < 0 && s < to; ++s) {
      T sum = 0;
      for (Size i = c.W; i-- > 0;) {
        const Size t = s + past - i;
        if (t >= 0) sum += w[i * c.w_tap] * slope[t];
      }
      if (g.d_cache) g.d_cache[(past + s) * c.D + j] += sum;
    }
    if (!g.d_x) return;
    T* const out = g.d_x + j * g.x_stride;
    for (; s < to; s += L) {
      const Size lanes = std::min(L, to - s);
      Vec<T> sum = hn::Zero(d);
      for (Size i = c.W; i-- > 0;)
        sum = hn::MulAdd(hn::Set(d, w[i * c.w_tap]), hn::LoadU(d, slope + s + past - i), sum);
      if (lanes == L) hn::StoreU(hn::Add(hn::LoadU(d, out + s), sum), d, out + s);
      else StoreMaybe<true>(hn::Add(LoadMaybe<true>(out + s, lanes), sum), out + s, lanes);
    }
  }
  HWY_INLINE void Run() {
    std::fill_n(slopes, past, T(0));
    for (Size from = 0; from < c.n; from += kSpan) {
      const Size to = std::min(from + kSpan, c.n);
      const bool last = to == c.n;
      MakeSlopes(from, to);
      std::fill_n(slopes + past + to - from, last ? past + L : L, T(0));
      AddWeights(from, to);
      AddInputs(from, last ? to : to - past);
      if (!last) std::copy_n(slopes + to - from, past, slopes);
    }
  }
};

template <class T>
HWY_NOINLINE void BackwardAlongTime(const ConvolutionTask<T>& c, const ConvolutionGradients<T>& g) {
  for (Size j = 0; j < c.D; ++j) {
    ChannelBackward<T> channel{c,  g, j, c.W - 1, c.x + j * c.x_stride, g.d_y + j * g.y_stride, c.w + j * c.w_channel,
                               {}, {}};
    channel.Run();
  }
}

template <class T>
HWY_NOINLINE void BackwardWide(const ConvolutionTask<T>& c, const ConvolutionGradients<T>& g) {
  constexpr Size L = Width<T>();
  const Tag<T> d;
  HWY_ALIGN T slopes[kWideTile * L];
  for (Size begin = 0; begin < c.n; begin += kWideTile) {
    const Size end = std::min(begin + kWideTile, c.n);
    ForVectors<T>(c.D, [&](Size j, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      if (c.silu) WideSums<part>(c, begin, end, j, lanes, slopes);
      Vec<T> d_b = hn::Zero(d);
      for (Size t = begin; t < end; ++t) {
        T* const at = slopes + (t - begin) * L;
        Vec<T> slope = LoadPlace<part>(TokenPlace<const T>{g.d_y + t * g.y_row, g.y_stride}, j, lanes);
        if (c.silu) slope = hn::Mul(slope, SiluSlope<T>(hn::Load(d, at)));
        hn::Store(slope, d, at);
        d_b = hn::Add(d_b, slope);
      }
      if (g.d_b) AddAnywhere<part>(d_b, g.d_b + j * g.b_stride, g.b_stride, lanes);
      for (Size i = 0; i < c.W; ++i) {
        const Vec<T> tap = LoadLanes<false, part>(c.w + j * c.w_channel + i * c.w_tap, c.w_channel, lanes);
        Vec<T> d_w = hn::Zero(d);
        for (Size t = begin; t < end; ++t) {
          const Vec<T> slope = hn::Load(d, slopes + (t - begin) * L);
          const Size source = t - c.W + 1 + i;
          if (g.d_w) d_w = hn::MulAdd(slope, LoadPlace<part>(Source(c, source), j, lanes), d_w);
          AddPlace<part>(hn::Mul(slope, tap), Target(c, g, source), j, lanes);
        }
        if (g.d_w) AddAnywhere<part>(d_w, g.d_w + j * g.w_channel + i * g.w_tap, g.w_channel, lanes);
      }
    });
  }
}

template <int W, class T>
HWY_INLINE void BackwardOf(const ConvolutionTask<T>& c, const ConvolutionGradients<T>& g) {
  if (c.x_stride == 1 && g.y_stride == 1 && g.x_stride == 1) BackwardNarrow<W, true>(c, g);
  else BackwardNarrow<W, false>(c, g);
}

template <class T>
void ConvolutionBackward(const ConvolutionTask<T>& c, const ConvolutionGradients<T>& g) {
  if constexpr (!kBaseline) {
    if (c.x_row == 1 && g.y_row == 1 && (!g.d_x || g.x_row == 1) && c.x_stride != 1 && c.n > 1 &&
        c.W <= kMostAlongTime)
      return BackwardAlongTime(c, g);
    if (c.W == 1) return BackwardOf<1>(c, g);
    if (c.W == 2) return BackwardOf<2>(c, g);
    if (c.W == 3) return BackwardOf<3>(c, g);
    if (c.W == 4) return BackwardOf<4>(c, g);
  }
  BackwardWide(c, g);
}

template <class T>
const ConvolutionSimd<T>* ConvolutionTable() {
  static constexpr ConvolutionSimd<T> table = {
      .forward = ConvolutionForward<T>,
      .backward = ConvolutionBackward<T>,
  };
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
