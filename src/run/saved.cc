#include "run/saved.h"

#include <cstring>

#include "families/family.h"
#include "run/undo.h"

namespace ttr {
namespace {

using families::Sequence;

struct Header {
  std::uint64_t magic, plan, lengths;
  std::int64_t time, sequences, form, complete, spare;
};
static_assert(sizeof(Header) == 64);
constexpr std::uint64_t magic = 0x7474722d73617665;  // "ttr-save"

class Fingerprint {
 public:
  template <class N>
  Fingerprint& add(const N& number) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(&number);
    for (std::size_t i = 0; i < sizeof(N); ++i) hash_ = (hash_ ^ bytes[i]) * 0x100000001b3;
    return *this;
  }
  std::uint64_t hash() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

// What decides how the slots lie and what is in them, the inputs aside.
std::uint64_t fingerprint(const Plan::Body& body) {
  Fingerprint f;
  for (const char c : body.name) f.add(c);
  const Shape& s = body.shape;
  f.add(s.batch).add(s.heads).add(s.key_heads).add(s.key_dim).add(s.value_dim);
  f.add(body.options.type).add(body.options.chunk).add(body.scale);
  f.add(body.options.type == Type::f32 ? body.simd_f32->target : body.simd_f64->target);
  for (const auto& [name, value] : body.options.settings)
    for (const std::string* text : {&name, &value})
      for (const char c : *text) f.add(c);
  return f.hash();
}

std::int64_t length_of(const Call& call, std::size_t n) {
  const auto cu = call.inputs->cu_seqlens;
  return cu.empty() ? std::max<std::ptrdiff_t>(call.time, 0) : cu[n + 1] - cu[n];
}

std::uint64_t lengths(const Plan::Body& body, const Call& call) {
  Fingerprint f;
  for (std::size_t n = 0; n < static_cast<std::size_t>(body.shape.batch); ++n) f.add(length_of(call, n));
  return f.hash();
}

families::SavedChunks chunks_of(const Plan::Body& body, const Step& step, std::int64_t tokens, Form form) {
  if (!step.kernel || step.compact) return {};
  const auto of = [&](const auto& calls) {
    return calls.saved ? calls.saved(body, step, tokens * step.pairs, form) : families::SavedChunks{};
  };
  return body.options.type == Type::f32 ? of(step.kernel->f32) : of(step.kernel->f64);
}

std::size_t numbers_of(const Plan::Body& body, const Step& step, std::int64_t tokens, Form form) {
  const families::SavedChunks c = chunks_of(body, step, tokens, form);
  return static_cast<std::size_t>(c.count * c.slot) * static_cast<std::size_t>(body.shape.heads);
}

// Plans that can take tokens back run the last ones one by one, and have states besides.
bool may_save(const Plan::Body& body) {
  return !body.pipeline.noncausal && body.options.rewind == 0 && !body.options.state_type;
}

std::size_t bytes_of_call(const Plan::Body& body, const Call& call) {
  if (!may_save(body)) return 0;
  std::size_t numbers = 0;
  for (const Step& step : body.pipeline.steps)
    for (std::size_t n = 0; n < static_cast<std::size_t>(body.shape.batch); ++n)
      numbers += numbers_of(body, step, length_of(call, n), call.form);
  return numbers == 0 ? 0 : sizeof(Header) + numbers * size_of(body.options.type);
}

}  // namespace

std::size_t saved_bytes(const Plan::Body& body, std::int64_t time, Form form) {
  if (!may_save(body)) return 0;
  std::size_t numbers = 0;
  for (const Step& step : body.pipeline.steps) numbers += numbers_of(body, step, time, form);
  // Packed sequences have fewer chunks than as many of `time` tokens each.
  numbers *= static_cast<std::size_t>(body.shape.batch);
  return numbers == 0 ? 0 : sizeof(Header) + numbers * size_of(body.options.type);
}

Fault check_saved(const Plan::Body& body, const Call& call, bool* used) noexcept {
  *used = false;
  if (!call.saved.data) return {};
  const std::size_t needed = bytes_of_call(body, call);
  if (needed == 0) return {};
  if (reinterpret_cast<std::uintptr_t>(call.saved.data) % 8 != 0) return {Status::misaligned, "saved", 0, 0, 8};
  if (call.saved.bytes < needed)
    return {Status::small_saved, "saved", 0, static_cast<std::ptrdiff_t>(call.saved.bytes),
            static_cast<std::ptrdiff_t>(needed)};
  *used = true;
  if (!call.d_inputs) return {};
  Header header;
  std::memcpy(&header, call.saved.data, sizeof header);
  if (header.magic != magic || header.complete != 1) return {Status::bad_saved, "saved", 0, 0, 0};
  if (header.plan != fingerprint(body)) return {Status::bad_saved, "saved", 'N', 0, 0};
  if (header.form != static_cast<std::int64_t>(call.form))
    return {Status::bad_saved, "saved", 'F', static_cast<std::ptrdiff_t>(header.form),
            static_cast<std::ptrdiff_t>(call.form)};
  if (header.time != call.time)
    return {Status::bad_saved, "saved", 'T', static_cast<std::ptrdiff_t>(header.time), call.time};
  if (header.lengths != lengths(body, call)) return {Status::bad_saved, "saved", 'B', 0, 0};
  return {};
}

void mark_saved(const Plan::Body& body, const Call& call, bool complete) noexcept {
  Header header{};
  header.magic = magic, header.plan = fingerprint(body), header.lengths = lengths(body, call);
  header.time = call.time, header.sequences = body.shape.batch, header.form = static_cast<std::int64_t>(call.form);
  header.complete = complete ? 1 : 0;
  std::memcpy(call.saved.data, &header, sizeof header);
}

bool saves_all_states(const Plan::Body& body, Form form) noexcept {
  if (body.has_counts()) return false;
  std::size_t parts = 0;
  constexpr std::int64_t many = 4096;
  for (const Step& step : body.pipeline.steps) {
    if (!step.kernel) continue;
    if (step.pairs != 1 || chunks_of(body, step, many, form).count == 0) return false;
    ++parts;
  }
  return parts == body.pipeline.states.size();
}

void saved_state(const Plan::Body& body, const Call& call, const Sequence* whole, const std::ptrdiff_t* tokens,
                 State to) noexcept {
  const std::size_t size = size_of(body.options.type), heads = static_cast<std::size_t>(body.shape.heads);
  const std::byte* data = static_cast<const std::byte*>(call.saved.data) + sizeof(Header);
  for (const Step& step : body.pipeline.steps) {
    if (!step.kernel) continue;
    const StatePlace place = body.state_place(to, step.state);
    const std::size_t numbers_of_part = numbers(body.pipeline.states[static_cast<std::size_t>(step.state)]);
    const std::size_t one = numbers_of_part / heads * size;
    for (std::size_t n = 0; n < static_cast<std::size_t>(body.shape.batch); ++n) {
      const std::ptrdiff_t length = whole[n].end - whole[n].begin;
      const families::SavedChunks chunks = chunks_of(body, step, length, call.form);
      const std::size_t slot = static_cast<std::size_t>(chunks.slot) * size;
      if (tokens[n] > 0 && chunks.count > 0) {
        const std::size_t chunk = static_cast<std::size_t>(std::min(tokens[n] / chunks.tokens, chunks.count)) - 1;
        for (std::size_t h = 0; h < heads; ++h)
          std::memcpy(static_cast<std::byte*>(to.data) + place.offset + (n * heads + h) * one,
                      data + (chunk * heads + h) * slot, one);
      }
      data += static_cast<std::size_t>(chunks.count) * heads * slot;
    }
  }
}

template <class T>
families::Saving<T> saving_of(const KernelArgs<T>& o) noexcept {
  const Binding<T>& b = o.binding();
  families::Saving<T> saving;
  if (!b.saved) return saving;
  T* at = reinterpret_cast<T*>(b.saved + sizeof(Header));
  for (const Step& step : o.body().pipeline.steps) {
    if (&step == &o.step()) break;
    for (const Sequence& n : b.whole) at += numbers_of(o.body(), step, n.end - n.begin, b.form);
  }
  std::size_t own = 0;
  for (const Sequence& n : b.whole) own += numbers_of(o.body(), o.step(), n.end - n.begin, b.form);
  if (own == 0) return saving;
  saving.data = at, saving.whole = b.whole, saving.before = b.before, saving.pairs = o.step().pairs;
  saving.heads = o.body().shape.heads, saving.columns = width(o.body(), o.value_of(Slot::v));
  const Shard& share = o.share();
  saving.first_sequence = share.first_sequence;
  saving.first_head = share.first_group * (o.body().shape.heads / o.body().shape.key_heads) + share.first_head;
  saving.first_column = share.first_column;
  return saving;
}
template families::Saving<float> saving_of(const KernelArgs<float>&) noexcept;
template families::Saving<double> saving_of(const KernelArgs<double>&) noexcept;

}  // namespace ttr
