#include "language/matrix.h"

#include <algorithm>

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

template <class T>
void add_bias(const T* bias, Size begin, Size count, Size n, T* y, Size ldy) {
  if (!bias) return;
  for (Size i = 0; i < n; ++i)
    for (Size o = begin; o < begin + count; ++o) y[i * ldy + o] += bias[o];
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
MatrixProducts<T>::MatrixProducts(Team& team, Size most_in)
    : simd_(ttr::simd<T>("")),
      stored_(matrix_simd(ttr::simd<float>(""))),
      team_(team),
      tile_(2 * static_cast<Size>(ttr::simd<T>("").lanes)),
      rooms_(static_cast<std::size_t>(team.threads())) {
  for (Room& room : rooms_) {
    room.rows = Buffer<float>(std::max(most_in, tile_ * sum_block));
    if constexpr (sizeof(T) != sizeof(float)) room.wide = Buffer<T>(std::max(most_in, tile_ * sum_block));
    room.panels = Buffer<T>(strips * tile_ * sum_block);
    room.left = Buffer<T>(row_block * (sum_block + row_pad));
  }
  cuts_.reserve(64);
}

template <class T>
std::size_t MatrixProducts<T>::bytes() const {
  std::size_t sum = 0;
  for (const Room& room : rooms_)
    sum += static_cast<std::size_t>(room.rows.size()) * sizeof(float) +
           static_cast<std::size_t>(room.wide.size() + room.panels.size() + room.left.size()) * sizeof(T);
  return sum;
}

template <class T>
void MatrixProducts<T>::row(const Matrix& W, Size i, T* to) {
  if constexpr (sizeof(T) == sizeof(float)) stored_.widen(W.type, W.in, W.row(i), to);
  else {
    stored_.widen(W.type, W.in, W.row(i), rooms_[0].rows.data());
    as_numbers(rooms_[0].rows.data(), W.in, to);
  }
}

// f(product, group, first row of W, rows of W, worker) for the tasks of `cuts_`.
template <class T>
template <class F>
void MatrixProducts<T>::run_tasks(std::span<const Product<T>> products, F&& f) {
  Size tasks = 0;
  for (std::size_t p = 0; p < products.size(); ++p) tasks += products[p].groups * cuts_[p].tasks;
  for (Size done = 0; done < tasks; done += Team::most_tasks)
    team_.run(static_cast<int>(std::min<Size>(tasks - done, Team::most_tasks)), [&](int number, int worker) {
      Size task = done + number;
      std::size_t p = 0;
      for (; task >= products[p].groups * cuts_[p].tasks; ++p) task -= products[p].groups * cuts_[p].tasks;
      const Size group = task / cuts_[p].tasks, begin = task % cuts_[p].tasks * cuts_[p].rows;
      f(products[p], group, begin, std::min(cuts_[p].rows, products[p].matrix->out - begin), worker);
    });
}

template <class T>
void MatrixProducts<T>::tokens(Size n, std::span<const Product<T>> products) {
  // Tasks of a part of all weights: some for each thread, so that they end together, and long enough to be streams.
  Size all = 0;
  for (const Product<T>& p : products) all += p.groups * p.matrix->bytes();
  const Size wanted = std::clamp<Size>(all / (16 * team_.threads()), Size{1} << 14, Size{1} << 17);
  cuts_.clear();
  for (const Product<T>& p : products) {
    const Size bytes = std::max<Size>(row_bytes(p.matrix->type, p.matrix->in), 1);
    const Size rows = std::max<Size>(4, wanted / bytes / 4 * 4);
    cuts_.push_back({rows, (p.matrix->out + rows - 1) / rows});
  }
  run_tasks(products, [&](const Product<T>& p, Size group, Size begin, Size count, int worker) {
    const Matrix& W = *p.matrix;
    const T* const x = p.x + group * W.in;
    T* const y = p.y + group * W.out;
    if constexpr (sizeof(T) == sizeof(float)) {
      stored_.dots(W.type, W.in, count, W.row(begin), row_bytes(W.type, W.in), n, x, p.ldx, y + begin, p.ldy);
    } else {
      Room& room = rooms_[static_cast<std::size_t>(worker)];
      for (Size o = begin; o < begin + count; ++o) {
        stored_.widen(W.type, W.in, W.row(o), room.rows.data());
        const T* const numbers = as_numbers(room.rows.data(), W.in, room.wide.data());
        for (Size i = 0; i < n; ++i) y[i * p.ldy + o] = simd_.dot(W.in, numbers, x + i * p.ldx);
      }
    }
    add_bias(p.bias, begin, count, n, y, p.ldy);
  });
}

template <class T>
void MatrixProducts<T>::block(Size n, std::span<const Product<T>> products) {
  const Size columns_of_task = strips * tile_, ld = sum_block + row_pad;
  cuts_.clear();
  for (const Product<T>& p : products)
    cuts_.push_back({columns_of_task, (p.matrix->out + columns_of_task - 1) / columns_of_task});
  run_tasks(products, [&](const Product<T>& p, Size group, Size first, Size columns, int worker) {
    const Matrix& W = *p.matrix;
    Room& room = rooms_[static_cast<std::size_t>(worker)];
    const T* const x = p.x + group * W.in;
    T* const y = p.y + group * W.out;
    for (Size k0 = 0; k0 < W.in; k0 += sum_block) {
      const Size k = std::min(sum_block, W.in - k0);
      for (Size j = 0; j < columns; j += tile_) {
        const Size width = std::min(tile_, columns - j);
        for (Size i = 0; i < width; ++i)
          stored_.widen(W.type, k, W.row(first + j + i) + row_bytes(W.type, k0), room.rows.data() + i * sum_block);
        const T* const rows = as_numbers(room.rows.data(), width * sum_block, room.wide.data());
        simd_.transpose(width, k, rows, sum_block, room.panels.data() + j * sum_block, tile_);
      }
      for (Size m0 = 0; m0 < n; m0 += row_block) {
        const Size m = std::min(row_block, n - m0);
        for (Size i = 0; i < m; ++i) std::copy_n(x + (m0 + i) * p.ldx + k0, k, room.left.data() + i * ld);
        for (Size j = 0; j < columns; j += tile_) {
          T* const to = y + m0 * p.ldy + first + j;
          simd_.gemm_nn_onto(m, std::min(tile_, columns - j), k, nullptr, room.left.data(), ld,
                             room.panels.data() + j * sum_block, tile_, T(1), k0 > 0 ? to : nullptr, p.ldy, to, p.ldy,
                             nullptr);
        }
      }
    }
    add_bias(p.bias, first, columns, n, y, p.ldy);
  });
}

template class MatrixProducts<float>;
template class MatrixProducts<double>;

}  // namespace ttr::model
