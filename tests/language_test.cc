// Published models: stored types and their products, sequences that are copied, cut, rewound and saved, damaged files.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "header_examples.h"
#include "language/matrix.h"
#include "language/quantised.h"
#include "language/tokenizers.h"
#include "ttr/language.h"
#include "ttr/random.h"
#include "ttr/safetensors.h"

namespace ttr::model {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<float> normal_numbers(std::size_t count, std::uint64_t seed, double scale = 1) {
  Random random(seed);
  std::vector<float> result(count);
  for (float& x : result) x = static_cast<float>(scale * random.normal());
  return result;
}

// Blocks with random bits and scales that are numbers.
Bytes random_rows(Stored type, Size rows, Size in, std::uint64_t seed) {
  Bytes bytes(static_cast<std::size_t>(rows * row_bytes(type, in)));
  if (block_numbers(type) <= 32) {
    const std::vector<float> numbers = normal_numbers(static_cast<std::size_t>(rows * in), seed);
    narrow(type, rows * in, numbers.data(), bytes.data());
    return bytes;
  }
  Random random(seed);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.below(256));
  const std::uint16_t half = 0x2000;  // 2^-7
  for (std::size_t at = 0; at < bytes.size(); at += static_cast<std::size_t>(block_bytes(type))) {
    const std::size_t place = at + (type == Stored::q6_k ? 208 : 0);
    std::memcpy(bytes.data() + place, &half, 2);
    if (type != Stored::q6_k) std::memcpy(bytes.data() + place + 2, &half, 2);
  }
  return bytes;
}

constexpr Stored all_types[] = {Stored::f32,  Stored::f16,  Stored::bf16, Stored::q8_0,
                                Stored::q4_0, Stored::q4_k, Stored::q5_k, Stored::q6_k};

TEST(Language, ProductsOfEveryStoredType) {
  Team team(2), single(1);
  for (const Stored type : all_types)
    for (const Size in : {Size{1}, Size{7}, Size{32}, Size{33}, Size{96}, Size{256}, Size{300}, Size{512}}) {
      if (in % block_numbers(type) != 0) continue;
      for (const Size out : {Size{1}, Size{5}, Size{70}})
        for (const Size n : {Size{1}, Size{3}, Size{4}, Size{19}}) {
          Matrix W;
          W.type = type, W.out = out, W.in = in;
          const Bytes bytes = random_rows(type, out, in, 7);
          W.data = bytes.data();
          std::vector<float> plain(static_cast<std::size_t>(out * in));
          widen(type, out * in, bytes.data(), plain.data());
          const std::vector<float> x = normal_numbers(static_cast<std::size_t>(n * in), 8);
          std::vector<float> y(static_cast<std::size_t>(n * out)), z(y.size());
          MatrixProducts<float> products(team, in);
          const Product<float> to_y{&W, x.data(), in, y.data(), out}, to_z{&W, x.data(), in, z.data(), out};
          products.tokens(n, {&to_y, 1});
          products.block(n, {&to_z, 1});
          for (Size i = 0; i < n; ++i)
            for (Size o = 0; o < out; ++o) {
              double sum = 0, size = 0;
              for (Size k = 0; k < in; ++k) {
                const double term = static_cast<double>(x[static_cast<std::size_t>(i * in + k)]) *
                                    static_cast<double>(plain[static_cast<std::size_t>(o * in + k)]);
                sum += term, size += std::abs(term);
              }
              const std::size_t at = static_cast<std::size_t>(i * out + o);
              ASSERT_NEAR(static_cast<double>(y[at]), sum, 1e-6 * size + 1e-30) << to_string(type) << " in " << in;
              ASSERT_NEAR(static_cast<double>(z[at]), sum, 1e-6 * size + 1e-30) << to_string(type) << " in " << in;
            }
          // A row has the same bits alone.
          for (Size i = 0; i < n; ++i) {
            std::vector<float> alone(static_cast<std::size_t>(out));
            MatrixProducts<float> one(single, in);
            const Product<float> to_alone{&W, x.data() + i * in, in, alone.data(), out};
            one.tokens(1, {&to_alone, 1});
            ASSERT_EQ(0, std::memcmp(alone.data(), y.data() + i * out, alone.size() * sizeof(float)));
          }
        }
    }
}

