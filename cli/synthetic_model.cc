// The sizes are those of published models:
//
//   rwkv-7           24 blocks of width 1024, vocabulary 65536                    451 M parameters (World 0.4B)
//   mamba-2          48 blocks of width 1024, state 128, vocabulary 50288, tied   368 M (mamba2-370m)
//   gated-deltanet   20 blocks of width 1024, 8 heads of 128 x 256, vocabulary 32000, 406 M
//
// Matrices are normal with the variance 1 / columns, so that activations stay of order one. The numbers come from a pool that
// repeats: what is measured does not depend on them, and drawing 400 million would take longer than the measurement.
#include "synthetic_model.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>

#include "json.h"
#include "ttr/half.h"
#include "ttr/random.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

struct Entry {
  std::string name;
  std::vector<std::int64_t> shape;
  double scale = 0, mean = 0;  // standard deviation
  bool matrix = false;         // stored in the type that is wanted

  std::int64_t numbers() const {
    std::int64_t n = 1;
    for (const std::int64_t extent : shape) n *= extent;
    return n;
  }
};

struct Tensors {
  std::vector<Entry> list;
  std::string config;  // config.json

  void matrix(const std::string& name, std::int64_t out, std::int64_t in) {
    list.push_back({name, {out, in}, 1 / std::sqrt(static_cast<double>(in)), 0, true});
  }
  void numbers(const std::string& name, std::vector<std::int64_t> shape, double scale, double mean = 0) {
    list.push_back({name, std::move(shape), scale, mean, false});
  }
  void norm(const std::string& name, std::int64_t width, bool bias) {
    numbers(name + ".weight", {width}, 0.05, 1);
    if (bias) numbers(name + ".bias", {width}, 0.05);
  }
};

Tensors rwkv_7(bool small) {
  const std::int64_t D = small ? 64 : 1024, L = small ? 2 : 24, V = small ? 256 : 65536, F = 4 * D;
  const std::int64_t head = small ? 32 : 64, decay = small ? 8 : 64, rate = decay, mixing = small ? 8 : 32,
                     gate = small ? 16 : 128;
  Tensors t;
  t.matrix("emb.weight", V, D);
  t.norm("blocks.0.ln0", D, true);
  for (std::int64_t i = 0; i < L; ++i) {
    const std::string b = fmt::format("blocks.{}.", i), a = b + "att.";
    t.norm(b + "ln1", D, true), t.norm(b + "ln2", D, true);
    for (const char c : {'r', 'w', 'k', 'v', 'a', 'g'}) t.numbers(fmt::format("{}x_{}", a, c), {1, 1, D}, 0.2, 0.5);
    const auto low_rank = [&](char c, std::int64_t rank, bool bias) {
      t.numbers(fmt::format("{}{}1", a, c), {D, rank}, 1 / std::sqrt(static_cast<double>(D)));
      t.numbers(fmt::format("{}{}2", a, c), {rank, D}, 1 / std::sqrt(static_cast<double>(rank)));
      if (bias) t.numbers(fmt::format("{}{}0", a, c), {1, 1, D}, 0.5);
    };
    low_rank('w', decay, true), low_rank('a', rate, true), low_rank('g', gate, false);
    if (i > 0) low_rank('v', mixing, true);
    t.numbers(a + "k_k", {1, 1, D}, 0.1, 0.85), t.numbers(a + "k_a", {1, 1, D}, 0.1, 1);
    t.numbers(a + "r_k", {D / head, head}, 0.1);
    for (const char* name : {"receptance", "key", "value", "output"}) t.matrix(a + name + ".weight", D, D);
    t.norm(a + "ln_x", D, true);
    t.numbers(b + "ffn.x_k", {1, 1, D}, 0.2, 0.5);
    t.matrix(b + "ffn.key.weight", F, D), t.matrix(b + "ffn.value.weight", D, F);
  }
  t.norm("ln_out", D, true);
  t.matrix("head.weight", V, D);
  return t;
}

Tensors mamba_2(bool small) {
  const std::int64_t D = small ? 64 : 1024, L = small ? 2 : 48, V = small ? 256 : 50288, inner = 2 * D;
  const std::int64_t N = small ? 32 : 128, H = inner / (small ? 32 : 64), conv = inner + 2 * N;
  Tensors t;
  t.matrix("backbone.embedding.weight", V, D);
  for (std::int64_t i = 0; i < L; ++i) {
    const std::string b = fmt::format("backbone.layers.{}.", i), m = b + "mixer.";
    t.norm(b + "norm", D, false);
    t.matrix(m + "in_proj.weight", inner + conv + H, D);
    t.numbers(m + "conv1d.weight", {conv, 1, 4}, 0.5), t.numbers(m + "conv1d.bias", {conv}, 0.1);
    t.numbers(m + "dt_bias", {H}, 0.5, -3), t.numbers(m + "A_log", {H}, 0.5, 1), t.numbers(m + "D", {H}, 0.1, 1);
    t.norm(m + "norm", inner, false);
    t.matrix(m + "out_proj.weight", D, inner);
  }
  t.norm("backbone.norm_f", D, false);
  t.config = R"({"d_model": )" + std::to_string(D) + "}";
  return t;
}

