#include "prepare/operations.h"

#include <cmath>
#include <limits>

namespace ttr::prepare {
namespace {

// Below this a factor counts as zero; its logarithm is finite in T and exp gives it back.
template <class T>
constexpr T tiny_factor = sizeof(T) == 4 ? T(1e-30) : T(1e-290);

template <class T>
T square_sum(const T* x, const Rows<const T>& rows) {
  T sum = 0;
  for (int d = 0; d < rows.width; ++d) sum += x[d * rows.inner] * x[d * rows.inner];
  return sum;
}

// d|x|^2 = 2 x: adds c x to the gradient of x.
template <class T>
void add_multiple(T c, const T* x, const Rows<const T>& rows, T* dx, const Rows<T>& d_rows) {
  for (int d = 0; d < rows.width; ++d) dx[d * d_rows.inner] += c * x[d * rows.inner];
}

// One over the length of a row: the factor of unit_norm and rms_norm.
template <class T>
T inverse_length(Op op, const T* x, const Rows<const T>& rows, double eps) {
  const T mean_over = op == Op::rms_norm ? T(rows.width) : T(1);
  const T square = square_sum(x, rows) / mean_over + T(eps);
  return square > 0 ? 1 / std::sqrt(square) : T(0);
}

template <class T>
struct StepRule {
  T value, d_step, d_square;  // the step size and its derivatives with respect to mu|delta|beta and to |k|^2
};

template <class T>
StepRule<T> step_rule(Op op, T step, T square, T eps) {
  if (op == Op::nlms_step) {
    const T denominator = eps + square;
    if (!(denominator > 0)) return {0, 0, 0};
    return {step / denominator, 1 / denominator, -step / (denominator * denominator)};
  }
  if (op == Op::longhorn_step) {
    const T denominator = 1 + step * square, inverse = 1 / denominator;
    return {step * inverse, inverse * inverse, -step * step * inverse * inverse};
  }
  // flow: (1 - e^-x)/n with x = step n; the series near zero avoids 0/0.
  const T x = step * square, decay = std::exp(-x);
  if (std::abs(x) < T(1e-3)) {
    const T value = step * (1 - x / 2 * (1 - x / 3 * (1 - x / 4)));
    const T slope = step * step * (T(-0.5) + x / 3 - x * x / 8);
    return {value, decay, slope};
  }
  const T value = -std::expm1(-x) / square;
  return {value, decay, (step * decay - value) / square};
}

}  // namespace

template <class T>
Status forward(Op op, const Rows<const T>* from, const Rows<T>& to, double eps, const Extent& extent) noexcept {
  bool in_domain = true;
  for (std::ptrdiff_t b = 0; b < extent.batch; ++b)
    for (std::ptrdiff_t t = 0; t < extent.time; ++t)
      for (std::ptrdiff_t h = 0; h < extent.heads; ++h) {
        const T* x = from[0].row(b, t, h);
        T* y = to.row(b, t, h);
        switch (op) {
          case Op::multiply: {
            const T* z = from[1].row(b, t, h);
            const std::ptrdiff_t z_inner = from[1].width == 1 ? 0 : from[1].inner;
            for (int d = 0; d < to.width; ++d) y[d * to.inner] = x[d * from[0].inner] * z[d * z_inner];
            break;
          }
          case Op::unit_norm:
          case Op::rms_norm: {
            const T factor = inverse_length(op, x, from[0], eps);
            for (int d = 0; d < to.width; ++d) y[d * to.inner] = x[d * from[0].inner] * factor;
            break;
          }
          case Op::nlms_step:
          case Op::longhorn_step:
          case Op::flow_step:
            *y = step_rule(op, *x, square_sum(from[1].row(b, t, h), from[1]), T(eps)).value;
            break;
          case Op::leak_gate:
          case Op::shrink_gate: {
            const T factor = op == Op::leak_gate ? 1 - *x * *from[1].row(b, t, h) : 1 - *x;
            if (factor < 0) in_domain = false;
            *y = std::log(factor < tiny_factor<T> ? tiny_factor<T> : factor);
            break;
          }
          case Op::square_norm:
            *y = square_sum(x, from[0]);
            break;
          case Op::skip: {
            const T* z = from[1].row(b, t, h);
            const T weight = *from[2].row(b, t, h);
            for (int d = 0; d < to.width; ++d) y[d * to.inner] = x[d * from[0].inner] + weight * z[d * from[1].inner];
            break;
          }
          case Op::divide: {
            const T n = *from[1].row(b, t, h);
            for (int d = 0; d < to.width; ++d) y[d * to.inner] = n == 0 ? T(0) : x[d * from[0].inner] / n;
            break;
          }
        }
      }
  return in_domain ? Status::ok : Status::out_of_domain;
}

template <class T>
void backward(Op op, const Rows<const T>* from, const Rows<const T>& to, const Rows<const T>& d_to, const Rows<T>* d_from,
              double eps, const Extent& extent) noexcept {
  for (std::ptrdiff_t b = 0; b < extent.batch; ++b)
    for (std::ptrdiff_t t = 0; t < extent.time; ++t)
      for (std::ptrdiff_t h = 0; h < extent.heads; ++h) {
        const T* x = from[0].row(b, t, h);
        const T* dy = d_to.row(b, t, h);
        T* dx = d_from[0].data ? d_from[0].row(b, t, h) : nullptr;
        switch (op) {
          case Op::multiply: {
            const T* z = from[1].row(b, t, h);
            T* dz = d_from[1].data ? d_from[1].row(b, t, h) : nullptr;
            const bool one = from[1].width == 1;
            const std::ptrdiff_t z_inner = one ? 0 : from[1].inner, dz_inner = one ? 0 : d_from[1].inner;
            for (int d = 0; d < to.width; ++d) {
              if (dx) dx[d * d_from[0].inner] += dy[d * d_to.inner] * z[d * z_inner];
              if (dz) dz[d * dz_inner] += dy[d * d_to.inner] * x[d * from[0].inner];
            }
            break;
          }
          case Op::unit_norm:
          case Op::rms_norm: {
            // y = f x, f = (s/c + eps)^-1/2 with s = |x|^2, c = 1 or the width:  dx = f dy - f^3/c (x.dy) x
            if (!dx) break;
            const T f = inverse_length(op, x, from[0], eps);
            const T c = op == Op::rms_norm ? T(to.width) : T(1);
            T inner = 0;
            for (int d = 0; d < to.width; ++d) inner += x[d * from[0].inner] * dy[d * d_to.inner];
            for (int d = 0; d < to.width; ++d)
              dx[d * d_from[0].inner] += f * dy[d * d_to.inner] - f * f * f / c * inner * x[d * from[0].inner];
            break;
          }
          case Op::nlms_step:
          case Op::longhorn_step:
          case Op::flow_step: {
            const T* k = from[1].row(b, t, h);
            const StepRule<T> rule = step_rule(op, *x, square_sum(k, from[1]), T(eps));
            if (dx) *dx += *dy * rule.d_step;
            if (d_from[1].data) add_multiple(2 * *dy * rule.d_square, k, from[1], d_from[1].row(b, t, h), d_from[1]);
            break;
          }
          case Op::leak_gate: {
            const T lam = *from[1].row(b, t, h);
            const T factor = 1 - *x * lam, slope = *dy / (factor < tiny_factor<T> ? tiny_factor<T> : factor);
            if (dx) *dx -= slope * lam;
            if (d_from[1].data) *d_from[1].row(b, t, h) -= slope * *x;
            break;
          }
          case Op::shrink_gate: {
            const T factor = 1 - *x;
            if (dx) *dx -= *dy / (factor < tiny_factor<T> ? tiny_factor<T> : factor);
            break;
          }
          case Op::square_norm:
            if (dx) add_multiple(2 * *dy, x, from[0], dx, d_from[0]);
            break;
          case Op::skip: {
            const T* z = from[1].row(b, t, h);
            const T weight = *from[2].row(b, t, h);
            T* dz = d_from[1].data ? d_from[1].row(b, t, h) : nullptr;
            T d_weight = 0;
            for (int d = 0; d < to.width; ++d) {
              const T g = dy[d * d_to.inner];
              if (dx) dx[d * d_from[0].inner] += g;
              if (dz) dz[d * d_from[1].inner] += g * weight;
              d_weight += g * z[d * from[1].inner];
            }
            if (d_from[2].data) *d_from[2].row(b, t, h) += d_weight;
            break;
          }
          case Op::divide: {
            const T n = *from[1].row(b, t, h);
            if (n == 0) break;
            T d_n = 0;
            for (int d = 0; d < to.width; ++d) {
              const T g = dy[d * d_to.inner] / n;
              if (dx) dx[d * d_from[0].inner] += g;
              d_n -= g * x[d * from[0].inner] / n;
            }
            if (d_from[1].data) *d_from[1].row(b, t, h) += d_n;
            break;
          }
        }
      }
}

template Status forward<float>(Op, const Rows<const float>*, const Rows<float>&, double, const Extent&) noexcept;
template Status forward<double>(Op, const Rows<const double>*, const Rows<double>&, double, const Extent&) noexcept;
template void backward<float>(Op, const Rows<const float>*, const Rows<const float>&, const Rows<const float>&,
                              const Rows<float>*, double, const Extent&) noexcept;
template void backward<double>(Op, const Rows<const double>*, const Rows<const double>&, const Rows<const double>&,
                               const Rows<double>*, double, const Extent&) noexcept;

}  // namespace ttr::prepare