TEST(Language, RoundingToBlocks) {
  const std::vector<float> x = normal_numbers(320, 3);
  for (const auto& [type, limit] :
       {std::pair{Stored::q8_0, 0.02}, {Stored::q4_0, 0.3}, {Stored::bf16, 0.02}, {Stored::f16, 0.002}}) {
    Bytes bytes(static_cast<std::size_t>(row_bytes(type, 320)));
    narrow(type, 320, x.data(), bytes.data());
    std::vector<float> back(320);
    widen(type, 320, bytes.data(), back.data());
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], back[i], limit) << to_string(type);
  }
}

// A small RWKV-4: everything a sequence can carry but lists of pairs.
TensorFile small_model(std::uint64_t seed) {
  constexpr std::int64_t V = 256, D = 64, F = 96, L = 2;
  TensorFile file;
  std::uint64_t next = seed;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, double scale, double mean = 0) {
    std::size_t count = 1;
    for (const std::int64_t n : shape) count *= static_cast<std::size_t>(n);
    std::vector<float> numbers = normal_numbers(count, ++next, scale);
    for (float& v : numbers) v += static_cast<float>(mean);
    StoredTensor tensor{name, "F32", std::move(shape), Bytes(count * 4)};
    std::memcpy(tensor.bytes.data(), numbers.data(), tensor.bytes.size());
    file.tensors.push_back(std::move(tensor));
  };
  const auto norm = [&](const std::string& name) {
    add(name + ".weight", {D}, 0.1, 1), add(name + ".bias", {D}, 0.1);
  };
  add("emb.weight", {V, D}, 0.5);
  norm("blocks.0.ln0");
  for (std::int64_t i = 0; i < L; ++i) {
    const std::string b = "blocks." + std::to_string(i) + ".";
    norm(b + "ln1"), norm(b + "ln2");
    add(b + "att.time_decay", {D}, 1), add(b + "att.time_first", {D}, 1);
    for (const char* c : {"k", "v", "r"}) add(b + "att.time_mix_" + c, {1, 1, D}, 0.2, 0.5);
    for (const char* m : {"key", "value", "receptance", "output"}) add(b + "att." + m + ".weight", {D, D}, 0.12);
    for (const char* c : {"k", "r"}) add(b + "ffn.time_mix_" + c, {1, 1, D}, 0.2, 0.5);
    add(b + "ffn.key.weight", {F, D}, 0.12), add(b + "ffn.receptance.weight", {D, D}, 0.12);
    add(b + "ffn.value.weight", {D, F}, 0.1);
  }
  norm("ln_out");
  add("head.weight", {V, D}, 0.12);
  return file;
}

class LanguageFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("ttr_language_" + std::to_string(::getpid()) + "_" +
                                                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / "model.safetensors").string();
    write_safetensors(path_, small_model(1));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string at(const char* name) const { return (folder_ / name).string(); }
  std::filesystem::path folder_;
  std::string path_;
};

std::vector<std::int32_t> some_tokens(std::size_t count, std::uint64_t seed = 5) {
  Random random(seed);
  std::vector<std::int32_t> tokens(count);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random.below(256));
  return tokens;
}
std::vector<float> copy_of(std::span<const float> from) { return {from.begin(), from.end()}; }

TEST_F(LanguageFiles, BitsDoNotDependOnCutsThreadsOrCompany) {
  const std::vector<std::int32_t> tokens = some_tokens(40);
  LanguageModel<float> one(path_), two(path_, {.threads = 2, .piece = 7});
  Sequence<float> whole(one), cut(two);
  const std::vector<float> expected = copy_of(one.prefill(whole, tokens, Bits::fixed));
  std::span<const float> last;
  for (std::size_t at = 0; at < tokens.size(); at += 11)
    last =
        two.prefill(cut, std::span(tokens).subspan(at, std::min<std::size_t>(11, tokens.size() - at)), Bits::fixed);
  EXPECT_EQ(expected, copy_of(last));
  // Five sequences token by token, the first among them.
  std::vector<Sequence<float>> company;
  for (int i = 0; i < 5; ++i) company.emplace_back(two);
  std::vector<Sequence<float>*> slots;
  for (auto& sequence : company) slots.push_back(&sequence);
  std::vector<float> logits;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    std::vector<std::int32_t> now = some_tokens(5, 100 + t);
    now[2] = tokens[t];
    logits = copy_of(two.decode(slots, now));
  }
  EXPECT_EQ(expected, std::vector<float>(logits.begin() + 2 * 256, logits.begin() + 3 * 256));
  // By blocks: equal up to rounding.
  Sequence<float> fast(one);
  const std::span<const float> block = one.prefill(fast, tokens);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(expected[i], block[i], 1e-4f);
}

