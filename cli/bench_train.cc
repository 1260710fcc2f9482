// `ttr bench train`: tokens per second of training a small model, and what they are of the machine's multiply-adds.
//
//   operations per token   6 x parameters + 3 x the plain recurrence of the mixers (forwards once, backwards twice;
//                          attention 3.5 x). The embedding is looked up and is not counted, unless it is the head too.
//   % peak                 of the float multiply-adds per second of as many threads, measured between the steps
//
// A step is draw nothing, gradient, AdamW; the median of several counts. Time shares are those of Session::times over all
// measured steps. Before, the gradient of two sequences is compared with that of the same model in double.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>

#include "aside.h"
#include "bench.h"
#include "bench_case.h"
#include "bench_machine.h"
#include "json.h"
#include "progress.h"
#include "standard_files.h"
#include "text_table.h"
#include "ttr/model.h"
#include "ttr/optimiser.h"
#include "ttr/random.h"

namespace ttr::cli {
namespace {

struct Share {
  const char *key, *name;
  double seconds;
};

struct Trained {
  std::string layer;
  int threads = 1;
  std::size_t parameters = 0;
  double error = 0;  // of the gradient, relative to the longest tensor
  double first_loss = 0;
  double step_s = 0, flops = 0, peak = 0;  // flops per token; NaN: no count
  std::vector<Share> shares;               // seconds per step
  double tokens = 0;
  double tokens_per_s() const { return tokens / step_s; }
  double gflops() const { return flops * tokens_per_s() * 1e-9; }
  double percent() const { return 100 * gflops() / peak; }
};

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.empty() ? std::numeric_limits<double>::quiet_NaN() : x[x.size() / 2];
}

struct Data {
  explicit Data(const TrainBenchOptions& o) {
    model::Random random(1, "bench train");
    const auto draw = [&](std::vector<std::int32_t>& to) {
      to.resize(static_cast<std::size_t>(o.batch) * static_cast<std::size_t>(o.time));
      for (std::int32_t& token : to)
        token = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(o.vocabulary)));
    };
    draw(tokens), draw(labels);
  }
  template <class T>
  model::Batch<T> batch(int sequences, int time) const {
    return {.batch = sequences, .time = time, .tokens = tokens.data(), .labels = labels.data()};
  }
  std::vector<std::int32_t> tokens, labels;
};

model::Config config_of(const TrainBenchOptions& o, const std::string& layer) {
  model::Config config;
  config.stack = fmt::format("{}*{}", layer, o.blocks);
  config.vocabulary = o.vocabulary, config.width = o.width, config.heads = o.heads, config.time = o.time;
  return config;
}

// The largest difference of the gradient in float and in double, relative to the largest number of its tensor.
double gradient_error(const model::Model<float>& model, const model::Config& config, const Data& data, int threads) {
  const int sequences = 2, time = std::min(config.time, 64);
  model::Model<double> exact(config, 1);
  std::copy(model.values().begin(), model.values().end(), exact.values().begin());
  model::Session<float> session(model, sequences, time, threads);
  model::Session<double> reference(exact, sequences, time, threads);
  session.gradient(data.batch<float>(sequences, time)), reference.gradient(data.batch<double>(sequences, time));
  double worst = 0;
  for (const model::Parameter& p : model.parameters()) {
    double difference = 0, largest = 1e-6;
    for (std::size_t i = p.offset; i < p.offset + p.size; ++i) {
      const double right = reference.gradients()[i];
      largest = std::max(largest, std::abs(right));
      difference = std::max(difference, std::abs(static_cast<double>(session.gradients()[i]) - right));
    }
    if (!(difference <= worst * largest)) worst = difference / largest;
  }
  return worst;
}

