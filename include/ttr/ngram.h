// How well bytes can be predicted by counting: the baseline of a byte-level language model.
//
//   const ttr::model::TextParts text = ttr::model::read_text("book.txt", 0.1, 0);
//   const std::vector<double> bits = ttr::model::ngram_bits(text.train(), text.held(), 6);   // bits[k]: of order k
//
//   p_k(c | h) = (n(h, c) + u(h) p_{k-1}(c | h')) / (n(h) + u(h))
//
// with counts n of the training part, h the k bytes before c and h' the last k-1 of them, u(h) the number of different bytes
// seen after h, p_{-1} = 1/256. A context that was never seen, or that begins before the part, keeps p_{k-1}. This is the
// interpolation of Witten and Bell 1991.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ttr/export.h"

namespace ttr::model {

/// A file in two parts: what is trained on, and its end, which is held for the test.
struct TextParts {
  std::vector<unsigned char> bytes;
  std::size_t first = 0;  // bytes of the first part
  std::span<const unsigned char> train() const { return std::span(bytes).first(first); }
  std::span<const unsigned char> held() const { return std::span(bytes).subspan(first); }
};
/// `held_bytes` at the end are held, or if that is 0 the share `held` of the file. Throws Error if it cannot be read.
TTR_MODEL_API TextParts read_text(const std::string& path, double held, std::int64_t held_bytes);

/// Bits per byte of `test`, of the orders 0 .. order (at most 7).
TTR_MODEL_API std::vector<double> ngram_bits(std::span<const unsigned char> train,
                                             std::span<const unsigned char> test, int order);

}  // namespace ttr::model
