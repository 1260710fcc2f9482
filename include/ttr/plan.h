// Plan once, run many times.
//
//   ttr::Plan plan = ttr::plan("gated-deltanet", {.batch = 1, .heads = 4, .key_dim = 64, .value_dim = 64});
//   ttr::Footprint bytes = plan.footprint(T);                    // the caller owns state and workspace
//   std::vector<std::byte> state(bytes.state), work(bytes.workspace);
//   plan.reset({state.data(), state.size()});
//   ttr::Inputs in;
//   in["q"] = ttr::view(q, 1, T, 4, 64);  in["k"] = ...;          // names: plan.inputs()
//   ttr::Outputs out;
//   out["o"] = ttr::view(o, 1, T, 4, 64);
//   ttr::Status s = plan.forward(in, {state.data(), state.size()}, out, {work.data(), work.size()});
//
// A plan is immutable: share it between threads. step, forward and backward never throw, print or abort, and allocate
// nothing unless kernel() is "oracle". Calls that use different states and workspaces may run at once.
// Options::threads lets one call use several threads: results are the same, bit for bit, and calls with less than
// about ten microseconds of work stay on one.
//
// A forward can leave what its backward would have to find again in a buffer of the caller's (Saved).
//
// A call that is made again and again with other pointers is prepared once (ttr/prepared.h). A state is moved, rolled
// back and saved as docs/embedding.md says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ttr/export.h"
#include "ttr/layer.h"
#include "ttr/recipe.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr {

struct Shape {
  int batch = 1;      // sequences, each with its own state
  int heads = 1;      // heads of the state and of the output
  int key_heads = 0;  // heads of the shared side of a group (0 = heads); divides heads, groups are contiguous
  int key_dim = 1;
  int value_dim = 1;
};

enum class Form { best, step, recurrent, chunk, parallel, scan };
TTR_API std::string_view to_string(Form) noexcept;

/// Threads of the caller's own, for programs that have some already; without one, the library starts a pool.
struct Executor {
  /// Calls job(data, i) for i = 0 .. jobs-1, once each, in any order and on any threads, and returns when all are done.
  /// One that calls them one after another is right too: the first then does all the work.
  void (*run)(void* self, int jobs, void (*job)(void* data, int i), void* data) = nullptr;
  void* self = nullptr;
};

struct Options {
  Type type = Type::f32;                             // of states and arithmetic: f32 or f64
  std::optional<Type> tensors = {};                  // bf16 or f16: tensors of a call may have it too; needs f32
  bool causal = true;                                // false: every query sees all pairs of its call; no state
  int chunk = 0;                                     // tokens per chunk; 0 = chosen by the plan
  std::optional<double> scale = {};                  // factor on q; empty = the layer's own
  std::map<std::string, std::string> settings = {};  // as in `rls:ridge=1e-3`; see LayerInfo::settings
  int threads = 1;                                   // threads that share the work of a call; 0 = all cores
  Executor executor = {};                            // who runs them; empty: a pool of the library
  int rewind = 0;                                    // newest tokens of a sequence that Plan::rewind can take back
  /// bf16: the matrices of a memory, or the keys and values of pairs, in half the bytes; f16: keys and values, below 65504;
  /// i8: these in a quarter, with a scale per row. Arithmetic stays float (docs/embedding.md); needs f32, has no backward.
  std::optional<Type> state_type = {};
  std::string kernel = {};  // "oracle" forces the literal solver; empty = the fastest
  std::string target = {};  // "AVX2", "SSE4", ... forces an instruction set; empty = the best
                            // (or the environment's TTR_TARGET)
  bool count = false;       // the plan counts its multiply-adds: executed(), for benchmarks
};

/// What plans with Options::count have executed in this process so far: multiply-adds of the products, scans and solves of
/// their kernels, triangles as triangles. Exponentials, copies and the operations around a memory are not counted.
///
///   ttr::Options counting;
///   counting.count = true;
///   const std::uint64_t before = ttr::executed().multiply_adds;
///   call(ttr::plan("retnet", {1, 2, 0, 16, 16}, counting));            // whatever it is that one wants to know
///   const std::uint64_t flops = 2 * (ttr::executed().multiply_adds - before);
struct Executed {
  std::uint64_t multiply_adds = 0;
  std::uint64_t uncounted = 0;  // has grown: a kernel ran that does not count all of its own
};
TTR_API Executed executed() noexcept;

