// The plan of a network and attention in one layer (Titans). q, k, v of the recipe are the memory's.
#include "families/network/arrangement/arrangement.h"

#include "families/network/neural/neural_plan.h"

namespace ttr::families {
namespace {

// Operands behind those of the memory.
struct Own {
  enum : std::size_t {
    attend_q,
    attend_k,
    attend_v,
    map_q,
    map_k,
    map_v,
    learn_q,
    learn_k,
    learn_v,
    persistent_k,
    persistent_v,
    answer_weight,
    memory_weight,
    count
  };
};
struct Around {
  ArrangementModel model;
  std::size_t first = 0;  // of the operands above
};
const Around& around(const Step& step) {
  return *static_cast<const Around*>(step.options<NetworkOptions>().around.get());
}
template <class T>
std::size_t slot(const KernelArgs<T>& o, std::size_t own) {
  return around(o.step()).first + own;
}

int build(Builder& b, double scale) {
  const auto kind = b.layer()->options_or_default<Arrangement>();
  const bool context = kind == Arrangement::context, layer = kind == Arrangement::layer;
  const int q = b.canonical("q"), k = context ? -1 : b.canonical("k"), v = context ? -1 : b.canonical("v");
  Step step = network_step(b, arrangement_family, q, k, v, scale);
  Around around_memory{{}, step.operands.size()};
  step.operands.resize(around_memory.first + Own::count, -1);
  ArrangementModel& model = around_memory.model;
  model.kind = kind;
  model.memory = model_of(step);
  model.heads = b.shape().heads;
  model.memory_key_heads = b.axes(q).has('G') ? b.shape().key_heads : b.shape().heads;
  model.pair_heads = layer ? b.shape().heads : b.shape().key_heads;
  model.key_dim = b.shape().key_dim;
  model.window = b.extent('W'), model.persistent = b.extent('M');
  const auto bind = [&](std::size_t own, const char* name) {
    if (b.has(name)) step.operands[around_memory.first + own] = b.index_of(name);
  };
  if (!layer) bind(Own::attend_q, "q"), bind(Own::attend_k, "k"), bind(Own::attend_v, "v");
  bind(Own::map_q, "wq"), bind(Own::map_k, "wk"), bind(Own::map_v, "wv");
  bind(Own::learn_q, "uq"), bind(Own::learn_k, "uk"), bind(Own::learn_v, "uv");
  bind(Own::persistent_k, "pk"), bind(Own::persistent_v, "pv");
  bind(Own::answer_weight, "w_y"), bind(Own::memory_weight, "w_m");
  std::vector<StatePart> parts = network_parts(b, model_of(step), q);
  const std::ptrdiff_t rows = arrangement::pair_rows(model);
  b.pipeline().letters['R'] = static_cast<int>(rows);
  const auto pairs = [&](const char* name, std::string letters, const char* meaning, int heads, int dim) {
    StatePart& part = parts.emplace_back();
    part.info.name = name, part.info.shape = std::move(letters), part.info.meaning = meaning;
    part.info.range = Range::fresh;
    part.extent = {rows, heads, dim}, part.type = b.type();
  };
  const std::string heads = layer ? "H" : "G";
  pairs("pair_k", "B R " + heads + " K", "keys of the pairs that attention sees", model.pair_heads, model.key_dim);
  pairs("pair_v", "B R " + heads + " V", "their values", model.pair_heads, b.shape().value_dim);
  if (context) {
    pairs("retrieved_k", "B R H K", "keys of what the memory gave in this segment", b.shape().heads, model.key_dim);
    pairs("retrieved_v", "B R H V", "their values", b.shape().heads, b.shape().value_dim);
  }
  step.set_options(NetworkOptions{model.memory, std::make_shared<const Around>(around_memory)});
  return b.add(std::move(step), "BTHV", std::move(parts));
}

template <class T>
struct ArrangementCalls {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form,
                               bool backward) {
    return NeuralCalls<T>::start_bytes(body, step, backward) +
           arrangement::workspace_bytes<T>(around(step).model, time, form, body.chunk, backward);
  }
  template <class N, class AnyState>
  static PairState<N> pairs(const KernelArgs<T>& o, AnyState state) {
    PairState<N> s;
    if (!state.data) return s;
    const int first = NeuralPlaces(model_of(o.step())).count;
    s.k = o.template state<N>(state, first), s.v = o.template state<N>(state, first + 1);
    if (around(o.step()).model.kind != Arrangement::context) return s;
    s.retrieved_k = o.template state<N>(state, first + 2), s.retrieved_v = o.template state<N>(state, first + 3);
    return s;
  }
  static ArrangementProblem<T> problem(const KernelArgs<T>& o, const NeuralProblem<T>& memory, State state) {
    const int K = o.body().shape.key_dim, V = o.body().shape.value_dim;
    ArrangementProblem<T> p;
    p.model = around(o.step()).model;
    p.sequences = o.sequences();
    p.memory = memory;
    p.scale = static_cast<T>(1 / std::sqrt(static_cast<double>(K)));
    p.q = o.vectors(slot(o, Own::attend_q)), p.k = o.vectors(slot(o, Own::attend_k)),
    p.v = o.vectors(slot(o, Own::attend_v));
    p.wq = o.per_head_matrix(slot(o, Own::map_q), V, K), p.wk = o.per_head_matrix(slot(o, Own::map_k), V, K);
    p.wv = o.per_head_matrix(slot(o, Own::map_v), V, V);
    p.uq = o.per_head_matrix(slot(o, Own::learn_q), V, K), p.uk = o.per_head_matrix(slot(o, Own::learn_k), V, K);
    p.uv = o.per_head_matrix(slot(o, Own::learn_v), V, V);
    p.persistent_k = o.rows_of_heads(slot(o, Own::persistent_k)),
    p.persistent_v = o.rows_of_heads(slot(o, Own::persistent_v));
    p.answer_weight = o.per_head_row(slot(o, Own::answer_weight), V),
    p.memory_weight = o.per_head_row(slot(o, Own::memory_weight), V);
    p.pairs = pairs<T>(o, state);
    p.o = o.output(o.step().result);
    return p;
  }
  static Status forward(const KernelArgs<T>& o, State state, Form form, Workspace work) noexcept {
    return arrangement::forward(problem(o, NeuralCalls<T>::with_initial(o, state), state), form, o.body().chunk,
                                simd_of<T>(o.body()), work);
  }
  static Status backward(const KernelArgs<T>& o, const Call& call, Form form, Arena arena) noexcept {
    const int K = o.body().shape.key_dim, V = o.body().shape.value_dim;
    return NeuralCalls<T>::backward_by(
        o, call, arena, [&](const NeuralProblem<T>& memory, const NeuralGradient<T>& d_memory, Workspace work) {
          ArrangementGradient<T> d;
          d.d_o = d_memory.d_o, d.memory = d_memory;
          d.d_final = pairs<const T>(o, call.d_final), d.d_initial = pairs<T>(o, call.d_initial);
          d.d_q = o.d_vectors(slot(o, Own::attend_q)), d.d_k = o.d_vectors(slot(o, Own::attend_k));
          d.d_v = o.d_vectors(slot(o, Own::attend_v));
          d.d_wq = o.d_per_head_matrix(slot(o, Own::map_q), V, K),
          d.d_wk = o.d_per_head_matrix(slot(o, Own::map_k), V, K);
          d.d_wv = o.d_per_head_matrix(slot(o, Own::map_v), V, V);
          d.d_uq = o.d_per_head_matrix(slot(o, Own::learn_q), V, K),
          d.d_uk = o.d_per_head_matrix(slot(o, Own::learn_k), V, K);
          d.d_uv = o.d_per_head_matrix(slot(o, Own::learn_v), V, V);
          d.d_persistent_k = o.d_rows_of_heads(slot(o, Own::persistent_k));
          d.d_persistent_v = o.d_rows_of_heads(slot(o, Own::persistent_v));
          d.d_answer_weight = o.d_per_head_row(slot(o, Own::answer_weight), V);
          d.d_memory_weight = o.d_per_head_row(slot(o, Own::memory_weight), V);
          return arrangement::backward(problem(o, memory, call.state), d, form, o.body().chunk, simd_of<T>(o.body()),
                                       work);
        });
  }
};

}  // namespace

const Family arrangement_family = {
    .name = "arrangement",
    .forms = chunk_only,
    .why_absent =
        "the memory is no linear function of its past: segments do not compose, and a block is part of the "
        "model",
    .traits = {.couples_heads = true, .grows_with_time = true, .best = BestForm::chunk_of_any_length},
    .build = build,
    .f32 = calls_of<ArrangementCalls, float>(),
    .f64 = calls_of<ArrangementCalls, double>(),
    .time_unit = batch_of};

}  // namespace ttr::families
