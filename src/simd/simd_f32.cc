// The primitives for float, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/simd_f32.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "simd/groups-inl.h"
#include "simd/heads-inl.h"
#include "simd/simd.h"
#include "simd/vectors-inl.h"

#if HWY_ONCE
#include "simd/choose-inl.h"

namespace ttr::simd_detail {
template <>
const Simd<float>* table<float>(long long target) {
  return choose<float>(target);
}
}  // namespace ttr::simd_detail
#endif
