#include "check_case.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "commands.h"
#include "random.h"
#include "runner.h"

namespace ttr::cli {

std::string name_of(const Case& c) {
  std::string name = fmt::format("B{}-T{}-H{}", c.batch, c.time, c.heads);
  if (c.key_heads) name += fmt::format("-G{}", c.key_heads);
  name += fmt::format("-K{}-V{}", c.key_dim, c.value_dim);
  if (c.chunk) name += fmt::format("-C{}", c.chunk);
  return name + fmt::format("-{}{}{}{}-seed{}", c.type == Type::f32 ? "f32" : "f64", c.alone ? "-alone" : "",
                            c.strong ? "-strong" : "", c.closed ? "-closed" : "", c.seed);
}

// Odd sizes, one token, groups of heads, chunks that do and do not divide the time; strong gates, and closed ones;
// more tokens than a block of time, a tile of pairs or a round of a scan has, with a last round that is short; more heads and sequences than go
// together anywhere (16 heads in a call of one token; of nine channels, because with fewer the norm of ttt-linear
// magnifies the rounding of floats to the tolerance); one head with wide keys, and enough work in each of two calls for
// threads to share its columns.
std::vector<Case> standard_cases() {
  return {
      {2, 7, 1, 0, 3, 5, 0, Type::f64, 1, true},
      {1, 12, 4, 2, 4, 3, 5, Type::f64, 2, true},
      {1, 1, 2, 0, 5, 4, 0, Type::f64, 3, true},
      {2, 33, 2, 1, 8, 6, 16, Type::f64, 4, false},
      {1, 40, 1, 0, 1, 1, 0, Type::f64, 5, false},
      {1, 66, 2, 0, 17, 9, 32, Type::f64, 6, false},
      {2, 7, 1, 0, 3, 5, 0, Type::f32, 7, false},
      {1, 63, 3, 0, 16, 20, 0, Type::f32, 8, false},
      {2, 31, 4, 2, 12, 8, 8, Type::f32, 9, false},
      {1, 100, 2, 0, 8, 5, 64, Type::f32, 10, false, false, true},
      {1, 260, 2, 0, 5, 3, 16, Type::f64, 11, false, true},
      {1, 1130, 1, 0, 4, 3, 16, Type::f64, 12, false, true, false, Case::For::plain},
      {3, 270, 17, 0, 9, 17, 0, Type::f32, 13, false, true, false, Case::For::kernel},
      {1, 45, 1, 0, 70, 70, 0, Type::f64, 14, false, true, false, Case::For::kernel},
      {1, 21, 2, 0, 5, 4, 8, Type::f64, 15, false, false, false, Case::For::all, true},
      {2, 21, 2, 0, 5, 4, 8, Type::f32, 16, false, false, false, Case::For::all, true},
  };
}

Case parse_case(const std::string& text) {
  Case c;
  bool has_type = false;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t dash = std::min(text.find('-', at), text.size());
    const std::string word = text.substr(at, dash - at);
    at = dash + 1;
    if (word == "f32" || word == "f64") {
      c.type = word == "f32" ? Type::f32 : Type::f64;
      has_type = true;
      continue;
    }
    if (word == "alone" || word == "strong" || word == "closed") {
      (word == "alone" ? c.alone : word == "strong" ? c.strong : c.closed) = true;
      continue;
    }
    const std::size_t letters = word.starts_with("seed") ? 4 : 1;
    long number = -1;
    const char* begin = word.data() + std::min(letters, word.size());
    const auto [end, error] = std::from_chars(begin, word.data() + word.size(), number);
    const std::string key = word.substr(0, letters);
    const bool good = error == std::errc() && end == word.data() + word.size() && number >= 0 && number <= 1'000'000;
    int* field = key == "B"   ? &c.batch
                 : key == "T" ? &c.time
                 : key == "H" ? &c.heads
                 : key == "G" ? &c.key_heads
                 : key == "K" ? &c.key_dim
                 : key == "V" ? &c.value_dim
                 : key == "C" ? &c.chunk
                              : nullptr;
    if (!good || (!field && key != "seed"))
      throw Error(fmt::format("'{}' is not part of a case; a case reads B2-T7-H1-K3-V5-f64-seed1", word),
                  "case " + text);
    if (field) *field = static_cast<int>(number);
    else c.seed = static_cast<std::uint64_t>(number);
  }
  if (!has_type) throw Error("the case has no type; a case reads B2-T7-H1-K3-V5-f64-seed1", "case " + text);
  c.differences = c.type == Type::f64 && c.time <= 12 && c.key_dim <= 8 && !c.alone;
  return c;
}

