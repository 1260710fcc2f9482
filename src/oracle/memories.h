// Function classes: what a memory answers to a key (`predict`) and, beside it, the gradient of its parameters.
//
//   linear classes    y = S' phi(x), S [F, V]; phi is a feature map, the constant 1 (constant, vector) or all
//                     monomials of z = x - q up to degree p (local(p), whose answer at q is the first row of S)
//   linear(reverse)   a map from value to key: x = S v (the read stays S' q)
//   mlp               z_0 = x; z_{l+1} = act(z_l W_l + b_l), no activation after the last; with `layernorm` then
//                     LN(.) without learned scale, with `residual` then x + .
//   layernorm_linear  one layer with LN (TTT)
//   swiglu            y = (silu(x W0) * (x W2)) W1
//   kernel            f(x) = sum_i alpha_i kappa(k_i, x)
//
// Parameters are matrices [in, out]; biases are [1, out]. Gradients are named d<name> and accumulate.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "oracle/similarity.h"

namespace ttr::oracle {

/// softmax(x), without overflow.
template <class S>
Vec<S> softmax(Vec<S> x) {
  using std::exp;
  double largest = -HUGE_VAL;
  for (const S& e : x) largest = std::max(largest, value_of(e));
  S sum = 0.0;
  for (S& e : x) e = exp(e - S(largest)), sum += e;
  for (S& e : x) e /= sum;
  return x;
}

inline constexpr double layernorm_eps = 1e-6;

template <class S>
S sigmoid(const S& x) {
  using std::exp;
  return S(1.0) / (S(1.0) + exp(-x));
}

/// True if the answer is S' phi.
inline bool is_linear_class(const Memory& m) {
  using C = Memory::Class;
  return m.kind == C::linear || m.kind == C::constant || m.kind == C::local || m.kind == C::vector;
}

/// Features of which a square matrix still fits into memory: two gigabytes of doubles.
inline constexpr int most_features = 16384;

/// The number of monomials of n variables up to the degree; anything above most_features where there are more.
inline int monomial_count(int n, int degree) {
  double count = 1;
  for (int d = 1; d <= degree && count <= 1e9; ++d) count = std::round(count * (n + d) / d);
  return static_cast<int>(std::min(count, 1e9));
}

/// Number F of features of a key of dimension K.
inline int feature_count(const Memory& m, int K) {
  using C = Memory::Class;
  using F = Memory::Feature;
  if (m.kind == C::constant || m.kind == C::vector) return 1;
  if (m.kind == C::local) return monomial_count(K, m.order);
  if (m.feature == F::taylor2) return 1 + K + K * (K + 1) / 2;
  if (m.feature == F::polynomial) return monomial_count(K, m.degree);
  if (m.feature == F::dpfp) return 2 * K * m.degree;
  if (m.feature == F::cosformer) return 2 * K;
  if (m.feature == F::rebased) return K * (K + 1) / 2;
  if (m.has_matrix()) {
    const bool twice = m.feature == F::rfa || (m.has_bias() && m.feature != F::t2r);
    return (twice ? 2 : 1) * m.matrix_rows(K);
  }
  return K;
}

/// All monomials of x up to the degree, coefficient one: 1; x_a; x_a x_b (a <= b), row by row; ...
template <class S>
Vec<S> monomials(const Vec<S>& x, int degree) {
  Vec<S> all{S(1.0)};
  std::vector<std::pair<S, std::size_t>> last{{S(1.0), 0}};  // product and its largest index
  for (int d = 0; d < degree; ++d) {
    std::vector<std::pair<S, std::size_t>> next;
    for (const auto& [product, from] : last)
      for (std::size_t a = from; a < x.size(); ++a) next.push_back({d == 0 ? x[a] : product * x[a], a});
    for (const auto& term : next) all.push_back(term.first);
    last = std::move(next);
  }
  return all;
}

/// phi(x) of a linear class; `q` is where a local polynomial is centred, `token` the number of the token from 1 on.
template <class S>
Vec<S> features(const Memory& m, const Vec<S>& x, const Vec<S>& q, double token = 0) {
  using std::exp;
  using C = Memory::Class;
  using F = Memory::Feature;
  const std::size_t K = x.size();
  if (m.kind == C::constant || m.kind == C::vector) return {S(1.0)};
  if (m.kind == C::local) {
    Vec<S> z(K);
    for (std::size_t a = 0; a < K; ++a) z[a] = x[a] - q[a];
    return monomials(z, m.order);
  }
  Vec<S> phi;
  switch (m.feature) {
    case F::identity:
      return x;
    case F::elu1:
      for (const S& e : x) phi.push_back(value_of(e) > 0 ? e + S(1.0) : S(exp(e)));
      return phi;
    case F::relu:
      for (const S& e : x) phi.push_back(value_of(e) > 0 ? e : S(0.0));
      return phi;
    case F::silu:
      for (const S& e : x) phi.push_back(e * sigmoid(e));
      return phi;
    case F::polynomial:
      return monomials(x, m.degree);
    case F::taylor2: {  // phi(x).phi(y) = 1 + s + s^2/2, s = x.y/sqrt(K)
      const double d = static_cast<double>(K);
      phi.push_back(S(1.0));
      for (const S& e : x) phi.push_back(e * S(std::pow(d, -0.25)));
      for (const S& e : x) phi.push_back(e * e * S(1 / std::sqrt(2 * d)));
      for (std::size_t a = 0; a < K; ++a)
        for (std::size_t b = a + 1; b < K; ++b) phi.push_back(x[a] * x[b] * S(1 / std::sqrt(d)));
      return phi;
    }
    case F::dpfp: {
      Vec<S> r;
      for (const S& e : x) r.push_back(value_of(e) > 0 ? e : S(0.0));
      for (const S& e : x) r.push_back(value_of(e) < 0 ? -e : S(0.0));
      for (int j = 1; j <= m.degree; ++j)
        for (std::size_t i = 0; i < 2 * K; ++i) phi.push_back(r[i] * r[(i + 2 * K * j - j) % (2 * K)]);
      return phi;
    }
    case F::cosformer: {  // phi_n(x).phi_m(y) = relu(x).relu(y) cos(pi (n - m) / (2 L)) (Qin et al. 2022)
      const double angle = 1.5707963267948966 * token / m.length;
      for (const double turn : {std::cos(angle), std::sin(angle)})
        for (const S& e : x) phi.push_back(value_of(e) > 0 ? e * S(turn) : S(0.0));
      return phi;
    }
    default:  // maps that read inputs: oracle/feature_maps.h
      break;
  }
  return x;
}

template <class S>
using Parameters = std::vector<Matrix<S>>;

/// Name and size of one parameter; `letters` as in StateShape.
struct ParameterInfo {
  std::string name, letters;
  int in, out;
  bool bias;
};

inline std::vector<ParameterInfo> parameters_of(const Memory& m, int K, int V) {
  using C = Memory::Class;
  std::vector<ParameterInfo> list;
  if (is_linear_class(m)) {
    const int F = feature_count(m, K);
    const bool one = m.kind == C::constant || m.kind == C::vector;
    const bool same = m.kind == C::linear && m.keeps_channels();
    list.push_back({"S", one ? "H V" : same ? "H K V" : "H F V", F, V, one});
    return list;
  }
  const int D = m.width > 0 ? m.width : 4 * K;
  if (m.kind == C::swiglu)
    return {{"W0", "H K D", K, D, false}, {"W1", "H D V", D, V, false}, {"W2", "H K D", K, D, false}};
  const bool single = m.kind == C::layernorm_linear;
  const int depth = single ? 1 : m.depth;
  for (int l = 0; l < depth; ++l) {
    const int in = l == 0 ? K : D, out = l == depth - 1 ? V : D;
    const std::string n = std::to_string(l), to = l == depth - 1 ? "V" : "D";
    list.push_back({"W" + n, std::string("H ") + (l == 0 ? "K " : "D ") + to, in, out, false});
    if (m.bias) list.push_back({"b" + n, "H " + to, 1, out, true});
  }
  return list;
}

template <class S>
S activate(Memory::Activation kind, const S& x) {
  using std::erfc;
  using std::tanh;
  using A = Memory::Activation;
  switch (kind) {
    case A::gelu:  // erfc(-x) and not 1 + erf(x), nor 1 + tanh: those have no digits left of the tail
      return S(0.5) * x * erfc(x * S(-0.70710678118654752));
    case A::gelu_tanh:
      return x * sigmoid(S(2 * 0.79788456080286536) * (x + S(0.044715) * x * x * x));
    case A::relu:
      return value_of(x) > 0 ? x : S(0.0);
    case A::silu:
      return x * sigmoid(x);
    case A::tanh:
      return tanh(x);
  }
  return x;
}

/// The slope of tanh, without the cancellation of 1 - tanh^2 where it is small.
template <class S>
S slope_of_tanh(const S& x) {
  using std::abs;
  using std::exp;
  const S e = exp(S(-2.0) * abs(x)), sum = S(1.0) + e;
  return S(4.0) * e / (sum * sum);
}

template <class S>
S activate_slope(Memory::Activation kind, const S& x) {
  using std::erfc;
  using std::exp;
  using A = Memory::Activation;
  switch (kind) {
    case A::gelu:
      return S(0.5) * erfc(x * S(-0.70710678118654752)) + x * exp(-x * x * S(0.5)) * S(0.39894228040143268);
    case A::gelu_tanh: {
      const S u = S(0.79788456080286536) * (x + S(0.044715) * x * x * x);
      const S du = S(0.79788456080286536) * (S(1.0) + S(3 * 0.044715) * x * x);
      return sigmoid(S(2.0) * u) + S(0.5) * x * slope_of_tanh(u) * du;
    }
    case A::relu:
      return value_of(x) > 0 ? S(1.0) : S(0.0);
    case A::silu: {
      const S s = sigmoid(x);
      return s + x * s * sigmoid(-x);
    }
    case A::tanh:
      return slope_of_tanh(x);
  }
  return S(1.0);
}

/// y = x W
template <class S>
Vec<S> through(const Vec<S>& x, const Matrix<S>& w) {
  Vec<S> y(w.cols, S(0.0));
  for (int i = 0; i < w.rows; ++i)
    for (int j = 0; j < w.cols; ++j) y[j] += x[i] * w(i, j);
  return y;
}
/// dx = W dy
template <class S>
Vec<S> back_through(const Matrix<S>& w, const Vec<S>& dy) {
  return times(w, dy);
}
/// dW += x dy'
template <class S>
void add_outer(Matrix<S>& dw, const Vec<S>& x, const Vec<S>& dy) {
  for (int i = 0; i < dw.rows; ++i)
    for (int j = 0; j < dw.cols; ++j) dw(i, j) += x[i] * dy[j];
}

/// y = (x - mean) / sd over all entries, no learned scale; `sd` is returned for the gradient.
template <class S>
Vec<S> layernorm(const Vec<S>& x, S& sd) {
  using std::sqrt;
  const double n = static_cast<double>(x.size());
  S mean = 0.0, var = 0.0;
  for (const S& e : x) mean += e;
  mean /= S(n);
  for (const S& e : x) var += (e - mean) * (e - mean);
  sd = sqrt(var / S(n) + S(layernorm_eps));
  Vec<S> y;
  for (const S& e : x) y.push_back((e - mean) / sd);
  return y;
}
template <class S>
Vec<S> d_layernorm(const Vec<S>& y, const S& sd, const Vec<S>& dy) {
  const double n = static_cast<double>(y.size());
  S sum = 0.0, along = 0.0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += dy[i], along += dy[i] * y[i];
  Vec<S> dx;
  for (std::size_t i = 0; i < y.size(); ++i) dx.push_back((dy[i] - sum / S(n) - y[i] * along / S(n)) / sd);
  return dx;
}

inline bool has_layernorm(const Memory& m) { return m.layernorm || m.kind == Memory::Class::layernorm_linear; }

/// What the layers of an mlp saw: inputs of each layer and the sums before the activations.
template <class S>
struct MlpTrace {
  std::vector<Vec<S>> input, sum;
  Vec<S> normed;
  S sd = 1.0;
};

template <class S>
Vec<S> mlp_predict(const Memory& m, const Parameters<S>& w, const Vec<S>& x, MlpTrace<S>& trace) {
  const int depth = m.kind == Memory::Class::layernorm_linear ? 1 : m.depth;
  Vec<S> z = x;
  for (int l = 0, p = 0; l < depth; ++l) {
    trace.input.push_back(z);
    Vec<S> sum = through(z, w[p++]);
    if (m.bias) {
      for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += w[p](0, static_cast<int>(j));
      ++p;
    }
    trace.sum.push_back(sum);
    z = sum;
    if (l < depth - 1)
      for (S& e : z) e = activate(m.activation, e);
  }
  if (has_layernorm(m)) z = trace.normed = layernorm(z, trace.sd);
  if (m.residual)
    for (std::size_t j = 0; j < z.size(); ++j) z[j] += x[j];
  return z;
}
template <class S>
void mlp_gradient(const Memory& m, const Parameters<S>& w, const MlpTrace<S>& trace, Vec<S> dy, Parameters<S>& dw) {
  const int depth = m.kind == Memory::Class::layernorm_linear ? 1 : m.depth;
  if (has_layernorm(m)) dy = d_layernorm(trace.normed, trace.sd, dy);
  for (int l = depth - 1; l >= 0; --l) {
    const int p = m.bias ? 2 * l : l;
    if (l < depth - 1)
      for (std::size_t j = 0; j < dy.size(); ++j) dy[j] *= activate_slope(m.activation, trace.sum[l][j]);
    add_outer(dw[p], trace.input[l], dy);
    if (m.bias)
      for (std::size_t j = 0; j < dy.size(); ++j) dw[p + 1](0, static_cast<int>(j)) += dy[j];
    if (l > 0) dy = back_through(w[p], dy);
  }
}

/// The answer to `x` (features already applied for the linear classes).
template <class S>
Vec<S> predict(const Memory& m, const Parameters<S>& w, const Vec<S>& x) {
  if (is_linear_class(m)) return through(x, w[0]);
  if (m.kind == Memory::Class::swiglu) {
    const Vec<S> a = through(x, w[0]), b = through(x, w[2]);
    Vec<S> h;
    for (std::size_t j = 0; j < a.size(); ++j) h.push_back(a[j] * sigmoid(a[j]) * b[j]);
    return through(h, w[1]);
  }
  MlpTrace<S> trace;
  return mlp_predict(m, w, x, trace);
}
/// dw += (d predict / dw)' dy
template <class S>
void gradient(const Memory& m, const Parameters<S>& w, const Vec<S>& x, const Vec<S>& dy, Parameters<S>& dw) {
  if (is_linear_class(m)) return add_outer(dw[0], x, dy);
  if (m.kind == Memory::Class::swiglu) {
    const Vec<S> a = through(x, w[0]), b = through(x, w[2]);
    const Vec<S> dh = back_through(w[1], dy);
    Vec<S> h, da, db;
    for (std::size_t j = 0; j < a.size(); ++j) {
      const S s = sigmoid(a[j]), silu = a[j] * s;
      h.push_back(silu * b[j]);
      da.push_back(dh[j] * b[j] * (s + a[j] * s * (S(1.0) - s)));
      db.push_back(dh[j] * silu);
    }
    add_outer(dw[0], x, da);
    add_outer(dw[1], h, dy);
    add_outer(dw[2], x, db);
    return;
  }
  MlpTrace<S> trace;
  mlp_predict(m, w, x, trace);
  mlp_gradient(m, w, trace, dy, dw);
}

/// Five Newton-Schulz steps towards the nearest orthogonal matrix (Muon).
template <class S>
Matrix<S> orthogonalise(const Matrix<S>& g) {
  const bool tall = g.rows > g.cols;
  const int r = tall ? g.cols : g.rows, c = tall ? g.rows : g.cols;
  const S norm = frobenius(g) + S(1e-7);
  Matrix<S> x(r, c);
  for (int i = 0; i < r; ++i)
    for (int j = 0; j < c; ++j) x(i, j) = (tall ? g(j, i) : g(i, j)) / norm;
  for (int step = 0; step < 5; ++step) {
    Matrix<S> a(r, r), b(r, r), next(r, c);
    for (int i = 0; i < r; ++i)
      for (int j = 0; j < r; ++j)
        for (int k = 0; k < c; ++k) a(i, j) += x(i, k) * x(j, k);
    for (int i = 0; i < r; ++i)
      for (int j = 0; j < r; ++j) {
        b(i, j) = S(-4.7750) * a(i, j);
        for (int k = 0; k < r; ++k) b(i, j) += S(2.0315) * a(i, k) * a(k, j);
      }
    for (int i = 0; i < r; ++i)
      for (int j = 0; j < c; ++j) {
        next(i, j) = S(3.4445) * x(i, j);
        for (int k = 0; k < r; ++k) next(i, j) += b(i, k) * x(k, j);
      }
    x = next;
  }
  if (!tall) return x;
  Matrix<S> t(g.rows, g.cols);
  for (int i = 0; i < g.rows; ++i)
    for (int j = 0; j < g.cols; ++j) t(i, j) = x(j, i);
  return t;
}

}  // namespace ttr::oracle
