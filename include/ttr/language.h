// Published language models: RWKV, Mamba, the family of flash-linear-attention, Qwen3-Next and others, from .safetensors,
// Hugging Face folders and GGUF files (docs/models.md).
//
//   ttr::model::LanguageModel<float> model("model.gguf", {.threads = 0, .rewind = 4});
//   ttr::model::Sequence<float> one(model);                          // what one text has seen
//   std::vector<std::int32_t> tokens = model.tokenizer()->encode("Once upon");
//   std::span<const float> logits = model.prefill(one, tokens);      // of what comes next
//   std::int32_t next = ttr::model::likeliest(logits);
//   ttr::model::Sequence<float>* slots[] = {&one};
//   logits = model.decode(slots, {&next, 1});                        // one token of each of several sequences
//   one.save("state.safetensors");                                   // and another day: one.load("state.safetensors")
//   one.rewind(1);                                                   // a draft that was not taken (LoadOptions::rewind)
//
// Many texts at once, which come and go (continuous batching):
//
//   ttr::model::Slots<float> texts(model, 8);
//   int first = texts.join(tokens);
//   while (texts.taken() > 0)
//     texts.round([&](int slot, std::span<const float> scores) { return choose(slot, scores); });  // -1: it leaves
//
// Weights stay in the file's memory map, in the type they are stored in. A model is read by many threads, its calls are made by
// one at a time. Everything throws Error that names the file, the tensor or the key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ttr/export.h"
#include "ttr/status.h"

namespace ttr::model {

/// What products with weights do to the numbers they multiply them with. `exact`: nothing, or no more than a sum of floats does.
/// `rounded`: with weights of BF16 they are rounded to bf16, with Q8_0 and Q4_0 to eight bits times a factor for each 32
/// of them, which takes less time where the processor has instructions for such products (AVX-512 VNNI and BF16); with
/// other types they stay as they are (docs/models.md).
enum class Activations { exact, rounded };
/// Of "exact" or "rounded"; throws Error for another word.
TTR_LANGUAGE_API Activations activations_of(std::string_view word);

struct LoadOptions {
  int threads = 1;                                   // 0: all cores
  int context = 4096;                                // longest sequence, where a layer keeps its tokens
  int piece = 256;                                   // tokens of a prompt that go through the layers together
  int rewind = 0;                                    // newest tokens of a sequence that can be taken back
  std::string tokenizer = {};                        // a file; empty: what lies beside the weights or in them
  std::map<std::string, std::string> settings = {};  // go before those of the checkpoint: group_norm_eps, ...
  Activations activations = Activations::exact;
};

/// Text to the numbers of tokens and back.
class TTR_LANGUAGE_API Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// `special`: those that a text names (<|im_start|>) are tokens, and before a text (`beginning`) come those that the model wants
  /// there.
  virtual std::vector<std::int32_t> encode(std::string_view text, bool special = true,
                                           bool beginning = true) const = 0;
  /// The bytes of a token; empty for one that has none.
  virtual std::string decode(std::int32_t token) const = 0;
  /// Tokens that end a text, by the tokenizer alone: see ModelAbout::ends.
  virtual std::vector<std::int32_t> ends() const { return {}; }
  /// They are guessed from the texts of tokens, and not named in the file.
  virtual bool ends_guessed() const { return false; }
  virtual std::string about() const = 0;
};

/// A tokenizer.json, or a vocabulary of RWKV (rwkv_vocab_v20230424.txt).
TTR_LANGUAGE_API std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path);

struct ModelAbout {
  std::string path, architecture;
  int layers = 0, width = 0, vocabulary = 0;
  int piece = 0;                                 // LoadOptions::piece
  Activations activations = Activations::exact;  // LoadOptions::activations
  std::int64_t parameters = 0;
  std::size_t weight_bytes = 0, state_bytes = 0;  // of the file, of one sequence
  std::size_t workspace_bytes = 0;                // what is there besides, copies of vectors and changed matrices too
  std::size_t token_bytes = 0;                    // of weights that a token reads, the head's too
  std::int64_t token_products = 0, head_products = 0;  // multiply-adds of a token, and of its logits
  std::map<std::string, std::int64_t> types;           // tensors of each stored type
  std::string chat_template;
  std::vector<std::int32_t>
      ends;  // tokens that end a text: by generation_config.json or config.json, and the tokenizer
  std::string
      tokenizer_problem;  // why the tokenizer that the model comes with is not read; empty: it is, or there is none
};

/// How a call computes. `fixed`: token by token, with the same bits whatever else is in the call, however a text was cut into
/// calls, on any number of threads. `fast`: by blocks, equal up to rounding.
enum class Bits { fast, fixed };

template <class T>
class LanguageModel;

/// How a text ended, for those who go on with it. Both may be empty.
template <class T>
struct TextEnd {
  std::vector<T> logits;             // of what comes next
  std::vector<std::int32_t> newest;  // its newest tokens
};

/// What one text has seen. The model must outlive it and keep its place.
template <class T>
class TTR_LANGUAGE_API Sequence {
 public:
  explicit Sequence(const LanguageModel<T>&);
  Sequence(const Sequence&);
  Sequence& operator=(const Sequence&);
  Sequence(Sequence&&) noexcept;
  ~Sequence();
  void reset();
  std::int64_t tokens() const noexcept;
  /// Takes back the newest tokens (LoadOptions::rewind), bit for bit; throws Error if they are more than rewindable().
  void rewind(std::int64_t tokens);
  std::int64_t rewindable() const noexcept;
  /// A .safetensors file that the same model takes back: all tokens that calls were made with, and `end` if there is one.
  void save(const std::string& path, const TextEnd<T>& end = {}) const;
  TextEnd<T> load(const std::string& path);

