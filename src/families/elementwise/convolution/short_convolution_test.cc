// Short convolution: by its definition, in pieces, packed, and its gradients by central differences.
#include "families/elementwise/convolution/short_convolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace ttr::families {
namespace {

using Size = std::ptrdiff_t;

template <class T>
void convolve(const ShortConvolution<T>& p, const std::string& target = "") {
  short_convolution(p, simd<T>(target));
}
template <class T>
void convolve_back(const ShortConvolution<T>& p, const ShortConvolutionGradient<T>& g,
                   const std::string& target = "") {
  short_convolution_backward(p, g, simd<T>(target));
}

template <class T>
struct Case {
  Case(Size B, Size L, Size D, Size W, ConvolutionActivation act, std::vector<Sequence> s, unsigned seed = 1)
      : batch(B), time(L), channels(D), width(W), activation(act), sequences(std::move(s)) {
    std::mt19937 engine(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    const auto fill = [&](std::vector<T>& v, Size n) {
      v.resize(static_cast<std::size_t>(n));
      for (T& value : v) value = static_cast<T>(uniform(engine));
    };
    const Size cache = static_cast<Size>(sequences.size()) * (W - 1) * D;
    fill(x, B * L * D), fill(w, D * W), fill(b, D), fill(initial, cache);
    fill(d_y, B * L * D), fill(d_final, cache);
    y.resize(x.size()), final.resize(initial.size());
  }
  Size batch, time, channels, width;
  ConvolutionActivation activation;
  std::vector<Sequence> sequences;
  std::vector<T> x, w, b, initial, y, final, d_y, d_final;

  ShortConvolution<T> problem() {
    ShortConvolution<T> p;
    p.sequences = sequences, p.activation = activation;
    p.x = view(static_cast<const T*>(x.data()), batch, time, channels);
    p.w = view(static_cast<const T*>(w.data()), channels, width);
    p.b = view(static_cast<const T*>(b.data()), channels);
    p.initial = initial.data(), p.final = final.data();
    p.y = view(y.data(), batch, time, channels);
    return p;
  }
  // The definition, one number at a time.
  T expected(std::size_t n, Size t, Size d) const {
    double sum = b[static_cast<std::size_t>(d)];
    const Sequence& s = sequences[n];
    for (Size i = 0; i < width; ++i) {
      const Size source = t - width + 1 + i;
      const Size at = source >= 0 ? (s.row * time + s.begin + source) * channels + d
                                  : ((static_cast<Size>(n) + 1) * (width - 1) + source) * channels + d;
      sum += double(w[static_cast<std::size_t>(d * width + i)]) *
             (source >= 0 ? x : initial)[static_cast<std::size_t>(at)];
    }
    return static_cast<T>(activation == ConvolutionActivation::silu ? sum / (1 + std::exp(-sum)) : sum);
  }
};

std::vector<Sequence> rows(Size B, Size L) {
  std::vector<Sequence> s;
  for (Size i = 0; i < B; ++i) s.push_back({i, 0, L});
  return s;
}

template <class T>
void expect_definition(Case<T> c, const std::string& target = "") {
  convolve(c.problem(), target);
  for (std::size_t n = 0; n < c.sequences.size(); ++n) {
    const Sequence& s = c.sequences[n];
    for (Size t = 0; t < s.end - s.begin; ++t)
      for (Size d = 0; d < c.channels; ++d)
        EXPECT_NEAR(c.y[static_cast<std::size_t>((s.row * c.time + s.begin + t) * c.channels + d)],
                    c.expected(n, t, d), sizeof(T) == 4 ? 1e-6 : 1e-15)
            << "sequence " << n << " token " << t;
  }
}

TEST(ShortConvolution, IsItsDefinition) {
  for (const ConvolutionActivation act : {ConvolutionActivation::none, ConvolutionActivation::silu})
    for (const Size W : {1, 2, 4, 7})
      for (const Size L : {0, 1, 3, 10}) {
        expect_definition(Case<double>(2, L, 3, W, act, rows(2, L)));
        expect_definition(Case<float>(2, L, 3, W, act, rows(2, L)));
      }
  expect_definition(
      Case<double>(1, 12, 3, 4, ConvolutionActivation::silu, {{0, 0, 1}, {0, 1, 1}, {0, 1, 7}, {0, 7, 12}}));
}

TEST(ShortConvolution, IsItsDefinitionInEveryInstructionSet) {
  for (const std::string& target : simd_targets())
    for (const ConvolutionActivation act : {ConvolutionActivation::none, ConvolutionActivation::silu})
      for (const Size W : {1, 2, 3, 4, 5})
        for (const Size D : {1, 5, 16, 37}) {
          expect_definition(Case<double>(1, 45, D, W, act, {{0, 0, 2}, {0, 2, 45}}), target);
          expect_definition(Case<float>(1, 45, D, W, act, {{0, 0, 2}, {0, 2, 45}}), target);
        }
}

TEST(ShortConvolution, CacheHoldsTheLastInputsOldestFirst) {
  Case<double> c(1, 2, 1, 4, ConvolutionActivation::none, rows(1, 2));
  c.initial = {1, 2, 3}, c.x = {4, 5};
  convolve(c.problem());
  EXPECT_EQ(c.final, (std::vector<double>{3, 4, 5}));
  Case<double> none(1, 0, 1, 4, ConvolutionActivation::none, rows(1, 0));
  none.initial = {1, 2, 3};
  convolve(none.problem());
  EXPECT_EQ(none.final, (std::vector<double>{1, 2, 3})) << "no token, no change";
}

TEST(ShortConvolution, SplitAnywhereIsTheWholeBitForBit) {
  for (const Size W : {1, 2, 3, 4, 6}) {
    Case<double> whole(2, 9, 19, W, ConvolutionActivation::silu, rows(2, 9));
    convolve(whole.problem());
    for (Size cut = 0; cut <= 9; ++cut) {
      Case<double> parts = whole;
      std::fill(parts.y.begin(), parts.y.end(), 7);
      std::vector<double> cache = whole.initial;
      const std::vector<Sequence> first{{0, 0, cut}, {1, 0, cut}}, second{{0, cut, 9}, {1, cut, 9}};
      for (const auto& sequences : {first, second}) {
        ShortConvolution<double> p = parts.problem();
        p.sequences = sequences;
        p.initial = cache.data(), p.final = cache.data();  // in place
        convolve(p);
      }
      EXPECT_EQ(parts.y, whole.y) << "W " << W << " cut " << cut;
      EXPECT_EQ(cache, whole.final) << "W " << W << " cut " << cut;
    }
  }
}

TEST(ShortConvolution, PackedSequencesAreEachAlone) {
  Case<double> packed(1, 11, 2, 4, ConvolutionActivation::silu, {{0, 0, 2}, {0, 2, 3}, {0, 3, 11}});
  convolve(packed.problem());
  for (std::size_t n = 0; n < 3; ++n) {
    Case<double> alone = packed;
    ShortConvolution<double> p = alone.problem();
    p.sequences = std::span(packed.sequences).subspan(n, 1);
    p.initial += static_cast<Size>(n) * 3 * 2;
    std::fill(alone.y.begin(), alone.y.end(), 7);
    convolve(p);
    for (Size i = packed.sequences[n].begin * 2; i < packed.sequences[n].end * 2; ++i)
      EXPECT_EQ(alone.y[static_cast<std::size_t>(i)], packed.y[static_cast<std::size_t>(i)]);
    for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(alone.final[i], packed.final[n * 6 + i]);
  }
}

TEST(ShortConvolution, NanStaysInItsSequence) {
  Case<double> c(1, 8, 2, 4, ConvolutionActivation::silu, {{0, 0, 3}, {0, 3, 8}});
  c.x[4] = std::nan("");  // token 2 of the first
  convolve(c.problem());
  for (std::size_t i = 6; i < 16; ++i) EXPECT_TRUE(std::isfinite(c.y[i])) << i;
  for (std::size_t i = 6; i < 12; ++i) EXPECT_TRUE(std::isfinite(c.final[i])) << i;
  EXPECT_TRUE(std::isnan(c.y[4]));
}

TEST(ShortConvolution, StridesAndMissingPartsAreHonoured) {
  Case<double> c(2, 5, 3, 3, ConvolutionActivation::none, rows(2, 5));
  std::fill(c.b.begin(), c.b.end(), 0), std::fill(c.initial.begin(), c.initial.end(), 0);
  convolve(c.problem());
  std::vector<double> x(c.x.size()), w(c.w.size()), y(c.y.size());  // channels first, taps first
  for (Size b = 0; b < 2; ++b)
    for (Size t = 0; t < 5; ++t)
      for (Size d = 0; d < 3; ++d)
        x[static_cast<std::size_t>((b * 3 + d) * 5 + t)] = c.x[static_cast<std::size_t>((b * 5 + t) * 3 + d)];
  for (Size d = 0; d < 3; ++d)
    for (Size i = 0; i < 3; ++i) w[static_cast<std::size_t>(i * 3 + d)] = c.w[static_cast<std::size_t>(d * 3 + i)];
  ShortConvolution<double> p;
  p.sequences = c.sequences;
  p.x = {x.data(), {2, 5, 3}, {15, 1, 5}}, p.y = {y.data(), {2, 5, 3}, {15, 1, 5}}, p.w = {w.data(), {3, 3}, {1, 3}};
  convolve(p);  // no bias, no cache
  for (Size b = 0; b < 2; ++b)
    for (Size t = 0; t < 5; ++t)
      for (Size d = 0; d < 3; ++d)
        EXPECT_EQ(y[static_cast<std::size_t>((b * 3 + d) * 5 + t)],
                  c.y[static_cast<std::size_t>((b * 5 + t) * 3 + d)]);
}

double loss(Case<double>& c) {
  convolve(c.problem());
  double sum = 0;
  for (std::size_t i = 0; i < c.y.size(); ++i) sum += c.y[i] * c.d_y[i];
  for (std::size_t i = 0; i < c.final.size(); ++i) sum += c.final[i] * c.d_final[i];
  return sum;
}

void expect_gradients(Case<double> c) {
  std::vector<double> d_x(c.x.size(), 0.25), d_w(c.w.size(), 0.25), d_b(c.b.size(), 0.25),
      d_initial(c.initial.size(), 0.25);
  ShortConvolutionGradient<double> g;
  g.d_y = view(static_cast<const double*>(c.d_y.data()), c.batch, c.time, c.channels);
  g.d_final = c.d_final.data();
  g.d_x = view(d_x.data(), c.batch, c.time, c.channels);
  g.d_w = view(d_w.data(), c.channels, c.width);
  g.d_b = view(d_b.data(), c.channels);
  g.d_initial = d_initial.data();
  convolve_back(c.problem(), g);
  const auto check = [&](std::vector<double>& at, const std::vector<double>& gradient, const char* name) {
    for (std::size_t i = 0; i < at.size(); ++i) {
      const double x = at[i], step = 1e-6;
      at[i] = x + step;
      const double up = loss(c);
      at[i] = x - step;
      const double down = loss(c);
      at[i] = x;
      EXPECT_NEAR(gradient[i] - 0.25, (up - down) / (2 * step), 1e-8) << name << ' ' << i;
    }
  };
  check(c.x, d_x, "x"), check(c.w, d_w, "w"), check(c.b, d_b, "b"), check(c.initial, d_initial, "initial");
}

TEST(ShortConvolution, GradientsEqualCentralDifferences) {
  for (const ConvolutionActivation act : {ConvolutionActivation::none, ConvolutionActivation::silu})
    for (const Size W : {1, 2, 4})
      for (const Size L : {0, 1, 2, 6}) expect_gradients(Case<double>(2, L, 2, W, act, rows(2, L)));
  expect_gradients(Case<double>(1, 9, 2, 4, ConvolutionActivation::silu, {{0, 0, 1}, {0, 1, 1}, {0, 1, 9}}));
}

// [B, T, D] with room between numbers, and with time innermost if `turned`.
template <class T>
struct Laid {
  Laid(Size B, Size L, Size D, Size step, bool turned) : batch(B), time(L), channels(D), memory(B * L * D * step) {
    stride = {L * D * step, turned ? step : D * step, turned ? L * step : step};
  }
  Size batch, time, channels;
  std::vector<T> memory;
  std::array<Size, 3> stride;
  View<T, 3> view() { return {memory.data(), {batch, time, channels}, stride}; }
  Laid& fill(const std::vector<T>& from) {
    const View<T, 3> to = view();
    for (Size b = 0, i = 0; b < batch; ++b)
      for (Size t = 0; t < time; ++t)
        for (Size d = 0; d < channels; ++d, ++i) to(b, t, d) = from[static_cast<std::size_t>(i)];
    return *this;
  }
  std::vector<T> dense() {
    std::vector<T> out;
    for (Size b = 0; b < batch; ++b)
      for (Size t = 0; t < time; ++t)
        for (Size d = 0; d < channels; ++d) out.push_back(view()(b, t, d));
    return out;
  }
};

template <class T>
struct Results {
  std::vector<T> y, final, d_x, d_w, d_b, d_initial;
  bool operator==(const Results&) const = default;
};

template <class T>
Results<T> results(Case<T> c, const std::string& target, Size step, bool turned) {
  const auto laid = [&](const std::vector<T>& from) {
    return Laid<T>(c.batch, c.time, c.channels, step, turned).fill(from);
  };
  Laid<T> x = laid(c.x), y = laid(c.y), d_y = laid(c.d_y), d_x = laid(c.d_y);
  Results<T> r;
  ShortConvolution<T> p = c.problem();
  p.x = x.view(), p.y = y.view();
  convolve(p, target);
  r.y = y.dense(), r.final = c.final;
  r.d_w.assign(c.w.size(), T(0.5)), r.d_b.assign(c.b.size(), T(0.5)), r.d_initial.assign(c.initial.size(), T(0.5));
  ShortConvolutionGradient<T> g;
  g.d_y = d_y.view(), g.d_x = d_x.view(), g.d_final = c.d_final.data(), g.d_initial = r.d_initial.data();
  g.d_w = view(r.d_w.data(), c.channels, c.width), g.d_b = view(r.d_b.data(), c.channels);
  convolve_back(p, g, target);
  r.d_x = d_x.dense();
  return r;
}

template <class T>
void expect_near(const std::vector<T>& got, const std::vector<T>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], sizeof(T) == 4 ? 1e-5 : 1e-13) << what << ' ' << i;
}

