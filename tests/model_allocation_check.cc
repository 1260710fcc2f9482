// A session and an optimiser allocate nothing after their first step, a decoder nothing at all: counts operator new, also
// the aligned one, during the second and third step of every layer that has a kernel, and during its tokens.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

#include "ttr/model.h"
#include "ttr/optimiser.h"
#include "ttr/ttr.h"

namespace {
long allocations = 0;
}

// Not inlined, these and those that free: g++ 12 would see malloc() or free() beside the other's operator and warn of a
// mismatch that there is not.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const auto line = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(line, (bytes + line) / line * line)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

int main() {
  int checked = 0, decoders = 0, failed = 0;
  std::vector<std::int32_t> tokens(2 * 70), labels(2 * 70);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(i * 7 % 11), labels[i] = static_cast<std::int32_t>(i * 5 % 11);
  const char* const methods[] = {"adamw", "sgd", "muon", "soap"};
  for (const ttr::LayerInfo& info : ttr::layers()) {
    if (info.recipe.empty()) continue;
    ttr::model::Config config;
    config.stack = info.name, config.vocabulary = 11, config.width = 16, config.heads = 2, config.time = 70;
    if (ttr::plan(info.name, {.batch = 2, .heads = 2, .key_dim = 8, .value_dim = 8}).kernel() == "oracle") continue;
    ttr::model::OptimiserConfig how;
    how.method = methods[checked % 4], how.every = 2, how.ema = 0.9;
    ttr::model::Model<float> model(config, 1);
    ttr::model::Session<float> session(model, 2, 70);
    ttr::model::Optimiser<float> optimiser(model.parameters(), how);
    const ttr::model::Batch<float> batch{.batch = 2, .time = 70, .tokens = tokens.data(), .labels = labels.data()};
    long before = 0;
    for (int step = 0; step < 3; ++step) {
      if (step == 1) before = allocations;
      session.gradient(batch);
      optimiser.step(model.values(), session.gradients());
    }
    ++checked;
    if (allocations != before) {
      ++failed;
      std::printf("%s with %s: %ld allocations in two steps\n", info.name.c_str(), how.method.c_str(),
                  allocations - before);
    }
    if (std::find(info.forms.begin(), info.forms.end(), "step") == info.forms.end()) continue;
    ttr::model::Decoder<float> decoder(model, 2, 70);
    before = allocations;
    decoder.advance({.batch = 2, .time = 40, .tokens = tokens.data()});
    for (int t = 0; t < 10; ++t)
      decoder.advance({.batch = 2, .time = 1, .tokens = tokens.data() + 2 * static_cast<std::ptrdiff_t>(t)});
    ++decoders;
    if (allocations == before) continue;
    ++failed;
    std::printf("%s: %ld allocations of its decoder\n", info.name.c_str(), allocations - before);
  }
  std::printf("%d models and %d decoders checked, %d failed\n", checked, decoders, failed);
  return checked > 50 && decoders > 50 && failed == 0 ? 0 : 1;
}
