#include "plot.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "text_table.h"

namespace ttr::cli {
namespace {

constexpr const char* lone_point = "m-4 0h8";  // a line of one point would not be seen
constexpr const char* dashes[] = {"", "7 4", "1.5 3.5", "9 3 2 3"};

struct Axis {
  double low = 0, high = 1;  // in data units
  bool log = false;
  double at(double value) const {  // 0..1, clamped
    const double a = log ? std::log10(low) : low, b = log ? std::log10(high) : high;
    const double v = log ? std::log10(std::max(value, low)) : std::clamp(value, -1e301, 1e301);
    return std::clamp((v - a) / (b - a), -0.05, 1.05);
  }
};

/// The range of the finite values, without far ends: a layer that diverges must not flatten the others. The top is 30
/// times what the middle one of the lines reaches in its 98th percentile - more if that would hide a whole line
/// within five decades - and the span twelve decades at most; on a linear axis, three times the range of the middle
/// line beyond that range.
Axis y_axis(const Plot& plot) {
  std::vector<double> all, lows, highs, medians;
  for (const Line& line : plot.lines) {
    std::vector<double> one;
    for (double y : line.y)
      if (std::isfinite(y) && (!plot.log_y || y > 0)) one.push_back(y);
    if (one.empty()) continue;
    std::sort(one.begin(), one.end());
    const double last = static_cast<double>(one.size() - 1);
    lows.push_back(one[static_cast<std::size_t>(0.02 * last)]);
    highs.push_back(one[static_cast<std::size_t>(0.98 * last)]);
    medians.push_back(one[static_cast<std::size_t>(0.5 * last)]);
    all.insert(all.end(), {one.front(), one.back()});
  }
  // The edges of bands widen the range but do not say how far it may reach.
  for (const Band& band : plot.bands)
    for (const std::vector<double>* edge : {&band.low, &band.high}) {
      std::vector<double> one;
      for (double y : *edge)
        if (std::isfinite(y) && (!plot.log_y || y > 0)) one.push_back(y);
      if (one.empty()) continue;
      std::sort(one.begin(), one.end());
      const double last = static_cast<double>(one.size() - 1);
      all.insert(all.end(), {one[static_cast<std::size_t>(0.02 * last)], one[static_cast<std::size_t>(0.98 * last)]});
    }
  Axis axis;
  axis.log = plot.log_y;
  if (highs.empty()) {
    if (plot.log_y) axis.low = 0.1;
    return axis;
  }
  auto middle = [](std::vector<double>& v) {
    std::sort(v.begin(), v.end());
    return v[(v.size() - 1) / 2];
  };
  const double low = middle(lows), high = middle(highs);
  const auto [least, most] = std::minmax_element(all.begin(), all.end());
  axis.low = *least, axis.high = *most;
  if (plot.log_y) {
    double top = 30 * high;
    for (double median : medians)
      if (median <= 1e5 * high) top = std::max(top, 1.5 * median);
    if (!plot.whole_range) {
      axis.high = std::min(axis.high, top);
      axis.low = std::max({axis.low, 0.1 * lows.front(), axis.high * 1e-12});
    }
    axis.low /= 1.15, axis.high *= 1.15;
    if (!(axis.high > axis.low * 1.3)) axis.low /= 2, axis.high *= 2;
  } else {
    const double reach = 3 * (high - low);
    if (reach > 0 && !plot.whole_range)
      axis.high = std::min(axis.high, high + reach), axis.low = std::max(axis.low, low - reach);
    double margin = 0.05 * (axis.high - axis.low);
    if (!(margin > 0) || !std::isfinite(margin)) margin = std::max(0.5, 0.1 * std::abs(axis.high));
    axis.low = std::max(axis.low - margin, -1e300), axis.high = std::min(axis.high + margin, 1e300);
  }
  return axis;
}

Axis x_axis(const Plot& plot) {
  Axis axis;
  axis.log = plot.log_x;
  bool any = false;
  for (const Line& line : plot.lines)
    for (double x : line.x) {
      axis.low = any ? std::min(axis.low, x) : x, axis.high = any ? std::max(axis.high, x) : x;
      any = true;
    }
  if (!(axis.high > axis.low)) {
    if (axis.log) axis.low /= 2, axis.high *= 2;
    else axis.low -= 0.5, axis.high += 0.5;
  }
  return axis;
}

std::string tick_text(double value, double step) {
  if (std::abs(value) < step * 1e-9) return "0";
  const double size = std::abs(value);
  if (size >= 1e7 || size < 1e-3) return fmt::format("{:.4g}", value);
  return fmt::format("{:.10g}", std::round(value / step * 1e3) * step / 1e3);
}

std::string log_text(double value) {
  if (value >= 0.0009 && value < 1e5) return fmt::format("{:.6g}", value);
  const int exponent = static_cast<int>(std::floor(std::log10(value) + 1e-9));
  return fmt::format("{:.0f}e{}", value / std::pow(10, exponent), exponent);
}

double last_finite(const Line& line) {
  for (std::size_t i = line.y.size(); i-- > 0;)
    if (std::isfinite(line.y[i])) return line.y[i];
  return -INFINITY;
}

}  // namespace

std::vector<double> linear_ticks(double low, double high, int about) {
  const double raw = (high - low) / std::max(about, 1), power = std::pow(10, std::floor(std::log10(raw)));
  double step = power;
  for (double factor : {1.0, 2.0, 5.0, 10.0})
    if (factor * power >= raw * 0.999) {
      step = factor * power;
      break;
    }
  std::vector<double> ticks;
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + step * 1e-9 && ticks.size() < 50; ++k)
    ticks.push_back(k * step);
  return ticks;
}

