#include "families/network/neural/model.h"

namespace ttr::families {
namespace {

using Kind = Solver::Kind;
using Class = Memory::Class;

neural::Activation activation_of(Memory::Activation a) {
  switch (a) {
    case Memory::Activation::gelu:
      return neural::Activation::gelu;
    case Memory::Activation::gelu_tanh:
      return neural::Activation::gelu_tanh;
    case Memory::Activation::relu:
      return neural::Activation::relu;
    case Memory::Activation::silu:
      return neural::Activation::silu;
    default:
      return neural::Activation::tanh;
  }
}

// The function class; false if it is none of the kernel's.
bool set_network(const Memory& m, int key_dim, int value_dim, NeuralModel& model) {
  const bool residual = m.residual && m.kind != Class::linear;
  if (residual && key_dim != value_dim) return false;
  model.bias = m.bias;
  model.skip = residual ? neural::Skip::input : neural::Skip::none;
  model.norm = m.layernorm || m.kind == Class::layernorm_linear ? neural::Norm::fixed : neural::Norm::none;
  model.width = m.width > 0 ? m.width : 4 * key_dim;
  switch (m.kind) {
    case Class::linear:
      model.bias = false;
      return !m.reverse;
    case Class::layernorm_linear:
      return true;
    case Class::mlp:
      model.depth = m.depth, model.activation = activation_of(m.activation);
      return m.depth >= 1 && m.depth <= neural::max_depth;
    case Class::swiglu:
      model.depth = 2, model.gated = true, model.activation = neural::Activation::silu;
      return true;
    default:
      return false;
  }
}

bool set_loss(const Extras& x, NeuralModel& model) {
  switch (x.loss) {
    case Extras::Loss::squared:
      return true;
    case Extras::Loss::dot:
      model.loss = neural::Loss::dot;
      return true;
    case Extras::Loss::huber:
      model.loss = neural::Loss::huber;
      return true;
    case Extras::Loss::huber_coordinate:
      model.loss = neural::Loss::huber_coordinate;
      return true;
    case Extras::Loss::lp:
      model.loss = neural::Loss::power, model.power = x.loss_parameter.value;
      return x.loss_parameter.is_constant();
    default:  // a loss that this kernel does not have
      return false;
  }
  return false;
}

}  // namespace

std::optional<NeuralModel> network_of(const Memory& m, const Extras& x, int key_dim, int value_dim) {
  NeuralModel model;
  model.key_dim = key_dim, model.value_dim = value_dim;
  if (!set_network(m, key_dim, value_dim, model) || !set_loss(x, model)) return std::nullopt;
  return model;
}

std::optional<NeuralModel> neural_model(const Design& d, int key_dim, int value_dim) {
  const auto& [w, m, s, x] = d;
  std::optional<NeuralModel> known = network_of(m, x, key_dim, value_dim);
  if (!known) return std::nullopt;
  NeuralModel model = *known;
  const bool plain_weights = w.near == Kernel::none && !w.levels && !w.complex && w.fade == Weights::Fade::equal &&
                             w.per == Weights::Per::token;
  const bool plain_read = !x.bonus && !x.blend &&
                          (x.normalise == Extras::Normalise::none || x.normalise == Extras::Normalise::unit ||
                           x.normalise == Extras::Normalise::rms);
  const bool plain_step = s.steps == 1 && s.pairs == 1 && s.rule == Solver::Rule::plain && !s.gain.given() &&
                          !s.nesterov && !s.feedback && !s.split && !s.dplr && !s.precondition &&
                          s.decay_per == Weights::Per::token && s.decay_kind != Solver::Decay::leak;
  if (!plain_weights || !plain_read || !plain_step) return std::nullopt;
  model.read_before = x.read_before;
  model.momentum = s.momentum.given();
  model.orthogonalise = s.muon ? neural::Orthogonalise::fixed : neural::Orthogonalise::none;
  model.row_norm = s.row_norm, model.q_norm = s.q_norm;
  constexpr neural::Mirror mirrors[] = {neural::Mirror::none, neural::Mirror::softmax, neural::Mirror::exp,
                                        neural::Mirror::sinh};
  model.mirror = mirrors[static_cast<int>(s.mirror)], model.radius = s.radius;
  if (model.mirror != neural::Mirror::none && s.q_norm != 0) return std::nullopt;
  if (s.decay_kind == Solver::Decay::before) model.decay = neural::Decay::log;
  if (s.decay_kind == Solver::Decay::shrink) model.decay = neural::Decay::complement;
  const bool one = w.importance == Weights::Importance::one;
  switch (s.kind) {
    case Kind::minibatch:
      model.batch = s.batch;
      return one && w.window == 0 ? std::optional(model) : std::nullopt;
    case Kind::sgd:
      model.decayed_point = model.decay == neural::Decay::log;
      return one && w.window == 0 ? std::optional(model) : std::nullopt;
    case Kind::descend: {
      model.decayed_point = model.decay == neural::Decay::log;
      model.window = w.window;
      const bool weighted = one || w.importance == Weights::Importance::beta;
      const bool threshold = x.loss == Extras::Loss::huber || x.loss == Extras::Loss::huber_coordinate;
      return weighted && w.window > 0 && !threshold ? std::optional(model) : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

std::vector<std::string> parameter_names(const NeuralModel& model, bool linear) {
  const NeuralLayout layout(model);
  std::vector<std::string> names;
  for (int j = 0; j < layout.matrices; ++j) {
    names.push_back(linear ? "S" : "W" + std::to_string(j));
    if (model.bias) names.push_back("b" + std::to_string(j));
  }
  if (model.norm == neural::Norm::learned) names.push_back("gamma");
  return names;
}

NeuralPlaces::NeuralPlaces(const NeuralModel& model) {
  const NeuralLayout layout(model);
  const auto group = [&](bool there, int& first, int parts) {
    if (there) first = count, count += parts;
  };
  group(true, weights, layout.count);
  group(model.batch != 1, start, layout.count);
  group(model.momentum || model.block, z, layout.count);
  group(model.step_every > 1 || model.lazy, pending, layout.count);
  group(model.step_every > 1 || model.lazy, gate_sums, 1);
  group(model.window > 1, history, 3);
  group(model.row_norm, norms, layout.matrices);
}

}  // namespace ttr::families
