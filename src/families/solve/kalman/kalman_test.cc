// The Kalman filter against the literal recursion with full matrices, its gradients against differences, and what it
// equals: the batch estimate, and recursive least squares.
#include "families/solve/kalman/kalman.h"

#include <gtest/gtest.h>

#include <bit>

#include "families/solve/kalman/block.h"
#include "families/solve/least_squares/least_squares.h"
#include "families_harness.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;

/// The states are double; between the calls of a test they live in Bound::counts, bit by bit.
struct Kalman : FamilyBase {
  int H = 2, G = 1, K = 3, V = 4;
  double scale = 0.7;
  bool fading = true, weights = true, process = true, noise = true;

  std::string name() const {
    return "kalman-T" + std::to_string(T) + "-H" + std::to_string(H) + "-K" + std::to_string(K) + "-V" +
           std::to_string(V) + (fading ? "-fading" : "");
  }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, G, K}},      {"k", Role::input, {B, T, G, K}},
                           {"v", Role::input, {B, T, H, V}},      {"o", Role::output, {B, T, H, V}},
                           {"variance", Role::output, {B, T, H}}, {"S", Role::state, {N(), H, K, V}},
                           {"P", Role::state, {N(), H, K, K}}};
    if (fading) s.push_back({"g", Role::input, {B, T, H}, 0, 0.1});
    if (weights) s.push_back({"beta", Role::input, {B, T, H}, 0.8, 0.3});
    if (process) s.push_back({"process", Role::input, {B, T, H}, 0, 0.3});
    if (noise) s.push_back({"noise", Role::input, {B, T, H}, 0.5, 0.3});
    return s;
  }
  Values draw_values() const {
    Values v = draw(specs(), seed);
    for (const char* name : {"beta", "process", "noise"})
      if (v.count(name))
        for (double& x : v[name]) x = static_cast<float>(0.01 + std::abs(x));
    if (v.count("g"))
      for (double& x : v["g"]) x = -std::abs(x);
    for (Size m = 0; m < N() * H; ++m) {
      const Doubles a(v["P"].begin() + m * K * K, v["P"].begin() + (m + 1) * K * K);
      for (Size i = 0; i < K; ++i)
        for (Size j = 0; j <= i; ++j) {
          double sum = 0.2 * double(i == j);
          for (Size p = 0; p < K; ++p) sum += a[i * K + p] * a[j * K + p] / double(K);
          v["P"][m * K * K + i * K + j] = v["P"][m * K * K + j * K + i] = static_cast<float>(sum);
        }
    }
    return v;
  }
  std::vector<std::int64_t> counts() const {
    Values v = draw_values();
    std::vector<std::int64_t> bits;
    for (const double x : v["S"]) bits.push_back(std::bit_cast<std::int64_t>(x));
    for (const double x : v["P"]) bits.push_back(std::bit_cast<std::int64_t>(x));
    return bits;
  }
  static Doubles doubles(const std::vector<std::int64_t>& bits) {
    Doubles x;
    for (const std::int64_t b : bits) x.push_back(std::bit_cast<double>(b));
    return x;
  }
  Values reference(const Values& in) const {
    Values out = {
        {"o", Doubles(B * T * H * V)}, {"variance", Doubles(B * T * H)}, {"S", in.at("S")}, {"P", in.at("P")}};
    const auto at = [&](const char* name, Size token, double otherwise) {
      return in.count(name) ? in.at(name)[token] : otherwise;
    };
    Size seq_head = 0;
    for (const Sequence& n : sequences())
      for (int h = 0; h < H; ++h, ++seq_head) {
        double *const S = &out["S"][seq_head * K * V], *const P = &out["P"][seq_head * K * K];
        for (Size i = 0; i < K; ++i)  // P is a symmetric matrix: so are its gradients
          for (Size j = 0; j < i; ++j) P[i * K + j] = P[j * K + i] = (P[i * K + j] + P[j * K + i]) / 2;
        for (Size t = n.begin; t < n.end; ++t) {
          const Size token = (n.row * T + t) * H + h, key = ((n.row * T + t) * G + h / (H / G)) * K;
          const double *const k = &in.at("k")[key], *const v = &in.at("v")[token * V];
          const double beta = at("beta", token, 1), noise_now = at("noise", token, 1);
          Doubles column(K, 0.0), e(v, v + V);
          double along = 0;
          for (Size i = 0; i < K; ++i)
            for (Size j = 0; j < K; ++j)
              P[i * K + j] = std::exp(-at("g", token, 0)) * P[i * K + j] + double(i == j) * at("process", token, 0);
          for (Size i = 0; i < K; ++i)
            for (Size j = 0; j < K; ++j) column[i] += P[i * K + j] * k[j];
          for (Size i = 0; i < K; ++i) along += k[i] * column[i];
          for (Size j = 0; j < V; ++j)
            for (Size i = 0; i < K; ++i) e[j] -= S[i * V + j] * k[i];
          const double w = beta / (noise_now + beta * along);
          double spread = noise_now;
          for (Size i = 0; i < K; ++i) {
            for (Size j = 0; j < V; ++j) S[i * V + j] += w * column[i] * e[j];
            for (Size j = 0; j < K; ++j) P[i * K + j] -= w * column[i] * column[j];
          }
          for (Size i = 0; i < K; ++i) {
            const double q = scale * in.at("q")[key + i];
            for (Size j = 0; j < V; ++j) out["o"][token * V + j] += q * S[i * V + j];
            for (Size j = 0; j < K; ++j) spread += q * P[i * K + j] * scale * in.at("q")[key + j];
          }
          out["variance"][token] = spread;
        }
      }
    return out;
  }
  template <class X>
  KalmanProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list, Doubles& state, int chunk = 0) const {
    KalmanProblem<X> p;
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
    p.process = x.template view<3>("process"), p.noise = x.template view<3>("noise");
    p.variance = x.template view<3>("variance");
    p.s = state.data(), p.p = state.data() + N() * H * K * V, p.chunk = chunk;
    return p;
  }
  template <class X>
  std::size_t bytes(Size longest, Form form, int chunk, bool backward) const {
    return kalman::workspace_bytes(K, V, longest, backward, form, chunk);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form form, int chunk, const Simd<X>& s,
                 Workspace w) const {
    Doubles state = doubles(x.counts);
    const Status status = kalman::forward(problem(x, list, state, chunk), form, ttr::simd<double>(s.name), w);
    for (std::size_t i = 0; i < state.size(); ++i) x.counts[i] = std::bit_cast<std::int64_t>(state[i]);
    const Size means = N() * H * K * V;
    for (Size i = 0; i < means; ++i) x.pointer("S")[i] = static_cast<X>(state[i]);
    for (Size i = 0; i < N() * H * K * K; ++i) x.pointer("P")[i] = static_cast<X>(state[means + i]);
    return status;
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form form, int chunk,
                  const Simd<X>& s, Workspace w) const {
    Doubles state = doubles(x.counts);
    const Size means = N() * H * K * V, all = static_cast<Size>(state.size());
    Doubles d_final(given.pointer("S"), given.pointer("S") + means), d_initial(all, 0.0);
    d_final.insert(d_final.end(), given.pointer("P"), given.pointer("P") + (all - means));
    KalmanGradient<X> d;
    d.linear.d_o = given.template view<4>("o"), d.d_variance = given.template view<3>("variance");
    d.linear.d_q = to.template view<4>("q"), d.linear.d_k = to.template view<4>("k");
    d.linear.d_v = to.template view<4>("v"), d.linear.d_g = to.template view<3>("g");
    d.linear.d_beta = to.template view<3>("beta");
    d.d_process = to.template view<3>("process"), d.d_noise = to.template view<3>("noise");
    d.d_final_s = d_final.data(), d.d_final_p = d_final.data() + means;
    d.d_initial_s = d_initial.data(), d.d_initial_p = d_initial.data() + means;
    const Status status = kalman::backward(problem(x, list, state, chunk), d, form, ttr::simd<double>(s.name), w);
    EXPECT_TRUE(state == doubles(x.counts)) << "backward changed the state";
    for (Size i = 0; i < means; ++i) to.pointer("S")[i] += static_cast<X>(d_initial[i]);
    for (Size i = means; i < all; ++i) to.pointer("P")[i - means] += static_cast<X>(d_initial[i]);
    return status;
  }
};

