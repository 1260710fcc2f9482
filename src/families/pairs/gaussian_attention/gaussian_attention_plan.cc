// The plan of a Gaussian kernel through landmarks: rows of q and k, or means of stretches of q where k = q.
#include "families/pairs/gaussian_attention/gaussian_attention.h"
#include "families/pairs/pairs_plan.h"

namespace ttr::families {
namespace {

struct LandmarkOptions {
  double ridge = 0;  // on the diagonal of the landmarks' kernel matrix
};

int build(Builder& b, double) {
  const int q = b.canonical("q"), k = b.canonical("k"), v = b.canonical("v");
  Step step = b.kernel(landmarks_family, 1, q, k, v);
  step.set_options(LandmarkOptions{b.layer()->kernel_number});
  return b.add(std::move(step), "BTHV", {});
}

// Landmarks of one sequence: where keys are the queries, means of stretches of q; else evenly spaced rows of q and k.
template <class T>
class Landmarks {
 public:
  Landmarks(const KernelArgs<T>& o, std::size_t n)
      : tokens_(o.sequences()[n]),
        pairs_(o.pair_sequences()[n]),
        means_(o.value_of(Slot::q) == o.value_of(Slot::k)),
        heads_(o.heads()),
        group_(heads_ / o.key_heads()),
        width_(o.key_dim()) {
    const std::ptrdiff_t rows = length(tokens_) + (means_ ? 0 : length(pairs_));
    count_ = std::min<std::ptrdiff_t>(o.body().extent('M', 1, 1), rows), rows_ = rows;
  }
  std::ptrdiff_t count() const { return count_; }

  // visit(landmark, head, channel, share of a row, is it of q, token)
  template <class Visit>
  void each(Visit&& visit) const {
    for (std::ptrdiff_t m = 0; m < count_; ++m) {
      const std::ptrdiff_t from = m * rows_ / count_, to = means_ ? (m + 1) * rows_ / count_ : from + 1;
      for (std::ptrdiff_t row = from; row < to; ++row) {
        const bool of_q = row < length(tokens_);
        const std::ptrdiff_t token = of_q ? tokens_.begin + row : pairs_.begin + row - length(tokens_);
        for (std::ptrdiff_t h = 0; h < heads_; ++h)
          for (std::ptrdiff_t d = 0; d < width_; ++d) visit(m, h, d, T(1) / static_cast<T>(to - from), of_q, token);
      }
    }
  }
  View<T, 4> view(T* data) const {
    return {data, {1, count_, heads_, width_}, {count_ * heads_ * width_, heads_ * width_, width_, 1}};
  }
  void make(const View<const T, 4>& q, const View<const T, 4>& k, const View<T, 4>& w) const {
    std::fill_n(w.data, count_ * heads_ * width_, T(0));
    each([&](auto m, auto h, auto d, T share, bool of_q, auto token) {
      w(0, m, h, d) += share * (of_q ? q(tokens_.row, token, h, d) : k(pairs_.row, token, h / group_, d));
    });
  }
  void spread(const View<const T, 4>& d_w, const View<T, 4>& d_q, const View<T, 4>& d_k) const {
    each([&](auto m, auto h, auto d, T share, bool of_q, auto token) {
      if (of_q && d_q) d_q(tokens_.row, token, h, d) += share * d_w(0, m, h, d);
      if (!of_q && d_k) d_k(pairs_.row, token, h / group_, d) += share * d_w(0, m, h, d);
    });
  }

