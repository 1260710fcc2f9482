// The outer model: text of stacks and configurations, threads, sessions, errors, and that it learns.
#include "ttr/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "error_of.h"
#include "model/gemm.h"
#include "model/mixer.h"
#include "model/ops.h"
#include "ttr/random.h"
#include "ttr/ttr.h"

namespace {

using namespace ttr::model;

TEST(ModelStack, Text) {
  const std::vector<BlockText> blocks =
      parse_stack("gated-deltanet*2, softmax(window=128, heads=4) , {equal / linear / gd(1)}(conv=0)*1");
  ASSERT_EQ(blocks.size(), 4u);
  EXPECT_EQ(blocks[0].mixer, "gated-deltanet");
  EXPECT_EQ(blocks[1].mixer, "gated-deltanet");
  EXPECT_EQ(blocks[2].mixer, "softmax");
  EXPECT_EQ(blocks[2].settings.at("window"), "128");
  EXPECT_EQ(blocks[2].settings.at("heads"), "4");
  EXPECT_EQ(blocks[3].mixer, "equal / linear / gd(1)");
  EXPECT_EQ(blocks[3].settings.at("conv"), "0");
  // A recipe may hold every character that means something in a stack.
  EXPECT_EQ(parse_stack("{near(exp) * gate / constant / exact | blend, squared}*2")[1].mixer,
            "near(exp) * gate / constant / exact | blend, squared");
}

// start=shift is the construction of arXiv 2501.12352, Eq. 57: of two pairs the second value is recalled exactly.
TEST(ModelStack, StartsAtTheConstruction) {
  Config c;
  c.stack = "linear-attention(start=shift, residual=no, conv=2, conv_on=k, conv_act=none, out_norm=none)";
  c.vocabulary = 16, c.width = 64, c.mlp = "none", c.tied = true, c.embedding_scale = 1, c.time = 5;
  Model<float> model(c, 3);
  Session<float> session(model, 1, 5);
  const std::int32_t tokens[] = {1, 2, 3, 4, 3}, labels[] = {-1, -1, -1, -1, 4};
  EXPECT_EQ(session.forward({.batch = 1, .time = 5, .tokens = tokens, .labels = labels}).correct, 1);
  for (const Parameter& p : model.parameters())
    if (p.name == "blocks.0.mixer.in") {
      EXPECT_EQ(model.values()[p.offset], 1);
      EXPECT_EQ(model.values()[p.offset + 1], 0);
      EXPECT_EQ(model.values()[p.offset + 192 + 1], 1);  // row 1 of the first of three
      EXPECT_EQ(model.values()[p.offset + 64], 1);       // row 0 of the second
    } else if (p.name == "blocks.0.mixer.taps") {
      EXPECT_EQ(model.values()[p.offset], 1);
      EXPECT_EQ(model.values()[p.offset + 1], 0);
    }
  EXPECT_NE(error_of([&] {
              c.stack = "linear-attention(start=shift, conv=1)";
              Model<float> wrong(c, 3);
            }).find("conv=2"),
            std::string::npos);
}

// Of every layer: a convolution where none of its inputs saw another token, once, and only where it has something to see.
TEST(ModelStack, WithConvolution) {
  for (const ttr::LayerInfo& layer : ttr::layers()) {
    if (layer.recipe.empty()) continue;
    Config c;
    c.stack = layer.name, c.vocabulary = 16, c.width = 16, c.heads = 2, c.mlp = "none", c.time = 8;
    const auto sees_others = [&] {
      const Model<float> model(c);
      const auto all = model.parameters();
      return std::any_of(all.begin(), all.end(), [](const Parameter& p) {
        return p.name == "blocks.0.mixer.taps" || p.name == "blocks.0.mixer.shift";
      });
    };
    const bool before = sees_others();
    c.stack = with_convolution(c, 2);
    EXPECT_EQ(c.stack, before || !sees_others() ? layer.name : layer.name + "(conv=2)");
    EXPECT_EQ(with_convolution(c, 3), c.stack) << "and not twice";
  }
  Config c;
  c.vocabulary = 16, c.width = 16, c.time = 8;
  c.stack = "softmax*2, linear-attention(conv=0), softmax , gla(key_dim=8)";
  EXPECT_EQ(with_convolution(c, 3),
            "softmax(conv=3)*2, linear-attention(conv=0), softmax(conv=3), gla(conv=3, key_dim=8)");
}

// With QKNorm every query and key has the length sqrt(K) at the start.
TEST(ModelSession, LogitBound) {
  Config c;
  c.stack = "softmax(map.q=rms, map.k=rms, heads=2)";
  c.vocabulary = 16, c.width = 16, c.mlp = "none", c.time = 3;
  const std::int32_t tokens[] = {1, 2, 3}, labels[] = {2, 3, 4};
  const Batch<float> batch{.batch = 1, .time = 3, .tokens = tokens, .labels = labels};
  Model<float> normed(c, 3);
  Session<float> one(normed, 1, 3);
  EXPECT_EQ(one.logit_bound(), 0);
  one.forward(batch);
  EXPECT_NEAR(one.logit_bound(), std::sqrt(8.0), 1e-3);
  c.stack = "softmax(heads=2, key_heads=1)*2";
  Model<float> plain(c, 3);
  Session<float> two(plain, 1, 3);
  two.forward(batch);
  const double before = two.logit_bound();
  EXPECT_GT(before, 0);
  for (const Parameter& p : plain.parameters())  // queries, keys and values three times as long
    if (p.name.ends_with("mixer.in"))
      for (std::size_t i = 0; i < p.size; ++i) plain.values()[p.offset + i] *= 3;
  two.forward(batch);
  EXPECT_GT(two.logit_bound(), 5 * before);
}

// A large batch goes through the model in rounds; the bound is that of all of them.
TEST(ModelSession, LogitBoundOfAllRounds) {
  const int sequences = 16, time = 128;
  Config c;
  c.stack = "softmax";
  c.vocabulary = 16, c.width = 16, c.mlp = "none", c.time = time;
  const Model<float> model(c, 3);
  Session<float> session(model, sequences, time);
  std::vector<std::int32_t> tokens, labels(sequences * time, 1);
  for (int i = 0; i < sequences * time; ++i)
    tokens.push_back(i < time ? i % 16 : 0);  // the first sequence has them all
  const auto bound = [&] {
    session.forward({.batch = sequences, .time = time, .tokens = tokens.data(), .labels = labels.data()});
    return session.logit_bound();
  };
  const double first = bound();
  std::rotate(tokens.begin(), tokens.begin() + time, tokens.end());  // now the last has
  EXPECT_EQ(first, bound());
  std::fill(tokens.begin(), tokens.end(), 0);
  EXPECT_GT(first, bound());
}

TEST(ModelStack, Errors) {
  const struct {
    const char *text, *says;
  } wrong[] = {{"", "empty"},
               {"gla,", "ends with a comma"},
               {"gla,,gla", "empty block"},
               {"gla*0", "factor"},
               {"gla*x", "factor"},
               {"gla(window", "without ')'"},
               {"gla(4)", "name=value"},
               {"gla(a=1,a=2)", "twice"},
               {"equal / linear / gd(1)", "braces"},
               {"{gla", "without '}'"},
               {"gla(a=1) gla", "by commas"}};
  for (const auto& one : wrong)
    EXPECT_NE(error_of([&] { parse_stack(one.text); }).find(one.says), std::string::npos)
        << one.text << ": " << error_of([&] { parse_stack(one.text); });
}

Config small(const std::string& stack) {
  Config c;
  c.stack = stack, c.vocabulary = 11, c.width = 16, c.heads = 2, c.time = 24;
  return c;
}

TEST(ModelConfig, TextAndErrors) {
  Config c = small("gla*3, softmax(window=8)");
  c.tied = true, c.norm_eps = 1e-5, c.embedding_scale = 0.1;
  const std::string text = to_string(c);
  EXPECT_EQ(to_string(parse_config(text)), text);
  EXPECT_EQ(parse_config("# a remark\n\nwidth = 32\n").width, 32);
  EXPECT_NE(error_of([] { parse_config("widht = 3"); }).find("it has stack, vocabulary"), std::string::npos);
  EXPECT_NE(error_of([] { parse_config("width = many"); }).find("'many'"), std::string::npos);
  const auto refused = [](const std::function<void(Config&)>& change) {
    Config wrong = small("gla");
    change(wrong);
    return error_of([&] { Model<float> model(wrong); });
  };
  EXPECT_EQ(refused([](Config&) {}), "");
  EXPECT_NE(refused([](Config& x) { x.heads = 3; }).find("does not divide"), std::string::npos);
  EXPECT_NE(refused([](Config& x) { x.input_dim = 3; }).find("input_dim"), std::string::npos);
  EXPECT_NE(refused([](Config& x) { x.loss = "hinge"; }).find("hinge"), std::string::npos);
  EXPECT_NE(refused([](Config& x) { x.mlp = "moe"; }).find("moe"), std::string::npos);
  EXPECT_NE(refused([](Config& x) { x.tied = true, x.output_dim = 3; }).find("tied"), std::string::npos);
  EXPECT_NE(refused([](Config& x) { x.stack = "gated-deltanett"; }).find("gated-deltanet"), std::string::npos);
  EXPECT_NE(refused([](Config& x) { x.stack = "l2-norm"; }).find("operation"), std::string::npos);
  EXPECT_NE(refused([](Config& x) { x.stack = "gla(map.nothing=silu)"; }).find("map.nothing"), std::string::npos);
  EXPECT_NE(refused([](Config& x) { x.stack = "gla(map.gk=sigmoidal)"; }).find("logsigmoid"), std::string::npos);
  EXPECT_NE(refused([](Config& x) { x.stack = "gla(colour=red)"; }).find("colour"), std::string::npos);
  EXPECT_NE(refused([](Config& x) { x.stack = "gla(gate_first=yes, out_norm=none)"; }).find("gate_first"),
            std::string::npos);
}

struct Tokens {
  std::vector<std::int32_t> tokens, labels;
  template <class T>
  Batch<T> batch(int sequences, int time) const {
    return {.batch = sequences, .time = time, .tokens = tokens.data(), .labels = labels.data()};
  }
};
Tokens copy_task(int sequences, int time, int vocabulary, std::uint64_t seed) {  // the label is the token before
  Tokens t;
  ttr::model::Random random(seed);
  for (int i = 0; i < sequences * time; ++i) {
    t.tokens.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocabulary))));
    t.labels.push_back(i % time == 0 ? -100 : t.tokens[static_cast<std::size_t>(i - 1)]);
  }
  return t;
}

