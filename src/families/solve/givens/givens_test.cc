// Recursive least squares by Givens rotations against literal solutions.
#include "families/solve/givens/givens.h"

#include <gtest/gtest.h>

#include "families/solve/givens/streams.h"
#include "families_harness.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;

/// R upper triangular with R'R = H, and R'^{-1} F; from the lower triangle of H.
void factor(Size K, Size V, const double* H, const double* F, double* R, double* Z) {
  std::fill_n(R, K * K, 0.0);
  for (Size i = 0; i < K; ++i)
    for (Size j = i; j < K; ++j) {
      double sum = H[j * K + i];
      for (Size m = 0; m < i; ++m) sum -= R[m * K + i] * R[m * K + j];
      R[i * K + j] = i == j ? std::sqrt(sum) : sum / R[i * K + i];
    }
  for (Size i = 0; i < K; ++i)
    for (Size j = 0; j < V; ++j) {
      double sum = F[i * V + j];
      for (Size m = 0; m < i; ++m) sum -= R[m * K + i] * Z[m * V + j];
      Z[i * V + j] = sum / R[i * K + i];
    }
}

/// In the harness the states with gradients are H and F; R and Z follow from them.
struct Givens : FamilyBase {
  int H = 2, G = 1, K = 3, V = 4;
  double scale = 0.7;
  RidgeKind kind = RidgeKind::constant;
  bool basis = false, gates = true, weights = true;
  double least_share = 0.5;
  double gate_shift = -0.3, gate_size = 0.2;

