// The queries of a tile and their systems: weights, rows, right-hand sides, solutions; and the reverse of each.
// Equations: query_fit.h. Arrays over the pairs of a tile are [rows, m], m the pairs that one of its queries sees, and
// zero where a query sees none.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>

#include "families/common/scratch.h"
#include "families/pairs/driver.h"
#include "families/pairs/query_fit/orthogonal.h"
#include "families/pairs/query_fit/query_fit.h"
#include "families/pairs/rows.h"
#include "families/solve/least_squares/rows.h"

namespace ttr::families::query_fit {

using pairs::block_size;
using pairs::Kernel;
using pairs::narrow;
using pairs::Size;
using pairs::widen;

/// What scratch is laid out for.
struct Sizes {
  Size K, V, F, rows, pairs, most;  // features of the memory; queries of a tile; pairs of a sequence, and of a tile
  FitMemory memory;
  SolveBy solve;
  int steps;
  bool given, backward;  // rows besides the keys
  Size dim() const { return memory == FitMemory::kernel ? most : F; }
};
template <class T>
Sizes sizes_of(const QueryFitProblem<T>& p, Size pairs, bool backward) {
  const bool local = p.memory == FitMemory::local;
  const Size rows = local ? 1 : block_size;
  return {p.key_dim,      p.value_dim, local ? monomials(p.key_dim, p.order) : p.width(),
          rows,           pairs,       p.window > 0 ? std::min(pairs, p.window + rows) : pairs,
          p.memory,       p.solve,     p.steps,
          p.features > 0, backward};
}

/// The monomials of a vector z: phi_f = phi_parent z_axis, phi_0 = 1.
class Monomials {
 public:
  Monomials(Size key_dim, int order, Size count, Arena& arena) : K(key_dim), F(count) {
    parent = arena.take<Size>(F), axis = arena.take<Size>(F);
    if (!parent) return;
    Size made = 1, first = 0;
    for (int d = 0; d < order; ++d) {
      const Size end = made;
      for (Size f = first; f < end; ++f)
        for (Size a = f == 0 ? 0 : axis[f]; a < K; ++a) parent[made] = f, axis[made++] = a;
      first = end;
    }
  }
  void make(const double* z, double* phi) const {
    phi[0] = 1;
    for (Size f = 1; f < F; ++f) phi[f] = phi[parent[f]] * z[axis[f]];
  }
  /// d_z += ; spoils d_phi
  void back(const double* z, const double* phi, double* d_phi, double* d_z) const {
    for (Size f = F; --f > 0;) {
      d_z[axis[f]] += d_phi[f] * phi[parent[f]];
      d_phi[parent[f]] += d_phi[f] * z[axis[f]];
    }
  }

 private:
  Size K, F;
  Size *parent, *axis;
};

template <class T>
class Tile {
 public:
  Tile(const QueryFitProblem<T>& problem, const Simd<double>& simd, const Sizes& z, Arena& arena)
      : p(problem),
        s(simd),
        a(simd.name ? &attention_simd(simd) : nullptr),
        size(z),
        monomial(z.K, z.memory == FitMemory::local ? problem.order : 0, z.memory == FitMemory::local ? z.F : 1,
                 arena),
        orthogonal(simd, by_rows(z) ? z.most : 0, by_rows(z) ? z.F : 0, arena),
        kernel(simd, z.K, arena) {
    const Size R = z.rows, N = z.most, D = z.dim();
    const auto doubles = [&](Size count) { return arena.take<double>(count); };
    keys = doubles(z.pairs * z.K), values = doubles(z.pairs * z.V);
    given = doubles(z.given ? z.pairs * z.F : 0), gates = doubles(z.pairs), factors = doubles(z.pairs);
    q = doubles(R * z.K), o = doubles(R * z.V), W = doubles(R * N), U = doubles(R * N), E = doubles(R * N);
    if (z.memory == FitMemory::local) made = doubles(N * z.F), step_k = doubles(z.K), d_step_k = doubles(z.K);
    if (z.memory == FitMemory::kernel) gram = doubles(N * N), root = doubles(R * N), at_query = doubles(R * N);
    B = doubles(R * D), Y = doubles(R * D);
    for (double** list : {&shift, &ridge, &low, &high, &trace, &total}) *list = doubles(R);
    diagonal = doubles(D);
    begin = arena.take<Size>(R), end = arena.take<Size>(R), idle = arena.take<bool>(R), bad = arena.take<bool>(R);
    const bool exact = z.solve == SolveBy::cholesky;
    H = doubles(exact ? D * D : 0), weighted = doubles(exact && !gram_of(z) ? block_size * D : 0);
    if (z.backward) {
      d_keys = doubles(z.pairs * z.K), d_values = doubles(z.pairs * z.V);
      d_given = doubles(z.given ? z.pairs * z.F : 0), d_gates = doubles(z.pairs), d_factors = doubles(z.pairs);
      d_q = doubles(R * z.K), dU = doubles(R * N), dW = doubles(R * N), E2 = doubles(R * N);
      if (z.memory == FitMemory::local) d_made = doubles(N * z.F);
      if (z.memory == FitMemory::kernel) d_gram = doubles(N * N), images = doubles(R * N), images2 = doubles(R * N);
      dY = doubles(R * D), dB = doubles(R * D), d_diagonal = doubles(R * D), spare = doubles(R * D);
      for (double** list : {&d_low, &d_high}) *list = doubles(R);
    }
    // The solver is made anew for every tile: of kernels the systems are as wide as there are pairs.
    rest = arena.rest();
    if (rest.data) return;
    if (exact) Cholesky(simd, D, arena);
    else least_squares::RowSolve(simd, D, R, z.solve, z.steps, z.backward, arena);
  }

