// One head of one sequence, start to end and back, in the forms that a family defines (schedule.h). Backwards, chunks start from
// the states that forward has left in slots (saved.h) or that are found again here; decayed sums may go by sweeps instead.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <type_traits>

#include "families/common/parts.h"
#include "families/common/replay.h"
#include "families/common/saved.h"
#include "families/common/schedule.h"
#include "families/common/scratch.h"
#include "families/common/team.h"
#include "simd/simd.h"

namespace ttr::families {

/// Whether parts of time add to the same gradient: a gate or a bonus that is constant in time.
template <class Gradient>
bool sums_over_time(const Gradient& d) {
  const auto shared = [](const auto& view) { return view && view.stride[1] == 0; };
  const auto& a = linear_of(d);
  bool any = shared(a.d_q) || shared(a.d_k) || shared(a.d_v) || shared(a.d_g) || shared(a.d_beta);
  if constexpr (requires { d.d_gk; }) any = any || shared(d.d_gk);
  if constexpr (requires { d.d_gv; }) any = any || shared(d.d_gv);
  if constexpr (requires { d.d_a; }) any = any || shared(d.d_a) || shared(d.d_b);
  if constexpr (requires { d.d_bonus; }) any = any || d.d_bonus;
  return any;
}

/// Whether the gradients of a sequence are more than caches hold: rows that are written once then go past them.
template <class Gradient>
bool gradients_far(const Gradient& d, const Sequence& n) {
  constexpr std::ptrdiff_t near = 4 * 1024 * 1024;  // bytes of one tensor
  const auto& a = linear_of(d);
  const std::ptrdiff_t row = std::max({a.d_q.stride[1], a.d_k.stride[1], a.d_v.stride[1]});
  return (n.end - n.begin) * row * static_cast<std::ptrdiff_t>(sizeof(*a.d_v.data)) >= near;
}

/// One head of one sequence, start to end and back. A step is a chunk or a token.
template <class Family>
class HeadRun {
 public:
  using T = typename Family::Number;
  using Problem = typename Family::Problem;
  using Gradient = typename Family::Gradient;
  using Chunk = typename Family::Chunk;
  using Recurrent = typename Family::Recurrent;
  using Size = std::ptrdiff_t;
  static constexpr std::size_t P = Family::parts;
  using State = Parts<T, P>;
  using Kept = Parts<const T, P>;

  HeadRun(const Simd<T>& s, const Shape& shape_, Schedule plan, Size time, bool backward, Arena& arena,
          Size together = 1, const Team& workers = {})
      : simd(s),
        shape(shape_),
        whole(plan.whole),
        team(workers),
        sizes{Family::sizes(shape)},
        state(sizes.total()),
        by_chunks(plan.chunked || !present<Recurrent>),
        step_tokens(plan.chunked ? plan.segment : 1),
        piece_tokens(plan.chunked ? plan.piece : 1) {
    if (by_chunks) make(chunk, s, shape, step_tokens, backward, arena);
    else make(recurrent, s, shape, time, backward, arena);
    if constexpr (requires { chunk->by_products(); })
      if (plan.whole) chunk->by_products();
    if (!backward) return;
    const Size count = HasPieces<Chunk> ? time : (time + step_tokens - 1) / step_tokens;
    d_state = arena.take<T>(together * state);
    if constexpr (Replays<Chunk>)
      if (by_chunks) {
        own_slots.shape = slot_shape<Family>(shape, step_tokens);
        own_slots.stride = own_slots.shape.numbers(), own_slots.chunk = step_tokens,
        own_slots.columns = own_slots.width = shape.value_dim;
        own_slots.data = arena.take<T>(together * std::max<Size>(0, count - 1) * own_slots.stride),
        own_slots.count = count - 1;
        moving = arena.take<T>(together * state), last_rows = arena.take<T>(together * own_slots.shape.rows);
        if constexpr (SweepsBack<Chunk>)
          longest = time, gate_dots = arena.take<T>(together * 4 * time), d_end = arena.take<T>(together * 3 * state),
          crossing = arena.take<T>(together * count);
        if constexpr (BackInTwo<Chunk>)
          if (team.workers() > 1) {
            passed = Chunk::passed(shape.value_dim, step_tokens), all_passed = count * passed;
            all_borders = (count + 1) * state;
            d_borders = arena.take<T>(together * all_borders), pass = arena.take<T>(together * all_passed);
            Arena one;
            std::optional<Chunk> counted;
            make(counted, s, shape, step_tokens, true, one);
            rooms.emplace(team.workers(), one.bytes(), arena);
          }
        return;
      }
    if (HasPieces<Chunk>) begins = arena.take<Size>(count + 1);
    replay.emplace(sizes.size, count, !plan.chunked ? plan.segment : Family::keeps_borders ? count : 0, arena);
  }

