// States of a plan as memory: fresh ones, larger ones, earlier ones, and single sequences of them (slots).
//
// A slot is a piece of each array of plan/state_layout.cc: a count, its numbers of every part, its ring, its lists.
#include <algorithm>
#include <cstring>
#include <new>

#include "plan/fresh_state.h"
#include "plan/pipeline.h"
#include "ttr/half.h"

namespace ttr {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

// One part of one sequence.
struct PartOfSlot {
  std::byte* data;
  std::size_t bytes;  // of a list: all that there is room for
};

PartOfSlot part_of(const Plan::Body& body, State state, std::size_t part, int sequence) {
  const StatePart& p = body.pipeline.states[part];
  const StatePlace place = body.state_place(state, static_cast<int>(part));
  const std::size_t one = numbers(p) * size_of(p.type) * (p.history ? static_cast<std::size_t>(place.capacity) : 1);
  return {static_cast<std::byte*>(state.data) + place.offset + index(sequence) * one, one};
}

// visit(of one slot, of the other, bytes) for what slots have besides parts and counts: the ring of earlier states. Both
// plans have it, and of the same length.
template <class Visit>
void each_undo(const Plan::Body& a, const Plan::Body& b, State one, int from, State other, int to, Visit&& visit) {
  if (a.layout.undo == StateLayout::none) return;
  const std::size_t rewind = index(a.options.rewind);
  const auto piece = [&](std::size_t in_a, std::size_t in_b, std::size_t bytes) {
    if (in_a != StateLayout::none)
      visit(static_cast<std::byte*>(one.data) + in_a + index(from) * bytes,
            static_cast<std::byte*>(other.data) + in_b + index(to) * bytes, bytes);
  };
  piece(a.layout.undo, b.layout.undo, sizeof(std::int64_t));
  piece(a.layout.undo_counts, b.layout.undo_counts, rewind * sizeof(std::int64_t));
  for (std::size_t i = 0; i < a.pipeline.states.size(); ++i)
    piece(a.layout.undo_part[i], b.layout.undo_part[i], rewind * a.layout.undo_bytes[i]);
}

Status check(const Plan::Body& body, ConstState state, int sequence) {
  if (const Status s = check_buffer(body, state); s != Status::ok) return s;
  return sequence < 0 || sequence >= body.shape.batch ? Status::bad_shape : Status::ok;
}

// Lists only, so that the oldest pairs are what there was when they were the newest.
bool can_truncate(const Plan::Body& body) {
  const auto& parts = body.pipeline.states;
  return body.pipeline.history && body.pipeline.most_pairs < 0 && body.pipeline.pairs == 1 &&
         std::all_of(parts.begin(), parts.end(), [](const StatePart& part) { return part.history; });
}

// What reset writes into the fixed part of one sequence. cleared: it holds zeros.
void write_fresh(const Plan::Body& body, const StatePart& part, const PartOfSlot& slot, bool cleared) {
  const std::size_t count = numbers(part);
  const auto write = [&](std::size_t i, double x) {
    if (part.type == Type::f32) reinterpret_cast<float*>(slot.data)[i] = static_cast<float>(x);
    else if (part.type == Type::bf16) reinterpret_cast<bf16*>(slot.data)[i] = to_bf16(static_cast<float>(x));
    else reinterpret_cast<double*>(slot.data)[i] = x;
  };
  // Again and again from the beginning. A division for every number would take most of the time.
  const auto repeat = [&](const auto& all) {
    const std::size_t size = size_of(part.type);
    for (std::size_t begin = 0, n; begin < count; begin += n) {
      n = std::min(all.size(), count - begin);
      if (part.type == Type::bf16)
        for (std::size_t i = 0; i < n; ++i) write(begin + i, all[i]);
      else std::memcpy(slot.data + begin * size, all.data(), n * size);
    }
    if (!cleared) std::memset(slot.data + count * size, 0, slot.bytes - count * size);
  };
  if (!part.fresh_name.empty()) {
    const FreshState& fresh = *body.pipeline.fresh;
    const auto take = [&](const auto& all) {
      if (!all.empty()) repeat(all);
      return !all.empty();
    };
    if (part.type == Type::f64 ? take(fresh.numbers<double>(part.fresh_name))
                               : take(fresh.numbers<float>(part.fresh_name)))
      return;
  }
  if (!cleared) std::memset(slot.data, 0, slot.bytes);
  if (!part.fresh_name.empty()) return;
  if (part.identity) {
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
         a.on_oracle() == b.on_oracle() && a.has_counts() == b.has_counts() &&
         std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
}

// Takes back one token: list `part` of a sequence had `before` pairs and has `now`.
void restore_list(const Plan::Body& body, const StatePart& part, const std::byte* saved, std::byte* list,
                  std::int64_t before, std::int64_t now) {
  const std::size_t row = numbers(part) * size_of(part.type);
  const auto bytes = [&](std::int64_t rows) { return static_cast<std::size_t>(rows) * row; };
  if (part.literal) {
    std::memcpy(list, saved, bytes(before));
    return;
  }
  const std::int64_t dropped = before + body.pipeline.pairs - now;
  if (dropped < 1) return;
  std::memmove(list + bytes(dropped), list, bytes(before - dropped));
  std::memcpy(list, saved, bytes(dropped));
}

}  // namespace

namespace {

Status reset_slot(const Plan::Body& body, State state, int sequence, bool cleared) noexcept try {
  if (const Status s = check(body, state, sequence); s != Status::ok) return s;
  if (body.has_counts()) body.counts(state)[sequence] = 0;
  if (std::int64_t* const seen = body.seen(state)) seen[sequence] = 0;
  if (std::int64_t* const undo = body.undo(state)) undo[sequence] = 0;
  for (std::size_t i = 0; i < body.pipeline.states.size(); ++i) {
    const StatePart& part = body.pipeline.states[i];
    const PartOfSlot slot = part_of(body, state, i, sequence);
    if (!part.history) write_fresh(body, part, slot, cleared);
    else if (!cleared) std::memset(slot.data, 0, slot.bytes);
  }
  return Status::ok;
} catch (const std::bad_alloc&) {
  return Status::out_of_memory;
}

}  // namespace

Status Plan::reset(State state, int sequence) const noexcept { return reset_slot(*body_, state, sequence, false); }

Status Plan::zero(State state) const noexcept {
  if (!state.data || state.bytes < body_->layout.bytes(0)) return Status::small_state;
  if (reinterpret_cast<std::uintptr_t>(state.data) % 8 != 0) return Status::misaligned;
  clear_state(*body_, state);
  return Status::ok;
}

Status Plan::reset(State state) const noexcept {
  Status status = zero(state);
  for (int n = 0; n < body_->shape.batch && status == Status::ok; ++n) status = reset_slot(*body_, state, n, true);
  return status;
}

Tensor Plan::state_tensor(State state, std::string_view name) const noexcept {
  Tensor tensor;
  if (check_buffer(*body_, state) != Status::ok) return tensor;
  const auto axis = [&](std::ptrdiff_t extent) { tensor.extent[index(tensor.rank++)] = extent; };
  for (std::size_t i = 0; i < body_->pipeline.states.size(); ++i) {
    const StatePart& part = body_->pipeline.states[i];
    if (part.info.name != name) continue;
    const StatePlace place = body_->state_place(state, static_cast<int>(i));
    tensor.data = static_cast<std::byte*>(state.data) + place.offset;
    tensor.type = part.type;
    axis(body_->shape.batch);
    if (part.history) axis(place.capacity);
    for (std::ptrdiff_t extent : part.extent) axis(extent);
  }
  if (!tensor.data && !body_->states.empty() && (name == kept_part || name == counted_part || name == seen_part)) {
    const bool listed = std::any_of(body_->states.begin(), body_->states.end(),
                                    [&](const StateInfo& info) { return info.name == name; });
    if (!listed) return tensor;
    tensor.data = name == seen_part ? body_->seen(state) : body_->counts(state);
    tensor.type = Type::i64;
    axis(body_->shape.batch);
  }
  std::ptrdiff_t stride = 1;
  for (int d = tensor.rank; d-- > 0;) {
    tensor.stride[index(d)] = stride;
    stride *= tensor.extent[index(d)];
  }
  return tensor;
}

std::int64_t Plan::tokens_kept(ConstState state, int sequence) const noexcept {
  if (!body_->pipeline.history) return -1;
  return check(*body_, state, sequence) == Status::ok ? body_->counts(state)[sequence] : 0;
}

std::int64_t Plan::tokens_seen(ConstState state, int sequence) const noexcept {
  if (body_->layout.seen == StateLayout::none) return -1;
  return check(*body_, state, sequence) == Status::ok ? body_->seen(state)[sequence] : 0;
}

std::int64_t Plan::capacity(ConstState state) const noexcept {
  if (!body_->layout.grows()) return -1;
  return check_buffer(*body_, state) == Status::ok ? body_->capacity(state) : 0;
}

Status Plan::truncate(State state, int sequence, std::int64_t tokens) const noexcept {
  if (const Status s = check(*body_, state, sequence); s != Status::ok) return s;
  if (!can_truncate(*body_) || tokens < 0) return Status::not_supported;
  std::int64_t& count = body_->counts(state)[sequence];
  body_->seen(state)[sequence] -= std::max<std::int64_t>(0, count - tokens);
  count = std::min(count, tokens);
  return Status::ok;
}

Status Plan::truncate(State state, std::int64_t tokens) const noexcept {
  Status status = check(*body_, state, 0);
  for (int n = 0; n < body_->shape.batch && status == Status::ok; ++n) status = truncate(state, n, tokens);
  return status;
}

std::int64_t Plan::rewindable(ConstState state, int sequence) const noexcept {
  if (check(*body_, state, sequence) != Status::ok) return 0;
  if (can_truncate(*body_)) return body_->counts(state)[sequence];
  const std::int64_t* const undo = body_->undo(state);
  return undo ? undo[sequence] : 0;
}

Status Plan::rewind(State state, int sequence, std::int64_t tokens) const noexcept {
  const Body& body = *body_;
  if (const Status s = check(body, state, sequence); s != Status::ok) return s;
  if (tokens < 0 || tokens > rewindable(state, sequence)) return Status::not_supported;
  if (tokens == 0) return Status::ok;
  if (can_truncate(body)) return truncate(state, sequence, body.counts(state)[sequence] - tokens);
  const std::size_t n = index(sequence), R = index(body.options.rewind);
  std::int64_t& seen = body.seen(state)[n];
  for (std::int64_t back = 1; back <= tokens; ++back) {
    const std::size_t at = n * R + static_cast<std::size_t>(seen - back) % R;
    const std::int64_t now = body.has_counts() ? body.counts(state)[n] : 0,
                       before = body.has_counts() ? body.undo_counts(state)[at] : 0;
    for (std::size_t i = 0; i < body.pipeline.states.size(); ++i) {
      const StatePart& part = body.pipeline.states[i];
      if (body.layout.undo_part[i] == StateLayout::none || (!part.history && back < tokens)) continue;
      const std::byte* const saved =
          static_cast<const std::byte*>(state.data) + body.layout.undo_part[i] + at * body.layout.undo_bytes[i];
      const PartOfSlot slot = part_of(body, state, i, sequence);
      if (part.history) restore_list(body, part, saved, slot.data, before, now);
      else std::memcpy(slot.data, saved, slot.bytes);
    }
    if (body.has_counts()) body.counts(state)[n] = before;
  }
  seen -= tokens, body.undo(state)[n] -= tokens;
  return Status::ok;
}

Status Plan::rewind(State state, std::int64_t tokens) const noexcept {
  if (const Status s = check(*body_, state, 0); s != Status::ok) return s;
  for (int n = 0; n < body_->shape.batch; ++n)
    if (tokens < 0 || tokens > rewindable(state, n)) return Status::not_supported;
  Status status = Status::ok;
  for (int n = 0; n < body_->shape.batch && status == Status::ok; ++n) status = rewind(state, n, tokens);
  return status;
}

namespace {

// Whether a slot of `a` may become one of `b`, with room for its pairs.
Status check_copy(const Plan::Body& a, ConstState source, int from, const Plan::Body& b, std::int64_t room) {
  if (!hold_the_same(a, b)) return Status::not_supported;
  const std::int64_t count = a.has_counts() ? a.counts(source)[from] : 0;
  if (count < 0 || (a.layout.grows() && count > a.capacity(source))) return Status::bad_state;
  return b.layout.grows() && count > room ? Status::state_full : Status::ok;
}

void copy_slot(const Plan::Body& a, State source, int from, const Plan::Body& b, State target, int to) {
  const std::int64_t count = a.has_counts() ? a.counts(source)[from] : 0;
  const auto& parts = b.pipeline.states;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const PartOfSlot x = part_of(a, source, i, from), y = part_of(b, target, i, to);
    const std::size_t kept = numbers(parts[i]) * size_of(parts[i].type) * static_cast<std::size_t>(count);
    std::memmove(y.data, x.data, parts[i].history ? kept : y.bytes);
  }
  if (a.options.rewind == b.options.rewind && a.layout.undo != StateLayout::none) {
    each_undo(a, b, source, from, target, to,
              [](std::byte* x, std::byte* y, std::size_t bytes) { std::memmove(y, x, bytes); });
  } else if (std::int64_t* const undo = b.undo(target)) {
    undo[to] = 0;
  }
  if (b.has_counts()) b.counts(target)[to] = count;
  if (std::int64_t* const seen = b.seen(target)) seen[to] = a.seen(source)[from];
}

}  // namespace

