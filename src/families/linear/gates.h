// Decays by vector gates inside a chunk of c tokens, without ever forming e^{-G}: every exponent is a sum of gates.
//
// G = cumsum(g) over the rows of a chunk, per channel of D. Three products with D_ij = diag(e^{G_i - G_j}), j <= i:
//
//   pair              P_ij  = x_i' D_ij y_j
//   apply             out_i = sum_{j<=i} P_ij D_ij y_j
//   apply_transposed  out_j = sum_{i>=j} P_ij D_ij x_i
//
// They are each other's gradients: pair with respect to x and y is apply and apply_transposed, and the other way
// round. Reader::before takes the gates up to i-1, e^{G_i - g_i - G_j}, and only j < i.
//
// Rows come in blocks of 16. Between blocks the factor is (reader to the start of its block) (whole blocks between)
// (writer to the end of its block), which makes matrix products of sides bounded by 1. Inside a block the product is
// a recurrence on a state of 16 columns (or rows): what was written before is multiplied by the gate of every token
// that passes, which costs no exponential and no triangle of pairs. So g = -inf is a closed gate, and nothing
// overflows or cancels for g <= 0. A gate with a zero inner stride is the same for all channels: then D_ij is a
// number, and the three are plain products with the matrix of these numbers as a factor.
//
// Most gates need no blocks: as long as |G_i| <= 55 for all rows and channels, D_ij = up_i down_j with up = e^G and
// down = e^-G, and the three are plain products of scaled panels. Both factors have the accuracy of an exponential
// whatever G is (frames-inl.h), and nothing cancels: what a writer leaves behind is as large as it is to the newest
// reader. Inputs may be as large as 1e14 in float before a product with e^55 overflows. How tokens are bounded:
//
//   reach    the first tokens, as many as are; known token by token, so that a strong gate, or NaN, does not change a
//            bit of what lies before it
//   frames   all tokens between gates of less than e^-55, in frames whose G starts anew: what sweeps over a state use,
//            where a new frame costs one product for every row whose G begins anew (groups-inl.h); that of the others
//            goes on. As causal as reach.
//   pieces   equal parts of a chunk, each with G from the middle of what it runs through, so that |G| may be 88: for
//            replays and backward passes, which know the future. The state at the start of a piece has then a factor
//            too, start(). A few channels that run further are kept apart (apart.h).
//
// Traps: above the diagonal P is undefined; rows of G beyond c are; the closing of a gate is not undone by dividing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "families/common/scratch.h"
#include "families/linear/apart.h"
#include "families/linear/state_simd.h"
#include "simd/simd.h"
#include "ttr/view.h"

namespace ttr::families {

inline constexpr double bounded_limit = 55;  // of a sum of gates, either way
inline constexpr double mild_limit = 30;     // beyond, a frame ends with its group, that the next may have any gates
inline constexpr double centred_limit = 44;  // of a sum of gates, from its middle
inline constexpr std::ptrdiff_t shortest_bounded =
    8;  // tokens between cuts; with fewer the state's updates cost too much

template <class T>
class Gates {
 public:
  using Size = std::ptrdiff_t;

  /// Up to `chunk` tokens; possible: there may be gates at all.
  Gates(const Simd<T>& simd, int dim, Size chunk, bool possible, bool backward, Arena& arena)
      : s(simd), through(state_simd(simd)), D(dim), C(chunk), apart_(simd, dim, chunk, possible && backward, arena) {
    moved = arena.take<T>(C * D);
    if (!possible || C == 0) return;
    a = arena.take<T>(std::max((C + 1) * D, 2 * C)), to_block = arena.take<T>(C * D),
    from_block = arena.take<T>(C * D);
    head = arena.take<T>((C + 1) * D), tail = arena.take<T>(C * D);
    rows = arena.take<T>(block * D), ones = arena.take<T>(block);
    unit = arena.take<T>(block * block), corner = arena.take<T>(block * block);
    factor = arena.take<T>(C * C), weighted = arena.take<T>(C * C);
    up = arena.take<T>((C + 1) * D), down = arena.take<T>((C + 1) * D), ends_ = arena.take<Size>(C);
    if (backward) centres = arena.take<T>(most_pieces * D);
    if (backward) delta = arena.take<double>(C * D), sums = arena.take<double>(D);
  }

