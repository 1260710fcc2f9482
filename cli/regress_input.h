// Where rows come from: a file or standard input, CSV or .npy, one row at a time in constant memory.
//
// open_rows looks at the first bytes to tell the formats apart. A row that cannot be used is reported as `bad` with
// a sentence that names line, column and value; whether that ends the run is the caller's choice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regress_columns.h"

namespace ttr::cli {

/// Bytes of a descriptor. A wait for more input ends when the run is interrupted.
class ByteSource {
 public:
  /// "-" is standard input. Throws Error for a missing file, a folder, or one that may not be read.
  explicit ByteSource(const std::string& path);
  /// Takes bytes that are already in memory; for tests.
  static ByteSource from_text(std::string text);
  ~ByteSource();
  ByteSource(ByteSource&&) noexcept;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  /// Up to `capacity` bytes: whatever is there already, waiting only if there is nothing. 0 at the end.
  std::size_t read(char* data, std::size_t capacity);
  /// Up to `count` (at most 16) of the next bytes, which read() will still return.
  std::string_view peek(std::size_t count);

  /// From now on the bytes that `program -dc` makes of this file, from its start; false if this is no file, whose start
  /// could be read again. Throws Error if the program is not there, and read() if it fails.
  bool unpack(const char* program);

  const std::string& name() const { return name_; }    // "'data.csv'" or "standard input"
  std::int64_t size() const { return size_; }          // -1 if unknown
  std::int64_t position() const { return position_; }  // bytes handed out so far

 private:
  ByteSource() = default;
  int descriptor_ = -1;
  int child_ = 0;              // the process that unpacks
  std::string unpacker_ = {};  // its name
  std::string name_, text_;    // text_: bytes not yet handed out (peeked, or the whole of a from_text source)
  std::size_t text_begin_ = 0;
  std::int64_t size_ = -1, position_ = 0;
};

struct BadRow {
  std::string message;  // a sentence
  std::string where;    // "line 7, column 'x'"
};

class RowSource {
 public:
  enum class Read { row, end, bad };
  virtual ~RowSource() = default;

  /// Column names; "1", "2", ... where the input has none.
  virtual const std::vector<std::string>& names() const = 0;
  virtual bool has_header() const = 0;
  /// What the first row says about a column.
  enum class ColumnKind { number, text, date };
  virtual ColumnKind kind(int column) = 0;
  /// The columns (from 0) that next() delivers; the others need not be numbers. Where `optional` is true a missing number
  /// is NaN, elsewhere it makes the row bad. A column with an encoder (not null) delivers as many numbers as that makes.
  virtual void select(std::vector<int> columns, std::vector<bool> optional = {},
                      std::vector<ColumnEncoder*> encoders = {}) = 0;
  /// The next row into `out`: the numbers of the selected columns, in their order.
  virtual Read next(double* out) = 0;
  /// After Read::bad.
  virtual const BadRow& bad() const = 0;
  /// Data rows read so far, good and bad.
  virtual std::int64_t rows_read() const = 0;
  /// True if the next row is already in memory, so that next() will not wait.
  virtual bool ready() const = 0;
  /// Share of the input used so far, 0..1; -1 if its size is unknown.
  virtual double share() const = 0;
  virtual const std::string& input_name() const = 0;
};

enum class HeaderLine { automatic, yes, no };

/// Opens a path ("-": standard input) and finds out what it holds.
std::unique_ptr<RowSource> open_rows(const std::string& path, HeaderLine header);

/// Turns "a,b,3,5-8" (names, or numbers from 1, or ranges of numbers) into columns from 0. A name wins over a number.
/// Throws Error that lists the columns there are.
std::vector<int> find_columns(const std::vector<std::string>& wanted, const RowSource& source,
                              const std::string& option);

/// A number in a field. `why` says what is wrong with the text otherwise: "is not a number", "is empty", ...
enum class Parsed { number, empty, text, not_finite, overflow };
Parsed parse_number(std::string_view field, double& number);
std::string_view why(Parsed);

/// True for words that stand for a number that is missing: nothing, NA, n/a, null, none, ?. (nan, which a calculation
/// leaves behind, is not one of them.)
bool means_missing(std::string_view field);

/// The one of `names` that was probably meant: the same but for case, or one is the start of the other; else empty.
std::string meant(std::string_view word, const std::vector<std::string>& names);

/// A value as it may appear in a message: shortened, without control characters.
std::string shown_value(std::string_view value);

}  // namespace ttr::cli
