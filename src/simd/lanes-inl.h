// What everything that is written on vectors begins with: a vector of numbers, its width, a part of one, hints about
// memory. Compiled once per instruction set.
#if defined(TTR_SIMD_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_LANES_INL_H_
#undef TTR_SIMD_LANES_INL_H_
#else
#define TTR_SIMD_LANES_INL_H_
#endif

#include <cstddef>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "simd/simd.h"

#undef TTR_UNROLL
#if HWY_COMPILER_CLANG
#define TTR_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TTR_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace ttr::simd_detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Size = std::ptrdiff_t;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vec = hn::Vec<Tag<T>>;
template <class T>
HWY_INLINE constexpr Size Width() {
  return static_cast<Size>(hn::MaxLanes(Tag<T>()));
}

// The baseline of the compiler runs where nothing better does, and is there to be right: one shape of every kernel, no
// parts where a vector is one number. Elsewhere the shapes are what speed is made of.
constexpr bool kBaseline = HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128;

// The masked loads of AVX2 and AVX-512 touch only the lanes they name; elsewhere a masked load may read the whole
// vector.
#undef TTR_MASKS_ARE_SAFE
#define TTR_MASKS_ARE_SAFE (HWY_TARGET == HWY_AVX2 || HWY_CAP_GE512)

template <class T>
HWY_INLINE Vec<T> LoadPart(const T* p, Size n) {
  const Tag<T> d;
#if TTR_MASKS_ARE_SAFE
  return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, p);
#else
  HWY_ALIGN T buffer[hn::MaxLanes(d)] = {};
  std::memcpy(buffer, p, static_cast<size_t>(n) * sizeof(T));
  return hn::Load(d, buffer);
#endif
}

template <class T>
HWY_INLINE void StorePart(Vec<T> v, T* p, Size n) {
  const Tag<T> d;
#if TTR_MASKS_ARE_SAFE
  hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(n)), d, p);
#else
  HWY_ALIGN T buffer[hn::MaxLanes(d)];
  hn::Store(v, d, buffer);
  std::memcpy(p, buffer, static_cast<size_t>(n) * sizeof(T));
#endif
}

template <bool kPart, class T>
HWY_INLINE Vec<T> LoadMaybe(const T* p, Size n) {
  if constexpr (kPart) return LoadPart(p, n);
  return hn::LoadU(Tag<T>(), p);
}
template <bool kPart, class T>
HWY_INLINE void StoreMaybe(Vec<T> v, T* p, Size n) {
  if constexpr (kPart) StorePart(v, p, n);
  else hn::StoreU(v, Tag<T>(), p);
}

template <class T>
HWY_INLINE void PrefetchRow(const T* row, Size n) {
  constexpr Size kLine = 64 / sizeof(T);
  for (Size i = 0; i < n; i += kLine) hwy::Prefetch(row + i);
}

HWY_INLINE void Prefetch([[maybe_unused]] const char* p) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  __builtin_prefetch(p, 0, 2);
#endif
}
// Called between rounds of the sum with the number of accumulators at work.
HWY_INLINE void GiveHints(Hints& h, Size vectors) {
  for (h.credit += vectors; h.credit >= h.every && h.at < h.count; h.credit -= h.every) {
    Hints::Rows& piece = h.pieces[h.at];
    const char* const p = piece.data + h.done;
    const Size left = piece.bytes - h.done;
    Prefetch(p);
    if (left > 64) Prefetch(p + 64);
    if (left > 128) Prefetch(p + 128);
    if (left > 192) Prefetch(p + 192);
    h.done += Hints::strip;
    if (left > Hints::strip) continue;
    h.done = 0, piece.data += piece.step;
    if (--piece.rows == 0) ++h.at;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard that flips with the target
