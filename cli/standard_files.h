// Descriptors 0, 1 and 2, which the program is given: some of them may be closed, and none may be relied on.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

namespace ttr::cli {

/// Puts something into each of them that is closed, so that no file opened later gets its number. Reading or writing it
/// fails with EBADF, as without. First of all in main().
void hold_standard_files() noexcept;

/// The reason of a failed read or write of one of them: "it is closed" for EBADF, otherwise that of the system.
std::string why_failed(int error);

void tell_text(const std::string& text) noexcept;
/// Prints on standard error. If that cannot be written, nobody hears it, and nothing else changes: how a verb ends does
/// not depend on who listens. fmt::print would throw, out of a handler or a destructor too.
template <class... T>
void tell(fmt::format_string<T...> text, T&&... values) {
  tell_text(fmt::format(text, std::forward<T>(values)...));
}

}  // namespace ttr::cli
