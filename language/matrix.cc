#include "language/matrix.h"

#include <algorithm>

#include "threads/pool.h"

namespace ttr::model {
namespace {

template <class T>
const T* as_numbers(const float* from, Size n, T* to) {
  if constexpr (sizeof(T) == sizeof(float)) return from;
  else {
    for (Size i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
    return to;
  }
}

}  // namespace

Matrix Matrix::of(Size out, Size in, std::vector<float> numbers) {
  Matrix result;
  result.out = out, result.in = in;
  result.numbers = std::make_shared<std::vector<float>>(std::move(numbers));
  result.data = reinterpret_cast<const std::byte*>(result.numbers->data());
  return result;
}

template <class T>
MatrixProducts<T>::MatrixProducts(int threads, Size most_in)
    : simd_(ttr::simd<T>("")),
      stored_(matrix_simd(ttr::simd<float>(""))),
      threads_(threads),
      tile_(2 * static_cast<Size>(ttr::simd<T>("").lanes)),
      rooms_(static_cast<std::size_t>(threads)) {
  for (Room& room : rooms_) {
    room.rows = Buffer<float>(std::max(most_in, strips * tile_ * sum_block));
    room.wide = Buffer<T>(std::max(most_in, strips * tile_ * sum_block) + tile_ * sum_block);
  }
}

template <class T>
void MatrixProducts<T>::row(const Matrix& W, Size i, T* to) {
  if constexpr (sizeof(T) == sizeof(float)) stored_.widen(W.type, W.in, W.row(i), to);
  else {
    stored_.widen(W.type, W.in, W.row(i), rooms_[0].rows.data());
    as_numbers(rooms_[0].rows.data(), W.in, to);
  }
}

template <class T>
void MatrixProducts<T>::tokens(const Matrix& W, Size n, const T* x, Size ldx, T* y, Size ldy) {
  // Tasks of about 32 kB of weights, at most some hundred.
  const Size bytes = std::max<Size>(row_bytes(W.type, W.in), 1);
  const Size rows = std::max({Size{4}, (Size{1} << 15) / bytes, (W.out + 255) / 256});
  const Size tasks = (W.out + rows - 1) / rows;
  threads::for_each(threads_, static_cast<int>(tasks), [&](int task, int worker) {
    const Size begin = task * rows, count = std::min(rows, W.out - begin);
    if constexpr (sizeof(T) == sizeof(float)) {
      stored_.dots(W.type, W.in, count, W.row(begin), row_bytes(W.type, W.in), n, x, ldx, y + begin, ldy);
    } else {
      Room& room = rooms_[static_cast<std::size_t>(worker)];
      for (Size o = begin; o < begin + count; ++o) {
        stored_.widen(W.type, W.in, W.row(o), room.rows.data());
        const T* const numbers = as_numbers(room.rows.data(), W.in, room.wide.data());
        for (Size i = 0; i < n; ++i) y[i * ldy + o] = simd_.dot(W.in, numbers, x + i * ldx);
      }
    }
  });
}

template <class T>
void MatrixProducts<T>::block(const Matrix& W, Size n, const T* x, Size ldx, T* y, Size ldy) {
  const Size group = strips * tile_, tasks = (W.out + group - 1) / group;
  threads::for_each(threads_, static_cast<int>(tasks), [&](int task, int worker) {
    Room& room = rooms_[static_cast<std::size_t>(worker)];
    T* const packed = room.wide.data() + tile_ * sum_block;
    const Size first = task * group, columns = std::min(group, W.out - first);
    for (Size k0 = 0; k0 < W.in; k0 += sum_block) {
      const Size k = std::min(sum_block, W.in - k0);
      for (Size j = 0; j < columns; j += tile_) {
        const Size width = std::min(tile_, columns - j);
        for (Size i = 0; i < width; ++i)
          stored_.widen(W.type, k, W.row(first + j + i) + row_bytes(W.type, k0), room.rows.data() + i * sum_block);
        const T* const rows = as_numbers(room.rows.data(), width * sum_block, room.wide.data());
        simd_.transpose(width, k, rows, sum_block, packed + j * sum_block, tile_);
      }
      for (Size m0 = 0; m0 < n; m0 += row_block) {
        const Size m = std::min(row_block, n - m0);
        for (Size j = 0; j < columns; j += tile_) {
          T* const to = y + m0 * ldy + first + j;
          simd_.gemm_nn_onto(m, std::min(tile_, columns - j), k, nullptr, x + m0 * ldx + k0, ldx,
                             packed + j * sum_block, tile_, T(1), k0 > 0 ? to : nullptr, ldy, to, ldy, nullptr);
        }
      }
    }
  });
}

template class MatrixProducts<float>;
template class MatrixProducts<double>;

}  // namespace ttr::model
