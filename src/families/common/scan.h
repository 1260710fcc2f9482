// Form::scan: the associative scan over segments of time, for one head. A family that is linear in its state maps the
// start of a segment to its end by  S_out = A S_in + B ; (A1,B1) then (A2,B2) = (A2 A1, A2 B1 + B2).
//
//   forward    (A_j, B_j) of every segment, each by itself ;  starts S_{j+1} = A_j S_j + B_j, left to right ;
//              then every segment from its own start, each by itself
//   backward   the starts as above ;  D_j = what the segment's own outputs give its start ;
//              dS_j = A_j' dS_{j+1} + D_j, right to left ;  then every segment backwards from its own dS_{j+1}
//
// B_j is the segment run from a zero state. A_j is carried as a log where it is a number (ScalarMap) or diagonal
// (DiagonalMap); where it is dense it is the segment run on the identity without values (DenseMap), which is the
// family's own algebra: never an inverse. A state of several parts is one column [S; Z]. The order of composition is
// fixed, so the bits do not depend on who computes which segment. At most `parts` maps are held at a time; longer lists
// of segments go through in rounds.
#pragma once

#include <algorithm>
#include <cstddef>

#include "families/common/linear.h"
#include "families/common/schedule.h"
#include "families/common/scratch.h"
#include "simd/simd.h"

namespace ttr::families {

/// A = e^{sum of g}.
template <class T>
class ScalarMap {
 public:
  using Size = std::ptrdiff_t;
  ScalarMap(const Simd<T>& simd, const Shape& x, Schedule, Arena&) : s(simd), state(Size{x.key_dim} * x.value_dim) {}
  Size size() const { return 1; }
  template <class Problem>
  void make(const Problem& p, const Sequence& n, int head, T* A) {
    double sum = 0;
    if (p.g)
      for (Size t = n.begin; t < n.end; ++t) sum += p.g(n.row, t, head);
    *A = static_cast<T>(sum);
  }
  /// out += A S, and out += A' S
  void apply(const T* A, const T* S, T* out) {
    T factor = *A;
    s.exp(1, &factor, &factor);
    s.axpy(state, factor, S, out);
  }
  void apply_transposed(const T* A, const T* S, T* out) { apply(A, S, out); }

 private:
  const Simd<T>& s;
  Size state;
};

/// A = diag(e^{sum of gk}) from the left and diag(e^{sum of gv}) from the right.
template <class T>
class DiagonalMap {
 public:
  using Size = std::ptrdiff_t;
  DiagonalMap(const Simd<T>& simd, const Shape& x, Schedule, Arena& arena)
      : s(simd), K(x.key_dim), V(x.value_dim), factors(arena.take<T>(size())), row(arena.take<T>(V)) {}
  Size size() const { return K + V; }
  template <class Problem>
  void make(const Problem& p, const Sequence& n, int head, T* A) {
    const auto sum = [&](const auto& g, Size dim, T* out) {
      for (Size j = 0; j < dim; ++j) {
        double total = 0;
        if (g)
          for (Size t = n.begin; t < n.end; ++t) total += g(n.row, t, head, j);
        out[j] = static_cast<T>(total);
      }
    };
    sum(p.gk, K, A), sum(p.gv, V, A + K);
  }
  void apply(const T* A, const T* S, T* out) {
    s.exp(size(), A, factors);
    for (Size i = 0; i < K; ++i) {
      s.scale(V, factors[i], S + i * V, row);
      s.mul_add(V, factors + K, row, out + i * V);
    }
  }
  void apply_transposed(const T* A, const T* S, T* out) { apply(A, S, out); }

 private:
  const Simd<T>& s;
  Size K, V;
  T *factors, *row;
};

/// A [P K, P K] of P parts [K, V] each: the unit vectors as P K values through the recurrence, with v = 0. `v` without
/// data is zero to the forms of a family with such a map.
template <class Family>
class DenseMap {
 public:
  using T = typename Family::Number;
  using Size = std::ptrdiff_t;
  DenseMap(const Simd<T>& simd, const Shape& x, Schedule plan, Arena& arena)
      : s(simd),
        K(x.key_dim),
        V(x.value_dim),
        n(P * K),
        parts{Family::sizes(wide(x))},
        run(simd, wide(x), plan, plan.scan, false, arena) {}
  Size size() const { return n * n; }
  template <class Problem>
  void make(Problem p, const Sequence& tokens, int head, T* A) {
    linear_of(p).v = {};
    std::fill_n(A, n * n, T(0));
    for (Size i = 0; i < n; ++i) A[i * n + i] = T(1);
    run.forward(p, tokens, head, parts.at(A), false);
  }
  void apply(const T* A, const T* S, T* out) {
    for (Size j = 0; j < P; ++j) s.gemm_nn(n, V, K, T(1), A + j * K, n, S + j * K * V, V, T(1), out, V);
  }
  void apply_transposed(const T* A, const T* S, T* out) {
    for (Size j = 0; j < P; ++j) s.gemm_tn(n, V, K, T(1), A + j * K * n, n, S + j * K * V, V, T(1), out, V);
  }