struct Footprint {
  std::size_t state = 0;      // bytes of state after `time` tokens
  std::size_t workspace = 0;  // bytes of scratch for one step or forward of up to `time` tokens
  std::size_t backward = 0;   // bytes of scratch for one backward of up to `time` tokens
  std::size_t saved = 0;      // bytes that a forward of up to `time` tokens can leave for its backward; 0: nothing
};

/// The caller's memory, aligned to at least 8 bytes (64 is faster).
struct State {
  void* data = nullptr;
  std::size_t bytes = 0;
};
struct ConstState {
  const void* data = nullptr;
  std::size_t bytes = 0;
  ConstState() = default;
  ConstState(const void* d, std::size_t b) : data(d), bytes(b) {}
  ConstState(State s) : data(s.data), bytes(s.bytes) {}
};
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// Room of Footprint::saved bytes in which a forward leaves what its backward would have to find again: states between
/// chunks, what a delta rule has written. Optional: the gradients are the same, bit for bit, without it, and take longer.
///
///   std::vector<std::byte> kept(bytes.saved);
///   plan.forward(in, state, out, work, ttr::Form::best, {kept.data(), kept.size()});
///   plan.backward(in, initial, d_out, {}, d_in, {}, work, ttr::Form::best, ttr::Gradients::write, {kept.data(), kept.size()});
///
/// It belongs to the call: the same plan, inputs, initial state, packing and form; backward refuses (bad_saved) what it can
/// see to be of another. A plan or a call that leaves nothing (footprint().saved is 0) takes no notice of it.
struct Saved {
  void* data = nullptr;  // aligned to at least 8 bytes
  std::size_t bytes = 0;
};

/// A short list of named tensors; no allocation, names must outlive it (string literals do).
template <class AnyTensor>
class NamedTensors {
 public:
  static constexpr int capacity = 32;
  /// The tensor of that name, added empty if it is not there; beyond the capacity, a tensor that is never read, and
  /// calls return unknown_name.
  AnyTensor& operator[](std::string_view name) noexcept {
    for (int i = 0; i < count_; ++i)
      if (names_[i] == name) return tensors_[i];
    complete_ = complete_ && count_ < capacity - 1;
    const int slot = count_ < capacity - 1 ? count_++ : capacity - 1;
    names_[slot] = name;
    return tensors_[slot];
  }
  /// False once a name did not fit.
  bool complete() const noexcept { return complete_; }
  /// The tensor of that name, or one without data.
  AnyTensor get(std::string_view name) const noexcept {
    for (int i = 0; i < count_; ++i)
      if (names_[i] == name) return tensors_[i];
    return {};
  }
  /// The same without a copy, null if there is none; quick if it is the one at `likely`.
  const AnyTensor* find(std::string_view name, int likely = 0) const noexcept {
    if (likely < count_ && names_[static_cast<std::size_t>(likely)] == name)
      return &tensors_[static_cast<std::size_t>(likely)];
    for (std::size_t i = 0; i < static_cast<std::size_t>(count_); ++i)
      if (names_[i] == name) return &tensors_[i];
    return nullptr;
  }
  std::span<const std::string_view> names() const noexcept {
    return {names_.data(), static_cast<std::size_t>(count_)};
  }
  /// The tensors in the order of names().
  std::span<AnyTensor> tensors() noexcept { return {tensors_.data(), static_cast<std::size_t>(count_)}; }
  void clear() noexcept { count_ = 0, complete_ = true, cu_seqlens = {}, cu_seqlens_pairs = {}; }

  /// Packed sequences: the tensors have B = 1 and sequence n is tokens cu_seqlens[n] .. cu_seqlens[n+1]-1, with
  /// Shape::batch sequences in all. Empty: every batch row is one sequence. Read from the inputs only.
  std::span<const std::int64_t> cu_seqlens;
  /// Plans that are not causal: the same for the pairs, whose tensors have a length of their own (the letter P).
  /// Empty: as cu_seqlens; not without it.
  std::span<const std::int64_t> cu_seqlens_pairs;

 private:
  std::array<std::string_view, capacity> names_;
  std::array<AnyTensor, capacity> tensors_{};
  int count_ = 0;
  bool complete_ = true;
};
using Inputs = NamedTensors<ConstTensor>;  // also the gradients of outputs
using Outputs = NamedTensors<Tensor>;      // also the gradients of inputs

/// What backward does with the numbers that gradients of inputs hold already.
enum class Gradients { write, add };

/// How a plan forgets: a pair of age n has the weight factor^n, and none after `window` pairs (0: no window).
struct Forgetting {
  double factor = 1;
  std::int64_t window = 0;
};

