// A sequence that lies on the ranks of an MPI communicator. A library of its own, ttr::mpi (docs/scaling.md).
//
//   MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
//   ttr::Plan plan = ttr::plan("gated-deltanet", {.batch = 1, .heads = 4, .key_dim = 64, .value_dim = 64});
//   ttr::mpi::Split split(plan, MPI_COMM_WORLD);                  // collective: every rank, the same plan
//   in["q"] = ttr::view(q, 1, T, 4, 64);  ...                      // T: the tokens of this rank; it may be 0
//   plan.reset({state.data(), state.size()});                      // split.state_bytes(T) of them
//   split.forward(in, {state.data(), state.size()}, out);          // as Plan::forward of all ranks' tokens, end to end
//
// Ranks hold consecutive pieces of the sequence, rank 0 the first; pieces may differ in length. With cu_seqlens the
// sequences are packed end to end over all ranks: every rank gives the same list, which counts the tokens of all ranks.
//
// States. What rank 0 gives is the initial state, the contents of the others are not read; afterwards every rank has the
// state at the end of its piece, the last rank that of all tokens. backward wants the state at the beginning of the piece,
// which forward leaves in `start`.
//
// Ways. `best` takes what is expected to be quickest; all are exact, with the same bits in every run on as many ranks with
// pieces of the same lengths.
//
//   relay    rank r waits for the state of rank r - 1, group after group of sequences and heads, so that ranks work on
//            different groups at a time. Every causal layer; no work is done twice
//   scan     every rank makes the map of its piece, start to end, and its end from nothing; an exclusive scan composes them;
//            then it runs from its own start. Layers that are affine in their state; work is done twice, but nobody waits
//   halo     layers whose state is the last few tokens, or how many there were: short convolutions, positions, softmax over
//            a window. A rank sends the end of its piece before it runs, so that nobody waits for work. Calls whose
//            sequences are packed, or whose pieces are shorter than what is kept, are relayed
//   gather   layers that keep their pairs: every rank sends those of its piece to all later ones before it runs. Later ranks
//            have more to do, and the last one holds all pairs
//   ring     attention over all pairs (softmax, with norms, a sink, forget gates, a Gaussian, not normalised): keys and values
//            come by block after block, or queries go to them, so that ranks have the same to do. The state is divided as
//            well: that of a rank keeps the pairs of its own piece (rank 0: and those before). Only if asked for; not with
//            d_final
//
// Errors are ttr::Error with the same sentence on every rank, and a rank that waits longer than Settings::patience says
// for what, and which ranks do not answer. After an Error a Split is of no use. One thread at a time may use a Split, the one that may call MPI.
#pragma once

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1  // no C++ bindings: they have left the standard
#endif
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ttr/plan.h"

namespace ttr::mpi {

enum class Way { best, relay, scan, ring, halo, gather };
std::string_view to_string(Way) noexcept;

struct Settings {
  Way way = Way::best;
  Form form = Form::best;  // of the calls of the plan
  int groups = 0;          // of sequences and heads in a relay, of sequences in a scan; 0: by the ranks
  double patience = 600;   // seconds to wait for another rank
  bool shares =
      false;  // gradients of inputs without time stay the share of each rank; else their sum is on all ranks
  /// Called now and then while this rank waits, with the seconds that it has; what it throws ends the wait.
  std::function<void(double)> idle = {};
};

/// Who of a communicator is there, for programs that wait with a time limit of their own. Every rank that waits answers now
/// and then; one whose patience ends asks. Uses the tags `tag` and `tag + 1`; the communicator stays the caller's.
class RollCall {
 public:
  RollCall(MPI_Comm, int tag);
  /// Answers those who have asked.
  void answer() noexcept;
  /// Asks everybody: the ranks that have not answered within some seconds.
  std::vector<int> missing(double seconds) noexcept;

 private:
  MPI_Comm comm_;
  int tag_, rank_ = 0, ranks_ = 1;
};
/// "rank 2", "ranks 2, 3 and 7"; of many the first ones.
std::string ranks_text(const std::vector<int>& ranks);

/// What this rank has done since the Split was made or reset_counts() was called.
struct Counts {
  std::int64_t messages = 0, bytes = 0;                // sent from rank to rank
  std::int64_t collectives = 0, collective_bytes = 0;  // calls that all ranks make, and what this rank gives them
  std::int64_t compositions = 0;                       // of two maps to one
  double local = 0, communication = 0, waiting = 0;    // seconds: in the plan, packing and sending, for others
  double composing = 0;                                // and in compositions, some of them while it waits
};

/// Bytes that a message has at most; longer ones go in parts. 2^30, or less by the environment variable TTR_MPI_MESSAGE, which
/// must be the same on all ranks (for tests).
std::size_t largest_message();

class Split {
 public:
  /// Collective. Throws Error on every rank if the ranks disagree, MPI is not as it must be, or the plan has no such way.
  Split(const Plan&, MPI_Comm, const Settings& = {});
  ~Split();
  Split(Split&&) noexcept;

  int rank() const noexcept;
  int ranks() const noexcept;
  Way way() const noexcept;
  /// Groups of a relay or a scan.
  int groups() const noexcept;
  /// The ways that the plan has.
  static std::vector<Way> ways(const Plan&);

  /// Bytes of a state at the end of this rank's piece of `time` tokens, if the first rank's initial state keeps `kept`
  /// pairs. Collective where states grow.
  std::size_t state_bytes(std::int64_t time, std::int64_t kept = 0) const;

  /// Collective. `start`, if it has data, gets the state at the beginning of the piece: as many bytes as `state`.
  void forward(const Inputs&, State state, const Outputs&, State start = {});

  /// Collective. Gradients of  sum <d_output, output> + <d_final, final state> , as Plan::backward: d_final is read on the
  /// last rank (the others give none), d_initial is written on every rank that gives one, for the beginning of its piece
  /// (gather: of all ranks but the first what their own tokens make of it; ring: on the first).
  /// Gradients of inputs without time are summed over the ranks, in their order, and the same on all of them.
  void backward(const Inputs&, ConstState start, const Inputs& d_outputs, ConstState d_final, const Outputs& d_inputs,
                State d_initial = {});

  /// Settings::patience from now on.
  void set_patience(double seconds) noexcept;

  const Counts& counts() const noexcept;
  void reset_counts() noexcept;

  struct Body;

 private:
  std::unique_ptr<Body> body_;
};

}  // namespace ttr::mpi