  void forward(const Problem& p, const Sequence& n, int head, const State& S, bool outputs) {
    advance(p, n.row, n.begin, n.end, head, S, outputs);
  }
  /// The same, with what backward wants left in the slots, if there are any.
  void forward(const Problem& p, const Sequence& n, int head, const State& S, bool outputs,
               const KeptFrom<T>& keep) requires(Replays<Chunk>) {
    if (keep.slots && by_chunks)
      advance_and_keep(*chunk, p, n.row, n.begin, n.end, head, argument(S), outputs, keep.slots, keep.passed);
    else advance(p, n.row, n.begin, n.end, head, S, outputs);
  }
  /// At the end of a call: what was left in slots is there for other threads.
  void flush() const requires(Replays<Chunk>) {
    if (by_chunks) chunk->flush();
  }

  /// One token of all heads at once, S [heads, ..], where the family can; false: nothing was done.
  bool step([[maybe_unused]] const Problem& p, [[maybe_unused]] const Sequence& n, [[maybe_unused]] const State& S) {
    if constexpr (requires { recurrent->step(p, n.row, n.begin, argument(S)); })
      return !by_chunks && n.end - n.begin == 1 && recurrent->step(p, n.row, n.begin, argument(S));
    return false;
  }

  /// `heads` of them from `head` on, no more than were said to go together; the states of a head follow each other.
  /// slots(h): what forward has left of head `head` + h, if anything.
  template <class SlotsOf>
  void backward(const Problem& p, const Gradient& d, const Sequence& n, int head, const Kept& initial,
                const Kept& d_final, const State& d_initial, int heads, const SlotsOf& slots) {
    for (int h = 0; h < heads; ++h) saved[static_cast<std::size_t>(h)] = slots(h);
    backward(p, d, n, head, initial, d_final, d_initial, heads);
  }
  void backward(const Problem& p, const Gradient& d, const Sequence& n, int head, const Kept& initial,
                const Kept& d_final, const State& d_initial, int heads = 1) {
    for (int h = 0; h < heads; ++h) sizes.gather(sizes.of(d_final, h), d_state + h * state);
    far = gradients_far(d, n);
    if constexpr (WritesFar<Chunk>)
      if (chunk) chunk->write_far(far);
    bool done = false;
    if constexpr (Replays<Chunk>)
      if (by_chunks) {
        done = true;
        int first = 0;
        if constexpr (SweepsBack<Chunk>)
          while (first < heads &&
                 n.begin < n.end) {  // heads of the same way follow each other, or have a turn of their own
            const auto sweeps = [&](int h) { return chunk->sweeps_back(p, d, n, head + h); };
            const bool swept = sweeps(first);
            int end = first + 1;
            while (end < heads && sweeps(end) == swept) ++end;
            if (swept) sweep_and_back(p, d, n, head, first, end, initial[0], d_final[0] != nullptr);
            else back_by_products(p, d, n, head, first, end, initial[0]);
            first = end;
          }
        if (first < heads) back_by_products(p, d, n, head, first, heads, initial[0]);
      }
    if (!done) replay_and_back(p, d, n, head, initial);
    for (int h = 0; h < heads; ++h) {
      const State from = sizes.at(d_state, h), to = sizes.of(d_initial, h);
      for (std::size_t part = 0; part < P; ++part)
        if (to[part]) simd.axpy(sizes.size[part], T(1), from[part], to[part]);
    }
    if constexpr (WritesFar<Chunk>)
      if (chunk && far) chunk->flush();
  }

