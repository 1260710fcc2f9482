// Values and answers of a sweep in groups (groups-inl.h) in rows of a half type where they lie: whole vectors of a row are
// converted as they are loaded and stored. Keys and queries are read number by number and need panels of floats.
#pragma once

#include <cstddef>

#include "families/common/half_rows.h"
#include "families/linear/state_simd.h"
#include "simd/simd.h"
#include "ttr/view.h"

namespace ttr::families {

/// What rows of x are to a sweep, if it can take them where they lie; else Halves::none, and they need a panel.
template <class T, class N>
Halves halves_of_sweep(const Simd<T>& s, const View<N, 4>& x, int dim) {
  if (!has_half_rows(x) || s.lanes < 2 || dim % s.lanes != 0) return Halves::none;
  return x.stride[3] == stride_of_bf16 ? Halves::bf16 : Halves::f16;
}

/// The values of a group where they lie; false: they must be packed.
template <class T>
bool takes_values(const Simd<T>& s, const View<const T, 4>& v, std::ptrdiff_t row, std::ptrdiff_t begin, int head,
                  typename StateSimd<T>::Group& x) {
  x.values = halves_of_sweep(s, v, static_cast<int>(x.V));
  if (x.values == Halves::none) return false;
  x.v = reinterpret_cast<const T*>(half_row(v, row, begin, head)), x.ldv = v.stride[1];
  return true;
}

/// Where the answers of a group go, of which *ld is the distance: their own rows, or `panel` [n, V] (*direct is false).
template <class T>
T* answers_of_sweep(const Simd<T>& s, const View<T, 4>& o, std::ptrdiff_t row, std::ptrdiff_t begin, int head,
                    T* panel, typename StateSimd<T>::Group& x, std::ptrdiff_t* ld, bool* direct) {
  x.answers = halves_of_sweep(s, o, static_cast<int>(x.V));
  *direct = o.stride[3] == 1 || x.answers != Halves::none;
  *ld = *direct ? o.stride[1] : x.V;
  if (!*direct) return panel;
  return x.answers == Halves::none ? &o(row, begin, head, 0) : reinterpret_cast<T*>(half_row(o, row, begin, head));
}

}  // namespace ttr::families
