// A sequence that is longer than one machine's memory: every rank makes its own piece of the tokens, runs Gated DeltaNet
// over all of them, and the last one has the final state.
//
//   cmake -S examples/cluster -B build-cluster -Dttr_ROOT=... && cmake --build build-cluster
//   mpirun -n 4 build-cluster/long_sequence 1000000
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ttr/mpi.h"
#include "ttr/ttr.h"

int main(int argc, char** argv) {
  int provided = 0, rank = 0, ranks = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int code = 0;
  try {
    const std::int64_t all = argc > 1 ? std::atoll(argv[1]) : 100000;
    const std::int64_t first = all * rank / ranks, T = all * (rank + 1) / ranks - first;
    constexpr int H = 4, K = 64, V = 64;
    const ttr::Plan plan = ttr::plan("gated-deltanet", {.batch = 1, .heads = H, .key_dim = K, .value_dim = V});
    ttr::mpi::Split split(plan, MPI_COMM_WORLD);

    // Tokens of this rank; a real program would read them.
    // Keys have length 1: the delta rule diverges with longer ones.
    const double size = std::sqrt(2.0 / K);
    const auto wave = [&](std::size_t width, double speed) {
      std::vector<float> x(static_cast<std::size_t>(T) * width);
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>(size *
                                  std::sin(speed * static_cast<double>(static_cast<std::size_t>(first) * width + i)));
      return x;
    };
    std::vector<float> q = wave(H * K, 0.7), k = wave(H * K, 1.3), v = wave(H * V, 0.2), o(v.size());
    std::vector<float> beta(static_cast<std::size_t>(T) * H, 0.5f), g(beta.size(), -0.01f);
    ttr::Inputs in;
    in["q"] = ttr::view(q.data(), 1, T, H, K), in["k"] = ttr::view(k.data(), 1, T, H, K);
    in["v"] = ttr::view(v.data(), 1, T, H, V);
    in["beta"] = ttr::view(beta.data(), 1, T, H), in["g"] = ttr::view(g.data(), 1, T, H);
    ttr::Outputs out;
    out["o"] = ttr::view(o.data(), 1, T, H, V);

    std::vector<std::byte> state(split.state_bytes(T));
    if (plan.reset({state.data(), state.size()}) != ttr::Status::ok) std::abort();
    split.forward(in, {state.data(), state.size()}, out);
    if (rank + 1 == ranks) {
      double sum = 0;
      for (const float x : o) sum += x;
      std::printf("%lld tokens on %d ranks by %s: the answers of the last piece add up to %.6g\n",
                  static_cast<long long>(all), ranks, std::string(to_string(split.way())).c_str(), sum);
    }
  } catch (const ttr::Error& error) {
    if (rank == 0) std::fprintf(stderr, "long_sequence: %s\n", error.what());
    code = 2;
  }
  MPI_Finalize();
  return code;
}
