// Log-linear attention against the definition by pairs, with every bucket found by brute force.
#include "families/linear/log_linear/log_linear.h"

#include <gtest/gtest.h>

#include "families_harness.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;

struct LogLinear : FamilyBase {
  int H = 2, G = 1, K = 3, V = 4, L = 5;
  double scale = 0.7;
  bool gates = true, beta = true, strong = false;
  std::int64_t seen = 0;  // tokens before the first

  std::string name() const {
    return "log_linear-T" + std::to_string(T) + "-H" + std::to_string(H) + "-K" + std::to_string(K) + "-V" +
           std::to_string(V) + "-seen" + std::to_string(seen);
  }
  std::vector<std::int64_t> counts() const { return std::vector<std::int64_t>(N(), seen); }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, G, K}},  {"k", Role::input, {B, T, G, K}},
                           {"v", Role::input, {B, T, H, V}},  {"level_scales", Role::input, {B, T, H, L}},
                           {"o", Role::output, {B, T, H, V}}, {"S", Role::state, {N(), H, L, K, V}}};
    if (gates) s.push_back({"g", Role::input, {B, T, H}, -0.3, 0.2});
    if (beta) s.push_back({"beta", Role::input, {B, T, H}, 0.5, 0.3});
    return s;
  }
  Values draw_values() const {
    Values v = draw(specs(), seed);
    for (std::size_t i = 0; strong && i < v["g"].size(); ++i) v["g"][i] = i % 3 == 0 ? -1e4 : i % 3 == 1 ? 0 : -40;
    return v;
  }
  // Slots as a list of (level's first token, size, matrix): read by the definition of a level, merged by the counter.
  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * H * V)}, {"S", in.at("S")}};
    Size seq_head = 0;
    for (const Sequence& n : sequences())
      for (int h = 0; h < H; ++h, ++seq_head) {
        const auto slot = [&](int j) { return &out["S"][(seq_head * L + j) * K * V]; };
        std::int64_t count = seen;
        for (Size t = n.begin; t < n.end; ++t, ++count) {
          const Size token = (n.row * T + t) * H + h, key = ((n.row * T + t) * G + h / (H / G)) * K;
          const double a = gates ? std::exp(in.at("g")[token]) : 1, b = beta ? in.at("beta")[token] : 1;
          Doubles write(K * V);
          for (Size i = 0; i < K * V; ++i) write[i] = b * in.at("k")[key + i / V] * in.at("v")[token * V + i % V];
          const auto read = [&](int level, const double* S) {
            for (Size i = 0; i < K * V; ++i)
              out["o"][token * V + i % V] +=
                  in.at("level_scales")[token * L + level] * scale * in.at("q")[key + i / V] * S[i];
          };
          read(0, write.data());
          for (int j = 0; j < L; ++j) {
            if (!(count >> j & 1)) continue;
            for (Size i = 0; i < K * V; ++i) slot(j)[i] *= a;
            read(j + 1, slot(j));
          }
          int j = 0;
          for (; count >> j & 1; ++j)
            for (Size i = 0; i < K * V; ++i) write[i] += slot(j)[i];
          std::copy(write.begin(), write.end(), slot(j));
          for (int e = 0; e < L; ++e)
            if (!((count + 1) >> e & 1)) std::fill_n(slot(e), K * V, 0.0);
        }
        for (int e = 0; n.begin < n.end && e < L; ++e)
          if (!(count >> e & 1)) std::fill_n(slot(e), K * V, 0.0);
      }
    return out;
  }
  template <class X>
  LogLinearProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list) const {
    LogLinearProblem<X> p{{list, H, G, K, V, static_cast<X>(scale), x.template view<4>("q"), x.template view<4>("k"),
                           x.template view<4>("v"), x.template view<3>("g"), x.template view<3>("beta"),
                           x.pointer("S"), x.template view<4>("o")},
                          L,
                          x.template view<4>("level_scales"),
                          x.counts.data()};
    return p;
  }
  template <class X>
  std::size_t bytes(Size longest, Form form, int chunk, bool backward) const {
    return log_linear::workspace_bytes<X>(K, V, L, longest, form, chunk, backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form form, int chunk, const Simd<X>& s,
                 Workspace w) const {
    return log_linear::forward(problem(x, list), form, chunk, s, w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form form, int chunk,
                  const Simd<X>& s, Workspace w) const {
    LogLinearGradient<X> d{
        {given.template view<4>("o"), given.pointer("S"), to.template view<4>("q"), to.template view<4>("k"),
         to.template view<4>("v"), to.template view<3>("g"), to.template view<3>("beta"), to.pointer("S")},
        to.template view<4>("level_scales")};
    return log_linear::backward(problem(x, list), d, form, chunk, s, w);
  }
};

const std::vector<FormCall> forms = {{Form::recurrent, 0}, {Form::chunk, 0},    {Form::chunk, 1}, {Form::chunk, 2},
                                     {Form::chunk, 7},     {Form::parallel, 0}, {Form::best, 0},  {Form::step, 0}};

TEST(LogLinear, AllFormsAndGradients) {
  LogLinear f;
  for (const Size T : {0, 1, 2, 7, 8, 13}) f.T = T, check_family(f, forms);
  f.gates = false, f.beta = false, f.T = 16, check_family(f, forms);
  f.gates = true, f.B = 2, f.H = 4, f.G = 2, f.K = 1, f.V = 1, f.T = 9, check_family(f, forms);
  f.B = 1, f.H = f.G = 1, f.K = 5, f.V = 9, f.packed = {0, 3, 3, 4, 9}, check_family(f, forms);
  check_steps(f);
  check_alone(f, forms);
}

TEST(LogLinear, ContinuesAnyCount) {
  LogLinear f;
  f.H = f.G = 1;
  for (const std::int64_t seen : {1, 3, 5, 6, 8}) f.seen = seen, f.T = 7, check_family(f, forms);
}

TEST(LogLinear, StrongGates) {
  LogLinear f;
  f.strong = true, f.T = 13;
  check_family(f, forms);
}

TEST(LogLinear, LongSequence) {
  LogLinear f;
  f.H = f.G = 1, f.T = 300, f.L = 10;
  check_family(f, {{Form::recurrent, 0}, {Form::chunk, 0}, {Form::chunk, 64}, {Form::parallel, 0}}, false, 1e-4);
}

// o_t by the sentence of the definition: level l of t is [b - 2^{l-1}, b), b = t - t mod 2^{l-1}.
TEST(LogLinear, IsItsDefinition) {
  LogLinear f;
  f.H = f.G = 1, f.T = 29, f.L = 6;
  Values in = f.draw_values();
  std::fill(in["S"].begin(), in["S"].end(), std::numeric_limits<double>::quiet_NaN());  // dead slots are not read
  Doubles want(f.T * f.V);
  for (Size t = 0; t < f.T; ++t)
    for (int l = 0; l < f.L; ++l) {
      const Size half = l == 0 ? 1 : Size{1} << (l - 1), b = l == 0 ? t + 1 : t - t % half;
      if (l > 0 && t % (2 * half) < half) continue;
      for (Size s = b - half; s < b; ++s) {
        double weight = in["level_scales"][t * f.L + l] * f.scale * in["beta"][s], dot = 0, decay = 0;
        for (Size r = s + 1; r <= t; ++r) decay += in["g"][r];
        for (Size i = 0; i < f.K; ++i) dot += in["q"][t * f.K + i] * in["k"][s * f.K + i];
        for (Size j = 0; j < f.V; ++j) want[t * f.V + j] += weight * dot * std::exp(decay) * in["v"][s * f.V + j];
      }
    }
  for (const FormCall& call : forms) {
    const Values out = run_forward<double>(f, in, {call.form, call.chunk});
    EXPECT_LE(distance(out.at("o"), want), 1e-12) << static_cast<int>(call.form);
    for (const double x : out.at("S")) EXPECT_TRUE(std::isfinite(x));
  }
}

TEST(LogLinear, WhatIsWrongIsSaid) {
  LogLinear f;
  f.T = 17;  // 2^{L-1} = 16
  const Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  x.counts = f.counts();
  const auto list = f.sequences();
  const Simd<double>& s = ttr::simd<double>("");
  Scratch<double> scratch(f.bytes<double>(f.T, Form::chunk, 0, true));
  const Workspace w = scratch.workspace();
  auto p = f.problem(x, list);
  EXPECT_EQ(log_linear::forward(p, Form::chunk, 0, s, w), Status::state_full);
  p.linear.sequences = {};
  const std::vector<Sequence> shorter = {{0, 0, 16}};
  p.linear.sequences = shorter;
  EXPECT_EQ(log_linear::forward(p, Form::scan, 0, s, w), Status::not_supported);
  EXPECT_EQ(log_linear::forward(p, Form::chunk, 0, s, Workspace{w.data, 64}), Status::small_workspace);
  EXPECT_EQ(log_linear::forward(p, Form::chunk, 0, s, w), Status::ok);
  EXPECT_EQ(x.counts[0], 16);
  const std::vector<Sequence> one = {{0, 16, 17}};
  p.linear.sequences = one;
  EXPECT_EQ(log_linear::forward(p, Form::chunk, 0, s, w), Status::state_full);
  p.count = nullptr;
  EXPECT_EQ(log_linear::forward(p, Form::chunk, 0, s, w), Status::missing_input);
}

}  // namespace
