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
MatrixProducts<T>::MatrixProducts(Team& team, Size most_in, Activations activations)
    : simd_(ttr::simd<T>("")),
      stored_(matrix_simd(ttr::simd<float>(""))),
      team_(team),
      tile_(2 * static_cast<Size>(ttr::simd<T>("").lanes)),
      rooms_(static_cast<std::size_t>(team.threads())),
      activations_(activations) {
  if (sizeof(T) == sizeof(float)) {
    const bool rounded = activations == Activations::rounded;
    integers_ = integer_products(ttr::simd<float>(""), rounded ? 8 : 24);
    if (rounded) bf16_ = bf16_products(ttr::simd<float>(""));
  }
  for (Room& room : rooms_) {
    room.rows = Buffer<float>(std::max(most_in, tile_ * sum_block));
    if constexpr (sizeof(T) != sizeof(float)) room.wide = Buffer<T>(std::max(most_in, tile_ * sum_block));
    room.panels = Buffer<T>(strips * tile_ * sum_block);
  }
  cuts_.reserve(64), sides_.reserve(64);
}

template <class T>
const ProductSimd* MatrixProducts<T>::table_for(Stored type) const {
  for (const ProductSimd* const table : {integers_, bf16_})
    if (table && table->takes(type)) return table;
  return nullptr;
}

template <class T>
void MatrixProducts<T>::reserve(Size n, std::span<const Product<T>> products) {
  cuts_.reserve(products.size()), sides_.reserve(products.size());
  place(products, true);
  if (rounded_.size() < n * bytes_) rounded_ = Buffer<std::byte>(n * bytes_);
  if (copied_.size() < n * numbers_) copied_ = Buffer<T>(n * numbers_);
  for (const Side& side : sides_) {
    if (!side.by) continue;
    const Size panels = strips * tile_ / side.by->panel_rows * ProductSimd::blocks(sum_block) * side.by->panel_bytes;
    for (Room& room : rooms_)
      if (room.packed.size() < panels) room.packed = Buffer<std::byte>(panels);
  }
}

// Gives the x of every product its place among the numbers of a token.
template <class T>
void MatrixProducts<T>::place(std::span<const Product<T>> products, bool tiles) {
  sides_.assign(products.size(), {});
  bytes_ = numbers_ = 0;
  for (std::size_t p = 0; p < products.size(); ++p) {
    const Product<T>& here = products[p];
    Side& side = sides_[p];
    side.by = table_for(here.matrix->type);
    if (!side.by && activations_ == Activations::rounded) side.rounded = rounding_of(here.matrix->type);
    side.copied = !side.by && (tiles || side.rounded != Stored::f32);
    if (!side.by && !side.copied) continue;
    const auto same = [&](std::size_t q) {
      return sides_[q].by == side.by && sides_[q].copied == side.copied && sides_[q].rounded == side.rounded &&
             products[q].x == here.x && products[q].ldx == here.ldx && products[q].matrix->in == here.matrix->in &&
             products[q].groups == here.groups;
    };
    for (std::size_t q = 0; q < p && side.first; ++q)
      if (same(q)) side.begin = sides_[q].begin, side.first = false;
    if (!side.first) continue;
    Size& all = side.by ? bytes_ : numbers_;
    side.begin = all;
    all += here.groups * (side.by ? ProductSimd::blocks(here.matrix->in) * side.by->x_bytes : here.matrix->in);
  }
  const auto padded = [](Size size, Size pad) { return size == 0 ? 0 : (size + pad - 1) / pad * pad + pad; };
  bytes_ = padded(bytes_, 4 * row_pad), numbers_ = padded(numbers_, row_pad);
}

