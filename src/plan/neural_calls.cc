// Memories that are small networks: their states are named parts in the order of NeuralPlaces, and where the layer
// has inputs for the initial weights, a sequence begins with those at its first token.
#include <algorithm>
#include <cmath>

#include "families/network/arrangement/arrangement.h"
#include "plan/calls.h"
#include "plan/neural_model.h"

namespace ttr {
namespace {

template <class T>
struct NeuralFamily {
  // Weights and lengths of a call that begins sequences, and their gradients.
  struct Starts {
    Starts(const NeuralModel& model, std::ptrdiff_t rows, Arena& arena) {
      const NeuralLayout layout(model);
      for (std::size_t i = 0; i < at(layout.count); ++i) {
        const NeuralLayout::Part& part = layout.part[i];
        weights[i] = arena.take<T>(rows * size(part)), d_weights[i] = arena.take<T>(rows * size(part));
        if (model.row_norm && part.matrix)
          norms[i] = arena.take<T>(rows * part.out), d_norms[i] = arena.take<T>(rows * part.out);
      }
    }
    NeuralParts<T> weights{}, norms{}, d_weights{}, d_norms{};
  };
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form,
                               bool backward) {
    return start_bytes(body, step, backward) +
           neural::workspace_bytes<T>(*step.neural, time, form, body.chunk, backward);
  }

  static NeuralProblem<T> problem(const Operands<T>& o, State state) {
    NeuralProblem<T> p;
    p.model = *o.step().neural;
    p.sequences = o.sequences();
    p.heads = o.heads(), p.key_heads = o.heads_of(Role::q);
    p.scale = static_cast<T>(o.step().scale);
    p.q = o.vectors(Role::q), p.k = o.vectors(Role::k), p.v = o.vectors(Role::v);
    p.rate = rates(o, p.model);
    p.momentum = o.scalars(Role::momentum), p.decay = o.scalars(Role::decay);
    p.gain = o.scalars(Role::gain), p.threshold = o.scalars(Role::threshold), p.weight = o.scalars(Role::weight);
    p.position_gain = o.per_head_row(Role::place_gain, p.model.batch);
    p.norm_weight = o.per_head_row(Role::norm_weight, p.model.value_dim);
    p.norm_bias = o.per_head_row(Role::norm_bias, p.model.value_dim);
    p.count = o.counts(state);
    p.state = parts<T>(o, state);
    const NeuralPlaces places(p.model);
    const NeuralLayout layout(p.model);
    for (int j = 0; places.norms >= 0 && j < layout.matrices; ++j)
      p.norms[at(layout.matrix(j))] = o.template state<T>(state, places.norms + j);
    p.o = o.output(o.step().to);
    return p;
  }

  // The problem of a forward call; sequences that begin have their weights from the inputs.
  static NeuralProblem<T> begun(const Operands<T>& o, State state) {
    NeuralProblem<T> p = problem(o, state);
    count_given_pairs(p, p.count);
    if (!starts(o.step())) return p;
    NeuralParts<T> norms{};
    const NeuralPlaces places(p.model);
    const NeuralLayout layout(p.model);
    for (int j = 0; places.norms >= 0 && j < layout.matrices; ++j)
      norms[at(layout.matrix(j))] = o.template state<T>(state, places.norms + j);
    begin(o, p, p.state.weights, norms);
    return p;
  }
  static Status forward(const Operands<T>& o, State state, Form form, Workspace work) noexcept {
    return neural::forward(begun(o, state), form, o.body().chunk, simd_of<T>(o.body()), work);
  }

