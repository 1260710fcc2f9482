// The table of local_linear_simd.h, compiled once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/pairs/local_linear/local_linear_simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "families/pairs/local_linear/local_linear-inl.h"
#include "hwy/highway.h"

#if HWY_ONCE
#include "simd/dispatch.h"
TTR_SIMD_TABLES(LocalLinearSimd, LocalLinearTable, local_linear_simd)
#endif
