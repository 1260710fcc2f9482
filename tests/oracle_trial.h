// One head on the oracle beside a recurrence written out by hand, for tests.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <utility>

#include "oracle_cases.h"

namespace ttr::oracle::trial {

using cases::constant;
using cases::input;
using cases::make;
using C = Memory::Class;
using Kind = Solver::Kind;
using Per = Weights::Per;
using Rule = Solver::Rule;

constexpr int K = 3, V = 2;
using Key = std::array<double, K>;
using Value = std::array<double, V>;
using State = std::array<Value, K>;

/// One head; every input drawn at random, outputs and state after a run.
struct Trial {
  Design d;
  Sizes s;
  Arrays in, state, out;

  explicit Trial(Design design, std::int64_t time = 9, std::uint64_t seed = 11) : d(std::move(design)) {
    s.key_dim = K, s.value_dim = V, s.time = time;
    in = cases::random_inputs(d, s, seed);
    state = fresh_state(d, s);
  }
  Trial& go() {
    out = forward(d, s, in, state);
    return *this;
  }
  double x(const std::string& name, std::int64_t t = 0) const {
    return in.at(name).data[static_cast<std::size_t>(t)];
  }
  template <std::size_t N>
  std::array<double, N> row(const std::string& name, std::int64_t t = 0) const {
    std::array<double, N> r{};
    for (std::size_t i = 0; i < N; ++i) r[i] = in.at(name).data[static_cast<std::size_t>(t) * N + i];
    return r;
  }
  Key q(std::int64_t t) const { return row<K>("q", t); }
  Key k(std::int64_t t) const { return row<K>("k", t); }
  Value v(std::int64_t t) const { return row<V>("v", t); }
  double o(std::int64_t t, int b) const { return out.at("o").data[static_cast<std::size_t>(t * V + b)]; }
};

inline double dot(const Key& a, const Key& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
inline Value read(const State& S, const Key& q) {
  Value o{};
  for (int a = 0; a < K; ++a)
    for (int b = 0; b < V; ++b) o[b] += q[a] * S[a][b];
  return o;
}
inline void write(State& S, const Key& k, const Value& u, double factor = 1) {
  for (int a = 0; a < K; ++a)
    for (int b = 0; b < V; ++b) S[a][b] += factor * k[a] * u[b];
}
inline Value minus(const Value& a, const Value& b) { return {a[0] - b[0], a[1] - b[1]}; }
inline void scale(State& S, double f) {
  for (Value& row : S)
    for (double& x : row) x *= f;
}

/// Runs `step(S, t)` over the tokens and compares S' q and the final S with the oracle's.
template <class Step>
void expect_recurrence(const Design& d, const Step& step, double tolerance = 1e-12) {
  Trial r(d);
  r.go();
  State S{};
  for (std::int64_t t = 0; t < r.s.time; ++t) {
    step(r, S, t);
    const Value o = read(S, r.q(t));
    for (int b = 0; b < V; ++b) ASSERT_NEAR(r.o(t, b), o[b], tolerance) << "token " << t;
  }
  if (!r.state.count("S")) return;
  for (int i = 0; i < K * V; ++i)
    EXPECT_NEAR(r.state["S"].data[static_cast<std::size_t>(i)], S[i / V][i % V], tolerance);
}

inline void expect_same(const Design& a, const Design& b, double tolerance, std::int64_t time = 9,
                        const std::function<void(Trial&, Trial&)>& change = {}) {
  Trial x(a, time), y(b, time);
  for (auto& [name, array] : y.in)
    if (x.in.count(name) && x.in[name].extent == array.extent) array = x.in[name];
  if (change) change(x, y);
  x.go(), y.go();
  for (std::size_t i = 0; i < x.out["o"].data.size(); ++i)
    ASSERT_NEAR(x.out["o"].data[i], y.out["o"].data[i], tolerance) << "output " << i;
}

inline Design sgd_design(const std::function<void(Design&)>& more = {}) {
  return make([&](Design& d) {
    cases::sgd(d);
    if (more) more(d);
  });
}

}  // namespace ttr::oracle::trial
