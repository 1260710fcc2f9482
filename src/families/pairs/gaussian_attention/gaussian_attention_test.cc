// Gaussian attention, exact and by landmarks, against literal loops, and its gradients against differences.
#include "families/pairs/gaussian_attention/gaussian_attention.h"

#include <gtest/gtest.h>

#include "families/pairs/kernel_regression/reference.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;

struct Gaussian : FamilyBase {
  int H = 2, G = 1, K = 3, V = 2;
  Size S = 7;         // tokens of k and v
  Size M = 0;         // landmarks; 0: exact
  bool soft = false;  // keys are the queries
  double bandwidth = 0, ridge = 0.1;
  std::vector<Size> packed_keys = {};  // borders in row 0, with `packed`

  std::string name() const {
    return "gaussian-T" + std::to_string(T) + "-S" + std::to_string(S) + "-H" + std::to_string(H) + "-G" +
           std::to_string(G) + "-K" + std::to_string(K) + "-V" + std::to_string(V) + "-M" + std::to_string(M) +
           (soft ? "-soft" : "");
  }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, H, K}},
                           {"v", Role::input, {B, soft ? T : S, G, V}},
                           {"o", Role::output, {B, T, H, V}}};
    if (!soft) s.push_back({"k", Role::input, {B, S, G, K}});
    if (M > 0) s.push_back({"landmarks", Role::input, {N(), M, H, K}});
    return s;
  }
  Values draw_values() const { return draw(specs(), seed); }
  std::vector<Sequence> keys() const {
    std::vector<Sequence> list;
    for (std::size_t n = 0; n + 1 < packed_keys.size(); ++n) list.push_back({0, packed_keys[n], packed_keys[n + 1]});
    if (packed.empty())
      for (int b = 0; b < B; ++b) list.push_back({b, 0, soft ? T : S});
    return list;
  }
  double kappa(const double* x, const double* y) const {
    double apart = 0;
    for (Size c = 0; c < K; ++c) apart += (x[c] - y[c]) * (x[c] - y[c]);
    return std::exp(-apart / (bandwidth > 0 ? bandwidth : 2 * std::sqrt(static_cast<double>(K))));
  }
  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * H * V)}};
    const Size length = soft ? T : S;
    const auto queries = sequences(), pairs = soft ? queries : keys();
    for (std::size_t n = 0; n < queries.size(); ++n)
      for (int h = 0; h < H; ++h) {
        const Size g = h / (H / G);
        const auto key = [&](Size j) {
          return soft ? &in.at("q")[((pairs[n].row * T + j) * H + h) * K]
                      : &in.at("k")[((pairs[n].row * S + j) * G + g) * K];
        };
        const auto value = [&](Size j) { return &in.at("v")[((pairs[n].row * length + j) * G + g) * V]; };
        const auto landmark = [&](Size m) {
          return &in.at("landmarks")[((static_cast<Size>(n) * M + m) * H + h) * K];
        };
        for (Size t = queries[n].begin; t < queries[n].end; ++t) {
          const Size token = (queries[n].row * T + t) * H + h;
          const double* const q = &in.at("q")[token * K];
          Doubles A(M * M), b(M);
          for (Size i = 0; i < M; ++i) {
            for (Size j = 0; j < M; ++j) A[i * M + j] = kappa(landmark(i), landmark(j)) + (i == j ? ridge : 0);
            b[i] = kappa(landmark(i), q);
          }
          const Doubles w = solved(A, b);
          for (Size j = pairs[n].begin; j < pairs[n].end; ++j) {
            double weight = M == 0 ? kappa(q, key(j)) : 0;
            for (Size i = 0; i < M; ++i) weight += w[i] * kappa(landmark(i), key(j));
            for (Size c = 0; c < V; ++c) out["o"][token * V + c] += weight * value(j)[c];
          }
        }
      }
    return out;
  }

  template <class X>
  GaussianAttentionProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list,
                                      const std::vector<Sequence>& pairs) const {
    GaussianAttentionProblem<X> p;
    p.sequences = list, p.heads = H, p.key_heads = G, p.key_dim = K, p.value_dim = V;
    if (!soft) p.key_sequences = pairs;
    p.bandwidth = bandwidth, p.ridge = ridge;
    p.q = x.template view<4>("q"), p.k = x.template view<4>(soft ? "q" : "k"), p.v = x.template view<4>("v");
    p.landmarks = x.template view<4>("landmarks"), p.o = x.template view<4>("o");
    return p;
  }
  template <class X>
  std::size_t bytes(Size, Form, int, bool backward) const {
    return gaussian_attention::workspace_bytes<X>(H, G, K, V, T, soft ? T : S, M, backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form, int, const Simd<X>& s, Workspace w) const {
    const auto pairs = keys();
    return gaussian_attention::forward(problem(x, list, pairs), s, ttr::simd<double>(s.name), w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form, int,
                  const Simd<X>& s, Workspace w) const {
    const auto pairs = keys();
    auto p = problem(x, list, pairs);
    p.o = {};
    GaussianAttentionGradient<X> d;
    d.d_o = given.template view<4>("o"), d.d_q = to.template view<4>("q"), d.d_v = to.template view<4>("v");
    d.d_k = to.template view<4>(soft ? "q" : "k"), d.d_landmarks = to.template view<4>("landmarks");
    return gaussian_attention::backward(p, d, s, ttr::simd<double>(s.name), w);
  }
};

void check_whole(const Gaussian& f, bool by_difference) {
  const Values in = f.draw_values(), d = draw_gradients(f, 5), want = f.reference(in);
  const Values grad = run_backward<double>(f, in, d, {});
  if (by_difference) expect_near(grad, differences(f, in, d), 1e-6, f.name());
  for (const std::string& target : ttr::simd_targets())
    for (const bool strided : {false, true}) {
      const Call call{Form::best, 0, strided, {}, target};
      expect_near(run_forward<double>(f, in, call), want, 1e-11, f.name() + " " + target);
      expect_near(run_backward<double>(f, in, d, call), grad, 1e-10, f.name() + " " + target);
      expect_near(run_forward<float>(f, in, call), want, 2e-6, f.name() + " float " + target);
      expect_near(run_backward<float>(f, in, d, call), grad, 1e-5, f.name() + " float " + target);
    }
  check_alone(f, {{Form::best, 0}});
}

TEST(GaussianAttention, AgainstLoopsAndDifferences) {
  for (const Size M : {0, 1, 4})
    for (const Size T : {1, 6})
      for (const bool soft : {false, true}) {
        Gaussian f;
        f.T = T, f.M = M, f.soft = soft, f.B = 2;
        if (soft) f.G = f.H;
        check_whole(f, true);
        f.bandwidth = 0.7, f.ridge = 0.02, f.K = f.V = 1, check_whole(f, true);
      }
}

TEST(GaussianAttention, GroupsAndOtherLengths) {
  for (const Size M : {0, 3})
    for (const Size S : {0, 1, 11}) {
      Gaussian f;
      f.T = 5, f.S = S, f.H = 4, f.G = 2, f.K = 2, f.V = 3, f.M = M;
      check_whole(f, true);
    }
}

// Tiles of 64: tokens, pairs and landmarks that divide them and that do not; more values than one tile.
TEST(GaussianAttention, ManyTiles) {
  for (const Size M : {0, 64, 70}) {
    Gaussian f;
    f.T = 66, f.S = 130, f.M = M, f.H = 2, f.K = 5, f.V = 3;
    check_whole(f, false);
    f.V = 70, f.T = 3, f.H = 1, check_whole(f, false);
  }
  Gaussian f;
  f.T = 3, f.S = 66, f.M = 66, f.H = 1, f.K = 1, f.V = 1;
  check_whole(f, true);
}

TEST(GaussianAttention, Packed) {
  for (const Size M : {0, 3}) {
    Gaussian f;
    f.T = 12, f.S = 15, f.packed = {0, 3, 3, 4, 12}, f.packed_keys = {1, 2, 9, 9, 15}, f.M = M;
    check_whole(f, true);
  }
}

// With every key and query a landmark and almost no ridge nothing is approximated.
TEST(GaussianAttention, LandmarksEverywhereAreExact) {
  Gaussian f;
  f.T = 20, f.soft = true, f.H = f.G = 1, f.K = 8, f.bandwidth = 4;
  Values in = f.draw_values();
  const Doubles want = f.reference(in).at("o");
  f.M = 20, f.ridge = 1e-10;
  in["landmarks"] = in["q"];
  EXPECT_LE(distance(run_forward<double>(f, in, {}).at("o"), want), 1e-8);
}

TEST(GaussianAttention, NotANumberStaysInItsSequence) {
  for (const Size M : {0, 3})
    for (const char* name : {"q", "k", "v"}) {
      Gaussian f;
      f.T = f.S = 140, f.packed = {0, 40, 140}, f.packed_keys = f.packed, f.H = f.G = 1, f.V = f.K = 2, f.M = M;
      Values in = f.draw_values();
      const Values d = draw_gradients(f, 3), want = f.reference(in), want_d = run_backward<double>(f, in, d, {});
      in[name][2 * 77] = std::numeric_limits<double>::quiet_NaN();
      Bound<double> x(f.specs(), &in, false), given(f.specs(), &d, false), to(f.specs(), nullptr, false);
      Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, true));
      const auto& s = ttr::simd<double>("");
      ASSERT_EQ(f.forward(x, f.sequences(), Form::best, 0, s, scratch.workspace()), Status::ok);
      ASSERT_EQ(f.backward(x, given, to, f.sequences(), Form::best, 0, s, scratch.workspace()), Status::ok);
      const Doubles o = x.held["o"].get(), d_q = to.held["q"].get(), d_v = to.held["v"].get();
      for (std::size_t i = 0; i < 80; ++i) {
        EXPECT_NEAR(o[i], want.at("o")[i], 1e-12);
        EXPECT_NEAR(d_q[i], want_d.at("q")[i], 1e-12);
        EXPECT_NEAR(d_v[i], want_d.at("v")[i], 1e-12);
      }
      EXPECT_TRUE(std::isnan(o[2 * 77]));
    }
}

