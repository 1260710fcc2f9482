// Which of Highway's instruction sets are compiled; before its headers, in every file that is compiled once per set.
//
// Not the scalable vectors (see tiles-inl.h), and not SSSE3: a machine without SSE4 (before 2008) runs SCALAR. Sanitizer
// builds have AVX2 and SCALAR alone, which halves their time.
#pragma once

#ifdef TTR_FEW_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL)
#else
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3)
#endif
