// States of a plan as memory: fresh ones, larger ones, and single sequences of them (slots).
//
// A buffer holds, if the plan counts tokens or keeps pairs, one 64-bit count per sequence; then the parts of fixed size,
// [B, extent...] each; then the lists of pairs, [B, capacity, extent...] each (StatePart in plan/pipeline.h). So a slot is
// a count and one piece of memory per part.
#include <algorithm>
#include <cstring>
#include <new>

#include "plan/pipeline.h"

namespace ttr {
namespace {

bool has_counts(const Plan::Body& body) { return body.pipeline.counted || body.pipeline.history; }

// One part of one sequence.
struct PartOfSlot {
  std::byte* data;
  std::size_t bytes;  // of a list: all that there is room for
};

PartOfSlot part_of(const Plan::Body& body, State state, std::size_t part, int sequence) {
  const StatePart& p = body.pipeline.states[part];
  const StatePlace place = body.state_place(state.bytes, static_cast<int>(part));
  const std::size_t one = numbers(p) * size_of(p.type) * (p.history ? static_cast<std::size_t>(place.capacity) : 1);
  return {static_cast<std::byte*>(state.data) + place.offset + static_cast<std::size_t>(sequence) * one, one};
}
std::int64_t* counts(State state) { return static_cast<std::int64_t*>(state.data); }

Status check(const Plan::Body& body, ConstState state, int sequence) {
  if (!state.data || state.bytes < body.state_bytes(0)) return Status::small_state;
  return sequence < 0 || sequence >= body.shape.batch ? Status::bad_shape : Status::ok;
}

// Lists only, so that the oldest pairs are what there was when they were the newest.
bool can_truncate(const Plan::Body& body) {
  const auto& parts = body.pipeline.states;
  return body.pipeline.history && body.pipeline.design.weights.reach() == 0 &&
         std::all_of(parts.begin(), parts.end(), [](const StatePart& part) { return part.history; });
}

// What reset writes into the fixed part of one sequence; `literal` holds those of the oracle.
void write_fresh(const StatePart& part, const oracle::Arrays& literal, const PartOfSlot& slot) {
  const std::size_t count = numbers(part);
  std::memset(slot.data, 0, slot.bytes);
  const auto write = [&](std::size_t i, double x) {
    if (part.type == Type::f32) reinterpret_cast<float*>(slot.data)[i] = static_cast<float>(x);
    else reinterpret_cast<double*>(slot.data)[i] = x;
  };
  if (part.literal) {
    const std::vector<double>& all = literal.at(part.info.name).data;
    for (std::size_t i = 0; i < count; ++i) write(i, all[i]);
  } else if (!part.fresh_numbers.empty()) {
    for (std::size_t i = 0; i < count; ++i) write(i, part.fresh_numbers[i % part.fresh_numbers.size()]);
  } else if (part.identity) {
    const std::size_t side = static_cast<std::size_t>(part.extent.back());
    for (std::size_t matrix = 0; matrix < count; matrix += side * side)
      for (std::size_t j = 0; j < side; ++j) write(matrix + j * (side + 1), part.fresh);
  } else if (part.fresh != 0) {
    for (std::size_t i = 0; i < count; ++i) write(i, part.fresh);
  }
}

// Whether a slot of one plan is a slot of the other.
bool hold_the_same(const Plan::Body& a, const Plan::Body& b) {
  if (&a == &b) return true;
  const auto same = [](const StatePart& x, const StatePart& y) {
    return x.info.name == y.info.name && x.extent == y.extent && x.type == y.type && x.history == y.history;
  };
  const auto &x = a.pipeline.states, &y = b.pipeline.states;
  return a.recipe == b.recipe && a.name == b.name && a.options.settings == b.options.settings &&
         a.on_oracle() == b.on_oracle() && has_counts(a) == has_counts(b) &&
         std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
}

}  // namespace

Status Plan::reset(State state, int sequence) const noexcept try {
  const Body& body = *body_;
  if (const Status s = check(body, state, sequence); s != Status::ok) return s;
  oracle::Arrays literal;
  if (body.on_oracle()) literal = oracle::fresh_state(body.pipeline.design, body.pipeline.oracle_sizes);
  if (has_counts(body)) counts(state)[sequence] = 0;
  for (std::size_t i = 0; i < body.pipeline.states.size(); ++i) {
    const StatePart& part = body.pipeline.states[i];
    const PartOfSlot slot = part_of(body, state, i, sequence);
    if (part.history) std::memset(slot.data, 0, slot.bytes);
    else write_fresh(part, literal, slot);
  }
  return Status::ok;
} catch (const std::bad_alloc&) {
  return Status::out_of_memory;
}

Status Plan::reset(State state) const noexcept {
  if (!state.data || state.bytes < body_->state_bytes(0)) return Status::small_state;
  std::memset(state.data, 0, state.bytes);
  Status status = Status::ok;
  for (int n = 0; n < body_->shape.batch && status == Status::ok; ++n) status = reset(state, n);
  return status;
}

std::int64_t Plan::tokens_kept(ConstState state, int sequence) const noexcept {
  if (!body_->pipeline.history) return -1;
  if (sequence < 0 || sequence >= body_->shape.batch || !state.data || state.bytes < body_->state_bytes(0)) return 0;
  return static_cast<const std::int64_t*>(state.data)[sequence];
}

Status Plan::truncate(State state, int sequence, std::int64_t tokens) const noexcept {
  if (const Status s = check(*body_, state, sequence); s != Status::ok) return s;
  if (!can_truncate(*body_) || tokens < 0) return Status::not_supported;
  counts(state)[sequence] = std::min(counts(state)[sequence], tokens);
  return Status::ok;
}

Status Plan::truncate(State state, std::int64_t tokens) const noexcept {
  Status status = check(*body_, state, 0);
  for (int n = 0; n < body_->shape.batch && status == Status::ok; ++n) status = truncate(state, n, tokens);
  return status;
}

Status Plan::copy(const Plan& of, ConstState source, int from, State target, int to) const noexcept {
  const Body &a = *of.body_, &b = *body_;
  if (const Status s = check(a, source, from); s != Status::ok) return s;
  if (const Status s = check(b, target, to); s != Status::ok) return s;
  if (!hold_the_same(a, b)) return Status::not_supported;
  const State read{const_cast<void*>(source.data), source.bytes};  // only read
  const std::int64_t count = has_counts(a) ? counts(read)[from] : 0;
  if (count < 0) return Status::bad_state;
  const auto& parts = b.pipeline.states;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].history) continue;
    if (count > a.state_place(source.bytes, static_cast<int>(i)).capacity) return Status::bad_state;
    if (count > b.state_place(target.bytes, static_cast<int>(i)).capacity) return Status::state_full;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const PartOfSlot x = part_of(a, read, i, from), y = part_of(b, target, i, to);
    const std::size_t kept = numbers(parts[i]) * size_of(parts[i].type) * static_cast<std::size_t>(count);
    std::memmove(y.data, x.data, parts[i].history ? kept : y.bytes);
  }
  if (has_counts(b)) counts(target)[to] = count;
  return Status::ok;
}