  /// Whether backward() clears the rows of gradients that hold nothing yet.
  bool clears() const { return Replays<Chunk> && by_chunks; }

  Status status() const {
    if constexpr (requires { recurrent->status(); }) return recurrent->status();
    return Status::ok;
  }

 private:
  template <class Form>
  static void make(std::optional<Form>& form, const Simd<T>& s, const Shape& x, Size most, bool backward,
                   Arena& arena) {
    if constexpr (std::is_constructible_v<Form, const Simd<T>&, const Shape&, Size, bool, Arena&>)
      form.emplace(s, x, most, backward, arena);
    else if constexpr (present<Form>) form.emplace(s, x.key_dim, x.value_dim, most, backward, arena);
  }

  void advance(const Problem& p, Size row, Size begin, Size end, int head, const State& S, bool outputs) {
    if constexpr (present<Chunk>)
      for (Size c; by_chunks && begin < end; begin += c) {
        c = tokens_at(p, begin, end);
        chunk->forward(p, row, begin, c, head, argument(S), outputs);
      }
    if constexpr (present<Recurrent>)
      if (!by_chunks) recurrent->forward(p, row, begin, end, head, argument(S), outputs);
  }

  // Tokens begin .. end-1, of which `at` is the number of the first in its sequence: the chunks of the forward pass, one after
  // the other. The replay of the backward pass is this too, without outputs.
  void advance_and_keep(Chunk& own_chunk, const Problem& p, Size row, Size begin, Size end, int head, T* S,
                        bool outputs, const Slots<T>& slots, Size at) {
    const auto copy = [&](Size n, const T* from, T* to) {
      if (slots.far) own_chunk.stream(n, from, to);
      else std::copy_n(from, n, to);
    };
    for (Size c; begin < end; begin += c, at += c) {
      c = std::min(piece_tokens, end - begin);
      const TokenRows<T> rows = slots.rows_at(at);
      // Rows that go past the caches are gathered first: a line of them is written at once.
      const bool gathered = slots.far && rows.data && rows.ld == shape.value_dim;
      const bool kept = own_chunk.forward(p, row, begin, c, head, S, outputs,
                                          gathered ? TokenRows<T>{own_chunk.rows(), rows.ld} : rows);
      if (gathered) copy(c * rows.ld, own_chunk.rows(), rows.data);
      slots.passed(at, c, kept, shape.key_dim, S, copy);
    }
  }

  Size tokens_at([[maybe_unused]] const Problem& p, Size begin, Size end) const {
    if constexpr (HasPieces<Chunk>) return chunk->piece(p, begin, end);
    else return std::min(step_tokens, end - begin);
  }

  void replay_and_back(const Problem& p, const Gradient& d, const Sequence& n, int head, const Kept& initial) {
    Size count = (n.end - n.begin + step_tokens - 1) / step_tokens;
    if constexpr (HasPieces<Chunk>) {
      count = 0;
      for (Size t = n.begin; t < n.end; t += tokens_at(p, t, n.end)) begins[count++] = t;
      begins[count] = n.end;
    }
    const auto begin_of = [&](Size i) {
      return HasPieces<Chunk> ? begins[i] : std::min(n.begin + i * step_tokens, n.end);
    };
    const State d_S = sizes.at(d_state);
    replay->run_ranges(
        count, initial,
        [&](Size first, Size end, const State& S) {
          advance(p, n.row, begin_of(first), begin_of(end), head, S, false);
        },
        [&](Size i, const Kept& old, const Kept& now) {
          const Size begin = begin_of(i);
          if constexpr (present<Chunk> && !Replays<Chunk>)
            if (by_chunks)
              chunk->backward(p, d, n.row, begin, begin_of(i + 1) - begin, head, argument(old), argument(now),
                              argument(d_S));
          if constexpr (present<Recurrent>)
            if (!by_chunks)
              recurrent->backward(p, d, n.row, begin, head, argument(old), argument(now), argument(d_S));
        });
    if constexpr (requires { chunk->close(p, argument(d_S)); })
      if (count > 0) chunk->close(p, argument(d_S));
  }

