#include "regress_stream.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <unistd.h>

#include "aside.h"
#include "csv.h"
#include "npy.h"
#include "progress.h"
#include "regress_needs.h"
#include "standard_files.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

constexpr std::size_t block_rows = 256, shown_rows = 240, most_odd_rows = 10;
constexpr std::int64_t longest_warmup = 1000;
// A quick one, least squares with a small and a larger ridge, one that forgets, one that drifts: on most series one of them
// is close to the best layer there is, and their errors differ enough for a mix to gain.
constexpr const char* default_layers[] = {"nlms", "rls", "rls:ridge=1", "rls:decay=0.98,ridge=1", "kalman"};
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

void Stream::make_layers() {
  key_dim_ = PairBuilder(spec_).key_dim();
  ForecastSpec spec;
  spec.pairs = spec_;
  spec.classify = options_.classify;
  spec.steps = options_.iterate ? options_.horizon : 1;
  spec.tune = options_.tune, spec.interval = options_.interval, spec.season = options_.season;
  spec.standardize = options_.standardize || !options_.raw;
  for (const std::string& text : options_.layers) {
    if (text == "mix") spec.mix = true;
    else if (text != "naive") spec.layers.push_back(text);  // which is always there
  }
  if (spec.layers.empty() && (options_.layers.empty() || spec.mix)) {
    spec.mix = true;
    spec.layers.assign(std::begin(default_layers), std::end(default_layers));
    if (options_.classify) spec.layers = default_classifiers();
    large_layers_ = leave_out_quadratic(spec.layers, spec);
  }
  NeedSpec need;
  need.groups = !options_.group.empty(), need.questions = spec_.questions, need.saved = !options_.save.empty();
  need.asks = wants_coefficients();
  require_layers(spec, need);
  forecasters_.emplace(spec);
  options_.layers = spec.layers;  // as they are, for the model
  if (spec.mix) options_.layers.emplace_back("mix");
  const std::int64_t window = options_.window.value_or(1);
  const std::size_t most = options_.window ? 100000 : 8;
  for (std::size_t f = 0; f < forecasters_->count(); ++f) {
    scores_.emplace_back(forecasters_->name(f), window, most);
    if (options_.classify) scores_.back().classes.emplace(V_);
  }
  if (options_.interval) widths_.assign(forecasters_->naive_index(), std::vector<Windows>(V_, Windows(window, most)));
  comparisons_.emplace(forecasters_->count(), memory_.ahead + memory_.late);
  spread_.emplace(static_cast<int>(V_));
  for (std::size_t f = 0; f < forecasters_->layer_count(); ++f)
    row_seconds_ += 1e-9 * static_cast<double>(forecasters_->state_bytes(f));
  if (options_.group.empty()) memories_.push_back(new_memory()), forecasters_->release();
  unknown_.assign(V_, nan);
  actual_.resize(block_rows * V_), losses_.resize(scores_.size());
  rows_.reserve(block_rows);
}

std::unique_ptr<Memory> Stream::new_memory() const {
  auto memory = std::make_unique<Memory>(memory_, *forecasters_);
  if (options_.detect) memory->detector.emplace();
  memory->group = memories_.size();
  return memory;
}

Memory& Stream::memory_of_row() {
  if (options_.group.empty()) return *memories_[0];
  const std::size_t number = static_cast<std::size_t>(raw_[group_at_]);
  while (memories_.size() <= number) memories_.push_back(new_memory());
  return *memories_[number];
}

std::int64_t Stream::warmup() const {
  return options_.warmup >= 0 ? options_.warmup : std::min<std::int64_t>(key_dim_ + 1, longest_warmup);
}

std::vector<std::string> Stream::header_row() const {
  std::vector<std::string> names = {"row"};
  if (!options_.group.empty()) names.push_back(options_.group);
  auto add = [&](const std::string& name, bool bounds) {
    if (options_.classify) names.push_back(name);  // the most likely class, then the probabilities
    if (options_.classify && name == "actual") return;
    for (const std::string& value : value_names_) {
      names.push_back(V_ == 1 ? name : name + "." + value);
      if (!bounds) continue;
      const std::string column = names.back();
      names.push_back(column + ".lower"), names.push_back(column + ".upper");
    }
  };
  for (std::size_t f = 0; f < forecasters_->naive_index(); ++f) add(scores_[f].name, options_.interval.has_value());
  // A live prediction of a later row is printed long before its value is known.
  if (values_follow()) add("actual", false);
  if (values_follow() && options_.detect) names.emplace_back("anomaly");
  return names;
}

