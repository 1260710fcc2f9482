// The list of tasks, and what they share.
#include "tasks/task.h"

#include <algorithm>

#include "model/text.h"

namespace ttr::model {
namespace {

struct Entry {
  const char *name, *settings, *about;
  std::unique_ptr<Task> (*make)(TaskSettings&);
};

const Entry entries[] = {
    {"mqar", "vocabulary=8192 time=64 pairs=4 filler=zero|random power=0.01",
     "multi-query associative recall (Arora et al. 2023, arXiv 2312.04927)",
     [](TaskSettings& s) { return make_mqar(s, false); }},
    {"mqar-based", "vocabulary=8192",
     "the same at several lengths, trained on five and tested on seven (Arora et al. 2024, arXiv 2402.18668)",
     [](TaskSettings& s) { return make_mqar(s, true); }},
    {"recall", "vocabulary=512 time=257 pairs=64",
     "pairs of a context with repeats, then one cue (Wang et al. 2025, arXiv 2501.12352, Figure 3)", make_recall},
    {"parity", "longest=40 test=256 labels=answer|all",
     "is the number of twos odd (Grazzi et al. 2024, arXiv 2411.12537)", make_parity},
    {"modular", "longest=39 test=255", "digits and + - * modulo 5, without brackets (the same)",
     [](TaskSettings& s) { return make_arithmetic(s, false); }},
    {"modular-brackets", "longest=40 test=256", "digits, + and - modulo 5 with brackets (the same)",
     [](TaskSettings& s) { return make_arithmetic(s, true); }},
    {"word-problem", "group=S3|S4|S5|A5|Z60 length=16 test=64 bos=yes|no",
     "products of the elements of a group (Merrill et al. 2024, arXiv 2404.08819)", make_word_problem},
    {"linear-regression", "dim=20 points=41 noise=0", "y = w.x from pairs x, y (Garg et al. 2022, arXiv 2208.01066)",
     make_linear_regression},
    {"piecewise-regression", "dim=16 length=256 segment=64 noise=0.05",
     "v = W k with another W and other keys in every segment (after arXiv 2510.01450; a reconstruction)",
     make_piecewise_regression},
    {"text", "file=PATH time=256 held=0.1", "the next byte of a file; the last share of it is held for the test",
     make_text},
};

}  // namespace

void TaskSettings::fail(const std::string& key, const std::string& why) const {
  throw Error("the task " + name_ + ": " + key + " " + why, key);
}
std::string TaskSettings::text(const std::string& key, const std::string& otherwise) {
  known_.push_back(key);
  const auto found = given_.find(key);
  return found == given_.end() ? otherwise : found->second;
}
int TaskSettings::number(const std::string& key, int otherwise, int low, int high) {
  return whole_number(key, text(key, std::to_string(otherwise)), low, high);
}
double TaskSettings::real(const std::string& key, double otherwise, double low, double high) {
  const double number = real_number(key, text(key, number_text(otherwise)));
  if (!(number >= low && number <= high))
    fail(key, "is " + number_text(number) + "; it is from " + number_text(low) + " to " + number_text(high));
  return number;
}
std::string TaskSettings::word(const std::string& key, const std::string& otherwise,
                               const std::vector<std::string>& words) {
  const std::string value = text(key, otherwise);
  if (std::find(words.begin(), words.end(), value) != words.end()) return value;
  std::string list;
  for (const std::string& one : words) (list += list.empty() ? "" : ", ") += one;
  fail(key, "is '" + value + "'; it is one of " + list);
}
void TaskSettings::finish() const {
  for (const auto& [key, value] : given_)
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
      std::string list;
      for (const std::string& one : known_) (list += list.empty() ? "" : ", ") += one;
      throw Error("the task " + name_ + " has no setting '" + key + "'; it has " + list, key);
    }
}

void begin(Examples& examples, int sequences, int time, std::int32_t value) {
  const auto size = static_cast<std::size_t>(sequences) * static_cast<std::size_t>(time);
  examples.sequences = sequences, examples.time = time;
  examples.tokens.assign(size, value);
  examples.labels.assign(size, -100);
}

void Task::apply(Config& config) const {
  config.vocabulary = vocabulary, config.input_dim = input_dim, config.output_dim = output_dim;
  config.loss = squared ? "squared" : "cross-entropy";
  config.time = std::max(time, test_time);
}

std::unique_ptr<Task> make_task(std::string_view text) {
  const std::vector<BlockText> parsed = parse_stack(text);
  if (parsed.size() != 1)
    throw Error("'" + std::string(text) + "' names " + std::to_string(parsed.size()) + " tasks; name one", "task");
  std::string list;
  for (const Entry& entry : entries) {
    if (parsed[0].mixer == entry.name) {
      TaskSettings settings(entry.name, parsed[0].settings);
      std::unique_ptr<Task> task = entry.make(settings);
      settings.finish();
      task->name = entry.name, task->about = entry.about;
      return task;
    }
    (list += list.empty() ? "" : ", ") += entry.name;
  }
  throw Error("there is no task '" + parsed[0].mixer + "'; there are " + list, "task");
}

std::vector<TaskInfo> tasks() {
  std::vector<TaskInfo> all;
  for (const Entry& entry : entries) all.push_back({entry.name, entry.settings, entry.about});
  return all;
}

}  // namespace ttr::model
