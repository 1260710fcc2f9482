// Memories fitted to all pairs at once, against literal loops, and their gradients against differences.
#include "families/pairs/whole/whole.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "families/pairs/whole/reference.h"
#include "families/solve/least_squares/least_squares.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// The derivative along a random direction of each input.
void check_directions(const Whole& f, const Values& in, const Values& d, const Values& grad) {
  const Values directions = draw(f.specs(), 6);
  for (const auto& [name, gradient] : grad) {
    const Doubles& along = directions.at(name);
    double want = 0, got = 0, size = 0;
    for (const double h : {1e-5, -1e-5}) {
      Values x = in;
      for (std::size_t i = 0; i < along.size(); ++i) x[name][i] += h * along[i];
      const Doubles o = f.reference(x).at("o");
      for (std::size_t i = 0; i < o.size(); ++i) want += d.at("o")[i] * o[i] / (2 * h);
    }
    for (std::size_t i = 0; i < along.size(); ++i)
      got += gradient[i] * along[i], size += std::abs(gradient[i] * along[i]);
    EXPECT_NEAR(got, want, 1e-7 * (1 + size)) << f.name() << ": " << name;
  }
}

void check_whole(const Whole& f, bool by_difference = true) {
  const Values in = f.draw_values(), d = draw_gradients(f, 5), want = f.reference(in);
  const Values grad = run_backward<double>(f, in, d, {});
  if (by_difference) expect_near(grad, differences(f, in, d), 1e-6, f.name());
  else check_directions(f, in, d, grad);
  const double rounding = f.solve == WholeSolve::exact ? 1e-6 : 2e-6;
  const Values bits = run_forward<double>(f, in, {});
  for (const std::string& target : ttr::simd_targets())
    for (const bool strided : {false, true}) {
      const Call call{Form::best, 0, strided, {}, target};
      const Values out = run_forward<double>(f, in, call);
      expect_near(out, want, 1e-12, f.name() + " " + target);
      if (target == ttr::simd_targets()[0]) {
        EXPECT_TRUE(out == bits) << f.name() << " strided";
      }
      expect_near(run_backward<double>(f, in, d, call), grad, 1e-12, f.name() + " " + target);
      expect_near(run_forward<float>(f, in, call), want, rounding, f.name() + " float " + target);
      expect_near(run_backward<float>(f, in, d, call), grad, rounding, f.name() + " float " + target);
    }
  check_alone(f, {{Form::best, 0}});
}

/// The three kinds of read.
std::vector<Whole> kinds() {
  Whole none, exact, bare;
  none.solve = WholeSolve::none;
  bare.V = 0;
  return {none, exact, bare};
}

TEST(Whole, AgainstLoopsAndDifferences) {
  for (Whole f : kinds())
    for (const Beta beta : {Beta::one, Beta::head, Beta::shared})
      for (const Size T : {0, 1, 6}) {
        f.T = T, f.B = 2, f.beta = beta, f.one_ridge = beta == Beta::shared;
        check_whole(f);
        Whole g = f;
        g.K = 1, g.V = std::min(f.V, 1), g.H = g.query_heads = 1;
        check_whole(g);
      }
}

TEST(Whole, GroupsOfHeads) {
  struct Heads {
    int all, query, key, value;
  };
  for (Whole f : kinds())
    for (const Beta beta : {Beta::one, Beta::head})
      for (const Heads& h : std::vector<Heads>{
               {4, 4, 2, 2}, {4, 2, 2, 4}, {6, 3, 2, 1}, {6, 1, 6, 3}, {6, 2, 3, 6}, {4, 4, 1, 4}, {3, 3, 3, 3}}) {
        f.H = h.all, f.query_heads = h.query, f.key_heads = h.key, f.value_heads = h.value;
        f.beta = beta, f.T = 3, f.S = 5, f.K = 2, f.one_ridge = h.value == 4;
        check_whole(f);
      }
}

TEST(Whole, Lengths) {
  for (Whole f : kinds())
    for (const Size S : {0, 1, 2, 11})
      for (const Size T : {1, 4}) {
        f.S = S, f.T = T;
        check_whole(f);
      }
}

