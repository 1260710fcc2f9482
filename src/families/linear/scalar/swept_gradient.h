// Backward pass of a decayed sum by sweeps over three states, for one head: no triangles of pairs, no transposes, and no
// state is kept. With c the scale of the queries, i from the first token on and then back:
//
//   Z_i = e^{g_i} Z_{i-1} + beta_i v_i k_i'       [V,K]   dq_i = c Z_i' do_i
//   D_i = e^{g_{i+1}} D_{i+1} + c q_i do_i'       [K,V]   dv_i = beta_i D_i' k_i     dbeta_i = v_i . D_i' k_i
//   E_i = D_i'                                    [V,K]   dk_i = beta_i E_i' v_i
//
// Each is the sweep of the forward pass with other names (groups-inl.h), 4 K V operations per token: 12 K V, where
// products need 10 K V + C (3 K + 2 V) and the states of all chunks in memory (chunk.h). D is held twice, because what
// runs along the rows of a state (E' v = D v) costs more than to write the state a second time.
//
// Gates: a_i = q_i . dq_i and b_i = k_i . dk_i, both without the pair of a token with itself, which no gate stands
// between: in sums that cancel its rounding would be all that is left under strong gates. For the same reason what the
// last token leaves to the end counts in neither b nor `across`:
//
//   dg_i = across + sum_{r >= i} a_r - sum_{j >= i} b_j         across = e^{g_T} <S_{T-1}, dS_T>
//
// Factors of gates come in frames, as forwards (gates.h), but any gate is possible: one beyond the limit is a factor of
// the state in front of its token.
//
// Traps: rows and factors of the sweeps back are in the order of the sweep, the last token first.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/common/linear.h"
#include "families/common/prefetch.h"
#include "families/common/scratch.h"
#include "families/linear/gates.h"
#include "families/linear/state_simd.h"
#include "simd/simd.h"

namespace ttr::families {

template <class T>
class SweptGradient {
 public:
  using Size = std::ptrdiff_t;

  SweptGradient(const Simd<T>& simd, int key_dim, int value_dim, Size chunk, Arena& arena)
      : s(simd), through(state_simd(simd)), K(key_dim), V(value_dim), C(chunk), hints(simd, longest_in_sweeps) {
    const Size widest = std::max(K, V);
    for (T** panel : {&keys, &queries}) *panel = arena.take<T>(C * K);
    for (T** panel : {&values, &asked}) *panel = arena.take<T>(C * V);
    answers = arena.take<T>(C * widest), spare = arena.take<T>(C * widest);
    for (T** factors : {&up, &down, &rest, &late, &own, &steps}) *factors = arena.take<T>(C);
    ends = arena.take<Size>(C), panel_of_sweep = arena.take<T>(StateSimd<T>::sweep_scratch(widest));
  }

