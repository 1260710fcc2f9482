// `ttr generate` of a published model: a prompt, then token after token, written as they come.
//
// With a draft model (speculative decoding, Leviathan et al. 2023, arXiv 2211.17192): the draft proposes n tokens, the model looks
// at all of them in one call, takes the first that it would have drawn too - with probability min(1, p / q), else one from
// max(0, p - q) - and goes back behind the rest. What comes out has the model's own distribution; at temperature 0 it
// is the same text.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "aside.h"
#include "atomic_file.h"
#include "json.h"
#include "language_verbs.h"
#include "progress.h"
#include "standard_files.h"
#include "stop_text.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

// The prompt as one turn of a chat, for the templates that most models have; the text that ends the answer goes to `stop`.
// `seen` is the end of what a saved state has seen, which may be an answer that was not ended; empty: this is the first turn.
std::string chat_turn(const std::string& templ, const std::string& prompt, const std::string& seen,
                      std::vector<std::string>& stop) {
  if (templ.empty())
    throw Error("the model comes without a chat template; leave --chat away and write the turn into the prompt",
                "--chat");
  const auto has = [&](const char* word) { return templ.find(word) != std::string::npos; };
  const auto ends_with = [&](std::string_view word) {
    return seen.size() >= word.size() && seen.compare(seen.size() - word.size(), word.size(), word) == 0;
  };
  if (has("<|im_start|>")) {
    stop.push_back("<|im_end|>");
    const char* const before = seen.empty() ? "" : ends_with("<|im_end|>") ? "\n" : "<|im_end|>\n";
    return before + ("<|im_start|>user\n" + prompt) + "<|im_end|>\n<|im_start|>assistant\n";
  }
  if (has("<|start_header_id|>")) {
    stop.push_back("<|eot_id|>");
    const char* const before = seen.empty() || ends_with("<|eot_id|>") ? "" : "<|eot_id|>";
    return before + ("<|start_header_id|>user<|end_header_id|>\n\n" + prompt) +
           "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n";
  }
  if (has("User: ") && has("Assistant:")) {
    stop.push_back("\n\nUser:");
    const char* const before = seen.empty() ? "User: " : ends_with("\n\nUser:") ? " " : "\n\nUser: ";
    return before + prompt + "\n\nAssistant:";
  }
  throw Error(
      "the model's chat template is none of those that are known (<|im_start|>, <|start_header_id|>, "
      "User:/Assistant:); "
      "leave --chat away and write the turn into the prompt",
      "--chat");
}

class TextWriter {
 public:
  TextWriter(bool quiet, std::vector<std::string> stop) : quiet_(quiet), text_(std::move(stop)) {}
  /// False: a stop text has come, or nobody reads any more.
  bool add(const std::string& text) { return write(text_.add(text)) && !text_.stopped(); }
  bool finish() { return write(text_.rest()); }
  const std::string& made() const { return text_.text(); }
  bool stopped() const { return text_.stopped(); }

 private:
  bool write(std::string piece) {
    if (quiet_ || piece.empty()) return true;
    if (isatty(STDOUT_FILENO) == 1)
      for (char& c : piece)
        if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
          c = '?';  // orders to a terminal
    const bool done = std::fwrite(piece.data(), 1, piece.size(), stdout) == piece.size() && std::fflush(stdout) == 0;
    if (!done && errno != EPIPE)
      throw std::system_error(errno, std::generic_category(), "cannot write standard output");
    return done;
  }
  bool quiet_;
  StopText text_;
};

struct Counts {
  std::int64_t proposed = 0, accepted = 0;
};

