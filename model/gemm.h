// Products of large matrices for training, on threads:
//
//   nn   C [M,N] = A B   + beta C      A [M,K], B [K,N]         y = x W
//   nt   C [M,N] = A B'  + beta C      B stored [N,K]           dx = dy W'
//   tn   C [M,N] = A' B  + beta C      A stored [K,M]           dW = x' dy
//
// Row-major with leading dimensions; beta is 0 (C is not read) or 1. The register tiles are those of the library
// (simd/simd.h), which are made for the sizes of a chunk. What is added here is what large matrices need:
//
//   B goes into panels as wide as a tile, cut into blocks of `sum_block` rows: a block of a panel lies in the first
//   cache, whatever the leading dimension is. A matrix of weights that serves many products is packed once (Panels).
//   A is read where it lies: its rows are used up from left to right.
//   tn packs both sides, `depth` rows at a time: A in strips of 16 columns, a cache line of floats, B in panels.
//
// Every number of C is the sum over blocks of `sum_block` in their order, so its bits depend neither on the threads nor on
// the other rows and columns. docs/model.md has the measurements.
#pragma once

#include <cstddef>
#include <vector>

#include "model/buffer.h"
#include "model/stopwatch.h"
#include "simd/simd.h"

namespace ttr::model {

/// B of nn and nt, packed.
template <class T>
class Panels {
 public:
  Size sum() const { return K_; }
  Size columns() const { return N_; }

 private:
  template <class>
  friend class Gemm;
  Buffer<T> data_;
  Size K_ = 0, N_ = 0;
};

template <class T>
class Gemm {
 public:
  /// `watch`: told how long the products take, unless null.
  explicit Gemm(int threads, Stopwatch* watch = nullptr);

  /// Room for products whose B is at most K x N; without it a call may allocate.
  void reserve(Size K, Size N);
  /// Room for tn with K rows.
  void reserve_tn(Size M, Size N, Size K);
  void nn(Size M, Size N, Size K, const T* A, Size lda, const T* B, Size ldb, T beta, T* C, Size ldc);
  void nt(Size M, Size N, Size K, const T* A, Size lda, const T* B, Size ldb, T beta, T* C, Size ldc);
  void tn(Size M, Size N, Size K, const T* A, Size lda, const T* B, Size ldb, T beta, T* C, Size ldc);

  /// B [K,N], or stored [N,K]. Allocates where `to` is smaller.
  void pack(Size K, Size N, const T* B, Size ldb, bool transposed, Panels<T>& to);
  /// C [M,N] = A B + F; F = null: nothing is added; F may be C.
  void rows(Size M, const T* A, Size lda, const Panels<T>& B, const T* F, Size ldf, T* C, Size ldc);

  int threads() const { return threads_; }
  const Simd<T>& simd() const { return simd_; }
  Stopwatch* watch() const { return watch_; }

 private:
  static constexpr Size sum_block = 128, row_block = 64, depth = 8 * sum_block;
  static constexpr Size strip = 16;  // columns of A side by side in tn
  Size panels(Size N) const { return (N + wide_ - 1) / wide_; }
  void resize(Buffer<T>& buffer, Size size) const;

  const Simd<T>& simd_;
  int threads_;
  Stopwatch* watch_;
  Size wide_;               // columns of a panel
  Panels<T> own_;           // B of nn and nt
  Buffer<T> left_, right_;  // tn
};

}  // namespace ttr::model