  /// The pairs of a sequence that a key head has.
  void load_pairs(std::size_t n, int key_head) {
    const Sequence& x = p.sequences[n];
    past = p.past_of(n);
    const Size N = static_cast<Size>(n), now = x.end - x.begin;
    const auto both = [&](const View<const T, 4>& old, const View<const T, 4>& here, Size wide, double* to) {
      if (past > 0) widen(old, N, 0, past, key_head, wide, to);
      widen(here, x.row, x.begin, now, key_head, wide, to + past * wide);
    };
    both(p.past_k, p.k, size.K, keys), both(p.past_v, p.v, size.V, values);
    if (size.given) both(p.past_x, p.x_k, size.F, given);
    kernel.choose(p.kernel, p.kernel_scale, p.kernel_bandwidth, p.degree);
  }
  /// Its gates and importances for a head.
  void load_weights(std::size_t n, int of_head) {
    const Sequence& x = p.sequences[n];
    const auto both = [&](const View<const T, 3>& old, const View<const T, 3>& here, double otherwise, double* to) {
      for (Size i = 0; i < past + x.end - x.begin; ++i)
        to[i] = !here      ? otherwise
                : i < past ? static_cast<double>(old(static_cast<Size>(n), i, of_head))
                           : static_cast<double>(here(x.row, x.begin + i - past, of_head));
    };
    both(p.past_g, p.g, 0, gates), both(p.past_beta, p.beta, 1, factors);
  }

  /// Whether all that these queries see are numbers; else 0 times what one of them does not see would be NaN.
  bool tame(Size first_, Size count) const {
    const Size from = p.window > 0 ? std::max<Size>(0, past + first_ + 1 - p.window) : 0;
    const Size n = past + first_ + count - from;
    return a->finite(n * size.K, keys + from * size.K) && a->finite(n * size.V, values + from * size.V) &&
           (!size.given || a->finite(n * size.F, given + from * size.F));
  }

  /// Queries first .. of the sequence, up to their answers in `o`. False if one has none.
  bool answer(std::size_t n, int head_, Size first_, Size count) {
    sequence = p.sequences[n], head = head_, first = first_, rows = count;
    base = p.window > 0 ? std::max<Size>(0, past + first + 1 - p.window) : 0;
    m = past + first + rows - base;
    dim = size.memory == FitMemory::kernel ? m : size.F;
    widen(p.q, sequence.row, sequence.begin + first, rows, head, size.K, q);
    weigh();
    form();
    bool good = std::none_of(bad, bad + rows, [](bool b) { return b; });
    good = solve() && good;
    if (!turned) spread(Y, U);
    s.gemm_nn(rows, size.V, m, 1.0, U, m, values + base * size.V, size.V, 0.0, o, size.V);
    for (Size t = 0; t < rows; ++t)
      if (bad[t]) std::fill_n(o + t * size.V, size.V, std::numeric_limits<double>::quiet_NaN());
    return good;
  }

