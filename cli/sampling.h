// The next token of a text from what a model says about all of them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ttr/random.h"

namespace ttr::cli {

struct Sampling {
  double temperature = 0.8;  // 0: the likeliest
  double top_p = 0.95;       // of the likeliest tokens that have this share together
  int top_k = 0;             // of the k likeliest; 0: all
  double min_p = 0;          // of those with at least this part of the likeliest one's probability
  double penalty = 1;  // logits of tokens among the newest `recent` are divided by it (those below zero multiplied)
  int recent = 64;
  void check() const;  // throws Error that names the option
};

/// Throws Error unless they are numbers, of which one at least is above -inf; `whose` stands for the model.
void check_logits(std::span<const double> logits, std::string_view whose = "the model");

/// Probabilities of the tokens that may be drawn, the likeliest first. `before`: tokens so far, for the penalty.
struct Shares {
  std::vector<std::pair<double, std::int32_t>> list;  // they add up to `sum`
  double sum = 0;
  bool certain = false;                 // temperature 0: nothing is drawn
  double of(std::int32_t token) const;  // 0 if it may not be drawn
};
/// Throws Error as check_logits does.
Shares shares_of(std::span<const double> logits, const Sampling&, std::span<const std::int32_t> before);
std::int32_t draw(const Shares&, model::Random&);

}  // namespace ttr::cli
