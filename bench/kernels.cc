// Speed of the SIMD primitives and of the families, per instruction set. GFLOP/s counts the useful operations: 2 M N
// K for a product (half of it for a triangle), and for a family those of the plain recurrence (decay and gated 5 K V,
// delta and dplr without an erase key, which is KDA, 7 K V per token and head), so that a form that does more work
// than needed is not rewarded for it.
//
// Per-token operations (prepare/) are counted in numbers of their result per second.
//
//   kernels --benchmark_filter=f32/AVX2        one type and instruction set
//
// "tile" is a product whose operands never leave L1: what the machine can do. Compare ratios within one run only.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "families/linear/channel/dplr.h"
#include "families/linear/channel/gated.h"
#include "families/linear/scalar/decay.h"
#include "families/linear/scalar/delta.h"
#include "families/linear/state_simd.h"
#include "families/solve/least_squares/least_squares.h"
#include "prepare/operations.h"
#include "simd/simd.h"

namespace {

using ttr::Form;
using ttr::Simd;
using ttr::Status;
using ttr::view;
using ttr::View;
using ttr::Workspace;
namespace fam = ttr::families;
using Size = std::ptrdiff_t;

template <class T>
std::vector<T> normals(Size n, double scale = 1) {
  std::mt19937 rng(1);
  std::normal_distribution<double> normal(0, scale);
  std::vector<T> x(n);
  for (T& value : x) value = static_cast<T>(normal(rng));
  return x;
}

void rate(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9 * double(state.iterations()), benchmark::Counter::kIsRate);
}

enum class Product { tile, nn, tn, nt, lower, trmm_nn, trmm_tn, solve_nn, solve_tn };
const char* const kProducts[] = {"tile",    "gemm_nn", "gemm_tn",  "gemm_nt", "gemm_lower",
                                 "trmm_nn", "trmm_tn", "solve_nn", "solve_tn"};

template <class T>
void product(benchmark::State& state, const Simd<T>& s, Product kind, Size n) {
  const bool triangle = kind >= Product::lower;
  const Size depth = kind == Product::tile ? 1024 : n;
  std::vector<T> A = normals<T>(n * depth, 0.01), B = normals<T>(n * depth), C = normals<T>(n * n);
  for (auto _ : state) {
    switch (kind) {
      case Product::tile:
        s.gemm_nn(24, 2 * s.lanes, depth, 1, A.data(), 0, B.data(), 0, 1, C.data(), 2 * s.lanes);
        break;
      case Product::nn:
        s.gemm_nn(n, n, n, 1, A.data(), n, B.data(), n, 0, C.data(), n);
        break;
      case Product::tn:
        s.gemm_tn(n, n, n, 1, A.data(), n, B.data(), n, 0, C.data(), n);
        break;
      case Product::nt:
        s.gemm_nt(n, n, n, 1, A.data(), n, B.data(), n, 0, C.data(), n);
        break;
      case Product::lower:
        s.gemm_lower(n, n, 1, A.data(), n, B.data(), n, C.data(), n);
        break;
      case Product::trmm_nn:
        s.trmm_nn(n, n, 1, A.data(), n, B.data(), n, 0, C.data(), n);
        break;
      case Product::trmm_tn:
        s.trmm_tn(n, n, 1, A.data(), n, B.data(), n, 0, C.data(), n);
        break;
      case Product::solve_nn:
        s.solve_nn(n, n, A.data(), n, C.data(), n);
        break;
      case Product::solve_tn:
        s.solve_tn(n, n, A.data(), n, C.data(), n);
        break;
    }
    benchmark::ClobberMemory();
  }
  const double full =
      kind == Product::tile ? 2.0 * 24 * double(2 * s.lanes) * double(depth) : 2.0 * double(n * n * n);
  rate(state, triangle ? full / 2 : full);
}

