// SIMD primitives of local linear attention, compiled once per instruction set like those of simd.h.
//
//   const LocalLinearSimd<float>& a = local_linear_simd(simd<float>(""));      // of the same instruction set
//
// They work on tiles of 64 keys: logits and weights are [rows, 64] with a leading dimension of 64. Unlike the
// products of simd.h they read whole vectors, so the 64 columns (rows) of a tile's keys must be there; those beyond
// the last key are multiplied by weights that are zero and have to be finite.
#pragma once

#include <cstddef>

#include "families/pairs/attention/attention_simd.h"
#include "simd/simd.h"

namespace ttr {

template <class T>
struct LocalLinearSimd {
  using Size = std::ptrdiff_t;
  static constexpr Size tile = 64;

  /// rows_j = from_j - origin ;  halves_j = |rows_j|^2 / 2, for n rows of K numbers; `from` may be `rows` if ld = K.
  void (*centre)(Size n, Size K, const T* from, Size ld, const T* origin, T* rows, T* halves);

  /// X_ij += bias where it is visible ;  top_i = max(top_i, max_j X_ij); NaN may be passed over.
  void (*raise)(const MaskRange&, const typename AttentionSimd<T>::Bias&, T* X, T* top);
  /// What the weights of a tile add up to, row by row.
  struct Sums {
    double *mass, *moment, *tilt;  // += sum_j w_ij, sum_j w_ij h_j, sum_j w_ij (x_ij - top_i)
  };
  /// X_ij <- w_ij = exp(x_ij - top_i), and in Z (null: not wanted) w_ij (x_ij - top_i); 0 where not visible, up to 64.
  void (*weigh)(const MaskRange&, const T* top, const T* h, T* X, T* Z, const Sums&);

  /// Rows of X through the pairs of a tile, without storing what lies between the two products:
  ///   y_ij = X_i . k_j + X_iK ;  a_ij = w_ij y_ij ;  C_i += sum_j a_ij b_j ;  sums_i += sum_j a_ij
  struct Pass {
    Size m, n, K, D;
    const T* X;  // [m, ldx], ldx > K
    Size ldx;
    const T* along;    // k', [K, 64]
    const T* weights;  // row i at weights + 64 rows[i]
    const Size* rows;  // [m] ascending; null: i
    bool triangle;     // rows[i] + 1 keys are seen: what lies far beyond is left out
    const T* B;        // [64, D]
    T* C;              // [m, D]
    T* sums;           // [m]; null: not wanted
  };
  void (*moment)(const Pass&);
  /// The same with a_ij = w_ij (1 - y_ij)
  void (*blend)(const Pass&);

  /// One query through n rows k_j of K numbers, each read once:
  ///   a_j = w_j (x . k_j + x_K) ;  image += sum_j a_j k_j ;  returns sum_j a_j
  T (*moment_of_one)(Size n, Size K, const T* rows, const T* weights, const T* x, T* image);
  /// sums += sum_j k_j ;  squares += sum_j k_j * k_j
  void (*column_sums)(Size n, Size K, const T* rows, T* sums, T* squares);

  /// The vectors of conjugate gradients. Row r is of query rows[r] (null: r): z and image [m, K] lie in the order of
  /// r, all others in that of the queries; x and d have a leading dimension of K + 1.
  struct Vectors {
    Size m, K;
    const Size* rows;
    const T *mean, *query, *query_image, *lambda;
    T *x, *d, *residual, *z, *image;
  };
  /// image_r += lambda d - sums_r mean ;  curvature_r = d . image_r
  void (*close)(const Vectors&, const T* sums, double* curvature);
  /// x += a_r d ;  residual -= a_r image_r
  void (*move)(const Vectors&, const double* a);
  /// rho_r = residual . z_r ;  slant_r = query_image . z_r
  void (*project)(const Vectors&, double* rho, double* slant);
  /// d = z_r + b_r d + c_r query (b = 0: the old d is not read; c = 0: nor is the query) ;  d_K = -mean . d
  void (*turn)(const Vectors&, const double* b, const double* c);
};

/// The table for the instruction set of `simd`. Does not allocate.
template <class T>
const LocalLinearSimd<T>& local_linear_simd(const Simd<T>& simd) noexcept;
/// Its twin that counts multiply-adds (simd/count.h): those of moment, blend and moment_of_one.
template <class T>
const LocalLinearSimd<T>& counted_table(const LocalLinearSimd<T>&) noexcept;

}  // namespace ttr
