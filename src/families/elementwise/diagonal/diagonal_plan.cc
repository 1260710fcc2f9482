// Plans of elementwise states: h = e^(g + i theta) * h + v without keys (channel), a complex gate per key channel
// (rotating), and a gate of every entry of the state that is made on the way (selective).
#include "families/elementwise/diagonal/diagonal.h"
#include "families/elementwise/elementwise_plan.h"

namespace ttr::families {
namespace {

using Per = Weights::Per;

struct Own {
  enum : std::size_t { gk = Slot::own, gv, theta, v_im, step, rates, count };
};

// The map of a segment costs less than its tokens, of gradients much less.
constexpr Teams by_segments = {.forward = scan_only, .backward = scan_only};

bool claim_channel(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.m.kind, {Memory::Class::vector});
  rest.takes_fade(), rest.takes_read_norms();
  if (rest.takes(rest.w.per, {Per::value})) rest.w.complex = false;
  rest.w.signed_factors = false;
  rest.x.keys = {};  // there are none
  return causal && rest.is_nothing();
}

int build_channel(Builder& b, double) {
  const Weights& w = b.design().weights;
  const std::vector<std::ptrdiff_t> extent = {b.shape().heads, b.shape().value_dim};
  if (w.signed_factors) {  // as in the families with a matrix: h times the product of the signs fades by the sizes
    const int factors = b.canonical(w.per == Per::value ? "av" : "a");
    const int sign = b.running_sign(factors, "flip", w.per == Per::value ? "av" : "a");
    Step step = b.kernel(channel_family, 1, -1, -1, b.with_sign(b.canonical("v"), sign), -1, -1, Own::count);
    step.operands[Own::gv] = w.per == Per::value ? b.log_magnitude(factors) : b.log_fade();
    const StatePart memory{{"h", "B H V", "the memory, times -1 where flip is 1"}, extent, b.type()};
    return b.with_sign(b.add(std::move(step), "BTHV", {memory}), sign);
  }
  Step step = b.kernel(channel_family, 1, -1, -1, b.canonical("v"), -1, -1, Own::count);
  step.operands[Own::gv] = w.per == Per::value ? b.canonical("gv") : b.log_fade();
  std::vector<StatePart> states = {{{"h", "B H V", "the memory"}, extent, b.type()}};
  if (!w.complex) return b.add(std::move(step), "BTHV", states);
  step.operands[Own::theta] = b.canonical("theta");
  if (b.layer() && b.produced("v_im")) step.operands[Own::v_im] = b.operand("v_im");
  states.push_back({{"h_im", "B H V", "its imaginary part"}, extent, b.type()});
  if (b.layer()) b.second_result(step, "o_im", "BTHV");  // the read-out may use both parts
  return b.add(std::move(step), "BTHV", states);
}

// S = diag(e^(gk + i theta)) S + k v'; the real part is read.
bool claim_rotating(const Design& design, bool causal) {
  Claim rest(design);
  rest.needs(rest.w.complex);
  rest.w.complex = false;
  rest.needs(rest.w.per, {Per::key, Per::token});
  rest.takes_fade(), rest.takes_narrow_features(), rest.takes_read_norms(), rest.takes_importance();
  return causal && rest.is_nothing();
}

int build_rotating(Builder& b, double scale) {
  const int q = b.keys("q"), k = b.keys("k");
  int v = b.canonical("v");
  if (const int beta = b.importance(); beta >= 0) v = b.operation(prepare::Op::multiply, {v, beta}, "BTHV");
  Step step = b.kernel(rotating_family, scale, q, k, v, -1, -1, Own::count);
  step.operands[Own::gk] = b.design().weights.per == Per::key ? b.canonical("gk") : b.log_fade();
  step.operands[Own::theta] = b.canonical("theta");
  return b.add(std::move(step), "BTHV", {b.memory_part(k, v), b.memory_part(k, v, "S_im", "its imaginary part")});
}

// The gate is exp(step_d A[k,d]), twice that less one, or 1 - k_k^2 step_d, from the values named `step` and `A`.
int build_selective(Builder& b, double scale) {
  const int q = b.canonical("q"), k = b.canonical("k"), v = b.canonical("v");
  const auto gate = b.layer()->options_or_default<SelectiveGate>();
  Step step = b.kernel(selective_family, scale, q, k, v, -1, -1, Own::count);
  step.operands[Own::step] = b.operand("step");
  if (gate != SelectiveGate::longhorn) step.operands[Own::rates] = b.operand("A");
  step.set_options(gate);
  return b.add(std::move(step), "BTHV", {b.memory_part(k, v)});
}

template <class T>
struct ChannelCalls {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form,
                               bool backward) {
    return team_workspace(body, step, time, form, backward, 1);
  }
  static std::size_t team_workspace(const Plan::Body& body, const Step&, std::int64_t time, Form form, bool backward,
                                    int workers) {
    return elementwise::workspace_bytes<T>(1, body.shape.value_dim, time, form, chunk_of(body, form), backward,
                                           workers);
  }
  static ChannelProblem<T> problem(const KernelArgs<T>& o, State state, std::span<const Sequence> one, int h,
                                   std::ptrdiff_t at) {
    ChannelProblem<T> p;
    p.sequences = one;
    p.dim = o.dim();
    p.g = o.flat(Own::gv, h), p.theta = o.flat(Own::theta, h);
    p.x = o.flat(Slot::v, h), p.x_im = o.flat(Own::v_im, h);
    p.state = offset(o.template state<T>(state), at);
    if (o.has(Own::theta)) p.state_im = offset(o.template state<T>(state, 1), at);
    p.o = head_of(o.output(o.step().result), h), p.o_im = head_of(o.output(o.step().second_result), h);
    p.team = o.team(), p.chosen_by = o.body().shape.value_dim;
    return p;
  }
  static Status forward(const KernelArgs<T>& o, State state, Form form, Workspace work) noexcept {
    return for_each_head(o, o.dim(), [&](std::span<const Sequence> one, int h, std::ptrdiff_t at) {
      if (pauses(one)) return Status::ok;
      return elementwise::forward(problem(o, state, one, h, at), form, chunk_of(o.body(), form), simd_of<T>(o.body()),
                                  work);
    });
  }
  static Status backward(const KernelArgs<T>& o, const Call& call, Form form, Arena arena) noexcept {
    return for_each_head(o, o.dim(), [&](std::span<const Sequence> one, int h, std::ptrdiff_t at) {
      ChannelGradient<T> d;
      d.d_o = head_of(o.d_output(o.step().result), h), d.d_o_im = head_of(o.d_output(o.step().second_result), h);
      d.d_g = o.d_flat(Own::gv, h), d.d_theta = o.d_flat(Own::theta, h);
      d.d_x = o.d_flat(Slot::v, h), d.d_x_im = o.d_flat(Own::v_im, h);
      d.d_final = offset(o.template state<const T>(call.d_final), at);
      d.d_initial = offset(o.template state<T>(call.d_initial), at);
      if (o.has(Own::theta)) {
        d.d_final_im = offset(o.template state<const T>(call.d_final, 1), at);
        d.d_initial_im = offset(o.template state<T>(call.d_initial, 1), at);
      }
      return elementwise::backward(problem(o, call.state, one, h, at), d, form, chunk_of(o.body(), form),
                                   simd_of<T>(o.body()), arena.rest());
    });
  }
};

