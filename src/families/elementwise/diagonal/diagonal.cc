// Backward of one token, with h = a * h_old + w and dh the gradient of h (complex numbers as pairs):
//
//   dw = dh ;  dg = Re(conj(a h_old) dh) ;  dtheta = Im(conj(a h_old) dh) ;  dh_old = conj(a) dh
// The selective problem has a file of its own, elementwise_selective.cc.
#include "families/elementwise/diagonal/diagonal.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "families/common/replay.h"
#include "families/elementwise/diagonal/selective.h"
#include "families/elementwise/scan_simd.h"
#include "simd/denormals.h"

namespace ttr::families::elementwise {
namespace {

using Size = std::ptrdiff_t;

// Real and imaginary part; a real state has an imaginary part of size 0.
template <class T>
using Pair = Parts<T, 2>;
template <class T>
using ConstPair = Parts<const T, 2>;

/// Where an element of a [B, T, H, X] or [B, T, X] view's row starts.
template <class T>
T* row_of(const View<T, 4>& x, Size row, Size t, int head) {
  return x.data + row * x.stride[0] + t * x.stride[1] + head * x.stride[2];
}
template <class T>
T* row_of(const View<T, 3>& x, Size row, Size t) {
  return x.data + row * x.stride[0] + t * x.stride[1];
}

/// a = e^{g + i theta} for n channels from strided rows; theta = null: real.
template <class T>
void factors(const Simd<T>& s, Size n, const T* g, Size g_stride, const T* theta, Size theta_stride, T* a_re,
             T* a_im) {
  if (g) s.exp(n, contiguous(g, g_stride, n, a_re), a_re);
  else std::fill_n(a_re, n, T(1));
  if (!theta) {
    if (a_im) std::fill_n(a_im, n, T(0));
    return;
  }
  for (Size i = 0; i < n; ++i) {
    const T angle = theta[i * theta_stride], size = a_re[i];
    a_re[i] = size * std::cos(angle), a_im[i] = size * std::sin(angle);
  }
}

template <class T>
class VectorCell {
 public:
  using Problem = ChannelProblem<T>;
  using Gradient = ChannelGradient<T>;

  VectorCell(const Simd<T>& simd, const ScanSimd<T>& scan, const Problem& problem, bool, Arena& arena)
      : s(simd), e(scan), p(problem), D(p.dim) {
    complex = p.state_im != nullptr;
    a_re = arena.take<T>(D), a_im = arena.take<T>(D), spare = arena.take<T>(D), spare_im = arena.take<T>(D);
  }
  static std::array<Size, 2> sizes(const Problem& p) { return {p.dim, p.state_im ? p.dim : 0}; }
  static int heads(const Problem&) { return 1; }
  static Status check(const Problem& p, Size longest, bool) {
    if (p.dim < 1) return Status::bad_shape;
    if (longest > 0 && !p.x) return Status::missing_input;
    if (!p.sequences.empty() && !p.state_im && (p.theta || p.x_im || p.o_im)) return Status::missing_input;
    return Status::ok;
  }
  void begin(int) { loaded = false; }
  void end(const Gradient&, int) {}

  void step(Size row, Size t, int, const Pair<T>& h, bool write, bool outputs) {
    load(row, t);
    if (complex) {
      e.turn(D, a_re, a_im, h[0], h[1]);
      if (write) s.axpy(D, T(1), contiguous(row_of(p.x, row, t), p.x.stride[2], D, spare), h[0]);
      if (write && p.x_im) s.axpy(D, T(1), contiguous(row_of(p.x_im, row, t), p.x_im.stride[2], D, spare), h[1]);
    } else if (write) {
      e.decay_add(D, a_re, contiguous(row_of(p.x, row, t), p.x.stride[2], D, spare), h[0]);
    } else {
      e.decay(D, a_re, h[0]);
    }
    if (!outputs) return;
    if (p.o) store(h[0], row_of(p.o, row, t), p.o.stride[2]);
    if (p.o_im) store(h[1], row_of(p.o_im, row, t), p.o_im.stride[2]);
  }

