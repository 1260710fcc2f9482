// Columns that are not numbers, and numbers that are missing.
//
//   date       2024-02-29, 2024-02, 2024/02/29, with a time (T13:00, 13:00:30), or seconds (milliseconds) since 1970:
//              years since the first row; sine and cosine of the phase in the year, the week and the day
//   category   a slot for each of the first words seen, which is 1 for its word and else 0; when there are more words
//              than slots, the others share them by a hash
//   missing    the last number seen, or the mean of those seen; `indicator`: the mean, and a further key that is 1 where
//              the number was missing
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "archive.h"

namespace ttr::cli {

/// Turns a field into numbers.
class ColumnEncoder {
 public:
  virtual ~ColumnEncoder() = default;
  virtual int width() const = 0;
  /// False if the field is not understood.
  virtual bool encode(std::string_view field, double* out) = 0;
  /// What belongs into a field: "a date such as ...".
  virtual std::string expected() const = 0;
  virtual void archive(Archive&) = 0;
};

/// Seconds since 1970-01-01 00:00 of a date as above; false if it is none.
bool parse_date(std::string_view text, double& seconds);

std::unique_ptr<ColumnEncoder> date_encoder();
std::unique_ptr<ColumnEncoder> category_encoder(int slots);

/// The column of groups: a word becomes its number, in the order in which words are met.
class GroupNames : public ColumnEncoder {
 public:
  int width() const override { return 1; }
  bool encode(std::string_view field, double* out) override;
  std::string expected() const override { return "the name of a group"; }
  void archive(Archive&) override;
  const std::vector<std::string>& names() const { return names_; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> numbers_;
  std::vector<std::string> names_;
};

/// A column of names that are compared and not kept: 52 bits of a hash, which a double holds exactly.
class NameHash : public ColumnEncoder {
 public:
  int width() const override { return 1; }
  bool encode(std::string_view field, double* out) override;
  std::string expected() const override { return "a name by which its value can be found"; }
  void archive(Archive&) override {}
};

/// Fills in what is missing (NaN).
class MissingNumbers {
 public:
  enum class Fill { last, mean, indicator };
  MissingNumbers(Fill fill, std::size_t columns) : fill_(fill), last_(columns), mean_(columns), count_(columns) {}
  /// `row` [columns]; writes a flag per column to `flags` if fill is indicator.
  void fill(double* row, double* flags);
  void archive(Archive& a) { a(last_, mean_, count_); }

 private:
  Fill fill_;
  std::vector<double> last_, mean_, count_;
};

}  // namespace ttr::cli
