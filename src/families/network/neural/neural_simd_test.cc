// The primitives of neural memories on every runnable instruction set against plain loops in double, with sizes around
// the vector width and numbers of rows around the groups they go in; and the way back through kept states.
#include "families/network/neural/neural_simd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "families/network/neural/past.h"

namespace {

using ttr::NeuralSimd;
using ttr::simd;
using ttr::simd_targets;
using Size = std::ptrdiff_t;
using Doubles = std::vector<double>;

template <class T>
class NeuralSimdTest : public testing::Test {
 protected:
  std::mt19937 rng{3};
  std::vector<T> normals(Size n, T scale = 1) {
    std::normal_distribution<double> normal;
    std::vector<T> x(n + 1);
    for (T& value : x) value = scale * static_cast<T>(normal(rng));
    x[n] = guard;  // one past what may be written
    return x;
  }
  void expect_near(const std::vector<T>& got, const Doubles& want, double size, const std::string& what) {
    ASSERT_EQ(got.size(), want.size() + 1) << what;
    EXPECT_EQ(got.back(), guard) << what;
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 16 * size * std::numeric_limits<T>::epsilon()) << what << " at " << i;
  }
  template <class F>
  void for_targets(const F& f) {
    for (const std::string& name : simd_targets()) {
      SCOPED_TRACE(name);
      f(ttr::neural_simd(simd<T>(name)));
    }
  }
  static constexpr T guard = T(-12345);
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(NeuralSimdTest, Types);

struct NormRow {
  Doubles normed;
  double inverse;
  template <class T>
  NormRow(const T* y, Size V, double eps) : normed(V) {
    double mean = 0, var = 0;
    for (Size j = 0; j < V; ++j) mean += double(y[j]) / double(V);
    for (Size j = 0; j < V; ++j) var += (double(y[j]) - mean) * (double(y[j]) - mean) / double(V);
    inverse = 1 / std::sqrt(var + eps);
    for (Size j = 0; j < V; ++j) normed[j] = (double(y[j]) - mean) * inverse;
  }
  Doubles jacobian(const Doubles& g) const {
    const double V = double(g.size());
    double mean = 0, along = 0;
    for (std::size_t j = 0; j < g.size(); ++j) mean += g[j] / V, along += g[j] * normed[j] / V;
    Doubles out(g.size());
    for (std::size_t j = 0; j < g.size(); ++j) out[j] = (g[j] - mean - normed[j] * along) * inverse;
    return out;
  }
};

// A layer norm behind a hidden layer divides by the little that the tails leave: they are right relative to themselves.
TYPED_TEST(NeuralSimdTest, TailsOfGelu) {
  using T = TypeParam;
  std::vector<T> x, y(33), slope(33), bend(33);
  for (int i = 0; i < 33; ++i) x.push_back(static_cast<T>(-1 - i * 0.25));
  this->for_targets([&](const NeuralSimd<T>& s) {
    s.activate(ttr::Curve::gelu, 33, {x.data(), y.data(), slope.data(), bend.data(), nullptr, nullptr});
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double at = x[i], below = 0.5 * std::erfc(-at / std::sqrt(2.0));
      const double bell = std::exp(-at * at / 2) / std::sqrt(2 * std::acos(-1.0));
      const double share = (16 + 4 * at * at) * double(std::numeric_limits<T>::epsilon());  // of an e^{-x^2/2}
      EXPECT_NEAR(y[i], at * below, share * -at * below) << at;
      EXPECT_NEAR(slope[i], below + at * bell, share * (below - at * bell)) << at;
    }
  });
}

