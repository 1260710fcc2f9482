// Tokens through a state a few at a time, compiled once per instruction set (included by state_table-inl.h).
//
// A token that goes through a state alone costs a load and a store for every two or three multiply-adds. Here a row
// of a panel of columns is loaded, takes the writes of a group of tokens one after the other, answers each of them
// in between, and is stored:
//
//   for the rows i:   s = S_i ;  for the tokens t of the group:  s += k_ti u_t ,  o_t += q_ti s      S_i = s
//
// Without reads (x = null) a group has four tokens where there are 32 registers, else two, and the bits do not depend
// on the groups. At the end of a frame the row has a factor before it is stored: gates that are too strong to be in the keys
// and queries of a whole chunk cost one product per row and frame. With reads it has two tokens, because u_t must be known before the row comes by: the first needs what
// the state before the group tells it, which the group before has summed on its way, the second also what the first
// has written,
//
//   r_1 = S' x_1 + (x_1 . k_0) u_0 + (x_1 . y_0) r_0
//
// So there are 2 K V multiply-adds per token (3 K V and 4 K V with reads) and one load and one store of S per group,
// no triangle of pairs and no transpose: 86 to 94 % of the peak with AVX-512 (bench/kernels.cc, groups).
#if defined(TTR_LINEAR_GROUPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINEAR_GROUPS_INL_H_
#undef TTR_LINEAR_GROUPS_INL_H_
#else
#define TTR_LINEAR_GROUPS_INL_H_
#endif

#include "families/linear/state-inl.h"
#include "families/linear/state_simd.h"
#include "simd/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

#if HWY_CAP_GE512 || (HWY_ARCH_ARM_A64 && HWY_TARGET != HWY_SCALAR)
constexpr bool kManyRegisters = true;
#else
constexpr bool kManyRegisters = false;
#endif
constexpr Size kTokensAtOnce = 64;  // whose steps are held

template <Erase kErase>
constexpr int GroupTokens() {
  return kErase == Erase::none && kManyRegisters ? 4 : 2;
}
template <Erase kErase>
constexpr int GroupVectors() {
  return kBaseline || (kErase == Erase::other && !kManyRegisters) ? 1 : 2;
}

// x_{t+1} . k_t and x_{t+1} . y_t of a pair of tokens.
template <class T>
struct Near {
  T k = 0, y = 0;
};

enum class Late { none, all, some };  // of the rows of a state have a factor behind a group

// Which rows of a state have a factor: bit b is rows b kRowsOfBit and the following; all of them where there are more than bits.
using RowBits = std::int64_t;
constexpr Size kRowsOfBit = Hints::round;

// A group: its first token, how many it has, and the factors of the rows behind it, where a frame ends; else null.
template <class T>
struct Step {
  Size t, size;
  const T* late;
  RowBits scaled;
  Near<T> near;
};

constexpr RowBits AllRows(Size K) {
  const Size bits = (K + kRowsOfBit - 1) / kRowsOfBit;
  return bits >= 64 ? -1 : static_cast<RowBits>((std::uint64_t{1} << bits) - 1);
}
template <class T>
RowBits ScaledRows(Size K, const T* late, Size late_step) {
  if (late_step == 0) return *late == T(1) ? 0 : AllRows(K);
  if (K > 64 * kRowsOfBit) return AllRows(K);
  std::uint64_t bits = 0;
  for (Size i = 0; i < K; ++i) bits |= std::uint64_t{late[i * late_step] != T(1)} << (i / kRowsOfBit);
  return static_cast<RowBits>(bits);
}

// Where a group finds its panel and where it leaves it.
template <class T>
struct Place {
  T* data;
  Size ld;
};

// R rows of values from a half type to `out`, and of answers to one, [R, columns]. Not inlined: a group is compiled for every
// shape, and few calls have halves.
template <int R>
HWY_NOINLINE void WidenValues(Halves type, const std::uint16_t* from, Size ld, Size columns, float* out) {
  const Tag<float> d;
  for (int r = 0; r < R; ++r, from += ld, out += columns)
    for (Size j = 0; j < columns; j += Width<float>())
      hn::Store(type == Halves::bf16 ? RowsOfBf16::load(from + j) : RowsOfF16::load(from + j), d, out + j);
}
template <int R>
HWY_NOINLINE void NarrowAnswers(Halves type, const float* from, Size columns, std::uint16_t* out, Size ld) {
  const Tag<float> d;
  for (int r = 0; r < R; ++r, from += columns, out += ld)
    for (Size j = 0; j < columns; j += Width<float>()) {
      if (type == Halves::bf16) RowsOfBf16::store(hn::Load(d, from + j), out + j);
      else RowsOfF16::store(hn::Load(d, from + j), out + j);
    }
}

