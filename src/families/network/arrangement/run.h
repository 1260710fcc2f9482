// One sequence through an arrangement: gate and layer (a window that slides), and context (segments).
#pragma once

#include <cstddef>
#include <cstdint>

#include "families/network/arrangement/parts.h"
#include "families/network/neural/past.h"

namespace ttr::families::arrangement {

/// The keys of a memory in context come from y, head by head.
inline MemoryLayout memory_layout(const ArrangementModel& a) {
  return {a.memory, a.heads, a.kind == Arrangement::context ? a.heads : a.memory_key_heads};
}

/// The memory's problem for the tokens `at` of sequence n, on the caller's views; `one` outlives it.
template <class T>
NeuralProblem<T> memory_of(const ArrangementProblem<T>& p, const MemoryLayout& layout, std::size_t n,
                           const Sequence& at, const Sequence& one) {
  NeuralProblem<T> m = p.memory;
  m.model = p.model.memory, m.heads = p.model.heads, m.key_heads = p.model.memory_key_heads;
  m.sequences = {&one, 1};
  m.q = tokens_of(m.q, at), m.k = tokens_of(m.k, at), m.v = tokens_of(m.v, at), m.rate = tokens_of(m.rate, at);
  for (View<const T, 3>* x : {&m.momentum, &m.decay, &m.gain, &m.threshold, &m.weight}) *x = tokens_of(*x, at);
  const NeuralLayout parts(m.model);
  for (std::size_t i = 0; i < static_cast<std::size_t>(parts.count); ++i)
    if (m.norms[i]) m.norms[i] += static_cast<Size>(n) * m.heads * parts.part[i].out;
  m.count += n, m.state = layout.seq_head(m.state, n), m.o = {};
  return m;
}

template <class T>
NeuralGradient<T> memory_gradient_of(const ArrangementProblem<T>& p, const ArrangementGradient<T>& d,
                                     const MemoryLayout& layout, std::size_t n, const Sequence& at) {
  NeuralGradient<T> g = d.memory;
  for (View<T, 4>* x : {&g.d_q, &g.d_k, &g.d_v, &g.d_rate}) *x = tokens_of(*x, at);
  for (View<T, 3>* x : {&g.d_momentum, &g.d_decay, &g.d_gain, &g.d_threshold, &g.d_weight}) *x = tokens_of(*x, at);
  const NeuralLayout parts(p.model.memory);
  for (std::size_t i = 0; i < static_cast<std::size_t>(parts.count); ++i)
    if (g.d_norms[i]) g.d_norms[i] += static_cast<Size>(n) * p.model.heads * parts.part[i].out;
  g.d_o = {}, g.d_final = layout.seq_head(g.d_final, n), g.d_initial = layout.seq_head(g.d_initial, n);
  return g;
}

/// Lists of sequence n that are the same for all its tokens, and their gradients.
template <class T>
Lists<T> lists_of(const ArrangementProblem<T>& p) {
  Lists<T> x;
  x.scale = p.scale, x.persistent = p.model.persistent;
  x.persistent_k = with_batch(p.persistent_k), x.persistent_v = with_batch(p.persistent_v);
  return x;
}
template <class T>
ListGradients<T> list_gradients_of(const ArrangementGradient<T>& d) {
  ListGradients<T> x;
  x.persistent_k = with_batch(d.d_persistent_k), x.persistent_v = with_batch(d.d_persistent_v);
  return x;
}

/// Row n of a list, null if there is none.
template <class N>
N* row_of(N* list, std::size_t n, Size rows, Size numbers) {
  return list ? list + static_cast<Size>(n) * rows * numbers : nullptr;
}

/// gate and layer
template <class T>
class Sliding {
 public:
  Sliding(const Simd<T>&, const ArrangementModel&, Size longest, Form, int chunk, bool backward, Arena&);
  Status forward(const ArrangementProblem<T>&, std::size_t n);
  Status backward(const ArrangementProblem<T>&, const ArrangementGradient<T>&, std::size_t n);

 private:
  bool layer() const { return a_.kind == Arrangement::layer; }
  bool begins(const ArrangementProblem<T>& p, std::size_t n, Size tokens) const {
    return a_.prefix > 0 && p.memory.count[n] == 0 && tokens > 0;
  }
  NeuralProblem<T> prefix_of(const ArrangementProblem<T>&, const Sequence& one, std::size_t n) const;
  Newest list_after(const ArrangementProblem<T>&, std::size_t n, Size tokens) const;
  Lists<T> lists(const ArrangementProblem<T>&, std::size_t n, const Newest&);
  /// The answers of the memory as queries and pairs.
  void map_answers(const ArrangementProblem<T>&, Size tokens);