const std::vector<FormCall> forms = {{Form::recurrent, 0}, {Form::chunk, 1}, {Form::chunk, 3}, {Form::chunk, 0}};

TEST(Kalman, ReferenceGradientsCuts) {
  Kalman f;
  f.B = 2, f.T = 9;
  check_family(f, forms);
  f.B = 1, f.T = 11, f.packed = {0, 1, 1, 7, 11}, f.H = 4, f.G = 2, f.K = 5, f.V = 2, f.seed = 3, f.fading = false;
  check_family(f, forms);
  f.packed = {}, f.T = 1, f.K = 1, f.V = 1, f.H = f.G = 1, f.process = false;
  check_family(f, forms);
  f.T = 5, f.noise = false, f.weights = false;
  check_family(f, forms);
}

TEST(Kalman, ManyShapes) {
  for (const auto& [K, V] : {std::pair{2, 1}, {8, 17}, {17, 5}, {33, 4}}) {
    Kalman f;
    f.K = K, f.V = V, f.T = 40, f.fading = K != 8;
    check_family(f, forms, false);
    check_steps(f);
    check_alone(f, forms);
  }
}

/// One head, all double, without the harness.
struct One {
  Size T, K, V;
  Doubles q, k, v, g, beta, process, noise, o, variance, S, P;
  One(Size time, Size key_dim, Size value_dim, double prior, unsigned seed) : T(time), K(key_dim), V(value_dim) {
    std::mt19937 rng(seed);
    std::normal_distribution<double> normal;
    for (Size i = 0; i < T * K; ++i) q.push_back(normal(rng)), k.push_back(normal(rng));
    for (Size i = 0; i < T * V; ++i) v.push_back(normal(rng));
    g.assign(T, 0.0), beta.assign(T, 1.0), process.assign(T, 0.0), noise.assign(T, 1.0);
    o.assign(T * V, 0.0), variance.assign(T, 0.0), S.assign(K * V, 0.0), P.assign(K * K, 0.0);
    for (Size i = 0; i < K; ++i) P[i * K + i] = prior;
  }
  KalmanProblem<double> problem(const std::vector<Sequence>& list) {
    KalmanProblem<double> p;
    p.linear = {list,
                1,
                1,
                static_cast<int>(K),
                static_cast<int>(V),
                1.0,
                ttr::view<const double>(q.data(), 1, T, 1, K),
                ttr::view<const double>(k.data(), 1, T, 1, K),
                ttr::view<const double>(v.data(), 1, T, 1, V),
                ttr::view<const double>(g.data(), 1, T, 1),
                ttr::view<const double>(beta.data(), 1, T, 1),
                nullptr,
                ttr::view(o.data(), 1, T, 1, V)};
    p.process = ttr::view<const double>(process.data(), 1, T, 1),
    p.noise = ttr::view<const double>(noise.data(), 1, T, 1);
    p.variance = ttr::view(variance.data(), 1, T, 1);
    p.s = S.data(), p.p = P.data();
    return p;
  }
  Status run(Form form = Form::best) {
    const std::vector<Sequence> list = {{0, 0, T}};
    const KalmanProblem<double> p = problem(list);
    Doubles work(kalman::workspace_bytes(static_cast<int>(K), static_cast<int>(V), T, false, form) / 8 + 1,
                 std::numeric_limits<double>::quiet_NaN());
    return kalman::forward(p, form, ttr::simd<double>(""), {work.data(), work.size() * 8});
  }
};

