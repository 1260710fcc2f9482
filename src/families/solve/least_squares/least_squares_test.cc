// Memories read through a solve, by all solvers: outputs, states and gradients against literal loops.
#include "families/solve/least_squares/least_squares.h"

#include <gtest/gtest.h>

#include <bit>

#include "families_harness.h"
#include "oracle/least_squares.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;

/// The states are double; between the calls of a test they live in Bound::counts, bit by bit.
struct LeastSquares : FamilyBase {
  int H = 2, G = 1, K = 4, V = 3;
  double scale = 0.7;
  SolveBy solver = SolveBy::cholesky;
  int steps = 3;
  bool relative = false, gates = true, own_gate = false, weights = true, blend = false, ridged = true;
  bool variance = true;  // where the solve is exact
  enum class Per { head, key, token } per = Per::key;

  std::string name() const {
    return "least-squares-by" + std::to_string(static_cast<int>(solver)) + "-steps" + std::to_string(steps) + "-K" +
           std::to_string(K) + "-V" + std::to_string(V) + (relative ? "-relative" : "");
  }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, G, K}},   {"k", Role::input, {B, T, G, K}, 0, 0.7},
                           {"v", Role::input, {B, T, H, V}},   {"o", Role::output, {B, T, H, V}},
                           {"H", Role::state, {N(), H, K, K}}, {"F", Role::state, {N(), H, K, V}}};
    if (variance && solver == SolveBy::cholesky) {
      s.push_back({"variance", Role::output, {B, T, H}});
      s.push_back({"known", Role::fixed, {B, T, H}});
    }
    if (gates) s.push_back({"g", Role::input, {B, T, H}, -0.2, 0.1});
    if (own_gate) s.push_back({"gh", Role::input, {B, T, H}, -0.4, 0.1});
    if (weights) s.push_back({"beta", Role::input, {B, T, H}, 0.8, 0.3});
    if (blend) s.push_back({"blend", Role::input, {B, T, H}, 0.5, 0.3});
    if (ridged)
      s.push_back(
          {"ridge", Role::input,
           per == Per::token ? std::vector<Size>{B, T, H, 1} : std::vector<Size>{1, 1, H, per == Per::key ? K : 1}});
    return s;
  }
  bool is_state(const std::string& n) const { return n == "known"; }  // an output without a gradient
  Values draw_values() const {
    Values v = draw(specs(), seed);
    for (const char* name : {"beta", "ridge"})
      if (v.count(name))
        for (double& x : v[name]) x = static_cast<float>(0.3 + std::abs(x));
    for (const char* name : {"g", "gh"})
      if (v.count(name))
        for (double& x : v[name]) x = -std::abs(x);
    for (Size m = 0; m < N() * H; ++m) {
      const Doubles a(v["H"].begin() + m * K * K, v["H"].begin() + (m + 1) * K * K);
      for (Size i = 0; i < K; ++i)
        for (Size j = 0; j <= i; ++j) {
          double sum = 0.2 * double(i == j);
          for (Size p = 0; p < K; ++p) sum += a[i * K + p] * a[j * K + p] / double(K);
          v["H"][m * K * K + i * K + j] = v["H"][m * K * K + j * K + i] = static_cast<float>(sum);
        }
    }
    return v;
  }
  std::vector<std::int64_t> counts() const {
    Values v = draw_values();
    std::vector<std::int64_t> bits;
    for (const double x : v["H"]) bits.push_back(std::bit_cast<std::int64_t>(x));
    for (const double x : v["F"]) bits.push_back(std::bit_cast<std::int64_t>(x));
    return bits;
  }
  static Doubles doubles(const std::vector<std::int64_t>& bits) {
    Doubles x;
    for (const std::int64_t b : bits) x.push_back(std::bit_cast<double>(b));
    return x;
  }
  /// The oracle's steps; the exact solution by elimination, because H need not be symmetric when it is perturbed.
  Doubles literal_solve(const Doubles& A, const Doubles& b, double low, double high) const {
    ttr::oracle::Matrix<double> a(K, K);
    a.data = A;
    if (solver == SolveBy::chebyshev) return ttr::oracle::chebyshev(a, b, low, high, steps);
    if (solver == SolveBy::conjugate_gradients) return ttr::oracle::conjugate_gradients(a, b, steps);
    Doubles m = A, x = b;
    for (Size i = 0; i < K; ++i)
      for (Size r = 0; r < K; ++r) {
        if (r == i) continue;
        const double f = m[r * K + i] / m[i * K + i];
        for (Size j = 0; j < K; ++j) m[r * K + j] -= f * m[i * K + j];
        x[r] -= f * x[i];
      }
    for (Size i = 0; i < K; ++i) x[i] /= m[i * K + i];
    return x;
  }
  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * H * V)}, {"H", in.at("H")}, {"F", in.at("F")}};
    const bool varies = variance && solver == SolveBy::cholesky;
    if (varies) out["variance"].assign(B * T * H, 1.0), out["known"].assign(B * T * H, 0.0);
    const auto at = [&](const char* name, Size token, double otherwise) {
      return in.count(name) ? in.at(name)[token] : otherwise;
    };
    Size seq_head = 0;
    for (const Sequence& n : sequences())
      for (int h = 0; h < H; ++h, ++seq_head) {
        double *const HH = &out["H"][seq_head * K * K], *const FF = &out["F"][seq_head * K * V];
        for (Size i = 0; solver == SolveBy::conjugate_gradients && i < K;
             ++i)  // a symmetric matrix, and its gradient
          for (Size j = 0; j < i; ++j) HH[i * K + j] = HH[j * K + i] = (HH[i * K + j] + HH[j * K + i]) / 2;
        for (Size t = n.begin; t < n.end; ++t) {
          const Size token = (n.row * T + t) * H + h, key = ((n.row * T + t) * G + h / (H / G)) * K;
          const double *const k = &in.at("k")[key], *const v = &in.at("v")[token * V], beta = at("beta", token, 1);
          const double a = std::exp(at("g", token, 0)), ah = own_gate ? std::exp(at("gh", token, 0)) : a;
          double norm = 0;
          for (Size i = 0; i < K; ++i) {
            for (Size j = 0; j < K; ++j) HH[i * K + j] = ah * HH[i * K + j] + beta * k[i] * k[j];
            for (Size j = 0; j < K; ++j) norm += HH[i * K + j] * HH[i * K + j];
            for (Size j = 0; j < V; ++j) FF[i * V + j] = a * FF[i * V + j] + beta * k[i] * v[j];
          }
          norm = std::sqrt(norm);
          Doubles A(HH, HH + K * K), p(K), ridge(K);
          for (Size i = 0; i < K; ++i) {
            const Size where = per == Per::token ? token : per == Per::key ? h * K + i : h;
            ridge[i] = at("ridge", where, 0) * (relative ? norm : 1);
            A[i * K + i] += ridge[i], p[i] = scale * in.at("q")[key + i];
          }
          const Doubles x = literal_solve(A, p, *std::min_element(ridge.begin(), ridge.end()),
                                          *std::max_element(ridge.begin(), ridge.end()) + norm);
          double prior = 0;
          for (Size i = 0; varies && i < K; ++i) {
            out["variance"][token] += p[i] * x[i];
            prior += ridge[i] * x[i] * x[i];
          }
          if (varies) out["known"][token] = 1 - prior / out["variance"][token];
          for (Size i = 0; i < K; ++i)
            for (Size j = 0; j < V; ++j)
              out["o"][token * V + j] += FF[i * V + j] * (p[i] + at("blend", token, 1) * (x[i] - p[i]));
        }
      }
    return out;
  }
  template <class X>
  LeastSquaresProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list, Doubles& state,
                                 int chunk = 0) const {
    LeastSquaresProblem<X> p;
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
    p.gh = x.template view<3>("gh"), p.blend = x.template view<3>("blend"), p.ridge = x.template view<4>("ridge");
    p.relative = relative, p.solver = solver, p.steps = steps, p.chunk = chunk;
    p.h = state.data(), p.f = state.data() + N() * H * K * K;
    p.variance = x.template view<3>("variance"), p.known = x.template view<3>("known");
    return p;
  }
  template <class X>
  std::size_t bytes(Size longest, Form form, int chunk, bool backward) const {
    return least_squares::workspace_bytes(K, V, longest, solver, steps, backward, form, chunk);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form form, int chunk, const Simd<X>& s,
                 Workspace w) const {
    Doubles state = doubles(x.counts);
    const Status status = least_squares::forward(problem(x, list, state, chunk), form, ttr::simd<double>(s.name), w);
    for (std::size_t i = 0; i < state.size(); ++i) x.counts[i] = std::bit_cast<std::int64_t>(state[i]);
    const Size matrices = N() * H * K * K;
    for (Size i = 0; i < matrices; ++i) x.pointer("H")[i] = static_cast<X>(state[i]);
    for (Size i = 0; i < N() * H * K * V; ++i) x.pointer("F")[i] = static_cast<X>(state[matrices + i]);
    return status;
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form form, int chunk,
                  const Simd<X>& s, Workspace w) const {
    Doubles state = doubles(x.counts);
    const Size matrices = N() * H * K * K, all = static_cast<Size>(state.size());
    Doubles d_final(given.pointer("H"), given.pointer("H") + matrices), d_initial(all, 0.0);
    d_final.insert(d_final.end(), given.pointer("F"), given.pointer("F") + (all - matrices));
    LeastSquaresGradient<X> d;
    d.linear.d_o = given.template view<4>("o"), d.d_variance = given.template view<3>("variance");
    d.linear.d_q = to.template view<4>("q"), d.linear.d_k = to.template view<4>("k");
    d.linear.d_v = to.template view<4>("v"), d.linear.d_g = to.template view<3>("g");
    d.linear.d_beta = to.template view<3>("beta"), d.d_gh = to.template view<3>("gh");
    d.d_blend = to.template view<3>("blend"), d.d_ridge = to.template view<4>("ridge");
    d.d_final_h = d_final.data(), d.d_final_f = d_final.data() + matrices;
    d.d_initial_h = d_initial.data(), d.d_initial_f = d_initial.data() + matrices;
    const Status status =
        least_squares::backward(problem(x, list, state, chunk), d, form, ttr::simd<double>(s.name), w);
    EXPECT_TRUE(state == doubles(x.counts)) << "backward changed the state";
    for (Size i = 0; i < matrices; ++i) to.pointer("H")[i] += static_cast<X>(d_initial[i]);
    for (Size i = matrices; i < all; ++i) to.pointer("F")[i - matrices] += static_cast<X>(d_initial[i]);
    return status;
  }
};

