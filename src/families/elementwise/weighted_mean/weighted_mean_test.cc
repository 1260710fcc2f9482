// Exponentially weighted means per channel against literal loops.
#include "families/elementwise/weighted_mean/weighted_mean.h"

#include <gtest/gtest.h>

#include "families_harness.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;

struct WeightedMean : FamilyBase {
  int D = 5;
  bool constant = true, strong = false, fresh = false;

  std::string name() const { return "weighted_mean-T" + std::to_string(T) + "-D" + std::to_string(D); }
  bool is_state(const std::string& x) const { return x == "exponent"; }
  std::vector<Spec> specs() const {
    const std::vector<Size> gate = constant ? std::vector<Size>{1, 1, D} : std::vector<Size>{B, T, D};
    return {{"k", Role::input, {B, T, D}},
            {"v", Role::input, {B, T, D}},
            {"w", Role::input, gate, -0.7, 0.3},
            {"u", Role::input, gate},
            {"o", Role::output, {B, T, D}},
            {"alpha", Role::state, {N(), D}},
            {"beta", Role::state, {N(), D}, 1.5, 0.3},
            {"exponent", Role::fixed, {N(), D}}};
  }
  Values draw_values() const {
    Values v = draw(specs(), seed);
    for (double& b : v["beta"]) b = std::abs(b) + 0.25;
    if (fresh) {
      for (const char* name : {"alpha", "beta"}) std::fill(v[name].begin(), v[name].end(), 0.0);
      std::fill(v["exponent"].begin(), v["exponent"].end(), static_cast<double>(-1e30f));
    }
    if (strong)
      for (std::size_t i = 0; i < v["w"].size(); ++i) v["w"][i] = i % 3 == 0 ? -1e4 : i % 3 == 1 ? 0 : -0.125;
    for (std::size_t i = 0; strong && i < v["k"].size(); ++i) v["k"][i] *= i % 4 == 0 ? 1024 : i % 4 == 1 ? -1024 : 1;
    return v;
  }
  // The state's alpha and beta at the exponents of the base point, whatever the exponents are now.
  void fix_gauge(Values& out, const Values& base) const {
    for (std::size_t i = 0; i < out["exponent"].size(); ++i) {
      const double factor = std::exp(out["exponent"][i] - base.at("exponent")[i]);
      out["alpha"][i] *= factor, out["beta"][i] *= factor;
    }
  }
  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * D)},
                  {"alpha", in.at("alpha")},
                  {"beta", in.at("beta")},
                  {"exponent", in.at("exponent")}};
    Size seq_head = 0;
    for (const Sequence& n : sequences()) {
      for (Size i = 0; i < D; ++i) {
        double &a = out["alpha"][seq_head * D + i], &b = out["beta"][seq_head * D + i],
               &e = out["exponent"][seq_head * D + i];
        for (Size t = n.begin; t < n.end; ++t) {
          const Size at = (n.row * T + t) * D + i, gate = constant ? i : at;
          const double k = in.at("k")[at], v = in.at("v")[at], w = in.at("w")[gate], u = in.at("u")[gate];
          const double tau = std::max(u + k, e), old = std::exp(e - tau), now = std::exp(u + k - tau);
          out["o"][at] = (old * a + now * v) / (old * b + now);
          const double top = std::max(w + e, k);
          a = std::exp(w + e - top) * a + std::exp(k - top) * v;
          b = std::exp(w + e - top) * b + std::exp(k - top);
          e = top;
        }
      }
      ++seq_head;
    }
    return out;
  }
  template <class X>
  WeightedMeanProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list) const {
    return {list,
            D,
            x.template view<3>("k"),
            x.template view<3>("v"),
            x.template view<3>("w"),
            x.template view<3>("u"),
            x.pointer("alpha"),
            x.pointer("beta"),
            x.pointer("exponent"),
            x.template view<3>("o")};
  }
  template <class X>
  std::size_t bytes(Size longest, Form form, int chunk, bool backward) const {
    return weighted_mean::workspace_bytes<X>(D, longest, form, chunk, backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form form, int chunk, const Simd<X>& s,
                 Workspace w) const {
    return weighted_mean::forward(problem(x, list), form, chunk, s, w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form form, int chunk,
                  const Simd<X>& s, Workspace w) const {
    WeightedMeanGradient<X> d{given.template view<3>("o"), given.pointer("alpha"),   given.pointer("beta"),
                              to.template view<3>("k"),    to.template view<3>("v"), to.template view<3>("w"),
                              to.template view<3>("u"),    to.pointer("alpha"),      to.pointer("beta")};
    return weighted_mean::backward(problem(x, list), d, form, chunk, s, w);
  }
};

const std::vector<FormCall> forms = {{Form::recurrent, 0}, {Form::scan, 0}, {Form::scan, 1},
                                     {Form::scan, 3},      {Form::step, 2}, {Form::best, 0}};

TEST(WeightedMean, AllFormsAndGradients) {
  for (const bool constant : {true, false})
    for (const bool fresh : {true, false}) {
      WeightedMean f;
      f.constant = constant, f.fresh = fresh;
      for (const Size T : {0, 1, 2, 7, 13}) f.T = T, check_family(f, forms);
      f.B = 2, f.D = 1, check_family(f, forms);
      f.B = 1, f.D = 17, f.T = 9, f.packed = {0, 3, 3, 4, 9}, check_family(f, forms);
      check_steps(f);
      check_alone(f, forms);
      f.packed = {}, f.T = 150, check_family(f, forms, false);
    }
}

// Keys of +-1e3 and decays of e^{-1e4}: central differences would step over the maximum.
TEST(WeightedMean, StrongGatesAndKeys) {
  WeightedMean f;
  f.strong = true, f.T = 11;
  for (const bool fresh : {true, false}) {
    f.fresh = fresh;
    check_family(f, forms, false, 1e-4);
    const Values in = f.draw_values();
    for (const auto& [name, x] : run_backward<double>(f, in, draw_gradients(f, 5), {}))
      for (const double y : x) EXPECT_TRUE(std::isfinite(y)) << name;
  }
}

// The unstabilised sums of the definition.
TEST(WeightedMean, IsItsDefinition) {
  WeightedMean f;
  f.fresh = true, f.T = 12;
  const Values in = f.draw_values(), out = run_forward<double>(f, in, {});
  for (Size t = 0; t < f.T; ++t)
    for (Size i = 0; i < f.D; ++i) {
      double above = 0, below = 0;
      for (Size s = 0; s <= t; ++s) {
        const double k = in.at("k")[s * f.D + i], distance_back = static_cast<double>(t - 1 - s);
        const double weight = std::exp(s == t ? in.at("u")[i] + k : distance_back * in.at("w")[i] + k);
        above += weight * in.at("v")[s * f.D + i], below += weight;
      }
      EXPECT_NEAR(out.at("o")[t * f.D + i], above / below, 1e-12);
    }
}

TEST(WeightedMean, WhatIsWrongIsSaid) {
  WeightedMean f;
  const Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  const Simd<double>& s = ttr::simd<double>("");
  Scratch<double> scratch(f.bytes<double>(f.T, Form::scan, 0, false));
  const Workspace w = scratch.workspace();
  auto p = f.problem(x, list);
  EXPECT_EQ(weighted_mean::forward(p, Form::chunk, 0, s, w), Status::not_supported);
  EXPECT_EQ(weighted_mean::forward(p, Form::scan, 0, s, Workspace{w.data, 64}), Status::small_workspace);
  p.u = {};
  EXPECT_EQ(weighted_mean::forward(p, Form::scan, 0, s, w), Status::missing_input);
  p = f.problem(x, list), p.exponent = nullptr;
  EXPECT_EQ(weighted_mean::forward(p, Form::scan, 0, s, w), Status::missing_input);
  p = f.problem(x, list), p.dim = 0;
  EXPECT_EQ(weighted_mean::forward(p, Form::scan, 0, s, w), Status::bad_shape);
}

}  // namespace
