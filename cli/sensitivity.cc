#include "sensitivity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "random.h"

namespace ttr::cli {
namespace {

// Relative moves of the inputs. Where one leaves less than two digits, its ratio is only a lower bound, because a result
// cannot change by much more than its size: a shorter move shows more.
constexpr double moves[] = {1e-8, 1e-11, 1e-14}, leaves_nothing = 1e-2;
constexpr std::uint64_t trials = 6;  // directions; the largest change counts

// phi(x) [B, T, H, F]: what a memory that is the identity matrix answers to x, and learns nothing.
Numbers features_of_rows(const Plan& literal, const Recipe& recipe, const NamedNumbers& inputs,
                         const std::string& rows, std::int64_t time) {
  Recipe reader = parse_recipe("equal / linear / sgd(beta=0)");
  reader.memory = recipe.memory;
  for (const Term& term : recipe.extras)
    if (term.word == "keys") reader.extras.push_back(term);
  Options options = literal.options();
  options.causal = true;
  Shape shape = literal.shape();
  const auto read = [&](std::size_t values, const NamedNumbers& state) {
    shape.value_dim = static_cast<int>(values);
    const Runner runner(plan(reader, shape, options), time);
    NamedNumbers in;
    for (const InputInfo& info : runner.plan().inputs()) {
      const std::string name = info.name == "q" || info.name == "k" ? rows : info.name;
      in[info.name] = info.name == "v" ? Numbers(count(runner.plan(), info.shape, time)) : inputs.at(name);
    }
    return runner.forward(in, state, Form::recurrent);
  };
  const std::size_t memories = static_cast<std::size_t>(shape.batch * shape.heads);
  const std::size_t features = read(1, {}).state.at("S").size() / memories;
  Numbers identity(memories * features * features);
  for (std::size_t i = 0; i < identity.size(); ++i) {
    const std::size_t entry = i % (features * features);
    identity[i] = entry / features == entry % features;
  }
  return read(features, {{"S", identity}}).outputs.at("o");
}

// Of the singular values s of n rows of F numbers, the largest s^2 + ridge over the smallest. By one-sided Jacobi
// rotations: those lose no digit of a small singular value, which the square root of an eigenvalue of the products would.
double condition_of(const double* rows, std::size_t n, std::size_t F, double ridge) {
  const bool wide = F > n;  // rotate the shorter side
  const std::size_t vectors = wide ? n : F, length = wide ? F : n;
  std::vector<Numbers> a(vectors, Numbers(length));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t f = 0; f < F; ++f) (wide ? a[i][f] : a[f][i]) = rows[i * F + f];
  const auto dot = [&](std::size_t i, std::size_t j) {
    return std::inner_product(a[i].begin(), a[i].end(), a[j].begin(), 0.0);
  };
  for (int sweep = 0; sweep < 30; ++sweep) {
    bool rotated = false;
    for (std::size_t i = 0; i < vectors; ++i)
      for (std::size_t j = i + 1; j < vectors; ++j) {
        const double ii = dot(i, i), jj = dot(j, j), ij = dot(i, j);
        if (std::abs(ij) <= 1e-15 * std::sqrt(ii * jj)) continue;
        rotated = true;
        const double zeta = (jj - ii) / (2 * ij);
        const double t = std::copysign(1.0, zeta) / (std::abs(zeta) + std::hypot(1.0, zeta));
        const double c = 1 / std::hypot(1.0, t), s = c * t;
        for (std::size_t r = 0; r < length; ++r) {
          const double x = a[i][r], y = a[j][r];
          a[i][r] = c * x - s * y, a[j][r] = s * x + c * y;
        }
      }
    if (!rotated) break;
  }
  double most = 0, least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < vectors; ++i) most = std::max(most, dot(i, i)), least = std::min(least, dot(i, i));
  return most == 0 ? 1 : (most + ridge) / (least + ridge);
}

}  // namespace

