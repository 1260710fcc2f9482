// One query through lists in every type they are kept in (kept_simd.h), against loops over the widened numbers.
#include "families/pairs/attention/kept_simd.h"

#include "simd/half_simd.h"
#include "simd_fixture.h"

namespace ttr_simd_test {
namespace {

using ttr::KeptSimd;
using ttr::Type;

// [n, heads, dim] of `type` in a list of one head more, with something that is not a number around it, and its numbers.
struct List {
  Size n, heads, dim;
  std::vector<float> scales, numbers;
  std::vector<std::uint32_t> memory;
  KeptSimd::Rows rows{};

  List(Type type, Size n_, Size heads_, Size dim_, std::mt19937& rng) : n(n_), heads(heads_), dim(dim_) {
    std::normal_distribution<float> normal;
    const Size all = n * (heads + 1), size = static_cast<Size>(ttr::size_of(type));
    numbers.resize(static_cast<std::size_t>(all * dim)), scales.resize(static_cast<std::size_t>(all));
    for (float& x : numbers) x = normal(rng);
    memory.assign(static_cast<std::size_t>(all * dim + 64), 0x7fc07fc0u);
    char* const bytes = reinterpret_cast<char*>(memory.data());
    const ttr::HalfSimd& convert = half_simd(ttr::simd<float>(""));
    for (Size row = 0; row < all; ++row) {
      float* const x = numbers.data() + row * dim;
      void* const to = bytes + row * dim * size;
      auto* const half = static_cast<std::uint16_t*>(to);
      if (type == Type::f32) std::copy_n(x, dim, static_cast<float*>(to));
      else if (type == Type::bf16) convert.narrow_bf16(dim, x, half), convert.widen_bf16(dim, half, x);
      else if (type == Type::f16) convert.narrow_f16(dim, x, half), convert.widen_f16(dim, half, x);
      else {
        auto* const small = static_cast<std::int8_t*>(to);
        const float scale = scales[static_cast<std::size_t>(row)] = convert.narrow_i8(dim, x, small);
        convert.widen_i8(dim, small, scale, x);
      }
    }
    rows = {type, n, heads, dim, bytes, (heads + 1) * dim};
    if (type == Type::i8) rows.scales = scales.data(), rows.next_scale = heads + 1;
  }
  double at(Size i, Size head, Size c) const {
    return static_cast<double>(numbers[static_cast<std::size_t>((i * (heads + 1) + head) * dim + c)]);
  }
};

using KeptRows = Primitives<float>;

TEST_F(KeptRows, AgainstLoops) {
  const auto near = [](float got, double want, double size) {
    EXPECT_NEAR(static_cast<double>(got), want, tolerance(size));
  };
  for (const Type type : {Type::f32, Type::bf16, Type::f16, Type::i8})
    for (const Size group : {1, 2, 3})
      for (const Size dim : {1, 6, 16, 37, 64, 130})
        for (const Size n : {1, 3, 4, 11}) {
          const Size heads = 3, queries = heads * group, lds = n + 2;
          SCOPED_TRACE(std::string(to_string(type)) + " group " + std::to_string(group) + " dim " +
                       std::to_string(dim) + " n " + std::to_string(n));
          const List list(type, n, heads, dim, rng), next(type, n + 1, heads, dim, rng);
          const std::vector<float> q = normals(queries * dim), W = normals(queries * lds),
                                   before = normals(queries * dim);
          const auto number = [](const std::vector<float>& x, Size i) {
            return static_cast<double>(x[static_cast<std::size_t>(i)]);
          };
          for_targets([&](const ttr::Simd<float>& simd) {
            const KeptSimd& kept = kept_simd(simd);
            for (const bool apart : {false, true}) {
              std::vector<float> S(static_cast<std::size_t>(queries * lds), 7.0f);
              kept.scores(list.rows, group, apart, q.data(), S.data(), lds, apart ? next.rows : KeptSimd::Rows{});
              for (Size a = 0; a < queries; ++a)
                for (Size i = 0; i < lds; ++i) {
                  double want = 0, size = 0;
                  for (Size c = 0; i < n && c < dim; ++c) {
                    const double x = number(q, a * dim + c), y = list.at(i, a / group, c);
                    const double term = apart ? (x - y) * (x - y) : x * y;
                    want += term, size += std::abs(term);
                  }
                  near(S[static_cast<std::size_t>(a * lds + i)], i < n ? want : 7, size);
                }
            }
            std::vector<float> acc = before;
            kept.add(list.rows, group, W.data(), lds, acc.data(), next.rows);
            for (Size a = 0; a < queries; ++a)
              for (Size c = 0; c < dim; ++c) {
                double want = number(before, a * dim + c), size = std::abs(want);
                for (Size i = 0; i < n; ++i) {
                  const double term = number(W, a * lds + i) * list.at(i, a / group, c);
                  want += term, size += std::abs(term);
                }
                near(acc[static_cast<std::size_t>(a * dim + c)], want, size);
              }
          });
        }
}

// A head's bits do not depend on the heads that are read with it.
TEST_F(KeptRows, HeadsAreApart) {
  for (const Type type : {Type::f32, Type::bf16, Type::f16, Type::i8}) {
    const Size n = 13, heads = 4, dim = 40, group = 3, lds = 16;
    const List list(type, n, heads, dim, rng);
    const std::vector<float> q = normals(heads * group * dim), W = normals(heads * group * lds);
    for_targets([&](const ttr::Simd<float>& simd) {
      const KeptSimd& kept = kept_simd(simd);
      std::vector<float> S(heads * group * lds, 0.0f), acc(heads * group * dim, 0.0f), own_S = S, own = acc;
      kept.scores(list.rows, group, false, q.data(), S.data(), lds, {});
      kept.add(list.rows, group, W.data(), lds, acc.data(), {});
      for (Size a = 0; a < heads * group; ++a) {
        KeptSimd::Rows one = list.rows;
        one.heads = 1;
        one.data = static_cast<const char*>(one.data) + a / group * dim * static_cast<Size>(ttr::size_of(type));
        if (one.scales) one.scales += a / group;
        kept.scores(one, 1, false, q.data() + a * dim, own_S.data() + a * lds, lds, {});
        kept.add(one, 1, W.data() + a * lds, lds, own.data() + a * dim, {});
      }
      EXPECT_EQ(S, own_S);
      EXPECT_EQ(acc, own);
    });
  }
}

}  // namespace
}  // namespace ttr_simd_test
