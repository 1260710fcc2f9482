// `ttr train`: draw, gradient, step; now and then a test on sequences that are the same every time, and a checkpoint.
//
// A run that is taken up again has the bits of one that was not interrupted: the checkpoint has the state of the data's
// generator and every sum that is under way, and nothing else depends on what went before. `--until` stops early without
// another schedule. The ranks of MPI share the steps (train_ranks.h); the first of them tests, writes and speaks.
#include "train.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "aside.h"
#include "atomic_file.h"
#include "judge.h"
#include "progress.h"
#include "ranks.h"
#include "run_folder.h"
#include "tasks.h"
#include "train_output.h"
#include "train_ranks.h"
#include "train_record.h"
#include "trained.h"
#include "ttr/checkpoint.h"
#include "ttr/tasks.h"
#include "ttr/version.h"

namespace ttr::cli {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A recipe without braces, or settings as other verbs take them, as a stack: "rls:ridge=1e-3" -> "rls(ridge=1e-3)".
std::string stack_text(const std::string& layer) {
  if (layer.find('/') != std::string::npos && layer.find('{') == std::string::npos) return "{" + layer + "}";
  const std::size_t colon = layer.find(':');
  if (colon != std::string::npos && layer.find_first_of("({,*") > colon)
    return layer.substr(0, colon) + "(" + layer.substr(colon + 1) + ")";
  return layer;
}

constexpr double long_seconds = 0.2;

class Run {
 public:
  explicit Run(TrainOptions options) {
    record_.options = std::move(options);
    TrainOptions& o = record_.options;
    if (!o.report.empty() && same_file(o.report, o.task))
      throw Error("--report would overwrite the text '" + o.task + "'", "--report");
    if (o.resume && o.out.empty())
      throw Error("--resume goes on with the run in a folder; name it with --out", "--resume");
    const bool first = ranks_.first();
    if (!o.out.empty() && first) folder_.emplace(o.out, o.resume);
    std::string found = folder_ ? folder_->found() : "";
    ranks_.share(found);
    if (ranks_.count() > 1) {
      if (o.threads == 0)
        o.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks_.here());
      ranks_.last_words = [this] {
        return saved_step_ < 0 ? std::string("there is no checkpoint to go on from")
                               : fmt::format(
                                     "the last checkpoint is {}/checkpoint.safetensors, of step {}: --resume "
                                     "goes on from it, on any number of ranks",
                                     record_.options.out, saved_step_);
      };
    }
    if (!found.empty()) take_up(found);
    else begin();
    describe();
    if (!shared_) session_ = std::make_unique<model::Session<float>>(*model_, o.batch, task_->time, o.threads);
    const bool judges = groups_.group == 0;  // the first rank, and those that hold its sequences with it
    if (o.optimiser.ema > 0 && judges) mean_ = std::make_unique<model::Model<float>>(o.config);
    if (judges)
      judge_ = std::make_unique<Judge>(mean_ ? *mean_ : *model_, std::min(o.judged, o.batch), task_->test_time,
                                       o.threads, groups_, pieces_.get());
    steps_ = o.optimiser.steps;
    end_ = o.until > 0 ? std::min<std::int64_t>(o.until, steps_) : steps_;
    if (o.every == 0) o.every = static_cast<int>(std::max<std::int64_t>(1, steps_ / 10));
  }

  int go() {
    const InterruptGuard guard;
    const TrainOptions& o = record_.options;
    if (folder_) folder_->open();
    if (saves() && record_.step == 0) save();  // a disk that is full says so before the work
    if (folder_) {
      std::vector<std::string> lines;
      for (const TrainRow& row : record_.rows) lines.push_back(to_json(row, record_).dump(-1));
      folder_->begin_log(lines);
    }
    if (talks()) {
      fmt::print("{}", train_heading(record_));
      if (record_.step > 0) fmt::print("from step {} on\n", record_.step);
      std::fflush(stdout);
    }
    if (record_.step < end_) train();
    if (record_.status == "finished" && record_.step < steps_)
      record_.status = stops() && record_.step < end_ ? "interrupted" : "stopped";
    if (record_.status == "finished") finish();
    if (!ranks_.first()) return ended();
    if (o.json) fmt::print("{}\n", to_json(record_).dump());
    else if (talks()) {
      if (isatty(STDOUT_FILENO)) fmt::print("{}", train_curve(record_, std::min(100, terminal_width())));
      fmt::print("{}", train_closing(record_));
    }
    if (!o.report.empty()) {
      if (record_.text) add_sample();
      write_file(o.report, "--report", train_report(record_));
    }
    return ended();
  }