  // Heads head+first .. head+end-1 of those that go together; `initial` is the state of `head`.
  void back_by_products(const Problem& p, const Gradient& d, const Sequence& n, int head, int first, int end,
                        const T* initial) {
    if constexpr (BackInTwo<Chunk>)
      if (team.workers() > 1 && !sums_over_time(d)) return back_in_team(p, d, n, head, first, end, initial);
    keep_and_back(p, d, n, head, first, end, initial);
  }

  // The same by sweeps. Their three parts touch neither each other's states nor gradients, so a team takes them as they are;
  // the heads of a key head stay together, in their order. The gradients of gates need two of them.
  void sweep_and_back(const Problem& p, const Gradient& d, const Sequence& n, int head, int first, int end,
                      const T* initial, bool has_end) {
    const Size time = n.end - n.begin, count = (time + step_tokens - 1) / step_tokens;
    const bool of_gates = static_cast<bool>(d.d_g);
    const int K = shape.key_dim, V = shape.value_dim, group = p.heads / p.key_heads;
    std::array<double, most_together> across{};
    const auto begin_of = [&](Size i) { return n.begin + i * step_tokens; };
    const auto length_of = [&](Size i) { return std::min(step_tokens, n.end - begin_of(i)); };
    const auto sums = [&](int h) { return d_end + (3 * h + 1) * state; };  // Z, and behind it E
    const auto dots = [&](int h, Size of_keys) { return gate_dots + (4 * h + of_keys) * longest; };
    const auto step_dots = [&](int h) { return gate_dots + (4 * h + 2) * longest; };  // of every part of the values
    const int cut = chunk->by_sweeps().value_parts();
    // S behind chunk i, dS in front of it, and their product, which the gate of its first token gets.
    const auto border = [&](Size i, int h) { return own_slots.data + (h * own_slots.count + i) * own_slots.stride; };
    const auto d_border = [&](Size i, int h) { return d_borders + h * all_borders + i * state; };
    const auto crosses = [&](Size i, int h) -> T& {
      return crossing[h * ((longest + step_tokens - 1) / step_tokens) + i];
    };
    bool alone = true;
    for (int h = first; h < end; ++h) {
      simd.transpose(K, V, initial + h * state, V, sums(h), K);
      simd.transpose(K, V, d_state + h * state, V, sums(h) + state, K);
      std::copy_n(sums(h) + state, state, d_end + 3 * h * state);
    }
    const auto queries = [&](Chunk& own, Size i, int h) {
      Size begin = begin_of(i), length = length_of(i);
      const auto tokens = [&](Size c) {
        if (c > 0)
          own.by_sweeps().through_queries(p, d, n.row, begin, c, head + h, sums(h),
                                          of_gates ? dots(h, 0) + (begin - n.begin) : nullptr);
        begin += c, length -= c;
      };
      if (of_gates && has_end && i + 1 == count) {
        tokens(length - 1);
        across[static_cast<std::size_t>(h)] = std::exp(static_cast<double>(p.g(n.row, begin, head + h))) *
                                              static_cast<double>(simd.dot(state, sums(h), d_end + 3 * h * state));
      }
      tokens(length);
      if (!of_gates || i + 1 == count) return;
      if (far) own.stream(state, sums(h), border(i, h));
      else std::copy_n(sums(h), state, border(i, h));
    };
    const auto values_of = [&](int from, int to) {
      return [&, from, to](Chunk& own, Size i, int h) {
        own.by_sweeps().through_values(p, d, n.row, begin_of(i), length_of(i), head + h, from, to,
                                       d_state + h * state,
                                       d.d_beta ? step_dots(h) + (begin_of(i) - n.begin) : nullptr, longest);
      };
    };
    const auto values = values_of(0, cut);
    const auto keys = [&](Chunk& own, Size i, int h) {
      own.by_sweeps().through_keys(p, d, n.row, begin_of(i), length_of(i), head + h, i + 1 == count, sums(h) + state,
                                   of_gates ? dots(h, 1) + (begin_of(i) - n.begin) : nullptr);
      if (!of_gates || i == 0) return;
      if (alone) crosses(i, h) = simd.dot(state, border(i - 1, h), sums(h) + state);
      else std::copy_n(sums(h) + state, state, d_border(i, h));
    };
    const bool asks = d.d_q || of_gates, writes = d.d_k || of_gates;
    const auto forwards = [&](Chunk& own, const auto& part, int from, int to) {
      for (Size i = 0; i < count; ++i)
        for (int h = from; h < to; ++h) part(own, i, h);
    };
    const auto backwards = [&](Chunk& own, int from, int to, const auto&... parts) {
      for (Size i = count; i-- > 0;)
        for (int h = from; h < to; ++h) (parts(own, i, h), ...);
    };
    if constexpr (BackInTwo<Chunk>)
      if (team.workers() > 1) {
        alone = false;
        // The heads of a key head, of which the first and the last may have others beside these.
        const auto group_of = [&](int h) { return (head + h) / group - (head + first) / group; };
        const int groups = group_of(end - 1) + 1;
        const auto start_of = [&](int g) { return std::max(first, ((head + first) / group + g) * group - head); };
        const auto stop_of = [&](int g) { return g + 1 == groups ? end : start_of(g + 1); };
        team.each(2 * groups + cut * (end - first), [&](Size part, int worker) {
          Arena arena = rooms->of(worker);
          std::optional<Chunk> own;
          make(own, simd, shape, step_tokens, true, arena);
          if constexpr (WritesFar<Chunk>) own->write_far(far);
          const int g = static_cast<int>(part % groups), of_values = static_cast<int>(part) - 2 * groups;
          if (part < groups && asks) forwards(*own, queries, start_of(g), stop_of(g));
          else if (part >= groups && part < 2 * groups && writes) backwards(*own, start_of(g), stop_of(g), keys);
          else if (part >= 2 * groups)
            backwards(*own, first + of_values / cut, first + of_values / cut + 1,
                      values_of(of_values % cut, of_values % cut + 1));
          if constexpr (WritesFar<Chunk>) own->flush();
        });
      }
    if (alone && asks) forwards(*chunk, queries, first, end);
    if (alone && writes) backwards(*chunk, first, end, values, keys);
    else if (alone) backwards(*chunk, first, end, values);
    for (int h = first; d.d_beta && h < end; ++h)
      for (Size i = 0; i < time; ++i) {
        T sum = step_dots(h)[i];
        for (int part = 1; part < cut; ++part) sum += step_dots(h)[part * longest + i];
        d.d_beta(n.row, n.begin + i, head + h) += sum;
      }
    for (int h = first; of_gates && h < end; ++h) {
      double sum = across[static_cast<std::size_t>(h)];
      for (Size i = time; i-- > 0;) {
        sum += static_cast<double>(dots(h, 0)[i]) - static_cast<double>(dots(h, 1)[i]);
        if (i > 0 && i % step_tokens == 0) {  // what the sum has lost so far ends here
          const Size at = i / step_tokens;
          if (!alone) crosses(at, h) = simd.dot(state, border(at - 1, h), d_border(at, h));
          sum = static_cast<double>(crosses(at, h));
        }
        d.d_g(n.row, n.begin + i, head + h) += static_cast<T>(sum);
      }
    }
  }

