// Symbols of a derivation: weights, keys, losses and steps as formulas; then the objective and its gradient.
#include "recipe/combine.h"
#include "recipe/derive_parts.h"
#include "recipe/words.h"

namespace ttr::derivation {

using Class = Memory::Class;
using Feature = Memory::Feature;
using Kind = Solver::Kind;
using Per = Weights::Per;
using Importance = Weights::Importance;
using Loss = Extras::Loss;

namespace {

std::string network(const Memory& m) {
  std::string inner;
  if (m.kind == Class::swiglu) {
    inner = "W_1^\\top(\\operatorname{silu}(W_0^\\top x)\\odot W_2^\\top x)";
  } else if (m.kind == Class::layernorm_linear) {
    inner = m.bias ? "S^\\top x + b" : "S^\\top x";
  } else {
    constexpr const char* names[] = {"gelu", "gelu", "relu", "silu", "tanh"};
    const std::string act = names[static_cast<int>(m.activation)];
    inner = "x";
    for (int layer = 0; layer < m.depth; ++layer) {
      if (m.depth > 3 && layer == 1) {
        inner = "\\cdots\\,\\operatorname{" + act + "}(" + inner + ")";
        layer = m.depth - 1;
      } else if (layer > 0) {
        inner = "\\operatorname{" + act + "}(" + inner + ")";
      }
      const std::string l = std::to_string(layer);
      inner = "W_{" + l + "}^\\top " + inner + (m.bias ? " + b_{" + l + "}" : "");
    }
  }
  if (m.layernorm) inner = "\\operatorname{LN}(" + inner + ")";
  return m.residual ? "x + " + inner : inner;
}

}  // namespace

std::string numeral(double x) {
  const std::string text = shortest(x);
  return text.find('e') == std::string::npos ? text : "\\mathrm{" + text + "}";
}

std::string number_or(const Quantity& q, const std::string& symbol) {
  return q.is_constant() ? numeral(q.value) : symbol;
}

std::string transposed(const std::string& e) {
  int depth = 0;
  bool enclosed = e.front() == '(';  // by one pair of parentheses that holds all of it
  for (std::size_t i = 0; i + 1 < e.size(); ++i) {
    if (e[i] == '(') ++depth;
    if (e[i] == ')' && --depth == 0) enclosed = false;
  }
  const bool single = e.find(' ') == std::string::npos && e.find('(') == std::string::npos;
  return (enclosed || single ? e : "(" + e + ")") + "^\\top";
}

Symbols::Symbols(const Design& design, bool all_before) : d(design), causal(all_before) {}

std::string Symbols::key(const std::string& i) const {
  if (d.memory.kind == Class::constant) return "1";
  return d.memory.feature == Feature::identity ? "k_{" + i + "}" : "\\phi(k_{" + i + "})";
}

std::string Symbols::query() const {
  if (d.memory.kind == Class::constant) return "1";
  return d.memory.feature == Feature::identity ? "q_t" : "\\phi(q_t)";
}

std::string Symbols::features() const {
  switch (d.memory.feature) {
    case Feature::taylor2:
      return "(1 + K + K(K+1)/2)";
    case Feature::dpfp:
      return "(" + std::to_string(2 * d.memory.degree) + "K)";
    case Feature::polynomial:
      return "\\binom{K+" + std::to_string(d.memory.degree) + "}{" + std::to_string(d.memory.degree) + "}";
    case Feature::cosformer:
      return "(2K)";
    case Feature::rebased:
      return "(K(K+1)/2)";
    default:
      break;
  }
  if (!d.memory.has_matrix()) return "K";
  const bool twice = d.memory.feature == Feature::rfa || (d.memory.has_bias() && d.memory.feature != Feature::t2r);
  const int rows = d.memory.rows;
  return rows > 0 ? "(" + std::to_string(twice ? 2 * rows : rows) + ")" : twice ? "(2K)" : "K";
}

std::string Symbols::prediction(const std::string& i) const {
  switch (d.memory.kind) {
    case Class::linear:
      return "S^\\top " + key(i);
    case Class::constant:
      return "y";
    case Class::local:
      if (d.memory.order == 0) return "c";
      if (d.memory.order == 1) return "(c + B^\\top(k_{" + i + "} - q_t))";
      return "\\sum_{|\\alpha|\\le " + std::to_string(d.memory.order) + "} b_{\\alpha} (k_{" + i +
             "} - q_t)^{\\alpha}";
    case Class::kernel:
      return "f(k_{" + i + "})";
    case Class::vector:
      return "h";
    case Class::slots:
      return "m(k_{" + i + "})";
    default:
      return "m_W(k_{" + i + "})";
  }
}

std::string Symbols::loss(const std::string& i) const {
  const std::string v = "v_{" + i + "}", e = v + " - " + prediction(i);
  if (d.memory.reverse) return "\\tfrac12\\lVert k_{" + i + "} - S v_{" + i + "}\\rVert^2";
  switch (d.extras.loss) {
    case Loss::squared:
      return "\\tfrac12\\lVert " + e + "\\rVert^2";
    case Loss::dot:
      return "(-" + v + "^\\top " + prediction(i) + ")";
    case Loss::huber:
      return "\\rho_c(\\lVert " + e + "\\rVert)";
    case Loss::huber_coordinate:
      return "\\sum_j \\rho_c((" + e + ")_j)";
    case Loss::lp: {
      const std::string p = numeral(d.extras.loss_parameter.value);
      return "\\sum_j |" + e + "|_j^{" + p + "}";
    }
    case Loss::insensitive:
      return "\\sum_j \\max(|" + e + "|_j - " + numeral(d.extras.loss_parameter.value) + ", 0)";
    case Loss::quantile:
      return "\\sum_j \\rho((" + e + ")_j)";
    case Loss::logistic:
      return "\\sum_j (\\log(1 + e^{y_j}) - v_{" + i + "j} y_j)_{y = " + prediction(i) + "}";
    case Loss::cross_entropy:
      return "(\\log\\sum_j e^{y_j} - " + v + "^\\top y)_{y = " + prediction(i) + "}";
  }
  return {};
}

std::string Symbols::error(const std::string& i, const std::string& predicted) const {
  const std::string v = "v_{" + i + "}", rest = predicted == "0" ? v : v + " - " + predicted, e = "(" + rest + ")";
  const std::string c = number_or(d.extras.loss_parameter, "c_{" + i + "}");
  switch (d.extras.loss) {
    case Loss::squared:
      return predicted == "0" ? v : e;
    case Loss::dot:
      return v;
    case Loss::huber:
      return e + "\\,\\min(1, " + c + "/\\lVert " + rest + "\\rVert)";
    case Loss::huber_coordinate:
      return "\\operatorname{clip}(" + rest + ", -" + c + ", " + c + ")";
    case Loss::lp:
      return numeral(d.extras.loss_parameter.value) + "\\operatorname{sign}" + e + "\\odot|" + rest + "|^{" +
             numeral(d.extras.loss_parameter.value - 1) + "}";
    case Loss::insensitive:
      return "\\operatorname{sign}" + e + "\\,[|" + rest + "| > " + c + "]";
    case Loss::quantile:
      return "(" + c + " - [" + rest + " < 0])";
    case Loss::logistic:
      return predicted == "0" ? "(" + v + " - 1/2)" : "(" + v + " - \\operatorname{sigmoid}(" + predicted + "))";
    case Loss::cross_entropy:
      return predicted == "0" ? "(" + v + " - 1/V)" : "(" + v + " - \\operatorname{softmax}(" + predicted + "))";
  }
  return {};
}

std::string Symbols::importance(const std::string& i) const {
  switch (d.weights.importance) {
    case Importance::one:
      return "";
    case Importance::beta:
      return number_or(d.weights.beta, "\\beta_{" + i + "}") + "\\,";
    case Importance::exponential:
      return "e^{\\iota_{" + i + "}}\\,";
    case Importance::trapezoid:
      return "\\omega_{" + i + "}\\,";
  }
  return {};
}

std::string Symbols::faded(const std::string& state) const {
  const Weights& w = d.weights;
  if (w.fade == Weights::Fade::equal) return state;
  if (w.fade == Weights::Fade::decay)
    return (w.decay.is_constant() ? numeral(w.decay.value) : "e^{g}") + "\\, " + state;
  if (w.steady > 0) {
    Design gated = d;
    gated.weights.steady = 0;
    return numeral(w.steady) + "\\, " + Symbols(gated, causal).faded(state);
  }
  // The factor of a gate: e^{gk_t}, turned by a phase, or the input ak_t itself.
  const auto factor = [&](const std::string& of) {
    if (w.signed_factors) return of.empty() ? std::string("a_t") : "\\mathrm{a" + of + "}_t";
    return "e^{" + (of.empty() ? std::string("g_t") : "\\mathrm{g" + of + "}_t") +
           (w.complex ? " + \\mathrm{i}\\theta_t" : "") + "}";
  };
  const bool vector = d.memory.kind == Class::vector || d.memory.kind == Class::constant;
  switch (w.per) {
    case Per::key:
      return "\\operatorname{diag}(" + factor("k") + ") " + state;
    case Per::value:
      return vector ? factor("v") + "\\odot " + state : state + " \\operatorname{diag}(" + factor("v") + ")";
    case Per::key_value:
      return "\\operatorname{diag}(" + factor("k") + ") " + state + " \\operatorname{diag}(" + factor("v") + ")";
    case Per::full:
      return factor("kv") + "\\odot " + state;
    default:
      return factor("") + "\\, " + state;
  }
}

std::string Symbols::range() const {
  const int n = d.weights.reach();
  if (!causal) return n > 0 ? "i>N-" + std::to_string(n) : "i";
  return n > 0 ? "t-" + std::to_string(n) + "<i\\le t" : "i\\le t";
}

std::string Symbols::now(const std::string& sum) const { return causal ? sum + "_t" : sum; }

std::string Symbols::ridge() const {
  const Solver& s = d.solver;
  if (!has_ridge()) return "";
  std::string value = number_or(s.ridge, s.ridge_per == Solver::RidgePer::token ? "\\lambda_t" : "\\lambda");
  if (s.ridge_per == Solver::RidgePer::key) value = "\\operatorname{diag}(\\lambda)";
  switch (s.ridge_kind) {
    case Solver::RidgeKind::relative:
      return value + "\\sum_i w_i(t)";
    case Solver::RidgeKind::frobenius:
      return value + "\\lVert " + now("H") + "\\rVert_F";
    case Solver::RidgeKind::fading:
      return fades() ? value + "\\prod_{j\\le t} a_j" : value;
    case Solver::RidgeKind::absolute:
      break;
  }
  return value;
}

std::string Symbols::ridge_matrix() const {
  return ridge() + (d.solver.ridge_per == Solver::RidgePer::key ? "" : "\\, I");
}

std::string Symbols::step(const std::string& k) const {
  const Solver& s = d.solver;
  const std::string square =
      d.memory.kind == Class::kernel ? "\\kappa(" + k + "," + k + ")" : "\\lVert " + k + "\\rVert^2";
  switch (s.rule) {
    case Solver::Rule::nlms: {
      const std::string mu = s.step.given() ? number_or(s.step, "\\mu_t") : "1";
      return mu + "/" + (s.eps > 0 ? "(" + numeral(s.eps) + " + " + square + ")" : square);
    }
    case Solver::Rule::longhorn: {
      const std::string delta = number_or(s.step, "\\delta_t");
      return delta + "/(1 + " + delta + square + ")";
    }
    case Solver::Rule::flow:
      return "(1 - e^{-" + number_or(s.step, "\\beta_t") + square + "})/" + square;
    case Solver::Rule::automatic:
      return "1/\\sum_i w_i(t)\\lVert " + key("i") + "\\rVert^2";
    case Solver::Rule::plain:
      break;
  }
  if (!s.step_list.empty()) return "\\eta_j";
  if (s.step_each) return "\\beta_{t,j}";
  if (!s.step.given()) return "1";
  const char* symbol = s.kind == Kind::apa ? "\\mu_t" : s.kind == Kind::minibatch ? "\\mathrm{rate}_t" : "\\beta_t";
  return number_or(s.step, symbol);
}

bool Symbols::fades() const {
  return d.weights.fade != Weights::Fade::equal || d.weights.power.given() || d.weights.given > 0;
}
bool Symbols::by_query() const {
  const Weights& w = d.weights;
  if (w.near != Kernel::none) return true;
  if (sees_newest_only(d)) return false;
  if (!causal) return w.given > 0;  // ages are counted from the last pair, for every query
  const bool sums_by_level = d.memory.kind == Class::linear && one_step();
  return w.power.given() || w.given > 0 || (w.levels && !sums_by_level);
}
bool Symbols::one_step() const { return d.solver.kind == Kind::gd && d.solver.steps == 1 && bare_steps(); }

bool Symbols::affine() const {
  const Solver& s = d.solver;
  const bool linear_class = d.memory.kind == Class::linear || d.memory.kind == Class::constant;
  return linear_class && (d.extras.loss == Loss::squared || d.extras.loss == Loss::dot) && !s.muon && !s.row_norm &&
         s.q_norm == 0 && s.mirror == Solver::Mirror::none && s.metric == Solver::Metric::none && !has_penalty(d);
}

bool Symbols::has_ridge() const {
  // The constant term is not shrunk, and a mean is nothing else.
  if (d.memory.kind == Class::constant || (d.memory.kind == Class::local && d.memory.order == 0)) return false;
  return d.solver.ridge.given() && !(d.solver.ridge.is_constant() && d.solver.ridge.value == 0);
}

bool Symbols::rank_one_inverse() const {
  const Solver& s = d.solver;
  if (!has_ridge()) return true;
  const bool initial =
      s.ridge_kind == Solver::RidgeKind::fading || (!fades() && s.ridge_kind == Solver::RidgeKind::absolute);
  return initial && s.ridge_per != Solver::RidgePer::token;
}

bool Symbols::closed_sums() const {
  return (d.memory.kind == Class::linear || d.memory.kind == Class::constant) && !by_query() &&
         (d.extras.loss == Loss::squared || d.extras.loss == Loss::dot);
}

namespace {

std::string where(const Symbols& y) {
  const Design& d = y.d;
  const Weights& w = d.weights;
  std::string out;
  const auto say = [&out](const std::string& text) { out += (out.empty() ? ", with " : "; ") + text; };
  if (!sees_newest_only(d)) {
    if (d.memory.kind == Class::slots) say("a gate and a write strength per slot");
    else if (y.weight() != "1") say("$w_i(t) = " + y.weight() + "$");
    if (w.near != Kernel::none) out += kernel_note(w.near, w.near_scale, w.bandwidth);
    for (const std::string& note : age_notes(w)) say(note);
    if (w.fade == Weights::Fade::gate && d.memory.kind != Class::slots) {
      const auto factor = [&](const std::string& of) {
        return w.signed_factors ? "\\mathrm{a" + of + "}_j" : "e^{\\mathrm{g" + of + "}_j}";
      };
      if (w.per == Per::token) say(w.signed_factors ? "$a_j$ factors of either sign" : "$a_j = e^{g_j}$");
      if (w.per == Per::key) say("one $a_j = " + factor("k") + "$ per key channel");
      if (w.per == Per::value) say("one $a_j = " + factor("v") + "$ per value channel");
      if (w.per == Per::key_value) say("$a_j = " + factor("k") + " (" + factor("v") + ")^\\top$ per entry of $S$");
      if (w.per == Per::full) say("one $a_j = " + factor("kv") + "$ per entry of $S$");
      if (w.complex) say("the factors turned by a phase $e^{\\mathrm{i}\\theta_j}$");
    }
    if (w.importance == Importance::exponential) say("$\\iota_i$ the log importance");
    if (w.importance == Importance::trapezoid)
      say("$\\omega_t = \\lambda_t \\Delta_t$ and $\\omega_i = \\lambda_i \\Delta_i + (1-\\lambda_{i+1}) "
          "\\Delta_{i+1}$ for $i<t$, "
          "$\\lambda = \\operatorname{sigmoid}(\\mathrm{trap})$, $\\Delta = \\mathrm{dt}$");
    if (w.transport) say("$H_j = I - b_j u_j u_j^\\top$ Householder maps with vectors $u$ and steps $b$");
    if (w.levels) say("$\\ell(t,i)$ the level of the age of pair $i$ in a binary hierarchy");
  }
  if (d.memory.kind == Class::kernel)
    say("$\\kappa(x,y) = " +
        similarity(d.memory.kernel, d.memory.kernel_scale, d.memory.bandwidth, d.memory.degree, "x", "y") + "$" +
        kernel_note(d.memory.kernel, d.memory.kernel_scale, d.memory.bandwidth));
  if (is_network(d.memory)) say("$m_W(x) = " + network(d.memory) + "$");
  if (d.memory.feature != Feature::identity) {
    constexpr const char* names[] = {"identity",
                                     "elu + 1",
                                     "ReLU",
                                     "SiLU",
                                     "second-order Taylor",
                                     "monomial",
                                     "DPFP",
                                     "cosFormer",
                                     "T2R",
                                     "Hedgehog",
                                     "Hedgehog (exp)",
                                     "Hedgehog (softmax of 2z)",
                                     "FAVOR+",
                                     "FAVOR+ (ReLU)",
                                     "random Fourier",
                                     "DiJiang",
                                     "ReBased"};
    say("$\\phi$ the " + std::string(names[static_cast<int>(d.memory.feature)]) + " feature map");
  }
  if (d.extras.loss == Loss::huber || d.extras.loss == Loss::huber_coordinate)
    say("$\\rho_c(e) = e^2/2$ for $|e|\\le c$, else $c|e| - c^2/2$");
  if (d.extras.loss == Loss::quantile) {
    const std::string tau = numeral(d.extras.loss_parameter.value);
    say("$\\rho(e) = \\max(" + tau + " e, (" + tau + "-1) e)$");
  }
  if (const std::string note = mirror_note(d.solver); !note.empty()) say(note);
  if (d.extras.keys != Extras::Keys::raw)
    say(d.extras.keys == Extras::Keys::unit ? "$q$ and $k$ scaled to length 1"
                                            : "$q$ and $k$ scaled to length $\\sqrt{K}$");
  return out;
}

std::string unknown(const Symbols& y) {
  switch (y.d.memory.kind) {
    case Class::linear:
      return "S";
    case Class::constant:
      return "y";
    case Class::local:
      return y.d.memory.order == 0 ? "c" : y.d.memory.order == 1 ? "c, B" : "b";
    case Class::kernel:
      return "f";
    case Class::vector:
      return "h";
    default:
      return "W";
  }
}

/// What one step of a per-pair rule minimises: the loss of the pair, or, for the rules that are solutions of a problem of
/// their own, that problem (Wang, Shi, Fox, arXiv 2501.12352, Eq. 7, 30 and 32).
std::string newest_pair(const Symbols& y) {
  const Design& d = y.d;
  const Solver& s = d.solver;
  const std::string u = unknown(y), loss = y.loss("t");
  const std::string leak = s.decay_kind == Solver::Decay::leak
                               ? " + \\tfrac12 " + number_or(s.decay, "\\lambda_t") + "\\lVert " + u + "\\rVert^2"
                               : "";
  const bool plain_pair = d.extras.loss == Loss::squared && leak.empty() && !d.memory.reverse && s.pairs == 1 &&
                          !s.momentum.given() && !s.feedback && !s.precondition &&
                          s.decay_kind != Solver::Decay::shrink && s.steps == 1 && s.metric == Solver::Metric::none &&
                          s.mirror == Solver::Mirror::none && !has_penalty(d);
  if (!plain_pair ||
      (s.rule != Solver::Rule::longhorn && s.rule != Solver::Rule::nlms && s.rule != Solver::Rule::flow))
    return "the newest pair: $\\min_{" + u + "} " + loss + leak + penalties(d, u) + "$";
  const std::string start = s.decay_kind == Solver::Decay::before ? "\\tilde{" + u + "}" : u + "_{t-1}";
  const std::string distance = "\\tfrac12\\lVert " + u + " - " + start + "\\rVert^2";
  if (s.rule == Solver::Rule::flow)
    return "the newest pair: $\\min_{" + u + "} " + loss + "$, followed down its gradient, $\\mathrm{d}" + u +
           "/\\mathrm{d}s = -\\nabla$, for the time $" + number_or(s.step, "\\beta_t") + "$";
  if (s.rule == Solver::Rule::longhorn)
    return "a proximal problem: $\\min_{" + u + "} " + distance + " + " + number_or(s.step, "\\delta_t") + "\\, " +
           loss + "$, solved exactly";
  const std::string mu = s.step.given() ? number_or(s.step, "\\mu_t") : "1";
  const std::string share = mu == "1" ? "" : "; the step goes $" + mu + "$ of the way there";
  if (s.eps > 0)
    return "a proximal problem: $\\min_{" + u + "} " + distance + " + " + loss + "/" + numeral(s.eps) + "$" + share;
  return "a constrained problem: $\\min_{" + u + "} " + distance + "$ subject to $" + y.prediction("t") +
         " = v_t$, the projection on what fits the pair" + share;
}

}  // namespace

std::string objective(const Symbols& y) {
  const Design& d = y.d;
  if (d.memory.kind == Class::slots)
    return "Two regressions that share the slots $j$: $\\min_{Km,Vm} -\\sum_{i\\le t} \\sum_j w_{ij}(t)\\, "
           "(k_i^\\top Km_j + v_i^\\top "
           "Vm_j)$ one gradient step from zero, $w_{ij}(t) = s_{ij} \\prod_{l=i+1}^{t} " +
           std::string(y.fades() ? "e^{\\mathrm{gs}_{lj}}" : "1") + "$" + where(y) + ".";
  if (sees_newest_only(d)) {
    std::string what =
        d.solver.kind == Kind::apa
            ? "the newest $p=" + std::to_string(d.solver.batch) +
                  "$ pairs: $\\min_S \\tfrac12\\lVert S - S_{t-1}\\rVert^2" +
                  (d.solver.eps > 0 ? " + \\sum_i " + y.loss("i") + "/" + numeral(d.solver.eps) + "$"
                                    : "$ subject to $S^\\top " + y.key("i") + " = v_i$")
        : d.solver.kind == Kind::minibatch
            ? "the block of $b=" + std::to_string(d.solver.batch) + "$ tokens that holds $t$: $\\min_{" + unknown(y) +
                  "} \\sum_i " + y.loss("i") + penalties(d, unknown(y)) + "$"
        : d.solver.kind == Kind::kalman ? "the posterior of a drifting $S$: $\\min_S "
                                          "\\tfrac12\\operatorname{tr}((S-S_{t-1})^\\top P^{-1} (S-S_{t-1})) + "
                                          "\\lVert v_t - S^\\top " +
                                              y.key("t") + "\\rVert^2/(2r_t)$"
                                        : newest_pair(y);
    return "At token $t$, " + what + where(y) + ".";
  }
  std::string ridge = y.ridge();
  if (!ridge.empty()) {
    if (d.solver.ridge_per == Solver::RidgePer::key)
      ridge = " + \\tfrac12\\operatorname{tr}(S^\\top " + ridge + "\\, S)";
    else
      ridge = " + \\tfrac12 " + ridge + "\\lVert " +
              (d.memory.kind == Class::local ? d.memory.order == 1 ? "B" : "b_{\\ne 0}" : unknown(y)) + "\\rVert^2";
  }
  const std::string weight = y.w("i");
  return "$\\min_{" + unknown(y) + "} \\sum_{" + y.range() + "} " + weight + y.loss("i") + ridge +
         penalties(d, unknown(y)) + "$" + where(y) + ".";
}

std::string gradient(const Symbols& y) {
  const Design& d = y.d;
  const Solver& s = d.solver;
  const std::string weight = sees_newest_only(d) ? "" : y.w("i");
  const std::string sum = "\\sum_{" + y.range() + "} " + weight;
  const std::string x = d.memory.kind == Class::kernel && s.kind == Kind::irls  ? "\\kappa(k_i,\\cdot)"
                        : d.memory.kind == Class::local && s.kind == Kind::irls ? "z_i"
                                                                                : y.key("i");
  const std::string ridge = y.has_ridge() ? " + " + y.ridge_matrix() : "", H = y.now("H"), F = y.now("F");
  if (s.kind == Kind::irls) {
    return "The minimum is that of a least-squares fit with the weights " +
           (weight.empty() ? std::string("$\\omega_i$") : "$w_i(t)\\, \\omega_i$") + ": $\\sum_i " + weight +
           "\\omega_i\\, " + (x == "1" ? "" : x + " ") + "e_i^\\top" +
           (y.has_ridge() ? " = " + y.ridge() + "\\, m" : " = 0") + "$ with " + reweighting(y) + ".";
  }
  const std::string hf = "$" + H + " = " + sum + x + " " + x + "^\\top$, $" + F + " = " + sum + x + " v_i^\\top$";
  switch (d.memory.kind) {
    case Class::slots:
      return "$\\nabla_{Km} = -\\sum_i k_i w_i(t)^\\top$ and $\\nabla_{Vm} = -\\sum_i w_i(t) v_i^\\top$: one step "
             "from zero stores both sums.";
    case Class::vector:
      return "$\\nabla_h$ at $h=0$ is $-" + sum + "v_i$: one step from zero stores the weighted sum of the values.";
    case Class::kernel:
      if (s.kind == Kind::sgd)
        return "$\\nabla_f = -e_t\\, \\kappa(k_t,\\cdot)$ with $e_t = " + y.error("t", "f_{t-1}(k_t)") + "$.";
      if (s.kind == Kind::gd)
        return "$\\nabla_f = -" + sum + "e_i\\, \\kappa(k_i,\\cdot)$ with $e_i = " + y.error("i", "f(k_i)") + "$.";
      return "By the representer theorem $f = \\sum_i c_i\\, \\kappa(k_i,\\cdot)$ with $(G" +
             (y.ridge().empty()
                  ? std::string()
                  : " + " + y.ridge() + (y.weight() == "1" ? "\\, I" : "\\, \\operatorname{diag}(w)^{-1}")) +
             ")\\, C = V$, $G_{ij} = \\kappa(k_i,k_j)$.";
    case Class::local:
      if (s.kind == Kind::given)
        return "The normal equations would give $r_t = \\operatorname{Cov}_p(k,k)^{-1}(E_p[k] - q_t)$, $p$ the "
               "weights scaled to sum 1; here $r_t$ is an input instead.";
      if (s.kind == Kind::gd)
        return "$\\nabla_b = -\\sum_i w_i(t)\\, z_i (v_i - b^\\top z_i)^\\top$, $z_i$ the monomials of $k_i - q_t$ "
               "up to "
               "degree " +
               std::to_string(d.memory.order) + ".";
      if (d.memory.order == 0) return "$(\\sum_i w_i)\\, c = \\sum_i w_i v_i$.";
      return "Normal equations in the features $z_i$ (monomials of $k_i - q_t$ up to degree " +
             std::to_string(d.memory.order) + "): $(\\sum_i w_i z_i z_i^\\top" +
             (y.ridge().empty() ? "" : " + " + y.ridge() + " \\operatorname{diag}(0,1,\\ldots,1)") +
             ")\\, b = \\sum_i w_i z_i v_i^\\top$" + (y.ridge().empty() ? "." : "; the constant term is not shrunk.");
    case Class::constant:
      if (s.kind == Kind::sgd && !y.by_query()) return "$\\nabla_y = -" + y.error("t", "y") + "$.";
      if (is_deltaformer(d))
        return "The gradient at token $t$ is $-(v_t - \\tilde{v}_t)$ with $\\tilde{v}_t$ the weighted mean of what "
               "is stored before token $t$.";
      if (s.kind == Kind::gd) return "$\\nabla_y = -" + sum + y.error("i", "y") + "$.";
      return "Normal equation: $(\\sum_{" + y.range() + "} " + (weight.empty() ? "1" : "w_i(t)") +
             (y.ridge().empty() ? "" : " + " + y.ridge()) + ")\\, y = " + sum + "v_i$.";
    case Class::linear:
      break;
    default:
      return "$\\nabla_W = -" + (sees_newest_only(d) ? std::string() : sum) + "(\\partial m_W(k_{" +
             (sees_newest_only(d) ? "t" : "i") + "})/\\partial W)^\\top\\, " +
             y.error(sees_newest_only(d) ? "t" : "i", y.prediction(sees_newest_only(d) ? "t" : "i")) +
             "$, by back-propagation through " +
             (d.memory.kind == Class::swiglu             ? std::string("three matrices")
              : d.memory.kind == Class::layernorm_linear ? "the norm and one matrix"
                                                         : std::to_string(d.memory.depth) + " matrices") +
             ".";
  }
  if (s.kind == Kind::kalman)
    return "$P^{-1}(S - S_{t-1}) = " + y.key("t") + "(v_t - S^\\top " + y.key("t") + ")^\\top/r_t$.";
  if (s.kind == Kind::apa)
    return "Multipliers: $(K_w K_w^\\top" + std::string(s.eps > 0 ? " + " + numeral(s.eps) + " I" : "") +
           ")\\, L = V_w - K_w S_{t-1}$, $S = S_{t-1} + K_w^\\top L$; the rows of $K_w$, $V_w$ are the newest pairs.";
  if (sees_newest_only(d)) {
    if (d.memory.reverse) return "$\\nabla_S = -(k_t - S v_t)\\, v_t^\\top$.";
    if (s.dplr)
      return "The rule generalises $\\nabla_S = -k_t(v_t - S^\\top k_t)^\\top$: read key $a_t$, erase key $b_t$, "
             "write key $k_t$.";
    if (s.split)
      return "$-k_t\\,(\\mathrm{write}_t\\odot v_t - S^\\top(\\mathrm{erase}_t\\odot k_t))^\\top$ in place of the "
             "gradient.";
    const std::string leak =
        s.decay_kind == Solver::Decay::leak ? " + " + number_or(s.decay, "\\lambda_t") + "\\, S" : "";
    const std::string read = s.feedback ? "p_t" : y.key("t");
    const std::string implicit = s.rule == Solver::Rule::longhorn && d.extras.loss == Loss::squared &&
                                         s.decay_kind == Solver::Decay::none && !s.momentum.given() &&
                                         !s.precondition && s.steps == 1
                                     ? " At the minimum $S - S_{t-1} = " + number_or(s.step, "\\delta_t") + "\\, " +
                                           y.key("t") + "(v_t - S^\\top " + y.key("t") + ")^\\top$: an implicit step."
                                     : "";
    return "$\\nabla_S = -" + y.key("t") + "\\, " + transposed(y.error("t", "S^\\top " + read)) + leak + "$" +
           (s.feedback ? ", with the residual read by $p_t$." : ".") + implicit;
  }
  if (s.kind == Kind::exact || s.kind == Kind::cg || s.kind == Kind::chebyshev)
    return "Normal equations $" + (ridge.empty() ? H + " S" : "(" + H + ridge + ")\\, S") + " = " + F + "$, " + hf +
           ".";
  if (d.extras.loss == Loss::dot)
    return "$\\nabla_S = -" + F + "$ whatever $S$, $" + F + " = " + sum + x + " v_i^\\top$.";
  if (d.extras.loss != Loss::squared)
    return "$\\nabla_S = -" + sum + x + "\\, " + transposed(y.error("i", "S^\\top " + x)) + "$.";
  if (y.one_step())
    return "$\\nabla_S = -" + sum + x + "(v_i - S^\\top " + x + ")^\\top$; at $S = 0$ it is $-" + F + " = -" + sum +
           x + " v_i^\\top$.";
  return "$\\nabla_S = " + H + " S - " + F + "$, " + hf + ".";
}

}  // namespace ttr::derivation