// Tiles of 64 tokens, rows of the Gram matrix by 32, blocks of the factor of 64: sizes that divide them and that do
// not, and fewer right-hand sides than are worth a block.
TEST(Whole, ManyTiles) {
  struct Sizes {
    Size T, S;
    int K, V;
  };
  for (Whole f : kinds()) {
    const bool bare = f.V == 0;
    for (const Sizes& z : std::vector<Sizes>{{64, 128, 5, 3},
                                             {66, 130, 32, 5},
                                             {3, 190, 64, 64},
                                             {65, 70, 67, 2},
                                             {3, 66, 70, 71},
                                             {2, 30, 131, 9}}) {
      f.T = z.T, f.S = z.S, f.K = z.K, f.V = bare ? 0 : z.V, f.H = f.query_heads = z.K > 60 ? 1 : 2;
      check_whole(f, false);
    }
  }
}

TEST(Whole, Packed) {
  for (Whole f : kinds())
    for (const Beta beta : {Beta::one, Beta::head}) {
      f.beta = beta;
      f.T = 12, f.S = 15, f.packed = {0, 3, 3, 4, 12}, f.packed_keys = {1, 2, 9, 9, 15};
      check_whole(f);
      f.T = 150, f.S = 210, f.packed = {0, 1, 70, 150}, f.packed_keys = {0, 80, 80, 209};
      check_whole(f, false);
    }
}

// Without key sequences of its own a sequence sees its own tokens.
TEST(Whole, OwnTokens) {
  for (Whole f : kinds()) {
    f.T = f.S = 9, f.packed = f.packed_keys = {0, 4, 9};
    const Values in = f.draw_values();
    Bound<double> x(f.specs(), &in, false);
    const auto list = f.sequences();
    Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
    const auto& s = ttr::simd<double>("");
    ASSERT_EQ(whole::forward(f.problem(x, list, {}), s, s, scratch.workspace()), Status::ok);
    EXPECT_TRUE(x.held["o"].get() == run_forward<double>(f, in, {}).at("o")) << f.name();
  }
}

// Gradients are added; one that is asked for alone has the bits it has beside the others.
TEST(Whole, GradientsAreAddedAndIndependent) {
  for (Whole f : kinds()) {
    const Values in = f.draw_values(), d = draw_gradients(f, 5), all = run_backward<double>(f, in, d, {});
    for (const auto& [name, want] : all) {
      Bound<double> x(f.specs(), &in, false), given(f.specs(), &d, false), to(f.specs(), nullptr, false);
      for (auto& [unused, held] : to.held) std::fill(held.memory.begin(), held.memory.end(), 3.0);
      const auto whole = WholeGradient<double>(f.gradient(given, to));
      WholeGradient<double> one;
      one.d_o = whole.d_o;
      if (name == "q") one.d_q = whole.d_q;
      if (name == "k") one.d_k = whole.d_k;
      if (name == "v") one.d_v = whole.d_v;
      if (name == "beta") one.d_beta = whole.d_beta;
      if (name == "ridge") one.d_ridge = whole.d_ridge;
      const auto list = f.sequences(), pairs = f.keys();
      Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, true));
      const auto& s = ttr::simd<double>("");
      ASSERT_EQ(whole::backward(f.problem(x, list, pairs), one, s, s, scratch.workspace()), Status::ok);
      for (auto& [other, held] : to.held)
        for (Size i = 0; i < count_of(held.extent); ++i)
          if (other != name) EXPECT_EQ(held.at(i), 3) << f.name() << " " << other;
          else EXPECT_NEAR(held.at(i) - 3, want[static_cast<std::size_t>(i)], 1e-14) << f.name() << " " << name;
    }
  }
}

// A self-attention whose keys are its queries: one view takes both gradients.
TEST(Whole, KeysThatAreQueries) {
  for (Whole f : kinds()) {
    f.T = f.S = 70, f.key_heads = 2;
    Values in = f.draw_values(), d = draw_gradients(f, 5);
    in["k"] = in["q"];
    const Values want = run_backward<double>(f, in, d, {});
    Bound<double> x(f.specs(), &in, false), given(f.specs(), &d, false), to(f.specs(), nullptr, false);
    const auto list = f.sequences(), pairs = f.keys();
    auto p = f.problem(x, list, pairs);
    p.k = p.q;
    auto g = f.gradient(given, to);
    g.d_k = g.d_q;
    Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, true));
    const auto& s = ttr::simd<double>("");
    ASSERT_EQ(whole::backward(p, g, s, s, scratch.workspace()), Status::ok);
    Doubles sum = want.at("q");
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += want.at("k")[i];
    EXPECT_LE(distance(to.held["q"].get(), sum), 1e-13) << f.name();
  }
}

