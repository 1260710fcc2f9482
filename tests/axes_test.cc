// Axes: letters with and without blanks are the same, and what is asked of them is what stands there.
#include "ttr/axes.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace ttr {
namespace {

TEST(Axes, BlanksAreFree) {
  EXPECT_EQ(Axes("B T H K"), Axes("BTHK"));
  EXPECT_EQ(Axes("  B T  HK "), Axes("BTHK"));
  EXPECT_NE(Axes("B T H K"), Axes("B T H"));
  EXPECT_NE(Axes("B T H K"), Axes("B T K H"));
  EXPECT_EQ(Axes(std::string("H")), Axes("H"));
  EXPECT_EQ(Axes(), Axes(""));
  EXPECT_TRUE(Axes(" ").empty());
}

TEST(Axes, TextComesBack) {
  for (const char* text : {"", "H", "B T H K", "B T H K V", "H K K", "N 1 V"}) {
    EXPECT_EQ(Axes(text).to_string(), text);
    EXPECT_EQ(Axes(Axes(text).letters()), Axes(text));
  }
  EXPECT_EQ(Axes("B T H").letters(), "BTH");
}

TEST(Axes, Places) {
  constexpr Axes axes("B T H K K");
  static_assert(axes.size() == 5 && axes[1] == 'T' && axes.front() == 'B' && axes.back() == 'K');
  static_assert(axes.find('K') == 3 && axes.has('H') && !axes.has('V') && axes.find('V') == Axes::npos);
  static_assert(axes.find_any("PT") == 1 && !axes.has_any("GP"));
  EXPECT_EQ(std::string(axes.begin(), axes.end()), "BTHKK");
}

TEST(Axes, Changes) {
  EXPECT_EQ(Axes("B T H K").replaced('T', 'P'), Axes("B P H K"));
  EXPECT_EQ(Axes("H K K").replaced('K', 'F'), Axes("H F F"));
  EXPECT_EQ(Axes("B T H").replaced('V', 'K'), Axes("B T H"));
  EXPECT_EQ(Axes("B T H").without('B'), Axes("T H"));
  EXPECT_EQ(Axes("B T H").with('V'), Axes("B T H V"));
}

TEST(Axes, InnerAxesAreThoseOfOneTokenAndHead) {
  EXPECT_EQ(Axes("B T H K V").inner(), Axes("K V"));
  EXPECT_EQ(Axes("B N G K").inner(), Axes("K"));
  EXPECT_EQ(Axes("B P G").inner(), Axes());
  for (const char letter : std::string("BTPNHG")) EXPECT_FALSE(Axes::is_inner(letter)) << letter;
  for (const char letter : std::string("KVFMLWDC1")) EXPECT_TRUE(Axes::is_inner(letter)) << letter;
}

TEST(Axes, ExtentsComeFromTheCaller) {
  const std::map<char, std::ptrdiff_t> sizes = {{'B', 2}, {'T', 5}, {'K', 3}};
  const auto size_of = [&](char letter) { return sizes.at(letter); };
  EXPECT_EQ(Axes("B T K").extents(size_of), (std::vector<std::ptrdiff_t>{2, 5, 3}));
  EXPECT_EQ(Axes("B T K").count(size_of), 30);
  EXPECT_EQ(Axes().count(size_of), 1);
  EXPECT_TRUE(Axes().extents(size_of).empty());
}

TEST(Axes, TooManyLettersAreRefused) {
  EXPECT_EQ(Axes("A B C D E F G H").size(), Axes::capacity);
  try {
    Axes("A B C D E F G H I");
    FAIL() << "nine letters were accepted";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), "a tensor has at most 8 axes");
    EXPECT_EQ(e.where(), "axes ABCDEFGHI");
  }
}

}  // namespace
}  // namespace ttr
