// The `ttr` program: reads the command line, calls one verb, turns errors into a sentence and an exit code.
// The only file that includes CLI11, itself and by command_page.h.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <system_error>

#include "bench.h"
#include "command_page.h"
#include "commands.h"
#include "json.h"
#include "regress.h"
#include "regress_input.h"
#include "serve.h"
#ifdef TTR_WITH_MODEL
#include "sweep.h"
#include "tasks.h"
#include "train.h"
#include "trained_verbs.h"
#ifdef TTR_WITH_LANGUAGE
#include "language_verbs.h"
#include "ttr/language.h"
#endif
#endif
#include "ttr/version.h"

namespace {

constexpr const char* examples = R"(Examples:
  ttr regress                                              the switching process of the paper: a table and report.html
  ttr regress data.csv --values y --layer nlms --layer rls predict each row from the rows before it
  ttr layers gated-deltanet                                one layer explained
  ttr derive 'equal / linear / sgd(beta, decay)'           the derivation of a recipe on paper
  ttr check                                                every property of every layer
  ttr bench gla gated-deltanet                             tokens per second, and the share of the machine's limits
  ttr bench rls-stability                                  the least-squares solvers over 100,000 tokens
  ttr tasks 'mqar(time=64)' --count 1000 --out mqar.npz    data for other programs; `ttr tasks` lists them
  ttr train parity --layer 'deltanet(range.beta=2)'        train a model of one layer; `ttr train` lists the tasks
  ttr train book.txt --out book                            train a model of the bytes of a text
  ttr generate book --prompt 'It was'                      let it go on after a prompt; `ttr eval book` judges it
)";

// Exit codes: 0 success, 1 a check failed, 2 bad input, 130 interrupted by Ctrl-C, 143 by SIGTERM.
int report_error(const std::string& message, const std::string& where, bool json) {
  if (json) {
    const ttr::cli::Json error = ttr::cli::Json::object().set("message", message).set("where", where);
    fmt::print(stderr, "{}\n", ttr::cli::Json::object().set("error", error).dump());
  } else {
    fmt::print(stderr, "ttr: {}{}\n", message, where.empty() ? "" : " (" + where + ")");
  }
  return 2;
}

std::string command_line(int argc, char** argv) {
  std::string text;
  for (int i = 0; i < argc; ++i) {
    std::string word = i == 0 ? "ttr" : argv[i];
    const bool quote = word.empty() || word.find_first_of(" |*()\t;&<>$'\"") != std::string::npos;
    if (quote) {
      std::string inner;
      for (char c : word) inner += c == '\'' ? std::string("'\\''") : std::string(1, c);
      word = "'" + inner + "'";
    }
    text += (i ? " " : "") + word;
  }
  return text;
}

#ifdef TTR_WITH_MODEL
struct TrainVerb {
  ttr::cli::TrainOptions options;
  CLI::App* command = nullptr;

  void declare(CLI::App& app) {
    command = app.add_subcommand("train", "Train a model of any stack of layers on a task or a text file");
    const auto option = [&](const char* name, auto& value, const char* meaning) {
      return command->add_option(name, value, meaning)->capture_default_str();
    };
    command->add_option(
        "task", options.task,
        "a task with settings (NAME or NAME(setting=value, ..)), or a text file; none: list the tasks");
    command->add_option("--out", options.out, "folder for checkpoints, the log and, at the end, model.safetensors");
    command->add_flag("--resume", options.resume,
                      "go on with the run in that folder, with its settings; begin it if there is none");
    option("--time", options.time, "bytes of a sequence, of a text file");
    option("--held", options.held, "share at the end of a text file that is held out for the tests");
    ttr::cli::run_settings(
        [&](const char* name, auto& value, const char* meaning) {
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, bool>) command->add_flag(name, value, meaning);
          else option(name, value, meaning);
        },
        options);
    option("--threads", options.threads, "0: all cores");
    option("--until", options.until, "stop after this many steps; 0: all");
    option("--checkpoint-every", options.checkpoint_every, "steps; 0: at every test and every minute");
    command->add_option("--report", options.report, "write a report, one self-contained HTML file");
    command->add_flag("--json", options.json, "print JSON");
    command->add_flag("--quiet", options.quiet, "print the tests only");
  }
  int run(const std::string& text) {
    options.command = text;
    for (const CLI::Option* one : command->get_options())
      if (one->count() > 0) options.given.insert(one->get_name());
    return run_train(options);
  }
};

struct TrainedVerbs {
  ttr::cli::EvalOptions eval;
  ttr::cli::GenerateOptions generate;
  ttr::cli::InspectOptions inspect;
  CLI::App *eval_command = nullptr, *generate_command = nullptr, *inspect_command = nullptr;

