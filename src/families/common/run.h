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
#include "families/common/head_run.h"
#include "families/common/linear.h"
#include "families/common/scan.h"
#include "families/common/schedule.h"
#include "families/common/scratch.h"
#include "simd/denormals.h"
#include "ttr/status.h"

namespace ttr::families {

/// A recurrent form that takes one token of all heads at once: calls of single tokens go to it directly (run_step).
template <class Family>
concept Steps = requires(typename Family::Recurrent& form, const typename Family::Problem& p,
                         const Parts<typename Family::Number, Family::parts>& S) {
  form.step(p, 0, 0, argument(S));
};

template <class Family>
std::size_t run_bytes(const Shape& shape, std::ptrdiff_t longest, Form form, int chunk, bool backward,
                      int workers = 1) noexcept {
  static constexpr Simd<typename Family::Number> none{};
  if constexpr (Steps<Family>)
    if (is_step(form, longest, backward)) {
      Arena arena;
      form_of<typename Family::Recurrent>(none, shape, 1, false, arena);
      return arena.bytes();
    }
  const auto bytes = [&](Form how, std::ptrdiff_t time) {
    std::size_t most = 0;
    for (const int vector_bytes : vector_sizes) {  // of any instruction set
      Arena arena;
      const Schedule plan = schedule<Family>(shape, vector_bytes, how, chunk, time, backward, true);
      if constexpr (present<typename Family::Map>)
        if (plan.scan > 0) ScanRun<Family>(none, shape, plan, time, backward, Team(workers, nullptr), arena);
      if (plan.scan == 0)
        HeadRun<Family>(none, shape, plan, time, backward, arena,
                        heads_together<typename Family::Chunk>(plan, shape.key_dim, shape.value_dim, time),
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

/// bytes(longest): of workspace.
template <class Family, class Bytes>
Status check_with(const typename Family::Problem& p, bool queries, Workspace work, Bytes&& bytes) noexcept {
  const auto& a = linear_of(p);
  const Shape shape = Family::shape(p);
  const Status status =
      check_common(a.sequences, a.heads, a.key_heads, {shape.key_dim, shape.value_dim, shape.depth}, work, bytes);
  if (status != Status::ok || a.sequences.empty()) return status;
  for (const auto* part : Family::state(p))
    if (!part) return Status::missing_input;
  if (longest_of(a.sequences) > 0 && (!a.k || !a.v || (queries && !a.q))) return Status::missing_input;
  return Status::ok;
}
template <class Family>
Status check(const typename Family::Problem& p, bool queries, Form form, int chunk, bool backward,
             Workspace work) noexcept {
  if (form == Form::scan && !present<typename Family::Map>) return Status::not_supported;
  if ((form == Form::chunk || form == Form::parallel) && !present<typename Family::Chunk>)
    return Status::not_supported;
  return check_with<Family>(p, queries, work, [&](std::ptrdiff_t longest) {
    return run_bytes<Family>(Family::shape(p), longest, form, chunk, backward, linear_of(p).team.workers());
  });
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
    const int together = heads_together<typename Family::Chunk>(plan, shape.key_dim, shape.value_dim, time);
    const int group = backward ? std::min(together, linear_of(p).heads) : 1;
    HeadRun<Family> run(s, shape, plan, time, backward, arena, group, team);
    each(static_cast<std::ptrdiff_t>(i), sequences[i], plan, group, run);
  }
}

/// Chunks of a sequence of `time` tokens that a forward leaves in slots for its backward: all but the last, where both go by
/// chunks. *tokens: of each.
template <class Family>
std::ptrdiff_t saved_chunks(const Shape& shape, int vector_bytes, Form form, int chunk, std::ptrdiff_t time,
                            std::ptrdiff_t* tokens) {
  const auto of = [&](bool backward) { return schedule<Family>(shape, vector_bytes, form, chunk, time, backward); };
  const Schedule there = of(false), back = of(true);
  const bool both = there.chunked && back.chunked && there.scan == 0 && back.scan == 0;
  *tokens = back.segment;
  // Shorter chunks may lie in a piece of a call that is too short to go by chunks.
  if (!both || there.whole || back.whole || back.segment < shortest_chunked || time <= back.segment) return 0;
  return (time + back.segment - 1) / back.segment - 1;
}

/// The same as a plan asks for it (family.h).
template <class Family>
SavedChunks saved_of(const Shape& shape, int vector_bytes, Form form, int chunk, std::ptrdiff_t time) {
  SavedChunks found;
  found.count = saved_chunks<Family>(shape, vector_bytes, form, chunk, time, &found.tokens);
  found.slot = slot_shape<Family>(shape, found.tokens).numbers();
  return found;
}

/// Numbers that all heads of such a sequence leave.
template <class Family>
std::ptrdiff_t saved_numbers(const Shape& shape, int heads, int vector_bytes, Form form, int chunk,
                             std::ptrdiff_t time) {
  std::ptrdiff_t tokens = 0;
  const std::ptrdiff_t count = saved_chunks<Family>(shape, vector_bytes, form, chunk, time, &tokens);
  return count == 0 ? 0 : count * heads * slot_shape<Family>(shape, tokens).numbers();
}

/// Whether a run of one head, and not a scan, can leave its chunks in slots.
template <class Family, class Run>
inline constexpr bool keeps_chunks =
    Replays<typename Family::Chunk>&& std::is_same_v<std::remove_cvref_t<Run>, HeadRun<Family>>;

/// The slots of sequence `index` of a problem, head by head; none: it has no room, or the sequence leaves nothing.
template <class Family>
class SlotsOfSequence {
 public:
  using T = typename Family::Number;

  SlotsOfSequence(const typename Family::Problem& p, Form form, int chunk, const Simd<T>& s, std::ptrdiff_t index)
      : saving_(linear_of(p).saving) {
    if (!saving_.data) return;
    Shape whole = Family::shape(p);
    const int width = whole.value_dim, vector_bytes = s.lanes * static_cast<int>(sizeof(T));
    whole.value_dim = saving_.columns;
    const auto length = [&](std::size_t i) {
      return (saving_.whole[i].end - saving_.whole[i].begin) * saving_.pairs;
    };
    const std::size_t own = saving_.first_sequence + static_cast<std::size_t>(index);
    T* data = saving_.data;
    for (std::size_t i = 0; i < own; ++i)
      data += saved_numbers<Family>(whole, saving_.heads, vector_bytes, form, chunk, length(i));
    slots_.count = saved_chunks<Family>(whole, vector_bytes, form, chunk, length(own), &slots_.chunk);
    if (slots_.count == 0) return;
    slots_.shape = slot_shape<Family>(whole, slots_.chunk);
    slots_.stride = saving_.heads * slots_.shape.numbers();
    slots_.columns = saving_.columns, slots_.first_column = saving_.first_column, slots_.width = width;
    slots_.first = saving_.first_column == 0;
    before_ = saving_.before ? saving_.before[own] * saving_.pairs : 0;
    slots_.data = data;
    constexpr std::ptrdiff_t near = 8 * 1024 * 1024;  // bytes
    slots_.far = slots_.count * slots_.stride * static_cast<std::ptrdiff_t>(sizeof(T)) > near;
  }
  /// For tokens from the `passed`-th of the problem on.
  KeptFrom<T> of(int head, std::ptrdiff_t passed) const {
    Slots<T> own = slots_;
    if (own.data) own.data += (saving_.first_head + head) * own.shape.numbers();
    return {own, before_ + passed};
  }
  /// Counted from the first token of the problem on, which begins a chunk.
  Slots<T> from_piece(int head) const {
    Slots<T> own = of(head, 0).slots;
    const std::ptrdiff_t skip = own.data ? before_ / own.chunk : 0;
    if (own.data) own.data += skip * own.stride, own.count -= skip;
    return own;
  }

 private:
  const Saving<T>& saving_;
  Slots<T> slots_;
  std::ptrdiff_t before_ = 0;
};

/// A forward of at most one token of each sequence. A HeadRun, and what chooses its form, would cost as much as a small state.
template <Steps Family>
Status run_step(const typename Family::Problem& p, const Simd<typename Family::Number>& s, Workspace work) noexcept {
  using Recurrent = typename Family::Recurrent;
  const bool outputs = Family::has_outputs(p);
  Arena arena(work);
  Recurrent recurrent = form_of<Recurrent>(s, Family::shape(p), 1, false, arena);
  const auto room = [&](std::ptrdiff_t) { return arena.rest().data ? 0 : work.bytes + 1; };
  if (const Status bad = check_with<Family>(p, outputs, work, room); bad != Status::ok) return bad;
  const FlushDenormals flush;
  const PartSizes<Family::parts> sizes{Family::sizes(Family::shape(p))};
  const auto& a = linear_of(p);
  for (std::size_t i = 0; i < a.sequences.size(); ++i) {
    const Sequence& n = a.sequences[i];
    if (n.begin == n.end) continue;
    const auto index = static_cast<std::ptrdiff_t>(i);
    const auto& own = of_sequence<Family>(index, p, p);
    const auto state = [&](int h) { return sizes.of(Family::state(p), index * a.heads + h); };
    if (recurrent.step(own, n.row, n.begin, argument(state(0)))) continue;
    for (int h = 0; h < a.heads; ++h) recurrent.forward(own, n.row, n.begin, n.end, h, argument(state(h)), outputs);
  }
  if constexpr (requires { recurrent.status(); }) return recurrent.status();
  return Status::ok;
}

template <class Family, class Simd = Simd<typename Family::Number>>
Status run_forward(const typename Family::Problem& p, Form form, int chunk, const Simd& s, Workspace work) noexcept {
  if constexpr (Steps<Family>)
    if (is_step(form, longest_of(linear_of(p).sequences), false)) return run_step<Family>(p, s, work);
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
    std::ptrdiff_t block = plan.chunked ? plan.turn : plan.block();
    if (plan.scan > 0 || !Family::interleaves) block = n.end - n.begin;
    const auto all = [&](const auto&... more) {
      for (std::ptrdiff_t t = n.begin; t < n.end; t += block)
        for (int h = 0; h < heads; ++h)
          run.forward(own, {n.row, t, std::min(t + block, n.end)}, h, state(h), outputs, more(h, t)...);
    };
    if constexpr (keeps_chunks<Family, decltype(run)>) {
      const SlotsOfSequence<Family> slots(p, form, chunk, s, index);
      all([&](int h, std::ptrdiff_t t) { return slots.of(h, t - n.begin); });
      run.flush();
    } else {
      all();
    }
    if (run.status() != Status::ok) status = run.status();
  };
  for_sequences<Family>(p, form, chunk, false, s, work, all_heads);
  return status;
}

/// The rows of a sequence of gradients that hold nothing yet.
template <class Problem, class Gradient>
void clear_fresh(const Problem& p, const Gradient& gradient, const Sequence& n) {
  const auto& d = linear_of(gradient);
  if (d.fresh == 0) return;
  using Roles = std::remove_cvref_t<decltype(d)>;
  const auto& a = linear_of(p);
  const auto clear = [&](unsigned role, const auto& rows, int heads, int dim) {
    for (int h = 0; (d.fresh & role) && h < heads; ++h) clear_rows(rows, n.row, n.begin, n.end - n.begin, h, dim);
  };
  clear(Roles::fresh_q, d.d_q, a.key_heads, a.key_dim), clear(Roles::fresh_k, d.d_k, a.key_heads, a.key_dim);
  clear(Roles::fresh_v, d.d_v, a.heads, a.value_dim);
  if constexpr (requires { gradient.d_gk; }) clear(Roles::fresh_gk, gradient.d_gk, a.heads, a.key_dim);
  if constexpr (requires { gradient.d_a; })
    clear(Roles::fresh_a, gradient.d_a, a.heads, a.key_dim), clear(Roles::fresh_b, gradient.d_b, a.heads, a.key_dim);
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
    bool clears = false;
    if constexpr (keeps_chunks<Family, decltype(run)>) clears = run.clears();
    if (!clears) clear_fresh(own, own_d, n);
    for (int h = 0; h < heads; h += group) {
      const std::ptrdiff_t at = index * heads + h;
      const auto back = [&](const auto&... more) {
        run.backward(own, own_d, n, h, sizes.of(constant(Family::state(p)), at), sizes.of(Family::d_final(d), at),
                     sizes.of(Family::d_initial(d), at), std::min(group, heads - h), more...);
      };
      if constexpr (keeps_chunks<Family, decltype(run)>) {
        const SlotsOfSequence<Family> slots(p, form, chunk, s, index);
        back([&](int other) { return slots.from_piece(h + other); });
      } else {
        back();
      }
    }
    if (run.status() != Status::ok) status = run.status();
  };
  for_sequences<Family>(p, form, chunk, true, s, work, all_heads);
  return status;
}

}  // namespace ttr::families