  /// How many of the tokens begin .. begin+c-1 are bounded (0: there are no gates, or one for all channels). For as
  /// many up_rows, down_rows, over and add_gradient hold; the rest is after `load`.
  Size reach(const View<const T, 4>& g, Size row, Size begin, Size c, int h) {
    bounded = on = are_of_channels(g), even = centred = false, frames_ = 0;
    if (!on) return 0;
    return factors_of(gates_of(g, row, begin, c, h), 0, c, nullptr, static_cast<T>(bounded_limit));
  }

  /// Tokens in frames whose groups have `group` tokens, and gates multiplied into their rows on the way. A token behind
  /// the last frame is alone beyond the limits, and `alone` says how many there are in a row. once: some rows come from
  /// where they go, so that they cannot be multiplied again.
  Size frames(const View<const T, 4>& g, Size row, Size begin, Size c, int h, Size group,
              const typename StateSimd<T>::GateRows& into, bool once) {
    bounded = on = are_of_channels(g), even = centred = false, frames_ = 0;
    if (!on) return 0;
    const Rows rows_of = gates_of(g, row, begin, c, h);
    if (!strong && !once) {
      ends_[0] = c;
      if (through.gate_rows(1, ends_, D, rows_of.data, rows_of.ld, nullptr, static_cast<T>(mild_limit), into, tail)) {
        frames_ = 1;
        return c;
      }
    }
    // The same frames whichever way they are found; the last chunk only tells which to try first.
    const Size n = through.gate_frames(c, D, rows_of.data, rows_of.ld, group, static_cast<T>(mild_limit),
                                       static_cast<T>(bounded_limit), head, to_block, ends_, &frames_);
    strong = frames_ > 1 || n < c;
    if (frames_ > 0)
      through.gate_rows(frames_, ends_, D, rows_of.data, rows_of.ld, to_block, static_cast<T>(bounded_limit), into,
                        tail);
    return n;
  }
  static bool are_of_channels(const View<const T, 4>& g) { return g && g.stride[3] != 0; }
  Size frame_count() const { return frames_; }
  const Size* frame_ends() const { return ends_; }
  Size alone(const View<const T, 4>& g, Size row, Size begin, Size c, int h) {
    const Rows gates = gates_of(g, row, begin, c, h);
    for (Size i = 0; i < c; ++i) {
      bool beyond = false;
      for (Size j = 0; j < D; ++j) beyond |= !(std::abs(gates.data[i * gates.ld + j]) <= T(bounded_limit));
      if (!beyond) return i;
    }
    return c;
  }

  /// Tokens of a piece where equal parts of tokens begin .. begin+c-1 are bounded around their middles: the longest of
  /// a few lengths; 0: none. For each piece load_piece comes before its factors.
  Size pieces(const View<const T, 4>& g, Size row, Size begin, Size c, int h) {
    bounded = on = are_of_channels(g), even = centred = false, frames_ = 0;
    if (!on) return 0;
    const Rows gates = gates_of(g, row, begin, c, h);
    // Where all are mild the first piece is all, and its factors are what says so; the last chunk tells whether to try.
    mild = !strong && factors_of(gates, 0, c, nullptr, static_cast<T>(mild_limit)) == c;
    if (mild) return apart_.clear(), c;
    strong = true;
    for (const Size parts : {1, 2, 3, 4, 6, 8}) {
      const Size length = (c + parts - 1) / parts;
      if (parts > 1 && length < shortest_piece) break;
      const int fit = through.gate_centres(c, D, gates.data, gates.ld, length, static_cast<T>(mild_limit),
                                           static_cast<T>(centred_limit), centres);
      centred = fit == 2;
      if (parts == 1 && fit == 1) strong = false;
      if (fit > 0 || keep_apart(gates, c, length)) return length;
    }
    apart_.clear();
    return 0;
  }
  Apart<T>& apart() { return apart_; }
  /// Piece i, of tokens begin .. begin+c-1.
  void load_piece(const View<const T, 4>& g, Size row, Size begin, Size c, int h, Size i) {
    if (mild) return;
    find_apart(i);
    const T* const centre = centred ? rows : nullptr;
    const Rows gates = gates_of(g, row, begin, c, h);
    factors_of(gates, 0, c, centre, static_cast<T>(bounded_limit));
    apart_.load_gates(c, gates.data, gates.ld, up + D, down + D, D);
    if (!centred) return;
    s.exp(D, centre, down), s.scale(D, T(-1), centre, up), s.exp(D, up, up);
  }
  static constexpr Size most_pieces = 8, shortest_piece = 4;
  /// The factors of channels apart are 1 from now on: their panels and gradients are finished.
  void open_apart(Size c) { apart_.open(c, up + D, D), apart_.open(c + 1, up, D), apart_.open(c, down + D, D); }
  /// Pieces: what the state at the start is multiplied by, [D]; null: 1.
  const T* start() const { return centred ? down : nullptr; }