class Prepared;  // ttr/prepared.h
class PreparedBackward;

class TTR_API Plan {
 public:
  /// What to allocate for calls of up to `time` tokens (states that keep their pairs: tokens in all; plans that are
  /// not causal: the larger of tokens and pairs). Form::best covers every form but parallel, whose scratch grows with
  /// the square of the time, and scan where it is not the best form: ask for those by name.
  Footprint footprint(std::int64_t time, Form form = Form::best) const;
  std::string kernel() const;                // "delta/chunk/AVX2", "oracle"
  const std::string& name() const noexcept;  // layer name, or the recipe's text
  const Recipe& recipe() const noexcept;
  const Shape& shape() const noexcept;
  const Options& options() const noexcept;
  double scale() const noexcept;
  std::span<const InputInfo> inputs() const noexcept;
  std::span<const InputInfo> outputs() const noexcept;
  std::span<const StateInfo> states() const noexcept;
  std::span<const Form> forms() const noexcept;      // the exact forms of this plan
  std::string_view why_absent(Form) const noexcept;  // why a form is not among them
  Form best_form(std::int64_t time) const noexcept;  // what Form::best is for a forward of `time` tokens
  /// Empty where the weights of pairs depend on gates that are inputs, or on the query.
  std::optional<Forgetting> forgetting() const noexcept;

  /// Extents of an input, output or state for `time` tokens from a fresh state (L of `levels` without a number: the
  /// fewest they need); `pairs` is the extent of P in a plan that is not causal, if it differs from that of T.
  std::vector<std::ptrdiff_t> extents(std::string_view shape_letters, std::int64_t time,
                                      std::int64_t pairs = -1) const;

  /// A fresh state: no pairs seen. A state that keeps its pairs has room for as many as fit into the buffer, and
  /// remembers how many: from then on its layout does not depend on the bytes that are passed.
  Status reset(State) const noexcept;
  /// All numbers zero and no tokens, with that room: what a gradient of a final state starts as.
  Status zero(State) const noexcept;
  /// The part of a state that is called `name` ("S"), as a tensor that may be read and written.
  Tensor state_tensor(State, std::string_view name) const noexcept;
  /// Pairs that sequence `sequence` of a state keeps; -1 for states of fixed size.
  std::int64_t tokens_kept(ConstState, int sequence = 0) const noexcept;
  /// Pairs that a state has room for, per sequence; -1 for states of fixed size.
  std::int64_t capacity(ConstState) const noexcept;
  /// Tokens that a sequence has seen since it was reset; -1 for plans without a state.
  std::int64_t tokens_seen(ConstState, int sequence = 0) const noexcept;
  /// Moves a growing state into a larger buffer.
  [[nodiscard]] Status grow(ConstState from, State to) const noexcept;
  /// Moves a state of `of` into a state of this plan, which has at least as many sequences: the first are those of `of`,
  /// the others fresh. What the plans may differ in: see copy.
  [[nodiscard]] Status grow(const Plan& of, ConstState from, State to) const noexcept;
  /// Truncates the lists of a state that keeps its pairs to the oldest `tokens`. States of a fixed size cannot undo what
  /// they have added, and a window cannot recover what has left it: not_supported; see rewind.
  [[nodiscard]] Status truncate(State, std::int64_t tokens) const noexcept;

  /// Takes back the newest `tokens` of a sequence, which were only tried: the state has the bits that it had before
  /// them. With Options::rewind = n, for every layer and up to n tokens; a forward then runs the last n tokens of every
  /// sequence one by one, and a state has room for n earlier states. Lists without a window need no option and go back
  /// any number of tokens. More than rewindable() is not_supported, and nothing is changed.
  [[nodiscard]] Status rewind(State, int sequence, std::int64_t tokens) const noexcept;
  /// The same for every sequence; not_supported if one of them cannot, and nothing is changed.
  [[nodiscard]] Status rewind(State, std::int64_t tokens) const noexcept;
  /// Tokens that rewind can take back now.
  std::int64_t rewindable(ConstState, int sequence = 0) const noexcept;

  // Inputs may share memory with each other. What a call writes (outputs, gradients, state, d_initial, workspace) may
  // share none with anything else of the call, or it returns overlap; tensors that lie between each other's rows, as
  // q, k and v of one array [B, T, 3, H, K] do, share none.

