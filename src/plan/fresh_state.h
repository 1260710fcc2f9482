// A fresh state of one sequence as the oracle has it, in the type that a plan keeps it in, made when it is first asked for:
// the weights of a large network are a million normal numbers, and planning should not wait for them.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "oracle/oracle.h"
#include "recipe/design.h"

namespace ttr {

class FreshState {
 public:
  FreshState(const Design& design, const oracle::Sizes& sizes) : design_(design), sizes_(sizes) {}

  /// The array of that name; nothing: it is zero. T is float or double.
  template <class T>
  std::span<const T> numbers(const std::string& name) const;

 private:
  template <class T>
  struct Made {
    std::once_flag once;
    std::map<std::string, std::vector<T>> arrays;
  };
  Design design_;
  oracle::Sizes sizes_;
  mutable Made<float> floats_;
  mutable Made<double> doubles_;
};

}  // namespace ttr
