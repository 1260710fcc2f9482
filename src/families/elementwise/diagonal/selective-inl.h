// Tokens through a selective state, compiled once per instruction set (included by selective_simd.cc).
//
// A panel is two vectors of columns: its K rows of state and of rates are copied together (1 or 2 KB each), then one
// token after another walks down the rows. A gate costs 13 operations in float and never leaves its register. Backward
// makes the states inside the call again, panel by panel, and keeps the gates of that panel until it has gone back
// over the same tokens; the sums over channels that give d_q and d_k stay vectors until the last panel, so that a
// token adds up its lanes once.
#if defined(TTR_SIMD_SELECTIVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_SELECTIVE_INL_H_
#undef TTR_SIMD_SELECTIVE_INL_H_
#else
#define TTR_SIMD_SELECTIVE_INL_H_
#endif

#include <algorithm>
#include <limits>
#include <type_traits>

#include "families/elementwise/diagonal/selective_simd.h"
#include "hwy/cache_control.h"
#include "simd/exp2-inl.h"
#include "simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

// Rates are times log2(e): a gate is 2^x.
template <class T>
bool Rates(Size K, Size V, const T* A, Size ld, T* rates, Size ld_rates) {
  const Tag<T> d;
  const Vec<T> unit = hn::Set(d, kLog2E<T>), zero = hn::Zero(d), low = hn::Set(d, std::numeric_limits<T>::lowest());
  auto bounded = hn::Eq(zero, zero);
  for (Size n = 0; n < K; ++n)
    ForVectors<T>(V, [&](Size i, Size lanes, auto p) HWY_ATTR {
      constexpr bool part = decltype(p)::part;
      const Vec<T> rate = hn::Mul(unit, LoadMaybe<part>(A + n * ld + i, lanes));
      bounded = hn::And(bounded, hn::And(hn::Le(rate, zero), hn::Ge(rate, low)));
      StoreMaybe<part>(rate, rates + n * ld_rates + i, lanes);
    });
  return hn::AllTrue(d, bounded);
}

// Which formula a row loop uses.
enum class Gate { bounded, any, twice, longhorn };

template <Gate kGate, class T>
HWY_INLINE Vec<T> GateOf(Vec<T> rate, Vec<T> step, T k) {
  const Tag<T> d;
  if constexpr (kGate == Gate::longhorn) return hn::NegMulAdd(hn::Set(d, k * k), step, hn::Set(d, T(1)));
  else if constexpr (kGate == Gate::twice)
    return hn::MulSub(hn::Set(d, T(2)), Exp2<false, T>(hn::Mul(step, rate)), hn::Set(d, T(1)));
  else return Exp2<kGate == Gate::bounded, T>(hn::Mul(step, rate));
}

// f(column, lanes, columns of the panel) for pairs of vectors, then one, then a part of one.
template <class T, class F>
HWY_INLINE void ForPairs(Size V, const F& f) {
  constexpr Size L = Width<T>();
  Size j = 0;
  if constexpr (!kBaseline)
    for (; j + 2 * L <= V; j += 2 * L) f(j, L, Columns<2, false>());
  for (; j + L <= V; j += L) f(j, L, Columns<1, false>());
  if constexpr (L > 1)
    if (j < V) f(j, V - j, Columns<1, true>());
}

// K rows of a panel between a matrix of V columns and a place where they lie together.
template <int NV, bool kPart, class T>
HWY_INLINE void Gather(Size K, const T* from, Size ld, Size lanes, T* panel) {
  constexpr Size L = Width<T>();
  for (Size n = 0; n < K; ++n)
    TTR_UNROLL for (int v = 0; v < NV; ++v)
        hn::StoreU(LoadMaybe<kPart>(from + n * ld + v * L, lanes), Tag<T>(), panel + (n * NV + v) * L);
}
template <int NV, bool kPart, class T>
HWY_INLINE void Scatter(Size K, const T* panel, T* to, Size ld, Size lanes) {
  constexpr Size L = Width<T>();
  for (Size n = 0; n < K; ++n)
    TTR_UNROLL for (int v = 0; v < NV; ++v)
        StoreMaybe<kPart>(hn::LoadU(Tag<T>(), panel + (n * NV + v) * L), to + n * ld + v * L, lanes);
}

