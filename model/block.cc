// block.h: forward and backward of the blocks.
#include "model/block.h"

#include <algorithm>

#include "model/text.h"

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
        shape.batch = static_cast<int>(shared.batch);
        return ttr::plan(text, shape, options_of<T>(std::move(options), shared.threads));
      }()),
      shared_(shared),
      parts_(parts) {
  const Footprint bytes = plan_.footprint(shared.time);
  shared.reserve_work(std::max(bytes.workspace, bytes.backward));
  state_ = Buffer<std::byte>(static_cast<Size>(bytes.state));
  fresh_ = Buffer<std::byte>(static_cast<Size>(bytes.state));
  plan_.reset({fresh_.data(), bytes.state});
}

template <class T>
void Call<T>::forward(const Inputs& in, const Outputs& out) {
  const Stopwatch::Part part(&shared_.watch, parts_.forward);
  const State state{state_.data(), static_cast<std::size_t>(state_.size())};
  const Workspace work{shared_.work.data(), shared_.work_bytes};
  plan_.reset(state);
  const Status status = plan_.forward(in, state, out, work);
  if (status == Status::ok) return;
  plan_.reset(state);
  const std::string why = plan_.diagnose(in, state, out, work);
  throw Error(plan_.name() + ": " + (why.empty() ? std::string(to_string(status)) : why), plan_.name());
}

template <class T>
void Call<T>::backward(const Inputs& in, const Inputs& d_outputs, const Outputs& d_inputs) {
  const Stopwatch::Part part(&shared_.watch, parts_.backward);
  const ConstState fresh(fresh_.data(), static_cast<std::size_t>(fresh_.size()));
  const Status status =
      plan_.backward(in, fresh, d_outputs, {}, d_inputs, {}, {shared_.work.data(), shared_.work_bytes});
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
      output_(shared.most_rows() * width_),
      normed_(shared.most_rows() * width_),
      before_(shared.most_rows() * units_),
      after_(shared.most_rows() * hidden_) {
  shared.reserve(Shared<T>::answer_gradient, shared.most_rows() * hidden_);
  shared.reserve(Shared<T>::out_gradient, shared.most_rows() * units_);
  shared.reserve(Shared<T>::normed_gradient, shared.most_rows() * width_);
}

template <class T>
const T* MlpBlock<T>::forward(const T* r) {
  const Size rows = shared_.rows();
  input_ = r;
  norm_.forward(r, normed_.data());
  shared_.product(in_, rows, normed_.data(), width_, nullptr, 0, before_.data(), units_);
  {
    const Stopwatch::Part part(&shared_.watch, &Times::activation);
    hidden_forward(shared_.threads, shared_.gemm.simd(), swiglu_, rows, hidden_, before_.data(), after_.data());
  }
  shared_.product(out_, rows, after_.data(), hidden_, r, width_, output_.data(), width_);
  return output_.data();
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
  norm_.backward(input_, d_normed, dr);
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
