// Activations that element and row formulas share: silu(x) = x s(x), with its slope.
#if defined(TTR_PREPARE_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_PREPARE_ACTIVATIONS_INL_H_
#undef TTR_PREPARE_ACTIVATIONS_INL_H_
#else
#define TTR_PREPARE_ACTIVATIONS_INL_H_
#endif

#include "simd/numbers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE Num<T> silu(Num<T> x) {
  return x * sigmoid(x);
}
template <class T>
struct ValueAndSlope {
  Num<T> value, slope;
};
template <class T>
HWY_INLINE ValueAndSlope<T> silu_and_slope(Num<T> x) {
  const auto [up, down] = both_sigmoids(x);
  return {x * up, up * fma(x, down, Num<T>(T(1)))};
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
