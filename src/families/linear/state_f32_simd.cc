// The table of state_simd.h for float, compiled once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/linear/state_f32_simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "families/linear/state_table-inl.h"
#include "hwy/highway.h"

#if HWY_ONCE
#include "simd/dispatch.h"
TTR_SIMD_TABLE(float, StateSimd, StateTable, state_simd)
#endif
