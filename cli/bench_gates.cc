#include "bench_gates.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "random.h"
#include "safetensors.h"

namespace ttr::cli {
namespace {

constexpr std::size_t every = 64;  // numbers, or tokens

bool is_log_gate(const InputInfo& info) { return info.range == Range::log_gate; }

// dt and A of a gate dt A.
bool has_rate(const Plan& plan) {
  const auto named = [&](const char* name, Range range) {
    return std::any_of(plan.inputs().begin(), plan.inputs().end(),
                       [&](const InputInfo& info) { return info.name == name && info.range == range; });
  };
  return named("dt", Range::sigmoid) && named("A", Range::negative);
}

}  // namespace

GateKind::GateKind(const std::string& text) {
  struct Named {
    const char* name;
    Kind kind;
    double same = 0;
  };
  for (const Named& named :
       {Named{"gentle", Kind::gentle}, Named{"mixed", Kind::mixed}, Named{"strong", Kind::same, -5},
        Named{"channel", Kind::channel}, Named{"token", Kind::token}})
    if (text == named.name) {
      kind_ = named.kind, same_ = named.same;
      return;
    }
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) {
    if (!(number <= 0 && std::isfinite(number)))
      throw Error(fmt::format("--gates is {}; gates are natural logs of factors, so a number is at most 0", text),
                  "--gates");
    kind_ = Kind::same, same_ = number;
    return;
  }
  if (!text.ends_with(".safetensors"))
    throw Error(
        fmt::format("there are no gates '{}'; they can be gentle, mixed, strong, channel, token, a number or a "
                    "file that ends in .safetensors",
                    text),
        "--gates");
  kind_ = Kind::file, path_ = text;
  for (auto& [name, tensor] : read_safetensors(text).tensors) {
    if (tensor.numbers.empty()) continue;
    file_.emplace_back(name, std::move(tensor.numbers));
  }
  if (file_.empty()) throw Error(text + " has no numbers", "--gates");
}

bool GateKind::has_gates(const Plan& plan) {
  return has_rate(plan) || std::any_of(plan.inputs().begin(), plan.inputs().end(), is_log_gate);
}

void GateKind::apply(const Plan& plan, const InputInfo& info, std::int64_t time, std::vector<double>& numbers) const {
  const bool rate = has_rate(plan);
  if (gentle() || numbers.empty()) return;
  if (rate && info.name == "A") return static_cast<void>(std::fill(numbers.begin(), numbers.end(), -1.0));
  const bool step = rate && info.name == "dt";
  if (!step && !is_log_gate(info)) return;
  const std::size_t row = std::max<std::size_t>(1, numbers.size() / static_cast<std::size_t>(time));
  const std::vector<double>* stored = nullptr;
  for (const auto& [name, all] : file_)
    if (name == info.name || file_.size() == 1) stored = &all;
  if (kind_ == Kind::file && !stored)
    throw Error(fmt::format("{} has several tensors, but none named {}", path_, info.name), "--gates");
  for (std::size_t i = 0; stored && i < stored->size(); ++i)
    if (!((*stored)[i] <= 0 && std::isfinite((*stored)[i])))
      throw Error(
          fmt::format("{} has the gate {}; gates are natural logs of factors, at most 0", path_, (*stored)[i]),
          "--gates");
  SplitMix random(4242);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    double& x = numbers[i];
    // Gentle steps of a rate are gates between -1 and 0 already.
    double g = step ? -x : x;
    if (kind_ == Kind::mixed) g = -8 * random.uniform();
    if (kind_ == Kind::same) g = same_;
    if (kind_ == Kind::channel && i % row % every == 0) g = -5;
    if (kind_ == Kind::token && i / row % every == every / 2) g = -20;
    if (kind_ == Kind::file) g = (*stored)[i % stored->size()];
    x = step ? -g : g;
  }
}

}  // namespace ttr::cli
