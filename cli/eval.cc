// `ttr eval`: a trained model on the test data of its task, on another task or on a text, at one or several lengths.
//
// Of a text every byte is predicted once: windows of the length asked for lie one after another, each read from a fresh
// state. A run's own text is judged by the part that was held out, another file by all of it.
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "aside.h"
#include "json.h"
#include "judge.h"
#include "progress.h"
#include "text_table.h"
#include "trained_verbs.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

std::vector<unsigned char> bytes_of(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (!file) throw Error(fmt::format("cannot read '{}': {}", path, std::strerror(errno)), path);
  std::vector<unsigned char> all;
  unsigned char piece[1 << 16];
  for (std::size_t got; (got = std::fread(piece, 1, sizeof piece, file)) > 0;)
    all.insert(all.end(), piece, piece + got);
  const bool failed = std::ferror(file);
  std::fclose(file);
  if (failed) throw Error(fmt::format("cannot read '{}'", path), path);
  if (all.size() < 2)
    throw Error(fmt::format("'{}' has {} bytes; there is nothing to predict", path, all.size()), path);
  return all;
}

// The task with test sequences of `time` tokens: the first of these settings that it has says how long they are.
std::string with_length(const std::string& task, int time) {
  model::BlockText block = model::parse_stack(task).front();
  for (const model::TaskInfo& one : model::tasks())
    if (one.name == block.mixer)
      for (const char* key : {"test", "time", "length", "points"})
        if ((" " + one.settings).find(fmt::format(" {}=", key)) != std::string::npos) {
          block.settings[key] = std::to_string(std::string(key) == "points" ? time / 2 : time);
          return to_string(block);
        }
  throw Error(fmt::format("the task {} has no setting for its length; leave --time out", block.mixer), "--time");
}

struct Row {
  int time = 0;
  ModelScore score;
};

class Eval {
 public:
  explicit Eval(EvalOptions options) : o_(std::move(options)) {
    for (const int time : o_.times)
      if (time < 1) throw Error(fmt::format("--time has {}; a length is at least 1", time), "--time");
    if (o_.batch < 1) throw Error(fmt::format("--batch is {}; it is at least 1", o_.batch), "--batch");
    if (o_.sequences < 0) throw Error(fmt::format("--test is {}; it is at least 0", o_.sequences), "--test");
    const int longest = o_.times.empty() ? 0 : *std::max_element(o_.times.begin(), o_.times.end());
    trained_ = open_trained(o_.model, longest);
    if (o_.data.empty() && trained_.task.empty())
      throw Error(fmt::format("'{}' does not say what it was trained on; name a task or a text file", trained_.path),
                  "data");
    if (!o_.data.empty() && is_text_file(o_.data)) {
      own_ = bytes_of(o_.data), text_ = own_, data_ = o_.data;
      const int known = trained_.config.time;
      if (o_.times.empty()) o_.times = {static_cast<int>(std::min<std::size_t>(own_.size() - 1, known))};
    } else {
      data_ = o_.data.empty() ? trained_.task : task_text(o_.data, 0, 0);
      task_ = model::make_task(data_);
      text_ = task_->text(true);
      if (o_.times.empty()) o_.times = {task_->test_time};
    }
  }

  int go() {
    check_fits();
    const InterruptGuard guard;
    const auto shown = std::make_shared<Progress>("eval", !o_.json);
    Progress& bar = *shown;
    std::vector<Row> rows;
    for (const int time : o_.times) {
      Row row;
      row.time = time;
      const std::optional<ModelScore> judged = made_aside([this, time, shown] { return score(time, *shown); });
      if (!judged) break;
      row.score = *judged;
      bar.wipe();
      if (interrupted()) break;
      rows.push_back(row);
    }
    bar.finish();
    if (o_.json) print_json(rows);
    else print(rows);
    return interrupted() ? 128 + interrupted() : 0;
  }

 private:
  bool squared() const { return task_ && task_->squared; }
  double chance() const { return task_ ? task_->chance : 0; }