template <class T>
void MatrixProducts<T>::prepare(Size n, std::span<const Product<T>> products, bool tiles) {
  place(products, tiles);
  if (bytes_ + numbers_ == 0) return;
  if (rounded_.size() < n * bytes_ || copied_.size() < n * numbers_) {
    reserve(n, products);
    place(products, tiles);
  }
  const Size tasks = n * (bytes_ + 4 * numbers_) < 1 << 15 ? 1 : std::min<Size>(n, 4 * team_.threads());
  team_.run(static_cast<int>(tasks), [&](int task, int) {
    for (Size i = n * task / tasks; i < n * (task + 1) / tasks; ++i)
      for (std::size_t p = 0; p < products.size(); ++p) {
        const Side& side = sides_[p];
        const Size in = products[p].matrix->in, groups = products[p].groups;
        const T* const x = products[p].x + i * products[p].ldx;
        if (!side.first) continue;
        if (side.by) {
          if constexpr (sizeof(T) == sizeof(float)) {
            std::byte* const to = rounded_.data() + i * bytes_ + side.begin;
            const Size part = ProductSimd::blocks(in) * side.by->x_bytes;
            for (Size group = 0; group < groups; ++group) side.by->round(in, x + group * in, to + group * part);
          }
        } else if (side.copied) {
          T* const to = copied_.data() + i * numbers_ + side.begin;
          for (Size group = 0; group < groups; ++group)
            round_activations(side.rounded, in, x + group * in, to + group * in);
        }
      }
  });
}

template <class T>
std::size_t MatrixProducts<T>::bytes() const {
  std::size_t sum = 0;
  for (const Room& room : rooms_)
    sum += static_cast<std::size_t>(room.rows.size()) * sizeof(float) +
           static_cast<std::size_t>(room.wide.size() + room.panels.size()) * sizeof(T) +
           static_cast<std::size_t>(room.packed.size());
  return sum + static_cast<std::size_t>(rounded_.size()) + static_cast<std::size_t>(copied_.size()) * sizeof(T);
}

template <class T>
void MatrixProducts<T>::row(const Matrix& W, Size i, T* to) {
  if constexpr (sizeof(T) == sizeof(float)) stored_.widen(W.type, W.in, W.row(i), to);
  else {
    stored_.widen(W.type, W.in, W.row(i), rooms_[0].rows.data());
    as_numbers(rooms_[0].rows.data(), W.in, to);
  }
}

// f(number of the product, group, first row of W, rows of W, worker) for the tasks of `cuts_`.
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
      f(p, group, begin, std::min(cuts_[p].rows, products[p].matrix->out - begin), worker);
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
    const Size rows = std::max<Size>(16, wanted / bytes / 16 * 16);
    cuts_.push_back({rows, (p.matrix->out + rows - 1) / rows});
  }
  prepare(n, products, false);
  run_tasks(products, [&](std::size_t which, Size group, Size begin, Size count, int worker) {
    const Product<T>& p = products[which];
    const Matrix& W = *p.matrix;
    const Side& side = sides_[which];
    const T* const x = (side.copied ? copied_.data() + side.begin : p.x) + group * W.in;
    const Size ldx = side.copied ? numbers_ : p.ldx;
    T* const y = p.y + group * W.out;
    if constexpr (sizeof(T) == sizeof(float)) {
      // Tasks are taken in their order: the one that this thread takes next is so many further.
      const Size then = begin + team_.threads() * cuts_[which].rows;
      const std::byte* const after = then < W.out ? W.row(then) : nullptr;
      if (side.by)
        side.by->dots(W.type, W.in, count, W.row(begin), row_bytes(W.type, W.in), n, rounded(side, W, group), bytes_,
                      y + begin, p.ldy, after);
      else
        stored_.dots(W.type, W.in, count, W.row(begin), row_bytes(W.type, W.in), n, x, ldx, y + begin, p.ldy, after);
    } else {
      Room& room = rooms_[static_cast<std::size_t>(worker)];
      for (Size o = begin; o < begin + count; ++o) {
        stored_.widen(W.type, W.in, W.row(o), room.rows.data());
        const T* const numbers = as_numbers(room.rows.data(), W.in, room.wide.data());
        for (Size i = 0; i < n; ++i) y[i * p.ldy + o] = simd_.dot(W.in, numbers, x + i * ldx);
      }
    }
    add_bias(p.bias, begin, count, n, y, p.ldy);
  });
}

