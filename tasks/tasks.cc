// The list of tasks, and what they share.
#include <algorithm>
#include <numeric>

#include "model/text.h"
#include "tasks/task.h"

namespace ttr::model {
namespace {

const std::vector<TaskEntry>& entries() {
  static const std::vector<TaskEntry> all = [] {
    std::vector<TaskEntry> list;
    for (auto* part : {recall_tasks, mad_tasks, language_tasks, group_tasks, regression_tasks, text_tasks})
      for (TaskEntry& entry : part()) {
        if (entry.name != "text")
          entry.settings.push_back(
              {"examples", "0", "train on this many examples again and again; 0: new ones always"});
        list.push_back(std::move(entry));
      }
    return list;
  }();
  return all;
}

// Examples of a fixed list, drawn with replacement. Example i is made by a generator of its own, so that nothing is kept.
class Repeated : public Task {
 public:
  Repeated(std::unique_ptr<Task> of, int examples) : Task(*of), of_(std::move(of)), examples_(examples) {}
  std::string symbol(std::int32_t token) const override { return of_->symbol(token); }

 private:
  void make(Random& random, int sequences, bool test, std::int64_t step, Examples& out) const override {
    if (test) return of_->draw(random, sequences, true, out);
    std::vector<Examples> parts(static_cast<std::size_t>(sequences));
    for (Examples& one : parts) {
      Random own(random.below(static_cast<std::uint64_t>(examples_)), "example");
      of_->draw(own, 1, false, one, step);
    }
    out = Examples();
    out.sequences = sequences;
    for (const Examples& one : parts) out.time = std::max(out.time, one.time);
    for (const Examples& one : parts) {
      const auto fill = [&](const auto& from, auto& to, auto value, std::size_t width) {
        if (from.empty()) return;
        to.insert(to.end(), from.begin(), from.end());
        to.insert(to.end(), static_cast<std::size_t>(out.time - one.time) * width, value);
      };
      fill(one.tokens, out.tokens, std::int32_t{0}, 1), fill(one.labels, out.labels, std::int32_t{-100}, 1);
      fill(one.rows, out.rows, 0.0f, static_cast<std::size_t>(input_dim));
      fill(one.targets, out.targets, 0.0f, static_cast<std::size_t>(std::max(1, output_dim)));
      fill(one.counted, out.counted, std::uint8_t{0}, 1);
    }
  }
  std::unique_ptr<Task> of_;
  int examples_;
};

std::string listed(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& one : words) (list += list.empty() ? "" : ", ") += one;
  return list;
}

}  // namespace

TaskSettings::TaskSettings(std::string name, const std::vector<TaskSettingInfo>& table,
                           std::map<std::string, std::string> given)
    : name_(std::move(name)) {
  std::vector<std::string> known;
  for (const TaskSettingInfo& one : table) {
    const auto found = given.find(one.name);
    values_[one.name] = found == given.end() ? one.otherwise : found->second;
    known.push_back(one.name);
  }
  for (const auto& [key, value] : given)
    if (!values_.count(key))
      throw Error("the task " + name_ + " has no setting '" + key + "'; it has " + listed(known), key);
}
void TaskSettings::fail(const std::string& key, const std::string& why) const {
  throw Error("the task " + name_ + ": " + key + " " + why, key);
}
const std::string& TaskSettings::text(const std::string& key) const { return values_.at(key); }
int TaskSettings::number(const std::string& key, int low, int high) const {
  return whole_number(key, text(key), low, high);
}
double TaskSettings::real(const std::string& key, double low, double high) const {
  const double number = real_number(key, text(key));
  if (!(number >= low && number <= high))
    fail(key, "is " + number_text(number) + "; it is from " + number_text(low) + " to " + number_text(high));
  return number;
}
bool TaskSettings::flag(const std::string& key) const { return yes_or_no(key, text(key)); }
const std::string& TaskSettings::word(const std::string& key, const std::vector<std::string>& words) const {
  const std::string& value = text(key);
  if (std::find(words.begin(), words.end(), value) != words.end()) return value;
  fail(key, "is '" + value + "'; it is one of " + listed(words));
}

