// Backward, with Gj = do.v_j, u = -S^-1 sum_j p_j Gj c_j and, for each query,
//
//   Wj = Gj - sum_i p_i G_i + c_j.u ;   Cj = p_j (1 - c_j.r) ;   e_j = Cj Wj - p_j sum_i C_i W_i
//   dv_j += Cj do ;   dk_j += Cj u - p_j Wj r + (gradient of the logit) e_j
//   dq   += -u + sum_j (gradient of the logit) e_j ;   dlambda = -u.r
//
// An absolute ridge depends on the logits through the mass of the weights: e_j -= lambda dlambda p_j, lambda as in S,
// and the caller's lambda gets dlambda / (sum w). A given slope has u = 0 and dr = -sum_j p_j Gj c_j. The mean of e
// is set to what it is on paper (0, or -lambda dlambda) where a key's origin multiplies it. Gates get e as those of
// attention get theirs (pairs/gates.h). In each pass over the keys only one tile besides p and G is kept.
//
// A block of queries finds r and u by itself, which is most of the work; when it is its turn it adds to what the queries
// have in common.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>

#include "families/pairs/local_linear/local_linear.h"
#include "families/pairs/local_linear/run.h"

namespace ttr::families::local_linear {
namespace {

template <class T>
class Back {
 public:
  Back(const LocalLinearProblem<T>& problem, const LocalLinearGradient<T>& gradient, Whole<T>& shared, Run<T>& r)
      : p(problem),
        d(gradient),
        whole(shared),
        run(r),
        s(r.s),
        block(r.block),
        pairs(r.pairs),
        K(p.key_dim),
        V(p.value_dim),
        with_gates(p.g && (d.d_g || d.d_past_g)) {}

  /// Block `number` of head r of the key head; `place` in the order of all that share the gradients.
  bool queries(const Sequence& n, int r, Size number, Size place) {
    const int head = pairs.key_head * p.group() + r;
    bool good =
        block.load(p, n, head, number * tile_size, run.solver.wants_query(p, whole.findings.before(r, number)));
    values(n, head);
    good = slopes(n, head) && good;
    if (Findings::leads(number)) whole.findings.tell(r, number, run.solver.finding());
    whole.turn.wait(place);
    if (number == 0) begin_head();
    if (p.slope && d.d_slope)
      add_rows(s, T(1), run.rhs, n.row, n.begin + block.begin, block.rows, head, K, d.d_slope);
    weights(n, head);
    logits(n, head);
    if (number + 1 == blocks_of(n)) end_head(head);
    whole.turn.reach(place + 1);
    return good;
  }

 private:
  bool gaussian() const { return p.kernel == LocalKernel::gaussian; }
  T* g_tile(Size t) const { return run.g + block.slot(t); }

  void begin_head() {
    std::fill_n(whole.d_columns, pairs.tiles * tile_size, T(0));
    if (with_gates) whole.gate_sums.clear(pairs.layout, 1);
  }
  void end_head(int head) {
    if (gaussian()) pull_keys();
    if (with_gates) whole.gate_sums.back(pairs.layout, 0, head, T(1), d.d_past_g, d.d_g);
  }

  // each(query, place of its first key in a tile, keys) over what the queries see of tile t
  template <class Each>
  void each_row(Size t, Each&& each) const {
    const MaskRange range = block.seen(t);
    for (Size i = 0; i < block.rows; ++i) {
      const Size begin = range.begin(i), count = range.end(i) - begin;
      if (count > 0) each(i, i * tile_size + begin, count);
    }
  }
  // Rows of a tile times rows of the weights, summed, over what each query sees: out += p.x
  void add_dots(Size t, const T* X, const T* Y, T* out) const {
    each_row(t, [&](Size i, Size at, Size n) { out[i] += s.dot(n, X + at, Y + at); });
  }
  void add_sums(Size t, const T* X, T* out) const {
    each_row(t, [&](Size i, Size at, Size n) { out[i] += s.dot(n, X + at, block.ones); });
  }

  // G - mean in the tiles of run.g, its variance in run.size.
  void values(const Sequence& n, int head) {
    pack(s, d.d_o, n.row, n.begin + block.begin, block.rows, head, V, T(1), run.values);
    std::fill_n(run.mean, block.rows, T(0)), std::fill_n(run.size, block.rows, T(0));
    for (Size t = block.first; t < block.tiles; ++t) {
      const Size columns = block.own(t) ? block.rows : pairs.count(t);
      s.gemm_nt(block.rows, columns, V, T(1), run.values, V, pairs.values(t), V, T(0), g_tile(t), tile_size);
      add_dots(t, block.tile(t), g_tile(t), run.mean);
    }
    std::fill_n(run.rhs, block.rows * K, T(0));
    std::fill_n(run.total, block.rows, T(0));
    for (Size t = block.first; t < block.tiles; ++t) {
      T* const g = g_tile(t);
      each_row(t, [&](Size i, Size at, Size n_seen) { s.axpy(n_seen, -run.mean[i], block.ones, g + at); });
      s.mul(block.rows * tile_size, block.tile(t), g, run.c);
      block.hide(t, run.c);
      add_dots(t, run.c, g, run.size);
      add_sums(t, run.c, run.total);
      if (p.order == 1) block.read_keys(t, run.c, run.rhs);
    }
    for (Size i = 0; i < block.rows; ++i) s.axpy(K, -run.total[i], block.mean + i * K, run.rhs + i * K);
    s.scale(block.rows * K, T(-1), run.rhs, run.rhs);
  }

