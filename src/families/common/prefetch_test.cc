// Which rows of the next chunk are asked for ahead (prefetch.h).
#include "families/common/prefetch.h"

#include <gtest/gtest.h>

#include <vector>

namespace {

using ttr::View;
using ttr::families::Prefetch;

constexpr int tokens = 8, heads = 8, dim = 64;

// The lines that head `head` of `count` asks for, of the chunk behind the first half of the tokens.
std::vector<const char*> lines_of(const auto& rows, int head, int count) {
  Prefetch<float> next(ttr::simd<float>(""));
  next.begin();
  next.add_share(rows, 0, 0, tokens / 2, head, count, dim);
  std::vector<const char*> found;
  if (const ttr::Hints* const list = next.get())
    for (int i = 0; i < list->count; ++i)
      for (std::ptrdiff_t r = 0; r < list->pieces[i].rows; ++r)
        for (std::ptrdiff_t byte = 0; byte < list->pieces[i].bytes; byte += 64)
          found.push_back(list->pieces[i].data + r * list->pieces[i].step + byte);
  return found;
}

// Heads together ask for the next chunk, each line once.
TEST(Prefetch, SharesAreTheNextChunk) {
  std::vector<float> numbers(std::size_t{tokens} * heads * dim);
  const View<float, 4> whole = ttr::view(numbers.data(), 1, tokens, heads, dim);
  std::vector<const char*> asked;
  for (int h = 0; h < heads; ++h)
    for (const char* line : lines_of(whole, h, heads)) asked.push_back(line);
  ASSERT_EQ(asked.size(), std::size_t{tokens} / 2 * heads * dim * sizeof(float) / 64);
  for (std::size_t i = 0; i < asked.size(); ++i)
    EXPECT_EQ(asked[i], reinterpret_cast<const char*>(&whole(0, tokens / 2, 0, 0)) + 64 * i);
}

// Half of the heads, as a task of two threads has them: what is read is asked for, what is written is not, because the other
// half, which another thread writes, lies between.
TEST(Prefetch, NotWhatIsWrittenBetweenOthers) {
  std::vector<float> numbers(std::size_t{tokens} * heads * dim);
  View<float, 4> written = ttr::view(numbers.data(), 1, tokens, heads, dim);
  written.extent[2] = heads / 2;
  const View<const float, 4> read = written;
  EXPECT_FALSE(lines_of(read, 0, heads / 2).empty());
  EXPECT_TRUE(lines_of(written, 0, heads / 2).empty());
  // The columns of a head, one half of them.
  View<float, 4> columns = ttr::view(numbers.data(), 1, tokens, 1, heads * dim);
  columns.extent[3] = dim;
  EXPECT_TRUE(lines_of(columns, 0, 1).empty());
}

}  // namespace
