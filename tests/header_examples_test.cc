// The examples in the public headers and in README.md, compiled and run. The last tests read those files and look for
// every statement of their examples in this one, so an example cannot change there without changing here.
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "header_examples.h"
#include "ttr/ttr.h"

namespace {

TEST(HeaderExamples, View) {
  std::vector<float> memory(2 * 100 * 4 * 64);
  auto q = ttr::view(memory.data(), 2, 100, 4, 64);  // [B, T, H, K], contiguous
  q(1, 99, 3, 63) = 1.0f;

  EXPECT_EQ(memory.back(), 1.0f);
  EXPECT_EQ(q.stride, (std::array<std::ptrdiff_t, 4>{100 * 4 * 64, 4 * 64, 64, 1}));
  const ttr::Tensor tensor = q;
  EXPECT_EQ(tensor.rank, 4);
  EXPECT_EQ(tensor.type, ttr::Type::f32);
  EXPECT_EQ((ttr::as_view<float, 4>(tensor)(1, 99, 3, 63)), 1.0f);
  EXPECT_FALSE((ttr::as_view<double, 4>(tensor)));
  EXPECT_FALSE((ttr::as_view<float, 3>(tensor)));
}

TEST(HeaderExamples, Axes) {
  constexpr ttr::Axes axes("B T H K");
  constexpr std::size_t heads = axes.find('H');
  std::string of_pairs = axes.replaced('T', 'P').to_string();

  EXPECT_EQ(heads, 2u);
  EXPECT_EQ(of_pairs, "B P H K");
}

TEST(HeaderExamples, Half) {
  ttr::bf16 x = ttr::to_bf16(3.14159f);
  float y = ttr::to_float(x);

  EXPECT_EQ(y, 3.140625f);
}

TEST(HeaderExamples, Executed) {
  const auto call =
      [](const ttr::Plan& plan) {  // one step of two heads: a factor, a write and a read of 16 x 16 numbers each
        std::vector<float> q(32, 1), k(32, 1), v(32, 1), o(32);
        std::vector<std::byte> state(plan.footprint(1).state), work(plan.footprint(1).workspace);
        ASSERT_EQ(plan.reset({state.data(), state.size()}), ttr::Status::ok);
        ttr::Inputs in;
        in["q"] = ttr::view(q.data(), 1, 1, 2, 16), in["k"] = ttr::view(k.data(), 1, 1, 2, 16);
        in["v"] = ttr::view(v.data(), 1, 1, 2, 16);
        ttr::Outputs out;
        out["o"] = ttr::view(o.data(), 1, 1, 2, 16);
        ASSERT_EQ(plan.step(in, {state.data(), state.size()}, out, {work.data(), work.size()}), ttr::Status::ok);
      };
  ttr::Options counting;
  counting.count = true;
  const std::uint64_t before = ttr::executed().multiply_adds;
  call(ttr::plan("retnet", {1, 2, 0, 16, 16}, counting));  // whatever it is that one wants to know
  const std::uint64_t flops = 2 * (ttr::executed().multiply_adds - before);

  EXPECT_EQ(flops, 2u * 2 * 3 * 16 * 16);
  EXPECT_EQ(ttr::executed().uncounted, 0u);
  call(ttr::plan("retnet", {1, 2, 0, 16, 16}));  // one that does not count
  EXPECT_EQ(2 * (ttr::executed().multiply_adds - before), flops);
}

TEST(HeaderExamples, Recipe) {
  ttr::Recipe r = ttr::parse_recipe("equal / linear / sgd(beta, decay)");
  std::string s = ttr::to_string(r);
  ttr::Recipe any = ttr::random_recipe(7);

  EXPECT_EQ(s, "equal / linear / sgd(beta, decay)");
  EXPECT_EQ(any, ttr::random_recipe(7));
  EXPECT_EQ(ttr::parse_recipe(ttr::to_string(any)), any);
  EXPECT_EQ(ttr::derive(r).equals, std::vector<std::string>{"gated-deltanet"});
}

// One token written with beta = 1 and a gate of 0: the state is k v', so the answer to q is (q.k / sqrt(K)) v.
TEST(HeaderExamples, Plan) {
  constexpr int T = 3;
  std::vector<float> q_memory(T * 4 * 64), k_memory(T * 4 * 64), v_memory(T * 4 * 64), o_memory(T * 4 * 64);
  std::vector<float> beta_memory(T * 4), g_memory(T * 4);
  for (int h = 0; h < 4; ++h) {
    beta_memory[static_cast<std::size_t>(h)] = 1;  // only the first token is written
    k_memory[static_cast<std::size_t>(h * 64 + h)] = 1;
    for (int d = 0; d < 64; ++d) v_memory[static_cast<std::size_t>(h * 64 + d)] = static_cast<float>(d - h);
    for (int t = 0; t < T; ++t) q_memory[static_cast<std::size_t>((t * 4 + h) * 64 + h)] = static_cast<float>(t);
  }
  float *q = q_memory.data(), *o = o_memory.data();

  ttr::Plan plan = ttr::plan("gated-deltanet", {.batch = 1, .heads = 4, .key_dim = 64, .value_dim = 64});
  ttr::Footprint bytes = plan.footprint(T);  // the caller owns state and workspace
  std::vector<std::byte> state(bytes.state), work(bytes.workspace);
  plan.reset({state.data(), state.size()});
  ttr::Inputs in;
  in["q"] = ttr::view(q, 1, T, 4, 64);
  in["k"] = ttr::view(k_memory.data(), 1, T, 4, 64);
  in["v"] = ttr::view(v_memory.data(), 1, T, 4, 64);
  in["beta"] = ttr::view(beta_memory.data(), 1, T, 4);
  in["g"] = ttr::view(g_memory.data(), 1, T, 4);
  ttr::Outputs out;
  out["o"] = ttr::view(o, 1, T, 4, 64);
  ttr::Status s = plan.forward(in, {state.data(), state.size()}, out, {work.data(), work.size()});

  ASSERT_EQ(s, ttr::Status::ok) << plan.diagnose(in, {state.data(), state.size()}, out, {work.data(), work.size()});
  std::vector<std::string> names;
  for (const ttr::InputInfo& input : plan.inputs()) names.push_back(input.name);
  for (const std::string& name : names) EXPECT_TRUE(in.get(name)) << name;
  for (int t = 0; t < T; ++t)
    for (int h = 0; h < 4; ++h)
      for (int d = 0; d < 64; ++d)
        ASSERT_FLOAT_EQ(o[(t * 4 + h) * 64 + d], static_cast<float>(t * (d - h)) / 8) << t << " " << h << " " << d;
}

TEST(HeaderExamples, Stream) {
  constexpr int T = 3;
  const std::vector<float> vectors(T * 4 * 64, 0.1f), gates(T * 4, 0.5f), decays(T * 4, -0.1f);
  const float *q = vectors.data(), *k = vectors.data(), *v = vectors.data(), *beta = gates.data(), *g = decays.data();
  std::vector<float> answers(T * 4 * 64);
  float* o = answers.data();

  ttr::Stream stream("gated-deltanet", {.heads = 4, .key_dim = 64, .value_dim = 64});
  stream.push({q, k, v, beta, g}, o, T);
  stream.query({q, k, v, beta, g}, o);

  EXPECT_EQ(stream.tokens(), T);
  EXPECT_GT(o[0], 0);
}

TEST(HeaderExamples, PreparedAndSavedState) {
  ttr::Plan plan = ttr::plan("gated-deltanet", {.key_dim = 2, .value_dim = 2});
  std::vector<std::byte> state(plan.footprint(1).state), work(plan.footprint(1).workspace);
  plan.reset({state.data(), state.size()});
  float q[] = {2, 0}, k[] = {1, 0}, v[] = {3, 4}, g[] = {0}, beta[] = {1}, o[2];
  ttr::Inputs in;
  in["q"] = ttr::view(q, 1, 1, 1, 2), in["k"] = ttr::view(k, 1, 1, 1, 2), in["v"] = ttr::view(v, 1, 1, 1, 2);
  in["g"] = ttr::view(g, 1, 1, 1), in["beta"] = ttr::view(beta, 1, 1, 1);
  ttr::Outputs out;
  out["o"] = ttr::view(o, 1, 1, 1, 2);
  std::vector<std::string> order;
  for (const ttr::InputInfo& info : plan.inputs()) order.push_back(info.name);
  ASSERT_EQ(order, (std::vector<std::string>{"q", "k", "v", "beta", "g"}));

  ttr::Prepared step = plan.prepare(in, out, ttr::Form::step);  // shapes, strides and types of in and out
  const void* reads[] = {q, k, v, beta, g};                     // in the order of plan.inputs()
  void* writes[] = {o};                                         // in the order of plan.outputs()
  ttr::Status s = step(reads, writes, {state.data(), state.size()}, {work.data(), work.size()});

  ASSERT_EQ(s, ttr::Status::ok);
  EXPECT_FLOAT_EQ(o[0], 2 * 3 / std::sqrt(2.0f));

  const std::vector<std::byte> fresh(state.size());
  const ttr::ConstState initial{fresh.data(), fresh.size()};
  float d_o[] = {1, 0}, d_q[2], d_k[2], d_v[2], d_beta[1], d_g[1];
  ttr::Inputs d_out;
  d_out["o"] = ttr::view(d_o, 1, 1, 1, 2);
  ttr::Outputs d_in;
  d_in["q"] = ttr::view(d_q, 1, 1, 1, 2), d_in["k"] = ttr::view(d_k, 1, 1, 1, 2),
  d_in["v"] = ttr::view(d_v, 1, 1, 1, 2);
  d_in["g"] = ttr::view(d_g, 1, 1, 1), d_in["beta"] = ttr::view(d_beta, 1, 1, 1);
  work.resize(plan.footprint(1).backward);
  ttr::PreparedBackward back = plan.prepare_backward(in, d_out, d_in);
  void* gradients[] = {d_q, d_k, d_v, d_beta, d_g};  // in the order of plan.inputs()
  const void* of_outputs[] = {d_o};                  // in the order of plan.outputs()
  s = back(reads, initial, of_outputs, {}, gradients, {}, {work.data(), work.size()});

  ASSERT_EQ(s, ttr::Status::ok);
  EXPECT_FLOAT_EQ(d_v[0], 2 / std::sqrt(2.0f));
  EXPECT_FLOAT_EQ(d_beta[0], 2 * 3 / std::sqrt(2.0f));
  const std::vector<std::byte> before = state;
  const std::string folder = testing::TempDir() + "ttr_header_examples";
  std::filesystem::create_directories(folder);
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(folder);

  ttr::save_state("chat.safetensors", plan, {state.data(), state.size()});  // all sequences, or one of them
  plan.reset({state.data(), state.size()});
  ttr::load_state("chat.safetensors", plan, {state.data(), state.size()});  // into a state that was reset
  EXPECT_EQ(state, before);

  ttr::TensorFile file;
  file.tensors.push_back({"x", "F32", {2}, std::vector<std::byte>(8)});
  file.metadata["made by"] = "me";
  ttr::write_safetensors("x.safetensors", file);
  ttr::TensorFile same = ttr::read_safetensors("x.safetensors");
  EXPECT_EQ(same.metadata, file.metadata);
  EXPECT_EQ(same.find("x")->shape, std::vector<std::int64_t>{2});
  std::filesystem::current_path(here);
  std::filesystem::remove_all(folder);
}

int readme_example() {
  const int T = 3, K = 2, V = 1;
  const ttr::Plan plan = ttr::plan("nlms:mu=1", {.key_dim = K, .value_dim = V});

  std::vector<float> k = {1, 0, 0, 2, 1, 1};  // three keys of two numbers,
  std::vector<float> v = {3, 4, 5};           // their values,
  std::vector<float> q = {1, 1, 1, 1, 2, 1};  // and what is asked after each pair
  std::vector<float> o(T * V);
  const ttr::Footprint bytes = plan.footprint(T);
  std::vector<std::byte> state(bytes.state), work(bytes.workspace);
  plan.reset({state.data(), state.size()});

  ttr::Inputs in;  // [B, T, heads, dimension]
  in["q"] = ttr::view(q.data(), 1, T, 1, K);
  in["k"] = ttr::view(k.data(), 1, T, 1, K);
  in["v"] = ttr::view(v.data(), 1, T, 1, V);
  ttr::Outputs out;
  out["o"] = ttr::view(o.data(), 1, T, 1, V);
  if (plan.forward(in, {state.data(), state.size()}, out, {work.data(), work.size()}) != ttr::Status::ok) return 1;
  for (float answer : o) std::printf("%g\n", static_cast<double>(answer));
  return 0;
}

TEST(HeaderExamples, Readme) {
  testing::internal::CaptureStdout();
  const int code = readme_example();
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 0);
  EXPECT_EQ(printed, "3\n5\n8\n");
}

