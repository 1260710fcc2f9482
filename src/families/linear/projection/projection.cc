// Backward of one token (G = K_w K_w' + eps I, R = V_w - K_w S_old, X = G^{-1} R, dS the gradient of S_t):
//
//   dX = mu K_w dS ;  dmu = <K_w dS, X> ;  dR = G^{-1} dX ;  dV_w = dR ;  dG = -dR X'
//   dK_w = mu X dS' + (dG + dG') K_w - dR S_old' ;  dS_old = dS - K_w' dR
#include "families/linear/projection/projection.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>

#include "families/common/run.h"

namespace ttr::families::projection {
namespace {

using Size = std::ptrdiff_t;

/// One head; the problem is that of one sequence (Family::of_sequence), whose beginning the windows must know.
template <class T>
class Recurrent {
 public:
  Recurrent(const Simd<T>& simd, const Shape& shape, Size /*longest*/, bool backward, Arena& arena)
      : s(simd), K(shape.key_dim), V(shape.value_dim), P(shape.depth) {
    k = arena.take<T>(P * K), r = arena.take<T>(P * V), x = arena.take<T>(P * V), q = arena.take<T>(K);
    o = arena.take<T>(V), products = arena.take<double>(P * P), gram = arena.take<double>(P * P);
    wide = arena.take<double>(P * V);
    if (!backward) return;
    st = arena.take<T>(Size{K} * V), d_k = arena.take<T>(P * K), d_x = arena.take<T>(P * V);
    d_r = arena.take<T>(P * V), d_gram = arena.take<T>(P * P), both = arena.take<T>(P * P);
  }

  Status status() const { return singular ? Status::out_of_domain : Status::ok; }

  void forward(const ProjectionProblem<T>& p, Size row, Size begin, Size end, int head, T* S, bool outputs) {
    const LinearProblem<T>& a = p.linear;
    for (Size t = begin; t < end; ++t) {
      if (!solve_window(p, t, head, S, t > begin)) singular = true;
      s.gemm_tn(K, V, P, a.beta ? a.beta(row, t, head) : T(1), k, K, x, V, T(1), S, V);
      if (!outputs) continue;
      pack(s, a.q, row, t, 1, key_head(a, head), K, a.scale, q);
      s.vec_mat(K, V, q, S, V, o);
      unpack(o, row, t, 1, head, V, a.o);
    }
  }

  void backward(const ProjectionProblem<T>& p, const ProjectionGradient<T>& d, Size row, Size t, int head,
                const T* old, const T* now, T* d_state) {
    const LinearProblem<T>& a = p.linear;
    const LinearGradient<T>& out = d.linear;
    const int shared = key_head(a, head);
    const T mu = a.beta ? a.beta(row, t, head) : T(1);
    if (out.d_o) {
      pack(s, a.q, row, t, 1, shared, K, a.scale, q);
      pack(s, out.d_o, row, t, 1, head, V, T(1), o);
      s.rank_one(K, V, T(1), q, o, d_state, V);
      if (out.d_q) {
        s.mat_vec(K, V, now, V, o, q);
        add_rows(s, a.scale, q, row, t, 1, shared, K, out.d_q);
      }
    }
    solve_window(p, t, head, old, false);
    s.gemm_nn(P, V, K, T(1), k, K, d_state, V, T(0), d_x, V);
    if (out.d_beta) out.d_beta(row, t, head) += s.dot(P * V, d_x, x);
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
        a.sequences[0], t,
        [&](Size i, Size from) {
          if (out.d_k) add_rows(s, T(1), d_k + i * K, row, from, 1, shared, K, out.d_k);
          if (out.d_v) add_rows(s, T(1), d_r + i * V, row, from, 1, head, V, out.d_v);
        },
        [&](Size i, Size slot) {
          const Size key = (slot * a.key_heads + shared) * K;
          const Size value = (slot * a.heads + head) * V;
          if (d.d_initial_keys) s.axpy(K, T(1), d_k + i * K, d.d_initial_keys + key);
          if (d.d_initial_values) s.axpy(V, T(1), d_r + i * V, d.d_initial_values + value);
        });
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

