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

// Rows that lie so far from each other, or on so few sets of the caches, that a block of them is better copied.
template <class T>
bool far_apart(Size ld) {
  const Size bytes = ld * Size{sizeof(T)};
  return bytes >= 4096 || (bytes >= 2048 && bytes % 1024 == 0);
}

// Columns of x [rows, columns] in strips of `width`, each [deep, width].
template <class T>
void side_by_side(Size rows, Size columns, const T* x, Size ld, Size width, Size deep, T* to) {
  for (Size i = 0; i < rows; ++i)
    for (Size j = 0, p = 0; j < columns; j += width, ++p)
      copy(x + i * ld + j, std::min(width, columns - j), to + (p * deep + i) * width);
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
  resize(blocks_, threads_ * row_block * (std::min(K, longest_row) + row_gap));
}
// As many as there are threads, or more where the columns of A and B that one needs would not stay in the second cache. The
// longer side is halved, at a multiple of a strip or panel.
template <class T>
typename Gemm<T>::Regions Gemm<T>::regions(Size M, Size N) const {
  Regions cut{M, N, wide_};
  for (;;) {
    const Size rows = (M + cut.down - 1) / cut.down, columns = (N + cut.across - 1) / cut.across;
    const bool fits = (rows + columns) * Size{sizeof(T)} <= region_bytes, enough = cut.down * cut.across >= threads_;
    if (fits && enough) return cut;
    if (std::max(rows / strip, columns / wide_) < 2) return cut;
    if (columns >= rows ? columns / wide_ >= 2 : rows / strip < 2) cut.across *= 2;
    else cut.down *= 2;
  }
}
template <class T>
void Gemm<T>::reserve_tn(Size M, Size N) {
  const Regions cut = regions(M, N);
  Size most = 0;
  for (Size i = 0; i < cut.down; ++i)
    for (Size j = 0; j < cut.across; ++j) {
      const Size m = cut.row(i + 1) - cut.row(i), n = cut.column(j + 1) - cut.column(j);
      most = std::max(most, (m + strip - 1) / strip * strip + panels(n) * wide_);
    }
  resize(blocks_, threads_ * sum_block * most);
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
  // Rows a multiple of 4 KB apart share the sets of the first cache, which has fewer ways than a tile has rows.
  const bool copied = lda * Size{sizeof(T)} % 4096 == 0 && K <= longest_row && count / cuts >= 8;
  const Size room = row_block * (K + row_gap);
  if (copied) resize(blocks_, threads_ * room);
  threads::for_each(threads_, static_cast<int>(blocks * cuts), [&](int task, int worker) {
    const Size m0 = task / cuts * row_block, m = std::min(row_block, M - m0);
    const Size first = count * (task % cuts) / cuts, last = count * (task % cuts + 1) / cuts;
    const T* left = A + m0 * lda;
    Size ld = lda;
    if (copied) {
      T* const block = blocks_.data() + worker * room;
      ld = K + row_gap;
      for (Size i = 0; i < m; ++i) copy(left + i * lda, K, block + i * ld);
      left = block;
    }
    for (Size j = first; j < last; ++j) {
      const Size n = std::min(wide_, N - j * wide_);
      T* const to = C + m0 * ldc + j * wide_;
      Size k0 = 0;
      do {  // once for K = 0, which clears C
        const Size k = std::min(sum_block, K - k0);
        const T* const onto = k0 > 0 ? to : F ? F + m0 * ldf + j * wide_ : nullptr;
        simd_.gemm_nn_onto(m, n, k, nullptr, left + k0, ld, B.data_.data() + (k0 * count + j * k) * wide_, wide_,
                           T(1), onto, k0 > 0 ? ldc : ldf, to, ldc, nullptr);
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

// A region of C is a task, and none waits for another: it goes through the rows of A and B in blocks whose columns it finds
// in the second cache when it comes back for the next tile.
template <class T>
void Gemm<T>::tn(Size M, Size N, Size K, const T* A, Size lda, const T* B, Size ldb, T beta, T* C, Size ldc) {
  const Stopwatch::Part part(watch_, &Times::product_weight);
  const Regions cut = regions(M, N);
  reserve_tn(M, N);
  const Size room = blocks_.size() / threads_;
  const bool strips = far_apart<T>(lda), panels = far_apart<T>(ldb);
  threads::for_each(threads_, static_cast<int>(cut.down * cut.across), [&](int task, int worker) {
    const Size down = task / cut.across, across = task % cut.across;
    const Size i0 = cut.row(down), m = cut.row(down + 1) - i0, j0 = cut.column(across),
               n = cut.column(across + 1) - j0;
    T* const left = blocks_.data() + worker * room;
    T* const right = left + (m + strip - 1) / strip * strip * sum_block;
    const Size step = strips ? strip : m;
    Size k0 = 0;
    do {  // once for K = 0, which clears C
      const Size k = std::min(sum_block, K - k0);
      const T *const a = A + k0 * lda + i0, *const b = B + k0 * ldb + j0;
      if (strips) side_by_side(k, m, a, lda, strip, sum_block, left);
      if (panels) side_by_side(k, n, b, ldb, wide_, sum_block, right);
      Hints ahead;  // rows to copy next: no machine foresees steps of pages
      if (const Size next = std::min(sum_block, K - k0 - k); next > 0) {
        const auto add = [&](const T* rows, Size ld, Size columns) {
          const Size bytes = columns * Size{sizeof(T)};
          ahead.pieces[ahead.count++] = {reinterpret_cast<const char*>(rows), ld * Size{sizeof(T)}, bytes, next};
          return next * ((bytes + Hints::strip - 1) / Hints::strip);
        };
        const Size parts = (strips ? add(a + k * lda, lda, m) : 0) + (panels ? add(b + k * ldb, ldb, n) : 0);
        if (parts > 0) ahead.every = std::max<Size>(1, m * n * k / simd_.lanes / Hints::round * 7 / 8 / parts);
      }
      for (Size j = 0; j < n; j += wide_)
        for (Size i = 0; i < m; i += step) {
          T* const to = C + (i0 + i) * ldc + j0 + j;
          simd_.gemm_tn_onto(std::min(step, m - i), std::min(wide_, n - j), k, nullptr,
                             strips ? left + i * sum_block : a + i, strips ? strip : lda,
                             panels ? right + j * sum_block : b + j, panels ? wide_ : ldb, T(1),
                             k0 > 0 || beta != T(0) ? to : nullptr, ldc, to, ldc, ahead.count > 0 ? &ahead : nullptr);
        }
      k0 += k;
    } while (k0 < K);
  });
}

template class Gemm<float>;
template class Gemm<double>;

}  // namespace ttr::model
