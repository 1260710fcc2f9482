// What a Split needs of MPI: messages and collective calls that end after a time limit with a sentence, and checks that
// say the same on every rank.
//
// Traps: MPI has no time limits, so that every call here is one that returns at once, tested until it is complete. With
// more ranks than cores a rank that only tests would keep the others from working: it soon gives up its time slice. A
// limit that is over leaves a request behind, which is why a Channel is of no use after an Error.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ttr/mpi.h"

namespace ttr::mpi {

/// Seconds between its making and its end are added to `total`.
class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() { total_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& total_;
  std::chrono::steady_clock::time_point start_;
};

/// Memory that MPI writes to or reads from. If an Error leaves it behind, the call may still be under way: then it stays.
template <class T>
class Lent {
 public:
  explicit Lent(std::size_t size) : numbers_(new std::vector<T>(size)) {}
  explicit Lent(std::vector<T> numbers) : numbers_(new std::vector<T>(std::move(numbers))) {}
  ~Lent() {
    if (std::uncaught_exceptions() > errors_) static_cast<void>(numbers_.release());
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  std::vector<T>& operator*() { return *numbers_; }
  std::vector<T>* operator->() { return numbers_.get(); }

 private:
  std::unique_ptr<std::vector<T>> numbers_;
  int errors_ = std::uncaught_exceptions();
};

/// Bytes that are on their way from another rank, from Channel::expect to Channel::take. If it is left behind by an Error,
/// MPI may still write to the memory: then it stays.
class Expected {
 public:
  Expected() = default;
  Expected(Expected&& other) noexcept { *this = std::move(other); }
  Expected& operator=(Expected&& other) noexcept {
    std::swap(bytes_, other.bytes_), std::swap(requests_, other.requests_), std::swap(from_, other.from_);
    return *this;
  }
  ~Expected();

 private:
  friend class Channel;
  std::unique_ptr<std::vector<std::byte>> bytes_;
  std::vector<MPI_Request> requests_;  // of its parts
  int from_ = 0;
};

/// An exclusive scan under way (mpi/exscan.cc), from Channel::begin_exscan to Channel::end_exscan. It goes on whenever MPI is
/// called in between; it may not be moved while it does.
class Exscan {
 public:
  /// The two as one, in the place of the one from ranks that are nearer to this one.
  using Compose = std::function<void(const std::byte* further, std::byte* nearer)>;
  Exscan() = default;
  ~Exscan();
  Exscan(const Exscan&) = delete;
  Exscan& operator=(const Exscan&) = delete;

 private:
  friend class Channel;
  class Channel* channel_ = nullptr;
  std::vector<std::byte> mine_, before_;  // before_: of ranks up to the one before this, from some other one on
  std::size_t bytes_ = 0;
  Compose compose_;
  Expected next_;
  int step_ = 0;  // 0: from the neighbour. Then 1, 2, 4, ..
  int tag_ = 0;
  bool backwards_ = false, expects_ = false;
};

class Channel {
  friend class Exscan;

 public:
  /// Collective: a copy of the communicator, so that nobody else's messages are taken for ours. Throws Error.
  Channel(MPI_Comm, double patience, bool threads, std::function<void(double)> idle = {});
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// Collective: throws Error on every rank if one of them complains, with the complaint of the first that does.
  void agree(const std::string& complaint);
  /// Collective: throws if a rank has another text; `what` names it: "the plan".
  void same(const std::string& text, const std::string& what);
  /// Collective: the numbers of every rank, in the order of ranks.
  std::vector<std::int64_t> all_of(std::span<const std::int64_t> mine);
  std::vector<double> all_of(std::span<const double> mine);
  /// Collective: as many numbers for every rank, in their order; what all ranks have for this one, in the order of ranks.
  std::vector<double> exchange(std::span<const double> mine);
  /// Collective: adds up bytes of every rank in the order of ranks; the same bits on all of them.
  void sum(std::span<float> numbers);
  void sum(std::span<double> numbers);

  /// Sends without waiting; the bytes are kept here until they have left. More bytes than `largest` go as several messages,
  /// here and in all that follows.
  void send(std::vector<std::byte> bytes, int to, int tag);
  /// The same bytes may go to several ranks.
  void send(std::shared_ptr<const std::vector<std::byte>> bytes, int to, int tag);
  /// `what`: "the state of its piece".
  void receive(std::span<std::byte> bytes, int from, int tag, const std::string& what);
  /// The same in two parts, so that work can be done while the bytes come.
  Expected expect(std::size_t bytes, int from, int tag);
  std::vector<std::byte> take(Expected, const std::string& what);
  /// Lets MPI move bytes that are on their way, for a thread that works meanwhile: few MPIs do so by themselves.
  void progress() noexcept;
  /// Waits until everything has left.
  void flush();

  /// Collective: what the elements of all ranks before this one are together, of as many bytes on all ranks; of the first rank it
  /// is nothing. `backwards`: all ranks after this one. Scans that are under way at the same time have tags of their own.
  /// The order in which elements are composed, messages and bytes depend on the number of ranks alone (mpi/exscan.cc).
  std::unique_ptr<Exscan> begin_exscan(std::vector<std::byte> mine, Exscan::Compose, bool backwards, int tag);
  std::vector<std::byte> end_exscan(Exscan&);

  std::size_t largest;  // bytes of a message; the same on all ranks

  Counts counts;
  double patience;  // seconds to wait for another rank

 private:
  // Until `done`; `what` it is that this rank waits for is asked when it has waited for too long.
  void wait_until(const std::function<bool()>& done, const std::function<std::string()>& what, double* clock);
  void wait(MPI_Request&, const std::string& what, double* clock);
  void wait_for(Expected&, const std::string& what);
  bool arrived(Expected&);
  void expect_into(std::byte* to, std::size_t bytes, int from, int tag, std::vector<MPI_Request>& requests);
  // A scan as far as it gets without waiting; whether it is at its end.
  bool advance(Exscan&);
  int place_in(const Exscan& scan) const { return scan.backwards_ ? ranks_ - 1 - rank_ : rank_; }
  void advance_all();
  void check(int code, const char* call) const;
  template <class T>
  std::vector<T> gathered(std::span<const T> mine, MPI_Datatype);
  template <class T>
  void sum_in_order(std::span<T> numbers, MPI_Datatype);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, ranks_ = 1;
  struct Letter {
    std::shared_ptr<const std::vector<std::byte>> bytes;
    MPI_Request request;
    int to;
  };
  std::function<void(double)> idle_;
  std::optional<RollCall> roll_;
  std::deque<Letter> under_way_;
  std::vector<Exscan*> scans_;  // under way
  std::chrono::steady_clock::time_point last_progress_{};
};

}  // namespace ttr::mpi
