#include "regress_columns.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

namespace ttr::cli {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Exactly so many digits from the front of the text; -1 if they are not there.
int digits(std::string_view& text, std::size_t count) {
  int number = 0;
  if (text.size() < count) return -1;
  for (std::size_t i = 0; i < count; ++i) {
    if (text[i] < '0' || text[i] > '9') return -1;
    number = 10 * number + (text[i] - '0');
  }
  text.remove_prefix(count);
  return number;
}
bool skip(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text.front()) == any_of.npos) return false;
  text.remove_prefix(1);
  return true;
}

// FNV-1a: the same on every machine.
std::uint64_t hash_of(std::string_view word) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : word) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

class Dates : public ColumnEncoder {
 public:
  int width() const override { return 7; }
  bool encode(std::string_view field, double* out) override {
    double seconds = 0;
    if (!parse_date(field, seconds)) return false;
    if (!started_) first_ = seconds, started_ = true;
    constexpr double day = 86400, year = 365.2425 * day;
    out[0] = (seconds - first_) / year;
    const double periods[] = {year, 7 * day, day};
    for (int i = 0; i < 3; ++i) {
      const double phase = 2 * std::numbers::pi * std::fmod(seconds, periods[i]) / periods[i];
      out[1 + 2 * i] = std::sin(phase), out[2 + 2 * i] = std::cos(phase);
    }
    return true;
  }
  std::string expected() const override { return "a date such as 2024-02-29, 2024-02 or 2024-02-29T13:00"; }
  void archive(Archive& a) override { a(first_, started_); }

 private:
  double first_ = 0;
  bool started_ = false;
};

class Categories : public ColumnEncoder {
 public:
  explicit Categories(int slots) : slots_(static_cast<std::size_t>(slots)) {}
  int width() const override { return static_cast<int>(slots_); }
  bool encode(std::string_view field, double* out) override {
    const std::string word(trimmed(field));
    std::fill_n(out, slots_, 0.0);
    auto found = std::find(words_.begin(), words_.end(), word);
    if (found == words_.end() && words_.size() < slots_) found = words_.insert(words_.end(), word);
    out[found != words_.end() ? static_cast<std::size_t>(found - words_.begin()) : hash_of(word) % slots_] = 1;
    return true;
  }
  std::string expected() const override { return "a word"; }
  void archive(Archive& a) override { a(words_); }

 private:
  std::size_t slots_;
  std::vector<std::string> words_;
};

}  // namespace

bool parse_date(std::string_view text, double& seconds) {
  text = trimmed(text);
  std::string_view rest = text;
  const int year = digits(rest, 4);
  if (year < 0 || !skip(rest, "-/")) {  // seconds or, if that would be after the year 5138, milliseconds
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || error != std::errc() || end != text.data() + text.size() || !std::isfinite(number))
      return false;
    seconds = std::abs(number) > 1e11 ? number / 1000 : number;
    return true;
  }
  const int month = digits(rest, 2);
  const int day = skip(rest, "-/") ? digits(rest, 2) : 1;
  if (month < 1 || day < 1) return false;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return false;
  seconds = 86400.0 * static_cast<double>(std::chrono::sys_days(date).time_since_epoch().count());
  if (rest.empty() || rest == "Z") return true;
  if (!skip(rest, "T ")) return false;
  const int hour = digits(rest, 2), minute = skip(rest, ":") ? digits(rest, 2) : -1;
  if (hour < 0 || hour > 24 || minute < 0 || minute > 59) return false;
  seconds += 3600.0 * hour + 60.0 * minute;
  if (skip(rest, ":")) {
    double second = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), second);
    if (error != std::errc() || second < 0 || second > 61) return false;
    seconds += second, rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  }
  if (rest.empty() || rest == "Z") return true;
  const double sign = rest.front() == '-' ? 1 : -1;  // what is east of Greenwich is later there
  if (!skip(rest, "+-")) return false;
  const int hours = digits(rest, 2);
  skip(rest, ":");
  const int minutes = rest.empty() ? 0 : digits(rest, 2);
  if (hours < 0 || minutes < 0 || !rest.empty()) return false;
  seconds += sign * (3600.0 * hours + 60.0 * minutes);
  return true;
}

std::unique_ptr<ColumnEncoder> date_encoder() { return std::make_unique<Dates>(); }
std::unique_ptr<ColumnEncoder> category_encoder(int slots) { return std::make_unique<Categories>(slots); }

bool GroupNames::encode(std::string_view field, double* out) {
  const std::string_view word = trimmed(field);
  if (word.empty()) return false;
  auto found = numbers_.find(word);
  if (found == numbers_.end()) {
    found = numbers_.emplace(word, names_.size()).first;
    names_.emplace_back(word);
  }
  *out = static_cast<double>(found->second);
  return true;
}

void GroupNames::archive(Archive& a) {
  a(names_);
  if (!a.reading()) return;
  numbers_.clear();
  for (std::size_t i = 0; i < names_.size(); ++i) numbers_.emplace(names_[i], i);
}

bool NameHash::encode(std::string_view field, double* out) {
  const std::string_view word = trimmed(field);
  if (word.empty()) return false;
  const std::uint64_t hash = hash_of(word);
  *out = static_cast<double>((hash ^ hash >> 52) & ((std::uint64_t{1} << 52) - 1));
  return true;
}

void MissingNumbers::fill(double* row, double* flags) {
  for (std::size_t c = 0; c < last_.size(); ++c) {
    const bool missing = std::isnan(row[c]);
    if (fill_ == Fill::indicator) flags[c] = missing ? 1 : 0;
    if (missing) {
      row[c] = fill_ == Fill::last ? last_[c] : mean_[c];
      continue;
    }
    last_[c] = row[c];
    mean_[c] += (row[c] - mean_[c]) / ++count_[c];
  }
}

}  // namespace ttr::cli
