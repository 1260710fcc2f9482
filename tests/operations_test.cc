// Per-token operations: gradients by central differences, float against double, and what a gradient reads. Values by
// hand: operation_values_test.cc.
#include "prepare/operations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace ttr::prepare {
namespace {

constexpr int batch = 2, heads = 4;

struct Operand {
  int width;
  int group = 1;          // heads that share one
  int height = 0;         // of a matrix
  bool per_token = true;  // false: [H, width] or [H, height, width]
  bool differentiable = true;

  int own() const { return heads / group; }
  std::size_t size(int time) const {
    return static_cast<std::size_t>((per_token ? batch * time : 1) * own() * std::max(height, 1) * width);
  }
  template <class T, class U>
  Rows<T> rows(std::vector<U>& data, int time) const {
    const int one = std::max(height, 1) * width;
    return {data.data(),
            per_token ? time * own() * one : 0,
            per_token ? own() * one : 0,
            one,
            1,
            group,
            width,
            width,
            std::max(height, 1)};
  }
};
Operand matrix(int rows, int columns, int group = 1) { return {columns, group, rows, false}; }
Operand per_head(int width, int group = 1) { return {width, group, 0, false}; }
Operand offset() { return {1, 4, 0, true, false}; }
Operand given(int width) { return {width, 1, 0, true, false}; }

struct OpCase {
  Op op;
  std::vector<Operand> operands;
  int out;
  double number = 0;
  double low = 0.1, high = 0.9;  // of the operands
  int from_time = 3, to_time = 3;
  int out_height = 0;  // of a result that is a matrix
};
OpCase to_matrix(OpCase c, int height) {
  c.out_height = height;
  return c;
}
void PrintTo(const OpCase& c, std::ostream* to) { *to << name(c.op) << ", number " << c.number; }

// The tensors of a case, filled with the same numbers in either type.
template <class T>
struct Trial {
  explicit Trial(const OpCase& c) : op(c) {
    std::mt19937 random(7);
    std::uniform_real_distribution<double> uniform(c.low, c.high), upstream(-0.5, 0.5);
    for (const Operand& operand : c.operands) {
      from.emplace_back(operand.size(c.from_time));
      for (T& value : from.back()) value = static_cast<T>(static_cast<float>(uniform(random)));
      d_from.emplace_back(from.back().size(), T(0.25));  // gradients are added to what is there
    }
    to.resize(result().size(c.to_time)), d_to.resize(to.size());
    for (T& value : d_to) value = static_cast<T>(static_cast<float>(upstream(random)));
    for (std::size_t i = 0; i < from.size(); ++i) {
      rows.push_back(c.operands[i].template rows<const T>(from[i], c.from_time));
      d_rows.push_back(c.operands[i].template rows<T>(d_from[i], c.from_time));
    }
  }
  Trial(const Trial&) = delete;  // rows point into it

  const OpCase& op;
  std::vector<std::vector<T>> from, d_from;
  std::vector<T> to, d_to;
  std::vector<Rows<const T>> rows;
  std::vector<Rows<T>> d_rows;

  Operand result() const { return {op.out, 1, op.out_height}; }
  Extent extent() const { return {batch, op.to_time, heads}; }
  T loss() {
    const Rows<T> y = result().template rows<T>(to, op.to_time);
    EXPECT_EQ(forward<T>(op.op, rows.data(), y, op.number, extent()), Status::ok);
    T sum = 0;
    for (std::size_t i = 0; i < to.size(); ++i) sum += to[i] * d_to[i];
    return sum;
  }
  void back(const std::vector<Rows<T>>& wanted) {
    loss();
    gradients(wanted);
  }
  // Of the operands and the result as they are.
  void gradients(const std::vector<Rows<T>>& wanted) {
    backward<T>(op.op, rows.data(), result().template rows<const T>(to, op.to_time),
                result().template rows<const T>(d_to, op.to_time), wanted.data(), op.number, extent());
  }
};

class Operations : public testing::TestWithParam<OpCase> {};

TEST_P(Operations, GradientsEqualCentralDifferences) {
  const OpCase& c = GetParam();
  Trial<double> run(c);
  run.back(run.d_rows);
  for (std::size_t operand = 0; operand < run.from.size(); ++operand)
    for (std::size_t i = 0; i < run.from[operand].size(); i += c.operands[operand].per_token ? 5 : 1) {
      const double gradient = run.d_from[operand][i] - 0.25;
      if (!c.operands[operand].differentiable) {
        EXPECT_EQ(gradient, 0);
        continue;
      }
      double& x = run.from[operand][i];
      const double start = x, step = 1e-6;
      x = start + step;
      const double up = run.loss();
      x = start - step;
      const double down = run.loss();
      x = start;
      const double numeric = (up - down) / (2 * step);
      EXPECT_NEAR(gradient, numeric, 1e-7 * std::max(1.0, std::abs(numeric)))
          << "operand " << operand << " element " << i;
    }
}

TEST_P(Operations, FloatAgreesWithDouble) {
  Trial<double> exact(GetParam());
  Trial<float> single(GetParam());
  exact.back(exact.d_rows), single.back(single.d_rows);
  const auto near = [](const std::vector<float>& a, const std::vector<double>& b) {
    double largest = 0;
    for (const double value : b) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < b.size(); ++i)
      EXPECT_NEAR(a[i], b[i], 3e-6 * std::max(1.0, largest)) << "element " << i;
  };
  near(single.to, exact.to);
  for (std::size_t i = 0; i < exact.d_from.size(); ++i) near(single.d_from[i], exact.d_from[i]);
}

