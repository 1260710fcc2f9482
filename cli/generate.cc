// `ttr generate`: a model goes on after a prompt, token by token from its carried state; every byte is written as it comes.
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <sstream>
#include <system_error>

#include "aside.h"
#include "atomic_file.h"
#include "json.h"
#include "progress.h"
#include "trained_verbs.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

std::vector<std::int32_t> tokens_of(const std::string& prompt, const TrainedModel& trained) {
  std::vector<std::int32_t> tokens;
  if (trained.bytes()) {
    for (const char c : prompt) tokens.push_back(static_cast<unsigned char>(c));
    if (tokens.empty()) tokens.push_back('\n');
    return tokens;
  }
  std::istringstream words(prompt);
  for (std::string word; words >> word;) {
    char* end = nullptr;
    const long number = std::strtol(word.c_str(), &end, 10);
    if (*end != 0 || number < 0 || number >= trained.config.vocabulary)
      throw Error(
          fmt::format("--prompt has '{}'; the model was not trained on a text, its tokens are numbers from 0 to {}",
                      word, trained.config.vocabulary - 1),
          "--prompt");
    tokens.push_back(static_cast<std::int32_t>(number));
  }
  if (tokens.empty()) tokens.push_back(0);
  return tokens;
}

struct Made {
  std::mutex mutex;
  std::string text;
  std::int64_t count = 0;
};

}  // namespace

int run_generate(const GenerateOptions& o) {
  if (o.tokens < 1) throw Error(fmt::format("--tokens is {}; it is at least 1", o.tokens), "--tokens");
  o.sampling.check();
  const auto opened = std::make_shared<const TrainedModel>(open_trained(o.model));
  const TrainedModel& trained = *opened;
  if (trained.config.vocabulary == 0 || trained.config.loss != "cross-entropy" ||
      (trained.config.output_dim != 0 && trained.config.output_dim != trained.config.vocabulary))
    throw Error(fmt::format("'{}' does not predict tokens: it was trained on {}", trained.path,
                            trained.task.empty() ? "numbers" : trained.task),
                "model");
  const std::vector<std::int32_t> prompt = tokens_of(o.prompt, trained);
  const InterruptGuard guard;
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  const bool bytes = trained.bytes();
  const auto made = std::make_shared<Made>();
  const auto put = [json = o.json](std::string_view text) {
    if (json) return true;
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    if (!written && errno != EPIPE)
      throw std::system_error(errno, std::generic_category(), "cannot write standard output");
    return written;
  };
  if (bytes && !put(o.prompt)) return 0;
  const auto start = std::chrono::steady_clock::now();
  run_aside([o, opened, prompt, made, put, bytes, terminal] {
    generate(*opened->model, prompt, o.tokens, o.sampling, o.seed, o.threads, [&](std::int32_t token) {
      const std::lock_guard lock(made->mutex);
      std::string text =
          bytes ? std::string(1, static_cast<char>(token)) : fmt::format("{}{}", made->count ? " " : "", token);
      made->text += text;
      ++made->count;
      // A terminal takes control characters for orders.
      const auto byte = static_cast<unsigned char>(text[0]);
      if (bytes && terminal && ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f)) text = "?";
      return put(text) && interrupted() == 0;
    });
  });
  const std::lock_guard lock(made->mutex);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (o.json)
    fmt::print("{}\n",
               Json::object()
                   .set("model", trained.path)
                   .set("prompt", o.prompt)
                   .set("text", made->text)
                   .set("tokens", made->count)
                   .set("seed", static_cast<std::int64_t>(o.seed))
                   .set("temperature", o.sampling.temperature)
                   .set("top_p", o.sampling.top_p)
                   .set("seconds", seconds.count())
                   .set("tokens_per_second", static_cast<double>(made->count) / std::max(1e-9, seconds.count()))
                   .dump());
  else put("\n");
  return interrupted() ? 128 + interrupted() : 0;
}

}  // namespace ttr::cli
