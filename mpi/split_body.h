// What the ways of a Split share: the call at hand, and the plan of a group.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mpi/channel.h"
#include "mpi/groups.h"
#include "mpi/maps.h"
#include "ttr/mpi.h"

namespace ttr::mpi {

/// What all ranks know about a call after they have opened it.
struct Piece {
  std::vector<std::int64_t> lengths;  // tokens of every rank
  std::int64_t tokens = 0;            // of this rank
  std::int64_t kept = 0;              // pairs that the initial state keeps, at most
  Packed packed;                      // ends of the sequences within this piece; empty: they are not packed
  /// Tokens that a state has room for at the end of rank r's piece; r = -1: at the beginning of all.
  std::int64_t room(int r) const {
    std::int64_t sum = kept;
    for (int i = 0; i <= r; ++i) sum += lengths[static_cast<std::size_t>(i)];
    return sum;
  }
  /// Tokens of sequence n in rank r's piece; `inputs` are those of the call, whose cu_seqlens count the tokens of all ranks.
  std::int64_t tokens_of(int r, int n, const Inputs& inputs) const {
    const std::int64_t begin = room(r - 1) - kept, end = room(r) - kept;
    if (inputs.cu_seqlens.empty()) return end - begin;
    const std::size_t i = static_cast<std::size_t>(n);
    return std::clamp(inputs.cu_seqlens[i + 1], begin, end) - std::clamp(inputs.cu_seqlens[i], begin, end);
  }
  /// The most pairs of a sequence that rank r brings: those of its piece, and if it is the first those before.
  std::int64_t pairs_of(int r, const Inputs& inputs) const {
    std::int64_t most = 0;
    const std::size_t sequences = inputs.cu_seqlens.empty() ? 1 : inputs.cu_seqlens.size() - 1;
    for (std::size_t n = 0; n < sequences; ++n) most = std::max(most, tokens_of(r, static_cast<int>(n), inputs));
    return most + (r == 0 ? kept : 0);
  }
};

struct Split::Body {
  Body(const Plan&, MPI_Comm, const Settings&);

  // Collective, at the beginning of a call: the pieces of all ranks, and whether all make the same call.
  Piece open(const Inputs&, State state, const std::string& call, std::string complaint);

  void relay_forward(const Piece&, const Inputs&, State state, const Outputs&, State start);
  void relay_backward(const Piece&, const Inputs&, ConstState start, const Inputs& d_outputs, ConstState d_final,
                      const Outputs& d_inputs, State d_initial);
  void scan_forward(const Piece&, const Inputs&, State state, const Outputs&, State start);
  void scan_backward(const Piece&, const Inputs&, ConstState start, const Inputs& d_outputs, ConstState d_final,
                     const Outputs& d_inputs, State d_initial);
  void ring_forward(const Piece&, const Inputs&, State state, const Outputs&, State start);
  void ring_backward(const Piece&, const Inputs&, ConstState start, const Inputs& d_outputs, const Outputs& d_inputs,
                     State d_initial);
  void gather_forward(const Piece&, const Inputs&, State state, const Outputs&, State start);
  void gather_backward(const Piece&, const Inputs&, ConstState start, const Inputs& d_outputs, ConstState d_final,
                       const Outputs& d_inputs, State d_initial);
  // halo.cc; `fits`: whether a call can go this way, which all ranks know alike.
  bool halo_fits(const Piece&) const;
  void halo_forward(const Piece&, const Inputs&, State state, const Outputs&, State start);
  void halo_backward(const Piece&, const Inputs&, ConstState start, const Inputs& d_outputs, ConstState d_final,
                     const Outputs& d_inputs, State d_initial);
  // Gradients of inputs without time are sums over ranks.
  void sum_gradients(const Outputs& d_inputs);

  // The first status of a call that is not ok, with what to say about it.
  void note(Status, const std::function<std::string()>& sentence);
  std::size_t bytes_of(const Plan&, std::int64_t time) const;
  Workspace work_for(const Plan&, std::int64_t time, bool backward);

  Plan plan;
  Settings settings;
  Channel channel;
  Way way = Way::relay;
  Groups groups;
  Plan part;  // the plan of a group
  std::optional<Maps> maps;
  std::int64_t span = 0;  // tokens that a halo is made of
  int pairs = 1;          // of a token
  bool grows = false;
  std::vector<std::byte> work;
  std::string fault;
};

/// Inputs (or gradients of outputs) of a group, with its own list of packed sequences in `ends`.
template <class Tensors>
Tensors of_group(const Tensors& all, std::span<const InputInfo> infos, const Group& g, const Piece& piece, int pairs,
                 std::vector<std::int64_t>& ends) {
  Tensors part;
  for (const InputInfo& info : infos)
    if (const auto tensor = all.get(info.name)) part[info.name] = part_of(tensor, info.shape, g, piece.packed, pairs);
  if (!piece.packed.empty()) {
    ends.clear();
    for (int n = g.row; n <= g.row + g.rows; ++n)
      ends.push_back(piece.packed[static_cast<std::size_t>(n)] - piece.packed[static_cast<std::size_t>(g.row)]);
    part.cu_seqlens = ends;
  }
  return part;
}

}  // namespace ttr::mpi