  void back(const Gradient& d, Size row, Size t, int, const ConstPair<T>& old, const ConstPair<T>&,
            const Pair<T>& dh) {
    load(row, t);
    if (d.d_o) s.axpy(D, T(1), contiguous(row_of(d.d_o, row, t), d.d_o.stride[2], D, spare), dh[0]);
    if (d.d_o_im && complex)
      s.axpy(D, T(1), contiguous(row_of(d.d_o_im, row, t), d.d_o_im.stride[2], D, spare), dh[1]);
    if (d.d_x) add_strided(D, T(1), dh[0], row_of(d.d_x, row, t), d.d_x.stride[2]);
    if (!complex) {
      e.decay(D, a_re, dh[0]);
      if (d.d_g) {
        std::copy_n(old[0], D, spare);
        e.decay(D, dh[0], spare);
        add_strided(D, T(1), spare, row_of(d.d_g, row, t), d.d_g.stride[2]);
      }
      return;
    }
    if (d.d_x_im) add_strided(D, T(1), dh[1], row_of(d.d_x_im, row, t), d.d_x_im.stride[2]);
    e.turn_back(D, a_re, a_im, old[0], old[1], dh[0], dh[1], spare, spare_im);
    if (d.d_g) add_strided(D, T(1), spare, row_of(d.d_g, row, t), d.d_g.stride[2]);
    if (d.d_theta) add_strided(D, T(1), spare_im, row_of(d.d_theta, row, t), d.d_theta.stride[2]);
  }

 private:
  void load(Size row, Size t) {
    const auto fixed = [](const View<const T, 3>& x) { return !x || (x.stride[0] == 0 && x.stride[1] == 0); };
    if (loaded && fixed(p.g) && fixed(p.theta)) return;
    factors(s, D, p.g ? row_of(p.g, row, t) : nullptr, p.g.stride[2], p.theta ? row_of(p.theta, row, t) : nullptr,
            p.theta.stride[2], a_re, complex ? a_im : nullptr);
    loaded = true;
  }
  void store(const T* from, T* to, Size stride) const {
    for (Size i = 0; i < D; ++i) to[i * stride] = from[i];
  }

  const Simd<T>& s;
  const ScanSimd<T>& e;
  const Problem& p;
  Size D;
  bool complex, loaded = false;
  T *a_re, *a_im, *spare, *spare_im;
};

template <class T>
class RotatingCell {
 public:
  using Problem = RotatingProblem<T>;
  using Gradient = RotatingGradient<T>;

  RotatingCell(const Simd<T>& simd, const ScanSimd<T>& scan, const Problem& problem, bool backward, Arena& arena)
      : s(simd), e(scan), p(problem), K(p.key_dim), V(p.value_dim) {
    a_re = arena.take<T>(K), a_im = arena.take<T>(K), q = arena.take<T>(K), k = arena.take<T>(K);
    v = arena.take<T>(V), o = arena.take<T>(V);
    if (!backward) return;
    d_q = arena.take<T>(K), d_k = arena.take<T>(K), d_g = arena.take<T>(K), d_theta = arena.take<T>(K);
    d_v = arena.take<T>(V);
  }
  static std::array<Size, 2> sizes(const Problem& p) {
    return {Size{p.key_dim} * p.value_dim, Size{p.key_dim} * p.value_dim};
  }
  static int heads(const Problem& p) { return p.heads; }
  static Status check(const Problem& p, Size longest, bool queries) {
    if (p.key_dim < 1 || p.value_dim < 1 || p.heads < 1 || p.key_heads < 1 || p.heads % p.key_heads != 0)
      return Status::bad_shape;
    if (!p.sequences.empty() && !p.state_im) return Status::missing_input;
    if (longest > 0 && (!p.k || !p.v || (queries && !p.q))) return Status::missing_input;
    return Status::ok;
  }
  void begin(int) {}
  void end(const Gradient&, int) {}

  void step(Size row, Size t, int head, const Pair<T>& state, bool write, bool outputs) {
    const bool answers = outputs && p.o;
    const Row r = load(row, t, head, answers);
    for (Size n = 0; n < K; ++n) {
      T *const re = state[0] + n * V, *const im = state[1] + n * V;
      e.turn_all(V, a_re[n], a_im[n], re, im);
      if (write) s.axpy(V, r.k[n], r.v, re);
    }
    if (!answers) return;
    s.vec_mat(K, V, r.q, state[0], V, o);
    T* const to = row_of(p.o, row, t, head);
    for (Size i = 0; i < V; ++i) to[i * p.o.stride[3]] = p.scale * o[i];
  }

