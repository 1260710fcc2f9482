// One token of many heads at once: the bits of the sweeps of one head for every instruction set, groups of heads that
// share keys, panels that are and are not full; the step with momentum against plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

#include "families/linear/state_simd.h"
#include "simd/half_simd.h"
#include "simd/simd.h"

namespace {

using ttr::Simd;
using ttr::simd;
using ttr::simd_targets;
using ttr::state_simd;
using ttr::StateSimd;
using Size = std::ptrdiff_t;

/// Rows of normal numbers with NaN between them.
template <class T>
struct Rows {
  Size ld;
  std::vector<T> memory;
  Rows(Size rows, Size cols, std::mt19937& rng, double size = 1)
      : ld(cols + 3), memory(static_cast<std::size_t>(rows * (cols + 3) + 1), std::numeric_limits<T>::quiet_NaN()) {
    std::normal_distribution<double> normal;
    for (Size i = 0; i < rows; ++i)
      for (Size j = 0; j < cols; ++j) at(i, j) = static_cast<T>(size * normal(rng));
  }
  T* row(Size i) { return memory.data() + 1 + i * ld; }
  T& at(Size i, Size j) { return row(i)[j]; }
};

template <class T>
std::vector<T> numbers(Size n, std::mt19937& rng, double shift, double size) {
  std::normal_distribution<double> normal;
  std::vector<T> x(static_cast<std::size_t>(n));
  for (T& y : x) y = static_cast<T>(shift + size * normal(rng));
  return x;
}

struct Case {
  Size heads, group, K, V;
};
std::vector<Case> cases(Size lanes) {
  std::vector<Case> all;
  for (const Size K : {1, 5, 64})
    for (const Size V :
         {Size{1}, lanes, lanes + 1, 2 * lanes, 3 * lanes + 1, 4 * lanes, 5 * lanes, 7 * lanes - 1, 9 * lanes + 1}) {
      for (const Size heads : {1, 2, 5}) all.push_back({heads, 1, K, V});
      all.push_back({6, 3, K, V});
      all.push_back({4, 4, K, V});
    }
  return all;
}

/// Equal, NaN (what nobody wrote) included.
template <class T>
void expect_same(const std::vector<T>& x, const std::vector<T>& y) {
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!(std::isnan(x[i]) && std::isnan(y[i]))) {
      ASSERT_EQ(x[i], y[i]) << i;
    }
}