template <class T>
void expect_same_anywhere() {
  for (const ConvolutionActivation act : {ConvolutionActivation::none, ConvolutionActivation::silu})
    for (const Size W : {1, 3, 4, 6})
      for (const Size D : {3, 8, 21}) {
        const Case<T> c(2, 41, D, W, act, {{0, 0, 40}, {1, 0, 1}, {1, 1, 41}});
        const Results<T> want = results(c, simd_targets().back(), 1, false);
        for (const std::string& target : simd_targets()) {
          const std::string what = target + " W " + std::to_string(W) + " D " + std::to_string(D);
          const Results<T> got = results(c, target, 1, false);
          expect_near(got.y, want.y, what + " y"), expect_near(got.final, want.final, what + " final");
          expect_near(got.d_x, want.d_x, what + " d_x"), expect_near(got.d_w, want.d_w, what + " d_w");
          expect_near(got.d_b, want.d_b, what + " d_b");
          expect_near(got.d_initial, want.d_initial, what + " d_initial");
          const Results<T> turned = results(c, target, 1, true), apart = results(c, target, 3, false);
          EXPECT_EQ(turned.y, got.y) << what << " channels first";
          EXPECT_EQ(apart.y, got.y) << what << " strided";
          EXPECT_EQ(turned.final, apart.final) << what << " final";
          for (const Results<T>& other : {turned, apart}) {
            expect_near(other.d_x, got.d_x, what + " d_x"), expect_near(other.d_w, got.d_w, what + " d_w");
            expect_near(other.d_b, got.d_b, what + " d_b");
            expect_near(other.d_initial, got.d_initial, what + " d_initial");
          }
        }
      }
}

