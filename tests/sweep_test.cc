// The text of a sweep, its runs, and what is made of their results.
#include "sweep.h"

#include <gtest/gtest.h>

#include <cmath>

#include "error_of.h"

namespace {

using namespace ttr::cli;

const char* const text = R"(
# a comment
title = Recall # of pairs
task  = mqar(time=64, pairs=4)
layer = deltanet | GLA: gla(map.gk=logsigmoid/16) | {gate / linear / gd(1) | read(before, bonus)}(conv=2) & rate=0.1
rate  = 1e-3 | 3e-3
seed  = 1 | 2 | 3
tied  = yes
best  = rate
mean  = seed
score = lowest test_loss

[quick]
seed  = 1
layer = gla
)";

TEST(SweepText, AxesLabelsAndVariants) {
  const SweepSpec spec = parse_sweep(text, "", {});
  EXPECT_EQ(spec.title, "Recall");
  ASSERT_EQ(spec.axis("layer")->choices.size(), 3u);
  EXPECT_EQ(spec.axis("layer")->choices[1].label, "GLA");
  EXPECT_EQ(spec.axis("layer")->choices[1].value, "gla(map.gk=logsigmoid/16)");
  EXPECT_EQ(spec.axis("layer")->choices[2].value, "{gate / linear / gd(1) | read(before, bonus)}(conv=2)");
  EXPECT_TRUE(spec.lowest);
  EXPECT_EQ(spec.score, "test_loss");
  EXPECT_EQ(sweep_variants(text), std::vector<std::string>{"quick"});
  const std::vector<SweepRun> runs = expand(spec);
  EXPECT_EQ(runs.size(), 2u * 2 * 3 + 3);  // the rate of the recipe is its own
  EXPECT_EQ(runs.back().settings.at("rate"), "0.1");
  EXPECT_EQ(expand(parse_sweep(text, "quick", {})).size(), 2u);
  EXPECT_EQ(expand(parse_sweep(text, "quick", {"seed = 4 | 5", "rate=1"})).size(), 2u);
  EXPECT_EQ(expand(parse_sweep("", "", {"task=parity"})).size(), 1u);
}

TEST(SweepText, KeysAreThoseOfTheSettings) {
  const auto key = [](const std::string& more) { return expand(parse_sweep("task=parity", "", {more}))[0].key; };
  EXPECT_EQ(key("seed=1"), expand(parse_sweep("seed = 1\ntask = parity", "", {}))[0].key);
  EXPECT_NE(key("seed=1"), key("seed=2"));
  EXPECT_EQ(key("threads=1"), key("threads=2"));
  EXPECT_NE(key("eval=--time 64"), key("eval=--time 128"));
}

TEST(SweepText, Words) {
  const std::vector<SweepRun> runs = expand(parse_sweep("task=parity\ntied=yes\nclip=no\nrate=1e-3", "", {}));
  EXPECT_EQ(train_words(runs[0].settings),
            (std::vector<std::string>{"train", "parity", "--rate", "1e-3", "--tied", "--threads", "1", "--json"}));
}

TEST(SweepText, Errors) {
  const struct {
    const char *text, *says;
  } wrong[] = {{"rate = 1", "names no task"},
               {"task = parity\nrate", "line 2: 'rate' is no setting"},
               {"task = parity\n\nrate =", "line 3: 'rate' has no value"},
               {"task = parity\nrate = 1 | | 2", "a value of 'rate' is empty"},
               {"task = parity\nlayer = a: b: c", "two colons"},
               {"task = parity\nlayer = gla & rate", "'rate' is no setting"},
               {"task = parity\nbest = rate", "best is 'rate', which the sweep does not set; it sets task"},
               {"task = parity\nlog-x = perhaps", "yes or no"},
               {"task = parity\nscore = a b", "score is 'a b'"},
               {"task = parity\n[quick", "begins no variant"}};
  for (const auto& one : wrong) {
    const std::string error = error_of([&] { parse_sweep(one.text, "", {}); });
    EXPECT_NE(error.find(one.says), std::string::npos) << one.text << ": " << error;
  }
  EXPECT_NE(error_of([&] { parse_sweep(text, "fast", {}); }).find("no variant 'fast'; the text has quick"),
            std::string::npos);
}

