// sLSTM (Beck et al. 2024, arXiv 2405.04517), a recurrence that is no regression: the baseline that tracks states because its
// gates read its own last answer. A block `slstm` of a stack.
//
//   n = RMSNorm(r) ;  u = silu(convolution(n))                              conv=0: u = n
//   i~ = W_i u + R_i h + b_i     f~ = W_f u + R_f h + b_f                   h: the answer at the token before
//   z = tanh(W_z n + R_z h + b_z)     o = sigmoid(W_o n + R_o h + b_o)
//   m' = max(log sigmoid(f~) + m, i~)                                       stabiliser, -inf at first
//   c' = exp(log sigmoid(f~) + m - m') c + exp(i~ - m') z                   cell
//   n' = exp(log sigmoid(f~) + m - m') n + exp(i~ - m')                     normaliser, at least 1
//   h' = o c' / n' ;  r += RMSNorm of every head(h') W_out                  out=no: without W_out, as published
//
// R of every gate is block diagonal: a head reads its own h alone. Shapes: gates i, f in one matrix [width, heads, 2, dim], z and
// o in another; R of both [heads, dim, 2, dim]; state [4, heads, dim] per sequence: h, c, n, m.
//
// Traps. c / n does not depend on m, so m has no gradient although it is a maximum. The first token has no state: with
// m = -inf its share of c and n is exactly zero. Published with a group norm and R = 0 at first; here the norm is RMSNorm, as of
// all other blocks, and R is drawn, because with R = 0 nothing mixes at first and parity takes longer to be found.
#pragma once

#include "model/block.h"

namespace ttr::model {

/// What a forward pass keeps of every token, [rows, heads, dim] or with 2 gates [rows, heads, 2, dim].
template <class T>
struct SlstmTrace {
  T *gates, *cells;  // 2 each: W u + b and W n + b, then i' = exp(i~ - m'), f' = exp(log f + m - m'), and z, o
  T* slope;          // of log sigmoid at f~
  T *c, *n, *h;
};
/// The recurrence over `time` tokens of `batch` sequences, each from its state [4, heads, dim] and to it. Tasks of threads are
/// heads of sequences; `work` has 6 dim numbers for each.
template <class T>
void slstm_forward(int threads, const Simd<T>&, Size batch, Size time, Size heads, Size dim, const T* gate_recurrence,
                   const T* cell_recurrence, const SlstmTrace<T>&, T* state, T* work);
/// From the gradient of h to those of W u + b and W n + b; the call began from no state. `work` as above.
template <class T>
void slstm_backward(int threads, const Simd<T>&, Size batch, Size time, Size heads, Size dim,
                    const T* gate_recurrence, const T* cell_recurrence, const SlstmTrace<T>&, const T* dh, T* d_gates,
                    T* d_cells, T* work);
/// No token seen, of `batch` sequences.
template <class T>
void slstm_reset(Size batch, Size heads, Size dim, T* state);

template <class T>
class SlstmBlock final : public TokenMixer<T> {
 public:
  SlstmBlock(const Slstm&, const Config&, Shared<T>&);
  void forward(T* r) override;
  void backward(T* dr) override;
  void reset() override;
  std::size_t state_bytes() const override;
  bool grows() const override { return false; }
  std::string why_not_token_by_token() const override { return {}; }

 private:
  SlstmTrace<T> trace() const {
    return {gates_.data(), cells_.data(), slope_.data(), c_.data(), n_.data(), h_.data()};
  }
  const T* convolved() const { return convolution_ ? convolved_.data() : normed_.data(); }

  const Slstm slstm_;
  Shared<T>& shared_;
  Size width_, inner_;
  Norm<T> norm_;
  std::unique_ptr<Call<T>> convolution_;
  Call<T> out_norm_;
  Buffer<T> input_, normed_, convolved_, gates_, cells_, slope_, c_, n_, h_, before_, finished_, state_, work_;
};

}  // namespace ttr::model