// A step outside [0, largest number] needs the gate with all checks.
template <int NV, class T>
HWY_INLINE bool StepsAreBounded(const Vec<T> (&dt)[NV]) {
  const Tag<T> d;
  const Vec<T> zero = hn::Zero(d), most = hn::Set(d, std::numeric_limits<T>::max());
  auto good = hn::And(hn::Ge(dt[0], zero), hn::Le(dt[0], most));
  if constexpr (NV == 2) good = hn::And(good, hn::And(hn::Ge(dt[1], zero), hn::Le(dt[1], most)));
  return hn::AllTrue(d, good);
}

// What is kept of a token besides its state.
enum class Want { state, answers, gates };

// Rows of a panel: together, or in place `ld` apart.
template <class T>
struct Rows {
  T* data;
  Size ld;
};

// One token: from the rows of `old` to those of S (which may be `old`), and the sums of q or the gates.
template <Gate kGate, Want kWant, int NV, bool kPart, class T>
HWY_INLINE void TokenRows(Size K, Size lanes, Rows<const T> rates, const Vec<T> (&dt)[NV], const T* gate, const T* k,
                          const Vec<T> (&u)[NV], const T* q, Rows<const T> old, T* S, T* gates, Vec<T> (&sum)[NV]) {
  constexpr Size L = Width<T>();
  const Tag<T> d;
  for (Size n = 0; n < K; ++n) {
    const Vec<T> key = hn::Set(d, k[n]);
    TTR_UNROLL for (int v = 0; v < NV; ++v) {
      const Size at = n * old.ld + v * L;
      Vec<T> rate = key;
      if constexpr (kGate != Gate::longhorn) rate = LoadMaybe<kPart>(rates.data + n * rates.ld + v * L, lanes);
      const Vec<T> a = GateOf<kGate, T>(rate, dt[v], gate[n]);
      const Vec<T> s = hn::MulAdd(a, LoadMaybe<kPart>(old.data + at, lanes), hn::Mul(key, u[v]));
      StoreMaybe<kPart>(s, S + at, lanes);
      if constexpr (kWant == Want::gates) hn::StoreU(a, d, gates + (n * NV + v) * L);
      if constexpr (kWant == Want::answers) sum[v] = hn::MulAdd(hn::Set(d, q[n]), s, sum[v]);
    }
  }
}

// Rows of inputs are far apart, in few sets of L1: ask for them a few tokens before they are read.
constexpr Size kAhead = 4;
template <int NV, class T>
HWY_INLINE void PrefetchRow(const T* row, Size lanes) {
  hwy::Prefetch(row);
  if constexpr (NV * Width<T>() * sizeof(T) > 64) hwy::Prefetch(row + Width<T>());
  hwy::Prefetch(row + (NV - 1) * Width<T>() + lanes - 1);  // rows need not be aligned
}

// kPart is about the inputs, kRowsPart about the rows of a state in place.
template <Want kWant, int NV, bool kPart, bool kRowsPart, class T>
HWY_INLINE void Token(const SelectiveTokens<T>& x, bool write, Size t, Size j, Size lanes, Rows<const T> rates,
                      Rows<const T> old, T* S, T* gates, Vec<T> (&sum)[NV]) {
  constexpr Size L = Width<T>();
  const Tag<T> d;
  const T* const q = kWant == Want::answers ? x.q + t * x.ldq : nullptr;
  const Size next = std::min(t + kAhead, x.n - 1);
  PrefetchRow<NV>(x.step + next * x.ld_step + j, lanes), PrefetchRow<NV>(x.u + next * x.ldu + j, lanes);
  Vec<T> dt[NV], u[NV];
  TTR_UNROLL for (int v = 0; v < NV; ++v) {
    dt[v] = LoadMaybe<kPart>(x.step + t * x.ld_step + j + v * L, lanes);
    u[v] = write ? LoadMaybe<kPart>(x.u + t * x.ldu + j + v * L, lanes) : hn::Zero(d);
    sum[v] = hn::Zero(d);
  }
  const T* const k = x.k + t * x.ldk;
  const T* const gate = x.gate ? x.gate + t * x.ld_gate : k;
  if (!x.rates)
    TokenRows<Gate::longhorn, kWant, NV, kRowsPart>(x.K, lanes, rates, dt, gate, k, u, q, old, S, gates, sum);
  else if (x.twice)
    TokenRows<Gate::twice, kWant, NV, kRowsPart>(x.K, lanes, rates, dt, gate, k, u, q, old, S, gates, sum);
  else if (x.bounded && StepsAreBounded<NV, T>(dt))
    TokenRows<Gate::bounded, kWant, NV, kRowsPart>(x.K, lanes, rates, dt, gate, k, u, q, old, S, gates, sum);
  else TokenRows<Gate::any, kWant, NV, kRowsPart>(x.K, lanes, rates, dt, gate, k, u, q, old, S, gates, sum);
}

