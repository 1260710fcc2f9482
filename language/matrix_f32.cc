// Products with stored weights, once per instruction set.
#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "language/matrix_f32.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "language/matrix-inl.h"

#if HWY_ONCE
#include "simd/dispatch.h"

namespace ttr {
namespace {
template <class T>
const model::MatrixSimd* table_for(long long target) noexcept {  // there is one, with floats
  TTR_TABLE_OF(target, MatrixTable)
}
}  // namespace
namespace model {
const MatrixSimd& matrix_simd(const Simd<float>& simd) noexcept { return *table_for<float>(simd.target); }
}  // namespace model
}  // namespace ttr
#endif
