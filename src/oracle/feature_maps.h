// Feature maps with learned or random matrices, as the per-token operations of src/prepare have them, one head at a
// time: W [M, K] rows are features, P [K, M], b [M], gamma and shift [K].
//
//   t2r      relu(z), z = W x + b (Kasai 2021)         hedgehog   softmax([z; -z]) ; _exp [e^z; e^-z] ;
//   favor    (e^{W u - |u|^2/2} + 1e-4) / sqrt(M), u = x / K^(1/4) (Choromanski 2021) ;  favor_relu  relu(W u) + 1e-3
//   rfa      [sin W x; cos W x] / sqrt(M) (Peng 2021)              _softmax2 softmax([2z; -2z]) (Zhang 2024)
//   dijiang  softmax(x P) (Chen 2024)                  rebased    y = gamma LN(x) + shift: y_a^2 / sqrt(K),
//                                                                 sqrt(2/K) y_a y_b for a < b (Aksenov 2024)
#pragma once

#include <cmath>
#include <map>
#include <string>

#include "oracle/memories.h"

namespace ttr::oracle {

template <class S>
Vec<S> rebased_features(const Vec<S>& x, const Matrix<S>& gamma, const Matrix<S>& shift) {
  using std::sqrt;
  const double K = static_cast<double>(x.size());
  S mean = 0.0, variance = 0.0;
  for (const S& e : x) mean += e;
  mean /= S(K);
  for (const S& e : x) variance += (e - mean) * (e - mean);
  const S sd = sqrt(variance / S(K) + S(1e-5));
  Vec<S> y, phi;
  for (std::size_t a = 0; a < x.size(); ++a)
    y.push_back(gamma(0, static_cast<int>(a)) * ((x[a] - mean) / sd) + shift(0, static_cast<int>(a)));
  for (const S& e : y) phi.push_back(e * e * S(1 / std::sqrt(K)));
  for (std::size_t a = 0; a < y.size(); ++a)
    for (std::size_t b = a + 1; b < y.size(); ++b) phi.push_back(y[a] * y[b] * S(std::sqrt(2 / K)));
  return phi;
}

/// phi(x) of a map that reads inputs of the head: `input` holds one row for each.
template <class S>
Vec<S> matrix_features(const Memory& m, const Vec<S>& x, const std::map<std::string, Matrix<S>>& input) {
  using std::cos;
  using std::exp;
  using std::sin;
  using F = Memory::Feature;
  const int K = static_cast<int>(x.size()), M = m.matrix_rows(K);
  if (m.feature == F::rebased) return rebased_features(x, input.at("gamma"), input.at("shift"));
  const bool transposed = m.feature == F::dijiang, favor = m.feature == F::favor || m.feature == F::favor_relu;
  const Matrix<S>& matrix = input.at(transposed ? "P" : "W");
  Vec<S> z(M, S(0.0)), phi;
  for (int f = 0; f < M; ++f) {
    for (int a = 0; a < K; ++a) z[f] += matrix(0, transposed ? a * M + f : f * K + a) * x[a];
    if (m.has_bias()) z[f] += input.at("b")(0, f);
    if (favor) z[f] *= S(std::pow(K, -0.25));
  }
  switch (m.feature) {
    case F::t2r:
      for (const S& e : z) phi.push_back(value_of(e) > 0 ? e : S(0.0));
      return phi;
    case F::favor_relu:
      for (const S& e : z) phi.push_back((value_of(e) > 0 ? e : S(0.0)) + S(1e-3));
      return phi;
    case F::favor: {
      const S half = dot(x, x) * S(0.5 / std::sqrt(K));
      for (const S& e : z) phi.push_back((exp(e - half) + S(1e-4)) * S(1 / std::sqrt(M)));
      return phi;
    }
    case F::rfa:
      for (const S& e : z) phi.push_back(sin(e) * S(1 / std::sqrt(M)));
      for (const S& e : z) phi.push_back(cos(e) * S(1 / std::sqrt(M)));
      return phi;
    case F::dijiang:
      z = softmax(std::move(z));
      return z;
    case F::hedgehog_exp:
      for (const S& e : z) phi.push_back(exp(e));
      for (const S& e : z) phi.push_back(exp(-e));
      return phi;
    default: {  // hedgehog, hedgehog_softmax2
      const S factor = m.feature == F::hedgehog ? 1.0 : 2.0;
      for (const S& e : z) phi.push_back(factor * e);
      for (const S& e : z) phi.push_back(-factor * e);
      phi = softmax(std::move(phi));
      return phi;
    }
  }
}

}  // namespace ttr::oracle
