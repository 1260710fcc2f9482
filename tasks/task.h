// What tasks share: their settings, and room for examples.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ttr/status.h"
#include "ttr/tasks.h"

namespace ttr::model {

/// Settings of one task; taking one marks it as known.
class TaskSettings {
 public:
  TaskSettings(std::string name, std::map<std::string, std::string> given)
      : name_(std::move(name)), given_(std::move(given)) {}
  int number(const std::string& key, int otherwise, int low, int high = 1 << 24);
  double real(const std::string& key, double otherwise, double low, double high);
  std::string text(const std::string& key, const std::string& otherwise);
  std::string word(const std::string& key, const std::string& otherwise, const std::vector<std::string>& words);
  /// Throws Error for what nobody took.
  void finish() const;
  [[noreturn]] void fail(const std::string& key, const std::string& why) const;

 private:
  std::string name_;
  std::map<std::string, std::string> given_;
  std::vector<std::string> known_;
};

/// Room for tokens of `value`, without labels.
void begin(Examples&, int sequences, int time, std::int32_t value);

std::unique_ptr<Task> make_mqar(TaskSettings&, bool based);
std::unique_ptr<Task> make_recall(TaskSettings&);
std::unique_ptr<Task> make_parity(TaskSettings&);
std::unique_ptr<Task> make_arithmetic(TaskSettings&, bool brackets);
std::unique_ptr<Task> make_word_problem(TaskSettings&);
std::unique_ptr<Task> make_linear_regression(TaskSettings&);
std::unique_ptr<Task> make_piecewise_regression(TaskSettings&);
std::unique_ptr<Task> make_text(TaskSettings&);

}  // namespace ttr::model
