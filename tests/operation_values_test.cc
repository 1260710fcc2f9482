// Per-token operations: values by hand, and gradients where a formula has an edge. The rest: operations_test.cc.
#include "prepare/operations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace ttr::prepare {
namespace {

Status apply(Op op, std::vector<std::vector<double>> from, std::vector<double>& to, double eps = 0) {
  std::vector<Rows<const double>> rows;
  for (auto& x : from) rows.push_back({x.data(), 0, 0, 0, 1, 1, static_cast<int>(x.size())});
  rows.resize(max_operands);  // the rest is left out
  return forward<double>(op, rows.data(), {to.data(), 0, 0, 0, 1, 1, static_cast<int>(to.size())}, eps, {1, 1, 1});
}

TEST(OperationValues, ZeroVectorsStayZero) {
  std::vector<double> y(3, 9);
  ASSERT_EQ(apply(Op::unit_norm, {{0, 0, 0}}, y), Status::ok);
  EXPECT_EQ(y, (std::vector<double>{0, 0, 0}));
  ASSERT_EQ(apply(Op::rms_norm, {{0, 0, 0}}, y), Status::ok);
  EXPECT_EQ(y, (std::vector<double>{0, 0, 0}));
}

TEST(OperationValues, StepRules) {
  std::vector<double> y(1);
  apply(Op::nlms_step, {{0.5}, {3, 4}}, y);
  EXPECT_DOUBLE_EQ(y[0], 0.02);
  apply(Op::nlms_step, {{0.5}, {0, 0}}, y);
  EXPECT_EQ(y[0], 0) << "a key of zeros writes nothing";
  apply(Op::longhorn_step, {{2}, {1, 0}}, y);
  EXPECT_DOUBLE_EQ(y[0], 2.0 / 3);
  apply(Op::flow_step, {{0.5}, {3, 4}}, y);
  EXPECT_NEAR(y[0], (1 - std::exp(-12.5)) / 25, 1e-16);
  apply(Op::flow_step, {{0.5}, {0, 0}}, y);
  EXPECT_DOUBLE_EQ(y[0], 0.5) << "the limit at a key of zeros";
  apply(Op::repeated_step, {{0.1}, {1, 2}}, y, 3);
  EXPECT_NEAR(y[0], (1 - 0.5 * 0.5 * 0.5) / 5, 1e-16);
  apply(Op::repeated_step, {{0.1}, {0, 0}}, y, 1000);
  EXPECT_NEAR(y[0], 100, 1e-12) << "the limit at a key of zeros";
}

TEST(OperationValues, FlowIsSmoothWhereItsSeriesTakesOver) {
  std::vector<double> below(1), above(1);
  const double k = std::sqrt(1e-3);
  apply(Op::flow_step, {{1 - 1e-9}, {k}}, below);
  apply(Op::flow_step, {{1 + 1e-9}, {k}}, above);
  EXPECT_NEAR(above[0] - below[0], 2e-9, 1e-11);
}

TEST(OperationValues, LeakAboveOneIsRefusedAndExactlyOneForgetsEverything) {
  std::vector<double> y(1);
  EXPECT_EQ(apply(Op::leak_gate, {{0.5}, {3}}, y), Status::out_of_domain);
  EXPECT_EQ(apply(Op::leak_gate, {{0.5}, {2}}, y), Status::ok);
  EXPECT_LT(std::exp(y[0]), 1e-280);
  EXPECT_TRUE(std::isfinite(y[0]));
  EXPECT_EQ(apply(Op::shrink_gate, {{1.5}}, y), Status::out_of_domain);
}

TEST(OperationValues, EveryOperationExistsInBothTypes) {
  const Extent empty{0, 0, 0};
  const Rows<const float> f[max_operands];
  const Rows<const double> d[max_operands];
  for (int i = 0; i < op_count; ++i) {
    EXPECT_EQ(forward<float>(static_cast<Op>(i), f, Rows<float>{}, 1, empty), Status::ok) << name(Op(i));
    EXPECT_EQ(forward<double>(static_cast<Op>(i), d, Rows<double>{}, 1, empty), Status::ok) << name(Op(i));
  }
  EXPECT_EQ(forward<double>(static_cast<Op>(op_count), d, Rows<double>{}, 1, empty), Status::not_supported);
}

TEST(OperationValues, Norms) {
  std::vector<double> y(2);
  apply(Op::unit_norm_clamp, {{3, 4}}, y, 1e-12);
  EXPECT_DOUBLE_EQ(y[1], 0.8);
  apply(Op::unit_norm_clamp, {{3, 4}}, y, 10);
  EXPECT_DOUBLE_EQ(y[1], 0.4);
  apply(Op::unit_norm_clamp, {{0, 0}}, y, 0);
  EXPECT_EQ(y, (std::vector<double>{0, 0}));
  apply(Op::sum_norm, {{1, 3}}, y);
  EXPECT_EQ(y, (std::vector<double>{0.25, 0.75}));
  apply(Op::sum_norm, {{1, -1}}, y);
  EXPECT_EQ(y, (std::vector<double>{0, 0}));
  apply(Op::layer_norm, {{1, 5}, {2, 3}, {10, 20}}, y);
  EXPECT_EQ(y, (std::vector<double>{8, 23}));
  apply(Op::layer_norm, {{1, 5}}, y, 5);  // variance 4
  EXPECT_DOUBLE_EQ(y[1], 2.0 / 3) << "without weights";
  apply(Op::rms_norm_weighted, {{1, 7}, {2, 3}}, y);
  EXPECT_DOUBLE_EQ(y[1], 4.2);
  const double s = 1 / (1 + std::exp(-1.0));
  apply(Op::rms_gate_norm_first_sigmoid, {{1, 7}, {1, 1}, {2, 3}}, y);
  EXPECT_NEAR(y[1], 4.2 * s, 1e-15);
  apply(Op::rms_gate_norm_first_silu, {{1, 7}, {2, 2}, {2, 3}}, y);
  EXPECT_NEAR(y[1], 4.2 * 2 / (1 + std::exp(-2.0)), 1e-14);
  apply(Op::rms_gate_gate_first_sigmoid, {{1, 7}, {1, 1}, {2, 3}}, y);
  EXPECT_NEAR(y[1], 4.2, 1e-14) << "a gate that is the same everywhere drops out";
  apply(Op::rms_gate_gate_first_silu, {{3, 4}, {0, 1}, {2, 3}}, y);
  EXPECT_NEAR(y[0], 0, 1e-15);
  EXPECT_NEAR(y[1], 3 * std::sqrt(2.0), 1e-14);
}

TEST(OperationValues, ShortRowsInFloatHaveFiniteGradients) {
  const float x[2] = {1e-15f, 0}, dy[2] = {1, 1};
  float y[2], dx[2] = {0, 0};
  const Rows<const float> from{x, 0, 0, 0, 1, 1, 2}, upstream{dy, 0, 0, 0, 1, 1, 2}, result{y, 0, 0, 0, 1, 1, 2};
  const Rows<float> to{y, 0, 0, 0, 1, 1, 2}, d_from{dx, 0, 0, 0, 1, 1, 2};
  forward<float>(Op::unit_norm, &from, to, 0, {1, 1, 1});
  backward<float>(Op::unit_norm, &from, result, upstream, &d_from, 0, {1, 1, 1});
  EXPECT_NEAR(dx[0] / 1e15f, 0, 1e-5);
  EXPECT_NEAR(dx[1] / 1e15f, 1, 1e-5);
}

TEST(OperationValues, GatesDoNotOverflow) {
  std::vector<double> y(3);
  apply(Op::sigmoid, {{-1e4, 0, 1e4}}, y);
  EXPECT_EQ(y, (std::vector<double>{0, 0.5, 1}));
  apply(Op::log_sigmoid, {{-1e4, 0, 1e4}}, y, 2);
  EXPECT_EQ(y, (std::vector<double>{-5e3, -std::log(2.0) / 2, 0}));
  apply(Op::softplus, {{-1e4, 0, 1e4}}, y);
  EXPECT_EQ(y, (std::vector<double>{0, std::log(2.0), 1e4}));
  apply(Op::one_minus_exp, {{-1e4, -1e-20, 0}}, y);
  EXPECT_EQ(y, (std::vector<double>{1, 1e-20, 0}));
  apply(Op::exp_negative, {{-1e4, 0, 1}}, y);
  EXPECT_EQ(y, (std::vector<double>{0, -1, -std::exp(1.0)}));
}

TEST(OperationValues, LowerBoundGate) {
  std::vector<double> y(1);
  for (const double f : {-1e4, -30.0, -1.0, 0.0, 1.0, 30.0, 1e4}) {
    apply(Op::lower_bound_gate, {{f}, {0}}, y);
    EXPECT_NEAR(y[0], std::min(f, 0.0) - std::log1p(std::exp(-std::abs(f))), 4e-16 * std::max(1.0, std::abs(f))) << f;
    apply(Op::lower_bound_gate, {{f}, {1}}, y);
    EXPECT_EQ(y[0], 0) << "nothing is forgotten";
    apply(Op::lower_bound_gate, {{f}, {0.25}}, y);
    const double s = f < 0 ? std::exp(f) / (1 + std::exp(f)) : 1 / (1 + std::exp(-f));
    EXPECT_NEAR(std::exp(y[0]), 0.25 + 0.75 * s, 2e-16) << f;
  }
  apply(Op::lower_bound_gate, {{50}, {0.5}}, y);
  EXPECT_NEAR(y[0] / (-0.5 * std::exp(-50.0)), 1, 1e-14) << "an open gate keeps its digits";
  EXPECT_EQ(apply(Op::lower_bound_gate, {{0}, {-0.1}}, y), Status::out_of_domain);
  EXPECT_EQ(apply(Op::lower_bound_gate, {{0}, {1.1}}, y), Status::out_of_domain);
}

TEST(OperationValues, LowerBoundGateHasFiniteGradientsWhereItIsShut) {
  for (const double bound : {0.0, 1e-300, 0.5, 1.0}) {
    const double f = -1e4, dy = 1;
    double y = 0, df = 0;
    Rows<double> d_from[2];
    d_from[0].data = &df;
    const Rows<const double> from[2] = {{&f}, {&bound}};
    forward<double>(Op::lower_bound_gate, from, {&y}, 0, {1, 1, 1});
    backward<double>(Op::lower_bound_gate, from, {&y}, {&dy}, d_from, 0, {1, 1, 1});
    EXPECT_EQ(df, bound == 0 ? 1 : 0) << bound;
  }
}

TEST(OperationValues, Arithmetic) {
  std::vector<double> y(2);
  apply(Op::negative_product, {{2, 3}, {5}}, y);
  EXPECT_EQ(y, (std::vector<double>{-10, -15}));
  apply(Op::add, {{2, 3}, {5, 7}}, y);
  EXPECT_EQ(y, (std::vector<double>{7, 10}));
  apply(Op::subtract, {{2, 3}, {5, 7}}, y);
  EXPECT_EQ(y, (std::vector<double>{-3, -4}));
  apply(Op::scale, {{2, 3}}, y, 0.5);
  EXPECT_EQ(y, (std::vector<double>{1, 1.5}));
  apply(Op::blend_product, {{2, 3}, {5, 0.5}, {1, 0}}, y);
  EXPECT_EQ(y, (std::vector<double>{10, 3}));
  apply(Op::bonus_value, {{1, 2, 3}, {4, 5, 6}, {1, 0, 2}, {0.5, -1}}, y);
  EXPECT_EQ(y, (std::vector<double>{20, -40}));
}

TEST(OperationValues, SpreadAndTake) {
  std::vector<double> x{1, 2, 3, 4}, spread(12, 9), back(4, 9);  // [T = 2, D = 2], three sub-steps
  const auto rows = [](auto& data) { return Rows<const double>{data.data(), 0, 2, 0, 1, 1, 2}; };
  const auto out = [](auto& data) { return Rows<double>{data.data(), 0, 2, 0, 1, 1, 2}; };
  const Rows<const double> from = rows(x), wide = rows(spread);
  forward<double>(Op::spread_last, &from, out(spread), 3, {1, 6, 1});
  EXPECT_EQ(spread, (std::vector<double>{0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 3, 4}));
  forward<double>(Op::take_last, &wide, out(back), 3, {1, 2, 1});
  EXPECT_EQ(back, x);
  forward<double>(Op::spread_first, &from, out(spread), 3, {1, 6, 1});
  EXPECT_EQ(spread, (std::vector<double>{1, 2, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0}));
}

// With an operand left out: the result, and the gradient of the others.
struct Without {
  std::vector<double> y, dx[max_operands];
};
Without without(Op op, std::vector<std::vector<double>> from, int width) {
  Without result;
  std::vector<double> dy;
  for (int d = 0; d < width; ++d) dy.push_back(d + 1);
  result.y.assign(dy.size(), 9);
  Rows<const double> rows[max_operands];
  Rows<double> d_rows[max_operands];
  for (std::size_t i = 0; i < from.size(); ++i) {
    const int own = static_cast<int>(from[i].size());
    result.dx[i].assign(from[i].size(), 0);
    if (own == 0) continue;
    rows[i] = {from[i].data(), 0, 0, 0, 1, 1, own}, d_rows[i] = {result.dx[i].data(), 0, 0, 0, 1, 1, own};
  }
  const Rows<double> to{result.y.data(), 0, 0, 0, 1, 1, width};
  const Rows<const double> y{result.y.data(), 0, 0, 0, 1, 1, width}, d_to{dy.data(), 0, 0, 0, 1, 1, width};
  EXPECT_EQ(forward<double>(op, rows, to, 0, {1, 1, 1}), Status::ok);
  backward<double>(op, rows, y, d_to, d_rows, 0, {1, 1, 1});
  return result;
}

TEST(OperationValues, OperandsLeftOut) {
  using Vector = std::vector<double>;
  const double infinite = std::numeric_limits<double>::infinity();
  for (const Without& w : {without(Op::add, {{2, 3}, {}}, 2), without(Op::add, {{}, {2, 3}}, 2)}) {
    EXPECT_EQ(w.y, (Vector{2, 3}));
    EXPECT_EQ(w.dx[0].empty() ? w.dx[1] : w.dx[0], (Vector{1, 2}));
  }
  EXPECT_EQ(without(Op::subtract, {{}, {2}}, 2).y, (Vector{-2, -2}));
  EXPECT_EQ(without(Op::subtract, {{}, {2}}, 2).dx[1], (Vector{-3}));
  const Without no_factor = without(Op::skip, {{2, 3}, {5, infinite}, {}}, 2);
  EXPECT_EQ(no_factor.y, (Vector{2, 3}));
  EXPECT_EQ(no_factor.dx[0], (Vector{1, 2}));
  EXPECT_EQ(no_factor.dx[1], (Vector{0, 0}));
  const Without no_input = without(Op::skip, {{2, 3}, {}, {7}}, 2);
  EXPECT_EQ(no_input.y, (Vector{2, 3}));
  EXPECT_EQ(no_input.dx[2], (Vector{0}));
  const Without no_output = without(Op::skip, {{}, {2, 3}, {7}}, 2);
  EXPECT_EQ(no_output.y, (Vector{14, 21}));
  EXPECT_EQ(no_output.dx[1], (Vector{7, 14}));
  EXPECT_EQ(no_output.dx[2], (Vector{8}));
  const Without no_gate = without(Op::silu_gate, {{2, infinite}, {}}, 2);
  EXPECT_EQ(no_gate.y, (Vector{2, infinite}));
  EXPECT_EQ(no_gate.dx[0], (Vector{1, 2}));
}

TEST(OperationValues, OneNumberOrOnePerChannel) {
  std::vector<double> y(2);
  apply(Op::skip, {{2, 3}, {5, 7}, {10}}, y);
  EXPECT_EQ(y, (std::vector<double>{52, 73}));
  apply(Op::skip, {{2, 3}, {5, 7}, {10, 100}}, y);
  EXPECT_EQ(y, (std::vector<double>{52, 703}));
  apply(Op::multiply, {{2, 3}, {5}}, y);
  EXPECT_EQ(y, (std::vector<double>{10, 15}));
  apply(Op::add, {{2, 3}, {5}}, y);
  EXPECT_EQ(y, (std::vector<double>{7, 8}));
  apply(Op::implicit_step, {{1, 3}, {2}}, y);
  EXPECT_DOUBLE_EQ(y[0], 1.0 / 3);
  EXPECT_DOUBLE_EQ(y[1], 3.0 / 7);
  apply(Op::phase_step, {{1e3, -0.5}, {2}}, y);
  EXPECT_DOUBLE_EQ(y[0], 2 * std::numbers::pi);
  EXPECT_NEAR(y[1], -2 * std::numbers::pi * (1 - std::exp(-1.0)) / (1 + std::exp(-1.0)), 1e-15);
}

TEST(OperationValues, SoftmaxDoesNotOverflow) {
  std::vector<double> y(3);
  apply(Op::softmax, {{1e4, -1e4, 1e4}}, y);
  EXPECT_EQ(y, (std::vector<double>{0.5, 0, 0.5}));
  apply(Op::softmax, {{-1e4, -1e4 + std::log(2.0), -1e4}}, y);
  EXPECT_NEAR(y[1], 0.5, 1e-12);
}

TEST(OperationValues, LogOfZeroIsFiniteAndOfLessIsRefused) {
  std::vector<double> y(2);
  EXPECT_EQ(apply(Op::log, {{1, 2}}, y), Status::ok);
  EXPECT_EQ(y, (std::vector<double>{0, std::log(2.0)}));
  EXPECT_EQ(apply(Op::log, {{0, 1}}, y), Status::ok);
  EXPECT_TRUE(std::isfinite(y[0]));
  EXPECT_LT(std::exp(y[0]), 1e-280);
  EXPECT_EQ(apply(Op::log, {{1, -1e-9}}, y), Status::out_of_domain);
}

// At zero too: what the gradient of log is divided by, that of exp is multiplied with.
TEST(OperationValues, GradientOfLogComesBackThroughExp) {
  const double x[2] = {0, 0.5};
  double y[2], z[2], dy[2] = {0, 0}, dx[2] = {0, 0};
  const double dz[2] = {3, 3};
  const auto in = [](const double* data) { return Rows<const double>{data, 0, 0, 0, 1, 1, 2}; };
  const auto out = [](double* data) { return Rows<double>{data, 0, 0, 0, 1, 1, 2}; };
  const Rows<const double> of_log = in(x), of_exp = in(y);
  const Rows<double> d_log = out(dx), d_exp = out(dy);
  forward<double>(Op::log, &of_log, out(y), 0, {1, 1, 1});
  forward<double>(Op::exp, &of_exp, out(z), 0, {1, 1, 1});
  backward<double>(Op::exp, &of_exp, in(z), in(dz), &d_exp, 0, {1, 1, 1});
  backward<double>(Op::log, &of_log, in(y), in(dy), &d_log, 0, {1, 1, 1});
  EXPECT_NEAR(dx[0], 3, 1e-9);
  EXPECT_NEAR(dx[1], 3, 1e-15);
}

TEST(OperationValues, Precondition) {
  std::vector<double> y(3);
  const double e = std::exp(1.0);
  EXPECT_EQ(apply(Op::precondition, {{1 - 1e-6, e - 1e-6, 1 / e - 1e-6}, {0}}, y), Status::ok);
  EXPECT_NEAR(y[0], 1, 1e-15);
  EXPECT_NEAR(y[1], 1 / std::sqrt(1.5), 1e-15);
  EXPECT_NEAR(y[2], std::sqrt(1.5), 1e-15);
  apply(Op::precondition, {{0, 0, 0}, {std::log(1e-6) + 3}}, y);
  EXPECT_NEAR(y[0], std::pow(1.5, 0.75), 1e-14) << "a key that was never seen";
  EXPECT_EQ(apply(Op::precondition, {{0, 1, -0.1}, {0}}, y), Status::out_of_domain);
}

TEST(OperationValues, RgLruGates) {
  std::vector<double> y(2);
  apply(Op::decay_rate_gate, {{0, 1e4}, {0, 0}}, y);
  EXPECT_NEAR(y[0], -4 * std::log(2.0), 1e-15);
  EXPECT_NEAR(y[1], -8 * std::log(2.0), 1e-15);
  apply(Op::decay_rate_gate, {{1e4, -1e4}, {-1e4, 50}}, y);
  EXPECT_EQ(y, (std::vector<double>{-8e4, 0}));
  apply(Op::decay_rate_gate, {{1e4, 1e4}, {50, 1e4}}, y);
  EXPECT_NEAR(y[0] / (-8 * std::exp(-50.0)), 1, 1e-14) << "a slow channel keeps its digits";
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(apply(Op::root_complement, {{0, -1e4}}, y), Status::ok);
  EXPECT_EQ(y, (std::vector<double>{0, 1}));
  apply(Op::root_complement, {{-5e-21, -std::log(2.0) / 2}}, y);
  EXPECT_NEAR(y[0] / 1e-10, 1, 1e-15) << "by expm1";
  EXPECT_NEAR(y[1], std::sqrt(0.5), 1e-15);
  EXPECT_EQ(apply(Op::root_complement, {{-1, 1e-3}}, y), Status::out_of_domain);
}

template <class T>
void expect_finite_root_slope() {
  const T tiny = -std::numeric_limits<T>::min(), x[3] = {0, tiny, T(-0.1)}, dy[3] = {1, 0, 1};
  T y[3], dx[3] = {0, 0, 0};
  const Rows<const T> from{x, 0, 0, 0, 1, 1, 3}, result{y, 0, 0, 0, 1, 1, 3}, upstream{dy, 0, 0, 0, 1, 1, 3};
  const Rows<T> to{y, 0, 0, 0, 1, 1, 3}, d_from{dx, 0, 0, 0, 1, 1, 3};
  forward<T>(Op::root_complement, &from, to, 0, {1, 1, 1});
  backward<T>(Op::root_complement, &from, result, upstream, &d_from, 0, {1, 1, 1});
  EXPECT_TRUE(std::isfinite(dx[0]) && dx[0] < -1e9) << dx[0];
  EXPECT_EQ(dx[1], 0);
  EXPECT_NEAR(dx[2], -std::exp(-0.2) / std::sqrt(-std::expm1(-0.2)), 1e-6);
}
TEST(OperationValues, SlopeOfTheRootIsFiniteAtZero) {
  expect_finite_root_slope<float>();
  expect_finite_root_slope<double>();
}

TEST(OperationValues, PhaseStepKeepsItsSlopeWhereTanhIsOne) {
  const double a = 30, dt = 1, dy = 1, y = std::numbers::pi;
  double da = 0;
  const Rows<const double> from[2] = {{&a}, {&dt}};
  Rows<double> d_from[2];
  d_from[0].data = &da;
  backward<double>(Op::phase_step, from, {&y}, {&dy}, d_from, 0, {1, 1, 1});
  EXPECT_NEAR(da / (4 * std::numbers::pi * std::exp(-60.0)), 1, 1e-13);
}

// Results that are matrices, [K, V] with strides of their own.
TEST(OperationValues, MatrixResults) {
  std::vector<double> x{2, 3, 4}, A{1, 10, 2, 20, 3, 30}, y(6, 9);  // A is stored [V = 3, K = 2]
  const Rows<const double> from[] = {{x.data(), 0, 0, 0, 1, 1, 3}, {A.data(), 0, 0, 0, 2, 1, 3, 1, 2}};
  const Rows<double> by_key{y.data(), 0, 0, 0, 1, 1, 3, 3, 2}, by_value{y.data(), 0, 0, 0, 2, 1, 3, 1, 2};
  forward<double>(Op::outer_product, from, by_key, 0, {1, 1, 1});
  EXPECT_EQ(y, (std::vector<double>{2, 6, 12, 20, 60, 120}));
  forward<double>(Op::outer_product, from, by_value, 0, {1, 1, 1});
  EXPECT_EQ(y, (std::vector<double>{2, 20, 6, 60, 12, 120}));

  std::vector<double> k{0.5, -1e-10}, d{2, 0, 4};
  const Rows<const double> erase[] = {{k.data(), 0, 0, 0, 1, 1, 2}, {d.data(), 0, 0, 0, 1, 1, 3}};
  EXPECT_EQ(forward<double>(Op::erase_log, erase, by_key, 0, {1, 1, 1}), Status::ok);
  EXPECT_NEAR(y[0], std::log(0.5), 1e-16);
  EXPECT_EQ(y[1], 0);
  EXPECT_TRUE(std::isfinite(y[2]) && std::exp(y[2]) < 1e-280) << "a factor of zero forgets everything";
  EXPECT_DOUBLE_EQ(y[3], -2e-20) << "by log1p";
  d[2] = 4.1;
  EXPECT_EQ(forward<double>(Op::erase_log, erase, by_key, 0, {1, 1, 1}), Status::out_of_domain);
}

// The implicit step with a large delta erases exactly; rounding must not make that an error.
TEST(OperationValues, EraseOfALargeImplicitStepIsInDomain) {
  for (int i = 1; i < 2000; ++i) {
    const float k = 0.001f * static_cast<float>(i), n = k * k, delta = 1e20f;
    float d = 0, y = 0;
    const Rows<const float> step[] = {{&delta}, {&n}}, erase[] = {{&k}, {&d}};
    forward<float>(Op::implicit_step, step, {&d}, 0, {1, 1, 1});
    ASSERT_EQ(forward<float>(Op::erase_log, erase, {&y}, 0, {1, 1, 1}), Status::ok) << k;
    ASSERT_LT(y, -14) << k;
  }
}

TEST(OperationValues, InterleaveAndHalves) {
  std::vector<double> x{1, 2, 3, 4}, y{5, 6, 7, 8}, both(8, 9), half(2);  // [T = 2, D = 2]
  const Rows<const double> from[] = {{x.data(), 0, 2, 0, 1, 1, 2}, {y.data(), 0, 2, 0, 1, 1, 2}};
  forward<double>(Op::interleave, from, {both.data(), 0, 2, 0, 1, 1, 2}, 0, {1, 4, 1});
  EXPECT_EQ(both, (std::vector<double>{1, 2, 5, 6, 3, 4, 7, 8}));
  apply(Op::first_half, {{1, 2, 3, 4}}, half);
  EXPECT_EQ(half, (std::vector<double>{1, 2}));
  apply(Op::second_half, {{1, 2, 3, 4}}, half);
  EXPECT_EQ(half, (std::vector<double>{3, 4}));
}

}  // namespace
}  // namespace ttr::prepare
