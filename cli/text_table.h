// Columns of text that line up: the first column to the left, numbers to the right.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ttr::cli {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  void row(std::vector<std::string> cells);  // shorter rows are filled with blanks
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// Columns a text takes on a terminal: code points of UTF-8, not bytes.
std::size_t display_width(std::string_view text);
/// Three significant digits for a person: "0.0168", "53.9", "1.2e-07", "inf"; "-" for NaN.
std::string short_number(double number);
/// "512 B", "33 KB", "1.2 MB".
std::string short_bytes(double bytes);

}  // namespace ttr::cli
