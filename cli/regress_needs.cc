#include "regress_needs.h"

#include <algorithm>

#include <fmt/format.h>

#include "ttr/memory.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

constexpr const char* small_layer = "nlms";

struct Total {
  double keeps = 0, peak = 0;
};

Total total_of(const std::vector<std::string>& texts, const ForecastSpec& spec, const NeedSpec& need) {
  const int K = PairBuilder(spec.pairs).key_dim();
  Total sum;
  for (const std::string& text : texts) {
    const StreamLayer::Need one = StreamLayer::need(text, K, spec.pairs.value_columns);
    // The state, one to go back to if a call fails, that before the newest pair, one for what leaves no trace.
    const double states = 2 + (need.groups ? 1 : 0) + (need.questions ? 1 : 0) + (need.asks ? 1 : 0);
    // An archive, and the bytes of its file.
    const double written = need.saved ? 2.1 * (need.questions ? 2 : 1) : 0;
    sum.keeps += one.state;
    sum.peak += (states + written) * one.state + one.work + 2 * one.inputs;
  }
  return sum;
}

}  // namespace

std::vector<std::string> leave_out_quadratic(std::vector<std::string>& layers, const ForecastSpec& spec) {
  const int K = PairBuilder(spec.pairs).key_dim();
  std::vector<std::string> out;
  if (K <= most_keys_of_default) return out;
  std::erase_if(layers, [&](const std::string& text) {
    const std::string runs = spec.classify ? classifier_text(text) : text;
    const double square = static_cast<double>(K) * K;
    const bool large = StreamLayer::need(runs, K, spec.pairs.value_columns).state >= square;
    if (large) out.push_back(text);
    return large;
  });
  return out;
}

void require_layers(const ForecastSpec& spec, const NeedSpec& need) {
  std::vector<std::string> texts;
  for (const std::string& text : spec.layers)
    for (const std::string& variant : spec.tune ? settings_of(text, spec.classify) : std::vector{text})
      texts.push_back(spec.classify ? classifier_text(variant) : variant);
  const Total all = total_of(texts, spec, need);
  if (all.peak < 32e6) return;
  const FreeMemory free = free_memory();
  if (all.peak <= free.bytes) return;
  const bool several = spec.layers.size() > 1;
  std::string text = fmt::format("{} {} {} for {} and {} {} at {} peak; {}", join(spec.layers),
                                 several ? "keep" : "keeps", bytes_in_words(all.keeps),
                                 counted(PairBuilder(spec.pairs).key_dim(), "key"), several ? "need" : "needs",
                                 bytes_in_words(all.peak), several ? "their" : "its", free_in_words(free));
  if (!spec.classify) {
    const Total small = total_of({small_layer}, spec, need);
    if (small.peak <= free.bytes && small.peak < all.peak)
      text += fmt::format("; {} needs {}: --layer {}", small_layer, bytes_in_words(small.peak), small_layer);
  }
  throw NotEnoughMemory(text, "--layer");
}

}  // namespace ttr::cli
