#include "families/linear/scalar/delta.h"

#include "families/linear/scalar/family.h"

namespace ttr::families::delta {

template <class T>
std::size_t workspace_bytes(int K, int V, std::ptrdiff_t longest, Form form, int chunk, bool backward,
                            int workers) noexcept {
  return run_bytes<ScalarFamily<T, Rule::delta>>({K, V}, longest, form, chunk, backward,
                                                 workers);  // the same for both residuals
}

template <class T>
Status forward(const LinearProblem<T>& problem, Residual residual, Form form, int chunk, const Simd<T>& simd,
               Workspace work) noexcept {
  return residual == Residual::decayed
             ? run_forward<ScalarFamily<T, Rule::delta>>(problem, form, chunk, simd, work)
             : run_forward<ScalarFamily<T, Rule::delta_undecayed>>(problem, form, chunk, simd, work);
}

template <class T>
Status backward(const LinearProblem<T>& problem, const LinearGradient<T>& gradient, Residual residual, Form form,
                int chunk, const Simd<T>& simd, Workspace work) noexcept {
  return residual == Residual::decayed
             ? run_backward<ScalarFamily<T, Rule::delta>>(problem, gradient, form, chunk, simd, work)
             : run_backward<ScalarFamily<T, Rule::delta_undecayed>>(problem, gradient, form, chunk, simd, work);
}

template <class T>
SavedChunks saved_chunks(int K, int V, std::ptrdiff_t tokens, Form form, int chunk, int vector_bytes) noexcept {
  return saved_of<ScalarFamily<T, Rule::delta>>({K, V}, vector_bytes, form, chunk, tokens);
}

template SavedChunks saved_chunks<float>(int, int, std::ptrdiff_t, Form, int, int) noexcept;
template SavedChunks saved_chunks<double>(int, int, std::ptrdiff_t, Form, int, int) noexcept;
template std::size_t workspace_bytes<float>(int, int, std::ptrdiff_t, Form, int, bool, int) noexcept;
template std::size_t workspace_bytes<double>(int, int, std::ptrdiff_t, Form, int, bool, int) noexcept;
template Status forward(const LinearProblem<float>&, Residual, Form, int, const Simd<float>&, Workspace) noexcept;
template Status forward(const LinearProblem<double>&, Residual, Form, int, const Simd<double>&, Workspace) noexcept;
template Status backward(const LinearProblem<float>&, const LinearGradient<float>&, Residual, Form, int,
                         const Simd<float>&, Workspace) noexcept;
template Status backward(const LinearProblem<double>&, const LinearGradient<double>&, Residual, Form, int,
                         const Simd<double>&, Workspace) noexcept;

}  // namespace ttr::families::delta
