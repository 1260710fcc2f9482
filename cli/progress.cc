#include "progress.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "standard_files.h"

namespace ttr::cli {
namespace {

std::atomic<int> g_signal{0};  // lock-free, so a handler may touch it
static_assert(std::atomic<int>::is_always_lock_free);
int g_pipe[2] = {-1, -1};

std::atomic<std::int64_t> g_when{0};  // milliseconds
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

// `timeout` and a terminal with a script send a signal twice, within microseconds: that is one.
extern "C" void on_signal(int signal) {
  constexpr std::int64_t one = 200;
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const std::int64_t now = std::int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1'000'000;
  if (g_signal != 0) {
    if (now - g_when > one) _exit(128 + signal);
    return;
  }
  g_when = now, g_signal = signal;
  const char byte = 1;
  [[maybe_unused]] const ssize_t n = write(g_pipe[1], &byte, 1);
}

}  // namespace

int terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

InterruptGuard::InterruptGuard() {
  g_signal = 0;
  if (pipe2(g_pipe, O_CLOEXEC | O_NONBLOCK) != 0) g_pipe[0] = g_pipe[1] = -1;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &old_pipe_);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  sigaction(SIGPIPE, &old_pipe_, nullptr);
  for (int& end : g_pipe) {
    if (end >= 0) close(end);
    end = -1;
  }
}

int interrupted() noexcept { return g_signal; }
int interrupt_descriptor() noexcept { return g_pipe[0]; }
std::string_view signal_name(int signal) noexcept { return signal == SIGINT ? "Ctrl-C" : "SIGTERM"; }

std::string progress_line(std::string_view what, double done, double total, double seconds, std::string_view note,
                          int width) {
  if (!(total > 0)) return fmt::format("{}  {}", what, note).substr(0, width);
  const double share = std::clamp(done / total, 0.0, 1.0);
  std::string tail = fmt::format(" {:3.0f} %", std::floor(100 * share));
  if (share > 0.01 && seconds > 1) {
    const auto left = static_cast<long>(std::ceil(seconds * (1 - share) / share));
    tail += left >= 3600 ? fmt::format("  {}:{:02}:{:02} left", left / 3600, left / 60 % 60, left % 60)
                         : fmt::format("  {}:{:02} left", left / 60, left % 60);
  }
  if (!note.empty()) tail += fmt::format("  {}", note);
  const int room = std::min(40, width - static_cast<int>(what.size() + tail.size()) - 4);
  std::string bar;
  if (room >= 8) {
    const int full = static_cast<int>(share * room);
    bar = "  [" + std::string(full, '#') + std::string(room - full, '.') + "]";
  }
  return fmt::format("{}{}{}", what, bar, tail).substr(0, width);
}

Progress::Progress(std::string what, bool wanted)
    : what_(std::move(what)), active_(wanted && isatty(STDERR_FILENO) == 1), start_(Clock::now()), last_(start_) {}

Progress::~Progress() { finish(); }

void Progress::update(double done, double total, std::string_view note) {
  if (!active_) return;
  const auto now = Clock::now();
  if (now - start_ < std::chrono::seconds(1) || (drawn_ && now - last_ < std::chrono::milliseconds(200))) return;
  last_ = now, drawn_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  tell("\r\x1b[K{}", progress_line(what_, done, total, seconds, note, terminal_width() - 1));
}

void Progress::wipe() {
  if (drawn_) {
    tell("\r\x1b[K");
  }
  drawn_ = false;
}

void Progress::finish() {
  wipe();
  active_ = false;
}

}  // namespace ttr::cli