template <class T>
void SelectiveForward(const SelectiveTokens<T>& x, bool write, T* S, T* o, Size ldo, T* scratch) {
  const Tag<T> d;
  const bool in_place = x.n < 2;
  ForPairs<T>(x.V, [&](Size j, Size lanes, auto c) HWY_ATTR {
    using P = decltype(c);
    constexpr int NV = P::vectors;
    constexpr Size L = Width<T>();
    Rows<T> state{S + j, x.V};
    Rows<const T> rates{x.rates ? x.rates + j : nullptr, x.ld_rates};
    if (!in_place) {
      state = {scratch, NV * L};
      Gather<NV, P::part>(x.K, S + j, x.V, lanes, state.data);
      if (x.rates) {
        T* const panel = scratch + x.K * NV * L;
        Gather<NV, P::part>(x.K, rates.data, rates.ld, lanes, panel);
        rates = {panel, NV * L};
      }
    }
    const Rows<const T> old{state.data, state.ld};
    const Vec<T> scale = hn::Set(d, x.scale);
    Vec<T> sum[NV];
    T* const none = nullptr;
    for (Size t = 0; t < x.n; ++t) {
      if (o && in_place)
        Token<Want::answers, NV, P::part, P::part>(x, write, t, j, lanes, rates, old, state.data, none, sum);
      else if (o) Token<Want::answers, NV, P::part, false>(x, write, t, j, lanes, rates, old, state.data, none, sum);
      else if (in_place)
        Token<Want::state, NV, P::part, P::part>(x, write, t, j, lanes, rates, old, state.data, none, sum);
      else Token<Want::state, NV, P::part, false>(x, write, t, j, lanes, rates, old, state.data, none, sum);
      if (!o) continue;
      TTR_UNROLL for (int v = 0; v < NV; ++v)
          StoreMaybe<P::part>(hn::Mul(scale, sum[v]), o + t * ldo + j + v * L, lanes);
    }
    if (!in_place) Scatter<NV, P::part>(x.K, state.data, S + j, x.V, lanes);
  });
}