TEST(ShortConvolution, InstructionSetsAndStridesAgree) {
  expect_same_anywhere<double>();
  expect_same_anywhere<float>();
}

// Channels first: tokens are the lanes, and slopes go in spans.
TEST(ShortConvolution, LongChannelsFirst) {
  for (const Size W : {1, 4, 9})
    for (const Size T : {255, 256, 257, 700}) {
      const Case<double> c(1, T, 3, W, ConvolutionActivation::silu, {{0, 0, T}});
      const std::string what = "W " + std::to_string(W) + " T " + std::to_string(T);
      const Results<double> want = results(c, simd_targets().back(), 1, false);
      const Results<double> got = results(c, simd_targets().back(), 1, true);
      EXPECT_EQ(got.y, want.y) << what;
      EXPECT_EQ(got.final, want.final) << what;
      for (std::size_t i = 0; i < want.d_w.size(); ++i) EXPECT_NEAR(got.d_w[i], want.d_w[i], 1e-11) << what;
      for (std::size_t i = 0; i < want.d_b.size(); ++i) EXPECT_NEAR(got.d_b[i], want.d_b[i], 1e-11) << what;
      expect_near(got.d_x, want.d_x, what + " d_x"), expect_near(got.d_initial, want.d_initial, what + " d_initial");
    }
}

