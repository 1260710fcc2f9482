#include "atomic_file.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "standard_files.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

constexpr std::size_t buffer_bytes = 1 << 16;

void write_all(int descriptor, std::string_view bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EPIPE) throw ClosedPipe{};
    if (n < 0) throw Error(fmt::format("cannot write {}: {}", name, why_failed(errno)), name);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace

Writer::Writer(int descriptor, std::string name) : descriptor_(descriptor), name_(std::move(name)) {
  buffer_.reserve(buffer_bytes);
}

void Writer::write(std::string_view bytes) {
  if (buffer_.size() + bytes.size() > buffer_bytes) flush();
  if (bytes.size() > buffer_bytes) write_all(descriptor_, bytes, name_);
  else buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void Writer::flush() {
  // Emptied first: after a failed write the same bytes must not be tried again.
  std::vector<char> pending;
  pending.swap(buffer_);
  write_all(descriptor_, {pending.data(), pending.size()}, name_);
  pending.clear();
  buffer_.swap(pending);
}

AtomicFile::AtomicFile(const std::string& path, const std::string& option) : path_(path), target_(path) {
  namespace fs = std::filesystem;
  if (path.empty()) throw Error(fmt::format("{} needs a file name", option), option);
  std::error_code ignored;
  // "/dev/stdout > file" names that file, which must not be renamed over.
  struct stat named {
  }, standard{};
  const bool is_stdout = ::stat(path.c_str(), &named) == 0 && ::fstat(STDOUT_FILENO, &standard) == 0 &&
                         named.st_dev == standard.st_dev && named.st_ino == standard.st_ino &&
                         !S_ISCHR(named.st_mode);
  if (path == "-" || path == "/dev/stdout" || is_stdout) {
    descriptor_ = STDOUT_FILENO;
    writer_ = std::make_unique<Writer>(descriptor_, "standard output");
    return;
  }
  if (fs::is_directory(path, ignored))
    throw Error(fmt::format("cannot write '{}': it is a folder; give a file name", path), option);
  if (path.back() == '/') throw Error(fmt::format("cannot write '{}': that is the name of a folder", path), option);
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) {
    descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) throw Error(fmt::format("cannot write '{}': {}", path, std::strerror(errno)), option);
    owns_descriptor_ = true;
    writer_ = std::make_unique<Writer>(descriptor_, "'" + path + "'");
    return;
  }
  // Through a symbolic link, the file it points to is replaced, not the link.
  if (fs::is_symlink(path, ignored))
    if (const fs::path real = fs::weakly_canonical(path, ignored); !ignored) target_ = real.string();
  const fs::path folder = fs::path(target_).has_parent_path() ? fs::path(target_).parent_path() : fs::path(".");
  if (!fs::exists(folder, ignored))
    throw Error(
        fmt::format("cannot write '{}': the folder '{}' does not exist; create it first", path, folder.string()),
        option);
  std::string pattern = (folder / ("." + fs::path(target_).filename().string() + ".XXXXXX")).string();
  descriptor_ = ::mkostemp(pattern.data(), O_CLOEXEC);
  if (descriptor_ < 0) throw Error(fmt::format("cannot write '{}': {}", path, std::strerror(errno)), option);
  temporary_ = pattern, owns_descriptor_ = true;
  struct stat old {};
  const mode_t mask = ::umask(0);
  ::umask(mask);
  const mode_t mode = ::stat(target_.c_str(), &old) == 0 ? (old.st_mode & 07777) : (0666 & ~mask);
  [[maybe_unused]] const int changed = ::fchmod(descriptor_, mode);
  writer_ = std::make_unique<Writer>(descriptor_, "'" + path + "'");
}

AtomicFile::~AtomicFile() {
  if (owns_descriptor_) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::rewrite_start(std::string_view bytes) {
  flush();
  if (::lseek(descriptor_, 0, SEEK_SET) != 0)
    throw Error(fmt::format("cannot go back to the start of '{}': {}", path_, std::strerror(errno)), path_);
  write(bytes);
  flush();
  ::lseek(descriptor_, 0, SEEK_END);
}

void AtomicFile::commit() {
  flush();
  if (temporary_.empty()) return;
  // Some file systems report a full disk only when the file is closed.
  owns_descriptor_ = false;
  if (::close(descriptor_) != 0 || ::rename(temporary_.c_str(), target_.c_str()) != 0)
    throw Error(fmt::format("cannot write '{}': {}", path_, std::strerror(errno)), path_);
  temporary_.clear();
}

void AtomicFile::sync() {
  flush();
  if (::fsync(descriptor_) != 0 && errno != EINVAL)  // a pipe has no disk
    throw Error(fmt::format("cannot write '{}': {}", path_, std::strerror(errno)), path_);
}

void write_file(const std::string& path, const std::string& option, std::string_view bytes, bool durable) {
  AtomicFile file(path, option);
  file.write(bytes);
  if (durable) file.sync();
  file.commit();
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code failed;
  const bool same = std::filesystem::equivalent(a, b, failed);
  return !failed && same;
}

}  // namespace ttr::cli