/// All forms: chunks that divide the time and that do not, that fill the lanes of a vector and that do not.
const std::vector<FormCall> forms = {{Form::recurrent, 0}, {Form::chunk, 1}, {Form::chunk, 3},
                                     {Form::chunk, 11},    {Form::chunk, 0}, {Form::parallel, 0}};
const SolveBy solvers[] = {SolveBy::cholesky, SolveBy::conjugate_gradients, SolveBy::chebyshev};

TEST(LeastSquares, ReferenceGradientsCuts) {
  for (const SolveBy solver : solvers)
    for (const bool relative : {false, true}) {
      LeastSquares f;
      f.solver = solver, f.relative = relative, f.B = 2, f.T = 7, f.own_gate = f.blend = relative;
      check_family(f, forms);
      f.B = 1, f.T = 9, f.packed = {0, 1, 1, 5, 9}, f.H = 4, f.G = 2, f.K = 5, f.V = 2, f.seed = 3, f.steps = 2;
      f.per = LeastSquares::Per::token, f.own_gate = !relative, f.weights = false;
      check_family(f, forms);
      f.packed = {}, f.T = 1, f.K = 1, f.V = 1, f.H = f.G = 1, f.per = LeastSquares::Per::head, f.gates = false;
      f.own_gate = false, f.steps = 1;
      check_family(f, forms);
    }
}

