// Products of large matrices for training, on threads:
//
//   nn   C [M,N] = A B   + beta C      A [M,K], B [K,N]         y = x W
//   nt   C [M,N] = A B'  + beta C      B stored [N,K]           dx = dy W'
//   tn   C [M,N] = A' B  + beta C      A stored [K,M]           dW = x' dy
//
// Row-major with leading dimensions; beta is 0 (C is not read) or 1. The register tiles are those of the library
// (simd/simd.h). What is added here: B is packed into panels as wide as a tile, so that a panel lies in the first cache
// whatever its leading dimension is, the sum is cut into blocks of a fixed length, and rows or panels are tasks of
// threads. Neither cut depends on the number of threads, so neither do the bits. docs/model.md has the measurements.
#pragma once

#include <cstddef>
#include <vector>

#include "model/stopwatch.h"
#include "simd/simd.h"

namespace ttr::model {

template <class T>
class Gemm {
 public:
  using Size = std::ptrdiff_t;
  /// `watch`: told how long the products take, unless null.
  explicit Gemm(int threads, Stopwatch* watch = nullptr);

  /// Room for products whose B is at most K x N; without it a call may allocate.
  void reserve(Size K, Size N);
  void nn(Size M, Size N, Size K, const T* A, Size lda, const T* B, Size ldb, T beta, T* C, Size ldc);
  void nt(Size M, Size N, Size K, const T* A, Size lda, const T* B, Size ldb, T beta, T* C, Size ldc);
  void tn(Size M, Size N, Size K, const T* A, Size lda, const T* B, Size ldb, T beta, T* C, Size ldc);
  int threads() const { return threads_; }
  const Simd<T>& simd() const { return simd_; }

 private:
  static constexpr Size sum_block = 256, row_block = 64;
  void rows(Size M, Size N, Size K, const T* A, Size lda, T beta, T* C, Size ldc);

  const Simd<T>& simd_;
  int threads_;
  Stopwatch* watch_;
  Size wide_;              // columns of a panel
  std::vector<T> panels_;  // B of nn and nt; sum_block x panel for every thread of tn
};

}  // namespace ttr::model