// Weights and inputs that all channels share, as views with a stride of zero: their gradients add up.
TEST(ShortConvolution, ABroadcastGradientIsASum) {
  for (const Size W : {2, 4, 5}) {
    const Size D = 19, L = 11;
    Case<double> c(1, L, D, W, ConvolutionActivation::silu, rows(1, L));
    std::vector<double> each(static_cast<std::size_t>(D * W)), shared(static_cast<std::size_t>(W)), one(1),
        d_b(static_cast<std::size_t>(D)), d_x(c.x.size()), line(static_cast<std::size_t>(L));
    ShortConvolutionGradient<double> g;
    g.d_y = view(static_cast<const double*>(c.d_y.data()), 1, L, D);
    g.d_w = view(each.data(), D, W), g.d_b = view(d_b.data(), D), g.d_x = view(d_x.data(), 1, L, D);
    convolve_back(c.problem(), g);
    g.d_w = {shared.data(), {D, W}, {0, 1}}, g.d_b = {one.data(), {D}, {0}},
    g.d_x = {line.data(), {1, L, D}, {L, 1, 0}};
    convolve_back(c.problem(), g);
    for (Size i = 0; i < W; ++i) {
      double sum = 0;
      for (Size d = 0; d < D; ++d) sum += each[static_cast<std::size_t>(d * W + i)];
      EXPECT_NEAR(shared[static_cast<std::size_t>(i)], sum, 1e-12);
    }
    double sum = 0;
    for (const double b : d_b) sum += b;
    EXPECT_NEAR(one[0], sum, 1e-12);
    for (Size t = 0; t < L; ++t) {
      sum = 0;
      for (Size d = 0; d < D; ++d) sum += d_x[static_cast<std::size_t>(t * D + d)];
      EXPECT_NEAR(line[static_cast<std::size_t>(t)], sum, 1e-12);
    }
  }
}

TEST(ShortConvolution, GradientsThatAreNotWantedAreNotNeeded) {
  Case<double> c(2, 6, 2, 4, ConvolutionActivation::silu, rows(2, 6));
  std::vector<double> all(c.x.size()), one(c.x.size()), d_w(c.w.size());
  ShortConvolutionGradient<double> g;
  g.d_y = view(static_cast<const double*>(c.d_y.data()), c.batch, c.time, c.channels);
  g.d_x = view(one.data(), c.batch, c.time, c.channels);
  convolve_back(c.problem(), g);
  g.d_x = view(all.data(), c.batch, c.time, c.channels);
  g.d_w = view(d_w.data(), c.channels, c.width);
  convolve_back(c.problem(), g);
  EXPECT_EQ(one, all);
  EXPECT_NE(one, std::vector<double>(one.size()));
}

}  // namespace
}  // namespace ttr::families
