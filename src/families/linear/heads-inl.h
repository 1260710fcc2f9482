// One token through the states of all heads, compiled once per instruction set (included by state_table-inl.h).
//
// The delta rule reads k'S of a column before it writes to it, so a state is touched twice. States that live in L2
// would be fetched in the first pass and stored in the second, one after the other. Here panels of all heads form one
// chain: while a panel is written, row by row, the same row of the next panel is read, and by the time its turn comes
// it is in L1. Fetching and storing overlap, and a token costs little more than an update in place of its states
// (measured with 128 KB and 512 KB of states on a machine with 2 MB of L2: 93 % and 83 % of that bandwidth, against
// 70 % with two passes).
//
// Columns that do not fill a panel are a panel with masks. Where there are no masks they go head by head through the sweeps
// of state-inl.h, whose bits are the same. So do rules without a read, whose panels touch a state once; what holds them up
// are three products for every vector (K = V = 128 and panels of 8 vectors: 3.1 cycles each where one product is a cycle;
// panels of 4, which take a row in two parts, 3.4).
#if defined(TTR_LINEAR_HEADS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINEAR_HEADS_INL_H_
#undef TTR_LINEAR_HEADS_INL_H_
#else
#define TTR_LINEAR_HEADS_INL_H_
#endif

#include <type_traits>

#include "families/linear/state-inl.h"
#include "families/linear/state_simd.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

// Two panels must fit L1 beside each other; with 16 registers 4 vectors are what can be held.
#if HWY_CAP_GE512
constexpr int kChained = 2;
#else
constexpr int kChained = kBaseline ? 1 : 4;
#endif
template <class T>
HWY_INLINE constexpr Size ChainedWidth() {
  return kChained * Width<T>();
}

// Vectors of a panel by rules without a read: as many as there are registers for.
#if HWY_CAP_GE512
constexpr int kPlain = 8;
#else
constexpr int kPlain = 4;
#endif

// Columns that do not fill a panel are a panel of as many vectors, or of half as many, with masks for loads and stores.
#if HWY_CAP_GE256
constexpr bool kTails = true;
#else
constexpr bool kTails = false;
#endif

// A panel of the chain: NV vectors, all of them full or (kPart) with the lanes that LanesIn says.
template <int NV, bool kPart>
struct ChainPanel {
  static constexpr int vectors = NV;
  static constexpr bool part = kPart;
  Size h, j;     // head, first column
  Size columns;  // as many as there are
};
template <class T>
HWY_INLINE Size LanesIn(int v, Size columns) {
  const Size left = columns - v * Width<T>();
  return left < 0 ? 0 : left < Width<T>() ? left : Width<T>();
}

// Visits the panels of all heads that are full, in order: write(panel, next panel, last).
template <class T, class F>
HWY_INLINE void ForChain(Size heads, Size V, const F& write) {
  constexpr Size W = ChainedWidth<T>();
  using Full = ChainPanel<kChained, false>;
  const Size panels = V / W, all = heads * panels;
  const auto panel = [&](Size i) { return Full{i / panels, i % panels * W, W}; };
  for (Size i = 0; i + 1 < all; ++i) write(panel(i), panel(i + 1), std::false_type());
  if (all > 0) write(panel(all - 1), panel(0), std::true_type());
}

// The same with a tail behind the full panels of every head, of the type Tail.
template <class T, class Tail, class F>
HWY_INLINE void ForChainWithTails(Size heads, Size V, const F& write) {
  constexpr Size W = ChainedWidth<T>();
  using Full = ChainPanel<kChained, false>;
  const Size panels = V / W;
  const auto full = [&](Size h, Size i) { return Full{h, i * W, W}; };
  const auto tail = [&](Size h) { return Tail{h, panels * W, V - panels * W}; };
  for (Size h = 0; h < heads; ++h) {
    for (Size i = 0; i + 1 < panels; ++i) write(full(h, i), full(h, i + 1), std::false_type());
    if (panels > 0) write(full(h, panels - 1), tail(h), std::false_type());
    if (h + 1 == heads) write(tail(h), tail(h), std::true_type());
    else if (panels > 0) write(tail(h), full(h + 1, 0), std::false_type());
    else write(tail(h), tail(h + 1), std::false_type());
  }
}

