#include "bench_machine.h"

#include <fmt/core.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <ctime>
#include <thread>

#include "regress_parts.h"
#include "text_table.h"

namespace ttr::cli {
namespace {

using Clock = std::chrono::steady_clock;

#if defined(__x86_64__) || defined(__i386__)
#define TTR_BENCH_X86 1
#endif

// The chains must outnumber latency times units (4 or 5 cycles, 2 units) and fit the registers of AVX2 (16).
constexpr int chains = 12;

// `passes` multiply-adds in each of the chains; returns something that depends on all of them. The vector type must be
// made in a function of its own instruction set, so this is no template: vectors of a template without a target are
// taken apart before the template is inlined.
#define TTR_FMA_LOOP(Number, bytes)                                                                    \
  using Vector [[gnu::vector_size(bytes)]] = Number;                                                   \
  Vector x[chains], a, b;                                                                              \
  for (std::size_t l = 0; l < bytes / sizeof(Number); ++l) a[l] = Number(0.999), b[l] = Number(0.001); \
  for (int c = 0; c < chains; ++c) x[c] = b * Number(c);                                               \
  for (std::int64_t p = 0; p < passes; ++p) {                                                          \
    x[0] = x[0] * a + b, x[1] = x[1] * a + b;                                                          \
    x[2] = x[2] * a + b, x[3] = x[3] * a + b;                                                          \
    x[4] = x[4] * a + b, x[5] = x[5] * a + b;                                                          \
    x[6] = x[6] * a + b, x[7] = x[7] * a + b;                                                          \
    x[8] = x[8] * a + b, x[9] = x[9] * a + b;                                                          \
    x[10] = x[10] * a + b, x[11] = x[11] * a + b;                                                      \
  }                                                                                                    \
  for (int c = 1; c < chains; ++c) x[0] += x[c];                                                       \
  double sum = 0;                                                                                      \
  for (std::size_t l = 0; l < bytes / sizeof(Number); ++l) sum += double(x[0][l]);                     \
  return sum;

using FmaLoop = double (*)(std::int64_t passes);
double fma_f32_128(std::int64_t passes) { TTR_FMA_LOOP(float, 16) }
double fma_f64_128(std::int64_t passes) { TTR_FMA_LOOP(double, 16) }
#ifdef TTR_BENCH_X86
[[gnu::target("avx2,fma")]] double fma_f32_256(std::int64_t passes) { TTR_FMA_LOOP(float, 32) }
[[gnu::target("avx2,fma")]] double fma_f64_256(std::int64_t passes) { TTR_FMA_LOOP(double, 32) }
[[gnu::target("avx512f")]] double fma_f32_512(std::int64_t passes) { TTR_FMA_LOOP(float, 64) }
[[gnu::target("avx512f")]] double fma_f64_512(std::int64_t passes) { TTR_FMA_LOOP(double, 64) }
#endif
#undef TTR_FMA_LOOP

int vector_bits() {
#ifdef TTR_BENCH_X86
  if (__builtin_cpu_supports("avx512f")) return 512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 256;
#endif
  return 128;
}

FmaLoop fma_loop(Type type) {
#ifdef TTR_BENCH_X86
  if (vector_bits() == 512) return type == Type::f32 ? fma_f32_512 : fma_f64_512;
  if (vector_bits() == 256) return type == Type::f32 ? fma_f32_256 : fma_f64_256;
#endif
  return type == Type::f32 ? fma_f32_128 : fma_f64_128;
}

// x <- a x + b over n numbers, a multiple of 64; four vectors at a time.
#define TTR_UPDATE_LOOP(bytes)                                          \
  using Vector [[gnu::vector_size(bytes), gnu::may_alias]] = float;     \
  constexpr std::size_t lanes = bytes / sizeof(float);                  \
  Vector a, b;                                                          \
  for (std::size_t l = 0; l < lanes; ++l) a[l] = 0.999f, b[l] = 0.001f; \
  Vector* v = reinterpret_cast<Vector*>(x);                             \
  for (std::size_t i = 0; i < n / lanes; i += 4) {                      \
    v[i] = v[i] * a + b, v[i + 1] = v[i + 1] * a + b;                   \
    v[i + 2] = v[i + 2] * a + b, v[i + 3] = v[i + 3] * a + b;           \
  }

void update_128(float* x, std::size_t n) { TTR_UPDATE_LOOP(16) }
#ifdef TTR_BENCH_X86
[[gnu::target("avx2,fma")]] void update_256(float* x, std::size_t n) { TTR_UPDATE_LOOP(32) }
[[gnu::target("avx512f")]] void update_512(float* x, std::size_t n) { TTR_UPDATE_LOOP(64) }
#endif
#undef TTR_UPDATE_LOOP

void update(float* x, std::size_t n) {
#ifdef TTR_BENCH_X86
  if (vector_bits() == 512) return update_512(x, n);
  if (vector_bits() == 256) return update_256(x, n);
#endif
  update_128(x, n);
}

// The sum of n numbers, a multiple of 64.
#define TTR_READ_LOOP(bytes)                                                        \
  using Vector [[gnu::vector_size(bytes), gnu::may_alias]] = float;                 \
  constexpr std::size_t lanes = bytes / sizeof(float);                              \
  const Vector* v = reinterpret_cast<const Vector*>(x);                             \
  Vector sums[4] = {};                                                              \
  for (std::size_t i = 0; i < n / lanes; i += 4)                                    \
    sums[0] += v[i], sums[1] += v[i + 1], sums[2] += v[i + 2], sums[3] += v[i + 3]; \
  sums[0] += sums[1] + sums[2] + sums[3];                                           \
  return double(sums[0][0]) + double(sums[0][lanes - 1]);

double sum_128(const float* x, std::size_t n) { TTR_READ_LOOP(16) }
#ifdef TTR_BENCH_X86
[[gnu::target("avx2,fma")]] double sum_256(const float* x, std::size_t n) { TTR_READ_LOOP(32) }
[[gnu::target("avx512f")]] double sum_512(const float* x, std::size_t n) { TTR_READ_LOOP(64) }
#endif
#undef TTR_READ_LOOP

double sum(const float* x, std::size_t n) {
#ifdef TTR_BENCH_X86
  if (vector_bits() == 512) return sum_512(x, n);
  if (vector_bits() == 256) return sum_256(x, n);
#endif
  return sum_128(x, n);
}

std::atomic<double> g_sink;  // keeps results alive

std::size_t system_size([[maybe_unused]] int name, std::size_t otherwise) {
#ifdef _SC_LEVEL1_DCACHE_SIZE
  const long size = sysconf(name);
  if (size > 0) return static_cast<std::size_t>(size);
#endif
  return otherwise;
}

}  // namespace

namespace {
bool g_processor_time = false;
double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
}  // namespace

void count_processor_time() { g_processor_time = true; }

double seconds_of_team(int threads, const std::function<void(int)>& work) {
  if (threads <= 1 && g_processor_time) {
    const double start = processor_seconds();
    work(0);
    return std::max(processor_seconds() - start, 1e-6);
  }
  if (threads <= 1) {
    const auto start = Clock::now();
    work(0);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> team;
  for (int t = 1; t < threads; ++t)
    team.emplace_back([&, t] {
      ++ready;
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      work(t);
    });
  while (ready.load() < threads - 1) std::this_thread::yield();
  const auto start = Clock::now();
  go.store(true, std::memory_order_release);
  work(0);
  for (std::thread& member : team) member.join();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string vector_unit() {
  const int bits = vector_bits();
  return bits == 512 ? "AVX-512" : bits == 256 ? "AVX2" : "128-bit vectors";
}

double fma_gflops(Type type, int threads, double seconds) {
  const FmaLoop loop = fma_loop(type);
  const double lanes = vector_bits() / (8.0 * static_cast<double>(size_of(type)));
  std::int64_t passes = 20'000;
  double taken = 0;
  for (;; passes *= 4) {
    taken = seconds_of_team(threads, [&](int) { g_sink = loop(passes); });
    if (taken > 0.25 * seconds || passes > (std::int64_t{1} << 40)) break;
  }
  passes = std::max<std::int64_t>(passes, static_cast<std::int64_t>(static_cast<double>(passes) * seconds / taken));
  taken = seconds_of_team(threads, [&](int) { g_sink = loop(passes); });
  return 2 * lanes * chains * static_cast<double>(passes) * threads / taken * 1e-9;
}

std::vector<MemoryLevel> memory_levels() {
  std::size_t one = 32 << 10, two = 512 << 10, three = 8 << 20;
#ifdef _SC_LEVEL1_DCACHE_SIZE
  one = system_size(_SC_LEVEL1_DCACHE_SIZE, one), two = system_size(_SC_LEVEL2_CACHE_SIZE, two);
  three = system_size(_SC_LEVEL3_CACHE_SIZE, three);
#endif
  return {{"L1", one}, {"L2", two}, {"L3", std::max(three, two)}, {"DRAM", 0}};
}

double memory_bandwidth(Traffic traffic, std::size_t bytes, int threads, double seconds) {
  const auto team = static_cast<std::size_t>(threads);
  const std::size_t numbers = std::max<std::size_t>(bytes / team / 256, 1) * 64;  // per thread
  std::vector<Buffer> buffers;
  for (int t = 0; t < threads; ++t) {
    buffers.emplace_back(numbers * sizeof(float));
    std::fill_n(reinterpret_cast<float*>(buffers.back().data()), numbers, 1.0f);
  }
  std::int64_t passes = 1;
  const auto run = [&] {
    return seconds_of_team(threads, [&](int t) {
      float* x = reinterpret_cast<float*>(buffers[static_cast<std::size_t>(t)].data());
      for (std::int64_t p = 0; p < passes; ++p) {
        if (traffic == Traffic::update) update(x, numbers);
        else g_sink = sum(x, numbers);
        asm volatile("" ::: "memory");  // every pass must really happen
      }
    });
  };
  double taken = run();
  for (; taken < 0.25 * seconds && passes < (std::int64_t{1} << 40); taken = run()) passes *= 4;
  passes = std::max<std::int64_t>(passes, static_cast<std::int64_t>(static_cast<double>(passes) * seconds / taken));
  taken = run();
  return (traffic == Traffic::update ? 2.0 : 1.0) * static_cast<double>(numbers * sizeof(float) * team) *
         static_cast<double>(passes) / taken * 1e-9;
}

MachineLimits measure_machine(int threads, bool quick) {
  MachineLimits limits;
  limits.threads = threads;
  const double seconds = quick ? 0.002 : 0.02;
  const int tries = quick ? 2 : 5;
  const std::vector<MemoryLevel> levels = memory_levels();
  const auto team = static_cast<std::size_t>(threads);
  // Half of a level; of the last one, which other programs share, no more than eight times the level below it.
  const std::size_t three = std::min(levels[2].bytes / 2, 8 * team * levels[1].bytes);
  const std::size_t beyond =
      quick ? std::size_t{64} << 20 : std::clamp(2 * levels[2].bytes, std::size_t{64} << 20, std::size_t{512} << 20);
  const std::size_t sizes[] = {team * levels[0].bytes / 2, team * levels[1].bytes / 2, three, beyond};
  for (const Traffic traffic : {Traffic::update, Traffic::read})
    for (const std::size_t size : sizes) {
      double best = 0;
      const bool large = size == beyond;
      for (int i = 0; i < (large ? 2 : tries); ++i)
        best = std::max(best, memory_bandwidth(traffic, size, threads, large ? 2 * seconds : seconds));
      (traffic == Traffic::update ? limits.update : limits.read).push_back(best);
    }
  for (int i = 0; i < tries; ++i) {
    limits.f32_gflops = std::max(limits.f32_gflops, fma_gflops(Type::f32, threads, seconds));
    limits.f64_gflops = std::max(limits.f64_gflops, fma_gflops(Type::f64, threads, seconds));
  }
  return limits;
}

double bandwidth_for(const MachineLimits& limits, Traffic traffic, std::size_t bytes) {
  const std::vector<double>& bandwidth = traffic == Traffic::update ? limits.update : limits.read;
  const std::vector<MemoryLevel> levels = memory_levels();
  const std::size_t share = bytes / static_cast<std::size_t>(limits.threads);
  if (share <= levels[0].bytes) return bandwidth[0];
  if (share <= levels[1].bytes) return bandwidth[1];
  return bytes <= levels[2].bytes ? bandwidth[2] : bandwidth[3];
}

std::string percent_text(double percent) {
  return percent < 1 || std::isnan(percent) ? short_number(percent) : fmt::format("{:.0f}", percent);
}

}  // namespace ttr::cli
