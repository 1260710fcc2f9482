// The types that plans of this build compute in: f32 and f64, or f32 alone (CMake: TTR_TYPES). Kernels of a type that is not
// built are named by nobody, so that a linker drops them. Solvers that keep double in plans of f32 still do.
#pragma once

#include <type_traits>

namespace ttr {

#ifdef TTR_ONLY_F32
inline constexpr bool builds_f64 = false;
#else
inline constexpr bool builds_f64 = true;
#endif

// Products in double (Simd<double>) are there for plans of double and for kernels that keep double in plans of float.
#ifdef TTR_WITHOUT_F64_PRODUCTS
inline constexpr bool has_f64_products = false;
#else
inline constexpr bool has_f64_products = true;
#endif

template <class T>
inline constexpr bool is_built = builds_f64 || std::is_same_v<T, float>;

}  // namespace ttr