  // A chunk of the sequence backwards: the state in front of it, and the rows that were kept; null: they were not.
  struct Before {
    const T *state, *rows;
  };
  // The slots of head `head` + h and what else a replay leaves of it.
  const Slots<T> slots_of(int h, Size count) const {
    if (saved[static_cast<std::size_t>(h)]) return saved[static_cast<std::size_t>(h)];
    Slots<T> scratch = own_slots;
    scratch.data += h * own_slots.count * own_slots.stride, scratch.count = count - 1;
    return scratch;
  }
  Before before(const Slots<T>& slots, Size i, int h, const T* initial) const {
    const T* const start = i == 0 ? initial : slots.state(i - 1);
    if (own_slots.shape.rows == 0) return {start, nullptr};
    if (i >= slots.count)
      return {start, last_kept[static_cast<std::size_t>(h)] ? last_rows + h * own_slots.shape.rows : nullptr};
    return {start, slots.filled(i) != T(0) ? slots.rows(i).data : nullptr};
  }
  // Finds again what no forward has left: the slots of all chunks, or nothing; then the rows of the last one.
  template <class Reach>
  void replay_chunks(Chunk& own_chunk, const Problem& p, const Sequence& n, int head, int h, const T* initial,
                     const Slots<T>& slots, Size first, Size end, const Reach& reach) {
    const auto begin_of = [&](Size i) { return n.begin + i * step_tokens; };
    const bool found = static_cast<bool>(saved[static_cast<std::size_t>(h)]);
    T* const S = moving + h * state;
    for (Size i = first; i < end; reach(++i)) {
      const bool last = i >= slots.count;
      if (last && own_slots.shape.rows == 0) continue;
      if (!last && found) continue;
      if (i == 0 || found) std::copy_n(i == 0 ? initial : slots.state(i - 1), state, S);
      if (!last) {
        advance_and_keep(own_chunk, p, n.row, begin_of(i), begin_of(i + 1), head + h, S, false, slots,
                         i * step_tokens);
        continue;
      }
      bool all = true;
      T* const rows = last_rows + h * own_slots.shape.rows;
      for (Size at = 0, c; begin_of(i) + at < n.end; at += c) {
        c = std::min(piece_tokens, n.end - begin_of(i) - at);
        all &= own_chunk.forward(p, n.row, begin_of(i) + at, c, head + h, S, false,
                                 {rows + at * shape.value_dim, shape.value_dim});
      }
      last_kept[static_cast<std::size_t>(h)] = all;
    }
  }

