#include "report.h"

#include <cmath>

#include <fmt/format.h>

#include "json.h"
#include "report_script.h"

namespace ttr::cli {
namespace {

constexpr const char* page_css = R"(
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 32px 28px 60px; max-width: 1120px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 6px; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 8px; }
.lead, figcaption, .caption, footer { color: var(--soft); } .lead { margin: 0 0 20px; max-width: 70ch; }
.merits { display: flex; flex-wrap: wrap; gap: 10px; margin: 0 0 24px; padding: 0; list-style: none; }
.merits li { border: 1px solid var(--grid); border-radius: 8px; padding: 8px 16px 9px; min-width: 120px; }
.merits span { display: block; font-size: 12.5px; color: var(--soft); } .merits b { font-size: 19px; font-weight: 620;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
figure { margin: 26px 0; } figure svg { max-width: 100%; height: auto; display: block; }
figcaption, .caption { font-size: 13.5px; max-width: 90ch; }
figcaption small { display: block; font-size: 12.5px; }
.narrow { display: none; }
@media (max-width: 700px) { .wide { display: none; } .narrow { display: block; } body { padding: 18px 12px 40px; }
  h1 { font-size: 20px; } th, td { padding-right: 10px; font-size: 13px; } .merits li { flex: 1 1 40%; min-width: 0; padding: 6px 10px; }
  .merits b { font-size: 16px; } dl { display: block; } dd { margin-bottom: 8px; } }
.scroll { overflow-x: auto; margin: 6px 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 14px 5px 0; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--grid); }
th { font-weight: 600; color: var(--soft); font-size: 13px; }
th:first-child, td:first-child { text-align: left; padding-left: 6px; position: sticky; left: 0; background: var(--paper); }
tr.best td { font-weight: 650; } tbody tr:hover td { background: var(--grid); }
td.text { text-align: left; white-space: normal; } code { font: 13px ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: 13.5px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; margin: 8px 0;
  padding: 12px 14px; border: 1px solid var(--grid); border-radius: 6px; }
dl { display: grid; grid-template-columns: fit-content(280px) 1fr; gap: 4px 18px; } dt { color: var(--soft); } dd { margin: 0; min-width: 0; }
footer { margin-top: 40px; font-size: 13px; }
)";

// The numbers of a plot, for the script; `<` would end it.
std::string plot_data(const Plot& plot) {
  const auto list = [](const std::vector<double>& numbers) {
    std::string s = "[";
    for (const double x : numbers)
      s += (s.size() > 1 ? "," : "") + (std::isfinite(x) ? fmt::format("{:.7g}", x) : std::string("null"));
    return s + "]";
  };
  const auto text = [](const std::string& words) {
    std::string s;
    for (const char c : Json(words).dump(-1)) s += c == '<' ? std::string("\\u003c") : std::string(1, c);
    return s;
  };
  std::string lines, bands, marks;
  for (const Line& line : plot.lines)
    lines += fmt::format("{}{{\"label\":{},\"hue\":{},\"x\":{},\"y\":{}}}", lines.empty() ? "" : ",",
                         text(line.label), line.hue < 0 ? -1 : line.hue % 7, list(line.x), list(line.y));
  for (const Band& band : plot.bands)
    bands += fmt::format("{}{{\"x\":{},\"low\":{},\"high\":{}}}", bands.empty() ? "" : ",", list(band.x),
                         list(band.low), list(band.high));
  for (const Plot::Mark& mark : plot.marks) marks += fmt::format("{}{{\"x\":{}}}", marks.empty() ? "" : ",", mark.x);
  return fmt::format("{{\"x\":{},\"sorted\":{},\"lines\":[{}],\"bands\":[{}],\"marks\":[{}]}}", text(plot.x_label),
                     plot.legend_by_end, lines, bands, marks);
}

std::string table_html(const Report::Table& table) {
  std::string s = "<div class=\"scroll\"><table>\n<tr>";
  for (const std::string& cell : table.header) s += "<th>" + escape_markup(cell) + "</th>";
  s += "</tr>\n";
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    s += static_cast<int>(r) == table.emphasised ? "<tr class=\"best\">" : "<tr>";
    for (const std::string& cell : table.rows[r]) s += "<td>" + escape_markup(cell) + "</td>";
    s += "</tr>\n";
  }
  s += "</table></div>\n";
  if (!table.caption.empty()) s += "<p class=\"caption\">" + escape_markup(table.caption) + "</p>\n";
  return s;
}

}  // namespace

std::string report_html(const Report& report) {
  std::string s = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>{}</title>\n<style>\n{}{}</style>\n"
      "</head>\n<body>\n<h1>{}</h1>\n<p class=\"lead\">{}</p>\n",
      escape_markup(report.title), plot_css(), page_css + std::string(report.figures.empty() ? "" : report_css),
      escape_markup(report.title), escape_markup(report.subtitle));
  if (!report.figures_of_merit.empty()) {
    s += "<ul class=\"merits\">\n";
    for (const auto& [name, value] : report.figures_of_merit)
      s += "<li><span>" + escape_markup(name) + "</span><b>" + escape_markup(value) + "</b></li>\n";
    s += "</ul>\n";
  }
  // The first table says what the run is worth; the others are read by those who have seen the plots.
  if (!report.tables.empty()) s += table_html(report.tables.front());
  int number = 0;
  for (const Report::Figure& figure : report.figures) {
    number += 2;
    s += "<figure>\n<div class=\"wide\">" + plot_svg(figure.plot, false, number - 1) +
         "</div>\n<div class=\"narrow\">" + plot_svg(narrow(figure.plot), false, number) +
         "</div>\n<button type=\"button\" class=\"reset\">whole plot</button>\n<figcaption>" +
         escape_markup(figure.caption) + "</figcaption>\n<script type=\"application/json\">" +
         plot_data(figure.plot) + "</script>\n</figure>\n";
  }
  for (std::size_t t = 1; t < report.tables.size(); ++t) s += table_html(report.tables[t]);
  for (const Report::Text& text : report.texts)
    s += "<h2>" + escape_markup(text.title) + "</h2>\n<p class=\"caption\">" + escape_markup(text.caption) +
         "</p>\n<pre>" + escape_markup(text.body) + "</pre>\n";
  for (const std::string& note : report.notes) s += "<p>" + escape_markup(note) + "</p>\n";
  if (!report.facts.empty()) {
    s += "<h2>How this was made</h2>\n<dl>\n";
    for (const auto& [name, value] : report.facts)
      s += "<dt>" + escape_markup(name) + "</dt><dd><code>" + escape_markup(value) + "</code></dd>\n";
    s += "</dl>\n";
  }
  s += "<footer>Made by ttr, test-time regression.";
  if (!report.figures.empty())
    s += " In plots: point at a place to read its numbers, drag to zoom in, double-click to go back, click on a name "
         "to hide "
         "its line.";
  s += "</footer>\n";
  if (!report.figures.empty()) s += std::string("<script>") + report_script + "</script>\n";
  return s + "</body>\n</html>\n";
}

}  // namespace ttr::cli
