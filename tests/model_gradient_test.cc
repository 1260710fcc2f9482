// The gradient of a whole model, double, against five-point differences: for every layer of the table a model of one
// block of it, with its own projections, convolutions, norms and gates; and for hybrids, heads and losses.
//
// Every tensor of parameters is moved along a random direction of its own, so that a wrong gradient of one of them cannot
// hide behind others.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ttr/model.h"
#include "ttr/random.h"
#include "ttr/ttr.h"

namespace {

using namespace ttr::model;

Config small(const std::string& stack) {
  Config c;
  c.stack = stack, c.vocabulary = 7, c.width = 6, c.heads = 2, c.key_dim = 4, c.value_dim = 4, c.time = 5,
  c.mlp = "none";
  return c;
}

struct Data {
  std::vector<std::int32_t> tokens, labels;
  std::vector<double> rows, targets;
  std::vector<std::uint8_t> counted;
  Batch<double> batch;
};

Data data(const Config& c, int batch, int time) {
  Data d;
  ttr::model::Random random(5, c.stack);
  for (int i = 0; i < batch * time; ++i) {
    d.tokens.push_back(
        static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(std::max(1, c.vocabulary)))));
    const int classes = c.output_dim ? c.output_dim : c.vocabulary;
    d.labels.push_back(i % 3 == 1 ? -100
                                  : static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(classes))));
    d.counted.push_back(i % 4 != 2);
    for (int j = 0; j < c.input_dim; ++j) d.rows.push_back(random.normal());
    for (int j = 0; j < c.output_dim; ++j) d.targets.push_back(random.normal());
  }
  d.batch = {.batch = batch,
             .time = time,
             .tokens = d.tokens.data(),
             .rows = d.rows.data(),
             .labels = d.labels.data(),
             .targets = d.targets.data(),
             .counted = d.counted.data()};
  return d;
}

// Relative to the largest derivative of the model along a direction of length one; 1e-3 of it is enough to be seen.
void expect_gradient(const Config& c, double tolerance = 2e-7) {
  SCOPED_TRACE(c.stack);
  Model<double> model(c, 3);
  Session<double> session(model, 2, c.time);
  const Data d = data(c, 2, c.time);
  ttr::model::Random random(11, c.stack);
  for (double& x : model.values()) x += 0.05 * random.normal();  // nothing stays zero or one
  const Measure at = session.gradient(d.batch);
  ASSERT_TRUE(std::isfinite(at.loss));
  EXPECT_EQ(session.forward(d.batch).loss, at.loss);
  const std::vector<double> gradient(session.gradients().begin(), session.gradients().end());
  double scale = 0;
  for (const double g : gradient) scale = std::max(scale, std::abs(g));
  ASSERT_GT(scale, 1e-4);
  for (const Parameter& p : model.parameters()) {
    if (!p.trained) {
      for (std::size_t i = 0; i < p.size; ++i) EXPECT_EQ(gradient[p.offset + i], 0) << p.name;
      continue;
    }
    std::vector<double> direction(p.size);
    double expected = 0, length = 0, largest = 0;
    for (std::size_t i = 0; i < p.size; ++i) direction[i] = random.normal(), length += direction[i] * direction[i];
    for (std::size_t i = 0; i < p.size; ++i) {
      direction[i] /= std::sqrt(length);
      expected += direction[i] * gradient[p.offset + i];
      largest = std::max(largest, std::abs(gradient[p.offset + i]));
    }
    const auto moved = [&](double step) {
      const std::vector<double> before(model.values().begin() + static_cast<std::ptrdiff_t>(p.offset),
                                       model.values().begin() + static_cast<std::ptrdiff_t>(p.offset + p.size));
      for (std::size_t i = 0; i < p.size; ++i) model.values()[p.offset + i] += step * direction[i];
      const double loss = session.forward(d.batch).loss;
      for (std::size_t i = 0; i < p.size; ++i) model.values()[p.offset + i] = before[i];
      return loss;
    };
    const double h = 1e-4;
    const double difference = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
    EXPECT_NEAR(difference, expected, tolerance * std::max(scale, 0.01))
        << p.name << ", largest gradient " << largest;
  }
}

TEST(ModelGradient, EveryLayer) {
  int count = 0;
  for (const ttr::LayerInfo& layer : ttr::layers())
    if (!layer.recipe.empty()) expect_gradient(small(layer.name)), ++count;
  EXPECT_GT(count, 70);
}

TEST(ModelGradient, RecipesAndHybrids) {
  expect_gradient(small("{gate / linear / sgd(beta)}(conv=2)"));
  expect_gradient(small(
      "{equal / linear / gd(2)}, {near(exp) * gate / constant / exact}, {equal / linear / gd(1) | normalise(unit)}"));
  expect_gradient(small("gated-deltanet(heads=1, key_heads=1)*2, softmax(window=3, rotary=no), gla(rank.gk=3)"));
  expect_gradient(small("gla, rls(ridge=input, start=shift, residual=no, conv=2, conv_on=k, conv_act=none)"));
  expect_gradient(small("deltanet(range.beta=2, act=silu, conv=0, out_gate=sigmoid, out_rank=2), rwkv-6(shift=no)"));
}

TEST(ModelGradient, Slstm) {
  expect_gradient(small("slstm"));
  expect_gradient(small("slstm(conv=0, heads=3, value_dim=2, out=no)*2"));
  expect_gradient(small("gated-deltanet, slstm(heads=1, value_dim=5, conv=2)"));
}

TEST(ModelGradient, HeadsLossesAndPerceptrons) {
  Config c = small("gated-deltanet*2");
  c.mlp = "swiglu";
  expect_gradient(c);
  c.tied = true;
  expect_gradient(c);
  c.read_out = "last";
  expect_gradient(c);
  c.width = 5, c.heads = 1;
  expect_gradient(c);
  c.width = 6, c.heads = 2, c.read_out = "each";
  c.mlp = "gelu", c.mlp_width = 5, c.tied = false, c.output_dim = 3;
  expect_gradient(c);
  c.vocabulary = 0, c.input_dim = 4, c.loss = "squared";
  expect_gradient(c);
}

}  // namespace
