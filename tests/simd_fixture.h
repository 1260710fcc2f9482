// What tests of the SIMD primitives share: numbers, the instruction sets of the machine, and what rounding may do.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "simd/simd.h"

namespace ttr_simd_test {

template <class T>
class Primitives : public testing::Test {
 protected:
  std::vector<T> normals(std::ptrdiff_t n) {
    std::normal_distribution<double> normal;
    std::vector<T> x(static_cast<std::size_t>(n));
    for (T& value : x) value = static_cast<T>(normal(rng));
    return x;
  }
  template <class F>
  void for_targets(const F& f) {
    for (const std::string& target : ttr::simd_targets()) {
      SCOPED_TRACE(target);
      f(ttr::simd<T>(target));
    }
  }
  /// Of a sum whose terms have absolute values that add up to `size`.
  static double tolerance(double size) { return 16 * double{std::numeric_limits<T>::epsilon()} * (size + 1); }
  std::mt19937 rng{3};
};

}  // namespace ttr_simd_test
