// The chunk of chunk.h where there are no value gates, forwards: sweeps over the state through frames of bounded key gates
// (gates.h), which are multiplied into keys and queries beforehand,
//
//   k e^-G   y e^-G   q e^G   x e^G
//
// so that groups of tokens go through the state without any (groups-inl.h); where a frame ends, rows of the state whose G begins
// anew have a factor.
#pragma once

#include "families/linear/channel/chunk.h"
#include "families/linear/half_sweep.h"

namespace ttr::families {

// The tokens in frames of bounded gates, those between frames one by one; false: there are no gates of channels. *kept:
// whether all have left their rows, which single tokens do not.
template <class T, Erase erase>
bool VectorChunk<T, erase>::sweep_frames(const VectorProblem<T>& p, Size row, Size begin, Size c, int head, T* S,
                                         bool outputs, TokenRows<T> keep, bool* kept) {
  if (!Gates<T>::are_of_channels(p.gk)) return false;
  for (Size n; c > 0; begin += n, c -= n, keep = keep.from(n)) {
    const Size most = std::min(c, longest_bounded);
    prepare(p, row, begin, most, head);
    bool copied = false;
    const typename StateSimd<T>::GateRows rows = rows_of(p, row, begin, most, head, outputs, &copied);
    n = keys.frames(p.gk, row, begin, most, head, erase == Erase::none ? 4 : 2, rows, copied);
    // Frames of a token or two are more work than the tokens themselves.
    const bool worth = keys.frame_count() < 3 || 3 * keys.frame_count() <= 2 * n;
    if (n > 0 && worth) {
      sweep_gently(p, row, begin, n, head, S, outputs, keep);
    } else {
      *kept = false;
      if (n == 0) n = std::max<Size>(1, keys.alone(p.gk, row, begin, most, head));
      one_by_one.forward(p, row, begin, begin + n, head, S, outputs);
    }
  }
  return true;
}

// The rows of a sweep, which go into its panels; *copied: some of them are there already, without their gates.
template <class T, Erase erase>
typename StateSimd<T>::GateRows VectorChunk<T, erase>::rows_of(const VectorProblem<T>& p, Size row, Size begin,
                                                               Size c, int head, bool queries, bool* copied) {
  const int key_head = head / (p.heads / p.key_heads);
  const auto from = [&](const View<const T, 4>& view, int h, T* panel, Size* ld) {
    const T* const there = contiguous(s, view, row, begin, c, h, K, panel, ld);
    *copied = *copied || there == panel;
    return there;
  };
  typename StateSimd<T>::GateRows rows;
  rows.k = from(p.k, key_head, k, &rows.ldk), rows.to_k = k;
  if (queries) rows.q = from(p.q, key_head, q, &rows.ldq), rows.to_q = q, rows.q_before = ask == Reader::before;
  if constexpr (erase != Erase::none)
    rows.x = from(p.a ? p.a : p.k, p.a ? head : key_head, x, &rows.ldx), rows.to_x = x,
    rows.x_before = look == Reader::before;
  if constexpr (erase == Erase::other) rows.y = from(p.b, head, y, &rows.ldy), rows.to_y = y;
  return rows;
}

template <class T, Erase erase>
void VectorChunk<T, erase>::sweep_gently(const VectorProblem<T>& p, Size row, Size begin, Size c, int head, T* S,
                                         bool outputs, TokenRows<T> keep) {
  typename StateSimd<T>::Group tokens{.n = c, .K = K, .V = V};
  if (outputs && p.bonus && p.v) find_bonus(p, row, begin, c, head), tokens.direct = own;
  tokens.k = k, tokens.ldk = K;
  if constexpr (erase != Erase::none) tokens.x = x, tokens.ldx = K, tokens.kept = keep.data, tokens.ld_kept = keep.ld;
  if constexpr (erase == Erase::other) tokens.y = y, tokens.ldy = K;
  if (!p.v) std::fill_n(v, V, T(0)), tokens.v = v;
  else if (!takes_values(s, p.v, row, begin, head, tokens))
    tokens.v = contiguous(s, p.v, row, begin, c, head, V, v, &tokens.ldv);
  if (p.beta) tokens.write = tokens.read = beta;
  if (outputs) tokens.q = q, tokens.ldq = K, tokens.scale = p.scale, tokens.before = ask == Reader::before;
  tokens.ends = keys.frame_ends(), tokens.frames = keys.frame_count();
  tokens.late = keys.late_rows(), tokens.ld_late = K, tokens.hints = hints.get();
  bool direct = true;
  Size ldo = V;
  T* const answers = outputs ? answers_of_sweep(s, p.o, row, begin, head, o, tokens, &ldo, &direct) : o;
  through.group_sweep(tokens, S, V, answers, ldo, swept);
  if (!direct) unpack(s, o, row, begin, c, head, V, p.o);
}

}  // namespace ttr::families