TEST(LeastSquares, ManyShapes) {
  for (const SolveBy solver : solvers)
    for (const auto& [K, V] : {std::pair{2, 1}, {8, 17}, {17, 5}, {33, 4}, {64, 3}}) {
      if (K == 64 && solver != SolveBy::cholesky) continue;  // six steps there would magnify rounding
      LeastSquares f;
      f.solver = solver, f.K = K, f.V = V, f.T = 20, f.steps = 6, f.relative = K == 8;
      check_family(f, forms, false);
      check_steps(f);
      check_alone(f, forms);
    }
}

TEST(LeastSquares, StepsFromNone) {
  for (const SolveBy solver : {SolveBy::conjugate_gradients, SolveBy::chebyshev})
    for (const int steps : {0, 1}) {
      LeastSquares f;
      f.solver = solver, f.steps = steps;
      check_family(f, forms);
    }
}

// Several chunks of the usual size and a rest, with gates that close, and steps that end when they have converged.
TEST(LeastSquares, ManyChunks) {
  for (const SolveBy solver : solvers)
    for (const bool relative : {false, true}) {
      LeastSquares f;
      f.solver = solver, f.relative = relative, f.own_gate = f.blend = relative, f.T = 110, f.K = 12, f.steps = 30;
      Values in = f.draw_values(), d = draw_gradients(f, 8);
      for (double& r : in["ridge"]) r += 1;
      for (const char* name : {"g", "gh"})
        for (Size i = 7; in.count(name) && i < f.T * f.H; i += 45)
          in[name][i] = i % 2 ? -50 : -std::numeric_limits<double>::infinity();
      Call whole{Form::recurrent, 0};
      const Values want = run_forward<double>(f, in, whole), want_d = run_backward<double>(f, in, d, whole);
      expect_near(want, f.reference(in), 1e-11, f.name());
      for (const FormCall& form : forms) {
        const Call call{form.form, form.chunk};
        expect_near(run_forward<double>(f, in, call), want, 1e-12, f.name());
        expect_near(run_backward<double>(f, in, d, call), want_d, 1e-11, f.name());
      }
      check_alone(f, {{Form::chunk, 0}});
    }
}

