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

#include "commands.h"
#include "json.h"
#include "regress.h"
#include "ttr/version.h"

namespace {

constexpr const char* examples = R"(Examples:
  ttr regress                                              the switching process of the paper: a table and report.html
  ttr regress data.csv --values y --layer nlms --layer rls predict each row from the rows before it
  ttr layers gated-deltanet                                one layer explained
  ttr derive 'equal / linear / sgd(beta, decay)'           a recipe worked out on paper
  ttr check                                                every property of every layer
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

}  // namespace

int main(int argc, char** argv) {
  using namespace ttr::cli;
  const bool json_wanted =
      std::any_of(argv, argv + argc, [](const char* word) { return std::strcmp(word, "--json") == 0; });
  CLI::App app{
      "ttr: a sequence layer is a regression problem - weights / memory / solver. Says which one, runs it exactly."};
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
                            "shift and scale by running mean and deviation; nothing of later rows leaks");
  regress_command->add_option("--lags", regress.lags, "keys = the last N rows, value = the next row");
  regress_command->add_option("--horizon", regress.horizon, "predict the value so many rows later")
      ->check(CLI::NonNegativeNumber);
  regress_command->add_option("--window", regress.window, "rows per window of the windowed loss");
  regress_command->add_option("--out", regress.out, "write predictions, .csv or .npy");
  regress_command->add_option("--report", regress.report, "write a report, one self-contained HTML file");
  regress_command->add_option("--svg", regress.svg, "write the plot of the losses alone");
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
  regress_command->add_option("--threads", regress.threads, "built-in process: threads; 0 = all");

  LayersOptions layers;
  CLI::App* layers_command = app.add_subcommand("layers", "List the named layers, or explain one");
  layers_command->add_option("name", layers.name, "a layer");
  layers_command->add_flag("--json", layers.json, "print JSON");
  layers_command->add_flag("--markdown", layers.markdown, "print the page of docs/layers (with a name)");
  layers_command->add_option("--heads", layers.heads, "heads, for the bytes of state")->capture_default_str();
  layers_command->add_option("--key-dim", layers.key_dim, "key_dim, for the bytes of state")->capture_default_str();
  layers_command->add_option("--value-dim", layers.value_dim, "value_dim, for the bytes of state")
      ->capture_default_str();

  DeriveOptions derive;
  CLI::App* derive_command =
      app.add_subcommand("derive", "Work a recipe out on paper: objective, recurrence, cost, forms");
  derive_command->add_option("recipe", derive.recipe, "a recipe such as 'equal / linear / sgd(beta)', or a layer")
      ->required();
  derive_command->add_flag("--latex", derive.latex, "print LaTeX");
  derive_command->add_flag("--json", derive.json, "print JSON");

  CheckOptions check;
  CLI::App* check_command = app.add_subcommand("check", "Check every property of every layer");
  check_command->add_option("what", check.what,
                            "LAYER, LAYER:CASE or LAYER(settings):CASE; with --golden, operations");
  CLI::Option* golden = check_command->add_option("--golden", check.golden,
                                                  "compare with every <op>/<case>.safetensors below this folder");
  check_command
      ->add_flag("--long", check.long_run,
                 "run a million tokens through every layer with a state of fixed size: float against double")
      ->excludes(golden);
  check_command->add_flag("--json", check.json, "print JSON");
  check_command->add_flag("--quiet", check.quiet, "print only what fails, and the last line");

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::RequiredError& error) {
    std::string message = error.what();
    if (app.get_subcommands().empty()) {  // no verb, or a word that is none
      const bool word = argc > 1 && argv[1][0] != '-';
      message = (word ? std::string("there is no verb '") + argv[1] + "'" : std::string("a verb is missing")) +
                "; the verbs are regress, layers, derive and check";
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
                     : check.long_run  ? run_check_long(check)
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
