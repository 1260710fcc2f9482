#include "mpi/gather.h"

#include <algorithm>
#include <cstring>

#include "plan/pipeline.h"

namespace ttr::mpi {
namespace {

// Families that keep what a token is, and not what the tokens before have made of it (as DeltaFormer does).
constexpr std::string_view families_of_tokens[] = {"attention", "local_linear", "kernel_regression", "path_attention",
                                                   "query_fit"};

template <class Number>
void copy_numbers_of(const void* from, void* to, std::size_t bytes, bool add) {
  if (!add) {
    std::memcpy(to, from, bytes);
    return;
  }
  for (std::size_t i = 0; i < bytes / sizeof(Number); ++i)
    static_cast<Number*>(to)[i] += static_cast<const Number*>(from)[i];
}

// Pairs of sequence n, `count` of them, in all lists of a state.
void copy_pairs(const Plan& plan, State from, std::int64_t first, State to, std::int64_t at, int n,
                std::int64_t count, bool add = false) {
  if (count == 0) return;
  for (const StatePart& part : plan.body()->pipeline.states) {
    const Tensor a = plan.state_tensor(from, part.info.name), b = plan.state_tensor(to, part.info.name);
    const std::size_t size = size_of(part.type), bytes = numbers(part) * size * static_cast<std::size_t>(count);
    const auto place = [&](const Tensor& t, std::int64_t i) {
      return static_cast<std::byte*>(t.data) +
             (n * t.stride[0] + i * t.stride[1]) * static_cast<std::ptrdiff_t>(size);
    };
    if (part.type == Type::f64) copy_numbers_of<double>(place(a, first), place(b, at), bytes, add);
    else copy_numbers_of<float>(place(a, first), place(b, at), bytes, add);
  }
}

}  // namespace

bool gathers(const Plan& plan) {
  const Plan::Body& body = *plan.body();
  const Pipeline& p = body.pipeline;
  if (p.noncausal || p.states.empty() || p.most_pairs >= 0 || p.pairs != 1 || body.options.state_type ||
      body.options.rewind > 0)
    return false;
  int kernels = 0;
  for (const Step& step : p.steps) {
    if (!step.kernel) continue;
    if (++kernels > 1 || std::find(std::begin(families_of_tokens), std::end(families_of_tokens), step.kernel->name) ==
                             std::end(families_of_tokens))
      return false;
  }
  return std::all_of(p.states.begin(), p.states.end(), [](const StatePart& part) {
    return part.history && (part.type == Type::f32 || part.type == Type::f64);
  });
}

void Split::Body::gather_forward(const Piece& piece, const Inputs& inputs, State state, const Outputs& outputs,
                                 State start) {
  const int rank = channel.rank(), last = channel.ranks() - 1;
  const auto reset = [&](State s) { note(plan.reset(s), [] { return std::string("a state cannot be reset"); }); };
  const auto grow = [&](State from, State to) {
    note(plan.grow(from, to), [] { return std::string("a state has no room for its pairs"); });
  };
  Inputs in = inputs;
  in.cu_seqlens = piece.packed;
  const Workspace workspace = work_for(plan, std::max<std::int64_t>(piece.room(rank), 1), false);
  const auto run = [&](State from, const Outputs& out) {
    if (piece.tokens == 0) return;
    const Stopwatch stopwatch(channel.counts.local);
    const Status status = plan.forward(in, from, out, workspace, settings.form);
    note(status, [&] { return plan.diagnose(in, from, out, workspace, settings.form); });
  };
  const auto list_bytes = [&](int r) { return bytes_of(plan, std::max<std::int64_t>(piece.pairs_of(r, inputs), 1)); };
  if (rank < last) {
    const auto own = std::make_shared<std::vector<std::byte>>(list_bytes(rank));
    const State list{own->data(), own->size()};
    reset(list);
    if (rank == 0) grow(state, list);
    run(list, {});
    for (int r = rank + 1; r <= last; ++r) channel.send(own, r, 0);
  }
  if (rank > 0) {
    reset(state);
    std::int64_t* const kept = plan.body()->counts(state);
    std::int64_t* const seen = plan.body()->seen(state);
    Expected next = channel.expect(list_bytes(0), 0, 0);
    for (int r = 0; r < rank; ++r) {
      std::vector<std::byte> list = channel.take(std::move(next), "the pairs of its piece");
      next = {};
      if (r + 1 < rank) next = channel.expect(list_bytes(r + 1), r + 1, 0);
      const State theirs{list.data(), list.size()};
      for (int n = 0; n < plan.shape().batch; ++n) {
        const std::int64_t count = plan.body()->counts(theirs)[n];
        copy_pairs(plan, theirs, 0, state, kept[n], n, count);
        kept[n] += count;
        if (seen) seen[n] += plan.body()->seen(theirs)[n];
      }
    }
  }
  if (start.data) reset(start), grow(state, start);
  run(state, outputs);
}

void Split::Body::gather_backward(const Piece& piece, const Inputs& inputs, ConstState start, const Inputs& d_outputs,
                                  ConstState d_final, const Outputs& d_inputs, State d_initial) {
  const int rank = channel.rank(), last = channel.ranks() - 1, batch = plan.shape().batch;
  const auto zero = [&](State s) { note(plan.zero(s), [] { return std::string("a gradient cannot be zeroed"); }); };
  Inputs in = inputs;
  in.cu_seqlens = piece.packed;
  const std::int64_t room = std::max<std::int64_t>(piece.room(rank), 1);
  const Workspace workspace = work_for(plan, room, true);
  const State first{const_cast<void*>(start.data), start.bytes};  // only read
  const auto run = [&](const Inputs& d_out, ConstState after, State d_start) {
    const Stopwatch stopwatch(channel.counts.local);
    const Status status =
        plan.backward(in, start, d_out, after, d_inputs, d_start, workspace, settings.form, Gradients::add);
    note(status, [&] { return plan.diagnose(in, start, d_out, after, d_inputs, d_start, workspace, settings.form); });
  };
  const auto list_bytes = [&](int r) { return bytes_of(plan, std::max<std::int64_t>(piece.pairs_of(r, inputs), 1)); };

  std::vector<std::byte> of_start(bytes_of(plan, room));
  const State d_start{of_start.data(), of_start.size()};
  zero(d_start);
  run(d_outputs, d_final, d_start);
  std::vector<std::int64_t> at(static_cast<std::size_t>(batch), 0);  // where the pairs of rank r begin
  for (int r = 0; r < rank; ++r) {
    std::vector<std::byte> list(list_bytes(r));
    const State theirs{list.data(), list.size()};
    zero(theirs);
    for (int n = 0; n < batch; ++n) {
      std::int64_t count = piece.tokens_of(r, n, inputs);
      if (r == 0) {  // and those before, which are what is left of all
        count = plan.tokens_kept(first, n);
        for (int other = 1; other < rank; ++other) count -= piece.tokens_of(other, n, inputs);
      }
      copy_pairs(plan, d_start, at[static_cast<std::size_t>(n)], theirs, 0, n, count);
      at[static_cast<std::size_t>(n)] += count;
    }
    channel.send(std::move(list), r, 1);
  }
  if (d_initial.data) {
    zero(d_initial);
    std::copy_n(plan.body()->counts(first), batch,
                plan.body()->counts(d_start));  // which a call of no tokens leaves out
    note(plan.grow(d_start, d_initial), [] { return std::string("d_initial is too small"); });
  }
  if (rank == last) return;
  std::vector<std::byte> of_end(bytes_of(plan, room)), passed(bytes_of(plan, room));
  const State d_end{of_end.data(), of_end.size()}, d_passed{passed.data(), passed.size()};
  zero(d_end), zero(d_passed);
  Expected next = channel.expect(list_bytes(rank), rank + 1, 1);
  for (int r = rank + 1; r <= last; ++r) {
    std::vector<std::byte> list = channel.take(std::move(next), "the gradients of this rank's pairs");
    next = {};
    if (r < last) next = channel.expect(list_bytes(rank), r + 1, 1);
    const State theirs{list.data(), list.size()};
    for (int n = 0; n < batch; ++n) {
      const std::int64_t before = plan.tokens_kept(first, n), own = piece.tokens_of(rank, n, inputs);
      copy_pairs(plan, theirs, 0, d_end, rank ? before : 0, n, rank ? own : before + own, true);
    }
  }
  run({}, d_end, d_passed);
  for (int n = 0; d_initial.data && rank == 0 && n < batch; ++n)
    copy_pairs(plan, d_passed, 0, d_initial, 0, n, plan.tokens_kept(first, n), true);
}

}  // namespace ttr::mpi