TEST_F(LanguageFiles, SequencesAreCopiedRewoundAndSaved) {
  LanguageModel<float> model(path_, {.rewind = 4});
  Sequence<float> a(model);
  const std::vector<std::int32_t> tokens = some_tokens(20);
  model.prefill(a, std::span(tokens).first(12), Bits::fixed);
  Sequence<float> b(a);
  a.save(at("state.safetensors"));
  const std::vector<float> expected = copy_of(model.prefill(a, std::span(tokens).subspan(12), Bits::fixed));
  // Three other tokens are tried and taken back.
  model.prefill(b, some_tokens(3, 77), Bits::fixed);
  b.rewind(3);
  EXPECT_EQ(b.tokens(), 12);
  EXPECT_EQ(expected, copy_of(model.prefill(b, std::span(tokens).subspan(12), Bits::fixed)));
  EXPECT_THROW(b.rewind(5), Error);
  // Another process.
  LanguageModel<float> again(path_);
  Sequence<float> c(again);
  c.load(at("state.safetensors"));
  EXPECT_EQ(c.tokens(), 12);
  EXPECT_EQ(expected, copy_of(again.prefill(c, std::span(tokens).subspan(12), Bits::fixed)));
  // A damaged state is refused, and nothing is lost.
  Bytes bytes = read_whole_file(at("state.safetensors"));
  Random random(3);
  int loaded = 0;
  for (int i = 0; i < 300; ++i) {
    Bytes bad = bytes;
    bad[random.below(bad.size())] ^= static_cast<std::byte>(1 + random.below(255));
    write_whole_file(at("bad.safetensors"), bad);
    try {
      c.load(at("bad.safetensors"));
      ++loaded;
    } catch (const Error&) {
    }
  }
  EXPECT_EQ(loaded, 0);
}

TEST_F(LanguageFiles, QuantisedCopies) {
  const Quantised plain = quantise(path_, at("model.gguf"), "f32");
  EXPECT_EQ(plain.before, plain.after);
  LanguageModel<float> model(path_), same(at("model.gguf"));
  Sequence<float> a(model), b(same);
  const std::vector<std::int32_t> tokens = some_tokens(9);
  const std::vector<float> expected = copy_of(model.prefill(a, tokens));
  EXPECT_EQ(expected, copy_of(same.prefill(b, tokens)));  // the same bits from GGUF
  for (const auto& [type, limit] : {std::pair{"q8_0", 0.05f}, {"q4_0", 0.8f}, {"bf16", 0.05f}, {"f16", 0.01f}}) {
    const Quantised made = quantise(path_, at("small.gguf"), type);
    EXPECT_LT(made.after, made.before);
    EXPECT_EQ(made.changed, 2 + 2 * 7);
    EXPECT_EQ(made.odd_rows, 0);
    LanguageModel<float> rounded(at("small.gguf"));
    Sequence<float> c(rounded);
    const std::span<const float> logits = rounded.prefill(c, tokens);
    float worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::abs(expected[i] - logits[i]));
    EXPECT_LT(worst, limit) << type;
    EXPECT_GT(worst, 0) << type;
  }
  quantise(path_, at("half.safetensors"), "bf16");
  LanguageModel<float> half(at("half.safetensors"));
  EXPECT_THROW(quantise(path_, at("x.safetensors"), "q8_0"), Error);
  EXPECT_THROW(quantise(path_, at("x.gguf"), "q3_k"), Error);
  EXPECT_THROW(quantise(path_, at("x.bin"), "f16"), Error);
  EXPECT_THROW(quantise(path_, path_, "f16"), Error);
  EXPECT_THROW(quantise(path_, at("x.gguf"), "f16", [] { return false; }), Error);
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    EXPECT_NE(entry.path().filename().string().rfind("x.", 0), 0u) << entry.path();
}

TEST_F(LanguageFiles, StatesKnowHowTheyEnded) {
  LanguageModel<float> model(path_);
  Sequence<float> text(model), other(model);
  TextEnd<float> end{copy_of(model.prefill(text, some_tokens(9))), some_tokens(9)};
  text.save(at("state"), end);
  const TextEnd<float> back = other.load(at("state"));
  EXPECT_EQ(back.logits, end.logits);
  EXPECT_EQ(back.newest, end.newest);
  EXPECT_EQ(other.tokens(), 9);
  text.save(at("state"));
  EXPECT_TRUE(other.load(at("state")).logits.empty());
  end.logits.resize(7);
  text.save(at("state"), end);
  EXPECT_THROW(other.load(at("state")), Error);
}

