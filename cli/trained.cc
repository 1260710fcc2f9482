#include "trained.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "run_folder.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace fs = std::filesystem;

namespace {

bool names_task(const std::string& given) {
  const std::vector<model::TaskInfo> known = model::tasks();
  const std::string word = given.substr(0, given.find('('));
  return std::any_of(known.begin(), known.end(), [&](const auto& one) { return one.name == word; });
}

}  // namespace

bool is_text_file(const std::string& given) {
  std::error_code failed;
  return !names_task(given) && fs::exists(given, failed);
}

std::string task_text(const std::string& given, int time, double held) {
  std::error_code failed;
  if (is_text_file(given)) {
    if (fs::is_directory(given, failed))
      throw Error("'" + given + "' is a folder; name a text file or a task", "task");
    return to_string(model::BlockText{
        "text",
        {{"file", fs::absolute(given).string()}, {"time", std::to_string(time)}, {"held", fmt::format("{}", held)}}});
  }
  if (!names_task(given)) {
    std::string list;
    for (const model::TaskInfo& one : model::tasks()) list += (list.empty() ? "" : ", ") + one.name;
    throw Error(fmt::format("there is no task '{}' and no such file; the tasks are {}", given, list), "task");
  }
  std::vector<model::BlockText> parsed = model::parse_stack(given);
  if (parsed.size() != 1) throw Error(fmt::format("'{}' names {} tasks; name one", given, parsed.size()), "task");
  if (const auto file = parsed[0].settings.find("file"); file != parsed[0].settings.end())
    file->second = fs::absolute(file->second).string();
  return to_string(parsed[0]);
}

std::string fingerprint(const model::Task& task) {
  std::uint64_t sum = 0xCBF29CE484222325u;
  for (const bool test : {false, true})
    for (const unsigned char byte : task.text(test)) sum = (sum ^ byte) * 0x100000001B3u;
  const std::size_t bytes = task.text(false).size() + task.text(true).size();
  return bytes ? fmt::format("{} bytes {:016x}", bytes, sum) : "";
}

TrainedModel open_trained(const std::string& path, int time) {
  TrainedModel result;
  result.path = model_file(path);
  const model::Checkpoint saved = model::read_checkpoint(result.path);
  result.config = saved.config;
  result.config.time = std::max(result.config.time, time);
  result.model = std::make_unique<model::Model<float>>(result.config);
  result.mean = saved.load_mean(*result.model);
  if (!result.mean) saved.load(*result.model);
  result.step = saved.progress.step;
  const auto note = [&](const char* key) {
    const auto found = saved.progress.notes.find(key);
    return found == saved.progress.notes.end() ? std::string() : found->second;
  };
  result.task = note("task");
  if (!note("seed").empty()) result.seed = std::strtoull(note("seed").c_str(), nullptr, 10);
  result.mean = result.mean || note("weights").rfind("mean", 0) == 0;
  return result;
}

std::int32_t draw_token(std::span<const float> scores, const Sampling& how, model::Random& random) {
  return draw(shares_of(std::vector<double>(scores.begin(), scores.end()), how, {}), random);
}

void generate(const model::Model<float>& model, const std::vector<std::int32_t>& prompt, std::int64_t count,
              const Sampling& how, std::uint64_t seed, int threads, const std::function<bool(std::int32_t)>& put) {
  const std::int64_t all = static_cast<std::int64_t>(prompt.size()) + count;
  if (all > 1 << 30) throw Error(fmt::format("{} tokens are more than 2^30", all), "--tokens");
  model::Decoder<float> decoder(model, 1, static_cast<int>(all), threads);
  model::Random random(seed, "generate");
  std::span<const float> scores =
      decoder.advance({.batch = 1, .time = static_cast<int>(prompt.size()), .tokens = prompt.data()});
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t next = draw_token(scores, how, random);
    if (!put(next)) return;
    if (i + 1 < count) scores = decoder.advance({.batch = 1, .time = 1, .tokens = &next});
  }
}

}  // namespace ttr::cli
