// Affine projection against a literal window and a general linear solve.
#include "families/linear/projection/projection.h"

#include <gtest/gtest.h>

#include "families_harness.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;

/// X [n, m] with A X = B by elimination with pivoting.
Doubles solved(Doubles A, Doubles b, Size n, Size m) {
  for (Size i = 0; i < n; ++i) {
    Size best = i;
    for (Size r = i; r < n; ++r)
      if (std::abs(A[r * n + i]) > std::abs(A[best * n + i])) best = r;
    for (Size j = 0; j < n; ++j) std::swap(A[i * n + j], A[best * n + j]);
    for (Size j = 0; j < m; ++j) std::swap(b[i * m + j], b[best * m + j]);
    for (Size r = 0; r < n; ++r) {
      if (r == i) continue;
      const double f = A[r * n + i] / A[i * n + i];
      for (Size j = 0; j < n; ++j) A[r * n + j] -= f * A[i * n + j];
      for (Size j = 0; j < m; ++j) b[r * m + j] -= f * b[i * m + j];
    }
  }
  for (Size i = 0; i < n; ++i)
    for (Size j = 0; j < m; ++j) b[i * m + j] /= A[i * n + i];
  return b;
}

struct Projection : FamilyBase {
  int H = 2, G = 1, K = 4, V = 3, window = 3;
  double scale = 0.7, eps = 0.1;
  bool mu = true;