// An operand whose gradient is not wanted is left alone, and the others get the same bits.
TEST_P(Operations, EachGradientAlone) {
  Trial<double> together(GetParam());
  together.back(together.d_rows);
  for (std::size_t i = 0; i < together.from.size(); ++i) {
    Trial<double> alone(GetParam());
    std::vector<Rows<double>> one(alone.d_rows.size());
    one[i] = alone.d_rows[i];
    alone.back(one);
    EXPECT_EQ(alone.d_from[i], together.d_from[i]) << "operand " << i;
  }
}

// The facts backward_reads_operand and backward_reads_result, both ways: NaN in what is not read changes no bit of any
// gradient, NaN in what is read changes some.
template <class T>
void expect_reads_what_it_says(const OpCase& c) {
  const int result = static_cast<int>(c.operands.size());
  Trial<T> clean(c);
  clean.back(clean.d_rows);
  for (int poisoned = 0; poisoned <= result; ++poisoned) {
    Trial<T> run(c);
    run.loss();
    std::vector<T>& numbers = poisoned == result ? run.to : run.from[static_cast<std::size_t>(poisoned)];
    std::fill(numbers.begin(), numbers.end(), std::numeric_limits<T>::quiet_NaN());
    run.gradients(run.d_rows);
    const bool reads = poisoned == result ? backward_reads_result(c.op) : backward_reads_operand(c.op, poisoned);
    const std::string what = poisoned == result ? "the result" : "operand " + std::to_string(poisoned);
    EXPECT_EQ(run.d_from != clean.d_from, reads) << what << (reads ? " is not read" : " is read");
  }
}
TEST_P(Operations, GradientsReadWhatTheFactsSay) {
  expect_reads_what_it_says<float>(GetParam());
  expect_reads_what_it_says<double>(GetParam());
}

const OpCase arithmetic[] = {{Op::multiply, {{3}, {3, 2}}, 3},
                             {Op::multiply, {{3}, {1, 2}}, 3},
                             {Op::negative_product, {{3}, {3, 2}}, 3},
                             {Op::add, {{3}, {1, 2}}, 3},
                             {Op::subtract, {{3}, {3, 2}}, 3},
                             {Op::divide, {{3}, {1, 2}}, 3},
                             {Op::divide, {{3}, {3, 2}}, 3},
                             {Op::scale, {{3}}, 3, -1.7},
                             {Op::skip, {{3}, {3, 2}, {1}}, 3},
                             {Op::blend_product, {{3}, {3, 2}, per_head(3)}, 3},
                             {Op::blend_product, {{3}, {1}, {1, 2}}, 3},
                             {Op::bonus_value, {{3, 2}, {3, 2}, per_head(3), {5}}, 5},
                             {Op::spread_last, {{3, 2}}, 3, 4, -1, 1, 3, 12},
                             {Op::spread_first, {{3}}, 3, 2, -1, 1, 3, 6},
                             {Op::take_last, {{3, 2}}, 3, 3, -1, 1, 9, 3},
                             {Op::skip, {{3}, {3, 2}, per_head(3)}, 3},
                             {Op::skip, {{3}, {3}, per_head(1)}, 3},
                             {Op::add, {{5}, per_head(5, 4)}, 5},
                             {Op::interleave, {{3}, {3, 2}}, 3, 0, -1, 1, 3, 6},
                             {Op::silu_gate, {{5}, {5, 2}}, 5, 0, -3, 3},
                             {Op::silu_gate, {{3, 2}, {1}}, 3, 0, -3, 3},
                             {Op::join_three, {{1}, {1, 2}, {1}}, 3},
                             {Op::first_half, {{6, 2}}, 3},
                             {Op::second_half, {{6}}, 3},
                             to_matrix({Op::outer_product, {{3, 2}, matrix(5, 3)}, 3, 0, -1, 1}, 5),
                             to_matrix({Op::outer_product, {{3}, matrix(2, 3, 4)}, 3, 0, -1, 1}, 2)};

