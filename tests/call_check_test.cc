// Calls that must be refused, each with a status and a sentence that names the tensor, the sequence, the number and the
// remedy: names, memory that overlaps, states and gradients of states that are too small, counts of a state never reset,
// numbers outside a layer's domain; and plans and footprints too large to count.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <vector>

#include "ttr/ttr.h"

namespace ttr {
namespace {

// A call of a plan on memory of its own, all of it valid until a test spoils it.
struct Trial {
  explicit Trial(Plan p, std::int64_t tokens, std::int64_t room = 0) : plan(std::move(p)), time(tokens) {
    const Footprint bytes = plan.footprint(std::max(tokens, room));
    state.resize(bytes.state / 8 + 1), d_initial.resize(state.size()), d_final.resize(state.size());
    work.resize(std::max(bytes.workspace, bytes.backward) / 8 + 1);
    state_bytes = d_initial_bytes = d_final_bytes = bytes.state;
    for (const InputInfo& info : plan.inputs()) {
      in[info.name] = tensor(info.shape, info.range);
      d_in[info.name] = tensor(info.shape, Range::normal);
    }
    for (const InputInfo& info : plan.outputs()) {
      out[info.name] = tensor(info.shape, Range::normal);
      if (info.differentiable) d_out[info.name] = tensor(info.shape, Range::normal);
    }
    EXPECT_EQ(plan.reset(initial()), Status::ok);
    EXPECT_EQ(plan.zero({d_final.data(), d_final_bytes}), Status::ok);
  }

  Tensor tensor(const std::string& shape, Range range) {
    const auto extents = plan.extents(shape, time);
    Tensor t;
    t.type = Type::f64, t.rank = static_cast<int>(extents.size());
    std::ptrdiff_t count = 1;
    for (std::size_t d = extents.size(); d-- > 0;) t.extent[d] = extents[d], t.stride[d] = count, count *= extents[d];
    std::vector<double>& numbers = memory.emplace_back(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double x = std::sin(1.7 * static_cast<double>(i + 13 * memory.size()));
      numbers[i] = range == Range::log_gate                                                  ? -0.1 * std::abs(x)
                   : range == Range::normal || range == Range::unit || range == Range::small ? x
                                                                                             : 0.3 + 0.2 * x;
    }
    t.data = numbers.data();
    return t;
  }
  double& at(const char* name, std::size_t i) {
    return const_cast<double*>(static_cast<const double*>(in[name].data))[i];
  }

  State initial() { return {state.data(), state_bytes}; }
  Workspace workspace() { return {work.data(), work.size() * 8}; }
  Status forward(Form form = Form::best) { return plan.forward(in, initial(), out, workspace(), form); }
  Status backward(Form form = Form::best) {
    return plan.backward(in, initial(), d_out, {d_final.data(), d_final_bytes}, d_in,
                         {d_initial.data(), d_initial_bytes}, workspace(), form);
  }
  std::string forward_sentence() { return plan.diagnose(in, initial(), out, workspace()); }
  std::string backward_sentence() {
    return plan.diagnose(in, initial(), d_out, {d_final.data(), d_final_bytes}, d_in,
                         {d_initial.data(), d_initial_bytes}, workspace());
  }

