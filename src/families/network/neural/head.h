// One head of a neural memory: its state as one array of numbers, moved over pieces of tokens and back.
//
// A piece is `dual` (the weights of its tokens are mixed, never formed) or `moving` (they are formed; between two
// steps all tokens read the same ones). The state is  W | A | Z | P | gate sums , those that the model has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "families/network/neural/network.h"
#include "families/network/neural/past.h"
#include "families/network/neural/schedule.h"
#include "families/network/neural/step.h"

namespace ttr::families::neural {

/// How a call is cut into pieces.
struct Cutting {
  std::ptrdiff_t largest = 1;  // tokens
  bool dual = false;

  Cutting(const NeuralModel&, Form, int chunk);
  std::ptrdiff_t next(const NeuralModel&, std::int64_t count, std::ptrdiff_t left) const;
  /// As `next` for a unit: a piece if dual, else all pieces up to the next step.
  std::ptrdiff_t next_unit(const NeuralModel&, std::int64_t count, std::ptrdiff_t left) const;
  /// A bound on the units of `longest` tokens, whatever was seen before.
  std::ptrdiff_t units(const NeuralModel&, std::ptrdiff_t longest) const;
  /// Every unit of a call but its first is the start of a block.
  bool fresh_units(const NeuralModel&) const;
  std::ptrdiff_t rows(const NeuralModel&, std::ptrdiff_t longest) const;  // of the largest piece
};

inline bool keeps_start(const NeuralModel& m) { return m.batch != 1 || m.block; }
inline bool keeps_z(const NeuralModel& m) { return m.momentum || m.block; }
inline bool keeps_pending(const NeuralModel& m) { return m.step_every > 1 || m.lazy; }

/// The parts of a state that lies at one place; null: the model has no such part, or it is dead. `alive`: at the start
/// of a block, where A is dead, and Z if it is the block's.
template <class T>
struct Place {
  T *W, *A, *Z, *P, *sums;
  Place(const NeuralModel& m, std::ptrdiff_t size, T* at, bool alive = false) : W(at) {
    at += size;
    A = keeps_start(m) && !alive ? at : nullptr, at += A ? size : 0;
    Z = keeps_z(m) && !(alive && m.block) ? at : nullptr, at += Z ? size : 0;
    P = keeps_pending(m) ? at : nullptr, at += P ? size : 0;
    sums = keeps_pending(m) ? at : nullptr;
  }
  static std::ptrdiff_t numbers(const NeuralModel& m, std::ptrdiff_t size, bool alive = false) {
    return size * (1 + (keeps_start(m) && !alive) + (keeps_z(m) && !(alive && m.block)) + keeps_pending(m)) +
           (keeps_pending(m) ? 2 : 0);
  }
};

/// Parts that both places have.
template <class From, class T>
void copy_parts(std::ptrdiff_t size, const Place<From>& from, const Place<T>& to) {
  const auto one = [&](const T* x, T* y, std::ptrdiff_t n) {
    if (x && y) std::copy_n(x, n, y);
  };
  one(from.W, to.W, size), one(from.A, to.A, size), one(from.Z, to.Z, size), one(from.P, to.P, size);
  one(from.sums, to.sums, 2);
}

/// f(count, numbers of a part, the caller's numbers of that part and seq_head) for every part that the model has.
template <class T, class P, class F>
void each_part(const NeuralLayout& layout, const Place<T>& at, const NeuralState<P>& state, std::ptrdiff_t seq_head,
               F&& f) {
  for (int i = 0; i < layout.count; ++i) {
    const NeuralLayout::Part& p = layout.part[i];
    const std::ptrdiff_t n = std::ptrdiff_t{p.in} * p.out;
    const auto one = [&](T* numbers, P* all) {
      if (numbers) f(n, numbers + p.offset, all ? all + seq_head * n : nullptr);
    };
    one(at.W, state.weights[i]), one(at.A, state.start[i]), one(at.Z, state.z[i]), one(at.P, state.pending[i]);
  }
  if (at.sums) f(std::ptrdiff_t{2}, at.sums, state.gate_sums ? state.gate_sums + 2 * seq_head : nullptr);
}

template <class T>
class Head {
 public:
  using Size = std::ptrdiff_t;

  Head(const Simd<T>&, const NeuralModel&, const Cutting&, Size longest, bool backward, Arena&);

