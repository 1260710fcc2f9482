// The per-token operations for float, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/token_f32.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "simd/token_pairs-inl.h"

#if HWY_ONCE
#define TTR_TABLE_TYPE TokenSimd
#define TTR_TABLE TokenTable
#include "simd/named_choose-inl.h"

namespace ttr {
template <>
const TokenSimd<float>& token_simd<float>(const Simd<float>* simd) noexcept {
  if (simd) return simd_detail::choose_by_name<float>(simd->name);
  static const TokenSimd<float>& best = [&]() -> const TokenSimd<float>& {
    const long long supported = hwy::SupportedTargets() & HWY_TARGETS;  // a lower bit is a better target
    return simd_detail::choose_by_name<float>(hwy::TargetName(supported & -supported));
  }();
  return best;
}
}  // namespace ttr
#endif
