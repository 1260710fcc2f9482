#include "run/operation_steps.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <type_traits>

#include "prepare/joint.h"
#include "prepare/operations.h"
#include "run/kernel_args.h"
#include "threads/pool.h"

namespace ttr {
namespace {

// Extent of axis `place` of a value if that is the `from_end`-th from its end; else 1. What width() and height() say, found
// by the places of axes instead of their letters: every operation of every token asks.
int extent_at(const Plan::Body& body, const Value& v, signed char place, std::size_t from_end) {
  const auto at = static_cast<std::size_t>(place);
  return place < 0 || at + from_end != v.axes.size() ? 1 : static_cast<int>(body.extent(v.axes[at], 1, 1));
}

// Rows of a value for an operation on `heads` heads. Written where they stay: a copy would wait for the stores of its numbers.
template <class N>
void set_rows(const Plan::Body& body, int index, N* data, const std::array<std::ptrdiff_t, max_rank>& stride,
              std::ptrdiff_t heads, prepare::Rows<N>& to) {
  const Value& v = value(body, index);
  const auto at = [&](signed char place) { return place < 0 ? 0 : stride[static_cast<std::size_t>(place)]; };
  const int of = heads_of(body, index);
  to.data = data;
  to.batch = at(v.places.batch), to.time = at(v.places.time), to.head = at(v.places.head);
  to.inner = at(v.places.inner), to.outer = at(v.places.outer);
  to.group = heads <= of ? 1 : static_cast<int>(heads / of);
  to.width = extent_at(body, v, v.places.inner, 1);
  to.height = v.places.inner < 0 ? 1 : extent_at(body, v, v.places.outer, 2);
}
template <class T>
void set_rows(const Plan::Body& body, const Binding<T>& b, int index, std::ptrdiff_t heads,
              prepare::Rows<const T>& to) {
  const Bound<T>& bound = b.values[static_cast<std::size_t>(index)];
  set_rows<const T>(body, index, bound.data, bound.stride, heads, to);
}

// The extent of an operation is that of its result; parameters have no batch and no time.
template <class T>
prepare::Extent operation_extent(const Plan::Body& body, const Binding<T>& b, const Step& step) {
  const AxisPlaces& places = value(body, step.result).places;
  const std::ptrdiff_t time = places.of_pairs ? b.pairs : b.time;
  return {places.batch < 0 ? 1 : b.batch, places.time < 0 ? 1 : time,
          places.head < 0 ? 1 : heads_of(body, step.result)};
}

// A matrix operand whose axes stand the other way round than those of a matrix result.
template <class N>
void turn_like(const Plan::Body& body, int to, int index, prepare::Rows<N>& rows) {
  const Axes &result = value(body, to).axes, &own = value(body, index).axes;
  const std::size_t n = result.size(), m = own.size();
  if (n < 2 || m < 2 || !Axes::is_inner(result[n - 2]) || result[n - 2] != own[m - 1] || result[n - 1] != own[m - 2])
    return;
  std::swap(rows.inner, rows.outer), std::swap(rows.width, rows.height);
}

// The operands of an operation, and of its gradient.
template <class T>
struct Operation {
  Operation(const Plan::Body& body, const Step& step, const Binding<T>& b)
      : op(step.op), number(step.number), count(step.operands.size()), extent(operation_extent(body, b, step)) {
    for (std::size_t i = 0; i < count; ++i) {
      set_rows(body, b, step.operands[i], extent.heads, from[i]);
      turn_like(body, step.result, step.operands[i], from[i]);
    }
  }
  prepare::Op op;
  double number;
  std::size_t count;
  prepare::Extent extent;
  prepare::Rows<const T> from[prepare::max_operands];
  prepare::Rows<T> to;                  // forwards
  prepare::Rows<const T> result, d_to;  // backwards
  prepare::Rows<T> d_from[prepare::max_operands];

