// The verbs that use a trained model: `ttr eval`, `ttr generate`, `ttr inspect`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trained.h"

namespace ttr::cli {

class Json;

struct EvalOptions {
  std::string model;           // the folder of a run or a file
  std::string data;            // a task or a text file; empty: what it was trained on
  std::vector<int> times;      // lengths; empty: that of the task
  std::int64_t sequences = 0;  // 0: 256 of a task, all of a text
  int batch = 32, threads = 0;
  std::optional<std::uint64_t> seed;  // of the test data; empty: that of the run
  bool json = false;
};
int run_eval(const EvalOptions&);

struct GenerateOptions {
  std::string model, prompt;  // prompt: text, or numbers of tokens for a model of another task
  std::int64_t tokens = 256;
  std::uint64_t seed = 1;
  Sampling sampling;
  int threads = 1;  // a token is too little work to share
  bool json = false;
};
int run_generate(const GenerateOptions&);

struct InspectOptions {
  std::string file;
  bool json = false;
  // Whether a file is a published model that runs, as lines and into JSON; empty: this program has none.
  std::function<std::string(const std::string& path, Json& to)> published;
};
int run_inspect(const InspectOptions&);

}  // namespace ttr::cli
