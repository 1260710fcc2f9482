// The table of neural_simd.h, compiled once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/network/neural/neural_simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "families/network/neural/neural-inl.h"
#include "hwy/highway.h"

#if HWY_ONCE
#include "simd/dispatch.h"
TTR_SIMD_TABLES(NeuralSimd, NeuralTable, neural_simd)
#endif
