// The conversions between float and half types, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/half_f32.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "simd/half-inl.h"

#if HWY_ONCE
namespace ttr {
namespace {
template <class T>
using HalfTableType = HalfSimd;  // there is one, from and to float
}  // namespace
}  // namespace ttr
#define TTR_TABLE_TYPE HalfTableType
#define TTR_TABLE HalfTable
#include "simd/named_choose-inl.h"

namespace ttr {
const HalfSimd& half_simd(const Simd<float>& simd) noexcept { return simd_detail::choose_by_name<float>(simd.name); }
}  // namespace ttr
#endif
