#include "plan/cut.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "plan/kernels.h"

namespace ttr {
namespace {

bool has_axis(const Plan::Body& body, int index, std::string_view letters) {
  return value(body, index).axes.find_first_of(letters) != std::string::npos;
}

// Not where heads see each other, nor where a part of the state does not begin with the heads.
bool cuts_by_heads(const Plan::Body& body, const Step& step) {
  if (step.kernel == KernelKind::arrangement || step.kernel == KernelKind::landmarks) return false;
  for (const StatePart& part : parts_of(body, step)) {
    const std::string& shape = part.info.shape;  // "B H K V"; of a history "B N G K"
    const std::size_t heads = part.history ? 4 : 2;
    if (shape.size() <= heads || (shape[heads] != 'H' && shape[heads] != 'G')) return false;
  }
  return has_axis(body, step.to, "H") && (step.also < 0 || has_axis(body, step.also, "H"));
}

bool cuts_by_columns(const Plan::Body& body, const Step& step) {
  switch (step.kernel) {
    case KernelKind::decay:
    case KernelKind::delta:
    case KernelKind::gated:
    case KernelKind::dplr:
    case KernelKind::momentum:
    case KernelKind::selective:
    case KernelKind::channel:
    case KernelKind::weighted_mean:
    case KernelKind::convolution:
      break;
    default:
      return false;
  }
  const auto ends_with_values = [&](int index) { return index < 0 || value(body, index).axes.back() == 'V'; };
  const std::span<const StatePart> parts = parts_of(body, step);
  return parts.size() <= Share::most_parts && step.from[Role::v] >= 0 && ends_with_values(step.from[Role::v]) &&
         ends_with_values(step.to) && ends_with_values(step.also) &&
         std::all_of(parts.begin(), parts.end(), [](const StatePart& part) { return part.info.shape.back() == 'V'; });
}

// Multiplications of a step, roughly.
template <class T>
double work_of(const Plan::Body& body, const Step& step, const Binding<T>& b, ConstState state) {
  const Operands<T> o(body, step, b);
  double tokens = 0, pairs = 0;
  for (std::size_t n = 0; n < o.sequences().size(); ++n) {
    const double own = static_cast<double>(o.sequences()[n].end - o.sequences()[n].begin);
    const double kept = body.pipeline.history ? static_cast<double>(o.counts(state)[n]) : 0.0;
    tokens += own, pairs += own * (kept + own / 2);
  }
  const double K = body.key_width, V = body.value_width, H = body.shape.heads;
  if (body.pipeline.own_pairs) return tokens * static_cast<double>(b.pairs) * H * (K + V);
  if (keeps_pairs(step.kernel)) return pairs * H * (K + V);
  return step.kernel == KernelKind::carry ? tokens * H * V : tokens * H * V * (3 * K + 4);
}
constexpr double least_work = 300e3;  // some ten microseconds: with less a second thread costs more than it brings
constexpr int least_columns = 16;     // of a task: a vector of floats

}  // namespace

std::span<const StatePart> parts_of(const Plan::Body& body, const Step& step) {
  const std::vector<StatePart>& all = body.pipeline.states;
  std::size_t end = all.size();
  for (const Step& other : body.pipeline.steps)
    if (other.is_kernel && other.state > step.state) end = std::min(end, static_cast<std::size_t>(other.state));
  return std::span(all).subspan(static_cast<std::size_t>(step.state), end - static_cast<std::size_t>(step.state));
}

template <class T>
Cut cut_of(const Plan::Body& body, const Step& step, const Binding<T>& b, ConstState state, bool backward) noexcept {
  const int threads = body.options.threads;
  if (threads == 1 || work_of(body, step, b, state) < least_work) return {};
  const int N = static_cast<int>(b.sequences.size()), G = body.shape.key_heads;
  Cut cut;
  bool heads = cuts_by_heads(body, step);
  if (!backward) {
    const bool alike = b.batch == N && N % threads == 0;  // packed sequences have lengths of their own
    if (!heads || N >= 4 * threads || alike) cut.sequences = std::min(N, 4 * threads);
    else cut.sequences = N, cut.heads = std::min(G, threads);
    if (cut.tasks() == 1 && cuts_by_columns(body, step))
      cut.columns = std::clamp(body.shape.value_dim / least_columns, 1, threads);
    return cut;
  }
  bool sequences = true;
  for (const int index : step.from)
    if (index >= 0 && b.values[static_cast<std::size_t>(index)].gradient)
      heads &= has_axis(body, index, "HG"), sequences &= has_axis(body, index, "B");
  if (heads && G > 1) cut.heads = std::min(G, threads);
  else if (sequences && b.batch > 1) cut.sequences = std::min(N, 4 * threads);
  return cut;
}

Share share_of(const Plan::Body& body, const Cut& cut, int i, std::size_t sequences) noexcept {
  Share share;
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

template Cut cut_of<float>(const Plan::Body&, const Step&, const Binding<float>&, ConstState, bool) noexcept;
template Cut cut_of<double>(const Plan::Body&, const Step&, const Binding<double>&, ConstState, bool) noexcept;

}  // namespace ttr