  std::string name() const {
    return "givens-kind" + std::to_string(static_cast<int>(kind)) + "-T" + std::to_string(T) + "-K" +
           std::to_string(K) + "-V" + std::to_string(V) + (basis ? "-basis" : "");
  }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, G, K}},
                           {"k", Role::input, {B, T, G, K}},
                           {"v", Role::input, {B, T, H, V}},
                           {"ridge", Role::input, {H, K}},
                           {"o", Role::output, {B, T, H, V}},
                           {"variance", Role::output, {B, T, H}},
                           {"H", Role::state, {N(), H, K, K}},
                           {"F", Role::state, {N(), H, K, V}},
                           {"R", Role::fixed, {N() * H, K * K}},
                           {"Z", Role::fixed, {N() * H, K * V}},
                           {"share", kind == RidgeKind::constant ? Role::state : Role::fixed, {N() * H, K}}};
    if (gates) s.push_back({"g", Role::input, {B, T, H}, gate_shift, gate_size});
    if (weights) s.push_back({"beta", Role::input, {B, T, H}, 0.8, 0.3});
    if (basis) s.push_back({"basis", Role::fixed, {N() * H, K * K}});
    return s;
  }
  bool is_state(const std::string& n) const { return n == "R" || n == "Z" || n == "basis" || n == "share"; }
  Values draw_values() const {
    Values v = draw(specs(), seed);
    for (double& x : v["g"]) x = -std::abs(x);
    for (double& x : v["beta"]) x = std::abs(x);
    if (!gates) v.erase("g");
    if (!weights) v.erase("beta");
    for (double& x : v["ridge"]) x = static_cast<float>(0.3 + std::abs(x));
    for (std::size_t i = 0; i < v["share"].size(); ++i)
      v["share"][i] = kind == RidgeKind::constant ? static_cast<float>(0.3 + 0.7 * std::abs(std::sin(7.0 * i)))
                                                  : double(i / K % 2);
    for (Size m = 0; m < N() * H; ++m) {
      const Doubles a(v["H"].begin() + m * K * K, v["H"].begin() + (m + 1) * K * K);
      for (Size i = 0; i < K; ++i)
        for (Size j = 0; j < K; ++j) {
          double sum = i == j;
          for (Size p = 0; p < K; ++p) sum += a[i * K + p] * a[j * K + p] / K;
          v["H"][m * K * K + i * K + j] = v["H"][m * K * K + j * K + i] = static_cast<float>(sum);
        }
      factor(K, V, &v["H"][m * K * K], &v["F"][m * K * V], &v["R"][m * K * K], &v["Z"][m * K * V]);
      for (Size i = 0; basis && i < K * K; ++i) v["basis"][m * K * K + i] = i % (K + 1) == 0;
    }
    return v;
  }
  Values reference(const Values& in) const {
    Values out = in;
    out["o"].assign(B * T * H * V, 0), out["variance"].assign(B * T * H, 0);
    Size lane = 0;
    for (const Sequence& n : sequences())
      for (int h = 0; h < H; ++h, ++lane) {
        double *const HH = &out["H"][lane * K * K], *const FF = &out["F"][lane * K * V];
        Doubles share(&out["share"][lane * K], &out["share"][lane * K] + K), added;
        for (Size t = n.begin; t < n.end; ++t) {
          const Size token = (n.row * T + t) * H + h, key = ((n.row * T + t) * G + h / (H / G)) * K;
          const double a = gates ? std::exp(in.at("g")[token]) : 1, beta = weights ? in.at("beta")[token] : 1;
          literal_shares(kind, a, share, added, least_share);
          Doubles q(K);
          for (Size i = 0; i < K; ++i) {
            q[i] = scale * in.at("q")[key + i];
            for (Size j = 0; j < K; ++j)
              HH[i * K + j] = a * HH[i * K + j] + beta * in.at("k")[key + i] * in.at("k")[key + j];
            for (Size j = 0; j < V; ++j)
              FF[i * V + j] = a * FF[i * V + j] + beta * in.at("k")[key + i] * in.at("v")[token * V + j];
            HH[i * K + i] += added[i] * in.at("ridge")[h * K + i];
          }
          const Doubles x = solved(Doubles(HH, HH + K * K), q);
          for (Size i = 0; i < K; ++i) {
            out["variance"][token] += q[i] * x[i];
            for (Size j = 0; j < V; ++j) out["o"][token * V + j] += FF[i * V + j] * x[i];
          }
        }
        std::copy(share.begin(), share.end(), &out["share"][lane * K]);
        factor(K, V, HH, FF, &out["R"][lane * K * K], &out["Z"][lane * K * V]);
      }
    return out;
  }
  template <class X>
  GivensProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list) const {
    return {{list, H, G, K, V, static_cast<X>(scale), x.template view<4>("q"), x.template view<4>("k"),
             x.template view<4>("v"), x.template view<3>("g"), x.template view<3>("beta"), nullptr,
             x.template view<4>("o")},
            kind,
            x.template view<2>("ridge"),
            x.pointer("R"),
            x.pointer("Z"),
            x.pointer("share"),
            x.pointer("basis"),
            x.template view<3>("variance"),
            static_cast<X>(least_share)};
  }
  template <class X>
  std::size_t bytes(Size longest, Form, int, bool backward) const {
    return givens::workspace_bytes<X>(K, V, longest, basis, backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form form, int, const Simd<X>& s,
                 Workspace w) const {
    const Status status = givens::forward(problem(x, list), form, s, w);
    for (Size lane = 0; lane < N() * H; ++lane) {
      const X *const R = x.pointer("R") + lane * K * K, *const Z = x.pointer("Z") + lane * K * V;
      for (Size i = 0; i < K; ++i) {
        for (Size j = 0; j < K; ++j) {
          double sum = 0;
          for (Size m = 0; m <= std::min(i, j); ++m) sum += double(R[m * K + i]) * double(R[m * K + j]);
          x.pointer("H")[(lane * K + i) * K + j] = static_cast<X>(sum);
        }
        for (Size j = 0; j < V; ++j) {
          double sum = 0;
          for (Size m = 0; m <= i; ++m) sum += double(R[m * K + i]) * double(Z[m * V + j]);
          x.pointer("F")[(lane * K + i) * V + j] = static_cast<X>(sum);
        }
      }
    }
    return status;
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form form, int,
                  const Simd<X>& s, Workspace w) const {
    const auto wide = [](const X* p, Size n) { return p ? Doubles(p, p + n) : Doubles(n, 0.0); };
    const Doubles dh = wide(given.pointer("H"), N() * H * K * K), df = wide(given.pointer("F"), N() * H * K * V),
                  ds = wide(given.pointer("share"), N() * H * K);
    Doubles h0(dh.size(), 0.0), f0(df.size(), 0.0), s0(ds.size(), 0.0);
    GivensGradient<X> d;
    d.linear.d_o = given.template view<4>("o"), d.d_variance = given.template view<3>("variance");
    d.linear.d_q = to.template view<4>("q"), d.linear.d_k = to.template view<4>("k");
    d.linear.d_v = to.template view<4>("v"), d.linear.d_g = to.template view<3>("g");
    d.linear.d_beta = to.template view<3>("beta"), d.d_ridge = to.template view<2>("ridge");
    d.d_final_h = dh.data(), d.d_final_f = df.data(), d.d_final_share = ds.data();
    d.d_initial_h = h0.data(), d.d_initial_f = f0.data(), d.d_initial_share = s0.data();
    const Status status = givens::backward(problem(x, list), d, form, s, ttr::simd<double>(s.name), w);
    for (std::size_t i = 0; i < h0.size(); ++i) to.pointer("H")[i] += static_cast<X>(h0[i]);
    for (std::size_t i = 0; i < f0.size(); ++i) to.pointer("F")[i] += static_cast<X>(f0[i]);
    for (std::size_t i = 0; i < s0.size() && kind == RidgeKind::constant; ++i)
      to.pointer("share")[i] += static_cast<X>(s0[i]);
    return status;
  }
};

