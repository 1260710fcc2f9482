// The delta rule with momentum against literal loops.
#include "families/linear/momentum/momentum.h"

#include <gtest/gtest.h>

#include "families_harness.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;

struct Momentum : FamilyBase {
  int H = 2, G = 1, K = 3, V = 4;
  double scale = 0.7, key_size = 0.5;
  bool read_key = true, gates = true, weights = true, strong = false;
  Residual residual = Residual::undecayed;

  std::string name() const {
    return "momentum-T" + std::to_string(T) + "-H" + std::to_string(H) + "-K" + std::to_string(K) + "-V" +
           std::to_string(V) + "-residual" + std::to_string(static_cast<int>(residual));
  }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, G, K}},   {"k", Role::input, {B, T, G, K}, 0, key_size},
                           {"v", Role::input, {B, T, H, V}},   {"o", Role::output, {B, T, H, V}},
                           {"S", Role::state, {N(), H, K, V}}, {"Z", Role::state, {N(), H, K, V}}};
    if (read_key) s.push_back({"p", Role::input, {B, T, G, K}, 0, key_size});
    if (gates)
      s.push_back({"g", Role::input, {B, T, H}, -0.3, 0.2}), s.push_back({"g_mu", Role::input, {B, T, H}, -0.6, 0.2});
    if (weights)
      s.push_back({"beta", Role::input, {B, T, H}, 0.3, 0.4}), s.push_back({"eta", Role::input, {B, T, H}, 0.5, 0.3});
    return s;
  }
  Values draw_values() const {
    Values v = draw(specs(), seed);
    for (std::size_t i = 0; strong && i < v["g"].size(); ++i) {
      v["g"][i] = i % 3 == 0 ? -1e4 : i % 3 == 1 ? 0 : -40;
      v["g_mu"][i] = i % 4 == 0 ? -1e4 : i % 4 == 1 ? 0 : -1;
    }
    return v;
  }
  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * H * V)}, {"S", in.at("S")}, {"Z", in.at("Z")}};
    Size seq_head = 0;
    for (const Sequence& n : sequences())
      for (int h = 0; h < H; ++h, ++seq_head)
        for (Size t = n.begin; t < n.end; ++t) {
          const Size token = (n.row * T + t) * H + h, key = ((n.row * T + t) * G + h / (H / G)) * K;
          const double a = gates ? std::exp(in.at("g")[token]) : 1, mu = gates ? std::exp(in.at("g_mu")[token]) : 1;
          const double beta = weights ? in.at("beta")[token] : 1, eta = weights ? in.at("eta")[token] : 1;
          const double* const p = &in.at(read_key ? "p" : "k")[key];
          for (Size j = 0; j < V; ++j) {
            double *const S = &out["S"][seq_head * K * V + j], *const Z = &out["Z"][seq_head * K * V + j];
            double r = in.at("v")[token * V + j];
            for (Size i = 0; i < K; ++i) r -= (residual == Residual::decayed ? a : 1) * S[i * V] * p[i];
            for (Size i = 0; i < K; ++i) {
              Z[i * V] = mu * Z[i * V] + eta * in.at("k")[key + i] * r;
              S[i * V] = a * S[i * V] + beta * Z[i * V];
              out["o"][token * V + j] += scale * in.at("q")[key + i] * S[i * V];
            }
          }
        }
    return out;
  }
  template <class X>
  MomentumProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list) const {
    return {{list, H, G, K, V, static_cast<X>(scale), x.template view<4>("q"), x.template view<4>("k"),
             x.template view<4>("v"), x.template view<3>("g"), x.template view<3>("beta"), x.pointer("S"),
             x.template view<4>("o")},
            residual,
            x.template view<4>("p"),
            x.template view<3>("g_mu"),
            x.template view<3>("eta"),
            x.pointer("Z")};
  }
  template <class X>
  std::size_t bytes(Size longest, Form form, int chunk, bool backward) const {
    return momentum::workspace_bytes<X>(K, V, longest, form, chunk, backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form form, int chunk, const Simd<X>& s,
                 Workspace w) const {
    return momentum::forward(problem(x, list), form, chunk, s, w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form form, int chunk,
                  const Simd<X>& s, Workspace w) const {
    MomentumGradient<X> d{
        {given.template view<4>("o"), given.pointer("S"), to.template view<4>("q"), to.template view<4>("k"),
         to.template view<4>("v"), to.template view<3>("g"), to.template view<3>("beta"), to.pointer("S")},
        to.template view<4>("p"),
        to.template view<3>("g_mu"),
        to.template view<3>("eta"),
        given.pointer("Z"),
        to.pointer("Z")};
    return momentum::backward(problem(x, list), d, form, chunk, s, w);
  }
};

const std::vector<FormCall> forms = {{Form::recurrent, 0}, {Form::chunk, 0}, {Form::chunk, 1},     {Form::chunk, 3},
                                     {Form::parallel, 0},  {Form::best, 0},  {Form::recurrent, 2}, {Form::step, 0},
                                     {Form::scan, 0},      {Form::scan, 2}};

TEST(Momentum, AllFormsAndGradients) {
  for (const Residual residual : {Residual::undecayed, Residual::decayed}) {
    Momentum f;
    f.residual = residual;
    for (const Size T : {0, 1, 2, 7, 11}) f.T = T, check_family(f, forms);
    f.B = 2, f.H = 4, f.G = 2, f.K = 1, f.V = 1, f.read_key = false, f.T = 6, check_family(f, forms);
    f.B = 1, f.H = f.G = 1, f.K = 5, f.V = 9, f.T = 12, f.packed = {0, 3, 3, 4, 12}, check_family(f, forms);
    check_steps(f);
    check_alone(f, forms);
    f.gates = false, f.packed = {}, f.key_size = 0.2, f.T = 7, check_family(f, forms);
    f.gates = true, f.weights = false, f.read_key = true, check_family(f, forms);
  }
}

TEST(Momentum, StrongGates) {
  Momentum f;
  f.strong = true, f.T = 13;
  check_family(f, forms);
  f.residual = Residual::decayed;
  check_family(f, forms);
}

TEST(Momentum, LongSequence) {
  Momentum f;
  f.H = f.G = 1, f.K = 9, f.V = 5, f.T = 200, f.key_size = 0.2;
  check_family(f, {{Form::recurrent, 0}, {Form::chunk, 0}, {Form::chunk, 50}, {Form::parallel, 0}}, false, 1e-4);
}

// Without momentum it is the gated delta rule with step beta eta.
TEST(Momentum, ClosedMomentumIsTheDeltaRule) {
  Momentum f;
  f.residual = Residual::decayed, f.read_key = false;
  Values in = f.draw_values();
  std::fill(in["g_mu"].begin(), in["g_mu"].end(), -std::numeric_limits<double>::infinity());
  for (const FormCall& call : forms) {
    const Values got = run_forward<double>(f, in, {call.form, call.chunk});
    Bound<double> x(f.specs(), &in, false);
    auto p = f.problem(x, f.sequences()).linear;
    const auto list = f.sequences();
    p.sequences = list;
    Held<double>& beta = x.held["beta"];
    for (Size i = 0; i < f.B * f.T * f.H; ++i) beta.at(i) *= in["eta"][i];
    Scratch<double> scratch(delta::workspace_bytes<double>(f.K, f.V, f.T, Form::recurrent, 0, false));
    ASSERT_EQ(delta::forward(p, Residual::decayed, Form::recurrent, 0, ttr::simd<double>(""), scratch.workspace()),
              Status::ok);
    EXPECT_LE(distance(got.at("o"), x.held["o"].get()), 1e-12);
    EXPECT_LE(distance(got.at("S"), x.held["S"].get()), 1e-12);
  }
}

TEST(Momentum, WhatIsWrongIsSaid) {
  Momentum f;
  const Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  const Simd<double>& s = ttr::simd<double>("");
  Scratch<double> scratch(f.bytes<double>(f.T, Form::chunk, 0, false));
  const Workspace w = scratch.workspace();
  auto p = f.problem(x, list);
  EXPECT_EQ(momentum::forward(p, Form::chunk, 0, s, Workspace{w.data, 64}), Status::small_workspace);
  p.momentum = nullptr;
  EXPECT_EQ(momentum::forward(p, Form::chunk, 0, s, w), Status::missing_input);
  p = f.problem(x, list), p.linear.key_heads = 3;
  EXPECT_EQ(momentum::forward(p, Form::chunk, 0, s, w), Status::bad_shape);
}

}  // namespace
