// The blocks of a session: memory, plans, forward and backward.
//
//   mixer   r += gate(norm(plan(slots(RMSNorm(r) W_in)))) W_out           (mixer.h)
//   mlp     r += hidden(RMSNorm(r) W_1) W_2
//
// forward(r) adds to r [N, width], N = batch time rows, and keeps what backward reads; backward(dr) turns the gradient of
// what r became into that of what it was.
//
// A session takes the sequences of a batch a few at a time, forwards and backwards, so that what backward reads is still
// in the caches. Gradients of matrices are added up by their products; other parameters have a gradient of the sequences
// at hand, `gradient`, which is written, not added (each has one place of use), and then added to the `total`.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "model/gemm.h"
#include "model/mixer.h"
#include "model/ops.h"
#include "ttr/model.h"

namespace ttr::model {

/// What the blocks of a session share. Scratch memory is asked for while blocks are made and there before the first call.
template <class T>
class Shared {
 public:
  /// `sequences` at a time, `rounds` times. `all`: tokens of a sequence over all calls, where states are carried from call
  /// to call; 0: every call begins anew.
  Shared(const Registry& of, const T* all_values, T* all_gradients, Size sequences, Size rounds, Size longest,
         Size all, int thread_count, Pieces* of_sequences = nullptr)
      : registry(of),
        values(all_values),
        totals(all_gradients),
        batch(sequences),
        time(longest),
        now(longest),
        carried(all),
        pieces(of_sequences),
        threads(thread_count),
        gemm(thread_count, &watch),
        parts_(rounds > 1 ? static_cast<Size>(of.total()) : 0),
        packed_(2 * of.parameters().size()),
        added_(of.parameters().size(), false) {}

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
  void reserve(int which, Size size) {
    if (which == weights || !carried) sizes_[which] = std::max(sizes_[which], size);  // the others are gradients
  }
  void reserve_work(std::size_t bytes) { work_bytes = std::max(work_bytes, bytes); }
  /// Whether a layer may keep so many bytes for its backward. All layers together have 1 GB: beyond that memory is worth more
  /// than the time of a replay.
  bool reserve_saved(std::size_t bytes) {
    if (bytes > saved_left) return false;
    saved_left -= bytes;
    return true;
  }
  void reserve_sums(Size numbers) { sums_size_ = std::max(sums_size_, numbers); }
  void allocate() {
    for (int i = 0; i < count; ++i) scratch_[i] = Buffer<T>(sizes_[i]);
    work_bytes = (work_bytes + 63) / 64 * 64;
    work = Buffer<std::byte>(static_cast<Size>(work_bytes) * threads);
    sums = Buffer<double>(sums_size_);
  }
  Workspace workspace(int worker) const {
    return {work.data() + static_cast<std::size_t>(worker) * work_bytes, work_bytes};
  }
  T* scratch(int which) const { return scratch_[which].data(); }
  const T* value(int parameter) const { return values + registry[parameter].offset; }
  T* total(int parameter) const { return totals + registry[parameter].offset; }
  T* gradient(int parameter) const { return (parts_.size() ? parts_.data() : totals) + registry[parameter].offset; }

  /// A call begins: weights may have changed.
  void begin() {
    for (Packed& one : packed_) one.now = false;
    first = true;
  }
  /// The sequences at hand are done: their gradients are added up.
  void end_round(bool backward) {
    if (backward && parts_.size())
      for (std::size_t p = 0; p < added_.size(); ++p) {
        const int parameter = static_cast<int>(p);
        if (added_[p] || !registry[parameter].trained) continue;
        const auto size = static_cast<Size>(registry[parameter].size);
        if (first) std::copy_n(gradient(parameter), size, total(parameter));
        else
          for (Size i = 0; i < size; ++i) total(parameter)[i] += gradient(parameter)[i];
      }
    first = false;
  }
  /// The gradient of this parameter is added to its total where it is made.
  void adds(int parameter) { added_[static_cast<std::size_t>(parameter)] = true; }

  /// Room for W of products, so that a first call allocates nothing.
  void reserve_product(int parameter, bool transposed) { packed(parameter, transposed); }

  /// y [M,N] = x W + F for a parameter W [K,N]; F = null: none; F may be y.
  void product(int parameter, Size M, const T* x, Size ldx, const T* F, Size ldf, T* y, Size ldy) {
    const Stopwatch::Part part(&watch, &Times::product_forward);
    gemm.rows(M, x, ldx, packed(parameter, false), F, ldf, y, ldy);
  }
  /// dx [M,K] = dy W', or plus that.
  void product_input(int parameter, Size M, const T* dy, Size lddy, bool add, T* dx, Size lddx) {
    const Stopwatch::Part part(&watch, &Times::product_input);
    gemm.rows(M, dy, lddy, packed(parameter, true), add ? dx : nullptr, lddx, dx, lddx);
  }
  /// The total of W = x' dy over the M rows, or plus that.
  void product_weight(int parameter, Size M, const T* x, Size ldx, const T* dy, Size lddy, bool add) {
    const std::vector<std::ptrdiff_t>& extent = registry[parameter].extent;
    adds(parameter);
    gemm.tn(extent[0], extent[1], M, x, ldx, dy, lddy, add ? T(1) : T(0), total(parameter), extent[1]);
  }
  void product_weight(int parameter, Size M, const T* x, Size ldx, const T* dy, Size lddy) {
    product_weight(parameter, M, x, ldx, dy, lddy, !first);
  }
  Size rows() const { return batch * now; }
  Size most_rows() const { return batch * time; }

