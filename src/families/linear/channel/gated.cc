#include "families/linear/channel/gated.h"

#include "families/linear/channel/family.h"

namespace ttr::families::gated {
namespace {

template <class T>
Status check(const GatedProblem<T>& p) {
  return p.g || (p.bonus && !p.read_before) ? Status::not_supported : Status::ok;
}

}  // namespace

template <class T>
std::size_t workspace_bytes(int K, int V, std::ptrdiff_t longest, Form form, int chunk, bool backward,
                            int workers) noexcept {
  return run_bytes<VectorFamily<T, Erase::none>>({K, V}, longest, form, chunk, backward, workers);
}

template <class T>
Status forward(const GatedProblem<T>& problem, Form form, int chunk, const Simd<T>& simd, Workspace work) noexcept {
  if (const Status status = check(problem); status != Status::ok) return status;
  return run_forward<VectorFamily<T, Erase::none>>(problem, form, chunk, simd, work);
}

template <class T>
Status backward(const GatedProblem<T>& problem, const GatedGradient<T>& gradient, Form form, int chunk,
                const Simd<T>& simd, Workspace work) noexcept {
  if (const Status status = check(problem); status != Status::ok) return status;
  const VectorGradient<T> d{gradient, gradient.d_gk, gradient.d_gv, {}, {}, gradient.d_bonus};
  return run_backward<VectorFamily<T, Erase::none>>(problem, d, form, chunk, simd, work);
}

template <class T>
SavedChunks saved_chunks(int K, int V, std::ptrdiff_t tokens, Form form, int chunk, int vector_bytes) noexcept {
  return saved_of<VectorFamily<T, Erase::none>>({K, V}, vector_bytes, form, chunk, tokens);
}

template SavedChunks saved_chunks<float>(int, int, std::ptrdiff_t, Form, int, int) noexcept;
template SavedChunks saved_chunks<double>(int, int, std::ptrdiff_t, Form, int, int) noexcept;
template std::size_t workspace_bytes<float>(int, int, std::ptrdiff_t, Form, int, bool, int) noexcept;
template std::size_t workspace_bytes<double>(int, int, std::ptrdiff_t, Form, int, bool, int) noexcept;
template Status forward(const GatedProblem<float>&, Form, int, const Simd<float>&, Workspace) noexcept;
template Status forward(const GatedProblem<double>&, Form, int, const Simd<double>&, Workspace) noexcept;
template Status backward(const GatedProblem<float>&, const GatedGradient<float>&, Form, int, const Simd<float>&,
                         Workspace) noexcept;
template Status backward(const GatedProblem<double>&, const GatedGradient<double>&, Form, int, const Simd<double>&,
                         Workspace) noexcept;

}  // namespace ttr::families::gated
