// Data to train on (docs/model.md has the list): exact generators, every example from its own random numbers.
//
//   const auto task = ttr::model::make_task("mqar(vocabulary=512, time=64, pairs=4)");
//   ttr::model::Random random(1);  ...  task->draw(random, 8, false, examples);     // 8 sequences of the training data
//   session.gradient(examples.batch());
//
// A task is text like a block of a stack: a name and settings. Tokens that are only padding have no label; a batch is as
// long as its longest sequence. Draws depend on the state of the generator and the number of the step alone, so that a
// run can be taken up again; the step matters only to tasks with a curriculum.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ttr/export.h"
#include "ttr/model.h"
#include "ttr/random.h"

namespace ttr::model {

struct Examples {
  int sequences = 0, time = 0;
  std::vector<std::int32_t> tokens, labels;  // [sequences, time]
  std::vector<float> rows, targets;          // of tasks whose tokens are rows of numbers
  std::vector<std::uint8_t> counted;
  /// As a batch of a session of float. Lives as long as the examples.
  Batch<float> batch() const {
    return {.batch = sequences,
            .time = time,
            .tokens = tokens.empty() ? nullptr : tokens.data(),
            .rows = rows.empty() ? nullptr : rows.data(),
            .labels = labels.empty() ? nullptr : labels.data(),
            .targets = targets.empty() ? nullptr : targets.data(),
            .counted = counted.empty() ? nullptr : counted.data()};
  }
};

class TTR_MODEL_API Task {
 public:
  /// The step of a curriculum that has ended.
  static constexpr std::int64_t ended = std::numeric_limits<std::int64_t>::max();

  virtual ~Task() = default;
  /// Sequences of the training data at a step from 0, or with `test` of what the task is judged by.
  void draw(Random& random, int sequences, bool test, Examples& out, std::int64_t step = ended) const {
    make(random, sequences, test, test ? ended : step, out);
  }
  /// A token or label as a person writes it: "+", "7", "blank"; the number itself unless the task has names.
  virtual std::string symbol(std::int32_t token) const { return std::to_string(token); }

  /// Of a task about a text: the bytes that are trained on, or with `test` those that are held out; otherwise empty.
  virtual std::span<const unsigned char> text([[maybe_unused]] bool test) const { return {}; }

  std::string name, about;
  int vocabulary = 0, input_dim = 0, output_dim = 0;  // as in Config
  bool squared = false;
  int time = 0, test_time = 0;    // longest sequence of both kinds
  double chance = 0;              // accuracy of a guess: (accuracy - chance) / (1 - chance) is the scaled accuracy
  std::string metric = "tokens";  // the accuracy that was published: of Score, tokens, examples, sequences or classes
  std::string read_out = "each";  // as in Config
  // The answer is what stood behind a token: a layer has to hold both as one pair, so that its keys need the token before
  // (with_convolution of ttr/model.h). `guess` is the accuracy of one that knows the values of a sequence and no pair.
  bool recall = false;
  double guess = 0;
  /// What a model needs to know.
  void apply(Config&) const;

 private:
  virtual void make(Random&, int sequences, bool test, std::int64_t step, Examples&) const = 0;
};

/// Throws Error that lists tasks or settings.
TTR_MODEL_API std::unique_ptr<Task> make_task(std::string_view text);

struct TaskSettingInfo {
  std::string name, otherwise, meaning;  // otherwise: what it is if not given
};
struct TaskInfo {
  std::string name, settings, about;   // settings: "vocabulary=8192 time=64 .."
  std::string explanation;             // the data in full, for a person
  std::vector<TaskSettingInfo> table;  // its settings one by one
};
TTR_MODEL_API std::vector<TaskInfo> tasks();

/// Accuracies of predictions (Session::predicted) at labelled positions, by the four means of the papers.
class TTR_MODEL_API Score {
 public:
  void add(const Examples&, std::span<const std::int32_t> predicted);
  /// The share of positions that are right.
  double tokens() const;
  /// That share in each sequence, and the mean over sequences: MQAR.
  double examples() const;
  /// The share of sequences whose positions are all right: word problems.
  double sequences() const;
  /// The share among positions with one label, and the mean over labels: MAD. A class that is never a label counts as
  /// zero once it is predicted, as in the multiclass accuracy of torchmetrics, which MAD uses.
  double classes() const;
  /// By the name of Task::metric. Throws Error.
  double named(std::string_view metric) const;

 private:
  struct Count {
    std::int64_t right = 0, all = 0;
  };
  Count tokens_, whole_;
  double shares_ = 0;
  std::map<std::int32_t, Count> classes_;
};

}  // namespace ttr::model
