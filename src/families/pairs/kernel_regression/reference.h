// Kernel ridge regression as the harness wants it (families_harness.h), and its meaning: one system per query,
// eliminated.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "families/pairs/kernel_regression/kernel_regression.h"
#include "families/pairs/pairs_harness.h"

namespace ttr_families_test {

using namespace ttr::families;
using Kind = RegressionKernel;

/// x with A x = b, A positive definite, by elimination.
inline Doubles solved(Doubles A, Doubles b) {
  const Size n = static_cast<Size>(b.size());
  for (Size i = 0; i < n; ++i)
    for (Size r = i + 1; r < n; ++r) {
      const double f = A[r * n + i] / A[i * n + i];
      for (Size j = i; j < n; ++j) A[r * n + j] -= f * A[i * n + j];
      b[r] -= f * b[i];
    }
  for (Size i = n; i-- > 0;) {
    for (Size j = i + 1; j < n; ++j) b[i] -= A[i * n + j] * b[j];
    b[i] /= A[i * n + i];
  }
  return b;
}

enum class Ridge { head, token, all };  // one for each head, for each token and head, for all

/// Bound::counts has the bits of the factor that is kept: sizes, triangles, Z.
struct Regression : PairFamily {
  Regression() { V = 2; }
  int degree = 2;
  Kind kernel = Kind::exponential;
  double scale = 0.6, bandwidth = 2.5, key_size = 1;
  Ridge ridge = Ridge::head;
  bool causal = true, keeps_factor = false;
  Size window = 0;

