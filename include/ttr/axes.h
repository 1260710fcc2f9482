// The axes of a tensor by their letters, as InputInfo::shape and StateInfo::shape write them: "B T H K".
//
//   constexpr ttr::Axes axes("B T H K");                         // blanks are free: "BTHK" is the same
//   constexpr std::size_t heads = axes.find('H');                // 2; Axes::npos if there is no such axis
//   std::string of_pairs = axes.replaced('T', 'P').to_string();  // "B P H K"
//
// A value of a few bytes: copying it allocates nothing. A letter may stand twice ("H K K", a square matrix); find gives
// the first of them. Which letter means what: docs/recipes.md.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ttr/status.h"

namespace ttr {

class Axes {
 public:
  static constexpr std::size_t capacity = 8;
  static constexpr std::size_t npos = std::string_view::npos;

  constexpr Axes() = default;
  /// Throws Error for more than `capacity` letters.
  constexpr Axes(std::string_view text) {
    for (const char letter : text)
      if (letter != ' ') push_back(letter);
  }
  constexpr Axes(const char* text) : Axes(std::string_view(text)) {}
  Axes(const std::string& text) : Axes(std::string_view(text)) {}

  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr char operator[](std::size_t i) const { return letters_[i]; }
  constexpr char front() const { return letters_[0]; }
  constexpr char back() const { return letters_[size_ - 1u]; }
  constexpr const char* begin() const { return letters_.data(); }
  constexpr const char* end() const { return letters_.data() + size_; }

  /// Without blanks: "BTHK". Lives as long as the axes.
  constexpr std::string_view letters() const { return {letters_.data(), size_}; }
  /// With blanks: "B T H K".
  std::string to_string() const {
    std::string text;
    for (const char letter : letters()) (text += text.empty() ? "" : " ") += letter;
    return text;
  }

  constexpr std::size_t find(char letter) const { return letters().find(letter); }
  constexpr bool has(char letter) const { return find(letter) != npos; }
  /// The first axis that is one of `any`: find_any("TP") is the time, of tokens or of pairs.
  constexpr std::size_t find_any(std::string_view any) const { return letters().find_first_of(any); }
  constexpr bool has_any(std::string_view any) const { return find_any(any) != npos; }

  constexpr void push_back(char letter) {
    if (size_ == capacity) throw Error("a tensor has at most 8 axes", "axes " + std::string(letters()) + letter);
    letters_[size_++] = letter;
  }
  constexpr Axes with(char letter) const {
    Axes longer = *this;
    longer.push_back(letter);
    return longer;
  }
  /// Every `from` becomes `to`.
  constexpr Axes replaced(char from, char to) const {
    Axes other = *this;
    for (std::size_t i = 0; i < size_; ++i)
      if (letters_[i] == from) other.letters_[i] = to;
    return other;
  }
  /// The axes without any `letter`.
  constexpr Axes without(char letter) const {
    Axes rest;
    for (const char own : letters())
      if (own != letter) rest.push_back(own);
    return rest;
  }

  /// Whether a letter is an axis of the numbers of one token and head (K V F M ...), not of batch, time or heads.
  static constexpr bool is_inner(char letter) { return std::string_view("BTPNHG").find(letter) == npos; }
  /// The inner axes: "K V" of "B T H K V".
  constexpr Axes inner() const {
    Axes rest;
    for (const char letter : letters())
      if (is_inner(letter)) rest.push_back(letter);
    return rest;
  }

  /// One extent per axis, each from extent_of(letter).
  template <class ExtentOf>
  auto extents(ExtentOf&& extent_of) const {
    std::vector<std::decay_t<decltype(extent_of('B'))>> all;
    all.reserve(size_);
    for (const char letter : letters()) all.push_back(extent_of(letter));
    return all;
  }
  /// The product of the extents: how many numbers such a tensor holds.
  template <class ExtentOf>
  constexpr auto count(ExtentOf&& extent_of) const {
    std::decay_t<decltype(extent_of('B'))> product = 1;
    for (const char letter : letters()) product *= extent_of(letter);
    return product;
  }

  constexpr bool operator==(const Axes&) const = default;

 private:
  std::array<char, capacity> letters_{};  // behind the last letter: zero, so that equality is that of the arrays
  unsigned char size_ = 0;
};

}  // namespace ttr
