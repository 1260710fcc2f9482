// Backward of one token (G = K_w K_w' + eps I, R = V_w - K_w S_old, X = G^{-1} R, dS the gradient of S_t):
//
//   dX = mu K_w dS ;  dmu = <K_w dS, X> ;  dR = G^{-1} dX ;  dV_w = dR ;  dG = -dR X'
//   dK_w = mu X dS' + (dG + dG') K_w - dR S_old' ;  dS_old = dS - K_w' dR
#include "families/linear/projection/projection.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "families/common/replay.h"
#include "simd/denormals.h"

namespace ttr::families::projection {
namespace {

using Size = std::ptrdiff_t;

template <class T>
class Head {
 public:
  Head(const Simd<T>& simd, int key_dim, int value_dim, int window, int spacing, Size longest, bool backward,
       Arena& arena)
      : s(simd), K(key_dim), V(value_dim), P(window), replay({Size{K} * V}, backward ? longest : 0, spacing, arena) {
    k = arena.take<T>(P * K), r = arena.take<T>(P * V), x = arena.take<T>(P * V), q = arena.take<T>(K);
    o = arena.take<T>(V), gram = arena.take<double>(P * P), wide = arena.take<double>(P * V);
    if (!backward) return;
    d_state = arena.take<T>(Size{K} * V), st = arena.take<T>(Size{K} * V), d_k = arena.take<T>(P * K);
    d_x = arena.take<T>(P * V), d_r = arena.take<T>(P * V), d_gram = arena.take<T>(P * P),
    both = arena.take<T>(P * P);
  }

  bool forward(const ProjectionProblem<T>& p, Size index, int head, T* S) {
    const Sequence& n = p.linear.sequences[index];
    bool good = true;
    for (Size t = n.begin; t < n.end; ++t) good = step(p, index, t, head, S, static_cast<bool>(p.linear.o)) && good;
    return good;
  }

  bool backward(const ProjectionProblem<T>& p, const ProjectionGradient<T>& d, Size index, int head, Size at) {
    const Sequence& n = p.linear.sequences[index];
    bool good = true;
    copy_or_clear(d.linear.d_final ? d.linear.d_final + at : nullptr, Size{K} * V, d_state);
    replay.run(
        n.end - n.begin, {p.linear.state + at},
        [&](Size i, const Parts<T, 1>& S) { good = step(p, index, n.begin + i, head, S[0], false) && good; },
        [&](Size i, const Parts<const T, 1>& old, const Parts<const T, 1>& now) {
          step_back(p, d, index, n.begin + i, head, old[0], now[0]);
        });
    if (d.linear.d_initial) s.axpy(Size{K} * V, T(1), d_state, d.linear.d_initial + at);
    return good;
  }

  /// One token; false if its window is singular.
  bool step(const ProjectionProblem<T>& p, Size index, Size t, int head, T* S, bool outputs) {
    const LinearProblem<T>& a = p.linear;
    const Size row = a.sequences[index].row;
    const bool good = solve_window(p, index, t, head, S);
    s.gemm_tn(K, V, P, a.beta ? a.beta(row, t, head) : T(1), k, K, x, V, T(1), S, V);
    if (outputs) {
      pack(s, a.q, row, t, 1, key_head(a, head), K, a.scale, q);
      s.vec_mat(K, V, q, S, V, o);
      unpack(o, row, t, 1, head, V, a.o);
    }
    return good;
  }

 private:
  static int key_head(const LinearProblem<T>& a, int head) { return head / (a.heads / a.key_heads); }

  // Rows i = 0 .. p-1 of the window of token t: token t-p+1+i, or a pair from before the call.
  template <class Token, class Cached>
  void each_row(const Sequence& n, Size t, Token&& token, Cached&& cached) const {
    for (Size i = 0; i < P; ++i) {
      const Size from = t - P + 1 + i;
      if (from >= n.begin) token(i, from);
      else cached(i, P - 1 + from - n.begin);
    }
  }