// next[r] = S' x_r of two tokens, which may be the same one
template <int NV, bool kPart, class T>
HWY_INLINE void ReadTwo(Size K, const T* x0, const T* x1, const T* S, Size lds, Size lanes, Vec<T> (&next)[2][NV]) {
  const Tag<T> d;
  TTR_UNROLL for (int v = 0; v < NV; ++v) next[0][v] = next[1][v] = hn::Zero(d);
  for (Size i = 0; i < K; ++i) {
    TTR_UNROLL for (int v = 0; v < NV; ++v) {
      const Vec<T> s = LoadMaybe<kPart>(S + i * lds + v * Width<T>(), lanes);
      next[0][v] = hn::MulAdd(hn::Set(d, x0[i]), s, next[0][v]);
      next[1][v] = hn::MulAdd(hn::Set(d, x1[i]), s, next[1][v]);
    }
  }
}

// Tokens t .. t+R-1; `next` comes with what they read and, if kMore, leaves with what the two behind them will. If kLate
// the rows of the state have a factor at the end, late[i late_step].
template <Erase kErase, Query kQuery, bool kMore, Late kLate, int R, int NV, bool kPart, class T>
HWY_INLINE void Group(const typename StateSimd<T>::Group& x, Size t, Size j, Size lanes, Place<T> from, Place<T> to,
                      Near<T> near, const T* x0, const T* x1, const T* late, Size late_step, RowBits scaled, T* o,
                      Size ldo, Vec<T> (&next)[2][NV]) {
  const Tag<T> d;
  constexpr Size L = Width<T>();
  constexpr bool kReads = kErase != Erase::none, kNext = kReads && kMore;
  constexpr bool kHalves = sizeof(T) == 4 && !kPart;
  constexpr Size kColumns = NV * L;
  HWY_ALIGN T rows_of_halves[kHalves ? R * kColumns : 1];
  // Few instructions before and behind the loop over rows: at 64 rows a hundred of them are a tenth of its time.
  const T one = 1;
  const T* values = x.v + t * x.ldv + j;
  Size ldv = x.ldv;
  if constexpr (kHalves)
    if (HWY_UNLIKELY(x.values != Halves::none)) {
      WidenValues<R>(x.values, reinterpret_cast<const std::uint16_t*>(x.v) + t * ldv + j, ldv, kColumns,
                     rows_of_halves);
      values = rows_of_halves, ldv = kColumns;
    }
  const T* const write = x.write ? x.write + t : &one;
  const T* const read_factors = x.read ? x.read + t : &one;
  const Size write_step = x.write ? 1 : 0, read_step = x.read ? 1 : 0;
  Vec<T> u[R][NV], out[R][NV], read[R][NV];
  TTR_UNROLL for (int r = 0; r < R; ++r) {
    const Vec<T> factor = hn::Set(d, write[r * write_step]);
    TTR_UNROLL for (int v = 0; v < NV; ++v) {
      u[r][v] = hn::Mul(factor, LoadMaybe<kPart>(values + r * ldv + v * L, lanes));
      out[r][v] = hn::Zero(d);
      if constexpr (kReads) {
        read[r][v] = next[r][v];
        if (r == 1) {
          read[r][v] = hn::MulAdd(hn::Set(d, near.k), u[0][v], read[r][v]);
          if (kErase == Erase::other) read[r][v] = hn::MulAdd(hn::Set(d, near.y), read[0][v], read[r][v]);
        }
        if constexpr (kErase == Erase::same)
          u[r][v] = hn::NegMulAdd(hn::Set(d, read_factors[r * read_step]), read[r][v], u[r][v]);
      }
    }
  }
  if (kReads && x.kept) {
    const T* const kept_factors = x.kept_read ? x.kept_read + t : &one;
    const Size kept_step = x.kept_read ? 1 : 0;
    TTR_UNROLL for (int r = 0; r < R; ++r) {
      TTR_UNROLL for (int v = 0; v < NV; ++v) {
        Vec<T> rest = read[r][v];
        if constexpr (kErase == Erase::same)
          rest = hn::NegMulAdd(hn::Set(d, kept_factors[r * kept_step]), rest,
                               LoadMaybe<kPart>(values + r * ldv + v * L, lanes));
        StoreMaybe<kPart>(rest, x.kept + (t + r) * x.ld_kept + j + v * L, lanes);
      }
    }
  }
  if constexpr (kNext) {
    TTR_UNROLL for (int v = 0; v < NV; ++v) next[0][v] = next[1][v] = hn::Zero(d);
  }
  // What the loop needs of x, in registers: the stores to S might change it, for all the compiler knows.
  // Three times a leading dimension has a register of its own, twice is a way to address: a pointer for every token
  // would be more than there are.
  const Size ldk = x.ldk, ldq = x.ldq, ldy = x.ldy, ldk3 = 3 * ldk, ldq3 = 3 * ldq;
  const T *k = x.k + t * ldk, *q = kQuery == Query::none ? nullptr : x.q + t * ldq;
  const T* y = kErase == Erase::other ? x.y + t * ldy : nullptr;
  const auto rows = [&](Size count, auto late_too) HWY_ATTR {
    for (; count > 0; --count) {
      Vec<T> s[NV];
      TTR_UNROLL for (int v = 0; v < NV; ++v) s[v] = LoadMaybe<kPart>(from.data + v * L, lanes);
      TTR_UNROLL for (int r = 0; r < R; ++r) {
        if constexpr (kQuery == Query::before) {
          const Vec<T> qi = hn::Set(d, q[r == 3 ? ldq3 : r * ldq]);
          TTR_UNROLL for (int v = 0; v < NV; ++v) out[r][v] = hn::MulAdd(qi, s[v], out[r][v]);
        }
        const Vec<T> ki = hn::Set(d, k[r == 3 ? ldk3 : r * ldk]);
        TTR_UNROLL for (int v = 0; v < NV; ++v) s[v] = hn::MulAdd(ki, u[r][v], s[v]);
        if constexpr (kErase == Erase::other) {
          const Vec<T> yi = hn::Set(d, y[r * ldy]);
          TTR_UNROLL for (int v = 0; v < NV; ++v) s[v] = hn::MulAdd(yi, read[r][v], s[v]);
        }
        if constexpr (kQuery == Query::after) {
          const Vec<T> qi = hn::Set(d, q[r == 3 ? ldq3 : r * ldq]);
          TTR_UNROLL for (int v = 0; v < NV; ++v) out[r][v] = hn::MulAdd(qi, s[v], out[r][v]);
        }
      }
      if constexpr (decltype(late_too)::value) {
        const Vec<T> factor = hn::Set(d, *late);
        TTR_UNROLL for (int v = 0; v < NV; ++v) s[v] = hn::Mul(factor, s[v]);
      }
      if constexpr (kNext) {
        const Vec<T> xi0 = hn::Set(d, *x0), xi1 = hn::Set(d, *x1);
        TTR_UNROLL for (int v = 0; v < NV; ++v) next[0][v] = hn::MulAdd(xi0, s[v], next[0][v]);
        TTR_UNROLL for (int v = 0; v < NV; ++v) next[1][v] = hn::MulAdd(xi1, s[v], next[1][v]);
      }
      TTR_UNROLL for (int v = 0; v < NV; ++v) StoreMaybe<kPart>(s[v], to.data + v * L, lanes);
      from.data += from.ld, to.data += to.ld, ++k;
      if constexpr (kQuery != Query::none) ++q;
      if constexpr (kErase == Erase::other) ++y;
      if constexpr (kNext) ++x0, ++x1;
      if constexpr (kLate != Late::none) late += late_step;
    }
  };
  constexpr int products = 1 + (kQuery != Query::none) + kNext + (kErase == Erase::other);
  Hints* const hints = R > 1 ? x.hints : nullptr;
  // Few places for the loop over rows: it is what there is to compile.
  for (Size left = x.K; left > 0;) {
    const Size count = hints || kLate == Late::some ? std::min(left, kRowsOfBit) : left;
    if constexpr (kLate == Late::some) {
      if (scaled & 1) rows(count, std::true_type());
      else rows(count, std::false_type());
      scaled >>= 1;
    } else {
      rows(count, std::bool_constant<kLate == Late::all>());
    }
    left -= count;
    if (hints && count == Hints::round) GiveHints(*hints, R * NV * products);
  }
  if constexpr (kQuery != Query::none) {
    const T* const answer = x.answer ? x.answer + t : &one;
    const Size answer_step = x.answer ? 1 : 0;
    TTR_UNROLL for (int r = 0; r < R; ++r) {
      const Vec<T> scale = hn::Set(d, x.scale * answer[r * answer_step]);
      TTR_UNROLL for (int v = 0; v < NV; ++v) out[r][v] = hn::Mul(scale, out[r][v]);
    }
    if (x.direct) {
      TTR_UNROLL for (int r = 0; r < R; ++r) {
        const Vec<T> direct = hn::Set(d, x.direct[t + r]);
        TTR_UNROLL for (int v = 0; v < NV; ++v) out[r][v] =
            hn::MulAdd(direct, LoadMaybe<kPart>(values + r * ldv + v * L, lanes), out[r][v]);
      }
    }
    const bool narrow = kHalves && x.answers != Halves::none;
    T* const to_rows = HWY_UNLIKELY(narrow) ? rows_of_halves : o + t * ldo + j;
    const Size ld_rows = narrow ? kColumns : ldo;
    TTR_UNROLL for (int r = 0; r < R; ++r) {
      TTR_UNROLL for (int v = 0; v < NV; ++v) StoreMaybe<kPart>(out[r][v], to_rows + r * ld_rows + v * L, lanes);
    }
    if constexpr (kHalves)
      if (HWY_UNLIKELY(narrow))
        NarrowAnswers<R>(x.answers, rows_of_halves, kColumns, reinterpret_cast<std::uint16_t*>(o) + t * ldo + j, ldo);
  }
}

