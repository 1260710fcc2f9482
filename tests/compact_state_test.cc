// States in fewer bytes (Options::state_type): rounding at random that has the right mean, the same bits in any slot, batch
// and number of threads and after a rewind, files, refusals, and answers that stay near those of float.
#include <filesystem>

#include "error_of.h"
#include "layer_harness.h"
#include "simd/half_simd.h"
#include "ttr/half.h"
#include "ttr/saved_state.h"

namespace ttr_layer_test {
namespace {

struct Kind {
  const char* layer;
  Type type;
};
constexpr Kind kinds[] = {{"linear-attention", Type::bf16},
                          {"gated-deltanet", Type::bf16},
                          {"gla", Type::bf16},
                          {"kda", Type::bf16},
                          {"rwkv-7", Type::bf16},
                          {"mamba-2", Type::bf16},
                          {"mamba-1", Type::bf16},
                          {"mlstm", Type::bf16},
                          {"momentum-deltanet", Type::bf16},
                          {"gated-slot-attention", Type::bf16},
                          {"softmax-attention", Type::bf16},
                          {"softmax-attention", Type::f16},
                          {"softmax-attention", Type::i8},
                          {"softmax-attention:window=70", Type::f16},
                          {"softmax-attention:window=7", Type::i8},
                          {"forgetting-attention", Type::i8},
                          {"forgetting-attention", Type::bf16},
                          {"forgetting-attention", Type::f16},
                          {"near(gauss) * window(5) / constant / exact", Type::i8}};

Plan plan_of(const Kind& kind, int batch, int threads = 1, int rewind = 0, bool compact = true, int heads = 3,
             int dim = 6) {
  Options options;
  options.threads = threads, options.rewind = rewind;
  if (compact) options.state_type = kind.type;
  return ttr::plan(kind.layer, {.batch = batch, .heads = heads, .key_dim = dim, .value_dim = dim}, options);
}

// Tokens [begin, end) of the sequences `rows` of `inputs`, which are of `longest` tokens, in one call.
class Batch {
 public:
  Batch(Plan plan, std::int64_t longest) : plan_(std::move(plan)), longest_(longest) {
    state.resize(plan_.footprint(longest).state / sizeof(double) + 1);
    EXPECT_EQ(plan_.reset(state_of(state)), Status::ok);
  }
  NamedNumbers call(const std::vector<NamedNumbers>& inputs, const std::vector<int>& rows,
                    const std::vector<std::int64_t>& begin, std::int64_t tokens, Layout layout = Layout::dense) {
    std::map<std::string, Held> held;
    Inputs in;
    Outputs out;
    const Plan single = ttr::plan(plan_.name(), [&] {
      Shape one = plan_.shape();
      one.batch = 1;
      return one;
    }());
    for (const InputInfo& info : plan_.inputs()) {
      Numbers numbers;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const Numbers own = cli::tokens_of(single, inputs[static_cast<std::size_t>(rows[i])].at(info.name),
                                           info.shape, longest_, begin[i], begin[i] + tokens);
        numbers.insert(numbers.end(), own.begin(), own.end());
        if (!info.shape.starts_with("B")) break;
      }
      in[info.name] =
          held.emplace(info.name, Held(Type::f32, plan_.extents(info.shape, tokens), info.shape, layout, numbers))
              .first->second.tensor();
    }
    for (const InputInfo& info : plan_.outputs())
      out[info.name] =
          held.emplace("-> " + info.name, Held(Type::f32, plan_.extents(info.shape, tokens), info.shape, layout))
              .first->second.tensor();
    Guarded work(plan_.footprint(longest_).workspace);
    const Status status = plan_.forward(in, state_of(state), out, work.workspace());
    EXPECT_EQ(status, Status::ok) << plan_.diagnose(in, state_of(state), out, work.workspace());
    EXPECT_TRUE(work.fence_stands());
    NamedNumbers answers;
    for (const InputInfo& info : plan_.outputs()) answers[info.name] = held.at("-> " + info.name).numbers();
    return answers;
  }
  const Plan& plan() const { return plan_; }
  StateMemory state;

