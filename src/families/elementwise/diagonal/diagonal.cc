// Backward of one token, with h = a * h_old + w and dh the gradient of h (complex numbers as pairs):
//
//   dw = dh ;  dg = Re(conj(a h_old) dh) ;  dtheta = Im(conj(a h_old) dh) ;  dh_old = conj(a) dh
// The tokens of the rotating problem are those of rotating.h; the selective one has a file of its own, selective.cc.
#include "families/elementwise/diagonal/diagonal.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "families/common/replay.h"
#include "families/common/scan.h"
#include "families/elementwise/diagonal/rotating.h"
#include "families/elementwise/diagonal/selective.h"
#include "families/elementwise/scan_simd.h"
#include "families/elementwise/shared_gradient.h"
#include "simd/denormals.h"

namespace ttr::families::elementwise {
namespace {

template <class T>
class VectorCell {
 public:
  using Problem = ChannelProblem<T>;
  using Gradient = ChannelGradient<T>;

  VectorCell(const Simd<T>& simd, const ScanSimd<T>& scan, const Problem& problem, bool, Arena& arena)
      : s(simd), e(scan), p(problem), D(p.dim) {
    complex = p.state_im != nullptr;
    a_re = arena.take<T>(D), a_im = arena.take<T>(D), spare = arena.take<T>(D), spare_im = arena.take<T>(D);
    square = arena.take<T>(2 * D), spare_square = arena.take<T>(2 * D);
  }
  static std::array<Size, 2> sizes(const Problem& p) { return {p.dim, p.state_im ? p.dim : 0}; }
  static int heads(const Problem&) { return 1; }
  static Size least(const Problem& p) { return least_segment(p.chosen_by ? p.chosen_by : p.dim); }
  static Size width_of_gates(const Problem& p) { return p.dim; }
  static Size factors_of(const Problem& p) { return p.state_im ? 2 * Size{p.dim} : p.dim; }
  static Status check(const Problem& p, Size longest, bool) {
    if (p.dim < 1) return Status::bad_shape;
    if (longest > 0 && !p.x) return Status::missing_input;
    if (!p.sequences.empty() && !p.state_im && (p.theta || p.x_im || p.o_im)) return Status::missing_input;
    return Status::ok;
  }
  void begin(int, const Sequence&) { loaded = false; }

  /// `made`: map_step() has left the factors of this token in its output.
  void step(Size row, Size t, int, const Pair<T>& h, bool outputs, bool made = false) {
    if (made && leaves_factors(outputs)) advance(row, t, row_of(p.o, row, t), h);
    else load(row, t, a_re), advance(row, t, a_re, h);
    if (!outputs) return;
    if (p.o) store(h[0], row_of(p.o, row, t), p.o.stride[2]);
    if (p.o_im) store(h[1], row_of(p.o_im, row, t), p.o_im.stride[2]);
  }

  // The map of a segment, h -> A h + B: A [D] or [2, D] as h is.
  static void identity(const Problem& p, T* A) {
    std::fill_n(A, p.dim, T(1)), std::fill_n(A + p.dim, factors_of(p) - p.dim, T(0));
  }
  void map_step(Size row, Size t, int, T* A, const Pair<T>& B, bool outputs) {
    T* const a = leaves_factors(outputs) ? row_of(p.o, row, t) : a_re;
    load(row, t, a);
    if (!constant()) multiply(a, a_im, A);
    advance(row, t, a, B);
  }
  /// After the last map_step() of `tokens` tokens: gates that are the same for all of them have a power.
  void end_map(Size tokens, T* A) {
    if (!constant() || tokens == 0) return;
    std::copy_n(a_re, D, square), std::copy_n(a_im, complex ? D : 0, square + D);
    for (; tokens > 0; tokens /= 2) {
      if (tokens % 2 == 1) multiply(square, square + D, A);
      std::copy_n(square, complex ? 2 * D : D, spare_square);
      multiply(spare_square, spare_square + D, square);
    }
  }
  void map_step_back(const Gradient& d, Size row, Size t, int, T* A, const Pair<T>& B) {
    load(row, t, a_re);
    add_d_outputs(d, row, t, B);
    if (complex) s.scale(D, T(-1), a_im, spare_im), e.turn(D, a_re, spare_im, B[0], B[1]);
    else e.decay(D, a_re, B[0]);
    multiply(a_re, spare_im, A);
  }
  void compose(const T* first, T* A) { multiply(first, first + D, A); }
  void add_mapped(const T* A, const Pair<const T>& h, const Pair<T>& out) {
    if (!complex) return s.mul_add(D, A, h[0], out[0]);
    std::copy_n(h[0], D, spare), std::copy_n(h[1], D, spare_im);
    e.turn(D, A, A + D, spare, spare_im);
    s.axpy(D, T(1), spare, out[0]), s.axpy(D, T(1), spare_im, out[1]);
  }