  void back(const Gradient& d, Size row, Size t, int head, const ConstPair<T>& old, const ConstPair<T>& now,
            const Pair<T>& d_state) {
    const bool answers = static_cast<bool>(d.d_o);
    const Row r = load(row, t, head, answers);
    const int shared = key_head(head);
    if (answers) {
      const T* const g = contiguous(row_of(d.d_o, row, t, head), d.d_o.stride[3], V, o);
      s.mat_vec(K, V, now[0], V, g, d_q);
      for (Size n = 0; n < K; ++n) s.axpy(V, p.scale * r.q[n], g, d_state[0] + n * V);
      if (d.d_q) add_strided(K, p.scale, d_q, row_of(d.d_q, row, t, shared), d.d_q.stride[3]);
    }
    s.mat_vec(K, V, d_state[0], V, r.v, d_k);
    s.vec_mat(K, V, r.k, d_state[0], V, d_v);
    for (Size n = 0; n < K; ++n) {
      T *const re = d_state[0] + n * V, *const im = d_state[1] + n * V;
      const T *const old_re = old[0] + n * V, *const old_im = old[1] + n * V;
      e.turn_all(V, a_re[n], -a_im[n], re, im);  // conj(a) dS
      d_g[n] = s.dot(V, old_re, re) + s.dot(V, old_im, im);
      d_theta[n] = s.dot(V, old_re, im) - s.dot(V, old_im, re);
    }
    if (d.d_k) add_strided(K, T(1), d_k, row_of(d.d_k, row, t, shared), d.d_k.stride[3]);
    if (d.d_v) add_strided(V, T(1), d_v, row_of(d.d_v, row, t, head), d.d_v.stride[3]);
    if (d.d_g) add_strided(K, T(1), d_g, row_of(d.d_g, row, t, head), d.d_g.stride[3]);
    if (d.d_theta) add_strided(K, T(1), d_theta, row_of(d.d_theta, row, t, head), d.d_theta.stride[3]);
  }

 private:
  struct Row {
    const T *q, *k, *v;
  };
  int key_head(int head) const { return head / (p.heads / p.key_heads); }
  Row load(Size row, Size t, int head, bool queries) {
    const int shared = key_head(head);
    factors(s, K, p.g ? row_of(p.g, row, t, head) : nullptr, p.g.stride[3],
            p.theta ? row_of(p.theta, row, t, head) : nullptr, p.theta.stride[3], a_re, a_im);
    return {queries ? contiguous(row_of(p.q, row, t, shared), p.q.stride[3], K, q) : nullptr,
            contiguous(row_of(p.k, row, t, shared), p.k.stride[3], K, k),
            contiguous(row_of(p.v, row, t, head), p.v.stride[3], V, v)};
  }

