// What surrounds a mixer in its block, worked out from the table of inputs of its plan:
//
//   n = RMSNorm(r) ;  u = n W_in ;  inputs = maps(convolutions(u)) ;  y = plan(inputs) ;  r += gate(norm(y)) W_out
//   (residual=no: r = gate(norm(y)) W_out)
//
// Every input that has a time axis is a slot: some columns of u (all slots of n are one product), or of a second product
// that reads another slot (low-rank gates; B, C and delta of Mamba-1 read the convolved u), and a chain of steps. The
// values of step l lie in the same columns of buffer l. Inputs without a time axis are parameters, with a map.
//
// Which steps: the input's range and meaning say it (a log of a factor gets the decay of Mamba-2, a share a sigmoid, a
// key of length one the L2 norm), unless the layer was published with something else (published.cc) or the stack's text
// says otherwise.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "ttr/ttr.h"

namespace ttr::model {

enum class Map {
  none,
  silu,
  relu,
  tanh,
  sigmoid,
  log_sigmoid,
  softplus,
  neg_softplus,
  neg_exp,
  neg_sigmoid,
  decay,  // -exp(rate) softplus(x)
};

/// One step of a chain: y = factor f(x + bias), or an operation on rows.
struct Step {
  enum class Kind { map, convolution, unit, rms, rotary, copy };
  Kind kind = Kind::map;
  Map map = Map::none;
  double factor = 1;
  int bias = -1, rate = -1, weight = -1;  // parameters
};

struct Slot {
  std::string name;        // of the input; "z" the output gate; "gk.low" what a low-rank gate reads
  int input = -1;          // index in Plan::inputs
  int width = 0;           // numbers per token
  int heads = 1, dim = 0;  // width = heads dim: what norms and rotations see
  int pairs = 1;           // pairs per token; more than one: the last step copies to a buffer of its own
  int source = -1;         // slot that is read; -1: n
  int weight = -1;         // parameter [source, width]; slots of n share W_in
  std::ptrdiff_t column = 0;
  std::vector<Step> steps;
};

/// An input without a time axis: factor f(theta).
struct Constant {
  int input = 0, parameter = 0;
  Step step;
};

/// The parameters of a block that no plan runs (slstm.h).
struct Slstm {
  int heads = 1, dim = 1, taps = 4;
  int norm = -1, taps_weight = -1, gates = -1, cells = -1, gate_bias = -1, cell_bias = -1;
  int gate_recurrence = -1, cell_recurrence = -1, out_norm = -1, out = -1;
};

struct Mixer {
  std::string text;  // for plan()
  Shape shape;       // of one sequence
  Options options;
  std::vector<Slot> slots;  // those of n first, and of them those that are convolved
  std::vector<Constant> constants;
  int in_width = 0, all_width = 0;  // columns of n W_in; of the buffers of all slots
  int convolved = 0;                // columns that the short convolution sees
  int taps = 0, levels = 1;
  std::string activation = "silu";  // of the convolution
  int norm = -1, in = -1, shift = -1, taps_weight = -1, taps_bias = -1, out = -1, out_norm = -1;
  int out_width = 0, out_heads = 1, out_dim = 1;
  std::vector<int> added;  // outputs that are added after the norm
  enum class Gate { none, silu, sigmoid };
  Gate gate = Gate::none;
  bool gate_first = false, whole_norm = false;
  bool residual = true;  // r += the answer; else r = the answer
  int gate_slot = -1;
  std::optional<Slstm> slstm;  // then nothing above but the text
};

/// Of block `index` of `count`, with its parameters. Throws Error.
Mixer make_mixer(const BlockText&, const Config&, int index, int count, Registry&);

/// Of a block `slstm`. Settings: heads, value_dim, conv, out. Throws Error.
Slstm make_slstm(const BlockText&, const Config&, int index, int count, Registry&);

/// Settings that a layer was published with: "conv=4, out_norm=head, out_gate=silu".
std::string published_settings(std::string_view layer);
/// The layers that have a row of their own.
std::vector<std::string> published_layers();

}  // namespace ttr::model