// V'(K K' + ridge / beta)^-1 K q : the weights of the pairs themselves, an S x S system.
TEST(Whole, DualSystem) {
  for (const Size S : {2, 9}) {
    Whole f;
    f.S = S, f.T = 4, f.K = 5, f.H = f.query_heads = 1;
    const Values in = f.draw_values();
    const Doubles o = run_forward<double>(f, in, {}).at("o");
    for (Size t = 0; t < f.T; ++t) {
      const auto dot = [&](const double* a, const double* b) {
        double sum = 0;
        for (int j = 0; j < f.K; ++j) sum += a[j] * b[j];
        return sum;
      };
      Doubles A(S * S), b(S);
      for (Size i = 0; i < S; ++i) {
        for (Size j = 0; j < S; ++j) A[i * S + j] = dot(f.key(in, 0, i, 0), f.key(in, 0, j, 0));
        A[i * S + i] += in.at("ridge")[0] / in.at("beta")[i];
        b[i] = dot(f.key(in, 0, i, 0), &in.at("q")[t * f.K]);
      }
      const Doubles w = solved(A, b);
      for (int c = 0; c < f.V; ++c) {
        double want = 0;
        for (Size i = 0; i < S; ++i) want += f.scale * w[i] * f.value(in, 0, i, 0)[c];
        EXPECT_NEAR(o[t * f.V + c], want, 1e-13);
      }
    }
  }
}

// The last token of the causal recursion has seen all pairs.
TEST(Whole, LastTokenOfLeastSquares) {
  Whole f;
  f.T = f.S = 90, f.H = f.value_heads = 4, f.query_heads = f.key_heads = 2, f.K = 7, f.V = 3;
  const Values in = f.draw_values();
  const Doubles o = run_forward<double>(f, in, {}).at("o");
  Bound<double> x(f.specs(), &in, false);
  Doubles h(f.H * f.K * f.K), F(f.H * f.K * f.V);
  const auto list = f.sequences();
  LeastSquaresProblem<double> p;
  p.linear = {list, f.H, f.key_heads, f.K, f.V, f.scale, {}, {}, {}, {}, {}, nullptr, {}};
  p.linear.q = x.view<4>("q"), p.linear.k = x.view<4>("k"), p.linear.v = x.view<4>("v");
  p.linear.beta = x.view<3>("beta"), p.linear.o = x.view<4>("o");
  p.ridge = {x.pointer("ridge"), {1, f.T, f.H, f.K}, {0, 0, 1, 0}}, p.h = h.data(), p.f = F.data();
  Scratch<double> scratch(least_squares::workspace_bytes(f.K, f.V, f.T, SolveBy::cholesky, 0, false));
  ASSERT_EQ(least_squares::forward(p, Form::recurrent, ttr::simd<double>(""), scratch.workspace()), Status::ok);
  const Doubles causal = x.held["o"].get();
  for (Size i = (f.T - 1) * f.H * f.V; i < f.T * f.H * f.V; ++i) EXPECT_NEAR(o[i], causal[i], 1e-12);
}

// The answer is the sum of the values, each with the weight that the read without values gives its pair.
TEST(Whole, WeightsFromTheReadWithoutValues) {
  Whole f;
  f.T = 5, f.S = 20, f.scale = 1;
  const Values in = f.draw_values();
  Whole bare = f;
  bare.V = 0;
  Values given = in;
  given.erase("v");
  const Doubles o = run_forward<double>(f, in, {}).at("o"), x = run_forward<double>(bare, given, {}).at("o");
  for (Size t = 0; t < f.T; ++t)
    for (int h = 0; h < f.H; ++h) {
      Doubles want(f.V);
      for (Size i = 0; i < f.S; ++i) {
        double w = 0;
        for (int j = 0; j < f.K; ++j) w += f.key(in, 0, i, h)[j] * x[(t * f.H + h) * f.K + j];
        for (int c = 0; c < f.V; ++c) want[c] += f.weight(in, 0, i, h) * w * f.value(in, 0, i, h)[c];
      }
      for (int c = 0; c < f.V; ++c) EXPECT_NEAR(o[(t * f.H + h) * f.V + c], want[c], 1e-13);
    }
}

