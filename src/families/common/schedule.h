// How a sequence is cut, and one head of it from start to end and back.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/common/choice.h"
#include "families/common/linear.h"
#include "families/common/scratch.h"
#include "simd/simd.h"

namespace ttr::families {

inline constexpr std::ptrdiff_t scan_parts = 8;  // segments of Form::scan, unless their length is given

struct Schedule {
  bool chunked;
  std::ptrdiff_t segment;   // tokens per chunk, or between stored states
  std::ptrdiff_t scan = 0;  // tokens per segment of Form::scan
  bool whole = false;  // one chunk of all tokens, by matrix products: Form::parallel, or a chunk asked to be so long
  /// Tokens one head runs through before the next head has its turn: whole chunks.
  std::ptrdiff_t block() const { return std::max<std::ptrdiff_t>(1, 256 / segment) * segment; }
};

inline Schedule schedule(const Choice& best, Form form, int chunk, std::ptrdiff_t time) {
  time = std::max<std::ptrdiff_t>(time, 1);
  if (form == Form::best) form = time < shortest_chunked ? Form::recurrent : best.form;
  if (form == Form::parallel) return {true, time, 0, true};
  if (form == Form::chunk)
    return {true, std::min<std::ptrdiff_t>(chunk > 0 ? chunk : best.chunk, time), 0, chunk >= time};
  if (form == Form::scan) {
    const std::ptrdiff_t inner = best.chunk, share = (time + scan_parts - 1) / scan_parts;
    const std::ptrdiff_t length = std::min(chunk > 0 ? chunk : (share + inner - 1) / inner * inner, time);
    return {true, std::min(inner, length), length};
  }
  const auto root = static_cast<std::ptrdiff_t>(std::ceil(std::sqrt(static_cast<double>(time))));
  return {false, std::min<std::ptrdiff_t>(chunk > 0 ? chunk : root, time)};
}

/// A chunk form whose backward pass keeps more than the states: replay() takes the place of forward().
template <class Chunk>
concept Replays = requires {
  &Chunk::replay;
};

/// One that also has its own layout of the states it replays (start() makes the first) takes several heads backwards
/// through a chunk before the chunk in front of it: their rows share pages of memory, and looking up a page can cost
/// more than fetching the row. Until then each of them keeps its states.
template <class Chunk>
concept GroupsHeads = Replays<Chunk> && requires {
  &Chunk::start;
};
template <class Chunk>
int heads_together(const Schedule& plan, int K, int V, std::ptrdiff_t time) {
  const bool several = GroupsHeads<Chunk> && plan.chunked && plan.segment < time;
  return several ? std::clamp(256 / std::max(K, V), 1, 8) : 1;
}

/// One head of one sequence, start to end and back.
template <class Family>
class HeadRun {
 public:
  using T = typename Family::Number;
  using Problem = typename Family::Problem;
  using Gradient = typename Family::Gradient;
  using Size = std::ptrdiff_t;

  HeadRun(const Simd<T>& s, int key_dim, int value_dim, Schedule plan, Size time, bool backward, Arena& arena,
          Size together = 1)
      : simd(s),
        state(Size{key_dim} * value_dim),
        segment(plan.segment),
        chunked(plan.chunked),
        chunk(s, key_dim, value_dim, plan.chunked ? plan.segment : 0, backward, arena),
        recurrent(s, key_dim, value_dim, plan.chunked ? 0 : time, backward, arena) {
    if constexpr (requires { chunk.by_products(); })
      if (plan.whole) chunk.by_products();
    if (!backward) return;
    if (!chunked) together = 1, inside = arena.take<T>((segment + 1) * state);
    const Size count = (time + segment - 1) / segment;
    all_borders = (count + 1) * state;
    if constexpr (replays) kept = chunked ? Family::Chunk::kept(value_dim, segment) : 0, all_kept = count * kept;
    d_state = arena.take<T>(together * state), borders = arena.take<T>(together * all_borders);
    keep = arena.take<T>(together * all_kept);
  }

  void forward(const Problem& p, const Sequence& n, int head, T* S) {
    const bool outputs = static_cast<bool>(p.o);
    if (!chunked) return recurrent.forward(p, n.row, n.begin, n.end, head, S, outputs);
    for (Size t = n.begin; t < n.end; t += segment) advance(p, n, t, head, S, outputs);
  }

