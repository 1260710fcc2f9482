// The verbs on language models, published or trained here: `ttr generate` of published ones, `ttr logits`, `ttr perplexity`,
// `ttr quantize`.
#pragma once

#include <string>

#include "json.h"
#include "language_runner.h"
#include "sampling.h"

namespace ttr::cli {

/// What `ttr generate` does with a published model.
struct ContinueOptions {
  ModelOptions model;
  std::string prompt;
  std::int64_t tokens = 256;
  std::uint64_t seed = 1;
  Sampling sampling;
  std::vector<std::string> stop;
  bool chat = false, json = false;
  std::string state_in, state_out;
  std::string draft;  // a smaller model with the same tokens, which proposes
  int draft_tokens = 4;
};
int run_continue(const ContinueOptions&);

/// Whether a file runs, what it is and its tokenizer: into JSON, and as lines for people.
std::string tell_published(const std::string& path, Json& to);
/// What `ttr inspect` shows of a published model.
int run_look_into(const std::string& path, bool json);

struct LogitsOptions {
  ModelOptions model;
  std::string tokens, text;
  bool all = false, json = false;
  int top = 10;  // printed without --all and --json
};
int run_logits(const LogitsOptions&);

struct PerplexityOptions {
  ModelOptions model;
  std::string file;
  int window = 0, stride = 0;  // tokens; 0: the state is carried through the whole text
  bool json = false;
};
int run_perplexity(const PerplexityOptions&);

struct QuantizeOptions {
  std::string from, to, type = "q8_0";
  bool json = false;
};
int run_quantize(const QuantizeOptions&);

}  // namespace ttr::cli