/// Forward and backward of dirty inputs; both return `want`.
struct Outcome {
  Doubles o;
  Values gradient;
};
Outcome outcome(const Whole& f, const Values& in, const Values& d, Status want) {
  Bound<double> x(f.specs(), &in, false), given(f.specs(), &d, false), to(f.specs(), nullptr, false);
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, true));
  const auto& s = ttr::simd<double>("");
  EXPECT_EQ(f.forward(x, f.sequences(), Form::best, 0, s, scratch.workspace()), want) << f.name();
  EXPECT_EQ(f.backward(x, given, to, f.sequences(), Form::best, 0, s, scratch.workspace()), want) << f.name();
  Outcome out{x.held["o"].get(), {}};
  for (auto& [name, held] : to.held) out.gradient[name] = held.get();
  return out;
}

// One head without an answer: NaN for its queries, nothing from it in any gradient, the others as before.
TEST(Whole, BadRidgeOfOneHead) {
  for (const int V : {2, 0})
    for (const double bad : {0.0, -1.0, -std::numeric_limits<double>::infinity(), not_a_number}) {
      Whole f;
      f.V = V, f.H = f.query_heads = 4, f.key_heads = f.value_heads = 2, f.B = 2, f.T = 5;
      Values in = f.draw_values(), d = draw_gradients(f, 5), without = d;
      for (std::size_t i = 0; i < d["o"].size(); ++i)
        if (static_cast<int>(i) / f.width() % f.H == 2) without["o"][i] = 0;
      const Outcome want = outcome(f, in, without, Status::ok);
      in["ridge"][2] = bad;
      const Outcome got = outcome(f, in, d, Status::out_of_domain);
      for (std::size_t i = 0; i < got.o.size(); ++i)
        if (static_cast<int>(i) / f.width() % f.H == 2) EXPECT_TRUE(std::isnan(got.o[i]));
        else EXPECT_EQ(got.o[i], want.o[i]);
      for (const auto& [name, x] : want.gradient) EXPECT_LE(distance(got.gradient.at(name), x), 1e-15) << name;
    }
}

// A number outside the domain costs one head of one sequence its answer. Heads 0 and 1 share keys and values.
TEST(Whole, BadPairs) {
  for (const int V : {2, 0})
    for (const std::string name : {"beta", "k"})
      for (const double bad : {-1e-3, -std::numeric_limits<double>::infinity(), not_a_number, 1e200}) {
        if (name == "k" && bad == -1e-3) continue;
        if (name == "beta" && bad == 1e200) continue;
        Whole f;
        f.V = V, f.H = f.query_heads = 4, f.key_heads = f.value_heads = 2, f.B = 2, f.T = 70, f.S = 140;
        Values in = f.draw_values(), d = draw_gradients(f, 5), without = d;
        const auto spoilt = [&](std::size_t i) {
          const int row = static_cast<int>(i) / (70 * f.H * f.width()), h = static_cast<int>(i) / f.width() % f.H;
          return row == 1 && (name == "beta" ? h == 3 : h >= 2);
        };
        for (std::size_t i = 0; i < d["o"].size(); ++i)
          if (spoilt(i)) without["o"][i] = 0;
        const Outcome want = outcome(f, in, without, Status::ok);
        if (name == "beta") in["beta"][(f.S + 100) * f.H + 3] = bad;
        else in["k"][((f.S + 100) * f.key_heads + 1) * f.K + 1] = bad;
        const Outcome got = outcome(f, in, d, Status::out_of_domain);
        for (std::size_t i = 0; i < got.o.size(); ++i)
          if (spoilt(i)) EXPECT_TRUE(std::isnan(got.o[i])) << name << i;
          else EXPECT_EQ(got.o[i], want.o[i]) << name << i;
        for (const auto& [input, x] : want.gradient) EXPECT_LE(distance(got.gradient.at(input), x), 1e-15) << input;
      }
}

