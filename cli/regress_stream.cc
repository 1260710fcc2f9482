#include "regress_stream.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <unistd.h>

#include "csv.h"
#include "npy.h"
#include "progress.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

constexpr std::size_t block_rows = 256, shown_rows = 200;
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

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
  if (wanted.empty())
    wanted = options_.interval ? std::vector<std::string>{"rls", "kalman"} : std::vector<std::string>{"nlms", "rls"};
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
    scores_.back().stream = layers_.back().stream();
    scores_.back().ran = what_ran(scores_.back().stream, scores_.back().kernel);
    if (!options_.interval) continue;
    const ErrorVariance& variance = layers_.back().track_uncertainty(std::max<std::int64_t>(spec_.horizon, 1));
    intervals_.push_back(
        {Intervals(*options_.interval, static_cast<int>(V_), variance.forgetting(), variance.window()),
         std::vector<Windows>(V_, Windows(window, most))});
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
  answers_.resize(n * width()), uncertainties_.resize(n);
  rows_.reserve(n);
}

std::vector<std::string> Stream::header_row() const {
  std::vector<std::string> names = {"row"};
  auto add = [&](const std::string& name, bool bounds) {
    for (const std::string& value : value_names_) {
      names.push_back(V_ == 1 ? name : name + "." + value);
      if (!bounds) continue;
      const std::string column = names.back();
      names.push_back(column + ".lower"), names.push_back(column + ".upper");
    }
  };
  for (std::size_t l = 0; l < layers_.size(); ++l) add(scores_[l].name, options_.interval.has_value());
  // A live prediction of a later row is printed long before its value is known.
  if (!live() || spec_.horizon == 0) add("actual", false);
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

void Stream::run_layers() {
  const std::size_t n = block_.rows, L = layers_.size(), W = width();
  for (std::size_t l = 0; l < L; ++l) {
    layers_[l].run(block_, layer_out_.data(), uncertainties_.data());
    for (std::size_t r = 0; r < n; ++r) {
      double* const answer = answers_.data() + r * W;
      const double deviation = std::sqrt(uncertainties_[r].variance);
      for (std::size_t v = 0; v < V_; ++v) {
        answer[prediction_at(l) + v] = shift_[r * V_ + v] + scale_[r * V_ + v] * layer_out_[r * V_ + v];
        if (options_.interval) answer[deviation_at(l) + v] = scale_[r * V_ + v] * deviation;
      }
      if (options_.interval) answer[share_at(l)] = uncertainties_[r].share;
    }
  }
  for (std::size_t r = 0; r < n; ++r)
    std::copy_n(naive_.data() + r * V_, V_, answers_.data() + r * W + prediction_at(L));
}

void Stream::process_block() {
  run_layers();
  const std::size_t W = width();
  std::size_t query = 0;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const double* actual = actual_.data() + r * V_;
    std::vector<double> spare;  // of an answer that has waited, so that a long run allocates nothing
    if (spec_.horizon > 0 && waiting_.size() == static_cast<std::size_t>(spec_.horizon)) {
      spare = std::move(waiting_.front().answer);
      waiting_.pop_front();
      score(rows_[r].number, spare.data(), actual);
      if (!live()) emit(rows_[r].number, spare.data(), actual);
    }
    if (!rows_[r].asks) continue;
    double* const answer = answers_.data() + query++ * W;
    ++asked_;
    if (options_.interval) set_widths(answer);
    if (spec_.horizon == 0) {
      score(rows_[r].number, answer, actual);
      emit(rows_[r].number, answer, actual);
      continue;
    }
    if (live()) emit(rows_[r].number + spec_.horizon, answer, nullptr);
    spare.assign(answer, answer + W);
    waiting_.push_back({rows_[r].number + spec_.horizon, std::move(spare)});
  }
  if (live()) out_->flush();
}

void Stream::set_widths(double* answer) const {
  for (std::size_t l = 0; l < intervals_.size(); ++l)
    intervals_[l].intervals.widths(answer + deviation_at(l), answer + half_at(l));
}

void Stream::score(std::int64_t row, const double* answer, const double* actual) {
  spread_->add(actual);
  for (std::size_t l = 0; l < scores_.size(); ++l)
    scores_[l].add(row, answer + prediction_at(l), actual, static_cast<int>(V_));
  for (std::size_t l = 0; l < intervals_.size(); ++l) {
    const double* const half = answer + half_at(l);
    intervals_[l].intervals.add(answer + prediction_at(l), answer + deviation_at(l), answer[share_at(l)], half,
                                actual);
    for (std::size_t v = 0; v < V_; ++v)
      if (std::isfinite(half[v])) intervals_[l].widths[v].add(2 * half[v]);
  }
  if (!report_) return;
  if (shown_.size() < shown_rows) {
    shown_.push_back({row, std::vector<double>(answer, answer + width()), std::vector<double>(actual, actual + V_)});
    return;
  }
  Shown entry = std::move(shown_.front());
  shown_.pop_front();
  entry.row = row;
  std::copy_n(answer, width(), entry.answer.data());
  std::copy_n(actual, V_, entry.actual.data());
  shown_.push_back(std::move(entry));
}

void Stream::emit(std::int64_t row, const double* answer, const double* actual) {
  if (!out_) return;
  ++written_;
  line_.clear();
  auto to = std::back_inserter(line_);
  const auto put = [&](double number) {
    if (npy_) out_->write({reinterpret_cast<const char*>(&number), sizeof number});
    else fmt::format_to(to, FMT_STRING(",{}"), std::isnan(number) ? nan : number);  // without a NaN's sign
  };
  if (npy_) put(static_cast<double>(row));
  else fmt::format_to(to, FMT_STRING("{}"), row);
  for (std::size_t l = 0; l < layers_.size(); ++l)
    for (std::size_t v = 0; v < V_; ++v) {
      const double prediction = answer[prediction_at(l) + v];
      put(prediction);
      if (!options_.interval) continue;
      const double half = answer[half_at(l) + v];
      put(prediction - half), put(prediction + half);
    }
  if (npy_ || !live() || spec_.horizon == 0)
    for (std::size_t v = 0; v < V_; ++v) {
      if (actual) put(actual[v]);
      else if (npy_) put(nan);
      else line_.push_back(',');
    }
  if (npy_) return;
  line_.push_back('\n');
  out_->write({line_.data(), line_.size()});
}

void Stream::write_leftovers() {
  if (live()) return;
  for (const Waiting& w : waiting_) emit(w.row, w.answer.data(), nullptr);
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

int run_stream(const RegressOptions& options) { return Stream(options).run(); }

}  // namespace ttr::cli
