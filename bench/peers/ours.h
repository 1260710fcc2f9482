// The side of ttr: a layer on random numbers, as a prompt from a fresh state or token by token.
//
// All numbers are float and dense; the other side reads the same memory. Where a layer keeps its pairs, `before` of them are
// there before the first token, and every run takes back the tokens that it has added.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regress_parts.h"
#include "ttr/ttr.h"

namespace ttr::peers {

struct OurCase {
  std::string layer;  // with settings
  Shape shape;
  std::optional<double> scale;
  std::int64_t tokens = 1;  // of a run
  std::int64_t before = 0;
  bool decode = false;           // one call per token
  bool half_pairs = false;       // keys and values are numbers that f16 has, and are kept as such
  std::string gates = "gentle";  // cli/bench_gates.h
  int threads = 1;
};

class Ours {
 public:
  explicit Ours(const OurCase&);

  const OurCase& spec() const { return spec_; }
  /// Dense numbers of an input from a token on; inputs without a time axis: whole.
  const float* input(const std::string& name, std::int64_t token = 0) const;
  float* input(const std::string& name, std::int64_t token = 0);
  std::size_t numbers_per_token(const std::string& name) const;
  std::span<const float> output(const std::string& name, std::int64_t token, std::int64_t tokens) const;

  void from_fresh();  // the state, outside the clock
  void run();         // all tokens of a run; throws Error if a call fails

 private:
  struct Array {
    std::vector<float> numbers;
    std::size_t per_token = 0;  // 0: no time axis
  };
  void fill_before();
  Inputs inputs_of(std::int64_t first, std::int64_t tokens) const;
  Outputs outputs_of(std::int64_t first, std::int64_t tokens);

  OurCase spec_;
  Plan plan_;
  std::map<std::string, Array> inputs_, outputs_;
  cli::Buffer fresh_, state_, work_;
  bool keeps_pairs_ = false;
  std::optional<Prepared> call_;
  std::vector<const void*> reads_;
  std::vector<void*> writes_;
};

}  // namespace ttr::peers
