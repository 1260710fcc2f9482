// The switching process of the test-time regression paper (Eq. 55): an autoregressive stream whose rule changes.
//
//   k_{t+1} = a_t k_t + 0.02 eps_t,   a_t = 0.9 for t < T/4, then 0.999;   eps_t ~ N(0, Sigma), unit diagonal
//   v_t     = k_{t+1} / |k_{t+1}|
//
// The paper (Eq. 55 and the caption of Figure 2) has 0.9 first; the authors' slides have 0.999 first and then 0.9. Both are
// here; the paper's is the default.
//
// Shapes: keys [T+1, D], values [T+1, D]. After the pair (k_t, v_t), t = 0 .. T-1, the memory is asked with
// k_{t+1} for v_{t+1}; the loss is the squared 2-norm of the error.
// Left open by the paper and chosen here: indices start at 0; k_0 follows the stationary law of the first rule,
// 0.02/sqrt(1-a^2) N(0, Sigma); Sigma is an equicorrelation of 0.5 unless another is asked for.
// Trap: std::normal_distribution differs between standard libraries; the generator below does not.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace ttr::cli {

/// xoshiro256++ seeded by splitmix64; the same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0);
  std::uint64_t bits();
  double uniform();  // [0, 1), 53 bits
  double normal();   // N(0, 1), polar method

 private:
  std::array<std::uint64_t, 4> s_;
  double spare_ = 0;
  bool has_spare_ = false;
};

enum class Covariance { equicorrelation, toeplitz, wishart, identity };
/// Throws Error that lists the choices.
Covariance parse_covariance(std::string_view name);
std::string_view to_string(Covariance);

/// Which rule comes first: 0.9 (paper) or 0.999 (slides).
enum class RuleOrder { paper, slides };
/// Throws Error that lists the choices.
RuleOrder parse_rule_order(std::string_view name);
std::string_view to_string(RuleOrder);

struct SwitchingSpec {
  int time = 256;  // T
  int dim = 64;    // D
  Covariance covariance = Covariance::equicorrelation;
  RuleOrder order = RuleOrder::paper;

  double first_rule() const { return order == RuleOrder::paper ? 0.9 : 0.999; }
  double second_rule() const { return order == RuleOrder::paper ? 0.999 : 0.9; }
};

struct SwitchingSequence {
  std::vector<double> keys;    // [T+1, D]
  std::vector<double> values;  // [T+1, D]
};

/// Sequence number `index` of the run with that `seed`; independent of all others.
SwitchingSequence switching_sequence(const SwitchingSpec&, std::uint64_t seed, int index);

/// Lower Cholesky factor [D, D] of Sigma. The Wishart correlation is drawn from `random` (2 D degrees of freedom).
std::vector<double> covariance_factor(Covariance, int dim, Random& random);

}  // namespace ttr::cli
