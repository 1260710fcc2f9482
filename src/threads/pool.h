// A pool of worker threads for one process: a caller submits numbered tasks and works on them itself until all are
// done. Which worker takes which task is not fixed; tasks write to separate memory, so results do not depend on it.
// Several callers may submit tasks at once, and a task must not submit tasks itself.
//
// Idle workers look for new tasks for some microseconds, so that the steps of one call follow each other quickly, and
// then sleep. A caller never waits for a worker that has not begun: if no worker is free it does all tasks alone. The
// child of a fork has no workers until it makes a plan of its own.
//
// A caller with threads of its own gives an executor instead, which runs a job per thread; jobs then share the tasks.
#pragma once

#include <type_traits>

namespace ttr::threads {

inline constexpr int most = 256;

/// Threads that can run at once on this machine.
int available() noexcept;

/// Starts workers until a caller and they are `threads` in all. Throws std::system_error if the system refuses.
void prepare(int threads);

/// Who runs tasks: up to `threads` threads of the pool, the caller among them, or those of an executor (Executor in
/// ttr/plan.h).
struct Crew {
  using RunJobs = void (*)(void* self, int jobs, void (*job)(void* data, int i), void* data);
  constexpr Crew(int count, RunJobs run = nullptr, void* whose = nullptr)
      : threads(count), run_jobs(run), self(whose) {}
  int threads;
  RunJobs run_jobs;
  void* self;
};

/// Runs task(context, i, worker) for i = 0 .. tasks-1. `worker` is below crew.threads, and no two tasks that run at the
/// same time have the same.
void run(const Crew& crew, int tasks, void (*task)(void* context, int i, int worker), void* context) noexcept;

template <class Body>
void for_each(const Crew& crew, int tasks, Body&& body) noexcept {
  using Plain = std::remove_reference_t<Body>;
  run(
      crew, tasks, [](void* context, int i, int worker) { (*static_cast<Plain*>(context))(i, worker); }, &body);
}

}  // namespace ttr::threads