/// Chunks of 32 tokens in groups through a state in L1: 4, 6 (with a read) and 8 K V operations per token (with an
/// erase key). Rows begin at cache lines, or half of the loads would touch two.
template <class T>
void groups(benchmark::State& state, const Simd<T>& s, int reads, Size d) {
  constexpr Size n = 32, line = 64 / sizeof(T);
  std::vector<T> memory =
      normals<T>(4 * n * d + 2 * n * d + d * d + d + ttr::StateSimd<T>::sweep_scratch(d) + line, 0.01);
  void* start = memory.data();
  std::size_t space = memory.size() * sizeof(T);
  T* at = static_cast<T*>(std::align(64, 64, start, space));
  const auto take = [&](Size count) { return std::exchange(at, at + count); };
  typename ttr::StateSimd<T>::Group tokens{.n = n, .K = d, .V = d};
  tokens.k = take(n * d), tokens.q = take(n * d), tokens.v = take(n * d);
  tokens.ldk = tokens.ldq = tokens.ldv = d;
  if (reads > 0) tokens.x = take(n * d), tokens.ldx = d;
  if (reads > 1) tokens.y = take(n * d), tokens.ldy = d;
  T *const late = take(d), *const out = take(n * d), *const S = take(d * d);
  std::fill_n(late, d, T(0.5));
  tokens.late = late;
  const ttr::StateSimd<T>& kernels = ttr::state_simd(s);
  for (auto _ : state) {
    kernels.group_sweep(tokens, S, d, out, d, at);
    benchmark::ClobberMemory();
  }
  rate(state, (4 + 2 * reads) * double(d * d * n));
}

/// Inputs of a family: one sequence, 8 heads, unit keys, mild gates.
template <class T>
struct Inputs {
  static constexpr int H = 8;
  Size time;
  int d;
  std::vector<T> q, k, v, g, beta, o, memory, gk, d_o, d_q, d_k, d_v, d_g, d_beta, d_gk;
  fam::Sequence sequence;
  Inputs(Size t, int dim)
      : time(t),
        d(dim),
        q(normals<T>(t * H * d)),
        k(q),
        v(q),
        g(t * H, T(-0.02)),
        beta(t * H, T(0.5)),
        o(q),
        memory(H * d * d + 64 / sizeof(T), T(0)),
        gk(t * H * d, T(-0.02)),
        d_o(q),
        d_q(q),
        d_k(q),
        d_v(q),
        d_g(g),
        d_beta(beta),
        d_gk(q),
        sequence{0, 0, t} {
    for (Size i = 0; i < t * H; ++i) {
      double norm = 0;
      for (int j = 0; j < d; ++j) norm += double(k[i * d + j]) * double(k[i * d + j]);
      for (int j = 0; j < d; ++j) k[i * d + j] = static_cast<T>(double(k[i * d + j]) / std::sqrt(norm));
    }
  }
  /// 64-byte aligned, as the documentation of State advises.
  T* state() { return memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64 / sizeof(T); }
  View<T, 4> four(std::vector<T>& x) { return view(x.data(), 1, time, H, d); }
  View<T, 3> three(std::vector<T>& x) { return view(x.data(), 1, time, H); }
  fam::LinearProblem<T> problem() {
    return {{&sequence, 1}, H, H, d, d, T(1), four(q), four(k), four(v), three(g), three(beta), state(), four(o)};
  }
  fam::LinearGradient<T> gradient() {
    return {four(d_o), nullptr, four(d_q), four(d_k), four(d_v), three(d_g), three(d_beta), nullptr};
  }
};

enum class Kind { decay, delta, gated, dplr };
const char* const kKinds[] = {"decay", "delta", "gated", "dplr"};

