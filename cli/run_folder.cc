#include "run_folder.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "atomic_file.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace fs = std::filesystem;

RunFolder::RunFolder(std::string path, bool resume) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  std::error_code failed;
  if (!fs::exists(path_, failed)) return;
  if (!fs::is_directory(path_, failed))
    throw Error(fmt::format("'{}' is a file; --out names the folder of a run", path_), "--out");
  lock();
  const bool saved = fs::exists(checkpoint(), failed);
  if (saved && resume) found_ = checkpoint();
  if (resume && !saved && fs::exists(model(), failed))
    throw Error(fmt::format("'{}' has a model but no checkpoint to go on from; name another folder", path_), "--out");
  if (resume) return;
  for (const std::string& name : {checkpoint(), model(), log()})
    if (fs::exists(name, failed))
      throw Error(fmt::format("'{}' has a run in it; --resume goes on with it, or name another folder", path_),
                  "--out");
}

RunFolder::Handle::~Handle() {
  if (number >= 0) ::close(number);
}

void RunFolder::lock() {
  folder_.number = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_.number < 0) throw Error(fmt::format("cannot open '{}': {}", path_, std::strerror(errno)), "--out");
  if (::flock(folder_.number, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error(fmt::format("another process trains in '{}'; wait for it, or name another folder", path_), "--out");
}

void RunFolder::open() {
  std::error_code failed;
  if (folder_.number < 0) {
    fs::create_directories(path_, failed);
    if (failed) throw Error(fmt::format("cannot make the folder '{}': {}", path_, failed.message()), "--out");
    lock();
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, failed)) {
    const std::string name = entry.path().filename().string();
    for (const char* ours : {".checkpoint.safetensors.", ".model.safetensors.", ".log.jsonl."})
      if (name.rfind(ours, 0) == 0) fs::remove(entry.path(), failed);
  }
}

void RunFolder::begin_log(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  write_file(log(), "--out", text);
}

void RunFolder::append_to_log(std::string_view line) {
  const int file = ::open(log().c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  const auto refuse = [&] {
    const int error = errno;
    if (file >= 0) ::close(file);
    throw Error(fmt::format("cannot write '{}': {}", log(), std::strerror(error)), "--out");
  };
  if (file < 0) refuse();
  const off_t before = ::lseek(file, 0, SEEK_END);
  const std::string text = std::string(line) + "\n";
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t put = ::write(file, text.data() + done, text.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const int error = errno;
      [[maybe_unused]] const int cut = ::ftruncate(file, before);  // no half of a line
      errno = error;
      refuse();
    }
    done += static_cast<std::size_t>(put);
  }
  if (::close(file) != 0) throw Error(fmt::format("cannot write '{}': {}", log(), std::strerror(errno)), "--out");
}

std::string model_file(const std::string& path) {
  std::error_code failed;
  if (!fs::exists(path, failed))
    throw Error(fmt::format("there is no '{}'; name the folder of a run or a .safetensors file", path), path);
  if (!fs::is_directory(path, failed)) return path;
  for (const char* name : {"model.safetensors", "checkpoint.safetensors"})
    if (const fs::path inside = fs::path(path) / name; fs::exists(inside, failed)) return inside.string();
  throw Error(
      fmt::format("the folder '{}' has no run in it: neither model.safetensors nor checkpoint.safetensors", path),
      path);
}

}  // namespace ttr::cli
