// Backward of one token (pa, pb, fa, fb as in the header):
//
//   n = do / (pa beta + pb) ;  m = -o n
//   du = pb (v n + m) ;  dk = du + fb (v dalpha' + dbeta') ;  dv = pb n + fb dalpha'
//   dw = fa (alpha dalpha' + beta dbeta') ;  dalpha = fa dalpha' + pa n ;  dbeta = fa dbeta' + pa m
#include "families/elementwise/weighted_mean/weighted_mean.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

#include "families/common/replay.h"
#include "families/common/scan.h"
#include "families/elementwise/scan_simd.h"
#include "families/elementwise/shared_gradient.h"
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
  void end_back(T* alpha, T* beta) const { std::copy_n(d_alpha, D, alpha), std::copy_n(d_beta, D, beta); }
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

  // The sum of w over tokens, for the map of a segment, and the exponent of the segment alone.
  void add_decay(Size row, Size t, T* sum) {
    s.axpy(D, T(1), contiguous(row_of(p.w, row, t), p.w.stride[2], D, w_), sum);
  }
  void exponents(Size row, Size t, T* sum, T* exponent) {
    load(row, t);
    for (Size i = 0; i < D; ++i) sum[i] += w[i], exponent[i] = std::max(w[i] + exponent[i], k[i]);
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

constexpr double no_exponent = -1e30;  // of a state without tokens

/// The engine of a scan: a map is alpha, beta and e of the segment alone, and its sum of w; backwards a factor and the
/// gradients of alpha and beta.
template <class T>
class MeanScan {
 public:
  using Number = T;
  using Gradient = WeightedMeanGradient<T>;
  static constexpr bool large = false;
  const Size D, state, map, map_back;

  /// `longest`: tokens of a segment.
  MeanScan(const Simd<T>& simd, const ScanSimd<T>& scan, const WeightedMeanProblem<T>& problem, Size longest,
           bool gradients, Arena& arena)
      : D(problem.dim),
        state(3 * D),
        map(4 * D),
        map_back(3 * D),
        s(simd),
        e(scan),
        p(problem),
        length(longest),
        backward(gradients) {
    if (backward)
      for (SharedGradient<T>& one : shared) one = SharedGradient<T>(D, arena);
  }
  void begin(Size row, const Gradient* gradient) {
    if (!gradient) return;
    d = *gradient;
    shared[0].begin(d.d_w, row, 0), shared[1].begin(d.d_u, row, 0);
    outputs_only.d_o = d.d_o;
  }
  void sum(Size slots) {
    for (SharedGradient<T>& one : shared) one.sum(slots);
  }

  class Worker {
   public:
    Worker(const MeanScan& engine, Arena& arena)
        : scan(engine),
          D(engine.D),
          channels(engine.s, engine.e, engine.p, engine.backward, arena),
          exponent(arena.take<T>(D)) {
      if (scan.backward) replay.emplace(std::array<Size, 3>{D, D, D}, scan.length, 0, arena);
    }
    void run(const Sequence& n, T* S, bool outputs, bool) {
      outputs = outputs && scan.p.o;
      for (Size t = n.begin; t < n.end; ++t) channels.step(n.row, t, of(S), outputs);
    }
    void make(const Sequence& n, T* m, bool) {
      std::fill_n(m, 2 * D, T(0)), std::fill_n(m + 2 * D, D, T(no_exponent)), std::fill_n(m + 3 * D, D, T(0));
      for (Size t = n.begin; t < n.end; ++t) {
        channels.step(n.row, t, of(m), false);
        channels.add_decay(n.row, t, m + 3 * D);
      }
    }
    void compose(T* m, const T* first) {
      merge(m, first, m);
      for (Size i = 0; i < D; ++i) m[3 * D + i] += first[3 * D + i];
    }
    void apply(const T* m, const T* S, T* out) { merge(m, S, out); }
    void back(const Sequence& n, Size slot, const T* start, T* dS) {
      Gradient own = scan.d;
      own.d_w = scan.shared[0].of(slot, own.d_w), own.d_u = scan.shared[1].of(slot, own.d_u);
      chain(own, n, start, dS);
    }
    void make_back(const Sequence& n, const T* start, T* m) {
      std::fill_n(m, D, T(0)), std::fill_n(exponent, D, T(no_exponent));
      for (Size t = n.begin; t < n.end; ++t) channels.exponents(n.row, t, m, exponent);
      for (Size i = 0; i < D; ++i) {
        const T old = m[i] + start[2 * D + i];
        m[i] = std::exp(old - std::max(old, exponent[i]));
      }
      std::fill_n(m + D, 2 * D, T(0));
      chain(scan.outputs_only, n, start, m + D);
    }
    void compose_back(T* m, const T* first) {
      for (Size i = 0; i < D; ++i) {
        m[D + i] += m[i] * first[D + i], m[2 * D + i] += m[i] * first[2 * D + i];
        m[i] *= first[i];
      }
    }
    void apply_back(const T* m, const T* dS, T* out) {
      for (Size i = 0; i < D; ++i) {
        out[i] = m[i] * dS[i] + m[D + i], out[D + i] = m[i] * dS[D + i] + m[2 * D + i];
        out[2 * D + i] = T(0);
      }
    }

   private:
    static constexpr std::size_t parts = 3;
    template <class N>
    Parts<N, parts> of(N* base) const {
      return {base, base + D, base + 2 * D};
    }
    // out = the state S, faded by the sum of w of the map, and the segment's own.
    void merge(const T* m, const T* S, T* out) {
      for (Size i = 0; i < D; ++i) {
        const T old = m[3 * D + i] + S[2 * D + i], own = m[2 * D + i], top = std::max(old, own);
        const T a = std::exp(old - top), b = std::exp(own - top);
        out[i] = a * S[i] + b * m[i], out[D + i] = a * S[D + i] + b * m[D + i], out[2 * D + i] = top;
      }
    }
    void chain(const Gradient& to, const Sequence& n, const T* start, T* dS) {
      channels.start_back(dS, dS + D);
      replay->run(
          n.end - n.begin, of(start), [&](Size i, const State<T>& S) { channels.step(n.row, n.begin + i, S, false); },
          [&](Size i, const Parts<const T, 3>& old, const Parts<const T, 3>&) {
            channels.back(to, n.row, n.begin + i, old);
          });
      channels.end_back(dS, dS + D);
    }
    const MeanScan& scan;
    Size D;
    Channels<T> channels;
    T* exponent;
    std::optional<Replay<T, 3>> replay;
  };
  Worker worker(Arena& arena) const { return {*this, arena}; }

 private:
  const Simd<T>& s;
  const ScanSimd<T>& e;
  const WeightedMeanProblem<T>& p;
  Size length;
  bool backward;
  Gradient d{}, outputs_only{};
  std::array<SharedGradient<T>, 2> shared;
};

template <class T>
Size least(const WeightedMeanProblem<T>& p) {
  return least_segment(p.chosen_by ? p.chosen_by : p.dim);
}

template <class T>
Status check(const WeightedMeanProblem<T>& p, bool queries, Form form, int chunk, bool backward, Workspace work,
             Size longest) {
  if (form == Form::chunk || form == Form::parallel) return Status::not_supported;
  if (longest < 0 || p.dim < 1) return Status::bad_shape;
  if (!p.sequences.empty() && (!p.alpha || !p.beta || !p.exponent)) return Status::missing_input;
  if (longest > 0 && (!p.k || !p.v || !p.w || (queries && !p.u))) return Status::missing_input;
  if (!work.data || work.bytes < workspace_bytes<T>(p.dim, longest, form, chunk, backward, p.team.workers()))
    return Status::small_workspace;
  return Status::ok;
}

}  // namespace