  // visit(rows) for every operand that there is
  template <class Visit>
  void each_rows(Visit&& visit) {
    for (std::size_t i = 0; i < count; ++i) visit(from[i]), visit(d_from[i]);
    visit(to), visit(result), visit(d_to);
  }
  // Tokens begin .. end-1, or heads.
  Operation tokens(std::ptrdiff_t begin, std::ptrdiff_t end) const {
    Operation part = *this;
    part.extent.time = end - begin;
    part.each_rows([&](auto& r) { r.data = r.data ? r.data + begin * r.time : nullptr; });
    return part;
  }
  Operation heads(std::ptrdiff_t begin, std::ptrdiff_t end) const {
    Operation part = *this;
    part.extent.heads = end - begin;
    part.each_rows([&](auto& r) { r.data = r.data ? r.data + begin / r.group * r.head : nullptr; });
    return part;
  }
};

enum class Along { nothing, tokens, heads };

constexpr std::ptrdiff_t least_elements = 1 << 15;  // of a result: about ten microseconds of work

template <class T>
std::ptrdiff_t elements(const Operation<T>& o, const prepare::Rows<T>& to) {
  return o.extent.batch * o.extent.time * o.extent.heads * to.width * to.height;
}

// Runs part(operation) on all threads of the plan.
template <class T, class Part>
void in_parts(const Operation<T>& all, Along along, const threads::Crew& crew, Part&& part) noexcept {
  const std::ptrdiff_t length = along == Along::tokens ? all.extent.time : all.extent.heads;
  std::ptrdiff_t unit = 1;  // heads that share an operand stay together
  if (along == Along::heads)
    for (std::size_t i = 0; i < all.count; ++i) unit = std::max<std::ptrdiff_t>(unit, all.from[i].group);
  const std::ptrdiff_t units = length / unit;
  const int tasks = along == Along::nothing ? 1 : static_cast<int>(std::min<std::ptrdiff_t>(crew.threads, units));
  if (tasks < 2) return part(all);
  threads::for_each(crew, tasks, [&](int i, int) {
    const std::ptrdiff_t begin = units * i / tasks * unit, end = units * (i + 1) / tasks * unit;
    part(along == Along::tokens ? all.tokens(begin, end) : all.heads(begin, end));
  });
}

template <class T>
Operation<T> forward_of(const Plan::Body& body, const Step& step, const Binding<T>& b) noexcept {
  Operation<T> all(body, step, b);
  const Bound<T>& to = b.values[static_cast<std::size_t>(step.result)];
  set_rows(body, step.result, to.writable, to.stride, all.extent.heads, all.to);
  return all;
}

template <class T>
Status run(const Plan::Body& body, const Operation<T>& o) noexcept {
  return prepare::forward(o.op, o.from, o.to, o.number, o.extent, &simd_of<T>(body));
}

// The operations of a joint with their operands.
template <class T>
struct JointOperation {
  JointOperation(const Plan::Body& body, const Joint& joint, const Binding<T>& b) {
    const auto step = [&](int i) -> const Step& { return body.pipeline.steps[static_cast<std::size_t>(i)]; };
    extent = operation_extent(body, b, step(joint.norm));
    const auto from = [&](int i, std::size_t operand, prepare::Rows<const T>& rows) {
      set_rows(body, b, step(i).operands[operand], extent.heads, rows);
    };
    const auto to = [&](int i, prepare::Rows<T>& rows) {
      const Bound<T>& bound = b.values[static_cast<std::size_t>(step(i).result)];
      set_rows(body, step(i).result, bound.writable, bound.stride, extent.heads, rows);
    };
    from(joint.multiply, 0, keys.raw), from(joint.multiply, 1, keys.scale);
    from(joint.blend, 1, keys.rate), from(joint.blend, 2, keys.blend);
    to(joint.norm, keys.read), to(joint.blend, keys.write), to(joint.erase, keys.erase);
    keys.floor = step(joint.norm).number;
    if (joint.bonus < 0) return;
    from(joint.bonus, 0, keys.query), from(joint.bonus, 2, keys.weight), from(joint.bonus, 3, keys.value);
    to(joint.bonus, keys.bonus);
  }
  JointOperation tokens(std::ptrdiff_t begin, std::ptrdiff_t end) const {
    JointOperation part = *this;
    prepare::JointKeys<T>& k = part.keys;
    part.extent.time = end - begin;
    const auto move = [&](auto&... r) { ((r.data = r.data ? r.data + begin * r.time : nullptr), ...); };
    move(k.raw, k.scale, k.rate, k.blend, k.read, k.write, k.erase, k.query, k.weight, k.value, k.bonus);
    return part;
  }
  prepare::JointKeys<T> keys;
  prepare::Extent extent{};
};

}  // namespace

template <class T>
Status joint_forward(const Plan::Body& body, const Joint& joint, const Binding<T>& b) noexcept {
  const JointOperation<T> all(body, joint, b);
  const std::ptrdiff_t time = all.extent.time;
  const bool cut =
      body.options.threads > 1 && all.extent.batch * time * all.extent.heads * all.keys.read.width >= least_elements;
  const int tasks = cut ? static_cast<int>(std::min<std::ptrdiff_t>(body.options.threads, time)) : 1;
  if (tasks < 2) prepare::joint_keys(all.keys, all.extent, &simd_of<T>(body));
  else
    threads::for_each(body.crew(), tasks, [&](int i, int) {
      const JointOperation<T> part = all.tokens(time * i / tasks, time * (i + 1) / tasks);
      prepare::joint_keys(part.keys, part.extent, &simd_of<T>(body));
    });
  return Status::ok;
}
template <class T>
std::size_t ready_joint_bytes() noexcept {
  return sizeof(JointOperation<T>);
}
template <class T>
void ready_joint(const Plan::Body& body, const Joint& joint, const Binding<T>& b, void* memory) noexcept {
  static_assert(std::is_trivially_destructible_v<JointOperation<T>>);
  new (memory) JointOperation<T>(body, joint, b);
}
template <class T>
Status go_joint(const Plan::Body& body, const void* memory) noexcept {
  const auto& joint = *static_cast<const JointOperation<T>*>(memory);
  prepare::joint_keys(joint.keys, joint.extent, &simd_of<T>(body));
  return Status::ok;
}

template <class T>
std::size_t ready_operation_bytes() noexcept {
  return sizeof(Operation<T>);
}
template <class T>
void ready_operation(const Plan::Body& body, const Step& step, const Binding<T>& b, void* memory) noexcept {
  static_assert(std::is_trivially_destructible_v<Operation<T>>);
  new (memory) Operation<T>(forward_of(body, step, b));
}
template <class T>
Status go_operation(const Plan::Body& body, const void* memory) noexcept {
  return run(body, *static_cast<const Operation<T>*>(memory));
}

template <class T>
Status operation_forward(const Plan::Body& body, const Step& step, const Binding<T>& b) noexcept {
  const Operation<T> all = forward_of(body, step, b);
  const bool cut = body.options.threads > 1 && elements(all, all.to) >= least_elements &&
                   !prepare::depends_on_time_index(step.op) && !prepare::changes_token_count(step.op);
  std::atomic<Status> worst{Status::ok};
  in_parts(all, cut ? Along::tokens : Along::nothing, body.crew(), [&](const Operation<T>& o) {
    if (const Status s = run(body, o); s != Status::ok) worst = s;
  });
  return worst;
}

template <class T>
void operation_backward(const Plan::Body& body, const Step& step, const Binding<T>& b) noexcept {
  const Bound<T>& to = b.values[static_cast<std::size_t>(step.result)];
  if (!to.gradient_in) return;
  Operation<T> all(body, step, b);
  bool tokens = !prepare::depends_on_time_index(step.op) && !prepare::changes_token_count(step.op), heads = true;
  for (std::size_t i = 0; i < all.count; ++i) {
    const Bound<T>& bound = b.values[static_cast<std::size_t>(step.operands[i])];
    set_rows(body, step.operands[i], bound.gradient, bound.gradient_stride, all.extent.heads, all.d_from[i]);
    turn_like(body, step.result, step.operands[i], all.d_from[i]);
    if (!all.d_from[i].data) continue;
    tokens &= all.d_from[i].time != 0, heads &= all.d_from[i].head != 0;
  }
  set_rows(body, b, step.result, all.extent.heads, all.result);
  set_rows(body, step.result, to.gradient_in, to.gradient_stride, all.extent.heads, all.d_to);
  const std::ptrdiff_t size =
      all.extent.batch * all.extent.time * all.extent.heads * all.d_to.width * all.d_to.height;
  const bool cut = body.options.threads > 1 && size >= least_elements;
  in_parts(all,
           !cut     ? Along::nothing
           : tokens ? Along::tokens
           : heads  ? Along::heads
                    : Along::nothing,
           body.crew(), [&](const Operation<T>& o) {
             prepare::backward(o.op, o.from, o.result, o.d_to, o.d_from, o.number, o.extent, &simd_of<T>(body));
           });
}

#define TTR_READY(T)                                                                                   \
  template std::size_t ready_operation_bytes<T>() noexcept;                                            \
  template void ready_operation<T>(const Plan::Body&, const Step&, const Binding<T>&, void*) noexcept; \
  template Status go_operation<T>(const Plan::Body&, const void*) noexcept;                            \
  template Status joint_forward<T>(const Plan::Body&, const Joint&, const Binding<T>&) noexcept;       \
  template std::size_t ready_joint_bytes<T>() noexcept;                                                \
  template void ready_joint<T>(const Plan::Body&, const Joint&, const Binding<T>&, void*) noexcept;    \
  template Status go_joint<T>(const Plan::Body&, const void*) noexcept;
TTR_READY(float)
TTR_READY(double)
#undef TTR_READY
template Status operation_forward<float>(const Plan::Body&, const Step&, const Binding<float>&) noexcept;
template Status operation_forward<double>(const Plan::Body&, const Step&, const Binding<double>&) noexcept;
template void operation_backward<float>(const Plan::Body&, const Step&, const Binding<float>&) noexcept;
template void operation_backward<double>(const Plan::Body&, const Step&, const Binding<double>&) noexcept;

}  // namespace ttr
