#include "recipe/text_tools.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ttr {

std::string nearest_word(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  if (word.size() > 64) return best;
  std::size_t best_distance = word.size() <= 3 ? 2 : word.size() / 3 + 2;  // found distances must be below
  for (const std::string& candidate : candidates) {
    // Edit distance in which two swapped neighbours count once.
    std::vector<std::size_t> before, last, row(candidate.size() + 1);
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= word.size(); ++i) {
      before = std::exchange(last, row);
      row[0] = i;
      for (std::size_t j = 1; j < row.size(); ++j) {
        row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (word[i - 1] != candidate[j - 1])});
        const bool swapped = i > 1 && j > 1 && word[i - 1] == candidate[j - 2] && word[i - 2] == candidate[j - 1];
        if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    const bool prefix = word.size() >= 3 && candidate.substr(0, word.size()) == word;
    const std::size_t distance = prefix ? std::min<std::size_t>(row.back(), 1) : row.back();
    if (distance < best_distance && distance < candidate.size()) best = candidate, best_distance = distance;
  }
  return best;
}

}  // namespace ttr
