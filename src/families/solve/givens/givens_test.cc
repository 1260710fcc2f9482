// Recursive least squares by Givens rotations against literal solutions.
#include "families/solve/givens/givens.h"

#include <gtest/gtest.h>

#include <bit>

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

/// H and F at the start and at the end; the states of the kernel follow from those at the start and live, bit by bit,
/// in Bound::counts between the calls of a test.
struct Givens : FamilyBase {
  int H = 2, G = 1, K = 3, V = 4;
  double scale = 0.7;
  bool ridged = true, gates = true, weights = true;
  bool regular = false;  // the ridge is one number, a part of H from the start, and nothing fades: gates = false
  double gate_shift = -0.3, gate_size = 0.2;

  std::string name() const {
    return "givens-T" + std::to_string(T) + "-K" + std::to_string(K) + "-V" + std::to_string(V) +
           (ridged ? "-ridge" : "") + (regular ? "-regular" : "");
  }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, G, K}},      {"k", Role::input, {B, T, G, K}},
                           {"v", Role::input, {B, T, H, V}},      {"o", Role::output, {B, T, H, V}},
                           {"variance", Role::output, {B, T, H}}, {"known", Role::fixed, {B, T, H}},
                           {"H", Role::fixed, {N() * H, K * K}},  {"F", Role::fixed, {N() * H, K * V}},
                           {"share", Role::fixed, {N() * H, K}}};
    if (ridged) s.push_back({"ridge", regular ? Role::fixed : Role::input, {H, K}});
    if (gates) s.push_back({"g", Role::input, {B, T, H}, gate_shift, gate_size});
    if (weights) s.push_back({"beta", Role::input, {B, T, H}, 0.8, 0.3});
    return s;
  }
  bool is_state(const std::string& n) const {
    return n == "H" || n == "F" || n == "share" || n == "known" || (regular && n == "ridge");
  }
  Values draw_values() const {
    Values v = draw(specs(), seed);
    if (gates)
      for (double& x : v["g"]) x = -std::abs(x);
    if (weights)
      for (double& x : v["beta"]) x = std::abs(x);
    if (ridged)
      for (double& x : v["ridge"]) x = regular ? 0.5 : static_cast<float>(0.3 + std::abs(x));
    for (std::size_t i = 0; i < v["share"].size(); ++i) v["share"][i] = regular ? 1 : i / K % 2 == 0 ? 0 : 0.75;
    for (Size m = 0; m < N() * H; ++m) {
      const Doubles a(v["H"].begin() + m * K * K, v["H"].begin() + (m + 1) * K * K);
      for (Size i = 0; i < K; ++i)
        for (Size j = 0; j < K; ++j) {
          double sum = i == j;
          for (Size p = 0; p < K; ++p) sum += a[i * K + p] * a[j * K + p] / K;
          v["H"][m * K * K + i * K + j] = v["H"][m * K * K + j * K + i] = static_cast<float>(sum);
        }
    }
    return v;
  }
  // R, Z, share, basis
  Size matrices() const { return N() * H * K * K; }
  Size maps() const { return N() * H * K * V; }
  Size rows() const { return N() * H * K; }
  std::vector<std::int64_t> counts() const {
    const Values v = draw_values();
    Doubles state(2 * matrices() + maps() + rows(), 0.0);
    for (Size m = 0; m < N() * H; ++m) {
      factor(K, V, &v.at("H")[m * K * K], &v.at("F")[m * K * V], &state[m * K * K], &state[matrices() + m * K * V]);
      for (Size i = 0; i < K; ++i) {
        state[matrices() + maps() + m * K + i] = v.at("share")[m * K + i];
        state[matrices() + maps() + rows() + m * K * K + i * (K + 1)] = 1;
      }
    }
    std::vector<std::int64_t> bits;
    for (const double x : state) bits.push_back(std::bit_cast<std::int64_t>(x));
    return bits;
  }
  Values reference(const Values& in) const {
    Values out = in;
    out["o"].assign(B * T * H * V, 0), out["variance"].assign(B * T * H, 1), out["known"].assign(B * T * H, 1);
    Size seq_head = 0;
    for (const Sequence& n : sequences())
      for (int h = 0; h < H; ++h, ++seq_head) {
        double *const HH = &out["H"][seq_head * K * K], *const FF = &out["F"][seq_head * K * V];
        double* const share = &out["share"][seq_head * K];
        for (Size t = n.begin; t < n.end; ++t) {
          const Size token = (n.row * T + t) * H + h, key = ((n.row * T + t) * G + h / (H / G)) * K;
          const double a = gates ? std::exp(in.at("g")[token]) : 1, beta = weights ? in.at("beta")[token] : 1;
          Doubles q(K);
          for (Size i = 0; i < K; ++i) {
            q[i] = scale * in.at("q")[key + i];
            if (ridged && share[i] == 0) HH[i * K + i] += in.at("ridge")[h * K + i], share[i] = 1;
            for (Size j = 0; j < K; ++j)
              HH[i * K + j] = a * HH[i * K + j] + beta * in.at("k")[key + i] * in.at("k")[key + j];
            for (Size j = 0; j < V; ++j)
              FF[i * V + j] = a * FF[i * V + j] + beta * in.at("k")[key + i] * in.at("v")[token * V + j];
            if (ridged) share[i] *= a;
          }
          const Doubles x = solved(Doubles(HH, HH + K * K), q);
          double prior = 0;
          for (Size i = 0; i < K; ++i) {
            out["variance"][token] += q[i] * x[i];
            if (ridged) prior += in.at("ridge")[h * K + i] * share[i] * x[i] * x[i];
            for (Size j = 0; j < V; ++j) out["o"][token * V + j] += FF[i * V + j] * x[i];
          }
          out["known"][token] = 1 - prior / out["variance"][token];
        }
      }
    return out;
  }
  template <class X>
  GivensProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list, Doubles& state) const {
    state.clear();
    for (const std::int64_t b : x.counts) state.push_back(std::bit_cast<double>(b));
    GivensProblem<X> p;
    p.linear = {list,
                H,
                G,
                K,
                V,
                static_cast<X>(scale),
                x.template view<4>("q"),
                x.template view<4>("k"),
                x.template view<4>("v"),
                x.template view<3>("g"),
                x.template view<3>("beta"),
                nullptr,
                x.template view<4>("o")};
    p.ridge = x.template view<2>("ridge");
    if (regular) p.constant = 0.5, p.ridge = {};
    p.r = state.data(), p.z = p.r + matrices(), p.share = p.z + maps(), p.basis = p.share + rows();
    p.variance = x.template view<3>("variance"), p.known = x.template view<3>("known");
    return p;
  }
  template <class X>
  std::size_t bytes(Size longest, Form, int, bool backward) const {
    return givens::workspace_bytes(K, V, longest, backward, regular);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form form, int, const Simd<X>& s,
                 Workspace w) const {
    Doubles state;
    const GivensProblem<X> p = problem(x, list, state);
    const Status status = givens::forward(p, form, ttr::simd<double>(s.name), w);
    for (std::size_t i = 0; i < state.size(); ++i) x.counts[i] = std::bit_cast<std::int64_t>(state[i]);
    for (Size m = 0; m < N() * H; ++m) {
      const double *const R = p.r + m * K * K, *const Z = p.z + m * K * V, *const basis = p.basis + m * K * K;
      Doubles rows_of(K * K, 0.0);  // R B
      for (Size i = 0; i < K; ++i)
        for (Size j = i; j < K; ++j)
          for (Size c = 0; c < K; ++c) rows_of[i * K + c] += R[i * K + j] * basis[j * K + c];
      for (Size i = 0; i < K; ++i) {
        x.pointer("share")[m * K + i] = static_cast<X>(p.share[m * K + i]);
        for (Size j = 0; j < K; ++j) {
          double sum = 0;
          for (Size r = 0; r < K; ++r) sum += rows_of[r * K + i] * rows_of[r * K + j];
          x.pointer("H")[(m * K + i) * K + j] = static_cast<X>(sum);
        }
        for (Size j = 0; j < V; ++j) {
          double sum = 0;
          for (Size r = 0; r < K; ++r) sum += rows_of[r * K + i] * Z[r * V + j];
          x.pointer("F")[(m * K + i) * V + j] = static_cast<X>(sum);
        }
      }
    }
    return status;
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form form, int,
                  const Simd<X>& s, Workspace w) const {
    GivensGradient<X> d;
    d.linear.d_o = given.template view<4>("o"), d.d_variance = given.template view<3>("variance");
    d.linear.d_q = to.template view<4>("q"), d.linear.d_k = to.template view<4>("k");
    d.linear.d_v = to.template view<4>("v"), d.linear.d_g = to.template view<3>("g");
    d.linear.d_beta = to.template view<3>("beta");
    if (!regular) d.d_ridge = to.template view<2>("ridge");
    Doubles state;
    const GivensProblem<X> p = problem(x, list, state);
    const Doubles before = state;
    const Status status = givens::backward(p, d, form, ttr::simd<double>(s.name), w);
    EXPECT_TRUE(state == before) << "backward changed the state";
    return status;
  }
};

