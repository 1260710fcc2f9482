// A published architecture: how it is recognised, and what its tensors are in a graph (graph.h). One file each, one row in
// architectures.def.
//
// A checkpoint comes with the names of the original code, of Hugging Face, of flash-linear-attention or of GGUF; `Source`
// finds a tensor under the name at hand, checks its shape, and remembers what was used: a tensor that nobody asked for
// is refused, because a model with a part left out answers with confidence and wrongly.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "language/graph.h"
#include "language/weights.h"

namespace ttr::model {

class Source {
 public:
  /// `settings` go before those of the checkpoint.
  Source(const Weights& weights, Settings settings) : weights_(weights), settings_(std::move(settings)) {}

  const Settings& settings() const { return settings_; }
  const Weights& weights() const { return weights_; }
  bool gguf() const { return weights_.gguf(); }
  bool has(const std::string& name) const { return weights_.find(name) != nullptr; }
  const std::vector<std::int64_t>& shape(const std::string& name) const { return weights_.get(name).shape; }

  /// [out, in] as stored; -1: whatever it is. Throws Error that names the tensor and both shapes.
  Matrix matrix(const std::string& name, Size out, Size in);
  /// Stored [in, out]: a copy in floats.
  Matrix transposed(const std::string& name, Size in, Size out);
  /// All its numbers in order, `count` of them (-1: whatever it has).
  std::vector<double> numbers(const std::string& name, Size count = -1);
  Numbers vector(const std::string& name, Size count) { return numbers_of(numbers(name, count)); }
  /// The same changed one by one: -exp(x) of A_log.
  Numbers vector(const std::string& name, Size count, const std::function<double(double)>& change);

  /// Known to be of no use: endings of names.
  void ignore(const std::string& ending) { ignored_.push_back(ending); }
  /// Throws Error if a tensor was neither used nor ignored.
  void all_used() const;
  /// One more than the largest i for which a name begins with `before` + i + ".".
  int count(const std::string& before) const;

 private:
  const Weight& get(const std::string& name);

  const Weights& weights_;
  Settings settings_;
  std::set<std::string> used_;
  std::vector<std::string> ignored_;
};

struct Architecture {
  const char* name;
  const char* about;  // what is recognised, for people
  bool (*recognises)(const Source&);
  void (*build)(Source&, Graph&);
};

const std::vector<const Architecture*>& architectures();
/// The graph of a checkpoint, and which architecture it is. Throws Error.
const Architecture& build_graph(const Weights&, const Settings& overrides, Graph&);

// What several architectures have.

/// RMS norm of each of `groups` parts; the weight is that of a part or of the row. `plus_one`: it is 1 + w.
Value rms_norm(Graph&, Source&, Value, const std::string& weight, double eps, Size groups = 1, bool plus_one = false);
/// With weight and bias `name`.weight and `name`.bias.
Value layer_norm(Graph&, Source&, Value, const std::string& name, double eps, Size groups = 1);
Value silu(Graph&, Value);
Value sigmoid(Graph&, Value);
/// down(silu(gate x) * up x); with one matrix of both, gate first, where there is no `up`.
Value swiglu(Graph&, Source&, Value, const std::string& gate, const std::string& up, const std::string& down);
/// x / sqrt(sum x^2 + 1e-6) of each head.
Value unit_heads(Graph&, Value, Size heads);
/// Heads of a row repeated so that every one of `groups` neighbours has its own.
Value repeat_heads(Graph&, Value, Size heads, Size groups);
/// Depthwise taps [C, 1, W] or [C, W], with the bias if there is one.
Value convolve(Graph&, Source&, Value, const std::string& name, bool silu);
/// A linear map by `name`.weight, and `name`.bias if there is one.
Value linear(Graph&, Source&, Value, const std::string& name, Size out);
std::string at(const std::string& before, int i, const std::string& after);
/// Whether it is a GGUF file of this general.architecture.
bool is_gguf(const Source&, const char* architecture);
/// -exp(x), what A_log stands for.
double minus_exp(double);

}  // namespace ttr::model
