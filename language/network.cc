#include "language/network.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "files/seal.h"
#include "language/mixers.h"
#include "language/schedule.h"
#include "language/team.h"
#include "language/values.h"
#include "ttr/safetensors.h"
#include "ttr/saved_state.h"

namespace ttr::model {
namespace {

// Rows of a product from which on tiles pay for bringing the weights into their order.
constexpr Size tiles_from = 12;
// Numbers below which rows are not shared between threads.
constexpr Size worth_sharing = 1 << 14;

}  // namespace

template <class T>
struct Network<T>::Body {
  Body(const Graph& g, int threads, Size piece, std::int64_t room, int rewind_wanted, Activations activations)
      : graph(g),
        rewind(rewind_wanted),
        capacity(room),
        team(threads),
        steps(schedule(g)),
        values(g, steps, piece),
        products(team, widest(g), activations),
        mixers(g, values, team, piece, room, rewind_wanted),
        tables(prepare::token_simd<T>(&ttr::simd<T>(""))),
        picked(piece * g.hidden.width) {
    memory_of.assign(graph.nodes.size(), none);
    std::size_t most = 1;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (node.kind == Node::Kind::shift || node.kind == Node::Kind::mixer) memory_of[i] = memories++;
      turning.emplace_back();
      if (node.kind == Node::Kind::turn)
        for (Size j = 0; j < node.turned / 2; ++j)
          turning[i].push_back(std::pow(node.number, -2 * static_cast<double>(j) / static_cast<double>(node.turned)));
      cosine.resize(std::max(cosine.size(), turning[i].size()));
    }
    sine.resize(cosine.size());
    for (const ScheduledStep& step : steps) most = std::max(most, step.nodes.size());
    list.reserve(most);
    for (const ScheduledStep& step : steps)
      if (step.kind == ScheduledStep::Kind::products) products.reserve(piece, listed(step));
    const Product<T> head = head_of(nullptr);
    products.reserve(piece, {&head, 1});
  }

  static Size widest(const Graph& g) {
    Size most = g.head.in;
    for (const Node& node : g.nodes) most = std::max(most, node.matrix.in);
    return most;
  }

  Size memory_bytes(std::size_t node) const {
    if (mixers.plan(node)) return static_cast<Size>(mixers.state_bytes(node));
    return (1 + rewind) * graph.nodes[node].widths[0] * static_cast<Size>(sizeof(T));
  }

  template <class F>
  void share(Size rows, Size width, F&& f) {
    const Size cuts = rows * width < worth_sharing ? 1 : std::min<Size>(rows, 4 * team.threads());
    team.run(static_cast<int>(cuts), [&](int task, int) {
      const Size begin = rows * task / cuts, end = rows * (task + 1) / cuts;
      if (end > begin) f(begin, end - begin);
    });
  }

  using Job = prepare::TokenJob<T>;
  // Operand j of a node from row `row` on: rows of `count` numbers where those of the result are `width` wide.
  typename Job::template Side<const T> side(std::size_t i, std::size_t j, Size width, Size shift, Size row) const {
    const Operand& operand = graph.nodes[i].in[j];
    if (!operand.there()) return {};
    const Size from = operand.width() == width ? shift : 0;
    if (operand.numbers) return {values.fixed(i, j) + from, 0, 1};
    return {values.at(operand.value, row) + from, values.stride(operand.value), 1};
  }

  void operation(std::size_t i, Size rows) {
    const Node& node = graph.nodes[i];
    const Size width = node.widths[0], part = width / node.groups;
    const auto forward = tables.of(prepare::formula_of(node.op)).forward;
    share(rows, width, [&](Size begin, Size count) {
      Job job;
      job.width = job.depth = part, job.number = static_cast<T>(node.number);
      if (count == 1 && node.groups > 1) {  // the parts of a row are the rows of one call
        job.rows = node.groups;
        for (std::size_t j = 0; j < node.in.size(); ++j) {
          job.x[j] = side(i, j, width, 0, begin);
          job.x[j].row = node.in[j].there() && node.in[j].width() == width ? part : 0;
        }
        job.y = {values.result(i, 0, begin), part, 1};
        forward(job);
        return;
      }
      job.rows = count;
      for (Size group = 0; group < node.groups; ++group) {
        for (std::size_t j = 0; j < node.in.size(); ++j) job.x[j] = side(i, j, width, group * part, begin);
        job.y = {values.result(i, 0, begin) + group * part, width, 1};
        forward(job);
      }
    });
  }

