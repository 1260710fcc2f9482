#include "language/team.h"

#include <unistd.h>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace ttr::model {
namespace {

void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr int looks = 2000;       // before a helper sleeps: some ten microseconds
constexpr int patience = 50'000;  // before one who is kept awake, or waits for the last task, gives his core away

constexpr std::uint64_t next_of(std::uint64_t work) { return work & 0xffff; }
constexpr std::uint64_t tasks_of(std::uint64_t work) { return work >> 16 & 0xffff; }

}  // namespace

Team::Team(int threads) : threads_(threads), process_(::getpid()) {
  for (int worker = 1; worker < threads; ++worker) helpers_.emplace_back([this, worker] { help(worker); });
}

Team::~Team() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    work_.fetch_add(std::uint64_t{1} << 32);  // a step without tasks: those who look see that something is new
  }
  news_.notify_all();
  for (std::thread& helper : helpers_)
    if (process_ == ::getpid()) helper.join();
    else helper.detach();  // it was the parent's
}

bool Team::wake() noexcept {
  if (awake_.load(std::memory_order_relaxed)) return false;
  if (helpers_.empty()) return true;
  std::fegetenv(&rounding_);  // read by those who have a task, and there is none
  ++session_;
  awake_.store(true);
  if (sleepers_.load() > 0) {
    const std::lock_guard lock(mutex_);
    news_.notify_all();
  }
  return true;
}
void Team::rest() noexcept { awake_.store(false); }

void Team::share(int tasks, Task task, void* context) noexcept {
  if (tasks < 1) return;
  if (helpers_.empty() || tasks == 1) {
    for (int i = 0; i < tasks; ++i) task(context, i, 0);
    return;
  }
  const Awake awake(*this);
  task_ = task, context_ = context;
  done_.store(0, std::memory_order_relaxed);
  const std::uint64_t step = (work_.load(std::memory_order_relaxed) >> 32) + 1;
  std::uint64_t work = step << 32 | static_cast<std::uint64_t>(tasks) << 16;
  work_.store(work, std::memory_order_release);
  int mine = 0;
  while (next_of(work) < tasks_of(work)) {
    if (!work_.compare_exchange_weak(work, work + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    task(context, static_cast<int>(next_of(work)), 0);
    ++mine;
    work = work_.load(std::memory_order_acquire);
  }
  for (int i = 0; done_.load(std::memory_order_acquire) + mine < tasks; ++i)
    if (i < patience) pause();
    else std::this_thread::yield();
}

void Team::help(int worker) noexcept {
  std::uint64_t session = 0;
  int idle = 0;
  for (;;) {
    std::uint64_t work = work_.load(std::memory_order_acquire);
    if (next_of(work) < tasks_of(work)) {
      idle = 0;
      if (!work_.compare_exchange_weak(work, work + 1, std::memory_order_acq_rel, std::memory_order_acquire))
        continue;
      if (session != session_) std::fesetenv(&rounding_), session = session_;
      task_(context_, static_cast<int>(next_of(work)), worker);
      done_.fetch_add(1, std::memory_order_release);
      continue;
    }
    const bool awake = awake_.load(std::memory_order_relaxed);
    if (++idle < (awake ? patience : looks)) {
      pause();
      continue;
    }
    if (awake) {
      std::this_thread::yield();
      continue;
    }
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    news_.wait(lock, [&] { return ending_ || awake_.load() || work_.load() != work; });
    sleepers_.fetch_sub(1);
    if (ending_) return;
    idle = 0;
  }
}

}  // namespace ttr::model