  void keep_and_back(const Problem& p, const Gradient& d, const Sequence& n, int head, int first, int end,
                     const T* initial) {
    const Size count = (n.end - n.begin + step_tokens - 1) / step_tokens;
    const auto nothing = [](Size) {};
    std::array<Slots<T>, most_together> slots;
    bool all_found = true;
    for (int h = first; h < end; ++h) {
      slots[static_cast<std::size_t>(h)] = slots_of(h, count);
      all_found = all_found && saved[static_cast<std::size_t>(h)];
    }
    for (Size i = all_found ? std::max<Size>(0, count - 1) : 0; i < count; ++i)
      for (int h = first; h < end; ++h)
        replay_chunks(*chunk, p, n, head, h, initial + h * state, slots[static_cast<std::size_t>(h)], i, i + 1,
                      nothing);
    for (Size i = count; i-- > 0;)
      for (int h = first; h < end; ++h) {
        const Size begin = n.begin + i * step_tokens, length = std::min(step_tokens, n.end - begin);
        const Slots<T>& left = slots[static_cast<std::size_t>(h)];
        const Before from = before(left, i, h, initial + h * state);
        // What the chunk in front of this one will want, if it is not at hand anyway.
        if (i > 1) chunk->expect(left.state(i - 2), left.rows(i - 1).data, left.shape);
        else chunk->expect(nullptr, nullptr, left.shape);
        chunk->backward(p, d, n.row, begin, length, head + h, from.state, nullptr, d_state + h * state, from.rows);
      }
  }

