#include "language_runner.h"

#include <fmt/format.h>

#include <charconv>
#include <type_traits>

#include "trained.h"
#include "ttr/language.h"

namespace ttr::cli {
namespace {

template <class T>
class Published final : public LanguageRunner {
 public:
  Published(const ModelOptions& o, const model::LoadOptions& how)
      : model_(o.model, how), sequence_(model_), bits_(o.fixed ? model::Bits::fixed : model::Bits::fast) {}

  std::string about() const override {
    const model::ModelAbout& a = model_.about();
    return fmt::format("{}, {} layers of width {}, {} tokens", a.architecture, a.layers, a.width, a.vocabulary);
  }
  int vocabulary() const override { return model_.about().vocabulary; }
  std::string tokenizer() const override { return model_.tokenizer() ? model_.tokenizer()->about() : ""; }
  std::string chat_template() const override { return model_.about().chat_template; }
  std::string tokenizer_problem() const override { return model_.about().tokenizer_problem; }
  std::vector<std::int32_t> encode(std::string_view text, bool beginning) const override {
    if (!model_.tokenizer()) try {
        return token_list(text, vocabulary(), "text");
      } catch (const Error& error) {
        if (tokenizer_problem().empty()) throw;
        throw Error(fmt::format("{}; without a tokenizer {}", tokenizer_problem(), error.what()), "tokenizer");
      }
    std::vector<std::int32_t> tokens = model_.tokenizer()->encode(text, true, beginning);
    for (const std::int32_t token : tokens)
      if (token >= vocabulary())
        throw Error(fmt::format("the tokenizer has the token {} and the model has {}; it belongs to another model",
                                token, vocabulary()),
                    "tokenizer");
    return tokens;
  }
  std::string decode(std::int32_t token) const override {
    return model_.tokenizer() ? model_.tokenizer()->decode(token) : fmt::format("{} ", token);
  }
  std::vector<std::int32_t> ends() const override { return model_.about().ends; }
  void reset() override { sequence_.reset(); }
  std::int64_t tokens() const override { return sequence_.tokens(); }
  std::span<const double> advance(std::span<const std::int32_t> tokens) override {
    return widened(model_.prefill(sequence_, tokens, bits_));
  }
  void each(std::span<const std::int32_t> tokens,
            const std::function<void(std::size_t, std::span<const double>)>& put) override {
    const std::size_t classes = static_cast<std::size_t>(vocabulary()), some = 64;
    for (std::size_t begin = 0; begin < tokens.size(); begin += some) {
      const std::size_t count = std::min(some, tokens.size() - begin);
      rows_.resize(count * classes);
      model_.logits(sequence_, tokens.subspan(begin, count), rows_, bits_);
      for (std::size_t i = 0; i < count; ++i) put(begin + i, widened({rows_.data() + i * classes, classes}));
    }
  }
  void rewind(std::int64_t tokens) override { sequence_.rewind(tokens); }
  void save(const std::string& path, std::span<const double> logits, std::span<const std::int32_t> newest) override {
    model::TextEnd<T> end;
    for (const double x : logits) end.logits.push_back(static_cast<T>(x));
    end.newest.assign(newest.begin(), newest.end());
    sequence_.save(path, end);
  }
  Loaded load(const std::string& path) override {
    const model::TextEnd<T> end = sequence_.load(path);
    return {{end.logits.begin(), end.logits.end()}, end.newest};
  }