Sensitivity measure_sensitivity(const Runner& literal, const SolvedCall& call, double floor, std::uint64_t seed) {
  const Form form = literal.plan().options().causal ? Form::recurrent : Form::parallel;
  Sensitivity most;
  for (std::uint64_t trial = 0; trial < trials; ++trial) {
    for (const double moved_by : moves) {
      SplitMix random(seed + trial);
      NamedNumbers moved = call.inputs;
      for (auto& [name, numbers] : moved)
        for (double& x : numbers) x *= 1 + moved_by * (random.uniform() < 0.5 ? -1 : 1);
      try {
        const double answers = relative_error(literal.forward(moved, {}, form).outputs, call.outputs);
        const double gradients =
            relative_error(literal.backward(moved, {}, call.d_outputs, {}, form).inputs, call.gradients, floor);
        most.answers = std::max(most.answers, answers / moved_by);
        most.gradients = std::max(most.gradients, gradients / moved_by);
        if (!(std::max(answers, gradients) > leaves_nothing)) break;
      } catch (const Error&) {
        return {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
      }
    }
  }
  return most;
}

double condition_of_features(const Plan& literal, const Recipe& recipe, const NamedNumbers& inputs,
                             std::int64_t pairs, std::int64_t most_pairs, double ridge) {
  if (recipe.memory.word != "linear") return 1;
  const Shape& shape = literal.shape();
  const std::size_t H = static_cast<std::size_t>(shape.heads), B = static_cast<std::size_t>(shape.batch);
  const std::size_t P = static_cast<std::size_t>(pairs);
  const Numbers k = features_of_rows(literal, recipe, inputs, "k", pairs);
  const std::size_t F = k.size() / (B * P * H);
  // Pairs that have faded count less: a gate of tokens, or a constant.
  const auto g = inputs.find("g");
  const bool gated = g != inputs.end() && g->second.size() == B * P * H;
  double constant = 0;
  for (const Term& term : recipe.weights)
    if (term.word == "decay" && !term.arguments.empty() && term.arguments[0].is_number())
      constant = std::log(term.arguments[0].number());
  double most = 1;
  for (std::size_t bh = 0; bh < B * H; ++bh) {
    Numbers rows;
    for (std::size_t t = 0; t < P; ++t) {
      const double fade = std::exp(0.5 * (gated ? g->second[(bh / H * P + t) * H + bh % H] : constant));
      for (double& x : rows) x *= fade;
      const auto row = k.begin() + static_cast<std::ptrdiff_t>(((bh / H * P + t) * H + bh % H) * F);
      rows.insert(rows.end(), row, row + static_cast<std::ptrdiff_t>(F));
      const std::size_t first =
          t + 1 > static_cast<std::size_t>(most_pairs) ? t + 1 - static_cast<std::size_t>(most_pairs) : 0;
      most = std::max(most, condition_of(rows.data() + first * F, t + 1 - first, F, ridge));
    }
  }
  return most;
}

double longest_before_norm(const Runner& literal, const NamedNumbers& inputs) {
  const Plan& plan = literal.plan();
  if (plan.recipe().memory.word != "layernorm" || plan.recipe().memory.has("bias")) return 1;
  const Shape& shape = plan.shape();
  const std::size_t H = static_cast<std::size_t>(shape.heads), B = static_cast<std::size_t>(shape.batch),
                    K = static_cast<std::size_t>(shape.key_dim), V = static_cast<std::size_t>(shape.value_dim);
  const std::int64_t T = literal.time();
  double most = 1;
  for (std::int64_t t = 1; t <= T; ++t) {
    NamedNumbers prefix;
    for (const InputInfo& info : plan.inputs())
      prefix[info.name] = tokens_of(plan, inputs.at(info.name), info.shape, T, 0, t);
    const NamedNumbers state = Runner(plan, t).forward(prefix, {}, Form::recurrent).state;
    const auto found = state.find("W0");
    if (found == state.end()) return 1;
    for (const auto& [name, at] : {std::pair("q", t - 1), std::pair("k", t)}) {
      const auto rows = inputs.find(name);
      if (rows == inputs.end() || at >= T) continue;
      const std::size_t heads = rows->second.size() / (B * static_cast<std::size_t>(T) * K);
      for (std::size_t bh = 0; bh < B * H; ++bh) {
        const double* const S = found->second.data() + bh * K * V;
        const std::size_t token = bh / H * static_cast<std::size_t>(T) + static_cast<std::size_t>(at);
        const double* const x = rows->second.data() + (token * heads + bh % H / (H / heads)) * K;
        Numbers answer(V);
        for (std::size_t i = 0; i < K; ++i)
          for (std::size_t j = 0; j < V; ++j) answer[j] += x[i] * S[i * V + j];
        const double mean = std::accumulate(answer.begin(), answer.end(), 0.0) / static_cast<double>(V);
        double left = 0;
        for (const double y : answer) left += (y - mean) * (y - mean);
        const double sizes = std::inner_product(S, S + K * V, S, 0.0) * std::inner_product(x, x + K, x, 0.0);
        if (left > 0) most = std::max(most, std::sqrt(sizes / left));
      }
    }
  }
  return most;
}

}  // namespace ttr::cli
