// Verbs on layers and recipes: `ttr layers`, `ttr derive`, `ttr check`.
#pragma once

#include "commands.h"
#include "verbs.h"

namespace ttr::cli {

struct LayersVerb : Verb {
  LayersOptions options;
  CLI::App* command = nullptr;

  void declare(CLI::App& app) override {
    command = app.add_subcommand("layers", "List the named layers, or explain one, or a recipe");
    command->add_option("name", options.name, "a layer or a recipe");
    command->add_flag("--json", options.json, "print JSON");
    command->add_flag("--markdown", options.markdown, "print the page of docs/layers (with a name)");
    command->add_option("--map", options.map, "write a picture of all layers, by solver and weights (SVG)");
    command->add_option("--heads", options.heads, "heads, for the bytes of state")->capture_default_str();
    command->add_option("--key-dim", options.key_dim, "key_dim, for the bytes of state")->capture_default_str();
    command->add_option("--value-dim", options.value_dim, "value_dim, for the bytes of state")->capture_default_str();
    command->add_flag("--footprint", options.footprint,
                      "bytes that calls need: state, and scratch of a step, a forward and a backward");
    command->add_option("--time", options.time, "tokens of a call, for --footprint")->capture_default_str();
    command->add_option("--threads", options.threads, "threads of the plan, for --footprint")->capture_default_str();
  }
  std::optional<int> run(const std::string&) override {
    if (!*command) return {};
    return run_layers(options);
  }
};

struct DeriveVerb : Verb {
  DeriveOptions options;
  CLI::App* command = nullptr;

  void declare(CLI::App& app) override {
    command = app.add_subcommand("derive", "Derive a recipe on paper: objective, recurrence, cost, forms");
    command->add_option("recipe", options.recipe, "a recipe such as 'equal / linear / sgd(beta)', or a layer")
        ->required();
    command->add_flag("--latex", options.latex, "print LaTeX");
    command->add_flag("--json", options.json, "print JSON");
  }
  std::optional<int> run(const std::string&) override {
    if (!*command) return {};
    return run_derive(options);
  }
};

struct CheckVerb : Verb {
  CheckOptions options;
  CLI::App* command = nullptr;
  CLI::Option* recipes = nullptr;

  void declare(CLI::App& app) override {
    command = app.add_subcommand("check", "Check every property of every layer");
    command->add_option("what", options.what,
                        "LAYER, LAYER:CASE, LAYER(settings):CASE, RECIPE or RECIPE:CASE; with --golden, operations");
    CLI::Option* golden = command->add_option("--golden", options.golden,
                                              "compare with every <op>/<case>.safetensors below this folder");
    CLI::Option* long_run = command->add_flag(
        "--long", options.long_run,
        "run a million tokens through every layer whose state has a fixed size: float against double");
    command->add_option("--tokens", options.tokens, "with --long: this many tokens instead")
        ->needs(long_run)
        ->capture_default_str();
    command->add_flag("--list", options.list, "with --long: print the names of the layers it runs, and run none")
        ->needs(long_run);
    recipes =
        command->add_option("--recipes", options.recipes, "compare this many random recipes with the literal solver");
    command
        ->add_option("--seed", options.seed, "with --recipes: seed of the first recipe; the others count up from it")
        ->needs(recipes)
        ->capture_default_str();
    long_run->excludes(golden);
    recipes->excludes(golden)->excludes(long_run);
    command->add_flag("--json", options.json, "print JSON");
    command->add_flag("--quiet", options.quiet, "print only failures and the last line");
  }
  std::optional<int> run(const std::string&) override {
    if (!*command) return {};
    return options.long_run ? run_check_long(options) : *recipes ? run_check_recipes(options) : run_check(options);
  }
};

}  // namespace ttr::cli
