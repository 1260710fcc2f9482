// One GGUF file, read by ttr and by llama.cpp in one process: how far the logits are from each other, then tokens per second.
//
//   ttr_peer_language MODEL.gguf [PROMPT [TOKENS [THREADS [ACTIVATIONS]]]]        512, 48, all cores (0), exact or rounded
//
// Blocks of tokens take turns, so that both see the machine at the same time, and the first tokens of a block do not count:
// threads of the other may still be awake. Medians of decoded tokens, the best of three prompts.
//
// llama.cpp rounds activations to the precision of the weights (eight bits with Q8_0, bf16 with BF16), ttr with "rounded". Logits are
// to be compared with F32: a deep model of random numbers magnifies such roundings to some hundredths of the largest and more,
// also where both round and add in another order.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <span>
#include <thread>
#include <vector>

#include "llama.h"
#include "ttr/language.h"

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }
double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

struct Llama {
  Llama(const char* path, int context, int threads) {
    llama_backend_init();
    llama_log_set(
        [](ggml_log_level level, const char* text, void*) {
          if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
        },
        nullptr);
    model = llama_model_load_from_file(path, llama_model_default_params());
    if (!model) return;
    llama_context_params p = llama_context_default_params();
    p.n_ctx = static_cast<std::uint32_t>(context), p.n_batch = p.n_ctx, p.n_ubatch = 512;
    p.n_threads = p.n_threads_batch = threads;
    state = llama_init_from_model(model, p);
  }
  ~Llama() {
    if (state) llama_free(state);
    if (model) llama_model_free(model);
  }
  Llama(const Llama&) = delete;
  Llama& operator=(const Llama&) = delete;
  // The logits after the tokens; null if it failed.
  const float* run(std::span<std::int32_t> tokens) {
    if (llama_decode(state, llama_batch_get_one(tokens.data(), static_cast<std::int32_t>(tokens.size()))) != 0)
      return nullptr;
    return llama_get_logits_ith(state, -1);
  }
  void reset() { llama_memory_clear(llama_get_memory(state), true); }

  llama_model* model = nullptr;
  llama_context* state = nullptr;
};

int compare(const char* path, int prompt_length, int tokens, int threads, const char* activations) {
  ttr::model::LoadOptions how;
  how.threads = threads, how.context = prompt_length + tokens + 64;
  how.activations = ttr::model::activations_of(activations);
  ttr::model::LanguageModel<float> ours(path, how);
  ttr::model::Sequence<float> text(ours);
  Llama theirs(path, prompt_length + tokens + 64, threads);
  if (!theirs.state) return std::fprintf(stderr, "llama.cpp does not load '%s'\n", path), 2;
  const auto classes = static_cast<std::size_t>(ours.about().vocabulary);
  std::uint32_t seed = 1;
  const auto draw = [&] {
    seed = seed * 1664525u + 1013904223u;
    return static_cast<std::int32_t>((seed >> 8) % classes);
  };
  std::vector<std::int32_t> prompt(static_cast<std::size_t>(prompt_length));
  for (std::int32_t& token : prompt) token = draw();

  double best[2] = {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  double difference = 0, largest = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    text.reset(), theirs.reset();
    auto begin = Clock::now();
    const std::span<const float> a = ours.prefill(text, prompt);
    best[0] = std::min(best[0], since(begin));
    begin = Clock::now();
    const float* const b = theirs.run(prompt);
    best[1] = std::min(best[1], since(begin));
    if (!b) return std::fprintf(stderr, "llama.cpp did not take the prompt\n"), 2;
    for (std::size_t i = 0; i < classes; ++i) {
      difference = std::max(difference, static_cast<double>(std::abs(a[i] - b[i])));
      largest = std::max(largest, static_cast<double>(std::abs(a[i])));
    }
  }
  std::vector<double> seconds[2];
  constexpr int block = 8, warm = 2;
  ttr::model::Sequence<float>* slots[] = {&text};
  for (int done = 0; done < tokens; done += block - warm) {
    std::int32_t drawn[block];
    for (std::int32_t& token : drawn) token = draw();
    for (int who = 0; who < 2; ++who)
      for (int i = 0; i < block; ++i) {
        const auto begin = Clock::now();
        if (who == 0) (void)ours.decode(slots, std::span<const std::int32_t>(drawn + i, 1));
        else if (!theirs.run(std::span(drawn + i, 1)))
          return std::fprintf(stderr, "llama.cpp did not take a token\n"), 2;
        if (i >= warm) seconds[who].push_back(since(begin));
      }
  }
  const double decode[2] = {1 / median(seconds[0]), 1 / median(seconds[1])};
  const double prefill[2] = {prompt_length / best[0], prompt_length / best[1]};
  std::printf("%s: %d threads, %s activations, logits differ by %.1e of the largest\n", path, threads, activations,
              difference / largest);
  std::printf("  decode   ttr %7.1f tokens/s   llama.cpp %7.1f   ratio %.2f\n", decode[0], decode[1],
              decode[0] / decode[1]);
  std::printf("  prompt   ttr %7.1f tokens/s   llama.cpp %7.1f   ratio %.2f   (%d tokens)\n", prefill[0], prefill[1],
              prefill[0] / prefill[1], prompt_length);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2)
    return std::fprintf(stderr,
                        "usage: ttr_peer_language MODEL.gguf [PROMPT [TOKENS [THREADS [exact | rounded]]]]\n"),
           2;
  const auto number = [&](int i, int otherwise) { return argc > i ? std::max(1, std::atoi(argv[i])) : otherwise; };
  try {
    const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    const int threads = argc > 4 && std::atoi(argv[4]) > 0 ? std::atoi(argv[4]) : all;
    return compare(argv[1], number(2, 512), number(3, 48), threads, argc > 5 ? argv[5] : "exact");
  } catch (const std::exception& problem) {
    return std::fprintf(stderr, "%s\n", problem.what()), 2;
  }
}
