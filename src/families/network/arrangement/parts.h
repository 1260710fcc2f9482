// What the arrangements are made of: views of one sequence, a memory's state as one array, lists of pairs, per-head
// maps, the joint softmax over lists, and y (x) m. Equations: arrangement.h. Rows are [tokens, heads, dim].
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "families/common/scratch.h"
#include "families/network/arrangement/arrangement.h"
#include "families/network/neural/head.h"
#include "families/pairs/attention/attention.h"

namespace ttr::families::arrangement {

using Size = std::ptrdiff_t;

/// The tokens of a sequence as row 0 of a view of its own.
template <class N, std::size_t D>
View<N, D> tokens_of(View<N, D> x, const Sequence& at) {
  if (!x.data) return x;
  x.data += at.row * x.stride[0] + at.begin * x.stride[1];
  x.extent[0] = 1, x.extent[1] = at.end - at.begin;
  return x;
}
/// A view without a batch, as row 0.
template <class N, std::size_t D>
View<N, D + 1> with_batch(const View<N, D>& x) {
  View<N, D + 1> y{x.data, {}, {}};
  y.extent[0] = 1, y.stride[0] = 0;
  for (std::size_t d = 0; d < D; ++d) y.extent[d + 1] = x.extent[d], y.stride[d + 1] = x.stride[d];
  return y;
}
/// [rows, heads, dim] of a list as row 0; null: no data.
template <class N>
View<N, 4> list_of(N* data, Size rows, Size heads, Size dim) {
  return data ? view(data, Size{1}, rows, heads, dim) : View<N, 4>{};
}

/// f(array, numbers per sequence) for every array that the model keeps, always in the same order.
template <class T, class F>
void each_array(const NeuralModel& m, int heads, int key_heads, NeuralState<T>& s, F&& f) {
  const NeuralLayout layout(m);
  for (std::size_t i = 0; i < static_cast<std::size_t>(layout.count); ++i) {
    const Size n = Size{heads} * layout.part[i].in * layout.part[i].out;
    f(s.weights[i], n);
    if (neural::keeps_start(m)) f(s.start[i], n);
    if (neural::keeps_z(m)) f(s.z[i], n);
    if (neural::keeps_pending(m)) f(s.pending[i], n);
  }
  if (neural::keeps_pending(m)) f(s.gate_sums, Size{heads} * 2);
  if (m.window == 1) return;
  f(s.history_k, Size{m.window - 1} * key_heads * m.key_dim);
  f(s.history_v, Size{m.window - 1} * heads * m.value_dim), f(s.history_weight, Size{m.window - 1} * heads);
}

template <class T>
NeuralState<const T> constant(const NeuralState<T>& s) {
  NeuralState<const T> c;
  const auto parts = [](const NeuralParts<T>& from, NeuralParts<const T>& to) {
    std::copy(from.begin(), from.end(), to.begin());
  };
  parts(s.weights, c.weights), parts(s.start, c.start), parts(s.z, c.z), parts(s.pending, c.pending);
  c.gate_sums = s.gate_sums, c.history_k = s.history_k, c.history_v = s.history_v;
  c.history_weight = s.history_weight;
  return c;
}

/// How the state of one sequence lies in one array.
struct MemoryLayout {
  NeuralModel model;
  int heads = 1, key_heads = 1;
  bool weighted = false;  // the caller keeps history_weight

  template <class T>
  Size numbers() const {
    Size sum = 0;
    NeuralState<T> s;
    each_array(model, heads, key_heads, s, [&](T*&, Size n) { sum += n; });
    return sum;
  }
  template <class T>
  NeuralState<T> at(T* base) const {
    NeuralState<T> s;
    each_array(model, heads, key_heads, s, [&](T*& x, Size n) { x = base, base += n; });
    if (!weighted) s.history_weight = nullptr;
    return s;
  }
  template <class N>
  NeuralState<N> seq_head(NeuralState<N> s, std::size_t n) const {
    each_array(model, heads, key_heads, s, [&](N*& x, Size count) {
      if (x) x += static_cast<Size>(n) * count;
    });
    return s;
  }
  /// to = s; arrays that are not there become 0.
  template <class N, class T>
  void save(NeuralState<N> s, T* to) const {
    each_array(model, heads, key_heads, s, [&](N*& x, Size n) {
      if (x) std::copy_n(x, n, to);
      else std::fill_n(to, n, T(0));
      to += n;
    });
  }
  /// s += from, where s has arrays.
  template <class T>
  void add(const Simd<T>& simd, const T* from, NeuralState<T> s) const {
    each_array(model, heads, key_heads, s, [&](T*& x, Size n) {
      if (x) simd.axpy(n, T(1), from, x);
      from += n;
    });
  }
};

/// The list of the newest pairs: which rows stay and which tokens come.
struct Newest {
  Size seen, tokens, rows;
  Size live() const { return std::min(seen, rows); }
  Size kept() const { return std::min(seen + tokens, rows); }
  Size first() const { return seen + tokens - kept(); }  // of row 0 at the end, counted from the first pair of all
  Size old() const { return std::max<Size>(0, seen - first()); }
  Size shift() const { return first() - (seen - live()); }  // row 0 at the end was this row
  Size token() const { return std::max<Size>(0, first() - seen); }

