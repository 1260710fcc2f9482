// A family: kernels for a class of regression problems, and everything the other rooms may know about them. A family
// is one folder (kernel, SIMD, planning glue `x_plan.cc`, test) and one row of families.def.
//
//   claim    removes from a copy of the design what the kernel computes; the family claims the design if nothing is
//            left (claim.h). A word that a family does not know remains, so it cannot be overlooked
//   build    turns the canonical inputs of the design into the steps of a pipeline, and says what the state is
//   stage    the same for a running quantity of a layer's preparation, where the family serves as one
//   calls    scratch, forward and backward of one step, for each type
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "families/common/choice.h"
#include "families/common/saved.h"
#include "families/common/scratch.h"
#include "simd/built_types.h"
#include "ttr/axes.h"
#include "ttr/plan.h"

namespace ttr {

struct Design;
struct Step;
struct Call;
class Builder;
template <class T>
class KernelArgs;
template <class T>
struct Binding;
namespace zoo {
struct Stage;
}

/// What a family adds to its calls that has the parallel form by segments of time (run/segments.h). To it a segment is a
/// problem of its own: one sequence, the heads of one key head, and states that hold these alone (KernelArgs). A sum is
/// the state that the pairs of a segment make of nothing, and gradients of states are those of sums.
template <class T>
struct SegmentCalls {
  std::ptrdiff_t shortest = 64;  // tokens of a segment at least
  /// own = the sum of the segment, if it has room for one. outside [heads]: who has a number outside the domain.
  void (*sum)(const KernelArgs<T>&, State own, bool* outside, Workspace) noexcept = nullptr;
  /// own, the sum of the segment, becomes the state at its end: it begins with `start`.
  void (*join)(const KernelArgs<T>&, State start, State own, Workspace) noexcept = nullptr;
  /// d_start += what the gradient of the end is to the start, the segment's answers aside.
  void (*pass)(const KernelArgs<T>&, State d_end, State d_start) noexcept = nullptr;
  /// Adds what call.d_final, the gradient of the end, is to the segment's inputs; call.state is its start.
  void (*back)(const KernelArgs<T>&, const Call&, families::Arena) noexcept = nullptr;
  /// From the gradient of a state as the caller sees it to that of the sum, in place, and back; null: they are the same.
  void (*d_in)(const KernelArgs<T>&, State state, State d, Workspace) noexcept = nullptr;
  void (*d_out)(const KernelArgs<T>&, State state, State d, Workspace) noexcept = nullptr;
};

/// How a step calls its kernel. `state` is the whole buffer of the caller; KernelArgs finds the parts of the step.
template <class T>
struct KernelCalls {
  std::size_t (*workspace)(const Plan::Body&, const Step&, std::int64_t time, Form, bool backward) = nullptr;
  Status (*forward)(const KernelArgs<T>&, State, Form, Workspace) noexcept = nullptr;
  Status (*backward)(const KernelArgs<T>&, const Call&, Form, families::Arena) noexcept = nullptr;
  /// Scratch of a call that a team works on (families/common/team.h); null: there are none.
  std::size_t (*team_workspace)(const Plan::Body&, const Step&, std::int64_t time, Form, bool backward,
                                int workers) = nullptr;
  const SegmentCalls<T>* segments = nullptr;  // of Form::parallel
  /// Slots of operands whose gradients backward clears itself where they are its alone (LinearGradient::fresh), a bit each.
  unsigned clears = 0;
  /// Slots of operands whose rows forward reads where they lie in tensors of a half type, a bit each (half_rows.h); those of
  /// its result it then writes there too, and Form::scan does neither.
  unsigned halves = 0;
  /// Of a sequence of `tokens` tokens, where a call has room for it; null: nothing.
  families::SavedChunks (*saved)(const Plan::Body&, const Step&, std::int64_t tokens, Form) = nullptr;
  /// The scratch of `time` tokens after `past` pairs, of families that keep these; null: that of time + past tokens.
  std::size_t (*after)(const Plan::Body&, const Step&, std::int64_t time, std::int64_t past, bool backward) = nullptr;
  /// A forward that comes again and again with the same addresses (run/prepared.cc): ready() leaves in `memory`, which has
  /// room for ready_bytes, what forward makes of its arguments, and go() does the rest. Null: there is nothing to gain.
  std::size_t ready_bytes = 0;
  void (*ready)(const Plan::Body&, const Step&, const Binding<T>&, State, Form, Workspace,
                void* memory) noexcept = nullptr;
  Status (*go)(const void* memory) noexcept = nullptr;
};

/// The calls that a struct F<T> holds as static functions.
template <template <class> class F, class T>
constexpr KernelCalls<T> calls_of() {
  if constexpr (is_built<T>) {
    KernelCalls<T> calls{F<T>::workspace, F<T>::forward, F<T>::backward};
    if constexpr (requires { F<T>::team_workspace; }) calls.team_workspace = F<T>::team_workspace;
    if constexpr (requires { F<T>::after; }) calls.after = F<T>::after;
    return calls;
  } else {
    return {};
  }
}

/// Exact forms besides step and recurrent.
struct Forms {
  bool chunk = false, parallel = false, scan = false;
  constexpr bool has(Form form) const {
    return form == Form::chunk ? chunk : form == Form::parallel ? parallel : form == Form::scan ? scan : true;
  }
};
inline constexpr Forms all_forms = {true, true, true}, blocks_only = {true, true, false},
                       scan_only = {false, false, true}, chunk_only = {true, false, false},
                       parallel_only = {false, true, false}, chunk_and_scan = {true, false, true},
                       token_by_token = {};

/// What a plan makes of Form::best where the table of measurements (common/choice.h) does not decide.
enum class BestForm { chunk, chunk_of_any_length, recurrent };

/// In which forms a kernel divides time among a team, forwards and backwards. Form::best does not depend on it: it is the
/// same form, with the same bits, on any number of threads.
struct Teams {
  Forms forward = {}, backward = {};
  constexpr bool has(Form form, bool back) const {
    const Forms& forms = back ? backward : forward;
    return (form == Form::chunk || form == Form::parallel || form == Form::scan) && forms.has(form);
  }
};

struct Traits {
  bool keeps_pairs = false;        // the state is the list of pairs; backward only reads it
  bool splits_columns = false;     // columns of the values are independent, so threads may divide them
  bool couples_heads = false;      // heads depend on each other, so threads may not divide them
  bool grows_with_time = false;    // scratch grows with the call: a long call goes in blocks of time
  bool answers_on_demand = false;  // computes further results only if somebody reads them
  bool running = false;            // a quantity beside the regression, not the regression itself
  bool light = false;              // work of a token grows with its vectors, not with their product
  bool literal = false;            // the oracle
  bool adds_skip = false;  // forwards it can add D v to its answers, D a number per head (LinearProblem::skip)
  BestForm best = BestForm::chunk;
  Teams team = {};
};

struct Family {
  std::string_view name;  // what Plan::kernel() calls it
  Forms forms;
  std::string_view why_absent = {};  // the forms it does not have
  Traits traits = {};
  bool (*claim)(const Design&, bool causal) = nullptr;  // null: layers and other families ask for it
  int (*build)(Builder&, double scale) = nullptr;       // the value that is the answer; null: only as a stage
  int (*stage)(Builder&, const zoo::Stage&, const std::vector<int>& operands, Axes axes) = nullptr;
  KernelCalls<float> f32 = {};  // empty: the steps are those of other families
  KernelCalls<double> f64 = {};
  std::optional<families::Tuned> (*tuning)(const Step&) = nullptr;  // its row in the table of measured forms
  int (*time_unit)(const Step&) = nullptr;                          // blocks of time must be multiples of it; null: 1

  template <class T>
  constexpr const KernelCalls<T>& calls() const {
    if constexpr (sizeof(T) == 4) return f32;
    else return f64;
  }
};

}  // namespace ttr