  // The same by a team. For every head a part takes dS through all chunks and leaves it at their borders, and another
  // replays; what is left of some chunks, for all heads, is a part that follows them as they go. Heads that share a
  // gradient add to it in their order, as they do above.
  void back_in_team(const Problem& p, const Gradient& d, const Sequence& n, int head, int first, int end,
                    const T* initial) {
    const Size count = (n.end - n.begin + step_tokens - 1) / step_tokens;
    const int heads = end - first;
    const Size block = std::clamp<Size>(count / 32, 1, 4), blocks = (count + block - 1) / block;
    std::array<Progress, most_together> replayed, gone_back;
    const auto d_border = [&](Size i, int h) { return d_borders + h * all_borders + i * state; };
    const auto passed_of = [&](Size i, int h) { return pass + h * all_passed + i * passed; };
    const auto begin_of = [&](Size i) { return n.begin + i * step_tokens; };
    const auto length_of = [&](Size i) { return std::min(step_tokens, n.end - begin_of(i)); };
    team.each(2 * heads + blocks, [&](Size part, int worker) {
      Arena arena = rooms->of(worker);
      std::optional<Chunk> own_chunk;
      make(own_chunk, simd, shape, step_tokens, true, arena);
      if constexpr (requires { own_chunk->by_products(); })
        if (whole) own_chunk->by_products();
      if constexpr (WritesFar<Chunk>) own_chunk->write_far(far);
      if (part < heads) {
        const int h = first + static_cast<int>(part);
        T* const d_S = d_state + h * state;
        std::copy_n(d_S, state, d_border(count, h));
        for (Size i = count; i-- > 0; gone_back[static_cast<std::size_t>(h)].reach(count - i))
          own_chunk->back_state(p, d, n.row, begin_of(i), length_of(i), head + h, d_border(i + 1, h), d_border(i, h),
                                passed_of(i, h));
        std::copy_n(d_border(0, h), state, d_S);
      } else if (part < 2 * heads) {
        const int h = first + static_cast<int>(part) - heads;
        replay_chunks(*own_chunk, p, n, head, h, initial + h * state, slots_of(h, count), 0, count,
                      [&](Size i) { replayed[static_cast<std::size_t>(h)].reach(i); });
      } else {
        const Size stop = (blocks - (part - 2 * heads)) * block;
        for (Size i = std::min(stop, count); i-- > stop - block;)
          for (int h = first; h < end; ++h) {
            replayed[static_cast<std::size_t>(h)].wait(i + 1), gone_back[static_cast<std::size_t>(h)].wait(count - i);
            const Before from = before(slots_of(h, count), i, h, initial + h * state);
            own_chunk->back_rest(p, d, n.row, begin_of(i), length_of(i), head + h, from.state, d_border(i + 1, h),
                                 from.rows, passed_of(i, h));
          }
        if constexpr (WritesFar<Chunk>) own_chunk->flush();
      }
    });
  }

  static constexpr int most_together = 8;
  const Simd<T>& simd;
  Shape shape;
  bool whole;
  Team team;
  PartSizes<P> sizes;
  Size state;
  bool by_chunks;
  Size step_tokens, piece_tokens;
  std::optional<Chunk> chunk;
  std::optional<Recurrent> recurrent;
  std::optional<Replay<T, P>> replay;
  T* d_state = nullptr;
  bool far = false;                           // gradients are more than caches hold
  Slots<T> own_slots;                         // of a replay, head behind head; what it has besides
  T *moving = nullptr, *last_rows = nullptr;  // its state; rows of the last chunk, if they were kept
  std::array<bool, most_together> last_kept{};
  std::array<Slots<T>, most_together> saved{};                    // what forward has left of the heads at hand
  T *gate_dots = nullptr, *d_end = nullptr, *crossing = nullptr;  // of sweeps back
  Size longest = 0;
  T *d_borders = nullptr, *pass = nullptr;  // of a team: dS at the borders, and what back_state leaves to back_rest
  std::optional<Rooms> rooms;
  Size* begins = nullptr;
  Size all_borders = 0, passed = 0, all_passed = 0;
};

}  // namespace ttr::families
