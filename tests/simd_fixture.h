// What tests of the SIMD primitives share: numbers, the instruction sets of the machine, and what rounding may do.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
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

using Size = std::ptrdiff_t;

template <class T>
constexpr T kNan = std::numeric_limits<T>::quiet_NaN();

/// A rows x cols matrix of normal numbers at an odd address, with a larger leading dimension, in a sea of NaN.
template <class T>
struct Matrix {
  Size rows, cols, ld;
  std::vector<T> memory;
  Matrix(Size r, Size c, std::mt19937& rng, T fill = 1)
      : rows(r), cols(c), ld(c + 3), memory(r * (c + 3) + 9, kNan<T>) {
    std::normal_distribution<double> normal;
    for (Size i = 0; i < rows; ++i)
      for (Size j = 0; j < cols; ++j) at(i, j) = fill * static_cast<T>(normal(rng));
  }
  T* data() { return memory.data() + 5; }
  T& at(Size i, Size j) { return memory[5 + i * ld + j]; }
  /// True if all that lies outside the matrix is still NaN.
  bool guards_hold() {
    std::vector<bool> inside(memory.size(), false);
    for (Size i = 0; i < rows; ++i)
      for (Size j = 0; j < cols; ++j) inside[5 + i * ld + j] = true;
    for (std::size_t m = 0; m < memory.size(); ++m)
      if (!inside[m] && !std::isnan(memory[m])) return false;
    return true;
  }
};

template <class T>
T tolerance(double magnitude) {
  return static_cast<T>(8 * std::numeric_limits<T>::epsilon() * (magnitude + 1));
}

template <class T>
class Matrices : public testing::Test {
 protected:
  std::mt19937 rng{7};
  template <class F>
  void for_targets(const F& f) {
    for (const std::string& name : ttr::simd_targets()) {
      SCOPED_TRACE(name);
      f(ttr::simd<T>(name));
      if (this->HasFatalFailure()) return;
    }
  }
};

}  // namespace ttr_simd_test