std::vector<double> log_ticks(double low, double high) {
  const int first = static_cast<int>(std::floor(std::log10(low))),
            last = static_cast<int>(std::ceil(std::log10(high)));
  const double decades = std::log10(high / low);
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / 8)));
  std::vector<double> ticks;
  for (int e = first; e <= last; e += stride)
    for (double m : {1.0, 2.0, 5.0}) {
      if (m != 1.0 && decades > 3.3) continue;
      const double tick = m * std::pow(10, e);
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push_back(tick);
    }
  return ticks.size() < 3 && decades < 1.5 ? linear_ticks(low, high, 4) : ticks;
}

std::string escape_markup(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t length = byte < 0x80                   ? 1
                               : byte >= 0xc2 && byte < 0xe0 ? 2
                               : (byte & 0xf0) == 0xe0       ? 3
                               : byte >= 0xf0 && byte < 0xf5 ? 4
                                                             : 0;
    bool valid = length > 0 && i + length <= text.size();
    for (std::size_t j = 1; valid && j < length; ++j)
      valid = (static_cast<unsigned char>(text[i + j]) & 0xc0) == 0x80;
    if (!valid || (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) {
      out += '?', ++i;
      continue;
    }
    switch (text[i]) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += text.substr(i, length);
    }
    i += length;
  }
  return out;
}

std::string plot_css() {
  return R"(:root { color-scheme: light dark; --paper: #ffffff; --ink: #1d2126; --soft: #5b6570; --grid: #e3e7eb; --edge: #9aa4ae;
  --h0: #0067b1; --h1: #c8500a; --h2: #00805a; --h3: #a3458a; --h4: #b07b00; --h5: #3f9fd8; --h6: #6b4fbb; --hn: #4a4f55; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --ink: #e6e9ec; --soft: #a2acb6; --grid: #2b3138; --edge: #69747f;
  --h0: #5aa9f0; --h1: #ff8b4d; --h2: #3fcb9b; --h3: #e88bcb; --h4: #f0bf4c; --h5: #9ad8ff; --h6: #b7a2ff; --hn: #c9ced3; } }
.plot text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: var(--ink); }
.plot .title { font-size: 15px; font-weight: 600; } .plot .soft { fill: var(--soft); }
.plot .grid { stroke: var(--grid); } .plot .edge { stroke: var(--edge); fill: none; }
.plot .mark { stroke: var(--soft); stroke-dasharray: 2 3; }
.plot .band { fill-opacity: 0.17; stroke: none; }
.plot .line { fill: none; stroke-linejoin: round; stroke-linecap: butt; }
.h0 { stroke: var(--h0); } .h1 { stroke: var(--h1); } .h2 { stroke: var(--h2); } .h3 { stroke: var(--h3); }
.h4 { stroke: var(--h4); } .h5 { stroke: var(--h5); } .h6 { stroke: var(--h6); } .hn { stroke: var(--hn); }
.f0 { fill: var(--h0); } .f1 { fill: var(--h1); } .f2 { fill: var(--h2); } .f3 { fill: var(--h3); }
.f4 { fill: var(--h4); } .f5 { fill: var(--h5); } .f6 { fill: var(--h6); } .fn { fill: var(--hn); }
)";
}

