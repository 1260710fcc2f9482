// Optimisers against their formulas, written out a second time in double with plain loops, over a trajectory; schedules,
// clipping, running mean, threads.
#include "ttr/optimiser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "ttr/random.h"

namespace {

using namespace ttr::model;
using Matrix = std::vector<std::vector<double>>;

// A matrix of two side by side, an embedding, a vector, a fixed matrix and a wide matrix, as a model has them.
std::vector<Parameter> parameters() {
  std::vector<Parameter> all(5);
  all[0] = {"pair", {3, 5}, 0, 15, true, false, true, {3, 2}};
  all[1] = {"table", {3, 2}, 16, 6, true, true, true, {}};
  all[2] = {"vector", {6}, 32, 6, false, false, true, {}};
  all[3] = {"random", {2, 2}, 48, 4, false, false, false, {}};
  all[4] = {"wide", {3, 4}, 64, 12, true, false, true, {}};
  return all;
}
constexpr std::size_t total = 80;

std::vector<double> start() {
  std::vector<double> w(total);
  ttr::model::Random random(3);
  for (const Parameter& p : parameters())
    for (std::size_t i = 0; i < p.size; ++i) w[p.offset + i] = random.normal();
  return w;
}
// The gradient of a function that is not quadratic, different at every step.
std::vector<double> gradient(const std::vector<double>& w, int step) {
  std::vector<double> g(total);
  for (const Parameter& p : parameters())
    for (std::size_t i = p.offset; i < p.offset + p.size; ++i)
      g[i] = std::sin(1.3 * w[i] + 0.7 * static_cast<double>(i) + 0.31 * step) + 0.2 * w[i];
  return g;
}

// A step of one scalar parameter, literally.
struct Literal {
  OptimiserConfig c;
  std::map<std::size_t, double> m, v;
  int t = 0;
  double adam(std::size_t i, double w, double g, double rate, double decay) {
    m[i] = c.beta1 * m[i] + (1 - c.beta1) * g;
    v[i] = c.beta2 * v[i] + (1 - c.beta2) * g * g;
    const double mh = m[i] / (1 - std::pow(c.beta1, t)), vh = v[i] / (1 - std::pow(c.beta2, t));
    return w - rate * mh / (std::sqrt(vh) + c.eps) - rate * decay * w;
  }
  double sgd(std::size_t i, double w, double g, double rate, double decay) {
    const double x = g + decay * w;
    m[i] = c.momentum * m[i] + x;
    return w - rate * (c.nesterov ? x + c.momentum * m[i] : m[i]);
  }
};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < b[0].size(); ++j)
      for (std::size_t k = 0; k < b.size(); ++k) c[i][j] += a[i][k] * b[k][j];
  return c;
}
Matrix transposed(const Matrix& a) {
  Matrix t(a[0].size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  return t;
}
Matrix combined(double x, const Matrix& a, double y, const Matrix& b) {
  Matrix c = a;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[0].size(); ++j) c[i][j] = x * a[i][j] + y * b[i][j];
  return c;
}
Matrix orthogonal_factor(Matrix a) {  // Gram-Schmidt on the columns
  const std::size_t n = a.size();
  for (std::size_t j = 0; j < n; ++j) {
    for (int again = 0; again < 2; ++again)
      for (std::size_t i = 0; i < j; ++i) {
        double dot = 0;
        for (std::size_t k = 0; k < n; ++k) dot += a[k][i] * a[k][j];
        for (std::size_t k = 0; k < n; ++k) a[k][j] -= dot * a[k][i];
      }
    double length = 0;
    for (std::size_t k = 0; k < n; ++k) length += a[k][j] * a[k][j];
    for (std::size_t k = 0; k < n; ++k) a[k][j] /= std::sqrt(length);
  }
  return a;
}
// Eigenvectors by orthogonal iteration of A + a little: signs and order do not matter to the method.
Matrix eigenvectors_of(Matrix a) {
  const std::size_t n = a.size();
  double trace = 0;
  for (std::size_t i = 0; i < n; ++i) trace += a[i][i];
  Matrix shifted = a, q(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i) shifted[i][i] += 0.01 * trace, q[i][i] = 1, q[i][(i + 1) % n] += 0.3;
  q = orthogonal_factor(q);
  for (int i = 0; i < 20000; ++i) q = orthogonal_factor(product(shifted, q));
  return q;
}

