// From the name of an instruction set to the table compiled for it, for tables beside Simd (see choose-inl.h). Before
// including it once, define TTR_TABLE_TYPE (ScanSimd) and TTR_TABLE (ScanTable).
#pragma once

#include <cstring>

#include "hwy/highway.h"
#include "hwy/targets.h"

namespace ttr::simd_detail {

template <class T>
const TTR_TABLE_TYPE<T>& choose_by_name(const char* name) noexcept {
#define TTR_TRY(TARGET) \
  if (std::strcmp(name, hwy::TargetName(HWY_##TARGET)) == 0) return *N_##TARGET::TTR_TABLE<T>();
#if HWY_TARGETS & HWY_AVX3_DL
  TTR_TRY(AVX3_DL)
#endif
#if HWY_TARGETS & HWY_AVX3
  TTR_TRY(AVX3)
#endif
#if HWY_TARGETS & HWY_AVX2
  TTR_TRY(AVX2)
#endif
#if HWY_TARGETS & HWY_SSE4
  TTR_TRY(SSE4)
#endif
#if HWY_TARGETS & HWY_SSSE3
  TTR_TRY(SSSE3)
#endif
#if HWY_TARGETS & HWY_NEON
  TTR_TRY(NEON)
#endif
#if HWY_TARGETS & HWY_PPC8
  TTR_TRY(PPC8)
#endif
#if HWY_TARGETS & HWY_WASM
  TTR_TRY(WASM)
#endif
#undef TTR_TRY
  return *HWY_NAMESPACE::TTR_TABLE<T>();  // the last target compiled: the baseline, which runs everywhere
}

}  // namespace ttr::simd_detail
