// A run on a file that outlives the program: --save, --load, --resume, --checkpoint-every.
//
// A model is written whole or not at all (atomic_file.h), so that a process that is killed leaves the model of the last
// checkpoint behind. A run that goes on from it computes the same bits as one that was never interrupted: every state is
// kept as it is in memory, and nothing depends on how rows are grouped into blocks.
#include <fmt/format.h>

#include "progress.h"
#include "regress_stream.h"
#include "ttr/status.h"

namespace ttr::cli {

void Stream::archive_options(Archive& a) {
  RegressOptions& o = options_;
  a(o.keys, o.with, o.dates, o.categories, o.category_slots, o.missing, o.values, o.layers, o.lags, o.lag_list,
    o.differences, o.fourier, o.horizon, o.raw, o.bias, o.standardize, o.tune, o.interval, o.season, o.warmup,
    o.window);
}

void Stream::archive_memory(Archive& a) {
  for (const auto& encoder : encoders_) encoder->archive(a);
  a(missing_, *pairs_, *forecasters_, season_ring_, waiting_, arrived_, file_rows_);
  if (a.reading() && options_.predict) {  // what was scored before is another matter
    std::vector<Score> scores = scores_;
    std::vector<std::vector<Windows>> widths = widths_;
    Comparisons comparisons = *comparisons_;
    Spread spread = *spread_;
    std::vector<Shown> unscored;
    std::int64_t number = 0;
    a(scores, widths, comparisons, spread, unscored, number, number, number, number);
    options_.warmup = 0;
    return;
  }
  a(scores_, widths_, *comparisons_, *spread_, unscored_, good_rows_, skipped_, asked_, questions_);
}

std::string Stream::read_model() const {
  ByteSource source(options_.load);
  std::string bytes;
  char block[1 << 16];
  while (const std::size_t n = source.read(block, sizeof block)) bytes.append(block, n);
  return bytes;
}

void Stream::save_model() {
  options_.keys = key_names_, options_.values = value_names_;
  Archive a;
  archive_options(a);
  archive_memory(a);
  write_file(options_.save, "--save", a.file());
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
