#include <algorithm>
#include <chrono>
#include <thread>

#include "ttr/mpi.h"

namespace ttr::mpi {
namespace {

// Messages without bytes leave at once, or never: nobody waits for them.
void post(MPI_Comm comm, int to, int tag) {
  static char nothing = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Isend(&nothing, 0, MPI_BYTE, to, tag, comm, &request) == MPI_SUCCESS) MPI_Request_free(&request);
}

// The rank that such a message has come from, or -1.
int next(MPI_Comm comm, int tag) {
  static char nothing = 0;
  int any = 0;
  MPI_Status status;
  if (MPI_Iprobe(MPI_ANY_SOURCE, tag, comm, &any, &status) != MPI_SUCCESS || !any) return -1;
  const int from = status.MPI_SOURCE;
  MPI_Recv(&nothing, 0, MPI_BYTE, from, tag, comm, MPI_STATUS_IGNORE);
  return from;
}

}  // namespace

RollCall::RollCall(MPI_Comm comm, int tag) : comm_(comm), tag_(tag) {
  MPI_Comm_rank(comm_, &rank_), MPI_Comm_size(comm_, &ranks_);
}

void RollCall::answer() noexcept {
  for (int from = next(comm_, tag_); from >= 0; from = next(comm_, tag_)) post(comm_, from, tag_ + 1);
}

std::vector<int> RollCall::missing(double seconds) noexcept {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  std::vector<int> others;
  for (int r = 0; r < ranks_; ++r)
    if (r != rank_) others.push_back(r), post(comm_, r, tag_);
  while (!others.empty() && std::chrono::duration<double>(Clock::now() - begin).count() < seconds) {
    answer();
    for (int from = next(comm_, tag_ + 1); from >= 0; from = next(comm_, tag_ + 1)) std::erase(others, from);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return others;
}

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr std::size_t most = 8;
  std::string text = ranks.size() > 1 ? "ranks " : "rank ";
  const std::size_t shown = std::min(ranks.size(), most);
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  if (shown < ranks.size()) text += " and " + std::to_string(ranks.size() - shown) + " more";
  return text;
}

}  // namespace ttr::mpi
