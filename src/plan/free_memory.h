// free_memory() of a tree of files and of limits that a test makes up (ttr/memory.h).
#pragma once

#include "ttr/memory.h"

namespace ttr {

/// `root` stands before /proc and /sys. Allocates nothing.
FreeMemory free_memory_of_files(const char* root) noexcept;

/// What is left of a limit in bytes of which `used` are taken; `limit` as getrlimit has it.
double left_of_limit(unsigned long long limit, double used) noexcept;

}  // namespace ttr