// The write of one panel of one head and the read of the next one.
template <Erase kErase, bool kRows, bool kLast, class Panel, class Next, class T>
HWY_INLINE void ChainedPanel(Size K, Size V, T a, const T* rows, const T* k, const T* y, const T* q, T* S,
                             const Panel& panel, const T* x_next, const T* S_next, const Next& next_panel,
                             const Vec<T> (&u)[kChained], const Vec<T> (&read)[kChained], Vec<T> (&out)[kChained],
                             Vec<T> (&next)[kChained]) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  const Vec<T> va = hn::Set(d, a);
  Size lanes[kChained], next_lanes[kChained];
  TTR_UNROLL for (int v = 0; v < kChained; ++v) {
    out[v] = next[v] = hn::Zero(d);
    lanes[v] = LanesIn<T>(v, panel.columns), next_lanes[v] = LanesIn<T>(v, next_panel.columns);
  }
  for (Size i = 0; i < K; ++i, S += V, S_next += V) {
    const Vec<T> row = kRows ? hn::Set(d, rows[i]) : va, ki = hn::Set(d, k[i]), qi = hn::Set(d, q[i]);
    const Vec<T> yi = hn::Set(d, kErase == Erase::other ? y[i] : T(0)), xi = hn::Set(d, kLast ? T(0) : x_next[i]);
    TTR_UNROLL for (int v = 0; v < Panel::vectors; ++v) {
      Vec<T> s = hn::MulAdd(ki, u[v], hn::Mul(row, LoadMaybe<Panel::part>(S + v * L, lanes[v])));
      if constexpr (kErase == Erase::other) s = hn::MulAdd(yi, read[v], s);
      StoreMaybe<Panel::part>(s, S + v * L, lanes[v]);
      out[v] = hn::MulAdd(qi, s, out[v]);
    }
    if constexpr (!kLast)
      TTR_UNROLL for (int v = 0; v < Next::vectors; ++v) next[v] =
          hn::MulAdd(xi, LoadMaybe<Next::part>(S_next + v * L, next_lanes[v]), next[v]);
  }
}

