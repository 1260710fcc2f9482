// How a sequence is cut, and one head of it from start to end and back.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/choice.h"
#include "families/linear.h"
#include "families/scratch.h"
#include "simd/simd.h"

namespace ttr::families {

inline constexpr std::ptrdiff_t scan_parts = 8;  // segments of Form::scan, unless their length is given

struct Schedule {
  bool chunked;
  std::ptrdiff_t segment;   // tokens per chunk, or between stored states
  std::ptrdiff_t scan = 0;  // tokens per segment of Form::scan
  /// Tokens one head runs through before the next head has its turn: whole chunks.
  std::ptrdiff_t block() const { return std::max<std::ptrdiff_t>(1, 256 / segment) * segment; }
};

inline Schedule schedule(const Choice& best, Form form, int chunk, std::ptrdiff_t time) {
  time = std::max<std::ptrdiff_t>(time, 1);
  if (form == Form::best) form = time < shortest_chunked ? Form::recurrent : best.form;
  if (form == Form::parallel) return {true, time};
  if (form == Form::chunk) return {true, std::min<std::ptrdiff_t>(chunk > 0 ? chunk : best.chunk, time)};
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

/// One head of one sequence, start to end and back.
template <class Family>
class HeadRun {
 public:
  using T = typename Family::Number;
  using Problem = typename Family::Problem;
  using Gradient = typename Family::Gradient;
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
    const Size count = (time + segment - 1) / segment;
    borders = arena.take<T>((count + 1) * state);
    if constexpr (replays)
      kept = chunked ? Family::Chunk::kept(value_dim, segment) : 0, keep = arena.take<T>(count * kept);
    if (!chunked) inside = arena.take<T>((segment + 1) * state);
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

  void backward(const Problem& p, const Gradient& d, const Sequence& n, int head, const T* initial, const T* d_final,
                T* d_initial) {
    const Size count = (n.end - n.begin + segment - 1) / segment;
    std::copy_n(initial, state, borders);
    for (Size i = 0; i < count; ++i) {
      T* const next = borders + (i + 1) * state;
      if constexpr (replays) {
        const Size begin = n.begin + i * segment, length = std::min(segment, n.end - begin);
        if (chunked) chunk.replay(p, n.row, begin, length, head, next - state, next, keep + i * kept);
        if (chunked) continue;
      }
      std::copy_n(next - state, state, next);
      advance(p, n, n.begin + i * segment, head, next, false);
    }
    if (d_final) std::copy_n(d_final, state, d_state);
    else std::fill_n(d_state, state, T(0));
    for (Size i = count; i-- > 0;) {
      const Size begin = n.begin + i * segment, length = std::min(segment, n.end - begin);
      const T* const start = borders + i * state;
      if (chunked) {
        if constexpr (replays)
          chunk.backward(p, d, n.row, begin, length, head, start, start + state, d_state, keep + i * kept);
        else chunk.backward(p, d, n.row, begin, length, head, start, start + state, d_state);
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
  static constexpr bool replays = Replays<typename Family::Chunk>;

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
  Size kept = 0;
};

}  // namespace ttr::families
