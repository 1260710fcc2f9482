// Checkpoints: a run that was interrupted goes on with the same bits; every cut and every flipped bit of a file is
// refused; a file that cannot be written leaves the old one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "error_of.h"
#include "ttr/checkpoint.h"
#include "ttr/random.h"

namespace {

using namespace ttr::model;
namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ttr-checkpoint-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string at(const std::string& name) const { return (folder / name).string(); }
  fs::path folder;
};

Config config() {
  Config c;
  c.stack = "gated-deltanet", c.vocabulary = 5, c.width = 4, c.heads = 1, c.time = 6, c.mlp = "none";
  return c;
}
OptimiserConfig how() {
  OptimiserConfig c;
  c.method = "soap", c.every = 2, c.rate = 0.01, c.ema = 0.9, c.clip = 1;
  return c;
}

// One step on data that the generator draws.
void train(Session<float>& session, Model<float>& model, Optimiser<float>& optimiser, ttr::model::Random& random,
           int steps) {
  for (int s = 0; s < steps; ++s) {
    std::vector<std::int32_t> tokens(12), labels(12);
    for (std::size_t i = 0; i < 12; ++i)
      tokens[i] = static_cast<std::int32_t>(random.below(5)), labels[i] = static_cast<std::int32_t>(random.below(5));
    session.gradient({.batch = 2, .time = 6, .tokens = tokens.data(), .labels = labels.data()});
    optimiser.step(model.values(), session.gradients());
  }
}

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TEST_F(CheckpointTest, GoesOnWithTheSameBits) {
  Model<float> model(config(), 1);
  Session<float> session(model, 2, 6);
  Optimiser<float> optimiser(model.parameters(), how());
  ttr::model::Random random(9);
  train(session, model, optimiser, random, 5);
  save_checkpoint(at("run"), model, &optimiser,
                  {.step = 5, .random = random.state(), .notes = {{"task", "a \"b\"\n\x01"}}});
  train(session, model, optimiser, random, 6);

  const Checkpoint saved = read_checkpoint(at("run"));
  EXPECT_EQ(saved.progress.step, 5);
  EXPECT_EQ(saved.progress.notes.at("task"), "a \"b\"\n\x01");
  Model<float> again(saved.config, 77);
  Optimiser<float> same(again.parameters(), saved.optimiser);
  saved.load(again), saved.load(same);
  ttr::model::Random rest(0);
  rest.restore(saved.progress.random);
  Session<float> other(again, 2, 6);
  train(other, again, same, rest, 6);
  ASSERT_EQ(again.values().size(), model.values().size());
  EXPECT_EQ(std::memcmp(again.values().data(), model.values().data(), model.values().size_bytes()), 0);
  EXPECT_EQ(std::memcmp(same.mean().data(), optimiser.mean().data(), same.mean().size_bytes()), 0);
  EXPECT_EQ(same.steps_taken(), 11);

  // Of another type, another shape, another optimiser, without an optimiser.
  Model<double> wide(saved.config);
  EXPECT_NE(error_of([&] { saved.load(wide); }).find("F64 is due"), std::string::npos);
  Config larger = saved.config;
  larger.width = 5;
  Model<float> misfit(larger);
  EXPECT_NE(error_of([&] { saved.load(misfit); }).find("another shape"), std::string::npos);
  larger = saved.config, larger.mlp = "gelu";
  Model<float> deeper(larger);
  EXPECT_NE(error_of([&] { saved.load(deeper); }).find("no tensor 'model.blocks.0.mlp.norm'"), std::string::npos);
  Optimiser<float> simple(again.parameters(), {});
  EXPECT_NE(error_of([&] { saved.load(simple); }).find("soap"), std::string::npos);
  save_checkpoint<float>(at("bare"), model, nullptr, {});
  EXPECT_NE(error_of([&] { read_checkpoint(at("bare")).load(same); }).find("no state"), std::string::npos);
}

TEST_F(CheckpointTest, RefusesDamage) {
  Config small = config();
  small.stack = "linear-attention", small.width = 2, small.vocabulary = 2;
  Model<float> model(small, 1);
  Optimiser<float> optimiser(model.parameters(), {});
  save_checkpoint(at("good"), model, &optimiser, {.step = 5, .random = 3, .notes = {{"n", "x"}}});
  ASSERT_EQ(error_of([&] { read_checkpoint(at("good")); }), "");
  const std::string good = contents(at("good"));
  ASSERT_GT(good.size(), 1000u);
  for (std::size_t length = 0; length < good.size(); length += length < 64 || length + 64 > good.size() ? 1 : 17) {
    write(at("cut"), good.substr(0, length));
    EXPECT_NE(error_of([&] { read_checkpoint(at("cut")); }), "") << length << " bytes";
  }
  write(at("more"), good + "x");
  EXPECT_NE(error_of([&] { read_checkpoint(at("more")); }).find("belong to none"), std::string::npos);
  for (std::size_t i = 0; i < good.size(); i += i < 200 ? 1 : 5) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    write(at("bad"), bad);
    ASSERT_NE(error_of([&] { read_checkpoint(at("bad")); }), "") << "bit " << i % 8 << " of byte " << i;
  }
}

