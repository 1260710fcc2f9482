// Sequences and heads around the forms: checks, choice of form, state traffic. The heads of a token are neighbours in
// memory, so all heads go through a block of tokens before the next block: one chunk, whose rows for all heads were
// asked for while the chunk before was at work (ahead.h, hints.h); or, token by token, a few hundred. A sequence is
// treated by itself - even its form is chosen from its own length - so its bits do not depend on its neighbours in
// the batch.
//
// The backward pass keeps the states at segment borders: every chunk in the chunk form; in the recurrent form every
// `chunk` tokens (default: the square root of the length), with the states inside one segment recomputed.
//
// A Family names its problem, its gradient, its two forms for one head, and the map of a segment (scan.h):
//   struct Family { chooser; using Number, Problem, Gradient, Chunk, Recurrent, Map; }
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/common/choice.h"
#include "families/common/linear.h"
#include "families/common/scan.h"
#include "families/common/schedule.h"
#include "families/common/scratch.h"
#include "simd/denormals.h"
#include "ttr/status.h"

namespace ttr::families {

template <class Family>
std::size_t run_bytes(int K, int V, std::ptrdiff_t longest, Form form, int chunk, bool backward,
                      int chosen_by = 0) noexcept {
  static constexpr Simd<typename Family::Number> none{};
  const auto bytes = [&](std::ptrdiff_t time) {
    std::size_t most = 0;
    for (const int vector_bytes : vector_sizes) {  // of any instruction set
      Arena arena;
      const Schedule plan =
          schedule(choice(Family::chooser, vector_bytes, K, chosen_by ? chosen_by : V, backward), form, chunk, time);
      if (form == Form::scan) ScanRun<Family>(none, K, V, plan, time, backward, arena);
      else
        HeadRun<Family>(none, K, V, plan, time, backward, arena,
                        heads_together<typename Family::Chunk>(plan, K, V, time));
      most = std::max(most, arena.bytes());
      if (!chooses(form, chunk, time)) break;
    }
    return most;
  };
  // With Form::best the short sequences of a batch are recurrent, which may need more states than the chunk form; the
  // segments of a scan may be longer in a shorter sequence only by rounding.
  return longest < shortest_chunked ? bytes(longest) : std::max(bytes(longest), bytes(shortest_chunked - 1));
}

template <class Family, class Problem, class Simd>
Choice choice_of(const Problem& p, const Simd& s, bool backward) noexcept {
  const int vector_bytes = s.lanes * static_cast<int>(sizeof(typename Family::Number));
  return choice(Family::chooser, vector_bytes, p.key_dim, p.value_dim_of_choice(), backward);
}

template <class Family>
Status check(const LinearProblem<typename Family::Number>& p, bool queries, Form form, int chunk, bool backward,
             Workspace work) noexcept {
  if (p.key_dim < 1 || p.value_dim < 1 || p.heads < 1 || p.key_heads < 1 || p.heads % p.key_heads != 0)
    return Status::bad_shape;
  std::ptrdiff_t longest = 0;
  for (const Sequence& n : p.sequences) {
    if (n.end < n.begin) return Status::bad_shape;
    longest = std::max(longest, n.end - n.begin);
  }
  if (!p.state && !p.sequences.empty()) return Status::missing_input;
  if (longest > 0 && (!p.k || !p.v || (queries && !p.q))) return Status::missing_input;
  if (!work.data ||
      work.bytes < run_bytes<Family>(p.key_dim, p.value_dim, longest, form, chunk, backward, p.chosen_by))
    return Status::small_workspace;
  return Status::ok;
}

template <class Family, class Simd = Simd<typename Family::Number>>
Status run_forward(const typename Family::Problem& p, Form form, int chunk, const Simd& s, Workspace work) noexcept {
  if (const Status status = check<Family>(p, static_cast<bool>(p.o), form, chunk, false, work); status != Status::ok)
    return status;
  const FlushDenormals flush;
  auto* S = p.state;
  for (const Sequence& n : p.sequences) {
    Arena arena(work);
    const std::ptrdiff_t time = n.end - n.begin;
    const std::ptrdiff_t state = std::ptrdiff_t{p.key_dim} * p.value_dim;
    const Schedule plan = schedule(choice_of<Family>(p, s, false), form, chunk, time);
    if (form == Form::scan) {
      ScanRun<Family> run(s, p.key_dim, p.value_dim, plan, time, false, arena);
      for (int h = 0; h < p.heads; ++h) run.forward(p, n, h, S + h * state);
    } else {
      HeadRun<Family> run(s, p.key_dim, p.value_dim, plan, time, false, arena);
      const std::ptrdiff_t block = plan.chunked ? plan.segment : plan.block();
      const bool done = run.step(p, n, S);
      for (std::ptrdiff_t t = n.begin; t < n.end && !done; t += block)
        for (int h = 0; h < p.heads; ++h) run.forward(p, {n.row, t, std::min(t + block, n.end)}, h, S + h * state);
    }
    S += p.heads * state;
  }
  return Status::ok;
}

template <class Family, class Simd = Simd<typename Family::Number>>
Status run_backward(const typename Family::Problem& p, const typename Family::Gradient& d, Form form, int chunk,
                    const Simd& s, Workspace work) noexcept {
  if (const Status status = check<Family>(p, static_cast<bool>(d.d_o), form, chunk, true, work); status != Status::ok)
    return status;
  const FlushDenormals flush;
  std::ptrdiff_t at = 0;
  for (const Sequence& n : p.sequences) {
    Arena arena(work);
    const std::ptrdiff_t time = n.end - n.begin;
    const Schedule plan = schedule(choice_of<Family>(p, s, true), form, chunk, time);
    const auto heads = [&](int group, auto&& run) {
      for (int h = 0; h < p.heads; h += group) {
        const int count = std::min(group, p.heads - h);
        run(h, count, p.state + at, d.d_final ? d.d_final + at : nullptr, d.d_initial ? d.d_initial + at : nullptr);
        at += count * std::ptrdiff_t{p.key_dim} * p.value_dim;
      }
    };
    if (form == Form::scan) {
      ScanRun<Family> run(s, p.key_dim, p.value_dim, plan, time, true, arena);
      heads(1, [&](int h, int, auto* S, auto* d_S, auto* to) { run.backward(p, d, n, h, S, d_S, to); });
    } else {
      const int group = std::min(heads_together<typename Family::Chunk>(plan, p.key_dim, p.value_dim, time), p.heads);
      HeadRun<Family> run(s, p.key_dim, p.value_dim, plan, time, true, arena, group);
      heads(group,
            [&](int h, int count, auto* S, auto* d_S, auto* to) { run.backward(p, d, n, h, S, d_S, to, count); });
    }
  }
  return Status::ok;
}

}  // namespace ttr::families
