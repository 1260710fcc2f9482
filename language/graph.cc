#include "language/graph.h"

#include <utility>

#include "ttr/status.h"

namespace ttr::model {
namespace {
// Only a checkpoint whose tensors do not fit together comes here: architectures check what they read.
void fits(bool condition, const char* what, Size got, Size wanted) {
  if (!condition)
    throw Error(std::string("the tensors of this model do not fit together: ") + what + " has " +
                    std::to_string(got) + " columns where " + std::to_string(wanted) + " are due",
                what);
}
}  // namespace

Value Graph::made(Node node, Size width) {
  node.widths.insert(node.widths.begin(), width);
  nodes.push_back(std::move(node));
  return {static_cast<int>(nodes.size()) - 1, 0, 0, width};
}

Value Graph::embed(Matrix matrix) {
  Node node;
  node.kind = Node::Kind::embed;
  const Size width = matrix.in;
  node.matrix = std::move(matrix);
  return made(std::move(node), width);
}

Value Graph::linear(Value x, Matrix matrix, Numbers bias, Size groups) {
  fits(x.width == groups * matrix.in, "the input of a product", x.width, groups * matrix.in);
  if (bias)
    fits(static_cast<Size>(bias->size()) == matrix.out, "a bias", static_cast<Size>(bias->size()), matrix.out);
  Node node;
  node.kind = Node::Kind::linear;
  node.in = {x}, node.groups = groups;
  const Size width = groups * matrix.out;
  node.matrix = std::move(matrix), node.bias = std::move(bias);
  return made(std::move(node), width);
}

Value Graph::apply(Op op, std::vector<Operand> operands, double number, Size groups) {
  const Size width = operands[0].width();
  fits(groups > 0 && width % groups == 0, "a row of heads", width, groups);
  for (std::size_t i = 1; i < operands.size(); ++i)
    if (operands[i].there()) {
      const Size w = operands[i].width();
      fits(w == width || w * groups == width, "an operand", w, width);
    }
  Node node;
  node.in = std::move(operands), node.op = op, node.number = number, node.groups = groups;
  return made(std::move(node), width);
}

Value Graph::shift(Value x) {
  Node node;
  node.kind = Node::Kind::shift, node.in = {x};
  return made(std::move(node), x.width);
}
Value Graph::lerp(Value x, Value y, Operand m) {
  fits(x.width == y.width && m.width() == x.width, "a mix of two tokens", m.width(), x.width);
  Node node;
  node.kind = Node::Kind::lerp, node.in = {x, y, std::move(m)};
  return made(std::move(node), x.width);
}
Value Graph::tanh(Value x) {
  Node node;
  node.kind = Node::Kind::tanh, node.in = {x};
  return made(std::move(node), x.width);
}
Value Graph::turn(Value x, Size heads, Size turned, double base) {
  fits(heads > 0 && x.width % heads == 0 && turned % 2 == 0 && turned <= x.width / heads, "a row of heads", x.width,
       heads * turned);
  Node node;
  node.kind = Node::Kind::turn, node.in = {x}, node.groups = heads, node.turned = turned, node.number = base;
  return made(std::move(node), x.width);
}
Value Graph::columns(Value x, std::vector<Size> which) {
  for (const Size one : which) fits(one >= 0 && one < x.width, "a choice of columns", one, x.width);
  Node node;
  node.kind = Node::Kind::columns, node.in = {x};
  const Size width = static_cast<Size>(which.size());
  node.which = std::move(which);
  return made(std::move(node), width);
}

Value Graph::join(const std::vector<Value>& parts) {
  if (parts.size() == 1) return parts[0];
  Node node;
  node.kind = Node::Kind::join;
  Size width = 0;
  for (const Value& part : parts) node.in.push_back(part), width += part.width;
  return made(std::move(node), width);
}

std::vector<Value> Graph::mix(MixerNode mixer) {
  Node node;
  node.kind = Node::Kind::mixer;
  for (const MixerInput& input : mixer.inputs) {
    Size numbers = input.pairs;
    for (const Size extent : input.extent) numbers *= extent;
    fits(numbers == input.operand.width(), input.name, input.operand.width(), numbers);
    node.in.push_back(input.operand);
  }
  for (const MixerOutput& output : mixer.outputs) {
    Size width = 1;
    for (const Size extent : output.extent) width *= extent;
    node.widths.push_back(width);
  }
  node.mixer = std::move(mixer);
  std::vector<Value> results;
  for (std::size_t i = 0; i < node.widths.size(); ++i)
    results.push_back({static_cast<int>(nodes.size()), static_cast<int>(i), 0, node.widths[i]});
  nodes.push_back(std::move(node));
  return results;
}

Value Graph::convolve(Value x, const std::vector<double>& taps, Numbers bias, bool silu) {
  const Size count = x.width > 0 ? static_cast<Size>(taps.size()) / x.width : 0;
  fits(count > 0 && count * x.width == static_cast<Size>(taps.size()), "a convolution",
       static_cast<Size>(taps.size()), x.width);
  MixerNode node;
  node.layer = "short-convolution:width=" + std::to_string(count) + ",activation=" + (silu ? "silu" : "none") +
               ",bias=" + (bias ? "input" : "none");
  node.shape = {.heads = 1, .key_dim = 1, .value_dim = static_cast<int>(x.width)};
  node.inputs = {{"x", x, {1, x.width}}, {"w", numbers_of(taps), {1, x.width, count}}};
  if (bias) node.inputs.push_back({"b", bias, {1, x.width}});
  node.outputs = {{"y", {1, x.width}}};
  return mix(std::move(node))[0];
}

Value Graph::part(Value whole, Size offset, Size width) {
  fits(offset >= 0 && width > 0 && offset + width <= whole.width, "a part of a row", whole.width, offset + width);
  whole.offset += offset, whole.width = width;
  return whole;
}

}  // namespace ttr::model
