// The table of scan_simd.h, compiled once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/elementwise/scan_simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "families/elementwise/scan-inl.h"
#include "hwy/highway.h"

#if HWY_ONCE
#include "simd/dispatch.h"
TTR_SIMD_TABLES(ScanSimd, ScanTable, scan_simd)
#endif