  void back(const Gradient& d, Size row, Size t, int, const ConstPair<T>& old, const ConstPair<T>&,
            const Pair<T>& dh) {
    load(row, t, a_re);
    add_d_outputs(d, row, t, dh);
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
  static bool fixed(const View<const T, 3>& x) { return !x || (x.stride[0] == 0 && x.stride[1] == 0); }
  bool constant() const { return fixed(p.g) && fixed(p.theta); }
  // An exponential is most of the work of a real channel, and its output has room for it until it is made.
  bool leaves_factors(bool outputs) const { return outputs && !complex && p.o && p.o.stride[2] == 1 && !fixed(p.g); }
  // The factors of a token: the real part, or all of it, to `a`.
  void load(Size row, Size t, T* a) {
    if (loaded && constant()) return;
    factors(s, e, D, p.g ? row_of(p.g, row, t) : nullptr, p.g.stride[2], p.theta ? row_of(p.theta, row, t) : nullptr,
            p.theta.stride[2], a, complex ? a_im : nullptr);
    loaded = true;
  }
  // h <- a h + x
  void advance(Size row, Size t, const T* a, const Pair<T>& h) {
    const T* const x = contiguous(row_of(p.x, row, t), p.x.stride[2], D, spare);
    if (!complex) return e.decay_add(D, a, x, h[0]);
    e.turn(D, a, a_im, h[0], h[1]);
    s.axpy(D, T(1), x, h[0]);
    if (p.x_im) s.axpy(D, T(1), contiguous(row_of(p.x_im, row, t), p.x_im.stride[2], D, spare), h[1]);
  }
  void add_d_outputs(const Gradient& d, Size row, Size t, const Pair<T>& dh) {
    if (d.d_o) s.axpy(D, T(1), contiguous(row_of(d.d_o, row, t), d.d_o.stride[2], D, spare), dh[0]);
    if (d.d_o_im && complex)
      s.axpy(D, T(1), contiguous(row_of(d.d_o_im, row, t), d.d_o_im.stride[2], D, spare), dh[1]);
  }
  void multiply(const T* re, const T* im, T* A) {
    if (complex) e.turn(D, re, im, A, A + D);
    else e.decay(D, re, A);
  }
  void store(const T* from, T* to, Size stride) const {
    for (Size i = 0; i < D; ++i) to[i * stride] = from[i];
  }

  const Simd<T>& s;
  const ScanSimd<T>& e;
  const Problem& p;
  Size D;
  bool complex, loaded = false;
  T *a_re, *a_im, *spare, *spare_im, *square, *spare_square;
};

template <class Problem>
auto* imaginary(const Problem& p) {
  if constexpr (requires { p.state_im; }) return p.state_im;
  else return static_cast<decltype(p.state)>(nullptr);
}

/// The engine of a scan (common/scan.h) over the tokens of a cell. A map is A, then B as a state.
template <class T, class Cell>
class CellScan {
 public:
  using Number = T;
  using Problem = typename Cell::Problem;
  using Gradient = typename Cell::Gradient;
  static constexpr bool large = false;
  const std::array<Size, 2> sizes;
  const Size state, map, map_back;

