// The per-token operations that take a row together for float, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "prepare/rows_f32.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "prepare/pairs-inl.h"

#if HWY_ONCE
#include "simd/dispatch.h"

namespace ttr::prepare {
namespace {
template <class T>
const TokenTable<T>* table_for(long long target) noexcept {
  TTR_TABLE_OF(target, RowTable)
}
}  // namespace
template <>
const TokenTable<float>& row_table<float>(long long target) noexcept {
  return *table_for<float>(target);
}
}  // namespace ttr::prepare
#endif
