#include "output.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "json.h"
#include "outcomes.h"
#include "plot.h"
#include "text_table.h"

namespace ttr::piecewise {
namespace {

using cli::Json;

constexpr std::array quarters = {Part::quarter0, Part::quarter1, Part::quarter2, Part::quarter3};

std::string number(double x) { return std::isfinite(x) ? cli::short_number(x) : "diverged"; }

std::string text(const Statistic& s) {
  return std::isfinite(s.error) ? fmt::format("{} \u00b1 {:.2g}", number(s.mean), s.error) : number(s.mean);
}

/// The bar of a recipe would end a cell of the table.
std::string in_cell(std::string recipe) {
  for (std::size_t at = 0; (at = recipe.find('|', at)) != std::string::npos; at += 2) recipe.insert(at, "\\");
  return "`" + recipe + "`";
}

/// The segment length that tables and plots show in detail, and the dimension: the last but one of the sweep.
std::size_t middle(const std::vector<int>& values) { return values.size() > 1 ? values.size() - 2 : 0; }

const Cell& at(const std::vector<Cell>& cells, const SweepOptions& o, std::size_t dim, std::size_t segment) {
  return cells[dim * o.segments.size() + segment];
}

/// Later segments and all sequences [S].
std::vector<double> mean_by_position(const Cell& cell, const LayerResult& layer) {
  std::vector<double> mean(cell.spec.segment);
  for (const std::vector<double>& losses : layer.losses) {
    const std::vector<double> one = by_position(cell.spec, losses);
    for (std::size_t p = 0; p < mean.size(); ++p) mean[p] += one[p] / static_cast<double>(layer.losses.size());
  }
  return mean;
}

std::string sweep_table(const std::vector<Cell>& cells, const SweepOptions& o, std::size_t segment) {
  std::string s = fmt::format("### S = {}\n\n| layer |", o.segments[segment]);
  for (int d : o.dims) s += fmt::format(" d = {} |", d);
  s += "\n|---|" + [&] {
    std::string rule;
    for (std::size_t d = 0; d < o.dims.size(); ++d) rule += "---|";
    return rule;
  }() + "\n";
  for (std::size_t l = 0; l < cells.front().layers.size(); ++l) {
    s += "| " + cells.front().layers[l].layer.name + " |";
    for (std::size_t d = 0; d < o.dims.size(); ++d) {
      const Cell& cell = at(cells, o, d, segment);
      const LayerResult& layer = cell.layers[l];
      const bool best = &layer == &best_layer(cell);
      const std::string mean = text(statistic(cell, layer, Part::all));
      s += fmt::format(" {0}{1}{0} ({2}) |", best ? "**" : "", mean,
                       l == local_linear ? "1" : text(ratio(cell, layer)));
    }
    s += "\n";
  }
  return s + "\n";
}

std::string position_table(const Cell& cell) {
  std::string s = fmt::format(
      "### d = {}, S = {}\n\n| layer | first quarter | second | third | last quarter | first segment | setting |\n"
      "|---|---|---|---|---|---|---|\n",
      cell.spec.dim, cell.spec.segment);
  for (const LayerResult& layer : cell.layers) {
    s += "| " + layer.layer.name + " |";
    for (Part part : quarters) s += " " + text(statistic(cell, layer, part)) + " |";
    s += " " + text(statistic(cell, layer, Part::first)) + " | " + in_cell(layer.recipe()) + " |\n";
  }
  return s + "\n";
}

/// Six digits: enough for anybody, and the same on machines whose sums round differently.
Json rounded(double x) {
  return std::isfinite(x) ? Json(std::strtod(fmt::format("{:.6g}", x).c_str(), nullptr)) : Json();
}

Json json(const Statistic& s) {
  return Json::object().set("mean", rounded(s.mean)).set("standard_error", rounded(s.error));
}

Json json(const Cell& cell, const LayerResult& layer) {
  Json quarter = Json::array(), position = Json::array();
  for (Part part : quarters) quarter.push(json(statistic(cell, layer, part)));
  const std::vector<double> mean = mean_by_position(cell, layer);
  const std::size_t width = std::max<std::size_t>(1, mean.size() / 16);  // 16 numbers per segment, or a few more
  for (std::size_t p = 0; p < mean.size(); p += width) {
    const std::size_t end = std::min(mean.size(), p + width);
    double sum = 0;
    for (std::size_t u = p; u < end; ++u) sum += mean[u];
    position.push(rounded(sum / static_cast<double>(end - p)));
  }
  return Json::object()
      .set("name", layer.layer.name)
      .set("told_of_changes", layer.layer.told)
      .set("recipe", layer.recipe())
      .set("mse", json(statistic(cell, layer, Part::all)))
      .set("ratio_to_local_linear", json(ratio(cell, layer)))
      .set("first_segment", json(statistic(cell, layer, Part::first)))
      .set("later_quarters", quarter)
      .set("later_by_position", position)
      .set("tuning_mse", rounded(layer.tuning[layer.chosen]))
      .set("settings_tried", layer.tuning.size());
}

cli::Plot position_plot(const Cell& cell) {
  const int S = cell.spec.segment;
  cli::Plot plot;
  plot.title = fmt::format("After a change of the map: loss by position, d = {}, S = {}", cell.spec.dim, S);
  plot.x_label = "pairs of this segment in memory", plot.y_label = "mean squared error";
  plot.log_y = plot.legend_by_end = true, plot.height = 480;
  for (const LayerResult& layer : cell.layers) {
    const std::vector<double> mean = mean_by_position(cell, layer);
    cli::Line line;
    line.label = layer.layer.name, line.hue = layer.layer.hue, line.dash = layer.layer.dash;
    for (int p = 0; p < S; ++p) {
      // A moving mean that is narrow where the loss falls steeply.
      const int reach = std::min(S / 64, p / 8), low = p - reach, high = std::min(S - 1, p + reach);
      double sum = 0;
      for (int u = low; u <= high; ++u) sum += mean[u];
      line.x.push_back(p), line.y.push_back(sum / (high - low + 1));
    }
    plot.lines.push_back(std::move(line));
  }
  return plot;
}

/// Ratios to local linear attention along one axis of the sweep.
cli::Plot ratio_plot(const std::vector<const Cell*>& along, const std::vector<int>& x, std::string title,
                     std::string x_label) {
  cli::Plot plot;
  plot.title = std::move(title), plot.x_label = std::move(x_label), plot.y_label = "loss / that of local linear";
  plot.log_y = plot.legend_by_end = true, plot.height = 360;
  for (std::size_t l = 0; l < along.front()->layers.size(); ++l) {
    const Layer& layer = along.front()->layers[l].layer;
    cli::Line line;
    line.label = layer.name, line.hue = layer.hue, line.dash = layer.dash;
    for (std::size_t i = 0; i < along.size(); ++i)
      line.x.push_back(x[i]), line.y.push_back(ratio(*along[i], along[i]->layers[l]).mean);
    plot.lines.push_back(std::move(line));
  }
  return plot;
}

}  // namespace

std::string table_markdown(const std::vector<Cell>& cells, const SweepOptions& o) {
  const Spec& spec = cells.front().spec;
  std::string s = fmt::format(
      "# Piecewise-linear regression: results\n\n"
      "L = {}, |c| = {:.2g} sqrt(d), noise {:.2g}, seed {}. Each layer has the setting of its grid with the least "
      "loss\n"
      "on {} sequences; the numbers are from {} others: mean squared error per entry of the value, mean \u00b1 "
      "standard error.\nAn answer of zero would cost {:.4g}, the noise alone costs {:.4g}. In bold the best layer "
      "that "
      "is not told of the changes.\n\n",
      spec.length, spec.centre, spec.noise, o.seed, o.tuning_seeds, o.seeds,
      1 + spec.centre * spec.centre + spec.noise * spec.noise, spec.noise * spec.noise);
  s += "## Loss over the whole sequence (in brackets: divided by that of local linear attention)\n\n";
  for (std::size_t i = 0; i < o.segments.size(); ++i) s += sweep_table(cells, o, i);
  s += "## Loss by position in the segment, later segments\n\n";
  for (std::size_t d = 0; d < o.dims.size(); ++d) s += position_table(at(cells, o, d, middle(o.segments)));
  s += "## What the paper says, and whether it shows here\n\n| published, in words | shown | remark "
       "|\n|---|---|---|\n";
  for (const Outcome& outcome : outcomes(cells, o))
    s += fmt::format("| {} | {} of {} | {} |\n", outcome.statement, outcome.shown, outcome.of, outcome.remark);
  return s;
}

std::string results_json(const std::vector<Cell>& cells, const SweepOptions& o) {
  Json list = Json::array(), claims = Json::array();
  for (const Cell& cell : cells) {
    Json layers = Json::array();
    for (const LayerResult& layer : cell.layers) layers.push(json(cell, layer));
    list.push(Json::object().set("dim", cell.spec.dim).set("segment", cell.spec.segment).set("layers", layers));
  }
  for (const Outcome& c : outcomes(cells, o))
    claims.push(
        Json::object().set("statement", c.statement).set("shown", c.shown).set("of", c.of).set("remark", c.remark));
  const Spec& spec = cells.front().spec;
  return Json::object()
             .set("experiment", "piecewise-linear")
             .set("length", spec.length)
             .set("centre", spec.centre)
             .set("noise", spec.noise)
             .set("seed", static_cast<std::int64_t>(o.seed))
             .set("seeds", o.seeds)
             .set("tuning_seeds", o.tuning_seeds)
             .set("outcomes", claims)
             .set("cells", list)
             .dump(1) +
         "\n";
}

std::string plot_picture(const std::vector<Cell>& cells, const SweepOptions& o) {
  const std::size_t dim = middle(o.dims), segment = middle(o.segments);
  std::vector<const Cell*> by_dim, by_segment;
  for (std::size_t d = 0; d < o.dims.size(); ++d) by_dim.push_back(&at(cells, o, d, segment));
  for (std::size_t s = 0; s < o.segments.size(); ++s) by_segment.push_back(&at(cells, o, dim, s));
  const cli::Plot plots[] = {
      position_plot(at(cells, o, dim, segment)),
      ratio_plot(by_dim, o.dims, fmt::format("Whole sequence, S = {}: by dimension", o.segments[segment]), "d"),
      ratio_plot(by_segment, o.segments, fmt::format("Whole sequence, d = {}: by segment length", o.dims[dim]), "S")};
  int height = 0, width = 0;
  for (const cli::Plot& plot : plots) height += plot.height, width = std::max(width, plot.width);
  std::string s = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
      "aria-label=\"Piecewise-linear regression\">\n<style>{2}</style>\n"
      "<rect width=\"{0}\" height=\"{1}\" style=\"fill: var(--paper)\"/>\n",
      width, height, cli::plot_css());
  int top = 0, n = 1;
  for (const cli::Plot& plot : plots) {
    s += fmt::format("<g transform=\"translate(0 {})\">\n{}</g>\n", top, cli::plot_svg(plot, false, n++));
    top += plot.height;
  }
  return s + "</svg>\n";
}

}  // namespace ttr::piecewise
