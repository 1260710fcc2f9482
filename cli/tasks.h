// `ttr tasks`: what models are trained on, as a list, as samples for a person, as files for other programs; and `ttr ngram`,
// what counting makes of a text.
#pragma once

#include <cstdint>
#include <string>

namespace ttr::cli {

struct TasksOptions {
  std::string task;  // empty: list them
  int count = 0;     // sequences; 0: a few to look at
  std::int64_t seed = 1, step = -1;
  bool test = false;
  std::string out;  // .jsonl, .csv, .npy, .npz
  bool json = false;
};
int run_tasks(const TasksOptions&);
/// All tasks with their settings.
int list_tasks(bool json);

struct NgramOptions {
  std::string file;
  int order = 6;
  double held = 0.1;
  std::int64_t held_bytes = 0;
  bool compressors = false;
  bool json = false;
};
int run_ngram(const NgramOptions&);

}  // namespace ttr::cli
