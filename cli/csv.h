// CSV rows, one at a time, from a buffer of one block: no allocation per row. Most rows are plain numbers, which are read
// in one pass over their bytes; whatever is not plain takes the other way, cut into fields first.
//
// Separator: tab if the first line has one outside quotes, else semicolon, else bar, else comma; blanks, any number of
// them, if it has none of these and the second line has as many words. Where the separator is not the comma a comma in a
// number is its decimal point. Lines that start with # are comments. Quotes as in RFC 4180: a
// quoted field may hold separators, line ends and doubled quotes. Line ends \n, \r\n or a lone \r at the end of the
// input; a byte-order mark is skipped; lines without any character are skipped.
// Header: automatic = the first line is one if any field is neither a number, nor a word for a missing number; so a first row with a missing number is data, and reported as bad.
// Trap: a stray quote swallows the rest of the input as one field; rows above 16 MB are refused.
#pragma once

#include "regress_input.h"

namespace ttr::cli {

class CsvReader : public RowSource {
 public:
  explicit CsvReader(ByteSource bytes, HeaderLine header = HeaderLine::automatic);

  const std::vector<std::string>& names() const override { return names_; }
  bool has_header() const override { return has_header_; }
  ColumnKind kind(int column) override;
  void select(std::vector<int> columns, std::vector<bool> optional = {},
              std::vector<ColumnEncoder*> encoders = {}) override;
  Read next(double* out) override;
  const BadRow& bad() const override { return bad_; }
  std::int64_t rows_read() const override { return rows_; }
  bool ready() const override;
  double share() const override;
  const std::string& input_name() const override { return bytes_.name(); }
  char separator() const { return separator_; }

 private:
  // The next row if it is plain: whole in the buffer, nothing quoted, as many fields as the others, decimal numbers of at
  // most 15 digits where numbers belong. False: nothing has happened, and the row is for read_fields().
  bool plain_row(double* out);
  bool fill();           // more bytes behind the buffered ones; false at the end of the input
  bool read_fields();    // the next line that is not empty into fields_; false at the end
  bool split_line();     // one line into fields_
  void skip_comments();  // of which there may be several before the first line
  void detect_separator();
  std::size_t line_end(std::size_t from);  // the place of the next line end outside quotes
  Parsed parse(std::string_view field, double& number) const;
  Read refuse(std::string message, std::string where);

  ByteSource bytes_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // the bytes not yet used
  std::size_t whole_ = 0;            // behind the last line end in the buffer
  bool at_end_ = false;
  bool pending_ = false;     // fields_ hold a row that next() has not delivered yet
  bool open_quote_ = false;  // the line ended inside quotes
  char separator_ = ',';
  std::vector<std::string_view> fields_;
  std::vector<std::string> names_;
  bool has_header_ = false;
  std::vector<int> selected_;
  std::vector<bool> optional_;
  std::vector<ColumnEncoder*> encoders_;
  struct Target {  // of a field: a place in what next() delivers
    int column;
    std::size_t place;
    ColumnEncoder* encoder;
  };
  std::vector<Target> targets_;          // by column
  std::vector<std::string_view> texts_;  // fields for encoders, of one row
  BadRow bad_;
  std::int64_t rows_ = 0, line_ = 0, next_line_ = 1;  // line_: where the current row starts
};

/// A field as it must be written: quoted if it holds a separator, a quote or a line end.
std::string csv_field(std::string_view text);

}  // namespace ttr::cli
