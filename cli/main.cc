// The `ttr` program: reads the command line, calls one verb, turns errors into a sentence and an exit code.
// The only file that includes CLI11.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <system_error>

#include "bench.h"
#include "commands.h"
#include "json.h"
#include "regress.h"
#ifdef TTR_WITH_MODEL
#include "train.h"
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
  ttr train parity --stack 'deltanet(range.beta=2)'        train a model of one layer; `ttr train` lists the tasks
)";

// Exit codes: 0 success, 1 a check failed, 2 bad input, 130 interrupted.
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
    command = app.add_subcommand("train", "Train a model of any stack of layers on a task");
    ttr::model::Config& c = options.config;
    ttr::model::OptimiserConfig& how = options.optimiser;
    const auto option = [&](const char* name, auto& value, const char* meaning) {
      return command->add_option(name, value, meaning)->capture_default_str();
    };
    CLI::Option* const task =
        command->add_option("task", options.task, "NAME or NAME(setting=value, ..); none: list them");
    option("--stack", c.stack, "layers and recipes: 'gated-deltanet*3, softmax(window=128)'");
    option("--width", c.width, "of the residual stream");
    option("--heads", c.heads, "heads of every layer");
    option("--key-dim", c.key_dim, "0: width / heads");
    option("--value-dim", c.value_dim, "0: width / heads");
    option("--mlp", c.mlp, "swiglu, gelu or none");
    option("--mlp-width", c.mlp_width, "hidden units; 0: by the width");
    option("--embedding-scale", c.embedding_scale, "standard deviation; 0: 1/sqrt(width)");
    command->add_flag("--tied", c.tied, "the head is the embedding");
    option("--optimiser", how.method, "adamw, sgd, muon or soap");
    option("--rate", how.rate, "largest learning rate");
    option("--schedule", how.schedule, "cosine, linear or constant");
    option("--warmup", how.warmup, "steps");
    option("--steps", how.steps, "steps of the schedule");
    option("--decay", how.decay, "weight decay of matrices");
    option("--clip", how.clip, "largest length of the gradient; 0: any");
    option("--momentum", how.momentum, "of sgd and muon");
    option("--ema", how.ema, "factor of a running mean of the parameters; 0: none");
    option("--batch", options.batch, "sequences of a step");
    option("--until", options.until, "stop after this many steps; 0: all");
    option("--every", options.every, "steps between two tests; 0: a tenth of all");
    option("--test", options.judged, "sequences of a test");
    CLI::Option* const seed = option("--seed", options.seed, "of parameters and data");
    option("--threads", options.threads, "0: all cores");
    command->add_option("--checkpoint", options.checkpoint, "write a .safetensors file at every test and at Ctrl-C");
    command->add_option("--resume", options.resume, "go on from such a file, with the settings it has")
        ->excludes(task)
        ->excludes(seed);
    command->add_flag("--json", options.json, "print JSON");
    command->add_flag("--quiet", options.quiet, "print the tests only");
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

// `ttr bench` and what can be measured besides layers.
struct BenchVerb {
  ttr::cli::BenchOptions speed;
  ttr::cli::StabilityOptions stability;
  ttr::cli::GrowthOptions growth;
  ttr::cli::AttentionOptions attention;
  ttr::cli::FormsOptions forms;
  ttr::cli::TrainBenchOptions train;
  CLI::App *command = nullptr, *stability_command = nullptr, *growth_command = nullptr, *attention_command = nullptr,
           *forms_command = nullptr, *train_command = nullptr;

  void declare(CLI::App& app) {
    command = app.add_subcommand(
        "bench", "Measure speed against the machine's limits; also stability, growth, attention, forms, train");
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
    list("--time", speed.times, "tokens; for decoding, pairs already kept");
    list("--threads", speed.threads, "threads (default: 1, and all cores)");
    command->add_option("--runs", speed.runs, "number of runs; the median is reported")->capture_default_str();
    command->add_flag("--quick", speed.quick, "small sizes and few runs: tests the program, not the speed");
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
  }
  int run(const std::string& text) {
    speed.command = growth.command = attention.command = text;
#ifdef TTR_WITH_MODEL
    if (*train_command) return run_bench_train(train);
#endif
    return *stability_command   ? run_bench_stability(stability)
           : *growth_command    ? run_bench_growth(growth)
           : *attention_command ? run_bench_attention(attention)
           : *forms_command     ? run_bench_forms(forms)
                                : run_bench(speed);
  }

 private:
  void declare_train() {
    train_command = command->add_subcommand("train", "Training a small model: tokens per second, and where the time goes");
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
  app.require_subcommand(1);

  RegressOptions regress;
  CLI::App* regress_command =
      app.add_subcommand("regress", "Online regression on a stream: predict each row, then learn it");
  regress_command->add_option("file", regress.file,
                              "CSV or .npy file, or - for a live stream; none: the built-in process");
  regress_command
      ->add_option("--keys", regress.keys, "key columns, by name or number from 1 (default: all but the values)")
      ->delimiter(',');
  regress_command->add_option("--values", regress.values, "value columns (default: the last one)")->delimiter(',');
  regress_command
      ->add_option("--layer", regress.layers,
                   "layer name, name:setting=value,... or a recipe; repeat to compare several")
      ->take_all()
      ->expected(1)
      ->delimiter('\0');
  regress_command->add_flag("--bias", regress.bias, "add a key that is always 1");
  regress_command->add_flag("--standardize", regress.standardize,
                            "shift and scale by running mean and deviation; no information from later rows");
  regress_command->add_option("--lags", regress.lags, "keys = the last N rows, value = the next row");
  regress_command->add_option("--horizon", regress.horizon, "predict the value this many rows later")
      ->check(CLI::NonNegativeNumber);
  regress_command->add_option("--interval", regress.interval,
                              "prediction intervals of this level, such as 0.9, for layers with a covariance");
  regress_command->add_option("--window", regress.window, "rows per window of the windowed loss");
  regress_command->add_option("--out", regress.out, "write predictions, .csv or .npy");
  regress_command->add_option("--report", regress.report, "write a report, one self-contained HTML file");
  regress_command->add_option("--svg", regress.svg, "write only the plot of the losses");
  regress_command->add_option("--on-bad", regress.on_bad, "error or skip: what to do with a bad row")
      ->check(CLI::IsMember({"error", "skip"}));
  regress_command->add_option("--header", regress.header, "auto, yes or no: whether the first line names the columns")
      ->check(CLI::IsMember({"auto", "yes", "no"}));
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
#endif
  BenchVerb bench;
  bench.declare(app);

  try {
    app.parse(argc, argv);
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
  } catch (const CLI::ParseError& error) {
    return report_error(std::string(error.what()) + "; `ttr --help` and `ttr VERB --help` say what there is",
                        "command line", json_wanted);
  }
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has gone is an error code of write, and a quiet end
  try {
    regress.command = command_line(argc, argv);
    const int code = *regress_command  ? run_regress(regress)
                     : *layers_command ? run_layers(layers)
                     : *derive_command ? run_derive(derive)
                     : *bench.command  ? bench.run(regress.command)
#ifdef TTR_WITH_MODEL
                     : *train.command ? run_train(train.options)
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
