// The scan: maps of pieces by MPI_Exscan (mpi/maps.h).
//
//   forward    rank 0 runs from the initial state ;  the others make B from nothing, without answers, and A ;  the exclusive
//              scan gives every rank its start ;  then it runs from there
//   backward   the same from the other end: C is what backward makes of the piece's answers alone. The last rank takes
//              d_final into its C, and its map is used by nobody
//
// The order in which maps are composed is that of MPI_Exscan: it depends on the number of ranks alone.
#include <algorithm>

#include "mpi/split_body.h"

namespace ttr::mpi {

void Split::Body::scan_forward(const Piece& piece, const Inputs& inputs, State state, const Outputs& outputs,
                               State start) {
  const int rank = channel.rank(), last = channel.ranks() - 1;
  Inputs in = inputs;
  in.cu_seqlens = piece.packed;
  const std::int64_t time = std::max<std::int64_t>(piece.tokens, 1);
  const Workspace workspace = work_for(plan, time, false);
  const auto run = [&](State from, const Outputs& out) {
    if (piece.tokens == 0) return;
    const Stopwatch stopwatch(channel.counts.local);
    const Status status = plan.forward(in, from, out, workspace, settings.form);
    note(status, [&] { return plan.diagnose(in, from, out, workspace, settings.form); });
  };
  std::vector<std::byte> mine(maps->bytes());
  if (rank == 0) {
    if (start.data)
      copy_state(plan, start, plan, state, {0, plan.shape().batch, 0, plan.shape().heads, 0, plan.shape().key_heads},
                 true);
    run(state, outputs);
    maps->set(state, mine.data());
  } else if (rank < last) {
    note(plan.zero(state), [] { return std::string("the state cannot be zeroed"); });
    run(state, {});
    const Stopwatch stopwatch(channel.counts.local);
    note(maps->make(in, piece.tokens, settings.form, mine.data()),
         [] { return std::string("the map of a piece cannot be made"); });
    maps->set(state, mine.data());
  }
  const std::vector<std::byte> before = channel.exscan(std::move(mine), maps->type(), maps->operation(false), false);
  if (rank == 0) return;
  note(plan.reset(state), [] { return std::string("the state cannot be reset"); });
  maps->get(before.data(), state);
  if (start.data) {
    note(plan.reset(start), [] { return std::string("start cannot be reset"); });
    maps->get(before.data(), start);
  }
  run(state, outputs);
}

void Split::Body::scan_backward(const Piece& piece, const Inputs& inputs, ConstState start, const Inputs& d_outputs,
                                ConstState d_final, const Outputs& d_inputs, State d_initial) {
  const int rank = channel.rank(), last = channel.ranks() - 1;
  Inputs in = inputs;
  in.cu_seqlens = piece.packed;
  const std::int64_t time = std::max<std::int64_t>(piece.tokens, 1);
  const Workspace workspace = work_for(plan, time, true);
  const std::size_t bytes = bytes_of(plan, 1);
  std::vector<std::byte> of_start(bytes), of_end(bytes);
  const State d_start{of_start.data(), bytes}, d_end{of_end.data(), bytes};
  const auto run = [&](ConstState after, const Outputs& d_in) {
    const Stopwatch stopwatch(channel.counts.local);
    const Status status =
        plan.backward(in, start, d_outputs, after, d_in, d_start, workspace, settings.form, Gradients::add);
    note(status, [&] { return plan.diagnose(in, start, d_outputs, after, d_in, d_start, workspace, settings.form); });
  };
  std::vector<std::byte> mine(maps->bytes());
  note(plan.zero(d_start), [] { return std::string("a gradient cannot be zeroed"); });
  if (rank == last) {
    run(d_final, d_inputs);
    maps->set(d_start, mine.data());
  } else if (rank > 0) {
    run({}, {});
    const Stopwatch stopwatch(channel.counts.local);
    note(maps->make(in, piece.tokens, settings.form, mine.data()),
         [] { return std::string("the map of a piece cannot be made"); });
    maps->set(d_start, mine.data());
  }
  const std::vector<std::byte> before = channel.exscan(std::move(mine), maps->type(), maps->operation(true), true);
  if (rank < last) {
    note(plan.zero(d_end), [] { return std::string("a gradient cannot be zeroed"); });
    maps->get(before.data(), d_end);
    run(d_end, d_inputs);
  }
  if (d_initial.data) {
    note(plan.zero(d_initial), [] { return std::string("d_initial is too small"); });
    copy_state(plan, d_initial, plan, d_start,
               {0, plan.shape().batch, 0, plan.shape().heads, 0, plan.shape().key_heads}, true);
  }
}

}  // namespace ttr::mpi
