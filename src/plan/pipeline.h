// A pipeline: the steps that compute a layer, and their gradients. Built once by lower(), executed by run/run.cc.
//
//   values   inputs of the caller, constants, and results of steps; each has a shape in letters
//   steps    per-token operations (prepare/) and kernels (families/, oracle/), in order; a kernel owns a part of the
//            state. Gradients execute the same list in reverse, so a layer's backward is composed, never written.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "families/family.h"
#include "oracle/oracle.h"
#include "prepare/operations.h"
#include "recipe/design.h"
#include "simd/simd.h"
#include "threads/pool.h"
#include "ttr/axes.h"
#include "ttr/plan.h"
#include "zoo/zoo.h"

namespace ttr::families {
struct Sequence;
}

namespace ttr {

/// Where a value has its axes by what they are for; below zero: it has none. The last inner axis is the row, the one
/// before it makes the value a matrix (W [F, K]).
struct AxisPlaces {
  signed char batch = -1, time = -1, head = -1, inner = -1, outer = -1;
  bool of_pairs = false;  // its time is that of pairs
  bool grouped = false;   // its heads are key heads
};
AxisPlaces places_of(const Axes&);

struct Value {
  std::string name;
  Axes axes;
  enum class From { input, constant, table, step } from = From::input;
  int input = -1;               // From::input: index into Pipeline::inputs
  std::vector<double> numbers;  // From::constant: one; From::table: one per head
  // Filled in when the pipeline is complete:
  AxisPlaces places = {};  // where its axes are
  int output = -1;         // which output it is, if one
  bool read = false;       // a step reads it
  bool replayed = false;   // a gradient reads it: made by a step that backward runs forwards first
  bool on_demand = false;  // the kernel that makes it does without room for it
  // An input or output that kernels alone read or write, and can in a half type: forwards, and where gradients follow.
  bool halves = false, halves_with_gradients = false;
};

/// The first operands of every kernel; those of a family's own follow (`enum : std::size_t { gk = Slot::own, gv };`).
struct Slot {
  enum : std::size_t { q, k, v, g, beta, own };
};

struct Step {
  const Family* kernel = nullptr;  // null: a per-token operation
  prepare::Op op{};
  double number = 0;          // the constant of an operation
  std::vector<int> operands;  // operations: in order. Kernels: by slot, -1 = absent
  int result = -1;
  int second_result = -1, third_result = -1;  // of kernels that have more than one
  double scale = 1;                           // kernels: on q
  int pairs = 1;                              // kernels: their time is that of pairs, T times this
  int state = -1;                             // kernels: index of the first state
  bool compact = false;                       // kernels: its state has matrices in fewer bytes (run/compact_state.h)
  int skip = -1;        // kernels: the step behind it that adds D v to its answers; forwards it does that itself
  bool folded = false;  // such a step
  std::shared_ptr<const void> options_of_family;  // further options of the kernel, of a type of the family's own