// x.x is set: the rule reads, and values and answers are no halves. Without kRows the factor of the state is a_h and what was read counts b_h. The columns
// that the chain has no panels for are left: returns the first of them.
template <Erase kErase, bool kRows, class T>
Size ChainedHeads(const typename StateSimd<T>::Tokens& x, Size group, Size x_group, const T* a, const T* b, T* S,
                  T* o, Size ldo) {
  const Tag<T> d;
  constexpr Size L = Width<T>(), W = ChainedWidth<T>();
  const Size state = x.K * x.V, full = x.V / W * W;
  const auto read_key = [&](Size h) { return x.x + h / x_group * x.ldx; };
  if (x.n < 1 || (!kTails && full == 0)) return 0;
  Vec<T> next[kChained];
  TTR_UNROLL for (int v = 0; v < kChained; ++v) next[v] = hn::Zero(d);
  if (full > 0) ReadPanel<kChained, false>(x.K, read_key(0), S, x.V, L, next);
  else
    for (Size i = 0; i < x.K; ++i)
      TTR_UNROLL for (int v = 0; v < kChained; ++v) next[v] =
          hn::MulAdd(hn::Set(d, read_key(0)[i]), LoadMaybe<true>(S + i * x.V + v * L, LanesIn<T>(v, x.V)), next[v]);
  const auto write = [&](auto panel, auto after, auto last) HWY_ATTR {
    using P = decltype(panel);
    Vec<T> u[kChained], read[kChained], out[kChained];
    const Size h = panel.h, j = panel.j;
    const T* const values = x.v + h * x.ldv + j;
    const Vec<T> beta = hn::Set(d, x.beta ? x.beta[h] : T(1));
    TTR_UNROLL for (int v = 0; v < P::vectors; ++v) {
      read[v] = next[v];
      u[v] = LoadMaybe<P::part>(values + v * L, LanesIn<T>(v, panel.columns));
      if constexpr (!kRows) u[v] = hn::NegMulAdd(hn::Set(d, b[h]), read[v], u[v]);
      else if constexpr (kErase == Erase::same) u[v] = hn::Sub(u[v], read[v]);
      if (x.beta) u[v] = hn::Mul(beta, u[v]);
    }
    const Size shared = h / group;
    ChainedPanel<kErase, kRows, decltype(last)::value>(
        x.K, x.V, kRows ? T(0) : a[h], kRows ? x.rows + h * x.ld_rows : nullptr, x.k + shared * x.ldk,
        kErase == Erase::other ? x.y + h * x.ldy : nullptr, x.q + shared * x.ldq, S + h * state + j, panel,
        read_key(after.h), S + after.h * state + after.j, after, u, read, out, next);
    const Vec<T> scale = hn::Set(d, x.scale);
    T* const answers = o + h * ldo + j;
    TTR_UNROLL for (int v = 0; v < P::vectors; ++v) {
      const Size lanes = LanesIn<T>(v, panel.columns);
      Vec<T> answer = hn::Mul(scale, out[v]);
      if (x.direct) answer = hn::MulAdd(hn::Set(d, x.direct[h]), LoadMaybe<P::part>(values + v * L, lanes), answer);
      StoreMaybe<P::part>(answer, answers + v * L, lanes);
    }
  };
  if constexpr (kTails) {
    if (x.V - full > W / 2) return ForChainWithTails<T, ChainPanel<kChained, true>>(x.n, x.V, write), x.V;
    if (x.V > full) return ForChainWithTails<T, ChainPanel<kChained / 2, true>>(x.n, x.V, write), x.V;
  }
  ForChain<T>(x.n, x.V, write);
  return full;
}

template <class T>
void SweepHeads(const typename StateSimd<T>::Tokens& x, Size group, const T* a, const T* b, T* S, T* o, Size ldo) {
  Size done = 0;
  if (b && x.q) {
    typename StateSimd<T>::Tokens reads = x;
    reads.x = x.k, reads.ldx = x.ldk;
    done = ChainedHeads<Erase::same, false, T>(reads, group, group, a, b, S, o, ldo);
  }
  for (Size h = 0; h < x.n && done < x.V; ++h) {
    const Sweeping<T> one{1,
                          x.K,
                          a + h,
                          b ? b + h : nullptr,
                          x.beta + h,
                          x.scale,
                          x.k + h / group * x.ldk,
                          0,
                          RowOfValues(x.values, x.v, h * x.ldv),
                          0,
                          x.q ? x.q + h / group * x.ldq : nullptr,
                          0,
                          x.q ? RowOfValues(x.answers, o, h * ldo) : nullptr,
                          0,
                          x.direct ? x.direct + h : nullptr,
                          x.values,
                          x.answers};
    T* const at = S + h * x.K * x.V + done;
    const auto panel = [&](Size j, Size lanes, auto c) HWY_ATTR {
      using P = decltype(c);
      if (b && x.q) SweepPanel<true, true, P::vectors, P::part>(one, done + j, lanes, at + j, x.V);
      else if (b) SweepPanel<true, false, P::vectors, P::part>(one, done + j, lanes, at + j, x.V);
      else if (x.q) SweepPanel<false, true, P::vectors, P::part>(one, done + j, lanes, at + j, x.V);
      else SweepPanel<false, false, P::vectors, P::part>(one, done + j, lanes, at + j, x.V);
    };
    if (b) ForColumns<T>(x.V - done, panel);
    else ForColumns<T, kPlain>(x.V - done, panel);
  }
}

