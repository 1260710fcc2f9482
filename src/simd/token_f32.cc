// The per-token operations for float, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/token_f32.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "simd/token_pairs-inl.h"

#if HWY_ONCE
#include "simd/dispatch.h"

namespace ttr {
namespace {
template <class T>
const TokenSimd<T>* table_for(long long target) noexcept {
  TTR_TABLE_OF(target, TokenTable)
}
}  // namespace
template <>
const TokenSimd<float>& token_simd<float>(const Simd<float>* simd) noexcept {
  if (simd) return *table_for<float>(simd->target);
  static const TokenSimd<float>& best = [&]() -> const TokenSimd<float>& {
    const long long supported = hwy::SupportedTargets() & HWY_TARGETS;  // a lower bit is a better target
    return *table_for<float>(supported & -supported);
  }();
  return best;
}
}  // namespace ttr
#endif
