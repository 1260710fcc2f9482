// Elementwise scans against literal loops: the vector, selective and rotating recurrences, all forms and gradients.
#include "families/elementwise/diagonal/diagonal.h"

#include <gtest/gtest.h>

#include <complex>

#include "families_harness.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;
using Complex = std::complex<double>;

enum class Gates { none, mild, strong, constant };

double strong(Size i) { return i % 3 == 0 ? -1e4 : i % 3 == 1 ? 0.0 : -30.0; }

struct Vector : FamilyBase {
  int D = 5;
  bool complex = false;
  Gates gates = Gates::mild;

  std::string name() const { return "vector-T" + std::to_string(T) + "-D" + std::to_string(D); }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {
        {"x", Role::input, {B, T, D}}, {"o", Role::output, {B, T, D}}, {"S", Role::state, {N(), D}}};
    const std::vector<Size> gate = gates == Gates::constant ? std::vector<Size>{1, 1, D} : std::vector<Size>{B, T, D};
    if (gates != Gates::none) s.push_back({"g", Role::input, gate, -0.3, 0.2});
    if (!complex) return s;
    s.push_back({"theta", Role::input, gate, 0, 2});
    s.push_back({"x_im", Role::input, {B, T, D}});
    s.push_back({"o_im", Role::output, {B, T, D}});
    s.push_back({"S_im", Role::state, {N(), D}});
    return s;
  }
  Values draw_values() const {
    Values v = draw(specs(), seed);
    if (gates == Gates::strong)
      for (std::size_t i = 0; i < v["g"].size(); ++i) v["g"][i] = strong(static_cast<Size>(i));
    return v;
  }
  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * D)}, {"S", in.at("S")}};
    if (complex) out["o_im"] = Doubles(B * T * D), out["S_im"] = in.at("S_im");
    Size seq_head = 0;
    for (const Sequence& n : sequences()) {
      for (Size i = 0; i < D; ++i) {
        Complex h(in.at("S")[seq_head * D + i], complex ? in.at("S_im")[seq_head * D + i] : 0.0);
        for (Size t = n.begin; t < n.end; ++t) {
          const Size at = (n.row * T + t) * D + i, gate = gates == Gates::constant ? i : at;
          const double g = in.count("g") ? in.at("g")[gate] : 0.0, angle = complex ? in.at("theta")[gate] : 0.0;
          h = std::exp(g) * Complex(std::cos(angle), std::sin(angle)) * h +
              Complex(in.at("x")[at], complex ? in.at("x_im")[at] : 0.0);
          out["o"][at] = h.real();
          if (complex) out["o_im"][at] = h.imag();
        }
        out["S"][seq_head * D + i] = h.real();
        if (complex) out["S_im"][seq_head * D + i] = h.imag();
      }
      ++seq_head;
    }
    return out;
  }
  template <class X>
  ChannelProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list) const {
    ChannelProblem<X> p;
    p.sequences = list, p.dim = D, p.g = x.template view<3>("g"), p.theta = x.template view<3>("theta");
    p.x = x.template view<3>("x"), p.x_im = x.template view<3>("x_im");
    p.state = x.pointer("S"), p.state_im = x.pointer("S_im");
    p.o = x.template view<3>("o"), p.o_im = x.template view<3>("o_im");
    return p;
  }
  template <class X>
  std::size_t bytes(Size longest, Form form, int chunk, bool backward) const {
    return elementwise::workspace_bytes<X>(1, D, longest, form, chunk, backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form form, int chunk, const Simd<X>& s,
                 Workspace w) const {
    return elementwise::forward(problem(x, list), form, chunk, s, w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form form, int chunk,
                  const Simd<X>& s, Workspace w) const {
    ChannelGradient<X> d;
    d.d_o = given.template view<3>("o"), d.d_o_im = given.template view<3>("o_im");
    d.d_final = given.pointer("S"), d.d_final_im = given.pointer("S_im");
    d.d_g = to.template view<3>("g"), d.d_theta = to.template view<3>("theta"), d.d_x = to.template view<3>("x");
    d.d_x_im = to.template view<3>("x_im"), d.d_initial = to.pointer("S"), d.d_initial_im = to.pointer("S_im");
    return elementwise::backward(problem(x, list), d, form, chunk, s, w);
  }
};

struct Matrix : FamilyBase {
  int H = 2, G = 1, K = 3, V = 4;
  double scale = 0.7;
  std::string shape() const {
    return "-B" + std::to_string(B) + "-T" + std::to_string(T) + "-H" + std::to_string(H) + "-G" + std::to_string(G) +
           "-K" + std::to_string(K) + "-V" + std::to_string(V);
  }
  Size key(Size row, Size t, int h) const { return ((row * T + t) * G + h / (H / G)) * K; }
  Size token(Size row, Size t, int h) const { return (row * T + t) * H + h; }
};

struct Selective : Matrix {
  SelectiveGate gate = SelectiveGate::exponential;
  bool extreme = false;

  std::string name() const {
    return (gate == SelectiveGate::exponential ? "mamba"
            : gate == SelectiveGate::twice     ? "twice"
                                               : "longhorn") +
           shape();
  }
  std::vector<Spec> specs() const {
    std::vector<Spec> s = {{"q", Role::input, {B, T, G, K}},  {"k", Role::input, {B, T, G, K}},
                           {"u", Role::input, {B, T, H, V}},  {"step", Role::input, {B, T, H, V}, 0.5, 0.2},
                           {"o", Role::output, {B, T, H, V}}, {"S", Role::state, {N(), H, K, V}}};
    if (gate != SelectiveGate::longhorn) s.push_back({"A", Role::input, {H, K, V}, -1, 0.3});
    return s;
  }
  Values draw_values() const {
    Values v = draw(specs(), seed);
    if (gate == SelectiveGate::longhorn)  // some factors 1 - k^2 step are negative, some exactly zero
      for (std::size_t i = 0; i < v["k"].size(); i += 5) v["k"][i] = 1, v["step"][i % v["step"].size()] = 1;
    if (extreme)
      for (std::size_t i = 0; i < v["step"].size(); ++i) v["step"][i] = i % 3 == 0 ? 1e4 : i % 3 == 1 ? 0 : 1;
    return v;
  }
  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * H * V)}, {"S", in.at("S")}};
    Size seq_head = 0;
    for (const Sequence& n : sequences())
      for (int h = 0; h < H; ++h, ++seq_head)
        for (Size t = n.begin; t < n.end; ++t)
          for (Size j = 0; j < V; ++j) {
            const Size value = token(n.row, t, h) * V + j;
            const double dt = in.at("step")[value];
            for (Size i = 0; i < K; ++i) {
              const double k = in.at("k")[key(n.row, t, h) + i];
              const double a =
                  gate == SelectiveGate::longhorn
                      ? 1 - k * k * dt
                      : (gate == SelectiveGate::twice ? 2 : 1) * std::exp(dt * in.at("A")[(h * K + i) * V + j]) -
                            (gate == SelectiveGate::twice ? 1 : 0);
              double& S = out["S"][(seq_head * K + i) * V + j];
              S = a * S + k * in.at("u")[value];
              out["o"][value] += scale * in.at("q")[key(n.row, t, h) + i] * S;
            }
          }
    return out;
  }
  template <class X>
  SelectiveProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list) const {
    SelectiveProblem<X> p;
    p.sequences = list, p.gate = gate, p.heads = H, p.key_heads = G, p.key_dim = K, p.value_dim = V;
    p.scale = static_cast<X>(scale), p.q = x.template view<4>("q"), p.k = x.template view<4>("k");
    p.u = x.template view<4>("u"), p.step = x.template view<4>("step"), p.A = x.template view<3>("A");
    p.state = x.pointer("S"), p.o = x.template view<4>("o");
    return p;
  }
  template <class X>
  std::size_t bytes(Size longest, Form form, int chunk, bool backward) const {
    return elementwise::workspace_bytes<X>(K, V, longest, form, chunk, backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form form, int chunk, const Simd<X>& s,
                 Workspace w) const {
    return elementwise::forward(problem(x, list), form, chunk, s, w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form form, int chunk,
                  const Simd<X>& s, Workspace w) const {
    SelectiveGradient<X> d;
    d.d_o = given.template view<4>("o"), d.d_final = given.pointer("S"), d.d_q = to.template view<4>("q");
    d.d_k = to.template view<4>("k"), d.d_u = to.template view<4>("u"), d.d_step = to.template view<4>("step");
    d.d_A = to.template view<3>("A"), d.d_initial = to.pointer("S");
    return elementwise::backward(problem(x, list), d, form, chunk, s, w);
  }
};

struct Rotating : Matrix {
  Gates gates = Gates::mild;

  std::string name() const { return "rotating" + shape(); }
  std::vector<Spec> specs() const {
    const std::vector<Size> gate =
        gates == Gates::constant ? std::vector<Size>{1, 1, H, 1} : std::vector<Size>{B, T, H, K};
    std::vector<Spec> s = {{"q", Role::input, {B, T, G, K}},   {"k", Role::input, {B, T, G, K}},
                           {"v", Role::input, {B, T, H, V}},   {"o", Role::output, {B, T, H, V}},
                           {"S", Role::state, {N(), H, K, V}}, {"S_im", Role::state, {N(), H, K, V}}};
    if (gates == Gates::none) return s;
    s.push_back({"g", Role::input, gate, -0.3, 0.2});
    s.push_back({"theta", Role::input, gate, 0, 2});
    return s;
  }
  Values draw_values() const {
    Values v = draw(specs(), seed);
    if (gates == Gates::strong)
      for (std::size_t i = 0; i < v["g"].size(); ++i) v["g"][i] = strong(static_cast<Size>(i));
    return v;
  }
  Values reference(const Values& in) const {
    Values out = {{"o", Doubles(B * T * H * V)}, {"S", in.at("S")}, {"S_im", in.at("S_im")}};
    Size seq_head = 0;
    for (const Sequence& n : sequences())
      for (int h = 0; h < H; ++h, ++seq_head)
        for (Size t = n.begin; t < n.end; ++t)
          for (Size i = 0; i < K; ++i) {
            Complex a = 1;
            const Size gate = gates == Gates::constant ? h : token(n.row, t, h) * K + i;
            if (gates != Gates::none) a = std::exp(Complex(in.at("g")[gate], in.at("theta")[gate]));
            for (Size j = 0; j < V; ++j) {
              const Size at = (seq_head * K + i) * V + j, value = token(n.row, t, h) * V + j;
              const Complex S =
                  a * Complex(out["S"][at], out["S_im"][at]) + in.at("k")[key(n.row, t, h) + i] * in.at("v")[value];
              out["S"][at] = S.real(), out["S_im"][at] = S.imag();
              out["o"][value] += scale * in.at("q")[key(n.row, t, h) + i] * S.real();
            }
          }
    return out;
  }
  template <class X>
  RotatingProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list) const {
    RotatingProblem<X> p;
    p.sequences = list, p.heads = H, p.key_heads = G, p.key_dim = K, p.value_dim = V;
    p.scale = static_cast<X>(scale), p.q = x.template view<4>("q"), p.k = x.template view<4>("k");
    p.v = x.template view<4>("v"), p.g = x.template view<4>("g"), p.theta = x.template view<4>("theta");
    p.state = x.pointer("S"), p.state_im = x.pointer("S_im"), p.o = x.template view<4>("o");
    return p;
  }
  template <class X>
  std::size_t bytes(Size longest, Form form, int chunk, bool backward) const {
    return elementwise::workspace_bytes<X>(K, V, longest, form, chunk, backward);
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form form, int chunk, const Simd<X>& s,
                 Workspace w) const {
    return elementwise::forward(problem(x, list), form, chunk, s, w);
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form form, int chunk,
                  const Simd<X>& s, Workspace w) const {
    RotatingGradient<X> d;
    d.d_o = given.template view<4>("o"), d.d_final = given.pointer("S"), d.d_final_im = given.pointer("S_im");
    d.d_q = to.template view<4>("q"), d.d_k = to.template view<4>("k"), d.d_v = to.template view<4>("v");
    d.d_g = to.template view<4>("g"), d.d_theta = to.template view<4>("theta");
    d.d_initial = to.pointer("S"), d.d_initial_im = to.pointer("S_im");
    return elementwise::backward(problem(x, list), d, form, chunk, s, w);
  }
};