  /// The gates of tokens begin .. begin+c-1, however strong; a view without data: all open.
  void load(const View<const T, 4>& g, Size row, Size begin, Size c, int h) {
    on = static_cast<bool>(g), even = on && g.stride[3] == 0, bounded = false;
    if (!on) return;
    if (even) return load_even(g, row, begin, c, h);
    pack(s, g, row, begin, c, h, static_cast<int>(D), T(1), a);
    for (Size i0 = 0; i0 < c; i0 += block) {
      const Size end = std::min(i0 + block, c);
      std::copy_n(a + i0 * D, D, to_block + i0 * D);
      for (Size i = (i0 + 1) * D; i < end * D; ++i) to_block[i] = to_block[i - D] + a[i];
      std::fill_n(from_block + (end - 1) * D, D, T(0));
      for (Size i = (end - 1) * D; i-- > i0 * D;) from_block[i] = from_block[i + D] + a[i + D];
    }
    s.exp(c * D, a, a), s.exp(c * D, to_block, to_block), s.exp(c * D, from_block, from_block);
    std::fill_n(a + c * D, D, T(1)), std::fill_n(head, D, T(1));
    for (Size i0 = 0; i0 < c; i0 += block)
      s.scale_columns(std::min(block, c - i0), D, head + i0 * D, to_block + i0 * D, D, head + (i0 + 1) * D, D);
    std::copy_n(from_block, c * D, tail);
    std::fill_n(ones, block, T(1));
    const Size last = (c - 1) / block * block;
    std::copy_n(to_block + (c - 1) * D, D, rows);
    for (Size i0 = last; i0 > 0; i0 -= block) {  // `rows` holds the product of the blocks from i0 on
      s.scale_columns(block, D, rows, tail + (i0 - block) * D, D, tail + (i0 - block) * D, D);
      s.mul(D, rows, to_block + (i0 - 1) * D, rows);
    }
    std::fill_n(unit, block * block, T(0));
    for (Size i = 0; i < block; ++i) unit[i * block + i] = T(1);
  }

  bool gated() const { return on; }
  /// Gentle tokens: the factors of readers and of writers, [c,D].
  const T* up_rows(Reader reader) { return reader == Reader::after ? up + D : up; }
  /// Frames: row t, where one ends behind token t, is what the rows of the state are multiplied by there.
  const T* late_rows() const { return tail; }
  const T* down_rows() const { return down + D; }
  /// e^{G_c}: what is left of the start state at the end of the chunk, [D].
  const T* over(Size c) const { return (bounded ? up : head) + c * D; }
  /// x_i e^{G_i} and y_j e^{G_c - G_j} in `out`, or the panel itself where there are no gates.
  const T* to_start(Size c, Reader reader, const T* x, T* out) { return times(c, factors(reader), x, out); }
  const T* to_end(Size c, const T* y, T* out) { return times(c, tail, y, out); }
  void to_start_in_place(Size c, Reader reader, T* x) { to_start(c, reader, x, x); }
  void to_end_in_place(Size c, T* y) { to_end(c, y, y); }

  /// P [c,c], leading dimension C. strict: its diagonal is 0 (always so for Reader::before).
  void pair(Size c, Reader reader, bool strict, const T* x, const T* y, T* P) {
    if (!in_blocks()) {
      s.transpose(c, D, y, D, moved, C);
      s.gemm_lower(c, D, T(1), x, D, moved, C, P, C);
      if (even) weigh(c, reader, P);
    }
    for (Size i0 = 0; in_blocks() && i0 < c; i0 += block) {
      const Size n = std::min(block, c - i0);
      if (i0 > 0) {
        to_block_start(n, reader, i0, x + i0 * D);
        s.gemm_nn(n, i0, D, T(1), rows, D, moved, C, T(0), P + i0 * C, C);
      }
      T* const state = moved + i0;  // [D,n]: column j is y_j, decayed
      for (Size i = 0; i < D; ++i) std::fill_n(state + i * C, n, T(0));
      typename StateSimd<T>::Tokens t{.n = n, .K = D, .V = n, .rows = a + i0 * D, .ld_rows = D};
      t.k = y + i0 * D, t.ldk = D, t.v = unit, t.ldv = block, t.q = x + i0 * D, t.ldq = D;
      t.before = reader == Reader::before;
      through.gated_sweep(t, state, C, P + i0 * C + i0, C, nullptr);
      if (i0 > 0 && i0 + n < c) s.scale_rows(D, i0, to_block + (i0 + n - 1) * D, moved, C, moved, C);
    }
    if (strict || reader == Reader::before)
      for (Size i = 0; i < c; ++i) P[i * C + i] = T(0);
  }

