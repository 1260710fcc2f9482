#include "prepare/operations.h"

#include "prepare/row_loop.h"
#include "prepare/rule.h"

namespace ttr::prepare {
namespace {

// An operation with loops of its own, or whose operands are looked at first.
template <class T>
Kernel<T> kernel_of(Op op) {
  for (const auto file : {arithmetic<T>, feature_maps<T>, matrix_features<T>, rotary<T>})
    if (const Kernel<T> found = file(op); found.forward) return found;
  return {};
}

// Whether the formula for vectors is all there is.
bool plain(Op op) { return facts(op).kind != Kind::own && !facts(op).arranged; }
bool exists(Op op) { return static_cast<int>(op) >= 0 && static_cast<int>(op) < op_count; }

}  // namespace

template <class T>
Status forward(Op op, const Rows<const T>* from, const Rows<T>& to, double number, const Extent& extent,
               const Simd<T>* simd) noexcept {
  if (!exists(op)) return Status::not_supported;
  const TokenSimd<T> table = token_simd(simd);
  if (plain(op)) return loop_forward(op, from, to, number, extent, table);
  return kernel_of<T>(op).forward(from, to, number, extent, table);
}

template <class T>
void backward(Op op, const Rows<const T>* from, const Rows<const T>& to, const Rows<const T>& d_to,
              const Rows<T>* d_from, double number, const Extent& extent, const Simd<T>* simd) noexcept {
  if (!exists(op)) return;
  const TokenSimd<T> table = token_simd(simd);
  if (plain(op)) return loop_backward(op, from, to, d_to, d_from, number, extent, table);
  kernel_of<T>(op).backward(from, to, d_to, d_from, number, extent, table);
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
