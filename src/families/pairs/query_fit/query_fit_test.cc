// Regressions of every query by itself against plain loops: rows, weights, one dense system for each query; gradients
// against differences.
#include "families/pairs/query_fit/query_fit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "families/pairs/pairs_harness.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;

/// Sums of products lose half of their digits beside a small ridge: the reference has some to lose.
using Long = std::vector<long double>;

/// x after the solver's steps for A x = b, or A^-1 b by elimination.
Long solved(Long A, Long b, SolveBy by, int steps, double step) {
  const std::size_t n = b.size();
  const auto times = [&](const Long& x) {
    Long y(n);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) y[i] += A[i * n + j] * x[j];
    return y;
  };
  const auto dot = [&](const Long& x, const Long& y) {
    long double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += x[i] * y[i];
    return sum;
  };
  Long x(n), r = b, p = b;
  if (by == SolveBy::cholesky) {
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t k = i + 1; k < n; ++k) {
        const long double f = A[k * n + i] / A[i * n + i];
        for (std::size_t j = i; j < n; ++j) A[k * n + j] -= f * A[i * n + j];
        b[k] -= f * b[i];
      }
    for (std::size_t i = n; i-- > 0;) {
      for (std::size_t j = i + 1; j < n; ++j) b[i] -= A[i * n + j] * b[j];
      b[i] /= A[i * n + i];
    }
    return b;
  }
  for (int s = 0; s < steps; ++s) {
    if (by == SolveBy::gradient) {
      const Long Ax = times(x);
      for (std::size_t i = 0; i < n; ++i) x[i] -= step * (Ax[i] - b[i]);
      continue;
    }
    const Long Ap = times(p);
    const long double rr = dot(r, r), alpha = rr / dot(p, Ap);
    if (!(rr > 0)) break;
    for (std::size_t i = 0; i < n; ++i) x[i] += alpha * p[i], r[i] -= alpha * Ap[i];
    const long double ratio = dot(r, r) / rr;
    for (std::size_t i = 0; i < n; ++i) p[i] = r[i] + ratio * p[i];
  }
  return x;
}

struct Fit : PairFamily {
  FitMemory memory = FitMemory::features;
  FitNear near = FitNear::exponential;
  SolveBy solve = SolveBy::cholesky;
  int F = 0, order = 2, steps = 3;
  bool gates = false, importance = false, relative = false, automatic = false;
  Size window = 0;
  double spread = 1;  // of the keys

