// Copies of checkpoints with their matrices in another type.
//
// A GGUF file keeps its keys and names. Of .safetensors, a GGUF file gets general.architecture = "ttr" with the names as they
// are, config.json, tokenizer.json and the chat's template as texts (ttr.config, ttr.tokenizer, ttr.chat_template) and the tokens
// that end a text (ttr.ends): this library reads it back; other programs want the names of their own converters.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "files/json_text.h"
#include "language/architectures/architecture.h"
#include "language/tokenizers.h"
#include "language/weights.h"
#include "ttr/language.h"
#include "ttr/safetensors.h"

namespace ttr::model {
namespace fs = std::filesystem;
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

// A file that is there whole or not at all.
class NewFile {
 public:
  explicit NewFile(const std::string& path) : path_(path) {
    std::error_code failed;
    if (const auto real = fs::canonical(path, failed); !failed) path_ = real.string();  // what a link names
    if (fs::is_directory(path_, failed)) throw Error("'" + path + "' is a folder; name a file", path);
    temporary_ = path_ + ".part" + std::to_string(::getpid());
    file_ = std::fopen(temporary_.c_str(), "wb");
    if (!file_) fail();
  }
  ~NewFile() {
    if (file_) std::fclose(file_);
    if (!temporary_.empty()) std::remove(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* from, std::size_t bytes) {
    if (bytes > 0 && std::fwrite(from, 1, bytes, file_) != bytes) fail();
    written_ += bytes;
  }
  void pad() {
    static constexpr char zeros[32] = {};
    write(zeros, (32 - written_ % 32) % 32);
  }
  void commit() {
    const bool closed = std::fflush(file_) == 0 && ::fsync(::fileno(file_)) == 0;
    if (std::fclose(std::exchange(file_, nullptr)) != 0 || !closed) fail();
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail();
    temporary_.clear();
  }

 private:
  [[noreturn]] void fail() const {
    const int why = errno;  // the destructor of a constructor that throws is not called
    throw Error("'" + path_ + "' cannot be written: " + std::generic_category().message(why), path_);
  }
  std::string path_, temporary_;
  std::FILE* file_ = nullptr;
  std::size_t written_ = 0;
};

// Products read large matrices of two axes.
bool is_matrix(const Weight& weight) {
  return weight.shape.size() == 2 && weight.shape[0] > 1 && weight.shape[1] > 1 && weight.numbers() >= 1024 &&
         weight.name.size() > 7 && weight.name.compare(weight.name.size() - 7, 7, ".weight") == 0;
}
// What it becomes: rows must be whole blocks.
Stored wanted(const Weight& weight, Stored type) {
  return is_matrix(weight) && weight.shape[1] % block_numbers(type) == 0 ? type : Stored::f32;
}
std::size_t size_in(const Weight& weight, Stored type) {
  return static_cast<std::size_t>(row_bytes(type, weight.numbers()));
}

// The length and the text before the numbers of a .safetensors file.
std::string safetensors_head(const Weights& weights, Stored type) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  std::size_t at = 0;
  for (const auto& [name, weight] : weights.all()) {
    const Stored stored = wanted(weight, type);
    text += "," + json_text(name) + ":{\"dtype\":\"" + std::string(to_string(stored)) +
            "\",\"shape\":" + weight.shape_text() + ",\"data_offsets\":[" + std::to_string(at) + ",";
    text += std::to_string(at += size_in(weight, stored)) + "]}";
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

Bytes gguf_head(const Weights& weights, Stored type) {
  std::map<std::string, Settings::Value> keys;
  if (weights.gguf() || weights.kept()) {
    keys = (weights.kept() ? *weights.kept() : weights.settings()).all();
    keys.erase("general.alignment");
  } else {
    keys["general.architecture"] = std::string("ttr");
    if (const std::string path = weights.beside("config.json"); !path.empty()) keys["ttr.config"] = text_of(path);
    for (const char* name : {"tokenizer.json", "rwkv_vocab_v20230424.txt"})
      if (const std::string path = weights.beside(name); !path.empty() && !keys.count("ttr.tokenizer"))
        keys["ttr.tokenizer"] = text_of(path);
    if (const std::string text = chat_template_of(weights); !text.empty()) keys["ttr.chat_template"] = text;
    std::unique_ptr<Tokenizer> tokenizer;
    try {
      tokenizer = tokenizer_of(weights, 0);
    } catch (const Error&) {  // none that is supported: the file keeps it
    }
    const std::vector<std::int32_t> ends = ends_of(weights, tokenizer.get());
    if (!ends.empty()) keys["ttr.ends"] = std::vector<double>(ends.begin(), ends.end());
  }
  Gguf head;
  head.put(std::uint32_t{0x46554747u}), head.put(std::uint32_t{3});
  head.put(static_cast<std::int64_t>(weights.all().size())), head.put(static_cast<std::int64_t>(keys.size()));
  for (const auto& [key, value] : keys) head.key(key, value);
  std::uint64_t at = 0;
  for (const auto& [name, weight] : weights.all()) {
    const Stored stored = wanted(weight, type);
    head.put(name), head.put(static_cast<std::uint32_t>(weight.shape.size()));
    for (std::size_t d = weight.shape.size(); d-- > 0;) head.put(weight.shape[d]);
    head.put(kind_of(stored).gguf), head.put(at);
    at += (size_in(weight, stored) + 31) / 32 * 32;
  }
  head.pad();
  return std::move(head.bytes);
}

// A million numbers at a time: whole blocks of every type.
void write_numbers(const Weight& weight, Stored to, NewFile& file) {
  constexpr std::int64_t some = 1 << 20;
  std::vector<float> numbers;
  Bytes bytes;
  for (std::int64_t begin = 0; begin < weight.numbers(); begin += some) {
    const std::int64_t count = std::min(some, weight.numbers() - begin);
    numbers.resize(static_cast<std::size_t>(count));
    bytes.resize(static_cast<std::size_t>(row_bytes(to, count)));
    widen(*weight.type, count, weight.data + row_bytes(*weight.type, begin), numbers.data());
    narrow(to, count, numbers.data(), bytes.data());
    file.write(bytes.data(), bytes.size());
  }
}

}  // namespace

Quantised quantise(const std::string& from, const std::string& to, const std::string& type,
                   const std::function<bool()>& go_on) {
  const Kind* kind = nullptr;
  for (const Kind& one : kinds)
    if (type == one.name && block_numbers(one.type) <= 32) kind = &one;
  if (!kind) throw Error("the type is '" + type + "'; it is q8_0, q4_0, bf16, f16 or f32", "--type");
  const bool gguf = to.size() > 5 && to.compare(to.size() - 5, 5, ".gguf") == 0;
  const bool safetensors = to.size() > 12 && to.compare(to.size() - 12, 12, ".safetensors") == 0;
  if (!gguf && !safetensors) throw Error("'" + to + "' is no name of a .gguf or .safetensors file", to);
  if (safetensors && block_numbers(kind->type) > 1)
    throw Error(".safetensors has no " + type + "; name a .gguf file", "--type");
  if (is_trained_here(from))
    throw Error("'" + from + "' is a model of `ttr train`, of which no copy in another type would run", from);
  const Weights weights(from);
  if (weights.reads(to))
    throw Error("'" + to + "' is the model itself, and the copy would take its place; name another file", to);
  if (safetensors && (weights.gguf() || weights.kept()))
    throw Error("'" + from + "' is GGUF, whose names and keys .safetensors cannot hold; name a .gguf file", to);
  Quantised result;
  for (const auto& [name, weight] : weights.all()) {
    if (!weight.type) throw Error("the tensor '" + name + "' has the type " + weight.dtype, name);
    const Stored stored = wanted(weight, kind->type);
    result.before += weight.bytes, result.after += size_in(weight, stored);
    if (stored == kind->type) ++result.changed;
    else ++(is_matrix(weight) ? result.odd_rows : result.no_matrices);
  }
  if (gguf && !weights.gguf()) {  // this library alone reads it: it must be able to
    Graph graph;
    (void)build_graph(weights, Settings(), graph);
  }
  NewFile file(to);
  if (safetensors) {
    const std::string head = safetensors_head(weights, kind->type);
    file.write(head.data(), head.size());
  } else {
    const Bytes head = gguf_head(weights, kind->type);
    file.write(head.data(), head.size());
  }
  for (const auto& [name, weight] : weights.all()) {
    if (go_on && !go_on()) throw Error("writing '" + to + "' was interrupted; nothing is left of it", to);
    write_numbers(weight, wanted(weight, kind->type), file);
    if (gguf) file.pad();
  }
  file.commit();
  return result;
}

}  // namespace ttr::model