// Without drift and fading the filter is ridge regression with the ridge noise / prior.
TEST(Kalman, IsRidgeRegression) {
  One x(40, 6, 3, 10.0, 2);
  for (Size t = 0; t < x.T; ++t) x.beta[t] = 0.3 + 0.02 * double(t);
  ASSERT_EQ(x.run(), Status::ok);
  const std::vector<Sequence> list = {{0, 0, x.T}};
  Doubles o(x.o.size()), variance(x.T), H(x.K * x.K, 0.0), F(x.K * x.V, 0.0), ridge(1, 0.1);
  LeastSquaresProblem<double> p;
  p.linear = {list,
              1,
              1,
              6,
              3,
              1.0,
              ttr::view<const double>(x.q.data(), 1, x.T, 1, x.K),
              ttr::view<const double>(x.k.data(), 1, x.T, 1, x.K),
              ttr::view<const double>(x.v.data(), 1, x.T, 1, x.V),
              {},
              ttr::view<const double>(x.beta.data(), 1, x.T, 1),
              nullptr,
              ttr::view(o.data(), 1, x.T, 1, x.V)};
  p.ridge = {ridge.data(), {1, x.T, 1, 6}, {0, 0, 0, 0}}, p.h = H.data(), p.f = F.data();
  p.variance = ttr::view(variance.data(), 1, x.T, 1);
  Doubles work(least_squares::workspace_bytes(6, 3, x.T, SolveBy::cholesky, 0, false) / 8 + 1);
  ASSERT_EQ(least_squares::forward(p, Form::recurrent, ttr::simd<double>(""), {work.data(), work.size() * 8}),
            Status::ok);
  EXPECT_LE(distance(x.o, o), 1e-11);
  EXPECT_LE(distance(x.variance, variance), 1e-11);
}