  template <class Options>
  const Options& options() const {
    return *static_cast<const Options*>(options_of_family.get());
  }
  template <class Options>
  void set_options(Options options) {
    options_of_family = std::make_shared<const Options>(std::move(options));
  }
};

/// One named array of the state; where it lies: StateLayout.
struct StatePart {
  StateInfo info;
  std::vector<std::ptrdiff_t> extent;  // of one sequence; of one pair for a history
  Type type = Type::f32;               // kernels of linear memories keep the plan's type, the others keep double
  bool history = false;                // a list of pairs
  double fresh = 0;                    // what reset writes
  std::string fresh_name = {};         // or the array of this name in Pipeline::fresh, for every sequence
  bool identity = false;               // reset writes `fresh` on the diagonal of a matrix per head
  bool literal = false;                // of the oracle
  Axes axes = {};                      // of info.shape; filled in with the step
};

class FreshState;  // fresh_state.h

struct Pipeline {
  Design design;
  std::vector<InputInfo> inputs, outputs;
  std::vector<Axes> input_axes, output_axes;  // of their shapes
  std::vector<Value> values;
  std::vector<Step> steps;
  std::vector<bool> replayed;  // per step: gradients read its result, so that backward runs it forwards first
  std::vector<StatePart> states;
  std::map<char, int> letters;   // extents of letters besides B T P H G K V: F features, M slots, L levels, W, ...
  int pairs = 1;                 // extent of P per token
  bool noncausal = false;        // P is a length of its own, there is no state
  bool history = false;          // a part of the state is a list of pairs
  std::int64_t most_pairs = -1;  // that such a list holds, whatever is seen; below zero: all of them
  bool counted = false;          // the state begins with a count of tokens per sequence, as with a history
  oracle::Sizes oracle_sizes;    // but for the time
  std::shared_ptr<const FreshState> fresh;  // where a part asks for it
  std::vector<int> canonical;               // oracle: value index of each canonical input
  std::vector<InputInfo> canonical_info;
  std::vector<int> output_values;  // value index of each output
};

/// Builds the pipeline of a design, with the layer's own stages around it if there is a declaration.
Pipeline lower(const Design&, const zoo::Declaration*, const Shape&, const Options&, double scale);

/// Numbers in one sequence's (or one pair's) share of a state part.
inline std::size_t numbers(const StatePart& part) {
  std::size_t n = 1;
  for (std::ptrdiff_t extent : part.extent) n *= static_cast<std::size_t>(extent);
  return n;
}

/// Where the parts of a state lie in the caller's buffer; plan/state_layout.cc says how.
struct StatePlace {
  std::size_t offset = 0;       // of the part, all sequences of it
  std::ptrdiff_t capacity = 0;  // pairs that a list has room for, per sequence
};
struct StateLayout {
  static constexpr std::size_t none = ~std::size_t{0};
  std::size_t counts = none;           // [B] 64-bit counts of a kernel: pairs kept, or tokens
  std::size_t seen = none;             // [B] tokens seen
  std::size_t undo = none;             // [B] earlier states in the ring (Options::rewind)
  std::size_t undo_counts = none;      // [B, rewind] counts before a token
  std::vector<std::size_t> part;       // offset of a part; of a list without its capacity
  std::vector<std::size_t> before;     // of a list: bytes of a pair of all sequences in the lists before it
  std::vector<std::size_t> undo_part;  // [B, rewind, bytes] of a part before a token; of a list what left it; or none
  std::vector<std::size_t> undo_bytes;  // of one
  std::size_t fixed = 0;                // bytes of all but the lists
  std::size_t pair = 0;                 // bytes of a pair in all lists of all sequences; 0: fixed size

  bool grows() const { return pair > 0; }
  std::size_t bytes(std::int64_t capacity) const {
    return std::max<std::size_t>(fixed + pair * static_cast<std::size_t>(capacity), 8);
  }
  std::int64_t fits(std::size_t bytes) const {
    return pair && bytes > fixed ? static_cast<std::int64_t>((bytes - fixed) / pair) : 0;
  }
};

struct TTR_HIDDEN Plan::Body {
  std::string name;
  Recipe recipe;
  Shape shape;
  Options options;
  double scale = 1;
  int chunk =
      0;  // Options::chunk; if that is 0, for kernels without a choice of their own (families/common/choice.h)
  Pipeline pipeline;
  std::vector<Form> forms;
  std::vector<StateInfo> states;  // the parts, then the counts
  StateLayout layout;
  const Simd<float>* simd_f32 = nullptr;
  const Simd<double>* simd_f64 = nullptr;
  std::vector<float> constants_f32;  // the numbers of all constant and table values, in order
  std::vector<double> constants_f64;
  std::vector<std::ptrdiff_t> constant_offset;  // per value

  bool on_oracle() const {
    return main_kernel >= 0 && pipeline.steps[static_cast<std::size_t>(main_kernel)].kernel->traits.literal;
  }
  int main_kernel = -1;                // index of the step that is the regression itself; -1: none, an operation
  int key_width = 1, value_width = 1;  // of its state
  std::size_t one_token_workspace = 0;
  std::int64_t backward_piece = 0;  // tokens of a piece of a long backward; 0: it is a whole (run/backward_pieces.h)

