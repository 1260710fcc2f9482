// The operations of joint.h, once per instruction set.
#include "prepare/joint.h"

#include "simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "prepare/joint.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "prepare/joint-inl.h"

#if HWY_ONCE
#include "simd/dispatch.h"
TTR_SIMD_TABLES(JointSimd, JointTable, joint_simd)

namespace ttr::prepare {

template <class T>
void joint_keys(const JointKeys<T>& keys, const Extent& extent, const Simd<T>* simd) noexcept {
  joint_simd<T>(simd ? *simd : ttr::simd<T>("")).keys(keys, extent);
}
template void joint_keys<float>(const JointKeys<float>&, const Extent&, const Simd<float>*) noexcept;
template void joint_keys<double>(const JointKeys<double>&, const Extent&, const Simd<double>*) noexcept;

}  // namespace ttr::prepare
#endif
