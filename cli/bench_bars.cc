#include "bench_bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plot.h"
#include "text_table.h"

namespace ttr::cli {

std::string bars_svg(const BarChart& chart) {
  std::size_t longest = 0, notes = 0;
  double most = 1;
  for (const Bar& bar : chart.bars) {
    longest = std::max(longest, display_width(bar.label)), notes = std::max(notes, display_width(bar.note));
    if (std::isfinite(bar.share)) most = std::max(most, bar.share);
  }
  const int pitch = 22, top = 66, width = 980, bottom = 44;
  const int left = std::clamp(static_cast<int>(6.6 * static_cast<double>(longest)) + 18, 120, 460);
  const int right = std::clamp(static_cast<int>(6.6 * static_cast<double>(notes)) + 18, 40, 300),
            w = width - left - right;
  const int h = pitch * static_cast<int>(chart.bars.size()), height = top + h + bottom;
  const auto at = [&](double share) { return left + share / most * w; };
  std::string s = fmt::format(
      "<svg class=\"plot\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "role=\"img\" aria-label=\"{2}\">\n<text class=\"title\" x=\"12\" y=\"24\">{2}</text>\n",
      width, height, escape_markup(chart.title));
  int x = 12;
  for (const auto& [hue, meaning] : chart.hues) {
    s += fmt::format(
        "<rect x=\"{}\" y=\"38\" width=\"14\" height=\"12\" style=\"fill: var(--h{})\"/><text x=\"{}\" "
        "y=\"48\">{}</text>\n",
        x, hue % 7, x + 20, escape_markup(meaning));
    x += 44 + static_cast<int>(6.6 * static_cast<double>(display_width(meaning)));
  }
  for (const double tick : linear_ticks(0, 100 * most, 8))
    s += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/><text x=\"{0:.1f}\" y=\"{3}\" "
        "text-anchor=\"middle\">{4:.0f} %</text>\n",
        at(tick / 100), top, top + h, top + h + 16, std::abs(tick));
  for (std::size_t i = 0; i < chart.bars.size(); ++i) {
    const Bar& bar = chart.bars[i];
    const int y = top + pitch * static_cast<int>(i);
    const double share = std::isfinite(bar.share) ? std::max(bar.share, 0.0) : 0;
    s += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" "
        "style=\"fill: var(--h{})\"><title>{}: {:.0f} %</title></rect><text class=\"soft\" x=\"{:.1f}\" "
        "y=\"{}\">{}</text>\n",
        left - 8, y + 15, escape_markup(bar.label), left, y + 4, share / most * w, pitch - 8, bar.hue % 7,
        escape_markup(bar.label), 100 * share, at(share) + 6, y + 15, escape_markup(bar.note));
  }
  s += fmt::format("<line class=\"edge\" x1=\"{0}\" x2=\"{0}\" y1=\"{1}\" y2=\"{2}\"/>\n", left, top, top + h);
  s += fmt::format("<line class=\"mark\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>\n", at(1), top - 6,
                   top + h);
  return s + fmt::format("<text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n</svg>\n",
                         left + w / 2, height - 8, escape_markup(chart.axis));
}

std::string with_figure(std::string html, const std::string& svg, const std::string& caption) {
  std::size_t place = html.find("<div class=\"scroll\">");
  if (place == std::string::npos) place = html.find("<footer>");
  if (place == std::string::npos) place = html.size();
  return html.insert(place,
                     "<figure>\n" + svg + "<figcaption>" + escape_markup(caption) + "</figcaption>\n</figure>\n");
}

}  // namespace ttr::cli