// A GGUF that says that it has no tokenizer has none, though 256 tokens could be bytes; tests/language_cli_test.sh runs one.
TEST_F(LanguageFiles, GgufWithoutVocabulary) {
  const auto weights = [&](const char* kind) {
    std::string file;
    const auto number = [&](auto value) { file.append(reinterpret_cast<const char*>(&value), sizeof value); };
    const auto text = [&](const std::string& value) { number(std::uint64_t{value.size()}), file += value; };
    number(std::uint32_t{0x46554747u}), number(std::uint32_t{3}), number(std::int64_t{1});  // one tensor
    number(std::int64_t{kind ? 2 : 1});                                                     // pairs
    text("general.architecture"), number(std::uint32_t{8}), text("mamba2");
    if (kind) text("tokenizer.ggml.model"), number(std::uint32_t{8}), text(kind);
    text("a"), number(std::uint32_t{1}), number(std::int64_t{8}), number(std::int32_t{0}), number(std::uint64_t{0});
    file.resize((file.size() + 31) / 32 * 32 + 32);
    std::ofstream(at("model.gguf"), std::ios::binary) << file;
    return Weights(at("model.gguf"));
  };
  EXPECT_NE(tokenizer_of(weights(nullptr), 256), nullptr);
  EXPECT_EQ(tokenizer_of(weights("no_vocab"), 256), nullptr);
  EXPECT_EQ(tokenizer_of(weights("none"), 256), nullptr);
  EXPECT_THROW(tokenizer_of(weights("unheard of"), 256), Error);
}

// The example of ttr/language.h, compiled and run; `choose` is whoever chooses tokens.
TEST_F(LanguageFiles, HeaderExample) {
  const std::string here = std::filesystem::current_path().string();
  std::filesystem::current_path(folder_);
  quantise(path_, "model.gguf", "q8_0");
  int chosen = 0;
  const auto choose = [&](int, std::span<const float> scores) {
    return ++chosen <= 5 ? ttr::model::likeliest(scores) : -1;
  };

  ttr::model::LanguageModel<float> model("model.gguf", {.threads = 0, .rewind = 4});
  ttr::model::Sequence<float> one(model);  // what one text has seen
  std::vector<std::int32_t> tokens = model.tokenizer()->encode("Once upon");
  std::span<const float> logits = model.prefill(one, tokens);  // of what comes next
  std::int32_t next = ttr::model::likeliest(logits);
  ttr::model::Sequence<float>* slots[] = {&one};
  logits = model.decode(slots, {&next, 1});  // one token of each of several sequences
  one.save("state.safetensors");             // and another day: one.load("state.safetensors")
  one.rewind(1);                             // a draft that was not taken (LoadOptions::rewind)

  ttr::model::Slots<float> texts(model, 8);
  int first = texts.join(tokens);
  while (texts.taken() > 0)
    texts.round([&](int slot, std::span<const float> scores) { return choose(slot, scores); });  // -1: it leaves

  EXPECT_EQ(logits.size(), 256u);
  EXPECT_EQ(one.tokens(), static_cast<std::int64_t>(tokens.size()));
  EXPECT_EQ(first, 0);
  EXPECT_EQ(chosen, 6);
  std::filesystem::current_path(here);
  // What the headers say
  examples::expect_in("tests/language_test.cc", examples::header_example("include/ttr/language.h"), 9);
}

