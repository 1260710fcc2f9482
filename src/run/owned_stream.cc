// ttr::Stream: a plan with memory of its own (ttr/stream.h). On the public interface alone.
#include <algorithm>
#include <cstring>

#include "ttr/axes.h"
#include "ttr/saved_state.h"
#include "ttr/stream.h"

namespace ttr {
namespace {

constexpr std::int64_t first_room = 64;

// A contiguous tensor without data.
template <class Any>
Any shaped(const Plan& plan, const InputInfo& info, Type type, std::int64_t tokens) {
  const std::vector<std::ptrdiff_t> extents = plan.extents(info.shape, tokens);
  Any tensor;
  tensor.type = type, tensor.rank = static_cast<int>(extents.size());
  std::ptrdiff_t stride = 1;
  for (std::size_t a = extents.size(); a-- > 0; stride *= extents[a])
    tensor.extent[a] = extents[a], tensor.stride[a] = stride;
  return tensor;
}

[[noreturn]] void refuse(const Plan& plan, Status status, std::string sentence) {
  if (sentence.empty()) sentence = to_string(status);
  throw Error(plan.name() + ": " + sentence, "stream");
}

std::string names_of(std::span<const InputInfo> infos) {
  std::string names;
  for (const InputInfo& info : infos) names += (names.empty() ? "" : ", ") + info.name;
  return names;
}

// Tokens of the longest sequence of a call.
std::int64_t tokens_of(const Plan& plan, const Inputs& in) {
  std::int64_t longest = 0;
  if (!in.cu_seqlens.empty()) {
    for (std::size_t n = 0; n + 1 < in.cu_seqlens.size(); ++n)
      longest = std::max(longest, in.cu_seqlens[n + 1] - in.cu_seqlens[n]);
    return longest;
  }
  for (const InputInfo& info : plan.inputs()) {
    const std::size_t axis = Axes(info.shape).find('T');
    const ConstTensor* const tensor = in.find(info.name);
    if (axis != Axes::npos && tensor && static_cast<int>(axis) < tensor->rank)
      longest = std::max<std::int64_t>(longest, tensor->extent[axis]);
  }
  return longest;
}

}  // namespace

Stream::Buffer Stream::buffer(std::size_t bytes) {
  return Buffer(static_cast<std::byte*>(::operator new[](std::max<std::size_t>(bytes, 1), std::align_val_t{64})));
}

Stream::Stream(std::string_view layer_or_recipe, const Shape& shape, const Options& options)
    : Stream(ttr::plan(layer_or_recipe, shape, options)) {}

Stream::Stream(Plan plan) : plan_(std::move(plan)) {
  state_bytes_ = plan_.footprint(first_room).state;
  state_ = buffer(state_bytes_);
  reset();
}

void Stream::reset() {
  if (const Status status = plan_.reset(state()); status != Status::ok) refuse(plan_, status, {});
  room_ = plan_.capacity(state());
}

void Stream::need_workspace(std::size_t bytes) {
  if (bytes <= work_bytes_) return;
  work_ = buffer(bytes), work_bytes_ = bytes;
}

// Room for `more` pairs of every sequence: twice as much as before, so that the copies cost a constant per token.
void Stream::make_room(std::int64_t more) {
  if (room_ < 0) return;
  std::int64_t kept = 0;
  for (int n = 0; n < plan_.shape().batch; ++n) kept = std::max(kept, plan_.tokens_kept(state(), n));
  if (kept + more <= room_) return;
  const std::int64_t room = std::max(kept + more, 2 * room_);
  const std::size_t bytes = plan_.footprint(room).state;
  if (bytes <= state_bytes_) return;  // a window: it does not grow
  Buffer larger = buffer(bytes);
  if (const Status status = plan_.grow(state(), {larger.get(), bytes}); status != Status::ok)
    refuse(plan_, status, {});
  state_ = std::move(larger), state_bytes_ = bytes;
  room_ = plan_.capacity(state());
}

void Stream::run(const Inputs& in, const Outputs& out, State state) {
  const std::int64_t tokens = std::max<std::int64_t>(tokens_of(plan_, in), 1);
  need_workspace(plan_.footprint(std::max<std::int64_t>(room_, 0) + tokens).workspace);
  const Workspace work{work_.get(), work_bytes_};
  if (const Status status = plan_.forward(in, state, out, work); status != Status::ok)
    refuse(plan_, status, plan_.diagnose(in, state, out, work));
}

void Stream::push(const Inputs& in, const Outputs& out) {
  make_room(tokens_of(plan_, in));
  run(in, out, state());
}

void Stream::query(const Inputs& in, const Outputs& out) {
  const std::int64_t tokens = tokens_of(plan_, in);
  make_room(tokens);
  // A list without a window gives back what was appended to it; of any other state the call gets a copy.
  bool is_list = room_ >= 0 && plan_.options().rewind == 0 && in.cu_seqlens.empty();
  for (int n = 0; is_list && n < plan_.shape().batch; ++n)
    is_list = this->tokens(n) > 0 && plan_.rewindable(state(), n) == this->tokens(n);
  if (is_list) {
    run(in, out, state());
    return rewind(tokens);
  }
  if (spare_bytes_ < state_bytes_) spare_ = buffer(state_bytes_), spare_bytes_ = state_bytes_;
  std::memcpy(spare_.get(), state_.get(), state_bytes_);
  run(in, out, {spare_.get(), state_bytes_});
}

template <class T>
void Stream::bind(std::span<const T* const> inputs, T* answer, std::int64_t tokens, Inputs& in, Outputs& out) const {
  const std::span<const InputInfo> infos = plan_.inputs();
  if (plan_.options().type != type_of<T>)
    throw Error(plan_.name() + ": numbers of " + std::string(to_string(type_of<T>)) + " for a stream of " +
                    std::string(to_string(plan_.options().type)) + "; set Options::type",
                "stream");
  if (inputs.size() != infos.size())
    throw Error(plan_.name() + " has " + std::to_string(infos.size()) + " inputs (" + names_of(infos) + "), not " +
                    std::to_string(inputs.size()) + "; give null for one that is left out",
                "stream");
  if (tokens < 1) throw Error(plan_.name() + ": " + std::to_string(tokens) + " tokens; at least 1", "stream");
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (!inputs[i]) continue;
    ConstTensor tensor = shaped<ConstTensor>(plan_, infos[i], type_of<T>, tokens);
    tensor.data = inputs[i];
    in[infos[i].name] = tensor;
  }
  if (!answer) return;
  const InputInfo& first = plan_.outputs().front();
  Tensor tensor = shaped<Tensor>(plan_, first, type_of<T>, tokens);
  tensor.data = answer;
  out[first.name] = tensor;
}

