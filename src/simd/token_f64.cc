// The per-token operations for double, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/token_f64.cc"
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
const TokenSimd<double>& token_simd<double>(const Simd<double>* simd) noexcept {
  if (simd) return *table_for<double>(simd->target);
  static const TokenSimd<double>& best = [&]() -> const TokenSimd<double>& {
    const long long supported = hwy::SupportedTargets() & HWY_TARGETS;  // a lower bit is a better target
    return *table_for<double>(supported & -supported);
  }();
  return best;
}
}  // namespace ttr
#endif
