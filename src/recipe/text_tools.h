// What people type: numbers, and words that are nearly right.
#pragma once

#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace ttr {

/// The number that `text` is, all of it; nothing if it is none, or not finite.
template <class N>
std::optional<N> read_number(std::string_view text) {
  N number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::is_floating_point_v<N>)
    if (!std::isfinite(number)) return std::nullopt;
  return number;
}

/// The candidate nearest in spelling (at most about a third of the letters wrong), or empty.
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

}  // namespace ttr
