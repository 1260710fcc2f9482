#include "run/undo.h"

#include <algorithm>
#include <cstring>

#include "run/kernels.h"
#include "run/partition.h"

namespace ttr {
namespace {

using families::Sequence;

// The first token of sequence n that runs alone.
template <class T>
std::ptrdiff_t first_single(const Plan::Body& body, const Binding<T>& b, std::size_t n) {
  const Sequence& s = b.sequences[n];
  const std::ptrdiff_t end = s.end + (b.later ? b.later[n] : 0);
  return std::clamp<std::ptrdiff_t>(end - body.options.rewind, s.begin, s.end);
}

// Before token `token` of sequence n (since reset): what the step will change.
void keep(const Plan::Body& body, const Step& step, State state, std::size_t n, std::int64_t token) {
  const std::size_t R = static_cast<std::size_t>(body.options.rewind),
                    at = n * R + static_cast<std::size_t>(token) % R, first = static_cast<std::size_t>(step.state);
  std::byte* const base = static_cast<std::byte*>(state.data);
  for (std::size_t i = first; i < first + parts_of(body, step).size(); ++i) {
    if (body.layout.undo_part[i] == StateLayout::none) continue;
    const StatePart& part = body.pipeline.states[i];
    const StatePlace place = body.state_place(state, static_cast<int>(i));
    const std::size_t one = numbers(part) * size_of(part.type);
    std::size_t bytes = one, stride = one;
    if (part.history) {  // its oldest pairs
      stride *= static_cast<std::size_t>(place.capacity);
      bytes = std::min(one * static_cast<std::size_t>(body.counts(state)[n]), body.layout.undo_bytes[i]);
    }
    std::memcpy(base + body.layout.undo_part[i] + at * body.layout.undo_bytes[i], base + place.offset + n * stride,
                bytes);
  }
}

bool goes_on(Status s) { return s == Status::ok || s == Status::out_of_domain; }

}  // namespace

template <class T>
Status kernel_forward_undoable(const Plan::Body& body, const Step& step, const Binding<T>& b, State state, Form form,
                               Workspace work, const UndoScratch& scratch) noexcept {
  if (step.state < 0 || parts_of(body, step).empty()) return kernel_forward(body, step, b, state, form, work);
  // The literal solver changes nothing if one token has no answer: it is asked before the state is touched.
  if (step.kernel->traits.literal)
    if (const Status s = kernel_forward(body, step, b, state, form, work, false); s != Status::ok) return s;
  const std::size_t N = b.sequences.size();
  const std::ptrdiff_t pairs = body.pipeline.pairs;
  Binding<T> piece;
  std::copy_n(b.values.begin(), body.pipeline.values.size(), piece.values.begin());
  piece.batch = b.batch, piece.time = b.time, piece.pairs = b.pairs;
  piece.sequences = {scratch.sequences, N}, piece.pair_sequences = {scratch.of_pairs, N};
  piece.earlier = scratch.earlier;
  const auto set = [&](std::size_t n, std::ptrdiff_t begin, std::ptrdiff_t end) {
    scratch.sequences[n] = {b.sequences[n].row, begin, end};
    scratch.of_pairs[n] = {b.sequences[n].row, begin * pairs, end * pairs};
    scratch.earlier[n] = begin - b.sequences[n].begin;
  };
  Status worst = Status::ok;
  const auto run = [&](Form how) {
    const Status s = kernel_forward(body, step, piece, state, how, work);
    if (s != Status::ok) worst = s;
    return goes_on(s);
  };
  // Another kernel of the layer may have counted the tokens of the call already, and has then kept the counts.
  const bool counts = body.has_counts() && std::equal(scratch.counts, scratch.counts + N, body.counts(state));
  bool some = false;
  for (std::size_t n = 0; n < N; ++n) {
    const std::ptrdiff_t end = first_single(body, b, n);
    set(n, b.sequences[n].begin, end);
    some |= end > b.sequences[n].begin;
  }
  if (some && !run(form)) return worst;
  const std::size_t R = static_cast<std::size_t>(body.options.rewind);
  for (std::ptrdiff_t j = 0; j < body.options.rewind; ++j) {
    some = false;
    for (std::size_t n = 0; n < N; ++n) {
      const Sequence& s = b.sequences[n];
      const std::ptrdiff_t t = first_single(body, b, n) + j;
      set(n, std::min(t, s.end), std::min(t + 1, s.end));
      if (t >= s.end) continue;
      some = true;
      const std::int64_t token = body.seen(state)[n] + (t - s.begin);
      keep(body, step, state, n, token);
      if (counts) body.undo_counts(state)[n * R + static_cast<std::size_t>(token) % R] = body.counts(state)[n];
    }
    if (!some) break;
    if (!run(Form::recurrent)) break;
  }
  return worst;
}

template <class T>
void count_tokens(const Plan::Body& body, const Binding<T>& b, State state) noexcept {
  std::int64_t* const seen = body.seen(state);
  if (!seen) return;
  std::int64_t* const undo = body.undo(state);
  for (std::size_t n = 0; n < b.sequences.size(); ++n) {
    const Sequence& s = b.sequences[n];
    seen[n] += s.end - s.begin;
    if (!undo) continue;
    const std::ptrdiff_t single = first_single(body, b, n);
    if (single > s.begin) undo[n] = 0;
    undo[n] = std::min<std::int64_t>(undo[n] + (s.end - single), body.options.rewind);
  }
}

#define TTR_UNDO(T)                                                                                          \
  template Status kernel_forward_undoable<T>(const Plan::Body&, const Step&, const Binding<T>&, State, Form, \
                                             Workspace, const UndoScratch&) noexcept;                        \
  template void count_tokens<T>(const Plan::Body&, const Binding<T>&, State) noexcept;
TTR_UNDO(float)
TTR_UNDO(double)
#undef TTR_UNDO

}  // namespace ttr
