// What feature maps and the rotary embedding are for: the kernels they stand for, by their own formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <random>
#include <vector>

#include "prepare/operations.h"

namespace ttr::prepare {
namespace {

using Vector = std::vector<double>;

double dot(const Vector& x, const Vector& y) { return std::inner_product(x.begin(), x.end(), y.begin(), 0.0); }

class Maps : public testing::Test {
 protected:
  Vector random(int width, double size = 1) {
    std::uniform_real_distribution<double> uniform(-size, size);
    Vector x(static_cast<std::size_t>(width));
    for (double& value : x) value = uniform(engine_);
    return x;
  }
  // Row t of the result; a matrix operand has `height` rows.
  static Vector map(Op op, std::vector<Vector> from, int out, double number = 0, int t = 0, int height = 1) {
    std::vector<Rows<const double>> rows;
    for (Vector& x : from) rows.push_back({x.data(), 0, 0, 0, 1, 1, static_cast<int>(x.size())});
    if (rows.size() > 1 && height > 1)
      rows[1].width /= height, rows[1].outer = rows[1].width, rows[1].height = height;
    rows.resize(max_operands);
    Vector y(static_cast<std::size_t>(out), 9);
    EXPECT_EQ(forward<double>(op, rows.data(), {y.data(), 0, 0, 0, 1, 1, out}, number, {1, t + 1, 1}), Status::ok);
    return y;  // of the last token: every token writes the same row
  }
  static int width(Op op, int D, int features = 0, double number = 0) {
    return static_cast<int>(feature_width(op, D, features, number));
  }

 private:
  std::mt19937 engine_{11};
};

TEST_F(Maps, Elementwise) {
  EXPECT_EQ(map(Op::relu, {{-2, 0, 3}}, 3), (Vector{0, 0, 3}));
  EXPECT_EQ(map(Op::elu1, {{-2, 0, 3}}, 3), (Vector{std::exp(-2.0), 1, 4}));
  EXPECT_NEAR(map(Op::silu, {{-2}}, 1)[0], -2 / (1 + std::exp(2.0)), 1e-16);
  EXPECT_EQ(map(Op::elu1, {{-1e4}}, 1)[0], 0);
  EXPECT_EQ(map(Op::silu, {{1e4}}, 1)[0], 1e4);
}

TEST_F(Maps, TaylorKernelIsTheSecondOrderSeriesOfExp) {
  for (const int D : {1, 2, 5, 16}) {
    const Vector x = random(D), y = random(D);
    const int F = width(Op::taylor2, D);
    EXPECT_EQ(F, 1 + D + D * (D + 1) / 2);
    const double s = dot(x, y) / std::sqrt(double(D));
    EXPECT_NEAR(dot(map(Op::taylor2, {x}, F), map(Op::taylor2, {y}, F)), 1 + s + s * s / 2, 1e-14);
  }
}

TEST_F(Maps, ReBasedKernelIsTheSquareOfTheInnerProduct) {
  for (const int D : {1, 2, 6}) {
    const Vector x = random(D), y = random(D), gamma = random(D), beta = random(D);
    const int F = width(Op::rebased, D);
    const Vector a = map(Op::layer_norm, {x, gamma, beta}, D, 1e-5),
                 b = map(Op::layer_norm, {y, gamma, beta}, D, 1e-5);
    const double s = dot(a, b);
    EXPECT_NEAR(dot(map(Op::rebased, {x, gamma, beta}, F), map(Op::rebased, {y, gamma, beta}, F)), s * s / D, 1e-13);
  }
}

TEST_F(Maps, QuadraticIsReBasedOfWhatIsNormalisedAlready) {
  for (const int D : {1, 3, 8}) {
    const Vector x = random(D), gamma = random(D), beta = random(D);
    const int F = width(Op::quadratic, D);
    EXPECT_EQ(F, width(Op::rebased, D));
    const Vector whole = map(Op::rebased, {x, gamma, beta}, F),
                 parts = map(Op::quadratic, {map(Op::layer_norm, {x, gamma, beta}, D, 1e-5)}, F);
    for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-15);
    const Vector y = random(D);
    EXPECT_NEAR(dot(map(Op::quadratic, {x}, F), map(Op::quadratic, {y}, F)), dot(x, y) * dot(x, y) / D, 1e-14);
  }
  const double cross = std::sqrt(2.0 / 3);
  const Vector y = map(Op::quadratic, {{1, 2, 3}}, 6),
               by_hand{1 / std::sqrt(3.0), 4 / std::sqrt(3.0), 9 / std::sqrt(3.0), 2 * cross, 3 * cross, 6 * cross};
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], by_hand[i], 2e-15) << "squares, then row by row";
}

