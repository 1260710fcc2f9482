#include "layer_map.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "plot.h"
#include "ttr/plan.h"

namespace ttr::cli {
namespace {

constexpr double margin = 22, bracket = 30, words = 254, inset = 12;  // across
constexpr double head = 122, foot = 46, pitch = 21, band_gap = 10, pad = 13, band_words = 66;
constexpr double font = 13, dot = 4.5, dot_to_label = 10, gap = 18;
constexpr double widest = 1240;

struct BandText {
  const char *name, *line, *formula;
  int hue;
};
constexpr std::array<BandText, family_count> bands = {{
    {"Batch gradient descent", "steps on all pairs, mostly one", "S = \u03a3 w\u1d62 k\u1d62 v\u1d62\u1d40", 0},
    {"Stochastic gradient descent", "a step on the newest pair", "S \u2190 S + \u03b2 k (v \u2212 S\u1d40k)\u1d40",
     2},
    {"Newton\u2019s method", "the least-squares solution itself",
     "S = (\u03a3 w\u1d62 k\u1d62k\u1d62\u1d40 + \u03bbI)\u207b\u00b9 \u03a3 w\u1d62 k\u1d62v\u1d62\u1d40", 3},
    {"Networks", "gradient steps on their weights", "W \u2190 W \u2212 \u03b7 \u2207 loss(m(k), v)", 4},
    {"Kernel methods", "a coefficient per pair", "m(q) = \u03a3 c\u1d62 \u03ba(k\u1d62, q)", 6},
    {"Local polynomials", "a new fit around every query",
     "min \u03a3 \u03ba(k\u1d62, q) |v\u1d62 \u2212 m(k\u1d62 \u2212 q)|\u00b2", 1},
    {"Other solvers", "", "", -1},
}};

struct ColumnText {
  const char *name, *formula;
};
constexpr std::array<ColumnText, forgets_count> columns = {
    {{"nothing", "w\u1d62 = 1"},
     {"a window", "w\u1d62 = 0 if old"},
     {"constant decay", "w\u1d62 = \u03b3\u1d57\u207b\u2071"},
     {"gate per token", "w\u1d62 = a\u1d62\u208a\u2081 \u2026 a\u209c"},
     {"gate per channel", "every a\u1d62 is a vector"}}};

// What the bands have in common, written along the left edge.
struct Group {
  const char* name;
  Family first, last;
};
constexpr Group groups[] = {{"linear memory", Family::batch, Family::newton},
                            {"nonlinear", Family::network, Family::network},
                            {"nonparametric", Family::kernel, Family::local}};

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

const Term* weight(const Recipe& recipe, std::string_view word) {
  for (const Term& term : recipe.weights)
    if (term.word == word) return &term;
  return nullptr;
}

/// In DejaVu Sans, the widest of the usual fonts: thousandths of the size for 'a' to 'z', else that of a digit. Bytes
/// of UTF-8 that continue a letter have no width.
double text_width(std::string_view text) {
  constexpr int letters[] = {613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579, 278, 974,
                             634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525};
  double sum = 0;
  for (char c : text) {
    if ((static_cast<unsigned char>(c) & 0xc0) == 0x80) continue;
    sum += c >= 'a' && c <= 'z' ? letters[c - 'a'] : c == '-' || c == ' ' ? 361 : 636;
  }
  return sum * font / 1000;
}

double label_width(std::string_view name) { return dot + dot_to_label + text_width(name); }

using Cell = std::vector<std::size_t>;

/// Columns and lines of a cell in which at most `most` layers stand below each other, as even as can be.
struct Shape {
  int across = 0, lines = 0;
  Shape(std::size_t count, int most) {
    const int n = static_cast<int>(count);
    if (n == 0) return;
    across = (n + most - 1) / most, lines = (n + across - 1) / across;
  }
};

/// Where the labels of a cell begin, column by column, and where the next would.
std::vector<double> stops(const std::vector<MapPoint>& points, const Cell& cell, const Shape& shape) {
  std::vector<double> at = {0};
  for (int column = 0; column < shape.across; ++column) {
    double width = 0;
    const int end = std::min((column + 1) * shape.lines, static_cast<int>(cell.size()));
    for (int i = column * shape.lines; i < end; ++i) width = std::max(width, label_width(points[cell[i]].name));
    at.push_back(at.back() + width + gap);
  }
  return at;
}

std::string hue_of(Family family) {
  const int hue = bands[static_cast<int>(family)].hue;
  return hue < 0 ? "n" : std::to_string(hue);
}

/// A full dot, a ring or a diamond.
std::string symbol(MapPoint::State state, const std::string& hue, double x, double y) {
  if (state == MapPoint::State::fixed)
    return fmt::format("<circle class=\"f{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>", hue, x, y, dot);
  if (state == MapPoint::State::grows)
    return fmt::format("<circle class=\"ring h{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>", hue, x, y, dot - 1);
  return fmt::format("<path class=\"ring h{}\" d=\"M{:.1f} {:.1f}l4 4l-4 4l-4 -4z\"/>", hue, x, y - 4);
}

std::string text_at(std::string_view kind, double x, double y, std::string_view text, bool ends = false) {
  return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", kind, x, y,
                     ends ? " text-anchor=\"end\"" : "", escape_markup(text));
}

}  // namespace

