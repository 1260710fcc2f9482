// Copies of checkpoints with their matrices in another type.
//
// A GGUF file keeps its keys and names. Of .safetensors, a GGUF file gets general.architecture = "ttr" with the names as they
// are, and config.json and tokenizer.json as texts (ttr.config, ttr.tokenizer): this library reads it back; other programs
// want the names of their own converters.
#include <algorithm>
#include <cstring>

#include "language/weights.h"
#include "ttr/language.h"
#include "ttr/safetensors.h"

namespace ttr::model {
namespace {

using Bytes = std::vector<std::byte>;

class Gguf {
 public:
  template <class Number>
  void put(Number x) {
    const auto* p = reinterpret_cast<const std::byte*>(&x);
    bytes.insert(bytes.end(), p, p + sizeof x);
  }
  void put(const std::string& text) {
    put(static_cast<std::uint64_t>(text.size()));
    const auto* p = reinterpret_cast<const std::byte*>(text.data());
    bytes.insert(bytes.end(), p, p + text.size());
  }
  void key(const std::string& name, const Settings::Value& value) {
    put(name);
    if (const auto* flag = std::get_if<bool>(&value)) put(std::int32_t{7}), put(static_cast<std::uint8_t>(*flag));
    else if (const auto* number = std::get_if<double>(&value)) scalar(*number);
    else if (const auto* text = std::get_if<std::string>(&value)) put(std::int32_t{8}), put(*text);
    else if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
      put(std::int32_t{9}), put(std::int32_t{8}), put(static_cast<std::uint64_t>(texts->size()));
      for (const std::string& one : *texts) put(one);
    } else {
      const auto& numbers = std::get<std::vector<double>>(value);
      const bool whole = std::all_of(numbers.begin(), numbers.end(), is_i32);
      put(std::int32_t{9}), put(std::int32_t{whole ? 5 : 12}), put(static_cast<std::uint64_t>(numbers.size()));
      for (const double one : numbers)
        if (whole) put(static_cast<std::int32_t>(one));
        else put(one);
    }
  }
  void pad() { bytes.resize((bytes.size() + 31) / 32 * 32); }
  Bytes bytes;

