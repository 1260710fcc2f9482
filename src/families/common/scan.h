// Form::scan: the associative scan over segments of time, by the tree of segments.h, for one head. A family that is
// linear in its state maps the start of a segment to its end by  S_out = A S_in + B ; (A1,B1) then (A2,B2) =
// (A2 A1, A2 B1 + B2).
//
//   forward    1  the first segment itself, and (A_j, B_j) of those between the first and the last
//              2  up-sweep of the maps, down-sweep of the starts
//              3  every other segment from its own start
//   backward      the starts as above, without outputs ; then
//              1  the last segment itself, and (A_j', D_j) of those between, where D_j is what the segment's own outputs
//                 give its start
//              2  the sweeps over dS_j = A_j' dS_{j+1} + D_j, from the end
//              3  every other segment backwards from its own dS_{j+1}
//
// The parts of 1 and 3 do not wait for each other: a team does them (team.h), and a large step of 2. B_j is the segment
// run from a zero state. A_j is carried as a log where it is a number (ScalarMap) or diagonal (DiagonalMap); where it is
// dense it is the segment run on the identity without values (DenseMap), which is the family's own algebra: never an
// inverse. A family whose tokens have work that A_j and B_j share makes both in one run: make(.., A, B). A state of several parts is one column [S; Z].
//
// Strong gates: A underflows to zero where the state has faded as well, and no map is divided by. Maps of layers whose
// steps grow are as large as what they do to a state.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "families/common/head_run.h"
#include "families/common/linear.h"
#include "families/common/schedule.h"
#include "families/common/scratch.h"
#include "families/common/segments.h"
#include "simd/simd.h"

namespace ttr::families {

/// The phases of a scan over one sequence and head. What an Engine is:
///
///   Number, state, map, map_back        numbers of a state and of the maps
///   large                               whether a step of the sweeps is worth a part of its own
///   Worker worker(Arena&)               one for each part of a phase:
///     run(segment, S, outputs, made)    S advances over the segment
///     make(segment, map, outputs)       the map of the segment; with outputs, run() of it follows in the same call and
///                                       is told so (made): what make() has left where the outputs go may save it work
///     compose(map, first)               map <- map after first
///     apply(map, S, out)                out = the map of S
///     back(segment, slot, start, dS)    dS from the gradient of the end to that of the start
///     make_back(segment, start, map)    the map of gradients, with compose_back and apply_back
///   sum(slots)                          after the back() of slots 0 .. slots-1, which run at the same time: adds up what
///                                       segments share, from slot 0 on
template <class Engine>
class Scan {
 public:
  using T = typename Engine::Number;
  using Size = std::ptrdiff_t;

  /// For sequences of up to `count` segments.
  Scan(Engine& e, const Team& workers, Size count, bool backward, Arena& arena)
      : engine(e), team(workers), state(e.state), map(backward ? std::max(e.map, e.map_back) : e.map) {
    const Size held = std::clamp<Size>(count, 1, most_segments);
    maps = arena.take<T>(held * map), inner = arena.take<T>(held * state);
    if (backward) starts = arena.take<T>(std::max<Size>(count, 1) * state);
  }
  /// Bytes that each worker needs.
  static std::size_t bytes_of_worker(const Engine& e) {
    Arena arena;
    e.worker(arena);
    return arena.bytes();
  }

  /// S from the start of the sequence to its end.
  void forward(const Segments& g, const Rooms& rooms, T* S, bool outputs) {
    for (Size first = 0; first < g.count; first += most_segments) {
      const Size count = std::min(g.count - first, most_segments);
      first_and_maps(g, rooms, first, count - 2, S, outputs);
      if (count == 1) continue;
      std::copy_n(S, state, inner);
      sweep(rooms, count - 2, inner);
      team.each(count - 1, [&](Size i, int worker) {
        Arena arena = rooms.of(worker);
        engine.worker(arena).run(g[first + 1 + i], inner + i * state, outputs, i < count - 2);
      });
      std::copy_n(inner + (count - 2) * state, state, S);
    }
  }

