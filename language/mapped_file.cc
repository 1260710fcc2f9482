#include "language/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "ttr/status.h"

namespace ttr::model {

MappedFile::MappedFile(const std::string& path) {
  const auto refuse = [&](const char* what) {
    return Error("'" + path + "' " + what + ": " + std::strerror(errno), path);
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw refuse("cannot be opened");
  struct stat about {};
  const int known = ::fstat(file, &about);
  if (known == 0 && S_ISREG(about.st_mode) && about.st_size > 0) {
    size_ = static_cast<std::size_t>(about.st_size);
    void* const place = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    const int error = errno;
    ::close(file);
    errno = error;
    if (place == MAP_FAILED) throw refuse("cannot be mapped into memory");
    data_ = static_cast<const std::byte*>(place);
    return;
  }
  ::close(file);
  if (known != 0) throw refuse("has no known size");
  if (!S_ISREG(about.st_mode)) throw Error("'" + path + "' is not a regular file", path);
  throw Error("'" + path + "' is empty", path);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}
MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

}  // namespace ttr::model