  void declare(CLI::App& app) {
    eval_command =
        app.add_subcommand("eval", "Judge a trained model: loss, accuracy, bits per byte, at several lengths");
    eval_command->add_option("model", eval.model, "the folder of a run, or a .safetensors file of one")->required();
    eval_command->add_option("data", eval.data, "a task or a text file; none: the test data it was trained for");
    eval_command->add_option("--time", eval.times, "lengths, for example 64,128,256; none: that of the task")
        ->delimiter(',')
        ->allow_extra_args(false);
    eval_command->add_option("--test", eval.sequences, "sequences; 0: 256 of a task, all of a text")
        ->capture_default_str();
    eval_command->add_option("--batch", eval.batch, "sequences at a time")->capture_default_str();
    eval_command->add_option("--seed", eval.seed,
                             "of the test data; none: that of the run, whose tests were the same");
    eval_command->add_option("--threads", eval.threads, "0: all cores")->capture_default_str();
    eval_command->add_flag("--json", eval.json, "print JSON");

    generate_command = app.add_subcommand("generate", "Let a trained model go on after a prompt");
    generate_command
        ->add_option("model", generate.model,
                     "a run of `ttr train`, or a published model: .gguf, .safetensors, a folder")
        ->required();
    generate_command->add_option("prompt,--prompt", generate.prompt,
                                 "text to go on after; models without a tokenizer: numbers of tokens");
    generate_command->add_option("--tokens", generate.tokens, "how many to make")->capture_default_str();
    generate_command->add_option("--seed", generate.seed, "of the draws")->capture_default_str();
    generate_command
        ->add_option("--temperature", generate.sampling.temperature,
                     "below 1: more of the likely; 0: the likeliest alone")
        ->capture_default_str();
    generate_command
        ->add_option("--top-p", generate.sampling.top_p,
                     "draw from the likeliest tokens that have this share together")
        ->capture_default_str();
    generate_command->add_option("--threads", generate.threads, "0: all cores, as published models have without it")
        ->capture_default_str();
    generate_command->add_flag("--json", generate.json, "print JSON");

    inspect_command =
        app.add_subcommand("inspect", "What is in a checkpoint, a published model or any .safetensors file");
    inspect_command
        ->add_option("model", inspect.file,
                     "a .safetensors or .gguf file, a Hugging Face folder, or a run of `ttr train`")
        ->required();
    inspect_command->add_flag("--json", inspect.json, "print JSON");
  }
  bool chosen() const { return *eval_command || *generate_command || *inspect_command; }
  int run() const {
    return *eval_command ? run_eval(eval) : *generate_command ? run_generate(generate) : run_inspect(inspect);
  }
};

#ifdef TTR_WITH_LANGUAGE
struct LanguageVerbs {
  ttr::cli::LogitsOptions logits;
  ttr::cli::PerplexityOptions perplexity;
  ttr::cli::QuantizeOptions quantize;
  ttr::cli::ContinueOptions more;  // of `ttr generate`
  CLI::App *logits_command = nullptr, *perplexity_command = nullptr, *quantize_command = nullptr;

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
    option("--state-in", more.state_in, "go on from a state that --state-out has written");
    option("--state-out", more.state_out, "write what was seen, prompt and answer, to a file");
    option("--draft", more.draft,
           "a smaller model with the same tokens, which proposes some for the model to accept");
    option("--draft-tokens", more.draft_tokens, "how many it proposes at a time");
    option("--tokenizer", more.model.tokenizer, "tokenizer.json or a vocabulary of RWKV; none: the model's own");
    option("--context", more.model.context, "most tokens of a text, where a layer keeps them");
    option("--set", more.model.settings, "name=value, before what the model's configuration says")
        ->allow_extra_args(false);
    command.add_flag("--fixed", more.model.fixed, "token by token: the same bits on any number of threads")
        ->group("Published models");
  }
  int generate(const ttr::cli::GenerateOptions& o, bool threads_given) {
    // A token of a published model is work enough for all cores.
    more.model.model = o.model, more.model.threads = threads_given ? o.threads : 0, more.prompt = o.prompt,
    more.tokens = o.tokens;
    more.seed = o.seed, more.json = o.json;
    more.sampling.temperature = o.sampling.temperature, more.sampling.top_p = o.sampling.top_p;
    return run_continue(more);
  }

  static void model(CLI::App& command, ttr::cli::ModelOptions& o) {
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
    command.add_flag("--double", o.in_double, "compute in double");
    command.add_flag("--fixed", o.fixed,
                     "token by token: the same bits however a text is cut, on any number of threads");
  }
  void declare(CLI::App& app) {
    logits_command = app.add_subcommand("logits", "What a language model says comes next");
    model(*logits_command, logits.model);
    logits_command->add_option("--tokens", logits.tokens, "numbers of tokens, such as 34,105,110");
    logits_command->add_option("--text", logits.text, "a text instead");
    logits_command->add_option("--top", logits.top, "how many of the likeliest to show")->capture_default_str();
    logits_command->add_flag("--all", logits.all, "after every token and not the last one alone");
    logits_command->add_flag("--json", logits.json, "print all logits as JSON");

    perplexity_command =
        app.add_subcommand("perplexity", "Bits per byte and per token of a text by a language model");
    model(*perplexity_command, perplexity.model);
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
  }
  bool chosen() const { return *logits_command || *perplexity_command || *quantize_command; }
  int run() const {
    return *logits_command       ? run_logits(logits)
           : *perplexity_command ? run_perplexity(perplexity)
                                 : run_quantize(quantize);
  }
};
#endif

struct SweepVerb {
  ttr::cli::SweepOptions options;
  CLI::App* command = nullptr;

  void declare(CLI::App& app) {
    command =
        app.add_subcommand("sweep", "Train many models: layers x learning rates x sizes x seeds, a table, a plot");
    command
        ->add_option("what", options.what,
                     "the file of a sweep (docs/model.md) and 'name=value', or 'name=value' alone")
        ->required()
        ->delimiter('\0');
    command->add_option("--variant", options.variant, "a variant of the file, such as quick");
    command->add_option("--out", options.out, "folder for runs, results.json, table.md and plot.svg")
        ->capture_default_str();
    command->add_option("--name", options.name, "of the files: NAME.json, NAME.md, NAME.svg");
    command->add_option("--jobs", options.jobs, "runs at a time; 0: one on each core")->capture_default_str();
    command->add_flag("--list", options.list, "print the runs as commands, and run none");
    command->add_flag("--json", options.json, "print results.json");
  }
};