  /// Queries of tokens begin .. begin+c-1: Z [V,K] goes to their end, and d_q gets its sums. of_gates, where wanted: a [c].
  void through_queries(const LinearProblem<T>& p, const LinearGradient<T>& d, Size row, Size begin, Size c, int head,
                       T* Z, T* of_gates) {
    const int key_head = head / (p.heads / p.key_heads);
    const How how = how_keys(p, d, head, LinearGradient<T>::fresh_q);
    hints.begin();
    hints.add(p.k, row, begin + c, C, key_head, 1, K), hints.add(p.v, row, begin + c, C, head, 1, V);
    hints.add(d.d_o, row, begin + c, C, head, 1, V);
    if (!how.far) hints.add(d.d_q, row, begin + c, C, key_head, 1, K);
    if (of_gates) hints.add(p.q, row, begin + c, C, key_head, 1, K);
    hints.spread_over(2 * c * K * V);
    find_frames(c, [&](Size i) { return p.g(row, begin + i, head); }, 0, {Z, V, K, K});
    typename StateSimd<T>::Group x{.n = c, .K = V, .V = K};
    x.k = contiguous(s, p.v, row, begin, c, head, V, values, &x.ldk);
    x.v = contiguous(s, p.k, row, begin, c, key_head, K, keys, &x.ldv);
    x.q = contiguous(s, d.d_o, row, begin, c, head, V, asked, &x.ldq);
    load_steps(p, row, begin, c, head);
    for (Size i = 0; p.beta && i < c; ++i) down[i] *= steps[i];
    x.write = down, x.answer = up, x.scale = p.scale, x.before = of_gates != nullptr;
    sweep(x, Z, K, answers, K);
    if (!of_gates) return add(c, K, nullptr, answers, d.d_q, row, begin, key_head, how);
    s.row_dots(c, V, x.k, x.ldk, x.q, x.ldq, own);
    for (Size i = 0; i < c; ++i) own[i] *= p.scale * steps[i];
    Size ldq;
    const T* const rows = contiguous(s, p.q, row, begin, c, key_head, K, queries, &ldq);
    add_pair(c, x.v, x.ldv, rows, ldq, d.d_q, row, begin, key_head, how, of_gates);
  }

  /// Columns of the values go through D by themselves: in so many parts, which a team may take one by one.
  int value_parts() const { return V % (2 * s.lanes) == 0 ? 2 : 1; }

  /// D [K,V] from their end to their start, parts first .. end-1 of its columns; d_v gets their sums. of_steps, where wanted:
  /// for each part of all of them, ld_steps apart, its share of dbeta [c].
  void through_values(const LinearProblem<T>& p, const LinearGradient<T>& d, Size row, Size begin, Size c, int head,
                      int first, int end, T* D, T* of_steps, Size ld_steps) {
    const int width = V / value_parts(), from = first * width, columns = (end - first) * width;
    const int key_head = head / (p.heads / p.key_heads);
    const bool fresh = d.fresh & LinearGradient<T>::fresh_v;
    const How how{fresh, fresh && past};
    look_behind(p, d.d_o, row, begin, head);
    if (!how.far) hints.add(d.d_v, row, begin - C, begin >= C ? C : 0, head, 1, V);
    hints.spread_over(2 * c * K * V);
    frames_back(p, row, begin, c, head, {D + from, K, columns, V});
    typename StateSimd<T>::Group x{.n = c, .K = K, .V = columns};
    x.k = back(contiguous(s, p.q, row, begin, c, key_head, K, queries, &x.ldk), c, &x.ldk);
    x.v = back(contiguous(s, d.d_o, row, begin, c, head, V, asked, &x.ldv) + from, c, &x.ldv);
    x.q = back(contiguous(s, p.k, row, begin, c, key_head, K, keys, &x.ldq), c, &x.ldq);
    for (Size i = 0; i < c; ++i) down[i] *= p.scale;
    x.write = down, x.answer = up;
    sweep(x, D + from, V, answers + (c - 1) * columns, -columns);
    load_steps(p, row, begin, c, head);
    if (of_steps) {
      Size ldv;
      const T* const v = contiguous(s, p.v, row, begin, c, head, V, values, &ldv);
      for (int part = first; part < end; ++part)
        s.row_dots(c, width, v + part * width, ldv, answers + part * width - from, columns,
                   of_steps + part * ld_steps);
    }
    View<T, 4> to = d.d_v;
    if (to) to.data += from * to.stride[3];
    add(c, columns, p.beta ? steps : nullptr, answers, to, row, begin, head, how);
  }