  /// dS from the gradient of the final state to that of `initial`.
  void backward(const Segments& g, const Rooms& rooms, const T* initial, T* dS) {
    if (g.count == 0) return;
    std::copy_n(initial, state, starts);
    for (Size first = 0; first + 1 < g.count; first += most_segments) {
      const Size maps_made = std::min(g.count - 1 - first, most_segments) - 1;
      T* const second = starts + (first + 1) * state;
      std::copy_n(second - state, state, second);
      first_and_maps(g, rooms, first, maps_made, second, false);
      sweep(rooms, maps_made, second);
    }
    for (Size end = g.count; end > 0; end -= std::min(end, most_segments)) {
      const Size count = std::min(end, most_segments);
      const auto start = [&](Size i) { return starts + (end - 1 - i) * state; };
      team.each(std::max<Size>(count - 1, 1), [&](Size i, int worker) {
        Arena arena = rooms.of(worker);
        auto own = engine.worker(arena);
        if (i == 0) own.back(g[end - 1], 0, start(0), dS);
        else own.make_back(g[end - 1 - i], start(i), maps + (i - 1) * map);
      });
      if (count > 1) {
        std::copy_n(dS, state, inner);
        const auto each = [&](auto&& step) {
          return [&, step](Size to, Size from, int worker) {
            Arena arena = rooms.of(worker);
            auto own = engine.worker(arena);
            step(own, to, from);
          };
        };
        up_sweep(team, count - 2, engine.large,
                 each([&](auto& own, Size to, Size from) { own.compose_back(maps + to * map, maps + from * map); }));
        down_sweep(team, count - 2, engine.large, each([&](auto& own, Size to, Size from) {
                     own.apply_back(maps + (to - 1) * map, inner + from * state, inner + to * state);
                   }));
        team.each(count - 1, [&](Size i, int worker) {
          Arena arena = rooms.of(worker);
          engine.worker(arena).back(g[end - 2 - i], i + 1, start(i + 1), inner + i * state);
        });
        std::copy_n(inner + (count - 2) * state, state, dS);
      }
      engine.sum(count);
    }
  }

 private:
  // Segment `first` from S, and the maps of the next `count`.
  void first_and_maps(const Segments& g, const Rooms& rooms, Size first, Size count, T* S, bool outputs) {
    team.each(std::max<Size>(count, 0) + 1, [&](Size i, int worker) {
      Arena arena = rooms.of(worker);
      auto own = engine.worker(arena);
      if (i == 0) own.run(g[first], S, outputs, false);
      else own.make(g[first + i], maps + (i - 1) * map, outputs);
    });
  }
  // States 1 .. count from state 0.
  void sweep(const Rooms& rooms, Size count, T* states) {
    up_sweep(team, count, engine.large, [&](Size to, Size from, int worker) {
      Arena arena = rooms.of(worker);
      engine.worker(arena).compose(maps + to * map, maps + from * map);
    });
    down_sweep(team, count, engine.large, [&](Size to, Size from, int worker) {
      Arena arena = rooms.of(worker);
      engine.worker(arena).apply(maps + (to - 1) * map, states + from * state, states + to * state);
    });
  }

  Engine& engine;
  const Team& team;
  Size state, map;
  T *maps, *inner, *starts = nullptr;  // starts: of all segments, backwards
};

/// An engine with all scratch of its scan: Engine(args.., tokens of a segment, backward, arena).
template <class Engine>
class ScanOf {
 public:
  using T = typename Engine::Number;
  using Size = std::ptrdiff_t;

  /// For sequences of up to `longest` tokens in segments of `wish` tokens; wish <= 0: of at least `shortest`.
  template <class... Args>
  ScanOf(Size longest, int wish, Size shortest, bool backward, const Team& workers, Arena& arena, const Args&... args)
      : engine(args..., Segments::longest(longest, wish, shortest), backward, arena),
        S(arena.take<T>(engine.state)),
        dS(arena.take<T>(engine.state)),
        chunk(wish),
        least(shortest),
        team(workers),
        scan(engine, team, Segments::most(longest, wish), backward, arena),
        rooms(team.workers(), Scan<Engine>::bytes_of_worker(engine), arena) {}

