// The selective problem of diagonal.h: how tokens reach the kernels of selective_simd.h.
//
// Tokens go in blocks; rows that are not contiguous are copied for a block. Backward keeps the states [K,V] at the
// borders of segments (`chunk`, or sqrt(T) tokens); the states inside a segment are made again a panel of columns at a
// time, so that they take sqrt(T) K of a few columns and stay in the cache. With h = a h_old + k u and dh the gradient
// of h:  du = sum_n k dh ,  dk = sum_d u dh ,  dh_old = a dh ;
//   a = exp(step A):    dstep = sum_n dh h_old a A ,  dA = dh h_old a step
//   a = 1 - k^2 step:   dstep = -sum_n dh h_old k^2 ,  dk -= 2 k sum_d dh h_old step
#include "families/elementwise/diagonal/selective.h"

#include <algorithm>
#include <cstddef>

#include "families/common/replay.h"
#include "families/common/scratch.h"
#include "families/elementwise/diagonal/diagonal.h"
#include "families/elementwise/diagonal/selective_simd.h"
#include "simd/denormals.h"

namespace ttr::families::elementwise {
namespace {

using Size = std::ptrdiff_t;

constexpr Size block_tokens = 32;  // a block's rows of u, step and o at V = 512 fit half of a small L2

/// Scratch of one call and the ways of one head through it.
template <class T>
class SelectiveRun {
 public:
  using Problem = SelectiveProblem<T>;
  using Gradient = SelectiveGradient<T>;

  SelectiveRun(const Simd<T>& simd, const SelectiveSimd<T>& table, const Problem& problem, Size longest, Form form,
               int chunk, bool backward, Arena& arena)
      : s(simd),
        e(table),
        p(problem),
        K(p.key_dim),
        V(p.value_dim),
        ld_rates(V + 64 / static_cast<Size>(sizeof(T))),
        segment_wish(chunk) {
    const Size root = scan_segment(longest, chunk);
    segment = backward ? root : 0;
    block = std::min(std::max<Size>(longest, 1), std::max(block_tokens, segment));
    rates = arena.take<T>(K * ld_rates);
    q = arena.take<T>(block * K), k = arena.take<T>(block * K);
    u = arena.take<T>(block * V), dt = arena.take<T>(block * V), o = arena.take<T>(block * V);
    work =
        arena.take<T>(backward ? SelectiveSimd<T>::backward_scratch(block, K) : SelectiveSimd<T>::forward_scratch(K));
    if (backward) {
      d_A = arena.take<T>(K * V), d_state = arena.take<T>(K * V);
      d_q = arena.take<T>(block * K), d_k = arena.take<T>(block * K);
      d_u = arena.take<T>(block * V), d_dt = arena.take<T>(block * V);
      borders = arena.take<T>(((longest + segment - 1) / segment + 1) * K * V);
    } else if (form == Form::scan) {
      const Size count = scan_segments(longest, chunk);
      map_A = arena.take<T>(count * K * V), map_B = arena.take<T>(count * K * V);
    }
  }

  void begin(int h) {
    head = h, shared = h / (p.heads / p.key_heads);
    if (p.gate == SelectiveGate::exponential) load_rates();
  }

  /// Tokens [begin, end) through S.
  void run_tokens(Size row, Size begin, Size end, bool write, bool outputs, T* S) {
    outputs = outputs && p.o;
    const bool direct = outputs && p.o.stride[3] == 1;
    for (Size t = begin; t < end; t += block) {
      const Size count = std::min(block, end - t);
      const SelectiveTokens<T> x = tokens(row, t, count, outputs);
      T* const to = !outputs ? nullptr : direct ? &p.o(row, t, head, 0) : o;
      e.forward(x, write, S, to, direct ? p.o.stride[1] : V, work);
      if (outputs && !direct) unpack(o, row, t, count, head, p.value_dim, p.o);
    }
  }

  /// Every segment as a map S -> A S + B, the maps in order, then every segment from its own start.
  void scan(const Sequence& n, T* S) {
    const Size length = scan_segment(n.end - n.begin, segment_wish), size = K * V;
    const Size count = (n.end - n.begin + length - 1) / length;
    const auto each = [&](Size i, bool write, bool outputs, T* state) {
      const Size first = n.begin + i * length;
      run_tokens(n.row, first, std::min(first + length, n.end), write, outputs, state);
    };
    for (Size i = 0; i < count; ++i) {
      std::fill_n(map_A + i * size, size, T(1)), std::fill_n(map_B + i * size, size, T(0));
      each(i, false, false, map_A + i * size);
      each(i, true, false, map_B + i * size);
    }
    for (Size i = 0; i < count; ++i)  // the start of segment i is left in A
      for (Size j = i * size; j < (i + 1) * size; ++j) {
        T& state = S[j - i * size];
        const T start = state;
        state = map_A[j] * start + map_B[j];
        map_A[j] = start;
      }
    for (Size i = 0; i < count; ++i) each(i, true, true, map_A + i * size);
  }

