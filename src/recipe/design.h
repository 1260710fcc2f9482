// Design: the meaning of a recipe, as small structs. `interpret` is the only place that turns words into
// these; the oracle, the planner and `derive` read nothing else.
//
// A quantity is absent, a constant, or an *input*: a tensor the caller supplies under a canonical name.
// Canonical inputs, their shapes (B batch, T time, H heads, G key heads, K key_dim, V value_dim, M slots) and
// what asks for them:
//
//   q, k         B T G K    always (near(..) and kernel(..) memories: q B T H K, k B T G K, v B T G V); optional for
//                           memories that read no keys: vector, and constant without near
//   v            B T H V    always
//   g            B T H      gate: natural log of the factor on older pairs;  sgd(decay): of the factor on the state
//   g            H          decay(g): the same log factor for every token
//   gk           B T H K    gate(key), sgd(decay(key)) ;  gate(key, complex): magnitude, with phase theta B T H K
//   gv           B T H V    gate(value), sgd(decay(value)) ;  gate(value, complex): with phase theta B T H V
//   gkv          B T H K V  gate(full)
//   gs, s        B T H M    slots: log gate and write strength per slot
//   beta         B T H      importance of a pair (gate(beta), equal(beta), ...) or the step of sgd, gd, descend
//   i            B T H      gate(exponential): the log of the importance (mLSTM); B T H V with constant(channel)
//   trap, dt     B T H      gate(trapezoid): share of the write at its own token before the sigmoid, its size (Mamba-3)
//   mu           B T H      step of sgd(nlms) and apa
//   delta        B T H      step of sgd(longhorn)
//   lam          B T H      sgd(leak), sgd(shrink): weight decay coefficient
//   momentum     B T H      factor on the previous update (0..1)
//   gain         B T H      sgd(momentum, gain): how much of the update is added
//   p            B T G K    sgd(feedback): the key the residual is read with
//   erase, write B T H K, B T H V   sgd(split): erase gate on the key, write gate on the value
//   a, b         B T H K    sgd(dplr): read key and erase key
//   g_atk, beta_atk B T H   sgd(precondition): log gate of the sum of squared keys, share of the newest
//   log_atk_scale H         sgd(precondition): log of the sum at which a key is unchanged
//   ridge        H          exact(ridge), cg(.., ridge) ;  ridge(key): H K ;  ridge(token): B T H
//   bandwidth    H          near(gauss, bandwidth)
//   sink         H          near(exp, sink)
//   levels       B T H L    levels: scale of each level of the log-linear hierarchy
//   w_t, beta_t  B T G K, B T G   near(exp, transport): Householder vectors and steps (PaTH)
//   r            B T H K    given: the learned slope of parallax
//   bonus        H K        read(before, bonus) (H V with constant(channel))
//   process, noise B T H    kalman
//   blend        B T H      blend: o reads q + blend (x - q)
//   c            B T H      huber(c)
//   rate         B T H      minibatch(b, rate): step per token (minibatch(b) alone: step 1)
//   W0, b0, ...             initial weights of mlp memories (state)
#pragma once

#include <string>
#include <vector>

#include "ttr/layer.h"
#include "ttr/recipe.h"

