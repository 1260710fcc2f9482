// What the functions of ttr/c.h have in common: the handles, and exceptions as a status with a sentence.
#pragma once

#include <new>
#include <string>

#include "ttr/c.h"
#include "ttr/plan.h"
#include "ttr/prepared.h"
#include "ttr/stream.h"

struct ttr_plan {
  ttr::Plan plan;
  std::string kernel;
};
struct ttr_call {
  ttr::Prepared call;
};
struct ttr_backward_call {
  ttr::PreparedBackward call;
};
struct ttr_stream {
  ttr::Stream stream;
};

namespace ttr::c_abi {

// The last failure in this thread.
struct LastError {
  std::string sentence, where;
};
inline LastError& last_error() {
  thread_local LastError error;
  return error;
}

inline ttr_status fail(ttr_status status, const char* why, const char* where = "") noexcept {
  try {
    last_error().sentence = why, last_error().where = where;
  } catch (...) {
    last_error().sentence.clear(), last_error().where.clear();
  }
  return status;
}
inline ttr_status bad(const char* why) noexcept { return fail(TTR_BAD_ARGUMENT, why); }
inline constexpr const char* no_plan = "the plan is NULL";

template <class Body>
ttr_status guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(TTR_OUT_OF_MEMORY, "no memory left");
  } catch (const ttr::Error& error) {
    return fail(TTR_ERROR, error.what(), error.where().c_str());
  } catch (const std::exception& error) {
    return fail(TTR_ERROR, error.what());
  } catch (...) {
    return fail(TTR_ERROR, "an unknown failure");
  }
}

}  // namespace ttr::c_abi
