#include "language/tokenizers.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "ttr/safetensors.h"

namespace ttr::model {
namespace {

class Bytes final : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text, bool, bool) const override {
    std::vector<std::int32_t> tokens;
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::string decode(std::int32_t token) const override {
    return token >= 0 && token < 256 ? std::string(1, static_cast<char>(token)) : std::string();
  }
  std::string about() const override { return "bytes"; }
};

class Trie final : public Tokenizer {
 public:
  Trie(std::vector<std::string> tokens, std::vector<std::int32_t> ends)
      : tokens_(std::move(tokens)), ends_(std::move(ends)) {
    nodes_.push_back({});
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i].empty()) continue;
      std::int32_t node = 0;
      for (const char c : tokens_[i]) {
        const auto byte = static_cast<unsigned char>(c);
        std::int32_t next = find(node, byte);
        if (next < 0) {
          next = static_cast<std::int32_t>(nodes_.size());
          nodes_.push_back({});
          nodes_[static_cast<std::size_t>(node)].next.emplace_back(byte, next);
        }
        node = next;
      }
      nodes_[static_cast<std::size_t>(node)].token = static_cast<std::int32_t>(i);
    }
  }
  std::vector<std::int32_t> encode(std::string_view text, bool, bool) const override {
    std::vector<std::int32_t> result;
    for (std::size_t begin = 0; begin < text.size();) {
      std::int32_t node = 0, token = -1;
      std::size_t end = begin + 1;
      for (std::size_t i = begin; i < text.size(); ++i) {
        node = find(node, static_cast<unsigned char>(text[i]));
        if (node < 0) break;
        if (nodes_[static_cast<std::size_t>(node)].token >= 0)
          token = nodes_[static_cast<std::size_t>(node)].token, end = i + 1;
      }
      if (token < 0)
        throw Error("the vocabulary has no token that begins with the byte " +
                        std::to_string(static_cast<unsigned char>(text[begin])),
                    "text");
      result.push_back(token);
      begin = end;
    }
    return result;
  }
  std::string decode(std::int32_t token) const override {
    return token >= 0 && static_cast<std::size_t>(token) < tokens_.size() ? tokens_[static_cast<std::size_t>(token)]
                                                                          : std::string();
  }
  std::vector<std::int32_t> ends() const override { return ends_; }
  std::string about() const override { return "the longest of " + std::to_string(tokens_.size()) + " tokens"; }

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::int32_t>> next;
    std::int32_t token = -1;
  };
  std::int32_t find(std::int32_t node, unsigned char byte) const {
    for (const auto& [one, next] : nodes_[static_cast<std::size_t>(node)].next)
      if (one == byte) return next;
    return -1;
  }
  std::vector<std::string> tokens_;
  std::vector<std::int32_t> ends_;
  std::vector<Node> nodes_;
};

void put_utf8(std::uint32_t code, std::string& to) {
  const auto put = [&](std::uint32_t byte) { to += static_cast<char>(byte); };
  if (code < 0x80) put(code);
  else if (code < 0x800) put(0xC0 | code >> 6), put(0x80 | (code & 63));
  else if (code < 0x10000) put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 63)), put(0x80 | (code & 63));
  else put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 63)), put(0x80 | (code >> 6 & 63)), put(0x80 | (code & 63));
}

std::string file_text(const std::string& path) {
  const std::vector<std::byte> bytes = read_whole_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<Bytes>(); }
std::unique_ptr<Tokenizer> trie_tokenizer(std::vector<std::string> tokens, std::vector<std::int32_t> ends) {
  return std::make_unique<Trie>(std::move(tokens), std::move(ends));
}

std::string unescape(std::string_view text, bool characters, const std::string& name) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result += text[i];
      continue;
    }
    if (++i == text.size()) throw Error(name + ": a literal ends with a backslash", name);
    const char kind = text[i];
    const std::size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    if (digits == 0) {
      const std::string_view from = "ntrabfv0\\'\"", to("\n\t\r\a\b\f\v\0\\'\"", 11);
      const std::size_t found = from.find(kind);
      if (found == std::string_view::npos) throw Error(name + ": a literal has the escape \\" + kind, name);
      result += to[found];
      continue;
    }
    std::uint32_t code = 0;
    const char* const begin = text.data() + i + 1;
    if (text.size() - i - 1 < digits || std::from_chars(begin, begin + digits, code, 16).ptr != begin + digits ||
        code > 0x10FFFF)
      throw Error(name + ": a literal has \\" + kind + " without " + std::to_string(digits) + " digits", name);
    i += digits;
    if (kind == 'x' && !characters) result += static_cast<char>(code);
    else put_utf8(code, result);
  }
  return result;
}

