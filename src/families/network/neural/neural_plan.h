// What the plans of memories that are small networks share: the operands and states of a step, and its calls. States are
// named parts in the order of NeuralPlaces; where the layer has inputs for the initial weights, a sequence begins with
// those at its first token.
#pragma once

#include <algorithm>
#include <cmath>

#include "families/common/linear_plan.h"
#include "families/network/neural/model.h"
#include "families/network/neural/neural.h"

namespace ttr::families {

/// Operands of a network's step. The initial values of its parameters follow.
struct NeuralSlot {
  enum : std::size_t {
    rate = Slot::own,
    momentum,
    decay,
    gain,
    place_gain,
    threshold,
    weight,
    norm_weight,
    norm_bias,
    count
  };
};

struct NetworkOptions {
  NeuralModel model;
  std::shared_ptr<const void> around = {};  // of a family that puts something around the memory
};
inline const NeuralModel& model_of(const Step& step) { return step.options<NetworkOptions>().model; }

/// The step of a network without its states; q tells the width of keys where a memory makes its keys itself.
Step network_step(Builder&, const Family&, int q, int k, int v, double scale);
/// Its states. Weights begin as the oracle's do.
std::vector<StatePart> network_parts(Builder&, const NeuralModel&, int k);
/// Blocks of time are whole batches of the memory.
int batch_of(const Step&);

template <class T>
struct NeuralCalls {
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
           neural::workspace_bytes<T>(model_of(step), time, form, body.chunk, backward);
  }

  static NeuralProblem<T> problem(const KernelArgs<T>& o, State state) {
    NeuralProblem<T> p;
    p.model = model_of(o.step());
    p.sequences = o.sequences();
    p.heads = o.heads(), p.key_heads = o.heads_of(Slot::q);
    p.scale = static_cast<T>(o.step().scale);
    p.q = o.vectors(Slot::q), p.k = o.vectors(Slot::k), p.v = o.vectors(Slot::v);
    p.rate = rates(o, p.model);
    p.momentum = o.scalars(NeuralSlot::momentum), p.decay = o.scalars(NeuralSlot::decay);
    p.gain = o.scalars(NeuralSlot::gain), p.threshold = o.scalars(NeuralSlot::threshold),
    p.weight = o.scalars(NeuralSlot::weight);
    p.position_gain = o.per_head_row(NeuralSlot::place_gain, p.model.batch);
    p.norm_weight = o.per_head_row(NeuralSlot::norm_weight, p.model.value_dim);
    p.norm_bias = o.per_head_row(NeuralSlot::norm_bias, p.model.value_dim);
    p.count = o.counts(state);
    p.state = parts<T>(o, state);
    const NeuralPlaces places(p.model);
    const NeuralLayout layout(p.model);
    for (int j = 0; places.norms >= 0 && j < layout.matrices; ++j)
      p.norms[at(layout.matrix(j))] = o.template state<T>(state, places.norms + j);
    p.o = o.output(o.step().result);
    return p;
  }

