#include "ttr/language.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "language/architectures/architecture.h"
#include "language/network.h"
#include "language/tokenizers.h"
#include "language/weights.h"
#include "threads/pool.h"
#include "ttr/safetensors.h"

namespace ttr::model {

template <class T>
struct TTR_HIDDEN Sequence<T>::Body {
  Memory memory;
};

template <class T>
struct TTR_HIDDEN LanguageModel<T>::Body {
  Body(const std::string& path, const LoadOptions& o) : weights(path) {
    if (o.threads < 0 || o.threads > threads::most)
      throw Error(
          "threads is " + std::to_string(o.threads) + "; it is 0 (all cores) to " + std::to_string(threads::most),
          "threads");
    if (o.context < 1) throw Error("the context is " + std::to_string(o.context) + "; it is at least 1", "context");
    if (o.piece < 1) throw Error("a piece is " + std::to_string(o.piece) + " tokens; it is at least 1", "piece");
    if (o.rewind < 0) throw Error("rewind is " + std::to_string(o.rewind) + "; it is at least 0", "rewind");
    Settings overrides;
    for (const auto& [key, value] : o.settings) overrides.set(key, read_value(value));
    const Architecture& architecture = build_graph(weights, overrides, graph);
    const int count = o.threads == 0 ? threads::available() : o.threads;
    network = std::make_unique<Network<T>>(graph, count, o.piece, o.context, o.rewind, o.activations);
    if (!o.tokenizer.empty()) tokenizer = open_tokenizer(o.tokenizer);
    else try {
        tokenizer = tokenizer_of(weights, static_cast<int>(graph.head.out));
      } catch (const Error& error) {  // numbers of tokens do without it
        about.tokenizer_problem = error.what();
      }
    about.path = path, about.architecture = architecture.name;
    if (weights.settings().has("model_type"))
      about.architecture += " (" + weights.settings().text("model_type") + ")";
    about.layers = graph.layers, about.width = static_cast<int>(graph.stream);
    about.vocabulary = static_cast<int>(graph.head.out), about.piece = o.piece;
    about.activations = o.activations;
    for (const auto& [name, weight] : weights.all())
      about.parameters += weight.numbers(), ++about.types[weight.dtype];
    about.weight_bytes = weights.bytes(), about.state_bytes = network->memory_bytes();
    about.workspace_bytes = network->workspace_bytes();
    about.token_bytes = static_cast<std::size_t>(graph.head.bytes());
    about.head_products = graph.head.out * graph.head.in;
    for (const Node& node : graph.nodes)
      if (node.kind == Node::Kind::linear) {
        about.token_bytes += static_cast<std::size_t>(node.matrix.bytes());
        about.token_products += node.groups * node.matrix.out * node.matrix.in;
      }
    about.chat_template = chat_template_of(weights);
    about.ends = ends_of(weights, tokenizer.get());
    logits.resize(static_cast<std::size_t>(graph.head.out));
  }

  static Settings::Value read_value(const std::string& text) {
    if (text == "true" || text == "false") return text == "true";
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == 0) return number;
    return text;
  }

  void own(const Sequence<T>& sequence) const {
    if (&sequence.model().body() != this) throw Error("the sequence is one of another model", "sequence");
  }

  // Through the network in pieces; `each` gets the rows of a piece.
  template <class Each>
  void run(Memory& memory, std::span<const std::int32_t> tokens, typename Network<T>::Mode mode, Each&& each) {
    if (tokens.empty()) throw Error("a call has at least one token", "tokens");
    const std::size_t piece = static_cast<std::size_t>(network->piece());
    for (std::size_t begin = 0; begin < tokens.size(); begin += piece) {
      const std::size_t count = std::min(piece, tokens.size() - begin);
      const Rows rows{&memory, 0, static_cast<Size>(count)};
      network->run(tokens.subspan(begin, count), {&rows, 1}, mode);
      each(begin, static_cast<Size>(count));
    }
  }

  Weights weights;
  Graph graph;
  std::unique_ptr<Network<T>> network;
  std::unique_ptr<Tokenizer> tokenizer;
  ModelAbout about;
  std::vector<T> logits;
  std::vector<Rows> members;  // of a call of decode
  std::vector<Size> places;
};

