#include "mpi/channel.h"

#include <sched.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace ttr::mpi {
namespace {

// FNV-1a: to notice that texts differ, not against malice.
std::int64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return static_cast<std::int64_t>(hash);
}

std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return std::string(text, static_cast<std::size_t>(length));
}

// Before there is a communicator of our own: what can be wrong on this rank alone.
void check_mpi(MPI_Comm comm, bool threads) {
  int started = 0, ended = 0;
  MPI_Initialized(&started);
  if (!started) throw Error("MPI has not been started; call MPI_Init_thread before ttr::mpi::Split is made", "comm");
  MPI_Finalized(&ended);
  if (ended)
    throw Error("MPI_Finalize has been called; a ttr::mpi::Split lives between MPI_Init and MPI_Finalize", "comm");
  if (comm == MPI_COMM_NULL)
    throw Error("the communicator is MPI_COMM_NULL: it was freed, or this rank is not part of it", "comm");
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (threads && level < MPI_THREAD_FUNNELED)
    throw Error(
        "the plan has several threads and MPI was started without thread support (MPI_THREAD_SINGLE); start it with "
        "MPI_Init_thread(.., MPI_THREAD_FUNNELED, ..), or plan with threads = 1",
        "options.threads");
}

// Below the least number that MPI may have for the largest tag, above those of the ways.
constexpr int roll_tag = 32766;

// Of numbers that a collective call takes of a rank.
int number_of(std::size_t count) {
  if (count > INT_MAX) throw Error(std::to_string(count) + " numbers are more than MPI adds up in one call", "comm");
  return static_cast<int>(count);
}

}  // namespace

std::size_t largest_message() {
  constexpr std::size_t usual = std::size_t{1} << 30;
  const char* text = std::getenv("TTR_MPI_MESSAGE");
  const long long given = text ? std::atoll(text) : 0;
  return given > 0 ? std::min(static_cast<std::size_t>(given), usual) : usual;
}

Channel::Channel(MPI_Comm comm, double seconds, bool threads, std::function<void(double)> idle)
    : largest(largest_message()), patience(seconds), idle_(std::move(idle)) {
  check_mpi(comm, threads);
  if (!(patience > 0)) throw Error("patience is not a positive number of seconds", "settings.patience");
  // A handle that was freed through a copy of it is noticed by MPI itself, which would end the program.
  MPI_Errhandler before = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const auto restore = [&] {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
    MPI_Errhandler_free(&before);
  };
  int is_inter = 0;
  int code = MPI_Comm_test_inter(comm, &is_inter);
  if (code != MPI_SUCCESS || is_inter) {
    restore();
    throw Error(is_inter
                    ? std::string("the communicator is an inter-communicator; ranks of one group hold a sequence")
                    : "the communicator is of no use (" + error_text(code) + "); it was freed, perhaps",
                "comm");
  }
  MPI_Request request = MPI_REQUEST_NULL;
  code = MPI_Comm_idup(comm, &comm_, &request);
  restore();
  if (code != MPI_SUCCESS)
    throw Error("the communicator is of no use (" + error_text(code) + "); it was freed, perhaps", "comm");
  MPI_Comm_rank(comm, &rank_), MPI_Comm_size(comm, &ranks_);
  wait(request, "all ranks to make a ttr::mpi::Split", nullptr);
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  roll_.emplace(comm_, roll_tag);
}

Channel::~Channel() {
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended) return;
  for (Letter& letter : under_way_)  // only after an Error: the receiver may be gone
    if (letter.request != MPI_REQUEST_NULL)
      new std::shared_ptr<const std::vector<std::byte>>(std::move(letter.bytes));  // MPI still reads it
  if (comm_ != MPI_COMM_NULL && under_way_.empty()) MPI_Comm_free(&comm_);
}

void Channel::check(int code, const char* call) const {
  if (code != MPI_SUCCESS)
    throw Error("rank " + std::to_string(rank_) + ": " + call + " failed: " + error_text(code), "comm");
}

void Channel::wait(MPI_Request& request, const std::string& what, double* clock) {
  wait_until(
      [&] {
        int done = 0;
        check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
        return done != 0;
      },
      [&] { return what; }, clock);
}

