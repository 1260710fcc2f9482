// What the planning glue of families with a matrix per head shares: operands of a step become a LinearProblem, and the
// gradient of a gate that is constant in time is summed over the tokens.
#pragma once

#include <algorithm>
#include <new>
#include <type_traits>
#include <utility>

#include "families/claim.h"
#include "families/families.h"
#include "plan/builder.h"
#include "run/kernel_args.h"
#include "run/saved.h"

namespace ttr::families {

/// Gates may be constant in time (one number per head): the kernel then writes a gradient per token, summed here over the
/// tokens of its sequences.
template <class T>
class GateGradient {
 public:
  GateGradient(const KernelArgs<T>& operands, std::size_t slot, Arena& arena) noexcept
      : sequences_(operands.sequences()) {
    if (!operands.has(slot)) return;
    target_ = operands.d_scalars(slot);
    if (!target_.data) return;
    const std::ptrdiff_t B = target_.extent[0], T_ = target_.extent[1], H = target_.extent[2];
    const Axes& axes = operands.axes(slot);
    if (axes == Axes("BTH") || axes == Axes("BPH")) {
      view_ = target_;
      return;
    }
    per_token_ = arena.take<T>(B * T_ * H);
    view_ = {per_token_, {B, T_, H}, {T_ * H, H, 1}};
    for (const Sequence& n : sequences_) std::fill(&view_(n.row, n.begin, 0), &view_(n.row, n.end, 0), T(0));
  }
  View<T, 3> view() const { return view_; }
  void finish() const {
    if (!per_token_) return;
    for (const Sequence& n : sequences_)
      for (std::ptrdiff_t t = n.begin; t < n.end; ++t)
        for (std::ptrdiff_t h = 0; h < view_.extent[2]; ++h) target_(n.row, t, h) += view_(n.row, t, h);
  }

 private:
  std::span<const Sequence> sequences_;
  T* per_token_ = nullptr;
  View<T, 3> target_, view_;
};

/// The calls of a kernel by a struct F: bytes(body, K, V, time, form, backward), with the workers of a team behind them
/// where it has one, problem(args, state), gradient(args, linear gradient, call), and the kernel's own forward and
/// backward.
template <class T, class F>
struct LinearCalls {
  static constexpr bool in_teams = requires(const Plan::Body& body) {
    F::bytes(body, 1, 1, 1, Form::scan, false, 1);
  };
  static constexpr bool saves = requires(const Plan::Body& body, const Step& step) {
    F::saved(body, step, 1, 1, 1, Form::best);
  };
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form,
                               bool backward) {
    return team_workspace(body, step, time, form, backward, 1);
  }
  static std::size_t team_workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form,
                                    bool backward, [[maybe_unused]] int workers) {
    const int K = width(body, step.operands[Slot::k]), V = width(body, step.operands[Slot::v]);
    if constexpr (in_teams) return F::bytes(body, K, V, time, form, backward, workers);
    else return F::bytes(body, K, V, time, form, backward);
  }
  static Status forward(const KernelArgs<T>& o, State state, Form form, Workspace work) noexcept {
    auto problem = F::problem(o, state);
    if constexpr (saves)  // what backward runs forwards leaves nothing
      if (!o.binding().backward) saving(problem) = saving_of(o);
    return F::forward(o, problem, form, work);
  }
  static SavedChunks saved(const Plan::Body& body, const Step& step, std::int64_t tokens, Form form) {
    const int K = width(body, step.operands[Slot::k]), V = width(body, step.operands[Slot::v]);
    if constexpr (saves) return F::saved(body, step, K, V, tokens, form);
    else return {};
  }
  static auto& saving(auto& problem) { return problem.saving; }
  // The arguments of a forward, with the problem that they are.
  struct Ready {
    Ready(const Plan::Body& body, const Step& step, const Binding<T>& b, State state, Form f, Workspace w)
        : args(body, step, b), problem(F::problem(args, state)), form(f), work(w) {}
    KernelArgs<T> args;
    decltype(F::problem(std::declval<const KernelArgs<T>&>(), State{})) problem;
    Form form;
    Workspace work;
  };
  static void ready(const Plan::Body& body, const Step& step, const Binding<T>& b, State state, Form form,
                    Workspace work, void* memory) noexcept {
    static_assert(std::is_trivially_destructible_v<Ready>);
    new (memory) Ready(body, step, b, state, form, work);
  }
  static Status go(const void* memory) noexcept {
    const Ready& r = *static_cast<const Ready*>(memory);
    return F::forward(r.args, r.problem, r.form, r.work);
  }
  static Status backward(const KernelArgs<T>& o, const Call& call, Form form, Arena arena) noexcept {
    return backward_with(o, call, form, arena, [](auto&) {});
  }
  /// The same with gradients that change(gradient) has changed.
  template <class Change>
  static Status backward_with(const KernelArgs<T>& o, const Call& call, Form form, Arena arena,
                              Change&& change) noexcept {
    LinearGradient<T> d = o.gradient(call);
    const GateGradient<T> d_g(o, Slot::g, arena), d_beta(o, Slot::beta, arena);
    d.d_g = d_g.view(), d.d_beta = d_beta.view();
    auto all = F::gradient(o, d, call);
    change(all);
    auto problem = F::problem(o, call.state);
    if constexpr (saves) saving(problem) = saving_of(o);
    const Status status = F::backward(o, problem, all, form, arena.rest());
    d_g.finish(), d_beta.finish();
    return status;
  }
};