Status Plan::copy(const Plan& of, ConstState source, int from, State target, int to) const noexcept {
  const Body &a = *of.body_, &b = *body_;
  if (const Status s = check(a, source, from); s != Status::ok) return s;
  if (const Status s = check(b, target, to); s != Status::ok) return s;
  if (const Status s = check_copy(a, source, from, b, b.capacity(target)); s != Status::ok) return s;
  copy_slot(a, {const_cast<void*>(source.data), source.bytes}, from, b, target, to);  // the source is only read
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
  each_undo(*body_, *body_, state, one, state, other,
            [](std::byte* x, std::byte* y, std::size_t bytes) { std::swap_ranges(x, x + bytes, y); });
  if (body_->has_counts()) std::swap(body_->counts(state)[one], body_->counts(state)[other]);
  if (std::int64_t* const seen = body_->seen(state)) std::swap(seen[one], seen[other]);
  return Status::ok;
}

Status Plan::grow(const Plan& of, ConstState from, State to) const noexcept {
  const Body &a = *of.body_, &b = *body_;
  if (const Status s = check_buffer(a, from); s != Status::ok) return s;
  if (!to.data || to.bytes < b.layout.bytes(0)) return Status::small_state;
  if (reinterpret_cast<std::uintptr_t>(to.data) % 8 != 0) return Status::misaligned;
  if (a.shape.batch > b.shape.batch) return Status::bad_shape;
  for (int n = 0; n < a.shape.batch; ++n)
    if (const Status s = check_copy(a, from, n, b, b.layout.fits(to.bytes)); s != Status::ok) return s;
  clear_state(b, to);
  for (int n = 0; n < b.shape.batch; ++n)
    if (n < a.shape.batch) copy_slot(a, {const_cast<void*>(from.data), from.bytes}, n, b, to, n);  // only read
    else if (const Status s = reset(to, n); s != Status::ok) return s;
  return Status::ok;
}

Status Plan::grow(ConstState from, State to) const noexcept { return grow(*this, from, to); }

}  // namespace ttr
