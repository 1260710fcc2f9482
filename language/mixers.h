// The mixers of a graph: plans of the library (ttr/plan.h), one for all nodes with the same layer and shape.
//
// Single tokens go through prepared calls, which allocate nothing. Where there are several nodes, or sequences, each is a task of
// its own, on a plan without threads: its bits are the same, because those of a plan do not depend on threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "language/network.h"
#include "language/team.h"
#include "language/values.h"
#include "ttr/plan.h"
#include "ttr/prepared.h"

namespace ttr::model {

template <class T>
class Mixers {
 public:
  Mixers(const Graph&, const Values<T>&, Team&, Size piece, std::int64_t capacity, int rewind);

  /// Null of a node that is no mixer.
  const Plan* plan(std::size_t node) const { return of_[node] == none ? nullptr : &plans_[of_[node]].shared; }
  std::size_t state_bytes(std::size_t node) const;
  bool grows() const { return grows_; }  // one of them keeps its tokens
  std::size_t workspace_bytes() const { return workspace_ * rooms_.size(); }

  /// Nodes that do not wait for each other, on parts of the rows of a call; memory_of: of every node, where its state is in a
  /// Memory. Throws Error.
  void run(std::span<const std::size_t> nodes, std::span<const std::size_t> memory_of, std::span<const Rows>,
           bool recurrent);

 private:
  static constexpr std::size_t none = ~std::size_t{0};
  struct Pair {
    Plan shared, alone;  // on the team, on one thread
    bool by_token;       // attention: several tokens in a call have other bits than one after another
  };
  struct Single {                      // the call of one token
    std::vector<Prepared> calls;       // on the team, then on each worker
    std::vector<int> inputs, outputs;  // of the plan: which of the node's, or -1
    std::vector<const void*> reads;    // room for addresses, for each worker
    std::vector<void*> writes;
  };
  Status one_token(std::size_t node, Single&, std::size_t call, const Rows&, Memory&, std::size_t memory, int worker);
  void bind(std::size_t node, const Rows&, Inputs&, Outputs&) const;
  void run_one(std::size_t node, std::size_t memory, std::span<const Rows>, bool recurrent);
  [[noreturn]] void fail(std::size_t node, std::size_t memory, const Rows&, Form) const;
  Form form_of(const Plan&, bool recurrent) const;

  const Graph& graph_;
  const Values<T>& values_;
  Team& team_;
  std::int64_t capacity_;
  std::vector<Pair> plans_;
  std::vector<std::size_t> of_;                   // plan of a node
  std::vector<std::unique_ptr<Single>> singles_;  // of a node
  std::size_t workspace_ = 0;
  std::vector<Buffer<std::byte>> rooms_;  // of each worker
  bool grows_ = false;
};

}  // namespace ttr::model
