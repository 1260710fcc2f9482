// One head of one sequence: the inputs and the state a solver reads, sliced out of the caller's arrays, and the
// tables that say which arrays a design has.
//
// Letters of a shape: T tokens, P tokens of the pair side (T * pairs; its own length if not causal), N pairs kept,
// H heads, G key heads, K, V, F features, D hidden width, M slots, L levels (any number).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "oracle/feature_maps.h"
#include "oracle/oracle.h"

namespace ttr::oracle {

/// The ways a design is solved, by what is carried from token to token.
enum class Way {
  batch,       // the pairs: gd, exact, cg, chebyshev, given
  descend,     // the pairs and the answer
  online,      // the answer: sgd, minibatch
  projection,  // the answer and the last p-1 pairs: apa
  kalman,      // the answer and its covariance
  corrected,   // keys and corrected values: near / constant / sgd
  functional,  // keys and coefficients: kernel / sgd
  slots,       // two small matrices
};

/// How a design is solved. Which designs mean something is said by recipe/combine.cc alone; what it refuses has no
/// business here, and where a loop would not know what to do with it this throws.
Way way_of(const Design&);
/// Extent of a letter; `pairs` is the extent of P, `kept` of N.
std::int64_t extent_of(char letter, const Design&, const Sizes&, std::int64_t pairs, std::int64_t kept);
/// Whether the steps are divided by a sum or a running mean of squared gradients, which the state carries.
inline bool keeps_squares(const Solver& s) {
  using M = Solver::Metric;
  return s.metric == M::adagrad || s.metric == M::rmsprop || s.metric == M::adam;
}
/// Whether the state carries the last update, or the running mean of the gradient.
inline bool keeps_update(const Solver& s) { return s.momentum.given() || s.metric == Solver::Metric::adam; }
/// The part of the state that belongs to a parameter: Z or Z_W0, L or L_W0, start_S, S itself for no prefix.
inline std::string state_name(const std::string& prefix, const std::string& parameter) {
  if (prefix != "Z" && prefix != "squares" && prefix != "L" && prefix != "R") return prefix + parameter;
  return parameter == "S" ? prefix : prefix + "_" + parameter;
}
/// The name of the input that holds the solver's step.
std::string step_name(const Design&);
/// Checks sizes, presence and extents of everything; throws Error. Returns the extent of P.
std::int64_t check_call(const Design&, const Sizes&, const Arrays& inputs, const Arrays& state);

template <class S>
struct Tensor {
  std::vector<std::int64_t> extent;
  std::vector<S> data;
};
template <class S>
using Tensors = std::map<std::string, Tensor<S>>;

inline bool is_timed(const Axes& axes) { return axes.front() == 'T' || axes.front() == 'P' || axes.front() == 'N'; }

/// Row index and width of a head's slice of an array: rows are tokens (one row if the array has no time axis).
struct Slice {
  int rows, heads, width;
  std::size_t at(int row, int head, int column) const {
    return (static_cast<std::size_t>(row) * heads + head) * width + column;
  }
};
inline Slice slice_of(const std::vector<std::int64_t>& extent, const Axes& axes) {
  const std::size_t axis = is_timed(axes) ? 1 : 0;
  Slice s{axis ? static_cast<int>(extent[0]) : 1, static_cast<int>(extent[axis]), 1};
  for (std::size_t d = axis + 1; d < extent.size(); ++d) s.width *= static_cast<int>(extent[d]);
  return s;
}
inline int head_of_group(int head, const Sizes& sizes, int heads) { return head / (sizes.heads / heads); }

template <class S>
Matrix<S> slice(const Tensor<S>& array, const Axes& axes, const Sizes& sizes, int head) {
  const Slice s = slice_of(array.extent, axes);
  Matrix<S> m(s.rows, s.width);
  const int h = head_of_group(head, sizes, s.heads);
  for (int r = 0; r < s.rows; ++r)
    for (int c = 0; c < s.width; ++c) m(r, c) = array.data[s.at(r, h, c)];
  return m;
}

/// What a head's solver reads and leaves behind.
template <class S>
struct Head {
  const Design& design;
  const Sizes& sizes;
  int head;
  Way way;
  int time = 0;                            // queries in this call
  int kept = 0;                            // pairs from before this call
  int pairs = 0;                           // pairs in all, kept ones first
  double seen = 0;                         // tokens before this call, where a feature map asks for their number
  std::map<std::string, Matrix<S>> call;   // inputs of this call: a row per token
  std::map<std::string, Matrix<S>> pair;   // inputs of the pair side, kept ones first
  std::map<std::string, Matrix<S>> state;  // the rest of the state, advanced by the solver
  std::vector<Vec<S>> queries, keys;       // after the key norm; q is not yet scaled
  Matrix<S> o;                             // [T, V]

  bool has(const std::string& name) const { return call.count(name) > 0; }
  const S& at(const std::string& name, int row) const {
    const Matrix<S>& m = call.at(name);
    return m(m.rows == 1 && !timed.at(name) ? 0 : row, 0);
  }
  /// A quantity at a token: its constant, the input `name`, or `otherwise` if it is absent.
  S quantity(const Quantity& quantity, const std::string& name, int row, double otherwise) const {
    if (quantity.is_constant()) return S(quantity.value);
    if (quantity.is_input()) return at(name, row);
    return S(otherwise);
  }
  Vec<S> value(int i) const { return pair.at("v").row(i); }
  Vec<S> input_row(const std::string& name, int row) const { return call.at(name).row(row); }

