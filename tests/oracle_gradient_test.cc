// Properties every design must have: gradients equal finite differences, a sequence split anywhere gives what the
// whole gives, heads do not see one another, and a call without tokens changes nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "oracle_cases.h"

namespace ttr::oracle {
namespace {

using cases::Named;

Sizes small_sizes(const Design& d) {
  Sizes s;
  s.heads = 2, s.key_heads = 1, s.key_dim = 3, s.value_dim = 2, s.scale = 0.7;
  if (d.memory.kind == Memory::Class::layernorm_linear || d.memory.residual) s.value_dim = 3;
  return s;
}

/// The state after a few tokens, so that nothing in it is trivial.
Arrays warm_state(const Design& d, Sizes sizes, std::int64_t tokens) {
  Arrays state = fresh_state(d, sizes);
  sizes.time = tokens;
  forward(d, sizes, cases::random_inputs(d, sizes, 99), state);
  return state;
}

double weighted_sum(const Array& a, const Array& weight) {
  double sum = 0;
  for (std::size_t i = 0; i < a.data.size(); ++i) sum += a.data[i] * weight.data[i];
  return sum;
}

double largest(const Array& a) {
  double m = 0;
  for (double x : a.data) m = std::max(m, std::abs(x));
  return m;
}

void expect_near(const Array& a, const Array& b, double tolerance, const std::string& what) {
  ASSERT_EQ(a.extent, b.extent) << what;
  const double scale = std::max(1.0, largest(b));
  for (std::size_t i = 0; i < a.data.size(); ++i)
    ASSERT_NEAR(a.data[i], b.data[i], tolerance * scale) << what << " at " << i;
}

class EveryDesign : public testing::TestWithParam<Named> {};

TEST_P(EveryDesign, GradientsEqualFiniteDifferences) {
  const Design& d = GetParam().design;
  Sizes sizes = small_sizes(d);
  const Arrays start = warm_state(d, sizes, 5);
  sizes.time = 10;  // two segments of the backward
  const Arrays inputs = cases::random_inputs(d, sizes, 1);
  cases::Random random(7);
  Arrays end = start;
  const Array o = forward(d, sizes, inputs, end).at("o");
  const Array d_o = cases::make_array(o.extent, [&] { return random.normal(); });
  Arrays d_state;
  for (const auto& [name, array] : end)
    if (name != "position" && name != "count")
      d_state[name] = cases::make_array(array.extent, [&] { return random.normal(); });
  const Arrays gradients = backward(d, sizes, inputs, start, d_o, d_state);

  auto loss = [&](const Arrays& in, Arrays state) {
    double sum = weighted_sum(forward(d, sizes, in, state).at("o"), d_o);
    for (const auto& [name, weight] : d_state) sum += weighted_sum(state.at(name), weight);
    return sum;
  };
  auto check = [&](const std::string& name, const Array& gradient,
                   const std::function<double(const Array&)>& moved_loss, const Array& at) {
    ASSERT_EQ(gradient.extent, at.extent) << name;
    if (at.data.empty()) return;
    const Array direction = cases::make_array(at.extent, [&] { return random.normal(); });
    auto slope = [&](double h) {
      Array up = at, down = at;
      for (std::size_t i = 0; i < at.data.size(); ++i)
        up.data[i] += h * direction.data[i], down.data[i] -= h * direction.data[i];
      return (moved_loss(up) - moved_loss(down)) / (2 * h);
    };
    // Steps from 1e-3 downwards, extrapolated pairwise; the pair that agrees best with its neighbour counts. Muon's
    // steep derivative at small singular values needs the smaller ones.
    double expected = 0, best = HUGE_VAL, previous = 0, before = 0;
    for (int n = 0; n < 8; ++n) {
      const double now = slope(1e-3 * std::pow(4.0, -n)), better = (16 * now - before) / 15;
      if (n > 1 && std::abs(better - previous) < best) best = std::abs(better - previous), expected = better;
      before = now, previous = better;
    }
    const double got = weighted_sum(gradient, direction);
    double scale = 1;
    for (std::size_t i = 0; i < at.data.size(); ++i) scale += std::abs(gradient.data[i] * direction.data[i]);
    EXPECT_NEAR(got, expected, 1e-6 * scale) << name;
  };
  for (const auto& [name, array] : inputs)
    check(
        name, gradients.at(name),
        [&, n = name](const Array& a) {
          Arrays in = inputs;
          in[n] = a;
          return loss(in, start);
        },
        array);
  for (const auto& [name, array] : start) {
    if (name == "position" || name == "count") continue;
    check(
        "state." + name, gradients.at("state." + name),
        [&, n = name](const Array& a) {
          Arrays state = start;
          state[n] = a;
          return loss(inputs, state);
        },
        array);
  }
}

TEST_P(EveryDesign, SplitAnywhereEqualsWhole) {
  const Design& d = GetParam().design;
  Sizes sizes = small_sizes(d);
  sizes.time = 7;
  const Arrays inputs = cases::random_inputs(d, sizes, 3);
  const Arrays start = fresh_state(d, sizes);
  Arrays whole_state = start;
  const Array whole = forward(d, sizes, inputs, whole_state).at("o");
  EXPECT_GT(largest(whole), 0);
  for (std::int64_t cut = 0; cut <= sizes.time; ++cut) {
    Arrays state = start;
    Sizes first = sizes, second = sizes;
    first.time = cut, second.time = sizes.time - cut;
    Array o = forward(d, first, cases::part_of(d, inputs, 0, cut), state).at("o");
    const Array rest = forward(d, second, cases::part_of(d, inputs, cut, sizes.time), state).at("o");
    o.extent = whole.extent;
    o.data.insert(o.data.end(), rest.data.begin(), rest.data.end());
    expect_near(o, whole, 1e-12, "o, cut at " + std::to_string(cut));
    for (const auto& [name, array] : whole_state) expect_near(state.at(name), array, 1e-12, name);
  }
}

TEST_P(EveryDesign, LaterTokensDoNotChangeEarlierOutputs) {
  const Design& d = GetParam().design;
  Sizes sizes = small_sizes(d);
  sizes.time = 6;
  Arrays inputs = cases::random_inputs(d, sizes, 5), other = cases::random_inputs(d, sizes, 6);
  for (const DesignInput& input : inputs_of(d)) {
    Array& b = other.at(input.name);
    const Array& a = inputs.at(input.name);
    const std::size_t same = input.timed() ? a.data.size() * 4 / 6 : a.data.size();  // the first four tokens
    std::copy(a.data.begin(), a.data.begin() + static_cast<std::ptrdiff_t>(same), b.data.begin());
  }
  Arrays s1 = fresh_state(d, sizes), s2 = s1;
  const Array o1 = forward(d, sizes, inputs, s1).at("o"), o2 = forward(d, sizes, other, s2).at("o");
  for (std::size_t i = 0; i < o1.data.size() * 4 / 6; ++i) ASSERT_EQ(o1.data[i], o2.data[i]) << i;
}

TEST_P(EveryDesign, NotANumberStaysInItsHead) {
  const Design& d = GetParam().design;
  Sizes sizes = small_sizes(d);
  sizes.key_heads = 2, sizes.time = 3;
  Arrays inputs = cases::random_inputs(d, sizes, 8);
  Arrays clean_state = fresh_state(d, sizes), state = clean_state;
  const Array clean = forward(d, sizes, inputs, clean_state).at("o");
  Array& v = inputs.at("v");  // head 1 of token 0
  v.data[static_cast<std::size_t>(sizes.value_dim)] = std::nan("");
  const Array o = forward(d, sizes, inputs, state).at("o");
  bool poisoned = false;
  for (std::size_t i = 0; i < o.data.size(); ++i) {
    const bool first_head = (i / static_cast<std::size_t>(sizes.value_dim)) % 2 == 0;
    if (first_head) ASSERT_EQ(o.data[i], clean.data[i]);
    else poisoned = poisoned || std::isnan(o.data[i]);
  }
  EXPECT_TRUE(poisoned);
}

TEST(OracleBackward, WithoutTokensTheStateIsHandedThrough) {
  const Design d = cases::make([](Design& x) { cases::sgd(x), x.solver.momentum = cases::input(); });
  Sizes sizes = small_sizes(d);
  const Arrays start = warm_state(d, sizes, 3), inputs = cases::random_inputs(d, sizes, 1);
  const Array none{{0, sizes.heads, sizes.value_dim}, {}};
  Arrays gradients = backward(d, sizes, inputs, start, none, {{"S", start.at("S")}});
  EXPECT_EQ(gradients.at("state.S").data, start.at("S").data);
  EXPECT_EQ(largest(gradients.at("state.Z")), 0);
  EXPECT_THROW(backward(d, sizes, inputs, start, none, {{"Q", start.at("S")}}), Error);
}

TEST(OracleBackward, AHistorySharedByAGroupIsCountedOnce) {
  const Design d = cases::make([](Design& x) {
    cases::near(x), cases::memory(x, Memory::Class::constant), x.solver.kind = Solver::Kind::exact;
  });
  Sizes sizes = small_sizes(d);
  sizes.heads = 4, sizes.key_heads = 2, sizes.time = 3;
  const Arrays inputs = cases::random_inputs(d, sizes, 2);
  const Array d_o{{3, 4, 2}, std::vector<double>(24, 0.0)};
  const Array ones{{3, 2, 3}, std::vector<double>(18, 1.0)};
  const Arrays gradients = backward(d, sizes, inputs, fresh_state(d, sizes), d_o, {{"k", ones}});
  EXPECT_EQ(gradients.at("k").data, ones.data);  // the final state holds the keys themselves
}

INSTANTIATE_TEST_SUITE_P(Oracle, EveryDesign, testing::ValuesIn(cases::all_designs()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace ttr::oracle
