// block.h: forward and backward of the blocks.
#include "model/block.h"

#include <algorithm>
#include <type_traits>

#include "model/text.h"
#include "threads/pool.h"

namespace ttr::model {
namespace {

template <class T>
Options options_of(Options options, int threads) {
  options.type = type_of<T>, options.threads = threads;
  return options;
}

}  // namespace

template <class T>
Call<T>::Call(std::string_view text, Shape shape, Options options, Shared<T>& shared, Parts parts)
    : plan_([&] {
        shape.batch = 1;
        return ttr::plan(text, shape, options_of<T>(options, shared.batch > 1 ? 1 : shared.threads));
      }()),
      shared_(shared),
      parts_(parts),
      status_(static_cast<std::size_t>(shared.batch)) {
  if (shared.pieces && !plan_.states().empty()) {
    shape.batch = static_cast<int>(shared.batch);
    split_ = shared.pieces->call(ttr::plan(text, shape, options_of<T>(options, shared.threads)));
    return;
  }
  const Footprint bytes = plan_.footprint(shared.carried ? shared.carried : shared.time);
  shared.reserve_work(shared.carried ? bytes.workspace : std::max(bytes.workspace, bytes.backward));
  own_bytes_ = bytes.state, step_bytes_ = (bytes.state + 63) / 64 * 64;
  const std::size_t saved = (bytes.saved + 63) / 64 * 64;
  if (!shared.carried && shared.reserve_saved(saved * static_cast<std::size_t>(shared.batch))) saved_bytes_ = saved;
  states_ =
      Buffer<std::byte>(static_cast<Size>(step_bytes_) * (shared.carried ? shared.batch : Size{shared.threads}));
  if (shared.carried) {
    reset();
    return;
  }
  fresh_ = Buffer<std::byte>(static_cast<Size>(own_bytes_));
  plan_.reset({fresh_.data(), own_bytes_});
}

template <class T>
void Call<T>::reset() {
  for (Size i = 0; i < shared_.batch; ++i) plan_.reset(state_of(i));
}

template <class T>
bool Call<T>::common(std::string_view name, bool outputs) const {
  for (const InputInfo& info : outputs ? plan_.outputs() : plan_.inputs())
    if (info.name == name) return !Axes(info.shape).has_any("B");
  return true;
}

template <class T>
template <class AnyTensor>
NamedTensors<AnyTensor> Call<T>::of_sequence(const NamedTensors<AnyTensor>& all, Size i, bool outputs) const {
  NamedTensors<AnyTensor> own = all;
  for (const std::string_view name : all.names()) {
    AnyTensor& tensor = own[name];
    if (!tensor.data || common(name, outputs)) continue;
    using Number = std::conditional_t<std::is_same_v<AnyTensor, Tensor>, T, const T>;
    tensor.data = static_cast<Number*>(tensor.data) + i * tensor.stride[0];
    tensor.extent[0] = 1;
  }
  return own;
}

template <class T>
void Call<T>::forward(const Inputs& in, const Outputs& out) {
  const Stopwatch::Part part(&shared_.watch, parts_.forward);
  if (split_) return split_->forward(in, out);
  threads::for_each(shared_.batch > 1 ? shared_.threads : 1, static_cast<int>(shared_.batch), [&](int i, int worker) {
    const State state = state_of(shared_.carried ? i : worker);
    if (!shared_.carried) plan_.reset(state);
    status_[static_cast<std::size_t>(i)] = plan_.forward(of_sequence(in, i, false), state, of_sequence(out, i, true),
                                                         shared_.workspace(worker), Form::best, saved_of(i));
  });
  has_saved_ = saved_.size() > 0;
  for (Size i = 0; i < shared_.batch; ++i) {
    const Status status = status_[static_cast<std::size_t>(i)];
    if (status == Status::ok) continue;
    const State state = state_of(shared_.carried ? i : 0);
    if (!shared_.carried) plan_.reset(state);
    const std::string why =
        plan_.diagnose(of_sequence(in, i, false), state, of_sequence(out, i, true), shared_.workspace(0));
    throw Error(plan_.name() + ": " + (why.empty() ? std::string(to_string(status)) : why), plan_.name());
  }
}

template <class T>
void Call<T>::backward(const Inputs& in, const Inputs& d_outputs, const Outputs& d_inputs) {
  const Stopwatch::Part part(&shared_.watch, parts_.backward);
  if (split_) return split_->backward(in, d_outputs, d_inputs);
  const auto size_of = [](const Tensor& tensor) {
    Size size = 1;
    for (int d = 0; d < tensor.rank; ++d) size *= tensor.extent[static_cast<std::size_t>(d)];
    return size;
  };
  Size own = 0;  // numbers of the common gradients of a sequence
  for (const std::string_view name : d_inputs.names())
    if (common(name, false)) own += size_of(*d_inputs.find(name));
  if (sums_.size() < own * shared_.batch) sums_ = Buffer<T>(own * shared_.batch);
  const ConstState fresh(fresh_.data(), own_bytes_);
  threads::for_each(shared_.batch > 1 ? shared_.threads : 1, static_cast<int>(shared_.batch), [&](int i, int worker) {
    Outputs d_own = of_sequence(d_inputs, i, false);
    T* at = sums_.data() + i * own;
    for (const std::string_view name : d_own.names())
      if (common(name, false)) d_own[name].data = at, at += size_of(d_own[name]);
    status_[static_cast<std::size_t>(i)] =
        plan_.backward(of_sequence(in, i, false), fresh, of_sequence(d_outputs, i, true), {}, d_own, {},
                       shared_.workspace(worker), Form::best, Gradients::write, has_saved_ ? saved_of(i) : Saved{});
  });
  if (saved_bytes_ > 0 && saved_.size() == 0)
    saved_ = Buffer<std::byte>(static_cast<Size>(saved_bytes_) * shared_.batch);
  Size at = 0;
  for (const std::string_view name : d_inputs.names()) {
    if (!common(name, false)) continue;
    const Tensor& total = *d_inputs.find(name);
    const Size size = size_of(total);
    for (Size j = 0; j < size; ++j) {
      double sum = 0;
      for (Size i = 0; i < shared_.batch; ++i) sum += static_cast<double>(sums_.data()[i * own + at + j]);
      static_cast<T*>(total.data)[j] = static_cast<T>(sum);
    }
    at += size;
  }
  for (const Status status : status_)
    if (status != Status::ok)
      throw Error(plan_.name() + ", backwards: " + std::string(to_string(status)), plan_.name());
}

template <class T>
Norm<T>::Norm(Shared<T>& shared, int width, int weight, double eps)
    : shared_(shared),
      width_(width),
      weight_(weight),
      call_("rms-norm", {.heads = 1, .key_dim = width, .value_dim = width}, {.settings = {{"eps", number_text(eps)}}},
            shared) {
  shared.reserve(Shared<T>::row_gradient, shared.most_rows() * width);
}

template <class T>
void Norm<T>::forward(const T* x, T* y) {
  Inputs in;
  in["x"] = view(x, shared_.batch, shared_.now, 1, width_);
  in["w"] = view(shared_.value(weight_), width_);
  Outputs out;
  out["y"] = view(y, shared_.batch, shared_.now, 1, width_);
  call_.forward(in, out);
}

template <class T>
void Norm<T>::backward(const T* x, const T* dy, T* dr) {
  T* const dx = shared_.scratch(Shared<T>::row_gradient);
  Inputs in, d_out;
  in["x"] = view(x, shared_.batch, shared_.now, 1, width_);
  in["w"] = view(shared_.value(weight_), width_);
  d_out["y"] = view(dy, shared_.batch, shared_.now, 1, width_);
  Outputs d_in;
  d_in["x"] = view(dx, shared_.batch, shared_.now, 1, width_);
  d_in["w"] = view(shared_.gradient(weight_), width_);
  call_.backward(in, d_out, d_in);
  add_rows(shared_.threads, shared_.rows(), Size(width_), dx, dr);
}

template <class T>
MlpBlock<T>::MlpBlock(Shared<T>& shared, const Mlp& mlp, const Config& config)
    : shared_(shared),
      width_(config.width),
      hidden_(mlp.hidden),
      units_(config.mlp == "swiglu" ? 2 * mlp.hidden : mlp.hidden),
      swiglu_(config.mlp == "swiglu"),
      in_(mlp.in),
      out_(mlp.out),
      norm_(shared, config.width, mlp.norm, config.norm_eps),
      input_(shared.most_rows() * width_),
      normed_(shared.most_rows() * width_),
      before_(shared.most_rows() * units_),
      after_(shared.most_rows() * hidden_) {
  shared.reserve(Shared<T>::answer_gradient, shared.most_rows() * hidden_);
  shared.reserve(Shared<T>::out_gradient, shared.most_rows() * units_);
  shared.reserve(Shared<T>::normed_gradient, shared.most_rows() * width_);
}

template <class T>
void MlpBlock<T>::forward(T* r) {
  const Size rows = shared_.rows();
  copy_rows(shared_.threads, rows, width_, r, width_, input_.data(), width_);
  norm_.forward(input_.data(), normed_.data());
  shared_.product(in_, rows, normed_.data(), width_, nullptr, 0, before_.data(), units_);
  {
    const Stopwatch::Part part(&shared_.watch, &Times::activation);
    hidden_forward(shared_.threads, shared_.gemm.simd(), swiglu_, rows, hidden_, before_.data(), after_.data());
  }
  shared_.product(out_, rows, after_.data(), hidden_, r, width_, r, width_);
}

template <class T>
void MlpBlock<T>::backward(T* dr) {
  const Size rows = shared_.rows();
  T* const d_after = shared_.scratch(Shared<T>::answer_gradient);
  T* const d_before = shared_.scratch(Shared<T>::out_gradient);
  T* const d_normed = shared_.scratch(Shared<T>::normed_gradient);
  shared_.product_weight(out_, rows, after_.data(), hidden_, dr, width_);
  shared_.product_input(out_, rows, dr, width_, false, d_after, hidden_);
  {
    const Stopwatch::Part part(&shared_.watch, &Times::activation);
    hidden_backward(shared_.threads, shared_.gemm.simd(), swiglu_, rows, hidden_, before_.data(), d_after, d_before);
  }
  shared_.product_weight(in_, rows, normed_.data(), width_, d_before, units_);
  shared_.product_input(in_, rows, d_before, units_, false, d_normed, width_);
  norm_.backward(input_.data(), d_normed, dr);
}

template class Shared<float>;
template class Shared<double>;
template class Call<float>;
template class Call<double>;
template class Norm<float>;
template class Norm<double>;
template class MlpBlock<float>;
template class MlpBlock<double>;

}  // namespace ttr::model