struct DataVerbs {
  ttr::cli::TasksOptions tasks;
  ttr::cli::NgramOptions ngram;
  CLI::App *tasks_command = nullptr, *ngram_command = nullptr;

  void declare(CLI::App& app) {
    tasks_command = app.add_subcommand("tasks", "The data models are trained on: a list, samples, files");
    tasks_command->add_option("task", tasks.task, "NAME or NAME(setting=value, ..): explain it and show samples");
    tasks_command->add_option("--count", tasks.count, "sequences; 0: a few to look at")->capture_default_str();
    tasks_command->add_option("--seed", tasks.seed, "of the data")->capture_default_str();
    tasks_command
        ->add_option("--step", tasks.step, "of training, where a curriculum depends on it; -1: after its end")
        ->capture_default_str();
    tasks_command->add_flag("--test", tasks.test, "what the task is judged by instead of training data");
    tasks_command->add_option("--out", tasks.out,
                              "write them to a file: .jsonl, .csv, .npz or .npy; - is JSON lines");
    tasks_command->add_flag("--json", tasks.json, "print JSON");

    ngram_command =
        app.add_subcommand("ngram", "Bits per byte of a text by counting: the baseline of a language model");
    ngram_command->add_option("file", ngram.file, "a text; any bytes")->required();
    ngram_command->add_option("--order", ngram.order, "longest context, 0 to 7 bytes")->capture_default_str();
    ngram_command->add_option("--held", ngram.held, "share at the end of the file that is held for the test")
        ->capture_default_str();
    ngram_command->add_option("--held-bytes", ngram.held_bytes, "the same in bytes; 0: by the share")
        ->capture_default_str();
    ngram_command->add_flag("--compressors", ngram.compressors, "also gzip and xz, where they are installed");
    ngram_command->add_flag("--json", ngram.json, "print JSON");
  }
};
#endif

// "regress, layers and bench"
std::string verbs(CLI::App& app) {
  std::string text;
  const auto all = app.get_subcommands([](CLI::App*) { return true; });
  for (std::size_t i = 0; i < all.size(); ++i)
    text += (i == 0 ? "" : i + 1 == all.size() ? " and " : ", ") + all[i]->get_name();
  return text;
}

