// NDJSON: one JSON object per line.
//
//   {"day": "2024-02-29", "x": 1.5, "weather": {"wind": 3}, "y": null}
//
// Columns are the fields of the first object, those of an object within it as weather.wind. Later rows may have them in any
// order; a field that is absent or null is missing, and one that the first row does not have is not looked at. true and false are 1 and
// 0. A list is no number and no word: a row is bad if such a field is used.
#pragma once

#include "json.h"
#include "regress_input.h"

namespace ttr::cli {

class NdjsonReader : public RowSource {
 public:
  explicit NdjsonReader(ByteSource bytes);

  const std::vector<std::string>& names() const override { return names_; }
  bool has_header() const override { return true; }
  ColumnKind kind(int column) override;
  void select(std::vector<int> columns, std::vector<bool> optional = {},
              std::vector<ColumnEncoder*> encoders = {}) override {
    selected_ = std::move(columns), optional_ = std::move(optional), encoders_ = std::move(encoders);
  }
  Read next(double* out) override;
  const BadRow& bad() const override { return bad_; }
  std::int64_t rows_read() const override { return rows_; }
  bool ready() const override;
  double share() const override;
  const std::string& input_name() const override { return bytes_.name(); }

 private:
  bool read_line();  // the next line that is not empty, as fields_; false at the end
  Read refuse(std::string message, std::string where);

  ByteSource bytes_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  bool at_end_ = false, pending_ = false;
  FlatJson fields_;
  std::string not_an_object_;  // why the line could not be read
  std::vector<std::string> names_;
  std::vector<const FlatJson::Field*> row_;  // by column; null: absent
  std::vector<int> selected_;
  std::vector<bool> optional_;
  std::vector<ColumnEncoder*> encoders_;
  BadRow bad_;
  std::int64_t rows_ = 0, line_ = 0;
};

}  // namespace ttr::cli
