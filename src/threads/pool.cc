#include "threads/pool.h"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace ttr::threads {
namespace {

void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr int looks = 2000;  // before a worker sleeps, or a caller gives its core away: about ten microseconds

struct Job {
  void (*task)(void*, int, int);
  void* context;
  int tasks, helpers;      // helpers: how many workers may join
  int joined = 0;          // by the pool's mutex
  std::fenv_t rounding{};  // of the caller: workers round, and treat denormals, as it does
  std::atomic<int> next{0}, inside{0};
  Job* after = nullptr;

  void work(int worker) noexcept {
    for (int i; (i = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) task(context, i, worker);
  }
};

class Pool {
 public:
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      news_.fetch_add(1);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  void prepare(int threads) {
    const std::lock_guard lock(mutex_);
    while (static_cast<int>(workers_.size()) + 1 < std::min(threads, most))
      workers_.emplace_back([this] { serve(); });
  }

  void run(Job& job) noexcept {
    {
      const std::lock_guard lock(mutex_);
      job.after = jobs_, jobs_ = &job;
      news_.fetch_add(1, std::memory_order_release);
    }
    if (sleepers_.load() > 0) wake_.notify_all();
    job.work(0);
    {
      const std::lock_guard lock(mutex_);  // nobody joins from here on
      Job** at = &jobs_;
      while (*at != &job) at = &(*at)->after;
      *at = job.after;
    }
    for (int i = 0; job.inside.load(std::memory_order_acquire) > 0; ++i)
      if (i < looks) pause();
      else std::this_thread::yield();
  }

 private:
  void serve() noexcept {
    int seen = -1;
    for (;;) {
      for (int i = 0; i < looks && news_.load(std::memory_order_acquire) == seen; ++i) pause();
      Job* job = nullptr;
      int worker = 0;
      {
        std::unique_lock lock(mutex_);
        sleepers_.fetch_add(1);
        wake_.wait(lock, [&] { return ending_ || news_.load() != seen; });
        sleepers_.fetch_sub(1);
        if (ending_) return;
        for (job = jobs_; job && job->joined >= job->helpers; job = job->after) {
        }
        if (!job) {
          seen = news_.load();
          continue;
        }
        worker = ++job->joined;
        job->inside.fetch_add(1, std::memory_order_relaxed);
      }
      std::fesetenv(&job->rounding);
      job->work(worker);
      job->inside.fetch_sub(1, std::memory_order_release);  // the job may be gone after this
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
  Job* jobs_ = nullptr;
  std::atomic<int> news_{0}, sleepers_{0};
  bool ending_ = false;
};

// The pool is made when it is first needed. The child of a fork has none of its workers: it leaves the pool where it is,
// because there is nobody to join, and makes one of its own with its first plan.
struct Holder {
  std::atomic<Pool*> pool{nullptr};
  Pool* of_parent = nullptr;  // in a child; a checker of leaks finds it here
  std::mutex making;

  Holder() noexcept;
  ~Holder() { delete pool.load(); }
};

Holder& holder() {
  static Holder one;
  return one;
}

Holder::Holder() noexcept {
#if defined(__unix__) || defined(__APPLE__)
  pthread_atfork([] { holder().making.lock(); }, [] { holder().making.unlock(); },
                 [] {
                   holder().of_parent = holder().pool.exchange(nullptr);
                   holder().making.unlock();
                 });
#endif
}

}  // namespace

int available() noexcept { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

void prepare(int threads) {
  if (threads < 2) return;
  Holder& h = holder();
  const std::lock_guard lock(h.making);
  Pool* pool = h.pool.load();
  if (!pool) h.pool.store(pool = new Pool);
  pool->prepare(threads);
}

void run(const Crew& crew, int tasks, void (*task)(void*, int, int), void* context) noexcept {
  if (tasks < 1) return;
  Job job{task, context, tasks, std::min(crew.threads, tasks) - 1};
  if (crew.run_jobs && job.helpers > 0) {
    std::fegetenv(&job.rounding);
    return crew.run_jobs(
        crew.self, job.helpers + 1,
        [](void* data, int worker) {
          Job& shared = *static_cast<Job*>(data);
          std::fenv_t own;
          std::fegetenv(&own);
          std::fesetenv(&shared.rounding);
          shared.work(worker);
          std::fesetenv(&own);
        },
        &job);
  }
  Pool* const pool = job.helpers < 1 ? nullptr : holder().pool.load(std::memory_order_acquire);
  if (!pool) return job.work(0);
  std::fegetenv(&job.rounding);
  pool->run(job);
}

}  // namespace ttr::threads
