// The oracle: solves any valid design literally, in double, with plain loops. It is the truth the kernels are
// checked against; it knows no layer names.
//
// forward: for each token, build the weighted objective over the pairs seen so far and minimise it as the solver
// says. backward: reverse mode through the same loops (oracle/tape.h). Per-pair solvers (sgd, minibatch, descend,
// apa, kalman) carry their answer in the state; batch solvers (gd, exact, cg, near, kernel) carry the pairs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "recipe/schema.h"

namespace ttr::oracle {

/// A dense row-major array.
struct Array {
  std::vector<std::int64_t> extent;
  std::vector<double> data;
};
using Arrays = std::map<std::string, Array>;

/// One sequence (no batch axis), all heads. Inputs are those of recipe/schema.h, without the B axis: q [T, G, K].
struct Sizes {
  int heads = 1, key_heads = 1, key_dim = 1, value_dim = 1;
  std::int64_t time = 0;
  bool causal = true;
  double scale = 1;         // on q for linear memories
  double kernel_scale = 0;  // s of the exponential kernel; 0 = 1/sqrt(K)
};

/// The names and shapes (without B) of a sequence's state. Batch solvers: the per-token inputs except q, with
/// leading extent = pairs kept (so far). Per-pair solvers: the answer, e.g. S [H, K, V], momentum Z [H, K, V];
/// memories of several layers: W0 [H, K, width], ... Some carry both: descend the pairs and the answer, apa the last
/// p - 1 pairs and the answer.
struct StateShape {
  std::string name;
  std::string letters;  // "H K V"; "N ..." for a history of N pairs.
                        // Besides B T H G K V M: F features, D hidden width, 1
  std::string meaning;
  Axes axes() const { return letters; }
  bool history() const { return axes().front() == 'N'; }
};
std::vector<StateShape> state_shapes(const Design&);

/// True if the state is a list of past pairs that grows (up to weights.window, if there is one).
bool keeps_history(const Design&);
/// Pairs that must be kept for the next token; -1: all of them.
std::int64_t pairs_to_keep(const Design&);

using ttr::is_of_pairs;

/// Throws Error where a memory has more features than fit; the sentence names their number.
void check_features(const Design&, const Sizes&);

/// Extents of an array of a state with no pairs seen: a list has none.
std::vector<std::int64_t> fresh_extents(const Design&, const Sizes&, const StateShape&);
/// A state with no pairs seen.
Arrays fresh_state(const Design&, const Sizes&);
/// What is not zero in it, piece by piece, with the name of the array and the place of the first number: the weights of a
/// large network are a million. Without the copies of weights that a block starts from, "start_" and their name.
void fresh_numbers(const Design&, const Sizes&,
                   const std::function<void(const std::string& name, std::size_t first, std::span<const double>)>&);
/// Zeros of these axes; a list of pairs holds none.
Array zeros(const Design&, const Sizes&, const Axes&);

/// Outputs "o" [T, H, V]; `state` is advanced. Throws Error where the problem has no answer.
Arrays forward(const Design&, const Sizes&, const Arrays& inputs, Arrays& state);

/// Gradients of sum <d_o, o> + sum <d_state, final state>: one array per input and per state ("state.S").
/// `d_state` may lack entries: zero.
Arrays backward(const Design&, const Sizes&, const Arrays& inputs, const Arrays& initial_state, const Array& d_o,
                const Arrays& d_state);

}  // namespace ttr::oracle
