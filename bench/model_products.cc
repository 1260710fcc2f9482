// Products at the sizes of training, M = 8192 rows: y = x W, dx = dy W', dW = x' dy with W [n, n]; float, all threads.
// Those of model/gemm.h, the library's tiles without packing, and OpenBLAS if it was found when this was built.
//
//   build-bench/bench/ttr_model_products [THREADS]        GFLOP/s, the best of several rounds in turn
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "model/gemm.h"
#include "threads/pool.h"
#ifdef TTR_WITH_OPENBLAS
#include <cblas.h>
#endif

int main(int count, char** arguments) {
  using Size = std::ptrdiff_t;
  const int threads = count > 1 ? std::atoi(arguments[1]) : 2;
  if (threads > 1) ttr::threads::prepare(threads);
  const Size M = 8192;
  ttr::model::Gemm<float> gemm(threads);
  const ttr::Simd<float>& simd = gemm.simd();
  std::printf("%-5s %-4s %10s %10s %10s\n", "n", "kind", "model", "tiles", "BLAS");
  for (const Size n : {64, 128, 256, 384, 512}) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<std::size_t>(M * n)), y(x.size()), w(static_cast<std::size_t>(n * n));
    for (float& one : x) one = normal(random);
    for (float& one : y) one = normal(random);
    for (float& one : w) one = normal(random);
    const float *const X = x.data(), *const W = w.data();
    float *const Y = y.data(), *const V = w.data();
    const struct {
      const char* name;
      std::function<void()> model, tiles, blas;
    } kinds[] = {
        {"nn", [&] { gemm.nn(M, n, n, X, n, W, n, 0, Y, n); }, [&] { simd.gemm_nn(M, n, n, 1, X, n, W, n, 0, Y, n); },
#ifdef TTR_WITH_OPENBLAS
         [&] {
           cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, int(M), int(n), int(n), 1, X, int(n), W, int(n), 0,
                       Y, int(n));
         }
#else
         {}
#endif
        },
        {"nt", [&] { gemm.nt(M, n, n, X, n, W, n, 0, Y, n); }, [&] { simd.gemm_nt(M, n, n, 1, X, n, W, n, 0, Y, n); },
#ifdef TTR_WITH_OPENBLAS
         [&] {
           cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, int(M), int(n), int(n), 1, X, int(n), W, int(n), 0, Y,
                       int(n));
         }
#else
         {}
#endif
        },
        {"tn", [&] { gemm.tn(n, n, M, X, n, Y, n, 0, V, n); }, [&] { simd.gemm_tn(n, n, M, 1, X, n, Y, n, 0, V, n); },
#ifdef TTR_WITH_OPENBLAS
         [&] {
           cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, int(n), int(n), int(M), 1, X, int(n), Y, int(n), 0, V,
                       int(n));
         }
#else
         {}
#endif
        },
    };
    for (const auto& kind : kinds) {
      double best[3] = {1e9, 1e9, 1e9};
      const std::function<void()>* const calls[] = {&kind.model, &kind.tiles, &kind.blas};
      const int rounds = n <= 256 ? 12 : 5;
      for (int round = 0; round < rounds; ++round)
        for (int i = 0; i < 3; ++i) {
          if (!*calls[i]) continue;
          const auto begin = std::chrono::steady_clock::now();
          (*calls[i])();
          const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
          if (round > 0) best[i] = std::min(best[i], took.count());
        }
      const double work = 2e-9 * static_cast<double>(M) * static_cast<double>(n) * static_cast<double>(n);
      std::printf("%-5td %-4s %10.1f %10.1f %10.1f\n", n, kind.name, work / best[0], work / best[1], work / best[2]);
    }
  }
}
