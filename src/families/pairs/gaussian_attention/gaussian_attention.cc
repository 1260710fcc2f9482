// The exact form hands each sequence to attention.h; by landmarks, tiles of 64 tokens against all landmarks.
// Equations: gaussian_attention.h.
#include "families/pairs/gaussian_attention/gaussian_attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "families/pairs/attention/attention.h"
#include "families/pairs/driver.h"
#include "families/pairs/factor.h"
#include "families/pairs/rows.h"

namespace ttr::families::gaussian_attention {
namespace {

using pairs::each_tile;
using pairs::Factor;
using pairs::Kernel;
using pairs::keys_of;
using pairs::narrow;
using pairs::Size;
using pairs::widen;

template <class T>
double bandwidth_of(const GaussianAttentionProblem<T>& p) {
  return p.bandwidth > 0 ? p.bandwidth : 2 * std::sqrt(static_cast<double>(p.key_dim));
}

/// One sequence and head, by landmarks.
class Landmarks {
 public:
  Landmarks(const Simd<double>& simd, Size key_dim, Size value_dim, Size count, bool backward, Arena& arena)
      : s(simd),
        K(key_dim),
        V(value_dim),
        M(count),
        kernel(simd, key_dim, arena),
        factor(simd, value_dim, std::max(C, value_dim), arena) {
    w = arena.take<double>(M * K), y = arena.take<double>(M * V), z = arena.take<double>(M * V);
    a = arena.take<double>(M * V), turned = arena.take<double>(V * M);
    triangle = arena.take<double>(Factor::start(M)), X = arena.take<double>(C * M);
    x = arena.take<double>(C * K), u = arena.take<double>(C * V);
    if (!backward) return;
    d_w = arena.take<double>(M * K), d_a = arena.take<double>(M * V), d_x = arena.take<double>(C * K);
    d_v = arena.take<double>(C * V), tile = arena.take<double>(C * C);
  }

  template <class T>
  void load(const GaussianAttentionProblem<T>& p, std::size_t n, int head) {
    const Sequence& keys = keys_of(p, n);
    const int shared = head / (p.heads / p.key_heads);
    kernel.choose_gaussian(bandwidth_of(p));
    widen(p.landmarks, static_cast<Size>(n), 0, M, head, K, w);
    std::fill_n(y, M * V, 0.0);
    each_tile(keys, [&](Size t, Size c) {
      widen(p.k, keys.row, t, c, shared, K, x);
      widen(p.v, keys.row, t, c, shared, V, u);
      kernel.values(c, M, x, w, X, M);
      s.gemm_tn(M, V, c, 1.0, X, M, u, V, 1.0, y, V);
    });
    factor.attach(triangle, z, 0);
    factor.grow(kernel, K, w, y, p.ridge, M, X, M);
    s.transpose(M, V, z, V, turned, M);
    factor.upper(M, V, turned, M);
    s.transpose(V, M, turned, M, a, V);
  }

  template <class T>
  void forward(const GaussianAttentionProblem<T>& p, std::size_t n, int head) {
    const Sequence& tokens = p.sequences[n];
    load(p, n, head);
    each_tile(tokens, [&](Size t, Size c) {
      widen(p.q, tokens.row, t, c, head, K, x);
      kernel.values(c, M, x, w, X, M);
      s.gemm_nn(c, V, M, 1.0, X, M, a, V, 0.0, u, V);
      narrow(u, tokens.row, t, c, head, V, false, p.o);
    });
  }