const std::vector<FormCall> recurrent = {{Form::recurrent, 0}};

/// As check_family, but that gradients do not go from call to call: states have none.
void check(const Givens& f, bool gradients_by_difference = true) {
  const Values in = f.draw_values(), d = draw_gradients(f, 77), want = f.reference(in);
  Call call;
  const Values out = run_forward<double>(f, in, call), grad = run_backward<double>(f, in, d, call);
  expect_near(out, want, 1e-11, f.name());
  if (gradients_by_difference) expect_near(grad, differences(f, in, d), 1e-6, f.name() + " differences");
  expect_near(run_forward<float>(f, in, call), want, 2e-5, f.name() + " float");
  expect_near(run_backward<float>(f, in, d, call), grad, 1e-4, f.name() + " float gradient");
  call.layout = with_gaps;
  EXPECT_TRUE(run_forward<double>(f, in, call) == out) << f.name() << " strided";
  expect_near(run_backward<double>(f, in, d, call), grad, 1e-14, f.name() + " strided");
  call.layout = in_order;
  for (Size cut = 0; cut <= f.T; cut += std::max<Size>(1, f.T / 5)) {
    call.cuts = {cut};
    expect_near(run_forward<double>(f, in, call), want, 1e-11, f.name() + " cut");
  }
  call.cuts = {};
  for (const std::string& target : ttr::simd_targets()) {
    call.target = target;
    expect_near(run_forward<double>(f, in, call), want, 1e-11, f.name() + " " + target);
    expect_near(run_backward<double>(f, in, d, call), grad, 1e-10, f.name() + " " + target);
  }
}