// One round of speculative decoding: the tokens that follow `last`, of which the model has not seen `last` yet. `take` gets
// each and returns false to end.
template <class Take>
bool speculate(LanguageRunner& model, LanguageRunner& draft, const ContinueOptions& o, std::vector<std::int32_t>& all,
               model::Random& random, Counts& counts, Take&& take) {
  std::vector<std::int32_t> proposed = {all.back()};
  std::vector<Shares> guesses;
  const std::size_t begin = all.size();
  for (int i = 0; i < o.draft_tokens; ++i) {
    guesses.push_back(shares_of(draft.advance({&proposed.back(), 1}), o.sampling, all));
    proposed.push_back(draw(guesses.back(), random));
    all.push_back(proposed.back());
  }
  all.resize(begin);
  std::vector<Shares> said;
  std::vector<std::int32_t> context = all;
  model.each(proposed, [&](std::size_t i, std::span<const double> logits) {
    said.push_back(shares_of(logits, o.sampling, context));
    if (i + 1 < proposed.size()) context.push_back(proposed[i + 1]);
  });
  counts.proposed += o.draft_tokens;
  std::size_t taken = 0;
  bool go_on = true;
  for (std::size_t i = 0; i < said.size() && go_on; ++i) {
    std::int32_t next = -1;
    if (i < guesses.size()) {
      const std::int32_t guess = proposed[i + 1];
      const double p = said[i].of(guess), q = guesses[i].of(guess);
      if (said[i].certain ? p > 0 : random.uniform() * q < p) {
        next = guess;
        ++taken, ++counts.accepted;
      } else if (said[i].certain) next = said[i].list[0].second;
      else {  // of what the draft has too little of
        Shares rest;
        for (const auto& [share, token] : said[i].list) {
          const double more = share / said[i].sum - guesses[i].of(token);
          if (more > 0) rest.list.emplace_back(more, token), rest.sum += more;
        }
        next = rest.list.empty() ? draw(said[i], random) : draw(rest, random);
      }
    } else next = draw(said[i], random);
    all.push_back(next);
    go_on = take(next);
    if (i >= guesses.size() || next != proposed[i + 1]) break;
  }
  // The model has seen all proposals, the draft all but the last: both keep those that were taken.
  const auto rejected = static_cast<std::int64_t>(proposed.size() - 1 - taken);
  model.rewind(rejected);
  if (rejected > 0) draft.rewind(rejected - 1);
  else draft.advance({&proposed.back(), 1});
  return go_on;
}

void check_options(const ContinueOptions& o) {
  if (o.tokens < 1) throw Error(fmt::format("--tokens is {}; it is at least 1", o.tokens), "--tokens");
  o.sampling.check();
  if (o.draft_tokens < 1 || o.draft_tokens > 64)
    throw Error(fmt::format("--draft-tokens is {}; it is 1 to 64", o.draft_tokens), "--draft-tokens");
  for (const std::string& one : o.stop)
    if (one.empty()) throw Error("--stop is empty; it is a text of at least one byte", "--stop");
  if (!o.draft.empty() && (!o.state_in.empty() || !o.state_out.empty()))
    throw Error("--draft does not go with --state-in and --state-out", "--draft");
  if (!o.state_out.empty()) AtomicFile(o.state_out, "--state-out");  // that it can be written; nothing remains
}

std::unique_ptr<LanguageRunner> open_draft(const ContinueOptions& o, const ModelOptions& how,
                                           const LanguageRunner& model) {
  if (o.draft.empty()) return nullptr;
  ModelOptions small = how;
  small.model = o.draft, small.settings.clear();
  auto draft = open_language_model(small);
  if (draft->vocabulary() != model.vocabulary())
    throw Error(fmt::format("'{}' has {} tokens and '{}' has {}; a draft has the same ones", o.draft,
                            draft->vocabulary(), o.model.model, model.vocabulary()),
                "--draft");
  return draft;
}

constexpr std::size_t kept_tokens = 64;  // in a state: what the penalty and the next turn of a chat look at

// What there is before the first token is drawn.
struct Start {
  std::vector<std::int32_t> all;  // newest tokens of a saved state, then those of the prompt
  std::size_t seen = 0;           // how many of them the model has seen
  std::vector<double> logits;     // of a saved state
  std::vector<std::string> stop;
};

Start start_of(const ContinueOptions& o, LanguageRunner& model) {
  Start start;
  start.stop = o.stop;
  std::string seen;
  if (!o.state_in.empty()) {
    auto loaded = model.load(o.state_in);
    start.all = std::move(loaded.newest), start.logits = std::move(loaded.logits), start.seen = start.all.size();
    for (const std::int32_t token : start.all) seen += model.decode(token);
  }
  const std::string text = o.chat ? chat_turn(model.chat_template(), o.prompt, seen, start.stop) : o.prompt;
  if (!text.empty()) {
    const std::vector<std::int32_t> prompt = model.encode(text, o.state_in.empty());
    start.all.insert(start.all.end(), prompt.begin(), prompt.end());
  }
  if (start.all.size() > start.seen) return start;
  if (o.state_in.empty()) {
    const std::vector<std::int32_t> ends = model.ends();
    start.all.push_back(ends.empty() ? model.encode(model.tokenizer().empty() ? "0" : "\n", false).front()
                                     : ends.front());
  } else if (start.logits.empty()) {
    throw Error(fmt::format("the prompt is empty, and '{}' does not say what came next; give at least one more token",
                            o.state_in),
                "prompt");
  }
  return start;
}