template <class T>
struct RotatingCalls {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form,
                               bool backward) {
    return team_workspace(body, step, time, form, backward, 1);
  }
  static std::size_t team_workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form,
                                    bool backward, int workers) {
    return elementwise::workspace_bytes<T>(width(body, step.operands[Slot::k]), width(body, step.operands[Slot::v]),
                                           time, form, chunk_of(body, form), backward, workers);
  }
  static RotatingProblem<T> problem(const KernelArgs<T>& o, State state) {
    const LinearProblem<T> linear = o.problem(state);
    RotatingProblem<T> p;
    p.sequences = linear.sequences;
    p.heads = linear.heads, p.key_heads = linear.key_heads;
    p.key_dim = linear.key_dim, p.value_dim = linear.value_dim, p.scale = linear.scale;
    p.q = linear.q, p.k = linear.k, p.v = linear.v, p.o = linear.o;
    p.g = o.channels(Own::gk, p.key_dim), p.theta = o.channels(Own::theta, p.key_dim);
    p.state = linear.state, p.state_im = o.template state<T>(state, 1);
    p.team = linear.team, p.chosen_by = linear.chosen_by;
    return p;
  }
  static Status forward(const KernelArgs<T>& o, State state, Form form, Workspace work) noexcept {
    return elementwise::forward(problem(o, state), form, chunk_of(o.body(), form), simd_of<T>(o.body()), work);
  }
  static Status backward(const KernelArgs<T>& o, const Call& call, Form form, Arena arena) noexcept {
    const LinearGradient<T> linear = o.gradient(call);
    RotatingGradient<T> d;
    d.d_o = linear.d_o, d.d_q = linear.d_q, d.d_k = linear.d_k, d.d_v = linear.d_v;
    d.d_g = o.d_channels(Own::gk, o.key_dim()), d.d_theta = o.d_channels(Own::theta, o.key_dim());
    d.d_final = linear.d_final, d.d_initial = linear.d_initial;
    d.d_final_im = o.template state<const T>(call.d_final, 1);
    d.d_initial_im = o.template state<T>(call.d_initial, 1);
    return elementwise::backward(problem(o, call.state), d, form, chunk_of(o.body(), form), simd_of<T>(o.body()),
                                 arena.rest());
  }
};

