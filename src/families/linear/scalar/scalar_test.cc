// Scalar decay and the delta rule: every form, layout and instruction set against literal loops, forwards and
// backwards.
#include <gtest/gtest.h>

#include "families/common/choice.h"
#include "families/linear/scalar/reference.h"

namespace {

using namespace ttr_test;

const Kind kKinds[] = {Kind::add, Kind::delta, Kind::undecayed};
struct Way {
  Form form;
  int chunk;
};
const Way kWays[] = {{Form::recurrent, 0}, {Form::recurrent, 3}, {Form::step, 0},   {Form::chunk, 0},
                     {Form::chunk, 1},     {Form::chunk, 5},     {Form::chunk, 16}, {Form::chunk, 64},
                     {Form::chunk, 200},   {Form::parallel, 0},  {Form::best, 0},   {Form::scan, 0},
                     {Form::scan, 1},      {Form::scan, 7},      {Form::scan, 40}};

// Bounds against the reference, relative to the largest number of a tensor.
template <class T>
constexpr double kForward = sizeof(T) == 8 ? 1e-12 : 2e-6;
template <class T>
constexpr double kBackward = sizeof(T) == 8 ? 1e-12 : 4e-6;

template <class T>
void check(const Case& c, const Data& d, const Result& want, const Call& call) {
  Status status;
  const Result got = run<T>(c, d, call, &status);
  ASSERT_EQ(status, Status::ok) << c.name();
  const std::string error = differs(got, want, kForward<T>, kBackward<T>, call.backward);
  ASSERT_EQ(error, "") << c.name() << " form " << to_string(call.form) << " chunk " << call.chunk << " target "
                       << call.target << " bits " << 8 * sizeof(T);
}

void check_both(const Case& c, const Call& call) {
  const Data d = draw_data(c);
  const Result want = reference(c, d);
  check<double>(c, d, want, call);
  check<float>(c, d, want, call);
}

double objective(const Case& c, const Data& d) {
  const Result r = reference(c, d);
  double sum = 0;
  for (std::size_t i = 0; i < r.o.size(); ++i) sum += d.d_o[i] * r.o[i];
  for (std::size_t i = 0; i < r.S.size(); ++i) sum += d.d_S[i] * r.S[i];
  return sum;
}

TEST(Reference, GradientsAreFiniteDifferences) {
  for (const Kind kind : kKinds) {
    const Case c{.kind = kind, .B = 1, .T = 5, .H = 2, .G = 1, .K = 3, .V = 2, .packed = {0, 2, 5}};
    Data d = draw_data(c);
    const Result r = reference(c, d);
    const auto compare = [&](Doubles& x, const Doubles& gradient, const char* name) {
      ASSERT_EQ(x.size(), gradient.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double keep = x[i];
        x[i] = keep + 1e-6;
        const double up = objective(c, d);
        x[i] = keep - 1e-6;
        const double down = objective(c, d);
        x[i] = keep;
        ASSERT_NEAR(gradient[i], (up - down) / 2e-6, 1e-7) << c.name() << " " << name << " " << i;
      }
    };
    compare(d.q, r.d_q, "q");
    compare(d.k, r.d_k, "k");
    compare(d.v, r.d_v, "v");
    compare(d.g, r.d_g, "g");
    compare(d.beta, r.d_beta, "beta");
    compare(d.S, r.d_S, "S");
  }
}

TEST(Families, AllFormsAtOddSizes) {
  const std::pair<int, int> sizes[] = {{1, 1}, {3, 5}, {5, 3}, {8, 17}, {17, 8}, {60, 64}, {64, 60}};
  for (const auto& [K, V] : sizes)
    for (const int T : {0, 1, 2, 7, 31, 32, 33, 63, 130})
      for (const Kind kind : kKinds) {
        if (K * V > 1000 && T > 63) continue;
        const Case c{.kind = kind, .B = 1, .T = T, .H = 1, .G = 1, .K = K, .V = V};
        const Data d = draw_data(c);
        const Result want = reference(c, d);
        for (const Way& way : kWays) {
          check<double>(c, d, want, {.form = way.form, .chunk = way.chunk});
          check<float>(c, d, want, {.form = way.form, .chunk = way.chunk});
          if (HasFatalFailure()) return;
        }
      }
}

TEST(Families, AllInstructionSets) {
  for (const std::string& target : ttr::simd_targets())
    for (const Kind kind : kKinds)
      for (const int T : {1, 9, 70})
        for (const Way& way : kWays) {
          check_both({.kind = kind, .B = 1, .T = T, .H = 2, .G = 1, .K = 13, .V = 21},
                     {.form = way.form, .chunk = way.chunk, .target = target});
          if (HasFatalFailure()) return;
        }
}

TEST(Families, GroupsLayoutsGatesAndPacking) {
  for (const Kind kind : kKinds)
    for (const Layout layout : {Layout::time_major, Layout::head_major, Layout::strided})
      for (const Gates gates : {Gates::none, Gates::mild, Gates::constant})
        for (const bool beta : {false, true})
          for (const bool packed : {false, true})
            for (const Way& way : {Way{Form::recurrent, 0}, Way{Form::chunk, 8}, Way{Form::parallel, 0},
                                   Way{Form::best, 0}, Way{Form::scan, 0}}) {
              Case c{.kind = kind, .B = 2, .T = 21, .H = 6, .G = 2, .K = 5, .V = 9, .gates = gates, .beta = beta};
              if (packed) c.B = 1, c.packed = {0, 1, 1, 12, 21};
              c.layout = layout;
              check_both(c, {.form = way.form, .chunk = way.chunk});
              if (HasFatalFailure()) return;
            }
}

TEST(Families, StrongGates) {
  for (const Kind kind : kKinds)
    for (unsigned seed = 1; seed <= 5; ++seed)
      for (const Way& way : kWays) {
        check_both(
            {.kind = kind, .B = 1, .T = 70, .H = 1, .G = 1, .K = 8, .V = 12, .gates = Gates::strong, .seed = seed},
            {.form = way.form, .chunk = way.chunk});
        if (HasFatalFailure()) return;
      }
}

TEST(Families, StateWithoutOutputs) {
  for (const Kind kind : kKinds)
    for (const Way& way : kWays) {
      const Case c{.kind = kind, .T = 40};
      const Data d = draw_data(c);
      const Result with = run<double>(c, d, {.form = way.form, .chunk = way.chunk, .backward = false});
      const Result without =
          run<double>(c, d, {.form = way.form, .chunk = way.chunk, .backward = false, .outputs = false});
      ASSERT_LT(distance(without.S, with.S), 1e-13);
      for (const double x : without.o) ASSERT_EQ(x, 0.0);
    }
}

TEST(Families, SplitEqualsWhole) {
  for (const Kind kind : kKinds)
    for (const Way& way : kWays)
      for (const int cut : {1, 13, 32, 49}) {
        Case c{.kind = kind, .T = 50, .K = 8, .V = 8};
        const Data whole = draw_data(c);
        const Result want = run<double>(c, whole, {.form = way.form, .chunk = way.chunk});
        const auto slice = [&](const Doubles& x, int begin, int end) {
          const Size width = static_cast<Size>(x.size()) / c.T;
          return Doubles(x.begin() + begin * width, x.begin() + end * width);
        };
        const auto part = [&](int begin, int end, const Doubles& S, const Doubles& d_S) {
          return Data{slice(whole.q, begin, end),
                      slice(whole.k, begin, end),
                      slice(whole.v, begin, end),
                      slice(whole.g, begin, end),
                      slice(whole.beta, begin, end),
                      S,
                      slice(whole.d_o, begin, end),
                      d_S,
                      whole.scale};
        };
        Case first = c, second = c;
        first.T = cut, second.T = c.T - cut;
        const Data head = part(0, cut, whole.S, whole.d_S);
        const Doubles middle = run<double>(first, head, {.form = way.form, .chunk = way.chunk}).S;
        const Result b =
            run<double>(second, part(cut, c.T, middle, whole.d_S), {.form = way.form, .chunk = way.chunk});
        const Result a = run<double>(first, part(0, cut, whole.S, b.d_S), {.form = way.form, .chunk = way.chunk});
        const auto joined = [](Doubles x, const Doubles& y) {
          x.insert(x.end(), y.begin(), y.end());
          return x;
        };
        const Result got{joined(a.o, b.o),           b.S,
                         joined(a.d_q, b.d_q),       joined(a.d_k, b.d_k),
                         joined(a.d_v, b.d_v),       joined(a.d_g, b.d_g),
                         joined(a.d_beta, b.d_beta), a.d_S};
        ASSERT_EQ(differs(got, want, 1e-12, 1e-12, true), "") << c.name() << " cut " << cut << " chunk " << way.chunk;
      }
}

bool same_bits(const Doubles& x, const Doubles& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0;
}
bool same_bits(const Result& x, const Result& y) {
  return same_bits(x.o, y.o) && same_bits(x.S, y.S) && same_bits(x.d_q, y.d_q) && same_bits(x.d_k, y.d_k) &&
         same_bits(x.d_v, y.d_v) && same_bits(x.d_g, y.d_g) && same_bits(x.d_beta, y.d_beta) &&
         same_bits(x.d_S, y.d_S);
}

TEST(Families, WorkspaceContentsDoNotMatter) {
  for (const Kind kind : kKinds)
    for (const Way& way : kWays)
      for (const int T : {1, 5, 37}) {
        const Case c{.kind = kind, .T = T, .K = 11, .V = 19};
        const Data d = draw_data(c);
        Call clean{.form = way.form, .chunk = way.chunk, .poison = 0}, dirty{.form = way.form, .chunk = way.chunk};
        ASSERT_TRUE(same_bits(run<double>(c, d, clean), run<double>(c, d, dirty))) << c.name();
        ASSERT_TRUE(same_bits(run<float>(c, d, clean), run<float>(c, d, dirty))) << c.name();
      }
}

// Row b of a batch has the bits it has alone, also with NaN in all other rows and beside sequences of other lengths.
TEST(Families, RowsAreIndependent) {
  for (const Kind kind : kKinds)
    for (const Way& way : kWays) {
      const Case c{.kind = kind, .B = 1, .T = 60, .H = 2, .G = 1, .K = 7, .V = 10, .packed = {0, 5, 40, 60}};
      const Data d = draw_data(c);
      const Call call{.form = way.form, .chunk = way.chunk};
      const Result together = run<float>(c, d, call);
      const std::vector<Sequence> list = c.sequences();
      for (std::size_t n = 0; n < list.size(); ++n) {
        const Size begin = list[n].begin, end = list[n].end;
        Case alone = c;
        alone.packed = {}, alone.T = static_cast<int>(end - begin);
        const auto slice = [&](const Doubles& x) {
          const Size width = static_cast<Size>(x.size()) / c.T;
          return Doubles(x.begin() + begin * width, x.begin() + end * width);
        };
        const auto states = [&](const Doubles& x) {
          const Size width = static_cast<Size>(x.size()) / 3, at = static_cast<Size>(n) * width;
          return Doubles(x.begin() + at, x.begin() + at + width);
        };
        const auto cut = [&](const Result& r) {
          return Result{slice(r.o),   states(r.S),  slice(r.d_q),    slice(r.d_k),
                        slice(r.d_v), slice(r.d_g), slice(r.d_beta), states(r.d_S)};
        };
        const Data own{slice(d.q),  slice(d.k),   slice(d.v),    slice(d.g), slice(d.beta),
                       states(d.S), slice(d.d_o), states(d.d_S), d.scale};
        ASSERT_TRUE(same_bits(run<float>(alone, own, call), cut(together))) << c.name() << " sequence " << n;

        Data sick = d;
        const double nan = std::numeric_limits<double>::quiet_NaN();
        for (Doubles* x : {&sick.q, &sick.k, &sick.v, &sick.g, &sick.beta, &sick.d_o}) {
          const Size width = static_cast<Size>(x->size()) / c.T;
          for (Size i = 0; i < static_cast<Size>(x->size()); ++i)
            if (i / width < begin || i / width >= end) (*x)[i] = nan;
        }
        ASSERT_TRUE(same_bits(cut(run<float>(c, sick, call)), cut(together))) << c.name() << " sequence " << n;
      }
    }
}

// A token must not see NaN in a later one: the causal mask is a loop bound, not a factor of zero.
TEST(Families, TheFutureDoesNotReachBack) {
  for (const Kind kind : kKinds)
    for (const Way& way : kWays) {
      const Case c{.kind = kind, .T = 40, .H = 1, .G = 1, .K = 6, .V = 8};
      const Data d = draw_data(c);
      const Result clean = run<float>(c, d, {.form = way.form, .chunk = way.chunk, .backward = false});
      Data sick = d;
      const int bad = 21;
      for (int j = 0; j < c.V; ++j) sick.v[bad * c.V + j] = std::numeric_limits<double>::quiet_NaN();
      for (int j = 0; j < c.K; ++j) sick.k[bad * c.K + j] = std::numeric_limits<double>::quiet_NaN();
      const Result got = run<float>(c, sick, {.form = way.form, .chunk = way.chunk, .backward = false});
      for (int i = 0; i < c.T * c.V; ++i) {
        if (i < bad * c.V) ASSERT_EQ(got.o[i], clean.o[i]) << c.name() << " chunk " << way.chunk;
        else ASSERT_TRUE(std::isnan(got.o[i]));
      }
    }
}

// A stream fed token by token must end where the whole sequence ends, to the last bit.
TEST(Families, RecurrentIsTheStepBitForBit) {
  for (const Kind kind : kKinds)
    for (const std::string& target : ttr::simd_targets()) {
      Case c{.kind = kind, .B = 1, .T = 150, .H = 2, .G = 1, .K = 9, .V = 21};
      const Data d = draw_data(c);
      const Result whole = run<float>(c, d, {.form = Form::recurrent, .target = target, .backward = false});
      Doubles S = d.S, o;
      for (Size t = 0; t < c.T; ++t) {
        const auto slice = [&](const Doubles& x) {
          const Size width = static_cast<Size>(x.size()) / c.T;
          return Doubles(x.begin() + t * width, x.begin() + (t + 1) * width);
        };
        Case one = c;
        one.T = 1;
        const Data token{slice(d.q), slice(d.k),   slice(d.v), slice(d.g), slice(d.beta),
                         S,          slice(d.d_o), d.d_S,      d.scale};
        const Result r = run<float>(one, token, {.form = Form::step, .target = target, .backward = false});
        S = r.S;
        o.insert(o.end(), r.o.begin(), r.o.end());
      }
      ASSERT_TRUE(same_bits(S, whole.S) && same_bits(o, whole.o)) << c.name() << " " << target;
    }
}

// Longer than a block of heads and than a block of tokens, and keys too long for the recurrent form to be the best.
TEST(Families, LongSequencesAndLongKeys) {
  for (const Kind kind : kKinds) {
    for (const Way& way : {Way{Form::recurrent, 0}, Way{Form::chunk, 0}, Way{Form::chunk, 100}, Way{Form::best, 0},
                           Way{Form::scan, 0}, Way{Form::scan, 32}}) {
      check_both({.kind = kind, .B = 1, .T = 700, .H = 3, .G = 1, .K = 6, .V = 5},
                 {.form = way.form, .chunk = way.chunk});
      check_both({.kind = kind, .B = 1, .T = 40, .H = 1, .G = 1, .K = 140, .V = 7},
                 {.form = way.form, .chunk = way.chunk});
      if (HasFatalFailure()) return;
    }
  }
}

// A fading state that is fed nothing ends at zero, not among the denormal numbers, and the caller's own stay alive.
// A chunk is summed before it is added, so a state that forgets nothing collects fewer roundings (docs/accuracy.md). At
// 20,000 tokens a tenth of them is usual; with as many as the recurrent form has, the errors would be equal.
TEST(Families, StatesThatOnlyAddRoundLessInChunks) {
  const Case c{
      .kind = Kind::add, .B = 1, .T = 20000, .H = 1, .G = 1, .K = 4, .V = 4, .gates = Gates::none, .beta = false};
  const Data d = draw_data(c);
  const Doubles truth = run<double>(c, d, {.form = Form::recurrent}).S;
  const auto error = [&](Form form) {
    const Doubles S = run<float>(c, d, {.form = form}).S;
    double most = 0;
    for (std::size_t i = 0; i < S.size(); ++i) most = std::max(most, std::abs(S[i] - truth[i]));
    return most;
  };
  EXPECT_LT(error(Form::chunk), 0.5 * error(Form::recurrent));
}

TEST(Families, SilenceFadesToZero) {
  for (const Kind kind : kKinds)
    for (const Way& way : kWays) {
      Case c{.kind = kind, .T = 120, .gates = Gates::mild};
      Data d = draw_data(c);
      for (double& x : d.g) x = -1;
      std::fill(d.v.begin(), d.v.end(), 0.0);
      const Result r = run<float>(c, d, {.form = way.form, .chunk = way.chunk, .backward = false});
      for (const double x : r.S) ASSERT_EQ(x, 0.0) << c.name() << " chunk " << way.chunk;
      volatile float small = std::numeric_limits<float>::min();
      small = small / 4;
      ASSERT_GT(small, 0.0f);
    }
}

TEST(Families, WhatIsWrongIsSaid) {
  namespace fam = ttr::families;
  const Simd<float>& s = ttr::simd<float>("");
  std::vector<float> x(1000, 0.5f), state(100), work(100000);
  const Sequence one[] = {{0, 0, 4}};
  LinearProblem<float> p{one,
                         2,
                         2,
                         3,
                         5,
                         1.f,
                         ttr::view<const float>(x.data(), 1, 4, 2, 3),
                         ttr::view<const float>(x.data(), 1, 4, 2, 3),
                         ttr::view<const float>(x.data(), 1, 4, 2, 5),
                         {},
                         {},
                         state.data(),
                         ttr::view(x.data() + 500, 1, 4, 2, 5)};
  const Workspace w{work.data(), work.size() * sizeof(float)};
  EXPECT_EQ(fam::decay::forward(p, Form::best, 0, s, w), Status::ok);
  EXPECT_EQ(fam::decay::forward(p, Form::scan, 0, s, w), Status::ok);
  const std::size_t needed = fam::delta::workspace_bytes<float>(3, 5, 4, Form::chunk, 0, false);
  EXPECT_EQ(fam::delta::forward(p, Residual::decayed, Form::chunk, 0, s, {work.data(), needed}), Status::ok);
  EXPECT_EQ(fam::delta::forward(p, Residual::decayed, Form::chunk, 0, s, {work.data(), needed - 1}),
            Status::small_workspace);
  LinearProblem<float> bad = p;
  bad.heads = 3;
  EXPECT_EQ(fam::decay::forward(bad, Form::best, 0, s, w), Status::bad_shape);
  bad = p, bad.k = {};
  EXPECT_EQ(fam::decay::forward(bad, Form::best, 0, s, w), Status::missing_input);
  bad = p, bad.q = {};
  EXPECT_EQ(fam::decay::forward(bad, Form::best, 0, s, w), Status::missing_input);
  bad.o = {};
  EXPECT_EQ(fam::decay::forward(bad, Form::best, 0, s, w), Status::ok);
}

// Whatever the table says: a choice for every state and instruction set, the same for all in a row.
TEST(Families, ChoicesAreComplete) {
  namespace fam = ttr::families;
  for (int i = 0; i < fam::choosers; ++i)
    for (const int bytes : {8, 16, 32, 64, 128})
      for (const int side : {1, 20, 64, 100, 300, 3000})
        for (const bool backward : {false, true}) {
          const fam::Choice c = fam::choice(static_cast<fam::Chooser>(i), bytes, side, side, backward);
          EXPECT_TRUE(c.form == Form::recurrent || c.form == Form::chunk);
          EXPECT_GT(c.chunk, 0);
          if (!backward) {
            EXPECT_EQ(fam::whole_chunks % c.chunk, 0) << "a piece of a call must be whole chunks";
          }
          const fam::Choice oblong = fam::choice(static_cast<fam::Chooser>(i), bytes, 4 * side, side, backward);
          EXPECT_EQ(oblong.chunk,
                    fam::choice(static_cast<fam::Chooser>(i), bytes, 2 * side, 2 * side, backward).chunk);
        }
}
}  // namespace
