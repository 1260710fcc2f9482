// A model that goes on with tokens, for the verbs that ask one: published models (ttr/language.h) and those of `ttr train`.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ttr::cli {

struct ModelOptions {
  std::string model, tokenizer;
  std::vector<std::string> settings;  // name=value
  int threads = 0, context = 4096, piece = 256, rewind = 0;
  bool in_double = false, fixed = false;
  std::string activations = "exact";
};

/// One text after another through one model.
class LanguageRunner {
 public:
  virtual ~LanguageRunner() = default;
  virtual std::string about() const = 0;
  virtual int vocabulary() const = 0;
  /// Empty: the model has no tokenizer, and a text is numbers of tokens.
  virtual std::string tokenizer() const = 0;
  /// Why it has none, where it comes with one that is not supported.
  virtual std::string tokenizer_problem() const { return ""; }
  virtual std::string chat_template() const { return ""; }
  /// With the tokens that the text names; `beginning`: and those that the model wants before a text.
  virtual std::vector<std::int32_t> encode(std::string_view text, bool beginning = true) const = 0;
  virtual std::string decode(std::int32_t token) const = 0;
  virtual std::vector<std::int32_t> ends() const { return {}; }

  virtual void reset() = 0;
  virtual std::int64_t tokens() const = 0;
  /// The tokens, and the logits after the last one, until the next call.
  virtual std::span<const double> advance(std::span<const std::int32_t> tokens) = 0;
  /// The same for every token: put(i, logits).
  virtual void each(std::span<const std::int32_t> tokens,
                    const std::function<void(std::size_t, std::span<const double>)>& put) = 0;
  virtual void rewind(std::int64_t tokens) = 0;
  /// What was seen, the logits of what comes next and the newest tokens; load gives both back as far as the file has them.
  virtual void save(const std::string& path, std::span<const double> logits,
                    std::span<const std::int32_t> newest) = 0;
  struct Loaded {
    std::vector<double> logits;
    std::vector<std::int32_t> newest;
  };
  virtual Loaded load(const std::string& path) = 0;
};

std::unique_ptr<LanguageRunner> open_language_model(const ModelOptions&);

/// Numbers of tokens, "34,105,110" or with blanks. Throws Error that names the option.
std::vector<std::int32_t> token_list(std::string_view text, int vocabulary, const char* option);

}  // namespace ttr::cli
