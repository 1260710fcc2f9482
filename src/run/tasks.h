// What the tasks of one step share: a status, and the scratch memory.
#pragma once

#include <atomic>
#include <cstddef>

#include "ttr/plan.h"
#include "ttr/status.h"

namespace ttr {

// The status of all tasks of a step together: an input outside the domain affects its own sequence only.
class Answers {
 public:
  void add(Status s) noexcept { seen_.fetch_or(1u << static_cast<unsigned>(s), std::memory_order_relaxed); }
  Status worst() const noexcept {
    const unsigned seen = seen_.load(std::memory_order_relaxed);
    for (unsigned s = 0; s < 32; ++s)
      if (seen >> s & 1u && static_cast<Status>(s) != Status::ok && static_cast<Status>(s) != Status::out_of_domain)
        return static_cast<Status>(s);
    return seen >> static_cast<unsigned>(Status::out_of_domain) & 1u ? Status::out_of_domain : Status::ok;
  }

 private:
  std::atomic<unsigned> seen_{0};
};

// Every worker has the same share of the scratch.
inline Workspace scratch_of(Workspace all, int worker, int workers) {
  const std::size_t one = all.bytes / static_cast<std::size_t>(workers) / 64 * 64;
  return {static_cast<std::byte*>(all.data) + static_cast<std::size_t>(worker) * one, one};
}

}  // namespace ttr