TEST(ModelSession, Errors) {
  const Config c = small("gla");
  Model<float> model(c);
  Session<float> session(model, 2, 24);
  const Tokens t = copy_task(2, 24, 11, 1);
  Tokens bad = t;
  bad.tokens[30] = 11;
  EXPECT_NE(error_of([&] { session.forward(bad.batch<float>(2, 24)); }).find("position 6 of sequence 1"),
            std::string::npos);
  bad = t, bad.labels[3] = 50;
  EXPECT_NE(error_of([&] { session.forward(bad.batch<float>(2, 24)); }).find("label 50"), std::string::npos);
  EXPECT_NE(error_of([&] { session.forward(t.batch<float>(1, 24)); }).find("1 sequences"), std::string::npos);
  EXPECT_NE(error_of([&] { session.forward(t.batch<float>(2, 25)); }).find("25 tokens"), std::string::npos);
  Batch<float> none = t.batch<float>(2, 24);
  none.labels = nullptr;
  EXPECT_NE(error_of([&] { session.forward(none); }).find("no labels"), std::string::npos);
  EXPECT_NE(error_of([&] { Session<float>(model, 2, 25); }).find("longer"), std::string::npos);
  EXPECT_NE(error_of([&] { Session<float>(model, 2, 24, -1); }).find("threads"), std::string::npos);
}

