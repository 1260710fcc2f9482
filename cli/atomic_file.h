// Output that is there whole or not at all: written to a hidden file beside the target, renamed at the end.
//
// Targets that cannot be renamed onto (standard output, /dev/null, a named pipe) are written directly.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

namespace ttr::cli {

/// The reader of a pipe has gone away; the run should end quietly.
struct ClosedPipe {};

/// A buffered writer on a file descriptor. Throws Error (or ClosedPipe) when the bytes cannot be written.
class Writer {
 public:
  Writer(int descriptor, std::string name);
  void write(std::string_view bytes);
  void flush();
  const std::string& name() const { return name_; }

 private:
  int descriptor_;
  std::string name_;
  std::vector<char> buffer_;
};

class AtomicFile {
 public:
  /// Creates the hidden file. `option` names the command-line option in errors ("--out"). "-" is standard output.
  AtomicFile(const std::string& path, const std::string& option);
  ~AtomicFile();  // without commit() nothing remains
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes) { writer_->write(bytes); }
  void flush() { writer_->flush(); }
  /// Overwrites bytes at the start of the file (a header that knew not yet how many rows would follow).
  void rewrite_start(std::string_view bytes);
  bool is_standard_output() const { return descriptor_ == STDOUT_FILENO; }
  bool can_rewrite() const { return !temporary_.empty(); }
  /// Waits until what was written is on the disk.
  void sync();
  /// Puts the file in its place.
  void commit();
  const std::string& path() const { return path_; }

 private:
  std::string path_, target_, temporary_;
  int descriptor_ = -1;
  bool owns_descriptor_ = false;
  std::unique_ptr<Writer> writer_;
};

/// Writes a whole file at once; `durable`: it is on the disk before it is in its place.
void write_file(const std::string& path, const std::string& option, std::string_view bytes, bool durable = false);

/// True if both paths name the same existing file.
bool same_file(const std::string& a, const std::string& b);

}  // namespace ttr::cli
