// The table of state_simd.h, compiled once per instruction set (included by state_f32_simd.cc, state_f64_simd.cc).
#if defined(TTR_LINEAR_STATE_TABLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINEAR_STATE_TABLE_INL_H_
#undef TTR_LINEAR_STATE_TABLE_INL_H_
#else
#define TTR_LINEAR_STATE_TABLE_INL_H_
#endif

#include "families/linear/frames-inl.h"
#include "families/linear/groups-inl.h"
#include "families/linear/heads-inl.h"
#include "families/linear/state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

template <class T>
const StateSimd<T>* StateTable() {
  static const StateSimd<T> table = {
      .sweep = Sweep<T>,
      .gated_sweep = GatedSweep<T>,
      .group_sweep = GroupSweep<T>,
      .stream = Stream<T>,
      .write_rows = WriteRows<T>,
      .flush = Flush,
      .column_dots = ColumnDots<T>,
      .gate_factors = GateFactors<T>,
      .gate_frames = GateFrames<T>,
      .gate_rows = GateRowsOf<T>,
      .gate_centres = GateCentres<T>,
      .sweep_heads = SweepHeads<T>,
      .gated_heads = GatedHeads<T>,
      .momentum_heads = MomentumHeads<T>,
  };
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
