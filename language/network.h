// Runs a graph: rows of tokens of one or several sequences, each with a slot that holds what its nodes remember.
//
//   tokens   every product is made token by token and every mixer in recurrent form: the bits of a token do not depend on
//            what else is in the call, on how a sequence was cut into calls, or on the threads
//   block    products by tiles and the fastest form of every mixer: equal up to rounding
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "language/graph.h"
#include "model/buffer.h"
#include "prepare/token_simd.h"
#include "ttr/language.h"

namespace ttr::model {

/// What a sequence has seen: a buffer for each node that remembers.
struct Memory {
  std::vector<Buffer<std::byte>> parts;
  std::int64_t tokens = 0, rewindable = 0;
};

struct Rows {
  Memory* memory;
  Size begin, count;  // of the rows of a call
};

template <class T>
class Network {
 public:
  enum class Mode { tokens, block };
  /// Calls of up to `piece` rows; sequences of up to `capacity` tokens where a mixer keeps them; up to `rewind` tokens can be
  /// taken back. The graph must outlive it. Throws Error.
  Network(const Graph&, int threads, Size piece, std::int64_t capacity, int rewind, Activations = Activations::exact);
  ~Network();

  void reset(Memory&) const;
  void copy(const Memory& from, Memory& to) const;
  /// Takes back the newest tokens; false if they are more than can be.
  bool rewind(Memory&, std::int64_t tokens) const;
  std::size_t memory_bytes() const;
  std::size_t workspace_bytes() const;
  Size piece() const { return piece_; }
  /// Of every part of a memory in order, for files: a plan's saved state, or the rows of a shift.
  std::vector<std::byte> save(const Memory&, const TextEnd<T>&) const;
  TextEnd<T> load(std::span<const std::byte>, const std::string& name, Memory&) const;

  /// The tokens of the rows go through all nodes. Throws Error where a mixer does not take its numbers.
  void run(std::span<const std::int32_t> tokens, std::span<const Rows>, Mode);
  /// Logits of rows of the last run, [rows, vocabulary].
  void logits(std::span<const Size> rows, Mode, T* to);

 private:
  struct Body;
  const Graph& graph_;
  Size piece_;
  std::unique_ptr<Body> body_;
};

}  // namespace ttr::model
