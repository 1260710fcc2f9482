// How good a model is: loss, and what is right by the four means of model::Score.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "json.h"
#include "train_ranks.h"
#include "ttr/tasks.h"

namespace ttr::cli {

struct ModelScore {
  double loss = 0;               // mean over what counts; natural logarithm, or squared
  double accuracy = 0;           // share of counted positions that are right; cross-entropy alone, as the next
  double sequence_accuracy = 0;  // share of sequences without a mistake
  double example_accuracy = 0;   // mean over sequences of the share of their positions
  double class_accuracy = 0;     // mean over labels of the share of their positions
  double logit_bound = 0;        // Session::logit_bound, the largest of all batches
  std::int64_t counted = 0, sequences = 0;

  double scaled(double chance) const { return (accuracy - chance) / (1 - chance); }
  double bits() const;  // per position
  /// All accuracies, by their names.
  void write(Json&, double chance) const;
};

class Judge {
 public:
  using Advance = std::function<bool(std::int64_t done, std::int64_t all)>;  // false stops

  /// For up to `time` tokens. The model must outlive it.
  Judge(const model::Model<float>&, int batch, int time, int threads);
  /// On the ranks of a group that hold pieces of sequences together; `pieces` is null where a group is one rank.
  Judge(const model::Model<float>&, int batch, int time, int threads, const SequenceRanks&, model::Pieces*);
  /// `sequences` of the task's test data; the same seed draws the same, whatever the batch.
  ModelScore of(const model::Task&, std::int64_t sequences, std::uint64_t seed, const Advance& = {});
  /// All of a text in windows of `time` bytes one after another, each from a fresh state; `most` windows, 0: all. What is
  /// left at the end is no window.
  ModelScore of_text(std::span<const unsigned char>, int time, std::int64_t most, const Advance& = {});

 private:
  void add(model::Examples&, int real, ModelScore&);
  void finish(ModelScore&) const;
  std::vector<std::int32_t> predicted(const model::Examples&) const;

  int batch_;
  SequenceRanks groups_;
  model::Pieces* pieces_ = nullptr;
  model::Session<float> session_;
  model::Score right_;
};

}  // namespace ttr::cli
