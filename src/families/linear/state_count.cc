// What the functions of state_simd.h execute: every token writes to the state and reads from it, K V multiply-adds each; a
// factor of the state is one more where it is applied with every token.
#include "families/linear/state_simd.h"
#include "simd/count.h"

namespace ttr {
namespace {
using Size = std::ptrdiff_t;
using simd_detail::add_to_count, simd_detail::counted_inner;

template <class Tokens>
Size gated(const Tokens& t) {
  return t.n * t.K * t.V * (2 + (t.x ? 1 : 0) + (t.y ? 1 : 0) + (t.q ? 1 : 0));
}
}  // namespace

template <class T>
const StateSimd<T>& counted_table(const StateSimd<T>& table) noexcept {
  using P = StateSimd<T>;
  static const P counted = [&] {
    counted_inner<P> = &table;
    P c = table;
    c.sweep = [](Size n, Size K, Size V, const T* a, const T* b, const T* beta, T scale, const T* k, Size ldk,
                 const T* v, Size ldv, const T* q, auto... x) {
      add_to_count(n * K * V * (2 + (b ? 1 : 0) + (q ? 1 : 0)));
      counted_inner<P>->sweep(n, K, V, a, b, beta, scale, k, ldk, v, ldv, q, x...);
    };
    c.gated_sweep = [](const typename P::Tokens& t, auto... x) {
      add_to_count(gated(t)), counted_inner<P>->gated_sweep(t, x...);
    };
    c.group_sweep = [](const typename P::Group& g, auto... x) {
      add_to_count(g.n * g.K * g.V * (1 + (g.x ? 1 : 0) + (g.y ? 1 : 0) + (g.q ? 1 : 0)));
      counted_inner<P>->group_sweep(g, x...);
    };
    c.column_dots = [](Size M, Size N, auto... x) { add_to_count(M * N), counted_inner<P>->column_dots(M, N, x...); };
    c.turn_states = [](Size K, Size V, auto... x) { add_to_count(K * V), counted_inner<P>->turn_states(K, V, x...); };
    c.sweep_heads = [](const typename P::Tokens& t, Size group, const T* a, const T* b, auto... x) {
      add_to_count(t.n * t.K * t.V * (2 + (b ? 1 : 0) + (t.q ? 1 : 0)));
      counted_inner<P>->sweep_heads(t, group, a, b, x...);
    };
    c.gated_heads = [](const typename P::Tokens& t, auto... x) {
      add_to_count(gated(t)), counted_inner<P>->gated_heads(t, x...);
    };
    c.bonus_dots = [](Size n, Size group, Size K, auto... x) {
      add_to_count(2 * n * K), counted_inner<P>->bonus_dots(n, group, K, x...);
    };
    c.momentum_heads = [](const typename P::Momentum& m, auto... x) {
      add_to_count(m.heads * m.K * m.V * (5 + (m.q ? 1 : 0))), counted_inner<P>->momentum_heads(m, x...);
    };
    return c;
  }();
  return counted;
}

template const StateSimd<float>& counted_table(const StateSimd<float>&) noexcept;
template const StateSimd<double>& counted_table(const StateSimd<double>&) noexcept;

}  // namespace ttr
