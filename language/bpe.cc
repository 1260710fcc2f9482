// Pair encoding: tokenizer.json of Hugging Face, and the vocabularies "gpt2" and "rwkv" of GGUF files.
//
//   1  added tokens are cut out of the text, the longest first, and are tokens themselves
//   2  what is between them is normalised (NFC, where the file says so) and split by a regular expression
//   3  every byte of a piece becomes a character that can be printed: 21-7E, A1-AC and AE-FF stay, the 68 others are
//      U+0100, U+0101, ... in their order
//   4  of all neighbours the pair that was learned first is joined, again and again (the leftmost of equal ones)
//
// Vocabularies that were learned by SentencePiece (byte_fallback): a blank becomes U+2581, one comes before a text or a piece, pairs
// are joined from characters on, and a character that is no token becomes its bytes, tokens "<0xE2>".
//
// The regular expression is PCRE2's, NFC is utf8proc's. What a tokenizer.json asks for beyond that is refused by name.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <queue>
#include <unordered_map>

#include "language/tokenizers.h"

namespace ttr::model {
namespace {

using Tree = nlohmann::json;

const char* const gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const qwen35_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// A regular expression that cuts a text into its matches and what is between them.
class Splitter {
 public:
  Splitter(const std::string& pattern, const std::string& name) {
    int error = 0;
    PCRE2_SIZE place = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &place, nullptr));
    if (!code_) {
      PCRE2_UCHAR text[256] = {};
      pcre2_get_error_message(error, text, sizeof text);
      throw Error(name + ": the pattern that splits a text is no regular expression at character " +
                      std::to_string(place) + ": " + reinterpret_cast<const char*>(text),
                  name);
    }
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // where there is none it is only slower
    context_.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(context_.get(), 10'000'000);
    pcre2_set_heap_limit(context_.get(), 1 << 16);
  }
  template <class Put>
  void split(std::string_view text, Put&& put) const {
    const std::unique_ptr<pcre2_match_data, Free> found(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    std::size_t at = 0;
    while (at < text.size()) {
      const int count = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, 0,
                                    found.get(), context_.get());
      if (count < 0 && count != PCRE2_ERROR_NOMATCH)
        throw Error("the pattern of the tokenizer takes too long on this text", "text");
      const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(found.get());
      if (count < 0 || ends[1] <= ends[0]) {  // nothing, or an empty match: the rest is one piece
        put(text.substr(at));
        return;
      }
      if (ends[0] > at) put(text.substr(at, ends[0] - at));
      put(text.substr(ends[0], ends[1] - ends[0]));
      at = ends[1];
    }
  }

 private:
  struct Free {
    void operator()(pcre2_code* p) const { pcre2_code_free(p); }
    void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
    void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_context, Free> context_;
};

std::string utf8(std::uint32_t code) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  return {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n)};
}

// The character that stands for each byte.
const std::array<std::string, 256>& stand_ins() {
  static const std::array<std::string, 256> table = [] {
    std::array<std::string, 256> result;
    std::uint32_t next = 256;
    for (std::uint32_t b = 0; b < 256; ++b) {
      const bool printed = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      result[b] = utf8(printed ? b : next++);
    }
    return result;
  }();
  return table;
}

std::string normalised(std::string_view text) {
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &made, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (n < 0) return std::string(text);  // no UTF-8: bytes as they are
  std::string result(reinterpret_cast<const char*>(made), static_cast<std::size_t>(n));
  std::free(made);
  return result;
}

constexpr std::string_view digits_of_bytes = "0123456789ABCDEF";
const char* const blank = "\xE2\x96\x81";  // U+2581

