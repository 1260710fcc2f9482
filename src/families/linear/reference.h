// The recurrences of decay, delta, gated and dplr and their gradients as one literal loop in double, and the case that
// feeds it and the kernels to the harness:
//
//   S~ = diag(e^gk) S diag(e^gv) ;  r = S~' x or S' x ;  S = S~ + k (beta (v - r | v))' (+ b r') ;  o = scale S' q
//
// x = a, or k. Scalar gates: g [B, T, H] in the place of gk, and the kernels decay and delta.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "families/linear/channel/dplr.h"
#include "families/linear/channel/gated.h"
#include "families/linear/scalar/decay.h"
#include "families/linear/scalar/delta.h"
#include "families_harness.h"

namespace ttr_families_test {

/// Which terms the recurrence has; `reads` makes it delta or dplr, otherwise it is decay or gated.
struct Terms {
  bool scalar = false, reads = false, gk = true, gv = false, beta = true, before = false, bonus = false;
  bool a = false, b = false, decayed = false;
  const char* name = "";
};

enum class Strength {
  mild,
  strong,
  constant,
  scalar,
  strong_scalar
};  // constant: one gate per head at all times, as
    // a stride of zero; scalar: for all channels

struct Recurrence : FamilyBase {
  Terms terms;
  int H = 2, G = 2, K = 5, V = 3;
  Strength strength = Strength::mild;
  double scale = 0.5;
  bool outputs = true;

