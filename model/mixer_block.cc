// The block of a mixer (block.h): products, chains of steps, the plan, norm and gate of its answer; and back.
#include <algorithm>
#include <cmath>

#include "model/block.h"
#include "model/text.h"

namespace ttr::model {

template <class T>
MixerBlock<T>::MixerBlock(const Mixer& mixer, const Config& config, Shared<T>& shared)
    : mixer_(mixer),
      shared_(shared),
      width_(config.width),
      norm_(shared, config.width, mixer.norm, config.norm_eps),
      main_(mixer.text, mixer.shape, mixer.options, shared, {&Times::mixer_forward, &Times::mixer_backward}) {
  const Size rows = shared.most_rows(), all = mixer.all_width, out = mixer.out_width;
  answer_dim_ = plan().extents(plan().outputs()[0].shape, 1).back();
  input_ = Buffer<T>(rows * width_), normed_ = Buffer<T>(rows * width_);
  answer_ = Buffer<T>(rows * out);
  for (int level = 0; level < mixer.levels; ++level) {
    levels_.emplace_back(rows * all);
    shared.reserve(Shared<T>::levels + level, rows * all);
  }
  if (mixer.levels > 6) throw Error("the chain of an input of '" + mixer.text + "' has more than 5 steps", "stack");
  for (std::size_t s = 0; s < mixer.slots.size(); ++s) {
    const Slot& slot = mixer.slots[s];
    inner_.emplace_back();
    if (slot.input >= 0) {
      const auto extent = plan().extents(plan().inputs()[static_cast<std::size_t>(slot.input)].shape, shared.time);
      inner_.back().assign(extent.begin() + 2, extent.end());
    }
    apart_.emplace_back(slot.pairs > 1 ? rows * slot.width : 0);
    d_apart_.emplace_back(slot.pairs > 1 ? rows * slot.width : 0);
    steps_.emplace_back();
    const Shape shape{.heads = slot.heads, .key_dim = slot.dim, .value_dim = slot.dim};
    for (const Step& step : slot.steps) {
      const char* name = nullptr;
      Options options;
      if (step.kind == Step::Kind::unit) name = "l2-norm";
      if (step.kind == Step::Kind::rms) name = "rms-norm";
      if (step.kind == Step::Kind::rotary) name = "rotary", options.settings = {{"pairs", "half"}};
      steps_.back().push_back(name ? std::make_unique<Call<T>>(name, shape, options, shared) : nullptr);
    }
    shared.reserve_sums(map_scratch(rows, slot.width));
  }
  for (const Constant& one : mixer.constants) {
    const auto size = static_cast<Size>(shared.registry[one.parameter].size);
    constants_.emplace_back(one.step.map != Map::none ? size : 0);
    d_constants_.emplace_back(one.step.map != Map::none ? size : 0);
    shared.reserve_sums(map_scratch(1, size));
  }
  if (mixer.convolved > 0)
    convolution_ = std::make_unique<Call<T>>(
        "short-convolution", Shape{.heads = 1, .key_dim = mixer.convolved, .value_dim = mixer.convolved},
        Options{.settings = {{"width", std::to_string(mixer.taps)},
                             {"activation", mixer.activation},
                             {"bias", mixer.taps_bias >= 0 ? "input" : "none"}}},
        shared, typename Call<T>::Parts{&Times::convolution, &Times::convolution});
  for (std::size_t i = 0; i < mixer.added.size(); ++i) added_.emplace_back(rows * out);
  const bool gated = mixer.gate != Mixer::Gate::none;
  if (mixer.out_norm >= 0) {
    fused_gate_ = gated && mixer.added.empty();
    Options options{.settings = {{"eps", number_text(config.norm_eps)}}};
    if (fused_gate_) options.settings["activation"] = mixer.gate == Mixer::Gate::silu ? "silu" : "sigmoid";
    out_norm_ = std::make_unique<Call<T>>(
        !fused_gate_       ? "rms-norm"
        : mixer.gate_first ? "rms-norm-gate-first"
                           : "rms-norm-norm-first",
        Shape{.heads = mixer.out_heads, .key_dim = mixer.out_dim, .value_dim = mixer.out_dim}, options, shared);
  }
  if (out_norm_ || !mixer.added.empty()) finished_ = Buffer<T>(rows * out);
  if (gated && !fused_gate_) gated_ = Buffer<T>(rows * out);
  if (mixer.shift >= 0) {
    shifted_ = Buffer<T>(rows * width_);
    if (shared.carried) last_ = Buffer<T>(shared.batch * width_);
    if (shared.pieces) edge_ = Buffer<T>(2 * shared.batch * width_);
    shared.reserve(Shared<T>::weights, 2 * width_ * mixer.in_width);
    shared.gemm.reserve(width_, mixer.in_width), shared.gemm.reserve(mixer.in_width, width_);
  }
  shared.reserve(Shared<T>::out_gradient, rows * out), shared.reserve(Shared<T>::answer_gradient, rows * out);
  shared.reserve(Shared<T>::added_gradient, rows * out),
      shared.reserve(Shared<T>::normed_gradient, 2 * rows * width_);
}

template <class T>
void MixerBlock<T>::reset() {
  main_.reset();
  if (convolution_) convolution_->reset();
  for (const auto& slot : steps_)
    for (const auto& step : slot)
      if (step) step->reset();
  std::fill_n(last_.data(), last_.size(), T(0));
}
template <class T>
std::string MixerBlock<T>::why_not_token_by_token() const {
  const std::span<const Form> forms = plan().forms();
  if (std::find(forms.begin(), forms.end(), Form::step) != forms.end()) return {};
  return "'" + plan().name() + "' cannot be run token by token: " + std::string(plan().why_absent(Form::step));
}
template <class T>
std::size_t MixerBlock<T>::state_bytes() const {
  std::size_t bytes = main_.state_bytes() + static_cast<std::size_t>(last_.size()) * sizeof(T);
  if (convolution_) bytes += convolution_->state_bytes();
  for (const auto& slot : steps_)
    for (const auto& step : slot)
      if (step) bytes += step->state_bytes();
  return bytes;
}

// Where step `level` of a slot has its values, and their gradients.
template <class T>
typename MixerBlock<T>::Place MixerBlock<T>::value(int s, int level) const {
  const Slot& slot = mixer_.slots[static_cast<std::size_t>(s)];
  if (slot.pairs > 1 && level == static_cast<int>(slot.steps.size()))
    return {apart_[static_cast<std::size_t>(s)].data(), slot.width};
  return {levels_[static_cast<std::size_t>(level)].data() + slot.column, mixer_.all_width};
}
template <class T>
typename MixerBlock<T>::Place MixerBlock<T>::gradient(int s, int level) const {
  const Slot& slot = mixer_.slots[static_cast<std::size_t>(s)];
  if (slot.pairs > 1 && level == static_cast<int>(slot.steps.size()))
    return {d_apart_[static_cast<std::size_t>(s)].data(), slot.width};
  return {shared_.scratch(Shared<T>::levels + level) + slot.column, mixer_.all_width};
}

template <class T>
Tensor MixerBlock<T>::headed(T* data, Size stride, Size heads, Size dim) const {
  Tensor t;
  t.data = data, t.type = type_of<T>, t.rank = 4;
  t.extent = {shared_.batch, shared_.now, heads, dim}, t.stride = {shared_.now * stride, stride, dim, 1};
  return t;
}

template <class T>
Tensor MixerBlock<T>::tensor(int s, Place place) const {
  const Slot& slot = mixer_.slots[static_cast<std::size_t>(s)];
  const std::vector<Size>& inner = inner_[static_cast<std::size_t>(s)];
  Tensor t;
  t.data = place.data, t.type = type_of<T>, t.rank = 2 + static_cast<int>(inner.size());
  Size stride = 1;
  for (std::size_t d = inner.size(); d-- > 0;)
    t.extent[2 + d] = inner[d], t.stride[2 + d] = stride, stride *= inner[d];
  t.extent[0] = shared_.batch, t.extent[1] = shared_.now * slot.pairs;
  t.stride[0] = shared_.now * place.stride, t.stride[1] = place.stride / slot.pairs;
  return t;
}

template <class T>
Size MixerBlock<T>::rates(const Step& step) const {
  return step.rate < 0 ? 1 : static_cast<Size>(shared_.registry[step.rate].size);
}
template <class T>
MapCall<T> MixerBlock<T>::map_call(const Step& step) const {
  return {step.map, static_cast<T>(step.factor), step.bias < 0 ? nullptr : shared_.value(step.bias),
          step.rate < 0 ? nullptr : shared_.value(step.rate), rates(step)};
}

template <class T>
void MixerBlock<T>::run_steps(int s) {
  const Slot& slot = mixer_.slots[static_cast<std::size_t>(s)];
  for (std::size_t i = 0; i < slot.steps.size(); ++i) {
    const Step& step = slot.steps[i];
    const Place from = value(s, static_cast<int>(i)), to = value(s, static_cast<int>(i) + 1);
    if (step.kind == Step::Kind::convolution) continue;
    if (step.kind == Step::Kind::map) {
      const Stopwatch::Part part(&shared_.watch, &Times::activation);
      map_forward(shared_.threads, shared_.gemm.simd(), map_call(step), shared_.rows(), Size(slot.width), from.data,
                  from.stride, to.data, to.stride);
    } else if (step.kind == Step::Kind::copy) {
      copy_rows(shared_.threads, shared_.rows(), Size(slot.width), from.data, from.stride, to.data, to.stride);
    } else {
      Inputs in;
      in["x"] = headed(from.data, from.stride, slot.heads, slot.dim);
      if (step.weight >= 0) in["w"] = view(shared_.value(step.weight), slot.dim);
      Outputs out;
      out["y"] = headed(to.data, to.stride, slot.heads, slot.dim);
      steps_[static_cast<std::size_t>(s)][i]->forward(in, out);
    }
  }
}

template <class T>
void MixerBlock<T>::undo_steps(int s) {
  const Slot& slot = mixer_.slots[static_cast<std::size_t>(s)];
  for (std::size_t i = slot.steps.size(); i-- > 0;) {
    const Step& step = slot.steps[i];
    const Place x = value(s, static_cast<int>(i)), dx = gradient(s, static_cast<int>(i));
    const Place dy = gradient(s, static_cast<int>(i) + 1);
    if (step.kind == Step::Kind::convolution) continue;
    if (step.kind == Step::Kind::map) {
      const Stopwatch::Part part(&shared_.watch, &Times::activation);
      map_backward(shared_.threads, shared_.gemm.simd(), map_call(step), shared_.rows(), Size(slot.width), x.data,
                   x.stride, dy.data, dy.stride, dx.data, dx.stride,
                   step.bias < 0 ? nullptr : shared_.gradient(step.bias),
                   step.rate < 0 ? nullptr : shared_.gradient(step.rate), shared_.sums.data());
    } else if (step.kind == Step::Kind::copy) {
      copy_rows(shared_.threads, shared_.rows(), Size(slot.width), dy.data, dy.stride, dx.data, dx.stride);
    } else {
      Inputs in, d_out;
      in["x"] = headed(x.data, x.stride, slot.heads, slot.dim);
      d_out["y"] = headed(dy.data, dy.stride, slot.heads, slot.dim);
      Outputs d_in;
      d_in["x"] = headed(dx.data, dx.stride, slot.heads, slot.dim);
      if (step.weight >= 0) {
        in["w"] = view(shared_.value(step.weight), slot.dim);
        d_in["w"] = view(shared_.gradient(step.weight), slot.dim);
      }
      steps_[static_cast<std::size_t>(s)][i]->backward(in, d_out, d_in);
    }
  }
}

template <class T>
void MixerBlock<T>::convolve() {
  if (!convolution_) return;
  Inputs in;
  in["x"] = headed(levels_[0].data(), mixer_.all_width, 1, mixer_.convolved);
  in["w"] = view(shared_.value(mixer_.taps_weight), 1, mixer_.convolved, mixer_.taps);
  if (mixer_.taps_bias >= 0) in["b"] = view(shared_.value(mixer_.taps_bias), 1, mixer_.convolved);
  Outputs out;
  out["y"] = headed(levels_[1].data(), mixer_.all_width, 1, mixer_.convolved);
  convolution_->forward(in, out);
}

template <class T>
void MixerBlock<T>::undo_convolve() {
  if (!convolution_) return;
  Inputs in, d_out;
  in["x"] = headed(levels_[0].data(), mixer_.all_width, 1, mixer_.convolved);
  in["w"] = view(shared_.value(mixer_.taps_weight), 1, mixer_.convolved, mixer_.taps);
  d_out["y"] = headed(shared_.scratch(Shared<T>::levels + 1), mixer_.all_width, 1, mixer_.convolved);
  Outputs d_in;
  d_in["x"] = headed(shared_.scratch(Shared<T>::levels), mixer_.all_width, 1, mixer_.convolved);
  d_in["w"] = view(shared_.gradient(mixer_.taps_weight), 1, mixer_.convolved, mixer_.taps);
  if (mixer_.taps_bias >= 0) {
    in["b"] = view(shared_.value(mixer_.taps_bias), 1, mixer_.convolved);
    d_in["b"] = view(shared_.gradient(mixer_.taps_bias), 1, mixer_.convolved);
  }
  convolution_->backward(in, d_out, d_in);
}

template <class T>
void MixerBlock<T>::constants_forward() {
  for (std::size_t i = 0; i < mixer_.constants.size(); ++i) {
    const Constant& one = mixer_.constants[i];
    if (one.step.map == Map::none) continue;
    const auto size = static_cast<Size>(shared_.registry[one.parameter].size);
    map_forward(1, shared_.gemm.simd(), map_call(one.step), Size(1), size, shared_.value(one.parameter), size,
                constants_[i].data(), size);
  }
}
template <class T>
void MixerBlock<T>::constants_backward() {
  for (std::size_t i = 0; i < mixer_.constants.size(); ++i) {
    const Constant& one = mixer_.constants[i];
    const Parameter& parameter = shared_.registry[one.parameter];
    if (one.step.map == Map::none || !parameter.trained) continue;
    const auto size = static_cast<Size>(parameter.size);
    map_backward<T>(1, shared_.gemm.simd(), map_call(one.step), 1, size, shared_.value(one.parameter), size,
                    d_constants_[i].data(), size, shared_.gradient(one.parameter), size, nullptr, nullptr,
                    shared_.sums.data());
  }
}

// Row `first` of every sequence goes to the next process (backwards: the one before), and what comes is added to row `at`.
template <class T>
void MixerBlock<T>::pass_rows(const T* rows, Size first, T* to, Size at, bool backwards) {
  const Size all = shared_.batch * width_;
  T *const mine = edge_.data(), *const theirs = mine + all;
  for (Size b = 0; b < shared_.batch; ++b)
    std::copy_n(rows + (b * shared_.now + first) * width_, width_, mine + b * width_);
  shared_.pieces->pass_on(mine, theirs, static_cast<std::size_t>(all) * sizeof(T), backwards);
  for (Size b = 0; b < shared_.batch; ++b)
    for (Size i = 0; i < width_; ++i) to[(b * shared_.now + at) * width_ + i] += theirs[b * width_ + i];
}

// u = n W_in, and with a shift  + (n_{t-1} - n_t) diag(m) W_in  with a vector m for every slot.
template <class T>
void MixerBlock<T>::project() {
  const Size rows = shared_.rows(), in = mixer_.in_width, all = mixer_.all_width;
  const T* const W = shared_.value(mixer_.in);
  shared_.product(mixer_.in, rows, normed_.data(), width_, nullptr, 0, levels_[0].data(), all);
  if (mixer_.shift < 0) return;
  const T* const m = shared_.value(mixer_.shift);
  T* const mixed = shared_.scratch(Shared<T>::weights);
  for (std::size_t s = 0; s < mixer_.slots.size() && mixer_.slots[s].source < 0; ++s)
    for (Size i = 0; i < width_; ++i)
      for (Size j = 0, at = i * in + mixer_.slots[s].column; j < mixer_.slots[s].width; ++j, ++at)
        mixed[at] = m[static_cast<Size>(s) * width_ + i] * W[at];
  shift_forward(shared_.threads, shared_.batch, shared_.now, width_, normed_.data(), shifted_.data());
  for (Size b = 0; last_.size() > 0 && b < shared_.batch; ++b) {
    T* const before = last_.data() + b * width_;
    for (Size i = 0; i < width_; ++i) shifted_.data()[b * shared_.now * width_ + i] += before[i];
    std::copy_n(normed_.data() + ((b + 1) * shared_.now - 1) * width_, width_, before);
  }
  if (shared_.pieces) pass_rows(normed_.data(), shared_.now - 1, shifted_.data(), 0, false);
  shared_.gemm.nn(rows, in, width_, shifted_.data(), width_, mixed, in, 1, levels_[0].data(), all);
}

template <class T>
void MixerBlock<T>::undo_project(T* dn) {
  const Size rows = shared_.rows(), in = mixer_.in_width, all = mixer_.all_width;
  const T* const W = shared_.value(mixer_.in);
  T* const dW = shared_.total(mixer_.in);
  const T* const du = shared_.scratch(Shared<T>::levels);
  shared_.product_weight(mixer_.in, rows, normed_.data(), width_, du, all);
  shared_.product_input(mixer_.in, rows, du, all, false, dn, width_);
  if (mixer_.shift < 0) return;
  const T* const m = shared_.value(mixer_.shift);
  T* const dm = shared_.gradient(mixer_.shift);
  T* const mixed = shared_.scratch(Shared<T>::weights);  // diag(m) W, made by the last forward of any block: again
  T* const d_mixed = mixed + width_ * in;
  shared_.gemm.tn(width_, in, rows, shifted_.data(), width_, du, all, 0, d_mixed, in);
  for (std::size_t s = 0; s < mixer_.slots.size() && mixer_.slots[s].source < 0; ++s)
    for (Size i = 0; i < width_; ++i) {
      const T factor = m[static_cast<Size>(s) * width_ + i];
      double sum = 0;
      for (Size j = 0, at = i * in + mixer_.slots[s].column; j < mixer_.slots[s].width; ++j, ++at) {
        sum += static_cast<double>(W[at] * d_mixed[at]);
        dW[at] += factor * d_mixed[at];
        mixed[at] = factor * W[at];
      }
      dm[static_cast<Size>(s) * width_ + i] = static_cast<T>(sum);
    }
  T* const d_shifted = dn + rows * width_;
  shared_.gemm.nt(rows, width_, in, du, all, mixed, in, 0, d_shifted, width_);
  shift_backward(shared_.threads, shared_.batch, shared_.now, width_, d_shifted, dn);
  if (shared_.pieces) pass_rows(d_shifted, 0, dn, shared_.now - 1, true);
}

template <class T>
void MixerBlock<T>::bind(Inputs& in) const {
  const std::span<const InputInfo> inputs = plan().inputs();
  for (int s = 0; s < static_cast<int>(mixer_.slots.size()); ++s) {
    const Slot& slot = mixer_.slots[static_cast<std::size_t>(s)];
    if (slot.input >= 0)
      in[inputs[static_cast<std::size_t>(slot.input)].name] =
          tensor(s, value(s, static_cast<int>(slot.steps.size())));
  }
  for (std::size_t i = 0; i < mixer_.constants.size(); ++i) {
    const Constant& one = mixer_.constants[i];
    const T* const data = one.step.map == Map::none ? shared_.value(one.parameter) : constants_[i].data();
    ConstTensor t;
    t.data = data, t.type = type_of<T>;
    Size stride = 1;
    const std::vector<std::ptrdiff_t>& extent = shared_.registry[one.parameter].extent;
    t.rank = static_cast<int>(extent.size());
    for (std::size_t d = extent.size(); d-- > 0;) t.extent[d] = extent[d], t.stride[d] = stride, stride *= extent[d];
    in[inputs[static_cast<std::size_t>(one.input)].name] = t;
  }
}

template <class T>
void MixerBlock<T>::forward(T* r) {
  const Size rows = shared_.rows();
  copy_rows(shared_.threads, rows, width_, r, width_, input_.data(), width_);
  norm_.forward(input_.data(), normed_.data());
  project();
  convolve();
  for (int s = 0; s < static_cast<int>(mixer_.slots.size()); ++s) {
    const Slot& slot = mixer_.slots[static_cast<std::size_t>(s)];
    if (slot.source >= 0) {
      const Slot& source = mixer_.slots[static_cast<std::size_t>(slot.source)];
      const Place from = value(slot.source, static_cast<int>(source.steps.size())), to = value(s, 0);
      shared_.product(slot.weight, rows, from.data, from.stride, nullptr, 0, to.data, to.stride);
    }
    run_steps(s);
  }
  constants_forward();
  Inputs in;
  bind(in);
  Outputs out;
  const std::span<const InputInfo> outputs = plan().outputs();
  const Size dim = answer_dim_;
  out[outputs[0].name] = headed(answer_.data(), mixer_.out_width, mixer_.out_width / dim, dim);
  for (std::size_t i = 0; i < added_.size(); ++i)
    out[outputs[static_cast<std::size_t>(mixer_.added[i])].name] =
        headed(added_[i].data(), mixer_.out_width, mixer_.out_width / dim, dim);
  main_.forward(in, out);
  finish_forward();
  const Buffer<T>& last = gated_.size() ? gated_ : finished_.size() ? finished_ : answer_;
  shared_.product(mixer_.out, rows, last.data(), mixer_.out_width, mixer_.residual ? r : nullptr, width_, r, width_);
}

template <class T>
void MixerBlock<T>::finish_forward() {
  const Size rows = shared_.rows(), out_width = mixer_.out_width;
  if (out_norm_) {
    Inputs in;
    in["x"] = headed(answer_.data(), out_width, mixer_.out_heads, mixer_.out_dim);
    in["w"] = view(shared_.value(mixer_.out_norm), mixer_.out_dim);
    if (fused_gate_) {
      const Place z = value(mixer_.gate_slot, 0);
      in["z"] = headed(z.data, z.stride, mixer_.out_heads, mixer_.out_dim);
    }
    Outputs out;
    out["y"] = headed(finished_.data(), out_width, mixer_.out_heads, mixer_.out_dim);
    out_norm_->forward(in, out);
  } else if (finished_.size()) {
    copy_rows(shared_.threads, rows, out_width, answer_.data(), out_width, finished_.data(), out_width);
  }
  for (const Buffer<T>& one : added_) add_rows(shared_.threads, rows, out_width, one.data(), finished_.data());
  if (gated_.size()) {
    const Place z = value(mixer_.gate_slot, 0);
    const Stopwatch::Part part(&shared_.watch, &Times::activation);
    const T* const from = finished_.size() ? finished_.data() : answer_.data();
    gate_forward(shared_.threads, shared_.gemm.simd(), mixer_.gate, rows, out_width, from, z.data, z.stride,
                 gated_.data());
  }
}

// d_out: of what W_out reads. Writes the gradient of the gate, and of added outputs to `added_gradient`.
template <class T>
const T* MixerBlock<T>::finish_backward(const T* d_out) {
  const Size rows = shared_.rows(), out_width = mixer_.out_width;
  if (gated_.size()) {
    const Place z = value(mixer_.gate_slot, 0), dz = gradient(mixer_.gate_slot, 0);
    const Stopwatch::Part part(&shared_.watch, &Times::activation);
    const T* const from = finished_.size() ? finished_.data() : answer_.data();
    T* const dx = shared_.scratch(Shared<T>::added_gradient);
    gate_backward(shared_.threads, shared_.gemm.simd(), mixer_.gate, rows, out_width, from, z.data, z.stride, d_out,
                  dx, dz.data, dz.stride);
    d_out = dx;
  }
  if (!out_norm_) return d_out;
  Inputs in, d_outputs;
  in["x"] = headed(answer_.data(), out_width, mixer_.out_heads, mixer_.out_dim);
  in["w"] = view(shared_.value(mixer_.out_norm), mixer_.out_dim);
  d_outputs["y"] = headed(const_cast<T*>(d_out), out_width, mixer_.out_heads, mixer_.out_dim);
  T* const dx = shared_.scratch(Shared<T>::answer_gradient);
  Outputs d_in;
  d_in["x"] = headed(dx, out_width, mixer_.out_heads, mixer_.out_dim);
  d_in["w"] = view(shared_.gradient(mixer_.out_norm), mixer_.out_dim);
  if (fused_gate_) {
    const Place z = value(mixer_.gate_slot, 0), dz = gradient(mixer_.gate_slot, 0);
    in["z"] = headed(z.data, z.stride, mixer_.out_heads, mixer_.out_dim);
    d_in["z"] = headed(dz.data, dz.stride, mixer_.out_heads, mixer_.out_dim);
  }
  out_norm_->backward(in, d_outputs, d_in);
  return dx;
}

template <class T>
void MixerBlock<T>::backward(T* dr) {
  const Size rows = shared_.rows(), out_width = mixer_.out_width;
  const Buffer<T>& last = gated_.size() ? gated_ : finished_.size() ? finished_ : answer_;
  T* const d_last = shared_.scratch(Shared<T>::out_gradient);
  shared_.product_weight(mixer_.out, rows, last.data(), out_width, dr, width_);
  shared_.product_input(mixer_.out, rows, dr, width_, false, d_last, out_width);
  const T* const d_answer = finish_backward(d_last);
  // What was added after the norm has the gradient of the sum: of the gate if there is one, else of W_out's input.
  const T* const d_added = gated_.size() ? shared_.scratch(Shared<T>::added_gradient) : d_last;

  Inputs in, d_outputs;
  bind(in);
  const std::span<const InputInfo> inputs = plan().inputs(), outputs = plan().outputs();
  const Size dim = answer_dim_;
  const auto as_output = [&](const T* data) { return headed(const_cast<T*>(data), out_width, out_width / dim, dim); };
  d_outputs[outputs[0].name] = as_output(d_answer);
  for (const int i : mixer_.added) d_outputs[outputs[static_cast<std::size_t>(i)].name] = as_output(d_added);
  Outputs d_in;
  const int slots = static_cast<int>(mixer_.slots.size());
  for (int s = 0; s < slots; ++s) {
    const Slot& slot = mixer_.slots[static_cast<std::size_t>(s)];
    if (slot.input >= 0)
      d_in[inputs[static_cast<std::size_t>(slot.input)].name] =
          tensor(s, gradient(s, static_cast<int>(slot.steps.size())));
  }
  for (std::size_t i = 0; i < mixer_.constants.size(); ++i) {
    const Constant& one = mixer_.constants[i];
    const std::string& name = inputs[static_cast<std::size_t>(one.input)].name;
    if (!shared_.registry[one.parameter].trained) continue;
    const ConstTensor* const shape = in.find(name);
    Tensor t;
    t.data = one.step.map == Map::none ? shared_.gradient(one.parameter) : d_constants_[i].data();
    t.type = shape->type, t.rank = shape->rank, t.extent = shape->extent, t.stride = shape->stride;
    d_in[name] = t;
  }
  main_.backward(in, d_outputs, d_in);
  constants_backward();

  // Slots that read slots first, from the last; a slot that only others read gets its gradient from the last of them.
  std::vector<bool>& begun = begun_;
  begun.assign(static_cast<std::size_t>(slots), false);
  for (int s = 0; s < slots; ++s)
    begun[static_cast<std::size_t>(s)] = mixer_.slots[static_cast<std::size_t>(s)].input >= 0;
  for (int s = slots - 1; s >= 0; --s) {
    const Slot& slot = mixer_.slots[static_cast<std::size_t>(s)];
    undo_steps(s);
    if (slot.source < 0) continue;
    const Slot& source = mixer_.slots[static_cast<std::size_t>(slot.source)];
    const int end = static_cast<int>(source.steps.size());
    const Place from = value(slot.source, end), d_from = gradient(slot.source, end), du = gradient(s, 0);
    shared_.product_weight(slot.weight, rows, from.data, from.stride, du.data, du.stride);
    shared_.product_input(slot.weight, rows, du.data, du.stride, begun[static_cast<std::size_t>(slot.source)],
                          d_from.data, d_from.stride);
    begun[static_cast<std::size_t>(slot.source)] = true;
  }
  undo_convolve();
  T* const dn = shared_.scratch(Shared<T>::normed_gradient);
  undo_project(dn);
  if (!mixer_.residual) std::fill_n(dr, rows * width_, T(0));
  norm_.backward(input_.data(), dn, dr);
}

template <class T>
double MixerBlock<T>::logit_bound() const {
  int which[2] = {-1, -1};  // slots of queries and keys
  for (std::size_t s = 0; s < mixer_.slots.size(); ++s)
    for (const int i : {0, 1})
      if (mixer_.slots[s].name == (i == 0 ? "q" : "k") && mixer_.slots[s].pairs <= 1) which[i] = static_cast<int>(s);
  if (which[0] < 0 || which[1] < 0) return 0;
  const auto largest = [&](int s, int head) {
    const Slot& slot = mixer_.slots[static_cast<std::size_t>(s)];
    const Place at = value(s, static_cast<int>(slot.steps.size()));
    double most = 0;
    for (Size row = 0; row < shared_.rows(); ++row) {
      double sum = 0;
      for (Size i = 0; i < slot.dim; ++i) {
        const auto x = static_cast<double>(at.data[row * at.stride + head * slot.dim + i]);
        sum += x * x;
      }
      most = std::max(most, sum);
    }
    return most;
  };
  const Slot &queries = mixer_.slots[static_cast<std::size_t>(which[0])],
             &keys = mixer_.slots[static_cast<std::size_t>(which[1])];
  const auto heads = static_cast<std::size_t>(queries.heads);
  std::vector<double> most(2 * heads);
  for (int head = 0; head < queries.heads; ++head) {  // keys may have fewer heads, in groups
    most[static_cast<std::size_t>(head)] = largest(which[0], head);
    most[heads + static_cast<std::size_t>(head)] = largest(which[1], head * keys.heads / queries.heads);
  }
  if (shared_.pieces) shared_.pieces->largest(most);
  double bound = 0;
  for (std::size_t head = 0; head < heads; ++head) bound = std::max(bound, most[head] * most[heads + head]);
  return std::sqrt(bound / static_cast<double>(queries.dim));
}

template class MixerBlock<float>;
template class MixerBlock<double>;

}  // namespace ttr::model