void begin(Examples& examples, int sequences, int time, std::int32_t value) {
  const auto size = static_cast<std::size_t>(sequences) * static_cast<std::size_t>(time);
  examples.sequences = sequences, examples.time = time;
  examples.tokens.assign(size, value);
  examples.labels.assign(size, -100);
}

void put_together(Examples& out, const std::vector<LabelledTokens>& sequences, std::int32_t pad) {
  std::size_t most = 0;
  for (const LabelledTokens& one : sequences) most = std::max(most, one.tokens.size());
  begin(out, static_cast<int>(sequences.size()), static_cast<int>(most), pad);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i * most);
    std::copy(sequences[i].tokens.begin(), sequences[i].tokens.end(), out.tokens.begin() + at);
    std::copy(sequences[i].labels.begin(), sequences[i].labels.end(), out.labels.begin() + at);
  }
}

std::vector<std::int32_t> distinct(Random& random, int low, int high, int count) {
  std::vector<std::int32_t> numbers;
  if (2 * count > high - low) {  // so many that draws would repeat: shuffle the beginning of all
    numbers.resize(static_cast<std::size_t>(high - low));
    std::iota(numbers.begin(), numbers.end(), low);
    for (int i = 0; i < count; ++i)
      std::swap(numbers[static_cast<std::size_t>(i)],
                numbers[static_cast<std::size_t>(between(random, i, high - low - 1))]);
    numbers.resize(static_cast<std::size_t>(count));
    return numbers;
  }
  std::vector<bool> taken(static_cast<std::size_t>(high - low));
  while (static_cast<int>(numbers.size()) < count) {
    const auto x = random.below(static_cast<std::uint64_t>(high - low));
    if (taken[x]) continue;
    taken[x] = true;
    numbers.push_back(low + static_cast<std::int32_t>(x));
  }
  return numbers;
}

std::unique_ptr<Task> repeated(std::unique_ptr<Task> task, int examples) {
  if (examples == 0) return task;
  return std::make_unique<Repeated>(std::move(task), examples);
}

void Task::apply(Config& config) const {
  config.vocabulary = vocabulary, config.input_dim = input_dim, config.output_dim = output_dim;
  config.loss = squared ? "squared" : "cross-entropy";
  config.read_out = read_out;
  config.time = std::max(time, test_time);
}

std::unique_ptr<Task> make_task(std::string_view text) {
  const std::vector<BlockText> parsed = parse_stack(text);
  if (parsed.size() != 1)
    throw Error("'" + std::string(text) + "' names " + std::to_string(parsed.size()) + " tasks; name one", "task");
  std::vector<std::string> names;
  for (const TaskEntry& entry : entries()) {
    names.push_back(entry.name);
    if (parsed[0].mixer != entry.name) continue;
    const TaskSettings settings(entry.name, entry.settings, parsed[0].settings);
    std::unique_ptr<Task> task = entry.make(settings);
    task->name = entry.name, task->about = entry.about;
    return entry.name == "text" ? std::move(task) : repeated(std::move(task), settings.number("examples", 0));
  }
  throw Error("there is no task '" + parsed[0].mixer + "'; there are " + listed(names), "task");
}

std::vector<TaskInfo> tasks() {
  std::vector<TaskInfo> all;
  for (const TaskEntry& entry : entries()) {
    std::vector<std::string> words;
    for (const TaskSettingInfo& one : entry.settings) words.push_back(one.name + "=" + one.otherwise);
    std::string settings;
    for (const std::string& one : words) (settings += settings.empty() ? "" : " ") += one;
    all.push_back({entry.name, settings, entry.about, entry.explanation, entry.settings});
  }
  return all;
}

}  // namespace ttr::model