const OpCase norms[] = {{Op::unit_norm, {{5}}, 5},
                        {Op::unit_norm, {{5}}, 5, 0.1},
                        {Op::rms_norm, {{5}}, 5},
                        {Op::rms_norm, {{5}}, 5, 0.1},
                        {Op::unit_norm_clamp, {{5}}, 5, 1e-12, -1, 1},
                        {Op::unit_norm_clamp, {{5}}, 5, 10, -1, 1},
                        {Op::sum_norm, {{5, 2}}, 5},
                        {Op::layer_norm, {{5}, per_head(5, 4), per_head(5, 4)}, 5, 1e-5, -1, 1},
                        {Op::layer_norm, {{5, 2}, per_head(5), per_head(5)}, 5, 0.1, -1, 1},
                        {Op::rms_norm_weighted, {{5}, per_head(5, 4)}, 5, 1e-5, -1, 1},
                        {Op::rms_gate_norm_first_silu, {{5}, {5, 2}, per_head(5, 4)}, 5, 1e-5, -1, 1},
                        {Op::rms_gate_norm_first_sigmoid, {{5}, {5, 2}, per_head(5, 4)}, 5, 1e-5, -1, 1},
                        {Op::rms_gate_gate_first_silu, {{5}, {5, 2}, per_head(5, 4)}, 5, 0.1, -1, 1},
                        {Op::rms_gate_gate_first_sigmoid, {{5, 2}, {5}, per_head(5)}, 5, 1e-5, -1, 1},
                        {Op::square_norm, {{4}}, 1},
                        {Op::softmax, {{5, 2}}, 5, 0, -2, 2},
                        {Op::softmax, {{1}}, 1, 0, -2, 2}};

const OpCase gates[] = {{Op::nlms_step, {{1}, {4, 2}}, 1, 0.2},
                        {Op::longhorn_step, {{1}, {4, 2}}, 1},
                        {Op::flow_step, {{1}, {4, 2}}, 1},
                        {Op::repeated_step, {{1}, {4, 2}}, 1, 1},
                        {Op::repeated_step, {{1}, {4, 2}}, 1, 7},
                        {Op::repeated_step, {{1}, {3}}, 1, 12, 0.01, 0.3},
                        {Op::leak_gate, {{1}, {1, 2}}, 1},
                        {Op::shrink_gate, {{1}}, 1},
                        {Op::sigmoid, {{3, 2}}, 3, 0, -4, 4},
                        {Op::log_sigmoid, {{3, 2}}, 3, 16, -4, 4},
                        {Op::log_sigmoid, {{3}}, 3, 0, -4, 4},
                        {Op::softplus, {{3}}, 3, 0, -4, 4},
                        {Op::exp_negative, {{3}}, 3, 0, -2, 2},
                        {Op::one_minus_exp, {{3}}, 3, 0, -2, 0},
                        {Op::lower_bound_gate, {{3}, per_head(3)}, 3},
                        {Op::lower_bound_gate, {{3}, {1, 2}}, 3},
                        {Op::exp, {{5, 2}}, 5, 0, -2, 2},
                        {Op::log, {{5, 2}}, 5},
                        {Op::log_magnitude, {{5, 2}}, 5},
                        {Op::log_magnitude, {{3}}, 3, 0, -2, -0.1},
                        {Op::twice_less_one, {{3, 2}}, 3, 0, -2, 0},
                        {Op::precondition, {{5}, per_head(1)}, 5, 0, 0.05, 3},
                        {Op::precondition, {{3, 2}, {1}}, 3},
                        {Op::decay_rate_gate, {{5}, per_head(5)}, 5, 0, -3, 3},
                        {Op::decay_rate_gate, {{3, 2}, per_head(3, 4)}, 3, 0, -3, 3},
                        {Op::root_complement, {{5, 2}}, 5, 0, -2, -0.1},
                        {Op::phase_step, {{5}, {1, 2}}, 5, 0, -2, 2},
                        {Op::implicit_step, {{5, 2}, {1}}, 5},
                        to_matrix({Op::erase_log, {{5, 2}, {3}}, 3}, 5),
                        to_matrix({Op::erase_log, {{1}, {3, 4}}, 3, 0, -0.9, 0.9}, 1)};

