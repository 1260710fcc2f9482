// glibc lets a program define malloc and its like, and keeps its own under other names.
//
// A large block is granted only if there is memory for it (ttr/memory.h): the kernel would grant it, and end the
// program, or another one, when it is used. What asks for much says so before, in words of its own; this is for what
// nobody foresaw.
#include "allocation_count.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include <malloc.h>

#include "sanitized.h"
#include "ttr/memory.h"

#if defined(__GLIBC__) && !defined(TTR_SANITIZED)
#define TTR_COUNTS_ALLOCATIONS 1
#endif

namespace ttr::cli {
namespace {
std::atomic<bool> counting{false};
std::atomic<long> counted{0};
std::atomic<std::size_t> refused{0};
constexpr std::size_t large = 64 << 20;
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

std::string no_memory_in_words() {
  const std::string free = free_in_words(free_memory());
  if (refused == 0) return "there is not enough memory for this: " + free;
  return "this needs " + bytes_in_words(static_cast<double>(refused)) + " of memory in one piece, and " + free;
}

[[maybe_unused]] static bool refuses(std::size_t bytes, void* old = nullptr) noexcept {
  if (bytes < large) return false;
  const std::size_t had = old ? ::malloc_usable_size(old) : 0;
  if (bytes <= had || static_cast<double>(bytes - had) <= free_memory().bytes) return false;
  refused = bytes, errno = ENOMEM;
  return true;
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
  return ttr::cli::refuses(bytes) ? nullptr : __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  ttr::cli::note();
  std::size_t all = 0;
  if (!__builtin_mul_overflow(count, bytes, &all) && ttr::cli::refuses(all)) return nullptr;
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  ttr::cli::note();
  return ttr::cli::refuses(bytes, memory) ? nullptr : __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  ttr::cli::note();
  return ttr::cli::refuses(bytes) ? nullptr : __libc_memalign(alignment, bytes);
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
