// Operations that one pass over the rows computes together, with the bits of one after the other. What lies between them
// is neither written nor read again, and a token of a small layer costs one call instead of five.
//
//   n = raw * scale ;  read = n / max(|n|, floor) ;  erase = -read * rate ;  write = raw * (1 + (rate - 1) * blend)
//   bonus = (sum query * write * weight) value
//
// These are RWKV-7's keys: multiply, unit_norm_clamp, negative_product, blend_product and bonus_value of operations.def.
#pragma once

#include "prepare/operations.h"
#include "simd/simd.h"

namespace ttr::prepare {

/// Rows as wide as `read`; of value and bonus as wide as `bonus`, which may be left out with query, weight and value.
/// Results overlap nothing else.
template <class T>
struct JointKeys {
  Rows<const T> raw, scale, rate, blend;
  Rows<T> read, write, erase;
  Rows<const T> query, weight, value;
  Rows<T> bonus;
  double floor = 0;
};

/// On the instruction set of `simd`; null: the best of this machine.
template <class T>
void joint_keys(const JointKeys<T>&, const Extent&, const Simd<T>* simd = nullptr) noexcept;

}  // namespace ttr::prepare

namespace ttr {
/// Compiled once per instruction set (joint-inl.h).
template <class T>
struct JointSimd {
  void (*keys)(const prepare::JointKeys<T>&, const prepare::Extent&);
};
/// The table for the instruction set of `simd`.
template <class T>
const JointSimd<T>& joint_simd(const Simd<T>& simd) noexcept;
/// What is done to every number of a token by itself is not counted (simd/count.h).
template <class T>
const JointSimd<T>& counted_table(const JointSimd<T>& table) noexcept {
  return table;
}
}  // namespace ttr
