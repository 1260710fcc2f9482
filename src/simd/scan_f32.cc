// The scan primitives for float, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/scan_f32.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "simd/scan-inl.h"

#if HWY_ONCE
#define TTR_TABLE_TYPE ScanSimd
#define TTR_TABLE ScanTable
#include "simd/named_choose-inl.h"

namespace ttr {
template <>
const ScanSimd<float>& scan_simd<float>(const Simd<float>& simd) noexcept {
  return simd_detail::choose_by_name<float>(simd.name);
}
}  // namespace ttr
#endif
