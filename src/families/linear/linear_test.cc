// decay, delta, gated and dplr: every form, layout and instruction set against the literal loop, forwards and
// backwards.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "families/common/choice.h"
#include "families/linear/reference.h"

namespace {

using namespace ttr_families_test;
namespace fam = ttr::families;

const std::vector<Terms> scalar_terms = {
    {.scalar = true, .name = "add"},
    {.scalar = true, .reads = true, .decayed = true, .name = "delta"},
    {.scalar = true, .reads = true, .name = "undecayed"},
};
const std::vector<Terms> channel_terms = {
    {.name = "gla"},
    {.gk = false, .beta = false, .name = "linear"},
    {.gv = true, .name = "gla-both"},
    {.gk = false, .gv = true, .beta = false, .name = "gla-value"},
    {.beta = false, .before = true, .bonus = true, .name = "rwkv6"},
    {.gv = true, .before = true, .bonus = true, .name = "rwkv6-value-gate"},
    {.gk = false, .before = true, .name = "read-before"},
    {.reads = true, .beta = false, .a = true, .b = true, .name = "dplr"},
    {.reads = true, .gk = false, .beta = false, .a = true, .b = true, .name = "iplr"},
    {.reads = true, .a = true, .b = true, .decayed = true, .name = "dplr-decayed"},
    {.reads = true, .decayed = true, .name = "kda"},
    {.reads = true, .beta = false, .a = true, .decayed = true, .name = "gdn2"},
    {.reads = true, .a = true, .name = "comba"},
    {.reads = true, .gk = false, .name = "deltanet"},
};
const std::vector<Terms> all_terms = [] {
  std::vector<Terms> all = scalar_terms;
  all.insert(all.end(), channel_terms.begin(), channel_terms.end());
  return all;
}();
const std::vector<FormCall> some_forms = {{Form::recurrent, 0}, {Form::chunk, 0}, {Form::chunk, 100},
                                          {Form::best, 0},      {Form::scan, 0},  {Form::scan, 32}};

Recurrence of(const Terms& terms, Size T, int H, int G, int K, int V) {
  Recurrence f;
  f.terms = terms, f.T = T, f.H = H, f.G = G, f.K = K, f.V = V;
  return f;
}

// A chunk sums what is written and what is erased, and the two cancel: wholly where there is but one direction, and the
// more the longer nothing fades; more so with an erase key of its own, where they are summed apart. With a gate for
// every channel a chunk has its gradient as a difference of larger sums.
template <class X>
Bounds bounds_of(const Recurrence& f) {
  const Terms& terms = f.terms;
  if (terms.scalar) return sizeof(X) == 8 ? Bounds{1e-12, 1e-12, 1e-12} : Bounds{2e-6, 4e-6, 4e-6};
  if (sizeof(X) == 8) return {1e-12, 1e-12, 2e-12};
  const double unit = f.K == 1 || (terms.reads && !terms.gk) ? 1e-5 : terms.b ? 4e-6 : 2e-6;
  return {unit, 2 * unit, 4 * unit};
}

void check_both(const Recurrence& f, const Literal& want, const Call& call) {
  check_call<double>(f, want, call, bounds_of<double>(f));
  check_call<float>(f, want, call, bounds_of<float>(f));
}
void check_forms(const Recurrence& f, const Literal& want, const std::vector<FormCall>& forms) {
  for (const auto& [form, chunk] : forms) {
    check_both(f, want, {form, chunk});
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(LinearReference, GradientsAreFiniteDifferences) {
  for (const Terms& terms : all_terms) {
    Recurrence f = of(terms, 5, 2, 1, 3, 2);
    f.packed = {0, 2, 5};
    const Literal want(f);
    for (const auto& [name, x] : differences(f, want.in, want.d))
      ASSERT_LE(distance(want.grad.at(name), x), 1e-7) << f.name() << " " << name;
  }
}

TEST(LinearFamilies, AllFormsAtOddSizes) {
  const std::pair<int, int> sizes[] = {{1, 1}, {3, 5}, {5, 3}, {8, 17}, {17, 8}, {60, 64}, {64, 60}};
  for (const Terms& terms : all_terms)
    for (const auto& [K, V] : sizes)
      for (const Size T : terms.scalar ? std::vector<Size>{0, 1, 2, 7, 31, 32, 33, 63, 130}
                                       : std::vector<Size>{0, 1, 2, 15, 16, 17, 33, 63, 130}) {
        if (K * V > 1000 && (T > (terms.scalar ? 63 : 33) || (!terms.scalar && K > V))) continue;
        const Recurrence f = of(terms, T, 1, 1, K, V);
        check_forms(f, Literal(f), every_form);
        if (HasFatalFailure()) return;
      }
}

TEST(LinearFamilies, AllInstructionSets) {
  for (const Terms& terms : all_terms)
    for (const Size T : {1, 9, 70}) {
      const Recurrence f = of(terms, T, 2, 1, 13, 21);
      const Literal want(f);
      for (const std::string& target : ttr::simd_targets())
        for (const auto& [form, chunk] : every_form) {
          check_both(f, want, {.form = form, .chunk = chunk, .target = target});
          if (HasFatalFailure()) return;
        }
    }
}

void check_layouts(Recurrence f, int chunk, std::vector<Size> packed) {
  for (const bool several : {false, true}) {
    if (several) f.B = 1, f.packed = packed;
    else f.B = 2, f.packed = {};
    const Literal want(f);
    for (const int layout : {in_order, with_gaps, head_major})
      for (const auto& [form, size] : std::vector<FormCall>{
               {Form::recurrent, 0}, {Form::chunk, chunk}, {Form::parallel, 0}, {Form::best, 0}, {Form::scan, 0}}) {
        check_both(f, want, {.form = form, .chunk = size, .layout = layout});
        if (testing::Test::HasFatalFailure()) return;
      }
  }
}

TEST(LinearFamilies, GroupsLayoutsGatesAndPacking) {
  for (Terms terms : scalar_terms)
    for (const bool gated : {false, true})
      for (const bool beta : {false, true})
        for (const Strength strength : {Strength::mild, Strength::constant}) {
          if (!gated && strength == Strength::constant) continue;
          terms.gk = gated, terms.beta = beta;
          Recurrence f = of(terms, 21, 6, 2, 5, 9);
          f.strength = strength;
          check_layouts(f, 8, {0, 1, 1, 12, 21});
          if (HasFatalFailure()) return;
        }
  for (const Terms& terms : channel_terms) {
    check_layouts(of(terms, 39, 6, 2, 5, 9), 18, {0, 1, 1, 20, 39});
    if (HasFatalFailure()) return;
  }
}

TEST(LinearFamilies, StrongGates) {
  for (const Terms& terms : all_terms)
    for (unsigned seed = 1; seed <= (terms.scalar ? 5 : 4); ++seed) {
      Recurrence f = of(terms, 70, 1, 1, 8, 12);
      f.strength = Strength::strong, f.seed = seed;
      check_forms(f, Literal(f), every_form);
      if (HasFatalFailure()) return;
    }
}

// Gates that add up to more than a chunk may hold, sooner or later: cuts at other tokens in other chunks, and pieces
// too short to be taken one by one.
TEST(LinearFamilies, GatesThatCutChunks) {
  for (const Terms& terms : channel_terms)
    for (const double strength : {0.4, 0.7, 1.2, 2.5}) {
      if (!terms.gk) continue;
      const Recurrence f = of(terms, 100, 2, 1, 9, 12);
      Values in = f.draw_values();
      for (std::size_t i = 0; i < in["gk"].size(); ++i)
        in["gk"][i] = static_cast<float>(-strength * (1 + std::sin(static_cast<double>(i * i % 1009))));
      check_forms(f, Literal(f, in), {{Form::chunk, 32}, {Form::chunk, 64}, {Form::parallel, 0}, {Form::scan, 0}});
    }
}

// Gates that end frames and pieces in every way: with whole groups or within them, for all channels, for one or for one
// token; and tokens that fit into no frame, now and then or always.
TEST(LinearFamilies, GatesOfEveryStrength) {
  struct Kind {
    const char* name;
    double rest, channel, token;  // of most gates, of one channel, of one token in 16; 0: as the rest
  };
  for (const Terms& terms : all_terms)
    for (const Kind& kind : {Kind{"-5", 5, 0, 0}, Kind{"mixed", 8, 0, 0}, Kind{"-13", 13, 0, 0},
                             Kind{"-20", 20, 0, 0}, Kind{"-70", 70, 0, 0}, Kind{"channel -5", 0.1, 5, 0},
                             Kind{"channel -30", 0.1, 30, 0}, Kind{"channel -60", 0.1, 60, 0},
                             Kind{"token -20", 0.1, 0, 20}, Kind{"token -80", 0.1, 0, 80}, Kind{"all", 8, 20, 60}}) {
      const std::string gate = terms.scalar ? "g" : "gk";
      const Recurrence f = of(terms, 75, 2, 1, 9, 12);
      if (!f.has(gate)) continue;
      SCOPED_TRACE(kind.name);
      Values in = f.draw_values();
      Doubles& g = in[gate];
      const std::size_t row = g.size() / 75, width = terms.scalar ? 1 : 9;
      for (std::size_t i = 0; i < g.size(); ++i) {
        const double part =
            0.5 + 0.5 * std::sin(static_cast<double>(i * i % 1009));  // of mixed gates and of the rest
        double strength = kind.rest == 8 ? kind.rest * part : kind.rest * (1 - 0.01 * part);
        if (kind.channel > 0 && i % width == width / 2) strength = kind.channel;
        if (kind.token > 0 && i / row % 16 == 9) strength = kind.token;
        g[i] = static_cast<float>(-strength);
      }
      check_forms(f, Literal(f, in), {{Form::chunk, 16}, {Form::chunk, 32}, {Form::parallel, 0}, {Form::best, 0}});
      if (HasFatalFailure()) return;
    }
}

// A gate with a zero inner stride is one gate for all channels.
TEST(LinearFamilies, ScalarGates) {
  for (const Terms& terms : channel_terms)
    for (const Strength strength : {Strength::scalar, Strength::strong_scalar}) {
      Recurrence f = of(terms, 70, 2, 1, 6, 7);
      f.B = 2, f.strength = strength;
      check_forms(f, Literal(f), every_form);
      if (HasFatalFailure()) return;
    }
}

// The gradient of such a gate, asked for with a zero inner stride, is the sum over the channels.
TEST(LinearFamilies, ZeroStridesSumGradients) {
  for (const Form form : {Form::recurrent, Form::chunk, Form::scan}) {
    const Size T = 30, K = 5;
    Recurrence f = of({.beta = false}, T, 1, 1, 5, 4);
    f.strength = Strength::scalar;
    const Literal want(f);
    Bound<double> x(f.specs(), &want.in, in_order), d(f.specs(), &want.d, in_order);
    Doubles sum(static_cast<std::size_t>(T), 0.0);
    fam::GatedGradient<double> grad;
    grad.d_o = d.view<4>("o"), grad.d_final = d.pointer("S");
    grad.d_gk = {sum.data(), {1, T, 1, K}, {T, 1, 1, 0}};
    Scratch<double> scratch(f.bytes<double>(T, form, 0, true));
    const std::vector<Sequence> list = f.sequences();
    ASSERT_EQ(fam::gated::backward(f.gated(x, list), grad, form, 0, ttr::simd<double>(""), scratch.workspace()),
              Status::ok);
    for (Size t = 0; t < T; ++t) {
      double expected = 0;
      for (Size j = 0; j < K; ++j) expected += want.grad.at("gk")[static_cast<std::size_t>(t * K + j)];
      ASSERT_NEAR(sum[static_cast<std::size_t>(t)], expected, 1e-11) << t;
    }
  }
}

template <class X>
Values both_ways(const Recurrence& f, const Literal& x, const Call& call) {
  Values all = run_forward<X>(f, x.in, call);
  for (const auto& [name, gradient] : run_backward<X>(f, x.in, x.d, call)) all["d " + name] = gradient;
  return all;
}

TEST(LinearFamilies, WorkspaceContentsDoNotMatter) {
  for (const Terms& terms : all_terms)
    for (const Size T : {1, 5, 37}) {
      const Recurrence f = of(terms, T, 2, 2, 11, 19);
      const Literal x(f);
      for (const auto& [form, chunk] : every_form) {
        const Call clean{.form = form, .chunk = chunk, .scratch = 0}, dirty{.form = form, .chunk = chunk};
        ASSERT_EQ(both_ways<double>(f, x, clean), both_ways<double>(f, x, dirty)) << f.name();
        ASSERT_EQ(both_ways<float>(f, x, clean), both_ways<float>(f, x, dirty)) << f.name();
      }
    }
}

TEST(LinearFamilies, StateWithoutOutputs) {
  for (const Terms& terms : all_terms) {
    const Recurrence f = of(terms, 40, 2, 2, 5, 3);
    Recurrence quiet = f;
    quiet.outputs = false;
    const Values in = f.draw_values();
    for (const auto& [form, chunk] : every_form) {
      const Call call{form, chunk};
      ASSERT_LE(distance(run_forward<double>(quiet, in, call).at("S"), run_forward<double>(f, in, call).at("S")),
                1e-13);
    }
  }
}

TEST(LinearFamilies, SplitEqualsWhole) {
  for (const Terms& terms : all_terms) {
    const Recurrence f = of(terms, 50, 2, 2, 8, 8);
    const Literal x(f);
    for (const auto& [form, chunk] : every_form) {
      const Values want = both_ways<double>(f, x, {form, chunk});
      for (const Size cut : {1, 13, 32, 49})
        for (const auto& [name, got] : both_ways<double>(f, x, {.form = form, .chunk = chunk, .cuts = {cut}}))
          ASSERT_LE(distance(got, want.at(name)), name.starts_with("d g") && !terms.scalar ? 2e-12 : 1e-12)
              << f.name() << " " << name << " cut " << cut << " chunk " << chunk;
    }
  }
}

// A sequence has the bits it has alone, also with NaN in all others and beside sequences of other lengths.
TEST(LinearFamilies, SequencesAreIndependent) {
  for (const Terms& terms : all_terms) {
    Recurrence f = of(terms, 60, 2, 1, 7, 10);
    f.packed = {0, 5, 40, 60};
    check_alone(f, every_form);
    const Literal x(f);
    for (const auto& [form, chunk] : every_form) {
      const Values together = both_ways<float>(f, x, {form, chunk});
      for (std::size_t n = 0; n + 1 < f.packed.size(); ++n) {
        // Whether number i of a tensor belongs to sequence n.
        const auto own = [&](const std::string& name, const Doubles& all, std::size_t i) {
          const bool state = name == "S" || name == "d S";
          const std::size_t parts = state ? 3 : static_cast<std::size_t>(f.T), part = i * parts / all.size();
          return state ? part == n
                       : static_cast<Size>(part) >= f.packed[n] && static_cast<Size>(part) < f.packed[n + 1];
        };
        Literal sick = x;
        for (Values* values : {&sick.in, &sick.d})
          for (auto& [name, all] : *values)
            for (std::size_t i = 0; name != "S" && name != "bonus" && i < all.size(); ++i)
              if (!own(name, all, i)) all[i] = std::numeric_limits<double>::quiet_NaN();
        for (const auto& [name, got] : both_ways<float>(f, sick, {form, chunk}))
          for (std::size_t i = 0; name != "d bonus" && i < got.size(); ++i) {  // of bonus all have the one gradient
            if (!own(name, got, i)) continue;
            ASSERT_EQ(got[i], together.at(name)[i]) << f.name() << " " << name;
          }
      }
    }
  }
}

// A token must not see NaN in a later one, of whichever input: the causal mask is a loop bound, not a factor of zero.
TEST(LinearFamilies, TheFutureDoesNotReachBack) {
  for (const Terms& terms : all_terms) {
    const Recurrence f = of(terms, 40, 1, 1, 6, 8);
    const Values in = f.draw_values();
    const std::size_t bad = 21, V = 8;
    for (const auto& [form, chunk] : every_form) {
      const Doubles clean = run_forward<float>(f, in, {form, chunk}).at("o");
      for (const std::string where : {"q", "k", "v", "g", "gk", "gv", "beta", "a", "b"}) {
        if (!f.has(where)) continue;
        Values sick = in;
        const std::size_t width = sick[where].size() / 40;
        for (std::size_t j = 0; j < width; ++j)
          sick[where][bad * width + j] = std::numeric_limits<double>::quiet_NaN();
        const Doubles got = run_forward<float>(f, sick, {form, chunk}).at("o");
        for (std::size_t i = 0; i < got.size(); ++i) {
          if (i < bad * V) {
            ASSERT_EQ(got[i], clean[i]) << f.name() << " " << where << " chunk " << chunk;
          } else if (terms.scalar && (where == "k" || where == "v")) {
            ASSERT_TRUE(std::isnan(got[i])) << f.name();
          }
        }
      }
    }
  }
}

// A stream fed token by token must end where the whole sequence ends, to the last bit.
TEST(LinearFamilies, RecurrentIsTheStepBitForBit) {
  for (const Terms& terms : all_terms) {
    const Recurrence f = of(terms, 150, 2, 1, 9, 21);
    const Values in = f.draw_values();
    for (const std::string& target : ttr::simd_targets()) {
      Call whole{.form = Form::recurrent, .target = target}, steps{.form = Form::step, .target = target};
      for (Size t = 1; t < f.T; ++t) steps.cuts.push_back(t);
      ASSERT_EQ(run_forward<float>(f, in, whole), run_forward<float>(f, in, steps)) << f.name() << " " << target;
    }
  }
}

// Longer than a block of heads and than a block of tokens, more segments than a round of the scan, and keys too long
// for the recurrent form to be the best.
TEST(LinearFamilies, LongSequencesAndLongKeys) {
  for (const Terms& terms : all_terms)
    for (const Recurrence& f : {of(terms, 700, terms.scalar ? 3 : 2, 1, 6, 5), of(terms, 40, 1, 1, 140, 7)}) {
      check_forms(f, Literal(f), some_forms);
      if (HasFatalFailure()) return;
    }
}

// A chunk is summed before it is added, so a state that forgets nothing collects fewer roundings (docs/accuracy.md). At
// 20,000 tokens a tenth of them is usual; with as many as the recurrent form has, the errors would be equal.
TEST(LinearFamilies, StatesThatOnlyAddRoundLessInChunks) {
  const Recurrence f = of({.scalar = true, .gk = false, .beta = false, .name = "add"}, 20000, 1, 1, 4, 4);
  const Values in = f.draw_values();
  const Doubles truth = run_forward<double>(f, in, {Form::recurrent}).at("S");
  const auto error = [&](Form form) {
    const Doubles S = run_forward<float>(f, in, {form}).at("S");
    double most = 0;
    for (std::size_t i = 0; i < S.size(); ++i) most = std::max(most, std::abs(S[i] - truth[i]));
    return most;
  };
  EXPECT_LT(error(Form::chunk), 0.5 * error(Form::recurrent));
}

// A fading state that is fed nothing ends at zero, not among the denormal numbers, and the caller's own stay alive.
TEST(LinearFamilies, SilenceFadesToZero) {
  for (const Terms& terms : scalar_terms) {
    const Recurrence f = of(terms, 120, 2, 2, 5, 3);
    Values in = f.draw_values();
    in["g"].assign(in["g"].size(), -1.0), in["v"].assign(in["v"].size(), 0.0);
    for (const auto& [form, chunk] : every_form) {
      const Doubles S = run_forward<float>(f, in, {form, chunk}).at("S");
      for (const double x : S) ASSERT_EQ(x, 0.0) << f.name() << " chunk " << chunk;
      volatile float small = std::numeric_limits<float>::min();
      small = small / 4;
      ASSERT_GT(small, 0.0f);
    }
  }
}

// b = -beta k written out is the same recurrence as no b, and beta of v folded in.
TEST(LinearFamilies, WithoutEraseKeyTheWriteKeyErases) {
  const Recurrence tied = of({.reads = true, .decayed = true, .name = "kda"}, 50, 2, 2, 7, 6);
  Recurrence loose = tied;
  loose.terms.a = loose.terms.b = true;
  Values in = tied.draw_values();
  in["a"] = in["k"];
  for (std::size_t i = 0; i < in["k"].size(); ++i) in["b"][i] = -in["beta"][i / 7] * in["k"][i];
  for (const auto& [form, chunk] : every_form) {
    const Values want = run_forward<double>(tied, in, {form, chunk});
    for (const auto& [name, got] : run_forward<double>(loose, in, {form, chunk}))
      ASSERT_LE(distance(got, want.at(name)), 1e-13) << name;
  }
}

TEST(LinearFamilies, WhatIsWrongIsSaid) {
  const Simd<float>& s = ttr::simd<float>("");
  std::vector<float> x(1000, 0.5f), state(100), work(100000);
  const Sequence one[] = {{0, 0, 4}};
  const auto rows = [&](int dim) { return ttr::view<const float>(x.data(), 1, 4, 2, dim); };
  const fam::LinearProblem<float> p{
      one, 2, 2, 3, 5, 1.f, rows(3), rows(3), rows(5), {}, {}, state.data(), ttr::view(x.data() + 500, 1, 4, 2, 5)};
  const Workspace w{work.data(), work.size() * sizeof(float)};
  EXPECT_EQ(fam::decay::forward(p, Form::best, 0, s, w), Status::ok);
  EXPECT_EQ(fam::decay::forward(p, Form::scan, 0, s, w), Status::ok);
  std::size_t needed = fam::delta::workspace_bytes<float>(3, 5, 4, Form::chunk, 0, false);
  const fam::Residual decayed = fam::Residual::decayed;
  EXPECT_EQ(fam::delta::forward(p, decayed, Form::chunk, 0, s, {work.data(), needed}), Status::ok);
  EXPECT_EQ(fam::delta::forward(p, decayed, Form::chunk, 0, s, {work.data(), needed - 1}), Status::small_workspace);
  fam::LinearProblem<float> bad = p;
  bad.heads = 3;
  EXPECT_EQ(fam::decay::forward(bad, Form::best, 0, s, w), Status::bad_shape);
  bad = p, bad.k = {};
  EXPECT_EQ(fam::decay::forward(bad, Form::best, 0, s, w), Status::missing_input);
  bad = p, bad.q = {};
  EXPECT_EQ(fam::decay::forward(bad, Form::best, 0, s, w), Status::missing_input);
  bad.o = {};
  EXPECT_EQ(fam::decay::forward(bad, Form::best, 0, s, w), Status::ok);

  fam::GatedProblem<float> gated{p, rows(3), {}, {}, false};
  EXPECT_EQ(fam::gated::forward(gated, Form::best, 0, s, w), Status::ok);
  gated.bonus = ttr::view<const float>(x.data(), 2, 3);
  EXPECT_EQ(fam::gated::forward(gated, Form::best, 0, s, w), Status::not_supported);
  gated.read_before = true;
  EXPECT_EQ(fam::gated::forward(gated, Form::best, 0, s, w), Status::ok);
  gated.g = ttr::view<const float>(x.data(), 1, 4, 2);
  EXPECT_EQ(fam::gated::forward(gated, Form::best, 0, s, w), Status::not_supported);
  fam::DplrProblem<float> dplr{p, rows(3), {}, {}, false};
  EXPECT_EQ(fam::dplr::forward(dplr, Form::best, 0, s, w), Status::ok);
  needed = fam::dplr::workspace_bytes<float>(3, 5, 4, Form::scan, 0, false);
  EXPECT_EQ(fam::dplr::forward(dplr, Form::scan, 0, s, {work.data(), needed}), Status::ok);
  EXPECT_EQ(fam::dplr::forward(dplr, Form::scan, 0, s, {work.data(), 64}), Status::small_workspace);
  dplr.k = {};
  EXPECT_EQ(fam::dplr::forward(dplr, Form::best, 0, s, w), Status::missing_input);
  dplr.k = rows(3), dplr.heads = 3;
  EXPECT_EQ(fam::dplr::forward(dplr, Form::best, 0, s, w), Status::bad_shape);
}

// Whatever the table says: a choice for every state and instruction set, the same for all in a row.
TEST(LinearFamilies, ChoicesAreComplete) {
  constexpr fam::Tuned families[] = {fam::Tuned("decay"),       fam::Tuned("delta"),     fam::Tuned("gated"),
                                     fam::Tuned("gated_delta"), fam::Tuned("dplr"),      fam::Tuned("oja"),
                                     fam::Tuned("momentum"),    fam::Tuned("stabilised")};
  for (const fam::Tuned& family : families)
    for (const int bytes : {8, 16, 32, 64, 128})
      for (const int side : {1, 20, 64, 100, 300, 3000})
        for (const bool backward : {false, true}) {
          const fam::Choice c = fam::choice(family, bytes, side, side, backward);
          EXPECT_TRUE(c.form == Form::recurrent || c.form == Form::chunk);
          EXPECT_GT(c.chunk, 0);
          if (!backward) {
            EXPECT_EQ(fam::whole_chunks % c.chunk, 0) << "a piece of a call must be whole chunks";
          }
          const fam::Choice oblong = fam::choice(family, bytes, 4 * side, side, backward);
          EXPECT_EQ(oblong.chunk, fam::choice(family, bytes, 2 * side, 2 * side, backward).chunk);
        }
}

}  // namespace
