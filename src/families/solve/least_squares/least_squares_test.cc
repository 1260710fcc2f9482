// Recursive least squares: outputs, states and implicit gradients against literal loops with a general linear solve.
#include "families/solve/least_squares/least_squares.h"

#include <gtest/gtest.h>

#include <limits>

#include "families/linear/scalar/reference.h"

namespace {

using namespace ttr_test;
namespace ls = ttr::families::least_squares;
using ttr::families::LeastSquaresGradient;
using ttr::families::LeastSquaresProblem;

/// As Case and Data, with H [N,H,K,K], F in Data::S, a ridge per head and key, and the gradients of the final states.
struct Setting {
  Case c;
  Data d;
  Doubles ridge, h, d_h;
};

Setting draw(Case c, double smallest_ridge = 0.2) {
  Setting s{c, draw_data(c), {}, {}, {}};
  std::mt19937 rng(c.seed + 100);
  std::normal_distribution<float> normal;
  const Size N = static_cast<Size>(c.sequences().size()), K = c.K;
  s.ridge.resize(c.H * K);
  for (double& r : s.ridge) r = static_cast<float>(smallest_ridge + std::abs(normal(rng)));
  s.h.resize(N * c.H * K * K), s.d_h.resize(s.h.size());
  for (double& x : s.d_h) x = normal(rng);
  for (Size m = 0; m < N * c.H; ++m) {
    Doubles a(K * K);
    for (double& x : a) x = normal(rng);
    for (Size i = 0; i < K; ++i)
      for (Size j = 0; j < K; ++j) {
        double sum = 0;
        for (Size p = 0; p < K; ++p) sum += a[i * K + p] * a[j * K + p];
        s.h[m * K * K + i * K + j] = s.h[m * K * K + j * K + i] = sum / double(K);
      }
  }
  return s;
}

/// x with A x = b by elimination with pivoting; A need not be symmetric.
Doubles solved(Doubles A, Doubles b) {
  const Size n = static_cast<Size>(b.size());
  for (Size i = 0; i < n; ++i) {
    Size best = i;
    for (Size r = i; r < n; ++r)
      if (std::abs(A[r * n + i]) > std::abs(A[best * n + i])) best = r;
    for (Size j = 0; j < n; ++j) std::swap(A[i * n + j], A[best * n + j]);
    std::swap(b[i], b[best]);
    for (Size r = i + 1; r < n; ++r) {
      const double f = A[r * n + i] / A[i * n + i];
      for (Size j = i; j < n; ++j) A[r * n + j] -= f * A[i * n + j];
      b[r] -= f * b[i];
    }
  }
  for (Size i = n; i-- > 0;) {
    for (Size j = i + 1; j < n; ++j) b[i] -= A[i * n + j] * b[j];
    b[i] /= A[i * n + i];
  }
  return b;
}

struct Answer {
  Doubles o, h, f;
};

Answer literal(const Setting& s) {
  const Case& c = s.c;
  const Size H = c.H, G = c.G, K = c.K, V = c.V;
  Answer r{Doubles(s.d.v.size(), 0), s.h, s.d.S};
  const std::vector<Sequence> list = c.sequences();
  for (std::size_t n = 0; n < list.size(); ++n)
    for (Size head = 0; head < H; ++head) {
      double* const h = &r.h[(n * H + head) * K * K];
      double* const f = &r.f[(n * H + head) * K * V];
      for (Size t = list[n].begin; t < list[n].end; ++t) {
        const Size token = list[n].row * c.T + t, key = (token * G + head / (H / G)) * K,
                   value = (token * H + head) * V;
        const double a = std::exp(s.d.g[token * H + head]), beta = s.d.beta[token * H + head];
        for (Size i = 0; i < K; ++i) {
          for (Size j = 0; j < K; ++j) h[i * K + j] = a * h[i * K + j] + beta * s.d.k[key + i] * s.d.k[key + j];
          for (Size j = 0; j < V; ++j) f[i * V + j] = a * f[i * V + j] + beta * s.d.k[key + i] * s.d.v[value + j];
        }
        Doubles A(h, h + K * K), b(K);
        for (Size i = 0; i < K; ++i) A[i * K + i] += s.ridge[head * K + i], b[i] = s.d.scale * s.d.q[key + i];
        const Doubles x = solved(A, b);
        for (Size j = 0; j < V; ++j)
          for (Size i = 0; i < K; ++i) r.o[value + j] += f[i * V + j] * x[i];
      }
    }
  return r;
}

double objective(const Setting& s) {
  const Answer r = literal(s);
  double sum = 0;
  for (std::size_t i = 0; i < r.o.size(); ++i) sum += s.d.d_o[i] * r.o[i];
  for (std::size_t i = 0; i < r.h.size(); ++i) sum += s.d_h[i] * r.h[i];
  for (std::size_t i = 0; i < r.f.size(); ++i) sum += s.d.d_S[i] * r.f[i];
  return sum;
}

struct Gradients {
  Doubles q, k, v, g, beta, ridge, h, f;
};

template <class T>
struct Kernel {
  Setting s;
  std::vector<Sequence> list;
  Held<T> q, k, v, g, beta, o, d_o, d_q, d_k, d_v, d_g, d_beta;
  std::vector<T> ridge, d_ridge;
  Doubles h, f, d_h, d_f;
  Status status = Status::ok;
  double poison = std::numeric_limits<double>::quiet_NaN();

