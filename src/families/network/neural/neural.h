// Memories that are small networks, trained inside the forward pass (TTT, Titans, LaCT, Miras, ATLAS).
//
//   f(x)   X_0 = x ;  X_{l+1} = act(X_l W_l + b_l) , no activation after the last ;  gated: act(X_0 W_0) * (X_0 W_2)
//          then, with a norm, (. - mean) / sqrt(var + eps) * w + c ;  then, with a skip, + x
//   token  u_t = -rate_t dloss(f_A(k_t), v_t)/dW        A: the weights at the start of the block of `batch` tokens
//   chain  Z_t = momentum_t Z_{t-1} + u_t ;  W_t = a_t W_{t-1} + Z_t ;  o_t = f_{W_t}(scale q_t)
//   block  Z_t = sum of u over the block up to t ;  W_t = A + gain_t Z_t
//
// `batch` and `step_every` are part of the model, not of the speed: other sizes are other functions. A call may stop
// and go on anywhere; `count` knows the place in the block. What the options are for:
//
//   TTT (ttt-lm-pytorch)      block, position_gain [H, batch] (its token_eta), norm_weight, norm_bias, Skip::input
//   TTT (fla)                 block, gain [B, T, H], no rate, Skip::sum
//   Titans, per token         chain with momentum and Decay::complement, gradient_scale 2
//   Titans (titans-pytorch)   step_every C: Z and W move once per C tokens, by the sum of their u and the *mean* of
//                             their gates; batch 0: gradients at the first weights forever; Norm::learned (w = 1 +
//                             gamma, gamma is learned with the rest), gradient_scale 2/V
//   LaCT                      step_every = batch, read_before, lazy (a complete chunk is learned when the next token
//                             comes, so the last one never is), Loss::dot, orthogonalise, row_norm, a rate per matrix
//   Miras                     batch 1, Decay::log; q_norm: the memory in use is W / |W|_q^(q-2), matrix by matrix
//                             (Moneta); mirror: it is radius softmax(W) over the entries of a matrix (Memora)
//   ATLAS                     window c: u_t = -rate_t sum of the last c pairs' weight_i dloss_i at W_{t-1}
//
// Sources: arXiv 2407.04620, 2501.00663, 2505.23884, 2504.13173, 2505.23735.
//
// Forms: step and recurrent move the weights at every token. chunk (= best) takes pieces of up to `chunk` tokens
// (<= 0: 64) that share A. Where the weights of a piece are linear in its u, rows of queries meet the weights of
// their own token without any of them being formed (W0, Z0: the state before; X: the keys' activations, D deltas):
//
//   Y_l = diag(a) Q_l W0 + diag(b) Q_l Z0 + tril(Gamma * (Q_l X_l' + 1)) (-rate D_l)            for every matrix l
//
// with a, b, Gamma from the gates alone (neural_schedule.h): any depth, any momentum. Not linear: orthogonalise,
// row_norm, q_norm, mirror, lazy, decayed_point, window; then tokens between two steps go together, and with step_every = 1
// the chunk form is the recurrent one. parallel, scan: not_supported (a nonlinear memory has no exact scan).
//
// Backward differentiates the inner optimisation, second-order terms included. It keeps the states where the weights
// move, all while they take less than 8 MB, else 2 sqrt(moves) of them.
//
// State (pointers that the model does not need may be null): weights; start = A (unless batch is 1); z = Z (momentum,
// block); pending = the u of an unfinished step, gate_sums = their momentum and decay so far (step_every > 1, lazy).
// start, and z of a block, stay as they are when a block is finished and are dead: the next token overwrites them.
// norms are the lengths that row_norm restores; only read.
//
// Traps: a skip needs K = V; the loss power takes p sign(e)|e|^(p-1), not divided by p; below p = 2 its second
// derivative at e = 0 is taken as 0. The weights at the end of a call are what its last token reads, also in the
// middle of a block; set count to 0 to start a new block there. Not here: Nesterov, leak, gates per channel,
// more than one step per token, thresholds in a window.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "families/common/linear.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

namespace neural {

enum class Activation { gelu, gelu_tanh, relu, silu, tanh };
enum class Norm { none, fixed, learned };  // w from norm_weight (no data: 1), or 1 + gamma with gamma in the memory
/// input: f(x) = . + x. sum: as input while learning, but a read adds what went into the norm instead of q.
enum class Skip { none, input, sum };
/// d loss / d y, e = y - v, c = threshold:  e ;  -v ;  e or c e/|e| if |e| > c ;  each e_j clipped to [-c, c] ;
/// e or c sign(e) if |e| > c ;  p sign(e)|e|^(p-1)
enum class Loss { squared, dot, huber, huber_coordinate, huber_sign, power };
enum class Decay { none, log, complement };  // a = e^decay, a = 1 - decay
/// The memory in use, of each matrix W, times the radius: W itself ;  softmax over all entries ;  e^W ;  sinh W
enum class Mirror { none, softmax, exp, sinh };
enum class Orthogonalise { none, fixed, scheduled };  // five Newton-Schulz steps: Muon's coefficients, LaCT's

inline constexpr int max_depth = 16;
inline constexpr int max_parameters = 2 * max_depth + 3;

}  // namespace neural

