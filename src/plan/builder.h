// The builder of pipelines. lower.cc puts the layer's inputs, stages and read-out around the regression; a family's
// `build` (families/family.h) adds the steps of its kernel with the functions below.
//
//   int build(Builder& b, double scale) {
//     const int q = b.keys("q"), k = b.keys("k"), v = b.canonical("v");
//     Step step = b.kernel(decay_family, scale, q, k, v, b.log_fade(), b.importance());
//     return b.add(std::move(step), "BTHV", {b.memory_part(k, v)});
//   }
//
// A value is known by its index; below zero there is none.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/pipeline.h"

namespace ttr {

class Builder {
 public:
  Builder(const Design&, const zoo::Declaration*, const Shape&, const Options&);

  /// `scale` is the factor on q.
  Pipeline build(double scale);

  // What is built.
  const Design& design() const { return p_.design; }
  const zoo::Declaration* layer() const { return layer_; }  // null: a bare recipe
  const Shape& shape() const { return shape_; }
  const Options& options() const { return options_; }
  Type type() const { return type_; }
  Pipeline& pipeline() { return p_; }

  // Values: inputs of the layer, results of its stages, canonical inputs of the design.
  /// The canonical input of that name, made when first asked for; -1 if the design does not ask for it.
  int canonical(const std::string& name);
  /// What a stage or a kernel names: an input of the layer, the result of a stage, a canonical input, or a number.
  int operand(const std::string& name);
  bool has(const std::string& name) const;
  int index_of(const std::string& name) const;
  bool produced(const std::string& name) const;  // whether the layer makes this canonical input itself
  int add_value(Value);
  int constant(double number) { return add_value({"", "", Value::From::constant, -1, {number}}); }
  // By value: a reference would not outlive the next value.
  Axes axes(int value) const { return p_.values[static_cast<std::size_t>(value)].axes; }
  int extent(char letter) const;
  int width(int value) const;  // of its last axis
  int per_head(int value);     // q and k of a group, written out for every head

  // Steps.
  int operation(prepare::Op, std::vector<int> operands, Axes axes, double number = 0, std::string name = {});
  /// A step of the family with its first operands; `slots` counts those and its own.
  static Step kernel(const Family&, double scale, int q, int k, int v, int g = -1, int beta = -1,
                     std::size_t slots = Slot::own);
  /// Adds a kernel whose result has these axes; the states are its own.
  int add(Step, Axes axes, std::vector<StatePart> states);
  /// A second result of a kernel, by which the layer's read-out and the caller may call it.
  int second_result(Step&, const std::string& name, Axes axes);
  /// A result of a kernel besides the answer, as an output [B, T, H]. A layer says itself whether it has it; a recipe
  /// has all there are.
  int further_output(const InputInfo&);

  // Quantities of the design that several families ask for (quantities.cc).
  int quantity(const Quantity&, const std::string& input);  // absent (-1), a constant, or an input
  int keys(const std::string& name);                        // q, k or p with their norm and features
  int plain_keys(const std::string& name);                  // without the features
  int squared_keys(const std::string& name);  // linear(rebased): what is squared; of a layer that squares, its input
  int log_fade();  // of the weights: absent, a constant, `g`, or the log of |a| (gate(signed))
  /// Factors of either sign are their sizes, of which families take the logs, and +1 or -1: with p_t the product of the
  /// signs up to token t, p S fades by the sizes alone if what is written is multiplied by p_t; so is what is read.
  int log_magnitude(int factors);
  int running_sign(int factors, std::string state, const std::string& of);
  int with_sign(int value, int sign);
  int importance();
  int scaled_importance();  // times the constant step of gd(1)
  int decay_before();       // log factor on the state before a step
  int step_size(int k);     // on the newest pair, as its rule says
  /// The state S of a linear memory: a matrix per head, as wide as k and v.
  StatePart memory_part(int k, int v, std::string name = "S", std::string meaning = "the memory") const;
  /// The same without its last axis.
  StatePart vector_part(int k, std::string name, std::string meaning) const;

 private:
  void give_pairs_their_own_time();
  const InputInfo* canonical_info(const std::string& name) const;
  int canonical_value(const InputInfo&);
  int stage_result(const std::string& name, Axes axes);
  int run_stage(const zoo::Stage&, Axes axes);
  int features(int value);
  int position();
  void finish(int answer);
  Axes axes_of(const std::string& name) const;
  void drop_unused_inputs();
  void find_replayed();
  void make_operation_layer();

  Pipeline p_;
  const zoo::Declaration* layer_;
  const Shape& shape_;
  const Options& options_;
  Type type_;
  std::map<std::string, int> stage_results_, canonical_values_;
  int position_ = -1;
};

}  // namespace ttr
