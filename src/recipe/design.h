// Design: the meaning of a recipe, as small structs. `interpret` is the only place that turns words into
// these; the oracle, the planner and `derive` read nothing else.
//
// A quantity is absent, a constant, or an *input*: a tensor the caller supplies under a canonical name. Their names, shapes
// and meanings, and what asks for them, are one table: recipe/schema.cc, printed in docs/recipes.md under "Inputs". The
// initial weights of networks (W0, b0, ...) are state.
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

enum class Kernel {
  none,
  exponential,
  gaussian,
  linear,
  polynomial,
  laplace,
  matern32,
  matern52,
  epanechnikov,
  tricube,
  box,
  nearest
};
//   exponential  exp(x.y * s), s = 1/sqrt(K) unless a scale is set
//   gaussian     exp(-|x-y|^2 / bandwidth), bandwidth = 2 sqrt(K) unless set
//   linear x.y ;  polynomial (1 + x.y)^degree
//   With u = |x-y| / bandwidth: laplace e^-u ; matern32, matern52 with a = sqrt(3) u, sqrt(5) u: (1 + a) e^-a,
//   (1 + a + a^2/3) e^-a ; of compact support, weights only: epanechnikov 1 - u^2, tricube (1 - u^3)^3, box 1, all 0
//   for u > 1 ; nearest 1 for the n keys nearest to the query