template <class T>
struct SelectiveCalls {
  static std::size_t workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form,
                               bool backward) {
    return RotatingCalls<T>::workspace(body, step, time, form, backward);
  }
  static std::size_t team_workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form,
                                    bool backward, int workers) {
    return RotatingCalls<T>::team_workspace(body, step, time, form, backward, workers);
  }
  static SelectiveProblem<T> problem(const KernelArgs<T>& o, State state) {
    const LinearProblem<T> linear = o.problem(state);
    SelectiveProblem<T> p;
    p.sequences = linear.sequences;
    p.gate = o.step().template options<SelectiveGate>();
    p.heads = linear.heads, p.key_heads = linear.key_heads;
    p.key_dim = linear.key_dim, p.value_dim = linear.value_dim, p.scale = linear.scale;
    p.q = linear.q, p.k = linear.k, p.u = linear.v, p.o = linear.o;
    p.step = o.vectors(Own::step);
    if (o.has(Own::rates)) p.A = o.per_entry(Own::rates);
    p.state = linear.state;
    p.team = linear.team, p.chosen_by = linear.chosen_by;
    return p;
  }
  static Status forward(const KernelArgs<T>& o, State state, Form form, Workspace work) noexcept {
    return elementwise::forward(problem(o, state), form, chunk_of(o.body(), form), simd_of<T>(o.body()), work);
  }
  static Status backward(const KernelArgs<T>& o, const Call& call, Form form, Arena arena) noexcept {
    const LinearGradient<T> linear = o.gradient(call);
    SelectiveGradient<T> d;
    d.d_o = linear.d_o, d.d_q = linear.d_q, d.d_k = linear.d_k, d.d_u = linear.d_v;
    d.d_step = o.d_vectors(Own::step);
    if (o.has(Own::rates)) d.d_A = o.d_per_entry(Own::rates);
    d.d_final = linear.d_final, d.d_initial = linear.d_initial;
    return elementwise::backward(problem(o, call.state), d, form, chunk_of(o.body(), form), simd_of<T>(o.body()),
                                 arena.rest());
  }
};

}  // namespace

const Family channel_family = {.name = "elementwise",
                               .forms = scan_only,
                               .why_absent = elementwise_state,
                               .traits = {.splits_columns = true, .team = by_segments},
                               .claim = claim_channel,
                               .build = build_channel,
                               .f32 = calls_of<ChannelCalls, float>(),
                               .f64 = calls_of<ChannelCalls, double>()};

const Family rotating_family = {
    .name = "elementwise",
    .forms = scan_only,
    .why_absent = "the gates are complex, so a block would need complex products; the scan is exact",
    .traits = {.splits_columns = true, .team = by_segments},
    .claim = claim_rotating,
    .build = build_rotating,
    .f32 = calls_of<RotatingCalls, float>(),
    .f64 = calls_of<RotatingCalls, double>()};

const Family selective_family = {
    .name = "elementwise",
    .forms = scan_only,
    .why_absent =
        "every entry of the state has a gate of its own, and a gate that is no product of a row and a column "
        "has no matrix form; the scan is exact",
    .traits = {.splits_columns = true, .team = by_segments},
    .build = build_selective,
    .f32 = calls_of<SelectiveCalls, float>(),
    .f64 = calls_of<SelectiveCalls, double>()};

}  // namespace ttr::families
