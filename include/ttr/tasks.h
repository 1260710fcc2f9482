// Data to train on (docs/model.md has the list): exact generators, every example from its own random numbers.
//
//   const auto task = ttr::model::make_task("mqar(vocabulary=512, time=64, pairs=4)");
//   ttr::model::Random random(1);  ...  task->draw(random, 8, false, examples);     // 8 sequences of the training data
//   session.gradient(examples.batch());
//
// A task is text like a block of a stack: a name and settings. Tokens that are only padding have no label; a batch is as
// long as its longest sequence. Draws depend on the state of the generator alone, so that a run can be taken up again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

class Task {
 public:
  virtual ~Task() = default;
  /// Sequences of the training data, or with `test` of what the task is judged by.
  virtual void draw(Random&, int sequences, bool test, Examples&) const = 0;
  /// Of a task about a text: the bytes that are trained on, or with `test` those that are held out; otherwise empty.
  virtual std::span<const unsigned char> text([[maybe_unused]] bool test) const { return {}; }

  std::string name, about;
  int vocabulary = 0, input_dim = 0, output_dim = 0;  // as in Config
  bool squared = false;
  int time = 0, test_time = 0;  // longest sequence of both kinds
  double chance = 0;            // accuracy of a guess: (accuracy - chance) / (1 - chance) is the scaled accuracy
  /// What a model needs to know.
  void apply(Config&) const;
};

/// Throws Error that lists tasks or settings.
std::unique_ptr<Task> make_task(std::string_view text);

struct TaskInfo {
  std::string name, settings, about;
};
std::vector<TaskInfo> tasks();

}  // namespace ttr::model