  /// The same of E [V,K] and d_k. of_gates, where wanted: b [c]; last: token begin+c-1 is the last of its sequence.
  void through_keys(const LinearProblem<T>& p, const LinearGradient<T>& d, Size row, Size begin, Size c, int head,
                    bool last, T* E, T* of_gates) {
    const int key_head = head / (p.heads / p.key_heads);
    const How how = how_keys(p, d, head, LinearGradient<T>::fresh_k);
    look_behind(p, d.d_o, row, begin, head);
    if (!how.far) hints.add(d.d_k, row, begin - C, begin >= C ? C : 0, key_head, 1, K);
    hints.spread_over(2 * c * K * V);
    frames_back(p, row, begin, c, head, {E, V, K, K});
    typename StateSimd<T>::Group x{.n = c, .K = V, .V = K};
    x.k = back(contiguous(s, d.d_o, row, begin, c, head, V, asked, &x.ldk), c, &x.ldk);
    x.v = back(contiguous(s, p.q, row, begin, c, key_head, K, queries, &x.ldv), c, &x.ldv);
    x.q = back(contiguous(s, p.v, row, begin, c, head, V, values, &x.ldq), c, &x.ldq);
    load_steps(p, row, begin, c, head);
    for (Size i = 0; i < c; ++i) down[i] *= p.scale, up[i] *= steps[c - 1 - i];
    x.write = down, x.answer = up, x.before = of_gates != nullptr;
    sweep(x, E, K, answers + (c - 1) * K, -K);
    if (!of_gates) return add(c, K, nullptr, answers, d.d_k, row, begin, key_head, how);
    s.row_dots(c, V, x.q + (c - 1) * x.ldq, -x.ldq, x.k + (c - 1) * x.ldk, -x.ldk, own);
    for (Size i = 0; i < c; ++i) own[i] *= p.scale * steps[i];
    Size ldk;
    const T* const rows = contiguous(s, p.k, row, begin, c, key_head, K, keys, &ldk);
    add_pair(c, x.v + (c - 1) * x.ldv, -x.ldv, rows, ldk, d.d_k, row, begin, key_head, how, of_gates);
    if (last) of_gates[c - 1] = T(0);
  }

  /// Gradients are more than caches hold: rows that are written once go past them.
  void write_far(bool far) { past = far; }

 private:
  // Columns of a state.
  struct Columns {
    T* data;
    Size rows, columns, ld;
  };
  // Tokens in the order of a sweep, gate(i) in front of token i and `after` behind the last: up and down, frames, and the
  // factors of the state between frames. A gate in front of the first token that is beyond the limit is put into S.
  template <class Gate>
  void find_frames(Size n, const Gate& gate, double after, const Columns& S) {
    constexpr Size group = 4;
    double sum = 0;
    Size start = 0;
    frames = 0;
    const auto close = [&](Size end, double total) {
      late[end - 1] = static_cast<T>(std::exp(total)), ends[frames++] = start = end;
    };
    for (Size i = 0; i < n; ++i) {
      const double g = static_cast<double>(gate(i)), next = sum + g;
      if (std::abs(next) <= bounded_limit) {
        sum = next;
      } else {
        const bool alone = !(std::abs(g) <= bounded_limit);
        if (i > start) close(i, alone ? next : sum);
        else if (alone && i > 0) late[i - 1] = static_cast<T>(std::exp(g) * static_cast<double>(late[i - 1]));
        else if (alone)
          for (Size r = 0; r < S.rows; ++r)
            s.scale(S.columns, static_cast<T>(std::exp(g)), S.data + r * S.ld, S.data + r * S.ld);
        sum = alone ? 0 : g;
      }
      up[i] = static_cast<T>(sum), down[i] = -up[i], rest[i] = static_cast<T>(sum - static_cast<double>(up[i]));
      if (std::abs(sum) > mild_limit && (i + 1 - start) % group == 0 && i + 1 < n) close(i + 1, sum), sum = 0;
    }
    close(n, sum + after);
    s.exp(n, up, up), s.exp(n, down, down);
    for (Size i = 0; i < n; ++i) up[i] += up[i] * rest[i], down[i] -= down[i] * rest[i];
  }
  // The gate of a token stands between it and the one before.
  void frames_back(const LinearProblem<T>& p, Size row, Size begin, Size c, int head, const Columns& S) {
    const auto gate = [&](Size i) { return i == 0 ? T(0) : p.g(row, begin + c - i, head); };
    find_frames(c, gate, static_cast<double>(p.g(row, begin, head)), S);
  }

