// What the products of local_linear_simd.h execute; the vectors of conjugate gradients are not counted.
#include "families/pairs/local_linear/local_linear_simd.h"
#include "simd/count.h"

namespace ttr {
namespace {
using Size = std::ptrdiff_t;
using simd_detail::add_to_count, simd_detail::counted_inner;

// Of a triangle row i sees rows[i] + 1 keys.
template <class Pass>
Size products(const Pass& p) {
  Size seen = p.m * p.n;
  for (Size i = 0; p.triangle && i < p.m; ++i) {
    const Size last = (p.rows ? p.rows[i] : i) + 1;
    if (last < p.n) seen -= p.n - last;
  }
  return seen * (p.K + p.D);
}
}  // namespace

template <class T>
const LocalLinearSimd<T>& counted_table(const LocalLinearSimd<T>& table) noexcept {
  using P = LocalLinearSimd<T>;
  static const P counted = [&] {
    counted_inner<P> = &table;
    P c = table;
    c.moment = [](const typename P::Pass& p) { add_to_count(products(p)), counted_inner<P>->moment(p); };
    c.blend = [](const typename P::Pass& p) { add_to_count(products(p)), counted_inner<P>->blend(p); };
    c.moment_of_one = [](Size n, Size K, auto... x) {
      return add_to_count(2 * n * K), counted_inner<P>->moment_of_one(n, K, x...);
    };
    return c;
  }();
  return counted;
}

template const LocalLinearSimd<float>& counted_table(const LocalLinearSimd<float>&) noexcept;
template const LocalLinearSimd<double>& counted_table(const LocalLinearSimd<double>&) noexcept;

}  // namespace ttr
