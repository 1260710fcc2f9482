// `ttr bench` and what can be measured besides layers.
#pragma once

#include "bench.h"
#include "ranks.h"
#include "verbs.h"

namespace ttr::cli {

struct BenchVerb : Verb {
  BenchOptions speed;
  StabilityOptions stability;
  GrowthOptions growth;
  LatencyOptions latency;
  AttentionOptions attention;
  FormsOptions forms;
  ShortOptions few;
  TrainBenchOptions train;
  StateOptions state;
  ServeBenchOptions serve;
  MpiBenchOptions mpi;
  LanguageBenchOptions language;
  CLI::App *serve_command = nullptr, *mpi_command = nullptr, *language_command = nullptr;
  CLI::App *command = nullptr, *stability_command = nullptr, *growth_command = nullptr, *latency_command = nullptr,
           *state_command = nullptr, *attention_command = nullptr, *forms_command = nullptr, *short_command = nullptr,
           *train_command = nullptr;

  void declare(CLI::App& app) override {
    command = app.add_subcommand("bench",
                                 "Measure speed against the machine's limits; also stability, growth, latency, "
                                 "state, attention, forms, short, train, serve, mpi, language");
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
    list("--key-heads", speed.key_heads,
         "heads of keys (0: as many as heads; pairs that do not divide are left out)");
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
        "state",
        "States in fewer bytes (bf16, f16, i8): error over many tokens, and time of a decode step beside float");
    state_command->add_option("layer", state.layers, "layers (default: some of each kind)")->delimiter('\0');
    state_command->add_option("--type", state.type, "bf16, f16 or i8 (default: what the layer has)")
        ->check(CLI::IsMember({"bf16", "f16", "i8"}));
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
    forms_command
        ->add_option("--gates", forms.gates, "as in ttr bench, where a family has gates; the geometric mean counts")
        ->delimiter(',')
        ->capture_default_str();
    forms_command->add_option("--vectors", forms.vectors, "bytes of a vector: 16, 32, 64; all unless given")
        ->delimiter(',');
    forms_command->add_option("--write", forms.write, "write the table: src/families/common/choice_table.inc");
    forms_command->add_flag("--quick", forms.quick, "small sizes and one run: tests the program, not the speed");
    forms_command->add_flag("--json", forms.json, "print JSON");
    short_command = command->add_subcommand("short", "The time of a token in prompts of 1 to 64 tokens");
    short_command->add_option("layer", few.layers, "layers (default: some with chunks)")->delimiter('\0');
    short_command->add_option("--dim", few.dims, "key_dim and value_dim")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->capture_default_str();
    short_command->add_option("--longest", few.longest, "tokens of the longest prompt")->capture_default_str();
    short_command->add_option("--heads", few.heads, "heads")->capture_default_str();
    short_command->add_option("--runs", few.runs, "number of runs; the median is reported")->capture_default_str();
    short_command->add_flag("--quick", few.quick, "few tokens and one run: tests the program, not the speed");
    short_command->add_flag("--json", few.json, "print JSON");
#ifdef TTR_WITH_MODEL
    declare_train();
#endif
    declare_serve();
    declare_mpi();
#ifdef TTR_WITH_LANGUAGE
    declare_language();
#endif
  }
  std::optional<int> run(const std::string& text) override {
    if (!*command) return {};
    speed.command = growth.command = attention.command = text;
#ifdef TTR_WITH_MODEL
    if (*train_command) return run_bench_train(train);
#endif
    if (*serve_command) return run_bench_serve(serve);
    if (*mpi_command) return mpi_program()->bench(mpi);
#ifdef TTR_WITH_LANGUAGE
    if (*language_command) return run_bench_language(language);
#endif
    return *stability_command   ? run_bench_stability(stability)
           : *growth_command    ? run_bench_growth(growth)
           : *latency_command   ? run_bench_latency(latency)
           : *state_command     ? run_bench_state(state)
           : *attention_command ? run_bench_attention(attention)
           : *forms_command     ? run_bench_forms(forms)
           : *short_command     ? run_bench_short(few)
                                : run_bench(speed);
  }

 private:
  void declare_mpi() {
    mpi_command = command->add_subcommand(
        "mpi",
        "A sequence on the ranks of `mpirun -n N ttr bench mpi`: time, messages and bytes against the formula");
    const auto number = [&](const char* name, auto& value, const char* meaning) {
      mpi_command->add_option(name, value, meaning)->capture_default_str();
    };
    mpi_command->add_option("layer", mpi.layers, "layers")->delimiter('\0')->capture_default_str();
    mpi_command->add_option("--way", mpi.ways, "relay, scan, gather, ring, halo, best; those that a layer has")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->capture_default_str();
    mpi_command->add_option("--pass", mpi.pass, "forward or both")
        ->check(CLI::IsMember({"forward", "both"}))
        ->capture_default_str();
    number("--time", mpi.time, "tokens of all ranks together");
    number("--heads", mpi.heads, "heads");
    number("--key-dim", mpi.key_dim, "key_dim");
    number("--value-dim", mpi.value_dim, "value_dim; 0: as key_dim");
    number("--batch", mpi.batch, "sequences");
    number("--groups", mpi.groups, "of a relay; 0: by the ranks");
    number("--runs", mpi.runs, "number of runs; the least is reported");
    mpi_command->add_flag("--quick", mpi.quick, "few tokens: tests the program, not the speed");
    mpi_command->add_flag("--json", mpi.json, "print JSON");
  }
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
    language_command
        ->add_option("--activations", language.activations,
                     "exact, or rounded to the type of the weights, where that is bf16, Q8_0 or Q4_0")
        ->capture_default_str();
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

}  // namespace ttr::cli
