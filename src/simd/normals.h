// Normal numbers by a fixed rule, many at a time, and the same bits on every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ttr {

/// out_i = n_{first + i} / divisor, where n_j = sqrt(-2 log u) cos(2 pi v) of the uniform numbers 2 j and 2 j + 1 that
/// SplitMix64 makes of the seed. Within a few roundings of what a library's log and cos make of it. On the instruction set
/// `target` (simd_targets()); empty: the best of this machine.
void normals(std::uint64_t seed, std::uint64_t first, std::ptrdiff_t n, double divisor, double* out,
             std::string_view target = {});

}  // namespace ttr