/// The forward and backward of such a struct that only hand a problem on to its kernel,
///
///   Forward(problem, form, chunk, simd, work) ,  Backward(problem, gradient, form, chunk, simd, work)
///
/// with the loops of T or, where a kernel counts in double whatever T is, of double; solvers have no chunk.
template <class T, auto Forward, auto Backward>
struct HandsOn {
  template <class Problem>
  static Status forward(const KernelArgs<T>& o, const Problem& p, Form form, Workspace work) noexcept {
    return call<Forward>(o, form, work, p);
  }
  template <class Problem, class Gradient>
  static Status backward(const KernelArgs<T>& o, const Problem& p, const Gradient& d, Form form,
                         Workspace work) noexcept {
    return call<Backward>(o, form, work, p, d);
  }

 private:
  template <auto Kernel, class... Data>
  static Status call(const KernelArgs<T>& o, Form form, Workspace work, const Data&... data) noexcept {
    using Own = decltype(Kernel);
    const int chunk = o.body().options.chunk;
    if constexpr (std::is_invocable_v<Own, const Data&..., Form, int, const Simd<T>&, Workspace>)
      return Kernel(data..., form, chunk, simd_of<T>(o.body()), work);
    else if constexpr (std::is_invocable_v<Own, const Data&..., Form, int, const Simd<double>&, Workspace>)
      return Kernel(data..., form, chunk, simd_of<double>(o.body()), work);
    else return Kernel(data..., form, simd_of<double>(o.body()), work);
  }
};

/// F::only_places: problem() reads nothing to make a problem but places, so that a prepared call can keep it.
template <template <class> class F, class T>
constexpr KernelCalls<T> linear_calls_of(const SegmentCalls<T>* segments = nullptr) {
  using Family = LinearCalls<T, F<T>>;
  if constexpr (is_built<T>) {
    KernelCalls<T> calls = {.workspace = Family::workspace,
                            .forward = Family::forward,
                            .backward = Family::backward,
                            .team_workspace = Family::in_teams ? Family::team_workspace : nullptr,
                            .segments = segments};
    if constexpr (Family::saves) calls.saved = Family::saved, calls.clears = F<T>::clears;
    if constexpr (requires { F<T>::halves; }) calls.halves = F<T>::halves;
    if constexpr (requires { F<T>::only_places; })
      calls.ready_bytes = sizeof(typename Family::Ready), calls.ready = Family::ready, calls.go = Family::go;
    return calls;
  } else {
    return {};
  }
}

/// Bytes of the vectors that a plan computes T with.
template <class T>
int vector_bytes_of(const Plan::Body& body) {
  return simd_of<T>(body).lanes * static_cast<int>(sizeof(T));
}

/// [B, T, H] of a view whose rows are single numbers.
template <class N>
View<N, 3> numbers_of(const View<N, 4>& v) {
  return {v.data, {v.extent[0], v.extent[1], v.extent[2]}, {v.stride[0], v.stride[1], v.stride[2]}};
}

/// Weights of older pairs mean nothing to a solver that sees the newest pair alone.
inline void ignores_fade(Claim& rest) {
  using Per = Weights::Per;
  rest.takes_fade();
  rest.takes(rest.w.per, {Per::key, Per::value, Per::key_value});
}

}  // namespace ttr::families
