#include "regress_tune.h"

#include <algorithm>

#include "ttr/layer.h"
#include "ttr/stream.h"

namespace ttr::cli {
namespace {

struct Grid {
  const char* setting;
  std::vector<const char*> values;
};

// Ridges and steps are meant for columns of deviation one (regress_units.h).
const std::vector<Grid>& grids() {
  static const std::vector<Grid> all = {
      {"decay", {"1", "0.995", "0.98", "0.95", "0.9"}},       {"ridge", {"1e-6", "0.001", "0.1", "1", "10"}},
      {"mu", {"0.02", "0.05", "0.1", "0.2", "0.5", "1"}},     {"delta", {"0.02", "0.05", "0.1", "0.3", "1"}},
      {"beta", {"0.02", "0.05", "0.1", "0.2", "0.5", "1"}},   {"rate", {"0.003", "0.01", "0.03", "0.1", "0.3"}},
      {"process", {"1e-6", "1e-5", "1e-4", "0.001", "0.01"}}, {"window", {"32", "128", "512", "1024"}},
      {"bandwidth", {"0.3", "0.6", "1", "2", "4"}},
  };
  return all;
}

bool runs(const std::string& text) { return why_not_on_a_stream(text).empty(); }

}  // namespace

std::vector<std::string> settings_to_try(const std::string& text) {
  if (text.find('/') != std::string::npos) return {text};
  const std::size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const LayerInfo& info = find_layer(name);
  std::vector<std::string> grid = {text};
  for (const Grid& one : grids()) {
    const bool known = std::any_of(info.settings.begin(), info.settings.end(),
                                   [&](const SettingInfo& setting) { return setting.name == one.setting; });
    const bool given = text.find(std::string(one.setting) + "=", colon == std::string::npos ? text.size() : colon) !=
                       std::string::npos;
    if (!known || given || grid.size() > 6) continue;
    std::vector<std::string> longer;
    for (const std::string& start : grid)
      for (const char* value : one.values) {
        const bool first = start.find(':') == std::string::npos;
        longer.push_back(start + (first ? ":" : ",") + one.setting + "=" + value);
      }
    grid = longer;
  }
  std::erase_if(grid, [](const std::string& variant) { return !runs(variant); });
  return grid.empty() ? std::vector{text} : grid;
}

}  // namespace ttr::cli