template <class T>
void MatrixProducts<T>::block(Size n, std::span<const Product<T>> products) {
  const Size columns_of_task = strips * tile_;
  cuts_.clear();
  for (const Product<T>& p : products)
    cuts_.push_back({columns_of_task, (p.matrix->out + columns_of_task - 1) / columns_of_task});
  prepare(n, products, true);
  run_tasks(products, [&](std::size_t which, Size group, Size first, Size columns, int worker) {
    const Product<T>& p = products[which];
    const Side& side = sides_[which];
    Room& room = rooms_[static_cast<std::size_t>(worker)];
    T* const y = p.y + group * p.matrix->out;
    if (side.by) packed_block(p, *side.by, n, first, columns, rounded(side, *p.matrix, group), y + first, room);
    else float_block(p, n, first, columns, copied_.data() + side.begin + group * p.matrix->in, y + first, room);
    add_bias(p.bias, first, columns, n, y, p.ldy);
  });
}

template <class T>
void MatrixProducts<T>::float_block(const Product<T>& p, Size n, Size first, Size columns, const T* x, T* y,
                                    Room& room) {
  const Matrix& W = *p.matrix;
  // Floats are taken from the file; those that have no alignment there are copied like any other type.
  const bool is_numbers = W.type == Stored::f32 && sizeof(T) == sizeof(float) &&
                          reinterpret_cast<std::uintptr_t>(W.data) % alignof(float) == 0;
  for (Size k0 = 0; k0 < W.in; k0 += sum_block) {
    const Size k = std::min(sum_block, W.in - k0);
    for (Size j = 0; j < columns; j += tile_) {
      const Size width = std::min(tile_, columns - j);
      const std::byte* const stored = W.row(first + j) + row_bytes(W.type, k0);
      const T* rows = reinterpret_cast<const T*>(stored);
      Size apart = W.in;
      if (!is_numbers) {
        for (Size i = 0; i < width; ++i)
          stored_.widen(W.type, k, stored + i * row_bytes(W.type, W.in), room.rows.data() + i * sum_block);
        rows = as_numbers(room.rows.data(), width * sum_block, room.wide.data()), apart = sum_block;
      }
      simd_.transpose(width, k, rows, apart, room.panels.data() + j * sum_block, tile_);
    }
    for (Size m0 = 0; m0 < n; m0 += row_block)
      for (Size j = 0; j < columns; j += tile_) {
        T* const to = y + m0 * p.ldy + j;
        simd_.gemm_nn_onto(std::min(row_block, n - m0), std::min(tile_, columns - j), k, nullptr,
                           x + m0 * numbers_ + k0, numbers_, room.panels.data() + j * sum_block, tile_, T(1),
                           k0 > 0 ? to : nullptr, p.ldy, to, p.ldy, nullptr);
      }
  }
}

template <class T>
void MatrixProducts<T>::packed_block(const Product<T>& p, const ProductSimd& by, Size n, Size first, Size columns,
                                     const std::byte* x, T* y, Room& room) {
  if constexpr (sizeof(T) == sizeof(float)) {
    const Matrix& W = *p.matrix;
    const Size width = by.panel_rows, panel = ProductSimd::blocks(sum_block) * by.panel_bytes;
    for (Size k0 = 0; k0 < W.in; k0 += sum_block) {
      const Size k = std::min(sum_block, W.in - k0), blocks = ProductSimd::blocks(k);
      for (Size j = 0; j < columns; j += width)
        by.pack(W.type, std::min(width, columns - j), k, W.row(first + j) + row_bytes(W.type, k0),
                row_bytes(W.type, W.in), room.packed.data() + j / width * panel);
      for (Size m0 = 0; m0 < n; m0 += by.tile_rows)
        for (Size j = 0; j < columns; j += width)
          by.tile(std::min(by.tile_rows, n - m0), std::min(width, columns - j), blocks,
                  x + m0 * bytes_ + k0 / ProductSimd::block * by.x_bytes, bytes_,
                  room.packed.data() + j / width * panel, k0 > 0, y + m0 * p.ldy + j, p.ldy);
    }
  }
}

template class MatrixProducts<float>;
template class MatrixProducts<double>;

}  // namespace ttr::model
