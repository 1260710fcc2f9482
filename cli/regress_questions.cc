// --id: a question that is answered now and whose value comes with a later row of the same name. The later row learns with
// the columns of the question, so that its own may be empty; its answer is the one the question got.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "regress_stream.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

constexpr std::size_t most_questions = 1'000'000;

}  // namespace

bool Stream::take_value_of_question(const double* y, double weight) {
  const auto found = open_questions_.find(raw_[id_at_]);
  const bool known = std::none_of(y, y + V_, [](double one) { return std::isnan(one); });
  if (known && found != open_questions_.end()) {
    answered_ = std::move(found->second);
    open_questions_.erase(found), open_rows_.erase(answered_->row);
    Memory& memory = *memories_[answered_->group];
    if (memory.idle()) touched_.push_back(&memory);
    const std::int64_t number = source_->rows_read();
    Memory::Row row =
        memory.add(number, answered_->columns.data(), y, weight, true, actual_.data() + rows_.size() * V_);
    row.number = answered_->row;
    rows_.push_back({number, &memory, row});
    ++good_rows_;
    return true;
  }
  if (options_.missing == "error" &&
      std::any_of(raw_.data(), raw_.data() + memory_.numbers, [](double one) { return std::isnan(one); }))
    throw Error(fmt::format("row {} of {} lacks a key, and no question with its name in '{}' waits for a value",
                            source_->rows_read(), source_->input_name(), options_.id),
                "--id");
  return false;
}

void Stream::keep_question(const Memory& memory, std::int64_t row, const double* answer) {
  Asked asked{raw_[id_at_], row, memory.group, {}, {answer, answer + forecasters_->width()}};
  asked.columns.assign(raw_.data(), raw_.data() + memory_.columns);
  const auto before = open_questions_.find(asked.id);
  if (before != open_questions_.end()) open_rows_.erase(before->second.row);  // asked again: the newer one counts
  open_rows_.emplace(row, asked.id);
  open_questions_.insert_or_assign(asked.id, std::move(asked));
  if (open_rows_.size() <= most_questions) return;
  open_questions_.erase(open_rows_.begin()->second), open_rows_.erase(open_rows_.begin());
}

void Stream::archive_questions(Archive& a) {
  std::vector<Asked> list;
  for (const auto& [row, id] : open_rows_) list.push_back(open_questions_.at(id));
  a(list);
  if (!a.reading()) return;
  open_questions_.clear(), open_rows_.clear();
  for (Asked& one : list) {
    if (one.group >= memories_.size()) a.refuse("holds a question of a group that it does not hold");
    open_rows_.emplace(one.row, one.id);
    open_questions_.insert_or_assign(one.id, std::move(one));
  }
}

}  // namespace ttr::cli
