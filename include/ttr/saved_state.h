// Saved states: what a sequence has seen, in a .safetensors file or in memory, to go on with in another process.
//
//   ttr::save_state("chat.safetensors", plan, {state.data(), state.size()});         // all sequences, or one of them
//   ttr::load_state("chat.safetensors", plan, {state.data(), state.size()});         // into a state that was reset
//
// The same layer, shape and settings take it back, bit for bit, whatever their batch, threads and room for pairs are. A
// file of another layer or shape, one that was cut off or that has a single bit changed is refused with an Error, and
// the state stays as it was. docs/embedding.md has the layout, which other programs may read.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ttr/export.h"
#include "ttr/plan.h"

namespace ttr {

/// The layout of saved states that this version writes; it reads all up to this one.
inline constexpr int saved_state_layout = 2;

inline constexpr int all_sequences = -1;

/// Writes a file that is there whole or not at all. `sequence`: one slot, or all of them.
TTR_API void save_state(const std::string& path, const Plan&, ConstState, int sequence = all_sequences);
/// The sequences of the file become `to`, `to` + 1, ... of the state; the others are not touched. `from`: one of the file
/// alone. What Options::rewind has kept is not saved.
TTR_API void load_state(const std::string& path, const Plan&, State, int to = 0, int from = all_sequences);

/// The same in memory.
TTR_API std::vector<std::byte> save_state(const Plan&, ConstState, int sequence = all_sequences);
TTR_API void load_state(std::span<const std::byte>, const Plan&, State, int to = 0, int from = all_sequences);

/// What a file says about itself, checked as load_state checks it.
struct SavedState {
  std::map<std::string, std::string> about;  // layer, recipe, settings, type, heads, ..., library
  std::vector<std::int64_t> tokens;          // seen by each sequence
};
TTR_API SavedState read_saved_state(const std::string& path);

}  // namespace ttr
