// The `ttr` program: reads the command line, calls one verb, turns errors into a sentence and an exit code.
// The only file that includes CLI11, by command_page.h and verbs*.h.
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "allocation_count.h"
#include "atomic_file.h"
#include "command_page.h"
#include "json.h"
#include "ranks.h"
#include "regress_input.h"
#include "shell.h"
#include "standard_files.h"
#include "verbs_bench.h"
#include "verbs_layers.h"
#include "verbs_stream.h"
#ifdef TTR_WITH_MODEL
#include "verbs_model.h"
#ifdef TTR_WITH_LANGUAGE
#include "verbs_language.h"
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

// In the order in which --help lists them.
std::vector<std::unique_ptr<ttr::cli::Verb>> all_verbs() {
  using namespace ttr::cli;
  std::vector<std::unique_ptr<Verb>> verbs;
  verbs.push_back(std::make_unique<RegressVerb>());
  verbs.push_back(std::make_unique<PredictVerb>());
  verbs.push_back(std::make_unique<ServeVerb>());
  verbs.push_back(std::make_unique<LayersVerb>());
  verbs.push_back(std::make_unique<DeriveVerb>());
  verbs.push_back(std::make_unique<CheckVerb>());
#ifdef TTR_WITH_MODEL
  verbs.push_back(std::make_unique<TrainVerb>());
  auto trained = std::make_unique<TrainedVerbs>();
#ifdef TTR_WITH_LANGUAGE
  auto language = std::make_unique<LanguageVerbs>(*trained);
  trained->instead = language.get();
#endif
  verbs.push_back(std::move(trained));
#ifdef TTR_WITH_LANGUAGE
  verbs.push_back(std::move(language));
#endif
  verbs.push_back(std::make_unique<SweepVerb>());
  verbs.push_back(std::make_unique<DataVerbs>());
#endif
  verbs.push_back(std::make_unique<BenchVerb>());
  return verbs;
}

// Exit codes: 0 success, 1 a check failed, 2 bad input, 130 interrupted by Ctrl-C, 143 by SIGTERM.
int report_error(const std::string& message, const std::string& where, bool json) {
  if (json) {
    const ttr::cli::Json error = ttr::cli::Json::object().set("message", message).set("where", where);
    ttr::cli::tell("{}\n", ttr::cli::Json::object().set("error", error).dump());
  } else {
    ttr::cli::tell("ttr: {}{}\n", message, where.empty() ? "" : " (" + where + ")");
  }
  return 2;
}

// The exit code, once all of standard output has been taken, or its reader has gone.
int written(int code) {
  if (std::fflush(stdout) != 0) throw std::system_error(errno, std::generic_category());
  pollfd out = {STDOUT_FILENO, 0, 0};  // where lines were flushed one by one, nobody has kept the reason
  if (std::ferror(stdout) != 0 && !(::poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0))
    throw ttr::Error("cannot write standard output: not all of it was taken", "standard output");
  return code;
}

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

}  // namespace

int main(int argc, char** argv) {
  using namespace ttr::cli;
  hold_standard_files();
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

  const std::vector<std::unique_ptr<Verb>> known = all_verbs();
  for (const std::unique_ptr<Verb>& verb : known) verb->declare(app);
  std::string shell;
  CLI::App* completion_command =
      app.add_subcommand("completion", "Print what a shell needs to complete words after `ttr`");
  completion_command->add_option("shell", shell, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));

  try {
    try {
      app.parse(argc, argv);
    } catch (const ManualWanted&) {
      fmt::print("{}", man_page(page_of(app), TTR_VERSION, examples));
      return written(0);
    } catch (const CLI::CallForVersion& version) {
      fmt::print("{}\n", version.what());
      return written(0);
    } catch (const CLI::Success& success) {
      return written(app.exit(success));
    } catch (const CLI::RequiredError& error) {
      std::string message = error.what();
      if (app.get_subcommands().empty()) {  // no verb, or a word that is none
        const bool word = argc > 1 && argv[1][0] != '-';
        message = (word ? std::string("there is no verb '") + argv[1] + "'" : std::string("a verb is missing")) +
                  "; the verbs are " + verbs(app);
      }
      return report_error(message + "; `ttr --help` says more", "command line", json_wanted);
    } catch (const CLI::ExtrasError& error) {
      return report_error(std::string(error.what()) + hint(app, argc, argv) +
                              "; `ttr --help` and `ttr VERB --help` say what there is",
                          "command line", json_wanted);
    } catch (const CLI::ParseError& error) {
      return report_error(std::string(error.what()) + "; `ttr --help` and `ttr VERB --help` say what there is",
                          "command line", json_wanted);
    }
    if (*completion_command) {
      fmt::print("{}", shell == "bash" ? bash_completion(page_of(app)) : zsh_completion(page_of(app)));
      return written(0);
    }
    std::signal(SIGPIPE, SIG_IGN);  // a reader that has gone is an error code of write, and a quiet end
    std::signal(SIGXFSZ, SIG_IGN);  // as is a limit on the size of files
    const CLI::App& chosen = *app.get_subcommands().front();
    const auto part = chosen.get_subcommands();
    if (chosen.get_name() == "train" || chosen.get_name() == "sweep") start_ranks(argv, false);
    if (chosen.get_name() == "bench" && !part.empty() && part.front()->get_name() == "mpi") start_ranks(argv, true);
    const std::string text = ttr::cli::shell_command({argv + std::min(argc, 1), argv + argc});
    int code = 2;
    for (const std::unique_ptr<Verb>& verb : known)
      if (const std::optional<int> ended = verb->run(text)) {
        code = *ended;
        break;
      }
    return end_ranks(written(code), true);
  } catch (const ClosedPipe&) {
    return 0;
  } catch (const std::system_error& error) {
    if (error.code().value() == EPIPE) return 0;
    end_ranks(2, false);
    if (std::ferror(stdout) == 0) return report_error(error.what(), "", json_wanted);
    return report_error("cannot write standard output: " + why_failed(error.code().value()), "standard output",
                        json_wanted);
  } catch (const ttr::Error& error) {
    end_ranks(2, false);
    return report_error(error.what(), error.where(), json_wanted);
  } catch (const std::bad_alloc&) {
    end_ranks(2, false);
    return report_error(no_memory_in_words(), "", json_wanted);
  } catch (const std::length_error&) {
    end_ranks(2, false);
    return report_error("this needs more memory than a program can address; take smaller sizes", "", json_wanted);
  } catch (const std::exception& error) {
    end_ranks(2, false);
    return report_error(error.what(), "", json_wanted);
  }
}