// ", did you mean --lags?" for the first option that the verb does not have.
std::string hint(CLI::App& app, int argc, char** argv) {
  const auto used = app.get_subcommands();
  if (used.empty()) return "";
  std::vector<std::string> names;
  for (const CLI::Option* option : used.front()->get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (int i = 2; i < argc; ++i) {
    const std::string word(argv[i], std::strcspn(argv[i], "="));
    if (!word.starts_with("--") || std::find(names.begin(), names.end(), word) != names.end()) continue;
    const std::string name = ttr::cli::meant(word, names);
    return name.empty() ? "" : ", did you mean " + name + "?";
  }
  return "";
}

struct ServeVerb {
  ttr::cli::ServeOptions options;
  CLI::App* command = nullptr;

  void declare(CLI::App& app) {
    command = app.add_subcommand("serve", "Serve models over HTTP: they learn and predict rows of JSON as they come");
    const auto option = [&](const char* name, auto& value, const char* meaning) {
      command->add_option(name, value, meaning)->capture_default_str();
    };
    command->add_option("folder", options.folder, "where the models are and are saved; made if need be")->required();
    option("--host", options.host, "address to listen on; others than loopback need --token-file");
    option("--port", options.port, "0: any that is free");
    command->add_option("--token-file", options.token_file,
                        "a file whose first line every request must send as Authorization: Bearer TOKEN");
    command->add_flag("--sync", options.sync,
                      "acknowledged rows survive a power cut, not only the end of the process");
    option("--threads", options.threads, "0: as many as the machine has");
    option("--max-body", options.max_body, "bytes of a request, and of a line");
    option("--max-connections", options.max_connections, "more are refused with 503");
    option("--max-models", options.max_models, "more are refused with 507");
    option("--max-log", options.max_log, "bytes of the log before all models are saved and it is begun anew");
    option("--timeout", options.timeout, "seconds in which a request must arrive, and its response must leave");
    option("--idle-timeout", options.idle_timeout, "seconds between requests, and between lines of a stream");
    command->add_flag("--json", options.json, "print the address as JSON");
#ifdef TTR_WITH_LANGUAGE
    options.open_text = ttr::cli::open_text_service;
    command->add_option("--model", options.text.model,
                        "a published language model: a file or folder; serves /v1/completions");
    command->add_option("--tokenizer", options.text.tokenizer, "of that model, if it lies elsewhere");
    option("--slots", options.text.slots, "texts of that model that go on at the same time");
    option("--queue", options.text.queue, "requests that wait for a slot; more are refused with 503");
    option("--context", options.text.context, "most tokens of a text, its prompt with it");
    option("--max-tokens", options.text.most_tokens, "most tokens of an answer");
    option("--model-threads", options.text.threads, "of that model; 0: as many as the machine has");
#endif
    command->footer(R"(Paths:
  PUT    /models/NAME            make a model: {"keys": ["x"], "values": ["y"], "layers": ["nlms"]}, options of ttr regress
  POST   /models/NAME/learn      {"x": 1.5, "y": 2}: the prediction, then the row is learned; a list of rows; or lines of
                                 JSON (Content-Type: application/x-ndjson), answered one by one as they come
  POST   /models/NAME/predict    the same without learning
  GET    /models/NAME            how good it is; DELETE deletes it; GET /models lists all
  POST   /models/NAME/save       writes it to the folder now; POST /save all of them
  GET    /metrics, /health       for Prometheus, and whether it is alive
  POST   /v1/completions         with --model, as OpenAI has it: {"prompt": "Once upon", "max_tokens": 64, "stream": true}
Example:
  ttr serve models &
  curl -X PUT localhost:8321/models/demo -d '{"keys": ["x"], "values": ["y"], "layers": ["rls"]}'
  curl localhost:8321/models/demo/learn -d '{"x": 1, "y": 2.1}'
  curl localhost:8321/models/demo/predict -d '{"x": 3}')");
  }
};

// `ttr bench` and what can be measured besides layers.
struct BenchVerb {
  ttr::cli::BenchOptions speed;
  ttr::cli::StabilityOptions stability;
  ttr::cli::GrowthOptions growth;
  ttr::cli::LatencyOptions latency;
  ttr::cli::AttentionOptions attention;
  ttr::cli::FormsOptions forms;
  ttr::cli::TrainBenchOptions train;
  ttr::cli::StateOptions state;
  ttr::cli::ServeBenchOptions serve;
  ttr::cli::LanguageBenchOptions language;
  CLI::App *serve_command = nullptr, *language_command = nullptr;
  CLI::App *command = nullptr, *stability_command = nullptr, *growth_command = nullptr, *latency_command = nullptr,
           *state_command = nullptr, *attention_command = nullptr, *forms_command = nullptr, *train_command = nullptr;

  void declare(CLI::App& app) {
    command = app.add_subcommand("bench",
                                 "Measure speed against the machine's limits; also stability, growth, latency, "
                                 "state, attention, forms, train, serve, language");
    command->require_subcommand(0, 1);
    command->add_option("layer", speed.layers, "names, name:setting=value,... or recipes; none: the standard table")
        ->delimiter('\0');
    const auto list = [&](const char* name, auto& values, const char* meaning) {
      command->add_option(name, values, meaning)->delimiter(',')->allow_extra_args(false)->capture_default_str();
    };
    list("--form", speed.forms, "best, recurrent, chunk, parallel, scan or all");
    list("--pass", speed.passes, "forward, both (forward and backward) or step (decoding)");
    list("--dtype", speed.dtypes, "f32, f64, bf16, f16 (tensors; states and arithmetic are then float)");
    list("--key-dim", speed.key_dims, "key_dim");
    list("--value-dim", speed.value_dims, "value_dim (default: the same as key_dim)");
    list("--heads", speed.heads, "heads");
    list("--gates", speed.gates,
         "gentle, mixed (uniform in [-8, 0]), strong (-5), channel, token (one in 64), a number or a .safetensors "
         "file");
    list("--time", speed.times, "tokens; for decoding, pairs already kept");
    list("--threads", speed.threads, "threads (default: 1, and all cores)");
    command->add_option("--runs", speed.runs, "number of runs; the median is reported")->capture_default_str();
    command->add_flag("--quick", speed.quick, "small sizes and few runs: tests the program, not the speed");
    command->add_flag("--processor-time", speed.processor_time,
                      "count the time the process had a processor, on a busy machine; one thread");
    command->add_option("--compare", speed.compare, "JSON of an earlier run: adds a column of ratios");
    add_outputs(command, speed);

    stability_command = command->add_subcommand(
        "rls-stability", "The least-squares solvers over long streams, in float, against a literal solution");
    stability_command->add_option("--steps", stability.steps, "tokens of a stream")->capture_default_str();
    stability_command->add_option("--dim", stability.dim, "key_dim")->capture_default_str();
    stability_command->add_option("--seed", stability.seed, "seed of the streams")->capture_default_str();
    stability_command->add_flag("--json", stability.json, "print JSON");

    growth_command = command->add_subcommand("growth", "Time per token and peak memory as sequences get longer");
    growth_command->add_option("layer", growth.layers, "layers (default: a few of each kind)")->delimiter('\0');
    growth_command->add_option("--dim", growth.dim, "key_dim and value_dim")->capture_default_str();
    growth_command->add_option("--heads", growth.heads, "heads")->capture_default_str();
    growth_command->add_option("--longest", growth.longest, "tokens, states of fixed size")->capture_default_str();
    growth_command->add_option("--longest-pairs", growth.longest_pairs, "tokens, layers that keep their pairs")
        ->capture_default_str();
    growth_command->add_flag("--quick", growth.quick, "short sequences");
    add_outputs(growth_command, growth);

    latency_command = command->add_subcommand("latency", "How long one decode step takes: the median and the tail");
    latency_command->add_option("layer", latency.layers, "layers (default: a few of each kind)")->delimiter('\0');
    latency_command->add_option("--steps", latency.steps, "steps of every case")->capture_default_str();
    latency_command->add_option("--key-dim", latency.key_dim, "key_dim")->capture_default_str();
    latency_command->add_option("--value-dim", latency.value_dim, "value_dim (default: the same as key_dim)");
    latency_command->add_option("--heads", latency.heads, "heads")->capture_default_str();
    latency_command->add_option("--slots", latency.slots, "slots of which one advances")->capture_default_str();
    latency_command->add_option("--pairs", latency.pairs, "pairs kept, of layers that keep them")
        ->capture_default_str();
    latency_command->add_flag("--json", latency.json, "print JSON");

    state_command = command->add_subcommand(
        "state", "States in fewer bytes (bf16, i8): error over many tokens, and time of a decode step beside float");
    state_command->add_option("layer", state.layers, "layers (default: some of each kind)")->delimiter('\0');
    state_command->add_option("--type", state.type, "bf16 or i8 (default: what the layer has)")
        ->check(CLI::IsMember({"bf16", "i8"}));
    state_command->add_option("--tokens", state.tokens, "tokens, for the error")->capture_default_str();
    state_command->add_option("--dim", state.dim, "key_dim and value_dim, for the error")->capture_default_str();
    state_command->add_option("--call", state.call, "tokens of a call, where pairs are kept")->capture_default_str();
    state_command->add_option("--step-dim", state.step_dim, "key_dim and value_dim of steps")->capture_default_str();
    state_command->add_option("--heads", state.heads, "heads of steps")->capture_default_str();
    state_command->add_option("--bytes", state.bytes, "of the float state of steps")->capture_default_str();
    state_command->add_option("--runs", state.runs, "steps; the least is reported")->capture_default_str();
    state_command->add_flag("--quick", state.quick, "few tokens and a small state: tests the program, not the speed");
    state_command->add_flag("--json", state.json, "print JSON");

    attention_command = command->add_subcommand("attention", "Softmax attention against local linear attention");
    attention_command->add_option("--time", attention.time, "tokens")->capture_default_str();
    attention_command->add_option("--heads", attention.heads, "heads")->capture_default_str();
    attention_command->add_option("--dim", attention.dim, "key_dim and value_dim")->capture_default_str();
    attention_command->add_option("--runs", attention.runs, "number of runs; the median is reported")
        ->capture_default_str();
    attention_command->add_flag("--quick", attention.quick, "short sequences and few runs");
    add_outputs(attention_command, attention);

    forms_command =
        command->add_subcommand("forms", "The token loop against chunks: the measurements behind Form::best");
    const auto numbers = [&](const char* name, std::vector<int>& values, const char* meaning) {
      forms_command->add_option(name, values, meaning)
          ->delimiter(',')
          ->allow_extra_args(false)
          ->capture_default_str();
    };
    numbers("--dim", forms.dims, "key_dim and value_dim");
    numbers("--chunk", forms.chunks, "tokens of a chunk");
    forms_command->add_option("--heads", forms.heads, "heads")->capture_default_str();
    forms_command->add_option("--time", forms.time, "tokens; a quarter of them for states of 256 and more")
        ->capture_default_str();
    forms_command->add_option("--runs", forms.runs, "number of runs; the median is reported")->capture_default_str();
    forms_command->add_option("--write", forms.write, "write the table: src/families/common/choice_table.inc");
    forms_command->add_flag("--quick", forms.quick, "small sizes and one run: tests the program, not the speed");
    forms_command->add_flag("--json", forms.json, "print JSON");
#ifdef TTR_WITH_MODEL
    declare_train();
#endif
    declare_serve();
#ifdef TTR_WITH_LANGUAGE
    declare_language();
#endif
  }
  int run(const std::string& text) {
    speed.command = growth.command = attention.command = text;
#ifdef TTR_WITH_MODEL
    if (*train_command) return run_bench_train(train);
#endif
    if (*serve_command) return run_bench_serve(serve);
#ifdef TTR_WITH_LANGUAGE
    if (*language_command) return run_bench_language(language);
#endif
    return *stability_command   ? run_bench_stability(stability)
           : *growth_command    ? run_bench_growth(growth)
           : *latency_command   ? run_bench_latency(latency)
           : *state_command     ? run_bench_state(state)
           : *attention_command ? run_bench_attention(attention)
           : *forms_command     ? run_bench_forms(forms)
                                : run_bench(speed);
  }

 private:
  void declare_serve() {
    serve_command =
        command->add_subcommand("serve", "A server of its own on this machine: requests per second, latency");
    const auto number = [&](const char* name, auto& value, const char* meaning) {
      serve_command->add_option(name, value, meaning)->capture_default_str();
    };
    number("--models", serve.models, "models, asked in turn");
    number("--layer", serve.layer, "of every model");
    number("--keys", serve.keys, "of every model");
    number("--connections", serve.connections, "that stay open, one request at a time on each");
    number("--requests", serve.requests, "of the closed load: as fast as they are answered");
    number("--rate", serve.rate, "of the open load: requests per second");
    number("--seconds", serve.seconds, "of the open load");
    number("--limit", serve.limit, "seconds after which a load is given up");
    serve_command->add_flag("--sync", serve.sync, "as `ttr serve --sync`");
    serve_command->add_flag("--quick", serve.quick, "few models and requests: tests the program, not the speed");
    serve_command->add_flag("--json", serve.json, "print JSON");
  }
  void declare_train() {
    train_command =
        command->add_subcommand("train", "Training a small model: tokens per second, and where the time goes");
    const auto number = [&](const char* name, int& value, const char* meaning) {
      train_command->add_option(name, value, meaning)->capture_default_str();
    };
    train_command->add_option("--layer", train.layers, "the mixer of every block; may be given several times")
        ->allow_extra_args(false)
        ->capture_default_str();
    number("--blocks", train.blocks, "blocks of mixer and perceptron");
    number("--width", train.width, "of the residual stream");
    number("--heads", train.heads, "of a mixer, width / heads wide");
    number("--time", train.time, "tokens of a sequence");
    number("--batch", train.batch, "sequences of a step");
    number("--vocabulary", train.vocabulary, "tokens to choose from");
    train_command->add_option("--threads", train.threads, "threads (default: all cores)")
        ->delimiter(',')
        ->allow_extra_args(false);
    number("--runs", train.runs, "steps; the median is reported");
    train_command->add_flag("--quick", train.quick, "small sizes and few steps: tests the program, not the speed");
    train_command->add_flag("--json", train.json, "print JSON");
  }
  void declare_language() {
    language_command = command->add_subcommand(
        "language", "Language models: decode beside the bandwidth of memory, prompts beside the multiply-adds");
    language_command
        ->add_option(
            "model", language.models,
            "rwkv-7, mamba-2, gated-deltanet (random numbers, 0.4 B), or paths of models (default: the three)")
        ->delimiter('\0');
    const auto list = [&](const char* name, auto& values, const char* meaning) {
      language_command->add_option(name, values, meaning)
          ->delimiter(',')
          ->allow_extra_args(false)
          ->capture_default_str();
    };
    const auto number = [&](const char* name, int& value, const char* meaning) {
      language_command->add_option(name, value, meaning)->capture_default_str();
    };
    list("--type", language.types, "of their matrices: f32, bf16, f16, q8_0, q4_0");
    list("--batch", language.batches, "sequences that are decoded together");
    number("--prompt", language.prompt, "tokens of the prompt");
    number("--tokens", language.tokens, "that are decoded; the median counts");
    number("--piece", language.piece, "tokens of a prompt that go through the layers together; 0: the library's own");
    number("--threads", language.threads, "0: all cores");
    language_command->add_option("--folder", language.folder,
                                 "for the files of random numbers (default: that of the system)");
    language_command->add_flag("--quick", language.quick, "tiny models: tests the program, not the speed");
    language_command->add_flag("--json", language.json, "print JSON");
  }
  template <class Options>
  static void add_outputs(CLI::App* to, Options& options) {
    to->add_flag("--json", options.json, "print JSON");
    to->add_option("--report", options.report, "write a report, one self-contained HTML file");
  }
};

}  // namespace

