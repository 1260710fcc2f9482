// forward: slices each head out of the inputs, solves it, and puts outputs and state back.
#include "oracle/oracle.h"

#include <cmath>
#include <cstdint>
#include <string>

#include "oracle/online.h"

namespace ttr::oracle {
Arrays forward(const Design& design, const Sizes& sizes, const Arrays& inputs, Arrays& state) {
  const std::int64_t pairs = check_call(design, sizes, inputs, state);
  Tensors<double> in, start;
  for (const auto& [name, array] : inputs) in[name] = {array.extent, array.data};
  for (const auto& [name, array] : state) start[name] = {array.extent, array.data};
  Arrays out;
  Array& o = out["o"];
  o.extent = {sizes.time, sizes.heads, sizes.value_dim};
  o.data.assign(static_cast<std::size_t>(sizes.time) * sizes.heads * sizes.value_dim, 0.0);
  const std::vector<StateShape> shapes = state_shapes(design);
  for (int h = 0; h < sizes.heads; ++h) {
    Head<double> head = make_head<double>(design, sizes, h, pairs, in, start);
    run_head(head);
    for (int t = 0; t < head.time; ++t)
      for (int b = 0; b < sizes.value_dim; ++b)
        o.data[(static_cast<std::size_t>(t) * sizes.heads + h) * sizes.value_dim + b] = head.o(t, b);
    for (const StateShape& shape : shapes) {
      Array& array = state[shape.name];
      const Matrix<double>& now = head.state.at(shape.name);
      if (h == 0 && shape.history()) {
        array = zeros(design, sizes, shape.axes().replaced('N', '1'));
        array.extent[0] = now.rows;
        array.data.assign(array.data.size() * static_cast<std::size_t>(now.rows), 0.0);
      }
      const Slice s = slice_of(array.extent, shape.axes());
      const int g = head_of_group(h, sizes, s.heads);
      for (int r = 0; r < s.rows; ++r)
        for (int c = 0; c < s.width; ++c)
          array.data[s.at(r, g, c)] = now.data[static_cast<std::size_t>(r) * s.width + c];
    }
  }
  return out;
}

}  // namespace ttr::oracle