TEST(Givens, ReferenceGradientsCuts) {
  for (const bool ridged : {false, true}) {
    Givens f;
    f.ridged = ridged, f.B = 2, f.T = 9;
    check(f);
    f.B = 1, f.T = 11, f.packed = {0, 1, 1, 7, 11}, f.H = 4, f.G = 2, f.K = 5, f.V = 2, f.seed = 3;
    check(f);
    f.packed = {}, f.T = 1, f.K = 1, f.V = 1, f.H = f.G = 1;
    check(f);
  }
}

TEST(Givens, ConstantRidge) {
  Givens f;
  f.regular = true, f.gates = false, f.B = 2, f.T = 9;
  check(f);
  f.B = 1, f.T = 11, f.packed = {0, 1, 1, 7, 11}, f.H = 4, f.G = 2, f.K = 5, f.V = 2, f.seed = 3;
  check(f);
  f.packed = {}, f.T = 1, f.K = 1, f.V = 1, f.H = f.G = 1;
  check(f);
  for (const auto& [K, V] : {std::pair{2, 1}, {8, 17}, {33, 4}}) {
    f.K = K, f.V = V, f.T = 40;
    check(f, false);
    check_steps(f);
    check_alone(f, recurrent);
  }
}

// A ridge far below the rounding of the pairs in float is still the ridge: keys in a plane, queries outside it.
TEST(Givens, ConstantRidgeIsNeverForgotten) {
  const double ridge = 1e-9;
  Stream x(300, 5, 2, 8);
  for (Size t = 0; t < x.T; ++t)
    for (Size c = 2; c < x.K; ++c) x.k[t * x.K + c] = t == 40 ? 1e-4 : 0;
  Runner<float> run(x, ridge);
  for (Size i = 0; i < x.K; ++i) run.R[i * (x.K + 1)] = std::sqrt(ridge);
  const std::vector<Sequence> list = {{0, 0, x.T}};
  GivensProblem<float> p = run.problem(list);
  p.constant = ridge, p.ridge = {}, p.linear.g = {}, p.share = nullptr, p.basis = nullptr;
  ASSERT_EQ(givens::forward(p, Form::best, ttr::simd<double>(""), run.scratch(false)), Status::ok);
  expect_literal(x, Doubles(run.o.begin(), run.o.end()), ridge, 2e-6, "tiny ridge");
}

