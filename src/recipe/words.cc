// The table of words. A row is one option: how it is written, its formula, its meaning, its range.
#include "recipe/words.h"

namespace ttr {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr int max_count = 1 << 20;

constexpr OptionInfo flag(std::string_view name, std::string_view formula, std::string_view meaning,
                          std::string_view group = {}) {
  return {.name = name, .written = as_flag, .formula = formula, .meaning = meaning, .group = group};
}
constexpr OptionInfo needed(OptionInfo option) {
  option.required = true;
  return option;
}
constexpr OptionInfo count(std::string_view name, std::string_view formula, std::string_view meaning,
                           double high = max_count) {
  return {.name = name,
          .written = as_number,
          .formula = formula,
          .meaning = meaning,
          .low = 1,
          .high = high,
          .integer = true};
}
constexpr OptionInfo named_count(std::string_view name, std::string_view formula, std::string_view meaning,
                                 double high = max_count) {
  OptionInfo option = count(name, formula, meaning, high);
  option.written = as_value;
  return option;
}
constexpr OptionInfo in_group(OptionInfo option, std::string_view group) {
  option.group = group;
  return option;
}
/// `name` is an input, `name=x` a constant in [low, high].
constexpr OptionInfo quantity(std::string_view name, std::string_view formula, std::string_view meaning, double low,
                              double high, std::string_view group = {}) {
  return {.name = name,
          .written = as_flag | as_value,
          .formula = formula,
          .meaning = meaning,
          .group = group,
          .low = low,
          .high = high};
}
constexpr OptionInfo constant(std::string_view name, std::string_view formula, std::string_view meaning, double low,
                              double high, bool above_low = false) {
  return {.name = name,
          .written = as_value,
          .formula = formula,
          .meaning = meaning,
          .low = low,
          .high = high,
          .above_low = above_low};
}
constexpr OptionInfo positive(OptionInfo option) {
  option.above_low = true;
  return option;
}
constexpr OptionInfo callable(OptionInfo option, std::string_view words) {
  option.written |= as_call;
  option.words = words;
  return option;
}

constexpr OptionInfo importance_beta_option =
    quantity("beta", "w_i = beta_i ...", "importance of a pair when it is stored, input `beta` [B T H]", 0, infinity,
             "importance");
constexpr OptionInfo importance_exponential_option =
    flag("exponential", "w_i = exp(i_i) ...", "importance given by its log, input `i` [B T H] (mLSTM)", "importance");

constexpr OptionInfo equal_options[] = {importance_beta_option, importance_exponential_option};
constexpr OptionInfo decay_options[] = {
    {.name = "x",
     .written = as_number,
     .formula = "w_i = x^(t-i)",
     .meaning = "the factor per token as a constant, `decay(0.98)`",
     .group = "factor",
     .low = 0,
     .high = 1,
     .above_low = true},
    flag("g", "w_i = exp(g (t-i))", "the log of the factor as an input `g` [H]; the same as `decay` alone", "factor"),
    importance_beta_option,
    importance_exponential_option};
constexpr OptionInfo gate_options[] = {
    flag("key", "S[c,:] fades by exp(gk_t[c])", "one gate per key channel, input `gk` [B T H K]"),
    flag("value", "S[:,d] fades by exp(gv_t[d])", "one gate per value channel, input `gv` [B T H V]"),
    flag("full", "S[c,d] fades by exp(gkv_t[c,d])",
         "one gate per entry of the state, input `gkv` [B T H K V] (Mamba-1)"),
    flag("complex", "factor exp(g_t + i theta_t)",
         "a phase `theta` for every gate turns the state; the real part is read"),
    flag("signed", "a_j in [-1, 1] itself is the input",
         "factors of either sign, not their logs: `a` [B T H], `ak` with `key`, `av` with `value`, `akv` with `full` "
         "(negative eigenvalues, arXiv 2411.12537)"),
    importance_beta_option,
    importance_exponential_option,
    flag("trapezoid", "lam_t dt_t k_t v_t' + (1-lam_t) dt_t a_t k_{t-1} v_{t-1}', lam = sigmoid(trap)",
         "each write is shared between two tokens, inputs `trap`, `dt` [B T H] (Mamba-3)", "importance")};
constexpr OptionInfo power_options[] = {
    {.name = "x",
     .written = as_number,
     .formula = "w_i = (t-i+1)^-x",
     .meaning = "the exponent as a constant, `power(0.5)`",
     .group = "exponent",
     .low = 0},
    flag("a", "w_i = (t-i+1)^-exponent", "the exponent as an input `exponent` [H]; the same as `power` alone",
         "exponent")};
constexpr OptionInfo given_options[] = {needed(
    count("n", "w_i = w_t[t-i] for t-n < i <= t, else 0", "how many of the newest pairs have a weight", 65536))};
constexpr OptionInfo mask_options[] = {needed(count("n", "w_i = 1 if mask_t[t-i] > 0, else 0; 0 for i <= t-n",
                                                    "how many of the newest pairs may count", 65536))};
constexpr OptionInfo window_options[] = {
    needed(count("n", "w_i = 0 unless t-n < i <= t", "how many of the newest pairs count"))};
constexpr OptionInfo levels_options[] = {count(
    "n", "L = n", "number of levels: 2^(n-1) tokens at most, and a state of n matrices instead of all pairs", 62)};
constexpr OptionInfo near_options[] = {
    needed(flag("exp", "w_i = exp(s q_t.k_i), s = 1/sqrt(K)", "softmax weights", "kernel")),
    needed(flag("gauss", "w_i = exp(-|q_t-k_i|^2 / h), h = 2 sqrt(K)", "Gaussian weights", "kernel")),
    needed(flag("laplace", "w_i = exp(-u), u = |q_t-k_i| / h, h = 2 sqrt(K)", "Laplace weights", "kernel")),
    needed(flag("matern12", "w_i = exp(-u)", "Matern weights of smoothness 1/2: the same as `laplace`", "kernel")),
    needed(flag("matern32", "w_i = (1 + a) exp(-a), a = sqrt(3) u", "Matern weights of smoothness 3/2", "kernel")),
    needed(flag("matern52", "w_i = (1 + a + a^2/3) exp(-a), a = sqrt(5) u", "Matern weights of smoothness 5/2",
                "kernel")),
    needed(flag("epanechnikov", "w_i = 1 - u^2 for u < 1, else 0", "Epanechnikov weights, of compact support",
                "kernel")),
    needed(flag("tricube", "w_i = (1 - u^3)^3 for u < 1, else 0", "tricube weights (LOESS), of compact support",
                "kernel")),
    needed(flag("box", "w_i = 1 for u <= 1, else 0", "the mean of the pairs within the bandwidth", "kernel")),
    needed(in_group(named_count("nearest", "w_i = 1 for the n keys nearest to q_t, else 0",
                                "nearest neighbours; of two that are equally far the newer one"),
                    "kernel")),
    constant("scale", "s = x", "with `exp`: the factor on q.k", 0, infinity, true),
    positive(quantity("bandwidth", "h = x",
                      "with all but `exp` and `nearest`: the bandwidth, or an input `bandwidth` [H]", 0, infinity)),
    flag("sink", "denominator + exp(sink)", "with `exp`: a pair of value zero, input `sink` [H]"),
    flag("transport", "q_t' H_t ... H_{i+1} k_i, H_j = I - beta_t w_t w_t'",
         "with `exp`: keys carried by Householder maps, inputs `w_t` [B T G K], `beta_t` [B T G] (PaTH)")};

constexpr OptionInfo linear_options[] = {
    flag("elu1", "phi(x) = x+1 if x > 0, else exp(x)", "feature map of linear attention", "feature"),
    flag("relu", "phi(x) = max(x, 0)", "feature map", "feature"),
    flag("silu", "phi(x) = x sigmoid(x)", "feature map, not positive", "feature"),
    flag("taylor2", "phi(q).phi(k) = 1 + s + s^2/2, s = q.k/sqrt(K)", "feature map of Based", "feature"),
    flag("dpfp", "phi = r * roll(r, j), j = 1..degree, r = [relu(x); relu(-x)]",
         "deterministic parameter-free projection", "feature"),
    flag("polynomial", "all monomials up to `degree`", "polynomial regression", "feature"),
    flag("cosformer", "phi(x) = [relu(x) cos a; relu(x) sin a], a = pi n / (2 L), n the token's number from 1 on",
         "map of key and position: weights fall with the cosine of the distance (cosFormer, arXiv 2202.08791)",
         "feature"),
    flag("t2r", "phi(x) = relu(W x + b)", "learned map, inputs `W` [H M K], `b` [H M] (T2R, arXiv 2103.13076)",
         "feature"),
    flag("hedgehog", "phi(x) = softmax([z; -z]), z = W x + b",
         "learned map, inputs `W` [H M K], `b` [H M] (Hedgehog, arXiv 2402.04347)", "feature"),
    flag("hedgehog_exp", "phi(x) = [exp(z); exp(-z)]", "Hedgehog without its softmax", "feature"),
    flag("hedgehog_softmax2", "phi(x) = softmax([2z; -2z])", "Hedgehog with a sharper softmax", "feature"),
    flag("favor", "phi(x) = (exp(W u - |u|^2/2) + 1e-4) / sqrt(M), u = x / K^(1/4)",
         "random map, input `W` [H M K] (FAVOR+ of the Performer, arXiv 2009.14794)", "feature"),
    flag("favor_relu", "phi(x) = relu(W u) + 1e-3", "the Performer's generalised map, input `W` [H M K]", "feature"),
    flag("rfa", "phi(x) = [sin W x; cos W x] / sqrt(M)",
         "random Fourier features, input `W` [H M K] (RFA, arXiv 2103.02143)", "feature"),
    flag("dijiang", "phi(x) = softmax(x P)", "cosine transform, input `P` [H K M] (DiJiang, arXiv 2403.19928)",
         "feature"),
    flag("rebased", "phi(q).phi(k) = (y_q.y_k)^2 / K, y = gamma LN(x) + shift",
         "squared map, inputs `gamma`, `shift` [H K] (ReBased, arXiv 2402.10644)", "feature"),
    named_count("features", "M = n", "rows of the matrix of a map that has one (default K)", 65536),
    named_count("length", "L = n", "of `cosformer`: the longest sequence (default 4096)", 1 << 30),
    named_count("degree", "degree = n", "of `polynomial` (default 2) or nu of `dpfp` (default 2)", 8),
    flag("reverse", "m: v -> k, residual k - S v", "with `sgd`: a map from value to key (Oja's rule)")};
constexpr OptionInfo constant_options[] = {
    flag("channel", "one weighted mean per value channel", "weights `gv` and `i` have a value axis (RWKV-4)")};
constexpr OptionInfo local_options[] = {needed({.name = "p",
                                                .written = as_number,
                                                .formula = "m(x) = sum over monomials of x - q_t up to degree p",
                                                .meaning = "order of the local polynomial",
                                                .low = 0,
                                                .high = 8191,
                                                .integer = true})};
constexpr OptionInfo kernel_options[] = {
    needed(flag("exp", "kappa(x,y) = exp(s x.y), s = 1/sqrt(K)", "exponential kernel", "kernel")),
    needed(flag("gauss", "kappa(x,y) = exp(-|x-y|^2 / h), h = 2 sqrt(K)", "Gaussian kernel", "kernel")),
    needed(flag("linear", "kappa(x,y) = x.y", "linear kernel", "kernel")),
    needed(flag("polynomial", "kappa(x,y) = (1 + x.y)^degree", "polynomial kernel", "kernel")),
    needed(flag("laplace", "kappa(x,y) = exp(-u), u = |x-y| / h, h = 2 sqrt(K)", "Laplace kernel", "kernel")),
    needed(
        flag("matern12", "kappa(x,y) = exp(-u)", "Matern kernel of smoothness 1/2: the same as `laplace`", "kernel")),
    needed(
        flag("matern32", "kappa(x,y) = (1 + a) exp(-a), a = sqrt(3) u", "Matern kernel of smoothness 3/2", "kernel")),
    needed(flag("matern52", "kappa(x,y) = (1 + a + a^2/3) exp(-a), a = sqrt(5) u", "Matern kernel of smoothness 5/2",
                "kernel")),
    constant("scale", "s = x", "with `exp`: the factor on x.y", 0, infinity, true),
    constant("bandwidth", "h = x", "with `gauss`, `laplace` and `matern..`", 0, infinity, true),
    named_count("degree", "degree = n", "with `polynomial` (default 2)", 8)};
constexpr OptionInfo width_default_option = flag("4x", "width = 4 K", "the default width, said out loud", "width");
constexpr OptionInfo width_option = {.name = "width",
                                     .written = as_value,
                                     .formula = "width = n",
                                     .meaning = "hidden width (default 4 K)",
                                     .group = "width",
                                     .low = 1,
                                     .high = max_count,
                                     .integer = true};
constexpr OptionInfo mlp_options[] = {
    count("n", "W_{n-1} s(... s(W_0 x))", "number of weight matrices (default 2)", 16),
    width_default_option,
    width_option,
    flag("gelu", "s = gelu (erf)", "activation (the default)", "activation"),
    flag("gelu_tanh", "s = gelu (tanh approximation)", "activation of TTT-MLP", "activation"),
    flag("relu", "s = relu", "activation", "activation"),
    flag("silu", "s = silu", "activation", "activation"),
    flag("tanh", "s = tanh", "activation", "activation"),
    flag("bias", "W x + b", "every matrix has a bias"),
    flag("residual", "x + m(x)", "adds the input; needs K = V"),
    flag("layernorm", "LN(m(x))", "normalises the output, before the residual is added")};
constexpr OptionInfo swiglu_options[] = {width_default_option, width_option};
constexpr OptionInfo layernorm_options[] = {needed(flag("linear", "LN(S' x)", "the memory that is normalised")),
                                            flag("bias", "LN(S' x + b)", "adds a bias"),
                                            flag("residual", "x + LN(S' x)", "adds the input; needs K = V")};
constexpr OptionInfo slots_options[] = {needed(count("m", "keys Km [K,m], values Vm [m,V]", "number of slots"))};

constexpr OptionInfo step_option = {.name = "step",
                                    .written = as_flag | as_value | as_word | as_list,
                                    .formula = "S <- S - step * gradient",
                                    .meaning =
                                        "step size: input `beta` [B T H], a constant, `step=auto` for "
                                        "1 / sum_i w_i |k_i|^2 (default 1); one for each of the n iterations: "
                                        "`step(0.5, 0.2)`, or `step=each` for an input `beta` [B T H I]",
                                    .words = "auto each",
                                    .low = 0,
                                    .high = infinity,
                                    .above_low = true};
constexpr OptionInfo beta_step_option =
    quantity("beta", "step = beta_t", "step size, input `beta` [B T H] (no step given: 1)", 0, infinity, "step");
constexpr OptionInfo eps_option =
    constant("eps", "eps", "added to the denominator of the step (default 0)", 0, infinity);
constexpr OptionInfo sgd_eps_option =
    constant("eps", "eps",
             "added to the denominator of `nlms` (default 0, beside a metric that of the metric), and where the "
             "formulas of adagrad, rmsprop, adam and shampoo say (default 1e-8, shampoo 1e-4)",
             0, infinity);
constexpr OptionInfo decay_before_option = callable(
    quantity("decay", "S <- exp(g_t) S, then the step; decay=x: S <- (1-x) S",
             "forgets once per token, before its first step, input `g` [B T H]; decay(key): `gk`, decay(value): `gv`",
             0, 1, "decay"),
    "key value");
constexpr OptionInfo leak_option =
    quantity("leak", "loss + lam/2 |S|^2", "weight decay inside the loss of every step, input `lam` [B T H]", 0,
             infinity, "decay");
constexpr OptionInfo shrink_option = quantity("shrink", "S <- (1-lam_t) S + step taken at the undecayed S",
                                              "weight decay beside every step, input `lam` [B T H]", 0, 1, "decay");
constexpr OptionInfo momentum_option =
    quantity("momentum", "Z <- momentum_t Z - step * gradient, S <- S + Z",
             "heavy ball: keeps a part of the last update, input `momentum` [B T H]", 0, 1);
constexpr OptionInfo nesterov_option =
    flag("nesterov", "gradient at S + momentum Z", "with `momentum`: looks ahead before it takes the gradient");
constexpr OptionInfo batch_momentum_option = {
    .name = "momentum",
    .written = as_flag | as_value | as_word,
    .formula = "Z <- momentum_t Z - step * gradient, S <- S + Z",
    .meaning =
        "heavy ball: keeps a part of the last update, input `momentum` [B T H]; `momentum=auto`: (j-1)/(j+2) in "
        "iteration j of a token (with `nesterov` the accelerated method, with `l1` FISTA)",
    .words = "auto",
    .low = 0,
    .high = 1};
constexpr OptionInfo adagrad_option =
    flag("adagrad", "A <- A + G*G, update = step G / (sqrt(A) + eps)", "every entry has its own step", "metric");
constexpr OptionInfo rmsprop_option = {.name = "rmsprop",
                                       .written = as_value,
                                       .formula = "A <- x A + (1-x) G*G, update = step G / (sqrt(A) + eps)",
                                       .meaning = "as adagrad, with a running mean of the squares",
                                       .group = "metric",
                                       .low = 0,
                                       .high = 1};
constexpr OptionInfo adam_option = {
    .name = "adam",
    .written = as_flag | as_list,
    .formula =
        "Z <- x1 Z + (1-x1) G, A <- x2 A + (1-x2) G*G, update = step Z/(1-x1^j) / "
        "(sqrt(A/(1-x2^j)) + eps)",
    .meaning = "running means of gradient and squares, adam(x1, x2) (default 0.9, 0.999)",
    .group = "metric",
    .low = 0,
    .high = 0.9999,
    .list_size = 2};
constexpr OptionInfo shampoo_option =
    flag("shampoo", "L <- L + G G', R <- R + G'G, update = step (L + eps I)^-1/4 G (R + eps I)^-1/4",
         "a full matrix for the rows and one for the columns of every weight matrix; a bias is a matrix of one row",
         "metric");
constexpr OptionInfo lbfgs_option = {
    .name = "lbfgs",
    .written = as_value,
    .formula = "update = B G, B from step I by the newest n changes (s, y) of S and G",
    .meaning =
        "quasi-Newton (L-BFGS): how many changes are kept; they start anew with "
        "every token",
    .group = "metric",
    .low = 1,
    .high = 64,
    .integer = true};
constexpr OptionInfo newton_option = {.name = "newton",
                                      .written = as_value,
                                      .formula = "update = step (J'WJ + x I)^-1 G, J = d m(k_i) / d S",
                                      .meaning = "damped Gauss-Newton (Levenberg-Marquardt): the damping",
                                      .group = "metric",
                                      .low = 0,
                                      .high = infinity,
                                      .above_low = true};
constexpr OptionInfo metric_eps_option = constant(
    "eps", "eps", "added where the formulas of adagrad, rmsprop, adam and shampoo say (default 1e-8, shampoo 1e-4)",
    0, infinity);
constexpr OptionInfo mirror_option = {
    .name = "mirror",
    .written = as_word,
    .formula = "A <- A - step * gradient at W; W = softmax(A), exp(A) or sinh(A), times radius",
    .meaning =
        "mirror descent: keeps a dual variable A, so that the step stays near by KL (softmax: entries above 0 whose "
        "sum is "
        "the radius, Memora; exp: entries above 0) or by the hyperbolic entropy (sinh)",
    .group = "mirror",
    .words = "softmax exp sinh"};
constexpr OptionInfo radius_option =
    constant("radius", "radius = x", "with `mirror`: the scale of the memory (default 1)", 0, infinity, true);
constexpr OptionInfo muon_option =
    flag("muon", "update <- NS5(update)", "orthogonalises the update by five Newton-Schulz steps");
constexpr OptionInfo rownorm_option =
    flag("rownorm", "|w_j| <- its initial value", "the weights of every output unit get back their initial length");
constexpr OptionInfo qnorm_option = {.name = "qnorm",
                                     .written = as_value,
                                     .formula = "W = A / |A|_q^(q-2)",
                                     .meaning = "keeps an accumulator A and reads its q-norm dual (Moneta)",
                                     .group = "mirror",
                                     .low = 2,
                                     .high = 64};

constexpr OptionInfo gd_options[] = {count("n", "n steps", "gradient steps per token (default 1)"),
                                     step_option,
                                     batch_momentum_option,
                                     nesterov_option,
                                     adagrad_option,
                                     rmsprop_option,
                                     adam_option,
                                     shampoo_option,
                                     lbfgs_option,
                                     newton_option,
                                     metric_eps_option};
constexpr OptionInfo descend_options[] = {count("n", "n steps", "gradient steps per token (default 1)"),
                                          step_option,
                                          decay_before_option,
                                          leak_option,
                                          shrink_option,
                                          batch_momentum_option,
                                          nesterov_option,
                                          adagrad_option,
                                          rmsprop_option,
                                          adam_option,
                                          shampoo_option,
                                          lbfgs_option,
                                          newton_option,
                                          metric_eps_option,
                                          muon_option,
                                          rownorm_option,
                                          qnorm_option,
                                          mirror_option,
                                          radius_option};
constexpr OptionInfo sgd_options[] = {
    count("n", "n steps", "gradient steps per pair (default 1)"),
    beta_step_option,
    quantity("nlms", "step = mu_t / (eps + |k|^2)", "normalised LMS, Kaczmarz; input `mu` [B T H]", 0, infinity,
             "step"),
    quantity("longhorn", "step = delta_t / (1 + delta_t |k|^2)", "implicit step; input `delta` [B T H]", 0, infinity,
             "step"),
    quantity("flow", "step = (1 - exp(-beta_t |k|^2)) / |k|^2", "exact gradient flow for time beta; input `beta`", 0,
             infinity, "step"),
    sgd_eps_option,
    decay_before_option,
    leak_option,
    shrink_option,
    momentum_option,
    nesterov_option,
    quantity("gain", "S <- S + gain_t Z",
             "with `momentum`: how much of Z is added, input `gain` [B T H] (not given: 1)", 0, infinity),
    named_count("pairs", "n pairs per token", "k, v and beta have T n rows, one step for each (DeltaProduct)", 64),
    flag("feedback", "residual v - S' p, S undecayed",
         "the residual is read with another key, input `p` [B T G K] (Comba)", "rule"),
    flag("split", "S + k (write*v - S'(erase*k))'",
         "separate gates instead of one step, inputs `erase` [B T H K], `write` [B T H V] (GDN-2)", "rule"),
    flag("dplr", "diag(exp(gk)) S + b (a' S) + k v'",
         "read key `a`, erase key `b` [B T H K]; `a` reads the undecayed state (RWKV-7)", "rule"),
    flag("precondition", "write key D*k, A <- exp(ga) A + ba k*k, r = log(A + 1e-6) - c, D = 1.5^(-r/(1+|r|))",
         "diagonal quasi-Newton step; inputs ga = `g_atk`, ba = `beta_atk` [B T H], c = `log_atk_scale` [H]"),
    adagrad_option,
    rmsprop_option,
    adam_option,
    shampoo_option,
    newton_option,
    muon_option,
    rownorm_option,
    qnorm_option,
    mirror_option,
    radius_option};
constexpr OptionInfo minibatch_options[] = {
    needed(count("b", "blocks of b tokens", "gradients are taken at the weights of the start of the block")),
    quantity("rate", "step = rate_t", "step of every token, input `rate` [B T H] (not given: 1)", 0, infinity),
    decay_before_option,
    leak_option,
    shrink_option,
    momentum_option,
    nesterov_option,
    adagrad_option,
    rmsprop_option,
    adam_option,
    shampoo_option,
    newton_option,
    metric_eps_option,
    muon_option,
    rownorm_option,
    qnorm_option,
    mirror_option,
    radius_option};
constexpr OptionInfo ridge_option = callable(
    quantity("ridge", "+ ridge/2 |S|^2", "input `ridge` [H]; ridge(key): [H K], ridge(token): [B T H]", 0, infinity),
    "key token");
constexpr OptionInfo relative_option =
    flag("relative", "ridge * sum_i w_i", "the ridge is relative to the sum of the weights", "ridge kind");
constexpr OptionInfo frobenius_option =
    flag("frobenius", "ridge * |H|_F", "the ridge is relative to the Frobenius norm of H", "ridge kind");
constexpr OptionInfo fading_option =
    flag("fading", "ridge * prod_j a_j", "the ridge is forgotten like a pair of age t (RLS)", "ridge kind");
constexpr OptionInfo exact_options[] = {ridge_option, relative_option, frobenius_option, fading_option};
constexpr OptionInfo cg_options[] = {needed(count("n", "n steps", "conjugate gradient steps per token")),
                                     ridge_option, relative_option, frobenius_option, fading_option};
constexpr OptionInfo chebyshev_options[] = {needed(count("n", "n steps", "Chebyshev steps per token; needs a ridge")),
                                            ridge_option, relative_option, frobenius_option, fading_option};
constexpr OptionInfo irls_options[] = {
    needed(
        count("n", "n fits", "weighted least-squares fits per token; the first has the weights of the recipe", 4096)),
    ridge_option,
    relative_option,
    frobenius_option,
    fading_option,
    constant("eps", "|e| <- sqrt(e^2 + eps^2)",
             "the smallest residual a weight is computed from (default 1e-3), of `lp` and `quantile`; `huber` has "
             "min(1, c/|e|)",
             0, infinity, true)};
constexpr OptionInfo apa_options[] = {needed(count("p", "p newest pairs", "pairs projected on at once", 4096)),
                                      quantity("mu", "step = mu_t", "input `mu` [B T H] (not given: 1)", 0, infinity),
                                      eps_option};
constexpr OptionInfo kalman_options[] = {
    quantity("process", "P <- P + process I", "drift of the true S per token, input `process` [B T H] (not given: 0)",
             0, infinity),
    positive(
        quantity("noise", "r = noise", "variance of a value, input `noise` [B T H] (not given: 1)", 0, infinity))};

constexpr OptionInfo huber_options[] = {
    needed(positive(quantity("c", "rho(e) = |e|^2/2 if |e| <= c, else c |e| - c^2/2",
                             "threshold, input `c` [B T H] or a constant", 0, infinity))),
    flag("coordinate", "rho applied to each e[d]", "every value channel is clipped alone")};
constexpr OptionInfo lp_options[] = {needed(
    {.name = "p", .written = as_number, .formula = "sum_d |e[d]|^p", .meaning = "the power", .low = 1, .high = 64})};
constexpr OptionInfo insensitive_options[] = {needed({.name = "x",
                                                      .written = as_number,
                                                      .formula = "sum_d max(|e[d]| - x, 0)",
                                                      .meaning = "residuals up to x cost nothing",
                                                      .low = 0,
                                                      .high = infinity})};
constexpr OptionInfo quantile_options[] = {needed({.name = "x",
                                                   .written = as_number,
                                                   .formula = "sum_d max(x e[d], (x-1) e[d]), e = v - m(k)",
                                                   .meaning = "the share of the values below the answer",
                                                   .low = 0,
                                                   .high = 1,
                                                   .above_low = true})};
constexpr OptionInfo logistic_options[] = {
    flag("mean", "o = sigmoid(m(q))", "reads the expected value instead of the log odds")};
constexpr OptionInfo cross_entropy_options[] = {
    flag("mean", "o = softmax(m(q))", "reads the probabilities instead of their logs")};
constexpr OptionInfo penalty_option(std::string_view formula, std::string_view meaning) {
  return {.name = "x", .written = as_number, .formula = formula, .meaning = meaning, .low = 0, .high = infinity};
}
constexpr OptionInfo l1_options[] = {
    penalty_option("S <- sign(S) max(|S| - step x, 0)", "its size as a constant, `l1(0.1)`")};
constexpr OptionInfo l2_options[] = {penalty_option("S <- S / (1 + step x)", "its size as a constant, `l2(0.1)`")};
constexpr OptionInfo normalise_options[] = {
    needed(flag("keysum", "o / (phi(q).z_t + eps), z_t = sum_i w_i phi(k_i)", "divides by the sum of the weights",
                "norm")),
    needed(flag("rms", "o / sqrt(mean(o*o) + eps)", "root mean square of the output is 1", "norm")),
    needed(flag("unit", "o / sqrt(sum(o*o) + eps)", "length of the output is 1", "norm")),
    needed(flag("max", "o / max(|q.z_t|, 1)", "as keysum, never below 1 (mLSTM)", "norm")),
    constant("eps", "eps", "added where the formula says (default 0)", 0, infinity)};
constexpr OptionInfo read_options[] = {
    needed(flag("before", "o_t = m_{t-1}(q_t)", "reads before token t is stored")),
    flag("bonus", "o_t = m_{t-1}(q_t) + (sum_c q[c] bonus[c] k[c]) v_t",
         "token t counts with its own weight, input `bonus` [H K] (RWKV-4: log weight, [H V])")};
constexpr OptionInfo keys_options[] = {
    needed(flag("unit", "x / |x|", "q and k have length 1", "norm")),
    needed(flag("rms", "x / sqrt(mean(x*x))", "q and k have length sqrt(K)", "norm"))};

constexpr WordInfo word_table[] = {
    {Axis::weights, "equal", "w_i = 1", "every pair counts the same", equal_options},
    {Axis::weights, "decay", "w_i = exp(g (t-i))", "older pairs fade at a constant rate", decay_options},
    {Axis::weights, "gate", "w_i = prod_{j=i+1..t} a_j, a_j = exp(g_j)",
     "older pairs fade by a factor that each token chooses, input `g` [B T H]", gate_options},
    {Axis::weights, "power", "w_i = (t-i+1)^-a", "older pairs fade by a power of their age", power_options},
    {Axis::weights, "window", "w_i = 0 for i <= t-n", "only the newest pairs count", window_options},
    {Axis::weights, "near", "w_i = similarity of k_i to q_t", "pairs near the query count more", near_options},
    {Axis::weights, "levels", "w_i = levels_t[l(t,i)]",
     "one scale per level of a binary hierarchy of ages, input `levels` [B T H L] (log-linear attention)",
     levels_options},
    {Axis::weights, "given", "w_i = w_t[t-i]",
     "any weights: those of the newest n pairs by age, input `w` [B T H W], W = n", given_options},
    {Axis::weights, "mask", "w_i = [mask_t[t-i] > 0]",
     "any set of pairs (block-sparse patterns): which of the newest n count, input `mask` [B T H W], W = n",
     mask_options},
    {Axis::memory, "linear", "m(x) = S' phi(x)", "a matrix S [K, V], phi the identity unless named", linear_options},
    {Axis::memory, "constant", "m(x) = c", "one value, whatever the key", constant_options},
    {Axis::memory, "local", "m(x) = polynomial in x - q_t", "a polynomial fitted around the query", local_options},
    {Axis::memory, "kernel", "m(x) = sum_i c_i kappa(k_i, x)", "a function of the kernel's Hilbert space",
     kernel_options},
    {Axis::memory, "mlp", "m(x) = W_1 s(W_0 x)", "a multilayer perceptron", mlp_options},
    {Axis::memory, "swiglu", "m(x) = W_1 (silu(W_0 x) * (W_2 x))", "a gated perceptron", swiglu_options},
    {Axis::memory, "layernorm", "m(x) = LN(S' x)", "a normalised linear map (TTT-Linear)", layernorm_options},
    {Axis::memory, "slots", "m(q) = Vm' softmax(Km' q)", "m slots, written by `s` and forgotten by `gs` [B T H M]",
     slots_options},
    {Axis::memory, "vector", "m = h [V]", "an elementwise state without keys (HGRN, LRU)", {}},
    {Axis::solver, "gd", "S = -step * gradient at 0, n times", "n steps on the whole objective, from zero",
     gd_options},
    {Axis::solver, "descend", "S <- S - step * gradient, n times",
     "n steps on the whole objective, from the last answer", descend_options},
    {Axis::solver, "sgd", "S <- S + step * k (v - S' k)'", "steps on the newest pair, from the last answer",
     sgd_options},
    {Axis::solver, "minibatch", "S <- S - sum over the block of step * gradient",
     "gradient steps whose gradients belong to the start of a block", minibatch_options},
    {Axis::solver, "exact", "(H + ridge I) S = F", "the minimum itself (least norm if there are many)",
     exact_options},
    {Axis::solver, "cg", "(H + ridge I) x = q by n steps, o = F' x", "n conjugate gradient steps from zero",
     cg_options},
    {Axis::solver, "chebyshev", "(H + ridge I) x = q by n steps, o = F' x", "n Chebyshev steps", chebyshev_options},
    {Axis::solver, "irls", "fits with weights w_i psi(e_i)/e_i, psi the derivative of the loss",
     "n reweighted least-squares fits: the minimum of a robust loss", irls_options},
    {Axis::solver, "apa", "S <- S + mu Kw' (Kw Kw' + eps I)^-1 (Vw - Kw S)",
     "affine projection on the newest p pairs", apa_options},
    {Axis::solver, "kalman", "kap = P k / (r + k' P k), S <- S + kap (v - S' k)'",
     "Kalman filter with a drifting S, P = I at the start", kalman_options},
    {Axis::solver, "given", "slope = r", "the slope of local(1) is an input `r` [B T H K] (Parallax)", {}},
    {Axis::extra, "squared", "|v - m(k)|^2 / 2", "loss: the default", {}},
    {Axis::extra, "dot", "-v.m(k)", "loss: negative inner product", {}},
    {Axis::extra, "huber", "rho_c(|v - m(k)|)", "loss: linear for large residuals", huber_options},
    {Axis::extra, "lp", "sum_d |v - m(k)|^p", "loss: another power", lp_options},
    {Axis::extra, "insensitive", "max(|v - m(k)| - x, 0)",
     "loss: small residuals cost nothing (support vector regression)", insensitive_options},
    {Axis::extra, "quantile", "max(x e, (x-1) e), e = v - m(k)", "loss: pinball, its minimum is a quantile",
     quantile_options},
    {Axis::extra, "logistic", "sum_d log(1 + exp(m(k)[d])) - v[d] m(k)[d]",
     "loss: every value channel is a probability, m(k) its log odds", logistic_options},
    {Axis::extra, "cross_entropy", "log sum_d exp(m(k)[d]) - v.m(k)",
     "loss: the value is a distribution over its channels, m(k) its logits", cross_entropy_options},
    {Axis::extra, "l1", "+ l1 sum |S[c,d]|",
     "penalty: soft thresholding after each gradient step, whose step is that of the entry in a metric; input `l1` "
     "[H] (with `l2`: the elastic net)",
     l1_options},
    {Axis::extra, "l2", "+ l2/2 |S|^2",
     "penalty: shrinks after each gradient step, by the step of the entry in a metric; input `l2` [H]", l2_options},
    {Axis::extra, "normalise", "o / norm", "read-out: divides the output", normalise_options},
    {Axis::extra, "read", "o_t = m_{t-1}(q_t)", "read-out: which state is read", read_options},
    {Axis::extra,
     "blend",
     "o = F'(q + blend (x - q))",
     "read-out: between the gated sum (0) and the solve (1), input `blend` [B T H]",
     {}},
    {Axis::extra, "keys", "q, k normalised", "norm of q and k before everything else", keys_options},
};

}  // namespace

std::span<const WordInfo> words() { return word_table; }

std::string_view to_string(Axis axis) {
  switch (axis) {
    case Axis::weights:
      return "weights";
    case Axis::memory:
      return "memory";
    case Axis::solver:
      return "solver";
    case Axis::extra:
      return "extra";
  }
  return "";
}

const WordInfo* find_word(Axis axis, std::string_view word) {
  for (const WordInfo& info : word_table)
    if (info.axis == axis && info.word == word) return &info;
  return nullptr;
}

}  // namespace ttr
