// The folder of a training run, with one process at a time:
//
//   checkpoint.safetensors   everything that is needed to go on, replaced as a whole
//   model.safetensors        the weights at the end, for eval, generate, inspect and other programs
//   log.jsonl                a line for every test
//
// A process that is killed leaves a checkpoint that is whole, perhaps older than the log: who goes on begins the log anew
// with the rows of the checkpoint. Hidden files of a write that was cut short are removed then.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ttr::cli {

class RunFolder {
 public:
  /// Looks at `path` and changes nothing; throws Error if a run is there and `resume` is not wanted, if something else has
  /// this name, or if another process trains in it.
  RunFolder(std::string path, bool resume);

  /// The checkpoint that is there, or empty.
  std::string found() const { return found_; }
  /// Makes the folder if it is not there.
  void open();
  /// The log has these lines and no others.
  void begin_log(const std::vector<std::string>& lines);
  void append_to_log(std::string_view line);

  std::string checkpoint() const { return path_ + "/checkpoint.safetensors"; }
  std::string model() const { return path_ + "/model.safetensors"; }
  std::string log() const { return path_ + "/log.jsonl"; }
  const std::string& path() const { return path_; }

 private:
  void lock();

  // Closed, and with it the lock, also where the constructor throws.
  struct Handle {
    Handle() = default;
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    ~Handle();
    int number = -1;
  };

  std::string path_, found_;
  Handle folder_;
};

/// What eval, generate and inspect read where they are given a folder: its model, or its checkpoint while there is none;
/// a file is itself. Throws Error.
std::string model_file(const std::string& path);

}  // namespace ttr::cli
