// Random inputs for any design, and a list of designs that between them use every option the oracle knows.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "oracle/head.h"
#include "oracle/oracle.h"

namespace ttr::oracle::cases {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2654435761u + 12345) {}
  double uniform(double low, double high) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return low + (high - low) * (static_cast<double>(state_ >> 11) * 0x1p-53);
  }
  double normal() {
    double sum = 0;
    for (int i = 0; i < 12; ++i) sum += uniform(-0.5, 0.5);
    return sum;
  }

 private:
  std::uint64_t state_;
};

inline Array make_array(std::vector<std::int64_t> extent, const std::function<double()>& draw) {
  Array a{std::move(extent), {}};
  std::int64_t n = 1;
  for (std::int64_t e : a.extent) n *= e;
  for (std::int64_t i = 0; i < n; ++i) a.data.push_back(draw());
  return a;
}

/// A number in the range an input of that name usually has.
inline double draw(const std::string& name, Random& random) {
  if (name == "g" || name == "gk" || name == "gv" || name == "gkv" || name == "gs") return -random.uniform(0.02, 0.5);
  if (name == "beta" || name == "mu" || name == "momentum" || name == "blend" || name == "beta_t" ||
      name == "beta_atk" || name == "gain" || name == "w" || name == "levels")
    return random.uniform(0.1, 0.9);
  if (name == "delta" || name == "ridge" || name == "noise" || name == "dt" || name == "c")
    return random.uniform(0.3, 1.2);
  if (name == "lam" || name == "process" || name == "rate" || name == "l1" || name == "l2")
    return random.uniform(0.02, 0.2);
  if (name == "bandwidth") return random.uniform(2, 4);
  return 0.7 * random.normal();
}

inline Arrays random_inputs(const Design& design, const Sizes& sizes, std::uint64_t seed) {
  Random random(seed);
  Arrays inputs;
  const std::int64_t pairs = sizes.time * (design.solver.kind == Solver::Kind::sgd ? design.solver.pairs : 1);
  const auto extent = [&](char c) { return c == 'L' ? std::int64_t{6} : extent_of(c, design, sizes, pairs, 0); };
  for (const DesignInput& input : inputs_of(design))
    inputs[input.name] = make_array(input.axes.extents(extent), [&] { return draw(input.name, random); });
  return inputs;
}

/// Rows [begin, end) of every input that has a time axis.
inline Arrays part_of(const Design& design, const Arrays& inputs, std::int64_t begin, std::int64_t end) {
  Arrays part;
  for (const DesignInput& input : inputs_of(design)) {
    const auto found = inputs.find(input.name);
    if (found == inputs.end()) continue;
    Array a = found->second;
    if (input.timed() && a.extent[0] > 0) {
      const std::int64_t n = input.per_pair() && design.solver.kind == Solver::Kind::sgd ? design.solver.pairs : 1;
      const std::int64_t width = static_cast<std::int64_t>(a.data.size()) / a.extent[0];
      a.data.assign(found->second.data.begin() + begin * n * width, found->second.data.begin() + end * n * width);
      a.extent[0] = (end - begin) * n;
    }
    part[input.name] = a;
  }
  return part;
}

inline Quantity input() { return {Quantity::From::input, 0}; }
inline Quantity constant(double v) { return {Quantity::From::constant, v}; }

inline Design make(const std::function<void(Design&)>& set) {
  Design d;
  set(d);
  return d;
}
inline void gate(Design& d, Weights::Per per = Weights::Per::token) {
  d.weights.fade = Weights::Fade::gate, d.weights.decay = input(), d.weights.per = per;
}
inline void importance(Design& d) { d.weights.importance = Weights::Importance::beta, d.weights.beta = input(); }
inline void sgd(Design& d) { d.solver.kind = Solver::Kind::sgd, d.solver.step = input(); }
inline void decay(Design& d, Weights::Per per = Weights::Per::token) {
  d.solver.decay_kind = Solver::Decay::before, d.solver.decay = input(), d.solver.decay_per = per;
}
inline void exact(Design& d) { d.solver.kind = Solver::Kind::exact, d.solver.ridge = input(); }
inline void near(Design& d, Kernel kernel = Kernel::exponential) { d.weights.near = kernel; }
inline void memory(Design& d, Memory::Class kind) { d.memory.kind = kind; }
inline void kernel(Design& d, Kernel name) { d.memory.kind = Memory::Class::kernel, d.memory.kernel = name; }

