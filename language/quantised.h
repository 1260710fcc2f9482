// How numbers of weights are stored, and how they become floats.
//
//   F32 F16 BF16   one number each
//   Q8_0           32 numbers: half d, 32 signed bytes q;              x = d q
//   Q4_0           32 numbers: half d, 16 bytes;                       x_j = d (low_j - 8), x_{j+16} = d (high_j - 8)
//   Q4_K Q5_K      256 numbers: halves d and m, 8 sub-blocks with a scale and a least value of six bits each
//   Q6_K           256 numbers: 16 sub-blocks with a scale of eight bits; the half d comes last
//
// The blocks are those of GGUF files. A row of a matrix is a whole number of blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ttr::model {

enum class Stored : int { f32, f16, bf16, q8_0, q4_0, q4_k, q5_k, q6_k };

std::string_view to_string(Stored) noexcept;  // "F32", "Q8_0", ...
/// Numbers of a block, and its bytes.
std::ptrdiff_t block_numbers(Stored) noexcept;
std::ptrdiff_t block_bytes(Stored) noexcept;
/// Bytes of a row of `n` numbers, which is a multiple of block_numbers.
inline std::ptrdiff_t row_bytes(Stored type, std::ptrdiff_t n) noexcept {
  return n / block_numbers(type) * block_bytes(type);
}

/// `n` numbers from the start of a block on, as floats; exact. `n` is a multiple of block_numbers.
void widen(Stored, std::ptrdiff_t n, const std::byte* from, float* to) noexcept;
/// The nearest in a stored type: F32, F16, BF16, Q8_0 (d = largest / 127) or Q4_0 (d = the number of largest size / -8).
void narrow(Stored, std::ptrdiff_t n, const float* from, std::byte* to) noexcept;

/// The place that is read `ahead` bytes after `at` by a thread that reads up to `end`, and then likely what lies from `after` on (or
/// null): to be asked for in time. It need not be anywhere.
inline std::uintptr_t read_next(const std::byte* at, std::ptrdiff_t ahead, const std::byte* end,
                                const std::byte* after) noexcept {
  const std::uintptr_t place = reinterpret_cast<std::uintptr_t>(at) + static_cast<std::uintptr_t>(ahead);
  const std::uintptr_t last = reinterpret_cast<std::uintptr_t>(end);
  return place < last || !after ? place : reinterpret_cast<std::uintptr_t>(after) + (place - last);
}

}  // namespace ttr::model