void Channel::wait_until(const std::function<bool()>& done, const std::function<std::string()>& what, double* clock) {
  double ignored = 0;
  double& total = clock ? *clock : ignored;
  const Stopwatch stopwatch(total);
  const double composed = counts.composing;
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t tries = 0;; ++tries) {
    if (done()) {
      total -= counts.composing - composed;  // which is no waiting
      return;
    }
    if (tries < 100) continue;
    if (tries < 400) sched_yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(50));
    advance_all();
    if (tries % 64 != 0) continue;
    if (roll_) roll_->answer();
    const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (idle_) idle_(waited);
    if (waited > patience) {
      const std::vector<int> missing = roll_ ? roll_->missing(std::min(patience, 5.0)) : std::vector<int>();
      throw Error("rank " + std::to_string(rank_) + " has waited " + std::to_string(static_cast<int>(patience)) +
                      " seconds for " + what() + "; " +
                      (missing.empty() ? std::string("does every rank make the same calls?")
                                       : ranks_text(missing) + (missing.size() > 1 ? " do" : " does") +
                                             " not answer: does every rank make the same calls, and is it alive?") +
                      " (Settings::patience says how long to wait)",
                  "comm");
    }
  }
}

template <class T>
std::vector<T> Channel::gathered(std::span<const T> numbers, MPI_Datatype type) {
  Lent<T> mine(std::vector<T>(numbers.begin(), numbers.end()));
  Lent<T> all(mine->size() * static_cast<std::size_t>(ranks_));
  const int count = number_of(mine->size());
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallgather(mine->data(), count, type, all->data(), count, type, comm_, &request), "MPI_Iallgather");
  wait(request, "all ranks to make the same call", &counts.waiting);
  ++counts.collectives, counts.collective_bytes += static_cast<std::int64_t>(numbers.size_bytes());
  return std::move(*all);
}
std::vector<std::int64_t> Channel::all_of(std::span<const std::int64_t> numbers) {
  return gathered(numbers, MPI_INT64_T);
}
std::vector<double> Channel::all_of(std::span<const double> numbers) { return gathered(numbers, MPI_DOUBLE); }

std::vector<double> Channel::exchange(std::span<const double> numbers) {
  Lent<double> mine(std::vector<double>(numbers.begin(), numbers.end())), theirs(numbers.size());
  const int count = number_of(numbers.size() / static_cast<std::size_t>(ranks_));
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ialltoall(mine->data(), count, MPI_DOUBLE, theirs->data(), count, MPI_DOUBLE, comm_, &request),
        "MPI_Ialltoall");
  wait(request, "the numbers of all ranks", &counts.waiting);
  ++counts.collectives, counts.collective_bytes += static_cast<std::int64_t>(numbers.size_bytes());
  return std::move(*theirs);
}

void Channel::agree(const std::string& complaint) {
  const std::int64_t length = static_cast<std::int64_t>(complaint.size());
  const std::vector<std::int64_t> lengths = all_of({&length, 1});
  const auto first = std::find_if(lengths.begin(), lengths.end(), [](std::int64_t n) { return n > 0; });
  if (first == lengths.end()) return;
  const int who = static_cast<int>(first - lengths.begin());
  Lent<char> letters(std::vector<char>(complaint.begin(), complaint.end()));
  letters->resize(static_cast<std::size_t>(*first));
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibcast(letters->data(), static_cast<int>(*first), MPI_CHAR, who, comm_, &request), "MPI_Ibcast");
  wait(request, "the sentence of rank " + std::to_string(who), &counts.waiting);
  const std::string text(letters->begin(), letters->end());
  throw Error("rank " + std::to_string(who) + " of " + std::to_string(ranks_) + ": " + text, "rank");
}

void Channel::same(const std::string& text, const std::string& what) {
  const std::int64_t mine = hash_of(text);
  const std::vector<std::int64_t> all = all_of({&mine, 1});
  const auto other = std::find_if(all.begin(), all.end(), [&](std::int64_t hash) { return hash != all[0]; });
  if (other == all.end()) return;
  Lent<char> first(std::vector<char>(text.begin(), text.end()));
  first->resize(1000), first->back() = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibcast(first->data(), 1000, MPI_CHAR, 0, comm_, &request), "MPI_Ibcast");
  wait(request, "the text of rank 0", &counts.waiting);
  const int who = static_cast<int>(other - all.begin());
  agree(who != rank_ ? std::string()
                     : what + " differs from that of rank 0; here it is " + text + ", there " + first->data() +
                           ". Every rank must give the same");
}

