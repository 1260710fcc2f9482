// The conversions between float and half types, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/half_f32.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "simd/half-inl.h"

#if HWY_ONCE
#include "simd/dispatch.h"

namespace ttr {
namespace {
template <class T>
const HalfSimd* table_for(long long target) noexcept {  // there is one, from and to float
  TTR_TABLE_OF(target, HalfTable)
}
}  // namespace
const HalfSimd& half_simd(const Simd<float>& simd) noexcept { return *table_for<float>(simd.target); }
}  // namespace ttr
#endif
