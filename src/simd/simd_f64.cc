// The primitives for double, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/simd_f64.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "simd/simd.h"
#include "simd/table-inl.h"

#if HWY_ONCE
#include "simd/dispatch.h"

namespace ttr::simd_detail {
namespace {
template <class T>
const Simd<T>* table_for(long long target) {
  TTR_TABLE_OF(target, Table)
}
}  // namespace
template <>
const Simd<double>* table<double>(long long target) {
  return table_for<double>(target);
}
}  // namespace ttr::simd_detail
#endif