const std::vector<FormCall> recurrent = {{Form::recurrent, 0}};

TEST(Givens, ReferenceGradientsCuts) {
  for (const RidgeKind kind : {RidgeKind::fading, RidgeKind::constant})
    for (const bool basis : {false, true}) {
      Givens f;
      f.kind = kind, f.basis = basis, f.B = 2, f.T = 9;
      check_family(f, recurrent);
      f.B = 1, f.T = 11, f.packed = {0, 1, 1, 7, 11}, f.H = 4, f.G = 2, f.K = 5, f.V = 2, f.seed = 3;
      check_family(f, recurrent);
      f.packed = {}, f.T = 1, f.K = 1, f.V = 1, f.H = f.G = 1;
      check_family(f, recurrent);
    }
}

// All shares restored at every token: the ridge never fades, as in least_squares.h.
TEST(Givens, ExactlyConstantRidge) {
  Givens f;
  f.least_share = 1, f.B = 2, f.T = 9;
  check_family(f, recurrent);
  f.K = 9, f.T = 30, f.gate_shift = -1;
  check_family(f, recurrent, false);
  const Values end = run_forward<double>(f, f.draw_values(), {});
  for (const double share : end.at("share")) EXPECT_EQ(share, 1);
}

TEST(Givens, ManyShapes) {
  for (const auto& [K, V] : {std::pair{2, 1}, {8, 17}, {17, 5}, {33, 4}})
    for (const RidgeKind kind : {RidgeKind::fading, RidgeKind::constant}) {
      Givens f;
      f.kind = kind, f.K = K, f.V = V, f.T = 40, f.basis = K == 8, f.gate_shift = 0, f.gate_size = 0.05;
      check_family(f, recurrent, false);
      check_steps(f);
      check_alone(f, recurrent);
      f.gates = f.weights = false;
      check_family(f, recurrent, false);
    }
}

// Strong gates: shares sink below one half at every token, and closed gates start afresh.
TEST(Givens, StrongGates) {
  Givens f;
  f.gate_size = 3, f.T = 12, f.B = 2;
  check_family(f, recurrent);
}