  void look_behind(const LinearProblem<T>& p, const View<const T, 4>& d_o, Size row, Size begin, int head) {
    const int key_head = head / (p.heads / p.key_heads);
    const Size count = begin >= C ? C : 0;
    hints.begin();
    hints.add(p.k, row, begin - C, count, key_head, 1, K), hints.add(p.q, row, begin - C, count, key_head, 1, K);
    hints.add(p.v, row, begin - C, count, head, 1, V), hints.add(d_o, row, begin - C, count, head, 1, V);
  }
  void load_steps(const LinearProblem<T>& p, Size row, Size begin, Size c, int head) {
    for (Size i = 0; i < c; ++i) steps[i] = p.beta ? p.beta(row, begin + i, head) : T(1);
  }
  // The last of c rows, and their distance on the way to the first.
  static const T* back(const T* rows, Size c, Size* ld) {
    const T* const at = rows + (c - 1) * *ld;
    *ld = -*ld;
    return at;
  }
  void sweep(typename StateSimd<T>::Group& x, T* S, Size lds, T* out, Size ldo) {
    x.ends = ends, x.frames = frames, x.late = late, x.ld_late = 1, x.late_step = 0, x.hints = hints.get();
    through.group_sweep(x, S, lds, out, ldo, panel_of_sweep);
  }

  // How rows of a gradient are reached: they hold nothing yet and are written, past the caches.
  struct How {
    bool fresh, far;
  };
  // Those of a key head, which its first head comes to first.
  How how_keys(const LinearProblem<T>& p, const LinearGradient<T>& d, int head, unsigned role) const {
    const int group = p.heads / p.key_heads;
    const bool fresh = (d.fresh & role) && head % group == 0;
    return {fresh, fresh && past && group == 1};
  }

  // to += diag(a) panel
  void add(Size c, int dim, const T* a, const T* panel, const View<T, 4>& to, Size row, Size begin, int head,
           How how) {
    if (!to) return;
    const bool direct = to.stride[3] == 1;
    T* const rows = direct ? &to(row, begin, head, 0) : spare;
    const Size ld = direct ? to.stride[1] : dim;
    if (direct && how.fresh)
      return through.write_rows(c, dim, a, panel, nullptr, nullptr, nullptr, rows, ld, how.far);
    if (how.fresh) clear_rows(to, row, begin, c, head, dim);
    if (!direct) std::fill_n(spare, c * dim, T(0));
    s.add_rows_dots(c, dim, a, panel, dim, nullptr, dim, nullptr, dim, rows, ld, nullptr, nullptr);
    if (!direct) add_rows(s, T(1), spare, row, begin, c, head, dim, to);
  }
  // to += diag(own) partners + answers ; of_gates = rowdot(z, answers)
  void add_pair(Size c, const T* partners, Size ldp, const T* z, Size ldz, const View<T, 4>& to, Size row, Size begin,
                int head, How how, T* of_gates) {
    s.row_dots(c, K, z, ldz, answers, K, of_gates);
    s.add_rows_dots(c, K, own, partners, ldp, nullptr, K, nullptr, K, answers, K, nullptr, nullptr);
    add(c, K, nullptr, answers, to, row, begin, head, how);
  }

  const Simd<T>& s;
  const StateSimd<T>& through;
  int K, V;
  Size C;
  Prefetch<T> hints;
  bool past = false;  // gradients go past the caches
  T *keys, *queries, *values, *asked, *answers, *spare, *panel_of_sweep;
  T *up, *down, *rest, *late, *own, *steps;
  Size *ends, frames = 0;
};

}  // namespace ttr::families