  std::string name() const {
    return std::string(terms.name) + "-B" + std::to_string(B) + "-T" + std::to_string(T) + "-H" + std::to_string(H) +
           "-G" + std::to_string(G) + "-K" + std::to_string(K) + "-V" + std::to_string(V) + "-strength" +
           std::to_string(static_cast<int>(strength)) + "-seed" + std::to_string(seed);
  }
  bool has(const std::string& tensor) const {
    return tensor == "g"       ? terms.scalar && terms.gk
           : tensor == "gk"    ? !terms.scalar && terms.gk
           : tensor == "gv"    ? terms.gv
           : tensor == "beta"  ? terms.beta
           : tensor == "bonus" ? terms.bonus
           : tensor == "a"     ? terms.a
           : tensor == "b"     ? terms.b
           : tensor == "o"     ? outputs
                               : true;
  }
  int heads(const std::string& tensor) const { return tensor == "q" || tensor == "k" ? G : H; }
  int dim(const std::string& tensor) const {
    if (tensor == "g" || tensor == "beta" || (tensor == "gk" && terms.scalar)) return 1;
    return tensor == "v" || tensor == "gv" || tensor == "o" ? V : K;
  }

  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"S", Role::state, {N(), H, K, V}}};
    for (const char* name : {"q", "k", "v", "gk", "gv", "a", "b"})
      if (has(name)) s.push_back({name, Role::input, {B, T, heads(name), dim(name)}});
    for (const char* name : {"g", "beta"})
      if (has(name)) s.push_back({name, Role::input, {B, T, H}});
    if (terms.bonus) s.push_back({"bonus", Role::input, {H, K}});
    if (outputs) s.push_back({"o", Role::output, {B, T, H, V}});
    return s;
  }

  Values draw_values() const { return draw_all().first; }
  /// Inputs and what comes in backwards. Also what the recurrence does not have, as 0 (gates, bonus) and 1 (beta).
  std::pair<Values, Values> draw_all() const {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    const Size count = B * T;
    Values d;
    const auto fill = [&](const std::string& name, Size n) {
      d[name].resize(static_cast<std::size_t>(n));
      for (double& value : d[name]) value = normal(rng);
    };
    for (const char* name : {"q", "k", "v", "gk", "gv", "beta", "a", "b"}) {
      const bool drawn = !terms.scalar || (name[0] != 'a' && name != std::string("b") && name != std::string("gv"));
      if (drawn) fill(name, count * heads(name) * dim(name));
      else d[name].assign(static_cast<std::size_t>(count * heads(name) * dim(name)), 0.0);
    }
    const auto unit = [&](Doubles& x, Size i) {
      double norm = 1e-6;
      for (int j = 0; j < K; ++j) norm += x[i * K + j] * x[i * K + j];
      for (int j = 0; j < K; ++j) x[i * K + j] /= std::sqrt(norm);
    };
    for (Size i = 0; i < count * G; ++i) unit(d["k"], i);
    for (double& x : d["beta"]) x = 1 / (1 + std::exp(-x));
    for (Size i = 0; i < count * H; ++i) {
      // Steps that contract: a reads nearly what k (or -b) writes.
      unit(d["a"], i), unit(d["b"], i);
      const Size key = (i / H * G + i % H / (H / G)) * K;
      for (int j = 0; j < K; ++j) {
        double &a = d["a"][i * K + j], &b = d["b"][i * K + j];
        if (!terms.b) a = d["k"][key + j] + 0.1 * a;
        b = -d["beta"][i] * a + 0.05 * b;
      }
    }
    const double strong[] = {0, -1e-3, -1, -50, -1e4, -std::numeric_limits<double>::infinity()};
    for (const char* name : {"gk", "gv"})
      for (std::size_t i = 0; i < d[name].size(); ++i) {
        double& g = d[name][i];
        g = strength == Strength::strong || strength == Strength::strong_scalar ? strong[rng() % 6]
                                                                                : -std::log1p(std::exp(-2 - g));
        const std::size_t width = static_cast<std::size_t>(dim(name));
        if (strength >= Strength::scalar) g = d[name][i / width * width];
        if (strength == Strength::constant)
          g = -0.1 * static_cast<double>(i / width % static_cast<std::size_t>(H) + 1);
      }
    if (terms.scalar) d["bonus"].assign(static_cast<std::size_t>(H * K), 0.0);
    else fill("bonus", Size{H} * K);
    fill("S", N() * H * K * V);
    if (terms.scalar) fill("d_o", count * H * V), fill("d_S", N() * H * K * V);
    else fill("d_S", N() * H * K * V), fill("d_o", count * H * V);
    for (auto& [name, x] : d)
      for (double& value : x) value = static_cast<float>(value);
    Values given;
    for (const char* name : {"o", "S"}) given[name] = std::move(d.extract(std::string("d_") + name).mapped());
    if (!terms.gk) d["gk"].assign(d["gk"].size(), 0.0);
    for (const char* name : {"gv", "bonus"})
      if (!has(name)) d[name].assign(d[name].size(), 0.0);
    if (!terms.beta) d["beta"].assign(d["beta"].size(), 1.0);
    if (terms.scalar) d["g"] = d["gk"];
    return {d, given};
  }

  Values reference(const Values& in) const { return literal(in, nullptr); }
  /// Of all inputs and of the initial state, also of absent ones; d: of "o" and of the final "S".
  Values gradients(const Values& in, const Values& d) const { return literal(in, &d); }

  /// The recurrence token by token; with d its reverse, with every state kept.
  Values literal(const Values& in, const Values* d) const {
    Values out = {{"o", Doubles(static_cast<std::size_t>(B * T * H * V))}, {"S", in.at("S")}}, grad;
    for (const auto& [name, x] : in) grad[name].assign(x.size(), 0.0);
    if (d) grad["S"] = d->at("S");
    const std::string gate = terms.scalar ? "g" : "gk", reader = terms.a ? "a" : "k";
    const int wide = terms.scalar ? 0 : 1;  // the gate of channel i is gate[i wide]
    Size seq_head = 0;
    for (const Sequence& n : sequences())
      for (int h = 0; h < H; ++h, ++seq_head) {
        const auto at = [&](const std::string& tensor, Size t) {
          const int of = heads(tensor), head = of == G ? h / (H / G) : h;  // a shared head of k, also where it reads
          return static_cast<std::size_t>(((n.row * T + t) * of + head) * dim(tensor));
        };
        const auto given = [&](const std::string& tensor, Size t) { return in.at(tensor).data() + at(tensor, t); };
        const auto wanted = [&](const std::string& tensor, Size t) { return grad[tensor].data() + at(tensor, t); };
        const double* const w = in.at("bonus").data() + h * K;
        double* const S = out["S"].data() + seq_head * K * V;
        double* const dS = grad["S"].data() + seq_head * K * V;
        std::vector<Doubles> states;
        for (Size t = n.begin; t < n.end; ++t) {
          const Doubles old(S, S + K * V);
          states.push_back(old);
          const double *q = given("q", t), *k = given("k", t), *x = given(reader, t), *b = given("b", t);
          const double *gk = given(gate, t), *gv = given("gv", t), *v = given("v", t), beta = *given("beta", t);
          double* const o = out["o"].data() + at("o", t);
          for (int j = 0; j < V; ++j) {
            double read = 0, self = 0;
            for (int i = 0; i < K; ++i) {
              S[i * V + j] *= std::exp(gk[i * wide]) * std::exp(gv[j]);
              read += x[i] * (terms.decayed ? S[i * V + j] : old[i * V + j]);
              self += q[i] * w[i] * k[i];
            }
            const double u = beta * (terms.reads && !terms.b ? v[j] - read : v[j]);
            for (int i = 0; i < K; ++i) {
              S[i * V + j] += k[i] * u + (terms.reads && terms.b ? b[i] * read : 0);
              o[j] += scale * q[i] * (terms.before ? old[i * V + j] : S[i * V + j]);
            }
            o[j] += scale * self * v[j];
          }
        }
        states.emplace_back(S, S + K * V);
        for (Size t = n.end; d && t-- > n.begin;) {
          const Doubles now = states.back();
          states.pop_back();
          const Doubles& old = states.back();
          const double *q = given("q", t), *k = given("k", t), *x = given(reader, t), *b = given("b", t);
          const double *gk = given(gate, t), *gv = given("gv", t), *v = given("v", t), beta = *given("beta", t);
          const double* const d_o = d->at("o").data() + at("o", t);
          double *d_q = wanted("q", t), *d_k = wanted("k", t), *d_v = wanted("v", t), *d_x = wanted(reader, t),
                 *d_b = wanted("b", t), *d_beta = wanted("beta", t), *d_gk = wanted(gate, t), *d_gv = wanted("gv", t),
                 *d_w = grad["bonus"].data() + h * K;
          for (int j = 0; j < V; ++j) {
            const double g_o = d_o[j] * scale, av = std::exp(gv[j]);
            double read = 0, self = 0, d_u = 0, d_read = 0;
            const auto faded = [&](int i) { return std::exp(gk[i * wide]) * av * old[i * V + j]; };
            const auto seen = [&](int i) { return terms.decayed ? faded(i) : old[i * V + j]; };
            for (int i = 0; i < K; ++i) {
              read += x[i] * seen(i), self += q[i] * w[i] * k[i];
              if (!terms.before) dS[i * V + j] += q[i] * g_o;
              d_q[i] += g_o * (terms.before ? old[i * V + j] : now[i * V + j]) + g_o * v[j] * w[i] * k[i];
              d_k[i] += g_o * v[j] * w[i] * q[i];
              d_w[i] += g_o * v[j] * q[i] * k[i];
            }
            const double u = terms.reads && !terms.b ? v[j] - read : v[j];
            for (int i = 0; i < K; ++i) {
              d_u += dS[i * V + j] * k[i];
              d_k[i] += dS[i * V + j] * beta * u;
              if (terms.reads && terms.b) d_read += dS[i * V + j] * b[i], d_b[i] += dS[i * V + j] * read;
            }
            *d_beta += d_u * u;
            d_v[j] += beta * d_u + g_o * self;
            if (terms.reads && !terms.b) d_read = -beta * d_u;
            for (int i = 0; i < K; ++i) {
              if (terms.reads) d_x[i] += d_read * seen(i);
              const double d_faded = dS[i * V + j] + (terms.reads && terms.decayed ? x[i] * d_read : 0);
              d_gk[i * wide] += d_faded * faded(i), d_gv[j] += d_faded * faded(i);
              dS[i * V + j] = std::exp(gk[i * wide]) * av * d_faded;
              if (terms.reads && !terms.decayed) dS[i * V + j] += x[i] * d_read;
              if (terms.before) dS[i * V + j] += q[i] * g_o;
            }
          }
        }
      }
    return d ? grad : out;
  }

  /// With its strides: here an extent of 1 does not mean that a tensor is broadcast.
  template <std::size_t D, class X>
  View<X, D> rows(Bound<X>& x, const std::string& tensor) const {
    View<X, D> v = x.template view<D>(tensor);
    for (std::size_t i = 0; v && i < D; ++i) v.stride[i] = x.held.at(tensor).stride[i];
    return v;
  }
  template <class X>
  ttr::families::LinearProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list) const {
    View<const X, 3> g = rows<3>(x, "g");
    if (strength == Strength::constant) g.stride[0] = g.stride[1] = 0;
    return {list,
            H,
            G,
            K,
            V,
            static_cast<X>(scale),
            rows<4>(x, "q"),
            rows<4>(x, "k"),
            rows<4>(x, "v"),
            g,
            rows<3>(x, "beta"),
            x.pointer("S"),
            rows<4>(x, "o")};
  }
  template <class X>
  View<const X, 4> gates(Bound<X>& x, const char* tensor) const {
    View<const X, 4> g = rows<4>(x, tensor);
    if (strength >= Strength::scalar) g.stride[3] = 0;
    return g;
  }
  template <class X>
  ttr::families::GatedProblem<X> gated(Bound<X>& x, const std::vector<Sequence>& list) const {
    return {problem(x, list), gates(x, "gk"), gates(x, "gv"), rows<2>(x, "bonus"), terms.before};
  }
  template <class X>
  ttr::families::DplrProblem<X> dplr(Bound<X>& x, const std::vector<Sequence>& list) const {
    return {problem(x, list), gates(x, "gk"), rows<4>(x, "a"), rows<4>(x, "b"), terms.decayed};
  }
  ttr::families::Residual residual() const {
    return terms.decayed ? ttr::families::Residual::decayed : ttr::families::Residual::undecayed;
  }
  template <class X>
  std::size_t bytes(Size longest, Form form, int chunk, bool backward) const {
    namespace fam = ttr::families;
    const auto of = terms.scalar ? (terms.reads ? fam::delta::workspace_bytes<X> : fam::decay::workspace_bytes<X>)
                                 : (terms.reads ? fam::dplr::workspace_bytes<X> : fam::gated::workspace_bytes<X>);
    return of(K, V, longest, form, chunk, backward, 1);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form form, int chunk, const Simd<X>& s,
                 Workspace w) const {
    namespace fam = ttr::families;
    if (terms.scalar && terms.reads) return fam::delta::forward(problem(x, list), residual(), form, chunk, s, w);
    if (terms.scalar) return fam::decay::forward(problem(x, list), form, chunk, s, w);
    if (terms.reads) return fam::dplr::forward(dplr(x, list), form, chunk, s, w);
    return fam::gated::forward(gated(x, list), form, chunk, s, w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& d, Bound<X>& to, const std::vector<Sequence>& list, Form form, int chunk,
                  const Simd<X>& s, Workspace w) const {
    namespace fam = ttr::families;
    const fam::LinearGradient<X> grad{rows<4>(d, "o"),  d.pointer("S"),   rows<4>(to, "q"),    rows<4>(to, "k"),
                                      rows<4>(to, "v"), rows<3>(to, "g"), rows<3>(to, "beta"), to.pointer("S")};
    if (terms.scalar && terms.reads)
      return fam::delta::backward(problem(x, list), grad, residual(), form, chunk, s, w);
    if (terms.scalar) return fam::decay::backward(problem(x, list), grad, form, chunk, s, w);
    if (terms.reads) {
      const fam::DplrGradient<X> wide{grad, rows<4>(to, "gk"), rows<4>(to, "a"), rows<4>(to, "b")};
      return fam::dplr::backward(dplr(x, list), wide, form, chunk, s, w);
    }
    const fam::GatedGradient<X> wide{grad, rows<4>(to, "gk"), rows<4>(to, "gv"), rows<2>(to, "bonus")};
    return fam::gated::backward(gated(x, list), wide, form, chunk, s, w);
  }
};

