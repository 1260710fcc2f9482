// CRC-32 as in zlib and PNG (polynomial 0x04C11DB7, bits reversed): finds every change of up to 32 bits in a row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ttr {

inline constexpr std::array<std::uint32_t, 256> crc32_table = [] {
  std::array<std::uint32_t, 256> entries{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t x = i;
    for (int bit = 0; bit < 8; ++bit) x = x & 1 ? 0xEDB88320u ^ x >> 1 : x >> 1;
    entries[i] = x;
  }
  return entries;
}();

class Crc32 {
 public:
  void add(std::span<const std::byte> bytes) noexcept {
    for (const std::byte b : bytes) sum_ = crc32_table[(sum_ ^ static_cast<std::uint32_t>(b)) & 255] ^ sum_ >> 8;
  }
  std::uint32_t value() const noexcept { return ~sum_; }

 private:
  std::uint32_t sum_ = ~std::uint32_t{0};
};

}  // namespace ttr
