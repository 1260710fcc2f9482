// Commands as a shell must be given them: what the program prints to be typed again is written by these.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ttr::cli {

/// In single quotes, whatever it is.
std::string shell_quoted(std::string_view word);
/// In single quotes unless no shell sees more in it than letters.
std::string shell_word(std::string_view word);
/// "ttr regress data.csv --layer 'equal / linear / gd(1)'", from the words after `ttr`.
std::string shell_command(const std::vector<std::string>& words);

}  // namespace ttr::cli