  std::span<const Product<T>> listed(const ScheduledStep& step) {
    list.clear();
    for (const std::size_t i : step.nodes) {
      const Node& node = graph.nodes[i];
      const Value& x = node.in[0].value;
      list.push_back({&node.matrix, values.at(x, 0), values.stride(x), values.result(i, 0, 0), node.widths[0],
                      values.bias(i), node.groups});
    }
    return list;
  }
  Product<T> head_of(T* to) const { return {&graph.head, picked.data(), graph.hidden.width, to, graph.head.out}; }
  void product(Size rows, std::span<const Product<T>> all, Mode mode) {
    if (mode == Mode::block && rows >= tiles_from) products.block(rows, all);
    else products.tokens(rows, all);
  }

  void shift(std::size_t i, std::span<const Rows> parts) {
    const Value& x = graph.nodes[i].in[0].value;
    const Size width = x.width, kept = 1 + rewind;
    for (const Rows& part : parts) {
      if (part.count == 0) continue;
      T* const before = reinterpret_cast<T*>(part.memory->parts[memory_of[i]].data());  // the newest first
      for (Size t = 0; t < part.count; ++t)
        std::copy_n(t == 0 ? before : values.at(x, part.begin + t - 1), width, values.result(i, 0, part.begin + t));
      if (part.count < kept) std::copy_backward(before, before + (kept - part.count) * width, before + kept * width);
      for (Size j = 0; j < std::min(kept, part.count); ++j)
        std::copy_n(values.at(x, part.begin + part.count - 1 - j), width, before + j * width);
    }
  }

  void lerp(std::size_t i, Size rows) {
    const Node& node = graph.nodes[i];
    const Value &x = node.in[0].value, &y = node.in[1].value;
    const Size width = x.width;
    share(rows, width, [&](Size begin, Size count) {
      for (Size r = begin; r < begin + count; ++r) {
        const T *from = values.at(x, r), *other = values.at(y, r), *m = side(i, 2, width, 0, r).data;
        T* const to = values.result(i, 0, r);
        for (Size j = 0; j < width; ++j) to[j] = from[j] + (other[j] - from[j]) * m[j];
      }
    });
  }

  // 2 s(2x) - 1
  void tanh(std::size_t i, Size rows) {
    const Value& x = graph.nodes[i].in[0].value;
    share(rows, x.width, [&](Size begin, Size count) {
      for (Size r = begin; r < begin + count; ++r) {
        const T* const from = values.at(x, r);
        T* const to = values.result(i, 0, r);
        for (Size j = 0; j < x.width; ++j) to[j] = 2 * from[j];
        Job job;
        job.rows = 1, job.width = x.width;
        job.x[0] = {to, x.width, 1}, job.y = {to, x.width, 1};
        tables.of(Op::sigmoid).forward(job);
        for (Size j = 0; j < x.width; ++j) to[j] = 2 * to[j] - 1;
      }
    });
  }

  void turn(std::size_t i, std::span<const Rows> parts) {
    const Node& node = graph.nodes[i];
    const Value& x = node.in[0].value;
    const Size half = node.turned / 2, head = x.width / node.groups;
    for (const Rows& part : parts)
      for (Size t = 0; t < part.count; ++t) {
        tables.elements.turns(half, static_cast<double>(part.memory->tokens + t), turning[i].data(), cosine.data(),
                              sine.data());
        const T* from = values.at(x, part.begin + t);
        T* to = values.result(i, 0, part.begin + t);
        for (Size h = 0; h < node.groups; ++h, from += head, to += head) {
          for (Size j = 0; j < half; ++j) {
            const T c = cosine[static_cast<std::size_t>(j)], s = sine[static_cast<std::size_t>(j)];
            to[j] = from[j] * c - from[j + half] * s;
            to[j + half] = from[j + half] * c + from[j] * s;
          }
          std::copy(from + node.turned, from + head, to + node.turned);
        }
      }
  }

