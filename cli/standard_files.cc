#include "standard_files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace ttr::cli {

void hold_standard_files() noexcept {
  // In this order: open() takes the lowest number that is free. What is open the wrong way fails as a closed one does.
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(standard, F_GETFD) < 0 && errno == EBADF) {
      [[maybe_unused]] const int same = ::open("/dev/null", standard == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
}

std::string why_failed(int error) { return error == EBADF ? "it is closed" : std::strerror(error); }

void tell_text(const std::string& text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace ttr::cli
