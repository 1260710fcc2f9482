// The primitives of attention for double, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/attention_f64.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "simd/attention-inl.h"

#if HWY_ONCE
#define TTR_TABLE_TYPE AttentionSimd
#define TTR_TABLE AttentionTable
#include "simd/named_choose-inl.h"

namespace ttr {
template <>
const AttentionSimd<double>& attention_simd<double>(const Simd<double>& simd) noexcept {
  return simd_detail::choose_by_name<double>(simd.name);
}
}  // namespace ttr
#endif
