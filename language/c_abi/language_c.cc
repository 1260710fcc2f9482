// The functions of ttr/language_c.h: exceptions become a status and a sentence, as in src/c_abi.
#include "ttr/language_c.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "c_abi/guard.h"
#include "files/json_text.h"
#include "ttr/language.h"

struct ttr_lm {
  ttr::model::LanguageModel<float> model;
  std::vector<ttr::model::Sequence<float>*> slots;  // of a step
};
struct ttr_lm_sequence {
  ttr::model::Sequence<float> sequence;
};
struct ttr_lm_slots {
  ttr::model::Slots<float> slots;
};

namespace {

using ttr::c_abi::bad;
using ttr::c_abi::guarded;
namespace model = ttr::model;

constexpr const char* no_model = "the model is NULL";
constexpr const char* no_slots = "the slots are NULL";
constexpr const char* no_sequence = "the sequence is NULL";

// Numbers or bytes to the caller: `*count` is the room and becomes how many there are.
template <class From, class To>
ttr_status give(const From& from, To* to, std::size_t* count) {
  if (!count) return bad("there is no place for the size");
  const std::size_t room = *count;
  *count = from.size();
  if (room < from.size() || (!to && !from.empty())) return bad("the room is too small; the size says what is needed");
  std::copy(from.begin(), from.end(), to);
  return TTR_OK;
}

std::string description(const model::LanguageModel<float>& of) {
  const model::ModelAbout& a = of.about();
  const auto number = [](auto x) { return std::to_string(x); };
  std::string text = "{\"path\": " + ttr::json_text(a.path) + ", \"architecture\": " + ttr::json_text(a.architecture);
  text += ", \"layers\": " + number(a.layers) + ", \"width\": " + number(a.width);
  text += ", \"vocabulary\": " + number(a.vocabulary) + ", \"parameters\": " + number(a.parameters);
  text += ", \"weight_bytes\": " + number(a.weight_bytes) + ", \"state_bytes\": " + number(a.state_bytes);
  text += ", \"workspace_bytes\": " + number(a.workspace_bytes);
  text += ", \"tokenizer\": " + (of.tokenizer() ? ttr::json_text(of.tokenizer()->about()) : std::string("null"));
  text += ", \"chat_template\": " + ttr::json_text(a.chat_template) + ", \"ends\": [";
  for (const std::int32_t token : a.ends) text += (text.back() == '[' ? "" : ", ") + number(token);
  return text + "]}";
}

void need_tokenizer(const model::LanguageModel<float>& of) {
  if (of.tokenizer()) return;
  const std::string& why = of.about().tokenizer_problem;
  throw ttr::Error((why.empty() ? "the model comes without a tokenizer" : why) + "; name one when it is loaded",
                   "tokenizer");
}

model::Bits bits(std::int32_t fixed) { return fixed ? model::Bits::fixed : model::Bits::fast; }

}  // namespace