  /// out [c,D] += ; P has a zero diagonal where the pair is strict.
  void apply(Size c, Reader reader, const T* P, const T* y, T* out) {
    if (!in_blocks()) s.trmm_nn(c, D, T(1), even ? weighted_copy(c, reader, P) : P, C, y, D, T(1), out, D);
    for (Size i0 = 0; in_blocks() && i0 < c; i0 += block) {
      const Size n = std::min(block, c - i0);
      if (i0 > 0) {
        s.gemm_nn(n, D, i0, T(1), P + i0 * C, C, moved, D, T(0), rows, D);
        to_block_start(n, reader, i0, rows);
        s.axpy(n * D, T(1), rows, out + i0 * D);
      }
      for (Size i = 0; i < n; ++i)
        for (Size j = 0; j < n; ++j) corner[i * block + j] = j <= i ? P[(i0 + i) * C + i0 + j] : T(0);
      T* const state = moved + i0 * D;  // [n,D]: row j is y_j, decayed
      std::fill_n(state, n * D, T(0));
      typename StateSimd<T>::Tokens t{.n = n, .K = n, .V = D, .rows = ones, .ld_rows = 0};
      t.columns = a + i0 * D, t.ld_columns = D, t.k = unit, t.ldk = block, t.v = y + i0 * D, t.ldv = D, t.q = corner,
      t.ldq = block, t.before = reader == Reader::before;
      through.gated_sweep(t, state, D, rows, D, nullptr);
      s.axpy(n * D, T(1), rows, out + i0 * D);
      if (i0 + n < c) s.scale_columns(i0, D, to_block + (i0 + n - 1) * D, moved, D, moved, D);
    }
  }

  /// out [c,D] += ; the same with time reversed.
  void apply_transposed(Size c, Reader reader, const T* P, const T* x, T* out) {
    if (!in_blocks()) s.trmm_tn(c, D, T(1), even ? weighted_copy(c, reader, P) : P, C, x, D, T(1), out, D);
    for (Size end = c; in_blocks() && end > 0;) {
      const Size i0 = (end - 1) / block * block, n = end - i0;
      if (end < c) {
        s.gemm_tn(n, D, c - end, T(1), P + end * C + i0, C, moved + end * D, D, T(0), rows, D);
        s.mul_add(n * D, rows, from_block + i0 * D, out + i0 * D);
      }
      for (Size i = 0; i < n; ++i)
        for (Size j = 0; j < n; ++j) corner[j * block + i] = j <= i ? P[(i0 + i) * C + i0 + j] : T(0);
      T* const state = moved + i0 * D;  // [n,D]: row i is x_i, decayed down to the row that is read
      std::fill_n(state, n * D, T(0));
      const Size top = n - 1;
      typename StateSimd<T>::Tokens t{.n = n, .K = n, .V = D, .rows = ones, .ld_rows = 0};
      t.columns = a + (reader == Reader::before ? end - 1 : end) * D, t.ld_columns = -D;
      t.k = unit + top * block, t.ldk = -block, t.v = x + (end - 1) * D, t.ldv = -D;
      t.q = corner + top * block, t.ldq = -block, t.before = reader == Reader::before;
      through.gated_sweep(t, state, D, rows + top * D, -D, nullptr);
      s.axpy(n * D, T(1), rows, out + i0 * D);
      if (i0 > 0) {
        if (reader == Reader::after) s.scale_columns(n, D, a + i0 * D, state, D, state, D);
        s.scale_columns(c - end, D, to_block + (end - 1) * D, moved + end * D, D, moved + end * D, D);
      }
      end = i0;
    }
  }

