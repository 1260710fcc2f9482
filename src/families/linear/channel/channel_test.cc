// Gates for every channel: gated and dplr in every form, layout and instruction set against literal loops, forwards
// and backwards.
#include <gtest/gtest.h>

#include <cmath>

#include "families/linear/channel/reference.h"

namespace {

using namespace ttr_test;

const Parts kParts[] = {
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
struct Way {
  Form form;
  int chunk;
};
const Way kWays[] = {{Form::recurrent, 0}, {Form::recurrent, 3}, {Form::step, 0},   {Form::chunk, 0},
                     {Form::chunk, 1},     {Form::chunk, 5},     {Form::chunk, 16}, {Form::chunk, 40},
                     {Form::chunk, 200},   {Form::parallel, 0},  {Form::best, 0},   {Form::scan, 0},
                     {Form::scan, 1},      {Form::scan, 7},      {Form::scan, 40}};

template <class T>
void check(const VectorCase& c, const Tensors& d, const Tensors& want, const Call& call) {
  Status status;
  const Tensors got = run_vectors<T>(c, d, call, &status);
  ASSERT_EQ(status, Status::ok) << c.name();
  // A chunk sums what is written and what is erased, and the two cancel: wholly where there is but one direction, and
  // the more the longer nothing fades; more so with an erase key of its own, where they are summed apart.
  const bool cancels = c.shape.K == 1 || (c.parts.reads && !c.parts.gk);
  const double unit = sizeof(T) == 8 ? 1e-12 : cancels ? 1e-5 : c.parts.b ? 4e-6 : 2e-6;
  const std::string error = differs(got, want, unit, sizeof(T) == 8 ? unit : 2 * unit);
  ASSERT_EQ(error, "") << c.name() << " form " << to_string(call.form) << " chunk " << call.chunk << " target "
                       << call.target << " bits " << 8 * sizeof(T);
}

void check_both(const VectorCase& c, const Call& call) {
  const Tensors d = draw_vectors(c), want = vector_reference(c, d);
  check<double>(c, d, want, call);
  check<float>(c, d, want, call);
}

double objective(const VectorCase& c, const Tensors& d) {
  const Tensors r = vector_reference(c, d);
  double sum = 0;
  for (std::size_t i = 0; i < d.at("d_o").size(); ++i) sum += d.at("d_o")[i] * r.at("o")[i];
  for (std::size_t i = 0; i < d.at("d_S").size(); ++i) sum += d.at("d_S")[i] * r.at("S")[i];
  return sum;
}

TEST(VectorReference, GradientsAreFiniteDifferences) {
  for (const Parts& parts : kParts) {
    const VectorCase c{parts, {.B = 1, .T = 5, .H = 2, .G = 1, .K = 3, .V = 2, .packed = {0, 2, 5}}};
    Tensors d = draw_vectors(c);
    const Tensors r = vector_reference(c, d);
    for (auto& [name, x] : d) {
      if (name == "scale" || name == "d_o" || name == "d_S" || !c.has(name)) continue;
      const Doubles& gradient = r.at(name == "S" ? "d_initial" : "d_" + name);
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
    }
  }
}

TEST(VectorFamilies, AllFormsAtOddSizes) {
  const std::pair<int, int> sizes[] = {{1, 1}, {3, 5}, {5, 3}, {8, 17}, {17, 8}, {60, 64}};
  for (const auto& [K, V] : sizes)
    for (const int T : {0, 1, 2, 15, 16, 17, 33, 63, 130})
      for (const Parts& parts : kParts) {
        if (K * V > 1000 && T > 33) continue;
        const VectorCase c{parts, {.B = 1, .T = T, .H = 1, .G = 1, .K = K, .V = V}};
        const Tensors d = draw_vectors(c), want = vector_reference(c, d);
        for (const Way& way : kWays) {
          check<double>(c, d, want, {.form = way.form, .chunk = way.chunk});
          check<float>(c, d, want, {.form = way.form, .chunk = way.chunk});
          if (HasFatalFailure()) return;
        }
      }
}

TEST(VectorFamilies, AllInstructionSets) {
  for (const Parts& parts : kParts)
    for (const int T : {1, 9, 70}) {
      const VectorCase c{parts, {.B = 1, .T = T, .H = 2, .G = 1, .K = 13, .V = 21}};
      const Tensors d = draw_vectors(c), want = vector_reference(c, d);
      for (const std::string& target : ttr::simd_targets())
        for (const Way& way : kWays) {
          check<double>(c, d, want, {.form = way.form, .chunk = way.chunk, .target = target});
          check<float>(c, d, want, {.form = way.form, .chunk = way.chunk, .target = target});
          if (HasFatalFailure()) return;
        }
    }
}

TEST(VectorFamilies, GroupsLayoutsAndPacking) {
  for (const Parts& parts : kParts)
    for (const Layout layout : {Layout::time_major, Layout::head_major, Layout::strided})
      for (const bool packed : {false, true})
        for (const Way& way : {Way{Form::recurrent, 0}, Way{Form::chunk, 18}, Way{Form::parallel, 0},
                               Way{Form::best, 0}, Way{Form::scan, 0}}) {
          Case shape{.B = 2, .T = 39, .H = 6, .G = 2, .K = 5, .V = 9};
          if (packed) shape.B = 1, shape.packed = {0, 1, 1, 20, 39};
          shape.layout = layout;
          check_both({parts, shape}, {.form = way.form, .chunk = way.chunk});
          if (HasFatalFailure()) return;
        }
}

TEST(VectorFamilies, StrongGates) {
  for (const Parts& parts : kParts)
    for (unsigned seed = 1; seed <= 4; ++seed)
      for (const Way& way : kWays) {
        check_both({parts, {.B = 1, .T = 70, .H = 1, .G = 1, .K = 8, .V = 12, .seed = seed}, Strength::strong},
                   {.form = way.form, .chunk = way.chunk});
        if (HasFatalFailure()) return;
      }
}

// Gates that add up to more than a chunk may hold, sooner or later: cuts at other tokens in other chunks, and pieces
// too short to be taken one by one.
TEST(VectorFamilies, GatesThatCutChunks) {
  for (const Parts& parts : kParts) {
    if (!parts.gk) continue;
    for (const double strength : {0.4, 0.7, 1.2, 2.5}) {
      const VectorCase c{parts, {.B = 1, .T = 100, .H = 2, .G = 1, .K = 9, .V = 12}};
      Tensors d = draw_vectors(c);
      for (std::size_t i = 0; i < d["gk"].size(); ++i)
        d["gk"][i] = -strength * (1 + std::sin(static_cast<double>(i * i % 1009)));
      const Tensors want = vector_reference(c, d);
      for (const Way& way :
           {Way{Form::chunk, 32}, Way{Form::chunk, 64}, Way{Form::parallel, 0}, Way{Form::scan, 0}}) {
        check<double>(c, d, want, {.form = way.form, .chunk = way.chunk});
        check<float>(c, d, want, {.form = way.form, .chunk = way.chunk});
      }
    }
  }
}

// A gate with a zero inner stride is one gate for all channels.
TEST(VectorFamilies, ScalarGates) {
  for (const Parts& parts : kParts)
    for (const Strength strength : {Strength::scalar, Strength::strong_scalar})
      for (const Way& way : kWays) {
        check_both({parts, {.B = 2, .T = 70, .H = 2, .G = 1, .K = 6, .V = 7}, strength},
                   {.form = way.form, .chunk = way.chunk});
        if (HasFatalFailure()) return;
      }
}

// The gradient of such a gate, asked for with a zero inner stride, is the sum over the channels.
TEST(VectorFamilies, ZeroStridesSumGradients) {
  namespace fam = ttr::families;
  for (const Form form : {Form::recurrent, Form::chunk, Form::scan}) {
    const int T = 30, K = 5, V = 4;
    const VectorCase c{{.beta = false}, {.B = 1, .T = T, .H = 1, .G = 1, .K = K, .V = V}, Strength::scalar};
    const Tensors d = draw_vectors(c), want = vector_reference(c, d);
    const Sequence one[] = {{0, 0, T}};
    Doubles S = d.at("S"), sum(T, 0.0);
    const auto rows = [&](const char* name, int dim) {
      return ttr::view<const double>(d.at(name).data(), 1, T, 1, dim);
    };
    GatedProblem<double> p{
        {one, 1, 1, K, V, d.at("scale")[0], rows("q", K), rows("k", K), rows("v", V), {}, {}, S.data(), {}},
        rows("gk", K),
        {},
        {},
        false};
    GatedGradient<double> grad;
    grad.d_o = rows("d_o", V), grad.d_final = d.at("d_S").data();
    grad.d_gk = {sum.data(), {1, T, 1, K}, {T, 1, 1, 0}};
    std::vector<double> work(fam::gated::workspace_bytes<double>(K, V, T, form, 0, true) / 8);
    ASSERT_EQ(fam::gated::backward(p, grad, form, 0, ttr::simd<double>(""), {work.data(), work.size() * 8}),
              Status::ok);
    for (int t = 0; t < T; ++t) {
      double expected = 0;
      for (int j = 0; j < K; ++j) expected += want.at("d_gk")[t * K + j];
      ASSERT_NEAR(sum[t], expected, 1e-11) << t;
    }
  }
}

TEST(VectorFamilies, WorkspaceContentsDoNotMatter) {
  for (const Parts& parts : kParts)
    for (const Way& way : kWays)
      for (const int T : {1, 5, 37}) {
        const VectorCase c{parts, {.T = T, .K = 11, .V = 19}};
        const Tensors d = draw_vectors(c);
        const Call clean{.form = way.form, .chunk = way.chunk, .poison = 0},
            dirty{.form = way.form, .chunk = way.chunk};
        ASSERT_EQ(run_vectors<double>(c, d, clean), run_vectors<double>(c, d, dirty)) << c.name();
        ASSERT_EQ(run_vectors<float>(c, d, clean), run_vectors<float>(c, d, dirty)) << c.name();
      }
}

TEST(VectorFamilies, StateWithoutOutputs) {
  for (const Parts& parts : kParts)
    for (const Way& way : kWays) {
      const VectorCase c{parts, {.T = 40}};
      const Tensors d = draw_vectors(c);
      const Tensors with = run_vectors<double>(c, d, {.form = way.form, .chunk = way.chunk, .backward = false});
      const Tensors without =
          run_vectors<double>(c, d, {.form = way.form, .chunk = way.chunk, .backward = false, .outputs = false});
      ASSERT_LT(distance(without.at("S"), with.at("S")), 1e-13);
      for (const double x : without.at("o")) ASSERT_EQ(x, 0.0);
    }
}

// Tokens [begin, end) of every tensor of a case with one sequence, with other states at its ends.
Tensors slice(const VectorCase& c, const Tensors& x, Size begin, Size end) {
  Tensors part = x;
  for (auto& [name, values] : part) {
    if (name == "S" || name == "d_S" || name == "d_initial" || name == "scale" || name.ends_with("bonus")) continue;
    const Size width = static_cast<Size>(values.size()) / c.shape.T;
    values = Doubles(values.begin() + begin * width, values.begin() + end * width);
  }
  return part;
}

TEST(VectorFamilies, SplitEqualsWhole) {
  for (const Parts& parts : kParts)
    for (const Way& way : kWays)
      for (const int cut : {1, 13, 32, 49}) {
        const VectorCase c{parts, {.T = 50, .K = 8, .V = 8}};
        const Call call{.form = way.form, .chunk = way.chunk};
        const Tensors whole = draw_vectors(c), want = run_vectors<double>(c, whole, call);
        VectorCase first = c, second = c;
        first.shape.T = cut, second.shape.T = c.shape.T - cut;
        Tensors left = slice(c, whole, 0, cut), right = slice(c, whole, cut, c.shape.T);
        right["S"] = run_vectors<double>(first, left, call).at("S");
        const Tensors b = run_vectors<double>(second, right, call);
        left["d_S"] = b.at("d_initial");
        Tensors got = run_vectors<double>(first, left, call);
        for (auto& [name, x] : got) {
          const Doubles& later = b.at(name);
          if (name == "S") x = later;
          else if (name == "d_bonus")
            for (std::size_t i = 0; i < x.size(); ++i) x[i] += later[i];
          else if (name != "d_initial") x.insert(x.end(), later.begin(), later.end());
        }
        ASSERT_EQ(differs(got, want, 1e-12, 1e-12), "") << c.name() << " cut " << cut << " chunk " << way.chunk;
      }
}

// A sequence has the bits it has alone, also with NaN in all others and beside sequences of other lengths.
TEST(VectorFamilies, SequencesAreIndependent) {
  for (const Parts& parts : kParts)
    for (const Way& way : kWays) {
      const VectorCase c{parts, {.B = 1, .T = 60, .H = 2, .G = 1, .K = 7, .V = 10, .packed = {0, 5, 40, 60}}};
      const Call call{.form = way.form, .chunk = way.chunk};
      const Tensors d = draw_vectors(c);
      const std::vector<Sequence> list = c.shape.sequences();
      const auto cut = [&](const Tensors& x, std::size_t n) {
        Tensors part = slice(c, x, list[n].begin, list[n].end);
        part.erase("d_bonus");  // the one gradient that sequences share
        for (const char* name : {"S", "d_S", "d_initial"})
          if (const auto it = part.find(name); it != part.end()) {
            const Size width = static_cast<Size>(it->second.size()) / 3, at = static_cast<Size>(n) * width;
            it->second = Doubles(it->second.begin() + at, it->second.begin() + at + width);
          }
        return part;
      };
      const Tensors together = run_vectors<float>(c, d, call);
      for (std::size_t n = 0; n < list.size(); ++n) {
        VectorCase alone = c;
        alone.shape.packed = {}, alone.shape.T = static_cast<int>(list[n].end - list[n].begin);
        Tensors own = run_vectors<float>(alone, cut(d, n), call);
        own.erase("d_bonus");
        ASSERT_EQ(own, cut(together, n)) << c.name() << " sequence " << n;
        Tensors sick = d;
        for (const char* name : {"q", "k", "v", "gk", "gv", "beta", "a", "b", "d_o"}) {
          const Size width = static_cast<Size>(sick[name].size()) / c.shape.T;
          for (Size i = 0; i < static_cast<Size>(sick[name].size()); ++i)
            if (i / width < list[n].begin || i / width >= list[n].end)
              sick[name][i] = std::numeric_limits<double>::quiet_NaN();
        }
        ASSERT_EQ(cut(run_vectors<float>(c, sick, call), n), cut(together, n)) << c.name() << " sequence " << n;
      }
    }
}

// A token must not see NaN in a later one, of whichever input.
TEST(VectorFamilies, TheFutureDoesNotReachBack) {
  for (const Parts& parts : kParts)
    for (const char* where : {"q", "k", "v", "gk", "gv", "beta", "a", "b"})
      for (const Way& way : kWays) {
        const VectorCase c{parts, {.T = 40, .H = 1, .G = 1, .K = 6, .V = 8}};
        if (!c.has(where)) continue;
        const Tensors d = draw_vectors(c);
        const Call call{.form = way.form, .chunk = way.chunk, .backward = false};
        const Tensors clean = run_vectors<float>(c, d, call);
        Tensors sick = d;
        const int bad = 21;
        for (int j = 0; j < c.dim(where); ++j)
          sick[where][bad * c.dim(where) + j] = std::numeric_limits<double>::quiet_NaN();
        const Tensors got = run_vectors<float>(c, sick, call);
        for (int i = 0; i < bad * c.shape.V; ++i)
          ASSERT_EQ(got.at("o")[i], clean.at("o")[i]) << c.name() << " " << where << " chunk " << way.chunk;
      }
}

// A stream fed token by token must end where the whole sequence ends, to the last bit.
TEST(VectorFamilies, RecurrentIsTheStepBitForBit) {
  for (const Parts& parts : kParts)
    for (const std::string& target : ttr::simd_targets()) {
      const VectorCase c{parts, {.B = 1, .T = 150, .H = 2, .G = 1, .K = 9, .V = 21}};
      VectorCase one = c;
      one.shape.T = 1;
      const Tensors d = draw_vectors(c);
      const Tensors whole = run_vectors<float>(c, d, {.form = Form::recurrent, .target = target, .backward = false});
      Doubles S = d.at("S"), o;
      for (Size t = 0; t < c.shape.T; ++t) {
        Tensors token = slice(c, d, t, t + 1);
        token["S"] = S;
        const Tensors r = run_vectors<float>(one, token, {.form = Form::step, .target = target, .backward = false});
        S = r.at("S");
        o.insert(o.end(), r.at("o").begin(), r.at("o").end());
      }
      ASSERT_EQ(S, whole.at("S")) << c.name() << " " << target;
      ASSERT_EQ(o, whole.at("o")) << c.name() << " " << target;
    }
}

// Longer than a block of heads and than a block of tokens, and more segments than a round of the scan.
TEST(VectorFamilies, LongSequencesAndLongKeys) {
  for (const Parts& parts : kParts)
    for (const Way& way : {Way{Form::recurrent, 0}, Way{Form::chunk, 0}, Way{Form::chunk, 100}, Way{Form::best, 0},
                           Way{Form::scan, 0}, Way{Form::scan, 32}}) {
      check_both({parts, {.B = 1, .T = 700, .H = 2, .G = 1, .K = 6, .V = 5}}, {.form = way.form, .chunk = way.chunk});
      check_both({parts, {.B = 1, .T = 40, .H = 1, .G = 1, .K = 140, .V = 7}},
                 {.form = way.form, .chunk = way.chunk});
      if (HasFatalFailure()) return;
    }
}

// b = -beta k written out is the same recurrence as no b, and beta of v folded in.
TEST(VectorFamilies, WithoutEraseKeyTheWriteKeyErases) {
  const VectorCase tied{{.reads = true, .decayed = true, .name = "kda"}, {.T = 50, .H = 2, .G = 2, .K = 7, .V = 6}};
  VectorCase loose = tied;
  loose.parts.a = loose.parts.b = true;
  Tensors d = draw_vectors(tied);
  d["a"] = d["k"];
  for (std::size_t i = 0; i < d["k"].size(); ++i) d["b"][i] = -d["beta"][i / 7] * d["k"][i];
  for (const Way& way : kWays) {
    const Call call{.form = way.form, .chunk = way.chunk, .backward = false};
    ASSERT_EQ(differs(run_vectors<double>(loose, d, call), run_vectors<double>(tied, d, call), 1e-13, 0), "");
  }
}

TEST(VectorFamilies, WhatIsWrongIsSaid) {
  namespace fam = ttr::families;
  const Simd<float>& s = ttr::simd<float>("");
  std::vector<float> x(1000, 0.5f), state(100), work(100000);
  const Sequence one[] = {{0, 0, 4}};
  const auto rows = [&](int dim) { return ttr::view<const float>(x.data(), 1, 4, 2, dim); };
  const LinearProblem<float> linear{
      one, 2, 2, 3, 5, 1.f, rows(3), rows(3), rows(5), {}, {}, state.data(), ttr::view(x.data() + 500, 1, 4, 2, 5)};
  const Workspace w{work.data(), work.size() * sizeof(float)};
  GatedProblem<float> gated{linear, rows(3), {}, {}, false};
  EXPECT_EQ(fam::gated::forward(gated, Form::best, 0, s, w), Status::ok);
  gated.bonus = ttr::view<const float>(x.data(), 2, 3);
  EXPECT_EQ(fam::gated::forward(gated, Form::best, 0, s, w), Status::not_supported);
  gated.read_before = true;
  EXPECT_EQ(fam::gated::forward(gated, Form::best, 0, s, w), Status::ok);
  gated.g = ttr::view<const float>(x.data(), 1, 4, 2);
  EXPECT_EQ(fam::gated::forward(gated, Form::best, 0, s, w), Status::not_supported);
  DplrProblem<float> dplr{linear, rows(3), {}, {}, false};
  EXPECT_EQ(fam::dplr::forward(dplr, Form::best, 0, s, w), Status::ok);
  const std::size_t needed = fam::dplr::workspace_bytes<float>(3, 5, 4, Form::scan, 0, false);
  EXPECT_EQ(fam::dplr::forward(dplr, Form::scan, 0, s, {work.data(), needed}), Status::ok);
  EXPECT_EQ(fam::dplr::forward(dplr, Form::scan, 0, s, {work.data(), 64}), Status::small_workspace);
  dplr.k = {};
  EXPECT_EQ(fam::dplr::forward(dplr, Form::best, 0, s, w), Status::missing_input);
  dplr.k = rows(3), dplr.heads = 3;
  EXPECT_EQ(fam::dplr::forward(dplr, Form::best, 0, s, w), Status::bad_shape);
}

}  // namespace
