// How much memory there is to take, asked before it is taken: Linux grants more than it has, and ends the program
// when the memory is used.
//
//   ttr::require_memory(1e9 * slots, "a cache for 4 sequences of 100000 tokens", "take fewer", "--slots");
//
// throws an Error: "a cache for 4 sequences of 100000 tokens needs 4 GB of memory, and 2.1 GB are free (limit of the
// control group); take fewer".
#pragma once

#include <string>
#include <string_view>

#include "ttr/export.h"
#include "ttr/status.h"

namespace ttr {

struct FreeMemory {
  double bytes = 0;        // infinite where nothing says
  std::string_view limit;  // what sets it, such as "ulimit -v"; empty: what the machine has available
};

/// The least of what the machine has available (/proc/meminfo), of what is left to the control groups of the process
/// (versions 1 and 2) and of RLIMIT_AS and RLIMIT_DATA. Allocates nothing.
TTR_API FreeMemory free_memory() noexcept;

/// "512 bytes", "240 KB", "7.2 GB": powers of 1000.
TTR_API std::string bytes_in_words(double bytes);

/// "2.1 GB are free", with the limit in brackets if there is one.
TTR_API std::string free_in_words(const FreeMemory&);

/// What require_memory throws.
class TTR_API NotEnoughMemory : public Error {
  using Error::Error;
};

/// Throws NotEnoughMemory if `bytes` are more than there are: `what` needs them. Little is not asked for: the
/// question costs 50 us.
TTR_API void require_memory(double bytes, std::string_view what, std::string_view remedy = {},
                            const std::string& where = {});

}  // namespace ttr
