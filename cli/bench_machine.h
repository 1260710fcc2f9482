// What the machine can do at most: multiply-adds per second out of registers, and bytes per second in each level of
// memory, of an update in place, x <- a x + b (bytes read and bytes written are both counted), and of reading alone.
//
// Vector code by compiler extensions, one function per instruction set, chosen at run time. All threads start together;
// the slowest counts. Numbers of shared machines differ from second to second: measure beside what is compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ttr/view.h"

namespace ttr::cli {

/// Runs `work(thread)` on that many threads at once and returns the seconds from the common start to the last end.
double seconds_of_team(int threads, const std::function<void(int)>& work);
/// From now on one thread's seconds are those the process had a processor: for machines that others use, too.
void count_processor_time();

/// The instruction set of the peak: "AVX-512", "AVX2", "128-bit vectors".
std::string vector_unit();

/// GFLOP/s of all threads together, measured for about so many seconds.
double fma_gflops(Type type, int threads, double seconds);

/// A share of what the machine can do: "63"; below one percent three digits, "0.0254"; "-" for NaN, what was not counted.
std::string percent_text(double percent);

struct MemoryLevel {
  std::string name;       // "L1", "L2", "L3", "DRAM"
  std::size_t bytes = 0;  // what it holds; DRAM: 0
};
/// As the system tells; guessed where it does not.
std::vector<MemoryLevel> memory_levels();

enum class Traffic { update, read };
/// GB/s of passes over that many bytes in all, split between the threads.
double memory_bandwidth(Traffic, std::size_t bytes, int threads, double seconds);

struct MachineLimits {
  int threads = 1;
  double f32_gflops = 0, f64_gflops = 0;
  std::vector<double> update, read;  // GB/s of memory_levels()
};
/// The best of several short measurements.
MachineLimits measure_machine(int threads, bool quick);

/// The bandwidth of the smallest level that holds `bytes` per thread (L3 and DRAM: of all threads).
double bandwidth_for(const MachineLimits&, Traffic, std::size_t bytes);

}  // namespace ttr::cli
