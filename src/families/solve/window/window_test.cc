// Least squares over a sliding window against the literal sums over the window, its gradients against differences.
#include "families/solve/window/window.h"

#include <gtest/gtest.h>

#include <bit>

#include "families_harness.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;

/// x with A x = b by elimination; A need not be symmetric.
Doubles solved(Doubles A, Doubles b) {
  const Size n = static_cast<Size>(b.size());
  for (Size i = 0; i < n; ++i)
    for (Size r = 0; r < n; ++r) {
      if (r == i) continue;
      const double f = A[r * n + i] / A[i * n + i];
      for (Size j = 0; j < n; ++j) A[r * n + j] -= f * A[i * n + j];
      b[r] -= f * b[i];
    }
  for (Size i = 0; i < n; ++i) b[i] /= A[i * n + i];
  return b;
}

/// Bound::counts has the counts of tokens and then, if the sums are carried, their bits: H, F, peak of all lanes.
struct Window : FamilyBase {
  int H = 2, G = 1, K = 3, V = 2, W = 3;
  double scale = 0.7;
  bool sums = true, gates = true, weights = true;
  int first_count = 0;  // of sequence 0; sequence n has seen 2 n tokens more

  std::string name() const {
    return "window" + std::to_string(W) + "-T" + std::to_string(T) + "-K" + std::to_string(K) + "-V" +
           std::to_string(V) + "-count" + std::to_string(first_count) + (sums ? "-sums" : "");
  }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, G, K}},       {"k", Role::input, {B, T, G, K}},
                           {"v", Role::input, {B, T, H, V}},       {"ridge", Role::input, {H, K}},
                           {"o", Role::output, {B, T, H, V}},      {"variance", Role::output, {B, T, H}},
                           {"known", Role::fixed, {B, T, H}},      {"keys", Role::state, {N(), W, G, K}},
                           {"values", Role::state, {N(), W, H, V}}};
    if (gates)
      s.push_back({"g", Role::input, {B, T, H}, -0.2, 0.2}), s.push_back({"gates", Role::state, {N(), W, H}});
    if (weights)
      s.push_back({"beta", Role::input, {B, T, H}, 0.8, 0.3}), s.push_back({"weights", Role::state, {N(), W, H}});
    if (sums) s.push_back({"H", Role::state, {N(), H, K, K}}), s.push_back({"F", Role::state, {N(), H, K, V}});
    return s;
  }
  bool is_state(const std::string& n) const { return n == "known"; }  // an output without a gradient
  Size count(Size n) const { return first_count + 2 * n; }
  Values draw_values() const {
    Values v = draw(specs(), seed);
    for (double& x : v["ridge"]) x = static_cast<float>(0.3 + std::abs(x));
    for (const char* name : {"g", "gates"})
      if (v.count(name))
        for (double& x : v[name]) x = -std::abs(x);
    for (const char* name : {"beta", "weights"})
      if (v.count(name))
        for (double& x : v[name]) x = std::abs(x);
    for (Size n = 0; sums && n < N(); ++n)
      for (int h = 0; h < H; ++h) sum(v, n, h, 0, &v["H"][(n * H + h) * K * K], &v["F"][(n * H + h) * K * V]);
    return v;
  }
  /// Pair j of a sequence (j < 0: in the ring): the positions of its numbers and the tensors they are in.
  struct Pair {
    const double *k, *v;
    double g, beta;
  };
  Pair pair(const Values& in, Size n, int h, Size j) const {
    const Sequence sequence = sequences()[static_cast<std::size_t>(n)];
    const bool kept = j < 0;
    const Size at = kept ? n * W + (count(n) + j) % W : sequence.row * T + sequence.begin + j;
    const auto one = [&](const char* now, const char* ring, double otherwise) {
      const auto found = in.find(kept ? ring : now);
      return found == in.end() ? otherwise : found->second[at * H + h];
    };
    return {&in.at(kept ? "keys" : "k")[(at * G + h / (H / G)) * K], &in.at(kept ? "values" : "v")[(at * H + h) * V],
            one("g", "gates", 0), one("beta", "weights", 1)};
  }
  void add(const Pair& x, double w, double* HH, double* FF) const {
    for (Size i = 0; i < K; ++i) {
      for (Size j = 0; j < K; ++j) HH[i * K + j] += w * x.k[i] * x.k[j];
      for (Size j = 0; j < V; ++j) FF[i * V + j] += w * x.k[i] * x.v[j];
    }
  }
  /// The sums over the window before token t.
  void sum(const Values& in, Size n, int h, Size t, double* HH, double* FF) const {
    std::fill_n(HH, K * K, 0.0), std::fill_n(FF, K * V, 0.0);
    for (Size j = std::max(t - W, -count(n)); j < t; ++j) {
      double fade = 0;
      for (Size i = j + 1; i < t; ++i) fade += pair(in, n, h, i).g;
      add(pair(in, n, h, j), pair(in, n, h, j).beta * std::exp(fade), HH, FF);
    }
  }
  Values reference(const Values& in) const {
    Values out = in;
    out["o"].assign(B * T * H * V, 0), out["variance"].assign(B * T * H, 1), out["known"].assign(B * T * H, 0);
    for (Size n = 0; n < N(); ++n) {
      const Sequence sequence = sequences()[static_cast<std::size_t>(n)];
      const Size time = sequence.end - sequence.begin;
      for (int h = 0; h < H; ++h) {
        // With sums H and F are states of their own, from which a pair is taken away.
        Doubles HH(K * K), FF(K * V);
        if (sums) HH.assign(&in.at("H")[(n * H + h) * K * K], &in.at("H")[(n * H + h) * K * K] + K * K);
        if (sums) FF.assign(&in.at("F")[(n * H + h) * K * V], &in.at("F")[(n * H + h) * K * V] + K * V);
        for (Size t = 0; t < time; ++t) {
          if (sums) {
            const Pair now = pair(in, n, h, t);
            if (count(n) + t - W >= 0) {
              double fade = 0;
              for (Size i = t - W + 1; i < t; ++i) fade += pair(in, n, h, i).g;
              const Pair gone = pair(in, n, h, t - W);
              add(gone, -gone.beta * std::exp(fade), HH.data(), FF.data());
            }
            for (double& x : HH) x *= std::exp(now.g);
            for (double& x : FF) x *= std::exp(now.g);
            add(now, now.beta, HH.data(), FF.data());
          } else {
            sum(in, n, h, t + 1, HH.data(), FF.data());
          }
          Doubles A = HH, q(K);
          const Size token = sequence.row * T + sequence.begin + t;
          for (Size i = 0; i < K; ++i)
            A[i * K + i] += in.at("ridge")[h * K + i], q[i] = scale * in.at("q")[(token * G + h / (H / G)) * K + i];
          const Doubles x = solved(A, q);
          double prior = 0, &variance = out["variance"][token * H + h];
          for (Size i = 0; i < K; ++i) variance += q[i] * x[i], prior += in.at("ridge")[h * K + i] * x[i] * x[i];
          out["known"][token * H + h] = 1 - prior / variance;
          for (Size i = 0; i < K; ++i)
            for (Size j = 0; j < V; ++j) out["o"][(token * H + h) * V + j] += FF[i * V + j] * x[i];
        }
        if (sums) std::copy(HH.begin(), HH.end(), &out["H"][(n * H + h) * K * K]);
        if (sums) std::copy(FF.begin(), FF.end(), &out["F"][(n * H + h) * K * V]);
        for (Size t = std::max<Size>(0, time - W); t < time; ++t) {
          const Pair x = pair(in, n, h, t);
          const Size at = n * W + (count(n) + t) % W;
          std::copy_n(x.k, K, &out["keys"][(at * G + h / (H / G)) * K]);
          std::copy_n(x.v, V, &out["values"][(at * H + h) * V]);
          if (gates) out["gates"][at * H + h] = x.g;
          if (weights) out["weights"][at * H + h] = x.beta;
        }
      }
    }
    return out;
  }
  std::vector<std::int64_t> counts() const {
    std::vector<std::int64_t> bits;
    for (Size n = 0; n < N(); ++n) bits.push_back(count(n));
    if (!sums) return bits;
    const Values v = draw_values();
    for (const char* name : {"H", "F"})
      for (const double x : v.at(name)) bits.push_back(std::bit_cast<std::int64_t>(x));
    for (Size seq_head = 0; seq_head < N() * H; ++seq_head)
      for (Size i = 0; i < K; ++i) bits.push_back(std::bit_cast<std::int64_t>(v.at("H")[(seq_head * K + i) * K + i]));
    return bits;
  }
  template <class X>
  WindowProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list, Doubles& state) const {
    WindowProblem<X> p;
    p.linear = {list,
                H,
                G,
                K,
                V,
                static_cast<X>(scale),
                x.template view<4>("q"),
                x.template view<4>("k"),
                x.template view<4>("v"),
                x.template view<3>("g"),
                x.template view<3>("beta"),
                nullptr,
                x.template view<4>("o")};
    p.variance = x.template view<3>("variance"), p.known = x.template view<3>("known");
    p.ridge = x.template view<2>("ridge"), p.window = W, p.count = x.counts.data();
    p.keys = x.pointer("keys"), p.values = x.pointer("values");
    p.gates = x.pointer("gates"), p.weights = x.pointer("weights");
    state.clear();
    for (std::size_t i = N(); i < x.counts.size(); ++i) state.push_back(std::bit_cast<double>(x.counts[i]));
    if (sums) p.h = state.data(), p.f = p.h + N() * H * K * K, p.peak = p.f + N() * H * K * V;
    return p;
  }
  template <class X>
  std::size_t bytes(Size longest, Form, int, bool backward) const {
    return window::workspace_bytes(K, V, W, longest, backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form form, int, const Simd<X>& s,
                 Workspace w) const {
    Doubles state;
    const Status status = window::forward(problem(x, list, state), form, ttr::simd<double>(s.name), w);
    for (std::size_t i = 0; i < state.size(); ++i) x.counts[N() + i] = std::bit_cast<std::int64_t>(state[i]);
    for (Size i = 0; sums && i < N() * H * K * K; ++i) x.pointer("H")[i] = static_cast<X>(state[i]);
    for (Size i = 0; sums && i < N() * H * K * V; ++i) x.pointer("F")[i] = static_cast<X>(state[N() * H * K * K + i]);
    return status;
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form form, int,
                  const Simd<X>& s, Workspace w) const {
    Doubles state, d_final, d_initial(N() * H * K * (K + V), 0.0);
    const Size matrices = N() * H * K * K;
    if (sums) d_final.assign(given.pointer("H"), given.pointer("H") + matrices);
    if (sums) d_final.insert(d_final.end(), given.pointer("F"), given.pointer("F") + N() * H * K * V);
    WindowGradient<X> d;
    d.linear.d_o = given.template view<4>("o"), d.d_variance = given.template view<3>("variance");
    d.linear.d_q = to.template view<4>("q"), d.linear.d_k = to.template view<4>("k");
    d.linear.d_v = to.template view<4>("v"), d.linear.d_g = to.template view<3>("g");
    d.linear.d_beta = to.template view<3>("beta"), d.d_ridge = to.template view<2>("ridge");
    d.d_final_keys = given.pointer("keys"), d.d_final_values = given.pointer("values");
    d.d_final_gates = given.pointer("gates"), d.d_final_weights = given.pointer("weights");
    d.d_initial_keys = to.pointer("keys"), d.d_initial_values = to.pointer("values");
    d.d_initial_gates = to.pointer("gates"), d.d_initial_weights = to.pointer("weights");
    if (sums) {
      d.d_final_h = d_final.data(), d.d_final_f = d_final.data() + matrices;
      d.d_initial_h = d_initial.data(), d.d_initial_f = d_initial.data() + matrices;
    }
    const std::vector<std::int64_t> before = x.counts;
    const Status status = window::backward(problem(x, list, state), d, form, ttr::simd<double>(s.name), w);
    EXPECT_TRUE(x.counts == before) << "backward changed the counts";
    for (std::size_t i = 0; i < state.size(); ++i)
      EXPECT_EQ(std::bit_cast<std::int64_t>(state[i]), before[N() + i]) << "backward changed the sums";
    for (Size i = 0; sums && i < matrices; ++i) to.pointer("H")[i] += static_cast<X>(d_initial[i]);
    for (Size i = 0; sums && i < N() * H * K * V; ++i) to.pointer("F")[i] += static_cast<X>(d_initial[matrices + i]);
    return status;
  }
};