  void forward(const Sequence& n, T* state, bool outputs) {
    scan.forward(Segments::of(n, chunk, least), rooms, state, outputs);
  }
  void backward(const Sequence& n, const T* initial, T* d_state) {
    scan.backward(Segments::of(n, chunk, least), rooms, initial, d_state);
  }

  Engine engine;
  T *S, *dS;  // a state and a gradient, for the caller

 private:
  int chunk;
  Size least;
  Team team;
  Scan<Engine> scan;
  Rooms rooms;
};

/// A = e^{sum of g}.
template <class T>
class ScalarMap {
 public:
  using Size = std::ptrdiff_t;
  static constexpr bool large = false;
  static Size least(const Shape&) { return 1; }
  static Size size(const Shape&) { return 1; }
  ScalarMap(const Simd<T>& simd, const Shape& x, Schedule, Arena&) : s(simd), state(Size{x.key_dim} * x.value_dim) {}
  template <class Problem>
  void make(const Problem& p, const Sequence& n, int head, T* A) {
    double sum = 0;
    if (p.g)
      for (Size t = n.begin; t < n.end; ++t) sum += p.g(n.row, t, head);
    *A = static_cast<T>(sum);
  }
  /// out = second after first, which may be one of them
  void compose(const T* second, const T* first, T* out) { *out = *second + *first; }
  /// out += A S, and out += A' S
  void apply(const T* A, const T* S, T* out) {
    T factor = *A;
    s.exp(1, &factor, &factor);
    s.axpy(state, factor, S, out);
  }
  void apply_transposed(const T* A, const T* S, T* out) { apply(A, S, out); }

 private:
  const Simd<T>& s;
  Size state;
};

/// A = diag(e^{sum of gk}) from the left and diag(e^{sum of gv}) from the right.
template <class T>
class DiagonalMap {
 public:
  using Size = std::ptrdiff_t;
  static constexpr bool large = false;
  static Size least(const Shape&) { return 1; }
  static Size size(const Shape& x) { return Size{x.key_dim} + x.value_dim; }
  DiagonalMap(const Simd<T>& simd, const Shape& x, Schedule, Arena& arena)
      : s(simd), K(x.key_dim), V(x.value_dim), factors(arena.take<T>(K + V)), row(arena.take<T>(V)) {}
  template <class Problem>
  void make(const Problem& p, const Sequence& n, int head, T* A) {
    const auto sum = [&](const auto& g, Size dim, T* out) {
      for (Size j = 0; j < dim; ++j) {
        double total = 0;
        if (g)
          for (Size t = n.begin; t < n.end; ++t) total += g(n.row, t, head, j);
        out[j] = static_cast<T>(total);
      }
    };
    sum(p.gk, K, A), sum(p.gv, V, A + K);
  }
  void compose(const T* second, const T* first, T* out) {
    for (Size j = 0; j < K + V; ++j) out[j] = second[j] + first[j];
  }
  void apply(const T* A, const T* S, T* out) {
    s.exp(K + V, A, factors);
    for (Size i = 0; i < K; ++i) {
      s.scale(V, factors[i], S + i * V, row);
      s.mul_add(V, factors + K, row, out + i * V);
    }
  }
  void apply_transposed(const T* A, const T* S, T* out) { apply(A, S, out); }

