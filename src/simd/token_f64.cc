// The per-token operations for double, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/token_f64.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "simd/token_pairs-inl.h"

#if HWY_ONCE
#define TTR_TABLE_TYPE TokenSimd
#define TTR_TABLE TokenTable
#include "simd/named_choose-inl.h"

namespace ttr {
template <>
const TokenSimd<double>& token_simd<double>(const Simd<double>* simd) noexcept {
  if (simd) return simd_detail::choose_by_name<double>(simd->name);
  static const TokenSimd<double>& best = [&]() -> const TokenSimd<double>& {
    const long long supported = hwy::SupportedTargets() & HWY_TARGETS;  // a lower bit is a better target
    return simd_detail::choose_by_name<double>(hwy::TargetName(supported & -supported));
  }();
  return best;
}
}  // namespace ttr
#endif
