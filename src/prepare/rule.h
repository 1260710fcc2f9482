// What an operation is made of. Most are formulas for vectors (looped over by row_loop.h, some after arithmetic.cc has
// looked at their operands); the others are rules: a rule says what happens to one row in scalars, the loops over rows
// are here.
//
// A rule has forward(Forward<T>) and backward(Backward<T>); it is made once per call and may keep things
// from one row to the next (tables of the rotary embedding). Every file of operations lists its rules in one function
// Op -> Kernel; operations.cc asks them in turn.
#pragma once

#include <cstddef>
#include <type_traits>

#include "prepare/operations.h"
#include "prepare/token_simd.h"

namespace ttr::prepare {

/// One row of an operand, or one matrix. Without data: left out, or its gradient is not wanted.
template <class T>
struct Line {
  T* data = nullptr;
  std::ptrdiff_t inner = 0, outer = 0;
  int width = 1, height = 1;

  T& operator[](int d) const { return data[d * inner]; }
  T& operator()(int f, int d) const { return data[f * outer + d * inner]; }
  T& each(int d) const { return data[width == 1 ? 0 : d * inner]; }  // a row of one number serves every d
  std::remove_const_t<T> each(int d, std::remove_const_t<T> absent) const { return data ? each(d) : absent; }
  explicit operator bool() const { return data != nullptr; }
};

template <class T>
struct Forward {
  const Line<const T>* x;
  Line<T> y;
  std::ptrdiff_t t;
  bool& in_domain;
};

template <class T>
struct Backward {
  const Line<const T>* x;
  Line<const T> y, dy;
  const Line<T>* dx;
  std::ptrdiff_t t;
};

struct Rule {
  double number = 0;
};

template <class T>
Line<T> line(const Rows<T>& rows, std::ptrdiff_t b, std::ptrdiff_t t, std::ptrdiff_t h) {
  return {rows.data ? rows.row(b, t, h) : nullptr, rows.inner, rows.outer, rows.width, rows.height};
}

template <class T, Op op, class R>
Status run_forward(const Rows<const T>* from, const Rows<T>& to, double number, const Extent& extent,
                   const TokenSimd<T>&) noexcept {
  R rule;
  rule.number = number;
  bool in_domain = true;
  Line<const T> x[facts(op).operands];
  for (std::ptrdiff_t b = 0; b < extent.batch; ++b)
    for (std::ptrdiff_t t = 0; t < extent.time; ++t)
      for (std::ptrdiff_t h = 0; h < extent.heads; ++h) {
        for (int i = 0; i < facts(op).operands; ++i) x[i] = line(from[i], b, t, h);
        rule.forward(Forward<T>{x, line(to, b, t, h), t, in_domain});
      }
  return in_domain ? Status::ok : Status::out_of_domain;
}

template <class T, Op op, class R>
void run_backward(const Rows<const T>* from, const Rows<const T>& to, const Rows<const T>& d_to,
                  const Rows<T>* d_from, double number, const Extent& extent, const TokenSimd<T>&) noexcept {
  R rule;
  rule.number = number;
  Line<const T> x[facts(op).operands];
  Line<T> dx[facts(op).operands];
  for (std::ptrdiff_t b = 0; b < extent.batch; ++b)
    for (std::ptrdiff_t t = 0; t < extent.time; ++t)
      for (std::ptrdiff_t h = 0; h < extent.heads; ++h) {
        for (int i = 0; i < facts(op).operands; ++i) {
          x[i] = line(from[i], b, t, h);
          dx[i] = line(d_from[i], b, t, h);
        }
        rule.backward(Backward<T>{x, line(to, b, t, h), line(d_to, b, t, h), dx, t});
      }
}

template <class T>
struct Kernel {
  Status (*forward)(const Rows<const T>*, const Rows<T>&, double, const Extent&,
                    const TokenSimd<T>&) noexcept = nullptr;
  void (*backward)(const Rows<const T>*, const Rows<const T>&, const Rows<const T>&, const Rows<T>*, double,
                   const Extent&, const TokenSimd<T>&) noexcept = nullptr;
};

template <class T, Op op, class R>
Kernel<T> kernel() {
  return {run_forward<T, op, R>, run_backward<T, op, R>};
}

/// The operations of one file; an empty kernel for those of the others.
template <class T>
Kernel<T> arithmetic(Op);
template <class T>
Kernel<T> feature_maps(Op);
template <class T>
Kernel<T> matrix_features(Op);
template <class T>
Kernel<T> rotary(Op);

}  // namespace ttr::prepare
