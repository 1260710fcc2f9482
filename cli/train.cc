// `ttr train`: draw, gradient, step; now and then a test on sequences that are the same every time, and a checkpoint.
//
// A run that is taken up again has the bits of one that was not interrupted: the checkpoint has the state of the data's
// generator, and nothing else depends on what went before. `--until` stops early without another schedule.
#include "train.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "json.h"
#include "progress.h"
#include "ttr/checkpoint.h"
#include "ttr/tasks.h"

namespace ttr::cli {
namespace {

struct Row {
  std::int64_t step = 0;
  double train_loss = 0, test_loss = 0, accuracy = 0, scaled = 0, rate = 0;
};

int list_tasks(bool json) {
  Json all = Json::array();
  for (const model::TaskInfo& task : model::tasks()) {
    if (json) all.push(Json::object().set("name", task.name).set("settings", task.settings).set("about", task.about));
    else fmt::print("{:<21} {}\n{:<21} {}\n", task.name, task.about, "", task.settings);
  }
  if (json) fmt::print("{}\n", Json::object().set("tasks", all).dump());
  return 0;
}

class Run {
 public:
  explicit Run(TrainOptions options) : o_(std::move(options)) {
    if (o_.resume.empty()) {
      task_ = model::make_task(o_.task);
      task_->apply(o_.config);
      model_ = std::make_unique<model::Model<float>>(o_.config, static_cast<std::uint64_t>(o_.seed));
      data_ = std::make_unique<model::Random>(static_cast<std::uint64_t>(o_.seed), "train");
    } else {
      take_up();
    }
    if (o_.batch < 1) throw Error("--batch is " + std::to_string(o_.batch) + "; it is at least 1", "--batch");
    if (o_.judged < 1) throw Error("--test is " + std::to_string(o_.judged) + "; it is at least 1", "--test");
    if (o_.every < 0) throw Error("--every is " + std::to_string(o_.every) + "; it is at least 0", "--every");
    if (!optimiser_)
      optimiser_ = std::make_unique<model::Optimiser<float>>(model_->parameters(), o_.optimiser, o_.threads);
    steps_ = o_.optimiser.steps;
    end_ = o_.until > 0 ? std::min<std::int64_t>(o_.until, steps_) : steps_;
    judge_batch_ = std::min(o_.judged, o_.batch);
    session_ = std::make_unique<model::Session<float>>(*model_, o_.batch, task_->time, o_.threads);
    judge_ = std::make_unique<model::Session<float>>(*model_, judge_batch_, task_->test_time, o_.threads);
  }

