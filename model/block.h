// The blocks of a session: memory, plans, forward and backward.
//
//   mixer   r += gate(norm(plan(slots(RMSNorm(r) W_in)))) W_out           (mixer.h)
//   mlp     r += hidden(RMSNorm(r) W_1) W_2
//
// forward(r) adds to r [N, width], N = batch time rows, and keeps what backward reads; backward(dr) turns the gradient of
// what r became into that of what it was. Gradients of parameters are written, not added: each has one place of use.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "model/gemm.h"
#include "model/mixer.h"
#include "model/ops.h"

namespace ttr::model {

/// What the blocks of a session share. Scratch memory is asked for while blocks are made and there before the first call.
template <class T>
class Shared {
 public:
  Shared(const Registry& of, const T* all_values, T* all_gradients, Size sequences, Size longest, int thread_count)
      : registry(of),
        values(all_values),
        gradients(all_gradients),
        batch(sequences),
        time(longest),
        now(longest),
        threads(thread_count),
        gemm(thread_count, &watch) {}

  enum Scratch {
    out_gradient,
    answer_gradient,
    added_gradient,
    normed_gradient,
    row_gradient,
    weights,
    levels,
    count = levels + 6
  };
  void reserve(int which, Size size) { sizes_[which] = std::max(sizes_[which], size); }
  void reserve_work(std::size_t bytes) { work_bytes = std::max(work_bytes, bytes); }
  void reserve_sums(Size numbers) { sums_size_ = std::max(sums_size_, numbers); }
  void allocate() {
    for (int i = 0; i < count; ++i) scratch_[i] = Buffer<T>(sizes_[i]);
    work = Buffer<std::byte>(static_cast<Size>(work_bytes));
    sums = Buffer<double>(sums_size_);
  }
  T* scratch(int which) const { return scratch_[which].data(); }
  const T* value(int parameter) const { return values + registry[parameter].offset; }
  T* gradient(int parameter) const { return gradients + registry[parameter].offset; }
  Size rows() const { return batch * now; }
  Size most_rows() const { return batch * time; }

  const Registry& registry;
  const T* values;
  T* gradients;
  Size batch, time, now;  // now: tokens of the call at hand
  int threads;
  Stopwatch watch;
  Gemm<T> gemm;
  Buffer<std::byte> work;
  std::size_t work_bytes = 0;
  Buffer<double> sums;

 private:
  Size sizes_[count] = {}, sums_size_ = 0;
  Buffer<T> scratch_[count];
};

/// A plan of the library, run from a fresh state. Throws Error with the plan's own sentence where a call fails.
template <class T>
class Call {
 public:
  /// The parts of the session's time that the calls belong to.
  struct Parts {
    Stopwatch::Seconds forward, backward;
  };
  Call(std::string_view text, Shape shape, Options options, Shared<T>& shared,
       Parts parts = {&Times::norm, &Times::norm});
  void forward(const Inputs&, const Outputs&);
  void backward(const Inputs&, const Inputs& d_outputs, const Outputs& d_inputs);
  const Plan& plan() const { return plan_; }

 private:
  Plan plan_;
  Shared<T>& shared_;
  Parts parts_;
  Buffer<std::byte> state_, fresh_;
};

/// RMSNorm over rows of `width`.
template <class T>
class Norm {
 public:
  Norm(Shared<T>& shared, int width, int weight, double eps);
  void forward(const T* x, T* y);
  /// dr += the gradient with respect to x.
  void backward(const T* x, const T* dy, T* dr);

 private:
  Shared<T>& shared_;
  int width_, weight_;
  Call<T> call_;
};

template <class T>
class MixerBlock {
 public:
  MixerBlock(const Mixer&, const Config&, Shared<T>&);
  void forward(T* r);
  void backward(T* dr);
  const Plan& plan() const { return main_.plan(); }

 private:
  struct Place {
    T* data;
    Size stride;  // between rows
  };
  Place value(int slot, int level) const;
  Place gradient(int slot, int level) const;
  Tensor tensor(int slot, Place) const;  // as the plan's input
  Tensor headed(T* data, Size stride, Size heads, Size dim) const;
  void bind(Inputs&) const;
  void run_steps(int slot);
  void undo_steps(int slot);
  void convolve();
  void undo_convolve();
  void constants_forward();
  void constants_backward();
  void finish_forward();
  const T* finish_backward(const T* d_out);  // the gradient of the first output
  void project();
  void undo_project(T* dn);
  MapCall<T> map_call(const Step&) const;
  Size rates(const Step&) const;

  const Mixer& mixer_;
  Shared<T>& shared_;
  Size width_, answer_dim_ = 1;
  Norm<T> norm_;
  Call<T> main_;
  std::vector<std::vector<Size>> inner_;  // of every slot: extents of its input after the time
  std::unique_ptr<Call<T>> convolution_, out_norm_;
  std::vector<std::vector<std::unique_ptr<Call<T>>>> steps_;  // of every slot, where a step is a plan
  Buffer<T> input_, normed_, shifted_, answer_, finished_, gated_;
  std::vector<Buffer<T>> levels_, added_, apart_, d_apart_, constants_, d_constants_;
  std::vector<bool> begun_;  // slots whose gradient has been written
  bool fused_gate_ = false;
};

/// The parameters of a perceptron.
struct Mlp {
  int norm = -1, in = -1, out = -1, hidden = 0;
};

template <class T>
class MlpBlock {
 public:
  MlpBlock(Shared<T>&, const Mlp&, const Config&);
  void forward(T* r);
  void backward(T* dr);

 private:
  Shared<T>& shared_;
  Size width_, hidden_, units_;  // units: columns of W_1
  bool swiglu_;
  int in_, out_;
  Norm<T> norm_;
  Buffer<T> input_, normed_, before_, after_;
};

}  // namespace ttr::model
