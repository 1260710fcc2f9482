// The per-token operations that take every element by itself for double, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "prepare/elements_f64.cc"
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
const TokenTable<double>& element_table<double>(long long target) noexcept {
  return *table_for<double>(target);
}
}  // namespace ttr::prepare
#endif
