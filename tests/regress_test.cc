#include "regress.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "atomic_file.h"
#include "progress.h"
#include "regress_pairs.h"
#include "regress_parts.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

namespace fs = std::filesystem;

TEST(RegressWindows, MeansAreExactAndBounded) {
  EXPECT_TRUE(rc::check([] {
    const auto losses = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1000));
    const int width = *rc::gen::inRange(1, 5);
    const std::size_t most = *rc::gen::inRange<std::size_t>(2, 9);
    Windows windows(width, most);
    for (int loss : losses) windows.add(loss);
    RC_ASSERT(windows.size() <= most);
    std::size_t at = 0;
    for (std::size_t w = 0; w < windows.size(); ++w) {
      double sum = 0;
      const std::int64_t count = windows.count(w);
      RC_ASSERT(count >= 1);
      if (w + 1 < windows.size()) RC_ASSERT(count == windows.width());
      for (std::int64_t i = 0; i < windows.count(w); ++i) sum += losses.at(at++);
      RC_ASSERT(std::abs(windows.mean(w) - sum / static_cast<double>(windows.count(w))) < 1e-9);
    }
    RC_ASSERT(at == losses.size());
  }));
}

TEST(RegressSpread, R2) {
  Spread spread(1);
  for (double y : {1.0, 2.0, 3.0, 6.0}) spread.add(&y);
  EXPECT_NEAR(spread.sum_of_squares(), 14, 1e-12);
  EXPECT_NEAR(spread.r2(7), 0.5, 1e-12);
  Spread constant(1);
  for (double y : {4.0, 4.0}) constant.add(&y);
  EXPECT_TRUE(std::isnan(constant.r2(1)));
}

struct Asked {
  bool has_pair;
  std::vector<double> key, value, query;
};

/// Feeds rows x_t = t, y_t = 100 + t and collects what a layer would see.
std::vector<Asked> pairs_of(const PairSpec& spec, int rows) {
  PairBuilder builder(spec);
  const std::size_t K = static_cast<std::size_t>(builder.key_dim());
  std::vector<Asked> out;
  for (int t = 0; t < rows; ++t) {
    Block block;
    block.key_dim = builder.key_dim(), block.value_dim = 1;
    block.keys.resize(K), block.queries.resize(K), block.values.resize(1), block.has_pair.resize(1);
    const double x = t, y = 100 + t;
    double shift, scale, last;
    if (builder.add(&x, &y, block, &shift, &scale, &last))
      out.push_back({block.has_pair[0] != 0, block.keys, block.values, block.queries});
  }
  return out;
}

TEST(RegressPairs, AskThenLearn) {
  const auto asked = pairs_of({.key_columns = 1, .value_columns = 1, .bias = true}, 4);
  ASSERT_EQ(asked.size(), 4u);
  EXPECT_FALSE(asked[0].has_pair);
  for (int t = 1; t < 4; ++t) {
    EXPECT_TRUE(asked[t].has_pair);
    EXPECT_EQ(asked[t].key, (std::vector<double>{t - 1.0, 1}));
    EXPECT_EQ(asked[t].value, (std::vector<double>{99.0 + t}));
    EXPECT_EQ(asked[t].query, (std::vector<double>{1.0 * t, 1}));
  }
}

TEST(RegressPairs, LagsAndHorizon) {
  // k_t = (t, t-1, t-2) is asked for y_{t+2}; at row t the pair (k_{t-2}, y_t) is known.
  const auto asked = pairs_of({.key_columns = 1, .value_columns = 1, .lags = 3, .horizon = 2}, 9);
  ASSERT_EQ(asked.size(), 7u);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const double t = static_cast<double>(i) + 2;
    EXPECT_EQ(asked[i].query, (std::vector<double>{t, t - 1, t - 2}));
    EXPECT_EQ(asked[i].has_pair, t >= 4);
    if (t < 4) continue;
    EXPECT_EQ(asked[i].key, (std::vector<double>{t - 2, t - 3, t - 4}));
    EXPECT_EQ(asked[i].value, (std::vector<double>{100 + t}));
  }
}