 private:
  const Simd<T>& s;
  Size K, V;
  T *factors, *row;
};

/// A [P K, P K] of P parts [K, V] each: the unit vectors as P K values through the recurrence, with v = 0. `v` without
/// data is zero to the forms of a family with such a map.
template <class Family>
class DenseMap {
 public:
  using T = typename Family::Number;
  using Size = std::ptrdiff_t;
  static constexpr bool large = true;
  /// A product of two maps costs as much as some tokens.
  static Size least(const Shape& x) { return 2 * P * x.key_dim; }
  static Size size(const Shape& x) { return P * P * x.key_dim * x.key_dim; }
  DenseMap(const Simd<T>& simd, const Shape& x, Schedule plan, Arena& arena)
      : s(simd),
        K(x.key_dim),
        V(x.value_dim),
        n(P * K),
        parts{Family::sizes(wide(x))},
        run(simd, wide(x), plan, plan.scan, false, arena),
        product(arena.take<T>(n * n)) {}
  template <class Problem>
  void make(Problem p, const Sequence& tokens, int head, T* A) {
    linear_of(p).v = {};
    std::fill_n(A, n * n, T(0));
    for (Size i = 0; i < n; ++i) A[i * n + i] = T(1);
    run.forward(p, tokens, head, parts.at(A), false);
  }
  // A part of a state is K rows, and so is a part of A, whose columns are those of the start: A is n x n as it stands.
  void compose(const T* second, const T* first, T* out) {
    s.gemm_nn(n, n, n, T(1), second, n, first, n, T(0), product, n);
    std::copy_n(product, n * n, out);
  }
  void apply(const T* A, const T* S, T* out) {
    for (Size j = 0; j < P; ++j) s.gemm_nn(n, V, K, T(1), A + j * K, n, S + j * K * V, V, T(1), out, V);
  }
  void apply_transposed(const T* A, const T* S, T* out) {
    for (Size j = 0; j < P; ++j) s.gemm_tn(n, V, K, T(1), A + j * K * n, n, S + j * K * V, V, T(1), out, V);
  }

 private:
  static constexpr Size P = Family::parts;
  static Shape wide(Shape x) {
    x.value_dim = static_cast<int>(P) * x.key_dim;
    return x;
  }
  const Simd<T>& s;
  Size K, V, n;
  PartSizes<Family::parts> parts;
  HeadRun<Family> run;
  T* product;
};

/// The engine of a family of linear memories.
template <class Family>
class LinearScan {
 public:
  using Number = typename Family::Number;
  using T = Number;
  using Problem = typename Family::Problem;
  using Gradient = typename Family::Gradient;
  using Map = typename Family::Map;
  using Size = std::ptrdiff_t;
  static constexpr bool large = Map::large;
  const Size state, map, map_back;

  LinearScan(const Simd<T>& simd, const Shape& x, Schedule p, bool gradients)
      : state(PartSizes<Family::parts>{Family::sizes(x)}.total()),
        map(Map::size(x) + state),
        map_back(map),
        s(simd),
        shape(x),
        plan(p),
        backward(gradients) {}
  void begin(const Problem& p, const Gradient* d, int h) {
    problem = &p, gradient = d, head = h;
    if (d) linear_of(outputs_only).d_o = linear_of(*d).d_o;
  }
  void sum(Size) {}
  Status status() const { return status_.load(std::memory_order_relaxed); }

  class Worker {
   public:
    Worker(const LinearScan& e, Arena& arena)
        : scan(e),
          sizes{Family::sizes(e.shape)},
          size(Map::size(e.shape)),
          run_(e.s, e.shape, e.plan, e.plan.scan, e.backward, arena),
          map_(e.s, e.shape, e.plan, arena),
          spare(arena.take<T>(e.state)) {}

