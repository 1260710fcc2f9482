#include "train_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "ttr/status.h"
#include "ttr/version.h"

namespace ttr::cli {
namespace {

// "--layer,--stack" -> "layer", "--key-dim" -> "key_dim"
std::string key_of(std::string_view option) {
  std::string key(option.substr(2, option.find(',') == option.npos ? option.npos : option.find(',') - 2));
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

// Numbers as text that gives the same bits back; inf and nan too.
template <class... Numbers>
std::string line(Numbers... numbers) {
  std::string text;
  ((text += (text.empty() ? "" : " ") + fmt::format("{}", numbers)), ...);
  return text + "\n";
}

class LineReader {
 public:
  LineReader(const std::map<std::string, std::string>& notes, const std::string& key, const std::string& file)
      : key_(key), file_(file) {
    const auto found = notes.find(key);
    if (found == notes.end()) fail("there is no note of the " + key);
    in_.str(found->second);
  }
  bool next() {
    std::string text;
    if (!std::getline(in_, text)) return false;
    words_ = std::istringstream(text);
    return true;
  }
  template <class... Numbers>
  void take(Numbers&... numbers) {
    (one(numbers), ...);
    if (std::string word; words_ >> word) fail("its note of the " + key_ + " has '" + word + "' after its numbers");
  }

 private:
  template <class Number>
  void one(Number& to) {
    std::string word;
    if (!(words_ >> word)) fail("its note of the " + key_ + " is too short");
    char* end = nullptr;
    if constexpr (std::is_floating_point_v<Number>) to = std::strtod(word.c_str(), &end);
    else to = static_cast<Number>(std::strtoll(word.c_str(), &end, 10));
    if (end != word.c_str() + word.size()) fail("its note of the " + key_ + " has '" + word + "' for a number");
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(file_ + ": it was not written by ttr train: " + why, file_);
  }
  std::string key_, file_;
  std::istringstream in_, words_;
};

}  // namespace

std::map<std::string, std::string> TrainRecord::notes() const {
  std::string tests, points, more, bounds;
  for (const TrainRow& r : rows) {
    more += line(r.score.example_accuracy, r.score.class_accuracy);
    bounds += line(r.score.logit_bound);
    tests += line(r.step, r.rate, r.train_loss, r.score.loss, r.score.accuracy, r.score.sequence_accuracy,
                  r.score.counted, r.score.sequences, r.seconds, r.tokens);
  }
  for (const Point& p : curve) points += line(p.step, p.loss);
  std::map<std::string, std::string> all = {
      {"task", options.task},
      {"run", line(options.batch, options.seed, options.every, options.judged)},
      {"rows", tests},
      {"accuracies", more},
      {"logit_bounds", bounds},
      {"curve", points},
      {"sums", line(since_test.sum, since_test.count, since_point.sum, since_point.count)},
      {"clock", line(seconds, train_seconds, tokens)}};
  if (options.reproducible) all["reproducible"] = "yes";
  return all;
}

void TrainRecord::read(const std::map<std::string, std::string>& notes, const std::string& file) {
  LineReader run(notes, "run", file), tests(notes, "rows", file), points(notes, "curve", file),
      sums(notes, "sums", file), clock(notes, "clock", file);
  run.next(), run.take(options.batch, options.seed, options.every, options.judged);
  const auto task = notes.find("task");
  if (task == notes.end())
    throw Error(file + ": it was not written by ttr train: there is no note of the task", file);
  options.task = task->second;
  options.reproducible = notes.count("reproducible") > 0;
  rows.clear(), curve.clear();
  while (tests.next()) {
    TrainRow r;
    tests.take(r.step, r.rate, r.train_loss, r.score.loss, r.score.accuracy, r.score.sequence_accuracy,
               r.score.counted, r.score.sequences, r.seconds, r.tokens);
    rows.push_back(r);
  }
  LineReader more(notes, "accuracies", file), bounds(notes, "logit_bounds", file);
  for (TrainRow& r : rows) {
    more.next(), more.take(r.score.example_accuracy, r.score.class_accuracy);
    bounds.next(), bounds.take(r.score.logit_bound);
  }
  while (points.next()) {
    Point p{};
    points.take(p.step, p.loss);
    curve.push_back(p);
  }
  sums.next(), sums.take(since_test.sum, since_test.count, since_point.sum, since_point.count);
  clock.next(), clock.take(seconds, train_seconds, tokens);
}

std::string train_advice(const TrainRecord& r) {
  if (r.squared || r.text || r.rows.empty() || r.status != "finished") return "";
  const model::Config& c = r.options.config;
  const double guess = std::max(r.guess, 1.0 / std::max(c.vocabulary, std::max(c.output_dim, 1)));
  double best = 0;
  for (const TrainRow& row : r.rows) best = std::max(best, row.score.accuracy);
  const auto counted = static_cast<double>(std::max<std::int64_t>(1, r.rows.back().score.counted));
  if (best > guess + 3 * std::sqrt(guess * (1 - guess) / counted)) return "";
  std::vector<std::string> tries;
  const auto& how = r.options.optimiser;
  if (r.recall) {
    for (const model::BlockText& block : model::parse_stack(c.stack))
      if (const auto conv = block.settings.find("conv"); conv != block.settings.end() && conv->second == "0") {
        tries.emplace_back("the layer without conv=0, which keeps a key from its value");
        break;
      }
    if (how.rate != recall_rate) tries.push_back(fmt::format("--rate {}", recall_rate));
    if (!c.tied && c.vocabulary >= recall_tied) tries.emplace_back("--tied");
    tries.push_back(fmt::format("--steps {}", 2 * how.steps));
    if (r.task_name == "recall" && r.options.task.find("labels=seen") == std::string::npos)
      tries.emplace_back("labels=seen in the task, which asks for every cue that came before");
    else tries.emplace_back("a smaller vocabulary= in the task");
  } else {
    tries = {fmt::format("--rate {:.2g}", how.rate / 3), fmt::format("--rate {:.2g}", how.rate * 3),
             fmt::format("--steps {}", 2 * how.steps), fmt::format("--width {}", 2 * c.width), "another --layer"};
  }
  std::string list;
  for (std::size_t i = 0; i < tries.size(); ++i)
    list += (i == 0 ? "" : i + 1 < tries.size() ? ", " : " or ") + tries[i];
  return fmt::format("no test did better than a guess ({:.4f}); try {}", guess, list);
}

double TrainRecord::tokens_per_second() const { return tokens / std::max(1e-9, train_seconds); }

Json settings_json(const TrainOptions& options) {
  Json all = Json::object();
  run_settings([&](const char* option, const auto& field, const char*) { all.set(key_of(option), Json(field)); },
               options);
  return all;
}

std::vector<std::pair<std::string, std::string>> settings_text(const TrainOptions& options) {
  std::vector<std::pair<std::string, std::string>> all;
  run_settings(
      [&](const char* option, const auto& field, const char*) {
        if constexpr (std::is_same_v<std::decay_t<decltype(field)>, bool>)
          all.emplace_back(key_of(option), field ? "yes" : "no");
        else all.emplace_back(key_of(option), fmt::format("{}", field));
      },
      options);
  return all;
}

Json to_json(const TrainRow& row, const TrainRecord& of) {
  Json one = Json::object().set("step", row.step).set("rate", row.rate).set("train_loss", row.train_loss);
  one.set("test_loss", row.score.loss);
  if (of.text) one.set("bits_per_byte", row.score.bits());
  if (!of.squared) row.score.write(one, of.chance);
  if (row.score.logit_bound > 0) one.set("logit_bound", row.score.logit_bound);
  return one.set("seconds", row.seconds).set("tokens", static_cast<std::int64_t>(row.tokens));
}

Json to_json(const TrainRecord& r) {
  Json list = Json::array(), points = Json::array();
  for (const TrainRow& row : r.rows) list.push(to_json(row, r));
  for (const TrainRecord::Point& p : r.curve) points.push(Json::array().push(p.step).push(p.loss));
  Json final_score, best;
  if (!r.rows.empty()) {
    final_score = to_json(r.rows.back(), r);
    TrainRow top = r.rows.front();  // each number by itself
    for (const TrainRow& row : r.rows) {
      if (row.score.loss < top.score.loss || std::isnan(top.score.loss))
        top.step = row.step, top.score.loss = row.score.loss;
      top.score.accuracy = std::max(top.score.accuracy, row.score.accuracy);
      top.score.sequence_accuracy = std::max(top.score.sequence_accuracy, row.score.sequence_accuracy);
      top.score.example_accuracy = std::max(top.score.example_accuracy, row.score.example_accuracy);
      top.score.class_accuracy = std::max(top.score.class_accuracy, row.score.class_accuracy);
    }
    best = Json::object().set("step", top.step).set("test_loss", top.score.loss);
    if (r.text) best.set("bits_per_byte", top.score.bits());
    if (!r.squared) top.score.write(best, r.chance);
  }
  const std::string advice = train_advice(r);
  return Json::object()
      .set("version", TTR_VERSION)
      .set("status", r.status)
      .set("task", r.options.task)
      .set("layer", r.options.config.stack)
      .set("seed", r.options.seed)
      .set("settings", settings_json(r.options))
      .set("config", model::to_string(r.options.config))
      .set("optimiser", model::to_string(r.options.optimiser))
      .set("parameters", r.parameters)
      .set("state_bytes", r.state_numbers * 4)
      .set("steps", r.step)
      .set("final", final_score)
      .set("best", best)
      .set("rows", list)
      .set("curve", points)
      .set("seconds", r.seconds)
      .set("train_seconds", r.train_seconds)
      .set("tokens", static_cast<std::int64_t>(r.tokens))
      .set("tokens_per_second", r.tokens_per_second())
      .set("advice", advice.empty() ? Json() : Json(advice))
      .set("out", r.options.out.empty() ? Json() : Json(r.options.out));
}

}  // namespace ttr::cli
