// The driver of linear memories: checks, choice of form, loops over sequences and heads, movement of states. The
// heads of a token are neighbours in memory, so all heads go through a block of tokens before the next block: one
// chunk, whose rows were prefetched during the chunk before (prefetch.h); or, token by token, a few hundred tokens.
// Families that prefetch nothing take one head after the other. Each sequence is computed by itself, even its form is
// chosen by its own length, so its bits do not depend on its neighbours in the batch.
//
// The backward pass keeps the states at segment borders: every chunk in the chunk form, or some of them; in the
// recurrent form every `chunk` tokens (default: the square root of the length), with the states inside one segment
// recomputed (replay.h).
//
// What a Family has to define: schedule.h.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/common/check.h"
#include "families/common/choice.h"
#include "families/common/linear.h"
#include "families/common/scan.h"
#include "families/common/schedule.h"
#include "families/common/scratch.h"
#include "simd/denormals.h"
#include "ttr/status.h"

namespace ttr::families {

template <class Family>
std::size_t run_bytes(const Shape& shape, std::ptrdiff_t longest, Form form, int chunk, bool backward,
                      int workers = 1) noexcept {
  static constexpr Simd<typename Family::Number> none{};
  const auto bytes = [&](Form how, std::ptrdiff_t time) {
    std::size_t most = 0;
    for (const int vector_bytes : vector_sizes) {  // of any instruction set
      Arena arena;
      const Schedule plan = schedule<Family>(shape, vector_bytes, how, chunk, time, backward, true);
      if constexpr (present<typename Family::Map>)
        if (plan.scan > 0) ScanRun<Family>(none, shape, plan, time, backward, Team(workers, nullptr), arena);
      if (plan.scan == 0)
        HeadRun<Family>(none, shape, plan, time, backward, arena,
                        heads_together<typename Family::Chunk>(plan, shape.key_dim, shape.value_dim, time, workers),
                        Team(workers, nullptr));
      most = std::max(most, arena.bytes());
      if (!(how == Form::best ? time >= fewest_chunked : chooses(how, chunk, time))) break;
    }
    return most;
  };
  // With Form::best the short sequences of a batch are recurrent, which may need more states than the chunk form.
  const std::size_t all = bytes(form, longest);
  if (form != Form::best || longest < fewest_chunked) return all;
  return std::max(all, bytes(Form::recurrent, std::min(longest, shortest_chunked - 1)));
}

template <class Family>
Status check(const typename Family::Problem& p, bool queries, Form form, int chunk, bool backward,
             Workspace work) noexcept {
  if (form == Form::scan && !present<typename Family::Map>) return Status::not_supported;
  if ((form == Form::chunk || form == Form::parallel) && !present<typename Family::Chunk>)
    return Status::not_supported;
  const auto& a = linear_of(p);
  const Shape shape = Family::shape(p);
  const auto bytes = [&](std::ptrdiff_t longest) {
    return run_bytes<Family>(shape, longest, form, chunk, backward, a.team.workers());
  };
  const Status status =
      check_common(a.sequences, a.heads, a.key_heads, {shape.key_dim, shape.value_dim, shape.depth}, work, bytes);
  if (status != Status::ok || a.sequences.empty()) return status;
  for (const auto* part : Family::state(p))
    if (!part) return Status::missing_input;
  if (longest_of(a.sequences) > 0 && (!a.k || !a.v || (queries && !a.q))) return Status::missing_input;
  return Status::ok;
}

/// each(index, sequence, schedule, heads that go together, run): run is the ScanRun or the HeadRun of the sequence.
template <class Family, class Each>
void for_sequences(const typename Family::Problem& p, Form form, int chunk, bool backward,
                   const Simd<typename Family::Number>& s, Workspace work, Each&& each) {
  const Shape shape = Family::shape(p);
  const int vector_bytes = s.lanes * static_cast<int>(sizeof(typename Family::Number));
  const auto& sequences = linear_of(p).sequences;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Arena arena(work);
    const std::ptrdiff_t time = sequences[i].end - sequences[i].begin;
    if (time == 0 && !backward) continue;  // slots that pause: a step of one of many costs what it costs alone
    const Schedule plan = schedule<Family>(shape, vector_bytes, form, chunk, time, backward);
    if constexpr (present<typename Family::Map>)
      if (plan.scan > 0) {
        ScanRun<Family> run(s, shape, plan, time, backward, linear_of(p).team, arena);
        each(static_cast<std::ptrdiff_t>(i), sequences[i], plan, 1, run);
      }
    if (plan.scan > 0) continue;
    const Team& team = linear_of(p).team;
    const int together =
        heads_together<typename Family::Chunk>(plan, shape.key_dim, shape.value_dim, time, team.workers());
    const int group = backward ? std::min(together, linear_of(p).heads) : 1;
    HeadRun<Family> run(s, shape, plan, time, backward, arena, group, team);
    each(static_cast<std::ptrdiff_t>(i), sequences[i], plan, group, run);
  }
}

