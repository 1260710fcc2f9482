// Which columns of a file are keys, values, weights and groups, and when values become known.
#include <algorithm>

#include <fmt/format.h>

#include "regress_stream.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

bool contains(const std::vector<int>& list, int c) { return std::find(list.begin(), list.end(), c) != list.end(); }

}  // namespace

// What is known of a row when it is asked must not hold its value: as one of its keys, unless the value is that of a
// later row, nor as the word that chooses its memory or finds its question.
void Stream::refuse_values(const Named& named) const {
  const auto refuse = [&](const char* option, const std::vector<int>& columns, auto&& sentence) {
    for (const int c : columns)
      if (contains(value_columns_, c)) throw Error(sentence(source_->names()[static_cast<std::size_t>(c)]), option);
  };
  const std::pair<const char*, const std::vector<int>&> keys[] = {
      {"--keys", key_columns_}, {"--with", named.with}, {"--dates", named.dates}, {"--categories", named.categories}};
  for (const auto& [option, columns] : keys) {
    if (spec_.horizon == 0)
      refuse(option, columns, [&, name = option, named_keys = &columns == &key_columns_](const std::string& column) {
        return fmt::format(
            "column '{}' is both a key{} and a value and would predict itself; take it out of {} or --values, or "
            "predict later rows with --horizon or --lags",
            column, named_keys ? "" : fmt::format(" ({})", name), name);
      });
    if (options_.delay > 0)
      refuse(option, columns, [&, name = option](const std::string& column) {
        return fmt::format(
            "--delay {}: the value '{}' comes late, but is a key of the next rows already; take it out of {}, or say "
            "--horizon",
            options_.delay, column, name);
      });
  }
  refuse("--group", named.group, [](const std::string& column) {
    return fmt::format(
        "column '{}' is both the group of a row and a value: the memory that is asked would tell the answer; name "
        "another column for --group",
        column);
  });
  refuse("--id", named.id, [](const std::string& column) {
    return fmt::format(
        "column '{}' is both the name of a question and a value, which a question does not have yet; name another "
        "column for --id",
        column);
  });
}