TYPED_TEST(NeuralSimdTest, NormsAndTheirReverse) {
  using T = TypeParam;
  for (const Size n : {1, 3, 4, 9})
    for (const Size V : {2, 5, 16, 33}) {
      const auto y = this->normals(n * V), w = this->normals(n * V), c = this->normals(V),
                 plus = this->normals(n * V), minus = this->normals(n * V), e = this->normals(n * V),
                 rate = this->normals(2 * n), t = this->normals(n * V);
      const auto d_w0 = this->normals(V);
      for (const Size ldw : {Size{0}, V}) {
        Doubles normed, inverse, out, delta, scaled, d_w(d_w0.begin(), d_w0.end() - 1), d_e, d_n, d_sd, d_y;
        for (Size i = 0; i < n; ++i) {
          const NormRow row(y.data() + i * V, V, 0.1);
          inverse.push_back(row.inverse);
          Doubles g(V), tt(V), ct(V);
          double gn = 0, tn = 0, td = 0;
          for (Size j = 0; j < V; ++j) {
            g[j] = double(w[i * ldw + j]) * double(e[i * V + j]), tt[j] = double(t[i * V + j]);
            normed.push_back(row.normed[j]);
            out.push_back(row.normed[j] * double(w[i * ldw + j]) + double(c[j]) + double(plus[i * V + j]) -
                          double(minus[i * V + j]));
            gn += g[j] * row.normed[j] / double(V), tn += tt[j] * row.normed[j] / double(V);
          }
          const Doubles back = row.jacobian(g), jt = row.jacobian(tt);
          for (Size j = 0; j < V; ++j) {
            delta.push_back(back[j]), scaled.push_back(-double(rate[2 * i]) * back[j]);
            td += tt[j] * back[j];
            d_w[j] += double(e[i * V + j]) * jt[j] + row.normed[j] * double(plus[i * V + j]);
            d_e.push_back(double(w[j]) * jt[j]);
            d_n.push_back(-(tt[j] * gn + g[j] * tn) * row.inverse);
            ct[j] = d_n.back() + double(w[j]) * double(plus[i * V + j]);
          }
          d_sd.push_back(-td * row.inverse / double(V));
          const Doubles last = row.jacobian(ct);
          for (Size j = 0; j < V; ++j) d_y.push_back(last[j] + d_sd.back() * row.normed[j]);
        }
        this->for_targets([&](const NeuralSimd<T>& r) {
          auto a = this->normals(n * V), b = this->normals(n), o = this->normals(n * V), d = o, s = o;
          r.normalise({n, V, y.data(), T(0.1), w.data(), ldw, c.data(), plus.data(), minus.data(), a.data(), b.data(),
                       o.data()});
          this->expect_near(a, normed, 4, "normed"), this->expect_near(b, inverse, 8, "inverse");
          this->expect_near(o, out, 16, "normalise");
          r.norm_delta(n, V, a.data(), b.data(), w.data(), ldw, e.data(), rate.data(), 2, d.data(), s.data());
          this->expect_near(d, delta, 64, "norm_delta"), this->expect_near(s, scaled, 128, "scaled");
          if (ldw != 0) return;
          auto dw = d_w0, de = o, dn = o, sd = b, dy = plus;
          r.norm_delta_back(n, V, a.data(), b.data(), w.data(), e.data(), d.data(), t.data(), dw.data(), de.data(),
                            dn.data(), sd.data());
          this->expect_near(de, d_e, 64, "d_e"), this->expect_near(dn, d_n, 256, "d_normed");
          this->expect_near(sd, d_sd, 256, "d_sd");
          r.norm_back(n, V, a.data(), b.data(), w.data(), dw.data(), dn.data(), sd.data(), dy.data());
          this->expect_near(dy, d_y, 1024, "norm_back"), this->expect_near(dw, d_w, 512, "d_w");
        });
      }
    }
}