  std::string name() const {
    return "kernel" + std::to_string(static_cast<int>(kernel)) + sizes() + "-window" + std::to_string(window) +
           "-ridge" + std::to_string(static_cast<int>(ridge)) + (keeps_factor ? "-kept" : "") +
           (causal ? "" : "-all");
  }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, H, K}, 0, key_size},
                           {"k", Role::input, {B, T, G, K}, 0, key_size},
                           {"v", Role::input, {B, T, G, V}},
                           {"o", Role::output, {B, T, H, V}}};
    if (ridge == Ridge::token) s.push_back({"ridge", Role::input, {B, T, H}});
    else s.push_back({"ridge", Role::input, {1, 1, ridge == Ridge::all ? 1 : H}});
    if (capacity > 0) {
      s.push_back({"past_k", Role::input, {N(), capacity, G, K}, 0, key_size});
      s.push_back({"past_v", Role::input, {N(), capacity, G, V}});
    }
    return s;
  }
  Values draw_values() const {
    Values v = draw(specs(), seed);
    for (double& x : v["ridge"]) x = static_cast<float>(0.3 + std::abs(x));
    return v;
  }
  std::vector<Spec> kept() const override { return {{"k", Role::input, {G, K}}, {"v", Role::input, {G, V}}}; }

  double kappa(const double* x, const double* y) const {
    double dot = 0, apart = 0;
    for (Size c = 0; c < K; ++c) dot += x[c] * y[c], apart += (x[c] - y[c]) * (x[c] - y[c]);
    switch (kernel) {
      case Kind::exponential:
        return std::exp(scale * dot);
      case Kind::gaussian:
        return std::exp(-apart / bandwidth);
      case Kind::linear:
        return dot;
      case Kind::polynomial:
        return std::pow(1 + dot, degree);
    }
    return 0;
  }

  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * H * V)}};
    Size index = 0;
    for (const Sequence& n : sequences()) {
      const Size before = past_of(index), tokens = n.end - n.begin;
      const auto pair = [&](const std::string& name, Size i, Size head, Size width) {
        return i < before ? &in.at("past_" + name)[((index * capacity + i) * G + head) * width]
                          : &in.at(name)[((n.row * T + n.begin + i - before) * G + head) * width];
      };
      for (int h = 0; h < H; ++h)
        for (Size t = 0; t < tokens; ++t) {
          const Size end = causal ? before + t + 1 : before + tokens;
          const Size begin = window > 0 ? std::max<Size>(0, end - window) : 0, m = end - begin, g = h / (H / G);
          const Size token = n.row * T + n.begin + t;
          Doubles A(m * m), b(m);
          for (Size i = 0; i < m; ++i) {
            const double* const k = pair("k", begin + i, g, K);
            for (Size j = 0; j < m; ++j) A[i * m + j] = kappa(k, pair("k", begin + j, g, K));
            A[i * m + i] += in.at("ridge")[ridge == Ridge::token ? token * H + h : ridge == Ridge::all ? 0 : h];
            b[i] = kappa(k, &in.at("q")[(token * H + h) * K]);
          }
          const Doubles w = solved(A, b);
          for (Size i = 0; i < m; ++i)
            for (Size j = 0; j < V; ++j) out["o"][(token * H + h) * V + j] += w[i] * pair("v", begin + i, g, V)[j];
        }
      ++index;
    }
    return out;
  }

  Size factors() const { return N() * H; }
  std::vector<std::int64_t> counts() const {
    if (!keeps_factor) return {};
    // What has not been computed yet is NaN.
    std::vector<std::int64_t> c(N() + factors() * (room() * (room() + 1) / 2 + room() * V),
                                std::bit_cast<std::int64_t>(std::numeric_limits<double>::quiet_NaN()));
    std::fill_n(c.begin(), N(), 0);
    return c;
  }

  template <class X>
  KernelRegressionProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list, Pairs<X>& p) const {
    KernelRegressionProblem<X> a;
    fill(a, x, list, p);
    a.causal = causal, a.window = window;
    a.kernel = kernel, a.scale = scale, a.bandwidth = bandwidth, a.degree = degree;
    a.ridge = x.template view<3>("ridge"), a.past_v = p.template view<4>("v");
    return a;
  }
  template <class X>
  std::size_t bytes(Size, Form, int, bool backward) const {
    return kernel_regression::workspace_bytes(H, G, K, V, room(), keeps_factor, backward, window);
  }
  static const Simd<double>& wide(const char* name) { return ttr::simd<double>(name); }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form, int, const Simd<X>& s, Workspace w) const {
    Pairs<X> p = before(x, list);
    auto a = problem(x, list, p);
    Doubles triangle, Z;
    if (keeps_factor) {
      const auto bits = x.counts.begin() + N();
      for (auto i = bits; i != x.counts.end(); ++i) triangle.push_back(std::bit_cast<double>(*i));
      const Size cut = factors() * room() * (room() + 1) / 2;
      Z.assign(triangle.begin() + cut, triangle.end());
      a.triangle = triangle.data(), a.solved = Z.data(), a.factored = x.counts.data(), a.factor_capacity = room();
      const Status status = kernel_regression::forward(a, wide(s.name), w);
      std::copy(Z.begin(), Z.end(), triangle.begin() + cut);
      for (std::size_t i = 0; i < triangle.size(); ++i)
        x.counts[static_cast<std::size_t>(N()) + i] = std::bit_cast<std::int64_t>(triangle[i]);
      for (std::size_t n = 0; n < list.size(); ++n) {
        const Size tokens = list[n].end - list[n].begin;
        const Size all = p.count[n] + tokens, seen = window > 0 ? std::min(all, window) : all;
        EXPECT_EQ(x.counts[n], tokens > 0 ? seen : x.counts[n]) << name();
      }
      return status;
    }
    return kernel_regression::forward(a, wide(s.name), w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form, int,
                  const Simd<X>& s, Workspace w) const {
    Pairs<X> p = before(x, list), d = zeros(p);
    auto a = problem(x, list, p);
    a.o = {};
    KernelRegressionGradient<X> out;
    fill_gradient(out, given, to, d);
    out.d_ridge = to.template view<3>("ridge"), out.d_past_v = d.template view<4>("v");
    const Status status = kernel_regression::backward(a, out, wide(s.name), w);
    add_before(d, given, to, list);
    return status;
  }
};

}  // namespace ttr_families_test
