#include "sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ttr/status.h"

namespace ttr::cli {

void Sampling::check() const {
  const auto refuse = [](const char* option, double value, const char* what) {
    throw Error(fmt::format("{} is {}; it is {}", option, value, what), option);
  };
  if (!(temperature >= 0) || std::isinf(temperature)) refuse("--temperature", temperature, "a number from 0 on");
  if (!(top_p > 0 && top_p <= 1)) refuse("--top-p", top_p, "above 0 and at most 1");
  if (top_k < 0) refuse("--top-k", top_k, "at least 0");
  if (!(min_p >= 0 && min_p < 1)) refuse("--min-p", min_p, "at least 0 and below 1");
  if (!(penalty > 0) || std::isinf(penalty)) refuse("--repeat-penalty", penalty, "a number above 0");
}

void check_logits(std::span<const double> logits, std::string_view whose) {
  std::size_t wrong = 0, least = 0;
  for (const double x : logits) {
    if (std::isnan(x) || (std::isinf(x) && x > 0)) ++wrong;
    else if (std::isinf(x)) ++least;
  }
  if (wrong > 0 || least == logits.size())
    throw Error(
        fmt::format("the logits of {} are not numbers: {} of {} are NaN or infinite; its weights or settings are "
                    "not what it was trained with, or too large for floats",
                    whose, wrong > 0 ? wrong : least, logits.size()),
        "logits");
}

double Shares::of(std::int32_t token) const {
  for (const auto& [share, one] : list)
    if (one == token) return share / sum;
  return 0;
}

Shares shares_of(std::span<const double> logits, const Sampling& how, std::span<const std::int32_t> before) {
  check_logits(logits);
  std::vector<double> changed;
  if (how.penalty != 1 && !before.empty()) {
    changed.assign(logits.begin(), logits.end());
    const std::size_t recent = std::min(before.size(), static_cast<std::size_t>(std::max(0, how.recent)));
    std::vector<std::int32_t> seen(before.end() - static_cast<std::ptrdiff_t>(recent), before.end());
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (const std::int32_t token : seen) {
      double& x = changed[static_cast<std::size_t>(token)];
      x = x > 0 ? x / how.penalty : x * how.penalty;
    }
    logits = changed;
  }
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  Shares result;
  if (how.temperature <= 0) {
    result.list = {{1.0, static_cast<std::int32_t>(likeliest - logits.begin())}};
    result.sum = 1, result.certain = true;
    return result;
  }
  double all = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double share = logits[i] == *likeliest ? 1 : std::exp((logits[i] - *likeliest) / how.temperature);
    if (share >= how.min_p) result.list.emplace_back(share, static_cast<std::int32_t>(i));
    all += share;
  }
  const auto more = [](const auto& a, const auto& b) { return a.first > b.first; };
  std::stable_sort(result.list.begin(), result.list.end(), more);
  if (how.top_k > 0 && result.list.size() > static_cast<std::size_t>(how.top_k))
    result.list.resize(static_cast<std::size_t>(how.top_k));
  std::size_t kept = 0;
  while (kept < result.list.size() && (kept == 0 || result.sum < how.top_p * all))
    result.sum += result.list[kept++].first;
  result.list.resize(kept);
  return result;
}

std::int32_t draw(const Shares& shares, model::Random& random) {
  if (shares.certain) return shares.list[0].second;
  double left = random.uniform() * shares.sum;
  for (const auto& [share, token] : shares.list)
    if ((left -= share) <= 0) return token;
  return shares.list.back().second;
}

}  // namespace ttr::cli
