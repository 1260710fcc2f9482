// Rotary embedding (Su 2021): pair i of a row is turned by the angle (t + offset) base^(-2i/D), base = number.
// The gradient is turned back. Angles are computed in double: at token 1e6 a float angle has no correct digit left
// behind the point. Cosines and sines are made for a block of tokens at a time, for the heads of a token share them.
//
// cosFormer (Qin 2022) multiplies positive features by the cosine and by the sine of one angle per token. Trap: it
// divides the position by a fixed L_max, since the published total length cannot stream.
//
// `rotate` turns adjacent pairs by angles that it is given, and so has a gradient for them.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "prepare/row_loop.h"
#include "prepare/rule.h"

namespace ttr::prepare {
namespace {

using Size = std::ptrdiff_t;

// Numbers first, first + step, ... of every row.
template <class N>
Rows<N> columns(Rows<N> rows, int first, int step, int width) {
  if (rows.data) rows.data += first * rows.inner;
  rows.inner *= step, rows.width = width;
  return rows;
}

// Some sequences, tokens and heads.
struct Region {
  Size batch, time, head;
  Extent extent;
};
template <class N>
Rows<N> within(Rows<N> rows, const Region& region) {
  if (rows.data) rows.data = rows.row(region.batch, region.time, region.head);
  return rows;
}

// An operation that knows its row's angle. `angles` angles belong to a row; angle i of token t is
// (t + first + offset) frequency(i).
template <class T>
struct Angles {
  int angles;
  double first;
  const Rows<const T>& offset;
  const Extent& extent;
  const TokenSimd<T>& simd;

  /// apply(i, n, cosine, sine, region) for angles i .. i + n - 1 and a region, until all are done.
  template <class Frequency, class Apply>
  void each(const Frequency& frequency, const Apply& apply) const {
    constexpr int most = 128, table = 512;
    T cosine[table], sine[table];
    double frequencies[most];
    const bool own = offset.data, by_head = own && offset.head != 0 && offset.group < extent.heads;
    for (int i = 0; i < angles; i += most) {
      const int n = std::min(most, angles - i);
      for (int j = 0; j < n; ++j) frequencies[j] = frequency(i + j);
      const Size block = table / n;
      const Rows<const T> c{cosine, 0, n, 0, 1, 1, n}, s{sine, 0, n, 0, 1, 1, n};
      for (Size b = 0; b < (own ? extent.batch : 1); ++b)
        for (Size h = 0; h < (by_head ? extent.heads : 1); ++h)
          for (Size t = 0; t < extent.time; t += block) {
            const Size tokens = std::min(block, extent.time - t);
            for (Size j = 0; j < tokens; ++j) {
              const double shift = own ? static_cast<double>(*offset.row(b, t + j, h)) : 0;
              simd.elements.turns(n, static_cast<double>(t + j) + first + shift, frequencies, cosine + j * n,
                                  sine + j * n);
            }
            apply(i, n, c, s, Region{b, t, h, {own ? 1 : extent.batch, tokens, by_head ? 1 : extent.heads}});
          }
    }
  }
};

template <bool adjacent>
struct Rotary {
  // Of n pairs from pair i on the first or second numbers, or (adjacent) both.
  template <class N>
  static Rows<N> part(const Rows<N>& rows, int i, int n, int second) {
    return adjacent ? columns(rows, 2 * i, 1, 2 * n) : columns(rows, i + second * (rows.width / 2), 1, n);
  }
  static auto frequency(double base, int D) {
    return [base, D](int i) { return std::pow(base, -2.0 * i / D); };
  }

