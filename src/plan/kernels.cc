#include "plan/kernels.h"

#include "plan/calls.h"

namespace ttr {
namespace {

template <class T>
Calls<T> calls_of(KernelKind kind) {
  for (const auto file : {linear_calls<T>, solver_calls<T>, pair_calls<T>, whole_calls<T>, neural_calls<T>})
    if (const Calls<T> found = file(kind); found.forward) return found;
  return elementwise_calls<T>(kind);
}

}  // namespace

std::size_t kernel_workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form, bool backward) {
  if (step.kernel == KernelKind::oracle) return 0;
  return body.options.type == Type::f32 ? calls_of<float>(step.kernel).workspace(body, step, time, form, backward)
                                        : calls_of<double>(step.kernel).workspace(body, step, time, form, backward);
}

template <class T>
Status kernel_forward(const Plan::Body& body, const Step& step, Binding<T>& b, State state, Form form, Workspace work,
                      bool keep) noexcept {
  if (step.kernel == KernelKind::oracle) return oracle_forward(body, step, b, state, keep ? state : State{});
  return calls_of<T>(step.kernel).forward(Operands<T>(body, step, b, keep), state, form, work);
}

template <class T>
Status kernel_backward(const Plan::Body& body, const Step& step, Binding<T>& b, const Call& call, Form form,
                       Arena arena) noexcept {
  if (step.kernel == KernelKind::oracle)
    return oracle_backward(body, step, b, call.state, call.d_final, call.d_initial);
  return calls_of<T>(step.kernel).backward(Operands<T>(body, step, b), call, form, arena);
}

template Status kernel_forward<float>(const Plan::Body&, const Step&, Binding<float>&, State, Form, Workspace,
                                      bool) noexcept;
template Status kernel_forward<double>(const Plan::Body&, const Step&, Binding<double>&, State, Form, Workspace,
                                       bool) noexcept;
template Status kernel_backward<float>(const Plan::Body&, const Step&, Binding<float>&, const Call&, Form,
                                       Arena) noexcept;
template Status kernel_backward<double>(const Plan::Body&, const Step&, Binding<double>&, const Call&, Form,
                                        Arena) noexcept;

}  // namespace ttr