template <class T>
void family(benchmark::State& state, const Simd<T>& s, Kind kind, bool backward, Form form, Size time, int d) {
  Inputs<T> in(time, d);
  const auto bytes_of = [&](auto bytes) { return bytes(d, d, time, form, 0, backward, 1); };
  const std::size_t bytes = kind == Kind::decay   ? bytes_of(fam::decay::workspace_bytes<T>)
                            : kind == Kind::delta ? bytes_of(fam::delta::workspace_bytes<T>)
                            : kind == Kind::gated ? bytes_of(fam::gated::workspace_bytes<T>)
                                                  : bytes_of(fam::dplr::workspace_bytes<T>);
  std::vector<double> memory(bytes / 8 + 1);
  const Workspace w{memory.data(), memory.size() * 8};
  auto p = in.problem();
  const auto gradient = in.gradient();
  if (kind >= Kind::gated) p.g = {};
  const fam::GatedProblem<T> gated{p, in.four(in.gk), {}, {}, false};
  const fam::GatedGradient<T> d_gated{gradient, in.four(in.d_gk), {}, {}};
  const fam::DplrProblem<T> dplr{p, in.four(in.gk), {}, {}, true};
  const fam::DplrGradient<T> d_dplr{gradient, in.four(in.d_gk), {}, {}};
  for (auto _ : state) {
    Status status;
    if (backward)
      status = kind == Kind::decay   ? fam::decay::backward(p, gradient, form, 0, s, w)
               : kind == Kind::delta ? fam::delta::backward(p, gradient, fam::Residual::decayed, form, 0, s, w)
               : kind == Kind::gated ? fam::gated::backward(gated, d_gated, form, 0, s, w)
                                     : fam::dplr::backward(dplr, d_dplr, form, 0, s, w);
    else
      status = kind == Kind::decay   ? fam::decay::forward(p, form, 0, s, w)
               : kind == Kind::delta ? fam::delta::forward(p, fam::Residual::decayed, form, 0, s, w)
               : kind == Kind::gated ? fam::gated::forward(gated, form, 0, s, w)
                                     : fam::dplr::forward(dplr, form, 0, s, w);
    if (status != Status::ok) state.SkipWithError("the kernel refused the problem");
    benchmark::ClobberMemory();
  }
  rate(state, (kind == Kind::delta || kind == Kind::dplr ? 7.0 : 5.0) * double(d) * d * double(time) * in.H);
  state.counters["tokens/s"] =
      benchmark::Counter(double(time) * double(state.iterations()), benchmark::Counter::kIsRate);
}

void least_squares(benchmark::State& state, Size time, int d) {
  Inputs<double> in(time, d);
  std::vector<double> h(in.H * d * d), f(in.H * d * d), ridge(in.H, 0.1);
  std::vector<double> memory(fam::least_squares::workspace_bytes(d, d, time, fam::SolveBy::cholesky, 0, false) / 8 +
                             1);
  fam::LeastSquaresProblem<double> p;
  p.linear = in.problem();
  p.ridge = {ridge.data(), {1, time, in.H, d}, {0, 0, 1, 0}}, p.h = h.data(), p.f = f.data();
  const ttr::Simd<double>& s = ttr::simd<double>("");
  for (auto _ : state) {
    if (fam::least_squares::forward(p, Form::best, s, {memory.data(), memory.size() * 8}) != Status::ok)
      state.SkipWithError("the kernel refused the problem");
    benchmark::ClobberMemory();
  }
  rate(state, double(time) * in.H * (double(d) * d * d / 3 + 10.0 * d * d));
  state.counters["tokens/s"] =
      benchmark::Counter(double(time) * double(state.iterations()), benchmark::Counter::kIsRate);
}

/// A per-token operation on 64 tokens of 8 heads. An operand of width 1 is a gate, one of negative width a row per
/// head for all tokens.
struct Operation {
  const char* name;
  ttr::prepare::Op op;
  std::vector<int> from;
  int width;
  double number = 0;
};
const Operation kOperations[] = {
    {"softplus_gate", ttr::prepare::Op::softplus, {1}, 1},
    {"log_sigmoid", ttr::prepare::Op::log_sigmoid, {64}, 64, 16},
    {"silu_gate", ttr::prepare::Op::silu_gate, {64, 64}, 64},
    {"unit_norm", ttr::prepare::Op::unit_norm, {64}, 64, 1e-6},
    {"rms_gate_norm_first_silu", ttr::prepare::Op::rms_gate_norm_first_silu, {64, 64, -64}, 64, 1e-5},
};

