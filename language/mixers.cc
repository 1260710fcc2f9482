#include "language/mixers.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "ttr/status.h"

namespace ttr::model {
namespace {

template <class AnyTensor, class Data>
AnyTensor tensor(Data data, Type type, const std::vector<Size>& extent, const std::vector<Size>& stride) {
  AnyTensor t;
  t.data = data, t.type = type, t.rank = static_cast<int>(extent.size());
  for (std::size_t d = 0; d < extent.size(); ++d) t.extent[d] = extent[d], t.stride[d] = stride[d];
  return t;
}

bool keeps_pairs(const Plan& p) { return p.footprint(2).state > p.footprint(1).state; }
bool has(const Plan& p, Form form) { return std::find(p.forms().begin(), p.forms().end(), form) != p.forms().end(); }

std::vector<Size> strides_of(const std::vector<Size>& extent) {
  std::vector<Size> stride(extent.size(), 1);
  for (std::size_t d = extent.size(); d-- > 1;) stride[d - 1] = stride[d] * extent[d];
  return stride;
}

}  // namespace

template <class T>
Mixers<T>::Mixers(const Graph& graph, const Values<T>& values, Team& team, Size piece, std::int64_t capacity,
                  int rewind)
    : graph_(graph), values_(values), team_(team), capacity_(capacity) {
  std::map<std::string, std::size_t> known;
  of_.assign(graph.nodes.size(), none);
  singles_.resize(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].kind != Node::Kind::mixer) continue;
    const MixerNode& m = graph.nodes[i].mixer;
    const std::string key = m.layer + " " + std::to_string(m.shape.heads) + " " + std::to_string(m.shape.key_heads) +
                            " " + std::to_string(m.shape.key_dim) + " " + std::to_string(m.shape.value_dim) + " " +
                            (m.scale ? std::to_string(*m.scale) : "");
    const auto [found, fresh] = known.emplace(key, plans_.size());
    if (fresh) {
      Options options;
      options.type = type_of<T>, options.rewind = rewind, options.scale = m.scale;
      Plan alone = ttr::plan(m.layer, m.shape, options);
      options.threads = team.threads();
      options.executor.self = &team;
      options.executor.run = [](void* self, int jobs, void (*job)(void*, int), void* data) {
        static_cast<Team*>(self)->run(jobs, [&](int task, int) { job(data, task); });
      };
      Plan shared = team.threads() > 1 ? ttr::plan(m.layer, m.shape, options) : alone;
      for (const Form form : {Form::best, Form::recurrent})
        if (form == Form::best || has(shared, form)) {
          workspace_ = std::max(workspace_, shared.footprint(piece, form).workspace);
          if (keeps_pairs(shared)) workspace_ = std::max(workspace_, shared.footprint(capacity, form).workspace);
        }
      grows_ = grows_ || keeps_pairs(shared);
      const bool by_token = keeps_pairs(shared) || !has(shared, Form::recurrent);
      plans_.push_back({std::move(shared), std::move(alone), by_token});
    }
    of_[i] = found->second;
    // The call of one token, once for the team and once for every worker.
    const Pair& plans = plans_[found->second];
    auto single = std::make_unique<Single>();
    Inputs in;
    Outputs out;
    bind(i, {nullptr, 0, 1}, in, out);
    single->calls.push_back(plans.shared.prepare(in, out, form_of(plans.shared, true)));
    for (int worker = 0; worker < team.threads() && team.threads() > 1; ++worker)
      single->calls.push_back(plans.alone.prepare(in, out, form_of(plans.alone, true)));
    const auto place = [](const auto& list, std::string_view name) {
      for (std::size_t j = 0; j < list.size(); ++j)
        if (name == list[j].name) return static_cast<int>(j);
      return -1;
    };
    for (const auto& input : plans.shared.inputs()) single->inputs.push_back(place(m.inputs, input.name));
    for (const auto& output : plans.shared.outputs()) single->outputs.push_back(place(m.outputs, output.name));
    single->reads.resize(single->inputs.size() * static_cast<std::size_t>(team.threads()));
    single->writes.resize(single->outputs.size() * static_cast<std::size_t>(team.threads()));
    singles_[i] = std::move(single);
  }
  for (int worker = 0; worker < team.threads(); ++worker) rooms_.emplace_back(static_cast<Size>(workspace_));
}

template <class T>
Form Mixers<T>::form_of(const Plan& p, bool recurrent) const {
  return recurrent && has(p, Form::recurrent) ? Form::recurrent : Form::best;
}

template <class T>
std::size_t Mixers<T>::state_bytes(std::size_t node) const {
  return plan(node)->footprint(capacity_).state;
}