// A panel of S, of which all groups but the last leave their rows in `panel`.
template <Erase kErase, Query kQuery, int NV, bool kPart, class T>
HWY_NOINLINE void GroupPanel(const typename StateSimd<T>::Group& x, const Step<T>* steps, Size count, Size j,
                             Size lanes, Place<T> S, Place<T> panel, T* o, Size ldo) {
  constexpr int R = GroupTokens<kErase>();
  constexpr bool kReads = kErase != Erase::none;
  const T one = 1;
  const Size end = steps[count - 1].t + steps[count - 1].size;
  const auto reader = [&](Size t) { return kReads ? x.x + std::min(t, end - 1) * x.ldx : nullptr; };
  Vec<T> next[2][NV];
  if constexpr (kReads) ReadTwo<NV, kPart>(x.K, reader(steps->t), reader(steps->t + 1), S.data, S.ld, lanes, next);
  Place<T> from = S;
  for (const Step<T>* step = steps; step != steps + count; ++step, from = panel) {
    const bool last = step + 1 == steps + count;
    const T* const late = step->late ? step->late : &one;
    const Size late_step = step->late ? x.late_step : 0, t = step->t;
    const T *const x0 = reader(t + step->size), *const x1 = reader(t + step->size + 1);
    const Place<T> to = last ? S : panel;
    // What is not read needs no variant of its own that leaves something for the tokens behind.
    if (step->size == R) {
      if (!last && !step->late) {
        Group<kErase, kQuery, true, Late::none, R, NV, kPart, T>(x, t, j, lanes, from, to, step->near, x0, x1,
                                                                 nullptr, 0, 0, o, ldo, next);
        continue;
      }
      if constexpr (NV == GroupVectors<kErase>() &&
                    !kPart)  // the panel behind these is one vector, and one shape less to compile
        if (step->late && step->scaled != AllRows(x.K)) {
          if (kReads && !last)
            Group<kErase, kQuery, kReads, Late::some, R, NV, kPart, T>(x, t, j, lanes, from, to, step->near, x0, x1,
                                                                       late, late_step, step->scaled, o, ldo, next);
          else
            Group<kErase, kQuery, false, Late::some, R, NV, kPart, T>(
                x, t, j, lanes, from, to, step->near, nullptr, nullptr, late, late_step, step->scaled, o, ldo, next);
          continue;
        }
      if (kReads && !last)
        Group<kErase, kQuery, kReads, Late::all, R, NV, kPart, T>(x, t, j, lanes, from, to, step->near, x0, x1, late,
                                                                  late_step, 0, o, ldo, next);
      else
        Group<kErase, kQuery, false, Late::all, R, NV, kPart, T>(x, t, j, lanes, from, to, step->near, nullptr,
                                                                 nullptr, late, late_step, 0, o, ldo, next);
    } else if (R > 2 && step->size == 2) {
      Group<kErase, kQuery, false, Late::all, 2, NV, kPart, T>(x, t, j, lanes, from, to, {}, nullptr, nullptr, late,
                                                               late_step, 0, o, ldo, next);
    } else if (kReads && !last) {
      Group<kErase, kQuery, kReads, Late::all, 1, NV, kPart, T>(x, t, j, lanes, from, to, {}, x0, x1, late, late_step,
                                                                0, o, ldo, next);
    } else {
      Group<kErase, kQuery, false, Late::all, 1, NV, kPart, T>(x, t, j, lanes, from, to, {}, nullptr, nullptr, late,
                                                               late_step, 0, o, ldo, next);
    }
  }
}

