// Operations that are one or more of the vector operations after their operands have been looked at: an operand may be
// left out (of add, subtract, skip and silu_gate; its term or factor is then not computed, so that a product with an
// infinite partner cannot turn into NaN), a matrix is made of two rows, or tokens are copied to other places.
#include <algorithm>
#include <cmath>

#include "prepare/row_loop.h"
#include "prepare/rule.h"

namespace ttr::prepare {
namespace {

using Size = std::ptrdiff_t;

// A vector operation on chosen operands.
struct Choice {
  Op op;
  int from[3] = {0, 1, 2};
};

template <class T>
Choice resolve(Op op, const Rows<const T>* from) {
  const bool first = from[0].data, second = from[1].data;
  switch (op) {
    case Op::add:
    case Op::subtract:
      if (first && second) return {op};
      if (second) return {op == Op::add ? Op::copy : Op::negate, {1}};
      break;
    case Op::skip:
      if (second && from[2].data) {
        if (first) return {op};
        return {Op::multiply, {1, 2}};
      }
      break;
    default:
      if (second) return {op};
  }
  return first ? Choice{Op::copy} : Choice{Op::zero};
}

template <class T, Op op>
Status optional_forward(const Rows<const T>* from, const Rows<T>& to, double number, const Extent& extent,
                        const TokenSimd<T>& simd) noexcept {
  const Choice c = resolve(op, from);
  Rows<const T> chosen[3];
  for (int i = 0; i < facts(c.op).operands; ++i) chosen[i] = from[c.from[i]];
  return loop_forward(c.op, chosen, to, number, extent, simd);
}
template <class T, Op op>
void optional_backward(const Rows<const T>* from, const Rows<const T>& to, const Rows<const T>& d_to,
                       const Rows<T>* d_from, double number, const Extent& extent,
                       const TokenSimd<T>& simd) noexcept {
  const Choice c = resolve(op, from);
  Rows<const T> chosen[3];
  Rows<T> d_chosen[3];
  for (int i = 0; i < facts(c.op).operands; ++i) chosen[i] = from[c.from[i]], d_chosen[i] = d_from[c.from[i]];
  loop_backward(c.op, chosen, to, d_to, d_chosen, number, extent, simd);
}
template <class T, Op op>
Kernel<T> optional() {
  return {optional_forward<T, op>, optional_backward<T, op>};
}

// A row as the first axis of a matrix: element (f, d) is element f of the row.
template <class N>
Rows<N> standing(Rows<N> row) {
  row.outer = row.inner, row.height = row.width;
  row.inner = 0, row.width = 1;
  return row;
}
template <class T>
Status erase_forward(const Rows<const T>* from, const Rows<T>& to, double number, const Extent& extent,
                     const TokenSimd<T>& simd) noexcept {
  const Rows<const T> x[2] = {standing(from[0]), from[1]};
  return loop_forward(Op::erase_log, x, to, number, extent, simd);
}
template <class T>
void erase_backward(const Rows<const T>* from, const Rows<const T>& to, const Rows<const T>& d_to,
                    const Rows<T>* d_from, double number, const Extent& extent, const TokenSimd<T>& simd) noexcept {
  const Rows<const T> x[2] = {standing(from[0]), from[1]};
  const Rows<T> dx[2] = {standing(d_from[0]), d_from[1]};
  loop_backward(Op::erase_log, x, to, d_to, dx, number, extent, simd);
}

// Rows and tokens from one place to another. A rule says which copies there are: count(), and copy(i, extent), of
// which operand, where its numbers start, and which tokens of which numbers of the result they become.
struct Part {
  int operand = 0;
  Size from_time = 0, from_every = 1, to_time = 0, to_every = 1;  // first token, and distance of the next
  Size tokens = 0;
  int from_first = 0, to_first = 0, width = 0;  // numbers of a row
};

template <class N>
Rows<N> part_of(Rows<N> rows, Size time, Size every, int first, int width) {
  if (rows.data) rows.data += time * rows.time + first * rows.inner;
  rows.time *= every, rows.width = width;
  return rows;
}

template <Op op>
struct Parts {
  static constexpr int count = facts(op).operands;
  static constexpr bool fills = facts(op).tokens == Tokens::spread;  // zeros where nothing is copied