  // Runs `call_kernel(problem, gradient, scratch)` on the initial state of a call, with its gradients.
  template <class Kernel>
  static Status backward_by(const Operands<T>& o, const Call& call, Arena arena, Kernel&& call_kernel) noexcept {
    NeuralProblem<T> p = problem(o, call.state);
    const std::ptrdiff_t sequences = static_cast<std::ptrdiff_t>(p.sequences.size());
    std::int64_t* const seen = arena.take<std::int64_t>(sequences);
    std::copy_n(p.count, sequences, seen);
    count_given_pairs(p, seen);
    p.count = seen;
    const NeuralPlaces places(p.model);
    const NeuralLayout layout(p.model);
    NeuralGradient<T> d;
    d.d_o = o.d_output(o.step().to);
    d.d_final = parts<const T>(o, call.d_final);
    d.d_initial = parts<T>(o, call.d_initial);
    for (int j = 0; places.norms >= 0 && call.d_initial.data && j < layout.matrices; ++j)
      d.d_norms[at(layout.matrix(j))] = o.template state<T>(call.d_initial, places.norms + j);
    d.d_q = o.d_vectors(Role::q), d.d_k = o.d_vectors(Role::k), d.d_v = o.d_vectors(Role::v);
    d.d_rate = d_rates(o, p.model);
    d.d_momentum = o.d_scalars(Role::momentum), d.d_decay = o.d_scalars(Role::decay);
    d.d_gain = o.d_scalars(Role::gain), d.d_threshold = o.d_scalars(Role::threshold);
    d.d_weight = o.d_scalars(Role::weight);
    d.d_position_gain = o.d_per_head_row(Role::place_gain, p.model.batch);
    d.d_norm_weight = o.d_per_head_row(Role::norm_weight, p.model.value_dim);
    d.d_norm_bias = o.d_per_head_row(Role::norm_bias, p.model.value_dim);
    // The lengths are carried on as they are.
    const std::ptrdiff_t rows = sequences * p.heads;
    const auto add_final_lengths = [&] {
      for (int j = 0; places.norms >= 0 && call.d_final.data && j < layout.matrices; ++j) {
        const std::size_t i = at(layout.matrix(j));
        const T* const d_final = o.template state<const T>(call.d_final, places.norms + j);
        for (std::ptrdiff_t e = 0; d.d_norms[i] && e < rows * layout.part[i].out; ++e) d.d_norms[i][e] += d_final[e];
      }
    };
    if (!starts(o.step())) {
      add_final_lengths();
      return call_kernel(p, d, arena.rest());
    }

    // Sequences that begin here: the initial weights are the inputs, and so are their gradients.
    const Starts starts_here(p.model, rows, arena);
    const auto& [weights, norms, d_weights, d_norms] = starts_here;
    const NeuralState<T> outer = d.d_initial;
    const NeuralParts<T> outer_norms = d.d_norms;
    for (std::size_t i = 0; i < at(layout.count); ++i) {
      const std::ptrdiff_t n = rows * size(layout.part[i]), m = rows * layout.part[i].out;
      std::copy_n(p.state.weights[i], n, weights[i]), std::fill_n(d_weights[i], n, T(0));
      p.state.weights[i] = weights[i], d.d_initial.weights[i] = d_weights[i];
      if (!norms[i]) continue;
      std::copy_n(p.norms[i], m, norms[i]), std::fill_n(d_norms[i], m, T(0));
      p.norms[i] = norms[i], d.d_norms[i] = d_norms[i];
    }
    begin(o, p, weights, norms);
    add_final_lengths();
    const Status status = call_kernel(p, d, arena.rest());
    for (std::size_t i = 0; i < at(layout.count); ++i) {
      const std::ptrdiff_t one = size(layout.part[i]), width = layout.part[i].out;
      for (std::ptrdiff_t n = 0; n < sequences; ++n)
        for (std::ptrdiff_t h = 0; h < p.heads; ++h) {
          const std::ptrdiff_t row = n * p.heads + h;
          T* const d_row = d_weights[i] + row * one;
          if (!o.begins(p.count, static_cast<std::size_t>(n)) || !has_start(o, i)) {
            if (outer.weights[i])
              for (std::ptrdiff_t e = 0; e < one; ++e) outer.weights[i][row * one + e] += d_row[e];
            if (outer_norms[i] && d_norms[i])
              for (std::ptrdiff_t j = 0; j < width; ++j)
                outer_norms[i][row * width + j] += d_norms[i][row * width + j];
            continue;
          }
          if (d_norms[i])  // d |w| = w.dw / |w|
            for (std::ptrdiff_t e = 0; e < one; ++e) {
              const std::ptrdiff_t j = row * width + e % width;
              if (norms[i][j] > 0) d_row[e] += d_norms[i][j] * weights[i][row * one + e] / norms[i][j];
            }
          const View<T, 3> d_start = d_start_of(o, i, layout.part[i]);
          for (std::ptrdiff_t e = 0; d_start && e < one; ++e) d_start(h, e / width, e % width) += d_row[e];
        }
    }
    return status;
  }

  static Status backward(const Operands<T>& o, const Call& call, Form form, Arena arena) noexcept {
    return backward_by(o, call, arena, [&](const NeuralProblem<T>& p, const NeuralGradient<T>& d, Workspace work) {
      return neural::backward(p, d, form, o.body().chunk, simd_of<T>(o.body()), work);
    });
  }