template <class T>
Sequence<T>::Sequence(const LanguageModel<T>& model) : model_(&model), body_(std::make_unique<Body>()) {
  reset();
}
template <class T>
Sequence<T>::Sequence(const Sequence& other) : model_(other.model_), body_(std::make_unique<Body>()) {
  model_->body().network->copy(other.body_->memory, body_->memory);
}
template <class T>
Sequence<T>& Sequence<T>::operator=(const Sequence& other) {
  if (this == &other) return *this;
  model_ = other.model_;
  body_ = std::make_unique<Body>();
  model_->body().network->copy(other.body_->memory, body_->memory);
  return *this;
}
template <class T>
Sequence<T>::Sequence(Sequence&&) noexcept = default;
template <class T>
Sequence<T>::~Sequence() = default;
template <class T>
void Sequence<T>::reset() {
  model_->body().network->reset(body_->memory);
}
template <class T>
std::int64_t Sequence<T>::tokens() const noexcept {
  return body_->memory.tokens;
}
template <class T>
std::int64_t Sequence<T>::rewindable() const noexcept {
  return body_->memory.rewindable;
}
template <class T>
void Sequence<T>::rewind(std::int64_t tokens) {
  if (!model_->body().network->rewind(body_->memory, tokens))
    throw Error("the sequence can take back " + std::to_string(rewindable()) + " tokens and not " +
                    std::to_string(tokens) + "; load the model with a larger rewind",
                "rewind");
}
template <class T>
void Sequence<T>::save(const std::string& path, const TextEnd<T>& end) const {
  write_whole_file(path, model_->body().network->save(body_->memory, end));
}
template <class T>
TextEnd<T> Sequence<T>::load(const std::string& path) {
  return model_->body().network->load(read_whole_file(path), path, body_->memory);
}

template <class T>
LanguageModel<T>::LanguageModel(const std::string& path, const LoadOptions& options)
    : body_(std::make_unique<Body>(path, options)) {}
template <class T>
LanguageModel<T>::~LanguageModel() = default;
template <class T>
const ModelAbout& LanguageModel<T>::about() const noexcept {
  return body_->about;
}
template <class T>
const Tokenizer* LanguageModel<T>::tokenizer() const noexcept {
  return body_->tokenizer.get();
}

namespace {
template <class T>
typename Network<T>::Mode mode_of(Bits bits) {
  return bits == Bits::fixed ? Network<T>::Mode::tokens : Network<T>::Mode::block;
}
}  // namespace

template <class T>
std::span<const T> LanguageModel<T>::prefill(Sequence<T>& sequence, std::span<const std::int32_t> tokens, Bits bits) {
  Body& b = *body_;
  b.own(sequence);
  Size last = 0;
  b.run(sequence.body().memory, tokens, mode_of<T>(bits), [&](std::size_t, Size count) { last = count - 1; });
  b.logits.resize(static_cast<std::size_t>(b.graph.head.out));
  b.network->logits({&last, 1}, Network<T>::Mode::tokens, b.logits.data());
  return b.logits;
}

template <class T>
std::span<const T> LanguageModel<T>::decode(std::span<Sequence<T>* const> sequences,
                                            std::span<const std::int32_t> tokens) {
  Body& b = *body_;
  if (sequences.size() != tokens.size())
    throw Error(std::to_string(tokens.size()) + " tokens are not one for each of " +
                    std::to_string(sequences.size()) + " sequences",
                "tokens");
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    b.own(*sequences[i]);
    for (std::size_t j = 0; j < i; ++j)
      if (sequences[i] == sequences[j]) throw Error("a sequence is twice in one call of decode", "sequences");
  }
  b.logits.resize(sequences.size() * static_cast<std::size_t>(b.graph.head.out));
  const std::size_t piece = static_cast<std::size_t>(b.network->piece());
  std::vector<Rows>& rows = b.members;
  std::vector<Size>& all = b.places;
  for (std::size_t begin = 0; begin < sequences.size(); begin += piece) {
    const std::size_t count = std::min(piece, sequences.size() - begin);
    rows.clear(), all.clear();
    for (std::size_t i = 0; i < count; ++i)
      rows.push_back({&sequences[begin + i]->body().memory, static_cast<Size>(i), 1}),
          all.push_back(static_cast<Size>(i));
    b.network->run(tokens.subspan(begin, count), rows, Network<T>::Mode::tokens);
    b.network->logits(all, Network<T>::Mode::tokens,
                      b.logits.data() + begin * static_cast<std::size_t>(b.graph.head.out));
  }
  return b.logits;
}

