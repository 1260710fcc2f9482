// Verbs on language models: `ttr logits`, `perplexity`, `quantize`, and `generate` and `inspect` of published ones.
#pragma once

#include <fmt/format.h>

#include "language_verbs.h"
#include "ttr/language.h"
#include "verbs.h"
#include "verbs_model.h"

namespace ttr::cli {

inline constexpr const char* activations_meaning =
    "exact, or rounded to the type of the weights, where that is bf16, Q8_0 or Q4_0";

struct LanguageVerbs : Verb {
  LogitsOptions logits;
  PerplexityOptions perplexity;
  QuantizeOptions quantize;
  ContinueOptions more;   // of `ttr generate`
  TrainedVerbs& trained;  // two verbs that also take published models
  CLI::App *logits_command = nullptr, *perplexity_command = nullptr, *quantize_command = nullptr;

  explicit LanguageVerbs(TrainedVerbs& shared) : trained(shared) {}

  /// Options of `ttr generate` that published models have and others do not.
  void extend(CLI::App& command) {
    const auto option = [&](const char* name, auto& value, const char* meaning) {
      return command.add_option(name, value, meaning)->capture_default_str()->group("Published models");
    };
    option("--top-k", more.sampling.top_k, "draw from the k likeliest; 0: all");
    option("--min-p", more.sampling.min_p,
           "draw from those with at least this part of the likeliest one's probability");
    option("--repeat-penalty", more.sampling.penalty, "above 1: less of what came among the newest 64 tokens");
    option("--stop", more.stop, "a text that ends it; repeat for several")->allow_extra_args(false);
    command.add_flag("--chat", more.chat, "the prompt is a turn of a chat, by the model's template")
        ->group("Published models");
    option("--state-in", more.state_in,
           "go on from a state that --state-out has written, after another prompt or none");
    option("--state-out", more.state_out, "write what was seen, prompt and answer, to a file");
    option("--draft", more.draft,
           "a smaller model with the same tokens, which proposes some for the model to accept");
    option("--draft-tokens", more.draft_tokens, "how many it proposes at a time");
    option("--tokenizer", more.model.tokenizer, "tokenizer.json or a vocabulary of RWKV; none: the model's own");
    option("--context", more.model.context, "most tokens of a text, where a layer keeps them");
    option("--set", more.model.settings, "name=value, before what the model's configuration says; not of the draft")
        ->allow_extra_args(false);
    option("--activations", more.model.activations, activations_meaning);
    command.add_flag("--fixed", more.model.fixed, "token by token: the same bits on any number of threads")
        ->group("Published models");
  }
  /// A run of `ttr train` has none of these options.
  static void refuse_extended(const CLI::App& command, const std::string& run) {
    for (const CLI::Option* const one : command.get_options())
      if (one->count() > 0 && one->get_group() == "Published models")
        throw Error(fmt::format("{} is for published models; '{}' is a run of `ttr train`, which has no such option",
                                one->get_name(), run),
                    one->get_name());
  }
  int continue_text(const GenerateOptions& o, bool threads_given) {
    // A token of a published model is work enough for all cores.
    more.model.model = o.model, more.model.threads = threads_given ? o.threads : 0, more.prompt = o.prompt,
    more.tokens = o.tokens;
    more.seed = o.seed, more.json = o.json;
    more.sampling.temperature = o.sampling.temperature, more.sampling.top_p = o.sampling.top_p;
    return run_continue(more);
  }

  static void add_model(CLI::App& command, ModelOptions& o) {
    command
        .add_option("model", o.model, "a .gguf or .safetensors file, a Hugging Face folder, or a run of `ttr train`")
        ->required();
    command.add_option("--tokenizer", o.tokenizer, "tokenizer.json or a vocabulary of RWKV; none: the model's own");
    command.add_option("--context", o.context, "most tokens of a text, where a layer keeps them")
        ->capture_default_str();
    command.add_option("--threads", o.threads, "0: all cores")->capture_default_str();
    command
        .add_option("--set", o.settings, "name=value, before what the model's configuration says; repeat for several")
        ->allow_extra_args(false);
    command.add_option("--activations", o.activations, activations_meaning)->capture_default_str();
    command.add_flag("--double", o.in_double, "compute in double");
    command.add_flag("--fixed", o.fixed,
                     "token by token: the same bits however a text is cut, on any number of threads");
  }
  void declare(CLI::App& app) override {
    logits_command = app.add_subcommand("logits", "What a language model says comes next");
    add_model(*logits_command, logits.model);
    logits_command->add_option("--tokens", logits.tokens, "numbers of tokens, such as 34,105,110");
    logits_command->add_option("--text", logits.text, "a text instead");
    logits_command->add_option("--top", logits.top, "how many of the likeliest to show")->capture_default_str();
    logits_command->add_flag("--all", logits.all, "after every token and not the last one alone");
    logits_command->add_flag("--json", logits.json, "print all logits as JSON");

    perplexity_command =
        app.add_subcommand("perplexity", "Bits per byte and per token of a text by a language model");
    add_model(*perplexity_command, perplexity.model);
    perplexity_command->add_option("file", perplexity.file, "a text")->required();
    perplexity_command
        ->add_option("--window", perplexity.window,
                     "begin anew every so many tokens; 0: the state is carried through the text")
        ->capture_default_str();
    perplexity_command->add_option("--stride", perplexity.stride,
                                   "with --window: tokens from one to the next, which are scored; 0: half a window");
    perplexity_command->add_flag("--json", perplexity.json, "print JSON");

    quantize_command = app.add_subcommand("quantize", "Store the matrices of a language model in another type");
    quantize_command->add_option("from", quantize.from, "a .gguf or .safetensors file, or a folder")->required();
    quantize_command->add_option("to", quantize.to, "a .gguf file, or .safetensors for f32, f16 and bf16")
        ->required();
    quantize_command->add_option("--type", quantize.type, "q8_0, q4_0, bf16, f16 or f32")->capture_default_str();
    quantize_command->add_flag("--json", quantize.json, "print JSON");
    extend(*trained.generate_command);
  }
  std::optional<int> run(const std::string&) override {
    if (*logits_command) return run_logits(logits);
    if (*perplexity_command) return run_perplexity(perplexity);
    if (*quantize_command) return run_quantize(quantize);
    if (*trained.inspect_command && model::is_published(trained.inspect.file))
      return run_look_into(trained.inspect.file, trained.inspect.json);
    trained.inspect.published = tell_published;
    if (*trained.generate_command && !model::is_trained_here(trained.generate.model))
      return continue_text(trained.generate, trained.generate_command->count("--threads") > 0);
    if (*trained.generate_command) refuse_extended(*trained.generate_command, trained.generate.model);
    return {};
  }
};

}  // namespace ttr::cli
