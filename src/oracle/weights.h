// The weight of pair i seen from the newest pair n, with the query q:
//
//   w_i = importance_i * prod_{j=i+1..n} a_j * kernel(q, k_i) * level(i, n) * age(n - i) * [i > n - window]
//
// kept as factor * exp(logit), because the factor may be zero or negative (beta, a phase) and the exponent may be
// large (near, exponential importance). Gates per channel give one logit per key or value channel besides, or one
// factor where the gates are factors of either sign (Grazzi et al. 2024).
//
//   importance         beta_i ;  e^{i_i} (mLSTM) ;  lam_i dt_i + (1 - lam_{i+1}) dt_{i+1}, lam = sigmoid(trap)
//                      (Mamba-3; the second term only for i < n)
//   near * gate(key)   the key inside the kernel fades per channel (wall attention)
//   transport          the kernel sees q' H_n ... H_{i+1} k_i, H = I - beta_t w_t w_t', and the gate is scaled with it
//                      (PaTH)
//   levels             level 0 = {n}; level l covers [b - 2^(l-1), b), b = n - n mod 2^(l-1), if n mod 2^l >= 2^(l-1)
//
//   age                (age + 1)^-a (power) ;  the input w_t[age] (given) ;  1 or 0 (mask)
//
// Not causal: n is the last pair of the call, so a pair's age is counted from there for every query.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "oracle/head.h"

namespace ttr::oracle {

template <class S>
struct PairWeights {
  int first = 0, count = 0;  // pairs first .. first+count-1
  Vec<S> factor, logit;
  std::vector<Vec<S>> key, value, full, phase;  // logits (factors, if signed) and phases per channel; empty: none
  double shift = 0;                             // subtracted from every logit

