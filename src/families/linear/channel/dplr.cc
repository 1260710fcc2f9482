#include "families/linear/channel/dplr.h"

#include "families/linear/channel/family.h"

namespace ttr::families::dplr {
template <class T>
std::size_t workspace_bytes(int K, int V, std::ptrdiff_t longest, Form form, int chunk, bool backward,
                            int workers) noexcept {
  return std::max(run_bytes<VectorFamily<T, Erase::same>>({K, V}, longest, form, chunk, backward, workers),
                  run_bytes<VectorFamily<T, Erase::other>>({K, V}, longest, form, chunk, backward, workers));
}

template <class T>
Status forward(const DplrProblem<T>& problem, Form form, int chunk, const Simd<T>& simd, Workspace work) noexcept {
  if (problem.g) return Status::not_supported;
  const VectorProblem<T>& p = problem;
  return p.b ? run_forward<VectorFamily<T, Erase::other>>(p, form, chunk, simd, work)
             : run_forward<VectorFamily<T, Erase::same>>(p, form, chunk, simd, work);
}

template <class T>
Status backward(const DplrProblem<T>& problem, const DplrGradient<T>& gradient, Form form, int chunk,
                const Simd<T>& simd, Workspace work) noexcept {
  if (problem.g) return Status::not_supported;
  const VectorProblem<T>& p = problem;
  const VectorGradient<T> d{gradient, gradient.d_gk, {}, gradient.d_a, gradient.d_b, {}};
  return p.b ? run_backward<VectorFamily<T, Erase::other>>(p, d, form, chunk, simd, work)
             : run_backward<VectorFamily<T, Erase::same>>(p, d, form, chunk, simd, work);
}

template <class T>
SavedChunks saved_chunks(int K, int V, bool erases, std::ptrdiff_t tokens, Form form, int chunk,
                         int vector_bytes) noexcept {
  return erases ? saved_of<VectorFamily<T, Erase::other>>({K, V}, vector_bytes, form, chunk, tokens)
                : saved_of<VectorFamily<T, Erase::same>>({K, V}, vector_bytes, form, chunk, tokens);
}

template SavedChunks saved_chunks<float>(int, int, bool, std::ptrdiff_t, Form, int, int) noexcept;
template SavedChunks saved_chunks<double>(int, int, bool, std::ptrdiff_t, Form, int, int) noexcept;
template std::size_t workspace_bytes<float>(int, int, std::ptrdiff_t, Form, int, bool, int) noexcept;
template std::size_t workspace_bytes<double>(int, int, std::ptrdiff_t, Form, int, bool, int) noexcept;
template Status forward(const DplrProblem<float>&, Form, int, const Simd<float>&, Workspace) noexcept;
template Status forward(const DplrProblem<double>&, Form, int, const Simd<double>&, Workspace) noexcept;
template Status backward(const DplrProblem<float>&, const DplrGradient<float>&, Form, int, const Simd<float>&,
                         Workspace) noexcept;
template Status backward(const DplrProblem<double>&, const DplrGradient<double>&, Form, int, const Simd<double>&,
                         Workspace) noexcept;

}  // namespace ttr::families::dplr
