// The primitives of local linear attention for float, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/local_linear_f32.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "simd/local_linear-inl.h"

#if HWY_ONCE
#define TTR_TABLE_TYPE LocalLinearSimd
#define TTR_TABLE LocalLinearTable
#include "simd/named_choose-inl.h"

namespace ttr {
template <>
const LocalLinearSimd<float>& local_linear_simd<float>(const Simd<float>& simd) noexcept {
  return simd_detail::choose_by_name<float>(simd.name);
}
}  // namespace ttr
#endif
