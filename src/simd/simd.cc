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
  const std::vector<long long> targets = simd_detail::runnable();
  for (const long long target : targets)
    if (name.empty() || name == hwy::TargetName(target)) return *simd_detail::table<T>(target);
  std::string have;
  for (const long long target : targets) have += (have.empty() ? "" : ", ") + std::string(hwy::TargetName(target));
  throw Error("no instruction set '" + std::string(name) + "' on this machine or in this build; there is " + have +
                  ". Leave the target empty for the best",
              "target");
}

template const Simd<float>& simd<float>(std::string_view);
template const Simd<double>& simd<double>(std::string_view);

}  // namespace ttr