 private:
  bool talks() const { return ranks_.first() && !record_.options.json && !record_.options.quiet; }
  bool saves() const { return !record_.options.out.empty(); }
  bool stops() const { return shared_ ? stops_ : interrupted() != 0; }
  int ended() const {
    if (!diverged_.empty()) throw Error(diverged_, "step " + std::to_string(record_.step));
    return record_.status == "interrupted" ? 128 + std::max(interrupted(), 1) : 0;
  }

  void begin() {
    TrainOptions& o = record_.options;
    if (o.task.empty())
      throw Error(
          fmt::format("'{}' has no checkpoint to go on from; name the task as well, and the run begins", o.out),
          "task");
    o.task = task_text(o.task, o.time, o.held);
    o.config.stack = stack_text(o.config.stack);
    if (o.optimiser.warmup == -1) o.optimiser.warmup = std::min(100, o.optimiser.steps / 20);
    const auto at_least = [](const char* option, std::int64_t value, std::int64_t low) {
      if (value < low) throw Error(fmt::format("{} is {}; it is at least {}", option, value, low), option);
    };
    at_least("--steps", o.optimiser.steps, 1), at_least("--batch", o.batch, 1), at_least("--test", o.judged, 1);
    at_least("--every", o.every, 0), at_least("--until", o.until, 0);
    at_least("--checkpoint-every", o.checkpoint_every, 0);
    task_ = model::make_task(o.task);
    task_->apply(o.config);
    if (task_->recall) recall_defaults();
    model_ = std::make_unique<model::Model<float>>(o.config, static_cast<std::uint64_t>(o.seed));
    make_optimiser();
    data_ = model::Random(static_cast<std::uint64_t>(o.seed), "train");
  }

  // What a task of recall begins with where the command line says nothing: a convolution, without which no key is
  // stored with its value; a rate that leaves the plateau; and one matrix for tokens that are seen too seldom to learn two.
  void recall_defaults() {
    TrainOptions& o = record_.options;
    std::string& said = record_.defaults;
    const auto say = [&](const std::string& what) { said += (said.empty() ? "" : ", ") + what; };
    if (const std::string stack = model::with_convolution(o.config, recall_taps); stack != o.config.stack) {
      o.config.stack = stack;
      say(fmt::format("conv={} (conv=0: none)", recall_taps));
    }
    if (!o.given.contains("--rate") && o.optimiser.method == "adamw") {
      o.optimiser.rate = recall_rate;
      say(fmt::format("--rate {}", recall_rate));
    }
    if (!o.given.contains("--tied") && o.config.vocabulary >= recall_tied) {
      o.config.tied = true;
      say("--tied (--tied=false: not)");
    }
  }

  // That of all parameters, or a share of it on every rank.
  void make_optimiser() {
    const TrainOptions& o = record_.options;
    groups_ = SequenceRanks::of(ranks_, o.sequence_ranks);
    pieces_ = ranks_.pieces(groups_.size);
    if (ranks_.count() > 1 || o.reproducible)
      shared_ = std::make_unique<SharedSteps>(ranks_, groups_, pieces_.get(), *model_, o.optimiser, o.batch,
                                              task_->time, o.threads, o.reproducible);
    else optimiser_ = std::make_unique<model::Optimiser<float>>(model_->parameters(), o.optimiser, o.threads);
  }

