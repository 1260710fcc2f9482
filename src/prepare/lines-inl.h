// Rows of numbers at any stride, vector by vector, for formulas that are compiled once per instruction set.
//
// A loop has two bodies: for whole vectors of neighbours, without a branch, and for everything else - the rest of a row,
// strides - through functions that are not inlined. A copy of the body for each way to load and store would make some
// fifty formulas in two directions twice as long to compile. Lanes beyond the end of a row hold 0.
#if defined(TTR_PREPARE_LINES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_PREPARE_LINES_INL_H_
#undef TTR_PREPARE_LINES_INL_H_
#else
#define TTR_PREPARE_LINES_INL_H_
#endif

#include <type_traits>
#include <utility>

#include "prepare/token_simd.h"
#include "simd/numbers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

template <class T>
using Job = prepare::TokenJob<T>;

/// The first `lanes` of p[0], p[step], p[2 step], ...
template <class T>
HWY_NOINLINE Vec<T> LoadLanes(const T* p, Size step, Size lanes) {
  const Tag<T> d;
  if (step == 1) return LoadPart(p, lanes);
  if (step == 0) return hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(lanes)), hn::Set(d, *p));
  HWY_ALIGN T buffer[hn::MaxLanes(d)] = {};
  for (Size i = 0; i < lanes; ++i) buffer[i] = p[i * step];
  return hn::Load(d, buffer);
}
template <class T>
HWY_NOINLINE void StoreLanes(Vec<T> v, T* p, Size step, Size lanes) {
  const Tag<T> d;
  if (step == 1) return StorePart(v, p, lanes);
  HWY_ALIGN T buffer[hn::MaxLanes(d)];
  hn::Store(v, d, buffer);
  for (Size i = 0; i < lanes; ++i) p[i * step] = buffer[i];
}
template <class T>
HWY_NOINLINE void AddLanes(Vec<T> v, T* p, Size step, Size lanes) {
  StoreLanes<T>(hn::Add(LoadLanes(p, step, lanes), v), p, step, lanes);
}

/// How many lanes of a vector count: all of them, and numbers are neighbours; or some number, at any stride.
struct AllLanes {
  static constexpr bool whole = true;
};
struct SomeLanes {
  static constexpr bool whole = false;
  Size count;
};

/// f(offset, lanes) for every vector of a row of n numbers. `close`: numbers are neighbours wherever f looks.
template <class T, class F>
HWY_INLINE void ForLanes(Size n, bool close, const F& f) {
  constexpr Size L = Width<T>();
  Size i = 0;
  if constexpr (L > 1)
    if (HWY_LIKELY(close))
      for (; i + L <= n; i += L) f(i, AllLanes());
  for (; i < n; i += L) f(i, SomeLanes{n - i < L ? n - i : L});
}

/// Zero beyond the end of the row, for sums.
template <class T, class Lanes>
HWY_INLINE Num<T> Inside(Num<T> v, Lanes lanes) {
  if constexpr (Lanes::whole || Width<T>() == 1) return v;
  else return hn::IfThenElseZero(hn::FirstN(Tag<T>(), static_cast<size_t>(lanes.count)), v.v);
}
template <class T>
HWY_INLINE T SumUp(Num<T> v) {
  return hn::GetLane(hn::SumOfLanes(Tag<T>(), v.v));
}

/// A row of an operand, of the result or of a gradient.
template <class N>
struct Line {
  using T = std::remove_const_t<N>;
  N* data = nullptr;
  Size step = 0;
  explicit operator bool() const { return data != nullptr; }
  template <class Lanes>
  HWY_INLINE Num<T> at(Size i, Lanes lanes) const {
    if constexpr (Lanes::whole) return hn::LoadU(Tag<T>(), data + i);
    else return LoadLanes<T>(data + i * step, step, lanes.count);
  }
  template <class Lanes>
  HWY_INLINE Num<T> at(Size i, Lanes lanes, T absent) const {
    return data ? at(i, lanes) : Num<T>(absent);
  }
  template <class Lanes>
  HWY_INLINE void set(Num<T> v, Size i, Lanes lanes) const {
    if constexpr (Lanes::whole) hn::StoreU(v.v, Tag<T>(), data + i);
    else StoreLanes<T>(v.v, data + i * step, step, lanes.count);
  }
  template <class Lanes>
  HWY_INLINE void add(Num<T> v, Size i, Lanes lanes) const {
    if constexpr (Lanes::whole) hn::StoreU(hn::Add(hn::LoadU(Tag<T>(), data + i), v.v), Tag<T>(), data + i);
    else AddLanes<T>(v.v, data + i * step, step, lanes.count);
  }
};
template <class N>
HWY_INLINE Line<N> RowOf(const typename Job<std::remove_const_t<N>>::template Side<N>& side, Size r) {
  return {side.data ? side.data + r * side.row : nullptr, side.step};
}
/// Whether the numbers of all lines are neighbours. (A gradient that is one number for the row is a sum: see AddTo.)
template <class... N>
HWY_INLINE bool Close(const Line<N>&... line) {
  return ((!line.data || line.step == 1 || (!std::is_const_v<N> && line.step == 0)) && ...);
}

/// The table of the operations of one kind: Calls<T, op> has the forward and the backward of a formula.
template <class T, prepare::Kind kind, template <class, prepare::Op> class Calls>
constexpr prepare::TokenTable<T> TableOf() {
  prepare::TokenTable<T> table;
  const auto add = [&]<int i>(std::integral_constant<int, i>) {
    constexpr prepare::Op op = static_cast<prepare::Op>(i);
    if constexpr (prepare::facts(op).kind == kind) {
      using Formula = Calls<T, prepare::formula_of(op)>;
      table.call[i] = {Formula::forward, Formula::backward};
    }
  };
  [&]<int... i>(std::integer_sequence<int, i...>) { (add(std::integral_constant<int, i>()), ...); }
  (std::make_integer_sequence<int, prepare::op_count>());
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
