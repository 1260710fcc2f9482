// Pieces of time: forwards a long call goes through the steps of a plan piece by piece, each as if it were a call of its
// own. What the steps hand to each other is then as long as a piece, stays in cache, and does not grow with the call. A
// piece is whole sequences or a part of one, counted from its own beginning, so bits do not depend on neighbours in a
// packed batch.
#pragma once

#include <algorithm>
#include <span>

#include "run/bind.h"

namespace ttr {

/// Whether a call of any length may go through the steps in pieces. Not where every token sees all pairs of the call,
/// nor where an operation counts the tokens of the call itself.
bool goes_in_blocks(const Plan::Body&, Form);

/// Whether a kernel's own scratch grows with the call, so that a long call must go in pieces.
bool grows(const Plan::Body&);

/// Tokens of a piece: what the steps hand to each other should stay in a second-level cache. Whole chunks, and whole
/// batches of networks; the same for any number of sequences and threads.
std::ptrdiff_t block_length(const Plan::Body&);

/// Calls visit(begin, end) for the pieces of a call until one fails; a number outside the domain spoils its own sequence
/// only, so the others go on.
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
