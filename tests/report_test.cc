#include "report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <regex>

#include "text_table.h"

namespace ttr::cli {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

Plot plot_of(std::vector<double> y, bool log_y) {
  Plot plot;
  plot.title = "A < B & \"C\"", plot.x_label = "row", plot.y_label = "loss", plot.log_y = log_y;
  Line line;
  line.label = "one <layer>";
  for (std::size_t i = 0; i < y.size(); ++i) line.x.push_back(static_cast<double>(i));
  line.y = std::move(y);
  plot.lines.push_back(line);
  return plot;
}

/// Opening and closing tags match, text has no loose < or &.
::testing::AssertionResult well_formed(const std::string& markup) {
  std::vector<std::string> open;
  const std::vector<std::string> empty_elements = {"meta", "br"};
  for (std::size_t i = 0; i < markup.size(); ++i) {
    if (markup[i] == '&' && !std::regex_search(markup.substr(i, 8), std::regex("^&(amp|lt|gt|quot);")))
      return ::testing::AssertionFailure() << "loose & at " << markup.substr(i, 30);
    if (markup[i] != '<') continue;
    const std::size_t end = markup.find('>', i);
    if (end == markup.npos) return ::testing::AssertionFailure() << "open < at " << markup.substr(i, 30);
    std::string tag = markup.substr(i + 1, end - i - 1);
    i = end;
    if (tag.starts_with("!") || tag.ends_with("/")) continue;
    if (tag.starts_with("/")) {
      if (open.empty() || open.back() != tag.substr(1))
        return ::testing::AssertionFailure() << "stray </" << tag.substr(1) << ">";
      open.pop_back();
      continue;
    }
    const std::string name = tag.substr(0, tag.find_first_of(" \n"));
    if (std::find(empty_elements.begin(), empty_elements.end(), name) == empty_elements.end()) open.push_back(name);
    if (name != "script") continue;
    i = markup.find("</script", i);  // anything may stand in a script but its end
    if (i-- == markup.npos) return ::testing::AssertionFailure() << "a script without an end";
  }
  if (!open.empty()) return ::testing::AssertionFailure() << "<" << open.back() << "> is not closed";
  return ::testing::AssertionSuccess();
}

TEST(Report, PageIsWellFormedAndNeedsNothing) {
  Report report;
  report.title = "x & <y>", report.subtitle = "s";
  report.tables.push_back({"caption", {"layer", "MSE"}, {{"a<b", "1"}, {"c", "2"}}, 1});
  report.figures.push_back({plot_of({1, 2, 3}, true), "figure"});
  report.figures.push_back({plot_of({1, -2, 3}, false), "figure"});
  report.figures.back().plot.lines[0].label = "</script><b>\"&";
  report.notes.push_back("note");
  report.facts.emplace_back("command", "ttr regress 'a & b'");
  const std::string page = report_html(report);
  EXPECT_TRUE(well_formed(page));
  EXPECT_NE(page.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(page.find("<tr class=\"best\"><td>c</td>"), std::string::npos);
  EXPECT_NE(page.find("a&lt;b"), std::string::npos);
  for (const char* outside :
       {"<link", "src=", "href=", "@import", "url(http", "fetch(", "XMLHttpRequest", "import(", "eval("})
    EXPECT_EQ(page.find(outside), page.npos) << outside;
  EXPECT_EQ(page.find("</script><b>"), page.npos);  // a name cannot end the numbers of a plot
  EXPECT_NE(page.find("\"label\":\"\\u003c/script>\\u003cb>"), page.npos);
  // Two plots on a page must not share a clip path.
  EXPECT_NE(page.find("id=\"clip1\""), page.npos);
  EXPECT_NE(page.find("id=\"clip2\""), page.npos);
}

TEST(Report, ALogarithmicXAxisAndFarEnds) {
  Plot plot;
  for (int l = 0; l < 3; ++l) {
    Line line;
    line.label = "line " + std::to_string(l);
    for (double x : {1.0, 10.0, 100.0, 1000.0}) line.x.push_back(x), line.y.push_back(l == 2 ? 1e7 * x : 1);
    plot.lines.push_back(line);
  }
  plot.log_x = plot.log_y = true;
  // Equal steps of the logarithm are equal steps on paper.
  std::vector<double> at;
  std::string svg = plot_svg(plot);
  for (const char* label : {">1</text>", ">10</text>", ">100</text>", ">1000</text>"}) {
    // The last stands at the edge, and ends there.
    const std::string anchor = at.size() == 3 ? "text-anchor=\"end\"" : "text-anchor=\"middle\"";
    const std::size_t end = svg.find(anchor + label);
    ASSERT_NE(end, std::string::npos) << label;
    at.push_back(std::stod(svg.substr(svg.rfind("x=\"", end) + 3)));
  }
  EXPECT_NEAR(at[1] - at[0], at[2] - at[1], 0.2);
  EXPECT_NEAR(at[2] - at[1], at[3] - at[2], 0.2);
  EXPECT_EQ(svg.find(">1e9</text>"), std::string::npos);  // the line that flies away is cut off
  plot.whole_range = true;
  svg = plot_svg(plot);
  EXPECT_NE(svg.find(">1e9</text>"), std::string::npos);
}

TEST(Report, PlotsOfAnyNumbersStayInTheirFrame) {
  const std::vector<std::vector<double>> cases = {{},
                                                  {1},
                                                  {0, 0, 0},
                                                  {5, 5, 5},
                                                  {nan, nan},
                                                  {1, nan, 2},
                                                  {inf, 1},
                                                  {1e-300, 1e300},
                                                  {1e308, -1e308},
                                                  {-1, -2},
                                                  {1e-320, 1},
                                                  {3, inf, 4, nan, 5}};
  for (const auto& y : cases)
    for (bool log_y : {false, true}) {
      const std::string svg = plot_svg(plot_of(y, log_y), true);
      EXPECT_TRUE(well_formed(svg));
      for (const char* broken : {"nan", "inf"})
        EXPECT_EQ(svg.find(broken), svg.npos) << broken << " with log " << log_y;
      EXPECT_LT(svg.size(), 20000u);
      const std::regex points("[ML](-?[0-9.]+) (-?[0-9.]+)");
      for (std::sregex_iterator p(svg.begin(), svg.end(), points), end; p != end; ++p) {
        EXPECT_GE(std::stod((*p)[1]), 0);
        EXPECT_LE(std::stod((*p)[1]), 980);
        EXPECT_GE(std::stod((*p)[2]), 0);
        EXPECT_LE(std::stod((*p)[2]), 460);
      }
    }
}

TEST(Report, BandsLeaveGapsAndStayInTheirFrame) {
  for (bool log_y : {false, true}) {
    Plot plot = plot_of({1, 2, 3, 2, 1}, log_y);
    plot.bands.push_back({{0, 1, 2, 3, 4}, {0.5, -inf, 2, 1, nan}, {1.5, inf, 1e300, 3, 2}, 3});
    plot.bands.push_back({{0, 1}, {-inf, -inf}, {inf, inf}, -1});
    const std::string svg = plot_svg(plot, true);
    EXPECT_TRUE(well_formed(svg));
    const std::regex band(
        "<path class=\"band f3\" d=\"(M[^M]*ZM[^M]*Z)\" data-band=\"0\"/>");  // two pieces: row 0, rows 2 and 3
    std::smatch found;
    ASSERT_TRUE(std::regex_search(svg, found, band));
    EXPECT_EQ(svg.find("band fn"), svg.npos);  // nothing to draw
    const std::string path = found[1];
    const std::regex points("[ML](-?[0-9.]+) (-?[0-9.]+)");
    int count = 0;
    for (std::sregex_iterator p(path.begin(), path.end(), points), end; p != end; ++p, ++count) {
      EXPECT_GE(std::stod((*p)[2]), 0);
      EXPECT_LE(std::stod((*p)[2]), 460);
    }
    EXPECT_EQ(count, 6);
    // The lines are drawn over the band.
    EXPECT_LT(svg.find("class=\"band"), svg.find("class=\"line"));
  }
}

TEST(Report, AWideBandDoesNotFlattenTheLines) {
  std::vector<double> y;
  for (int i = 0; i < 100; ++i) y.push_back(std::sin(i));
  Plot plot = plot_of(y, false);
  plot.bands.push_back({plot.lines[0].x, std::vector<double>(100, -1e6), std::vector<double>(100, 1e6), 0});
  EXPECT_EQ(plot_svg(plot).find("500000"), std::string::npos);  // no tick that high
  plot.bands[0] = {plot.lines[0].x, std::vector<double>(100, -3), std::vector<double>(100, 3), 0};
  EXPECT_NE(plot_svg(plot).find(">-2<"), std::string::npos);  // but the range of a band of the same order is shown
}

TEST(Report, ALayerThatDivergesDoesNotFlattenTheOthers) {
  Plot plot = plot_of(std::vector<double>(100, 0.5), true);
  plot.lines.push_back(plot.lines[0]);
  plot.lines.push_back(plot.lines[0]);
  for (std::size_t i = 0; i < 100; ++i)
    plot.lines[0].y[i] = std::pow(10, static_cast<double>(i)), plot.lines[1].y[i] = 0.1;
  const std::string svg = plot_svg(plot);
  EXPECT_EQ(svg.find("e20<"), svg.npos);  // no tick that high
  EXPECT_NE(svg.find(">0.1<"), svg.npos);
}

TEST(Report, TicksCoverTheRangeWithoutCrowding) {
  for (auto [low, high] : {std::pair{0.0, 1.0}, {-3.0, 17.0}, {1e-9, 2e-9}, {1e6, 1e6 + 7}, {0.0, 256.0}}) {
    const auto ticks = linear_ticks(low, high, 6);
    EXPECT_GE(ticks.size(), 3u);
    EXPECT_LE(ticks.size(), 14u);
    for (double t : ticks) EXPECT_TRUE(t >= low - 1e-9 * (high - low) && t <= high + 1e-9 * (high - low));
  }
  for (auto [low, high] : {std::pair{0.01, 10.0}, {1e-12, 1.0}, {0.3, 0.9}, {1e-3, 2e-3}}) {
    const auto ticks = log_ticks(low, high);
    EXPECT_GE(ticks.size(), 1u);
    EXPECT_LE(ticks.size(), 14u);
  }
}

TEST(Report, MarkupIsEscapedAndRepaired) {
  EXPECT_EQ(escape_markup("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
  EXPECT_EQ(escape_markup("\xc3\xa9"), "\xc3\xa9");
  EXPECT_EQ(escape_markup("\xff\xc3"), "??");
  EXPECT_EQ(escape_markup(std::string("a\0b\x1b", 4)), "a?b?");
}

TEST(TextTableTest, ColumnsLineUp) {
  TextTable table({"layer", "loss"});
  table.row({"nlms", "1 \u00b1 2"});
  table.row({"a longer name"});
  EXPECT_EQ(table.text(),
            "layer           loss\n"
            "--------------------\n"
            "nlms           1 \u00b1 2\n"
            "a longer name\n");
}

TEST(TextTableTest, Numbers) {
  EXPECT_EQ(short_number(0.01684), "0.0168");
  EXPECT_EQ(short_number(53.94), "53.9");
  EXPECT_EQ(short_number(999.9), "1000");
  EXPECT_EQ(short_number(-0.5), "-0.500");
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(1.25e-7), "1.25e-07");
  EXPECT_EQ(short_number(inf), "inf");
  EXPECT_EQ(short_number(nan), "-");
  EXPECT_EQ(short_bytes(512), "512 B");
  EXPECT_EQ(short_bytes(32768), "32 KB");
  EXPECT_EQ(short_bytes(1.5 * 1024 * 1024), "1.5 MB");
}

}  // namespace
}  // namespace ttr::cli
