// Which instruction sets there are, and the table of one of them.
#include "simd/simd.h"
#include "simd/count.h"
#include "simd/targets.h"

#include "hwy/highway.h"
#include "hwy/targets.h"
#include "ttr/status.h"

namespace ttr {
namespace simd_detail {

std::vector<long long> runnable() {
  std::vector<long long> targets;
  // A lower bit is a better target. The fallback (SCALAR or EMU128) always runs, but SupportedTargets may leave it
  // out.
  const long long supported = hwy::SupportedTargets() | HWY_BASELINE_SCALAR;
  for (int bit = 0; bit < 63; ++bit) {
    const long long target = 1LL << bit;
    if ((HWY_TARGETS & target) && (supported & target)) targets.push_back(target);
  }
  return targets;
}

}  // namespace simd_detail

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (const long long target : simd_detail::runnable()) names.emplace_back(hwy::TargetName(target));
  return names;
}

template <class T>
const Simd<T>& simd(std::string_view name) {
  static const std::vector<Simd<T>> tables = [] {
    std::vector<Simd<T>> all;
    for (const long long target : simd_detail::runnable())
      all.push_back({simd_detail::products<T>(target), simd_detail::vectors<T>(target), hwy::TargetName(target),
                     target, false});
    return all;
  }();
  for (const Simd<T>& table : tables)
    if (name.empty() || name == table.name) return table;
  std::string have;
  for (const Simd<T>& table : tables) have += (have.empty() ? "" : ", ") + std::string(table.name);
  throw Error("no instruction set '" + std::string(name) + "' on this machine or in this build; there is " + have +
                  ". Leave the target empty for the best",
              "target");
}

template <class T>
const Simd<T>& counted_simd(std::string_view name) {
  const Simd<T>& plain = simd<T>(name);
  static const Simd<T> counted = {simd_detail::counting(simd_detail::products<T>(plain.target)),
                                  simd_detail::counting(simd_detail::vectors<T>(plain.target)), plain.name,
                                  plain.target, true};
  if (counted.target != plain.target)
    throw Error("multiply-adds are counted on " + std::string(counted.name) + " in this process, and " +
                    std::string(plain.name) + " was asked for; count on one instruction set in a process",
                "options.count");
  return counted;
}

template const Simd<float>& counted_simd<float>(std::string_view);
template const Simd<double>& counted_simd<double>(std::string_view);
template const Simd<float>& simd<float>(std::string_view);
template const Simd<double>& simd<double>(std::string_view);

}  // namespace ttr
