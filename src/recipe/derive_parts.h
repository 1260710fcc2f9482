// The pieces of a derivation, in the markup of recipe/markup.h. Orientation: S [K, V], o = S' q.
#pragma once

#include <string>
#include <vector>

#include "recipe/design.h"

namespace ttr::derivation {

/// A number inside a formula (1e-6 must not read as a product).
std::string numeral(double);
/// The constant, or the symbol of the input.
std::string number_or(const Quantity&, const std::string& symbol);

/// `e^\top`, in parentheses unless it has them.
std::string transposed(const std::string& e);

/// The value of a kernel at x and y, written out, and what is to be said of its scale or bandwidth
/// (recipe/derive_weights.cc).
std::string similarity(Kernel, double scale, const Quantity& bandwidth, int degree, const std::string& x,
                       const std::string& y);
std::string kernel_note(Kernel, double scale, const Quantity& bandwidth);
/// Remarks on weights by age.
std::vector<std::string> age_notes(const Weights&);

/// Symbols shared by all pieces.
struct Symbols {
  Symbols(const Design&, bool causal);
  const Design& d;
  const bool causal;  // false: every query sees all N pairs of its call

  std::string key(const std::string& index) const;         // k_i, \phi(k_i) or 1
  std::string query() const;                               // q_t, \phi(q_t) or 1
  std::string features() const;                            // K, or the number of features
  std::string prediction(const std::string& index) const;  // S^\top k_i
  std::string loss(const std::string& index) const;        // \tfrac12\lVert v_i - S^\top k_i\rVert^2
  std::string error(const std::string& index, const std::string& predicted) const;  // minus the loss's derivative
  std::string weight() const;                                                       // w_i(t) written out
  std::string w(const std::string& index) const;                                    // w_i(t) as a factor, empty for 1
  std::string faded(const std::string& state) const;       // e^{g_t} S_{t-1}: what the weights do to a stored sum
  std::string importance(const std::string& index) const;  // \beta_i, empty for 1
  std::string range() const;                               // i \le t; i if every query sees all pairs
  std::string now(const std::string& sum) const;           // H_t; H if there is one for all queries
  std::string ridge() const;                               // \lambda written out; empty if there is none
  std::string ridge_matrix() const;                        // \lambda\, I, or the diagonal of ridge(key)
  std::string step(const std::string& key) const;          // step size of the solver
  bool fades() const;                                      // the weights change with age
  bool one_step() const;                                   // gd(1)
  bool bare_steps() const;                                 // no momentum, metric, penalty or list of steps
  bool affine() const;                                     // per-pair rules: the new state is affine in the old one
  bool closed_sums() const;                                // batch solvers: H and F say all there is to know
  bool has_ridge() const;                                  // one that is not the number zero
  bool rank_one_inverse() const;  // exact: the inverse moves on by one pair, whose ridge (if any) fades with it
  bool by_query() const;          // every token weighs the pairs anew: nothing smaller than their list is enough
};

/// Between a gradient and a step (recipe/derive_rules.cc).
bool has_momentum(const Solver&);
bool has_penalty(const Design&);
std::string momentum_factor(const Solver&);
std::string penalties(const Design&, const std::string& unknown);  // + l1 |S|_1 + ...
std::string rule_notes(const Symbols&, const std::string& state);  // what M is, the list of steps, the proximal step
std::string mirror_map(const Solver&, const std::string& index);   // softmax(A_t)
std::string mirror_note(const Solver&);                            // which divergence a step minimises
/// Reweighted fits: the weights, the fits of a query, their cost.
std::string reweighting(const Symbols&);
std::string reweighted_fits(const Symbols&);
std::string reweighted_cost(const Symbols&, const std::string& pairs);

std::string objective(const Symbols&);
std::string gradient(const Symbols&);
std::string recurrence(const Symbols&);
std::string readout(const Symbols&);
std::string state_size(const Symbols&);
std::string cost(const Symbols&);

/// The same where every query sees all pairs of its call (recipe/derive_whole.cc).
std::string whole_solution(const Symbols&);
std::string whole_cost(const Symbols&);

}  // namespace ttr::derivation
