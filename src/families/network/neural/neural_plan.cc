// The plan of a memory that is a small network (neural.h): its model, operands and state.
#include "families/network/neural/neural_plan.h"

#include "families/network/neural/options.h"
#include "plan/fresh_state.h"

namespace ttr::families {
namespace {

// What a layer does beyond its recipe.
void apply(const NeuralOptions& options, NeuralModel& model) {
  model.block |= options.block, model.lazy |= options.lazy;
  model.step_every = options.step_every, model.rates = options.rates;
  if (options.batch >= 0) model.batch = options.batch;
  if (options.learned_norm) model.norm = neural::Norm::learned;
  if (options.norm_eps > 0) model.norm_eps = options.norm_eps;
  if (options.skip_sum) model.skip = neural::Skip::sum;
  if (options.scheduled && model.orthogonalise != neural::Orthogonalise::none)
    model.orthogonalise = neural::Orthogonalise::scheduled;
  if (options.sign_loss) model.loss = neural::Loss::huber_sign;
  model.gradient_scale = options.gradient_scale / (options.mean_gradient ? model.value_dim : 1);
}

// Networks, and linear memories with a loss or solver that only their kernel has.
bool claim(const Design& design, bool causal) {
  using Class = Memory::Class;
  using Kind = Solver::Kind;
  using Loss = Extras::Loss;
  Claim rest(design);
  // The function class.
  const bool linear = rest.m.kind == Class::linear && !rest.m.reverse;
  rest.takes_any_features(), rest.takes_read_norms();
  rest.needs(linear || rest.takes(rest.m.kind, {Class::layernorm_linear, Class::mlp, Class::swiglu}));
  rest.needs(design.memory.kind != Class::mlp || (rest.m.depth >= 1 && rest.m.depth <= neural::max_depth));
  if (!linear) {
    rest.m.depth = Memory{}.depth, rest.m.width = 0, rest.m.activation = {};
    rest.m.bias = rest.m.residual = rest.m.layernorm = false;
  }
  // The loss.
  if (rest.x.loss == Loss::lp) rest.needs(rest.x.loss_parameter.is_constant());
  rest.takes(rest.x.loss, {Loss::dot, Loss::huber, Loss::huber_coordinate, Loss::lp});
  if (rest.x.loss == Loss::squared) rest.x.loss_parameter = {};
  rest.x.read_before = false;
  // The solver.
  const bool huber = design.extras.loss == Loss::huber || design.extras.loss == Loss::huber_coordinate;
  if (rest.takes(rest.s.kind, {Kind::descend})) {
    rest.needs(rest.w.window > 0 && !huber);
    rest.w.window = 0;
    rest.takes_importance();
  } else if (rest.takes(rest.s.kind, {Kind::minibatch})) {
    rest.s.batch = 1;
  } else {
    rest.needs(rest.s.kind, {Kind::sgd});
  }
  rest.takes_plain_step(), rest.takes_decay_before();
  if (rest.takes(rest.s.decay_kind, {Solver::Decay::shrink})) rest.s.decay = {};
  rest.s.momentum = {}, rest.s.muon = rest.s.row_norm = false;
  if (rest.s.mirror != Solver::Mirror::none) rest.s.mirror = {}, rest.s.radius = 1;  // not with another map
  else rest.s.q_norm = 0;
  return causal && rest.is_nothing();
}

int build(Builder& b, double scale) {
  const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
  Step step = network_step(b, neural_family, q, k, v, scale);
  std::vector<StatePart> parts = network_parts(b, model_of(step), k);
  return b.add(std::move(step), "BTHV", std::move(parts));
}

}  // namespace

int batch_of(const Step& step) { return std::max(1, model_of(step).batch); }

std::vector<StatePart> network_parts(Builder& b, const NeuralModel& model, int k) {
  const NeuralLayout layout(model);
  const NeuralPlaces places(model);
  const bool linear = b.design().memory.kind == Memory::Class::linear;
  const std::vector<std::string> names = parameter_names(model, linear);
  oracle::Sizes sizes;
  sizes.heads = b.shape().heads, sizes.key_heads = b.shape().heads;
  sizes.key_dim = b.shape().key_dim, sizes.value_dim = b.shape().value_dim;
  b.pipeline().fresh = std::make_shared<const FreshState>(b.design(), sizes);
  const std::vector<oracle::StateShape> shapes = oracle::state_shapes(b.design());
  const auto is_fresh = [&](const std::string& name) {
    return std::any_of(shapes.begin(), shapes.end(), [&](const oracle::StateShape& s) { return s.name == name; });
  };
  b.pipeline().letters['D'] = model.width;
  const std::string key_letter(1, b.axes(k).back());
  std::vector<StatePart> parts;

  const auto letter_of = [&](int j, bool in) {  // of the side of matrix j
    const bool gate = model.gated && j == layout.matrices - 1;
    const bool first = j == 0 || gate, last = !gate && (model.gated ? j == 1 : j == layout.matrices - 1);
    return in ? (first ? key_letter : "D") : (last ? "V" : "D");
  };
  const auto each = [&](const std::string& prefix, const std::string& meaning, Range range) {
    for (int i = 0; i < layout.count; ++i) {
      const NeuralLayout::Part& part = layout.part[static_cast<std::size_t>(i)];
      const std::string& name = names[static_cast<std::size_t>(i)];
      const int j = i / (1 + int{model.bias});  // matrix, or that of the bias
      const bool gamma = name == "gamma";
      StatePart s;
      s.info.name = linear ? (prefix.empty() ? "S" : prefix == "Z_" ? "Z" : prefix + "S") : prefix + name;
      s.info.shape = part.matrix ? "B H " + letter_of(j, true) + " " + letter_of(j, false)
                                 : "B H " + (gamma ? "V" : letter_of(j, false));
      s.info.meaning = meaning + (prefix.empty() ? "" : " " + name);
      s.info.range = range == Range::weights && !part.matrix ? Range::small : range;
      s.extent = {b.shape().heads};
      if (part.matrix) s.extent.push_back(part.in);
      s.extent.push_back(part.out);
      s.type = b.type();
      if (is_fresh(name) && (prefix.empty() || prefix == "start_") &&
          !(b.layer() && b.layer()->options_or_default<NeuralOptions>().zero_start))
        s.fresh_name = name;
      parts.push_back(std::move(s));
    }
  };
  each("", "the memory", linear && model.q_norm == 0 ? Range::normal : Range::weights);
  if (places.start >= 0) each("start_", "at the start of the block:", Range::fresh);
  if (places.z >= 0)
    each("Z_", model.block ? "sum of the block's updates of" : "the last update of",
         model.block ? Range::fresh : Range::small);
  if (places.pending >= 0) each("pending_", "updates not yet taken of", Range::fresh);
  if (places.gate_sums >= 0) {
    b.pipeline().letters['E'] = 2;
    parts.push_back({{"gate_sums", "B H E", "momentum and decay of the step so far", Range::fresh},
                     {b.shape().heads, 2},
                     b.type()});
  }
  if (places.history >= 0) {
    const int n = model.window - 1;
    b.pipeline().letters['W'] = n;
    const bool grouped = b.axes(k).has('G');
    parts.push_back(
        {{"k", (grouped ? "B W G " : "B W H ") + key_letter, "keys of the window, oldest first", Range::fresh},
         {n, grouped ? b.shape().key_heads : b.shape().heads, b.width(k)},
         b.type()});
    parts.push_back({{"v", "B W H V", "values of the window", Range::fresh},
                     {n, b.shape().heads, b.shape().value_dim},
                     b.type()});
    parts.push_back({{"weight", "B W H", "importances of the window", Range::fresh}, {n, b.shape().heads}, b.type()});
  }
  if (places.norms >= 0)
    for (int j = 0; j < layout.matrices; ++j) {
      const std::string name = "norm_" + names[static_cast<std::size_t>(layout.matrix(j))];
      StatePart s{{name, "B H " + letter_of(j, false), "initial lengths of the columns", Range::positive},
                  {b.shape().heads, layout.part[static_cast<std::size_t>(layout.matrix(j))].out},
                  b.type()};
      if (is_fresh(name)) s.fresh_name = name;
      parts.push_back(std::move(s));
    }
  return parts;
}

Step network_step(Builder& b, const Family& family, int q, int k, int v, double scale) {
  const Solver& s = b.design().solver;
  const std::optional<NeuralModel> known = neural_model(b.design(), b.width(q), b.shape().value_dim);
  if (!known)
    throw Error("a memory that adds its input to its answer needs key_dim = value_dim; they are " +
                    std::to_string(b.width(q)) + " and " + std::to_string(b.shape().value_dim),
                "shape.value_dim");
  NeuralModel model = *known;
  if (b.layer()) apply(b.layer()->options_or_default<NeuralOptions>(), model);
  Step step = b.kernel(family, scale, q, k, v, -1, -1, NeuralSlot::count);
  const bool beta_is_importance = b.design().weights.importance == Weights::Importance::beta;
  const auto own = [&](const std::string& name) { return b.layer() && b.has(name) ? b.index_of(name) : -1; };
  if (s.step.is_constant()) step.operands[NeuralSlot::rate] = b.constant(s.step.value);
  else if (beta_is_importance && !s.step.is_input()) step.operands[NeuralSlot::rate] = own("rate");
  else if (const int rate = b.canonical("rate"); rate >= 0) step.operands[NeuralSlot::rate] = rate;
  else if (s.step.is_input()) step.operands[NeuralSlot::rate] = b.canonical("beta");
  if (model.momentum) step.operands[NeuralSlot::momentum] = b.quantity(s.momentum, "momentum");
  if (model.decay == neural::Decay::log) step.operands[NeuralSlot::decay] = b.decay_before();
  if (model.decay == neural::Decay::complement) step.operands[NeuralSlot::decay] = b.quantity(s.decay, "lam");
  const bool threshold = model.loss == neural::Loss::huber || model.loss == neural::Loss::huber_coordinate ||
                         model.loss == neural::Loss::huber_sign;
  if (threshold) step.operands[NeuralSlot::threshold] = b.quantity(b.design().extras.loss_parameter, "c");
  if (beta_is_importance && model.window > 1) step.operands[NeuralSlot::weight] = b.importance();
  if (beta_is_importance && model.window == 1) {  // one pair: its importance is a factor of the step
    int& rate = step.operands[NeuralSlot::rate];
    rate = rate < 0 ? b.importance() : b.operation(prepare::Op::multiply, {rate, b.importance()}, "BTH");
  }
  step.operands[NeuralSlot::gain] = own("gain"), step.operands[NeuralSlot::place_gain] = own("token_eta");
  step.operands[NeuralSlot::norm_weight] = own("norm_w"), step.operands[NeuralSlot::norm_bias] = own("norm_b");
  if (b.layer() && b.produced("rates")) step.operands[NeuralSlot::rate] = b.operand("rates");
  for (const std::string& name : parameter_names(model, b.design().memory.kind == Memory::Class::linear))
    step.operands.push_back(own(name));
  step.set_options(NetworkOptions{model});
  b.pipeline().counted = true;
  return step;
}

const Family neural_family = {
    .name = "neural",
    .forms = chunk_only,
    .why_absent =
        "the memory is no linear function of its past: segments do not compose, and a block is part of the "
        "model",
    .traits = {.best = BestForm::chunk_of_any_length},
    .claim = claim,
    .build = build,
    .f32 = calls_of<NeuralCalls, float>(),
    .f64 = calls_of<NeuralCalls, double>(),
    .time_unit = batch_of};

}  // namespace ttr::families