Plot narrow(Plot plot) {
  plot.width = 400, plot.legend_below = true;
  plot.height = std::min(plot.height, 340) + 20 * static_cast<int>(plot.lines.size());
  return plot;
}

std::string plot_svg(const Plot& plot, bool standalone, int number) {
  std::size_t longest = 0;
  for (const Line& line : plot.lines) longest = std::max(longest, display_width(line.label));
  const int legend = std::clamp(static_cast<int>(7 * longest) + 56, 120, 330);
  const int left = plot.legend_below ? 64 : 78, right = plot.legend_below ? 10 : legend,
            top = plot.title.empty() ? 16 : 42,
            bottom = plot.legend_below ? 54 + 20 * static_cast<int>(plot.lines.size()) : 48;
  const int w = plot.width - left - right, h = plot.height - top - bottom;
  const Axis ax = x_axis(plot), ay = y_axis(plot);
  auto px = [&](double x) { return left + ax.at(x) * w; };
  auto py = [&](double y) { return top + (1 - ay.at(y)) * h; };
  auto fill = [](const Band& band) { return band.hue < 0 ? std::string("fn") : fmt::format("f{}", band.hue % 7); };
  auto hue = [](const Line& line) { return line.hue < 0 ? std::string("hn") : fmt::format("h{}", line.hue % 7); };
  auto stroke = [&](const Line& line) {
    const char* dash = dashes[line.dash & 3];
    return fmt::format("class=\"line {}\" stroke-width=\"{}\"{}", hue(line), line.width,
                       *dash ? fmt::format(" stroke-dasharray=\"{}\"", dash) : std::string());
  };

  const std::string clip = fmt::format("clip{}", number);
  std::string s = fmt::format(
      "<svg class=\"plot\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" "
      "role=\"img\" aria-label=\"{}\" data-box=\"{} {} {} {}\" data-view=\"{} {} {} {}\" data-log-x=\"{}\" "
      "data-log-y=\"{}\">\n",
      plot.width, plot.height, plot.width, plot.height, escape_markup(plot.title.empty() ? plot.y_label : plot.title),
      left, top, w, h, ax.low, ax.high, ay.low, ay.high, ax.log ? 1 : 0, ay.log ? 1 : 0);
  if (standalone)
    s += "<style>" + plot_css() + "</style>\n" +
         fmt::format("<rect width=\"{}\" height=\"{}\" style=\"fill: var(--paper)\"/>\n", plot.width, plot.height);
  if (!plot.title.empty())
    s += fmt::format("<text class=\"title\" x=\"{}\" y=\"24\">{}</text>\n", left, escape_markup(plot.title));
  s += fmt::format("<clipPath id=\"{}\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>\n", clip,
                   left, top, w, h);

  const std::vector<double> xt =
      ax.log ? log_ticks(ax.low, ax.high) : linear_ticks(ax.low, ax.high, std::max(2, w / 90));
  const std::vector<double> yt =
      ay.log ? log_ticks(ay.low, ay.high) : linear_ticks(ay.low, ay.high, std::max(2, h / 55));
  s += "<g class=\"ticks\">\n";
  for (double x : xt)
    s += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/><text x=\"{0:.1f}\" y=\"{3}\" "
        "text-anchor=\"{5}\">{4}</text>\n",
        px(x), top, top + h, top + h + 17, ax.log ? log_text(x) : tick_text(x, xt.size() > 1 ? xt[1] - xt[0] : 1),
        px(x) > left + w - 16 ? "end" : "middle");  // a long number at the edge would be cut off
  for (double y : yt)
    s += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/><text x=\"{3}\" y=\"{4:.1f}\" "
        "text-anchor=\"end\">{5}</text>\n",
        left, left + w, py(y), left - 7, py(y) + 4,
        ay.log ? log_text(y) : tick_text(y, yt.size() > 1 ? yt[1] - yt[0] : 1));
  s += "</g>\n";
  s += fmt::format("<rect class=\"edge\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", left, top, w, h);
  s += fmt::format("<text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", left + w / 2,
                   top + h + 38, escape_markup(plot.x_label));
  s += fmt::format(
      "<text class=\"soft\" transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      top + h / 2, escape_markup(plot.y_label));
  for (std::size_t m = 0; m < plot.marks.size(); ++m) {
    const Plot::Mark& mark = plot.marks[m];
    s += fmt::format(
        "<line class=\"mark\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" data-mark=\"{6}\"/><text "
        "class=\"soft\" x=\"{3:.1f}\" y=\"{4}\" data-mark=\"{6}\">{5}</text>\n",
        px(mark.x), top, top + h, px(mark.x) + 5, top + h - 8 - 14 * static_cast<int>(m % 3),
        escape_markup(mark.label), m);
  }

  s += fmt::format("<g clip-path=\"url(#{})\">\n", clip);
  for (const Band& band : plot.bands) {
    std::string path;
    for (std::size_t i = 0; i < band.x.size();) {
      std::size_t end = i;
      while (end < band.x.size() && std::isfinite(band.low[end]) && std::isfinite(band.high[end])) ++end;
      for (std::size_t j = i; j < end; ++j)
        path += fmt::format("{}{:.1f} {:.1f}", j == i ? "M" : "L", px(band.x[j]), py(band.high[j]));
      for (std::size_t j = end; j-- > i;) path += fmt::format("L{:.1f} {:.1f}", px(band.x[j]), py(band.low[j]));
      if (end > i) path += "Z";
      i = end + 1;
    }
    if (!path.empty())
      s += fmt::format("<path class=\"band {}\" d=\"{}\" data-band=\"{}\"/>\n", fill(band), path,
                       &band - plot.bands.data());
  }
  for (const Line& line : plot.lines) {
    std::string path;
    bool pen_down = false;
    std::size_t run = 0;  // points since the pen came down
    for (std::size_t i = 0; i < line.x.size() && i < line.y.size(); ++i) {
      if (!std::isfinite(line.y[i])) {
        if (run == 1) path += lone_point;
        pen_down = false, run = 0;
        continue;
      }
      path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", px(line.x[i]), py(line.y[i]));
      pen_down = true, ++run;
    }
    if (run == 1) path += lone_point;
    if (!path.empty())
      s += fmt::format("<path {} d=\"{}\" data-line=\"{}\"><title>{}</title></path>\n", stroke(line), path,
                       &line - plot.lines.data(), escape_markup(line.label));
    const bool crowded = static_cast<int>(line.x.size()) > w / 12, too_many = static_cast<int>(line.x.size()) > w / 3;
    for (std::size_t i = 0; line.points && !too_many && i < line.x.size() && i < line.y.size(); ++i)
      if (std::isfinite(line.y[i]))
        s += fmt::format(
            "<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" data-line=\"{}\" data-i=\"{}\"/>\n",
            line.hue < 0 ? std::string("fn") : fmt::format("f{}", line.hue % 7), px(line.x[i]), py(line.y[i]),
            crowded ? 1.9 : 3.0, &line - plot.lines.data(), i);
  }
  s += "</g>\n";

  // In the order in which the lines end, top to bottom, eye and line meet.
  std::vector<std::size_t> order(plot.lines.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (plot.legend_by_end)
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return last_finite(plot.lines[a]) > last_finite(plot.lines[b]);
    });
  const double pitch =
      plot.legend_below ? 20 : std::min(22.0, static_cast<double>(h) / std::max<std::size_t>(order.size(), 1));
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Line& line = plot.lines[order[i]];
    const double y = (plot.legend_below ? top + h + 56 : top + 10) + pitch * static_cast<double>(i);
    const int x = plot.legend_below ? 12 : left + w + 12;
    std::string label = line.label;
    if (display_width(label) > 38) {
      std::size_t cut = 0, shown = 0;
      while (cut < label.size() && (shown < 36 || (static_cast<unsigned char>(label[cut]) & 0xc0) == 0x80))
        shown += (static_cast<unsigned char>(label[cut++]) & 0xc0) != 0x80;
      label = label.substr(0, cut) + "\u2026";
    }
    s += fmt::format(
        "<g class=\"entry\" data-entry=\"{}\"><path {} d=\"M{} {:.1f}h30\"/><text x=\"{}\" "
        "y=\"{:.1f}\">{}<title>{}</title></text></g>\n",
        order[i], stroke(line), x, y, x + 36, y + 4, escape_markup(label), escape_markup(line.label));
  }
  return s + "</svg>\n";
}

}  // namespace ttr::cli
