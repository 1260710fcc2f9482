// The steps of each family: canonical inputs become the operands of its kernel. Several layers are two kernels with
// an operation between them (slots, the preconditioned delta rule), or one kernel on more tokens (several pairs per
// token, Mamba-3's trapezoid).
#include <cmath>

#include "plan/builder.h"

namespace ttr {

using prepare::Op;

// The factor in front of a quantity that is absent (-1), a constant, or an input.
int Builder::quantity(const Quantity& q, const std::string& input) {
  if (q.is_input()) return canonical(input);
  return q.is_constant() ? constant(q.value) : -1;
}

int Builder::normalised_keys(const std::string& name) {
  int value = canonical(name);
  if (value < 0) return -1;
  const auto keys = p_.design.extras.keys;
  if (keys != Extras::Keys::raw)
    value = operation(keys == Extras::Keys::unit ? Op::unit_norm : Op::rms_norm, {value}, axes(value));
  return features(value);
}

int Builder::features(int value) {
  const Memory& memory = p_.design.memory;
  const auto map = [&](Op op, double number = 0) {
    std::string letters = axes(value);
    const auto wide = prepare::feature_width(op, width(value), 0, number);
    if (wide != width(value)) letters.back() = 'F', p_.letters['F'] = static_cast<int>(wide);
    return operation(op, {value}, letters, number);
  };
  switch (memory.feature) {
    case Memory::Feature::identity:
      return value;
    case Memory::Feature::elu1:
      return map(Op::elu1);
    case Memory::Feature::relu:
      return map(Op::relu);
    case Memory::Feature::silu:
      return map(Op::silu);
    case Memory::Feature::taylor2:
      return map(Op::taylor2);
    case Memory::Feature::polynomial:
      return map(Op::polynomial, memory.degree);
    case Memory::Feature::dpfp:
      return map(Op::dpfp, memory.degree);
  }
  return value;
}

// Log decay of the weights: absent, a constant, an input per head or per token.
int Builder::log_fade() {
  const Weights& w = p_.design.weights;
  if (w.fade == Weights::Fade::equal) return -1;
  if (w.decay.is_constant()) return w.decay.value == 1 ? -1 : constant(std::log(w.decay.value));
  return canonical("g");
}

int Builder::importance() {
  const Weights& w = p_.design.weights;
  return w.importance == Weights::Importance::beta ? quantity(w.beta, "beta") : -1;
}

// The importance of a pair times the constant step of gd(1).
int Builder::scaled_importance() {
  const Solver& s = p_.design.solver;
  const int beta = importance();
  if (s.rule != Solver::Rule::plain || !s.step.is_constant() || s.step.value == 1) return beta;
  const int step = constant(s.step.value);
  return beta < 0 ? step : operation(Op::multiply, {beta, step}, "BTH");
}

int Builder::decay_before() {
  const Solver& s = p_.design.solver;
  if (s.decay_kind != Solver::Decay::before) return -1;
  return s.decay.is_constant() ? constant(std::log1p(-s.decay.value)) : canonical("g");
}

// The step size on the newest pair, as its rule says.
int Builder::step_size(int k) {
  const Solver& s = p_.design.solver;
  const auto rule_step = [&](Op op, const char* input) {
    const int step = s.step.given() ? quantity(s.step, input) : constant(1);
    return operation(op, {step, k}, s.pairs > 1 ? "BPH" : "BTH", s.eps);
  };
  switch (s.rule) {
    case Solver::Rule::nlms:
      return rule_step(Op::nlms_step, "mu");
    case Solver::Rule::longhorn:
      return rule_step(Op::longhorn_step, "delta");
    case Solver::Rule::flow:
      return rule_step(Op::flow_step, "beta");
    default:
      return quantity(s.step, "beta");
  }
}

// A matrix per head that maps what k is to what v is.
StatePart Builder::memory_part(int k, int v, std::string name, std::string meaning) const {
  const auto letter = [&](int value) {
    return axes(value).empty() || !is_inner(axes(value).back()) ? '1' : axes(value).back();
  };
  const std::string shape = std::string("B H ") + letter(k) + " " + letter(v);
  return {{std::move(name), shape, std::move(meaning)}, {shape_.heads, width(k), width(v)}, type_};
}

int Builder::family_step(Claim claim, double scale) {
  if (claim == Claim::channel) return channel_step();
  if (claim == Claim::weighted_mean) return weighted_mean_step();
  const int q = normalised_keys("q"), k = normalised_keys("k"), v = canonical("v");
  switch (claim) {
    case Claim::decay:
      return decay_step(q, k, v, scale);
    case Claim::delta:
      return delta_step(q, k, v, scale);
    case Claim::gated:
      return gated_step(q, k, v, scale);
    case Claim::dplr:
      return dplr_step(q, k, v, scale);
    case Claim::momentum:
      return momentum_step(q, k, v, scale);
    case Claim::projection:
      return projection_step(q, k, v, scale);
    case Claim::rotating:
      return rotating_step(q, k, v, scale);
    case Claim::log_linear:
      return log_linear_step(q, k, v, scale);
    case Claim::stabilised:
      return stabilised_step(q, k, v, scale);
    case Claim::slots:
      return slots_step(q, k, v, scale);
    case Claim::trapezoid:
      return trapezoid_step(q, k, v, scale);
    case Claim::oja:
      return oja_step(q, k, v, scale);
    case Claim::least_squares:
      return least_squares_step(q, k, v, scale);
    case Claim::givens:
      return givens_step(q, k, v, scale);
    case Claim::iterative:
      return iterative_step(q, k, v, scale);
    case Claim::kalman:
      return kalman_step(q, k, v, scale);
    case Claim::window:
      return window_step(q, k, v, scale);
    case Claim::attention:
      return attention_step(q, k, v);
    case Claim::local_linear:
      return local_linear_step(q, k, v);
    case Claim::path_attention:
      return path_attention_step(q, k, v);
    case Claim::deltaformer:
      return deltaformer_step(q, k, v);
    case Claim::kernel_regression:
      return kernel_regression_step(q, k, v);
    case Claim::whole:
      return whole_step(q, k, v, scale);
    case Claim::neural:
      return neural_step(q, k, v, scale);
    case Claim::channel:
    case Claim::weighted_mean:
    case Claim::nobody:
      break;
  }
  throw Error("no family has a step for '" + std::to_string(static_cast<int>(claim)) + "'");
}

// gd(1) with a constant or automatic step, or sgd on the dot loss: S = a S + beta k v'.
int Builder::decay_step(int q, int k, int v, double scale) {
  const Solver& s = p_.design.solver;
  const StatePart memory = memory_part(k, v);
  if (s.kind == Solver::Kind::sgd) {
    const int beta = quantity(s.step, "beta");
    return kernel_step(kernel(KernelKind::decay, scale, q, k, v, decay_before(), beta), "BTHV", {memory});
  }
  const int beta = scaled_importance(), g = log_fade();
  const int answer = kernel_step(kernel(KernelKind::decay, scale, q, k, v, g, beta), "BTHV", {memory});
  if (p_.design.extras.normalise == Extras::Normalise::keysum) {
    // The sum of the keys is a memory of its own, whose values are all one.
    const int one = constant(1);
    StatePart sum = memory_part(k, one, "z", "sum of w k");
    sum.info.range = Range::positive;
    int total = kernel_step(kernel(KernelKind::decay, scale, q, k, one, g, beta), "BTH1", {std::move(sum)});
    if (const double eps = p_.design.extras.normalise_eps; eps != 0)
      total = operation(Op::add, {total, constant(eps)}, "BTH1");
    return operation(Op::divide, {answer, total}, "BTHV");
  }
  if (s.rule != Solver::Rule::automatic) return answer;
  // The step 1/sum w |k|^2 is a decayed sum of its own: the same kernel with one-dimensional keys and values.
  const int energy = operation(Op::square_norm, {k}, "BTH1");
  const int one = constant(1);
  StatePart sum = memory_part(one, one, "n", "sum of w |k|^2");
  sum.info.range = Range::positive;
  const int total = kernel_step(kernel(KernelKind::decay, 1, one, one, energy, g, beta), "BTH1", {std::move(sum)});
  return operation(Op::divide, {answer, total}, "BTHV");
}

int Builder::delta_step(int q, int k, int v, double scale) {
  const Solver& s = p_.design.solver;
  const int beta = step_size(k);
  int g = -1;
  bool undecayed = true;
  if (s.decay_kind == Solver::Decay::leak) {
    const int lam = quantity(s.decay, "lam");
    g = operation(Op::leak_gate, {beta < 0 ? constant(1) : beta, lam}, "BTH");
  } else if (s.decay_kind == Solver::Decay::shrink) {
    g = operation(Op::shrink_gate, {quantity(s.decay, "lam")}, "BTH");
  } else {
    g = decay_before(), undecayed = false;
  }
  if (s.pairs > 1) return product_step(s.pairs, q, k, v, g, beta, scale);
  Step step = kernel(KernelKind::delta, scale, q, k, v, g, beta);
  step.undecayed = undecayed;
  return kernel_step(std::move(step), "BTHV", {memory_part(k, v)});
}

// n pairs per token are n tokens: the decay acts before the first of them, the query reads after the last.
int Builder::product_step(int n, int q, int k, int v, int g, int beta, double scale) {
  std::string letters = axes(q);
  letters[1] = 'P';
  const int spread_q = operation(Op::spread_last, {q}, letters, n);
  const int spread_g = g < 0 ? -1 : operation(Op::spread_first, {g}, "BPH", n);
  Step step = kernel(KernelKind::delta, scale, spread_q, k, v, spread_g, beta);
  step.pairs = n;
  return operation(Op::take_last, {kernel_step(std::move(step), "BPHV", {memory_part(k, v)})}, "BTHV", n);
}

// A gate per channel, or an output that reads before it writes: S = diag(e^gk) S diag(e^gv) + beta k v'.
int Builder::gated_step(int q, int k, int v, double scale) {
  const Weights& w = p_.design.weights;
  Step step = kernel(KernelKind::gated, scale, q, k, v, -1, scaled_importance());
  const bool per_key = w.per == Weights::Per::key || w.per == Weights::Per::key_value;
  const bool per_value = w.per == Weights::Per::value || w.per == Weights::Per::key_value;
  step.from[Role::gk] = per_key ? canonical("gk") : per_value ? -1 : log_fade();
  step.from[Role::gv] = per_value ? canonical("gv") : -1;
  step.read_before = p_.design.extras.read_before;
  if (p_.design.extras.bonus) step.from[Role::bonus] = canonical("bonus");
  return kernel_step(std::move(step), "BTHV", {memory_part(k, v)});
}

// Delta rules with a gate per key channel, or with other keys to read or erase with than to write with.
int Builder::dplr_step(int q, int k, int v, double scale) {
  const Solver& s = p_.design.solver;
  int read = -1, write = k;
  if (s.split) v = operation(Op::multiply, {v, canonical("write")}, "BTHV");
  const int beta = s.dplr ? -1 : step_size(k);
  if (s.precondition) {
    // A = e^ga A + ba k*k is a memory with the one-dimensional key 1; the write key is D(A) * k.
    q = per_head(q), read = per_head(k);
    const int square = operation(Op::multiply, {read, read}, axes(read)), one = constant(1);
    StatePart sum = memory_part(one, square, "A", "gated sum of squared keys");
    sum.info.shape = "B H K", sum.extent = {shape_.heads, shape_.key_dim}, sum.info.range = Range::positive;
    const int total = kernel_step(
        kernel(KernelKind::decay, 1, one, one, square, canonical("g_atk"), canonical("beta_atk")), "BTHK", {sum});
    const int factor = operation(Op::precondition, {total, canonical("log_atk_scale")}, "BTHK");
    write = operation(Op::multiply, {read, factor}, "BTHK");
  }
  Step step = kernel(KernelKind::dplr, scale, q, write, v, -1, beta);
  step.from[Role::gk] = s.decay_per == Weights::Per::key && s.decay.is_input() ? canonical("gk") : decay_before();
  if (s.split) read = operation(Op::multiply, {canonical("erase"), k}, "BTHK");
  if (s.feedback) read = per_head(normalised_keys("p"));  // the kernel takes one per head
  if (s.dplr) read = canonical("a"), step.from[Role::b] = canonical("b");
  step.from[Role::a] = read;
  step.undecayed = s.feedback || s.dplr;
  return kernel_step(std::move(step), "BTHV", {memory_part(k, v)});
}

// S = e^g S + gain Z, Z = momentum Z + step k (v - R'k)'.
int Builder::momentum_step(int q, int k, int v, double scale) {
  const Solver& s = p_.design.solver;
  Step step = kernel(KernelKind::momentum, scale, q, k, v, decay_before(), quantity(s.gain, "gain"));
  step.from[Role::eta] = step_size(k);
  step.from[Role::g_mu] = s.momentum.is_constant() ? constant(std::log(s.momentum.value))
                                                   : operation(Op::log, {canonical("momentum")}, "BTH");
  if (s.feedback) step.from[Role::a] = normalised_keys("p");
  step.undecayed = s.feedback;
  return kernel_step(std::move(step), "BTHV", {memory_part(k, v), memory_part(k, v, "Z", "the last update")});
}

// A step that fits the last p pairs at once; the pairs before the newest are part of the state.
int Builder::projection_step(int q, int k, int v, double scale) {
  const Solver& s = p_.design.solver;
  Step step = kernel(KernelKind::projection, scale, q, k, v, -1, quantity(s.step, "mu"));
  step.number = s.eps;
  const std::ptrdiff_t before = s.batch - 1, G = shape_.key_heads, H = shape_.heads;
  p_.letters['W'] = s.batch - 1;
  const std::string letter(1, axes(k).back());
  return kernel_step(
      std::move(step), "BTHV",
      {memory_part(k, v),
       {{"k", "B W G " + letter, "keys of the window before the newest"}, {before, G, width(k)}, type_},
       {{"v", "B W H V", "values of the window before the newest"}, {before, H, shape_.value_dim}, type_}});
}

// An elementwise state: h = e^(g + i theta) * h + v, no keys.
int Builder::channel_step() {
  const Weights& w = p_.design.weights;
  Step step = kernel(KernelKind::channel, 1, -1, -1, canonical("v"));
  step.from[Role::gv] = w.per == Weights::Per::value ? canonical("gv") : log_fade();
  std::vector<StatePart> states = {{{"h", "B H V", "the memory"}, {shape_.heads, shape_.value_dim}, type_}};
  if (!w.complex) return kernel_step(std::move(step), "BTHV", states);
  step.from[Role::theta] = canonical("theta");
  if (layer_ && produced("v_im")) step.from[Role::v_im] = operand("v_im");
  states.push_back({{"h_im", "B H V", "its imaginary part"}, {shape_.heads, shape_.value_dim}, type_});
  if (layer_) {  // the read-out may use both parts
    step.also = add_value({"o_im", "BTHV", Value::From::step, -1, {}});
    stage_results_["o_im"] = step.also;
  }
  return kernel_step(std::move(step), "BTHV", states);
}

// S = diag(e^(gk + i theta)) S + k v'; the real part is read.
int Builder::rotating_step(int q, int k, int v, double scale) {
  Step step = kernel(KernelKind::rotating, scale, q, k, v);
  step.from[Role::gk] = canonical("gk"), step.from[Role::theta] = canonical("theta");
  return kernel_step(std::move(step), "BTHV", {memory_part(k, v), memory_part(k, v, "S_im", "its imaginary part")});
}

// Sums alpha e^e and beta e^e of values and weights per channel, fresh at e = -1e30.
int Builder::weighted_mean_step() {
  Step step = kernel(KernelKind::weighted_mean, 1, -1, canonical("i"), canonical("v"));
  step.from[Role::gv] = canonical("gv"), step.from[Role::bonus] = canonical("bonus");
  const std::vector<std::ptrdiff_t> extent = {shape_.heads, shape_.value_dim};
  StatePart alpha = {{"alpha", "B H V", "weighted sum of values, relative to exp(e)"}, extent, type_};
  StatePart beta = {{"beta", "B H V", "sum of weights, relative to exp(e)", Range::positive}, extent, type_};
  StatePart exponent = {{"e", "B H V", "the exponent both are relative to", Range::normal, false}, extent, type_};
  exponent.fresh = -1e30;
  return kernel_step(std::move(step), "BTHV", {alpha, beta, exponent});
}

int Builder::log_linear_step(int q, int k, int v, double scale) {
  Step step = kernel(KernelKind::log_linear, scale, q, k, v, log_fade(), importance());
  step.from[Role::levels] = canonical("levels");
  p_.counted = true;
  StatePart memory = memory_part(
      k, v, "S", "one memory per level, of 1, 2, 4, ... tokens; live where the token count has that binary digit");
  memory.info.shape.insert(memory.info.shape.find('H') + 1, " L");
  memory.extent.insert(memory.extent.begin() + 1, p_.letters.at('L'));
  return kernel_step(std::move(step), "BTHV", {memory});
}

// Importances given by their logs, a running maximum of exponents, and a normaliser (mLSTM). The scale is on the
// keys: it is in the state as published.
int Builder::stabilised_step(int q, int k, int v, double scale) {
  Step step = kernel(KernelKind::stabilised, scale, q, k, v, log_fade());
  step.from[Role::input] = canonical("i");
  step.number = layer_ ? layer_->kernel_number : 0;
  const std::ptrdiff_t H = shape_.heads;
  StatePart n = memory_part(k, constant(1), "n", "weighted sum of keys, relative to exp(m)");
  n.info.shape = n.info.shape.substr(0, n.info.shape.size() - 2), n.extent.pop_back();
  const StatePart m = {{"m", "B H", "the exponent C and n are relative to"}, {H}, type_};
  step.also = add_value({"denom", "BTH", Value::From::step, -1, {}});
  stage_results_["denom"] = step.also;
  return kernel_step(std::move(step), "BTHV", {memory_part(k, v, "C", "the memory, relative to exp(m)"), n, m});
}

// Two gated memories: keys of the slots, read to a softmax over slots, and values of the slots.
int Builder::slots_step(int q, int k, int v, double scale) {
  const int s = canonical("s"), gate = canonical("gs");
  Step keys = kernel(KernelKind::gated, scale, q, k, s);
  keys.from[Role::gv] = gate;
  const int match = kernel_step(std::move(keys), "BTHM", {memory_part(k, s, "Km", "keys of the slots")});
  const int share = operation(Op::softmax, {match}, "BTHM");
  Step values = kernel(KernelKind::gated, 1, share, s, v);
  values.from[Role::gk] = gate;
  return kernel_step(std::move(values), "BTHV", {memory_part(s, v, "Vm", "values of the slots")});
}

// S = e^g S + (1 - lam) dt e^g k_{t-1} v_{t-1}' + lam dt k v': two pairs per token, the older one first.
int Builder::trapezoid_step(int q, int k, int v, double scale) {
  const int g = log_fade(), trap = canonical("trap"), dt = canonical("dt");
  const int own = operation(Op::multiply, {operation(Op::sigmoid, {trap}, "BTH"), dt}, "BTH");
  const int opposite = operation(Op::sigmoid, {operation(Op::scale, {trap}, "BTH", -1)}, "BTH");
  int late = operation(Op::multiply, {opposite, dt}, "BTH");
  if (g >= 0) late = operation(Op::multiply, {late, operation(Op::exp, {g}, "BTH")}, "BTH");
  p_.pairs = 2;
  const auto in_pairs = [&](int value) {
    std::string letters = axes(value);
    letters[1] = 'P';
    return letters;
  };
  const auto last = [&](int value, const char* name, const char* meaning) {
    const std::string heads(1, axes(value)[2]), letter(1, axes(value).back());
    return running_step({.running = zoo::Running::delay, .state = {name, "B " + heads + " " + letter, meaning}},
                        {value}, axes(value));
  };
  const int keys = operation(Op::interleave, {last(k, "k", "key of the last token"), k}, in_pairs(k));
  const int values = operation(Op::interleave, {last(v, "v", "value of the last token"), v}, in_pairs(v));
  const int weights = operation(Op::interleave, {late, own}, "BPH");
  const int spread_q = operation(Op::spread_last, {q}, in_pairs(q), 2);
  const int spread_g = g < 0 ? -1 : operation(Op::spread_first, {g}, "BPH", 2);
  Step step = kernel(KernelKind::decay, scale, spread_q, keys, values, spread_g, weights);
  step.pairs = 2;
  return operation(Op::take_last, {kernel_step(std::move(step), "BPHV", {memory_part(k, v)})}, "BTHV", 2);
}

// S = S diag(e^gv) + beta (k - S v) v'.
int Builder::oja_step(int q, int k, int v, double scale) {
  const Solver& s = p_.design.solver;
  Step step = kernel(KernelKind::oja, scale, q, k, v, -1, quantity(s.step, "beta"));
  step.from[Role::gv] = s.decay_per == Weights::Per::value && s.decay.is_input() ? canonical("gv") : decay_before();
  return kernel_step(std::move(step), "BTHV", {memory_part(k, v)});
}

int Builder::selective_step(double scale) {
  const int q = canonical("q"), k = canonical("k"), v = canonical("v");
  Step step = kernel(KernelKind::selective, scale, q, k, v);
  step.from[Role::step] = operand("step");
  step.longhorn_gate = layer_->own_kernel == zoo::OwnKernel::selective_longhorn;
  if (!step.longhorn_gate) step.from[Role::a] = operand("A");
  return kernel_step(std::move(step), "BTHV", {memory_part(k, v)});
}

int Builder::running_step(const zoo::Stage& stage, const std::vector<int>& from, std::string letters) {
  Step step;
  step.is_kernel = true;
  step.running = stage.running;
  step.from.assign(Role::count, -1);
  const bool convolution =
      stage.running == zoo::Running::convolution || stage.running == zoo::Running::convolution_silu;
  if (stage.running == zoo::Running::solved) {  // q, k, ridge: of all pairs at once, without a state
    step.kernel = KernelKind::whole;
    step.from[Role::q] = from[0], step.from[Role::k] = from[1], step.from[Role::ridge] = from[2];
    return kernel_step(std::move(step), std::move(letters), {});
  }
  step.kernel = convolution ? KernelKind::convolution : KernelKind::carry;
  if (!from.empty()) step.from[Role::v] = from[0];
  if (convolution) step.from[Role::a] = from[1], step.from[Role::b] = from.size() > 2 ? from[2] : -1;
  StatePart part{stage.state, {}, type_};
  for (char letter : stage.state.shape)
    if (letter != ' ' && letter != 'B')
      part.extent.push_back(letter == 'H' ? shape_.heads : letter == 'G' ? shape_.key_heads : extent(letter));
  const int to = kernel_step(std::move(step), std::move(letters), {part});
  p_.values[static_cast<std::size_t>(to)].name = stage.to;
  return to;
}

}  // namespace ttr
