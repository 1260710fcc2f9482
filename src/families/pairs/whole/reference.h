// A memory fitted to all pairs at once as the harness wants it (families_harness.h), and its meaning: one matrix per
// sequence and head, summed pair by pair and eliminated for every query.
//   q [B,T,query_heads,K], k [B,S,key_heads,K], v [B,S,value_heads,V], beta [B,S,H] or one number, ridge [H] or one.
// Trap: queries and pairs have lengths of their own, so packed sequences have borders for both (packed, packed_keys).
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "families/pairs/kernel_regression/reference.h"
#include "families/pairs/whole/whole.h"

namespace ttr_families_test {

enum class Beta { one, head, shared };

struct Whole : FamilyBase {
  int H = 2, query_heads = 2, key_heads = 1, value_heads = 1, K = 3, V = 2;  // V = 0: no values
  Size S = 7;
  WholeSolve solve = WholeSolve::exact;
  Beta beta = Beta::head;
  bool one_ridge = false;
  double scale = 0.75;
  std::vector<Size> packed_keys = {};  // borders in row 0, with `packed`

  std::string name() const {
    return std::string(solve == WholeSolve::exact ? "exact" : "none") + "-B" + std::to_string(B) + "-T" +
           std::to_string(T) + "-S" + std::to_string(S) + "-H" + std::to_string(H) + "." +
           std::to_string(query_heads) + "." + std::to_string(key_heads) + "." + std::to_string(value_heads) + "-K" +
           std::to_string(K) + "-V" + std::to_string(V) + "-beta" + std::to_string(static_cast<int>(beta));
  }
  int width() const { return V > 0 ? V : K; }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, query_heads, K}},
                           {"k", Role::input, {B, S, key_heads, K}},
                           {"o", Role::output, {B, T, H, width()}}};
    if (V > 0) s.push_back({"v", Role::input, {B, S, value_heads, V}});
    if (beta == Beta::head) s.push_back({"beta", Role::input, {B, S, H}});
    if (beta == Beta::shared) s.push_back({"beta", Role::input, {1, 1, 1}});
    if (solve == WholeSolve::exact) s.push_back({"ridge", Role::input, {one_ridge ? 1 : H}});
    return s;
  }
  Values draw_values() const {
    Values v = draw(specs(), seed);
    if (solve != WholeSolve::exact) return v;  // any sign of beta
    for (const char* name : {"beta", "ridge"})
      if (v.count(name))
        for (double& x : v[name]) x = static_cast<float>(0.2 + std::abs(x));
    return v;
  }
  std::vector<Sequence> keys() const {
    std::vector<Sequence> list;
    for (std::size_t n = 0; n + 1 < packed_keys.size(); ++n) list.push_back({0, packed_keys[n], packed_keys[n + 1]});
    if (packed.empty())
      for (int b = 0; b < B; ++b) list.push_back({b, 0, S});
    return list;
  }

  const double* key(const Values& in, Size row, Size i, int h) const {
    return &in.at("k")[((row * S + i) * key_heads + h / (H / key_heads)) * K];
  }
  const double* value(const Values& in, Size row, Size i, int h) const {
    return &in.at("v")[((row * S + i) * value_heads + h / (H / value_heads)) * V];
  }
  double weight(const Values& in, Size row, Size i, int h) const {
    if (beta == Beta::one) return 1;
    return beta == Beta::shared ? in.at("beta")[0] : in.at("beta")[(row * S + i) * H + h];
  }
  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * H * width())}};
    const auto queries = sequences(), pairs = keys();
    for (std::size_t n = 0; n < queries.size(); ++n)
      for (int h = 0; h < H; ++h) {
        Doubles A(K * K);
        for (Size i = pairs[n].begin; solve == WholeSolve::exact && i < pairs[n].end; ++i) {
          const double *const k = key(in, pairs[n].row, i, h), w = weight(in, pairs[n].row, i, h);
          for (int a = 0; a < K; ++a)
            for (int b = 0; b < K; ++b) A[a * K + b] += w * k[a] * k[b];
        }
        for (int a = 0; solve == WholeSolve::exact && a < K; ++a) A[a * K + a] += in.at("ridge")[one_ridge ? 0 : h];
        for (Size t = queries[n].begin; t < queries[n].end; ++t) {
          const double* const q = &in.at("q")[((queries[n].row * T + t) * query_heads + h / (H / query_heads)) * K];
          double* const o = &out["o"][((queries[n].row * T + t) * H + h) * width()];
          Doubles x(q, q + K);
          if (solve == WholeSolve::exact) x = solved(A, x);
          for (int a = 0; V == 0 && a < K; ++a) o[a] = scale * x[a];
          for (Size i = pairs[n].begin; V > 0 && i < pairs[n].end; ++i) {
            const double *const k = key(in, pairs[n].row, i, h), *const v = value(in, pairs[n].row, i, h);
            double w = 0;
            for (int a = 0; a < K; ++a) w += k[a] * x[a];
            w *= scale * weight(in, pairs[n].row, i, h);
            for (int b = 0; b < V; ++b) o[b] += w * v[b];
          }
        }
      }
    return out;
  }

  template <class X>
  WholeProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list, const std::vector<Sequence>& pairs) const {
    WholeProblem<X> p;
    p.sequences = list, p.key_sequences = pairs, p.solve = solve, p.scale = static_cast<X>(scale);
    p.heads = H, p.query_heads = query_heads, p.key_heads = key_heads, p.value_heads = value_heads;
    p.key_dim = K, p.value_dim = V;
    p.q = x.template view<4>("q"), p.k = x.template view<4>("k"), p.v = x.template view<4>("v");
    p.beta = x.template view<3>("beta"), p.ridge = x.template view<1>("ridge"), p.o = x.template view<4>("o");
    return p;
  }
  template <class X>
  static WholeGradient<X> gradient(Bound<X>& given, Bound<X>& to) {
    WholeGradient<X> d;
    d.d_o = given.template view<4>("o"), d.d_q = to.template view<4>("q"), d.d_k = to.template view<4>("k");
    d.d_v = to.template view<4>("v"), d.d_beta = to.template view<3>("beta");
    d.d_ridge = to.template view<1>("ridge");
    return d;
  }
  template <class X>
  std::size_t bytes(Size, Form, int, bool backward) const {
    return whole::workspace_bytes<X>(K, V, solve, backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form, int, const Simd<X>& s, Workspace w) const {
    const auto pairs = keys();
    return whole::forward(problem(x, list, pairs), s, ttr::simd<double>(s.name), w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form, int,
                  const Simd<X>& s, Workspace w) const {
    const auto pairs = keys();
    auto p = problem(x, list, pairs);
    p.o = {};
    return whole::backward(p, gradient(given, to), s, ttr::simd<double>(s.name), w);
  }
};

}  // namespace ttr_families_test
