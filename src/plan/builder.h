// The builder of pipelines, shared by lower.cc (inputs, stages, read-out), claims.cc (which family computes a design)
// and family_steps.cc (the steps of each family).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/pipeline.h"

namespace ttr {

/// The family that computes exactly a design; nobody: the oracle.
enum class Claim {
  nobody,
  decay,
  delta,
  gated,
  dplr,
  momentum,
  projection,
  channel,
  rotating,
  weighted_mean,
  log_linear,
  stabilised,
  slots,
  trapezoid,
  oja,
  least_squares,
  givens,
  iterative,
  kalman,
  window,
  attention,
  local_linear,
  path_attention,
  deltaformer,
  kernel_regression,
  whole,
  neural
};

Claim claimed_by(const Design&, bool causal);

class Builder {
 public:
  Builder(const Design&, const zoo::Declaration*, const Shape&, const Options&);

  /// `scale` is the factor on q.
  Pipeline build(double scale);

 private:
  // lower.cc: values and operations
  void give_pairs_their_own_time();
  const InputInfo* canonical_info(const std::string& name) const;
  bool produced(const std::string& name) const;  // whether the layer makes this canonical input itself
  bool has(const std::string& name) const;
  int index_of(const std::string& name) const;
  int add_value(Value);
  int constant(double number) { return add_value({"", "", Value::From::constant, -1, {number}}); }
  int operation(prepare::Op, std::vector<int> from, std::string axes, double number = 0, std::string name = {});
  const std::string& axes(int value) const { return p_.values[static_cast<std::size_t>(value)].axes; }
  int extent(char letter) const;
  int width(int value) const;  // of its last axis
  int per_head(int value);     // q and k of a group, written out for every head

  // lower.cc: what the layer puts around the regression
  int canonical(
      const std::string& name);  // value of a canonical input, made when first asked for; -1 = not asked for
  int canonical_value(const InputInfo&);
  int operand(const std::string& name);
  int stage_result(const std::string& name, std::string axes);
  int run_stage(const zoo::Stage&, std::string axes);
  void finish(int answer);
  std::string axes_of(const std::string& name) const;
  void drop_unused_inputs();
  void make_operation_layer();

  // lower.cc: kernels
  static Step kernel(KernelKind, double scale, int q, int k, int v, int g = -1, int beta = -1);
  int kernel_step(Step, std::string axes, std::vector<StatePart> states);
  int oracle_step(double scale);

  // family_steps.cc
  int quantity(const Quantity&, const std::string& input);
  int normalised_keys(const std::string& name);
  int features(int value);
  int log_fade();
  int importance();
  int scaled_importance();
  int decay_before();
  int step_size(int k);
  StatePart memory_part(int k, int v, std::string name = "S", std::string meaning = "the memory") const;
  int family_step(Claim, double scale);
  int decay_step(int q, int k, int v, double scale);
  int delta_step(int q, int k, int v, double scale);
  int product_step(int n, int q, int k, int v, int g, int beta, double scale);
  int gated_step(int q, int k, int v, double scale);
  int dplr_step(int q, int k, int v, double scale);
  int momentum_step(int q, int k, int v, double scale);
  int projection_step(int q, int k, int v, double scale);
  // solver_steps.cc
  int least_squares_step(int q, int k, int v, double scale);
  int givens_step(int q, int k, int v, double scale);
  int iterative_step(int q, int k, int v, double scale);
  int kalman_step(int q, int k, int v, double scale);
  int woodbury_step(double scale);
  int landmarks_step();
  int whole_step(int q, int k, int v, double scale);
  int own_kernel_step(double scale);
  // neural_steps.cc
  int neural_step(int q, int k, int v, double scale);
  int arrangement_step(double scale);
  Step network(KernelKind, int q, int k, int v, double scale);
  std::vector<StatePart> neural_parts(const families::NeuralModel&, int k);
  // solver_steps.cc
  int window_step(int q, int k, int v, double scale);
  int attention_step(int q, int k, int v);
  int local_linear_step(int q, int k, int v);
  int path_attention_step(int q, int k, int v);
  int deltaformer_step(int q, int k, int v);
  int kernel_regression_step(int q, int k, int v);
  int bandwidth_of_weights();
  double near_scale() const;
  std::vector<StatePart> pairs_kept(int k, int v, bool gates);
  // family_steps.cc
  int channel_step();
  int rotating_step(int q, int k, int v, double scale);
  int weighted_mean_step();
  int log_linear_step(int q, int k, int v, double scale);
  int stabilised_step(int q, int k, int v, double scale);
  int slots_step(int q, int k, int v, double scale);
  int trapezoid_step(int q, int k, int v, double scale);
  int oja_step(int q, int k, int v, double scale);
  int selective_step(double scale);
  int running_step(const zoo::Stage&, const std::vector<int>& from, std::string axes);

  Pipeline p_;
  const zoo::Declaration* layer_;
  const Shape& shape_;
  const Options& options_;
  Type type_;
  std::map<std::string, int> stage_results_, canonical_values_;
};

}  // namespace ttr