extern "C" {

int32_t ttr_lm_abi_version(void) { return TTR_LM_ABI_VERSION; }
const char* ttr_lm_last_error(void) { return ttr::c_abi::last_error().sentence.c_str(); }

ttr_status ttr_lm_load(const char* path, const ttr_lm_options* options, ttr_lm** made) {
  if (!path || !made) return bad("the path or the place for the model is NULL");
  *made = nullptr;
  return guarded([&]() -> ttr_status {
    ttr_lm_options o;
    std::memset(&o, 0, sizeof o);
    if (options) {
      if (options->size < sizeof(std::size_t)) return bad("the options have no size; set it to sizeof");
      std::memcpy(&o, options, std::min(options->size, sizeof o));
    }
    model::LoadOptions how;
    how.threads = o.threads == 0 ? 1 : o.threads == -1 ? 0 : o.threads < 0 ? -1 : o.threads;
    if (o.context != 0) how.context = o.context;
    if (o.piece != 0) how.piece = o.piece;
    how.rewind = o.rewind;
    if (o.tokenizer) how.tokenizer = o.tokenizer;
    if (o.activations != TTR_LM_EXACT && o.activations != TTR_LM_ROUNDED)
      return bad("the activations are neither TTR_LM_EXACT nor TTR_LM_ROUNDED");
    if (o.activations == TTR_LM_ROUNDED) how.activations = model::Activations::rounded;
    std::string rest = o.settings ? o.settings : "";
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      const std::string line = rest.substr(0, end);
      rest.erase(0, end + 1);
      const std::size_t equal = line.find('=');
      if (line.empty()) continue;
      if (equal == std::string::npos || equal == 0)
        throw ttr::Error("a setting is '" + line + "'; it is name=value", "settings");
      how.settings[line.substr(0, equal)] = line.substr(equal + 1);
    }
    *made = new ttr_lm{model::LanguageModel<float>(path, how), {}};
    return TTR_OK;
  });
}
void ttr_lm_destroy(ttr_lm* lm) { delete lm; }
int32_t ttr_lm_vocabulary(const ttr_lm* lm) { return lm ? lm->model.about().vocabulary : 0; }

ttr_status ttr_lm_describe(const ttr_lm* lm, char* to, size_t* size) {
  if (!lm) return bad(no_model);
  return guarded([&] {
    std::string text = description(lm->model);
    text.push_back('\0');
    return give(text, to, size);
  });
}

ttr_status ttr_lm_encode(const ttr_lm* lm, const char* text, size_t bytes, int32_t special, int32_t* tokens,
                         size_t* count) {
  if (!lm) return bad(no_model);
  if (!text && bytes > 0) return bad("the text is NULL");
  return guarded([&] {
    need_tokenizer(lm->model);
    return give(lm->model.tokenizer()->encode({text, bytes}, special != 0, special != TTR_LM_NAMED), tokens, count);
  });
}
ttr_status ttr_lm_decode(const ttr_lm* lm, int32_t token, char* to, size_t* bytes) {
  if (!lm) return bad(no_model);
  return guarded([&] {
    need_tokenizer(lm->model);
    return give(lm->model.tokenizer()->decode(token), to, bytes);
  });
}

ttr_status ttr_lm_sequence_create(const ttr_lm* lm, ttr_lm_sequence** made) {
  if (!lm) return bad(no_model);
  if (!made) return bad("the place for the sequence is NULL");
  return guarded([&] {
    *made = new ttr_lm_sequence{model::Sequence<float>(lm->model)};
    return TTR_OK;
  });
}
ttr_status ttr_lm_sequence_clone(const ttr_lm_sequence* from, ttr_lm_sequence** made) {
  if (!from) return bad(no_sequence);
  if (!made) return bad("the place for the sequence is NULL");
  return guarded([&] {
    *made = new ttr_lm_sequence{from->sequence};
    return TTR_OK;
  });
}
void ttr_lm_sequence_destroy(ttr_lm_sequence* sequence) { delete sequence; }
ttr_status ttr_lm_sequence_reset(ttr_lm_sequence* s) {
  if (!s) return bad(no_sequence);
  return guarded([&] { return s->sequence.reset(), TTR_OK; });
}
int64_t ttr_lm_sequence_tokens(const ttr_lm_sequence* s) { return s ? s->sequence.tokens() : 0; }
int64_t ttr_lm_sequence_rewindable(const ttr_lm_sequence* s) { return s ? s->sequence.rewindable() : 0; }
ttr_status ttr_lm_sequence_rewind(ttr_lm_sequence* s, int64_t tokens) {
  if (!s) return bad(no_sequence);
  return guarded([&] { return s->sequence.rewind(tokens), TTR_OK; });
}
ttr_status ttr_lm_sequence_save(const ttr_lm_sequence* s, const char* path) {
  if (!s || !path) return bad(s ? "the path is NULL" : no_sequence);
  return guarded([&] { return s->sequence.save(path), TTR_OK; });
}
ttr_status ttr_lm_sequence_load(ttr_lm_sequence* s, const char* path) {
  if (!s || !path) return bad(s ? "the path is NULL" : no_sequence);
  return guarded([&] { return s->sequence.load(path), TTR_OK; });
}