  void take_up(const std::string& path) {
    TrainOptions& o = record_.options;
    const TrainOptions told = o;
    const model::Checkpoint saved = model::read_checkpoint(path);
    if (!saved.has_optimiser)
      throw Error(path + ": it has no state of an optimiser; there is nothing to go on from", path);
    record_.read(saved.progress.notes, path);
    o.config = saved.config, o.optimiser = saved.optimiser;
    task_ = model::make_task(o.task);
    refuse_other_settings(told);
    const auto data = saved.progress.notes.find("data");
    if (data == saved.progress.notes.end() || data->second != fingerprint(*task_))
      throw Error(
          fmt::format("the text of the run in '{}' has changed since it began; go on with the file as it was, or "
                      "begin in another folder",
                      o.out),
          "--resume");
    model_ = std::make_unique<model::Model<float>>(o.config);
    saved.load(*model_);
    make_optimiser();
    if (shared_) shared_->load(saved);
    else saved.load(*optimiser_);
    data_.restore(saved.progress.random);
    record_.step = saved_step_ = saved.progress.step;
  }

  // What the command line says must be what the run has.
  void refuse_other_settings(const TrainOptions& told) const {
    const TrainOptions& o = record_.options;
    const auto differ = [&](const std::string& what, const std::string& here, const std::string& there) {
      throw Error(
          fmt::format("the run in '{}' has {} {} and the command line says {}; leave that out to go on, or name "
                      "another folder",
                      o.out, what, there, here),
          what);
    };
    if (!told.task.empty())
      if (const std::string text = task_text(told.task, told.time, told.held); text != o.task)
        differ("the task", text, o.task);
    TrainOptions mine = told;
    mine.config.stack = stack_text(told.config.stack);
    if (task_->recall && mine.config.stack != o.config.stack) {  // a run may be older than its default
      model::Config begun = o.config;
      begun.stack = mine.config.stack;
      mine.config.stack = model::with_convolution(begun, recall_taps);
    }
    const auto here = settings_text(mine), there = settings_text(o);
    std::size_t i = 0;
    run_settings(
        [&](const std::string& option, const auto&, const char*) {
          const std::string name = option.substr(0, option.find(','));
          const bool same = here[i].second == there[i].second || (name == "--warmup" && here[i].second == "-1") ||
                            (name == "--every" && here[i].second == "0");
          if (!same && told.given.count(name)) differ(name, here[i].second, there[i].second);
          ++i;
        },
        o);
  }

  void describe() {
    record_.task_name = task_->name, record_.squared = task_->squared, record_.chance = task_->chance;
    record_.recall = task_->recall, record_.guess = std::max(task_->chance, task_->guess);
    record_.text = !task_->text(true).empty();
    record_.parameters = 0;
    for (const model::Parameter& p : model_->parameters()) record_.parameters += p.size;
    record_.state_numbers = model_->state_numbers(task_->test_time);
  }

