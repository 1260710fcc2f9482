// Counting what is executed (Options::count): a table whose functions add their multiply-adds to one counter and then call
// those of the instruction set. A plan that does not count never comes here.
//
//   counting(table)    a copy of the table with every function that multiplies and adds replaced by one that counts
//
// A multiply-add is one product and one sum of numbers of the result's type, whatever vectors it is done in. Counted is what
// a function is asked for: triangles as triangles, although tiles on a diagonal are computed whole. Not counted: exponentials,
// copies, transposes, sums, and what is computed outside of the tables (the operations around a memory).
//
// A counting function finds the one it stands for by its type alone, so a process counts on one instruction set.
#pragma once

#include <atomic>
#include <cstdint>

#include "simd/simd.h"

namespace ttr::simd_detail {

struct Count {
  std::atomic<std::uint64_t> multiply_adds{0};
  std::atomic<std::uint64_t> uncounted{0};  // how often a table without counting functions was asked for
};
inline Count& count() noexcept {
  static Count all;
  return all;
}
inline void add_to_count(std::ptrdiff_t multiply_adds) noexcept {
  count().multiply_adds.fetch_add(static_cast<std::uint64_t>(multiply_adds), std::memory_order_relaxed);
}

/// The table that the counting functions of this type call.
template <class Table>
inline const Table* counted_inner = nullptr;

/// What to give for a table where multiply-adds are counted: its counting twin if there is a function counted_table for it,
/// else itself, and that is noted.
template <class Table>
const Table& counted_or_noted(const Table& table) noexcept {
  if constexpr (requires { counted_table(table); }) {
    return counted_table(table);
  } else {
    count().uncounted.fetch_add(1, std::memory_order_relaxed);
    return table;
  }
}

template <class T>
Products<T> counting(const Products<T>& table) noexcept {
  using Size = std::ptrdiff_t;
  using P = Products<T>;
  counted_inner<P> = &table;
  P c = table;
  c.gemm_nn = [](Size M, Size N, Size K, auto... x) {
    add_to_count(M * N * K), counted_inner<P>->gemm_nn(M, N, K, x...);
  };
  c.gemm_tn = [](Size M, Size N, Size K, auto... x) {
    add_to_count(M * N * K), counted_inner<P>->gemm_tn(M, N, K, x...);
  };
  c.gemm_nt = [](Size M, Size N, Size K, auto... x) {
    add_to_count(M * N * K), counted_inner<P>->gemm_nt(M, N, K, x...);
  };
  c.gemm_tn_rows = [](Size M, Size N, Size K, auto... x) {
    add_to_count(M * N * K), counted_inner<P>->gemm_tn_rows(M, N, K, x...);
  };
  c.gemm_nn_onto = [](Size M, Size N, Size K, auto... x) {
    add_to_count(M * N * K), counted_inner<P>->gemm_nn_onto(M, N, K, x...);
  };
  c.gemm_tn_onto = [](Size M, Size N, Size K, auto... x) {
    add_to_count(M * N * K), counted_inner<P>->gemm_tn_onto(M, N, K, x...);
  };
  c.gemm_trmm_nn = [](Size M, Size N, Size K, auto... x) {
    add_to_count(M * N * K + M * (M + 1) / 2 * N), counted_inner<P>->gemm_trmm_nn(M, N, K, x...);
  };
  c.gemm_trmm_tn = [](Size M, Size N, Size K, auto... x) {
    add_to_count(M * N * K + M * (M + 1) / 2 * N), counted_inner<P>->gemm_trmm_tn(M, N, K, x...);
  };
  c.gemm_lower = [](Size M, Size K, auto... x) {
    add_to_count(M * (M + 1) / 2 * K), counted_inner<P>->gemm_lower(M, K, x...);
  };
  c.gemm_lower_gated = [](Size M, Size K, auto... x) {
    add_to_count(M * (M + 1) / 2 * K), counted_inner<P>->gemm_lower_gated(M, K, x...);
  };
  c.gram = [](Size M, Size K, auto... x) { add_to_count(M * (M + 1) / 2 * K), counted_inner<P>->gram(M, K, x...); };
  c.trmm_nn = [](Size M, Size N, auto... x) {
    add_to_count(M * (M + 1) / 2 * N), counted_inner<P>->trmm_nn(M, N, x...);
  };
  c.trmm_tn = [](Size M, Size N, auto... x) {
    add_to_count(M * (M + 1) / 2 * N), counted_inner<P>->trmm_tn(M, N, x...);
  };
  c.solve_nn = [](Size M, Size N, auto... x) {
    add_to_count(M * (M - 1) / 2 * N), counted_inner<P>->solve_nn(M, N, x...);
  };
  c.solve_tn = [](Size M, Size N, auto... x) {
    add_to_count(M * (M - 1) / 2 * N), counted_inner<P>->solve_tn(M, N, x...);
  };
  return c;
}

template <class T>
Vectors<T> counting(const Vectors<T>& table) noexcept {
  using Size = std::ptrdiff_t;
  using P = Vectors<T>;
  counted_inner<P> = &table;
  P c = table;
  c.row_dots = [](Size M, Size N, auto... x) { add_to_count(M * N), counted_inner<P>->row_dots(M, N, x...); };
  c.mul_add = [](Size n, auto... x) { add_to_count(n), counted_inner<P>->mul_add(n, x...); };
  c.axpy = [](Size n, auto... x) { add_to_count(n), counted_inner<P>->axpy(n, x...); };
  c.dot = [](Size n, auto... x) { return add_to_count(n), counted_inner<P>->dot(n, x...); };
  c.vec_mat = [](Size K, Size V, auto... x) { add_to_count(K * V), counted_inner<P>->vec_mat(K, V, x...); };
  c.mat_vec = [](Size K, Size V, auto... x) { add_to_count(K * V), counted_inner<P>->mat_vec(K, V, x...); };
  c.rank_one = [](Size K, Size V, auto... x) { add_to_count(K * V), counted_inner<P>->rank_one(K, V, x...); };
  c.mul_add_rows = [](Size M, Size N, auto... x) { add_to_count(M * N), counted_inner<P>->mul_add_rows(M, N, x...); };
  c.gate_gradient = [](Size C, Size D, const typename P::GateTerm* terms, int n, auto... x) {
    add_to_count(C * D * n), counted_inner<P>->gate_gradient(C, D, terms, n, x...);
  };
  c.add_rows_dots = [](Size M, Size N, const T* a, const T* X, Size ldx, const T* X2, Size ldx2, const T* Z,
                       auto... x) {
    add_to_count(M * N * (Z ? (X2 ? 3 : 2) : 1));
    counted_inner<P>->add_rows_dots(M, N, a, X, ldx, X2, ldx2, Z, x...);
  };
  return c;
}

}  // namespace ttr::simd_detail