const std::vector<FormCall> recurrent = {{Form::recurrent, 0}};

TEST(Window, ReferenceGradientsCuts) {
  for (const bool sums : {false, true})
    for (const int count : {0, 2, 7})
      for (const int W : {1, 3, 4, 12}) {
        Window f;
        f.sums = sums, f.first_count = count, f.W = W, f.B = W == 3 ? 2 : 1, f.T = 9;
        check_family(f, recurrent);
      }
}

TEST(Window, PackedAndPlain) {
  for (const bool sums : {false, true}) {
    Window f;
    f.sums = sums, f.B = 1, f.T = 14, f.packed = {0, 1, 1, 8, 14}, f.H = 4, f.G = 2, f.K = 4, f.W = 4, f.seed = 3;
    check_family(f, recurrent);
    f.gates = false;
    check_family(f, recurrent);
    f.weights = false, f.packed = {}, f.T = 1, f.H = f.G = f.K = f.V = f.W = 1;
    check_family(f, recurrent);
  }
}

TEST(Window, ManyShapes) {
  for (const auto& [K, V] : {std::pair{2, 1}, {8, 17}, {17, 5}})
    for (const int W : {5, 16}) {
      Window f;
      f.K = K, f.V = V, f.T = 50, f.W = W, f.first_count = 3;
      check_family(f, recurrent, false);
      check_steps(f);
      check_alone(f, recurrent);
    }
}