  // Scratch of a call besides the kernel's, as backward_by takes it.
  static std::size_t start_bytes(const Plan::Body& body, const Step& step, bool backward) {
    Arena arena;
    if (backward) arena.take<std::int64_t>(body.shape.batch);
    if (backward && starts(step)) Starts(*step.neural, std::ptrdiff_t{body.shape.batch} * body.shape.heads, arena);
    return arena.bytes();
  }

 private:
  // A window that was written from outside: a pair that is there has an importance that is not zero.
  static void count_given_pairs(const NeuralProblem<T>& p, std::int64_t* count) {
    const std::ptrdiff_t slots = p.model.window - 1;
    for (std::size_t n = 0; slots > 0 && n < p.sequences.size(); ++n) {
      const T* const weight = p.state.history_weight + static_cast<std::ptrdiff_t>(n) * slots * p.heads;
      if (count[n] == 0 && std::any_of(weight, weight + slots * p.heads, [](T w) { return w != 0; }))
        count[n] = slots;
    }
  }
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  static std::ptrdiff_t size(const NeuralLayout::Part& part) {
    return part.matrix ? std::ptrdiff_t{part.in} * part.out : part.out;
  }
  static bool starts(const Step& step) {
    return std::any_of(step.from.begin() + Role::count, step.from.end(), [](int value) { return value >= 0; });
  }
  static bool has_start(const Operands<T>& o, std::size_t i) {
    return o.has(Role::count + i) && o.given(Role::count + i);
  }
  // [H, in, out] of the initial value of parameter i
  static View<const T, 3> start_of(const Operands<T>& o, std::size_t i, const NeuralLayout::Part& part) {
    return o.per_head_matrix(Role::count + i, part.matrix ? part.in : 1, part.out);
  }
  static View<T, 3> d_start_of(const Operands<T>& o, std::size_t i, const NeuralLayout::Part& part) {
    return o.d_per_head_matrix(Role::count + i, part.matrix ? part.in : 1, part.out);
  }
  static View<const T, 4> rates(const Operands<T>& o, const NeuralModel& model) {
    if (!o.has(Role::rate)) return {};
    return o.channels(Role::rate, model.rates);
  }
  static View<T, 4> d_rates(const Operands<T>& o, const NeuralModel& model) {
    if (!o.has(Role::rate)) return {};
    return o.d_channels(Role::rate, model.rates);
  }
  template <class N, class AnyState>
  static NeuralState<N> parts(const Operands<T>& o, AnyState state) {
    NeuralState<N> s;
    if (!state.data) return s;
    const NeuralPlaces places(*o.step().neural);
    const NeuralLayout layout(*o.step().neural);
    const auto group = [&](int first, NeuralParts<N>& pointers) {
      for (int i = 0; first >= 0 && i < layout.count; ++i) pointers[at(i)] = o.template state<N>(state, first + i);
    };
    group(places.weights, s.weights), group(places.start, s.start), group(places.z, s.z);
    group(places.pending, s.pending);
    if (places.gate_sums >= 0) s.gate_sums = o.template state<N>(state, places.gate_sums);
    if (places.history >= 0) {
      s.history_k = o.template state<N>(state, places.history);
      s.history_v = o.template state<N>(state, places.history + 1);
      s.history_weight = o.template state<N>(state, places.history + 2);
    }
    return s;
  }
  // Sequences without tokens so far take the weights of the inputs, and the lengths of their columns.
  static void begin(const Operands<T>& o, const NeuralProblem<T>& p, const NeuralParts<T>& weights,
                    const NeuralParts<T>& norms) {
    const NeuralLayout layout(p.model);
    for (std::size_t i = 0; i < at(layout.count); ++i) {
      if (!has_start(o, i)) continue;
      const NeuralLayout::Part& part = layout.part[i];
      const View<const T, 3> start = start_of(o, i, part);
      for (std::size_t n = 0; n < o.sequences().size(); ++n) {
        if (!o.begins(p.count, n)) continue;
        for (std::ptrdiff_t h = 0; h < p.heads; ++h) {
          const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(n) * p.heads + h;
          T* const w = weights[i] + row * size(part);
          for (std::ptrdiff_t e = 0; e < size(part); ++e) w[e] = start(h, e / part.out, e % part.out);
          if (!norms[i]) continue;
          for (std::ptrdiff_t j = 0; j < part.out; ++j) {
            T square = 0;
            for (std::ptrdiff_t a = 0; a < part.in; ++a) square += w[a * part.out + j] * w[a * part.out + j];
            norms[i][row * part.out + j] = std::sqrt(square);
          }
        }
      }
    }
  }
};

// A network beside, before or around attention.
template <class T>
struct ArrangementFamily {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form,
                               bool backward) {
    return NeuralFamily<T>::start_bytes(body, step, backward) +
           arrangement::workspace_bytes<T>(*step.arrangement, time, form, body.chunk, backward);
  }
  template <class N, class AnyState>
  static PairState<N> pairs(const Operands<T>& o, AnyState state) {
    PairState<N> s;
    if (!state.data) return s;
    const int first = NeuralPlaces(*o.step().neural).count;
    s.k = o.template state<N>(state, first), s.v = o.template state<N>(state, first + 1);
    if (o.step().arrangement->kind != Arrangement::context) return s;
    s.retrieved_k = o.template state<N>(state, first + 2), s.retrieved_v = o.template state<N>(state, first + 3);
    return s;
  }
  static ArrangementProblem<T> problem(const Operands<T>& o, const NeuralProblem<T>& memory, State state) {
    const int K = o.body().shape.key_dim, V = o.body().shape.value_dim;
    ArrangementProblem<T> p;
    p.model = *o.step().arrangement;
    p.sequences = o.sequences();
    p.memory = memory;
    p.scale = static_cast<T>(1 / std::sqrt(static_cast<double>(K)));
    p.q = o.vectors(Role::attend_q), p.k = o.vectors(Role::attend_k), p.v = o.vectors(Role::attend_v);
    p.wq = o.per_head_matrix(Role::map_q, V, K), p.wk = o.per_head_matrix(Role::map_k, V, K);
    p.wv = o.per_head_matrix(Role::map_v, V, V);
    p.uq = o.per_head_matrix(Role::learn_q, V, K), p.uk = o.per_head_matrix(Role::learn_k, V, K);
    p.uv = o.per_head_matrix(Role::learn_v, V, V);
    p.persistent_k = o.rows_of_heads(Role::persistent_k), p.persistent_v = o.rows_of_heads(Role::persistent_v);
    p.answer_weight = o.per_head_row(Role::answer_weight, V),
    p.memory_weight = o.per_head_row(Role::memory_weight, V);
    p.pairs = pairs<T>(o, state);
    p.o = o.output(o.step().to);
    return p;
  }
  static Status forward(const Operands<T>& o, State state, Form form, Workspace work) noexcept {
    return arrangement::forward(problem(o, NeuralFamily<T>::begun(o, state), state), form, o.body().chunk,
                                simd_of<T>(o.body()), work);
  }
  static Status backward(const Operands<T>& o, const Call& call, Form form, Arena arena) noexcept {
    const int K = o.body().shape.key_dim, V = o.body().shape.value_dim;
    return NeuralFamily<T>::backward_by(
        o, call, arena, [&](const NeuralProblem<T>& memory, const NeuralGradient<T>& d_memory, Workspace work) {
          ArrangementGradient<T> d;
          d.d_o = d_memory.d_o, d.memory = d_memory;
          d.d_final = pairs<const T>(o, call.d_final), d.d_initial = pairs<T>(o, call.d_initial);
          d.d_q = o.d_vectors(Role::attend_q), d.d_k = o.d_vectors(Role::attend_k);
          d.d_v = o.d_vectors(Role::attend_v);
          d.d_wq = o.d_per_head_matrix(Role::map_q, V, K), d.d_wk = o.d_per_head_matrix(Role::map_k, V, K);
          d.d_wv = o.d_per_head_matrix(Role::map_v, V, V);
          d.d_uq = o.d_per_head_matrix(Role::learn_q, V, K), d.d_uk = o.d_per_head_matrix(Role::learn_k, V, K);
          d.d_uv = o.d_per_head_matrix(Role::learn_v, V, V);
          d.d_persistent_k = o.d_rows_of_heads(Role::persistent_k);
          d.d_persistent_v = o.d_rows_of_heads(Role::persistent_v);
          d.d_answer_weight = o.d_per_head_row(Role::answer_weight, V);
          d.d_memory_weight = o.d_per_head_row(Role::memory_weight, V);
          return arrangement::backward(problem(o, memory, call.state), d, form, o.body().chunk, simd_of<T>(o.body()),
                                       work);
        });
  }
};

}  // namespace

template <class T>
Calls<T> neural_calls(KernelKind kind) {
  if (kind == KernelKind::arrangement) return calls<ArrangementFamily, T>();
  return kind == KernelKind::neural ? calls<NeuralFamily, T>() : Calls<T>{};
}

template Calls<float> neural_calls<float>(KernelKind);
template Calls<double> neural_calls<double>(KernelKind);

}  // namespace ttr
