// The step of a memory that is a small network (families/network/neural/neural.h): its model, operands and state.
#include "plan/builder.h"
#include "plan/neural_model.h"

namespace ttr {

using families::NeuralModel;
namespace neural = families::neural;

namespace {

// What a layer does beyond its recipe.
void apply(const zoo::NeuralOptions& options, NeuralModel& model) {
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

}  // namespace

// The states of the step, in the order of NeuralPlaces. Weights begin as the oracle's do.
std::vector<StatePart> Builder::neural_parts(const NeuralModel& model, int k) {
  const families::NeuralLayout layout(model);
  const NeuralPlaces places(model);
  const bool linear = p_.design.memory.kind == Memory::Class::linear;
  const std::vector<std::string> names = parameter_names(model, linear);
  oracle::Sizes sizes;
  sizes.heads = shape_.heads, sizes.key_heads = shape_.heads;
  sizes.key_dim = shape_.key_dim, sizes.value_dim = shape_.value_dim;
  const oracle::Arrays fresh = oracle::fresh_state(p_.design, sizes);
  p_.letters['D'] = model.width;
  const std::string key_letter(1, axes(k).back());
  std::vector<StatePart> parts;

  const auto letter_of = [&](int j, bool in) {  // of the side of matrix j
    const bool gate = model.gated && j == layout.matrices - 1;
    const bool first = j == 0 || gate, last = !gate && (model.gated ? j == 1 : j == layout.matrices - 1);
    return in ? (first ? key_letter : "D") : (last ? "V" : "D");
  };
  const auto each = [&](const std::string& prefix, const std::string& meaning, Range range) {
    for (int i = 0; i < layout.count; ++i) {
      const families::NeuralLayout::Part& part = layout.part[static_cast<std::size_t>(i)];
      const std::string& name = names[static_cast<std::size_t>(i)];
      const int j = i / (1 + int{model.bias});  // matrix, or that of the bias
      const bool gamma = name == "gamma";
      StatePart s;
      s.info.name = linear ? (prefix.empty() ? "S" : prefix == "Z_" ? "Z" : prefix + "S") : prefix + name;
      s.info.shape = part.matrix ? "B H " + letter_of(j, true) + " " + letter_of(j, false)
                                 : "B H " + (gamma ? "V" : letter_of(j, false));
      s.info.meaning = meaning + (prefix.empty() ? "" : " " + name);
      s.info.range = range == Range::weights && !part.matrix ? Range::small : range;
      s.extent = {shape_.heads};
      if (part.matrix) s.extent.push_back(part.in);
      s.extent.push_back(part.out);
      s.type = type_;
      if (const auto found = fresh.find(name);
          found != fresh.end() && (prefix.empty() || prefix == "start_") && !(layer_ && layer_->neural.zero_start))
        s.fresh_numbers = found->second.data;
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
    p_.letters['E'] = 2;
    parts.push_back(
        {{"gate_sums", "B H E", "momentum and decay of the step so far", Range::fresh}, {shape_.heads, 2}, type_});
  }
  if (places.history >= 0) {
    const int n = model.window - 1;
    p_.letters['W'] = n;
    const bool grouped = axes(k).find('G') != std::string::npos;
    parts.push_back(
        {{"k", (grouped ? "B W G " : "B W H ") + key_letter, "keys of the window, oldest first", Range::fresh},
         {n, grouped ? shape_.key_heads : shape_.heads, width(k)},
         type_});
    parts.push_back(
        {{"v", "B W H V", "values of the window", Range::fresh}, {n, shape_.heads, shape_.value_dim}, type_});
    parts.push_back({{"weight", "B W H", "importances of the window", Range::fresh}, {n, shape_.heads}, type_});
  }
  if (places.norms >= 0)
    for (int j = 0; j < layout.matrices; ++j) {
      const std::string name = "norm_" + names[static_cast<std::size_t>(layout.matrix(j))];
      StatePart s{{name, "B H " + letter_of(j, false), "initial lengths of the columns", Range::positive},
                  {shape_.heads, layout.part[static_cast<std::size_t>(layout.matrix(j))].out},
                  type_};
      if (const auto found = fresh.find(name); found != fresh.end()) s.fresh_numbers = found->second.data;
      parts.push_back(std::move(s));
    }
  return parts;
}

// The step without its states; q tells the width of keys where a memory makes its keys itself.
Step Builder::network(KernelKind kind, int q, int k, int v, double scale) {
  const Solver& s = p_.design.solver;
  const std::optional<NeuralModel> known = neural_model(p_.design, width(q), shape_.value_dim);
  if (!known)
    throw Error("a memory that adds its input to its answer needs key_dim = value_dim; they are " +
                    std::to_string(width(q)) + " and " + std::to_string(shape_.value_dim),
                "shape.value_dim");
  NeuralModel model = *known;
  if (layer_) apply(layer_->neural, model);
  Step step = kernel(kind, scale, q, k, v);
  const bool beta_is_importance = p_.design.weights.importance == Weights::Importance::beta;
  const auto own = [&](const std::string& name) { return layer_ && has(name) ? index_of(name) : -1; };
  if (s.step.is_constant()) step.from[Role::rate] = constant(s.step.value);
  else if (beta_is_importance) step.from[Role::rate] = own("rate");
  else if (const int rate = canonical("rate"); rate >= 0) step.from[Role::rate] = rate;
  else if (s.step.is_input()) step.from[Role::rate] = canonical("beta");
  if (model.momentum) step.from[Role::momentum] = quantity(s.momentum, "momentum");
  if (model.decay == neural::Decay::log) step.from[Role::decay] = decay_before();
  if (model.decay == neural::Decay::complement) step.from[Role::decay] = quantity(s.decay, "lam");
  const bool threshold = model.loss == neural::Loss::huber || model.loss == neural::Loss::huber_coordinate ||
                         model.loss == neural::Loss::huber_sign;
  if (threshold) step.from[Role::threshold] = quantity(p_.design.extras.loss_parameter, "c");
  if (beta_is_importance && model.window > 1) step.from[Role::weight] = importance();
  if (beta_is_importance && model.window == 1) {  // one pair: its importance is a factor of the step
    int& rate = step.from[Role::rate];
    rate = rate < 0 ? importance() : operation(prepare::Op::multiply, {rate, importance()}, "BTH");
  }
  step.from[Role::gain] = own("gain"), step.from[Role::place_gain] = own("token_eta");
  step.from[Role::norm_weight] = own("norm_w"), step.from[Role::norm_bias] = own("norm_b");
  if (layer_ && produced("rates")) step.from[Role::rate] = operand("rates");
  for (const std::string& name : parameter_names(model, p_.design.memory.kind == Memory::Class::linear))
    step.from.push_back(own(name));
  step.neural = std::make_shared<const NeuralModel>(model);
  p_.counted = true;
  return step;
}

int Builder::neural_step(int q, int k, int v, double scale) {
  Step step = network(KernelKind::neural, q, k, v, scale);
  std::vector<StatePart> parts = neural_parts(*step.neural, k);
  return kernel_step(std::move(step), "BTHV", std::move(parts));
}

// A network and attention in one layer: Titans. q, k, v of the recipe are the memory's.
int Builder::arrangement_step(double scale) {
  using families::Arrangement;
  const bool context = layer_->own_kernel == zoo::OwnKernel::memory_context;
  const bool layer = layer_->own_kernel == zoo::OwnKernel::memory_layer;
  const int q = canonical("q"), k = context ? -1 : canonical("k"), v = context ? -1 : canonical("v");
  Step step = network(KernelKind::arrangement, q, k, v, scale);
  families::ArrangementModel model;
  model.kind = context ? Arrangement::context : layer ? Arrangement::layer : Arrangement::gate;
  model.memory = *step.neural;
  model.heads = shape_.heads;
  model.memory_key_heads = axes(q).find('G') != std::string::npos ? shape_.key_heads : shape_.heads;
  model.pair_heads = layer ? shape_.heads : shape_.key_heads;
  model.key_dim = shape_.key_dim;
  model.window = extent('W'), model.persistent = extent('M');
  const auto bind = [&](std::size_t role, const char* name) {
    if (has(name)) step.from[role] = index_of(name);
  };
  if (!layer) bind(Role::attend_q, "q"), bind(Role::attend_k, "k"), bind(Role::attend_v, "v");
  bind(Role::map_q, "wq"), bind(Role::map_k, "wk"), bind(Role::map_v, "wv");
  bind(Role::learn_q, "uq"), bind(Role::learn_k, "uk"), bind(Role::learn_v, "uv");
  bind(Role::persistent_k, "pk"), bind(Role::persistent_v, "pv");
  bind(Role::answer_weight, "w_y"), bind(Role::memory_weight, "w_m");
  std::vector<StatePart> parts = neural_parts(*step.neural, q);
  const std::ptrdiff_t rows = families::arrangement::pair_rows(model);
  p_.letters['R'] = static_cast<int>(rows);
  const auto pairs = [&](const char* name, std::string letters, const char* meaning, int heads, int dim) {
    parts.push_back({{name, std::move(letters), meaning, Range::fresh}, {rows, heads, dim}, type_});
  };
  const std::string heads = layer ? "H" : "G";
  pairs("pair_k", "B R " + heads + " K", "keys of the pairs that attention sees", model.pair_heads, model.key_dim);
  pairs("pair_v", "B R " + heads + " V", "their values", model.pair_heads, shape_.value_dim);
  if (context) {
    pairs("retrieved_k", "B R H K", "keys of what the memory gave in this segment", shape_.heads, model.key_dim);
    pairs("retrieved_v", "B R H V", "their values", shape_.heads, shape_.value_dim);
  }
  step.arrangement = std::make_shared<const families::ArrangementModel>(model);
  return kernel_step(std::move(step), "BTHV", std::move(parts));
}

}  // namespace ttr
