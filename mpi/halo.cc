#include "mpi/halo.h"

#include <algorithm>
#include <cstring>

#include "plan/pipeline.h"

namespace ttr::mpi {
namespace {

// Parts that count the tokens of a sequence: the plan's own count, and positions, which are numbers of its type. Running
// quantities are told by their states.
bool is_position(const StateInfo& info) { return info.name == "position" && info.shape == "B 1"; }
bool counts_tokens(const StateInfo& info) { return info.name == "tokens" || is_position(info); }

std::int64_t read_count(const Tensor& t, int n) {
  const std::ptrdiff_t at = n * t.stride[0];
  if (t.type == Type::i64) return static_cast<const std::int64_t*>(t.data)[at];
  if (t.type == Type::f64) return static_cast<std::int64_t>(static_cast<const double*>(t.data)[at]);
  return static_cast<std::int64_t>(static_cast<const float*>(t.data)[at]);
}
void write_count(const Tensor& t, int n, std::int64_t count) {
  const std::ptrdiff_t at = n * t.stride[0];
  if (t.type == Type::i64) static_cast<std::int64_t*>(t.data)[at] = count;
  else if (t.type == Type::f64) static_cast<double*>(t.data)[at] = static_cast<double>(count);
  else static_cast<float*>(t.data)[at] = static_cast<float>(count);
}

// Some tokens of every tensor that has time.
Inputs tokens_of(const Inputs& all, std::span<const InputInfo> infos, std::int64_t begin, std::int64_t count,
                 int pairs) {
  Inputs some;
  for (const InputInfo& info : infos) {
    ConstTensor t = all.get(info.name);
    if (!t) continue;
    const std::size_t axis = Axes(info.shape).find_any("TP");
    if (axis != Axes::npos) {
      const std::int64_t unit = Axes(info.shape)[axis] == 'P' ? pairs : 1;
      const std::ptrdiff_t skipped = begin * unit * t.stride[axis] * static_cast<std::ptrdiff_t>(size_of(t.type));
      t.data = static_cast<const std::byte*>(t.data) + skipped, t.extent[axis] = count * unit;
    }
    some[info.name] = t;
  }
  return some;
}

}  // namespace

std::optional<std::int64_t> halo_of(const Plan& plan) {
  const Plan::Body& body = *plan.body();
  const Pipeline& p = body.pipeline;
  if (p.noncausal || p.fresh || p.states.empty() || body.options.state_type || body.options.rewind > 0) return {};
  std::int64_t span = 0;
  for (const Step& step : p.steps) {
    if (!step.kernel || step.state < 0) continue;
    const StatePart& part = p.states[static_cast<std::size_t>(step.state)];
    if (step.kernel->name == "running") {
      if (Axes(part.info.shape).has('W')) span += p.letters.at('W');  // a convolution: its last inputs
      else if (!is_position(part.info)) return {};
    } else if (step.kernel->name == "attention" && part.history && p.most_pairs >= 0 && p.pairs == 1) {
      span += p.most_pairs;
    } else {
      return {};
    }
  }
  return span;
}

bool Split::Body::halo_fits(const Piece& piece) const {
  return way == Way::halo && piece.packed.empty() &&
         std::all_of(piece.lengths.begin(), piece.lengths.end(), [&](std::int64_t n) { return n >= span; });
}

void Split::Body::halo_forward(const Piece& piece, const Inputs& inputs, State state, const Outputs& outputs,
                               State start) {
  const int rank = channel.rank(), last = channel.ranks() - 1, batch = plan.shape().batch;
  const std::int64_t room = std::max<std::int64_t>(piece.room(rank), 1);
  const Workspace workspace = work_for(plan, std::max(room, span), false);
  const auto reset = [&](State s) { note(plan.reset(s), [] { return std::string("a state cannot be reset"); }); };
  const auto run = [&](const Inputs& in, State from, const Outputs& out) {
    const Stopwatch stopwatch(channel.counts.local);
    const Status status = plan.forward(in, from, out, workspace, settings.form);
    note(status, [&] { return plan.diagnose(in, from, out, workspace, settings.form); });
  };
  const std::size_t bytes = bytes_of(plan, std::max<std::int64_t>(span, 1));
  if (span > 0 && rank < last) {
    std::vector<std::byte> end(bytes);
    reset({end.data(), bytes});
    run(tokens_of(inputs, plan.inputs(), piece.tokens - span, span, pairs), {end.data(), bytes}, {});
    channel.send(std::move(end), rank + 1, 0);
  }
  // What the first rank's state has counted, by part and sequence.
  std::vector<std::int64_t> counted;
  for (const StateInfo& info : plan.states())
    for (int n = 0; counts_tokens(info) && n < batch; ++n)
      counted.push_back(rank == 0 ? read_count(plan.state_tensor(state, info.name), n) : 0);
  const std::vector<std::int64_t> all = channel.all_of(counted);
  if (rank > 0) {
    reset(state);
    if (span > 0) {
      std::vector<std::byte> before(bytes);
      channel.receive(before, rank - 1, 0, "the end of its piece");
      if (grows)
        note(plan.grow(ConstState(before.data(), bytes), state),
             [] { return std::string("the state of the rank before does not fit"); });
      else std::memcpy(state.data, before.data(), bytes);
    }
    std::size_t at = 0;
    for (const StateInfo& info : plan.states())
      for (int n = 0; counts_tokens(info) && n < batch; ++n)
        write_count(plan.state_tensor(state, info.name), n, all[at++] + piece.room(rank - 1) - piece.kept);
  }
  if (start.data) {
    reset(start);
    note(plan.grow(state, start), [] { return std::string("start is too small"); });
  }
  if (piece.tokens > 0) run(inputs, state, outputs);
}

void Split::Body::halo_backward(const Piece& piece, const Inputs& inputs, ConstState start, const Inputs& d_outputs,
                                ConstState d_final, const Outputs& d_inputs, State d_initial) {
  const int rank = channel.rank(), last = channel.ranks() - 1;
  const std::int64_t room = std::max<std::int64_t>(piece.room(rank), 1);
  const Workspace workspace = work_for(plan, std::max(room, span), true);
  const auto zero = [&](State s) { note(plan.zero(s), [] { return std::string("a gradient cannot be zeroed"); }); };
  const auto run = [&](const Inputs& in, const Inputs& d_out, ConstState after, const Outputs& d_in, State d_start) {
    const Stopwatch stopwatch(channel.counts.local);
    const Status status =
        plan.backward(in, start, d_out, after, d_in, d_start, workspace, settings.form, Gradients::add);
    note(status, [&] { return plan.diagnose(in, start, d_out, after, d_in, d_start, workspace, settings.form); });
  };
  const std::size_t bytes = bytes_of(plan, room);  // as the end of this piece has, and of the one before:
  if (span > 0 && rank > 0) {
    std::vector<std::byte> d_start(bytes_of(plan, std::max<std::int64_t>(piece.room(rank - 1), 1)));
    zero({d_start.data(), d_start.size()});
    run(tokens_of(inputs, plan.inputs(), 0, span, pairs), tokens_of(d_outputs, plan.outputs(), 0, span, pairs), {},
        {}, {d_start.data(), d_start.size()});
    channel.send(std::move(d_start), rank - 1, 1);
  }
  std::vector<std::byte> d_end(bytes);
  ConstState after = d_final;
  if (span > 0 && rank < last) {
    channel.receive(d_end, rank + 1, 1, "the gradient of the end of this piece");
    after = ConstState(d_end.data(), bytes);
  }
  if (d_initial.data) zero(d_initial);
  run(inputs, d_outputs, after, d_inputs, d_initial);
}

}  // namespace ttr::mpi
