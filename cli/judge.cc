#include "judge.h"

#include <algorithm>
#include <cmath>

namespace ttr::cli {
namespace {

// Sequences that fill a batch and do not count.
void fill(model::Examples& examples, int batch) {
  const auto size = static_cast<std::size_t>(batch) * static_cast<std::size_t>(examples.time);
  const auto real = static_cast<std::size_t>(examples.sequences) * static_cast<std::size_t>(examples.time);
  examples.sequences = batch;
  if (!examples.tokens.empty()) examples.tokens.resize(size);
  if (!examples.labels.empty()) examples.labels.resize(size, -1);
  if (!examples.rows.empty()) examples.rows.resize(examples.rows.size() / real * size);
  if (!examples.targets.empty()) {
    examples.targets.resize(examples.targets.size() / real * size);
    if (examples.counted.empty()) examples.counted.assign(real, 1);
    examples.counted.resize(size);
  }
}

void finish(Score& score, double correct, double whole) {
  const auto counted = static_cast<double>(std::max<std::int64_t>(1, score.counted));
  score.loss /= counted, score.accuracy = correct / counted;
  score.sequence_accuracy = whole / static_cast<double>(std::max<std::int64_t>(1, score.sequences));
}

}  // namespace

double Score::bits() const { return loss / std::log(2.0); }

Judge::Judge(const model::Model<float>& model, int batch, int time, int threads)
    : batch_(batch), session_(model, batch, time, threads) {}

void Judge::add(model::Examples& examples, int real, Score& score) {
  fill(examples, batch_);
  const model::Measure m = session_.forward(examples.batch());
  score.loss += m.loss * static_cast<double>(m.counted);
  score.counted += m.counted, score.sequences += real;
  correct_ += static_cast<double>(m.correct);
  if (examples.labels.empty()) return;
  const std::span<const std::int32_t> predicted = session_.predicted();
  for (int i = 0; i < real; ++i) {
    bool right = true;
    for (std::size_t at = static_cast<std::size_t>(i * examples.time), t = 0;
         t < static_cast<std::size_t>(examples.time); ++t)
      right = right && (examples.labels[at + t] < 0 || examples.labels[at + t] == predicted[at + t]);
    whole_ += right;
  }
}

Score Judge::of(const model::Task& task, std::int64_t sequences, std::uint64_t seed, const Advance& advance) {
  model::Random random(seed, "test");
  model::Examples examples;
  Score score;
  correct_ = whole_ = 0;
  for (std::int64_t done = 0; done < sequences; done += batch_) {
    const int real = static_cast<int>(std::min<std::int64_t>(batch_, sequences - done));
    task.draw(random, real, true, examples);
    add(examples, real, score);
    if (advance && !advance(done + real, sequences)) break;
  }
  finish(score, correct_, whole_);
  return score;
}

Score Judge::of_text(std::span<const unsigned char> text, int time, std::int64_t most, const Advance& advance) {
  const auto length = static_cast<std::size_t>(time);
  std::int64_t windows = text.empty() ? 0 : static_cast<std::int64_t>((text.size() - 1) / length);
  if (most > 0) windows = std::min(windows, most);
  Score score;
  correct_ = whole_ = 0;
  for (std::int64_t done = 0; done < windows; done += batch_) {
    model::Examples examples;
    examples.time = time;
    examples.sequences = static_cast<int>(std::min<std::int64_t>(batch_, windows - done));
    const int real = examples.sequences;
    for (std::size_t i = 0; i < static_cast<std::size_t>(real); ++i)
      for (std::size_t t = 0, at = (static_cast<std::size_t>(done) + i) * length; t < length; ++t, ++at)
        examples.tokens.push_back(text[at]), examples.labels.push_back(text[at + 1]);
    add(examples, real, score);
    if (advance && !advance(done + real, windows)) break;
  }
  finish(score, correct_, whole_);
  return score;
}

}  // namespace ttr::cli