 private:
  Plan plan_;
  std::int64_t longest_;
};

NamedNumbers row_of(const Plan& plan, const NamedNumbers& answers, int row) {
  NamedNumbers own;
  for (const InputInfo& info : plan.outputs())
    own[info.name] = cli::row_of(plan, answers.at(info.name), info.shape, 1, row);
  return own;
}

TEST(RoundAtRandom, HasTheRightMeanAndTheSameBitsEverywhere) {
  std::vector<float> x(1001);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>((i % 2 ? -1 : 1) * std::exp2(static_cast<double>(i % 40) - 20) * (1 + 0.37 * (i % 3)));
  x[7] = std::numeric_limits<float>::quiet_NaN(), x[8] = std::numeric_limits<float>::infinity(), x[9] = 0;
  std::vector<double> sum(x.size(), 0);
  constexpr int draws = 4000;
  std::vector<std::uint16_t> bits(x.size()), other(x.size());
  const Simd<float>& best = simd<float>("");
  const HalfSimd& half = half_simd(best);
  for (int seed = 0; seed < draws; ++seed) {
    half.round_bf16(static_cast<std::ptrdiff_t>(x.size()), x.data(), static_cast<std::uint32_t>(seed) * 2654435761u,
                    3, bits.data());
    for (std::size_t i = 0; i < x.size(); ++i) sum[i] += static_cast<double>(to_float(bf16{bits[i]}));
    // In pieces, and on other instruction sets.
    half.round_bf16(100, x.data(), static_cast<std::uint32_t>(seed) * 2654435761u, 3, other.data());
    half.round_bf16(901, x.data() + 100, static_cast<std::uint32_t>(seed) * 2654435761u, 103, other.data() + 100);
    ASSERT_EQ(bits, other);
    if (seed % 500 == 0)
      for (const char* target : {"AVX2", "SSE4"}) {
        try {
          half_simd(simd<float>(target))
              .round_bf16(static_cast<std::ptrdiff_t>(x.size()), x.data(),
                          static_cast<std::uint32_t>(seed) * 2654435761u, 3, other.data());
        } catch (const Error&) {
          continue;  // not compiled
        }
        ASSERT_EQ(bits, other) << target;
      }
  }
  EXPECT_TRUE(std::isnan(sum[7]));
  EXPECT_TRUE(std::isinf(sum[8]));
  EXPECT_EQ(sum[9], 0);
  for (std::size_t i = 10; i < x.size(); ++i) {
    const double step =
        std::abs(static_cast<double>(x[i])) * 0x1p-7;  // of bf16 at most; the deviation is half of it at most
    EXPECT_NEAR(sum[i] / draws, static_cast<double>(x[i]), 5 * step / 2 / std::sqrt(draws)) << i;
  }
}

TEST(Int8Rows, AreNearestMultiplesOfTheirScale) {
  const HalfSimd& half = half_simd(simd<float>(""));
  for (const std::size_t n : {1u, 7u, 64u, 129u}) {
    std::vector<float> x(n), back(n);
    std::vector<std::int8_t> q(n);
    const Numbers numbers = normals(n, n);
    std::transform(numbers.begin(), numbers.end(), x.begin(), [](double y) { return static_cast<float>(3 * y); });
    const float scale = half.narrow_i8(static_cast<std::ptrdiff_t>(n), x.data(), q.data());
    half.widen_i8(static_cast<std::ptrdiff_t>(n), q.data(), scale, back.data());
    for (std::size_t i = 0; i < n; ++i) EXPECT_LE(std::abs(back[i] - x[i]), 0.5001f * scale) << i;
    std::fill(x.begin(), x.end(), 0.0f);
    EXPECT_EQ(half.narrow_i8(static_cast<std::ptrdiff_t>(n), x.data(), q.data()), 0.0f);
    x[n / 2] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isnan(half.narrow_i8(static_cast<std::ptrdiff_t>(n), x.data(), q.data())));
  }
}

