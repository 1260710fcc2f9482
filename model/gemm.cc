// gemm.h: packing, cutting and threads around the library's tiles.
#include "model/gemm.h"

#include <algorithm>

#include "threads/pool.h"

namespace ttr::model {

template <class T>
Gemm<T>::Gemm(int threads, Stopwatch* watch)
    : simd_(ttr::simd<T>("")), threads_(threads), watch_(watch), wide_(2 * static_cast<Size>(ttr::simd<T>("").lanes)) {
  reserve(sum_block, wide_);
}

template <class T>
void Gemm<T>::reserve(Size K, Size N) {
  const Size needed = std::max(K * (N + wide_), threads_ * sum_block * wide_);
  if (static_cast<Size>(panels_.size()) < needed) panels_.resize(static_cast<std::size_t>(needed));
}

// Panel j of B is [K, wide] from panels_ + j K wide; the last one has fewer columns and the same leading dimension.
template <class T>
void Gemm<T>::nn(Size M, Size N, Size K, const T* A, Size lda, const T* B, Size ldb, T beta, T* C, Size ldc) {
  const Stopwatch::Part part(watch_, &Times::product_forward);
  reserve(K, N);
  const Size panels = (N + wide_ - 1) / wide_;
  threads::for_each(threads_, static_cast<int>(panels), [&](int j, int) {
    const Size n = std::min(wide_, N - j * wide_);
    T* const to = panels_.data() + j * K * wide_;
    for (Size k = 0; k < K; ++k) std::copy_n(B + k * ldb + j * wide_, n, to + k * wide_);
  });
  rows(M, N, K, A, lda, beta, C, ldc);
}

template <class T>
void Gemm<T>::nt(Size M, Size N, Size K, const T* A, Size lda, const T* B, Size ldb, T beta, T* C, Size ldc) {
  const Stopwatch::Part part(watch_, &Times::product_input);
  reserve(K, N);
  const Size panels = (N + wide_ - 1) / wide_;
  threads::for_each(threads_, static_cast<int>(panels), [&](int j, int) {
    const Size n = std::min(wide_, N - j * wide_);
    simd_.transpose(n, K, B + j * wide_ * ldb, ldb, panels_.data() + j * K * wide_, wide_);
  });
  rows(M, N, K, A, lda, beta, C, ldc);
}

template <class T>
void Gemm<T>::rows(Size M, Size N, Size K, const T* A, Size lda, T beta, T* C, Size ldc) {
  const Size blocks = (M + row_block - 1) / row_block;
  threads::for_each(threads_, static_cast<int>(blocks), [&](int block, int) {
    const Size m0 = block * row_block, m = std::min(row_block, M - m0);
    Size k0 = 0;
    do {  // once for K = 0, which clears C
      const Size k = std::min(sum_block, K - k0);
      for (Size j = 0; j < N; j += wide_)
        simd_.gemm_nn(m, std::min(wide_, N - j), k, 1, A + m0 * lda + k0, lda, panels_.data() + j * K + k0 * wide_,
                      wide_, k0 == 0 ? beta : T(1), C + m0 * ldc + j, ldc);
      k0 += sum_block;
    } while (k0 < K);
  });
}

template <class T>
void Gemm<T>::tn(Size M, Size N, Size K, const T* A, Size lda, const T* B, Size ldb, T beta, T* C, Size ldc) {
  const Stopwatch::Part part(watch_, &Times::product_weight);
  reserve(sum_block, wide_);
  const Size panels = (N + wide_ - 1) / wide_, strip = 128, strips = (M + strip - 1) / strip;
  threads::for_each(threads_, static_cast<int>(panels * strips), [&](int task, int worker) {
    const Size j = task / strips * wide_, n = std::min(wide_, N - j);
    const Size m0 = task % strips * strip, m = std::min(strip, M - m0);
    T* const packed = panels_.data() + worker * sum_block * wide_;
    Size k0 = 0;
    do {
      const Size k = std::min(sum_block, K - k0);
      for (Size i = 0; i < k; ++i) std::copy_n(B + (k0 + i) * ldb + j, n, packed + i * wide_);
      simd_.gemm_tn(m, n, k, 1, A + k0 * lda + m0, lda, packed, wide_, k0 == 0 ? beta : T(1), C + m0 * ldc + j, ldc);
      k0 += sum_block;
    } while (k0 < K);
  });
}

template class Gemm<float>;
template class Gemm<double>;

}  // namespace ttr::model
