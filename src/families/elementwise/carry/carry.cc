// log_share with d = x - z_old:  p = sigmoid(d) is the share, -softplus(d) = log(1 - p) the log decay, and
// z = max(x, z_old) + log1p(e^{-|d|}), in which nothing overflows or cancels. With a and b the gradients of the two
// results, q = 1 - p and dz that of z:
//
//   dx = p (a q - b + dz) ;  dz_old = q dz - p (a q - b)
#include "families/elementwise/carry/carry.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "families/common/replay.h"
#include "families/common/scratch.h"
#include "simd/denormals.h"

namespace ttr::families::carry {
namespace {

using Size = std::ptrdiff_t;

template <class T>
T* row_of(const View<T, 4>& x, Size row, Size t, int head) {
  return x.data + row * x.stride[0] + t * x.stride[1] + head * x.stride[2];
}

template <class T>
void delay(const CarryProblem<T>& p, const Sequence& n, int head, T* state) {
  for (Size t = n.begin; t < n.end && p.y; ++t) {
    T* const y = row_of(p.y, n.row, t, head);
    const T* const old = t == n.begin ? state : row_of(p.x, n.row, t - 1, head);
    const Size stride = t == n.begin ? 1 : p.x.stride[3];
    for (Size i = 0; i < p.dim; ++i) y[i * p.y.stride[3]] = old[i * stride];
  }
  if (n.end == n.begin) return;
  const T* const last = row_of(p.x, n.row, n.end - 1, head);
  for (Size i = 0; i < p.dim; ++i) state[i] = last[i * p.x.stride[3]];
}

template <class T>
void delay_back(const CarryProblem<T>& p, const CarryGradient<T>& d, const Sequence& n, int head, const T* d_final,
                T* d_initial) {
  for (Size t = n.begin; t < n.end; ++t) {
    T* const to = t > n.begin ? (d.d_x ? row_of(d.d_x, n.row, t - 1, head) : nullptr) : d_initial;
    if (!to || !d.d_y) continue;
    const T* const g = row_of(d.d_y, n.row, t, head);
    const Size stride = t > n.begin ? d.d_x.stride[3] : 1;
    for (Size i = 0; i < p.dim; ++i) to[i * stride] += g[i * d.d_y.stride[3]];
  }
  if (d_final && d.d_x) add_strided<T>(p.dim, 1, d_final, row_of(d.d_x, n.row, n.end - 1, head), d.d_x.stride[3]);
}

constexpr double two_pi = 0x1.921fb54442d18p+2;
constexpr double two_pi_head = 0x1.921fb544p+2, two_pi_tail = 0x1.0b4611a626331p-32;  // head: 33 bits

/// x - 2 pi k. A product of the head with k < 2^20 is exact.
double less_turns(double x, double k) { return (x - k * two_pi_head) - k * two_pi_tail; }

template <class T>
T turned(T from, T by) {
  double x = by;
  if (std::abs(x) > 4e6) x = std::fmod(x, two_pi);
  // Whole turns of x go first, so that a long x does not cost the digits of the sum; |x| < pi stays as it is.
  x = from + less_turns(x, std::floor(x / two_pi + 0.5));
  x = less_turns(x, std::floor(x / two_pi));
  if (x < 0) x += two_pi;  // x / two_pi was rounded up to a whole number
  const T y = static_cast<T>(x);
  return static_cast<double>(y) >= two_pi ? T(0) : y;
}

template <class T>
void phase(const CarryProblem<T>& p, const Sequence& n, int head, T* state) {
  for (Size t = n.begin; t < n.end; ++t) {
    const T* const x = row_of(p.x, n.row, t, head);
    for (Size i = 0; i < p.dim; ++i) state[i] = turned(state[i], x[i * p.x.stride[3]]);
    if (!p.y) continue;
    T* const y = row_of(p.y, n.row, t, head);
    for (Size i = 0; i < p.dim; ++i) y[i * p.y.stride[3]] = state[i];
  }
}

template <class T>
void phase_back(const CarryProblem<T>& p, const CarryGradient<T>& d, const Sequence& n, int head, const T* d_final,
                T* d_initial) {
  constexpr Size block = 32;  // channels at once, so that the sums need no workspace
  double sum[block];
  for (Size first = 0; first < p.dim; first += block) {
    const Size count = std::min(block, p.dim - first);
    for (Size i = 0; i < count; ++i) sum[i] = d_final ? d_final[first + i] : T(0);
    for (Size t = n.end; t-- > n.begin;) {
      if (d.d_y) {
        const T* const g = row_of(d.d_y, n.row, t, head) + first * d.d_y.stride[3];
        for (Size i = 0; i < count; ++i) sum[i] += g[i * d.d_y.stride[3]];
      }
      if (d.d_x) {
        T* const to = row_of(d.d_x, n.row, t, head) + first * d.d_x.stride[3];
        for (Size i = 0; i < count; ++i) to[i * d.d_x.stride[3]] += static_cast<T>(sum[i]);
      }
    }
    for (Size i = 0; i < count && d_initial; ++i) d_initial[first + i] += static_cast<T>(sum[i]);
  }
}

template <class T>
void sign(const CarryProblem<T>& p, const Sequence& n, int head, T* state) {
  for (Size t = n.begin; t < n.end; ++t) {
    const T* const x = row_of(p.x, n.row, t, head);
    for (Size i = 0; i < p.dim; ++i)
      if (x[i * p.x.stride[3]] < T(0)) state[i] = state[i] == T(0) ? T(1) : T(0);
    if (!p.y) continue;
    T* const y = row_of(p.y, n.row, t, head);
    for (Size i = 0; i < p.dim; ++i) y[i * p.y.stride[3]] = state[i] == T(0) ? T(1) : T(-1);
  }
}

template <class T>
struct Share {
  T p, q, log_q;
};

/// One token of one channel.
template <class T>
Share<T> share(T x, T& z, T& seen) {
  if (seen == T(0)) {
    if (x == -std::numeric_limits<T>::infinity()) return {0, 1, 0};
    z = x, seen = 1;
    return {T(1) + (x - x), 0, 0};  // NaN stays NaN
  }
  const double rest = static_cast<double>(seen) - 1, size = std::abs(static_cast<double>(z));
  const double old = rest == 0 || std::abs(rest) > std::numeric_limits<T>::epsilon() * size ? z : z + rest;
  const double d = x - old;
  const T e = std::exp(static_cast<T>(-std::abs(d))), rise = std::log1p(e), large = 1 / (1 + e), small = e * large;
  const double now = (d > 0 ? static_cast<double>(x) : old) + rise;
  z = static_cast<T>(now);
  const double lost = now - z;
  seen = std::abs(lost) <= 0.5 ? static_cast<T>(1 + lost) : T(1);  // never 0
  if (d > 0) return {large, small, -(static_cast<T>(d) + rise)};
  return {small, large, -rise};
}

/// state: z [D], seen [D]
template <class T>
void log_share(const CarryProblem<T>& p, Size row, Size t, int head, T* z, T* seen, bool outputs) {
  const T* const x = row_of(p.x, row, t, head);
  T* const y = outputs ? row_of(p.y, row, t, head) : nullptr;
  for (Size i = 0; i < p.dim; ++i) {
    const Share<T> s = share(x[i * p.x.stride[3]], z[i], seen[i]);
    if (outputs) y[i * p.y.stride[3]] = s.p, y[(p.dim + i) * p.y.stride[3]] = s.log_q;
  }
}

/// `old` is the state before the token; dz goes from after it to before it.
template <class T>
void log_share_back(const CarryProblem<T>& p, const CarryGradient<T>& d, Size row, Size t, int head, const T* old_z,
                    const T* old_seen, double* dz) {
  const T* const x = row_of(p.x, row, t, head);
  const T* const g = d.d_y ? row_of(d.d_y, row, t, head) : nullptr;
  T* const to = d.d_x ? row_of(d.d_x, row, t, head) : nullptr;
  for (Size i = 0; i < p.dim; ++i) {
    T z = old_z[i], seen = old_seen[i];
    const Share<T> s = share(x[i * p.x.stride[3]], z, seen);
    double dx = 0;
    if (old_seen[i] != T(0)) {
      const double result = g ? g[i * d.d_y.stride[3]] * s.q - g[(p.dim + i) * d.d_y.stride[3]] : T(0);
      dx = s.p * (result + dz[i]);
      dz[i] = s.q * dz[i] - s.p * result;
    } else if (seen != T(0)) {  // z = x
      dx = dz[i], dz[i] = 0;
    }
    if (to) to[i * d.d_x.stride[3]] += static_cast<T>(dx);
  }
}

/// Scratch of log_share_back for one head.
template <class T>
struct ShareScratch {
  ShareScratch(int dim, Size longest, Arena& arena)
      : dz(arena.take<double>(dim)), replay({dim, dim}, longest, 0, arena) {}
  double* dz;
  Replay<T, 2> replay;
};

template <class T>
void log_share_back(const CarryProblem<T>& p, const CarryGradient<T>& d, const Sequence& n, int head, const T* state,
                    const T* d_final, T* d_initial, ShareScratch<T>& scratch) {
  for (Size i = 0; i < p.dim; ++i) scratch.dz[i] = d_final ? d_final[i] : T(0);
  scratch.replay.run(
      n.end - n.begin, {state, state + p.dim},
      [&](Size t, const Parts<T, 2>& now) { log_share(p, n.row, n.begin + t, head, now[0], now[1], false); },
      [&](Size t, const Parts<const T, 2>& old, const Parts<const T, 2>&) {
        log_share_back(p, d, n.row, n.begin + t, head, old[0], old[1], scratch.dz);
      });
  for (Size i = 0; i < p.dim && d_initial; ++i) d_initial[i] += static_cast<T>(scratch.dz[i]);
}

template <class T>
Status check(const CarryProblem<T>& p, Size longest) {
  if (longest < 0) return Status::bad_shape;
  if (p.kind != Carry::position && (p.dim < 1 || p.heads < 1)) return Status::bad_shape;
  if (!p.sequences.empty() && !p.state) return Status::missing_input;
  if (p.kind != Carry::position) return longest > 0 && !p.x ? Status::missing_input : Status::ok;
  constexpr double most = 2 / static_cast<double>(std::numeric_limits<T>::epsilon());  // integers that T holds
  const T* count = p.state;
  for (const Sequence& n : p.sequences) {
    const auto seen = static_cast<double>(*count++), end = static_cast<double>(n.end);
    if (seen + static_cast<double>(n.end - n.begin) > most || end > most) return Status::state_full;
  }
  return Status::ok;
}

template <class T>
void position_back(const CarryGradient<T>& d, const Sequence& n, const T* d_final, T* d_initial) {
  if (!d_initial) return;
  double sum = d_final ? *d_final : T(0);
  for (Size t = n.begin; t < n.end && d.d_y; ++t) sum += d.d_y(n.row, t, 0, 0);
  *d_initial += static_cast<T>(sum);
}

}  // namespace

std::ptrdiff_t state_size(Carry kind, int heads, int dim) noexcept {
  return kind == Carry::position ? 1 : Size{heads} * width(kind, dim);
}

int width(Carry kind, int dim) noexcept {
  if (kind == Carry::position) return 1;
  return kind == Carry::log_share ? 2 * dim : dim;
}

template <class T>
std::size_t workspace_bytes(Carry kind, int dim, std::ptrdiff_t longest) noexcept {
  if (kind != Carry::log_share) return 0;
  Arena arena;
  ShareScratch<T> scratch(dim, longest, arena);
  return arena.bytes();
}

template <class T>
Status forward(const CarryProblem<T>& p) noexcept {
  if (const Status status = check(p, longest_of(p.sequences)); status != Status::ok) return status;
  const FlushDenormals flush;
  T* state = p.state;
  for (const Sequence& n : p.sequences) {
    if (p.kind == Carry::position) {
      const T first = *state - static_cast<T>(n.begin);
      for (Size t = n.begin; t < n.end && p.y; ++t) p.y(n.row, t, 0, 0) = first;
      *state++ += static_cast<T>(n.end - n.begin);
      continue;
    }
    for (int h = 0; h < p.heads; ++h, state += width(p.kind, p.dim)) {
      if (p.kind == Carry::delay) delay(p, n, h, state);
      else if (p.kind == Carry::phase) phase(p, n, h, state);
      else if (p.kind == Carry::sign) sign(p, n, h, state);
      else
        for (Size t = n.begin; t < n.end; ++t)
          log_share(p, n.row, t, h, state, state + p.dim, static_cast<bool>(p.y));
    }
  }
  return Status::ok;
}

template <class T>
Status backward(const CarryProblem<T>& p, const CarryGradient<T>& d, Workspace work) noexcept {
  const Size longest = longest_of(p.sequences);
  if (const Status status = check(p, longest); status != Status::ok) return status;
  const bool scratched = p.kind == Carry::log_share;
  if (scratched && (!work.data || work.bytes < workspace_bytes<T>(p.kind, p.dim, longest)))
    return Status::small_workspace;
  const FlushDenormals flush;
  const Size size = state_size(p.kind, 1, p.dim);
  Size at = 0;
  for (const Sequence& n : p.sequences)
    for (int h = 0; h < (p.kind == Carry::position ? 1 : p.heads); ++h, at += size) {
      const T* const d_final = d.d_final ? d.d_final + at : nullptr;
      T* const d_initial = d.d_initial ? d.d_initial + at : nullptr;
      if (n.begin == n.end) {
        if (d_final && d_initial) add_strided<T>(size, 1, d_final, d_initial, 1);
        continue;
      }
      switch (p.kind) {
        case Carry::delay:
          delay_back(p, d, n, h, d_final, d_initial);
          break;
        case Carry::phase:
          phase_back(p, d, n, h, d_final, d_initial);
          break;
        case Carry::sign:
          break;
        case Carry::position:
          position_back(d, n, d_final, d_initial);
          break;
        case Carry::log_share: {
          Arena arena(work);
          ShareScratch<T> scratch(p.dim, n.end - n.begin, arena);
          log_share_back(p, d, n, h, p.state + at, d_final, d_initial, scratch);
        }
      }
    }
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                      \
  template std::size_t workspace_bytes<T>(Carry, int, std::ptrdiff_t) noexcept; \
  template Status forward(const CarryProblem<T>&) noexcept;                     \
  template Status backward(const CarryProblem<T>&, const CarryGradient<T>&, Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::carry
