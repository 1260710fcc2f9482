// Files that are not what they say: the readers of published models throw Error, or read what there is; nothing else happens.
//
//   TTR_FUZZ=20000 build/asan/tests/ttr_tests --gtest_filter='LanguageFuzz*'     so many files of each kind; some by default
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "language/tokenizers.h"
#include "ttr/language.h"
#include "ttr/random.h"
#include "ttr/safetensors.h"

namespace ttr::model {
namespace {

using Bytes = std::vector<std::byte>;

int rounds(int otherwise) {
  const char* const text = std::getenv("TTR_FUZZ");
  return text ? std::atoi(text) : otherwise;
}

// One to four changes, most of them in the first `head` bytes: bytes, whole numbers at their limits, pieces moved, copied or cut.
Bytes damaged(const Bytes& from, std::size_t head, Random& random) {
  Bytes bytes = from;
  const auto place = [&]() -> std::size_t {
    if (bytes.empty()) return 0;
    return static_cast<std::size_t>(random.below(random.below(8) == 0 ? bytes.size() : std::min(head, bytes.size())));
  };
  for (std::uint64_t changes = 1 + random.below(4); changes > 0; --changes) {
    const std::size_t at = place(), other = place();
    const std::size_t length = static_cast<std::size_t>(1 + random.below(24));
    switch (random.below(8)) {
      case 0:
        bytes.resize(at);
        break;
      case 1: {
        static constexpr std::int64_t limits[] = {0,
                                                  1,
                                                  -1,
                                                  255,
                                                  0x7fffffff,
                                                  0x80000000,
                                                  0xffffffff,
                                                  std::int64_t{1} << 40,
                                                  std::int64_t{1} << 62,
                                                  std::numeric_limits<std::int64_t>::max()};
        const std::int64_t number = limits[random.below(std::size(limits))];
        const std::size_t size =
            std::min<std::size_t>(random.below(2) ? 8 : 4, bytes.size() - std::min(at, bytes.size()));
        if (size > 0) std::memcpy(bytes.data() + at, &number, size);
        break;
      }
      case 2:
        if (other + length <= bytes.size()) {
          const Bytes piece(bytes.begin() + static_cast<std::ptrdiff_t>(other),
                            bytes.begin() + static_cast<std::ptrdiff_t>(other + length));
          bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), piece.begin(), piece.end());
        }
        break;
      case 3:
        if (at + length <= bytes.size())
          bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                      bytes.begin() + static_cast<std::ptrdiff_t>(at + length));
        break;
      case 4: {  // a digit becomes a long number, a letter a bracket: texts are JSON
        static constexpr char pieces[][12] = {"99999999999", "[",    "]",     "{",       "}",   "\"",
                                              "-1",          "null", "1e999", "\\u0000", "\xff"};
        const char* const text = pieces[random.below(std::size(pieces))];
        const auto* const p = reinterpret_cast<const std::byte*>(text);
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), p, p + std::strlen(text));
        break;
      }
      default:
        for (std::size_t i = at; i < std::min(bytes.size(), at + 1 + length / 8); ++i)
          bytes[i] = static_cast<std::byte>(random.below(256));
    }
  }
  return bytes;
}

// A text that is still one: digits become others or many, letters others, one of either goes.
Bytes reworded(const Bytes& from, Random& random) {
  Bytes bytes = from;
  for (int changes = 0; changes < 1 + static_cast<int>(random.below(2));) {
    const std::size_t at = static_cast<std::size_t>(random.below(bytes.size()));
    const char c = std::to_integer<char>(bytes[at]);
    const bool digit = c >= '0' && c <= '9', letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!digit && !letter && random.below(8) != 0) continue;
    ++changes;
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (random.below(4)) {
      case 0:
        bytes.erase(place);
        break;
      case 1:
        if (digit) bytes.insert(place, static_cast<std::size_t>(1 + random.below(20)), std::byte{'9'});
        else bytes.insert(place, *place);
        break;
      default:
        bytes[at] = static_cast<std::byte>(digit ? '0' + static_cast<int>(random.below(10))
                                                 : 'a' + static_cast<int>(random.below(26)));
    }
  }
  return bytes;
}

void write(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}
Bytes bytes_of(const std::string& text) {
  const auto* const p = reinterpret_cast<const std::byte*>(text.data());
  return {p, p + text.size()};
}

// A Gated DeltaNet of one block, small enough that a thousand of them take seconds.
TensorFile tiny_model() {
  constexpr std::int64_t V = 32, D = 32, H = 2, F = 32;
  TensorFile file;
  std::uint64_t seed = 0;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    Random random(++seed);
    std::size_t count = 1;
    for (const std::int64_t n : shape) count *= static_cast<std::size_t>(n);
    StoredTensor tensor{name, "F32", std::move(shape), Bytes(count * 4)};
    for (std::size_t i = 0; i < count; ++i) {
      const auto x = static_cast<float>(0.3 * random.normal());
      std::memcpy(tensor.bytes.data() + 4 * i, &x, 4);
    }
    file.tensors.push_back(std::move(tensor));
  };
  add("model.embeddings.weight", {V, D});
  const std::string b = "model.layers.0.", a = b + "attn.";
  add(b + "attn_norm.weight", {D}), add(b + "mlp_norm.weight", {D});
  for (const char* letter : {"q", "k", "v"}) {
    add(a + letter + "_proj.weight", {D, D});
    add(a + letter + "_conv1d.weight", {D, 1, 4});
  }
  add(a + "b_proj.weight", {H, D}), add(a + "a_proj.weight", {H, D}), add(a + "A_log", {H}), add(a + "dt_bias", {H});
  add(a + "g_proj.weight", {D, D}), add(a + "o_norm.weight", {D / H}), add(a + "o_proj.weight", {D, D});
  add(b + "mlp.gate_proj.weight", {F, D}), add(b + "mlp.up_proj.weight", {F, D}),
      add(b + "mlp.down_proj.weight", {D, F});
  add("model.norm.weight", {D}), add("lm_head.weight", {V, D});
  return file;
}
const char config[] = R"({"model_type": "gated_deltanet", "num_heads": 2, "norm_eps": 1e-06, "hidden_ratio": 4,
 "attn": null, "architectures": ["GatedDeltaNetForCausalLM"], "list": [1, 2.5, "x", {"deep": [[]]}]})";