  // k [p,K], r = R, x = X, and the factor of G; false (and X = NaN) if G is singular. Columns of a state beyond those of the
  // values, or all where v has no data, are of a map (ProjectionMap): their values are 0. `next`: the window before was
  // that of the token before.
  bool solve_window(const ProjectionProblem<T>& p, Size t, int head, const T* S, bool next) {
    const LinearProblem<T>& a = p.linear;
    const Sequence& n = a.sequences[0];
    const int shared = key_head(a, head), columns = a.v ? a.value_dim : 0;
    each_row(
        n, t,
        [&](Size i, Size from) {
          pack(s, a.k, n.row, from, 1, shared, K, T(1), k + i * K);
          if (a.v) pack(s, a.v, n.row, from, 1, head, columns, T(1), r + i * V);
          std::fill_n(r + i * V + columns, V - columns, T(0));
        },
        [&](Size i, Size slot) {
          std::copy_n(p.keys + (slot * a.key_heads + shared) * K, K, k + i * K);
          if (a.v) std::copy_n(p.values + (slot * a.heads + head) * columns, columns, r + i * V);
          std::fill_n(r + i * V + columns, V - columns, T(0));
        });
    s.gemm_nn(P, V, K, T(-1), k, K, S, V, T(1), r, V);
    multiply_keys(next);
    const bool good = factor(p.eps);
    solve(r, x);
    return good;
  }

  // products = K_w K_w', of which the window of the next token has all but a row and a column.
  void multiply_keys(bool next) {
    const Size known = next ? P - 1 : 0;
    for (Size i = 0; i < known; ++i) std::copy_n(products + (i + 1) * P + 1, i + 1, products + i * P);
    for (Size i = known; i < P; ++i)
      for (Size j = 0; j <= i; ++j) products[i * P + j] = in_double(k + i * K, k + j * K);
  }
  double in_double(const T* a, const T* b) const {
    double sum[4] = {};  // so that one addition does not wait for the other
    Size c = 0;
    for (; c + 4 <= K; c += 4)
      for (Size i = 0; i < 4; ++i) sum[i] += double(a[c + i]) * double(b[c + i]);
    for (; c < K; ++c) sum[0] += double(a[c]) * double(b[c]);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }

  // gram = L with L L' = K_w K_w' + eps I, and 1 / L_ii in its diagonal. A zero row with eps = 0 gets a zero there.
  bool factor(double eps) {
    for (Size i = 0; i < P; ++i) {
      double* const row = gram + i * P;
      const double square = products[i * P + i] + eps;
      double pivot = square;
      for (Size j = 0; j < i; ++j) {
        double sum = products[i * P + j];
        for (Size c = 0; c < j; ++c) sum -= row[c] * gram[j * P + c];
        row[j] = sum * gram[j * P + j];
        pivot -= row[j] * row[j];
      }
      if (square == 0) {
        row[i] = 0;
      } else if (!(pivot > 1e-14 * square) || !std::isfinite(pivot)) {
        std::fill_n(gram, P * P, std::numeric_limits<double>::quiet_NaN());
        return false;
      } else {
        row[i] = 1 / std::sqrt(pivot);
      }
    }
    return true;
  }

  // to [p,V] = (L L')^{-1} from
  void solve(const T* from, T* to) {
    for (Size i = 0; i < P * V; ++i) wide[i] = static_cast<double>(from[i]);
    const auto reduce = [&](Size i, Size c, double factor) {
      for (Size j = 0; j < V; ++j) wide[i * V + j] -= factor * wide[c * V + j];
    };
    const auto scale = [&](Size i) {
      for (Size j = 0; j < V; ++j) wide[i * V + j] *= gram[i * P + i];
    };
    for (Size i = 0; i < P; ++i) {
      for (Size c = 0; c < i; ++c) reduce(i, c, gram[i * P + c]);
      scale(i);
    }
    for (Size i = P; i-- > 0;) {
      for (Size c = i + 1; c < P; ++c) reduce(i, c, gram[c * P + i]);
      scale(i);
    }
    for (Size i = 0; i < P * V; ++i) to[i] = static_cast<T>(wide[i]);
  }

  const Simd<T>& s;
  Size K, V, P;
  T *k, *r, *x, *q, *o;
  double *products, *gram, *wide;
  T *st = nullptr, *d_k = nullptr, *d_x = nullptr, *d_r = nullptr, *d_gram = nullptr, *both = nullptr;
  bool singular = false;
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
struct Family;

/// The map S -> A S + B of a segment from one run: the windows of its tokens are solved for A and B together, as a state
/// [B | A] that starts with zero and the unit vectors.
template <class T>
class ProjectionMap : public DenseMap<Family<T>> {
 public:
  ProjectionMap(const Simd<T>& simd, const Shape& x, Schedule plan, Arena& arena)
      : DenseMap<Family<T>>(simd, x, plan, arena),
        K(x.key_dim),
        V(x.value_dim),
        run(simd, {x.key_dim, x.value_dim + x.key_dim, x.depth}, plan.scan, false, arena),
        both(arena.take<T>(K * (K + V))) {}
  using DenseMap<Family<T>>::make;
  void make(const ProjectionProblem<T>& p, const Sequence& tokens, int head, T* A, T* B) {
    std::fill_n(both, K * (K + V), T(0));
    for (Size i = 0; i < K; ++i) both[i * (K + V) + V + i] = T(1);
    run.forward(p, tokens.row, tokens.begin, tokens.end, head, both, false);
    for (Size i = 0; i < K; ++i) {
      std::copy_n(both + i * (K + V), V, B + i * V);
      std::copy_n(both + i * (K + V) + V, K, A + i * K);
    }
  }

