// The stabilised recurrence of mLSTM against literal loops, and against its unstabilised definition.
#include "families/linear/stabilised/stabilised.h"

#include <gtest/gtest.h>

#include "families_harness.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;

struct Stabilised : FamilyBase {
  int H = 2, G = 1, K = 3, V = 4;
  double scale = 0.9, key_scale = 0.6, eps = 0.01;
  bool strong = false, forget = true;

  std::string name() const {
    return "stabilised-T" + std::to_string(T) + "-H" + std::to_string(H) + "-K" + std::to_string(K) + "-V" +
           std::to_string(V);
  }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, G, K}, 0, 2},
                           {"k", Role::input, {B, T, G, K}},
                           {"v", Role::input, {B, T, H, V}},
                           {"i", Role::input, {B, T, H}, 0.3, 1.5},
                           {"o", Role::output, {B, T, H, V}},
                           {"denom", Role::output, {B, T, H}},
                           {"C", Role::state, {N(), H, K, V}},
                           {"n", Role::state, {N(), H, K}},
                           {"m", Role::state, {N(), H}}};
    if (forget) s.push_back({"f", Role::input, {B, T, H}, -0.5, 0.3});
    return s;
  }
  Values draw_values() const {
    Values v = draw(specs(), seed);
    for (std::size_t i = 0; strong && i < v["f"].size(); ++i) {
      v["f"][i] = i % 3 == 0 ? -1e4 : i % 3 == 1 ? 0 : -40;
      v["i"][i] = i % 4 == 0 ? 60 : i % 4 == 1 ? -1e4 : 0;
    }
    return v;
  }
  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * H * V)},
                  {"denom", Doubles(B * T * H)},
                  {"C", in.at("C")},
                  {"n", in.at("n")},
                  {"m", in.at("m")}};
    Size seq_head = 0;
    for (const Sequence& n : sequences())
      for (int h = 0; h < H; ++h, ++seq_head) {
        double *const C = &out["C"][seq_head * K * V], *const nn = &out["n"][seq_head * K], &m = out["m"][seq_head];
        for (Size t = n.begin; t < n.end; ++t) {
          const Size token = (n.row * T + t) * H + h, key = ((n.row * T + t) * G + h / (H / G)) * K;
          const double f = forget ? in.at("f")[token] : 0, i = in.at("i")[token], top = std::max(f + m, i);
          const double keep = std::exp(f + m - top), write = std::exp(i - top);
          m = top;
          double dot = 0;
          for (Size c = 0; c < K; ++c) {
            const double k = key_scale * in.at("k")[key + c];
            nn[c] = keep * nn[c] + write * k;
            dot += nn[c] * scale * in.at("q")[key + c];
            for (Size j = 0; j < V; ++j) {
              C[c * V + j] = keep * C[c * V + j] + write * k * in.at("v")[token * V + j];
              out["o"][token * V + j] += scale * in.at("q")[key + c] * C[c * V + j];
            }
          }
          const double denom = std::max(std::abs(dot), std::exp(-m)) + eps;
          out["denom"][token] = denom;
          for (Size j = 0; j < V; ++j) out["o"][token * V + j] /= denom;
        }
      }
    return out;
  }
  template <class X>
  StabilisedProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list) const {
    return {{list,
             H,
             G,
             K,
             V,
             static_cast<X>(scale),
             x.template view<4>("q"),
             x.template view<4>("k"),
             x.template view<4>("v"),
             x.template view<3>("f"),
             {},
             x.pointer("C"),
             x.template view<4>("o")},
            static_cast<X>(key_scale),
            static_cast<X>(eps),
            x.template view<3>("i"),
            x.pointer("n"),
            x.pointer("m"),
            x.template view<3>("denom")};
  }
  template <class X>
  std::size_t bytes(Size longest, Form form, int chunk, bool backward) const {
    return stabilised::workspace_bytes<X>(K, V, longest, form, chunk, backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form form, int chunk, const Simd<X>& s,
                 Workspace w) const {
    return stabilised::forward(problem(x, list), form, chunk, s, w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form form, int chunk,
                  const Simd<X>& s, Workspace w) const {
    StabilisedGradient<X> d{{given.template view<4>("o"),
                             given.pointer("C"),
                             to.template view<4>("q"),
                             to.template view<4>("k"),
                             to.template view<4>("v"),
                             to.template view<3>("f"),
                             {},
                             to.pointer("C")},
                            given.template view<3>("denom"),
                            to.template view<3>("i"),
                            given.pointer("n"),
                            given.pointer("m"),
                            to.pointer("n"),
                            to.pointer("m")};
    return stabilised::backward(problem(x, list), d, form, chunk, s, w);
  }
};

const std::vector<FormCall> forms = {{Form::recurrent, 0}, {Form::chunk, 0}, {Form::chunk, 1},     {Form::chunk, 3},
                                     {Form::parallel, 0},  {Form::best, 0},  {Form::recurrent, 2}, {Form::step, 0}};

TEST(Stabilised, AllFormsAndGradients) {
  Stabilised f;
  for (const Size T : {0, 1, 2, 7, 12}) f.T = T, check_family(f, forms);
  f.forget = false, f.B = 2, f.H = 4, f.G = 2, f.K = 1, f.V = 1, f.T = 6, check_family(f, forms);
  f.forget = true, f.B = 1, f.H = f.G = 1, f.K = 5, f.V = 9, f.T = 12, f.packed = {0, 3, 3, 4, 12};
  check_family(f, forms);
  check_steps(f);
  check_alone(f, forms);
  f.packed = {}, f.eps = 0, check_family(f, forms);
  f.T = 150, check_family(f, {{Form::recurrent, 0}, {Form::chunk, 0}, {Form::parallel, 0}}, false, 1e-4);
}

TEST(Stabilised, StrongGates) {
  Stabilised f;
  f.strong = true, f.T = 13;
  const Values in = f.draw_values(), want = f.reference(in);
  Values d = draw_gradients(f, 3);
  std::fill(d["denom"].begin(), d["denom"].end(), 0.0);  // the denominator itself overflows where nothing is written
  Values first;
  for (const FormCall& call : forms) {
    const Values out = run_forward<double>(f, in, {call.form, call.chunk});
    for (const char* name : {"o", "C", "n", "m"}) EXPECT_LE(distance(out.at(name), want.at(name)), 1e-11) << name;
    const Values grad = run_backward<double>(f, in, d, {call.form, call.chunk});
    if (first.empty()) first = grad;
    for (const auto& [name, x] : grad) {
      for (const double y : x) EXPECT_TRUE(std::isfinite(y)) << name;
      EXPECT_LE(distance(x, first.at(name)), 1e-10) << name;
    }
    for (const auto& [name, x] : run_backward<float>(f, in, d, {call.form, call.chunk}))
      for (const double y : x) EXPECT_TRUE(std::isfinite(y)) << name;
  }
}

// sum_s e^{f_{s+1} + .. + f_t + i_s} over max(|.|, 1), without a running maximum.
TEST(Stabilised, IsItsDefinition) {
  Stabilised f;
  f.eps = 0, f.H = f.G = 1, f.T = 20;
  Values in = f.draw_values();
  for (const char* name : {"C", "n", "m"}) std::fill(in[name].begin(), in[name].end(), 0.0);
  for (const FormCall& call : forms) {
    const Values out = run_forward<double>(f, in, {call.form, call.chunk});
    for (Size t = 0; t < f.T; ++t) {
      Doubles above(f.V);
      double below = 0;
      for (Size s = 0; s <= t; ++s) {
        double log_weight = in["i"][s], dot = 0;
        for (Size r = s + 1; r <= t; ++r) log_weight += in["f"][r];
        for (Size c = 0; c < f.K; ++c) dot += f.scale * f.key_scale * in["q"][t * f.K + c] * in["k"][s * f.K + c];
        below += std::exp(log_weight) * dot;
        for (Size j = 0; j < f.V; ++j) above[j] += std::exp(log_weight) * dot * in["v"][s * f.V + j];
      }
      for (Size j = 0; j < f.V; ++j)
        EXPECT_NEAR(out.at("o")[t * f.V + j], above[j] / std::max(std::abs(below), 1.0), 1e-11);
    }
  }
}

TEST(Stabilised, WhatIsWrongIsSaid) {
  Stabilised f;
  const Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  const Simd<double>& s = ttr::simd<double>("");
  Scratch<double> scratch(f.bytes<double>(f.T, Form::chunk, 0, false));
  const Workspace w = scratch.workspace();
  auto p = f.problem(x, list);
  EXPECT_EQ(stabilised::forward(p, Form::scan, 0, s, w), Status::not_supported);
  EXPECT_EQ(stabilised::forward(p, Form::chunk, 0, s, Workspace{w.data, 64}), Status::small_workspace);
  p.input = {};
  EXPECT_EQ(stabilised::forward(p, Form::chunk, 0, s, w), Status::missing_input);
  p = f.problem(x, list), p.maximum = nullptr;
  EXPECT_EQ(stabilised::forward(p, Form::chunk, 0, s, w), Status::missing_input);
  p = f.problem(x, list), p.linear.value_dim = 0;
  EXPECT_EQ(stabilised::forward(p, Form::chunk, 0, s, w), Status::bad_shape);
}

}  // namespace
