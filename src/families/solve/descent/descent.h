// Several gradient steps a token on an objective of many pairs, in a linear memory or a small network.
//
//   L_t(S) = sum_i w_ti loss(f_S(k_i), v_i) ,   w_ti = beta_i e^{g_{i+1} + .. + g_t}    the newest `window` pairs, or all
//   near: w_ti also times exp(near_scale c_i.r_t) or exp(-|c_i - r_t|^2 / bandwidth) for keys c and queries r, which are k
//   and q themselves unless the memory sees features of them (own_near)
//
//   S_0 = S_{t-1} (restarts: the state's weights, linear: 0), times e^{decay_t} (Decay::before) ;  for j = 0 .. steps-1
//     P   = S_j , nesterov: S_j + m_j Z_j                    m_j = momentum_t , or j / (j + 3) (momentum_auto)
//     G   = dL_t/dS (P) , leak: + lam_t P
//     Z_{j+1} = m_j Z_j - step_j G , without momentum: -step_j G
//     S_{j+1} = S_j + Z_{j+1} , shrink: (1 - lam_t) S_j + Z_{j+1}
//   o_t = f_S(scale q_t) ,  S = S_steps, or (read_before) S_{t-1}
//
// step_j is rate_t, an entry of `list`, or, automatic, 1 / sum_i w_ti |k_i|^2 (linear memories; 0 where that is 0).
// Restarting, Z begins at 0 with every token; else it is carried like S.
//
//   sums   a linear memory with the squared loss and no window: G = H S - F with H = sum w k k' [K, K] and F = sum w k v'
//          [K, V], which have recursions. A step is one product H S, K^2 V
//   gathered   one step of a network that restarts, without a window: all gradients are taken at the same weights, so their
//          sum has a recursion, G_t = e^g G_{t-1} + beta_t (gradient of pair t), and nothing else is kept
//   rows   all else: the pairs that a token sees, 64 at a time through the network (network/neural/network.h), which for a
//          linear memory is a single matrix. The newest pair alone (window 1) is sgd; then nothing is kept
//
// Backward takes the steps of a token once more, keeps S, Z and G of each, and differentiates what was computed: second
// derivatives of the network included. States are kept every sqrt(T) tokens and computed again in between.
//
// Everything is double whatever T is: steps on a growing sum of equal weights are near the edge of stability. Forms: step
// and recurrent. A block of tokens has no product of its own: each token multiplies the whole answer by its own matrix
// `steps` times, H_t of the next token is another one, and its powers are no low rank.
//
// State: weights, and Z or G, one array [N, H, in, out] per parameter; H and F, or the list of pairs that later tokens see
// (past_*, only read here: whoever owns the list appends to it). Traps: H is read as K*K numbers of its own, and so is its
// gradient; sums of pairs make it symmetric. With a window and gates the weight of a pair is a product of the gates
// since then, made anew for every token, never by division.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "families/common/linear.h"
#include "families/network/neural/neural.h"
#include "simd/simd.h"
#include "ttr/plan.h"
#include "ttr/status.h"
#include "ttr/view.h"

namespace ttr::families {

struct DescentModel {
  enum class Decay { none, before, leak, shrink };

  NeuralModel network;  // function class and loss; its solver is not used
  bool linear = true;   // one matrix, which starts at zero
  bool sums = false;
  int window = 0;  // rows: newest pairs that a token sees; 0: all
  int steps = 1;
  bool restarts = false;
  enum class Near { none, exponential, gaussian } near = Near::none;
  double near_scale = 1;     // exponential
  int near_dim = 0;          // of c and r
  bool own_near = false;     // they are inputs of their own
  bool automatic = false;    // linear memories
  std::vector<double> list;  // a step for each iteration; empty: rate
  bool momentum = false, momentum_auto = false, nesterov = false;
  Decay decay = Decay::none;
  bool read_before = false;  // not with restarts
  double threshold = 0;      // of the Huber losses

  bool carries() const { return !restarts; }  // S and Z from token to token
  bool has_momentum() const { return momentum || momentum_auto; }
  bool gathered() const { return restarts && steps == 1 && !linear && window == 0 && near == Near::none; }
  bool lists_pairs() const { return !sums && !gathered() && window != 1; }
  bool sees_newest() const { return gathered() || window == 1; }  // of the rows
  /// Rates of a token: one for each iteration, or one.
  bool single_rate() const { return list.empty() && !each; }
  bool each = false;  // rate has an entry for each iteration
};

/// One array [N, H, in, out] per parameter, [N, H, K, K] and [N, H, K, V], contiguous; null where the model has none.
template <class N>
struct DescentState {
  NeuralParts<N> weights{}, z{};  // z: Z, or G if gathered
  N *h = nullptr, *f = nullptr;
};
/// Lists of pairs, oldest first, all [N, capacity, heads, ..] of the problem's heads.
template <class T>
struct DescentPast {
  View<T, 4> k, v, near;  // near: own_near
  View<T, 3> g, beta;     // where the problem has them
};

template <class T>
struct DescentProblem {
  const DescentModel* model = nullptr;
  LinearProblem<T> linear;  // q, k, v, g, beta, o, sequences, scale; linear.state is not used; k of key_heads heads
  int query_heads = 1, value_heads = 1;  // head h reads q of head h / (heads / query_heads), and so on
  View<const T, 4> near_q, near_k;       // near: r [B, T, query_heads, near_dim], and c (own_near)
  View<const T, 1> bandwidth;            // [H], gaussian
  View<const T, 4> rate;                 // [B, T, H, steps], or with zero strides; no data = 1
  View<const T, 3> momentum, decay;      // [B, T, H], where the model has them; decay: the log of a factor, or lam
  DescentPast<const T> past;             // lists_pairs
  const std::int64_t* past_count = nullptr;  // [N]; null = none
  DescentState<double> state;                // start in, end out; restarts: only read
  bool keep = true;                          // false: the state is only read
};

/// Gradients are added to (+=). `linear.d_final` and `linear.d_initial` are not used.
template <class T>
struct DescentGradient {
  LinearGradient<T> linear;  // d_o in; d_q, d_k, d_v, d_g, d_beta out
  View<T, 4> d_near_q, d_near_k;
  View<T, 1> d_bandwidth;
  View<T, 4> d_rate;  // zero strides sum
  View<T, 3> d_momentum, d_decay;
  DescentPast<T> d_past;
  DescentState<const double> d_final;
  DescentState<double> d_initial;
};

namespace descent {

/// `pairs` is the most that a sequence has: tokens of the call and those of its past.
std::size_t workspace_bytes(const DescentModel&, std::ptrdiff_t pairs, bool backward) noexcept;

template <class T>
Status forward(const DescentProblem<T>&, Form, const Simd<double>&, Workspace) noexcept;

/// `state` is the *initial* one and is only read; outputs are ignored.
template <class T>
Status backward(const DescentProblem<T>&, const DescentGradient<T>&, Form, const Simd<double>&, Workspace) noexcept;

}  // namespace descent
}  // namespace ttr::families
