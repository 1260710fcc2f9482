// The passes of kept_simd.h, compiled once per instruction set.
//
// Four keys at a time meet the query, so that four sums are folded together; some values at a time are added to an answer,
// which is read and written once for them. Where several queries read a key head, two of them share what is widened. The last
// pairs of a block go through the same instructions: the bits of an answer depend on its own head's numbers alone.
//
// A long list is read at the speed of memory only in the order in which it lies, a few rows side by side, and if what lies
// some way behind is fetched meanwhile, at the end of a list the beginning of the one that is read next.
#if defined(TTR_ATTENTION_KEPT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_ATTENTION_KEPT_INL_H_
#undef TTR_ATTENTION_KEPT_INL_H_
#else
#define TTR_ATTENTION_KEPT_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "families/pairs/attention/attention-inl.h"
#include "families/pairs/attention/kept_simd.h"
#include "simd/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

// How a vector of floats is made of what is kept.
struct WidenNothing {
  using Number = float;
  static HWY_INLINE Vec<float> of(Vec<float> x) { return x; }
};
struct WidenBf16 {
  using Number = std::uint16_t;
  static HWY_INLINE Vec<float> of(hn::Vec<hn::Rebind<Number, Tag<float>>> x) {
    return HalfBits::from_bf16(hn::PromoteTo(HalfBits::U(), x));
  }
};
struct WidenF16 {
  using Number = std::uint16_t;
  static HWY_INLINE Vec<float> of(hn::Vec<hn::Rebind<Number, Tag<float>>> x) {
#if HWY_ARCH_X86 && HWY_CAP_GE256 && !defined(HWY_DISABLE_F16C)
    return hn::PromoteTo(Tag<float>(), hn::BitCast(hn::Rebind<hwy::float16_t, Tag<float>>(), x));
#else
    return HalfBits::from_f16(hn::PromoteTo(HalfBits::U(), x));
#endif
  }
};
struct WidenI8 {
  using Number = std::int8_t;
  static HWY_INLINE Vec<float> of(hn::Vec<hn::Rebind<Number, Tag<float>>> x) {
    return hn::ConvertTo(Tag<float>(), hn::PromoteTo(HalfBits::S(), x));
  }
};

// Rows of one kind.
template <class Widen>
struct RowsOf {
  using Number = typename Widen::Number;
  static constexpr bool scaled = sizeof(Number) == 1;

  const KeptSimd::Rows& rows;
  const Number* row(Size i, Size head) const {
    return static_cast<const Number*>(rows.data) + i * rows.next + head * rows.dim;
  }
  float scale(Size i, Size head) const { return scaled ? rows.scales[i * rows.next_scale + head] : 1.0f; }

  template <bool kPart>
  static HWY_INLINE Vec<float> load(const Number* x, Size lanes) {
    const hn::Rebind<Number, Tag<float>> d;
    if constexpr (kPart) {
      HWY_ALIGN Number some[hn::MaxLanes(Tag<float>())] = {};
      std::memcpy(some, x, static_cast<std::size_t>(lanes) * sizeof(Number));
      return Widen::of(hn::Load(d, some));
    }
    return Widen::of(hn::LoadU(d, x));
  }
};

// Rows of all heads of some pairs, a head's share of them at a time: in the order they lie in where nothing is between
// them, else the head's own.
struct Behind {
  const char* rows;  // null: nothing is fetched
  Size head, pair;   // bytes from one to the next
  bool together;

  HWY_INLINE void fetch(Size pairs, Size share) const {
    if (!rows) return;
    if (together) return lines(rows + share * pairs * head, pairs * head);
    for (Size i = 0; i < pairs; ++i) lines(rows + share * head + i * pair, head);
  }
  static HWY_INLINE void lines(const char* at, Size bytes) {
    for (Size i = 0; i < bytes; i += 64) hwy::Prefetch(at + i);
  }
};

// What is read kAhead bytes behind a pair: of its own list, or of the next one.
class Ahead {
 public:
  Ahead(const KeptSimd::Rows& now, const KeptSimd::Rows& next)
      : now_(now),
        next_(next),
        size_(static_cast<Size>(size_of(now.type))),
        pairs_(std::clamp<Size>(kAhead / (now.heads * now.dim * size_), 1, std::max<Size>(now.n, 1))) {}
  HWY_INLINE Behind of(Size i) const {
    const Size at = i + pairs_;
    if (!next_.data || at >= now_.n + next_.n) return {};
    return at < now_.n ? row(now_, at) : row(next_, at - now_.n);
  }

