#include "run/partition.h"

#include <algorithm>
#include <optional>
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

// Whether the heads of one key head may go to different tasks, forwards: each has a state of its own.
bool splits_groups(const Plan::Body& body, const Step& step) {
  if (step.kernel->traits.keeps_pairs || body.pipeline.noncausal || !splits_heads(body, step)) return false;
  const std::span<const StatePart> parts = parts_of(body, step);
  return std::all_of(parts.begin(), parts.end(),
                     [](const StatePart& part) { return !part.history && part.axes[1] == 'H'; });
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
constexpr std::int64_t least_tokens = 256;  // of a sequence that a team works on, where heads could be divided

constexpr int rounds(int parts, int threads) { return (parts + threads - 1) / threads; }

// The time of a partition by heads and columns, in heads. What depends on the keys alone is computed for all columns
// again.
double time_of(const Plan::Body& body, const Partition& cut, int sequences, int threads) {
  const int G = body.shape.key_heads, group = body.shape.heads / G;
  const int largest = cut.of_group > 1 ? rounds(group, cut.of_group) : rounds(G, cut.heads) * group;
  if (cut.columns == 1) return double{1} * rounds(sequences * cut.heads, threads) * largest;
  const int divided = (cut.heads - cut.whole) * cut.columns;
  return (rounds(cut.whole, threads) + 1.15 * rounds(divided, threads) / cut.columns) * largest;
}

// Heads of one sequence after another, forwards. The more heads a task has the better: they share what they fetch.
Partition by_heads(const Plan::Body& body, const Step& step, int sequences, bool heads) {
  const int threads = body.options.threads, G = heads ? body.shape.key_heads : 1;
  const int group = heads && splits_groups(body, step) ? body.shape.heads / G : 1;
  const bool columns = sequences == 1 && splits_columns(body, step);
  Partition best;
  double least = 0;
  const auto offer = [&](int parts, int of_group) {
    for (const bool divided : {false, true}) {
      Partition cut{sequences, parts, 1, 0, of_group};
      if (divided) {
        cut.whole = parts / threads * threads;
        if (!columns || cut.whole == parts) continue;
        cut.columns = std::clamp(body.shape.value_dim / least_columns, 1, rounds(threads, parts - cut.whole));
        if (cut.columns == 1) continue;
      }
      const double time = time_of(body, cut, sequences, threads);
      if (least == 0 || time < 0.97 * least) least = time, best = cut;
    }
  };
  offer(std::min(G, threads), 1);
  if (G > threads && G <= 4 * threads) offer(G, 1);
  for (int parts = 2; parts <= group && G * parts <= 4 * threads; ++parts) offer(G * parts, parts);
  return best;
}

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
  const int heads = splits_groups(body, step)  ? body.shape.heads
                    : splits_heads(body, step) ? body.shape.key_heads
                                               : 1;
  return static_cast<int>(std::min<std::int64_t>(threads, std::int64_t{body.shape.batch} * heads));
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
    if (N > 1 && (!heads || N >= 4 * threads || alike)) cut.sequences = std::min(N, 4 * threads);
    else cut = by_heads(body, step, N, heads);
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

bool has_team(const Step& step, Form form, bool backward) noexcept {
  return step.kernel->traits.team.has(form == Form::best ? Form::chunk : form, backward);
}

template <class T>
Team team_of(const Plan::Body& body, const Step& step, const Binding<T>& b, ConstState state, Form form,
             bool backward, const Partition& cut) noexcept {
  const int threads = body.options.threads;
  if (threads == 1 || !has_team(step, form, backward)) return {};
  if (!leaves_idle(cut.tasks(), threads)) {
    // Heads that cannot be shared out evenly are better done one after another by all.
    const int G = body.shape.key_heads;
    const bool even = cut.sequences > 1 || cut.heads == 1 || 20 * G >= 17 * rounds(G, cut.heads) * threads;
    if (form == Form::scan || even) return {};
    for (const families::Sequence& n : b.sequences)
      if (n.end - n.begin < least_tokens) return {};
  }
  if (form == Form::best && step.kernel->tuning)
    if (const std::optional<families::Tuned> row = step.kernel->tuning(step)) {
      const int bytes = simd_of<T>(body).lanes * static_cast<int>(sizeof(T));
      const families::Choice best = families::choice(*row, bytes, width(body, step.operands[Slot::k]),
                                                     width(body, step.operands[Slot::v]), backward);
      if (best.form != Form::chunk || b.time < best.from) return {};
    }
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
  const int own = i % cut.of_sequence(), sequence = i / cut.of_sequence(), late = own - cut.whole;
  const bool divided = late >= 0 && cut.columns > 1;
  const int head = late < 0 ? own : cut.whole + late / cut.columns, column = divided ? late % cut.columns : 0;
  const auto part = [](int n, int parts, int all) {  // where it begins, and how long it is
    const auto begin_of = [&](int m) { return static_cast<int>(std::int64_t{all} * m / parts); };
    return std::pair(begin_of(n), begin_of(n + 1) - begin_of(n));
  };
  if (cut.sequences > 1) {
    const auto [first, count] = part(sequence, cut.sequences, static_cast<int>(sequences));
    share.first_sequence = static_cast<std::size_t>(first), share.sequences = static_cast<std::size_t>(count);
  }
  if (cut.heads > 1) {
    const int groups = cut.heads / cut.of_group, group = body.shape.heads / body.shape.key_heads;
    std::tie(share.first_group, share.groups) = part(head / cut.of_group, groups, body.shape.key_heads);
    if (cut.of_group > 1) std::tie(share.first_head, share.heads) = part(head % cut.of_group, cut.of_group, group);
  }
  if (divided) {  // whole vectors, but for the last
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
