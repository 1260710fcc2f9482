// The table of convolution_simd.h, compiled once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/elementwise/convolution/convolution_simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "families/elementwise/convolution/convolution-inl.h"
#include "hwy/highway.h"

#if HWY_ONCE
#include "simd/dispatch.h"
TTR_SIMD_TABLES(ConvolutionSimd, ConvolutionTable, convolution_simd)
#endif
