// The table of state_simd.h, compiled once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "families/linear/state_simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "families/linear/groups-inl.h"
#include "families/linear/heads-inl.h"
#include "families/linear/state-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

template <class T>
const StateSimd<T>* StateTable() {
  static const StateSimd<T> table = {
      .sweep = Sweep<T>,
      .gated_sweep = GatedSweep<T>,
      .group_sweep = GroupSweep<T>,
      .sweep_heads = SweepHeads<T>,
      .gated_heads = GatedHeads<T>,
      .momentum_heads = MomentumHeads<T>,
  };
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "simd/dispatch.h"
TTR_SIMD_TABLES(StateSimd, StateTable, state_simd)
#endif
