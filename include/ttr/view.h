// Views: strided windows on the caller's memory. ttr never copies or keeps what they point to.
//
//   std::vector<float> memory(2 * 100 * 4 * 64);
//   auto q = ttr::view(memory.data(), 2, 100, 4, 64);     // [B, T, H, K], contiguous
//   q(1, 99, 3, 63) = 1.0f;
//
// `View<T, N>` has its type and rank in the C++ type; `Tensor` and `ConstTensor` carry them at run time so
// that inputs of different ranks can stand in one list. A View converts to either.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ttr/export.h"

namespace ttr {

enum class Type : int { f32 = 0, f64 = 1, bf16 = 2, f16 = 3, i64 = 4, i8 = 5 };  // i64, i8: only in a state

/// Half types, as their bits: the upper half of a float, and IEEE binary16. Tensors of calls may have them
/// (Options::tensors), and a state (Options::state_type); arithmetic is float.
struct bf16 {
  std::uint16_t bits;
};
struct f16 {
  std::uint16_t bits;
};

template <class T>
constexpr Type type_named() {
  using Plain = std::remove_const_t<T>;
  static_assert(std::is_same_v<Plain, float> || std::is_same_v<Plain, double> || std::is_same_v<Plain, bf16> ||
                    std::is_same_v<Plain, f16> || std::is_same_v<Plain, std::int64_t> ||
                    std::is_same_v<Plain, std::int8_t>,
                "tensors are of float, double, ttr::bf16 or ttr::f16; counts in a state of std::int64_t, and pairs "
                "kept may be of std::int8_t");
  return std::is_same_v<Plain, double>         ? Type::f64
         : std::is_same_v<Plain, bf16>         ? Type::bf16
         : std::is_same_v<Plain, f16>          ? Type::f16
         : std::is_same_v<Plain, std::int64_t> ? Type::i64
         : std::is_same_v<Plain, std::int8_t>  ? Type::i8
                                               : Type::f32;
}
template <class T>
inline constexpr Type type_of = type_named<T>();

constexpr std::size_t size_of(Type type) {
  return type == Type::f64 || type == Type::i64 ? 8 : type == Type::f32 ? 4 : type == Type::i8 ? 1 : 2;
}
TTR_API std::string_view to_string(Type) noexcept;  // "f32", "f64", "bf16", "f16", "i64", "i8"

/// N-dimensional strided view; strides count elements, not bytes, and may be zero (broadcast) or negative.
template <class T, std::size_t N>
struct View {
  T* data = nullptr;
  std::array<std::ptrdiff_t, N> extent{};
  std::array<std::ptrdiff_t, N> stride{};

  template <class... I>
  T& operator()(I... index) const {
    static_assert(sizeof...(I) == N);
    const std::ptrdiff_t i[] = {static_cast<std::ptrdiff_t>(index)...};
    std::ptrdiff_t offset = 0;
    for (std::size_t d = 0; d < N; ++d) offset += i[d] * stride[d];
    return data[offset];
  }
  explicit operator bool() const { return data != nullptr; }
  template <class Same, class = std::enable_if_t<std::is_same_v<Same, T> && !std::is_const_v<T>>>
  operator View<const Same, N>() const {
    return {data, extent, stride};
  }
};

/// A contiguous (row-major) view of `data` with the given extents.
template <class T, class... E>
View<T, sizeof...(E)> view(T* data, E... extents) {
  View<T, sizeof...(E)> v{data, {static_cast<std::ptrdiff_t>(extents)...}, {}};
  std::ptrdiff_t stride = 1;
  for (std::size_t d = sizeof...(E); d-- > 0;) {
    v.stride[d] = stride;
    stride *= v.extent[d];
  }
  return v;
}

inline constexpr int max_rank = 6;

/// A view whose type and rank are known at run time; read only.
struct ConstTensor {
  const void* data = nullptr;
  Type type = Type::f32;
  int rank = 0;
  std::array<std::ptrdiff_t, max_rank> extent{};
  std::array<std::ptrdiff_t, max_rank> stride{};

  ConstTensor() = default;
  template <class T, std::size_t N>
  ConstTensor(const View<T, N>& v) : data(v.data), type(type_of<T>), rank(static_cast<int>(N)) {
    static_assert(N <= max_rank);
    for (std::size_t d = 0; d < N; ++d) extent[d] = v.extent[d], stride[d] = v.stride[d];
  }
  explicit operator bool() const { return data != nullptr; }
};

/// A view whose type and rank are known at run time; writable.
struct Tensor {
  void* data = nullptr;
  Type type = Type::f32;
  int rank = 0;
  std::array<std::ptrdiff_t, max_rank> extent{};
  std::array<std::ptrdiff_t, max_rank> stride{};

  Tensor() = default;
  template <class T, std::size_t N, class = std::enable_if_t<!std::is_const_v<T>>>
  Tensor(const View<T, N>& v) : data(v.data), type(type_of<T>), rank(static_cast<int>(N)) {
    static_assert(N <= max_rank);
    for (std::size_t d = 0; d < N; ++d) extent[d] = v.extent[d], stride[d] = v.stride[d];
  }
  explicit operator bool() const { return data != nullptr; }
  operator ConstTensor() const {
    ConstTensor c;
    c.data = data, c.type = type, c.rank = rank, c.extent = extent, c.stride = stride;
    return c;
  }
};

/// The same memory as a View of known type and rank; an empty view if type or rank differ.
template <class T, std::size_t N>
View<T, N> as_view(const Tensor& t) {
  View<T, N> v;
  if (t.type != type_of<T> || t.rank != static_cast<int>(N)) return v;
  v.data = static_cast<T*>(t.data);
  for (std::size_t d = 0; d < N; ++d) v.extent[d] = t.extent[d], v.stride[d] = t.stride[d];
  return v;
}
template <class T, std::size_t N>
View<const T, N> as_view(const ConstTensor& t) {
  View<const T, N> v;
  if (t.type != type_of<T> || t.rank != static_cast<int>(N)) return v;
  v.data = static_cast<const T*>(t.data);
  for (std::size_t d = 0; d < N; ++d) v.extent[d] = t.extent[d], v.stride[d] = t.stride[d];
  return v;
}

}  // namespace ttr
