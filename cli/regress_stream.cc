// `ttr regress FILE`: rows in, predictions out, in constant memory. Blocks of rows are read, every layer runs over
// the block, then the block is scored and written; a live stream has blocks of one row.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

#include "atomic_file.h"
#include "csv.h"
#include "npy.h"
#include "progress.h"
#include "regress_input.h"
#include "regress_pairs.h"
#include "regress_parts.h"
#include "report.h"
#include "text_table.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

constexpr std::size_t block_rows = 256, shown_rows = 200;
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

class Stream {
 public:
  explicit Stream(const RegressOptions& options) : options_(options) {}
  int run();

 private:
  void choose_columns();
  void make_layers();
  void open_outputs();
  void read_all();
  bool read_block();
  void process_block();
  void score(std::int64_t row, const double* predictions, const double* actual);
  void emit(std::int64_t row, const double* predictions, const double* actual);
  void write_leftovers();
  void finish_files();
  Report make_report() const;
  Plot loss_plot() const;
  std::string summary() const;
  Json json() const;

  std::vector<std::string> header_row() const;
  std::size_t width() const { return (layers_.size() + 1) * V_; }  // predictions per row: layers, then naive
  bool live() const { return options_.file == "-" && options_.out.empty() && !options_.json; }
  bool predictions_on_stdout() const { return out_ && out_->is_standard_output(); }

  const RegressOptions& options_;
  std::unique_ptr<RowSource> source_;
  std::vector<int> key_columns_, value_columns_;
  std::vector<std::string> value_names_;
  std::size_t V_ = 1;
  PairSpec spec_;
  std::optional<PairBuilder> pairs_;
  std::vector<StreamLayer> layers_;
  std::vector<Score> scores_;  // one per layer, then the naive one
  std::optional<Spread> spread_;

  Block block_;
  std::size_t block_limit_ =
      1;  // rows of the next block: more while layers are quick, so that Ctrl-C is always heard
  struct BlockRow {
    std::int64_t number;  // in the file, from 1
    bool asks;
  };
  std::vector<BlockRow> rows_;
  std::vector<double> raw_, actual_, shift_, scale_, naive_, layer_out_, predictions_;
  struct Waiting {
    std::int64_t row;
    std::vector<double> predictions;
  };
  std::deque<Waiting> waiting_;  // predictions whose value is not known yet
  struct Shown {
    std::int64_t row;
    std::vector<double> predictions, actual;
  };
  std::deque<Shown> shown_;

  std::optional<AtomicFile> out_, report_, svg_;
  bool npy_ = false;
  fmt::memory_buffer line_;
  std::int64_t good_rows_ = 0, skipped_ = 0, asked_ = 0, written_ = 0;
  BadRow first_bad_;
  bool closed_ = false;
};

void Stream::choose_columns() {
  const int count = static_cast<int>(source_->names().size());
  if (!options_.keys.empty()) key_columns_ = find_columns(options_.keys, *source_, "--keys");
  if (!options_.values.empty()) value_columns_ = find_columns(options_.values, *source_, "--values");
  spec_.lags = options_.lags;
  spec_.horizon = options_.horizon >= 0 ? options_.horizon : options_.lags > 0 ? 1 : 0;
  spec_.bias = options_.bias, spec_.standardize = options_.standardize;

  auto contains = [](const std::vector<int>& list, int c) {
    return std::find(list.begin(), list.end(), c) != list.end();
  };
  if (options_.lags > 0) {
    for (int c = 0; c < count; ++c) {
      if (options_.keys.empty()) key_columns_.push_back(c);
      if (options_.values.empty()) value_columns_.push_back(c);
    }
  } else {
    if (options_.values.empty()) value_columns_.push_back(count - 1);
    if (options_.keys.empty())
      for (int c = 0; c < count; ++c)
        if (!contains(value_columns_, c)) key_columns_.push_back(c);
    if (key_columns_.empty() && !options_.bias)
      throw Error(
          fmt::format("{} has {}, so nothing is left to predict it from; for a time series say --lags 8 (predict "
                      "each row from the 8 before it)",
                      source_->input_name(), count == 1 ? "one column" : "no column besides the values"),
          "--lags");
    if (spec_.horizon == 0)
      for (int c : key_columns_)
        if (contains(value_columns_, c))
          throw Error(
              fmt::format("column '{}' is both a key and a value and would predict itself; take it out of --keys or "
                          "--values, or predict later rows with --horizon or --lags",
                          source_->names()[c]),
              "--keys");
  }
  for (int c : value_columns_) value_names_.push_back(source_->names()[c]);
  spec_.key_columns = static_cast<int>(key_columns_.size());
  spec_.value_columns = static_cast<int>(value_columns_.size());
  V_ = value_columns_.size();
  const double key_numbers =
      static_cast<double>(spec_.key_columns) * static_cast<double>(std::max<std::int64_t>(spec_.lags, 1));
  if (key_numbers > 1e6)
    throw Error(fmt::format("{} columns with {} lags are {:.0f} keys; at most 1000000 are possible",
                            spec_.key_columns, spec_.lags, key_numbers),
                "--lags");
  if ((key_numbers + 1) * static_cast<double>(spec_.horizon) > 1e8)
    throw Error(
        fmt::format("--horizon {} with {:.0f} keys would hold back more than 800 MB; choose a shorter horizon",
                    spec_.horizon, key_numbers),
        "--horizon");
  std::vector<int> selected = key_columns_;
  if (key_columns_ != value_columns_) selected.insert(selected.end(), value_columns_.begin(), value_columns_.end());
  raw_.resize(selected.size());
  source_->select(std::move(selected));
}