// Texts that join and leave at any time get what each gets alone, on any number of threads and slots.
TEST_F(LanguageFiles, SlotsDoNotSeeEachOther) {
  LanguageModel<float> one(path_, {.piece = 7}), two(path_, {.threads = 2, .piece = 7});
  const auto prompt = [](int i) {
    return some_tokens(static_cast<std::size_t>(1 + 5 * (i % 6)), 40 + static_cast<std::uint64_t>(i));
  };
  std::vector<std::vector<std::int32_t>> alone, together(12);
  std::vector<float> sums(12), other_sums(12);
  for (int i = 0; i < 12; ++i) {
    Sequence<float> text(one);
    alone.emplace_back();
    std::vector<float> logits = copy_of(one.prefill(text, prompt(i)));
    for (int t = 0; t < 3 + i; ++t) {
      for (const float x : logits) sums[static_cast<std::size_t>(i)] += x;
      alone.back().push_back(likeliest(std::span<const float>(logits)));
      Sequence<float>* slots[] = {&text};
      logits = copy_of(one.decode(slots, {&alone.back().back(), 1}));
    }
  }
  Slots<float> slots(two, 4);
  std::map<int, int> text_of;
  int joined = 0;
  while (joined < 12 || slots.taken() > 0) {
    while (joined < 12) {
      const int slot = slots.join(prompt(joined));
      if (slot < 0) break;
      text_of[slot] = joined++;
    }
    slots.round([&](int slot, std::span<const float> logits) -> std::int32_t {
      const std::size_t i = static_cast<std::size_t>(text_of.at(slot));
      if (together[i].size() == 3 + i) return -1;
      for (const float x : logits) other_sums[i] += x;
      together[i].push_back(likeliest(logits));
      return together[i].back();
    });
  }
  EXPECT_EQ(together, alone);
  EXPECT_EQ(sums, other_sums);  // the same bits
  EXPECT_THROW(slots.join({}), Error);
  EXPECT_THROW(slots.join(std::vector<std::int32_t>{256}), Error);
  EXPECT_THROW(slots.leave(0), Error);
  Sequence<float> stranger(one);
  EXPECT_THROW(two.prefill(stranger, some_tokens(2)), Error);
  Sequence<float> a(two);
  Sequence<float>* twice[] = {&a, &a};
  EXPECT_THROW(two.decode(twice, some_tokens(2)), Error);
}

TEST(Language, TeamRunsEveryTaskOnce) {
  for (const int threads : {1, 2, 5}) {
    Team team(threads);
    for (int round = 0; round < 300; ++round) {
      const int tasks = 1 + round % 37;
      std::vector<int> done(static_cast<std::size_t>(tasks), 0);
      std::atomic<int> inside[8] = {};
      std::atomic<bool> shared{false};
      const auto run = [&] {
        team.run(tasks, [&](int task, int worker) {
          if (inside[worker].fetch_add(1) != 0) shared = true;
          ++done[static_cast<std::size_t>(task)];
          inside[worker].fetch_sub(1);
        });
      };
      if (round % 3 == 0) {
        const Team::Awake awake(team);
        run(), run();
      } else run(), run();
      EXPECT_EQ(done, std::vector<int>(static_cast<std::size_t>(tasks), 2));
      EXPECT_FALSE(shared);
    }
  }
}