const std::vector<FormCall> forms = {{Form::recurrent, 0}, {Form::scan, 0},      {Form::scan, 1}, {Form::scan, 3},
                                     {Form::step, 2},      {Form::recurrent, 1}, {Form::best, 0}};

TEST(Elementwise, Vector) {
  for (const bool complex : {false, true})
    for (const Gates gates : {Gates::none, Gates::mild, Gates::constant}) {
      if (complex && gates == Gates::none) continue;
      Vector f;
      f.complex = complex, f.gates = gates;
      for (const Size T : {0, 1, 2, 7, 13}) f.T = T, check_family(f, forms);
      f.B = 2, f.D = 1, check_family(f, forms);
      f.B = 1, f.D = 17, f.T = 9, f.packed = {0, 3, 3, 4, 9}, check_family(f, forms);
      check_steps(f);
      check_alone(f, forms);
    }
}

TEST(Elementwise, Selective) {
  for (const SelectiveGate gate : {SelectiveGate::exponential, SelectiveGate::twice, SelectiveGate::longhorn}) {
    Selective f;
    f.gate = gate;
    for (const Size T : {0, 1, 2, 7}) f.T = T, check_family(f, forms);
    f.B = 2, f.H = 4, f.G = 2, f.K = 1, f.V = 1, check_family(f, forms);
    f.B = 1, f.H = 1, f.G = 1, f.K = 5, f.V = 9, f.T = 8, f.packed = {0, 3, 3, 4, 8}, check_family(f, forms);
    check_steps(f);
    check_alone(f, forms);
  }
}

