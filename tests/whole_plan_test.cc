// Plans that are not causal: pairs with a length of their own, packed sequences, and what is refused.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "ttr/ttr.h"

namespace ttr {
namespace {

constexpr int K = 3, V = 2, H = 2;

struct Call {
  explicit Call(const Plan& p, std::int64_t tokens, std::int64_t pairs) : plan(p) {
    for (std::size_t i = 0; i < p.inputs().size(); ++i) {
      const InputInfo& info = p.inputs()[i];
      const bool of_pairs = info.shape.find('P') != std::string::npos;
      numbers.push_back(cli::random_input(p, info, of_pairs ? pairs : tokens, 7 + i));
      gradients.emplace_back(numbers.back().size());
    }
    o.assign(static_cast<std::size_t>(tokens * H * V) * static_cast<std::size_t>(p.shape().batch), 0.0);
    d_o.assign(o.size(), 1.0);
    const Footprint bytes = p.footprint(std::max(tokens, pairs));
    state.resize(bytes.state), work.resize(bytes.workspace), back.resize(bytes.backward);
    p.reset({state.data(), state.size()});
    bind(tokens, pairs);
  }
  void bind(std::int64_t tokens, std::int64_t pairs, int batch = 0) {
    const auto tensor = [&](double* data, std::string_view shape) {
      Tensor t;
      t.data = data, t.type = Type::f64;
      std::vector<std::ptrdiff_t> e = plan.extents(shape, tokens, pairs);
      if (batch > 0 && shape.starts_with("B")) e[0] = batch;
      t.rank = static_cast<int>(e.size());
      std::ptrdiff_t stride = 1;
      for (std::size_t d = e.size(); d-- > 0;) t.extent[d] = e[d], t.stride[d] = stride, stride *= e[d];
      return t;
    };
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      in[plan.inputs()[i].name] = tensor(numbers[i].data(), plan.inputs()[i].shape);
      d_in[plan.inputs()[i].name] = tensor(gradients[i].data(), plan.inputs()[i].shape);
    }
    out["o"] = tensor(o.data(), "B T H V"), d_out["o"] = tensor(d_o.data(), "B T H V");
  }
  State s() { return {state.data(), state.size()}; }
  Status forward() { return plan.forward(in, s(), out, {work.data(), work.size()}); }
  Status backward() { return plan.backward(in, s(), d_out, {}, d_in, {}, {back.data(), back.size()}); }
  std::string diagnosis() { return plan.diagnose(in, s(), out, {work.data(), work.size()}); }