  void check_fits() const {
    const model::Config& c = trained_.config;
    model::Config need;
    if (task_) task_->apply(need);
    else need.vocabulary = 256, need.loss = "cross-entropy";
    if (need.vocabulary != c.vocabulary || need.input_dim != c.input_dim || need.loss != c.loss)
      throw Error(fmt::format("the model was made for {} with the loss {}, and {} has {} with the loss {}",
                              c.vocabulary ? fmt::format("{} kinds of tokens", c.vocabulary)
                                           : fmt::format("rows of {} numbers", c.input_dim),
                              c.loss, task_ ? "the task " + task_->name : "a text",
                              need.vocabulary ? fmt::format("{} kinds of tokens", need.vocabulary)
                                              : fmt::format("rows of {} numbers", need.input_dim),
                              need.loss),
                  "data");
  }

  ModelScore score(int time, Progress& bar) {
    const auto advance = [&](std::int64_t done, std::int64_t all) {
      bar.update(static_cast<double>(done), static_cast<double>(all), fmt::format("length {}", time));
      return interrupted() == 0;
    };
    if (!text_.empty()) {
      if (text_.size() <= static_cast<std::size_t>(time))
        throw Error(
            fmt::format("the text has {} bytes to be judged by; windows of {} need {}", text_.size(), time, time + 1),
            "--time");
      const auto windows = static_cast<std::int64_t>((text_.size() - 1) / static_cast<std::size_t>(time));
      const auto most = o_.sequences > 0 ? std::min(o_.sequences, windows) : windows;
      Judge judge(*trained_.model, static_cast<int>(std::min<std::int64_t>(o_.batch, most)), time, o_.threads);
      return judge.of_text(text_, time, most, advance);
    }
    const std::unique_ptr<model::Task> other =
        time == task_->test_time ? nullptr : model::make_task(with_length(data_, time));
    const model::Task& task = other ? *other : *task_;
    if (task.test_time > trained_.config.time) {
      trained_ = open_trained(o_.model, task.test_time);
    }
    const std::int64_t sequences = o_.sequences > 0 ? o_.sequences : 256;
    Judge judge(*trained_.model, static_cast<int>(std::min<std::int64_t>(o_.batch, sequences)), task.test_time,
                o_.threads);
    return judge.of(task, sequences, o_.seed.value_or(trained_.seed), advance);
  }

  void print(const std::vector<Row>& rows) const {
    fmt::print("{} (step {}{}) on {}\n", trained_.path, trained_.step,
               trained_.mean ? ", mean of the parameters" : "", data_);
    std::vector<std::string> header = {"length", "loss"};
    if (!text_.empty()) header.emplace_back("bits/byte");
    if (!squared()) header.emplace_back("accuracy");
    if (chance() > 0) header.emplace_back("scaled");
    if (!squared() && text_.empty()) header.emplace_back("whole sequences");
    header.emplace_back("positions");
    TextTable table(header);
    for (const Row& row : rows) {
      std::vector<std::string> cells = {std::to_string(row.time), fmt::format("{:.5f}", row.score.loss)};
      if (!text_.empty()) cells.push_back(fmt::format("{:.4f}", row.score.bits()));
      if (!squared()) cells.push_back(fmt::format("{:.4f}", row.score.accuracy));
      if (chance() > 0) cells.push_back(fmt::format("{:.4f}", row.score.scaled(chance())));
      if (!squared() && text_.empty()) cells.push_back(fmt::format("{:.4f}", row.score.sequence_accuracy));
      cells.push_back(std::to_string(row.score.counted));
      table.row(std::move(cells));
    }
    fmt::print("{}", table.text());
  }

  void print_json(const std::vector<Row>& rows) const {
    Json list = Json::array();
    for (const Row& row : rows) {
      Json one = Json::object().set("time", row.time).set("loss", row.score.loss);
      if (!text_.empty()) one.set("bits_per_byte", row.score.bits());
      if (!squared()) row.score.write(one, chance());
      list.push(one.set("positions", row.score.counted).set("sequences", row.score.sequences));
    }
    fmt::print("{}\n", Json::object()
                           .set("model", trained_.path)
                           .set("layer", trained_.config.stack)
                           .set("step", trained_.step)
                           .set("mean", trained_.mean)
                           .set("data", data_)
                           .set("rows", list)
                           .dump());
  }

  EvalOptions o_;
  TrainedModel trained_;
  std::unique_ptr<model::Task> task_;
  std::vector<unsigned char> own_;
  std::span<const unsigned char> text_;
  std::string data_;
};

}  // namespace

int run_eval(const EvalOptions& options) { return KeptForAside<Eval>(options)->go(); }

}  // namespace ttr::cli
