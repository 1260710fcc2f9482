// Plans from the outside: names and settings, errors as sentences, memory layout, strides, packed sequences.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "cli/commands.h"
#include "cli/runner.h"
#include "ttr/ttr.h"

namespace ttr {
namespace {

using cli::NamedNumbers;
using cli::Numbers;
using cli::Runner;

std::string error_of(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Numbers normals(std::size_t n, unsigned seed, double scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Numbers x(n);
  for (double& value : x) value = scale * normal(random);
  return x;
}

NamedNumbers delta_inputs(int B, int T, int H, int G, int K, int V, unsigned seed = 1) {
  const auto size = [](int a, int b, int c, int d) { return static_cast<std::size_t>(a * b * c * d); };
  NamedNumbers in;
  in["q"] = normals(size(B, T, G, K), seed), in["k"] = normals(size(B, T, G, K), seed + 1, 1 / std::sqrt(K));
  in["v"] = normals(size(B, T, H, V), seed + 2);
  in["beta"] = Numbers(size(B, T, H, 1), 0.6), in["g"] = Numbers(size(B, T, H, 1), -0.1);
  return in;
}

TEST(Plan, UnknownLayerSuggestsTheNearest) {
  const std::string message = error_of([] { plan("gated-deltanett", {}); });
  EXPECT_NE(message.find("'gated-deltanett'"), std::string::npos) << message;
  EXPECT_NE(message.find("did you mean 'gated-deltanet'"), std::string::npos) << message;
}

TEST(Plan, ErrorsNameTheThingTheValueAndTheRemedy) {
  EXPECT_NE(error_of([] { plan("nlms", {.key_dim = 0}); }).find("key_dim is 0"), std::string::npos);
  EXPECT_NE(
      error_of([] { plan("nlms", {.heads = 4, .key_heads = 3}); }).find("heads 4 is not a multiple of key_heads 3"),
      std::string::npos);
  EXPECT_NE(error_of([] { plan("nlms:speed=3", {}); }).find("nlms has no setting 'speed'; it has mu, eps"),
            std::string::npos);
  EXPECT_NE(error_of([] { plan("nlms:mu", {}); }).find("name=value"), std::string::npos);
  EXPECT_NE(error_of([] { plan("nlms:mu=1,mu=2", {}); }).find("given twice"), std::string::npos);
  EXPECT_NE(error_of([] { plan("nlms", {}, {.target = "AVX9"}); }).find("AVX9"), std::string::npos);
  EXPECT_NE(error_of([] { plan("nlms", {}, {.kernel = "fast"}); }).find("'fast'"), std::string::npos);
  EXPECT_NE(error_of([] { plan("deltanet", {}, {.causal = false}); }).find("non-causal"), std::string::npos);
}

TEST(Plan, RecipesOfLayersAreCanonicalText) {
  for (const LayerInfo& info : layers()) {
    if (info.recipe.empty()) continue;  // an operation
    EXPECT_EQ(to_string(parse_recipe(info.recipe)), info.recipe) << info.name;
  }
}

TEST(Plan, SettingsChangeTheRecipe) {
  EXPECT_EQ(to_string(plan("rls:decay=0.99,ridge=1e-3", {}).recipe()), "decay(0.99) / linear / exact(ridge=0.001)");
  EXPECT_EQ(to_string(plan("rls:ridge=input,decay=input,importance=input", {}).recipe()),
            "gate(beta) / linear / exact(ridge)");
  EXPECT_EQ(to_string(plan("nlms:mu=0.5", {}).recipe()), "equal / linear / sgd(nlms=0.5)");
  EXPECT_EQ(to_string(plan("softmax-attention:window=8,keys=unit", {}).recipe()),
            "window(8) * near(exp) / constant / exact | keys(unit)");
  EXPECT_EQ(plan("rls:ridge=0.1", {}).kernel(), "givens/recurrent");
  EXPECT_TRUE(plan("rls:ridge=0.1,decay=0.9", {}).kernel().starts_with("least_squares/chunk/"))
      << "a ridge that does not fade";
  EXPECT_EQ(plan("rls", {}).kernel(), "givens/recurrent");
  EXPECT_EQ(plan("nlms:mu=0.5", {}).inputs().size(), 3u) << "a constant is no input";
}

TEST(Plan, LayersOnAStreamHaveANumberForEveryInput) {
  int taken = 0, as_layers = 0, regressions = 0;
  for (const LayerInfo& info : layers()) {
    const std::string refused = why_not_on_a_stream(info.name);
    regressions += !info.recipe.empty();
    if (!refused.empty()) {
      EXPECT_NE(refused.find("stream"), std::string::npos) << info.name << ": " << refused;
      continue;
    }
    const StreamText stream = stream_layer(info.name);
    ++taken, as_layers += stream.as_layer;
    const Plan p = plan(stream.text, {.key_dim = 4, .value_dim = 2}, {.type = Type::f64});
    std::set<std::string> known, needed;
    for (const StreamInput& input : stream.inputs) known.insert(input.name);
    for (const InputInfo& input : p.inputs())  // weights at the first token may be those of the state
      if (!input.optional || known.contains(input.name)) needed.insert(input.name);
    EXPECT_EQ(known, needed) << info.name;
    if (stream.as_layer) continue;
    EXPECT_EQ(stream.recipe, stream_recipe(info.name));
  }
  // docs/regress.md has these numbers.
  EXPECT_EQ(regressions, 85);
  EXPECT_EQ(taken, 70);
  EXPECT_EQ(as_layers, 34);
  // A recipe is run as it is written, and what is added is said.
  EXPECT_EQ(stream_layer("equal / layernorm(linear, bias) / minibatch(16, rate=0.1)").recipe,
            "equal / layernorm(linear, bias) / minibatch(16, rate=0.1)");
  EXPECT_TRUE(stream_layer("equal / linear / sgd(beta=0.5)").changes.empty());
  EXPECT_EQ(stream_layer("near(exp) / constant / exact").changes.size(), 1u);
  EXPECT_EQ(stream_layer("ttt-linear").changes.size(), 1u);
}

TEST(Plan, StreamRecipesHaveNoInputsButKeysAndValues) {
  for (const LayerInfo& info : layers()) {
    // Extra keys, erase gates, levels, slots and a bonus have no constant that makes sense, a row is one pair, and
    // what a layer does to its keys before the regression is not in its recipe.
    const std::set<std::string> refused = {"gdn-2",
                                           "comba",
                                           "dplr",
                                           "iplr",
                                           "rwkv-6",
                                           "rwkv-7",
                                           "deltaproduct",
                                           "gated-deltaproduct",
                                           "rebased",
                                           "signed-mamba-1",
                                           "signed-mamba-2",
                                           "signed-gla",
                                           "t2r",
                                           "hedgehog",
                                           "performer",
                                           "rfa",
                                           "gated-rfa",
                                           "dijiang",
                                           "mamba-3",
                                           "log-linear-attention",
                                           "mlstm",
                                           "hgrn-2",
                                           "gateloop",
                                           "rwkv-4",
                                           "gated-slot-attention",
                                           "abc",
                                           "mamba-1",
                                           "hgrn",
                                           "lru",
                                           "rg-lru",
                                           "longhorn-shipped",
                                           "gated-kalmanet",
                                           "parallax",
                                           "path-attention",
                                           "deltaformer",
                                           "preconditioned-deltanet",
                                           "preconditioned-kda",
                                           "momentum-deltanet",
                                           "skyformer",
                                           "soft",
                                           "intention",
                                           "sigma-intention",
                                           "titans-mag",
                                           "titans-mal",
                                           "titans-mac"};
    if (refused.contains(info.name) || info.recipe.empty()) {
      EXPECT_NE(error_of([&] { stream_recipe(info.name); }).find("stream"), std::string::npos) << info.name;
      continue;
    }
    const Plan p = plan(stream_recipe(info.name), {.key_dim = 3, .value_dim = 2}, {.type = Type::f64});
    EXPECT_EQ(p.inputs().size(), 3u) << info.name << ": " << stream_recipe(info.name);
  }
  EXPECT_EQ(stream_recipe("equal / linear / sgd(beta=0.5, decay=0.01)"),
            "equal / linear / sgd(beta=0.5, decay=0.01)");
  EXPECT_EQ(stream_recipe("rls:decay=0.99"), "decay(0.99) / linear / exact(ridge=0.001)");
  EXPECT_EQ(stream_recipe("equal(beta=0.01) / linear / exact(ridge=0.1)"),
            "equal(beta=0.01) / linear / exact(ridge=0.1)");  // a constant importance is not dropped
  EXPECT_EQ(stream_recipe("decay(0.9, beta=2) / linear / exact(ridge=0.1)"),
            "decay(0.9, beta=2) / linear / exact(ridge=0.1)");
  EXPECT_EQ(stream_recipe("gate(beta) / linear / exact(ridge=0.1)"), "decay(0.98) / linear / exact(ridge=0.1)");
  EXPECT_EQ(stream_recipe("equal / linear / sgd(beta, momentum)"), "equal / linear / sgd(nlms=0.5, momentum=0.5)");
  EXPECT_EQ(stream_recipe("equal / linear / sgd(beta=0.3, momentum)"),
            "equal / linear / sgd(beta=0.3, momentum=0.5)");  // a number that was written stays
  EXPECT_EQ(stream_recipe("equal / linear / minibatch(16, rate)"),
            "equal / linear / minibatch(16, rate=0.0625) | keys(unit)");
  EXPECT_EQ(stream_recipe("equal / linear / gd(1)"), "equal / linear / gd(1)");
  EXPECT_EQ(stream_proposal("equal / linear / gd(1)"), "equal / linear / gd(1, step=auto)");
  EXPECT_EQ(stream_proposal("equal / linear / sgd(beta=0.3)"), "equal / linear / sgd(beta=0.3)");
  EXPECT_EQ(stream_proposal("nlms:mu=0.3"), "nlms:mu=0.3");
  EXPECT_NE(stream_recipe("softmax-attention").find("window(1024)"), std::string::npos);
  for (const char* text : {"softmax-attention:causal=no", "mesanet:steps=9,tolerance=0.1",
                           "rls:ridge=1,solver=woodbury", "titans-pytorch:chunk=4", "yaad:loss=sign"})
    EXPECT_NE(error_of([&] { stream_recipe(text); }).find("stream"), std::string::npos) << text;
  EXPECT_NE(error_of([] { stream_recipe("equal / linear / sgd(dplr)"); }).find("would need the input"),
            std::string::npos);
}

// The matrix of a feature map is the same for all rows, so a stream has it, whether a layer or a recipe asks for it.
TEST(Plan, StreamsHaveTheMatricesOfFeatureMaps) {
  const auto words_of = [](const char* text) {
    std::map<std::string, std::string> words;
    for (const StreamInput& input : stream_layer(text).inputs) words[input.name] = input.words;
    return words;
  };
  EXPECT_EQ(words_of("equal / linear(hedgehog) / gd(1)"), words_of("hedgehog"));
  for (const char* map :
       {"hedgehog", "hedgehog_exp", "hedgehog_softmax2", "t2r", "favor", "favor_relu", "rfa", "dijiang", "rebased"}) {
    const std::string recipe = "equal / linear(" + std::string(map) + ") / exact(ridge=0.1)";
    const Plan p = plan(stream_layer(recipe).text, {.key_dim = 4, .value_dim = 2}, {.type = Type::f64});
    for (const InputInfo& info : p.inputs()) EXPECT_TRUE(words_of(recipe.c_str()).contains(info.name)) << info.name;
    EXPECT_NE(error_of([&] { stream_recipe(recipe); }).find("would need the input"),
              std::string::npos);  // text alone
  }
  EXPECT_NE(error_of([] { stream_layer("equal / linear(cosformer) / gd(1)"); }).find("known beforehand"),
            std::string::npos);
  EXPECT_EQ(stream_layer("equal / linear(cosformer, length=900) / gd(1)").changes.size(), 0u);
}

TEST(Plan, DiagnoseNamesTheAxis) {
  const Plan p = plan("deltanet", {.heads = 2, .key_dim = 64, .value_dim = 8});
  std::vector<float> memory(10000), state(p.footprint(5).state / 4);
  Inputs in;
  in["q"] = view(memory.data(), 1, 5, 2, 64);
  in["k"] = view(memory.data(), 1, 5, 2, 48);
  in["v"] = view(memory.data(), 1, 5, 2, 8);
  Outputs out;
  const State s{state.data(), state.size() * 4};
  EXPECT_EQ(p.forward(in, s, out, {}), Status::bad_shape);
  EXPECT_NE(p.diagnose(in, s, out, {}).find("key_dim 48 of k does not match 64"), std::string::npos)
      << p.diagnose(in, s, out, {});
  in["k"] = view(memory.data(), 1, 4, 2, 64);
  EXPECT_NE(p.diagnose(in, s, out, {}).find("time 4 of k does not match 5"), std::string::npos);
  in["k"] = view(memory.data(), 1, 5, 2, 64);
  EXPECT_EQ(p.forward(in, s, out, {}), Status::missing_input);
  EXPECT_NE(p.diagnose(in, s, out, {}).find("beta"), std::string::npos);
  std::vector<double> wide(10);
  in["beta"] = view(wide.data(), 1, 5, 2);
  EXPECT_EQ(p.forward(in, s, out, {}), Status::bad_type);
  in["beta"] = view(memory.data(), 1, 5, 2);
  EXPECT_EQ(p.forward(in, s, out, {}), Status::small_workspace);
  EXPECT_EQ(p.forward(in, {state.data(), 16}, out, {}), Status::small_state);
  const Plan exact = plan("rls:ridge=1", {.heads = 2, .key_dim = 64, .value_dim = 8});
  Inputs pairs;
  for (const char* name : {"q", "k", "v"}) pairs[name] = in.get(name);
  std::vector<double> information(exact.footprint(5).state / 8);
  const State h{information.data(), information.size() * 8};
  EXPECT_EQ(exact.forward(pairs, h, out, {}, Form::scan), Status::not_supported);
  EXPECT_NE(exact.diagnose(pairs, h, out, {}, Form::scan).find("no form 'scan'; it has step, recurrent"),
            std::string::npos);
  in["kk"] = view(memory.data(), 1, 5, 2, 64);
  EXPECT_NE(p.diagnose(in, s, out, {}).find("no input 'kk'"), std::string::npos);
}

TEST(Plan, PackedSequencesEqualEachAlone) {
  constexpr int H = 4, G = 2, K = 5, V = 3;
  const std::int64_t cu[] = {0, 4, 4, 13};  // the middle one is empty
  const NamedNumbers in = delta_inputs(1, 13, H, G, K, V);
  for (const char* name : {"gated-deltanet", "rls:ridge=0.5", "softmax-attention", "equal / linear / gd(3)"}) {
    const bool pairs = std::string(name) == "softmax-attention";
    const Plan packed = plan(name, {.batch = 3, .heads = H, .key_heads = pairs ? H : G, .key_dim = K, .value_dim = V},
                             {.type = Type::f64});
    const Plan single = plan(name, {.batch = 1, .heads = H, .key_heads = pairs ? H : G, .key_dim = K, .value_dim = V},
                             {.type = Type::f64});
    NamedNumbers data = in;
    if (pairs) data["q"] = normals(13 * H * K, 5), data["k"] = normals(13 * H * K, 6);
    std::vector<double> o(13 * H * V, std::nan("")), state(packed.footprint(13).state / 8),
        work(packed.footprint(13).workspace / 8 + 1);
    packed.reset({state.data(), state.size() * 8});
    Inputs inputs;
    for (const InputInfo& info : packed.inputs()) {
      double* x = data[info.name].data();
      const int heads = info.shape.find('G') != std::string::npos && !pairs ? G : H;
      if (info.shape.size() > 5) inputs[info.name] = view(x, 1, 13, heads, info.shape.back() == 'K' ? K : V);
      else inputs[info.name] = view(x, 1, 13, heads);
    }
    inputs.cu_seqlens = cu;
    Outputs outputs;
    outputs["o"] = view(o.data(), 1, 13, H, V);
    ASSERT_EQ(packed.forward(inputs, {state.data(), state.size() * 8}, outputs, {work.data(), work.size() * 8}),
              Status::ok)
        << packed.diagnose(inputs, {state.data(), state.size() * 8}, outputs, {work.data(), work.size() * 8});
    for (int n = 0; n < 3; ++n) {
      const std::int64_t length = cu[n + 1] - cu[n];
      NamedNumbers part;
      for (const InputInfo& info : single.inputs())
        part[info.name] = cli::tokens_of(single, data[info.name], info.shape, 13, cu[n], cu[n + 1]);
      const Numbers alone = Runner(single, length).forward(part, {}, Form::best).outputs.at("o");
      const Numbers here(o.begin() + cu[n] * H * V, o.begin() + cu[n + 1] * H * V);
      EXPECT_EQ(here, alone) << name << " sequence " << n;
    }
    const std::int64_t falling[] = {0, 5, 4, 13};
    inputs.cu_seqlens = falling;
    EXPECT_EQ(packed.forward(inputs, {state.data(), state.size() * 8}, outputs, {work.data(), work.size() * 8}),
              Status::bad_shape);
    EXPECT_NE(packed.diagnose(inputs, {state.data(), state.size() * 8}, outputs, {work.data(), work.size() * 8})
                  .find("cu_seqlens"),
              std::string::npos);
  }
}

// Head-major memory ([B, H, T, D]) through strides gives the same bits as time-major memory.
TEST(Plan, StridedViewsNeedNoCopies) {
  constexpr int T = 20, H = 3, K = 6, V = 4;
  NamedNumbers in = delta_inputs(1, T, H, H, K, V);
  const Plan p = plan("gated-deltanet", {.heads = H, .key_dim = K, .value_dim = V}, {.type = Type::f64});
  const Numbers expected = Runner(p, T).forward(in, {}, Form::chunk).outputs.at("o");
  const auto head_major = [&](const Numbers& x, int D) {
    Numbers y(x.size());
    for (int t = 0; t < T; ++t)
      for (int h = 0; h < H; ++h)
        for (int d = 0; d < D; ++d)
          y[static_cast<std::size_t>((h * T + t) * D + d)] = x[static_cast<std::size_t>((t * H + h) * D + d)];
    return y;
  };
  Numbers q = head_major(in["q"], K), k = head_major(in["k"], K), v = head_major(in["v"], V), o(T * H * V);
  double beta = 0.6, g = -0.1;
  Inputs inputs;
  inputs["q"] = View<double, 4>{q.data(), {1, T, H, K}, {0, K, T * K, 1}};
  inputs["k"] = View<double, 4>{k.data(), {1, T, H, K}, {0, K, T * K, 1}};
  inputs["v"] = View<double, 4>{v.data(), {1, T, H, V}, {0, V, T * V, 1}};
  inputs["beta"] = View<double, 3>{&beta, {1, T, H}, {0, 0, 0}};
  inputs["g"] = View<double, 3>{&g, {1, T, H}, {0, 0, 0}};
  Outputs outputs;
  outputs["o"] = View<double, 4>{o.data(), {1, T, H, V}, {0, V, T * V, 1}};
  std::vector<double> state(p.footprint(T).state / 8), work(p.footprint(T).workspace / 8 + 1);
  p.reset({state.data(), state.size() * 8});
  ASSERT_EQ(p.forward(inputs, {state.data(), state.size() * 8}, outputs, {work.data(), work.size() * 8}, Form::chunk),
            Status::ok);
  EXPECT_EQ(o, head_major(expected, V));
}

TEST(Plan, NoTokensChangeNothing) {
  for (const LayerInfo& info : layers()) {
    const Plan p = plan(info.name, {.batch = 2, .key_dim = 3, .value_dim = info.square ? 3 : 2}, {.type = Type::f64});
    const Runner runner(p, 0);
    NamedNumbers in;
    for (const InputInfo& input : p.inputs()) in[input.name] = Numbers(cli::count(p, input.shape, 0), 0.5);
    for (Form form : p.forms()) {
      if (form == Form::step) continue;
      EXPECT_TRUE(runner.forward(in, {}, form).outputs.begin()->second.empty()) << info.name;
    }
  }
}

// Tokens that were tried and taken back leave no trace.
TEST(Plan, TruncatedStateGoesOnAsIfTheTokensHadNotBeen) {
  for (const char* text : {"softmax-attention", "forgetting-attention", "local-linear-attention", "kernel-regression",
                           "path-attention", "deltaformer"}) {
    const Plan p = plan(text, {.batch = 2, .key_dim = 3, .value_dim = 3}, {.type = Type::f64});
    const auto run = [&](std::vector<double>& state, std::int64_t tokens, unsigned seed) {
      std::vector<Numbers> numbers;
      Numbers o(cli::count(p, "B T H V", tokens));
      Inputs in;
      for (std::size_t i = 0; i < p.inputs().size(); ++i)
        numbers.push_back(
            cli::random_input(p, p.inputs()[i], tokens, p.inputs()[i].shape.starts_with("B") ? seed + i : i));
      const auto tensor = [&](Numbers& x, std::string_view shape) {
        Tensor t;
        const auto e = p.extents(shape, tokens);
        t.data = x.data(), t.type = Type::f64, t.rank = static_cast<int>(e.size());
        std::ptrdiff_t stride = 1;
        for (std::size_t d = e.size(); d-- > 0;) t.extent[d] = e[d], t.stride[d] = stride, stride *= e[d];
        return t;
      };
      for (std::size_t i = 0; i < p.inputs().size(); ++i)
        in[p.inputs()[i].name] = tensor(numbers[i], p.inputs()[i].shape);
      Outputs out;
      out["o"] = tensor(o, "B T H V");
      std::vector<std::byte> work(p.footprint(12).workspace);
      EXPECT_EQ(p.forward(in, {state.data(), state.size() * 8}, out, {work.data(), work.size()}), Status::ok) << text;
      return o;
    };
    std::vector<double> plain(p.footprint(12).state / 8 + 1), tried;
    ASSERT_EQ(p.reset({plain.data(), plain.size() * 8}), Status::ok);
    run(plain, 5, 10);
    tried = plain;
    run(tried, 3, 20);
    ASSERT_EQ(p.truncate({tried.data(), tried.size() * 8}, 5), Status::ok) << text;
    EXPECT_EQ(p.tokens_kept({tried.data(), tried.size() * 8}), 5) << text;
    const Numbers a = run(plain, 4, 30), b = run(tried, 4, 30);
    EXPECT_LT(cli::relative_error(b, a), 1e-12) << text;
  }
  std::vector<double> state(8);
  for (const char* text : {"deltanet", "softmax-attention:window=4"})
    EXPECT_EQ(plan(text, {.key_dim = 1, .value_dim = 1}).truncate({state.data(), 64}, 1), Status::not_supported)
        << text;
}

TEST(Plan, StateCanBeSavedClonedAndPutBack) {
  const Plan p = plan("softmax-attention", {.key_dim = 3, .value_dim = 2}, {.type = Type::f64});
  std::vector<double> small(p.footprint(2).state / 8), large(p.footprint(8).state / 8),
      work(p.footprint(1).workspace / 8 + 1);
  const State s{small.data(), small.size() * 8}, l{large.data(), large.size() * 8};
  const Workspace w{work.data(), work.size() * 8};
  p.reset(s);
  double x[3] = {1, 2, 3}, y[2] = {4, 5}, o[2];
  Inputs in;
  in["q"] = view(x, 1, 1, 1, 3), in["k"] = view(x, 1, 1, 1, 3), in["v"] = view(y, 1, 1, 1, 2);
  Outputs out;
  out["o"] = view(o, 1, 1, 1, 2);
  EXPECT_EQ(p.step(in, s, out, w), Status::ok);
  y[0] = 8;
  EXPECT_EQ(p.step(in, s, out, w), Status::ok);
  EXPECT_EQ(p.tokens_kept(s), 2);
  EXPECT_DOUBLE_EQ(o[0], 6);
  const std::vector<double> before = small;
  EXPECT_EQ(p.step(in, s, out, w), Status::state_full);
  EXPECT_EQ(small, before) << "a full state is left as it was";
  ASSERT_EQ(p.grow(s, l), Status::ok);
  const std::vector<double> saved = large;
  EXPECT_EQ(p.step(in, l, out, w), Status::ok);
  EXPECT_NEAR(o[0], 20.0 / 3, 1e-14);
  large = saved;  // roll back
  EXPECT_EQ(p.tokens_kept(l), 2);
}

// A forward that succeeds may have left something out: rotations drop directions of keys that faded into rounding.
TEST(Plan, DiagnoseCountsDirectionsThatAreDropped) {
  for (const Type type : {Type::f32, Type::f64})
    for (const double gate : {-24.0, -70.0}) {
      constexpr int T = 12, H = 2, K = 4, V = 2;
      const Plan p = plan("rls:decay=input", {.batch = 1, .heads = H, .key_dim = K, .value_dim = V},
                          {.type = type, .threads = 2});
      std::vector<double> state(p.footprint(T).state / 8 + 1), work(p.footprint(T).workspace / 8 + 1), x(T * H * K);
      const State s{state.data(), state.size() * 8};
      const Workspace w{work.data(), work.size() * 8};
      ASSERT_EQ(p.reset(s), Status::ok);
      const auto call = [&]<class N>(N) {
        std::vector<N> numbers, g(T * H, N(0)), o(T * H * V);
        for (std::size_t i = 0; i < x.size(); ++i) numbers.push_back(static_cast<N>(std::sin(1.0 + double(i * i))));
        g[9 * H] = g[9 * H + 1] = static_cast<N>(gate);
        Inputs in;
        for (const char* name : {"q", "k"}) in[name] = view(numbers.data(), 1, T, H, K);
        in["v"] = view(numbers.data(), 1, T, H, V), in["g"] = view(g.data(), 1, T, H);
        Outputs out;
        out["o"] = view(o.data(), 1, T, H, V);
        const std::vector<double> before = state;
        const std::string sentence = p.diagnose(in, s, out, w);
        EXPECT_EQ(state, before);
        EXPECT_EQ(p.forward(in, s, out, w), Status::ok);
        return sentence;
      };
      const std::string sentence = type == Type::f32 ? call(float{}) : call(double{});
      if (gate > -50) EXPECT_EQ(sentence, "");
      else
        EXPECT_NE(sentence.find("rls has dropped 6 directions of its keys at 2 tokens"), std::string::npos)
            << sentence;
    }
}

// Levels weigh 2^(L-1) tokens: whoever brings more is told how many levels it takes, on the kernel and on the oracle.
TEST(Plan, TooFewLevelsAreCounted) {
  for (const bool free : {false, true}) {
    const Plan p = plan(free ? "gate * levels / linear / gd(1)" : "gate * levels(3) / linear / gd(1)",
                        {.key_dim = 1, .value_dim = 1}, {.type = Type::f64});
    std::vector<double> state(p.footprint(8).state / 8), work(p.footprint(8).workspace / 8 + 1);
    const State s{state.data(), state.size() * 8};
    const Workspace w{work.data(), work.size() * 8};
    p.reset(s);
    std::vector<double> x(8 * 3, 0.5), o(8);
    const auto call = [&](std::ptrdiff_t time) {
      Inputs in;
      for (const char* name : {"q", "k", "v"}) in[name] = view(x.data(), 1, time, 1, 1);
      in["g"] = view(x.data(), 1, time, 1), in["levels"] = view(x.data(), 1, time, 1, 3);
      Outputs out;
      out["o"] = view(o.data(), 1, time, 1, 1);
      const std::string sentence = p.diagnose(in, s, out, w);
      return std::pair(p.forward(in, s, out, w), sentence);
    };
    EXPECT_EQ(call(5).first, Status::state_full);
    EXPECT_EQ(call(3), std::pair(Status::ok, std::string()));
    EXPECT_EQ(call(1), std::pair(Status::ok, std::string()));  // the fourth and last
    const std::vector<double> before = state;
    const auto [status, sentence] = call(1);
    EXPECT_EQ(status, Status::state_full);
    EXPECT_EQ(state, before);
    for (const char* part : {"3 levels", "4 tokens", "needs 4 levels"})
      EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
    EXPECT_NE(sentence.find(free ? "the input levels" : "levels(4)"), std::string::npos) << sentence;
    EXPECT_NE(call(5).second.find("needs 5 levels"), std::string::npos) << call(5).second;
  }
}

TEST(Plan, NotANumberInOneSequenceDoesNotReachAnother) {
  constexpr int B = 3, T = 40, H = 2, K = 4, V = 4;
  for (const char* name :
       {"gated-deltanet", "mamba-2", "rls:ridge=0.5", "softmax-attention", "equal / linear / gd(2)"}) {
    const Plan p = plan(name, {.batch = B, .heads = H, .key_dim = K, .value_dim = V}, {.type = Type::f64});
    NamedNumbers in;
    for (std::size_t i = 0; i < p.inputs().size(); ++i) {
      const InputInfo& info = p.inputs()[i];
      in[info.name] = normals(cli::count(p, info.shape, T), static_cast<unsigned>(i), 0.3);
      if (info.name == "beta" || info.name == "dt")
        for (double& x : in[info.name]) x = std::abs(x);
    }
    for (Form form : p.forms()) {
      if (form == Form::step) continue;
      const Numbers clean = Runner(p, T).forward(in, {}, form).outputs.at(p.outputs().front().name);
      NamedNumbers dirty = in;
      Numbers& values = dirty[in.contains("v") ? "v" : "x"];
      values[static_cast<std::size_t>(1 * T * H * V + 7)] = std::numeric_limits<double>::quiet_NaN();
      const Numbers result = Runner(p, T).forward(dirty, {}, form).outputs.at(p.outputs().front().name);
      const std::size_t one = T * H * V;
      bool reached = false;
      for (std::size_t i = 0; i < one; ++i) {
        EXPECT_EQ(result[i], clean[i]) << name;
        EXPECT_EQ(result[2 * one + i], clean[2 * one + i]) << name;
        reached |= std::isnan(result[one + i]);
      }
      EXPECT_TRUE(reached) << name << ": the sequence itself must show it";
    }
  }
}

TEST(Plan, EveryInstructionSetAgrees) {
  const NamedNumbers in = delta_inputs(1, 50, 2, 2, 17, 9);
  const Numbers expected =
      Runner(plan("gated-deltanet", {1, 2, 0, 17, 9}, {.type = Type::f64, .kernel = "oracle"}), 50)
          .forward(in, {}, Form::recurrent)
          .outputs.at("o");
  for (const char* target : {"AVX3", "AVX2", "SSE4", "SSSE3", "SSE2", "EMU128", "SCALAR"}) {
    try {
      const Plan p = plan("gated-deltanet", {1, 2, 0, 17, 9}, {.type = Type::f64, .target = target});
      EXPECT_NE(p.kernel().find(target), std::string::npos);
      for (Form form : {Form::recurrent, Form::chunk, Form::scan})
        EXPECT_LT(cli::relative_error(Runner(p, 50).forward(in, {}, form).outputs.at("o"), expected), 1e-12)
            << target;
    } catch (const Error& error) {  // not on this machine; the sentence says which are
      EXPECT_NE(std::string(error.what()).find(target), std::string::npos) << error.what();
    }
  }
}

TEST(Plan, UnnamedRecipesRun) {
  for (const char* text : {"equal / linear / gd(4)", "equal / linear / gd(4, step=0.01)",
                           "decay(0.9) / kernel(gauss) / exact(ridge=0.1)", "window(5) / linear / exact(ridge=0.1)",
                           "near(gauss) / linear / exact(ridge=0.1)", "equal / mlp(2) / sgd(beta=0.05)",
                           "decay(0.95) / linear(taylor2) / gd(1)"}) {
    const Plan p = plan(text, {.key_dim = 3, .value_dim = 2}, {.type = Type::f64});
    NamedNumbers in;
    for (std::size_t i = 0; i < p.inputs().size(); ++i)
      in[p.inputs()[i].name] = normals(cli::count(p, p.inputs()[i].shape, 9), static_cast<unsigned>(i));
    const Runner runner(p, 9);
    const Numbers o = runner.forward(in, {}, Form::recurrent).outputs.at("o");
    EXPECT_LT(cli::relative_error(runner.step_by_step(in, {}).outputs.at("o"), o), 1e-12) << text;
    double sum = 0;
    for (double x : o) sum += x * x;
    EXPECT_GT(sum, 0) << text;
    EXPECT_TRUE(std::isfinite(sum)) << text;
  }
}

}  // namespace
}  // namespace ttr
