#include "run/segments.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "families/family.h"
#include "run/partition.h"
#include "run/strided.h"
#include "run/tasks.h"
#include "threads/pool.h"

namespace ttr {
namespace {

using Size = std::ptrdiff_t;

constexpr Size most_segments = 64;  // of a sequence, and of a round

Size segment_length(Size tokens, Size shortest) {
  return std::max(shortest, (tokens + most_segments - 1) / most_segments);
}

// The values of a step without a time axis: all segments of a head add to their gradients.
template <class Visit>
void each_shared(const Plan::Body& body, const Step& step, Visit&& visit) {
  for (auto at = step.operands.begin(); at != step.operands.end(); ++at)
    if (*at >= 0 && value(body, *at).places.time < 0 && std::find(step.operands.begin(), at, *at) == at) visit(*at);
}

// Of a unit: a sequence and the heads of one key head.
struct Segment {
  std::size_t sequence;
  int group;
  Size begin, end;  // tokens
  Size index;       // in the round
  Size unit;        // in the round; the units before it each have one slot more than segments, for their ends
  Size head;        // index of the first segment of the unit
  bool last;
  bool first() const { return index == head; }
  Size slot() const { return index + unit; }  // of the state at its start; the next one is that at its end
};

template <class T>
class Segments {
 public:
  Segments(const Plan::Body& body, const Step& step, Form form, std::int64_t time, bool backward, Arena& arena)
      : body_(body),
        step_(step),
        form_(form),
        calls_(*step.kernel->calls<T>().segments),
        parts_(parts_of(body, step)),
        state_bytes_(static_cast<Size>(segment_place(body, parts_, parts_.size()))),
        heads_(body.shape.heads / body.shape.key_heads) {
    const Size units = Size{body.shape.batch} * body.shape.key_heads;
    const Size segments = std::min(most_segments, units * (static_cast<Size>(time) / calls_.shortest + 1));
    const Size slots = segments + std::min(units, segments);
    states_ = arena.take<std::byte>(slots * state_bytes_);
    outside_ = arena.take<bool>(segments * heads_);
    if (!backward) return;
    d_states_ = arena.take<std::byte>(slots * state_bytes_);
    each_shared(body, step, [&](int index) { shared_ += elements(index); });
    shared_gradients_ = arena.take<T>(segments * shared_);
  }

  Status forward(const Binding<T>& b, State state, Workspace scratch) {
    b_ = &b, scratch_ = scratch;
    return rounds(state, [&] {
      starts(state, false);
      each_segment([&](const Segment& own, Workspace work) {
        const KernelArgs<T> args(body_, step_, b, true, shard(own));
        answers_.add(step_.kernel->calls<T>().forward(args, slot(own.slot()), form_, work));
        if (own.last) exchange(state, own, slot(own.slot()), true);
      });
    });
  }

  Status backward(const Binding<T>& b, const Call& call, Workspace scratch) {
    b_ = &b, scratch_ = scratch;
    return rounds(call.state, [&] {
      std::fill_n(shared_gradients_, count_ * shared_, T(0));
      starts(call.state, true);
      each_segment([&](const Segment& own, Workspace work) {
        Binding<T> with_own;
        bind_own(own, with_own);
        const KernelArgs<T> args(body_, step_, with_own, true, shard(own));
        Call part = call;
        part.state = slot(own.slot()), part.d_final = {}, part.d_initial = d_slot(own.slot());
        std::memset(part.d_initial.data, 0, part.d_initial.bytes);
        answers_.add(step_.kernel->calls<T>().backward(args, part, form_, Arena(work)));
      });
      each_unit([&](const Segment* first, const Segment* end, Workspace work) {
        gradients_of_starts(call, first, end, work);
      });
      each_segment([&](const Segment& own, Workspace work) {
        if (own.last && !call.d_final.data) return;
        Binding<T> with_own;
        bind_own(own, with_own);
        const KernelArgs<T> args(body_, step_, with_own, true, shard(own));
        const State d_end = d_slot(own.slot() + 1);
        Call part = call;
        part.state = slot(own.slot()), part.d_final = {d_end.data, d_end.bytes}, part.d_initial = {};
        calls_.back(args, part, Arena(work));
      });
      add_shared();
    });
  }

 private:
  State slot(Size i) const { return {states_ + i * state_bytes_, static_cast<std::size_t>(state_bytes_)}; }
  State d_slot(Size i) const { return {d_states_ + i * state_bytes_, static_cast<std::size_t>(state_bytes_)}; }
  Size elements(int index) const {
    return static_cast<Size>(body_.elements(value(body_, index).axes, body_.shape.batch, 1, 1));
  }
  const bool* outside_of(const Segment& own) const { return outside_ + own.head * heads_; }

  Shard shard(const Segment& own) const {
    Shard share;
    share.first_sequence = own.sequence, share.sequences = 1;
    share.first_group = own.group, share.groups = 1;
    share.segment = true, share.begin = own.begin, share.end = own.end;
    share.outside = outside_of(own);
    return share;
  }

