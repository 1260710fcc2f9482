// Backward of one token (pa, pb, fa, fb as in the header):
//
//   n = do / (pa beta + pb) ;  m = -o n
//   du = pb (v n + m) ;  dk = du + fb (v dalpha' + dbeta') ;  dv = pb n + fb dalpha'
//   dw = fa (alpha dalpha' + beta dbeta') ;  dalpha = fa dalpha' + pa n ;  dbeta = fa dbeta' + pa m
#include "families/elementwise/weighted_mean/weighted_mean.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/common/replay.h"
#include "families/elementwise/scan_simd.h"
#include "simd/denormals.h"

namespace ttr::families::weighted_mean {
namespace {

using Size = std::ptrdiff_t;

template <class T>
using State = Parts<T, 3>;  // alpha, beta, exponent

template <class T>
class Channels {
 public:
  Channels(const Simd<T>& simd, const ScanSimd<T>& scan, const WeightedMeanProblem<T>& problem, bool backward,
           Arena& arena)
      : s(simd), e(scan), p(problem), D(p.dim) {
    for (T** x : {&k_, &v_, &w_, &u_, &pa, &pb, &fa, &fb, &o}) *x = arena.take<T>(D);
    if (!backward) return;
    for (T** x : {&d_alpha, &d_beta, &d_o_, &d_k, &d_v, &d_w, &d_u}) *x = arena.take<T>(D);
  }

  void step(Size row, Size t, const State<T>& S, bool outputs) {
    load(row, t);
    const T* const u = outputs ? contiguous(row_of(p.u, row, t), p.u.stride[2], D, u_) : nullptr;
    e.mean(D, k, v, w, u, S[0], S[1], S[2], o);
    if (!outputs) return;
    T* const to = row_of(p.o, row, t);
    for (Size i = 0; i < D; ++i) to[i * p.o.stride[2]] = o[i];
  }

  void start_back(const T* final_alpha, const T* final_beta) {
    copy_or_clear(final_alpha, D, d_alpha);
    copy_or_clear(final_beta, D, d_beta);
  }
  void back(const WeightedMeanGradient<T>& d, Size row, Size t, const Parts<const T, 3>& S) {
    const bool answers = static_cast<bool>(d.d_o);
    load(row, t);
    shares(row, t, S[2], answers);
    for (Size i = 0; i < D; ++i) {
      const T da = d_alpha[i], db = d_beta[i];
      d_k[i] = fb[i] * (v[i] * da + db);
      d_v[i] = fb[i] * da;
      d_w[i] = fa[i] * (S[0][i] * da + S[1][i] * db);
      d_alpha[i] = fa[i] * da, d_beta[i] = fa[i] * db;
    }
    if (answers) {
      const T* const g = contiguous(row_of(d.d_o, row, t), d.d_o.stride[2], D, d_o_);
      for (Size i = 0; i < D; ++i) {
        const T den = pa[i] * S[1][i] + pb[i], n = g[i] / den;
        const T m = -n * ((pa[i] * S[0][i] + pb[i] * v[i]) / den);
        d_u[i] = pb[i] * (v[i] * n + m);
        d_k[i] += d_u[i], d_v[i] += pb[i] * n;
        d_alpha[i] += pa[i] * n, d_beta[i] += pa[i] * m;
      }
      add(d.d_u, row, t, d_u);
    }
    add(d.d_k, row, t, d_k), add(d.d_v, row, t, d_v), add(d.d_w, row, t, d_w);
  }
  void finish_back(T* initial_alpha, T* initial_beta) const {
    if (initial_alpha) s.axpy(D, T(1), d_alpha, initial_alpha);
    if (initial_beta) s.axpy(D, T(1), d_beta, initial_beta);
  }

  // The sum of w over tokens, for the map of a segment.
  void add_decay(Size row, Size t, T* sum) {
    s.axpy(D, T(1), contiguous(row_of(p.w, row, t), p.w.stride[2], D, w_), sum);
  }

 private:
  template <class X>
  static X* row_of(const View<X, 3>& x, Size row, Size t) {
    return x.data + row * x.stride[0] + t * x.stride[1];
  }
  void add(const View<T, 3>& to, Size row, Size t, const T* from) const {
    if (to) add_strided(D, T(1), from, row_of(to, row, t), to.stride[2]);
  }

