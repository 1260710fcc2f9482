// Per-token operations: values by hand, gradients by central differences.
#include "prepare/operations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace ttr::prepare {
namespace {

struct OpCase {
  Op op;
  std::vector<int> widths;  // of the operands
  int out;
  double eps;
};

// Rows of a dense [B, T, H/group, width] array.
template <class T, class U>
Rows<T> dense(std::vector<U>& data, int time, int heads, int width, int group = 1) {
  const int own = heads / group;
  return {data.data(), time * own * width, own * width, width, 1, group, width};
}

class Operations : public testing::TestWithParam<OpCase> {};

TEST_P(Operations, GradientsEqualCentralDifferences) {
  const OpCase& c = GetParam();
  constexpr int B = 2, T = 3, H = 4;
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(0.1, 0.9);
  std::vector<std::vector<double>> from, d_from;
  for (std::size_t i = 0; i < c.widths.size(); ++i) {
    const int own = i == 1 ? H / 2 : H;  // the second operand is shared by pairs of heads
    std::vector<double> x(static_cast<std::size_t>(B * T * own * c.widths[i]));
    for (double& value : x) value = uniform(random);
    from.push_back(x);
    d_from.emplace_back(x.size(), 0.0);
  }
  std::vector<double> to(static_cast<std::size_t>(B * T * H * c.out)), d_to(to.size());
  for (double& value : d_to) value = uniform(random) - 0.5;
  const auto operands = [&](std::vector<Rows<const double>>& rows) {
    rows.clear();
    for (std::size_t i = 0; i < from.size(); ++i)
      rows.push_back(dense<const double>(from[i], T, H, c.widths[i], i == 1 ? 2 : 1));
  };
  std::vector<Rows<const double>> rows;
  operands(rows);
  const Extent extent{B, T, H};
  const auto loss = [&] {
    EXPECT_EQ(forward<double>(c.op, rows.data(), dense<double>(to, T, H, c.out), c.eps, extent), Status::ok);
    double sum = 0;
    for (std::size_t i = 0; i < to.size(); ++i) sum += to[i] * d_to[i];
    return sum;
  };
  loss();
  std::vector<Rows<double>> d_rows;
  for (std::size_t i = 0; i < from.size(); ++i) d_rows.push_back(dense<double>(d_from[i], T, H, c.widths[i], i == 1 ? 2 : 1));
  backward<double>(c.op, rows.data(), dense<const double>(to, T, H, c.out), dense<const double>(d_to, T, H, c.out),
                   d_rows.data(), c.eps, extent);
  for (std::size_t operand = 0; operand < from.size(); ++operand)
    for (std::size_t i = 0; i < from[operand].size(); i += 5) {
      const double x = from[operand][i], step = 1e-6;
      from[operand][i] = x + step;
      const double up = loss();
      from[operand][i] = x - step;
      const double down = loss();
      from[operand][i] = x;
      EXPECT_NEAR(d_from[operand][i], (up - down) / (2 * step), 1e-7) << "operand " << operand << " element " << i;
    }
}

INSTANTIATE_TEST_SUITE_P(
    All, Operations,
    testing::Values(OpCase{Op::multiply, {3, 3}, 3, 0}, OpCase{Op::multiply, {3, 1}, 3, 0}, OpCase{Op::unit_norm, {5}, 5, 0},
                    OpCase{Op::unit_norm, {5}, 5, 0.1}, OpCase{Op::rms_norm, {5}, 5, 0}, OpCase{Op::rms_norm, {5}, 5, 0.1},
                    OpCase{Op::nlms_step, {1, 4}, 1, 0.2}, OpCase{Op::longhorn_step, {1, 4}, 1, 0},
                    OpCase{Op::flow_step, {1, 4}, 1, 0}, OpCase{Op::leak_gate, {1, 1}, 1, 0},
                    OpCase{Op::shrink_gate, {1}, 1, 0}, OpCase{Op::square_norm, {4}, 1, 0}, OpCase{Op::skip, {3, 3, 1}, 3, 0},
                    OpCase{Op::divide, {3, 1}, 3, 0}));

Status apply(Op op, std::vector<std::vector<double>> from, std::vector<double>& to, double eps = 0) {
  std::vector<Rows<const double>> rows;
  for (auto& x : from) rows.push_back({x.data(), 0, 0, 0, 1, 1, static_cast<int>(x.size())});
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

}  // namespace
}  // namespace ttr::prepare