  void backward(const Gradient& d, const Sequence& n, const T* initial, const T* d_final, T* d_initial) {
    const Size size = K * V, count = (n.end - n.begin + segment - 1) / segment;
    const auto first = [&](Size i) { return n.begin + i * segment; };
    std::copy_n(initial, size, borders);
    for (Size i = 0; i + 1 < count; ++i) {
      std::copy_n(borders + i * size, size, borders + (i + 1) * size);
      run_tokens(n.row, first(i), first(i + 1), true, false, borders + (i + 1) * size);
    }
    copy_or_clear(d_final, size, d_state);
    std::fill_n(d_A, size, T(0));
    for (Size i = count; i-- > 0;)
      segment_back(d, n.row, first(i), std::min(first(i + 1), n.end), borders + i * size);
    if (d_initial) s.axpy(size, T(1), d_state, d_initial);
    if (!d.d_A || p.gate != SelectiveGate::exponential || count == 0) return;
    for (Size r = 0; r < K; ++r)
      for (Size i = 0; i < V; ++i) d.d_A(head, r, i) += d_A[r * V + i];
  }

 private:
  void load_rates() {
    const T* const from = p.A.data + head * p.A.stride[0];
    const Size down = p.A.stride[1], along = p.A.stride[2];
    const bool rows = along == 1;
    if (down == 1 && along >= K) s.transpose(V, K, from, along, rates, ld_rates);  // [V,K], as Mamba-1 has it
    else if (!rows)
      for (Size n = 0; n < K; ++n)
        for (Size i = 0; i < V; ++i) rates[n * ld_rates + i] = from[n * down + i * along];
    bounded = e.rates(K, V, rows ? from : rates, rows ? down : ld_rates, rates, ld_rates);
  }

  SelectiveTokens<T> tokens(Size row, Size t, Size count, bool queries) {
    SelectiveTokens<T> x;
    x.n = count, x.K = K, x.V = V, x.scale = p.scale;
    if (p.gate == SelectiveGate::exponential) x.rates = rates, x.ld_rates = ld_rates, x.bounded = bounded;
    x.k = contiguous(s, p.k, row, t, count, shared, p.key_dim, k, &x.ldk);
    x.u = contiguous(s, p.u, row, t, count, head, p.value_dim, u, &x.ldu);
    x.step = contiguous(s, p.step, row, t, count, head, p.value_dim, dt, &x.ld_step);
    if (queries) x.q = contiguous(s, p.q, row, t, count, shared, p.key_dim, q, &x.ldq);
    return x;
  }

  void segment_back(const Gradient& d, Size row, Size begin, Size end, const T* start) {
    const Size count = end - begin;
    const SelectiveTokens<T> x = tokens(row, begin, count, static_cast<bool>(d.d_o));
    SelectiveGradients<T> g;
    if (d.d_o) g.d_o = contiguous(s, d.d_o, row, begin, count, head, p.value_dim, o, &g.ld_o);
    g.d_q = d_q, g.d_k = d_k, g.d_A = x.rates ? d_A : nullptr;
    const bool u_packed = d.d_u && d.d_u.stride[3] != 1, step_packed = d.d_step && d.d_step.stride[3] != 1;
    if (d.d_u) g.d_u = u_packed ? d_u : &d.d_u(row, begin, head, 0), g.ldu = u_packed ? V : d.d_u.stride[1];
    if (d.d_step)
      g.d_step = step_packed ? d_dt : &d.d_step(row, begin, head, 0),
      g.ld_step = step_packed ? V : d.d_step.stride[1];
    if (u_packed) std::fill_n(d_u, count * V, T(0));
    if (step_packed) std::fill_n(d_dt, count * V, T(0));
    e.backward(x, g, start, d_state, work);
    if (d.d_o && d.d_q) add_rows(s, p.scale, d_q, row, begin, count, shared, p.key_dim, d.d_q);
    if (d.d_k) add_rows(s, T(1), d_k, row, begin, count, shared, p.key_dim, d.d_k);
    if (u_packed) add_rows(s, T(1), d_u, row, begin, count, head, p.value_dim, d.d_u);
    if (step_packed) add_rows(s, T(1), d_dt, row, begin, count, head, p.value_dim, d.d_step);
  }

