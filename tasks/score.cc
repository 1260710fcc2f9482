// Accuracies (ttr/tasks.h).
#include <string>

#include "tasks/task.h"

namespace ttr::model {
namespace {

double share(std::int64_t right, std::int64_t all) {
  return all == 0 ? 0 : static_cast<double>(right) / static_cast<double>(all);
}

}  // namespace

void Score::add(const Examples& examples, std::span<const std::int32_t> predicted) {
  if (predicted.size() < examples.labels.size())
    throw Error("there are " + std::to_string(predicted.size()) + " predictions for " +
                    std::to_string(examples.labels.size()) + " labels",
                "score");
  const auto time = static_cast<std::size_t>(examples.time);
  for (std::size_t i = 0; i < static_cast<std::size_t>(examples.sequences); ++i) {
    Count own;
    for (std::size_t at = i * time; at < (i + 1) * time; ++at) {
      const std::int32_t label = examples.labels[at];
      if (label < 0) continue;
      const bool right = predicted[at] == label;
      ++own.all, own.right += right;
      Count& of_class = classes_[label];
      ++of_class.all, of_class.right += right;
      classes_[predicted[at]];
    }
    if (own.all == 0) continue;
    tokens_.all += own.all, tokens_.right += own.right;
    ++whole_.all, whole_.right += own.right == own.all;
    shares_ += share(own.right, own.all);
  }
}

double Score::tokens() const { return share(tokens_.right, tokens_.all); }
double Score::examples() const { return whole_.all == 0 ? 0 : shares_ / static_cast<double>(whole_.all); }
double Score::sequences() const { return share(whole_.right, whole_.all); }
double Score::classes() const {
  double sum = 0;
  for (const auto& [label, count] : classes_) sum += share(count.right, count.all);
  return classes_.empty() ? 0 : sum / static_cast<double>(classes_.size());
}
double Score::named(std::string_view metric) const {
  if (metric == "tokens") return tokens();
  if (metric == "examples") return examples();
  if (metric == "sequences") return sequences();
  if (metric == "classes") return classes();
  throw Error("there is no accuracy '" + std::string(metric) + "'; there are tokens, examples, sequences and classes",
              "metric");
}

}  // namespace ttr::model
