// A decoder against the whole sequence: for every layer of the table a prompt in one call and then token by token gives
// the outputs of one forward pass; and what a decoder promises besides.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "error_of.h"
#include "ttr/model.h"
#include "ttr/random.h"
#include "ttr/ttr.h"

namespace {

using namespace ttr::model;

constexpr int sequences = 2, time_ = 37;

// With the squared loss a session has the outputs of every token.
Config config_of(const std::string& stack) {
  Config c;
  c.stack = stack, c.vocabulary = 11, c.output_dim = 6, c.loss = "squared";
  c.width = 12, c.heads = 2, c.key_dim = 6, c.value_dim = 6, c.time = time_, c.mlp = "none";
  return c;
}

template <class T>
struct Whole {
  explicit Whole(const Config& c) : model(c, 3) {
    ttr::model::Random random(7, c.stack);
    for (T& x : model.values()) x += static_cast<T>(0.05 * random.normal());  // nothing stays zero or one
    const int rows = sequences * c.time;
    for (int i = 0; i < rows; ++i) {
      tokens.push_back(static_cast<std::int32_t>(random.below(11)));
      for (int j = 0; j < c.input_dim; ++j) numbers.push_back(static_cast<T>(random.normal()));
    }
    const std::vector<T> targets(static_cast<std::size_t>(rows * c.output_dim));
    Session<T> session(model, sequences, c.time);
    session.forward({.batch = sequences,
                     .time = c.time,
                     .tokens = tokens.data(),
                     .rows = numbers.data(),
                     .targets = targets.data()});
    outputs.assign(session.outputs().begin(), session.outputs().end());
  }
  /// Tokens begin .. begin + count of every sequence.
  std::span<const T> advance(Decoder<T>& decoder, int begin, int count) {
    const Config& c = model.config();
    some.clear(), some_numbers.clear();
    for (int b = 0; b < sequences; ++b)
      for (int t = begin; t < begin + count; ++t) {
        some.push_back(tokens[static_cast<std::size_t>(b * c.time + t)]);
        for (int j = 0; j < c.input_dim; ++j)
          some_numbers.push_back(numbers[static_cast<std::size_t>((b * c.time + t) * c.input_dim + j)]);
      }
    return decoder.advance({.batch = sequences, .time = count, .tokens = some.data(), .rows = some_numbers.data()});
  }
  /// Largest difference from token t of the whole, relative to its largest output.
  double error(std::span<const T> got, int t) const {
    const int out = model.config().output_dim;
    double largest = 0, worst = 0;
    for (int b = 0; b < sequences; ++b)
      for (int j = 0; j < out; ++j) {
        const T expected = outputs[static_cast<std::size_t>((b * model.config().time + t) * out + j)];
        const T answer = got[static_cast<std::size_t>(b * out + j)];
        largest = std::max(largest, static_cast<double>(std::abs(expected)));
        const auto apart = static_cast<double>(std::abs(answer - expected));
        worst = std::isfinite(apart) ? std::max(worst, apart) : INFINITY;
      }
    return worst / largest;
  }
  Model<T> model;
  std::vector<std::int32_t> tokens, some;
  std::vector<T> numbers, some_numbers, outputs;
};

template <class T>
void expect_same(const Config& c, double tolerance) {
  SCOPED_TRACE(c.stack);
  Whole<T> whole(c);
  Decoder<T> decoder(whole.model, sequences, c.time);
  for (int round = 0; round < 2; ++round) {  // the second after a reset
    decoder.reset();
    EXPECT_EQ(decoder.tokens(), 0);
    const int prompt = round == 0 ? c.time / 2 : 1;
    ASSERT_LT(whole.error(whole.advance(decoder, 0, prompt), prompt - 1), tolerance) << "prompt " << prompt;
    for (int t = prompt; t < c.time; ++t)
      ASSERT_LT(whole.error(whole.advance(decoder, t, 1), t), tolerance) << "token " << t;
    EXPECT_EQ(decoder.tokens(), c.time);
  }
}

// Layers that see all tokens of a call at once have no step; they are refused with a sentence.
bool has_step(const std::string& layer) {
  for (const std::string& form : ttr::find_layer(layer).forms)
    if (form == "step") return true;
  return false;
}

TEST(ModelDecoder, EveryLayer) {
  int count = 0, refused = 0;
  for (const ttr::LayerInfo& layer : ttr::layers()) {
    if (layer.recipe.empty()) continue;
    if (!has_step(layer.name)) {
      ++refused;
      const Model<double> model(config_of(layer.name), 1);
      EXPECT_NE(error_of([&] { Decoder<double>(model, 1, 8); }).find("token by token"), std::string::npos)
          << layer.name;
      continue;
    }
    ++count;
    expect_same<double>(config_of(layer.name), 1e-9 * layer.conditioning);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(count, 75);
  EXPECT_LT(refused, 6);
}

TEST(ModelDecoder, FloatHybridsAndRecipes) {
  expect_same<float>(config_of("gated-deltanet*2, softmax(window=8)"), 1e-4);
  expect_same<float>(config_of("rwkv-7, {gate / linear / sgd(beta)}(conv=2), softmax(rotary=yes)"), 1e-4);
  expect_same<double>(config_of("slstm, gated-deltanet, slstm(conv=0)"), 1e-12);
  Config c = config_of("mamba-2, gla");
  c.mlp = "swiglu";
  expect_same<float>(c, 1e-4);
  c.vocabulary = 0, c.input_dim = 3;
  expect_same<float>(c, 1e-4);
  c = config_of("rwkv-4, softmax");
  c.time = 600;  // a prompt of more than one piece
  expect_same<double>(c, 1e-9);
}

TEST(ModelDecoder, Promises) {
  Config c = config_of("softmax");
  const Model<float> pairs(c, 1);
  const std::vector<std::int32_t> tokens(64, 3);
  Decoder<float> short_one(pairs, 1, 8);
  EXPECT_TRUE(short_one.grows());
  const auto call = [&](Decoder<float>& decoder, int time) {
    return decoder.advance({.batch = 1, .time = time, .tokens = tokens.data()});
  };
  call(short_one, 8);
  EXPECT_NE(error_of([&] { call(short_one, 1); }).find("larger capacity"), std::string::npos);
  short_one.reset();
  call(short_one, 8);
  // A state of fixed size goes on for ever, and does not grow with the capacity.
  c.stack = "gated-deltanet";
  const Model<float> fixed(c, 1);
  Decoder<float> small(fixed, 1, 8), large(fixed, 1, 100000);
  EXPECT_FALSE(small.grows());
  EXPECT_EQ(small.state_bytes(), large.state_bytes());
  for (int i = 0; i < 5; ++i) call(small, 64);
  EXPECT_EQ(small.tokens(), 320);
  // Per sequence: heads K V and three rows of the convolution of q, k and v, as floats.
  EXPECT_EQ(fixed.state_numbers(100), 2 * 6 * 6 + 3 * (3 * 12));
  EXPECT_EQ(pairs.state_numbers(10), 10 * (12 + 12));
  EXPECT_EQ(Model<float>(config_of("softmax(window=4)")).state_numbers(10), 4 * (12 + 12));
  EXPECT_EQ(Model<float>(config_of("rwkv-7(shift=yes)")).state_numbers(10), 2 * 6 * 6 + 12);
  EXPECT_NE(error_of([&] { call(small, 0); }).find("at least one token"), std::string::npos);
  EXPECT_NE(error_of([&] { small.advance({.batch = 2, .time = 1, .tokens = tokens.data()}); }).find("2 sequences"),
            std::string::npos);
  std::vector<std::int32_t> bad = {1, 11};
  EXPECT_NE(error_of([&] { small.advance({.batch = 1, .time = 2, .tokens = bad.data()}); }).find("not below 11"),
            std::string::npos);
  EXPECT_NE(error_of([&] { Decoder<float>(fixed, 0, 8); }).find("at least one sequence"), std::string::npos);
}

}  // namespace
