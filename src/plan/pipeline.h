// A pipeline: the steps a token goes through, and back. Built once by lower(); run by run.h.
//
//   values   inputs of the caller, constants, and results of steps; each has a shape in letters
//   steps    per-token operations (prepare/) and kernels (families/, oracle/), in order; a kernel owns a part of the
//            state. Gradients walk the same list in reverse, so a layer's backward is composed, never written.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "families/network/arrangement/arrangement.h"
#include "families/network/neural/neural.h"
#include "oracle/oracle.h"
#include "prepare/operations.h"
#include "recipe/design.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "zoo/zoo.h"

namespace ttr {

struct Value {
  std::string name;
  std::string axes;  // letters without spaces: "BTGK"
  enum class From { input, constant, table, step } from = From::input;
  int input = -1;               // From::input: index into Pipeline::inputs
  std::vector<double> numbers;  // From::constant: one; From::table: one per head
};

/// Letters of a row: all but batch, time (of tokens or pairs) and heads. The last is the row, the one before it makes
/// the value a matrix (W [F, K]).
inline bool is_inner(char letter) { return std::string_view("BTPHG").find(letter) == std::string_view::npos; }

enum class KernelKind {
  decay,
  delta,
  gated,
  dplr,
  momentum,
  projection,
  oja,
  log_linear,
  stabilised,
  channel,
  rotating,
  selective,
  weighted_mean,
  least_squares,
  givens,
  iterative,
  stepped,
  kalman,
  woodbury,
  window,
  attention,
  local_linear,
  path_attention,
  deltaformer,
  kernel_regression,
  landmarks,
  whole,
  neural,
  arrangement,
  carry,
  convolution,
  oracle
};

/// What a kernel's operand is for; the index into Step::from.
struct Role {
  // clang-format off
  enum : std::size_t {
    q, k, v, g, beta, ridge, gk, gv, a, b, bonus, g_mu, eta, theta, v_im, levels, input, step,
    bandwidth, sink, blend, process, noise, w,
    rate, momentum, decay, gain, place_gain, threshold, weight, norm_weight, norm_bias,
    attend_q, attend_k, attend_v, map_q, map_k, map_v, learn_q, learn_k, learn_v, persistent_k, persistent_v,
    answer_weight, memory_weight,
    count  // of a neural memory the initial values of its parameters follow
  };
  // clang-format on
};

struct Step {
  bool is_kernel = false;
  prepare::Op op{};
  double number = 0;  // the constant of an operation, an eps of a kernel
  KernelKind kernel{};
  std::vector<int> from;  // operations: operands. Kernels: by Role, -1 = absent. Oracle: all canonical inputs
  int to = -1;
  int also = -1;  // kernels with a second output
  zoo::Running running = zoo::Running::none;
  double scale = 1;             // kernels: on q
  int pairs = 1;                // kernels: their time is that of pairs, T times this
  bool undecayed = false;       // delta, dplr: the residual reads the state before its decay
  bool longhorn_gate = false;   // selective: the factor is 1 - k^2 step, not exp(step A)
  bool unnormalised = false;    // attention: the weights are not divided by their sum
  bool absolute_ridge = false;  // local_linear: not relative to the sum of the weights
  bool keeps_factor = false;    // kernel_regression: the state has the factor of the window
  bool read_before = false;     // gated: the output reads the state before the token's write
  int state = -1;               // kernels: index of the first state
  std::shared_ptr<const families::NeuralModel> neural;
  std::shared_ptr<const families::ArrangementModel> arrangement;
};

/// One named array of the state. In the caller's buffer: if any part is a history or the kernel counts tokens, one
/// 64-bit count per sequence; then the parts of fixed size, [B, extent...] each; then the histories, [B, capacity,
/// extent...] each, where the capacity is what the size of the buffer allows.
struct StatePart {
  StateInfo info;
  std::vector<std::ptrdiff_t> extent;  // of one sequence; of one pair for a history
  Type type = Type::f32;               // kernels of linear memories keep the plan's type, the others keep double
  bool history = false;
  double fresh = 0;                        // what reset writes
  std::vector<double> fresh_numbers = {};  // or this, for every sequence
  bool identity = false;                   // reset writes `fresh` on the diagonal of a matrix per head
  bool literal = false;                    // of the oracle, which knows itself what is fresh
};

/// Where part `index` of a state buffer of `bytes` bytes begins, and how many pairs a history has room for.
struct StatePlace {
  std::size_t offset = 0;
  std::ptrdiff_t capacity = 0;
};

struct Pipeline {
  Design design;
  std::vector<InputInfo> inputs, outputs;
  std::vector<Value> values;
  std::vector<Step> steps;
  std::vector<StatePart> states;
  std::map<char, int> letters;  // extents of letters besides B T P H G K V: F features, M slots, L levels, W, ...
  int pairs = 1;                // extent of P per token
  bool own_pairs = false;       // not causal: P is a length of its own, there is no state
  bool history = false;         // a part of the state is a list of pairs (oracle)
  bool counted = false;         // the state begins with a count of tokens per sequence, as with a history
  oracle::Sizes oracle_sizes;   // but for the time
  std::vector<int> canonical;   // oracle: value index of each canonical input
  std::vector<InputInfo> canonical_info;
  std::vector<int> output_values;  // value index of each output
};

/// Builds the pipeline of a design, with the layer's own stages around it if there is a declaration.
Pipeline lower(const Design&, const zoo::Declaration*, const Shape&, const Options&, double scale);

/// What a plan says about a kernel (kernel_facts.cc).
struct KernelFacts {
  KernelKind kind;
  std::string_view family;
  std::string_view forms;       // besides step and recurrent: "chunk parallel scan"
  std::string_view why_absent;  // the others
};
const KernelFacts& facts_of(KernelKind) noexcept;
bool has_form(KernelKind, Form) noexcept;

/// Numbers in one sequence's (or one pair's) share of a state part.
inline std::size_t numbers(const StatePart& part) {
  std::size_t n = 1;
  for (std::ptrdiff_t extent : part.extent) n *= static_cast<std::size_t>(extent);
  return n;
}

struct Plan::Body {
  std::string name;
  Recipe recipe;
  Shape shape;
  Options options;
  double scale = 1;
  int chunk = 0;  // Options::chunk; if that is 0, for kernels without a choice of their own (families/common/choice.h)
  Pipeline pipeline;
  std::vector<Form> forms;
  std::vector<StateInfo> states;
  const Simd<float>* simd_f32 = nullptr;
  const Simd<double>* simd_f64 = nullptr;
  std::vector<float> constants_f32;  // the numbers of all constant and table values, in order
  std::vector<double> constants_f64;
  std::vector<std::ptrdiff_t> constant_offset;  // per value

