// backward: the same loops on a tape (oracle/tape.h), so every gradient is exact.
//
// The sequence is cut into segments: forward in double gives the state at each cut, then the segments are
// differentiated from the last to the first, one tape per segment and head, the gradient of a segment's initial state
// being that of the final state of the one before. Memory stays bounded by one segment of one head. Solvers that
// carry an answer are cut into about sqrt(T) segments; solvers that carry the pairs solve each token anew, a long
// tape, so they are cut at every token as long as that keeps few copies of the pairs.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "oracle/online.h"

namespace ttr::oracle {
namespace {

void add_to(Array& sum, const Array& part, std::size_t offset) {
  for (std::size_t i = 0; i < part.data.size(); ++i) sum.data[offset + i] += part.data[i];
}

Array like(const Array& array) { return {array.extent, std::vector<double>(array.data.size(), 0.0)}; }

Tensors<Var> leaves(Tape& tape, const Arrays& arrays) {
  Tensors<Var> all;
  for (const auto& [name, array] : arrays) {
    Tensor<Var>& t = all[name];
    t.extent = array.extent;
    t.data.reserve(array.data.size());
    for (double x : array.data) t.data.push_back(tape.leaf(x));
  }
  return all;
}

void collect(const Tape& tape, const Tensors<Var>& leaves, Arrays& gradients) {
  for (const auto& [name, tensor] : leaves)
    for (std::size_t i = 0; i < tensor.data.size(); ++i) gradients.at(name).data[i] += tape.gradient(tensor.data[i]);
}

/// Gradients of one segment; `d_in` and `d_start` have the shapes of `inputs` and `start` and are added to.
void segment_backward(const Design& design, const Sizes& sizes, std::int64_t pairs, const Arrays& inputs,
                      const Arrays& start, const double* d_o, const Arrays& d_state, Arrays& d_in, Arrays& d_start) {
  const std::vector<StateShape> shapes = state_shapes(design);
  for (int h = 0; h < sizes.heads; ++h) {
    Tape tape;
    const Tensors<Var> in = leaves(tape, inputs), first = leaves(tape, start);
    Head<Var> head = make_head<Var>(design, sizes, h, pairs, in, first);
    run_head(head);
    for (int t = 0; t < head.time; ++t)
      for (int b = 0; b < sizes.value_dim; ++b)
        tape.seed(head.o(t, b), d_o[(static_cast<std::size_t>(t) * sizes.heads + h) * sizes.value_dim + b]);
    for (const StateShape& shape : shapes) {
      const auto found = d_state.find(shape.name);
      if (found == d_state.end()) continue;
      const Matrix<Var>& now = head.state.at(shape.name);
      const Slice s = slice_of(found->second.extent, shape.axes());
      const std::size_t count = static_cast<std::size_t>(s.rows) * s.width;
      if (count != now.data.size())
        throw Error("the gradient of state " + shape.name + " holds " + std::to_string(count) +
                    " numbers per head but the final state has " + std::to_string(now.data.size()));
      // A row shared by a group of heads is one entry of the state: the group's first head answers for it.
      if (h % (sizes.heads / s.heads) != 0) continue;
      for (int r = 0; r < s.rows; ++r)
        for (int c = 0; c < s.width; ++c)
          tape.seed(now.data[static_cast<std::size_t>(r) * s.width + c],
                    found->second.data[s.at(r, head_of_group(h, sizes, s.heads), c)]);
    }
    tape.sweep();
    collect(tape, in, d_in);
    collect(tape, first, d_start);
  }
}

}  // namespace

Arrays backward(const Design& design, const Sizes& sizes, const Arrays& inputs, const Arrays& initial_state,
                const Array& d_o, const Arrays& d_state) {
  check_call(design, sizes, inputs, initial_state);
  const std::size_t row = static_cast<std::size_t>(sizes.heads) * sizes.value_dim;
  if (d_o.data.size() != row * static_cast<std::size_t>(sizes.time))
    throw Error("the gradient of o holds " + std::to_string(d_o.data.size()) + " numbers but o has " +
                std::to_string(row * static_cast<std::size_t>(sizes.time)));
  const std::vector<DesignInput> expected = inputs_of(design);
  const std::vector<StateShape> shapes = state_shapes(design);
  const std::int64_t per_token = design.solver.kind == Solver::Kind::sgd ? design.solver.pairs : 1;
  constexpr std::int64_t most_copies = 256;
  const std::int64_t root = static_cast<std::int64_t>(std::sqrt(static_cast<double>(sizes.time)));
  const std::int64_t length = !sizes.causal           ? sizes.time
                              : keeps_history(design) ? (sizes.time + most_copies - 1) / most_copies
                                                      : std::max<std::int64_t>(8, root);

  struct Segment {
    std::int64_t begin;
    Sizes sizes;
    Arrays inputs, start;
  };
  auto rows_of = [&](const DesignInput& input, std::int64_t begin,
                     std::int64_t count) {  // first row and rows of a segment
    const std::int64_t n = input.per_pair() ? per_token : 1;
    return std::pair<std::int64_t, std::int64_t>(begin * n, count * n);
  };
  std::vector<Segment> segments;
  Arrays state;
  for (const StateShape& shape : shapes) state[shape.name] = initial_state.at(shape.name);
  for (std::int64_t begin = 0; begin < sizes.time; begin += length) {
    Segment s{begin, sizes, {}, state};
    s.sizes.time = std::min(length, sizes.time - begin);
    for (const DesignInput& input : expected) {
      const auto found = inputs.find(input.name);
      if (found == inputs.end()) continue;
      Array part = found->second;
      if (sizes.causal && input.timed()) {
        const auto [first, count] = rows_of(input, begin, s.sizes.time);
        const std::size_t width = part.data.size() / static_cast<std::size_t>(part.extent[0]);
        part.data.assign(found->second.data.begin() + first * static_cast<std::ptrdiff_t>(width),
                         found->second.data.begin() + (first + count) * static_cast<std::ptrdiff_t>(width));
        part.extent[0] = count;
      }
      s.inputs[input.name] = std::move(part);
    }
    forward(design, s.sizes, s.inputs, state);
    segments.push_back(std::move(s));
  }

  Arrays gradients;
  for (const auto& [name, array] : inputs) gradients[name] = like(array);
  Arrays d_final;
  for (const auto& [name, array] : d_state) {
    const auto found = state.find(name);
    if (found == state.end()) throw Error("there is no state " + name + " to have a gradient");
    if (found->second.data.size() != array.data.size())
      throw Error("the gradient of state " + name + " holds " + std::to_string(array.data.size()) +
                  " numbers but the final state has " + std::to_string(found->second.data.size()));
    d_final[name] = {found->second.extent, array.data};
  }
  for (std::size_t n = segments.size(); n-- > 0;) {
    Segment& s = segments[n];
    Arrays d_in, d_start;
    for (const auto& [name, array] : s.inputs) d_in[name] = like(array);
    for (const auto& [name, array] : s.start) d_start[name] = like(array);
    const std::int64_t pairs = check_call(design, s.sizes, s.inputs, s.start);
    segment_backward(design, s.sizes, pairs, s.inputs, s.start,
                     d_o.data.data() + static_cast<std::size_t>(s.begin) * row, d_final, d_in, d_start);
    for (const DesignInput& input : expected) {
      const auto found = d_in.find(input.name);
      if (found == d_in.end()) continue;
      std::size_t offset = 0;
      if (sizes.causal && input.timed() && found->second.extent[0] > 0)
        offset = static_cast<std::size_t>(rows_of(input, s.begin, 0).first) *
                 (found->second.data.size() / static_cast<std::size_t>(found->second.extent[0]));
      add_to(gradients[input.name], found->second, offset);
    }
    d_final = std::move(d_start);
    s = Segment{};
  }
  for (const StateShape& shape : shapes) {
    const auto found = d_final.find(shape.name);
    gradients["state." + shape.name] = found != d_final.end() ? found->second : like(initial_state.at(shape.name));
  }
  return gradients;
}

}  // namespace ttr::oracle