  void train() {
    TrainOptions& o = record_.options;
    Progress bar("train", talks());
    const auto examples = std::make_shared<model::Examples>();
    double last = long_seconds;  // of a step
    const Clock::time_point start = Clock::now();
    Clock::time_point saved = start;
    const double seconds_before = record_.seconds;
    const std::int64_t first = record_.step;
    const std::int64_t point = std::max<std::int64_t>(1, steps_ / 200);
    while (record_.step < end_ && !stops()) {
      const Clock::time_point began = Clock::now();
      // A step that is left behind has changed neither the parameters nor what the next one draws.
      std::optional<model::Measure> left;
      if (!shared_ && last >= long_seconds) {
        const auto made = made_aside([this, examples, random = data_, step = record_.step]() mutable {
          task_->draw(random, record_.options.batch, false, *examples, step);
          return std::pair(session_->gradient(examples->batch()), random);
        });
        if (!made) break;
        left = made->first, data_ = made->second;
      } else {
        task_->draw(data_, o.batch, false, *examples, record_.step);
      }
      // What ranks must agree on: whether one of them was told to stop, and by the first one's clock when to save.
      const double mine = interrupted() ? -1 : seconds_since(saved);
      const model::Measure measure = left      ? *left
                                     : shared_ ? shared_->gradient(*examples, mine)
                                               : session_->gradient(examples->batch());
      const double since_saved = shared_ ? shared_->given().front() : mine;
      if (shared_)
        stops_ = std::any_of(shared_->given().begin(), shared_->given().end(), [](double x) { return x < 0; });
      const double length = !std::isfinite(measure.loss) ? measure.loss
                            : shared_                    ? shared_->step()
                                                         : optimiser_->step(model_->values(), session_->gradients());
      if (!std::isfinite(length)) return diverge(measure.loss);
      ++record_.step;
      record_.since_test.add(measure.loss), record_.since_point.add(measure.loss);
      record_.tokens += static_cast<double>(examples->sequences) * examples->time;
      last = seconds_since(began);
      record_.train_seconds += seconds_since(began), record_.seconds = seconds_before + seconds_since(start);
      const std::int64_t step = record_.step;
      if (step % point == 0) record_.curve.push_back({step, record_.since_point.take()});
      bar.update(static_cast<double>(step - first), static_cast<double>(end_ - first),
                 live_note(record_, end_, measure.loss,
                           static_cast<double>(measure.correct) /
                               static_cast<double>(std::max<std::int64_t>(1, measure.counted)),
                           record_.tokens_per_second()));
      const bool test_now = step % o.every == 0 || step == end_;
      if (test_now) {
        if (!test(bar)) {
          record_.status = "interrupted";
          break;
        }
        record_.seconds = seconds_before + seconds_since(start);
        // Parameters that have just left the numbers are no checkpoint to go on from.
        if (const double loss = record_.rows.back().score.loss; !std::isfinite(loss)) return diverge(loss);
      }
      if (!saves()) continue;
      const bool due = o.checkpoint_every > 0 ? step % o.checkpoint_every == 0 : test_now || since_saved > 60;
      if (due || step == end_) save(), saved = Clock::now();
    }
    bar.finish();
    record_.seconds = seconds_before + seconds_since(start);
    if (stops() && saves() && record_.step < end_) save();
  }

  void diverge(double loss) {
    record_.status = "diverged";
    diverged_ = fmt::format("{} at step {}; try a smaller --rate than {}, a longer --warmup or --clip 1",
                            std::isfinite(loss) ? "the gradient is not finite"
                            : std::isnan(loss)  ? "the loss is not a number"
                                                : "the loss is infinite",
                            record_.step, record_.options.optimiser.rate);
    if (saved_step_ >= 0)
      diverged_ += fmt::format("; the last good checkpoint is {}/checkpoint.safetensors, of step {}",
                               record_.options.out, saved_step_);
  }

  // False: interrupted.
  bool test(Progress& bar) {
    const TrainOptions& o = record_.options;
    take_mean();
    TrainRow row;
    row.step = record_.step;
    row.rate = model::rate_at(o.optimiser, record_.step - 1);
    row.train_loss = record_.since_test.take();
    const auto judge = [this] {
      const TrainOptions& now = record_.options;
      return judge_->of(*task_, now.judged, static_cast<std::uint64_t>(now.seed));
    };
    if (judge_ && ranks_.count() > 1) row.score = judge();
    if (judge_ && ranks_.count() == 1) {
      const std::optional<ModelScore> score = made_aside(judge);
      if (!score) return false;
      row.score = *score;
    }
    row.seconds = record_.seconds, row.tokens = record_.tokens;
    std::vector<ModelScore> scores(static_cast<std::size_t>(ranks_.count()));
    ranks_.gather(&row.score, sizeof row.score, scores.data());
    row.score = scores.front();
    record_.rows.push_back(row);
    if (folder_) folder_->append_to_log(to_json(row, record_).dump(-1));
    if (o.json || !ranks_.first()) return true;
    bar.wipe();
    fmt::print("{}", train_line(row, record_));
    std::fflush(stdout);
    return true;
  }

  // The running mean of the parameters, which is tested and kept.
  void take_mean() {
    if (record_.options.optimiser.ema <= 0) return;
    std::unique_ptr<model::Optimiser<float>> whole;
    if (shared_) whole = shared_->whole();
    const auto mean = (shared_ ? *whole : *optimiser_).mean();
    if (mean_) std::copy(mean.begin(), mean.end(), mean_->values().begin());
  }

