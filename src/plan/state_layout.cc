// Where everything lies in a state of the caller:
//
//   capacity            one 64-bit number, if there are lists of pairs: how many pairs each sequence has room for. reset
//                       and zero write it; from then on the layout depends on it, not on the bytes that are passed
//   counts [B]          64 bits, if a kernel counts: pairs kept (lists), or tokens
//   parts of fixed size [B, extent...] each, rounded up to 8 bytes
//   seen [B]            64 bits: tokens since reset
//   undo [B]            64 bits, if Options::rewind = R > 0: how many earlier states the ring holds; then, for each part
//                       that cannot be truncated, [B, R, bytes]: what it was before a token, the n-th of a sequence (from 0)
//                       at n mod R. Of a list with a window, the pairs that the token drops; [B, R] counts
//   lists               [B, capacity, extent...] each
#include <cstring>

#include "plan/pipeline.h"

namespace ttr {
namespace {

std::size_t rounded(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

// Bytes of a part that one token changes and truncation does not bring back.
std::size_t undo_bytes(const Plan::Body& body, const StatePart& part) {
  const std::size_t one = numbers(part) * size_of(part.type);
  const Pipeline& p = body.pipeline;
  if (!part.history) return rounded(one);
  if (p.most_pairs < 0) return 0;
  return rounded(one * static_cast<std::size_t>(part.literal ? p.most_pairs : std::max(p.pairs, 1)));
}

}  // namespace

void lay_out_state(Plan::Body& body) {
  const Pipeline& p = body.pipeline;
  StateLayout& layout = body.layout;
  const std::size_t batch = static_cast<std::size_t>(body.shape.batch),
                    rewind = static_cast<std::size_t>(body.options.rewind), none = StateLayout::none;
  std::size_t at = p.history && !p.states.empty() ? sizeof(std::int64_t) : 0;
  const auto take = [&](std::size_t bytes) {
    const std::size_t here = at;
    at += rounded(bytes);
    return here;
  };
  if (p.counted || p.history) layout.counts = take(batch * sizeof(std::int64_t));
  const std::size_t count = p.states.size();
  layout.part.assign(count, 0), layout.before.assign(count, 0);
  layout.undo_part.assign(count, none), layout.undo_bytes.assign(count, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t one = numbers(p.states[i]) * size_of(p.states[i].type) * batch;
    if (!p.states[i].history) layout.part[i] = take(one);
  }
  for (const std::size_t size : {8, 4, 2, 1})  // wide types first, so that all are aligned whatever the capacity is
    for (std::size_t i = 0; i < count; ++i)
      if (p.states[i].history && size_of(p.states[i].type) == size)
        layout.before[i] = layout.pair, layout.pair += numbers(p.states[i]) * size * batch;
  if (count > 0) layout.seen = take(batch * sizeof(std::int64_t));
  if (rewind > 0 && count > 0) {
    layout.undo = take(batch * sizeof(std::int64_t));
    if (body.has_counts()) layout.undo_counts = take(batch * rewind * sizeof(std::int64_t));
    for (std::size_t i = 0; i < count; ++i)
      if ((layout.undo_bytes[i] = undo_bytes(body, p.states[i])) > 0)
        layout.undo_part[i] = take(batch * rewind * layout.undo_bytes[i]);
  }
  layout.fixed = at;
  for (std::size_t i = 0; i < count; ++i)
    if (p.states[i].history) layout.part[i] = at;

  body.states.clear();
  for (const StatePart& part : p.states) body.states.push_back(part.info);
  const auto count_of = [&](const char* name, const char* meaning) {
    body.states.push_back({name, "B", meaning, Range::fresh, false});
  };
  if (body.has_counts() && count > 0) {
    if (p.history) count_of(kept_part, "pairs kept");
    else count_of(counted_part, "tokens as the kernel counts them");
  }
  if (count > 0) count_of(seen_part, "tokens seen");
}

void clear_state(const Plan::Body& body, State state) noexcept {
  std::memset(state.data, 0, state.bytes);
  if (body.layout.grows()) *static_cast<std::int64_t*>(state.data) = body.layout.fits(state.bytes);
}

Status check_buffer(const Plan::Body& body, ConstState state) noexcept {
  if (!state.data || state.bytes < body.layout.bytes(0)) return Status::small_state;
  if (reinterpret_cast<std::uintptr_t>(state.data) % 8 != 0) return Status::misaligned;
  if (!body.layout.grows()) return Status::ok;
  const std::ptrdiff_t room = body.capacity(state);
  if (room < 0 || room > std::ptrdiff_t{1} << 48) return Status::bad_state;
  return room > body.layout.fits(state.bytes) ? Status::small_state : Status::ok;
}

std::size_t Plan::Body::state_bytes(std::int64_t time) const {
  std::int64_t pairs = time;
  if (const int reach = pipeline.design.weights.reach(); reach > 0) pairs = std::min<std::int64_t>(pairs, reach);
  return layout.bytes(pairs);
}

}  // namespace ttr