  // k [p,K], r = R, x = X, and the factor of G; false (and X = NaN) if G is singular.
  bool solve_window(const ProjectionProblem<T>& p, Size index, Size t, int head, const T* S) {
    const LinearProblem<T>& a = p.linear;
    const Sequence& n = a.sequences[index];
    const int shared = key_head(a, head);
    each_row(
        n, t,
        [&](Size i, Size from) {
          pack(s, a.k, n.row, from, 1, shared, K, T(1), k + i * K);
          pack(s, a.v, n.row, from, 1, head, V, T(1), r + i * V);
        },
        [&](Size i, Size slot) {
          std::copy_n(p.keys + ((index * (P - 1) + slot) * a.key_heads + shared) * K, K, k + i * K);
          copy_or_clear(p.values ? p.values + ((index * (P - 1) + slot) * a.heads + head) * V : nullptr, V,
                        r + i * V);
        });
    s.gemm_nn(P, V, K, T(-1), k, K, S, V, T(1), r, V);
    const bool good = factor(p.eps);
    solve(r, x);
    return good;
  }

  // gram = L with L L' = K_w K_w' + eps I. A zero row with eps = 0 gets an infinite pivot: its multiplier is 0.
  bool factor(double eps) {
    for (int i = 0; i < P; ++i) {
      double square = 0;
      for (int j = 0; j <= i; ++j) {
        double sum = 0;
        for (int c = 0; c < K; ++c) sum += double(k[i * K + c]) * double(k[j * K + c]);
        if (j == i) square = sum += eps;
        for (int c = 0; c < j; ++c) sum -= gram[i * P + c] * gram[j * P + c];
        gram[i * P + j] = j < i ? sum / gram[j * P + j] : sum;
      }
      double& pivot = gram[i * P + i];
      if (square == 0) {
        pivot = std::numeric_limits<double>::infinity();
      } else if (!(pivot > 1e-14 * square) || !std::isfinite(pivot)) {
        std::fill_n(gram, P * P, std::numeric_limits<double>::quiet_NaN());
        return false;
      } else {
        pivot = std::sqrt(pivot);
      }
    }
    return true;
  }

  // to [p,V] = (L L')^{-1} from
  void solve(const T* from, T* to) {
    for (Size i = 0; i < P * V; ++i) wide[i] = static_cast<double>(from[i]);
    for (int i = 0; i < P; ++i) {
      for (int c = 0; c < i; ++c)
        for (int j = 0; j < V; ++j) wide[i * V + j] -= gram[i * P + c] * wide[c * V + j];
      for (int j = 0; j < V; ++j) wide[i * V + j] /= gram[i * P + i];
    }
    for (int i = P; i-- > 0;) {
      for (int c = i + 1; c < P; ++c)
        for (int j = 0; j < V; ++j) wide[i * V + j] -= gram[c * P + i] * wide[c * V + j];
      for (int j = 0; j < V; ++j) wide[i * V + j] /= gram[i * P + i];
    }
    for (Size i = 0; i < P * V; ++i) to[i] = static_cast<T>(wide[i]);
  }

