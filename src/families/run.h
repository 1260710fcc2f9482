// Sequences and heads around the forms: checks, choice of form, state traffic. A head runs through a block of many
// chunks while its state is in cache, then the next head through the same block: the heads of a token are neighbours
// in memory, so the pages of a block are walked once and not once per head. A sequence is treated by itself - even
// its form is chosen from its own length - so its bits do not depend on its neighbours in the batch.
//
// The backward pass keeps the states at segment borders: every chunk in the chunk form; in the recurrent form every
// `chunk` tokens (default: the square root of the length), with the states inside one segment recomputed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/chunk.h"
#include "families/decay.h"
#include "families/linear.h"
#include "families/recurrent.h"
#include "families/rule.h"
#include "families/scratch.h"
#include "simd/denormals.h"
#include "ttr/status.h"

namespace ttr::families {

inline constexpr std::ptrdiff_t shortest_chunked = 8;  // tokens; below this Form::best is recurrent

struct Schedule {
  bool chunked;
  std::ptrdiff_t segment;  // tokens per chunk, or between stored states
  /// Tokens one head runs through before the next head has its turn: whole chunks.
  std::ptrdiff_t block() const { return std::max<std::ptrdiff_t>(1, 256 / segment) * segment; }
};

inline Schedule schedule(Form form, int chunk, int K, int V, std::ptrdiff_t time, bool backward) {
  time = std::max<std::ptrdiff_t>(time, 1);
  if (form == Form::best) form = best_form(K, V, time, backward);
  if (form == Form::parallel) return {true, time};
  if (form == Form::chunk) return {true, std::min<std::ptrdiff_t>(chunk > 0 ? chunk : default_chunk(K, V), time)};
  const auto root = static_cast<std::ptrdiff_t>(std::ceil(std::sqrt(static_cast<double>(time))));
  return {false, std::min<std::ptrdiff_t>(chunk > 0 ? chunk : root, time)};
}

/// One head of one sequence, start to end and back.
template <class T, Rule rule>
class HeadRun {
 public:
  using Size = std::ptrdiff_t;

  HeadRun(const Simd<T>& s, int key_dim, int value_dim, Schedule plan, Size time, bool backward, Arena& arena)
      : simd(s),
        state(Size{key_dim} * value_dim),
        segment(plan.segment),
        chunked(plan.chunked),
        chunk(s, key_dim, value_dim, plan.chunked ? plan.segment : 0, backward, arena),
        recurrent(s, key_dim, value_dim, plan.chunked ? 0 : time, backward, arena) {
    if (!backward) return;
    d_state = arena.take<T>(state);
    borders = arena.take<T>(((time + segment - 1) / segment + 1) * state);
    if (!chunked) inside = arena.take<T>((segment + 1) * state);
  }

  void forward(const LinearProblem<T>& p, const Sequence& n, int head, T* S) {
    const bool outputs = static_cast<bool>(p.o);
    if (!chunked) return recurrent.forward(p, n.row, n.begin, n.end, head, S, outputs);
    for (Size t = n.begin; t < n.end; t += segment) advance(p, n, t, head, S, outputs);
  }

  void backward(const LinearProblem<T>& p, const LinearGradient<T>& d, const Sequence& n, int head, const T* initial,
                const T* d_final, T* d_initial) {
    const Size count = (n.end - n.begin + segment - 1) / segment;
    std::copy_n(initial, state, borders);
    for (Size i = 0; i < count; ++i) {
      T* const next = borders + (i + 1) * state;
      std::copy_n(next - state, state, next);
      advance(p, n, n.begin + i * segment, head, next, false);
    }
    if (d_final) std::copy_n(d_final, state, d_state);
    else std::fill_n(d_state, state, T(0));
    for (Size i = count; i-- > 0;) {
      const Size begin = n.begin + i * segment, length = std::min(segment, n.end - begin);
      const T* const start = borders + i * state;
      if (chunked) {
        chunk.backward(p, d, n.row, begin, length, head, start, start + state, d_state);
        continue;
      }
      std::copy_n(start, state, inside);
      for (Size j = 0; j < length; ++j) {
        std::copy_n(inside + j * state, state, inside + (j + 1) * state);
        recurrent.forward(p, n.row, begin + j, begin + j + 1, head, inside + (j + 1) * state, false);
      }
      for (Size j = length; j-- > 0;)
        recurrent.backward(p, d, n.row, begin + j, head, inside + j * state, inside + (j + 1) * state, d_state);
    }
    if (d_initial) simd.axpy(state, T(1), d_state, d_initial);
  }