TEST(Whole, NotANumberStaysInItsSequence) {
  for (Whole f : kinds())
    for (const std::string name : {"q", "k", "v", "beta"}) {
      f.T = f.S = 140, f.packed = {0, 40, 140}, f.packed_keys = {0, 70, 140}, f.H = f.query_heads = 1;
      f.K = 2, f.V = std::min(f.V, 2);
      Values in = f.draw_values();
      if (!in.count(name)) continue;
      const Values d = draw_gradients(f, 3);
      const Outcome want = outcome(f, in, d, Status::ok);
      in[name][(name == "beta" ? 1 : 2) * 77] = not_a_number;
      const bool unknown = f.solve == WholeSolve::exact && (name == "k" || name == "beta");
      const Outcome got = outcome(f, in, d, unknown ? Status::out_of_domain : Status::ok);
      for (std::size_t i = 0; i < 80; ++i) EXPECT_EQ(got.o[i], want.o[i]) << f.name() << name;
      for (const auto& [input, x] : want.gradient) {
        if (input == "ridge" || input == "o") continue;
        const std::size_t own = (input == "q" ? 40 : 70) * (input == "beta" ? 1 : 2);
        for (std::size_t i = 0; i < own; ++i) EXPECT_EQ(got.gradient.at(input)[i], x[i]) << name << input;
      }
      EXPECT_TRUE(std::isnan(got.o[2 * 77])) << f.name() << name;
      if (name == "q") EXPECT_EQ(got.o[2 * 78], want.o[2 * 78]);
      else EXPECT_TRUE(std::isnan(got.o[2 * 139])) << f.name() << name;
    }
}

/// The read in long double, for one head.
std::vector<long double> precise(const Whole& f, const Values& in) {
  const Size K = f.K, T = f.T;
  std::vector<long double> A(K * K), X(T * K), o;
  for (Size i = 0; i < f.S; ++i)
    for (Size a = 0; a < K; ++a)
      for (Size b = 0; b < K; ++b)
        A[a * K + b] += static_cast<long double>(f.key(in, 0, i, 0)[a]) * f.key(in, 0, i, 0)[b];
  for (Size a = 0; a < K; ++a) A[a * K + a] += in.at("ridge")[0];
  for (Size t = 0; t < T; ++t)
    for (Size a = 0; a < K; ++a) X[t * K + a] = in.at("q")[t * K + a];
  for (Size i = 0; i < K; ++i)
    for (Size r = i + 1; r < K; ++r) {
      const long double m = A[r * K + i] / A[i * K + i];
      for (Size j = i; j < K; ++j) A[r * K + j] -= m * A[i * K + j];
      for (Size t = 0; t < T; ++t) X[t * K + r] -= m * X[t * K + i];
    }
  for (Size t = 0; t < T; ++t)
    for (Size i = K; i-- > 0;) {
      for (Size j = i + 1; j < K; ++j) X[t * K + i] -= A[i * K + j] * X[t * K + j];
      X[t * K + i] /= A[i * K + i];
    }
  if (f.V == 0) return X;
  for (Size t = 0; t < T; ++t)
    for (Size c = 0; c < f.V; ++c) {
      o.push_back(0);
      for (Size i = 0; i < f.S; ++i) {
        long double w = 0;
        for (Size a = 0; a < K; ++a) w += f.key(in, 0, i, 0)[a] * X[t * K + a];
        o.back() += w * f.value(in, 0, i, 0)[c];
      }
    }
  return o;
}

double apart(const Doubles& got, const std::vector<long double>& want) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error = std::max(error, static_cast<double>(std::abs(got[i] - want[i])));
    size = std::max(size, static_cast<double>(std::abs(want[i])));
  }
  return error / size;
}

// Keys and queries whose 80 directions fade by a factor of 1e4: no worse than an elimination for each query, and in
// float no worse than the rounding of its answer.
TEST(Whole, BadlyConditioned) {
  for (const int V : {3, 0}) {
    Whole f;
    f.K = 80, f.S = 200, f.T = 5, f.H = f.query_heads = 1, f.V = V, f.beta = Beta::one, f.scale = 1;
    Values in = f.draw_values();
    const Doubles turn = draw({{"turn", Role::input, {80, 80}}}, 9).at("turn");
    for (const char* name : {"q", "k"}) {
      Doubles& x = in[name];
      for (std::size_t row = 0; row < x.size() / 80; ++row) {
        Doubles z(80);
        for (int a = 0; a < 80; ++a)
          for (int b = 0; b < 80; ++b) z[b] += x[row * 80 + a] * std::pow(1e-4, a / 79.0) * turn[a * 80 + b];
        for (int b = 0; b < 80; ++b) x[row * 80 + b] = static_cast<float>(z[b] / 9);
      }
    }
    in["ridge"] = {0x1p-23};
    const auto want = precise(f, in);
    const double plain = apart(f.reference(in).at("o"), want);
    EXPECT_GT(plain, 1e-10) << V;  // it is badly conditioned
    for (const std::string& target : ttr::simd_targets()) {
      const Call call{Form::best, 0, false, {}, target};
      EXPECT_LE(apart(run_forward<double>(f, in, call).at("o"), want), plain) << V << target;
      EXPECT_LE(apart(run_forward<float>(f, in, call).at("o"), want), plain + 1e-7) << V << target;
    }
  }
}

