// Cases of local linear attention and their literal solution: the weighted ridge regression in raw features, query by
// query, in long double, as a least squares problem. Gradients are central differences of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "families/pairs/local_linear/local_linear.h"
#include "families_harness.h"

namespace ttr_local_linear_test {

using namespace ttr_families_test;
namespace lla = ttr::families::local_linear;
using ttr::families::LocalKernel;
using ttr::families::LocalLinearGradient;
using ttr::families::LocalLinearProblem;
using ttr::families::LocalRidge;
using Real = long double;
using Reals = std::vector<Real>;

enum class Per { all, head, token };

/// Keys of so many dimensions are solved for by steps, in float and in double; those of a few directly.
constexpr int many = 66;

struct Case {
  int B = 1;
  Size T = 7;
  int H = 1, G = 1, K = 3, V = 2, order = 1;
  bool causal = true;
  LocalKernel kernel = LocalKernel::exponential;
  LocalRidge ridge = LocalRidge::relative;
  Per lambda = Per::head;
  bool slope = false;
  Size window = 0;
  bool gates = false;
  std::vector<Size> packed = {};        // borders in row 0; empty: every row is one sequence
  std::vector<std::int64_t> past = {};  // pairs before each sequence; empty: none
  double smallest = 0.1, scale = 0, size = 1;
  bool strided = false;
  unsigned seed = 1;

  Size N() const { return packed.empty() ? B : static_cast<Size>(packed.size()) - 1; }
  Size capacity() const { return past.empty() ? 1 : *std::max_element(past.begin(), past.end()) + 2; }
  Size before(Size n) const { return past.empty() ? 0 : past[static_cast<std::size_t>(n)]; }
  double exponent() const { return scale != 0 ? scale : 1 / std::sqrt(double(K)); }
  std::vector<Sequence> sequences() const {
    std::vector<Sequence> list;
    if (packed.empty())
      for (int b = 0; b < B; ++b) list.push_back({b, 0, T});
    for (std::size_t n = 0; n + 1 < packed.size(); ++n) list.push_back({0, packed[n], packed[n + 1]});
    return list;
  }
  Size longest() const {
    Size most = 0, n = 0;
    for (const Sequence& s : sequences()) most = std::max(most, s.end - s.begin + before(n++));
    return most;
  }
  std::vector<Spec> specs() const {
    std::vector<Spec> list = {{"q", Role::input, {B, T, H, K}, 0, size},
                              {"k", Role::input, {B, T, G, K}, 0, size},
                              {"v", Role::input, {B, T, G, V}}};
    if (slope) list.push_back({"slope", Role::input, {B, T, H, K}});
    else if (lambda == Per::all) list.push_back({"lambda", Role::input, {1, 1, 1}});
    else if (lambda == Per::head) list.push_back({"lambda", Role::input, {1, 1, H}});
    else list.push_back({"lambda", Role::input, {B, T, H}});
    if (kernel == LocalKernel::gaussian) list.push_back({"bandwidth", Role::input, {H}});
    if (!past.empty()) {
      list.push_back({"past_k", Role::input, {N(), capacity(), G, K}, 0, size});
      list.push_back({"past_v", Role::input, {N(), capacity(), G, V}});
    }
    if (gates) list.push_back({"g", Role::input, {B, T, H}});
    if (gates && !past.empty()) list.push_back({"past_g", Role::input, {N(), capacity(), H}});
    return list;
  }
  Values draw_values() const {
    Values x = draw(specs(), seed);
    if (!slope)
      for (double& l : x["lambda"]) l = static_cast<float>(smallest * (1 + std::abs(l)));
    if (kernel == LocalKernel::gaussian)
      for (double& b : x["bandwidth"]) b = static_cast<float>(2 * std::sqrt(double(K)) * (1 + std::abs(b)));
    for (const char* name : {"g", "past_g"})
      if (x.count(name))
        for (double& g : x[name]) g = static_cast<float>(-0.2 * std::abs(g));
    return x;
  }
  std::string name() const {
    return "B" + std::to_string(B) + "-T" + std::to_string(T) + "-H" + std::to_string(H) + "-G" + std::to_string(G) +
           "-K" + std::to_string(K) + "-V" + std::to_string(V) + " order " + std::to_string(order) +
           (causal ? "" : " everywhere") + (kernel == LocalKernel::gaussian ? " gaussian" : "") +
           (ridge == LocalRidge::absolute ? " absolute" : "") + (slope ? " slope" : "") +
           (window > 0 ? " window " + std::to_string(window) : "") + (gates ? " gates" : "") +
           (past.empty() ? "" : " past") + (packed.empty() ? "" : " packed");
  }
};

/// The first coefficient of the least squares fit of y by X for the rows [X, y] of F + m numbers: Householder's
/// reflections with the largest rows first and the largest column next, which is accurate row by row however much the
/// rows differ in size (Cox and Higham 1998). Products of rows would square what weights of e^-800 beside 1 cost.
inline Reals first_coefficient(std::vector<Reals> rows, Size F, Size m) {
  const auto largest = [&](const Reals& row) {
    Real most = 0;
    for (Size a = 0; a < F; ++a) most = std::max(most, std::abs(row[a]));
    return most;
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const Reals& a, const Reals& b) { return largest(a) > largest(b); });
  const Size n = static_cast<Size>(rows.size());
  std::vector<Size> order(F);
  for (Size a = 0; a < F; ++a) order[a] = a;
  Reals diagonal(F);
  for (Size i = 0; i < F; ++i) {
    Size best = i;
    Real norm = -1;
    for (Size a = i; a < F; ++a) {
      Real square = 0;
      for (Size r = i; r < n; ++r) square += rows[r][order[a]] * rows[r][order[a]];
      if (square > norm) norm = square, best = a;
    }
    std::swap(order[i], order[best]);
    const Size c = order[i];
    diagonal[i] = rows[i][c] > 0 ? -std::sqrt(norm) : std::sqrt(norm);
    rows[i][c] -= diagonal[i];
    const Real scale = 1 / (diagonal[i] * rows[i][c]);  // -2 / |reflector|^2
    for (Size a = i + 1; a < F + m; ++a) {
      const Size column = a < F ? order[a] : a;
      Real along = 0;
      for (Size r = i; r < n; ++r) along += rows[r][c] * rows[r][column];
      for (Size r = i; r < n; ++r) rows[r][column] += scale * along * rows[r][c];
    }
  }
  Reals result(m, 0);
  for (Size b = 0; b < m; ++b) {
    Reals x(F);
    for (Size i = F; i-- > 0;) {
      Real sum = rows[i][F + b];
      for (Size a = i + 1; a < F; ++a) sum -= rows[i][order[a]] * x[order[a]];
      x[order[i]] = sum / diagonal[i];
    }
    result[b] = x[0];
  }
  return result;
}