// Keys that are nearly equal, a small ridge and too few steps: rounding is magnified, but chunks stay as near to the
// exact answer as the token-by-token form, and the two differ by less than either is wrong.
TEST(LeastSquares, ChunksAreAsGoodAsTheSteps) {
  for (const int steps : {5, 10, 30}) {
    LeastSquares f;
    f.K = 32, f.V = 6, f.T = 100, f.H = 1, f.steps = steps, f.per = LeastSquares::Per::head;
    Values in = f.draw_values();
    in["ridge"][0] = 1e-3;
    for (Size i = 1; i < f.T * f.K; ++i)
      if (i % f.K != 0) in["k"][i] = 0.9 * in["k"][i - 1] + 0.4 * in["k"][i];
    const Doubles exact = run_forward<double>(f, in, {}).at("o");
    f.solver = SolveBy::conjugate_gradients;
    const Doubles one = run_forward<double>(f, in, {}).at("o"),
                  many = run_forward<double>(f, in, {Form::chunk, 0}).at("o");
    const double error = distance(one, exact);
    EXPECT_LE(distance(many, exact), 2 * error + 1e-13) << steps;
    EXPECT_LE(distance(many, one), 2 * error + 1e-13) << steps;
  }
}

// NaN in a token reaches the answers from there on and no others.
TEST(LeastSquares, NotANumberStaysWhereItIs) {
  for (const SolveBy solver : solvers)
    for (const char* name : {"q", "k", "v"})
      for (const FormCall& form : forms) {
        LeastSquares f;
        f.solver = solver, f.T = 20, f.packed = {0, 5, 15, 20}, f.H = f.G = 1, f.relative = solver != solvers[1];
        Values in = f.draw_values();
        const Doubles want = run_forward<double>(f, in, {form.form, form.chunk}).at("o");
        in[name][8 * (*name == 'v' ? f.V : f.K)] = std::numeric_limits<double>::quiet_NaN();
        Bound<double> x(f.specs(), &in, false);
        x.counts = f.counts();
        Scratch<double> scratch(f.bytes<double>(10, form.form, form.chunk, false));
        ASSERT_EQ(
            f.forward<double>(x, f.sequences(), form.form, form.chunk, ttr::simd<double>(""), scratch.workspace()),
            solver == SolveBy::cholesky && *name == 'k' ? Status::out_of_domain : Status::ok);
        const Doubles got = x.held["o"].get();
        for (Size t = 0; t < f.T; ++t) {
          const bool reached = *name == 'q' ? t == 8 : t >= 8 && t < 15;
          EXPECT_EQ(std::isnan(got[t * f.V]), reached) << name << t;
          if (!reached) {
            EXPECT_EQ(got[t * f.V], want[t * f.V]) << name << t;
          }
        }
      }
}

