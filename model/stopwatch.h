// Where the time of a session goes (Session::times). The outermost part that has begun counts: a product of the head is
// the head's. One thread, the caller's, looks at the clock; what it does not name is the rest.
#pragma once

#include <chrono>

#include "ttr/model.h"

namespace ttr::model {

class Stopwatch {
 public:
  using Seconds = double Times::*;

  class Part {
   public:
    Part(Stopwatch* watch, Seconds part) : watch_(watch && !watch->busy_ ? watch : nullptr), part_(part) {
      if (watch_) watch_->busy_ = true, begin_ = std::chrono::steady_clock::now();
    }
    ~Part() {
      if (!watch_) return;
      watch_->times.*part_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
      watch_->busy_ = false;
    }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

   private:
    Stopwatch* watch_;
    Seconds part_;
    std::chrono::steady_clock::time_point begin_;
  };

  Times times;

 private:
  bool busy_ = false;
};

}  // namespace ttr::model
