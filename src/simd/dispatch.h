// From an instruction set to the table that was compiled for it. Highway's own dispatch picks per call; a plan picks
// once and must be able to force a set, so the choice is a plain switch. Included once (HWY_ONCE) by a file that is
// compiled once per set:
//
//   TTR_SIMD_TABLES(ScanSimd, ScanTable, scan_simd)
//
// defines scan_simd<T>(const Simd<T>&), the table ScanTable<T>() of the instruction set of its argument.
#pragma once

#include "hwy/highway.h"
#include "simd/count.h"
#include "simd/simd.h"
#include "simd/targets.h"

// A set that targets.h lets through and that has no case below would be a plan without kernels.
static_assert((HWY_TARGETS &
               ~(HWY_AVX3 | HWY_AVX2 | HWY_SSE4 | HWY_NEON | HWY_PPC8 | HWY_WASM | HWY_EMU128 | HWY_SCALAR)) == 0,
              "simd/dispatch.h has no case for an instruction set that simd/targets.h lets through");

#define TTR_TARGET_CASE(TARGET, Table) \
  case HWY_##TARGET:                   \
    return ttr::simd_detail::N_##TARGET::Table<T>();
#if HWY_TARGETS & HWY_AVX3
#define TTR_CASE_AVX3(Table) TTR_TARGET_CASE(AVX3, Table)
#else
#define TTR_CASE_AVX3(Table)
#endif
#if HWY_TARGETS & HWY_AVX2
#define TTR_CASE_AVX2(Table) TTR_TARGET_CASE(AVX2, Table)
#else
#define TTR_CASE_AVX2(Table)
#endif
#if HWY_TARGETS & HWY_SSE4
#define TTR_CASE_SSE4(Table) TTR_TARGET_CASE(SSE4, Table)
#else
#define TTR_CASE_SSE4(Table)
#endif
#if HWY_TARGETS & HWY_NEON
#define TTR_CASE_NEON(Table) TTR_TARGET_CASE(NEON, Table)
#else
#define TTR_CASE_NEON(Table)
#endif
#if HWY_TARGETS & HWY_PPC8
#define TTR_CASE_PPC8(Table) TTR_TARGET_CASE(PPC8, Table)
#else
#define TTR_CASE_PPC8(Table)
#endif
#if HWY_TARGETS & HWY_WASM
#define TTR_CASE_WASM(Table) TTR_TARGET_CASE(WASM, Table)
#else
#define TTR_CASE_WASM(Table)
#endif
#if HWY_TARGETS & HWY_EMU128
#define TTR_CASE_EMU128(Table) TTR_TARGET_CASE(EMU128, Table)
#else
#define TTR_CASE_EMU128(Table)
#endif
#if HWY_TARGETS & HWY_SCALAR
#define TTR_CASE_SCALAR(Table) TTR_TARGET_CASE(SCALAR, Table)
#else
#define TTR_CASE_SCALAR(Table)
#endif

/// The body of a function of T and `target`: the address of Table<T> of that set. The last return is never reached by a
/// target that simd_targets() lists; it is the baseline, which runs everywhere.
#define TTR_TABLE_OF(target, Table)                                                                              \
  switch (target) {                                                                                              \
    TTR_CASE_AVX3(Table)                                                                                         \
    TTR_CASE_AVX2(Table)                                                                                         \
    TTR_CASE_SSE4(Table)                                                                                         \
    TTR_CASE_NEON(Table) TTR_CASE_PPC8(Table) TTR_CASE_WASM(Table) TTR_CASE_EMU128(Table) TTR_CASE_SCALAR(Table) \
  }                                                                                                              \
  return ttr::simd_detail::HWY_NAMESPACE::Table<T>();

/// Defines simd_detail::function<T>(target), the table Table<T>() of that set: the parts a Simd is made of.
#define TTR_TARGET_TABLE(Number, Type, Table, function)                               \
  namespace ttr::simd_detail {                                                        \
  template <>                                                                         \
  const Type<Number>& function<Number>(long long target) {                            \
    using T = Number;                                                                 \
    const auto find = [](long long of) -> const Type<T>* { TTR_TABLE_OF(of, Table) }; \
    return *find(target);                                                             \
  }                                                                                   \
  }

/// What the example above defines, for one type: where both types in one file would take too long to compile.
#define TTR_SIMD_TABLE(Number, Type, Table, function)                                 \
  namespace ttr {                                                                     \
  template <>                                                                         \
  const Type<Number>& function<Number>(const Simd<Number>& simd) noexcept {           \
    using T = Number;                                                                 \
    const auto find = [](long long of) -> const Type<T>* { TTR_TABLE_OF(of, Table) }; \
    const Type<T>& table = *find(simd.target);                                        \
    return simd.counted ? simd_detail::counted_or_noted(table) : table;               \
  }                                                                                   \
  }
#define TTR_SIMD_TABLES(Type, Table, function) \
  TTR_SIMD_TABLE(float, Type, Table, function) \
  TTR_SIMD_TABLE(double, Type, Table, function)