void Stream::open_outputs() {
  if (!options_.out.empty()) {
    npy_ = options_.out.ends_with(".npy");
    out_.emplace(options_.out, "--out");
    if (out_->is_standard_output() && options_.json)
      throw Error("--json and --out - both want standard output; write the predictions to a file", "--out");
    if (npy_ && !options_.group.empty())
      throw Error(fmt::format("'{}' cannot hold the names of groups, which are words; write .csv", options_.out),
                  "--out");
    if (npy_ && !out_->can_rewrite())
      throw Error(fmt::format("'{}' cannot hold an .npy array, whose header is written last; give a file or use CSV",
                              options_.out),
                  "--out");
  } else if (live() || (options_.predict && !options_.json)) {
    out_.emplace("-", "--out");
  }
  if (!options_.coefficients_out.empty()) coefficients_out_.emplace(options_.coefficients_out, "--coefficients-out");
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
  rows_.clear();
  good_before_ = good_rows_, questions_before_ = questions_, what_was_.reset();
  while (rows_.size() < block_limit_) {
    if (!served_ && interrupted() != 0) return false;
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
    const std::int64_t number = source_->rows_read();
    if (options_.missing == "skip" &&
        std::any_of(raw_.data(), raw_.data() + memory_.numbers, [](double one) { return std::isnan(one); })) {
      if (skipped_++ == 0) first_bad_ = {fmt::format("row {} lacks a key", number), ""};
      continue;
    }
    const double weight = weight_at_ > 0 ? raw_[weight_at_] : 1;
    if (!(weight >= 0))
      throw Error(fmt::format("the weight {} of row {} is negative; a row counts 0 or more", weight, number),
                  "--weights");
    const double* const y = !has_values() ? unknown_.data() : raw_.data() + values_at_;
    if (id_at_ > 0 && take_value_of_question(y, weight)) return interrupted() == 0;
    Memory& memory = memory_of_row();
    if (rows_.empty()) keep_what_was(memory);
    if (memory.idle()) touched_.push_back(&memory);
    const Memory::Row row =
        memory.add(number, raw_.data(), y, weight, !options_.predict, actual_.data() + rows_.size() * V_);
    rows_.push_back({number, &memory, row});
    ++good_rows_;
    if (std::any_of(y, y + V_, [](double one) { return std::isnan(one); })) ++questions_;
    if (memory.must_end_block()) break;
    if (options_.checkpoint_every > 0 && good_rows_ % options_.checkpoint_every == 0) break;
    if (wants_coefficients() && good_rows_ % coefficients_every_ == 0) {
      memory.keep_before_last();
      break;
    }
  }
  return interrupted() == 0;
}

void Stream::process_block() {
  if (!run_layers()) return go_back();
  const std::size_t W = forecasters_->width();
  const bool at_once = memory_.ahead + memory_.late == 0;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    Memory& memory = *rows_[r].memory;
    const Memory::Row& row = rows_[r].brought;
    const double* const actual = actual_.data() + r * V_;
    std::vector<double> spare;  // of an answer that has waited, so that a long run allocates nothing
    if (row.known && !memory.waiting.empty() && memory.waiting.front().target == row.index) {
      spare = std::move(memory.waiting.front().answer);
      memory.waiting.pop_front();
      const double anomaly = arrived(memory, row, spare.data(), actual);
      if (!live()) emit(row.number, memory, spare.data(), actual, anomaly);
    }
    if (!row.asks) continue;
    double* const answer = memory.answer(memory.queries++);
    if (answered_) {  // it was asked when its question came
      const double anomaly = arrived(memory, row, answered_->answer.data(), actual);
      if (!live()) emit(answered_->row, memory, answered_->answer.data(), actual, anomaly);
      answered_.reset();
      continue;
    }
    ++asked_;
    memory.forecasters().finish(answer);
    if (at_once) {
      const bool question = std::any_of(actual, actual + V_, [](double y) { return std::isnan(y); });
      if (id_at_ > 0 && question) {
        keep_question(memory, rows_[r].number, answer);
        if (!live()) continue;
      }
      const double anomaly = arrived(memory, row, answer, actual);
      emit(rows_[r].number, memory, answer, actual, anomaly);
      continue;
    }
    const std::int64_t label = rows_[r].number + memory_.ahead;
    if (live()) emit(label, memory, answer, nullptr, nan);
    spare.assign(answer, answer + W);
    memory.waiting.push_back({row.own_index + memory_.ahead, label, std::move(spare)});
  }
  if (live()) out_->flush();
  for (Memory* memory : touched_) memory->end_block();
  touched_.clear();
}

