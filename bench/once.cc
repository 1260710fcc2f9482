// One layer, run a given number of times and nothing else, for use under a profiler: no clock, no checks, no output.
// scripts/count-instructions.py runs it under callgrind.
//
//   build-bench/bench/ttr_once gla --time 512 --repeat 10
//   TTR_TARGET=AVX2 valgrind --tool=callgrind build-bench/bench/ttr_once gla --time 512      (it knows no AVX-512)
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <string>

#include "bench_case.h"

namespace {

// What a reader of the counts wants beside them, as one line of JSON; no count of operations is null.
void describe(const ttr::cli::CaseRun& run) {
  const ttr::cli::BenchCase& c = run.spec();
  const double flops = c.pass == ttr::cli::Pass::forward ? useful_flops_per_token(run) / c.heads : 0;
  fmt::print("{{\"form\": \"{}\", \"useful_flops\": {}}}\n",
             c.pass == ttr::cli::Pass::forward ? run.form() : ttr::to_string(c.form),
             flops > 0 ? fmt::format("{}", flops) : "null");
}

}  // namespace

int main(int argc, char** argv) {
  ttr::cli::BenchCase spec;
  std::string form = "best";
  int repeats = 1;
  bool backward = false, only_describe = false;
  CLI::App app{"Runs a layer and prints nothing: for use under a profiler."};
  app.name("ttr_once");
  app.add_option("layer", spec.layer, "name, name:setting=value,... or recipe")->required();
  app.add_option("--key-dim", spec.key_dim, "key_dim")->capture_default_str()->check(CLI::Range(1, 4096));
  app.add_option("--value-dim", spec.value_dim, "value_dim")->capture_default_str()->check(CLI::Range(1, 4096));
  app.add_option("--heads", spec.heads, "heads")->capture_default_str()->check(CLI::Range(1, 4096));
  app.add_option("--time", spec.time, "tokens")->capture_default_str()->check(CLI::Range(1, 1 << 24));
  app.add_option("--gates", spec.gates, "gentle, mixed, strong, channel, token, a number or a file, as in ttr bench")
      ->capture_default_str();
  app.add_option("--form", form, "best, recurrent, chunk, parallel or scan")->capture_default_str();
  app.add_flag("--backward", backward, "the backward pass instead of the forward pass");
  app.add_option("--repeat", repeats, "runs")->capture_default_str()->check(CLI::Range(0, 1 << 30));
  app.add_flag("--describe", only_describe,
               "run nothing; print the form, and the operations of the plain recurrence "
               "per token and head, as JSON");
  try {
    app.parse(argc, argv);
    spec.form = ttr::cli::form_of(form, " and scan");
    spec.pass = backward ? ttr::cli::Pass::backward : ttr::cli::Pass::forward;
    ttr::cli::CaseRun run(spec);
    if (only_describe) describe(run);
    else
      for (int r = 0; r < repeats; ++r) run.once();
    return 0;
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "ttr_once: {}; `ttr_once --help` says what there is\n", error.what());
  } catch (const ttr::Error& error) {
    fmt::print(stderr, "ttr_once: {}{}\n", error.what(), error.where().empty() ? "" : " (" + error.where() + ")");
  } catch (const std::exception& error) {
    fmt::print(stderr, "ttr_once: {}\n", error.what());
  }
  return 2;
}