// Keys a million times larger pass through the window: what they leave behind in the sums would be 1e-4 of the small
// ones, were the sums not made afresh.
TEST(Window, LargeKeysLeaveNothingBehind) {
  Window f;
  f.T = 200, f.W = 20, f.K = 4, f.gates = f.weights = false;
  Values in = f.draw_values();
  for (double& r : in["ridge"]) r = static_cast<float>(1e-2);
  for (Size t = 0; t < f.T; ++t)
    for (Size i = 0; i < f.K; ++i)
      if (t % 50 == 13) in["k"][t * f.K + i] *= 1 << 20;
  const Doubles got = run_forward<double>(f, in, {}).at("o");
  f.sums = false;
  Values plain = in;
  plain.erase("H"), plain.erase("F");
  const Doubles want = f.reference(plain).at("o");
  for (Size t = 0; t < f.T; ++t) {
    bool large = false;
    for (Size i = std::max<Size>(0, t - f.W + 1); i <= t; ++i) large = large || i % 50 == 13;
    if (large) continue;
    const Size from = t * f.H * f.V, to = from + f.H * f.V;
    ASSERT_LE(
        distance(Doubles(got.begin() + from, got.begin() + to), Doubles(want.begin() + from, want.begin() + to)),
        1e-10)
        << t;
  }
}

