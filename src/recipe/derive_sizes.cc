// Numbers of state and multiplications per token and head. t is the number of pairs kept, n the steps, L the live
// levels, P the weights of a network. Numbers that the recipe names stay as they are: 2*16*(K + V), not 32 (K + V).
#include "recipe/combine.h"
#include "recipe/derive_parts.h"

namespace ttr::derivation {

using Class = Memory::Class;
using Kind = Solver::Kind;
using Importance = Weights::Importance;
using Loss = Extras::Loss;

namespace {

/// Pairs a design keeps: all of them or a window.
std::string kept(const Design& d) { return d.weights.reach() > 0 ? std::to_string(d.weights.reach()) : "t"; }

/// n times that number, in front of a letter or a parenthesis: 2t, or 2*16*.
std::string times_kept(const Design& d, long long n = 1) {
  const std::string factor = n == 1 ? "" : std::to_string(n);
  if (d.weights.reach() == 0) return factor + "t";
  return (n == 1 ? "" : factor + "\\cdot ") + kept(d) + "\\cdot ";
}

/// n times its square.
std::string times_kept_squared(const Design& d, long long n = 1) {
  const std::string factor = n == 1 ? "" : std::to_string(n);
  if (d.weights.reach() == 0) return factor + "t^2";
  return (n == 1 ? "" : factor + "\\cdot ") + kept(d) + "^2";
}

/// A coefficient in front of a letter: 1 is not written.
std::string coefficient(int n) { return n == 1 ? "" : std::to_string(n); }

/// A number in front of a number.
std::string times(long long n, const std::string& number) {
  return n == 1 ? number : std::to_string(n) + "\\cdot " + number;
}

std::string network_weights(const Memory& m) {
  const std::string width = m.width > 0 ? std::to_string(m.width) : "4K";
  const std::string side = m.width > 0 ? width + "\\cdot " : "4K";
  if (m.kind == Class::layernorm_linear) return m.bias ? "KV + V" : "KV";
  if (m.kind == Class::swiglu) return side + "(2K + V)";
  if (m.depth == 1) return m.bias ? "KV + V" : "KV";
  const long long n = m.width;
  std::string out = side + "(K + V)";
  if (m.depth > 2)
    out += " + " + (n > 0 ? times(m.depth - 2, width + "^2") : std::to_string(16 * (m.depth - 2)) + "K^2");
  if (m.bias) out += " + " + (n > 0 ? times(m.depth - 1, width) : std::to_string(4 * (m.depth - 1)) + "K") + " + V";
  return out;
}

/// Numbers in the matrices L and R of shampoo for the weights of a network: in^2 + out^2 for each matrix, 1 + out^2
/// for a bias.
std::string network_shampoo(const Memory& m) {
  const bool swiglu = m.kind == Class::swiglu;
  const int hidden = m.kind == Class::mlp ? m.depth - 1 : 0;
  const int sides = swiglu ? 3 : (m.bias ? 3 : 2) * hidden;  // of the width of a hidden layer
  std::string out = swiglu ? "2K^2" : "K^2";
  if (sides > 0)
    out +=
        " + " + (m.width > 0 ? times(sides, std::to_string(m.width) + "^2") : std::to_string(16LL * sides) + "K^2");
  out += m.bias ? " + 2V^2 + " + std::to_string(hidden + 1) : " + V^2";
  return out;
}

/// What the steps of a network carry besides its weights.
std::string network_memory_of_steps(const Design& d) {
  using Metric = Solver::Metric;
  const Solver& s = d.solver;
  std::string out;
  if (s.kind == Kind::gd) return out;  // starts anew with every token
  if (s.momentum.given()) out += ", and $P$ more for the momentum";
  if (s.metric == Metric::adam) out += ", and $2P$ more for the running means";
  if (s.metric == Metric::adagrad || s.metric == Metric::rmsprop) out += ", and $P$ more for the squared gradients";
  if (s.metric == Metric::shampoo) out += ", and $" + network_shampoo(d.memory) + "$ for the matrices $L$ and $R$";
  return out;
}

/// What dividing the gradient costs besides.
std::string metric_cost(const Solver& s, bool network = false) {
  using Metric = Solver::Metric;
  switch (s.metric) {
    case Metric::none:
      return "";
    case Metric::shampoo:
      return std::string(", and two roots of matrices per ") + (network ? "parameter and step" : "step");
    case Metric::newton:
      return ", and one solve per step as large as the number of answers it sees";
    case Metric::lbfgs:
      return ", and " + std::to_string(4 * s.metric_pairs) + " products per weight and step";
    default:
      return ", and a root and a division per weight and step";
  }
}

bool keeps_pairs_for_descent(const Symbols& y) {
  const Kind kind = y.d.solver.kind;
  return (kind == Kind::gd || kind == Kind::descend) && !y.one_step() && !y.closed_sums();
}

}  // namespace

std::string state_size(const Symbols& y) {
  const Design& d = y.d;
  const Solver& s = d.solver;
  if (!y.causal) return "none: nothing is carried from call to call";
  const std::string f = y.features(), matrix = f + "V", t = kept(d);
  const std::string pairs = times_kept(d) + "(K + V)";
  // What a step remembers besides the answer, in matrices.
  const bool carries = s.kind == Kind::sgd || s.kind == Kind::minibatch || s.kind == Kind::descend;
  const int remembered = !carries
                             ? 0
                             : s.momentum.given() + (s.metric == Solver::Metric::adagrad) +
                                   (s.metric == Solver::Metric::rmsprop) + 2 * (s.metric == Solver::Metric::adam);
  const std::string shampoo = !carries || s.metric != Solver::Metric::shampoo ? ""
                              : d.memory.kind == Class::constant              ? " + V^2 + 1"
                                                                              : " + " + f + "^2 + V^2";
  if (y.by_query()) {
    std::string extra;
    if (d.weights.fade == Weights::Fade::gate)
      extra += " + " + (d.weights.per == Weights::Per::key ? times_kept(d) + "K" : t);
    if (d.weights.transport) extra += " + " + times_kept(d) + "(K + 1)";
    if (d.memory.kind == Class::vector || (d.memory.kind == Class::constant && d.weights.near == Kernel::none))
      return "$" + times_kept(d) + "V" + extra + "$ (the values themselves)";
    if (is_network(d.memory))
      return "$P = " + network_weights(d.memory) + "$" + network_memory_of_steps(d) + ", and $" + pairs + extra +
             "$ for the pairs";
    if (s.kind == Kind::descend)
      return "$" + coefficient(1 + remembered) + matrix + shampoo + " + " + pairs + extra + "$";
    return "$" + pairs + extra + "$ (the pairs themselves)";
  }
  if (s.kind == Kind::irls)
    return "$" + (d.memory.kind == Class::constant ? times_kept(d) + "V" : pairs) + "$ (the pairs themselves)";
  switch (d.memory.kind) {
    case Class::slots:
      return "$" + (d.memory.slots == 1 ? "" : std::to_string(d.memory.slots) + "\\cdot ") + "(K + V)$";
    case Class::vector:
      return d.weights.window > 0 ? "$V + " + times_kept(d) + "V$" : d.weights.complex ? "$2V$" : "$V$";
    case Class::kernel:
      if (s.kind == Kind::sgd && s.momentum.given())
        return "$" + times_kept(d) + "(K + 2V)$ (keys and two lists of coefficients)";
      return s.kind == Kind::exact ? "$" + pairs + " + " + t + "^2/2$ (pairs and a triangular factor)"
                                   : "$" + pairs + "$ (the pairs themselves)";
    case Class::constant: {
      if (s.kind == Kind::sgd) return "$" + coefficient(1 + remembered) + "V" + shampoo + "$";
      if (keeps_pairs_for_descent(y)) return "$" + times_kept(d) + "V$ (the values themselves)";
      const std::string window = d.weights.window > 0 ? " + " + times_kept(d) + "V" : "";
      return d.memory.per_channel ? "$3V" + window + "$ (two sums and a running maximum per channel)"
                                  : "$V + 1" + window + "$";
    }
    case Class::linear:
      break;
    case Class::local:
      return "$" + pairs + "$";
    default: {
      std::string out = "$P = " + network_weights(d.memory) + "$";
      if (s.q_norm > 0 || s.mirror != Solver::Mirror::none) out += " (the accumulator $A$, from which $W$ is made)";
      out += network_memory_of_steps(d);
      if (s.kind == Kind::minibatch) out += ", and $P$ for the gradients of an unfinished block";
      if (s.kind == Kind::gd || s.kind == Kind::descend) out += ", and $" + pairs + "$ for the pairs";
      return out;
    }
  }
  const std::string window = d.weights.window > 0 && !sees_newest_only(d) ? " + " + pairs : "";
  switch (s.kind) {
    case Kind::gd:
      if (keeps_pairs_for_descent(y)) return "$" + pairs + "$ (the pairs themselves)";
      if (y.one_step()) {
        if (d.weights.levels) return "$L\\," + matrix + "$ with $L\\le 1+\\log_2 t$ live levels";
        std::string out = d.weights.complex ? "2" + matrix : matrix;
        if (d.weights.importance == Importance::trapezoid) out += " + K + V";
        if (d.extras.normalise == Extras::Normalise::keysum || d.extras.normalise == Extras::Normalise::max_one)
          out += " + " + f;
        if (s.rule == Solver::Rule::automatic) out += " + 1";
        return "$" + out + window + "$";
      }
      return "$" + f + "^2 + " + matrix + window + "$ ($H$ and $F$)";
    case Kind::descend: {
      const int answers = 1 + remembered;
      if (keeps_pairs_for_descent(y)) return "$" + coefficient(answers) + matrix + shampoo + " + " + pairs + "$";
      return "$" + f + "^2 + " + coefficient(answers + 1) + matrix + shampoo + window + "$ (the answer, $H$ and $F$)";
    }
    case Kind::sgd:
    case Kind::minibatch: {
      std::string out = coefficient(1 + remembered + (s.kind == Kind::minibatch)) + matrix + shampoo;
      if (s.precondition) out += " + K";
      return "$" + out + "$" +
             (s.q_norm > 0 ? " (the accumulator $A$, which starts from a fixed draw: $A = 0$ has no $S$)" : "") +
             (s.kind == Kind::minibatch ? " (with the gradients of an unfinished block)" : "");
    }
    case Kind::apa:
      return "$" + matrix + (s.batch > 1 ? " + " + coefficient(s.batch - 1) + "(" + f + " + V)" : "") + "$";
    default:
      return "$" + f + "^2 + " + matrix + window + "$";
  }
}

std::string cost(const Symbols& y) {
  const Design& d = y.d;
  const Solver& s = d.solver;
  if (s.kind == Kind::irls) return reweighted_cost(y, y.causal ? kept(d) : "N");
  if (!y.causal) return whole_cost(y);
  const std::string f = y.features(), matrix = f + "V", t = kept(d), n = std::to_string(s.steps);
  const std::string t_times = times_kept(d), twice_steps = times_kept(d, 2LL * s.steps);
  if (y.by_query()) {
    if (is_deltaformer(d)) return "$2t(K + V)$";
    if (d.memory.kind == Class::vector || (d.memory.kind == Class::constant && d.weights.near == Kernel::none))
      return "$" + times_kept(d, s.steps) + "V$";
    if (is_network(d.memory))
      return "$" +
             (t == "t" ? std::to_string(3LL * s.steps) + "tP + P"
                       : std::to_string(3LL * s.steps * d.weights.reach() + 1) + "P") +
             "$ with $P = " + network_weights(d.memory) + "$";
    if (d.memory.kind == Class::kernel) {
      if (s.kind == Kind::gd && s.steps == 1) return "$" + times_kept(d, 2) + "(K + V)$";
      if (s.kind == Kind::exact)
        return "$" + t + "^3/6 + " + t_times + "(K + V)$ (the Gram matrix kept, one solve per query)";
      return "$" + times_kept_squared(d, s.steps) + " + " + t_times + "(2K + V)$";
    }
    if (d.memory.kind == Class::constant || s.kind == Kind::given ||
        (d.memory.kind == Class::local && d.memory.order == 0)) {
      const std::string slope = s.kind == Kind::given ? " + " + t_times + "(K + V)" : "";
      const std::string carried = d.weights.transport ? " + " + times_kept(d, 2) + "K" : "";
      if (d.memory.kind != Class::linear) return "$" + t_times + "(K + V)" + slope + carried + "$";
    }
    const std::string m = d.memory.kind == Class::local
                              ? (d.memory.order == 1 ? "K"
                                                     : "\\binom{K+" + std::to_string(d.memory.order) + "}{" +
                                                           std::to_string(d.memory.order) + "}")
                              : f;
    if (s.kind != Kind::exact)
      return "$" + t_times + "(K + V) + " + twice_steps + m + (s.kind == Kind::descend ? "V" : "") + "$";
    return "$" + t_times + "(" + m + "^2/2 + K + V) + " + m + "^3/6$ (one solve per query)";
  }
  switch (d.memory.kind) {
    case Class::slots:
      return "$" + times(y.fades() ? 3 : 2, std::to_string(d.memory.slots)) + "\\cdot (K + V)$";
    case Class::vector:
      return d.weights.complex ? "$4V$" : y.fades() ? "$V$" : "$0$ (additions only)";
    case Class::kernel:
      if (y.one_step()) return "$" + t_times + "(K + V)$";
      if (s.kind == Kind::sgd && d.extras.loss == Loss::dot) return "$" + t_times + "(K + V)$";
      if (s.kind == Kind::sgd)
        return "$" + times_kept(d, 2) + (s.steps > 1 ? "(K + " + n + "\\,V)" : "(K + V)") + "$";
      if (s.kind == Kind::exact)
        return y.fades() && y.has_ridge() ? "$" + t + "^3/6 + " + t_times + "(K + V)$"
                                          : "$" + times_kept_squared(d) + " + " + t_times + "(2K + V)$";
      return "$" + times_kept_squared(d, s.steps) + " + " + t_times + "(2K + V)$";
    case Class::constant:
      if (keeps_pairs_for_descent(y)) return "$" + times_kept(d, s.steps) + "V$";
      return s.kind == Kind::sgd ? s.steps > 1 ? "$" + n + "V$" : "$V$" : "$2V$";
    case Class::linear:
      break;
    case Class::local:
      return "$t(K + V)$";
    default: {
      const std::string p = "P = " + network_weights(d.memory);
      if (s.kind == Kind::gd || s.kind == Kind::descend)
        return "$" + times_kept(d, 3LL * s.steps) + "P + P" + "$ with $" + p + "$" + metric_cost(s, true);
      return "$" + std::to_string(4LL * s.steps + 1) + "P$ with $" + p + "$" +
             (s.muon ? ", and five Newton-Schulz products per update" : "") + metric_cost(s, true);
    }
  }
  const bool gated = y.fades() && !sees_newest_only(d);
  switch (s.kind) {
    case Kind::gd:
      if (keeps_pairs_for_descent(y)) return "$" + twice_steps + matrix + "$";
      if (y.one_step()) {
        if (d.weights.levels) return "$(L + 2)" + matrix + "$ on average, $L\\le 1+\\log_2 t$";
        const int passes = (gated ? 3 : 2) + (d.weights.window > 0 ? 1 : 0) +
                           (d.weights.importance == Importance::trapezoid ? 1 : 0);
        return "$" + std::to_string(d.weights.complex ? passes + 4 : passes) + matrix + "$";
      }
      if (!y.bare_steps())
        return "$" + coefficient(s.steps) + f + "^2 V + 2" + f + "^2 + 3" + matrix + "$" + metric_cost(s);
      return "$" + std::to_string(s.steps + 1) + f + "^2 + 3" + matrix +
             "$: the steps are taken on the query, $o = F_t^\\top x$";
    case Kind::descend:
      if (keeps_pairs_for_descent(y)) return "$" + twice_steps + matrix + "$";
      return "$" + coefficient(s.steps) + f + "^2 V + 2" + f + "^2 + 3" + matrix + "$" + metric_cost(s);
    case Kind::sgd: {
      // A pass to read and one to write for each pair, and the query. The dot loss reads only for the query.
      const bool dot = d.extras.loss == Loss::dot;
      int passes = s.steps > 1 && !y.affine() ? 2 * s.steps + 1 : dot ? 2 : 3;
      if (s.pairs > 1) passes = (dot ? 1 : 2) * s.pairs + 1;
      if (s.q_norm > 0) ++passes;  // S from A
      if (s.decay_kind != Solver::Decay::none) ++passes;
      if (s.momentum.given()) ++passes;
      return "$" + std::to_string(passes) + matrix + "$" + (s.muon ? ", and five Newton-Schulz products" : "") +
             metric_cost(s);
    }
    case Kind::minibatch:
      return "$" + std::to_string((d.extras.loss == Loss::dot ? 2 : 3) + s.momentum.given()) + matrix + "$" +
             (s.muon ? ", and five Newton-Schulz products per block" : "") + metric_cost(s);
    case Kind::exact:
      if (y.rank_one_inverse())
        return "$2" + f + "^2 + 3" + matrix + "$" + (d.weights.window > 0 ? ", twice for the pair that leaves" : "");
      return "$" + f + "^3/6 + 2" + f + "^2 + 3" + matrix + "$ (a factorisation per token)";
    case Kind::cg:
    case Kind::chebyshev:
      return "$" + std::to_string(s.steps + 2) + f + "^2 + 3" + matrix + "$";
    case Kind::apa: {
      const std::string p = std::to_string(s.batch);
      if (s.batch == 1) return "$" + f + " + 3" + matrix + "$";
      return "$" + p + "^2\\cdot (" + f + " + V) + " + p + "^3/6 + " + std::to_string(2LL * s.batch + 1) + matrix +
             "$";
    }
    default:
      return "$2" + f + "^2 + 3" + matrix + "$";
  }
}

}  // namespace ttr::derivation