// The same bits for any number of threads, alone and after other calls; shorter batches in a longer session are those of
// a shorter session; nothing counted is a loss of zero.
TEST(ModelSession, ThreadsAndLengths) {
  Config c = small("gated-deltanet, mamba-1, deltaproduct, softmax(window=5), rwkv-7, rls(ridge=0.5)");
  c.time = 150;
  Model<float> model(c, 2);
  const Tokens t = copy_task(5, 130, 11, 1), other = copy_task(5, 150, 11, 7);
  const auto run = [&](int threads, int time) {
    Session<float> session(model, 5, time, threads);
    if (time > 130) session.gradient(other.batch<float>(5, 150));
    const Measure m = session.gradient(t.batch<float>(5, 130));
    std::vector<float> all(session.gradients().begin(), session.gradients().end());
    all.push_back(static_cast<float>(m.loss)), all.push_back(static_cast<float>(m.correct));
    for (const std::int32_t p : session.predicted()) all.push_back(static_cast<float>(p));
    return all;
  };
  const std::vector<float> one = run(1, 130);
  for (const auto& [threads, time] : {std::pair{3, 130}, {1, 150}, {4, 150}}) {
    const std::vector<float> more = run(threads, time);
    ASSERT_EQ(more.size(), one.size());
    EXPECT_EQ(std::memcmp(more.data(), one.data(), one.size() * sizeof(float)), 0) << threads << " threads, " << time;
  }
  Session<float> session(model, 5, 130);
  Tokens silent = t;
  for (std::int32_t& label : silent.labels) label = -1;
  const Measure m = session.gradient(silent.batch<float>(5, 130));
  EXPECT_EQ(m.counted, 0);
  EXPECT_EQ(m.loss, 0);
  for (const float g : session.gradients()) ASSERT_EQ(g, 0);
}