  // Puts whole units on the list, as many as there is room for, and calls round(), until none is left.
  template <class Round>
  Status rounds(ConstState state, Round&& round) {
    const KernelArgs<T> whole(body_, step_, *b_);
    const std::span<const Sequence> sequences = whole.sequences();
    threads_ = is_much_work(body_, step_, *b_, state) ? body_.options.threads : 1;
    Size units = 0;
    for (std::size_t n = 0; n < sequences.size(); ++n)
      for (int group = 0; group < body_.shape.key_heads; ++group) {
        const Size time = sequences[n].end - sequences[n].begin, length = segment_length(time, calls_.shortest);
        const Size segments = std::max<Size>(1, (time + length - 1) / length);  // of no tokens: one that hands over
        if (count_ + segments > most_segments) round(), count_ = 0, units = 0;
        for (Size j = 0, head = count_; j < segments; ++j, ++count_) {
          const Size begin = sequences[n].begin + j * length, end = std::min(begin + length, sequences[n].end);
          list_[static_cast<std::size_t>(count_)] = {n, group, begin, end, count_, units, head, j + 1 == segments};
        }
        ++units;
      }
    if (count_ > 0) round();
    return answers_.worst();
  }
  threads::Crew crew() const {
    threads::Crew all = body_.crew();
    all.threads = threads_;
    return all;
  }
  template <class Task>
  void each_segment(Task&& task) {
    threads::for_each(crew(), static_cast<int>(count_), [&](int i, int worker) {
      task(list_[static_cast<std::size_t>(i)], scratch_of(scratch_, worker, body_.options.threads));
    });
  }
  // task(its first segment, behind its last one, scratch) for every unit
  template <class Task>
  void each_unit(Task&& task) {
    const Segment* const list = list_.data();
    threads::for_each(crew(), static_cast<int>(list[count_ - 1].unit) + 1, [&](int unit, int worker) {
      const auto before = [](const Segment& s, Size u) { return s.unit < u; };
      task(std::lower_bound(list, list + count_, Size{unit}, before),
           std::lower_bound(list, list + count_, Size{unit} + 1, before),
           scratch_of(scratch_, worker, body_.options.threads));
    });
  }

  // The state at the start of every segment, and at the end of the last if gradients are translated there.
  void starts(State state, bool backward) {
    const bool ends = backward && calls_.d_in;
    each_segment([&](const Segment& own, Workspace work) {
      Shard share = shard(own);
      share.outside = nullptr;
      const KernelArgs<T> args(body_, step_, *b_, true, share);
      calls_.sum(args, own.last && !ends ? State{} : slot(own.slot() + 1), outside_ + own.index * heads_, work);
    });
    each_unit([&](const Segment* first, const Segment* end, Workspace work) {
      for (const Segment* s = first + 1; s < end; ++s)
        for (Size h = 0; h < heads_; ++h) outside_[first->index * heads_ + h] |= outside_[s->index * heads_ + h];
      exchange(state, *first, slot(first->slot()), false);
      for (const Segment* s = first; s < end; ++s) {
        if (s->last && !ends) continue;
        const KernelArgs<T> args(body_, step_, *b_, true, shard(*s));
        calls_.join(args, slot(s->slot()), slot(s->slot() + 1), work);
      }
    });
  }

  // Right to left: of the end from the caller, of every start, and of the first to the caller.
  void gradients_of_starts(const Call& call, const Segment* first, const Segment* end, Workspace work) {
    const Segment& last = end[-1];
    const State d_end = d_slot(last.slot() + 1);
    std::memset(d_end.data, 0, d_end.bytes);
    if (call.d_final.data) {
      const KernelArgs<T> args(body_, step_, *b_, true, shard(last));
      exchange({const_cast<void*>(call.d_final.data), call.d_final.bytes}, last, d_end, false);
      if (calls_.d_in) calls_.d_in(args, slot(last.slot() + 1), d_end, work);
    }
    for (const Segment* s = end; s-- > first;) {
      const KernelArgs<T> args(body_, step_, *b_, true, shard(*s));
      if (!s->last || call.d_final.data) calls_.pass(args, d_slot(s->slot() + 1), d_slot(s->slot()));
    }
    if (!call.d_initial.data) return;
    const KernelArgs<T> args(body_, step_, *b_, true, shard(*first));
    if (calls_.d_out) calls_.d_out(args, slot(first->slot()), d_slot(first->slot()), work);
    exchange(call.d_initial, *first, d_slot(first->slot()), true);
  }

  // The unit's part of a state of the caller to a slot, or back: then not for heads outside the domain, whose state stays.
  void exchange(State whole, const Segment& own, State slot, bool back) const {
    const std::size_t heads = static_cast<std::size_t>(heads_);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::size_t one = numbers(parts_[i]) * size_of(parts_[i].type),
                        head = one / static_cast<std::size_t>(body_.shape.heads);
      const StatePlace place = body_.state_place(whole, step_.state + static_cast<int>(i));
      std::byte* const theirs = static_cast<std::byte*>(whole.data) + place.offset + own.sequence * one +
                                static_cast<std::size_t>(own.group) * heads * head;
      std::byte* const ours = static_cast<std::byte*>(slot.data) + segment_place(body_, parts_, i);
      for (std::size_t h = 0; h < heads; ++h) {
        if (!back) std::memcpy(ours + h * head, theirs + h * head, head);
        else if (!outside_of(own)[h]) std::memcpy(theirs + h * head, ours + h * head, head);
      }
    }
  }