// The predictive variance is honest: values drawn from the model fall within +-1.645 sd of the answer nine times of
// ten.
TEST(Kalman, VarianceCovers) {
  std::mt19937 rng(8);
  std::normal_distribution<double> normal;
  const Size K = 4, V = 50, T = 400;
  const double drift = 0.05, noise = 0.5;
  One x(T, K, V, 1.0, 3);
  Doubles truth(K * V);
  for (double& w : truth) w = normal(rng);
  std::fill(x.process.begin(), x.process.end(), drift), std::fill(x.noise.begin(), x.noise.end(), noise);
  Doubles target(T * V, 0.0);
  for (Size t = 0; t < T; ++t) {
    for (double& w : truth) w += std::sqrt(drift) * normal(rng);
    for (Size j = 0; j < V; ++j) {
      double at_key = 0, at_query = 0;
      for (Size i = 0; i < K; ++i)
        at_key += truth[i * V + j] * x.k[t * K + i], at_query += truth[i * V + j] * x.q[t * K + i];
      x.v[t * V + j] = at_key + std::sqrt(noise) * normal(rng);
      target[t * V + j] = at_query + std::sqrt(noise) * normal(rng);
    }
  }
  ASSERT_EQ(x.run(), Status::ok);
  double inside = 0;
  for (Size i = 0; i < T * V; ++i) inside += std::abs(target[i] - x.o[i]) <= 1.645 * std::sqrt(x.variance[i / V]);
  EXPECT_NEAR(inside / double(T * V), 0.9, 0.01);
}

// 100,000 tokens of keys in a plane: with drift the other directions become uncertain, linearly, and P stays
// symmetric and positive definite; when the keys return, the answer is right within a few tokens.
void drift_does_not_wind_up(Form form) {
  const Size K = 8, V = 2, T = 100000, back = 99900;
  One x(T, K, V, 1.0, 4);
  std::fill(x.process.begin(), x.process.end(), 1e-3), std::fill(x.noise.begin(), x.noise.end(), 1e-2);
  const auto map = [&](Size i, Size j) { return std::sin(double(3 * i + j)); };
  for (Size t = 0; t < T; ++t) {
    for (Size i = 2; t < back && i < K; ++i) x.k[t * K + i] = 0;
    for (Size j = 0; j < V; ++j) {
      x.v[t * V + j] = 0;
      for (Size i = 0; i < K; ++i) x.v[t * V + j] += map(i, j) * x.k[t * K + i];
    }
  }
  ASSERT_EQ(x.run(form), Status::ok);
  for (const double y : x.o) ASSERT_TRUE(std::isfinite(y));
  for (const double y : x.variance) ASSERT_GT(y, 0.0);
  for (Size i = 0; i < K; ++i)
    for (Size j = 0; j < K; ++j) EXPECT_EQ(x.P[i * K + j], x.P[j * K + i]);
  double error = 0;
  for (Size t = back + 50; t < T; ++t)
    for (Size j = 0; j < V; ++j) {
      double want = 0;
      for (Size i = 0; i < K; ++i) want += map(i, j) * x.q[t * K + i];
      error = std::max(error, std::abs(x.o[t * V + j] - want));
    }
  EXPECT_LE(error, 1e-3);
}

TEST(Kalman, DriftDoesNotWindUp) {
  drift_does_not_wind_up(Form::recurrent);
  drift_does_not_wind_up(Form::chunk);
}