  /// Heads that go through the time side by side: their rows lie beside each other, their states fit a cache.
  int together() const { return together_; }
  void forward(const NeuralProblem<T>&, std::size_t n, int head, int heads);
  void backward(const NeuralProblem<T>&, const NeuralGradient<T>&, std::size_t n, int head, Past<T>&);
  /// What is kept of a state between units.
  Size kept_size() const { return Place<T>::numbers(m, size_, cut_.fresh_units(m)); }

 private:
  /// A piece: tokens of sequence n, `count` seen before them.
  struct Span {
    const NeuralProblem<T>& p;
    std::size_t n;
    int head;
    Size row, begin, tokens;
    std::int64_t count;
  };
  struct Step {
    T a, m;  // decay factor, momentum
  };

  Size state_stride() const { return (state_size_ + 15) / 16 * 16; }
  void load_norms(const NeuralProblem<T>&, int head, int slot);
  /// Head `head` is at work, its constants in `slot`.
  void enter(const NeuralProblem<T>&, std::size_t n, int head, int slot);
  Span span(const NeuralProblem<T>&, std::size_t n, int head, Size begin, Size tokens) const;
  bool fresh(const Span& x) const { return m.batch == 0 ? x.count == 0 : x.count % m.batch == 0; }
  bool due(const Span& x) const { return m.lazy && x.count > 0 && x.count % m.step_every == 0; }
  bool complete(const Span& x) const { return !m.lazy && (x.count + x.tokens) % m.step_every == 0; }
  /// A dual piece that is a whole block, and not the last: its start and Z are dead before anyone can see them.
  bool whole(const Span& x) const {
    return m.block && fresh(x) && x.tokens == m.batch && x.begin + x.tokens < x.p.sequences[x.n].end;
  }
  Step step_of(const T* sums) const;
  /// Tokens of a moving piece that read the weights before its step.
  Size early(const Span& x) const { return m.read_before || !complete(x) ? x.tokens : x.tokens - 1; }

  Size load_keys(const Span&);  // the rows, more than tokens in a window
  /// Token of key row i, before sequence.begin: from the history, where `slot` says which.
  Size key_token(const Span& x, Size keys, Size i) const { return x.begin + x.tokens - keys + i; }
  Size history_slot(const Span& x, Size token) const;
  void load_gates(const Span&);
  void load_queries(const Span&);
  void fetch(const Span&, bool next, const View<const T, 4>& from, int head, int dim) const;
  void piece(const Span&, T* state, bool outputs);
  void dual(const Span&, const Place<T>&, bool outputs);
  void moving(const Span&, const Place<T>&, bool outputs);
  void read_rows(Size from, Size to, const T* W);
  void start_block(const Span&, const Place<T>&) const;
  /// Where the gradients of a moving piece are taken: the point, made in use.
  const T* gradient_point(const Place<const T>&, bool fresh);
  Mix<T> mix_of(const Place<const T>&, const T* point, bool fresh) const;

  void pack_answers(const Span&, const NeuralGradient<T>&);
  void dual_back(const Span&, const NeuralGradient<T>&, const Place<const T>& before);
  /// All pieces of a unit; `after` (null: not known): the state after it, before a lazy step.
  void moving_back(const Span&, const NeuralGradient<T>&, const Place<const T>& before, const Place<const T>* after);
  Span part_of(const Span& unit, Size piece) const;
  void learn_back(const T* point, const T* plain_point, T* d_plain, Size keys);
  void read_rows_back(Size from, Size to, const T* W, T* d_W);
  void clear(Size keys, Size tokens);
  void add_history(const NeuralProblem<T>&, const NeuralGradient<T>&, std::size_t n, int head);
  void add_gradients(const Span&, const NeuralGradient<T>&, Size keys, bool answers);

  const Simd<T>& s;
  const NeuralSimd<T>* rows_simd_ = nullptr;
  NeuralModel m;
  Cutting cut_;
  Size rows_;
  Network<T> net_;
  Schedule<T> schedule_;
  Steps<T> steps_;
  KeyRows<T> keys_;
  Rows<T> read_;
  KeyCotangents<T> cot_;
  Gates<T> gates_, d_gates_;
  Size size_, state_size_;
  int together_;
  T *norms_, *v_, *o_, *rates_, *token_rates_, *weights_, *threshold_, *own_gain_, *state_, *used_, *used_point_,
      *move_;
  T *d_q_ = nullptr, *d_v_ = nullptr, *d_o_ = nullptr, *d_rates_ = nullptr, *d_threshold_ = nullptr,
    *d_state_ = nullptr, *d_move_ = nullptr, *d_used_ = nullptr, *held_ = nullptr, *work_ = nullptr;
  Size* begins_ = nullptr;
};

}  // namespace ttr::families::neural