// Gradients go from call to call through R and Z, which are those of a Cholesky factor.
TEST(Givens, StatesOfAConstantRidgeHaveGradients) {
  const Size T = 11, K = 5, V = 3, cut = 4;
  const Stream x(T, K, V, 6);
  Doubles d_o(T * V), R(K * K, 0.0), Z(K * V, 0.0);
  for (std::size_t i = 0; i < d_o.size(); ++i) d_o[i] = std::cos(3.0 * double(i));
  for (Size i = 0; i < K; ++i) {
    for (Size j = i; j < K; ++j) R[i * K + j] = i == j ? 0.7 + 0.1 * double(i) : 0.2 * std::sin(double(i + 3 * j));
    for (Size j = 0; j < V; ++j) Z[i * V + j] = std::sin(double(2 * i + j));
  }
  struct Result {
    Doubles dk, dv, dR, dZ;
    double loss = 0;
  };
  // Tokens begin .. end-1 from the states (R, Z), which are moved; the gradients are those of the call.
  const auto run = [&](Size begin, Size end, Doubles& r, Doubles& z, const Doubles* d_r, const Doubles* d_z) {
    Runner<double> one(x, 0);
    const std::vector<Sequence> list = {{0, begin, end}};
    GivensProblem<double> p = one.problem(list);
    p.constant = 0.3, p.linear.g = {}, p.r = r.data(), p.z = z.data(), p.basis = p.share = nullptr;
    Result result{Doubles(T * K, 0.0), Doubles(T * V, 0.0), Doubles(K * K, 0.0), Doubles(K * V, 0.0)};
    GivensGradient<double> d;
    d.linear.d_o = ttr::view<const double>(d_o.data(), 1, T, 1, V);
    d.linear.d_k = ttr::view(result.dk.data(), 1, T, 1, K), d.linear.d_v = ttr::view(result.dv.data(), 1, T, 1, V);
    d.d_initial_r = result.dR.data(), d.d_initial_z = result.dZ.data();
    if (d_r) d.d_final_r = d_r->data(), d.d_final_z = d_z->data();
    EXPECT_EQ(givens::backward(p, d, Form::best, ttr::simd<double>(""), one.scratch(true)), Status::ok);
    EXPECT_EQ(givens::forward(p, Form::best, ttr::simd<double>(""), one.scratch(false)), Status::ok);
    for (Size i = begin * V; i < end * V; ++i) result.loss += d_o[i] * one.o[i];
    return result;
  };
  Doubles r = R, z = Z;
  const Result whole = run(0, T, r, z, nullptr, nullptr);
  r = R, z = Z;
  run(0, cut, r, z, nullptr, nullptr);
  const Result second = run(cut, T, r, z, nullptr, nullptr);
  r = R, z = Z;
  const Result first = run(0, cut, r, z, &second.dR, &second.dZ);
  Doubles dk = first.dk, dv = first.dv;
  for (std::size_t i = 0; i < dk.size(); ++i) dk[i] += second.dk[i];
  for (std::size_t i = 0; i < dv.size(); ++i) dv[i] += second.dv[i];
  EXPECT_LE(distance(dk, whole.dk), 1e-12);
  EXPECT_LE(distance(dv, whole.dv), 1e-12);
  EXPECT_LE(distance(first.dR, whole.dR), 1e-12);
  EXPECT_LE(distance(first.dZ, whole.dZ), 1e-12);
  const auto difference = [&](Doubles& numbers, std::size_t i) {
    const double old = numbers[i];
    double side[2];
    for (const int s : {0, 1}) {
      numbers[i] = old + (s ? 1e-6 : -1e-6);
      Doubles a = R, b = Z;
      side[s] = run(0, T, a, b, nullptr, nullptr).loss;
    }
    numbers[i] = old;
    return (side[1] - side[0]) / 2e-6;
  };
  Doubles want_r(K * K, 0.0), want_z(K * V, 0.0);
  for (Size i = 0; i < K; ++i)
    for (Size j = i; j < K; ++j) want_r[i * K + j] = difference(R, i * K + j);
  for (Size i = 0; i < K * V; ++i) want_z[i] = difference(Z, i);
  EXPECT_LE(distance(whole.dR, want_r), 1e-7);
  EXPECT_LE(distance(whole.dZ, want_z), 1e-7);
  // No tokens: gradients pass.
  r = R, z = Z;
  const Result none = run(3, 3, r, z, &second.dR, &second.dZ);
  EXPECT_TRUE(none.dR == second.dR && none.dZ == second.dZ);
}

