// The vector primitives of simd.h, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/vectors.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

template <class T>
const Vectors<T>* VectorsTable() {
  static const Vectors<T> table = {
      .lanes = static_cast<int>(hn::MaxLanes(Tag<T>())),
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
      .mul_rows = MulRows<T>,
      .gate_reach = GateReach<T>,
      .mul_add_rows = MulAddRows<T>,
      .gate_gradient = GateGradient<T>,
      .pair_sums = PairSums<T>,
      .prefetch_rows = PrefetchRows<T>,
      .add_rows_dots = AddRowsDots<T>,
  };
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "simd/dispatch.h"
TTR_TARGET_TABLE(float, Vectors, VectorsTable, vectors)
TTR_TARGET_TABLE(double, Vectors, VectorsTable, vectors)
#endif