  template <class T>
  static Status forward(const Rows<const T>* from, const Rows<T>& to, double number, const Extent& extent,
                        const TokenSimd<T>& simd) noexcept {
    const int D = to.width;
    Angles<T>{D / 2, 0, from[1], extent, simd}.each(
        frequency(number, D), [&](int i, int n, const Rows<const T>& c, const Rows<const T>& s, const Region& at) {
          const Rows<const T> row = within(from[0], at);
          const Rows<T> y = within(to, at);
          if (adjacent) {
            const Rows<const T> x[] = {part(row, i, n, 0), c, s};
            loop_forward(Op::turn_pairs, x, part(y, i, n, 0), 0, at.extent, simd);
            return;
          }
          const Rows<const T> x[] = {part(row, i, n, 0), part(row, i, n, 1), c, s};
          loop_forward(Op::turn_first, x, part(y, i, n, 0), 0, at.extent, simd);
          loop_forward(Op::turn_second, x, part(y, i, n, 1), 0, at.extent, simd);
        });
    if (D % 2) {
      const Rows<const T> last = columns(from[0], D - 1, 1, 1);
      loop_forward(Op::copy, &last, columns(to, D - 1, 1, 1), 0, extent, simd);
    }
    return Status::ok;
  }
  template <class T>
  static void backward(const Rows<const T>* from, const Rows<const T>& to, const Rows<const T>& d_to,
                       const Rows<T>* d_from, double number, const Extent& extent,
                       const TokenSimd<T>& simd) noexcept {
    if (!d_from[0].data) return;
    const int D = to.width;
    Angles<T>{D / 2, 0, from[1], extent, simd}.each(
        frequency(number, D), [&](int i, int n, const Rows<const T>& c, const Rows<const T>& s, const Region& at) {
          const Rows<const T> row = within(from[0], at), y = within(to, at), dy = within(d_to, at);
          const Rows<T> d_row = within(d_from[0], at);
          if (adjacent) {
            const Rows<const T> x[] = {part(row, i, n, 0), c, s};
            const Rows<T> dx[] = {part(d_row, i, n, 0), {}, {}};
            loop_backward(Op::turn_pairs, x, part(y, i, n, 0), part(dy, i, n, 0), dx, 0, at.extent, simd);
            return;
          }
          const Rows<const T> x[] = {part(row, i, n, 0), part(row, i, n, 1), c, s};
          const Rows<T> dx[] = {part(d_row, i, n, 0), part(d_row, i, n, 1), {}, {}};
          for (const int second : {0, 1})
            loop_backward(second ? Op::turn_second : Op::turn_first, x, part(y, i, n, second), part(dy, i, n, second),
                          dx, 0, at.extent, simd);
        });
    if (D % 2) {
      const Rows<const T> last = columns(from[0], D - 1, 1, 1);
      const Rows<T> d_last = columns(d_from[0], D - 1, 1, 1);
      loop_backward(Op::copy, &last, columns(to, D - 1, 1, 1), columns(d_to, D - 1, 1, 1), &d_last, 0, extent, simd);
    }
  }
};

struct CosFormer {
  static auto frequency(double length) {
    return [length](int) { return std::numbers::pi / (2 * length); };
  }
  template <class T>
  static Status forward(const Rows<const T>* from, const Rows<T>& to, double number, const Extent& extent,
                        const TokenSimd<T>& simd) noexcept {
    const int D = from[0].width;
    Angles<T>{1, 1, from[1], extent, simd}.each(
        frequency(number), [&](int, int, const Rows<const T>& c, const Rows<const T>& s, const Region& at) {
          const Rows<T> y = within(to, at);
          for (const bool second : {false, true}) {
            const Rows<const T> x[] = {within(from[0], at), second ? s : c};
            loop_forward(Op::relu_times, x, columns(y, second * D, 1, D), 0, at.extent, simd);
          }
        });
    return Status::ok;
  }
  template <class T>
  static void backward(const Rows<const T>* from, const Rows<const T>& to, const Rows<const T>& d_to,
                       const Rows<T>* d_from, double number, const Extent& extent,
                       const TokenSimd<T>& simd) noexcept {
    if (!d_from[0].data) return;
    const int D = from[0].width;
    Angles<T>{1, 1, from[1], extent, simd}.each(
        frequency(number), [&](int, int, const Rows<const T>& c, const Rows<const T>& s, const Region& at) {
          const Rows<const T> y = within(to, at), dy = within(d_to, at);
          const Rows<T> dx[] = {within(d_from[0], at), {}};
          for (const bool second : {false, true}) {
            const Rows<const T> x[] = {within(from[0], at), second ? s : c};
            loop_backward(Op::relu_times, x, columns(y, second * D, 1, D), columns(dy, second * D, 1, D), dx, 0,
                          at.extent, simd);
          }
        });
  }
};

struct Rotate {
  template <class T>
  static Status forward(const Rows<const T>* from, const Rows<T>& to, double, const Extent& extent,
                        const TokenSimd<T>& simd) noexcept {
    const int turned = 2 * from[1].width, rest = to.width - turned;
    const Rows<const T> x[] = {columns(from[0], 0, 1, turned), from[1]};
    loop_forward(Op::rotate_pairs, x, columns(to, 0, 1, turned), 0, extent, simd);
    if (rest <= 0) return Status::ok;
    const Rows<const T> kept = columns(from[0], turned, 1, rest);
    return loop_forward(Op::copy, &kept, columns(to, turned, 1, rest), 0, extent, simd);
  }
  template <class T>
  static void backward(const Rows<const T>* from, const Rows<const T>& to, const Rows<const T>& d_to,
                       const Rows<T>* d_from, double, const Extent& extent, const TokenSimd<T>& simd) noexcept {
    const int turned = 2 * from[1].width, rest = to.width - turned;
    const Rows<const T> x[] = {columns(from[0], 0, 1, turned), from[1]};
    const Rows<T> dx[] = {columns(d_from[0], 0, 1, turned), d_from[1]};
    loop_backward(Op::rotate_pairs, x, columns(to, 0, 1, turned), columns(d_to, 0, 1, turned), dx, 0, extent, simd);
    if (rest <= 0) return;
    const Rows<const T> kept = columns(from[0], turned, 1, rest);
    const Rows<T> d_kept = columns(d_from[0], turned, 1, rest);
    loop_backward(Op::copy, &kept, columns(to, turned, 1, rest), columns(d_to, turned, 1, rest), &d_kept, 0, extent,
                  simd);
  }
};

}  // namespace

template <class T>
Kernel<T> rotary(Op op) {
  switch (op) {
    case Op::rotary_interleaved:
      return {Rotary<true>::forward<T>, Rotary<true>::backward<T>};
    case Op::rotary_half:
      return {Rotary<false>::forward<T>, Rotary<false>::backward<T>};
    case Op::cosformer:
      return {CosFormer::forward<T>, CosFormer::backward<T>};
    case Op::rotate:
      return {Rotate::forward<T>, Rotate::backward<T>};
    default:
      return {};
  }
}

template Kernel<float> rotary<float>(Op);
template Kernel<double> rotary<double>(Op);

}  // namespace ttr::prepare