struct Weights {
  enum class Fade { equal, decay, gate } fade = Fade::equal;
  Quantity decay;  // Fade::decay: constant = the factor in (0, 1]; input = g [H]
                   // Fade::gate: input, or constant = the factor (gate=0.98 is what a stream uses)
  enum class Per { token, key, value, key_value, full, slot } per = Per::token;  // what has its own gate
  bool complex = false;         // gate(complex): a phase beside every gate; the real part of the memory is read
  bool signed_factors = false;  // gate(signed): the factors themselves are the inputs, of either sign
  enum class Importance { one, beta, exponential, trapezoid } importance = Importance::one;
  Quantity beta;               // Importance::beta
  int window = 0;              // 0: every pair; n: only the newest n
  Kernel near = Kernel::none;  // weight by similarity to the query
  double near_scale = 0;       // exponential: factor on q.k; 0 = 1/sqrt(K)   near(exp, scale=1)
  Quantity bandwidth;          // gaussian and the kernels of the distance
  int neighbours = 0;          // nearest: how many
  bool sink = false, transport = false;
  bool levels = false;  // log-linear hierarchy
  int level_count = 0;  // 0: as many as the input `levels` has (its state then keeps all pairs)
  double steady = 0;    // gate * decay(x): the constant factor beside the gate; 0: none
  Quantity power;       // power(a): (age + 1)^-a; input = exponent [H]
  int given = 0;        // given(n), mask(n): weights of the newest n pairs are an input; 0: none
  bool mask = false;    // mask(n): they are 1 where the input is above zero, else 0
  /// How many of the newest pairs may count; 0: all.
  int reach() const { return window > 0 && given > 0 ? (window < given ? window : given) : window + given; }
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
  enum class Feature {
    identity,
    elu1,
    relu,
    silu,
    taylor2,
    polynomial,
    dpfp,
    cosformer,
    t2r,
    hedgehog,
    hedgehog_exp,
    hedgehog_softmax2,
    favor,
    favor_relu,
    rfa,
    dijiang,
    rebased
  } feature = Feature::identity;
  /// A feature for each key channel.
  bool keeps_channels() const { return feature <= Feature::silu; }
  /// A map of the token's number besides its key: the state counts tokens.
  bool knows_position() const { return feature == Feature::cosformer; }
  /// Maps whose matrix, bias or norm is an input; with a matrix of M rows, and with a bias.
  bool has_map_inputs() const { return feature >= Feature::t2r; }
  bool has_matrix() const { return has_map_inputs() && feature != Feature::rebased; }
  bool has_bias() const { return feature >= Feature::t2r && feature <= Feature::hedgehog_softmax2; }
  int rows = 0;  // features=n: rows of the matrix; 0 = K
  int matrix_rows(int key_dim) const { return rows > 0 ? rows : key_dim; }
  int length = 0;            // cosformer: tokens over which its weights fall to zero; 0 for the other maps
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
  enum class Kind { gd, descend, sgd, minibatch, exact, cg, chebyshev, apa, kalman, given, irls } kind = Kind::gd;
  //   gd(n)        every token: n gradient steps on the whole weighted objective, from zero
  //   descend(n)   every token: n gradient steps on the whole weighted objective, from the last answer
  //   sgd(..)      every token: n gradient steps on the newest pair, from the last answer
  //   minibatch(b) gradients at the weights of the start of each block of b tokens
  //   irls(n)      every token: n weighted least-squares fits, each with the weights of the residuals before it
  int steps = 1;  // gd, descend, sgd, cg, chebyshev, irls
  int pairs = 1;  // sgd(pairs=n): n pairs per token, k v beta have time T*n (DeltaProduct)
  int batch = 1;  // minibatch; p of apa
  enum class Rule { plain, nlms, longhorn, flow, automatic } rule = Rule::plain;
  //   plain  step = beta ; nlms mu/(eps+|k|^2) ; longhorn delta/(1+delta|k|^2) ; flow (1-exp(-beta|k|^2))/|k|^2
  //   automatic (gd, descend only: step=auto)  1 / sum_i w_i |k_i|^2, never too long
  Quantity step;                  // absent: 1
  std::vector<double> step_list;  // gd, descend: step(x, ...), a constant for each iteration
  bool step_each = false;         // gd, descend: step=each, the input has an entry for each iteration
  double eps = 0;                 // nlms, apa, irls, and the metrics below
  enum class Decay { none, before, leak, shrink } decay_kind = Decay::none;
  //   before  S <- e^g S, then the step (Gated DeltaNet) ; leak  loss + lam/2 |S|^2 (leaky LMS)
  //   shrink  S <- (1-lam) S + step taken at the undecayed S
  Quantity decay;  // before: constant = lambda, factor 1 - lambda; leak, shrink: constant = lambda
  Weights::Per decay_per = Weights::Per::token;
  Quantity momentum;
  Quantity gain;  // sgd(momentum, gain): S <- S + gain Z
  bool nesterov = false;
  bool momentum_auto = false;  // gd, descend: (j-1)/(j+2) in iteration j of a token (Nesterov's sequence)
  enum class Metric { none, adagrad, rmsprop, adam, shampoo, lbfgs, newton } metric = Metric::none;
  //   what divides the gradient G before the step:
  //   adagrad  sqrt(sum G*G) ; rmsprop  sqrt(running mean of G*G) ; adam  the same, and a running mean of G
  //   shampoo  (sum G G')^1/4 . (sum G'G)^1/4 ; lbfgs  the newest changes of point and gradient ; newton  J'J + damping
  double metric_first = 0, metric_second = 0;  // adam: both factors; rmsprop: second; newton: damping in the first
  int metric_pairs = 0;                        // lbfgs
  enum class Mirror { none, softmax, exp, sinh } mirror = Mirror::none;
  //   the state is a dual variable A, the memory in use: softmax  radius softmax(A) ; exp  radius e^A ; sinh  radius sinh A
  double radius = 1;
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
  enum class Loss {
    squared,
    dot,
    huber,
    huber_coordinate,
    lp,
    insensitive,
    quantile,
    logistic,
    cross_entropy
  } loss = Loss::squared;
  Quantity loss_parameter;  // huber: threshold `c` (input: B T H); lp: p; insensitive: width; quantile: tau
  bool read_mean = false;   // logistic, cross_entropy: the answer is read through the sigmoid or softmax
  Quantity l1, l2;          // penalties, by a proximal step
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

/// The inputs a design asks for, in the order of the table of recipe/schema.cc.
std::vector<InputInfo> canonical_inputs(const Design&);

}  // namespace ttr
