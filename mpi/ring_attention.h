// Attention of one sequence, or several, whose pairs lie on the ranks of a communicator: attention.h with the same problem
// and gradients, but that a query sees the pairs of all ranks before its own too. Every rank calls it at the same time.
//
// Piece i has the queries of rank i, block j the pairs of rank j (of the first rank also those of the initial state). What
// piece i sees of block j < i is one softmax over all of the block, and two of them are one by their log-sums of weights:
//
//   lse = log(e^lse1 + e^lse2) ;  o = e^(lse1 - lse) o1 + e^(lse2 - lse) o2        (not normalised: o1 + o2)
//
// Who does it. If every rank worked on its own queries, rank r of P would have r blocks and a half: the last one twice the
// mean. So a rank works on the blocks of the P / 2 ranks before it, which come to it one after another, and further ones stay
// where they are: the queries go to the block, answers and log-sums come back. A rank that has few blocks before it has as many
// more queries to help with. Where P is even, half of the queries at distance P / 2 go, the other half stay. The bytes are those
// of a ring of blocks where keys have as many heads as queries.
//
// Backwards the same is done again for o and lse, from which the weights e^(x - lse) are made anew, and then for gradients: dk
// and dv of a block go back to its rank, dq of queries that were sent comes back.
//
// Gates between a pair and a query of another piece: from the pair to the end of its block, those of the blocks between, which
// are one number per sequence and head, and from the beginning of the piece to the query. The last two are one number that
// is added to the first gate of the queries. What the logits of (i, j) add up to, which is the gradient of each gate between,
// is the gradient of that first gate; rank i sends the sums of these over j < m to every rank m between.
//
// The order of all sums depends on the lengths of the pieces alone, not on who comes first. No rank holds more than two blocks
// (or pieces of queries) of others at a time. A rank without tokens takes part with a problem of no tokens, and helps nobody.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "families/pairs/attention/attention.h"
#include "mpi/channel.h"
#include "mpi/ring_bundle.h"
#include "mpi/split_body.h"

namespace ttr::mpi {

/// What all ranks know about the attention of a plan.
struct RingSizes {
  int batch = 1, heads = 1, key_heads = 1, key_dim = 1, value_dim = 1;
  bool gates = false, normalise = true;
};

/// Queries begin .. end - 1 of piece `queries` and all pairs of block `pairs`; `helped`: done by the rank of the block.
struct RingTask {
  int queries, pairs;
  std::int64_t begin, end;
  bool helped;
  std::int64_t count() const { return end - begin; }
};

template <class T>
class RingAttention {
 public:
  using Problem = families::AttentionProblem<T>;
  using Gradient = families::AttentionGradient<T>;
  using Sequence = families::Sequence;

  /// `ends`: cu_seqlens of all ranks, or empty.
  RingAttention(Channel&, const RingSizes&, const Piece&, std::span<const std::int64_t> ends);

  /// Throws Error if a rank does not come.
  Status forward(const Problem&, const Simd<T>&);
  Status backward(const Problem&, const Gradient&, const Simd<T>&);

  /// The sequences of this rank's piece, for a problem of no tokens.
  std::span<const Sequence> sequences() const { return pieces_[static_cast<std::size_t>(rank_)]; }

 private:
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;

  void open(const Problem&);
  void make_block(const Problem&);
  void share_gates(const Problem&);
  std::vector<RingTask> between(int queries, int pairs) const;
  std::vector<Sequence> cut(const RingTask&) const;
  void answer_all(const Problem&, const Simd<T>&);

  // Arrays of what is sent.
  Bundle<T> pairs_of(int rank) const;
  Bundle<T> queries_of(const RingTask&, bool back) const;
  Bundle<T> answers_of(const RingTask&, bool back) const;
  Bytes queries(const Problem&, const Gradient*, const RingTask&);
  void send_all(const Problem&, const Gradient*);
  template <class Own, class Do>
  void each_task(bool back, Own&& own, Do&& work);

  Problem problem(const Problem&, const RingTask&, Bundle<T>& queries, Bundle<T>& pairs);
  Bundle<T> answer(const Problem&, const Simd<T>&, const RingTask&, Bundle<T>& queries, Bundle<T>& pairs);
  Bundle<T> pass_back(const Problem&, const Gradient&, const Simd<T>&, const RingTask&, Bundle<T>& queries,
                      Bundle<T>& pairs, Bundle<T>& d_pairs);
  void merge(const RingTask&, Bundle<T>& answers);
  void add_queries(const Gradient&, const RingTask&, Bundle<T>& d_queries);
  void add_pairs(const Problem&, const Gradient&, Bundle<T>& d_pairs);
  void gates_between(const Gradient&);
  Workspace work(const Problem&, bool backward);
  void note(Status);

  Channel& channel_;
  RingSizes x_;
  std::vector<std::int64_t> lengths_, rooms_;  // tokens of every piece; pairs of a sequence in every block, at most
  std::vector<std::vector<Sequence>> pieces_;  // the sequences of every piece
  std::int64_t kept_;                          // pairs of a sequence before the call, at most
  std::ptrdiff_t rows_;
  int rank_, ranks_;
  Status worst_ = Status::ok;

  std::shared_ptr<Bundle<T>> block_;
  std::map<std::int64_t, Bytes> queries_;  // by the first token
  std::vector<T> o_, lse_;                 // [rows, tokens, H, V], [rows, tokens, H]
  std::vector<double> gates_;              // [ranks, N, H] sums of the gates of a piece
  std::vector<double> totals_;             // [ranks, N, H] of the gradients of gates between, for every rank
  std::vector<T> first_gates_, zeros_;     // gates of a task; [V]
  std::vector<Sequence> clipped_;
  std::vector<std::byte> work_;
};

}  // namespace ttr::mpi