// Whatever stands in a file: an Error or a model, never more.
TEST_F(LanguageFiles, DamagedFiles) {
  quantise(path_, at("model.gguf"), "q8_0");
  Random random(11);
  int refused = 0, ran = 0;
  for (const std::string& source : {path_, at("model.gguf")}) {
    const Bytes whole = read_whole_file(source);
    for (int i = 0; i < 400; ++i) {
      Bytes bad = whole;
      const std::size_t head = std::min<std::size_t>(bad.size(), 4096);
      const int kind = static_cast<int>(random.below(4));
      if (kind == 0) bad.resize(random.below(bad.size()));
      else
        for (int j = 0; j <= kind * 3; ++j)
          bad[random.below(kind == 3 ? bad.size() : head)] = static_cast<std::byte>(random.below(256));
      if (bad.empty()) continue;
      const std::string name = at(source == path_ ? "bad.safetensors" : "bad.gguf");
      std::ofstream(name, std::ios::binary)
          .write(reinterpret_cast<const char*>(bad.data()), static_cast<std::streamsize>(bad.size()));
      try {
        LanguageModel<float> model(name);
        Sequence<float> sequence(model);
        const std::int32_t tokens[] = {0, 1};
        model.prefill(sequence, tokens);
        ++ran;
      } catch (const Error& error) {
        EXPECT_GT(std::strlen(error.what()), 10u);
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 200);
  EXPECT_GT(ran, 50);  // numbers that were changed are numbers still
}

TEST(Language, HostileSizes) {
  const auto refused = [](const Bytes& bytes) {
    std::vector<Weight> weights;
    Settings settings("file");
    EXPECT_THROW(read_gguf(bytes, "file", weights, settings), Error);
  };
  const auto file = [](std::int64_t tensors, std::int64_t pairs, const auto&... rest) {
    Bytes bytes;
    const auto put = [&](const auto& x) {
      const auto* p = reinterpret_cast<const std::byte*>(&x);
      bytes.insert(bytes.end(), p, p + sizeof x);
    };
    put(std::uint32_t{0x46554747u}), put(std::uint32_t{3}), put(tensors), put(pairs);
    (put(rest), ...);
    bytes.resize(std::max<std::size_t>(bytes.size(), 256));
    return bytes;
  };
  refused(file(1'000'000'000, 0));
  refused(file(0, 1'000'000'000));
  refused(file(-1, 0));
  refused(file(0, 1, std::uint64_t{~0ull}));  // a key without end
  refused(file(0, 1, std::uint64_t{1}, 'a', std::int32_t{9}, std::int32_t{8}, std::uint64_t{1} << 60));  // texts
  refused(file(0, 1, std::uint64_t{1}, 'a', std::int32_t{9}, std::int32_t{4}, std::uint64_t{1} << 60));  // numbers
  refused(file(0, 1, std::uint64_t{1}, 'a', std::int32_t{9}, std::int32_t{9}, std::uint64_t{1}));  // nested arrays
  refused(file(1, 0, std::uint64_t{1}, 'a', std::uint32_t{2}, std::int64_t{1} << 40, std::int64_t{1} << 40,
               std::int32_t{0}, std::uint64_t{0}));  // a product that overflows
  refused(
      file(1, 0, std::uint64_t{1}, 'a', std::uint32_t{1}, std::int64_t{8}, std::int32_t{0}, std::uint64_t{1} << 62));
}

TEST(Language, PairsThatFallBackToBytes) {
  std::string bytes;
  for (int b = 0; b < 256; ++b) {
    char token[16];
    std::snprintf(token, sizeof token, "\"<0x%02X>\": %d, ", static_cast<unsigned>(b), b);
    bytes += token;
  }
  const auto with = [&](const std::string& rest) {
    return json_tokenizer(
        R"({"added_tokens": [{"id": 300, "content": "</s>", "special": true}], "model": {"type": "BPE",
      "byte_fallback": true, "vocab": {)" +
            bytes + R"("a": 256, "b": 257, "\u2581": 258, "\u2581a": 259, "ab": 260,
      "\u2581ab": 261}, "merges": ["a b", "\u2581 a", "\u2581 ab"]}, )" +
            rest + "}",
        "tokenizer.json");
  };
  using Tokens = std::vector<std::int32_t>;
  const auto old =
      with(R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]})");
  EXPECT_EQ(old->encode("ab a"), (Tokens{261, 259}));
  EXPECT_EQ(old->encode(" ab</s>a"), (Tokens{258, 261, 300, 259}));
  EXPECT_EQ(old->encode("a\n\xC3\xA9\xFF"), (Tokens{259, 10, 0xC3, 0xA9, 0xFF}));
  std::string text;
  for (const std::int32_t token : old->encode("ab a\n\xC3\xA9")) text += old->decode(token);
  EXPECT_EQ(text, " ab a\n\xC3\xA9");
  EXPECT_EQ(old->ends(), (Tokens{300}));
  const auto first =
      with(R"("pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first",
    "split": false})");
  EXPECT_EQ(first->encode(" ab</s>a"), (Tokens{261, 300, 256}));
  EXPECT_THROW(with(R"("pre_tokenizer": {"type": "Digits"})"), Error);
  EXPECT_THROW(with(R"("normalizer": {"type": "Prepend", "prepend": "x"})"), Error);
}

TEST(Language, WorldTokenizer) {
  const auto t = world_tokenizer(
      "1 '\\x00' 1\n2 'a' 1\n3 'ab' 2\n4 b'\\xff' 1\n5 ' b' 2\n6 '\\n\\n' 2\n7 'b' 1\n8 '\\u00e9' 2\n", "vocab");
  EXPECT_EQ(t->encode("aab b\n\nb"), (std::vector<std::int32_t>{2, 3, 5, 6, 7}));
  EXPECT_EQ(t->encode("\xff"), (std::vector<std::int32_t>{4}));
  EXPECT_EQ(t->encode("\xc3\xa9"), (std::vector<std::int32_t>{8}));
  EXPECT_EQ(t->decode(3), "ab");
  EXPECT_THROW(t->encode("z"), Error);
  EXPECT_THROW(world_tokenizer("1 'ab' 3\n", "vocab"), Error);
  EXPECT_THROW(world_tokenizer("x\n", "vocab"), Error);
  EXPECT_THROW(world_tokenizer("1 '\\x0' 1\n", "vocab"), Error);
}

}  // namespace
}  // namespace ttr::model