void Stream::make_layers() {
  pairs_.emplace(spec_);
  std::vector<std::string> wanted = options_.layers;
  if (wanted.empty()) wanted = {"nlms", "rls"};
  const std::int64_t window = options_.window > 0 ? options_.window : 1;
  const std::size_t most = options_.window > 0 ? 100000 : 8;
  for (const std::string& text : wanted) {
    if (text == "naive") continue;  // always there
    layers_.emplace_back(text, pairs_->key_dim(), static_cast<int>(V_));
    std::string label = text;
    for (int n = 2; std::any_of(scores_.begin(), scores_.end(), [&](const Score& s) { return s.name == label; }); ++n)
      label = fmt::format("{} ({})", text, n);
    scores_.emplace_back(label, window, most);
    scores_.back().recipe = layers_.back().recipe();
    scores_.back().kernel = layers_.back().kernel();
  }
  scores_.emplace_back("naive", window, most);
  scores_.back().recipe = "the last value seen";
  scores_.back().kernel = "none";
  scores_.back().state_bytes = V_ * sizeof(double);
  spread_.emplace(static_cast<int>(V_));

  const std::size_t K = static_cast<std::size_t>(pairs_->key_dim()), n = live() ? 1 : block_rows;
  block_.key_dim = pairs_->key_dim(), block_.value_dim = static_cast<int>(V_);
  block_.keys.resize(n * K), block_.queries.resize(n * K), block_.values.resize(n * V_), block_.has_pair.resize(n);
  actual_.resize(n * V_), shift_.resize(n * V_), scale_.resize(n * V_), naive_.resize(n * V_),
      layer_out_.resize(n * V_);
  predictions_.resize(n * width());
  rows_.reserve(n);
}

std::vector<std::string> Stream::header_row() const {
  std::vector<std::string> names = {"row"};
  auto add = [&](const std::string& name) {
    for (const std::string& value : value_names_) names.push_back(V_ == 1 ? name : name + "." + value);
  };
  for (std::size_t l = 0; l < layers_.size(); ++l) add(scores_[l].name);
  // A live prediction of a later row is printed long before its value is known.
  if (!live() || spec_.horizon == 0) add("actual");
  return names;
}

void Stream::open_outputs() {
  if (!options_.out.empty()) {
    npy_ = options_.out.ends_with(".npy");
    out_.emplace(options_.out, "--out");
    if (out_->is_standard_output() && options_.json)
      throw Error("--json and --out - both want standard output; write the predictions to a file", "--out");
    if (npy_ && !out_->can_rewrite())
      throw Error(fmt::format("'{}' cannot hold an .npy array, whose header is written last; give a file or use CSV",
                              options_.out),
                  "--out");
  } else if (live()) {
    out_.emplace("-", "--out");
  }
  if (!options_.report.empty()) report_.emplace(options_.report, "--report");
  if (!options_.svg.empty()) svg_.emplace(options_.svg, "--svg");
  if (!out_) return;
  if (npy_) {
    out_->write(npy_header(0, static_cast<std::int64_t>(header_row().size())));
    return;
  }
  std::string text;
  for (const std::string& name : header_row()) text += (text.empty() ? "" : ",") + csv_field(name);
  out_->write(text + "\n");
}

