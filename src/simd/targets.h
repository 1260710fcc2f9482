// Which of Highway's instruction sets are compiled; before its headers, in every file that is compiled once per set.
//
// The sets are named here and no others: a newer Highway that knows a better one still picks from this list, so that
// dispatch.h has a table for whatever it picks. Scalable vectors are not among them (see tiles-inl.h), nor SSSE3: a
// machine without SSE4 (before 2008) runs the baseline. Of the sets of x86, TTR_TARGETS (a CMake option) says which are
// wanted; the baseline of the compiler is always there.
#pragma once

#define TTR_BASELINES (HWY_SCALAR | HWY_EMU128 | HWY_NEON | HWY_PPC8 | HWY_WASM)
#ifndef TTR_TARGETS
#define TTR_TARGETS (HWY_SSE4 | HWY_AVX2 | HWY_AVX3)
#endif
#define HWY_DISABLED_TARGETS (~(TTR_BASELINES | TTR_TARGETS))