  int go() {
    const InterruptGuard guard;
    const auto start = std::chrono::steady_clock::now();
    const std::int64_t every = o_.every ? o_.every : std::max<std::int64_t>(1, steps_ / 10);
    if (!o_.json && !o_.quiet) {
      fmt::print("{}: {}\n{} parameters, {} steps of {} sequences\n", task_->name, o_.config.stack, count(), steps_,
                 o_.batch);
      fmt::print("{:>8} {:>11} {:>11} {:>9}{}\n", "step", "train loss", "test loss", task_->squared ? "" : "accuracy",
                 task_->chance > 0 ? "   scaled" : "");
    }
    Progress bar("train", !o_.json && !o_.quiet);
    model::Examples examples;
    double sum = 0, tokens = 0;
    std::int64_t since = 0;
    for (; step_ < end_ && !interrupted(); ++step_) {
      task_->draw(*data_, o_.batch, false, examples);
      const model::Measure measure = session_->gradient(examples.batch());
      const double length = optimiser_->step(model_->values(), session_->gradients());
      if (!std::isfinite(length) || !std::isfinite(measure.loss))
        throw Error(
            fmt::format(
                "the loss is {} and its gradient has the length {} at step {}; try a smaller --rate, or --clip 1",
                measure.loss, length, step_),
            "step " + std::to_string(step_));
      sum += measure.loss, ++since;
      tokens += static_cast<double>(examples.sequences) * examples.time;
      bar.update(static_cast<double>(step_ + 1), static_cast<double>(end_), fmt::format("loss {:.4f}", measure.loss));
      if ((step_ + 1) % every != 0 && step_ + 1 != end_) continue;
      bar.finish();
      Row row = test(step_ + 1);
      row.train_loss = sum / static_cast<double>(since), row.rate = model::rate_at(o_.optimiser, step_);
      sum = 0, since = 0;
      rows_.push_back(row);
      if (!o_.json) print(row);
      if (!o_.checkpoint.empty()) save(step_ + 1);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const int signal = interrupted();
    if (signal && !o_.checkpoint.empty()) save(step_);
    if (o_.json) print_json(seconds.count(), tokens);
    else if (!o_.quiet)
      fmt::print("{:.1f} s, {:.0f} tokens per second{}\n", seconds.count(), tokens / std::max(1e-9, seconds.count()),
                 o_.checkpoint.empty() ? "" : "; checkpoint " + o_.checkpoint);
    return signal ? 130 : 0;
  }

 private:
  void take_up() {
    const model::Checkpoint saved = model::read_checkpoint(o_.resume);
    const auto note = [&](const char* key) {
      const auto found = saved.progress.notes.find(key);
      if (found == saved.progress.notes.end())
        throw Error(o_.resume + ": it was not written by ttr train: there is no note of the " + key, "--resume");
      return found->second;
    };
    o_.task = note("task"), o_.batch = std::stoi(note("batch")), o_.seed = std::stoll(note("seed"));
    o_.config = saved.config, o_.optimiser = saved.optimiser;
    if (o_.checkpoint.empty()) o_.checkpoint = o_.resume;
    task_ = model::make_task(o_.task);
    model_ = std::make_unique<model::Model<float>>(o_.config);
    optimiser_ = std::make_unique<model::Optimiser<float>>(model_->parameters(), o_.optimiser, o_.threads);
    saved.load(*model_), saved.load(*optimiser_);
    data_ = std::make_unique<model::Random>(0);
    data_->restore(saved.progress.random);
    step_ = saved.progress.step;
  }

  std::size_t count() const {
    std::size_t all = 0;
    for (const model::Parameter& p : model_->parameters()) all += p.size;
    return all;
  }

  // The same sequences every time.
  Row test(std::int64_t step) {
    model::Random random(static_cast<std::uint64_t>(o_.seed), "test");
    model::Examples examples;
    Row row;
    row.step = step;
    double counted = 0, correct = 0;
    for (int done = 0; done < o_.judged; done += judge_batch_) {
      task_->draw(random, judge_batch_, true, examples);
      const model::Measure m = judge_->forward(examples.batch());
      row.test_loss += m.loss * static_cast<double>(m.counted);
      counted += static_cast<double>(m.counted), correct += static_cast<double>(m.correct);
    }
    row.test_loss /= counted, row.accuracy = correct / counted;
    row.scaled = (row.accuracy - task_->chance) / (1 - task_->chance);
    return row;
  }

  void print(const Row& row) const {
    fmt::print("{:>8} {:>11.5f} {:>11.5f}", row.step, row.train_loss, row.test_loss);
    if (!task_->squared) fmt::print(" {:>9.4f}", row.accuracy);
    if (task_->chance > 0) fmt::print(" {:>8.4f}", row.scaled);
    fmt::print("\n");
    std::fflush(stdout);
  }

  void print_json(double seconds, double tokens) const {
    Json list = Json::array();
    for (const Row& row : rows_) {
      Json one = Json::object().set("step", row.step).set("rate", row.rate).set("train_loss", row.train_loss);
      one.set("test_loss", row.test_loss);
      if (!task_->squared) one.set("accuracy", row.accuracy).set("scaled_accuracy", row.scaled);
      list.push(one);
    }
    fmt::print("{}\n", Json::object()
                           .set("task", o_.task)
                           .set("stack", o_.config.stack)
                           .set("config", model::to_string(o_.config))
                           .set("optimiser", model::to_string(o_.optimiser))
                           .set("parameters", count())
                           .set("seed", o_.seed)
                           .set("batch", o_.batch)
                           .set("steps", step_)
                           .set("rows", list)
                           .set("seconds", seconds)
                           .set("tokens_per_second", tokens / std::max(1e-9, seconds))
                           .dump());
  }

  void save(std::int64_t step) {
    model::save_checkpoint(
        o_.checkpoint, *model_, optimiser_.get(),
        {.step = step,
         .random = data_->state(),
         .notes = {{"task", o_.task}, {"batch", std::to_string(o_.batch)}, {"seed", std::to_string(o_.seed)}}});
  }

  TrainOptions o_;
  std::unique_ptr<model::Task> task_;
  std::unique_ptr<model::Model<float>> model_;
  std::unique_ptr<model::Optimiser<float>> optimiser_;
  std::unique_ptr<model::Session<float>> session_, judge_;
  std::unique_ptr<model::Random> data_;
  std::int64_t step_ = 0, steps_ = 0, end_ = 0;
  int judge_batch_ = 1;
  std::vector<Row> rows_;
};

}  // namespace

int run_train(const TrainOptions& options) {
  if (options.task.empty() && options.resume.empty()) return list_tasks(options.json);
  return Run(options).go();
}

}  // namespace ttr::cli