 private:
  static bool is_i32(double x) { return x == static_cast<double>(static_cast<std::int32_t>(x)); }
  // Whole numbers as u32, which is what sizes are; others as f32 where that is exact, else as f64.
  void scalar(double x) {
    if (x >= 0 && x <= 4294967295.0 && x == static_cast<double>(static_cast<std::uint32_t>(x)))
      put(std::int32_t{4}), put(static_cast<std::uint32_t>(x));
    else if (static_cast<double>(static_cast<float>(x)) == x) put(std::int32_t{6}), put(static_cast<float>(x));
    else put(std::int32_t{12}), put(x);
  }
};

struct Kind {
  const char* name;
  Stored type;
  std::int32_t gguf;
};
constexpr Kind kinds[] = {{"f32", Stored::f32, 0},    {"f16", Stored::f16, 1},   {"bf16", Stored::bf16, 30},
                          {"q4_0", Stored::q4_0, 2},  {"q8_0", Stored::q8_0, 8}, {"q4_k", Stored::q4_k, 12},
                          {"q5_k", Stored::q5_k, 13}, {"q6_k", Stored::q6_k, 14}};
const Kind& kind_of(Stored type) {
  for (const Kind& one : kinds)
    if (one.type == type) return one;
  return kinds[0];
}

std::string text_of(const std::string& path) {
  const Bytes bytes = read_whole_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What a matrix becomes: large ones of two axes, whose rows are whole blocks, and which products read.
Stored wanted(const Weight& weight, Stored type) {
  const bool matrix = weight.shape.size() == 2 && weight.shape[0] > 1 && weight.shape[1] > 1 &&
                      weight.numbers() >= 1024 && weight.name.size() > 7 &&
                      weight.name.compare(weight.name.size() - 7, 7, ".weight") == 0;
  if (!matrix) return Stored::f32;
  return weight.shape[1] % block_numbers(type) == 0 ? type : Stored::f32;
}

}  // namespace

std::pair<std::size_t, std::size_t> quantise(const std::string& from, const std::string& to,
                                             const std::string& type) {
  const Kind* kind = nullptr;
  for (const Kind& one : kinds)
    if (type == one.name && block_numbers(one.type) <= 32) kind = &one;
  if (!kind) throw Error("the type is '" + type + "'; it is q8_0, q4_0, bf16, f16 or f32", "--type");
  const bool gguf = to.size() > 5 && to.compare(to.size() - 5, 5, ".gguf") == 0;
  const bool safetensors = to.size() > 12 && to.compare(to.size() - 12, 12, ".safetensors") == 0;
  if (!gguf && !safetensors) throw Error("'" + to + "' is no name of a .gguf or .safetensors file", to);
  if (safetensors && block_numbers(kind->type) > 1)
    throw Error(".safetensors has no " + type + "; name a .gguf file", "--type");
  const Weights weights(from);
  if (safetensors && weights.gguf())
    throw Error("'" + from + "' is GGUF, whose names and keys .safetensors cannot hold; name a .gguf file", to);
  std::size_t before = 0, after = 0;
  TensorFile file;
  Gguf head, data;
  std::vector<float> numbers;
  const auto each = [&](const Weight& weight) {
    if (!weight.type) throw Error("the tensor '" + weight.name + "' has the type " + weight.dtype, weight.name);
    const Stored stored = wanted(weight, kind->type);
    numbers.resize(static_cast<std::size_t>(weight.numbers()));
    widen(*weight.type, weight.numbers(), weight.data, numbers.data());
    Bytes bytes(static_cast<std::size_t>(row_bytes(stored, weight.numbers())));
    narrow(stored, weight.numbers(), numbers.data(), bytes.data());
    before += weight.bytes, after += bytes.size();
    return std::pair(stored, std::move(bytes));
  };
  if (safetensors) {
    for (const auto& [name, weight] : weights.all()) {
      auto [stored, bytes] = each(weight);
      file.tensors.push_back({name, std::string(to_string(stored)), weight.shape, std::move(bytes)});
    }
    file.metadata["format"] = "pt";
    write_safetensors(to, file);
    return {before, after};
  }
  std::map<std::string, Settings::Value> keys;
  if (weights.gguf()) {
    keys = weights.settings().all();
    keys.erase("general.alignment");
  } else {
    keys["general.architecture"] = std::string("ttr");
    if (const std::string path = weights.beside("config.json"); !path.empty()) keys["ttr.config"] = text_of(path);
    for (const char* name : {"tokenizer.json", "rwkv_vocab_v20230424.txt"})
      if (const std::string path = weights.beside(name); !path.empty() && !keys.count("ttr.tokenizer"))
        keys["ttr.tokenizer"] = text_of(path);
  }
  head.put(std::uint32_t{0x46554747u}), head.put(std::uint32_t{3});
  head.put(static_cast<std::int64_t>(weights.all().size())), head.put(static_cast<std::int64_t>(keys.size()));
  for (const auto& [key, value] : keys) head.key(key, value);
  for (const auto& [name, weight] : weights.all()) {
    const auto [stored, bytes] = each(weight);
    head.put(name), head.put(static_cast<std::uint32_t>(weight.shape.size()));
    for (std::size_t d = weight.shape.size(); d-- > 0;) head.put(weight.shape[d]);
    head.put(kind_of(stored).gguf), head.put(static_cast<std::uint64_t>(data.bytes.size()));
    data.bytes.insert(data.bytes.end(), bytes.begin(), bytes.end());
    data.pad();
  }
  head.pad();
  head.bytes.insert(head.bytes.end(), data.bytes.begin(), data.bytes.end());
  write_whole_file(to, head.bytes);
  return {before, after};
}

}  // namespace ttr::model
