// Recipe -> Design: what the words mean. The table (recipe/words.h) has the say on single terms; here are the
// options that depend on one another inside a term. Whether weights, memory, solver and extras mean something
// *together* is recipe/combine.cc.
#include "recipe/combine.h"
#include "recipe/design.h"
#include "recipe/words.h"
#include "ttr/status.h"

namespace ttr {
namespace {

int column_of(const Term& term, std::string_view key) {
  const Argument* a = term.find(key);
  return a != nullptr && a->column > 0 ? a->column : term.column;
}

Quantity quantity(const Argument* a) {
  if (a == nullptr) return {};
  if (a->is_number()) return {Quantity::From::constant, a->number()};
  return {Quantity::From::input, 0};
}
Quantity quantity(const Term& term, std::string_view key) { return quantity(term.find(key)); }

double number(const Term& term, std::string_view key, double otherwise) {
  const Argument* a = term.find(key);
  return a != nullptr && a->is_number() ? a->number() : otherwise;
}

int count(const Term& term, std::string_view key, int otherwise) {
  return static_cast<int>(number(term, key, otherwise));
}

/// The number without a name, which is the argument with the empty key.
constexpr std::string_view unnamed = "";

/// The word in the parentheses of `key(word)`, or empty.
std::string_view choice(const Term& term, std::string_view key) {
  const Argument* a = term.find(key);
  const Term* inner = a != nullptr ? std::get_if<Term>(&a->value) : nullptr;
  if (inner == nullptr) return {};
  return inner->arguments.empty() ? std::string_view(inner->word) : std::string_view(inner->arguments.front().key);
}

void only_with(const Term& term, std::string_view option, std::initializer_list<std::string_view> partners) {
  if (!term.has(option)) return;
  std::string names;
  for (const std::string_view partner : partners) {
    if (term.has(partner)) return;
    names += (names.empty() ? "`" : " or `") + std::string(partner) + "`";
  }
  fail_at(column_of(term, option), quoted(option) + " of " + quoted(term.word) +
                                       " means something only together with " + names + "; add it or leave " +
                                       quoted(option) + " out");
}

Kernel kernel_of(const Term& term) {
  constexpr std::pair<std::string_view, Kernel> kernels[] = {
      {"exp", Kernel::exponential},       {"gauss", Kernel::gaussian},    {"linear", Kernel::linear},
      {"polynomial", Kernel::polynomial}, {"laplace", Kernel::laplace},   {"matern12", Kernel::laplace},
      {"matern32", Kernel::matern32},     {"matern52", Kernel::matern52}, {"epanechnikov", Kernel::epanechnikov},
      {"tricube", Kernel::tricube},       {"box", Kernel::box},           {"nearest", Kernel::nearest}};
  for (const auto& [word, kernel] : kernels)
    if (term.has(word)) return kernel;
  return Kernel::none;
}

/// Similarities that weigh pairs but span no Hilbert space.
void refuse_no_mercer_kernel(const Term& term) {
  for (const std::string_view word : {"epanechnikov", "tricube", "box"})
    if (term.has(word))
      fail_at(column_of(term, word), quoted(word) +
                                         " is not positive definite (its Fourier transform changes sign), so it is "
                                         "the kernel of no Hilbert space; take `gauss`, `laplace` or `matern32`, or "
                                         "weigh pairs by it: `near(" +
                                         std::string(word) + ")`");
  if (term.has("nearest"))
    fail_at(column_of(term, "nearest"),
            "`nearest` is not symmetric (x may be among the nearest to y and y not among those to x), so it is the "
            "kernel of no Hilbert space; take `gauss`, `laplace` or `matern32`, or weigh pairs by it: "
            "`near(nearest=n)`");
}

void read_fade(const Term& term, Weights& w) {
  if (term.word == "decay") {
    const Quantity factor = term.has(unnamed) ? quantity(term, unnamed) : Quantity{Quantity::From::input, 0};
    if (w.fade == Weights::Fade::gate) w.steady = factor.value;
    else w.fade = Weights::Fade::decay, w.decay = factor;
  } else if (term.word == "gate") {
    if (w.fade == Weights::Fade::decay) w.steady = w.decay.value;
    w.fade = Weights::Fade::gate;
    w.decay = {Quantity::From::input, 0};
    const bool key = term.has("key"), value = term.has("value");
    if (term.has("full")) {
      if (key || value)
        fail_at(column_of(term, key ? "key" : "value"),
                "`full` already has a gate for every entry of the state; drop " + quoted(key ? "key" : "value"));
      w.per = Weights::Per::full;
    } else if (key || value) {
      w.per = key && value ? Weights::Per::key_value : key ? Weights::Per::key : Weights::Per::value;
    }
    w.complex = term.has("complex");
    if (w.complex && w.per == Weights::Per::key_value)
      fail_at(column_of(term, "complex"),
              "`complex` turns either key or value channels; keep one of `key` and `value`, or write `full`");
    w.signed_factors = term.has("signed");
    if (w.complex && w.signed_factors)
      fail_at(column_of(term, "signed"), "a `complex` factor of phase pi is negative already; drop `signed`");
  }
  if (term.has("beta")) w.importance = Weights::Importance::beta, w.beta = quantity(term, "beta");
  if (term.has("exponential")) w.importance = Weights::Importance::exponential;
  if (term.has("trapezoid")) w.importance = Weights::Importance::trapezoid;
}

void read_near(const Term& term, Weights& w) {
  only_with(term, "scale", {"exp"});
  only_with(term, "sink", {"exp"});
  only_with(term, "transport", {"exp"});
  only_with(term, "bandwidth",
            {"gauss", "laplace", "matern12", "matern32", "matern52", "epanechnikov", "tricube", "box"});
  w.near = kernel_of(term);
  w.neighbours = count(term, "nearest", 0);
  w.near_scale = number(term, "scale", 0);
  w.bandwidth = quantity(term, "bandwidth");
  w.sink = term.has("sink");
  w.transport = term.has("transport");
}

/// The product of two fades: a gate and a decay by a number.
void check_two_fades(const Term& first, const Term& second) {
  const std::string both = quoted(second.word) + " and " + quoted(first.word) + " both say how pairs fade; ";
  if (first.word == "equal" || second.word == "equal")
    fail_at(second.column,
            both + "keep the one that is not `equal`, and write an importance there, as in `gate(beta)`");
  const Term& decay = first.word == "decay" ? first : second;
  const Term& gate = first.word == "decay" ? second : first;
  if (!decay.has(unnamed))
    fail_at(second.column,
            both + "as inputs one would do for both: keep one, or give the decay as a number, `gate * decay(0.98)`");
  for (const std::string_view word : {"beta", "exponential"})
    if (decay.has(word))
      fail_at(column_of(decay, word), "in a product of two fades the importance stands in the gate; write " +
                                          quoted("gate(" + std::string(word) + ")"));
  if (gate.has("full") || gate.has("complex") || gate.has("trapezoid"))
    fail_at(second.column, both + "a decay beside a `full`, `complex` or `trapezoid` gate belongs into that gate");
}

Weights read_weights(const std::vector<Term>& terms) {
  Weights w;
  const Term* fade = nullptr;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const Term& term = terms[i];
    check_against_table(Axis::weights, term);
    for (std::size_t j = 0; j < i; ++j)
      if (terms[j].word == term.word)
        fail_at(term.column, quoted(term.word) + " stands twice in the weights; give it once");
    if (term.word == "window") {
      w.window = count(term, unnamed, 1);
    } else if (term.word == "near") {
      read_near(term, w);
    } else if (term.word == "levels") {
      w.levels = true, w.level_count = count(term, unnamed, 0);
    } else if (term.word == "power") {
      w.power = term.has(unnamed) ? quantity(term, unnamed) : Quantity{Quantity::From::input, 0};
    } else if (term.word == "given" || term.word == "mask") {
      if (w.given > 0)
        fail_at(term.column,
                "`given` and `mask` both give the weights of pairs; keep one (`given` with zeros masks)");
      w.given = count(term, unnamed, 1), w.mask = term.word == "mask";
    } else {
      if (fade != nullptr) check_two_fades(*fade, term);
      fade = &term;
      read_fade(term, w);
    }
  }
  return w;
}

Memory read_memory(const Term& term) {
  if (term.word == "kernel") refuse_no_mercer_kernel(term);
  check_against_table(Axis::memory, term);
  Memory m;
  using Class = Memory::Class;
  using Feature = Memory::Feature;
  using Activation = Memory::Activation;
  if (term.word == "linear") {
    only_with(term, "degree", {"polynomial", "dpfp"});
    constexpr std::pair<std::string_view, Feature> features[] = {{"elu1", Feature::elu1},
                                                                 {"relu", Feature::relu},
                                                                 {"silu", Feature::silu},
                                                                 {"taylor2", Feature::taylor2},
                                                                 {"dpfp", Feature::dpfp},
                                                                 {"cosformer", Feature::cosformer},
                                                                 {"polynomial", Feature::polynomial},
                                                                 {"t2r", Feature::t2r},
                                                                 {"hedgehog", Feature::hedgehog},
                                                                 {"hedgehog_exp", Feature::hedgehog_exp},
                                                                 {"hedgehog_softmax2", Feature::hedgehog_softmax2},
                                                                 {"favor", Feature::favor},
                                                                 {"favor_relu", Feature::favor_relu},
                                                                 {"rfa", Feature::rfa},
                                                                 {"dijiang", Feature::dijiang},
                                                                 {"rebased", Feature::rebased}};
    only_with(term, "features",
              {"t2r", "hedgehog", "hedgehog_exp", "hedgehog_softmax2", "favor", "favor_relu", "rfa", "dijiang"});
    m.rows = count(term, "features", 0);
    only_with(term, "length", {"cosformer"});
    if (term.has("cosformer")) m.length = count(term, "length", 4096);
    for (const auto& [word, feature] : features)
      if (term.has(word)) m.feature = feature;
    m.degree = count(term, "degree", 2);
    m.reverse = term.has("reverse");
    if (m.reverse && m.feature != Feature::identity)
      fail_at(column_of(term, "reverse"),
              "`reverse` maps values to keys and takes no feature map of the key; drop one");
  } else if (term.word == "constant") {
    m.kind = Class::constant;
    m.per_channel = term.has("channel");
  } else if (term.word == "local") {
    m.kind = Class::local;
    m.order = count(term, unnamed, 0);
  } else if (term.word == "kernel") {
    only_with(term, "scale", {"exp"});
    only_with(term, "bandwidth", {"gauss", "laplace", "matern12", "matern32", "matern52"});
    only_with(term, "degree", {"polynomial"});
    m.kind = Class::kernel;
    m.kernel = kernel_of(term);
    m.kernel_scale = number(term, "scale", 0);
    m.bandwidth = quantity(term, "bandwidth");
    m.degree = count(term, "degree", 2);
  } else if (term.word == "mlp") {
    constexpr std::pair<std::string_view, Activation> activations[] = {{"gelu", Activation::gelu},
                                                                       {"gelu_tanh", Activation::gelu_tanh},
                                                                       {"relu", Activation::relu},
                                                                       {"silu", Activation::silu},
                                                                       {"tanh", Activation::tanh}};
    m.kind = Class::mlp;
    m.depth = count(term, unnamed, 2);
    m.width = count(term, "width", 0);
    for (const auto& [word, activation] : activations)
      if (term.has(word)) m.activation = activation;
    m.bias = term.has("bias"), m.residual = term.has("residual"), m.layernorm = term.has("layernorm");
  } else if (term.word == "swiglu") {
    m.kind = Class::swiglu;
    m.activation = Activation::silu;
    m.width = count(term, "width", 0);
  } else if (term.word == "layernorm") {
    m.kind = Class::layernorm_linear;
    m.depth = 1;
    m.bias = term.has("bias"), m.residual = term.has("residual"), m.layernorm = true;
  } else if (term.word == "slots") {
    m.kind = Class::slots;
    m.slots = count(term, unnamed, 1);
  } else {
    m.kind = Class::vector;
  }
  return m;
}

/// The numbers of `key(0.5, 0.2)`; none if it is written otherwise.
std::vector<double> numbers(const Term& term, std::string_view key) {
  const Argument* a = term.find(key);
  const Term* inner = a != nullptr ? std::get_if<Term>(&a->value) : nullptr;
  std::vector<double> out;
  if (inner != nullptr)
    for (const Argument& each : inner->arguments)
      if (each.is_number()) out.push_back(each.number());
  return out;
}

void read_step(const Term& term, Solver& s) {
  if (choice(term, "step") == "auto") {
    s.rule = Solver::Rule::automatic;
    return;
  }
  s.step_list = numbers(term, "step");
  if (!s.step_list.empty()) {
    if (static_cast<int>(s.step_list.size()) != s.steps)
      fail_at(column_of(term, "step"), "`step` lists " + std::to_string(s.step_list.size()) + " steps and " +
                                           quoted(term.word) + " takes " + std::to_string(s.steps) +
                                           "; give one for each");
    if (s.steps == 1) s.step = {Quantity::From::constant, s.step_list[0]}, s.step_list.clear();
    return;
  }
  s.step_each = choice(term, "step") == "each";
  if (s.step_each && s.steps == 1)
    fail_at(column_of(term, "step"), "`step=each` has a step for each of several iterations; write `step`");
  constexpr std::pair<std::string_view, Solver::Rule> rules[] = {
      {"step", Solver::Rule::plain}, {"beta", Solver::Rule::plain}, {"rate", Solver::Rule::plain},
      {"mu", Solver::Rule::plain},   {"nlms", Solver::Rule::nlms},  {"longhorn", Solver::Rule::longhorn},
      {"flow", Solver::Rule::flow}};
  for (const auto& [word, rule] : rules)
    if (term.has(word)) s.rule = rule, s.step = quantity(term, word);
}

/// What every gradient step shares: momentum, and what the gradient is divided by.
void read_update(const Term& term, Solver& s) {
  using Metric = Solver::Metric;
  only_with(term, "nesterov", {"momentum"});
  s.nesterov = term.has("nesterov");
  s.momentum_auto = choice(term, "momentum") == "auto";
  if (!s.momentum_auto) s.momentum = quantity(term, "momentum");
  constexpr std::pair<std::string_view, Metric> metrics[] = {
      {"adagrad", Metric::adagrad}, {"rmsprop", Metric::rmsprop}, {"adam", Metric::adam},
      {"shampoo", Metric::shampoo}, {"lbfgs", Metric::lbfgs},     {"newton", Metric::newton}};
  for (const auto& [word, metric] : metrics)
    if (term.has(word)) s.metric = metric;
  if (s.metric == Metric::rmsprop) s.metric_second = number(term, "rmsprop", 0);
  if (s.metric == Metric::newton) s.metric_first = number(term, "newton", 0);
  if (s.metric == Metric::lbfgs) s.metric_pairs = count(term, "lbfgs", 1);
  if (s.metric == Metric::adam) {
    const std::vector<double> factors = numbers(term, "adam");
    s.metric_first = factors.empty() ? 0.9 : factors[0];
    s.metric_second = factors.empty() ? 0.999 : factors[1];
    if (term.has("momentum"))
      fail_at(column_of(term, "momentum"), "`adam` has a running mean of the gradient of its own; drop `momentum`");
  }
  const bool divides = s.metric == Metric::adagrad || s.metric == Metric::rmsprop || s.metric == Metric::adam ||
                       s.metric == Metric::shampoo;
  if (s.kind == Solver::Kind::sgd) only_with(term, "eps", {"nlms", "adagrad", "rmsprop", "adam", "shampoo"});
  else only_with(term, "eps", {"adagrad", "rmsprop", "adam", "shampoo"});
  // Roots of matrices that are singular at first are as steep as this is small.
  s.eps = number(term, "eps", s.metric == Metric::shampoo ? 1e-4 : divides ? 1e-8 : 0);
  if (divides && s.rule == Solver::Rule::nlms && term.has("eps"))
    fail_at(column_of(term, "eps"), "`eps` would be added to the step of `nlms` and to the metric; use `beta`");
}

/// What sgd, minibatch and descend share.
void read_descent(const Term& term, Solver& s) {
  for (const std::string_view word : {"decay", "leak", "shrink"}) {
    if (!term.has(word)) continue;
    s.decay_kind = word == "decay"  ? Solver::Decay::before
                   : word == "leak" ? Solver::Decay::leak
                                    : Solver::Decay::shrink;
    s.decay = quantity(term, word);
  }
  if (choice(term, "decay") == "key") s.decay_per = Weights::Per::key;
  if (choice(term, "decay") == "value") s.decay_per = Weights::Per::value;
  if (s.kind == Solver::Kind::sgd) {
    only_with(term, "gain", {"momentum"});
    s.gain = quantity(term, "gain");
  }
  constexpr std::pair<std::string_view, Solver::Mirror> mirrors[] = {
      {"softmax", Solver::Mirror::softmax}, {"exp", Solver::Mirror::exp}, {"sinh", Solver::Mirror::sinh}};
  for (const auto& [word, mirror] : mirrors)
    if (choice(term, "mirror") == word) s.mirror = mirror;
  only_with(term, "radius", {"mirror"});
  s.radius = number(term, "radius", 1);
  s.muon = term.has("muon");
  s.row_norm = term.has("rownorm");
  s.q_norm = number(term, "qnorm", 0);
}

void read_sgd(const Term& term, Solver& s) {
  s.pairs = count(term, "pairs", 1);
  s.feedback = term.has("feedback");
  s.split = term.has("split");
  s.dplr = term.has("dplr");
  s.precondition = term.has("precondition");
  if (s.split || s.dplr) {
    const std::string rule = s.split ? "split" : "dplr";
    const std::string why =
        s.split ? "; the gates `erase` and `write` are its step" : "; the keys `a`, `b` and `k` carry its step";
    for (const std::string_view word :
         {"beta", "nlms", "longhorn", "flow", "precondition", "momentum", "leak", "shrink", "pairs", "muon", "qnorm",
          "adagrad", "rmsprop", "adam", "shampoo", "newton", "mirror"})
      if (term.has(word)) fail_at(column_of(term, word), quoted(word) + " does not go with " + quoted(rule) + why);
  }
  const bool many = s.steps > 1 || s.pairs > 1;
  if (s.steps > 1 && s.pairs > 1)
    fail_at(column_of(term, "pairs"), "either several steps on one pair or several pairs, not both; drop one");
  for (const std::string_view word :
       {"momentum", "split", "dplr", "precondition", "muon", "qnorm", "shrink", "feedback"})
    if (many && term.has(word) && !(word == "shrink" && s.steps > 1))
      fail_at(column_of(term, word), quoted(word) +
                                         " is defined for one step on one pair per token; drop it or the " +
                                         (s.steps > 1 ? "number of steps" : "`pairs`"));
  if (s.feedback && (s.rule == Solver::Rule::longhorn || s.rule == Solver::Rule::flow))
    fail_at(column_of(term, "feedback"),
            "the longhorn and flow steps are solved for a residual read with k itself; use `beta` with `feedback`");
}

Solver read_solver(const Term& term) {
  check_against_table(Axis::solver, term);
  Solver s;
  using Kind = Solver::Kind;
  constexpr std::pair<std::string_view, Kind> kinds[] = {{"gd", Kind::gd},
                                                         {"descend", Kind::descend},
                                                         {"sgd", Kind::sgd},
                                                         {"exact", Kind::exact},
                                                         {"minibatch", Kind::minibatch},
                                                         {"cg", Kind::cg},
                                                         {"apa", Kind::apa},
                                                         {"chebyshev", Kind::chebyshev},
                                                         {"kalman", Kind::kalman},
                                                         {"given", Kind::given},
                                                         {"irls", Kind::irls}};
  for (const auto& [word, kind] : kinds)
    if (term.word == word) s.kind = kind;
  const int bare = count(term, unnamed, 1);
  (s.kind == Kind::minibatch || s.kind == Kind::apa ? s.batch : s.steps) = bare;
  read_step(term, s);
  const bool descends = s.kind == Kind::sgd || s.kind == Kind::minibatch || s.kind == Kind::descend;
  if (descends || s.kind == Kind::gd) read_update(term, s);
  if (descends) read_descent(term, s);
  if (s.kind == Kind::sgd) read_sgd(term, s);
  if (s.kind == Kind::apa) s.eps = number(term, "eps", 0);
  if (s.kind == Kind::kalman) s.process = quantity(term, "process"), s.noise = quantity(term, "noise");
  if (s.kind == Kind::irls) s.eps = number(term, "eps", 1e-3);
  if (s.kind == Kind::exact || s.kind == Kind::cg || s.kind == Kind::chebyshev || s.kind == Kind::irls) {
    s.ridge = quantity(term, "ridge");
    if (choice(term, "ridge") == "key") s.ridge_per = Solver::RidgePer::key;
    if (choice(term, "ridge") == "token") s.ridge_per = Solver::RidgePer::token;
    constexpr std::pair<std::string_view, Solver::RidgeKind> ridge_kinds[] = {
        {"relative", Solver::RidgeKind::relative},
        {"frobenius", Solver::RidgeKind::frobenius},
        {"fading", Solver::RidgeKind::fading}};
    for (const auto& [word, kind] : ridge_kinds) {
      only_with(term, word, {"ridge"});
      if (term.has(word)) s.ridge_kind = kind;
    }
    if (s.kind == Kind::chebyshev && (!s.ridge.given() || (s.ridge.is_constant() && s.ridge.value == 0)))
      fail_at(term.column,
              "`chebyshev` needs a ridge: it bounds the spectrum from below; write `chebyshev(30, ridge)`");
  }
  return s;
}

Extras read_extras(const std::vector<Term>& terms) {
  Extras e;
  const Term* loss = nullptr;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const Term& term = terms[i];
    check_against_table(Axis::extra, term);
    for (std::size_t j = 0; j < i; ++j)
      if (terms[j].word == term.word)
        fail_at(term.column, quoted(term.word) + " stands twice among the extras; give it once");
    if (term.word == "normalise") {
      only_with(term, "eps", {"keysum", "rms", "unit"});
      e.normalise = term.has("keysum") ? Extras::Normalise::keysum
                    : term.has("rms")  ? Extras::Normalise::rms
                    : term.has("unit") ? Extras::Normalise::unit
                                       : Extras::Normalise::max_one;
      e.normalise_eps = number(term, "eps", 0);
    } else if (term.word == "read") {
      e.read_before = true;
      e.bonus = term.has("bonus");
    } else if (term.word == "blend") {
      e.blend = true;
    } else if (term.word == "keys") {
      e.keys = term.has("unit") ? Extras::Keys::unit : Extras::Keys::rms;
    } else if (term.word == "l1" || term.word == "l2") {
      (term.word == "l1" ? e.l1 : e.l2) =
          term.has(unnamed) ? quantity(term, unnamed) : Quantity{Quantity::From::input, 0};
    } else {
      if (loss != nullptr)
        fail_at(term.column, quoted(term.word) + " and " + quoted(loss->word) + " are both losses; keep one");
      loss = &term;
      if (term.word == "dot") e.loss = Extras::Loss::dot;
      constexpr std::pair<std::string_view, Extras::Loss> losses[] = {{"lp", Extras::Loss::lp},
                                                                      {"insensitive", Extras::Loss::insensitive},
                                                                      {"quantile", Extras::Loss::quantile},
                                                                      {"logistic", Extras::Loss::logistic},
                                                                      {"cross_entropy", Extras::Loss::cross_entropy}};
      for (const auto& [word, kind] : losses)
        if (term.word == word) e.loss = kind, e.loss_parameter = quantity(term, unnamed);
      e.read_mean = term.has("mean");
      if (term.word == "huber") {
        e.loss = term.has("coordinate") ? Extras::Loss::huber_coordinate : Extras::Loss::huber;
        e.loss_parameter = quantity(term, "c");
      }
    }
  }
  return e;
}

}  // namespace

Design interpret(const Recipe& recipe) {
  if (recipe.weights.empty())
    fail_at(0, "the recipe has no weights; a recipe is `weights / memory / solver`, e.g. `equal / linear / gd(1)`");
  Design design;
  design.weights = read_weights(recipe.weights);
  design.memory = read_memory(recipe.memory);
  design.solver = read_solver(recipe.solver);
  design.extras = read_extras(recipe.extras);
  if (design.memory.kind == Memory::Class::slots) design.weights.per = Weights::Per::slot;
  check_combination(recipe, design);
  if (!forgets_by_window(design)) design.weights.window = 0;  // nobody looks through it, which is a remark
  if (sees_newest_only(design)) design.weights.power = {}, design.weights.steady = 0;
  return design;
}

std::vector<std::string> validate(const Recipe& recipe) { return remarks_on(recipe, interpret(recipe)); }

}  // namespace ttr
