#include "layer_map.h"

#include <gtest/gtest.h>

#include <set>

namespace ttr::cli {
namespace {

std::pair<Family, Forgets> place(const char* recipe) {
  const Recipe r = parse_recipe(recipe);
  return {family_of(r), forgets_of(r)};
}
using Place = std::pair<Family, Forgets>;

TEST(LayerMap, EveryLayerIsOnItOnce) {
  const LayerMap map = layer_map(layers());
  std::multiset<std::string> drawn;
  for (const MapPoint& point : map.points) drawn.insert(point.name);
  std::size_t wanted = 0;
  const std::string svg = map_svg(map);
  for (const LayerInfo& info : layers()) {
    EXPECT_EQ(drawn.count(info.name), info.recipe.empty() ? 0u : 1u) << info.name;
    wanted += !info.recipe.empty();
    if (!info.recipe.empty()) {
      EXPECT_NE(svg.find(">" + info.name + "</text>"), std::string::npos) << info.name;
    }
  }
  EXPECT_EQ(map.points.size(), wanted);
  EXPECT_GE(wanted, 81u);
}

TEST(LayerMap, NoSolverOfTheZooIsUnsorted) {
  for (const MapPoint& point : layer_map(layers()).points) EXPECT_NE(point.family, Family::other) << point.name;
}

TEST(LayerMap, LabelsDoNotOverlapAndStayInTheirCell) {
  const LayerMap map = layer_map(layers());
  for (const MapPoint& a : map.points) {
    const int f = static_cast<int>(a.family), c = static_cast<int>(a.forgets);
    EXPECT_GE(a.left, map.column_left[c]) << a.name;
    EXPECT_LE(a.right, map.column_left[c] + map.column_width[c]) << a.name;
    EXPECT_GE(a.y - a.height / 2, map.band_top[f]) << a.name;
    EXPECT_LE(a.y + a.height / 2, map.band_top[f] + map.band_height[f]) << a.name;
    for (const MapPoint& b : map.points)
      if (&a < &b) {
        EXPECT_TRUE(a.right < b.left || b.right < a.left || std::abs(a.y - b.y) >= (a.height + b.height) / 2 - 1e-9)
            << a.name << " " << b.name;
      }
  }
  EXPECT_LE(map.width, 1400);
}

TEST(LayerMap, TheWordsOfTheRecipeSayWhere) {
  EXPECT_EQ(place("equal / linear / gd(1)"), Place(Family::batch, Forgets::nothing));
  EXPECT_EQ(place("decay(0.9) / linear / gd(1)"), Place(Family::batch, Forgets::decay));
  EXPECT_EQ(place("power(0.5) / linear / exact(ridge)"), Place(Family::newton, Forgets::decay));
  EXPECT_EQ(place("gate / linear / gd(1)"), Place(Family::batch, Forgets::token));
  EXPECT_EQ(place("gate(key) / linear / gd(1)"), Place(Family::batch, Forgets::channel));
  EXPECT_EQ(place("gate / slots(8) / gd(1)"), Place(Family::batch, Forgets::channel));
  EXPECT_EQ(place("equal / linear / sgd(beta, decay)"), Place(Family::stochastic, Forgets::token));
  EXPECT_EQ(place("equal / linear / sgd(beta, decay=0.01)"), Place(Family::stochastic, Forgets::decay));
  EXPECT_EQ(place("equal / linear / sgd(beta, decay(key))"), Place(Family::stochastic, Forgets::channel));
  EXPECT_EQ(place("equal / linear / apa(3, mu)"), Place(Family::stochastic, Forgets::nothing));
  EXPECT_EQ(place("window(8) / linear / exact(ridge)"), Place(Family::newton, Forgets::window));
  EXPECT_EQ(place("gate / linear / cg(3, ridge)"), Place(Family::newton, Forgets::token));
  EXPECT_EQ(place("equal / mlp(2) / minibatch(16, rate)"), Place(Family::network, Forgets::nothing));
  EXPECT_EQ(place("equal / kernel(gauss) / sgd(beta)"), Place(Family::kernel, Forgets::nothing));
  EXPECT_EQ(place("near(exp) / constant / gd(1)"), Place(Family::kernel, Forgets::nothing));
  EXPECT_EQ(place("near(exp) * gate / constant / exact"), Place(Family::local, Forgets::token));
  EXPECT_EQ(place("near(exp) / local(1) / exact(ridge)"), Place(Family::local, Forgets::nothing));
}

TEST(LayerMap, ALayerOfTomorrowAppearsByItself) {
  std::vector<LayerInfo> infos(layers().begin(), layers().end());
  for (int i = 0; i < 30; ++i) infos.push_back(find_layer("gla"));
  const LayerMap map = layer_map(infos);
  int count = 0;
  for (const MapPoint& point : map.points) count += point.name == "gla";
  EXPECT_EQ(count, 31);
  std::set<std::pair<double, double>> places;
  for (const MapPoint& point : map.points) EXPECT_TRUE(places.emplace(point.x, point.y).second) << point.name;
}

}  // namespace
}  // namespace ttr::cli
