// The joint softmax over lists of pairs, y (x) m, and maps of heads, with their reverses.
//
//   x = r X w , r = 1 / sqrt(mean(X^2) + eps) :  dX = r (w dx - X r^2 mean(w dx X)) ;  dw = r X dx
//   o = u g , g = sigmoid(z) :  du = g do ;  dz = u g (1 - g) do
#include "families/network/arrangement/parts.h"

namespace ttr::families::arrangement {
namespace {

/// Bytes of a neural call of up to `tokens` tokens. A shorter call that keeps all its states may need more than a
/// longer one that keeps only some (neural_past.h): at most the budget of the former.
template <class T>
std::size_t memory_bytes(const NeuralModel& m, Size tokens, Form form, int chunk, bool backward) {
  std::size_t bytes = neural::workspace_bytes<T>(m, tokens, form, chunk, backward);
  const neural::Cutting cut(m, form, chunk);
  const Size slot = neural::Place<T>::numbers(m, NeuralLayout(m).size, cut.fresh_units(m));
  constexpr Size budget = 1 << 23;
  if (backward && cut.units(m, tokens) * slot > budget / static_cast<Size>(sizeof(T))) bytes += budget;
  return bytes;
}

}  // namespace

template <class T>
Kit<T>::Kit(const Simd<T>& simd, const ArrangementModel& a, Size tokens, Form form, int chunk, bool backward,
            Arena& arena)
    : s(simd), a_(a), H(a.heads), V(a.memory.value_dim) {
  const int K = a.key_dim, widest = std::max({K, V, a.memory.key_dim});
  y_ = arena.take<T>(tokens * H * V), lse_ = arena.take<T>(tokens * H), matrix_ = arena.take<T>(Size{V} * widest);
  weights_ = arena.take<T>(2 * Size{H} * V), gate_ = arena.take<T>(V), row_ = arena.take<T>(V);
  if (backward) d_row_ = arena.take<T>(2 * V), sums_ = arena.take<double>(2 * Size{H} * V);
  std::size_t bytes = memory_bytes<T>(a.memory, tokens, form, chunk, backward);
  if (a.prefix > 0) bytes = std::max(bytes, memory_bytes<T>(a.memory, a.prefix, form, chunk, backward));
  const Size window = a.kind == Arrangement::context ? 0 : a.window, rows = pair_rows(a);
  for (const int G : {a.pair_heads, H}) {
    bytes = std::max(bytes, attention::workspace_bytes<T>(H, G, K, V, tokens, rows, window, backward));
    bytes = std::max(bytes, attention::workspace_bytes<T>(H, G, K, V, tokens, a.persistent, 0, backward));
  }
  work_ = {arena.take<std::byte>(static_cast<Size>(bytes)), bytes};
}

template <class T>
template <class Each>
Status Kit<T>::each_list(const Lists<T>& x, const ListGradients<T>& to, Size n, Each&& each) {
  const Sequence all{0, 0, n};
  AttentionProblem<T> p;
  p.sequences = {&all, 1};
  p.heads = H, p.key_heads = a_.pair_heads, p.key_dim = a_.key_dim, p.value_dim = V, p.scale = x.scale;
  p.q = x.q;
  AttentionGradient<T> d;
  d.d_q = to.q;

  AttentionProblem<T> list = p;
  AttentionGradient<T> d_list = d;
  list.window = x.window, list.k = x.k, list.v = x.v;
  list.past_k = x.past_k, list.past_v = x.past_v, list.past_count = &x.past;
  d_list.d_k = to.k, d_list.d_v = to.v, d_list.d_past_k = to.past_k, d_list.d_past_v = to.past_v;
  if (const Status status = each(list, d_list); status != Status::ok) return status;
  if (x.persistent > 0) {
    list = p, d_list = d;
    list.causal = false, list.past_k = x.persistent_k, list.past_v = x.persistent_v;
    list.past_count = &x.persistent;
    d_list.d_past_k = to.persistent_k, d_list.d_past_v = to.persistent_v;
    if (const Status status = each(list, d_list); status != Status::ok) return status;
  }
  if (!x.retrieved_k) return Status::ok;
  list = p, d_list = d;
  list.key_heads = H, list.k = x.retrieved_k, list.v = x.retrieved_v;
  list.past_k = x.past_retrieved_k, list.past_v = x.past_retrieved_v, list.past_count = &x.past;
  d_list.d_k = to.retrieved_k, d_list.d_v = to.retrieved_v;
  d_list.d_past_k = to.past_retrieved_k, d_list.d_past_v = to.past_retrieved_v;
  return each(list, d_list);
}

template <class T>
Status Kit<T>::attend(const Lists<T>& x, Size n, T* y, T* lse) {
  bool first = true;
  return each_list(x, {}, n, [&](AttentionProblem<T>& p, AttentionGradient<T>&) {
    p.o = view(first ? y : y_, Size{1}, n, H, V), p.lse = view(first ? lse : lse_, Size{1}, n, H);
    const Status status = attention::forward(p, s, work_);
    for (Size i = 0; !first && status == Status::ok && i < n * H; ++i) {
      const T top = std::max(lse[i], lse_[i]);
      if (top == -std::numeric_limits<T>::infinity()) continue;  // nothing seen so far: y is 0
      const T mine = std::exp(lse[i] - top), other = std::exp(lse_[i] - top), below = mine + other;
      s.scale(V, mine / below, y + i * V, y + i * V);
      s.axpy(V, other / below, y_ + i * V, y + i * V);
      lse[i] = top + std::log(below);
    }
    first = false;
    return status;
  });
}

template <class T>
Status Kit<T>::attend_back(const Lists<T>& x, Size n, const T* y, const T* lse, const View<const T, 4>& d_y,
                           const ListGradients<T>& to) {
  return each_list(x, to, n, [&](AttentionProblem<T>& p, AttentionGradient<T>& d) {
    d.d_o = d_y, d.o = view(y, Size{1}, n, H, V), d.lse = view(lse, Size{1}, n, H);
    return attention::backward(p, d, s, work_);
  });
}

template <class T>
T Kit<T>::inverse_size(const T* x) const {
  return 1 / std::sqrt(s.dot(V, x, x) / static_cast<T>(V) + static_cast<T>(a_.norm_eps));
}

template <class T>
void Kit<T>::norm_back(const T* x, T inverse, const T* w, const T* d, double* d_w, T* d_x) const {
  s.mul(V, w, d, d_x);
  const T along = s.dot(V, d_x, x) / static_cast<T>(V) * inverse * inverse;
  for (int j = 0; j < V; ++j) {
    d_w[j] += static_cast<double>(d[j]) * static_cast<double>(x[j] * inverse);
    d_x[j] = inverse * (d_x[j] - along * x[j]);
  }
}

template <class T>
T Kit<T>::gate_of(const T* m, const T* w, T* gate) const {
  const T inverse = inverse_size(m);
  for (int j = 0; j < V; ++j) gate[j] = -inverse * m[j] * w[j];
  s.exp(V, gate, gate);
  for (int j = 0; j < V; ++j) gate[j] = 1 / (1 + gate[j]);
  return inverse;
}

template <class T>
void Kit<T>::load(const View<const T, 2>& from, T* to) const {
  for (int h = 0; h < H; ++h)
    for (int j = 0; j < V; ++j) *to++ = from ? from(h, j) : T(1);
}

template <class T>
void Kit<T>::join(const ArrangementProblem<T>& p, Size n, const T* y, const T* m, const View<T, 4>& o) {
  const T *const wy = weights_, *const wm = weights_ + Size{H} * V;
  load(p.answer_weight, weights_), load(p.memory_weight, weights_ + Size{H} * V);
  for (Size t = 0; t < n; ++t)
    for (int h = 0; h < H; ++h, y += V, m += V) {
      gate_of(m, wm + Size{h} * V, gate_);
      if (p.answer_weight) {
        s.mul(V, y, wy + Size{h} * V, row_);
        s.scale(V, inverse_size(y), row_, row_);
        s.mul(V, row_, gate_, row_);
      } else {
        s.mul(V, y, gate_, row_);
      }
      unpack(row_, 0, t, 1, h, V, o);
    }
}

template <class T>
void Kit<T>::join_back(const ArrangementProblem<T>& p, const ArrangementGradient<T>& d, Size n, const T* y,
                       const T* m, const View<const T, 4>& d_o, T* d_y, T* d_m) {
  const Size numbers = Size{H} * V;
  const T *const wy = weights_, *const wm = weights_ + numbers;
  double *const d_wy = sums_, *const d_wm = sums_ + numbers;
  load(p.answer_weight, weights_), load(p.memory_weight, weights_ + numbers);
  std::fill_n(sums_, 2 * numbers, 0.0);
  T *const d_u = d_row_, *const d_z = d_row_ + V;
  for (Size t = 0; t < n; ++t)
    for (int h = 0; h < H; ++h, y += V, m += V, d_y += V, d_m += V) {
      const Size at = Size{h} * V;
      const T of_m = gate_of(m, wm + at, gate_), of_y = p.answer_weight ? inverse_size(y) : T(1);
      pack(s, d_o, 0, t, 1, h, V, T(1), row_);
      for (int j = 0; j < V; ++j) {
        d_u[j] = row_[j] * gate_[j];
        d_z[j] = d_u[j] * (1 - gate_[j]) * (y[j] * of_y * wy[at + j]);
      }
      norm_back(m, of_m, wm + at, d_z, d_wm + at, d_m);
      if (p.answer_weight) norm_back(y, of_y, wy + at, d_u, d_wy + at, d_y);
      else std::copy_n(d_u, V, d_y);
    }
  for (int h = 0; h < H; ++h)
    for (int j = 0; j < V; ++j) {
      if (p.answer_weight && d.d_answer_weight) d.d_answer_weight(h, j) += static_cast<T>(d_wy[Size{h} * V + j]);
      if (d.d_memory_weight) d.d_memory_weight(h, j) += static_cast<T>(d_wm[Size{h} * V + j]);
    }
}

namespace {

/// [H, V, D] as rows of heads.
template <class N>
View<N, 4> rows_of(const View<N, 3>& W) {
  return {W.data, {1, W.extent[1], W.extent[0], W.extent[2]}, {0, W.stride[1], W.stride[0], W.stride[2]}};
}

}  // namespace

template <class T>
void Kit<T>::map(const View<const T, 3>& W, int D, Size n, const T* X, T* Y) {
  for (int h = 0; h < H; ++h) {
    Size ld;
    const T* const w = contiguous(s, rows_of(W), 0, 0, V, h, D, matrix_, &ld);
    s.gemm_nn(n, D, V, T(1), X + Size{h} * V, Size{H} * V, w, ld, T(0), Y + Size{h} * D, Size{H} * D);
  }
}

template <class T>
void Kit<T>::map_back(const View<const T, 3>& W, const View<T, 3>& d_W, int D, Size n, const T* X, const T* d_Y,
                      T* d_X) {
  for (int h = 0; h < H; ++h) {
    const T *const x = X + Size{h} * V, *const d_y = d_Y + Size{h} * D;
    Size ld;
    const T* const w = contiguous(s, rows_of(W), 0, 0, V, h, D, matrix_, &ld);
    s.gemm_nt(n, V, D, T(1), d_y, Size{H} * D, w, ld, T(1), d_X + Size{h} * V, Size{H} * V);
    if (!d_W) continue;
    s.gemm_tn(V, D, n, T(1), x, Size{H} * V, d_y, Size{H} * D, T(0), matrix_, D);
    add_rows(s, T(1), matrix_, 0, 0, V, h, D, rows_of(d_W));
  }
}

template class Kit<float>;
template class Kit<double>;

}  // namespace ttr::families::arrangement
