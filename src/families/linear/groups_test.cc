// Tokens in groups through a state without gates: against plain loops in double for every instruction set, at group
// ends and beyond, in place and through a panel. A column's bits do not depend on its neighbours, and, without reads,
// not on the groups either.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "families/linear/state_simd.h"
#include "simd_fixture.h"

namespace {

using ttr::Simd;
using ttr::state_simd;
using ttr::StateSimd;
using Size = std::ptrdiff_t;

/// Rows of numbers with NaN between them.
template <class T>
struct Rows {
  Size rows, cols, ld;
  std::vector<T> memory;
  Rows(Size m, Size n, const std::vector<T>& numbers, double size)
      : rows(m),
        cols(n),
        ld(n + 3),
        memory(static_cast<std::size_t>(m * ld + 3), std::numeric_limits<T>::quiet_NaN()) {
    for (Size i = 0; i < m; ++i)
      for (Size j = 0; j < n; ++j) at(i, j) = static_cast<T>(size) * numbers[static_cast<std::size_t>(i * n + j)];
  }
  T* row(Size i) { return memory.data() + 3 + i * ld; }
  T& at(Size i, Size j) { return row(i)[j]; }
  bool gaps_hold() {
    for (Size i = -1; i < rows; ++i)
      for (Size j = std::max<Size>(cols, i < 0 ? ld - 3 : 0); j < ld; ++j)
        if (!std::isnan(row(i)[j])) return false;
    return true;
  }
};

struct Parts {
  bool x, y, q, before, direct, write, read, answer, late, even;
};
constexpr Parts parts[] = {
    {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 1, 0, 0, 1, 0, 1, 1, 1}, {0, 0, 1, 1, 1, 0, 0, 0, 1, 0},
    {0, 0, 1, 0, 1, 1, 0, 0, 1, 0}, {1, 0, 0, 0, 0, 1, 1, 0, 1, 1}, {1, 0, 1, 0, 0, 1, 1, 1, 1, 1},
    {1, 0, 1, 0, 0, 0, 0, 0, 1, 0}, {1, 1, 0, 0, 0, 0, 0, 0, 1, 0}, {1, 1, 1, 0, 0, 1, 0, 0, 1, 0},
};

template <class T>
class SimdGroups : public ttr_simd_test::Primitives<T> {
 protected:
  // frames: how many tokens they have, by turns; empty: one frame. few: most factors of rows at their ends are 1.
  void check(const Simd<T>& s, const Parts& has, Size n, Size K, Size V, const std::vector<Size>& frames = {},
             bool few = false) {
    SCOPED_TRACE(testing::Message() << "n " << n << " K " << K << " V " << V << " part " << &has - parts << " frames "
                                    << frames.size());
    std::vector<Size> ends;
    for (Size t = 0; !frames.empty() && t < n;)
      ends.push_back(t = std::min(n, t + frames[ends.size() % frames.size()]));
    const auto ends_at = [&](Size t) { return t == n || std::find(ends.begin(), ends.end(), t) != ends.end(); };
    const double small = 0.4 / std::sqrt(static_cast<double>(K));
    const auto rows = [&](Size m, Size cols, double size) { return Rows<T>(m, cols, this->normals(m * cols), size); };
    const Rows<T> S = rows(K, V, 1), o = rows(n, V, 1);
    Rows<T> k = rows(n, K, small), q = rows(n, K, 1), x = rows(n, K, small), y = rows(n, K, small);
    Rows<T> v = rows(n, V, 1);
    std::vector<T> write = this->normals(n), read = this->normals(n), answer = this->normals(n),
                   direct = this->normals(n), late = this->normals(n * K);
    for (Size i = 0; few && i < n * K; ++i)
      if (i % 29 != 0) late[static_cast<std::size_t>(i)] = T(1);
    const T scale = T(0.5);
    std::vector<T> panel(static_cast<std::size_t>(StateSimd<T>::sweep_scratch(K)),
                         std::numeric_limits<T>::quiet_NaN());
    // Tokens t .. t+count-1 through columns j .. of a state.
    const auto sweep = [&](Size t, Size count, Size j, Size width, Rows<T>& state, Rows<T>& out, T* scratch) {
      typename StateSimd<T>::Group a{.n = count, .K = K, .V = width};
      a.k = k.row(t), a.ldk = k.ld, a.v = v.row(t) + j, a.ldv = v.ld, a.scale = scale, a.before = has.before;
      if (has.x) a.x = x.row(t), a.ldx = x.ld;
      if (has.y) a.y = y.row(t), a.ldy = y.ld;
      if (has.q) a.q = q.row(t), a.ldq = q.ld;
      if (has.write) a.write = write.data() + t;
      if (has.read) a.read = read.data() + t;
      if (has.answer) a.answer = answer.data() + t;
      if (has.direct) a.direct = direct.data() + t;
      if (has.late && ends_at(t + count)) {
        a.late = late.data() + t * K, a.ld_late = K, a.late_step = has.even ? 0 : 1;
        if (t == 0 && count == n) a.ends = ends.data(), a.frames = static_cast<Size>(ends.size());
      }
      ttr::Hints hints;
      hints.pieces[0] = {reinterpret_cast<const char*>(write.data()), 8, 8, n}, hints.count = 1;
      a.hints = scratch ? &hints : nullptr;
      state_simd(s).group_sweep(a, state.row(0) + j, state.ld, out.row(t) + j, out.ld, scratch);
    };
    Rows<T> whole = S, place = S, single = S, halves = S, o_whole = o, o_place = o, o_single = o, o_halves = o;
    sweep(0, n, 0, V, whole, o_whole, panel.data());
    sweep(0, n, 0, V, place, o_place, nullptr);
    for (Size t = 0; t < n; ++t) sweep(t, 1, 0, V, single, o_single, panel.data());
    sweep(0, n, 0, V / 2, halves, o_halves, panel.data());
    sweep(0, n, V / 2, V - V / 2, halves, o_halves, nullptr);
    Rows<T> start = S, untouched = o;
    for (Size j = 0; j < V; ++j) {
      std::vector<double> column(static_cast<std::size_t>(K));
      for (Size i = 0; i < K; ++i) column[static_cast<std::size_t>(i)] = start.at(i, j);
      double most = 1;
      for (Size t = 0; t < n; ++t) {
        const auto at = static_cast<std::size_t>(t);
        double r = 0, out = 0;
        for (Size i = 0; i < K; ++i) {
          const double state = column[static_cast<std::size_t>(i)];
          r += double{x.at(t, i)} * state;
          if (has.before) out += double{q.at(t, i)} * state;
        }
        double u = (has.write ? double{write[at]} : 1) * double{v.at(t, j)};
        if (has.x && !has.y) u -= (has.read ? double{read[at]} : 1) * r;
        for (Size i = 0; i < K; ++i) {
          double& state = column[static_cast<std::size_t>(i)];
          state += double{k.at(t, i)} * u + (has.y ? double{y.at(t, i)} * r : 0);
          if (!has.before) out += double{q.at(t, i)} * state;
          most = std::max(most, std::abs(state));
        }
        out = double{scale} * (has.answer ? double{answer[at]} : 1) * out +
              (has.direct ? double{direct[at]} * double{v.at(t, j)} : 0);
        if (has.q) {
          ASSERT_NEAR(o_whole.at(t, j), out, this->tolerance(20 * most)) << t << " " << j;
        } else {
          ASSERT_EQ(o_whole.at(t, j), untouched.at(t, j));
        }
        ASSERT_EQ(o_whole.at(t, j), o_place.at(t, j));
        ASSERT_EQ(o_whole.at(t, j), o_halves.at(t, j));
        if (!has.x) {
          ASSERT_EQ(o_whole.at(t, j), o_single.at(t, j));
        }
        for (Size i = 0; has.late && ends_at(t + 1) && i < K; ++i)
          column[static_cast<std::size_t>(i)] *= double{late[static_cast<std::size_t>(t * K + (has.even ? 0 : i))]};
      }
      for (Size i = 0; i < K; ++i) {
        ASSERT_NEAR(whole.at(i, j), column[static_cast<std::size_t>(i)], this->tolerance(20 * most)) << i;
        ASSERT_EQ(whole.at(i, j), place.at(i, j));
        ASSERT_EQ(whole.at(i, j), halves.at(i, j));
        if (!has.x) {
          ASSERT_EQ(whole.at(i, j), single.at(i, j));
        }
      }
    }
    ASSERT_TRUE(whole.gaps_hold() && place.gaps_hold() && halves.gaps_hold());
    ASSERT_TRUE(o_whole.gaps_hold() && o_place.gaps_hold() && o_halves.gaps_hold());
  }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(SimdGroups, Types);

TYPED_TEST(SimdGroups, AgainstLoops) {
  this->for_targets([&](const Simd<TypeParam>& s) {
    const Size L = s.lanes, apart = 512 / static_cast<Size>(sizeof(TypeParam));
    for (const Parts& has : parts) {
      for (const Size n : {0, 1, 2, 3, 4, 5, 7, 8, 11})
        for (const Size K : {1, 9, 16})
          for (const Size V : {Size{1}, L + 1, 2 * L, 5 * L + 2, apart + 1}) this->check(s, has, n, K, V);
      for (const Size n : {63, 64, 65, 130}) this->check(s, has, n, 17, 3 * L + 1);
      if (!has.late) continue;
      for (const std::vector<Size>& frames : {std::vector<Size>{1}, {2}, {4}, {3, 8, 1, 2}, {5, 1, 61}})
        for (const Size n : {7, 16, 65, 130}) this->check(s, has, n, 9, 3 * L + 1, frames);
      for (const Size K : {16, 41, 530}) this->check(s, has, 21, K, 3 * L + 1, {4, 6}, true);
    }
  });
}

}  // namespace