// A large batch goes through the model in rounds: their gradients, losses and predictions are those of smaller batches
// put together, with the same bits for any number of threads.
TEST(ModelSession, RoundsAddUp) {
  for (const bool tied : {false, true}) {
    Config c = small("gated-deltanet, rwkv-7");
    c.time = 130, c.tied = tied;
    Model<double> model(c, 2);
    const int whole = 32, half = 16, time = 130;  // rounds of 8
    Tokens t = copy_task(whole, time, 11, 1);
    for (std::size_t i = 0; i < 10 * static_cast<std::size_t>(time); ++i)
      t.labels[i] = -1;  // nothing counts in the first
    Session<double> one(model, whole, time), more(model, whole, time, 3), part(model, half, time);
    const Measure m = one.gradient(t.batch<double>(whole, time));
    EXPECT_EQ(more.gradient(t.batch<double>(whole, time)).loss, m.loss);
    EXPECT_EQ(std::memcmp(one.gradients().data(), more.gradients().data(), one.gradients().size_bytes()), 0);
    std::vector<double> sum(one.gradients().size());
    double loss = 0;
    for (int first = 0; first < whole; first += half) {
      Batch<double> batch = t.batch<double>(half, time);
      batch.tokens += first * time, batch.labels += first * time;
      const Measure own = part.gradient(batch);
      const double share = static_cast<double>(own.counted) / static_cast<double>(m.counted);
      loss += share * own.loss;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += share * part.gradients()[i];
      for (int i = 0; i < half * time; ++i)
        ASSERT_EQ(part.predicted()[static_cast<std::size_t>(i)],
                  one.predicted()[static_cast<std::size_t>(first * time + i)]);
    }
    EXPECT_NEAR(loss, m.loss, 1e-12);
    for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(sum[i], one.gradients()[i], 1e-12) << i;
  }
}

// A model of causal layers does not see later tokens, and float follows double.
TEST(ModelSession, CausalAndPrecise) {
  const Config c = small("gla, mesanet, kda");
  Model<float> model(c, 2);
  Model<double> exact(c, 2);
  Tokens t = copy_task(1, 24, 11, 3);
  for (std::size_t i = 12; i < 24; ++i) t.labels[i] = -1;
  Session<float> session(model, 1, 24);
  Session<double> reference(exact, 1, 24);
  const Measure before = session.gradient(t.batch<float>(1, 24)), truth = reference.gradient(t.batch<double>(1, 24));
  EXPECT_NEAR(before.loss, truth.loss, 1e-5);
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < session.gradients().size(); ++i) {
    largest = std::max(largest, std::abs(reference.gradients()[i]));
    error = std::max(error, std::abs(reference.gradients()[i] - static_cast<double>(session.gradients()[i])));
  }
  EXPECT_LT(error, 1e-4 * largest);
  for (std::size_t i = 13; i < 24; ++i) t.tokens[i] = (t.tokens[i] + 1) % 11;
  EXPECT_EQ(session.forward(t.batch<float>(1, 24)).loss, before.loss);
}

// The table of published settings names layers that exist; a layer that it does not name has the first row.
TEST(ModelPublished, NamesLayers) {
  const std::vector<std::string> names = published_layers();
  EXPECT_GT(names.size(), 50u);
  for (const std::string& name : names) EXPECT_EQ(ttr::find_layer(name).name, name);
  EXPECT_EQ(published_settings("a layer of tomorrow"), published_settings(""));
  EXPECT_NE(published_settings("gla"), published_settings(""));
}

