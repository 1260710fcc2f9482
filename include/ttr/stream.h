// A layer with its memory, for programs that want three lines:
//
//   ttr::Stream stream("gated-deltanet", {.heads = 4, .key_dim = 64, .value_dim = 64});
//   stream.push({q, k, v, beta, g}, o, T);                    // T tokens; the state moves on
//   stream.query({q, k, v, beta, g}, o);                      // the answer to one more, which is then forgotten
//
// It owns the state and the scratch memory, enlarges them when a layer keeps its pairs, and throws Error with a sentence.
// A program that counts its bytes and nanoseconds takes a Plan.
//
// Behind it: layers on a stream of rows, where nothing is learned beforehand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ttr/export.h"
#include "ttr/plan.h"
#include "ttr/recipe.h"

namespace ttr {

class TTR_API Stream {
 public:
  /// As plan(); Shape::batch sequences advance together. With Options::rewind = n, the newest n tokens can be taken back.
  explicit Stream(std::string_view layer_or_recipe, const Shape& = {}, const Options& = {});
  explicit Stream(Plan);

  /// `tokens` of every sequence. One pointer for each of plan().inputs(), in that order, null for those that are left
  /// out; contiguous tensors [B, tokens, ...] of the plan's type, which is float unless Options say f64. The first of
  /// plan().outputs() goes to `answer`.
  void push(std::span<const float* const> inputs, float* answer, std::int64_t tokens = 1);
  void push(std::span<const double* const> inputs, double* answer, std::int64_t tokens = 1);
  void push(std::initializer_list<const float*> inputs, float* answer, std::int64_t tokens = 1);
  void push(std::initializer_list<const double*> inputs, double* answer, std::int64_t tokens = 1);
  /// Tensors by name, as Plan::forward takes them.
  void push(const Inputs&, const Outputs&);

  /// The answers that push would give; the stream stays as it is.
  void query(std::span<const float* const> inputs, float* answer, std::int64_t tokens = 1);
  void query(std::span<const double* const> inputs, double* answer, std::int64_t tokens = 1);
  void query(std::initializer_list<const float*> inputs, float* answer, std::int64_t tokens = 1);
  void query(std::initializer_list<const double*> inputs, double* answer, std::int64_t tokens = 1);
  void query(const Inputs&, const Outputs&);

  /// A stream that has seen the same and goes its own way.
  Stream clone() const;
  /// To a file that load, or load_state, takes back (ttr/saved_state.h). Loading replaces all that this stream has seen.
  void save(const std::string& path) const;
  void load(const std::string& path);
  /// Takes back the newest tokens of all sequences.
  void rewind(std::int64_t tokens);
  /// As if nothing had been seen.
  void reset();

  std::int64_t tokens(int sequence = 0) const noexcept;  // seen
  const Plan& plan() const noexcept { return plan_; }
  State state() noexcept { return {state_.get(), state_bytes_}; }
  ConstState state() const noexcept { return {state_.get(), state_bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  using Buffer = std::unique_ptr<std::byte[], Free>;
  static Buffer buffer(std::size_t bytes);
  void run(const Inputs&, const Outputs&, State);
  void make_room(std::int64_t more);
  void need_workspace(std::size_t bytes);
  template <class T>
  void bind(std::span<const T* const> inputs, T* answer, std::int64_t tokens, Inputs&, Outputs&) const;

  Plan plan_;
  Buffer state_, spare_, work_;
  std::size_t state_bytes_ = 0, spare_bytes_ = 0, work_bytes_ = 0;
  std::int64_t room_ = 0;  // pairs that the state has room for; -1: a state of fixed size
};

/// Newest pairs that a layer without a state of fixed size keeps on a stream.
inline constexpr int stream_window = 1024;

/// The recipe text of a layer name ("nlms"), a name with settings ("rls:decay=0.99,ridge=1e-3") or a recipe, in
/// which every quantity that a model would learn or compute per token is a constant: the setting given, else the
/// layer's stream default. Layers that keep their pairs get `window(stream_window)` unless they have a window.
/// A recipe is otherwise left as it is; a named network loses its layer norm and its residual. What was changed is
/// added to `changes`, one sentence each. Throws Error for unknown layers and settings, and for a recipe that cannot
/// run without further inputs.
TTR_API std::string stream_recipe(std::string_view layer_or_recipe, std::vector<std::string>* changes = nullptr);

/// What to try a layer or recipe on a stream as: a step that a recipe leaves at 1, too long for most keys, is one that
/// cannot make the answers grow without bound.
TTR_API std::string stream_proposal(std::string_view layer_or_recipe);

/// Where an input of a layer comes from.
struct StreamInput {
  enum class Source { query, key, value, number, identity, random, cosine, scores, shares };  // src/plan/stream.cc
  std::string name;
  Source source = Source::number;
  double number = 1;       // the number, or a factor on what comes from the row
  double shift = 0;        // query, key: added to every entry
  bool unit = false;       // query, key: of length one
  std::string words = {};  // all of it, to be read: "0.02 value"
};

/// What runs on a stream.
struct StreamText {
  std::string text;                  // for plan(): a recipe, or a layer with settings
  std::string recipe;                // the recipe that this is
  bool as_layer = false;             // the layer with inputs of its own, not the recipe alone
  std::vector<StreamInput> inputs;   // those that the plan has; others are already numbers
  std::vector<std::string> changes;  // what is not as it was written, one sentence each
};

/// As stream_recipe, and layers that are more than their recipe with numbers for what a model would compute.
TTR_API StreamText stream_layer(std::string_view layer_or_recipe);

/// Empty, or the sentence that stream_layer refuses a layer with.
TTR_API std::string why_not_on_a_stream(std::string_view layer);

}  // namespace ttr