Matrix take(const std::vector<double>& x, const Parameter& p, std::size_t column, std::size_t columns) {
  const auto stride = static_cast<std::size_t>(p.extent[1]);
  Matrix a(static_cast<std::size_t>(p.extent[0]), std::vector<double>(columns));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < columns; ++j) a[i][j] = x[p.offset + i * stride + column + j];
  return a;
}
void put(std::vector<double>& x, const Parameter& p, std::size_t column, const Matrix& a) {
  const auto stride = static_cast<std::size_t>(p.extent[1]);
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[0].size(); ++j) x[p.offset + i * stride + column + j] = a[i][j];
}

Matrix inverse(Matrix a) {  // Gauss and Jordan; of positive definite matrices, so without a search for pivots
  const std::size_t n = a.size();
  Matrix x(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i) x[i][i] = 1;
  for (std::size_t i = 0; i < n; ++i) {
    const double pivot = a[i][i];
    for (std::size_t j = 0; j < n; ++j) a[i][j] /= pivot, x[i][j] /= pivot;
    for (std::size_t k = 0; k < n; ++k) {
      if (k == i) continue;
      const double factor = a[k][i];
      for (std::size_t j = 0; j < n; ++j) a[k][j] -= factor * a[i][j], x[k][j] -= factor * x[i][j];
    }
  }
  return x;
}
// a^(1/2) and a^(-1/2) (Denman and Beavers).
std::pair<Matrix, Matrix> square_roots(const Matrix& a) {
  Matrix y = a, z = combined(0, a, 0, a);
  for (std::size_t i = 0; i < a.size(); ++i) z[i][i] = 1;
  for (int step = 0; step < 40; ++step) {
    const Matrix next = combined(0.5, y, 0.5, inverse(z));
    z = combined(0.5, z, 0.5, inverse(y)), y = next;
  }
  return {y, z};
}
Matrix inverse_root_of(Matrix a, double mass, double damping, int order) {
  double trace = 0;
  const auto n = static_cast<double>(a.size());
  a = combined(1 / mass, a, 0, a);
  for (std::size_t i = 0; i < a.size(); ++i) trace += a[i][i];
  for (std::size_t i = 0; i < a.size(); ++i) a[i][i] += damping * trace / n;
  const Matrix half = square_roots(a).second;
  return order == 2 ? half : square_roots(half).first;
}

struct SoapState {
  Matrix L, R, QL, QR, M, V;
};

// The rate's factor and the decay of a parameter.
struct Pace {
  double rate, decay;
};
using Paces = std::map<std::string, Pace>;