 private:
  // As much as a first-level cache holds. With 16 to 64 KB there is little difference; with 4 some lists took 1.8 times as long.
  static constexpr Size kAhead = 32768;
  HWY_INLINE Behind row(const KeptSimd::Rows& x, Size i) const {
    return {static_cast<const char*>(x.data) + i * x.next * size_, x.dim * size_, x.next * size_,
            x.next == x.heads * x.dim};
  }
  const KeptSimd::Rows &now_, &next_;  // of one type
  const Size size_, pairs_;
};

constexpr Size kKeysTogether = 4, kValuesTogether = 16, kFarValuesTogether = 4;

// Q queries of one key head and four keys.
template <int Q, bool kApart, class Widen>
HWY_INLINE void KeptScores(const RowsOf<Widen>& list, Size i, Size head, const float* q, float* S, Size lds) {
  const Tag<float> d;
  const Size K = list.rows.dim, n = std::min(kKeysTogether, list.rows.n - i);
  const typename Widen::Number* x[4];
  Vec<float> sum[Q][4];
  const auto pair = [&](Size r) { return i + std::min(r, n - 1); };  // what is not there is not kept
  TTR_UNROLL for (Size r = 0; r < 4; ++r) {
    x[r] = list.row(pair(r), head);
    TTR_UNROLL for (int a = 0; a < Q; ++a) sum[a][r] = hn::Zero(d);
  }
  ForVectors<float>(K, [&](Size c, Size lanes, auto p) HWY_ATTR {
    constexpr bool part = decltype(p)::part;
    Vec<float> query[Q];
    TTR_UNROLL for (int a = 0; a < Q; ++a) query[a] = LoadMaybe<part>(q + a * K + c, lanes);
    TTR_UNROLL for (Size r = 0; r < 4; ++r) {
      Vec<float> key = RowsOf<Widen>::template load<part>(x[r] + c, lanes);
      if constexpr (kApart && RowsOf<Widen>::scaled) key = hn::Mul(key, hn::Set(d, list.scale(pair(r), head)));
      TTR_UNROLL for (int a = 0; a < Q; ++a) sum[a][r] = AddScore<kApart, float>(query[a], key, sum[a][r]);
    }
  });
  TTR_UNROLL for (int a = 0; a < Q; ++a) {
    float y[4];
    FoldFour<float>(sum[a], Plus(), y);
    for (Size r = 0; r < n; ++r)
      S[a * lds + i + r] = kApart ? y[r] : RowsOf<Widen>::scaled ? y[r] * list.scale(i + r, head) : y[r];
  }
}
// each(first query, how many there are: one or two) of the queries of key head h
template <class F>
HWY_INLINE void ForQueries(Size h, Size group, const F& each) {
  Size a = h * group;
  for (; a + 2 <= (h + 1) * group; a += 2) each(a, std::integral_constant<int, 2>());
  if (a < (h + 1) * group) each(a, std::integral_constant<int, 1>());
}

template <bool kApart, class Widen>
void KeptScoresOf(const RowsOf<Widen>& list, Size group, const float* q, float* S, Size lds,
                  const KeptSimd::Rows& next) {
  const Size n = list.rows.n, heads = list.rows.heads, K = list.rows.dim;
  const Ahead ahead(list.rows, next);
  for (Size i = 0; i < n; i += kKeysTogether) {
    const Behind behind = ahead.of(i);
    for (Size h = 0; h < heads; ++h) {
      behind.fetch(kKeysTogether, h);
      ForQueries(h, group, [&](Size a, auto queries) HWY_ATTR {
        KeptScores<decltype(queries)::value, kApart>(list, i, h, q + a * K, S + a * lds, lds);
      });
    }
  }
}
template <class Widen>
void KeptScoresFrom(const KeptSimd::Rows& x, Size group, bool apart, const float* q, float* S, Size lds,
                    const KeptSimd::Rows& ahead) {
  if (apart) KeptScoresOf<true>(RowsOf<Widen>{x}, group, q, S, lds, ahead);
  else KeptScoresOf<false>(RowsOf<Widen>{x}, group, q, S, lds, ahead);
}
inline void KeptScoresAny(const KeptSimd::Rows& x, Size group, bool apart, const float* q, float* S, Size lds,
                          const KeptSimd::Rows& ahead) {
  if (x.type == Type::f32) KeptScoresFrom<WidenNothing>(x, group, apart, q, S, lds, ahead);
  else if (x.type == Type::bf16) KeptScoresFrom<WidenBf16>(x, group, apart, q, S, lds, ahead);
  else if (x.type == Type::f16) KeptScoresFrom<WidenF16>(x, group, apart, q, S, lds, ahead);
  else KeptScoresFrom<WidenI8>(x, group, apart, q, S, lds, ahead);
}