  void columns(std::size_t i, Size rows) {
    const Node& node = graph.nodes[i];
    for (Size r = 0; r < rows; ++r) {
      const T* const from = values.at(node.in[0].value, r);
      T* to = values.result(i, 0, r);
      for (const Size one : node.which) *to++ = from[one];
    }
  }

  void join(std::size_t i, Size rows) {
    for (Size r = 0; r < rows; ++r) {
      T* to = values.result(i, 0, r);
      for (const Operand& part : graph.nodes[i].in) to = std::copy_n(values.at(part.value, r), part.value.width, to);
    }
  }

  void embed(std::size_t i, std::span<const std::int32_t> tokens) {
    const Matrix& matrix = graph.nodes[i].matrix;
    for (std::size_t r = 0; r < tokens.size(); ++r)
      products.row(matrix, tokens[r], values.result(i, 0, static_cast<Size>(r)));
  }

  void node(std::size_t i, Size rows, std::span<const std::int32_t> tokens, std::span<const Rows> parts) {
    switch (graph.nodes[i].kind) {
      case Node::Kind::embed:
        return embed(i, tokens);
      case Node::Kind::operation:
        return operation(i, rows);
      case Node::Kind::shift:
        return shift(i, parts);
      case Node::Kind::lerp:
        return lerp(i, rows);
      case Node::Kind::tanh:
        return tanh(i, rows);
      case Node::Kind::turn:
        return turn(i, parts);
      case Node::Kind::columns:
        return columns(i, rows);
      case Node::Kind::join:
        return join(i, rows);
      case Node::Kind::mixer:
      case Node::Kind::linear:
        break;  // steps of their own
    }
  }

  void run(std::span<const std::int32_t> tokens, std::span<const Rows> parts, Mode mode) {
    const Team::Awake awake(team);
    const Size rows = static_cast<Size>(tokens.size());
    for (const ScheduledStep& step : steps)
      if (step.kind == ScheduledStep::Kind::products) product(rows, listed(step), mode);
      else if (step.kind == ScheduledStep::Kind::mixers)
        mixers.run(step.nodes, memory_of, parts, mode == Mode::tokens);
      else node(step.nodes[0], rows, tokens, parts);
  }

  static constexpr std::size_t none = ~std::size_t{0};
  const Graph& graph;
  Size rewind;
  std::int64_t capacity;
  Team team;
  std::vector<ScheduledStep> steps;
  Values<T> values;
  MatrixProducts<T> products;
  Mixers<T> mixers;
  prepare::TokenSimd<T> tables;
  std::vector<std::size_t> memory_of;  // of a node, or none
  std::size_t memories = 0;
  std::vector<std::vector<double>> turning;  // frequencies of a node that turns
  std::vector<T> cosine, sine;
  std::vector<Product<T>> list;
  Buffer<T> picked;  // rows that the head reads
};

template <class T>
Network<T>::Network(const Graph& graph, int threads, Size piece, std::int64_t capacity, int rewind,
                    Activations activations)
    : graph_(graph),
      piece_(piece),
      body_(std::make_unique<Body>(graph, threads, piece, capacity, rewind, activations)) {}
template <class T>
Network<T>::~Network() = default;

template <class T>
void Network<T>::reset(Memory& memory) const {
  const Body& b = *body_;
  memory.parts.resize(b.memories);
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (b.memory_of[i] == Body::none) continue;
    Buffer<std::byte>& part = memory.parts[b.memory_of[i]];
    if (part.size() == 0) part = Buffer<std::byte>(b.memory_bytes(i));
    if (const Plan* const plan = b.mixers.plan(i)) plan->reset({part.data(), static_cast<std::size_t>(part.size())});
    else std::fill_n(part.data(), part.size(), std::byte{0});
  }
  memory.tokens = memory.rewindable = 0;
}

template <class T>
void Network<T>::copy(const Memory& from, Memory& to) const {
  reset(to);
  for (std::size_t i = 0; i < from.parts.size(); ++i)
    std::copy_n(from.parts[i].data(), from.parts[i].size(), to.parts[i].data());
  to.tokens = from.tokens, to.rewindable = from.rewindable;
}