  // The operator of the iterations (solve/least_squares/rows.h).
  /// A = the matrices times the rows of P
  void apply(const double* P, double* A) {
    multiply(P, E, A);
    for (Size t = 0; t < rows; ++t) s.axpy(dim - skip(), ridge[t], P + t * dim + skip(), A + t * dim + skip());
  }
  /// The same for D, and D P' to the gradients of weights and rows.
  void reverse(const double* D, const double* P, double* A) {
    if (size.memory == FitMemory::kernel) {
      multiply(P, E2, A);  // E2 = D P scaled, images = its product with kappa
      std::copy_n(images, rows * m, images2);
      multiply(D, E, A);
      for (Size i = 0; i < rows * m; ++i) dW[i] += (E[i] * images2[i] + E2[i] * images[i]) / 2;
      s.gemm_tn(m, m, rows, 1.0, E, m, E2, m, 1.0, d_gram, m);
    } else {
      s.gemm_nt(rows, m, dim, 1.0, P, dim, features(), dim, 0.0, E2, m);
      multiply(D, E, A);  // E has the weights, which dW is not to have
      s.gemm_tn(m, dim, rows, 1.0, E, m, P, dim, 1.0, d_features(), dim);
      s.gemm_nt(rows, m, dim, 1.0, D, dim, features(), dim, 0.0, E, m);
      s.mul_add(rows * m, E, E2, dW);
      s.mul(rows * m, W, E2, E2);
      s.gemm_tn(m, dim, rows, 1.0, E2, m, D, dim, 1.0, d_features(), dim);
    }
    for (Size t = 0; t < rows; ++t) s.axpy(dim - skip(), ridge[t], D + t * dim + skip(), A + t * dim + skip());
  }

  /// Gradients of the sums below from those of the answers.
  void back(const QueryFitGradient<T>& d) {
    widen(d.d_o, sequence.row, sequence.begin + first, rows, head, size.V, o);
    for (Size t = 0; t < rows; ++t)
      if (bad[t]) std::fill_n(o + t * size.V, size.V, 0.0), std::fill_n(U + t * m, m, 0.0);
    std::fill_n(dW, rows * m, 0.0), std::fill_n(d_q, rows * size.K, 0.0);
    if (made) std::fill_n(d_made, m * size.F, 0.0);
    if (gram) std::fill_n(d_gram, m * m, 0.0);
    std::fill_n(dB, rows * dim, 0.0), std::fill_n(d_diagonal, rows * dim, 0.0);
    // The read.
    s.gemm_tn(m, size.V, rows, 1.0, U, m, o, size.V, 1.0, d_values + base * size.V, size.V);
    s.gemm_nt(rows, m, size.V, 1.0, o, size.V, values + base * size.V, size.V, 0.0, dU, m);
    if (gram) {
      s.mul(rows * m, root, dU, dY);
      for (Size i = 0; i < rows * m; ++i) dW[i] += Y[i] * dY[i] / 2;
    } else {
      s.gemm_nt(rows, m, dim, 1.0, Y, dim, features(), dim, 0.0, E, m);
      s.mul_add(rows * m, dU, E, dW);
      s.mul(rows * m, W, dU, E);
      s.gemm_nn(rows, dim, m, 1.0, E, m, features(), dim, 0.0, dY, dim);
      s.gemm_tn(m, dim, rows, 1.0, E, m, Y, dim, 1.0, d_features(), dim);
    }
    solve_back();
    numbers_back(d);
    right_side_back(d);
    weights_back(d);
    narrow(d_q, sequence.row, sequence.begin + first, rows, head, size.K, true, d.d_q);
  }

  void clear_sums(Size pairs) {
    std::fill_n(d_keys, pairs * size.K, 0.0), std::fill_n(d_values, pairs * size.V, 0.0);
    if (size.given) std::fill_n(d_given, pairs * size.F, 0.0);
  }
  void clear_weights(Size pairs) { std::fill_n(d_gates, pairs, 0.0), std::fill_n(d_factors, pairs, 0.0); }

  double* o;  // [rows, V] answers, or their gradients
  double *d_keys = nullptr, *d_values = nullptr, *d_given = nullptr, *d_gates = nullptr, *d_factors = nullptr;