TEST(CompactState, BitsDoNotDependOnBatchThreadsOrSlots) {
  constexpr std::int64_t longest = 20;
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(std::string(kind.layer) + " " + std::string(to_string(kind.type)));
    std::vector<NamedNumbers> inputs;
    for (std::uint64_t seed = 1; seed < 4; ++seed)
      inputs.push_back(inputs_of(plan_of(kind, 1), longest, false, seed));
    const Plan one = plan_of(kind, 1);
    for (const InputInfo& info : one.inputs())
      if (!info.shape.starts_with("B"))  // a parameter, of all sequences
        for (NamedNumbers& own : inputs) own[info.name] = inputs[0][info.name];
    // Sequence 1 by itself, token by token.
    Batch alone(plan_of(kind, 1), longest + 1);
    std::vector<NamedNumbers> answers;
    for (std::int64_t t = 0; t < longest; ++t) answers.push_back(alone.call(inputs, {1}, {t}, 1));
    // In a batch with others, on threads, taking tokens back, moved to another slot half way.
    Batch three(plan_of(kind, 3, 2, 3), longest + 4);
    for (std::int64_t t = 0; t < 9; ++t)
      EXPECT_TRUE(same_bits(row_of(three.plan(), three.call(inputs, {0, 1, 2}, {t, t, t}, 1), 1),
                            answers[static_cast<std::size_t>(t)]))
          << t;
    for (const std::int64_t t : {9, 10}) (void)three.call(inputs, {2, 0, 1}, {t, t + 3, t}, 1);  // what is not so
    ASSERT_EQ(three.plan().rewind(state_of(three.state), 1, 2), Status::ok);
    ASSERT_EQ(three.plan().swap(state_of(three.state), 1, 2), Status::ok);
    for (std::int64_t t = 9; t < longest; ++t)
      EXPECT_TRUE(same_bits(row_of(three.plan(), three.call(inputs, {0, 2, 1}, {t, t, t}, 1), 2),
                            answers[static_cast<std::size_t>(t)]))
          << t;
    // What a file brings back goes on with the same bits, and so does a copy in a plan of another batch.
    Batch again(plan_of(kind, 2), longest + 1), copied(plan_of(kind, 2), longest + 1);
    const std::vector<std::byte> file = save_state(alone.plan(), state_of(alone.state));
    load_state(file, again.plan(), state_of(again.state), 1);
    ASSERT_EQ(copied.plan().copy(alone.plan(), state_of(alone.state), 0, state_of(copied.state), 1), Status::ok);
    const NamedNumbers next = alone.call(inputs, {2}, {3}, 1);
    EXPECT_TRUE(same_bits(row_of(again.plan(), again.call(inputs, {0, 2}, {3, 3}, 1), 1), next));
    EXPECT_TRUE(same_bits(row_of(copied.plan(), copied.call(inputs, {1, 2}, {3, 3}, 1, Layout::padded), 1), next));
    Batch single(plan_of(kind, 1, 1, 0, false), longest + 1);
    const std::string why = error_of([&] { load_state(file, single.plan(), state_of(single.state)); });
    EXPECT_NE(why.find("state_type '" + std::string(to_string(kind.type))), std::string::npos) << why;
  }
}

// One call of many tokens, and one by one: the answers are near those of float, as near as the type allows.
TEST(CompactState, AnswersStayNearFloat) {
  constexpr std::int64_t longest = 150;
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(std::string(kind.layer) + " " + std::string(to_string(kind.type)));
    const std::vector<NamedNumbers> inputs = {inputs_of(plan_of(kind, 1, 1, 0, true, 2, 16), longest, false, 5)};
    for (const std::int64_t tokens : {std::int64_t{1}, std::int64_t{50}}) {
      Batch exact(plan_of(kind, 1, 1, 0, false, 2, 16), longest),
          compact(plan_of(kind, 1, 1, 0, true, 2, 16), longest);
      EXPECT_LT(compact.plan().footprint(longest).state,
                0.8 * static_cast<double>(exact.plan().footprint(longest).state));
      double error = 0, largest = 0;
      for (std::int64_t t = 0; t < longest; t += tokens) {
        const NamedNumbers a = exact.call(inputs, {0}, {t}, tokens), b = compact.call(inputs, {0}, {t}, tokens);
        const std::string& name = exact.plan().outputs().front().name;
        const Numbers &x = a.at(name), &y = b.at(name);
        for (std::size_t i = 0; i < x.size(); ++i)
          error = std::max(error, std::abs(x[i] - y[i])), largest = std::max(largest, std::abs(x[i]));
      }
      EXPECT_GT(error, 0);
      EXPECT_LT(error, 0.1 * largest);
    }
  }
}

