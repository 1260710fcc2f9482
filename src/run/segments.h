// Form::parallel of kernels whose state is a sum over pairs (SegmentCalls in families/family.h): segments of time are
// tasks, so that one head of one sequence keeps several threads busy.
//
//   forward    the sum of every segment, each by itself ;  its start, from that of the segment before it: start_{j+1} =
//              join(start_j, sum_j), left to right ;  then the answers of every segment from its own start
//   backward   the starts as above ;  every segment backwards by its own answers alone, which gives D_j, the gradient of
//              its start by them ;  dS_j = D_j + pass(dS_{j+1}), right to left ;  then what dS_{j+1} is to the inputs of
//              segment j, each by itself. Gradients are linear in dS, so nothing is solved twice
//
// The sums are one product of matrices per segment, far less than the answers, so that the work is little more than that
// of the token loop. How long a segment is depends on the length of its own sequence alone, and the order of all sums is
// fixed: the bits depend neither on the number of threads nor on the other sequences of a batch. Sequences and key heads
// go through in rounds of at most `most_segments` segments, which bounds the states that are held.
//
// An input outside the domain takes its head out of the whole sequence, as in the other forms: all segments are searched
// before the first is answered.
//
// Traps: a gradient without a time axis (a ridge per head, a constant gate) is a sum over segments. Each adds to a copy
// of its own, and these are added up in the order of time.
#pragma once

#include "run/kernel_args.h"

namespace ttr {

/// Whether the step goes by segments in this form.
bool by_segments(const Step&, Form) noexcept;

/// Scratch of a call whose sequences have up to `time` tokens.
std::size_t segments_workspace(const Plan::Body&, const Step&, std::int64_t time, Form, bool backward);

template <class T>
Status forward_by_segments(const Plan::Body&, const Step&, const Binding<T>&, State, Form, Workspace) noexcept;

template <class T>
Status backward_by_segments(const Plan::Body&, const Step&, const Binding<T>&, const Call&, Form, Arena) noexcept;

}  // namespace ttr