// Enough steps are an exact solve, backwards too: the reverse of converged steps is the implicit gradient.
TEST(LeastSquares, EnoughStepsAreExact) {
  for (const bool relative : {false, true}) {
    LeastSquares exact;
    exact.K = 6, exact.T = 12, exact.relative = relative, exact.blend = true, exact.variance = false;
    const Values in = exact.draw_values(), d = draw_gradients(exact, 5);
    // Conjugate gradients need a symmetric matrix: only the symmetric part of dH says the same.
    const auto gradients = [&](const LeastSquares& f) {
      Values out = run_backward<double>(f, in, d, {});
      Doubles& h = out["H"];
      for (Size m = 0; m < static_cast<Size>(h.size()); m += f.K * f.K)
        for (Size i = 0; i < f.K; ++i)
          for (Size j = 0; j <= i; ++j)
            h[m + i * f.K + j] = h[m + j * f.K + i] = (h[m + i * f.K + j] + h[m + j * f.K + i]) / 2;
      return out;
    };
    const Values want = run_forward<double>(exact, in, {}), want_d = gradients(exact);
    for (const SolveBy solver : {SolveBy::conjugate_gradients, SolveBy::chebyshev}) {
      LeastSquares f = exact;
      f.solver = solver, f.steps = solver == SolveBy::chebyshev ? 300 : 30;
      expect_near(run_forward<double>(f, in, {}), want, 1e-11, f.name());
      expect_near(gradients(f), want_d, 1e-11, f.name() + " gradient");
    }
  }
}

// The error of Chebyshev after n steps is bounded by the condition number (1 + a) / a of a relative ridge a; after
// 30 steps at a = 0.02 it is below 4e-4 of |x|.
TEST(LeastSquares, ChebyshevConverges) {
  LeastSquares f;
  f.K = 16, f.T = 60, f.relative = true, f.per = LeastSquares::Per::head, f.gates = true;
  Values in = f.draw_values();
  std::fill(in["ridge"].begin(), in["ridge"].end(), 0.02);
  const Values want = run_forward<double>(f, in, {});
  f.solver = SolveBy::chebyshev, f.steps = 30;
  EXPECT_LE(distance(run_forward<double>(f, in, {}).at("o"), want.at("o")), 2e-3);
  f.steps = 120;
  EXPECT_LE(distance(run_forward<double>(f, in, {}).at("o"), want.at("o")), 1e-11);
}

TEST(LeastSquares, ConjugateGradientsWithoutARidge) {
  LeastSquares f;
  f.solver = SolveBy::conjugate_gradients, f.ridged = false, f.T = 6, f.steps = 2;
  check_family(f, forms);
}

