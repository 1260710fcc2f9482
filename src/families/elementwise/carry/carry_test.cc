// The running quantities against literal loops in long double, and against what they are for.
#include "families/elementwise/carry/carry.h"

#include <gtest/gtest.h>

#include <numbers>

#include "families_harness.h"

namespace {

using namespace ttr_families_test;
using namespace ttr::families;

constexpr long double turn = 2 * std::numbers::pi_v<long double>;

struct Carried : FamilyBase {
  Carry kind = Carry::delay;
  int H = 2, D = 3;
  int fresh = 0;        // log_share: channels that have seen nothing: 0 none, 1 every second, 2 all
  double spread = 1.5;  // size of x

  Size W() const { return carry::width(kind, D); }
  bool is_fresh(Size i) const { return fresh == 2 || (fresh == 1 && i % 2 == 0); }

  std::string name() const {
    return "carry" + std::to_string(static_cast<int>(kind)) + "-T" + std::to_string(T) + "-H" + std::to_string(H) +
           "-D" + std::to_string(D) + "-fresh" + std::to_string(fresh);
  }
  std::vector<Spec> specs() const {
    if (kind == Carry::position) return {{"y", Role::output, {B, T, 1, 1}}, {"state", Role::state, {N(), 1}}};
    return {{"x", Role::input, {B, T, H, D}, 0, spread},
            {"y", Role::output, {B, T, H, W()}},
            {"state", Role::state, {N(), H, W()}}};
  }
  Values draw_values() const {
    Values v = draw(specs(), seed);
    Doubles& s = v["state"];
    for (std::size_t j = 0; j < s.size(); ++j) {
      const Size c = static_cast<Size>(j) % W(), i = c % D;
      if (kind == Carry::position) s[j] = 5 * static_cast<double>(j);
      if (kind == Carry::phase) s[j] = std::abs(s[j]);
      if (kind == Carry::log_share && c >= D) s[j] = is_fresh(i) ? 0 : 1;
      if (kind == Carry::log_share && c < D && is_fresh(i)) s[j] = 0;
    }
    return v;
  }
  Values reference(const Values& in) const {
    Values out = {{"y", Doubles(B * T * (kind == Carry::position ? 1 : H * W()))}, {"state", in.at("state")}};
    Size index = 0;
    for (const Sequence& n : sequences()) {
      if (kind == Carry::position) {
        double& count = out["state"][index++];
        for (Size t = n.begin; t < n.end; ++t) out["y"][n.row * T + t] = count - static_cast<double>(n.begin);
        count += static_cast<double>(n.end - n.begin);
        continue;
      }
      for (int h = 0; h < H; ++h, ++index)
        for (Size i = 0; i < D; ++i) {
          double& state = out["state"][index * W() + i];
          long double now = state;
          bool seen = !is_fresh(i);
          for (Size t = n.begin; t < n.end; ++t) {
            const Size token = (n.row * T + t) * H + h;
            const long double x = in.at("x")[token * D + i], before = now;
            double* const y = &out["y"][token * W() + i];
            if (kind == Carry::delay) *y = static_cast<double>(now), now = x;
            if (kind == Carry::phase) {
              now = std::fmod(now + x, turn);
              if (now < 0) now += turn;
              *y = static_cast<double>(now);
            }
            if (kind == Carry::log_share) {
              now = seen ? std::log(std::exp(now) + std::exp(x)) : x;
              y[0] = static_cast<double>(std::exp(x - now));
              y[D] = seen ? static_cast<double>(before - now) : 0;
              seen = true;
              out["state"][index * W() + D + i] = 1;
            }
          }
          state = static_cast<double>(now);
        }
    }
    return out;
  }
  template <class X>
  CarryProblem<X> problem(Bound<X>& x, const std::vector<Sequence>& list) const {
    return {list, kind, H, D, x.template view<4>("x"), x.pointer("state"), x.template view<4>("y")};
  }
  template <class X>
  CarryGradient<X> gradient(Bound<X>& given, Bound<X>& to) const {
    return {given.template view<4>("y"), given.pointer("state"), to.template view<4>("x"), to.pointer("state")};
  }
  template <class X>
  std::size_t bytes(Size longest, Form, int, bool backward) const {
    return backward ? carry::workspace_bytes<X>(kind, D, longest) : 0;
  }
  template <class X>
  Status forward(Bound<X>& x, const std::vector<Sequence>& list, Form, int, const Simd<X>&, Workspace) const {
    return carry::forward(problem(x, list));
  }
  template <class X>
  Status backward(Bound<X>& x, Bound<X>& given, Bound<X>& to, const std::vector<Sequence>& list, Form, int,
                  const Simd<X>&, Workspace w) const {
    return carry::backward(problem(x, list), gradient(given, to), w);
  }
};

const std::vector<FormCall> one_form = {{Form::recurrent, 0}};

void check_all(Carried f) {
  for (const Size T : {0, 1, 2, 7, 12}) f.T = T, check_family(f, one_form);
  f.T = 5;
  for (int D = 1; D <= 9; ++D) f.D = D, f.H = 1 + D % 3, f.B = 1 + D % 2, check_family(f, one_form);
  f.B = 1, f.H = 2, f.D = 4, f.T = 12, f.packed = {0, 3, 3, 4, 12};
  check_family(f, one_form);
  check_steps(f);
  check_alone(f, one_form);
  f.D = 37, f.T = 70, f.packed = {0, 1, 40, 70}, check_family(f, one_form, false);
  check_steps(f);
  check_alone(f, one_form);
  f.T = 3, f.packed = {}, check_family(f, one_form);  // more channels than go together, by differences as well
}

TEST(Carry, Delay) { check_all({}); }

TEST(Carry, Phase) {
  Carried f;
  f.kind = Carry::phase, check_all(f);
  f.spread = 40, check_all(f);
}

TEST(Carry, LogShare) {
  Carried f;
  f.kind = Carry::log_share;
  for (const int fresh : {0, 1, 2}) f.fresh = fresh, check_all(f);
}

// The sign of a product, token by token; a split call goes on where it ended, and nothing has a gradient.
TEST(Carry, Sign) {
  const double x[8] = {0.5, -1, -0.1, 0, -0.0, -2, 3, -1e-300}, want[8] = {1, -1, 1, 1, 1, -1, -1, 1};
  for (const Size first : {8, 0, 1, 2, 5, 7}) {
    double y[8], state = 0;
    for (const Sequence& part : {Sequence{0, 0, first}, Sequence{0, first, 8}}) {
      CarryProblem<double> p;
      p.sequences = {&part, 1}, p.kind = Carry::sign, p.heads = 1, p.dim = 1, p.state = &state;
      p.x = {x, {1, 8, 1, 1}, {8, 1, 1, 1}}, p.y = {y, {1, 8, 1, 1}, {8, 1, 1, 1}};
      ASSERT_EQ(carry::forward(p), Status::ok);
    }
    for (int t = 0; t < 8; ++t) EXPECT_EQ(y[t], want[t]) << t << " split at " << first;
    EXPECT_EQ(state, 0);
  }
  double d_x[8] = {}, d_y[8] = {1, 2, 3, 4, 5, 6, 7, 8}, state = 1, d_final = 3, d_initial = 0;
  const Sequence all{0, 0, 8};
  CarryProblem<double> p;
  p.sequences = {&all, 1}, p.kind = Carry::sign, p.heads = 1, p.dim = 1, p.state = &state;
  p.x = {x, {1, 8, 1, 1}, {8, 1, 1, 1}};
  CarryGradient<double> d;
  d.d_y = {d_y, {1, 8, 1, 1}, {8, 1, 1, 1}}, d.d_x = {d_x, {1, 8, 1, 1}, {8, 1, 1, 1}};
  d.d_final = &d_final, d.d_initial = &d_initial;
  ASSERT_EQ(carry::backward(p, d, {}), Status::ok);
  for (const double each : d_x) EXPECT_EQ(each, 0);
  EXPECT_EQ(d_initial, 0);
}

TEST(Carry, Position) {
  Carried f;
  f.kind = Carry::position, f.H = f.D = 1;
  for (const Size T : {0, 1, 9}) f.T = T, f.B = 2, check_family(f, one_form);
  f.T = 12, f.B = 1, f.packed = {0, 3, 3, 4, 12};
  check_family(f, one_form), check_steps(f), check_alone(f, one_form);
  // Index in the tensor + y = position in the sequence.
  Values in = f.draw_values();
  std::fill(in["state"].begin(), in["state"].end(), 0.0);
  EXPECT_EQ(run_forward<float>(f, in, {Form::recurrent, 0}).at("y"),
            (Doubles{0, 0, 0, -3, -4, -4, -4, -4, -4, -4, -4, -4}));
}

TEST(Carry, DelayKeepsEveryBit) {
  Carried f;
  f.T = 4, f.H = f.D = 1;
  const Values in = {{"x", {1e-310, -0.0, 3, 1e-320}}, {"state", {5e-324}}};
  const Values out = run_forward<double>(f, in, {Form::recurrent, 0});
  EXPECT_EQ(out.at("y"), (Doubles{5e-324, 1e-310, -0.0, 3}));
  EXPECT_EQ(out.at("state"), Doubles{1e-320});
}

template <class X>
void check_phase_range(double tolerance) {
  std::vector<X> x;
  const X pi = std::numbers::pi_v<X>, eps = std::numeric_limits<X>::epsilon();
  for (const X big :
       {X(0), eps, X(1e-30), pi, 2 * pi, 2 * pi * (1 - eps), 2 * pi * (1 + eps), X(1e4), X(3e6), X(9e6)})
    for (const X sign : {X(1), X(-1), X(-1), X(1)}) x.push_back(sign * big);
  const Size T = static_cast<Size>(x.size());
  std::vector<X> y(x.size());
  const Sequence all{0, 0, T};
  for (const X start : {X(0), X(1), X(-1e-20), X(6.28), X(-3), X(100)}) {
    X state = start;
    long double sum = start;
    CarryProblem<X> p{{&all, 1},
                      Carry::phase,
                      1,
                      1,
                      ttr::view<const X>(x.data(), 1, T, 1, 1),
                      &state,
                      ttr::view(y.data(), 1, T, 1, 1)};
    ASSERT_EQ(carry::forward(p), Status::ok);
    for (Size t = 0; t < T; ++t) {
      sum += x[t];
      EXPECT_GE(y[t], 0);
      EXPECT_LT(static_cast<long double>(y[t]), turn);
      EXPECT_NEAR(static_cast<double>(std::remainder(sum - y[t], turn)), 0, tolerance) << t;
    }
    EXPECT_EQ(state, y.back());
    for (const X far : {X(1e15), X(-1e30), std::numeric_limits<X>::max()}) {
      const Sequence one{0, 0, 1};
      p.sequences = {&one, 1}, p.x = ttr::view(&far, 1, 1, 1, 1);
      ASSERT_EQ(carry::forward(p), Status::ok);
      EXPECT_TRUE(state >= 0 && static_cast<long double>(state) < turn) << far << " " << state;
    }
  }
}

TEST(Carry, PhaseStaysInRange) {
  check_phase_range<double>(2e-9);  // x = 9e6 has digits of 2e-9
  check_phase_range<float>(5e-6);
}

// A float sum without reduction would be off by a whole radian. Roundings average out if the angles differ; with
// one angle they need not, and 2.4e-7 per token is the bound.
TEST(Carry, PhaseIsAccurateAfterManyTokens) {
  const Size T = 100000;
  std::vector<float> x(T), y(T);
  const Sequence all{0, 0, T};
  for (const bool constant : {false, true}) {
    std::mt19937 rng(3);
    std::uniform_real_distribution<float> angle(0, 3);
    for (float& by : x) by = constant ? 2.5f : angle(rng);
    float state = 0;
    CarryProblem<float> p{{&all, 1},
                          Carry::phase,
                          1,
                          1,
                          ttr::view<const float>(x.data(), 1, T, 1, 1),
                          &state,
                          ttr::view(y.data(), 1, T, 1, 1)};
    ASSERT_EQ(carry::forward(p), Status::ok);
    long double sum = 0;
    double error = 0;
    for (Size t = 0; t < T; ++t)
      sum += x[t], error = std::max(error, std::abs(static_cast<double>(std::remainder(sum - y[t], turn))));
    EXPECT_LT(error, constant ? 2.4e-7 * T : 2e-4);
  }
}

// Shares and decays from sums over all tokens, with weights whose logs differ by 1e4.
template <class X>
void check_spreads(double tolerance) {
  Carried f;
  f.kind = Carry::log_share, f.T = 60, f.H = 1, f.D = 4, f.fresh = 2;
  Values in = f.draw_values();
  for (std::size_t j = 0; j < in["x"].size(); ++j) {
    double& x = in["x"][j];
    const std::size_t t = j / 4, c = j % 4;
    if (c == 0) x = static_cast<float>(1e4 * x);
    if (c == 1) x = t % 7 == 3 ? 1e4 : -1e4;
    if (c == 2) x = static_cast<float>(30 * x);
    if (c == 3) x = static_cast<float>(-1e4 + x);
  }
  const Values d = draw_gradients(f, 5);
  const Values out = run_forward<X>(f, in, {Form::recurrent, 0});
  const Values got_d = run_backward<X>(f, in, d, {Form::recurrent, 0});
  for (Size c = 0; c < f.D; ++c) {
    std::vector<long double> z(f.T), p(f.T);
    for (Size t = 0; t < f.T; ++t) {
      long double top = -1e300L, sum = 0;
      for (Size s = 0; s <= t; ++s) top = std::max<long double>(top, in["x"][s * f.D + c]);
      for (Size s = 0; s <= t; ++s) sum += std::exp(in["x"][s * f.D + c] - top);
      z[t] = top + std::log(sum), p[t] = std::exp(in["x"][t * f.D + c] - z[t]);
      const double decay = t ? static_cast<double>(z[t - 1] - z[t]) : 0;
      EXPECT_NEAR(out.at("y")[t * f.W() + c], static_cast<double>(p[t]), tolerance) << t << " " << c;
      EXPECT_NEAR(out.at("y")[t * f.W() + f.D + c], decay, tolerance * (1 + std::abs(decay))) << t << " " << c;
    }
    EXPECT_NEAR(out.at("state")[c], static_cast<double>(z.back()),
                tolerance * std::abs(static_cast<double>(z.back())));
    long double dz = d.at("state")[c];
    for (Size t = f.T; t-- > 0;) {
      const long double a = d.at("y")[t * f.W() + c], b = d.at("y")[t * f.W() + f.D + c];
      const long double q = t ? std::exp(z[t - 1] - z[t]) : 0.0L;
      const long double dx = t ? p[t] * (a * q - b + dz) : dz;
      dz = t ? q * dz - p[t] * (a * q - b) : 0.0L;
      EXPECT_NEAR(got_d.at("x")[t * f.D + c], static_cast<double>(dx), 10 * tolerance) << t << " " << c;
    }
    EXPECT_EQ(got_d.at("state")[c], 0);
  }
}

// Weights for which z has no digits left after the point.
template <class X>
void check_largest() {
  for (const X x : {std::numeric_limits<X>::max(), std::numeric_limits<X>::lowest()}) {
    const X in[] = {x, -x, x, x};
    X y[8], state[2] = {0, 0};
    const Sequence all{0, 0, 4};
    CarryProblem<X> p{{&all, 1}, Carry::log_share, 1, 1, ttr::view(in, 1, 4, 1, 1), state, ttr::view(y, 1, 4, 1, 2)};
    ASSERT_EQ(carry::forward(p), Status::ok);
    EXPECT_EQ(y[0], 1);
    EXPECT_EQ(y[1], 0);
    EXPECT_EQ(y[2], x > 0 ? 0 : 1);
    EXPECT_EQ(y[4], x > 0 ? X(0.5) : X(0));
    EXPECT_EQ(state[0], std::abs(x));
    EXPECT_EQ(state[1], 1);
  }
}

TEST(Carry, LogShareOfAnySpread) {
  check_spreads<double>(1e-11);  // exponents of 1e4 have digits of 2e-12
  check_spreads<float>(2e-6);
  check_largest<float>();
  check_largest<double>();
}

TEST(Carry, AnythingButZeroMeansSeen) {
  Carried f;
  f.kind = Carry::log_share;
  const Values in = f.draw_values(), d = draw_gradients(f, 9);
  const Values want = run_forward<float>(f, in, {}), want_d = run_backward<float>(f, in, d, {});
  for (const double seen : {-0.7, 1e-30, 3.0, 0.999}) {
    Values other = in;
    for (std::size_t j = 0; j < in.at("state").size(); ++j)
      if (static_cast<Size>(j) % f.W() >= f.D) other["state"][j] = static_cast<float>(seen);
    EXPECT_EQ(run_forward<float>(f, other, {}), want) << seen;
    EXPECT_EQ(run_backward<float>(f, other, d, {}), want_d) << seen;
  }
}

// Equal weights e^32 (the clamp of ABC's layer), one token per call: the share of token t is 1/t. A float z alone
// stands still once 1/t is below its last digit, 4e-6; with the remainder its grid is 1.2e-7.
TEST(Carry, LogShareDoesNotStandStill) {
  const float x = 32;
  float y[2], state[2] = {0, 0};
  const Sequence one{0, 0, 1};
  CarryProblem<float> p{{&one, 1}, Carry::log_share,        1, 1, ttr::view(&x, 1, 1, 1, 1),
                        state,     ttr::view(y, 1, 1, 1, 2)};
  double error = 0;
  for (int t = 1; t <= 1000000; ++t) {
    ASSERT_EQ(carry::forward(p), Status::ok);
    error = std::max(error, std::abs(y[0] * t - 1.0));
  }
  EXPECT_LT(error, 1e-3);
}

TEST(Carry, TokensWithoutWeight) {
  Carried f;
  f.kind = Carry::log_share, f.T = 6, f.H = f.D = 1, f.fresh = 2;
  const double none = -std::numeric_limits<double>::infinity();
  const Values in = {{"x", {none, none, 0.5, none, 1, none}}, {"state", {0, 0}}};
  Values without = {{"x", {0.5, 1}}, {"state", {0, 0}}}, d = draw_gradients(f, 4), d_without = d;
  d_without["y"] = {d["y"][4], d["y"][5], d["y"][8], d["y"][9]};
  const Values out = run_forward<double>(f, in, {}), d_in = run_backward<double>(f, in, d, {});
  f.T = 2;
  const Values want = run_forward<double>(f, without, {}), d_want = run_backward<double>(f, without, d_without, {});
  const Doubles &y = want.at("y"), &dx = d_want.at("x");
  EXPECT_EQ(out.at("y"), (Doubles{0, 0, 0, 0, y[0], y[1], 0, 0, y[2], y[3], 0, 0}));
  EXPECT_EQ(out.at("state"), want.at("state"));
  EXPECT_EQ(d_in.at("x"), (Doubles{0, 0, dx[0], 0, dx[1], 0}));
}

// ABC: the memory is the mean of all values under the weights e^x, and an initial memory is not decayed by the first
// token if nothing was seen.
TEST(Carry, LogShareIsTheGateOfAbc) {
  Carried f;
  f.kind = Carry::log_share, f.H = f.D = 1, f.T = 30, f.fresh = 2;
  const Values in = f.draw_values(), out = run_forward<double>(f, in, {});
  double memory = 0.7, above = 0, below = 0;
  for (Size t = 0; t < f.T; ++t) {
    const double value = std::sin(static_cast<double>(t)), weight = std::exp(in.at("x")[t]);
    above += weight * value, below += weight;
    memory = std::exp(out.at("y")[2 * t + 1]) * memory + out.at("y")[2 * t] * value;
    EXPECT_NEAR(memory, above / below + 0.7 * std::exp(in.at("x")[0]) / below, 1e-13);
  }
}

bool same_bits(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

TEST(Carry, NanStaysInItsSequenceAndChannel) {
  for (const Carry kind : {Carry::delay, Carry::phase, Carry::log_share})
    for (const int fresh : {0, 2}) {
      Carried f;
      f.kind = kind, f.fresh = fresh, f.T = 9, f.packed = {0, 3, 7, 9};
      const Values in = f.draw_values(), d = draw_gradients(f, 6);
      Values bad = in, bad_d = d;
      const double nan = std::numeric_limits<double>::quiet_NaN();
      const Size token = 4 * f.H + 1, broken = 1;  // of the second sequence, head 1, channel 1
      bad["x"][token * f.D + broken] = nan;
      bad_d["y"][token * f.W() + broken] = nan;
      const Values want = run_forward<double>(f, in, {}), want_d = run_backward<double>(f, in, d, {});
      Bound<double> x(f.specs(), &bad, true), given(f.specs(), &bad_d, true), to(f.specs(), nullptr, true);
      Scratch<double> scratch(f.bytes<double>(4, Form::recurrent, 0, true));
      ASSERT_EQ(carry::backward(f.problem(x, f.sequences()), f.gradient(given, to), scratch.workspace()), Status::ok);
      ASSERT_EQ(carry::forward(f.problem(x, f.sequences())), Status::ok);
      bool hit = false, hit_d = false;
      const auto compare = [&](Held<double>& got, const Doubles& expected, bool& changed) {
        const Doubles numbers = got.get();
        const Size width = got.extent.back();
        const bool tokens = got.extent.size() == 4;
        for (std::size_t j = 0; j < numbers.size(); ++j) {
          const Size at = static_cast<Size>(j), seq_head = at / width, c = at % width % f.D;
          const Size sequence = tokens ? (seq_head / f.H < 3 ? 0 : seq_head / f.H < 7 ? 1 : 2) : seq_head / f.H;
          if (sequence == 1 && seq_head % f.H == 1 && c == broken) changed |= std::isnan(numbers[j]);
          else EXPECT_TRUE(same_bits(numbers[j], expected[j])) << f.name() << " " << j;
        }
      };
      compare(x.held["y"], want.at("y"), hit), compare(x.held["state"], want.at("state"), hit);
      compare(to.held["x"], want_d.at("x"), hit_d), compare(to.held["state"], want_d.at("state"), hit_d);
      EXPECT_TRUE(hit && hit_d) << f.name();
    }
}

TEST(Carry, NanOfTheFirstTokenIsSeenAtOnce) {
  for (const Carry kind : {Carry::phase, Carry::log_share}) {
    Carried f;
    f.kind = kind, f.T = 2, f.H = f.D = 1, f.fresh = 2;
    const Values in = {{"x", {0, 0}}, {"state", Doubles(static_cast<std::size_t>(f.W()))}};
    const auto list = f.sequences();
    Bound<double> x(f.specs(), &in, false);
    x.held["x"].at(0) = std::numeric_limits<double>::quiet_NaN();
    ASSERT_EQ(carry::forward(f.problem(x, list)), Status::ok);
    for (Size t = 0; t < 2; ++t) EXPECT_TRUE(std::isnan(x.held["y"].at(t * f.W()))) << f.name();
  }
}

// Gradients are added to, and what is not given counts as zero.
TEST(Carry, GradientsAreAddedAndOptional) {
  for (const Carry kind : {Carry::delay, Carry::phase, Carry::log_share, Carry::position}) {
    Carried f;
    f.kind = kind, f.T = 5;
    if (kind == Carry::position) f.H = f.D = 1;
    const Values in = f.draw_values(), d = draw_gradients(f, 6), once = run_backward<double>(f, in, d, {});
    const auto list = f.sequences();
    Bound<double> x(f.specs(), &in, false), given(f.specs(), &d, false), twice(f.specs(), nullptr, false);
    Scratch<double> scratch(f.bytes<double>(f.T, Form::recurrent, 0, true));
    const Workspace w = scratch.workspace();
    auto whole = f.gradient(given, twice), outputs = whole, final = whole, nothing = whole;
    outputs.d_final = nullptr, final.d_y = {}, nothing.d_x = {}, nothing.d_initial = nullptr;
    for (const auto& g : {whole, outputs, final, nothing})
      ASSERT_EQ(carry::backward(f.problem(x, list), g, w), Status::ok);
    for (auto& [name, numbers] : once)
      for (std::size_t j = 0; j < numbers.size(); ++j)
        EXPECT_NEAR(twice.held[name].at(static_cast<Size>(j)), 2 * numbers[j], 1e-13) << f.name() << name;
    auto p = f.problem(x, list);
    const Doubles state = run_forward<double>(f, in, {}).at("state");
    p.y = {};
    ASSERT_EQ(carry::forward(p), Status::ok);
    EXPECT_EQ(x.held["state"].get(), state);
  }
}

TEST(Carry, WhatIsWrongIsSaid) {
  Carried f;
  f.kind = Carry::log_share;
  const Values in = f.draw_values();
  Bound<double> x(f.specs(), &in, false), to(f.specs(), nullptr, false);
  const auto list = f.sequences();
  Scratch<double> scratch(f.bytes<double>(f.T, Form::recurrent, 0, true));
  const Workspace w = scratch.workspace();
  const auto good = f.problem(x, list);
  const auto d = f.gradient(x, to);
  EXPECT_EQ(carry::backward(good, d, {w.data, carry::workspace_bytes<double>(f.kind, f.D, f.T) - 1}),
            Status::small_workspace);
  EXPECT_EQ(carry::backward(good, d, {}), Status::small_workspace);
  auto p = good;
  p.x = {};
  EXPECT_EQ(carry::forward(p), Status::missing_input);
  EXPECT_EQ(carry::backward(p, d, w), Status::missing_input);
  p = good, p.state = nullptr;
  EXPECT_EQ(carry::forward(p), Status::missing_input);
  p = good, p.dim = 0;
  EXPECT_EQ(carry::forward(p), Status::bad_shape);
  p = good, p.heads = 0;
  EXPECT_EQ(carry::forward(p), Status::bad_shape);
  const Sequence backwards{0, 3, 2};
  p = good, p.sequences = {&backwards, 1};
  EXPECT_EQ(carry::forward(p), Status::bad_shape);
  for (const Carry kind : {Carry::delay, Carry::phase, Carry::position})
    EXPECT_EQ(carry::workspace_bytes<float>(kind, 100, 1000), 0u);

  const Sequence two[] = {{0, 0, 2}, {0, 2, 4}};
  float y[] = {-1, -1, -1, -1}, state[] = {0, 16777214};
  CarryProblem<float> count{two, Carry::position, 1, 1, {}, state, ttr::view(y, 1, 4, 1, 1)};
  EXPECT_EQ(carry::forward(count), Status::ok);
  EXPECT_EQ(y[3], 16777212);
  EXPECT_EQ(state[1], 16777216);
  y[0] = -1;
  EXPECT_EQ(carry::forward(count), Status::state_full);
  EXPECT_EQ(y[0], -1);
  EXPECT_EQ(state[0], 2);
}

}  // namespace
