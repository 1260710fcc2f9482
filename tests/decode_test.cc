// One token at a time against one call for all, with more heads than a step takes at once and with groups of heads
// that do and do not fit it: the same bits where the state is a matrix, rounding where it is a list of pairs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ttr/ttr.h"

namespace {

using namespace ttr;

struct Heads {
  int heads, key_heads;
};

template <class T>
struct Numbers {
  std::vector<T> data;
  std::vector<std::ptrdiff_t> extent;
  std::ptrdiff_t time_axis = -1;

  Numbers() = default;
  Numbers(const Plan& plan, const std::string& shape, std::int64_t time) : extent(plan.extents(shape, time)) {
    std::ptrdiff_t count = 1;
    for (const std::ptrdiff_t e : extent) count *= e;
    data.assign(static_cast<std::size_t>(count), T(0));
    if (const std::size_t axis = Axes(shape).find('T'); axis != Axes::npos)
      time_axis = static_cast<std::ptrdiff_t>(axis);
  }
  /// Token t, or (t < 0) all.
  Tensor tensor(std::ptrdiff_t t) {
    Tensor x;
    x.type = type_of<T>, x.rank = static_cast<int>(extent.size());
    std::ptrdiff_t step = 1, offset = 0;
    for (std::size_t d = extent.size(); d-- > 0;) {
      x.extent[d] = extent[d], x.stride[d] = step;
      if (static_cast<std::ptrdiff_t>(d) == time_axis && t >= 0) x.extent[d] = 1, offset = t * step;
      step *= extent[d];
    }
    x.data = data.data() + offset;
    return x;
  }
};

template <class T>
void compare(const std::string& layer, Heads heads, int K, int V, double tolerance) {
  constexpr std::int64_t time = 5;
  Options options;
  options.type = type_of<T>;
  const Plan plan = ttr::plan(layer, {1, heads.heads, heads.key_heads, K, V}, options);
  SCOPED_TRACE(testing::Message() << layer << " heads " << heads.heads << " of " << heads.key_heads << " K " << K
                                  << " V " << V);
  std::mt19937 rng(3);
  std::normal_distribution<double> normal;
  std::map<std::string, Numbers<T>> in, whole, single;
  for (const InputInfo& info : plan.inputs()) {
    Numbers<T>& x = in[info.name] = Numbers<T>(plan, info.shape, time);
    for (T& y : x.data) {
      const double z = normal(rng);
      const bool gate = info.range == Range::log_gate || info.range == Range::negative;
      const bool share = info.range == Range::sigmoid || info.range == Range::positive;
      y = static_cast<T>(gate ? -0.1 * std::abs(z) : share ? 1 / (1 + std::exp(-z)) : z / std::sqrt(double(K)));
    }
  }
  for (const InputInfo& info : plan.outputs())
    whole[info.name] = single[info.name] = Numbers<T>(plan, info.shape, time);
  const Footprint bytes = plan.footprint(time);
  std::vector<std::byte> state(bytes.state), work(bytes.workspace), other = state;
  const auto run = [&](std::vector<std::byte>& to, std::map<std::string, Numbers<T>>& out, std::ptrdiff_t t) {
    Inputs inputs;
    Outputs outputs;
    for (auto& [name, x] : in) inputs[name] = x.tensor(x.time_axis < 0 ? -1 : t);
    for (auto& [name, x] : out) outputs[name] = x.tensor(t);
    const State s{to.data(), to.size()};
    return t < 0 ? plan.forward(inputs, s, outputs, {work.data(), work.size()}, Form::recurrent)
                 : plan.step(inputs, s, outputs, {work.data(), work.size()});
  };
  ASSERT_EQ(plan.reset({state.data(), state.size()}), Status::ok);
  ASSERT_EQ(plan.reset({other.data(), other.size()}), Status::ok);
  ASSERT_EQ(run(state, whole, -1), Status::ok);
  for (std::ptrdiff_t t = 0; t < time; ++t) ASSERT_EQ(run(other, single, t), Status::ok);
  for (auto& [name, x] : whole)
    for (std::size_t i = 0; i < x.data.size(); ++i) {
      ASSERT_TRUE(std::isfinite(x.data[i]));
      ASSERT_NEAR(x.data[i], single[name].data[i], tolerance) << name << " " << i;
    }
  EXPECT_TRUE(state == other);
}

constexpr Heads all_heads[] = {{1, 1}, {17, 17}, {40, 2}, {36, 12}, {35, 7}};

TEST(Decode, AStepHasTheBitsOfTheRecurrentForm) {
  for (const std::string layer :
       {"retnet", "deltanet", "gated-deltanet", "gla", "rwkv-6", "kda", "dplr", "rwkv-7", "momentum-deltanet"})
    for (Heads heads : all_heads)
      for (const auto& [K, V] : {std::pair{4, 3}, {16, 64}, {7, 37}}) {
        if (layer == "rwkv-7") heads.key_heads = heads.heads;  // it has no groups
        compare<float>(layer, heads, K, V, 0);
        compare<double>(layer, heads, K, V, 0);
        if (HasFatalFailure()) return;
      }
}

// Groups larger than a block of pairs, which a window makes small.
TEST(Decode, HeadsOfAGroupShareTheirPairs) {
  for (const char* layer : {"softmax-attention", "softmax-attention:window=3", "forgetting-attention"})
    for (const Heads heads : {Heads{1, 1}, {5, 5}, {6, 2}, {40, 2}, {140, 2}}) {
      compare<float>(layer, heads, 8, 21, 2e-6);
      compare<double>(layer, heads, 8, 21, 1e-14);
      if (HasFatalFailure()) return;
    }
}

}  // namespace