// A query that no key has anything to do with: p'A p is rounding of a matrix of size 1, so there is no step to take, and
// the answer is zero in all forms. (A step of |p|^2 / p'A p would be 1e16 long.) So after one step for keys along a line,
// whatever angle the query has with it: the second direction is one the matrix does not have.
TEST(LeastSquares, NoStepFromRounding) {
  LeastSquares f;
  f.B = 1, f.T = 5, f.H = f.G = 1, f.K = 3, f.V = 1, f.scale = 1, f.steps = 3;
  f.solver = SolveBy::conjugate_gradients, f.ridged = f.gates = f.weights = false;
  for (const double angle : {0.0, 1e-4, 1e-2}) {
    Values in = f.draw_values(), d = draw_gradients(f, 3);
    std::fill(in["H"].begin(), in["H"].end(), 0.0), std::fill(in["F"].begin(), in["F"].end(), 0.0);
    const double key[] = {0.1, 0.2, 0.7}, query[] = {0.7, 0, -0.1};
    for (Size t = 0; t < f.T; ++t)
      for (Size i = 0; i < f.K; ++i) {
        in["k"][t * f.K + i] = (1 + 0.3 * static_cast<double>(t)) * key[i];
        in["q"][t * f.K + i] = query[i] + angle * key[i];
      }
    const Doubles want = f.reference(in).at("o");
    double largest = 0;
    for (const double o : want) largest = std::max(largest, std::abs(o));
    if (angle == 0) EXPECT_EQ(largest, 0);
    else EXPECT_LE(largest, 20 / angle);
    Doubles want_d;
    for (const FormCall& form : forms) {
      Bound<double> x(f.specs(), &in, false), given(f.specs(), &d, false), to(f.specs(), nullptr, false);
      x.counts.assign(f.counts().size(), std::bit_cast<std::int64_t>(0.0));
      Scratch<double> scratch(f.bytes<double>(f.T, form.form, form.chunk, true));
      const auto list = f.sequences();
      const auto& simd = ttr::simd<double>("");
      ASSERT_EQ(f.backward<double>(x, given, to, list, form.form, form.chunk, simd, scratch.workspace()), Status::ok);
      ASSERT_EQ(f.forward<double>(x, list, form.form, form.chunk, simd, scratch.workspace()), Status::ok);
      if (want_d.empty()) want_d = to.held["k"].get();
      EXPECT_LE(distance(x.held["o"].get(), want), 1e-8) << angle;
      EXPECT_LE(distance(to.held["k"].get(), want_d), 1e-6) << angle;
    }
  }
}

// Nothing stored yet, and a relative ridge: the answer is zero, not NaN.
TEST(LeastSquares, NothingStored) {
  for (const auto& [solver, form] : {std::pair{SolveBy::cholesky, Form::best},
                                     {SolveBy::conjugate_gradients, Form::best},
                                     {SolveBy::conjugate_gradients, Form::chunk},
                                     {SolveBy::chebyshev, Form::best},
                                     {SolveBy::chebyshev, Form::chunk}}) {
    LeastSquares f;
    f.solver = solver, f.relative = true, f.blend = true, f.T = 4;
    Values in = f.draw_values(), d = draw_gradients(f, 3);
    std::fill(in["k"].begin(), in["k"].end(), 0.0);
    Bound<double> x(f.specs(), &in, false), given(f.specs(), &d, false), to(f.specs(), nullptr, false);
    x.counts.assign(f.counts().size(), std::bit_cast<std::int64_t>(0.0));
    Scratch<double> scratch(f.bytes<double>(f.T, form, 0, true));
    const auto list = f.sequences();
    ASSERT_EQ(f.backward<double>(x, given, to, list, form, 0, ttr::simd<double>(""), scratch.workspace()),
              Status::ok);
    ASSERT_EQ(f.forward<double>(x, list, form, 0, ttr::simd<double>(""), scratch.workspace()), Status::ok);
    for (const double y : x.held["o"].get()) EXPECT_EQ(y, 0);
    for (const double y : to.held["k"].get()) EXPECT_TRUE(std::isfinite(y));
  }
}