// The groups of tokens begin .. end-1, of which `frame` is the first frame that has not ended; how many they are.
template <Erase kErase, class T>
HWY_INLINE Size StepsOf(const typename StateSimd<T>::Group& x, Size begin, Size end, Size* frame, Step<T>* steps) {
  constexpr Size R = GroupTokens<kErase>();
  Size count = 0;
  for (Size t = begin; t < end; t += steps[count++].size) {
    const Size frame_end = x.frames > 0 ? x.ends[*frame] : x.n, left = std::min(frame_end, end) - t;
    Step<T>& step = steps[count] = {t, left >= R ? R : R > 2 && left >= 2 ? 2 : 1, nullptr, 0, {}};
    if (kErase != Erase::none && step.size == R) {
      const T* const reader = x.x + (t + 1) * x.ldx;
      step.near.k = Dot(x.K, reader, x.k + t * x.ldk);
      if (kErase == Erase::other) step.near.y = Dot(x.K, reader, x.y + t * x.ldy);
    }
    if (t + step.size < frame_end) continue;
    if (x.late) {  // behind the last frame all rows have a factor, or as good as all
      const T* const late = x.late + (frame_end - 1) * x.ld_late;
      step.scaled = *frame + 1 < x.frames ? ScaledRows(x.K, late, x.late_step) : AllRows(x.K);
      if (step.scaled != 0) step.late = late;
    }
    ++*frame;
  }
  return count;
}

