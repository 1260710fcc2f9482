// The passes of one query over rows (local_linear_simd.h) against loops: the direct solve would repair what they get wrong.
#include <gtest/gtest.h>

#include "families/pairs/local_linear/local_linear_simd.h"
#include "simd_fixture.h"

namespace ttr_simd_test {
namespace {

template <class T>
class OneQuery : public Primitives<T> {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(OneQuery, Types);

TYPED_TEST(OneQuery, AgainstLoops) {
  using T = TypeParam;
  for (const Size K : {1, 7, 32, 64, 100, 128})
    for (const Size n : {1, 3, 4, 21, 64}) {
      SCOPED_TRACE("K " + std::to_string(K) + " n " + std::to_string(n));
      const std::vector<T> rows = this->normals(n * K), x = this->normals(K + 1), weights = this->normals(n),
                           before = this->normals(K);
      const auto at = [](const std::vector<T>& v, Size i) {
        return static_cast<double>(v[static_cast<std::size_t>(i)]);
      };
      std::vector<double> image(static_cast<std::size_t>(K)), size(image.size(), 1.0), sums = image, squares = image;
      double total = 0, total_size = 0;
      for (Size c = 0; c < K; ++c)
        image[static_cast<std::size_t>(c)] = sums[static_cast<std::size_t>(c)] =
            squares[static_cast<std::size_t>(c)] = at(before, c);
      for (Size j = 0; j < n; ++j) {
        double y = at(x, K), y_size = std::abs(y);
        for (Size c = 0; c < K; ++c)
          y += at(x, c) * at(rows, j * K + c), y_size += std::abs(at(x, c) * at(rows, j * K + c));
        const double a = at(weights, j) * y, a_size = std::abs(at(weights, j)) * y_size;
        total += a, total_size += a_size;
        for (Size c = 0; c < K; ++c) {
          const double k = at(rows, j * K + c);
          image[static_cast<std::size_t>(c)] += a * k, size[static_cast<std::size_t>(c)] += a_size * std::abs(k);
          sums[static_cast<std::size_t>(c)] += k, squares[static_cast<std::size_t>(c)] += k * k;
        }
      }
      this->for_targets([&](const ttr::Simd<T>& simd) {
        const ttr::LocalLinearSimd<T>& a = local_linear_simd(simd);
        std::vector<T> got = before, first = before, second = before;
        const T sum = a.moment_of_one(n, K, rows.data(), weights.data(), x.data(), got.data());
        EXPECT_NEAR(static_cast<double>(sum), total, this->tolerance(total_size));
        a.column_sums(n, K, rows.data(), first.data(), second.data());
        for (Size c = 0; c < K; ++c) {
          const auto i = static_cast<std::size_t>(c);
          EXPECT_NEAR(static_cast<double>(got[i]), image[i], this->tolerance(size[i]));
          EXPECT_NEAR(static_cast<double>(first[i]), sums[i], this->tolerance(4 * static_cast<double>(n)));
          EXPECT_NEAR(static_cast<double>(second[i]), squares[i], this->tolerance(4 * static_cast<double>(n)));
        }
      });
    }
}

}  // namespace
}  // namespace ttr_simd_test