TEST(LeastSquares, StatusAndDomain) {
  LeastSquares f;
  const Values in = f.draw_values();
  const auto list = f.sequences();
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
  const auto run = [&](auto&& change, Form form = Form::best) {
    Bound<double> x(f.specs(), &in, false);
    Doubles state = LeastSquares::doubles(f.counts());
    const Doubles before = state;
    LeastSquaresProblem<double> p = f.problem(x, list, state);
    change(p, x);
    const Status status = least_squares::forward(p, form, ttr::simd<double>(""), scratch.workspace());
    if (status != Status::out_of_domain || p.steps < 0) {
      EXPECT_TRUE(state == before);
    } else {  // the heads without such a number have moved on, the one with it has not
      EXPECT_FALSE(state == before);
    }
    return status;
  };
  using P = LeastSquaresProblem<double>;
  using X = Bound<double>;
  const auto by_steps = [](P& p, X&) { p.solver = SolveBy::conjugate_gradients, p.variance = p.known = {}; };
  EXPECT_EQ(run([](P& p, X&) { p.solver = SolveBy::chebyshev; }), Status::not_supported);  // and a variance
  EXPECT_EQ(run(by_steps, Form::scan), Status::not_supported);
  EXPECT_EQ(run([](P&, X&) {}, Form::scan), Status::not_supported);
  EXPECT_EQ(run(by_steps, Form::chunk), Status::small_workspace);  // that of one token at a time
  EXPECT_EQ(run([](P&, X&) {}, Form::parallel), Status::small_workspace);
  EXPECT_EQ(run([](P& p, X&) { p.ridge = {}; }), Status::missing_input);
  EXPECT_EQ(run([](P& p, X&) { p.h = nullptr; }), Status::missing_input);
  EXPECT_EQ(run([](P& p, X&) { p.linear.q = {}; }), Status::missing_input);
  EXPECT_EQ(run([](P& p, X&) { p.steps = -1; }), Status::out_of_domain);
  EXPECT_EQ(run([](P&, X& x) { x.held["ridge"].at(1) = 0; }), Status::out_of_domain);
  EXPECT_EQ(run([](P&, X& x) { x.held["beta"].at(1) = -1; }), Status::out_of_domain);
  EXPECT_EQ(run([](P& p, X&) { p.linear.key_heads = 0; }), Status::bad_shape);
  EXPECT_EQ(run([](P& p, X&) { p.linear.value_dim = 1 << 20; }), Status::small_workspace);
}

// Float inputs, but states and solves in double: only what is written in float is rounded.
TEST(LeastSquares, FloatRoundsTheOutputsAlone) {
  for (const auto& [K, T] : {std::pair{3, 40}, {33, 40}, {64, 9}}) {
    LeastSquares f;
    f.K = K, f.T = T;
    const Values in = f.draw_values(), want = f.reference(in), got = run_forward<float>(f, in, {});
    for (const char* name : {"o", "variance", "known", "H", "F"})
      EXPECT_LE(distance(got.at(name), want.at(name)), 2e-7) << name;
  }
}

// The variance alone, and the answers alone, are the same bits as both.
TEST(LeastSquares, OutputsOneByOne) {
  LeastSquares f;
  f.T = 9;
  const Values in = f.draw_values(), both = run_forward<double>(f, in, {Form::best, 0});
  const auto list = f.sequences();
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
  for (const bool variance : {false, true}) {
    Bound<double> x(f.specs(), &in, false);
    Doubles state = LeastSquares::doubles(f.counts());
    LeastSquaresProblem<double> p = f.problem(x, list, state);
    if (variance) p.linear.o = {};
    else p.variance = p.known = {};
    ASSERT_EQ(least_squares::forward(p, Form::best, ttr::simd<double>(""), scratch.workspace()), Status::ok);
    EXPECT_EQ(x.held["o"].get() == both.at("o"), !variance);
    EXPECT_EQ(x.held["variance"].get() == both.at("variance"), variance);
    EXPECT_EQ(x.held["known"].get() == both.at("known"), variance);
  }
}

// Without forgetting and with a small ridge the map is learned: v = W'k is answered exactly, and hardly varies.
TEST(LeastSquares, LearnsALinearMapExactly) {
  LeastSquares f;
  f.B = 1, f.T = 200, f.H = f.G = 1, f.K = 6, f.V = 3, f.scale = 1, f.gates = f.weights = false;
  Values in = f.draw_values();
  std::fill(in["ridge"].begin(), in["ridge"].end(), 1e-9);
  const auto map = [&](const double* x, Size j) {
    double sum = 0;
    for (Size i = 0; i < f.K; ++i) sum += x[i] * std::sin(double(i * 3 + j));
    return sum;
  };
  for (Size t = 0; t < f.T; ++t)
    for (Size j = 0; j < f.V; ++j) in["v"][t * f.V + j] = map(&in["k"][t * f.K], j);
  Bound<double> x(f.specs(), &in, false);
  x.counts.assign(f.counts().size(), std::bit_cast<std::int64_t>(0.0));
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
  ASSERT_EQ(f.forward<double>(x, f.sequences(), Form::best, 0, ttr::simd<double>(""), scratch.workspace()),
            Status::ok);
  const Doubles o = x.held["o"].get(), variance = x.held["variance"].get();
  for (Size t = 50; t < f.T; ++t) {
    for (Size j = 0; j < f.V; ++j) ASSERT_NEAR(o[t * f.V + j], map(&in["q"][t * f.K], j), 1e-8);
    EXPECT_LT(variance[t], 3) << t;
  }
}

