// What tasks share: their settings, their rows in the list, and room for examples. A file of tasks/ has a function that
// returns the rows of its tasks; tasks.cc puts them together.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ttr/status.h"
#include "ttr/tasks.h"

namespace ttr::model {

/// Settings of one task. What a setting is if nobody gives it stands in the table of the task alone.
class TaskSettings {
 public:
  TaskSettings(std::string name, const std::vector<TaskSettingInfo>& table, std::map<std::string, std::string> given);
  int number(const std::string& key, int low, int high = 1 << 24) const;
  double real(const std::string& key, double low, double high) const;
  bool flag(const std::string& key) const;
  const std::string& text(const std::string& key) const;
  const std::string& word(const std::string& key, const std::vector<std::string>& words) const;
  [[noreturn]] void fail(const std::string& key, const std::string& why) const;

 private:
  std::string name_;
  std::map<std::string, std::string> values_;
};

struct TaskEntry {
  std::string name, about;
  std::vector<TaskSettingInfo> settings;
  std::string explanation;
  std::unique_ptr<Task> (*make)(const TaskSettings&);
};
std::vector<TaskEntry> recall_tasks();
std::vector<TaskEntry> mad_tasks();
std::vector<TaskEntry> language_tasks();
std::vector<TaskEntry> group_tasks();
std::vector<TaskEntry> regression_tasks();
std::vector<TaskEntry> text_tasks();

/// The same training examples again and again: `examples` of them, each from its own number.
std::unique_ptr<Task> repeated(std::unique_ptr<Task> task, int examples);

/// Room for tokens of `value`, without labels.
void begin(Examples&, int sequences, int time, std::int32_t value);
/// Sequences of tokens and labels (-100: none), each of its own length, then as long as the longest.
struct LabelledTokens {
  std::vector<std::int32_t> tokens, labels;
  void add(std::int32_t token, std::int32_t label = -100) { tokens.push_back(token), labels.push_back(label); }
};
void put_together(Examples&, const std::vector<LabelledTokens>&, std::int32_t pad);

/// A whole number of low .. high, each equally likely.
inline int between(Random& random, int low, int high) {
  return low + static_cast<int>(random.below(static_cast<std::uint64_t>(high - low + 1)));
}
/// `count` distinct numbers of low .. high-1 in random order.
std::vector<std::int32_t> distinct(Random&, int low, int high, int count);

}  // namespace ttr::model
