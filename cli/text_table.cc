#include "text_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace ttr::cli {

TextTable::TextTable(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void TextTable::row(std::vector<std::string> cells) {
  cells.resize(rows_[0].size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::text() const {
  std::vector<std::size_t> width(rows_[0].size());
  for (const auto& row : rows_)
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], display_width(row[c]));
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string blank(width[c] - display_width(row[c]), ' ');
      line += c == 0 ? row[c] + blank : "  " + blank + row[c];
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
    if (&row == &rows_[0]) {
      std::size_t total = 0;
      for (std::size_t w : width) total += w;
      out += std::string(total + 2 * (width.size() - 1), '-') + "\n";
    }
  }
  return out;
}

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string short_number(double number) {
  if (std::isnan(number)) return "-";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  const double size = std::abs(number);
  if (size == 0) return "0";
  if (size < 1e-4 || size >= 1e6) return fmt::format("{:.2e}", number);
  const int digits = std::clamp(2 - static_cast<int>(std::floor(std::log10(size))), 0, 7);
  return fmt::format("{:.{}f}", number, digits);
}

std::string short_bytes(double bytes) {
  if (std::isnan(bytes)) return "-";
  const char* units[] = {"B", "KB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) bytes /= 1024, ++unit;
  return unit == 0 || bytes >= 99.5 ? fmt::format("{:.0f} {}", bytes, units[unit])
                                    : fmt::format("{:.3g} {}", bytes, units[unit]);
}

}  // namespace ttr::cli
