// What a family defines for the driver (run.h), and how a sequence is divided. One head of it: head_run.h.
//
// A Family names its problem, its gradient, the parts of its state (parts.h), its two forms for one head, and the map
// of a segment (scan.h). Absent: it has no such form. A family with a state S [K, V] inherits the rest (LinearState).
//
//   struct Family { Number, Problem, Gradient, Chunk, Recurrent, Map; tuned, or best; parts, sizes, state, .. }
//
//   Chunk(simd, K, V, most tokens, backward, arena)       or (simd, Shape, ..)
//     forward(problem, row, begin, tokens, head, S, outputs)            S advances in place
//     backward(problem, gradient, row, begin, tokens, head, S_0, S_end, dS)
//     piece(problem, begin, end)      where not every length is possible: tokens of the chunk at `begin`
//     close(problem, dS)              after the first chunk backwards: what is no gradient of the start is cleared
//     kept                            what forward leaves of a chunk for backward besides the states: see Replays
//     back_state, passed, back_rest   backward() in two, for a team: see BackInTwo
//     sweeps_back, by_sweeps          backward without kept states, for some heads: see SweepsBack
//   Recurrent(simd, K, V, longest, backward, arena)       or (simd, Shape, ..)
//     forward(problem, row, begin, end, head, S, outputs)               the same bits as token by token
//     backward(problem, gradient, row, t, head, S_old, S_new, dS)
//     step(problem, row, t, S)        one token of all heads, if it can
//     status()                        ok, or what to return where a token had no answer
//
// S is a pointer, or the Parts where there are several. Without Recurrent a token is a chunk of one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include "families/common/choice.h"
#include "families/common/linear.h"
#include "families/common/parts.h"
#include "families/common/replay.h"
#include "families/common/scratch.h"
#include "families/common/segments.h"
#include "families/common/short.h"
#include "families/common/team.h"
#include "simd/simd.h"