bool Stream::read_block() {
  block_.rows = 0;
  rows_.clear();
  const bool shared = key_columns_ == value_columns_;
  while (rows_.size() < block_limit_) {
    const RowSource::Read read = source_->next(raw_.data());
    if (read == RowSource::Read::end) return false;
    if (read == RowSource::Read::bad) {
      if (options_.on_bad == "error") {
        // Rows before the bad one are complete: a live reader gets their predictions.
        if (live()) process_block();
        throw Error(source_->bad().message + "; --on-bad skip leaves such rows out", source_->bad().where);
      }
      if (skipped_++ == 0) first_bad_ = source_->bad();
      if (skipped_ % 4096 == 0 && interrupted() != 0) return false;
      continue;
    }
    const double* x = raw_.data();
    const double* y = shared ? x : x + key_columns_.size();
    const std::size_t at = block_.rows * V_;
    std::copy_n(y, V_, actual_.data() + rows_.size() * V_);
    const bool asks = pairs_->add(x, y, block_, shift_.data() + at, scale_.data() + at, naive_.data() + at);
    rows_.push_back({source_->rows_read(), asks});
    ++good_rows_;
  }
  return interrupted() == 0;
}

void Stream::process_block() {
  const std::size_t n = block_.rows, L = layers_.size(), W = width();
  for (std::size_t l = 0; l < L; ++l) {
    layers_[l].run(block_, layer_out_.data());
    for (std::size_t r = 0; r < n; ++r)
      for (std::size_t v = 0; v < V_; ++v)
        predictions_[r * W + l * V_ + v] = shift_[r * V_ + v] + scale_[r * V_ + v] * layer_out_[r * V_ + v];
  }
  for (std::size_t r = 0; r < n; ++r) std::copy_n(naive_.data() + r * V_, V_, predictions_.data() + r * W + L * V_);

  std::size_t query = 0;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const double* actual = actual_.data() + r * V_;
    if (spec_.horizon > 0 && waiting_.size() == static_cast<std::size_t>(spec_.horizon)) {
      score(rows_[r].number, waiting_.front().predictions.data(), actual);
      if (!live()) emit(rows_[r].number, waiting_.front().predictions.data(), actual);
      // The entry is used again, so that a long run allocates nothing.
      Waiting entry = std::move(waiting_.front());
      waiting_.pop_front();
      if (rows_[r].asks) {
        std::copy_n(predictions_.data() + query * W, W, entry.predictions.data());
        entry.row = rows_[r].number + spec_.horizon;
        waiting_.push_back(std::move(entry));
      }
    } else if (spec_.horizon > 0 && rows_[r].asks) {
      const double* p = predictions_.data() + query * W;
      waiting_.push_back({rows_[r].number + spec_.horizon, std::vector<double>(p, p + W)});
    }
    if (!rows_[r].asks) continue;
    const double* prediction = predictions_.data() + query++ * W;
    ++asked_;
    if (spec_.horizon == 0) score(rows_[r].number, prediction, actual);
    if (spec_.horizon == 0 || live())
      emit(rows_[r].number + spec_.horizon, prediction, spec_.horizon == 0 ? actual : nullptr);
  }
  if (live()) out_->flush();
}

void Stream::score(std::int64_t row, const double* predictions, const double* actual) {
  spread_->add(actual);
  for (std::size_t l = 0; l < scores_.size(); ++l)
    scores_[l].add(row, predictions + l * V_, actual, static_cast<int>(V_));
  if (!report_) return;
  if (shown_.size() < shown_rows) {
    shown_.push_back(
        {row, std::vector<double>(predictions, predictions + width()), std::vector<double>(actual, actual + V_)});
    return;
  }
  Shown entry = std::move(shown_.front());
  shown_.pop_front();
  entry.row = row;
  std::copy_n(predictions, width(), entry.predictions.data());
  std::copy_n(actual, V_, entry.actual.data());
  shown_.push_back(std::move(entry));
}