TEST(Givens, ManyShapes) {
  for (const auto& [K, V] : {std::pair{2, 1}, {8, 17}, {17, 5}, {33, 4}})
    for (const bool ridged : {false, true}) {
      Givens f;
      f.ridged = ridged, f.K = K, f.V = V, f.T = 40, f.gate_shift = 0, f.gate_size = 0.05;
      check(f, false);
      check_steps(f);
      check_alone(f, recurrent);
      f.gates = f.weights = false;
      check(f, false);
    }
}

TEST(Givens, StrongGates) {
  Givens f;
  f.gate_size = 2, f.T = 12, f.B = 2;
  check(f);
}

/// 1 + q' pinv(sum of w k k') q at token t, from the answer of least norm to the values that are the keys: S = pinv(H) H
/// says which part of a query lies in the span, and pinv(H) q is the least x with H x = (that part).
struct Literal {
  double variance;
  bool inside;
};
Literal literal_variance(const Stream& x, Size t, double fading_ridge) {
  using ttr::oracle::Matrix;
  const int K = static_cast<int>(x.K);
  Matrix<double> h(K, K), q(K, 1);
  double fade = 0;
  for (Size i = t + 1; i-- > 0; fade += x.g[i])
    for (int a = 0; a < K; ++a)
      for (int b = 0; b < K; ++b) h(a, b) += x.beta[i] * std::exp(fade) * x.k[i * K + a] * x.k[i * K + b];
  for (int a = 0; a < K; ++a) h(a, a) += fading_ridge * std::exp(fade), q(a, 0) = x.q[t * K + a];
  const Matrix<double> y = ttr::oracle::least_squares(h, q);
  double variance = 1, outside = 0;
  for (int a = 0; a < K; ++a) {
    double hy = 0;
    for (int b = 0; b < K; ++b) hy += h(a, b) * y(b, 0);
    outside += (q(a, 0) - hy) * (q(a, 0) - hy), variance += q(a, 0) * y(a, 0);
  }
  return {variance, outside < 1e-12};
}

TEST(Givens, VarianceAndWhatIsKnown) {
  for (const double ridge : {0.0, 0.3}) {
    Stream x(24, 6, 2, 7);
    for (Size t = 0; t < x.T; ++t) {
      x.g[t] = -0.05, x.beta[t] = 0.5 + 0.1 * double(t % 3);
      // Keys in a plane until token 16; every other query in it too.
      for (Doubles* rows : {&x.k, &x.q})
        for (Size c = 2; c < x.K && t < 16 && (rows == &x.k || t % 2 == 0); ++c)
          (*rows)[t * x.K + c] = (*rows)[t * x.K] - 2 * (*rows)[t * x.K + 1] * double(c);
    }
    Runner<double> run(x, ridge);
    run.forward();
    int inside = 0;
    for (Size t = 0; t < x.T; ++t) {
      const Literal want = literal_variance(x, t, ridge);
      inside += want.inside;
      EXPECT_NEAR(run.variance[t], want.variance, 1e-9 * want.variance) << t;
      if (ridge == 0) {
        EXPECT_EQ(run.known[t], double(want.inside)) << t;
      } else {
        EXPECT_TRUE(run.known[t] > 0 && run.known[t] < 1) << t;
      }
    }
    EXPECT_EQ(inside > 8 && inside < 24, ridge == 0);
  }
}

