// A skip behind a kernel, y = o + D v, is added by the kernel itself in a forward pass: the bits are those of the kernel
// without it and one multiply-add, in every form, on any number of threads, token by token.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "cli/runner.h"
#include "ttr/ttr.h"

namespace ttr {
namespace {

using cli::NamedNumbers;
using cli::Numbers;
using cli::Runner;

template <class T>
void compare(int heads, int key_heads, int key_dim, int value_dim, std::int64_t time, int threads) {
  SCOPED_TRACE(testing::Message() << heads << " heads on " << key_heads << ", " << key_dim << " x " << value_dim
                                  << ", " << time << " tokens, " << threads << " threads");
  Options options;
  options.type = sizeof(T) == 4 ? Type::f32 : Type::f64, options.threads = threads;
  const Shape shape{2, heads, key_heads, key_dim, value_dim};
  const Runner with(plan("mamba-2", shape, options), time), without(plan("mamba-2:skip=none", shape, options), time);
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  NamedNumbers inputs;
  for (const InputInfo& info : with.plan().inputs()) {
    Numbers& x = inputs[info.name];
    x.resize(cli::count(with.plan(), info.shape, time));
    for (double& number : x) {
      number = static_cast<T>(normal(random));
      if (info.name == "A") number = -std::abs(number);
      if (info.name == "dt") number = std::abs(number);
    }
  }
  NamedNumbers less = inputs;
  less.erase("D");
  const auto check = [&](const cli::Forward& got, const cli::Forward& plain) {
    const Numbers &y = got.outputs.at("y"), &o = plain.outputs.at("y"), &x = inputs.at("x"), &D = inputs.at("D");
    ASSERT_EQ(y.size(), o.size());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t head = i / static_cast<std::size_t>(value_dim) % static_cast<std::size_t>(heads);
      const T d = static_cast<T>(D[head]), v = static_cast<T>(x[i]), before = static_cast<T>(o[i]);
      volatile T product = d * v;  // two roundings where the instruction set has no fused multiply-add
      if (static_cast<T>(y[i]) != product + before) {
        ASSERT_EQ(static_cast<T>(y[i]), std::fma(d, v, before)) << i;
      }
    }
    EXPECT_EQ(got.state, plain.state);
  };
  for (const Form form : {Form::best, Form::recurrent, Form::chunk, Form::parallel, Form::scan}) {
    SCOPED_TRACE(static_cast<int>(form));
    check(with.forward(inputs, {}, form), without.forward(less, {}, form));
  }
  check(with.step_by_step(inputs, {}), without.step_by_step(less, {}));
}

TEST(Skip, IsAddedByTheKernelWithTheSameBits) {
  for (const int threads : {1, 2}) {
    compare<float>(3, 1, 5, 7, 70, threads);
    compare<float>(2, 2, 64, 64, 600, threads);
    compare<double>(4, 2, 16, 33, 90, threads);
  }
}

}  // namespace
}  // namespace ttr
