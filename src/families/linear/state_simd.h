// SIMD kernels of the linear families, compiled once per instruction set like those of simd.h: tokens through a state
// S [K,V], for which every family brings its own factors and keys.
//
//   const StateSimd<float>& s = state_simd(simd<float>(""));      // of the same instruction set
//
//   sweep         one factor for the whole state      state-inl.h
//   gated_sweep   one for every row and column        state-inl.h
//   group_sweep   at the ends of frames; two or four tokens at a time   groups-inl.h
//   gate_..       factors of readers and writers      frames-inl.h
//   .._heads      one token of all heads (decoding)   heads-inl.h
//
// Nothing outside the named elements is touched; an element's bits do not depend on its place in a row.
#pragma once

#include <cstddef>

#include "simd/simd.h"

namespace ttr {

// What a build of a few layers (cmake/slim.cmake) leaves out, because no family that it has calls it: sweeps with a factor for
// every row, those with an erase key, gated_heads, exp_rows and bonus_dots; momentum_heads. Their entries are null.
#ifdef TTR_WITHOUT_CHANNEL_SWEEPS
inline constexpr bool has_channel_sweeps = false;
#else
inline constexpr bool has_channel_sweeps = true;
#endif
#ifdef TTR_WITHOUT_MOMENTUM_SWEEPS
inline constexpr bool has_momentum_sweeps = false;
#else
inline constexpr bool has_momentum_sweeps = true;
#endif

/// Rows of a half type in the place of floats.
enum class Halves { none, bf16, f16 };

template <class T>
struct StateSimd {
  using Size = std::ptrdiff_t;

  /// n tokens through a state S [K,V], one sweep over S per token (the read of the next token rides on the write of
  /// this one), panel of columns by panel:
  ///   u_t = beta_t (v_t - b_t S' k_t) ;  S <- a_t S + k_t u_t' ;  o_t = scale S' q_t        row t at k + t ldk, ...
  /// b = null: u_t = beta_t v_t. q = null: no outputs. One call with n tokens has the bits of n calls with one.
  /// `panel` is scratch of sweep_scratch(K) numbers that keeps a panel together in L1; null: work in place.
  void (*sweep)(Size n, Size K, Size V, const T* a, const T* b, const T* beta, T scale, const T* k, Size ldk,
                const T* v, Size ldv, const T* q, Size ldq, T* S, Size lds, T* o, Size ldo, T* panel);
  static constexpr Size sweep_scratch(Size K) { return K * (256 / static_cast<Size>(sizeof(T))); }

  /// Tokens of gated_sweep. Row t of a matrix is at data + t ld (ld may be zero or negative).
  struct Tokens {
    Size n = 0, K = 0, V = 0;
    const T* rows = nullptr;  // factor of the state's rows, [n,K]
    Size ld_rows = 0;
    const T* columns = nullptr;  // factor of its columns, [n,V]; null: 1. Not with x.
    Size ld_columns = 0;
    const T* beta = nullptr;             // [n]; null: 1
    const T *x = nullptr, *y = nullptr;  // read and erase keys [n,K]; y only beside x
    Size ldx = 0, ldy = 0;
    const T *k = nullptr, *v = nullptr;  // write keys [n,K], values [n,V]
    Size ldk = 0, ldv = 0;
    const T* q = nullptr;  // [n,K]; null: no outputs
    Size ldq = 0;
    T scale = 1;                // on the outputs
    bool before = false;        // outputs read the state before the token's write; not with x
    const T* direct = nullptr;  // [n]: o_t += direct_t v_t; null: 0
    // v, and o; V is then whole vectors. Not with x: the chain of panels (heads-inl.h) has no room for conversions.
    Halves values = Halves::none, answers = Halves::none;
  };
  /// Tokens through a state S [K,V] with a factor for every row and column, one sweep over S per token:
  ///   r_t = S' x_t ;  S <- diag(rows_t) S diag(columns_t) + k_t u_t' (+ y_t r_t')
  ///   o_t = scale S' q_t + direct_t v_t
  /// where u_t = beta_t v_t, or with x and without y  u_t = beta_t (v_t - r_t). Bits and `panel` as in sweep.
  void (*gated_sweep)(const Tokens&, T* S, Size lds, T* o, Size ldo, T* panel);