// Gradients through 600 tokens that each fade by a tenth, against differences along a random direction. What is
// antisymmetric in the gradient of P would have grown by e^60 on the way; so would that of the reference's P, which
// is why the differences are those of the kernel.
TEST(Kalman, GradientsSurviveFading) {
  for (const Form form : {Form::recurrent, Form::chunk}) {
    Kalman f;
    f.T = 600, f.H = 1, f.process = false;
    Values in = f.draw_values(), d = draw_gradients(f, 6);
    std::fill(in["g"].begin(), in["g"].end(), -0.1f);
    const Values grad = run_backward<double>(f, in, d, {form}), directions = draw(f.specs(), 9);
    for (const char* name : {"q", "k", "v", "g", "beta", "noise"}) {
      const Doubles& along = directions.at(name);
      double want = 0, got = 0;
      for (const double h : {1e-5, -1e-5}) {
        Values x = in;
        for (std::size_t i = 0; i < along.size(); ++i) x[name][i] += h * along[i];
        for (const auto& [output, y] : run_forward<double>(f, x, {}))
          for (std::size_t i = 0; i < y.size(); ++i) want += d.at(output)[i] * y[i] / (2 * h);
      }
      for (std::size_t i = 0; i < along.size(); ++i) got += grad.at(name)[i] * along[i];
      EXPECT_NEAR(got, want, 1e-6 * std::abs(want)) << name;
    }
  }
}

// Several blocks of the usual size and a rest, some of them cut short by strong gates; tokens that do not count.
TEST(Kalman, ManyBlocks) {
  for (const bool process : {false, true}) {
    Kalman f;
    f.T = 120, f.K = 9, f.V = 5, f.process = process;
    Values in = f.draw_values(), d = draw_gradients(f, 8);
    for (std::size_t i = 0; i < in["g"].size(); ++i) in["g"][i] *= i % 50 == 30 ? 40 : 0.1;
    for (std::size_t i = 0; i < in["beta"].size(); i += 5) in["beta"][i] = 0;
    const Values want = run_forward<double>(f, in, {}), want_d = run_backward<double>(f, in, d, {});
    for (const int chunk : {2, 7, 0, 1000}) {
      const Call call{Form::chunk, chunk};
      expect_near(run_forward<double>(f, in, call), want, 1e-12, f.name());
      expect_near(run_backward<double>(f, in, d, call), want_d, 1e-11, f.name());
    }
  }
  Kalman f;  // by differences where tokens do not count
  f.T = 5;
  Values in = f.draw_values(), d = draw_gradients(f, 8);
  in["beta"][1] = in["beta"][4] = 0;
  for (const Form form : {Form::recurrent, Form::chunk})
    expect_near(run_backward<double>(f, in, d, {form}), differences(f, in, d), 1e-6, f.name());
}

// How many tokens the blocks of a sequence have.
std::vector<Size> blocks_of(One x) {
  const std::vector<Sequence> list = {{0, 0, x.T}};
  KalmanProblem<double> p = x.problem(list);
  const auto& s = ttr::simd<double>("");
  ttr::families::Arena counter;
  kalman::Block(s, x.K, x.V, 32, false, counter);
  Scratch<double> scratch(counter.bytes());
  ttr::families::Arena arena(scratch.workspace());
  kalman::Block block(s, x.K, x.V, 32, false, arena);
  std::vector<Size> lengths;
  for (Size t = 0; t < x.T; t += lengths.back())
    lengths.push_back(block.forward(p, 0, t, x.T - t, 0, x.S.data(), x.P.data(), true));
  EXPECT_TRUE(scratch.intact());
  return lengths;
}

TEST(Kalman, BlocksAreAsLongAsIsSafe) {
  using Lengths = std::vector<Size>;
  One x(70, 5, 2, 1.0, 3);
  EXPECT_EQ(blocks_of(x), (Lengths{32, 32, 6}));
  std::fill(x.process.begin(), x.process.end(), 0.1);
  EXPECT_EQ(blocks_of(x), (Lengths{32, 32, 6}));
  std::fill(x.g.begin(), x.g.end(), -0.0999);  // e^-2 comes after 20 tokens
  EXPECT_EQ(blocks_of(x), (Lengths{20, 20, 20, 10}));
  std::fill(x.g.begin(), x.g.end(), -30.0);
  EXPECT_EQ(blocks_of(x), Lengths(70, 1));
  // Five keys make all others known when the noise is small: the sixth token starts another block.
  One known(12, 5, 2, 1e6, 3);
  EXPECT_EQ(blocks_of(known), (Lengths{5, 7}));
  // NaN is in a block that starts with it.
  x = One(20, 5, 2, 1.0, 3);
  x.k[8 * 5] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(blocks_of(x).front(), 8);
}

