// Short convolution: by its definition, in pieces, packed, and its gradients by central differences.
#include "prepare/short_convolution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace ttr::prepare {
namespace {

using families::Sequence;
using Size = std::ptrdiff_t;

template <class T>
struct Case {
  Case(Size B, Size L, Size D, Size W, Activation act, std::vector<Sequence> s, unsigned seed = 1)
      : batch(B), time(L), channels(D), width(W), activation(act), sequences(std::move(s)) {
    std::mt19937 engine(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    const auto fill = [&](std::vector<T>& v, Size n) {
      v.resize(static_cast<std::size_t>(n));
      for (T& value : v) value = static_cast<T>(uniform(engine));
    };
    const Size cache = short_convolution_cache(static_cast<Size>(sequences.size()), D, W);
    fill(x, B * L * D), fill(w, D * W), fill(b, D), fill(initial, cache);
    fill(d_y, B * L * D), fill(d_final, cache);
    y.resize(x.size()), final.resize(initial.size());
  }
  Size batch, time, channels, width;
  Activation activation;
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
    return static_cast<T>(activation == Activation::silu ? sum / (1 + std::exp(-sum)) : sum);
  }
};

std::vector<Sequence> rows(Size B, Size L) {
  std::vector<Sequence> s;
  for (Size i = 0; i < B; ++i) s.push_back({i, 0, L});
  return s;
}

template <class T>
void expect_definition(Case<T> c) {
  short_convolution(c.problem());
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
  for (const Activation act : {Activation::none, Activation::silu})
    for (const Size W : {1, 2, 4, 7})
      for (const Size L : {0, 1, 3, 10}) {
        expect_definition(Case<double>(2, L, 3, W, act, rows(2, L)));
        expect_definition(Case<float>(2, L, 3, W, act, rows(2, L)));
      }
  expect_definition(Case<double>(1, 12, 3, 4, Activation::silu, {{0, 0, 1}, {0, 1, 1}, {0, 1, 7}, {0, 7, 12}}));
}

TEST(ShortConvolution, CacheHoldsTheLastInputsOldestFirst) {
  Case<double> c(1, 2, 1, 4, Activation::none, rows(1, 2));
  c.initial = {1, 2, 3}, c.x = {4, 5};
  short_convolution(c.problem());
  EXPECT_EQ(c.final, (std::vector<double>{3, 4, 5}));
  Case<double> none(1, 0, 1, 4, Activation::none, rows(1, 0));
  none.initial = {1, 2, 3};
  short_convolution(none.problem());
  EXPECT_EQ(none.final, (std::vector<double>{1, 2, 3})) << "no token, no change";
}

TEST(ShortConvolution, SplitAnywhereIsTheWholeBitForBit) {
  for (const Size W : {1, 2, 4, 6}) {
    Case<double> whole(2, 9, 3, W, Activation::silu, rows(2, 9));
    short_convolution(whole.problem());
    for (Size cut = 0; cut <= 9; ++cut) {
      Case<double> parts = whole;
      std::fill(parts.y.begin(), parts.y.end(), 7);
      std::vector<double> cache = whole.initial;
      const std::vector<Sequence> first{{0, 0, cut}, {1, 0, cut}}, second{{0, cut, 9}, {1, cut, 9}};
      for (const auto& sequences : {first, second}) {
        ShortConvolution<double> p = parts.problem();
        p.sequences = sequences;
        p.initial = cache.data(), p.final = cache.data();  // in place
        short_convolution(p);
      }
      EXPECT_EQ(parts.y, whole.y) << "W " << W << " cut " << cut;
      EXPECT_EQ(cache, whole.final) << "W " << W << " cut " << cut;
    }
  }
}

TEST(ShortConvolution, PackedSequencesAreEachAlone) {
  Case<double> packed(1, 11, 2, 4, Activation::silu, {{0, 0, 2}, {0, 2, 3}, {0, 3, 11}});
  short_convolution(packed.problem());
  for (std::size_t n = 0; n < 3; ++n) {
    Case<double> alone = packed;
    ShortConvolution<double> p = alone.problem();
    p.sequences = std::span(packed.sequences).subspan(n, 1);
    p.initial += static_cast<Size>(n) * 3 * 2;
    std::fill(alone.y.begin(), alone.y.end(), 7);
    short_convolution(p);
    for (Size i = packed.sequences[n].begin * 2; i < packed.sequences[n].end * 2; ++i)
      EXPECT_EQ(alone.y[static_cast<std::size_t>(i)], packed.y[static_cast<std::size_t>(i)]);
    for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(alone.final[i], packed.final[n * 6 + i]);
  }
}

TEST(ShortConvolution, NanStaysInItsSequence) {
  Case<double> c(1, 8, 2, 4, Activation::silu, {{0, 0, 3}, {0, 3, 8}});
  c.x[4] = std::nan("");  // token 2 of the first
  short_convolution(c.problem());
  for (std::size_t i = 6; i < 16; ++i) EXPECT_TRUE(std::isfinite(c.y[i])) << i;
  for (std::size_t i = 6; i < 12; ++i) EXPECT_TRUE(std::isfinite(c.final[i])) << i;
  EXPECT_TRUE(std::isnan(c.y[4]));
}

TEST(ShortConvolution, StridesAndMissingPartsAreHonoured) {
  Case<double> c(2, 5, 3, 3, Activation::none, rows(2, 5));
  std::fill(c.b.begin(), c.b.end(), 0), std::fill(c.initial.begin(), c.initial.end(), 0);
  short_convolution(c.problem());
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
  short_convolution(p);  // no bias, no cache
  for (Size b = 0; b < 2; ++b)
    for (Size t = 0; t < 5; ++t)
      for (Size d = 0; d < 3; ++d)
        EXPECT_EQ(y[static_cast<std::size_t>((b * 3 + d) * 5 + t)],
                  c.y[static_cast<std::size_t>((b * 5 + t) * 3 + d)]);
}

double loss(Case<double>& c) {
  short_convolution(c.problem());
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
  short_convolution_backward(c.problem(), g);
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
  for (const Activation act : {Activation::none, Activation::silu})
    for (const Size W : {1, 2, 4})
      for (const Size L : {0, 1, 2, 6}) expect_gradients(Case<double>(2, L, 2, W, act, rows(2, L)));
  expect_gradients(Case<double>(1, 9, 2, 4, Activation::silu, {{0, 0, 1}, {0, 1, 1}, {0, 1, 9}}));
}

TEST(ShortConvolution, GradientsThatAreNotWantedAreNotNeeded) {
  Case<double> c(2, 6, 2, 4, Activation::silu, rows(2, 6));
  std::vector<double> all(c.x.size()), one(c.x.size()), d_w(c.w.size());
  ShortConvolutionGradient<double> g;
  g.d_y = view(static_cast<const double*>(c.d_y.data()), c.batch, c.time, c.channels);
  g.d_x = view(one.data(), c.batch, c.time, c.channels);
  short_convolution_backward(c.problem(), g);
  g.d_x = view(all.data(), c.batch, c.time, c.channels);
  g.d_w = view(d_w.data(), c.channels, c.width);
  short_convolution_backward(c.problem(), g);
  EXPECT_EQ(one, all);
  EXPECT_NE(one, std::vector<double>(one.size()));
}

}  // namespace
}  // namespace ttr::prepare
