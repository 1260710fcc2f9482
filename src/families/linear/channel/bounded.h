// The chunk of chunk.h where the key gates are bounded (gates.h) and there are no value gates: its members that
// work on panels scaled once, as they are read, one piece at a time (sweeps: sweep.h). With up = e^G, down = e^-G and late = e^{G_c}:
//
//   x^ = x up ;  pair(x, y) = x^ (y down)' ;  K~' U = diag(late) (k down)' U
//
// Backward, D = diag(late) dS', gradients are those of the scaled panels: dx = up d(x^), dy = down d(y down), and for
// the gates x dx = x^ d(x^). Panels of readers [Q; X], of writers [Y; K] and of what goes with them lie behind each
// other, so that one product does both:
//
//   [dR; dU] = [Y; K] D + ..            [dQ; dX] = [dO; dR] S_0' + ..
//   [dY; dK] = [R; U] D' + ..           dS_0 = D + [Q; X]' [dO; dR]
//
// Pieces whose gates are centred (gates.h) have up = e^{G - m}, down = e^{m - G} and late = e^{G_c - m}: all the same with
// e^m S_0 instead of S_0, and with e^m times the dS_0 that comes out.
//
// Traps: dO is scaled instead of Q. `same` solves for R, U = diag(beta) R, so that dbeta needs no further product.
#pragma once

#include "families/linear/channel/chunk.h"