  static Size pairs(double number) { return std::max<Size>(1, std::lround(number)); }
  static Part part(int i, int from_width, int to_width, double number, Size time) {
    Part p;
    p.operand = i, p.tokens = time, p.width = to_width;
    const Size n = pairs(number);
    switch (op) {
      case Op::first_half:
        break;
      case Op::second_half:
        p.from_first = from_width / 2;
        break;
      case Op::join_three:
        p.to_first = i, p.width = 1;
        break;
      case Op::interleave:
        p.to_time = i, p.to_every = 2, p.tokens = (time - i + 1) / 2;
        break;
      case Op::spread_last:
        p.to_time = n - 1, p.to_every = n, p.tokens = time / n;
        break;
      case Op::spread_first:
        p.to_every = n, p.tokens = (time + n - 1) / n;
        break;
      default:  // take_last
        p.from_time = n - 1, p.from_every = n;
    }
    return p;
  }
};

template <class T, Op op>
Status parts_forward(const Rows<const T>* from, const Rows<T>& to, double number, const Extent& extent,
                     const TokenSimd<T>& simd) noexcept {
  if (Parts<op>::fills) loop_forward<T>(Op::zero, nullptr, to, 0, extent, simd);
  for (int i = 0; i < Parts<op>::count; ++i) {
    const Part p = Parts<op>::part(i, from[i].width, to.width, number, extent.time);
    const Rows<const T> x = part_of(from[i], p.from_time, p.from_every, p.from_first, p.width);
    loop_forward(Op::copy, &x, part_of(to, p.to_time, p.to_every, p.to_first, p.width), 0,
                 {extent.batch, p.tokens, extent.heads}, simd);
  }
  return Status::ok;
}
template <class T, Op op>
void parts_backward(const Rows<const T>* from, const Rows<const T>& to, const Rows<const T>& d_to,
                    const Rows<T>* d_from, double number, const Extent& extent, const TokenSimd<T>& simd) noexcept {
  for (int i = 0; i < Parts<op>::count; ++i) {
    const Part p = Parts<op>::part(i, from[i].width, to.width, number, extent.time);
    const auto result = [&](const Rows<const T>& rows) {
      return part_of(rows, p.to_time, p.to_every, p.to_first, p.width);
    };
    const Rows<const T> x = part_of(from[i], p.from_time, p.from_every, p.from_first, p.width);
    const Rows<T> dx = part_of(d_from[i], p.from_time, p.from_every, p.from_first, p.width);
    loop_backward(Op::copy, &x, result(to), result(d_to), &dx, 0, {extent.batch, p.tokens, extent.heads}, simd);
  }
}
template <class T, Op op>
Kernel<T> parts() {
  return {parts_forward<T, op>, parts_backward<T, op>};
}

}  // namespace

template <class T>
Kernel<T> arithmetic(Op op) {
  switch (op) {
    case Op::add:
      return optional<T, Op::add>();
    case Op::subtract:
      return optional<T, Op::subtract>();
    case Op::skip:
      return optional<T, Op::skip>();
    case Op::silu_gate:
      return optional<T, Op::silu_gate>();
    case Op::erase_log:
      return {erase_forward<T>, erase_backward<T>};
    case Op::first_half:
      return parts<T, Op::first_half>();
    case Op::second_half:
      return parts<T, Op::second_half>();
    case Op::join_three:
      return parts<T, Op::join_three>();
    case Op::interleave:
      return parts<T, Op::interleave>();
    case Op::spread_last:
      return parts<T, Op::spread_last>();
    case Op::spread_first:
      return parts<T, Op::spread_first>();
    case Op::take_last:
      return parts<T, Op::take_last>();
    default:
      return {};
  }
}

template Kernel<float> arithmetic<float>(Op);
template Kernel<double> arithmetic<double>(Op);

}  // namespace ttr::prepare