Tensors gated_deltanet(bool small) {
  const std::int64_t D = small ? 64 : 1024, L = small ? 2 : 20, V = small ? 256 : 32000, H = small ? 2 : 8;
  const std::int64_t keys = D, values = 2 * D, F = small ? 160 : 2816;
  Tensors t;
  t.matrix("model.embeddings.weight", V, D);
  for (std::int64_t i = 0; i < L; ++i) {
    const std::string b = fmt::format("model.layers.{}.", i), a = b + "attn.";
    t.norm(b + "attn_norm", D, false), t.norm(b + "mlp_norm", D, false);
    for (const auto& [letter, width] : {std::pair{'q', keys}, {'k', keys}, {'v', values}}) {
      t.matrix(fmt::format("{}{}_proj.weight", a, letter), width, D);
      t.numbers(fmt::format("{}{}_conv1d.weight", a, letter), {width, 1, 4}, 0.5);
    }
    t.matrix(a + "b_proj.weight", H, D), t.matrix(a + "a_proj.weight", H, D);
    t.numbers(a + "A_log", {H}, 0.5, 0), t.numbers(a + "dt_bias", {H}, 0.5, -3);
    t.matrix(a + "g_proj.weight", values, D), t.norm(a + "o_norm", values / H, false);
    t.matrix(a + "o_proj.weight", D, values);
    t.matrix(b + "mlp.gate_proj.weight", F, D), t.matrix(b + "mlp.up_proj.weight", F, D);
    t.matrix(b + "mlp.down_proj.weight", D, F);
  }
  t.norm("model.norm", D, false);
  t.matrix("lm_head.weight", V, D);
  t.config = fmt::format(R"({{"model_type": "gated_deltanet", "num_heads": {}}})", H);
  return t;
}

struct Kind {
  const char* name;
  std::int64_t numbers, bytes;  // of a block
  const char* safetensors;      // null: GGUF alone
  std::int32_t gguf;
};
constexpr Kind kinds[] = {{"f32", 1, 4, "F32", 0},
                          {"bf16", 1, 2, "BF16", 30},
                          {"f16", 1, 2, "F16", 1},
                          {"q8_0", 32, 34, nullptr, 8},
                          {"q4_0", 32, 18, nullptr, 2}};

using Bytes = std::vector<char>;

// Blocks of normal numbers of a scale, in a type, to be written again and again.
class Pool {
 public:
  explicit Pool(int copy) : random_(static_cast<std::uint64_t>(copy), "synthetic model") {}
  const Bytes& blocks(const Kind& kind, double scale, double mean) {
    Bytes& bytes = kept_[{&kind, scale, mean}];
    if (!bytes.empty()) return bytes;
    const auto put = [&](const auto& x) {
      const char* const p = reinterpret_cast<const char*>(&x);
      bytes.insert(bytes.end(), p, p + sizeof x);
    };
    constexpr std::int64_t count = 32 * 4099;  // a prime number of blocks: no rows of a matrix are the same
    for (std::int64_t i = 0; i < count; i += kind.numbers) {
      if (kind.numbers == 1) {
        const auto x = static_cast<float>(mean + scale * random_.normal());
        if (kind.bytes == 4) put(x);
        else if (kind.gguf == 30) put(to_bf16(x));
        else put(to_f16(x));
      } else if (kind.bytes == 34) {  // uniform bytes have a standard deviation of 73.9
        put(to_f16(static_cast<float>(scale / 73.9)));
        for (int j = 0; j < 32; ++j) put(static_cast<std::int8_t>(static_cast<int>(random_.below(255)) - 127));
      } else {  // and four bits, less eight, of 4.6
        put(to_f16(static_cast<float>(scale / 4.6)));
        for (int j = 0; j < 16; ++j) put(static_cast<std::uint8_t>(random_.below(256)));
      }
    }
    return bytes;
  }

 private:
  model::Random random_;
  std::map<std::tuple<const Kind*, double, double>, Bytes> kept_;
};

