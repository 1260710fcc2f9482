// Random numbers for checks: the same everywhere, unlike the distributions of the standard library.
#pragma once

#include <cmath>
#include <cstdint>

namespace ttr::cli {

// splitmix64: small. (switching_process.h has the generator of data.)
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  double uniform() {  // (0, 1)
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (static_cast<double>((z ^ (z >> 31)) >> 11) + 0.5) * 0x1p-53;
  }
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform()); }

 private:
  std::uint64_t state_;
};

}  // namespace ttr::cli