template <class T>
void LanguageModel<T>::logits(Sequence<T>& sequence, std::span<const std::int32_t> tokens, std::span<T> to,
                              Bits bits) {
  Body& b = *body_;
  b.own(sequence);
  const std::size_t classes = static_cast<std::size_t>(b.graph.head.out);
  if (to.size() != tokens.size() * classes)
    throw Error("there is room for " + std::to_string(to.size()) + " logits and there are " +
                    std::to_string(tokens.size() * classes),
                "logits");
  b.run(sequence.body().memory, tokens, mode_of<T>(bits), [&](std::size_t begin, Size count) {
    std::vector<Size> all(static_cast<std::size_t>(count));
    for (Size i = 0; i < count; ++i) all[static_cast<std::size_t>(i)] = i;
    b.network->logits(all, mode_of<T>(bits), to.data() + begin * classes);
  });
}

Activations activations_of(std::string_view word) {
  if (word == "exact") return Activations::exact;
  if (word == "rounded") return Activations::rounded;
  throw Error("activations are exact or rounded, not '" + std::string(word) + "'", "activations");
}

bool is_trained_here(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failed;
  std::string file = path;
  if (fs::is_directory(path, failed)) {
    if (fs::exists(path + "/config.json", failed)) return false;
    file = path + "/model.safetensors";
    if (!fs::exists(file, failed)) file = path + "/checkpoint.safetensors";
  }
  if (!fs::is_regular_file(file, failed) || fs::path(file).extension() != ".safetensors") return false;
  const MappedFile mapped(file);
  const auto bytes = mapped.bytes();
  std::map<std::string, std::string> metadata;
  (void)list_safetensors(bytes, file, &metadata);
  const auto format = metadata.find("format");
  return format != metadata.end() && format->second.rfind("ttr checkpoint", 0) == 0;
}

bool is_published(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failed;
  if (fs::is_directory(path, failed)) return !is_trained_here(path);
  return fs::is_regular_file(path, failed) && fs::path(path).extension() != ".safetensors" &&
         fs::file_size(path, failed) > 0;
}

CheckpointAbout look_into(const std::string& path) {
  const Weights weights(path);
  CheckpointAbout about;
  about.format = weights.gguf() || weights.kept() ? "GGUF" : "safetensors";
  int vocabulary = 0;
  try {
    Graph graph;
    about.architecture = build_graph(weights, Settings(), graph).name;
    about.layers = graph.layers, about.width = static_cast<int>(graph.stream);
    about.vocabulary = vocabulary = static_cast<int>(graph.head.out);
  } catch (const Error& error) {
    about.why = error.what();
  }
  try {
    const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(weights, vocabulary);
    about.tokenizer = tokenizer ? tokenizer->about() : "none";
  } catch (const Error& error) {
    about.tokenizer = std::string("none that is supported: ") + error.what();
  }
  for (const auto& [name, weight] : weights.all())
    about.tensors.push_back({name, weight.dtype, weight.shape_text(), weight.numbers(), weight.bytes});
  for (const auto& [key, value] : weights.settings().all()) {
    std::string& text = about.settings[key];
    if (const auto* flag = std::get_if<bool>(&value)) text = *flag ? "true" : "false";
    else if (const auto* one = std::get_if<std::string>(&value)) text = *one;
    else if (const auto* number = std::get_if<double>(&value)) {
      char digits[32];
      std::snprintf(digits, sizeof digits, "%.10g", *number);
      text = digits;
    } else
      text = "a list of " + std::to_string(std::visit(
                                [](const auto& list) -> std::size_t {
                                  if constexpr (requires { list.size(); }) return list.size();
                                  else return 0;
                                },
                                value));
  }
  return about;
}

std::vector<ArchitectureAbout> known_architectures() {
  std::vector<ArchitectureAbout> list;
  for (const Architecture* one : architectures()) list.push_back({one->name, one->about});
  return list;
}

template class Sequence<float>;
template class Sequence<double>;
template class LanguageModel<float>;
template class LanguageModel<double>;

}  // namespace ttr::model