TEST_F(CheckpointTest, RefusesStrangers) {
  EXPECT_NE(error_of([&] { read_checkpoint(at("nothing")); }).find("cannot be opened"), std::string::npos);
  EXPECT_NE(error_of([&] { read_checkpoint(folder.string()); }).find("not a regular file"), std::string::npos);
  write(at("text"), "These are words and no numbers at all, but there are many of them.");
  EXPECT_NE(error_of([&] { read_checkpoint(at("text")); }).find("no safetensors file"), std::string::npos);
  TensorFile file;
  file.tensors = {{"w", "F32", {2, 3}, std::vector<std::byte>(24, std::byte(1))}, {"none", "I64", {0, 4}, {}}};
  write_safetensors(at("foreign"), file);
  EXPECT_NE(error_of([&] { read_checkpoint(at("foreign")); }).find("no checkpoint of ttr"), std::string::npos);
  const TensorFile back = read_safetensors(at("foreign"));
  ASSERT_EQ(back.tensors.size(), 2u);
  ASSERT_NE(back.find("w"), nullptr);
  EXPECT_EQ(back.find("w")->bytes, file.tensors[0].bytes);
  EXPECT_EQ(back.find("none")->shape, (std::vector<std::int64_t>{0, 4}));

  const auto header_error = [&](const std::string& header, std::size_t data) {
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size()), bytes[1] = static_cast<char>(header.size() >> 8);
    write(at("made"), bytes + header + std::string(data, 'x'));
    return error_of([&] { read_safetensors(at("made")); });
  };
  EXPECT_EQ(
      header_error(
          R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}, "__metadata__" : {"k":"\u00e4\ud83d\ude00"} }  )",
          3),
      "");
  EXPECT_EQ(read_safetensors(at("made")).metadata.at("k"), "\xc3\xa4\xf0\x9f\x98\x80");
  EXPECT_NE(header_error(R"({"a":{"dtype":"U9","shape":[3],"data_offsets":[0,3]}})", 3).find("'U9'"),
            std::string::npos);
  EXPECT_NE(header_error(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})", 4).find("place"),
            std::string::npos);
  EXPECT_NE(header_error(R"({"a":{"dtype":"U8","shape":[3]}})", 3).find("place"), std::string::npos);
  EXPECT_NE(
      header_error(R"({"a":{"dtype":"U8","shape":[9999999999,9999999999],"data_offsets":[0,3]}})", 3).find("larger"),
      std::string::npos);
  EXPECT_NE(header_error(R"({"a":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,3]}})", 3)
                .find("too large"),
            std::string::npos);
  EXPECT_NE(
      header_error(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
          2)
          .find("twice"),
      std::string::npos);
  EXPECT_NE(header_error(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,3]}})", 3).find("whole number"),
            std::string::npos);
  EXPECT_NE(header_error(R"({"a":"\ud800x"})", 3), "");
  EXPECT_NE(header_error(R"([1])", 3).find("'{' is due"), std::string::npos);
}

TEST_F(CheckpointTest, KeepsTheOldFileIfTheNewOneFails) {
  Model<float> model(config(), 1);
  save_checkpoint<float>(at("run"), model, nullptr, {.step = 1});
  const std::string before = contents(at("run"));
  save_checkpoint<float>(at("run"), model, nullptr, {.step = 2});
  EXPECT_NE(contents(at("run")), before);
  EXPECT_EQ(read_checkpoint(at("run")).progress.step, 2);
  fs::create_directory(at("place"));
  EXPECT_NE(error_of([&] { save_checkpoint<float>(at("place"), model, nullptr, {}); }).find("put in its place"),
            std::string::npos);
  EXPECT_NE(error_of([&] { save_checkpoint<float>(at("no/such"), model, nullptr, {}); }).find("cannot be written"),
            std::string::npos);
  std::size_t files = 0;  // no temporary file remains
  for (const auto& entry : fs::directory_iterator(folder)) files += entry.is_regular_file();
  EXPECT_EQ(files, 1u);
}

}  // namespace
