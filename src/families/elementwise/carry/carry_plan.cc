// The plan of the running quantities of a preparation: the last token, an angle, a running log-sum, a sign, the position.
#include "families/elementwise/carry/carry.h"
#include "families/elementwise/running_plan.h"

namespace ttr::families {
namespace {

int stage(Builder& b, const zoo::Stage& stage, const std::vector<int>& operands, Axes axes) {
  Step step = b.kernel(carry_family, 1, -1, -1, operands.empty() ? -1 : operands[0]);
  step.set_options(static_cast<Carry>(stage.option));
  return add_running(b, std::move(step), stage, axes);
}

// The same for every form: one loop over time.
template <class T>
struct CarryCalls {
  static Carry kind(const Step& step) { return step.options<Carry>(); }
  static int dim(const Plan::Body& body, const Step& step) {
    return step.operands[Slot::v] < 0 ? 1 : width(body, step.operands[Slot::v]);
  }
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form, bool backward) {
    return backward ? carry::workspace_bytes<T>(kind(step), dim(body, step), time) : 0;
  }
  static CarryProblem<T> problem(const KernelArgs<T>& o, State state) {
    CarryProblem<T> p;
    p.sequences = o.sequences();
    p.kind = kind(o.step());
    p.heads = static_cast<int>(o.output(o.step().result).extent[2]), p.dim = dim(o.body(), o.step());
    p.x = o.vectors(Slot::v);
    p.state = o.template state<T>(state);
    p.y = o.output(o.step().result);
    return p;
  }
  static Status forward(const KernelArgs<T>& o, State state, Form, Workspace) noexcept {
    return carry::forward(problem(o, state));
  }
  static Status backward(const KernelArgs<T>& o, const Call& call, Form, Arena arena) noexcept {
    CarryGradient<T> d;
    d.d_y = o.d_output(o.step().result);
    d.d_final = o.template state<const T>(call.d_final);
    d.d_x = o.d_vectors(Slot::v);
    d.d_initial = o.template state<T>(call.d_initial);
    return carry::backward(problem(o, call.state), d, arena.rest());
  }
};

}  // namespace

const Family carry_family = {.name = "running",
                             .forms = all_forms,
                             .traits = {.running = true, .light = true},
                             .stage = stage,
                             .f32 = calls_of<CarryCalls, float>(),
                             .f64 = calls_of<CarryCalls, double>()};

}  // namespace ttr::families