// One token backwards on a panel: dS and d_A are panels, to_q and to_k are sums over channels as vectors [K].
template <Gate kGate, bool kAnswers, int NV, class T>
HWY_INLINE void TokenRowsBack(Size K, const T* rates, const T* gates, const Vec<T> (&dt)[NV], const T* k,
                              const Vec<T> (&u)[NV], const T* q, T scale, const Vec<T> (&answer)[NV], const T* old,
                              const T* now, T* dS, T* d_A, T* to_q, T* to_k, Vec<T> (&d_u)[NV], Vec<T> (&d_dt)[NV]) {
  constexpr Size L = Width<T>();
  const Tag<T> d;
  for (Size n = 0; n < K; ++n) {
    const Vec<T> key = hn::Set(d, k[n]);
    Vec<T> query = key, sum_q = key, sum_k = hn::LoadU(d, to_k + n * L);
    if constexpr (kAnswers) query = hn::Set(d, scale * q[n]), sum_q = hn::LoadU(d, to_q + n * L);
    TTR_UNROLL for (int v = 0; v < NV; ++v) {
      const Size at = (n * NV + v) * L;
      Vec<T> g = hn::LoadU(d, dS + at);
      if constexpr (kAnswers) {
        g = hn::MulAdd(query, answer[v], g);
        sum_q = hn::MulAdd(hn::LoadU(d, now + at), answer[v], sum_q);
      }
      sum_k = hn::MulAdd(g, u[v], sum_k);
      d_u[v] = hn::MulAdd(key, g, d_u[v]);
      if constexpr (kGate == Gate::longhorn) {
        const Vec<T> factor = hn::Mul(g, hn::LoadU(d, old + at));
        d_dt[v] = hn::MulAdd(hn::Set(d, -(k[n] * k[n])), factor, d_dt[v]);
        sum_k = hn::MulAdd(hn::Set(d, -2 * k[n]), hn::Mul(factor, dt[v]), sum_k);
        g = hn::Mul(hn::LoadU(d, gates + at), g);
      } else {
        const Vec<T> gate = hn::LoadU(d, gates + at);
        Vec<T> slope = gate;  // of the gate by its exponent
        if constexpr (kGate == Gate::twice) slope = hn::Add(gate, hn::Set(d, T(1)));
        const Vec<T> exponent = hn::Mul(hn::Mul(slope, g), hn::LoadU(d, old + at));
        g = hn::Mul(gate, g);
        d_dt[v] = hn::MulAdd(exponent, hn::LoadU(d, rates + at), d_dt[v]);
        hn::StoreU(hn::MulAdd(exponent, dt[v], hn::LoadU(d, d_A + at)), d, d_A + at);
      }
      hn::StoreU(g, d, dS + at);
    }
    hn::StoreU(sum_k, d, to_k + n * L);
    if constexpr (kAnswers) hn::StoreU(sum_q, d, to_q + n * L);
  }
}

template <Gate kGate, bool kAnswers, int NV, bool kPart, class T>
HWY_INLINE void TokenBack(const SelectiveTokens<T>& x, const SelectiveGradients<T>& g, Size t, Size j, Size lanes,
                          const T* rates, const T* gates, const T* old, const T* now, T* dS, T* d_A, T* to_q, T* to_k,
                          T* to_u, T* to_step) {
  constexpr Size L = Width<T>();
  const Tag<T> d;
  const T *const k = x.k + t * x.ldk, *const q = kAnswers ? x.q + t * x.ldq : nullptr;
  const Size next = std::max<Size>(t - kAhead, 0);
  PrefetchRow<NV>(x.step + next * x.ld_step + j, lanes), PrefetchRow<NV>(x.u + next * x.ldu + j, lanes);
  if constexpr (kAnswers) PrefetchRow<NV>(g.d_o + next * g.ld_o + j, lanes);
  Vec<T> dt[NV], u[NV], answer[NV], d_u[NV], d_dt[NV];
  TTR_UNROLL for (int v = 0; v < NV; ++v) {
    dt[v] = LoadMaybe<kPart>(x.step + t * x.ld_step + j + v * L, lanes);
    u[v] = LoadMaybe<kPart>(x.u + t * x.ldu + j + v * L, lanes);
    answer[v] = kAnswers ? LoadMaybe<kPart>(g.d_o + t * g.ld_o + j + v * L, lanes) : hn::Zero(d);
    d_u[v] = d_dt[v] = hn::Zero(d);
  }
  TokenRowsBack<kGate, kAnswers, NV>(x.K, rates, gates, dt, k, u, q, x.scale, answer, old, now, dS, d_A, to_q, to_k,
                                     d_u, d_dt);
  const Vec<T> unit = hn::Set(d, kGate == Gate::longhorn ? T(1) : T(1) / kLog2E<T>);
  TTR_UNROLL for (int v = 0; v < NV; ++v) {
    hn::StoreU(d_u[v], d, to_u + v * L);
    hn::StoreU(hn::Mul(unit, d_dt[v]), d, to_step + v * L);
  }
}

// Rows of a panel added to rows `ld` apart. A loop of its own: within that over tokens every miss would wait for the
// one before.
template <int NV, bool kPart, class T>
HWY_INLINE void AddRows(Size n, const T* panel, T* to, Size ld, Size lanes) {
  constexpr Size L = Width<T>();
  for (Size t = 0; t < n; ++t) TTR_UNROLL for (int v = 0; v < NV; ++v) {
      T* const at = to + t * ld + v * L;
      StoreMaybe<kPart>(hn::Add(LoadMaybe<kPart>(at, lanes), hn::LoadU(Tag<T>(), panel + (t * NV + v) * L)), at,
                        lanes);
    }
}

