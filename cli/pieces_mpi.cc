#include "pieces_mpi.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ttr/axes.h"
#include "ttr/mpi.h"

namespace ttr::cli {
namespace {

// Where pairs are kept, a ring leaves them with the rank that they belong to.
mpi::Settings settings_of(const Plan& plan, const std::function<void(double)>& idle) {
  mpi::Settings settings;
  settings.idle = idle;
  if (idle) settings.patience = HUGE_VAL;
  settings.shares = true;  // the ranks' shares of all gradients are added up at the end of a step
  const std::vector<mpi::Way> ways = mpi::Split::ways(plan);
  if (std::find(ways.begin(), ways.end(), mpi::Way::ring) != ways.end()) settings.way = mpi::Way::ring;
  return settings;
}

class SplitCall final : public model::Pieces::Call {
 public:
  SplitCall(const Plan& plan, MPI_Comm comm, const std::function<void(double)>& idle)
      : plan_(plan), split_(plan, comm, settings_of(plan, idle)) {}

  void forward(const Inputs& in, const Outputs& out) override {
    std::int64_t tokens = 0;
    for (const InputInfo& info : plan_.inputs()) {
      const std::size_t axis = Axes(info.shape).find_any("T");
      if (const ConstTensor t = in.get(info.name); t && axis != Axes::npos) tokens = t.extent[axis];
    }
    const std::size_t bytes = split_.state_bytes(tokens);
    if (state_.size() < bytes) state_.resize(bytes), start_.resize(bytes);
    const State state{state_.data(), bytes};
    if (plan_.reset(state) != Status::ok) throw Error(plan_.name() + ": a fresh state cannot be made", plan_.name());
    bytes_ = bytes;
    split_.forward(in, state, out, {start_.data(), bytes});
  }
  void backward(const Inputs& in, const Inputs& d_outputs, const Outputs& d_inputs) override {
    split_.backward(in, ConstState(start_.data(), bytes_), d_outputs, {}, d_inputs);
  }

 private:
  Plan plan_;
  mpi::Split split_;
  std::vector<std::byte> state_, start_;
  std::size_t bytes_ = 0;
};

class MpiPieces final : public model::Pieces {
 public:
  MpiPieces(MPI_Comm comm, std::function<void(MPI_Request&)> complete, std::function<void(double)> idle)
      : comm_(comm), complete_(std::move(complete)), idle_(std::move(idle)) {
    MPI_Comm_rank(comm_, &rank_), MPI_Comm_size(comm_, &count_);
  }
  ~MpiPieces() override {
    int ended = 0;
    MPI_Finalized(&ended);
    if (!ended) MPI_Comm_free(&comm_);
  }
  MpiPieces(const MpiPieces&) = delete;
  MpiPieces& operator=(const MpiPieces&) = delete;

  std::unique_ptr<Call> call(const Plan& plan) override { return std::make_unique<SplitCall>(plan, comm_, idle_); }

  void pass_on(const void* mine, void* theirs, std::size_t bytes, bool backwards) override {
    const int step = backwards ? -1 : 1, to = rank_ + step, from = rank_ - step;
    const auto there = [&](int rank) { return rank >= 0 && rank < count_; };
    std::memset(theirs, 0, bytes);
    for (std::size_t at = 0, part = 0; at < bytes; at += part) {  // a row of every sequence: most often one message
      part = std::min(bytes - at, mpi::largest_message());
      MPI_Request sent = MPI_REQUEST_NULL, came = MPI_REQUEST_NULL;
      const int size = static_cast<int>(part);
      if (there(from)) MPI_Irecv(static_cast<std::byte*>(theirs) + at, size, MPI_BYTE, from, 0, comm_, &came);
      if (there(to)) MPI_Isend(static_cast<const std::byte*>(mine) + at, size, MPI_BYTE, to, 0, comm_, &sent);
      if (there(from)) complete_(came);
      if (there(to)) complete_(sent);
    }
  }
  void sum(std::span<double> numbers) override {
    reduce(numbers, [](double a, double b) { return a + b; });
  }
  void largest(std::span<double> numbers) override {
    reduce(numbers, [](double a, double b) { return std::max(a, b); });
  }

 private:
  // In the order of pieces, so that the bits are the same in every run.
  template <class Operation>
  void reduce(std::span<double> numbers, Operation&& operation) {
    const std::size_t n = numbers.size();
    std::vector<double> all(n * static_cast<std::size_t>(count_));
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallgather(numbers.data(), static_cast<int>(n), MPI_DOUBLE, all.data(), static_cast<int>(n), MPI_DOUBLE,
                   comm_, &request);
    complete_(request);
    std::copy_n(all.begin(), n, numbers.begin());
    for (std::size_t i = n; i < all.size(); ++i) numbers[i % n] = operation(numbers[i % n], all[i]);
  }

  MPI_Comm comm_;
  std::function<void(MPI_Request&)> complete_;
  std::function<void(double)> idle_;
  int rank_ = 0, count_ = 1;
};

}  // namespace

std::unique_ptr<model::Pieces> make_pieces(MPI_Comm comm, std::function<void(MPI_Request&)> complete,
                                           std::function<void(double)> idle) {
  return std::make_unique<MpiPieces>(comm, std::move(complete), std::move(idle));
}

}  // namespace ttr::cli
