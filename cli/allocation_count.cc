// glibc lets a program define malloc and its like, and keeps its own under other names.
#include "allocation_count.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include "sanitized.h"

#if defined(__GLIBC__) && !defined(TTR_SANITIZED)
#define TTR_COUNTS_ALLOCATIONS 1
#endif

namespace ttr::cli {
namespace {
std::atomic<bool> counting{false};
std::atomic<long> counted{0};
}  // namespace

bool counts_allocations() noexcept {
#ifdef TTR_COUNTS_ALLOCATIONS
  return true;
#else
  return false;
#endif
}
long allocations() noexcept { return counted.load(std::memory_order_relaxed); }
void count_allocations(bool on) noexcept { counting.store(on, std::memory_order_relaxed); }

[[maybe_unused]] static void note() noexcept {
  if (counting.load(std::memory_order_relaxed)) counted.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace ttr::cli

#ifdef TTR_COUNTS_ALLOCATIONS
extern "C" {
void* __libc_malloc(std::size_t);                 // NOLINT
void* __libc_calloc(std::size_t, std::size_t);    // NOLINT
void* __libc_realloc(void*, std::size_t);         // NOLINT
void* __libc_memalign(std::size_t, std::size_t);  // NOLINT

void* malloc(std::size_t bytes) {
  ttr::cli::note();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  ttr::cli::note();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  ttr::cli::note();
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  ttr::cli::note();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  void* const got = memalign(alignment, bytes);
  if (!got) return ENOMEM;
  *memory = got;
  return 0;
}
}
#endif
