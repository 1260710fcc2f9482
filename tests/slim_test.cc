// cmake/layers.txt, from which slim builds are made (cmake/slim.cmake), against the library: every layer has its row, with
// the function that declares it and every family that a plan of it, plain or as a variant, runs on.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "families/families.h"
#include "plan/pipeline.h"
#include "ttr/ttr.h"
#include "zoo/zoo.h"

namespace {

std::map<const ttr::Family*, std::string> names_of_families() {
  std::map<const ttr::Family*, std::string> names;
#define TTR_FAMILY(row) names[&ttr::families::row##_family] = #row;
#include "families/families.def"
#undef TTR_FAMILY
  return names;
}

std::map<std::string, std::string> functions_of_layers() {
  std::map<std::string, std::string> functions;
#define TTR_LAYER(row) functions[ttr::zoo::row().info.name] = #row;
#include "zoo/layers.def"
#undef TTR_LAYER
  for (const ttr::zoo::Declaration& d : ttr::zoo::operations()) functions[d.info.name] = "operations";
  return functions;
}

// The row of a layer as it should be.
std::string row_of(const ttr::zoo::Declaration& layer, const std::string& function) {
  static const std::map<const ttr::Family*, std::string> names = names_of_families();
  std::set<std::string> families;
  const auto add = [&](const std::string& settings) {
    const std::string text = layer.info.name + (settings.empty() ? "" : ":" + settings);
    const ttr::Plan plan = ttr::plan(text, {.heads = 2, .key_dim = 4, .value_dim = 4});
    for (const ttr::Step& step : plan.body()->pipeline.steps)
      if (step.kernel && !step.kernel->traits.literal) families.insert(names.at(step.kernel));
    // The family that claims the recipe plans it, on kernels of others perhaps.
    const ttr::Family& claims = ttr::families::claimed_by(plan.body()->pipeline.design, plan.body()->options.causal);
    if (!layer.is_operation() && !claims.traits.literal) families.insert(names.at(&claims));
  };
  add("");
  for (const ttr::VariantInfo& variant : layer.info.variants) add(variant.settings);
  std::string row = layer.info.name + " " + function;
  for (const std::string& family : families) row += " " + family;
  return row;
}

TEST(Slim, TableOfLayers) {
  std::set<std::string> written;
  std::ifstream file(TTR_SOURCE_DIR "/cmake/layers.txt");
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line[0] != '#') written.insert(line);
  const std::map<std::string, std::string> functions = functions_of_layers();
  std::set<std::string> right;
  for (const ttr::zoo::Declaration& layer : ttr::zoo::declarations())
    right.insert(row_of(layer, functions.at(layer.info.name)));
  EXPECT_EQ(written.size(), ttr::zoo::declarations().size());
  for (const std::string& row : right) EXPECT_TRUE(written.contains(row)) << "cmake/layers.txt has no row: " << row;
  for (const std::string& row : written)
    EXPECT_TRUE(right.contains(row)) << "cmake/layers.txt has a row too many: " << row;
}

// A whole build leaves nothing out.
TEST(Slim, NothingIsLeftOut) { EXPECT_TRUE(ttr::zoo::left_out().empty()); }

}  // namespace
