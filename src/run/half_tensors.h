// Calls with tensors of a half type (bf16, f16) on a float plan: the state and all arithmetic are float. A call works
// on float copies of its tensors: forwards block by block (time_blocks.h), so that the copies stay in cache and
// memory traffic is halved; backwards of the whole call.
#pragma once

#include "plan/pipeline.h"
#include "run/bind.h"

namespace ttr {

bool has_half_tensors(const Call&) noexcept;

/// Scratch for the copies of up to `length` tokens, if the plan takes half types.
std::size_t half_tensor_bytes(const Plan::Body&, std::int64_t length, std::int64_t pairs, bool backward);

/// The float copies of a forward call, for blocks of up to `length` tokens.
struct HalfTensor;
class HalfCopies {
 public:
  /// Parameters, which have no time, are copied at once. No room in the arena: ok() is false.
  HalfCopies(const Plan::Body&, const Call&, std::ptrdiff_t length, Arena&) noexcept;
  bool ok() const { return ok_; }
  /// Tokens begin .. end-1 of the inputs, and the copies in place of the caller's tensors in what is bound for them.
  void open(Binding<float>&, std::ptrdiff_t begin, std::ptrdiff_t end) const noexcept;
  /// The same tokens of the outputs, to the caller.
  void close(std::ptrdiff_t begin, std::ptrdiff_t end) const noexcept;

 private:
  const Simd<float>& simd_;
  HalfTensor* list_ = nullptr;
  std::size_t count_ = 0;
  bool ok_ = true;
};

Status backward_half_tensors(const Plan::Body&, const Call&) noexcept;

}  // namespace ttr