 private:
  static constexpr double none = -std::numeric_limits<double>::infinity();
  static bool by_rows(const Sizes& z) { return z.memory == FitMemory::local && z.solve == SolveBy::cholesky; }
  static bool gram_of(const Sizes& z) { return z.memory == FitMemory::kernel; }
  bool by_steps() const { return p.solve == SolveBy::gradient; }
  Size skip() const { return made ? 1 : 0; }  // coefficients without a ridge
  const double* features() const { return made ? made : (size.given ? given : keys) + base * size.F; }
  double* d_features() const { return made ? d_made : (size.given ? d_given : d_keys) + base * size.F; }

  void near_logits(Size t, double* to) const {
    const Size n = end[t] - begin[t];
    const double* const seen = keys + (base + begin[t]) * size.K;
    if (p.near == FitNear::none) std::fill_n(to, n, 0.0);
    else {
      const bool apart = p.near == FitNear::gaussian;
      a->scores(n, size.K, apart, apart ? -1 / static_cast<double>(p.bandwidth(head)) : p.near_scale, seen, size.K,
                q + t * size.K, to);
    }
  }

  void weigh() {
    for (Size t = 0; t < rows; ++t) {
      end[t] = past + first + t + 1 - base, begin[t] = p.window > 0 ? std::max<Size>(0, end[t] - p.window) : 0;
      double* const w = W + t * m;
      std::fill_n(w, begin[t], 0.0), std::fill(w + end[t], w + m, 0.0);
      near_logits(t, w + begin[t]);
      double gate = 0, top = none;
      bad[t] = false;
      for (Size j = end[t]; j-- > begin[t];) {
        const double importance = factors[base + j];
        w[j] += gate, gate += gates[base + j];
        if (importance != 0) top = std::max(top, w[j]);
        bad[t] = bad[t] || (importance < 0 && (gram || !by_steps()));
      }
      shift[t] = by_steps() || !std::isfinite(top) ? 0 : top;
      total[t] = 0;
      for (Size j = begin[t]; j < end[t]; ++j) w[j] -= shift[t];
      s.exp(end[t] - begin[t], w + begin[t], w + begin[t]);
      for (Size j = begin[t]; j < end[t]; ++j) total[t] += w[j] *= factors[base + j];
      const Size at = sequence.begin + first + t;
      const double given_ridge = p.ridge ? static_cast<double>(p.ridge(sequence.row, at, head)) : 0.0;
      bad[t] = bad[t] || !(p.solve == SolveBy::cholesky ? given_ridge > 0 : given_ridge >= 0);
      unit_of(t);
      // Without weights a ridge that is relative to them leaves nothing to solve: any does, and the answer is zero.
      ridge[t] = bad[t] || (p.relative && total[t] == 0) ? 1.0 : given_ridge * trace[t];
      if (bad[t]) std::fill_n(w, m, 0.0);
    }
  }
  // What the ridge is in units of, in trace[t]: e^-shift, bounded so that it stays a number, or the sum of the weights.
  void unit_of(Size t) const { trace[t] = p.relative ? total[t] : std::min(std::exp(-shift[t]), 1e290); }

  void form() {
    if (made) {
      for (Size j = 0; j < m; ++j) {
        for (Size c = 0; c < size.K; ++c) step_k[c] = keys[(base + j) * size.K + c] - q[c];
        monomial.make(step_k, made + j * size.F);
      }
      std::fill_n(B, dim, 0.0);
      B[0] = 1;
      if (p.solve == SolveBy::cholesky) centre();
    } else if (gram) {
      const double* const k = keys + base * size.K;
      kernel.values(m, m, k, k, gram, m);
      kernel.values(rows, m, q, k, at_query, m);
      for (Size i = 0; i < rows * m; ++i) root[i] = std::sqrt(W[i]), B[i] = root[i] == 0 ? 0 : root[i] * at_query[i];
    } else {
      if (size.given) widen(p.x_q, sequence.row, sequence.begin + first, rows, head, size.F, B);
      else std::copy_n(q, rows * dim, B);
      s.scale(rows * dim, p.scale, B, B);
    }
  }

  // The monomials of the one query, but for the 1, around their means, and what they are at the query. The free constant
  // makes any centre give the same answer, so that gradients need not know of it; only around the means are the sums that
  // are solved for small where the data are.
  void centre() {
    for (Size j = 0; j < m && total[0] != 0; ++j) s.axpy(dim - 1, -W[j] / total[0], made + j * dim + 1, B + 1);
    for (Size j = 0; j < m; ++j) s.axpy(dim - 1, 1.0, B + 1, made + j * dim + 1);
  }

