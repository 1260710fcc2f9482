// How many system calls a piece of work makes: a child process does it behind a filter that lets none through and counts
// them (seccomp, Linux).
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ttr::cli {

struct SystemCalls {
  long count = 0;
  int last = -1;  // the number of the last one
};

/// `work` runs in a child process, whose memory is a copy: it changes nothing here. Nothing where the system has no such
/// filter; `why` then says so.
std::optional<SystemCalls> count_system_calls(const std::function<void()>& work, std::string& why);

}  // namespace ttr::cli
