// The products of simd.h for float, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/products_f32.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "simd/tiles-inl.h"

#if HWY_ONCE
#include "simd/dispatch.h"
TTR_TARGET_TABLE(float, Products, ProductsTable, products)
#endif