  // M [rows, m] = what the matrices' middle makes of the rows of P, A [rows, dim] = the rest of it; without the ridge.
  void multiply(const double* P, double* M, double* A) {
    if (gram) {
      double* const product = images ? images : U;
      s.mul(rows * m, root, P, M);
      s.gemm_nn(rows, m, m, 1.0, M, m, gram, m, 0.0, product, m);
      s.mul(rows * m, root, product, A);
      return;
    }
    s.gemm_nt(rows, m, dim, 1.0, P, dim, features(), dim, 0.0, M, m);
    s.mul(rows * m, W, M, M);
    s.gemm_nn(rows, dim, m, 1.0, M, m, features(), dim, 0.0, A, dim);
  }
  // u [rows, m] of solutions
  void spread(const double* X, double* u) const {
    if (gram) return s.mul(rows * m, root, X, u);
    s.gemm_nt(rows, m, dim, 1.0, X, dim, features(), dim, 0.0, u, m);
    s.mul(rows * m, W, u, u);
  }

  // tr A without the ridge, in trace[]: sum_j w_j |x_j|^2
  void traces() {
    for (Size j = 0; j < m; ++j)
      squares()[j] = gram ? gram[j * m + j] : s.dot(dim, features() + j * dim, features() + j * dim);
    for (Size t = 0; t < rows; ++t) trace[t] = s.dot(m, W + t * m, squares());
  }
  double* squares() const { return E; }

  bool solve() {
    turned = by_rows(size) && !bad[0] && is_slight(0) && orthogonal.factor(m, W, made, ridge[0]);
    if (turned) return orthogonal.solve(B, Y, U), true;
    if (p.solve == SolveBy::cholesky) {
      bool good = true;
      for (Size t = 0; t < rows; ++t) {
        Arena arena(rest);
        Cholesky factor(s, width(t), arena);
        const bool solved = factorise(t, factor) || bad[t];
        std::fill_n(Y + t * dim, dim, 0.0);
        if (!bad[t]) {
          std::copy_n(B + t * dim + lead(t), width(t), Y + t * dim + lead(t));
          factor.solve(Y + t * dim + lead(t));
        }
        good = good && solved;
      }
      return good;
    }
    traces();
    for (Size t = 0; t < rows; ++t) {
      idle[t] = bad[t], high[t] = 0;
      low[t] = !by_steps() ? 0
               : p.automatic
                   ? (trace[t] > 0 ? 1 / trace[t] : 0.0)
                   : (p.step ? static_cast<double>(p.step(sequence.row, sequence.begin + first + t, head)) : 1.0);
      trace[t] += ridge[t] * static_cast<double>(gram ? end[t] - begin[t] : dim - skip());
    }
    Arena arena(rest);
    steps.emplace(s, dim, rows, p.solve, p.steps, size.backward, arena);
    steps->run(*this, rows, B, low, high, trace, idle, tolerance, Y);
    return true;
  }
  static constexpr double tolerance = 1e-13;

  // Whether the ridge of a query has lost its digits beside the products of its monomials.
  bool is_slight(Size t) const {
    double most = 0;
    for (Size c = 0; c < dim; ++c) {
      double sum = 0;
      for (Size j = 0; j < m; ++j) sum += W[t * m + j] * made[j * dim + c] * made[j * dim + c];
      most = std::max(most, sum);
    }
    return ridge[t] <= 1e-6 * most;
  }

  // Where the system of query t begins within its row, and how wide it is: kernels leave out what it does not see.
  Size lead(Size t) const { return gram ? begin[t] : 0; }
  Size width(Size t) const { return gram ? end[t] - begin[t] : dim; }