 private:
  Size K, V;
  Recurrent<T> run;
  T* both;
};

template <class T>
struct Family : LinearState<T> {
  static constexpr Choice best{Form::recurrent, 1};
  static constexpr bool scans_tokens = true;
  using Problem = ProjectionProblem<T>;
  using Gradient = ProjectionGradient<T>;
  using Chunk = Absent;
  using Recurrent = projection::Recurrent<T>;
  using Map = ProjectionMap<T>;
  static Shape shape(const Problem& p) { return {p.linear.key_dim, p.linear.value_dim, p.window}; }
  static Size keys_of(const Problem& p) { return Size{p.window - 1} * p.linear.key_heads * p.linear.key_dim; }
  static Size values_of(const Problem& p) { return Size{p.window - 1} * p.linear.heads * p.linear.value_dim; }
  static Problem of_sequence(Size index, const Problem&, Problem p) {
    p.linear.sequences = p.linear.sequences.subspan(static_cast<std::size_t>(index), 1);
    if (p.keys) p.keys += index * keys_of(p), p.values += index * values_of(p);
    return p;
  }
  static Gradient of_sequence(Size index, const Problem& p, Gradient d) {
    const Size key = index * keys_of(p), value = index * values_of(p);
    if (d.d_final_keys) d.d_final_keys += key;
    if (d.d_final_values) d.d_final_values += value;
    if (d.d_initial_keys) d.d_initial_keys += key;
    if (d.d_initial_values) d.d_initial_values += value;
    return d;
  }
};

template <class T>
Status check_own(const ProjectionProblem<T>& p) {
  const LinearProblem<T>& a = p.linear;
  if (a.g) return Status::not_supported;
  if (!(p.eps >= 0)) return Status::out_of_domain;
  return !a.sequences.empty() && p.window > 1 && (!p.keys || !p.values) ? Status::missing_input : Status::ok;
}

/// Whether tokens were computed: a singular window spoils only what follows it.
bool ran(Status status) { return status == Status::ok || status == Status::out_of_domain; }

}  // namespace

template <class T>
std::size_t workspace_bytes(int K, int V, int window, std::ptrdiff_t longest, Form form, int chunk, bool backward,
                            int workers) noexcept {
  return run_bytes<Family<T>>({K, V, window}, longest, form, chunk, backward, workers);
}

template <class T>
Status forward(const ProjectionProblem<T>& p, Form form, int chunk, const Simd<T>& s, Workspace work) noexcept {
  const LinearProblem<T>& a = p.linear;
  if (const Status status = check_own(p); status != Status::ok) return status;
  const Status status = run_forward<Family<T>>(p, form, chunk, s, work);
  for (Size i = 0; ran(status) && i < std::ssize(a.sequences); ++i) {
    const ProjectionProblem<T> own = Family<T>::of_sequence(i, p, p);
    const Sequence& n = own.linear.sequences[0];
    if (n.begin == n.end) continue;
    shift_pairs(n, p.window - 1, a.key_heads, a.key_dim, a.k, own.keys);
    shift_pairs(n, p.window - 1, a.heads, a.value_dim, a.v, own.values);
  }
  return status;
}

template <class T>
Status backward(const ProjectionProblem<T>& p, const ProjectionGradient<T>& d, Form form, int chunk, const Simd<T>& s,
                Workspace work) noexcept {
  const LinearProblem<T>& a = p.linear;
  if (const Status status = check_own(p); status != Status::ok) return status;
  const Status status = run_backward<Family<T>>(p, d, form, chunk, s, work);
  for (Size i = 0; ran(status) && i < std::ssize(a.sequences); ++i) {
    const ProjectionGradient<T> own = Family<T>::of_sequence(i, p, d);
    const Sequence& n = a.sequences[static_cast<std::size_t>(i)];
    if (own.d_final_keys)
      shift_gradient(n, p.window - 1, a.key_heads, a.key_dim, own.d_final_keys, d.linear.d_k, own.d_initial_keys);
    if (own.d_final_values)
      shift_gradient(n, p.window - 1, a.heads, a.value_dim, own.d_final_values, d.linear.d_v, own.d_initial_values);
  }
  return status;
}

#define TTR_INSTANTIATE(T)                                                                                       \
  template std::size_t workspace_bytes<T>(int, int, int, std::ptrdiff_t, Form, int, bool, int) noexcept;         \
  template Status forward(const ProjectionProblem<T>&, Form, int, const Simd<T>&, Workspace) noexcept;           \
  template Status backward(const ProjectionProblem<T>&, const ProjectionGradient<T>&, Form, int, const Simd<T>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::projection
