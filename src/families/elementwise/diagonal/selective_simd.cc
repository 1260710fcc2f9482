// The table of selective_simd.h, compiled once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/elementwise/diagonal/selective_simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "families/elementwise/diagonal/selective-inl.h"
#include "hwy/highway.h"

#if HWY_ONCE
#include "simd/dispatch.h"
TTR_SIMD_TABLES(SelectiveSimd, SelectiveTable, selective_simd)
#endif
