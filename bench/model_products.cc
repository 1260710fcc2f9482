// Products at the sizes of training: y = x W, dx = dy W', dW = x' dy with the matrices of `ttr bench train` (a round of 2048
// rows), W [n, n], and a head W [128, 8192]; float. Those
// of model/gemm.h beside the libraries that are made for it, those that are found when this runs: OpenBLAS, BLIS, oneDNN.
// (Opened by name: OpenBLAS and BLIS have the same symbols and cannot be linked together.)
//
//   build-bench/bench/ttr_model_products                     GFLOP/s on one and two threads, the best of rounds in turn
//   build-bench/bench/ttr_model_products --processor-time    one thread by its processor time, where other programs run
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "model/gemm.h"
#include "threads/pool.h"

namespace {

using Size = std::ptrdiff_t;

struct Product {
  const char* kind;
  Size M, N, K;
  bool left, right;  // stored transposed
  Size lda() const { return left ? M : K; }
  Size ldb() const { return right ? K : N; }
};
using Call = std::function<void(const Product&, const float* A, const float* B, float* C, int threads)>;
struct Library {
  std::string name;
  Call call;
};

void* open_first(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (void* const found = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)) return found;
  return nullptr;
}
template <class F>
F symbol(void* library, const char* name) {
  return reinterpret_cast<F>(dlsym(library, name));
}

std::vector<Library> libraries() {
  std::vector<Library> all;
  all.push_back({"ttr", [](const Product& p, const float* A, const float* B, float* C, int threads) {
                   static ttr::model::Gemm<float> one(1), two(2);
                   ttr::model::Gemm<float>& gemm = threads == 1 ? one : two;
                   if (p.left) gemm.tn(p.M, p.N, p.K, A, p.lda(), B, p.ldb(), 0, C, p.N);
                   else if (p.right) gemm.nt(p.M, p.N, p.K, A, p.lda(), B, p.ldb(), 0, C, p.N);
                   else gemm.nn(p.M, p.N, p.K, A, p.lda(), B, p.ldb(), 0, C, p.N);
                 }});
  using Cblas =
      void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
  const auto blas = [&](const char* name, void* library, const char* set_threads) {
    if (!library) return;
    const auto gemm = symbol<Cblas>(library, "cblas_sgemm");
    const auto set = symbol<void (*)(long)>(library, set_threads);
    if (!gemm || !set) return;
    all.push_back({name, [=](const Product& p, const float* A, const float* B, float* C, int threads) {
                     set(threads);
                     constexpr int by_rows = 101, plain = 111, transposed = 112;
                     gemm(by_rows, p.left ? transposed : plain, p.right ? transposed : plain, int(p.M), int(p.N),
                          int(p.K), 1, A, int(p.lda()), B, int(p.ldb()), 0, C, int(p.N));
                   }});
  };
  blas("OpenBLAS", open_first({"libopenblas.so.0", "openblas-pthread/libopenblas.so.0"}), "openblas_set_num_threads");
  blas("BLIS", open_first({"libblis.so.4", "libblis.so.3", "blis-openmp/libblis.so.4"}),
       "bli_thread_set_num_threads");
  if (void* const dnnl = open_first({"libdnnl.so.2", "libdnnl.so.3"})) {
    using Sgemm = int (*)(char, char, std::int64_t, std::int64_t, std::int64_t, float, const float*, std::int64_t,
                          const float*, std::int64_t, float, float*, std::int64_t);
    const auto gemm = symbol<Sgemm>(dnnl, "dnnl_sgemm");
    const auto set = symbol<void (*)(int)>(open_first({"libgomp.so.1"}), "omp_set_num_threads");
    if (gemm && set)
      all.push_back({"oneDNN", [=](const Product& p, const float* A, const float* B, float* C, int threads) {
                       set(threads);
                       gemm(p.left ? 'T' : 'N', p.right ? 'T' : 'N', p.M, p.N, p.K, 1, A, p.lda(), B, p.ldb(), 0, C,
                            p.N);
                     }});
  }
  return all;
}

std::vector<float> numbers(Size size, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> x(static_cast<std::size_t>(size));
  for (float& one : x) one = uniform(random);
  return x;
}

}  // namespace

int main(int count, char** arguments) {
  const bool alone = count > 1 && std::strcmp(arguments[1], "--processor-time") == 0;
  const std::size_t teams = alone ? 1 : 2;
  setenv("OMP_WAIT_POLICY", "passive",
         0);  // threads of one library that wait actively would be in the way of the next
  ttr::threads::prepare(static_cast<int>(teams));
  const std::vector<Library> all = libraries();
  std::vector<Product> products;
  const auto add = [&](Size rows, Size in, Size out) {
    products.push_back({"x W", rows, out, in, false, false});
    products.push_back({"dy W'", rows, in, out, false, true});
    products.push_back({"x' dy", in, out, rows, true, false});
  };
  add(2048, 128, 516), add(2048, 128, 128), add(2048, 128, 704), add(2048, 352, 128), add(1024, 128, 256);
  for (const Size n : {64, 128, 256, 384, 512, 1024, 2048}) add(n <= 256 ? 8192 : n <= 512 ? 4096 : 2048, n, n);
  add(1024, 128, 8192);

  std::printf("| kind | rows | in | out |");
  for (const Library& library : all)
    for (std::size_t team = 1; team <= teams; ++team) std::printf(" %s, %zu |", library.name.c_str(), team);
  std::printf("\n|");
  for (std::size_t i = 0; i < 4 + teams * all.size(); ++i) std::printf("---|");
  std::printf("\n");
  const auto now = [&] {
    timespec time;
    clock_gettime(alone ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  products.insert(products.begin(), products[0]);  // the machine wakes up
  for (const Product& p : products) {
    const std::vector<float> A = numbers(p.M * p.K, 1), B = numbers(p.K * p.N, 2);
    std::vector<float> C(static_cast<std::size_t>(p.M * p.N)), first;
    std::vector<double> best(teams * all.size(), 1e9);
    for (int round = 0; round < 6; ++round)
      for (std::size_t i = 0; i < best.size(); ++i) {
        const double begin = now();
        all[i / teams].call(p, A.data(), B.data(), C.data(), 1 + static_cast<int>(i % teams));
        if (round > 0) best[i] = std::min(best[i], now() - begin);
        if (first.empty()) first = C;
        for (std::size_t j = 0; round == 0 && j < C.size(); j += 97)  // all of them compute the same
          if (std::abs(C[j] - first[j]) > 1e-4f * std::sqrt(static_cast<float>(p.K))) {
            std::fprintf(stderr, "%s and %s disagree\n", all[i / teams].name.c_str(), all[0].name.c_str());
            return 1;
          }
      }
    if (&p == products.data()) continue;
    const double work = 2e-9 * static_cast<double>(p.M) * static_cast<double>(p.N) * static_cast<double>(p.K);
    const Size rows = p.left ? p.K : p.M, in = p.left ? p.M : p.right ? p.N : p.K, out = p.right ? p.K : p.N;
    std::printf("| %s | %td | %td | %td |", p.kind, rows, in, out);
    for (const double seconds : best) std::printf(" %.0f |", work / seconds);
    std::printf("\n");
    std::fflush(stdout);
  }
}
