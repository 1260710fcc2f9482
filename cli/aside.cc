#include "aside.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "progress.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

std::atomic<bool> g_left{false};

// Nothing wakes the caller while the work goes on, which may be a measurement.
// Its end is the closing of a pipe, which cannot fail as a write can.
struct Shared {
  int pipe[2] = {-1, -1};
  std::exception_ptr thrown;
  ~Shared() { ::close(pipe[0]); }
};

// The last that is registered is the first that is called: before anything static is destroyed that the work may use.
void leave(int code, void*) {
  std::fflush(stdout);
  std::fflush(stderr);
  ::_exit(code);
}

}  // namespace

bool left_behind() noexcept { return g_left; }

bool run_aside(std::function<void()> work, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const auto shared = std::make_shared<Shared>();
  if (::pipe2(shared->pipe, O_CLOEXEC) != 0)
    throw Error(fmt::format("the system gives no further file descriptor: {}", std::strerror(errno)));
  std::thread thread([shared, work = std::move(work)] {
    try {
      work();
    } catch (...) {
      shared->thrown = std::current_exception();
    }
    ::close(shared->pipe[1]);
  });
  pollfd waits[2] = {{shared->pipe[0], POLLIN, 0}, {interrupt_descriptor(), POLLIN, 0}};
  Clock::time_point last = Clock::time_point::max();
  while (waits[0].revents == 0) {
    const bool asked = interrupted() != 0;
    if (asked && last == Clock::time_point::max()) last = Clock::now() + patience;
    if (asked && Clock::now() >= last) {
      thread.detach();
      if (!g_left.exchange(true)) ::on_exit(leave, nullptr);
      return false;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(last - Clock::now());
    ::poll(waits, asked || waits[1].fd < 0 ? 1 : 2, asked ? static_cast<int>(left.count()) : -1);
  }
  thread.join();
  if (shared->thrown) std::rethrow_exception(shared->thrown);
  return true;
}

}  // namespace ttr::cli