// When the value of a row becomes known, and what an answer is for (regress_memory.h).
void Stream::arrange_time(bool lags_alone) {
  spec_.weighted = !options_.weights.empty(), spec_.one_of_many = !options_.group.empty();
  memory_.season = options_.season, memory_.fourier = options_.fourier;
  memory_.ahead = options_.horizon;
  if (options_.delay > 0) memory_.late = options_.delay + (options_.horizon == 0 ? 1 : 0);
  spec_.horizon = options_.horizon + memory_.late;
  if (!options_.iterate) return;
  if (key_columns_ != value_columns_ || !lags_alone || options_.fourier > 0 || !options_.lag_list.empty() ||
      options_.lags == 0 || options_.missing == "indicator")
    throw Error(
        "--iterate feeds answers back as the newest lag, so keys and values must be the same columns, with --lags "
        "N, and nothing else can be a key",
        "--iterate");
  spec_.horizon = 1;
}

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
  const auto listed = [&](const std::vector<std::string>& names, const char* option) {
    return names.empty() ? std::vector<int>() : find_columns(names, *source_, option);
  };
  const auto one = [&](const std::string& name, const char* option) {
    const std::vector<int> columns = listed(name.empty() ? std::vector<std::string>() : std::vector{name}, option);
    if (columns.size() > 1)
      throw Error(fmt::format("{} '{}' names {} columns; it takes one", option, name, columns.size()), option);
    return columns;
  };
  Named of;
  of.with = listed(options_.with, "--with"), of.dates = listed(options_.dates, "--dates");
  of.categories = listed(options_.categories, "--categories"), of.group = one(options_.group, "--group");
  if (!options_.predict) of.weights = one(options_.weights, "--weights"), of.id = one(options_.id, "--id");
  const auto& [with, dates, categories, group, weights, id] = of;
  std::vector<int> named;
  for (const auto* list : {&with, &id, &group, &weights, &dates, &categories})
    named.insert(named.end(), list->begin(), list->end());
  choose_classes(named);
  spec_.lags = options_.lags, spec_.offsets = options_.lag_list, spec_.differences = options_.differences;
  spec_.horizon = options_.horizon >= 0 ? options_.horizon : options_.lags > 0 ? 1 : 0;
  options_.horizon = spec_.horizon;
  spec_.bias = options_.bias || !options_.raw;

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
      if (options_.keys.empty() && !(options_.classify && contains(value_columns_, c))) take(key_columns_, c);
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
  }
  refuse_values(of);
  if (options_.classify) value_names_ = options_.classes;
  else if (!options_.predict)
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
    memory_.fill = options_.missing == "last"   ? MissingNumbers::Fill::last
                   : options_.missing == "mean" ? MissingNumbers::Fill::mean
                                                : MissingNumbers::Fill::indicator;
  memory_.numbers = memory_.columns = numbers;
  for (const auto& encoder : encoders_) memory_.columns += static_cast<std::size_t>(encoder->width());
  const double key_numbers =
      static_cast<double>(spec_.key_columns) * static_cast<double>(spec_.lag_count()) + spec_.more_columns;
  if (key_numbers > 1e6)
    throw Error(fmt::format("{} columns with {} lags are {:.0f} keys; at most 1000000 are possible",
                            spec_.key_columns, spec_.lags, key_numbers),
                "--lags");
  arrange_time(named.size() == group.size() + weights.size() + id.size());
  if ((key_numbers + 1) * static_cast<double>(spec_.horizon) > 1e8)
    throw Error(fmt::format("{} {} with {:.0f} keys would hold back more than 800 MB; choose a shorter one",
                            options_.delay > 0 ? "--delay" : "--horizon", spec_.horizon, key_numbers),
                options_.delay > 0 ? "--delay" : "--horizon");
  std::vector<int> selected = key_columns_;
  selected.insert(selected.end(), with.begin(), with.end());
  std::vector<ColumnEncoder*> encoders(selected.size(), nullptr);
  for (std::size_t i = 0; i < encoders_.size(); ++i) {
    selected.push_back(i < dates.size() ? dates[i] : categories[i - dates.size()]);
    encoders.push_back(encoders_[i].get());
  }
  std::vector<bool> optional(selected.size(), fills || options_.missing == "skip" || !id.empty());
  // A value that is a key of a later row as well cannot be a question, unless there is something to put in its place.
  spec_.questions = fills || std::none_of(value_columns_.begin(), value_columns_.end(),
                                          [&](int c) { return contains(key_columns_, c); });
  const bool apart = key_columns_ != value_columns_ || fills;
  values_at_ = apart ? memory_.columns : 0;
  if (apart) {
    selected.insert(selected.end(), value_columns_.begin(), value_columns_.end());
    optional.resize(selected.size(), spec_.questions);
    encoders.resize(selected.size(), nullptr);
    if (class_encoder_ && has_values()) encoders.back() = &*class_encoder_;
  }
  std::size_t wide = memory_.columns + (!apart           ? 0
                                        : class_encoder_ ? V_ * value_columns_.size()
                                                         : value_columns_.size());
  const auto add = [&](int column, ColumnEncoder* encoder, std::size_t& place) {
    selected.push_back(column), optional.push_back(false), encoders.push_back(encoder);
    place = wide++;
  };
  if (!weights.empty()) add(weights[0], nullptr, weight_at_);
  if (!group.empty()) add(group[0], &groups_, group_at_);
  if (!id.empty()) add(id[0], &names_, id_at_);
  raw_.resize(wide);
  // A model may be asked later, without learning; so is a row that counts nothing.
  if (!options_.save.empty() || !options_.load.empty() || wants_coefficients() || spec_.weighted ||
      options_.iterate || served_)
    spec_.questions = true;
  memory_.pairs = spec_;
  source_->select(std::move(selected), std::move(optional), std::move(encoders));
}

}  // namespace ttr::cli
