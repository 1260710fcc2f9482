// Per-token operations run on vectors, whatever the strides: the bits of a row must depend on its numbers alone, on
// every instruction set, and the functions inside must be as accurate as those of the standard library.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "prepare/operations.h"
#include "simd/simd.h"

namespace ttr::prepare {
namespace {

using Size = std::ptrdiff_t;

// An operand: its width, heads that share one, the height of a matrix, and whether every token has its own.
struct Shape {
  int width, group = 1, height = 1;
  bool per_token = true;
};

struct Case {
  Op op;
  std::vector<Shape> from;
  Shape to;
  double number = 0, low = -2, high = 2;
};

constexpr int batch = 2, heads = 6;

// Every operation, on rows of D numbers.
std::vector<Case> cases(int D) {
  const auto two = [&](Op op, double low = -2, double high = 2) {
    return std::vector<Case>{{op, {{D}, {D, 2}}, {D}, 0, low, high},
                             {op, {{D, 3}, {1}}, {D}, 0, low, high},
                             {op, {{D}, {D, 1, 1, false}}, {D}, 0, low, high}};
  };
  const Shape bias{D, 6, 1, false}, weight{D, 1, 1, false};
  const int m = 5;
  std::vector<Case> all;
  const auto add = [&](const std::vector<Case>& more) { all.insert(all.end(), more.begin(), more.end()); };
  for (const Op op : {Op::multiply, Op::negative_product, Op::add, Op::subtract, Op::divide, Op::silu_gate,
                      Op::decay_rate_gate, Op::phase_step})
    add(two(op));
  for (const Op op : {Op::leak_gate, Op::lower_bound_gate, Op::precondition, Op::implicit_step})
    add(two(op, 0.1, 0.9));
  for (const Op op :
       {Op::scale, Op::sigmoid, Op::log_sigmoid, Op::softplus, Op::exp, Op::exp_negative, Op::one_minus_exp, Op::elu1,
        Op::relu, Op::silu, Op::unit_norm, Op::rms_norm, Op::unit_norm_clamp, Op::softmax})
    add({{op, {{D}}, {D}, 0.3}, {op, {{D, 2}}, {D}, 0}});
  add({{Op::shrink_gate, {{D}}, {D}, 0, 0.1, 0.9},
       {Op::log, {{D, 2}}, {D}, 0, 0.1, 0.9},
       {Op::log_magnitude, {{D, 2}}, {D}, 0, 0.1, 0.9},
       {Op::twice_less_one, {{D, 2}}, {D}},
       {Op::with_sign, {{D, 2}, {1, 3}}, {D}},
       {Op::root_complement, {{D}}, {D}, 0, -2, -0.1},
       {Op::sum_norm, {{D}}, {D}, 0, 0.1, 0.9},
       {Op::skip, {{D}, {D, 2}, {1}}, {D}},
       {Op::skip, {{D}, {D, 3}, weight}, {D}},
       {Op::blend_product, {{D}, {D, 2}, weight}, {D}},
       {Op::blend_product, {{D}, {1, 2}, {1, 3}}, {D}},
       {Op::bonus_value, {{D, 2}, {D, 2}, weight, {m}}, {m}},
       {Op::join_three, {{1}, {1, 2}, {1}}, {3}},
       {Op::first_half, {{2 * D, 2}}, {D}},
       {Op::second_half, {{2 * D}}, {D}},
       {Op::spread_last, {{D, 2}}, {D}, 3},
       {Op::spread_first, {{D}}, {D}, 2},
       {Op::take_last, {{D}}, {D}, 3},
       {Op::interleave, {{D}, {D, 2}}, {D}},
       {Op::outer_product, {{D, 2}, {D, 1, m, false}}, {D, 1, m}},
       {Op::erase_log, {{m, 2}, {D}}, {D, 1, m}, 0, 0.1, 0.9},
       {Op::layer_norm, {{D}, bias, bias}, {D}, 1e-5},
       {Op::rms_norm_weighted, {{D}, weight}, {D}, 1e-5},
       {Op::square_norm, {{D}}, {1}},
       {Op::nlms_step, {{1}, {D, 2}}, {1}, 0.1, 0.1, 0.9},
       {Op::longhorn_step, {{1}, {D, 3}}, {1}, 0, 0.1, 0.9},
       {Op::flow_step, {{1}, {D}}, {1}, 0, 0.1, 0.9},
       {Op::repeated_step, {{1}, {D, 2}}, {1}, 3, 0.01, 0.3},
       {Op::cosformer, {{D, 2}, {1, 6}}, {2 * D}, 50},
       {Op::dpfp, {{D}}, {2 * D}, 1},
       {Op::rotary_interleaved, {{D}, {1, 6}}, {D}, 100},
       {Op::rotary_half, {{D, 2}, {1, 6}}, {D}, 100},
       {Op::rotate, {{D}, {D / 2 > 0 ? D / 2 : 1}}, {D}}});
  if (D == 1) all.pop_back();  // a row of one number has no pair to turn
  const auto wide = [&](Op op, double number = 0) {
    return Shape{static_cast<int>(feature_width(op, D, 0, number))};
  };
  add({{Op::taylor2, {{D, 2}}, wide(Op::taylor2)},
       {Op::quadratic, {{D}}, wide(Op::quadratic)},
       {Op::rebased, {{D}, bias, weight}, wide(Op::rebased)},
       {Op::polynomial, {{D, 3}}, wide(Op::polynomial, 2), 2}});
  for (const Op op : {Op::rms_gate_norm_first_silu, Op::rms_gate_norm_first_sigmoid, Op::rms_gate_gate_first_silu,
                      Op::rms_gate_gate_first_sigmoid})
    add({{op, {{D}, {D, 2}, bias}, {D}, 1e-5}});
  return all;
}

enum class Layout { dense, padded, spaced, reversed, heads_first };

// A tensor in some layout, and rows that look at it. Numbers between its own are NaN.
template <class T>
struct Stored {
  Shape shape;
  Size time, stride[5];  // batch, time, head, outer, inner
  std::vector<T> memory;
  Size start = 0;
  Stored(const Shape& s, Size tokens, Layout layout) : shape(s), time(s.per_token ? tokens : 1) {
    const Size own = heads / s.group, gap = layout == Layout::spaced ? 3 : 1, rest = layout == Layout::padded ? 2 : 0;
    stride[4] = gap, stride[3] = s.width * gap + rest;
    const Size one = stride[3] * s.height;
    if (layout == Layout::heads_first) stride[1] = one, stride[2] = one * time, stride[0] = one * time * own;
    else stride[2] = one + rest, stride[1] = stride[2] * own + rest, stride[0] = stride[1] * time;
    const Size size = (s.per_token ? batch : 1) * (layout == Layout::heads_first ? one * time * own : stride[0]);
    memory.assign(static_cast<std::size_t>(size), std::numeric_limits<T>::quiet_NaN());
    if (layout == Layout::reversed) {
      start = size - 1;
      for (Size& n : stride) n = -n;
    }
    if (!s.per_token) stride[0] = stride[1] = 0;
  }
  template <class F>
  void each(const F& f) {
    for (Size b = 0; b < (shape.per_token ? batch : 1); ++b)
      for (Size t = 0; t < time; ++t)
        for (Size h = 0; h < heads / shape.group; ++h)
          for (Size i = 0; i < shape.height; ++i)
            for (Size d = 0; d < shape.width; ++d)
              f(memory[static_cast<std::size_t>(start + b * stride[0] + t * stride[1] + h * stride[2] +
                                                i * stride[3] + d * stride[4])]);
  }
  void fill(unsigned seed, double low, double high) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(low, high);
    each([&](T& x) { x = static_cast<T>(static_cast<float>(uniform(random))); });
  }
  std::vector<T> numbers() {
    std::vector<T> all;
    each([&](T& x) { all.push_back(x); });
    return all;
  }
  template <class N>
  Rows<N> rows(Size from_token = 0) {
    return {memory.data() + start + from_token * stride[1],
            stride[0],
            stride[1],
            stride[2],
            stride[4],
            shape.group,
            shape.width,
            shape.height > 1 ? stride[3] : 0,
            shape.height};
  }
};

template <class T>
struct Answer {
  std::vector<T> y;
  std::vector<std::vector<T>> dx;
};

// Tokens of the result and of the operands that belong together. A call on a part of the tokens has the bits of the
// whole if it starts and ends between such blocks.
struct TokenRatio {
  Size result = 1, operands = 1;
};
TokenRatio token_ratio(const Case& c) {
  const Size pairs = static_cast<Size>(c.number);
  switch (facts(c.op).tokens) {
    case Tokens::spread:
      return {pairs, 1};
    case Tokens::taken:
      return {1, pairs};
    case Tokens::doubled:
      return {2, 1};
    default:
      return {1, 1};
  }
}

// The operation on `tokens` blocks of tokens (one token, but for those that change their number), cut into two calls.
template <class T>
Answer<T> run(const Case& c, Layout layout, Size tokens, Size cut, const Simd<T>* simd = nullptr) {
  const TokenRatio ratio = token_ratio(c);
  std::vector<Stored<T>> from, d_from;
  for (std::size_t i = 0; i < c.from.size(); ++i) {
    from.emplace_back(c.from[i], tokens * ratio.operands, layout).fill(static_cast<unsigned>(i), c.low, c.high);
    d_from.emplace_back(c.from[i], tokens * ratio.operands, layout).fill(9, 0.25, 0.25);
  }
  Stored<T> to(c.to, tokens * ratio.result, layout), d_to(c.to, tokens * ratio.result, layout);
  d_to.fill(77, -0.5, 0.5);
  for (const auto& [begin, end] : {std::pair<Size, Size>{0, cut}, {cut, tokens}}) {
    Rows<const T> x[max_operands];
    Rows<T> dx[max_operands];
    for (std::size_t i = 0; i < from.size(); ++i) {
      const Size first = c.from[i].per_token ? begin * ratio.operands : 0;
      x[i] = from[i].template rows<const T>(first), dx[i] = d_from[i].template rows<T>(first);
    }
    const Extent extent{batch, (end - begin) * ratio.result, heads};
    EXPECT_EQ(forward<T>(c.op, x, to.template rows<T>(begin * ratio.result), c.number, extent, simd), Status::ok);
    backward<T>(c.op, x, to.template rows<const T>(begin * ratio.result),
                d_to.template rows<const T>(begin * ratio.result), dx, c.number, extent, simd);
  }
  Answer<T> a{to.numbers(), {}};
  for (Stored<T>& d : d_from) a.dx.push_back(d.numbers());
  return a;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}
template <class T>
void expect_near(const std::vector<T>& a, const std::vector<T>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  double largest = 1;
  for (const T x : b) largest = std::max(largest, std::abs(double(x)));
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(double(a[i]), double(b[i]), tolerance * largest) << "element " << i;
}

template <class T>
class PreparePaths : public testing::Test {
 protected:
  static constexpr double rounding = sizeof(T) == 4 ? 4e-6 : 1e-14;
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(PreparePaths, Types);

const int widths[] = {1, 3, 8, 17, 37, 70};

std::string name(const Case& c, int D) { return name(c.op) + std::string(", D ") + std::to_string(D); }

// Results and gradients of rows have the same bits in every layout; sums over rows go in another order.
TYPED_TEST(PreparePaths, StridesDoNotMatter) {
  using T = TypeParam;
  for (const int D : widths)
    for (const Case& c : cases(D)) {
      const Answer<T> dense = run<T>(c, Layout::dense, 5, 5);
      for (const T y : dense.y) ASSERT_TRUE(std::isfinite(y)) << name(c, D);
      for (const Layout layout : {Layout::padded, Layout::spaced, Layout::reversed, Layout::heads_first}) {
        SCOPED_TRACE(name(c, D) + ", layout " + std::to_string(static_cast<int>(layout)));
        const Answer<T> other = run<T>(c, layout, 5, 5);
        EXPECT_TRUE(same(other.y, dense.y));
        for (std::size_t i = 0; i < dense.dx.size(); ++i) {
          const Shape& s = c.from[i];
          if (s.per_token && s.group == 1 && (s.width > 1 || c.to.width == 1) && c.to.height == 1) {
            EXPECT_TRUE(same(other.dx[i], dense.dx[i])) << "operand " << i;
          }
          expect_near(other.dx[i], dense.dx[i], this->rounding);
        }
      }
    }
}

TYPED_TEST(PreparePaths, CuttingTheTimeDoesNotMatter) {
  using T = TypeParam;
  for (const int D : widths)
    for (const Case& c : cases(D)) {
      if (depends_on_time_index(c.op)) continue;
      const Answer<T> whole = run<T>(c, Layout::dense, 7, 7);
      for (const Size cut : {1, 4}) {
        SCOPED_TRACE(name(c, D) + ", cut " + std::to_string(cut));
        const Answer<T> parts = run<T>(c, Layout::dense, 7, cut);
        EXPECT_TRUE(same(parts.y, whole.y));
        for (std::size_t i = 0; i < whole.dx.size(); ++i) {
          if (c.from[i].per_token) {
            EXPECT_TRUE(same(parts.dx[i], whole.dx[i])) << "operand " << i;
          }
          expect_near(parts.dx[i], whole.dx[i], this->rounding);
        }
      }
    }
}

TYPED_TEST(PreparePaths, InstructionSetsAgree) {
  using T = TypeParam;
  for (const int D : {3, 37})
    for (const Case& c : cases(D)) {
      const Answer<T> best = run<T>(c, Layout::dense, 5, 5);
      for (const std::string& target : simd_targets()) {
        SCOPED_TRACE(name(c, D) + " on " + target);
        const Answer<T> other = run<T>(c, Layout::dense, 5, 5, &simd<T>(target));
        expect_near(other.y, best.y, this->rounding);
        for (std::size_t i = 0; i < best.dx.size(); ++i) expect_near(other.dx[i], best.dx[i], this->rounding);
      }
    }
}

// One bad number: found wherever it is, and no other element changes.
TYPED_TEST(PreparePaths, OneNumberOutsideTheDomain) {
  using T = TypeParam;
  const int D = 37;
  struct Bad {
    Op op;
    T value;
  };
  for (const Bad& bad : {Bad{Op::log, T(-1)}, Bad{Op::shrink_gate, T(1.5)}, Bad{Op::root_complement, T(0.5)}})
    for (const std::string& target : simd_targets())
      for (int at = 0; at < D; ++at) {
        std::vector<T> x(D, bad.op == Op::root_complement ? T(-0.5) : T(0.5)), y(D), clean(D);
        const Rows<const T> from{x.data(), 0, 0, 0, 1, 1, D};
        const auto go = [&](std::vector<T>& to) {
          return forward<T>(bad.op, &from, Rows<T>{to.data(), 0, 0, 0, 1, 1, D}, 0, {1, 1, 1}, &simd<T>(target));
        };
        EXPECT_EQ(go(clean), Status::ok);
        x[static_cast<std::size_t>(at)] = bad.value;
        EXPECT_EQ(go(y), Status::out_of_domain) << at;
        y[static_cast<std::size_t>(at)] = clean[static_cast<std::size_t>(at)];
        EXPECT_TRUE(same(y, clean));
      }
}

TYPED_TEST(PreparePaths, NanStaysNanAndInItsPlace) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  for (const Op op : {Op::sigmoid, Op::log_sigmoid, Op::softplus, Op::exp, Op::exp_negative, Op::one_minus_exp,
                      Op::elu1, Op::relu, Op::silu, Op::scale, Op::log, Op::shrink_gate, Op::root_complement})
    for (const std::string& target : simd_targets()) {
      std::vector<T> x(19, T(-0.5)), y(19);
      if (op == Op::log) std::fill(x.begin(), x.end(), T(0.5));
      x[4] = x[18] = nan;
      const Rows<const T> from{x.data(), 0, 0, 0, 1, 1, 19};
      forward<T>(op, &from, Rows<T>{y.data(), 0, 0, 0, 1, 1, 19}, 1, {1, 1, 1}, &simd<T>(target));
      for (std::size_t i = 0; i < 19; ++i)
        EXPECT_EQ(std::isnan(y[i]), i == 4 || i == 18) << name(op) << " on " << target;
    }
}

// Cosines and sines, by rotating (1, 0): in the whole range, and where the argument is too large to be reduced quickly.
TYPED_TEST(PreparePaths, TurnsAreAccurate) {
  using T = TypeParam;
  constexpr int n = 4001;
  for (const double size : {1.0, 10.0, 1e3, 1e4, 1e6, 1e8})
    for (const std::string& target : simd_targets()) {
      std::vector<T> phi(n), x(2 * n), y(2 * n);
      for (int i = 0; i < n; ++i)
        phi[static_cast<std::size_t>(i)] = static_cast<T>(size * (2.0 * i / (n - 1) - 1)),
        x[static_cast<std::size_t>(2 * i)] = 1;
      const Rows<const T> from[2] = {{x.data(), 0, 0, 0, 1, 1, 2 * n}, {phi.data(), 0, 0, 0, 1, 1, n}};
      ASSERT_EQ(forward<T>(Op::rotate, from, Rows<T>{y.data(), 0, 0, 0, 1, 1, 2 * n}, 0, {1, 1, 1}, &simd<T>(target)),
                Status::ok);
      for (std::size_t i = 0; i < n; ++i) {
        const long double angle = phi[i];
        const double tolerance = std::numeric_limits<T>::epsilon();
        ASSERT_NEAR(double(y[2 * i]), double(std::cos(angle)), tolerance) << target << " at " << phi[i];
        ASSERT_NEAR(double(y[2 * i + 1]), double(std::sin(angle)), tolerance) << target << " at " << phi[i];
      }
    }
}

// Against the standard library in a wider type, over the whole range: errors in units of the last place.
TYPED_TEST(PreparePaths, FunctionsAreAccurate) {
  using T = TypeParam;
  using W = long double;
  struct Function {
    Op op;
    W (*exact)(W);
    double low, high, units;
  };
  static const auto softplus = [](W x) { return std::max<W>(x, 0) + std::log1p(std::exp(-std::abs(x))); };
  const Function functions[] = {
      {Op::exp, [](W x) { return std::exp(x); }, -80, 80, 1.5},
      {Op::log, [](W x) { return std::log(x); }, 1e-20, 10, 1.5},
      {Op::log, [](W x) { return std::log(x); }, 0.9, 1.1, 1.5},
      {Op::sigmoid, [](W x) { return 1 / (1 + std::exp(-x)); }, -80, 80, 3},
      {Op::softplus, [](W x) { return softplus(x); }, -80, 80, 3},
      {Op::log_sigmoid, [](W x) { return -softplus(-x); }, -20, 20, 3},
      {Op::silu, [](W x) { return x / (1 + std::exp(-x)); }, -80, 80, 3.5},
      {Op::one_minus_exp, [](W x) { return -std::expm1(x); }, -40, 2, 2.5},
      {Op::one_minus_exp, [](W x) { return -std::expm1(x); }, -1e-3, 1e-3, 2},
      {Op::elu1, [](W x) { return x > 0 ? x + 1 : std::exp(x); }, -80, 80, 1.5},
      {Op::root_complement, [](W x) { return std::sqrt(-std::expm1(2 * x)); }, -3, 0, 2.5},
  };
  constexpr int n = 20001;
  std::vector<T> x(n), y(n);
  for (const Function& f : functions)
    for (const std::string& target : simd_targets()) {
      for (int i = 0; i < n; ++i)
        x[static_cast<std::size_t>(i)] = static_cast<T>(f.low + (f.high - f.low) * i / (n - 1));
      const Rows<const T> from{x.data(), 0, 0, 0, 1, 1, n};
      ASSERT_EQ(forward<T>(f.op, &from, Rows<T>{y.data(), 0, 0, 0, 1, 1, n}, 0, {1, 1, 1}, &simd<T>(target)),
                Status::ok);
      double worst = 0, at = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const W exact = f.exact(W(x[i]));
        const T next = std::nextafter(static_cast<T>(std::abs(exact)), std::numeric_limits<T>::infinity());
        const W unit = std::max<W>(W(next) - W(static_cast<T>(std::abs(exact))), std::numeric_limits<T>::min());
        const double error = static_cast<double>(std::abs(W(y[i]) - exact) / unit);
        if (error > worst) worst = error, at = x[i];
      }
      EXPECT_LE(worst, f.units) << name(f.op) << " on " << target << " at " << at;
    }
}

}  // namespace
}  // namespace ttr::prepare