  // The binding of the call, with gradients of a segment's own where those of the call have no time axis.
  void bind_own(const Segment& own, Binding<T>& to) const {
    std::copy_n(b_->values.begin(), body_.pipeline.values.size(), to.values.begin());
    to.batch = b_->batch, to.time = b_->time, to.pairs = b_->pairs;
    to.sequences = b_->sequences, to.pair_sequences = b_->pair_sequences;
    T* at = shared_gradients_ + own.index * shared_;
    each_shared(body_, step_, [&](int index) {
      Bound<T>& bound = to.values[static_cast<std::size_t>(index)];
      if (bound.gradient) {
        PerAxis extent{};
        contiguous(body_, value(body_, index).axes, b_->batch, 1, 1, extent, bound.gradient_stride);
        bound.gradient = at;
      }
      at += elements(index);
    });
  }
  // These added up, in the order of time.
  void add_shared() const {
    for (Size i = 0; i < count_; ++i) {
      const T* at = shared_gradients_ + i * shared_;
      each_shared(body_, step_, [&](int index) {
        const Bound<T>& bound = b_->values[static_cast<std::size_t>(index)];
        const Axes& axes = value(body_, index).axes;
        PerAxis extent{}, stride{};
        contiguous(body_, axes, b_->batch, 1, 1, extent, stride);
        const int rank = static_cast<int>(axes.size());
        if (bound.gradient)
          for_each_row<2>(rank, extent, {&stride, &bound.gradient_stride}, [&](const auto& offset, Size count) {
            for (Size j = 0; j < count; ++j)
              bound.gradient[offset[1] + j * step_of(rank, bound.gradient_stride)] += at[offset[0] + j];
          });
        at += elements(index);
      });
    }
  }

  const Plan::Body& body_;
  const Step& step_;
  Form form_;
  const SegmentCalls<T>& calls_;
  std::span<const StatePart> parts_;
  Size state_bytes_, heads_;  // of the state of a unit; heads of a unit
  Size shared_ = 0;           // numbers of a segment's own gradients
  std::byte *states_ = nullptr, *d_states_ = nullptr;
  bool* outside_ = nullptr;  // [segments, heads]; of the first segment of a unit: of the whole unit
  T* shared_gradients_ = nullptr;

  const Binding<T>* b_ = nullptr;
  Workspace scratch_{};
  int threads_ = 1;
  Answers answers_;
  std::array<Segment, most_segments> list_;
  Size count_ = 0;
};

template <class T>
std::size_t bytes_of(const Plan::Body& body, const Step& step, std::int64_t time, Form form, bool backward) {
  Arena arena;
  const Segments<T> slots(body, step, form, time, backward, arena);
  const Size length = segment_length(static_cast<Size>(time), step.kernel->calls<T>().segments->shortest);
  const std::size_t one = step.kernel->calls<T>().workspace(body, step, std::min<Size>(length, time), form, backward);
  for (int i = 0; i < body.options.threads; ++i) arena.take<std::byte>(static_cast<Size>(one) + 64);
  return arena.bytes();
}

}  // namespace

bool by_segments(const Step& step, Form form) noexcept {
  return form == Form::parallel && (step.kernel->f32.segments || step.kernel->f64.segments);
}

std::size_t segments_workspace(const Plan::Body& body, const Step& step, std::int64_t time, Form form,
                               bool backward) {
  if constexpr (builds_f64)
    if (body.options.type == Type::f64) return bytes_of<double>(body, step, time, form, backward);
  return bytes_of<float>(body, step, time, form, backward);
}

template <class T>
Status forward_by_segments(const Plan::Body& body, const Step& step, const Binding<T>& b, State state, Form form,
                           Workspace work) noexcept {
  Arena arena(work);
  Segments<T> all(body, step, form, b.time * step.pairs, false, arena);
  return all.forward(b, state, arena.rest());
}

template <class T>
Status backward_by_segments(const Plan::Body& body, const Step& step, const Binding<T>& b, const Call& call,
                            Form form, Arena arena) noexcept {
  Segments<T> all(body, step, form, b.time * step.pairs, true, arena);
  return all.backward(b, call, arena.rest());
}

#define TTR_INSTANTIATE(T)                                                                                   \
  template Status forward_by_segments(const Plan::Body&, const Step&, const Binding<T>&, State, Form,        \
                                      Workspace) noexcept;                                                   \
  template Status backward_by_segments(const Plan::Body&, const Step&, const Binding<T>&, const Call&, Form, \
                                       Arena) noexcept;
TTR_INSTANTIATE(float)
TTR_INSTANTIATE(double)
#undef TTR_INSTANTIATE

}  // namespace ttr