TEST(Givens, MinimumNorm) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    Stream x(30, 9, 4, seed);
    Runner<double, double> plain(x, RidgeKind::none, 0, true);
    expect_literal(x, plain.forward(), 0, 1e-10, "independent keys");
    EXPECT_EQ(plain.rank(), 9);
    expect_literal(x, Runner<float, double>(x, RidgeKind::none, 0, true).forward(), 0, 2e-7, "float, double");
    // Weighted = unweighted while underdetermined (Eq. 15).
    Stream weighted = x;
    for (Size t = 0; t < x.T; ++t)
      weighted.g[t] = -0.03 * double(t % 3), weighted.beta[t] = 0.5 + 0.1 * double(t % 7);
    Runner<double, double> other(weighted, RidgeKind::none, 0, true);
    const Doubles o = other.forward();
    expect_literal(weighted, o, 0, 1e-10, "weighted");
    EXPECT_LE(distance(Doubles(o.begin(), o.begin() + 9 * x.V), Doubles(plain.o.begin(), plain.o.begin() + 9 * x.V)),
              1e-11);
    // Repeated keys with other values: rank 4.
    Stream repeated = weighted;
    for (Size t = 4; t < x.T; ++t)
      for (Size c = 0; c < x.K; ++c) repeated.k[t * x.K + c] = repeated.k[(t * 5 % 4) * x.K + c];
    Runner<double, double> few(repeated, RidgeKind::none, 0, true);
    expect_literal(repeated, few.forward(), 0, 1e-11, "repeated");
    EXPECT_EQ(few.rank(), 4);
    Runner<float, float> narrow(repeated, RidgeKind::none, 0, true);
    expect_literal(repeated, narrow.forward(), 0, 5e-6, "repeated, float");
    EXPECT_EQ(narrow.rank(), 4);
  }
}

// Keys and weights of zero are no information; a closed gate forgets everything.
TEST(Givens, NothingKnown) {
  Stream x(25, 6, 3, 5);
  for (const Size t : {0, 1, 7, 12, 20})
    for (Size c = 0; c < x.K; ++c) x.k[t * x.K + c] = 0;
  for (const Size t : {3, 12, 13}) x.beta[t] = 0;
  for (Size t = 0; t < x.T; ++t) x.g[t] = -0.1;
  for (const Size t : {9, 12, 18}) x.g[t] = -std::numeric_limits<double>::infinity();
  expect_literal(x, Runner<double, double>(x, RidgeKind::none, 0, true).forward(), 0, 1e-11, "none");
  expect_literal(x, Runner<double, double>(x, RidgeKind::fading, 0.3, true).forward(), 0.3, 1e-11, "fading");
  expect_literal(x, Runner<float, float>(x, RidgeKind::none, 0, true).forward(), 0, 1e-5, "float");
}

// Directions that are not refreshed are forgotten, one after another, and learned again: the rank follows the keys.
// Under a factor of 0.3 a direction is gone after (2 log 1e-10) / (log 0.3) = 38 tokens for the literal solution, 52
// here; keys repeat with period 3, so that between those only the cut differs, and the rest of the answers agrees.
TEST(Givens, RankFollowsTheKeys) {
  Stream x(400, 8, 3, 9);
  for (Size t = 0; t < x.T; ++t) {
    x.g[t] = std::log(0.3);
    const Size block = t / 100;  // spans of 3, 8, 2, 5 dimensions, none of them along coordinates
    const Size dims[] = {3, 8, 2, 5};
    if (block == 1) continue;
    for (Size c = 0; c < x.K; ++c) x.k[t * x.K + c] = x.q[(block * 10 + t % dims[block]) * x.K + c];
    for (Size c = 0; c < x.V; ++c) x.v[t * x.V + c] = std::sin(double(t % dims[block]) + double(c));
  }
  for (const bool narrow : {false, true}) {
    Size largest = 0;
    for (const Size end : {100, 180, 300, 400}) {
      Stream part = x;
      part.T = end;
      Runner<double, double> wide(part, RidgeKind::none, 0, true);
      Runner<float, float> small(part, RidgeKind::none, 0, true);
      const Doubles o = narrow ? small.forward() : wide.forward();
      for (const double y : o) ASSERT_TRUE(std::isfinite(y));
      const Size rank = narrow ? small.rank() : wide.rank();
      largest = std::max(largest, rank);
      const Size dims = end == 100 ? 3 : end == 180 ? 8 : end == 300 ? 2 : 5;
      EXPECT_EQ(rank, dims) << end;
      const Doubles want = literal_answer(x, end - 1, 0);
      EXPECT_LE(distance(Doubles(o.end() - x.V, o.end()), want), narrow ? 2e-3 : 1e-9) << end;
    }
    EXPECT_EQ(largest, 8);
  }
}

