// How a kernel step is divided into tasks for several threads: by sequences, by heads, or by columns of the values,
// which are independent of each other. This changes who computes a number, never how, so the bits are those of one
// thread.
//
// Forwards the heads of one key head may go to different tasks: what they share they only read. Parts of heads that are
// left over when every thread has as many as the others are divided by columns: three heads on two threads are one whole
// head and half of the third for each. Backwards the heads of a key head add to its gradient and stay together.
//
// A kernel that divides time itself gets a team instead (families/common/team.h), in the forms in which it does, where
// the parts above would leave threads without work.
//
// In backward the gradient of what all sequences share is a sum over them: all sequences of a head stay together, in
// their order, and a step whose heads share an operand is not divided by heads.
#pragma once

#include <span>

#include "run/kernel_args.h"

namespace ttr {

struct Partition {
  int sequences = 1, heads = 1, columns = 1;  // into how many parts
  int whole = 0;                              // the first parts of heads are not divided by columns
  int of_group = 1;                           // parts of the heads of one key head; heads is a multiple of it
  int of_sequence() const { return whole + (heads - whole) * columns; }
  int tasks() const { return sequences * of_sequence(); }
};

/// Tasks of a sequence at most: what is kept for each of them is laid out for so many.
inline int most_tasks(int threads) { return 6 * threads; }

/// The parts of the state that belong to a step.
std::span<const StatePart> parts_of(const Plan::Body&, const Step&);

/// Whether a step has work for more than one thread.
template <class T>
bool is_much_work(const Plan::Body&, const Step&, const Binding<T>&, ConstState state) noexcept;

/// Threads that the tasks of a step can use at most, each with scratch of its own: not more than there are sequences and,
/// where they are independent, heads and columns.
int workers_of(const Plan::Body&, const Step&) noexcept;

/// One task if the plan has one thread, or too little work for more.
template <class T>
Partition partition_of(const Plan::Body&, const Step&, const Binding<T>&, ConstState state, bool backward) noexcept;

/// Whether a kernel divides time in a form; `best` may be the chunk form.
bool has_team(const Step&, Form, bool backward) noexcept;

/// The workers of a kernel that divides time: all threads of the plan, or the caller alone.
template <class T>
Team team_of(const Plan::Body&, const Step&, const Binding<T>&, ConstState state, Form, bool backward,
             const Partition&) noexcept;

/// Task i of a partition.
Shard shard_of(const Plan::Body&, const Partition&, int i, std::size_t sequences) noexcept;

}  // namespace ttr
