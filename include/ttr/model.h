// The outer model in which layers are trained: embedding, pre-norm blocks, head, loss. A library of its own, ttr::model
// (docs/model.md).
//
//   ttr::model::Config config;
//   config.stack = "gated-deltanet*2";                       // any layer or recipe, hybrids: "gla*3, softmax(window=128)"
//   config.vocabulary = 256, config.width = 64, config.heads = 2, config.time = 128;
//   ttr::model::Model<float> model(config, 1);               // parameters, drawn from seed 1
//   ttr::model::Session<float> session(model, 8, 128);       // buffers for 8 sequences of up to 128 tokens each
//   ttr::model::Batch<float> batch{.batch = 8, .time = 128, .tokens = tokens, .labels = labels};
//   ttr::model::Measure m = session.gradient(batch);         // m.loss; session.gradients() in the order of model.values()
//   ttr::model::Decoder<float> decoder(model, 1, 512);       // one sequence, token by token, with states that are carried
//   std::span<const float> scores = decoder.advance({.batch = 1, .time = 3, .tokens = prompt});
//   scores = decoder.advance({.batch = 1, .time = 1, .tokens = &next});      // of what comes after `next`
//
// A block knows from the plan's table of inputs (Plan::inputs) which projections, convolutions, norms and gates its
// mixer needs, so that a layer which is added to the library can be trained without a change here. Gradients are
// explicit, forwards and backwards per block; after the first call nothing is allocated. The same seed gives the same
// bits for any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ttr/export.h"
#include "ttr/plan.h"

namespace ttr::model {

/// One block of a stack: a mixer and settings, those of the block and those of the layer.
struct BlockText {
  std::string mixer;  // a layer's name or a recipe
  std::map<std::string, std::string> settings;
};
/// "gated-deltanet*3, softmax(window=128)": blocks separated by commas, *n repeats one, (name=value, ..) are settings;
/// a recipe stands in braces: "{equal / linear / sgd(beta)}(conv=0)*2"; a value with commas or brackets stands in quotes:
/// text(file="a, b.txt"), where \" and \\ are a quote and a backslash. Throws Error.
TTR_MODEL_API std::vector<BlockText> parse_stack(std::string_view);
/// A block as parse_stack reads it, its settings in the order of their names.
TTR_MODEL_API std::string to_string(const BlockText&);

struct Config;
/// The stack with conv=taps in every block whose inputs see their own token alone: one without a convolution, be it of
/// its own or in its settings (conv=0 says that there is to be none), and without a token shift. Throws Error.
TTR_MODEL_API std::string with_convolution(const Config&, int taps);

struct Config {
  std::string stack = "gated-deltanet*2";
  int vocabulary = 0;                  // tokens are numbers below it; 0: tokens are rows of `input_dim` numbers
  int input_dim = 0;                   // of rows
  int output_dim = 0;                  // numbers or classes predicted per token; 0: the vocabulary
  std::string loss = "cross-entropy";  // or squared: mean squared error over the numbers of counted tokens
  int width = 64;                      // of the residual stream
  int heads = 1;                       // of every mixer; key_dim and value_dim are width / heads unless given
  int key_dim = 0, value_dim = 0;
  std::string mlp = "swiglu";  // swiglu, gelu or none
  int mlp_width = 0;           // hidden units; 0: 8/3 of the width for swiglu, 4 times for gelu, in steps of 16
  bool tied = false;           // the head is the embedding
  std::string read_out =
      "each";      // or last: every token's outputs are made from the last token's state and its own place
  int time = 256;  // longest sequence: what layers with a table of positions are made for
  double embedding_scale = 0;  // standard deviation of the embedding; 0: 1/sqrt(width)
  double norm_eps = 1e-6;
};
/// `key = value` lines, and back; parse_config throws Error for unknown keys and bad values.
TTR_MODEL_API std::string to_string(const Config&);
TTR_MODEL_API Config parse_config(std::string_view);

/// A tensor of parameters: `size` numbers from `offset` of Model::values.
struct Parameter {
  std::string name;  // "blocks.0.mixer.in"
  std::vector<std::ptrdiff_t> extent;
  std::size_t offset = 0, size = 0;
  bool matrix = false;       // a matrix [in, out]: weight decay, and what optimisers do to matrices
  bool embedding = false;    // a matrix that is a table of rows or a head
  bool trained = true;       // false: random features, which stay as they were drawn
  std::vector<int> columns;  // a matrix that is several side by side: their widths
};

/// `time` tokens of each of `batch` sequences. Labels below zero do not count.
template <class T>
struct Batch {
  int batch = 0, time = 0;
  const std::int32_t* tokens = nullptr;   // [B, T]
  const T* rows = nullptr;                // [B, T, input_dim], if there is no vocabulary
  const std::int32_t* labels = nullptr;   // [B, T]: cross-entropy
  const T* targets = nullptr;             // [B, T, output_dim]: squared
  const std::uint8_t* counted = nullptr;  // [B, T]: squared, null: all of them
};

struct Measure {
  double loss = 0;           // mean over what counts
  std::int64_t counted = 0;  // positions
  std::int64_t correct = 0;  // of them, where the largest output is the label's
};

/// Seconds that the calls of a session took, by what was done.
struct Times {
  double all = 0;  // the parts below, and what none of them is: embedding, copies
  double mixer_forward = 0, mixer_backward = 0;
  double product_forward = 0, product_input = 0, product_weight = 0;  // y = x W, dx = dy W', dW = x' dy
  double convolution = 0, norm = 0, activation = 0;                   // forwards and backwards
  double head = 0;                                                    // products and loss
};

/// Parameters and what is made of them. Sessions read the values; an optimiser changes them between calls.
template <class T>
class TTR_MODEL_API Model {
 public:
  explicit Model(const Config&, std::uint64_t seed = 0);
  ~Model();
  Model(Model&&) noexcept;
  const Config& config() const noexcept;
  std::span<const Parameter> parameters() const noexcept;
  std::span<T> values() noexcept;
  std::span<const T> values() const noexcept;
  /// The parameters and inputs of every block, as text for a person.
  std::string describe() const;
  /// What the mixers carry from token to token: numbers per sequence after `time` tokens, those of the short convolutions
  /// and token shifts included.
  std::int64_t state_numbers(int time) const;

