// Tokenizers, by what they are read from.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "language/weights.h"
#include "ttr/language.h"

namespace ttr::model {

/// Every byte is a token.
std::unique_ptr<Tokenizer> byte_tokenizer();
/// The longest known beginning of the bytes that are left, again and again (RWKV's world models). Token i is `tokens[i]`; empty:
/// there is none.
std::unique_ptr<Tokenizer> trie_tokenizer(std::vector<std::string> tokens, std::vector<std::int32_t> ends);
/// Lines `id literal length`.
std::unique_ptr<Tokenizer> world_tokenizer(std::string_view text, const std::string& name);
/// Byte-level pairs: tokenizer.json.
std::unique_ptr<Tokenizer> json_tokenizer(std::string_view text, const std::string& name);
/// Of a GGUF file.
std::unique_ptr<Tokenizer> gguf_tokenizer(const Settings&);

/// What lies beside the weights or in them; null: nothing. `vocabulary` of 256 without any: bytes.
std::unique_ptr<Tokenizer> tokenizer_of(const Weights&, int vocabulary);
std::string chat_template_of(const Weights&);
/// Tokens that end a text: eos_token_id of generation_config.json, else of config.json; eos_token of tokenizer_config.json; those
/// that the tokenizer names, or guesses if nobody names any.
std::vector<std::int32_t> ends_of(const Weights&, const Tokenizer*);

/// A Python literal without its quotes: escapes as bytes; \xHH above 7f is a character where `characters`, else a byte.
std::string unescape(std::string_view text, bool characters, const std::string& name);

}  // namespace ttr::model
