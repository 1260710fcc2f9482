// Ranks of MPI, for ttr-mpi alone.
//
// Traps: MPI says nothing when a rank has died; mpirun does, and ends the others soon after. So a rank that waits looks
// now and then whether the processes of its own machine are there, and the first that is left says who is not and where
// to go on from.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "bench_mpi.h"
#include "pieces_mpi.h"
#include "ranks.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

class MpiRanks : public Ranks {
 public:
  MpiRanks() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_), MPI_Comm_size(MPI_COMM_WORLD, &count_);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    if (provided < MPI_THREAD_FUNNELED)
      throw Error("this MPI has no thread support (MPI_THREAD_FUNNELED), which ttr needs; use another build of it",
                  "mpirun");
    Place mine{};
    mine.pid = getpid();
    gethostname(mine.host, sizeof mine.host - 1);
    places_.resize(static_cast<std::size_t>(count_));
    gather(&mine, sizeof mine, places_.data());
    for (const Place& one : places_) here_ += std::strcmp(one.host, mine.host) == 0;
  }
  int rank() const override { return rank_; }
  int count() const override { return count_; }
  int here() const override { return here_; }

  void gather(const void* mine, std::size_t bytes, void* all) override {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallgather(mine, number(bytes), MPI_BYTE, all, number(bytes), MPI_BYTE, comm_, &request);
    complete(request);
  }
  void gather_pieces(const void* mine, std::span<const std::size_t> bytes, void* all) override {
    std::vector<int> sizes, places;
    std::size_t sum = 0;
    for (const std::size_t size : bytes) sizes.push_back(number(size)), places.push_back(number(sum)), sum += size;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallgatherv(mine, sizes[static_cast<std::size_t>(rank_)], MPI_BYTE, all, sizes.data(), places.data(),
                    MPI_BYTE, comm_, &request);
    complete(request);
  }
  void exchange(const void* mine, std::span<const std::size_t> bytes, void* all) override {
    std::vector<int> sizes, places, own, own_places;
    std::size_t sum = 0;
    const std::size_t size_here = bytes[static_cast<std::size_t>(rank_)];
    for (std::size_t r = 0; r < bytes.size(); ++r) {
      sizes.push_back(number(bytes[r])), places.push_back(number(sum)), sum += bytes[r];
      own.push_back(number(size_here)), own_places.push_back(number(r * size_here));
    }
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ialltoallv(mine, sizes.data(), places.data(), MPI_BYTE, all, own.data(), own_places.data(), MPI_BYTE, comm_,
                   &request);
    complete(request);
  }
  void share(std::string& text) override {
    std::uint64_t size = text.size();
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibcast(&size, 1, MPI_UINT64_T, 0, comm_, &request);
    complete(request);
    text.resize(size);
    MPI_Ibcast(text.data(), number(size), MPI_BYTE, 0, comm_, &request);
    complete(request);
  }
  std::unique_ptr<model::Pieces> pieces(int size) override {
    if (size == 1) return nullptr;
    MPI_Comm group = MPI_COMM_NULL;
    MPI_Comm_split(comm_, rank_ / size, rank_, &group);
    return make_pieces(group, [this](MPI_Request& request) { complete(request); });
  }

 private:
  struct Place {
    std::int64_t pid;
    char host[248];
  };

  static int number(std::size_t bytes) {
    if (bytes > INT_MAX)
      throw Error("a message of " + std::to_string(bytes) +
                      " bytes is more than MPI takes at once; the model is too "
                      "large for this number of ranks",
                  "mpirun");
    return static_cast<int>(bytes);
  }

  void complete(MPI_Request& request) {
    for (std::int64_t tries = 0;; ++tries) {
      int done = 0;
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done) return;
      if (tries < 100) continue;
      if (tries < 400) sched_yield();
      else std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (tries % 256 == 0) look();
    }
  }

  // Whether the others on this machine are there.
  void look() {
    int first_here = -1;
    for (int r = 0; r < count_; ++r) {
      const Place &one = places_[static_cast<std::size_t>(r)], &mine = places_[static_cast<std::size_t>(rank_)];
      if (std::strcmp(one.host, mine.host) != 0) continue;
      if (r == rank_ || kill(static_cast<pid_t>(one.pid), 0) == 0 || errno != ESRCH) {
        if (first_here < 0) first_here = r;
        continue;
      }
      gone_ = r;
    }
    if (gone_ < 0) return;
    if (first_here != rank_) {  // one sentence is enough
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      _exit(1);
    }
    const Place& one = places_[static_cast<std::size_t>(gone_)];
    throw Error("rank " + std::to_string(gone_) + " of " + std::to_string(count_) + " (process " +
                    std::to_string(one.pid) + " on " + one.host + ") has ended, and the others with it" +
                    (last_words ? "; " + last_words() : ""),
                "rank " + std::to_string(gone_));
  }

  int rank_ = 0, count_ = 1, here_ = 0, gone_ = -1;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<Place> places_;
};

bool started = false;
void start() {
  if (started) return;
  started = true;
  set_ranks(std::make_unique<MpiRanks>());
}
void end(bool good) {
  if (!started) return;
  if (good) MPI_Finalize();
  // Others may have had the same to say: the sentence of the first rank is enough, if it comes to that.
  else if (!ranks().first()) std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

const MpiProgram program = {start, end, run_bench_mpi};
[[maybe_unused]] const bool known = (mpi_program() = &program) != nullptr;

}  // namespace
}  // namespace ttr::cli