  Plan plan;
  std::vector<std::vector<double>> numbers, gradients;
  std::vector<double> o, d_o;
  std::vector<std::byte> state, work, back;
  Inputs in, d_out;
  Outputs out, d_in;
};

const char* const layers_without_a_mask[] = {"softmax-attention:causal=no",
                                             "local-linear-attention:causal=no,ridge=0.2",
                                             "kernel-regression:causal=no",
                                             "unnormalised-softmax:causal=no",
                                             "skyformer",
                                             "skyformer:landmarks=3",
                                             "intention",
                                             "sigma-intention"};

// Two sequences of other lengths, of queries and of pairs, packed: each as if it were alone.
TEST(WholePlan, PackedSequencesAreEachAlone) {
  const std::vector<std::int64_t> tokens = {0, 4, 9}, pairs = {0, 7, 10};
  for (const char* text : layers_without_a_mask) {
    const Plan two =
        plan(text, {.batch = 2, .heads = H, .key_heads = 1, .key_dim = K, .value_dim = V}, {.type = Type::f64});
    const Plan one =
        plan(text, {.batch = 1, .heads = H, .key_heads = 1, .key_dim = K, .value_dim = V}, {.type = Type::f64});
    Call packed(two, 9, 10);
    packed.bind(9, 10, 1);
    packed.in.cu_seqlens = tokens, packed.in.cu_seqlens_pairs = pairs;
    ASSERT_EQ(packed.forward(), Status::ok) << text << ": " << packed.diagnosis();
    ASSERT_EQ(packed.backward(), Status::ok) << text;
    for (std::size_t n = 0; n < 2; ++n) {
      const std::int64_t T = tokens[n + 1] - tokens[n], P = pairs[n + 1] - pairs[n];
      Call alone(one, T, P);
      for (std::size_t i = 0; i < alone.numbers.size(); ++i) {
        const std::string& shape = one.inputs()[i].shape;
        const bool of_pairs = shape.find('P') != std::string::npos;
        if (!shape.starts_with("B")) {
          alone.numbers[i] = packed.numbers[i];
          alone.numbers[i].resize(alone.gradients[i].size());
        } else {
          const std::int64_t first = of_pairs ? pairs[n] : tokens[n], count = of_pairs ? P : T;
          const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(alone.numbers[i].size()) / count;
          std::copy_n(packed.numbers[i].begin() + first * row, count * row, alone.numbers[i].begin());
        }
      }
      alone.bind(T, P);
      ASSERT_EQ(alone.forward(), Status::ok) << text;
      ASSERT_EQ(alone.backward(), Status::ok) << text;
      for (std::size_t j = 0; j < alone.o.size(); ++j)
        EXPECT_EQ(alone.o[j], packed.o[static_cast<std::size_t>(tokens[n]) * H * V + j]) << text << " " << n;
      for (std::size_t i = 0; i < alone.gradients.size(); ++i) {
        const std::string& shape = one.inputs()[i].shape;
        if (!shape.starts_with("B")) continue;
        const std::int64_t first = shape.find('P') != std::string::npos ? pairs[n] : tokens[n];
        const std::size_t length = static_cast<std::size_t>(shape.find('P') != std::string::npos ? P : T);
        const std::size_t row = alone.gradients[i].size() / length;
        for (std::size_t j = 0; j < alone.gradients[i].size(); ++j)
          EXPECT_EQ(alone.gradients[i][j], packed.gradients[i][static_cast<std::size_t>(first) * row + j])
              << text << " d " << one.inputs()[i].name;
      }
    }
  }
}

TEST(WholePlan, WithoutPairsTheAnswerIsZero) {
  for (const char* text : layers_without_a_mask) {
    Call call(plan(text, {.heads = H, .key_dim = K, .value_dim = V}, {.type = Type::f64}), 4, 0);
    call.o.assign(call.o.size(), 5.0);
    ASSERT_EQ(call.forward(), Status::ok) << text << ": " << call.diagnosis();
    for (const double x : call.o) EXPECT_EQ(x, 0.0) << text;
    EXPECT_EQ(call.backward(), Status::ok) << text;
  }
}

TEST(WholePlan, ErrorsNameTheAxis) {
  const Plan p = plan("softmax-attention:causal=no", {.batch = 2, .heads = H, .key_dim = K, .value_dim = V},
                      {.type = Type::f64});
  Call call(p, 4, 6);
  call.in["v"].extent[1] = 5;
  EXPECT_EQ(call.forward(), Status::bad_shape);
  EXPECT_EQ(call.diagnosis(), "pairs 5 of v does not match 6 of the other inputs");
  call.bind(4, 6, 1);
  const std::vector<std::int64_t> tokens = {0, 1, 4}, wrong = {0, 1, 5};
  call.in.cu_seqlens = tokens, call.in.cu_seqlens_pairs = wrong;
  EXPECT_EQ(call.diagnosis(), "pairs 5 of cu_seqlens_pairs does not match 6 of the other inputs");
  call.in.cu_seqlens_pairs = {};
  EXPECT_EQ(call.diagnosis(), "pairs 4 of cu_seqlens_pairs does not match 6 of the other inputs");
  call.in.cu_seqlens = {}, call.in.cu_seqlens_pairs = wrong;
  EXPECT_EQ(call.diagnosis(), "the input cu_seqlens of softmax-attention is missing");
  // Keys that are the queries: values of another number are refused.
  Call soft(plan("soft", {.heads = H, .key_dim = K, .value_dim = V}, {.type = Type::f64}), 4, 4);
  EXPECT_EQ(soft.forward(), Status::ok);
  soft.in["v"].extent[1] = 3;
  EXPECT_EQ(soft.diagnosis(), "time 3 of v does not match 4 of the other inputs");
  EXPECT_TRUE(p.states().empty());
  EXPECT_EQ(p.forms().size(), 1u);
  EXPECT_NE(std::string(p.why_absent(Form::chunk)).find("all pairs"), std::string::npos);
}

}  // namespace
}  // namespace ttr
