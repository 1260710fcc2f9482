#include "families/linear/scalar/decay.h"

#include "families/linear/scalar/family.h"

namespace ttr::families {

namespace decay {

template <class T>
std::size_t workspace_bytes(int K, int V, std::ptrdiff_t longest, Form form, int chunk, bool backward,
                            int workers) noexcept {
  return run_bytes<ScalarFamily<T, Rule::add>>({K, V}, longest, form, chunk, backward, workers);
}

template <class T>
Status forward(const LinearProblem<T>& problem, Form form, int chunk, const Simd<T>& simd, Workspace work) noexcept {
  return run_forward<ScalarFamily<T, Rule::add>>(problem, form, chunk, simd, work);
}

template <class T>
Status backward(const LinearProblem<T>& problem, const LinearGradient<T>& gradient, Form form, int chunk,
                const Simd<T>& simd, Workspace work) noexcept {
  return run_backward<ScalarFamily<T, Rule::add>>(problem, gradient, form, chunk, simd, work);
}

template <class T>
SavedChunks saved_chunks(int K, int V, std::ptrdiff_t tokens, Form form, int chunk, int vector_bytes) noexcept {
  return saved_of<ScalarFamily<T, Rule::add>>({K, V}, vector_bytes, form, chunk, tokens);
}

template SavedChunks saved_chunks<float>(int, int, std::ptrdiff_t, Form, int, int) noexcept;
template SavedChunks saved_chunks<double>(int, int, std::ptrdiff_t, Form, int, int) noexcept;
template std::size_t workspace_bytes<float>(int, int, std::ptrdiff_t, Form, int, bool, int) noexcept;
template std::size_t workspace_bytes<double>(int, int, std::ptrdiff_t, Form, int, bool, int) noexcept;
template Status forward(const LinearProblem<float>&, Form, int, const Simd<float>&, Workspace) noexcept;
template Status forward(const LinearProblem<double>&, Form, int, const Simd<double>&, Workspace) noexcept;
template Status backward(const LinearProblem<float>&, const LinearGradient<float>&, Form, int, const Simd<float>&,
                         Workspace) noexcept;
template Status backward(const LinearProblem<double>&, const LinearGradient<double>&, Form, int, const Simd<double>&,
                         Workspace) noexcept;

}  // namespace decay
}  // namespace ttr::families