  std::string name() const {
    return "projection-T" + std::to_string(T) + "-H" + std::to_string(H) + "-K" + std::to_string(K) + "-V" +
           std::to_string(V) + "-p" + std::to_string(window);
  }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, G, K}},
                           {"k", Role::input, {B, T, G, K}},
                           {"v", Role::input, {B, T, H, V}},
                           {"o", Role::output, {B, T, H, V}},
                           {"S", Role::state, {N(), H, K, V}}};
    if (mu) s.push_back({"mu", Role::input, {B, T, H}, 0.6, 0.2});
    if (window > 1) {
      s.push_back({"keys", Role::state, {N(), window - 1, G, K}});
      s.push_back({"values", Role::state, {N(), window - 1, H, V}});
    }
    return s;
  }
  Values draw_values() const { return draw(specs(), seed); }
  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * H * V)}, {"S", in.at("S")}};
    const Size kept = window - 1, P = window;
    if (kept) out["keys"] = in.at("keys"), out["values"] = in.at("values");
    Size index = 0;
    for (const Sequence& n : sequences()) {
      // The pairs of the sequence in order, starting with the cached ones.
      Doubles keys, values;
      if (kept) {
        keys.assign(&in.at("keys")[index * kept * G * K], &in.at("keys")[0] + (index + 1) * kept * G * K);
        values.assign(&in.at("values")[index * kept * H * V], &in.at("values")[0] + (index + 1) * kept * H * V);
      }
      for (Size t = n.begin; t < n.end; ++t) {
        for (Size i = 0; i < G * K; ++i) keys.push_back(in.at("k")[(n.row * T + t) * G * K + i]);
        for (Size i = 0; i < H * V; ++i) values.push_back(in.at("v")[(n.row * T + t) * H * V + i]);
      }
      for (int h = 0; h < H; ++h) {
        double* const S = &out["S"][(index * H + h) * K * V];
        for (Size t = n.begin; t < n.end; ++t) {
          const Size first = t - n.begin, token = (n.row * T + t) * H + h, group = h / (H / G);
          const auto key = [&](Size i, Size c) { return keys[((first + i) * G + group) * K + c]; };
          Doubles gram(P * P), rest(P * V);
          for (Size i = 0; i < P; ++i) {
            for (Size j = 0; j < P; ++j)
              for (Size c = 0; c < K; ++c) gram[i * P + j] += key(i, c) * key(j, c);
            gram[i * P + i] += eps;
            for (Size j = 0; j < V; ++j) {
              rest[i * V + j] = values[((first + i) * H + h) * V + j];
              for (Size c = 0; c < K; ++c) rest[i * V + j] -= key(i, c) * S[c * V + j];
            }
          }
          const Doubles x = solved(gram, rest, P, V);
          for (Size c = 0; c < K; ++c)
            for (Size j = 0; j < V; ++j) {
              for (Size i = 0; i < P; ++i) S[c * V + j] += (mu ? in.at("mu")[token] : 1) * key(i, c) * x[i * V + j];
              out["o"][token * V + j] += scale * in.at("q")[((n.row * T + t) * G + group) * K + c] * S[c * V + j];
            }
        }
      }
      if (kept) {
        std::copy(keys.end() - kept * G * K, keys.end(), &out["keys"][index * kept * G * K]);
        std::copy(values.end() - kept * H * V, values.end(), &out["values"][index * kept * H * V]);
      }
      ++index;
    }
    return out;
  }
  template <class X>
  ProjectionProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list) const {
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
             x.template view<3>("mu"),
             x.pointer("S"),
             x.template view<4>("o")},
            window,
            eps,
            x.pointer("keys"),
            x.pointer("values")};
  }
  template <class X>
  std::size_t bytes(Size longest, Form form, int chunk, bool backward) const {
    return projection::workspace_bytes<X>(K, V, window, longest, form, chunk, backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form form, int chunk, const Simd<X>& s,
                 Workspace w) const {
    return projection::forward(problem(x, list), form, chunk, s, w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form form, int chunk,
                  const Simd<X>& s, Workspace w) const {
    ProjectionGradient<X> d{{given.template view<4>("o"),
                             given.pointer("S"),
                             to.template view<4>("q"),
                             to.template view<4>("k"),
                             to.template view<4>("v"),
                             {},
                             to.template view<3>("mu"),
                             to.pointer("S")},
                            given.pointer("keys"),
                            given.pointer("values"),
                            to.pointer("keys"),
                            to.pointer("values")};
    return projection::backward(problem(x, list), d, form, chunk, s, w);
  }
};

const std::vector<FormCall> forms = {
    {Form::recurrent, 0}, {Form::best, 0}, {Form::step, 0}, {Form::scan, 0}, {Form::scan, 2}};

TEST(Projection, OutputsStatesAndGradients) {
  Projection f;
  for (const Size T : {0, 1, 2, 3, 7}) f.T = T, check_family(f, forms);
  for (const int window : {1, 2, 5}) f.window = window, check_family(f, forms);
  f.mu = false, f.B = 2, f.H = 4, f.G = 2, f.K = 1, f.V = 1, f.window = 2, check_family(f, forms);
  f.mu = true, f.B = 1, f.H = f.G = 1, f.K = 9, f.V = 5, f.T = 9, f.packed = {0, 3, 3, 4, 9}, f.window = 4;
  check_family(f, forms);
  check_steps(f);
  check_alone(f, forms);
  f.packed = {}, f.T = 60, check_family(f, forms, false, 1e-4);
}

// mu = 1, eps = 0: the state reproduces the whole window, also while the window is still filling.
TEST(Projection, ReproducesTheWindow) {
  Projection f;
  f.eps = 0, f.mu = false, f.H = f.G = 1, f.K = 6, f.V = 2, f.T = 8;
  Values in = f.draw_values();
  for (const char* name : {"keys", "values", "S"}) std::fill(in[name].begin(), in[name].end(), 0.0);
  for (Size end = 1; end <= f.T; ++end) {
    Bound<double> x(f.specs(), &in, false);
    const std::vector<Sequence> list = {{0, 0, end}};
    Scratch<double> scratch(f.bytes<double>(end, Form::best, 0, false));
    ASSERT_EQ(f.forward<double>(x, list, Form::best, 0, ttr::simd<double>(""), scratch.workspace()), Status::ok);
    const Doubles S = x.held["S"].get();
    for (Size t = std::max<Size>(0, end - f.window); t < end; ++t)
      for (Size j = 0; j < f.V; ++j) {
        double read = 0;
        for (Size c = 0; c < f.K; ++c) read += in["k"][t * f.K + c] * S[c * f.V + j];
        EXPECT_NEAR(read, in["v"][t * f.V + j], 1e-10) << end << " " << t;
      }
  }
}

TEST(Projection, WhatIsWrongIsSaid) {
  Projection f;
  f.eps = 0, f.window = 6;  // more rows than keys have dimensions
  const Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  const Simd<double>& s = ttr::simd<double>("");
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
  const Workspace w = scratch.workspace();
  auto p = f.problem(x, list);
  EXPECT_EQ(projection::forward(p, Form::best, 0, s, w), Status::out_of_domain);
  EXPECT_TRUE(std::isnan(x.held["o"].get()[0]));
  p.eps = -1;
  EXPECT_EQ(projection::forward(p, Form::best, 0, s, w), Status::out_of_domain);
  p.eps = 1;
  EXPECT_EQ(projection::forward(p, Form::chunk, 0, s, w), Status::not_supported);
  EXPECT_EQ(projection::forward(p, Form::best, 0, s, Workspace{w.data, 64}), Status::small_workspace);
  p.keys = nullptr;
  EXPECT_EQ(projection::forward(p, Form::best, 0, s, w), Status::missing_input);
  p = f.problem(x, list), p.window = 0;
  EXPECT_EQ(projection::forward(p, Form::best, 0, s, w), Status::bad_shape);
}

}  // namespace
