// Values and answers of a sweep in groups (groups-inl.h), or of a step of all heads by a rule without a read (heads-inl.h), in
// rows of a half type where they lie: whole vectors of a row are converted as they are loaded and stored. Keys and queries are read number by
// number and need panels of floats.
#pragma once

#include <cstddef>

#include "families/common/half_rows.h"
#include "families/common/heads.h"
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

/// The values of some heads for a step: where they lie, or in `buffer`, as rows_of_heads has it. reads: the rule does.
template <class T>
void take_values_of_heads(const Simd<T>& s, const View<const T, 4>& v, std::ptrdiff_t row, std::ptrdiff_t t,
                          const HeadBlock& h, bool reads, T* buffer, typename StateSimd<T>::Tokens& x) {
  x.values = reads ? Halves::none : halves_of_sweep(s, v, static_cast<int>(x.V));
  if (x.values != Halves::none) x.v = reinterpret_cast<const T*>(half_row(v, row, t, h.first)), x.ldv = v.stride[2];
  else x.v = rows_of_heads(s, v, row, t, h.first, h.count, static_cast<int>(x.V), buffer, &x.ldv);
}

/// sweep(answers, their distance) with the rows of some heads' answers, or with `buffer`, whose rows are then narrowed.
template <class T, class Sweep>
void to_answers_of_heads(const Simd<T>& s, const View<T, 4>& o, std::ptrdiff_t row, std::ptrdiff_t t,
                         const HeadBlock& h, bool reads, T* buffer, typename StateSimd<T>::Tokens& x, Sweep&& sweep) {
  if (has_rows(o)) return sweep(&o(row, t, h.first, 0), o.stride[2]);
  if constexpr (sizeof(T) == 4) {
    std::uint16_t* const halves = half_row(o, row, t, h.first);
    x.answers = reads ? Halves::none : halves_of_sweep(s, o, static_cast<int>(x.V));
    if (x.answers != Halves::none) return sweep(reinterpret_cast<T*>(halves), o.stride[2]);
    sweep(buffer, x.V);
    const HalfSimd& convert = half_simd(s);
    const auto narrow = o.stride[3] == stride_of_bf16 ? convert.narrow_rows_bf16 : convert.narrow_rows_f16;
    narrow(h.count, x.V, buffer, halves, o.stride[2]);
  }
}

}  // namespace ttr::families