  /// Adds the gradient of the gates, from panels of readers and writers (simd.h), to `d`; without data it is left in
  /// gradient_rows() [c,D].
  void add_gradient(Size c, const typename Simd<T>::GateTerm* terms, int count, const T* last, const View<T, 4>& d,
                    Size row, Size begin, int h) {
    if (d && d.stride[3] == 1)
      return s.gate_gradient(c, D, terms, count, last, false, &d(row, begin, h, 0), d.stride[1]);
    s.gate_gradient(c, D, terms, count, last, true, moved, D);
    if (!d) return;
    add_rows(s, T(1), moved, row, begin, c, h, static_cast<int>(D), d);
  }

  const T* gradient_rows() const { return moved; }

  /// No gate stands between a token and itself (Reader::before: and the token before it), nor between the last token and
  /// the end. Such a pair would be in the sum of its reader and in that of its writer, and under strong gates its
  /// rounding would be all that is left of the gates' gradient. So these entries of a P are moved to `near` [c] before
  /// it is applied; put_near adds them to the gradients of readers x and writers y afterwards (null: not wanted).
  void take_near(Size c, Reader reader, T* P, T* near) const {
    const Size shift = reader == Reader::before;
    for (Size i = shift; i < c; ++i) near[i] = P[i * C + i - shift], P[i * C + i - shift] = T(0);
  }
  void put_near(Size c, Reader reader, const T* near, const T* x, const T* y, T* dx, T* dy) const {
    const Size shift = reader == Reader::before, n = c - shift;
    const auto add = [&](const T* from, T* to) {
      s.add_rows_dots(n, D, near + shift, from, D, nullptr, D, nullptr, D, to, D, nullptr, nullptr);
    };
    if (dx) add(y, dx + shift * D);
    if (dy) add(x + shift * D, dy);
  }
  /// dy holds what the end says about the writers y, and nothing else yet: that of the last row is moved to `aside` [D],
  /// and y dy of the others is added to `last`, the end's part of the gradient of all gates.
  void take_end(Size c, const T* y, T* dy, T* last, T* aside) const {
    through.column_dots(c - 1, D, y, D, dy, D, last);
    std::copy_n(dy + (c - 1) * D, D, aside);
    std::fill_n(dy + (c - 1) * D, D, T(0));
  }
  void put_end(Size c, const T* aside, T* dy) const { s.axpy(D, T(1), aside, dy + (c - 1) * D); }

  /// The gradient of the gates is the reverse sum over rows of what the roles leave here: a reader adds x dx, a
  /// writer takes y dy off. A reader without its own gate counts one row earlier. They nearly cancel: in double.
  void clear_gradient(Size c) { std::fill_n(delta, c * D, 0.0); }
  void add_reader(Size c, Reader reader, const T* x, const T* dx) {
    const Size shift = reader == Reader::after ? 0 : D;
    for (Size i = shift; i < c * D; ++i) delta[i - shift] += static_cast<double>(x[i]) * dx[i];
  }
  void add_writer(Size c, const T* y, const T* dy) {
    for (Size i = 0; i < c * D; ++i) delta[i] -= static_cast<double>(y[i]) * dy[i];
  }
  /// Adds the gradient to `d`; last [D]: what reaches the end from the start, and from the writers (take_end).
  void finish_gradient(Size c, const T* last, const View<T, 4>& d, Size row, Size begin, int h) {
    for (Size j = 0; j < D; ++j) sums[j] = last[j];
    for (Size i = c; i-- > 0;)
      for (Size j = 0; j < D; ++j) moved[i * D + j] = static_cast<T>(sums[j] += delta[i * D + j]);
    add_rows(s, T(1), moved, row, begin, c, h, static_cast<int>(D), d);
  }

 private:
  static constexpr Size block = 16;
  bool in_blocks() const { return on && !even; }

