#include "families/linear/squares/squares.h"

#include <algorithm>

#include "families/common/check.h"
#include "families/common/scratch.h"
#include "families/common/wide.h"
#include "families/linear/scalar/decay.h"
#include "simd/squares.h"

namespace ttr::families::squares {
namespace {

using Size = std::ptrdiff_t;

// Tokens that go forwards together: whole chunks, all of them where the form knows no other blocks.
Size block_of(Size longest, Form form, int chunk) {
  longest = std::max<Size>(longest, 1);
  if (form == Form::parallel || form == Form::scan) return longest;
  const Size unit = chunk > 0 ? chunk : 64;
  return std::min(longest, std::max<Size>(1, 256 / unit) * unit);
}

template <class N>
View<N, 4> rows(N* data, Size tokens, Size heads, Size dim) {
  return {data, {1, tokens, heads, dim}, {tokens * heads * dim, heads * dim, dim, 1}};
}
template <class N>
View<N, 3> numbers(N* data, Size tokens, Size heads) {
  return {data, {1, tokens, heads}, {tokens * heads, heads, 1}};
}

/// A block of tokens of one key head in double: the problem of the family decay.
class Block {
 public:
  Block(int key_dim, int value_dim, int heads, Size length, bool gradients, Arena& arena)
      : K(key_dim), V(value_dim), F(squares_of(key_dim)), group(heads) {
    const Size values = length * group * V, gates = length * group;
    row = arena.take<double>(2 * K);
    q = arena.take<double>(length * F), k = arena.take<double>(length * F);
    v = arena.take<double>(values), g = arena.take<double>(gates), beta = arena.take<double>(gates);
    o = arena.take<double>(values);
    if (!gradients) return;
    d_q = arena.take<double>(length * F), d_k = arena.take<double>(length * F);
    d_v = arena.take<double>(values), d_g = arena.take<double>(gates), d_beta = arena.take<double>(gates);
  }

  /// Tokens [n.begin, n.end) of key head `head`; without queries no answers are wanted.
  template <class T>
  LinearProblem<double> load(const SquaresProblem<T>& p, const Sequence& n, int head, bool queries, double* memory) {
    const Size tokens = n.end - n.begin;
    all = {0, 0, tokens};
    const int first = head * group;
    for (Size t = 0; t < tokens; ++t) {
      features(p.k, n, t, head, k);
      if (queries) features(p.q, n, t, head, q);
      for (int h = 0; h < group; ++h) {
        const Size at = t * group + h;
        families::load(p.v, n.row, n.begin + t, first + h, V, 1.0, v + at * V);
        g[at] = number(p.g, n.row, n.begin + t, first + h, 0.0);
        beta[at] = number(p.beta, n.row, n.begin + t, first + h, 1.0);
      }
    }
    LinearProblem<double> own{};
    own.sequences = {&all, 1};
    own.heads = group, own.key_heads = 1, own.key_dim = F, own.value_dim = V;
    own.scale = static_cast<double>(p.scale);
    own.k = rows<const double>(k, tokens, 1, F), own.v = rows<const double>(v, tokens, group, V);
    if (queries) own.q = rows<const double>(q, tokens, 1, F);
    if (p.g) own.g = numbers<const double>(g, tokens, group);
    if (p.beta) own.beta = numbers<const double>(beta, tokens, group);
    own.state = memory;
    return own;
  }
  View<double, 4> answers() const { return rows(o, all.end, group, V); }
  template <class T>
  void store_answers(const View<T, 4>& to, const Sequence& n, int head) const {
    for (Size t = 0; t < all.end; ++t)
      for (int h = 0; h < group; ++h)
        for (Size j = 0; j < V; ++j)
          to(n.row, n.begin + t, head * group + h, j) = static_cast<T>(o[(t * group + h) * V + j]);
  }

  /// What comes in is loaded, what goes out is cleared.
  template <class T>
  LinearGradient<double> load_gradients(const SquaresGradient<T>& d, const Sequence& n, int head) {
    const Size tokens = all.end;
    LinearGradient<double> own;
    if (d.d_o) {
      for (Size t = 0; t < tokens; ++t)
        for (int h = 0; h < group; ++h)
          families::load(d.d_o, n.row, n.begin + t, head * group + h, V, 1.0, o + (t * group + h) * V);
      own.d_o = rows<const double>(o, tokens, group, V);
    }
    const auto cleared = [](double* x, Size count) {
      std::fill_n(x, count, 0.0);
      return x;
    };
    if (d.d_q) own.d_q = rows(cleared(d_q, tokens * F), tokens, 1, F);
    if (d.d_k) own.d_k = rows(cleared(d_k, tokens * F), tokens, 1, F);
    if (d.d_v) own.d_v = rows(cleared(d_v, tokens * group * V), tokens, group, V);
    if (d.d_g) own.d_g = numbers(cleared(d_g, tokens * group), tokens, group);
    if (d.d_beta) own.d_beta = numbers(cleared(d_beta, tokens * group), tokens, group);
    return own;
  }
  template <class T>
  void add_gradients(const SquaresProblem<T>& p, const SquaresGradient<T>& d, const Sequence& n, int head) {
    for (Size t = 0; t < all.end; ++t) {
      const Size at = n.begin + t;
      if (d.d_q && d.d_o) d_features(p.q, d_q, n, t, head, d.d_q);
      if (d.d_k) d_features(p.k, d_k, n, t, head, d.d_k);
      for (int h = 0; h < group; ++h) {
        const Size i = t * group + h;
        if (d.d_v) families::add(d_v + i * V, 1.0, V, d.d_v, n.row, at, head * group + h);
        if (d.d_g) d.d_g(n.row, at, head * group + h) += static_cast<T>(d_g[i]);
        if (d.d_beta) d.d_beta(n.row, at, head * group + h) += static_cast<T>(d_beta[i]);
      }
    }
  }

