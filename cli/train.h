// `ttr train`: a model of any stack of layers on one of the tasks of ttr/tasks.h.
#pragma once

#include <cstdint>
#include <string>

#include "ttr/model.h"
#include "ttr/optimiser.h"

namespace ttr::cli {

struct TrainOptions {
  std::string task;  // empty: list them
  model::Config config;
  model::OptimiserConfig optimiser;
  int batch = 32, threads = 0;
  std::int64_t seed = 1;
  std::int64_t until = 0;       // stop after so many steps, whatever the schedule; 0: its steps
  int every = 0, judged = 256;  // steps between two tests (0: ten in all), and their sequences
  std::string checkpoint, resume;
  bool json = false, quiet = false;
};
int run_train(const TrainOptions&);

}  // namespace ttr::cli