// The least-norm answer is differentiable while the keys are independent, and again once they span everything.
TEST(Givens, MinimumNormGradient) {
  Stream x(9, 5, 3, 4);
  for (Size t = 0; t < x.T; ++t) x.g[t] = -0.2, x.beta[t] = 0.5 + 0.1 * double(t);
  Doubles d_o(x.T * x.V);
  for (std::size_t i = 0; i < d_o.size(); ++i) d_o[i] = std::cos(3.0 * double(i));
  Runner<double, double> run(x, RidgeKind::none, 0, true);
  const std::vector<Sequence> list = {{0, 0, x.T}};
  Doubles dq(x.q.size(), 0.0), dk = dq, dv(x.v.size(), 0.0), dg(x.T, 0.0), db = dg;
  GivensGradient<double> d;
  d.linear.d_o = ttr::view<const double>(d_o.data(), 1, x.T, 1, x.V);
  d.linear.d_q = ttr::view(dq.data(), 1, x.T, 1, x.K), d.linear.d_k = ttr::view(dk.data(), 1, x.T, 1, x.K);
  d.linear.d_v = ttr::view(dv.data(), 1, x.T, 1, x.V);
  d.linear.d_g = ttr::view(dg.data(), 1, x.T, 1), d.linear.d_beta = ttr::view(db.data(), 1, x.T, 1);
  ASSERT_EQ(givens::backward(run.problem(list), d, Form::best, ttr::simd<double>(""), ttr::simd<double>(""),
                             run.scratch(true)),
            Status::ok);
  const auto loss = [&] {
    double sum = 0;
    for (Size t = 0; t < x.T; ++t) {
      const Doubles o = literal_answer(x, t, 0);
      for (Size j = 0; j < x.V; ++j) sum += d_o[t * x.V + j] * o[j];
    }
    return sum;
  };
  const auto compare = [&](Doubles& at, const Doubles& got, const char* what) {
    Doubles want;
    for (double& number : at) {
      const double old = number;
      number = old + 1e-6;
      const double up = loss();
      number = old - 1e-6;
      want.push_back((up - loss()) / 2e-6);
      number = old;
    }
    EXPECT_LE(distance(got, want), 1e-7) << what;
  };
  compare(x.q, dq, "q"), compare(x.k, dk, "k"), compare(x.v, dv, "v"), compare(x.g, dg, "g");
  compare(x.beta, db, "beta");
}

TEST(Givens, StatusAndDomain) {
  Givens f;
  const Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
  const auto run = [&](const GivensProblem<double>& p, Form form = Form::best) {
    const Status status = givens::forward(p, form, ttr::simd<double>(""), scratch.workspace());
    EXPECT_TRUE(x.held["R"].get() == in.at("R"));
    return status;
  };
  EXPECT_EQ(run(f.problem(x, list), Form::chunk), Status::not_supported);
  GivensProblem<double> p = f.problem(x, list);
  p.kind = RidgeKind::none;
  EXPECT_EQ(run(p), Status::missing_input);
  p = f.problem(x, list), p.share = nullptr;
  EXPECT_EQ(run(p), Status::missing_input);
  p = f.problem(x, list), p.linear.heads = 3, p.linear.key_heads = 2;
  EXPECT_EQ(run(p), Status::bad_shape);
  x.held["ridge"].at(1) = 0;
  EXPECT_EQ(run(f.problem(x, list)), Status::out_of_domain);
  x.held["ridge"].at(1) = 1, x.held["beta"].at(3) = -0.1;
  EXPECT_EQ(run(f.problem(x, list)), Status::out_of_domain);
  x.held["beta"].at(3) = 0;
  EXPECT_EQ(givens::forward(f.problem(x, list), Form::best, ttr::simd<double>(""), {scratch.memory.data(), 64}),
            Status::small_workspace);
  EXPECT_EQ(givens::forward(f.problem(x, list), Form::best, ttr::simd<double>(""), scratch.workspace()), Status::ok);
}

}  // namespace