double Stream::arrived(Memory& memory, const Memory::Row& row, const double* answer, const double* actual) {
  if (std::any_of(actual, actual + V_, [](double y) { return std::isnan(y); })) return nan;
  if (!options_.predict) memory.forecasters().update(answer, actual);
  const double anomaly =
      memory.detector ? memory.detector->add(row.number, answer + forecasters_->prediction_at(judged()), actual, V_)
                      : nan;
  if (memory.arrived++ < warmup()) {
    const std::size_t W = forecasters_->width();
    if (options_.warmup < 0)
      memory.unscored.push_back({row.number, row.weight, {answer, answer + W}, {actual, actual + V_}});
    return anomaly;
  }
  memory.unscored.clear();
  score(memory, row.number, row.weight, answer, actual, anomaly);
  return anomaly;
}

void Stream::score_warmup() {
  for (const auto& memory : memories_) {
    short_stream_ = short_stream_ || !memory->unscored.empty();
    for (const Answered& s : memory->unscored) score(*memory, s.row, s.weight, s.answer.data(), s.actual.data(), nan);
    memory->unscored.clear();
  }
}

void Stream::score(Memory& memory, std::int64_t row, double weight, const double* answer, const double* actual,
                   double anomaly) {
  spread_->add(actual, weight);
  for (std::size_t f = 0; f < scores_.size(); ++f)
    losses_[f] = scores_[f].add(row, answer + forecasters_->prediction_at(f), actual, static_cast<int>(V_), weight);
  if (!options_.group.empty()) {
    for (std::size_t f = 0; f < scores_.size(); ++f) memory.losses[f] += weight * losses_[f];
    memory.scored += weight, ++memory.scored_rows;
  }
  comparisons_->add(losses_);
  for (std::size_t l = 0; l < widths_.size(); ++l)
    for (std::size_t v = 0; v < V_; ++v)
      if (const double half = answer[forecasters_->half_at(l) + v]; std::isfinite(half)) widths_[l][v].add(2 * half);
  const std::size_t W = forecasters_->width();
  if (options_.detect && !std::isnan(anomaly)) {
    // The rows of largest score, which are few.
    const auto less = [](const Odd& a, const Odd& b) { return a.score > b.score; };
    if (odd_.size() < most_odd_rows || anomaly > odd_.back().score) {
      Odd one{row, anomaly, memory.group, {answer, answer + W}, {actual, actual + V_}};
      odd_.insert(std::upper_bound(odd_.begin(), odd_.end(), one, less), std::move(one));
      if (odd_.size() > most_odd_rows) odd_.pop_back();
    }
  }
  if (!report_ && !options_.watch) return;
  if (shown_.size() < shown_rows) {
    shown_.push_back(
        {row, weight, std::vector<double>(answer, answer + W), std::vector<double>(actual, actual + V_)});
    return;
  }
  Answered entry = std::move(shown_.front());
  shown_.pop_front();
  entry.row = row;
  std::copy_n(answer, W, entry.answer.data());
  std::copy_n(actual, V_, entry.actual.data());
  shown_.push_back(std::move(entry));
}

