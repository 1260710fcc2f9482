// The table of kept_simd.h, compiled once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/pairs/attention/kept_simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "families/pairs/attention/kept-inl.h"
#include "hwy/highway.h"

#if HWY_ONCE
#include "simd/dispatch.h"

namespace ttr {
namespace {
template <class T>
const KeptSimd* table_for(long long target) noexcept {  // there is one, of float arithmetic
  TTR_TABLE_OF(target, KeptTable)
}
}  // namespace
const KeptSimd& kept_simd(const Simd<float>& simd) noexcept {
  const KeptSimd& table = *table_for<float>(simd.target);
  return simd.counted ? counted_table(table) : table;
}
}  // namespace ttr
#endif
