// A seal on a .safetensors file: metadata "crc32", the CRC-32 of all bytes of the file in which its own eight digits are
// zeros. Nothing at all may change under it, names and metadata included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/crc32.h"
#include "ttr/safetensors.h"

namespace ttr {

namespace seal_detail {
inline constexpr std::string_view no_sum = "00000000";

// Where the digits stand; behind the end if nowhere.
inline std::size_t place(std::span<const std::byte> bytes) {
  constexpr std::string_view key = "\"crc32\":\"";
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t at = text.find(key);
  return at == std::string_view::npos || at + key.size() + no_sum.size() > text.size() ? bytes.size()
                                                                                       : at + key.size();
}

inline std::string sum(std::span<const std::byte> bytes, std::size_t at) {
  Crc32 crc;
  crc.add(bytes.first(at));
  crc.add(std::as_bytes(std::span(no_sum)));
  crc.add(bytes.subspan(at + no_sum.size()));
  constexpr char hex[] = "0123456789abcdef";
  std::string digits(8, '0');
  for (std::size_t i = 0; i < 8; ++i) digits[7 - i] = hex[crc.value() >> 4 * i & 15];
  return digits;
}
}  // namespace seal_detail

/// The bytes of the file with its seal.
inline std::vector<std::byte> sealed(TensorFile file) {
  file.metadata["crc32"] = seal_detail::no_sum;
  std::vector<std::byte> bytes = to_bytes(file);
  const std::size_t at = seal_detail::place(bytes);
  const std::string sum = seal_detail::sum(bytes, at);
  std::memcpy(bytes.data() + at, sum.data(), sum.size());
  return bytes;
}

/// Whether bytes have a seal and it is whole.
inline bool is_sealed(std::span<const std::byte> bytes) {
  const std::size_t at = seal_detail::place(bytes);
  if (at == bytes.size()) return false;
  const std::string sum = seal_detail::sum(bytes, at);
  return std::memcmp(bytes.data() + at, sum.data(), sum.size()) == 0;
}

}  // namespace ttr