std::unique_ptr<Tokenizer> world_tokenizer(std::string_view text, const std::string& name) {
  std::vector<std::string> tokens;
  std::size_t line = 0;
  while (!text.empty()) {
    ++line;
    const std::size_t end = text.find('\n');
    std::string_view row = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!row.empty() && row.back() == '\r') row.remove_suffix(1);
    if (row.empty()) continue;
    const auto wrong = [&](const std::string& why) {
      return Error(name + ": line " + std::to_string(line) + " " + why, name);
    };
    const std::size_t first = row.find(' '), last = row.rfind(' ');
    std::uint32_t id = 0, length = 0;
    if (first == std::string_view::npos || last <= first ||
        std::from_chars(row.data(), row.data() + first, id).ptr != row.data() + first ||
        std::from_chars(row.data() + last + 1, row.data() + row.size(), length).ptr != row.data() + row.size() ||
        id > (1u << 24))
      throw wrong("is not a number, a literal and a length");
    std::string_view literal = row.substr(first + 1, last - first - 1);
    const bool bytes = !literal.empty() && literal[0] == 'b';
    if (bytes) literal.remove_prefix(1);
    if (literal.size() < 2 || (literal[0] != '\'' && literal[0] != '"') || literal.back() != literal[0])
      throw wrong("has no literal in quotes");
    std::string token = unescape(literal.substr(1, literal.size() - 2), !bytes, name);
    if (token.size() != length)
      throw wrong("has a token of " + std::to_string(token.size()) + " bytes and says " + std::to_string(length));
    if (tokens.size() <= id) tokens.resize(id + 1);
    if (!tokens[id].empty()) throw wrong("has the number " + std::to_string(id) + " again");
    tokens[id] = std::move(token);
  }
  if (tokens.empty()) throw Error(name + ": it has no token", name);
  return trie_tokenizer(std::move(tokens), {0});
}

namespace {
std::unique_ptr<Tokenizer> tokenizer_from(const std::string& text, const std::string& path) {
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start != std::string::npos && text[start] == '{') return json_tokenizer(text, path);
  return world_tokenizer(text, path);
}
}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path) { return tokenizer_from(file_text(path), path); }

std::unique_ptr<Tokenizer> tokenizer_of(const Weights& weights, int vocabulary) {
  if (weights.gguf() && weights.settings().has("tokenizer.ggml.model")) {
    const std::string kind = weights.settings().text("tokenizer.ggml.model");
    if (kind == "no_vocab" || kind == "none") return nullptr;  // it says that it has none
    return gguf_tokenizer(weights.settings());
  }
  if (!weights.tokenizer().empty()) return tokenizer_from(weights.tokenizer(), weights.path());
  for (const char* name : {"tokenizer.json", "rwkv_vocab_v20230424.txt"})
    if (const std::string path = weights.beside(name); !path.empty()) return open_tokenizer(path);
  return vocabulary == 256 ? byte_tokenizer() : nullptr;
}

std::string chat_template_of(const Weights& weights) {
  if (weights.gguf()) return weights.settings().text("tokenizer.chat_template", "");
  if (weights.kept()) return weights.kept()->text("ttr.chat_template", "");
  if (const std::string path = weights.beside("chat_template.jinja"); !path.empty()) return file_text(path);
  const std::string path = weights.beside("tokenizer_config.json");
  if (path.empty()) return "";
  const Settings all = Settings::from_json(file_text(path), path);
  if (all.has("chat_template")) return all.text("chat_template");
  // A list of {name, template}.
  for (int i = 0; all.has("chat_template." + std::to_string(i) + ".name"); ++i) {
    const std::string one = "chat_template." + std::to_string(i) + ".";
    if (all.text(one + "name") == "default") return all.text(one + "template");
  }
  return "";
}

namespace {
// A number or a list of them; nothing if there is none.
void add_numbers(const Settings& from, const std::string& key, std::vector<std::int32_t>& to) {
  const auto found = from.all().find(key);
  if (found == from.all().end()) return;
  std::vector<double> numbers;
  if (const auto* one = std::get_if<double>(&found->second)) numbers = {*one};
  else if (const auto* list = std::get_if<std::vector<double>>(&found->second)) numbers = *list;
  else throw Error(from.source() + ": '" + key + "' is no number of a token and no list of them", key);
  for (const double x : numbers)
    if (x >= 0 && x < (1 << 30)) to.push_back(static_cast<std::int32_t>(x));  // -1 stands for none
}
// The one token that a text is, or -1.
std::int32_t token_of(const Tokenizer& tokenizer, const std::string& text) {
  try {
    const std::vector<std::int32_t> tokens = tokenizer.encode(text, true, false);
    return tokens.size() == 1 ? tokens[0] : -1;
  } catch (const Error&) {  // the vocabulary does not have it
    return -1;
  }
}
}  // namespace

std::vector<std::int32_t> ends_of(const Weights& weights, const Tokenizer* tokenizer) {
  std::vector<std::int32_t> ends;
  if (weights.kept()) add_numbers(*weights.kept(), "ttr.ends", ends);
  else if (!weights.gguf()) {
    if (const std::string path = weights.beside("generation_config.json"); !path.empty())
      add_numbers(Settings::from_json(file_text(path), path), "eos_token_id", ends);
    for (const char* key : {"eos_token_id", "text_config.eos_token_id"})
      if (ends.empty()) add_numbers(weights.settings(), key, ends);
    if (const std::string path = weights.beside("tokenizer_config.json"); !path.empty() && tokenizer) {
      const Settings all = Settings::from_json(file_text(path), path);
      for (const char* key : {"eos_token", "eos_token.content"})
        if (const auto found = all.all().find(key); found != all.all().end())
          if (const auto* text = std::get_if<std::string>(&found->second))
            if (const std::int32_t token = token_of(*tokenizer, *text); token >= 0) ends.push_back(token);
    }
  }
  if (tokenizer && (ends.empty() || !tokenizer->ends_guessed()))
    for (const std::int32_t token : tokenizer->ends()) ends.push_back(token);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

}  // namespace ttr::model
