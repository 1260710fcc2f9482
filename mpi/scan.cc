// The scan: maps of pieces (mpi/maps.h) by an exclusive scan (mpi/exscan.cc).
//
//   forward    rank 0 runs from the initial state ;  the others make B from nothing, without answers, and A ;  the exclusive
//              scan gives every rank its start ;  then it runs from there
//   backward   the same from the other end: C is what backward makes of the piece's answers alone. The last rank takes
//              d_final into its C, and its map is used by nobody
//
// Several sequences go in groups, each with a scan of its own: while the maps of one are on their way, a rank makes those of the
// next, or runs the one before. Answers from nothing, to which what the start makes of them is added when it comes, would give
// work to do in the meantime for one sequence too, but that is a third pass (docs/scaling.md).
//
// Maps that depend on the position of a piece (log-linear attention) need what the kernel had counted before it: forwards the
// first rank tells all others what its initial state has counted, backwards the start of the piece has it.
//
// The order in which maps are composed depends on the number of ranks alone.
#include <algorithm>

#include "mpi/split_body.h"

namespace ttr::mpi {
namespace {

// Tokens of this rank in a group.
std::int64_t tokens_in(const Piece& piece, const Group& g) {
  if (piece.packed.empty()) return piece.tokens;
  return piece.packed[static_cast<std::size_t>(g.row + g.rows)] - piece.packed[static_cast<std::size_t>(g.row)];
}

// The place of the sequences of a group; `before` is what was counted of all sequences before this piece, if maps need it.
Place place_of(const std::vector<std::int64_t>& before, const Piece& piece, const Group& g) {
  Place place;
  for (int n = g.row; n < g.row + g.rows && !before.empty(); ++n) {
    const std::size_t i = static_cast<std::size_t>(n);
    const std::int64_t tokens = piece.packed.empty() ? piece.tokens : piece.packed[i + 1] - piece.packed[i];
    place.begin.push_back(before[i]), place.end.push_back(before[i] + tokens);
  }
  return place;
}

}  // namespace

void Split::Body::scan_forward(const Piece& piece, const Inputs& inputs, State state, const Outputs& outputs,
                               State start) {
  const int rank = channel.rank(), last = channel.ranks() - 1;
  const Workspace workspace = work_for(part, std::max<std::int64_t>(piece.tokens, 1), false);
  std::vector<std::int64_t> ends;
  std::vector<std::byte> memory(bytes_of(part, 1));
  const State one{memory.data(), memory.size()};
  const auto run = [&](const Group& group, const Outputs& out) {
    if (tokens_in(piece, group) == 0) return;
    const Inputs in = of_group(inputs, plan.inputs(), group, piece, pairs, ends);
    const Stopwatch stopwatch(channel.counts.local);
    const Status status = part.forward(in, one, out, workspace, settings.form);
    note(status, [&] { return part.diagnose(in, one, out, workspace, settings.form); });
  };
  const auto answers = [&](const Group& group) {
    return of_group(outputs, plan.outputs(), group, piece, pairs, ends);
  };
  const auto keep = [&](State all, const Group& group) { copy_state(plan, all, part, one, group, true); };
  if (rank > 0) note(plan.reset(state), [] { return std::string("the state cannot be reset"); });
  if (start.data) note(plan.reset(start), [] { return std::string("start cannot be reset"); });
  std::vector<std::int64_t> counted;
  if (maps->by_position()) {
    counted = maps->counted(plan, state);  // of the first rank: the others have reset theirs
    const std::vector<std::int64_t> all = channel.all_of(counted);
    std::copy_n(all.begin(), counted.size(), counted.begin());
    for (int n = 0; n < plan.shape().batch; ++n)
      for (int r = 0; r < rank; ++r) counted[static_cast<std::size_t>(n)] += piece.tokens_of(r, n, inputs);
  }
  std::vector<std::unique_ptr<Exscan>> maps_before;
  for (int g = 0; g < groups.count(); ++g) {
    const Group group = groups[g];
    std::vector<std::byte> mine(maps->bytes());
    if (rank == 0) {
      note(part.reset(one), [] { return std::string("a state cannot be reset"); });
      copy_state(plan, state, part, one, group, false);
      if (start.data) keep(start, group);
      run(group, answers(group));
      keep(state, group), maps->set(one, mine.data());
    } else if (rank < last) {
      const Place place = place_of(counted, piece, group);
      note(part.zero(one), [] { return std::string("the state cannot be zeroed"); });
      maps->put(one, place);
      run(group, {});
      const Inputs in = of_group(inputs, plan.inputs(), group, piece, pairs, ends);
      const Stopwatch stopwatch(channel.counts.local);
      note(maps->make(in, tokens_in(piece, group), settings.form, place, mine.data()),
           [] { return std::string("the map of a piece cannot be made"); });
      maps->set(one, mine.data());
    }
    maps_before.push_back(channel.begin_exscan(
        std::move(mine), [&](const std::byte* a, std::byte* b) { maps->compose(a, b, false); }, false, g));
    channel.progress();
  }
  for (int g = 0; g < groups.count(); ++g) {
    const std::vector<std::byte> before = channel.end_exscan(*maps_before[static_cast<std::size_t>(g)]);
    if (rank == 0) continue;
    note(part.reset(one), [] { return std::string("a state cannot be reset"); });
    maps->get(before.data(), one), maps->put(one, place_of(counted, piece, groups[g]));
    if (start.data) keep(start, groups[g]);
    run(groups[g], answers(groups[g]));
    keep(state, groups[g]);
    channel.progress();
  }
}

void Split::Body::scan_backward(const Piece& piece, const Inputs& inputs, ConstState start, const Inputs& d_outputs,
                                ConstState d_final, const Outputs& d_inputs, State d_initial) {
  const int rank = channel.rank(), last = channel.ranks() - 1;
  const Workspace workspace = work_for(part, std::max<std::int64_t>(piece.tokens, 1), true);
  const std::size_t bytes = bytes_of(part, 1);
  std::vector<std::byte> of_begin(bytes), of_start(bytes), of_end(bytes);
  const State begin{of_begin.data(), bytes}, d_start{of_start.data(), bytes}, d_end{of_end.data(), bytes};
  const State first{const_cast<void*>(start.data), start.bytes};  // both only read
  const State last_d{const_cast<void*>(d_final.data), d_final.bytes};
  std::vector<std::int64_t> ends;
  const auto zero = [&](State s) { note(part.zero(s), [] { return std::string("a gradient cannot be zeroed"); }); };
  const auto run = [&](const Group& group, ConstState after, const Outputs& d_in) {
    note(part.reset(begin), [] { return std::string("a state cannot be reset"); });
    copy_state(plan, first, part, begin, group, false);
    zero(d_start);
    const Inputs d_out = of_group(d_outputs, plan.outputs(), group, piece, pairs, ends),
                 in = of_group(inputs, plan.inputs(), group, piece, pairs, ends);
    const Stopwatch stopwatch(channel.counts.local);
    const Status status =
        part.backward(in, begin, d_out, after, d_in, d_start, workspace, settings.form, Gradients::add);
    note(status, [&] { return part.diagnose(in, begin, d_out, after, d_in, d_start, workspace, settings.form); });
  };
  const auto gradients = [&](const Group& group) {
    return of_group(d_inputs, plan.inputs(), group, piece, pairs, ends);
  };
  if (d_initial.data) note(plan.zero(d_initial), [] { return std::string("d_initial is too small"); });
  const auto keep = [&](const Group& group) {
    if (d_initial.data) copy_state(plan, d_initial, part, d_start, group, true);
  };
  const std::vector<std::int64_t> counted = maps->counted(plan, start);
  std::vector<std::unique_ptr<Exscan>> maps_after;
  for (int g = 0; g < groups.count(); ++g) {
    const Group group = groups[g];
    std::vector<std::byte> mine(maps->bytes());
    if (rank == last) {
      if (d_final.data) zero(d_end), copy_state(plan, last_d, part, d_end, group, false);
      run(group, d_final.data ? ConstState(d_end) : ConstState(), gradients(group));
      keep(group), maps->set(d_start, mine.data());
    } else if (rank > 0) {
      run(group, {}, {});
      const Inputs in = of_group(inputs, plan.inputs(), group, piece, pairs, ends);
      const Stopwatch stopwatch(channel.counts.local);
      note(maps->make(in, tokens_in(piece, group), settings.form, place_of(counted, piece, group), mine.data()),
           [] { return std::string("the map of a piece cannot be made"); });
      maps->set(d_start, mine.data());
    }
    maps_after.push_back(channel.begin_exscan(
        std::move(mine), [&](const std::byte* a, std::byte* b) { maps->compose(a, b, true); }, true, g));
    channel.progress();
  }
  for (int g = 0; g < groups.count(); ++g) {
    const std::vector<std::byte> after = channel.end_exscan(*maps_after[static_cast<std::size_t>(g)]);
    if (rank == last) continue;
    zero(d_end);
    maps->get(after.data(), d_end);
    run(groups[g], d_end, gradients(groups[g]));
    keep(groups[g]);
    channel.progress();
  }
}

}  // namespace ttr::mpi