const std::vector<FormCall> every_form = {
    {Form::recurrent, 0}, {Form::recurrent, 3}, {Form::step, 0},     {Form::chunk, 0},
    {Form::chunk, 1},     {Form::chunk, 5},     {Form::chunk, 16},   {Form::chunk, 40},
    {Form::chunk, 64},    {Form::chunk, 200},   {Form::parallel, 0}, {Form::best, 0},
    {Form::scan, 0},      {Form::scan, 1},      {Form::scan, 7},     {Form::scan, 40}};

/// Bounds against the literal loop, relative to the largest number of a tensor: of outputs, of gradients, and of the
/// gradients of gates.
struct Bounds {
  double forward, backward, gates;
};

/// Inputs, what comes in backwards, and what must come out.
struct Literal {
  Values in, d, out, grad;
  explicit Literal(const Recurrence& f) {
    std::tie(in, d) = f.draw_all();
    out = f.reference(in), grad = f.gradients(in, d);
  }
  Literal(const Recurrence& f, Values values) : in(std::move(values)), d(f.draw_all().second) {
    out = f.reference(in), grad = f.gradients(in, d);
  }
};

template <class X>
void check_call(const Recurrence& f, const Literal& want, const Call& call, const Bounds& bounds) {
  const std::string what = f.name() + " form " + std::string(ttr::to_string(call.form)) + " chunk " +
                           std::to_string(call.chunk) + " target " + call.target + " bits " +
                           std::to_string(8 * sizeof(X)) + ": ";
  for (const auto& [name, x] : run_forward<X>(f, want.in, call))
    ASSERT_LE(distance(x, want.out.at(name)), bounds.forward) << what << name;
  for (const auto& [name, x] : run_backward<X>(f, want.in, want.d, call))
    ASSERT_LE(distance(x, want.grad.at(name)), name[0] == 'g' ? bounds.gates : bounds.backward)
        << what << "d " << name;
}

}  // namespace ttr_families_test
