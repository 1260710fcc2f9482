// What the verbs on trained models share: the task a model was trained on, the model itself, and text that it makes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sampling.h"
#include "ttr/checkpoint.h"
#include "ttr/tasks.h"

namespace ttr::cli {

/// A task with settings, or the path of a text file, in the spelling that runs are compared by: settings in order, files by
/// their absolute path. `time` and `held` are those of a text file. Throws Error if it is neither.
std::string task_text(const std::string& task_or_file, int time, double held);
/// Whether it is a text file and not a task.
bool is_text_file(const std::string& task_or_file);

/// What the data of a task is recognised by; empty for tasks that draw it.
std::string fingerprint(const model::Task&);

struct TrainedModel {
  std::string path;  // of the file
  model::Config config;
  std::unique_ptr<model::Model<float>> model;
  std::string task;  // what it was trained on; empty if that is unknown
  std::int64_t step = 0;
  std::uint64_t seed = 1;
  bool mean = false;  // its parameters are the mean over the steps (--ema)
  bool bytes() const { return task.rfind("text(", 0) == 0; }
};
/// From a file or the folder of a run; for sequences of up to `time` tokens if that is more than it was trained for.
TrainedModel open_trained(const std::string& path, int time = 0);

/// The next token; `scores` are logarithms up to a constant. Throws Error if they are no numbers.
std::int32_t draw_token(std::span<const float> scores, const Sampling&, model::Random&);
/// `count` tokens after a prompt of at least one; `put` gets each as it is drawn, and ends it by returning false.
void generate(const model::Model<float>&, const std::vector<std::int32_t>& prompt, std::int64_t count,
              const Sampling&, std::uint64_t seed, int threads, const std::function<bool(std::int32_t)>& put);

}  // namespace ttr::cli