// The tokens of a prompt, in the pieces that a single call would make of them, to look for Ctrl-C between them: false if it
// came. `logits` are those after the last one.
bool read_prompt(const std::shared_ptr<LanguageRunner>& model, std::span<const std::int32_t> tokens, int piece,
                 std::span<const double>& logits) {
  while (!tokens.empty()) {
    if (interrupted()) return false;
    const std::size_t some = std::min(tokens.size(), static_cast<std::size_t>(piece));
    const std::span<const std::int32_t> next = tokens.first(some);
    const auto made =
        made_aside([model, own = std::vector(next.begin(), next.end())] { return model->advance(own); });
    if (!made) return false;
    logits = *made;
    tokens = tokens.subspan(some);
  }
  return true;
}

}  // namespace

int run_continue(const ContinueOptions& o) {
  check_options(o);
  ModelOptions how = o.model;
  if (!o.draft.empty()) how.rewind = o.draft_tokens + 1, how.fixed = true;
  const std::shared_ptr<LanguageRunner> model = open_language_model(how);
  const std::shared_ptr<LanguageRunner> draft = open_draft(o, how, *model);
  Start begin = start_of(o, *model);
  if (!model->tokenizer_problem().empty())
    tell("ttr: {}; prompt and answer are numbers of tokens\n", model->tokenizer_problem());
  std::vector<std::int32_t>& all = begin.all;
  const InterruptGuard guard;
  TextWriter writer(o.json, begin.stop);
  if (!o.json && !o.chat) {
    TextWriter prompt(false, {});
    prompt.add(o.prompt);
    if (!prompt.finish()) return 0;
  }
  const std::vector<std::int32_t> ends = model->ends();
  const std::size_t prompt_tokens = all.size() - begin.seen;
  const auto start = std::chrono::steady_clock::now();
  auto first = start;
  std::int64_t count = 0;
  bool ended = false, read = true;
  Counts counts;
  model::Random random(o.seed, "generate");
  const auto take = [&](std::int32_t token) {
    if (count++ == 0) first = std::chrono::steady_clock::now();
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
      ended = true;
      return false;
    }
    return writer.add(model->decode(token)) && count < o.tokens && interrupted() == 0;
  };
  try {
    std::span<const double> logits = begin.logits;
    const std::span<const std::int32_t> prompt = std::span(all).subspan(begin.seen);
    if (draft) {
      const auto but_last = prompt.first(prompt.size() - 1);
      read = read_prompt(model, but_last, how.piece, logits) && read_prompt(draft, but_last, how.piece, logits);
      while (read && speculate(*model, *draft, o, all, random, counts, take)) {
      }
    } else {
      read = read_prompt(model, prompt, how.piece, logits);
      while (read) {
        const std::int32_t next = draw(shares_of(logits, o.sampling, all), random);
        all.push_back(next);
        if (!take(next)) break;
        logits = model->advance({&next, 1});
      }
    }
    writer.finish();
    if (!o.state_out.empty() && read) {  // the last token too
      logits = model->advance({&all.back(), 1});
      model->save(o.state_out, logits, std::span(all).last(std::min(all.size(), kept_tokens)));
    }
  } catch (...) {
    if (!o.json) {  // the message has a line of its own
      writer.finish();
      std::fputc('\n', stdout), std::fflush(stdout);
    }
    throw;
  }
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> seconds = now - start, to_first = first - start, rest = now - first;
  if (o.json) {
    Json result = Json::object()
                      .set("model", o.model.model)
                      .set("prompt", o.prompt)
                      .set("text", writer.made())
                      .set("prompt_tokens", prompt_tokens)
                      .set("tokens", count)
                      .set("ended", ended              ? "end of text"
                                    : writer.stopped() ? "stop"
                                    : interrupted()    ? "interrupted"
                                                       : "length")
                      .set("seed", static_cast<std::int64_t>(o.seed))
                      .set("temperature", o.sampling.temperature)
                      .set("top_p", o.sampling.top_p)
                      .set("seconds", seconds.count())
                      .set("seconds_to_first_token", to_first.count())
                      .set("tokens_per_second",
                           count > 1 ? static_cast<double>(count - 1) / std::max(1e-9, rest.count()) : 0.0);
    if (draft) result.set("proposed", counts.proposed).set("accepted", counts.accepted);
    fmt::print("{}\n", result.dump());
  } else fmt::print("\n");
  return interrupted() ? 128 + interrupted() : 0;
}

}  // namespace ttr::cli
