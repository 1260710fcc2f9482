// A stream that is fed by JSON rows: {"temperature": 21.5, "place": "roof", "power": 3.1}.
//
// The columns are those the model was made with; other fields are not looked at. A number may be a number, true or false, or
// text that holds a number; a value that is null or not there is a question (as an empty field of a CSV file is).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "json.h"
#include "regress_input.h"
#include "regress_stream.h"

namespace ttr::cli {

/// JSON that a stranger wrote: as Json::parse, and not nested deeper than a row or the options of a model can be, since some
/// of what is done with JSON calls itself for every level.
Json parse_shallow(std::string_view text, const std::string& where);

/// One row of JSON: names and values, flat.
struct JsonRow {
  struct Field {
    std::string name, text;
    double number = std::numeric_limits<double>::quiet_NaN();
    bool null = false;
  };
  std::vector<Field> fields;
  /// Throws Error unless the JSON is an object of numbers, texts, true, false and null.
  static JsonRow from(const Json& json);
  static JsonRow parse(std::string_view text);
};

/// Rows that are pushed one by one.
class PushedRows : public RowSource {
 public:
  explicit PushedRows(std::vector<std::string> names) : names_(std::move(names)) {}
  void push(const JsonRow& row) { row_ = &row; }
  void set_rows_read(std::int64_t rows) { rows_ = rows; }

  const std::vector<std::string>& names() const override { return names_; }
  bool has_header() const override { return true; }
  ColumnKind kind(int) override { return ColumnKind::number; }
  void select(std::vector<int> columns, std::vector<bool> optional, std::vector<ColumnEncoder*> encoders) override;
  Read next(double* out) override;
  const BadRow& bad() const override { return bad_; }
  std::int64_t rows_read() const override { return rows_; }
  bool ready() const override { return row_ != nullptr; }
  double share() const override { return -1; }
  const std::string& input_name() const override { return input_name_; }

 private:
  Read refuse(int column, std::string_view what);

  std::vector<std::string> names_;
  std::string input_name_ = "the row";
  std::vector<int> columns_;
  std::vector<bool> optional_;
  std::vector<ColumnEncoder*> encoders_;
  const JsonRow* row_ = nullptr;
  BadRow bad_;
  std::int64_t rows_ = 0;
};

/// The options of a model from JSON: {"values": ["y"], "keys": ["a", "b"], "layers": ["nlms"], "lags": "1,12", ..}, with the
/// names of `ttr regress`. Throws Error for one that there is not.
RegressOptions options_from_json(const Json& json);

class ServedModel {
 public:
  explicit ServedModel(RegressOptions options);
  /// From what `ttr regress --save` or bytes() has written; `name` stands in messages.
  ServedModel(const std::string& bytes, const std::string& name);

  /// Predicts, then learns. Appends {"row": 7, "predictions": {"nlms": 3.5}, ..} to `out`. Throws Error for a bad row.
  void learn(const JsonRow& row, std::string& out);
  /// Leaves no trace.
  void predict(const JsonRow& row, std::string& out);
  /// Rows that learn() has taken, good and bad, in the model's life.
  std::int64_t rows() const { return stream_->rows_read(); }
  std::string bytes() { return stream_->model_bytes(); }
  Json describe() { return stream_->served_json(); }

 private:
  void start(RegressOptions options, const std::string& bytes);
  void answer(const double* numbers, std::string& out) const;

  PushedRows* source_ = nullptr;  // the stream owns it
  std::unique_ptr<Stream> stream_;
  struct Part {
    std::string name;  // as JSON text
    std::size_t prediction, half;
  };
  std::vector<Part> parts_;
  std::vector<std::string> value_names_;  // as JSON text
  bool intervals_ = false, classes_ = false;
};

}  // namespace ttr::cli