  S weight(int j) const {
    using std::exp;
    return factor[j] * exp(logit[j] - S(shift));
  }
  bool per_channel() const { return !key.empty() || !value.empty() || !full.empty(); }
  /// Multiplier of channel (a, b) of pair j.
  S channel(int j, int a, int b) const {
    using std::cos;
    using std::exp;
    const std::size_t entry = static_cast<std::size_t>(a) * full_cols + b;
    if (factors) {
      S m = 1.0;
      if (!key.empty()) m *= key[j][a];
      if (!value.empty()) m *= value[j][b];
      if (!full.empty()) m *= full[j][entry];
      return m;
    }
    S e = 0.0;
    if (!key.empty()) e += key[j][a];
    if (!value.empty()) e += value[j][b];
    if (!full.empty()) e += full[j][entry];
    S m = exp(e);
    if (!phase.empty()) m *= cos(phase[j][!full.empty() ? entry : static_cast<std::size_t>(key.empty() ? b : a)]);
    return m;
  }
  int full_cols = 0;
  bool factors = false;
};

/// Log of the factor pair i puts on older pairs (gates of a whole token).
template <class S>
S log_gate(const Head<S>& h, int i) {
  const Weights& w = h.design.weights;
  if (w.fade == Weights::Fade::equal) return S(0.0);
  if (w.decay.is_constant()) return S(std::log(w.decay.value));
  if (w.fade == Weights::Fade::decay) return h.at("g", 0);
  const S steady = w.steady > 0 ? S(std::log(w.steady)) : S(0.0);
  return w.per == Weights::Per::token && !w.signed_factors ? h.pair.at("g")(i, 0) + steady : steady;
}

template <class S>
S trapezoid_part(const Head<S>& h, int i, bool own) {
  const S lam = sigmoid(h.pair.at("trap")(i, 0));
  return (own ? lam : S(1.0) - lam) * h.pair.at("dt")(i, 0);
}

/// factor and logit of the importance of pair i, seen from pair `newest`.
template <class S>
void importance(const Head<S>& h, int i, int newest, S& factor, S& logit) {
  using I = Weights::Importance;
  const Weights& w = h.design.weights;
  if (w.importance == I::beta) factor *= w.beta.is_constant() ? S(w.beta.value) : h.pair.at("beta")(i, 0);
  if (w.importance == I::exponential && !h.design.memory.per_channel) logit += h.pair.at("i")(i, 0);
  if (w.importance == I::trapezoid)
    factor *= i < newest ? trapezoid_part(h, i, true) + trapezoid_part(h, i + 1, false) : trapezoid_part(h, i, true);
}

/// factor and logit of the similarity of a key to a query.
template <class S>
void nearness(const Head<S>& h, const Vec<S>& q, const Vec<S>& k, S& factor, S& logit) {
  const Weights& w = h.design.weights;
  if (w.near == Kernel::none || w.near == Kernel::nearest) return;
  const Similarity<S> alike = similarity(w.near, q, k, h.kernel_scale(w.near_scale), h.bandwidth(w.bandwidth), 2);
  factor *= alike.factor, logit += alike.exponent;
}

/// Which of the pairs first .. newest have the keys nearest to the query; of two equally far the newer one.
template <class S>
std::vector<bool> nearest_pairs(const Head<S>& h, int t, int first, int newest) {
  std::vector<std::pair<double, int>> by_distance;
  for (int i = first; i <= newest; ++i)
    by_distance.push_back({value_of(squared_distance(h.queries[t], h.keys[i])), -i});
  std::sort(by_distance.begin(), by_distance.end());
  std::vector<bool> near(static_cast<std::size_t>(std::max(0, newest + 1 - first)), false);
  const std::size_t count = std::min(by_distance.size(), static_cast<std::size_t>(h.design.weights.neighbours));
  for (std::size_t n = 0; n < count; ++n) near[static_cast<std::size_t>(-by_distance[n].second - first)] = true;
  return near;
}

/// factor and logit of a pair's age by itself: given weights, a mask, a power.
template <class S>
void age_weight(const Head<S>& h, int t, int age, S& factor, S& logit) {
  const Weights& w = h.design.weights;
  if (w.given > 0 && w.mask) factor *= value_of(h.call.at("mask")(t, age)) > 0 ? S(1.0) : S(0.0);
  if (w.given > 0 && !w.mask) factor *= h.call.at("w")(t, age);
  if (w.power.given() && age > 0) logit -= h.quantity(w.power, "exponent", 0, 0.0) * S(std::log(1.0 + age));
}

inline int level_of(long pair, long newest) {
  if (pair == newest) return 0;
  for (int l = 1; l < 62; ++l) {
    const long size = 1L << (l - 1), b = newest - newest % size;
    if (newest % (2 * size) >= size && pair >= b - size && pair < b) return l;
  }
  return 62;
}

template <class S>
PairWeights<S> pair_weights(const Head<S>& h, int t, int newest) {
  using P = Weights::Per;
  const Weights& w = h.design.weights;
  PairWeights<S> out;
  out.first = w.reach() > 0 ? std::max(0, newest - w.reach() + 1) : 0;
  out.count = std::max(0, newest + 1 - out.first);
  out.factor.assign(out.count, S(1.0));
  out.logit.assign(out.count, S(0.0));
  const bool gated = w.fade == Weights::Fade::gate && !w.decay.is_constant();
  const bool by_key = gated && (w.per == P::key || w.per == P::key_value);
  const bool by_value = gated && (w.per == P::value || w.per == P::key_value);
  const bool in_kernel = by_key && w.near != Kernel::none;
  const bool by_full = gated && w.per == P::full;
  const double gate_scale = w.transport ? h.kernel_scale(w.near_scale) : 1.0;
  if (by_key && !in_kernel) out.key.resize(out.count);
  if (by_value) out.value.resize(out.count);
  if (by_full) out.full.resize(out.count), out.full_cols = h.sizes.value_dim;
  const bool by_token = gated && w.per == P::token, turned = gated && w.complex;
  if (turned && !by_token) out.phase.resize(out.count);
  out.factors = gated && w.signed_factors;
  // Logs are added up, factors of either sign multiplied: a factor may be zero, and its gradient is not.
  const char* const letter = out.factors ? "a" : "g";
  const auto pass = [&](Vec<S>& so_far, const std::string& input, int i) {
    const Matrix<S>& gates = h.pair.at(input);
    for (std::size_t c = 0; c < so_far.size(); ++c) {
      const S& gate = gates(i, static_cast<int>(c));
      so_far[c] = out.factors ? so_far[c] * gate : so_far[c] + gate;
    }
  };
  const S open = out.factors ? 1.0 : 0.0;

  S fade = 0.0;
  Vec<S> factor{S(1.0)};  // of a whole token, signed
  Vec<S> key_fade(h.sizes.key_dim, open), value_fade(h.sizes.value_dim, open);
  Vec<S> full_fade(by_full ? std::size_t(h.sizes.key_dim) * h.sizes.value_dim : 0, open);
  Vec<S> phase_fade(turned ? h.pair.at("theta").cols : 0, S(0.0));
  Vec<S> q = w.near != Kernel::none ? h.queries[t] : Vec<S>{};
  const std::vector<bool> nearest =
      w.near == Kernel::nearest ? nearest_pairs(h, t, out.first, newest) : std::vector<bool>{};
  for (int j = out.count - 1; j >= 0; --j) {
    const int i = out.first + j;
    out.logit[j] += w.transport ? fade * S(gate_scale) : fade;
    if (out.factors && by_token) out.factor[j] *= factor[0];
    if (turned && by_token) {
      using std::cos;
      out.factor[j] *= cos(phase_fade[0]);
    }
    importance(h, i, newest, out.factor[j], out.logit[j]);
    age_weight(h, t, newest - i, out.factor[j], out.logit[j]);
    if (!nearest.empty() && !nearest[static_cast<std::size_t>(j)]) out.factor[j] = S(0.0);
    if (w.levels) {
      const int level = level_of(i, newest);
      const Matrix<S>& levels = h.call.at("levels");
      if (level >= levels.cols)
        throw Error("the input levels has " + std::to_string(levels.cols) +
                    " levels, which weigh 2^(levels - 1) tokens, "
                    "and token " +
                    std::to_string(newest + 1) + " needs " + std::to_string(level + 1) +
                    "; give it that many numbers per token and head");
      out.factor[j] *= levels(t, level);
    }
    if (w.near != Kernel::none) {
      Vec<S> k = h.keys[i];
      if (in_kernel) {
        using std::exp;
        for (std::size_t a = 0; a < k.size(); ++a) k[a] *= exp(key_fade[a]);
      }
      nearness(h, q, k, out.factor[j], out.logit[j]);
    }
    if (by_key && !in_kernel) out.key[j] = key_fade;
    if (by_value) out.value[j] = value_fade;
    if (by_full) out.full[j] = full_fade;
    if (!out.phase.empty()) out.phase[j] = phase_fade;
    if (j == 0) break;
    fade += log_gate(h, i);
    if (by_token && out.factors) pass(factor, "a", i);
    if (by_key) pass(key_fade, letter + std::string("k"), i);
    if (by_value) pass(value_fade, letter + std::string("v"), i);
    if (by_full) pass(full_fade, letter + std::string("kv"), i);
    for (std::size_t c = 0; c < phase_fade.size(); ++c) phase_fade[c] += h.pair.at("theta")(i, static_cast<int>(c));
    if (w.transport) {
      const Vec<S> u = h.pair.at("w_t").row(i);
      const S s = h.pair.at("beta_t")(i, 0) * dot(u, q);
      for (std::size_t a = 0; a < q.size(); ++a) q[a] -= s * u[a];
    }
  }
  return out;
}

/// The weight a per-pair solver gives its newest pair: importance and nearness to the query, no fading.
template <class S>
S newest_weight(const Head<S>& h, int i, int t) {
  using std::exp;
  S factor = 1.0, logit = 0.0;
  importance(h, i, i, factor, logit);
  if (h.design.weights.near != Kernel::none) nearness(h, h.queries[t], h.keys[i], factor, logit);
  return factor * exp(logit);
}

}  // namespace ttr::oracle
