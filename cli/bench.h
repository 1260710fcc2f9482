// `ttr bench`: how fast and how stable. One struct of options and one function per thing that is measured; each
// returns the exit code: 0, 1 if a result was wrong, 130 after Ctrl-C. They throw Error for what the user can put right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ttr::cli {

struct BenchOptions {
  std::vector<std::string> layers;                // names, name:settings or recipes; empty: the standard table
  std::vector<std::string> forms = {"best"};      // or "all"
  std::vector<std::string> passes = {"forward"};  // forward, both, step
  std::vector<std::string> dtypes = {"f32"};      // f32, f64, bf16, f16
  std::vector<int> key_dims = {64}, value_dims;   // value_dims empty: as key_dims
  std::vector<int> heads = {8}, threads;          // threads empty: 1, and all of the machine
  std::vector<int> key_heads = {0};               // 0: as heads
  std::vector<std::int64_t> times = {4096};
  std::vector<std::string> gates = {"gentle"};  // bench_gates.h
  int runs = 7;
  bool quick = false, json = false, processor_time = false;
  std::string compare;  // JSON of an earlier run
  std::string report;   // HTML
  std::string command;  // the command line, for the report
};
int run_bench(const BenchOptions&);

struct StabilityOptions {
  std::int64_t steps = 100'000;
  int dim = 32;
  std::uint64_t seed = 1;
  bool json = false;
};
int run_bench_stability(const StabilityOptions&);  // rls-stability

struct GrowthOptions {
  std::vector<std::string> layers;  // empty: a few of each kind
  int dim = 64, heads = 1;
  std::int64_t longest = 1'000'000, longest_pairs = 16'384;  // tokens; of layers that keep their pairs
  bool quick = false, json = false;
  std::string report, command;
};
int run_bench_growth(const GrowthOptions&);  // growth

struct LatencyOptions {
  std::vector<std::string> layers;  // empty: a few of each kind
  std::int64_t steps = 1'000'000, pairs = 512;
  int key_dim = 64, value_dim = 0, heads = 4;  // value_dim 0: as key_dim
  int slots = 16;                              // of the plan in which one of many advances
  bool json = false;
};
int run_bench_latency(LatencyOptions);  // latency

struct AttentionOptions {
  std::int64_t time = 2048;
  int heads = 8, dim = 64, runs = 7;
  bool quick = false, json = false;
  std::string report, command;
};
int run_bench_attention(const AttentionOptions&);  // attention

struct FormsOptions {
  std::vector<int> dims = {32, 64, 128, 256}, chunks = {16, 32, 64, 128};
  int heads = 8, runs = 3;
  std::int64_t time = 2048;  // a quarter of it for states of 256 and more
  // Where a family has gates; the geometric mean over them counts.
  std::vector<std::string> gates = {"gentle", "mixed", "strong"};
  std::vector<int> vectors;  // bytes of a vector; empty: all that there are
  bool quick = false, json = false;
  std::string write;  // the table
};
int run_bench_forms(const FormsOptions&);  // forms

struct ShortOptions {
  std::vector<std::string> layers;  // empty: those with chunks of the standard table
  std::vector<int> dims = {64, 128};
  std::int64_t longest = 64;  // tokens
  int heads = 8, runs = 5;
  bool quick = false, json = false;
};
int run_bench_short(const ShortOptions&);  // short

struct StateOptions {
  std::vector<std::string> layers;  // empty: some of each kind
  std::string type;                 // bf16, i8; empty: what the layer has
  std::int64_t tokens = 100'000, call = 256, bytes = 128 << 20;
  int dim = 32, step_dim = 128, heads = 16, runs = 101;
  bool quick = false, json = false;
};
int run_bench_state(const StateOptions&);  // state

struct TrainBenchOptions {
  std::vector<std::string> layers = {"gated-deltanet"};  // the mixer of every block: a name or a stack's block
  std::vector<int> threads;                              // empty: all of the machine
  int blocks = 2, width = 128, heads = 2, time = 256, batch = 32, vocabulary = 256;
  int runs = 9;  // steps; the median counts
  bool quick = false, json = false;
};
int run_bench_train(const TrainBenchOptions&);  // train; with ttr::model only

struct ServeBenchOptions {
  int models = 1000, keys = 8, connections = 32;
  std::string layer = "nlms";
  std::int64_t requests = 100'000;    // as fast as they are answered
  double rate = 10'000, seconds = 5;  // then at this rate
  int limit = 120;                    // seconds after which a load is given up
  bool sync = false, quick = false, json = false;
};
int run_bench_serve(ServeBenchOptions);  // serve

struct MpiBenchOptions {
  std::vector<std::string> layers = {"gated-deltanet", "mamba-2"};
  std::vector<std::string> ways = {"relay", "scan"};  // or best; those that a layer does not have are left out
  std::string pass = "forward";                       // or both
  std::int64_t time = 65536;                          // tokens of all ranks
  int heads = 4, key_dim = 64, value_dim = 0, batch = 1, groups = 0, runs = 5;
  bool quick = false, json = false;
};
// mpi: run_bench_mpi, in ttr-mpi alone (ranks.h)

struct LanguageBenchOptions {
  std::vector<std::string> models;  // architectures of synthetic models, or paths; empty: all of the former
  std::vector<std::string> types = {"f32", "bf16", "q8_0"};  // of synthetic models
  int threads = 0;                                           // 0: all of the machine
  int prompt = 2048, tokens = 24, piece = 0;                 // piece 0: the library's own
  std::vector<int> batches = {1};                            // sequences that advance together
  std::string activations = "exact";                         // or rounded
  std::string folder;                                        // for synthetic models; empty: that of the system
  bool quick = false, json = false;
};
int run_bench_language(const LanguageBenchOptions&);  // language; with ttr::language only

}  // namespace ttr::cli
