// A small plot of text: lines in dots of Braille, two wide and four high in a character, and points over them.
#pragma once

#include <string>
#include <vector>

namespace ttr::cli {

struct TerminalSeries {
  std::vector<double> x, y;  // numbers that are not finite are left out
};

/// `columns` wide in all, with `rows` lines of plot and one of the x axis. Points are drawn as `o`.
std::string terminal_plot(const TerminalSeries& line, const TerminalSeries& points, int columns, int rows);

}  // namespace ttr::cli