void Stream::emit(std::int64_t row, const double* predictions, const double* actual) {
  if (!out_) return;
  ++written_;
  const std::size_t count = layers_.size() * V_;
  if (npy_) {
    auto put = [&](double number) { out_->write({reinterpret_cast<const char*>(&number), sizeof number}); };
    put(static_cast<double>(row));
    for (std::size_t i = 0; i < count; ++i) put(predictions[i]);
    for (std::size_t v = 0; v < V_; ++v) put(actual ? actual[v] : nan);
    return;
  }
  line_.clear();
  auto to = fmt::format_to(std::back_inserter(line_), FMT_STRING("{}"), row);
  // Without the sign that a NaN may carry.
  for (std::size_t i = 0; i < count; ++i)
    to = fmt::format_to(to, FMT_STRING(",{}"), std::isnan(predictions[i]) ? nan : predictions[i]);
  if (!live() || spec_.horizon == 0)
    for (std::size_t v = 0; v < V_; ++v) {
      if (actual) to = fmt::format_to(to, FMT_STRING(",{}"), actual[v]);
      else line_.push_back(',');
    }
  line_.push_back('\n');
  out_->write({line_.data(), line_.size()});
}

void Stream::write_leftovers() {
  if (live()) return;
  for (const Waiting& w : waiting_) emit(w.row, w.predictions.data(), nullptr);
}

void Stream::read_all() {
  Progress progress("regress", !(predictions_on_stdout() && isatty(STDOUT_FILENO) == 1));
  const auto start = std::chrono::steady_clock::now();
  try {
    for (bool more = true; more;) {
      more = read_block();
      const auto before = std::chrono::steady_clock::now();
      process_block();
      const auto took = std::chrono::steady_clock::now() - before;
      if (took < std::chrono::milliseconds(20)) block_limit_ = std::min(2 * block_limit_, block_.has_pair.size());
      if (took > std::chrono::milliseconds(100)) block_limit_ = std::max<std::size_t>(block_limit_ / 2, 1);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (seconds > 1) {
        const double share = source_->share();
        progress.update(std::max(share, 0.0), share >= 0 ? 1 : 0,
                        fmt::format("{} rows, {:.0f} rows/s", good_rows_, static_cast<double>(good_rows_) / seconds));
      }
    }
  } catch (const ClosedPipe&) {
    closed_ = true;
  }
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    scores_[l].us_per_row = asked_ > 0 ? 1e6 * layers_[l].seconds() / static_cast<double>(asked_) : nan;
    scores_[l].state_bytes = layers_[l].state_bytes();
  }
}

Plot Stream::loss_plot() const {
  Plot plot;
  plot.title = "Squared error over time";
  plot.x_label = "row", plot.y_label = "mean squared error", plot.log_y = plot.legend_by_end = true;
  for (std::size_t l = 0; l < scores_.size(); ++l) {
    const Windows& curve = scores_[l].curve;
    const bool naive = l + 1 == scores_.size();
    Line line;
    line.label = naive ? "naive (last value)" : scores_[l].name;
    line.hue = naive ? -1 : static_cast<int>(l % 7), line.dash = naive ? 2 : static_cast<int>(l / 7 % 4);
    const double first =
        static_cast<double>(options_.lags > 0 ? options_.lags - 1 : 0) + static_cast<double>(spec_.horizon);
    for (std::size_t i = 0; i < curve.size(); ++i) {
      line.x.push_back(first + static_cast<double>(curve.width()) * static_cast<double>(i) +
                       0.5 * static_cast<double>(curve.count(i) + 1));
      line.y.push_back(curve.mean(i));
    }
    plot.lines.push_back(std::move(line));
  }
  return plot;
}

std::vector<std::string> summary_cells(const Score& s, double r2, std::size_t values) {
  const double mse = s.squared_error / static_cast<double>(s.rows) / static_cast<double>(values);
  return {s.name,
          s.diverged_at > 0 ? fmt::format("diverged at row {}", s.diverged_at) : short_number(mse),
          std::isfinite(r2) ? fmt::format("{:.4f}", r2) : "-",
          s.windows.size() > 0 ? short_number(s.windows.mean(0)) : "-",
          short_number(s.windows.last_full()),
          s.us_per_row > 0 ? short_number(s.us_per_row) : "-",
          short_bytes(static_cast<double>(s.state_bytes))};
}

