// The table of attention_simd.h, compiled once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/pairs/attention/attention_simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "families/pairs/attention/attention-inl.h"
#include "hwy/highway.h"

#if HWY_ONCE
#include "simd/dispatch.h"
TTR_SIMD_TABLES(AttentionSimd, AttentionTable, attention_simd)
#endif
