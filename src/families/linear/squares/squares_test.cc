// Sums over squared features against the squares themselves: o_t = sum_i w_i(t) (q_t.k_i)^2 / K v_i, pair by pair.
#include "families/linear/squares/squares.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "simd/squares.h"

namespace {

using namespace ttr;
using namespace ttr::families;
using Size = std::ptrdiff_t;

// One row of tokens in packed sequences; everything is drawn in float, so that both types are given the same.
struct Case {
  int H = 4, G = 2, K = 5, V = 3;
  Size T = 12;
  std::vector<Sequence> sequences = {{0, 0, 5}, {0, 5, 5}, {0, 5, 12}};
  bool gates = true;
  double scale = 0.7;
};

template <class T>
struct Drawn {
  explicit Drawn(const Case& c) : x(c) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<T>& to, Size n) {
      to.resize(static_cast<std::size_t>(n));
      for (T& y : to) y = static_cast<T>(normal(random));
    };
    fill(q, c.T * c.G * c.K), fill(k, c.T * c.G * c.K), fill(v, c.T * c.H * c.V), fill(d_o, c.T * c.H * c.V);
    fill(g, c.T * c.H), fill(beta, c.T * c.H);
    for (T& y : g) y = -std::abs(y) / 8;
    o.assign(v.size(), T(0));
    memory.assign(c.sequences.size() * static_cast<std::size_t>(Size{c.H} * squares_of(c.K) * c.V), 0.0);
  }
  View<const T, 4> rows(const std::vector<T>& a, Size heads, Size dim) const {
    return {a.data(), {1, x.T, heads, dim}, {x.T * heads * dim, heads * dim, dim, 1}};
  }
  View<T, 4> rows(std::vector<T>& a, Size heads, Size dim) const {
    return {a.data(), {1, x.T, heads, dim}, {x.T * heads * dim, heads * dim, dim, 1}};
  }
  SquaresProblem<T> problem() {
    SquaresProblem<T> p{};
    p.sequences = x.sequences, p.heads = x.H, p.key_heads = x.G, p.key_dim = x.K, p.value_dim = x.V;
    p.scale = static_cast<T>(x.scale);
    p.q = rows(std::as_const(q), x.G, x.K), p.k = rows(std::as_const(k), x.G, x.K);
    p.v = rows(std::as_const(v), x.H, x.V);
    if (x.gates) p.g = {g.data(), {1, x.T, x.H}, {x.T * x.H, x.H, 1}};
    if (x.gates) p.beta = {beta.data(), {1, x.T, x.H}, {x.T * x.H, x.H, 1}};
    p.o = rows(o, x.H, x.V), p.memory = memory.data();
    return p;
  }
  std::vector<double> expected() const {
    std::vector<double> out(o.size());
    const auto at = [](const std::vector<T>& a, Size i) {
      return static_cast<double>(a[static_cast<std::size_t>(i)]);
    };
    for (const Sequence& n : x.sequences)
      for (Size t = n.begin; t < n.end; ++t)
        for (int h = 0; h < x.H; ++h) {
          double fade = 1;
          for (Size i = t; i >= n.begin; --i) {
            const int group = h / (x.H / x.G);
            double product = 0;
            for (Size j = 0; j < x.K; ++j)
              product += at(q, (t * x.G + group) * x.K + j) * at(k, (i * x.G + group) * x.K + j);
            const double w = x.scale * fade * (x.gates ? at(beta, i * x.H + h) : 1) * product * product / x.K;
            for (Size j = 0; j < x.V; ++j)
              out[static_cast<std::size_t>((t * x.H + h) * x.V + j)] += w * at(v, (i * x.H + h) * x.V + j);
            if (x.gates) fade *= std::exp(at(g, i * x.H + h));
          }
        }
    return out;
  }

  Case x;
  std::vector<T> q, k, v, g, beta, o, d_o;
  std::vector<double> memory;
};