TEST(RegressPairs, StandardisedByWhatIsKnown) {
  // Changing a row must not change anything that was asked or learned before it.
  EXPECT_TRUE(rc::check([] {
    const auto rows = *rc::gen::container<std::vector<std::pair<int, int>>>(
        12, rc::gen::pair(rc::gen::inRange(-50, 50), rc::gen::inRange(-50, 50)));
    const std::int64_t horizon = *rc::gen::inRange(0, 3);
    const std::size_t changed = *rc::gen::inRange<std::size_t>(1, 12);
    auto run = [&](double add) {
      PairBuilder builder({.key_columns = 1, .value_columns = 1, .standardize = true, .lags = 0, .horizon = horizon});
      std::vector<double> seen;
      for (std::size_t t = 0; t < changed; ++t) {
        Block block;
        block.key_dim = block.value_dim = 1;
        block.keys.resize(1), block.queries.resize(1), block.values.resize(1), block.has_pair.resize(1);
        const double x = rows[t].first, y = rows[t].second + (t + 1 == changed && horizon == 0 ? add : 0);
        double shift, scale, last;
        builder.add(&x, &y, block, &shift, &scale, &last);
        seen.insert(seen.end(), {block.keys[0], block.values[0], block.queries[0], shift, scale, last});
        for (double s : seen) RC_ASSERT(std::isfinite(s));
      }
      return seen;
    };
    RC_ASSERT(run(0) == run(1000));  // a row's own value is unknown when it is asked
  }));
}

TEST(RegressMoments, ConstantColumnsHaveDeviationOne) {
  Moments moments(2);
  for (int i = 0; i < 1000; ++i) {
    const double row[] = {0.1, static_cast<double>(i % 2)};
    moments.add(row);
  }
  EXPECT_EQ(moments.deviation(0), 1);
  EXPECT_NEAR(moments.deviation(1), 0.5, 1e-9);
}

class RegressFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "ttr_test.XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

TEST_F(RegressFiles, AtomicFileAppearsWholeOrNotAtAll) {
  const std::string path = folder_ / "out.txt";
  {
    AtomicFile file(path, "--out");
    file.write("half");
    file.flush();
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_EQ(files(), 0u);
  {
    AtomicFile file(path, "--out");
    file.write("XXXX and the rest");
    file.rewrite_start("0123");
    file.write("!");
    file.commit();
  }
  EXPECT_EQ(read("out.txt"), "0123 and the rest!");
  EXPECT_EQ(files(), 1u);
}

TEST_F(RegressFiles, AtomicFileThroughALinkKeepsTheLink) {
  write_file(folder_ / "real.txt", "--out", "old");
  fs::create_symlink("real.txt", folder_ / "link.txt");
  write_file(folder_ / "link.txt", "--out", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link.txt"));
  EXPECT_EQ(read("real.txt"), "new");
}

TEST_F(RegressFiles, AtomicFileErrors) {
  EXPECT_THROW(AtomicFile(folder_ / "no" / "where.txt", "--out"), Error);
  EXPECT_THROW(AtomicFile(folder_, "--out"), Error);
  EXPECT_THROW(AtomicFile("", "--out"), Error);
  write_file("/dev/null", "--out", "nothing");
}

TEST(RegressProgress, Line) {
  EXPECT_EQ(progress_line("work", 1, 4, 3, "5 rows", 60),
            "work  [######.....................]  25 %  0:09 left  5 rows");
  EXPECT_EQ(progress_line("work", 0, 0, 3, "5 rows", 60), "work  5 rows");
  EXPECT_LE(progress_line("a very long name of the work", 1, 2, 5, "with a very long note as well", 40).size(), 40u);
}

TEST(RegressProgress, SignalsBecomeAFlag) {
  {
    const InterruptGuard guard;
    EXPECT_EQ(interrupted(), 0);
    ::raise(SIGINT);
    EXPECT_EQ(interrupted(), SIGINT);
    char byte;
    EXPECT_EQ(::read(interrupt_descriptor(), &byte, 1), 1);
  }
  const InterruptGuard again;
  EXPECT_EQ(interrupted(), 0);
}

}  // namespace
}  // namespace ttr::cli
