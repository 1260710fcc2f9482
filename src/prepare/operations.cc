#include "prepare/operations.h"

#include <cmath>

#include "prepare/rule.h"

namespace ttr::prepare {
namespace {

template <class T>
Kernel<T> kernel_of(Op op) {
  for (const auto file : {plain<T>, arithmetic<T>, feature_maps<T>, matrix_features<T>, rotary<T>})
    if (const Kernel<T> found = file(op); found.forward) return found;
  return {};
}

}  // namespace

template <class T>
Status forward(Op op, const Rows<const T>* from, const Rows<T>& to, double number, const Extent& extent,
               const Simd<T>* simd) noexcept {
  const Kernel<T> found = kernel_of<T>(op);
  return found.forward ? found.forward(from, to, number, extent, token_simd(simd)) : Status::not_supported;
}

template <class T>
void backward(Op op, const Rows<const T>* from, const Rows<const T>& to, const Rows<const T>& d_to,
              const Rows<T>* d_from, double number, const Extent& extent, const Simd<T>* simd) noexcept {
  if (const Kernel<T> found = kernel_of<T>(op); found.backward)
    found.backward(from, to, d_to, d_from, number, extent, token_simd(simd));
}

std::ptrdiff_t feature_width(Op op, int width, int features, double number) noexcept {
  const std::ptrdiff_t D = width, F = features;
  switch (op) {
    case Op::cosformer:
      return 2 * D;
    case Op::dpfp:
      return 2 * D * static_cast<std::ptrdiff_t>(number);
    case Op::taylor2:
      return 1 + D + D * (D + 1) / 2;
    case Op::rebased:
    case Op::quadratic:
      return D * (D + 1) / 2;
    case Op::polynomial: {
      std::ptrdiff_t count = 1;
      for (std::ptrdiff_t i = 1; i <= std::lround(number); ++i) count = count * (D + i) / i;
      return count;
    }
    case Op::first_half:
    case Op::second_half:
      return D / 2;
    case Op::project:
    case Op::t2r:
    case Op::favor:
    case Op::favor_relu:
    case Op::dijiang:
      return F;
    case Op::hedgehog_exp:
    case Op::hedgehog_softmax:
    case Op::hedgehog_softmax2:
    case Op::rfa:
      return 2 * F;
    default:
      return D;
  }
}

template Status forward<float>(Op, const Rows<const float>*, const Rows<float>&, double, const Extent&,
                               const Simd<float>*) noexcept;
template Status forward<double>(Op, const Rows<const double>*, const Rows<double>&, double, const Extent&,
                                const Simd<double>*) noexcept;
template void backward<float>(Op, const Rows<const float>*, const Rows<const float>&, const Rows<const float>&,
                              const Rows<float>*, double, const Extent&, const Simd<float>*) noexcept;
template void backward<double>(Op, const Rows<const double>*, const Rows<const double>&, const Rows<const double>&,
                               const Rows<double>*, double, const Extent&, const Simd<double>*) noexcept;

}  // namespace ttr::prepare
