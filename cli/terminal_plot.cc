#include "terminal_plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "text_table.h"

namespace ttr::cli {
namespace {

struct Span {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void add(double x) {
    if (std::isfinite(x)) low = std::min(low, x), high = std::max(high, x);
  }
  double place(double x) const { return high > low ? (x - low) / (high - low) : 0.5; }
};

}  // namespace

std::string terminal_plot(const TerminalSeries& line, const TerminalSeries& points, int columns, int rows) {
  Span x, y;
  for (const TerminalSeries* series : {&line, &points})
    for (std::size_t i = 0; i < series->x.size(); ++i)
      if (std::isfinite(series->x[i]) && std::isfinite(series->y[i])) x.add(series->x[i]), y.add(series->y[i]);
  if (!(x.low <= x.high)) return "";
  const std::string top = short_number(y.high), bottom = short_number(y.low);
  const int margin = static_cast<int>(std::max(top.size(), bottom.size())) + 2;
  const int wide = std::max(8, columns - margin - 1), dots_wide = 2 * wide, dots_high = 4 * rows;
  const auto column = [&](double at) { return static_cast<int>(std::lround(x.place(at) * (dots_wide - 1))); };
  const auto row = [&](double at) { return static_cast<int>(std::lround((1 - y.place(at)) * (dots_high - 1))); };

  // Dots of a Braille character: bits 0 1 2 6 down the left column, 3 4 5 7 down the right one.
  constexpr int bits[2][4] = {{0, 1, 2, 6}, {3, 4, 5, 7}};
  std::vector<int> cells(static_cast<std::size_t>(wide) * static_cast<std::size_t>(rows));
  const auto cell = [&](int c, int r) -> int& { return cells[static_cast<std::size_t>(r / 4 * wide + c / 2)]; };
  bool begun = false;
  int last_column = 0, last_row = 0;
  for (std::size_t i = 0; i < line.x.size(); ++i) {
    if (!std::isfinite(line.x[i]) || !std::isfinite(line.y[i])) {
      begun = false;
      continue;
    }
    const int c = column(line.x[i]), r = row(line.y[i]);
    const int steps = begun ? std::max(std::abs(c - last_column), std::abs(r - last_row)) : 0;
    for (int s = 0; s <= steps; ++s) {
      const double share = steps ? static_cast<double>(s) / steps : 1;
      const int dc = begun ? static_cast<int>(std::lround(last_column + share * (c - last_column))) : c;
      const int dr = begun ? static_cast<int>(std::lround(last_row + share * (r - last_row))) : r;
      cell(dc, dr) |= 1 << bits[dc % 2][dr % 4];
    }
    begun = true, last_column = c, last_row = r;
  }
  for (std::size_t i = 0; i < points.x.size(); ++i)
    if (std::isfinite(points.x[i]) && std::isfinite(points.y[i])) cell(column(points.x[i]), row(points.y[i])) = -1;

  std::string text;
  for (int r = 0; r < rows; ++r) {
    text += fmt::format("{:>{}} |", r == 0 ? top : r + 1 == rows ? bottom : "", margin - 2);
    std::string drawn;
    std::size_t end = 0;
    for (int c = 0; c < wide; ++c) {
      const int one = cells[static_cast<std::size_t>(r * wide + c)];
      if (one < 0) drawn += 'o';
      else if (one == 0) drawn += ' ';
      else {  // U+2800 + one in UTF-8
        const int code = 0x2800 + one;
        drawn += static_cast<char>(0xE0 | code >> 12);
        drawn += static_cast<char>(0x80 | (code >> 6 & 63));
        drawn += static_cast<char>(0x80 | (code & 63));
      }
      if (one != 0) end = drawn.size();
    }
    text += drawn.substr(0, end) + "\n";
  }
  const std::string left = fmt::format("{:.6g}", x.low), right = fmt::format("{:.6g}", x.high);
  const int gap = std::max(1, wide - static_cast<int>(left.size() + right.size()));
  return text + std::string(static_cast<std::size_t>(margin), ' ') + left +
         std::string(static_cast<std::size_t>(gap), ' ') + right + "\n";
}

}  // namespace ttr::cli
