// What happens around a long run: Ctrl-C, closed pipes and a progress bar.
//
// InterruptGuard turns SIGINT and SIGTERM into a flag (and a readable descriptor, so that a blocked wait for input
// ends too) and ignores SIGPIPE, so that a closed pipe is an error code of write(2) and not a silent death. The
// first signal asks the run to finish what is complete; one that follows 0.2 s later or more ends the process at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include <signal.h>

namespace ttr::cli {

class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction old_int_ {
  }, old_term_{}, old_pipe_{};
};

/// 0, or the number of the signal that asked the run to end.
int interrupted() noexcept;
/// Readable once interrupted; -1 without a guard.
int interrupt_descriptor() noexcept;
/// The name a person knows: "Ctrl-C" or "SIGTERM".
std::string_view signal_name(int signal) noexcept;

/// A bar on standard error, drawn only if that is a terminal and the work has lasted longer than a second.
class Progress {
 public:
  /// `wanted` = false keeps it silent. A total of 0 is unknown: counts are shown instead of a bar.
  Progress(std::string what, bool wanted);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Cheap enough to call often: looks at the clock, draws at most five times a second.
  void update(double done, double total, std::string_view note = {});
  /// Wipes the line, so that something else can be printed; the next update draws it again.
  void wipe();
  /// Wipes it for good.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  bool active_ = false, drawn_ = false;
  Clock::time_point start_, last_;
};

/// Columns of the terminal on standard error; 80 if that is none.
int terminal_width();

/// The text of the bar, without control characters; `width` columns at most.
std::string progress_line(std::string_view what, double done, double total, double seconds, std::string_view note,
                          int width);

}  // namespace ttr::cli