  const LanguageModel<T>& model() const noexcept { return *model_; }

  struct Body;
  Body& body() const noexcept { return *body_; }

 private:
  const LanguageModel<T>* model_;
  std::unique_ptr<Body> body_;
};

template <class T>
class TTR_LANGUAGE_API LanguageModel {
 public:
  explicit LanguageModel(const std::string& path, const LoadOptions& = {});
  ~LanguageModel();
  LanguageModel(const LanguageModel&) = delete;

  const ModelAbout& about() const noexcept;
  /// Null if the model comes without one, or with one that is not supported (ModelAbout::tokenizer_problem): then a text is
  /// numbers of tokens.
  const Tokenizer* tokenizer() const noexcept;

  /// The tokens of one sequence; the logits after the last of them, until the next call.
  std::span<const T> prefill(Sequence<T>&, std::span<const std::int32_t> tokens, Bits = Bits::fast);
  /// One token of each of several sequences, which are not twice the same; their logits [n, vocabulary], until the next call.
  std::span<const T> decode(std::span<Sequence<T>* const>, std::span<const std::int32_t> tokens);
  /// The logits after every token, [tokens, vocabulary], into `to`.
  void logits(Sequence<T>&, std::span<const std::int32_t> tokens, std::span<T> to, Bits = Bits::fast);

  struct Body;
  const Body& body() const noexcept { return *body_; }

 private:
  std::unique_ptr<Body> body_;
};

/// Texts that go on together. A round decodes one token of every text that has its prompt behind it, and reads one piece
/// (LoadOptions::piece) of the prompt that waits longest, so that a long prompt does not stop the others. What a text gets does
/// not depend on its company: its prompt is cut from its own beginning, and decoding has fixed bits.
template <class T>
class TTR_LANGUAGE_API Slots {
 public:
  /// Up to `most` texts. The model must outlive it, and makes no other calls during a round.
  Slots(LanguageModel<T>& model, int most);
  ~Slots();
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  /// A text, which begins with these tokens (at least one); goes on from a copy of `from` if there is one. Returns its slot,
  /// or -1 if all are taken. Throws Error for tokens that the model does not have.
  int join(std::span<const std::int32_t> prompt, const Sequence<T>* from = nullptr);
  void leave(int slot);
  int taken() const noexcept;
  int most() const noexcept;
  /// What the text in a slot has seen.
  const Sequence<T>& sequence(int slot) const;

  /// The next token of a text from its logits, or -1 if the text leaves its slot. May call join and leave.
  using Next = std::function<std::int32_t(int slot, std::span<const T> logits)>;
  /// One round; nothing if no slot is taken. If a call of the model fails, the texts in it leave, and Error is thrown.
  void round(const Next& next);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

/// The model of a file or folder: LanguageModel with the arguments given.
template <class T = float>
std::unique_ptr<LanguageModel<T>> load(const std::string& path, const LoadOptions& options = {}) {
  return std::make_unique<LanguageModel<T>>(path, options);
}

template <class T>
std::int32_t likeliest(std::span<const T> logits) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best]) best = i;
  return static_cast<std::int32_t>(best);
}

/// Whether a file or folder is what `ttr train` wrote (ttr/checkpoint.h) and not a published model. Looks at headers alone.
TTR_LANGUAGE_API bool is_trained_here(const std::string& path);
/// Whether it is a GGUF file or a folder with a published model: what no other program here reads.
TTR_LANGUAGE_API bool is_published(const std::string& path);

/// What is in a checkpoint, whether or not its architecture is one of those that run.
struct TensorAbout {
  std::string name, type, shape;
  std::int64_t numbers = 0;
  std::size_t bytes = 0;
};
struct CheckpointAbout {
  std::string format;             // "GGUF" or "safetensors"
  std::string architecture, why;  // one of both: why it does not run
  int layers = 0, width = 0, vocabulary = 0;
  std::string tokenizer;  // what it is, or why it is none
  std::vector<TensorAbout> tensors;
  std::map<std::string, std::string> settings;  // lists by their length
};
TTR_LANGUAGE_API CheckpointAbout look_into(const std::string& path);

/// Architectures that are recognised, and by what: for people.
struct ArchitectureAbout {
  std::string name, about;
};
TTR_LANGUAGE_API std::vector<ArchitectureAbout> known_architectures();

/// Copies a checkpoint to GGUF or .safetensors (by the ending of `to`) with its matrices in another type: "f32", "f16", "bf16",
/// and in GGUF "q8_0", "q4_0". Vectors, embeddings that are no matrix of products and rows that are no multiple of a block
/// stay floats. A .safetensors file of an architecture that is known here becomes a GGUF file that this library alone reads. The
/// file is there whole or not at all, and one tensor after another goes through memory; `go_on` is asked between them.
struct Quantised {
  std::size_t before = 0, after = 0;  // bytes of tensors
  int changed = 0;                    // tensors that have the type
  int no_matrices = 0,
      odd_rows = 0;  // that are floats: vectors and what is small; rows that are no multiple of a block
};
TTR_LANGUAGE_API Quantised quantise(const std::string& from, const std::string& to, const std::string& type,
                                    const std::function<bool()>& go_on = {});

extern template class TTR_LANGUAGE_API Sequence<float>;
extern template class TTR_LANGUAGE_API Sequence<double>;
extern template class TTR_LANGUAGE_API LanguageModel<float>;
extern template class TTR_LANGUAGE_API LanguageModel<double>;
extern template class TTR_LANGUAGE_API Slots<float>;
extern template class TTR_LANGUAGE_API Slots<double>;

}  // namespace ttr::model