void Stream::emit(std::int64_t row, const Memory& memory, const double* answer, const double* actual,
                  double anomaly) {
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
  if (!options_.group.empty()) fmt::format_to(to, FMT_STRING(",{}"), csv_field(groups_.names()[memory.group]));
  const auto put_class = [&](const double* p) {
    const std::size_t c = class_of(p, V_);
    if (npy_) put(std::isnan(p[0]) ? nan : static_cast<double>(c + 1));
    else fmt::format_to(to, FMT_STRING(",{}"), std::isnan(p[0]) ? "" : csv_field(value_names_[c]));
  };
  for (std::size_t f = 0; f < forecasters_->naive_index(); ++f) {
    if (options_.classify) put_class(answer + forecasters_->prediction_at(f));
    for (std::size_t v = 0; v < V_; ++v) {
      const double prediction = answer[forecasters_->prediction_at(f) + v];
      put(prediction);
      if (!options_.interval) continue;
      const double half = answer[forecasters_->half_at(f) + v];
      put(prediction - half), put(prediction + half);
    }
  }
  const auto put_or_leave_empty = [&](double number) {
    if (!std::isnan(number) || npy_) put(number);
    else line_.push_back(',');
  };
  if (values_follow()) {
    if (options_.classify) put_class(actual ? actual : unknown_.data());
    for (std::size_t v = 0; !options_.classify && v < V_; ++v) put_or_leave_empty(actual ? actual[v] : nan);
    if (options_.detect) put_or_leave_empty(anomaly);
  }
  if (npy_) return;
  line_.push_back('\n');
  out_->write({line_.data(), line_.size()});
}

// Values that were read but had not become known when the rows ended: their answers were made without them.
void Stream::take_late_values() {
  for (const auto& memory : memories_)
    for (; !memory->late.empty(); memory->late.pop_front()) {
      const Memory::Late& late = memory->late.front();
      if (memory->waiting.empty() || memory->waiting.front().target != late.index) continue;
      const std::vector<double> answer = std::move(memory->waiting.front().answer);
      memory->waiting.pop_front();
      const Memory::Row row{false, true, late.index, late.number, late.weight};
      const double anomaly = arrived(*memory, row, answer.data(), late.value.data());
      if (!live()) emit(late.number, *memory, answer.data(), late.value.data(), anomaly);
    }
}

void Stream::write_leftovers() {
  if (live()) return;
  for (const auto& memory : memories_)
    for (const Memory::Waiting& w : memory->waiting) emit(w.row, *memory, w.answer.data(), nullptr, nan);
  for (const auto& [row, id] : open_rows_) {
    const Asked& asked = open_questions_.at(id);
    emit(row, *memories_[asked.group], asked.answer.data(), nullptr, nan);
  }
}