Family family_of(const Recipe& recipe) {
  const std::string& memory = recipe.memory.word;
  const std::string& solver = recipe.solver.word;
  if (is_one_of(memory, {"mlp", "swiglu", "layernorm"})) return Family::network;
  if (memory == "kernel") return Family::kernel;
  if (weight(recipe, "near")) {
    // A gradient step on a constant at every query is Eq. 47: kernel regression without its inverse.
    const bool steps = is_one_of(solver, {"gd", "descend", "sgd", "minibatch"});
    return memory == "constant" && steps ? Family::kernel : Family::local;
  }
  if (memory == "local") return Family::local;
  if (is_one_of(solver, {"gd", "descend"})) return Family::batch;
  if (is_one_of(solver, {"sgd", "minibatch", "apa"})) return Family::stochastic;
  if (is_one_of(solver, {"exact", "cg", "chebyshev", "kalman"})) return Family::newton;
  return Family::other;
}

Forgets forgets_of(const Recipe& recipe) {
  if (weight(recipe, "window")) return Forgets::window;
  if (const Term* gate = weight(recipe, "gate")) {
    const bool own = gate->has("key") || gate->has("value") || gate->has("full");
    return own || recipe.memory.word == "slots" ? Forgets::channel : Forgets::token;
  }
  if (weight(recipe, "decay") || weight(recipe, "power")) return Forgets::decay;
  // A number behind the word is a constant; a term says what has its own gate.
  for (const char* word : {"decay", "leak", "shrink"})
    if (const Argument* found = recipe.solver.find(word))
      return found->is_number()                           ? Forgets::decay
             : std::holds_alternative<Term>(found->value) ? Forgets::channel
                                                          : Forgets::token;
  return Forgets::nothing;
}

LayerMap layer_map(std::span<const LayerInfo> infos) {
  LayerMap map;
  std::array<std::array<Cell, forgets_count>, family_count> cells;
  for (const LayerInfo& info : infos) {
    if (info.recipe.empty()) continue;
    const Recipe recipe = parse_recipe(info.recipe);
    const Plan p = plan(info.name, {.key_dim = 8, .value_dim = 8});
    MapPoint point;
    point.name = info.name;
    point.hint = info.title + "\n" + info.recipe + "\n" + info.paper;
    point.family = family_of(recipe), point.forgets = forgets_of(recipe);
    point.state = p.states().empty()       ? MapPoint::State::none
                  : p.tokens_kept({}) >= 0 ? MapPoint::State::grows
                                           : MapPoint::State::fixed;
    cells[static_cast<int>(point.family)][static_cast<int>(point.forgets)].push_back(map.points.size());
    map.points.push_back(std::move(point));
  }

  // How many layers may stand below each other in each band. At first all; then, while the page is wide enough, one
  // less in the band where that makes it wider by least.
  std::array<int, family_count> most{};
  for (int f = 0; f < family_count; ++f)
    for (const Cell& cell : cells[f]) most[f] = std::max(most[f], static_cast<int>(cell.size()));
  const auto column_width = [&](int c) {
    double width = 1.15 * std::max(text_width(columns[c].name), text_width(columns[c].formula)) + gap;  // bold, serif
    for (int f = 0; f < family_count; ++f)
      width = std::max(width, stops(map.points, cells[f][c], {cells[f][c].size(), most[f]}).back());
    return width;
  };
  const auto page_width = [&] {
    double width = 2 * margin + bracket + words + inset;
    for (int c = 0; c < forgets_count; ++c) width += column_width(c);
    return width;
  };
  for (;;) {
    int best = -1;
    double least = widest;
    for (int f = 0; f < family_count; ++f) {
      if (most[f] * pitch <= band_words) continue;  // what it says about itself needs that height
      --most[f];
      if (const double width = page_width(); width <= least) best = f, least = width;
      ++most[f];
    }
    if (best < 0) break;
    --most[best];
  }

  double x = margin + bracket + words + inset;
  for (int c = 0; c < forgets_count; ++c) {
    map.column_left[c] = x, map.column_width[c] = column_width(c);
    x += map.column_width[c];
  }
  map.width = x + margin;
  double y = head;
  for (int f = 0; f < family_count; ++f) {
    map.band_top[f] = y;
    if (most[f] == 0) continue;
    map.band_height[f] = std::max(band_words, most[f] * pitch) + 2 * pad;
    y += map.band_height[f] + band_gap;
  }
  map.height = y - band_gap + foot;

  for (int f = 0; f < family_count; ++f)
    for (int c = 0; c < forgets_count; ++c) {
      const Cell& cell = cells[f][c];
      const Shape shape(cell.size(), most[f]);
      const std::vector<double> begin = stops(map.points, cell, shape);
      // Centred in its band, so that a single layer does not cling to an edge.
      const double top = map.band_top[f] + (map.band_height[f] - shape.lines * pitch) / 2;
      for (std::size_t i = 0; i < cell.size(); ++i) {
        MapPoint& point = map.points[cell[i]];
        const int place = static_cast<int>(i);
        point.left = map.column_left[c] + begin[place / shape.lines];
        point.right = point.left + label_width(point.name);
        point.x = point.left + dot, point.y = top + pitch * (place % shape.lines + 0.5);
        point.height = pitch;
      }
    }
  return map;
}

