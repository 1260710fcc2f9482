// The processes that share one command: those that mpirun has started, or this one alone.
//
// `ttr` itself does not link MPI. Where mpirun has started it, and the verb is one that ranks can share, it becomes
// `ttr-mpi`, the same program with MPI, which lies beside it (become_ttr_mpi).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace ttr::model {
class Pieces;
}

namespace ttr::cli {

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int rank() const { return 0; }
  virtual int count() const { return 1; }
  /// Of these, how many are on this machine.
  virtual int here() const { return 1; }
  bool first() const { return rank() == 0; }

  // All of these are made by all ranks in the same order.
  /// all [count, bytes]: what every rank has given.
  virtual void gather(const void* mine, std::size_t bytes, void* all);
  /// The same with pieces of different sizes, one after another.
  virtual void gather_pieces(const void* mine, std::span<const std::size_t> bytes, void* all);
  /// `mine` is a piece for every rank, of bytes[r]; `all` gets the pieces for this one, in the order of ranks.
  virtual void exchange(const void* mine, std::span<const std::size_t> bytes, void* all);
  /// Everybody has the first rank's text.
  virtual void share(std::string&) {}
  /// Those of this rank's group, where `size` ranks one after another hold the pieces of sequences. Null if that is one.
  virtual std::unique_ptr<model::Pieces> pieces(int size);
  void wait();
  /// For one that waits by itself: throws Error if another rank of this machine has ended.
  virtual void look() {}

  /// What is said when another rank has ended or does not come, after who it was: "the last checkpoint is ..".
  std::function<std::string()> last_words;
  /// Seconds to wait for other ranks; 0: for ever. An hour, or the environment variable TTR_MPI_PATIENCE.
  double patience = 3600;
};

/// Those of this program.
Ranks& ranks();
/// For the program with MPI, before anybody asks.
void set_ranks(std::unique_ptr<Ranks>);

struct MpiBenchOptions;
/// What ttr-mpi adds to the program; main.cc is the same in both.
struct MpiProgram {
  void (*start)() = nullptr;
  /// `good`: all ranks end. Else this one leaves, and mpirun ends the others.
  void (*end)(bool good) = nullptr;
  int (*bench)(const MpiBenchOptions&) = nullptr;
};
/// Null in a program without MPI.
const MpiProgram*& mpi_program();

/// Whether mpirun, srun or the like has started this process as one of several, or perhaps so: some do not say how many.
bool started_as_rank();
/// A child of this process is none of the ranks.
void forget_ranks();
/// Replaces this process by ttr-mpi beside it, with the same words. Throws Error, with `why` it should, if that is not there.
[[noreturn]] void become_ttr_mpi(char** argv, const std::string& why);
/// Starts MPI where a verb can use it and there are ranks, or it is `needed`.
void start_ranks(char** argv, bool needed);
/// The end of the program, with its exit code; `good`: not by an Error.
int end_ranks(int code, bool good);

}  // namespace ttr::cli
