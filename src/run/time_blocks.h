// Time blocks: a long forward call goes through the steps of a plan block by block, each as if it were a call of its
// own. Intermediate results then have the length of a block, stay in cache and do not grow with the call. A block is
// whole sequences or a part of one, counted from the sequence's own beginning, so the bits do not depend on
// neighbours in a packed batch.
#pragma once

#include <algorithm>
#include <span>

#include "run/bind.h"

namespace ttr {

/// Whether a call of any length may go through the steps in blocks. Not where every token sees all pairs of the call,
/// nor where an operation counts the tokens of the call itself.
bool goes_in_blocks(const Plan::Body&, Form);

/// Whether a kernel's own scratch grows with the call, so that a long call must go in blocks.
bool grows(const Plan::Body&);

/// Blocks are multiples of it: whole chunks, and whole mini-batches of networks.
std::ptrdiff_t time_unit(const Plan::Body&);

/// Tokens of a block: intermediate results should stay in a second-level cache. Whole chunks, and whole mini-batches
/// of networks; the same for any number of sequences and threads. A scan has longer ones, which its segments divide.
std::ptrdiff_t block_length(const Plan::Body&, Form);

/// No block is shorter, but for the last of a call.
inline constexpr std::ptrdiff_t least_half_block = 16;

/// The same where some tensors of the caller, by the values that they are, have copies beside them (half_tensors.h); at
/// most block_length(), and least_half_block or more.
std::ptrdiff_t half_block_length(const Plan::Body&, Form, std::span<const bool> copied);

/// Calls visit(begin, end) for the blocks of a call until one fails. An input outside the domain affects its own
/// sequence only, so out_of_domain does not stop the others.
template <class Visit>
Status each_block(std::ptrdiff_t time, std::span<const families::Sequence> sequences, bool packed,
                  std::ptrdiff_t length, Visit&& visit) noexcept {
  Status worst = Status::ok;
  const auto one = [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
    const Status s = visit(begin, end);
    if (s != Status::ok && (worst == Status::ok || worst == Status::out_of_domain)) worst = s;
    return worst == Status::ok || worst == Status::out_of_domain;
  };
  if (!packed) {
    for (std::ptrdiff_t t = 0; t < time; t += length)
      if (!one(t, std::min(t + length, time))) break;
    return worst;
  }
  std::ptrdiff_t begin = 0;  // of the whole sequences that wait
  for (const families::Sequence& s : sequences) {
    if (s.end - begin <= length) continue;
    if (s.begin > begin && !one(begin, s.begin)) return worst;
    begin = s.begin;
    for (; s.end - begin > length; begin += length)
      if (!one(begin, begin + length)) return worst;
    if (begin > s.begin) {  // the end of a sequence that was cut
      if (s.end > begin && !one(begin, s.end)) return worst;
      begin = s.end;
    }
  }
  if (time > begin) one(begin, time);
  return worst;
}

}  // namespace ttr