/// Everything query (n, head, t) sees, in the plainest words.
inline Reals literal_answer(const Case& c, const Values& x, Size n, const Sequence& s, Size head, Size t) {
  const Size H = c.H, G = c.G, K = c.K, V = c.V, g = head / (H / G), token = s.row * c.T + t;
  const double* const q = &x.at("q")[(token * H + head) * K];
  std::vector<const double*> keys, values;
  Reals gates;  // each token's own
  for (Size j = 0; j < c.before(n); ++j) {
    keys.push_back(&x.at("past_k")[((n * c.capacity() + j) * G + g) * K]);
    values.push_back(&x.at("past_v")[((n * c.capacity() + j) * G + g) * V]);
    gates.push_back(c.gates ? x.at("past_g")[(n * c.capacity() + j) * H + head] : 0);
  }
  for (Size j = s.begin; j < (c.causal ? t + 1 : s.end); ++j) {
    keys.push_back(&x.at("k")[((s.row * c.T + j) * G + g) * K]);
    values.push_back(&x.at("v")[((s.row * c.T + j) * G + g) * V]);
    gates.push_back(c.gates ? x.at("g")[(s.row * c.T + j) * H + head] : 0);
  }
  if (c.window > 0 && static_cast<Size>(keys.size()) > c.window) {
    const Size gone = static_cast<Size>(keys.size()) - c.window;
    keys.erase(keys.begin(), keys.begin() + gone), values.erase(values.begin(), values.begin() + gone);
    gates.erase(gates.begin(), gates.begin() + gone);
  }
  Reals w;
  Real sum = 0;
  for (std::size_t j = 0; j < keys.size(); ++j) {
    const double* const k = keys[j];
    Real logit = 0;
    for (std::size_t i = j + 1; i < keys.size(); ++i) logit += gates[i];
    for (Size a = 0; a < K; ++a)
      if (c.kernel == LocalKernel::exponential) logit += Real(c.exponent()) * q[a] * k[a];
      else logit -= (Real(k[a]) - q[a]) * (Real(k[a]) - q[a]) / Real(x.at("bandwidth")[head]);
    w.push_back(std::exp(logit));
    sum += w.back();
  }
  Reals o(V, 0);
  if (c.slope) {
    const double* const r = &x.at("slope")[(token * H + head) * K];
    Real mean_s = 0;
    Reals mean_v(V, 0), mean_sv(V, 0);
    for (std::size_t j = 0; j < keys.size(); ++j) {
      Real along = 0;
      for (Size a = 0; a < K; ++a) along += Real(r[a]) * keys[j][a];
      mean_s += w[j] / sum * along;
      for (Size b = 0; b < V; ++b)
        mean_v[b] += w[j] / sum * values[j][b], mean_sv[b] += w[j] / sum * along * values[j][b];
    }
    for (Size b = 0; b < V; ++b) o[b] = mean_v[b] * (1 + mean_s) - mean_sv[b];
    return o;
  }
  const Doubles& lambdas = x.at("lambda");
  const Real given = c.lambda == Per::all    ? lambdas[0]
                     : c.lambda == Per::head ? lambdas[head]
                                             : lambdas[token * H + head];
  const Real lambda = c.ridge == LocalRidge::relative ? given * sum : given;
  const Size F = 1 + K + (c.order == 2 ? K * (K + 1) / 2 : 0);
  std::vector<Reals> rows;
  for (std::size_t j = 0; j < keys.size(); ++j) {
    Reals f = {1};
    for (Size a = 0; a < K; ++a) f.push_back(Real(keys[j][a]) - q[a]);
    if (c.order == 2)
      for (Size a = 0; a < K; ++a)
        for (Size b = a; b < K; ++b) f.push_back(f[1 + a] * f[1 + b]);
    f.insert(f.end(), values[j], values[j] + V);
    for (Real& number : f) number *= std::sqrt(w[j]);
    rows.push_back(f);
  }
  for (Size a = 1; a < F; ++a) {
    rows.emplace_back(F + V, 0);
    rows.back()[a] = std::sqrt(lambda);
  }
  return first_coefficient(rows, F, V);
}