template <Erase kErase, Query kQuery, class T>
void GroupSweepOf(const typename StateSimd<T>::Group& x, T* S, Size lds, T* o, Size ldo, T* panel) {
  constexpr Size L = Width<T>();
  constexpr int NV = GroupVectors<kErase>();
  Step<T> steps[kTokensAtOnce];
  Size frame = 0;
  for (Size begin = 0; begin < x.n; begin += kTokensAtOnce) {
    const Size end = std::min(begin + kTokensAtOnce, x.n), count = StepsOf<kErase, T>(x, begin, end, &frame, steps);
    const auto columns = [&](Size j, Size lanes, auto c) HWY_ATTR {
      using P = decltype(c);
      // Rows that lie apart, most of all a power of two, share sets of L1: a panel of them does not stay there.
      const bool move = panel && lds > P::vectors * L;
      const Place<T> there{S + j, lds}, here = move ? Place<T>{panel, P::vectors * L} : there;
      GroupPanel<kErase, kQuery, P::vectors, P::part, T>(x, steps, count, j, lanes, there, here, o, ldo);
    };
    Size j = 0;
    for (; j + NV * L <= x.V; j += NV * L) columns(j, L, Columns<NV, false>());
    if (NV > 1 && j + L <= x.V) columns(j, L, Columns<1, false>()), j += L;
    if constexpr (L > 1)
      if (j < x.V) columns(j, x.V - j, Columns<1, true>());
  }
}

template <class T>
void GroupSweep(const typename StateSimd<T>::Group& x, T* S, Size lds, T* o, Size ldo, T* panel) {
  if (has_channel_sweeps && x.y) {
    if constexpr (has_channel_sweeps) {
      if (x.q) GroupSweepOf<Erase::other, Query::after, T>(x, S, lds, o, ldo, panel);
      else GroupSweepOf<Erase::other, Query::none, T>(x, S, lds, o, ldo, panel);
    }
  } else if (x.x) {
    if (x.q) GroupSweepOf<Erase::same, Query::after, T>(x, S, lds, o, ldo, panel);
    else GroupSweepOf<Erase::same, Query::none, T>(x, S, lds, o, ldo, panel);
  } else {
    if (!x.q) GroupSweepOf<Erase::none, Query::none, T>(x, S, lds, o, ldo, panel);
    else if (x.before) GroupSweepOf<Erase::none, Query::before, T>(x, S, lds, o, ldo, panel);
    else GroupSweepOf<Erase::none, Query::after, T>(x, S, lds, o, ldo, panel);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