  const Simd<T>& s;
  const ScanSimd<T>& e;
  const Problem& p;
  Size K, V;
  T *a_re, *a_im, *q, *k, *v, *o;
  T *d_q = nullptr, *d_k = nullptr, *d_g = nullptr, *d_theta = nullptr, *d_v = nullptr;
};

template <class Problem>
auto* imaginary(const Problem& p) {
  if constexpr (requires { p.state_im; }) return p.state_im;
  else return static_cast<decltype(p.state)>(nullptr);
}

/// Scratch of the scan form for one head: the maps of the segments, which become their start states.
template <class T>
struct ScanMaps {
  ScanMaps(const std::array<Size, 2>& sizes, Size longest, int chunk, Arena& arena)
      : tokens(chunk), total(sizes[0] + sizes[1]) {
    const Size count = scan_segments(longest, chunk);
    A = arena.take<T>(count * total), B = arena.take<T>(count * total);
  }
  int tokens;  // per segment, as asked for
  Size total;
  T *A, *B;
};

template <class T, class Cell>
void scan_forward(Cell& cell, const Sequence& n, int head, const Pair<T>& S, const std::array<Size, 2>& sizes,
                  const ScanMaps<T>& maps) {
  const Size segment = scan_segment(n.end - n.begin, maps.tokens), count = (n.end - n.begin + segment - 1) / segment;
  const auto pair = [&](T* base, Size i) { return Pair<T>{base + i * maps.total, base + i * maps.total + sizes[0]}; };
  const auto run_tokens = [&](Size i, const Pair<T>& state, bool write, bool outputs) {
    const Size begin = n.begin + i * segment, end = std::min(begin + segment, n.end);
    for (Size t = begin; t < end; ++t) cell.step(n.row, t, head, state, write, outputs);
  };
  for (Size i = 0; i < count; ++i) {
    const Pair<T> A = pair(maps.A, i), B = pair(maps.B, i);
    std::fill_n(A[0], sizes[0], T(1)), std::fill_n(A[1], sizes[1], T(0)), std::fill_n(B[0], maps.total, T(0));
    run_tokens(i, A, false, false);
    run_tokens(i, B, true, false);
  }
  for (Size i = 0; i < count; ++i) {  // S <- A S + B, with the start of segment i left in A
    const Pair<T> A = pair(maps.A, i), B = pair(maps.B, i);
    for (Size j = 0; j < sizes[0]; ++j) {
      const T re = S[0][j], a = A[0][j];
      A[0][j] = re;
      if (sizes[1] == 0) {
        S[0][j] = a * re + B[0][j];
        continue;
      }
      const T im = S[1][j], b = A[1][j];
      A[1][j] = im;
      S[0][j] = a * re - b * im + B[0][j];
      S[1][j] = a * im + b * re + B[1][j];
    }
  }
  for (Size i = 0; i < count; ++i) run_tokens(i, pair(maps.A, i), true, true);
}

template <class T, class Problem>
Status common_checks(const Problem& p, Form form, Size longest, std::size_t bytes, Workspace work) {
  if (form == Form::chunk || form == Form::parallel) return Status::not_supported;
  if (longest < 0) return Status::bad_shape;
  if (!p.sequences.empty() && !p.state) return Status::missing_input;
  if (!work.data || work.bytes < bytes) return Status::small_workspace;
  return Status::ok;
}

template <class T, class Cell>
std::size_t bytes_of(const typename Cell::Problem& p, const std::array<Size, 2>& sizes, Size longest, Form form,
                     int chunk, bool backward) {
  static constexpr Simd<T> none{};
  static constexpr ScanSimd<T> no_scan{};
  Arena arena;
  Cell cell(none, no_scan, p, backward, arena);
  if (backward) {
    arena.take<T>(sizes[0] + sizes[1]);
    Replay<T, 2> replay(sizes, longest, chunk, arena);
  } else if (form == Form::scan) {
    ScanMaps<T> maps(sizes, longest, chunk, arena);
  }
  return arena.bytes();
}

template <class T, class Cell>
Status run_forward(const typename Cell::Problem& p, Form form, int chunk, const Simd<T>& s, Workspace work) {
  const Size longest = longest_of(p.sequences);
  const std::array<Size, 2> sizes = Cell::sizes(p);
  if (const Status status = Cell::check(p, longest, static_cast<bool>(p.o)); status != Status::ok) return status;
  const std::size_t bytes = bytes_of<T, Cell>(p, sizes, std::max<Size>(longest, 0), form, chunk, false);
  if (const Status status = common_checks<T>(p, form, longest, bytes, work); status != Status::ok) return status;
  const FlushDenormals flush;
  Arena arena(work);
  Cell cell(s, scan_simd(s), p, false, arena);
  const ScanMaps<T> maps(sizes, form == Form::scan ? longest : 0, chunk, arena);
  Pair<T> S{p.state, imaginary(p)};
  for (const Sequence& n : p.sequences)
    for (int h = 0; h < Cell::heads(p); ++h) {
      if (n.begin < n.end) cell.begin(h);
      if (form == Form::scan) scan_forward(cell, n, h, S, sizes, maps);
      else
        for (Size t = n.begin; t < n.end; ++t) cell.step(n.row, t, h, S, true, true);
      S[0] += sizes[0];
      if (S[1]) S[1] += sizes[1];
    }
  return Status::ok;
}

template <class T, class Cell>
Status run_backward(const typename Cell::Problem& p, const typename Cell::Gradient& d, Form form, int chunk,
                    const Simd<T>& s, Workspace work) {
  const Size longest = longest_of(p.sequences);
  const std::array<Size, 2> sizes = Cell::sizes(p);
  if (const Status status = Cell::check(p, longest, static_cast<bool>(d.d_o)); status != Status::ok) return status;
  const std::size_t bytes = bytes_of<T, Cell>(p, sizes, std::max<Size>(longest, 0), form, chunk, true);
  if (const Status status = common_checks<T>(p, form, longest, bytes, work); status != Status::ok) return status;
  const FlushDenormals flush;
  Arena arena(work);
  Cell cell(s, scan_simd(s), p, true, arena);
  T* const d_state = arena.take<T>(sizes[0] + sizes[1]);
  const Pair<T> dS{d_state, d_state + sizes[0]};
  Replay<T, 2> replay(sizes, longest, chunk, arena);
  const T *final_im = nullptr, *state_im = nullptr;
  T* initial_im = nullptr;
  if constexpr (requires { d.d_final_im; })
    final_im = d.d_final_im, initial_im = d.d_initial_im, state_im = p.state_im;
  Size seq_head = 0;
  for (const Sequence& n : p.sequences)
    for (int h = 0; h < Cell::heads(p); ++h, ++seq_head) {
      const Size re = seq_head * sizes[0], im = seq_head * sizes[1];
      copy_or_clear(d.d_final ? d.d_final + re : nullptr, sizes[0], dS[0]);
      copy_or_clear(final_im ? final_im + im : nullptr, sizes[1], dS[1]);
      if (n.begin < n.end) cell.begin(h);
      replay.run(
          n.end - n.begin, {p.state + re, state_im ? state_im + im : nullptr},
          [&](Size i, const Pair<T>& S) { cell.step(n.row, n.begin + i, h, S, true, false); },
          [&](Size i, const ConstPair<T>& old, const ConstPair<T>& now) {
            cell.back(d, n.row, n.begin + i, h, old, now, dS);
          });
      if (n.begin < n.end) cell.end(d, h);
      if (d.d_initial) s.axpy(sizes[0], T(1), dS[0], d.d_initial + re);
      if (initial_im && sizes[1] > 0) s.axpy(sizes[1], T(1), dS[1], initial_im + im);
    }
  return Status::ok;
}

}  // namespace

template <class T>
std::size_t workspace_bytes(int K, int V, std::ptrdiff_t longest, Form form, int chunk, bool backward) noexcept {
  // A vector problem may be complex, a selective one is real with [K, V] gates: the largest serves all three.
  T imaginary_part;  // never read: that there is one makes the problem complex
  ChannelProblem<T> vector;
  vector.dim = K * V, vector.state_im = &imaginary_part;
  RotatingProblem<T> rotating;
  rotating.key_dim = K, rotating.value_dim = V;
  using V_ = VectorCell<T>;
  using R_ = RotatingCell<T>;
  return std::max({bytes_of<T, V_>(vector, V_::sizes(vector), longest, form, chunk, backward),
                   selective_bytes<T>(K, V, longest, form, chunk, backward),
                   bytes_of<T, R_>(rotating, R_::sizes(rotating), longest, form, chunk, backward)});
}

template <class T>
Status forward(const ChannelProblem<T>& p, Form form, int chunk, const Simd<T>& s, Workspace work) noexcept {
  return run_forward<T, VectorCell<T>>(p, form, chunk, s, work);
}
template <class T>
Status forward(const RotatingProblem<T>& p, Form form, int chunk, const Simd<T>& s, Workspace work) noexcept {
  return run_forward<T, RotatingCell<T>>(p, form, chunk, s, work);
}
template <class T>
Status backward(const ChannelProblem<T>& p, const ChannelGradient<T>& d, Form form, int chunk, const Simd<T>& s,
                Workspace work) noexcept {
  return run_backward<T, VectorCell<T>>(p, d, form, chunk, s, work);
}
template <class T>
Status backward(const RotatingProblem<T>& p, const RotatingGradient<T>& d, Form form, int chunk, const Simd<T>& s,
                Workspace work) noexcept {
  return run_backward<T, RotatingCell<T>>(p, d, form, chunk, s, work);
}

#define TTR_INSTANTIATE(T)                                                                                   \
  template std::size_t workspace_bytes<T>(int, int, std::ptrdiff_t, Form, int, bool) noexcept;               \
  template Status forward(const ChannelProblem<T>&, Form, int, const Simd<T>&, Workspace) noexcept;          \
  template Status forward(const RotatingProblem<T>&, Form, int, const Simd<T>&, Workspace) noexcept;         \
  template Status backward(const ChannelProblem<T>&, const ChannelGradient<T>&, Form, int, const Simd<T>&,   \
                           Workspace) noexcept;                                                              \
  template Status backward(const RotatingProblem<T>&, const RotatingGradient<T>&, Form, int, const Simd<T>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::elementwise