ttr_status ttr_lm_prefill(ttr_lm* lm, ttr_lm_sequence* s, const int32_t* tokens, size_t count, int32_t fixed,
                          float* logits) {
  if (!lm || !s) return bad(lm ? no_sequence : no_model);
  if (!tokens && count > 0) return bad("the tokens are NULL");
  return guarded([&] {
    const std::span<const float> last = lm->model.prefill(s->sequence, {tokens, count}, bits(fixed));
    if (logits) std::copy(last.begin(), last.end(), logits);
    return TTR_OK;
  });
}
ttr_status ttr_lm_logits(ttr_lm* lm, ttr_lm_sequence* s, const int32_t* tokens, size_t count, int32_t fixed,
                         float* logits) {
  if (!lm || !s) return bad(lm ? no_sequence : no_model);
  if ((!tokens && count > 0) || !logits) return bad("the tokens or the logits are NULL");
  return guarded([&] {
    lm->model.logits(s->sequence, {tokens, count},
                     {logits, count * static_cast<std::size_t>(lm->model.about().vocabulary)}, bits(fixed));
    return TTR_OK;
  });
}
ttr_status ttr_lm_step(ttr_lm* lm, ttr_lm_sequence* const* sequences, const int32_t* tokens, size_t count,
                       float* logits) {
  if (!lm) return bad(no_model);
  if (count > 0 && (!sequences || !tokens || !logits)) return bad("the sequences, the tokens or the logits are NULL");
  return guarded([&]() -> ttr_status {
    lm->slots.clear();
    for (std::size_t i = 0; i < count; ++i) {
      if (!sequences[i]) return bad(no_sequence);
      lm->slots.push_back(&sequences[i]->sequence);
    }
    const std::span<const float> all = lm->model.decode(lm->slots, {tokens, count});
    std::copy(all.begin(), all.end(), logits);
    return TTR_OK;
  });
}

ttr_status ttr_lm_slots_create(ttr_lm* lm, int32_t most, ttr_lm_slots** made) {
  if (!lm) return bad(no_model);
  if (!made) return bad("the place for the slots is NULL");
  *made = nullptr;
  return guarded([&] {
    *made = new ttr_lm_slots{model::Slots<float>(lm->model, most)};
    return TTR_OK;
  });
}
void ttr_lm_slots_destroy(ttr_lm_slots* slots) { delete slots; }
ttr_status ttr_lm_slots_join(ttr_lm_slots* slots, const int32_t* tokens, size_t count, const ttr_lm_sequence* from,
                             int32_t* slot) {
  if (!slots || !slot) return bad(slots ? "the place for the slot is NULL" : no_slots);
  if (!tokens && count > 0) return bad("the tokens are NULL");
  return guarded([&] {
    *slot = slots->slots.join({tokens, count}, from ? &from->sequence : nullptr);
    return TTR_OK;
  });
}
ttr_status ttr_lm_slots_leave(ttr_lm_slots* slots, int32_t slot) {
  if (!slots) return bad(no_slots);
  return guarded([&] { return slots->slots.leave(slot), TTR_OK; });
}
int32_t ttr_lm_slots_taken(const ttr_lm_slots* slots) { return slots ? slots->slots.taken() : 0; }
ttr_status ttr_lm_slots_round(ttr_lm_slots* slots, ttr_lm_next next, void* user) {
  if (!slots || !next) return bad(slots ? "the function that chooses tokens is NULL" : no_slots);
  return guarded([&] {
    slots->slots.round([&](int slot, std::span<const float> logits) { return next(user, slot, logits.data()); });
    return TTR_OK;
  });
}

}  // extern "C"