template <class T>
void expect_products() {
  ttr::model::Random random(4);
  // Rows at least `apart` numbers from each other: at a multiple of 4 KB some are copied first.
  for (const auto& [M, N, K, apart] : {std::tuple{1, 1, 1, 0},
                                       {3, 70, 5, 0},
                                       {130, 33, 600, 0},
                                       {300, 64, 17, 0},
                                       {65, 5, 0, 0},
                                       {37, 75, 1300, 0},
                                       {101, 300, 300, 1024},
                                       {100, 770, 20, 1024}}) {
    const auto draw = [&](int size) {
      std::vector<T> x(static_cast<std::size_t>(size));
      for (T& one : x) one = static_cast<T>(random.normal());
      return x;
    };
    const int pad = 3;
    for (int kind = 0; kind < 3; ++kind)
      for (const T beta : {T(0), T(1)}) {
        const int lda = std::max(apart, (kind == 2 ? M : K) + pad), ldb = std::max(apart, (kind == 1 ? K : N) + pad);
        const int ldc = N + pad;
        const std::vector<T> A = draw((kind == 2 ? K : M) * lda + 1), B = draw((kind == 1 ? N : K) * ldb + 1);
        const std::vector<T> C = draw(M * ldc);
        std::vector<T> first;
        for (const int threads : {1, 3}) {
          Gemm<T> gemm(threads);
          std::vector<T> out = C;
          if (kind == 0) gemm.nn(M, N, K, A.data(), lda, B.data(), ldb, beta, out.data(), ldc);
          if (kind == 1) gemm.nt(M, N, K, A.data(), lda, B.data(), ldb, beta, out.data(), ldc);
          if (kind == 2) gemm.tn(M, N, K, A.data(), lda, B.data(), ldb, beta, out.data(), ldc);
          if (threads == 1) first = out;
          EXPECT_EQ(out, first);
          if (kind < 2) {  // packed before, with what is added somewhere else
            Panels<T> panels;
            std::vector<T> other(out.size());
            gemm.pack(K, N, B.data(), ldb, kind == 1, panels);
            gemm.rows(M, A.data(), lda, panels, beta == T(0) ? nullptr : C.data(), ldc, other.data(), ldc);
            for (int i = 0; i < M; ++i)
              for (int j = 0; j < N; ++j)
                ASSERT_EQ(other[static_cast<std::size_t>(i * ldc + j)], out[static_cast<std::size_t>(i * ldc + j)]);
          }
          for (int i = 0; i < M; ++i)
            for (int j = 0; j < ldc; ++j) {
              double sum = j < N ? static_cast<double>(beta * C[static_cast<std::size_t>(i * ldc + j)])
                                 : static_cast<double>(C[static_cast<std::size_t>(i * ldc + j)]);
              double size = 1;
              for (int k = 0; k < K && j < N; ++k) {
                const T a = A[static_cast<std::size_t>(kind == 2 ? k * lda + i : i * lda + k)];
                const T b = B[static_cast<std::size_t>(kind == 1 ? j * ldb + k : k * ldb + j)];
                sum += static_cast<double>(a) * static_cast<double>(b);
                size += std::abs(static_cast<double>(a) * static_cast<double>(b));
              }
              ASSERT_NEAR(static_cast<double>(out[static_cast<std::size_t>(i * ldc + j)]), sum,
                          size * (sizeof(T) == 4 ? 1e-6 : 1e-14))
                  << "kind " << kind << " M " << M << " N " << N << " K " << K << " at " << i << ", " << j;
            }
        }
      }
  }
}
// gelu(x) = x Phi(x) keeps its digits where Phi is small: 1 + erf would not.
TEST(ModelOps, GeluOfNegativeNumbers) {
  const std::vector<float> x = {-0.5f, -2.0f, -4.0f, -6.0f, -9.0f};
  std::vector<float> y(x.size());
  ttr::model::hidden_forward<float>(1, ttr::simd<float>(""), false, 1, static_cast<std::ptrdiff_t>(x.size()),
                                    x.data(), y.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = 0.5 * double(x[i]) * std::erfc(-double(x[i]) * std::sqrt(0.5));
    EXPECT_NEAR(double(y[i]), exact, 1e-5 * std::abs(exact)) << x[i];
  }
}

TEST(ModelGemm, Float) { expect_products<float>(); }
TEST(ModelGemm, Double) { expect_products<double>(); }

}  // namespace