  /// `longest`: tokens of a segment.
  CellScan(const Simd<T>& simd, const ScanSimd<T>& scan, const Problem& problem, Size longest, bool gradients,
           Arena& arena)
      : sizes(Cell::sizes(problem)),
        state(sizes[0] + sizes[1]),
        map(Cell::factors_of(problem) + state),
        map_back(map),
        s(simd),
        e(scan),
        p(problem),
        length(longest),
        backward(gradients) {
    if (backward)
      for (SharedGradient<T>& one : shared) one = SharedGradient<T>(Cell::width_of_gates(p), arena);
  }
  void begin(Size row, int h, const Gradient* gradient) {
    head = h;
    if (!gradient) return;
    d = *gradient;
    shared[0].begin(d.d_g, row, head), shared[1].begin(d.d_theta, row, head);
  }
  void sum(Size slots) {
    for (SharedGradient<T>& one : shared) one.sum(slots);
  }
  /// Whether segments may go backwards at the same time: gates that are constant in time have sums of their own.
  static bool by_segments(const Gradient& d) {
    const auto constant = [](const auto& view) { return view && view.stride[1] == 0; };
    bool any = false;
    if constexpr (requires { d.d_x; }) any = constant(d.d_x) || constant(d.d_x_im);
    else any = constant(d.d_q) || constant(d.d_k) || constant(d.d_v);
    return !any;
  }

  class Worker {
   public:
    Worker(const CellScan& engine, Arena& arena)
        : scan(engine), cell(engine.s, engine.e, engine.p, engine.backward, arena) {
      if (scan.backward) replay.emplace(scan.sizes, scan.length, 0, arena);
    }
    void run(const Sequence& n, T* S, bool outputs, bool made) {
      cell.begin(scan.head, n);
      for (Size t = n.begin; t < n.end; ++t) cell.step(n.row, t, scan.head, pair(S), outputs, made);
    }
    void make(const Sequence& n, T* m, [[maybe_unused]] bool outputs) {
      T* const B = fresh(n, m);
      if constexpr (by_products) return cell.map_segment(n, scan.head, m, pair(B));
      else {
        for (Size t = n.begin; t < n.end; ++t) cell.map_step(n.row, t, scan.head, m, pair(B), outputs);
        cell.end_map(n.end - n.begin, m);
      }
    }
    void make_back(const Sequence& n, const T*, T* m) {
      T* const B = fresh(n, m);
      if constexpr (by_products) return cell.map_segment_back(scan.d, n, scan.head, m, pair(B));
      else
        for (Size t = n.end; t-- > n.begin;) cell.map_step_back(scan.d, n.row, t, scan.head, m, pair(B));
    }
    void compose(T* m, const T* first) {
      cell.add_mapped(m, pair(first + factors()), pair(m + factors()));
      cell.compose(first, m);
    }
    void compose_back(T* m, const T* first) { compose(m, first); }
    void apply(const T* m, const T* S, T* out) {
      std::copy_n(m + factors(), scan.state, out);
      cell.add_mapped(m, pair(S), pair(out));
    }
    void apply_back(const T* m, const T* dS, T* out) { apply(m, dS, out); }
    void back(const Sequence& n, Size slot, const T* start, T* dS) {
      Gradient own = scan.d;
      own.d_g = scan.shared[0].of(slot, own.d_g), own.d_theta = scan.shared[1].of(slot, own.d_theta);
      cell.begin(scan.head, n);
      replay->run(
          n.end - n.begin, pair(start),
          [&](Size i, const Pair<T>& S) { cell.step(n.row, n.begin + i, scan.head, S, false); },
          [&](Size i, const ConstPair<T>& old, const ConstPair<T>& now) {
            cell.back(own, n.row, n.begin + i, scan.head, old, now, pair(dS));
          });
    }

