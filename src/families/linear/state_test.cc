// Tokens through a state, one sweep for each: against plain loops in double for every instruction set, with NaN all
// around what may be read and guards around what may be written. One call has the bits of a call per token.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "families/linear/state_simd.h"
#include "simd_fixture.h"

namespace {

using ttr::Simd;
using ttr::state_simd;
using ttr::StateSimd;
using ttr_simd_test::kNan;
using ttr_simd_test::Matrix;
using ttr_simd_test::tolerance;
using Size = std::ptrdiff_t;

template <class T>
class StateTest : public ttr_simd_test::Matrices<T> {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(StateTest, Types);

TYPED_TEST(StateTest, BothStatesTurned) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    std::normal_distribution<double> normal;
    for (const Size K : {1, 5, 16, 35})
      for (const Size V : {1, 4, 7, 16})
        for (const bool scales : {false, true}) {
          std::vector<T> S(K * V), dS(K * V), late(K), St(V * K + 1, T(7)), dSt(V * K + 1, T(7)), dots(K + 1, T(7));
          for (std::vector<T>* x : {&S, &dS, &late})
            for (T& number : *x) number = static_cast<T>(normal(this->rng));
          auto scaled = dS;
          state_simd(s).turn_states(K, V, scales ? late.data() : nullptr, S.data(), dS.data(), scaled.data(),
                                    St.data(), dSt.data(), dots.data());
          for (Size i = 0; i < K; ++i) {
            double sum = 0, size = 1;
            for (Size j = 0; j < V; ++j) {
              const T d = scales ? late[i] * dS[i * V + j] : dS[i * V + j];
              ASSERT_EQ(scaled[i * V + j], d);
              ASSERT_EQ(dSt[j * K + i], d);
              ASSERT_EQ(St[j * K + i], S[i * V + j]);
              sum += double(S[i * V + j]) * double(d), size += std::abs(double(S[i * V + j]) * double(d));
            }
            ASSERT_NEAR(dots[i], sum, tolerance<T>(size));
          }
          ASSERT_EQ(St[V * K], T(7));
          ASSERT_EQ(dSt[V * K], T(7));
          ASSERT_EQ(dots[K], T(7));
        }
  });
}

TYPED_TEST(StateTest, TokensThroughAState) {
  using T = TypeParam;
  this->for_targets([&](const Simd<T>& s) {
    const Size L = s.lanes;
    for (const Size n : {0, 1, 2, 7, 8, 11})
      for (const Size K : {1, 2, 17})
        for (const Size V : {Size{1}, L + 1, 4 * L, 6 * L + 2})
          for (const bool reads : {false, true})
            for (const bool queries : {false, true}) {
              Matrix<T> S(K, V, this->rng), k(n, K, this->rng, T(0.3)), q(n, K, this->rng), v(n, V, this->rng),
                  o(n, V, this->rng), a(1, n, this->rng), b(1, n, this->rng), beta(1, n, this->rng);
              for (Size t = 0; t < n; ++t) a.at(0, t) = std::exp(-std::abs(a.at(0, t)));
              const T scale = T(0.5);
              Matrix<T> whole = S, place = S, single = S, o_place = o, o_single = o;
              std::vector<T> panel(StateSimd<T>::sweep_scratch(K), kNan<T>);
              const auto sweep = [&](Size t, Size count, Matrix<T>& state, Matrix<T>& out, T* scratch) {
                state_simd(s).sweep(count, K, V, a.data() + t, reads ? b.data() + t : nullptr, beta.data() + t, scale,
                                    k.data() + t * k.ld, k.ld, v.data() + t * v.ld, v.ld,
                                    queries ? q.data() + t * q.ld : nullptr, q.ld, state.data(), state.ld,
                                    out.data() + t * out.ld, out.ld, scratch);
              };
              sweep(0, n, whole, o, panel.data());
              sweep(0, n, place, o_place, nullptr);
              for (Size t = 0; t < n; ++t) sweep(t, 1, single, o_single, panel.data());
              for (Size j = 0; j < V; ++j) {
                std::vector<double> column(K);
                for (Size i = 0; i < K; ++i) column[i] = S.at(i, j);
                for (Size t = 0; t < n; ++t) {
                  double read = 0, answer = 0;
                  for (Size i = 0; i < K; ++i) read += double(k.at(t, i)) * column[i];
                  const double u =
                      double(beta.at(0, t)) * (double(v.at(t, j)) - (reads ? double(b.at(0, t)) * read : 0));
                  for (Size i = 0; i < K; ++i) {
                    column[i] = double(a.at(0, t)) * column[i] + double(k.at(t, i)) * u;
                    answer += double(scale) * double(q.at(t, i)) * column[i];
                  }
                  if (queries) {
                    ASSERT_NEAR(o.at(t, j), answer, tolerance<T>(200)) << n << " " << K << " " << V;
                  }
                  ASSERT_EQ(o.at(t, j), o_place.at(t, j));
                  ASSERT_EQ(o.at(t, j), o_single.at(t, j));
                }
                for (Size i = 0; i < K; ++i) {
                  ASSERT_NEAR(whole.at(i, j), column[i], tolerance<T>(200)) << n << " " << K << " " << V;
                  ASSERT_EQ(whole.at(i, j), place.at(i, j));
                  ASSERT_EQ(whole.at(i, j), single.at(i, j));
                }
              }
              ASSERT_TRUE(o.guards_hold() && whole.guards_hold() && place.guards_hold() && single.guards_hold());
            }
  });
}