void Stream::read_all() {
  Progress progress("regress", !(predictions_on_stdout() && isatty(STDOUT_FILENO) == 1));
  const auto start = std::chrono::steady_clock::now();
  try {
    for (bool more = true; more;) {
      more = read_block();
      const auto before = std::chrono::steady_clock::now();
      process_block();
      if (left_) break;
      file_rows_ = source_->rows_read();
      if (wants_coefficients() && good_rows_ > 0 && good_rows_ % coefficients_every_ == 0) sample_coefficients();
      if (options_.checkpoint_every > 0 && good_rows_ - saved_at_ >= options_.checkpoint_every) save_model();
      const auto took = std::chrono::steady_clock::now() - before;
      if (took < std::chrono::milliseconds(20))
        block_limit_ = live() || id_at_ > 0 ? 1 : std::min(2 * block_limit_, block_rows);
      if (took > std::chrono::milliseconds(100)) block_limit_ = std::max<std::size_t>(block_limit_ / 2, 1);
      if (options_.watch) watch_.draw(*this);
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
  take_late_values();
  score_warmup();
  if (wants_coefficients()) final_coefficients();
  if (states_whole_) describe_scores();
}

// "key 3 is inf": by the name of its column.
std::string Stream::by_column(const std::string& failure) const {
  if (failure.empty()) return "";
  const std::vector<std::string> keys = key_number_names();
  for (const auto& [what, names] : {std::pair{"key", &keys}, {"value", &value_names_}})
    for (std::size_t i = 0; i < names->size(); ++i)
      if (const std::string place = fmt::format("{} {} ", what, i + 1); failure.starts_with(place))
        return fmt::format("the {} '{}' {}", what, (*names)[i], failure.substr(place.size()));
  return failure;
}

void Stream::describe_scores() {
  for (std::size_t f = 0; f < scores_.size(); ++f) {
    Score& s = scores_[f];
    double seconds = 0;
    s.state_bytes = memories_.empty() ? forecasters_->state_bytes(f) : 0;
    for (const auto& memory : memories_)
      seconds += memory->forecasters().seconds(f), s.state_bytes += memory->forecasters().state_bytes(f);
    s.us_per_row = asked_ > 0 ? 1e6 * seconds / static_cast<double>(asked_) : nan;
    if (f >= forecasters_->layer_count()) continue;
    const StreamLayer& layer = now().layer(f);
    s.recipe = layer.recipe(), s.kernel = layer.kernel(), s.stream = layer.stream();
    for (const auto& memory : memories_)
      if (s.failure.empty()) s.failure = by_column(memory->forecasters().layer(f).failure());
    s.ran = what_ran(s.stream, s.kernel);
  }
}

void Stream::finish_files() {
  if (out_ && !closed_) {
    if (npy_) out_->rewrite_start(npy_header(written_, static_cast<std::int64_t>(header_row().size())));
    out_->commit();
  }
  if (coefficients_out_) {
    coefficients_out_->write(coefficients_csv());
    coefficients_out_->commit();
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

void Stream::refuse_warmup() const {
  const std::int64_t most = most_arrived();
  if (scores_[0].rows > 0 || most == 0) return;
  throw Error(fmt::format("--warmup {} leaves nothing to score: {} {}; give less than {}", options_.warmup,
                          options_.group.empty() ? source_->input_name() + " has"
                                                 : "no group of " + source_->input_name() + " has more than",
                          counted(most, "row") + " with a value", most),
              "--warmup");
}

std::int64_t Stream::most_arrived() const {
  std::int64_t most = 0;
  for (const auto& memory : memories_) most = std::max(most, memory->arrived);
  return most;
}

int Stream::run() {
  const HeaderLine header = options_.header == "yes"  ? HeaderLine::yes
                            : options_.header == "no" ? HeaderLine::no
                                                      : HeaderLine::automatic;
  const bool prepared = run_aside([this, header] {
    source_ = open_rows(options_.file, header);
    prepare(options_.load.empty() ? "" : read_model());
  });
  if (!prepared) throw Error("interrupted before the first row", options_.file);
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
    const std::int64_t needed = std::max<std::int64_t>(spec_.lags, 1) + memory_.ahead + (spec_.differences ? 1 : 0);
    if (good_rows_ < needed && options_.load.empty())
      throw Error(
          fmt::format("{} has {}, but {} needs at least {}", source_->input_name(), counted(good_rows_, "usable row"),
                      spec_.lags > 0 ? fmt::format("--lags {} with a horizon of {}", spec_.lags, memory_.ahead)
                                     : fmt::format("--horizon {}", memory_.ahead),
                      needed),
          spec_.lags > 0 ? "--lags" : "--horizon");
  }
  // A run that goes on somewhere else, or whose predictions are printed, has done something all the same.
  if (signal == 0 && options_.warmup > 0 && options_.load.empty() && options_.save.empty() && !live() &&
      !predictions_on_stdout())
    refuse_warmup();
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
  if (options_.watch && anything) watch_.finish(*this);
  if (anything) {
    const bool nothing_to_say = options_.predict && scores_[0].rows == 0;
    if (options_.json) print_out(json().dump(2) + "\n");
    else if (predictions_on_stdout() && !nothing_to_say) tell("\n{}", summary());
    else if (!predictions_on_stdout()) print_out(summary());
  }
  if (signal != 0) {
    std::vector<std::string> kept;
    for (const std::string& path :
         {options_.out, options_.report, options_.svg, options_.save, options_.coefficients_out})
      if (anything && !path.empty() && path != "-") kept.push_back(path);
    tell("Interrupted by {} after {}. {}\n", signal_name(signal), counted(good_rows_, "row"),
         kept.empty() ? std::string("The numbers above are of these rows.")
                      : fmt::format("{} hold{} these rows.", join(kept), kept.size() == 1 ? "s" : ""));
    return 128 + signal;
  }
  return 0;
}

int run_stream(const RegressOptions& options) { return KeptForAside<Stream>(options)->run(); }

}  // namespace ttr::cli