// Results that depend on the settings alone: loss = 10 layer + rate choice, and the seed as spread.
std::vector<SweepResult> made(const SweepSpec& spec, bool diverges = false) {
  std::vector<SweepResult> results;
  for (const SweepRun& run : expand(spec)) {
    SweepResult one;
    one.run = run;
    const double seed = std::stod(run.settings.at("seed"));
    const double loss = 10 * static_cast<double>(run.choices[1]) + static_cast<double>(run.choices[2]) + seed;
    if (diverges && run.choices[2] == 0 && seed == 2) one.failed = "the loss is inf";
    else
      one.result = Json::object()
                       .set("parameters", 100)
                       .set("rows", Json::array()
                                        .push(Json::object().set("step", 1).set("test_loss", 99.0))
                                        .push(Json::object().set("step", 2).set("test_loss", loss)));
    results.push_back(one);
  }
  return results;
}

TEST(SweepTable, BestAndMean) {
  SweepSpec spec = parse_sweep(text, "", {"show = parameters"});
  std::vector<SweepResult> results = made(spec);
  std::vector<SweepGroup> groups = reduce(spec, results);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_DOUBLE_EQ(groups[1].score, 10 + 0 + 2);  // the first rate is the lowest; mean of the seeds 1, 2, 3
  EXPECT_DOUBLE_EQ(groups[1].spread, 1);
  const SweepTable table = sweep_table(spec, groups);
  EXPECT_EQ(table.header, (std::vector<std::string>{"layer", "test loss", "best rate", "parameters"}));
  EXPECT_EQ(table.rows[1], (std::vector<std::string>{"GLA", "12.0000 ± 1.0000", "1e-3", "100"}));
  EXPECT_EQ(table.rows[2][2], "0.1");
  EXPECT_NE(table.markdown().find("\\| read(before, bonus)"), std::string::npos);
  // One that diverges loses to a larger loss.
  results = made(spec, true), groups = reduce(spec, results);
  EXPECT_EQ(groups[1].diverged, 0);
  EXPECT_DOUBLE_EQ(groups[1].score, 10 + 1 + 2);
  spec = parse_sweep(text, "", {"rate = 1e-3"});
  results = made(spec, true), groups = reduce(spec, results);
  EXPECT_EQ(sweep_table(spec, groups).rows[0][1], "2.0000 ± 1.4142 (1 diverged)");
}

TEST(SweepTable, Expectations) {
  SweepSpec spec = parse_sweep(text, "", {"expect = GLA > deltanet + 9.5; GLA < 12.5; GLA > deltanet + 10.5"});
  const std::vector<SweepResult> results = made(spec);
  const std::vector<SweepGroup> groups = reduce(spec, results);
  EXPECT_EQ(broken_expectations(spec, groups),
            (std::vector<std::string>{"GLA > deltanet + 10.5: 12.0000 and 12.5000"}));
  spec.expect = {"gla > 1"};
  EXPECT_NE(error_of([&] { broken_expectations(spec, groups); }).find("'gla'; the table has deltanet; GLA; {"),
            std::string::npos);
  spec.expect = {"GLA is better"};
  EXPECT_NE(error_of([&] { broken_expectations(spec, groups); }).find("write one > other"), std::string::npos);
}

TEST(SweepTable, ColumnsAndPlots) {
  SweepSpec spec = parse_sweep(text, "", {"mean = rate", "columns = seed", "x = seed", "score = highest test_loss"});
  spec.best.clear();
  const std::vector<SweepResult> results = made(spec);
  const std::vector<SweepGroup> groups = reduce(spec, results);
  const SweepTable table = sweep_table(spec, groups);
  EXPECT_EQ(table.header, (std::vector<std::string>{"layer", "1", "2", "3"}));
  EXPECT_EQ(table.rows[1][3], "13.5000 ± 0.7071");
  Plot plot = sweep_plot(spec, groups);
  ASSERT_EQ(plot.lines.size(), 3u);
  EXPECT_EQ(plot.lines[1].label, "GLA");
  EXPECT_EQ(plot.lines[1].x, (std::vector<double>{1, 2, 3}));
  EXPECT_DOUBLE_EQ(plot.lines[1].y[2], 13.5);
  spec = parse_sweep(text, "quick", {"x = rows.step", "y = rows.test_loss"});
  const std::vector<SweepResult> few = made(spec);
  plot = sweep_plot(spec, reduce(spec, few));
  ASSERT_EQ(plot.lines.size(), 1u);
  EXPECT_EQ(plot.lines[0].y, (std::vector<double>{99, 1}));
}

}  // namespace
