// Calls with tensors of a half type (bf16, f16) on a float plan: the state and all arithmetic are float. Forwards, kernels
// that can read rows of halves where they lie, and write them there (KernelCalls::halves): they convert as they pack their
// chunks. Of all other tensors a call has float copies, forwards block by block (time_blocks.h), so that these stay in
// cache and memory traffic is halved; backwards of the whole call.
#pragma once

#include <span>

#include "plan/pipeline.h"
#include "run/bind.h"
#include "run/strided.h"
#include "simd/half_simd.h"

namespace ttr {

bool has_half_tensors(const Call&) noexcept;

/// Scratch for the copies of up to `length` tokens, if the plan takes half types.
std::size_t half_tensor_bytes(const Plan::Body&, std::int64_t length, std::int64_t pairs, bool backward);

/// One tensor of the caller and its float copy.
struct HalfTensor {
  void* data = nullptr;  // the caller's; of an input it is only read
  Type type = Type::bf16;
  PerAxis extent{}, stride{};  // the caller's
  int rank = 0;
  int time_axis = -1;  // -1: a parameter
  int pairs = 1;       // rows of the time axis per token
  float* copy = nullptr;
  PerAxis copy_stride{};
  int value = -1;  // of the pipeline
  bool output = false;
  std::ptrdiff_t flat = 0;  // numbers of a call in one block, where they lie together; 0: they do not
  bool in_place = false;    // a kernel reads or writes it; there is no copy
};

/// The float copies of a forward call, for blocks of up to `length` tokens.
class HalfCopies {
 public:
  /// Nothing is read yet. No room in the arena: ok() is false.
  HalfCopies(const Plan::Body&, const Call&, std::ptrdiff_t length, Arena&) noexcept;
  /// The same copies again, with other addresses.
  HalfCopies(const Plan::Body& body, std::span<HalfTensor> list) noexcept
      : convert_(half_simd(*body.simd_f32)), list_(list.data()), count_(list.size()) {}
  bool ok() const { return ok_; }
  std::span<const HalfTensor> list() const { return {list_, count_}; }
  /// Whether a token has a copy of anything.
  bool any_of_tokens() const noexcept;
  /// The copies in place of the caller's tensors in what is bound for them, and which of these are halves.
  void bind(Binding<float>&) const noexcept;
  /// The last alone: what is bound for them moves by halves.
  void bind_in_place(Binding<float>&) const noexcept;
  /// Parameters, which have no time.
  void open_parameters() const noexcept;
  /// Tokens begin .. end-1 of the inputs.
  void open(std::ptrdiff_t begin, std::ptrdiff_t end) const noexcept;
  /// Both, of a call in one block.
  void open_all(std::ptrdiff_t time) const noexcept;
  /// The same tokens of the outputs, to the caller.
  void close(std::ptrdiff_t begin, std::ptrdiff_t end) const noexcept;

 private:
  const HalfSimd& convert_;
  HalfTensor* list_ = nullptr;
  std::size_t count_ = 0;
  bool ok_ = true;
};

/// Tokens of a forward call that have room in the copies.
std::ptrdiff_t half_length(const Plan::Body&, const Call&) noexcept;

Status backward_half_tensors(const Plan::Body&, const Call&) noexcept;

}  // namespace ttr