template <class T>
void operation(benchmark::State& state, const Simd<T>& s, const Operation& o, bool backward) {
  namespace prep = ttr::prepare;
  constexpr int time = 64, H = 8;
  std::vector<std::vector<T>> data, gradient;
  prep::Rows<const T> from[prep::max_operands];
  prep::Rows<T> d_from[prep::max_operands];
  for (const int width : o.from) {
    data.push_back(normals<T>(Size(width < 0 ? 1 : time) * H * std::abs(width)));
    gradient.push_back(data.back());
  }
  const auto rows = [&]<class N>(N* first, int width) {
    const int wide = std::abs(width);
    return prep::Rows<N>{first, 0, width < 0 ? 0 : H * wide, wide, 1, 1, wide};
  };
  for (std::size_t i = 0; i < o.from.size(); ++i)
    from[i] = rows(static_cast<const T*>(data[i].data()), o.from[i]), d_from[i] = rows(gradient[i].data(), o.from[i]);
  std::vector<T> y(static_cast<std::size_t>(time * H * o.width)), dy(y.size(), T(1e-3));
  const prep::Rows<const T> result = rows(static_cast<const T*>(y.data()), o.width),
                            d_result = rows(static_cast<const T*>(dy.data()), o.width);
  const prep::Extent extent{1, time, H};
  for (auto _ : state) {
    if (backward) prep::backward<T>(o.op, from, result, d_result, d_from, o.number, extent, &s);
    else prep::forward<T>(o.op, from, rows(y.data(), o.width), o.number, extent, &s);
    benchmark::ClobberMemory();
  }
  state.counters["numbers/s"] =
      benchmark::Counter(double(y.size()) * double(state.iterations()), benchmark::Counter::kIsRate);
}

template <class T>
void add_type(const std::string& target, const std::string& type) {
  const Simd<T>& s = ttr::simd<T>(target);
  const std::string prefix = type + "/" + target + "/";
  for (int kind = 0; kind <= static_cast<int>(Product::solve_tn); ++kind)
    for (const Size n : {16, 32, 64, 128}) {
      if (kind == 0 && n != 64) continue;
      benchmark::RegisterBenchmark(
          (prefix + kProducts[kind] + "/" + std::to_string(n)).c_str(),
          [&s, kind, n](benchmark::State& state) { product<T>(state, s, static_cast<Product>(kind), n); });
    }
  for (const int reads : {0, 1, 2})
    for (const Size d : {64, 128}) {
      const char* const name = reads == 0 ? "groups/add/" : reads == 1 ? "groups/delta/" : "groups/dplr/";
      benchmark::RegisterBenchmark((prefix + name + std::to_string(d)).c_str(),
                                   [&s, reads, d](benchmark::State& state) { groups<T>(state, s, reads, d); });
    }
  for (const Kind family_kind : {Kind::decay, Kind::delta, Kind::gated, Kind::dplr})
    for (const int d : {64, 128}) {
      const std::string name = prefix + kKinds[static_cast<int>(family_kind)] + "/";
      const auto add = [&](const char* what, bool backward, Form form, Size time) {
        benchmark::RegisterBenchmark((name + what + "/d" + std::to_string(d) + "/T" + std::to_string(time)).c_str(),
                                     [&s, family_kind, backward, form, time, d](benchmark::State& state) {
                                       family<T>(state, s, family_kind, backward, form, time, d);
                                     });
      };
      add("step", false, Form::step, 1);
      add("recurrent", false, Form::recurrent, 2048);
      add("chunk", false, Form::chunk, 2048);
      add("backward", true, Form::chunk, 2048);
    }
  for (const Operation& o : kOperations)
    for (const bool backward : {false, true})
      benchmark::RegisterBenchmark(
          (prefix + o.name + (backward ? "/backward" : "/forward")).c_str(),
          [&s, &o, backward](benchmark::State& state) { operation<T>(state, s, o, backward); });
}

}  // namespace

int main(int argc, char** argv) {
  for (const std::string& target : ttr::simd_targets()) {
    add_type<float>(target, "f32");
    add_type<double>(target, "f64");
  }
  for (const int d : {16, 64})
    benchmark::RegisterBenchmark(("least_squares/d" + std::to_string(d)).c_str(),
                                 [d](benchmark::State& state) { least_squares(state, 64, d); });
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