// The number of "<0xE2>", or -1.
int byte_of(const std::string& token) {
  if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') return -1;
  const std::size_t high = digits_of_bytes.find(token[3]), low = digits_of_bytes.find(token[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return -1;
  return static_cast<int>(16 * high + low);
}

// Bytes of the character that begins here; 1 if it is none.
std::size_t character(std::string_view text) {
  utf8proc_int32_t code = -1;
  const utf8proc_ssize_t n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                              static_cast<utf8proc_ssize_t>(text.size()), &code);
  return n > 0 ? static_cast<std::size_t>(n) : 1;
}

struct Added {
  std::string text;
  std::int32_t id;
  bool special, strip_left, strip_right;
};

class PairEncoder final : public Tokenizer {
 public:
  std::unordered_map<std::string, std::int32_t> vocabulary;  // by its printed form
  std::map<std::pair<std::int32_t, std::int32_t>, std::pair<std::int32_t, std::int32_t>> joined;  // to rank and token
  std::vector<Added> added;
  std::vector<std::int32_t> before, end_tokens;  // what comes before a text; what ends one
  std::vector<std::unique_ptr<Splitter>> splitters;
  bool nfc = false, whole_first = false, space_first = false;
  bool guessed = false;  // end_tokens
  // With bytes for what is no token: blanks are marked, one comes before a text. `own_words`: every mark begins a piece.
  bool fallback = false, marked = false, own_words = false;
  enum { none, every, first_missing, every_missing } before_text = none;

  /// `left`, `right` as printed.
  void join(const std::string& left, const std::string& right, std::int32_t rank, const std::string& name) {
    const auto a = vocabulary.find(left), b = vocabulary.find(right), both = vocabulary.find(left + right);
    if (a == vocabulary.end() || b == vocabulary.end() || both == vocabulary.end())
      throw Error(name + ": the merge '" + left + " " + right + "' names a token that is not in the vocabulary",
                  name);
    joined.emplace(std::pair(a->second, b->second), std::pair(rank, both->second));
  }
  void finish(const std::string& name) {
    std::stable_sort(added.begin(), added.end(),
                     [](const Added& a, const Added& b) { return a.text.size() > b.text.size(); });
    std::unordered_map<std::string, unsigned char> bytes;
    for (std::size_t b = 0; b < 256; ++b) {
      bytes[stand_ins()[b]] = static_cast<unsigned char>(b);
      const auto found = vocabulary.find(
          fallback ? std::string("<0x") + digits_of_bytes[b >> 4] + digits_of_bytes[b & 15] + ">" : stand_ins()[b]);
      byte_tokens_[b] = found == vocabulary.end() ? -1 : found->second;
    }
    std::int32_t most = -1;
    for (const auto& [text, id] : vocabulary) most = std::max(most, id);
    for (const Added& one : added) most = std::max(most, one.id);
    if (most > (1 << 24)) throw Error(name + ": it has the token number " + std::to_string(most), name);
    texts_.resize(static_cast<std::size_t>(most + 1));
    for (const auto& [text, id] : vocabulary) {
      std::string& to = texts_[static_cast<std::size_t>(id)];
      for (std::size_t i = 0; i < text.size();) {
        std::size_t n = 1;
        while (i + n < text.size() && (static_cast<unsigned char>(text[i + n]) & 0xC0) == 0x80) ++n;
        const auto found = bytes.find(text.substr(i, n));
        if (fallback) to += marked && text.compare(i, n, blank) == 0 ? " " : text.substr(i, n);
        else if (found != bytes.end()) to += static_cast<char>(found->second);
        else to += text.substr(i, n);
        i += n;
      }
      if (const int byte = fallback ? byte_of(text) : -1; byte >= 0) to = std::string(1, static_cast<char>(byte));
    }
    for (const Added& one : added) texts_[static_cast<std::size_t>(one.id)] = one.text;
  }

  std::vector<std::int32_t> encode(std::string_view text, bool special, bool beginning) const override {
    std::vector<std::int32_t> result;
    if (special && beginning) result = before;
    std::size_t begin = 0, at = 0;
    while (at < text.size()) {
      const Added* const found = added_at(text, at, special);
      if (!found) {
        ++at;
        continue;
      }
      std::string_view piece = text.substr(begin, at - begin);
      if (found->strip_left)
        while (!piece.empty() && std::isspace(static_cast<unsigned char>(piece.back()))) piece.remove_suffix(1);
      plain(piece, begin == 0, result);
      result.push_back(found->id);
      at += found->text.size();
      if (found->strip_right)
        while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) ++at;
      begin = at;
    }
    plain(text.substr(begin), begin == 0, result);
    return result;
  }
  std::string decode(std::int32_t token) const override {
    return token >= 0 && static_cast<std::size_t>(token) < texts_.size() ? texts_[static_cast<std::size_t>(token)]
                                                                         : std::string();
  }
  std::vector<std::int32_t> ends() const override { return end_tokens; }
  bool ends_guessed() const override { return guessed; }
  std::string about() const override {
    return (fallback ? "pairs with bytes for what is no token, " : "byte-level pairs, ") +
           std::to_string(vocabulary.size()) + " tokens, " + std::to_string(joined.size()) + " merges, " +
           std::to_string(added.size()) + " added";
  }

 private:
  const Added* added_at(std::string_view text, std::size_t at, bool special) const {
    for (const Added& one : added)
      if ((special || !one.special) && !one.text.empty() && text.compare(at, one.text.size(), one.text) == 0)
        return &one;
    return nullptr;
  }

  void plain(std::string_view text, bool first, std::vector<std::int32_t>& to) const {
    if (text.empty()) return;
    std::string whole = nfc ? normalised(text) : std::string(text);
    if (fallback) return with_marks(whole, first, to);
    if (space_first && whole[0] != ' ') whole.insert(whole.begin(), ' ');
    pieces(whole, 0, to);
  }
  void with_marks(const std::string& text, bool first, std::vector<std::int32_t>& to) const {
    std::string whole;
    for (const char c : text)
      if (marked && c == ' ') whole += blank;
      else whole += c;
    if (before_text == every || ((before_text == every_missing || (before_text == first_missing && first)) &&
                                 whole.compare(0, 3, blank) != 0))
      whole.insert(0, blank);
    for (std::size_t begin = 0; begin < whole.size();) {
      const std::size_t end = own_words ? std::min(whole.find(blank, begin + 1), whole.size()) : whole.size();
      word(std::string_view(whole).substr(begin, end - begin), to);
      begin = end;
    }
  }
  void pieces(std::string_view text, std::size_t splitter, std::vector<std::int32_t>& to) const {
    if (splitter == splitters.size()) return word(text, to);
    splitters[splitter]->split(text, [&](std::string_view piece) { pieces(piece, splitter + 1, to); });
  }

  // Neighbours in a list, candidates in a queue: n log n, however long a word is.
  void word(std::string_view text, std::vector<std::int32_t>& to) const {
    if (whole_first) {
      std::string printed;
      for (const char c : text) printed += fallback ? std::string(1, c) : stand_ins()[static_cast<unsigned char>(c)];
      if (const auto found = vocabulary.find(printed); found != vocabulary.end()) {
        to.push_back(found->second);
        return;
      }
    }
    struct Item {
      std::int32_t token, left, right;
    };
    struct Candidate {
      std::int32_t rank, at, left_token, right_token, made;
      bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
    };
    std::vector<Item> items;
    const auto add = [&](std::int32_t token) {
      const auto i = static_cast<std::int32_t>(items.size());
      items.push_back({token, i - 1, i + 1});
    };
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = fallback ? character(text.substr(at)) : 1;
      const auto whole = fallback ? vocabulary.find(std::string(text.substr(at, n))) : vocabulary.end();
      if (whole != vocabulary.end()) add(whole->second);
      else
        for (const char c : text.substr(at, n)) {
          const auto byte = static_cast<unsigned char>(c);
          if (byte_tokens_[byte] < 0)
            throw Error("the vocabulary has no token for the byte " + std::to_string(byte), "text");
          add(byte_tokens_[byte]);
        }
      at += n;
    }
    if (items.empty()) return;
    items.back().right = -1;
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
    const auto offer = [&](std::int32_t at) {
      if (at < 0) return;
      const Item& item = items[static_cast<std::size_t>(at)];
      if (item.right < 0) return;
      const std::int32_t right = items[static_cast<std::size_t>(item.right)].token;
      const auto found = joined.find({item.token, right});
      if (found != joined.end()) queue.push({found->second.first, at, item.token, right, found->second.second});
    };
    for (std::size_t i = 0; i < items.size(); ++i) offer(static_cast<std::int32_t>(i));
    while (!queue.empty()) {
      const Candidate best = queue.top();
      queue.pop();
      Item& item = items[static_cast<std::size_t>(best.at)];
      // Either side may have been joined to another since.
      if (item.token != best.left_token || item.right < 0 ||
          items[static_cast<std::size_t>(item.right)].token != best.right_token)
        continue;
      Item& gone = items[static_cast<std::size_t>(item.right)];
      item.token = best.made;
      item.right = gone.right;
      gone.token = -1;
      if (item.right >= 0) items[static_cast<std::size_t>(item.right)].left = best.at;
      offer(best.at);
      offer(item.left);
    }
    for (std::int32_t i = 0; i >= 0; i = items[static_cast<std::size_t>(i)].right)
      to.push_back(items[static_cast<std::size_t>(i)].token);
  }

  std::array<std::int32_t, 256> byte_tokens_{};
  std::vector<std::string> texts_;
};

