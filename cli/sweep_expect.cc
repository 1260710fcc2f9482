// What a sweep must show: `expect = DeltaNet > Mamba + 0.5; GLA < 0.2`.
//
// Statements are separated by semicolons. A side is the name of a line of the table (its labels, joined by ", ") or a
// number; a number may be added to the right side or subtracted from it. Names may have blanks and signs in them, so
// that < > + - count between blanks alone.
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "sweep.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

std::optional<double> number_of(const std::string& text) {
  double number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

class Claims {
 public:
  Claims(const SweepSpec& spec, const std::vector<SweepGroup>& groups) : spec_(spec), groups_(groups) {}

  /// Whether `claim` holds, and otherwise the sentence.
  std::string unmet(const std::string& claim) const {
    const std::size_t less = claim.find(" < "), more = claim.find(" > ");
    if ((less == std::string::npos) == (more == std::string::npos))
      fail(claim, "compares nothing; write A > B, A > B + 0.1 or A < 0.2");
    const std::size_t at = std::min(less, more);
    const double left = side(trimmed(claim.substr(0, at)), claim);
    std::string right = trimmed(claim.substr(at + 3));
    double added = 0;
    for (const char* sign : {" + ", " - "}) {
      const std::size_t mark = right.rfind(sign);
      if (mark == std::string::npos) continue;
      if (const auto number = number_of(trimmed(right.substr(mark + 3)))) {
        added = sign[1] == '+' ? *number : -*number, right = trimmed(right.substr(0, mark));
        break;
      }
    }
    const double bound = side(right, claim) + added;
    if (less != std::string::npos ? left < bound : left > bound) return "";
    return fmt::format("'{}' is not so: {:.4f} and {:.4f}", claim, left, bound);
  }

 private:
  [[noreturn]] void fail(const std::string& claim, const std::string& why) const {
    throw Error(fmt::format("expect: '{}' {}", claim, why), "expect");
  }
  double side(const std::string& text, const std::string& claim) const {
    for (const SweepGroup& group : groups_)
      if (group_name(spec_, group) == text) return group.score;
    if (const auto number = number_of(text)) return *number;
    std::vector<std::string> names;
    for (const SweepGroup& group : groups_) names.push_back(group_name(spec_, group));
    fail(claim, fmt::format("speaks of '{}'; there are {}", text, fmt::join(names, "; ")));
  }

  const SweepSpec& spec_;
  const std::vector<SweepGroup>& groups_;
};

}  // namespace

std::vector<std::string> unmet_claims(const SweepSpec& spec, const std::vector<SweepGroup>& groups) {
  const Claims claims(spec, groups);
  std::vector<std::string> sentences;
  std::size_t at = 0;
  while (at < spec.expect.size()) {
    const std::size_t end = std::min(spec.expect.find(';', at), spec.expect.size());
    if (const std::string claim = trimmed(spec.expect.substr(at, end - at)); !claim.empty())
      if (const std::string sentence = claims.unmet(claim); !sentence.empty()) sentences.push_back(sentence);
    at = end + 1;
  }
  return sentences;
}

}  // namespace ttr::cli
