// How a step calls its family: from values to the family's problem struct, and back for gradients. No arithmetic
// happens there. One file each for families whose state is a matrix per head fed by pairs (linear), for those that solve
// (solver), for those that keep their pairs (pair), and for the others (elementwise).
#pragma once

#include <algorithm>

#include "plan/operands.h"

namespace ttr {

template <class T>
struct Calls {
  std::size_t (*workspace)(const Plan::Body&, const Step&, std::int64_t time, Form, bool backward) = nullptr;
  Status (*forward)(const Operands<T>&, State, Form, Workspace) noexcept = nullptr;
  Status (*backward)(const Operands<T>&, const Call&, Form, Arena) noexcept = nullptr;
};

/// The calls of a kernel; empty if it belongs to another file.
template <class T>
Calls<T> linear_calls(KernelKind);
template <class T>
Calls<T> solver_calls(KernelKind);
template <class T>
Calls<T> pair_calls(KernelKind);
template <class T>
Calls<T> whole_calls(KernelKind);
template <class T>
Calls<T> neural_calls(KernelKind);
template <class T>
Calls<T> elementwise_calls(KernelKind);

/// The calls that a struct F<T> holds as static functions.
template <template <class> class F, class T>
Calls<T> calls() {
  return {F<T>::workspace, F<T>::forward, F<T>::backward};
}

/// Gates may be constant in time (one number per head): the kernel then writes a gradient per token, summed here.
template <class T>
class GateGradient {
 public:
  GateGradient(const Operands<T>& operands, std::size_t role, Arena& arena) noexcept {
    if (!operands.has(role)) return;
    target_ = operands.d_scalars(role);
    if (!target_.data) return;
    const std::ptrdiff_t B = target_.extent[0], T_ = target_.extent[1], H = target_.extent[2];
    const std::string& axes = operands.axes(role);
    if (axes == "BTH" || axes == "BPH") {
      view_ = target_;
      return;
    }
    per_token_ = arena.take<T>(B * T_ * H);
    std::fill_n(per_token_, B * T_ * H, T(0));
    view_ = {per_token_, {B, T_, H}, {T_ * H, H, 1}};
  }
  View<T, 3> view() const { return view_; }
  void finish() const {
    if (!per_token_) return;
    for (std::ptrdiff_t i = 0; i < view_.extent[0]; ++i)
      for (std::ptrdiff_t t = 0; t < view_.extent[1]; ++t)
        for (std::ptrdiff_t h = 0; h < view_.extent[2]; ++h) target_(i, t, h) += view_(i, t, h);
  }

 private:
  T* per_token_ = nullptr;
  View<T, 3> target_, view_;
};

/// The calls of a family F: F::problem(operands, state), F::gradient(operands, linear gradient, call), and the
/// family's own forward and backward as F::run.
template <class T, template <class> class F>
struct LinearCalls {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form,
                               bool backward) {
    return F<T>::bytes(body, width(body, step.from[Role::k]), width(body, step.from[Role::v]), time, form, backward);
  }
  static Status forward(const Operands<T>& o, State state, Form form, Workspace work) noexcept {
    return F<T>::forward(o, F<T>::problem(o, state), form, work);
  }
  static Status backward(const Operands<T>& o, const Call& call, Form form, Arena arena) noexcept {
    LinearGradient<T> d = o.gradient(call);
    const GateGradient<T> d_g(o, Role::g, arena), d_beta(o, Role::beta, arena);
    d.d_g = d_g.view(), d.d_beta = d_beta.view();
    const Status status =
        F<T>::backward(o, F<T>::problem(o, call.state), F<T>::gradient(o, d, call), form, arena.rest());
    d_g.finish(), d_beta.finish();
    return status;
  }
};

template <class T, template <class> class F>
Calls<T> linear() {
  using Family = LinearCalls<T, F>;
  return {Family::workspace, Family::forward, Family::backward};
}

}  // namespace ttr
