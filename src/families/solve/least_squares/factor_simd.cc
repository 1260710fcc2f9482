// The table of factor_simd.h, compiled once per instruction set; in double only, as least squares is.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/solve/least_squares/factor_simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "families/solve/least_squares/factor-inl.h"
#include "hwy/highway.h"

#if HWY_ONCE
#include "simd/dispatch.h"
TTR_SIMD_TABLE(double, FactorSimd, FactorTable, factor_simd)
#endif