  std::string name() const {
    return "fit" + sizes() + "-memory" + std::to_string(static_cast<int>(memory)) + "-near" +
           std::to_string(static_cast<int>(near)) + "-solve" + std::to_string(static_cast<int>(solve)) + "-F" +
           std::to_string(F) + "-window" + std::to_string(window) + (gates ? "-gates" : "") +
           (importance ? "-beta" : "") + (relative ? "-relative" : "") + (automatic ? "-automatic" : "");
  }
  bool by_steps() const { return solve == SolveBy::gradient; }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, H, K}},
                           {"k", Role::input, {B, T, G, K}, 0, spread},
                           {"v", Role::input, {B, T, G, V}},
                           {"o", Role::output, {B, T, H, V}}};
    if (!by_steps()) s.push_back({"ridge", Role::input, {B, T, H}, 0.8, 0.1});
    else if (!automatic) s.push_back({"step", Role::input, {B, T, H}, 0.1, 0.02});
    if (near == FitNear::gaussian) s.push_back({"bandwidth", Role::input, {H}, 3, 0.2});
    for (const Spec& part : kept()) {
      if (part.name != "k" && part.name != "v") s.push_back(lengthened(part, {B, T}, ""));
      if (capacity > 0) s.push_back(lengthened(part, {N(), capacity}, "past_"));
    }
    if (F > 0) s.push_back({"x_q", Role::input, {B, T, H, F}});
    return s;
  }
  static Spec lengthened(Spec part, std::vector<Size> front, const std::string& prefix) {
    part.name = prefix + part.name;
    part.extent.insert(part.extent.begin(), front.begin(), front.end());
    return part;
  }
  Values draw_values() const { return draw(specs(), seed); }
  std::vector<Spec> kept() const override {
    std::vector<Spec> s = {{"k", Role::input, {G, K}, 0, spread}, {"v", Role::input, {G, V}}};
    if (gates) s.push_back({"g", Role::input, {H}, -0.4, 0.2});
    if (importance) s.push_back({"beta", Role::input, {H}, 0.8, 0.1});
    if (F > 0) s.push_back({"x", Role::input, {G, F}});
    return s;
  }

  Long row_of(const double* k, const double* q) const {  // of a local memory
    Long all{1}, last{1};
    std::vector<Size> from{0};
    for (int d = 0; d < order; ++d) {
      Long next;
      std::vector<Size> next_from;
      for (std::size_t i = 0; i < last.size(); ++i)
        for (Size c = from[i]; c < K; ++c)
          next.push_back(last[i] * (static_cast<long double>(k[c]) - q[c])), next_from.push_back(c);
      all.insert(all.end(), next.begin(), next.end());
      last = next, from = next_from;
    }
    return all;
  }
  double kappa(const double* x, const double* y) const {
    double sum = 0;
    for (Size c = 0; c < K; ++c) sum += (x[c] - y[c]) * (x[c] - y[c]);
    return std::exp(-sum / 2.5);
  }

  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * H * V)}};
    Size index = 0;
    for (const Sequence& n : sequences()) {
      const Size before = past_of(index);
      const auto at = [&](const std::string& name, Size i, Size head, Size heads, Size width) {
        return i < before ? in.at("past_" + name).data() + ((index * capacity + i) * heads + head) * width
                          : in.at(name).data() + ((n.row * T + n.begin + i - before) * heads + head) * width;
      };
      for (int h = 0; h < H; ++h)
        for (Size t = n.begin; t < n.end; ++t) {
          const Size end = before + t - n.begin + 1, first = window > 0 ? std::max<Size>(0, end - window) : 0;
          const Size count = end - first, query = (n.row * T + t) * H + h, shared = h / (H / G);
          const double* const q = in.at("q").data() + query * K;
          Doubles w;
          std::vector<Long> rows;
          double total = 0;
          for (Size i = first; i < end; ++i) {
            const double* const k = at("k", i, shared, G, K);
            double logit = 0, apart = 0, along = 0;
            for (Size c = 0; c < K; ++c) apart += (q[c] - k[c]) * (q[c] - k[c]), along += q[c] * k[c];
            if (near == FitNear::exponential) logit = 0.5 * along;
            if (near == FitNear::gaussian) logit = -apart / in.at("bandwidth")[static_cast<std::size_t>(h)];
            for (Size j = i + 1; gates && j < end; ++j) logit += *at("g", j, h, H, 1);
            w.push_back(std::exp(logit) * (importance ? *at("beta", i, h, H, 1) : 1));
            total += w.back();
            if (memory == FitMemory::local) rows.push_back(row_of(k, q));
            else {
              const double* const x = F > 0 ? at("x", i, shared, G, F) : k;
              rows.emplace_back(x, x + (F > 0 ? F : K));
            }
          }
          const bool kernel = memory == FitMemory::kernel;
          const Size dim = kernel ? count : static_cast<Size>(rows[0].size());
          Long A(dim * dim), b(dim);
          for (Size i = 0; i < count; ++i)
            for (Size j = 0; kernel && j < count; ++j)
              A[i * dim + j] =
                  std::sqrt(w[i] * w[j]) * kappa(at("k", first + i, shared, G, K), at("k", first + j, shared, G, K));
          for (Size i = 0; i < count && !kernel; ++i)
            for (Size c = 0; c < dim; ++c)
              for (Size e = 0; e < dim; ++e) A[c * dim + e] += w[i] * rows[i][c] * rows[i][e];
          long double trace = 0;
          for (Size c = 0; c < dim; ++c) {
            trace += A[c * dim + c];
            if (!by_steps() && !(memory == FitMemory::local && c == 0))
              A[c * dim + c] += in.at("ridge")[query] * (relative ? total : 1);
            b[c] = kernel                       ? std::sqrt(w[c]) * kappa(at("k", first + c, shared, G, K), q)
                   : memory == FitMemory::local ? (c == 0 ? 1.0 : 0.0)
                                                : 0.7 * (F > 0 ? in.at("x_q")[query * F + c] : q[c]);
          }
          const double step = !by_steps() ? 0 : automatic ? static_cast<double>(1 / trace) : in.at("step")[query];
          const Long y = solved(A, b, solve, steps, step);
          for (Size i = 0; i < count; ++i) {
            long double u = 0;
            if (kernel) u = std::sqrt(w[i]) * y[i];
            else
              for (Size c = 0; c < dim; ++c) u += w[i] * rows[i][c] * y[c];
            for (Size j = 0; j < V; ++j)
              out["o"][query * V + j] += static_cast<double>(u * at("v", first + i, shared, G, V)[j]);
          }
        }
      ++index;
    }
    return out;
  }

  template <class X>
  QueryFitProblem<X> settings() const {
    QueryFitProblem<X> p;
    p.heads = H, p.key_heads = G, p.key_dim = K, p.value_dim = V;
    p.memory = memory, p.near = near, p.solve = solve, p.steps = steps, p.order = order, p.features = F;
    p.window = window, p.relative = relative, p.automatic = automatic, p.scale = 0.7, p.near_scale = 0.5;
    p.kernel = RegressionKernel::gaussian, p.kernel_bandwidth = 2.5;
    return p;
  }
  template <class X>
  QueryFitProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list, Pairs<X>& pairs) const {
    QueryFitProblem<X> p = settings<X>();
    fill(p, x, list, pairs);
    p.ridge = x.template view<3>("ridge"), p.step = x.template view<3>("step");
    p.bandwidth = x.template view<1>("bandwidth"), p.x_q = x.template view<4>("x_q"), p.x_k = x.template view<4>("x");
    p.g = x.template view<3>("g"), p.beta = x.template view<3>("beta");
    p.past_v = pairs.template view<4>("v"), p.past_x = pairs.template view<4>("x");
    p.past_g = pairs.template view<3>("g"), p.past_beta = pairs.template view<3>("beta");
    return p;
  }
  template <class X>
  std::size_t bytes(Size longest, Form, int, bool backward) const {
    return query_fit::workspace_bytes(settings<X>(), longest + room(), backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form, int, const Simd<X>&, Workspace w) const {
    Pairs<X> pairs = before(x, list);
    return query_fit::forward(problem(x, list, pairs), ttr::simd<double>(""), w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form, int,
                  const Simd<X>&, Workspace w) const {
    Pairs<X> pairs = before(x, list), d = zeros(pairs);
    QueryFitGradient<X> out;
    fill_gradient(out, given, to, d);
    out.d_ridge = to.template view<3>("ridge"), out.d_step = to.template view<3>("step");
    out.d_bandwidth = to.template view<1>("bandwidth");
    out.d_x_q = to.template view<4>("x_q"), out.d_x_k = to.template view<4>("x");
    out.d_g = to.template view<3>("g"), out.d_beta = to.template view<3>("beta");
    out.d_past_v = d.template view<4>("v"), out.d_past_x = d.template view<4>("x");
    out.d_past_g = d.template view<3>("g"), out.d_past_beta = d.template view<3>("beta");
    const Status status = query_fit::backward(problem(x, list, pairs), out, ttr::simd<double>(""), w);
    add_before(d, given, to, list);
    return status;
  }
};

TEST(QueryFit, AgainstLoopsAndDifferences) {
  for (const FitMemory memory : {FitMemory::features, FitMemory::local, FitMemory::kernel})
    for (const SolveBy solve : {SolveBy::cholesky, SolveBy::conjugate_gradients, SolveBy::gradient})
      for (const FitNear near : {FitNear::none, FitNear::exponential, FitNear::gaussian}) {
        Fit f;
        f.memory = memory, f.solve = solve, f.near = near, f.T = 5, f.steps = 2;
        check_family(f, once, true, 1e-4);
        f.gates = f.importance = true, f.window = 3, f.H = 4, f.G = 2, f.K = 2;
        f.capacity = 4, f.past = {4};
        if (memory == FitMemory::features) f.F = 3;
        check_family(f, once, true, 1e-4);
        f.window = 0, f.relative = solve != SolveBy::gradient, f.automatic = !f.relative;
        check_family(f, once, true, 1e-4);
      }
}

// More queries than a tile has, windows within one and across them, packed sequences.
TEST(QueryFit, ManyTiles) {
  for (const FitMemory memory : {FitMemory::features, FitMemory::local, FitMemory::kernel})
    for (const Size window : {0, 5, 70}) {
      Fit f;
      f.memory = memory, f.T = 131, f.window = window, f.gates = true, f.H = 1, f.K = 2, f.V = 2;
      f.solve = memory == FitMemory::kernel && window != 5 ? SolveBy::gradient : SolveBy::cholesky;
      check_family(f, once, false, 1e-4);
      f.packed = {0, 3, 70, 131}, f.capacity = 9, f.past = {9, 0, 4};
      check_family(f, once, false, 1e-4), check_alone(f, once);
    }
}

// Keys so far apart that their ridge is nothing beside the products of their monomials: those are orthogonalised.
TEST(QueryFit, RidgesThatAreSlight) {
  for (const bool relative : {false, true}) {
    Fit f;
    f.memory = FitMemory::local, f.near = FitNear::none, f.T = 7, f.K = 2, f.spread = 20, f.relative = relative;
    check_family(f, once, true, 1e-4);
    f.gates = f.importance = true, f.window = 5, f.H = 2, f.G = 1, f.capacity = 4, f.past = {4};
    check_family(f, once, true, 1e-4);
  }
}

// A query that sees one pair has its value for an answer, because the constant is free, however far the key is: monomials
// of k - q reach 1e6 here, and their squares beside a small ridge leave few digits unless they are taken around their means.
TEST(QueryFit, OnePairFarAway) {
  for (const FitNear near : {FitNear::exponential, FitNear::gaussian}) {
    Fit f;
    f.memory = FitMemory::local, f.order = 7, f.near = near, f.B = 9, f.T = 1, f.H = f.G = 1, f.K = 1, f.V = 2;
    Values in = f.draw_values();
    for (double& x : in["k"]) x += 6;
    for (double& x : in["ridge"]) x = 1e-3;
    Bound<double> x(f.specs(), &in, false);
    Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
    ASSERT_EQ(f.forward(x, f.sequences(), Form::best, 0, ttr::simd<double>(""), scratch.workspace()), Status::ok);
    const Doubles o = x.held["o"].get();
    for (std::size_t i = 0; i < o.size(); ++i) EXPECT_NEAR(o[i], in["v"][i], 1e-14);
  }
}

// NaN in a pair reaches the queries that see it and no others; so does a ridge that is none.
TEST(QueryFit, NotANumberStaysWhereItIs) {
  for (const char* name : {"k", "v", "ridge", "q"}) {
    Fit f;
    f.T = 20, f.H = f.G = 1, f.V = 1, f.window = 4;
    Values in = f.draw_values();
    const Doubles want = f.reference(in).at("o");
    const std::string what = name;
    const Size at = 9, width = what == "ridge" || what == "v" ? 1 : f.K;
    in[what][static_cast<std::size_t>(at * width)] = what == "ridge" ? -1 : std::numeric_limits<double>::quiet_NaN();
    Bound<double> x(f.specs(), &in, false);
    Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
    EXPECT_EQ(f.forward(x, f.sequences(), Form::best, 0, ttr::simd<double>(""), scratch.workspace()),
              what == "ridge" ? Status::out_of_domain : Status::ok);
    const Doubles o = x.held["o"].get();
    for (Size t = 0; t < f.T; ++t) {
      const bool reached = what == "k" || what == "v" ? t >= at && t < at + 4 : t == at;
      if (reached) EXPECT_TRUE(std::isnan(o[t])) << what << t;
      else EXPECT_NEAR(o[t], want[t], 1e-12) << what << t;
    }
  }
}

TEST(QueryFit, WhatItRefuses) {
  Fit f;
  f.T = 4, f.capacity = 2, f.past = {2};
  const Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  auto pairs = f.before(x, list);
  const auto good = f.problem(x, list, pairs);
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
  const auto status = [&](auto&& change) {
    auto p = good;
    change(p);
    return query_fit::forward(p, ttr::simd<double>(""), scratch.workspace());
  };
  using P = QueryFitProblem<double>;
  EXPECT_EQ(status([](P&) {}), Status::ok);
  EXPECT_EQ(status([](P& p) { p.solve = SolveBy::chebyshev; }), Status::not_supported);
  EXPECT_EQ(status([](P& p) { p.ridge = {}; }), Status::missing_input);
  EXPECT_EQ(status([](P& p) { p.past_v = {}; }), Status::missing_input);
  EXPECT_EQ(status([](P& p) { p.near = FitNear::gaussian; }), Status::missing_input);
  EXPECT_EQ(status([](P& p) { p.window = -1; }), Status::bad_shape);
  EXPECT_EQ(query_fit::forward(good, ttr::simd<double>(""), Workspace{scratch.memory.data(), 64}),
            Status::small_workspace);
}

}  // namespace
