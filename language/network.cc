#include "language/network.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "files/seal.h"
#include "threads/pool.h"
#include "ttr/safetensors.h"
#include "ttr/saved_state.h"

namespace ttr::model {
namespace {

using Bytes = std::vector<std::byte>;

// Rows of a product from which on tiles pay for bringing the weights into their order.
constexpr Size tiles_from = 12;
// Numbers below which rows are not shared between threads.
constexpr Size worth_sharing = 1 << 14;

template <class T>
ConstTensor tensor(const T* data, const std::vector<Size>& extent, const std::vector<Size>& stride) {
  ConstTensor t;
  t.data = data, t.type = type_of<T>, t.rank = static_cast<int>(extent.size());
  for (std::size_t d = 0; d < extent.size(); ++d) t.extent[d] = extent[d], t.stride[d] = stride[d];
  return t;
}
template <class T>
Tensor tensor(T* data, const std::vector<Size>& extent, const std::vector<Size>& stride) {
  Tensor t;
  t.data = data, t.type = type_of<T>, t.rank = static_cast<int>(extent.size());
  for (std::size_t d = 0; d < extent.size(); ++d) t.extent[d] = extent[d], t.stride[d] = stride[d];
  return t;
}

}  // namespace

template <class T>
struct Network<T>::Body {
  Body(const Graph& g, int threads_wanted, Size piece, std::int64_t room, int rewind_wanted)
      : graph(g),
        threads(threads_wanted),
        rewind(rewind_wanted),
        capacity(room),
        products(threads_wanted, widest(g)),
        tables(prepare::token_simd<T>(&ttr::simd<T>(""))) {
    place_values(piece);
    make_plans(piece);
    for (const Node& node : g.nodes)
      for (const Operand& operand : node.in)
        if (operand.numbers) keep(operand.numbers);
    for (const Node& node : g.nodes)
      if (node.bias) keep(node.bias);
  }

  static Size widest(const Graph& g) {
    Size most = g.head.in;
    for (const Node& node : g.nodes) most = std::max(most, node.matrix.in);
    return most;
  }
  void keep(const Numbers& numbers) {
    std::vector<T>& to = parameters[numbers.get()];
    if (to.empty()) to.assign(numbers->begin(), numbers->end());
  }

  // A buffer serves the values whose lives do not overlap.
  void place_values(Size piece) {
    const std::size_t count = graph.nodes.size();
    std::vector<std::size_t> last(count, 0);
    for (std::size_t i = 0; i < count; ++i) {
      last[i] = std::max(last[i], i);
      for (const Operand& operand : graph.nodes[i].in)
        if (operand.value.there()) last[static_cast<std::size_t>(operand.value.node)] = i;
    }
    last[static_cast<std::size_t>(graph.hidden.node)] = count;
    places.resize(count);
    std::multimap<Size, T*> free;
    std::vector<std::vector<std::pair<Size, T*>>> ends(count + 1);
    for (std::size_t i = 0; i < count; ++i) {
      for (const Size width : graph.nodes[i].widths) {
        const auto found = free.lower_bound(width);
        T* place = nullptr;
        Size size = width;
        if (found != free.end() && found->first <= 2 * width) {
          size = found->first, place = found->second;
          free.erase(found);
        } else {
          buffers.emplace_back(piece * width);
          place = buffers.back().data();
        }
        places[i].push_back(place);
        ends[last[i]].emplace_back(size, place);
      }
      // A node reads its operands while it writes: what ends here is free for the next one.
      for (const auto& end : ends[i]) free.insert(end);
    }
  }

  void make_plans(Size piece) {
    std::map<std::string, std::size_t> known;
    plan_of.assign(graph.nodes.size(), none), memory_of.assign(graph.nodes.size(), none);
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (node.kind == Node::Kind::shift) memory_of[i] = memories++;
      if (node.kind != Node::Kind::mixer) continue;
      const MixerNode& m = node.mixer;
      const std::string key = m.layer + " " + std::to_string(m.shape.heads) + " " +
                              std::to_string(m.shape.key_heads) + " " + std::to_string(m.shape.key_dim) + " " +
                              std::to_string(m.shape.value_dim) + " " + (m.scale ? std::to_string(*m.scale) : "");
      const auto found = known.find(key);
      if (found == known.end()) {
        Options options;
        options.type = type_of<T>, options.threads = threads, options.rewind = rewind, options.scale = m.scale;
        plans.push_back(plan(m.layer, m.shape, options));
        const Plan& made = plans.back();
        for (const Form form : {Form::best, Form::recurrent})
          if (form == Form::best || has(made, form)) {
            workspace = std::max(workspace, made.footprint(piece, form).workspace);
            if (keeps_pairs(made)) workspace = std::max(workspace, made.footprint(capacity, form).workspace);
          }
        known[key] = plans.size() - 1;
        grows = grows || keeps_pairs(made);
      }
      plan_of[i] = found == known.end() ? plans.size() - 1 : found->second;
      memory_of[i] = memories++;
    }
    work = Buffer<std::byte>(static_cast<Size>(workspace));
  }
  static bool keeps_pairs(const Plan& p) { return p.footprint(2).state > p.footprint(1).state; }
  static bool has(const Plan& p, Form form) {
    return std::find(p.forms().begin(), p.forms().end(), form) != p.forms().end();
  }

