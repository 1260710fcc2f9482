// Derivations of plans that are not causal: every query sees all N pairs of its call. There is no order, hence no state
// and no recurrence, and what does not depend on the query is computed once per call.
#include "recipe/combine.h"
#include "recipe/derive_parts.h"

namespace ttr::derivation {

using Class = Memory::Class;
using Kind = Solver::Kind;
using Loss = Extras::Loss;

namespace {

std::string steps_of(const Symbols& y) {
  const int n = y.d.solver.steps;
  return n == 1 ? "one gradient step" : std::to_string(n) + " gradient steps";
}

/// The step as a factor in front of a sum.
std::string step_factor(const Symbols& y) {
  const std::string step = y.step(y.key("i"));
  return step == "1" ? "" : step + "\\, ";
}

std::string once(const Symbols& y) {
  const Design& d = y.d;
  const Solver& s = d.solver;
  const bool linear = d.memory.kind == Class::linear;
  const std::string system = y.has_ridge() ? "(H + " + y.ridge_matrix() + ")" : "H";
  if (linear && s.kind == Kind::exact)
    return "$S = " + system + "^{-1} F$ is solved for once" +
           (y.has_ridge() ? "" : " (the least-norm solution if $H$ is singular)");
  if (linear && (s.kind == Kind::cg || s.kind == Kind::chebyshev))
    return "$H$ and $F$ are summed once, and each query takes " + std::to_string(s.steps) +
           (s.kind == Kind::cg ? " conjugate gradient" : " Chebyshev") + " steps on $" + system +
           "\\, x = " + y.query() + "$";
  if (linear && y.one_step() && (d.extras.loss == Loss::squared || d.extras.loss == Loss::dot))
    return "one step from zero gives $S = " + step_factor(y) + "F$, $F = \\sum_{" + y.range() + "} " + y.w("i") +
           y.key("i") + " v_i^\\top$";
  if (d.memory.kind == Class::kernel && s.kind != Kind::gd)
    return "the coefficients $C$ are solved for once" +
           (s.kind == Kind::cg ? ", by " + std::to_string(s.steps) + " conjugate gradient steps" : std::string());
  if (d.memory.kind == Class::constant && s.kind == Kind::exact)
    return "$y = \\sum_i " + y.w("i") + "v_i/(\\sum_i " + (y.w("i").empty() ? "1" : y.w("i")) +
           (y.has_ridge() ? " + " + y.ridge() : "") + ")$ is one for all queries";
  if (d.memory.kind == Class::vector)
    return "$h = " + step_factor(y) + "\\sum_{" + y.range() + "} " + y.w("i") + "v_i$ is one for all queries";
  return steps_of(y) + (is_network(d.memory) ? " from the initial weights" : " from zero") +
         " on all pairs give one answer for all queries";
}

}  // namespace

std::string whole_solution(const Symbols& y) {
  const std::string none = "None: every query sees all $N$ pairs of its call, in no order; ";
  if (y.by_query()) return none + "the weights depend on the query, so each one has a regression of its own.";
  return none + once(y) + ".";
}

std::string whole_cost(const Symbols& y) {
  const Design& d = y.d;
  const Solver& s = d.solver;
  const std::string f = y.features(), matrix = f + "V", n = std::to_string(s.steps);
  if (y.by_query()) {
    if (s.kind == Kind::given) return "$2N(K + V)$";
    if (d.memory.kind == Class::vector) return "$NV$";
    if (is_network(d.memory)) return std::to_string(3LL * s.steps) + "$N$ passes through the network";
    if (d.memory.kind == Class::kernel)
      return s.kind == Kind::gd && s.steps == 1 ? "$2N(K + V)$"
             : s.kind == Kind::exact            ? "$N(K + V) + N^3/6$ (one solve per query)"
                                                : "$N(2K + V) + " + (s.steps == 1 ? "" : n) + "N^2$";
    if (d.memory.kind == Class::constant || (d.memory.kind == Class::local && d.memory.order == 0))
      return "$N(K + V)$";
    const std::string order = std::to_string(d.memory.order);
    const std::string m = d.memory.kind == Class::linear ? f
                          : d.memory.order == 1          ? "K"
                                                         : "\\binom{K+" + order + "}{" + order + "}";
    if (s.kind == Kind::exact) return "$N(" + m + "^2/2 + K + V) + " + m + "^3/6$ (one solve per query)";
    return "$N(K + V) + " + std::to_string(2LL * s.steps) + "N" + m + "$";
  }
  switch (d.memory.kind) {
    case Class::linear:
      if (s.kind == Kind::exact)
        return "$" + matrix + "$; besides, per call, $N(" + f + "^2/2 + " + matrix + ") + " + f + "^3/6 + " + f +
               "^2 V$";
      if (s.kind == Kind::cg || s.kind == Kind::chebyshev)
        return "$" + n + f + "^2 + " + matrix + "$; besides, per call, $N(" + f + "^2/2 + " + matrix + ")$";
      if (y.one_step()) return "$" + matrix + "$; besides, per call, $N" + matrix + "$";
      return "$" + matrix + "$; besides, per call, $" + std::to_string(2LL * s.steps) + "N" + matrix + "$";
    case Class::kernel:
      if (s.kind == Kind::gd && s.steps == 1) return "$N(K + V)$";
      if (s.kind == Kind::exact) return "$N(K + V)$; besides, per call, $N^2(K/2 + V) + N^3/6$";
      return "$N(K + V)$; besides, per call, $N^2(K/2 + " + (s.steps == 1 ? "" : n) + "V)$";
    case Class::constant:
    case Class::vector:
      return "$0$; besides, per call, $" + (s.kind == Kind::gd && s.steps > 1 ? n : std::string()) + "NV$";
    default:
      return "one pass through the network; besides, per call, $" + std::to_string(3LL * s.steps) + "N$ passes";
  }
}

}  // namespace ttr::derivation