inline Doubles literal(const Case& c, const Values& x) {
  Doubles o(c.B * c.T * c.H * c.V, 0.0);
  Size n = 0;
  for (const Sequence& s : c.sequences()) {
    for (Size t = s.begin; t < s.end; ++t)
      for (Size h = 0; h < c.H; ++h) {
        const Reals answer = literal_answer(c, x, n, s, h, t);
        for (Size b = 0; b < c.V; ++b) o[((s.row * c.T + t) * c.H + h) * c.V + b] = double(answer[b]);
      }
    ++n;
  }
  return o;
}

template <class T>
LocalLinearProblem<T> problem_of(const Case& c, Bound<T>& x, const std::vector<Sequence>& list) {
  LocalLinearProblem<T> p;
  p.sequences = list;
  p.heads = c.H, p.key_heads = c.G, p.key_dim = c.K, p.value_dim = c.V, p.order = c.order, p.causal = c.causal;
  p.kernel = c.kernel, p.scale = static_cast<T>(c.exponent()), p.ridge = c.ridge;
  p.q = x.template view<4>("q"), p.k = x.template view<4>("k"), p.v = x.template view<4>("v");
  p.lambda = x.template view<3>("lambda"), p.slope = x.template view<4>("slope");
  p.bandwidth = x.template view<1>("bandwidth");
  p.past_k = x.template view<4>("past_k"), p.past_v = x.template view<4>("past_v");
  p.window = c.window, p.g = x.template view<3>("g"), p.past_g = x.template view<3>("past_g");
  if (!c.past.empty()) p.past_count = c.past.data();
  p.o = x.template view<4>("o");
  return p;
}

inline std::vector<Spec> with_output(const Case& c) {
  std::vector<Spec> specs = c.specs();
  specs.push_back({"o", Role::output, {c.B, c.T, c.H, c.V}});
  return specs;
}

template <class T>
Doubles forward(const Case& c, const Values& in, Status want = Status::ok, const std::string& target = "") {
  Bound<T> x(with_output(c), &in, c.strided);
  const auto list = c.sequences();
  Scratch<T> scratch(lla::workspace_bytes<T>(c.K, c.V, c.order, c.H, c.longest(), c.window, false));
  const Simd<double>& wide = ttr::simd<double>(target);
  EXPECT_EQ(lla::forward(problem_of(c, x, list), ttr::simd<T>(target), scratch.workspace(), &wide), want) << c.name();
  EXPECT_TRUE(scratch.intact());
  for (const Spec& s : c.specs()) {
    const Doubles now = x.held[s.name].get(), &then = in.at(s.name);
    for (std::size_t i = 0; i < now.size(); ++i)
      EXPECT_TRUE(now[i] == static_cast<double>(static_cast<T>(then[i])) || std::isnan(then[i])) << s.name;
  }
  return x.held["o"].get();
}