template <class T>
void GatedHeads(const typename StateSimd<T>::Tokens& x, Size group, Size x_group, T* S, T* o, Size ldo) {
  Size done = 0;
  if (x.x && x.q)
    done = x.y ? ChainedHeads<Erase::other, true, T>(x, group, x_group, nullptr, nullptr, S, o, ldo)
               : ChainedHeads<Erase::same, true, T>(x, group, x_group, nullptr, nullptr, S, o, ldo);
  if (done == x.V) return;
  typename StateSimd<T>::Tokens one = x;
  one.n = 1, one.V = x.V - done;
  for (Size h = 0; h < x.n; ++h) {
    one.rows = x.rows + h * x.ld_rows;
    if (x.columns) one.columns = x.columns + h * x.ld_columns + done;
    if (x.beta) one.beta = x.beta + h;
    if (x.x) one.x = x.x + h / x_group * x.ldx;
    if (x.y) one.y = x.y + h * x.ldy;
    if (x.q) one.q = x.q + h / group * x.ldq;
    if (x.direct) one.direct = x.direct + h;
    one.k = x.k + h / group * x.ldk, one.v = RowOfValues(x.values, x.v, h * x.ldv + done);
    T *const at = S + h * x.K * x.V + done, *const answers =
                                                x.q ? RowOfValues(x.answers, o, h * ldo + done) : nullptr;
    if (x.x) GatedSweep<T>(one, at, x.V, answers, 0, nullptr);
    else
      ForColumns<T, kPlain>(one.V, [&](Size j, Size lanes, auto c) HWY_ATTR {
        using P = decltype(c);
        PlainPanel<P::vectors, P::part, T>(one, j, lanes, at + j, x.V, answers, 0);
      });
  }
}

template <class T>
void ExpRows(Halves type, Size n, Size D, const T* x, Size ld, T* out) {
  constexpr Size L = Width<T>();
  if (ld == D) D *= n, n = 1;
  for (Size r = 0; r < n; ++r, out += D) {
    if (type == Halves::none) Exp<T>(D, x + r * ld, out);
    else if constexpr (sizeof(T) == 4) {
      const T* const row = RowOfValues(type, x, r * ld);
      Size i = 0;
      for (; i + L <= D; i += L) hn::StoreU(ExpOf<T>(LoadValue<false>(type, row, i, L)), Tag<T>(), out + i);
      if (i == D) continue;
      HWY_ALIGN std::uint16_t rest[L] = {};
      std::memcpy(rest, reinterpret_cast<const std::uint16_t*>(row) + i,
                  static_cast<size_t>(D - i) * sizeof(rest[0]));
      StorePart(ExpOf<T>(LoadValue<false>(type, reinterpret_cast<const T*>(rest), 0, L)), out + i, D - i);
    }
  }
}

// The sums of Dot, of a product that is rounded as Mul rounds it.
template <class T>
void BonusDots(Size n, Size group, Size K, T scale, const T* w, Size ldw, const T* k, Size ldk, const T* q, Size ldq,
               T* out) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  for (Size t = 0; t < n; ++t) {
    const T *const wt = w + t * ldw, *const kt = k + t / group * ldk, *const qt = q + t / group * ldq;
    Vec<T> sum[4];
    TTR_UNROLL for (int a = 0; a < 4; ++a) sum[a] = hn::Zero(d);
    const auto add = [&](int a, Size i) HWY_ATTR {
      sum[a] = hn::MulAdd(hn::Mul(hn::LoadU(d, wt + i), hn::LoadU(d, kt + i)), hn::LoadU(d, qt + i), sum[a]);
    };
    Size i = 0;
    for (; i + 4 * L <= K; i += 4 * L) TTR_UNROLL for (int a = 0; a < 4; ++a) add(a, i + a * L);
    for (; i + L <= K; i += L) add(0, i);
    if (i < K)
      sum[1] = hn::MulAdd(hn::Mul(LoadPart(wt + i, K - i), LoadPart(kt + i, K - i)), LoadPart(qt + i, K - i), sum[1]);
    out[t] = scale * hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]))));
  }
}

