// What a training run has to tell: its settings, its tests, its loss over the steps. Kept in checkpoints, printed as a
// table, as JSON (docs/json.md), as a curve in a terminal and as a page.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "json.h"
#include "judge.h"
#include "train.h"

namespace ttr::cli {

/// A test.
struct TrainRow {
  std::int64_t step = 0;
  double rate = 0, train_loss = 0;  // the loss: mean over the steps since the test before
  ModelScore score;
  double seconds = 0, tokens = 0;  // since the run began
};

/// A mean that goes on after a checkpoint.
struct RunningMean {
  double sum = 0;
  std::int64_t count = 0;
  void add(double x) { sum += x, ++count; }
  double take() {
    const double mean = count ? sum / static_cast<double>(count) : 0;
    sum = 0, count = 0;
    return mean;
  }
};

struct TrainRecord {
  TrainOptions options;  // as the run has them
  std::string task_name;
  bool squared = false, text = false;
  bool recall = false;
  double chance = 0, guess = 0;  // guess: of one who knows the values of a sequence and not the answer
  std::string defaults;          // what the kind of the task chose, for the heading
  std::size_t parameters = 0;
  std::int64_t state_numbers = 0;  // per sequence, after a test sequence
  std::int64_t step = 0;
  std::string status = "finished";  // or stopped (--until), interrupted, diverged

  std::vector<TrainRow> rows;
  struct Point {
    std::int64_t step;
    double loss;
  };
  std::vector<Point> curve;  // training loss, means over a two-hundredth of the steps
  RunningMean since_test, since_point;
  double seconds = 0, train_seconds = 0, tokens = 0;  // train_seconds: without tests and checkpoints

  std::string prompt, sample;  // of a text

  /// All that a checkpoint keeps of it, and back.
  std::map<std::string, std::string> notes() const;
  void read(const std::map<std::string, std::string>& notes, const std::string& file);

  double tokens_per_second() const;
};

/// Where no test of a finished run did better than a guess: what to try, a sentence. Otherwise empty.
std::string train_advice(const TrainRecord&);
Json to_json(const TrainRow&, const TrainRecord&);
Json to_json(const TrainRecord&);
/// Every setting of a run by the name of its option, without dashes: numbers as numbers.
Json settings_json(const TrainOptions&);
/// The same as text.
std::vector<std::pair<std::string, std::string>> settings_text(const TrainOptions&);

}  // namespace ttr::cli
