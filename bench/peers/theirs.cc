#include "theirs.h"

#include <cstring>

#include "ttr/ttr.h"

namespace ttr::peers {
namespace {

constexpr std::size_t most_nodes = 4096;

}  // namespace

Theirs::Theirs(int threads) {
  ggml_init_params parameters{};
  parameters.mem_size = most_nodes * 4 * ggml_tensor_overhead() + ggml_graph_overhead_custom(most_nodes, false);
  parameters.no_alloc = true;
  context_ = ggml_init(parameters);
  if (!context_) throw Error("ggml has no memory for a graph");
  ggml_threadpool_params team = ggml_threadpool_params_default(threads);
  pool_ = ggml_threadpool_new(&team);
  plan_.n_threads = threads;
}

Theirs::~Theirs() {
  ggml_threadpool_free(pool_);
  ggml_free(context_);
}

ggml_tensor* Theirs::on(const void* data, ggml_type type, std::initializer_list<std::int64_t> extents) {
  ggml_tensor* t = ggml_new_tensor(context_, type, static_cast<int>(extents.size()), extents.begin());
  t->data = const_cast<void*>(data);
  return t;
}

ggml_tensor* Theirs::on(const float* data, std::initializer_list<std::int64_t> extents) {
  return on(data, GGML_TYPE_F32, extents);
}

const std::vector<float>& Theirs::made(const std::string& name, const std::function<std::vector<float>()>& make) {
  const auto found = made_.find(name);
  return found != made_.end() ? found->second : made_[name] = make();
}

const std::vector<ggml_fp16_t>& Theirs::made_half(const std::string& name,
                                                  const std::function<std::vector<float>()>& make) {
  const auto found = half_.find(name);
  if (found != half_.end()) return found->second;
  const std::vector<float> numbers = make();
  std::vector<ggml_fp16_t>& half = half_[name];
  half.resize(numbers.size());
  ggml_fp32_to_fp16_row(numbers.data(), half.data(), static_cast<std::int64_t>(numbers.size()));
  return half;
}

ggml_tensor* Theirs::result(ggml_tensor* node) {
  if (node->data) return node;
  Place& place = places_[place_];
  const std::size_t bytes = ggml_nbytes(node);
  if (place.used == place.pieces.size()) place.pieces.emplace_back(bytes);
  if (place.pieces[place.used].size() < bytes) throw Error("steps of a graph are not alike");
  node->data = place.pieces[place.used++].data();
  return node;
}

void Theirs::next_step() { place_ = 1 - place_, places_[place_].used = 0; }

ggml_tensor* Theirs::part(ggml_tensor* whole, std::size_t first_number, std::initializer_list<std::int64_t> extents) {
  std::int64_t ne[4] = {1, 1, 1, 1};
  std::copy(extents.begin(), extents.end(), ne);
  const std::size_t size = sizeof(float), row = size * static_cast<std::size_t>(ne[0]),
                    plane = row * static_cast<std::size_t>(ne[1]), cube = plane * static_cast<std::size_t>(ne[2]);
  return ggml_view_4d(context_, whole, ne[0], ne[1], ne[2], ne[3], row, plane, cube, size * first_number);
}

void Theirs::finish(const std::vector<ggml_tensor*>& outputs) {
  graph_ = ggml_new_graph_custom(context_, most_nodes, false);
  for (ggml_tensor* output : outputs) ggml_build_forward_expand(graph_, output);
  plan_ = ggml_graph_plan(graph_, plan_.n_threads, pool_);
  work_ = cli::Buffer(plan_.work_size + 64);
  plan_.work_data = reinterpret_cast<std::uint8_t*>(work_.data());
}

void Theirs::run() {
  if (ggml_graph_compute(graph_, &plan_) != GGML_STATUS_SUCCESS) throw Error("ggml did not compute its graph");
}

}  // namespace ttr::peers
