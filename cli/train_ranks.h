// Steps of training that the ranks of MPI share.
//
//   data       every rank draws the same sequences and works on a share of them, one after another; with `sequence_ranks` a
//              group of so many ranks, each on its piece of every one of them (model::Pieces)
//   sum        every rank owns some of the parameters, whole tensors one after another, and gets their gradients from all
//              ranks; they are added up in the order of ranks, so that as many ranks give the same bits in every run
//   step       a rank keeps the state of the optimiser for its own parameters alone, and steps them; then all get them
//
// With `reproducible` the gradient of every sequence is made by itself and added up in integers of 128 bits, with 2^-90 for
// the unit: these sums are exact, so that their bits do not depend on the number of ranks (of groups, where a sequence lies on
// several). The length of the gradient, which clips it, is a sum over tensors in their own order in both.
//
// A checkpoint is that of one process, whatever the ranks: their parts of the optimiser's state, one after another, are
// the whole.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ranks.h"
#include "ttr/checkpoint.h"
#include "ttr/model.h"
#include "ttr/optimiser.h"
#include "ttr/tasks.h"

namespace ttr::cli {

/// How ranks hold the pieces of sequences, in groups of `size`.
struct SequenceRanks {
  int size = 1, part = 0;     // this rank's place in its group
  int group = 0, groups = 1;  // of all ranks
  /// Throws Error if groups of `size` ranks are no whole number of groups.
  static SequenceRanks of(const Ranks&, int size);
  /// Tokens of this rank's piece of sequences of `time` tokens, and how many a piece has at most.
  int begin(int time) const { return static_cast<int>(std::int64_t{time} * part / size); }
  int end(int time) const { return static_cast<int>(std::int64_t{time} * (part + 1) / size); }
  int most(int time) const { return (time + size - 1) / size; }
  /// Throws Error if there are fewer tokens than ranks.
  void check(int time) const;
  /// Some of the sequences, this rank's piece of each.
  model::Examples piece(const model::Examples&, int first, int rows) const;
};

class SharedSteps {
 public:
  /// Throws Error if there are more groups of ranks than sequences.
  SharedSteps(Ranks&, const SequenceRanks&, model::Pieces*, model::Model<float>&, const model::OptimiserConfig&,
              int batch, int time, int threads, bool reproducible);

  /// The loss and, on every rank, the gradient of its own parameters. `mine` is a number of this rank; what others have
  /// given is in given().
  model::Measure gradient(const model::Examples&, double mine);
  const std::vector<double>& given() const { return given_; }
  /// One step of all parameters; the length of the gradient before clipping.
  double step();

  /// The optimiser of all parameters as it stands, on the first rank; others get none.
  std::unique_ptr<model::Optimiser<float>> whole();
  /// Goes on from a checkpoint.
  void load(const model::Checkpoint&);

 private:
  model::Measure gradient_of(const model::Examples&, int first, int rows);
  std::size_t before(const std::vector<std::size_t>& sizes) const;

  Ranks& ranks_;
  SequenceRanks pieces_of_time_;
  model::Model<float>& model_;
  model::Examples piece_;
  int first_ = 0, rows_ = 0;  // sequences of this rank
  bool reproducible_;
  int threads_;
  std::vector<std::size_t> pieces_;  // numbers of every rank's parameters
  std::size_t begin_ = 0, size_ = 0;
  std::vector<std::size_t> trained_;  // tensors of every rank that are trained
  std::unique_ptr<model::Optimiser<float>> optimiser_;
  std::unique_ptr<model::Session<float>> session_;
  std::vector<float> own_, all_;
  std::vector<std::uint64_t> sums_, all_sums_;  // reproducible: two words a number
  std::vector<double> given_;
};

}  // namespace ttr::cli