// Several panels of columns and a part of one, in every instruction set (see check_family); float too, which the
// harness runs in the best one alone.
TEST(Elementwise, SelectiveInPanels) {
  for (const SelectiveGate gate : {SelectiveGate::exponential, SelectiveGate::twice, SelectiveGate::longhorn}) {
    Selective f;
    f.gate = gate, f.H = f.G = 1, f.K = 4, f.V = 45, f.T = 37;
    check_family(f, forms, false);
    check_steps(f);
    const Values in = f.draw_values(), want = f.reference(in), d = draw_gradients(f, 77);
    const Values want_d = run_backward<double>(f, in, d, {Form::recurrent, 0});
    for (const std::string& target : ttr::simd_targets()) {
      Call call{Form::recurrent, 0};
      call.target = target;
      expect_near(run_forward<float>(f, in, call), want, 2e-5, target);
      expect_near(run_backward<float>(f, in, d, call), want_d, 1e-4, target);
    }
  }
}

// Outputs where inputs may hold NaN, which run_forward would find changed.
template <class X>
Values outputs_of(const Selective& f, const Values& in, const std::string& target) {
  Bound<X> x(f.specs(), &in, false);
  Scratch<X> scratch(f.bytes<X>(f.T, Form::recurrent, 0, false));
  EXPECT_EQ(f.forward<X>(x, f.sequences(), Form::recurrent, 0, ttr::simd<X>(target), scratch.workspace()),
            Status::ok);
  return {{"o", x.held["o"].get()}};
}

