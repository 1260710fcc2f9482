// The plan of affine projection: a step that fits the last p pairs at once. The pairs before the newest are part of the
// state.
#include "families/common/linear_plan.h"
#include "families/linear/projection/projection.h"

namespace ttr::families {
namespace {

bool claim(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.s.kind, {Solver::Kind::apa});
  // Without eps the keys of a window must be independent, which features that vanish are not.
  const bool vanish = rest.m.feature == Memory::Feature::relu || rest.m.feature == Memory::Feature::dpfp ||
                      rest.m.feature == Memory::Feature::t2r || rest.m.feature == Memory::Feature::cosformer;
  rest.needs(rest.s.batch == 1 || rest.s.eps > 0 || !vanish);
  ignores_fade(rest);
  rest.takes_any_features(), rest.takes_read_norms(), rest.takes_plain_step();
  rest.s.batch = 1, rest.s.eps = 0;
  return causal && rest.is_nothing();
}

int build(Builder& b, double scale) {
  const Solver& s = b.design().solver;
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  // Without eps and on more pairs than there are features the keys are dependent, which the kernel refuses and the
  // literal solver does not.
  if (s.eps == 0 && s.batch > b.width(k)) return literal().build(b, scale);
  const bool grouped = b.axes(k).has('G');  // features of a matrix are those of every head
  const std::ptrdiff_t before = s.batch - 1, H = b.shape().heads;
  b.pipeline().letters['W'] = s.batch - 1;
  const std::string letter(1, b.axes(k).back());
  return b.add(
      b.kernel(projection_family, scale, q, k, v, -1, b.quantity(s.step, "mu")), "BTHV",
      {b.memory_part(k, v),
       {{"k", (grouped ? "B W G " : "B W H ") + letter, "keys of the window before the newest"},
        {before, grouped ? b.shape().key_heads : H, b.width(k)},
        b.type()},
       {{"v", "B W H V", "values of the window before the newest"}, {before, H, b.shape().value_dim}, b.type()}});
}

template <class T>
struct ProjectionCalls {
  // Tokens of a segment, or between kept states.
  static int chunk(const Plan::Body& body, Form form) { return form == Form::scan ? body.options.chunk : body.chunk; }
  static std::size_t bytes(const Plan::Body& body, int K, int V, std::int64_t time, Form form, bool backward,
                           int workers) {
    return projection::workspace_bytes<T>(K, V, body.pipeline.design.solver.batch, time, form, chunk(body, form),
                                          backward, workers);
  }
  static ProjectionProblem<T> problem(const KernelArgs<T>& o, State state) {
    ProjectionProblem<T> p;
    p.linear = o.problem(state);
    p.window = o.body().pipeline.design.solver.batch;
    p.eps = o.body().pipeline.design.solver.eps;
    if (p.window > 1) p.keys = o.template state<T>(state, 1), p.values = o.template state<T>(state, 2);
    return p;
  }
  static ProjectionGradient<T> gradient(const KernelArgs<T>& o, const LinearGradient<T>& d, const Call& call) {
    ProjectionGradient<T> all;
    all.linear = d;
    if (o.body().pipeline.design.solver.batch > 1) {
      all.d_final_keys = o.template state<const T>(call.d_final, 1);
      all.d_final_values = o.template state<const T>(call.d_final, 2);
      all.d_initial_keys = o.template state<T>(call.d_initial, 1);
      all.d_initial_values = o.template state<T>(call.d_initial, 2);
    }
    return all;
  }
  static Status forward(const KernelArgs<T>& o, const ProjectionProblem<T>& p, Form form, Workspace work) noexcept {
    return projection::forward(p, form, chunk(o.body(), form), simd_of<T>(o.body()), work);
  }
  static Status backward(const KernelArgs<T>& o, const ProjectionProblem<T>& p, const ProjectionGradient<T>& d,
                         Form form, Workspace work) noexcept {
    return projection::backward(p, d, form, chunk(o.body(), form), simd_of<T>(o.body()), work);
  }
};

}  // namespace

const Family projection_family = {.name = "projection",
                                  .forms = scan_only,
                                  .why_absent = "the step of a token needs the inverse of its own window of keys",
                                  .traits = {.team = {.forward = scan_only}},
                                  .claim = claim,
                                  .build = build,
                                  .f32 = linear_calls_of<ProjectionCalls, float>(),
                                  .f64 = linear_calls_of<ProjectionCalls, double>()};

}  // namespace ttr::families