class Out {
 public:
  explicit Out(const std::string& path) : path_(path), file_(path, std::ios::binary) { check(); }
  void bytes(const char* data, std::size_t count) {
    file_.write(data, static_cast<std::streamsize>(count));
    written_ += count;
    check();
  }
  template <class Number>
  void put(Number x) {
    bytes(reinterpret_cast<const char*>(&x), sizeof x);
  }
  void text(const std::string& words) {
    put(static_cast<std::uint64_t>(words.size()));
    bytes(words.data(), words.size());
  }
  void pad(std::size_t to) {
    while (written_ % to != 0) put('\0');
  }
  void numbers(const Entry& entry, const Kind& kind, Pool& pool) {
    const Bytes& from = pool.blocks(kind, entry.scale, entry.mean);
    for (std::size_t left = static_cast<std::size_t>(entry.numbers() / kind.numbers * kind.bytes); left > 0;) {
      const std::size_t now = std::min(left, from.size());
      bytes(from.data(), now);
      left -= now;
    }
  }
  void finish() {
    file_.close();
    check();
  }

 private:
  void check() {
    if (!file_) throw Error("cannot write '" + path_ + "'; is the disk full? --folder names another place", path_);
  }
  std::string path_;
  std::ofstream file_;
  std::size_t written_ = 0;
};

const Kind& kind_of(const Entry& entry, const Kind& wanted) {
  const bool fits = entry.matrix && entry.shape.back() % wanted.numbers == 0;
  return fits ? wanted : kinds[0];
}

std::string write_safetensors(const Tensors& t, const Kind& wanted, const std::string& folder, Pool& pool) {
  Json header = Json::object();
  std::int64_t at = 0;
  for (const Entry& entry : t.list) {
    const Kind& kind = kind_of(entry, wanted);
    Json shape = Json::array(), places = Json::array();
    for (const std::int64_t extent : entry.shape) shape.push(extent);
    places.push(at);
    at += entry.numbers() * kind.bytes;
    places.push(at);
    header.set(entry.name,
               Json::object().set("dtype", kind.safetensors).set("shape", shape).set("data_offsets", places));
  }
  std::string text = header.dump(-1);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  Out out(folder + "/model.safetensors");
  out.text(text);
  for (const Entry& entry : t.list) out.numbers(entry, kind_of(entry, wanted), pool);
  out.finish();
  if (!t.config.empty()) {
    Out config(folder + "/config.json");
    config.bytes(t.config.data(), t.config.size());
    config.finish();
  }
  return t.config.empty() ? folder + "/model.safetensors" : folder;
}

// The names as they are, the configuration as a text: what `ttr quantize` writes too.
std::string write_gguf(const Tensors& t, const Kind& wanted, const std::string& folder, Pool& pool) {
  const std::string path = folder + "/model.gguf";
  Out out(path);
  out.put(std::uint32_t{0x46554747u}), out.put(std::uint32_t{3});
  out.put(static_cast<std::int64_t>(t.list.size())), out.put(std::int64_t{t.config.empty() ? 1 : 2});
  const auto key = [&](const char* name, const std::string& value) {
    out.text(name), out.put(std::int32_t{8}), out.text(value);
  };
  key("general.architecture", "ttr");
  if (!t.config.empty()) key("ttr.config", t.config);
  std::uint64_t at = 0;
  for (const Entry& entry : t.list) {
    const Kind& kind = kind_of(entry, wanted);
    out.text(entry.name), out.put(static_cast<std::uint32_t>(entry.shape.size()));
    for (std::size_t d = entry.shape.size(); d-- > 0;) out.put(entry.shape[d]);
    out.put(kind.gguf), out.put(at);
    at += (static_cast<std::uint64_t>(entry.numbers() / kind.numbers * kind.bytes) + 31) / 32 * 32;
  }
  out.pad(32);
  for (const Entry& entry : t.list) {
    out.numbers(entry, kind_of(entry, wanted), pool);
    out.pad(32);
  }
  out.finish();
  return path;
}

}  // namespace

std::vector<std::string> synthetic_architectures() { return {"rwkv-7", "mamba-2", "gated-deltanet"}; }

std::string write_synthetic_model(const SyntheticModel& model, const std::string& folder) {
  const Kind* kind = nullptr;
  for (const Kind& one : kinds)
    if (model.type == one.name) kind = &one;
  if (!kind) throw Error(fmt::format("the type is '{}'; it is f32, bf16, f16, q8_0 or q4_0", model.type), "--type");
  Tensors tensors;
  if (model.architecture == "rwkv-7") tensors = rwkv_7(model.small);
  else if (model.architecture == "mamba-2") tensors = mamba_2(model.small);
  else if (model.architecture == "gated-deltanet") tensors = gated_deltanet(model.small);
  else
    throw Error(
        fmt::format("the architecture is '{}'; it is rwkv-7, mamba-2 or gated-deltanet, or the path of a model",
                    model.architecture),
        "model");
  Pool pool(model.copy);
  return kind->safetensors ? write_safetensors(tensors, *kind, folder, pool)
                           : write_gguf(tensors, *kind, folder, pool);
}

}  // namespace ttr::cli