 private:
  static std::ptrdiff_t length(const Sequence& s) { return s.end - s.begin; }
  Sequence tokens_, pairs_;
  bool means_;
  std::ptrdiff_t heads_, group_, width_, count_ = 0, rows_ = 0;
};

template <class T>
struct GaussianAttentionCalls {
  static std::ptrdiff_t numbers(const Plan::Body& body, int K) {
    return body.extent('M', 1, 1) * body.shape.heads * K;
  }
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form, bool backward) {
    const int K = width(body, step.operands[Slot::k]), V = width(body, step.operands[Slot::v]);
    Arena arena;
    for (int copies = backward ? 2 : 1; copies > 0; --copies) arena.take<T>(numbers(body, K));
    return arena.bytes() + gaussian_attention::workspace_bytes<T>(body.shape.heads, body.shape.key_heads, K, V, time,
                                                                  time, body.extent('M', 1, 1), backward);
  }
  static GaussianAttentionProblem<T> problem(const KernelArgs<T>& o) {
    GaussianAttentionProblem<T> p;
    p.heads = o.heads(), p.key_heads = o.heads_of(Slot::k);
    p.key_dim = o.key_dim(), p.value_dim = o.value_dim();
    p.q = o.vectors(Slot::q), p.k = o.vectors(Slot::k), p.v = o.vectors(Slot::v);
    p.ridge = o.step().template options<LandmarkOptions>().ridge;
    p.o = o.output(o.step().result);
    return p;
  }
  static Status forward(const KernelArgs<T>& o, State, Form, Workspace work) noexcept {
    GaussianAttentionProblem<T> p = problem(o);
    Arena arena(work);
    T* const rows = arena.take<T>(numbers(o.body(), p.key_dim));
    for (std::size_t n = 0; n < o.sequences().size(); ++n) {
      const Landmarks<T> landmarks(o, n);
      if (landmarks.count() == 0) continue;
      const View<T, 4> w = landmarks.view(rows);
      landmarks.make(p.q, p.k, w);
      p.sequences = o.sequences().subspan(n, 1), p.key_sequences = o.pair_sequences().subspan(n, 1);
      p.landmarks = {w.data, w.extent, w.stride};
      const Status status = gaussian_attention::forward(p, simd_of<T>(o.body()), *o.body().simd_f64, arena.rest());
      if (status != Status::ok) return status;
    }
    return Status::ok;
  }
  static Status backward(const KernelArgs<T>& o, const Call&, Form, Arena arena) noexcept {
    GaussianAttentionProblem<T> p = problem(o);
    GaussianAttentionGradient<T> d;
    d.d_o = o.d_output(o.step().result);
    d.d_q = o.d_vectors(Slot::q), d.d_k = o.d_vectors(Slot::k), d.d_v = o.d_vectors(Slot::v);
    T* const rows = arena.take<T>(numbers(o.body(), p.key_dim));
    T* const d_rows = arena.take<T>(numbers(o.body(), p.key_dim));
    for (std::size_t n = 0; n < o.sequences().size(); ++n) {
      const Landmarks<T> landmarks(o, n);
      if (landmarks.count() == 0) continue;
      const View<T, 4> w = landmarks.view(rows), d_w = landmarks.view(d_rows);
      landmarks.make(p.q, p.k, w);
      std::fill_n(d_rows, numbers(o.body(), p.key_dim), T(0));
      p.sequences = o.sequences().subspan(n, 1), p.key_sequences = o.pair_sequences().subspan(n, 1);
      p.landmarks = {w.data, w.extent, w.stride}, d.d_landmarks = d_w;
      const Status status =
          gaussian_attention::backward(p, d, simd_of<T>(o.body()), *o.body().simd_f64, arena.rest());
      if (status != Status::ok) return status;
      landmarks.spread({d_w.data, d_w.extent, d_w.stride}, d.d_q, d.d_k);
    }
    return Status::ok;
  }
};

}  // namespace

const Family landmarks_family = {.name = "gaussian_attention",
                                 .forms = blocks_only,
                                 .why_absent = list_of_pairs,
                                 .traits = {.couples_heads = true},
                                 .build = build,
                                 .f32 = calls_of<GaussianAttentionCalls, float>(),
                                 .f64 = calls_of<GaussianAttentionCalls, double>()};

}  // namespace ttr::families
