// The primitives for float, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/simd_f32.cc"
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
const Simd<float>* table<float>(long long target) {
  return table_for<float>(target);
}
}  // namespace ttr::simd_detail
#endif