// Gates that are at most 1 take a shorter way. A channel that needs the long one must not change the bits of others,
// and what no gate should see comes out as exp has it.
TEST(Elementwise, SelectiveGatesOfAnySize) {
  Selective f;
  f.H = f.G = 1, f.K = 2, f.V = 40, f.T = 5;
  const Values in = f.draw_values();
  Values odd = in;
  const auto nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (Size t = 0; t < f.T; ++t) odd["step"][static_cast<std::size_t>(t * f.V + 3)] = -0.5;  // grows
  odd["A"][5] = 2, odd["A"][static_cast<std::size_t>(f.V) + 5] = 1.5;                        // grows
  odd["step"][static_cast<std::size_t>(2 * f.V + 7)] = nan;
  odd["A"][9] = nan;
  odd["step"][static_cast<std::size_t>(2 * f.V + 11)] = inf;   // closes
  odd["step"][static_cast<std::size_t>(2 * f.V + 13)] = -inf;  // overflows
  const Values want = f.reference(odd);
  for (const std::string& target : ttr::simd_targets()) {
    const auto compare = [&](const Values& plain, const Values& got, double tolerance) {
      for (Size i = 0; i < f.T * f.V; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const Size channel = i % f.V;
        const double o = got.at("o")[at], w = want.at("o")[at];
        if (channel != 3 && channel != 5 && channel != 7 && channel != 9 && channel != 11 && channel != 13) {
          EXPECT_EQ(o, plain.at("o")[at]) << target << " token " << i / f.V << " channel " << channel;
        } else if (std::isnan(w)) {
          EXPECT_TRUE(std::isnan(o)) << target << " token " << i / f.V << " channel " << channel;
        } else if (std::isinf(w)) {
          EXPECT_FALSE(std::isfinite(o)) << target << " token " << i / f.V << " channel " << channel;
        } else {
          EXPECT_NEAR(o, w, tolerance * std::max(1.0, std::abs(w))) << target << " channel " << channel;
        }
      }
    };
    compare(outputs_of<double>(f, in, target), outputs_of<double>(f, odd, target), 1e-12);
    compare(outputs_of<float>(f, in, target), outputs_of<float>(f, odd, target), 1e-5);
  }
}

