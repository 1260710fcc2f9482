#include "sweep.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "progress.h"
#include "ttr/ttr.h"

namespace ttr::piecewise {
namespace {

/// Sequences for choosing are numbered from here, so that they never meet those that are measured.
constexpr std::uint64_t tuning_index = std::uint64_t{1} << 32;

/// Losses of one layer on one sequence, in double.
std::vector<double> run(const Spec& spec, const std::string& recipe, bool told, const Sequence& data) {
  const int T = spec.queries(), d = spec.dim;
  Options options;
  options.type = Type::f64;
  const Plan p = plan(recipe, {.key_dim = d, .value_dim = d}, options);
  const Footprint bytes = p.footprint(T);
  const cli::Buffer state(bytes.state), work(bytes.workspace);
  std::vector<double> answers(static_cast<std::size_t>(T) * d);
  for (int begin = 0, end = T; begin < T; begin = end) {
    if (told) end = std::min(T, (begin / spec.segment + 1) * spec.segment);
    const std::size_t at = static_cast<std::size_t>(begin) * d;
    Inputs in;
    Outputs out;
    in["k"] = view(data.keys.data() + at, 1, end - begin, 1, d);
    in["v"] = view(data.values.data() + at, 1, end - begin, 1, d);
    in["q"] = view(data.keys.data() + at + d, 1, end - begin, 1, d);  // q_t = k_{t+1}
    out["o"] = view(answers.data() + at, 1, end - begin, 1, d);
    cli::run_whole(p, recipe, recipe, in, out, state, work);
    // The last query of a segment belongs to the next one, of which nothing is known: zero is the best answer.
    if (told && end < T) std::fill_n(answers.begin() + static_cast<std::ptrdiff_t>(end - 1) * d, d, 0.0);
  }
  return losses(spec, data, answers);
}

struct Task {
  int cell, layer, recipe, seed;
};

}  // namespace

std::vector<double> per_seed(const Cell& cell, const LayerResult& layer, Part part) {
  std::vector<double> out;
  for (const std::vector<double>& l : layer.losses) {
    const Summary s = summarise(cell.spec, l);
    out.push_back(part == Part::all     ? s.all
                  : part == Part::first ? s.first
                                        : s.quarter[static_cast<int>(part) - static_cast<int>(Part::quarter0)]);
  }
  return out;
}

Statistic ratio(const Cell& cell, const LayerResult& layer) {
  std::vector<double> loss = per_seed(cell, layer, Part::all);
  const std::vector<double> base = per_seed(cell, cell.layers[local_linear], Part::all);
  const double below = statistic(base).mean, value = statistic(loss).mean / below;
  for (std::size_t i = 0; i < loss.size(); ++i) loss[i] = (loss[i] - value * base[i]) / below;
  return {value, statistic(loss).error};
}

std::vector<Cell> sweep(const SweepOptions& options) {
  std::vector<Cell> cells;
  for (int dim : options.dims)
    for (int segment : options.segments) {
      Cell cell;
      cell.spec = {.dim = dim, .segment = segment, .length = options.length, .centre = options.centre};
      for (Layer& layer : layers(cell.spec)) {
        LayerResult result;
        result.losses.resize(options.seeds);
        result.layer = std::move(layer);
        cell.layers.push_back(std::move(result));
      }
      cells.push_back(std::move(cell));
    }

  cli::Progress progress("piecewise linear", true);
  const auto in_parallel = [&](std::size_t count, const std::function<void(int)>& work, double share_done,
                               double share) {
    const auto after = [&](int done) { progress.update(share_done + share * done / static_cast<double>(count), 1); };
    return cli::in_parallel(static_cast<int>(count), options.threads, work, after);
  };
  // The large cells last would leave threads idle at the end: they go first.
  std::vector<Task> tasks;
  for (int c = static_cast<int>(cells.size()) - 1; c >= 0; --c)
    for (int l = 0; l < static_cast<int>(cells[c].layers.size()); ++l)
      for (int r = 0; r < static_cast<int>(cells[c].layers[l].layer.recipes.size()); ++r)
        for (int s = 0; s < options.tuning_seeds; ++s) tasks.push_back({c, l, r, s});
  std::vector<double> errors(tasks.size());
  const auto choose = [&](int i) {
    const Task& task = tasks[i];
    const Spec& spec = cells[task.cell].spec;
    const Layer& layer = cells[task.cell].layers[task.layer].layer;
    const Sequence data = sequence(spec, options.seed, tuning_index + task.seed);
    errors[i] = summarise(spec, run(spec, layer.recipes[task.recipe], layer.told, data)).all;
  };
  if (!in_parallel(tasks.size(), choose, 0, 0.75)) return {};
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    LayerResult& result = cells[tasks[i].cell].layers[tasks[i].layer];
    result.tuning.resize(result.layer.recipes.size());
    result.tuning[tasks[i].recipe] += errors[i] / options.tuning_seeds;
  }
  for (Cell& cell : cells)
    for (LayerResult& result : cell.layers) {
      std::size_t& best = result.chosen;
      for (std::size_t r = 0; r < result.tuning.size(); ++r)  // a layer that has left the numbers is never chosen
        if (result.tuning[r] < result.tuning[best] || !std::isfinite(result.tuning[best])) best = r;
    }

  tasks.clear();
  for (int c = static_cast<int>(cells.size()) - 1; c >= 0; --c)
    for (int l = 0; l < static_cast<int>(cells[c].layers.size()); ++l)
      for (int s = 0; s < options.seeds; ++s) tasks.push_back({c, l, 0, s});
  const auto measure = [&](int i) {
    const Task& task = tasks[i];
    LayerResult& result = cells[task.cell].layers[task.layer];
    const Sequence data = sequence(cells[task.cell].spec, options.seed, task.seed);
    result.losses[task.seed] = run(cells[task.cell].spec, result.recipe(), result.layer.told, data);
  };
  if (!in_parallel(tasks.size(), measure, 0.75, 0.25)) return {};
  return cells;
}

}  // namespace ttr::piecewise
