// gemm.h: packing, cutting and threads around the library's tiles.
#include "model/gemm.h"

#include <algorithm>
#include <cstring>

#include "threads/pool.h"

namespace ttr::model {
namespace {

template <class T>
void copy(const T* from, Size count, T* to) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  if (bytes == 128) std::memcpy(to, from, 128);  // a length that is known is no call
  else if (bytes == 64) std::memcpy(to, from, 64);
  else std::memcpy(to, from, bytes);
}

}  // namespace

template <class T>
Gemm<T>::Gemm(int threads, Stopwatch* watch)
    : simd_(ttr::simd<T>("")),
      threads_(threads),
      watch_(watch),
      wide_(2 * static_cast<Size>(ttr::simd<T>("").lanes)) {}

template <class T>
void Gemm<T>::resize(Buffer<T>& buffer, Size size) const {
  if (buffer.size() < size) buffer = Buffer<T>(size);
}
template <class T>
void Gemm<T>::reserve(Size K, Size N) {
  resize(own_.data_, K * panels(N) * wide_);
}
template <class T>
void Gemm<T>::reserve_tn(Size M, Size N, Size K) {
  const Size deep = std::min(depth, (K + sum_block - 1) / sum_block * sum_block);
  resize(left_, deep * ((M + strip - 1) / strip) * strip), resize(right_, deep * panels(N) * wide_);
}

// Rows k0 .. of panel j are [k, wide] from k0 panels wide + j k wide: blocks of sum_block rows, in them the panels.
template <class T>
void Gemm<T>::pack(Size K, Size N, const T* B, Size ldb, bool transposed, Panels<T>& to) {
  resize(to.data_, K * panels(N) * wide_);
  to.K_ = K, to.N_ = N;
  const Size count = panels(N), blocks = (K + sum_block - 1) / sum_block;
  threads::for_each(threads_, static_cast<int>(count * blocks), [&](int task, int) {
    const Size k0 = task / count * sum_block, k = std::min(sum_block, K - k0);
    const Size j = task % count, n = std::min(wide_, N - j * wide_);
    T* const panel = to.data_.data() + (k0 * count + j * k) * wide_;
    if (transposed) simd_.transpose(n, k, B + j * wide_ * ldb + k0, ldb, panel, wide_);
    else
      for (Size i = 0; i < k; ++i) copy(B + (k0 + i) * ldb + j * wide_, n, panel + i * wide_);
  });
}

template <class T>
void Gemm<T>::rows(Size M, const T* A, Size lda, const Panels<T>& B, const T* F, Size ldf, T* C, Size ldc) {
  const Size K = B.K_, N = B.N_, count = panels(N), blocks = (M + row_block - 1) / row_block;
  // Few rows: their columns are tasks too.
  const Size cuts = std::clamp<Size>(8 / std::max<Size>(blocks, 1), 1, std::max<Size>(1, count / 4));
  threads::for_each(threads_, static_cast<int>(blocks * cuts), [&](int task, int) {
    const Size m0 = task / cuts * row_block, m = std::min(row_block, M - m0);
    const Size first = count * (task % cuts) / cuts, last = count * (task % cuts + 1) / cuts;
    for (Size j = first; j < last; ++j) {
      const Size n = std::min(wide_, N - j * wide_);
      T* const to = C + m0 * ldc + j * wide_;
      Size k0 = 0;
      do {  // once for K = 0, which clears C
        const Size k = std::min(sum_block, K - k0);
        const T* const onto = k0 > 0 ? to : F ? F + m0 * ldf + j * wide_ : nullptr;
        simd_.gemm_nn_onto(m, n, k, nullptr, A + m0 * lda + k0, lda, B.data_.data() + (k0 * count + j * k) * wide_,
                           wide_, T(1), onto, k0 > 0 ? ldc : ldf, to, ldc, nullptr);
        k0 += sum_block;
      } while (k0 < K);
    }
  });
}

template <class T>
void Gemm<T>::nn(Size M, Size N, Size K, const T* A, Size lda, const T* B, Size ldb, T beta, T* C, Size ldc) {
  const Stopwatch::Part part(watch_, &Times::product_forward);
  pack(K, N, B, ldb, false, own_);
  rows(M, A, lda, own_, beta == T(0) ? nullptr : C, ldc, C, ldc);
}

template <class T>
void Gemm<T>::nt(Size M, Size N, Size K, const T* A, Size lda, const T* B, Size ldb, T beta, T* C, Size ldc) {
  const Stopwatch::Part part(watch_, &Times::product_input);
  pack(K, N, B, ldb, true, own_);
  rows(M, A, lda, own_, beta == T(0) ? nullptr : C, ldc, C, ldc);
}

// Strip s of block b of A is [sum_block, strip], panel j of B is [sum_block, wide]; the last ones have fewer columns and
// the same place.
template <class T>
void Gemm<T>::tn(Size M, Size N, Size K, const T* A, Size lda, const T* B, Size ldb, T beta, T* C, Size ldc) {
  const Stopwatch::Part part(watch_, &Times::product_weight);
  reserve_tn(M, N, K);
  const Size strips = (M + strip - 1) / strip, count = panels(N);
  const Size group = 4, groups = (strips + group - 1) / group;  // strips of a task
  Size begin = 0;
  do {  // once for K = 0, which clears C
    const Size end = std::min(begin + depth, K), blocks = (end - begin + sum_block - 1) / sum_block;
    threads::for_each(threads_, static_cast<int>(2 * blocks), [&](int task, int) {
      const Size b = task / 2, k0 = begin + b * sum_block, k = std::min(sum_block, end - k0);
      const bool of_left = task % 2 == 0;
      const Size width = of_left ? strip : wide_, all = of_left ? M : N, parts = of_left ? strips : count;
      const T* const from = (of_left ? A : B) + k0 * (of_left ? lda : ldb);
      T* const to = (of_left ? left_ : right_).data() + b * parts * sum_block * width;
      for (Size i = 0; i < k; ++i)
        for (Size p = 0; p < parts; ++p)
          copy(from + i * (of_left ? lda : ldb) + p * width, std::min(width, all - p * width),
               to + (p * sum_block + i) * width);
    });
    threads::for_each(threads_, static_cast<int>(groups * count), [&](int task, int) {
      const Size j = task / groups, n = std::min(wide_, N - j * wide_), s0 = task % groups * group;
      Size b = 0;
      do {
        const Size k = std::min(sum_block, end - begin - b * sum_block);
        for (Size s = s0; s < std::min(strips, s0 + group); ++s) {
          const Size m = std::min(strip, M - s * strip);
          T* const to = C + s * strip * ldc + j * wide_;
          simd_.gemm_tn(m, n, k, 1, left_.data() + (b * strips + s) * sum_block * strip, strip,
                        right_.data() + (b * count + j) * sum_block * wide_, wide_,
                        begin == 0 && b == 0 ? beta : T(1), to, ldc);
        }
      } while (++b < blocks);
    });
    begin = end;
  } while (begin < K);
}

template class Gemm<float>;
template class Gemm<double>;

}  // namespace ttr::model
