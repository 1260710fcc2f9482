// Neural memories against the loop over tokens, and against the layers they become at the corners of their options.
#include "families/network/neural/neural.h"

#include <gtest/gtest.h>

#include "families/linear/scalar/delta.h"
#include "families/network/neural/functions.h"
#include "families/network/neural/reference.h"

namespace {

using namespace ttr_families_test;

const std::vector<FormCall> forms = {
    {Form::recurrent, 0}, {Form::chunk, 0}, {Form::chunk, 2}, {Form::best, 3}, {Form::step, 0}};

Neural ttt_linear() {
  Neural f;
  f.label = "ttt_linear";
  f.m.key_dim = f.m.value_dim = 4;
  f.m.bias = true, f.m.norm = Norm::fixed, f.m.skip = Skip::input;
  f.m.batch = 3, f.m.block = true, f.position_gain = true;
  return f;
}
Neural titans() {
  Neural f;
  f.label = "titans";
  f.m.depth = 2, f.m.width = 5, f.m.batch = 4, f.m.momentum = true, f.m.decay = Decay::complement;
  f.m.gradient_scale = 2, f.rate = true;
  return f;
}
Neural lact() {
  Neural f;
  f.label = "lact";
  f.m.depth = 2, f.m.width = 5, f.m.gated = true, f.m.activation = Activation::silu, f.m.loss = Loss::dot;
  f.m.batch = f.m.step_every = 3, f.m.read_before = f.m.lazy = true, f.m.momentum = true, f.m.row_norm = true;
  f.m.rates = 3, f.size = 0.7;
  return f;
}

/// With Newton-Schulz steps: they lift small singular values, and rounding errors with them.
void check_orthogonalised(const Neural& f) {
  check_family(f, forms, false, 3e-4);
  const Values in = f.draw_values(), d = draw_gradients(f, 77);
  expect_near(run_backward<double>(f, in, d, {Form::recurrent, 0}), five_point_differences(f, in, d, 1e-5), 1e-7,
              f.name() + " differences");
}

TEST(Neural, TttLinear) {
  Neural f = ttt_linear();
  for (const Size T : {0, 1, 3, 7, 9}) f.T = T, check_family(f, forms);
  for (const std::int64_t seen : {1, 2, 3, 5}) f.seen = seen, f.T = 5, check_family(f, forms);
  f.seen = 0, f.T = 7, f.position_gain = false, f.gain = true, f.rate = false, f.m.skip = Skip::sum;
  f.label = "ttt_linear_fla", check_family(f, forms);
  f.position_gain = f.rate = true, f.m.skip = Skip::none, f.m.value_dim = 3, check_family(f, forms);
  f = ttt_linear(), f.B = 2, f.H = 4, f.G = 2, f.T = 6, f.m.batch = 1, check_family(f, forms);
  f = ttt_linear(), f.H = 1, f.packed = {0, 4, 4, 5, 9}, f.T = 9, check_family(f, forms);
  check_steps(f);
  check_alone(f, forms);
}

TEST(Neural, TttMlp) {
  Neural f = ttt_linear();
  f.label = "ttt_mlp", f.H = 1, f.m.depth = 2, f.m.width = 6, f.m.activation = Activation::gelu_tanh;
  for (const Size T : {1, 7}) f.T = T, check_family(f, forms);
  f.m.depth = 3, f.m.width = 3;
  for (const Activation a :
       {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::silu, Activation::tanh})
    f.m.activation = a, f.label = "ttt_mlp-act" + std::to_string(static_cast<int>(a)), check_family(f, forms);
  check_steps(f);
  check_alone(f, forms);
}

TEST(Neural, ChainOfGates) {
  Neural f;
  f.label = "plain", f.T = 8, f.m.batch = 3, check_family(f, forms);
  f.m.bias = true, f.m.read_before = true, f.label = "read_before", check_family(f, forms);
  f = titans(), f.H = 1, f.T = 9, check_family(f, forms);
  f.m.decay = Decay::log, f.m.momentum = false, f.label = "decay", check_family(f, forms);
  f.m.decay = Decay::none, f.m.momentum = true, f.label = "momentum", f.m.read_before = true,
  f.m.gradient_scale = 0.3;
  check_family(f, forms);
  f = titans(), f.H = 1, f.m.depth = 4, f.m.width = 2, f.m.bias = true, f.T = 5, check_family(f, forms);
  f = titans(), f.B = 2, f.H = 2, f.packed = {0, 3, 3, 4, 9}, f.T = 9, check_steps(f), check_alone(f, forms);
}

TEST(Neural, StepsOfSeveralTokens) {
  Neural f = titans();
  f.label = "titans_memory", f.H = 1, f.m.key_dim = f.m.value_dim = 4, f.m.skip = Skip::input;
  f.m.norm = Norm::learned, f.m.norm_eps = 1e-5, f.m.batch = 0, f.m.step_every = 3, f.T = 8;
  check_family(f, forms);
  f.seen = 4, check_family(f, forms);
  f.m.depth = 1, f.m.batch = 6, f.seen = 0, check_family(f, forms);
  f.m.momentum = false, f.m.read_before = true, f.m.bias = true, check_family(f, forms);
  f.m.decay = Decay::none, f.m.batch = 3, check_family(f, forms);
  f.packed = {0, 3, 3, 4, 8}, check_steps(f), check_alone(f, forms);
}

TEST(Neural, LearnedNormWithoutSteps) {
  Neural f = titans();
  f.label = "learned_norm", f.H = 1, f.m.norm = Norm::learned, f.T = 6, check_family(f, forms);
}

TEST(Neural, Lact) {
  Neural f = lact();
  f.H = 1;
  for (const Size T : {1, 3, 4, 8}) f.T = T, check_family(f, forms);
  f.seen = 3, f.T = 4, check_family(f, forms);
  f.seen = 0, f.m.batch = 6, check_family(f, forms);
  f.m.batch = f.m.step_every = 1, f.label = "lazy", check_family(f, forms);
  f = lact(), f.H = 1, f.T = 7, f.m.orthogonalise = Orthogonalise::scheduled, check_orthogonalised(f);
  f.m.lazy = false, f.label = "eager", check_orthogonalised(f);
  f.m.read_before = false, f.m.bias = true, f.m.row_norm = false, check_orthogonalised(f);
  f.m.momentum = false, f.m.orthogonalise = Orthogonalise::fixed, f.m.rates = 1, f.m.width = 2;
  check_orthogonalised(f);
  f = lact(), f.T = 9, f.packed = {0, 4, 4, 5, 9}, check_steps(f), check_alone(f, forms);
}

// A unit whose weights are all 0 keeps them, so their gradient passes the norm as if there were none. Differences cannot
// say so, because any other weights jump to their length. Nothing moves, and the other units have their length already:
// the network without the norm gives the same numbers.
TEST(Neural, ColumnOfZerosKeepsItsGradient) {
  Neural f = lact();
  f.H = 1, f.T = 7, f.label = "column_of_zeros";
  Neural plain = f;
  plain.m.row_norm = false;
  const NeuralLayout layout(f.m);
  constexpr int column = 1;
  const int in = layout.part[0].in, out = layout.part[0].out;
  Values with = f.draw_values(), without = plain.draw_values();
  for (auto& [name, numbers] : with)
    if (name == "rate" || name[0] == 'Z' || name[0] == 'P') std::fill(numbers.begin(), numbers.end(), 0.0);
  for (int r = 0; r < in; ++r)
    for (std::size_t n = 0; n < with["W0"].size(); n += static_cast<std::size_t>(in * out))
      with["W0"][n + static_cast<std::size_t>(r * out + column)] = 0;
  for (int i = 0; i < layout.count; ++i) {
    const Doubles& W = with["W" + std::to_string(i)];
    const std::size_t rows = static_cast<std::size_t>(layout.part[i].in),
                      columns = static_cast<std::size_t>(layout.part[i].out);
    Doubles& norms = with["norm" + std::to_string(i)];
    for (std::size_t c = 0; c < norms.size(); ++c) {
      double square = 0;
      for (std::size_t r = 0; r < rows; ++r)
        square += std::pow(W[(c / columns * rows + r) * columns + c % columns], 2);
      norms[c] = std::sqrt(square) + 1e-5;
    }
  }
  for (auto& [name, numbers] : without) numbers = with.at(name);
  const Values d = draw_gradients(plain, 77);
  for (const auto& [form, chunk] : forms) {
    const Doubles got = run_backward<double>(f, with, d, {form, chunk}).at("W0"),
                  want = run_backward<double>(plain, without, d, {form, chunk}).at("W0");
    for (std::size_t i = column; i < want.size(); i += static_cast<std::size_t>(out)) {
      EXPECT_NEAR(got[i], want[i], 1e-10) << "form " << static_cast<int>(form) << " number " << i;
      EXPECT_GT(std::abs(want[i]), 1e-3);
    }
  }
}

TEST(Neural, GatedWithoutNonlinearSteps) {
  Neural f = lact();
  f.H = 1, f.label = "gated", f.m.row_norm = f.m.lazy = false, f.m.loss = Loss::squared, f.m.step_every = 1, f.T = 7;
  check_family(f, forms);
  f.m.bias = true, f.m.momentum = false, f.m.read_before = false, check_family(f, forms);
}

TEST(Neural, Losses) {
  Neural f;
  f.T = 6, f.m.decay = Decay::log;
  for (const Loss loss :
       {Loss::squared, Loss::dot, Loss::huber, Loss::huber_coordinate, Loss::huber_sign, Loss::power})
    for (const int batch : {1, 3}) {
      f.m.loss = loss, f.m.power = 3, f.m.batch = batch;
      f.label = "loss" + std::to_string(static_cast<int>(loss)), check_family(f, forms);
    }
  f.m.loss = Loss::power, f.m.power = 1.5, f.seed = 3, check_family(f, forms);
  f.m.loss = Loss::huber, f.m.depth = 2, f.m.width = 3, f.m.norm = Norm::fixed, check_family(f, forms);
}

TEST(Neural, NormsOfTheMemory) {
  Neural f;
  f.label = "moneta", f.T = 6, f.m.decay = Decay::log, f.m.q_norm = 4, f.m.loss = Loss::power, f.m.power = 3;
  check_family(f, forms);
  f.m.loss = Loss::squared, f.m.depth = 2, f.m.width = 3, f.m.batch = 3, f.m.bias = true, check_family(f, forms);
  f.m.batch = 1, f.m.q_norm = 2.5, f.m.decayed_point = true, f.label = "decayed", check_family(f, forms);
  f.m.q_norm = 0, check_family(f, forms);
  check_steps(f);
}

TEST(Neural, MirrorMaps) {
  for (const Mirror mirror : {Mirror::softmax, Mirror::exp, Mirror::sinh}) {
    Neural f;
    f.label = "mirror" + std::to_string(static_cast<int>(mirror)), f.T = 6, f.m.decay = Decay::complement;
    f.m.mirror = mirror, f.m.radius = mirror == Mirror::softmax ? 1.5 : 0.3, f.size = 0.4, check_family(f, forms);
    f.m.depth = 2, f.m.width = 3, f.m.batch = 3, f.m.bias = true, check_family(f, forms);
    f.m.batch = 1, f.m.decay = Decay::log, f.m.decayed_point = true, check_family(f, forms);
    check_steps(f);
  }
}

TEST(Neural, Window) {
  Neural f;
  f.label = "omega", f.m.window = 3, f.m.momentum = true, f.m.decay = Decay::log;
  for (const Size T : {0, 1, 2, 6}) f.T = T, check_family(f, forms);
  f.seen = 1, check_family(f, forms);
  f.seen = 9, f.T = 1, check_family(f, forms);
  f.T = 5, f.m.depth = 2, f.m.width = 3, f.weight = false, f.H = f.G = 2, check_family(f, forms);
  f.m.depth = 1, f.m.orthogonalise = Orthogonalise::fixed, f.weight = true, check_orthogonalised(f);
  f.packed = {0, 1, 1, 5}, check_steps(f), check_alone(f, forms);
}

TEST(Neural, LargerSizes) {
  Neural f = ttt_linear();
  f.H = f.G = 1, f.T = 150, f.m.key_dim = f.m.value_dim = 33, f.m.batch = 70, f.size = 0.2;
  check_family(f, {{Form::recurrent, 0}, {Form::chunk, 0}, {Form::chunk, 16}}, false, 1e-4);
  f = titans(), f.H = f.G = 1, f.T = 150, f.m.key_dim = 17, f.m.value_dim = 19, f.m.width = 40, f.m.batch = 80;
  f.size = 0.1, f.m.gradient_scale = 0.05;
  check_family(f, {{Form::recurrent, 0}, {Form::chunk, 0}, {Form::chunk, 16}}, false, 1e-4);
}

// Both derivatives against differences of the function, and the function against the standard library.
template <class X>
void check_activations(double tolerance, double step) {
  const Simd<X>& simd = ttr::simd<X>("");
  NeuralModel m;
  const NeuralReference reference{m};
  std::vector<X> x, spare(1), y(1), slope(1), bend(1);
  for (int i = -120; i <= 120; ++i) x.push_back(static_cast<X>(i * 0.093 + 0.001));
  const auto n = static_cast<Size>(x.size());
  spare.resize(n), y.resize(n), slope.resize(n), bend.resize(n);
  for (const Activation a :
       {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::silu, Activation::tanh}) {
    m.activation = a;
    activate(simd, a, n, x.data(), y.data(), slope.data(), bend.data(), spare.data());
    for (Size i = 0; i < n; ++i) {
      const double at = x[i];
      const double curve = (reference.act(at + step, 1) - reference.act(at - step, 1)) / (2 * step);
      EXPECT_NEAR(y[i], reference.act(at, 0), tolerance * std::max(1.0, std::abs(at))) << static_cast<int>(a) << at;
      EXPECT_NEAR(slope[i], reference.act(at, 1), 4 * tolerance) << static_cast<int>(a) << at;
      EXPECT_NEAR(bend[i], curve, 10 * tolerance + 1e-8) << static_cast<int>(a) << at;
    }
  }
}

TEST(Neural, Activations) {
  check_activations<double>(1e-15, 1e-5);
  check_activations<float>(3e-7, 1e-5);
}

// One token per block, squared loss, S' k alone: the delta rule.
TEST(Neural, LinearMemoryOfOneTokenBlocksIsDeltaNet) {
  Neural f;
  f.T = 11;
  const Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  LinearProblem<double> p{
      list,          f.H, f.G, 3, 4, f.scale, x.view<4>("q"), x.view<4>("k"), x.view<4>("v"), {}, {}, x.pointer("W0"),
      x.view<4>("o")};
  p.beta = {x.view<4>("rate").data, {f.B, f.T, f.H}, {f.T * f.H, f.H, 1}};
  Scratch<double> scratch(delta::workspace_bytes<double>(3, 4, f.T, Form::recurrent, 0, false));
  ASSERT_EQ(delta::forward(p, Residual::decayed, Form::recurrent, 0, ttr::simd<double>(""), scratch.workspace()),
            Status::ok);
  for (const FormCall& call : forms) {
    const Values out = run_forward<double>(f, in, {call.form, call.chunk});
    EXPECT_LE(distance(out.at("o"), x.held["o"].get()), 1e-13);
    EXPECT_LE(distance(out.at("W0"), x.held["W0"].get()), 1e-13);
  }
}

// Momentum 0 and decay 0 leave the mini-batch gradient descent of TTT; so does a block whose gain is 1.
TEST(Neural, MomentumZeroAndDecayZeroIsTtt) {
  Neural plain;
  plain.T = 11, plain.m.depth = 2, plain.m.width = 5, plain.m.bias = true, plain.m.norm = Norm::fixed,
  plain.m.batch = 4;
  const Values in = plain.draw_values();
  Neural titan = plain, block = plain;
  titan.m.momentum = true, titan.m.decay = Decay::complement;
  block.m.block = true;
  for (const FormCall& call : forms) {
    const Values want = run_forward<double>(plain, in, {call.form, call.chunk});
    for (const Neural& f : {titan, block}) {
      Values with = in;
      for (const Spec& s : f.specs())
        if (!with.count(s.name)) with[s.name] = Doubles(count_of(s.extent), 0.0);
      const Values out = run_forward<double>(f, with, {call.form, call.chunk});
      EXPECT_LE(distance(out.at("o"), want.at("o")), 1e-13);
      EXPECT_LE(distance(out.at("W0"), want.at("W0")), 1e-13);
    }
  }
}

// A block as long as the sequence takes one gradient step on all pairs; from zero weights that is linear attention.
TEST(Neural, OneBlockIsOneBatchGradientStep) {
  Neural f;
  f.T = 9, f.m.batch = 9, f.H = f.G = 1;
  Values in = f.draw_values();
  std::fill(in["W0"].begin(), in["W0"].end(), 0.0);
  Doubles want(f.T * 4), last(12);
  for (Size t = 0; t < f.T; ++t)
    for (Size s = 0; s <= t; ++s) {
      double dot = 0;
      for (Size c = 0; c < 3; ++c) dot += f.scale * in["q"][t * 3 + c] * in["k"][s * 3 + c];
      for (Size j = 0; j < 4; ++j) want[t * 4 + j] += dot * in["rate"][s] * in["v"][s * 4 + j];
      for (Size c = 0; t + 1 == f.T && c < 12; ++c)
        last[c] += in["rate"][s] * in["k"][s * 3 + c / 4] * in["v"][s * 4 + c % 4];
    }
  for (const FormCall& call : forms) {
    const Values out = run_forward<double>(f, in, {call.form, call.chunk});
    EXPECT_LE(distance(out.at("o"), want), 1e-13);
    EXPECT_LE(distance(out.at("W0"), last), 1e-13);
  }
}

// batch 0 takes all gradients at the first weights, like one block of all tokens.
TEST(Neural, BatchZeroIsOneBlock) {
  Neural f = titans();
  f.T = 9;
  const Values in = f.draw_values();
  const Values want = run_forward<double>(f, in, {Form::chunk, 0});
  f.m.batch = 0;
  Neural whole = f;
  whole.m.batch = 9;
  EXPECT_LE(distance(run_forward<double>(f, in, {Form::chunk, 4}).at("o"),
                     run_forward<double>(whole, in, {Form::chunk, 0}).at("o")),
            1e-13);
  EXPECT_GT(distance(run_forward<double>(f, in, {Form::chunk, 0}).at("o"), want.at("o")), 1e-3);
}

TEST(Neural, DeadPartsAreNotRead) {
  Neural f = ttt_linear();
  f.T = 6;
  Values in = f.draw_values();
  const Values want = run_forward<double>(f, in, {Form::chunk, 0});
  for (const char* dead : {"A0", "A1", "Z0", "Z1"})
    std::fill(in[dead].begin(), in[dead].end(), std::numeric_limits<double>::quiet_NaN());
  for (const FormCall& call : forms)
    EXPECT_LE(distance(run_forward<double>(f, in, {call.form, call.chunk}).at("o"), want.at("o")), 1e-12);
}

TEST(Neural, WhatIsWrongIsSaid) {
  Neural f = ttt_linear();
  const Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  x.counts = f.counts();
  const auto list = f.sequences();
  const Simd<double>& s = ttr::simd<double>("");
  Scratch<double> scratch(f.bytes<double>(f.T, Form::chunk, 0, true));
  const Workspace w = scratch.workspace();
  const auto run = [&](const NeuralProblem<double>& p, Form form = Form::chunk) {
    return neural::forward(p, form, 0, s, w);
  };
  const NeuralProblem<double> good = f.problem(x, list);
  EXPECT_EQ(run(good, Form::scan), Status::not_supported);
  EXPECT_EQ(run(good, Form::parallel), Status::not_supported);
  EXPECT_EQ(neural::forward(good, Form::chunk, 0, s, Workspace{w.data, 64}), Status::small_workspace);
  const auto wrong = [&](auto&& change) {
    NeuralProblem<double> p = good;
    change(p);
    return run(p);
  };
  EXPECT_EQ(wrong([](auto& p) { p.model.value_dim = 3; }), Status::bad_shape);  // a residual needs K = V
  EXPECT_EQ(wrong([](auto& p) { p.model.momentum = true; }), Status::bad_shape);
  EXPECT_EQ(wrong([](auto& p) { p.model.read_before = true; }), Status::bad_shape);
  EXPECT_EQ(wrong([](auto& p) { p.model.step_every = 2; }), Status::bad_shape);
  EXPECT_EQ(wrong([](auto& p) { p.model.depth = 2; }), Status::bad_shape);  // no width
  EXPECT_EQ(wrong([](auto& p) { p.model.depth = 99; }), Status::bad_shape);
  EXPECT_EQ(wrong([](auto& p) { p.model.window = 2; }), Status::bad_shape);
  EXPECT_EQ(wrong([](auto& p) { p.model.rates = 2; }), Status::bad_shape);
  EXPECT_EQ(wrong([](auto& p) { p.k = {}; }), Status::missing_input);
  EXPECT_EQ(wrong([](auto& p) { p.state.start[1] = nullptr; }), Status::missing_input);
  EXPECT_EQ(wrong([](auto& p) { p.state.z[0] = nullptr; }), Status::missing_input);
  EXPECT_EQ(wrong([](auto& p) { p.count = nullptr; }), Status::missing_input);
  EXPECT_EQ(wrong([](auto& p) { p.model.loss = Loss::huber; }), Status::missing_input);
  x.counts[0] = -1;
  EXPECT_EQ(run(good), Status::out_of_domain);
  x.counts[0] = 0;
  EXPECT_EQ(run(good), Status::ok);
  EXPECT_EQ(x.counts[0], f.T);
}

}  // namespace
