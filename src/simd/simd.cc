// Which instruction sets there are, and the table of one of them.
#include "simd/simd.h"
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
      all.push_back(
          {simd_detail::products<T>(target), simd_detail::vectors<T>(target), hwy::TargetName(target), target});
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

template const Simd<float>& simd<float>(std::string_view);
template const Simd<double>& simd<double>(std::string_view);

}  // namespace ttr
