#include "regress_stream.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numbers>

#include <fmt/format.h>
#include <unistd.h>

#include "csv.h"
#include "npy.h"
#include "progress.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

constexpr std::size_t block_rows = 256, shown_rows = 120;
constexpr std::int64_t longest_warmup = 1000;
// A quick one, least squares with a small and a larger ridge, one that forgets, one that drifts: on most series one of them
// is close to the best layer there is, and their errors differ enough for a mix to gain.
constexpr const char* default_layers[] = {"nlms", "rls", "rls:ridge=1", "rls:decay=0.98,ridge=1", "kalman"};
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

void Stream::choose_columns() {
  const int count = static_cast<int>(source_->names().size());
  if (!options_.keys.empty()) key_columns_ = find_columns(options_.keys, *source_, "--keys");
  if (options_.predict) {  // the values need not be there
    for (const std::string& name : options_.values) value_names_.push_back(name);
    try {
      value_columns_ = find_columns(options_.values, *source_, "--values");
    } catch (const Error&) {
      value_columns_.clear();
    }
  } else if (!options_.values.empty()) {
    value_columns_ = find_columns(options_.values, *source_, "--values");
  }
  spec_.lags = options_.lags, spec_.offsets = options_.lag_list, spec_.differences = options_.differences;
  spec_.horizon = options_.horizon >= 0 ? options_.horizon : options_.lags > 0 ? 1 : 0;
  options_.horizon = spec_.horizon;
  spec_.bias = options_.bias || !options_.raw;

  auto contains = [](const std::vector<int>& list, int c) {
    return std::find(list.begin(), list.end(), c) != list.end();
  };
  const auto listed = [&](const std::vector<std::string>& names, const char* option) {
    return names.empty() ? std::vector<int>() : find_columns(names, *source_, option);
  };
  const std::vector<int> with = listed(options_.with, "--with"), dates = listed(options_.dates, "--dates"),
                         categories = listed(options_.categories, "--categories");
  std::vector<int> named = with;
  named.insert(named.end(), dates.begin(), dates.end());
  named.insert(named.end(), categories.begin(), categories.end());
  // Columns nobody named are used if they hold numbers.
  const auto is_text = [&](int c) { return source_->kind(c) != RowSource::ColumnKind::number; };
  const auto take = [&](std::vector<int>& to, int c) {
    if (contains(named, c)) return;
    if (!is_text(c)) return to.push_back(c);
    if (std::find(left_out_.begin(), left_out_.end(), source_->names()[c]) == left_out_.end())
      left_out_.push_back(source_->names()[c]);
  };
  if (options_.lags > 0) {
    for (int c = 0; c < count; ++c) {
      if (options_.keys.empty()) take(key_columns_, c);
      if (options_.values.empty()) take(value_columns_, c);
    }
    if (value_columns_.empty() || key_columns_.empty())
      throw Error(fmt::format("no column of {} holds numbers: {} {} text", source_->input_name(), join(left_out_),
                              left_out_.size() == 1 ? "holds" : "hold"),
                  options_.values.empty() ? "--values" : "--keys");
  } else {
    if (options_.values.empty()) {
      int last = count - 1;
      while (last > 0 && (is_text(last) || contains(named, last))) --last;
      for (int c = last + 1; c < count; ++c)
        if (!contains(named, c)) left_out_.push_back(source_->names()[c]);
      value_columns_.push_back(last);
    }
    if (options_.keys.empty())
      for (int c = 0; c < count; ++c)
        if (!contains(value_columns_, c) && !(options_.values.empty() && c > value_columns_[0]))
          take(key_columns_, c);
    if (key_columns_.empty() && !options_.bias && named.empty())
      throw Error(
          fmt::format("{} has {}, so nothing is left to predict it from; for a time series say --lags 8 (predict "
                      "each row from the 8 before it)",
                      source_->input_name(), count == 1 ? "one column" : "no column of numbers besides the values"),
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
  if (!options_.predict)
    for (int c : value_columns_) value_names_.push_back(source_->names()[c]);
  for (int c : key_columns_) key_names_.push_back(source_->names()[c]);
  spec_.key_columns = static_cast<int>(key_columns_.size());
  V_ = value_names_.size();
  spec_.value_columns = static_cast<int>(V_);
  for (std::size_t i = 0; i < dates.size(); ++i) encoders_.push_back(date_encoder());
  for (std::size_t i = 0; i < categories.size(); ++i)
    encoders_.push_back(category_encoder(static_cast<int>(options_.category_slots)));
  const std::size_t numbers = key_columns_.size() + with.size();
  spec_.more_columns = static_cast<int>(with.size()) + 2 * static_cast<int>(options_.fourier);
  for (const auto& encoder : encoders_) spec_.more_columns += encoder->width();
  const bool fills = options_.missing != "error" && options_.missing != "skip";
  if (options_.missing == "indicator") spec_.more_columns += static_cast<int>(numbers);
  if (fills)
    missing_.emplace(options_.missing == "last"   ? MissingNumbers::Fill::last
                     : options_.missing == "mean" ? MissingNumbers::Fill::mean
                                                  : MissingNumbers::Fill::indicator,
                     numbers);
  x_.resize(static_cast<std::size_t>(spec_.key_columns + spec_.more_columns));
  const double key_numbers =
      static_cast<double>(spec_.key_columns) * static_cast<double>(spec_.lag_count()) + spec_.more_columns;
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
  selected.insert(selected.end(), with.begin(), with.end());
  std::vector<ColumnEncoder*> encoders(selected.size(), nullptr);
  for (std::size_t i = 0; i < encoders_.size(); ++i) {
    selected.push_back(i < dates.size() ? dates[i] : categories[i - dates.size()]);
    encoders.push_back(encoders_[i].get());
  }
  std::vector<bool> optional(selected.size(), fills || options_.missing == "skip");
  // A value that is a key of a later row as well cannot be a question, unless there is something to put in its place.
  spec_.questions = fills || std::none_of(value_columns_.begin(), value_columns_.end(),
                                          [&](int c) { return contains(key_columns_, c); });
  const bool apart = key_columns_ != value_columns_ || fills;
  values_at_ = apart ? numbers : 0;
  for (const auto& encoder : encoders_) values_at_ += apart ? static_cast<std::size_t>(encoder->width()) : 0;
  if (apart) {
    selected.insert(selected.end(), value_columns_.begin(), value_columns_.end());
    optional.resize(selected.size(), spec_.questions);
    encoders.resize(selected.size(), nullptr);
  }
  raw_.resize(selected.size());
  for (const auto& encoder : encoders_) raw_.resize(raw_.size() + static_cast<std::size_t>(encoder->width()) - 1);
  // A model may be asked later, without learning.
  if (!options_.save.empty() || !options_.load.empty() || options_.coefficients) spec_.questions = true;
  source_->select(std::move(selected), std::move(optional), std::move(encoders));
  unknown_.assign(V_, nan);
}

void Stream::make_layers() {
  pairs_.emplace(spec_);
  ForecastSpec spec;
  spec.pairs = spec_;
  spec.tune = options_.tune, spec.interval = options_.interval, spec.season = options_.season;
  spec.standardize = options_.standardize || !options_.raw;
  for (const std::string& text : options_.layers) {
    if (text == "mix") spec.mix = true;
    else if (text != "naive") spec.layers.push_back(text);  // which is always there
  }
  if (spec.layers.empty() && (options_.layers.empty() || spec.mix)) {
    spec.mix = true;
    spec.layers.assign(std::begin(default_layers), std::end(default_layers));
  }
  forecasters_.emplace(spec);
  options_.layers = spec.layers;  // as they are, for the model
  if (spec.mix) options_.layers.emplace_back("mix");
  const std::int64_t window = options_.window > 0 ? options_.window : 1;
  const std::size_t most = options_.window > 0 ? 100000 : 8;
  for (std::size_t f = 0; f < forecasters_->count(); ++f) scores_.emplace_back(forecasters_->name(f), window, most);
  if (options_.interval) widths_.assign(forecasters_->naive_index(), std::vector<Windows>(V_, Windows(window, most)));
  comparisons_.emplace(forecasters_->count(), spec_.horizon);
  spread_.emplace(static_cast<int>(V_));
  if (options_.season > 0) {
    const std::int64_t least = std::max<std::int64_t>(spec_.horizon, 1);
    season_lag_ = (least + options_.season - 1) / options_.season * options_.season;
    season_ring_.assign(static_cast<std::size_t>(season_lag_) * V_, nan);
  }

  const std::size_t K = static_cast<std::size_t>(pairs_->key_dim()), n = live() ? 1 : block_rows;
  block_.key_dim = pairs_->key_dim(), block_.value_dim = static_cast<int>(V_);
  block_.keys.resize(n * K), block_.queries.resize(n * K), block_.values.resize(n * V_), block_.has_pair.resize(n);
  block_.may_be_asked_again.resize(n);
  actual_.resize(n * V_), naive_.resize(n * V_), seasonal_.resize(n * V_);
  answers_.resize(n * forecasters_->width()), losses_.resize(scores_.size());
  rows_.reserve(n);
}

std::int64_t Stream::warmup() const {
  return options_.warmup >= 0 ? options_.warmup : std::min<std::int64_t>(pairs_->key_dim() + 1, longest_warmup);
}

// The value one season before the one asked for, the last one seen while that is not known; then y takes its place.
void Stream::seasonal_value(const double* y, double* forecast) {
  // With a horizon y is known when the row is asked, and belongs to the ring before it is read.
  const auto slot = [&](std::int64_t row) {
    return season_ring_.data() + static_cast<std::size_t>((row % season_lag_ + season_lag_) % season_lag_) * V_;
  };
  const auto put = [&] { std::copy_n(y, V_, slot(good_rows_)); };
  if (spec_.horizon > 0) put();
  if (forecast) {
    const double* const then = slot(good_rows_ + spec_.horizon - season_lag_);
    for (std::size_t v = 0; v < V_; ++v)
      if (std::isfinite(then[v])) forecast[v] = then[v];
  }
  if (spec_.horizon == 0) put();
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
  for (std::size_t f = 0; f < forecasters_->naive_index(); ++f) add(scores_[f].name, options_.interval.has_value());
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
  } else if (live() || (options_.predict && !options_.json)) {
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

// The numbers keys are made of: columns, encoded columns, the phase of the season, flags of what was missing.
const double* Stream::make_x() {
  const std::size_t numbers = key_columns_.size() + options_.with.size();
  std::size_t at = numbers;
  for (const auto& encoder : encoders_) at += static_cast<std::size_t>(encoder->width());
  std::copy_n(raw_.data(), at, x_.data());
  for (std::int64_t k = 1; k <= options_.fourier; ++k) {
    const double phase = 2 * std::numbers::pi * static_cast<double>(k) *
                         static_cast<double>(good_rows_ % options_.season) / static_cast<double>(options_.season);
    x_[at++] = std::sin(phase), x_[at++] = std::cos(phase);
  }
  if (missing_) missing_->fill(x_.data(), x_.data() + at);
  return x_.data();
}

bool Stream::read_block() {
  block_.rows = 0;
  rows_.clear();
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
    const double* const y = !has_values() ? unknown_.data() : raw_.data() + values_at_;
    if (options_.missing == "skip" &&
        std::any_of(raw_.data(), raw_.data() + key_columns_.size() + options_.with.size(),
                    [](double number) { return std::isnan(number); })) {
      if (skipped_++ == 0) first_bad_ = {fmt::format("row {} lacks a key", source_->rows_read()), ""};
      continue;
    }
    const double* const x = make_x();
    const double* const learned = options_.predict ? unknown_.data() : y;
    const std::size_t at = block_.rows * V_;
    std::copy_n(y, V_, actual_.data() + rows_.size() * V_);
    const bool asks = pairs_->add(x, learned, block_, naive_.data() + at);
    if (options_.season > 0) {
      if (asks) std::copy_n(naive_.data() + at, V_, seasonal_.data() + at);
      seasonal_value(learned, asks ? seasonal_.data() + at : nullptr);
    }
    if (!options_.predict) forecasters_->see(pairs_->key_numbers(), pairs_->value_numbers());
    rows_.push_back({source_->rows_read(), asks});
    ++good_rows_;
    if (std::any_of(y, y + V_, [](double number) { return std::isnan(number); })) ++questions_;
    if (forecasters_->must_end_block()) break;
    if (options_.checkpoint_every > 0 && good_rows_ % options_.checkpoint_every == 0) break;
  }
  return interrupted() == 0;
}

void Stream::process_block() {
  forecasters_->run(block_, naive_.data(), seasonal_.data(), answers_.data());
  const std::size_t W = forecasters_->width();
  std::size_t query = 0;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const double* actual = actual_.data() + r * V_;
    std::vector<double> spare;  // of an answer that has waited, so that a long run allocates nothing
    if (spec_.horizon > 0 && waiting_.size() == static_cast<std::size_t>(spec_.horizon)) {
      spare = std::move(waiting_.front().answer);
      waiting_.pop_front();
      arrived(rows_[r].number, spare.data(), actual);
      if (!live()) emit(rows_[r].number, spare.data(), actual);
    }
    if (!rows_[r].asks) continue;
    double* const answer = answers_.data() + query++ * W;
    ++asked_;
    forecasters_->finish(answer);
    if (spec_.horizon == 0) {
      emit(rows_[r].number, answer, actual);
      arrived(rows_[r].number, answer, actual);
      continue;
    }
    if (live()) emit(rows_[r].number + spec_.horizon, answer, nullptr);
    spare.assign(answer, answer + W);
    waiting_.push_back({rows_[r].number + spec_.horizon, std::move(spare)});
  }
  if (live()) out_->flush();
  forecasters_->end_block(block_);
}

void Stream::arrived(std::int64_t row, const double* answer, const double* actual) {
  if (std::any_of(actual, actual + V_, [](double y) { return std::isnan(y); })) return;
  if (!options_.predict) forecasters_->update(answer, actual);
  if (arrived_++ < warmup()) {
    const std::size_t W = forecasters_->width();
    if (options_.warmup < 0) unscored_.push_back({row, {answer, answer + W}, {actual, actual + V_}});
    return;
  }
  unscored_.clear();
  score(row, answer, actual);
}

void Stream::score_warmup() {
  short_stream_ = !unscored_.empty();
  for (const Shown& s : unscored_) score(s.row, s.answer.data(), s.actual.data());
  unscored_.clear();
}

void Stream::score(std::int64_t row, const double* answer, const double* actual) {
  spread_->add(actual);
  for (std::size_t f = 0; f < scores_.size(); ++f)
    losses_[f] = scores_[f].add(row, answer + forecasters_->prediction_at(f), actual, static_cast<int>(V_));
  comparisons_->add(losses_);
  for (std::size_t l = 0; l < widths_.size(); ++l)
    for (std::size_t v = 0; v < V_; ++v)
      if (const double half = answer[forecasters_->half_at(l) + v]; std::isfinite(half)) widths_[l][v].add(2 * half);
  if (!report_) return;
  const std::size_t W = forecasters_->width();
  if (shown_.size() < shown_rows) {
    shown_.push_back({row, std::vector<double>(answer, answer + W), std::vector<double>(actual, actual + V_)});
    return;
  }
  Shown entry = std::move(shown_.front());
  shown_.pop_front();
  entry.row = row;
  std::copy_n(answer, W, entry.answer.data());
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
  for (std::size_t f = 0; f < forecasters_->naive_index(); ++f)
    for (std::size_t v = 0; v < V_; ++v) {
      const double prediction = answer[forecasters_->prediction_at(f) + v];
      put(prediction);
      if (!options_.interval) continue;
      const double half = answer[forecasters_->half_at(f) + v];
      put(prediction - half), put(prediction + half);
    }
  if (npy_ || !live() || spec_.horizon == 0)
    for (std::size_t v = 0; v < V_; ++v) {
      if (actual && !std::isnan(actual[v])) put(actual[v]);
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
      file_rows_ = source_->rows_read();
      if (options_.checkpoint_every > 0 && good_rows_ - saved_at_ >= options_.checkpoint_every) save_model();
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
  if (!options_.save.empty()) save_model();
  score_warmup();
  for (std::size_t l = 0; options_.coefficients && l < forecasters_->layer_count(); ++l)
    coefficients_.push_back(forecasters_->coefficients(l));
  for (std::size_t f = 0; f < scores_.size(); ++f) {
    Score& s = scores_[f];
    s.us_per_row = asked_ > 0 ? 1e6 * forecasters_->seconds(f) / static_cast<double>(asked_) : nan;
    s.state_bytes = forecasters_->state_bytes(f);
    if (f >= forecasters_->layer_count()) continue;
    const StreamLayer& layer = forecasters_->layer(f);
    s.recipe = layer.recipe(), s.kernel = layer.kernel(), s.stream = layer.stream(), s.failure = layer.failure();
    s.ran = what_ran(s.stream, s.kernel);
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
  std::optional<Archive> model;
  if (!options_.load.empty()) {
    model.emplace(read_model(), options_.load);
    archive_options(*model);
  }
  choose_columns();
  make_layers();
  if (model) {
    archive_memory(*model);
    model->finish();
    saved_at_ = good_rows_;
  }
  open_outputs();
  if (options_.resume) skip_rows();
  else file_rows_ = 0;
  read_all();

  const int signal = interrupted();
  if (signal == 0 && !closed_) {
    if (good_rows_ == 0)
      throw Error(skipped_ > 0 ? fmt::format("all {} rows of {} are bad; the first: {}", skipped_,
                                             source_->input_name(), first_bad_.message)
                               : fmt::format("{} has a header but no row of data", source_->input_name()),
                  source_->input_name());
    const std::int64_t needed = std::max<std::int64_t>(spec_.lags, 1) + spec_.horizon + (spec_.differences ? 1 : 0);
    if (good_rows_ < needed && options_.load.empty())
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
    const bool nothing_to_say = options_.predict && scores_[0].rows == 0;
    if (options_.json) print_out(json().dump(2) + "\n");
    else if (predictions_on_stdout() && !nothing_to_say) fmt::print(stderr, "\n{}", summary());
    else if (!predictions_on_stdout()) print_out(summary());
  }
  if (signal != 0) {
    std::vector<std::string> kept;
    for (const std::string& path : {options_.out, options_.report, options_.svg, options_.save})
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
