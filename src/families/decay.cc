#include "families/decay.h"

#include "families/scalar.h"

namespace ttr::families {

// Measured: larger chunks spend their time in the C x C part, smaller ones in loading the state.
int default_chunk(int key_dim, int value_dim) noexcept { return key_dim <= 64 && value_dim <= 64 ? 32 : 64; }

Form best_form(int key_dim, int /*value_dim*/, std::ptrdiff_t time, bool backward) noexcept {
  return time < shortest_chunked || (!backward && key_dim <= 128) ? Form::recurrent : Form::chunk;
}

namespace decay {

template <class T>
std::size_t workspace_bytes(int K, int V, std::ptrdiff_t longest, Form form, int chunk, bool backward) noexcept {
  return run_bytes<ScalarFamily<T, Rule::add>>(K, V, longest, form, chunk, backward);
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

template std::size_t workspace_bytes<float>(int, int, std::ptrdiff_t, Form, int, bool) noexcept;
template std::size_t workspace_bytes<double>(int, int, std::ptrdiff_t, Form, int, bool) noexcept;
template Status forward(const LinearProblem<float>&, Form, int, const Simd<float>&, Workspace) noexcept;
template Status forward(const LinearProblem<double>&, Form, int, const Simd<double>&, Workspace) noexcept;
template Status backward(const LinearProblem<float>&, const LinearGradient<float>&, Form, int, const Simd<float>&,
                         Workspace) noexcept;
template Status backward(const LinearProblem<double>&, const LinearGradient<double>&, Form, int, const Simd<double>&,
                         Workspace) noexcept;

}  // namespace decay
}  // namespace ttr::families
