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
// family's own block algebra: never an inverse. The order of composition is fixed, so the bits do not depend on who
// computes which segment. At most `parts` maps are held at a time; longer lists of segments go through in rounds.
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
  ScalarMap(const Simd<T>& simd, int key_dim, int value_dim, Size /*chunk*/, Arena&)
      : s(simd), state(Size{key_dim} * value_dim) {}
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
  DiagonalMap(const Simd<T>& simd, int key_dim, int value_dim, Size /*chunk*/, Arena& arena)
      : s(simd), K(key_dim), V(value_dim), factors(arena.take<T>(size())), row(arena.take<T>(V)) {}
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

/// A [K,K], by the chunk form on the identity.
template <class T, class Chunk>
class DenseMap {
 public:
  using Size = std::ptrdiff_t;
  DenseMap(const Simd<T>& simd, int key_dim, int value_dim, Size chunk, Arena& arena)
      : s(simd), K(key_dim), V(value_dim), length(chunk), form(simd, key_dim, key_dim, chunk, false, arena) {}
  Size size() const { return K * K; }
  template <class Problem>
  void make(Problem p, const Sequence& n, int head, T* A) {
    p.v = {}, p.o = {};
    std::fill_n(A, K * K, T(0));
    for (Size i = 0; i < K; ++i) A[i * K + i] = T(1);
    for (Size t = n.begin; t < n.end; t += length)
      form.forward(p, n.row, t, std::min(length, n.end - t), head, A, false);
  }
  void apply(const T* A, const T* S, T* out) { s.gemm_nn(K, V, K, T(1), A, K, S, V, T(1), out, V); }
  void apply_transposed(const T* A, const T* S, T* out) { s.gemm_tn(K, V, K, T(1), A, K, S, V, T(1), out, V); }

 private:
  const Simd<T>& s;
  Size K, V, length;
  Chunk form;
};

template <class Family>
class ScanRun {
 public:
  using T = typename Family::Number;
  using Problem = typename Family::Problem;
  using Gradient = typename Family::Gradient;
  using Size = std::ptrdiff_t;

  ScanRun(const Simd<T>& simd, int key_dim, int value_dim, Schedule plan, Size time, bool backward, Arena& arena)
      : length(plan.scan),
        state(Size{key_dim} * value_dim),
        run(simd, key_dim, value_dim, plan, plan.scan, backward, arena),
        map(simd, key_dim, value_dim, plan.segment, arena) {
    A = arena.take<T>(parts * map.size()), B = arena.take<T>(parts * state), S_run = arena.take<T>(state);
    // A short sequence may have more segments than a longer one has, but no more than `parts`.
    if (backward) starts = arena.take<T>((std::max(parts, (time + length - 1) / length) + 1) * state);
  }

  void forward(const Problem& p, const Sequence& n, int head, T* S) {
    Problem quiet = p;
    quiet.o = {};
    const Size count = segments(n);
    for (Size first = 0; first < count; first += parts) {
      const Size end = std::min(first + parts, count);
      for (Size j = first; j < end; ++j) make(quiet, cut(n, j), head, A_of(j - first), B_of(j - first));
      for (Size j = first; j < end; ++j)
        map.apply(A_of(j - first), j > first ? B_of(j - first - 1) : S, B_of(j - first));
      for (Size j = first; p.o && j < end; ++j) {
        std::copy_n(j > first ? B_of(j - first - 1) : S, state, S_run);
        run.forward(p, cut(n, j), head, S_run);
      }
      std::copy_n(B_of(end - first - 1), state, S);
    }
  }

  void backward(const Problem& p, const Gradient& d, const Sequence& n, int head, const T* initial, const T* d_final,
                T* d_initial) {
    Problem quiet = p;
    quiet.o = {};
    Gradient outputs_only;
    outputs_only.d_o = d.d_o;
    const Size count = segments(n);
    std::copy_n(initial, state, starts);
    for (Size j = 0; j < count; ++j) {
      make(quiet, cut(n, j), head, A, starts + (j + 1) * state);
      map.apply(A, starts + j * state, starts + (j + 1) * state);
    }
    if (d_final) std::copy_n(d_final, state, S_run);
    else std::fill_n(S_run, state, T(0));
    for (Size end = count; end > 0;) {
      const Size first = std::max<Size>(0, end - parts);
      for (Size j = first; j < end; ++j) {
        map.make(quiet, cut(n, j), head, A_of(j - first));
        std::fill_n(B_of(j - first), state, T(0));
        run.backward(quiet, outputs_only, cut(n, j), head, starts + j * state, nullptr, B_of(j - first));
      }
      for (Size j = end; j-- > first;)
        map.apply_transposed(A_of(j - first), j + 1 < end ? B_of(j - first + 1) : S_run, B_of(j - first));
      for (Size j = end; j-- > first;)
        run.backward(quiet, d, cut(n, j), head, starts + j * state, j + 1 < end ? B_of(j - first + 1) : S_run,
                     nullptr);
      std::copy_n(B_of(0), state, S_run);
      end = first;
    }
    if (d_initial)
      for (Size i = 0; i < state; ++i) d_initial[i] += S_run[i];
  }

 private:
  static constexpr Size parts = scan_parts;

  Size segments(const Sequence& n) const { return (n.end - n.begin + length - 1) / length; }
  Sequence cut(const Sequence& n, Size j) const {
    return {n.row, n.begin + j * length, std::min(n.begin + (j + 1) * length, n.end)};
  }
  T* A_of(Size j) const { return A + j * map.size(); }
  T* B_of(Size j) const { return B + j * state; }
  void make(const Problem& quiet, const Sequence& n, int head, T* a, T* b) {
    map.make(quiet, n, head, a);
    std::fill_n(b, state, T(0));
    run.forward(quiet, n, head, b);
  }

  Size length, state;
  HeadRun<Family> run;
  typename Family::Map map;
  T *A, *B, *S_run, *starts = nullptr;
};

}  // namespace ttr::families
