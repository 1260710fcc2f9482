// Neural memories as recipes: the kernel with the options of a recipe against the literal solver of that recipe,
// outputs, final weights and gradients.
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "families/network/neural/reference.h"
#include "ttr/plan.h"

namespace {

using namespace ttr_families_test;

/// Parts of the oracle's state as names of the case: W0 of the recipe is a part of the layout.
std::map<std::string, std::string> part_names(const Neural& f, bool linear) {
  std::map<std::string, std::string> names;
  const NeuralLayout layout(f.m);
  for (int j = 0; j < layout.matrices; ++j) {
    const std::string part = std::to_string(layout.matrix(j)), w = linear ? "S" : "W" + std::to_string(j);
    names["W" + part] = w;
    if (f.start()) names["A" + part] = "start_" + w;
    if (f.m.momentum) names["Z" + part] = linear ? "Z" : "Z_" + w;
    if (f.m.row_norm) names["norm" + part] = "norm_" + w;
    if (!f.m.bias) continue;
    const std::string bias = std::to_string(layout.matrix(j) + 1), b = "b" + std::to_string(j);
    names["W" + bias] = b;
    if (f.start()) names["A" + bias] = "start_" + b;
    if (f.m.momentum) names["Z" + bias] = "Z_" + b;
  }
  return names;
}

void expect_recipe(const Neural& f, const std::string& recipe, const std::map<std::string, std::string>& inputs,
                   double tolerance = 1e-12) {
  const bool linear = recipe.find("/ linear") != std::string::npos;
  const Values in = f.draw_values();
  Values d = draw_gradients(f, 5);
  for (const char* kept : {"hk", "hv", "hw"})  // the oracle keeps its pairs elsewhere
    if (d.count(kept)) std::fill(d[kept].begin(), d[kept].end(), 0.0);
  ttr::Options options;
  options.type = ttr::Type::f64, options.kernel = "oracle", options.scale = f.scale;
  const ttr::Plan plan = ttr::plan(recipe, {f.B, f.H, f.G, f.m.key_dim, f.m.value_dim}, options);
  const ttr::Footprint bytes = plan.footprint(f.T);
  std::vector<double> state(bytes.state / 8 + 1), d_final(state.size()), d_initial(state.size());
  std::vector<std::byte> work(bytes.workspace), back(bytes.backward);
  const ttr::State s{state.data(), bytes.state}, df{d_final.data(), bytes.state}, di{d_initial.data(), bytes.state};
  ASSERT_EQ(plan.reset(s), Status::ok) << recipe;
  ASSERT_EQ(plan.zero(df), Status::ok) << recipe;
  const auto names = part_names(f, linear);
  const auto put = [&](const ttr::State& to, const std::string& part, const Doubles& x) {
    const ttr::Tensor t = plan.state_tensor(to, part);
    ASSERT_NE(t.data, nullptr) << recipe << ": " << part;
    std::copy(x.begin(), x.end(), static_cast<double*>(t.data));
  };
  const auto get = [&](const ttr::State& from, const std::string& part, std::size_t n) {
    const double* const x = static_cast<const double*>(plan.state_tensor(from, part).data);
    return Doubles(x, x + n);
  };
  for (const auto& [mine, theirs] : names) {
    put(s, theirs, in.at(mine));
    if (d.count(mine)) put(df, theirs, d.at(mine));
  }
  Values held = in, gradients;
  Doubles o(f.B * f.T * f.H * f.m.value_dim), d_o = d.at("o");
  ttr::Inputs given, d_out;
  ttr::Outputs out, d_in;
  std::map<std::string, std::string> all = {{"q", "q"}, {"k", "k"}, {"v", "v"}};
  all.insert(inputs.begin(), inputs.end());
  const auto specs = f.specs();
  for (const auto& [mine, theirs] : all)
    for (const Spec& spec : specs) {
      if (spec.name != mine) continue;
      gradients[mine] = Doubles(count_of(spec.extent));
      const auto& e = spec.extent;
      if (mine == "q" || mine == "k" || mine == "v") {
        given[theirs] = ttr::view(held[mine].data(), e[0], e[1], e[2], e[3]);
        d_in[theirs] = ttr::view(gradients[mine].data(), e[0], e[1], e[2], e[3]);
      } else {
        given[theirs] = ttr::view(held[mine].data(), e[0], e[1], e[2]);
        d_in[theirs] = ttr::view(gradients[mine].data(), e[0], e[1], e[2]);
      }
    }
  out["o"] = ttr::view(o.data(), f.B, f.T, f.H, f.m.value_dim);
  d_out["o"] = ttr::view(d_o.data(), f.B, f.T, f.H, f.m.value_dim);
  ASSERT_EQ(plan.backward(given, s, d_out, df, d_in, di, {back.data(), back.size()}), Status::ok)
      << recipe << ": " << plan.diagnose(given, s, out, {work.data(), work.size()});
  ASSERT_EQ(plan.forward(given, s, out, {work.data(), work.size()}), Status::ok) << recipe;

  for (const FormCall& call : {FormCall{Form::recurrent, 0}, FormCall{Form::chunk, 0}}) {
    const Values got = run_forward<double>(f, in, {call.form, call.chunk});
    const Values grad = run_backward<double>(f, in, d, {call.form, call.chunk});
    EXPECT_LE(distance(got.at("o"), o), tolerance) << recipe;
    for (const auto& [mine, theirs] : names) {
      if (got.count(mine)) {
        EXPECT_LE(distance(got.at(mine), get(s, theirs, got.at(mine).size())), tolerance) << recipe << theirs;
      }
      EXPECT_LE(distance(grad.at(mine), get(di, theirs, grad.at(mine).size())), 100 * tolerance) << theirs;
    }
    for (const auto& [mine, x] : gradients) EXPECT_LE(distance(grad.at(mine), x), 100 * tolerance) << recipe << mine;
  }
}

TEST(NeuralRecipes, Ttt) {
  Neural f;
  f.T = 8, f.m.key_dim = f.m.value_dim = 4, f.m.bias = true, f.m.skip = Skip::input, f.m.norm = Norm::fixed;
  f.m.batch = 3, f.plain_norm = true;
  expect_recipe(f, "equal / layernorm(linear, bias, residual) / minibatch(3, rate)", {{"rate", "rate"}});
  f.m.depth = 2, f.m.width = 16, f.m.activation = Activation::gelu_tanh, f.size = 0.3;
  expect_recipe(f, "equal / mlp(4x, gelu_tanh, bias, residual, layernorm) / minibatch(3, rate)", {{"rate", "rate"}});
}

TEST(NeuralRecipes, Titans) {
  Neural f;
  f.T = 9, f.m.key_dim = f.m.value_dim = 4, f.m.depth = 2, f.m.width = 16, f.m.skip = Skip::input;
  f.m.norm = Norm::fixed, f.m.batch = 4, f.m.momentum = true, f.m.decay = Decay::complement, f.plain_norm = true;
  const std::map<std::string, std::string> gates = {{"rate", "rate"}, {"momentum", "momentum"}, {"decay", "lam"}};
  expect_recipe(f, "equal / mlp(2, residual, layernorm) / minibatch(4, rate, momentum, shrink)", gates);
  f = Neural(), f.T = 9, f.m.batch = 4, f.m.momentum = true, f.m.decay = Decay::log;
  expect_recipe(f, "equal / linear / minibatch(4, rate, momentum, decay)",
                {{"rate", "rate"}, {"momentum", "momentum"}, {"decay", "g"}});
}

TEST(NeuralRecipes, Lact) {
  Neural f;
  f.T = 7, f.m.depth = 2, f.m.width = 12, f.m.gated = true, f.m.activation = Activation::silu, f.m.loss = Loss::dot;
  f.m.batch = 3, f.m.read_before = true, f.m.momentum = true, f.m.row_norm = true, f.size = 0.5;
  const std::map<std::string, std::string> gates = {{"rate", "rate"}, {"momentum", "momentum"}};
  expect_recipe(f, "equal / swiglu / minibatch(3, rate, momentum, rownorm) | dot, read(before)", gates);
  f.m.orthogonalise = Orthogonalise::fixed;
  expect_recipe(f, "equal / swiglu / minibatch(3, rate, momentum, muon, rownorm) | dot, read(before)", gates, 1e-10);
}

TEST(NeuralRecipes, Miras) {
  Neural f;
  f.T = 6, f.m.depth = 2, f.m.width = 12, f.m.decay = Decay::log, f.m.decayed_point = true, f.size = 0.3;
  std::map<std::string, std::string> gates = {{"rate", "beta"}, {"decay", "g"}};
  expect_recipe(f, "equal / mlp(2) / sgd(beta, decay)", gates);
  f.m.q_norm = 4, f.m.loss = Loss::power, f.m.power = 3;
  expect_recipe(f, "equal / mlp(2) / sgd(beta, decay, qnorm=4) | lp(3)", gates);
  f.m.q_norm = 0, f.m.loss = Loss::squared, f.m.mirror = Mirror::softmax, f.m.radius = 3;
  expect_recipe(f, "equal / mlp(2) / sgd(beta, decay, mirror=softmax, radius=3)", gates);
  f.m.mirror = Mirror::none, f.m.radius = 1, f.m.power = 3;
  gates["threshold"] = "c";
  f.m.q_norm = 0, f.m.loss = Loss::huber;
  expect_recipe(f, "equal / mlp(2) / sgd(beta, decay) | huber(c)", gates);
  f.m.loss = Loss::huber_coordinate;
  expect_recipe(f, "equal / mlp(2) / sgd(beta, decay) | huber(c, coordinate)", gates);
}

TEST(NeuralRecipes, Atlas) {
  Neural f;
  f.T = 6, f.m.depth = 2, f.m.width = 12, f.m.decay = Decay::log, f.m.decayed_point = true, f.m.momentum = true;
  f.m.window = 3, f.rate = false, f.size = 0.3, f.scale = 0.5;
  const std::map<std::string, std::string> gates = {{"weight", "beta"}, {"decay", "g"}, {"momentum", "momentum"}};
  expect_recipe(f, "window(3) * equal(beta) / mlp(2) / descend(1, momentum, decay)", gates);
  f.m.orthogonalise = Orthogonalise::fixed;
  expect_recipe(f, "window(3) * equal(beta) / mlp(2) / descend(1, momentum, decay, muon)", gates, 1e-10);
}

}  // namespace