TEST_F(Maps, ProjectIsAMatrixTimesARow) {
  EXPECT_EQ(map(Op::project, {{1, -1, 2}, {1, 2, 3, 4, 5, 6}}, 2, 0, 0, 2), (Vector{5, 11}));
  EXPECT_EQ(width(Op::project, 3, 2), 2);
  EXPECT_EQ(width(Op::first_half, 6), 3);
  EXPECT_EQ(width(Op::second_half, 6), 3);
}

TEST_F(Maps, PolynomialListsEveryMonomialOnce) {
  EXPECT_EQ(map(Op::polynomial, {{2, 3}}, width(Op::polynomial, 2, 0, 3), 3),
            (Vector{1, 2, 3, 4, 6, 9, 8, 12, 18, 27}));
  EXPECT_EQ(width(Op::polynomial, 16, 0, 2), 153);
  EXPECT_EQ(width(Op::polynomial, 5, 0, 3), 56);
  EXPECT_EQ(map(Op::polynomial, {{2, 3}}, 1, 0), (Vector{1})) << "degree 0 is the constant";
}

TEST_F(Maps, PolynomialOfDegreeTwoIsTaylorWithoutItsWeights) {
  const int D = 4;
  const Vector x = random(D);
  const Vector plain = map(Op::polynomial, {x}, 15, 2), taylor = map(Op::taylor2, {x}, 15);
  double squares = 0, weighted = 0;
  for (std::size_t i = 5; i < 15; ++i) squares += plain[i], weighted += taylor[i];
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(plain[1 + i], taylor[1 + i] * std::sqrt(2.0), 1e-15);
    squares -= x[i] * x[i], weighted -= x[i] * x[i] / std::sqrt(8.0);
  }
  EXPECT_NEAR(squares, 2 * weighted, 1e-14);
}

