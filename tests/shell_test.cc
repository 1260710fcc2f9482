// What is printed to be typed again reaches the program through a shell as it was.
#include "shell.h"

#include <cstdio>
#include <memory>

#include <gtest/gtest.h>

namespace ttr::cli {
namespace {

std::string what_a_shell_makes_of(const std::string& words) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(("printf '%s|' " + words).c_str(), "r"), pclose);
  std::string out;
  for (int c; pipe && (c = std::fgetc(pipe.get())) != EOF;) out += static_cast<char>(c);
  return out;
}

TEST(Shell, EveryWordArrivesAsItIs) {
  for (const char* word : {"nlms",
                           "rls:decay=0.98,ridge=1e-3",
                           "equal / linear / sgd(beta, momentum)",
                           "a'b",
                           "'",
                           "''",
                           "",
                           "$HOME",
                           "`id`",
                           "a\"b",
                           "*",
                           "[ab]",
                           "{a,b}",
                           "~",
                           "#1",
                           "!x",
                           "a\\b",
                           "a;b",
                           "a&b",
                           "<in",
                           ">out",
                           "a|b",
                           "a?b",
                           "=ls",
                           "a\nb",
                           "café",
                           "-",
                           "--layer",
                           "%d",
                           "gate * decay(0.98) / linear / gd(1) | keys(unit)"})
    EXPECT_EQ(what_a_shell_makes_of(shell_word(word)), std::string(word) + "|") << word;
}

TEST(Shell, QuotesStandWhereTheyAreNeededOnly) {
  EXPECT_EQ(shell_command({"regress", "data.csv", "--layer", "equal / linear / gd(1)"}),
            "ttr regress data.csv --layer 'equal / linear / gd(1)'");
  EXPECT_EQ(shell_command({"regress", "d/a_1.csv", "--layer=rls:decay=0.98"}),
            "ttr regress d/a_1.csv --layer=rls:decay=0.98");
  EXPECT_EQ(shell_command({"train", "it's"}), "ttr train 'it'\\''s'");
}

}  // namespace
}  // namespace ttr::cli