  // False: no number comes of it although all it is made of are numbers.
  bool factorise(Size t, Cholesky& factor) {
    const Size n = width(t);
    if (bad[t]) return false;
    if (gram) {
      const double* const D = root + t * m + begin[t];
      for (Size i = 0; i < n; ++i) {
        s.mul(i + 1, gram + (begin[t] + i) * m + begin[t], D, H + i * n);
        s.scale(i + 1, D[i], H + i * n, H + i * n);
      }
    } else {
      constexpr Size panel = 32;
      std::fill_n(H, n * n, 0.0);
      for (Size j = begin[t]; j < end[t]; j += block_size) {
        const Size c = std::min(block_size, end[t] - j);
        s.scale_rows(c, n, W + t * m + j, features() + j * n, n, weighted, n);
        for (Size i = 0; i < n; i += panel) {
          const Size k = std::min(panel, n - i);
          s.gemm_tn(k, i + k, c, 1.0, weighted + i, n, features() + j * n, n, 1.0, H + i * n, n);
        }
      }
    }
    double sum = 0;
    for (Size i = 0; i < n; ++i) sum += H[i * n + i];  // NaN stays NaN
    std::fill_n(diagonal, n, ridge[t]);
    if (skip()) diagonal[0] = 0;
    if (factor.factor(H, diagonal)) return true;
    const double raised = std::max(ridge[t], 1e-13 * sum);
    std::fill_n(diagonal, n, raised);
    return factor.factor(H, diagonal) || !std::isfinite(sum + raised);
  }

  // From dY: dB, d_diagonal (of the matrices), d_low, and by reverse() of weights and rows.
  void solve_back() {
    if (p.solve == SolveBy::cholesky) {
      std::fill_n(spare, rows * dim, 0.0);
      if (turned) orthogonal.solve_back(dU, spare);
      for (Size t = 0; t < rows; ++t) {
        if (bad[t] || turned) continue;
        Arena arena(rest);
        Cholesky factor(s, width(t), arena);
        factorise(t, factor);
        double* const z = spare + t * dim + lead(t);
        std::copy_n(dY + t * dim + lead(t), width(t), z);
        factor.solve(z);
      }
      s.axpy(rows * dim, 1.0, spare, dB);
      s.scale(rows * dim, -1.0, spare, spare);
      s.mul_add(rows * dim, spare, Y, d_diagonal);
      reverse(spare, Y, dY);
      return;
    }
    steps->back(*this, rows, B, Y, dY, {dB, d_diagonal, d_low, d_high});
  }

  // Ridges and sizes of steps.
  void numbers_back(const QueryFitGradient<T>& d) {
    const bool of_trace = by_steps() && p.automatic;
    if (of_trace) traces();
    for (Size t = 0; t < rows; ++t) {
      if (bad[t]) continue;
      const Size at = sequence.begin + first + t;
      if (of_trace) {
        const double d_trace = -d_low[t] * low[t] * low[t];
        const double* const w = W + t * m;
        for (Size j = begin[t]; j < end[t]; ++j) {
          if (gram) d_gram[j * m + j] += d_trace * w[j], dW[t * m + j] += d_trace * w[j] * squares()[j];
          else {
            dW[t * m + j] += d_trace * squares()[j];
            s.axpy(dim, 2 * d_trace * w[j], features() + j * dim, d_features() + j * dim);
          }
        }
      } else if (by_steps() && d.d_step) {
        d.d_step(sequence.row, at, head) += static_cast<T>(d_low[t]);
      }
      if (!p.ridge) continue;
      double sum = 0;
      for (Size i = skip(); i < dim; ++i) sum += d_diagonal[t * dim + i];
      unit_of(t);
      if (d.d_ridge) d.d_ridge(sequence.row, at, head) += static_cast<T>(sum * trace[t]);
      if (!p.relative) continue;
      sum *= static_cast<double>(p.ridge(sequence.row, at, head));
      for (Size j = begin[t]; j < end[t]; ++j) dW[t * m + j] += gram ? sum * W[t * m + j] : sum;
    }
  }

