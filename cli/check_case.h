// The cases of `ttr check`: shapes, type and seed under a name from which a case runs again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runner.h"
#include "ttr/ttr.h"

namespace ttr::cli {

struct Case {
  int batch = 1, time = 1, heads = 1, key_heads = 0, key_dim = 1, value_dim = 1, chunk = 0;
  Type type = Type::f64;
  std::uint64_t seed = 1;
  bool differences = false;  // finite differences are slow: only small cases
  // "-alone" in the name: kernels among themselves, cut in one way. The literal solver would take too long.
  bool alone = false;
  bool strong = false;  // "-strong": gates that close within tokens, values of 1e5; for layers that have both
  enum class For { all, plain, kernel };
  For who =
      For::all;  // plain: layers without settings and with a state of fixed size; kernel: the first of each kernel
  // "-closed": gates of -15 to -20. The gradients of gates, and of the parameters that they are summed into, are a
  // millionth of the others there and are compared relative to themselves.
  bool closed = false;

  bool gradients() const { return time <= 1000; }  // longer ones are for the blocks of time, which only go forwards
  bool direction() const { return alone && gradients() && type == Type::f64; }
};

std::string name_of(const Case&);
Case parse_case(const std::string& text);
std::vector<Case> standard_cases();

/// Whether an input is the log of a factor, or a rate that a step multiplies.
bool is_gate(const InputInfo&);
/// Gates that leave something of the first token to the last: what old tokens give and get is not lost in rounding.
void open_gates(const Plan&, NamedNumbers& inputs);
/// Gates that close within a few tokens, and values of a size at which a product with the inverse of what they close to is
/// no float any more.
void make_strong(const Plan&, std::uint64_t seed, NamedNumbers& inputs);
/// Gates of -15 to -20, rates that a step in (0, 1) multiplies of -20 to -40; the names of both.
std::vector<std::string> close_gates(const Plan&, NamedNumbers& inputs);

}  // namespace ttr::cli