  Size memory_bytes(std::size_t node) const {
    if (plan_of[node] != none) return static_cast<Size>(plans[plan_of[node]].footprint(capacity).state);
    return (1 + rewind) * graph.nodes[node].widths[0] * static_cast<Size>(sizeof(T));
  }

  T* at(const Value& v, Size row) const {
    const std::size_t node = static_cast<std::size_t>(v.node), result = static_cast<std::size_t>(v.result);
    return places[node][result] + row * stride(v) + v.offset;
  }
  Size stride(const Value& v) const {
    return graph.nodes[static_cast<std::size_t>(v.node)].widths[static_cast<std::size_t>(v.result)];
  }
  T* result(std::size_t node, std::size_t which, Size row) const {
    return places[node][which] + row * graph.nodes[node].widths[which];
  }

  template <class F>
  void share(Size rows, Size width, F&& f) {
    const Size cuts = rows * width < worth_sharing ? 1 : std::min<Size>(rows, 4 * threads);
    threads::for_each(threads, static_cast<int>(cuts), [&](int task, int) {
      const Size begin = rows * task / cuts, end = rows * (task + 1) / cuts;
      if (end > begin) f(begin, end - begin);
    });
  }

  using Job = prepare::TokenJob<T>;
  typename Job::template Side<const T> side(const Operand& operand, Size width, Size part, Size group,
                                            Size row) const {
    if (!operand.there()) return {};
    const Size shift = operand.width() == width ? group * part : 0;
    if (operand.numbers) return {parameters.at(operand.numbers.get()).data() + shift, 0, 1};
    return {at(operand.value, row) + shift, stride(operand.value), 1};
  }

  void operation(std::size_t i, Size rows) {
    const Node& node = graph.nodes[i];
    const Size width = node.widths[0], part = width / node.groups;
    const auto forward = tables.of(prepare::formula_of(node.op)).forward;
    share(rows, width, [&](Size begin, Size count) {
      Job job;
      job.rows = count, job.width = job.depth = part, job.number = static_cast<T>(node.number);
      for (Size group = 0; group < node.groups; ++group) {
        for (std::size_t j = 0; j < node.in.size(); ++j) job.x[j] = side(node.in[j], width, part, group, begin);
        job.y = {result(i, 0, begin) + group * part, width, 1};
        forward(job);
      }
    });
  }

  void linear(std::size_t i, Size rows, Mode mode) {
    const Node& node = graph.nodes[i];
    const Value& x = node.in[0].value;
    for (Size g = 0; g < node.groups; ++g)
      product(node.matrix, rows, at(x, 0) + g * node.matrix.in, stride(x), result(i, 0, 0) + g * node.matrix.out,
              node.widths[0], mode);
    if (!node.bias) return;
    const T* const bias = parameters.at(node.bias.get()).data();
    share(rows, node.widths[0], [&](Size begin, Size count) {
      for (Size r = begin; r < begin + count; ++r) {
        T* const y = result(i, 0, r);
        for (Size g = 0; g < node.groups; ++g)
          for (Size j = 0; j < node.matrix.out; ++j) y[g * node.matrix.out + j] += bias[j];
      }
    });
  }
  void product(const Matrix& matrix, Size rows, const T* x, Size ldx, T* y, Size ldy, Mode mode) {
    if (mode == Mode::block && rows >= tiles_from) products.block(matrix, rows, x, ldx, y, ldy);
    else products.tokens(matrix, rows, x, ldx, y, ldy);
  }

  void shift(std::size_t i, std::span<const Rows> parts) {
    const Value& x = graph.nodes[i].in[0].value;
    const Size width = x.width, kept = 1 + rewind;
    for (const Rows& part : parts) {
      if (part.count == 0) continue;
      T* const before = reinterpret_cast<T*>(part.memory->parts[memory_of[i]].data());  // the newest first
      for (Size t = 0; t < part.count; ++t)
        std::copy_n(t == 0 ? before : at(x, part.begin + t - 1), width, result(i, 0, part.begin + t));
      if (part.count < kept) std::copy_backward(before, before + (kept - part.count) * width, before + kept * width);
      for (Size j = 0; j < std::min(kept, part.count); ++j)
        std::copy_n(at(x, part.begin + part.count - 1 - j), width, before + j * width);
    }
  }

