// Verbs on models that are trained here: `ttr train`, `eval`, `generate`, `inspect`, `sweep`, `tasks`, `ngram`.
#pragma once

#include "sweep.h"
#include "tasks.h"
#include "train.h"
#include "trained_verbs.h"
#include "verbs.h"

namespace ttr::cli {

struct TrainVerb : Verb {
  TrainOptions options;
  CLI::App* command = nullptr;

  void declare(CLI::App& app) override {
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
    run_settings(
        [&](const char* name, auto& value, const char* meaning) {
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, bool>) command->add_flag(name, value, meaning);
          else option(name, value, meaning);
        },
        options);
    option("--threads", options.threads, "0: all cores");
    option("--sequence-ranks", options.sequence_ranks,
           "of mpirun's ranks, how many hold a sequence together, each a piece of it");
    option("--until", options.until, "stop after this many steps; 0: all");
    option("--checkpoint-every", options.checkpoint_every, "steps; 0: at every test and every minute");
    command->add_option("--report", options.report, "write a report, one self-contained HTML file");
    command->add_flag("--json", options.json, "print JSON");
    command->add_flag("--quiet", options.quiet, "print the tests only");
  }
  std::optional<int> run(const std::string& text) override {
    if (!*command) return {};
    options.command = text;
    for (const CLI::Option* one : command->get_options())
      if (one->count() > 0) options.given.insert(one->get_name());
    return run_train(options);
  }
};

struct TrainedVerbs : Verb {
  EvalOptions eval;
  GenerateOptions generate;
  InspectOptions inspect;
  Verb* instead = nullptr;  // takes models that are published, if there is one
  CLI::App *eval_command = nullptr, *generate_command = nullptr, *inspect_command = nullptr;

  void declare(CLI::App& app) override {
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
    generate_command->add_option("--seed", generate.seed, "of the draws")
        ->capture_default_str()
        ->check([](const std::string& text) {
          return text.find('-') == std::string::npos ? std::string() : text + " is no whole number from 0 on";
        });
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
  std::optional<int> run(const std::string& text) override {
    if (instead)
      if (const std::optional<int> code = instead->run(text)) return code;
    if (*eval_command) return run_eval(eval);
    if (*generate_command) return run_generate(generate);
    if (*inspect_command) return run_inspect(inspect);
    return {};
  }
};

struct SweepVerb : Verb {
  SweepOptions options;
  CLI::App* command = nullptr;

  void declare(CLI::App& app) override {
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
  std::optional<int> run(const std::string& text) override {
    if (!*command) return {};
    options.command = text;
    return run_sweep(options);
  }
};

struct DataVerbs : Verb {
  TasksOptions tasks;
  NgramOptions ngram;
  CLI::App *tasks_command = nullptr, *ngram_command = nullptr;

  void declare(CLI::App& app) override {
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
  std::optional<int> run(const std::string&) override {
    if (*tasks_command) return run_tasks(tasks);
    if (*ngram_command) return run_ngram(ngram);
    return {};
  }
};

}  // namespace ttr::cli
