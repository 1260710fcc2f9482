#include "stop_text.h"

#include <algorithm>

namespace ttr::cli {
namespace {

// Complete characters of UTF-8 at the beginning.
std::size_t whole_characters(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace

StopText::StopText(std::vector<std::string> stop) : stop_(std::move(stop)) {
  for (const std::string& one : stop_) longest_ = std::max(longest_, one.size());
}

std::string StopText::given(std::size_t end) {
  if (end <= given_) return "";
  std::string piece = made_.substr(given_, end - given_);
  given_ = end;
  return piece;
}

std::string StopText::add(std::string_view piece) {
  if (stopped_) return "";
  made_ += piece;
  std::size_t first = std::string::npos;
  for (const std::string& one : stop_) {
    const std::size_t from = made_.size() > piece.size() + one.size() ? made_.size() - piece.size() - one.size() : 0;
    if (!one.empty()) first = std::min(first, made_.find(one, std::max(from, given_)));
  }
  if (first != std::string::npos) {
    made_.resize(first);
    stopped_ = true;
    return given(made_.size());
  }
  const std::size_t waits = longest_ > 0 ? longest_ - 1 : 0;
  const std::size_t safe = made_.size() > waits ? made_.size() - waits : 0;
  return given(whole_characters(std::string_view(made_).substr(0, safe)));
}

std::string StopText::rest() { return given(made_.size()); }

}  // namespace ttr::cli