template <class T>
bool Network<T>::rewind(Memory& memory, std::int64_t tokens) const {
  const Body& b = *body_;
  if (tokens < 0 || tokens > memory.rewindable) return false;
  if (tokens == 0) return true;
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (b.memory_of[i] == Body::none) continue;
    Buffer<std::byte>& part = memory.parts[b.memory_of[i]];
    if (const Plan* const plan = b.mixers.plan(i)) {
      const Status status = plan->rewind({part.data(), static_cast<std::size_t>(part.size())}, tokens);
      if (status != Status::ok) throw Error("a state cannot go back: " + std::string(to_string(status)), "model");
    } else {
      const Size width = graph_.nodes[i].widths[0], kept = 1 + b.rewind;
      T* const rows = reinterpret_cast<T*>(part.data());
      std::copy(rows + tokens * width, rows + kept * width, rows);
    }
  }
  memory.tokens -= tokens, memory.rewindable -= tokens;
  return true;
}

template <class T>
std::size_t Network<T>::memory_bytes() const {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i)
    if (body_->memory_of[i] != Body::none) sum += static_cast<std::size_t>(body_->memory_bytes(i));
  return sum;
}
template <class T>
std::size_t Network<T>::workspace_bytes() const {
  const Body& b = *body_;
  // Weights that are not used as they lie in the file: vectors, and matrices that are a sum or a transpose.
  std::set<const void*> seen;
  std::size_t copies = 0;
  const auto count = [&](const auto& numbers) {
    if (numbers && seen.insert(numbers.get()).second) copies += numbers->size() * sizeof((*numbers)[0]);
  };
  for (const Node& node : graph_.nodes) {
    count(node.matrix.numbers), count(node.bias);
    for (const Operand& operand : node.in) count(operand.numbers);
  }
  count(graph_.head.numbers);
  return b.mixers.workspace_bytes() + b.values.bytes() + b.products.bytes() + copies +
         static_cast<std::size_t>(b.picked.size()) * sizeof(T);
}

template <class T>
std::vector<std::byte> Network<T>::save(const Memory& memory, const TextEnd<T>& end) const {
  const Body& b = *body_;
  TensorFile file;
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (b.memory_of[i] == Body::none) continue;
    const Buffer<std::byte>& part = memory.parts[b.memory_of[i]];
    StoredTensor tensor;
    tensor.name = "part." + std::to_string(b.memory_of[i]);
    if (const Plan* const plan = b.mixers.plan(i)) {
      tensor.bytes = save_state(*plan, {part.data(), static_cast<std::size_t>(part.size())});
      tensor.dtype = "U8", tensor.shape = {static_cast<std::int64_t>(tensor.bytes.size())};
    } else {
      const Size width = graph_.nodes[i].widths[0];
      tensor.bytes.assign(part.data(), part.data() + width * static_cast<Size>(sizeof(T)));
      tensor.dtype = sizeof(T) == 4 ? "F32" : "F64", tensor.shape = {width};
    }
    file.tensors.push_back(std::move(tensor));
  }
  const auto list = [&](const char* name, const char* dtype, const auto& from) {
    if (from.empty()) return;
    const auto bytes = std::as_bytes(std::span(from));
    file.tensors.push_back({name, dtype, {static_cast<std::int64_t>(from.size())}, {bytes.begin(), bytes.end()}});
  };
  list("logits", sizeof(T) == 4 ? "F32" : "F64", end.logits);
  list("newest", "I32", end.newest);
  file.metadata = {{"format", "ttr language state"}, {"layout", "1"}, {"tokens", std::to_string(memory.tokens)}};
  return sealed(std::move(file));
}

