// `ttr tasks`: lists tasks, explains one and shows samples, writes data for other programs.
//
// Sequences are drawn one at a time, so that a file does not depend on how many are asked for at once: the first ten of a
// thousand are those of ten.
#include "tasks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "atomic_file.h"
#include "json.h"
#include "npz.h"
#include "progress.h"
#include "text_table.h"
#include "train.h"
#include "ttr/tasks.h"

namespace ttr::cli {
namespace {

using model::Examples;
using model::Task;

Examples next(const Task& task, const TasksOptions& o, model::Random& random) {
  Examples e;
  task.draw(random, 1, o.test, e, o.step < 0 ? Task::ended : o.step);
  return e;
}

model::Random generator(const TasksOptions& o) {  // the streams of `ttr train`
  return model::Random(static_cast<std::uint64_t>(o.seed), o.test ? "test" : "train");
}

template <class T>
Json list_of(const std::vector<T>& numbers) {
  Json list = Json::array();
  for (const T one : numbers) {
    if constexpr (std::is_integral_v<T>) list.push(static_cast<std::int64_t>(one));
    else list.push(static_cast<double>(one));
  }
  return list;
}
// [time, width] as a list of lists.
Json rows_of(const std::vector<float>& numbers, int time) {
  Json list = Json::array();
  const std::size_t width = numbers.size() / static_cast<std::size_t>(time);
  for (std::size_t t = 0; t < static_cast<std::size_t>(time); ++t)
    list.push(list_of(std::vector<float>(numbers.begin() + static_cast<std::ptrdiff_t>(t * width),
                                         numbers.begin() + static_cast<std::ptrdiff_t>((t + 1) * width))));
  return list;
}

Json as_json(const Examples& e) {
  Json one = Json::object();
  if (!e.tokens.empty()) one.set("tokens", list_of(e.tokens));
  if (!e.rows.empty()) one.set("rows", rows_of(e.rows, e.time));
  if (!e.labels.empty()) one.set("labels", list_of(e.labels));
  if (!e.targets.empty()) one.set("targets", rows_of(e.targets, e.time)).set("counted", list_of(e.counted));
  return one;
}

Json as_json(const model::TaskInfo& info) {
  Json settings = Json::array();
  for (const model::TaskSettingInfo& one : info.table)
    settings.push(Json::object().set("name", one.name).set("default", one.otherwise).set("meaning", one.meaning));
  return Json::object().set("name", info.name).set("about", info.about).set("settings", settings);
}

// Two lines, tokens and labels below them, as many as fit; long sequences are cut.
void show_tokens(const Task& task, const Examples& e) {
  constexpr std::size_t columns = 110, most_lines = 4;
  std::size_t width = 1, shown = 0;
  std::vector<std::string> tokens, labels;
  for (std::size_t t = 0; t < e.tokens.size(); ++t) {
    tokens.push_back(task.symbol(e.tokens[t]));
    labels.push_back(e.labels[t] < 0 ? "" : task.symbol(e.labels[t]));
    width = std::max({width, display_width(tokens.back()), display_width(labels.back())});
  }
  const std::size_t per_line = std::max<std::size_t>(1, (columns - 8) / (width + 1));
  for (std::size_t line = 0; line < most_lines && shown < tokens.size(); ++line) {
    const std::size_t end = std::min(tokens.size(), shown + per_line);
    for (const bool below : {false, true}) {
      std::string text = below ? "  label " : "  token ";
      for (std::size_t t = shown; t < end; ++t) text += fmt::format(" {:>{}}", below ? labels[t] : tokens[t], width);
      while (text.back() == ' ') text.pop_back();
      fmt::print("{}\n", text);
    }
    shown = end;
  }
  if (shown < tokens.size()) fmt::print("  .. and {} more tokens\n", tokens.size() - shown);
}

void show_rows(const Examples& e) {
  constexpr int most_rows = 8;
  constexpr std::size_t most_numbers = 6;
  const auto line = [&](const char* what, const std::vector<float>& all, int t) {
    const std::size_t width = all.size() / static_cast<std::size_t>(e.time);
    std::string text = fmt::format("  {:<8}", what);
    for (std::size_t j = 0; j < std::min(width, most_numbers); ++j)
      text += fmt::format(" {:>7.3f}", all[static_cast<std::size_t>(t) * width + j]);
    return text + (width > most_numbers ? fmt::format("  .. {} more", width - most_numbers) : "");
  };
  for (int t = 0; t < std::min(e.time, most_rows); ++t) {
    const auto at = static_cast<std::size_t>(t);
    fmt::print("{}\n", line("token", e.rows, t));
    if (!e.labels.empty() && e.labels[at] >= 0) fmt::print("  label    {}\n", e.labels[at]);
    if (!e.targets.empty() && e.counted[at]) fmt::print("{}\n", line("target", e.targets, t));
  }
  if (e.time > most_rows) fmt::print("  .. and {} more tokens\n", e.time - most_rows);
}

int explain(const Task& task, const TasksOptions& o) {
  model::TaskInfo info;
  for (const model::TaskInfo& one : model::tasks())
    if (one.name == task.name) info = one;
  model::Random random = generator(o);
  const int count = o.count > 0 ? o.count : 3;
  if (o.json) {
    Json samples = Json::array();
    for (int i = 0; i < count; ++i) samples.push(as_json(next(task, o, random)));
    Json all = as_json(info);
    all.set("vocabulary", task.vocabulary).set("input_dim", task.input_dim).set("output_dim", task.output_dim);
    all.set("loss", task.squared ? "squared" : "cross-entropy")
        .set("time", task.time)
        .set("test_time", task.test_time);
    all.set("chance", task.chance).set("metric", task.metric).set("explanation", info.explanation);
    fmt::print("{}\n", all.set("seed", o.seed).set("test", o.test).set("samples", samples).dump());
    return 0;
  }
  fmt::print("{}: {}\n\n{}\n\n", info.name, info.about, info.explanation);
  if (task.recall)
    fmt::print(
        "What is asked for stood behind what asks: two tokens. A layer whose keys and values see their own token "
        "alone\n"
        "never holds both as a pair, whatever it remembers, so `ttr train` gives it a convolution of {} taps unless "
        "its\n"
        "settings have conv=0. Where nothing else is said it takes --rate {} with adamw, and with {} tokens or more\n"
        "--tied: one matrix for tokens that are seen too seldom to learn two.\n\n",
        recall_taps, recall_rate, recall_tied);
  std::size_t name = 0, value = 0;
  for (const model::TaskSettingInfo& one : info.table)
    name = std::max(name, one.name.size()), value = std::max(value, one.otherwise.size());
  for (const model::TaskSettingInfo& one : info.table)
    fmt::print("  {:<{}}  {:<{}}  {}\n", one.name, name, one.otherwise, value, one.meaning);
  const std::string kind = task.vocabulary > 0 ? fmt::format("tokens below {}", task.vocabulary)
                                               : fmt::format("rows of {} numbers", task.input_dim);
  const std::string judged = task.squared
                                 ? "squared error"
                                 : fmt::format("accuracy, mean over {}{}", task.metric,
                                               task.chance > 0 ? fmt::format(", chance {:.4g}", task.chance) : "");
  fmt::print("\n{}, up to {} of them in training and {} in a test; judged by {}\n", kind, task.time, task.test_time,
             judged);
  for (int i = 0; i < count; ++i) {
    fmt::print("\n{} sequence {} of seed {}\n", o.test ? "test" : "training", i + 1, o.seed);
    const Examples e = next(task, o, random);
    if (e.tokens.empty()) show_rows(e);
    else show_tokens(task, e);
  }
  return 0;
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

template <class T>
std::string_view raw(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

// Sequences of several lengths in one array: tokens are filled with 0, labels with -100.
class Arrays {
 public:
  explicit Arrays(const Task& task) : task_(task) {}
  void add(Examples e) {
    time_ = std::max(time_, e.time), same_ = all_.empty() || (same_ && e.time == all_[0].time);
    all_.push_back(std::move(e));
  }
  void write(AtomicFile& file, bool archive) {
    std::vector<std::int32_t> lengths, tokens, labels;
    std::vector<float> rows, targets;
    std::vector<std::uint8_t> counted;
    for (const Examples& e : all_) {
      const auto fill = [&](const auto& from, auto& to, auto value) {
        to.insert(to.end(), from.begin(), from.end());
        to.insert(to.end(), from.size() / static_cast<std::size_t>(e.time) * static_cast<std::size_t>(time_ - e.time),
                  value);
      };
      lengths.push_back(e.time);
      fill(e.tokens, tokens, 0), fill(e.labels, labels, -100), fill(e.rows, rows, 0.0f);
      fill(e.targets, targets, 0.0f), fill(e.counted, counted, std::uint8_t{0});
    }
    const auto count = static_cast<std::int64_t>(all_.size());
    std::vector<NpzArray> arrays;
    const auto add = [&](const char* name, const char* descr, const auto& numbers, std::int64_t width) {
      if (numbers.empty()) return;
      NpzArray one{name, descr, {count, time_}, raw(numbers)};
      if (width > 0) one.shape.push_back(width);
      arrays.push_back(std::move(one));
    };
    add("tokens", "<i4", tokens, 0), add("rows", "<f4", rows, task_.input_dim), add("labels", "<i4", labels, 0);
    add("targets", "<f4", targets, task_.output_dim), add("counted", "|u1", counted, 0);
    if (archive) {
      arrays.push_back({"lengths", "<i4", {count}, raw(lengths)});
      file.write(npz_file(arrays));
      return;
    }
    if (tokens.empty())
      throw Error("an .npy holds one kind of number, and '" + task_.name + "' has rows and targets; write an .npz",
                  "--out");
    if (!same_)
      throw Error("an .npy has no place for lengths, and the sequences of '" + task_.name + "' differ; write an .npz",
                  "--out");
    std::vector<std::int32_t> both;  // [sequence, tokens and labels, time]
    for (const Examples& e : all_) {
      both.insert(both.end(), e.tokens.begin(), e.tokens.end());
      both.insert(both.end(), e.labels.begin(), e.labels.end());
    }
    file.write(npy_file({"", "<i4", {count, 2, time_}, raw(both)}));
  }

 private:
  const Task& task_;
  std::vector<Examples> all_;
  int time_ = 0;
  bool same_ = true;
};

std::string csv_header(const Task& task) {
  std::string text = "sequence,position";
  if (task.vocabulary > 0) text += ",token";
  for (int j = 0; j < task.input_dim; ++j) text += fmt::format(",row{}", j + 1);
  if (!task.squared) return text + ",label\n";
  for (int j = 0; j < task.output_dim; ++j) text += fmt::format(",target{}", j + 1);
  return text + ",counted\n";
}

void csv_lines(const Task& task, const Examples& e, int sequence, std::string& text) {
  const auto numbers = [&](const std::vector<float>& all, std::size_t t, int width) {
    for (std::size_t j = 0; j < static_cast<std::size_t>(width); ++j)
      text += fmt::format(",{}", all[t * static_cast<std::size_t>(width) + j]);
  };
  for (std::size_t t = 0; t < static_cast<std::size_t>(e.time); ++t) {
    text += fmt::format("{},{}", sequence, t);
    if (task.vocabulary > 0) text += fmt::format(",{}", e.tokens[t]);
    numbers(e.rows, t, task.input_dim);
    if (!task.squared) {
      text += fmt::format(",{}", e.labels[t]);
    } else {
      numbers(e.targets, t, task.output_dim);
      text += fmt::format(",{}", e.counted[t]);
    }
    text += '\n';
  }
}

int write_out(const Task& task, const TasksOptions& o) {
  const bool npz = ends_with(o.out, ".npz"), npy = ends_with(o.out, ".npy"), csv = ends_with(o.out, ".csv");
  if (!npz && !npy && !csv && !ends_with(o.out, ".jsonl") && o.out != "-")
    throw Error("--out is '" + o.out + "'; its name ends in .jsonl, .csv, .npz or .npy, or it is -", "--out");
  const int count = o.count > 0 ? o.count : 1000;
  model::Random random = generator(o);
  const InterruptGuard guard;
  AtomicFile file(o.out, "--out");
  Progress bar("tasks", !o.json && o.out != "-");
  Arrays arrays(task);
  if (csv) file.write(csv_header(task));
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (interrupted()) return 128 + interrupted();  // nothing is left of the file
    Examples e = next(task, o, random);
    text.clear();
    if (npz || npy) arrays.add(std::move(e));
    else if (csv) csv_lines(task, e, i, text);
    else text = as_json(e).dump(-1) + "\n";
    file.write(text);
    bar.update(i + 1, count);
  }
  if (npz || npy) arrays.write(file, npz);
  file.commit();
  bar.finish();
  if (o.out == "-") return 0;
  if (o.json)
    fmt::print("{}\n", Json::object()
                           .set("task", o.task)
                           .set("sequences", count)
                           .set("seed", o.seed)
                           .set("test", o.test)
                           .set("file", o.out)
                           .dump());
  else fmt::print("{} {} sequences of {} in {}\n", count, o.test ? "test" : "training", o.task, o.out);
  return 0;
}

}  // namespace

int list_tasks(bool json) {
  Json all = Json::array();
  for (const model::TaskInfo& task : model::tasks()) {
    if (json) all.push(as_json(task));
    else fmt::print("{:<21} {}\n{:<21} {}\n", task.name, task.about, "", task.settings);
  }
  if (json) fmt::print("{}\n", Json::object().set("tasks", all).dump());
  else fmt::print("\n`ttr tasks NAME` explains one and shows samples; `ttr train NAME` trains a model on it.\n");
  return 0;
}

int run_tasks(const TasksOptions& o) {
  if (o.count < 0) throw Error("--count is " + std::to_string(o.count) + "; it is at least 0", "--count");
  if (o.step < -1) throw Error("--step is " + std::to_string(o.step) + "; it is at least -1", "--step");
  if (o.task.empty()) {
    if (!o.out.empty()) throw Error("--out needs the name of a task; `ttr tasks` lists them", "--out");
    return list_tasks(o.json);
  }
  // A text without a file can be explained, not shown.
  const std::unique_ptr<Task> task = model::make_task(o.task);
  return o.out.empty() ? explain(*task, o) : write_out(*task, o);
}

}  // namespace ttr::cli