  const Registry& registry;
  const T* values;
  T* totals;
  Size batch, time, now;  // sequences at a time; now: tokens of the call at hand
  bool first = true;      // no sequences of the call before those at hand
  Size carried;
  Pieces* pieces;  // null: sequences are here as a whole
  int threads;
  Stopwatch watch;
  Gemm<T> gemm;
  Buffer<std::byte> work;  // work_bytes for every thread
  std::size_t saved_left = std::size_t{1} << 30;
  std::size_t work_bytes = 0;
  Buffer<double> sums;

 private:
  struct Packed {
    Panels<T> panels;
    bool now = false;  // packed since the call began
  };
  const Panels<T>& packed(int parameter, bool transposed) {
    Packed& one = packed_[2 * static_cast<std::size_t>(parameter) + (transposed ? 1 : 0)];
    const std::vector<std::ptrdiff_t>& extent = registry[parameter].extent;
    if (!one.now)
      gemm.pack(extent[transposed ? 1 : 0], extent[transposed ? 0 : 1], value(parameter), extent[1], transposed,
                one.panels);
    one.now = true;
    return one.panels;
  }

  Size sizes_[count] = {}, sums_size_ = 0;
  Buffer<T> scratch_[count], parts_;
  std::vector<Packed> packed_;  // every parameter, and transposed
  std::vector<bool> added_;     // by parameter
};

/// A plan of the library, run from a fresh state, or from where the last call ended, on the sequences at hand. Where other
/// processes have the rest of the sequences and the plan has a state, it is theirs together (Pieces). Every sequence is a task of its own, whatever
/// the number of threads: gradients of inputs that the sequences share are added in their order. A single sequence is
/// left to the plan's own threads. Throws Error with the plan's own sentence where a call fails.
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
  void reset();
  const Plan& plan() const { return plan_; }
  std::size_t state_bytes() const { return own_bytes_ * static_cast<std::size_t>(shared_.batch); }
  /// Whether the state has a place for every token.
  bool grows() const { return plan_.tokens_kept(state_of(0)) >= 0; }

 private:
  /// The tensors of sequence i; those without a batch are common to all.
  template <class AnyTensor>
  NamedTensors<AnyTensor> of_sequence(const NamedTensors<AnyTensor>&, Size i, bool outputs) const;
  bool common(std::string_view name, bool outputs) const;
  Saved saved_of(Size i) const {
    if (saved_.size() == 0) return {};
    return {saved_.data() + static_cast<std::size_t>(i) * saved_bytes_, saved_bytes_};
  }
  State state_of(Size place) const {
    return {states_.data() + static_cast<std::size_t>(place) * step_bytes_, own_bytes_};
  }

  Plan plan_;
  Shared<T>& shared_;
  Parts parts_;
  std::size_t own_bytes_ = 0, step_bytes_ = 0;  // of the state of a sequence, and from one to the next
  Buffer<std::byte> states_, fresh_;            // of every thread (carried: of every sequence), and as a state begins
  // What forward leaves for backward, of every sequence; made when the first backward shows that there are any, and full
  // from the next forward on.
  Buffer<std::byte> saved_;
  std::size_t saved_bytes_ = 0;  // of a sequence; 0: nothing, or more than is worth it
  bool has_saved_ = false;
  Buffer<T> sums_;              // gradients of common inputs, by sequence
  std::vector<Status> status_;  // by sequence
  std::unique_ptr<Pieces::Call> split_;
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

/// What mixes tokens in a block.
template <class T>
class TokenMixer {
 public:
  virtual ~TokenMixer() = default;
  virtual void forward(T* r) = 0;
  virtual void backward(T* dr) = 0;
  virtual double logit_bound() const { return 0; }  // of the last forward: Session::logit_bound
  // Where states are carried:
  virtual void reset() = 0;  // no token seen
  virtual std::size_t state_bytes() const = 0;
  virtual bool grows() const = 0;
  virtual std::string why_not_token_by_token() const = 0;  // empty: it can be
};

/// A plan and what surrounds it.
template <class T>
class MixerBlock final : public TokenMixer<T> {
 public:
  MixerBlock(const Mixer&, const Config&, Shared<T>&);
  void forward(T* r) override;
  void backward(T* dr) override;
  const Plan& plan() const { return main_.plan(); }
  void reset() override;
  std::size_t state_bytes() const override;
  bool grows() const override { return main_.grows(); }
  double logit_bound() const override;
  std::string why_not_token_by_token() const override;

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
  void pass_rows(const T* rows, Size first, T* to, Size at, bool backwards);  // of every sequence one
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
  Buffer<T> last_;  // of every sequence the row that the next one's token shift reads
  Buffer<T> edge_;  // the same for the next piece, and what came from the one before
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