  void right_side_back(const QueryFitGradient<T>& d) {
    if (gram) {
      double* const k = keys + base * size.K;
      double* const d_k = d_keys + base * size.K;
      for (Size i = 0; i < rows * m; ++i) dW[i] += dB[i] * B[i] / 2;
      s.mul(rows * m, root, dB, dB);
      for (Size j = 0; j < m; j += block_size) {
        const Size n = std::min(block_size, m - j);
        kernel.back(rows, n, q, k + j * size.K, dB + j, m, d_q, d_k + j * size.K);
        for (Size i = 0; i < m; i += block_size)
          kernel.back(std::min(block_size, m - i), n, k + i * size.K, k + j * size.K, d_gram + i * m + j, m,
                      d_k + i * size.K, d_k + j * size.K);
      }
    } else if (made) {  // the one query of the tile
      for (Size j = 0; j < m; ++j) {
        const double* const key = keys + (base + j) * size.K;
        for (Size c = 0; c < size.K; ++c) step_k[c] = key[c] - q[c];
        double* const to = d_keys + (base + j) * size.K;
        std::fill_n(d_step_k, size.K, 0.0);
        monomial.make(step_k, made + j * size.F);
        monomial.back(step_k, made + j * size.F, d_made + j * size.F, d_step_k);
        s.axpy(size.K, 1.0, d_step_k, to);
        s.axpy(size.K, -1.0, d_step_k, d_q);
      }
    } else {
      s.scale(rows * dim, p.scale, dB, dB);
      if (!size.given) s.axpy(rows * dim, 1.0, dB, d_q);
      else if (d.d_x_q) narrow(dB, sequence.row, sequence.begin + first, rows, head, size.F, true, d.d_x_q);
    }
  }
  // From dW, of the weights (kernels: of their logs): importances, gates, and what is near.
  void weights_back(const QueryFitGradient<T>& d) {
    if (!gram && p.beta)
      for (Size t = 0; t < rows; ++t)
        for (Size j = begin[t]; j < end[t]; ++j)
          if (const double beta = factors[base + j]; beta != 0)
            d_factors[base + j] += dW[t * m + j] * W[t * m + j] / beta;
    if (!gram) s.mul(rows * m, W, dW, dW);
    for (Size t = 0; t < rows; ++t) {
      double* const l = dW + t * m;
      double sum = 0;
      for (Size j = begin[t]; j < end[t]; ++j) {
        if (gram && p.beta && factors[base + j] != 0) d_factors[base + j] += l[j] / factors[base + j];
        if (j > begin[t]) d_gates[base + j] += sum;
        sum += l[j];
      }
      if (p.near == FitNear::none) continue;
      near_back(d, t, l);
    }
  }
  void near_back(const QueryFitGradient<T>& d, Size t, const double* l) {
    const Size n = end[t] - begin[t];
    const double *const seen = keys + (base + begin[t]) * size.K, *const query = q + t * size.K;
    double *const to_keys = d_keys + (base + begin[t]) * size.K, *const to_query = d_q + t * size.K;
    const bool apart = p.near == FitNear::gaussian;
    const double width_ = apart ? static_cast<double>(p.bandwidth(head)) : 1,
                 rate = apart ? 2 / width_ : p.near_scale;
    const double* const of_logit = l + begin[t];
    double sum = 0;
    for (Size j = 0; j < n; ++j) {
      const double c = rate * of_logit[j];
      sum += c;
      s.axpy(size.K, c, seen + j * size.K, to_query);
      s.axpy(size.K, c, query, to_keys + j * size.K);
      if (apart) s.axpy(size.K, -c, seen + j * size.K, to_keys + j * size.K);
    }
    if (!apart) return;
    s.axpy(size.K, -sum, query, to_query);
    if (!d.d_bandwidth) return;
    near_logits(t, E);
    d.d_bandwidth(head) -= static_cast<T>(s.dot(n, E, of_logit) / width_);
  }

  const QueryFitProblem<T>& p;
  const Simd<double>& s;
  const AttentionSimd<double>* a;
  Sizes size;
  Monomials monomial;
  Orthogonal orthogonal;  // of the one query of a local memory
  bool turned = false;    // it has that query's system
  Kernel kernel;
  Workspace rest;
  Sequence sequence{};
  int head = 0;
  Size past = 0, first = 0, rows = 0, base = 0, m = 0, dim = 0;
  double *keys, *values, *given, *gates, *factors, *q, *W, *U, *E, *B, *Y, *H, *diagonal;
  double *made = nullptr, *step_k = nullptr, *gram = nullptr, *root = nullptr, *at_query = nullptr;
  double *shift, *ridge, *low, *high, *trace, *total;
  Size *begin, *end;  // of a query's pairs within the tile's
  bool *idle, *bad;
  double *d_q = nullptr, *dU = nullptr, *dW = nullptr, *E2 = nullptr, *d_made = nullptr, *d_gram = nullptr;
  double *images = nullptr, *images2 = nullptr, *dY = nullptr, *dB = nullptr, *d_diagonal = nullptr, *spare = nullptr;
  double *d_low = nullptr, *d_high = nullptr, *weighted, *d_step_k = nullptr;
  std::optional<least_squares::RowSolve> steps;
};

}  // namespace ttr::families::query_fit
