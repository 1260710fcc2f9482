// A stream without files around it (regress_stream.h): rows are learned or asked one by one.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "regress_stream.h"
#include "ttr/status.h"

namespace ttr::cli {

Stream::Stream(RegressOptions options, std::unique_ptr<RowSource> source, const std::string& model)
    : options_(std::move(options)), served_(true), source_(std::move(source)) {
  prepare(model);
  options_.on_bad = "skip";  // learn_row() says what was bad
}

const double* Stream::learn_row() {
  const std::int64_t skipped = skipped_;
  block_limit_ = 1;
  try {
    read_block();
  } catch (...) {
    file_rows_ = source_->rows_read();
    throw;
  }
  file_rows_ = source_->rows_read();
  if (rows_.empty()) {
    if (skipped_ == skipped) throw Error("there is no row", "row");
    throw Error(source_->bad().message.empty() ? "a key is missing" : source_->bad().message, source_->bad().where);
  }
  const Memory& memory = *rows_[0].memory;
  process_block();
  return rows_[0].brought.asks ? memory.first_answer() : nullptr;
}

const double* Stream::ask_row() {
  // Words that are met here are forgotten again.
  Archive words;
  for (const auto& encoder : encoders_) encoder->archive(words);
  groups_.archive(words);
  const bool read = source_->next(raw_.data()) == RowSource::Read::row;
  const bool good = read && (options_.missing != "skip" || std::none_of(raw_.data(), raw_.data() + memory_.numbers,
                                                                        [](double x) { return std::isnan(x); }));
  const double* answer = nullptr;
  const std::size_t known = memories_.size();
  if (good) {
    answer = memory_of_row().ask(raw_.data());
    if (memories_.size() > known) {  // of a group that nobody has met
      asked_once_ = std::move(memories_.back());
      memories_.resize(known);
    }
  }
  if (!encoders_.empty() || !options_.group.empty()) {
    Archive kept(words.file(), "row");
    for (const auto& encoder : encoders_) encoder->archive(kept);
    groups_.archive(kept);
  }
  if (!good) throw Error(read ? "a key is missing" : source_->bad().message, source_->bad().where);
  return answer;
}

std::vector<Stream::Place> Stream::places() const {
  std::vector<Place> list;
  for (std::size_t f = 0; f < forecasters_->naive_index(); ++f)
    list.push_back(
        {scores_[f].name, forecasters_->prediction_at(f), options_.interval ? forecasters_->half_at(f) : 0});
  return list;
}

Json Stream::served_json() {
  describe_scores();
  return json();
}

}  // namespace ttr::cli
