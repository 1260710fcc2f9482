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
//   tn cuts C into regions, goes through `sum_block` rows of A and B at a time, and reads them where they lie unless they are
//   far apart: then it copies the columns of its region, A in strips, B in panels.
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
  void reserve_tn(Size M, Size N);
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
  static constexpr Size sum_block = 256;
  static constexpr Size row_block = 96, strip = 24;        // multiples of the rows of every tile: 12, 8, 6 and 4
  static constexpr Size region_bytes = 3072;               // a row of a region's A and B
  static constexpr Size longest_row = 2048, row_gap = 16;  // numbers; of rows that are copied, and between them
  Size panels(Size N) const { return (N + wide_ - 1) / wide_; }
  void resize(Buffer<T>& buffer, Size size) const;
  /// C of tn, cut into `down` x `across` regions.
  struct Regions {
    Size M, N, wide, down = 1, across = 1;
    Size row(Size i) const { return edge(M, i, down, strip); }
    Size column(Size j) const { return edge(N, j, across, wide); }

   private:
    static Size edge(Size all, Size i, Size parts, Size unit) {
      return i == parts ? all : all * i / parts / unit * unit;
    }
  };
  Regions regions(Size M, Size N) const;

  const Simd<T>& simd_;
  int threads_;
  Stopwatch* watch_;
  Size wide_;         // columns of a panel
  Panels<T> own_;     // B of nn and nt
  Buffer<T> blocks_;  // what a thread copies of A and B
};

}  // namespace ttr::model