// The whole method, literally; `steps` parameters after each step.
std::vector<std::vector<double>> trajectory(const OptimiserConfig& c, int steps, const Paces& paces) {
  std::vector<double> w = start();
  std::vector<std::vector<double>> all;
  Literal literal{c, {}, {}, 0};
  std::map<std::pair<std::size_t, std::size_t>, Matrix> momentum;
  std::map<std::pair<std::size_t, std::size_t>, SoapState> soap;
  for (int s = 0; s < steps; ++s) {
    std::vector<double> g = gradient(w, s);
    if (c.clip > 0) {
      double length = 0;
      for (const Parameter& p : parameters())
        for (std::size_t i = p.offset; i < p.offset + p.size; ++i) length += p.trained ? g[i] * g[i] : 0;
      length = std::sqrt(length);
      if (length > c.clip)
        for (double& x : g) x *= c.clip / length;
    }
    literal.t = s + 1;
    for (const Parameter& p : parameters()) {
      if (!p.trained) continue;
      const auto found = paces.find(p.name);
      const Pace pace = found != paces.end() ? found->second : Pace{1, p.matrix ? c.decay : 0};
      const double rate = rate_at(c, s) * pace.rate;
      const bool by_matrix =
          p.matrix && (c.method == "soap" || c.method == "shampoo" || (c.method == "muon" && !p.embedding));
      if (!by_matrix) {
        for (std::size_t i = p.offset; i < p.offset + p.size; ++i)
          w[i] = c.method == "sgd" ? literal.sgd(i, w[i], g[i], rate, pace.decay)
                                   : literal.adam(i, w[i], g[i], rate, pace.decay);
        continue;
      }
      std::vector<int> columns = p.columns;
      if (columns.empty()) columns = {static_cast<int>(p.extent[1])};
      std::size_t column = 0;
      for (const int width : columns) {
        const auto n = static_cast<std::size_t>(width);
        const Matrix G = take(g, p, column, n);
        Matrix W = take(w, p, column, n);
        const std::pair<std::size_t, std::size_t> key{p.offset, column};
        if (c.method == "muon") {
          Matrix& u = momentum[key];
          u = u.empty() ? G : combined(c.momentum, u, 1, G);
          Matrix X = combined(1, G, c.momentum, u);
          double norm = 0;
          for (const auto& row : X)
            for (const double x : row) norm += x * x;
          X = combined(1 / (std::sqrt(norm) + 1e-7), X, 0, X);
          for (int step = 0; step < 5; ++step) {
            const Matrix A = product(X, transposed(X)), AX = product(A, X);
            X = combined(3.4445, X, 1, combined(-4.7750, AX, 2.0315, product(A, AX)));
          }
          const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(X.size(), n)));
          W = combined(1 - rate * pace.decay, W, -rate * scale, X);
        } else if (c.method == "shampoo") {
          SoapState& z = soap[key];
          const bool lefts = G.size() <= static_cast<std::size_t>(c.longest), rights = width <= c.longest;
          const Matrix GG = product(G, transposed(G)), GtG = product(transposed(G), G);
          const double b = c.statistics, fresh = b < 1 ? 1 - b : 1, mass = b < 1 ? 1 - std::pow(b, s + 1) : 1;
          if (s == 0) z.L = combined(0, GG, 0, GG), z.R = combined(0, GtG, 0, GtG), z.M = z.V = combined(0, G, 0, G);
          z.L = combined(b, z.L, fresh, GG), z.R = combined(b, z.R, fresh, GtG);
          const int order = lefts && rights ? 4 : 2;
          if (s % c.every == 0) {
            if (lefts) z.QL = inverse_root_of(z.L, mass, c.damping, order);
            if (rights) z.QR = inverse_root_of(z.R, mass, c.damping, order);
          }
          z.M = combined(c.beta1, z.M, 1 - c.beta1, G);
          Matrix P = combined(1 / (1 - std::pow(c.beta1, s + 1)), z.M, 0, z.M);
          double wanted = 0, own = 0;
          for (std::size_t i = 0; i < G.size(); ++i)
            for (std::size_t j = 0; j < n; ++j) {
              z.V[i][j] = c.beta2 * z.V[i][j] + (1 - c.beta2) * G[i][j] * G[i][j];
              const double adam = P[i][j] / (std::sqrt(z.V[i][j] / (1 - std::pow(c.beta2, s + 1))) + c.eps);
              wanted += c.graft == "adam" ? adam * adam : P[i][j] * P[i][j];
            }
          if (lefts) P = product(z.QL, P);
          if (rights) P = product(P, z.QR);
          for (const auto& row : P)
            for (const double x : row) own += x * x;
          W = combined(1 - rate * pace.decay, W, -rate * (c.graft == "none" ? 1 : std::sqrt(wanted / own)), P);
        } else {
          SoapState& z = soap[key];
          const Matrix GG = product(G, transposed(G)), GtG = product(transposed(G), G);
          if (s == 0) {
            z.L = combined(1 - c.statistics, GG, 0, GG), z.R = combined(1 - c.statistics, GtG, 0, GtG);
            z.QL = eigenvectors_of(z.L), z.QR = eigenvectors_of(z.R);
            z.M = z.V = combined(0, G, 0, G);
          } else {
            const Matrix turned = product(product(transposed(z.QL), G), z.QR);
            z.M = combined(c.beta1, z.M, 1 - c.beta1, G);
            for (std::size_t i = 0; i < G.size(); ++i)
              for (std::size_t j = 0; j < n; ++j)
                z.V[i][j] = c.beta2 * z.V[i][j] + (1 - c.beta2) * turned[i][j] * turned[i][j];
            Matrix N = product(product(transposed(z.QL), z.M), z.QR);
            for (std::size_t i = 0; i < G.size(); ++i)
              for (std::size_t j = 0; j < n; ++j)
                N[i][j] = N[i][j] / (1 - std::pow(c.beta1, s)) /
                          (std::sqrt(z.V[i][j] / (1 - std::pow(c.beta2, s))) + c.eps);
            N = product(product(z.QL, N), transposed(z.QR));
            W = combined(1 - rate * pace.decay, W, -rate, N);
            z.L = combined(c.statistics, z.L, 1 - c.statistics, GG),
            z.R = combined(c.statistics, z.R, 1 - c.statistics, GtG);
            if (s % c.every == 0)
              z.QL = orthogonal_factor(product(z.L, z.QL)), z.QR = orthogonal_factor(product(z.R, z.QR));
          }
        }
        put(w, p, column, W);
        column += n;
      }
    }
    all.push_back(w);
  }
  return all;
}

