#include "mpi/groups.h"

#include <algorithm>
#include <cstring>

#include "plan/pipeline.h"

namespace ttr::mpi {
namespace {

std::string letters_of(std::string_view shape) {
  std::string letters;
  for (const char c : shape)
    if (c != ' ') letters += c;
  return letters;
}

// The smallest divisor of n that is at least `wanted`.
int divisor(int n, int wanted) {
  for (int d = std::max(1, std::min(n, wanted)); d < n; ++d)
    if (n % d == 0) return d;
  return n;
}

template <class Number, class Any>
Any window(Any t, std::string_view shape, const Group& g, const Packed& packed, int pairs) {
  if (!t.data) return t;
  const std::string letters = letters_of(shape);
  const auto cut = [&](std::size_t d, std::ptrdiff_t begin, std::ptrdiff_t count) {
    t.data = static_cast<Number*>(t.data) + begin * t.stride[d] * static_cast<std::ptrdiff_t>(size_of(t.type));
    t.extent[d] = count;
  };
  for (std::size_t d = 0; d < letters.size() && d < static_cast<std::size_t>(t.rank); ++d) {
    const std::ptrdiff_t first = packed.empty() ? 0 : packed[static_cast<std::size_t>(g.row)];
    const std::ptrdiff_t last = packed.empty() ? 0 : packed[static_cast<std::size_t>(g.row + g.rows)];
    if (letters[d] == 'B' && packed.empty()) cut(d, g.row, g.rows);
    else if (letters[d] == 'T' && !packed.empty()) cut(d, first, last - first);
    else if (letters[d] == 'P' && !packed.empty()) cut(d, first * pairs, (last - first) * pairs);
    else if (letters[d] == 'H') cut(d, g.head, g.heads);
    else if (letters[d] == 'G') cut(d, g.key_head, g.key_heads);
  }
  return t;
}

// visit(offset in a, offset in b) of every number that both have, in bytes.
template <class Visit>
void each_number(const Tensor& a, const Tensor& b, Visit&& visit) {
  std::array<std::ptrdiff_t, max_rank> extent{}, at{};
  for (std::size_t d = 0; d < static_cast<std::size_t>(a.rank); ++d)
    if ((extent[d] = std::min(a.extent[d], b.extent[d])) == 0) return;
  const auto size = static_cast<std::ptrdiff_t>(size_of(a.type));
  for (;;) {
    std::ptrdiff_t i = 0, j = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(a.rank); ++d)
      i += at[d] * a.stride[d], j += at[d] * b.stride[d];
    visit(i * size, j * size);
    int d = a.rank;
    while (d > 0 && ++at[static_cast<std::size_t>(d - 1)] == extent[static_cast<std::size_t>(d - 1)])
      at[static_cast<std::size_t>(--d)] = 0;
    if (d == 0) return;
  }
}

}  // namespace

Groups Groups::of(const Shape& whole, int wanted, bool heads_part) {
  Groups g;
  g.by_batch = divisor(whole.batch, wanted);
  if (heads_part && g.by_batch < wanted)
    g.by_heads = divisor(whole.key_heads, (wanted + g.by_batch - 1) / g.by_batch);
  g.shape = whole;
  g.shape.batch /= g.by_batch, g.shape.heads /= g.by_heads, g.shape.key_heads /= g.by_heads;
  return g;
}

bool heads_part(const Plan& plan) {
  const Pipeline& p = plan.body()->pipeline;
  if (p.history || p.fresh || plan.body()->options.rewind > 0) return false;
  for (const Value& value : p.values)
    if (value.from == Value::From::table) return false;
  for (const Step& step : p.steps)
    if (step.kernel && (step.kernel->traits.couples_heads || step.kernel->traits.literal)) return false;
  for (const StatePart& part : p.states)
    if (part.info.shape.find_first_of("HG") == std::string::npos) return false;
  return true;
}

Tensor part_of(Tensor t, std::string_view letters, const Group& g, const Packed& packed, int pairs) {
  return window<std::byte>(t, letters, g, packed, pairs);
}
ConstTensor part_of(const ConstTensor& t, std::string_view letters, const Group& g, const Packed& packed, int pairs) {
  return window<const std::byte>(t, letters, g, packed, pairs);
}

void copy_numbers(const Tensor& from, const Tensor& to) {
  const std::size_t size = size_of(from.type);
  each_number(from, to, [&](std::ptrdiff_t i, std::ptrdiff_t j) {
    std::memcpy(static_cast<std::byte*>(to.data) + j, static_cast<const std::byte*>(from.data) + i, size);
  });
}

void fill(const Tensor& t, double x) {
  const float single = static_cast<float>(x);
  each_number(t, t, [&](std::ptrdiff_t i, std::ptrdiff_t) {
    std::byte* at = static_cast<std::byte*>(t.data) + i;
    if (t.type == Type::f64) std::memcpy(at, &x, sizeof x);
    else if (t.type == Type::f32) std::memcpy(at, &single, sizeof single);
    else std::memset(at, 0, size_of(t.type));  // half types are only ever zeroed
  });
}

void copy_state(const Plan& whole, State all, const Plan& part, State one, const Group& g, bool gather) {
  for (const StateInfo& info : whole.states()) {
    const Tensor window = part_of(whole.state_tensor(all, info.name), info.shape, g, {}, 1);
    const Tensor own = part.state_tensor(one, info.name);
    if (gather) copy_numbers(own, window);
    else copy_numbers(window, own);
  }
}

}  // namespace ttr::mpi