TEST(GaussianAttention, WhatItRefuses) {
  Gaussian f;
  f.M = 3;
  Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences(), pairs = f.keys();
  const auto good = f.problem(x, list, pairs);
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
  const auto status = [&](auto&& change) {
    auto p = good;
    change(p);
    return gaussian_attention::forward(p, ttr::simd<double>(""), ttr::simd<double>(""), scratch.workspace());
  };
  using P = GaussianAttentionProblem<double>;
  EXPECT_EQ(status([](P&) {}), Status::ok);
  EXPECT_EQ(status([](P& p) { p.key_heads = 3; }), Status::bad_shape);
  EXPECT_EQ(status([](P& p) { p.landmarks.extent[1] = 0; }), Status::bad_shape);
  EXPECT_EQ(status([](P& p) { p.landmarks.extent[0] = 0; }), Status::bad_shape);
  EXPECT_EQ(status([](P& p) { p.ridge = 0; }), Status::out_of_domain);
  EXPECT_EQ(status([](P& p) { p.bandwidth = -1; }), Status::out_of_domain);
  EXPECT_EQ(status([](P& p) { p.v = {}; }), Status::missing_input);
  EXPECT_EQ(status([](P& p) { p.q = {}; }), Status::missing_input);
  EXPECT_EQ(status([](P& p) { p.landmarks.extent[1] = 1000; }), Status::small_workspace);
  const std::vector<Sequence> more = {{0, 0, 1}, {0, 1, 2}};
  EXPECT_EQ(status([&](P& p) { p.key_sequences = more; }), Status::bad_shape);
}

}  // namespace