  // r and u; the gradient of a given slope is in run.rhs already. False: not all of them are known.
  bool slopes(const Sequence& n, int head) {
    if (p.slope) {
      run.take_slope(p, n, head);
      std::fill_n(run.u, block.rows * (K + 1), T(0));
      return true;
    }
    if (p.order == 2) {
      return run.quadratic.solve(block, run.g, run.r2, run.u2);
    }
    const System<T> systems[] = {{block.rhs, run.r, nullptr, tolerance<T>(true)},
                                 {run.rhs, run.u, run.size, tolerance<T>(true)}};
    return run.solver.solve(block, systems, 2);
  }

  // dv, the part of dk that does not go through the logits, and C W in the tiles of run.g, its sum in run.mean.
  void weights(const Sequence& n, int head) {
    const Size all = block.rows * tile_size;
    std::fill_n(run.mean, block.rows, T(0));
    std::fill_n(run.d_q, block.rows * K, T(0));
    if (p.order == 1) pack_slopes();
    for (Size t = block.first; t < block.tiles; ++t) {
      T* const g = g_tile(t);
      run.along_slope(t);
      if (p.order == 2) run.quadratic.dots(block, t, run.u2, true, g);
      else if (!p.slope) block.dots(t, run.u, K + 1, K + 1, T(1), g);
      run.combine(t);
      s.mul(all, block.tile(t), g, run.y);
      block.hide(t, run.y);
      block.write(t, T(1), run.c, run.values, V, whole.d_v + t * tile_size * V);
      T* const to = whole.d_k + t * tile_size * K;
      if (p.order == 2) run.quadratic.back(block, t, run.c, run.y, run.r2, run.u2, to, run.d_q);
      else {
        if (!p.slope) block.write(t, T(1), run.c, run.rhs, K, to);
        block.write(t, T(-1), run.y, run.plain, K, to);
      }
      s.mul(all, run.c, g, g);
      block.hide(t, g, with_gates);
      add_sums(t, g, run.mean);
    }
    for (Size i = 0; i < block.rows; ++i) {
      run.total[i] = T(0);
      if (p.slope) continue;
      const double d_lambda = p.order == 2 ? -run.quadratic.product(run.r2, run.u2, i)
                                           : -static_cast<double>(s.dot(K, run.rhs + i * K, run.plain + i * K));
      const bool absolute = p.ridge == LocalRidge::absolute;
      if (absolute) run.total[i] = static_cast<T>(-static_cast<double>(block.lambda[i]) * d_lambda);
      if (d.d_lambda)
        d.d_lambda(n.row, n.begin + block.begin + i, head) += static_cast<T>(
            absolute ? d_lambda * static_cast<double>(block.lambda[i] / block.given_lambda[i]) : d_lambda);
      if (p.order == 1) s.axpy(K, T(-1), run.rhs + i * K, run.d_q + i * K);
    }
  }
  // Without the last column: u in run.rhs, r in run.plain.
  void pack_slopes() {
    for (Size i = 0; i < block.rows; ++i) {
      std::copy_n(run.r + i * (K + 1), K, run.plain + i * K);
      std::copy_n(run.u + i * (K + 1), K, run.rhs + i * K);
    }
  }

  // e = C W - (mean - total) p, and what it does to queries, keys and the bandwidth. total is the sum of e.
  void logits(const Sequence& n, int head) {
    const T factor = gaussian() ? 2 / p.bandwidth(head) : p.scale;
    std::fill_n(run.rhs, block.rows * K, T(0));  // sum e k
    std::fill_n(run.size, block.rows, T(0));     // sum e |k|^2 / 2
    std::copy_n(block.q, block.rows * K, run.plain);
    if (!gaussian())
      for (Size i = 0; i < block.rows; ++i) s.axpy(K, T(1), pairs.origin, run.plain + i * K);
    for (Size t = block.first; t < block.tiles; ++t) {
      T* const e = g_tile(t);
      each_row(t, [&](Size i, Size at, Size n_seen) {
        const Size j = at - i * tile_size;
        s.axpy(n_seen, run.total[i] - run.mean[i], block.tile(t) + at, e + at);
        if (!gaussian()) return;
        run.size[i] += s.dot(n_seen, e + at, pairs.half_squares(t) + j);
        s.axpy(n_seen, factor, e + at, whole.d_columns + t * tile_size + j);
      });
      block.read_keys(t, e, run.rhs);
      block.write(t, factor, e, run.plain, K, whole.d_k + t * tile_size * K);
      if (!with_gates) continue;
      const pairs::Block keys = pairs.layout.block(t);
      whole.gate_sums.sum(pairs.layout, block.tokens(), keys, e, tile_size);
      whole.gate_sums.add(pairs.layout, 0, block.tokens(), keys);
    }
    double d_bandwidth = 0;
    for (Size i = 0; i < block.rows; ++i) {
      const T* const q = block.q + i * K;
      T* const sum = run.rhs + i * K;
      if (gaussian() && d.d_bandwidth) {
        const double dot = static_cast<double>(s.dot(K, q, sum)), square = static_cast<double>(s.dot(K, q, q));
        d_bandwidth += 2 * (static_cast<double>(run.size[i]) - dot) + square * static_cast<double>(run.total[i]);
      }
      s.axpy(K, gaussian() ? -run.total[i] : run.total[i], gaussian() ? q : pairs.origin, sum);
      s.axpy(K, factor, sum, run.d_q + i * K);
    }
    if (gaussian() && d.d_bandwidth)
      d.d_bandwidth(head) += static_cast<T>(d_bandwidth) / (p.bandwidth(head) * p.bandwidth(head));
    if (d.d_q) add_rows(s, T(1), run.d_q, n.row, n.begin + block.begin, block.rows, head, K, d.d_q);
  }