  const Simd<T>& s;
  const SelectiveSimd<T>& e;
  const Problem& p;
  Size K, V, ld_rates, segment, block;  // rows of rates are not a power of two apart: they would share a set of L1
  int segment_wish, head = 0, shared = 0;
  bool bounded = false;
  T *rates, *q, *k, *u, *dt, *o, *work;
  T *d_A = nullptr, *d_state = nullptr, *d_q = nullptr, *d_k = nullptr, *d_u = nullptr, *d_dt = nullptr;
  T *borders = nullptr, *map_A = nullptr, *map_B = nullptr;
};

template <class T>
Status check(const SelectiveProblem<T>& p, Form form, int chunk, Size longest, bool queries, bool backward,
             Workspace work) {
  if (p.key_dim < 1 || p.value_dim < 1 || p.heads < 1 || p.key_heads < 1 || p.heads % p.key_heads != 0)
    return Status::bad_shape;
  if (longest > 0 && (!p.k || !p.u || !p.step || (queries && !p.q))) return Status::missing_input;
  if (longest > 0 && p.gate == SelectiveGate::exponential && !p.A) return Status::missing_input;
  if (form == Form::chunk || form == Form::parallel) return Status::not_supported;
  if (longest < 0) return Status::bad_shape;
  if (!p.sequences.empty() && !p.state) return Status::missing_input;
  if (!work.data || work.bytes < selective_bytes<T>(p.key_dim, p.value_dim, longest, form, chunk, backward))
    return Status::small_workspace;
  return Status::ok;
}

}  // namespace

template <class T>
std::size_t selective_bytes(int key_dim, int value_dim, std::ptrdiff_t longest, Form form, int chunk,
                            bool backward) noexcept {
  static constexpr Simd<T> none{};
  static constexpr SelectiveSimd<T> no_table{};
  SelectiveProblem<T> p;
  p.key_dim = key_dim, p.value_dim = value_dim;
  Arena arena;
  SelectiveRun<T> run(none, no_table, p, std::max<Size>(longest, 0), form, chunk, backward, arena);
  return arena.bytes();
}

template <class T>
Status forward(const SelectiveProblem<T>& p, Form form, int chunk, const Simd<T>& s, Workspace work) noexcept {
  const Size longest = longest_of(p.sequences), size = Size{p.key_dim} * p.value_dim;
  const bool queries = static_cast<bool>(p.o);
  if (const Status status = check(p, form, chunk, longest, queries, false, work); status != Status::ok) return status;
  if (longest == 0) return Status::ok;
  const FlushDenormals flush;
  Arena arena(work);
  SelectiveRun<T> run(s, selective_simd(s), p, longest, form, chunk, false, arena);
  for (int h = 0; h < p.heads; ++h) {
    run.begin(h);
    T* S = p.state + h * size;
    for (const Sequence& n : p.sequences) {
      if (form == Form::scan) run.scan(n, S);
      else run.run_tokens(n.row, n.begin, n.end, true, true, S);
      S += p.heads * size;
    }
  }
  return Status::ok;
}

template <class T>
Status backward(const SelectiveProblem<T>& p, const SelectiveGradient<T>& d, Form form, int chunk, const Simd<T>& s,
                Workspace work) noexcept {
  const Size longest = longest_of(p.sequences), size = Size{p.key_dim} * p.value_dim;
  const bool queries = static_cast<bool>(d.d_o);
  if (const Status status = check(p, form, chunk, longest, queries, true, work); status != Status::ok) return status;
  const FlushDenormals flush;
  Arena arena(work);
  SelectiveRun<T> run(s, selective_simd(s), p, longest, form, chunk, true, arena);
  for (int h = 0; h < p.heads; ++h) {
    if (longest > 0) run.begin(h);
    Size at = h * size;
    for (const Sequence& n : p.sequences) {
      run.backward(d, n, p.state + at, d.d_final ? d.d_final + at : nullptr,
                   d.d_initial ? d.d_initial + at : nullptr);
      at += p.heads * size;
    }
  }
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                                     \
  template std::size_t selective_bytes<T>(int, int, std::ptrdiff_t, Form, int, bool) noexcept;                 \
  template Status forward(const SelectiveProblem<T>&, Form, int, const Simd<T>&, Workspace) noexcept;          \
  template Status backward(const SelectiveProblem<T>&, const SelectiveGradient<T>&, Form, int, const Simd<T>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::elementwise