  void lerp(std::size_t i, Size rows) {
    const Node& node = graph.nodes[i];
    const Value &x = node.in[0].value, &y = node.in[1].value;
    const Size width = x.width;
    share(rows, width, [&](Size begin, Size count) {
      for (Size r = begin; r < begin + count; ++r) {
        const T *from = at(x, r), *other = at(y, r), *m = side(node.in[2], width, width, 0, r).data;
        T* const to = result(i, 0, r);
        for (Size j = 0; j < width; ++j) to[j] = from[j] + (other[j] - from[j]) * m[j];
      }
    });
  }

  // 2 s(2x) - 1
  void tanh(std::size_t i, Size rows) {
    const Value& x = graph.nodes[i].in[0].value;
    share(rows, x.width, [&](Size begin, Size count) {
      for (Size r = begin; r < begin + count; ++r) {
        const T* const from = at(x, r);
        T* const to = result(i, 0, r);
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
    std::vector<double> frequency(static_cast<std::size_t>(half));
    for (Size j = 0; j < half; ++j)
      frequency[static_cast<std::size_t>(j)] =
          std::pow(node.number, -2 * static_cast<double>(j) / static_cast<double>(node.turned));
    std::vector<T> cosine(frequency.size()), sine(frequency.size());
    for (const Rows& part : parts)
      for (Size t = 0; t < part.count; ++t) {
        tables.elements.turns(half, static_cast<double>(part.memory->tokens + t), frequency.data(), cosine.data(),
                              sine.data());
        const T* from = at(x, part.begin + t);
        T* to = result(i, 0, part.begin + t);
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
      const T* const from = at(node.in[0].value, r);
      T* to = result(i, 0, r);
      for (const Size one : node.which) *to++ = from[one];
    }
  }

  void mixer(std::size_t i, std::span<const Rows> parts, Mode mode) {
    const Node& node = graph.nodes[i];
    const Plan& p = plans[plan_of[i]];
    const Form form = mode == Mode::tokens && has(p, Form::recurrent) ? Form::recurrent : Form::best;
    for (const Rows& part : parts) {
      if (part.count == 0) continue;
      Inputs in;
      Outputs out;
      for (const MixerInput& input : node.mixer.inputs) {
        const bool timed = input.operand.value.there() || input.every_token;
        std::vector<Size> extent = input.extent, stride(input.extent.size(), 1);
        for (std::size_t d = extent.size(); d-- > 1;) stride[d - 1] = stride[d] * extent[d];
        const Size own = extent.empty() ? 1 : stride[0] * extent[0];
        if (timed) {
          const Size of_time = input.every_token ? 0 : input.pairs > 1 ? own : this->stride(input.operand.value);
          extent.insert(extent.begin(), {1, part.count * input.pairs}), stride.insert(stride.begin(), {0, of_time});
        }
        const T* const data = input.operand.numbers ? parameters.at(input.operand.numbers.get()).data()
                                                    : at(input.operand.value, part.begin);
        in[input.name] = tensor(data, extent, stride);
      }
      for (std::size_t j = 0; j < node.mixer.outputs.size(); ++j) {
        std::vector<Size> extent = node.mixer.outputs[j].extent, stride(extent.size(), 1);
        for (std::size_t d = extent.size(); d-- > 1;) stride[d - 1] = stride[d] * extent[d];
        extent.insert(extent.begin(), {1, part.count}), stride.insert(stride.begin(), {0, node.widths[j]});
        out[node.mixer.outputs[j].name] = tensor(result(i, j, part.begin), extent, stride);
      }
      Buffer<std::byte>& kept = part.memory->parts[memory_of[i]];
      const State state{kept.data(), static_cast<std::size_t>(kept.size())};
      const Workspace room{work.data(), workspace};
      if (p.forward(in, state, out, room, form) != Status::ok)
        throw Error("the layer " + node.mixer.layer + " of the model: " + p.diagnose(in, state, out, room, form),
                    "model");
    }
  }

  void embed(std::size_t i, std::span<const std::int32_t> tokens) {
    const Matrix& matrix = graph.nodes[i].matrix;
    for (std::size_t r = 0; r < tokens.size(); ++r)
      products.row(matrix, tokens[r], result(i, 0, static_cast<Size>(r)));
  }

  void run(std::span<const std::int32_t> tokens, std::span<const Rows> parts, Mode mode) {
    const Size rows = static_cast<Size>(tokens.size());
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) switch (graph.nodes[i].kind) {
        case Node::Kind::embed:
          embed(i, tokens);
          break;
        case Node::Kind::linear:
          linear(i, rows, mode);
          break;
        case Node::Kind::operation:
          operation(i, rows);
          break;
        case Node::Kind::shift:
          shift(i, parts);
          break;
        case Node::Kind::lerp:
          lerp(i, rows);
          break;
        case Node::Kind::tanh:
          tanh(i, rows);
          break;
        case Node::Kind::turn:
          turn(i, parts);
          break;
        case Node::Kind::columns:
          columns(i, rows);
          break;
        case Node::Kind::mixer:
          mixer(i, parts, mode);
          break;
      }
  }

  static constexpr std::size_t none = ~std::size_t{0};
  const Graph& graph;
  int threads;
  Size rewind;
  std::int64_t capacity;
  MatrixProducts<T> products;
  prepare::TokenSimd<T> tables;
  std::vector<Buffer<T>> buffers;
  std::vector<std::vector<T*>> places;  // of every result of every node
  std::map<const std::vector<double>*, std::vector<T>> parameters;
  std::vector<Plan> plans;
  std::vector<std::size_t> plan_of, memory_of;  // of a node, or none
  std::size_t memories = 0, workspace = 0;
  bool grows = false;
  Buffer<std::byte> work;
  Buffer<T> picked;  // rows that the head reads
};

template <class T>
Network<T>::Network(const Graph& graph, int threads, Size piece, std::int64_t capacity, int rewind)
    : graph_(graph), piece_(piece), body_(std::make_unique<Body>(graph, threads, piece, capacity, rewind)) {
  body_->picked = Buffer<T>(piece * graph.hidden.width);
}
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
    if (b.plan_of[i] != Body::none) b.plans[b.plan_of[i]].reset({part.data(), static_cast<std::size_t>(part.size())});
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
    if (b.plan_of[i] != Body::none) {
      const Status status =
          b.plans[b.plan_of[i]].rewind({part.data(), static_cast<std::size_t>(part.size())}, tokens);
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
  std::size_t sum = body_->workspace + static_cast<std::size_t>(body_->picked.size()) * sizeof(T);
  for (const auto& buffer : body_->buffers) sum += static_cast<std::size_t>(buffer.size()) * sizeof(T);
  return sum;
}

template <class T>
std::vector<std::byte> Network<T>::save(const Memory& memory) const {
  const Body& b = *body_;
  TensorFile file;
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (b.memory_of[i] == Body::none) continue;
    const Buffer<std::byte>& part = memory.parts[b.memory_of[i]];
    StoredTensor tensor;
    tensor.name = "part." + std::to_string(b.memory_of[i]);
    if (b.plan_of[i] != Body::none) {
      tensor.bytes = save_state(b.plans[b.plan_of[i]], {part.data(), static_cast<std::size_t>(part.size())});
      tensor.dtype = "U8", tensor.shape = {static_cast<std::int64_t>(tensor.bytes.size())};
    } else {
      const Size width = graph_.nodes[i].widths[0];
      tensor.bytes.assign(part.data(), part.data() + width * static_cast<Size>(sizeof(T)));
      tensor.dtype = sizeof(T) == 4 ? "F32" : "F64", tensor.shape = {width};
    }
    file.tensors.push_back(std::move(tensor));
  }
  file.metadata = {{"format", "ttr language state"}, {"layout", "1"}, {"tokens", std::to_string(memory.tokens)}};
  return sealed(std::move(file));
}

template <class T>
void Network<T>::load(std::span<const std::byte> bytes, const std::string& name, Memory& memory) const {
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
  if (file.tensors.size() != b.memories)
    throw refuse("has " + std::to_string(file.tensors.size()) + " parts and the model has " +
                 std::to_string(b.memories) + "; it is the state of another model");
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (b.memory_of[i] == Body::none) continue;
    const StoredTensor* const tensor = file.find("part." + std::to_string(b.memory_of[i]));
    if (!tensor) throw refuse("has no part " + std::to_string(b.memory_of[i]) + "; it is the state of another model");
    Buffer<std::byte>& part = fresh.parts[b.memory_of[i]];
    if (b.plan_of[i] != Body::none) {
      load_state(tensor->bytes, b.plans[b.plan_of[i]], {part.data(), static_cast<std::size_t>(part.size())});
    } else {
      if (tensor->bytes.size() != static_cast<std::size_t>(graph_.nodes[i].widths[0]) * sizeof(T))
        throw refuse("is the state of a model of another width or type");
      std::copy(tensor->bytes.begin(), tensor->bytes.end(), part.data());
    }
  }
  fresh.tokens = std::strtoll(note("tokens").c_str(), nullptr, 10);
  memory = std::move(fresh);
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
    if (b.grows && part.memory->tokens + part.count > b.capacity)
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
      std::copy_n(b.at(graph_.hidden, rows[begin + static_cast<std::size_t>(i)]), width, b.picked.data() + i * width);
    b.product(graph_.head, count, b.picked.data(), width, to + static_cast<Size>(begin) * classes, classes, mode);
  }
}

template class Network<float>;
template class Network<double>;

}  // namespace ttr::model
