// What stands between a gradient and a step (momentum, metrics, penalties, mirror maps), and reweighted fits.
#include "recipe/combine.h"
#include "recipe/derive_parts.h"

namespace ttr::derivation {

using Class = Memory::Class;
using Loss = Extras::Loss;
using Metric = Solver::Metric;

bool has_momentum(const Solver& s) { return s.momentum.given() || s.momentum_auto; }
bool has_penalty(const Design& d) { return d.extras.l1.given() || d.extras.l2.given(); }

bool Symbols::bare_steps() const {
  const Solver& s = d.solver;
  return s.metric == Metric::none && s.step_list.empty() && !s.step_each && !has_momentum(s) && !has_penalty(d);
}

std::string momentum_factor(const Solver& s) {
  return s.momentum_auto ? "(j-1)/(j+2)" : number_or(s.momentum, "\\mathrm{momentum}_t");
}

std::string penalties(const Design& d, const std::string& unknown) {
  std::string out;
  if (d.extras.l1.given()) out += " + " + number_or(d.extras.l1, "\\lambda_1") + "\\lVert " + unknown + "\\rVert_1";
  if (d.extras.l2.given())
    out += " + \\tfrac12 " + number_or(d.extras.l2, "\\lambda_2") + "\\lVert " + unknown + "\\rVert^2";
  return out;
}

namespace {

/// Whose L and R these are, where the memory is not one matrix.
std::string matrix_by_matrix(const Memory& m) {
  if (m.kind == Class::constant) return ", $G$ being a matrix of one row";
  if (!is_network(m)) return "";
  const bool several = m.kind == Class::swiglu || (m.kind == Class::mlp && m.depth > 1);
  return (several ? " for each weight matrix by itself" : "") +
         std::string(m.bias ? ", a bias being a matrix of one row" : "");
}

}  // namespace

std::string rule_notes(const Symbols& y, const std::string& state) {
  const Solver& s = y.d.solver;
  const std::string eps = s.eps > 0 ? " + " + numeral(s.eps) : "";
  std::string out;
  switch (s.metric) {
    case Metric::none:
      break;
    case Metric::adagrad:
      out += "; $M = \\sqrt{A}" + eps + "$ entry by entry with $A \\leftarrow A + G\\odot G$, $G$ the gradient";
      break;
    case Metric::rmsprop:
      out += "; $M = \\sqrt{A}" + eps + "$ entry by entry with $A \\leftarrow " + numeral(s.metric_second) + " A + " +
             "(1-" + numeral(s.metric_second) + ") G\\odot G$, $G$ the gradient";
      break;
    case Metric::adam: {
      const std::string a = numeral(s.metric_first), b = numeral(s.metric_second);
      out += "; $M = \\sqrt{A/(1-" + b + "^j)}" + eps + "$ entry by entry with $A \\leftarrow " + b + " A + " +
             "(1-" + numeral(s.metric_second) + ") G\\odot G$, and the gradient $G$ is replaced by $Z/(1-" + a +
             "^j)$ with $Z \\leftarrow " + a + " Z + " + "(1-" + numeral(s.metric_first) + ")" +
             " G$, $j$ the number of the step";
      break;
    }
    case Metric::shampoo:
      out += "; $M^{-1} G = (L" + eps + " I)^{-1/4}\\, G\\, (R" + eps +
             " I)^{-1/4}$ with $L \\leftarrow L + G G^\\top$, $R \\leftarrow R + G^\\top G$" +
             matrix_by_matrix(y.d.memory);
      break;
    case Metric::lbfgs:
      out += "; $M^{-1}$ starts as the step times $I$ and is corrected by the newest " +
             std::to_string(s.metric_pairs) +
             " changes $(s, y)$ of point and gradient within the token, so that $M^{-1} y = s$ for the newest";
      break;
    case Metric::newton:
      out += "; $M = J^\\top \\Omega J + " + numeral(s.metric_first) +
             " I$, $J$ the derivative of the answers and $\\Omega$ the weights of the pairs; $M^{-1} J^\\top = "
             "J^\\top (\\Omega J J^\\top + " +
             numeral(s.metric_first) + " I)^{-1}$";
      break;
  }
  if (!s.step_list.empty()) {
    out += "; $\\eta_j = ";
    for (std::size_t i = 0; i < s.step_list.size(); ++i) out += (i > 0 ? ", " : "") + numeral(s.step_list[i]);
    out += "$";
  }
  if (has_penalty(y.d)) {
    const Extras& x = y.d.extras;
    const std::string h = s.metric == Metric::none ? "h" : "h_c";
    std::string prox = state;
    if (x.l1.given())
      prox = "\\operatorname{sign}(" + state + ")\\max(|" + state + "| - " + h + "\\," +
             number_or(x.l1, "\\lambda_1") + ", 0)";
    if (x.l2.given()) prox += "/(1 + " + h + "\\," + number_or(x.l2, "\\lambda_2") + ")";
    out += "; after each step $" + state + " \\leftarrow " + prox + "$ entry by entry, $" + h + "$ its step" +
           (s.metric == Metric::none ? "" : " over its part of $M$") +
           (has_momentum(s) ? ", and $Z$ is the way that was made" : "");
  }
  return out;
}

std::string mirror_map(const Solver& s, const std::string& index) {
  const std::string A = "A" + index;
  const std::string radius = s.radius == 1 ? "" : numeral(s.radius) + "\\,";
  switch (s.mirror) {
    case Solver::Mirror::softmax:
      return radius + "\\operatorname{softmax}(" + A + ")";
    case Solver::Mirror::exp:
      return radius + "e^{" + A + "}";
    case Solver::Mirror::sinh:
      return radius + "\\sinh " + A;
    case Solver::Mirror::none:
      break;
  }
  return A + "/\\lVert " + A + "\\rVert_{" + numeral(s.q_norm) + "}^{" + numeral(s.q_norm - 2) + "}";
}

std::string mirror_note(const Solver& s) {
  if (s.mirror == Solver::Mirror::none) return "";
  const std::string step = "each step minimises $\\eta\\, G\\cdot W + D(W, W_{t-1})$, $D$ ";
  return step + (s.mirror == Solver::Mirror::sinh
                     ? "the Bregman divergence of the hyperbolic entropy"
                     : std::string("the KL divergence") +
                           (s.mirror == Solver::Mirror::softmax
                                ? " of matrices whose entries are positive and sum to $" + numeral(s.radius) + "$"
                                : " of matrices with positive entries"));
}

std::string reweighting(const Symbols& y) {
  const std::string eps = "\\sqrt{e^2 + " + numeral(y.d.solver.eps) + "^2}";
  const std::string c = number_or(y.d.extras.loss_parameter, "c_i");
  switch (y.d.extras.loss) {
    case Loss::huber:
      return "$\\omega_i = \\min(1, " + c + "/\\lVert e_i\\rVert)$";
    case Loss::huber_coordinate:
      return "$\\omega_i = \\min(1, " + c + "/|e_i|)$ in every channel";
    case Loss::lp:
      return "$\\omega_i = " + c + "\\,|e_i|^{" + numeral(y.d.extras.loss_parameter.value - 2) +
             "}$ in every channel, $|e|$ taken as $" + eps + "$";
    case Loss::quantile:
      return "$\\omega_i = " + c + "/|e_i|$ where $e_i>0$, else $(1-" + c +
             ")/|e_i|$, in every channel, $|e|$ taken as $" + eps + "$";
    case Loss::logistic:
      return "$\\omega_i = \\tanh(y_i/2)/(2 y_i)$ and the value $(v_i - 1/2)/\\omega_i$ in every channel, "
             "$y_i$ the "
             "answer of the fit before (0 at first)";
    default:
      return "$\\omega_i = 1$";
  }
}

std::string reweighted_fits(const Symbols& y) {
  const std::string n = std::to_string(y.d.solver.steps);
  const bool first = y.d.extras.loss != Loss::logistic;
  return (y.causal ? "The pairs are kept; for each query " : "Every query sees all $N$ pairs of its call: ") + n +
         " weighted least-squares fits" +
         (first ? ", the first with the weights of the recipe and the others" : ", each") +
         " with those weights times $\\omega_i$ of the fit before: no fit makes the objective worse" +
         (y.d.extras.loss == Loss::lp && y.d.extras.loss_parameter.value > 2 ? " near the minimum." : ".");
}

std::string reweighted_cost(const Symbols& y, const std::string& pairs) {
  const Design& d = y.d;
  const bool channels = d.extras.loss != Loss::squared && d.extras.loss != Loss::huber;
  const std::string n = std::to_string(d.solver.steps) + (channels ? "V" : "");
  if (d.memory.kind == Class::kernel) return "$" + n + "\\," + pairs + "^3/6 + " + pairs + "^2 K/2$";
  if (d.memory.kind == Class::constant || (d.memory.kind == Class::local && d.memory.order == 0))
    return "$" + std::to_string(d.solver.steps) + "\\," + pairs + "\\,V" +
           (d.weights.near != Kernel::none ? " + " + pairs + "\\,K" : "") + "$";
  const std::string order = std::to_string(d.memory.order);
  const std::string m = d.memory.kind == Class::linear ? y.features()
                        : d.memory.order == 1          ? "K"
                                                       : "\\binom{K+" + order + "}{" + order + "}";
  return "$" + n + "\\,(" + pairs + "\\," + m + "^2/2 + " + m + "^3/6)$ (the fits of one query)";
}

}  // namespace ttr::derivation
