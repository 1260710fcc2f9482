// One case of `ttr bench`: a layer at given sizes, ready to run again and again on memory of its own.
// Threads are those of the plan (Options::threads).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bench_machine.h"
#include "runner.h"
#include "ttr/ttr.h"

namespace ttr::cli {

enum class Pass { forward, both, step, backward };
std::string_view to_string(Pass) noexcept;  // "forward", "forward+backward", "step", "backward"

struct BenchCase {
  std::string layer;  // name, name:settings or recipe
  Pass pass = Pass::forward;
  Form form = Form::best;
  Type type = Type::f32;  // of the tensors; half types run on a float plan
  int key_dim = 64, value_dim = 64, heads = 8;
  std::int64_t time = 4096;  // step: the pairs kept before the first token, where pairs are kept
  int threads = 1;
  int chunk = 0;                 // as in Options
  std::string target = {};       // as in Options
  Type rounded = Type::f64;      // inputs are rounded to this type before they are stored
  std::string gates = "gentle";  // bench_gates.h
  int key_heads = 0;             // 0: as heads
  bool count = false;            // as in Options
};
/// By its name; an Error lists the forms and goes on with `others`.
Form form_of(const std::string& name, const char* others);
std::string name_of(const BenchCase&);  // "gla forward f32 K64 V64 H8 T4096 threads 1", for messages

class CaseRun {
 public:
  /// Draws inputs as the layer's table says; the first tokens do not depend on `time`. `kernel`: as in Options.
  explicit CaseRun(const BenchCase&, const std::string& kernel = {});
  ~CaseRun();

  /// From a fresh state: once through all tokens, or the first steps. Throws Error if a call fails.
  void once();
  double tokens_of_once() const;
  /// Seconds of one run that lasts long enough to be measured; `tokens_per_run` tokens.
  double timed();
  double tokens_per_run() const;

  const BenchCase& spec() const { return spec_; }
  const Plan& plan() const;
  bool keeps_pairs() const { return keeps_pairs_; }
  std::string form() const;  // what Form::best is, where that is known
  std::size_t workspace_bytes() const;
  std::size_t saved_bytes() const;  // what forward leaves for backward
  /// Bytes that one token must move at least (inputs, outputs, gradients, what forward leaves for backward), and those of
  /// everything that a run touches.
  double bytes_per_token() const;
  std::size_t bytes_touched() const;
  Traffic traffic() const;  // whose bandwidth they are compared with
  /// Of the last call of once(), the first tokens.
  NamedNumbers outputs(std::int64_t tokens) const;
  NamedNumbers gradients() const;
  /// From now on the backward pass is given the gradients of these outputs alone (the oracle has fewer).
  void differentiate_only(const NamedNumbers& outputs);

 private:
  struct Memory;
  void bind();
  void run(std::int64_t repeats);
  void rewind();
  void require_ok() const;

  BenchCase spec_;
  bool keeps_pairs_ = false;
  std::int64_t tokens_ = 0;  // of the tensors: time, or the steps of one round
  std::int64_t repeats_ = 0;
  std::unique_ptr<Memory> memory_;
};

struct CaseCheck {
  bool right = false;
  std::string what;  // "oracle 32 tokens, double 1024 tokens", or what is wrong
};
/// Compares the case with the literal solution on a few tokens, and with the recurrent form in double on more.
CaseCheck check_case(CaseRun&);

/// Floating-point operations of the plain recurrence, forwards, per token of a sequence of `time`; NaN where no count is
/// published. Both passes are `recurrence_both` times that, because every product has two gradients, each a product of its
/// size; attention `attention_both` times, because its backward has 5 products instead of 2.
double recurrence_flops(const std::string& layer, double key_dim, double value_dim, double heads, double time);
inline constexpr double attention_both = 3.5, recurrence_both = 3;
/// Floating-point operations of the plain recurrence per token of the case, all heads; NaN where no count is published.
double useful_flops_per_token(const CaseRun&);
/// Those that its kernels execute, as a plan that counts (Options::count) finds in one run; NaN where one does not count.
double executed_flops_per_token(const BenchCase&);
/// Tokens per second that operations at a peak and the case's bytes at their bandwidth permit; flops: per token.
struct Limit {
  double tokens_per_s;
  bool by_memory;
};
Limit limit_of(const CaseRun&, double flops, double peak_gflops, const MachineLimits&);

}  // namespace ttr::cli
