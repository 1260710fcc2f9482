// The table of compact_simd.h, compiled once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/pairs/attention/compact_simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "families/pairs/attention/compact-inl.h"
#include "hwy/highway.h"

#if HWY_ONCE
#include "simd/dispatch.h"

namespace ttr {
namespace {
template <class T>
const CompactSimd* table_for(long long target) noexcept {  // there is one, of float arithmetic
  TTR_TABLE_OF(target, CompactTable)
}
}  // namespace
const CompactSimd& compact_simd(const Simd<float>& simd) noexcept { return *table_for<float>(simd.target); }
}  // namespace ttr
#endif