  void load(Size row, Size t) {
    k = contiguous(row_of(p.k, row, t), p.k.stride[2], D, k_);
    v = contiguous(row_of(p.v, row, t), p.v.stride[2], D, v_);
    w = contiguous(row_of(p.w, row, t), p.w.stride[2], D, w_);
  }
  // fa, fb and, for the read, pa, pb of the loaded token.
  void shares(Size row, Size t, const T* exponent, bool answers) {
    for (Size i = 0; i < D; ++i) {
      const T old = w[i] + exponent[i], top = std::max(old, k[i]);
      fa[i] = old - top, fb[i] = k[i] - top;
    }
    s.exp(D, fa, fa), s.exp(D, fb, fb);
    if (!answers) return;
    const T* const u = contiguous(row_of(p.u, row, t), p.u.stride[2], D, u_);
    for (Size i = 0; i < D; ++i) {
      const T now = u[i] + k[i], tau = std::max(now, exponent[i]);
      pa[i] = exponent[i] - tau, pb[i] = now - tau;
    }
    s.exp(D, pa, pa), s.exp(D, pb, pb);
  }

  const Simd<T>& s;
  const ScanSimd<T>& e;
  const WeightedMeanProblem<T>& p;
  Size D;
  const T *k = nullptr, *v = nullptr, *w = nullptr;
  T *k_, *v_, *w_, *u_, *pa, *pb, *fa, *fb, *o;
  T *d_alpha = nullptr, *d_beta = nullptr, *d_o_ = nullptr, *d_k = nullptr, *d_v = nullptr, *d_w = nullptr,
    *d_u = nullptr;
};

/// Segments of the scan form: the state of each alone and its total decay; then its start state.
template <class T>
struct ScanMaps {
  ScanMaps(Size dim, Size longest, int chunk, Arena& arena) : tokens(chunk), D(dim) {
    states = arena.take<T>(scan_segments(longest, chunk) * 4 * D);
  }
  State<T> state(Size i) const { return {states + 4 * i * D, states + (4 * i + 1) * D, states + (4 * i + 2) * D}; }
  T* decay(Size i) const { return states + (4 * i + 3) * D; }
  int tokens;  // per segment, as asked for
  Size D;
  T* states;
};

template <class T>
void scan(Channels<T>& channels, const Sequence& n, const State<T>& S, const ScanMaps<T>& maps, bool outputs) {
  const Size D = maps.D, segment = scan_segment(n.end - n.begin, maps.tokens);
  const Size count = (n.end - n.begin + segment - 1) / segment;
  const auto run_tokens = [&](Size i, auto&& each) {
    const Size begin = n.begin + i * segment, end = std::min(begin + segment, n.end);
    for (Size t = begin; t < end; ++t) each(t);
  };
  for (Size i = 0; i < count; ++i) {
    const State<T> local = maps.state(i);
    std::fill_n(local[0], D, T(0)), std::fill_n(local[1], D, T(0)), std::fill_n(local[2], D, T(-1e30));
    std::fill_n(maps.decay(i), D, T(0));
    run_tokens(i, [&](Size t) {
      channels.step(n.row, t, local, false);
      channels.add_decay(n.row, t, maps.decay(i));
    });
  }
  for (Size i = 0; i < count; ++i) {
    const State<T> local = maps.state(i);
    const T* const decay = maps.decay(i);
    for (Size c = 0; c < D; ++c) {
      const T old = decay[c] + S[2][c], top = std::max(old, local[2][c]);
      const T a = std::exp(old - top), b = std::exp(local[2][c] - top);
      const T alpha = a * S[0][c] + b * local[0][c], beta = a * S[1][c] + b * local[1][c];
      local[0][c] = S[0][c], local[1][c] = S[1][c], local[2][c] = S[2][c];
      S[0][c] = alpha, S[1][c] = beta, S[2][c] = top;
    }
  }
  if (!outputs) return;
  for (Size i = 0; i < count; ++i) run_tokens(i, [&](Size t) { channels.step(n.row, t, maps.state(i), true); });
}

template <class T>
Status check(const WeightedMeanProblem<T>& p, bool queries, Form form, int chunk, bool backward, Workspace work,
             Size longest) {
  if (form == Form::chunk || form == Form::parallel) return Status::not_supported;
  if (longest < 0 || p.dim < 1) return Status::bad_shape;
  if (!p.sequences.empty() && (!p.alpha || !p.beta || !p.exponent)) return Status::missing_input;
  if (longest > 0 && (!p.k || !p.v || !p.w || (queries && !p.u))) return Status::missing_input;
  if (!work.data || work.bytes < workspace_bytes<T>(p.dim, longest, form, chunk, backward))
    return Status::small_workspace;
  return Status::ok;
}

}  // namespace

template <class T>
std::size_t workspace_bytes(int dim, std::ptrdiff_t longest, Form form, int chunk, bool backward) noexcept {
  static constexpr Simd<T> none{};
  static constexpr ScanSimd<T> no_scan{};
  WeightedMeanProblem<T> p;
  p.dim = dim;
  Arena arena;
  Channels<T> channels(none, no_scan, p, backward, arena);
  if (backward) Replay<T, 3> replay({dim, dim, dim}, longest, chunk, arena);
  else if (form == Form::scan) ScanMaps<T> maps(dim, longest, chunk, arena);
  return arena.bytes();
}

template <class T>
Status forward(const WeightedMeanProblem<T>& p, Form form, int chunk, const Simd<T>& s, Workspace work) noexcept {
  const Size longest = longest_of(p.sequences);
  const bool outputs = static_cast<bool>(p.o);
  if (const Status status = check(p, outputs, form, chunk, false, work, longest); status != Status::ok) return status;
  const FlushDenormals flush;
  Arena arena(work);
  Channels<T> channels(s, scan_simd(s), p, false, arena);
  const ScanMaps<T> maps(p.dim, form == Form::scan ? longest : 0, chunk, arena);
  Size at = 0;
  for (const Sequence& n : p.sequences) {
    const State<T> S{p.alpha + at, p.beta + at, p.exponent + at};
    if (form == Form::scan) scan(channels, n, S, maps, outputs);
    else
      for (Size t = n.begin; t < n.end; ++t) channels.step(n.row, t, S, outputs);
    at += p.dim;
  }
  return Status::ok;
}

template <class T>
Status backward(const WeightedMeanProblem<T>& p, const WeightedMeanGradient<T>& d, Form form, int chunk,
                const Simd<T>& s, Workspace work) noexcept {
  const Size longest = longest_of(p.sequences);
  if (const Status status = check(p, static_cast<bool>(d.d_o), form, chunk, true, work, longest);
      status != Status::ok)
    return status;
  const FlushDenormals flush;
  Arena arena(work);
  Channels<T> channels(s, scan_simd(s), p, true, arena);
  Replay<T, 3> replay({p.dim, p.dim, p.dim}, longest, chunk, arena);
  Size at = 0;
  for (const Sequence& n : p.sequences) {
    channels.start_back(d.d_final_alpha ? d.d_final_alpha + at : nullptr,
                        d.d_final_beta ? d.d_final_beta + at : nullptr);
    replay.run(
        n.end - n.begin, {p.alpha + at, p.beta + at, p.exponent + at},
        [&](Size i, const State<T>& S) { channels.step(n.row, n.begin + i, S, false); },
        [&](Size i, const Parts<const T, 3>& old, const Parts<const T, 3>&) {
          channels.back(d, n.row, n.begin + i, old);
        });
    channels.finish_back(d.d_initial_alpha ? d.d_initial_alpha + at : nullptr,
                         d.d_initial_beta ? d.d_initial_beta + at : nullptr);
    at += p.dim;
  }
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                                           \
  template std::size_t workspace_bytes<T>(int, std::ptrdiff_t, Form, int, bool) noexcept;                            \
  template Status forward(const WeightedMeanProblem<T>&, Form, int, const Simd<T>&, Workspace) noexcept;             \
  template Status backward(const WeightedMeanProblem<T>&, const WeightedMeanGradient<T>&, Form, int, const Simd<T>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::weighted_mean