  template <class T>
  void append(const Simd<T>& s, int heads, int dim, const View<const T, 4>& x, T* list) const {
    if (rows == 0) return;
    const Size row = Size{heads} * dim;
    if (shift() > 0) std::copy(list + shift() * row, list + (shift() + old()) * row, list);
    for (Size j = old(); j < kept(); ++j)
      for (int h = 0; h < heads; ++h) pack(s, x, 0, token() + j - old(), 1, h, dim, T(1), list + j * row + h * dim);
  }
  /// Gradients of the list at the end go to the tokens, and to the list at the start.
  template <class T>
  void back(const Simd<T>& s, int heads, int dim, const T* d_list, const View<T, 4>& d_x, T* d_start) const {
    if (!d_list) return;
    const Size row = Size{heads} * dim;
    if (d_start) {
      s.axpy(old() * row, T(1), d_list, d_start + shift() * row);
      s.axpy((rows - kept()) * row, T(1), d_list + kept() * row, d_start + kept() * row);
    }
    for (Size j = old(); d_x && j < kept(); ++j)
      for (int h = 0; h < heads; ++h)
        add_rows(s, T(1), d_list + j * row + h * dim, 0, token() + j - old(), 1, h, dim, d_x);
  }
};

/// Lists that one softmax goes over, of one sequence: everything has row 0 alone.
template <class T>
struct Lists {
  View<const T, 4> q, k, v, past_k, past_v;
  std::int64_t past = 0, persistent = 0;
  Size window = 0;
  T scale = 1;
  View<const T, 4> persistent_k, persistent_v;
  View<const T, 4> retrieved_k, retrieved_v, past_retrieved_k, past_retrieved_v;  // no data: none
};
template <class T>
struct ListGradients {
  View<T, 4> q, k, v, past_k, past_v, persistent_k, persistent_v;
  View<T, 4> retrieved_k, retrieved_v, past_retrieved_k, past_retrieved_v;
};

template <class T>
class Kit {
 public:
  /// For calls of up to `tokens` tokens.
  Kit(const Simd<T>&, const ArrangementModel&, Size tokens, Form, int chunk, bool backward, Arena&);

  Workspace work() const { return work_; }

  /// y [n, H, V] and lse [n, H]
  Status attend(const Lists<T>&, Size n, T* y, T* lse);
  Status attend_back(const Lists<T>&, Size n, const T* y, const T* lse, const View<const T, 4>& d_y,
                     const ListGradients<T>&);

  /// o = y (x) m
  void join(const ArrangementProblem<T>&, Size n, const T* y, const T* m, const View<T, 4>& o);
  /// d_y and d_m [n, H, V] are written.
  void join_back(const ArrangementProblem<T>&, const ArrangementGradient<T>&, Size n, const T* y, const T* m,
                 const View<const T, 4>& d_o, T* d_y, T* d_m);

  /// Y [n, H, D] = X [n, H, V] W_h
  void map(const View<const T, 3>& W, int D, Size n, const T* X, T* Y);
  /// d_X += d_Y W_h' ; d_W_h += X' d_Y
  void map_back(const View<const T, 3>& W, const View<T, 3>& d_W, int D, Size n, const T* X, const T* d_Y, T* d_X);

 private:
  /// each(problem, gradient with the views of that list) for the lists that are there.
  template <class Each>
  Status each_list(const Lists<T>&, const ListGradients<T>&, Size n, Each&& each);
  /// 1 / sqrt(mean(x^2) + eps)
  T inverse_size(const T* x) const;
  void norm_back(const T* x, T inverse, const T* w, const T* d, double* d_w, T* d_x) const;
  /// sigmoid(norm(m) w) of a row; returns 1 / size of m.
  T gate_of(const T* m, const T* w, T* gate) const;
  void load(const View<const T, 2>& from, T* to) const;

  const Simd<T>& s;
  ArrangementModel a_;
  int H, V;
  T *y_, *lse_, *matrix_, *weights_, *gate_, *row_, *d_row_ = nullptr;
  double* sums_ = nullptr;
  Workspace work_;
};

extern template class Kit<float>;
extern template class Kit<double>;

}  // namespace ttr::families::arrangement
