// Work that cannot be asked to stop: a row of a long solve, a step of a large model, a plan.
//
// It is done on a thread of its own, and the caller waits. When the run is interrupted and the work has not ended
// `patience` later, the caller goes on without it: with what was complete before, which the work must not touch. The
// work has no end then but that of the process, so what it touches must not be destroyed, and exit() leaves at once.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace ttr::cli {

constexpr std::chrono::milliseconds usual_patience{300};

/// True: the work has ended (what it threw is thrown again). False: it was left behind.
bool run_aside(std::function<void()> work, std::chrono::milliseconds patience = usual_patience);

/// What such work makes; nothing if it was left behind. The work owns what it touches.
template <class Work>
std::optional<std::invoke_result_t<Work>> made_aside(Work work, std::chrono::milliseconds patience = usual_patience) {
  const auto result = std::make_shared<std::optional<std::invoke_result_t<Work>>>();
  if (!run_aside([result, work = std::move(work)]() mutable { result->emplace(work()); }, patience)) return {};
  return std::move(*result);
}

/// Whether some work was left behind.
bool left_behind() noexcept;

/// Holds what such work touches: not destroyed if some was left behind.
template <class T>
class KeptForAside {
 public:
  template <class... Arguments>
  explicit KeptForAside(Arguments&&... arguments)
      : held_(std::make_unique<T>(std::forward<Arguments>(arguments)...)) {}
  ~KeptForAside() {
    if (left_behind()) static_cast<void>(held_.release());
  }
  KeptForAside(const KeptForAside&) = delete;
  KeptForAside& operator=(const KeptForAside&) = delete;
  T* operator->() const { return held_.get(); }
  T& operator*() const { return *held_; }

 private:
  std::unique_ptr<T> held_;
};

}  // namespace ttr::cli
