// The primitives for double, once per instruction set.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)  // see tiles-inl.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/simd_f64.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "simd/heads-inl.h"
#include "simd/simd.h"
#include "simd/vectors-inl.h"

#if HWY_ONCE
#include "simd/choose-inl.h"

namespace ttr::simd_detail {
template <>
const Simd<double>* table<double>(long long target) {
  return choose<double>(target);
}
}  // namespace ttr::simd_detail
#endif