 private:
  template <class T>
  void features(const View<const T, 4>& x, const Sequence& n, Size t, int head, double* phi) {
    families::load(x, n.row, n.begin + t, head, K, 1.0, row);
    write_squares<double>(
        K, [&](int i) { return row[i]; }, phi + t * F);
  }
  template <class T>
  void d_features(const View<const T, 4>& x, const double* d, const Sequence& n, Size t, int head,
                  const View<T, 4>& to) {
    families::load(x, n.row, n.begin + t, head, K, 1.0, row);
    for (int i = 0; i < K; ++i)
      row[K + i] = d_squares<double>(
          K, i, [&](int j) { return row[j]; }, d + t * F);
    families::add(row + K, 1.0, K, to, n.row, n.begin + t, head);
  }

  int K, V, F, group;
  Sequence all{};
  double *row, *q, *k, *v, *g, *beta, *o;
  double *d_q = nullptr, *d_k = nullptr, *d_v = nullptr, *d_g = nullptr, *d_beta = nullptr;
};

template <class T>
Status check(const SquaresProblem<T>& p, bool queries, Form form, int chunk, bool backward, Workspace work) {
  const Status status =
      check_common(p.sequences, p.heads, p.key_heads, {p.key_dim, p.value_dim}, work, [&](Size longest) {
        return workspace_bytes(p.key_dim, p.value_dim, p.heads / p.key_heads, longest, form, chunk, backward);
      });
  if (status != Status::ok || p.sequences.empty()) return status;
  if (!p.memory) return Status::missing_input;
  return longest_of(p.sequences) > 0 && (!p.k || !p.v || (queries && !p.q)) ? Status::missing_input : Status::ok;
}

}  // namespace

std::size_t workspace_bytes(int key_dim, int value_dim, int group, Size longest, Form form, int chunk,
                            bool backward) noexcept {
  Arena arena;
  const Size block = backward ? std::max<Size>(longest, 1) : block_of(longest, form, chunk);
  Block(key_dim, value_dim, group, block, backward, arena);
  return arena.bytes() + decay::workspace_bytes<double>(squares_of(key_dim), value_dim, block, form, chunk, backward);
}

template <class T>
Status forward(const SquaresProblem<T>& p, Form form, int chunk, const Simd<double>& simd, Workspace work) noexcept {
  const bool queries = static_cast<bool>(p.o);
  if (const Status bad = check(p, queries, form, chunk, false, work); bad != Status::ok) return bad;
  const int group = p.heads / p.key_heads;
  const Size size = Size{squares_of(p.key_dim)} * p.value_dim;
  const Size length = block_of(longest_of(p.sequences), form, chunk);
  Arena arena(work);
  Block block(p.key_dim, p.value_dim, group, length, false, arena);
  double* memory = p.memory;
  for (const Sequence& n : p.sequences)
    for (int head = 0; head < p.key_heads; ++head, memory += group * size)
      for (Size t = n.begin; t < n.end; t += length) {
        const Sequence tokens{n.row, t, std::min(t + length, n.end)};
        LinearProblem<double> own = block.load(p, tokens, head, queries, memory);
        if (queries) own.o = block.answers();
        if (const Status bad = decay::forward(own, form, chunk, simd, arena.rest()); bad != Status::ok) return bad;
        if (queries) block.store_answers(p.o, tokens, head);
      }
  return Status::ok;
}

template <class T>
Status backward(const SquaresProblem<T>& p, const SquaresGradient<T>& d, Form form, int chunk,
                const Simd<double>& simd, Workspace work) noexcept {
  const bool queries = static_cast<bool>(d.d_o);
  if (const Status bad = check(p, queries, form, chunk, true, work); bad != Status::ok) return bad;
  const int group = p.heads / p.key_heads;
  const Size size = Size{squares_of(p.key_dim)} * p.value_dim;
  Arena arena(work);
  Block block(p.key_dim, p.value_dim, group, std::max<Size>(longest_of(p.sequences), 1), true, arena);
  Size at = 0;
  for (const Sequence& n : p.sequences)
    for (int head = 0; head < p.key_heads; ++head, at += group * size) {
      const LinearProblem<double> own = block.load(p, n, head, queries, p.memory + at);
      LinearGradient<double> gradient = block.load_gradients(d, n, head);
      if (d.d_final_memory) gradient.d_final = d.d_final_memory + at;
      if (d.d_initial_memory) gradient.d_initial = d.d_initial_memory + at;
      if (const Status bad = decay::backward(own, gradient, form, chunk, simd, arena.rest()); bad != Status::ok)
        return bad;
      block.add_gradients(p, d, n, head);
    }
  return Status::ok;
}

#define TTR_INSTANTIATE(T)                                                                                      \
  template Status forward(const SquaresProblem<T>&, Form, int, const Simd<double>&, Workspace) noexcept;        \
  template Status backward(const SquaresProblem<T>&, const SquaresGradient<T>&, Form, int, const Simd<double>&, \
                           Workspace) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr::families::squares