namespace {
double softplus(double x) { return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0); }
}  // namespace

std::vector<double> random_input(const Plan& plan, const InputInfo& info, std::int64_t time, std::uint64_t seed) {
  SplitMix random(seed);
  std::vector<double> numbers(count(plan, info.shape, time));
  const auto extent = plan.extents(info.shape, time);
  const std::ptrdiff_t rows = extent.size() < 2 ? 1 : extent[extent.size() - 2];
  for (double& x : numbers) {
    const double z = random.normal();
    switch (info.range) {
      case Range::normal:
      case Range::unit:
        x = z;
        break;
      case Range::sigmoid:
        x = 1 / (1 + std::exp(-z));
        break;
      case Range::log_gate:
        x = -softplus(-z - 2);
        break;
      case Range::factor:
        x = std::abs(z) < 0.05 ? 0 : std::tanh(z);
        break;
      case Range::positive:
        x = softplus(z) + 0.1;
        break;
      case Range::negative:
        x = -softplus(z);
        break;
      case Range::small:
        x = z / 10;
        break;
      case Range::rate:
        x = 0.1 / (1 + std::exp(-z));
        break;
      case Range::weights:
        x = z / std::sqrt(static_cast<double>(rows));
        break;
      case Range::fresh:
        x = 0;
        break;
    }
  }
  const std::size_t last = extent.empty() ? 1 : static_cast<std::size_t>(extent.back());
  if (info.range == Range::unit)
    for (std::size_t base = 0; base < numbers.size(); base += last) {
      double square = 0;
      for (std::size_t i = 0; i < last; ++i) square += numbers[base + i] * numbers[base + i];
      for (std::size_t i = 0; i < last; ++i) numbers[base + i] /= std::sqrt(square);
    }
  for (double& x : numbers) x = static_cast<float>(x);  // the same numbers in both precisions
  return numbers;
}

bool is_gate(const InputInfo& info) { return info.range == Range::log_gate || info.range == Range::negative; }

void open_gates(const Plan& plan, NamedNumbers& inputs) {
  for (const InputInfo& info : plan.inputs())
    if (info.range == Range::log_gate)
      for (double& x : inputs[info.name]) x = static_cast<float>(x / 64);
}

void make_strong(const Plan& plan, std::uint64_t seed, NamedNumbers& inputs) {
  SplitMix random(seed + 99);
  for (const InputInfo& info : plan.inputs()) {
    Numbers& numbers = inputs[info.name];
    if (info.range == Range::log_gate)
      for (double& x : numbers) x = static_cast<float>(-2.5 - 0.1 * random.uniform());
    if (info.name == "v")
      for (double& x : numbers) x *= 1e5;
  }
}

std::vector<std::string> close_gates(const Plan& plan, NamedNumbers& inputs) {
  std::vector<std::string> closed;
  for (const InputInfo& info : plan.inputs()) {
    if (!is_gate(info)) continue;
    closed.push_back(info.name);
    for (double& x : inputs[info.name]) {
      const double part = 1 - std::exp(x);
      x = static_cast<float>(info.range == Range::log_gate ? -15 - 5 * part : -20 - 20 * part);
    }
  }
  return closed;
}

}  // namespace ttr::cli