std::vector<std::string> summary_header(std::int64_t window) {
  return {"layer",  "MSE",  "R2", "first " + counted(window, "row"), "last " + counted(window, "row"),
          "us/row", "state"};
}

std::string Stream::summary() const {
  std::string text = fmt::format("{} of {}: {}, {}{}. Each row is predicted from the rows before it.\n\n",
                                 counted(good_rows_, "row"), source_->input_name(), counted(pairs_->key_dim(), "key"),
                                 counted(static_cast<std::int64_t>(V_), "value"),
                                 spec_.horizon > 0 ? fmt::format(", {} ahead", spec_.horizon) : "");
  TextTable table(summary_header(scores_[0].windows.width()));
  for (const Score& s : scores_) {
    std::vector<std::string> cells = summary_cells(s, spread_->r2(s.squared_error), V_);
    if (&s == &scores_.back()) cells[0] = "naive (last value)";
    table.row(std::move(cells));
  }
  text += table.text();
  if (skipped_ > 0)
    text += fmt::format("\nLeft out {}. The first: {}.\n", counted(skipped_, "bad row"), first_bad_.message);
  return text;
}

Json Stream::json() const {
  Json out = Json::object();
  out.set("rows", good_rows_).set("skipped", skipped_).set("predictions", asked_).set("scored", scores_[0].rows);
  out.set("keys", pairs_->key_dim()).set("values", V_).set("loss", "mean squared error");
  out.set("window_rows", scores_[0].windows.width()).set("interrupted", interrupted() != 0);
  Json list = Json::array(), baseline = Json::object();
  for (std::size_t l = 0; l < scores_.size(); ++l) {
    const Score& s = scores_[l];
    Json windows = Json::array(), layer = Json::object();
    for (std::size_t i = 0; i < s.windows.size(); ++i) windows.push(s.windows.mean(i));
    const double scored = static_cast<double>(s.rows) * static_cast<double>(V_);
    layer.set("name", s.name).set("recipe", s.recipe).set("mse", s.rows > 0 ? s.squared_error / scored : nan);
    layer.set("r2", spread_->r2(s.squared_error)).set("windows", windows).set("us_per_row", s.us_per_row);
    layer.set("state_bytes", s.state_bytes).set("kernel", s.kernel);
    layer.set("diverged_at", s.diverged_at > 0 ? Json(s.diverged_at) : Json());
    if (l + 1 < scores_.size()) list.push(layer);
    else baseline = layer;
  }
  return out.set("layers", list).set("baseline", baseline);
}

Report Stream::make_report() const {
  Report report;
  report.title = "Online regression: " + (options_.file == "-" ? std::string("standard input") : options_.file);
  report.subtitle = fmt::format("{}, {}, {}. Each row is predicted from the memory built on the rows before it{}.",
                                counted(good_rows_, "row"), counted(pairs_->key_dim(), "key"),
                                counted(static_cast<std::int64_t>(V_), "value"),
                                spec_.horizon > 0 ? ", " + counted(spec_.horizon, "row") + " ahead" : "");
  Report::Table table;
  table.header = summary_header(scores_[0].windows.width());
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t l = 0; l < scores_.size(); ++l) {
    table.rows.push_back(summary_cells(scores_[l], spread_->r2(scores_[l].squared_error), V_));
    if (scores_[l].squared_error < best) best = scores_[l].squared_error, table.emphasised = static_cast<int>(l);
  }
  table.rows.back()[0] = "naive (last value)";
  table.caption =
      "MSE: mean squared error over all rows and values, the first rows included. R2: share of the variance of the "
      "values that is explained. us/row: time of the layer alone.";
  report.tables.push_back(std::move(table));
  report.figures.push_back(
      {loss_plot(), fmt::format("Squared error, averaged over {} at a time, on a log scale; lower is better.",
                                counted(scores_[0].curve.width(), "row"))});
  for (std::size_t v = 0; v < std::min<std::size_t>(V_, 3); ++v) {
    Plot plot;
    const std::string name = source_->has_header() ? value_names_[v] : "column " + value_names_[v];
    plot.title = "Predictions: " + name;
    plot.x_label = "row", plot.y_label = name;
    plot.height = 360;
    Line actual;
    actual.label = "actual", actual.hue = -1, actual.width = 2.6;
    for (const Shown& s : shown_) actual.x.push_back(static_cast<double>(s.row)), actual.y.push_back(s.actual[v]);
    plot.lines.push_back(std::move(actual));
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      Line line;
      line.label = scores_[l].name, line.hue = static_cast<int>(l % 7), line.dash = static_cast<int>(l / 7 % 4),
      line.width = 1.4;
      for (const Shown& s : shown_)
        line.x.push_back(static_cast<double>(s.row)), line.y.push_back(s.predictions[l * V_ + v]);
      plot.lines.push_back(std::move(line));
    }
    report.figures.push_back(
        {std::move(plot), fmt::format("The last {} with both a prediction and a value.",
                                      counted(static_cast<std::int64_t>(shown_.size()), "row"))});
  }
  if (V_ > 3) report.notes.push_back(fmt::format("The first 3 of {} values are drawn.", V_));
  if (skipped_ > 0)
    report.notes.push_back(
        fmt::format("Left out {}. The first: {}.", counted(skipped_, "bad row"), first_bad_.message));
  if (interrupted() != 0)
    report.notes.push_back(fmt::format("The run was interrupted after {}.", counted(good_rows_, "row")));
  if (!options_.command.empty()) report.facts.emplace_back("command", options_.command);
  for (const Score& s : scores_) report.facts.emplace_back(s.name == s.recipe ? "recipe" : s.name, s.recipe);
  return report;
}

