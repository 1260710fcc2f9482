// Functions of matrices for optimisers: Newton-Schulz (muon), eigenvectors and orthogonal iteration (soap), inverse roots
// (shampoo).
#pragma once

#include <vector>

#include "model/gemm.h"

namespace ttr::model {

/// X [rows, columns] <- five steps  X <- a X + b (X X') X + c (X X')^2 X  from scale X; `scratch` has room for three more
/// of the larger of X and the square of its shorter side.
template <class T>
void orthogonalise(Gemm<T>&, std::ptrdiff_t rows, std::ptrdiff_t columns, T scale, T* X, T* scratch);

/// Q [n, n]: columns are the eigenvectors of the symmetric A, those of the largest eigenvalues first; by Jacobi rotations
/// in double. `work` grows as needed.
template <class T>
void eigenvectors(std::ptrdiff_t n, const T* A, T* Q, std::vector<double>& work);

/// Q <- the orthogonal factor of A Q, by Gram-Schmidt, twice, in double; its triangle has a positive diagonal.
template <class T>
void iterate(std::ptrdiff_t n, const T* A, T* Q, std::vector<double>& work);

/// root [n, n] = (A / mass + damping trace(A / mass) / n I)^(-1/order), order 2 or 4, of the symmetric A without negative
/// eigenvalues; the identity if A is 0. Eight roundings of T times the trace are added at least, as A was rounded. In
/// double by the coupled Newton iteration
///   M = s A, X = s^(1/order) I ;  Y = ((order + 1) I - M) / order, X = X Y, M = Y^order M    until M = I,
/// which keeps M = X^order A and therefore does not lose digits (Guo, Higham 2006).
template <class T>
void inverse_root(Gemm<double>&, std::ptrdiff_t n, int order, double mass, double damping, const T* A, T* root,
                  std::vector<double>& work);

}  // namespace ttr::model