const char index[] =
    R"({"metadata": {"total_size": 1}, "weight_map": {"model.embeddings.weight": "model-1.safetensors",
 "model.norm.weight": "model-1.safetensors", "lm_head.weight": "model-1.safetensors"}})";
const char tokenizer[] = R"({"added_tokens": [{"id": 8, "content": "<|end|>", "special": true}], "normalizer": null,
 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}, "decoder": {"type": "ByteLevel"},
 "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3, "abc": 4, "\u0120": 5, "\u0120a": 6, "ba": 7},
 "merges": ["a b", "ab c", "\u0120 a", "b a"]}})";
const char fallback[] = R"({"added_tokens": [{"id": 9, "content": "</s>", "special": true}], "model": {"type": "BPE",
 "byte_fallback": true, "vocab": {"<0x0A>": 0, "<0xFF>": 1, "a": 2, "b": 3, "\u2581": 4, "\u2581a": 5, "ab": 6, "c": 7},
 "merges": ["a b", "\u2581 a"]}, "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
 {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}})";
const char vocabulary[] =
    "1 '\\x00' 1\n2 'a' 1\n3 'ab' 2\n4 b'\\xff' 1\n5 ' b' 2\n6 '\\n\\n' 2\n7 'b' 1\n8 '\\u00e9' 2\n";

class LanguageFuzz : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("ttr_fuzz_" + std::to_string(::getpid()) + "_" +
                                                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    write_safetensors(at("model.safetensors"), tiny_model());
    write(at("config.json"), bytes_of(config));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }

  // Files of `original`, damaged, under the name `file`; `read` reads what is there.
  template <class Read>
  void fuzz(const Bytes& original, std::size_t head, const std::string& file, std::uint64_t seed, Read&& read) {
    Random random(seed, file);
    int refused = 0, fine = 0;
    const int count = rounds(120);
    for (int i = 0; i < count; ++i) {
      const bool text = std::to_integer<char>(original[0]) == '{' || std::to_integer<char>(original[0]) == '1';
      write(at(file), text && random.below(4) != 0 ? reworded(original, random) : damaged(original, head, random));
      try {
        read();
        ++fine;
      } catch (const Error& error) {
        EXPECT_GT(std::strlen(error.what()), 10u);
        ++refused;
      } catch (const std::exception& error) {
        ADD_FAILURE() << file << " number " << i << ": " << error.what();
      }
    }
    std::printf("%s: %d files, %d refused\n", file.c_str(), count, refused);
    EXPECT_GT(refused, count / 10);
    if (count >= 1000) {
      EXPECT_GT(fine, count / 50);  // some damage does not show
    }
    write(at(file), original);
    read();  // what was not damaged is read
  }
  static void run(const std::string& path) {
    (void)look_into(path);
    LanguageModel<float> model(path, {.context = 8});
    Sequence<float> sequence(model);
    const std::int32_t tokens[] = {0, 1};
    (void)model.prefill(sequence, tokens);
  }
  std::filesystem::path folder_;
};

TEST_F(LanguageFuzz, Safetensors) {
  const Bytes whole = read_whole_file(at("model.safetensors"));
  fuzz(whole, 2500, "model.safetensors", 1, [&] { run(folder_.string()); });
}
TEST_F(LanguageFuzz, Gguf) {
  quantise(folder_.string(), at("copy.gguf"), "q8_0");
  const Bytes whole = read_whole_file(at("copy.gguf"));
  fuzz(whole, 2500, "copy.gguf", 2, [&] { run(at("copy.gguf")); });
}
TEST_F(LanguageFuzz, Configuration) {
  fuzz(bytes_of(config), 1000, "config.json", 3, [&] { run(folder_.string()); });
}
TEST_F(LanguageFuzz, Index) {
  std::filesystem::rename(at("model.safetensors"), at("model-1.safetensors"));
  fuzz(bytes_of(index), 1000, "model.safetensors.index.json", 4, [&] { run(folder_.string()); });
}
TEST_F(LanguageFuzz, Tokenizer) {
  const auto read = [&] {
    const auto one = open_tokenizer(at("tokenizer.json"));
    (void)one->decode(-1), (void)one->decode(1 << 30);
    for (const char* text : {"\xff\xfe", " a<|end|>b", ""}) try {
        for (const std::int32_t token : one->encode(text)) (void)one->decode(token);
      } catch (const Error&) {  // a byte that the vocabulary does not have
      }
    for (const std::int32_t token : one->encode("abc ab")) (void)one->decode(token);
  };
  fuzz(bytes_of(tokenizer), 1000, "tokenizer.json", 5, read);
  fuzz(bytes_of(fallback), 1000, "tokenizer.json", 7, read);
}
TEST_F(LanguageFuzz, Vocabulary) {
  fuzz(bytes_of(vocabulary), 1000, "rwkv_vocab_v20230424.txt", 6, [&] {
    const auto one = open_tokenizer(at("rwkv_vocab_v20230424.txt"));
    for (const std::int32_t token : one->encode("ab b")) (void)one->decode(token);
  });
}

}  // namespace
}  // namespace ttr::model
