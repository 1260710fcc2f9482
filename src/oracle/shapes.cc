// How a design is solved, and which arrays it reads and carries.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "oracle/head.h"

namespace ttr::oracle {
namespace {

using Class = Memory::Class;
using Kind = Solver::Kind;
using Per = Weights::Per;

/// What the loops rely on. recipe/combine.cc says which words go together, with the sentences for people; a design that
/// breaks this did not come from there.
void expect(bool holds, const char* what) {
  if (!holds)
    throw Error(std::string("this design did not pass recipe/combine.cc: ") + what,
                "the oracle (an error inside ttr)");
}

void expect_known(const Design& d) {
  const Memory& m = d.memory;
  const Solver& s = d.solver;
  const bool linear = is_linear_class(m), kernel = m.kind == Class::kernel;
  const bool solves =
      s.kind == Kind::exact || s.kind == Kind::cg || s.kind == Kind::chebyshev || s.kind == Kind::irls;
  const bool filters = s.kind == Kind::apa || s.kind == Kind::kalman;
  const bool descends = s.kind == Kind::sgd || s.kind == Kind::minibatch || s.kind == Kind::descend;
  expect(!kernel || m.kernel != Kernel::none, "a kernel memory has a kernel");
  expect(!solves || linear || kernel, "exact, cg and chebyshev solve for linear coefficients");
  expect(!filters || (m.kind == Class::linear && !m.reverse), "apa and kalman have a linear memory");
  expect(
      !(solves || filters || s.kind == Kind::given) || s.kind == Kind::irls || d.extras.loss == Extras::Loss::squared,
      "what is solved for has the squared loss");
  expect(!kernel || s.metric == Solver::Metric::none, "a kernel memory has no entries to divide");
  expect(s.kind != Kind::given || (m.kind == Class::local && m.order == 1), "given slopes belong to local(1)");
  expect(m.kind != Class::slots || s.kind == Kind::gd, "slots are written by gd(1)");
  expect(m.kind != Class::local || !(descends || filters), "local(p) is centred at each query: nothing is carried");
  expect(!kernel || (s.kind != Kind::minibatch && s.kind != Kind::descend), "a kernel memory takes sgd or is solved");
  expect(!m.per_channel || s.kind == Kind::exact, "constant(channel) is solved by exact");
  expect(!m.reverse || (s.kind != Kind::cg && s.kind != Kind::chebyshev),
         "linear(reverse) has no query to solve for");
  const bool by_channel = d.weights.fade == Weights::Fade::gate && d.weights.per != Per::token;
  expect(!solves || !by_channel || m.per_channel || (d.weights.near != Kernel::none && d.weights.per == Per::key),
         "what is solved for has one weight per pair");
  expect(!s.ridge.given() || s.ridge_per != Solver::RidgePer::key ||
             (m.kind == Class::linear && feature_count(m, 7) == 7),
         "ridge(key) has one entry per feature");
  expect(s.pairs == 1 || (s.kind == Kind::sgd && linear), "several pairs per token belong to sgd on a linear memory");
}

}  // namespace

Way way_of(const Design& d) {
  expect_known(d);
  const bool kernel = d.memory.kind == Class::kernel;
  if (d.memory.kind == Class::slots) return Way::slots;
  switch (d.solver.kind) {
    case Kind::gd:
    case Kind::exact:
    case Kind::cg:
    case Kind::chebyshev:
    case Kind::given:
    case Kind::irls:
      return Way::batch;
    case Kind::descend:
      return Way::descend;
    case Kind::sgd:
      if (d.weights.near != Kernel::none && d.memory.kind == Class::constant) return Way::corrected;
      return kernel ? Way::functional : Way::online;
    case Kind::minibatch:
      return Way::online;
    case Kind::apa:
      return Way::projection;
    case Kind::kalman:
      return Way::kalman;
  }
  return Way::batch;
}

void check_features(const Design& d, const Sizes& sizes) {
  const Memory& m = d.memory;
  if (!is_linear_class(m) || feature_count(m, sizes.key_dim) <= most_features) return;
  if (m.has_map_inputs())
    throw Error("this feature map has " + std::to_string(feature_count(m, sizes.key_dim)) +
                " features, more than the " + std::to_string(most_features) +
                " of which a square matrix fits into memory; take fewer rows or key channels");
  const int degree = m.kind == Class::local ? m.order : m.feature == Memory::Feature::polynomial ? m.degree : 2;
  double count = 1;
  for (int i = 1; i <= degree; ++i) count *= (sizes.key_dim + i) / static_cast<double>(i);
  char number[32];
  std::snprintf(number, sizeof number, count < 1e15 ? "%.0f" : "%.1e", std::round(count));
  throw Error("a polynomial of degree " + std::to_string(degree) + " in " + std::to_string(sizes.key_dim) +
              " key channels has " + number + " features, more than the " + std::to_string(most_features) +
              " of which a square matrix fits into memory; take a lower degree or fewer key channels");
}

std::string step_name(const Design& d) {
  if (d.solver.kind == Kind::minibatch) return "rate";
  if (d.solver.kind == Kind::apa || d.solver.rule == Solver::Rule::nlms) return "mu";
  return d.solver.rule == Solver::Rule::longhorn ? "delta" : "beta";
}

std::int64_t pairs_to_keep(const Design& d) {
  if (d.solver.kind == Kind::apa) return d.solver.batch - 1;
  if (d.weights.reach() == 0) return -1;
  // The newest pair is the token's own, unless the token reads before it writes.
  return d.weights.reach() - 1 + (d.extras.read_before ? 1 : 0);
}

std::vector<StateShape> state_shapes(const Design& d) {
  const Way way = way_of(d);
  std::vector<StateShape> list;
  auto kept = [&](const DesignInput& input) {
    if (!input.per_pair() || input.optional) return false;
    if (way == Way::batch || way == Way::descend) return true;
    if (way == Way::projection) return input.name == "k" || input.name == "v";
    if (way == Way::corrected) return input.name != "v";
    return way == Way::functional && input.name == "k";
  };
  for (const DesignInput& input : inputs_of(d))
    if (kept(input))
      list.push_back({input.name, input.axes.replaced('P', 'N').to_string(),
                      "input " + input.name + " of the pairs kept, oldest first"});
  if (way == Way::corrected) list.push_back({"u", "N H V", "corrected values of the pairs kept"});
  if (way == Way::functional) list.push_back({"alpha", "N H V", "coefficients of the kernels at the keys kept"});
  if (way == Way::functional && d.solver.momentum.given())
    list.push_back({"zeta", "N H V", "coefficients of the last update at the keys kept"});
  if (way == Way::slots) {
    list.push_back({"Km", "H K M", "keys of the slots"});
    list.push_back({"Vm", "H M V", "values of the slots"});
  }
  const bool answer = way == Way::online || way == Way::descend || way == Way::projection || way == Way::kalman;
  const bool network = way == Way::batch && !is_linear_class(d.memory) && d.memory.kind != Class::kernel;
  if (answer || network) {
    const std::vector<ParameterInfo> parameters = parameters_of(d.memory, 2, 2);
    const bool stepwise = way == Way::online || way == Way::descend;
    for (const ParameterInfo& p : parameters)
      list.push_back({p.name, p.letters, network ? "initial weights" : "the memory"});
    const bool adam = d.solver.metric == Solver::Metric::adam;
    if (stepwise && keeps_update(d.solver))
      for (const ParameterInfo& p : parameters)
        list.push_back({state_name("Z", p.name), p.letters,
                        (adam ? "running mean of the gradients of " : "the last update of ") + p.name});
    if (stepwise && keeps_squares(d.solver))
      for (const ParameterInfo& p : parameters)
        list.push_back({state_name("squares", p.name), p.letters,
                        (d.solver.metric == Solver::Metric::adagrad ? "sum" : "running mean") +
                            std::string(" of the squared gradients of ") + p.name});
    if (stepwise && adam) list.push_back({"count", "H", "steps taken"});
    if (stepwise && d.solver.metric == Solver::Metric::shampoo)
      for (const ParameterInfo& p : parameters) {
        const char rows = Axes(p.letters)[1], columns = p.letters.back();
        const std::string of = p.name == "S" ? "" : " of " + p.name;
        list.push_back(
            {state_name("L", p.name), p.bias ? "H" : Axes("H").with(rows).with(rows).to_string(),
             (p.bias ? "sum of the squared lengths of the gradients" : "sum of the products G G' of the gradients") +
                 of});
        list.push_back({state_name("R", p.name), Axes("H").with(columns).with(columns).to_string(),
                        "sum of the products G' G of the gradients" + of});
      }
    if (d.solver.kind == Kind::minibatch) {
      for (const ParameterInfo& p : parameters)
        list.push_back({"start_" + p.name, p.letters, p.name + " at the start of the block"});
      list.push_back({"position", "H", "tokens seen of the current block"});
    }
    if (stepwise && d.solver.row_norm)
      for (const ParameterInfo& p : parameters)
        if (!p.bias)
          list.push_back({"norm_" + p.name, std::string("H ") + p.letters.back(),
                          "initial lengths of the columns of " + p.name});
    const char features = Axes(parameters[0].letters)[1];  // K, or F: the rows of S
    if (d.solver.precondition) list.push_back({"A", std::string("H ") + features, "gated sum of squared keys"});
    if (way == Way::kalman)
      list.push_back({"P", Axes("H").with(features).with(features).to_string(),
                      "covariance of the memory, shared by the value channels"});
  }
  if (way == Way::batch && d.solver.ridge.given() && d.solver.ridge_kind == Solver::RidgeKind::fading)
    list.push_back({"log_fade", "H", "log of the fading of pairs no longer kept"});
  if (d.memory.knows_position()) list.push_back({"seen", "H", "tokens seen"});
  return list;
}

bool keeps_history(const Design& d) {
  const std::vector<StateShape> shapes = state_shapes(d);
  return std::any_of(shapes.begin(), shapes.end(), [](const StateShape& shape) { return shape.history(); });
}

std::int64_t extent_of(char letter, const Design& d, const Sizes& s, std::int64_t pairs, std::int64_t kept) {
  switch (letter) {
    case 'T':
      return s.time;
    case 'P':
      return pairs;
    case 'N':
      return kept;
    case 'H':
      return s.heads;
    case 'G':
      return s.key_heads;
    case 'K':
      return s.key_dim;
    case 'V':
      return s.value_dim;
    case 'F':
      return feature_count(d.memory, s.key_dim);
    case 'D':
      return d.memory.width > 0 ? d.memory.width : 4 * s.key_dim;
    case 'M':
      return d.memory.slots > 0 ? d.memory.slots : d.memory.matrix_rows(s.key_dim);
    case 'W':
      return d.weights.given;
    case 'I':
      return d.solver.steps;
    case '1':
      return 1;
    default:
      return -1;  // L: any
  }
}

namespace {

std::string describe(const std::vector<std::int64_t>& extent) {
  std::string text = "[";
  for (std::size_t i = 0; i < extent.size(); ++i)
    text += (i ? ", " : "") + (extent[i] < 0 ? std::string("any") : std::to_string(extent[i]));
  return text + "]";
}

void check_array(const std::string& what, const Array& array, const Axes& axes,
                 const std::vector<std::int64_t>& want) {
  bool fits = want.size() == array.extent.size();
  std::int64_t count = 1;
  for (std::size_t i = 0; fits && i < want.size(); ++i) {
    fits = want[i] < 0 || want[i] == array.extent[i];
    count *= array.extent[i];
  }
  if (!fits)
    throw Error(what + " has the shape " + describe(array.extent) + " but should be " + axes.to_string() + " = " +
                describe(want));
  if (static_cast<std::int64_t>(array.data.size()) != count)
    throw Error(what + " has " + std::to_string(array.data.size()) + " numbers but its shape " +
                describe(array.extent) + " holds " + std::to_string(count));
}

}  // namespace

std::int64_t check_call(const Design& d, const Sizes& s, const Arrays& inputs, const Arrays& state) {
  const Way way = way_of(d);
  if (s.heads < 1 || s.key_heads < 1 || s.heads % s.key_heads != 0)
    throw Error("heads is " + std::to_string(s.heads) + " and key_heads " + std::to_string(s.key_heads) +
                "; key_heads must divide heads");
  if (s.key_dim < 1 || s.value_dim < 1 || s.time < 0)
    throw Error("key_dim is " + std::to_string(s.key_dim) + ", value_dim " + std::to_string(s.value_dim) + ", time " +
                std::to_string(s.time) + "; dimensions are at least one and time is not negative");
  check_features(d, s);
  const bool adds_input =
      d.memory.residual && (d.memory.kind == Class::mlp || d.memory.kind == Class::layernorm_linear);
  if (adds_input && s.key_dim != s.value_dim)
    throw Error("a memory that adds its input to its answer needs key_dim = value_dim; they are " +
                std::to_string(s.key_dim) + " and " + std::to_string(s.value_dim));
  if (!s.causal && (way != Way::batch || d.extras.read_before || d.weights.levels))
    throw Error(
        "without causality every query sees all pairs: this needs gd, exact, cg, chebyshev or given, without "
        "read(before) and levels");
  std::int64_t pairs = s.time * (d.solver.kind == Kind::sgd ? d.solver.pairs : 1);
  if (!s.causal) {
    const auto v = inputs.find("v");
    if (v != inputs.end() && !v->second.extent.empty()) pairs = v->second.extent[0];
  }
  std::int64_t kept = -1;
  const auto extent = [&](char letter) { return extent_of(letter, d, s, pairs, kept); };
  for (const DesignInput& input : inputs_of(d)) {
    const auto found = inputs.find(input.name);
    const std::vector<std::int64_t> want = input.axes.extents(extent);
    if (found != inputs.end()) check_array("input " + input.name, found->second, input.axes, want);
    else if (!input.optional)
      throw Error("input " + input.name + " is missing; its shape is " + input.axes.to_string() + " = " +
                  describe(want));
  }
  for (const StateShape& shape : state_shapes(d)) {
    const auto found = state.find(shape.name);
    if (found == state.end())
      throw Error("the state lacks " + shape.name + " (" + shape.meaning + "); start from fresh_state");
    if (shape.history()) {
      if (found->second.extent.empty()) throw Error("state " + shape.name + " has no shape");
      if (kept < 0) kept = found->second.extent[0];
    }
    check_array("state " + shape.name, found->second, shape.axes(), shape.axes().extents(extent));
  }
  return pairs;
}

}  // namespace ttr::oracle
