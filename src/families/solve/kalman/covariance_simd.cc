// The table of covariance_simd.h, compiled once per instruction set; in double only, as the filter is.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/solve/kalman/covariance_simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "families/solve/kalman/covariance-inl.h"
#include "hwy/highway.h"

#if HWY_ONCE
#include "simd/dispatch.h"
TTR_SIMD_TABLE(double, CovarianceSimd, CovarianceTable, covariance_simd)
#endif