template <class T>
std::size_t workspace_bytes(int dim, std::ptrdiff_t longest, Form form, int chunk, bool backward,
                            int workers) noexcept {
  static constexpr Simd<T> none{};
  static constexpr ScanSimd<T> no_scan{};
  WeightedMeanProblem<T> p;
  p.dim = dim;
  Arena arena;
  if (form == Form::scan) {
    ScanOf<MeanScan<T>>(longest, chunk, least_segment(dim), backward, Team(workers, nullptr), arena, none, no_scan,
                        p);
    return arena.bytes();
  }
  Channels<T> channels(none, no_scan, p, backward, arena);
  if (backward) Replay<T, 3> replay({dim, dim, dim}, longest, chunk, arena);
  return arena.bytes();
}

template <class T>
Status forward(const WeightedMeanProblem<T>& p, Form form, int chunk, const Simd<T>& s, Workspace work) noexcept {
  const Size longest = longest_of(p.sequences);
  const bool outputs = static_cast<bool>(p.o);
  if (const Status status = check(p, outputs, form, chunk, false, work, longest); status != Status::ok) return status;
  const FlushDenormals flush;
  Arena arena(work);
  const PartSizes<3> sizes{{p.dim, p.dim, p.dim}};
  const auto state = [&](Size i) { return sizes.of(Parts<T, 3>{p.alpha, p.beta, p.exponent}, i); };
  if (form == Form::scan) {
    ScanOf<MeanScan<T>> run(longest, chunk, least(p), false, p.team, arena, s, scan_simd(s), p);
    for (Size i = 0; i < std::ssize(p.sequences); ++i) {
      const Sequence& n = p.sequences[static_cast<std::size_t>(i)];
      sizes.gather(state(i), run.S);
      run.engine.begin(n.row, nullptr);
      run.forward(n, run.S, outputs);
      sizes.scatter(run.S, state(i));
    }
    return Status::ok;
  }
  Channels<T> channels(s, scan_simd(s), p, false, arena);
  for (Size i = 0; i < std::ssize(p.sequences); ++i) {
    const Sequence& n = p.sequences[static_cast<std::size_t>(i)];
    for (Size t = n.begin; t < n.end; ++t) channels.step(n.row, t, state(i), outputs);
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
  const auto at = [&](auto* data, Size i) { return data ? data + i * p.dim : nullptr; };
  const auto initial = [&](Size i) { return Parts<const T, 3>{at(p.alpha, i), at(p.beta, i), at(p.exponent, i)}; };
  if (form == Form::scan) {
    const auto constant = [](const auto& view) { return view && view.stride[1] == 0; };
    const Team team = constant(d.d_k) || constant(d.d_v) ? Team() : p.team;
    ScanOf<MeanScan<T>> run(longest, chunk, least(p), true, team, arena, s, scan_simd(s), p);
    for (Size i = 0; i < std::ssize(p.sequences); ++i) {
      const Sequence& n = p.sequences[static_cast<std::size_t>(i)];
      PartSizes<3>{{p.dim, p.dim, p.dim}}.gather(initial(i), run.S);
      copy_or_clear(at(d.d_final_alpha, i), p.dim, run.dS),
          copy_or_clear(at(d.d_final_beta, i), p.dim, run.dS + p.dim);
      run.engine.begin(n.row, &d);
      run.backward(n, run.S, run.dS);
      if (d.d_initial_alpha) s.axpy(p.dim, T(1), run.dS, at(d.d_initial_alpha, i));
      if (d.d_initial_beta) s.axpy(p.dim, T(1), run.dS + p.dim, at(d.d_initial_beta, i));
    }
    return Status::ok;
  }
  Channels<T> channels(s, scan_simd(s), p, true, arena);
  Replay<T, 3> replay({p.dim, p.dim, p.dim}, longest, chunk, arena);
  for (Size i = 0; i < std::ssize(p.sequences); ++i) {
    const Sequence& n = p.sequences[static_cast<std::size_t>(i)];
    channels.start_back(at(d.d_final_alpha, i), at(d.d_final_beta, i));
    replay.run(
        n.end - n.begin, initial(i), [&](Size t, const State<T>& S) { channels.step(n.row, n.begin + t, S, false); },
        [&](Size t, const Parts<const T, 3>& old, const Parts<const T, 3>&) {
          channels.back(d, n.row, n.begin + t, old);
        });
    channels.finish_back(at(d.d_initial_alpha, i), at(d.d_initial_beta, i));
  }
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                                           \
  template std::size_t workspace_bytes<T>(int, std::ptrdiff_t, Form, int, bool, int) noexcept;                       \
  template Status forward(const WeightedMeanProblem<T>&, Form, int, const Simd<T>&, Workspace) noexcept;             \
  template Status backward(const WeightedMeanProblem<T>&, const WeightedMeanGradient<T>&, Form, int, const Simd<T>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::weighted_mean