  Plan plan;
  std::int64_t time;
  std::vector<std::vector<double>> memory;
  std::vector<double> state, d_initial, d_final, work;
  std::size_t state_bytes, d_initial_bytes, d_final_bytes;
  Inputs in, d_out;
  Outputs out, d_in;
};

Trial trial(const char* layer, std::int64_t tokens, std::int64_t room = 0, int batch = 2) {
  return Trial(plan(layer, {.batch = batch, .heads = 2, .key_dim = 4, .value_dim = 4}, {.type = Type::f64}), tokens,
               room);
}

void expect_says(const std::string& sentence, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(sentence.find(part), std::string::npos) << part << " in: " << sentence;
}

TEST(CallCheck, GradientsOfStatesHaveRoomForThePairsKept) {
  for (const char* layer : {"softmax-attention", "local-linear-attention", "path-attention", "deltaformer",
                            "kernel-regression", "equal / kernel(gauss) / gd(2, step=0.1)"}) {
    SCOPED_TRACE(layer);
    Trial t = trial(layer, 5, 10);
    ASSERT_EQ(t.forward(), Status::ok);  // 5 pairs are kept, and 5 more come
    ASSERT_EQ(t.backward(), Status::ok) << t.backward_sentence();
    t.d_initial_bytes = t.plan.footprint(2).state;
    EXPECT_EQ(t.backward(), Status::small_state);
    expect_says(t.backward_sentence(), {"d_initial of sequence 0", std::to_string(t.d_initial_bytes).c_str(),
                                        std::to_string(t.plan.footprint(5).state).c_str(), "footprint()"});
    t.d_initial_bytes = t.plan.footprint(5).state;
    EXPECT_EQ(t.backward(), Status::ok) << t.backward_sentence();
    t.d_final_bytes = t.plan.footprint(9).state;
    EXPECT_EQ(t.backward(), Status::small_state);  // shorter than it says itself
    ASSERT_EQ(t.plan.zero({t.d_final.data(), t.d_final_bytes}), Status::ok);
    EXPECT_EQ(t.backward(), Status::small_state);
    expect_says(t.backward_sentence(), {"d_final of sequence 0", "footprint()"});
  }
}

TEST(CallCheck, NamesThatNobodyKnows) {
  Trial t = trial("deltanet", 3);
  EXPECT_EQ(t.forward(), Status::ok) << t.forward_sentence();
  EXPECT_EQ(t.forward_sentence(), "");
  EXPECT_EQ(t.backward_sentence(), "");
  t.out["y"] = t.out.get("o");
  EXPECT_EQ(t.forward(), Status::unknown_name);
  expect_says(t.forward_sentence(), {"deltanet has no output 'y'", "o"});
  t.d_in["key"] = t.d_in.get("k");
  EXPECT_EQ(t.backward(), Status::unknown_name);
  expect_says(t.backward_sentence(), {"deltanet has no input 'key'", "q, k, v, beta"});
  Trial u = trial("deltanet", 3);
  u.d_out["d_o"] = u.d_out.get("o");
  EXPECT_EQ(u.backward(), Status::unknown_name);
  expect_says(u.backward_sentence(), {"no output 'd_o'"});

  Inputs many;
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back("n" + std::to_string(i));
  for (int i = 0; i < 31; ++i) many[names[static_cast<std::size_t>(i)]];
  EXPECT_TRUE(many.complete());
  for (const std::string& name : names) many[name];
  EXPECT_FALSE(many.complete());
  many.clear();
  EXPECT_TRUE(many.complete());
}

std::int64_t* count(Trial& t, const char* name) {
  return static_cast<std::int64_t*>(t.plan.state_tensor(t.initial(), name).data);
}

TEST(CallCheck, AStateThatIsFullOrWasNeverReset) {
  Trial t = trial("softmax-attention", 3);
  t.state_bytes = t.plan.footprint(2).state;
  ASSERT_EQ(t.plan.reset(t.initial()), Status::ok);
  EXPECT_EQ(t.forward(), Status::state_full);  // on a first call
  expect_says(t.forward_sentence(), {"sequence 0", "room for 2 pairs", "hold 3", "grow()"});
  for (const char* layer : {"softmax-attention", "log-linear-attention", "equal / kernel(gauss) / gd(2, step=0.1)"}) {
    SCOPED_TRACE(layer);
    Trial u = trial(layer, 3);
    count(u, layer == std::string("log-linear-attention") ? "counted" : "kept")[1] = -7;
    EXPECT_EQ(u.forward(), Status::bad_state);
    expect_says(u.forward_sentence(), {"sequence 1", "-7 tokens", "reset()"});
    EXPECT_EQ(u.backward(), Status::bad_state);
  }
  Trial u = trial("softmax-attention", 3);
  count(u, "kept")[1] = std::int64_t{1} << 40;
  EXPECT_EQ(u.forward(), Status::bad_state);
}

TEST(CallCheck, LevelsThatAreUsedUp) {
  Trial t(plan("log-linear-attention:levels=3", {.heads = 2, .key_dim = 4, .value_dim = 4}, {.type = Type::f64}), 3);
  EXPECT_EQ(t.forward(), Status::ok) << t.forward_sentence();
  EXPECT_EQ(t.forward(), Status::state_full);
  expect_says(t.forward_sentence(), {"3 levels", "needs 4 levels", "levels=4"});
}

TEST(CallCheck, NumbersOutsideTheDomain) {
  {
    Trial t = trial("equal / linear / exact(ridge)", 4);
    EXPECT_EQ(t.forward(), Status::ok) << t.forward_sentence();
    t.at("ridge", 1) = -2;
    ASSERT_EQ(t.plan.reset(t.initial()), Status::ok);
    EXPECT_EQ(t.forward(), Status::out_of_domain);
    ASSERT_EQ(t.plan.reset(t.initial()), Status::ok);
    expect_says(t.forward_sentence(), {"ridge of head 1 is -2; it must be above 0"});
  }
  {
    Trial t = trial("equal(beta) / linear / exact(ridge=0.1)", 4);
    t.at("beta", 8 + 2 * 2 + 1) = -0.5;  // sequence 1, token 2, head 1
    ASSERT_EQ(t.plan.reset(t.initial()), Status::ok);
    EXPECT_EQ(t.forward(), Status::out_of_domain);
    ASSERT_EQ(t.plan.reset(t.initial()), Status::ok);
    expect_says(t.forward_sentence(), {"beta of sequence 1, token 2, head 1 is -0.5", "it must be"});
    expect_says(t.backward_sentence(), {"beta of sequence 1, token 2, head 1 is -0.5"});
  }
  {
    Trial t = trial("equal / linear / apa(2, mu=0.5)", 3);
    for (std::size_t i = 0; i < 8; ++i) t.at("k", 24 + 8 + i) = t.at("k", 24 + i);  // two equal keys in sequence 1
    EXPECT_EQ(t.forward(), Status::out_of_domain);
    ASSERT_EQ(t.plan.reset(t.initial()), Status::ok);
    expect_says(t.forward_sentence(), {"o of sequence 1, token 1", "no answer", "eps"});
  }
}

TEST(CallCheck, WhatIsWrittenSharesNoMemory) {
  Trial t = trial("gated-deltanet", 6);
  EXPECT_EQ(t.forward(), Status::ok);
  const Tensor own = t.out["o"];
  const ConstTensor v = t.in["v"];
  t.out["o"].data = const_cast<void*>(v.data);
  EXPECT_EQ(t.forward(), Status::overlap);
  expect_says(t.forward_sentence(), {"o is written", "memory with v"});
  t.out["o"].data = t.state.data();
  EXPECT_EQ(t.forward(), Status::overlap);
  t.out["o"] = own;
  t.in["q"] = t.in["k"];  // inputs may be one
  EXPECT_EQ(t.forward(), Status::ok);
  t.d_in["k"].data = t.d_in["q"].data;
  EXPECT_EQ(t.backward(), Status::overlap);
  expect_says(t.backward_sentence(), {"gradient of q", "memory with k"});
  EXPECT_EQ(t.plan.forward(t.in, t.initial(), t.out, {t.state.data(), t.state.size() * 8}), Status::overlap);

  // Rows of one array [B, T, 3, H, K]: the gradients of q, k and v lie between each other.
  Trial u = trial("gated-deltanet", 6);
  std::vector<double> fused(2 * 6 * 3 * 2 * 4), answers = fused;
  const char* names[] = {"q", "k", "v"};
  for (std::size_t i = 0; i < 3; ++i) {
    View<double, 4> rows{fused.data() + i * 8, {2, 6, 2, 4}, {6 * 24, 24, 4, 1}};
    u.d_in[names[i]] = rows;
  }
  EXPECT_EQ(u.backward(), Status::ok) << u.backward_sentence();
  View<double, 4> early{fused.data() + 4, {2, 6, 2, 4}, {6 * 24, 24, 4, 1}};  // half of q, half of k
  u.d_in["v"] = early;
  EXPECT_EQ(u.backward(), Status::overlap);
}

TEST(CallCheck, PointersThatAreNotAligned) {
  Trial t = trial("deltanet", 3);
  const State odd{reinterpret_cast<std::byte*>(t.state.data()) + 4, t.state_bytes};
  EXPECT_EQ(t.plan.forward(t.in, odd, t.out, t.workspace()), Status::misaligned);
  t.out["o"].data = static_cast<std::byte*>(t.out["o"].data) + 4;
  EXPECT_EQ(t.forward(), Status::misaligned);
  expect_says(t.forward_sentence(), {"o does not begin at a multiple of 8 bytes"});
}

template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CallCheck, SizesThatNobodyHas) {
  const int large = 1 << 20;
  expect_says(error_of([&] {
                plan("gated-deltanet", {.batch = large, .heads = large, .key_dim = large, .value_dim = large});
              }),
              {"state", "more bytes than any machine"});
  const Plan p = plan("softmax-attention", {.heads = 64, .key_dim = 1024, .value_dim = 1024});
  expect_says(error_of([&] { p.footprint(std::int64_t{1} << 50); }), {"1125899906842624 tokens"});
  const Plan rls = plan("rls", {.key_dim = 4, .value_dim = 4});
  expect_says(error_of([&] { rls.footprint(8, Form::scan); }), {"rls has no form 'scan'", "recurrent"});
  EXPECT_EQ(to_string(static_cast<Type>(77)), "?");
  EXPECT_EQ(to_string(static_cast<Form>(77)), "?");
  EXPECT_EQ(to_string(static_cast<Status>(77)), "unknown status");
  expect_says(error_of([] { plan("lru", {.key_dim = 4, .value_dim = 4}, {.kernel = "oracle"}); }),
              {"literal solver", "o_im", "options.kernel"});
}

// The child of a fork ends, computes the same, and gets threads of its own with a plan of its own.
TEST(CallCheck, ChildrenOfAFork) {
  const Shape shape{.batch = 2, .heads = 8, .key_dim = 16, .value_dim = 16};
  Trial t(plan("gated-deltanet", shape, {.type = Type::f64, .threads = 3}), 64);
  ASSERT_EQ(t.forward(), Status::ok);
  const std::vector<double> first(static_cast<double*>(t.out["o"].data), static_cast<double*>(t.out["o"].data) + 100);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int failures = 0;
    t.plan.reset(t.initial());
    failures += t.forward() != Status::ok;
    failures += !std::equal(first.begin(), first.end(), static_cast<double*>(t.out["o"].data));
    Trial own(plan("gated-deltanet", shape, {.type = Type::f64, .threads = 3}), 64);
    failures += own.forward() != Status::ok;
    failures += !std::equal(first.begin(), first.end(), static_cast<double*>(own.out["o"].data));
#ifdef __linux__
    const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
    failures += std::distance(begin(tasks), end(tasks)) < 3;
#endif
    std::exit(failures);  // runs destructors: the pool's among them
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace ttr
