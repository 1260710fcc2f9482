// The plan of gradient steps on objectives of many pairs (descent.h): gd(n) and descend(n), and what sgd(n) does beyond one
// plain step, in linear memories and small networks.
#include "families/solve/descent/descent.h"

#include "families/network/neural/model.h"
#include "families/network/neural/neural_plan.h"
#include "families/pairs/pairs_plan.h"

namespace ttr::families {
namespace {

struct Own {
  enum : std::size_t { rate = Slot::own, momentum, decay, near_q, near_k, bandwidth, count };
};

struct DescentOptions {
  DescentModel model;
  int weights = -1, z = -1, h = -1, list = -1;  // parts of the state
};
const DescentModel& model_of_step(const Step& step) { return step.options<DescentOptions>().model; }

bool is_network(const Memory& m) {
  using Class = Memory::Class;
  return m.kind == Class::mlp || m.kind == Class::swiglu || m.kind == Class::layernorm_linear;
}
/// A matrix; `constant` is one of a single row, whose keys are 1.
bool is_linear(const Memory& m) {
  return (m.kind == Memory::Class::linear && !m.reverse) || (m.kind == Memory::Class::constant && !m.per_channel);
}
bool is_constant(const Memory& m) { return m.kind == Memory::Class::constant; }
/// Whether H and F say all about the objective.
bool by_sums(const Design& d) {
  return is_linear(d.memory) && d.weights.window == 0 && d.weights.near == Kernel::none &&
         d.solver.kind != Solver::Kind::sgd && d.extras.loss == Extras::Loss::squared;
}

bool claim(const Design& design, bool causal) {
  using Kind = Solver::Kind;
  using Loss = Extras::Loss;
  using Decay = Solver::Decay;
  Claim rest(design);
  // The function class.
  const bool linear = is_linear(design.memory);
  rest.takes_any_features(), rest.takes_read_norms();
  rest.needs(linear || is_network(design.memory));
  rest.needs(design.memory.kind != Memory::Class::mlp || design.memory.depth <= neural::max_depth);
  rest.takes(rest.m.kind, {Memory::Class::constant});
  if (!linear) {
    rest.m.kind = {}, rest.m.depth = Memory{}.depth, rest.m.width = 0, rest.m.activation = {};
    rest.m.bias = rest.m.residual = rest.m.layernorm = false;
  }
  // The loss; a threshold is the same for all pairs.
  if (rest.takes(rest.x.loss, {Loss::dot, Loss::lp, Loss::huber, Loss::huber_coordinate})) {
    rest.needs(!rest.x.loss_parameter.is_input());
    rest.x.loss_parameter = {};
  }
  // n steps along a gradient that does not change are one: an equal design has a faster kernel (recipe/equal.h).
  // A leak or shrink in between fades the steps before it.
  const bool fades = design.solver.decay_kind == Decay::leak || design.solver.decay_kind == Decay::shrink;
  rest.needs(!linear || design.extras.loss != Loss::dot || design.solver.kind == Kind::descend ||
             (fades && design.solver.steps > 1));
  // The weights.
  const bool newest = design.solver.kind == Kind::sgd;
  if (newest) {
    ignores_fade(rest);
  } else {
    rest.takes_fade(), rest.takes_importance();
    rest.w.window = 0;
    if (rest.takes(rest.w.near, {Kernel::exponential, Kernel::gaussian}))
      rest.w.near_scale = 0, rest.w.bandwidth = {};
  }
  // The steps.
  rest.needs(rest.takes(rest.s.kind, {Kind::sgd, Kind::descend}) || design.solver.kind == Kind::gd);
  if (design.solver.kind != Kind::gd) rest.x.read_before = false;
  if (linear && !newest) rest.takes(rest.s.rule, {Solver::Rule::automatic});
  rest.s.steps = 1, rest.s.step_list.clear(), rest.s.step_each = false;
  rest.takes_plain_step(), rest.takes_decay_before();
  if (rest.takes(rest.s.decay_kind, {Decay::leak, Decay::shrink})) rest.s.decay = {};
  rest.s.momentum = {}, rest.s.momentum_auto = rest.s.nesterov = false;
  return causal && rest.is_nothing();
}

DescentModel model_for(Builder& b, int k) {
  const Design& d = b.design();
  const Solver& s = d.solver;
  const std::optional<NeuralModel> network =
      network_of(is_constant(d.memory) ? Memory{} : d.memory, d.extras, b.width(k), b.shape().value_dim);
  if (!network)
    throw Error("a memory that adds its input to its answer needs key_dim = value_dim; they are " +
                    std::to_string(b.width(k)) + " and " + std::to_string(b.shape().value_dim),
                "shape.value_dim");
  DescentModel m;
  m.network = *network;
  m.linear = is_linear(d.memory);
  m.sums = by_sums(d);
  m.window = s.kind == Solver::Kind::sgd ? 1 : d.weights.window;
  m.steps = s.steps, m.restarts = s.kind == Solver::Kind::gd;
  m.automatic = s.rule == Solver::Rule::automatic;
  m.list = s.step_list, m.each = s.step_each;
  m.momentum = s.momentum.given(), m.momentum_auto = s.momentum_auto, m.nesterov = s.nesterov;
  m.network.momentum = (m.has_momentum() && m.carries()) || m.gathered();  // a second set of parameters
  m.decay = s.decay_kind == Solver::Decay::before   ? DescentModel::Decay::before
            : s.decay_kind == Solver::Decay::leak   ? DescentModel::Decay::leak
            : s.decay_kind == Solver::Decay::shrink ? DescentModel::Decay::shrink
                                                    : DescentModel::Decay::none;
  m.read_before = d.extras.read_before;
  if (d.weights.near != Kernel::none) {
    const bool exponential = d.weights.near == Kernel::exponential;
    m.near = exponential ? DescentModel::Near::exponential : DescentModel::Near::gaussian;
    m.near_scale = near_scale(b), m.near_dim = b.shape().key_dim;
    m.own_near = m.linear && (is_constant(d.memory) || d.memory.feature != Memory::Feature::identity);
  }
  m.threshold = d.extras.loss_parameter.value;
  return m;
}

// The pairs that later tokens see.
std::vector<StatePart> pairs_listed(Builder& b, int k, int v, bool near, bool gates, bool weights) {
  b.pipeline().history = true;
  const std::ptrdiff_t H = b.shape().heads;
  const bool grouped = b.axes(k).has('G');
  const char letter = b.axes(k).empty() ? '1' : b.axes(k).back();
  std::vector<StatePart> parts = {
      {{"k", std::string(grouped ? "B N G " : "B N H ") + letter, "keys of the pairs kept, oldest first"},
       {grouped ? b.shape().key_heads : H, b.width(k)},
       b.type()},
      {{"v", b.axes(v).has('G') ? "B N G V" : "B N H V", "values of the pairs kept"},
       {b.axes(v).has('G') ? b.shape().key_heads : H, b.shape().value_dim},
       b.type()}};
  if (near)
    parts.push_back(
        {{"key", "B N G K", "keys before their features"}, {b.shape().key_heads, b.shape().key_dim}, b.type()});
  if (gates) parts.push_back({{"g", "B N H", "log gates of the pairs kept"}, {H}, b.type()});
  if (weights) parts.push_back({{"beta", "B N H", "importances of the pairs kept"}, {H}, b.type()});
  for (StatePart& part : parts) part.history = true;
  return parts;
}

// The memory and, where it is kept, what moved it last.
std::vector<StatePart> memory_parts(Builder& b, const DescentModel& m, int k, int v) {
  if (!is_constant(b.design().memory)) return network_parts(b, m.network, k);
  std::vector<StatePart> parts = {b.memory_part(k, v)};
  if (m.network.momentum) parts.push_back(b.memory_part(k, v, "Z", "the last update"));
  return parts;
}

int build(Builder& b, double scale) {
  const Solver& s = b.design().solver;
  const bool constant = is_constant(b.design().memory);
  const int q = constant ? b.constant(1) : b.keys("q"), k = constant ? b.constant(1) : b.keys("k"),
            v = b.canonical("v");
  DescentOptions options{model_for(b, k)};
  const DescentModel& m = options.model;
  const bool newest = s.kind == Solver::Kind::sgd, near = m.near != DescentModel::Near::none;
  // Near: the scale of the caller belongs to the weights.
  Step step = b.kernel(m.lists_pairs() ? listed_descent_family : descent_family, near || constant ? 1 : scale, q, k,
                       v, newest ? -1 : b.log_fade(), newest ? -1 : b.importance(), Own::count);
  if (m.each) step.operands[Own::rate] = b.canonical("beta");
  else if (m.list.empty() && !m.automatic) step.operands[Own::rate] = b.quantity(s.step, "beta");
  if (near) step.operands[Own::near_q] = m.own_near ? b.plain_keys("q") : q;
  if (m.own_near) step.operands[Own::near_k] = b.plain_keys("k");
  if (near) step.operands[Own::bandwidth] = bandwidth_of_weights(b);
  if (m.momentum) step.operands[Own::momentum] = b.quantity(s.momentum, "momentum");
  if (m.decay == DescentModel::Decay::before) step.operands[Own::decay] = b.decay_before();
  else if (m.decay != DescentModel::Decay::none) step.operands[Own::decay] = b.quantity(s.decay, "lam");

  std::vector<StatePart> parts;
  const auto begin = [&](std::vector<StatePart> more) {
    const int first = static_cast<int>(parts.size());
    parts.insert(parts.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    return first;
  };
  if (m.carries() || !m.linear) {
    std::vector<StatePart> memory = memory_parts(b, m, k, v);
    for (StatePart& part : memory) {
      part.type = Type::f64;
      if (!m.gathered() || !part.info.name.starts_with("Z_")) continue;
      part.info.name.front() = 'G';
      part.info.meaning = "sum of the gradients of " + part.info.name.substr(2);
    }
    options.weights = begin(std::move(memory));
    if (m.network.momentum) options.z = options.weights + NeuralLayout(m.network).count;
  }
  if (m.sums) {
    StatePart h = b.memory_part(k, k, "H", "sum of w k k'"), f = b.memory_part(k, v, "F", "sum of w k v'");
    h.type = f.type = Type::f64;
    h.info.range = f.info.range = Range::fresh;
    options.h = begin({h, f});
  }
  if (m.lists_pairs())
    options.list =
        begin(pairs_listed(b, k, v, m.own_near, step.operands[Slot::g] >= 0, step.operands[Slot::beta] >= 0));
  step.set_options(std::move(options));
  return b.add(std::move(step), "BTHV", std::move(parts));
}

template <class T>
struct DescentCalls {
  static std::size_t workspace(const Plan::Body&, const Step& step, std::int64_t time, Form, bool backward) {
    return descent::workspace_bytes(model_of_step(step), time, backward);
  }
  template <class N, class AnyState>
  static DescentState<N> parts(const KernelArgs<T>& o, AnyState state) {
    const DescentOptions& options = o.step().template options<DescentOptions>();
    DescentState<N> x;
    const int count = NeuralLayout(options.model.network).count;
    const auto group = [&](int first, NeuralParts<N>& to) {
      for (int i = 0; first >= 0 && i < count; ++i)
        to[static_cast<std::size_t>(i)] = o.template state<N>(state, first + i);
    };
    if (!state.data) return x;
    group(options.weights, x.weights), group(options.z, x.z);
    if (options.h >= 0) x.h = o.template state<N>(state, options.h), x.f = o.template state<N>(state, options.h + 1);
    return x;
  }
  // The list in a buffer, or its gradient.
  template <class N, class AnyState>
  static DescentPast<N> listed(const KernelArgs<T>& o, AnyState state) {
    DescentPast<N> x;
    int part = o.step().template options<DescentOptions>().list;
    if (part < 0) return x;
    x.k = history<N>(o, state, part), x.v = history<N>(o, state, part + 1), part += 2;
    if (o.has(Own::near_k)) x.near = history<N>(o, state, part++);
    if (o.has(Slot::g)) x.g = without_last(history<N>(o, state, part++));
    if (o.has(Slot::beta)) x.beta = without_last(history<N>(o, state, part++));
    return x;
  }
  static DescentProblem<T> problem(const KernelArgs<T>& o, State state) {
    const DescentModel& m = model_of_step(o.step());
    DescentProblem<T> p;
    p.model = &m;
    p.linear = o.problem(State{});
    p.query_heads = o.heads_of(Slot::q), p.value_heads = o.heads_of(Slot::v);
    p.near_q = o.vectors(Own::near_q), p.near_k = o.vectors(Own::near_k);
    p.bandwidth = o.per_head_number(Own::bandwidth);
    p.rate = o.channels(Own::rate, m.each ? m.steps : 1);
    p.momentum = o.scalars(Own::momentum), p.decay = o.scalars(Own::decay);
    p.state = parts<double>(o, state);
    p.keep = o.keep();
    if (m.lists_pairs()) p.past = listed<const T>(o, ConstState(state)), p.past_count = o.counts(ConstState(state));
    return p;
  }
  static Status forward(const KernelArgs<T>& o, State state, Form form, Workspace work) noexcept {
    const bool lists = model_of_step(o.step()).lists_pairs();
    if (lists && o.keep() && !has_room(o, state)) return Status::state_full;
    const DescentProblem<T> p = problem(o, state);
    const Status status = descent::forward(p, form, *o.body().simd_f64, work);
    if (status != Status::ok || !lists || !o.keep()) return status;
    int part = o.step().template options<DescentOptions>().list;
    append(o, state, part, p.linear.k), append(o, state, part + 1, p.linear.v), part += 2;
    if (p.near_k) append(o, state, part++, p.near_k);
    if (p.linear.g) append(o, state, part++, with_last(p.linear.g));
    if (p.linear.beta) append(o, state, part++, with_last(p.linear.beta));
    count_up(o, state);
    return status;
  }
  static Status backward(const KernelArgs<T>& o, const Call& call, Form form, Arena arena) noexcept {
    const DescentModel& m = model_of_step(o.step());
    DescentGradient<T> d;
    d.linear = o.gradient(call);
    d.linear.d_final = nullptr, d.linear.d_initial = nullptr;
    const GateGradient<T> d_g(o, Slot::g, arena), d_beta(o, Slot::beta, arena);
    d.linear.d_g = d_g.view(), d.linear.d_beta = d_beta.view();
    d.d_near_q = o.d_vectors(Own::near_q), d.d_near_k = o.d_vectors(Own::near_k);
    d.d_bandwidth = o.d_per_head_number(Own::bandwidth);
    d.d_rate = o.d_channels(Own::rate, m.each ? m.steps : 1);
    d.d_momentum = o.d_scalars(Own::momentum), d.d_decay = o.d_scalars(Own::decay);
    d.d_final = parts<const double>(o, call.d_final), d.d_initial = parts<double>(o, call.d_initial);
    if (m.lists_pairs()) d.d_past = listed<T>(o, call.d_initial);
    const Status status = descent::backward(problem(o, call.state), d, form, *o.body().simd_f64, arena.rest());
    if (m.lists_pairs()) {
      int part = o.step().template options<DescentOptions>().list;
      from_final(o, call, part, d.linear.d_k), from_final(o, call, part + 1, d.linear.d_v), part += 2;
      if (o.has(Own::near_k)) from_final(o, call, part++, d.d_near_k);
      if (o.has(Slot::g)) from_final(o, call, part++, with_last(d.linear.d_g));
      if (o.has(Slot::beta)) from_final(o, call, part++, with_last(d.linear.d_beta));
      copy_counts(o, call);
    }
    d_g.finish(), d_beta.finish();
    return status;
  }
};

constexpr std::string_view why =
    "every token multiplies the whole answer by a matrix of its own, which a block of tokens does not make cheaper";

}  // namespace

const Family descent_family = {.name = "descent",
                               .forms = token_by_token,
                               .why_absent = why,
                               .claim = claim,
                               .build = build,
                               .f32 = calls_of<DescentCalls, float>(),
                               .f64 = calls_of<DescentCalls, double>()};

// The same kernel where the pairs are a list.
const Family listed_descent_family = {.name = "descent",
                                      .forms = token_by_token,
                                      .why_absent = why,
                                      .traits = {.keeps_pairs = true, .best = BestForm::recurrent},
                                      .f32 = calls_of<DescentCalls, float>(),
                                      .f64 = calls_of<DescentCalls, double>()};

}  // namespace ttr::families