TEST_F(Maps, DpfpByHand) {
  // r = [1 0 0 2]; rolled by one [2 1 0 0]; by two [0 2 1 0]
  EXPECT_EQ(map(Op::dpfp, {{1, -2}}, width(Op::dpfp, 2, 0, 2)), (Vector{2, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(map(Op::dpfp, {{1, 3}}, 4), (Vector{0, 3, 0, 0}));
}

TEST_F(Maps, DpfpSeparatesInputsWithTheSamePositivePart) {
  const Vector x{1, -2, 0.5}, y{1, -3, 0.5};
  EXPECT_NE(map(Op::dpfp, {x}, 18), map(Op::dpfp, {y}, 18));
}

TEST_F(Maps, CosFormerKernelDependsOnTheDistanceOfTokens) {
  const int D = 5;
  const double L = 40;
  const Vector q = random(D), k = random(D);
  const double plain = dot(map(Op::relu, {q}, D), map(Op::relu, {k}, D));
  for (const int i : {0, 3, 17})
    for (const int j : {0, 2}) {
      const double expected = plain * std::cos(std::numbers::pi * (i - j) / (2 * L));
      EXPECT_NEAR(dot(map(Op::cosformer, {q}, 2 * D, L, i), map(Op::cosformer, {k}, 2 * D, L, j)), expected, 1e-15);
    }
  const Vector whole = map(Op::cosformer, {q}, 2 * D, L, 7), later = map(Op::cosformer, {q, {5}}, 2 * D, L, 2);
  EXPECT_EQ(whole, later) << "a call that starts at token 5 goes on where the first stopped";
  EXPECT_NEAR(map(Op::cosformer, {{1}}, 2, L)[0], std::cos(std::numbers::pi / (2 * L)), 1e-16)
      << "tokens count from 1";
}

TEST_F(Maps, T2rAndHedgehogByHand) {
  const Vector x{1, -1}, W{2, 1, 0, 3}, b{0.5, 1};  // z = [1.5, -2]
  EXPECT_EQ(map(Op::t2r, {x, W, b}, 2, 0, 0, 2), (Vector{1.5, 0}));
  EXPECT_EQ(map(Op::t2r, {x, W}, 2, 0, 0, 2), (Vector{1, 0})) << "without bias";
  EXPECT_EQ(map(Op::hedgehog_exp, {x, W, b}, 4, 0, 0, 2),
            (Vector{std::exp(1.5), std::exp(-2.0), std::exp(-1.5), std::exp(2.0)}));
  for (const double factor : {1.0, 2.0}) {
    const Vector y = map(factor == 1 ? Op::hedgehog_softmax : Op::hedgehog_softmax2, {x, W, b}, 4, 0, 0, 2);
    EXPECT_NEAR(std::accumulate(y.begin(), y.end(), 0.0), 1, 1e-15);
    EXPECT_NEAR(y[0] / y[1], std::exp(factor * 3.5), 1e-11);
    EXPECT_NEAR(y[0] / y[2], std::exp(factor * 3), 1e-11);
  }
  EXPECT_EQ(width(Op::hedgehog_softmax, 2, 3), 6);
  EXPECT_EQ(width(Op::t2r, 2, 3), 3);
}

TEST_F(Maps, SoftmaxMapsDoNotOverflow) {
  const Vector y = map(Op::hedgehog_softmax, {{1e4, 1}, {1, 0, 0, 1}}, 4, 0, 0, 2);
  EXPECT_EQ(y, (Vector{1, 0, 0, 0}));
  const Vector z = map(Op::dijiang, {{1e4, 1}, {1, 0, 0, 1}}, 2, 0, 0, 2);
  EXPECT_EQ(z, (Vector{1, 0}));
}

TEST_F(Maps, DiJiangReadsTheColumnsOfItsMatrix) {
  const Vector y = map(Op::dijiang, {{1, 2}, {1, 2, 3, 4, 5, 6}}, 3, 0, 0, 2);  // P [2, 3]: x P = [9, 12, 15]
  EXPECT_NEAR(y[1] / y[0], std::exp(3.0), 1e-12);
  EXPECT_NEAR(y[2] / y[1], std::exp(3.0), 1e-12);
}

// Fixed seed: the mean over random directions comes near the kernel.
TEST_F(Maps, RandomFeaturesEstimateTheirKernels) {
  const int D = 3, m = 40000;
  std::mt19937 engine(3);
  std::normal_distribution<double> normal;
  Vector W(static_cast<std::size_t>(m * D));
  for (double& value : W) value = normal(engine);
  const Vector x = random(D, 0.6), y = random(D, 0.6);
  const double exponential = std::exp(dot(x, y) / std::sqrt(double(D)));
  EXPECT_NEAR(dot(map(Op::favor, {x, W}, m, 0, 0, m), map(Op::favor, {y, W}, m, 0, 0, m)), exponential, 0.02);
  double square = 0;
  for (std::size_t d = 0; d < D; ++d) square += (x[d] - y[d]) * (x[d] - y[d]);
  EXPECT_NEAR(dot(map(Op::rfa, {x, W}, 2 * m, 0, 0, m), map(Op::rfa, {y, W}, 2 * m, 0, 0, m)), std::exp(-square / 2),
              0.02);
}

TEST_F(Maps, FavorReluByHand) {
  const Vector y = map(Op::favor_relu, {Vector(16, 0.5), Vector(32, -1)}, 2, 0, 0, 2);  // u = x / 2
  EXPECT_EQ(y, (Vector{1e-3, 1e-3}));
  EXPECT_NEAR(map(Op::favor_relu, {Vector(16, 0.5), Vector(32, 1)}, 2, 0, 0, 2)[1], 4.001, 1e-15);
}

TEST_F(Maps, RotaryKeepsLengthsAndSeesDistancesOnly) {
  for (const Op op : {Op::rotary_interleaved, Op::rotary_half})
    for (const int D : {2, 6, 7, 300}) {
      const Vector q = random(D), k = random(D);
      EXPECT_EQ(map(op, {q}, D, 10000, 0), q) << "token 0 is not turned";
      const Vector turned = map(op, {q}, D, 10000, 12);
      EXPECT_NEAR(dot(turned, turned), dot(q, q), 1e-12);
      const double near = dot(map(op, {q}, D, 10000, 9), map(op, {k}, D, 10000, 4));
      EXPECT_NEAR(dot(map(op, {q, {1e6}}, D, 10000, 9), map(op, {k, {1e6}}, D, 10000, 4)), near, 1e-8) << D;
      EXPECT_GT(std::abs(near - dot(q, k)), 1e-4);
    }
}

TEST_F(Maps, RotaryPairs) {
  const double c = std::cos(1.0), s = std::sin(1.0), c2 = std::cos(0.1), s2 = std::sin(0.1);  // base 100, D = 4
  const Vector a = map(Op::rotary_interleaved, {{1, 0, 0, 1}}, 4, 100, 1),
               b = map(Op::rotary_half, {{1, 0, 0, 1}}, 4, 100, 1);
  const Vector interleaved{c, s, -s2, c2}, half{c, -s2, s, c2};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(a[i], interleaved[i], 1e-15);
    EXPECT_NEAR(b[i], half[i], 1e-15);
  }
}

TEST_F(Maps, RotateTurnsTheFirstPairsByItsAngles) {
  const double half_pi = std::numbers::pi / 2;
  const Vector y = map(Op::rotate, {{1, 2, 3, 4, 5}, {half_pi, -half_pi}}, 5), by_hand{-2, 1, 4, -3, 5};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(y[i], by_hand[i], 1e-15);
  const Vector x = random(7);
  const Vector one = map(Op::rotate, {x, {0.3}}, 7);
  for (std::size_t i = 2; i < 7; ++i) EXPECT_EQ(one[i], x[i]) << "an angle belongs to one pair";
  // rotary_interleaved with base 100 turns pair i of token 1 by 100^(-i/2)
  const Vector q = random(4), turned = map(Op::rotate, {q, {1, 0.1}}, 4),
               rotary = map(Op::rotary_interleaved, {q}, 4, 100, 1);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(turned[i], rotary[i], 1e-15);
}

// Heads share the turns of a token; an offset of their own must not.
TEST_F(Maps, RotaryOffsetsPerSequenceTokenAndHead) {
  Vector x(2 * 3 * 2 * 4, 1), y(x.size()), offsets{0, 5, 9, 1, 0, 7, 3, 3, 100, -1, 0, 2};
  const Rows<const double> from[] = {{x.data(), 24, 8, 4, 1, 1, 4}, {offsets.data(), 6, 2, 1, 1, 1, 1}};
  forward<double>(Op::rotary_half, from, {y.data(), 24, 8, 4, 1, 1, 4}, 100, {2, 3, 2});
  for (int row = 0; row < 12; ++row) {
    const double position = row / 2 % 3 + offsets[static_cast<std::size_t>(row)];
    EXPECT_NEAR(y[static_cast<std::size_t>(4 * row)], std::cos(position) - std::sin(position), 1e-14) << row;
    EXPECT_NEAR(y[static_cast<std::size_t>(4 * row + 3)], std::cos(position / 10) + std::sin(position / 10), 1e-14);
  }
}

}  // namespace
}  // namespace ttr::prepare