// With fewer pairs than directions a ridge too small for its effect to be computed still gives the values back at
// the keys, and not what rounding makes of a matrix without an inverse.
TEST(Whole, RidgeBelowRounding) {
  for (const double ridge : {1e-300, 1e-18, 1e-14}) {
    Whole f;
    f.K = 90, f.S = f.T = 30, f.H = f.query_heads = 1, f.beta = Beta::one, f.scale = 1;
    Values in = f.draw_values();
    in["q"] = in["k"], in["ridge"] = {ridge};
    EXPECT_LE(distance(run_forward<double>(f, in, {}).at("o"), in.at("v")), 1e-11) << ridge;
    for (const auto& [name, x] : run_backward<double>(f, in, draw_gradients(f, 5), {}))
      for (const double y : x) EXPECT_TRUE(std::isfinite(y)) << name;
  }
}

TEST(Whole, InfiniteRidgeForgetsEverything) {
  Whole f;
  Values in = f.draw_values();
  for (double& x : in["ridge"]) x = std::numeric_limits<double>::infinity();
  const Values out = run_forward<double>(f, in, {});
  for (const double o : out.at("o")) EXPECT_EQ(o, 0);
}

TEST(Whole, WhatItRefuses) {
  Whole f;
  Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences(), pairs = f.keys();
  const auto good = f.problem(x, list, pairs);
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
  const auto& s = ttr::simd<double>("");
  const auto status = [&](auto&& change) {
    auto p = good;
    change(p);
    return whole::forward(p, s, s, scratch.workspace());
  };
  using P = WholeProblem<double>;
  EXPECT_EQ(status([](P&) {}), Status::ok);
  EXPECT_EQ(status([](P& p) { p.o = {}; }), Status::ok);
  EXPECT_EQ(status([](P& p) { p.query_heads = 3; }), Status::bad_shape);
  EXPECT_EQ(status([](P& p) { p.key_heads = 0; }), Status::bad_shape);
  EXPECT_EQ(status([](P& p) { p.value_heads = 4; }), Status::bad_shape);
  EXPECT_EQ(status([](P& p) { p.value_dim = -1; }), Status::bad_shape);
  EXPECT_EQ(status([](P& p) { p.key_dim = 0; }), Status::bad_shape);
  EXPECT_EQ(status([](P& p) { p.solve = WholeSolve::none, p.value_dim = 0; }), Status::not_supported);
  EXPECT_EQ(status([](P& p) { p.q = {}; }), Status::missing_input);
  EXPECT_EQ(status([](P& p) { p.k = {}; }), Status::missing_input);
  EXPECT_EQ(status([](P& p) { p.v = {}; }), Status::missing_input);
  EXPECT_EQ(status([](P& p) { p.ridge = {}; }), Status::missing_input);
  EXPECT_EQ(status([](P& p) { p.solve = WholeSolve::none, p.ridge = {}; }), Status::ok);
  EXPECT_EQ(status([](P& p) { p.key_dim = 1000; }), Status::small_workspace);
  const std::vector<Sequence> more = {{0, 0, 1}, {0, 1, 2}}, backwards = {{0, 3, 2}};
  EXPECT_EQ(status([&](P& p) { p.key_sequences = more; }), Status::bad_shape);
  EXPECT_EQ(status([&](P& p) { p.sequences = backwards; }), Status::bad_shape);
  EXPECT_EQ(status([&](P& p) { p.key_sequences = backwards; }), Status::bad_shape);
  const std::vector<Sequence> none = {{0, 3, 3}};
  EXPECT_EQ(status([&](P& p) { p.key_sequences = none, p.k = {}, p.v = {}; }), Status::ok);
  EXPECT_EQ(status([&](P& p) { p.sequences = none, p.q = {}, p.ridge = {}; }), Status::ok);

  // Forward needs less than backward.
  EXPECT_EQ(whole::backward(good, Whole::gradient(x, x), s, s, scratch.workspace()), Status::small_workspace);
}

}  // namespace
