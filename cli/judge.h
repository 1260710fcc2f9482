// How good a model is: loss, and shares of tokens and of whole sequences that are right.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "ttr/tasks.h"

namespace ttr::cli {

struct Score {
  double loss = 0;               // mean over what counts; natural logarithm, or squared
  double accuracy = 0;           // share of counted positions that are right; cross-entropy alone, as the next
  double sequence_accuracy = 0;  // share of sequences without a mistake
  std::int64_t counted = 0, sequences = 0;

  double scaled(double chance) const { return (accuracy - chance) / (1 - chance); }
  double bits() const;  // per position
};

class Judge {
 public:
  using Advance = std::function<bool(std::int64_t done, std::int64_t all)>;  // false stops

  /// For up to `time` tokens. The model must outlive it.
  Judge(const model::Model<float>&, int batch, int time, int threads);
  /// `sequences` of the task's test data; the same seed draws the same, whatever the batch.
  Score of(const model::Task&, std::int64_t sequences, std::uint64_t seed, const Advance& = {});
  /// All of a text in windows of `time` bytes one after another, each from a fresh state; `most` windows, 0: all. What is
  /// left at the end is no window.
  Score of_text(std::span<const unsigned char>, int time, std::int64_t most, const Advance& = {});

 private:
  void add(model::Examples&, int real, Score&);

  int batch_;
  model::Session<float> session_;
  double correct_ = 0, whole_ = 0;
};

}  // namespace ttr::cli