double flops_per_token(const TrainBenchOptions& o, const std::string& layer, const model::Model<float>& model) {
  double counted = 0;
  for (const model::Parameter& p : model.parameters())
    if (p.name != "embedding") counted += static_cast<double>(p.size);
  const double dim = static_cast<double>(o.width) / o.heads;
  const std::string name = layer == "softmax" ? "softmax-attention" : layer;
  const double both = name == "softmax-attention" ? attention_both : 3;
  return 6 * counted + both * o.blocks * recurrence_flops(name, dim, dim, o.heads, o.time);
}

// Empty shares: interrupted.
Trained measure(const TrainBenchOptions& o, const std::string& layer, int threads, const Data& data) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const model::Config config = config_of(o, layer);
  model::Model<float> model(config, 1);
  Trained result;
  result.layer = layer, result.threads = threads;
  for (const model::Parameter& p : model.parameters()) result.parameters += p.size;
  result.error = gradient_error(model, config, data, threads);
  if (!(result.error < 1e-3)) return result;
  result.flops = flops_per_token(o, layer, model);
  result.tokens = static_cast<double>(o.batch) * o.time;
  model::Session<float> session(model, o.batch, o.time, threads);
  model::OptimiserConfig how;
  how.rate = 1e-4, how.steps = 1'000'000, how.clip = 1;
  model::Optimiser<float> optimiser(model.parameters(), how, threads);
  std::vector<double> steps, peaks;
  model::Times before;
  double stepping = 0, all = 0;
  for (int run = -2; run < o.runs; ++run) {  // two to warm up
    if (interrupted()) return result;
    if (run == 0) before = session.times();
    const double peak = fma_gflops(Type::f32, threads, 0.005);
    const auto begin = Clock::now();
    const model::Measure measured = session.gradient(data.batch<float>(o.batch, o.time));
    const auto middle = Clock::now();
    optimiser.step(model.values(), session.gradients());
    const double taken = since(begin);
    if (run == -2) result.first_loss = measured.loss;
    if (run < 0) continue;
    peaks.push_back(peak), steps.push_back(taken);
    stepping += since(middle), all += taken;
  }
  result.step_s = median(steps), result.peak = median(peaks);
  const model::Times& now = session.times();
  const auto part = [&](const char* key, const char* name, double model::Times::*which) {
    result.shares.push_back({key, name, (now.*which - before.*which) / o.runs});
  };
  part("mixer_forward", "mixer fwd", &model::Times::mixer_forward);
  part("mixer_backward", "mixer bwd", &model::Times::mixer_backward);
  part("product_forward", "x W", &model::Times::product_forward);
  part("product_input", "dy W'", &model::Times::product_input);
  part("product_weight", "x' dy", &model::Times::product_weight);
  part("convolution", "conv", &model::Times::convolution);
  part("norm", "norms", &model::Times::norm);
  part("activation", "activations", &model::Times::activation);
  part("head", "head, loss", &model::Times::head);
  result.shares.push_back({"optimiser", "optimiser", stepping / o.runs});
  double rest = all / o.runs;
  for (const Share& share : result.shares) rest -= share.seconds;
  result.shares.push_back({"rest", "rest", rest});
  return result;
}

Json json_of(const TrainBenchOptions& o, const Trained& r) {
  Json shares = Json::object();
  for (const Share& share : r.shares) shares.set(share.key, share.seconds / r.step_s);
  Json j = Json::object();
  j.set("layer", r.layer).set("blocks", o.blocks).set("width", o.width).set("heads", o.heads).set("time", o.time);
  j.set("batch", o.batch).set("vocabulary", o.vocabulary).set("threads", r.threads).set("parameters", r.parameters);
  j.set("tokens_per_s", r.tokens_per_s()).set("step_s", r.step_s).set("flops_per_token", r.flops);
  j.set("gflops", r.gflops()).set("f32_gflops", r.peak).set("percent_peak", r.percent());
  return j.set("first_loss", r.first_loss).set("gradient_error", r.error).set("shares", shares);
}