  // -|k - q|^2 / bandwidth: the part of its gradient that points along k.
  void pull_keys() {
    for (Size t = 0; t < pairs.tiles; ++t)
      for (Size j = 0; j < pairs.count(t); ++j)
        s.axpy(K, -whole.d_columns[t * tile_size + j], pairs.keys(t) + j * K, whole.d_k + (t * tile_size + j) * K);
  }

  const LocalLinearProblem<T>& p;
  const LocalLinearGradient<T>& d;
  Whole<T>& whole;
  Run<T>& run;
  const Simd<T>& s;
  Block<T>& block;
  const Pairs<T>& pairs;
  int K, V;
  bool with_gates;
};

// What the queries have added up for the pairs of a key head.
template <class T>
void store(const LocalLinearProblem<T>& p, const LocalLinearGradient<T>& d, const Whole<T>& whole, const Simd<T>& s,
           std::size_t index) {
  const Pairs<T>& pairs = whole.pairs;
  const Sequence& n = p.sequences[index];
  const int K = p.key_dim, V = p.value_dim, head = pairs.key_head;
  const Size row = static_cast<Size>(index), skip = pairs.past_tiles * tile_size;
  if (d.d_past_k && pairs.past > 0) add_rows(s, T(1), whole.d_k, row, 0, pairs.past, head, K, d.d_past_k);
  if (d.d_past_v && pairs.past > 0) add_rows(s, T(1), whole.d_v, row, 0, pairs.past, head, V, d.d_past_v);
  if (d.d_k) add_rows(s, T(1), whole.d_k + skip * K, n.row, n.begin, pairs.now, head, K, d.d_k);
  if (d.d_v) add_rows(s, T(1), whole.d_v + skip * V, n.row, n.begin, pairs.now, head, V, d.d_v);
}

}  // namespace

template <class T>
Status backward(const LocalLinearProblem<T>& p, const LocalLinearGradient<T>& d, const Simd<T>& s, Workspace work,
                const Simd<double>* wide) noexcept {
  const bool answers = static_cast<bool>(d.d_o);
  Size longest;
  if (const Status status = check(p, answers, true, work, &longest); status != Status::ok) return status;
  if (!answers) return Status::ok;
  const FlushDenormals flush;
  Arena arena(work);
  Crew<T> crew(s, wide_table(s, wide), p.key_dim, p.value_dim, p.order, p.group(), longest, p.window, true,
               p.team.workers(), arena);
  Whole<T>& whole = crew.whole;
  std::atomic<bool> good = true;
  pairs::each_sequence(p, [&](std::size_t n) {
    const Sequence& sequence = p.sequences[n];
    const Size blocks = blocks_of(sequence);
    for (int g = 0; g < p.key_heads; ++g) {
      whole.pairs.load(p, n, g);
      whole.findings.forget(), whole.turn.reset();
      std::fill_n(whole.d_k, whole.pairs.tiles * tile_size * p.key_dim, T(0));
      std::fill_n(whole.d_v, whole.pairs.tiles * tile_size * p.value_dim, T(0));
      p.team.each(p.group() * blocks, [&](Size part, int worker) {
        const FlushDenormals own_flush;
        Back<T> back(p, d, whole, crew.of(worker));
        if (!back.queries(sequence, static_cast<int>(part / blocks), part % blocks, part)) good = false;
      });
      store(p, d, whole, s, n);
    }
  });
  return good ? Status::ok : Status::out_of_domain;
}

template Status backward(const LocalLinearProblem<float>&, const LocalLinearGradient<float>&, const Simd<float>&,
                         Workspace, const Simd<double>*) noexcept;
template Status backward(const LocalLinearProblem<double>&, const LocalLinearGradient<double>&, const Simd<double>&,
                         Workspace, const Simd<double>*) noexcept;

}  // namespace ttr::families::local_linear