namespace ttr {

struct Quantity {
  enum class From { absent, constant, input } from = From::absent;
  double value = 0;  // if constant
  bool given() const { return from != From::absent; }
  bool is_input() const { return from == From::input; }
  bool is_constant() const { return from == From::constant; }
  bool operator==(const Quantity&) const = default;
};

enum class Kernel { none, exponential, gaussian, linear, polynomial };
//   exponential  exp(x.y * s), s = 1/sqrt(K) unless a scale is set
//   gaussian     exp(-|x-y|^2 / bandwidth), bandwidth = 2 sqrt(K) unless set
//   linear x.y ;  polynomial (1 + x.y)^degree

struct Weights {
  enum class Fade { equal, decay, gate } fade = Fade::equal;
  Quantity decay;  // Fade::decay: constant = the factor in (0, 1]; input = g [H]
                   // Fade::gate: input, or constant = the factor (gate=0.98 is what a stream uses)
  enum class Per { token, key, value, key_value, full, slot } per = Per::token;  // what has its own gate
  bool complex = false;                                                          // gate(key, complex)
  enum class Importance { one, beta, exponential, trapezoid } importance = Importance::one;
  Quantity beta;               // Importance::beta
  int window = 0;              // 0: every pair; n: only the newest n
  Kernel near = Kernel::none;  // weight by similarity to the query
  double near_scale = 0;       // exponential: factor on q.k; 0 = 1/sqrt(K)   near(exp, scale=1)
  Quantity bandwidth;          // gaussian
  bool sink = false, transport = false;
  bool levels = false;  // log-linear hierarchy
  int level_count = 0;  // 0: as many as the input `levels` has (its state then keeps all pairs)
  bool operator==(const Weights&) const = default;
};

struct Memory {
  enum class Class {
    linear,
    constant,
    local,
    kernel,
    mlp,
    swiglu,
    layernorm_linear,
    slots,
    vector
  } kind = Class::linear;
  enum class Feature { identity, elu1, relu, silu, taylor2, polynomial, dpfp } feature = Feature::identity;
  int degree = 2;            // polynomial feature or kernel; nu of dpfp
  bool reverse = false;      // linear(reverse): a map from value to key (Oja)
  bool per_channel = false;  // constant(channel)
  int order = 0;             // local(p)
  Kernel kernel = Kernel::none;
  double kernel_scale = 0;  // exponential: factor on x.y; 0 = 1/sqrt(K)   kernel(exp, scale=1)
  Quantity bandwidth;       // gaussian kernel: constant; absent = 2 sqrt(K)
  int depth = 2;            // mlp: number of weight matrices
  int width = 0;            // mlp, swiglu: hidden width; 0 = 4 K
  enum class Activation { gelu, gelu_tanh, relu, silu, tanh } activation = Activation::gelu;
  bool bias = false, residual = false, layernorm = false;
  int slots = 0;
  bool operator==(const Memory&) const = default;
};

struct Solver {
  enum class Kind { gd, descend, sgd, minibatch, exact, cg, chebyshev, apa, kalman, given } kind = Kind::gd;
  //   gd(n)        every token: n gradient steps on the whole weighted objective, from zero
  //   descend(n)   every token: n gradient steps on the whole weighted objective, from the last answer
  //   sgd(..)      every token: n gradient steps on the newest pair, from the last answer
  //   minibatch(b) gradients at the weights of the start of each block of b tokens
  int steps = 1;  // gd, descend, sgd, cg, chebyshev
  int pairs = 1;  // sgd(pairs=n): n pairs per token, k v beta have time T*n (DeltaProduct)
  int batch = 1;  // minibatch; p of apa
  enum class Rule { plain, nlms, longhorn, flow, automatic } rule = Rule::plain;
  //   plain  step = beta ; nlms mu/(eps+|k|^2) ; longhorn delta/(1+delta|k|^2) ; flow (1-exp(-beta|k|^2))/|k|^2
  //   automatic (gd, descend only: step=auto)  1 / sum_i w_i |k_i|^2, never too long
  Quantity step;   // absent: 1
  double eps = 0;  // nlms, apa
  enum class Decay { none, before, leak, shrink } decay_kind = Decay::none;
  //   before  S <- e^g S, then the step (Gated DeltaNet) ; leak  loss + lam/2 |S|^2 (leaky LMS)
  //   shrink  S <- (1-lam) S + step taken at the undecayed S
  Quantity decay;  // before: constant = lambda, factor 1 - lambda; leak, shrink: constant = lambda
  Weights::Per decay_per = Weights::Per::token;
  Quantity momentum;
  Quantity gain;  // sgd(momentum, gain): S <- S + gain Z
  bool nesterov = false;
  bool feedback = false, split = false, dplr = false, precondition = false;
  bool muon = false, row_norm = false;
  double q_norm = 0;  // Moneta: W = A / |A|_q^(q-2); 0 = off
  Quantity ridge;     // exact, cg, chebyshev
  enum class RidgePer { head, key, token } ridge_per = RidgePer::head;
  enum class RidgeKind { absolute, relative, frobenius, fading } ridge_kind = RidgeKind::absolute;
  //   relative: times the sum of the weights ; frobenius: times |H|_F ; fading: forgotten like a pair of age t
  Quantity process, noise;  // kalman
  bool operator==(const Solver&) const = default;
};

struct Extras {
  enum class Loss { squared, dot, huber, huber_coordinate, lp } loss = Loss::squared;
  Quantity loss_parameter;  // huber: threshold `c` (input: B T H); lp: p (constant)
  enum class Normalise { none, keysum, rms, unit, max_one } normalise = Normalise::none;
  double normalise_eps = 0;
  bool read_before = false, bonus = false, blend = false;
  enum class Keys { raw, unit, rms } keys = Keys::raw;  // norm applied to q and k before everything
  bool operator==(const Extras&) const = default;
};

struct Design {
  Weights weights;
  Memory memory;
  Solver solver;
  Extras extras;
  /// True for memories that keep pairs (near, kernel, local): grouped heads share keys and values, q has H heads.
  bool keeps_pairs() const { return weights.near != Kernel::none || memory.kind == Memory::Class::kernel; }
  bool operator==(const Design&) const = default;
};

/// The meaning of a recipe; throws Error at the word that has none.
Design interpret(const Recipe&);

/// The inputs a design asks for, in the order of the table above.
std::vector<InputInfo> canonical_inputs(const Design&);

}  // namespace ttr
