// What `ttr train` and the verbs on its models are made of: draws, scores, records of runs, plots of text, task texts.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include "error_of.h"
#include "judge.h"
#include "run_folder.h"
#include "terminal_plot.h"
#include "text_table.h"
#include "train_record.h"
#include "trained.h"
#include "ttr/status.h"

namespace {

using namespace ttr::cli;
namespace model = ttr::model;
namespace fs = std::filesystem;

TEST(ModelCli, DrawsFollowTheScores) {
  const std::vector<float> scores = {0.0f, 1.0f, 2.0f, -1e30f};
  model::Random random(1);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(draw_token(scores, {.temperature = 0, .top_p = 1}, random), 2);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(draw_token(scores, {.temperature = 1, .top_p = 0.1}, random), 2);
  for (const auto& [temperature, top_p, kept] : {std::tuple{1.0, 1.0, 3}, {0.5, 1.0, 3}, {2.0, 0.8, 2}}) {
    double shares[4] = {}, sum = 0;
    for (int i = 3 - kept; i < 3; ++i) sum += shares[i] = std::exp(static_cast<double>(scores[i]) / temperature);
    int counts[4] = {};
    const int draws = 20000;
    for (int i = 0; i < draws; ++i)
      ++counts[draw_token(scores, {.temperature = temperature, .top_p = top_p}, random)];
    for (int i = 0; i < 4; ++i) {
      const double p = shares[i] / sum;
      EXPECT_NEAR(counts[i], draws * p, 5 * std::sqrt(draws * p * (1 - p)) + 0.5) << i << " at " << temperature;
    }
  }
}

TEST(ModelCli, BlocksWithQuotes) {
  const model::BlockText block{"text", {{"file", "a, (b \"c\" \\ d.txt"}, {"time", "8"}, {"empty", ""}}};
  const std::string text = to_string(block);
  EXPECT_EQ(text, R"(text(empty="", file="a, (b \"c\" \\ d.txt", time=8))");
  const std::vector<model::BlockText> back = model::parse_stack(text + ", gla*2");
  ASSERT_EQ(back.size(), 3u);
  EXPECT_EQ(back[0].mixer, block.mixer);
  EXPECT_EQ(back[0].settings, block.settings);
  EXPECT_EQ(to_string(model::parse_stack("{equal / linear / gd(1)}( conv = 0)")[0]),
            "{equal / linear / gd(1)}(conv=0)");
  EXPECT_NE(error_of([] { model::parse_stack("text(file=\"a)"); }).find("not closed"), std::string::npos);
}

TEST(ModelCli, RecordsKeepTheirBits) {
  TrainRecord record;
  record.options.task = "parity", record.options.batch = 7, record.options.seed = 9;
  record.options.every = 3, record.options.judged = 11;
  TrainRow row;
  row.step = 3, row.rate = 0.1, row.train_loss = 1.0 / 3, row.score.loss = std::nan(""), row.score.accuracy = 2.0 / 3;
  row.score.counted = 5, row.score.sequences = 4, row.seconds = 1e-9, row.tokens = 1e12 / 7;
  record.rows = {row};
  record.curve = {{1, std::sqrt(2.0)}, {2, INFINITY}};
  record.since_test.add(0.1), record.since_test.add(0.2), record.since_point.add(1e-300);
  record.seconds = 0.3, record.train_seconds = 0.1 + 0.2, record.tokens = 12345;
  const std::map<std::string, std::string> notes = record.notes();
  TrainRecord back;
  back.read(notes, "file");
  EXPECT_EQ(back.notes(), notes);
  EXPECT_EQ(back.since_test.sum, record.since_test.sum);
  EXPECT_EQ(back.rows[0].train_loss, row.train_loss);
  EXPECT_TRUE(std::isnan(back.rows[0].score.loss));
  EXPECT_EQ(back.options.judged, 11);
  for (const auto& [key, value] : notes) {
    std::map<std::string, std::string> wrong = notes;
    wrong.erase(key);
    EXPECT_NE(error_of([&] { back.read(wrong, "file"); }).find("not written by ttr train"), std::string::npos) << key;
    wrong = notes;
    if (key == "task") continue;
    wrong[key] = "1 x\n";
    EXPECT_NE(error_of([&] { back.read(wrong, "file"); }).find("note of the " + key), std::string::npos) << key;
  }
}

// Every setting of a run is an option, once.
TEST(ModelCli, SettingsOfRuns) {
  const auto text = settings_text(TrainOptions{});
  EXPECT_GT(text.size(), 20u);
  std::set<std::string> names;
  for (const auto& [name, value] : text) EXPECT_TRUE(names.insert(name).second) << name;
  EXPECT_TRUE(names.count("layer") && names.count("key_dim") && names.count("ema"));
}

TEST(ModelCli, ScoresDoNotDependOnTheBatch) {
  const auto task = model::make_task("parity(longest=8, test=12, labels=all)");
  model::Config config;
  config.stack = "deltanet", config.width = 8, config.heads = 2;
  task->apply(config);
  const model::Model<float> net(config, 1);
  Judge all(net, 10, task->test_time, 1), some(net, 4, task->test_time, 1);
  const ModelScore a = all.of(*task, 10, 5), b = some.of(*task, 10, 5);
  EXPECT_EQ(a.counted, b.counted);
  EXPECT_EQ(a.sequences, 10);
  EXPECT_EQ(b.sequences, 10);
  EXPECT_EQ(a.accuracy, b.accuracy);
  EXPECT_EQ(a.sequence_accuracy, b.sequence_accuracy);
  EXPECT_NEAR(a.loss, b.loss, 1e-6);
  EXPECT_NEAR(ModelScore{.accuracy = 0.75}.scaled(0.5), 0.5, 1e-15);
  EXPECT_NEAR(ModelScore{.loss = std::log(2.0)}.bits(), 1, 1e-15);

  const auto numbers = model::make_task("linear-regression(dim=2, points=3)");
  model::Config rows;
  rows.stack = "deltanet", rows.width = 8, rows.heads = 2;
  numbers->apply(rows);
  const model::Model<float> reader(rows, 1);
  Judge five(reader, 5, numbers->test_time, 1), two(reader, 2, numbers->test_time, 1);
  const ModelScore c = five.of(*numbers, 5, 5), d = two.of(*numbers, 5, 5);
  EXPECT_EQ(c.counted, d.counted);
  EXPECT_NEAR(c.loss, d.loss, 1e-6);
}

TEST(ModelCli, TextsAreReadOnce) {
  model::Config config;
  config.stack = "deltanet", config.vocabulary = 256, config.width = 8, config.heads = 2, config.time = 16;
  const model::Model<float> net(config, 1);
  std::vector<unsigned char> text(100);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<unsigned char>(i);
  Judge judge(net, 4, 16, 1);
  EXPECT_EQ(judge.of_text(text, 16, 0).counted, 96);  // 6 windows and 3 bytes that are left
  EXPECT_EQ(judge.of_text(text, 9, 0).counted, 99);
  EXPECT_EQ(judge.of_text(text, 9, 2).sequences, 2);
  EXPECT_EQ(judge.of_text(std::span(text).first(1), 9, 0).counted, 0);
}

TEST(ModelCli, PlotsOfText) {
  TerminalSeries line, points;
  EXPECT_EQ(terminal_plot(line, points, 40, 5), "");
  for (int i = 0; i <= 100; ++i) line.x.push_back(i), line.y.push_back(100 - i);
  line.y[50] = NAN;
  points = {{0, 100, 50}, {100, 0, INFINITY}};
  const std::string plot = terminal_plot(line, points, 40, 5);
  std::vector<std::string> rows;
  std::stringstream text(plot);
  for (std::string row; std::getline(text, row);) rows.push_back(row);
  ASSERT_EQ(rows.size(), 6u);
  for (const std::string& row : rows) EXPECT_LE(display_width(row), 40u) << row;
  EXPECT_EQ(rows[0].rfind("100", 0), 0u) << plot;
  EXPECT_NE(rows[0].find('o'), std::string::npos) << plot;
  EXPECT_EQ(rows[4].back(), 'o') << plot;
  EXPECT_EQ(rows[5].substr(rows[5].size() - 3), "100");
  EXPECT_EQ(std::count(plot.begin(), plot.end(), 'o'), 2);
  EXPECT_FALSE(terminal_plot({{1, 2}, {3, 3}}, {}, 40, 5).empty());  // nothing but a level
}

TEST(ModelCli, TasksAndFolders) {
  std::string name = (fs::temp_directory_path() / "ttr-cli-XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const fs::path folder = name;
  std::ofstream(folder / "a, b.txt") << "some text";
  const std::string file = (folder / "a, b.txt").string();
  EXPECT_EQ(task_text(file, 8, 0.25), "text(file=\"" + file + "\", held=0.25, time=8)");
  EXPECT_EQ(task_text("parity( test=9,longest=8)", 0, 0), "parity(longest=8, test=9)");
  EXPECT_TRUE(is_text_file(file));
  EXPECT_FALSE(is_text_file("parity"));
  EXPECT_NE(error_of([&] { task_text("chess", 0, 0); }).find("no such file"), std::string::npos);
  EXPECT_NE(error_of([&] { task_text(name, 0, 0); }).find("folder"), std::string::npos);
  EXPECT_EQ(fingerprint(*model::make_task("parity")), "");

  const std::string run = (folder / "x/run").string();
  {
    RunFolder begun(run + "/", false);
    EXPECT_FALSE(fs::exists(run));  // looking changes nothing
    begun.open();
    begun.begin_log({"one"});
    begun.append_to_log("two");
    EXPECT_NE(error_of([&] { RunFolder other(run, true); }).find("another process"), std::string::npos);
  }
  std::ifstream log(run + "/log.jsonl");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(log), {}), "one\ntwo\n");
  EXPECT_NE(error_of([&] { RunFolder again(run, false); }).find("has a run in it"), std::string::npos);
  std::ofstream(run + "/.checkpoint.safetensors.17") << "cut short";
  std::ofstream(run + "/mine") << "stays";
  {
    RunFolder again(run, true);
    EXPECT_EQ(again.found(), "");
    again.open();
  }
  EXPECT_FALSE(fs::exists(run + "/.checkpoint.safetensors.17"));
  EXPECT_TRUE(fs::exists(run + "/mine"));
  EXPECT_NE(error_of([&] { model_file(run); }).find("no run in it"), std::string::npos);
  std::ofstream(run + "/checkpoint.safetensors") << "x";
  EXPECT_EQ(model_file(run), run + "/checkpoint.safetensors");
  std::ofstream(run + "/model.safetensors") << "x";
  EXPECT_EQ(model_file(run), run + "/model.safetensors");
  EXPECT_EQ(model_file(file), file);
  fs::remove_all(folder);
}

}  // namespace
