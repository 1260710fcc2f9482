// Operations that one pass computes together have the bits of one after the other, for any width and stride, on every
// instruction set.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "prepare/joint.h"
#include "simd/simd.h"

namespace ttr::prepare {
namespace {

using Size = std::ptrdiff_t;

constexpr Size batch = 2, time = 3, heads = 5;

// [batch, time, heads, width], or [heads, width] of a parameter, with `step` numbers from one to the next.
template <class T>
struct Tensor {
  Tensor(int width, Size step, bool per_token, std::mt19937* from) : width_(width), step_(step), own_(per_token) {
    numbers.resize(static_cast<std::size_t>((per_token ? batch * time : 1) * heads * width * step), T(7));
    std::normal_distribution<double> normal;
    if (from)
      for (T& x : numbers) x = static_cast<T>(normal(*from));
  }
  template <class N>
  Rows<N> rows() {
    const Size row = width_ * step_, token = heads * row;
    return {numbers.data(), own_ ? time * token : 0, own_ ? token : 0, row, step_, 1, width_};
  }
  std::vector<T> numbers;

 private:
  int width_;
  Size step_;
  bool own_;
};

template <class T>
void compare(int K, int V, Size step, const Simd<T>& simd, bool with_bonus) {
  SCOPED_TRACE(testing::Message() << "K " << K << " V " << V << " step " << step << " " << simd.name);
  std::mt19937 random(static_cast<unsigned>(K * 131 + V));
  Tensor<T> raw(K, step, true, &random), rate(K, step, true, &random), query(K, step, true, &random),
      value(V, step, true, &random), scale(K, step, false, &random), blend(K, step, false, &random),
      weight(K, step, false, &random);
  for (int i = 0; i < K; ++i) raw.numbers[static_cast<std::size_t>(i * step)] = 0;  // a row of zeros
  const Extent extent{batch, time, heads};
  const double floor = 1e-12;
  Tensor<T> product(K, step, true, nullptr), read(K, step, true, nullptr), write(K, step, true, nullptr),
      erase(K, step, true, nullptr), bonus(V, step, true, nullptr);
  const auto run = [&](Op op, std::vector<Rows<const T>> from, Tensor<T>& to, double number = 0) {
    EXPECT_EQ(forward(op, from.data(), to.template rows<T>(), number, extent, &simd), Status::ok);
  };
  const auto c = [](Tensor<T>& x) { return x.template rows<const T>(); };
  run(Op::multiply, {c(raw), c(scale)}, product);
  run(Op::unit_norm_clamp, {c(product)}, read, floor);
  run(Op::blend_product, {c(raw), c(rate), c(blend)}, write);
  run(Op::negative_product, {c(read), c(rate)}, erase);
  run(Op::bonus_value, {c(query), c(write), c(weight), c(value)}, bonus);

  Tensor<T> own_read(K, step, true, nullptr), own_write(K, step, true, nullptr), own_erase(K, step, true, nullptr),
      own_bonus(V, step, true, nullptr);
  JointKeys<T> keys;
  keys.raw = c(raw), keys.scale = c(scale), keys.rate = c(rate), keys.blend = c(blend), keys.floor = floor;
  keys.read = own_read.template rows<T>(), keys.write = own_write.template rows<T>();
  keys.erase = own_erase.template rows<T>();
  if (with_bonus) {
    keys.query = c(query), keys.weight = c(weight), keys.value = c(value);
    keys.bonus = own_bonus.template rows<T>();
  }
  joint_keys(keys, extent, &simd);
  const auto same = [](const Tensor<T>& a, const Tensor<T>& b) {
    return std::memcmp(a.numbers.data(), b.numbers.data(), a.numbers.size() * sizeof(T)) == 0;
  };
  EXPECT_TRUE(same(own_read, read));
  EXPECT_TRUE(same(own_write, write));
  EXPECT_TRUE(same(own_erase, erase));
  if (with_bonus) EXPECT_TRUE(same(own_bonus, bonus));
  else EXPECT_TRUE(same(own_bonus, Tensor<T>(V, step, true, nullptr)));
}

template <class T>
void compare_all() {
  for (const std::string& name : simd_targets()) {
    const Simd<T>& simd = ttr::simd<T>(name);
    for (const int K : {1, 3, 8, 16, 17, 33, 64, 100})
      for (const Size step : {1, 2}) compare<T>(K, K + 2, step, simd, K % 2 == 0), compare<T>(K, 5, step, simd, true);
  }
}

TEST(JointKeys, BitsOfTheOperationsOneByOneFloat) { compare_all<float>(); }
TEST(JointKeys, BitsOfTheOperationsOneByOneDouble) { compare_all<double>(); }

}  // namespace
}  // namespace ttr::prepare
