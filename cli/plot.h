// A line plot as SVG, with its legend: no script, no network, light and dark by CSS.
//
// Lines are told apart by colour (seven hues that people with colour blindness can tell apart, and a neutral one)
// and by dash, so that related lines may share a hue.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ttr::cli {

struct Line {
  std::string label;
  std::vector<double> x, y;  // a number that is not finite breaks the line
  int hue = 0;               // 0..6, or -1 for neutral
  int dash = 0;              // 0 solid, 1 dashed, 2 dotted, 3 dash-dot
  double width = 1.8;
  bool points = false;  // a dot at every point, if they are few enough to be told apart
};

/// A filled area, drawn beneath the lines.
struct Band {
  std::vector<double> x, low, high;  // a number that is not finite leaves a gap
  int hue = 0;
};

struct Plot {
  std::string title, x_label, y_label;
  bool log_x = false, log_y = false;
  bool whole_range = false;    // far ends too, where they are what the plot is about
  bool legend_by_end = false;  // legend in the order in which the lines end, else as given
  std::vector<Line> lines;
  std::vector<Band> bands;
  struct Mark {
    double x;
    std::string label;
  };
  std::vector<Mark> marks;  // vertical lines
  int width = 980, height = 460;
  bool legend_below = false;  // a line per entry under the plot, which grows by them; else beside it
};

/// The same plot for a narrow page: text keeps its size.
Plot narrow(Plot plot);

/// The colours, as CSS custom properties and classes for plot_svg's elements; for the head of a page.
std::string plot_css();
/// The plot; `standalone` gives a complete file with its own colours and background.
/// Plots on one page need different numbers.
std::string plot_svg(const Plot&, bool standalone = false, int number = 1);

/// Places of ticks that cover [low, high] without crowding.
std::vector<double> linear_ticks(double low, double high, int about);
std::vector<double> log_ticks(double low, double high);

/// & < > " become entities; control characters and bytes that are not UTF-8 become a question mark.
std::string escape_markup(std::string_view text);

}  // namespace ttr::cli