std::vector<std::byte> workspace(const Case& c, Form form, int chunk, bool backward) {
  return std::vector<std::byte>(squares::workspace_bytes(c.K, c.V, c.H / c.G, c.T, form, chunk, backward));
}

template <class T>
void expect_squares(const Case& c, double tolerance) {
  for (const Form form : {Form::recurrent, Form::chunk, Form::parallel, Form::scan, Form::best})
    for (const int chunk : {0, 5}) {
      Drawn<T> drawn(c);
      std::vector<std::byte> work = workspace(c, form, chunk, false);
      ASSERT_EQ(squares::forward(drawn.problem(), form, chunk, simd<double>(""), {work.data(), work.size()}),
                Status::ok);
      const std::vector<double> want = drawn.expected();
      double most = 0;
      for (const double y : want) most = std::max(most, std::abs(y));
      for (std::size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(static_cast<double>(drawn.o[i]), want[i], tolerance * most)
            << to_string(form) << " chunk " << chunk << " number " << i;
    }
}

TEST(SquaresKernel, AreThoseOfTheProducts) {
  Case c;
  expect_squares<double>(c, 1e-13), expect_squares<float>(c, 1e-7);
  c.gates = false, expect_squares<float>(c, 1e-7);
  c.T = 530, c.sequences = {{0, 0, 3}, {0, 3, 530}}, c.gates = true;  // more than a block of tokens
  expect_squares<double>(c, 1e-12), expect_squares<float>(c, 1e-7);
}

// The gradient of q, by differences of the sum of the answers.
TEST(SquaresKernel, GradientOfQueriesAndKeys) {
  Case c;
  Drawn<double> at(c);
  std::vector<double> d_q(at.q.size()), d_k(at.k.size());
  SquaresGradient<double> d{};
  d.d_o = at.rows(std::as_const(at.d_o), c.H, c.V);
  d.d_q = at.rows(d_q, c.G, c.K), d.d_k = at.rows(d_k, c.G, c.K);
  std::vector<std::byte> work = workspace(c, Form::chunk, 0, true);
  ASSERT_EQ(squares::backward(at.problem(), d, Form::chunk, 0, simd<double>(""), {work.data(), work.size()}),
            Status::ok);
  const auto loss = [&] {
    const std::vector<double> o = at.expected();
    double sum = 0;
    for (std::size_t i = 0; i < o.size(); ++i) sum += o[i] * at.d_o[i];
    return sum;
  };
  for (std::size_t i = 0; i < at.q.size(); i += 7)
    for (auto* const x : {&at.q, &at.k}) {
      constexpr double h = 1e-6;
      const double kept = (*x)[i];
      (*x)[i] = kept + h;
      const double up = loss();
      (*x)[i] = kept - h;
      const double down = loss();
      (*x)[i] = kept;
      EXPECT_NEAR(x == &at.q ? d_q[i] : d_k[i], (up - down) / (2 * h), 1e-7) << i;
    }
}

TEST(SquaresKernel, WhatIsWrongIsSaid) {
  Case c;
  Drawn<float> drawn(c);
  std::vector<std::byte> work = workspace(c, Form::chunk, 0, false);
  const Simd<double>& s = simd<double>("");
  const Workspace room{work.data(), work.size()};
  SquaresProblem<float> p = drawn.problem();
  EXPECT_EQ(squares::forward(p, Form::chunk, 0, s, Workspace{work.data(), 64}), Status::small_workspace);
  p.memory = nullptr;
  EXPECT_EQ(squares::forward(p, Form::chunk, 0, s, room), Status::missing_input);
  p = drawn.problem(), p.k = {};
  EXPECT_EQ(squares::forward(p, Form::chunk, 0, s, room), Status::missing_input);
  p = drawn.problem(), p.key_heads = 3;
  EXPECT_EQ(squares::forward(p, Form::chunk, 0, s, room), Status::bad_shape);
}

}  // namespace