TEST(Elementwise, Rotating) {
  for (const Gates gates : {Gates::none, Gates::mild, Gates::constant}) {
    Rotating f;
    f.gates = gates;
    for (const Size T : {0, 1, 2, 7}) f.T = T, check_family(f, forms);
    f.B = 2, f.H = 4, f.G = 2, f.K = 1, f.V = 1, check_family(f, forms);
    f.B = 1, f.H = 1, f.G = 1, f.K = 5, f.V = 9, f.T = 8, f.packed = {0, 3, 3, 4, 8}, check_family(f, forms);
    check_steps(f);
    check_alone(f, forms);
  }
}

// Angles that the vector functions do not reduce, and what is no number, are those of the library; their neighbours keep
// their bits.
TEST(Elementwise, AnglesOfAnySize) {
  Vector f;
  f.complex = true, f.D = 19, f.T = 3;
  const Values in = f.draw_values();
  Values odd = in;
  odd["theta"][4] = 1e6, odd["theta"][20] = -3e9, odd["theta"][45] = std::numeric_limits<double>::quiet_NaN();
  const Values want = f.reference(odd);
  for (const std::string& target : ttr::simd_targets()) {
    const auto outputs = [&](const Values& values) {
      Bound<double> x(f.specs(), &values, false);
      Scratch<double> scratch(f.bytes<double>(f.T, Form::recurrent, 0, false));
      EXPECT_EQ(
          f.forward<double>(x, f.sequences(), Form::recurrent, 0, ttr::simd<double>(target), scratch.workspace()),
          Status::ok);
      return x.held["o"].get();
    };
    const Doubles got = outputs(odd), plain = outputs(in);
    for (Size i = 0; i < f.T * f.D; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const Size channel = i % f.D;
      if (channel != 4 && channel != 1 && channel != 7) EXPECT_EQ(got[at], plain[at]) << target << " " << i;
      else if (std::isnan(want.at("o")[at])) EXPECT_TRUE(std::isnan(got[at])) << target << " " << i;
      else EXPECT_NEAR(got[at], want.at("o")[at], 1e-12) << target << " " << i;
    }
  }
}

TEST(Elementwise, StrongGates) {
  Vector v;
  v.gates = Gates::strong, v.T = 11;
  check_family(v, forms);
  v.complex = true;
  check_family(v, forms);
  Rotating r;
  r.gates = Gates::strong;
  check_family(r, forms);
  Selective s;
  s.extreme = true;
  check_family(s, forms, false, 1e-4);
}