std::string map_svg(const LayerMap& map) {
  std::string s = fmt::format(
      "<svg class=\"plot map\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" aria-label=\"The layers by solver and by what they "
      "forget\">\n<style>{2}"
      ".map text {{ font-size: 13px; }} .map .head {{ font-size: 20px; font-weight: 600; }}\n"
      ".map .name {{ font-size: 15px; font-weight: 600; }} .map .column {{ font-weight: 600; }}\n"
      ".map .formula {{ font-family: \"DejaVu Serif\", Georgia, serif; }} .map .note, .map .formula {{ fill: "
      "var(--soft); }}\n"
      ".map .region {{ fill-opacity: 0.1; stroke-opacity: 0.45; }}\n"
      ".map .ring {{ fill: var(--paper); stroke-width: 2; }} .map .bracket {{ fill: none; stroke: var(--edge); }}\n"
      ".map .rule {{ stroke: var(--edge); stroke-opacity: 0.5; stroke-dasharray: 2 4; }}</style>\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" style=\"fill: var(--paper)\"/>\n",
      map.width, map.height, plot_css());
  s += text_at("head", margin, 36, "A sequence layer is a regression problem");
  s += text_at("note", margin, 60,
               fmt::format("{} layers by how the problem is solved (bands) and by what its weights forget (columns)",
                           map.points.size()));

  const double left = margin + bracket;
  for (int f = 0; f < family_count; ++f) {
    if (map.band_height[f] == 0) continue;
    const std::string hue = hue_of(static_cast<Family>(f));
    const double top = map.band_top[f], height = map.band_height[f], middle = top + height / 2;
    s += fmt::format(
        "<rect class=\"region f{0} h{0}\" x=\"{1:.1f}\" y=\"{2:.1f}\" width=\"{3:.1f}\" height=\"{4:.1f}\" "
        "rx=\"10\"/>\n",
        hue, left, top, map.width - margin - left, height);
    s += fmt::format("<text class=\"name\" style=\"fill: var(--h{})\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", hue,
                     left + inset, middle - 16, bands[f].name);
    s += text_at("note", left + inset, middle + 5, bands[f].line);
    s += text_at("formula", left + inset, middle + 26, bands[f].formula);
  }
  s += text_at("note", map.column_left[0] - inset - 10, head - 32, "forgets", true);
  for (int c = 0; c < forgets_count; ++c) {
    s += text_at("column", map.column_left[c], head - 32, columns[c].name);
    s += text_at("formula", map.column_left[c], head - 12, columns[c].formula);
    s += fmt::format("<line class=\"rule\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n",
                     map.column_left[c] - inset, head - 44, map.height - foot);
  }
  for (const Group& group : groups) {
    double top = 0, end = 0;
    for (int f = static_cast<int>(group.first); f <= static_cast<int>(group.last); ++f)
      if (map.band_height[f] > 0) {
        if (end == 0) top = map.band_top[f];
        end = map.band_top[f] + map.band_height[f];
      }
    if (end == 0) continue;
    s += fmt::format("<path class=\"bracket\" d=\"M{0:.1f} {1:.1f}h-5v{2:.1f}h5\"/>\n", left - 6, top + 6,
                     end - top - 12);
    s += fmt::format(
        "<text class=\"note\" transform=\"translate({:.1f} {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
        margin + 8, (top + end) / 2, group.name);
  }
  for (const MapPoint& point : map.points)
    s += fmt::format("<g><title>{}</title>{}<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text></g>\n",
                     escape_markup(point.hint), symbol(point.state, hue_of(point.family), point.x, point.y),
                     point.x + dot_to_label, point.y + 4.6, escape_markup(point.name));
  double x = left + inset;
  const double y = map.height - 16;
  for (const auto& [state, meaning] : {std::pair{MapPoint::State::fixed, "a state of fixed size"},
                                       {MapPoint::State::grows, "keeps its pairs: the state grows"},
                                       {MapPoint::State::none, "sees the whole sequence at once"}}) {
    s += symbol(state, "n", x + dot, y - 4) + text_at("note", x + 16, y, meaning);
    x += 40 + text_width(meaning);
  }
  return s + text_at("note", map.width - margin, y, "ttr layers --map map.svg", true) + "</svg>\n";
}

}  // namespace ttr::cli
