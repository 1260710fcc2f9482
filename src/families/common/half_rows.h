// Rows of a half type (bf16, f16) where a problem has a View of floats: its strides count halves, and the stride of its last
// axis, which has no gaps, is one of two numbers that no stride is. Kernels that read rows by pack() and contiguous(), and
// write them where they lie only if that stride is 1 and else by unpack() (scratch.h), convert as they pack. Which operands
// of a kernel may come so: KernelCalls::halves.
//
// Traps: the data of such a view are not floats, and view(..) is no number of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "simd/half_simd.h"
#include "ttr/half.h"
#include "ttr/view.h"

namespace ttr::families {

inline constexpr std::ptrdiff_t stride_of_bf16 = std::numeric_limits<std::ptrdiff_t>::min();
inline constexpr std::ptrdiff_t stride_of_f16 = stride_of_bf16 + 1;

constexpr std::ptrdiff_t stride_of_half(Type type) { return type == Type::bf16 ? stride_of_bf16 : stride_of_f16; }

template <class N>
bool has_half_rows(const View<N, 4>& x) {
  return std::is_same_v<std::remove_const_t<N>, float> && x.stride[3] <= stride_of_f16;
}

/// Token `begin` of a head.
template <class N>
auto* half_row(const View<N, 4>& x, std::ptrdiff_t row, std::ptrdiff_t begin, std::ptrdiff_t head) {
  using Half = std::conditional_t<std::is_const_v<N>, const std::uint16_t, std::uint16_t>;
  return reinterpret_cast<Half*>(x.data) + row * x.stride[0] + begin * x.stride[1] + head * x.stride[2];
}

/// out [count, dim] = x[row, begin .. begin+count-1, head, :], times factors [count, dim] if there are any
inline void widen_rows(const Simd<float>& s, const View<const float, 4>& x, std::ptrdiff_t row, std::ptrdiff_t begin,
                       std::ptrdiff_t count, int head, int dim, const float* factors, float* out) {
  const HalfSimd& convert = half_simd(s);
  const auto widen = x.stride[3] == stride_of_bf16 ? convert.widen_rows_bf16 : convert.widen_rows_f16;
  widen(count, dim, half_row(x, row, begin, head), x.stride[1], factors, out);
}

/// x[row, begin .. begin+count-1, head, :] = in [count, dim], to the nearest
inline void narrow_rows(const Simd<float>& s, const float* in, std::ptrdiff_t row, std::ptrdiff_t begin,
                        std::ptrdiff_t count, int head, int dim, const View<float, 4>& x) {
  const HalfSimd& convert = half_simd(s);
  const auto narrow = x.stride[3] == stride_of_bf16 ? convert.narrow_rows_bf16 : convert.narrow_rows_f16;
  narrow(count, dim, in, half_row(x, row, begin, head), x.stride[1]);
}

/// One number of a view of either kind.
template <class T>
T number_of(const View<const T, 4>& x, std::ptrdiff_t row, std::ptrdiff_t t, std::ptrdiff_t head, std::ptrdiff_t j) {
  if (!has_half_rows(x)) return x(row, t, head, j);
  const std::uint16_t bits = half_row(x, row, t, head)[j];
  return static_cast<T>(x.stride[3] == stride_of_bf16 ? to_float(bf16{bits}) : to_float(f16{bits}));
}

}  // namespace ttr::families