// A panel of both states, and the read of the next panel of S.
template <int NV, bool kPart, bool kLast, class T>
HWY_INLINE void MomentumPanel(const typename StateSimd<T>::Momentum& x, Size h, Size j, Size lanes, T* S, T* Z,
                              const T* p_next, const T* S_next, T* o, Size ldo, Vec<T> (&read)[NV]) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  const Vec<T> a = hn::Set(d, x.a[h]), mu = hn::Set(d, x.mu[h]), beta = hn::Set(d, x.beta[h]);
  const Vec<T> f = hn::Set(d, x.f[h]), eta = hn::Set(d, x.eta[h]), scale = hn::Set(d, x.scale);
  const T *const k = x.k + h / x.group * x.ldk, *const q = x.q ? x.q + h / x.group * x.ldq : k;
  S += h * x.K * x.V + j, Z += h * x.K * x.V + j;
  Vec<T> w[NV], out[NV];
  TTR_UNROLL for (int v = 0; v < NV; ++v) {
    const Size own = LanesOf<NV, T>(v, lanes);
    w[v] = hn::Mul(eta, hn::NegMulAdd(f, read[v], LoadMaybe<kPart>(x.v + h * x.ldv + j + v * L, own)));
    out[v] = read[v] = hn::Zero(d);
  }
  for (Size i = 0; i < x.K; ++i, S += x.V, Z += x.V) {
    const Vec<T> ki = hn::Set(d, k[i]), qi = hn::Set(d, q[i]);
    TTR_UNROLL for (int v = 0; v < NV; ++v) {
      const Size own = LanesOf<NV, T>(v, lanes);
      const Vec<T> z = hn::MulAdd(ki, w[v], hn::Mul(mu, LoadMaybe<kPart>(Z + v * L, own)));
      const Vec<T> s = hn::MulAdd(beta, z, hn::Mul(a, LoadMaybe<kPart>(S + v * L, own)));
      StoreMaybe<kPart>(z, Z + v * L, own);
      StoreMaybe<kPart>(s, S + v * L, own);
      out[v] = hn::MulAdd(qi, s, out[v]);
    }
    if constexpr (!kLast) {
      const Vec<T> pi = hn::Set(d, p_next[i]);
      TTR_UNROLL for (int v = 0; v < NV; ++v) read[v] =
          hn::MulAdd(pi, hn::LoadU(d, S_next + i * x.V + v * L), read[v]);
    }
  }
  if (!x.q) return;
  TTR_UNROLL for (int v = 0; v < NV; ++v)
      StoreMaybe<kPart>(hn::Mul(scale, out[v]), o + h * ldo + j + v * L, LanesOf<NV, T>(v, lanes));
}

template <class T>
void MomentumHeads(const typename StateSimd<T>::Momentum& x, T* S, T* Z, T* o, Size ldo) {
  constexpr Size L = Width<T>(), W = ChainedWidth<T>();
  if (x.heads < 1) return;
  const Size state = x.K * x.V, done = x.V / W * W;
  const auto read_key = [&](Size h) { return x.p + h / x.group * x.ldp; };
  if (done > 0) {
    Vec<T> read[kChained];
    ReadPanel<kChained, false>(x.K, read_key(0), S, x.V, L, read);
    ForChain<T>(x.heads, x.V, [&](auto panel, auto next, auto last) HWY_ATTR {
      MomentumPanel<kChained, false, decltype(last)::value>(x, panel.h, panel.j, L, S, Z, read_key(next.h),
                                                            S + next.h * state + next.j, o, ldo, read);
    });
  }
  for (Size h = 0; h < x.heads && done < x.V; ++h)
    ForColumns<T>(x.V - done, [&](Size j, Size lanes, auto c) HWY_ATTR {
      using P = decltype(c);
      Vec<T> read[P::vectors];
      ReadPanel<P::vectors, P::part>(x.K, read_key(h), S + h * state + done + j, x.V, lanes, read);
      MomentumPanel<P::vectors, P::part, true, T>(x, h, done + j, lanes, S, Z, nullptr, nullptr, o, ldo, read);
    });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