/// Gradients of <d, o>, added to `start`.
template <class T>
Values backward(const Case& c, const Values& in, const Doubles& d, double start = 0, Status want = Status::ok,
                const std::string& target = "") {
  Values outputs, starts;
  outputs["o"] = d;
  for (const Spec& s : c.specs()) starts[s.name] = Doubles(count_of(s.extent), start);
  Bound<T> x(with_output(c), &in, c.strided), given(with_output(c), &outputs, c.strided),
      gradient(c.specs(), &starts, c.strided);
  const auto list = c.sequences();
  LocalLinearGradient<T> g;
  g.d_o = given.template view<4>("o");
  g.d_q = gradient.template view<4>("q"), g.d_k = gradient.template view<4>("k");
  g.d_v = gradient.template view<4>("v"), g.d_lambda = gradient.template view<3>("lambda");
  g.d_slope = gradient.template view<4>("slope"), g.d_bandwidth = gradient.template view<1>("bandwidth");
  g.d_past_k = gradient.template view<4>("past_k"), g.d_past_v = gradient.template view<4>("past_v");
  g.d_g = gradient.template view<3>("g"), g.d_past_g = gradient.template view<3>("past_g");
  Scratch<T> scratch(lla::workspace_bytes<T>(c.K, c.V, c.order, c.H, c.longest(), c.window, true));
  const Simd<double>& wide = ttr::simd<double>(target);
  EXPECT_EQ(lla::backward(problem_of(c, x, list), g, ttr::simd<T>(target), scratch.workspace(), &wide), want);
  EXPECT_TRUE(scratch.intact());
  Values out;
  for (const Spec& s : c.specs()) out[s.name] = gradient.held[s.name].get();
  return out;
}

inline Doubles output_gradient(const Case& c) { return draw({{"o", Role::output, {c.B, c.T, c.H, c.V}}}, 99)["o"]; }

inline Values literal_gradient(const Case& c, const Values& in, const Doubles& d) {
  const auto loss = [&](const Values& x) {
    const Doubles o = literal(c, x);
    Real sum = 0;
    for (std::size_t i = 0; i < o.size(); ++i) sum += Real(d[i]) * o[i];
    return sum;
  };
  Values gradient, x = in;
  for (const Spec& s : c.specs())
    for (double& number : x[s.name]) {
      const double old = number, h = 1e-5;
      number = old + h;
      const Real up = loss(x);
      number = old - h;
      const Real down = loss(x);
      number = old;
      gradient[s.name].push_back(static_cast<double>((up - down) / (2 * h)));
    }
  return gradient;
}

/// Every kind of problem at one size.
inline std::vector<Case> kinds(const Case& size) {
  std::vector<Case> list;
  for (const LocalKernel kernel : {LocalKernel::exponential, LocalKernel::gaussian})
    for (const LocalRidge ridge : {LocalRidge::relative, LocalRidge::absolute})
      for (const bool causal : {true, false})
        for (const int order : {1, 2}) {
          Case c = size;
          c.kernel = kernel, c.ridge = ridge, c.causal = causal, c.order = order;
          c.lambda = causal ? Per::token : order == 1 ? Per::head : Per::all;
          c.seed = static_cast<unsigned>(list.size()) + 3;
          list.push_back(c);
        }
  for (const bool causal : {true, false}) {
    Case c = size;
    c.slope = true, c.causal = causal;
    list.push_back(c);
    c.kernel = LocalKernel::gaussian;
    list.push_back(c);
  }
  // Windows of a third of the pairs, and gates.
  const auto slides = [&](Case c, bool window, bool gates) {
    c.causal = true, c.window = window ? (size.longest() + 2) / 3 : 0, c.gates = gates;
    c.seed = static_cast<unsigned>(list.size()) + 3;
    list.push_back(c);
  };
  for (const LocalRidge ridge : {LocalRidge::relative, LocalRidge::absolute})
    for (const int order : {1, 2}) {
      Case c = size;
      c.ridge = ridge, c.order = order, c.lambda = Per::token;
      if (order == 2) c.smallest = 1;  // a window may have fewer pairs than features
      slides(c, true, false), slides(c, false, true);
      c.kernel = LocalKernel::gaussian, c.lambda = Per::head;
      slides(c, true, true);
    }
  Case given = size;
  given.slope = true;
  slides(given, true, true);
  return list;
}

}  // namespace ttr_local_linear_test
