// One move of the weights of a neural memory, and its reverse; parameters lie one after another (NeuralLayout).
//
//   chain  Z <- m Z + P (no momentum: P) ;  W <- a W + Z (orthogonalise: + NS5(Z) for matrices) ;  row_norm
//   block  Z <- Z + P ;  W <- A + gain Z
//
//   NS5       X_0 = G / (|G|_F + 1e-7), turned to rows <= columns ;  5 times  X <- x X + (y B + z B^2) X , B = X X'
//   row_norm  column j <- column j * norm_j / (|column j| + 1e-5) ; a column of zeros stays
//   q_norm    in use: W / |W|_q^(q-2) for every parameter by itself; zeros stay
//   mirror    in use: radius softmax(W) over the entries of a matrix, radius e^W, radius sinh W; biases as they are
#pragma once

#include <array>
#include <cstddef>

#include "families/common/scratch.h"
#include "families/network/neural/neural.h"
#include "families/network/neural/neural_simd.h"
#include "simd/simd.h"

namespace ttr::families::neural {

template <class T>
struct Moved {
  T *W, *Z, *P;
};

template <class T>
class Steps {
 public:
  using Size = std::ptrdiff_t;
  Steps(const Simd<T>&, const NeuralModel&, const NeuralLayout&, bool backward, Arena&);

  /// Of the head at work: one row of lengths per matrix (null without row_norm); their cotangents are added to.
  std::array<const T*, max_depth + 1> norms{};
  std::array<T*, max_depth + 1> d_norms{};

  /// a, m: the gates of a chain. P is not cleared. Z is not touched without momentum.
  void chain(const Moved<T>&, T a, T m);
  /// The numbers before the step, and the cotangents after it (in) and before it (out). d.P is set.
  void chain_back(const Moved<const T>&, T a, T m, const Moved<T>& d, T* d_a, T* d_m);

  void block(const Moved<T>&, const T* A, T gain);
  /// d_A is added to, d.W becomes 0, d.P is set.
  void block_back(const Moved<const T>&, T gain, const Moved<T>& d, T* d_A, T* d_gain);

  /// The memory in use: W itself or `to` (q_norm, mirror).
  const T* in_use(const T* W, T* to) const;
  /// d_W += reverse of in_use for the cotangent `d`; without a map `d` is not used.
  void in_use_back(const T* W, const T* d, T* d_W) const;

 private:
  void orthogonalise(const NeuralLayout::Part&, const T* G, T* out);
  void orthogonalise_back(const NeuralLayout::Part&, const T* G, const T* d_out, T* d_G);
  void mirrored(const NeuralLayout::Part&, const T* W, T* to) const;
  void mirrored_back(const NeuralLayout::Part&, const T* W, const T* d, T* d_W) const;
  Size turn(const NeuralLayout::Part&, const T* G, T* X) const;
  void squared(Size rows, Size columns, const T* X, const double* c, T* B, T* BB) const;

  const Simd<T>& s;
  const NeuralSimd<T>* r_ = nullptr;
  NeuralModel m;
  NeuralLayout layout_;
  T *moves_, *x_ = nullptr, *b_ = nullptr, *bb_ = nullptr, *d_b_ = nullptr, *d_x_ = nullptr, *z_ = nullptr,
             *columns_ = nullptr, *mirrored_ = nullptr;
  Size largest_ = 0, side_ = 0, kept_ = 0;  // kept_: from one step's B to the next; 0: one place for all
};

}  // namespace ttr::families::neural