namespace ttr::families {

template <class T, Erase erase>
void VectorChunk<T, erase>::forward_gently(const VectorProblem<T>& p, Size row, Size begin, Size c, int head, T* S,
                                           bool outputs, T* keep) {
  const int key_head = head / (p.heads / p.key_heads);
  prepare(p, row, begin, c, head);
  if (keys.start()) s.scale_rows(K, V, keys.start(), S, V, S, V);
  load_apart(p, row, begin, c, head, false);
  scaled(p.k, row, begin, c, key_head, keys.down_rows(), k);
  if (outputs || erase != Erase::none) s.transpose(c, K, k, K, kt, C);
  ahead.step();
  if constexpr (erase != Erase::none)
    scaled(p.a ? p.a : p.k, row, begin, c, p.a ? head : key_head, keys.up_rows(look), x);
  const T *U = u, *R = r;
  if constexpr (erase == Erase::none) {
    written(p, row, begin, c, head, u);
  } else if constexpr (erase == Erase::same) {
    // R = (I + M diag(beta))^{-1} R0, and U = diag(beta) R
    T* const rest = keep ? keep : v;
    if (p.v) pack(s, p.v, row, begin, c, head, V, T(1), rest);
    else std::fill_n(rest, c * V, T(0));
    lower(c, K, x, kt, T(1), true, A);
    keys.apart().pair(c, look, true, T(1), Channel::x, Channel::k, A);
    product_nn(c, V, K, T(-1), x, K, S, V, T(1), rest, V);
    if (p.beta) s.scale_columns(c, c, beta, A, C, A, C);
    s.solve_nn(c, V, A, C, rest, V);
    if (p.beta) s.scale_rows(c, V, beta, rest, V, u, V);
    else U = rest;
  } else {
    T* const rest = keep ? keep : r;
    R = rest;
    written(p, row, begin, c, head, u);
    scaled(p.b, row, begin, c, head, keys.down_rows(), y);
    s.transpose(c, K, y, K, yt, C);
    lower(c, K, x, yt, T(-1), true, A);
    lower(c, K, x, kt, T(1), true, N);
    keys.apart().pair(c, look, true, T(-1), Channel::x, Channel::y, A);
    keys.apart().pair(c, look, true, T(1), Channel::x, Channel::k, N);
    product_nn(c, V, K, T(1), x, K, S, V, T(0), rest, V);
    s.trmm_nn(c, V, T(1), N, C, U, V, T(1), rest, V);
    s.solve_nn(c, V, A, C, rest, V);
  }
  ahead.step();
  if (outputs) {
    scaled(p.q, row, begin, c, key_head, keys.up_rows(ask), q);
    const bool direct = p.o.stride[3] == 1;
    T* const out = direct ? &p.o(row, begin, head, 0) : o;
    const Size ldo = direct ? p.o.stride[1] : V;
    lower(c, K, q, kt, p.scale, ask == Reader::before, P);
    ahead.step();
    std::fill_n(own, c, p.scale);
    product_nn(c, V, K, own, q, S, P, U, out, ldo);
    if constexpr (erase == Erase::other) {
      lower(c, K, q, yt, p.scale, ask == Reader::before, P);
      s.trmm_nn(c, V, T(1), P, C, R, V, T(1), out, ldo);
    }
    if (p.bonus && p.v) add_bonus(p, row, begin, c, head, out, ldo);
    if (!direct) unpack(s, o, row, begin, c, head, V, p.o);
  }
  const T *const late = keys.over(c), *const written_late = keys.apart().late_of_writers(late, K);
  pieces(K, V, [&](Size i, Size m, Size j, Size n) {
    s.gemm_tn_rows(m, n, c, written_late + i, k + i, K, U + j, V, late + i, S + i * V + j, V);
  });
  if constexpr (erase == Erase::other) {
    s.scale_columns(c, K, written_late, y, K, y, K);
    s.gemm_tn(K, V, c, T(1), y, K, R, V, T(1), S, V);
  }
}

template <class T, Erase erase>
void VectorChunk<T, erase>::load_apart(const VectorProblem<T>& p, Size row, Size begin, Size c, int head,
                                       bool queries) {
  Apart<T>& apart = keys.apart();
  if (apart.count() == 0) return;
  const int key_head = head / (p.heads / p.key_heads);
  if (queries) apart.load(Channel::q, p.q, row, begin, c, key_head);
  apart.load(Channel::k, p.k, row, begin, c, key_head);
  if (erase != Erase::none) apart.load(Channel::x, p.a ? p.a : p.k, row, begin, c, p.a ? head : key_head);
  if (erase == Erase::other) apart.load(Channel::y, p.b, row, begin, c, head);
}

// What the products left out of the gradients of channels apart, whose panels have no factors afterwards.
template <class T, Erase erase>
void VectorChunk<T, erase>::back_apart(Size c, bool answers, T* Q, T* X, T* Kd, T* Y, T* dQ, T* dX, T* dK, T* dY) {
  Apart<T>& apart = keys.apart();
  apart.finish(c, Channel::k, keys.down_rows(), Kd, dK, K);
  if (erase == Erase::other) apart.finish(c, Channel::y, keys.down_rows(), Y, dY, K);
  if (answers) {
    apart.finish(c, Channel::q, keys.up_rows(ask), Q, dQ, K);
    apart.apply(c, ask, P, Channel::q, Channel::k, dQ, dK, K);
    if (erase == Erase::other) apart.apply(c, ask, A, Channel::q, Channel::y, dQ, dY, K);
  }
  if (erase != Erase::none) {
    apart.finish(c, Channel::x, keys.up_rows(look), X, dX, K);
    apart.apply(c, look, PX, Channel::x, Channel::k, dX, dK, K);
    if (erase == Erase::other) apart.apply(c, look, N, Channel::x, Channel::y, dX, dY, K);
  }
  keys.open_apart(c);
}

// dY = W dS' + tril(L)' Q for the writers Y of W; for the gradient of gates the last row is taken out before L (gates.h).
template <class T, Erase erase>
void VectorChunk<T, erase>::back_to_writers(Size c, const T* W, const T* L, const T* Q, const T* Y, T* dY, T* end) {
  product_tn(c, K, V, W, d_st, end ? nullptr : L, Q, dY);
  if (!end) return;
  keys.take_end(c, Y, dY, last, end);
  if (L) s.trmm_tn(c, K, T(1), L, C, Q, K, T(1), dY, K);
}

// The systems, from the panels of the backward pass: M, or -pair(X, Y), in PX, unless dR is known; for `other` pair(X, K) in N,
// which dS does not need.
template <class T, Erase erase>
void VectorChunk<T, erase>::find_systems_gently(Size c, const T* X, const T* Y, bool state, bool known) {
  if (erase == Erase::same && !known) {
    lower(c, K, X, kt, T(1), true, PX);
    keys.apart().pair(c, look, true, T(1), Channel::x, Channel::k, PX);
  }
  if constexpr (erase == Erase::other) {
    if (!known) {
      s.transpose(c, K, Y, K, yt, C);
      lower(c, K, X, yt, T(-1), true, PX);
      keys.apart().pair(c, look, true, T(-1), Channel::x, Channel::y, PX);
    }
    if (state) return;
    lower(c, K, X, kt, T(1), true, N);
    keys.apart().pair(c, look, true, T(1), Channel::x, Channel::k, N);
  }
}

template <class T, Erase erase>
void VectorChunk<T, erase>::backward_gently(const VectorProblem<T>& p, const VectorGradient<T>& d, Size row,
                                            Size begin, Size c, int head, const T* S_0, T* dS, const T* R, Back what,
                                            const Passed& pass) {
  const bool answers = static_cast<bool>(d.d_o);
  const int key_head = head / (p.heads / p.key_heads);
  prepare(p, row, begin, c, head);
  load_apart(p, row, begin, c, head, answers);
  const Size asked = answers ? c : 0, readers = asked + (erase == Erase::none ? 0 : c);
  const Size writers = erase == Erase::other ? 2 * c : c;
  T *const Q = q, *const X = q + asked * K, *const dQ = d_q, *const dX = d_q + asked * K;
  T *const Y = y, *const Kd = y + (writers - c) * K, *const dY = d_y, *const dK = d_y + (writers - c) * K;
  T *const dO = o, *const dR = o + asked * V, *const dU = dR + (writers - c) * V;

  const bool state = what == Back::state, writes = !state || erase == Erase::same;  // K is of interest
  const bool known = erase != Erase::none && pass.from, finds = writes && !(erase == Erase::same && known);  // dR; dU
  if (writes) scaled(p.k, row, begin, c, key_head, keys.down_rows(), Kd);
  if (finds && (answers || erase != Erase::none)) s.transpose(c, K, Kd, K, kt, C);
  if (answers) {
    scaled(p.q, row, begin, c, key_head, keys.up_rows(ask), Q);
    pack(s, d.d_o, row, begin, c, head, V, p.scale, dO);
  }
  if (answers && finds) {
    lower(c, K, Q, kt, T(1), ask == Reader::before, P);
    keys.apart().pair(c, ask, false, T(1), Channel::q, Channel::k, P);
  }
  if constexpr (erase != Erase::none)
    scaled(p.a ? p.a : p.k, row, begin, c, p.a ? head : key_head, keys.up_rows(look), X);
  if constexpr (erase == Erase::other) scaled(p.b, row, begin, c, head, keys.down_rows(), Y);
  find_systems_gently(c, X, Y, state, known);
  const T* U = u;
  if constexpr (erase != Erase::same)
    if (!state) written(p, row, begin, c, head, u);
  if constexpr (erase == Erase::same) {
    if (p.beta && !state) s.scale_rows(c, V, beta, R, V, u, V);
    else U = R;
  }

  const T* const late = keys.apart().late_of_writers(keys.over(c), K);
  const bool of_keys = !state && (d.d_gk || d.d_q || d.d_a || d.d_k);
  if (of_keys) through.turn_states(K, V, late, S_0, dS, dS, st, d_st, last);
  else s.scale_rows(K, V, late, dS, V, dS, V);
  if (d.d_gk && !state && keys.start()) s.mul(K, keys.start(), last, last);
  for (Size n = 0; d.d_gk && !state && n < keys.apart().count(); ++n)
    last[keys.apart().channel(n)] *= keys.over(c)[keys.apart().channel(n)];
  if (finds) product_tn(c, V, K, Kd, dS, answers ? P : nullptr, dO, dU);
  if (known) {
    std::copy_n(pass.from, c * V, dR);
  } else if constexpr (erase != Erase::none) {
    if constexpr (erase == Erase::other) {
      if (answers) {
        lower(c, K, Q, yt, T(1), ask == Reader::before, P);
        keys.apart().pair(c, ask, false, T(1), Channel::q, Channel::y, P);
      }
      product_tn(c, V, K, Y, dS, answers ? P : nullptr, dO, dR);
    } else if (p.beta) {
      s.scale_rows(c, c, beta, PX, C, PX, C);
    }
    s.solve_tn(c, V, PX, C, dR, V);
    if (pass.to) std::copy_n(dR, c * V, pass.to);
  }
  if constexpr (erase == Erase::other)
    if (!state) s.trmm_tn(c, V, T(1), N, C, dR, V, T(1), dU, V);
  if (d.d_beta && !state) {
    Size ldr = V;
    const T* const rest = erase == Erase::same ? R : contiguous(s, p.v, row, begin, c, head, V, v, &ldr);
    s.row_dots(c, V, dU, V, rest, ldr, wide);
    for (Size i = 0; i < c; ++i) d.d_beta(row, begin + i, head) += wide[i];
  }
  if (writes && (p.beta || erase == Erase::same)) {
    for (Size i = 0; erase == Erase::same && i < c; ++i) beta[i] = -beta[i];
    s.scale_rows(c, V, beta, dU, V, dU, V);  // dV, and for `same` dR = -dV
  }
  const auto pass_start = [&] {
    for (Size n = 0; n < keys.apart().count(); ++n) {
      const Size i = keys.apart().channel(n);
      s.scale(V, keys.over(c)[i], dS + i * V, dS + i * V);
    }
    s.gemm_tn_onto(K, V, readers, nullptr, Q, K, dO, V, T(1), dS, V, dS, V, behind.get());
    if (keys.start()) s.scale_rows(K, V, keys.start(), dS, V, dS, V);
  };
  if (state) return pass_start();
  using Gradient = LinearGradient<T>;
  const bool first = head % (p.heads / p.key_heads) == 0, bonus = answers && p.bonus;
  const bool far = past && !bonus, far_key = far && p.heads == p.key_heads;
  if (is_written(d, Gradient::fresh_v, d.d_v)) {
    std::fill_n(own, c, erase == Erase::same ? T(-1) : T(1));
    through.write_rows(c, V, own, dU, nullptr, nullptr, nullptr, &d.d_v(row, begin, head, 0), d.d_v.stride[1], far);
  } else if (d.d_v) {
    clear_if(d.fresh & Gradient::fresh_v, row, begin, c, head, V, d.d_v);
    add_rows(s, erase == Erase::same ? T(-1) : T(1), dU, row, begin, c, head, V, d.d_v);
  }

  s.transpose(c, V, U, V, wide, C);
  if (answers) lower(c, V, dO, wide, T(1), ask == Reader::before, P);
  if (answers && d.d_gk) keys.take_near(c, ask, P, near_k);
  if constexpr (erase != Erase::none) {
    lower(c, V, dR, wide, T(1), true, PX);
    if (d.d_gk) keys.take_near(c, look, PX, near_k + C);
  }
  if constexpr (erase == Erase::other) {
    s.transpose(c, V, R, V, wide, C);
    if (answers) lower(c, V, dO, wide, T(1), ask == Reader::before, A);
    if (answers && d.d_gk) keys.take_near(c, ask, A, near_y);
    lower(c, V, dR, wide, T(1), true, N);
    if (d.d_gk) keys.take_near(c, look, N, near_y + C);
  }
  if (of_keys) {
    if (keys.start()) s.scale_columns(V, K, keys.start(), st, K, st, K);
    if (answers) product_nn(c, K, V, nullptr, dO, st, P, Kd, dQ, K);
    if constexpr (erase != Erase::none) product_nn(c, K, V, nullptr, dR, st, PX, Kd, dX, K);
    if constexpr (erase == Erase::other) {
      if (answers) s.trmm_nn(c, K, T(1), A, C, Y, K, T(1), dQ, K);
      s.trmm_nn(c, K, T(1), N, C, Y, K, T(1), dX, K);
    }
    back_to_writers(c, U, answers ? P : nullptr, Q, Kd, dK, d.d_gk ? end_k : nullptr);
    if constexpr (erase != Erase::none) s.trmm_tn(c, K, T(1), PX, C, X, K, T(1), dK, K);
    if constexpr (erase == Erase::other) {
      back_to_writers(c, R, answers ? A : nullptr, Q, Y, dY, d.d_gk ? end_y : nullptr);
      s.trmm_tn(c, K, T(1), N, C, X, K, T(1), dY, K);
    }
  }
  if (what == Back::all) pass_start();
  if (keys.apart().count() > 0) back_apart(c, answers, Q, X, Kd, Y, dQ, dX, dK, dY);
  if (d.d_gk) {
    typename Simd<T>::GateTerm terms[4];
    int count = 0;
    if (answers) terms[count++] = {Q, dQ, false, ask == Reader::before};
    terms[count++] = {Kd, dK, true, false};
    if (erase != Erase::none) terms[count++] = {X, dX, false, look == Reader::before};
    if (erase == Erase::other) terms[count++] = {Y, dY, true, false};
    if (is_written(d, Gradient::fresh_gk, d.d_gk)) {
      keys.add_gradient(c, terms, count, last, {}, row, begin, head);
      write(keys.gradient_rows(), nullptr, nullptr, nullptr, row, begin, c, head, K, d.d_gk, far);
    } else {
      clear_if(d.fresh & Gradient::fresh_gk, row, begin, c, head, K, d.d_gk);
      keys.add_gradient(c, terms, count, last, d.d_gk, row, begin, head);
    }
    put_back(c, answers, Q, X, Kd, Y, dQ, dX, dK, dY);
  }
  if (first && answers && is_written(d, Gradient::fresh_q, d.d_q)) {
    write(dQ, keys.up_rows(ask), nullptr, nullptr, row, begin, c, key_head, K, d.d_q, far_key);
  } else {
    clear_if(first && (d.fresh & Gradient::fresh_q), row, begin, c, key_head, K, d.d_q);
    if (answers) add_scaled(keys.up_rows(ask), dQ, row, begin, c, key_head, d.d_q);
  }
  const bool into_keys = erase != Erase::none && !p.a;  // readers are the keys themselves
  if (first && is_written(d, Gradient::fresh_k, d.d_k)) {
    write(dK, keys.down_rows(), into_keys ? dX : nullptr, keys.up_rows(look), row, begin, c, key_head, K, d.d_k,
          far_key);
  } else {
    clear_if(first && (d.fresh & Gradient::fresh_k), row, begin, c, key_head, K, d.d_k);
    add_scaled(keys.down_rows(), dK, row, begin, c, key_head, d.d_k);
    if (into_keys) add_scaled(keys.up_rows(look), dX, row, begin, c, key_head, d.d_k);
  }
  const auto finish_own = [&](unsigned role, const T* factors, T* panel, const View<T, 4>& to) {
    if (is_written(d, role, to)) return write(panel, factors, nullptr, nullptr, row, begin, c, head, K, to, far);
    clear_if(d.fresh & role, row, begin, c, head, K, to);
    add_scaled(factors, panel, row, begin, c, head, to);
  };
  if (erase != Erase::none && p.a) finish_own(Gradient::fresh_a, keys.up_rows(look), dX, d.d_a);
  if constexpr (erase == Erase::other) finish_own(Gradient::fresh_b, keys.down_rows(), dY, d.d_b);
  if (answers && p.bonus) {
    load(p, row, begin, c, head, true);
    pack(s, d.d_o, row, begin, c, head, V, T(1), o);
    std::fill_n(d_q, c * K, T(0)), std::fill_n(d_k, c * K, T(0));
    through_bonus(d, c, row, begin, head);
    if (d.d_q) add_rows(s, p.scale, d_q, row, begin, c, key_head, K, d.d_q);
    if (d.d_k) add_rows(s, T(1), d_k, row, begin, c, key_head, K, d.d_k);
  }
}

}  // namespace ttr::families
