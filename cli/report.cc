#include "report.h"

#include <fmt/format.h>

namespace ttr::cli {
namespace {

constexpr const char* page_css = R"(
body { margin: 0 auto; padding: 28px 24px 60px; max-width: 1010px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 25px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 34px 0 8px; }
.lead, figcaption, .caption, footer { color: var(--soft); } .lead { margin: 0 0 18px; }
figure { margin: 22px 0; overflow-x: auto; } figure svg { max-width: 100%; height: auto; }
figcaption, .caption { font-size: 13.5px; }
.narrow { display: none; }
@media (max-width: 700px) { .wide { display: none; } .narrow { display: block; } body { padding: 16px 12px 40px; }
  h1 { font-size: 20px; overflow-wrap: anywhere; } th, td { padding-right: 10px; font-size: 13px; }
  dl { display: block; } dd { margin-bottom: 8px; } }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 6px 0; }
th, td { padding: 4px 14px 4px 0; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--grid); }
th { font-weight: 600; color: var(--soft); } th:first-child, td:first-child { text-align: left; white-space: normal; }
tr.best td { font-weight: 650; }
td.text { text-align: left; white-space: normal; } code { font: 13px ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: 13.5px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; margin: 8px 0;
  padding: 12px 14px; border: 1px solid var(--grid); border-radius: 6px; }
dl { display: grid; grid-template-columns: fit-content(280px) 1fr; gap: 4px 18px; } dt { color: var(--soft); } dd { margin: 0; min-width: 0; }
footer { margin-top: 40px; font-size: 13px; }
)";

}  // namespace

std::string report_html(const Report& report) {
  std::string s = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>{}</title>\n<style>\n{}{}</style>\n"
      "</head>\n<body>\n<h1>{}</h1>\n<p class=\"lead\">{}</p>\n",
      escape_markup(report.title), plot_css(), page_css, escape_markup(report.title), escape_markup(report.subtitle));
  for (const Report::Table& table : report.tables) {
    s += "<div class=\"scroll\"><table>\n<tr>";
    for (const std::string& cell : table.header) s += "<th>" + escape_markup(cell) + "</th>";
    s += "</tr>\n";
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      s += static_cast<int>(r) == table.emphasised ? "<tr class=\"best\">" : "<tr>";
      for (const std::string& cell : table.rows[r]) s += "<td>" + escape_markup(cell) + "</td>";
      s += "</tr>\n";
    }
    s += "</table></div>\n";
    if (!table.caption.empty()) s += "<p class=\"caption\">" + escape_markup(table.caption) + "</p>\n";
  }
  int number = 0;
  for (const Report::Figure& figure : report.figures) {
    number += 2;
    s += "<figure>\n<div class=\"wide\">" + plot_svg(figure.plot, false, number - 1) +
         "</div>\n<div class=\"narrow\">" + plot_svg(narrow(figure.plot), false, number) + "</div>\n<figcaption>" +
         escape_markup(figure.caption) + "</figcaption>\n</figure>\n";
  }
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
  return s + "<footer>Made by ttr, test-time regression.</footer>\n</body>\n</html>\n";
}

}  // namespace ttr::cli
