// The selective problem of diagonal.h: how tokens reach the kernels of selective_simd.h.
//
// Tokens go in blocks; rows that are not contiguous are copied for a block. Backward keeps the states [K,V] at the
// borders of segments (`chunk`, or sqrt(T) tokens); the states inside a segment are made again a panel of columns at a
// time, so that they take sqrt(T) K of a few columns and stay in the cache. With h = a h_old + k u and dh the gradient
// of h:  du = sum_n k dh ,  dk = sum_d u dh ,  dh_old = a dh ;
//   a = exp(step A):    dstep = sum_n dh h_old a A ,  dA = dh h_old a step
//   a = 2 exp(step A) - 1:   the same with a + 1 in place of a
//   a = 1 - k^2 step:   dstep = -sum_n dh h_old k^2 ,  dk -= 2 k sum_d dh h_old step
//
// The map of a segment (common/scan.h) is S -> A * S + B, every entry by itself: A = exp(A sum of step), or the product
// of the gates. Its gradients go  E <- a E ,  E += q do'  from the last token to the first: the same kernel on tokens in
// reverse order, whose write comes after the gate of the token behind it.
#include "families/elementwise/diagonal/selective.h"

#include <algorithm>
#include <cstddef>

#include "families/common/replay.h"
#include "families/common/scan.h"
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

  SelectiveRun(const Simd<T>& simd, const SelectiveSimd<T>& table, const Problem& problem, Size longest, int chunk,
               bool backward, Arena& arena)
      : s(simd), e(table), p(problem), K(p.key_dim), V(p.value_dim), ld_rates(V + 64 / static_cast<Size>(sizeof(T))) {
    const Size root = kept_spacing(longest, chunk);
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
    }
  }

  void begin(int h) {
    head = h, shared = h / (p.heads / p.key_heads);
    if (p.gate != SelectiveGate::longhorn) load_rates();
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

  /// A [K,V] of tokens [begin, end); total [V] is scratch.
  void factors(const Sequence& n, double* total, T* A) {
    std::fill_n(A, K * V, T(1));
    if (p.gate != SelectiveGate::exponential) return run_tokens(n.row, n.begin, n.end, false, false, A);
    std::fill_n(total, V, 0.0);
    for (Size t = n.begin; t < n.end; ++t)
      for (Size i = 0; i < V; ++i) total[i] += static_cast<double>(p.step(n.row, t, head, i));
    SelectiveTokens<T> x = tokens(n.row, n.begin, 1, false);
    for (Size i = 0; i < V; ++i) dt[i] = static_cast<T>(total[i]);
    x.step = dt;
    e.forward(x, false, A, nullptr, 0, work);
  }

  /// What the outputs of a segment give its start: E [K,V].
  void gradients_of_start(const Gradient& d, const Sequence& n, T* E) {
    std::fill_n(E, K * V, T(0));
    if (!d.d_o) return;
    for (Size t = n.end; t > n.begin; t -= std::min(block, t - n.begin)) {
      const Size count = std::min(block, t - n.begin);
      for (Size i = 0; i < count; ++i) {  // row i: the write of token t-1-i, the gate of the one behind it
        const Size write = t - 1 - i, behind = std::min(write + 1, n.end - 1);
        pack(s, p.q, n.row, write, 1, shared, p.key_dim, p.scale, q + i * K);
        pack(s, d.d_o, n.row, write, 1, head, p.value_dim, T(1), u + i * V);
        pack(s, p.step, n.row, behind, 1, head, p.value_dim, T(1), dt + i * V);
        pack(s, p.k, n.row, behind, 1, shared, p.key_dim, T(1), k + i * K);
      }
      SelectiveTokens<T> x = own_tokens(count);
      x.k = q, x.u = u, x.step = dt, x.gate = k;
      x.ldk = x.ld_gate = K, x.ldu = x.ld_step = V;
      e.forward(x, true, E, nullptr, 0, work);
    }
    run_tokens(n.row, n.begin, n.begin + 1, false, false, E);
  }

  /// The gradient of A goes to `d_rates` [K,V], if that is given.
  void backward(const Gradient& d, const Sequence& n, const T* initial, const T* d_final, T* d_initial,
                T* d_rates = nullptr) {
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
    if (!d.d_A || p.gate == SelectiveGate::longhorn || count == 0) return;
    if (d_rates) return s.axpy(size, T(1), d_A, d_rates);
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

  SelectiveTokens<T> own_tokens(Size count) const {
    SelectiveTokens<T> x;
    x.n = count, x.K = K, x.V = V, x.scale = p.scale;
    if (p.gate != SelectiveGate::longhorn) x.rates = rates, x.ld_rates = ld_rates, x.bounded = bounded;
    x.twice = p.gate == SelectiveGate::twice;
    return x;
  }
  SelectiveTokens<T> tokens(Size row, Size t, Size count, bool queries) {
    SelectiveTokens<T> x = own_tokens(count);
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
  int head = 0, shared = 0;
  bool bounded = false;
  T *rates, *q, *k, *u, *dt, *o, *work;
  T *d_A = nullptr, *d_state = nullptr, *d_q = nullptr, *d_k = nullptr, *d_u = nullptr, *d_dt = nullptr;
  T* borders = nullptr;
};

/// The engine of a scan (common/scan.h): a map is A [K,V] and B [K,V].
template <class T>
class SelectiveScan {
 public:
  using Number = T;
  using Problem = SelectiveProblem<T>;
  using Gradient = SelectiveGradient<T>;
  static constexpr bool large = false;
  const Size state, map, map_back;

  /// `longest`: tokens of a segment.
  SelectiveScan(const Simd<T>& simd, const SelectiveSimd<T>& table, const Problem& problem, Size longest,
                bool gradients, Arena& arena)
      : state(Size{problem.key_dim} * problem.value_dim),
        map(2 * state),
        map_back(map),
        s(simd),
        e(table),
        p(problem),
        length(longest),
        backward(gradients) {
    if (backward) d_rates = arena.take<T>(most_segments * state);
  }
  void begin(int h, const Gradient* gradient) {
    head = h;
    if (!gradient) return;
    d = *gradient;
    std::fill_n(d_rates, most_segments * state, T(0));
  }
  void sum(Size slots) {
    for (Size slot = 0; d.d_A && slot < slots; ++slot)
      for (Size r = 0; r < p.key_dim; ++r)
        for (Size i = 0; i < p.value_dim; ++i) d.d_A(head, r, i) += d_rates[slot * state + r * p.value_dim + i];
    std::fill_n(d_rates, slots * state, T(0));
  }

  class Worker {
   public:
    Worker(const SelectiveScan& engine, Arena& arena)
        : scan(engine),
          tokens(engine.s, engine.e, engine.p, engine.length, 0, engine.backward, arena),
          total(arena.take<double>(engine.p.value_dim)),
          spare(arena.take<T>(engine.state)) {}
    void run(const Sequence& n, T* S, bool outputs, bool) {
      tokens.begin(scan.head);
      tokens.run_tokens(n.row, n.begin, n.end, true, outputs, S);
    }
    void make(const Sequence& n, T* m, bool) {
      tokens.begin(scan.head);
      tokens.factors(n, total, m);
      std::fill_n(m + scan.state, scan.state, T(0));
      tokens.run_tokens(n.row, n.begin, n.end, true, false, m + scan.state);
    }
    void compose(T* m, const T* first) {
      for (Size i = 0; i < scan.state; ++i) {
        m[scan.state + i] += m[i] * first[scan.state + i];
        m[i] *= first[i];
      }
    }
    void apply(const T* m, const T* S, T* out) {
      for (Size i = 0; i < scan.state; ++i) out[i] = m[i] * S[i] + m[scan.state + i];
    }
    void back(const Sequence& n, Size slot, const T* start, T* dS) {
      tokens.begin(scan.head);
      std::fill_n(spare, scan.state, T(0));
      tokens.backward(scan.d, n, start, dS, spare, scan.d_rates + slot * scan.state);
      std::copy_n(spare, scan.state, dS);
    }
    void make_back(const Sequence& n, const T*, T* m) {
      tokens.begin(scan.head);
      tokens.factors(n, total, m);
      tokens.gradients_of_start(scan.d, n, m + scan.state);
    }
    void compose_back(T* m, const T* first) { compose(m, first); }
    void apply_back(const T* m, const T* dS, T* out) { apply(m, dS, out); }

   private:
    const SelectiveScan& scan;
    SelectiveRun<T> tokens;
    double* total;
    T* spare;
  };
  Worker worker(Arena& arena) const { return {*this, arena}; }

 private:
  const Simd<T>& s;
  const SelectiveSimd<T>& e;
  const Problem& p;
  Size length;
  bool backward;
  int head = 0;
  Gradient d{};
  T* d_rates = nullptr;
};

template <class T>
Size least(const SelectiveProblem<T>& p) {
  return least_segment(Size{p.key_dim} * (p.chosen_by ? p.chosen_by : p.value_dim));
}

template <class T>
Status check(const SelectiveProblem<T>& p, Form form, int chunk, Size longest, bool queries, bool backward,
             Workspace work) {
  if (p.key_dim < 1 || p.value_dim < 1 || p.heads < 1 || p.key_heads < 1 || p.heads % p.key_heads != 0)
    return Status::bad_shape;
  if (longest > 0 && (!p.k || !p.u || !p.step || (queries && !p.q))) return Status::missing_input;
  if (longest > 0 && p.gate != SelectiveGate::longhorn && !p.A) return Status::missing_input;
  if (form == Form::chunk || form == Form::parallel) return Status::not_supported;
  if (longest < 0) return Status::bad_shape;
  if (!p.sequences.empty() && !p.state) return Status::missing_input;
  const int workers = p.team.workers();
  if (!work.data || work.bytes < selective_bytes<T>(p.key_dim, p.value_dim, longest, form, chunk, backward, workers))
    return Status::small_workspace;
  return Status::ok;
}

}  // namespace

template <class T>
std::size_t selective_bytes(int key_dim, int value_dim, std::ptrdiff_t longest, Form form, int chunk, bool backward,
                            int workers) noexcept {
  static constexpr Simd<T> none{};
  static constexpr SelectiveSimd<T> no_table{};
  SelectiveProblem<T> p;
  p.key_dim = key_dim, p.value_dim = value_dim;
  longest = std::max<Size>(longest, 0);
  Arena arena;
  if (form == Form::scan)
    ScanOf<SelectiveScan<T>>(longest, chunk, least(p), backward, Team(workers, nullptr), arena, none, no_table, p);
  else SelectiveRun<T>(none, no_table, p, longest, chunk, backward, arena);
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
  // each(n, h, S) for every sequence and head
  const auto all = [&](auto&& begin, auto&& each) {
    for (int h = 0; h < p.heads; ++h) {
      begin(h);
      T* S = p.state + h * size;
      for (const Sequence& n : p.sequences) each(n, S), S += p.heads * size;
    }
  };
  if (form == Form::scan) {
    ScanOf<SelectiveScan<T>> run(longest, chunk, least(p), false, p.team, arena, s, selective_simd(s), p);
    all([&](int h) { run.engine.begin(h, nullptr); }, [&](const Sequence& n, T* S) { run.forward(n, S, true); });
    return Status::ok;
  }
  SelectiveRun<T> run(s, selective_simd(s), p, longest, chunk, false, arena);
  all([&](int h) { run.begin(h); },
      [&](const Sequence& n, T* S) { run.run_tokens(n.row, n.begin, n.end, true, true, S); });
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
  const auto all = [&](auto&& begin, auto&& each) {
    for (int h = 0; h < p.heads; ++h) {
      if (longest > 0) begin(h);
      Size at = h * size;
      for (const Sequence& n : p.sequences) {
        each(n, p.state + at, d.d_final ? d.d_final + at : nullptr, d.d_initial ? d.d_initial + at : nullptr);
        at += p.heads * size;
      }
    }
  };
  if (form == Form::scan) {
    const auto constant = [](const auto& view) { return view && view.stride[1] == 0; };
    const bool apart = !constant(d.d_q) && !constant(d.d_k) && !constant(d.d_u) && !constant(d.d_step);
    ScanOf<SelectiveScan<T>> run(longest, chunk, least(p), true, apart ? p.team : Team(), arena, s, selective_simd(s),
                                 p);
    all([&](int h) { run.engine.begin(h, &d); },
        [&](const Sequence& n, const T* initial, const T* d_final, T* d_initial) {
          copy_or_clear(d_final, size, run.dS);
          run.backward(n, initial, run.dS);
          if (d_initial) s.axpy(size, T(1), run.dS, d_initial);
        });
    return Status::ok;
  }
  SelectiveRun<T> run(s, selective_simd(s), p, longest, chunk, true, arena);
  all([&](int h) { run.begin(h); }, [&](const Sequence& n, const T* initial, const T* d_final,
                                        T* d_initial) { run.backward(d, n, initial, d_final, d_initial); });
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                                     \
  template std::size_t selective_bytes<T>(int, int, std::ptrdiff_t, Form, int, bool, int) noexcept;            \
  template Status forward(const SelectiveProblem<T>&, Form, int, const Simd<T>&, Workspace) noexcept;          \
  template Status backward(const SelectiveProblem<T>&, const SelectiveGradient<T>&, Form, int, const Simd<T>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::elementwise