// The tensors of a call. Without a memory they are those of any such call: addresses are not read.
template <class T>
void Mixers<T>::bind(std::size_t i, const Rows& part, Inputs& in, Outputs& out) const {
  const Node& node = graph_.nodes[i];
  for (std::size_t j = 0; j < node.mixer.inputs.size(); ++j) {
    const MixerInput& input = node.mixer.inputs[j];
    const bool timed = input.operand.value.there() || input.every_token;
    std::vector<Size> extent = input.extent, stride = strides_of(extent);
    const Size own = extent.empty() ? 1 : stride[0] * extent[0];
    if (timed) {
      const Size of_time = input.every_token ? 0 : input.pairs > 1 ? own : values_.stride(input.operand.value);
      extent.insert(extent.begin(), {1, part.count * input.pairs}), stride.insert(stride.begin(), {0, of_time});
    }
    const T* const data = input.operand.numbers ? values_.fixed(i, j) : values_.at(input.operand.value, part.begin);
    in[input.name] = tensor<ConstTensor>(data, type_of<T>, extent, stride);
  }
  for (std::size_t j = 0; j < node.mixer.outputs.size(); ++j) {
    std::vector<Size> extent = node.mixer.outputs[j].extent, stride = strides_of(extent);
    extent.insert(extent.begin(), {1, part.count}), stride.insert(stride.begin(), {0, node.widths[j]});
    out[node.mixer.outputs[j].name] = tensor<Tensor>(values_.result(i, j, part.begin), type_of<T>, extent, stride);
  }
}

template <class T>
void Mixers<T>::fail(std::size_t node, std::size_t memory, const Rows& part, Form form) const {
  Inputs in;
  Outputs out;
  bind(node, part, in, out);
  Buffer<std::byte>& kept = part.memory->parts[memory];
  const State state{kept.data(), static_cast<std::size_t>(kept.size())};
  throw Error("the layer " + graph_.nodes[node].mixer.layer +
                  " of the model: " + plan(node)->diagnose(in, state, out, {rooms_[0].data(), workspace_}, form),
              "model");
}

template <class T>
Status Mixers<T>::one_token(std::size_t i, Single& single, std::size_t call, const Rows& part, Memory& memory,
                            std::size_t which, int worker) {
  const std::size_t w = static_cast<std::size_t>(worker);
  const auto reads = std::span(single.reads).subspan(w * single.inputs.size(), single.inputs.size());
  const auto writes = std::span(single.writes).subspan(w * single.outputs.size(), single.outputs.size());
  for (std::size_t j = 0; j < reads.size(); ++j) {
    const int of = single.inputs[j];
    if (of < 0) {
      reads[j] = nullptr;
      continue;
    }
    const Operand& operand = graph_.nodes[i].in[static_cast<std::size_t>(of)];
    reads[j] =
        operand.numbers ? values_.fixed(i, static_cast<std::size_t>(of)) : values_.at(operand.value, part.begin);
  }
  for (std::size_t j = 0; j < writes.size(); ++j)
    writes[j] =
        single.outputs[j] < 0 ? nullptr : values_.result(i, static_cast<std::size_t>(single.outputs[j]), part.begin);
  Buffer<std::byte>& kept = memory.parts[which];
  return single.calls[call](reads, writes, {kept.data(), static_cast<std::size_t>(kept.size())},
                            {rooms_[w].data(), workspace_});
}

template <class T>
void Mixers<T>::run(std::span<const std::size_t> nodes, std::span<const std::size_t> memory_of,
                    std::span<const Rows> parts, bool recurrent) {
  const bool of_one = std::all_of(parts.begin(), parts.end(), [](const Rows& part) { return part.count <= 1; });
  if (!recurrent || !of_one || nodes.size() * parts.size() < 2 || team_.threads() < 2) {
    for (const std::size_t i : nodes) run_one(i, memory_of[i], parts, recurrent);
    return;
  }
  std::atomic<int> failed{-1};
  team_.run(static_cast<int>(nodes.size() * parts.size()), [&](int task, int worker) {
    const std::size_t i = nodes[static_cast<std::size_t>(task) % nodes.size()];
    const Rows& part = parts[static_cast<std::size_t>(task) / nodes.size()];
    if (part.count > 0 && one_token(i, *singles_[i], 1 + static_cast<std::size_t>(worker), part, *part.memory,
                                    memory_of[i], worker) != Status::ok)
      failed = task;
  });
  if (const int task = failed; task >= 0) {
    const std::size_t i = nodes[static_cast<std::size_t>(task) % nodes.size()];
    fail(i, memory_of[i], parts[static_cast<std::size_t>(task) / nodes.size()], form_of(*plan(i), true));
  }
}

template <class T>
void Mixers<T>::run_one(std::size_t i, std::size_t memory, std::span<const Rows> parts, bool recurrent) {
  Single& single = *singles_[i];
  const Plan& p = *plan(i);
  const Form form = form_of(p, recurrent);
  for (const Rows& part : parts) {
    if (part.count == 0) continue;
    if (recurrent && (part.count == 1 || plans_[of_[i]].by_token)) {
      for (Size t = 0; t < part.count; ++t) {
        const Rows token{part.memory, part.begin + t, 1};
        if (one_token(i, single, 0, token, *part.memory, memory, 0) != Status::ok) fail(i, memory, token, form);
      }
      continue;
    }
    Inputs in;
    Outputs out;
    bind(i, part, in, out);
    Buffer<std::byte>& kept = part.memory->parts[memory];
    const State state{kept.data(), static_cast<std::size_t>(kept.size())};
    if (p.forward(in, state, out, {rooms_[0].data(), workspace_}, form) != Status::ok) fail(i, memory, part, form);
  }
}

template class Mixers<float>;
template class Mixers<double>;

}  // namespace ttr::model
