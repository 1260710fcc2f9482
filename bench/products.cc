// Products of small square matrices, the work of a chunk, beside the libraries that are made for it: Eigen, OpenBLAS,
// oneDNN and libxsmm, as far as they were found when this was built. One thread, float, C = A B, operands in cache.
//
//   OMP_NUM_THREADS=1 build-bench/bench/ttr_products --benchmark_filter=64      (oneDNN takes all cores otherwise)
#include <benchmark/benchmark.h>

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "simd/simd.h"

#ifdef TTR_WITH_EIGEN
#include <Eigen/Core>
#endif
#ifdef TTR_WITH_OPENBLAS
#include <cblas.h>
#endif
#ifdef TTR_WITH_DNNL
#include <dnnl.h>
#endif
#ifdef TTR_WITH_XSMM
#include <libxsmm.h>
#endif

namespace {

struct Matrices {
  explicit Matrices(std::ptrdiff_t n) : A(numbers(n)), B(numbers(n)), C(static_cast<std::size_t>(n * n)) {}
  static std::vector<float> numbers(std::ptrdiff_t n) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<std::size_t>(n * n));
    for (float& number : x) number = normal(random);
    return x;
  }
  std::vector<float> A, B, C;
};

template <class Multiply>
void measure(const std::string& name, std::ptrdiff_t n, Multiply&& multiply) {
  benchmark::RegisterBenchmark((name + "/" + std::to_string(n)).c_str(), [n, multiply](benchmark::State& state) {
    Matrices m(n);
    for (auto _ : state) {
      multiply(n, m.A.data(), m.B.data(), m.C.data());
      benchmark::DoNotOptimize(m.C.data());
      benchmark::ClobberMemory();
    }
    state.counters["GFLOP/s"] = benchmark::Counter(
        2e-9 * static_cast<double>(n * n * n) * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  });
}

void register_all() {
  for (const std::ptrdiff_t n : {16, 32, 64, 128, 256}) {
    for (const std::string& target : ttr::simd_targets()) {
      const ttr::Simd<float>* const s = &ttr::simd<float>(target);
      measure("ttr " + target, n, [s](std::ptrdiff_t d, const float* A, const float* B, float* C) {
        s->gemm_nn(d, d, d, 1.0f, A, d, B, d, 0.0f, C, d);
      });
    }
#ifdef TTR_WITH_EIGEN
    using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    measure("Eigen", n, [](std::ptrdiff_t d, const float* A, const float* B, float* C) {
      Eigen::Map<Matrix>(C, d, d).noalias() = Eigen::Map<const Matrix>(A, d, d) * Eigen::Map<const Matrix>(B, d, d);
    });
#endif
#ifdef TTR_WITH_OPENBLAS
    measure("OpenBLAS", n, [](std::ptrdiff_t d, const float* A, const float* B, float* C) {
      const int m = static_cast<int>(d);
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, m, m, 1, A, m, B, m, 0, C, m);
    });
#endif
#ifdef TTR_WITH_DNNL
    measure("oneDNN", n, [](std::ptrdiff_t d, const float* A, const float* B, float* C) {
      dnnl_sgemm('N', 'N', d, d, d, 1, A, d, B, d, 0, C, d);
    });
#endif
#ifdef TTR_WITH_XSMM
    measure("libxsmm", n, [](std::ptrdiff_t d, const float* A, const float* B, float* C) {
      const libxsmm_blasint m = static_cast<libxsmm_blasint>(d);
      const float one = 1, zero = 0;  // it stores by columns: C' = B' A'
      libxsmm_sgemm("N", "N", &m, &m, &m, &one, B, &m, A, &m, &zero, C, &m);
    });
#endif
  }
}

}  // namespace

int main(int argc, char** argv) {
#ifdef TTR_WITH_OPENBLAS
  openblas_set_num_threads(1);
#endif
  register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
