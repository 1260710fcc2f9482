// The state of a sequence that has seen nothing: everything zero, except the weights of networks (normal numbers of standard
// deviation 1/sqrt(fan in), from a fixed seed that depends on head and layer only) and the covariance of kalman (the
// identity). Kernels start from it too.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "oracle/head.h"
#include "oracle/memories.h"
#include "oracle/oracle.h"
#include "simd/normals.h"

namespace ttr::oracle {

Array zeros(const Design& design, const Sizes& sizes, const Axes& axes) {
  const auto extent = [&](char letter) { return extent_of(letter, design, sizes, 0, 0); };
  return {axes.extents(extent), std::vector<double>(static_cast<std::size_t>(axes.count(extent)), 0.0)};
}

std::vector<std::int64_t> fresh_extents(const Design& design, const Sizes& sizes, const StateShape& shape) {
  return shape.axes().extents([&](char letter) { return extent_of(letter, design, sizes, 0, 0); });
}

void fresh_numbers(
    const Design& design, const Sizes& sizes,
    const std::function<void(const std::string& name, std::size_t first, std::span<const double>)>& take) {
  const std::vector<StateShape> shapes = state_shapes(design);
  const auto find = [&](const std::string& name) {
    return std::find_if(shapes.begin(), shapes.end(), [&](const StateShape& s) { return s.name == name; });
  };
  const auto has = [&](const std::string& name) { return find(name) != shapes.end(); };
  if (has("P")) {
    const double one = 1;
    const auto F = static_cast<std::size_t>(fresh_extents(design, sizes, *find("P"))[1]);
    for (std::size_t h = 0; h < static_cast<std::size_t>(sizes.heads); ++h)
      for (std::size_t a = 0; a < F; ++a) take("P", (h * F + a) * F + a, {&one, 1});
  }
  // Zero is a start for linear memories, unless they are divided by their length. S = 0 has columns of length zero.
  if (design.memory.kind == Memory::Class::kernel || (is_linear_class(design.memory) && design.solver.q_norm == 0))
    return;
  int layer = 0;
  for (const ParameterInfo& p : parameters_of(design.memory, sizes.key_dim, sizes.value_dim)) {
    ++layer;
    if (p.bias || !has(p.name)) continue;
    const bool norms = has("norm_" + p.name);
    const auto columns = static_cast<std::size_t>(p.out), size = static_cast<std::size_t>(p.in) * columns;
    for (std::size_t h = 0; h < static_cast<std::size_t>(sizes.heads); ++h) {
      std::vector<double> length(norms ? columns : 0);
      std::array<double, 1024> piece;
      for (std::size_t c = 0; c < size; c += piece.size()) {
        const std::span<double> some(piece.data(), std::min(piece.size(), size - c));
        normals(h * 1000003u + static_cast<std::uint64_t>(layer), c, static_cast<std::ptrdiff_t>(some.size()),
                std::sqrt(static_cast<double>(p.in)), some.data());
        take(p.name, h * size + c, some);
        for (std::size_t i = 0, n; norms && i < some.size(); i += n) {  // row by row
          const std::size_t column = (c + i) % columns;
          n = std::min(columns - column, some.size() - i);
          for (std::size_t j = 0; j < n; ++j) length[column + j] += some[i + j] * some[i + j];
        }
      }
      for (double& x : length) x = std::sqrt(x);
      if (norms) take("norm_" + p.name, h * columns, length);
    }
  }
}

Arrays fresh_state(const Design& design, const Sizes& sizes) {
  Arrays state;
  for (const StateShape& shape : state_shapes(design)) state[shape.name] = zeros(design, sizes, shape.axes());
  fresh_numbers(design, sizes, [&](const std::string& name, std::size_t first, std::span<const double> x) {
    std::copy(x.begin(), x.end(), state.at(name).data.begin() + static_cast<std::ptrdiff_t>(first));
  });
  for (auto& [name, array] : state)
    if (name.starts_with("start_") && state.contains(name.substr(6))) array.data = state[name.substr(6)].data;
  return state;
}

}  // namespace ttr::oracle