  /// `pairs` is the extent of P where that is a length of its own; below zero: that of T.
  std::ptrdiff_t extent(char letter, std::ptrdiff_t batch, std::ptrdiff_t time, std::ptrdiff_t pairs = -1) const {
    if (const std::ptrdiff_t own = fixed_extents[static_cast<std::size_t>(letter) % 32]; own >= 0) return own;
    if (letter != 'P') return letter == 'B' ? batch : time;
    return !pipeline.noncausal ? time * pipeline.pairs : pairs < 0 ? time : pairs;
  }
  /// By letter; below zero: those of B, T and P, which a call has. Every call asks for every axis of its tensors.
  std::array<std::ptrdiff_t, 32> fixed_extents{};
  void fix_extents();
  std::size_t elements(const Axes& axes, std::ptrdiff_t batch, std::ptrdiff_t time, std::ptrdiff_t pairs = -1) const;
  /// Bytes of a state that has room for `time` tokens.
  std::size_t state_bytes(std::int64_t time) const;
  /// Pairs that a list holds in a buffer that reset or zero has seen.
  std::ptrdiff_t capacity(ConstState state) const {
    return layout.grows() ? static_cast<std::ptrdiff_t>(*static_cast<const std::int64_t*>(state.data)) : 0;
  }
  StatePlace state_place(ConstState state, int index) const {
    const std::size_t i = static_cast<std::size_t>(index);
    if (!pipeline.states[i].history) return {layout.part[i], 0};
    const std::ptrdiff_t room = capacity(state);
    return {layout.part[i] + layout.before[i] * static_cast<std::size_t>(room), room};
  }
  template <class AnyState>
  auto counts(AnyState state) const {
    return numbers_at<std::int64_t>(state, layout.counts);
  }
  template <class AnyState>
  auto seen(AnyState state) const {
    return numbers_at<std::int64_t>(state, layout.seen);
  }
  /// What can be taken back of a sequence, and the counts before each of these tokens.
  template <class AnyState>
  auto undo(AnyState state) const {
    return numbers_at<std::int64_t>(state, layout.undo);
  }
  template <class AnyState>
  auto undo_counts(AnyState state) const {
    return numbers_at<std::int64_t>(state, layout.undo_counts);
  }
  bool has_counts() const { return layout.counts != StateLayout::none; }

  threads::Crew crew() const { return {options.threads, options.executor.run, options.executor.self}; }

 private:
  template <class N, class AnyState>
  static auto numbers_at(AnyState state, std::size_t offset) {
    using Byte = std::conditional_t<std::is_same_v<AnyState, ConstState>, const std::byte, std::byte>;
    using Number = std::conditional_t<std::is_same_v<AnyState, ConstState>, const N, N>;
    return offset == StateLayout::none || !state.data
               ? nullptr
               : reinterpret_cast<Number*>(static_cast<Byte*>(state.data) + offset);
  }
};

/// Names of the counts in Plan::states().
inline constexpr const char *kept_part = "kept", *counted_part = "counted", *seen_part = "tokens";

/// Fills in the layout and the list of states.
void lay_out_state(Plan::Body&);
/// What reset, zero and backward write first: zeros, and the room that the buffer has.
void clear_state(const Plan::Body&, State) noexcept;
/// Whether a buffer is one of the plan's, with room for what its header says.
Status check_buffer(const Plan::Body&, ConstState) noexcept;

/// What a Fault names where Options::state_type is in the way.
inline constexpr std::string_view state_type_name = "state_type";

/// What is wrong with a call, found without allocating.
struct Fault {
  Status status = Status::ok;
  std::string_view tensor;  // which one
  char axis = 0;            // which axis of it (letter), or 0
  std::ptrdiff_t got = 0, want = 0;
  std::string_view other = {};  // overlap: with what
  int sequence = -1;            // counts of a state: of which
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
  Gradients gradients = Gradients::write;
  bool sums_parameters = false;               // a piece of a call: gradients without time are added to all the same
  const std::ptrdiff_t* later = nullptr;      // tokens of each sequence behind this call, if it is a piece of one
  std::ptrdiff_t time = -1, pairs = -1;       // by measure(); below zero: no input has a time
  Saved saved{};                              // without data unless it is used: use_saved()
  const families::Sequence* whole = nullptr;  // of a piece of a call: the sequences of the call,
  const std::ptrdiff_t* before = nullptr;     // and tokens of each in front of the piece
};

/// Finds the tokens and pairs of a call: P of the inputs where it is a length of its own and an input has it, else pairs
/// per token times T.
void measure(const Plan::Body&, Call&) noexcept;
/// Judges the buffer of a call for what forward leaves and backward reads, and takes it out of a call that leaves nothing.
Fault use_saved(const Plan::Body&, Call&) noexcept;
std::size_t saved_bytes(const Plan::Body&, std::int64_t time, Form);
Fault check_call(const Plan::Body&, const Call&) noexcept;
/// Scratch of a call of `time` tokens (and `pairs` pairs, where these are a length of their own) after `kept` pairs.
std::size_t workspace_bytes(const Plan::Body&, std::int64_t time, std::int64_t pairs, std::int64_t kept, Form,
                            bool backward);
Status run_forward(const Plan::Body&, const Call&) noexcept;
Status run_backward(const Plan::Body&, const Call&) noexcept;

}  // namespace ttr
