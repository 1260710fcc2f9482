#include "row_times.h"

#include <algorithm>

namespace ttr::cli {
namespace {
constexpr std::size_t most_pieces = 512;
}

void RowTimes::add(double seconds, std::size_t rows) {
  if (rows == 0) return;
  const auto count = static_cast<double>(rows);
  rows_ += count;
  if (!pieces_.empty() && pieces_.back().rows + count <= longest_) {
    pieces_.back().seconds += seconds, pieces_.back().rows += count;
    return;
  }
  if (pieces_.size() == most_pieces) {
    for (std::size_t i = 0; i < most_pieces / 2; ++i) {
      const Piece &a = pieces_[2 * i], &b = pieces_[2 * i + 1];
      pieces_[i] = {a.seconds + b.seconds, a.rows + b.rows};
      longest_ = std::max(longest_, pieces_[i].rows);
    }
    pieces_.resize(most_pieces / 2);
  }
  pieces_.push_back({seconds, count});
}

double RowTimes::median() const {
  std::vector<Piece> sorted = pieces_;
  std::sort(sorted.begin(), sorted.end(),
            [](const Piece& a, const Piece& b) { return a.seconds * b.rows < b.seconds * a.rows; });
  double before = 0;
  for (const Piece& piece : sorted)
    if (before += piece.rows; 2 * before >= rows_) return piece.seconds / piece.rows;
  return 0;
}

}  // namespace ttr::cli
