// What a published model does with its tokens, as a list of nodes: an architecture (architectures/) makes it from the
// tensors of a checkpoint, and a Network (network.h) runs it.
//
//   Value x = g.embed(embedding);
//   Value h = g.apply(Op::rms_norm_weighted, {x, norm}, 1e-6);
//   Value q = g.linear(h, w_q), k = g.linear(h, w_k), v = g.linear(h, w_v);
//   Value o = g.mix({.layer = "retnet", .shape = {.heads = H, .key_dim = K, .value_dim = V}, ..})[0];
//   x = g.add(x, g.linear(o, w_o));
//
// A value is a matrix [tokens, width]; a node's time and state are its own: token shifts, and mixers, which are plans of the
// library (ttr/plan.h). Numbers of parameters are kept in double: what is made of them, exp(A_log) say, is exact for both types.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "language/matrix.h"
#include "prepare/operations.h"
#include "ttr/plan.h"

namespace ttr::model {

using prepare::Op;

/// Columns offset .. offset + width of what a node makes.
struct Value {
  int node = -1, result = 0;
  Size offset = 0, width = 0;
  bool there() const { return node >= 0; }
};

using Numbers = std::shared_ptr<const std::vector<double>>;
inline Numbers numbers_of(std::vector<double> list) {
  return std::make_shared<const std::vector<double>>(std::move(list));
}

/// A value, or numbers that are the same for every token.
struct Operand {
  Value value;
  Numbers numbers;
  Operand() = default;
  Operand(Value v) : value(v) {}
  Operand(Numbers n) : numbers(std::move(n)) {}
  bool there() const { return value.there() || numbers; }
  Size width() const { return numbers ? static_cast<Size>(numbers->size()) : value.width; }
};

/// A plan between values. `extent` is what follows [B, T] of an input or output, or all of an input that has no time; numbers
/// whose input has one serve every token (`every_token`).
struct MixerInput {
  const char* name;
  Operand operand;
  std::vector<Size> extent;
  bool every_token = false;
  int pairs = 1;  // of a token, one after another in its row
};
struct MixerOutput {
  const char* name;
  std::vector<Size> extent;
};
struct MixerNode {
  std::string layer;  // a name with settings
  Shape shape;
  std::vector<MixerInput> inputs;
  std::vector<MixerOutput> outputs;
  std::optional<double> scale;  // on q; empty: the layer's own
};

struct Node {
  enum class Kind { embed, linear, operation, shift, lerp, tanh, turn, columns, join, mixer } kind = Kind::operation;
  std::vector<Operand> in;
  std::vector<Size> widths;  // of its results
  Matrix matrix;             // embed, linear
  Numbers bias;              // linear
  Op op{};                   // operation: on each of `groups` parts of a row
  double number = 0;         // of an operation; turn: the base
  Size groups = 1;           // linear, operation: parts of a row; turn: heads
  Size turned = 0;           // turn: numbers of a head that turn
  std::vector<Size> which;   // columns
  MixerNode mixer;
};

class Graph {
 public:
  /// Row `token` of a matrix.
  Value embed(Matrix);
  /// Of each of `groups` equal parts of a row.
  Value linear(Value x, Matrix, Numbers bias = {}, Size groups = 1);
  /// An operation of prepare/ on each of `groups` equal parts of a row. An operand is as wide as the row, or as a part, which all
  /// parts then share.
  Value apply(Op, std::vector<Operand>, double number = 0, Size groups = 1);
  Value add(Operand a, Operand b) { return apply(Op::add, {std::move(a), std::move(b)}); }
  Value multiply(Operand a, Operand b) { return apply(Op::multiply, {std::move(a), std::move(b)}); }
  /// The row of the token before, zero before the first.
  Value shift(Value);
  /// x + (y - x) m
  Value lerp(Value x, Value y, Operand m);
  Value tanh(Value);
  /// Rotary embedding of the first `turned` numbers of each of `heads` parts: pairs (i, i + turned / 2).
  Value turn(Value, Size heads, Size turned, double base);
  Value columns(Value, std::vector<Size> which);
  /// The rows of several values, one after another.
  Value join(const std::vector<Value>&);
  std::vector<Value> mix(MixerNode);
  /// Short convolution with taps [width, taps] oldest first, and silu if wanted.
  Value convolve(Value, const std::vector<double>& taps, Numbers bias, bool silu);

  static Value part(Value whole, Size offset, Size width);

  std::vector<Node> nodes;
  Value hidden;  // what the head reads
  Matrix head;   // [vocabulary, width]
  int layers = 0;
  Size stream = 0;  // width of the residual stream

 private:
  Value made(Node, Size width);
};

}  // namespace ttr::model