template <Gate kGate, bool kAnswers, class T>
HWY_INLINE void BackwardOf(const SelectiveTokens<T>& x, const SelectiveGradients<T>& g, const T* start, T* dS,
                           T* scratch) {
  constexpr Size L = Width<T>();
  const Tag<T> d;
  const Size K = x.K, V = x.V;
  T *const to_q = scratch, *const to_k = to_q + x.n * K * L, *const rest = to_k + x.n * K * L;
  for (Size i = 0; i < 2 * x.n * K; ++i) hn::StoreU(hn::Zero(d), d, to_q + i * L);
  ForPairs<T>(V, [&](Size j, Size lanes, auto c) HWY_ATTR {
    using P = decltype(c);
    constexpr int NV = P::vectors;
    const Size size = K * NV * L;
    T *const rates = rest, *const gradient = rest + size, *const d_A = rest + 2 * size;
    T *const to_u = rest + 3 * size, *const to_step = to_u + x.n * NV * L;
    T *const gates = to_step + x.n * NV * L, *const inside = gates + x.n * size;
    Gather<NV, P::part>(K, start + j, V, lanes, inside);
    Gather<NV, P::part>(K, dS + j, V, lanes, gradient);
    if constexpr (kGate != Gate::longhorn) {
      Gather<NV, P::part>(K, x.rates + j, x.ld_rates, lanes, rates);
      Gather<NV, P::part>(K, g.d_A + j, V, lanes, d_A);
    }
    Vec<T> unused[NV];
    for (Size t = 0; t < x.n; ++t)
      Token<Want::gates, NV, P::part, false>(x, true, t, j, lanes, {rates, NV * L}, {inside + t * size, NV * L},
                                             inside + (t + 1) * size, gates + t * size, unused);
    for (Size t = x.n; t-- > 0;)
      TokenBack<kGate, kAnswers, NV, P::part>(x, g, t, j, lanes, rates, gates + t * size, inside + t * size,
                                              inside + (t + 1) * size, gradient, d_A, to_q + t * K * L,
                                              to_k + t * K * L, to_u + t * NV * L, to_step + t * NV * L);
    if (g.d_u) AddRows<NV, P::part>(x.n, to_u, g.d_u + j, g.ldu, lanes);
    if (g.d_step) AddRows<NV, P::part>(x.n, to_step, g.d_step + j, g.ld_step, lanes);
    Scatter<NV, P::part>(K, gradient, dS + j, V, lanes);
    if constexpr (kGate != Gate::longhorn) Scatter<NV, P::part>(K, d_A, g.d_A + j, V, lanes);
  });
  for (Size i = 0; i < x.n * K; ++i) {
    g.d_k[i] = hn::GetLane(hn::SumOfLanes(d, hn::LoadU(d, to_k + i * L)));
    if constexpr (kAnswers) g.d_q[i] = hn::GetLane(hn::SumOfLanes(d, hn::LoadU(d, to_q + i * L)));
  }
}

template <class T>
void SelectiveBackward(const SelectiveTokens<T>& x, const SelectiveGradients<T>& g, const T* start, T* dS,
                       T* scratch) {
  const auto run = [&](auto answers) HWY_ATTR {
    constexpr bool kAnswers = decltype(answers)::value;
    if (!x.rates) BackwardOf<Gate::longhorn, kAnswers>(x, g, start, dS, scratch);
    else if (x.twice) BackwardOf<Gate::twice, kAnswers>(x, g, start, dS, scratch);
    else BackwardOf<Gate::any, kAnswers>(x, g, start, dS, scratch);
  };
  if (g.d_o) run(std::true_type{});
  else run(std::false_type{});
}

template <class T>
const SelectiveSimd<T>* SelectiveTable() {
  static_assert(2 * Width<T>() <= SelectiveSimd<T>::panel);
  static constexpr SelectiveSimd<T> table = {
      .rates = Rates<T>,
      .forward = SelectiveForward<T>,
      .backward = SelectiveBackward<T>,
  };
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
