// The state of a sequence that has seen nothing: everything zero, except the weights of networks (normal numbers of standard
// deviation 1/sqrt(fan in), from a fixed seed that depends on head and layer only) and the covariance of kalman (the
// identity). Kernels start from it too.
#include <cmath>
#include <cstdint>
#include <string>

#include "oracle/head.h"
#include "oracle/memories.h"
#include "oracle/oracle.h"

namespace ttr::oracle {
namespace {

/// SplitMix64 and Box-Muller: the same numbers on every machine with the same libm.
class Normal {
 public:
  explicit Normal(std::uint64_t seed) : state_(seed) {}
  double operator()() {
    const double u = uniform(), v = uniform();
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
  }

 private:
  double uniform() {  // in (0, 1)
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    return (static_cast<double>(z >> 11) + 0.5) * 0x1p-53;
  }
  std::uint64_t state_;
};

}  // namespace

Array zeros(const Design& design, const Sizes& sizes, const Axes& axes) {
  const auto extent = [&](char letter) { return extent_of(letter, design, sizes, 0, 0); };
  return {axes.extents(extent), std::vector<double>(static_cast<std::size_t>(axes.count(extent)), 0.0)};
}

std::vector<std::int64_t> fresh_extents(const Design& design, const Sizes& sizes, const StateShape& shape) {
  return shape.axes().extents([&](char letter) { return extent_of(letter, design, sizes, 0, 0); });
}

Arrays fresh_state(const Design& design, const Sizes& sizes) {
  Arrays state;
  for (const StateShape& shape : state_shapes(design)) state[shape.name] = zeros(design, sizes, shape.axes());
  if (state.count("P")) {
    Array& p = state["P"];
    const std::int64_t F = p.extent[1];
    for (int h = 0; h < sizes.heads; ++h)
      for (std::int64_t a = 0; a < F; ++a) p.data[static_cast<std::size_t>((h * F + a) * F + a)] = 1;
  }
  // Zero is a start for linear memories, unless they are divided by their length.
  if (design.memory.kind == Memory::Class::kernel || (is_linear_class(design.memory) && design.solver.q_norm == 0)) {
    for (auto& [name, array] : state)  // S = 0 has columns of length zero
      if (name.rfind("norm_", 0) == 0) array.data.assign(array.data.size(), 0.0);
    return state;
  }
  int layer = 0;
  for (const ParameterInfo& p : parameters_of(design.memory, sizes.key_dim, sizes.value_dim)) {
    ++layer;
    if (p.bias || !state.count(p.name)) continue;
    Array& w = state[p.name];
    const std::size_t size = static_cast<std::size_t>(p.in) * p.out;
    for (int h = 0; h < sizes.heads; ++h) {
      Normal normal(static_cast<std::uint64_t>(h) * 1000003u + static_cast<std::uint64_t>(layer));
      for (std::size_t c = 0; c < size; ++c) w.data[h * size + c] = normal() / std::sqrt(static_cast<double>(p.in));
      if (state.count("norm_" + p.name))
        for (int b = 0; b < p.out; ++b) {
          double square = 0;
          for (int a = 0; a < p.in; ++a)
            square += std::pow(w.data[h * size + static_cast<std::size_t>(a) * p.out + b], 2);
          state["norm_" + p.name].data[static_cast<std::size_t>(h) * p.out + b] = std::sqrt(square);
        }
    }
    if (state.count("start_" + p.name)) state["start_" + p.name].data = w.data;
  }
  return state;
}

}  // namespace ttr::oracle
