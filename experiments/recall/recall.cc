#include "recall.h"

#include <algorithm>

namespace ttr::recall {

std::vector<int> read_out(const Numbers& table, const Numbers& answers, int d) {
  // By columns and blocks of rows: the inner loop runs over rows, without a sum that would have to be reordered.
  // Four answers share each load.
  constexpr int block = 1024, group = 4;
  const int rows = static_cast<int>(table.size()) / d, n = static_cast<int>(answers.size()) / d;
  std::vector<float> columns(table.size()), score(static_cast<std::size_t>(group) * block);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < d; ++c)
      columns[static_cast<std::size_t>(c) * rows + r] =
          static_cast<float>(table[static_cast<std::size_t>(r) * d + c]);
  std::vector<float> scaled(static_cast<std::size_t>(n + group) * d);  // zeros behind the last
  for (int i = 0; i < n; ++i) {
    // A common factor changes nothing and keeps large answers within a float.
    const double length = std::max(experiment::norm(&answers[static_cast<std::size_t>(i) * d], d), 1e-300);
    for (std::size_t at = static_cast<std::size_t>(i) * d; at < static_cast<std::size_t>(i + 1) * d; ++at)
      scaled[at] = static_cast<float>(answers[at] / length);
  }
  std::vector<int> best(n, 0);
  std::vector<float> most(n);
  for (int first = 0; first < rows; first += block) {
    const int width = std::min(block, rows - first);
    for (int i = 0; i < n; i += group) {
      std::fill(score.begin(), score.end(), 0.0f);
      const float* x = &scaled[static_cast<std::size_t>(i) * d];
      float *s0 = score.data(), *s1 = s0 + block, *s2 = s1 + block, *s3 = s2 + block;
      for (int c = 0; c < d; ++c) {
        const float* column = &columns[static_cast<std::size_t>(c) * rows + first];
        const float x0 = x[c], x1 = x[d + c], x2 = x[2 * d + c], x3 = x[3 * d + c];
        for (int r = 0; r < width; ++r) {
          s0[r] += x0 * column[r], s1[r] += x1 * column[r];
          s2[r] += x2 * column[r], s3[r] += x3 * column[r];
        }
      }
      for (int j = i; j < std::min(i + group, n); ++j) {
        const float* own = s0 + static_cast<std::ptrdiff_t>(j - i) * block;
        const int top = static_cast<int>(std::max_element(own, own + width) - own);
        if (first == 0 || own[top] > most[j]) most[j] = own[top], best[j] = first + top;
      }
    }
  }
  return best;
}

double accuracy(const std::vector<int>& read, const std::vector<int>& wanted) {
  int right = 0;
  for (std::size_t i = 0; i < read.size(); ++i) right += read[i] == wanted[i];
  return static_cast<double>(right) / static_cast<double>(read.size());
}

Pairs contents(Content content, const std::vector<int>& cues, const std::vector<int>& responses, int time,
               cli::Random& random) {
  const bool repeated = content == Content::repeated_bigrams || content == Content::repeated_responses;
  const bool neighbours = content != Content::responses && content != Content::repeated_responses;
  const int count = repeated ? time / 2 : static_cast<int>(cues.size());
  Pairs out;
  int before = -1;  // the response before
  for (int i = 0; i < count; ++i) {
    const std::size_t j = repeated ? random.bits() % cues.size() : static_cast<std::size_t>(i);
    if (neighbours && before >= 0) out.add(before, content == Content::bigrams_silent ? -1 : cues[j]);
    out.add(cues[j], responses[j]);
    before = responses[j];
  }
  return out;
}

Numbers embed(const Numbers& table, const std::vector<int>& tokens, int d) {
  Numbers rows(tokens.size() * d);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] >= 0)
      std::copy_n(table.begin() + static_cast<std::ptrdiff_t>(tokens[i]) * d, d,
                  rows.begin() + static_cast<std::ptrdiff_t>(i) * d);
  return rows;
}

}  // namespace ttr::recall