   private:
    static constexpr bool by_products = requires { &Cell::map_segment; };
    Size factors() const { return scan.map - scan.state; }
    template <class N>
    Pair<N> pair(N* base) const {
      return {base, base + scan.sizes[0]};
    }
    // A = 1, B = 0; returns B.
    T* fresh(const Sequence& n, T* m) {
      cell.begin(scan.head, n);
      Cell::identity(scan.p, m);
      std::fill_n(m + factors(), scan.state, T(0));
      return m + factors();
    }
    const CellScan& scan;
    Cell cell;
    std::optional<Replay<T, 2>> replay;
  };
  Worker worker(Arena& arena) const { return {*this, arena}; }

 private:
  const Simd<T>& s;
  const ScanSimd<T>& e;
  const Problem& p;
  Size length;
  bool backward;
  int head = 0;
  Gradient d{};
  std::array<SharedGradient<T>, 2> shared;
};

template <class T, class Problem>
Status common_checks(const Problem& p, Form form, Size longest, std::size_t bytes, Workspace work) {
  if (form == Form::chunk || form == Form::parallel) return Status::not_supported;
  if (longest < 0) return Status::bad_shape;
  if (!p.sequences.empty() && !p.state) return Status::missing_input;
  if (!work.data || work.bytes < bytes) return Status::small_workspace;
  return Status::ok;
}

template <class T, class Cell>
std::size_t bytes_of(const typename Cell::Problem& p, Size longest, Form form, int chunk, bool backward,
                     int workers) {
  static constexpr Simd<T> none{};
  static constexpr ScanSimd<T> no_scan{};
  const std::array<Size, 2> sizes = Cell::sizes(p);
  Arena arena;
  if (form == Form::scan) {
    ScanOf<CellScan<T, Cell>>(longest, chunk, Cell::least(p), backward, Team(workers, nullptr), arena, none, no_scan,
                              p);
    return arena.bytes();
  }
  Cell cell(none, no_scan, p, backward, arena);
  if (backward) {
    arena.take<T>(sizes[0] + sizes[1]);
    Replay<T, 2> replay(sizes, longest, chunk, arena);
  }
  return arena.bytes();
}

template <class T, class Cell>
Status run_forward(const typename Cell::Problem& p, Form form, int chunk, const Simd<T>& s, Workspace work) {
  const Size longest = longest_of(p.sequences);
  const std::array<Size, 2> sizes = Cell::sizes(p);
  if (const Status status = Cell::check(p, longest, static_cast<bool>(p.o)); status != Status::ok) return status;
  const std::size_t bytes = bytes_of<T, Cell>(p, std::max<Size>(longest, 0), form, chunk, false, p.team.workers());
  if (const Status status = common_checks<T>(p, form, longest, bytes, work); status != Status::ok) return status;
  const FlushDenormals flush;
  Arena arena(work);
  std::optional<Cell> cell;
  std::optional<ScanOf<CellScan<T, Cell>>> scan;
  if (form == Form::scan) scan.emplace(longest, chunk, Cell::least(p), false, p.team, arena, s, scan_simd(s), p);
  else cell.emplace(s, scan_simd(s), p, false, arena);
  const PartSizes<2> parts{sizes};
  Pair<T> S{p.state, imaginary(p)};
  for (const Sequence& n : p.sequences)
    for (int h = 0; h < Cell::heads(p); ++h) {
      if (scan) {
        scan->engine.begin(n.row, h, nullptr);
        parts.gather(S, scan->S);
        scan->forward(n, scan->S, true);
        parts.scatter(scan->S, S);
      } else {
        cell->begin(h, n);
        for (Size t = n.begin; t < n.end; ++t) cell->step(n.row, t, h, S, true);
      }
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
  const std::size_t bytes = bytes_of<T, Cell>(p, std::max<Size>(longest, 0), form, chunk, true, p.team.workers());
  if (const Status status = common_checks<T>(p, form, longest, bytes, work); status != Status::ok) return status;
  const FlushDenormals flush;
  Arena arena(work);
  const T *final_im = nullptr, *state_im = nullptr;
  T* initial_im = nullptr;
  if constexpr (requires { d.d_final_im; })
    final_im = d.d_final_im, initial_im = d.d_initial_im, state_im = p.state_im;
  // back(n, h, initial, dS): dS from the gradient of the final state to that of the initial one
  const auto all = [&](T* d_state, auto&& back) {
    const Pair<T> dS{d_state, d_state + sizes[0]};
    Size seq_head = 0;
    for (const Sequence& n : p.sequences)
      for (int h = 0; h < Cell::heads(p); ++h, ++seq_head) {
        const Size re = seq_head * sizes[0], im = seq_head * sizes[1];
        copy_or_clear(d.d_final ? d.d_final + re : nullptr, sizes[0], dS[0]);
        copy_or_clear(final_im ? final_im + im : nullptr, sizes[1], dS[1]);
        back(n, h, ConstPair<T>{p.state + re, state_im ? state_im + im : nullptr}, dS);
        if (d.d_initial) s.axpy(sizes[0], T(1), dS[0], d.d_initial + re);
        if (initial_im && sizes[1] > 0) s.axpy(sizes[1], T(1), dS[1], initial_im + im);
      }
  };
  if (form == Form::scan) {
    const Team team = CellScan<T, Cell>::by_segments(d) ? p.team : Team();
    ScanOf<CellScan<T, Cell>> run(longest, chunk, Cell::least(p), true, team, arena, s, scan_simd(s), p);
    all(run.dS, [&](const Sequence& n, int h, const ConstPair<T>& initial, const Pair<T>& dS) {
      run.engine.begin(n.row, h, &d);
      PartSizes<2>{sizes}.gather(initial, run.S);
      run.backward(n, run.S, dS[0]);
    });
    return Status::ok;
  }
  Cell cell(s, scan_simd(s), p, true, arena);
  T* const d_state = arena.take<T>(sizes[0] + sizes[1]);
  Replay<T, 2> replay(sizes, longest, chunk, arena);
  all(d_state, [&](const Sequence& n, int h, const ConstPair<T>& initial, const Pair<T>& dS) {
    if (n.begin < n.end) cell.begin(h, n);
    replay.run(
        n.end - n.begin, initial, [&](Size i, const Pair<T>& S) { cell.step(n.row, n.begin + i, h, S, false); },
        [&](Size i, const ConstPair<T>& old, const ConstPair<T>& now) {
          cell.back(d, n.row, n.begin + i, h, old, now, dS);
        });
  });
  return Status::ok;
}

}  // namespace

template <class T>
std::size_t workspace_bytes(int K, int V, std::ptrdiff_t longest, Form form, int chunk, bool backward,
                            int workers) noexcept {
  // A vector problem may be complex, a selective one is real with [K, V] gates: the largest serves all three.
  T imaginary_part;  // never read: that there is one makes the problem complex
  ChannelProblem<T> vector;
  vector.dim = K * V, vector.state_im = &imaginary_part;
  RotatingProblem<T> rotating;
  rotating.key_dim = K, rotating.value_dim = V;
  using V_ = VectorCell<T>;
  using R_ = RotatingCell<T>;
  return std::max({bytes_of<T, V_>(vector, longest, form, chunk, backward, workers),
                   selective_bytes<T>(K, V, longest, form, chunk, backward, workers),
                   bytes_of<T, R_>(rotating, longest, form, chunk, backward, workers)});
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
  template std::size_t workspace_bytes<T>(int, int, std::ptrdiff_t, Form, int, bool, int) noexcept;          \
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