 private:
  std::span<const double> widened(std::span<const T> logits) {
    if constexpr (std::is_same_v<T, double>) return logits;
    else {
      wide_.assign(logits.begin(), logits.end());
      return wide_;
    }
  }
  model::LanguageModel<T> model_;
  model::Sequence<T> sequence_;
  model::Bits bits_;
  std::vector<T> rows_;
  std::vector<double> wide_;
};

class Trained final : public LanguageRunner {
 public:
  explicit Trained(const ModelOptions& o)
      : trained_(open_trained(o.model)), context_(o.context), threads_(o.threads) {
    if (trained_.config.vocabulary == 0 || trained_.config.loss != "cross-entropy" ||
        (trained_.config.output_dim != 0 && trained_.config.output_dim != trained_.config.vocabulary))
      throw Error(fmt::format("'{}' does not predict tokens: it was trained on {}", trained_.path,
                              trained_.task.empty() ? "numbers" : trained_.task),
                  "model");
    if (o.in_double || !o.settings.empty() || !o.tokenizer.empty() || o.activations != "exact")
      throw Error(
          "--double, --set, --activations and --tokenizer are for published models; this one is of `ttr train`",
          "model");
    decoder_ = std::make_unique<model::Decoder<float>>(*trained_.model, 1, context_, threads_);
  }
  std::string about() const override { return fmt::format("ttr train, {}", trained_.config.stack); }
  int vocabulary() const override { return trained_.config.vocabulary; }
  std::string tokenizer() const override { return trained_.bytes() ? "bytes" : ""; }
  std::vector<std::int32_t> encode(std::string_view text, bool) const override {
    if (!trained_.bytes()) return token_list(text, vocabulary(), "text");
    std::vector<std::int32_t> tokens;
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::string decode(std::int32_t token) const override {
    return trained_.bytes() ? std::string(1, static_cast<char>(token)) : fmt::format("{} ", token);
  }
  void reset() override { decoder_->reset(); }
  std::int64_t tokens() const override { return decoder_->tokens(); }
  std::span<const double> advance(std::span<const std::int32_t> tokens) override {
    const std::span<const float> logits =
        decoder_->advance({.batch = 1, .time = static_cast<int>(tokens.size()), .tokens = tokens.data()});
    wide_.assign(logits.begin(), logits.end());
    return wide_;
  }
  void each(std::span<const std::int32_t> tokens,
            const std::function<void(std::size_t, std::span<const double>)>& put) override {
    for (std::size_t i = 0; i < tokens.size(); ++i) put(i, advance(tokens.subspan(i, 1)));
  }
  void rewind(std::int64_t) override { refuse("go back"); }
  void save(const std::string&, std::span<const double>, std::span<const std::int32_t>) override {
    refuse("save its state");
  }
  Loaded load(const std::string&) override { refuse("load a state"); }

 private:
  [[noreturn]] static void refuse(const char* what) {
    throw Error(fmt::format("a model of `ttr train` cannot {} here; published models can", what), "model");
  }
  TrainedModel trained_;
  int context_, threads_;
  std::unique_ptr<model::Decoder<float>> decoder_;
  std::vector<double> wide_;
};

}  // namespace

std::unique_ptr<LanguageRunner> open_language_model(const ModelOptions& o) {
  if (model::is_trained_here(o.model)) return std::make_unique<Trained>(o);
  model::LoadOptions how;
  how.threads = o.threads, how.context = o.context, how.piece = o.piece, how.rewind = o.rewind;
  how.tokenizer = o.tokenizer, how.activations = model::activations_of(o.activations);
  for (const std::string& one : o.settings) {
    const std::size_t equal = one.find('=');
    if (equal == std::string::npos || equal == 0)
      throw Error(fmt::format("--set is '{}'; it is name=value", one), "--set");
    how.settings[one.substr(0, equal)] = one.substr(equal + 1);
  }
  if (o.in_double) return std::make_unique<Published<double>>(o, how);
  return std::make_unique<Published<float>>(o, how);
}

std::vector<std::int32_t> token_list(std::string_view text, int vocabulary, const char* option) {
  std::vector<std::int32_t> tokens;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find_first_of(", \n\t", at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    std::int32_t token = -1;
    const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || rest != word.data() + word.size() || token < 0 || token >= vocabulary)
      throw Error(
          fmt::format("{} has '{}'; tokens of this model are numbers from 0 to {}", option, word, vocabulary - 1),
          option);
    tokens.push_back(token);
  }
  return tokens;
}

}  // namespace ttr::cli
