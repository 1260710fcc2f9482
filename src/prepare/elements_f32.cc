// The per-token operations that take every element by itself for float, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "prepare/elements_f32.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "prepare/elements-inl.h"

#if HWY_ONCE
#include "simd/dispatch.h"

namespace ttr::prepare {
namespace {
template <class T>
const TokenTable<T>* table_for(long long target) noexcept {
  TTR_TABLE_OF(target, ElementTable)
}
}  // namespace
template <>
const TokenTable<float>& element_table<float>(long long target) noexcept {
  return *table_for<float>(target);
}
long long best_token_target() noexcept {
  static const long long best = [] {
    const long long supported = hwy::SupportedTargets() & HWY_TARGETS;  // a lower bit is a better target
    return supported & -supported;
  }();
  return best;
}
}  // namespace ttr::prepare
#endif
