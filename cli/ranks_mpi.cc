// Ranks of MPI, for ttr-mpi alone.
//
// Traps: MPI says nothing when a rank has died; mpirun does, and ends the others soon after. So a rank that waits looks
// now and then whether the processes of its own machine are there, and the first that is left says who is not and where
// to go on from. Of other machines it knows nothing: when it has waited for too long it asks all ranks whether they are
// there (those that wait answer), and says who has not answered.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "bench_mpi.h"
#include "pieces_mpi.h"
#include "ranks.h"
#include "ttr/mpi.h"
#include "ttr/status.h"

namespace ttr::cli {
namespace {

class MpiRanks : public Ranks {
 public:
  MpiRanks() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_), MPI_Comm_size(MPI_COMM_WORLD, &count_);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_), MPI_Comm_dup(MPI_COMM_WORLD, &talk_);
    MPI_Comm_set_errhandler(talk_, MPI_ERRORS_RETURN);
    roll_.emplace(talk_, 0);
    if (const char* text = std::getenv("TTR_MPI_PATIENCE")) patience = std::max(0.0, std::atof(text));
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
    // Every rank gets the same from all: as if it had been sent to all of them.
    const std::size_t own = bytes[static_cast<std::size_t>(rank_)];
    in_parts(
        [&](int) {
          return Slice{static_cast<const std::byte*>(mine), own};
        },
        slices(static_cast<std::byte*>(all), bytes), true);
  }
  void exchange(const void* mine, std::span<const std::size_t> bytes, void* all) override {
    const std::vector<std::size_t> own(bytes.size(), bytes[static_cast<std::size_t>(rank_)]);
    const std::vector<Slice> to = slices(static_cast<std::byte*>(const_cast<void*>(mine)), bytes);  // only read
    in_parts([&](int r) { return to[static_cast<std::size_t>(r)]; }, slices(static_cast<std::byte*>(all), own),
             false);
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
    return make_pieces(
        group, [this](MPI_Request& request) { complete(request); }, [this](double waited) { idle(waited); });
  }

  void look() override {
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

 private:
  struct Place {
    std::int64_t pid;
    char host[248];
  };

  struct Slice {
    const std::byte* data;
    std::size_t bytes;
  };
  // One after another.
  static std::vector<Slice> slices(const std::byte* data, std::span<const std::size_t> bytes) {
    std::vector<Slice> all;
    for (const std::size_t size : bytes) all.push_back({data, size}), data += size;
    return all;
  }

  // Collective: what this rank has for rank r goes there, and what r has for it to from[r]; `same`: all ranks get the same.
  // MPI counts bytes in int, also those of all ranks together: more goes in parts, through buffers.
  template <class To>
  void in_parts(To&& to, const std::vector<Slice>& from, bool same) {
    const auto count = static_cast<std::size_t>(count_);
    std::size_t longest = 1;  // the same on every rank: each has the longest to send or to get
    for (const Slice& one : from) longest = std::max(longest, one.bytes);
    for (int r = 0; r < count_; ++r) longest = std::max(longest, to(r).bytes);
    const bool whole = longest <= mpi::largest_message() / count;
    const std::size_t buffer = std::min(mpi::largest_message(), std::size_t{1} << 26);
    const std::size_t most = whole ? longest : std::max<std::size_t>(1, buffer / count);
    std::vector<int> sizes(count), places(count), own(count), own_places(count);
    std::vector<std::byte> sent, came;
    for (std::size_t at = 0; at < longest; at += most) {
      const auto part = [&](const Slice& one) { return one.bytes > at ? std::min(most, one.bytes - at) : 0; };
      std::size_t leaving = 0, coming = 0;
      sent.clear();
      for (std::size_t r = 0; r < count; ++r) {
        const Slice mine = to(static_cast<int>(r));
        const std::size_t size = part(mine), back = part(from[r]);
        sizes[r] = static_cast<int>(size), places[r] = static_cast<int>(leaving), leaving += size;
        own[r] = static_cast<int>(back), own_places[r] = static_cast<int>(coming), coming += back;
        if (!whole && !same && size > 0) sent.insert(sent.end(), mine.data + at, mine.data + at + size);
      }
      if (!whole) came.resize(coming);
      const std::byte* const out = whole || same ? to(0).data + (sizes[0] > 0 ? at : 0) : sent.data();
      std::byte* const in = whole ? const_cast<std::byte*>(from[0].data) : came.data();
      MPI_Request request = MPI_REQUEST_NULL;
      if (same)
        MPI_Iallgatherv(out, sizes[0], MPI_BYTE, in, own.data(), own_places.data(), MPI_BYTE, comm_, &request);
      else
        MPI_Ialltoallv(out, sizes.data(), places.data(), MPI_BYTE, in, own.data(), own_places.data(), MPI_BYTE, comm_,
                       &request);
      complete(request);
      for (std::size_t r = 0; r < count && !whole; ++r)
        if (own[r] > 0)
          std::memcpy(const_cast<std::byte*>(from[r].data) + at, came.data() + own_places[r],
                      static_cast<std::size_t>(own[r]));
    }
  }

  static int number(std::size_t bytes) {
    if (bytes > INT_MAX)
      throw Error("a message of " + std::to_string(bytes) + " bytes is more than MPI takes at once", "mpirun");
    return static_cast<int>(bytes);
  }

  void complete(MPI_Request& request) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t tries = 0;; ++tries) {
      int done = 0;
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done) return;
      if (tries < 100) continue;
      if (tries < 400) sched_yield();
      else std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (tries % 256 == 0) idle(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
  }

  // While this rank waits for others, here or in a ttr::mpi::Split.
  void idle(double waited) {
    look();
    roll_->answer();
    if (patience <= 0 || waited < patience) return;
    const std::vector<int> missing = roll_->missing(std::min(patience, 5.0));
    std::string who = missing.empty() ? "all ranks answer, and are not at the same step" : mpi::ranks_text(missing);
    if (!missing.empty()) {
      const Place& one = places_[static_cast<std::size_t>(missing[0])];
      who += " of " + std::to_string(count_) + " (" + (missing.size() > 1 ? "the first: " : "") + "process " +
             std::to_string(one.pid) + " on " + one.host + ") " + (missing.size() > 1 ? "do" : "does") +
             " not answer";
    }
    throw Error("rank " + std::to_string(rank_) + " has waited " + std::to_string(static_cast<int>(waited)) +
                    " seconds for others: " + who + (last_words ? "; " + last_words() : "") +
                    " (TTR_MPI_PATIENCE: seconds to wait)",
                missing.empty() ? "mpirun" : mpi::ranks_text(missing));
  }

  int rank_ = 0, count_ = 1, here_ = 0, gone_ = -1;
  MPI_Comm comm_ = MPI_COMM_NULL, talk_ = MPI_COMM_NULL;
  std::optional<mpi::RollCall> roll_;
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
