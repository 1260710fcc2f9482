#include "row_times.h"

#include <gtest/gtest.h>

namespace ttr::cli {
namespace {

TEST(RowTimes, TheFirstTouchOfMemoryDoesNotCount) {
  RowTimes times;
  EXPECT_EQ(times.median(), 0);
  times.add(1.0, 64);  // pages that nobody has seen, instructions that no cache has
  for (int piece = 0; piece < 4; ++piece) times.add(64e-6, 64);
  times.add(2e-6, 1);  // what is left
  EXPECT_DOUBLE_EQ(times.median(), 1e-6);
  EXPECT_EQ(times.rows(), 5 * 64 + 1);
}

TEST(RowTimes, PiecesCountAsOftenAsTheyHaveRows) {
  RowTimes times;
  for (int row = 0; row < 8; ++row) times.add(5.0, 1);
  times.add(30.0, 10);
  EXPECT_DOUBLE_EQ(times.median(), 3.0);
  times.add(0, 0);
  EXPECT_DOUBLE_EQ(times.median(), 3.0);
}

TEST(RowTimes, ALongStreamOfSingleRowsHasItsMedian) {
  RowTimes slower;  // far more rows than pieces are kept
  for (int row = 0; row < 1'000'000; ++row) slower.add(row < 600'000 ? 2e-6 : 7e-6, 1);
  EXPECT_EQ(slower.rows(), 1'000'000);
  EXPECT_NEAR(slower.median(), 2e-6, 1e-12);
}

}  // namespace
}  // namespace ttr::cli