// Wind-up: under forgetting, keys that stay in a plane for 2000 tokens leave H with eigenvalues of e^-60. The
// constant ridge keeps the solve well posed throughout, and the answers are those of sums taken afresh.
TEST(LeastSquares, SurvivesWindUp) {
  LeastSquares f;
  f.B = 1, f.T = 3000, f.H = f.G = 1, f.K = 6, f.V = 2, f.weights = false;
  Values in = f.draw_values();
  std::fill(in["ridge"].begin(), in["ridge"].end(), static_cast<double>(1e-3f));
  std::fill(in["g"].begin(), in["g"].end(), static_cast<double>(-0.03f));
  for (Size t = 500; t < 2500; ++t)
    for (Size i = 2; i < f.K; ++i) in["k"][t * f.K + i] = 0;
  Bound<float> x(f.specs(), &in, false);
  x.counts.assign(f.counts().size(), std::bit_cast<std::int64_t>(0.0));
  Scratch<float> scratch(f.bytes<float>(f.T, Form::best, 0, false));
  ASSERT_EQ(f.forward<float>(x, f.sequences(), Form::best, 0, ttr::simd<float>(""), scratch.workspace()), Status::ok);
  const Doubles got = x.held["o"].get(), variance = x.held["variance"].get();
  for (const Size t : {Size{400}, Size{2400}, Size{2499}, Size{2505}, Size{2999}}) {
    Doubles A(f.K * f.K, 0.0), F(f.K * f.V, 0.0), b(f.K);
    for (Size m = 0; m <= t; ++m)
      for (Size i = 0; i < f.K; ++i) {
        const double w = std::exp(double(t - m) * in["g"][0]) * in["k"][m * f.K + i];
        for (Size j = 0; j < f.K; ++j) A[i * f.K + j] += w * in["k"][m * f.K + j];
        for (Size j = 0; j < f.V; ++j) F[i * f.V + j] += w * in["v"][m * f.V + j];
      }
    for (Size i = 0; i < f.K; ++i) A[i * f.K + i] += in["ridge"][i], b[i] = f.scale * in["q"][t * f.K + i];
    const Doubles y = f.literal_solve(A, b, 0, 0);
    double spread = 1;
    for (Size i = 0; i < f.K; ++i) spread += b[i] * y[i];
    EXPECT_NEAR(variance[t], spread, 2e-7 * spread) << t;
    for (Size j = 0; j < f.V; ++j) {
      double want = 0;
      for (Size i = 0; i < f.K; ++i) want += F[i * f.V + j] * y[i];
      ASSERT_NEAR(got[t * f.V + j], want, 2e-7 * (1 + std::abs(want))) << t;
    }
  }
}

// A start that is no sum of squares: its sequence has no answers while the matrix is not positive definite, has them
// again when enough pairs have come, and the other sequence does not notice.
TEST(LeastSquares, NotPositiveDefinite) {
  LeastSquares f;
  f.B = 2, f.T = 30, f.H = f.G = 1, f.K = 3, f.V = 2, f.gates = f.weights = false;
  const Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  Doubles state = LeastSquares::doubles(f.counts());
  const Values want = run_forward<double>(f, in, {Form::best, 0});
  for (Size i = 0; i < f.K; ++i) state[i * f.K + i] = -3;
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
  ASSERT_EQ(least_squares::forward(f.problem(x, list, state), Form::best, ttr::simd<double>(""), scratch.workspace()),
            Status::out_of_domain);
  for (const auto& [name, width] : {std::pair<const char*, Size>{"o", f.V}, {"variance", 1}}) {
    const Doubles got = x.held[name].get();
    const Size half = f.T * width;
    EXPECT_TRUE(std::isnan(got[0])) << name;
    EXPECT_TRUE(std::isfinite(got[half - 1])) << name;
    for (Size i = half; i < 2 * half; ++i) EXPECT_EQ(got[i], want.at(name)[i]) << name;
  }
}

}  // namespace
