// Rows of numbers at any stride, vector by vector, for formulas that are compiled once per instruction set.
//
// A loop has one body for whole vectors and for the rest of a row: how many lanes count is a number, not a type, and
// whatever is not a whole vector of neighbours goes through a function that is not inlined. A copy of the body for each
// way to load and store would make some fifty formulas in two directions twice as long to compile. Lanes beyond the end
// of a row hold 0.
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

/// How many lanes a vector must have to be loaded or stored as it lies in memory: as many as there are; where numbers
/// are not neighbours more than that, which is never.
template <class T>
HWY_INLINE Size LeastLanes(Size step) {
  return step == 1 ? Width<T>() : Width<T>() + 1;
}

/// f(offset, lanes) for every vector of a row of n numbers.
template <class T, class F>
HWY_INLINE void ForLanes(Size n, const F& f) {
  constexpr Size L = Width<T>();
  for (Size i = 0; i < n; i += L) f(i, n - i < L ? n - i : L);
}

/// Zero beyond the end of the row, for sums.
template <class T>
HWY_INLINE Num<T> Inside(Num<T> v, Size lanes) {
  if (HWY_LIKELY(lanes == Width<T>())) return v;
  return hn::IfThenElseZero(hn::FirstN(Tag<T>(), static_cast<size_t>(lanes)), v.v);
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
  Size step = 0, least = 0;
  explicit operator bool() const { return data != nullptr; }
  HWY_INLINE Num<T> at(Size i, Size lanes) const {
    if (HWY_LIKELY(lanes >= least)) return hn::LoadU(Tag<T>(), data + i);
    return LoadLanes<T>(data + i * step, step, lanes);
  }
  HWY_INLINE Num<T> at(Size i, Size lanes, T absent) const { return data ? at(i, lanes) : Num<T>(absent); }
  HWY_INLINE void set(Num<T> v, Size i, Size lanes) const {
    if (HWY_LIKELY(lanes >= least)) hn::StoreU(v.v, Tag<T>(), data + i);
    else StoreLanes<T>(v.v, data + i * step, step, lanes);
  }
  HWY_INLINE void add(Num<T> v, Size i, Size lanes) const {
    if (HWY_LIKELY(lanes >= least)) hn::StoreU(hn::Add(hn::LoadU(Tag<T>(), data + i), v.v), Tag<T>(), data + i);
    else AddLanes<T>(v.v, data + i * step, step, lanes);
  }
};
template <class N>
HWY_INLINE Line<N> RowOf(const typename Job<std::remove_const_t<N>>::template Side<N>& side, Size r) {
  return {side.data ? side.data + r * side.row : nullptr, side.step, LeastLanes<std::remove_const_t<N>>(side.step)};
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
