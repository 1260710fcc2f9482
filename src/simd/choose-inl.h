// From a Highway target bit to the table compiled for it. Highway's own dispatch picks per call; a plan picks once
// and must be able to force a target, so the choice is a plain switch.
#pragma once

#include "hwy/highway.h"
#include "simd/simd.h"

namespace ttr::simd_detail {

template <class T>
const Simd<T>* choose(long long target) {
  switch (target) {
#if HWY_TARGETS & HWY_AVX3_DL
    case HWY_AVX3_DL:
      return N_AVX3_DL::Table<T>();
#endif
#if HWY_TARGETS & HWY_AVX3
    case HWY_AVX3:
      return N_AVX3::Table<T>();
#endif
#if HWY_TARGETS & HWY_AVX2
    case HWY_AVX2:
      return N_AVX2::Table<T>();
#endif
#if HWY_TARGETS & HWY_SSE4
    case HWY_SSE4:
      return N_SSE4::Table<T>();
#endif
#if HWY_TARGETS & HWY_SSSE3
    case HWY_SSSE3:
      return N_SSSE3::Table<T>();
#endif
#if HWY_TARGETS & HWY_NEON
    case HWY_NEON:
      return N_NEON::Table<T>();
#endif
#if HWY_TARGETS & HWY_PPC8
    case HWY_PPC8:
      return N_PPC8::Table<T>();
#endif
#if HWY_TARGETS & HWY_WASM
    case HWY_WASM:
      return N_WASM::Table<T>();
#endif
#if HWY_TARGETS & HWY_EMU128
    case HWY_EMU128:
      return N_EMU128::Table<T>();
#endif
#if HWY_TARGETS & HWY_SCALAR
    case HWY_SCALAR:
      return N_SCALAR::Table<T>();
#endif
    default:
      return nullptr;
  }
}

}  // namespace ttr::simd_detail