  // The problem of a forward call; sequences that begin have their weights from the inputs.
  static NeuralProblem<T> with_initial(const KernelArgs<T>& o, State state) {
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
  static Status forward(const KernelArgs<T>& o, State state, Form form, Workspace work) noexcept {
    return neural::forward(with_initial(o, state), form, o.body().chunk, simd_of<T>(o.body()), work);
  }

  // Runs `call_kernel(problem, gradient, scratch)` on the initial state of a call, with its gradients.
  template <class Kernel>
  static Status backward_by(const KernelArgs<T>& o, const Call& call, Arena arena, Kernel&& call_kernel) noexcept {
    NeuralProblem<T> p = problem(o, call.state);
    const std::ptrdiff_t sequences = static_cast<std::ptrdiff_t>(p.sequences.size());
    std::int64_t* const seen = arena.take<std::int64_t>(sequences);
    std::copy_n(p.count, sequences, seen);
    count_given_pairs(p, seen);
    p.count = seen;
    const NeuralPlaces places(p.model);
    const NeuralLayout layout(p.model);
    NeuralGradient<T> d;
    d.d_o = o.d_output(o.step().result);
    d.d_final = parts<const T>(o, call.d_final);
    d.d_initial = parts<T>(o, call.d_initial);
    for (int j = 0; places.norms >= 0 && call.d_initial.data && j < layout.matrices; ++j)
      d.d_norms[at(layout.matrix(j))] = o.template state<T>(call.d_initial, places.norms + j);
    d.d_q = o.d_vectors(Slot::q), d.d_k = o.d_vectors(Slot::k), d.d_v = o.d_vectors(Slot::v);
    d.d_rate = d_rates(o, p.model);
    d.d_momentum = o.d_scalars(NeuralSlot::momentum), d.d_decay = o.d_scalars(NeuralSlot::decay);
    d.d_gain = o.d_scalars(NeuralSlot::gain), d.d_threshold = o.d_scalars(NeuralSlot::threshold);
    d.d_weight = o.d_scalars(NeuralSlot::weight);
    d.d_position_gain = o.d_per_head_row(NeuralSlot::place_gain, p.model.batch);
    d.d_norm_weight = o.d_per_head_row(NeuralSlot::norm_weight, p.model.value_dim);
    d.d_norm_bias = o.d_per_head_row(NeuralSlot::norm_bias, p.model.value_dim);
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

  static Status backward(const KernelArgs<T>& o, const Call& call, Form form, Arena arena) noexcept {
    return backward_by(o, call, arena, [&](const NeuralProblem<T>& p, const NeuralGradient<T>& d, Workspace work) {
      return neural::backward(p, d, form, o.body().chunk, simd_of<T>(o.body()), work);
    });
  }

  // Scratch of a call besides the kernel's, as backward_by takes it.
  static std::size_t start_bytes(const Plan::Body& body, const Step& step, bool backward) {
    Arena arena;
    if (backward) arena.take<std::int64_t>(body.shape.batch);
    if (backward && starts(step)) Starts(model_of(step), std::ptrdiff_t{body.shape.batch} * body.shape.heads, arena);
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
    const auto first = step.operands.begin() + NeuralSlot::count;
    return std::any_of(first, first + NeuralLayout(model_of(step)).count, [](int value) { return value >= 0; });
  }
  static bool has_start(const KernelArgs<T>& o, std::size_t i) {
    return o.has(NeuralSlot::count + i) && o.given(NeuralSlot::count + i);
  }
  // [H, in, out] of the initial value of parameter i
  static View<const T, 3> start_of(const KernelArgs<T>& o, std::size_t i, const NeuralLayout::Part& part) {
    return o.per_head_matrix(NeuralSlot::count + i, part.matrix ? part.in : 1, part.out);
  }
  static View<T, 3> d_start_of(const KernelArgs<T>& o, std::size_t i, const NeuralLayout::Part& part) {
    return o.d_per_head_matrix(NeuralSlot::count + i, part.matrix ? part.in : 1, part.out);
  }
  static View<const T, 4> rates(const KernelArgs<T>& o, const NeuralModel& model) {
    if (!o.has(NeuralSlot::rate)) return {};
    return o.channels(NeuralSlot::rate, model.rates);
  }
  static View<T, 4> d_rates(const KernelArgs<T>& o, const NeuralModel& model) {
    if (!o.has(NeuralSlot::rate)) return {};
    return o.d_channels(NeuralSlot::rate, model.rates);
  }
  template <class N, class AnyState>
  static NeuralState<N> parts(const KernelArgs<T>& o, AnyState state) {
    NeuralState<N> s;
    if (!state.data) return s;
    const NeuralPlaces places(model_of(o.step()));
    const NeuralLayout layout(model_of(o.step()));
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
  static void begin(const KernelArgs<T>& o, const NeuralProblem<T>& p, const NeuralParts<T>& weights,
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

}  // namespace ttr::families