namespace ttr::families {

struct Absent {};
template <class Form>
inline constexpr bool present = !std::is_same_v<Form, Absent>;

/// The tensors that all linear memories share: a base of the problem (gradient), or its member `linear`.
template <class Problem>
auto& linear_of(Problem& p) {
  if constexpr (requires { p.linear; }) return p.linear;
  else return p;
}

/// What the scratch memory of a family depends on besides the time.
struct Shape {
  int key_dim, value_dim;
  int depth = 1;      // levels of log-linear attention, window of affine projection
  int chosen_by = 0;  // columns by which form and chunk are chosen; 0: value_dim
};

/// What a family with one state S [K, V] says of it; others hide what differs.
template <class T>
struct LinearState {
  using Number = T;
  using Size = std::ptrdiff_t;
  static constexpr std::size_t parts = 1;
  static constexpr bool keeps_borders = true;  // backward, the states of all chunks; else of some (replay.h)
  static constexpr bool interleaves = true;    // all heads go through a block of tokens before the next block
  static constexpr bool scans_tokens = false;  // Form::scan token by token, and not backwards
  static std::array<Size, 1> sizes(const Shape& x) { return {Size{x.key_dim} * x.value_dim}; }
  static Shape shape(const auto& p) {
    const auto& a = linear_of(p);
    return {a.key_dim, a.value_dim, 1, a.chosen_by};
  }
  static Parts<T, 1> state(const auto& p) { return {linear_of(p).state}; }
  static Parts<const T, 1> d_final(const auto& d) { return {linear_of(d).d_final}; }
  static Parts<T, 1> d_initial(const auto& d) { return {linear_of(d).d_initial}; }
  /// Whether queries are needed: forwards, and backwards.
  static bool has_outputs(const auto& p) { return static_cast<bool>(linear_of(p).o); }
  static bool has_d_outputs(const auto& d) { return static_cast<bool>(linear_of(d).d_o); }
};

/// The problem or gradient x of sequence `index`, where a family must know which it is; else x, that of all.
template <class Family, class Problem, class X>
decltype(auto) of_sequence(std::ptrdiff_t index, const Problem& p, const X& x) {
  if constexpr (requires { Family::of_sequence(index, p, x); }) return Family::of_sequence(index, p, x);
  else return static_cast<const X&>(x);
}

/// A chunk form that goes backwards in chunks, of which forward leaves more than the states: rows of V numbers for every
/// token, which it says it has kept or not. kept(): numbers of a chunk; 0: none.
template <class Chunk>
concept Replays = requires {
  &Chunk::kept;
};

struct Schedule {
  bool chunked;
  std::ptrdiff_t segment;   // tokens per chunk, or between stored states
  std::ptrdiff_t scan = 0;  // tokens per segment of Form::scan
  bool whole = false;  // one chunk of all tokens, by matrix products: Form::parallel, or a chunk asked to be so long
  std::ptrdiff_t piece = segment;  // backward: tokens per chunk of the forward pass
  std::ptrdiff_t turn = segment;   // chunks: tokens one head runs through before the next head has its turn
  /// The same token by token.
  std::ptrdiff_t block() const { return std::max<std::ptrdiff_t>(1, 256 / segment) * segment; }
};

/// One token is a step of the recurrence (choice.cc asserts it): decoding does not look at the table.
inline bool is_step(Form form, std::ptrdiff_t time, bool backward) {
  return time <= 1 && !backward && (form == Form::best || form == Form::step || form == Form::recurrent);
}

/// A form of one head, whose constructor takes the sizes one by one or as a Shape.
template <class Form, class T>
Form form_of(const Simd<T>& s, const Shape& x, std::ptrdiff_t most, bool backward, Arena& arena) {
  if constexpr (std::is_constructible_v<Form, const Simd<T>&, const Shape&, std::ptrdiff_t, bool, Arena&>)
    return Form(s, x, most, backward, arena);
  else return Form(s, x.key_dim, x.value_dim, most, backward, arena);
}

/// `longest`: for the scratch of all sequences of up to `time` tokens.
template <class Family>
Schedule schedule(const Shape& x, int vector_bytes, Form form, int chunk, std::ptrdiff_t time, bool backward,
                  bool longest = false) {
  if (is_step(form, time, backward)) return {false, 1};
  const int columns = x.chosen_by ? x.chosen_by : x.value_dim;
  const Choice best = [&] {
    if constexpr (requires { Family::tuned; }) {
      Choice measured = choice(Family::tuned, vector_bytes, x.key_dim, columns, backward);
      measured.from = chunked_from(measured, vector_bytes, x.key_dim, columns, backward);
      return measured;
    } else {
      return Family::best;
    }
  }();
  time = std::max<std::ptrdiff_t>(time, 1);
  if (form == Form::best) form = time < best.from ? Form::recurrent : best.form;
  if (form == Form::parallel) return {true, time, 0, true};
  if (form == Form::chunk) {
    const auto tokens = [&](int n) { return std::min<std::ptrdiff_t>(chunk > 0 ? chunk : n, time); };
    Schedule plan{true, tokens(best.chunk), 0, chunk >= time};
    if constexpr (Replays<typename Family::Chunk> && requires { Family::tuned; }) {
      // The chunks of backward are whole chunks of forward: a state that one has left is one that the other starts from.
      plan.piece =
          std::min(plan.segment, tokens(choice(Family::tuned, vector_bytes, x.key_dim, columns, !backward).chunk));
      if (!backward)
        plan.segment = plan.turn = plan.piece;  // what a chunk asks for ahead is of the next chunk of all heads
    }
    return plan;
  }
  if constexpr (present<typename Family::Map>)
    if (form == Form::scan && !(Family::scans_tokens && backward)) {
      const std::ptrdiff_t inner = Family::scans_tokens ? 1 : best.chunk;
      const std::ptrdiff_t least =
          std::max({8 * inner, Family::Map::least(x),
                    least_segment(std::ptrdiff_t{x.key_dim} * (x.chosen_by ? x.chosen_by : x.value_dim))});
      const std::ptrdiff_t length = std::min(time, longest ? Segments::longest(time, chunk, least, inner)
                                                           : Segments::of({0, 0, time}, chunk, least, inner).length);
      return {!Family::scans_tokens, std::min(inner, length), length};
    }
  return {false, kept_spacing(time, chunk)};
}

/// A chunk form whose backward pass can be done in two: back_state() takes dS through a chunk and nothing else, back_rest()
/// has dS at its end and does what is left. A team then works on one head (HeadRun).
template <class Chunk>
concept BackInTwo = Replays<Chunk> && requires {
  &Chunk::back_state;
};

/// A chunk form that takes some heads backwards by sweeps: their queries forwards through S, their values and keys backwards
/// through dS, each on its own. sweeps_back() says whether; it says the same for all heads that share a gradient.
template <class Chunk>
concept SweepsBack = Replays<Chunk> && requires {
  &Chunk::sweeps_back;
};

/// A chunk form that can write its gradients past the caches: write_far() says whether it should. Other threads see them after
/// flush().
template <class Chunk>
concept WritesFar = requires(Chunk& chunk) {
  chunk.write_far(true), chunk.flush();
};

/// Several heads go backwards through a chunk before the chunk in front of it: their rows share pages of memory, and
/// looking up a page can cost more than fetching the row. Until then each of them keeps its states.
template <class Chunk>
int heads_together(const Schedule& plan, int K, int V, std::ptrdiff_t time) {
  const bool several = Replays<Chunk> && plan.chunked && plan.segment < time;
  return several ? std::clamp(256 / std::max(K, V), 1, 8) : 1;  // most_together of HeadRun
}

/// What a slot has of a chunk of so many tokens.
template <class Family>
SlotShape slot_shape(const Shape& x, std::ptrdiff_t chunk) {
  return {Family::sizes(x)[0], Family::Chunk::kept(x.value_dim, chunk)};
}

/// One whose chunks are not all of one length.
template <class Chunk>
concept HasPieces = requires {
  &Chunk::piece;
};

}  // namespace ttr::families