#define TTR_STREAM(T)                                                                          \
  void Stream::push(std::span<const T* const> inputs, T* answer, std::int64_t tokens) {        \
    Inputs in;                                                                                 \
    Outputs out;                                                                               \
    bind(inputs, answer, tokens, in, out);                                                     \
    push(in, out);                                                                             \
  }                                                                                            \
  void Stream::query(std::span<const T* const> inputs, T* answer, std::int64_t tokens) {       \
    Inputs in;                                                                                 \
    Outputs out;                                                                               \
    bind(inputs, answer, tokens, in, out);                                                     \
    query(in, out);                                                                            \
  }                                                                                            \
  void Stream::push(std::initializer_list<const T*> inputs, T* answer, std::int64_t tokens) {  \
    push(std::span<const T* const>(inputs.begin(), inputs.size()), answer, tokens);            \
  }                                                                                            \
  void Stream::query(std::initializer_list<const T*> inputs, T* answer, std::int64_t tokens) { \
    query(std::span<const T* const>(inputs.begin(), inputs.size()), answer, tokens);           \
  }
TTR_STREAM(float)
TTR_STREAM(double)
#undef TTR_STREAM

Stream Stream::clone() const {
  Stream other(plan_);
  if (other.state_bytes_ < state_bytes_) other.state_ = buffer(state_bytes_);
  other.state_bytes_ = state_bytes_, other.room_ = room_;
  std::memcpy(other.state_.get(), state_.get(), state_bytes_);
  return other;
}

void Stream::save(const std::string& path) const { save_state(path, plan_, state()); }

void Stream::load(const std::string& path) {
  std::int64_t longest = 0;
  for (const std::int64_t seen : read_saved_state(path).tokens) longest = std::max(longest, seen);
  Stream fresh(plan_);  // what a file that is refused must not have touched
  fresh.make_room(longest);
  load_state(path, plan_, fresh.state());
  *this = std::move(fresh);
}

void Stream::rewind(std::int64_t tokens) {
  const Status status = plan_.rewind(state(), tokens);
  if (status == Status::ok) return;
  std::int64_t least = plan_.rewindable(state());
  for (int n = 1; n < plan_.shape().batch; ++n) least = std::min(least, plan_.rewindable(state(), n));
  refuse(plan_, status,
         "rewind takes back " + std::to_string(tokens) + " tokens, of which " + std::to_string(least) +
             " can be taken back; set Options::rewind to as many as are ever tried");
}

std::int64_t Stream::tokens(int sequence) const noexcept { return plan_.tokens_seen(state(), sequence); }

}  // namespace ttr
