// The examples in the headers of ttr::model, compiled and run; see header_examples_test.cc.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <numeric>
#include <vector>

#include "header_examples.h"
#include "ttr/checkpoint.h"
#include "ttr/model.h"
#include "ttr/optimiser.h"
#include "ttr/tasks.h"

namespace {

TEST(ModelHeaderExamples, SessionsAndDecoders) {
  std::vector<std::int32_t> tokens_memory(8 * 128), labels_memory(8 * 128, 65);
  std::iota(tokens_memory.begin(), tokens_memory.begin() + 256, 0);
  const std::int32_t *tokens = tokens_memory.data(), *labels = labels_memory.data();
  const std::int32_t prompt[] = {72, 97, 108}, next = 108;

  ttr::model::Config config;
  config.stack = "gated-deltanet*2";  // any layer or recipe, hybrids: "gla*3, softmax(window=128)"
  config.vocabulary = 256, config.width = 64, config.heads = 2, config.time = 128;
  ttr::model::Model<float> model(config, 1);          // parameters, drawn from seed 1
  ttr::model::Session<float> session(model, 8, 128);  // buffers for 8 sequences of up to 128 tokens each
  ttr::model::Batch<float> batch{.batch = 8, .time = 128, .tokens = tokens, .labels = labels};
  ttr::model::Measure m = session.gradient(batch);    // m.loss; session.gradients() in the order of model.values()
  ttr::model::Decoder<float> decoder(model, 1, 512);  // one sequence, token by token, with states that are carried
  std::span<const float> scores = decoder.advance({.batch = 1, .time = 3, .tokens = prompt});
  scores = decoder.advance({.batch = 1, .time = 1, .tokens = &next});  // of what comes after `next`

  EXPECT_EQ(m.counted, 8 * 128);
  EXPECT_NEAR(m.loss, std::log(256.0), 2);
  EXPECT_EQ(session.gradients().size(), model.values().size());
  EXPECT_EQ(scores.size(), 256u);
  EXPECT_EQ(decoder.tokens(), 4);

  ttr::model::OptimiserConfig how;
  how.method = "adamw", how.rate = 3e-3, how.warmup = 100, how.steps = 2000;
  ttr::model::Optimiser<float> optimiser(model.parameters(), how);
  session.gradient(batch);
  optimiser.step(model.values(), session.gradients());

  EXPECT_EQ(optimiser.steps_taken(), 1);
}

TEST(ModelHeaderExamples, TasksAndCheckpoints) {
  ttr::model::Examples examples;
  const auto task = ttr::model::make_task("mqar(vocabulary=512, time=64, pairs=4)");
  ttr::model::Random random(1);
  task->draw(random, 8, false, examples);  // 8 sequences of the training data
  ttr::model::Config config;
  config.width = 8;
  task->apply(config);
  ttr::model::Model<float> trained(config, 1);
  ttr::model::Session<float> session(trained, 8, task->time);
  session.gradient(examples.batch());
  ttr::model::Optimiser<float> optimiser(trained.parameters(), {});

  std::string folder = (std::filesystem::temp_directory_path() / "ttr-example-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  {
    ttr::model::Model<float>& model = trained;
    ttr::model::save_checkpoint("run.safetensors", model, &optimiser, {.step = 100, .random = random.state()});
  }
  const ttr::model::Checkpoint saved = ttr::model::read_checkpoint("run.safetensors");
  ttr::model::Model<float> model(saved.config);
  saved.load(model);
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);

  EXPECT_EQ(saved.progress.step, 100);
  EXPECT_EQ(std::vector<float>(model.values().begin(), model.values().end()),
            std::vector<float>(trained.values().begin(), trained.values().end()));
}

// What the headers say.
TEST(ModelHeaderExamples, AreTheOnesInTheHeaders) {
  using ttr::examples::header_example;
  const std::string here = "tests/model_header_examples_test.cc";
  ttr::examples::expect_in(here, header_example("include/ttr/model.h"), 10);
  ttr::examples::expect_in(here, header_example("include/ttr/optimiser.h"), 5);
  ttr::examples::expect_in(here, header_example("include/ttr/tasks.h"), 3);
  ttr::examples::expect_in(here, header_example("include/ttr/checkpoint.h"), 4);
}

}  // namespace