struct Named {
  std::string name;
  Design design;
};
inline void PrintTo(const Named& named, std::ostream* out) { *out << named.name; }

inline std::vector<Named> all_designs() {
  using C = Memory::Class;
  using K = Solver::Kind;
  using P = Weights::Per;
  using R = Solver::Rule;
  std::vector<Named> list;
  auto add = [&](const std::string& name, const std::function<void(Design&)>& set) {
    list.push_back({name, make(set)});
  };
  // gd
  add("gd", [](Design&) {});
  add("gd_decay_head", [](Design& d) { d.weights.fade = Weights::Fade::decay, d.weights.decay = input(); });
  add("gd_decay_constant", [](Design& d) { d.weights.fade = Weights::Fade::decay, d.weights.decay = constant(0.8); });
  add("gd_gate_steps", [](Design& d) { gate(d), importance(d), d.solver.steps = 3, d.solver.rule = R::automatic; });
  add("gd_gate_momentum", [](Design& d) {
    gate(d), d.solver.steps = 3, d.solver.step = constant(0.1), d.solver.momentum = constant(0.5);
  });
  add("gd_gate_key", [](Design& d) { gate(d, P::key), d.solver.steps = 2, d.solver.step = constant(0.1); });
  add("gd_gate_value", [](Design& d) { gate(d, P::value); });
  add("gd_gate_key_value", [](Design& d) { gate(d, P::key_value); });
  add("gd_gate_full", [](Design& d) { gate(d, P::full); });
  add("gd_gate_complex", [](Design& d) { gate(d, P::key), d.weights.complex = true; });
  add("gd_window", [](Design& d) { gate(d), d.weights.window = 3; });
  add("gd_trapezoid", [](Design& d) { gate(d), d.weights.importance = Weights::Importance::trapezoid; });
  add("gd_max", [](Design& d) {
    gate(d), d.weights.importance = Weights::Importance::exponential, d.extras.normalise = Extras::Normalise::max_one;
  });
  add("gd_keysum_elu", [](Design& d) {
    d.memory.feature = Memory::Feature::elu1, d.extras.normalise = Extras::Normalise::keysum,
    d.extras.normalise_eps = 1e-6;
  });
  add("gd_levels", [](Design& d) { gate(d), d.weights.levels = true; });
  add("gd_bonus", [](Design& d) { gate(d, P::key), d.extras.read_before = d.extras.bonus = true; });
  add("gd_before_window", [](Design& d) { d.weights.window = 2, d.extras.read_before = true; });
  add("gd_huber", [](Design& d) {
    d.extras.loss = Extras::Loss::huber, d.extras.loss_parameter = input(), d.solver.steps = 2,
    d.solver.step = constant(0.2);
  });
  add("gd_vector", [](Design& d) { memory(d, C::vector), gate(d, P::value), importance(d); });
  add("gd_dot_rms",
      [](Design& d) { d.extras.loss = Extras::Loss::dot, d.extras.normalise = Extras::Normalise::rms; });
  add("gd_unit_keys",
      [](Design& d) { d.extras.keys = Extras::Keys::unit, d.extras.normalise = Extras::Normalise::unit; });
  add("gd_near_local", [](Design& d) {
    near(d), memory(d, C::local), d.memory.order = 1, d.solver.steps = 2, d.solver.step = constant(0.1);
  });
  add("gd_mlp", [](Design& d) {
    memory(d, C::mlp), d.memory.width = 3, d.solver.steps = 2, d.solver.step = constant(0.1), gate(d);
  });
  for (auto [name, feature] : {std::pair{"relu", Memory::Feature::relu},
                               {"silu", Memory::Feature::silu},
                               {"taylor2", Memory::Feature::taylor2},
                               {"polynomial", Memory::Feature::polynomial},
                               {"dpfp", Memory::Feature::dpfp}})
    add(std::string("gd_") + name, [f = feature](Design& d) { d.memory.feature = f; });
  // exact and iterative least squares
  add("exact_none", [](Design& d) { d.solver.kind = K::exact, d.weights.window = 3; });
  add("exact_ridge", [](Design& d) { exact(d), gate(d), importance(d); });
  add("exact_ridge_key", [](Design& d) { exact(d), d.solver.ridge_per = Solver::RidgePer::key; });
  add("exact_ridge_token_relative", [](Design& d) {
    exact(d), gate(d), d.solver.ridge_per = Solver::RidgePer::token,
                       d.solver.ridge_kind = Solver::RidgeKind::relative;
  });
  add("exact_frobenius_blend", [](Design& d) {
    exact(d), gate(d), d.solver.ridge_kind = Solver::RidgeKind::frobenius, d.extras.blend = true;
  });
  add("exact_fading_window",
      [](Design& d) { exact(d), gate(d), d.solver.ridge_kind = Solver::RidgeKind::fading, d.weights.window = 4; });
  add("exact_small_ridge", [](Design& d) { exact(d), d.solver.ridge = constant(1e-7), d.weights.window = 3; });
  add("exact_reverse", [](Design& d) { exact(d), d.memory.reverse = true; });
  add("exact_before", [](Design& d) { exact(d), d.extras.read_before = true; });
  add("cg", [](Design& d) { exact(d), d.solver.kind = K::cg, d.solver.steps = 2, gate(d), importance(d); });
  add("chebyshev", [](Design& d) { exact(d), d.solver.kind = K::chebyshev, d.solver.steps = 4, gate(d); });
  // near
  add("softmax_sink_window", [](Design& d) {
    near(d), memory(d, C::constant), d.solver.kind = K::exact, d.weights.sink = true, d.weights.window = 4;
  });
  add("softmax_gate", [](Design& d) { near(d), memory(d, C::constant), d.solver.kind = K::exact, gate(d); });
  add("softmax_gate_key",
      [](Design& d) { near(d), memory(d, C::constant), d.solver.kind = K::exact, gate(d, P::key); });
  add("softmax_transport", [](Design& d) {
    near(d), memory(d, C::constant), d.solver.kind = K::exact, gate(d), d.weights.transport = true;
  });
  add("gauss_constant", [](Design& d) {
    near(d, Kernel::gaussian), memory(d, C::constant), d.solver.kind = K::exact, d.weights.bandwidth = input();
  });
  add("local_linear", [](Design& d) { near(d), memory(d, C::local), d.memory.order = 1, exact(d); });
  add("local_linear_sink",
      [](Design& d) { near(d), memory(d, C::local), d.memory.order = 1, exact(d), d.weights.sink = true; });
  add("local_quadratic", [](Design& d) {
    near(d, Kernel::gaussian), memory(d, C::local), d.memory.order = 2, exact(d),
                                                    d.solver.ridge_kind = Solver::RidgeKind::relative;
  });
  add("local_cg", [](Design& d) {
    near(d), memory(d, C::local), d.memory.order = 1, exact(d), d.solver.kind = K::cg, d.solver.steps = 2;
  });
  add("near_linear", [](Design& d) { near(d), exact(d); });
  add("given", [](Design& d) { near(d), memory(d, C::local), d.memory.order = 1, d.solver.kind = K::given; });
  add("equal_local", [](Design& d) { memory(d, C::local), d.memory.order = 1, exact(d); });
  add("mean", [](Design& d) { memory(d, C::constant), gate(d), d.solver.kind = K::exact; });
  add("channel", [](Design& d) {
    memory(d, C::constant), d.memory.per_channel = true, gate(d, P::value), d.solver.kind = K::exact;
    d.weights.importance = Weights::Importance::exponential, d.extras.read_before = d.extras.bonus = true;
  });
  add("corrected", [](Design& d) { near(d), memory(d, C::constant), sgd(d); });
  add("corrected_gate_window",
      [](Design& d) { near(d), memory(d, C::constant), sgd(d), gate(d), d.weights.window = 3; });
  // kernel
  add("kernel_gd", [](Design& d) { kernel(d, Kernel::exponential); });
  add("kernel_gd_steps",
      [](Design& d) { kernel(d, Kernel::gaussian), gate(d), d.solver.steps = 3, d.solver.rule = R::automatic; });
  add("kernel_exact", [](Design& d) { kernel(d, Kernel::exponential), exact(d), gate(d), importance(d); });
  add("kernel_exact_relative",
      [](Design& d) { kernel(d, Kernel::polynomial), exact(d), d.solver.ridge_kind = Solver::RidgeKind::relative; });
  add("kernel_cg",
      [](Design& d) { kernel(d, Kernel::gaussian), exact(d), d.solver.kind = K::cg, d.solver.steps = 2; });
  add("kernel_chebyshev",
      [](Design& d) { kernel(d, Kernel::gaussian), exact(d), d.solver.kind = K::chebyshev, d.solver.steps = 3; });
  add("kernel_sgd", [](Design& d) { kernel(d, Kernel::gaussian), sgd(d), decay(d), d.memory.bandwidth = input(); });
  add("kernel_sgd_leak", [](Design& d) {
    kernel(d, Kernel::gaussian), sgd(d), d.solver.steps = 2, d.solver.decay_kind = Solver::Decay::leak,
                                         d.solver.decay = input();
  });
  add("kernel_sgd_window", [](Design& d) { kernel(d, Kernel::gaussian), sgd(d), decay(d), d.weights.window = 3; });
  // sgd
  add("sgd", [](Design& d) { sgd(d); });
  add("sgd_decay", [](Design& d) { sgd(d), decay(d); });
  add("sgd_decay_key", [](Design& d) { sgd(d), decay(d, P::key); });
  add("sgd_decay_value", [](Design& d) { sgd(d), decay(d, P::value); });
  add("sgd_steps_importance",
      [](Design& d) { sgd(d), importance(d), d.solver.steps = 2, d.solver.step = constant(0.3); });
  add("sgd_nlms", [](Design& d) { sgd(d), d.solver.rule = R::nlms, d.solver.eps = 0.1; });
  add("sgd_longhorn", [](Design& d) { sgd(d), d.solver.rule = R::longhorn; });
  add("sgd_flow", [](Design& d) { sgd(d), d.solver.rule = R::flow; });
  add("sgd_leak_momentum", [](Design& d) {
    sgd(d), d.solver.decay_kind = Solver::Decay::leak, d.solver.decay = input(), d.solver.momentum = input();
  });
  add("sgd_shrink_nesterov", [](Design& d) {
    sgd(d), d.solver.decay_kind = Solver::Decay::shrink, d.solver.decay = constant(0.1), d.solver.momentum = input(),
            d.solver.nesterov = true;
  });
  add("sgd_feedback", [](Design& d) { sgd(d), decay(d), d.solver.feedback = true; });
  add("sgd_split", [](Design& d) { sgd(d), d.solver.step = {}, decay(d, P::key), d.solver.split = true; });
  add("sgd_dplr", [](Design& d) { sgd(d), d.solver.step = {}, decay(d, P::key), d.solver.dplr = true; });
  add("sgd_precondition", [](Design& d) { sgd(d), decay(d, P::key), d.solver.precondition = true; });
  add("sgd_momentum_gain", [](Design& d) {
    sgd(d), decay(d), d.solver.momentum = input(), d.solver.gain = input(), d.solver.feedback = true;
  });
  add("sgd_pairs", [](Design& d) { sgd(d), decay(d), d.solver.pairs = 2; });
  add("sgd_reverse", [](Design& d) { sgd(d), decay(d, P::value), d.memory.reverse = true; });
  add("sgd_muon", [](Design& d) { sgd(d), d.solver.muon = true, d.solver.momentum = input(), decay(d); });
  add("sgd_moneta", [](Design& d) {
    sgd(d), d.solver.q_norm = 4, d.extras.loss = Extras::Loss::lp, d.extras.loss_parameter = constant(3);
    d.solver.decay_kind = Solver::Decay::shrink, d.solver.decay = input();
  });
  add("sgd_huber_coordinate",
      [](Design& d) { sgd(d), d.extras.loss = Extras::Loss::huber_coordinate, d.extras.loss_parameter = input(); });
  add("sgd_before_bonus", [](Design& d) { sgd(d), d.extras.read_before = d.extras.bonus = true; });
  add("sgd_constant", [](Design& d) { sgd(d), memory(d, C::constant); });
  add("sgd_mlp", [](Design& d) {
    sgd(d), memory(d, C::mlp), d.memory.width = 3, d.memory.bias = true,
                               d.memory.activation = Memory::Activation::tanh, decay(d);
  });
  add("sgd_swiglu_rows", [](Design& d) {
    sgd(d), memory(d, C::swiglu), d.memory.width = 3, d.solver.row_norm = true, d.extras.loss = Extras::Loss::dot;
  });
  // minibatch, descend, apa, kalman, slots
  add("minibatch", [](Design& d) {
    d.solver.kind = K::minibatch, d.solver.batch = 4, d.solver.step = input(), d.solver.momentum = input();
    d.solver.decay_kind = Solver::Decay::shrink, d.solver.decay = input();
  });
  add("minibatch_ttt", [](Design& d) {
    d.solver.kind = K::minibatch, d.solver.batch = 3, d.solver.step = input(), memory(d, C::layernorm_linear),
    d.memory.bias = d.memory.residual = true;
  });
  add("minibatch_mlp", [](Design& d) {
    d.solver.kind = K::minibatch, d.solver.batch = 3, d.solver.step = input(), memory(d, C::mlp), d.memory.depth = 3,
    d.memory.width = 4;
    d.memory.activation = Memory::Activation::gelu_tanh,
    d.memory.residual = d.memory.layernorm = d.memory.bias = true, decay(d);
  });
  add("minibatch_muon_before", [](Design& d) {
    d.solver.kind = K::minibatch, d.solver.batch = 3, d.solver.step = input(), memory(d, C::swiglu),
    d.memory.width = 3;
    d.solver.muon = true, d.solver.momentum = constant(0.5), d.extras.read_before = true;
  });
  add("descend", [](Design& d) {
    d.solver.kind = K::descend, d.solver.step = constant(0.1), d.solver.momentum = input(), importance(d),
    d.weights.window = 3, decay(d);
  });
  add("descend_step", [](Design& d) { d.solver.kind = K::descend, d.solver.step = input(), d.weights.window = 3; });
  add("descend_auto",
      [](Design& d) { d.solver.kind = K::descend, d.solver.steps = 2, d.solver.rule = R::automatic, gate(d); });
  add("apa",
      [](Design& d) { d.solver.kind = K::apa, d.solver.batch = 3, d.solver.step = input(), d.solver.eps = 0.1; });
  add("apa_projection", [](Design& d) { d.solver.kind = K::apa, d.solver.batch = 2, d.solver.step = input(); });
  add("kalman", [](Design& d) { d.solver.kind = K::kalman, d.solver.process = d.solver.noise = input(); });
  add("slots", [](Design& d) { memory(d, C::slots), d.memory.slots = 3, gate(d, P::slot); });
  // Metrics, losses, penalties, mirror maps, reweighted fits.
  for (const char* text : {"gate / linear / gd(3, step(0.3, 0.2, 0.1), momentum, nesterov)",
                           "equal / linear / gd(2, step=each)",
                           "equal / linear / gd(4, step=auto, momentum=auto, nesterov) | l1(0.02), l2",
                           "equal / linear / gd(2, step=0.1, adagrad)",
                           "equal / linear / gd(3, step=0.1, adam(0.8, 0.9))",
                           "equal / linear / gd(2, step=0.1, shampoo, eps=0.1)",
                           "gate / linear / gd(4, step=0.1, lbfgs=2)",
                           "equal / mlp(2, width=3, tanh) / gd(2, newton=0.5)",
                           "equal / kernel(gauss) / gd(3, step(0.3, 0.2, 0.1), momentum)",
                           "near(gauss) / constant / gd(2, step=0.1) | lp(1.5)",
                           "equal / linear / gd(2, step=0.2) | logistic",
                           "equal / linear / gd(2, step=0.2) | cross_entropy(mean)",
                           "equal / linear / gd(2, step=0.2) | insensitive(0.1)",
                           "equal / linear / sgd(beta) | quantile(0.3)",
                           "equal / linear / sgd(beta, adagrad, decay) | l1, l2(0.1)",
                           "equal / linear / sgd(beta, rmsprop=0.9, momentum, nesterov, eps=0.01)",
                           "equal / linear / sgd(beta, adam, leak, eps=0.01)",
                           "equal / linear / sgd(beta, shampoo, eps=0.1)",
                           "equal / linear / sgd(beta, momentum) | l1(0.05)",
                           "equal / linear / sgd(beta, shrink, mirror=softmax, radius=3)",
                           "equal / linear / sgd(beta, decay, mirror=exp)",
                           "equal / linear / sgd(beta, mirror=sinh) | huber(c)",
                           "equal / mlp(2, width=3, tanh, bias) / sgd(beta, adam, eps=0.01)",
                           "equal / mlp(2, width=3, tanh) / gd(2, step=0.1, shampoo, eps=0.1)",
                           "equal / mlp(2, width=3, tanh, bias) / sgd(beta, shampoo, eps=0.1, momentum)",
                           "equal / swiglu(width=3) / minibatch(3, rate, shampoo, eps=0.1)",
                           "window(3) / layernorm(linear, bias) / descend(2, step=0.1, shampoo, eps=0.1)",
                           "near(gauss) / local(2) / gd(2, step=0.1, shampoo, eps=0.1)",
                           "equal / constant / sgd(beta, shampoo, eps=0.1)",
                           "equal / mlp(2, width=3, tanh) / sgd(beta, newton=0.5)",
                           "equal / mlp(2, width=3, tanh, bias) / sgd(beta, shrink, mirror=softmax)",
                           "equal / mlp(2, width=3, tanh) / minibatch(3, rate, adagrad, eps=0.01)",
                           "window(3) / mlp(2, width=3, tanh) / descend(3, step=0.1, lbfgs=2)",
                           "window(3) / linear / descend(2, step=0.1, adam, decay, eps=0.01)",
                           "equal / constant / sgd(beta, adagrad, eps=0.01)",
                           "equal / kernel(gauss) / sgd(beta, momentum, nesterov)",
                           "window(3) / kernel(gauss) / sgd(beta, momentum)",
                           "gate / linear / irls(3, ridge) | lp(1.5)",
                           "equal / linear / irls(3, ridge) | huber(c)",
                           "equal / linear / irls(2, ridge) | logistic(mean)",
                           "near(gauss) / constant / irls(3, eps=0.1) | quantile(0.3)",
                           "near(gauss) / local(1) / irls(3, ridge) | lp(1.2)",
                           "equal / kernel(gauss) / irls(3, ridge) | huber(c, coordinate)"}) {
    std::string name = "recipe_" + std::to_string(list.size());
    list.push_back({name, interpret(parse_recipe(text))});
  }
  return list;
}

}  // namespace ttr::oracle::cases