// Q answers, NV vectors of columns from c on, of the values [i, i + n)
template <int Q, int NV, bool kPart, class Widen>
HWY_INLINE void KeptAdd(const RowsOf<Widen>& list, Size i, Size n, Size head, Size c, Size lanes, const float* W,
                        Size ldw, float* acc) {
  const Tag<float> d;
  constexpr Size L = Width<float>();
  const Size V = list.rows.dim;
  Vec<float> sum[Q][NV];
  TTR_UNROLL for (int a = 0; a < Q; ++a) {
    TTR_UNROLL for (int v = 0; v < NV; ++v) sum[a][v] = LoadMaybe<kPart>(acc + a * V + c + v * L, lanes);
  }
  for (Size r = i; r < i + n; ++r) {
    const typename Widen::Number* const x = list.row(r, head) + c;
    Vec<float> weight[Q];
    TTR_UNROLL for (int a = 0; a < Q; ++a) {
      weight[a] = hn::Set(d, RowsOf<Widen>::scaled ? W[a * ldw + r] * list.scale(r, head) : W[a * ldw + r]);
    }
    TTR_UNROLL for (int v = 0; v < NV; ++v) {
      const Vec<float> value = RowsOf<Widen>::template load<kPart>(x + v * L, lanes);
      TTR_UNROLL for (int a = 0; a < Q; ++a) sum[a][v] = hn::MulAdd(weight[a], value, sum[a][v]);
    }
  }
  TTR_UNROLL for (int a = 0; a < Q; ++a) {
    TTR_UNROLL for (int v = 0; v < NV; ++v) StoreMaybe<kPart>(sum[a][v], acc + a * V + c + v * L, lanes);
  }
}
template <int Q, class Widen>
HWY_INLINE void KeptAddColumns(const RowsOf<Widen>& list, Size i, Size n, Size head, const float* W, Size ldw,
                               float* acc) {
  constexpr Size L = Width<float>();
  const Size V = list.rows.dim;
  Size c = 0;
  if constexpr (!kBaseline)
    for (; c + 4 * L <= V; c += 4 * L) KeptAdd<Q, 4, false>(list, i, n, head, c, L, W, ldw, acc);
  for (; c + L <= V; c += L) KeptAdd<Q, 1, false>(list, i, n, head, c, L, W, ldw, acc);
  if constexpr (L > 1)
    if (c < V) KeptAdd<Q, 1, true>(list, i, n, head, c, V - c, W, ldw, acc);
}
template <class Widen>
void KeptAddFrom(const KeptSimd::Rows& x, Size group, const float* W, Size ldw, float* acc,
                 const KeptSimd::Rows& next) {
  const RowsOf<Widen> list{x};
  const Ahead ahead(x, next);
  const Size together = next.data ? kFarValuesTogether : kValuesTogether;  // in cache the order matters less
  for (Size i = 0; i < x.n; i += together) {
    const Size n = std::min(together, x.n - i);
    const Behind behind = ahead.of(i);
    for (Size h = 0; h < x.heads; ++h) {
      behind.fetch(n, h);
      ForQueries(h, group, [&](Size a, auto queries) HWY_ATTR {
        KeptAddColumns<decltype(queries)::value>(list, i, n, h, W + a * ldw, ldw, acc + a * x.dim);
      });
    }
  }
}
inline void KeptAddAny(const KeptSimd::Rows& x, Size group, const float* W, Size ldw, float* acc,
                       const KeptSimd::Rows& ahead) {
  if (x.type == Type::f32) KeptAddFrom<WidenNothing>(x, group, W, ldw, acc, ahead);
  else if (x.type == Type::bf16) KeptAddFrom<WidenBf16>(x, group, W, ldw, acc, ahead);
  else if (x.type == Type::f16) KeptAddFrom<WidenF16>(x, group, W, ldw, acc, ahead);
  else KeptAddFrom<WidenI8>(x, group, W, ldw, acc, ahead);
}

template <class T>
const KeptSimd* KeptTable() {
  static constexpr KeptSimd table = {.scores = KeptScoresAny, .add = KeptAddAny};
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