  void step_back(const ProjectionProblem<T>& p, const ProjectionGradient<T>& d, Size index, Size t, int head,
                 const T* old, const T* now) {
    const LinearProblem<T>& a = p.linear;
    const LinearGradient<T>& out = d.linear;
    const Sequence& n = a.sequences[index];
    const int shared = key_head(a, head);
    const T mu = a.beta ? a.beta(n.row, t, head) : T(1);
    if (out.d_o) {
      pack(s, a.q, n.row, t, 1, shared, K, a.scale, q);
      pack(s, out.d_o, n.row, t, 1, head, V, T(1), o);
      s.rank_one(K, V, T(1), q, o, d_state, V);
      if (out.d_q) {
        s.mat_vec(K, V, now, V, o, q);
        add_rows(s, a.scale, q, n.row, t, 1, shared, K, out.d_q);
      }
    }
    solve_window(p, index, t, head, old);
    s.gemm_nn(P, V, K, T(1), k, K, d_state, V, T(0), d_x, V);
    if (out.d_beta) out.d_beta(n.row, t, head) += s.dot(P * V, d_x, x);
    s.scale(P * V, mu, d_x, d_x);
    solve(d_x, d_r);
    s.transpose(K, V, d_state, V, st, K);
    s.gemm_nn(P, K, V, mu, x, V, st, K, T(0), d_k, K);
    s.gemm_nt(P, P, V, T(-1), d_r, V, x, V, T(0), d_gram, P);
    for (Size i = 0; i < P; ++i)
      for (Size j = 0; j < P; ++j) both[i * P + j] = d_gram[i * P + j] + d_gram[j * P + i];
    s.gemm_nn(P, K, P, T(1), both, P, k, K, T(1), d_k, K);
    s.transpose(K, V, old, V, st, K);
    s.gemm_nn(P, K, V, T(-1), d_r, V, st, K, T(1), d_k, K);
    s.gemm_tn(K, V, P, T(-1), k, K, d_r, V, T(1), d_state, V);
    each_row(
        n, t,
        [&](Size i, Size from) {
          if (out.d_k) add_rows(s, T(1), d_k + i * K, n.row, from, 1, shared, K, out.d_k);
          if (out.d_v) add_rows(s, T(1), d_r + i * V, n.row, from, 1, head, V, out.d_v);
        },
        [&](Size i, Size slot) {
          const Size key = ((index * (P - 1) + slot) * a.key_heads + shared) * K;
          const Size value = ((index * (P - 1) + slot) * a.heads + head) * V;
          if (d.d_initial_keys) s.axpy(K, T(1), d_k + i * K, d.d_initial_keys + key);
          if (d.d_initial_values) s.axpy(V, T(1), d_r + i * V, d.d_initial_values + value);
        });
  }

  const Simd<T>& s;
  Size K, V, P;
  Replay<T, 1> replay;
  T *k, *r, *x, *q, *o;
  double *gram, *wide;
  T *d_state = nullptr, *st = nullptr, *d_k = nullptr, *d_x = nullptr, *d_r = nullptr, *d_gram = nullptr,
    *both = nullptr;
};

/// The scan form for one head: the map S -> A S + B of every segment, composed in order, then every segment from its
/// own start. A is found by sending the unit vectors through the recurrence as K values, with v = 0.
template <class T>
class Scan {
 public:
  Scan(const Simd<T>& simd, int key_dim, int value_dim, int window, int chunk, Size longest, Arena& arena)
      : s(simd),
        K(key_dim),
        V(value_dim),
        tokens(chunk),
        run(simd, key_dim, value_dim, window, 0, 0, false, arena),
        unit_run(simd, key_dim, key_dim, window, 0, 0, false, arena) {
    const Size count = scan_segments(longest, chunk);
    maps = arena.take<T>(count * K * K), ends = arena.take<T>(count * K * V), next = arena.take<T>(K * V);
  }