Status Plan::swap(State state, int one, int other) const noexcept {
  if (const Status s = check(*body_, state, one); s != Status::ok) return s;
  if (const Status s = check(*body_, state, other); s != Status::ok) return s;
  if (one == other) return Status::ok;
  for (std::size_t i = 0; i < body_->pipeline.states.size(); ++i) {
    const PartOfSlot x = part_of(*body_, state, i, one), y = part_of(*body_, state, i, other);
    std::swap_ranges(x.data, x.data + x.bytes, y.data);
  }
  if (has_counts(*body_)) std::swap(counts(state)[one], counts(state)[other]);
  return Status::ok;
}

Status Plan::grow(ConstState from, State to) const noexcept {
  if (!from.data || !to.data || to.bytes < from.bytes) return Status::small_state;
  if (!body_->pipeline.history) {
    std::memcpy(to.data, from.data, from.bytes);
    return Status::ok;
  }
  std::memset(to.data, 0, to.bytes);
  std::memcpy(to.data, from.data, static_cast<std::size_t>(body_->shape.batch) * sizeof(std::int64_t));
  for (std::size_t i = 0; i < body_->pipeline.states.size(); ++i) {
    const StatePart& part = body_->pipeline.states[i];
    const StatePlace old = body_->state_place(from.bytes, static_cast<int>(i));
    const StatePlace now = body_->state_place(to.bytes, static_cast<int>(i));
    const std::size_t one = numbers(part) * size_of(part.type);
    const std::size_t old_size = part.history ? one * static_cast<std::size_t>(old.capacity) : one;
    const std::size_t new_size = part.history ? one * static_cast<std::size_t>(now.capacity) : one;
    for (std::size_t n = 0; n < static_cast<std::size_t>(body_->shape.batch); ++n)
      std::memcpy(static_cast<std::byte*>(to.data) + now.offset + n * new_size,
                  static_cast<const std::byte*>(from.data) + old.offset + n * old_size, old_size);
  }
  return Status::ok;
}

}  // namespace ttr
