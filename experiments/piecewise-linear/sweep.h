// Runs the layers over segment lengths and dimensions: settings are chosen on some sequences, measured on others.
//
// Every run has a place of its own for its result, so the numbers do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers.h"
#include "piecewise_linear.h"
#include "whole_runs.h"

namespace ttr::piecewise {

struct SweepOptions {
  std::vector<int> dims = {8, 16, 32, 64}, segments = {64, 128, 256, 512};
  int length = 1024;
  double centre = Spec{}.centre;
  int seeds = 16;        // sequences measured
  int tuning_seeds = 2;  // other sequences, on which settings are chosen
  std::uint64_t seed = 2025;
  int threads = 0;  // 0: as many as the machine has
};

struct LayerResult {
  Layer layer;
  std::vector<double> tuning;               // mean loss of every setting on the tuning sequences
  std::size_t chosen = 0;                   // the one with the least
  std::vector<std::vector<double>> losses;  // [seeds][L-1]

  const std::string& recipe() const { return layer.recipes[chosen]; }
};

struct Cell {
  Spec spec;
  std::vector<LayerResult> layers;
};

using cli::Statistic;
using cli::statistic;

/// One number per sequence: `all`, `first` or quarter 0..3 of the summary.
enum class Part { all, first, quarter0, quarter1, quarter2, quarter3 };
std::vector<double> per_seed(const Cell&, const LayerResult&, Part);
/// Sum of the losses over that of local linear attention; the error is that of a ratio of means, to first order.
Statistic ratio(const Cell&, const LayerResult&);
inline Statistic statistic(const Cell& cell, const LayerResult& layer, Part part) {
  return statistic(per_seed(cell, layer, part));
}

/// Cells in the order dims x segments; none if the run was interrupted. Throws Error.
std::vector<Cell> sweep(const SweepOptions&);

}  // namespace ttr::piecewise