  bool forward(const ProjectionProblem<T>& p, Size index, int head, T* S) {
    static constexpr T zero = 0;
    const Sequence& n = p.linear.sequences[index];
    const Size segment = scan_segment(n.end - n.begin, tokens), count = (n.end - n.begin + segment - 1) / segment;
    ProjectionProblem<T> unit = p;
    unit.linear.value_dim = static_cast<int>(K), unit.linear.v = {&zero, {}, {}}, unit.values = nullptr;
    bool good = true;
    const auto walk = [&](Size i, auto&& each) {
      const Size begin = n.begin + i * segment, end = std::min(begin + segment, n.end);
      for (Size t = begin; t < end; ++t) good = each(t) && good;
    };
    for (Size i = 0; i < count; ++i) {
      T *const A = maps + i * K * K, *const B = ends + i * K * V;
      std::fill_n(A, K * K, T(0)), std::fill_n(B, K * V, T(0));
      for (Size j = 0; j < K; ++j) A[j * K + j] = 1;
      walk(i, [&](Size t) { return unit_run.step(unit, index, t, head, A, false); });
      walk(i, [&](Size t) { return run.step(p, index, t, head, B, false); });
    }
    for (Size i = 0; i < count; ++i) {  // the start of segment i is left in `ends`
      T* const B = ends + i * K * V;
      std::copy_n(B, K * V, next);
      s.gemm_nn(K, V, K, T(1), maps + i * K * K, K, S, V, T(1), next, V);
      std::copy_n(S, K * V, B), std::copy_n(next, K * V, S);
    }
    if (!p.linear.o) return good;
    for (Size i = 0; i < count; ++i)
      walk(i, [&](Size t) { return run.step(p, index, t, head, ends + i * K * V, true); });
    return good;
  }