// Against the recursion in long double: where the prior is large both forms lose digits, the chunk form not many
// more.
TEST(Kalman, ChunksAreAsGoodAsTheSteps) {
  for (const double prior : {1.0, 1e3, 1e6})
    for (const double gate : {0.0, -0.1})
      for (const double process : {0.0, 0.1}) {
        One x(200, 6, 2, prior, 7);
        std::fill(x.g.begin(), x.g.end(), gate), std::fill(x.process.begin(), x.process.end(), process);
        using Wide = long double;
        std::vector<Wide> S(x.S.begin(), x.S.end()), P(x.P.begin(), x.P.end());
        Doubles exact;
        for (Size t = 0; t < x.T; ++t) {
          std::vector<Wide> c(x.K, 0.0L), e(x.v.begin() + t * x.V, x.v.begin() + (t + 1) * x.V);
          Wide spread = x.noise[t];
          for (Size i = 0; i < x.K; ++i)
            for (Size j = 0; j < x.K; ++j)
              P[i * x.K + j] = std::exp(-static_cast<Wide>(gate)) * P[i * x.K + j] + Wide(i == j) * process;
          for (Size i = 0; i < x.K; ++i)
            for (Size j = 0; j < x.K; ++j) c[i] += P[i * x.K + j] * x.k[t * x.K + j];
          for (Size i = 0; i < x.K; ++i) spread += c[i] * x.k[t * x.K + i];
          for (Size i = 0; i < x.K; ++i)
            for (Size j = 0; j < x.V; ++j) e[j] -= S[i * x.V + j] * x.k[t * x.K + i];
          for (Size i = 0; i < x.K; ++i) {
            for (Size j = 0; j < x.V; ++j) S[i * x.V + j] += c[i] * e[j] / spread;
            for (Size j = 0; j <= i; ++j) P[j * x.K + i] = P[i * x.K + j] -= c[i] * c[j] / spread;
          }
          for (Size j = 0; j < x.V; ++j) {
            Wide o = 0;
            for (Size i = 0; i < x.K; ++i) o += S[i * x.V + j] * x.q[t * x.K + i];
            exact.push_back(static_cast<double>(o));
          }
        }
        One y = x;
        ASSERT_EQ(x.run(Form::recurrent), Status::ok);
        ASSERT_EQ(y.run(Form::chunk), Status::ok);
        EXPECT_LE(distance(x.o, exact), 5e-16 * prior + 1e-14) << prior << ' ' << gate << ' ' << process;
        EXPECT_LE(distance(y.o, exact), 2.5e-15 * prior + 1e-14) << prior << ' ' << gate << ' ' << process;
      }
}

void edges_and_domain(Form form) {
  // Nothing is uncertain and nothing is measured: no change, no division.
  One x(4, 3, 2, 0.0, 5);
  std::fill(x.noise.begin(), x.noise.end(), 0.0);
  ASSERT_EQ(x.run(form), Status::ok);
  EXPECT_EQ(x.S, Doubles(6, 0.0));
  EXPECT_EQ(x.o, Doubles(8, 0.0));
  // An exact measurement is met exactly.
  One exact(1, 3, 2, 1.0, 6);
  exact.noise[0] = 0, exact.q = exact.k;
  ASSERT_EQ(exact.run(form), Status::ok);
  EXPECT_LE(distance(exact.o, exact.v), 1e-14);
  EXPECT_NEAR(exact.variance[0], 0, 1e-14);
  // A weight of zero is no measurement.
  One ignored(1, 3, 2, 1.0, 6);
  ignored.beta[0] = 0;
  ASSERT_EQ(ignored.run(form), Status::ok);
  EXPECT_EQ(ignored.S, Doubles(6, 0.0));

  for (Doubles One::*member : {&One::beta, &One::process, &One::noise})
    for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
      One y(4, 3, 2, 1.0, 5);
      (y.*member)[2] = bad;
      EXPECT_EQ(y.run(form), Status::out_of_domain);
      EXPECT_EQ(y.S, Doubles(6, 0.0));
    }
}

TEST(Kalman, EdgesAndDomain) {
  edges_and_domain(Form::recurrent);
  edges_and_domain(Form::chunk);
  One x(4, 3, 2, 1.0, 5);
  EXPECT_EQ(x.run(Form::scan), Status::not_supported);
  EXPECT_EQ(x.run(Form::parallel), Status::not_supported);
}

}  // namespace