  const Simd<T>& s;
  ArrangementModel a_;
  Form form_;
  int chunk_, H, K, V;
  MemoryLayout layout_;
  Kit<T> kit_;
  T *m_, *y_, *lse_, *q_ = nullptr, *k_ = nullptr, *v_ = nullptr;  // [tokens, H, ..]
  T *start_ = nullptr, *moving_ = nullptr, *d_start_ = nullptr;    // states of the memory
  T *d_m_ = nullptr, *d_y_ = nullptr, *d_q_ = nullptr, *d_k_ = nullptr, *d_v_ = nullptr;
};

/// f_W at rows of queries, for weights that stay as they are.
template <class T>
class Retrieval {
 public:
  Retrieval(const Simd<T>&, const ArrangementModel&, Size tokens, bool backward, Arena&);
  /// h [n, H, V] from memory.q; `weights`: of one sequence, [H, in, out] each.
  void read(const NeuralProblem<T>&, const NeuralParts<T>& weights, Size n, T* h);
  /// d_weights, d.d_q, d.d_norm_weight and d.d_norm_bias are added to.
  void back(const NeuralProblem<T>&, const NeuralParts<T>& weights, Size n, const T* d_h,
            const NeuralParts<T>& d_weights, const NeuralGradient<T>& d);

 private:
  void enter(const NeuralProblem<T>&, const NeuralParts<T>& weights, int head);

  const Simd<T>& s;
  Size rows_;
  neural::Network<T> net_;
  neural::Steps<T> steps_;
  neural::Rows<T> read_;
  int H, V;
  bool maps_;
  T *W_, *used_, *norms_, *out_, *d_W_ = nullptr, *d_used_ = nullptr, *d_out_ = nullptr, *d_x_ = nullptr;
};

template <class T>
class Context {
 public:
  Context(const Simd<T>&, const ArrangementModel&, Size longest, Form, int chunk, bool backward, Arena&);
  Status forward(const ArrangementProblem<T>&, std::size_t n);
  Status backward(const ArrangementProblem<T>&, const ArrangementGradient<T>&, std::size_t n);

 private:
  struct Segment {
    Size begin, tokens, place;  // in the sequence; place: tokens of the segment before this call
  };
  /// What is computed on the way, [tokens, H, ..]
  struct Rows {
    T *h, *rk, *rv, *y, *lse, *q, *k, *v, *m;
  };
  Segment segment(std::int64_t count, Size tokens, Size i) const;
  Size segments(std::int64_t count, Size tokens) const;
  Rows take_rows(Size tokens, Arena&) const;
  Rows from(Rows, Size token) const;
  Sequence tokens_at(const ArrangementProblem<T>&, std::size_t n, const Segment&) const;
  /// The weights before the segment.
  const NeuralParts<T>& before(const NeuralState<T>& state, const Segment& x) const {
    return x.place > 0 ? state.start : state.weights;
  }
  Lists<T> lists(const ArrangementProblem<T>&, std::size_t n, const Segment&, const Rows&) const;
  /// On the tokens of a segment, keys and values from y.
  NeuralProblem<T> memory(const ArrangementProblem<T>&, const MemoryLayout&, std::size_t n, const Segment&,
                          const Rows&, const Sequence& one) const;
  /// A segment up to m; moves the state.
  Status advance(const ArrangementProblem<T>&, const MemoryLayout&, std::size_t n, const Segment&, const Rows&,
                 const NeuralState<T>& state, std::int64_t* count, bool outputs);
  Status segment_back(const ArrangementProblem<T>&, const ArrangementGradient<T>&, const MemoryLayout&, std::size_t n,
                      const Segment&, const T* state, std::int64_t count);

  const Simd<T>& s;
  ArrangementModel a_;
  Form form_;
  int chunk_, H, G, K, V, M;  // M: of the memory's keys
  Size C, rows_;              // rows_ of the lists
  MemoryLayout layout_;
  Kit<T> kit_;
  Retrieval<T> retrieval_;
  Rows x_, d_{};
  T *work_ = nullptr, *d_state_ = nullptr, *d_before_ = nullptr;                             // states of the memory
  T *d_k_ = nullptr, *d_v_ = nullptr, *d_retrieved_k_ = nullptr, *d_retrieved_v_ = nullptr;  // of the lists
  neural::Past<T> past_;
};

extern template class Sliding<float>;
extern template class Sliding<double>;
extern template class Retrieval<float>;
extern template class Retrieval<double>;
extern template class Context<float>;
extern template class Context<double>;

}  // namespace ttr::families::arrangement
