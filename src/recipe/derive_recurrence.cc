// How the state changes with one token, and what is read from it.
#include "recipe/combine.h"
#include "recipe/derive_parts.h"
#include "recipe/words.h"

namespace ttr::derivation {

using Class = Memory::Class;
using Kind = Solver::Kind;
using Importance = Weights::Importance;
using Loss = Extras::Loss;

namespace {

std::string times(const std::string& factor) { return factor == "1" || factor.empty() ? "" : factor + "\\, "; }

/// "S_t = a_t S_{t-1} + beta_t x_t y_t', less what leaves the window".
std::string sum_recurrence(const Symbols& y, const std::string& sum, const std::string& product,
                           const std::string& oldest_product, const std::string& factor = "") {
  const Weights& w = y.d.weights;
  std::string out = sum + "_t = " + y.faded(sum + "_{t-1}");
  if (w.importance == Importance::trapezoid) {
    const std::string taps =
        "(1-\\lambda_t)\\Delta_t e^{g_t}\\, k_{t-1} v_{t-1}^\\top + \\lambda_t\\Delta_t\\, k_t v_t^\\top";
    return out + " + " + (factor.empty() ? taps : factor + "(" + taps + ")");
  }
  const auto weighed = [&product](const std::string& weight, const std::string& what) {
    return product == "1" && !weight.empty() ? weight : weight + what;
  };
  out += " + " + weighed(factor + y.importance("t"), product);
  if (w.window > 0) {
    const std::string n = std::to_string(w.window);
    out += " - " + weighed(factor + (y.fades() ? "w_{t-" + n + "}(t)\\, " : y.importance("t-" + n)), oldest_product);
  }
  return out;
}

std::string hf_recurrences(const Symbols& y) {
  const std::string n = std::to_string(y.d.weights.window), x = y.key("t"), old = y.key("t-" + n);
  return "$" + sum_recurrence(y, "H", x + " " + x + "^\\top", old + " " + old + "^\\top") + "$ and $" +
         sum_recurrence(y, "F", x + " v_t^\\top", old + " v_{t-" + n + "}^\\top") + "$";
}

std::string batch_step(const Symbols& y) {
  const Design& d = y.d;
  const Solver& s = d.solver;
  const std::string n = std::to_string(d.weights.window), x = y.key("t"), old = y.key("t-" + n);
  // At S = 0 the residual is the value, so every loss leaves a sum over pairs.
  const std::string e = d.extras.loss == Loss::squared || d.extras.loss == Loss::dot ? "v_t" : "e_t";
  const std::string e_old = e == "v_t" ? "v_{t-" + n + "}" : "e_{t-" + n + "}";
  std::string note = e == "e_t" ? ", $e_t = " + y.error("t", "0") + "$" : "";
  if (d.weights.complex) note += "; $S$ is complex";
  const std::string step = y.step(x);
  const bool scale_read = s.step.is_input() || s.rule == Solver::Rule::automatic;
  if (d.weights.levels)
    return "One such sum per level, $S_t^{(\\ell)} = " + y.faded("S_{t-1}^{(\\ell)}") + "$, the new pair $" +
           (scale_read ? "" : times(step)) + y.importance("t") + x +
           " v_t^\\top$ on level 0; when bit $\\ell$ of $t$ turns on, the levels below it are added up into level "
           "$\\ell+1$, as a binary counter carries" +
           (scale_read ? "; what is read is multiplied by $" + step + "$." : ".");
  const std::string name = scale_read ? "F" : "S";
  std::string out =
      "One step from zero gives $" + name + "_t = \\sum_i " + y.w("i") + (scale_read ? "" : times(step)) +
      y.key("i") + (e == "v_t" ? " v_i^\\top" : " e_i^\\top") + "$, hence $" +
      sum_recurrence(y, name, x + " " + e + "^\\top", old + " " + e_old + "^\\top", scale_read ? "" : times(step)) +
      "$" + note;
  if (s.rule == Solver::Rule::automatic)
    out += ", $S_t = F_t/h_t$ with $" +
           sum_recurrence(y, "h", "\\lVert " + x + "\\rVert^2", "\\lVert " + old + "\\rVert^2") + "$";
  else if (scale_read) out += ", $S_t = " + step + " F_t$";
  return out + ".";
}

std::string step_symbol(const Symbols& y) {
  const std::string step = y.step(y.key("i"));
  return step == "1" ? "" : "\\eta ";
}

std::string step_note(const Symbols& y) {
  const std::string step = y.step(y.key("i"));
  return step == "1" ? "" : ", $\\eta = " + step + "$";
}

/// One of several steps within a token.
std::string inner_rule(const Symbols& y, const std::string& state, const std::string& negative_gradient,
                       const std::string& step) {
  const Solver& s = y.d.solver;
  const bool lbfgs = s.metric == Solver::Metric::lbfgs;  // the step is part of its metric
  const std::string metric = s.metric == Solver::Metric::none ? "" : "M^{-1} ";
  const std::string move = (lbfgs ? "" : times(step)) + metric + negative_gradient;
  std::string out = has_momentum(s) ? "$Z \\leftarrow " + momentum_factor(s) + "\\, Z + " + move + "$, $" + state +
                                          " \\leftarrow " + state + " + Z$"
                                    : "$" + state + " \\leftarrow " + state + " + " + move + "$";
  if (s.momentum_auto) out += " in iteration $j$";
  if (lbfgs && step != "1") out += ", the step being $" + step + "$";
  if (s.nesterov) out += ", the gradient taken at $" + state + "$ moved on by the momentum times $Z$";
  return out + rule_notes(y, state);
}

std::string many_batch_steps(const Symbols& y) {
  const Design& d = y.d;
  const std::string n = std::to_string(d.solver.steps), eta = step_symbol(y), one = eta.empty() ? "" : "\\eta ";
  const std::string from = d.solver.kind == Kind::gd ? "0" : "S_{t-1}";
  if (!y.bare_steps()) {
    const std::string grad = !y.closed_sums()             ? "(-\\nabla_S(S))"
                             : d.extras.loss == Loss::dot ? "F_t"
                                                          : "(F_t - H_t S)";
    return (y.closed_sums() ? hf_recurrences(y) + "; from" : "The pairs are kept; from") + " $S = " + from + "$, " +
           n + (d.solver.steps == 1 ? " time" : " times") + ": " + inner_rule(y, "S", grad, y.step(y.key("i"))) + ".";
  }
  if (!y.closed_sums())
    return "The pairs are kept. From $S^{(0)} = " + from + "$, " + n + " times $S^{(j+1)} = S^{(j)} + " + one +
           "\\sum_i " + y.w("i") + y.key("i") +
           " e_i^\\top$ with $e_i = " + y.error("i", "S^{(j)\\top} " + y.key("i")) + "$" + step_note(y) +
           "; $S_t = S^{(" + n + ")}$.";
  if (d.extras.loss == Loss::dot)
    return hf_recurrences(y) +
           "; the gradient is $-F_t$ at every step, so $S_t = " + (from == "0" ? "" : from + " + ") + n + one +
           " F_t$" + step_note(y) + ".";
  std::string out =
      hf_recurrences(y) + "; from $S^{(0)} = " + from + "$, " + n + " times $S^{(j+1)} = S^{(j)} + " + one +
      "(F_t - H_t S^{(j)})$, that is $S_t = " + (from == "0" ? "" : "(I - " + one + "H_t)^{" + n + "} S_{t-1} + ") +
      one + "\\sum_{j<" + n + "} (I - " + one + "H_t)^j F_t$" + step_note(y);
  if (from == "0")
    out += "; as the number of steps grows this tends to the exact $H_t^{-1} F_t$ if $" + one +
           "H_t$ has eigenvalues below 2";
  return out + ".";
}

std::string decayed(const Symbols& y, const std::string& state) {
  const Solver& s = y.d.solver;
  if (s.decay_kind != Solver::Decay::before) return state;
  if (s.decay.is_constant()) return numeral(1 - s.decay.value) + "\\, " + state;
  if (s.decay_per == Weights::Per::key) return "\\operatorname{diag}(e^{\\mathrm{gk}_t}) " + state;
  if (s.decay_per == Weights::Per::value) return state + " \\operatorname{diag}(e^{\\mathrm{gv}_t})";
  return "e^{g_t}\\, " + state;
}

/// Whether a token takes several steps, which are written as assignments to one state.
bool several(const Symbols& y) { return y.d.solver.steps > 1; }

/// Where the gradient of a network or of a batch objective is taken.
std::string start(const Symbols& y, const std::string& answer) {
  const Solver& s = y.d.solver;
  if (several(y)) return answer;
  return s.decay_kind == Solver::Decay::before && s.q_norm == 0 && s.mirror == Solver::Mirror::none
             ? "\\tilde{" + answer + "}"
             : answer + "_{t-1}";
}

/// The update of a descent method around a gradient step: decay, momentum, Muon, norms; the gradient is that at start().
/// Several steps: a decay comes once, in front of them; all else with every step.
std::string update_rule(const Symbols& y, const std::string& answer, const std::string& negative_gradient,
                        const std::string& step) {
  const Solver& s = y.d.solver;
  const std::string lam = number_or(s.decay, "\\lambda_t");
  const bool mirrored = s.q_norm > 0 || s.mirror != Solver::Mirror::none, many = several(y);
  const std::string state = mirrored ? "A" : answer, before = state + "_{t-1}", decays = "\\tilde{" + state + "}";
  const bool decay = s.decay_kind == Solver::Decay::before, leak = s.decay_kind == Solver::Decay::leak;
  const std::string old = many ? state : (decay ? decays : before), index = many ? "" : "_t";
  const std::string becomes = many ? " \\leftarrow " : " = ";
  std::string kept = old, out = decay ? "$" + decays + " = " + decayed(y, before) + "$, " : "";
  if (many) {
    if (s.kind != Kind::gd) out += "from $" + state + " = " + (decay ? decays : before) + "$, ";
    out += std::to_string(s.steps) + " times ";
  }
  // A leak is told as a factor where the step moves the state alone, and else inside the gradient, where it is.
  const bool block = s.kind == Kind::minibatch;
  const bool as_factor = leak && !block && !has_momentum(s) && s.metric == Solver::Metric::none && !s.muon;
  if (s.decay_kind == Solver::Decay::shrink) kept = "(1-" + lam + ")\\, " + old;
  if (as_factor) kept = "(1 - " + (step == "1" ? "" : step + "\\,") + lam + ")\\, " + old;
  const std::string point = block ? state + "_0" : old;
  const std::string gradient =
      leak && !as_factor ? "(" + negative_gradient + " - " + lam + "\\, " + point + ")" : negative_gradient;
  const bool lbfgs = s.metric == Solver::Metric::lbfgs;
  std::string update = (lbfgs ? "" : times(step)) + (s.metric == Solver::Metric::none ? "" : "M^{-1} ") + gradient;
  if (has_momentum(s)) {
    const std::string last = many ? "Z" : "Z_{t-1}";
    out += "$Z" + index + becomes + momentum_factor(s) + "\\, " + last + " + " + update + "$, ";
    update = (s.gain.given() ? number_or(s.gain, "\\mathrm{gain}_t") + "\\, Z" : "Z") + index;
  }
  if (s.muon) update = "\\operatorname{NS5}(" + update + ")";
  out += "$" + state + index + becomes + kept + " + " + update + "$";
  if (mirrored) out += ", $" + answer + index + becomes + mirror_map(s, index) + "$";
  if (s.row_norm) out += ", then the weights of every output unit scaled to their initial length";
  if (s.nesterov)
    out += "; the gradient is taken at the state moved on by the momentum times $Z" +
           std::string(many ? "" : "_{t-1}") + "$";
  return out + rule_notes(y, state);
}

std::string stochastic_step(const Symbols& y) {
  const Design& d = y.d;
  const Solver& s = d.solver;
  const std::string x = y.key("t");
  const std::string state = start(y, "S");
  if (s.dplr)
    return "$S_t = " + decayed(y, "S_{t-1}") +
           " + b_t (a_t^\\top S_{t-1}) + k_t v_t^\\top$; $a_t$ reads the undecayed state.";
  if (s.split)
    return (s.decay_kind == Solver::Decay::before ? "$\\tilde{S} = " + decayed(y, "S_{t-1}") + "$, " : "") +
           "$S_t = " + state + " + k_t\\,(\\mathrm{write}_t\\odot v_t - " + state +
           "^\\top(\\mathrm{erase}_t\\odot k_t))^\\top$.";
  if (d.memory.reverse)
    return update_rule(y, "S", "(k_t - " + state + " v_t)\\, v_t^\\top", y.step("v_t")) +
           ": the delta rule on the transposed state with keys and values exchanged.";
  const bool named = s.rule != Solver::Rule::plain;
  const std::string step = named ? "b_t" : y.step(x), write = s.precondition ? "(D_t\\odot k_t)" : x,
                    read = s.feedback ? "p_t" : x;
  std::string out = update_rule(
      y, "S", write + "\\, " + transposed(y.error("t", (s.feedback ? "S_{t-1}" : state) + "^\\top " + read)), step);
  if (named) out += ", $b_t = " + y.step(x) + "$";
  if (s.precondition)
    out +=
        ", $A_t = e^{g^a_t} A_{t-1} + \\beta^a_t\\, k_t\\odot k_t$, $r = \\log(A_t + 10^{-6}) - c$, "
        "$D_t = 1.5^{-r/(1+|r|)}$";
  if (s.pairs > 1)
    out += ", repeated for the " + std::to_string(s.pairs) +
           " pairs of the token (decay only before the first): $S_t = H_{" + std::to_string(s.pairs) +
           "} \\cdots H_1 " + state + " + \\ldots$ with $H_j = I - \\beta_j k_j k_j^\\top$";
  const bool only_decays = s.decay_kind == Solver::Decay::none || s.decay_kind == Solver::Decay::before;
  if (several(y) && y.affine() && d.extras.loss == Loss::squared && only_decays)
    out += ", which is one step of size $(1 - (1 - b\\lVert " + x + "\\rVert^2)^{" + std::to_string(s.steps) +
           "})/\\lVert " + x + "\\rVert^2$" + (step == "b" ? "" : ", $b = " + step + "$");
  const bool plain = y.affine() && d.extras.loss == Loss::squared && !s.momentum.given() && !s.precondition &&
                     !s.feedback && s.pairs == 1 && s.steps == 1 && s.decay_kind != Solver::Decay::leak &&
                     s.decay_kind != Solver::Decay::shrink;
  if (plain) {
    const std::string b = times(step);
    out += "; equivalently $S_t = (I - " + b + x + " " + x + "^\\top)\\, " + state + " + " + b + x +
           " v_t^\\top$, stable while $0\\le " + b + "\\lVert " + x + "\\rVert^2\\le 2$";
  }
  return out + ".";
}

std::string exact_solution(const Symbols& y) {
  const Design& d = y.d;
  const Solver& s = d.solver;
  const std::string x = y.key("t"), ridge = y.ridge();
  const std::string lambda = ridge.empty() ? "" : " + " + y.ridge_matrix();
  const std::string inverse = lambda.empty() ? "H_t^{-1}" : "(H_t" + lambda + ")^{-1}";
  std::string out = hf_recurrences(y) + ", $S_t = " + inverse + " F_t$" +
                    (ridge.empty() ? " (the least-norm solution while $H_t$ is singular)" : "");
  if (!y.rank_one_inverse()) {
    const bool token = s.ridge_per == Solver::RidgePer::token;
    return out +
           (s.ridge_kind == Solver::RidgeKind::relative    ? ". The ridge grows with every pair, by a full matrix"
            : s.ridge_kind == Solver::RidgeKind::frobenius ? ". The ridge changes with $H_t$, by a full matrix"
            : token                                        ? ". Every token has a ridge of its own"
                                                           : ". The ridge stays while the pairs fade") +
           ", so no rank-one update of the inverse exists: each token solves.";
  }
  const std::string a = !y.fades()                               ? ""
                        : d.weights.fade == Weights::Fade::decay ? number_or(d.weights.decay, "e^{g}")
                                                                 : "a_t";
  const std::string beta =
      y.importance("t").empty() ? "1" : y.importance("t").substr(0, y.importance("t").size() - 2);
  const std::string ratio = a.empty() ? (beta == "1" ? "1" : "1/" + beta) : (beta == "1" ? a : a + "/" + beta);
  out += ". By Woodbury, with $P_t = " + inverse + "$" + (ridge.empty() ? " (once $H_t$ is regular)" : "") +
         ": $\\kappa_t = P_{t-1} " + x + "/(" + ratio + " + " + x + "^\\top P_{t-1} " + x +
         ")$, $P_t = " + (a.empty() ? "" : "(") + "P_{t-1} - \\kappa_t (P_{t-1} " + x + ")^\\top" +
         (a.empty() ? "" : ")/" + a) + "$, $S_t = S_{t-1} + \\kappa_t (v_t - S_{t-1}^\\top " + x + ")^\\top$";
  if (!ridge.empty())
    out += ", $P_0 = I/" +
           (s.ridge_per == Solver::RidgePer::key ? std::string("\\operatorname{diag}(\\lambda)")
                                                 : number_or(s.ridge, "\\lambda")) +
           "$";
  if (d.weights.window > 0) {
    const std::string old = y.key("t-" + std::to_string(d.weights.window));
    out +=
        "; the pair that leaves is taken out by the same formulas with the sign of its weight turned, $P \\leftarrow "
        "P + P " +
        old + " (P " + old + ")^\\top/(1/w - " + old + "^\\top P " + old + ")$";
  }
  return out + ".";
}

std::string regular_inverse(const Symbols& y) {
  const std::string ridge = y.ridge();
  if (ridge.empty()) return y.now("H") + "^{-1} ";
  return "(" + y.now("H") + " + " + y.ridge_matrix() + ")^{-1} ";
}

/// The covariance of the keys around their mean, with its ridge: weights that sum to one divide an absolute ridge.
std::string local_inverse(const Symbols& y) {
  const Solver& s = y.d.solver;
  const std::string covariance = "\\operatorname{Cov}_p(k,k)";
  if (!y.has_ridge()) return covariance + "^{-1}";
  const std::string lambda = number_or(s.ridge, s.ridge_per == Solver::RidgePer::token ? "\\lambda_t" : "\\lambda");
  return "(" + covariance + " + " + lambda +
         (s.ridge_kind == Solver::RidgeKind::relative ? "\\, I" : "/\\sum_j w_j(t)\\, I") + ")^{-1}";
}

std::string per_query(const Symbols& y) {
  const Design& d = y.d;
  if (is_deltaformer(d))
    return "Keys and corrected values are kept: $u_t = v_t - " + times(y.step("1")) +
           "\\sum_{j<t} p_{tj} u_j$, $p_{tj} = w_j(t)/\\sum_{l<t} w_l(t)$; "
           "for a block, $(I + \\operatorname{diag}(\\beta) P)\\, U = V$ with $P$ strictly lower triangular.";
  const Weights& w = d.weights;
  std::string out = std::string(w.near != Kernel::none ? "The weights depend on the query"
                                : w.given > 0          ? "Every token gives the pairs weights of its own"
                                : w.power.given()      ? "A power of the age is no product of factors per token"
                                                       : "Every token scales the levels of age anew") +
                    ", so nothing smaller than the list of pairs is enough: append $(k_t, v_t)$";
  if (w.reach() > 0) out += ", drop the pair older than " + std::to_string(w.reach()) + " tokens";
  if (d.weights.fade == Weights::Fade::gate) out += ", and add the log gate to the running sum that ages every logit";
  if (d.memory.kind == Class::linear) {
    const std::string n = std::to_string(d.solver.steps), eta = step_symbol(y);
    const bool linear_gradient = d.extras.loss == Loss::squared;
    if (d.solver.kind == Kind::gd && !y.bare_steps())
      out +=
          ". For each query, from $S = 0$, " + n + " times " +
          inner_rule(y, "S",
                     "\\sum_i w_i(t)\\, " + y.key("i") + "\\, " + transposed(y.error("i", "S^\\top " + y.key("i"))),
                     y.step(y.key("i")));
    else if (d.solver.kind == Kind::gd && d.extras.loss == Loss::dot)
      out += ". For each query $S(q_t) = " + (d.solver.steps > 1 ? n + "\\," : "") + eta + "F_t$" + step_note(y);
    else if (d.solver.kind == Kind::gd && linear_gradient)
      out += ". For each query $S(q_t) = " + eta + "\\sum_{j<" + n + "} (I - " + eta + "H_t)^j F_t$" + step_note(y);
    else if (d.solver.kind == Kind::gd || d.solver.kind == Kind::descend)
      out += ". From " + std::string(d.solver.kind == Kind::gd ? "zero" : "the last answer") +
             " with the weights of the query: " +
             update_rule(y, "S", "(-\\nabla_S(" + start(y, "S") + "))", y.step(y.key("i")));
    else if (d.solver.kind == Kind::cg || d.solver.kind == Kind::chebyshev)
      out += ". For each query $S(q_t)$ is what " + n +
             (d.solver.kind == Kind::cg ? " conjugate gradient" : " Chebyshev") +
             " steps make of the normal equations";
    else out += ". For each query $S(q_t)$ solves the normal equations";
  } else if (d.memory.kind == Class::constant && d.solver.kind == Kind::gd &&
             (!y.bare_steps() || d.extras.loss != Loss::squared)) {
    out += ". For each query, from $y = 0$, " + std::to_string(d.solver.steps) + " times " +
           inner_rule(y, "y", "\\sum_i w_i(t)\\, " + y.error("i", "y"), y.step("1"));
  } else if (d.memory.kind == Class::local && d.solver.kind == Kind::cg) {
    out +=
        ". For each query the normal equations get " + std::to_string(d.solver.steps) + " conjugate gradient steps";
  } else if (d.memory.kind == Class::local && d.solver.kind == Kind::gd) {
    out += ". For each query, from $b = 0$, " + std::to_string(d.solver.steps) + " times $b \\leftarrow b - " +
           step_symbol(y) + "\\nabla_b$" + step_note(y);
  } else if (d.memory.kind == Class::kernel) {
    const std::string n = std::to_string(d.solver.steps);
    out += d.solver.kind == Kind::exact ? ". For each query the system above is solved"
           : d.solver.kind == Kind::cg
               ? ". For each query the system above gets " + n + " conjugate gradient steps"
               : ". For each query, from $c = 0$, " + n + " times $C \\leftarrow C + " + step_symbol(y) +
                     "\\operatorname{diag}(w)\\, E$ with rows $e_i = " + y.error("i", "(G C)_i") + "$" + step_note(y);
  } else if (is_network(d.memory)) {
    out += std::string(". For each query, from ") +
           (d.solver.kind == Kind::gd ? "the initial weights" : "the last weights") + ": " +
           update_rule(y, "W", "(-\\nabla_W(" + start(y, "W") + "))", y.step("k_i"));
  } else if (d.memory.kind == Class::vector) {
    out += ". One step from zero gives $h_t = " + times(y.step("1")) + "\\sum_i w_i(t)\\, v_i$";
  } else if (d.memory.kind == Class::constant && d.solver.kind == Kind::gd && w.near == Kernel::none) {
    out += ". From $y = 0$, " + std::to_string(d.solver.steps) + " times $y \\leftarrow y + " + step_symbol(y) +
           "\\sum_i " + y.w("i") + y.error("i", "y") + "$" + step_note(y);
  }
  return out + ".";
}

}  // namespace

std::string recurrence(const Symbols& y) {
  const Design& d = y.d;
  const Solver& s = d.solver;
  if (s.kind == Kind::irls) return reweighted_fits(y);
  if (!y.causal) return whole_solution(y);
  if (y.by_query()) return per_query(y);
  switch (d.memory.kind) {
    case Class::slots: {
      const bool gated = y.fades();
      return std::string("$Km_t = Km_{t-1}") + (gated ? " \\operatorname{diag}(e^{\\mathrm{gs}_t})" : "") +
             " + k_t s_t^\\top$, $Vm_t = " + (gated ? "\\operatorname{diag}(e^{\\mathrm{gs}_t})\\, " : "") +
             "Vm_{t-1} + s_t v_t^\\top$.";
    }
    case Class::vector: {
      const std::string old = "v_{t-" + std::to_string(d.weights.window) + "}", step = y.step("1");
      const bool scale_read = s.step.is_input();
      return "$" + sum_recurrence(y, scale_read ? "f" : "h", "v_t", old, scale_read ? "" : times(step)) + "$" +
             (scale_read ? ", $h_t = " + step + " f_t$" : "") + (d.weights.complex ? ", $h$ complex." : ".");
    }
    case Class::kernel:
      if (s.kind == Kind::sgd)
        return "The function is a list of centres: append $(k_t, c_t)$ with $c_t = " + times(y.step("k_t")) +
               y.error("t", "f_{t-1}(k_t)") + "$, $f_{t-1}(x) = \\sum_{" +
               (d.weights.window > 0 ? "t-" + std::to_string(d.weights.window) + "<" : std::string()) +
               "i<t} c_i\\, \\kappa(k_i,x)$" +
               (s.momentum.given()
                    ? "; momentum keeps a second list of coefficients, $z_i \\leftarrow " + momentum_factor(s) +
                          "\\, z_i$ and $z_t$ the new coefficient, and all $c_i$ grow by $z_i$"
                    : "") +
               (s.steps > 1 ? "; " + std::to_string(s.steps) +
                                  " such steps, which add to $c_t$, each with the function as the last one left it"
                            : "") +
               (s.decay_kind == Solver::Decay::none     ? "."
                : s.decay_kind == Solver::Decay::before ? "; before the first step all $c_i$ shrink by the factor of "
                                                          "the recipe."
                                                        : "; with every step all $c_i$ shrink by the factor of the "
                                                          "recipe.");
      if (s.kind == Kind::gd && !y.bare_steps())
        return "Append $(k_t, v_t)$; from $C = 0$, " + std::to_string(s.steps) + " times " +
               inner_rule(y, "C", "\\operatorname{diag}(w)\\, E", y.step("k_i")) +
               ", the rows of $E$ being $e_i = " + y.error("i", "(G C)_i") + "$.";
      if (s.kind == Kind::gd && s.steps == 1)
        return "Append $(k_t, v_t)$; one step from zero has the coefficients $c_i = " + times(y.step("k_i")) +
               y.w("i") + y.error("i", "0") + "$.";
      if (s.kind == Kind::gd)
        return "Append $(k_t, v_t)$; from $c = 0$, " + std::to_string(s.steps) + " times $C \\leftarrow C + " +
               step_symbol(y) + "\\operatorname{diag}(w)\\, E$ with rows $e_i = " + y.error("i", "(G C)_i") + "$" +
               step_note(y) + ".";
      if (s.kind == Kind::cg)
        return "Append $(k_t, v_t)$ and a row of $G$; " + std::to_string(s.steps) +
               " conjugate gradient steps from zero on the system above.";
      return "Append $(k_t, v_t)$ and a row to the Cholesky factor of $G$ plus its ridge: $l = "
             "L^{-1}\\kappa(K,k_t)$, $l_{tt} = \\sqrt{\\kappa(k_t,k_t) + " +
             (y.ridge().empty() ? std::string("0") : number_or(s.ridge, "\\lambda")) + " - \\lVert l\\rVert^2}$" +
             (y.fades() && y.has_ridge()
                  ? "; weights that fade change the whole diagonal, so the factor is made anew."
                  : ".");
    case Class::constant:
      if (s.kind == Kind::sgd) {
        return update_rule(y, "y", y.error("t", start(y, "y")), y.step("1")) + ": exponential smoothing.";
      } else {
        const std::string n = std::to_string(d.weights.window);
        const std::string sums = "$" + sum_recurrence(y, "N", "v_t", "v_{t-" + n + "}") + "$ and $" +
                                 sum_recurrence(y, "D", "1", "1") + "$";
        if (s.kind == Kind::exact)
          return sums + ", $y_t = N_t/" + (y.ridge().empty() ? "D_t" : "(D_t + " + y.ridge() + ")") + "$" +
                 (d.memory.per_channel ? " in every channel; kept relative to a running maximum." : ".");
        if (!y.bare_steps())
          return (y.closed_sums() ? sums : std::string("The values are kept")) + "; from $y = 0$, " +
                 std::to_string(s.steps) + " times " +
                 inner_rule(y, "y",
                            !y.closed_sums()             ? "\\sum_i " + y.w("i") + y.error("i", "y")
                            : d.extras.loss == Loss::dot ? "N_t"
                                                         : "(N_t - D_t y)",
                            y.step("1")) +
                 ".";
        if (!y.closed_sums())
          return "The values are kept; from $y = 0$, " + std::to_string(s.steps) + " times $y \\leftarrow y + " +
                 step_symbol(y) + "\\sum_i " + y.w("i") + y.error("i", "y") + "$" + step_note(y) + ".";
        if (s.steps == 1 || d.extras.loss == Loss::dot)
          return sums + ", $y_t = " + (s.steps > 1 ? std::to_string(s.steps) + "\\," : "") + times(y.step("1")) +
                 "N_t$.";
        return sums + ", $y_t = (1 - (1 - " + times(y.step("1")) + "D_t)^{" + std::to_string(s.steps) +
               "})\\, N_t/D_t$.";
      }
    case Class::linear:
      break;
    case Class::local:
      return per_query(y);
    default: {
      if (s.kind == Kind::gd || s.kind == Kind::descend)
        return "The pairs are kept" + std::string(d.weights.window > 0 ? " while they are in the window" : "") +
               "; from " + (s.kind == Kind::gd ? "the initial weights" : "the last weights") + ": " +
               (s.kind == Kind::gd && !y.bare_steps()
                    ? std::to_string(s.steps) + " times " + inner_rule(y, "W", "(-\\nabla_W(W))", y.step("k_i"))
                    : update_rule(y, "W", "(-\\nabla_W(" + start(y, "W") + "))", y.step("k_i"))) +
               ".";
      if (s.kind == Kind::minibatch)
        return "With all gradients of a block taken at the weights $W_0$ of its start: " +
               update_rule(y, "W", "(-\\nabla_W(W_0))", y.step("k_t")) + "; the block size is part of the layer.";
      return update_rule(y, "W", "(-\\nabla_W(" + start(y, "W") + "))", y.step("k_t")) + ".";
    }
  }
  switch (s.kind) {
    case Kind::gd:
      return y.one_step() ? batch_step(y) : many_batch_steps(y);
    case Kind::descend: {
      const bool bare = s.decay_kind == Solver::Decay::none && !s.momentum.given() && !s.muon && !s.row_norm &&
                        s.q_norm == 0 && s.mirror == Solver::Mirror::none && s.metric != Solver::Metric::adam;
      if (bare) return many_batch_steps(y);
      const std::string grad = y.closed_sums()
                                   ? (d.extras.loss == Loss::dot ? "F_t" : "(F_t - H_t " + start(y, "S") + ")")
                                   : "(-\\nabla_S(" + start(y, "S") + "))";
      return (y.closed_sums() ? hf_recurrences(y) + "; " : std::string("The pairs are kept; ")) +
             update_rule(y, "S", grad, y.step(y.key("i"))) + ".";
    }
    case Kind::sgd:
      return stochastic_step(y);
    case Kind::minibatch:
      return "With $S_0$ the state at the start of the block: " +
             update_rule(y, "S", y.key("t") + "\\, " + transposed(y.error("t", "S_0^\\top " + y.key("t"))),
                         y.step(y.key("t"))) +
             ".";
    case Kind::exact:
      return exact_solution(y);
    case Kind::cg:
    case Kind::chebyshev:
      return hf_recurrences(y) + "; no inverse is kept: each token takes " + std::to_string(s.steps) +
             (s.kind == Kind::cg ? " conjugate gradient" : " Chebyshev") + " steps on $(H_t" +
             (y.has_ridge() ? " + " + y.ridge_matrix() : std::string()) + ")\\, x = " + y.query() + "$.";
    case Kind::apa:
      return "$S_t = S_{t-1} + " + times(y.step("k_t")) + "K_w^\\top (K_w K_w^\\top" +
             (s.eps > 0 ? " + " + numeral(s.eps) + " I" : "") +
             ")^{-1} (V_w - K_w S_{t-1})$, the rows of $K_w$, $V_w$ being the newest " + std::to_string(s.batch) +
             " pairs.";
    case Kind::kalman: {
      const std::string x = y.key("t"), noise = s.noise.given() ? number_or(s.noise, "r_t") : "1";
      const std::string drift = s.process.given() ? number_or(s.process, "\\mathrm{process}_t") + "\\, I" : "0";
      return "$P = P_{t-1} + " + drift + "$, $\\kappa_t = P " + x + "/(" + noise + " + " + x + "^\\top P " + x +
             ")$, $S_t = S_{t-1} + \\kappa_t (v_t - S_{t-1}^\\top " + x + ")^\\top$, $P_t = P - \\kappa_t (P " + x +
             ")^\\top$.";
    }
    case Kind::given:
    case Kind::irls:
      break;
  }
  return per_query(y);
}

std::string readout(const Symbols& y) {
  const Design& d = y.d;
  const Solver& s = d.solver;
  const std::string at = d.extras.read_before ? "t-1" : "t", q = y.query();
  const auto state = [&](const std::string& name) { return y.causal ? name + "_{" + at + "}" : name; };
  std::string out;
  if (is_deltaformer(d)) out = "\\sum_{i\\le t} w_i(t)\\, u_i/\\sum_{i\\le t} w_i(t)";
  else if (y.by_query() && d.memory.kind == Class::constant &&
           (s.kind == Kind::irls || (s.kind == Kind::gd && (!y.bare_steps() || d.extras.loss != Loss::squared))))
    out = "y(q_t)";
  else if (y.by_query() && d.memory.kind == Class::constant && s.kind == Kind::gd)
    out = s.steps == 1 ? times(y.step("1")) + "\\sum_i w_i(t)\\, v_i"
                       : "(1 - (1 - " + times(y.step("1")) + "D)^{" + std::to_string(s.steps) +
                             "})\\sum_i w_i(t)\\, v_i/D,\\; D = \\sum_i w_i(t)";
  else if (y.by_query() && d.memory.kind == Class::constant && s.kind == Kind::exact && !d.memory.per_channel)
    out = "\\sum_i w_i(t)\\, v_i/(\\sum_i w_i(t)" + std::string(y.ridge().empty() ? "" : " + " + y.ridge()) +
          (d.weights.sink ? " + e^{\\mathrm{sink}}" : "") + ")";
  else if (s.kind == Kind::given)
    out = "E_p[v] - \\operatorname{Cov}_p(k,v)^\\top r_t,\\; p_i = w_i(t)/\\sum_j w_j(t)";
  else if (d.memory.kind == Class::local)
    out = d.memory.order == 1 && s.kind == Kind::exact
              ? "c = \\sum_i p_i (1 - (k_i - E_p[k])^\\top r)\\, v_i,\\; r = " + local_inverse(y) +
                    "(E_p[k] - q_t),\\; p_i = w_i(t)/\\sum_j w_j(t)"
              : "b_0, \\text{ the constant term}";
  else if (y.by_query() && d.memory.kind == Class::linear &&
           !(s.kind == Kind::chebyshev || (s.kind == Kind::cg && d.weights.near == Kernel::none) || d.extras.blend))
    out = d.weights.near != Kernel::none ? "S(q_t)^\\top " + q : state("S") + "^\\top " + q;
  else if (d.memory.kind == Class::slots) out = "Vm_t^\\top \\operatorname{softmax}(Km_t^\\top q_t)";
  else if (d.memory.kind == Class::vector) out = d.weights.complex ? "\\operatorname{Re} " + state("h") : state("h");
  else if (d.memory.kind == Class::kernel)
    out = s.kind == Kind::exact && y.ridge().empty() ? "V^\\top G^{-1} \\kappa(K,q_t)"
                                                     : "\\sum_i c_i\\, \\kappa(k_i,q_t)";
  else if (d.memory.kind == Class::constant) out = state("y");
  else if (is_network(d.memory)) out = "m_{" + state("W") + "}(q_t)";
  else if (d.weights.levels && !y.by_query()) out = "\\sum_{\\ell} \\lambda_t^{(\\ell)} S_t^{(\\ell)\\top} " + q;
  else if (s.kind == Kind::cg || s.kind == Kind::chebyshev || d.extras.blend)
    out = d.extras.blend
              ? y.now("F") + "^\\top (" + q + " + \\alpha_t (x_t - " + q + ")),\\; x_t = " + regular_inverse(y) + q
              : state("F") + "^\\top x_{" + at + "}";
  else if (d.weights.complex) out = "\\operatorname{Re}(" + state("S") + ")^\\top " + q;
  else out = state("S") + "^\\top " + q;
  if (d.extras.bonus)
    out += d.memory.per_channel ? "\\text{ with token } t \\text{ added at weight } e^{\\mathrm{bonus} + \\iota_t}"
                                : " + (\\sum_c q_{tc}\\, \\mathrm{bonus}_c\\, k_{tc})\\, v_t";
  if (d.extras.read_mean)
    out = (d.extras.loss == Loss::logistic ? "\\operatorname{sigmoid}(" : "\\operatorname{softmax}(") + out + ")";
  std::string text = "$o_t = " + out + "$";
  const std::string eps = d.extras.normalise_eps > 0 ? " + " + numeral(d.extras.normalise_eps) : "";
  switch (d.extras.normalise) {
    case Extras::Normalise::none:
      break;
    case Extras::Normalise::keysum:
      text += ", divided by $" + q + "^\\top z_t" + eps + "$ with $z_t = \\sum_i " + y.w("i") + y.key("i") + "$";
      break;
    case Extras::Normalise::max_one:
      text += ", divided by $\\max(|" + q + "^\\top z_t|, 1)$ with $z_t = \\sum_i " + y.w("i") + y.key("i") + "$";
      break;
    case Extras::Normalise::rms:
      text += ", divided by its root mean square $\\sqrt{\\lVert o_t\\rVert^2/V" + eps + "}$";
      break;
    case Extras::Normalise::unit:
      text += ", divided by its length $\\sqrt{\\lVert o_t\\rVert^2" + eps + "}$";
      break;
  }
  if (d.extras.read_before) text += "; read before token $t$ is stored";
  return text + ".";
}

}  // namespace ttr::derivation