  bool on_oracle() const {
    return main_kernel >= 0 && pipeline.steps[static_cast<std::size_t>(main_kernel)].kernel == KernelKind::oracle;
  }
  int main_kernel = -1;                // index of the step that is the regression itself; -1: none, an operation
  int key_width = 1, value_width = 1;  // of its state
  std::size_t one_token_workspace = 0;

  /// `pairs` is the extent of P where that is a length of its own; below zero: that of T.
  std::ptrdiff_t extent(char letter, std::ptrdiff_t batch, std::ptrdiff_t time, std::ptrdiff_t pairs = -1) const;
  std::size_t elements(const std::string& axes, std::ptrdiff_t batch, std::ptrdiff_t time,
                       std::ptrdiff_t pairs = -1) const;
  /// Bytes of a state that has room for `time` tokens.
  std::size_t state_bytes(std::int64_t time) const;
  StatePlace state_place(std::size_t bytes, int index) const;
};

/// What is wrong with a call, found without allocating.
struct Fault {
  Status status = Status::ok;
  std::string_view tensor;  // which one
  char axis = 0;            // which axis of it (letter), or 0
  std::ptrdiff_t got = 0, want = 0;
};

struct Call {
  const Inputs* inputs = nullptr;
  const Outputs* outputs = nullptr;   // forward
  State state{};                      // forward: in and out; backward: initial
  const Inputs* d_outputs = nullptr;  // backward
  ConstState d_final{};
  const Outputs* d_inputs = nullptr;
  State d_initial{};
  Workspace workspace{};
  Form form = Form::best;
};

/// Extent of axis `letter` (T or P) of the inputs; below zero if none has it.
std::ptrdiff_t length_of(const Plan::Body&, const Inputs&, char letter) noexcept;
/// Pairs of a call: P of the inputs where it is a length of its own and an input has it, else pairs per token times T.
std::ptrdiff_t pairs_of(const Plan::Body&, const Inputs&) noexcept;
Fault check_call(const Plan::Body&, const Call&) noexcept;
std::size_t workspace_bytes(const Plan::Body&, std::int64_t time, std::int64_t pairs, Form, bool backward);
Status run_forward(const Plan::Body&, const Call&) noexcept;
Status run_backward(const Plan::Body&, const Call&) noexcept;

}  // namespace ttr
