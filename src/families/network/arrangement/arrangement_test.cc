// Titans' arrangements against loops over tokens and pairs, and against the memory and the attention run by
// themselves where an arrangement leaves only one of them.
#include "families/network/arrangement/arrangement.h"

#include <gtest/gtest.h>

#include "families/network/arrangement/reference.h"
#include "families/pairs/attention/attention.h"

namespace {

using namespace ttr_families_test;

const std::vector<FormCall> forms = {{Form::recurrent, 0}, {Form::chunk, 0}, {Form::chunk, 2}, {Form::step, 0}};

Arranged layer() {
  Arranged f;
  f.kind = Arrangement::layer, f.label = "layer";
  return f;
}
Arranged context() {
  Arranged f;
  f.kind = Arrangement::context, f.label = "context", f.answer_weight = false;
  return f;
}

/// One call per token agrees with one call for all.
void check_token_by_token(const Arranged& f) {
  const Values in = f.draw_values(), d = draw_gradients(f, 79);
  Call steps{Form::step, 0};
  for (Size t = 1; t < f.T; ++t) steps.cuts.push_back(t);
  expect_near(run_forward<double>(f, in, steps), f.reference(in), 1e-11, f.name() + " steps");
  expect_near(run_backward<double>(f, in, d, steps), run_backward<double>(f, in, d, {Form::chunk, 0}), 1e-10,
              f.name() + " steps gradient");
}

TEST(Arrangement, Gate) {
  Arranged f;
  for (const Size T : {0, 1, 2, 7}) f.T = T, check_family(f, forms);
  for (const Size window : {1, 2, 20}) f.window = window, check_family(f, forms);
  f.persistent = 0, f.window = 4, f.seen = 2, check_family(f, forms);
  f.seen = 9, f.persistent = 1, f.answer_weight = f.memory_weight = false, check_family(f, forms);
  check_token_by_token(f);
}
TEST(Arrangement, GateOfGroups) {
  Arranged f;
  f.B = 2, f.H = 4, f.G = 2, f.A = 2, f.K = 1, f.T = 5, f.m.key_dim = 1, f.m.value_dim = 1, check_family(f, forms);
  f.m.value_dim = 3, f.A = 4, f.K = 5, f.packed = {0, 2, 2, 3, 9}, f.T = 9, f.B = 1, check_family(f, forms);
  check_token_by_token(f);
  check_alone(f, forms);
}
TEST(Arrangement, GateWithPrefix) {
  Arranged f;
  for (const int prefix : {1, 2, 5}) f.prefix = prefix, check_family(f, forms);
  check_token_by_token(f);
  f.seen = 6, check_family(f, forms);
  f.seen = 0, f.packed = {0, 2, 2, 7}, check_family(f, forms), check_alone(f, forms);
  f.m.momentum = false, f.m.decay = Decay::none, f.m.batch = 1, f.rate = false, f.m.gradient_scale = 0.1;
  check_family(f, forms);
  f.m.window = 3, f.prefix = 2, check_family(f, forms);
  f.weight = false, check_family(f, forms);
  f = Arranged(), f.prefix = 2, f.m.loss = Loss::huber, check_family(f, forms);
  f = Arranged(), f.prefix = 4, f.m.momentum = false, f.m.decay = Decay::none, f.m.block = f.gain = true;
  f.position_gain = true, check_family(f, forms);
}

TEST(Arrangement, Layer) {
  Arranged f = layer();
  for (const Size T : {0, 1, 7}) f.T = T, check_family(f, forms);
  for (const Size window : {1, 2, 20}) f.window = window, check_family(f, forms);
  f.persistent = 0, f.window = 4, f.seen = 2, check_family(f, forms);
  f.persistent = 3, f.seen = 0, f.prefix = 2, check_family(f, forms);
  check_token_by_token(f);
}
TEST(Arrangement, LayerOfGroups) {
  Arranged f = layer();
  f.B = 2, f.H = 4, f.G = 2, f.T = 5, f.K = 1, f.m.value_dim = 3, check_family(f, forms);
  f.packed = {0, 2, 2, 3, 9}, f.T = 9, f.B = 1, f.K = 5, check_family(f, forms);
  check_alone(f, forms);
}

TEST(Arrangement, Context) {
  Arranged f = context();
  for (const Size T : {0, 1, 2, 3, 8}) f.T = T, check_family(f, forms);
  f.m.read_before = true, f.label = "read_before", check_family(f, forms);
  f.m.read_before = false, f.persistent = 0, f.answer_weight = true;
  for (const std::int64_t seen : {1, 2, 3, 7}) f.seen = seen, f.T = 5, check_family(f, forms);
  check_token_by_token(f);
  f.m.batch = 1, f.T = 4, f.label = "segments of one", check_family(f, forms);
  f.m.batch = 50, f.label = "one segment", f.memory_weight = false, check_family(f, forms);
}
TEST(Arrangement, ContextOfGroups) {
  Arranged f = context();
  f.B = 2, f.H = 4, f.G = 2, f.A = 2, f.K = 1, f.T = 5, f.m.batch = 2, f.m.value_dim = 1, check_family(f, forms);
  f.A = 1, f.G = 1, f.K = 3, f.m.value_dim = 2, f.m.key_dim = 3, f.packed = {0, 2, 2, 3, 9}, f.T = 9, f.B = 1;
  check_family(f, forms);
  check_token_by_token(f);
  check_alone(f, forms);
}

TEST(Arrangement, OtherMemories) {
  for (Arranged f : {Arranged(), layer(), context()}) {
    f.H = 1, f.T = 7;
    Arranged ttt = f;
    ttt.label += " ttt", ttt.m.momentum = false, ttt.m.decay = Decay::none, ttt.m.block = ttt.m.bias = true;
    ttt.m.depth = 1, ttt.m.norm = Norm::fixed, ttt.m.skip = Skip::input, ttt.m.key_dim = 4;
    ttt.position_gain = true, ttt.m.gradient_scale = 1, check_family(ttt, forms);
    ttt.m.norm = Norm::learned, ttt.m.block = ttt.position_gain = false, ttt.m.depth = 2, check_family(ttt, forms);
    Arranged steps = f;
    steps.label += " steps", steps.m.batch = 4, steps.m.step_every = 2, check_family(steps, forms);
    Arranged moneta = f;
    moneta.label += " moneta", moneta.m.momentum = false, moneta.m.decay = Decay::log, moneta.m.q_norm = 4;
    moneta.m.loss = Loss::huber, moneta.m.gradient_scale = 1, check_family(moneta, forms);
    Arranged atlas = f;
    atlas.label += " atlas", atlas.m.batch = 1, atlas.m.window = 3, atlas.H = atlas.G = 2, check_family(atlas, forms);
    Arranged lact = f;
    lact.label += " lact", lact.m.decay = Decay::none, lact.m.gated = true, lact.m.activation = Activation::silu;
    lact.m.loss = Loss::dot, lact.m.step_every = 3, lact.m.row_norm = true, lact.m.rates = 3, lact.size = 0.7;
    lact.m.read_before = lact.m.lazy = f.kind != Arrangement::context, lact.m.gradient_scale = 1;
    check_family(lact, forms);
  }
}

TEST(Arrangement, ManyBlocks) {
  for (Arranged f : {Arranged(), layer(), context()}) {
    f.H = 2, f.G = 1, f.A = 1, f.T = 150, f.K = 17, f.m.key_dim = 9, f.m.value_dim = 19, f.m.width = 20;
    f.m.batch = 70, f.window = 33, f.persistent = 67, f.size = 0.1, f.m.gradient_scale = 0.05;
    f.attention_scale = 0.2;
    check_family(f, {{Form::recurrent, 0}, {Form::chunk, 0}, {Form::chunk, 16}}, false, 1e-4);
  }
}

/// With a memory of 43 KB of state in double, of which 8 MB are kept at once.
void check_large_state(Arranged f, const std::vector<Size>& cuts) {
  f.label += " large", f.H = f.G = 1, f.m.key_dim = f.m.value_dim = f.m.width = 30, f.size = 0.05, f.maps = 0.1;
  f.m.gradient_scale = 0.01, f.attention_scale = 0.2;
  const Values in = f.draw_values(), d = draw_gradients(f, 80);
  const Values got = run_backward<double>(f, in, d, {Form::recurrent, 0});
  expect_near(got, run_backward<double>(f, in, d, {Form::recurrent, 0, false, cuts}), 1e-10, f.name());
}
TEST(Arrangement, MoreStatesThanAreKept) {
  Arranged f = context();
  f.T = 400, f.m.batch = 2, check_large_state(f, {39, 80, 120, 161, 200, 240, 280, 320, 360});
}
// The shorter of two sequences keeps all its states, the longer one does not.
TEST(Arrangement, AShortSequenceBesideALongOne) {
  for (Arranged f : {Arranged(), context()}) {
    f.T = 410, f.packed = {0, 230, 410}, f.m.batch = 230, check_large_state(f, {100, 230, 300});
  }
}

/// Attention alone on the tensors of f, with `past` pairs before those of the sequence.
Doubles attention_alone(const Arranged& f, Doubles q, Doubles k, Doubles v, Doubles past_k, Doubles past_v, Size past,
                        Size window) {
  AttentionProblem<double> p;
  const auto list = f.sequences();
  const std::vector<std::int64_t> counts(list.size(), past);
  const int G = f.pair_heads();
  Doubles o(f.B * f.T * f.H * f.V());
  p.sequences = list, p.heads = f.H, p.key_heads = G, p.key_dim = f.K, p.value_dim = f.V();
  p.scale = f.attention_scale, p.window = window, p.past_count = counts.data();
  p.q = ttr::view(q.data(), f.B, f.T, f.H, f.K), p.k = ttr::view(k.data(), f.B, f.T, G, f.K);
  p.v = ttr::view(v.data(), f.B, f.T, G, f.V()), p.o = ttr::view(o.data(), f.B, f.T, f.H, f.V());
  p.past_k = ttr::view(past_k.data(), 1, past, G, f.K), p.past_v = ttr::view(past_v.data(), 1, past, G, f.V());
  p.past_k.stride[0] = p.past_v.stride[0] = 0;
  Scratch<double> scratch(
      attention::workspace_bytes<double>(f.H, G, f.K, f.V(), f.T, std::max<Size>(past, 1), window, false));
  EXPECT_EQ(attention::forward(p, ttr::simd<double>(""), scratch.workspace()), Status::ok);
  return o;
}

// w_m = 0 leaves a gate of 1/2, and y is attention in a window.
TEST(Arrangement, GateWithoutTheMemoryIsAttention) {
  Arranged f;
  f.T = 11, f.B = 2, f.persistent = 0, f.answer_weight = false;
  Values in = f.draw_values();
  std::fill(in["memory_weight"].begin(), in["memory_weight"].end(), 0.0);
  Doubles want = attention_alone(f, in["aq"], in["ak"], in["av"], {}, {}, 0, f.window);
  for (double& x : want) x /= 2;
  for (const FormCall& call : forms)
    EXPECT_LE(distance(run_forward<double>(f, in, {call.form, call.chunk}).at("o"), want), 1e-14);
}
// In a window that holds everything, persistent pairs are pairs before the first.
TEST(Arrangement, PersistentPairsArePairsBeforeTheFirst) {
  Arranged f;
  f.T = 11, f.window = 50, f.persistent = 5, f.answer_weight = false;
  Values in = f.draw_values();
  std::fill(in["memory_weight"].begin(), in["memory_weight"].end(), 0.0);
  Doubles want = attention_alone(f, in["aq"], in["ak"], in["av"], in["persistent_k"], in["persistent_v"], 5, 0);
  for (double& x : want) x /= 2;
  EXPECT_LE(distance(run_forward<double>(f, in, {Form::chunk, 0}).at("o"), want), 1e-14);
}
TEST(Arrangement, LayerWithIdentitiesIsAttentionOfAnswers) {
  Arranged f = layer();
  f.T = 11, f.K = f.V(), f.persistent = 0;
  Values in = f.draw_values();
  for (const char* name : {"wq", "wk", "wv"})
    for (Size i = 0; i < f.H * 16; ++i) in[name][i] = i % 16 / 4 == i % 4;
  const Values memory = run_forward<double>(static_cast<const Neural&>(f), in, {Form::chunk, 0});
  const Doubles& m = memory.at("o");
  const Values out = run_forward<double>(f, in, {Form::chunk, 0});
  EXPECT_LE(distance(out.at("o"), attention_alone(f, m, m, m, {}, {}, 0, f.window)), 1e-14);
  for (const char* name : {"W0", "W1", "Z0", "Z1"}) EXPECT_TRUE(out.at(name) == memory.at(name)) << name;
}
// Nothing is learned and all weights are 0: what is retrieved is a pair of zeros, and the gate is 1/2.
TEST(Arrangement, ContextOfAnEmptyMemoryIsAttentionInSegments) {
  Arranged f = context();
  f.T = 9, f.persistent = 0, f.rate = true, f.H = 1;
  Values in = f.draw_values();
  for (auto& [name, x] : in)
    if (name == "rate" || name[0] == 'W' || name[0] == 'Z') std::fill(x.begin(), x.end(), 0.0);
  Doubles want(f.T * f.V());
  for (Size t = 0; t < f.T; ++t) {
    std::vector<Arranged::Pair> pairs;
    const Doubles zeros(f.V() + f.K);
    for (Size i = t - t % 3; i <= t; ++i) {
      pairs.push_back({&in["ak"][i * f.K], &in["av"][i * f.V()]});
      pairs.push_back({zeros.data(), zeros.data()});
    }
    const Doubles y = f.attend(&in["aq"][t * f.K], pairs);
    for (int j = 0; j < f.V(); ++j) want[t * f.V() + j] = y[j] / 2;
  }
  EXPECT_LE(distance(run_forward<double>(f, in, {Form::chunk, 0}).at("o"), want), 1e-14);
}

// Logits of -inf: lists that say nothing leave the word to the others, or the answer is 0.
TEST(Arrangement, PairsThatNobodySees) {
  Arranged f;
  f.T = 4, f.H = 1, f.K = 1, f.window = 1, f.persistent = 1, f.answer_weight = false;
  Values in = f.draw_values();
  std::fill(in["memory_weight"].begin(), in["memory_weight"].end(), 0.0);
  for (double& x : in["aq"]) x = std::abs(x) + 0.1;
  const auto answers = [&] { return run_forward<double>(f, in, {Form::chunk, 0}).at("o"); };
  const double inf = std::numeric_limits<double>::infinity();
  in["ak"][2] = -inf;
  Doubles o = answers();
  for (int j = 0; j < f.V(); ++j) EXPECT_NEAR(o[2 * f.V() + j], in["persistent_v"][j] / 2, 1e-15);
  in["persistent_k"][0] = -inf, o = answers();
  for (int j = 0; j < f.V(); ++j) {
    EXPECT_EQ(o[2 * f.V() + j], 0.0);
    EXPECT_NEAR(o[3 * f.V() + j], in["av"][3 * f.V() + j] / 2, 1e-15);
  }
}

TEST(Arrangement, StrongLogits) {
  for (Arranged f : {Arranged(), context()}) {
    f.T = 6, f.attention_scale = 400, f.answer_weight = false;
    const Values in = f.draw_values(), d = draw_gradients(f, 81);
    const Values out = run_forward<float>(f, in, {Form::chunk, 0});
    for (const double x : out.at("o")) EXPECT_TRUE(std::isfinite(x));
    const Values gradients = run_backward<float>(f, in, d, {Form::chunk, 0});
    for (const auto& [name, x] : gradients)
      for (const double e : x) EXPECT_TRUE(std::isfinite(e)) << name;
  }
}

// A token of NaN: other sequences and earlier tokens have the bits they had.
TEST(Arrangement, NanStaysInItsSequence) {
  for (Arranged f : {Arranged(), layer(), context()}) {
    f.packed = {0, 4, 9, 12}, f.T = 12, f.H = 1;
    const Values in = f.draw_values(), d = draw_gradients(f, 82);
    const Doubles want = run_forward<double>(f, in, {Form::chunk, 0}).at("o");
    const Values want_d = run_backward<double>(f, in, d, {Form::chunk, 0});
    const auto list = f.sequences();
    const Simd<double>& s = ttr::simd<double>("");
    Scratch<double> scratch(f.bytes<double>(f.T, Form::chunk, 0, true));
    for (const char* name : {"q", "k", "v", "rate", "aq", "ak", "av"}) {
      if (!in.count(name)) continue;
      Values bad = in;
      bad[name][in.at(name).size() / 12 * 6] = std::numeric_limits<double>::quiet_NaN();
      Bound<double> x(f.specs(), &bad, false), given(f.specs(), &d, false), to(f.specs(), nullptr, false);
      x.counts = f.counts();
      ASSERT_EQ(f.backward<double>(x, given, to, list, Form::chunk, 0, s, scratch.workspace()), Status::ok);
      ASSERT_EQ(f.forward<double>(x, list, Form::chunk, 0, s, scratch.workspace()), Status::ok);
      const Doubles o = x.held["o"].get();
      const auto outside = [](const Doubles& all, Size first, Size end, Size rows) {
        Doubles rest;
        for (std::size_t i = 0; i < all.size(); ++i) {
          const Size row = static_cast<Size>(i / (all.size() / rows));
          if (row < first || row >= end) rest.push_back(all[i]);
        }
        return rest;
      };
      EXPECT_TRUE(outside(o, 6, 9, 12) == outside(want, 6, 9, 12)) << f.name() << " " << name;
      EXPECT_TRUE(std::isnan(o[6 * f.V()])) << f.name() << " " << name;
      for (const char* input : {"q", "k", "v", "rate", "aq", "ak", "av"})
        if (in.count(input)) {
          EXPECT_TRUE(outside(to.held[input].get(), 4, 9, 12) == outside(want_d.at(input), 4, 9, 12)) << input;
        }
      for (const char* initial : {"W0", "Z1", "pairs_k", "pairs_v"})
        EXPECT_TRUE(outside(to.held[initial].get(), 1, 2, 3) == outside(want_d.at(initial), 1, 2, 3)) << initial;
    }
  }
}

TEST(Arrangement, OutputsAndGradientsThatNobodyWants) {
  for (Arranged f : {Arranged(), layer(), context()}) {
    f.T = 8, f.seen = 4;
    if (f.kind != Arrangement::context) f.prefix = 1;
    const Values in = f.draw_values(), d = draw_gradients(f, 83);
    const auto list = f.sequences();
    const Simd<double>& s = ttr::simd<double>("");
    const Values want = run_forward<double>(f, in, {Form::chunk, 0});
    Bound<double> x(f.specs(), &in, false);
    x.counts = f.counts();
    ArrangementProblem<double> p = f.problem(x, list);
    p.o = {};
    Scratch<double> scratch(f.bytes<double>(f.T, Form::chunk, 0, true));
    ASSERT_EQ(arrangement::forward(p, Form::chunk, 0, s, scratch.workspace()), Status::ok);
    for (const Spec& spec : f.specs())
      if (spec.role == Role::state) {
        EXPECT_TRUE(x.held[spec.name].get() == want.at(spec.name)) << spec.name;
      }

    // Gradients of the final state alone, and only some of them wanted.
    Values only = d;
    std::fill(only["o"].begin(), only["o"].end(), 0.0);
    const Values whole = run_backward<double>(f, in, only, {Form::chunk, 0});
    Bound<double> y(f.specs(), &in, false), given(f.specs(), &d, false), to(f.specs(), nullptr, false);
    y.counts = f.counts();
    ArrangementGradient<double> g = f.gradient(given, to);
    g.d_o = {}, g.d_initial = {}, g.d_wk = {}, g.d_k = {}, g.memory.d_rate = {}, g.memory.d_initial.z = {};
    ASSERT_EQ(arrangement::backward(f.problem(y, list), g, Form::chunk, 0, s, scratch.workspace()), Status::ok);
    for (const char* name : {"q", "k", "v", "momentum", "av", "W0", "W1", "wv", "uk"})
      if (whole.count(name)) {
        EXPECT_LE(distance(to.held[name].get(), whole.at(name)), 1e-13) << f.name() << name;
      }
    for (const char* name : {"wk", "ak", "rate", "Z0", "pairs_k"})
      if (whole.count(name)) {
        for (const double e : to.held[name].get()) EXPECT_EQ(e, 0.0) << name;
      }
  }
}

TEST(Arrangement, WhatIsWrongIsSaid) {
  for (Arranged f : {Arranged(), layer(), context()}) {
    if (f.kind != Arrangement::context) f.prefix = 2;
    const Values in = f.draw_values();
    Bound<double> x(f.specs(), &in, false);
    x.counts = f.counts();
    const auto list = f.sequences();
    const Simd<double>& s = ttr::simd<double>("");
    Scratch<double> scratch(f.bytes<double>(f.T, Form::chunk, 0, true));
    const Workspace w = scratch.workspace();
    const ArrangementProblem<double> good = f.problem(x, list);
    EXPECT_EQ(arrangement::forward(good, Form::scan, 0, s, w), Status::not_supported);
    EXPECT_EQ(arrangement::forward(good, Form::parallel, 0, s, w), Status::not_supported);
    EXPECT_EQ(arrangement::forward(good, Form::chunk, 0, s, Workspace{w.data, 64}), Status::small_workspace);
    const auto wrong = [&](auto&& change) {
      ArrangementProblem<double> p = good;
      change(p);
      return arrangement::forward(p, Form::chunk, 0, s, w);
    };
    EXPECT_EQ(wrong([](auto& p) { p.model.pair_heads = 3; }), Status::bad_shape);
    EXPECT_EQ(wrong([](auto& p) { p.model.memory.depth = 99; }), Status::bad_shape);
    EXPECT_EQ(wrong([](auto& p) { p.model.persistent = 3; }), Status::bad_shape);
    EXPECT_EQ(wrong([](auto& p) { p.persistent_v = {}; }), Status::missing_input);
    EXPECT_EQ(wrong([](auto& p) { p.pairs.v = nullptr; }), Status::missing_input);
    EXPECT_EQ(wrong([](auto& p) { p.memory.state.z[1] = nullptr; }), Status::missing_input);
    EXPECT_EQ(wrong([](auto& p) { p.memory.count = nullptr; }), Status::missing_input);
    EXPECT_EQ(wrong([](auto& p) { p.memory.decay = {}; }), Status::missing_input);
    EXPECT_EQ(wrong([](auto& p) { p.memory.q = {}; }), Status::missing_input);
    if (f.kind == Arrangement::context) {
      EXPECT_EQ(wrong([](auto& p) { p.uv = {}; }), Status::missing_input);
      EXPECT_EQ(wrong([](auto& p) { p.pairs.retrieved_k = nullptr; }), Status::missing_input);
      EXPECT_EQ(wrong([](auto& p) { p.model.prefix = 1; }), Status::bad_shape);
      EXPECT_EQ(wrong([](auto& p) { p.model.memory.batch = 0; }), Status::bad_shape);
      EXPECT_EQ(wrong([](auto& p) { p.model.memory.lazy = true; }), Status::bad_shape);
    } else {
      EXPECT_EQ(wrong([](auto& p) { p.model.window = 0; }), Status::bad_shape);
      EXPECT_EQ(wrong([](auto& p) { p.prefix.decay = {}; }), Status::missing_input);
      EXPECT_EQ(wrong([](auto& p) { p.memory.k = {}; }), Status::missing_input);
      EXPECT_EQ(wrong([](auto& p) { p.model.memory.loss = Loss::huber; }), Status::missing_input);
      x.counts[0] = 1;
      EXPECT_EQ(wrong([](auto&) {}), Status::out_of_domain);
    }
    x.counts[0] = -1;
    EXPECT_EQ(wrong([](auto&) {}), Status::out_of_domain);
    x.counts[0] = 0;
    EXPECT_EQ(wrong([](auto&) {}), Status::ok);
    EXPECT_EQ(x.counts[0], f.T + f.prefix);
  }
}

}  // namespace