    void run(const Sequence& n, T* S, bool outputs, bool) {
      run_.forward(*scan.problem, n, scan.head, sizes.at(S), outputs);
      report();
    }
    void make(const Sequence& n, T* m, bool) {
      if constexpr (requires { map_.make(*scan.problem, n, scan.head, m, m); })
        return map_.make(*scan.problem, n, scan.head, m, m + size);  // what has no answer is said by run()
      map_.make(*scan.problem, n, scan.head, m);
      std::fill_n(m + size, scan.state, T(0));
      run_.forward(*scan.problem, n, scan.head, sizes.at(m + size), false);
      report();
    }
    void compose(T* m, const T* first) {
      map_.apply(m, first + size, m + size);
      map_.compose(m, first, m);
    }
    void apply(const T* m, const T* S, T* out) {
      std::copy_n(m + size, scan.state, out);
      map_.apply(m, S, out);
    }
    void back(const Sequence& n, Size, const T* start, T* dS) {
      std::fill_n(spare, scan.state, T(0));
      run_.backward(*scan.problem, *scan.gradient, n, scan.head, sizes.at(start), constant(sizes.at(dS)),
                    sizes.at(spare));
      std::copy_n(spare, scan.state, dS);
      report();
    }
    void make_back(const Sequence& n, const T* start, T* m) {
      map_.make(*scan.problem, n, scan.head, m);
      std::fill_n(m + size, scan.state, T(0));
      run_.backward(*scan.problem, scan.outputs_only, n, scan.head, sizes.at(start), {}, sizes.at(m + size));
      report();
    }
    // Of gradients the later segment comes first; A is that of its tokens in their own order.
    void compose_back(T* m, const T* first) {
      map_.apply_transposed(m, first + size, m + size);
      map_.compose(first, m, m);
    }
    void apply_back(const T* m, const T* dS, T* out) {
      std::copy_n(m + size, scan.state, out);
      map_.apply_transposed(m, dS, out);
    }

   private:
    void report() {
      if (run_.status() != Status::ok) scan.status_.store(run_.status(), std::memory_order_relaxed);
    }
    const LinearScan& scan;
    PartSizes<Family::parts> sizes;
    Size size;
    HeadRun<Family> run_;
    Map map_;
    T* spare;
  };
  Worker worker(Arena& arena) const { return {*this, arena}; }

 private:
  const Simd<T>& s;
  Shape shape;
  Schedule plan;
  bool backward;
  const Problem* problem = nullptr;
  const Gradient* gradient = nullptr;
  Gradient outputs_only{};
  int head = 0;
  mutable std::atomic<Status> status_{Status::ok};
};

/// One head of one sequence by the scan, as HeadRun is one by the other forms.
template <class Family>
class ScanRun {
 public:
  using T = typename Family::Number;
  using Problem = typename Family::Problem;
  using Gradient = typename Family::Gradient;
  using Size = std::ptrdiff_t;
  using State = typename HeadRun<Family>::State;
  using Kept = typename HeadRun<Family>::Kept;

  ScanRun(const Simd<T>& simd, const Shape& shape, Schedule schedule, Size time, bool backward, const Team& workers,
          Arena& arena)
      : plan(schedule),
        team(workers),
        sizes{Family::sizes(shape)},
        engine(simd, shape, plan, backward),
        start(arena.take<T>(engine.state)),
        // A short sequence may have more segments than a longer one, whose are rounded up to whole chunks.
        scan(engine, team, std::max((time + plan.scan - 1) / plan.scan, std::min(time, most_segments)), backward,
             arena),
        rooms(team.workers(), Scan<LinearScan<Family>>::bytes_of_worker(engine), arena) {
    if (backward) first = arena.take<T>(engine.state);
  }

  void forward(const Problem& p, const Sequence& n, int head, const State& S, bool outputs) {
    engine.begin(p, nullptr, head);
    sizes.gather(S, start);
    scan.forward(Segments::of_length(n, plan.scan), rooms, start, outputs);
    sizes.scatter(start, S);
  }

  void backward(const Problem& p, const Gradient& d, const Sequence& n, int head, const Kept& initial,
                const Kept& d_final, const State& d_initial, int /*heads: one at a time*/ = 1) {
    engine.begin(p, &d, head);
    sizes.gather(initial, first), sizes.gather(d_final, start);
    if (sums_over_time(d)) team = Team();
    scan.backward(Segments::of_length(n, plan.scan), rooms, first, start);
    for (std::size_t part = 0; part < Family::parts; ++part)
      for (Size i = 0; d_initial[part] && i < sizes.size[part]; ++i) d_initial[part][i] += sizes.at(start)[part][i];
  }

  Status status() const { return engine.status(); }

 private:
  Schedule plan;
  Team team;
  PartSizes<Family::parts> sizes;
  LinearScan<Family> engine;
  T *start, *first = nullptr;
  Scan<LinearScan<Family>> scan;
  Rooms rooms;
};

}  // namespace ttr::families
