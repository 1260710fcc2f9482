// The gated Oja rule against a literal loop, and against the gated delta rule on the transposed state.
#include "families/linear/oja/oja.h"

#include <gtest/gtest.h>

#include "families/linear/channel/dplr.h"
#include "families_harness.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;

enum class Gate {
  none,
  every,
  per_head,
  constant
};  // per_head: one for all channels; constant: the same at all times

struct Oja : FamilyBase {
  int H = 2, G = 1, K = 3, V = 4;
  double scale = 0.7, value_size = 1;  // of |v|
  Gate gate = Gate::every;
  bool weights = true, strong = false;

  std::string name() const {
    return "oja-T" + std::to_string(T) + "-H" + std::to_string(H) + "-G" + std::to_string(G) + "-K" +
           std::to_string(K) + "-V" + std::to_string(V) + "-gate" + std::to_string(static_cast<int>(gate));
  }
  std::vector<Size> gate_extent() const {
    return {B, gate == Gate::constant ? 1 : T, H, gate == Gate::per_head ? 1 : V};
  }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, G, K}},
                           {"k", Role::input, {B, T, G, K}},
                           {"v", Role::input, {B, T, H, V}, 0, value_size / std::sqrt(V)},
                           {"o", Role::output, {B, T, H, V}},
                           {"S", Role::state, {N(), H, K, V}}};
    if (gate != Gate::none) s.push_back({"gv", Role::input, gate_extent(), -0.4, 0.2});
    if (weights) s.push_back({"beta", Role::input, {B, T, H}, 0.6, 0.3});
    return s;
  }
  Values draw_values() const {
    Values v = draw(specs(), seed);
    const double kinds[] = {-1e4, 0, -40, 0, -std::numeric_limits<double>::infinity(), -0.125, 0, 0};
    for (std::size_t i = 0; strong && gate != Gate::none && i < v["gv"].size(); ++i)
      v["gv"][i] = kinds[(i * 7 + i / 5) % 8];
    return v;
  }
  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * H * V)}, {"S", in.at("S")}};
    const Doubles &q = in.at("q"), &k = in.at("k"), &v = in.at("v");
    Doubles &o = out["o"], &states = out["S"];
    const auto gates = gate == Gate::none ? Doubles() : in.at("gv");
    const auto steps = weights ? in.at("beta") : Doubles(B * T * H, 1.0);
    Size seq_head = 0;
    for (const Sequence& n : sequences())
      for (int h = 0; h < H; ++h, ++seq_head)
        for (Size t = n.begin; t < n.end; ++t) {
          const Size token = (n.row * T + t) * H + h, key = ((n.row * T + t) * G + h / (H / G)) * K;
          const Size at = gate == Gate::constant ? n.row * H + h : token;
          for (Size i = 0; i < K; ++i) {
            double* const S = &states[(seq_head * K + i) * V];
            double r = k[key + i];
            for (Size j = 0; j < V; ++j) {
              if (gate != Gate::none) S[j] *= std::exp(gate == Gate::per_head ? gates[at] : gates[at * V + j]);
              r -= S[j] * v[token * V + j];
            }
            for (Size j = 0; j < V; ++j) {
              S[j] += steps[token] * r * v[token * V + j];
              o[token * V + j] += scale * q[key + i] * S[j];
            }
          }
        }
    return out;
  }
  template <class X>
  OjaProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list) const {
    return {{list,
             H,
             G,
             K,
             V,
             static_cast<X>(scale),
             x.template view<4>("q"),
             x.template view<4>("k"),
             x.template view<4>("v"),
             {},
             x.template view<3>("beta"),
             x.pointer("S"),
             x.template view<4>("o")},
            x.template view<4>("gv")};
  }
  template <class X>
  std::size_t bytes(Size longest, Form form, int chunk, bool backward) const {
    return oja::workspace_bytes<X>(K, V, longest, form, chunk, backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form form, int chunk, const Simd<X>& s,
                 Workspace w) const {
    return oja::forward(problem(x, list), form, chunk, s, w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form form, int chunk,
                  const Simd<X>& s, Workspace w) const {
    const OjaGradient<X> d{{given.template view<4>("o"),
                            given.pointer("S"),
                            to.template view<4>("q"),
                            to.template view<4>("k"),
                            to.template view<4>("v"),
                            {},
                            to.template view<3>("beta"),
                            to.pointer("S")},
                           to.template view<4>("gv")};
    return oja::backward(problem(x, list), d, form, chunk, s, w);
  }
};

const std::vector<FormCall> forms = {{Form::recurrent, 0}, {Form::chunk, 0}, {Form::chunk, 1},     {Form::chunk, 3},
                                     {Form::parallel, 0},  {Form::best, 0},  {Form::recurrent, 2}, {Form::step, 0},
                                     {Form::scan, 0},      {Form::scan, 2}};

TEST(Oja, AllFormsAndGradients) {
  Oja f;
  for (const Size T : {0, 1, 2, 7, 11}) f.T = T, check_family(f, forms);
  f.B = 2, f.H = 4, f.G = 2, f.T = 6, check_family(f, forms);
  f.weights = false, f.value_size = 0.8, check_family(f, forms);
  f.weights = true, f.B = 1, f.H = f.G = 1, f.K = 5, f.V = 9, f.T = 12, f.packed = {0, 3, 3, 4, 12};
  check_family(f, forms);
  check_steps(f);
  check_alone(f, forms);
}

TEST(Oja, OddSizes) {
  for (const int K : {1, 3, 5, 12, 33})
    for (const int V : {1, 3, 5, 12, 33}) {
      Oja f;
      f.K = K, f.V = V, f.T = 5;
      check_family(f, {{Form::recurrent, 0}, {Form::chunk, 0}, {Form::chunk, 2}, {Form::scan, 2}});
      check_steps(f);
    }
}

TEST(Oja, GatesOfEveryShape) {
  for (const Gate gate : {Gate::none, Gate::per_head, Gate::constant}) {
    Oja f;
    f.gate = gate, f.B = 2, f.T = 9;
    check_family(f, forms);
    check_steps(f);
    f.H = f.G = 1, f.V = 1, check_family(f, forms);
  }
}

// Chunks longer than a block of sixteen tokens, gates that close for good and gates that are exactly open.
TEST(Oja, StrongGates) {
  for (const Gate gate : {Gate::every, Gate::per_head}) {
    Oja f;
    f.gate = gate, f.strong = true, f.T = 13, f.V = 5;
    check_family(f, forms);
    f.T = 50, f.K = 7, f.V = 6;
    check_family(f, {{Form::recurrent, 0}, {Form::chunk, 0}, {Form::chunk, 20}, {Form::parallel, 0}, {Form::scan, 0}},
                 false);
  }
}

TEST(Oja, LongSequence) {
  Oja f;
  f.H = f.G = 1, f.K = 9, f.V = 5, f.T = 300;
  check_family(f, {{Form::recurrent, 0}, {Form::chunk, 0}, {Form::chunk, 50}, {Form::parallel, 0}, {Form::scan, 16}},
               false, 1e-4);
}

// A gate that is told to be zero has a gradient, also where its view has no data.
TEST(Oja, GradientOfAnAbsentGate) {
  Oja open;
  open.T = 7;
  Values in = open.draw_values();
  std::fill(in["gv"].begin(), in["gv"].end(), 0.0);
  const Values d = draw_gradients(open, 5);
  for (const FormCall& call : forms) {
    const Values want = run_backward<double>(open, in, d, {call.form, call.chunk});
    Bound<double> x(open.specs(), &in, false), given(open.specs(), &d, false), to(open.specs(), nullptr, false);
    x.held.erase("gv");
    Scratch<double> scratch(open.bytes<double>(open.T, call.form, call.chunk, true));
    ASSERT_EQ(open.backward<double>(x, given, to, open.sequences(), call.form, call.chunk, ttr::simd<double>(""),
                                    scratch.workspace()),
              Status::ok);
    for (const auto& [name, y] : want) EXPECT_LE(distance(to.held[name].get(), y), 1e-13) << name;
  }
}

// Wanted gradients are added to what is there; views without data are left alone, and the others do not change.
TEST(Oja, GradientsAreAddedAndOptional) {
  Oja f;
  f.B = 2, f.T = 9;
  const Values in = f.draw_values(), d = draw_gradients(f, 9);
  const auto list = f.sequences();
  for (const FormCall& call : forms) {
    const Values want = run_backward<double>(f, in, d, {call.form, call.chunk});
    Scratch<double> scratch(f.bytes<double>(f.T, call.form, call.chunk, true));
    for (const auto& [only, y] : want) {
      Bound<double> x(f.specs(), &in, false), given(f.specs(), &d, false), to(f.specs(), nullptr, false);
      for (const Spec& s : f.specs())
        if (s.name != only) to.held.erase(s.name);
      Doubles shifted = y;
      for (double& z : shifted) z += 3;
      to.held[only].set(Doubles(y.size(), 3.0));
      ASSERT_EQ(
          f.backward<double>(x, given, to, list, call.form, call.chunk, ttr::simd<double>(""), scratch.workspace()),
          Status::ok);
      EXPECT_LE(distance(to.held[only].get(), shifted), 1e-14) << only;
    }
    // No outputs in the loss: queries are not needed, and zero in d_o says the same.
    Values silent = d;
    std::fill(silent["o"].begin(), silent["o"].end(), 0.0);
    const Values through_state = run_backward<double>(f, in, silent, {call.form, call.chunk});
    Bound<double> x(f.specs(), &in, false), given(f.specs(), &d, false), to(f.specs(), nullptr, false);
    x.held.erase("q"), x.held.erase("o"), given.held.erase("o");
    ASSERT_EQ(
        f.backward<double>(x, given, to, list, call.form, call.chunk, ttr::simd<double>(""), scratch.workspace()),
        Status::ok);
    for (const auto& [name, y] : through_state) EXPECT_LE(distance(to.held[name].get(), y), 1e-14) << name;
  }
}

// A token must not see NaN in a later one, of whichever input.
TEST(Oja, TheFutureDoesNotReachBack) {
  Oja f;
  f.H = f.G = 1, f.K = 6, f.V = 8, f.T = 40;
  const Size bad = 21;
  const Values in = f.draw_values();
  for (const FormCall& call : forms) {
    const Values clean = run_forward<double>(f, in, {call.form, call.chunk});
    for (const char* where : {"q", "k", "v", "gv", "beta"}) {
      Bound<double> x(f.specs(), &in, false);
      const Size width = static_cast<Size>(in.at(where).size()) / f.T;
      for (Size j = 0; j < width; ++j) x.held[where].at(bad * width + j) = std::numeric_limits<double>::quiet_NaN();
      Scratch<double> scratch(f.bytes<double>(f.T, call.form, call.chunk, false));
      ASSERT_EQ(
          f.forward<double>(x, f.sequences(), call.form, call.chunk, ttr::simd<double>(""), scratch.workspace()),
          Status::ok);
      for (Size i = 0; i < bad * f.V; ++i)
        ASSERT_EQ(x.held["o"].at(i), clean.at("o")[i]) << where << " form " << static_cast<int>(call.form);
    }
  }
}

// KDA with the roles of k and v exchanged keeps the transposed state.
TEST(Oja, TransposedIsTheGatedDeltaRule) {
  Oja f;
  f.H = f.G = 2, f.T = 37, f.K = 5, f.V = 7;
  const Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  Doubles state(in.at("S").size());
  const auto turned = [&](const Doubles& S, int rows, int columns) {
    Doubles out(S.size());
    for (Size n = 0; n < f.H; ++n)
      for (Size i = 0; i < rows; ++i)
        for (Size j = 0; j < columns; ++j) out[(n * columns + j) * rows + i] = S[(n * rows + i) * columns + j];
    return out;
  };
  state = turned(in.at("S"), f.K, f.V);
  const auto list = f.sequences();
  const DplrProblem<double> kda{
      {list, f.H, f.G, f.V, f.K, 1.0, {}, x.view<4>("v"), x.view<4>("k"), {}, x.view<3>("beta"), state.data(), {}},
      x.view<4>("gv"),
      {},
      {},
      true};
  Scratch<double> scratch(dplr::workspace_bytes<double>(f.V, f.K, f.T, Form::recurrent, 0, false));
  ASSERT_EQ(dplr::forward(kda, Form::recurrent, 0, ttr::simd<double>(""), scratch.workspace()), Status::ok);
  for (const FormCall& call : forms)
    EXPECT_LE(distance(run_forward<double>(f, in, {call.form, call.chunk}).at("S"), turned(state, f.V, f.K)), 1e-13);
}

// Unit values and beta = 1: each token is answered exactly, and what was stored along other directions stays.
TEST(Oja, UnitValuesAreStoredExactly) {
  Oja f;
  f.H = f.G = 1, f.K = 5, f.V = 4, f.T = 30, f.gate = Gate::none, f.weights = false, f.value_size = 2;
  Values in = f.draw_values();
  for (Size t = 0; t < f.T; ++t) {
    double size = 0;
    for (Size j = 0; j < f.V; ++j) size += in["v"][t * f.V + j] * in["v"][t * f.V + j];
    for (Size j = 0; j < f.V; ++j) in["v"][t * f.V + j] /= std::sqrt(size);
  }
  for (const FormCall& call : forms) {
    const Doubles S = run_forward<double>(f, in, {call.form, call.chunk}).at("S");
    for (Size i = 0; i < f.K; ++i) {
      double stored = 0;
      for (Size j = 0; j < f.V; ++j) stored += S[i * f.V + j] * in["v"][(f.T - 1) * f.V + j];
      EXPECT_NEAR(stored, in["k"][(f.T - 1) * f.K + i], 1e-12);
    }
  }
}

TEST(Oja, WhatIsWrongIsSaid) {
  Oja f;
  const Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  const Simd<double>& s = ttr::simd<double>("");
  Scratch<double> scratch(f.bytes<double>(f.T, Form::scan, 0, true));
  const Workspace w = scratch.workspace();
  auto p = f.problem(x, list);
  EXPECT_EQ(oja::forward(p, Form::scan, 0, s, Workspace{w.data, 64}), Status::small_workspace);
  EXPECT_EQ(oja::backward(p, {}, Form::scan, 0, s, Workspace{w.data, 64}), Status::small_workspace);
  p.linear.g = x.view<3>("beta");
  EXPECT_EQ(oja::forward(p, Form::chunk, 0, s, w), Status::not_supported);
  EXPECT_EQ(oja::backward(p, {}, Form::chunk, 0, s, w), Status::not_supported);
  p = f.problem(x, list), p.linear.q = {};
  EXPECT_EQ(oja::forward(p, Form::chunk, 0, s, w), Status::missing_input);
  p = f.problem(x, list), p.linear.k = {};
  EXPECT_EQ(oja::forward(p, Form::chunk, 0, s, w), Status::missing_input);
  p = f.problem(x, list), p.linear.state = nullptr;
  EXPECT_EQ(oja::forward(p, Form::chunk, 0, s, w), Status::missing_input);
  p = f.problem(x, list), p.linear.heads = 3, p.linear.key_heads = 2;
  EXPECT_EQ(oja::forward(p, Form::chunk, 0, s, w), Status::bad_shape);
}

}  // namespace
