// The table of the primitives (simd.h), compiled once per instruction set (included by simd_f32.cc, simd_f64.cc).
#if defined(TTR_SIMD_TABLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_TABLE_INL_H_
#undef TTR_SIMD_TABLE_INL_H_
#else
#define TTR_SIMD_TABLE_INL_H_
#endif

#include "simd/groups-inl.h"
#include "simd/heads-inl.h"
#include "simd/simd.h"
#include "simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

template <class T>
const Simd<T>* Table() {
  static const Simd<T> table = {
      .name = hwy::TargetName(HWY_TARGET),
      .target = HWY_TARGET,
      .lanes = static_cast<int>(hn::MaxLanes(Tag<T>())),
      .gemm_nn = GemmNN<T>,
      .gemm_tn = GemmTN<T>,
      .gemm_nt = GemmNT<T>,
      .gemm_lower = GemmLower<T>,
      .trmm_nn = TrmmNN<T>,
      .trmm_tn = TrmmTN<T>,
      .solve_nn = SolveNN<T>,
      .solve_tn = SolveTN<T>,
      .transpose = TransposeVectors<T>,
      .scale_rows = ScaleRows<T>,
      .row_dots = RowDots<T>,
      .gate_matrix = GateMatrix<T>,
      .gate_lower = GateLower<T>,
      .scale_columns = ScaleColumns<T>,
      .mul = Mul<T>,
      .mul_add = MulAdd<T>,
      .axpy = Axpy<T>,
      .scale = Scale<T>,
      .dot = DotOf<T>,
      .exp = Exp<T>,
      .vec_mat = VecMat<T>,
      .mat_vec = MatVec<T>,
      .rank_one = RankOne<T>,
      .sweep = Sweep<T>,
      .gated_sweep = GatedSweep<T>,
      .group_sweep = GroupSweep<T>,
      .gemm_tn_rows = GemmTNRows<T>,
      .mul_rows = MulRows<T>,
      .gate_reach = GateReach<T>,
      .mul_add_rows = MulAddRows<T>,
      .gate_gradient = GateGradient<T>,
      .prefetch_rows = PrefetchRows<T>,
      .gemm_nn_onto = GemmNNOnto<T>,
      .gemm_tn_onto = GemmTNOnto<T>,
      .gemm_trmm_nn = GemmTrmmNN<T>,
      .gemm_trmm_tn = GemmTrmmTN<T>,
      .gemm_lower_gated = GemmLowerGated<T>,
      .add_rows_dots = AddRowsDots<T>,
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