TYPED_TEST(NeuralSimdTest, RowsAndPairs) {
  using T = TypeParam;
  for (const Size n : {1, 5, 17})
    for (const Size V : {1, 15, 33}) {
      const auto x = this->normals(n * V), y = this->normals(n * V), z = this->normals(n * V),
                 f = this->normals(3 * n), row = this->normals(V), old = this->normals(V),
                 pairs = this->normals(n * n), gamma = this->normals(n * n);
      Doubles product, scaled, spread, added, sum(V), gated(pairs.begin(), pairs.end() - 1);
      for (Size i = 0; i < n; ++i)
        for (Size j = 0; j < V; ++j) {
          const Size at = i * V + j;
          product.push_back(double(x[at]) * double(y[at]) * double(z[at]));
          scaled.push_back(-double(f[3 * i]) * product.back());
          spread.push_back(double(f[i]) * double(row[j])), added.push_back(double(x[at]) + spread.back());
          sum[j] += 0.5 * double(f[i]) * double(x[at]) * double(y[at]);
        }
      for (Size j = 0; j < V; ++j) sum[j] += 3 * double(old[j]);
      for (Size i = 0; i < n; ++i)
        for (Size j = 0; j <= i; ++j) gated[i * n + j] = double(gamma[i * n + j]) * (gated[i * n + j] + 1);
      this->for_targets([&](const NeuralSimd<T>& r) {
        auto a = this->normals(n * V), b = a, c = this->normals(n * V), d = x, e = old, g = pairs;
        r.deltas(n, V, x.data(), y.data(), z.data(), f.data(), 3, a.data(), b.data());
        this->expect_near(a, product, 8, "deltas"), this->expect_near(b, scaled, 16, "scaled");
        r.spread(n, V, f.data(), row.data(), false, c.data()), r.spread(n, V, f.data(), row.data(), true, d.data());
        this->expect_near(c, spread, 8, "spread"), this->expect_near(d, added, 8, "added");
        r.collect(n, V, T(0.5), f.data(), x.data(), y.data(), T(3), e.data());
        this->expect_near(e, sum, 64, "collect");
        r.gate_pairs(n, T(1), gamma.data(), n, g.data(), n);
        this->expect_near(g, gated, 8, "gate_pairs");
      });
    }
}

// A state that counts: unit i multiplies by 3 and adds i. Every unit must see the state before it, whatever is kept.
TEST(NeuralPast, EveryUnitSeesTheStateBeforeIt) {
  for (const Size budget : {0, 1000})
    for (const Size longest : {0, 1, 2, 7, 16, 30})
      for (Size units = std::max<Size>(0, longest - 3); units <= longest; ++units)
        for (const bool ends : {false, true}) {
          const auto next = [](double x, Size i) { return std::fmod(3 * x + double(i), 1009.0); };
          Doubles want = {5};
          for (Size i = 0; i < units; ++i) want.push_back(next(want.back(), i));
          ttr::families::Arena count;
          ttr::families::neural::Past<double> counted(1, longest, count, budget);
          std::vector<double> memory(count.bytes() / 8 + 1, std::numeric_limits<double>::quiet_NaN());
          ttr::families::Arena arena(ttr::Workspace{memory.data(), memory.size() * 8});
          ttr::families::neural::Past<double> past(1, longest, arena, budget);
          double work = -1;
          Size last = units, steps = 0;
          past.run(
              units, ends,
              [&](Size i) {
                EXPECT_EQ(work, want[i]);
                work = next(work, i), ++steps;
              },
              [&](Size i, double* slot) {
                EXPECT_EQ(work, want[i]);
                *slot = work;
              },
              [&](Size, const double* slot) { work = slot ? *slot : want[0]; },
              [&](Size i, const double* slot, const double* after) {
                EXPECT_EQ(i, --last);
                EXPECT_EQ(slot ? *slot : want[0], want[i]);
                if (after || ends) {
                  EXPECT_EQ(after ? *after : work, want[i + 1]);
                }
              });
          EXPECT_EQ(last, 0);
          if (budget > 0) {
            EXPECT_EQ(steps, std::max<Size>(0, ends ? units : units - 1));
          } else {
            EXPECT_LE(steps, 2 * units);
          }
        }
}

}  // namespace
