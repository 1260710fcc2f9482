// Who works on the parts of one kernel call: a family numbers parts that do not wait for each other (segments of a
// scan, blocks of time of a solve) and a team does them. A family never learns how many threads there are beyond the
// scratch it has to keep for each, and it cuts by shapes alone; parts write to memory of their own, so the bits are
// those of one worker.
//
//   team.each(count, [&](std::ptrdiff_t i, int worker) { .. });       returns when all are done: a phase
//
// A family whose kernel divides time says in which forms (Traits::team) and how much scratch a team takes
// (KernelCalls::team_workspace). The run room gives it a team where sequences, heads and columns do not keep the threads
// of the plan busy (run/partition.h), else a team of one. Parts must not call each() themselves.
//
// Parts are begun in their order, and who has begun one ends it before the next. So a part may wait for what parts with
// smaller numbers have done so far (Progress): sums that several parts add to keep the order of one worker, and a pass over
// time can be followed by parts that need what it has left behind it already.
#pragma once

#include <atomic>
#include <cstddef>
#include <thread>
#include <type_traits>

#include "families/common/scratch.h"

namespace ttr::families {

class Team {
 public:
  using Task = void (*)(void* context, int i, int worker);
  using Run = void (*)(const void* owner, int tasks, Task, void* context) noexcept;

  constexpr Team() = default;  // one worker, the caller
  constexpr Team(int workers, Run run, const void* owner = nullptr) : workers_(workers), run_(run), owner_(owner) {}
  int workers() const { return workers_; }
  /// The same parts by the caller alone.
  static constexpr Team alone() { return {}; }

  /// body(i, worker) for i = 0 .. parts-1, in any order. No two parts that run at the same time have the same worker.
  template <class Body>
  void each(std::ptrdiff_t parts, Body&& body) const noexcept {
    if (workers_ == 1 || parts < 2) {
      for (std::ptrdiff_t i = 0; i < parts; ++i) body(i, 0);
      return;
    }
    using Plain = std::remove_reference_t<Body>;
    run_(
        owner_, static_cast<int>(parts),
        [](void* context, int i, int worker) { (*static_cast<Plain*>(context))(std::ptrdiff_t{i}, worker); },
        const_cast<std::remove_const_t<Plain>*>(&body));
  }

 private:
  int workers_ = 1;
  Run run_ = nullptr;
  const void* owner_ = nullptr;
};

/// How far a part has come, for parts behind it in the order of a team.
class Progress {
 public:
  void reset() { steps_.store(0, std::memory_order_relaxed); }
  void reach(std::ptrdiff_t steps) { steps_.store(steps, std::memory_order_release); }
  void wait(std::ptrdiff_t steps) const {
    constexpr int looks = 2000;  // before the core is given away: what is waited for takes microseconds
    for (int i = 0; steps_.load(std::memory_order_acquire) < steps; ++i)
      if (i > looks) std::this_thread::yield();
  }

 private:
  std::atomic<std::ptrdiff_t> steps_{0};
};

/// Scratch of `bytes` bytes (Arena::bytes) for every worker.
class Rooms {
 public:
  Rooms(int workers, std::size_t bytes, Arena& arena)
      : one_((bytes + 63) / 64 * 64), base_(arena.take<std::byte>(static_cast<std::ptrdiff_t>(one_) * workers)) {}
  Arena of(int worker) const {
    return base_ ? Arena(Workspace{base_ + one_ * static_cast<std::size_t>(worker), one_}) : Arena();
  }

 private:
  std::size_t one_;
  std::byte* base_;
};

}  // namespace ttr::families