 private:
  static constexpr Size P = Family::parts;
  static Shape wide(Shape x) {
    x.value_dim = static_cast<int>(P) * x.key_dim;
    return x;
  }
  const Simd<T>& s;
  Size K, V, n;
  PartSizes<Family::parts> parts;
  HeadRun<Family> run;
};

template <class Family>
class ScanRun {
 public:
  using T = typename Family::Number;
  using Problem = typename Family::Problem;
  using Gradient = typename Family::Gradient;
  using Size = std::ptrdiff_t;
  using State = typename HeadRun<Family>::State;
  using Kept = typename HeadRun<Family>::Kept;

  ScanRun(const Simd<T>& simd, const Shape& shape, Schedule plan, Size time, bool backward, Arena& arena)
      : length(plan.scan),
        sizes{Family::sizes(shape)},
        state(sizes.total()),
        run(simd, shape, plan, plan.scan, backward, arena),
        map(simd, shape, plan, arena) {
    // Segments of chunks are rounded up to whole ones: a short sequence may have more of them than a longer one has.
    const Size most = Family::scans_tokens ? (time + length - 1) / length : time,
               held = std::clamp<Size>(most, 1, parts);
    A = arena.take<T>(held * map.size()), B = arena.take<T>(held * state), S_run = arena.take<T>(state);
    if (backward) starts = arena.take<T>((std::max(parts, (time + length - 1) / length) + 1) * state);
    else starts = arena.take<T>(state);
  }

  void forward(const Problem& p, const Sequence& n, int head, const State& S, bool outputs) {
    const Size count = segments(n);
    sizes.gather(S, starts);
    for (Size first = 0; first < count; first += parts) {
      const Size end = std::min(first + parts, count);
      const auto start_of = [&](Size j) { return j > first ? B_of(j - first - 1) : starts; };
      for (Size j = first; j < end; ++j) make(p, cut(n, j), head, A_of(j - first), B_of(j - first));
      for (Size j = first; j < end; ++j) map.apply(A_of(j - first), start_of(j), B_of(j - first));
      for (Size j = first; outputs && j < end; ++j) {
        std::copy_n(start_of(j), state, S_run);
        run.forward(p, cut(n, j), head, sizes.at(S_run), true);
      }
      std::copy_n(B_of(end - first - 1), state, starts);
    }
    sizes.scatter(starts, S);
  }

  void backward(const Problem& p, const Gradient& d, const Sequence& n, int head, const Kept& initial,
                const Kept& d_final, const State& d_initial, int /*heads: one at a time*/ = 1) {
    Gradient outputs_only;
    linear_of(outputs_only).d_o = linear_of(d).d_o;
    const Size count = segments(n);
    const auto start_of = [&](Size j) { return sizes.at(static_cast<const T*>(starts), j); };
    sizes.gather(initial, starts);
    for (Size j = 0; j < count; ++j) {
      make(p, cut(n, j), head, A, starts + (j + 1) * state);
      map.apply(A, starts + j * state, starts + (j + 1) * state);
    }
    sizes.gather(d_final, S_run);
    for (Size end = count; end > 0;) {
      const Size first = std::max<Size>(0, end - parts);
      const auto d_end_of = [&](Size j) -> const T* { return j + 1 < end ? B_of(j - first + 1) : S_run; };
      for (Size j = first; j < end; ++j) {
        map.make(p, cut(n, j), head, A_of(j - first));
        std::fill_n(B_of(j - first), state, T(0));
        run.backward(p, outputs_only, cut(n, j), head, start_of(j), {}, sizes.at(B_of(j - first)));
      }
      for (Size j = end; j-- > first;) map.apply_transposed(A_of(j - first), d_end_of(j), B_of(j - first));
      for (Size j = end; j-- > first;) run.backward(p, d, cut(n, j), head, start_of(j), sizes.at(d_end_of(j)), {});
      std::copy_n(B_of(0), state, S_run);
      end = first;
    }
    for (std::size_t part = 0; part < Family::parts; ++part)
      for (Size i = 0; d_initial[part] && i < sizes.size[part]; ++i) d_initial[part][i] += sizes.at(S_run)[part][i];
  }

  Status status() const { return run.status(); }

 private:
  static constexpr Size parts = scan_parts;

  Size segments(const Sequence& n) const { return (n.end - n.begin + length - 1) / length; }
  Sequence cut(const Sequence& n, Size j) const {
    return {n.row, n.begin + j * length, std::min(n.begin + (j + 1) * length, n.end)};
  }
  T* A_of(Size j) const { return A + j * map.size(); }
  T* B_of(Size j) const { return B + j * state; }
  void make(const Problem& p, const Sequence& n, int head, T* a, T* b) {
    map.make(p, n, head, a);
    std::fill_n(b, state, T(0));
    run.forward(p, n, head, sizes.at(b), false);
  }

  Size length;
  PartSizes<Family::parts> sizes;
  Size state;
  HeadRun<Family> run;
  typename Family::Map map;
  T *A, *B, *S_run, *starts;  // starts: of all segments; forwards of the next
};

}  // namespace ttr::families