// Every combination of parts that a family may ask for, forwards and (negative leading dimensions) backwards in time.
TYPED_TEST(StateTest, GatedTokensThroughAState) {
  using T = TypeParam;
  struct Parts {
    bool columns, beta, x, y, q, before, direct;
  };
  const Parts all[] = {{0, 0, 0, 0, 0, 0, 0}, {0, 1, 0, 0, 1, 0, 0}, {0, 1, 0, 0, 1, 1, 1}, {1, 0, 0, 0, 0, 0, 0},
                       {1, 0, 0, 0, 1, 0, 1}, {1, 1, 0, 0, 1, 1, 0}, {0, 1, 1, 0, 0, 0, 0}, {0, 1, 1, 0, 1, 0, 0},
                       {0, 0, 1, 1, 0, 0, 0}, {0, 1, 1, 1, 1, 0, 0}};
  this->for_targets([&](const Simd<T>& s) {
    const Size L = s.lanes;
    for (const Parts& has : all)
      for (const Size n : {0, 1, 2, 11})
        for (const Size K : {1, 2, 17})
          for (const Size V : {Size{1}, L + 1, 2 * L, 7 * L + 2})
            for (const bool reversed : {false, true}) {
              Matrix<T> S(K, V, this->rng), k(n, K, this->rng, T(0.3)), q(n, K, this->rng), v(n, V, this->rng),
                  o(n, V, this->rng), rows(n, K, this->rng), columns(n, V, this->rng), x(n, K, this->rng, T(0.3)),
                  y(n, K, this->rng, T(0.3)), beta(1, n, this->rng), direct(1, n, this->rng);
              for (Size t = 0; t < n; ++t) {
                for (Size i = 0; i < K; ++i) rows.at(t, i) = std::exp(-std::abs(rows.at(t, i)));
                for (Size j = 0; j < V; ++j) columns.at(t, j) = std::exp(-std::abs(columns.at(t, j)));
              }
              const T scale = T(0.5);
              const auto line = [&](Size t) { return reversed ? n - 1 - t : t; };
              const Size sign = reversed ? -1 : 1;
              const auto sweep = [&](Size t, Size count, Matrix<T>& state, Matrix<T>& out, T* scratch) {
                const auto at = [&](Matrix<T>& m) { return n == 0 ? m.data() : m.data() + line(t) * m.ld; };
                typename StateSimd<T>::Tokens a{
                    .n = count, .K = K, .V = V, .rows = at(rows), .ld_rows = sign * rows.ld};
                a.k = at(k), a.ldk = sign * k.ld, a.v = at(v), a.ldv = sign * v.ld, a.scale = scale;
                if (has.columns) a.columns = at(columns), a.ld_columns = sign * columns.ld;
                if (has.beta) a.beta = beta.data() + t;
                if (has.x) a.x = at(x), a.ldx = sign * x.ld;
                if (has.y) a.y = at(y), a.ldy = sign * y.ld;
                if (has.q) a.q = at(q), a.ldq = sign * q.ld;
                if (has.direct) a.direct = direct.data() + t;
                a.before = has.before;
                state_simd(s).gated_sweep(a, state.data(), state.ld, at(out), sign * out.ld, scratch);
              };
              Matrix<T> whole = S, place = S, single = S, o_place = o, o_single = o;
              std::vector<T> panel(StateSimd<T>::sweep_scratch(K), kNan<T>);
              sweep(0, n, whole, o, panel.data());
              sweep(0, n, place, o_place, nullptr);
              for (Size t = 0; t < n; ++t) sweep(t, 1, single, o_single, panel.data());
              for (Size j = 0; j < V; ++j) {
                std::vector<double> column(K);
                for (Size i = 0; i < K; ++i) column[i] = S.at(i, j);
                for (Size t = 0; t < n; ++t) {
                  const Size m = line(t);
                  double read = 0, answer = has.direct ? double(direct.at(0, t)) * double(v.at(m, j)) : 0;
                  for (Size i = 0; i < K; ++i) {
                    read += double(x.at(m, i)) * column[i];
                    if (has.before) answer += double(scale) * double(q.at(m, i)) * column[i];
                  }
                  double u = double(v.at(m, j)) - (has.x && !has.y ? read : 0);
                  if (has.beta) u *= double(beta.at(0, t));
                  for (Size i = 0; i < K; ++i) {
                    column[i] *= double(rows.at(m, i)) * (has.columns ? double(columns.at(m, j)) : 1);
                    column[i] += double(k.at(m, i)) * u + (has.y ? double(y.at(m, i)) * read : 0);
                    if (!has.before) answer += double(scale) * double(q.at(m, i)) * column[i];
                  }
                  if (has.q) {
                    ASSERT_NEAR(o.at(m, j), answer, tolerance<T>(200)) << n << " " << K << " " << V;
                  }
                  ASSERT_EQ(o.at(m, j), o_place.at(m, j));
                  ASSERT_EQ(o.at(m, j), o_single.at(m, j));
                }
                for (Size i = 0; i < K; ++i) {
                  ASSERT_NEAR(whole.at(i, j), column[i], tolerance<T>(200)) << n << " " << K << " " << V;
                  ASSERT_EQ(whole.at(i, j), place.at(i, j));
                  ASSERT_EQ(whole.at(i, j), single.at(i, j));
                }
              }
              ASSERT_TRUE(o.guards_hold() && whole.guards_hold() && place.guards_hold() && single.guards_hold());
            }
  });
}

}  // namespace
