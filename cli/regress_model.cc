// A run on a file that outlives the program: --save, --load, --resume, --checkpoint-every.
//
// A model is written whole or not at all (atomic_file.h), so that a process that is killed leaves the model of the last
// checkpoint behind. A run that goes on from it computes the same bits as one that was never interrupted: every state is
// kept as it is in memory, and nothing depends on how rows are grouped into blocks.
#include <algorithm>

#include <fmt/format.h>

#include "progress.h"
#include "regress_stream.h"
#include "ttr/status.h"

namespace ttr::cli {

void Stream::archive_options(Archive& a) {
  RegressOptions& o = options_;
  std::int64_t window = o.window.value_or(0);
  a(o.keys, o.with, o.dates, o.categories, o.category_slots, o.missing, o.values, o.layers, o.lags, o.lag_list,
    o.differences, o.fourier, o.horizon, o.raw, o.bias, o.standardize, o.tune, o.interval, o.season, o.warmup, window,
    o.group, o.weights, o.delay, o.iterate, o.detect, o.id, o.classify, o.classes);
  // What sizes follow from is in the ranges of the command line.
  const auto within = [](std::int64_t number, std::int64_t least, std::int64_t most) {
    return least <= number && number <= most;
  };
  const bool lags = within(o.lags, 0, 100000) && std::all_of(o.lag_list.begin(), o.lag_list.end(),
                                                             [&](auto lag) { return within(lag, 1, o.lags); });
  if (a.reading() &&
      !(lags && within(o.fourier, 0, 1000) && within(o.horizon, -1, 1000000) && within(o.season, 0, 1000000) &&
        within(o.delay, 0, 1000000) && within(o.category_slots, 2, 10000) && window >= 0 && o.warmup >= -1))
    a.refuse("holds options that are out of range");
  if (a.reading()) o.window = window > 0 ? std::optional(window) : std::nullopt;
}

void Stream::archive_memory(Archive& a) {
  for (const auto& encoder : encoders_) encoder->archive(a);
  std::size_t groups = memories_.size();
  groups_.archive(a), a(groups, file_rows_);
  if (a.reading() && !options_.group.empty() && groups != groups_.names().size())
    a.refuse("holds another number of groups than of their names");
  while (memories_.size() < groups) memories_.push_back(new_memory());
  for (const auto& memory : memories_) memory->archive(a);
  archive_questions(a);
  if (a.reading() && options_.predict) {  // what was scored before is another matter
    std::vector<Score> scores = scores_;
    std::vector<std::vector<Windows>> widths = widths_;
    Comparisons comparisons = *comparisons_;
    Spread spread = *spread_;
    std::int64_t number = 0;
    a(scores, widths, comparisons, spread, number, number, number, number);
    options_.warmup = 0;
    for (const auto& memory : memories_) memory->forget_scores();
    return;
  }
  a(scores_, widths_, *comparisons_, *spread_, good_rows_, skipped_, asked_, questions_);
}

RegressOptions Stream::saved_options(const std::string& bytes, const std::string& name) {
  Stream stream{RegressOptions()};
  Archive a(bytes, name);
  stream.archive_options(a);
  return stream.options_;
}

std::string Stream::read_model() const {
  ByteSource source(options_.load);
  std::string bytes;
  char block[1 << 16];
  while (const std::size_t n = source.read(block, sizeof block)) bytes.append(block, n);
  return bytes;
}

void Stream::prepare(const std::string& bytes) {
  std::optional<Archive> model;
  if (!bytes.empty()) {
    model.emplace(bytes, options_.load);
    archive_options(*model);
  }
  choose_columns();
  make_layers();
  if (!model) return;
  archive_memory(*model);
  model->finish();
  saved_at_ = good_rows_;
}

std::string Stream::model_bytes() {
  options_.keys = key_names_;
  if (!options_.classify) options_.values = value_names_;
  Archive a;
  std::size_t states = 0;  // each may be there twice: as it is, and before the newest pair
  for (const auto& memory : memories_)
    for (std::size_t f = 0; f < forecasters_->layer_count(); ++f) states += memory->forecasters().state_bytes(f);
  a.reserve(2 * states + states / 8);
  archive_options(a);
  archive_memory(a);
  return a.file();
}

void Stream::save_model() {
  write_file(options_.save, "--save", model_bytes());
  saved_at_ = good_rows_;
}

// The input is the one that the model has seen a part of.
void Stream::skip_rows() {
  for (std::int64_t row = 0; row < file_rows_; ++row)
    if (source_->next(raw_.data()) == RowSource::Read::end)
      throw Error(fmt::format("{} has {}, but '{}' has seen {} of it; --resume goes on with the same file",
                              source_->input_name(), counted(row, "row"), options_.load, file_rows_),
                  "--resume");
}

}  // namespace ttr::cli