TEST(Elementwise, LongSequencesInEveryForm) {
  Vector v;
  v.complex = true, v.T = 700, v.D = 3;
  check_family(v, {{Form::recurrent, 0}, {Form::scan, 0}, {Form::scan, 9}}, false);
  v.gates = Gates::constant;  // a power of every length
  check_family(v, {{Form::recurrent, 0}, {Form::scan, 0}, {Form::scan, 37}}, false);
  Rotating r;  // segments of more and of less than a block of products
  r.T = 150, r.H = 2, r.G = 1, r.K = 4, r.V = 20;
  check_family(r, {{Form::recurrent, 0}, {Form::scan, 0}, {Form::scan, 50}, {Form::scan, 9}}, false);
  Selective s;
  s.T = 300, s.H = s.G = 1;
  check_family(s, {{Form::recurrent, 0}, {Form::scan, 0}, {Form::scan, 64}, {Form::scan, 7}}, false, 1e-4);
}

TEST(Elementwise, ANotANumberStaysInItsSequence) {
  Vector f;
  f.B = 2;
  const Values in = f.draw_values();
  Values bad = in;
  bad["x"][2] = std::numeric_limits<double>::quiet_NaN(), bad["g"][3] = std::numeric_limits<double>::infinity();
  for (const Form form : {Form::recurrent, Form::scan}) {
    Bound<double> x(f.specs(), &bad, false);
    Scratch<double> scratch(f.bytes<double>(f.T, form, 0, false));
    ASSERT_EQ(f.forward<double>(x, f.sequences(), form, 0, ttr::simd<double>(""), scratch.workspace()), Status::ok);
    const Doubles got = x.held["o"].get(), want = run_forward<double>(f, in, {form, 0})["o"];
    EXPECT_TRUE(std::equal(got.begin() + f.T * f.D, got.end(), want.begin() + f.T * f.D));
    EXPECT_TRUE(std::isnan(got[2]));
  }
}

TEST(Elementwise, WhatIsWrongIsSaid) {
  Vector f;
  f.complex = true;
  const Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false);
  const auto list = f.sequences();
  const Simd<double>& s = ttr::simd<double>("");
  Scratch<double> scratch(f.bytes<double>(f.T, Form::scan, 0, false));
  const Workspace w = scratch.workspace();
  auto p = f.problem(x, list);
  EXPECT_EQ(elementwise::forward(p, Form::chunk, 0, s, w), Status::not_supported);
  EXPECT_EQ(elementwise::forward(p, Form::parallel, 0, s, w), Status::not_supported);
  EXPECT_EQ(elementwise::forward(p, Form::scan, 0, s, Workspace{w.data, 64}), Status::small_workspace);
  EXPECT_EQ(elementwise::forward(p, Form::scan, 0, s, Workspace{}), Status::small_workspace);
  auto q = p;
  q.state_im = nullptr;
  EXPECT_EQ(elementwise::forward(q, Form::scan, 0, s, w), Status::missing_input);
  q = p, q.x = {};
  EXPECT_EQ(elementwise::forward(q, Form::scan, 0, s, w), Status::missing_input);
  q = p, q.dim = 0;
  EXPECT_EQ(elementwise::forward(q, Form::scan, 0, s, w), Status::bad_shape);
  Selective g;
  const Values values = g.draw_values();
  Bound<double> y(g.specs(), &values, false);
  Scratch<double> more(g.bytes<double>(g.T, Form::recurrent, 0, false));
  auto m = g.problem(y, list);
  m.A = {};
  EXPECT_EQ(elementwise::forward(m, Form::recurrent, 0, s, more.workspace()), Status::missing_input);
  m = g.problem(y, list), m.heads = 3, m.key_heads = 2;
  EXPECT_EQ(elementwise::forward(m, Form::recurrent, 0, s, more.workspace()), Status::bad_shape);
}

}  // namespace