template <class T>
TextEnd<T> Network<T>::load(std::span<const std::byte> bytes, const std::string& name, Memory& memory) const {
  const Body& b = *body_;
  const TensorFile file = from_bytes(bytes, name);
  const auto note = [&](const char* key) {
    const auto found = file.metadata.find(key);
    return found == file.metadata.end() ? std::string() : found->second;
  };
  const auto refuse = [&](const std::string& why) { return Error("'" + name + "' " + why, name); };
  if (note("format") != "ttr language state") throw refuse("is not a saved state of a language model");
  if (note("layout") != "1") throw refuse("has the layout " + note("layout") + ", which this version does not know");
  Memory fresh;
  reset(fresh);
  if (!is_sealed(bytes)) throw refuse("is damaged: its bytes do not have its checksum");
  TextEnd<T> end;
  const auto list = [&](const char* tensor_name, auto& to) -> std::size_t {
    const StoredTensor* const tensor = file.find(tensor_name);
    if (!tensor) return 0;
    if (tensor->shape.size() != 1 ||
        tensor->bytes.size() != static_cast<std::size_t>(tensor->shape[0]) * sizeof(to[0]))
      throw refuse("is the state of a model of another type");
    to.resize(static_cast<std::size_t>(tensor->shape[0]));
    std::memcpy(to.data(), tensor->bytes.data(), tensor->bytes.size());
    return 1;
  };
  const std::size_t parts = file.tensors.size() - list("logits", end.logits) - list("newest", end.newest);
  if (parts != b.memories)
    throw refuse("has " + std::to_string(parts) + " parts and the model has " + std::to_string(b.memories) +
                 "; it is the state of another model");
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (b.memory_of[i] == Body::none) continue;
    const StoredTensor* const tensor = file.find("part." + std::to_string(b.memory_of[i]));
    if (!tensor) throw refuse("has no part " + std::to_string(b.memory_of[i]) + "; it is the state of another model");
    Buffer<std::byte>& part = fresh.parts[b.memory_of[i]];
    if (const Plan* const plan = b.mixers.plan(i)) {
      load_state(tensor->bytes, *plan, {part.data(), static_cast<std::size_t>(part.size())});
    } else {
      if (tensor->bytes.size() != static_cast<std::size_t>(graph_.nodes[i].widths[0]) * sizeof(T))
        throw refuse("is the state of a model of another width or type");
      std::copy(tensor->bytes.begin(), tensor->bytes.end(), part.data());
    }
  }
  if (!end.logits.empty() && end.logits.size() != static_cast<std::size_t>(graph_.head.out))
    throw refuse("has " + std::to_string(end.logits.size()) + " logits and the model " +
                 std::to_string(graph_.head.out) + "; it is the state of another model");
  for (const std::int32_t token : end.newest)
    if (token < 0 || token >= graph_.head.out)
      throw refuse("has the token " + std::to_string(token) + "; it is the state of another model");
  fresh.tokens = std::strtoll(note("tokens").c_str(), nullptr, 10);
  memory = std::move(fresh);
  return end;
}

template <class T>
void Network<T>::run(std::span<const std::int32_t> tokens, std::span<const Rows> parts, Mode mode) {
  Body& b = *body_;
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= graph_.nodes[0].matrix.out)
      throw Error("the token " + std::to_string(token) + " is not one of the " +
                      std::to_string(graph_.nodes[0].matrix.out) + " of the model",
                  "tokens");
  for (const Rows& part : parts)
    if (b.mixers.grows() && part.memory->tokens + part.count > b.capacity)
      throw Error("the sequence has " + std::to_string(part.memory->tokens + part.count) +
                      " tokens and the model was loaded with a context of " + std::to_string(b.capacity) +
                      "; one of its layers keeps them all: load it with a larger context",
                  "context");
  b.run(tokens, parts, mode);
  for (const Rows& part : parts) {
    part.memory->tokens += part.count;
    part.memory->rewindable = std::min<std::int64_t>(b.rewind, part.memory->rewindable + part.count);
  }
}

template <class T>
void Network<T>::logits(std::span<const Size> rows, Mode mode, T* to) {
  Body& b = *body_;
  const Size width = graph_.hidden.width, classes = graph_.head.out;
  for (std::size_t begin = 0; begin < rows.size(); begin += static_cast<std::size_t>(piece_)) {
    const Size count = std::min<Size>(piece_, static_cast<Size>(rows.size() - begin));
    for (Size i = 0; i < count; ++i)
      std::copy_n(b.values.at(graph_.hidden, rows[begin + static_cast<std::size_t>(i)]), width,
                  b.picked.data() + i * width);
    const Product<T> head = b.head_of(to + static_cast<Size>(begin) * classes);
    b.product(count, {&head, 1}, mode);
  }
}

template class Network<float>;
template class Network<double>;

}  // namespace ttr::model