  /// One token of all heads at once, S [heads, K, V], where the family can; false: nothing was done.
  bool step([[maybe_unused]] const Problem& p, [[maybe_unused]] const Sequence& n, [[maybe_unused]] T* S) {
    if constexpr (requires { recurrent.step(p, n.row, n.begin, S); })
      return !chunked && n.end - n.begin == 1 && recurrent.step(p, n.row, n.begin, S);
    return false;
  }

  /// `heads` of them from `head` on, no more than were said to go together; the states of a head follow each other.
  void backward(const Problem& p, const Gradient& d, const Sequence& n, int head, const T* initial, const T* d_final,
                T* d_initial, int heads = 1) {
    if (d_final) std::copy_n(d_final, heads * state, d_state);
    else std::fill_n(d_state, heads * state, T(0));
    const Size count = (n.end - n.begin + segment - 1) / segment;
    if constexpr (replays) {
      if (chunked) replay_and_back(p, d, n, head, heads, count, initial);
      else through(p, d, n, head, count, initial);
    } else {
      through(p, d, n, head, count, initial);
    }
    if (d_initial) simd.axpy(heads * state, T(1), d_state, d_initial);
  }

 private:
  static constexpr bool replays = Replays<typename Family::Chunk>;

  void through(const Problem& p, const Gradient& d, const Sequence& n, int head, Size count, const T* initial) {
    std::copy_n(initial, state, borders);
    for (Size i = 0; i < count; ++i) {
      T* const next = borders + (i + 1) * state;
      std::copy_n(next - state, state, next);
      advance(p, n, n.begin + i * segment, head, next, false);
    }
    for (Size i = count; i-- > 0;) {
      const Size begin = n.begin + i * segment, length = std::min(segment, n.end - begin);
      const T* const start = borders + i * state;
      if constexpr (!replays) {
        if (chunked) {
          chunk.backward(p, d, n.row, begin, length, head, start, start + state, d_state);
          continue;
        }
      }
      std::copy_n(start, state, inside);
      for (Size j = 0; j < length; ++j) {
        std::copy_n(inside + j * state, state, inside + (j + 1) * state);
        recurrent.forward(p, n.row, begin + j, begin + j + 1, head, inside + (j + 1) * state, false);
      }
      for (Size j = length; j-- > 0;)
        recurrent.backward(p, d, n.row, begin + j, head, inside + j * state, inside + (j + 1) * state, d_state);
    }
  }

  void replay_and_back(const Problem& p, const Gradient& d, const Sequence& n, int head, int heads, Size count,
                       const T* initial) {
    for (int h = 0; h < heads; ++h) {
      if constexpr (GroupsHeads<typename Family::Chunk>) chunk.start(initial + h * state, borders + h * all_borders);
      else std::copy_n(initial + h * state, state, borders + h * all_borders);
    }
    const auto border = [&](Size i, int h) { return borders + h * all_borders + i * state; };
    const auto kept_of = [&](Size i, int h) { return keep + h * all_kept + i * kept; };
    for (Size i = 0; i < count; ++i)
      for (int h = 0; h < heads; ++h) {
        const Size begin = n.begin + i * segment, length = std::min(segment, n.end - begin);
        chunk.replay(p, n.row, begin, length, head + h, border(i, h), border(i + 1, h), kept_of(i, h));
      }
    for (Size i = count; i-- > 0;)
      for (int h = 0; h < heads; ++h) {
        const Size begin = n.begin + i * segment, length = std::min(segment, n.end - begin);
        chunk.backward(p, d, n.row, begin, length, head + h, border(i, h), border(i + 1, h), d_state + h * state,
                       kept_of(i, h));
      }
  }

  void advance(const Problem& p, const Sequence& n, Size begin, int head, T* S, bool outputs) {
    const Size length = std::min(segment, n.end - begin);
    if (chunked) return chunk.forward(p, n.row, begin, length, head, S, outputs);
    recurrent.forward(p, n.row, begin, begin + length, head, S, outputs);
  }

  const Simd<T>& simd;
  Size state, segment;
  bool chunked;
  typename Family::Chunk chunk;
  typename Family::Recurrent recurrent;
  T *d_state = nullptr, *borders = nullptr, *inside = nullptr, *keep = nullptr;
  Size kept = 0, all_kept = 0, all_borders = 0;
};

}  // namespace ttr::families