  struct Rows {
    const T* data;
    Size ld;
  };
  Rows gates_of(const View<const T, 4>& g, Size row, Size begin, Size c, int h) {
    Rows found;
    found.data = contiguous(s, g, row, begin, c, h, static_cast<int>(D), a, &found.ld);
    return found;
  }
  // Whether the channels that do not fit into pieces of this length, whose centres are NaN, can be kept apart: there are
  // few of them in every piece, and their gates are numbers, none of which grows.
  bool keep_apart(const Rows& g, Size c, Size length) {
    for (Size i = 0; i * length < c; ++i) {
      if (!find_apart(i)) return false;
      for (Size n = 0; n < apart_.count(); ++n)
        for (Size t = i * length; t < std::min(c, (i + 1) * length); ++t) {
          const T gate = g.data[t * g.ld + apart_.channel(n)];
          if (!(gate <= T(0) && gate >= std::numeric_limits<T>::lowest())) return false;
        }
      for (Size j = 0; j < D; ++j) centred |= rows[j] != T(0);
    }
    return true;
  }
  // The channels apart of piece i, and the centres of the others in `rows`.
  bool find_apart(Size i) {
    apart_.clear();
    for (Size j = 0; j < D; ++j) {
      const T centre = centres[i * D + j];
      rows[j] = std::isnan(centre) ? T(0) : centre;
      if (std::isnan(centre) && !apart_.add(j)) return false;
    }
    return true;
  }
  // The rows of up and down behind the tokens of a frame or piece; how many of them are within the limit.
  Size factors_of(const Rows& g, Size begin, Size end, const T* centre, T limit) {
    if (begin == 0) std::fill_n(up, D, T(1)), std::fill_n(down, D, T(1));
    return through.gate_factors(end - begin, D, g.data + begin * g.ld, g.ld, centre, limit, up + (begin + 1) * D,
                                down + (begin + 1) * D);
  }

  const T* factors(Reader reader) const { return on && reader == Reader::after ? head + D : head; }
  const T* times(Size c, const T* by, const T* x, T* out) {
    if (!on) return x;
    s.mul(c * D, x, by, out);
    return out;
  }
  // `rows` = n rows of the block that starts at i0, decayed to its start.
  void to_block_start(Size n, Reader reader, Size i0, const T* in) {
    if (reader == Reader::after) {
      s.mul(n * D, in, to_block + i0 * D, rows);
    } else {
      if (in != rows) std::copy_n(in, D, rows);
      s.mul((n - 1) * D, in + D, to_block + i0 * D, rows + D);
    }
  }

  // One gate for all channels: the factors between tokens as a matrix, and the panels to the start and to the end.
  void load_even(const View<const T, 4>& g, Size row, Size begin, Size c, int h) {
    T sum = 0;
    for (Size i = 0; i < c; ++i) a[i] = g(row, begin + i, h, 0), a[c + i] = sum += a[i];
    s.gate_matrix(c, a, tail, factor, C);
    s.exp(c, a + c, a + c);
    std::fill_n(head, D, T(1));
    for (Size i = 0; i < c; ++i) {
      std::fill_n(head + (i + 1) * D, D, a[c + i]);
      std::fill_n(tail + i * D, D, factor[(c - 1) * C + i]);
    }
  }
  void weigh(Size c, Reader reader, T* P) {
    const bool before = reader == Reader::before;
    s.gate_lower(c, before, before ? 1 : 0, nullptr, factor, C, P, C);
  }
  const T* weighted_copy(Size c, Reader reader, const T* P) {
    for (Size i = 0; i < c; ++i) std::copy_n(P + i * C, i + 1, weighted + i * C);
    weigh(c, reader, weighted);
    return weighted;
  }

  const Simd<T>& s;
  const StateSimd<T>& through;
  Size D, C;
  bool on = false, even = false, bounded = false;  // are there gates; one for all channels; sums within a limit
  bool strong = false, centred = false;            // several frames, or pieces that are not mild; pieces have centres
  bool mild = false;                               // the factors of the one piece are there
  Size frames_ = 0;
  Size* ends_ = nullptr;
  Apart<T> apart_;
  T* centres = nullptr;
  T* moved;                                      // the other side of a product, decayed to the block at hand
  T* a = nullptr;                                // e^g, and a row of ones behind
  T *to_block = nullptr, *from_block = nullptr;  // from the row back to before its block; from it to the block's end
  T *head = nullptr, *tail = nullptr;            // e^G with a row of ones in front; e^{G_c - G}
  T *rows = nullptr, *ones = nullptr, *unit = nullptr, *corner = nullptr;
  T *factor = nullptr, *weighted = nullptr;  // even: e^{G_i - G_j}, and a P with these factors
  T *up = nullptr, *down = nullptr;          // e^G and e^-G, where bounded
  double *delta = nullptr, *sums = nullptr;
};

}  // namespace ttr::families