// ---- tokenizer.json

std::string text_of(const Tree& tree, const char* key) {
  const auto found = tree.find(key);
  return found != tree.end() && found->is_string() ? found->get<std::string>() : std::string();
}
bool flag_of(const Tree& tree, const char* key, bool otherwise) {
  const auto found = tree.find(key);
  return found != tree.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

void read_normaliser(const Tree& node, const std::string& name, PairEncoder& to) {
  if (node.is_null()) return;
  const std::string type = node.is_object() ? text_of(node, "type") : "";
  const auto is_blank = [](const Tree& tree, const char* key) { return text_of(tree, key) == blank; };
  if (type == "NFC") to.nfc = true;
  else if (type == "Prepend" && to.fallback && is_blank(node, "prepend")) to.before_text = PairEncoder::every;
  else if (type == "Replace" && to.fallback && is_blank(node, "content") && node.contains("pattern") &&
           node["pattern"].is_object() && text_of(node["pattern"], "String") == " ")
    to.marked = true;
  else if (type == "Sequence" && node.contains("normalizers") && node["normalizers"].is_array())
    for (const Tree& one : node["normalizers"]) read_normaliser(one, name, to);
  else
    throw Error(name + ": the normalizer '" + type +
                    "' is not supported; NFC is, and with byte_fallback blanks that become U+2581",
                "normalizer");
}

void read_splitters(const Tree& node, const std::string& name, PairEncoder& to) {
  if (node.is_null()) return;
  const std::string type = node.is_object() ? text_of(node, "type") : "";
  if (type == "Sequence" && node.contains("pretokenizers") && node["pretokenizers"].is_array()) {
    for (const Tree& one : node["pretokenizers"]) read_splitters(one, name, to);
  } else if (type == "Metaspace" && to.fallback && text_of(node, "replacement") == blank) {
    const std::string scheme = text_of(node, "prepend_scheme");
    if (scheme == "first") to.before_text = PairEncoder::first_missing;
    else if (scheme == "always" || (scheme.empty() && flag_of(node, "add_prefix_space", true)))
      to.before_text = PairEncoder::every_missing;
    to.marked = true, to.own_words = flag_of(node, "split", true);
  } else if (to.fallback) {
    throw Error(name + ": the pre_tokenizer '" + type + "' is not supported with byte_fallback; Metaspace is",
                "pre_tokenizer");
  } else if (type == "ByteLevel") {
    to.space_first = to.space_first || flag_of(node, "add_prefix_space", false);
    if (flag_of(node, "use_regex", true)) to.splitters.push_back(std::make_unique<Splitter>(gpt2_pattern, name));
  } else if (type == "Split" && node.contains("pattern") && node["pattern"].is_object() &&
             node["pattern"].contains("Regex") && text_of(node, "behavior") == "Isolated" &&
             !flag_of(node, "invert", false)) {
    to.splitters.push_back(std::make_unique<Splitter>(text_of(node["pattern"], "Regex"), name));
  } else if (type == "Digits") {
    to.splitters.push_back(
        std::make_unique<Splitter>(flag_of(node, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)", name));
  } else {
    throw Error(name + ": the pre_tokenizer '" + type +
                    "' is not supported; ByteLevel, Digits and Split with an isolated "
                    "regular expression are",
                "pre_tokenizer");
  }
}

void read_post_processor(const Tree& node, PairEncoder& to) {
  if (!node.is_object()) return;
  const std::string type = text_of(node, "type");
  if (type == "Sequence" && node.contains("processors") && node["processors"].is_array())
    for (const Tree& one : node["processors"]) read_post_processor(one, to);
  if (type != "TemplateProcessing" || !node.contains("single") || !node["single"].is_array()) return;
  for (const Tree& one : node["single"]) {
    if (!one.is_object() || !one.contains("SpecialToken")) break;  // the text itself
    const std::string id = text_of(one["SpecialToken"], "id");
    for (const Added& token : to.added)
      if (token.text == id) to.before.push_back(token.id);
  }
}

std::int32_t token_number(const Tree& node, const std::string& name, const std::string& of) {
  if (!node.is_number_integer() || node.get<std::int64_t>() < 0 || node.get<std::int64_t>() > (1 << 24))
    throw Error(name + ": the number of the token '" + of + "' is not a whole number below 2^24", name);
  return node.get<std::int32_t>();
}

}  // namespace

std::unique_ptr<Tokenizer> json_tokenizer(std::string_view text, const std::string& name) {
  const Tree tree = Tree::parse(text.begin(), text.end(), nullptr, false);
  if (tree.is_discarded() || !tree.is_object()) throw Error(name + ": it is not JSON", name);
  const auto model = tree.find("model");
  if (model == tree.end() || !model->is_object() || !model->contains("vocab") || !(*model)["vocab"].is_object())
    throw Error(name + ": it has no model with a vocabulary", name);
  const std::string type = text_of(*model, "type");
  if (!type.empty() && type != "BPE")
    throw Error(name + ": the model '" + type + "' is not supported; BPE is", "model");
  auto result = std::make_unique<PairEncoder>();
  // Where all bytes are characters nothing falls back.
  const bool byte_level =
      tree.contains("pre_tokenizer") &&
      tree["pre_tokenizer"].dump(-1, ' ', true, Tree::error_handler_t::replace).find("\"ByteLevel\"") !=
          std::string::npos;
  result->fallback = !byte_level && flag_of(*model, "byte_fallback", false);
  for (const auto& [token, id] : (*model)["vocab"].items())
    result->vocabulary.emplace(token, token_number(id, name, token));
  if (model->contains("merges") && (*model)["merges"].is_array()) {
    std::int32_t rank = 0;
    for (const Tree& one : (*model)["merges"]) {
      std::string left, right;
      if (one.is_string()) {
        const std::string pair = one.get<std::string>();
        const std::size_t space = pair.find(' ');
        if (space != std::string::npos) left = pair.substr(0, space), right = pair.substr(space + 1);
      } else if (one.is_array() && one.size() == 2 && one[0].is_string() && one[1].is_string()) {
        left = one[0].get<std::string>(), right = one[1].get<std::string>();
      }
      if (left.empty() || right.empty()) throw Error(name + ": merge " + std::to_string(rank) + " is no pair", name);
      result->join(left, right, rank++, name);
    }
  }
  result->whole_first = flag_of(*model, "ignore_merges", false);
  if (const auto list = tree.find("added_tokens"); list != tree.end() && list->is_array())
    for (const Tree& one : *list) {
      if (!one.is_object() || !one.contains("id")) throw Error(name + ": an added token has no id", name);
      const std::string content = text_of(one, "content");
      result->added.push_back({content, token_number(one["id"], name, content), flag_of(one, "special", false),
                               flag_of(one, "lstrip", false), flag_of(one, "rstrip", false)});
    }
  if (tree.contains("normalizer")) read_normaliser(tree["normalizer"], name, *result);
  if (tree.contains("pre_tokenizer")) read_splitters(tree["pre_tokenizer"], name, *result);
  if (tree.contains("post_processor")) read_post_processor(tree["post_processor"], *result);
  result->guessed = true;
  for (const Added& one : result->added)
    for (const char* end : {"<|endoftext|>", "</s>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>"})
      if (one.text == end) result->end_tokens.push_back(one.id);
  result->finish(name);
  return result;
}

// ---- GGUF

namespace {
// Names of patterns, tokenizer.ggml.pre. `whole_words`: a piece that is a token is that token, whatever the merges, and a text
// begins with the token for that; `digits`: each by itself first; `composed`: NFC.
struct PreName {
  const char *name, *pattern;
  enum { plain, whole_words, digits, composed } kind = plain;
};
const PreName pre_names[] = {{"default", gpt2_pattern},
                             {"gpt-2", gpt2_pattern},
                             {"gpt2", gpt2_pattern},
                             {"mpt", gpt2_pattern},
                             {"olmo", gpt2_pattern},
                             {"phi-2", gpt2_pattern},
                             {"jais", gpt2_pattern},
                             {"smollm", gpt2_pattern, PreName::digits},
                             {"starcoder", gpt2_pattern, PreName::digits},
                             {"refact", gpt2_pattern, PreName::digits},
                             {"command-r", gpt2_pattern, PreName::digits},
                             {"codeshell", gpt2_pattern, PreName::digits},
                             {"llama-bpe", llama3_pattern, PreName::whole_words},
                             {"llama3", llama3_pattern, PreName::whole_words},
                             {"llama-v3", llama3_pattern, PreName::whole_words},
                             {"falcon3", llama3_pattern, PreName::whole_words},
                             {"dbrx", llama3_pattern},
                             {"smaug-bpe", llama3_pattern},
                             {"qwen2", qwen2_pattern, PreName::composed},
                             {"deepseek-r1-qwen", qwen2_pattern, PreName::composed},
                             {"qwen35", qwen35_pattern, PreName::composed}};
}  // namespace

std::unique_ptr<Tokenizer> gguf_tokenizer(const Settings& s) {
  const std::string kind = s.text("tokenizer.ggml.model"), &name = s.source();
  std::vector<std::string> tokens = s.texts("tokenizer.ggml.tokens");
  if (tokens.empty()) throw Error(name + ": tokenizer.ggml.tokens is missing or empty", "tokenizer.ggml.tokens");
  const std::vector<double> types = s.numbers("tokenizer.ggml.token_type");
  if (!types.empty() && types.size() != tokens.size())
    throw Error(name + ": tokenizer.ggml.token_type has " + std::to_string(types.size()) + " entries for " +
                    std::to_string(tokens.size()) + " tokens",
                "tokenizer.ggml.token_type");
  enum { normal = 1, control = 3, user = 4, unused = 5 };
  const auto type = [&](std::size_t i) { return types.empty() ? normal : static_cast<int>(types[i]); };
  std::vector<std::int32_t> ends;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"})
    if (s.has(key)) ends.push_back(s.whole(key));
  if (kind == "rwkv") {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] =
          type(i) == control || type(i) == unused || i == 0 ? std::string() : unescape(tokens[i], false, name);
    if (ends.empty()) ends.push_back(0);
    return trie_tokenizer(std::move(tokens), std::move(ends));
  }
  if (kind != "gpt2")
    throw Error(name + ": tokenizer.ggml.model is '" + kind + "'; gpt2 (byte-level pairs) and rwkv are supported",
                "tokenizer.ggml.model");
  auto result = std::make_unique<PairEncoder>();
  const std::string pre = s.text("tokenizer.ggml.pre", "default");
  const auto row =
      std::find_if(std::begin(pre_names), std::end(pre_names), [&](const PreName& one) { return pre == one.name; });
  if (row == std::end(pre_names)) {
    std::string known;
    for (const PreName& one : pre_names) known += (known.empty() ? "" : ", ") + std::string(one.name);
    throw Error(name + ": tokenizer.ggml.pre is '" + pre + "'; supported are " + known, "tokenizer.ggml.pre");
  }
  result->nfc = row->kind == PreName::composed, result->whole_first = row->kind == PreName::whole_words;
  if (row->kind == PreName::digits) result->splitters.push_back(std::make_unique<Splitter>(R"(\p{N})", name));
  result->splitters.push_back(std::make_unique<Splitter>(row->pattern, name));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (type(i) == control || type(i) == user)
      result->added.push_back({tokens[i], static_cast<std::int32_t>(i), type(i) == control, false, false});
    else if (type(i) != unused) result->vocabulary.emplace(tokens[i], static_cast<std::int32_t>(i));
  }
  std::int32_t rank = 0;
  for (const std::string& one : s.texts("tokenizer.ggml.merges")) {
    const std::size_t space = one.find(' ', 1);
    if (space == std::string::npos) throw Error(name + ": merge " + std::to_string(rank) + " is no pair", name);
    result->join(one.substr(0, space), one.substr(space + 1), rank++, name);
  }
  if (s.flag("tokenizer.ggml.add_bos_token", result->whole_first) && s.has("tokenizer.ggml.bos_token_id"))
    result->before.push_back(s.whole("tokenizer.ggml.bos_token_id"));
  result->end_tokens = ends;
  result->finish(name);
  return result;
}

}  // namespace ttr::model
