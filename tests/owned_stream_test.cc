// ttr::Stream against the plan that it holds: the same bits, and nothing left behind by a query.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "error_of.h"
#include "ttr/ttr.h"

namespace {

constexpr ttr::Shape shape{2, 2, 0, 5, 5};  // networks that add their input want both alike

// Random inputs of `tokens` tokens, as a layer wants them, in the order of its table.
template <class T>
struct Data {
  std::vector<std::vector<T>> numbers;
  std::vector<const T*> pointers;
  Data(const ttr::Plan& plan, std::int64_t tokens, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (const ttr::InputInfo& info : plan.inputs()) {
      std::size_t count = 1;
      for (const std::ptrdiff_t extent : plan.extents(info.shape, tokens)) count *= static_cast<std::size_t>(extent);
      std::vector<T>& x = numbers.emplace_back(count);
      for (T& value : x) {
        const double z = normal(random);
        value = static_cast<T>(info.range == ttr::Range::normal || info.range == ttr::Range::unit ? z / 3
                               : info.range == ttr::Range::log_gate || info.range == ttr::Range::negative
                                   ? -std::abs(z) / 4
                                   : 1 / (1 + std::exp(-z)));
      }
    }
    for (const std::vector<T>& x : numbers) pointers.push_back(x.data());
  }
};

// What a stream has seen; behind the pairs that a list keeps lies anything.
std::vector<std::byte> bytes_of(const ttr::Stream& stream) { return ttr::save_state(stream.plan(), stream.state()); }

constexpr const char* layers[] = {
    "gated-deltanet",    "mamba-2",    "softmax-attention", "softmax-attention:window=7", "rls",
    "kernel-regression", "ttt-linear", "deltaproduct"};

template <class T>
void walk(const char* layer, int rewind) {
  SCOPED_TRACE(layer + std::string(", rewind ") + std::to_string(rewind));
  ttr::Options options;
  options.type = ttr::type_of<T>, options.rewind = rewind;
  ttr::Stream stream(layer, shape, options);
  const ttr::Plan& plan = stream.plan();
  const std::size_t numbers = 2 * 2 * 5;
  std::vector<T> answer(numbers), again(numbers), other(numbers);
  // The plan by itself, with room for everything.
  constexpr std::int64_t steps = 150;
  const ttr::Footprint bytes = plan.footprint(steps + 8);
  std::vector<std::byte> state(bytes.state), work(bytes.workspace);
  ASSERT_EQ(plan.reset({state.data(), state.size()}), ttr::Status::ok);
  for (int t = 0; t < steps; ++t) {
    const Data<T> in(plan, 1, 100 + static_cast<unsigned>(t)), tried(plan, 1, 5000 + static_cast<unsigned>(t));
    const std::vector<std::byte> before = bytes_of(stream);
    stream.query(in.pointers, again.data());
    EXPECT_TRUE(bytes_of(stream) == before) << "a query left a trace at token " << t;
    if (rewind > 0 && t % 10 == 3) stream.push(tried.pointers, other.data()), stream.rewind(1);
    stream.push(in.pointers, answer.data());
    EXPECT_EQ(answer, again) << "token " << t;
    ttr::Inputs inputs;
    ttr::Outputs outputs;
    for (std::size_t i = 0; i < in.pointers.size(); ++i) {
      const std::vector<std::ptrdiff_t> e = plan.extents(plan.inputs()[i].shape, 1);
      ttr::ConstTensor tensor;
      tensor.data = in.pointers[i], tensor.type = ttr::type_of<T>, tensor.rank = static_cast<int>(e.size());
      std::ptrdiff_t stride = 1;
      for (std::size_t a = e.size(); a-- > 0; stride *= e[a]) tensor.extent[a] = e[a], tensor.stride[a] = stride;
      inputs[plan.inputs()[i].name] = tensor;
    }
    outputs[plan.outputs().front().name] = ttr::view(other.data(), 2, 1, 2, 5);
    ASSERT_EQ(plan.forward(inputs, {state.data(), state.size()}, outputs, {work.data(), work.size()}),
              ttr::Status::ok);
    ASSERT_EQ(answer, other) << "token " << t;
  }
  EXPECT_EQ(stream.tokens(1), steps);

  // A clone goes its own way; a file brings the same stream back.
  const std::string path = std::filesystem::temp_directory_path() / ("ttr_stream_" + std::to_string(::getpid()));
  stream.save(path);
  ttr::Stream copy = stream.clone(), loaded(layer, shape, options);
  loaded.load(path);
  std::remove(path.c_str());
  const Data<T> last(plan, 4, 9);
  std::vector<T> a(4 * numbers), b(4 * numbers), c(4 * numbers), d(4 * numbers);
  copy.push(last.pointers, a.data(), 4);
  EXPECT_EQ(stream.tokens(), steps);
  EXPECT_EQ(copy.tokens(), steps + 4);
  stream.push(last.pointers, b.data(), 4);
  loaded.push(last.pointers, c.data(), 4);
  EXPECT_EQ(a, b);
  EXPECT_EQ(a, c);
  stream.reset();
  EXPECT_EQ(stream.tokens(), 0);
  stream.push(last.pointers, d.data(), 4);
  EXPECT_NE(a, d);
}

TEST(Stream, IsItsPlan) {
  for (const char* layer : layers)
    for (const int rewind : {0, 3}) walk<float>(layer, rewind), walk<double>(layer, rewind);
}

TEST(Stream, SaysWhatIsWrong) {
  ttr::Stream stream("gated-deltanet", {.heads = 1, .key_dim = 4, .value_dim = 4});
  std::vector<float> x(64, 0.1f);
  std::vector<double> y(64, 0.1);
  EXPECT_NE(error_of([&] { stream.push({x.data()}, x.data()); }).find("has 5 inputs (q, k, v, beta, g), not 1"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              stream.push({y.data(), y.data(), y.data(), y.data(), y.data()}, y.data());
            }).find("numbers of f64 for a stream of f32"),
            std::string::npos);
  EXPECT_NE(error_of([&] { stream.rewind(1); }).find("set Options::rewind"), std::string::npos);
  EXPECT_NE(error_of([&] {
              stream.push({x.data(), x.data(), x.data(), x.data(), nullptr}, x.data() + 32);
            }).find("g"),
            std::string::npos);
  EXPECT_NE(error_of([&] { stream.load("/nowhere/at/all"); }).find("/nowhere/at/all"), std::string::npos);
  EXPECT_EQ(stream.tokens(), 0);
}

}  // namespace
