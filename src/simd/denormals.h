// Flush denormal numbers to zero while a kernel runs.
//
// A fading state that is fed nothing (silence) sinks below the smallest normal number and stays there; every
// operation on such numbers then costs a hundred cycles. The caller's mode is restored on return.
#pragma once

#include <cstdint>

#if defined(__SSE2__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace ttr {

class FlushDenormals {
 public:
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

#if defined(__SSE2__) || defined(_M_X64)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }  // results (FTZ) and operands (DAZ)
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#elif defined(__aarch64__)
  FlushDenormals() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(before_));
    __asm__ volatile("msr fpcr, %0" : : "r"(before_ | (std::uint64_t{1} << 24)));
  }
  ~FlushDenormals() { __asm__ volatile("msr fpcr, %0" : : "r"(before_)); }

 private:
  std::uint64_t before_;
#else
  FlushDenormals() {}
  ~FlushDenormals() {}
#endif
};

}  // namespace ttr
