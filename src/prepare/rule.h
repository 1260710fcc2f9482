// What an operation is made of: a rule says what happens to one row, the loops over rows are here.
//
// A rule has `operands`, forward(Forward<T>) and backward(Backward<T>); it is made once per call and may keep things
// from one row to the next (tables of the rotary embedding). Every file of operations lists its rules in one function
// Op -> Kernel; operations.cc asks them in turn.
#pragma once

#include <cstddef>
#include <type_traits>

#include "prepare/operations.h"

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

template <int n>
struct Rule {
  static constexpr int operands = n;
  double number = 0;
  /// The token of the operands that row t of the result is made from.
  std::ptrdiff_t source(std::ptrdiff_t t) const { return t; }
};

template <class T>
Line<T> line(const Rows<T>& rows, std::ptrdiff_t b, std::ptrdiff_t t, std::ptrdiff_t h) {
  return {rows.data ? rows.row(b, t, h) : nullptr, rows.inner, rows.outer, rows.width, rows.height};
}

template <class T, class R>
Status run_forward(const Rows<const T>* from, const Rows<T>& to, double number, const Extent& extent) noexcept {
  R rule;
  rule.number = number;
  bool in_domain = true;
  Line<const T> x[R::operands];
  for (std::ptrdiff_t b = 0; b < extent.batch; ++b)
    for (std::ptrdiff_t t = 0; t < extent.time; ++t)
      for (std::ptrdiff_t h = 0; h < extent.heads; ++h) {
        for (int i = 0; i < R::operands; ++i) x[i] = line(from[i], b, rule.source(t), h);
        rule.forward(Forward<T>{x, line(to, b, t, h), t, in_domain});
      }
  return in_domain ? Status::ok : Status::out_of_domain;
}

template <class T, class R>
void run_backward(const Rows<const T>* from, const Rows<const T>& to, const Rows<const T>& d_to,
                  const Rows<T>* d_from, double number, const Extent& extent) noexcept {
  R rule;
  rule.number = number;
  Line<const T> x[R::operands];
  Line<T> dx[R::operands];
  for (std::ptrdiff_t b = 0; b < extent.batch; ++b)
    for (std::ptrdiff_t t = 0; t < extent.time; ++t)
      for (std::ptrdiff_t h = 0; h < extent.heads; ++h) {
        for (int i = 0; i < R::operands; ++i) {
          x[i] = line(from[i], b, rule.source(t), h);
          dx[i] = line(d_from[i], b, rule.source(t), h);
        }
        rule.backward(Backward<T>{x, line(to, b, t, h), line(d_to, b, t, h), dx, t});
      }
}

template <class T>
struct Kernel {
  Status (*forward)(const Rows<const T>*, const Rows<T>&, double, const Extent&) noexcept = nullptr;
  void (*backward)(const Rows<const T>*, const Rows<const T>&, const Rows<const T>&, const Rows<T>*, double,
                   const Extent&) noexcept = nullptr;
};

template <class T, class R>
Kernel<T> kernel() {
  return {run_forward<T, R>, run_backward<T, R>};
}

/// One operand, every element by itself. F: value(x, number), slope(x, y, number).
template <class F>
struct Elementwise : Rule<1> {
  template <class T>
  void forward(const Forward<T>& a) {
    for (int d = 0; d < a.y.width; ++d) a.y[d] = F::value(a.x[0][d], T(number));
  }
  template <class T>
  void backward(const Backward<T>& a) {
    if (!a.dx[0]) return;
    for (int d = 0; d < a.y.width; ++d) a.dx[0][d] += a.dy[d] * F::slope(a.x[0][d], a.y[d], T(number));
  }
};

/// Two operands, every element by itself; the second may be one number wide. F: value, d_x, d_y and valid, of (x, y).
template <class F>
struct Pairwise : Rule<2> {
  template <class T>
  void forward(const Forward<T>& a) {
    for (int d = 0; d < a.y.width; ++d) {
      const T x = a.x[0][d], y = a.x[1].each(d);
      if (!F::valid(x, y)) a.in_domain = false;
      a.y[d] = F::value(x, y);
    }
  }
  template <class T>
  void backward(const Backward<T>& a) {
    for (int d = 0; d < a.y.width; ++d) {
      const T x = a.x[0][d], y = a.x[1].each(d);
      if (a.dx[0]) a.dx[0][d] += a.dy[d] * F::d_x(x, y);
      if (a.dx[1]) a.dx[1].each(d) += a.dy[d] * F::d_y(x, y);
    }
  }
};

/// Base of an F that is defined everywhere.
struct Everywhere {
  template <class T>
  static bool valid(T, T) {
    return true;
  }
};

/// The operations of one file; an empty kernel for those of the others.
template <class T>
Kernel<T> arithmetic(Op);
template <class T>
Kernel<T> norms(Op);
template <class T>
Kernel<T> gates(Op);
template <class T>
Kernel<T> feature_maps(Op);
template <class T>
Kernel<T> matrix_features(Op);
template <class T>
Kernel<T> rotary(Op);

}  // namespace ttr::prepare
