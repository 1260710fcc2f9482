// Random numbers of training: splitmix64, the same on every machine. The state is one number, so a checkpoint keeps it.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

namespace ttr::model {

class Random {
 public:
  explicit Random(std::uint64_t seed, std::string_view stream = {}) : state_(mix(seed + 0x632BE59BD9B4E019u)) {
    for (const char c : stream) state_ = mix(state_ ^ static_cast<unsigned char>(c));
  }
  std::uint64_t bits() { return mix(state_ += 0x9E3779B97F4A7C15u); }
  double uniform() { return (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53; }  // (0, 1)
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform()); }
  /// A whole number in 0 .. n-1, each equally likely: draws outside the largest multiple of n are repeated.
  std::uint64_t below(std::uint64_t n) {
    const std::uint64_t limit = ~std::uint64_t{0} - (~std::uint64_t{0} % n + 1) % n;
    std::uint64_t x = bits();
    while (x > limit) x = bits();
    return x % n;
  }
  std::uint64_t state() const { return state_; }
  void restore(std::uint64_t state) { state_ = state; }

 private:
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

}  // namespace ttr::model