  explicit Kernel(const Setting& setting)
      : s(setting),
        list(s.c.sequences()),
        q(s.c, s.c.G, s.c.K, &s.d.q),
        k(s.c, s.c.G, s.c.K, &s.d.k),
        v(s.c, s.c.H, s.c.V, &s.d.v),
        g(s.c, s.c.H, 1, &s.d.g),
        beta(s.c, s.c.H, 1, &s.d.beta),
        o(s.c, s.c.H, s.c.V, nullptr),
        d_o(s.c, s.c.H, s.c.V, &s.d.d_o),
        d_q(s.c, s.c.G, s.c.K, nullptr),
        d_k(s.c, s.c.G, s.c.K, nullptr),
        d_v(s.c, s.c.H, s.c.V, nullptr),
        d_g(s.c, s.c.H, 1, nullptr),
        d_beta(s.c, s.c.H, 1, nullptr),
        ridge(narrowed<T>(s.ridge)),
        d_ridge(ridge.size(), T(0)),
        h(s.h),
        f(s.d.S),
        d_h(h.size(), 0),
        d_f(f.size(), 0) {}

  LeastSquaresProblem<T> problem() {
    LeastSquaresProblem<T> p;
    p.linear = {list,   s.c.H, s.c.G, s.c.K,   s.c.V, static_cast<T>(s.d.scale), q.view, k.view,
                v.view, {},    {},    nullptr, o.view};
    if (s.c.gates != Gates::none) p.linear.g = g.three();
    if (s.c.beta) p.linear.beta = beta.three();
    p.ridge = ttr::view<const T>(ridge.data(), s.c.H, s.c.K);
    p.h = h.data(), p.f = f.data();
    return p;
  }
  Doubles scratch(bool backward) {
    Size longest = 0;
    for (const Sequence& n : list) longest = std::max(longest, n.end - n.begin);
    return Doubles(ls::workspace_bytes<T>(s.c.K, s.c.V, longest, backward) / 8 + 1, poison);
  }
  Answer forward(Form form = Form::recurrent, const char* target = "") {
    Doubles work = scratch(false);
    status = ls::forward(problem(), form, Workspace{work.data(), work.size() * 8}, &ttr::simd<double>(target));
    return {o.doubles(), h, f};
  }
  Gradients backward() {
    Doubles work = scratch(true);
    LeastSquaresGradient<T> d;
    d.linear.d_o = d_o.view;
    d.linear.d_q = d_q.view, d.linear.d_k = d_k.view, d.linear.d_v = d_v.view;
    d.linear.d_g = d_g.three(), d.linear.d_beta = d_beta.three();
    d.d_ridge = ttr::view(d_ridge.data(), s.c.H, s.c.K);
    d.d_final_h = s.d_h.data(), d.d_final_f = s.d.d_S.data(), d.d_initial_h = d_h.data(), d.d_initial_f = d_f.data();
    status = ls::backward(problem(), d, Form::best, Workspace{work.data(), work.size() * 8});
    return {d_q.doubles(),
            d_k.doubles(),
            d_v.doubles(),
            d_g.doubles(),
            d_beta.doubles(),
            Doubles(d_ridge.begin(), d_ridge.end()),
            d_h,
            d_f};
  }
};

TEST(LeastSquares, OutputsAndStates) {
  for (const auto& [K, V] : {std::pair{1, 1}, {3, 5}, {5, 3}, {8, 17}, {33, 4}, {64, 8}})
    for (const int T : {0, 1, 2, 9, 40})
      for (const Gates gates : {Gates::none, Gates::mild, Gates::strong})
        for (const Layout layout : {Layout::time_major, Layout::head_major, Layout::strided}) {
          if (K * T > 400 && layout != Layout::time_major) continue;
          Case c{.B = 2, .T = T, .H = 2, .G = 1, .K = K, .V = V, .gates = gates, .beta = gates != Gates::none};
          c.layout = layout;
          const Setting s = draw(c);
          const Answer want = literal(s), got = Kernel<double>(s).forward();
          ASSERT_LT(distance(got.o, want.o), 1e-11) << c.name();
          ASSERT_LT(distance(got.h, want.h), 1e-13) << c.name();
          ASSERT_LT(distance(got.f, want.f), 1e-13) << c.name();
          // float inputs, but double states and solves: only the output is rounded.
          const Answer narrow = Kernel<float>(s).forward();
          ASSERT_LT(distance(narrow.o, want.o), 2e-7) << c.name();
          ASSERT_LT(distance(narrow.h, want.h), 1e-13) << c.name();
        }
}

TEST(LeastSquares, AllInstructionSets) {
  const Setting s = draw({.B = 1, .T = 20, .H = 2, .G = 2, .K = 13, .V = 7});
  const Answer want = literal(s);
  for (const std::string& target : ttr::simd_targets())
    ASSERT_LT(distance(Kernel<double>(s).forward(Form::step, target.c_str()).o, want.o), 1e-12) << target;
}

TEST(LeastSquares, GradientsAreFiniteDifferences) {
  for (const Gates gates : {Gates::none, Gates::mild})
    for (const bool packed : {false, true}) {
      Case c{.B = 2, .T = 6, .H = 2, .G = 1, .K = 3, .V = 2, .gates = gates};
      if (packed) c.B = 1, c.T = 11, c.packed = {0, 1, 1, 11};
      Setting s = draw(c);
      Kernel<double> kernel(s);
      const Gradients got = kernel.backward();
      ASSERT_EQ(kernel.status, Status::ok);
      ASSERT_EQ(kernel.h, s.h);
      ASSERT_EQ(kernel.f, s.d.S);
      const auto compare = [&](Doubles& x, const Doubles& gradient, const char* name) {
        ASSERT_EQ(x.size(), gradient.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double keep = x[i];
          x[i] = keep + 1e-6;
          const double up = objective(s);
          x[i] = keep - 1e-6;
          const double down = objective(s);
          x[i] = keep;
          ASSERT_NEAR(gradient[i], (up - down) / 2e-6, 1e-6) << c.name() << " " << name << " " << i;
        }
      };
      compare(s.d.q, got.q, "q");
      compare(s.d.k, got.k, "k");
      compare(s.d.v, got.v, "v");
      if (gates != Gates::none) compare(s.d.g, got.g, "g");
      compare(s.d.beta, got.beta, "beta");
      compare(s.ridge, got.ridge, "ridge");
      compare(s.h, got.h, "h");  // the raw gradient: each of the K*K numbers by itself
      compare(s.d.S, got.f, "f");
      const Gradients narrow = Kernel<float>(s).backward();
      EXPECT_LT(distance(narrow.k, got.k), 1e-6);
      EXPECT_LT(distance(narrow.g, got.g), 1e-6);
      EXPECT_LT(distance(narrow.ridge, got.ridge), 1e-6);
    }
}

TEST(LeastSquares, SplitEqualsWholeAndScratchDoesNotMatter) {
  const Case c{.B = 1, .T = 30, .H = 1, .G = 1, .K = 6, .V = 4};
  const Setting s = draw(c);
  const Answer whole = Kernel<double>(s).forward();
  Kernel<double> clean(s);
  clean.poison = 0;
  EXPECT_EQ(clean.forward().o, whole.o);
  Kernel<double> dirty(s), tidy(s);
  tidy.poison = 0;
  EXPECT_EQ(dirty.backward().k, tidy.backward().k);

  Kernel<double> parts(s);
  for (const auto& [begin, end] : {std::pair<Size, Size>{0, 1}, {1, 13}, {13, 30}}) {
    parts.list = {{0, begin, end}};
    parts.forward();
  }
  EXPECT_EQ(parts.o.doubles(), whole.o);
  EXPECT_EQ(parts.h, whole.h);
  EXPECT_EQ(parts.f, whole.f);
}

// Without forgetting and with a small ridge the map is learned: v = W'k is answered exactly.
TEST(LeastSquares, LearnsALinearMapExactly) {
  Case c{.B = 1, .T = 200, .H = 1, .G = 1, .K = 6, .V = 3, .gates = Gates::none, .beta = false};
  Setting s = draw(c);
  s.d.scale = 1;
  std::fill(s.h.begin(), s.h.end(), 0.0), std::fill(s.d.S.begin(), s.d.S.end(), 0.0),
      std::fill(s.ridge.begin(), s.ridge.end(), 1e-9);
  const auto map = [&](const double* x, int j) {
    double sum = 0;
    for (int i = 0; i < c.K; ++i) sum += x[i] * std::sin(i * 3 + j);
    return sum;
  };
  for (int t = 0; t < c.T; ++t)
    for (int j = 0; j < c.V; ++j) s.d.v[t * c.V + j] = map(&s.d.k[t * c.K], j);
  const Answer got = Kernel<double>(s).forward();
  for (int t = 50; t < c.T; ++t)
    for (int j = 0; j < c.V; ++j) ASSERT_NEAR(got.o[t * c.V + j], map(&s.d.q[t * c.K], j), 1e-8);
}

// Wind-up: under forgetting, keys that stay in a plane for 2000 tokens leave H with eigenvalues of e^-60. The
// constant ridge keeps the solve well posed throughout, and the answers are those of sums taken afresh.
TEST(LeastSquares, SurvivesWindUp) {
  Case c{.B = 1, .T = 3000, .H = 1, .G = 1, .K = 6, .V = 2, .gates = Gates::constant, .beta = false};
  Setting s = draw(c, 1e-3);
  std::fill(s.h.begin(), s.h.end(), 0.0), std::fill(s.d.S.begin(), s.d.S.end(), 0.0);
  std::fill(s.ridge.begin(), s.ridge.end(), static_cast<double>(1e-3f)),
      std::fill(s.d.g.begin(), s.d.g.end(), static_cast<double>(-0.03f));
  for (Size t = 500; t < 2500; ++t)
    for (Size i = 2; i < c.K; ++i) s.d.k[t * c.K + i] = 0;
  Kernel<float> kernel(s);
  const Doubles got = kernel.forward().o;
  ASSERT_EQ(kernel.status, Status::ok);
  for (const Size t : {Size{400}, Size{2400}, Size{2499}, Size{2505}, Size{2999}}) {
    Doubles A(c.K * c.K, 0), F(c.K * c.V, 0), b(c.K);
    for (Size m = 0; m <= t; ++m)
      for (Size i = 0; i < c.K; ++i) {
        const double w = std::exp(double(t - m) * s.d.g[0]) * s.d.k[m * c.K + i];
        for (Size j = 0; j < c.K; ++j) A[i * c.K + j] += w * s.d.k[m * c.K + j];
        for (Size j = 0; j < c.V; ++j) F[i * c.V + j] += w * s.d.v[m * c.V + j];
      }
    for (Size i = 0; i < c.K; ++i) A[i * c.K + i] += s.ridge[i], b[i] = s.d.scale * s.d.q[t * c.K + i];
    const Doubles x = solved(A, b);
    for (Size j = 0; j < c.V; ++j) {
      double want = 0;
      for (Size i = 0; i < c.K; ++i) want += F[i * c.V + j] * x[i];
      ASSERT_NEAR(got[t * c.V + j], want, 2e-7 * (1 + std::abs(want))) << t;
    }
  }
}

TEST(LeastSquares, NotPositiveDefinite) {
  const Case c{.B = 2, .T = 5, .H = 1, .G = 1, .K = 3, .V = 2};
  Setting s = draw(c);
  Kernel<float> zero_ridge(s);
  zero_ridge.ridge[1] = 0;
  zero_ridge.forward();
  EXPECT_EQ(zero_ridge.status, Status::out_of_domain);
  EXPECT_EQ(zero_ridge.h, s.h);
  zero_ridge.backward();
  EXPECT_EQ(zero_ridge.status, Status::out_of_domain);

  // A negative importance in row 0 spoils its later outputs; row 1 is untouched.
  const Answer want = Kernel<double>(s).forward();
  s.d.beta[2] = -1e6;
  Kernel<double> spoiled(s);
  const Answer got = spoiled.forward();
  EXPECT_EQ(spoiled.status, Status::out_of_domain);
  for (int i = 0; i < c.T * c.V; ++i) {
    EXPECT_EQ(got.o[c.T * c.V + i], want.o[c.T * c.V + i]);
    if (i < 2 * c.V) EXPECT_EQ(got.o[i], want.o[i]);
    else EXPECT_TRUE(std::isnan(got.o[i]));
  }
  Kernel<double> other(s);
  other.forward(Form::chunk);
  EXPECT_EQ(other.status, Status::not_supported);
}

}  // namespace