template <class Family, class Simd = Simd<typename Family::Number>>
Status run_forward(const typename Family::Problem& p, Form form, int chunk, const Simd& s, Workspace work) noexcept {
  const bool outputs = Family::has_outputs(p);
  if (const Status bad = check<Family>(p, outputs, form, chunk, false, work); bad != Status::ok) return bad;
  const FlushDenormals flush;
  const PartSizes<Family::parts> sizes{Family::sizes(Family::shape(p))};
  const int heads = linear_of(p).heads;
  Status status = Status::ok;
  const auto all_heads = [&](std::ptrdiff_t index, const Sequence& n, const Schedule& plan, int, auto& run) {
    const auto& own = of_sequence<Family>(index, p, p);
    const auto state = [&](int h) { return sizes.of(Family::state(p), index * heads + h); };
    if constexpr (requires { run.step(own, n, state(0)); })
      if (run.step(own, n, state(0))) return;
    std::ptrdiff_t block = plan.chunked ? plan.segment : plan.block();
    if (plan.scan > 0 || !Family::interleaves) block = n.end - n.begin;
    for (std::ptrdiff_t t = n.begin; t < n.end; t += block)
      for (int h = 0; h < heads; ++h) run.forward(own, {n.row, t, std::min(t + block, n.end)}, h, state(h), outputs);
    if (run.status() != Status::ok) status = run.status();
  };
  for_sequences<Family>(p, form, chunk, false, s, work, all_heads);
  return status;
}

template <class Family, class Simd = Simd<typename Family::Number>>
Status run_backward(const typename Family::Problem& p, const typename Family::Gradient& d, Form form, int chunk,
                    const Simd& s, Workspace work) noexcept {
  if (const Status bad = check<Family>(p, Family::has_d_outputs(d), form, chunk, true, work); bad != Status::ok)
    return bad;
  const FlushDenormals flush;
  const PartSizes<Family::parts> sizes{Family::sizes(Family::shape(p))};
  const int heads = linear_of(p).heads;
  Status status = Status::ok;
  const auto all_heads = [&](std::ptrdiff_t index, const Sequence& n, const Schedule&, int group, auto& run) {
    const auto& own = of_sequence<Family>(index, p, p);
    const auto& own_d = of_sequence<Family>(index, p, d);
    for (int h = 0; h < heads; h += group) {
      const std::ptrdiff_t at = index * heads + h;
      run.backward(own, own_d, n, h, sizes.of(constant(Family::state(p)), at), sizes.of(Family::d_final(d), at),
                   sizes.of(Family::d_initial(d), at), std::min(group, heads - h));
    }
    if (run.status() != Status::ok) status = run.status();
  };
  for_sequences<Family>(p, form, chunk, true, s, work, all_heads);
  return status;
}

}  // namespace ttr::families