 private:
  void advance(const LinearProblem<T>& p, const Sequence& n, Size begin, int head, T* S, bool outputs) {
    const Size length = std::min(segment, n.end - begin);
    if (chunked) return chunk.forward(p, n.row, begin, length, head, S, outputs);
    recurrent.forward(p, n.row, begin, begin + length, head, S, outputs);
  }

  const Simd<T>& simd;
  Size state, segment;
  bool chunked;
  ChunkForm<T, rule> chunk;
  RecurrentForm<T, rule> recurrent;
  T *d_state = nullptr, *borders = nullptr, *inside = nullptr;
};

template <class T, Rule rule>
std::size_t run_bytes(int K, int V, std::ptrdiff_t longest, Form form, int chunk, bool backward) noexcept {
  static constexpr Simd<T> none{};
  const auto bytes = [&](std::ptrdiff_t time) {
    Arena arena;
    HeadRun<T, rule> run(none, K, V, schedule(form, chunk, K, V, time, backward), time, backward, arena);
    return arena.bytes();
  };
  // With Form::best the short sequences of a batch are recurrent, which may need more states than the chunk form.
  return std::max(bytes(longest), bytes(std::min(longest, shortest_chunked - 1)));
}

template <class T, Rule rule>
Status check(const LinearProblem<T>& p, bool queries, Form form, int chunk, bool backward, Workspace work) noexcept {
  if (form == Form::scan) return Status::not_supported;
  if (p.key_dim < 1 || p.value_dim < 1 || p.heads < 1 || p.key_heads < 1 || p.heads % p.key_heads != 0)
    return Status::bad_shape;
  std::ptrdiff_t longest = 0;
  for (const Sequence& n : p.sequences) {
    if (n.end < n.begin) return Status::bad_shape;
    longest = std::max(longest, n.end - n.begin);
  }
  if (!p.state && !p.sequences.empty()) return Status::missing_input;
  if (longest > 0 && (!p.k || !p.v || (queries && !p.q))) return Status::missing_input;
  if (work.bytes < run_bytes<T, rule>(p.key_dim, p.value_dim, longest, form, chunk, backward) || !work.data)
    return Status::small_workspace;
  return Status::ok;
}

template <class T, Rule rule>
Status run_forward(const LinearProblem<T>& p, Form form, int chunk, const Simd<T>& s, Workspace work) noexcept {
  if (const Status status = check<T, rule>(p, static_cast<bool>(p.o), form, chunk, false, work); status != Status::ok)
    return status;
  const FlushDenormals flush;
  T* S = p.state;
  for (const Sequence& n : p.sequences) {
    Arena arena(work);
    const std::ptrdiff_t time = n.end - n.begin;
    const std::ptrdiff_t state = std::ptrdiff_t{p.key_dim} * p.value_dim;
    const Schedule plan = schedule(form, chunk, p.key_dim, p.value_dim, time, false);
    HeadRun<T, rule> run(s, p.key_dim, p.value_dim, plan, time, false, arena);
    for (std::ptrdiff_t t = n.begin; t < n.end; t += plan.block())
      for (int h = 0; h < p.heads; ++h)
        run.forward(p, {n.row, t, std::min(t + plan.block(), n.end)}, h, S + h * state);
    S += p.heads * state;
  }
  return Status::ok;
}

template <class T, Rule rule>
Status run_backward(const LinearProblem<T>& p, const LinearGradient<T>& d, Form form, int chunk, const Simd<T>& s,
                    Workspace work) noexcept {
  if (const Status status = check<T, rule>(p, static_cast<bool>(d.d_o), form, chunk, true, work);
      status != Status::ok)
    return status;
  const FlushDenormals flush;
  std::ptrdiff_t at = 0;
  for (const Sequence& n : p.sequences) {
    Arena arena(work);
    const std::ptrdiff_t time = n.end - n.begin;
    const Schedule plan = schedule(form, chunk, p.key_dim, p.value_dim, time, true);
    HeadRun<T, rule> run(s, p.key_dim, p.value_dim, plan, time, true, arena);
    for (int h = 0; h < p.heads; ++h, at += std::ptrdiff_t{p.key_dim} * p.value_dim)
      run.backward(p, d, n, h, p.state + at, d.d_final ? d.d_final + at : nullptr,
                   d.d_initial ? d.d_initial + at : nullptr);
  }
  return Status::ok;
}

}  // namespace ttr::families