TEST(Givens, MinimumNorm) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    Stream x(30, 9, 4, seed);
    Runner<double> plain(x, 0);
    expect_literal(x, plain.forward(), 0, 1e-10, "independent keys");
    EXPECT_EQ(plain.rank(), 9);
    expect_literal(x, Runner<float>(x, 0).forward(), 0, 2e-7, "float, double");
    // Weighted = unweighted while underdetermined (Eq. 15).
    Stream weighted = x;
    for (Size t = 0; t < x.T; ++t)
      weighted.g[t] = -0.03 * double(t % 3), weighted.beta[t] = 0.5 + 0.1 * double(t % 7);
    Runner<double> other(weighted, 0);
    const Doubles o = other.forward();
    expect_literal(weighted, o, 0, 1e-10, "weighted");
    EXPECT_LE(distance(Doubles(o.begin(), o.begin() + 9 * x.V), Doubles(plain.o.begin(), plain.o.begin() + 9 * x.V)),
              1e-11);
    // Repeated keys with other values: rank 4.
    Stream repeated = weighted;
    for (Size t = 4; t < x.T; ++t)
      for (Size c = 0; c < x.K; ++c) repeated.k[t * x.K + c] = repeated.k[(t * 5 % 4) * x.K + c];
    Runner<double> few(repeated, 0);
    expect_literal(repeated, few.forward(), 0, 1e-11, "repeated");
    EXPECT_EQ(few.rank(), 4);
    Runner<float> narrow(repeated, 0);
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
  expect_literal(x, Runner<double>(x, 0).forward(), 0, 1e-11, "none");
  expect_literal(x, Runner<double>(x, 0.3).forward(), 0.3, 1e-11, "fading");
  expect_literal(x, Runner<float>(x, 0).forward(), 0, 1e-5, "float");
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
      Runner<double> wide(part, 0);
      Runner<float> small(part, 0);
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
  Runner<double> run(x, 0);
  const std::vector<Sequence> list = {{0, 0, x.T}};
  Doubles dq(x.q.size(), 0.0), dk = dq, dv(x.v.size(), 0.0), dg(x.T, 0.0), db = dg;
  GivensGradient<double> d;
  d.linear.d_o = ttr::view<const double>(d_o.data(), 1, x.T, 1, x.V);
  d.linear.d_q = ttr::view(dq.data(), 1, x.T, 1, x.K), d.linear.d_k = ttr::view(dk.data(), 1, x.T, 1, x.K);
  d.linear.d_v = ttr::view(dv.data(), 1, x.T, 1, x.V);
  d.linear.d_g = ttr::view(dg.data(), 1, x.T, 1), d.linear.d_beta = ttr::view(db.data(), 1, x.T, 1);
  ASSERT_EQ(givens::backward(run.problem(list), d, Form::best, ttr::simd<double>(""), run.scratch(true)), Status::ok);
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
  x.counts = f.counts();
  const auto list = f.sequences();
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
  Doubles state;
  const auto run = [&](auto&& change, Form form = Form::best) {
    GivensProblem<double> p = f.problem(x, list, state);
    const Doubles before = state;
    change(p);
    const Status status = givens::forward(p, form, ttr::simd<double>(""), scratch.workspace());
    EXPECT_EQ(state == before, status != Status::ok && status != Status::out_of_domain);
    return status;
  };
  using P = GivensProblem<double>;
  const auto as_it_is = [](P&) {};
  EXPECT_EQ(run(as_it_is, Form::chunk), Status::not_supported);
  EXPECT_EQ(run([](P& p) { p.basis = nullptr; }), Status::missing_input);
  EXPECT_EQ(run([](P& p) { p.share = nullptr; }), Status::missing_input);
  EXPECT_EQ(run([](P& p) { p.linear.heads = 3, p.linear.key_heads = 2; }), Status::bad_shape);
  x.held["ridge"].at(1) = 0;
  EXPECT_EQ(run(as_it_is), Status::out_of_domain);
  // One head has no ridge: it has no answers, the other has all.
  for (Size t = 0; t < f.T; ++t)
    for (Size h = 0; h < 2; ++h)
      EXPECT_EQ(std::isnan(x.held["o"].at((t * 2 + h) * f.V)), h == (1 / f.K)) << t << " " << h;
  x.held["ridge"].at(1) = 1, x.held["beta"].at(3) = -0.1;
  EXPECT_EQ(run(as_it_is), Status::out_of_domain);
  EXPECT_EQ(run([](P& p) { p.constant = 1; }), Status::not_supported);  // with gates
  x.held["beta"].at(3) = 0;
  EXPECT_EQ(
      givens::forward(f.problem(x, list, state), Form::best, ttr::simd<double>(""), {scratch.memory.data(), 64}),
      Status::small_workspace);
  EXPECT_EQ(run(as_it_is), Status::ok);
}

}  // namespace
