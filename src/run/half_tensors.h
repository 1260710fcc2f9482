// Calls with tensors of a half type (bf16, f16) on a float plan: the state and all arithmetic are float. A call works
// on float copies of its tensors: forwards block by block (time_blocks.h), so that the copies stay in cache and
// memory traffic is halved; backwards of the whole call.
#pragma once

#include "plan/pipeline.h"

namespace ttr {

bool has_half_tensors(const Call&) noexcept;

/// Scratch for the copies of up to `length` tokens, if the plan takes half types.
std::size_t half_tensor_bytes(const Plan::Body&, std::int64_t length, std::int64_t pairs, bool backward);

Status forward_half_tensors(const Plan::Body&, const Call&) noexcept;
Status backward_half_tensors(const Plan::Body&, const Call&) noexcept;

}  // namespace ttr