// A long stream: the error does not grow.
TEST(Window, LongStream) {
  Window f;
  f.T = 20000, f.W = 30, f.K = 6, f.H = 1, f.gates = f.weights = false;
  const Values in = f.draw_values();
  const Doubles got = run_forward<double>(f, in, {}).at("o");
  f.sums = false;
  for (Size t = 0; t < f.T; t += 499) {
    Doubles HH(f.K * f.K), FF(f.K * f.V), q(f.K), o(f.V, 0.0);
    f.sum(in, 0, 0, t + 1, HH.data(), FF.data());
    for (Size i = 0; i < f.K; ++i) HH[i * f.K + i] += in.at("ridge")[i], q[i] = f.scale * in.at("q")[t * f.K + i];
    const Doubles x = solved(HH, q);
    for (Size i = 0; i < f.K; ++i)
      for (Size j = 0; j < f.V; ++j) o[j] += FF[i * f.V + j] * x[i];
    ASSERT_LE(distance(Doubles(got.begin() + t * f.V, got.begin() + (t + 1) * f.V), o), 1e-12) << t;
  }
}

TEST(Window, StatusAndDomain) {
  Window f;
  const Values in = f.draw_values();
  const auto list = f.sequences();
  Scratch<double> scratch(f.bytes<double>(f.T, Form::best, 0, false));
  using P = WindowProblem<double>;
  using X = Bound<double>;
  const auto run = [&](auto&& change, Form form = Form::best) {
    X x(f.specs(), &in, false);
    x.counts = f.counts();
    Doubles state;
    P p = f.problem(x, list, state);
    change(p, x);
    const Status status = window::forward(p, form, ttr::simd<double>(""), scratch.workspace());
    EXPECT_EQ(x.counts[0], 0);
    return status;
  };
  EXPECT_EQ(run([](P&, X&) {}, Form::scan), Status::not_supported);
  EXPECT_EQ(run([](P& p, X&) { p.window = 0; }), Status::bad_shape);
  EXPECT_EQ(run([](P& p, X&) { p.keys = nullptr; }), Status::missing_input);
  EXPECT_EQ(run([](P& p, X&) { p.gates = nullptr; }), Status::missing_input);
  EXPECT_EQ(run([](P& p, X&) { p.peak = nullptr; }), Status::missing_input);
  EXPECT_EQ(run([](P& p, X&) { p.ridge = {}; }), Status::missing_input);
  EXPECT_EQ(run([](P&, X& x) { x.held["ridge"].at(0) = 0; }), Status::out_of_domain);
  EXPECT_EQ(run([](P&, X& x) { x.held["beta"].at(0) = -1; }), Status::out_of_domain);
  EXPECT_EQ(run([](P& p, X&) { p.linear.value_dim = 1 << 20; }), Status::small_workspace);
}

}  // namespace
