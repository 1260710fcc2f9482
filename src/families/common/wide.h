// Conversion of the caller's numbers to double and back, for kernels that always work in double.
#pragma once

#include <cstddef>

#include "ttr/view.h"

namespace ttr::families {

/// x[row, t, head], or `otherwise` where there is no x.
template <class T>
double number(const View<const T, 3>& x, std::ptrdiff_t row, std::ptrdiff_t t, int head, double otherwise) {
  return x ? static_cast<double>(x(row, t, head)) : otherwise;
}
/// to [dim] = scale from[row, t, head, :]
template <class T>
void load(const View<const T, 4>& from, std::ptrdiff_t row, std::ptrdiff_t t, int head, std::ptrdiff_t dim,
          double scale, double* to) {
  const T* const start = &from(row, t, head, 0);
  for (std::ptrdiff_t j = 0; j < dim; ++j) to[j] = scale * static_cast<double>(start[j * from.stride[3]]);
}
/// to[row, t, head, :] += scale from [dim]
template <class T>
void add(const double* from, double scale, std::ptrdiff_t dim, const View<T, 4>& to, std::ptrdiff_t row,
         std::ptrdiff_t t, int head) {
  T* const start = &to(row, t, head, 0);
  for (std::ptrdiff_t j = 0; j < dim; ++j) start[j * to.stride[3]] += static_cast<T>(scale * from[j]);
}

}  // namespace ttr::families