  struct Body;
  const Body& body() const noexcept { return *body_; }

 private:
  std::unique_ptr<Body> body_;
};

/// The processes that hold the sequences of a batch in consecutive pieces, the first of them the first tokens of each: what
/// a session of one of them asks of the others (docs/scaling.md). All make the same calls in the same order; an Error is
/// thrown on all.
class Pieces {
 public:
  /// A plan over all pieces, from a fresh state.
  class Call {
   public:
    virtual ~Call() = default;
    virtual void forward(const Inputs&, const Outputs&) = 0;
    /// Of the last forward. Gradients of inputs without time are the share of this piece.
    virtual void backward(const Inputs&, const Inputs& d_outputs, const Outputs& d_inputs) = 0;
  };
  virtual ~Pieces() = default;
  virtual std::unique_ptr<Call> call(const Plan&) = 0;
  /// `theirs` becomes what the process before this one (backwards: after it) gives as `mine`; zeros if there is none.
  virtual void pass_on(const void* mine, void* theirs, std::size_t bytes, bool backwards) = 0;
  /// Numbers become their sums over all processes, in the order of pieces, or the largest of them.
  virtual void sum(std::span<double>) = 0;
  virtual void largest(std::span<double>) = 0;
};

/// Memory and plans for `batch` sequences of up to `time` tokens; the model must outlive it and keep its place.
template <class T>
class TTR_MODEL_API Session {
 public:
  Session(const Model<T>&, int batch, int time, int threads = 1);
  /// The piece of this process: up to `time` tokens of each sequence. A Measure is that of the whole sequences; gradients()
  /// are a share, whose sum over the processes is the gradient. Throws Error if a block cannot be divided.
  Session(const Model<T>&, int batch, int time, int threads, Pieces&);
  ~Session();
  Session(Session&&) noexcept;
  /// The loss alone.
  Measure forward(const Batch<T>&);
  /// The loss and its gradient.
  Measure gradient(const Batch<T>&);
  /// Of the last call of gradient, in the order of Model::values.
  std::span<T> gradients() noexcept;
  /// Of the last call: the class with the largest output at every counted position (cross-entropy), -1 elsewhere.
  std::span<const std::int32_t> predicted() const noexcept;
  /// Of the last call with a squared loss: [B, T, output_dim].
  std::span<const T> outputs() const noexcept;
  /// Of all calls so far.
  const Times& times() const noexcept;
  /// Of the last call of forward, over all blocks and heads: largest |q_t| times largest |k_i| over sqrt(K), as their layer
  /// sees them. No logit of softmax attention is larger. 0 without queries and keys.
  double logit_bound() const;

  struct Body;

 private:
  Session(const Model<T>&, int batch, int time, int threads, Pieces*);
  std::unique_ptr<Body> body_;
};

/// The model one call after another, each going on where the last one ended: a prompt in one call, then a token at a time.
/// A token costs the same however many came before, unless a layer keeps its pairs. After the constructor nothing is
/// allocated (Plan::kernel() "oracle" aside). The model must outlive it and keep its place.
template <class T>
class TTR_MODEL_API Decoder {
 public:
  /// `capacity`: tokens of a sequence over all calls, where a layer keeps its pairs; otherwise there may be more. Throws
  /// Error if a layer cannot be run token by token.
  Decoder(const Model<T>&, int batch, int capacity, int threads = 1);
  ~Decoder();
  Decoder(Decoder&&) noexcept;
  /// Tokens or rows for every sequence, as many as there are; labels are not read. The outputs after the last token,
  /// [B, outputs], until the next call: logarithms of probabilities up to a constant, or predicted numbers.
  std::span<const T> advance(const Batch<T>&);
  /// No token seen.
  void reset();
  /// Tokens of a sequence since then.
  std::int64_t tokens() const noexcept;
  /// Bytes that are carried from call to call, for all sequences.
  std::size_t state_bytes() const noexcept;
  /// Whether a layer keeps its pairs.
  bool grows() const noexcept;

  struct Body;

 private:
  std::unique_ptr<Body> body_;
};

extern template class TTR_MODEL_API Model<float>;
extern template class TTR_MODEL_API Model<double>;
extern template class TTR_MODEL_API Session<float>;
extern template class TTR_MODEL_API Session<double>;
extern template class TTR_MODEL_API Decoder<float>;
extern template class TTR_MODEL_API Decoder<double>;

}  // namespace ttr::model
