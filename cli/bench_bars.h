// Bars for the reports of `ttr bench`: what was reached of what the machine permits.
#pragma once

#include <string>
#include <vector>

namespace ttr::cli {

struct Bar {
  std::string label;  // "gla forward d=64, 1 thread"
  double share = 0;   // of the limit; 1 is all of it
  std::string note;   // beside the bar: "420k tokens/s"
  int hue = 0;        // 0..6
};

struct BarChart {
  std::string title, axis;
  std::vector<Bar> bars;
  std::vector<std::pair<int, std::string>> hues;  // what the colours mean
};

std::string bars_svg(const BarChart&);
/// The page of report_html with the figure before its first table.
std::string with_figure(std::string html, const std::string& svg, const std::string& caption);

}  // namespace ttr::cli
