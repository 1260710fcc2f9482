#include "outcomes.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/format.h>

namespace ttr::piecewise {
namespace {

std::string place(const Cell& cell) { return fmt::format("d={} S={}", cell.spec.dim, cell.spec.segment); }

std::string listed(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "" : ", ") + item;
  return out;
}

bool clearly_less(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> difference(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) difference[i] = b[i] - a[i];
  const Statistic s = statistic(difference);
  return s.mean > 0 && !(s.mean <= 2 * s.error);  // one sequence has no standard error: the sign decides
}

std::vector<double> later(const Cell& cell, const LayerResult& layer) {
  std::vector<double> out(layer.losses.size());
  for (Part part : {Part::quarter0, Part::quarter1, Part::quarter2, Part::quarter3}) {
    const std::vector<double> x = per_seed(cell, layer, part);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += x[i] / 4;
  }
  return out;
}

/// Counts the cells in which `holds`; the others are listed, each by what `exception` says of it.
Outcome over_cells(std::string statement, const std::vector<Cell>& cells,
                   const std::function<bool(const Cell&)>& holds,
                   const std::function<std::string(const Cell&)>& exception = place) {
  Outcome out{std::move(statement), 0, static_cast<int>(cells.size()), ""};
  std::vector<std::string> exceptions;
  for (const Cell& cell : cells) {
    if (holds(cell)) ++out.shown;
    else exceptions.push_back(exception(cell));
  }
  if (!exceptions.empty()) out.remark = "not at " + listed(exceptions);
  return out;
}

/// "Nothing" is taken as less than a tenth from the second quarter of a segment to the last.
Outcome softmax_gain(const std::vector<Cell>& cells) {
  Outcome out{"softmax attention gains nothing from more data in a segment", 0, static_cast<int>(cells.size()), ""};
  double least[2] = {INFINITY, INFINITY}, most[2] = {};
  for (const Cell& cell : cells)
    for (int layer : {local_linear, softmax}) {
      const double gain = statistic(cell, cell.layers[layer], Part::quarter3).mean /
                          statistic(cell, cell.layers[layer], Part::quarter1).mean;
      least[layer] = std::min(least[layer], gain), most[layer] = std::max(most[layer], gain);
      if (layer == softmax) out.shown += gain > 0.9;
    }
  out.remark = fmt::format(
      "loss in the last quarter over the second: {:.2f} to {:.2f}; local linear attention {:.2f} to {:.2f}",
      least[softmax], most[softmax], least[local_linear], most[local_linear]);
  return out;
}

/// One series over the dimensions for every segment length.
Outcome growth(const std::vector<Cell>& cells, const SweepOptions& options, int rival) {
  Outcome out{fmt::format("its advantage over {} grows with d", cells.front().layers[rival].layer.name), 0,
              static_cast<int>(options.segments.size()), ""};
  std::vector<std::string> series;
  for (std::size_t s = 0; s < options.segments.size(); ++s) {
    std::string text;
    double last = 0;
    bool grows = true;
    for (std::size_t d = 0; d < options.dims.size(); ++d) {
      const Cell& cell = cells[d * options.segments.size() + s];
      const double value = ratio(cell, cell.layers[rival]).mean;
      grows = grows && value > last;
      last = value, text += fmt::format(" {:.1f}", value);
    }
    out.shown += grows;
    series.push_back(fmt::format("S={}:{}", options.segments[s], text));
  }
  out.remark = "ratio by d, " + listed(series);
  return out;
}

}  // namespace

const LayerResult& best_layer(const Cell& cell) {
  const LayerResult* best = &cell.layers.front();
  for (const LayerResult& layer : cell.layers)
    if (!layer.layer.told && ratio(cell, layer).mean < ratio(cell, *best).mean) best = &layer;
  return *best;
}

std::vector<Outcome> outcomes(const std::vector<Cell>& cells, const SweepOptions& options) {
  const auto part = [](const Cell& cell, int layer, Part p) { return per_seed(cell, cell.layers[layer], p); };
  const auto better_than = [&](int rival) {
    return over_cells(fmt::format("it is better overall than {}", cells.front().layers[rival].layer.name), cells,
                      [&](const Cell& cell) {
                        return clearly_less(part(cell, local_linear, Part::all), part(cell, rival, Part::all));
                      });
  };
  std::vector<Outcome> out;
  out.push_back(over_cells("local linear attention improves inside a segment", cells, [&](const Cell& cell) {
    return clearly_less(part(cell, local_linear, Part::quarter3), part(cell, local_linear, Part::quarter0));
  }));
  out.push_back(better_than(softmax));
  out.push_back(better_than(least_squares));
  out.push_back(over_cells(
      "it is the best of all layers overall", cells,
      [](const Cell& cell) { return &best_layer(cell) == &cell.layers[local_linear]; },
      [](const Cell& cell) {
        const LayerResult& best = best_layer(cell);
        return fmt::format("{} ({}, {:.2f})", place(cell), best.layer.name, ratio(cell, best).mean);
      }));
  out.push_back(over_cells("RLS is ahead of it in the first segment", cells, [&](const Cell& cell) {
    return clearly_less(part(cell, least_squares, Part::first), part(cell, local_linear, Part::first));
  }));
  out.push_back(over_cells("and behind it in the later ones", cells, [](const Cell& cell) {
    return clearly_less(later(cell, cell.layers[local_linear]), later(cell, cell.layers[least_squares]));
  }));
  out.push_back(softmax_gain(cells));
  if (options.dims.size() > 1)
    for (int rival : {softmax, least_squares}) out.push_back(growth(cells, options, rival));
  return out;
}

}  // namespace ttr::piecewise