  /// Tokens of group_sweep, whose gates are in their rows and factors already. Row t is at data + t ld.
  struct Group {
    Size n = 0, K = 0, V = 0;
    const T *x = nullptr, *y = nullptr;  // read and erase keys [n,K]; y only beside x
    Size ldx = 0, ldy = 0;
    const T *k = nullptr, *v = nullptr;  // write keys [n,K], values [n,V]
    Size ldk = 0, ldv = 0;
    const T *write = nullptr, *read = nullptr;  // factors of v_t and (without y) of what was read, [n]; null: 1
    const T* q = nullptr;                       // [n,K]; null: no outputs
    Size ldq = 0;
    T scale = 1;                // on the outputs
    const T* answer = nullptr;  // [n], on the outputs as well; null: 1
    bool before = false;        // outputs read the state before the token's write; not with x
    const T* direct = nullptr;  // [n]: o_t += direct_t v_t; null: 0
    // With x: row t gets r_t or, without y, v_t - kept_read_t r_t (kept_read [n]; null: 1). kept = null: nobody asks.
    T* kept = nullptr;
    Size ld_kept = 0;
    const T* kept_read = nullptr;
    // Frames of tokens end before these tokens, the last at n (frames = 0: one frame). Behind token t, the last of its
    // frame, row i of the state has the factor late[t ld_late + i late_step]; late = null: 1.
    const Size* ends = nullptr;
    Size frames = 0;
    const T* late = nullptr;
    Size ld_late = 0, late_step = 1;
    Hints* hints = nullptr;
    Halves values = Halves::none, answers = Halves::none;  // v, and o of the sweep; V is then whole vectors
  };
  /// Tokens through a state S [K,V] without gates, two or four at a time, one sweep over S for each group:
  ///   r_t = S' x_t ;  S <- S + k_t u_t' (+ y_t r_t') ;  o_t = scale answer_t S' q_t + direct_t v_t
  /// where u_t = write_t v_t, or with x and without y  u_t = write_t v_t - read_t r_t ; at the end of a frame
  /// S <- diag(late) S. A group has tokens of one frame.
  /// `panel` as in sweep; it is used where rows of S are wider than a panel.
  void (*group_sweep)(const Group&, T* S, Size lds, T* o, Size ldo, T* panel);

  /// y = x for n numbers that nobody reads soon: past the caches where y is aligned to a cache line, and seen by other threads
  /// after `flush`. A flush waits until all is written, so it is for the end of a call and not of a chunk.
  void (*stream)(Size n, const T* x, T* y);
  /// Y_i = a_i X_i F_i + X2_i F2_i for rows of N numbers, those of X, F, X2 and F2 beside each other; a, F, F2 = null: 1, X2 =
  /// null: 0; beside F2 no a. Y is not read. far: past the caches where its rows are aligned to a cache line, and seen by others after `flush`.
  void (*write_rows)(Size M, Size N, const T* a, const T* X, const T* F, const T* X2, const T* F2, T* Y, Size ldy,
                     bool far);
  void (*flush)();
  /// z_j += sum_i X_ij Y_ij for rows of N numbers
  void (*column_dots)(Size M, Size N, const T* X, Size ldx, const T* Y, Size ldy, T* z);

  /// Of S and D = diag(late) dS, all [K,V], the transposes St and dSt and dots_i = S_i . D_i [K]; D is left in `scaled`, which
  /// may be dS. late = null: D is dS, and nothing is left.
  void (*turn_states)(Size K, Size V, const T* late, const T* S, const T* dS, T* scaled, T* St, T* dSt, T* dots);

