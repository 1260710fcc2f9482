// The sweep as a page of tables, as JSON and as a plot.
#pragma once

#include <string>
#include <vector>

#include "sweep.h"

namespace ttr::piecewise {

std::string table_markdown(const std::vector<Cell>&, const SweepOptions&);
std::string results_json(const std::vector<Cell>&, const SweepOptions&);
std::string plot_picture(const std::vector<Cell>&, const SweepOptions&);

}  // namespace ttr::piecewise
