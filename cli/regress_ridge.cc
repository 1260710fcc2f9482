#include "regress_ridge.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "ttr/recipe.h"

namespace ttr::cli {
namespace {

// A factorisation of so few keys costs no more than rotations do.
constexpr int most_keys_of_a_name = 16, most_keys_to_factorise = 256;
// Below it most keys would have their turn in every row.
constexpr double least_decay = 0.9;

// Least squares whose pairs fade beside a ridge that is a number.
bool has_ridge_beside_decay(const Recipe& recipe) {
  const auto has = [&](const char* word) {
    return std::any_of(recipe.weights.begin(), recipe.weights.end(), [&](const Term& t) { return t.word == word; });
  };
  const Term& solver = recipe.solver;
  return recipe.memory.word == "linear" && solver.word == "exact" && solver.has("ridge") && has("decay") &&
         !has("window") && !solver.has("relative") && !solver.has("frobenius") && !solver.has("fading");
}

// The same and nothing else, so that the triangle of its pairs is all there is: the two numbers.
struct Numbers {
  double decay, ridge;
};
std::optional<Numbers> numbers_of(const Recipe& recipe) {
  if (!has_ridge_beside_decay(recipe) || recipe.weights.size() != 1 || !recipe.memory.arguments.empty() ||
      !recipe.extras.empty() || recipe.solver.arguments.size() != 1)
    return {};
  const std::vector<Argument>& of_decay = recipe.weights[0].arguments;
  const Argument& ridge = recipe.solver.arguments[0];
  if (of_decay.size() != 1 || !of_decay[0].is_number() || !ridge.is_number() || !(ridge.number() > 0)) return {};
  return Numbers{of_decay[0].number(), ridge.number()};
}

}  // namespace

RidgeRule ridge_rule(std::string_view text, const StreamText& stream, int key_dim) {
  const bool is_recipe = text.find('/') != text.npos;
  if (stream.as_layer || key_dim <= (is_recipe ? most_keys_to_factorise : most_keys_of_a_name))
    return RidgeRule::stays;
  const std::optional<Numbers> numbers = numbers_of(parse_recipe(stream.recipe));
  if (numbers && numbers->decay >= least_decay && numbers->decay < 1) return RidgeRule::renewed;
  return older_ridge_rule(stream, key_dim);
}

RidgeRule older_ridge_rule(const StreamText& stream, int key_dim) {
  const bool dear = !stream.as_layer && key_dim > most_keys_to_factorise;
  return dear && has_ridge_beside_decay(parse_recipe(stream.recipe)) ? RidgeRule::fades : RidgeRule::stays;
}

bool can_follow(RidgeRule rule, const StreamText& stream) {
  if (rule == RidgeRule::stays) return true;
  if (stream.as_layer) return false;
  const Recipe recipe = parse_recipe(stream.recipe);
  return (rule == RidgeRule::fades && has_ridge_beside_decay(recipe)) ||
         (rule == RidgeRule::renewed && numbers_of(recipe));
}

StreamText with_ridge_rule(StreamText stream, RidgeRule rule, int key_dim) {
  if (rule == RidgeRule::stays) return stream;
  Recipe recipe = parse_recipe(stream.recipe);
  if (rule == RidgeRule::fades) {
    recipe.solver.arguments.push_back({"fading", {}, 0});
    stream.text = stream.recipe = to_string(recipe);
    stream.changes.push_back(fmt::format(
        "the ridge fades with the pairs, because with {} keys one that stays would cost a factorisation per row",
        key_dim));
    return stream;
  }
  recipe.weights = {Term{"equal", {}, 0}};
  stream.text = to_string(recipe);
  stream.changes.push_back(fmt::format(
      "the ridge fades with the pairs and is renewed key by key, in turn, because with {} keys one that stays "
      "would cost a factorisation per row",
      key_dim));
  return stream;
}

RenewedRidge::RenewedRidge(const StreamText& stream, const Plan& plan) : keys_(plan.shape().key_dim) {
  const Numbers numbers = numbers_of(parse_recipe(stream.recipe)).value();
  decay_ = numbers.decay, ridge_ = numbers.ridge;
  const double K = static_cast<double>(keys_);
  per_row_ = std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(K * (1 - decay_))), 1, keys_);
  const double rows = K / static_cast<double>(per_row_);
  renewed_ = rows * (1 - decay_) / (1 - std::pow(decay_, rows));
  const std::int64_t widest = std::max<std::int64_t>(keys_, plan.shape().value_dim);
  rows_.resize(static_cast<std::size_t>(per_row_ * keys_)),
      zeros_.resize(static_cast<std::size_t>(per_row_ * widest));
}

std::size_t RenewedRidge::workspace(const Plan& plan) const {
  return plan.footprint(per_row_, Form::recurrent).workspace;
}

double RenewedRidge::part(std::int64_t turn, std::int64_t row) const {
  if (turn < keys_) return std::pow(decay_, static_cast<double>(row + 1));
  const std::int64_t last = (turn - keys_) / per_row_;  // the row that renewed it
  return renewed_ * std::pow(decay_, static_cast<double>(row - last));
}

Status RenewedRidge::begin_row(const Plan& plan, State state, Workspace work) {
  const auto K = static_cast<std::ptrdiff_t>(keys_), V = static_cast<std::ptrdiff_t>(plan.shape().value_dim);
  const std::int64_t row = plan.tokens_seen(state) / (per_row_ + 1);
  const Tensor r = plan.state_tensor(state, "R"), z = plan.state_tensor(state, "Z");
  auto* const triangle = static_cast<double*>(r.data);
  auto* const values = static_cast<double*>(z.data);
  if (!triangle || !values) return Status::bad_state;
  const double root = std::sqrt(decay_);
  for (std::ptrdiff_t i = 0; i < K * K; ++i) triangle[i] *= root;
  for (std::ptrdiff_t i = 0; i < K * V; ++i) values[i] *= root;
  std::fill(rows_.begin(), rows_.end(), 0.0);
  for (std::int64_t i = 0; i < per_row_; ++i) {
    const std::int64_t turn = row * per_row_ + i;
    rows_[static_cast<std::size_t>(i * keys_ + turn % keys_)] = std::sqrt(ridge_ * (renewed_ - part(turn, row)));
  }
  Inputs in;
  const double *const zeros = zeros_.data(), *const rows = rows_.data();
  in["q"] = view(zeros, 1, per_row_, 1, K), in["k"] = view(rows, 1, per_row_, 1, K);
  in["v"] = view(zeros, 1, per_row_, 1, V);
  return plan.forward(in, state, {}, work, Form::recurrent);
}

}  // namespace ttr::cli
