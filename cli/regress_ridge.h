// What becomes of a ridge beside pairs that fade, where one that stays would cost too much.
//
//   exact     H_t = sum_i a^(t-i) k_i k_i' + ridge I          a factorisation per row, K^3 / 6
//   fades     the ridge is forgotten like every pair          rotations, K^2; many keys then fit the noise of a few rows
//   renewed   H_t = sum_i a^(t-i) k_i k_i' + ridge D_t        rotations, K^2 each
//
// D is diagonal. It fades with the pairs, and every row renews the parts of m keys, in turn, by a rotation each:
//
//   d <- a d ;   d_j <- c  for the next m keys j ,     c = n (1 - a) / (1 - a^n) ,  n = K / m
//
// so that over the n rows between two turns the mean of a part is 1. m is the least number with n <= 1 / (1 - a), the
// memory of the fit: after its first turn no part is below 0.58 or above 1.58. At the start D = I. What a part is
// follows from the number of rows alone, so a state needs nothing beside its triangle. The output `known` takes every
// part for 1, which is its mean.
//
// A ridge that only fades is far from the one asked for: beside noise and many keys its errors are up to 1.6 times those
// of one that stays, where those of one that is renewed are the same within two percent (docs/regress.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ttr/plan.h"
#include "ttr/stream.h"

namespace ttr::cli {

enum class RidgeRule : std::int32_t { stays, fades, renewed };

/// The rule for a layer that the user has written as `text`: a name follows it from 17 keys on, a recipe is what it says up
/// to 256. `stream` is what would run.
RidgeRule ridge_rule(std::string_view text, const StreamText& stream, int key_dim);

/// The rule before there was a ridge that is renewed.
RidgeRule older_ridge_rule(const StreamText& stream, int key_dim);

/// Whether a layer can follow the rule; `stream` without one.
bool can_follow(RidgeRule rule, const StreamText& stream);

/// What runs instead, if the rule changes it. RidgeRule::renewed: `text` is for the plan, which does not fade by itself.
StreamText with_ridge_rule(StreamText stream, RidgeRule rule, int key_dim);

/// Fades the state of a plan that does not fade, and renews its ridge.
class RenewedRidge {
 public:
  /// `stream` as with_ridge_rule(stream, RidgeRule::renewed, ..) returns it, `plan` the plan of its text.
  RenewedRidge(const StreamText& stream, const Plan& plan);
  /// To be called before each pair; a state has seen nothing else.
  Status begin_row(const Plan& plan, State state, Workspace work);
  std::size_t workspace(const Plan& plan) const;
  double decay() const { return decay_; }

 private:
  double part(std::int64_t turn, std::int64_t row) const;  // of the key whose turn it is, before that

  std::int64_t keys_, per_row_;
  double decay_, ridge_, renewed_;
  std::vector<double> rows_, zeros_;  // [per_row, K]; as many zeros as an input has numbers
};

}  // namespace ttr::cli