struct NeuralModel {
  int key_dim = 1, value_dim = 1;
  // network
  int depth = 1;  // weight matrices in a row; gated: 2, and a third beside the first
  int width = 0;  // hidden units, where depth > 1
  neural::Activation activation = neural::Activation::gelu;
  bool gated = false, bias = false;
  neural::Norm norm = neural::Norm::none;
  double norm_eps = 1e-6;
  neural::Skip skip = neural::Skip::none;
  // loss
  neural::Loss loss = neural::Loss::squared;
  double power = 2, gradient_scale = 1;
  // solver
  int batch = 1;       // tokens whose gradients are taken at the same weights; 0: all
  int step_every = 1;  // tokens per move of Z and W; divides batch
  bool block = false;  // W_t = A + gain_t Z_t; no momentum, decay or read_before, step_every 1
  bool momentum = false;
  neural::Decay decay = neural::Decay::none;
  bool decayed_point = false;                                         // batch 1: the gradient is taken at a_t W_{t-1}
  bool read_before = false;                                           // o_t before the step of token t
  bool lazy = false;                                                  // a step is taken when the next token comes
  neural::Orthogonalise orthogonalise = neural::Orthogonalise::none;  // of the matrices' updates
  bool row_norm = false;  // after a step, the weights of every unit of a matrix get their length of `norms`
  double q_norm = 0;      // 0: none
  neural::Mirror mirror = neural::Mirror::none;                                // not with q_norm, row_norm
  double radius = 1;                                                           // of a mirror map
  bool maps() const { return q_norm != 0 || mirror != neural::Mirror::none; }  // the memory in use is not W
  int window = 1;                                                              // batch 1
  int rates = 1;  // 1, or one for every matrix (not with Norm::learned)
};

/// Parameters in order: W0, b0, W1, b1, .., (W2, b2 of a gated network), gamma. Matrices are [in, out], others [out].
struct NeuralLayout {
  struct Part {
    int in, out;
    bool matrix;
    std::ptrdiff_t offset;  // in one head's numbers
  };
  explicit NeuralLayout(const NeuralModel&);
  int count = 0, matrices = 0;
  std::ptrdiff_t size = 0;  // numbers of all parts
  std::array<Part, neural::max_parameters> part{};
  int matrix(int j) const { return j * (1 + bias); }  // index of matrix j, its bias follows
  bool bias;
};

/// One array [N, H, in, out] per parameter.
template <class T>
using NeuralParts = std::array<T*, neural::max_parameters>;

/// What is carried from call to call, besides the count; also its gradient.
template <class T>
struct NeuralState {
  NeuralParts<T> weights{}, start{}, z{}, pending{};
  T* gate_sums = nullptr;  // [N, H, 2], momentum and decay
  T *history_k = nullptr, *history_v = nullptr, *history_weight = nullptr;
  // [N, window-1, G, K], [N, window-1, H, V], [N, window-1, H], oldest first; the last min(count, window-1) are pairs
};

template <class T>
struct NeuralProblem {
  NeuralModel model;
  std::span<const Sequence> sequences;      // sequence n owns state n
  int heads = 1, key_heads = 1;             // value head h reads q and k of head h / (heads / key_heads)
  T scale = 1;                              // on q
  View<const T, 4> q, k;                    // [B, T, G, K]
  View<const T, 4> v;                       // [B, T, H, V]
  View<const T, 4> rate;                    // [B, T, H, rates]; no data = 1. Strides may be zero, here and below.
  View<const T, 3> momentum, decay;         // [B, T, H], where the model has them
  View<const T, 3> gain;                    // [B, T, H], block; no data = 1
  View<const T, 2> position_gain;           // [H, batch], block: a factor by the place in the block; no data = 1
  View<const T, 3> threshold;               // [B, T, H], Huber losses
  View<const T, 3> weight;                  // [B, T, H], of a pair in the window; no data = 1
  View<const T, 2> norm_weight, norm_bias;  // [H, V], Norm::fixed; no data = 1, 0
  NeuralParts<const T> norms{};             // [N, H, out] of the matrices, row_norm
  std::int64_t* count = nullptr;            // [N] tokens seen, start in, end out
  NeuralState<T> state;                     // start in, end out
  View<T, 4> o;                             // [B, T, H, V]; no data = outputs not wanted
};

/// Gradients are added to (+=). d_o and d_final come in (no data, null: zero), the others go out where there is data.
template <class T>
struct NeuralGradient {
  View<const T, 4> d_o;
  NeuralState<const T> d_final;
  View<T, 4> d_q, d_k, d_v, d_rate;
  View<T, 3> d_momentum, d_decay, d_gain, d_threshold, d_weight;
  View<T, 2> d_position_gain, d_norm_weight, d_norm_bias;
  NeuralParts<T> d_norms{};
  NeuralState<T> d_initial;
};

namespace neural {

/// `longest` is the length of the longest sequence.
template <class T>
std::size_t workspace_bytes(const NeuralModel&, std::ptrdiff_t longest, Form, int chunk, bool backward) noexcept;

template <class T>
Status forward(const NeuralProblem<T>&, Form, int chunk, const Simd<T>&, Workspace) noexcept;

/// `count` and `state` are the *initial* ones and are only read; `o` is ignored.
template <class T>
Status backward(const NeuralProblem<T>&, const NeuralGradient<T>&, Form, int chunk, const Simd<T>&,
                Workspace) noexcept;

}  // namespace neural
}  // namespace ttr::families
