// Threads that make the many small steps of one call together: a token of a model is some hundred products, each of some
// microseconds, and nobody may fall asleep between them.
//
//   Team team(2);
//   const Team::Awake awake(team);                     // helpers look for tasks until it ends
//   team.run(tasks, [&](int task, int worker) { .. });
//
// The library's pool (threads/pool.h) sleeps after some microseconds and takes a lock for every step; here a step is one
// exchange of a number. As there, which worker takes which task is not fixed, tasks write to separate memory, and the caller
// never waits for a helper that has not begun. One thread calls at a time; tasks do not call run. The child of a fork has no
// helpers and does everything itself.
#pragma once

#include <atomic>
#include <cfenv>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace ttr::model {

class Team {
 public:
  static constexpr int most_tasks = 65535;
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  int threads() const { return threads_; }

  /// Runs f(task, worker) for task = 0 .. tasks-1, at most most_tasks; `worker` is below threads(), and no two tasks that run
  /// at the same time have the same.
  template <class F>
  void run(int tasks, F&& f) noexcept {
    using Plain = std::remove_reference_t<F>;
    share(
        tasks, [](void* context, int task, int worker) { (*static_cast<Plain*>(context))(task, worker); }, &f);
  }

  class Awake {
   public:
    explicit Awake(Team& team) : team_(team), first_(team.wake()) {}
    ~Awake() {
      if (first_) team_.rest();
    }
    Awake(const Awake&) = delete;
    Awake& operator=(const Awake&) = delete;

   private:
    Team& team_;
    bool first_;
  };

 private:
  using Task = void (*)(void* context, int task, int worker);
  void share(int tasks, Task, void* context) noexcept;
  bool wake() noexcept;
  void rest() noexcept;
  void help(int worker) noexcept;

  // The tasks at hand: a number of the step, how many there are, the next that nobody has. Whoever has exchanged it for one
  // more has that task, and the step cannot end before he is done: until then the fields below stay as they are.
  alignas(64) std::atomic<std::uint64_t> work_{0};
  alignas(64) std::atomic<int> done_{0};
  alignas(64) std::atomic<bool> awake_{false};
  std::atomic<int> sleepers_{0};
  Task task_ = nullptr;
  void* context_ = nullptr;
  std::fenv_t rounding_{};     // of the caller: helpers round, and treat denormals, as it does
  std::uint64_t session_ = 0;  // how often it was set
  bool ending_ = false;        // by the mutex
  int threads_;
  long process_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::vector<std::thread> helpers_;
};

}  // namespace ttr::model