const OpCase maps[] = {{Op::elu1, {{4, 2}}, 4, 0, -1, 1},
                       {Op::relu, {{4}}, 4, 0, -1, 1},
                       {Op::silu, {{4}}, 4, 0, -3, 3},
                       {Op::cosformer, {{3, 2}, offset()}, 6, 11, -1, 1},
                       {Op::dpfp, {{3}}, 6, 0, -1, 1},
                       {Op::dpfp, {{2, 2}}, 20, 0, -1, 1},
                       {Op::taylor2, {{4, 2}}, 15, 0, -1, 1},
                       {Op::rebased, {{4}, per_head(4, 4), per_head(4)}, 10, 0, -1, 1},
                       {Op::quadratic, {{5, 2}}, 15, 0, -1, 1},
                       {Op::quadratic, {{1}}, 1, 0, -1, 1},
                       {Op::project, {{5}, matrix(4, 5)}, 4, 0, -1, 1},
                       {Op::project, {{3, 2}, matrix(7, 3, 4)}, 7, 0, -1, 1},
                       {Op::rotate, {{7, 2}, {2}}, 7, 0, -3, 3},
                       {Op::rotate, {{4}, {2, 4}}, 4, 0, -3, 3},
                       {Op::polynomial, {{3}}, 10, 2, -1, 1},
                       {Op::polynomial, {{3, 2}}, 20, 3, -1, 1},
                       {Op::t2r, {{5}, matrix(4, 5), per_head(4)}, 4, 0, -1, 1},
                       {Op::t2r, {{3, 2}, matrix(4, 3, 4), per_head(4, 4)}, 4, 0, -1, 1},
                       {Op::hedgehog_exp, {{6}, matrix(4, 6), per_head(4)}, 8, 0, -1, 1},
                       {Op::hedgehog_softmax, {{3, 2}, matrix(3, 3), per_head(3)}, 6, 0, -1, 1},
                       {Op::hedgehog_softmax2, {{3}, matrix(3, 3, 2), per_head(3)}, 6, 0, -1, 1},
                       {Op::favor, {{5}, matrix(4, 5, 4)}, 4, 0, -1, 1},
                       {Op::favor_relu, {{5, 2}, matrix(4, 5)}, 4, 0, -1, 1},
                       {Op::rfa, {{3}, matrix(4, 3, 4)}, 8, 0, -1, 1},
                       {Op::dijiang, {{3, 2}, matrix(3, 4, 4)}, 4, 0, -1, 1},
                       {Op::rotary_interleaved, {{6, 2}, offset()}, 6, 100, -1, 1},
                       {Op::rotary_interleaved, {{5}, offset()}, 5, 100, -1, 1},
                       {Op::rotary_half, {{6}, offset()}, 6, 100, -1, 1},
                       {Op::rotary_half, {{7, 2}, offset()}, 7, 100, -1, 1}};

const OpCase parts[] = {{Op::zero, {}, 3},
                        {Op::copy, {{3, 2}}, 3},
                        {Op::negate, {{3}}, 3},
                        {Op::relu_times, {{5, 2}, given(5)}, 5, 0, -1, 1},
                        {Op::with_sign, {{5, 2}, given(5)}, 5, 0, -1, 1},
                        {Op::turn_first, {{5}, {5, 2}, given(5), given(5)}, 5, 0, -1, 1},
                        {Op::turn_second, {{5, 2}, {5}, given(5), given(5)}, 5, 0, -1, 1},
                        {Op::turn_pairs, {{6, 2}, given(3), given(3)}, 6, 0, -1, 1},
                        {Op::rotate_pairs, {{6, 2}, {3}}, 6, 0, -3, 3}};

TEST(OperationCases, EveryOperationIsTested) {
  std::vector<bool> seen(op_count);
  for (const auto& list : {std::span<const OpCase>(arithmetic), {norms}, {gates}, {maps}, {parts}})
    for (const OpCase& c : list) {
      seen[static_cast<std::size_t>(c.op)] = true;
      EXPECT_EQ(static_cast<int>(c.operands.size()), facts(c.op).operands) << name(c.op);
    }
  for (int i = 0; i < op_count; ++i) EXPECT_TRUE(seen[static_cast<std::size_t>(i)]) << name(static_cast<Op>(i));
}

INSTANTIATE_TEST_SUITE_P(Arithmetic, Operations, testing::ValuesIn(arithmetic));
INSTANTIATE_TEST_SUITE_P(Norms, Operations, testing::ValuesIn(norms));
INSTANTIATE_TEST_SUITE_P(Gates, Operations, testing::ValuesIn(gates));
INSTANTIATE_TEST_SUITE_P(Maps, Operations, testing::ValuesIn(maps));
INSTANTIATE_TEST_SUITE_P(Parts, Operations, testing::ValuesIn(parts));

}  // namespace
}  // namespace ttr::prepare
