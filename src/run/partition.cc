#include "run/partition.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "families/common/segments.h"
#include "families/family.h"
#include "run/kernels.h"
#include "threads/pool.h"

namespace ttr {
namespace {

bool has_axis(const Plan::Body& body, int index, std::string_view letters) {
  return value(body, index).axes.has_any(letters);
}

// Not where heads see each other, nor where a part of the state does not begin with the heads.
bool splits_heads(const Plan::Body& body, const Step& step) {
  if (step.kernel->traits.couples_heads) return false;
  for (const StatePart& part : parts_of(body, step)) {
    const std::size_t heads = part.history ? 2 : 1;  // behind the batch, and the pairs of a history
    if (part.axes.size() <= heads || (part.axes[heads] != 'H' && part.axes[heads] != 'G')) return false;
  }
  return has_axis(body, step.result, "H") && (step.second_result < 0 || has_axis(body, step.second_result, "H")) &&
         (step.third_result < 0 || has_axis(body, step.third_result, "H"));
}

bool splits_columns(const Plan::Body& body, const Step& step) {
  if (!step.kernel->traits.splits_columns) return false;
  const auto ends_with_values = [&](int index) {  // a constant has no axes
    return index < 0 || (!value(body, index).axes.empty() && value(body, index).axes.back() == 'V');
  };
  const std::span<const StatePart> parts = parts_of(body, step);
  return parts.size() <= Shard::most_parts && step.operands[Slot::v] >= 0 &&
         ends_with_values(step.operands[Slot::v]) && ends_with_values(step.result) &&
         ends_with_values(step.second_result) &&
         std::all_of(parts.begin(), parts.end(), [](const StatePart& part) { return part.axes.back() == 'V'; });
}

// Multiplications of a step, roughly.
template <class T>
double work_of(const Plan::Body& body, const Step& step, const Binding<T>& b, ConstState state) {
  const KernelArgs<T> o(body, step, b);
  double tokens = 0, pairs = 0;
  for (std::size_t n = 0; n < o.sequences().size(); ++n) {
    const double own = static_cast<double>(o.sequences()[n].end - o.sequences()[n].begin);
    const double kept = body.pipeline.history ? static_cast<double>(o.counts(state)[n]) : 0.0;
    tokens += own, pairs += own * (kept + own / 2);
  }
  const double K = body.key_width, V = body.value_width, H = body.shape.heads;
  if (body.pipeline.noncausal) return tokens * static_cast<double>(b.pairs) * H * (K + V);
  if (step.kernel->traits.keeps_pairs) return pairs * H * (K + V);
  return step.kernel->traits.light ? tokens * H * V : tokens * H * V * (3 * K + 4);
}
constexpr bool leaves_idle(int parts, int threads) { return 2 * parts <= threads; }
constexpr double least_work = 300e3;  // about ten microseconds: with less, a second thread costs more than it saves
constexpr int least_columns = 16;     // of a task: a vector of floats

}  // namespace

std::span<const StatePart> parts_of(const Plan::Body& body, const Step& step) {
  const std::vector<StatePart>& all = body.pipeline.states;
  std::size_t end = all.size();
  for (const Step& other : body.pipeline.steps)
    if (other.kernel && other.state > step.state) end = std::min(end, static_cast<std::size_t>(other.state));
  return std::span(all).subspan(static_cast<std::size_t>(step.state), end - static_cast<std::size_t>(step.state));
}

template <class T>
bool is_much_work(const Plan::Body& body, const Step& step, const Binding<T>& b, ConstState state) noexcept {
  return work_of(body, step, b, state) >= least_work;
}

int workers_of(const Plan::Body& body, const Step& step) noexcept {
  const int threads = body.options.threads;
  if (threads == 1 || splits_columns(body, step)) return threads;
  return static_cast<int>(std::min<std::int64_t>(
      threads, std::int64_t{body.shape.batch} * (splits_heads(body, step) ? body.shape.key_heads : 1)));
}

template <class T>
Partition partition_of(const Plan::Body& body, const Step& step, const Binding<T>& b, ConstState state,
                       bool backward) noexcept {
  const int threads = body.options.threads;
  if (threads == 1 || step.kernel->traits.literal || !is_much_work(body, step, b, state)) return {};
  const int N = static_cast<int>(b.sequences.size()), G = body.shape.key_heads;
  Partition cut;
  bool heads = splits_heads(body, step);
  if (!backward) {
    const bool alike = b.batch == N && N % threads == 0;  // packed sequences have lengths of their own
    if (!heads || N >= 4 * threads || alike) cut.sequences = std::min(N, 4 * threads);
    else cut.sequences = N, cut.heads = std::min(G, threads);
    if (cut.tasks() == 1 && splits_columns(body, step))
      cut.columns = std::clamp(body.shape.value_dim / least_columns, 1, threads);
    return cut;
  }
  bool sequences = true;
  for (const int index : step.operands)
    if (index >= 0 && b.values[static_cast<std::size_t>(index)].gradient)
      heads &= has_axis(body, index, "HG"), sequences &= has_axis(body, index, "B");
  if (heads && G > 1) cut.heads = std::min(G, threads);
  else if (sequences && b.batch > 1) cut.sequences = std::min(N, 4 * threads);
  return cut;
}

template <class T>
Team team_of(const Plan::Body& body, const Step& step, const Binding<T>& b, ConstState state, Form form,
             bool backward, const Partition& cut) noexcept {
  const int threads = body.options.threads;
  if (threads == 1 || !step.kernel->traits.team.has(form, backward) || !leaves_idle(cut.tasks(), threads)) return {};
  if (work_of(body, step, b, state) < least_work) return {};
  return Team(
      threads,
      [](const void* owner, int tasks, Team::Task task, void* context) noexcept {
        threads::run(static_cast<const Plan::Body*>(owner)->crew(), tasks, task, context);
      },
      &body);
}

Shard shard_of(const Plan::Body& body, const Partition& cut, int i, std::size_t sequences) noexcept {
  Shard share;
  const int column = i % cut.columns, head = i / cut.columns % cut.heads, sequence = i / cut.columns / cut.heads;
  const auto part = [](int n, int parts, int all) {  // where it begins, and how long it is
    const auto begin_of = [&](int m) { return static_cast<int>(std::int64_t{all} * m / parts); };
    return std::pair(begin_of(n), begin_of(n + 1) - begin_of(n));
  };
  if (cut.sequences > 1) {
    const auto [first, count] = part(sequence, cut.sequences, static_cast<int>(sequences));
    share.first_sequence = static_cast<std::size_t>(first), share.sequences = static_cast<std::size_t>(count);
  }
  if (cut.heads > 1) std::tie(share.first_group, share.groups) = part(head, cut.heads, body.shape.key_heads);
  if (cut.columns > 1) {  // whole vectors, but for the last
    const int vectors = (body.shape.value_dim + least_columns - 1) / least_columns;
    const auto [first, count] = part(column, cut.columns, vectors);
    share.first_column = first * least_columns;
    share.columns = std::min(count * least_columns, body.shape.value_dim - share.first_column);
  }
  return share;
}

template bool is_much_work<float>(const Plan::Body&, const Step&, const Binding<float>&, ConstState) noexcept;
template bool is_much_work<double>(const Plan::Body&, const Step&, const Binding<double>&, ConstState) noexcept;
template Partition partition_of<float>(const Plan::Body&, const Step&, const Binding<float>&, ConstState,
                                       bool) noexcept;
template Team team_of<float>(const Plan::Body&, const Step&, const Binding<float>&, ConstState, Form, bool,
                             const Partition&) noexcept;
template Team team_of<double>(const Plan::Body&, const Step&, const Binding<double>&, ConstState, Form, bool,
                              const Partition&) noexcept;
template Partition partition_of<double>(const Plan::Body&, const Step&, const Binding<double>&, ConstState,
                                        bool) noexcept;

}  // namespace ttr
