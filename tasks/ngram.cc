// ngram.h: an order at a time. All pairs of a context and its byte are numbers of 8 (k+1) bits; sorted, equal ones are side by
// side, and so are those of one context.
#include "ttr/ngram.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "ttr/status.h"

namespace ttr::model {

TextParts read_text(const std::string& path, double held, std::int64_t held_bytes) {
  std::ifstream in(path, std::ios::binary);
  TextParts text;
  if (in) text.bytes.assign(std::istreambuf_iterator<char>(in), {});
  if (!in || in.bad()) throw Error("the file '" + path + "' cannot be read", "file");
  const std::size_t size = text.bytes.size();
  if (held_bytes > 0) text.first = size - std::min(size, static_cast<std::size_t>(held_bytes));
  else text.first = static_cast<std::size_t>(static_cast<double>(size) * (1 - held));
  return text;
}

namespace {

struct Counted {
  std::uint64_t key;
  double times, kinds;  // kinds: of contexts, how many bytes follow
};

const Counted* find(const std::vector<Counted>& all, std::uint64_t key) {
  const auto at =
      std::lower_bound(all.begin(), all.end(), key, [](const Counted& a, std::uint64_t b) { return a.key < b; });
  return at != all.end() && at->key == key ? &*at : nullptr;
}

}  // namespace

std::vector<double> ngram_bits(std::span<const unsigned char> train, std::span<const unsigned char> test, int order) {
  if (order < 0 || order > 7) throw Error("order is " + std::to_string(order) + "; it is from 0 to 7", "order");
  if (train.empty() || test.empty())
    throw Error("the training part has " + std::to_string(train.size()) + " bytes and the held part " +
                    std::to_string(test.size()) + "; both need one at least",
                "file");
  std::vector<double> p(test.size(), 1.0 / 256), bits;
  for (int k = 0; k <= order; ++k) {
    const auto length = static_cast<std::size_t>(k);
    const std::uint64_t mask = k == 7 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * (k + 1))) - 1;
    // body(i, key) for every byte with k bytes before it: they and it as one number.
    const auto over = [&](std::span<const unsigned char> bytes, auto&& body) {
      std::uint64_t key = 0;
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        key = ((key << 8) | bytes[i]) & mask;
        if (i >= length) body(i, key);
      }
    };
    std::vector<std::uint64_t> keys;
    keys.reserve(train.size());
    over(train, [&](std::size_t, std::uint64_t key) { keys.push_back(key); });
    std::sort(keys.begin(), keys.end());
    std::vector<Counted> pairs, contexts;
    for (const std::uint64_t key : keys) {
      if (!pairs.empty() && pairs.back().key == key) {
        ++pairs.back().times;
      } else {
        pairs.push_back({key, 1, 0});
        if (contexts.empty() || contexts.back().key != key >> 8) contexts.push_back({key >> 8, 0, 0});
        ++contexts.back().kinds;
      }
      ++contexts.back().times;
    }
    over(test, [&](std::size_t i, std::uint64_t key) {
      const Counted* const context = find(contexts, key >> 8);
      if (!context) return;
      const Counted* const pair = find(pairs, key);
      p[i] = ((pair ? pair->times : 0) + context->kinds * p[i]) / (context->times + context->kinds);
    });
    double sum = 0;
    for (const double one : p) sum -= std::log2(one);
    bits.push_back(sum / static_cast<double>(test.size()));
  }
  return bits;
}

}  // namespace ttr::model