void expect_trajectory(OptimiserConfig c, double tolerance = 1e-11, const Paces& paces = {}) {
  c.steps = 30;
  const auto expected = trajectory(c, 30, paces);
  const std::vector<Parameter> list = parameters();
  std::vector<double> w = start();
  Optimiser<double> optimiser(list, c, 2);
  Optimiser<float> single(list, c);
  std::vector<float> f(w.begin(), w.end());
  for (int s = 0; s < 30; ++s) {
    optimiser.step(w, gradient(w, s));
    const std::vector<double> as_double(f.begin(), f.end()), g = gradient(as_double, s);
    single.step(f, std::vector<float>(g.begin(), g.end()));
    for (const Parameter& p : list)
      for (std::size_t i = p.offset; i < p.offset + p.size; ++i) {
        ASSERT_NEAR(w[i], expected[static_cast<std::size_t>(s)][i], tolerance)
            << c.method << ", step " << s << ", " << p.name;
        if (!p.trained) {
          ASSERT_EQ(w[i], start()[i]);
        } else if (s < 10) {
          ASSERT_NEAR(static_cast<double>(f[i]), w[i], 2e-3) << c.method << ", step " << s << ", " << p.name;
        }
      }
  }
  EXPECT_EQ(optimiser.steps_taken(), 30);
}

TEST(Optimiser, FollowsItsFormula) {
  OptimiserConfig c;
  c.rate = 0.03, c.warmup = 4;
  expect_trajectory(c);
  c.clip = 1.5;
  expect_trajectory(c);
  c.method = "sgd", c.momentum = 0.8;
  expect_trajectory(c);
  c.nesterov = true, c.schedule = "linear", c.last = 0.1;
  expect_trajectory(c);
  c.method = "muon", c.schedule = "constant";
  expect_trajectory(c, 1e-9);
  c.method = "soap", c.every = 3, c.schedule = "cosine";
  expect_trajectory(c, 1e-7);
}

TEST(Optimiser, ShampooFollowsItsFormula) {
  OptimiserConfig c;
  c.method = "shampoo", c.rate = 0.03, c.warmup = 4, c.every = 3, c.damping = 1e-3;
  expect_trajectory(c, 1e-9);
  c.graft = "sgd", c.statistics = 0.7;
  expect_trajectory(c, 1e-9);
  c.longest = 3;  // one side of the wide matrix has no factor
  expect_trajectory(c, 1e-9);
  // As published: sums, no momentum, no graft.
  c.graft = "none", c.statistics = 1, c.beta1 = 0, c.every = 1, c.longest = 1024;
  expect_trajectory(c, 1e-9);
}

// A gradient of rank one: L and R have one eigenvalue and zeros, some of which float rounds to less than the damping mends.
TEST(Optimiser, ShampooOfRankOneInFloat) {
  constexpr std::size_t n = 96;
  Parameter p;
  p.name = "square", p.extent = {n, n}, p.size = n * n, p.matrix = true;
  const std::vector<Parameter> list = {p};
  OptimiserConfig c;
  c.method = "shampoo", c.rate = 0.01, c.every = 1, c.decay = 0;
  Optimiser<float> optimiser(list, c);
  std::vector<float> w(n * n), g(n * n);
  for (std::size_t s = 0; s < 8; ++s) {
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        g[i * n + j] = static_cast<float>(std::sin(1.0 + 3.7 * static_cast<double>(i + s)) *
                                          std::cos(2.0 + 1.3 * static_cast<double>(j * (s + 1))));
    optimiser.step(w, g);
    for (const float x : w) ASSERT_LT(std::abs(x), 1.0f) << "step " << s;
  }
}

TEST(Optimiser, Groups) {
  const Paces paces = {{"table", {0.5, 0.3}}, {"vector", {1, 0.05}}, {"pair", {0, 0.1}}, {"wide", {2, 0}}};
  for (const char* method : {"adamw", "sgd", "muon", "soap", "shampoo"}) {
    OptimiserConfig c;
    c.method = method, c.rate = 0.03, c.every = 3, c.momentum = 0.8, c.damping = 1e-3;
    c.groups = "*: rate=7; table: rate=0.5, decay=0.3; vec*r: decay=0.05; pair: rate=0; *i*e : rate=2, decay=0";
    expect_trajectory(c, 1e-7, paces);
    EXPECT_EQ(to_string(parse_optimiser(to_string(c))), to_string(c));
  }
}

