// The relay: group after group, a rank takes the state of the rank before it, runs its own tokens and hands the state on.
// While rank 1 works on the first group, rank 0 works on the second: with G groups and P ranks the last rank is done
// after G + P - 1 of G turns. Backwards the gradient of the state goes the other way.
//
// A message is the state of a group as it lies in memory, of as many bytes as tokens so far need.
#include <algorithm>

#include "mpi/split_body.h"

namespace ttr::mpi {

void Split::Body::relay_forward(const Piece& piece, const Inputs& inputs, State state, const Outputs& outputs,
                                State start) {
  const int rank = channel.rank(), last = channel.ranks() - 1;
  const std::int64_t room = std::max<std::int64_t>(piece.room(rank), 1);
  const std::size_t bytes = bytes_of(part, room);
  const std::size_t bytes_before = bytes_of(part, std::max<std::int64_t>(piece.room(rank - 1), 1));
  const Workspace workspace = work_for(part, room, false);
  std::vector<std::byte> before(bytes_before);
  std::vector<std::int64_t> ends;
  if (rank > 0) {  // what is there is of no use
    note(plan.reset(state), [] { return std::string("the state cannot be reset"); });
    if (start.data) note(plan.reset(start), [] { return std::string("start cannot be reset"); });
  } else if (start.data) {
    note(plan.reset(start), [] { return std::string("start cannot be reset"); });
  }
  const bool whole = groups.count() == 1;
  // Counts belong to all heads of a sequence: what one group leaves in them is not the next one's start.
  std::vector<std::byte> kept_initial;
  State initial = state;
  if (rank == 0 && groups.by_heads > 1) {
    kept_initial.assign(static_cast<const std::byte*>(state.data),
                        static_cast<const std::byte*>(state.data) + state.bytes);
    initial = {kept_initial.data(), kept_initial.size()};
  }
  for (int g = 0; g < groups.count(); ++g) {
    const Group group = groups[g];
    std::vector<std::byte> own(bytes);
    const State one{own.data(), bytes};
    if (rank > 0) {
      channel.receive(before, rank - 1, g, "the state of group " + std::to_string(g));
      if (grows) {
        note(part.reset(one), [] { return std::string("a state cannot be reset"); });
        note(part.grow(ConstState(before.data(), before.size()), one),
             [] { return std::string("the state of the rank before does not fit"); });
      } else {
        std::copy(before.begin(), before.end(), own.begin());
      }
    } else {
      const Stopwatch stopwatch(channel.counts.communication);
      note(part.reset(one), [] { return std::string("a state cannot be reset"); });
      if (whole && grows) note(plan.grow(initial, one), [] { return std::string("the initial state does not fit"); });
      else if (whole) std::copy_n(static_cast<const std::byte*>(initial.data), bytes, own.data());
      else copy_state(plan, initial, part, one, group, false);
    }
    if (start.data) copy_state(plan, start, part, one, group, true);
    const Inputs in = of_group(inputs, plan.inputs(), group, piece, pairs, ends);
    const Outputs out = of_group(outputs, plan.outputs(), group, piece, pairs, ends);
    if (piece.tokens > 0) {
      const Stopwatch stopwatch(channel.counts.local);
      const Status status = part.forward(in, one, out, workspace, settings.form);
      note(status, [&] { return part.diagnose(in, one, out, workspace, settings.form); });
    }
    {
      const Stopwatch stopwatch(channel.counts.communication);
      copy_state(plan, state, part, one, group, true);
    }
    if (rank < last) channel.send(std::move(own), rank + 1, g);
  }
}

void Split::Body::relay_backward(const Piece& piece, const Inputs& inputs, ConstState start, const Inputs& d_outputs,
                                 ConstState d_final, const Outputs& d_inputs, State d_initial) {
  const int rank = channel.rank(), last = channel.ranks() - 1;
  const std::int64_t room = std::max<std::int64_t>(piece.room(rank), 1);
  const std::size_t bytes = bytes_of(part, room);
  const std::size_t bytes_before = bytes_of(part, std::max<std::int64_t>(piece.room(rank - 1), 1));
  const Workspace workspace = work_for(part, room, true);
  const State first{const_cast<void*>(start.data), start.bytes};  // both only read
  const State last_d{const_cast<void*>(d_final.data), d_final.bytes};
  std::vector<std::byte> initial(bytes), d_end(bytes);
  const State one{initial.data(), bytes}, d_one{d_end.data(), bytes};
  std::vector<std::int64_t> ends;
  if (d_initial.data) note(plan.zero(d_initial), [] { return std::string("d_initial is too small"); });
  for (int g = 0; g < groups.count(); ++g) {
    const Group group = groups[g];
    std::vector<std::byte> own(bytes_before);
    const State d_start{own.data(), bytes_before};
    note(part.reset(one), [] { return std::string("a state cannot be reset"); });
    copy_state(plan, first, part, one, group, false);
    bool has = rank < last;
    if (has) {
      channel.receive(d_end, rank + 1, g, "the gradient of the state of group " + std::to_string(g));
    } else if (d_final.data) {
      note(part.zero(d_one), [] { return std::string("a gradient cannot be zeroed"); });
      copy_state(plan, last_d, part, d_one, group, false);
      has = true;
    }
    const Inputs in = of_group(inputs, plan.inputs(), group, piece, pairs, ends);
    const Inputs d_out = of_group(d_outputs, plan.outputs(), group, piece, pairs, ends);
    const Outputs d_in = of_group(d_inputs, plan.inputs(), group, piece, pairs, ends);
    note(part.zero(d_start), [] { return std::string("a gradient cannot be zeroed"); });
    const ConstState d_after = has ? ConstState(d_one) : ConstState();
    {
      const Stopwatch stopwatch(channel.counts.local);
      const Status status =
          part.backward(in, one, d_out, d_after, d_in, d_start, workspace, settings.form, Gradients::add);
      note(status, [&] { return part.diagnose(in, one, d_out, d_after, d_in, d_start, workspace, settings.form); });
    }
    if (d_initial.data) copy_state(plan, d_initial, part, d_start, group, true);
    if (rank > 0) channel.send(std::move(own), rank - 1, g);
  }
}

}  // namespace ttr::mpi
