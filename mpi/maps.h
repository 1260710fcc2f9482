// The map of a piece of time, for layers that are affine in their state:
//
//   S_end = A S_start + B ,   dS_start = A' dS_end + C
//
// B is the end that the piece's tokens make of nothing, C the gradient of the start by the piece's own answers. Two pieces
// are one: the earlier (A, B) and the later (A*, B*) give (A* A, A* B + B*); backwards (A* A, A' C* + C). A is compact:
//
//   factors   one number for all that fades together: a head (decay), a row (gates of keys), or every entry of the state
//   mixed     [2, 2] for every entry, where the two parts of a state turn into each other: rotations (LRU)
//   dense     [P K, P K] per head, for P parts [K, V] that are written by steps: delta, dplr, momentum. Factors of low rank
//             would be smaller for pieces of less than K / 2 tokens, where nobody divides a sequence
//   levels    one number per head, and where each slot of log-linear attention goes: its buckets are merged by the number
//             of the token, so that the slots follow from the tokens before and after the piece, which an element carries
//
// All come from the plan itself. Factors (and rows of mixed maps) are what its backward makes of a gradient of ones for the
// final state, on a plan with one value (and one key, if a head fades as one). A dense map is the forward of unit vectors as P K values, with
// v = 0. So a layer needs no code here; it has a map if its kernels are in the table of maps.cc, whose inputs no other
// kernel with a state makes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ttr/mpi.h"

namespace ttr::mpi {

/// Tokens of every sequence before a piece and at its end, as a kernel counts them whose maps depend on that.
struct Place {
  std::vector<std::int64_t> begin, end;
};

/// One element of the scan: counts, the place of the piece if maps depend on it, numbers of A, numbers of B.
struct MapLayout {
  struct Part {
    std::string name;
    std::size_t numbers = 0, offset = 0;  // of the state, behind all of A
    std::size_t factors = 0, at = 0;      // of A, if it is factors
    std::vector<std::uint32_t> factor;    // which one fades a number
  };
  Type type = Type::f32;
  std::vector<Part> parts;
  std::vector<std::string> counts;             // parts of the state that count tokens
  std::size_t batch = 1;                       // numbers of each of them
  std::size_t units = 0, n = 0, K = 0, V = 0;  // dense: sequences times heads, P K, K, V; n = 0: factors
  bool mixed = false;                          // entries, 2, 1, 1
  std::size_t levels = 0;                      // slots of a head; units: sequences times heads
  std::size_t map = 0, state = 0;              // numbers of A and B
  std::size_t span() const { return levels > 0 ? 2 * batch : 0; }  // numbers of a place
  std::size_t bytes() const {
    return (counts.size() * batch + span()) * sizeof(std::int64_t) + (map + state) * size_of(type);
  }
};

class Maps {
 public:
  /// Empty if the plan is none that this can do.
  static std::optional<Maps> of(const Plan&);

  ~Maps();
  Maps(Maps&&) noexcept;
  Maps& operator=(Maps&&) noexcept;

  std::size_t bytes() const;
  /// Numbers of A, as a share of those of the state: what docs/scaling.md calls the cost of a map.
  bool dense() const;
  /// Whether maps depend on where a piece begins.
  bool by_position() const;
  /// The two elements as one, in the place of the second: it is of the tokens after those of the first, `backwards` before.
  void compose(const std::byte* first, std::byte* second, bool backwards) const;

  /// What a kernel whose maps depend on it has counted, of every sequence of this plan; else nothing.
  std::vector<std::int64_t> counted(const Plan&, ConstState) const;
  /// The state, which is zeros or what `get` has left, is at the beginning of a piece.
  void put(State, const Place&) const;

  /// A of these tokens, into an element of bytes().
  Status make(const Inputs&, std::int64_t tokens, Form, const Place&, std::byte* element);
  /// B (or C) is what a state holds, and back.
  void set(ConstState, std::byte* element) const;
  void get(const std::byte* element, State) const;

 private:
  struct Body;
  explicit Maps(std::unique_ptr<Body>);
  static std::unique_ptr<Body> try_shape(const Plan&, const Shape&, bool dense, bool mixed = false,
                                         bool levels = false);
  std::unique_ptr<Body> body_;
};

}  // namespace ttr::mpi
