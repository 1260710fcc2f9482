// The sentence of the Error that a call throws, or nothing.
#pragma once

#include <functional>
#include <string>

#include "ttr/status.h"

inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ttr::Error& error) {
    return error.what();
  }
  return "";
}