  // What the model makes of the beginning of a line that it was not trained on.
  void add_sample() {
    const std::span<const unsigned char> held = task_->text(true);
    std::size_t begin = 0, end = 0;
    while (begin < held.size() && begin < 4096 && held[begin] != '\n') ++begin;
    while (begin < held.size() && (held[begin] == '\n' || held[begin] == ' ' || held[begin] == '\r')) ++begin;
    if (begin >= held.size() || held[begin] < 0x20) begin = 0;
    for (std::size_t i = begin; i < held.size() && i < begin + 40; ++i)
      if (held[i] == ' ' || i + 1 == begin + 40) end = i;
    for (std::size_t i = begin; i < end; ++i) record_.prompt += static_cast<char>(held[i]);
    std::vector<std::int32_t> prompt(held.begin() + static_cast<std::ptrdiff_t>(begin),
                                     held.begin() + static_cast<std::ptrdiff_t>(end));
    if (prompt.empty()) prompt.push_back('\n');
    record_.sample = record_.prompt;
    try {
      generate(mean_ ? *mean_ : *model_, prompt, 800, {}, static_cast<std::uint64_t>(record_.options.seed), 1,
               [&](std::int32_t token) { return record_.sample += static_cast<char>(token), true; });
    } catch (const Error& error) {  // a layer that cannot be run token by token
      record_.sample = error.what();
    }
  }

  void save() {
    model::Progress progress{.step = record_.step, .random = data_.state(), .notes = record_.notes()};
    progress.notes["data"] = fingerprint(*task_);
    progress.notes["version"] = TTR_VERSION;
    std::unique_ptr<model::Optimiser<float>> whole;
    if (shared_) whole = shared_->whole();
    try {
      if (folder_)
        model::save_checkpoint(folder_->checkpoint(), *model_, shared_ ? whole.get() : optimiser_.get(), progress);
    } catch (const Error& error) {
      if (saved_step_ < 0) throw;
      throw Error(fmt::format("{}; the checkpoint of step {} is still there: make room and go on with --resume",
                              error.what(), saved_step_),
                  error.where());
    }
    saved_step_ = record_.step;
    if (ranks_.count() > 1) ranks_.wait();  // no rank says that it is there before it is
  }

  // The weights alone; nothing in it depends on when or how often the run was stopped.
  void finish() {
    if (saves()) take_mean();
    if (!folder_) return;
    const model::Progress progress{.step = record_.step,
                                   .random = data_.state(),
                                   .notes = {{"task", record_.options.task},
                                             {"seed", std::to_string(record_.options.seed)},
                                             {"batch", std::to_string(record_.options.batch)},
                                             {"optimiser", model::to_string(record_.options.optimiser)},
                                             {"weights", mean_ ? "mean of the parameters (ema)" : "as trained"},
                                             {"version", TTR_VERSION}}};
    model::save_checkpoint<float>(folder_->model(), mean_ ? *mean_ : *model_, nullptr, progress);
  }

  TrainRecord record_;
  Ranks& ranks_ = ranks();
  std::optional<RunFolder> folder_;  // of the first rank
  std::unique_ptr<model::Task> task_;
  std::unique_ptr<model::Model<float>> model_, mean_;
  std::unique_ptr<model::Optimiser<float>> optimiser_;  // these two, or shared_
  std::unique_ptr<model::Session<float>> session_;
  SequenceRanks groups_;
  std::unique_ptr<model::Pieces> pieces_;  // of this rank's group, if it is more than one rank
  std::unique_ptr<SharedSteps> shared_;
  bool stops_ = false;  // a rank was told to
  std::unique_ptr<Judge> judge_;
  model::Random data_{0};
  std::int64_t steps_ = 0, end_ = 0;
  std::int64_t saved_step_ = -1;  // of the checkpoint on the disk
  std::string diverged_;
};

}  // namespace

int run_train(const TrainOptions& options) {
  if (options.task.empty() && !options.resume) {
    if (!options.given.empty() && !(options.given.size() == 1 && options.json))
      throw Error("a task or a text file is missing; `ttr train` alone lists the tasks", "task");
    return list_tasks(options.json);
  }
  return KeptForAside<Run>(options)->go();
}

}  // namespace ttr::cli