template <class T>
class HeadsTest : public testing::Test {
 protected:
  std::mt19937 rng{11};
  template <class F>
  void for_cases(F&& f) {
    for (const std::string& target : simd_targets())
      for (const Case& c : cases(simd<T>(target).lanes)) {
        SCOPED_TRACE(testing::Message() << target << " heads " << c.heads << " group " << c.group << " K " << c.K
                                        << " V " << c.V);
        f(simd<T>(target), c);
        if (testing::Test::HasFatalFailure()) return;
      }
  }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(HeadsTest, Types);

TYPED_TEST(HeadsTest, SweepHasTheBitsOfOneHead) {
  using T = TypeParam;
  this->for_cases([&](const Simd<T>& s, const Case& c) {
    const Size state = c.K * c.V;
    for (const bool reads : {false, true})
      for (const bool asks : {false, true}) {
        const bool skips = asks && c.heads > 1;
        Rows<T> k(c.heads / c.group, c.K, this->rng, 0.3), q(c.heads / c.group, c.K, this->rng),
            v(c.heads, c.V, this->rng), o(c.heads, c.V, this->rng);
        const auto a = numbers<T>(c.heads, this->rng, 0.9, 0.03), b = numbers<T>(c.heads, this->rng, 0.8, 0.03),
                   beta = numbers<T>(c.heads, this->rng, 0.5, 0.1), skip = numbers<T>(c.heads, this->rng, 0, 1);
        auto S = numbers<T>(c.heads * state, this->rng, 0, 1), S_one = S;
        Rows<T> o_one = o;
        typename StateSimd<T>::Tokens x{.n = c.heads, .K = c.K, .V = c.V, .beta = beta.data(), .scale = T(0.5)};
        x.k = k.row(0), x.ldk = k.ld, x.v = v.row(0), x.ldv = v.ld, x.ldq = q.ld;
        if (asks) x.q = q.row(0);
        if (skips) x.direct = skip.data();
        state_simd(s).sweep_heads(x, c.group, a.data(), reads ? b.data() : nullptr, S.data(), o.row(0), o.ld);
        for (Size h = 0; h < c.heads; ++h) {
          state_simd(s).sweep(1, c.K, c.V, &a[h], reads ? &b[h] : nullptr, &beta[h], T(0.5), k.row(h / c.group), k.ld,
                              v.row(h), v.ld, asks ? q.row(h / c.group) : nullptr, q.ld, S_one.data() + h * state,
                              c.V, o_one.row(h), o_one.ld, nullptr);
          if (skips) s.axpy(c.V, skip[h], v.row(h), o_one.row(h));
        }
        expect_same(S, S_one), expect_same(o.memory, o_one.memory);
      }
  });
}

TYPED_TEST(HeadsTest, GatedSweepHasTheBitsOfOneHead) {
  using T = TypeParam;
  struct Parts {
    bool columns, beta, x, shared, y, q, before, direct;
  };
  const Parts all[] = {{0, 0, 0, 0, 0, 0, 0, 0}, {0, 1, 0, 0, 0, 1, 0, 0}, {0, 1, 0, 0, 0, 1, 1, 1},
                       {1, 0, 0, 0, 0, 1, 0, 1}, {1, 1, 0, 0, 0, 1, 1, 0}, {0, 1, 1, 0, 0, 0, 0, 0},
                       {0, 1, 1, 0, 0, 1, 0, 0}, {0, 0, 1, 1, 0, 1, 0, 1}, {0, 0, 1, 0, 1, 0, 0, 0},
                       {0, 1, 1, 1, 1, 1, 0, 0}, {0, 0, 1, 0, 1, 1, 0, 1}};
  this->for_cases([&](const Simd<T>& s, const Case& c) {
    const Size state = c.K * c.V, keys = c.heads / c.group;
    for (const Parts& has : all) {
      const Size x_group = has.shared ? c.group : 1;
      Rows<T> k(keys, c.K, this->rng, 0.3), q(keys, c.K, this->rng), v(c.heads, c.V, this->rng),
          o(c.heads, c.V, this->rng), rows(c.heads, c.K, this->rng, 0.5), columns(c.heads, c.V, this->rng, 0.5),
          x(c.heads / x_group, c.K, this->rng, 0.3), y(c.heads, c.K, this->rng, 0.3);
      const auto beta = numbers<T>(c.heads, this->rng, 0.5, 0.1), direct = numbers<T>(c.heads, this->rng, 0, 1);
      auto S = numbers<T>(c.heads * state, this->rng, 0, 1), S_one = S;
      Rows<T> o_one = o;
      const auto tokens = [&](Size n, Size h) {
        typename StateSimd<T>::Tokens t{.n = n, .K = c.K, .V = c.V, .rows = rows.row(h), .ld_rows = rows.ld};
        t.k = k.row(h / c.group), t.ldk = k.ld, t.v = v.row(h), t.ldv = v.ld, t.scale = T(0.5), t.before = has.before;
        if (has.columns) t.columns = columns.row(h), t.ld_columns = columns.ld;
        if (has.beta) t.beta = beta.data() + h;
        if (has.x) t.x = x.row(h / x_group), t.ldx = x.ld;
        if (has.y) t.y = y.row(h), t.ldy = y.ld;
        if (has.q) t.q = q.row(h / c.group), t.ldq = q.ld;
        if (has.direct) t.direct = direct.data() + h;
        return t;
      };
      state_simd(s).gated_heads(tokens(c.heads, 0), c.group, x_group, S.data(), o.row(0), o.ld);
      for (Size h = 0; h < c.heads; ++h)
        state_simd(s).gated_sweep(tokens(1, h), S_one.data() + h * state, c.V, o_one.row(h), o_one.ld, nullptr);
      expect_same(S, S_one), expect_same(o.memory, o_one.memory);
    }
  });
}

TYPED_TEST(HeadsTest, BonusHasTheBitsOfAProductAndADot) {
  using T = TypeParam;
  this->for_cases([&](const Simd<T>& s, const Case& c) {
    for (const Size K : {c.K, c.V}) {
      Rows<T> w(c.heads, K, this->rng), k(c.heads / c.group, K, this->rng), q(c.heads / c.group, K, this->rng);
      std::vector<T> all(static_cast<std::size_t>(c.heads)), product(static_cast<std::size_t>(K));
      state_simd(s).bonus_dots(c.heads, c.group, K, T(0.7), w.row(0), w.ld, k.row(0), k.ld, q.row(0), q.ld,
                               all.data());
      for (Size h = 0; h < c.heads; ++h) {
        s.mul(K, w.row(h), k.row(h / c.group), product.data());
        ASSERT_EQ(all[h], T(0.7) * s.dot(K, product.data(), q.row(h / c.group)));
      }
    }
  });
}

// Values and answers of a half type where they lie: the answers of their floats, rounded.
TEST(HeadsHalf, ValuesAndAnswersAreThoseOfFloats) {
  std::mt19937 rng(3);
  for (const std::string& target : simd_targets()) {
    const Simd<float>& s = simd<float>(target);
    if (s.lanes < 2) continue;
    const ttr::HalfSimd& convert = half_simd(s);
    for (const ttr::Halves type : {ttr::Halves::bf16, ttr::Halves::f16})
      for (const Size vectors : {1, 2, 3, 4, 5, 8, 9})
        for (const bool before : {false, true})
          for (const bool gated : {false, true})
            for (const bool direct : {false, true}) {
              const Size heads = 3, K = 5, V = vectors * s.lanes, ld = V + 1;
              const auto widen = type == ttr::Halves::bf16 ? convert.widen_bf16 : convert.widen_f16;
              const auto narrow = type == ttr::Halves::bf16 ? convert.narrow_bf16 : convert.narrow_f16;
              const auto a = numbers<float>(heads, rng, 0.9, 0.03), rows = numbers<float>(heads * K, rng, 0.9, 0.03),
                         k = numbers<float>(heads * K, rng, 0, 0.3), q = numbers<float>(heads * K, rng, 0, 1);
              auto S = numbers<float>(heads * K * V, rng, 0, 1), S_half = S,
                   v = numbers<float>(heads * ld, rng, 0, 1);
              std::vector<std::uint16_t> v_half(v.size()), o_half(v.size(), 7), expected(v.size(), 7);
              std::vector<float> o(v.size());
              narrow(heads * ld, v.data(), v_half.data()), widen(heads * ld, v_half.data(), v.data());
              const auto run = [&](bool half, float* to, std::vector<float>& state) {
                StateSimd<float>::Tokens x{.n = heads, .K = K, .V = V, .beta = a.data(), .ldx = K, .ldk = K};
                x.k = k.data(), x.q = q.data(), x.ldq = K, x.v = v.data(), x.ldv = ld;
                if (direct) x.direct = a.data();
                if (half) x.values = x.answers = type, x.v = reinterpret_cast<const float*>(v_half.data());
                if (!gated) return state_simd(s).sweep_heads(x, 1, a.data(), nullptr, state.data(), to, ld);
                x.rows = rows.data(), x.ld_rows = K, x.before = before;
                state_simd(s).gated_heads(x, 1, 1, state.data(), to, ld);
              };
              run(false, o.data(), S), run(true, reinterpret_cast<float*>(o_half.data()), S_half);
              for (Size h = 0; h < heads; ++h) narrow(V, o.data() + h * ld, expected.data() + h * ld);
              SCOPED_TRACE(testing::Message() << target << " vectors " << vectors << " before " << before << " gated "
                                              << gated << " direct " << direct);
              ASSERT_EQ(o_half, expected);
              ASSERT_EQ(S, S_half);
            }
  }
}

TYPED_TEST(HeadsTest, MomentumAgainstLoops) {
  using T = TypeParam;
  this->for_cases([&](const Simd<T>& s, const Case& c) {
    const Size state = c.K * c.V, keys = c.heads / c.group;
    const double tolerance = 200 * 8 * std::numeric_limits<T>::epsilon();
    for (const bool asks : {false, true}) {
      Rows<T> k(keys, c.K, this->rng, 0.3), p(keys, c.K, this->rng, 0.3), q(keys, c.K, this->rng),
          v(c.heads, c.V, this->rng), o(c.heads, c.V, this->rng);
      const auto a = numbers<T>(c.heads, this->rng, 0.9, 0.03), f = numbers<T>(c.heads, this->rng, 0.8, 0.03),
                 mu = numbers<T>(c.heads, this->rng, 0.7, 0.03), eta = numbers<T>(c.heads, this->rng, 0.6, 0.1),
                 beta = numbers<T>(c.heads, this->rng, 0.5, 0.1);
      auto S = numbers<T>(c.heads * state, this->rng, 0, 1), Z = numbers<T>(c.heads * state, this->rng, 0, 1);
      const auto S_old = S, Z_old = Z;
      const Rows<T> o_old = o;
      typename StateSimd<T>::Momentum x{.heads = c.heads, .group = c.group, .K = c.K, .V = c.V};
      x.a = a.data(), x.f = f.data(), x.mu = mu.data(), x.eta = eta.data(), x.beta = beta.data(), x.scale = T(0.5);
      x.k = k.row(0), x.ldk = k.ld, x.p = p.row(0), x.ldp = p.ld, x.v = v.row(0), x.ldv = v.ld;
      if (asks) x.q = q.row(0), x.ldq = q.ld;
      state_simd(s).momentum_heads(x, S.data(), Z.data(), o.row(0), o.ld);
      auto S_one = S_old, Z_one = Z_old;  // head by head: the same bits
      Rows<T> o_one = o_old;
      for (Size h = 0; h < c.heads; ++h) {
        typename StateSimd<T>::Momentum y = x;
        y.heads = y.group = 1;
        y.a += h, y.f += h, y.mu += h, y.eta += h, y.beta += h;
        y.k = k.row(h / c.group), y.p = p.row(h / c.group), y.v = v.row(h);
        if (asks) y.q = q.row(h / c.group);
        state_simd(s).momentum_heads(y, S_one.data() + h * state, Z_one.data() + h * state, o_one.row(h), o_one.ld);
      }
      expect_same(S, S_one), expect_same(Z, Z_one), expect_same(o.memory, o_one.memory);
      if (!asks) expect_same(o.memory, o_old.memory);
      for (Size h = 0; h < c.heads; ++h)
        for (Size j = 0; j < c.V; ++j) {
          const Size shared = h / c.group;
          double r = 0, answer = 0;
          for (Size i = 0; i < c.K; ++i) r += double(p.at(shared, i)) * double(S_old[h * state + i * c.V + j]);
          r = double(v.at(h, j)) - double(f[h]) * r;
          for (Size i = 0; i < c.K; ++i) {
            const Size at = h * state + i * c.V + j;
            const double z = double(mu[h]) * double(Z_old[at]) + double(eta[h]) * double(k.at(shared, i)) * r;
            const double y = double(a[h]) * double(S_old[at]) + double(beta[h]) * z;
            ASSERT_NEAR(Z[at], z, tolerance);
            ASSERT_NEAR(S[at], y, tolerance);
            answer += 0.5 * double(q.at(shared, i)) * y;
          }
          if (asks) {
            ASSERT_NEAR(o.at(h, j), answer, tolerance);
          }
        }
    }
  });
}

}  // namespace