  template <class T>
  void backward(const GaussianAttentionProblem<T>& p, const GaussianAttentionGradient<T>& d, std::size_t n,
                int head) {
    const Sequence &tokens = p.sequences[n], &keys = keys_of(p, n);
    const int shared = head / (p.heads / p.key_heads);
    load(p, n, head);
    std::fill_n(d_w, M * K, 0.0);
    std::fill_n(d_a, M * V, 0.0);
    each_tile(tokens, [&](Size t, Size c) {
      widen(p.q, tokens.row, t, c, head, K, x);
      widen(d.d_o, tokens.row, t, c, head, V, u);
      kernel.values(c, M, x, w, X, M);
      s.gemm_tn(M, V, c, 1.0, X, M, u, V, 1.0, d_a, V);
      s.gemm_nt(c, M, V, 1.0, u, V, a, V, 0.0, X, M);
      kernel_back(c);
      if (d.d_q) narrow(d_x, tokens.row, t, c, head, K, true, d.d_q);
    });

    s.transpose(M, V, d_a, V, turned, M);
    factor.lower(M, V, turned, M);
    factor.upper(M, V, turned, M);
    s.transpose(V, M, turned, M, d_a, V);  // U
    for (Size i = 0; i < M; i += C)
      for (Size j = 0; j <= i; j += C) {  // both (i, j) and (j, i)
        const Size m = std::min(C, M - i), c = std::min(C, M - j);
        s.gemm_nt(m, c, V, -1.0, d_a + i * V, V, a + j * V, V, 0.0, tile, C);
        s.gemm_nt(m, c, V, -1.0, a + i * V, V, d_a + j * V, V, 1.0, tile, C);
        kernel.back(m, c, w + i * K, w + j * K, tile, C, d_w + i * K, i == j ? nullptr : d_w + j * K);
      }

    each_tile(keys, [&](Size t, Size c) {
      widen(p.k, keys.row, t, c, shared, K, x);
      widen(p.v, keys.row, t, c, shared, V, u);
      if (d.d_v) {
        kernel.values(c, M, x, w, X, M);
        s.gemm_nn(c, V, M, 1.0, X, M, d_a, V, 0.0, d_v, V);
        narrow(d_v, keys.row, t, c, shared, V, true, d.d_v);
      }
      s.gemm_nt(c, M, V, 1.0, u, V, d_a, V, 0.0, X, M);
      kernel_back(c);
      if (d.d_k) narrow(d_x, keys.row, t, c, shared, K, true, d.d_k);
    });
    if (d.d_landmarks) narrow(d_w, static_cast<Size>(n), 0, M, head, K, true, d.d_landmarks);
  }

 private:
  static constexpr Size C = pairs::block_size;

  // From X = d kappa(x, W): d_x, and what goes to the landmarks.
  void kernel_back(Size c) {
    std::fill_n(d_x, c * K, 0.0);
    for (Size j = 0; j < M; j += C) kernel.back(c, std::min(C, M - j), x, w + j * K, X + j, M, d_x, d_w + j * K);
  }

  const Simd<double>& s;
  Size K, V, M;
  Kernel kernel;
  Factor factor;
  double *w, *y, *z, *a, *turned, *triangle, *X, *x, *u;
  double *d_w = nullptr, *d_a = nullptr, *d_x = nullptr, *d_v = nullptr, *tile = nullptr;
};

template <class T>
Status check(const GaussianAttentionProblem<T>& p, bool backward, Workspace work) {
  const Size longest = longest_of(p.sequences);
  const Size most = p.key_sequences.empty() ? longest : longest_of(p.key_sequences);
  const Size landmarks = p.landmarks ? p.landmarks.extent[1] : 0;
  if (longest < 0 || most < 0 || p.key_dim < 1 || p.value_dim < 1 || p.heads < 1 || p.key_heads < 1 ||
      p.heads % p.key_heads != 0 || (!p.key_sequences.empty() && p.key_sequences.size() != p.sequences.size()))
    return Status::bad_shape;
  if (p.landmarks && (landmarks < 1 || p.landmarks.extent[0] < static_cast<Size>(p.sequences.size())))
    return Status::bad_shape;
  if (!(p.bandwidth >= 0) || (p.landmarks && !(p.ridge > 0))) return Status::out_of_domain;
  if (longest > 0 && (!p.q || (most > 0 && (!p.k || !p.v)))) return Status::missing_input;
  return pairs::check_workspace(
      work, workspace_bytes<T>(p.heads, p.key_heads, p.key_dim, p.value_dim, longest, most, landmarks, backward));
}

/// Sequence n as attention with the pairs in the past.
template <class T>
struct Exact {
  Exact(const GaussianAttentionProblem<T>& p, std::size_t n) : bandwidth(static_cast<T>(bandwidth_of(p))) {
    const Sequence& keys = keys_of(p, n);
    count = keys.end - keys.begin;
    attention.sequences = p.sequences.subspan(n, 1);
    attention.heads = p.heads, attention.key_heads = p.key_heads;
    attention.key_dim = p.key_dim, attention.value_dim = p.value_dim;
    attention.causal = false, attention.normalise = false;
    attention.bandwidth = {&bandwidth, {p.heads}, {0}};
    attention.q = p.q, attention.o = p.o;
    attention.past_k = rows(p.k, keys), attention.past_v = rows(p.v, keys), attention.past_count = &count;
  }
  Exact(const Exact&) = delete;
  Exact& operator=(const Exact&) = delete;

