// Texts that come and go: Slots of ttr/language.h.
#include <algorithm>
#include <deque>
#include <string>

#include "ttr/language.h"

namespace ttr::model {

template <class T>
struct TTR_HIDDEN Slots<T>::Body {
  struct Text {
    std::unique_ptr<Sequence<T>> sequence;  // kept for the next text; null until the first
    std::vector<std::int32_t> prompt;
    std::size_t read = 0;     // of the prompt
    std::int32_t token = -1;  // chosen, and not decoded yet; -1: the prompt is not read
    bool taken = false;
    std::uint64_t number = 0;  // of the text: a slot that was left may be another's by now
  };
  Body(LanguageModel<T>& m, int most) : model(m), texts(static_cast<std::size_t>(most)) {}

  Text& at(int slot) {
    if (slot < 0 || slot >= static_cast<int>(texts.size()) || !texts[static_cast<std::size_t>(slot)].taken)
      throw Error("the slot " + std::to_string(slot) + " is not taken", "slot");
    return texts[static_cast<std::size_t>(slot)];
  }
  void free(int slot) {
    texts[static_cast<std::size_t>(slot)].taken = false;
    waiting.erase(std::remove(waiting.begin(), waiting.end(), slot), waiting.end());
  }
  // Asks for the next token of a text, which may leave by that.
  void choose(int slot, std::span<const T> scores, const Next& next) {
    Text& text = texts[static_cast<std::size_t>(slot)];
    const std::uint64_t number = text.number;
    const std::int32_t token = next(slot, scores);
    if (!text.taken || text.number != number) return;  // it has left by itself
    if (token < 0) return free(slot);
    check(token);
    text.token = token;
  }
  void check(std::int32_t token) const {
    if (token < 0 || token >= model.about().vocabulary)
      throw Error("the token " + std::to_string(token) + " is not one of the " +
                      std::to_string(model.about().vocabulary) + " of the model",
                  "tokens");
  }

  LanguageModel<T>& model;
  std::vector<Text> texts;
  std::deque<int> waiting;  // whose prompts are not read, the oldest first
  std::uint64_t joined = 0;
  std::vector<int> members;
  std::vector<Sequence<T>*> sequences;
  std::vector<std::int32_t> tokens;
  std::vector<T> logits;
};

template <class T>
Slots<T>::Slots(LanguageModel<T>& model, int most) {
  if (most < 1 || most > 65536)
    throw Error("there are " + std::to_string(most) + " slots; it is 1 to 65536", "slots");
  body_ = std::make_unique<Body>(model, most);
}
template <class T>
Slots<T>::~Slots() = default;

template <class T>
int Slots<T>::join(std::span<const std::int32_t> prompt, const Sequence<T>* from) {
  Body& b = *body_;
  if (prompt.empty()) throw Error("a text has at least one token", "tokens");
  for (const std::int32_t token : prompt) b.check(token);
  if (from && &from->model() != &b.model) throw Error("the sequence is one of another model", "sequence");
  for (std::size_t i = 0; i < b.texts.size(); ++i) {
    auto& text = b.texts[i];
    if (text.taken) continue;
    if (!text.sequence) text.sequence = std::make_unique<Sequence<T>>(b.model);
    else if (!from) text.sequence->reset();
    if (from) *text.sequence = *from;
    text.prompt.assign(prompt.begin(), prompt.end());
    text.read = 0, text.token = -1, text.taken = true, text.number = ++b.joined;
    b.waiting.push_back(static_cast<int>(i));
    return static_cast<int>(i);
  }
  return -1;
}
template <class T>
void Slots<T>::leave(int slot) {
  body_->at(slot);
  body_->free(slot);
}
template <class T>
int Slots<T>::taken() const noexcept {
  return static_cast<int>(
      std::count_if(body_->texts.begin(), body_->texts.end(), [](const auto& text) { return text.taken; }));
}
template <class T>
int Slots<T>::most() const noexcept {
  return static_cast<int>(body_->texts.size());
}
template <class T>
const Sequence<T>& Slots<T>::sequence(int slot) const {
  return *body_->at(slot).sequence;
}

template <class T>
void Slots<T>::round(const Next& next) {
  Body& b = *body_;
  b.members.clear(), b.sequences.clear(), b.tokens.clear();
  for (std::size_t i = 0; i < b.texts.size(); ++i)
    if (auto& text = b.texts[i]; text.taken && text.token >= 0)
      b.members.push_back(static_cast<int>(i)), b.sequences.push_back(text.sequence.get()),
          b.tokens.push_back(text.token);
  // Those who join while tokens are chosen are none of the members: they have no token yet.
  if (!b.members.empty()) {
    try {
      const std::span<const T> logits = b.model.decode(b.sequences, b.tokens);
      b.logits.assign(logits.begin(), logits.end());
    } catch (...) {
      for (const int slot : b.members) b.free(slot);
      throw;
    }
    const std::size_t classes = b.logits.size() / b.members.size();
    for (const int slot : b.members) b.texts[static_cast<std::size_t>(slot)].token = -1;
    const std::uint64_t before = b.joined;
    for (std::size_t i = 0; i < b.members.size(); ++i)
      if (const auto& text = b.texts[static_cast<std::size_t>(b.members[i])]; text.taken && text.number <= before)
        b.choose(b.members[i], {b.logits.data() + i * classes, classes}, next);
  }
  if (b.waiting.empty()) return;
  const int slot = b.waiting.front();
  auto& text = b.texts[static_cast<std::size_t>(slot)];
  const std::size_t piece = std::min(static_cast<std::size_t>(b.model.about().piece), text.prompt.size() - text.read);
  std::span<const T> logits;
  try {
    logits = b.model.prefill(*text.sequence, std::span(text.prompt).subspan(text.read, piece));
  } catch (...) {
    b.free(slot);
    throw;
  }
  text.read += piece;
  if (text.read < text.prompt.size()) return;
  b.waiting.pop_front();
  b.logits.assign(logits.begin(), logits.end());
  b.choose(slot, b.logits, next);
}

template class Slots<float>;
template class Slots<double>;

}  // namespace ttr::model