template <class T>
void Channel::sum_in_order(std::span<T> numbers, MPI_Datatype type) {
  // MPI_Allreduce may add up in another order on another number of nodes; these are small.
  const std::vector<T> all = gathered(std::span<const T>(numbers), type);
  std::copy_n(all.begin(), numbers.size(), numbers.begin());
  for (std::size_t r = 1; r < static_cast<std::size_t>(ranks_); ++r)
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] += all[r * numbers.size() + i];
}
void Channel::sum(std::span<float> numbers) { sum_in_order(numbers, MPI_FLOAT); }
void Channel::sum(std::span<double> numbers) { sum_in_order(numbers, MPI_DOUBLE); }

void Channel::send(std::vector<std::byte> bytes, int to, int tag) {
  send(std::make_shared<const std::vector<std::byte>>(std::move(bytes)), to, tag);
}

void Channel::send(std::shared_ptr<const std::vector<std::byte>> bytes, int to, int tag) {
  const Stopwatch stopwatch(counts.communication);
  while (!under_way_.empty()) {  // those that have left
    int done = 0;
    check(MPI_Test(&under_way_.front().request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (!done) break;
    under_way_.pop_front();
  }
  std::size_t at = 0;
  do {
    const std::size_t part = std::min(largest, bytes->size() - at);
    ++counts.messages, counts.bytes += static_cast<std::int64_t>(part);
    Letter& letter = under_way_.emplace_back(Letter{bytes, MPI_REQUEST_NULL, to});
    check(MPI_Isend(bytes->data() + at, static_cast<int>(part), MPI_BYTE, to, tag, comm_, &letter.request),
          "MPI_Isend");
    at += part;
  } while (at < bytes->size());
}

Expected::~Expected() {
  int ended = 0;
  MPI_Finalized(&ended);
  for (MPI_Request& request : requests_) {
    if (request == MPI_REQUEST_NULL) continue;
    static_cast<void>(bytes_.release());
    if (!ended) MPI_Cancel(&request), MPI_Request_free(&request);
  }
}

// Messages of one rank with one tag come in the order in which they were sent.
void Channel::expect_into(std::byte* to, std::size_t bytes, int from, int tag, std::vector<MPI_Request>& requests) {
  std::size_t at = 0;
  do {
    const std::size_t part = std::min(largest, bytes - at);
    MPI_Request& request = requests.emplace_back(MPI_REQUEST_NULL);
    check(MPI_Irecv(to + at, static_cast<int>(part), MPI_BYTE, from, tag, comm_, &request), "MPI_Irecv");
    at += part;
  } while (at < bytes);
}

Expected Channel::expect(std::size_t bytes, int from, int tag) {
  Expected coming;
  coming.bytes_ = std::make_unique<std::vector<std::byte>>(bytes), coming.from_ = from;
  expect_into(coming.bytes_->data(), bytes, from, tag, coming.requests_);
  return coming;
}

bool Channel::arrived(Expected& coming) {
  int done = 0;
  for (MPI_Request& request : coming.requests_) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (!done) return false;
  }
  return true;
}

void Channel::wait_for(Expected& coming, const std::string& what) {
  for (MPI_Request& request : coming.requests_)
    wait(request, what + " from rank " + std::to_string(coming.from_), &counts.waiting);
}

std::vector<std::byte> Channel::take(Expected coming, const std::string& what) {
  wait_for(coming, what);
  return std::move(*coming.bytes_);
}

void Channel::receive(std::span<std::byte> bytes, int from, int tag, const std::string& what) {
  std::vector<MPI_Request> requests;
  expect_into(bytes.data(), bytes.size(), from, tag, requests);
  try {
    for (MPI_Request& request : requests) wait(request, what + " from rank " + std::to_string(from), &counts.waiting);
  } catch (...) {
    for (MPI_Request& request : requests)
      if (request != MPI_REQUEST_NULL) MPI_Cancel(&request), MPI_Request_free(&request);
    throw;
  }
}

void Channel::progress() noexcept {
  // Not too often: an MPI that shares its cores gives up its time slice with every call.
  const auto now = std::chrono::steady_clock::now();
  if (now - last_progress_ < std::chrono::microseconds(300)) return;
  try {
    advance_all();
  } catch (...) {
    // The next wait says it again.
  }
  int any = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &any, MPI_STATUS_IGNORE);
  last_progress_ = std::chrono::steady_clock::now();
}

void Channel::flush() {
  while (!under_way_.empty()) {
    wait(under_way_.front().request, "rank " + std::to_string(under_way_.front().to) + " to take a message",
         &counts.waiting);
    under_way_.pop_front();
  }
}

}  // namespace ttr::mpi
