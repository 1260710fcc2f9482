// A state of P arrays per sequence and head ("parts": S, or S and Z, or C, n and m), each [N, H, size] in the caller's
// memory; kept states have their parts one after the other.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace ttr::families {

template <class T, std::size_t P>
using Parts = std::array<T*, P>;

template <std::size_t P>
struct PartSizes {
  using Size = std::ptrdiff_t;
  std::array<Size, P> size;

  Size total() const {
    Size sum = 0;
    for (const Size n : size) sum += n;
    return sum;
  }
  /// The parts of state `index` of those that follow each other from `base` on.
  template <class T>
  Parts<T, P> at(T* base, Size index = 0) const {
    Parts<T, P> parts;
    base += index * total();
    for (std::size_t p = 0; p < P; ++p) parts[p] = base, base += size[p];
    return parts;
  }
  /// The parts of sequence and head `index`; what is null stays null.
  template <class T>
  Parts<T, P> of(Parts<T, P> parts, Size index) const {
    for (std::size_t p = 0; p < P; ++p) parts[p] = parts[p] ? parts[p] + index * size[p] : nullptr;
    return parts;
  }
  /// Null: zeros.
  template <class N, class T>
  void gather(const Parts<N, P>& from, T* to) const {
    for (std::size_t p = 0; p < P; to += size[p++]) {
      if (from[p]) std::copy_n(from[p], size[p], to);
      else std::fill_n(to, size[p], T(0));
    }
  }
  template <class T>
  void scatter(const T* from, const Parts<T, P>& to) const {
    for (std::size_t p = 0; p < P; from += size[p++]) std::copy_n(from, size[p], to[p]);
  }
};

template <class T, std::size_t P>
Parts<const T, P> constant(const Parts<T, P>& x) {
  Parts<const T, P> y;
  for (std::size_t p = 0; p < P; ++p) y[p] = x[p];
  return y;
}

/// As the forms take a state: the one array, or all parts.
template <class T, std::size_t P>
decltype(auto) argument(const Parts<T, P>& x) {
  if constexpr (P == 1) return static_cast<T*>(x[0]);
  else return static_cast<const Parts<T, P>&>(x);
}

}  // namespace ttr::families