  /// up_i = e^{G_i - centre} and down_i = e^{centre - G_i}, both [C,D], for G_i = g_0 + .. + g_i; centre [D], null: 0.
  /// Returns for how many of the C rows of g all |G_i - centre| up to there are within the limit; where they are not
  /// within 80, up and down are undefined.
  Size (*gate_factors)(Size C, Size D, const T* g, Size ldg, const T* centre, T limit, T* up, T* down);
  /// Divides C tokens into frames over which no |G| exceeds `hard`: a frame ends before a token that would, and behind
  /// whole groups of tokens where some |G| exceeds `soft`. ends [C] get the first tokens behind the frames, *frames their
  /// number; carried [C,D] has a row for every frame but the first: 1 where G goes on (it is at most soft / 2), 0 where it
  /// begins anew. sums [C+1,D] is scratch. Returns the number of tokens in frames: the one behind them is alone beyond
  /// `hard`, or NaN. What a token belongs to does not depend on later ones.
  Size (*gate_frames)(Size C, Size D, const T* g, Size ldg, Size group, T soft, T hard, T* sums, T* carried,
                      Size* ends, Size* frames);
  /// Rows of such frames that gates are multiplied into, each [C,D] in and out (which may be the same): writers k and y have
  /// e^-G, readers q and x e^G, with the gates up to their own token or, before, up to the one in front. null: there is none.
  struct GateRows {
    const T *k = nullptr, *y = nullptr, *q = nullptr, *x = nullptr;
    Size ldk = 0, ldy = 0, ldq = 0, ldx = 0;
    T *to_k = nullptr, *to_y = nullptr, *to_q = nullptr, *to_x = nullptr;  // rows D apart
    bool q_before = false, x_before = false;
  };
  /// late [C,D] gets row t where a frame ends behind token t: what the rows of a state have to be multiplied by, 1 where G
  /// goes on; behind the last frame all begin anew. carried = null: one frame. Returns whether all |G| are within the limit;
  /// where they are not within 80, what is written is undefined.
  bool (*gate_rows)(Size frames, const Size* ends, Size D, const T* g, Size ldg, const T* carried, T limit,
                    const GateRows& rows, T* late);
  /// Pieces of `piece` tokens (the last may be shorter), each with G from its own start: centres [pieces,D] get the middle
  /// of what G runs through, 0 where |G| <= mild, NaN where G - centre would exceed the limit. Returns 0 if some G - centre exceeds the limit, 1 if all centres are 0,
  /// else 2.
  int (*gate_centres)(Size C, Size D, const T* g, Size ldg, Size piece, T mild, T limit, T* centres);

  /// One token of n heads, each with a state of its own: S [n, K, V]. A row of a matrix is a head, of k and q a group of
  /// heads; a, b, beta and direct have a number for every head. The bits of a sweep of one token for each, with o_h +=
  /// direct_h v_h behind it. No rows, columns, x and y; beta is not null, and beside b there are no halves.
  void (*sweep_heads)(const Tokens&, Size group, const T* a, const T* b, T* S, T* o, Size ldo);
  /// The same for gated_sweep; a row of x is for x_group heads.
  void (*gated_heads)(const Tokens&, Size group, Size x_group, T* S, T* o, Size ldo);
  /// out [n, D] = e^x for rows of x that lie ld apart, which may be of a half type.
  void (*exp_rows)(Halves type, Size n, Size D, const T* x, Size ld, T* out);
  /// out_t = scale sum_i (w_ti k_si) q_si for n rows of K numbers, s = t / group: the bits of a product and a dot of each.
  void (*bonus_dots)(Size n, Size group, Size K, T scale, const T* w, Size ldw, const T* k, Size ldk, const T* q,
                     Size ldq, T* out);

  /// One token of several heads with two states, S and Z [heads, K, V]. Row h of v, row h / group of the others.
  struct Momentum {
    Size heads = 0, group = 1, K = 0, V = 0;
    const T *a = nullptr, *f = nullptr, *mu = nullptr, *eta = nullptr, *beta = nullptr;  // [heads]
    T scale = 1;                                                                         // on the outputs
    const T *k = nullptr, *p = nullptr, *v = nullptr, *q = nullptr;                      // q = null: no outputs
    Size ldk = 0, ldp = 0, ldv = 0, ldq = 0;
  };
  /// r = v - f S' p ;  Z <- mu Z + k (eta r)' ;  S <- a S + beta Z ;  o = scale S' q
  void (*momentum_heads)(const Momentum&, T* S, T* Z, T* o, Size ldo);
};

/// The table for the instruction set of `simd`. Does not allocate.
template <class T>
const StateSimd<T>& state_simd(const Simd<T>& simd) noexcept;
/// Its twin that counts multiply-adds (simd/count.h): those with the state, not those between the tokens of a group.
template <class T>
const StateSimd<T>& counted_table(const StateSimd<T>&) noexcept;

}  // namespace ttr