TEST(Optimiser, Rates) {
  OptimiserConfig c;
  c.rate = 2, c.warmup = 4, c.steps = 12, c.last = 0.25;
  EXPECT_DOUBLE_EQ(rate_at(c, 0), 0.5);
  EXPECT_DOUBLE_EQ(rate_at(c, 3), 2);
  EXPECT_DOUBLE_EQ(rate_at(c, 4), 2);
  EXPECT_DOUBLE_EQ(rate_at(c, 8), 2 * (0.25 + 0.75 * 0.5));
  EXPECT_NEAR(rate_at(c, 12), 0.5, 1e-12);
  EXPECT_NEAR(rate_at(c, 1000), 0.5, 1e-12);
  c.schedule = "linear";
  EXPECT_DOUBLE_EQ(rate_at(c, 6), 2 * (0.25 + 0.75 * 0.75));
  c.schedule = "constant";
  EXPECT_DOUBLE_EQ(rate_at(c, 1000), 2);
}

TEST(Optimiser, MeanStateAndBadGradients) {
  const std::vector<Parameter> list = parameters();
  for (const char* method : {"adamw", "sgd", "muon", "soap", "shampoo"}) {
    OptimiserConfig c;
    c.method = method, c.rate = 0.05, c.ema = 0.9, c.every = 2, c.schedule = "constant";
    Optimiser<double> one(list, c);
    std::vector<double> w = start(), mean = w;
    for (int s = 0; s < 7; ++s) {
      one.step(w, gradient(w, s));
      for (const Parameter& p : list)
        for (std::size_t i = p.offset; p.trained && i < p.offset + p.size; ++i) mean[i] = 0.9 * mean[i] + 0.1 * w[i];
    }
    for (std::size_t i = 0; i < total; ++i) EXPECT_NEAR(one.mean()[i], mean[i], 1e-14);
    // A gradient that is not finite changes nothing.
    std::vector<double> before = w, bad = gradient(w, 7);
    bad[3] = std::nan("");
    EXPECT_TRUE(std::isnan(one.step(w, bad)));
    EXPECT_EQ(w, before);
    EXPECT_EQ(one.steps_taken(), 7);
    // Another one with the same state goes on in the same way.
    Optimiser<double> two(list, c);
    auto from = one.state(), to = two.state();
    ASSERT_EQ(from.size(), to.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      ASSERT_EQ(from[i].name, to[i].name);
      std::copy(from[i].numbers.begin(), from[i].numbers.end(), to[i].numbers.begin());
    }
    two.set_steps_taken(one.steps_taken());
    std::vector<double> v = w;
    for (int s = 7; s < 12; ++s) one.step(w, gradient(w, s)), two.step(v, gradient(v, s));
    EXPECT_EQ(v, w) << method;
  }
}

TEST(Optimiser, TextAndErrors) {
  OptimiserConfig c;
  c.method = "muon", c.rate = 0.02, c.nesterov = true, c.clip = 1, c.ema = 0.99;
  EXPECT_EQ(to_string(parse_optimiser(to_string(c))), to_string(c));
  const auto refused = [](const std::function<void(OptimiserConfig&)>& change) -> std::string {
    OptimiserConfig wrong;
    change(wrong);
    try {
      Optimiser<float> optimiser(parameters(), wrong);
    } catch (const ttr::Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused([](OptimiserConfig&) {}), "");
  EXPECT_NE(refused([](OptimiserConfig& x) { x.method = "lion"; }).find("adamw, sgd, muon, soap or shampoo"),
            std::string::npos);
  EXPECT_NE(refused([](OptimiserConfig& x) { x.rate = 0; }).find("above 0"), std::string::npos);
  EXPECT_NE(refused([](OptimiserConfig& x) { x.beta2 = 1; }).find("beta2"), std::string::npos);
  EXPECT_NE(refused([](OptimiserConfig& x) { x.schedule = "step"; }).find("'step'"), std::string::npos);
  EXPECT_NE(refused([](OptimiserConfig& x) { x.ema = 1; }).find("ema"), std::string::npos);
  EXPECT_NE(refused([](OptimiserConfig& x) { x.graft = "lamb"; }).find("adam, sgd or none"), std::string::npos);
  EXPECT_NE(refused([](OptimiserConfig& x) { x.statistics = 1; }).find("below 1"), std::string::npos);
  EXPECT_NE(refused([](OptimiserConfig& x) { x.groups = "head: rate=2"; }).find("there are pair, table"),
            std::string::npos);
  EXPECT_NE(refused([](OptimiserConfig& x) { x.groups = "pair: speed=2"; }).find("it has rate and decay"),
            std::string::npos);
  EXPECT_NE(refused([](OptimiserConfig& x) { x.groups = "pair rate=2"; }).find("no pattern"), std::string::npos);
  EXPECT_NE(refused([](OptimiserConfig& x) { x.groups = "pair: rate=-2"; }).find("at least 0"), std::string::npos);
}

}  // namespace
