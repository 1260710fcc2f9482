// The cases of `ttr check`: shapes, type and seed under a name from which a case runs again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace ttr::cli