// What the headers say.
using ttr::examples::header_example;
using ttr::examples::read;
using ttr::examples::statements;

// The block of README.md that is fenced as cpp.
std::vector<std::string> readme_statements() {
  std::vector<std::string> found;
  std::stringstream text(read("README.md"));
  bool inside = false;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("```")) inside = line == "```cpp";
    else if (inside && !line.starts_with("#include") && line != "int main() {" && line != "}")
      for (const std::string& statement : statements(line)) found.push_back(statement);
  }
  return found;
}

void expect_here(const std::vector<std::string>& examples, std::size_t at_least) {
  ttr::examples::expect_in("tests/header_examples_test.cc", examples, at_least);
}

TEST(HeaderExamples, AreTheOnesInTheHeaders) {
  expect_here(header_example("include/ttr/view.h"), 3);
  expect_here(header_example("include/ttr/axes.h"), 3);
  expect_here(header_example("include/ttr/half.h"), 2);
  expect_here(header_example("include/ttr/recipe.h"), 2);
  expect_here(header_example("include/ttr/plan.h"), 8);
  expect_here(header_example("include/ttr/prepared.h"), 4);
  expect_here(header_example("include/ttr/saved_state.h"), 2);
  expect_here(header_example("include/ttr/stream.h"), 3);
  expect_here(header_example("include/ttr/safetensors.h"), 5);
}

TEST(HeaderExamples, AreTheOnesInTheReadme) { expect_here(readme_statements(), 15); }

// The README's table of layers is complete and says what the program says.
TEST(Readme, HasEveryLayerWithItsRecipe) {
  const std::string text = read("README.md");
  for (const ttr::LayerInfo& info : ttr::layers()) {
    if (info.recipe.empty()) {  // operations stand in a sentence
      EXPECT_NE(text.find("`" + info.name + "`"), std::string::npos) << "README.md does not name " << info.name;
      continue;
    }
    std::string forms;
    for (const std::string& form : info.forms) forms += (forms.empty() ? "" : ", ") + form;
    std::string recipe;  // a bar in a cell is escaped
    for (char c : info.recipe) recipe += c == '|' ? std::string("\\|") : std::string(1, c);
    const std::string row = "| " + info.name + " | `" + recipe + "` | " + forms + " |";
    EXPECT_NE(text.find(row), std::string::npos) << "README.md has no row that begins: " << row;
  }
}

}  // namespace