void print(const TrainBenchOptions& o, const std::vector<Trained>& results) {
  TextTable speed({"layer", "threads", "parameters", "tokens/s", "ms/step", "MFLOP/token", "GFLOP/s", "% peak"});
  for (const Trained& r : results)
    speed.row({r.layer, std::to_string(r.threads), std::to_string(r.parameters),
               fmt::format("{:.0f}", r.tokens_per_s()), short_number(1e3 * r.step_s), short_number(1e-6 * r.flops),
               short_number(r.gflops()), short_number(r.percent())});
  std::vector<std::string> header = {"percent of the time", "threads"};
  for (const Share& share : results.front().shares) header.push_back(share.name);
  TextTable shares(header);
  for (const Trained& r : results) {
    double all = 0;
    for (const Share& share : r.shares) all += share.seconds;
    std::vector<std::string> cells = {r.layer, std::to_string(r.threads)};
    for (const Share& share : r.shares) cells.push_back(fmt::format("{:.1f}", 100 * share.seconds / all));
    shares.row(cells);
  }
  fmt::print(
      "{} blocks of width {} with {} heads, vocabulary {}, {} sequences of {} tokens, AdamW; median of {} steps.\n"
      "Peak of {} in the same run: {} GFLOP/s.\n\n{}\n{}",
      o.blocks, o.width, o.heads, o.vocabulary, o.batch, o.time, o.runs, vector_unit(),
      short_number(results.back().peak), speed.text(), shares.text());
}

}  // namespace

int run_bench_train(const TrainBenchOptions& given) {
  TrainBenchOptions o = given;
  if (o.quick) {
    o.width = std::min(o.width, 32), o.time = std::min(o.time, 32), o.batch = std::min(o.batch, 4);
    o.runs = std::min(o.runs, 2), o.vocabulary = std::min(o.vocabulary, 64);
  }
  const auto check = [](const char* option, int value, int most) {
    if (value < 1 || value > most)
      throw Error(fmt::format("{} is {}; it can be 1 to {}", option, value, most), option);
  };
  check("--blocks", o.blocks, 256), check("--width", o.width, 8192), check("--heads", o.heads, o.width);
  check("--time", o.time, 65536), check("--batch", o.batch, 65536), check("--vocabulary", o.vocabulary, 1 << 20);
  check("--runs", o.runs, 1000);
  if (o.batch < 2 || o.vocabulary < 2)
    throw Error("a step has at least two sequences (--batch) and two tokens to choose from (--vocabulary)",
                "--batch");
  if (o.threads.empty()) o.threads = {static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
  for (const int threads : o.threads) check("--threads", threads, 256);
  for (const std::string& layer : o.layers) model::Model<float>(config_of(o, layer));  // before anything is measured

  InterruptGuard guard;
  Progress progress("bench train", true);
  const auto data = std::make_shared<const Data>(o);
  std::vector<Trained> results, wrong;
  const double total = static_cast<double>(o.layers.size() * o.threads.size());
  double done = 0;
  for (const std::string& layer : o.layers)
    for (const int threads : o.threads) {
      progress.update(done++, total, fmt::format("{}, {} threads", layer, threads));
      const auto result = made_aside([o, layer, threads, data] { return measure(o, layer, threads, *data); });
      if (!result || interrupted()) break;
      (result->shares.empty() ? wrong : results).push_back(*result);
    }
  progress.finish();
  for (const Trained& r : wrong)
    tell("ttr: not measured: the gradient of {} in float is {} from that in double\n", r.layer,
         short_number(r.error));
  if (o.json) {
    Json cases = Json::array();
    for (const Trained& r : results) cases.push(json_of(o, r));
    fmt::print("{}\n", Json::object().set("vectors", vector_unit()).set("cases", cases).dump());
  } else if (!results.empty()) {
    print(o, results);
  }
  if (interrupted()) {
    tell("ttr: interrupted; what is shown was complete\n");
    return 128 + interrupted();
  }
  return wrong.empty() ? 0 : 1;
}

}  // namespace ttr::cli
