// What a row of a stream takes.
#pragma once

#include <cstddef>
#include <vector>

namespace ttr::cli {

/// The median over pieces of a stream, in which a piece counts as often as it has rows. The mean would be that of the
/// first touch of memory where a stream is short. Memory is constant: where there are many pieces, neighbours become one.
class RowTimes {
 public:
  void add(double seconds, std::size_t rows);
  double rows() const { return rows_; }
  /// Seconds per row; 0 before the first.
  double median() const;

 private:
  struct Piece {
    double seconds, rows;
  };
  std::vector<Piece> pieces_;
  double rows_ = 0, longest_ = 1;  // longest_: rows at which a piece is full
};

}  // namespace ttr::cli