int main(int argc, char** argv) {
  using namespace ttr::cli;
  const bool json_wanted =
      std::any_of(argv, argv + argc, [](const char* word) { return std::strcmp(word, "--json") == 0; });
  CLI::App app{
      "ttr: a sequence layer is a regression problem, weights / memory / solver. Says which one, and runs it "
      "exactly."};
  app.name("ttr");
  app.footer(examples);
  app.set_version_flag("--version", "ttr " TTR_VERSION);
  app.add_flag_callback(
      "--man", [] { throw ManualWanted(); }, "print the manual page, for man -l -");
  app.require_subcommand(1);

  RegressOptions regress;
  CLI::App* regress_command =
      app.add_subcommand("regress", "Online regression on a stream: predict each row, then learn it");
  regress_command->add_option("file", regress.file,
                              "CSV or .npy file, or - for a live stream; none: the built-in process");
  regress_command
      ->add_option("--keys", regress.keys, "key columns, by name or number from 1 (default: all but the values)")
      ->delimiter(',')
      ->allow_extra_args(false);
  regress_command->add_option("--values", regress.values, "value columns (default: the last one)")
      ->delimiter(',')
      ->allow_extra_args(false);
  regress_command
      ->add_option(
          "--layer", regress.layers,
          "layer name, name:setting=value,... or a recipe, or mix: an online aggregation of the others; repeat "
          "to compare several (default: a few layers and their mix)")
      ->take_all()
      ->allow_extra_args(false)
      ->delimiter('\0');
  regress_command->add_flag("--tune", regress.tune,
                            "try several settings of every layer side by side, weighted by their past errors");
  regress_command->add_flag("--classify", regress.classify,
                            "the value is a class, a word or a number: probabilities, log loss, accuracy, AUC");
  regress_command
      ->add_option("--classes", regress.classes, "with --classify: all classes (default: those in the file)")
      ->delimiter(',')
      ->allow_extra_args(false);
  regress_command->add_flag("--coefficients", regress.coefficients,
                            "show the coefficients of linear layers after the last row, in the report over time");
  regress_command->add_option("--coefficients-out", regress.coefficients_out,
                              "write them over time, .csv; with --group the last ones of every group");
  regress_command->add_option("--group", regress.group,
                              "a column, such as station: every word in it has a memory of its own");
  regress_command->add_option("--weights", regress.weights,
                              "a column: what a row counts, in the fit and in the score");
  regress_command->add_flag("--detect", regress.detect,
                            "anomaly scores of rows, and the rows from which on errors are larger (drift)");
  regress_command->add_flag("--watch", regress.watch, "a plot of the last rows in the terminal while it runs");
  regress_command->add_flag("--raw", regress.raw,
                            "keys and values as they are: no intercept, no scaling by mean and deviation");
  regress_command->add_flag("--bias", regress.bias, "with --raw: add a key that is always 1");
  regress_command->add_flag("--standardize", regress.standardize,
                            "with --raw: shift and scale by the mean and deviation of earlier rows");
  const auto columns = [&](const char* name, std::vector<std::string>& list, const char* meaning) {
    regress_command->add_option(name, list, meaning)->delimiter(',')->allow_extra_args(false);
  };
  columns("--with", regress.with, "further key columns, not lagged, beside --lags");
  columns("--dates", regress.dates, "columns of dates (ISO, or seconds since 1970): calendar keys");
  columns("--categories", regress.categories, "columns of words: a key per word, beyond the slots by a hash");
  regress_command->add_option("--category-slots", regress.category_slots, "keys per column of words")
      ->capture_default_str();
  regress_command->add_option("--missing", regress.missing, "missing keys: error, skip, last, mean or indicator")
      ->check(CLI::IsMember({"error", "skip", "last", "mean", "indicator"}));
  regress_command->add_option("--lags", regress.lags_text,
                              "keys = the last N rows, or these (1,12,13 or 1-3,12); value = the next row");
  regress_command->add_flag("--diff", regress.differences, "with --lags: learn differences of rows");
  regress_command->add_option("--horizon", regress.horizon, "predict the value this many rows later")
      ->check(CLI::NonNegativeNumber);
  regress_command->add_flag("--iterate", regress.iterate,
                            "with --horizon: in steps of one row, each answer a key of the next");
  regress_command->add_option("--id", regress.id,
                              "a column of names: a later row with the same one brings the value of a question");
  regress_command
      ->add_option("--delay", regress.delay, "so many further rows are predicted before the value of a row is known")
      ->check(CLI::NonNegativeNumber);
  regress_command->add_option("--interval", regress.interval,
                              "prediction intervals of this level, such as 0.9, for layers with a covariance");
  regress_command->add_option("--warmup", regress.warmup, "first rows that are not scored (default: keys + 1)")
      ->check(CLI::NonNegativeNumber);
  regress_command->add_option("--season", regress.season,
                              "rows of a season, such as 12: compare with the value one season before");
  regress_command->add_option("--fourier", regress.fourier,
                              "with --season: so many sines and cosines of it are keys");
  regress_command->add_option("--window", regress.window, "rows per window of the windowed loss");
  regress_command->add_option("--out", regress.out, "write predictions, .csv or .npy");
  regress_command->add_option("--report", regress.report, "write a report, one self-contained HTML file");
  regress_command->add_option("--svg", regress.svg, "write only the plot of the losses");
  regress_command->add_option("--on-bad", regress.on_bad, "error or skip: what to do with a bad row")
      ->check(CLI::IsMember({"error", "skip"}));
  regress_command->add_option("--header", regress.header, "auto, yes or no: whether the first line names the columns")
      ->check(CLI::IsMember({"auto", "yes", "no"}));
  regress_command->add_option("--save", regress.save, "write all that was learned to this file, a model");
  regress_command->add_option("--load", regress.load, "go on from a model, with the options it was made with");
  regress_command->add_option("--checkpoint-every", regress.checkpoint_every, "with --save: save every so many rows");
  regress_command->add_flag("--resume", regress.resume,
                            "with --load: the file is the same; go on after the rows that the model has seen");
  regress_command->add_flag("--json", regress.json, "print the summary as JSON");
  regress_command->add_option("--seeds", regress.seeds, "built-in process: number of runs")->capture_default_str();
  regress_command->add_option("--time", regress.time, "built-in process: length of a run")->capture_default_str();
  regress_command->add_option("--seed", regress.seed, "built-in process: first seed")->capture_default_str();
  regress_command->add_option("--covariance", regress.covariance, "built-in process: covariance of the noise")
      ->check(CLI::IsMember({"equicorrelation", "toeplitz", "wishart", "identity"}))
      ->capture_default_str();
  regress_command
      ->add_option("--order", regress.order, "built-in process: paper (0.9, then 0.999) or slides (0.999, then 0.9)")
      ->check(CLI::IsMember({"paper", "slides"}))
      ->capture_default_str();
  regress_command->add_option("--threads", regress.threads, "built-in process: threads; 0 = all cores");

  RegressOptions predict;
  predict.predict = true;
  CLI::App* predict_command =
      app.add_subcommand("predict", "Predict rows with a model of `ttr regress --save`; learn nothing");
  predict_command->add_option("model", predict.load, "a file that `ttr regress --save` has written")->required();
  predict_command->add_option("file", predict.file, "CSV or .npy file, or - for a live stream")->required();
  predict_command->add_option("--out", predict.out, "write predictions, .csv or .npy (default: standard output)");
  predict_command->add_option("--report", predict.report, "write a report, one self-contained HTML file");
  predict_command->add_option("--on-bad", predict.on_bad, "error or skip: what to do with a bad row")
      ->check(CLI::IsMember({"error", "skip"}));
  predict_command->add_option("--header", predict.header, "auto, yes or no: whether the first line names the columns")
      ->check(CLI::IsMember({"auto", "yes", "no"}));
  predict_command->add_flag("--json", predict.json, "print the summary as JSON");

  ServeVerb serve;
  serve.declare(app);

  LayersOptions layers;
  CLI::App* layers_command = app.add_subcommand("layers", "List the named layers, or explain one, or a recipe");
  layers_command->add_option("name", layers.name, "a layer or a recipe");
  layers_command->add_flag("--json", layers.json, "print JSON");
  layers_command->add_flag("--markdown", layers.markdown, "print the page of docs/layers (with a name)");
  layers_command->add_option("--map", layers.map, "write a picture of all layers, by solver and weights (SVG)");
  layers_command->add_option("--heads", layers.heads, "heads, for the bytes of state")->capture_default_str();
  layers_command->add_option("--key-dim", layers.key_dim, "key_dim, for the bytes of state")->capture_default_str();
  layers_command->add_option("--value-dim", layers.value_dim, "value_dim, for the bytes of state")
      ->capture_default_str();
  layers_command->add_flag("--footprint", layers.footprint,
                           "bytes that calls need: state, and scratch of a step, a forward and a backward");
  layers_command->add_option("--time", layers.time, "tokens of a call, for --footprint")->capture_default_str();
  layers_command->add_option("--threads", layers.threads, "threads of the plan, for --footprint")
      ->capture_default_str();

  DeriveOptions derive;
  CLI::App* derive_command =
      app.add_subcommand("derive", "Derive a recipe on paper: objective, recurrence, cost, forms");
  derive_command->add_option("recipe", derive.recipe, "a recipe such as 'equal / linear / sgd(beta)', or a layer")
      ->required();
  derive_command->add_flag("--latex", derive.latex, "print LaTeX");
  derive_command->add_flag("--json", derive.json, "print JSON");

  CheckOptions check;
  CLI::App* check_command = app.add_subcommand("check", "Check every property of every layer");
  check_command->add_option(
      "what", check.what,
      "LAYER, LAYER:CASE, LAYER(settings):CASE, RECIPE or RECIPE:CASE; with --golden, operations");
  CLI::Option* golden = check_command->add_option("--golden", check.golden,
                                                  "compare with every <op>/<case>.safetensors below this folder");
  CLI::Option* long_run = check_command->add_flag(
      "--long", check.long_run,
      "run a million tokens through every layer whose state has a fixed size: float against double");
  check_command->add_option("--tokens", check.tokens, "with --long: this many tokens instead")
      ->needs(long_run)
      ->capture_default_str();
  check_command->add_flag("--list", check.list, "with --long: print the names of the layers it runs, and run none")
      ->needs(long_run);
  CLI::Option* recipes = check_command->add_option("--recipes", check.recipes,
                                                   "compare this many random recipes with the literal solver");
  check_command
      ->add_option("--seed", check.seed, "with --recipes: seed of the first recipe; the others count up from it")
      ->needs(recipes)
      ->capture_default_str();
  long_run->excludes(golden);
  recipes->excludes(golden)->excludes(long_run);
  check_command->add_flag("--json", check.json, "print JSON");
  check_command->add_flag("--quiet", check.quiet, "print only failures and the last line");

#ifdef TTR_WITH_MODEL
  TrainVerb train;
  train.declare(app);
  TrainedVerbs trained;
  trained.declare(app);
#ifdef TTR_WITH_LANGUAGE
  LanguageVerbs language;
  language.declare(app);
  language.extend(*trained.generate_command);
#endif
  SweepVerb sweep;
  sweep.declare(app);
  DataVerbs data;
  data.declare(app);
#endif
  BenchVerb bench;
  bench.declare(app);
  std::string shell;
  CLI::App* completion_command =
      app.add_subcommand("completion", "Print what a shell needs to complete words after `ttr`");
  completion_command->add_option("shell", shell, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));

  try {
    app.parse(argc, argv);
  } catch (const ManualWanted&) {
    fmt::print("{}", man_page(page_of(app), TTR_VERSION, examples));
    return 0;
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::RequiredError& error) {
    std::string message = error.what();
    if (app.get_subcommands().empty()) {  // no verb, or a word that is none
      const bool word = argc > 1 && argv[1][0] != '-';
      message = (word ? std::string("there is no verb '") + argv[1] + "'" : std::string("a verb is missing")) +
                "; the verbs are " + verbs(app);
    }
    return report_error(message + "; `ttr --help` says more", "command line", json_wanted);
  } catch (const CLI::ExtrasError& error) {
    return report_error(
        std::string(error.what()) + hint(app, argc, argv) + "; `ttr --help` and `ttr VERB --help` say what there is",
        "command line", json_wanted);
  } catch (const CLI::ParseError& error) {
    return report_error(std::string(error.what()) + "; `ttr --help` and `ttr VERB --help` say what there is",
                        "command line", json_wanted);
  }
  if (*completion_command) {
    fmt::print("{}", shell == "bash" ? bash_completion(page_of(app)) : zsh_completion(page_of(app)));
    return 0;
  }
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has gone is an error code of write, and a quiet end
  std::signal(SIGXFSZ, SIG_IGN);  // as is a limit on the size of files
  try {
    regress.command = command_line(argc, argv);
#ifdef TTR_WITH_MODEL
    sweep.options.command = regress.command;
#endif
    for (const char* name : {"--seeds", "--time", "--seed", "--covariance", "--order"})
      if (regress_command->count(name) > 0) regress.process_options.emplace_back(name);
    predict.command = regress.command;
    const int code = *regress_command   ? run_regress(regress)
                     : *predict_command ? run_regress(predict)
                     : *serve.command   ? run_serve(serve.options)
                     : *layers_command  ? run_layers(layers)
                     : *derive_command  ? run_derive(derive)
                     : *bench.command   ? bench.run(regress.command)
#ifdef TTR_WITH_MODEL
                     : *train.command ? train.run(regress.command)
#ifdef TTR_WITH_LANGUAGE
                     : *trained.inspect_command && ttr::model::is_published(trained.inspect.file)
                         ? run_look_into(trained.inspect.file, trained.inspect.json)
                     : *trained.generate_command && !ttr::model::is_trained_here(trained.generate.model)
                         ? language.generate(trained.generate, trained.generate_command->count("--threads") > 0)
#endif
                     : trained.chosen() ? trained.run()
#ifdef TTR_WITH_LANGUAGE
                     : language.chosen() ? language.run()
#endif
                     : *sweep.command      ? run_sweep(sweep.options)
                     : *data.tasks_command ? run_tasks(data.tasks)
                     : *data.ngram_command ? run_ngram(data.ngram)
#endif
                     : check.long_run ? run_check_long(check)
                     : *recipes       ? run_check_recipes(check)
                                      : run_check(check);
    if (std::fflush(stdout) != 0)
      throw std::system_error(errno, std::generic_category(), "cannot write standard output");
    return code;
  } catch (const std::system_error& error) {
    if (error.code().value() == EPIPE) return 0;
    return report_error(error.what(), "standard output", json_wanted);
  } catch (const ttr::Error& error) {
    return report_error(error.what(), error.where(), json_wanted);
  } catch (const std::bad_alloc&) {
    return report_error("there is not enough memory for this", "", json_wanted);
  } catch (const std::exception& error) {
    return report_error(error.what(), "", json_wanted);
  }
}
