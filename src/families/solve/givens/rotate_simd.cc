// The table of rotate_simd.h, compiled once per instruction set; in double only, as least squares is.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/solve/givens/rotate_simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "families/solve/givens/rotate-inl.h"
#include "hwy/highway.h"

#if HWY_ONCE
#include "simd/dispatch.h"
TTR_SIMD_TABLE(double, RotateSimd, RotateTable, rotate_simd)
#endif