TEST(CompactState, SaysWhereItHasNoMeaning) {
  const auto why = [](const char* layer, Type state, Type type = Type::f32, const char* kernel = "") {
    return error_of([&] {
      Options options;
      options.state_type = state, options.type = type, options.kernel = kernel;
      (void)ttr::plan(layer, {.heads = 2, .key_dim = 4, .value_dim = 4}, options);
    });
  };
  EXPECT_NE(why("gla", Type::bf16, Type::f64).find("f64"), std::string::npos);
  EXPECT_NE(why("gla", Type::i64).find("bf16, f16 or i8"), std::string::npos);
  EXPECT_NE(why("gla", Type::f16).find("f16 is for those"), std::string::npos);
  EXPECT_NE(why("gla", Type::i8).find("i8 is for those"), std::string::npos);
  EXPECT_NE(why("rls", Type::bf16).find("double"), std::string::npos);
  EXPECT_NE(why("kernel-regression", Type::i8).find("kernel-regression"), std::string::npos);
  EXPECT_NE(why("rms-norm", Type::bf16).find("no state"), std::string::npos);
  EXPECT_NE(why("gla", Type::bf16, Type::f32, "oracle").find("literal"), std::string::npos);

  Options options;
  options.state_type = Type::bf16;
  const Plan plan = ttr::plan("gla", {.heads = 2, .key_dim = 4, .value_dim = 4}, options);
  const Problem p = bare(plan, 3, {}, 3, 1);
  const Result r = run(p, Form::best);
  EXPECT_EQ(r.forward, Status::ok);
  EXPECT_EQ(r.backward, Status::not_supported);
  EXPECT_NE(error_of([&] { (void)plan.prepare_backward({}, {}, {}); }), "");
}

// Layout 2 of saved states, for ever: files that this version wrote.
TEST(CompactState, StoredFilesLoad) {
  for (const Kind& kind : {Kind{"gated-deltanet", Type::bf16}, Kind{"softmax-attention", Type::i8}}) {
    const std::string file = std::string(kind.layer) + "-" + std::string(to_string(kind.type)) + "-2.safetensors",
                      path = std::string(TTR_SOURCE_DIR) + "/tests/saved_states/" + file;
    Batch batch(plan_of(kind, 2), 20);
    if (const char* const make = std::getenv("TTR_WRITE_SAVED_STATES");
        make && !std::filesystem::exists(std::filesystem::path(make) / file)) {
      const std::vector<NamedNumbers> inputs = {inputs_of(plan_of(kind, 1), 20, false, 1),
                                                inputs_of(plan_of(kind, 1), 20, false, 2)};
      for (std::int64_t t = 0; t < 5; ++t) (void)batch.call(inputs, {0, 1}, {t, t}, 1);
      save_state((std::filesystem::path(make) / file).string(), batch.plan(), state_of(batch.state));
    }
    ASSERT_EQ(batch.plan().reset(state_of(batch.state)), Status::ok);
    load_state(path, batch.plan(), state_of(batch.state));
    EXPECT_EQ(batch.plan().tokens_seen(state_of(batch.state), 1), 5);
    EXPECT_EQ(read_saved_state(path).about.at("layout"), "2");
    EXPECT_EQ(read_saved_state(path).about.at("state_type"), to_string(kind.type));
  }
}

}  // namespace
}  // namespace ttr_layer_test
