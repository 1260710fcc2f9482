// How often the program asks for memory: the functions of the C library, counted. `ttr bench latency` shows with it that a
// step asks for none.
// And whether it gets it: a block that does not fit into the memory that is free is refused, and operator new throws.
#pragma once

#include <string>

namespace ttr::cli {

/// Whether this build can count: glibc, and no sanitizer, which replaces the same functions.
bool counts_allocations() noexcept;

/// Calls of malloc, calloc, realloc, aligned_alloc and their like, and so of operator new, since the program began to count.
long allocations() noexcept;

/// The sentence for std::bad_alloc: what was refused last, if a block was, and what is free.
std::string no_memory_in_words();

/// From now on they are counted (or no longer).
void count_allocations(bool) noexcept;

}  // namespace ttr::cli