  template <class X>
  static View<X, 4> rows(View<X, 4> x, const Sequence& n) {
    if (!x) return x;
    x.data += n.row * x.stride[0] + n.begin * x.stride[1];
    x.extent[0] = 1, x.extent[1] = n.end - n.begin;
    return x;
  }

  T bandwidth;
  std::int64_t count;
  AttentionProblem<T> attention;
};

}  // namespace

template <class T>
std::size_t workspace_bytes(int heads, int key_heads, int key_dim, int value_dim, std::ptrdiff_t longest,
                            std::ptrdiff_t pairs, std::ptrdiff_t landmarks, bool backward) noexcept {
  if (landmarks == 0)
    return attention::workspace_bytes<T>(heads, key_heads, key_dim, value_dim, longest, pairs, 0, backward);
  static constexpr Simd<double> none{};
  Arena arena;
  Landmarks(none, key_dim, value_dim, landmarks, backward, arena);
  return arena.bytes();
}

template <class T>
Status forward(const GaussianAttentionProblem<T>& p, const Simd<T>& s, const Simd<double>& wide,
               Workspace work) noexcept {
  if (const Status status = check(p, false, work); status != Status::ok) return status;
  if (!p.o) return Status::ok;
  const FlushDenormals flush;
  Arena arena(work);
  for (std::size_t n = 0; !p.landmarks && n < p.sequences.size(); ++n)
    if (const Status status = attention::forward(Exact<T>(p, n).attention, s, work); status != Status::ok)
      return status;
  if (!p.landmarks) return Status::ok;
  Landmarks run(wide, p.key_dim, p.value_dim, p.landmarks.extent[1], false, arena);
  for (std::size_t n = 0; n < p.sequences.size(); ++n)
    for (int h = 0; h < p.heads; ++h)
      if (p.sequences[n].end > p.sequences[n].begin) run.forward(p, n, h);
  return Status::ok;
}

template <class T>
Status backward(const GaussianAttentionProblem<T>& p, const GaussianAttentionGradient<T>& d, const Simd<T>& s,
                const Simd<double>& wide, Workspace work) noexcept {
  if (const Status status = check(p, true, work); status != Status::ok) return status;
  if (!d.d_o) return Status::ok;
  const FlushDenormals flush;
  for (std::size_t n = 0; !p.landmarks && n < p.sequences.size(); ++n) {
    const Exact<T> exact(p, n);
    AttentionGradient<T> out;
    out.d_o = d.d_o, out.d_q = d.d_q;
    out.d_past_k = exact.rows(d.d_k, keys_of(p, n)), out.d_past_v = exact.rows(d.d_v, keys_of(p, n));
    if (const Status status = attention::backward(exact.attention, out, s, work); status != Status::ok) return status;
  }
  if (!p.landmarks) return Status::ok;
  Arena arena(work);
  Landmarks run(wide, p.key_dim, p.value_dim, p.landmarks.extent[1], true, arena);
  for (std::size_t n = 0; n < p.sequences.size(); ++n)
    for (int h = 0; h < p.heads; ++h)
      if (p.sequences[n].end > p.sequences[n].begin) run.backward(p, d, n, h);
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                                          \
  template std::size_t workspace_bytes<T>(int, int, int, int, std::ptrdiff_t, std::ptrdiff_t, std::ptrdiff_t,       \
                                          bool) noexcept;                                                           \
  template Status forward(const GaussianAttentionProblem<T>&, const Simd<T>&, const Simd<double>&,                  \
                          Workspace) noexcept;                                                                      \
  template Status backward(const GaussianAttentionProblem<T>&, const GaussianAttentionGradient<T>&, const Simd<T>&, \
                           const Simd<double>&, Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::gaussian_attention