void Stream::finish_files() {
  if (out_ && !closed_) {
    if (npy_) out_->rewrite_start(npy_header(written_, static_cast<std::int64_t>(header_row().size())));
    out_->commit();
  }
  if (report_) {
    report_->write(report_html(make_report()));
    report_->commit();
  }
  if (svg_) {
    svg_->write(plot_svg(loss_plot(), true));
    svg_->commit();
  }
}

int Stream::run() {
  const HeaderLine header = options_.header == "yes"  ? HeaderLine::yes
                            : options_.header == "no" ? HeaderLine::no
                                                      : HeaderLine::automatic;
  source_ = open_rows(options_.file, header);
  choose_columns();
  make_layers();
  open_outputs();
  read_all();

  const int signal = interrupted();
  if (signal == 0 && !closed_) {
    if (good_rows_ == 0)
      throw Error(skipped_ > 0 ? fmt::format("all {} rows of {} are bad; the first: {}", skipped_,
                                             source_->input_name(), first_bad_.message)
                               : fmt::format("{} has a header but no row of data", source_->input_name()),
                  source_->input_name());
    const std::int64_t needed = std::max<std::int64_t>(spec_.lags, 1) + spec_.horizon;
    if (good_rows_ < needed)
      throw Error(
          fmt::format("{} has {}, but {} needs at least {}", source_->input_name(), counted(good_rows_, "usable row"),
                      spec_.lags > 0 ? fmt::format("--lags {} with a horizon of {}", spec_.lags, spec_.horizon)
                                     : fmt::format("--horizon {}", spec_.horizon),
                      needed),
          spec_.lags > 0 ? "--lags" : "--horizon");
  }
  const bool anything = good_rows_ > 0;
  if (anything) {
    try {
      if (!closed_) write_leftovers();
    } catch (const ClosedPipe&) {
      closed_ = true;
    }
    finish_files();
  }
  if (closed_) return signal != 0 ? 128 + signal : 0;
  if (anything) {
    if (options_.json) print_out(json().dump(2) + "\n");
    else if (predictions_on_stdout()) fmt::print(stderr, "\n{}", summary());
    else print_out(summary());
  }
  if (signal != 0) {
    std::vector<std::string> kept;
    for (const std::string& path : {options_.out, options_.report, options_.svg})
      if (anything && !path.empty() && path != "-") kept.push_back(path);
    fmt::print(stderr, "Interrupted by {} after {}. {}\n", signal_name(signal), counted(good_rows_, "row"),
               kept.empty() ? std::string("The numbers above are of these rows.")
                            : fmt::format("{} hold{} these rows.", join(kept), kept.size() == 1 ? "s" : ""));
    return 128 + signal;
  }
  return 0;
}

}  // namespace

int run_stream(const RegressOptions& options) { return Stream(options).run(); }

}  // namespace ttr::cli
