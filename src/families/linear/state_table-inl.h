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
StateSimd<T> MakeStateTable() {
  StateSimd<T> table{};
  table.sweep = Sweep<T>;
  table.group_sweep = GroupSweep<T>;
  table.stream = Stream<T>;
  table.write_rows = WriteRows<T>;
  table.flush = Flush;
  table.column_dots = ColumnDots<T>;
  table.turn_states = TurnStates<T>;
  table.gate_factors = GateFactors<T>;
  table.gate_frames = GateFrames<T>;
  table.gate_rows = GateRowsOf<T>;
  table.gate_centres = GateCentres<T>;
  table.sweep_heads = SweepHeads<T>;
  if constexpr (has_channel_sweeps) {
    table.gated_sweep = GatedSweep<T>, table.gated_heads = GatedHeads<T>;
    table.exp_rows = ExpRows<T>, table.bonus_dots = BonusDots<T>;
  }
  if constexpr (has_momentum_sweeps) table.momentum_heads = MomentumHeads<T>;
  return table;
}
template <class T>
const StateSimd<T>* StateTable() {
  static const StateSimd<T> table = MakeStateTable<T>();
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
