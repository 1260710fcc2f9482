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

}  // namespace

double ModelScore::bits() const { return loss / std::log(2.0); }
void ModelScore::write(Json& to, double chance) const {
  to.set("accuracy", accuracy).set("scaled_accuracy", scaled(chance)).set("sequence_accuracy", sequence_accuracy);
  to.set("example_accuracy", example_accuracy).set("class_accuracy", class_accuracy);
}

Judge::Judge(const model::Model<float>& model, int batch, int time, int threads)
    : batch_(batch), session_(model, batch, time, threads) {}
Judge::Judge(const model::Model<float>& model, int batch, int time, int threads, const SequenceRanks& groups,
             model::Pieces* pieces)
    : batch_(batch),
      groups_(groups),
      pieces_(pieces),
      session_(pieces ? model::Session<float>(model, batch, groups.most(time), threads, *pieces)
                      : model::Session<float>(model, batch, time, threads)) {}

// Of whole sequences, on every rank: a sum in which one rank has a number and the others nothing.
std::vector<std::int32_t> Judge::predicted(const model::Examples& all) const {
  const auto own = session_.predicted();
  if (!pieces_) return {own.begin(), own.end()};
  std::vector<double> sums(static_cast<std::size_t>(all.sequences) * static_cast<std::size_t>(all.time));
  const int begin = groups_.begin(all.time), length = groups_.end(all.time) - begin;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto row = static_cast<int>(i) / length, column = static_cast<int>(i) % length;
    sums[static_cast<std::size_t>(row) * static_cast<std::size_t>(all.time) +
         static_cast<std::size_t>(begin + column)] = own[i];
  }
  pieces_->sum(sums);
  return {sums.begin(), sums.end()};
}

void Judge::add(model::Examples& examples, int real, ModelScore& score) {
  fill(examples, batch_);
  const model::Measure m =
      pieces_ ? session_.forward(groups_.piece(examples, 0, batch_).batch()) : session_.forward(examples.batch());
  score.loss += m.loss * static_cast<double>(m.counted);
  score.logit_bound = std::max(score.logit_bound, session_.logit_bound());
  score.counted += m.counted, score.sequences += real;
  if (!examples.labels.empty()) right_.add(examples, predicted(examples));  // what fills a batch has no label
}

void Judge::finish(ModelScore& score) const {
  score.loss /= static_cast<double>(std::max<std::int64_t>(1, score.counted));
  score.accuracy = right_.tokens(), score.sequence_accuracy = right_.sequences();
  score.example_accuracy = right_.examples(), score.class_accuracy = right_.classes();
}

ModelScore Judge::of(const model::Task& task, std::int64_t sequences, std::uint64_t seed, const Advance& advance) {
  model::Random random(seed, "test");
  model::Examples examples;
  ModelScore score;
  right_ = {};
  for (std::int64_t done = 0; done < sequences; done += batch_) {
    const int real = static_cast<int>(std::min<std::int64_t>(batch_, sequences - done));
    task.draw(random, real, true, examples);
    add(examples, real, score);
    if (advance && !advance(done + real, sequences)) break;
  }
  finish(score);
  return score;
}

ModelScore Judge::of_text(std::span<const unsigned char> text, int time, std::int64_t most, const Advance& advance) {
  const auto length = static_cast<std::size_t>(time);
  std::int64_t windows = text.empty() ? 0 : static_cast<std::int64_t>((text.size() - 1) / length);
  if (most > 0) windows = std::min(windows, most);
  ModelScore score;
  right_ = {};
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
  finish(score);
  return score;
}

}  // namespace ttr::cli
