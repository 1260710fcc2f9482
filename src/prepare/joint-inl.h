// The operations of joint.h on vectors (included by joint.cc). Every number comes by the same roundings as in the
// operations by themselves (tests/joint_keys_test.cc).
#if defined(TTR_PREPARE_JOINT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_PREPARE_JOINT_INL_H_
#undef TTR_PREPARE_JOINT_INL_H_
#else
#define TTR_PREPARE_JOINT_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "prepare/joint.h"
#include "prepare/lines-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

template <class N>
HWY_INLINE Line<N> LineOf(const prepare::Rows<N>& rows, Size b, Size t, Size h) {
  if (!rows.data) return {nullptr, rows.inner};
  // Eleven divisions a head would take as long as its numbers.
  return {rows.data + b * rows.batch + t * rows.time + (rows.group == 1 ? h : h / rows.group) * rows.head,
          rows.inner};
}

// The row of the next token: rows are shorter than a page, at whose end the processor's own prefetches stop.
template <class T>
HWY_INLINE void FetchNext(const prepare::Rows<const T>& rows, const Line<const T>& line, Size width) {
  if (line && rows.time != 0 && rows.inner == 1) PrefetchRow(line.data + rows.time, width);
}

template <class T>
void JointKeysOf(const prepare::JointKeys<T>& x, const prepare::Extent& extent) {
  const Size K = x.read.width, V = x.bonus.width;
  const bool answers = x.bonus.data != nullptr;
  const T floor = static_cast<T>(x.floor);
  for (Size b = 0; b < extent.batch; ++b)
    for (Size t = 0; t < extent.time; ++t)
      for (Size h = 0; h < extent.heads; ++h) {
        const Line<const T> raw = LineOf(x.raw, b, t, h), scale = LineOf(x.scale, b, t, h),
                            rate = LineOf(x.rate, b, t, h), blend = LineOf(x.blend, b, t, h),
                            query = LineOf(x.query, b, t, h), weight = LineOf(x.weight, b, t, h),
                            value = LineOf(x.value, b, t, h);
        const Line<T> read = LineOf(x.read, b, t, h), write = LineOf(x.write, b, t, h),
                      erase = LineOf(x.erase, b, t, h), bonus = LineOf(x.bonus, b, t, h);
        const bool close = Close(raw, scale, rate, blend, query, weight, value) && Close(read, write, erase, bonus);
        if (t + 1 < extent.time)
          FetchNext(x.raw, raw, K), FetchNext(x.rate, rate, K), FetchNext(x.query, query, K),
              FetchNext(x.value, value, V);
        Num<T> squares, along;
        ForLanes<T>(K, close, [&](Size i, auto lanes) HWY_ATTR {
          const Num<T> at = raw.at(i, lanes), n = at * scale.at(i, lanes);
          const Num<T> k = at * fma(rate.at(i, lanes) - 1, blend.at(i, lanes), Num<T>(T(1)));
          squares = squares + Inside(n * n, lanes);
          read.set(n, i, lanes);  // kept there for the second pass
          write.set(k, i, lanes);
          if (answers) along = along + Inside(query.at(i, lanes) * k * weight.at(i, lanes), lanes);
        });
        const T longest = std::max(std::sqrt(SumUp(squares)), floor);
        ForLanes<T>(K, close, [&](Size i, auto lanes) HWY_ATTR {
          const Num<T> n = longest == 0 ? Num<T>(T(0)) : read.at(i, lanes) / longest;
          read.set(n, i, lanes);
          erase.set(-(n * rate.at(i, lanes)), i, lanes);
        });
        if (!answers) continue;
        const Num<T> w = SumUp(along);
        ForLanes<T>(V, close, [&](Size i, auto lanes) HWY_ATTR { bonus.set(w * value.at(i, lanes), i, lanes); });
      }
}

template <class T>
const JointSimd<T>* JointTable() {
  static constexpr JointSimd<T> table{JointKeysOf<T>};
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
