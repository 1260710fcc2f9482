#include "run/kernels.h"

#include "families/family.h"
#include "run/compact_state.h"
#include "run/kernel_args.h"
#include "run/partition.h"
#include "run/segments.h"
#include "run/tasks.h"
#include "threads/pool.h"

namespace ttr {
namespace {

// The heads and columns of a share of a part of the state, which is rows of V numbers: to their place in a copy of the
// part, or back. Returns that place.
std::byte* copy_columns(const Plan::Body& body, const StatePart& part, const Shard& share, std::byte* whole,
                        std::byte* copy, bool back) {
  const std::size_t size = size_of(part.type), V = static_cast<std::size_t>(part.extent.back());
  const std::size_t first = static_cast<std::size_t>(share.first_column),
                    columns = static_cast<std::size_t>(share.columns);
  std::size_t first_row = 0, rows = numbers(part) / V;
  if (share.groups) {
    const int all = static_cast<int>(part.extent.front()), group = all / body.shape.key_heads;
    const std::size_t one = rows / static_cast<std::size_t>(all);
    first_row = one * static_cast<std::size_t>(share.first_group * group + share.first_head);
    rows = one * static_cast<std::size_t>(share.heads ? share.heads : share.groups * group);
  }
  std::byte *const from = whole + first_row * V * size, *const to = copy + (first_row * V + rows * first) * size;
  for (std::size_t row = 0; row < rows; ++row) {
    std::byte *const theirs = from + (row * V + first) * size, *const own = to + row * columns * size;
    std::memcpy(back ? theirs : own, back ? own : theirs, columns * size);
  }
  return to;
}

threads::Crew crew_of(const Plan::Body& body, int workers) {
  threads::Crew crew = body.crew();
  crew.threads = workers;
  return crew;
}

template <class T>
Status forward_in_tasks(const Plan::Body& body, const Step& step, const Binding<T>& b, const Partition& cut,
                        State state, Form form, Workspace work, bool keep) noexcept {
  const std::size_t N = b.sequences.size();
  const int tasks = cut.tasks(), workers = workers_of(body, step);
  Arena arena(work);
  const int own_tasks = cut.of_sequence();
  std::int64_t* const counts = arena.take<std::int64_t>(static_cast<std::ptrdiff_t>(N) * own_tasks);
  const bool own_counts = own_tasks > 1 && body.has_counts();
  for (int i = 0; own_counts && i < own_tasks; ++i)
    std::memcpy(counts + static_cast<std::size_t>(i) * N, body.counts(state), N * sizeof(std::int64_t));
  const std::span<const StatePart> parts = parts_of(body, step);
  std::array<std::byte*, Shard::most_parts> copies{};
  for (std::size_t i = 0; cut.columns > 1 && i < parts.size(); ++i)
    copies[i] = arena.take<std::byte>(static_cast<std::ptrdiff_t>(numbers(parts[i]) * size_of(parts[i].type)));
  const Workspace scratch = arena.rest();

  Answers answers;
  threads::for_each(crew_of(body, workers), tasks, [&](int i, int worker) {
    Shard share = shard_of(body, cut, i, N);
    if (own_counts) share.counts = counts + static_cast<std::size_t>(i % own_tasks) * N + share.first_sequence;
    const auto each_part = [&](bool back) {
      for (std::size_t part = 0; share.columns && part < parts.size(); ++part) {
        const StatePlace place = body.state_place(state, step.state + static_cast<int>(part));
        share.parts[part] = copy_columns(body, parts[part], share, static_cast<std::byte*>(state.data) + place.offset,
                                         copies[part], back);
      }
    };
    each_part(false);
    answers.add(step.kernel->calls<T>().forward(KernelArgs<T>(body, step, b, keep, share), state, form,
                                                scratch_of(scratch, worker, workers)));
    each_part(true);
  });
  if (own_counts) std::memcpy(body.counts(state), counts, N * sizeof(std::int64_t));
  return answers.worst();
}

}  // namespace

std::size_t kernel_workspace(const Plan::Body& body, const Step& step, std::int64_t time, std::int64_t past,
                             Form form, bool backward) {
  if (step.kernel->traits.literal) return 0;
  if (by_segments(step, form)) return segments_workspace(body, step, time, form, backward);
  const auto of = [&](const auto& calls) {
    return calls.after ? calls.after(body, step, time, past, backward)
                       : calls.workspace(body, step, time + past, form, backward);
  };
  const std::size_t counts =
      step.compact
          ? static_cast<std::size_t>(body.shape.batch) * static_cast<std::size_t>(body.shape.key_heads) * 8 + 64
          : 0;
  const std::size_t one = (body.options.type == Type::f32 ? of(step.kernel->f32) : of(step.kernel->f64)) +
                          panel_bytes(body, step) + counts;
  if (body.options.threads == 1) return one;
  Arena arena;
  arena.take<std::int64_t>(std::ptrdiff_t{body.shape.batch} * most_tasks(body.options.threads));
  for (const StatePart& part : parts_of(body, step))
    if (!part.history) arena.take<std::byte>(static_cast<std::ptrdiff_t>(numbers(part) * size_of(part.type)));
  for (int i = 0; i < workers_of(body, step); ++i) arena.take<std::byte>(static_cast<std::ptrdiff_t>(one));
  if (!has_team(step, form, backward)) return arena.bytes();
  const auto of_team = [&](const auto& calls) {
    return calls.team_workspace(body, step, time + past, form, backward, body.options.threads);
  };
  return std::max(arena.bytes(),
                  body.options.type == Type::f32 ? of_team(step.kernel->f32) : of_team(step.kernel->f64));
}

template <class T>
Status kernel_forward(const Plan::Body& body, const Step& step, const Binding<T>& b, State state, Form form,
                      Workspace work, bool keep) noexcept {
  if (by_segments(step, form)) return forward_by_segments(body, step, b, state, form, work);
  if constexpr (sizeof(T) == 4)
    if (step.compact) return forward_compact(body, step, b, state, form, work);
  const Partition cut = partition_of(body, step, b, state, false);
  const Team team = team_of(body, step, b, state, form, false, cut);
  if (cut.tasks() > 1 && team.workers() == 1) return forward_in_tasks(body, step, b, cut, state, form, work, keep);
  return step.kernel->calls<T>().forward(KernelArgs<T>(body, step, b, keep, {}, team), state, form, work);
}

template <class T>
Status kernel_backward(const Plan::Body& body, const Step& step, const Binding<T>& b, const Call& call, Form form,
                       Arena arena) noexcept {
  if (by_segments(step, form)) return backward_by_segments(body, step, b, call, form, arena);
  const Partition cut = partition_of(body, step, b, call.state, true);
  const Team team = team_of(body, step, b, ConstState(call.state), form, true, cut);
  if (cut.tasks() == 1 || team.workers() > 1)
    return step.kernel->calls<T>().backward(KernelArgs<T>(body, step, b, true, {}, team), call, form, arena);
  Answers answers;
  const Workspace scratch = arena.rest();
  const int workers = workers_of(body, step);
  threads::for_each(crew_of(body, workers), cut.tasks(), [&](int i, int worker) {
    const Arena own(scratch_of(scratch, worker, workers));
    Shard share = shard_of(body, cut, i, b.sequences.size());
    // The states of some heads are neighbours within one sequence only.
    const std::size_t calls = cut.heads > 1 ? b.sequences.size() : 1;
    for (std::size_t n = 0; n < calls; ++n) {
      if (cut.heads > 1) share.first_sequence = n, share.sequences = 1;
      const KernelArgs<T> operands(body, step, b, true, share);
      answers.add(step.kernel->calls<T>().backward(operands, call, form, own));
    }
  });
  return answers.worst();
}

template Status kernel_forward<float>(const Plan::Body&, const Step&, const Binding<float>&, State, Form, Workspace,
                                      bool) noexcept;
template Status kernel_forward<double>(const Plan::Body&, const Step&, const Binding<double>&, State, Form, Workspace,
                                       bool) noexcept;
template Status kernel_backward<float>(const Plan::Body&, const Step&, const Binding<float>&, const Call&, Form,
                                       Arena) noexcept;
template Status kernel_backward<double>(const Plan::Body&, const Step&, const Binding<double>&, const Call&, Form,
                                        Arena) noexcept;

}  // namespace ttr
