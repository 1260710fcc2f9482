// What the functions of attention_simd.h and kept_simd.h execute; weights between the products are not counted.
#include "families/pairs/attention/attention_simd.h"
#include "families/pairs/attention/kept_simd.h"
#include "simd/count.h"

namespace ttr {
namespace {
using Size = std::ptrdiff_t;
using simd_detail::add_to_count, simd_detail::counted_inner;
}  // namespace

template <class T>
const AttentionSimd<T>& counted_table(const AttentionSimd<T>& table) noexcept {
  using P = AttentionSimd<T>;
  static const P counted = [&] {
    counted_inner<P> = &table;
    P c = table;
    c.distances = [](Size M, Size N, Size K, auto... x) {
      add_to_count(M * N * K), counted_inner<P>->distances(M, N, K, x...);
    };
    c.scores = [](Size n, Size K, auto... x) { add_to_count(n * K), counted_inner<P>->scores(n, K, x...); };
    return c;
  }();
  return counted;
}
template const AttentionSimd<float>& counted_table(const AttentionSimd<float>&) noexcept;
template const AttentionSimd<double>& counted_table(const AttentionSimd<double>&) noexcept;

const KeptSimd& counted_table(const KeptSimd& table) noexcept {
  using P = KeptSimd;
  static const P counted = [&] {
    counted_inner<P> = &table;
    P c = table;
    c.scores = [](const P::Rows& r, Size group, auto... x) {
      add_to_count(r.n * r.heads * group * r.dim), counted_inner<P>->scores(r, group, x...);
    };
    c.add = [](const P::Rows& r, Size group, auto... x) {
      add_to_count(r.n * r.heads * group * r.dim), counted_inner<P>->add(r, group, x...);
    };
    return c;
  }();
  return counted;
}

}  // namespace ttr