 private:
  const Simd<T>& s;
  Size K, V;
  int tokens;  // per segment, as asked for
  Head<T> run, unit_run;
  T *maps, *ends, *next;
};

// The pairs [p-1, heads, dim] of one sequence move on by its tokens.
template <class T>
void shift_pairs(const Sequence& n, int kept, int heads, int dim, const View<const T, 4>& from, T* pairs) {
  const Size time = n.end - n.begin, width = Size{heads} * dim;
  for (int i = 0; i < kept; ++i) {
    const Size source = time - kept + i;
    T* const to = pairs + i * width;
    if (source < 0) std::copy_n(pairs + (i + time) * width, width, to);
    else
      for (int h = 0; h < heads; ++h)
        for (int c = 0; c < dim; ++c) to[h * dim + c] = from(n.row, n.begin + source, h, c);
  }
}

// The reverse: the gradient of the final pairs goes to the tokens, or to the initial pairs.
template <class T>
void shift_gradient(const Sequence& n, int kept, int heads, int dim, const T* d_final, const View<T, 4>& d_token,
                    T* d_initial) {
  const Size time = n.end - n.begin, width = Size{heads} * dim;
  for (int i = 0; i < kept; ++i) {
    const Size source = time - kept + i;
    const T* const from = d_final + i * width;
    for (int h = 0; h < heads; ++h)
      for (int c = 0; c < dim; ++c) {
        if (source >= 0 && d_token) d_token(n.row, n.begin + source, h, c) += from[h * dim + c];
        if (source < 0 && d_initial) d_initial[(i + time) * width + h * dim + c] += from[h * dim + c];
      }
  }
}

template <class T>
Status check(const ProjectionProblem<T>& p, bool queries, Form form, int chunk, Workspace work, bool backward,
             Size longest) {
  const LinearProblem<T>& a = p.linear;
  if (form == Form::chunk || form == Form::parallel) return Status::not_supported;
  if (a.g) return Status::not_supported;
  if (longest < 0 || a.key_dim < 1 || a.value_dim < 1 || a.heads < 1 || a.key_heads < 1 ||
      a.heads % a.key_heads != 0 || p.window < 1)
    return Status::bad_shape;
  if (!(p.eps >= 0)) return Status::out_of_domain;
  if (!a.sequences.empty() && (!a.state || (p.window > 1 && (!p.keys || !p.values)))) return Status::missing_input;
  if (longest > 0 && (!a.k || !a.v || (queries && !a.q))) return Status::missing_input;
  if (!work.data || work.bytes < workspace_bytes<T>(a.key_dim, a.value_dim, p.window, longest, form, chunk, backward))
    return Status::small_workspace;
  return Status::ok;
}

}  // namespace

template <class T>
std::size_t workspace_bytes(int K, int V, int window, std::ptrdiff_t longest, Form form, int chunk,
                            bool backward) noexcept {
  static constexpr Simd<T> none{};
  Arena arena;
  if (form == Form::scan && !backward) Scan<T> scan(none, K, V, window, chunk, longest, arena);
  else Head<T> head(none, K, V, window, chunk, longest, backward, arena);
  return arena.bytes();
}

template <class T>
Status forward(const ProjectionProblem<T>& p, Form form, int chunk, const Simd<T>& s, Workspace work) noexcept {
  const LinearProblem<T>& a = p.linear;
  const Size longest = longest_of(a.sequences), state = Size{a.key_dim} * a.value_dim;
  if (const Status status = check(p, static_cast<bool>(a.o), form, chunk, work, false, longest); status != Status::ok)
    return status;
  const FlushDenormals flush;
  Arena arena(work);
  const int kept = p.window - 1;
  bool good = true;
  const auto all = [&](auto&& run) {
    for (std::size_t n = 0; n < a.sequences.size(); ++n) {
      const Size at = static_cast<Size>(n);
      for (int h = 0; h < a.heads; ++h) good = run.forward(p, at, h, a.state + (at * a.heads + h) * state) && good;
      if (a.sequences[n].begin == a.sequences[n].end) continue;
      shift_pairs(a.sequences[n], kept, a.key_heads, a.key_dim, a.k, p.keys + at * kept * a.key_heads * a.key_dim);
      shift_pairs(a.sequences[n], kept, a.heads, a.value_dim, a.v, p.values + at * kept * a.heads * a.value_dim);
    }
  };
  if (form == Form::scan) all(Scan<T>(s, a.key_dim, a.value_dim, p.window, chunk, longest, arena));
  else all(Head<T>(s, a.key_dim, a.value_dim, p.window, 0, longest, false, arena));
  return good ? Status::ok : Status::out_of_domain;
}

template <class T>
Status backward(const ProjectionProblem<T>& p, const ProjectionGradient<T>& d, Form form, int chunk, const Simd<T>& s,
                Workspace work) noexcept {
  const LinearProblem<T>& a = p.linear;
  const Size longest = longest_of(a.sequences), state = Size{a.key_dim} * a.value_dim;
  if (const Status status = check(p, static_cast<bool>(d.linear.d_o), form, chunk, work, true, longest);
      status != Status::ok)
    return status;
  const FlushDenormals flush;
  Arena arena(work);
  Head<T> run(s, a.key_dim, a.value_dim, p.window, chunk, longest, true, arena);
  const int kept = p.window - 1;
  bool good = true;
  for (std::size_t n = 0; n < a.sequences.size(); ++n) {
    const Size at = static_cast<Size>(n), key = at * kept * a.key_heads * a.key_dim;
    const Size value = at * kept * a.heads * a.value_dim;
    for (int h = 0; h < a.heads; ++h) good = run.backward(p, d, at, h, (at * a.heads + h) * state) && good;
    if (d.d_final_keys)
      shift_gradient(a.sequences[n], kept, a.key_heads, a.key_dim, d.d_final_keys + key, d.linear.d_k,
                     d.d_initial_keys ? d.d_initial_keys + key : nullptr);
    if (d.d_final_values)
      shift_gradient(a.sequences[n], kept, a.heads, a.value_dim, d.d_final_values + value, d.linear.d_v,
                     d.d_initial_values ? d.d_initial_values + value : nullptr);
  }
  return good ? Status::ok : Status::out_of_domain;
}

#define TTR_INSTANTIATE(T)                                                                                       \
  template std::size_t workspace_bytes<T>(int, int, int, std::ptrdiff_t, Form, int, bool) noexcept;              \
  template Status forward(const ProjectionProblem<T>&, Form, int, const Simd<T>&, Workspace) noexcept;           \
  template Status backward(const ProjectionProblem<T>&, const ProjectionGradient<T>&, Form, int, const Simd<T>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::projection