  // Slots: one sequence of a state, for batches that sequences join and leave. The others are not touched, and no slot
  // but those named is read. A sequence that the plan does not have is bad_shape.

  /// Sequence `sequence` as in a fresh state.
  Status reset(State, int sequence) const noexcept;
  /// Sequence `from` of `source`, a state of `of`, becomes sequence `to` of `target`, a state of this plan. The plans may
  /// differ in their batch, threads, tensors, chunk and rewind (then nothing can be taken back at first), not in what a
  /// state holds: not_supported. State and slot may be the same. A target without room for the pairs is state_full, and nothing is changed.
  [[nodiscard]] Status copy(const Plan& of, ConstState source, int from, State target, int to) const noexcept;
  /// Exchanges two sequences of a state.
  [[nodiscard]] Status swap(State, int one, int other) const noexcept;
  /// truncate() of one sequence.
  [[nodiscard]] Status truncate(State, int sequence, std::int64_t tokens) const noexcept;

  /// One token: the tensors have T = 1.
  [[nodiscard]] Status step(const Inputs&, State, const Outputs&, Workspace) const noexcept;
  /// A whole sequence, a batch, or packed sequences; continues from `state` and leaves the final state in it. Outputs
  /// may be left out; those besides the answer (`variance` of RLS) then cost nothing.
  [[nodiscard]] Status forward(const Inputs&, State, const Outputs&, Workspace, Form = Form::best,
                               Saved = {}) const noexcept;
  /// Gradients of  sum <d_output, output> + <d_final, final state>  for every input named in `d_inputs` and for the
  /// initial state (if `d_initial` has data, which is always written). `d_final` may be empty: zero; else it is a buffer
  /// that zero() began. A gradient of an output that is not differentiable (InputInfo) is refused: not_supported.
  /// Gradients::add adds to what `d_inputs` hold; after a status other than ok they hold nothing of use.
  [[nodiscard]] Status backward(const Inputs&, ConstState initial, const Inputs& d_outputs, ConstState d_final,
                                const Outputs& d_inputs, State d_initial, Workspace, Form = Form::best,
                                Gradients = Gradients::write, Saved = {}) const noexcept;

  /// A forward (or step) for tensors of these shapes, strides and types, whose addresses follow with every call; those
  /// given here are not read. Throws Error with the sentence of diagnose if the plan does not take them.
  [[nodiscard]] Prepared prepare(const Inputs&, const Outputs&, Form = Form::best) const;

  /// The same for a backward. Gradients that are left out here are not wanted (d_inputs) or zero (d_outputs).
  [[nodiscard]] PreparedBackward prepare_backward(const Inputs&, const Inputs& d_outputs, const Outputs& d_inputs,
                                                  Form = Form::best, Gradients = Gradients::write) const;

  /// What is wrong with these arguments of step and forward, or left out of the answers of a call that succeeds, as a
  /// sentence with names, numbers and the remedy; empty if nothing is. Runs the call on copies where only that shows it.
  std::string diagnose(const Inputs&, ConstState, const Outputs&, Workspace, Form = Form::best, Saved = {}) const;
  /// The same for backward.
  std::string diagnose(const Inputs&, ConstState initial, const Inputs& d_outputs, ConstState d_final,
                       const Outputs& d_inputs, State d_initial, Workspace, Form = Form::best, Saved = {}) const;

  struct Body;
  explicit Plan(std::shared_ptr<const Body> body) : body_(std::move(body)) {}
  const std::shared_ptr<const Body>& body() const noexcept { return body_; }  // for the library itself

 private:
  std::shared_ptr<const Body> body_;
};

TTR_API Plan plan(const Recipe&, const Shape&, const Options& = {});
/// A layer name ("nlms"), a name with settings ("rls:decay=0.99,ridge=1e-3") or a recipe ("equal / linear / gd(1)").
TTR_API Plan plan(std::string_view layer_or_recipe, const Shape&, const Options& = {});

/// A plan, or the sentence that plan() would have thrown and where it belongs.
struct TriedPlan {
  std::optional<Plan> plan;
  std::string error, where;
  explicit operator bool() const noexcept { return plan.has_value(); }
};
/// plan() for programs without exceptions.
[[nodiscard]] TTR_API TriedPlan try_plan(std::string_view layer_or_recipe, const Shape&,
                                         const Options& = {}) noexcept;

/// The derivation of the plan's recipe, with the forms of the plan; without state and recurrence if it is not causal.
TTR_API Derivation derive(const Plan&, Notation = Notation::plain);

}  // namespace ttr