  /// What a memory is asked with: features of a linear class (scaled), the scaled query of the others.
  Vec<S> read_vector(int t) const {
    const Memory& m = design.memory;
    if (m.kind == Memory::Class::vector || m.kind == Memory::Class::constant) return {S(1.0)};
    Vec<S> x = m.has_map_inputs()   ? matrix_features(m, queries[t], call)
               : is_linear_class(m) ? features(m, queries[t], queries[t], seen + t + 1)
                                    : queries[t];
    if (m.kind == Memory::Class::linear || !is_linear_class(m))
      if (!design.keeps_pairs())
        for (S& e : x) e *= S(sizes.scale);
    return x;
  }
  /// What a memory sees of pair i when the query is t.
  Vec<S> pair_vector(int i, int t) const {
    const Memory& m = design.memory;
    if (m.kind == Memory::Class::vector || m.kind == Memory::Class::constant) return {S(1.0)};
    if (m.has_map_inputs()) return matrix_features(m, keys[i], call);
    return is_linear_class(m) ? features(m, keys[i], queries[t], token_of(i)) : keys[i];
  }
  /// The number of the token that brought pair i, from 1 on.
  double token_of(int i) const {
    const int pairs_of_token = design.solver.kind == Solver::Kind::sgd ? design.solver.pairs : 1;
    return seen + std::floor(static_cast<double>(i - kept) / pairs_of_token) + 1;
  }
  double kernel_scale(double own) const {
    if (own != 0) return own;
    return sizes.kernel_scale != 0 ? sizes.kernel_scale : 1 / std::sqrt(static_cast<double>(sizes.key_dim));
  }
  S bandwidth(const Quantity& quantity) const {
    return this->quantity(quantity, "bandwidth", 0, 2 * std::sqrt(static_cast<double>(sizes.key_dim)));
  }
  S kernel(const Vec<S>& x, const Vec<S>& y) const {
    const Memory& m = design.memory;
    return similarity(m.kernel, x, y, kernel_scale(m.kernel_scale), bandwidth(m.bandwidth), m.degree).value();
  }
  std::map<std::string, bool> timed;
};

/// x / |x| or x / sqrt(mean x^2); zero stays zero.
template <class S>
Vec<S> normalised(Extras::Keys kind, Vec<S> x) {
  using std::sqrt;
  if (kind == Extras::Keys::raw) return x;
  const S square = dot(x, x);
  if (!(value_of(square) > 0)) return x;
  const S length = sqrt(kind == Extras::Keys::unit ? square : square / S(static_cast<double>(x.size())));
  for (S& e : x) e /= length;
  return x;
}

template <class S>
Head<S> make_head(const Design& design, const Sizes& sizes, int head, std::int64_t pairs, const Tensors<S>& inputs,
                  const Tensors<S>& state) {
  Head<S> h{design, sizes, head, way_of(design), 0, 0, 0, 0, {}, {}, {}, {}, {}, {}, {}};
  h.time = static_cast<int>(sizes.time);
  for (const StateShape& shape : state_shapes(design)) {
    const Tensor<S>& array = state.at(shape.name);
    if (shape.history()) h.kept = static_cast<int>(array.extent[0]);
    h.state[shape.name] = slice(array, shape.axes(), sizes, head);
  }
  h.pairs = h.kept + static_cast<int>(pairs);
  if (design.memory.knows_position()) h.seen = value_of(h.state.at("seen")(0, 0));
  for (const DesignInput& input : inputs_of(design)) {
    const auto found = inputs.find(input.name);
    if (found == inputs.end()) continue;
    Matrix<S> now = slice(found->second, input.axes, sizes, head);
    h.timed[input.name] = input.timed();
    if (input.per_pair()) {
      Matrix<S> all = now;
      const auto past = h.state.find(input.name);
      if (past != h.state.end()) {
        all = Matrix<S>(past->second.rows + now.rows, now.cols);
        std::copy(past->second.data.begin(), past->second.data.end(), all.data.begin());
        std::copy(now.data.begin(), now.data.end(),
                  all.data.begin() + static_cast<std::ptrdiff_t>(past->second.data.size()));
      }
      h.pair[input.name] = std::move(all);
    }
    h.call[input.name] = std::move(now);
  }
  const Extras::Keys norm = design.extras.keys;
  if (h.has("q"))
    for (int t = 0; t < h.time; ++t) h.queries.push_back(normalised(norm, h.call["q"].row(t)));
  if (h.has("k"))
    for (int i = 0; i < h.pair["k"].rows; ++i) h.keys.push_back(normalised(norm, h.pair["k"].row(i)));
  h.o = Matrix<S>(h.time, sizes.value_dim);
  return h;
}

/// Leaves in the state the newest pairs, as many as the next token will need.
template <class S>
void keep_pairs(Head<S>& h) {
  const std::int64_t limit = pairs_to_keep(h.design);
  const int keep = limit < 0 ? h.pairs : static_cast<int>(std::min<std::int64_t>(limit, h.pairs));
  for (const StateShape& shape : state_shapes(h.design)) {
    if (!shape.history()) continue;
    const Matrix<S>& all = h.pair.at(shape.name);
    Matrix<S> newest(keep, all.cols);
    std::copy(all.data.end() - std::ptrdiff_t(keep) * all.cols, all.data.end(), newest.data.begin());
    h.state[shape.name] = std::move(newest);
  }
}

}  // namespace ttr::oracle
