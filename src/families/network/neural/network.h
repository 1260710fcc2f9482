// A block of rows through the network of neural.h: forward, the gradient of the inner loss, and the reverse of both.
//
// The gradient of a matrix is a sum of outer products X_j' D_j of what went in and the delta that came back, so a
// block of keys is kept as those factors. Rows that read meet a *mix*: row t has the weights
//
//   a_t W + b_t Z + c_t P + sum_s Gamma_ts U_s        U_s = -rate_s (gradient of key s)
//
// Reverse of the gradient (hats are cotangents; f, f', f'' the activation at Y_l; g = w e, N normed, J = the map of
// the norm's backward, which is symmetric): upwards first, through the backprop, D_l = (D_{l+1} W_{l+1}') f'
//
//   Y^_l = D^_l (D_{l+1} W_{l+1}') f'' ;  B = D^_l f' ;  D^_{l+1} += B W_{l+1} ;  W^_{l+1} += B' D_{l+1}
//   at the norm, t = D^:  g^ = J t ;  N^ = -(t mean(gN) + g mean(tN)) / sd ;  sd^ = -t.D / sd
//   e^ = w g^ (+ N U^) ;  y^ = (second derivative of the loss) e^ ;  N^ += w y^ ;  Z^ = J N^ + sd^ N / V
//
// then downwards as in any backprop, with X^_l from the outer products added on the way.
#pragma once

#include <array>
#include <cstddef>

#include "families/common/scratch.h"
#include "families/network/neural/neural.h"
#include "families/network/neural/neural_simd.h"
#include "simd/simd.h"

namespace ttr::families::neural {

/// n rows on their way: x[l] goes into stage l, y[j] comes out of matrix j.
template <class T>
struct Rows {
  std::array<T*, max_depth + 1> x{}, y{}, slope{}, bend{};
  T *lift = nullptr, *normed = nullptr, *inverse = nullptr;  // gated: act(y0); inverse: 1 / sd of a row
  T* scale = nullptr;                                        // w, one row [V] or (reads, Norm::learned) n of them
};

/// Keys: also what comes back from their losses, and U in factors: x' update.
template <class T>
struct KeyRows : Rows<T> {
  std::array<T*, max_depth + 1> delta{}, back{}, update{};
  T *residual = nullptr, *error = nullptr, *scale_delta = nullptr, *scale_update = nullptr;
};

/// Cotangents of what KeyRows hands out; y and delta are scratch.
template <class T>
struct KeyCotangents {
  std::array<T*, max_depth + 1> x{}, update{}, delta{}, y{};
  T* scale_update = nullptr;
};

template <class T>
struct Mix {
  const T *W = nullptr, *Z = nullptr, *P = nullptr;  // Z, P null: no such term
  const T *a = nullptr, *b = nullptr, *c = nullptr;  // [n]; a null: 1
  const T* gamma = nullptr;                          // [n, n] lower; null: no such term
  std::ptrdiff_t ld = 0;
  const KeyRows<T>* keys = nullptr;
};
template <class T>
struct MixCotangent {
  T *W = nullptr, *Z = nullptr, *P = nullptr;  // added to
  T *a = nullptr, *b = nullptr, *c = nullptr;  // [n], added to
  T* gamma = nullptr;                          // [n, n] lower, added to
  std::ptrdiff_t ld = 0;
  KeyCotangents<T>* keys = nullptr;  // x, update, scale_update are added to
};

template <class T>
class Network {
 public:
  using Size = std::ptrdiff_t;

  /// For up to `rows` rows.
  Network(const Simd<T>&, const NeuralModel&, Size rows, bool backward, Arena&);
  Rows<T> take_rows(Arena&) const;
  KeyRows<T> take_keys(Arena&) const;
  KeyCotangents<T> take_cotangents(Arena&) const;
  const NeuralLayout& layout() const { return layout_; }

  /// Of the head at work: [V] each.
  const T *norm_weight = nullptr, *norm_bias = nullptr;
  /// Their cotangents, added to.
  T *d_norm_weight = nullptr, *d_norm_bias = nullptr;

  /// out [n, V] = f(x[0]).
  void read(Size n, Rows<T>&, const Mix<T>&, T* out);
  /// After `read` of the same rows: d_x [n, K] is written, everything else added to.
  void read_back(Size n, Rows<T>&, const Mix<T>&, const MixCotangent<T>&, const T* d_out, T* d_x);

  /// The matrices of `W` turned, for products with their transposes; they must not change before turn(nullptr). Only
  /// where there is a reverse.
  void turn(const T* W);
  /// x[0] and targets v [n, V]: activations, deltas at the weights `point`, and update = -rate delta; rates [n, R],
  /// R = model.rates, are those of matrix j at rate + j (R = 1: of all). Deltas that only a reverse reads are not
  /// written without one.
  void learn(Size n, KeyRows<T>&, const T* point, const T* v, const T* threshold, const T* rates);
  /// to = f to + alpha sum_s w_s U_s; w null: 1; f = 0 does not read.
  void gather(Size n, const KeyRows<T>&, T alpha, const T* w, T f, T* to);
  /// Reverse of gather for the cotangent d_to; d_w [n] added to unless null.
  void gather_back(Size n, const KeyRows<T>&, const T* w, const T* d_to, KeyCotangents<T>&, T* d_w);
  /// Reverse of update = -rate delta: cotangents of update become those of delta; d_rates [n, R] are added to.
  void weigh_back(Size n, const KeyRows<T>&, const T* rates, KeyCotangents<T>&, T* d_rates);
  /// Reverse of learn, after weigh_back. d_v [n, V], d_threshold [n], d_point are added to; the gradient of the rows
  /// is left in cotangents.x[0].
  void learn_back(Size n, const KeyRows<T>&, const T* point, const T* threshold, KeyCotangents<T>&, T* d_point,
                  T* d_v, T* d_threshold);

 private:
  struct Shape {
    Size in, out;
    Size weight, bias;  // offsets
  };
  void sums(int j, Size n, const T* X, const Mix<T>&, T* Y);
  void sums_back(int j, Size n, const T* X, const T* d_y, const Mix<T>&, const MixCotangent<T>&, bool first, T* d_x);
  void part_back(int j, Size n, const T* X, const T* d_y, const T* W, const T* factor, T* d_W, T* d_factor,
                 bool first, T* d_x);
  /// to = rows W_j' + beta to
  void down(int j, Size n, const T* rows, const T* W, T beta, T* to) const;
  void hidden(int l, Size n, Rows<T>&, int derivatives);
  /// The last matrix does not matter to the gradient: it is the targets'.
  bool flat() const { return m.loss == Loss::dot && m.norm == Norm::none; }

  const Simd<T>& s;
  const NeuralSimd<T>* r_ = nullptr;
  NeuralModel m;
  NeuralLayout layout_;
  int L, M, V;
  bool backward_;
  Size rows_, widest_ = 0;
  std::array<Shape, max_depth + 1> shape_{};
  T *scaled_, *pairs_, *kt_, *d_pairs_ = nullptr, *ut_ = nullptr, *d_y_ = nullptr, *d_in_ = nullptr,
                             *d_scale_ = nullptr, *d_sd_ = nullptr, *turned_ = nullptr;
  const T* turned_of_ = nullptr;
};

}  // namespace ttr::families::neural
